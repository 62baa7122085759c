//! A path over loopback that loses and delays packets.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// Relays packets between one client and a server; gone with this.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) lost: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Packets in flight.
type Way = VecDeque<(Instant, Vec<u8>, SocketAddr)>;

struct Path {
    front: UdpSocket,
    back: UdpSocket,
    server: SocketAddr,
    client: Option<SocketAddr>,
    share: f64,
    delay: Duration,
    random: u64,
    lost: Arc<AtomicU64>,
    is_cut: Arc<AtomicBool>,
    ways: [Way; 2],
}

impl Path {
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

    /// Receives packets and sends those that are due; false if there were none.
    fn turn(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        let mut busy = false;
        for way in 0..2 {
            let socket = if way == 0 { &self.front } else { &self.back };
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    busy = true;
                    if way == 0 {
                        self.client = Some(from);
                    }
                    let to = if way == 0 { Some(self.server) } else { self.client };
                    if let (false, Some(to)) = (self.is_lost(), to) {
                        let due = Instant::now() + self.delay;
                        self.ways[way].push_back((due, buffer[..length].to_vec(), to));
                    }
                }
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused),
                    "{error}"
                ),
            }
            while let Some((due, ..)) = self.ways[way].front()
                && *due <= Instant::now()
                && let Some((_, bytes, to)) = self.ways[way].pop_front()
            {
                let socket = if way == 0 { &self.back } else { &self.front };
                // As if the network had lost it.
                let _ = socket.send_to(&bytes, to);
            }
        }
        busy
    }
}

impl Relay {
    /// Relays to `server` with this loss in each direction, after `delay`.
    pub(crate) fn start(server: SocketAddr, share: f64, delay: Duration) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_nonblocking(true).expect("set");
            socket
        };
        let (front, back) = (bind(), bind());
        let address = front.local_addr().expect("an address");
        let (lost, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let is_cut = Arc::<AtomicBool>::default();
        let ways = [Way::new(), Way::new()];
        let counter = Arc::clone(&lost);
        let mut path = Path {
            front,
            back,
            server,
            client: None,
            share,
            delay,
            random: 1,
            lost: counter,
            is_cut: Arc::clone(&is_cut),
            ways,
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
