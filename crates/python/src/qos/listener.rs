//! Listeners.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration as Wall;

use ontempo_qos::{
    Accepted, AnySocket, QosConnection, QosConnectionListener, QosListener, QosOptions, QosSocket,
    QosSocketListener, SetupError,
};
use ontempo_transport::{CloseReason, Token, Trust};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::carried::{ClientCarrier, no_carrier};
use super::connection::QosChannel;
use super::errors::{BindError, ClosedError};
use super::specification::QosOptionsFields;
use super::{failure, inside};
use crate::live::{Identity, Notifier, PendingResult, Waker, address, lock, parts, token};

/// Connections that wait to be accepted; further ones are closed.
const MAX_WAITING: usize = 256;

/// Time limit of the connection that wakes the accepting thread so that it ends.
const LAST_CALL: Wall = Wall::from_secs(1);

enum AnyListener {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener),
}

/// The carrier that a listener is bound to, with its identity and token over QUIC.
enum ListenerCarrier {
    Tcp,
    Udp,
    Quic(Py<Identity>, Token),
}

impl ListenerCarrier {
    fn bind(&self, at: SocketAddr, options: QosOptions) -> Result<AnyListener, SetupError> {
        match self {
            Self::Tcp => QosListener::bind(at, options).map(AnyListener::Tcp),
            Self::Udp => QosSocket::bind(at, options).map(AnyListener::Udp),
            Self::Quic(identity, token) => {
                QosConnection::bind(at, (&identity.get().0, token), options).map(AnyListener::Quic)
            }
        }
    }

    /// The carrier by which this process connects to the listener itself.
    fn client_carrier(&self) -> ClientCarrier {
        match self {
            Self::Tcp => ClientCarrier::Tcp,
            Self::Udp => ClientCarrier::Udp,
            Self::Quic(identity, token) => {
                let trust = Trust::Fingerprint(identity.get().0.fingerprint());
                ClientCarrier::Quic("localhost".to_owned(), trust, token.clone())
            }
        }
    }
}

impl AnyListener {
    fn local(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_address(),
            Self::Udp(listener) => Ok(listener.local_address()),
            Self::Quic(listener) => Ok(listener.local_address()),
        }
    }

    fn accept(&self) -> io::Result<Accepted<AnySocket>> {
        fn whatever<C>(
            accepted: Accepted<C>,
            carried: impl FnOnce(C) -> AnySocket,
        ) -> Accepted<AnySocket> {
            match accepted {
                Accepted::Connection(one, remote) => Accepted::Connection(carried(one), remote),
                Accepted::Refused(remote, error) => Accepted::Refused(remote, error),
            }
        }
        match self {
            Self::Tcp(listener) => Ok(whatever(listener.accept_or_refuse()?, AnySocket::Tcp)),
            Self::Udp(listener) => Ok(whatever(listener.accept_or_refuse()?, AnySocket::Udp)),
            Self::Quic(listener) => Ok(whatever(listener.accept_or_refuse()?, AnySocket::Quic)),
        }
    }
}

#[derive(Default)]
struct Waiting {
    came: VecDeque<Accepted<AnySocket>>,
    failed: Option<String>,
    is_closed: bool,
}

/// Accepts connections until the listener is closed.
fn take(listening: &AnyListener, waiting: &Mutex<Waiting>, notifier: &Notifier) {
    loop {
        let accepted = listening.accept();
        let mut waiting = lock(waiting);
        if waiting.is_closed {
            return;
        }
        match accepted {
            Ok(_) if waiting.came.len() >= MAX_WAITING => {}
            Ok(accepted) => waiting.came.push_back(accepted),
            Err(error) => waiting.failed = Some(error.to_string()),
        }
        let has_failed = waiting.failed.is_some();
        drop(waiting);
        notifier.notify();
        if has_failed {
            return;
        }
    }
}

/// Listens at an address; answers a `QosAcceptor`. Over QUIC a certificate and a token are `known`.
#[pyfunction]
pub(crate) fn qos_bind(
    carrier: &str,
    at: (Option<String>, u16),
    options: QosOptionsFields,
    known: Option<(Py<Identity>, PyBackedBytes)>,
    waker: Py<Waker>,
) -> PyResult<PendingResult> {
    let any = || SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), at.1);
    let at = at.0.map_or_else(|| Ok(any()), |host| address(&host, at.1))?;
    let options = options.options()?;
    let binding = match (carrier, known) {
        ("tcp", None) => ListenerCarrier::Tcp,
        ("udp", None) => ListenerCarrier::Udp,
        ("quic", Some((identity, secret))) => ListenerCarrier::Quic(identity, token(&secret)?),
        _ => return Err(no_carrier(carrier)),
    };
    let notifier = waker.get().notifier();
    let work = move || {
        let listening = binding.bind(at, options)?;
        let local = listening.local()?;
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (shared, key) = (Arc::clone(&waiting), notifier.key);
        thread::Builder::new()
            .name("ontempo-accept".to_owned())
            .spawn(move || take(&listening, &shared, &notifier))?;
        let calling = Mutex::new(Some(binding.client_carrier()));
        Ok(QosAcceptor { waiting, key, local: parts(local), calling, address: local })
    };
    waker.get().spawn(work, move |py, bound: Result<_, SetupError>| {
        let door = bound.map_err(|error| match error {
            SetupError::Io(error) if inside(&error).is_none() => {
                BindError::new_err(format!("no listener at {at}: {error}"))
            }
            other => failure(&other),
        })?;
        Ok(Py::new(py, door)?.into_any())
    })
}

/// Takes connections.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct QosAcceptor {
    waiting: Arc<Mutex<Waiting>>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    local: (String, u16),
    /// By which the process connects to it, once, to wake the accepting thread.
    calling: Mutex<Option<ClientCarrier>>,
    address: SocketAddr,
}

/// An accepted connection, or the address of a refused one with the reason and the name of the
/// `CloseReason`, if there is one.
#[derive(IntoPyObject)]
pub(crate) enum Arrival {
    Connection(Py<QosChannel>),
    Refused(((String, u16), String, Option<&'static str>)),
}

impl QosAcceptor {
    /// Ends the accepting thread, which blocks in accept: this process connects to it.
    fn end(&self) -> impl FnOnce() + Send + 'static {
        lock(&self.waiting).is_closed = true;
        let (calling, mut address) = (lock(&self.calling).take(), self.address);
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        move || {
            if let Some(calling) = calling {
                let options = QosOptions { patience: LAST_CALL, ..QosOptions::default() };
                // Whether it succeeds or not, the thread has been woken.
                drop(calling.connect(address, &options));
            }
        }
    }
}

#[pymethods]
impl QosAcceptor {
    /// The next arrival; `None` while there is none.
    fn try_accept(&self, py: Python<'_>, waker: &Waker) -> PyResult<Option<Arrival>> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_closed {
            return Err(ClosedError::new_err(("the listener is closed", CloseReason::Done.name())));
        }
        let Some(accepted) = waiting.came.pop_front() else {
            let failed = waiting.failed.clone();
            return match failed {
                Some(reason) => {
                    let sentence = format!("the listener ended: {reason}");
                    Err(ClosedError::new_err((sentence, CloseReason::Ended.name())))
                }
                None => Ok(None),
            };
        };
        drop(waiting);
        Ok(Some(match accepted {
            Accepted::Connection(carried, _) => {
                Arrival::Connection(Py::new(py, QosChannel::new(carried, waker.notifier())?)?)
            }
            Accepted::Refused(remote, error) => {
                let reason = super::close_reason(&error);
                Arrival::Refused((parts(remote), error.to_string(), reason))
            }
        }))
    }

    /// Stops accepting.
    fn close(&self, waker: &Waker) -> PyResult<PendingResult> {
        waker.spawn(self.end(), |py, ()| Ok(py.None()))
    }
}

impl Drop for QosAcceptor {
    fn drop(&mut self) {
        let end = self.end();
        // Without a thread left the other one waits on, and ends with the process.
        let _ = thread::Builder::new().spawn(end);
    }
}
