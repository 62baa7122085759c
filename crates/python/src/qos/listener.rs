//! Taking connections.

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

use super::carried::{Calling, no_carrier};
use super::connection::QosLink;
use super::errors::{BindError, ClosedError};
use super::specification::GivenOptions;
use super::{failure, inside};
use crate::live::{Answer, Identity, Place, Waker, address, lock, parts, token};

/// Those who came and wait to be taken; more are closed, the newest first.
const MAX_WAITING: usize = 256;

/// How long the thread that waits for others may take to notice that it is to end.
const LAST_CALL: Wall = Wall::from_secs(1);

enum Listening {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener),
}

/// What a listener is bound by.
enum Binding {
    Tcp,
    Udp,
    Quic(Py<Identity>, Token),
}

impl Binding {
    fn bind(&self, at: SocketAddr, options: QosOptions) -> Result<Listening, SetupError> {
        match self {
            Self::Tcp => QosListener::bind(at, options).map(Listening::Tcp),
            Self::Udp => QosSocket::bind(at, options).map(Listening::Udp),
            Self::Quic(identity, token) => {
                QosConnection::bind(at, (&identity.get().0, token), options).map(Listening::Quic)
            }
        }
    }

    /// How we ourselves connect to it.
    fn calling(&self) -> Calling {
        match self {
            Self::Tcp => Calling::Tcp,
            Self::Udp => Calling::Udp,
            Self::Quic(identity, token) => {
                let trust = Trust::Fingerprint(identity.get().0.fingerprint());
                Calling::Quic("localhost".to_owned(), trust, token.clone())
            }
        }
    }
}

impl Listening {
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

/// Takes those who come until the listener is closed.
fn take(listening: &Listening, waiting: &Mutex<Waiting>, place: &Place) {
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
        place.tell();
        if has_failed {
            return;
        }
    }
}

/// Listens at an address; answers a `QosDoor`. Over QUIC a certificate and a token are `known`.
#[pyfunction]
pub(crate) fn qos_bind(
    carrier: &str,
    at: (Option<String>, u16),
    options: GivenOptions,
    known: Option<(Py<Identity>, PyBackedBytes)>,
    waker: Py<Waker>,
) -> PyResult<Answer> {
    let any = || SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), at.1);
    let at = at.0.map_or_else(|| Ok(any()), |host| address(&host, at.1))?;
    let options = options.options()?;
    let binding = match (carrier, known) {
        ("tcp", None) => Binding::Tcp,
        ("udp", None) => Binding::Udp,
        ("quic", Some((identity, secret))) => Binding::Quic(identity, token(&secret)?),
        _ => return Err(no_carrier(carrier)),
    };
    let place = waker.get().place();
    let work = move || {
        let listening = binding.bind(at, options)?;
        let local = listening.local()?;
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (told, key) = (Arc::clone(&waiting), place.key);
        thread::Builder::new()
            .name("ontempo-accept".to_owned())
            .spawn(move || take(&listening, &told, &place))?;
        let calling = Mutex::new(Some(binding.calling()));
        Ok(QosDoor { waiting, key, local: parts(local), calling, address: local })
    };
    waker.get().later(work, move |py, bound: Result<_, SetupError>| {
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
pub(crate) struct QosDoor {
    waiting: Arc<Mutex<Waiting>>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    local: (String, u16),
    /// How we ourselves connect to it, once.
    calling: Mutex<Option<Calling>>,
    address: SocketAddr,
}

/// Who came: one to talk to, or one who was refused, with the sentence and the name of the
/// `CloseReason`, where there is one.
#[derive(IntoPyObject)]
pub(crate) enum Arrival {
    Connection(Py<QosLink>),
    Refused(((String, u16), String, Option<&'static str>)),
}

impl QosDoor {
    /// Ends the thread, which waits for somebody: that is ourselves.
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
                // Whatever comes of it, the thread has been woken.
                drop(calling.connect(address, &options));
            }
        }
    }
}

#[pymethods]
impl QosDoor {
    /// Who came next; `None` where nobody did.
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
                Arrival::Connection(Py::new(py, QosLink::new(carried, waker.place())?)?)
            }
            Accepted::Refused(remote, error) => {
                let reason = super::close_reason(&error);
                Arrival::Refused((parts(remote), error.to_string(), reason))
            }
        }))
    }

    /// Takes no more; answers once that is so.
    fn close(&self, waker: &Waker) -> PyResult<Answer> {
        waker.later(self.end(), |py, ()| Ok(py.None()))
    }
}

impl Drop for QosDoor {
    fn drop(&mut self) {
        let end = self.end();
        // Without a thread left the other one waits on, and ends with the process.
        let _ = thread::Builder::new().spawn(end);
    }
}
