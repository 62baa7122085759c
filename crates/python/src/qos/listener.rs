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

use super::connection::QosChannel;
use super::errors::{BindError, ClosedError};
use super::specification::QosOptionsFields;
use super::transport::{ClientTransport, unknown_transport};
use super::{failure, quic_error};
use crate::live::{Identity, Notifier, PendingResult, Waker, address, lock, parts, token};

/// Maximum connections queued for `try_accept`; further ones are closed.
const MAX_QUEUED: usize = 256;

/// Time limit of the connection that wakes the accepting thread so that it ends.
const WAKE_TIMEOUT: Wall = Wall::from_secs(1);

enum AnyListener {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener),
}

/// The transport of a listener, with its identity and token over QUIC.
enum ListenerTransport {
    Tcp,
    Udp,
    Quic(Py<Identity>, Token),
}

impl ListenerTransport {
    fn bind(&self, at: SocketAddr, options: QosOptions) -> Result<AnyListener, SetupError> {
        match self {
            Self::Tcp => QosListener::bind(at, options).map(AnyListener::Tcp),
            Self::Udp => QosSocket::bind(at, options).map(AnyListener::Udp),
            Self::Quic(identity, token) => {
                QosConnection::bind(at, (&identity.get().0, token), options).map(AnyListener::Quic)
            }
        }
    }

    /// The transport with which this process connects to its own listener.
    fn client_transport(&self) -> ClientTransport {
        match self {
            Self::Tcp => ClientTransport::Tcp,
            Self::Udp => ClientTransport::Udp,
            Self::Quic(identity, token) => {
                let trust = Trust::Fingerprint(identity.get().0.fingerprint());
                ClientTransport::Quic("localhost".to_owned(), trust, token.clone())
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
        fn any<C>(
            accepted: Accepted<C>,
            socket: impl FnOnce(C) -> AnySocket,
        ) -> Accepted<AnySocket> {
            match accepted {
                Accepted::Connection(one, remote) => Accepted::Connection(socket(one), remote),
                Accepted::Refused(remote, error) => Accepted::Refused(remote, error),
                Accepted::Exhausted(error) => Accepted::Exhausted(error),
            }
        }
        match self {
            Self::Tcp(listener) => Ok(any(listener.accept_or_refuse()?, AnySocket::Tcp)),
            Self::Udp(listener) => Ok(any(listener.accept_or_refuse()?, AnySocket::Udp)),
            Self::Quic(listener) => Ok(any(listener.accept_or_refuse()?, AnySocket::Quic)),
        }
    }
}

#[derive(Default)]
struct AcceptQueue {
    accepted: VecDeque<Accepted<AnySocket>>,
    failed: Option<String>,
    is_closed: bool,
}

/// Accepts connections until the listener is closed.
fn accept_all(listener: &AnyListener, queue: &Mutex<AcceptQueue>, notifier: &Notifier) {
    loop {
        let accepted = listener.accept();
        let mut queue = lock(queue);
        if queue.is_closed {
            return;
        }
        match accepted {
            Ok(_) if queue.accepted.len() >= MAX_QUEUED => {}
            // The listener accepts again after a pause.
            Ok(Accepted::Exhausted(_)) => continue,
            Ok(accepted) => queue.accepted.push_back(accepted),
            Err(error) => queue.failed = Some(error.to_string()),
        }
        let has_failed = queue.failed.is_some();
        drop(queue);
        notifier.notify();
        if has_failed {
            return;
        }
    }
}

/// Listens at an address; the result is a `QosAcceptor`. `known` is the identity and the token of
/// QUIC.
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
        ("tcp", None) => ListenerTransport::Tcp,
        ("udp", None) => ListenerTransport::Udp,
        ("quic", Some((identity, secret))) => ListenerTransport::Quic(identity, token(&secret)?),
        _ => return Err(unknown_transport(carrier)),
    };
    let notifier = waker.get().notifier();
    let work = move || {
        let listener = binding.bind(at, options)?;
        let local = listener.local()?;
        let queue = Arc::<Mutex<AcceptQueue>>::default();
        let (shared, key) = (Arc::clone(&queue), notifier.key);
        thread::Builder::new()
            .name("ontempo-accept".to_owned())
            .spawn(move || accept_all(&listener, &shared, &notifier))?;
        let wake_transport = Mutex::new(Some(binding.client_transport()));
        Ok(QosAcceptor { queue, key, local: parts(local), wake_transport, address: local })
    };
    waker.get().spawn(work, move |py, bound: Result<_, SetupError>| {
        let acceptor = bound.map_err(|error| match error {
            SetupError::Io(error) if quic_error(&error).is_none() => {
                BindError::new_err(format!("no listener at {at}: {error}"))
            }
            other => failure(&other),
        })?;
        Ok(Py::new(py, acceptor)?.into_any())
    })
}

/// Accepts connections on a thread.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct QosAcceptor {
    queue: Arc<Mutex<AcceptQueue>>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    local: (String, u16),
    /// Used once, to connect to this listener and so wake the accepting thread.
    wake_transport: Mutex<Option<ClientTransport>>,
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
    /// Ends the accepting thread; it blocks in accept, so this process connects to it.
    fn end(&self) -> impl FnOnce() + Send + 'static {
        lock(&self.queue).is_closed = true;
        let (transport, mut address) = (lock(&self.wake_transport).take(), self.address);
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        move || {
            if let Some(transport) = transport {
                let options = QosOptions { setup_timeout: WAKE_TIMEOUT, ..QosOptions::default() };
                // The thread has been woken even if the connection fails.
                drop(transport.connect(address, &options));
            }
        }
    }
}

#[pymethods]
impl QosAcceptor {
    /// The next arrival; `None` while there is none.
    fn try_accept(&self, py: Python<'_>, waker: &Waker) -> PyResult<Option<Arrival>> {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return Err(ClosedError::new_err(("the listener is closed", CloseReason::Done.name())));
        }
        let Some(accepted) = queue.accepted.pop_front() else {
            let failed = queue.failed.clone();
            return match failed {
                Some(reason) => {
                    let sentence = format!("the listener ended: {reason}");
                    Err(ClosedError::new_err((sentence, CloseReason::Ended.name())))
                }
                None => Ok(None),
            };
        };
        drop(queue);
        Ok(Some(match accepted {
            Accepted::Connection(socket, _) => {
                Arrival::Connection(Py::new(py, QosChannel::new(socket, waker.notifier())?)?)
            }
            Accepted::Refused(remote, error) => {
                let reason = super::close_reason(&error).map(|closed| closed.reason.name());
                Arrival::Refused((parts(remote), error.to_string(), reason))
            }
            // Never queued.
            Accepted::Exhausted(_) => return Ok(None),
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
        // If no thread can be started, the accepting thread ends with the process.
        let _ = thread::Builder::new().spawn(end);
    }
}
