//! Flows at exactly their agreed rate, and what overloads their links.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ontempo_reservation::local::{Client, Request};
use ontempo_reservation::message::{Descriptor, FlowSpec, Style, TrafficSpec};

use super::{Network, is_reserved, until};

/// A second's packets of the flow, and their bytes of IP: 852 kbit/s of the 1,500 between the routers.
const PACKETS: u32 = 80;
const SIZE: u32 = 1332;

/// Packets that its bucket holds: a busy machine sends some late, and then together.
const BUCKET: u32 = 8;

/// What came of a flow at exactly its agreed rate.
pub(crate) struct Agreed {
    /// Of each packet that came, ms.
    pub(crate) delays: Vec<f64>,
    /// Packets sent.
    pub(crate) sent: usize,
    /// How much of its time this machine did not let the sender run for longer than the bucket lasts. What it would
    /// have sent meanwhile it does not make up for: that would exceed what is agreed.
    pub(crate) stalled: Duration,
}

/// Best effort from one host to the other, until it is dropped.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    sending: Option<JoinHandle<()>>,
    _sink: UdpSocket,
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(sending) = self.sending.take() {
            let _ = sending.join();
        }
    }
}

impl Network {
    fn socket_at(&self, node: &str, port: u16) -> UdpSocket {
        let at = SocketAddr::new(self.address(node), port);
        self.inside(node, || UdpSocket::bind(at).expect("a port"))
    }

    /// Sends packets of 1,000 bytes at this rate.
    pub(crate) fn flood(&self, from: &str, to: &str, kilobits: u32) -> Flood {
        let (source, sink) = (self.socket_at(from, 4001), self.socket_at(to, 5005));
        let to = sink.local_addr().expect("it is bound");
        let payload = vec![0; if self.v6 { 952 } else { 972 }];
        let gap = Duration::from_secs_f64(8.0 / f64::from(kilobits));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sending = std::thread::spawn(move || {
            let begun = Instant::now();
            let mut number = 0;
            while !stopped.load(Relaxed) {
                std::thread::sleep((gap * number).saturating_sub(begun.elapsed()));
                // A sender's own queue may be full, too.
                let _ = source.send_to(&payload, to);
                number += 1;
            }
        });
        Flood { stop, sending: Some(sending), _sink: sink }
    }

    /// The clients of both ends of a flow of [`PACKETS`] a second, after it is reserved.
    pub(crate) fn agreed(&self) -> (Client, Client) {
        let rate = (PACKETS * SIZE) as f32;
        let burst = (BUCKET * SIZE) as f32;
        let traffic =
            TrafficSpec { rate, burst, peak: f32::INFINITY, smallest: SIZE, largest: SIZE };
        let (session, from) = (self.session(), self.sender());
        let mut sender = self.client("h1");
        sender.ask(Request::Send { session, sender: from, traffic }).expect("it is announced");
        let mut receiver = self.subscribed_client();
        let flowspec = FlowSpec::ControlledLoad(traffic);
        let flows = vec![Descriptor { flowspec, filters: vec![from] }];
        let style = Style::FixedFilter;
        let request = Request::Reserve { session, style, flows, confirm: true };
        receiver.ask(request).expect("it is accepted");
        until(&mut sender, is_reserved);
        (sender, receiver)
    }

    /// Sends that flow at exactly its rate, and never more at once than its bucket holds.
    pub(crate) fn send_agreed(&self, span: Duration) -> Agreed {
        let (source, sink) = (self.socket_at("h1", 4000), self.socket_at("h2", 5004));
        let to = sink.local_addr().expect("it is bound");
        let headers = if self.v6 { 48 } else { 28 };
        let count = (span.as_secs_f64() * f64::from(PACKETS)) as u32;
        let begun = Instant::now();
        let receiving = std::thread::spawn(move || {
            sink.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
            let mut packet = [0; 2000];
            let mut delays = Vec::new();
            while sink.recv(&mut packet).is_ok() {
                let sent = u64::from_be_bytes(*packet.first_chunk().expect("its time"));
                delays.push((begun.elapsed().as_nanos() as f64 - sent as f64) / 1e6);
            }
            delays
        });
        let mut payload = vec![0; (SIZE - headers) as usize];
        let gap = Duration::from_secs(1) / PACKETS;
        let mut stalled = Duration::ZERO;
        for number in 0..count {
            let at = gap * number + stalled;
            std::thread::sleep(at.saturating_sub(begun.elapsed()));
            let late = begun.elapsed().saturating_sub(at);
            if late > gap * (BUCKET - 1) {
                stalled += late;
            }
            let now = begun.elapsed().as_nanos() as u64;
            payload[..8].copy_from_slice(&now.to_be_bytes());
            source.send_to(&payload, to).expect("it is sent");
        }
        let delays = receiving.join().expect("it counts");
        Agreed { delays, sent: count as usize, stalled }
    }
}

/// The median of some delays.
pub(crate) fn median(delays: &[f64]) -> f64 {
    let mut sorted = delays.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
