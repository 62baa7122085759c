//! A path over loopback that loses and delays packets.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// Relays packets between clients and a server, which sees each client at a port of its own, as behind
/// a NAT; gone with this.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) lost: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Packets in flight, and the number of their client.
type Way = VecDeque<(Instant, Vec<u8>, usize)>;

struct Client {
    address: SocketAddr,
    /// Towards the server.
    back: UdpSocket,
}

struct Path {
    front: UdpSocket,
    server: SocketAddr,
    clients: Vec<Client>,
    share: f64,
    delay: Duration,
    random: u64,
    lost: Arc<AtomicU64>,
    is_cut: Arc<AtomicBool>,
    there: Way,
    back: Way,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("set");
    socket
}

fn due(way: &mut Way) -> Option<(Vec<u8>, usize)> {
    let is_due = way.front().is_some_and(|(due, ..)| *due <= Instant::now());
    if is_due { way.pop_front().map(|(_, bytes, client)| (bytes, client)) } else { None }
}

/// What has arrived; nothing if the peer of an earlier packet is gone.
fn received<'a>(socket: &UdpSocket, room: &'a mut [u8]) -> Option<(&'a [u8], SocketAddr)> {
    match socket.recv_from(room) {
        Ok((length, from)) => Some((&room[..length], from)),
        Err(error) => {
            let is_usual =
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused);
            assert!(is_usual, "{error}");
            None
        }
    }
}

impl Path {
    fn client(&mut self, address: SocketAddr) -> usize {
        self.clients.iter().position(|one| one.address == address).unwrap_or_else(|| {
            self.clients.push(Client { address, back: socket() });
            self.clients.len() - 1
        })
    }

    fn is_lost(&mut self) -> bool {
        // Knuth's generator; its upper bits are good enough for a coin.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let lost = ((self.random >> 33) as f64) < self.share * (1u64 << 31) as f64;
        let lost = lost || self.is_cut.load(Ordering::Relaxed);
        self.lost.fetch_add(u64::from(lost), Ordering::Relaxed);
        lost
    }

    /// Receives packets and sends those that are due; false if none arrived.
    fn turn(&mut self) -> bool {
        let mut room = [0; 65_536];
        let mut busy = false;
        if let Some((bytes, from)) = received(&self.front, &mut room) {
            busy = true;
            let client = self.client(from);
            if !self.is_lost() {
                self.there.push_back((Instant::now() + self.delay, bytes.to_vec(), client));
            }
        }
        for client in 0..self.clients.len() {
            if let Some((bytes, _)) = received(&self.clients[client].back, &mut room) {
                busy = true;
                if !self.is_lost() {
                    self.back.push_back((Instant::now() + self.delay, bytes.to_vec(), client));
                }
            }
        }
        // What cannot be sent is as if the network had lost it.
        while let Some((bytes, client)) = due(&mut self.there) {
            let _ = self.clients[client].back.send_to(&bytes, self.server);
        }
        while let Some((bytes, client)) = due(&mut self.back) {
            let _ = self.front.send_to(&bytes, self.clients[client].address);
        }
        busy
    }
}

impl Relay {
    /// Relays to `server` with this loss in each direction, after `delay`.
    pub(crate) fn start(server: SocketAddr, share: f64, delay: Duration) -> Self {
        let front = socket();
        let address = front.local_addr().expect("an address");
        let (lost, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let is_cut = Arc::<AtomicBool>::default();
        let mut path = Path {
            front,
            server,
            clients: Vec::new(),
            share,
            delay,
            random: 1,
            lost: Arc::clone(&lost),
            is_cut: Arc::clone(&is_cut),
            there: Way::new(),
            back: Way::new(),
        };
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if !path.turn() {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { address, lost, stop, is_cut, thread: Some(thread) }
    }

    /// Loses all, or nothing but its share.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
