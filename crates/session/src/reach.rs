//! Which of a host's addresses answers.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use ontempo_foundation::AddressError;

/// All addresses of `HOST:PORT`, in the system's order, each once.
///
/// # Errors
/// The text is no address, or the name is not known.
pub fn resolve_all(text: &str) -> Result<Vec<SocketAddr>, AddressError> {
    let mut all = vec![ontempo_foundation::resolve(text)?];
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
pub type Fits = Box<dyn Fn(&[u8]) -> bool>;

/// A datagram that a server answers without keeping anything.
pub struct Greeting {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Whether this is the answer.
    pub fits: Fits,
}

impl Greeting {
    /// Asks a QUIC server for its versions (RFC 9000, section 6): an Initial of a version that is
    /// reserved for this (section 15), of the least size.
    pub fn quic() -> Self {
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

/// The first of a host's addresses that answers, tried in turn; an only one without trying it.
///
/// # Errors
/// None answers within 3 s; a sentence that names each.
pub fn first_answering(all: &[SocketAddr], greeting: &Greeting) -> Result<SocketAddr, String> {
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

fn reasons(attempts: &[Attempt]) -> String {
    let reason = |attempt: &Attempt| {
        let why = attempt.failed.as_deref().unwrap_or("no answer");
        format!("{}: {why}", attempt.address)
    };
    attempts.iter().map(reason).collect::<Vec<_>>().join("; ")
}
