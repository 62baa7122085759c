//! Addresses of the command line, and sockets bound to them.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use ontempo_foundation::AddressError;
use ontempo_qos::SetupError;
use ontempo_udp::{Socket, SocketOptions};

use crate::failure::{Failure, environment};

/// The first address of `HOST:PORT`.
pub(crate) fn resolve(text: &str, option: &str) -> Result<SocketAddr, Failure> {
    ontempo_foundation::resolve(text).map_err(|error| match error {
        AddressError::Written(what) => Failure::Input(format!("{option}{text}: {what}")),
        AddressError::Unknown(what) => Failure::Environment(format!("{option}{what}")),
    })
}

/// All addresses of `HOST:PORT`, in the system's order, each once.
pub(crate) fn resolve_all(text: &str, option: &str) -> Result<Vec<SocketAddr>, Failure> {
    let mut all = vec![resolve(text, option)?];
    // A name that has just been known; an address in brackets is its only one.
    for address in text.to_socket_addrs().into_iter().flatten() {
        if !all.contains(&address) && all.len() < MAX_ADDRESSES {
            all.push(address);
        }
    }
    Ok(all)
}

/// Addresses of a name that are tried, at most.
const MAX_ADDRESSES: usize = 16;

/// From the first attempt at an address to that at the next (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How often an attempt is repeated, and how long all are waited for after the last has begun.
const AGAIN: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(3);

/// How often answers are looked for.
const POLL: Duration = Duration::from_millis(2);

/// Whether a datagram is the answer.
type Fits = Box<dyn Fn(&[u8]) -> bool>;

/// A datagram that a server answers without keeping anything.
pub(crate) struct Greeting {
    pub(crate) bytes: Vec<u8>,
    /// Whether this is the answer.
    pub(crate) fits: Fits,
}

impl Greeting {
    /// Asks a QUIC server for its versions (RFC 9000, section 6): an Initial of a version that is
    /// reserved for this (section 15), of the least size.
    pub(crate) fn quic() -> Self {
        let id = ontempo_udp::random().to_be_bytes();
        let mut bytes = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
        bytes.extend(ontempo_udp::random().to_be_bytes());
        bytes.push(8);
        bytes.extend(id);
        bytes.resize(1_200, 0);
        // Version 0, and our id as the destination's.
        let fits = move |answer: &[u8]| {
            answer.first().is_some_and(|first| first & 0x80 != 0)
                && answer.get(1..6) == Some(&[0, 0, 0, 0, 8])
                && answer.get(6..14) == Some(&id)
        };
        Self { bytes, fits: Box::new(fits) }
    }
}

/// An attempt at an address.
struct Attempt {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    again: Instant,
    /// Why it failed.
    failed: Option<String>,
}

impl Attempt {
    fn begin(address: SocketAddr, now: Instant) -> Self {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let connected = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => Self { address, socket: Some(socket), again: now, failed: None },
            Err(error) => {
                Self { address, socket: None, again: now, failed: Some(error.to_string()) }
            }
        }
    }

    /// Greets if that is due, and says whether an answer is there.
    fn is_answered(&mut self, now: Instant, greeting: &Greeting) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| self.failed.is_none()) else {
            return false;
        };
        let mut answer = [0; 2_048];
        let mut failed = None;
        if self.again <= now {
            self.again = now + AGAIN;
            failed = socket.send(&greeting.bytes).err();
        }
        let is_answered = match socket.recv(&mut answer) {
            Ok(length) => (greeting.fits)(&answer[..length]),
            Err(error) => {
                failed = failed.or(Some(error));
                false
            }
        };
        self.failed = failed
            .filter(|error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
            .map(|error| error.to_string());
        is_answered
    }
}

/// The first of a name's addresses that answers, tried in turn; the only one of a name that has one,
/// without trying it.
pub(crate) fn answering(
    text: &str,
    option: &str,
    greeting: &Greeting,
) -> Result<SocketAddr, Failure> {
    let all = resolve_all(text, option)?;
    first_answering(&all, greeting)
        .map_err(|why| Failure::Environment(format!("{option}{text}: {why}")))
}

/// The same of known addresses; the error names each.
pub(crate) fn first_answering(
    all: &[SocketAddr],
    greeting: &Greeting,
) -> Result<SocketAddr, String> {
    if let [only] = all {
        return Ok(*only);
    }
    let mut left = all.iter();
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut next = Instant::now();
    let mut give_up = next + PATIENCE;
    loop {
        let now = Instant::now();
        let has_all_failed = attempts.iter().all(|attempt| attempt.failed.is_some());
        if next <= now || has_all_failed {
            match left.next() {
                Some(address) => {
                    attempts.push(Attempt::begin(*address, now));
                    (next, give_up) = (now + ATTEMPT_DELAY, now + PATIENCE);
                }
                None if has_all_failed || give_up <= now => return Err(reasons(&attempts)),
                None => {}
            }
        }
        let found = attempts
            .iter_mut()
            .find_map(|attempt| attempt.is_answered(now, greeting).then_some(attempt.address));
        if let Some(address) = found {
            return Ok(address);
        }
        std::thread::sleep(POLL);
    }
}

/// Connects to the first address that accepts, one after the other; the error of several names each.
pub(crate) fn connect_in_turn<T>(
    all: &[SocketAddr],
    mut connect: impl FnMut(SocketAddr) -> Result<T, SetupError>,
) -> Result<T, SetupError> {
    let mut failed = Vec::new();
    for &address in all {
        match connect(address) {
            // Any other error is the peer's answer.
            Err(error @ (SetupError::Io(_) | SetupError::Silent)) if all.len() > 1 => {
                failed.push(format!("{address}: {error}"))
            }
            done => return done,
        }
    }
    Err(SetupError::from(io::Error::other(failed.join("; "))))
}

fn reasons(attempts: &[Attempt]) -> String {
    let reason = |attempt: &Attempt| {
        let why = attempt.failed.as_deref().unwrap_or("no answer");
        format!("{}: {why}", attempt.address)
    };
    attempts.iter().map(reason).collect::<Vec<_>>().join("; ")
}

/// A socket bound to `[ADDRESS]:PORT`, or to all addresses. The error for a missing port suggests
/// `example_port`.
pub(crate) fn socket_at(
    at: &str,
    option: &str,
    example_port: u16,
    options: SocketOptions,
) -> Result<Socket, Failure> {
    let socket = match at.strip_prefix(':').or_else(|| (!at.contains(':')).then_some(at)) {
        Some(port) => {
            let port = port.parse().map_err(|_| {
                Failure::Input(format!("{option} {at}: `{port}` is no port: write :{example_port}"))
            })?;
            Socket::bind_any(port, options)
        }
        None => Socket::bind(resolve(at, &format!("{option} "))?, options),
    };
    socket.map_err(|error| Failure::Environment(format!("{option} {at}: {error}")))
}

/// A socket that can reach `remote`.
pub(crate) fn socket_for(remote: SocketAddr) -> Result<Socket, Failure> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let address = any.parse().map_err(environment)?;
    Socket::bind(address, SocketOptions::default()).map_err(environment)
}
