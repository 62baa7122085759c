//! The gateway's flows of UDP datagrams: one for each address that clients send from, each with a QoS
//! socket of its own. A datagram is a message.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Percent;
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{Activity, AnySocket, Pace};

use super::{Far, Near, Relay};

/// Maximum bytes and datagrams of a client that wait for its flow; those beyond are dropped.
const MAX_WAITING_BYTES: usize = 128 << 10;
const MAX_WAITING: usize = 256;

/// The longest datagram.
const MAX_DATAGRAM: usize = 65_535;

/// How often a flow looks whether it has ended.
const LOOK: Wall = Wall::from_millis(500);

/// What is asked for without a file: datagrams may be lost and overtake each other, as over UDP.
pub(super) fn default_specification() -> Specification {
    Specification {
        loss: Term::coerced(Percent::from_thousandths(100_000)),
        permutable: Term::coerced(true),
        ..Specification::default()
    }
}

/// A flow's end at the program.
pub(super) struct Flow {
    program: Program,
    /// It has ended.
    ends: AtomicBool,
    /// No datagram for so long ends it.
    idle: Wall,
    /// Datagrams that were not relayed: longer than agreed, or too many at once.
    dropped: AtomicU64,
}

enum Program {
    /// Near the client: all share a socket, whose reader distributes what comes.
    Client { socket: Arc<UdpSocket>, address: SocketAddr, waiting: Waiting },
    /// Near the server: a socket connected to it.
    Server(UdpSocket),
}

/// Datagrams that wait for the flow's thread, and their bytes.
#[derive(Default)]
struct Waiting {
    datagrams: Mutex<(VecDeque<Vec<u8>>, usize)>,
    changed: Condvar,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Vec<u8>>, usize)> {
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a datagram; false if there is no room.
    fn push(&self, datagram: &[u8]) -> bool {
        let mut waiting = self.lock();
        let (queue, bytes) = &mut *waiting;
        if queue.len() >= MAX_WAITING || *bytes + datagram.len() > MAX_WAITING_BYTES {
            return false;
        }
        *bytes += datagram.len();
        queue.push_back(datagram.to_vec());
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// The next one; `None` if none comes in time.
    fn pop(&self) -> Option<Vec<u8>> {
        let waiting = self.lock();
        let is_empty = |waiting: &mut (VecDeque<Vec<u8>>, usize)| waiting.0.is_empty();
        let waited = self.changed.wait_timeout_while(waiting, LOOK, is_empty);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        let datagram = waiting.0.pop_front()?;
        waiting.1 -= datagram.len();
        Some(datagram)
    }
}

impl Flow {
    fn new(program: Program, idle: Wall) -> Arc<Self> {
        let (ends, dropped) = (AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Self { program, ends, idle, dropped })
    }

    /// To a server.
    pub(super) fn to(server: SocketAddr, idle: Wall) -> io::Result<Near> {
        let socket = UdpSocket::bind(ontempo_udp::any_for(server))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(LOOK))?;
        Ok(Near::Flow(Self::new(Program::Server(socket), idle)))
    }

    pub(super) fn end(&self) {
        self.ends.store(true, Relaxed);
    }

    fn is_over(&self, activity: &Activity) -> bool {
        self.ends.load(Relaxed) || activity.idle(Instant::now()) >= self.idle
    }

    /// The program's next datagram; `None` if none comes in time.
    fn receive(&self, room: &mut [u8]) -> Option<usize> {
        match &self.program {
            Program::Client { waiting, .. } => {
                let datagram = waiting.pop()?;
                room[..datagram.len()].copy_from_slice(&datagram);
                Some(datagram.len())
            }
            Program::Server(socket) => match socket.recv(room) {
                Ok(length) => Some(length),
                Err(error) => {
                    let waits = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    if !waits && error.kind() != ErrorKind::ConnectionRefused {
                        // It does not fail again at once for ever.
                        thread::sleep(LOOK);
                    }
                    None
                }
            },
        }
    }

    /// Datagrams that were not relayed.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Sends to the program. What the system does not take is lost, as any datagram may be.
    fn send(&self, datagram: &[u8]) {
        let _ = match &self.program {
            Program::Client { socket, address, .. } => socket.send_to(datagram, address),
            Program::Server(socket) => socket.send(datagram),
        };
    }
}

/// Distributes the datagrams of clients to their flows. Returns when the socket fails.
pub(super) fn near_clients(
    socket: &Arc<UdpSocket>,
    far: &Arc<Far>,
    idle: Wall,
    relay: &Relay,
) -> io::Error {
    let mut flows: HashMap<SocketAddr, Weak<Flow>> = HashMap::new();
    let mut room = vec![0; MAX_DATAGRAM];
    loop {
        let (length, client) = match socket.recv_from(&mut room) {
            Ok(got) => got,
            // ICMP errors of clients that have gone.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionRefused | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return error,
        };
        let known = flows.get(&client).and_then(Weak::upgrade);
        let flow = match known.filter(|flow| !flow.ends.load(Relaxed)) {
            Some(flow) => flow,
            None => {
                // Those that have ended make room.
                if flows.len() >= 2 * relay.lock().max() {
                    flows.retain(|_, flow| flow.strong_count() > 0);
                }
                let waiting = Waiting::default();
                let program =
                    Program::Client { socket: Arc::clone(socket), address: client, waiting };
                let flow = Flow::new(program, idle);
                let (far, near) = (Arc::clone(far), Near::Flow(Arc::clone(&flow)));
                relay.begin(client, move || Ok((near, far.connect().map_err(io::Error::from)?)));
                flows.insert(client, Arc::downgrade(&flow));
                flow
            }
        };
        if let Program::Client { waiting, .. } = &flow.program
            && !waiting.push(&room[..length])
        {
            flow.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// Relays the program's datagrams until the flow ends.
pub(super) fn forward(flow: &Flow, far: &AnySocket, activity: &Activity) -> io::Result<()> {
    let mut room = vec![0; MAX_DATAGRAM];
    let mut pace = Pace::default();
    while !flow.is_over(activity) {
        let Some(length) = flow.receive(&mut room) else { continue };
        // What comes meanwhile waits, as far as there is room.
        let rates = super::rates(far);
        thread::sleep(pace.wait(Instant::now(), rates));
        if length > far.max_send_size() {
            flow.dropped.fetch_add(1, Relaxed);
            continue;
        }
        let now = Instant::now();
        if let Err(error) = far.send_message(&room[..length]) {
            // The other end has ended it, or this one has.
            let is_over = flow.is_over(activity);
            flow.end();
            return if is_over { Ok(()) } else { Err(error) };
        }
        activity.note(now);
        pace.on_sent(now, rates);
    }
    flow.end();
    far.finish();
    Ok(())
}

/// Relays the other end's datagrams until the flow ends.
pub(super) fn backward(flow: &Flow, far: &AnySocket, activity: &Activity) -> io::Result<()> {
    let mut room = vec![0; far.max_receive_size().min(MAX_DATAGRAM)];
    far.set_read_timeout(Some(LOOK))?;
    let ended = loop {
        if flow.is_over(activity) {
            break Ok(());
        }
        match far.receive_message(&mut room) {
            Ok(Some(message)) => {
                activity.note(Instant::now());
                flow.send(&room[..message.length]);
            }
            Ok(None) => break Ok(()),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                // Longer than a datagram can be.
                ErrorKind::InvalidInput => {
                    flow.dropped.fetch_add(1, Relaxed);
                }
                _ if flow.is_over(activity) => break Ok(()),
                _ => break Err(error),
            },
        }
    };
    flow.end();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_flow_has_a_bound_in_datagrams_and_in_bytes() {
        let waiting = Waiting::default();
        let kept = (0..1_000).filter(|_| waiting.push(b"short")).count();
        assert_eq!(kept, MAX_WAITING);
        assert_eq!(waiting.pop().as_deref(), Some(&b"short"[..]));
        assert!(waiting.push(b"") && !waiting.push(b""));
        let waiting = Waiting::default();
        let kept = (0..10).filter(|_| waiting.push(&[0; 60_000])).count();
        assert_eq!(kept, 2);
        while waiting.lock().0.pop_front().is_some() {}
        assert_eq!(waiting.pop(), None, "it does not wait for ever");
    }
}
