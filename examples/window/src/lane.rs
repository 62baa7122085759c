//! A way over the impaired path, with one delivery order.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ontempo_impair::{ImpairError, Limits, Relay};
use ontempo_session::random_token;
use ontempo_transport::live::{
    Accepted, Caller, Connection, Error, Listener, Options, ReceiveFlow, SendFlow,
};
use ontempo_transport::{
    DeliveryOrder, Fingerprint, FlowConfig, Identity, Reliability, Token, Trust,
};

use crate::impairment::Impairment;

/// Both lanes lose the same packets, counted from the first.
const SEED: u64 = 3216;

/// Time limit for a line to be opened.
const OPENING: Duration = Duration::from_secs(20);

/// Why there is no lane, or no line.
#[derive(Debug)]
pub enum LaneError {
    /// A socket or a thread.
    Io(io::Error),
    /// The path.
    Path(ImpairError),
    /// The transport.
    Transport(Error),
    /// The other end did not hear of the connection or of its flow in time.
    Unheard,
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Path(error) => write!(f, "{error}"),
            Self::Transport(error) => write!(f, "{error}"),
            Self::Unheard => {
                write!(f, "the other end heard nothing within {} s", OPENING.as_secs())
            }
        }
    }
}

impl std::error::Error for LaneError {}

impl From<io::Error> for LaneError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for LaneError {
    fn from(error: Error) -> Self {
        Self::Transport(error)
    }
}

/// What the thread of the relay is told.
#[derive(Debug, Default)]
struct Orders {
    impairment: Mutex<Option<Impairment>>,
    has_news: AtomicBool,
    ends: AtomicBool,
}

/// A path with a relay, and the ends at both sides of it.
pub struct Lane {
    order: DeliveryOrder,
    near: Caller,
    far: Listener,
    /// Where the path begins.
    entry: SocketAddr,
    fingerprint: Fingerprint,
    token: Token,
    orders: Arc<Orders>,
    relay: Option<JoinHandle<()>>,
    /// Lines so far. They are opened one after the other.
    lines: Mutex<u64>,
}

/// A flow over a lane, with both of its ends.
pub struct Line {
    /// What enters here ...
    pub send: SendFlow,
    /// ... leaves here.
    pub receive: ReceiveFlow,
    // Closed when they are dropped.
    _ends: [Connection; 2],
}

impl Lane {
    /// Starts a relay, and an end of the transport at each side of it.
    ///
    /// # Errors
    /// If the system has no sockets or threads, or the impairment is out of bounds.
    pub fn start(order: DeliveryOrder, impairment: Impairment) -> Result<Self, LaneError> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = Options::default();
        let identity = Identity::self_signed(&["localhost"]).map_err(Error::Identity)?;
        // Nobody else on this machine connects to it.
        let token = Token::new(random_token()?.as_bytes()).map_err(io::Error::other)?;
        let far = Listener::bind(at, &identity, token.clone(), &options)?;
        let socket = UdpSocket::bind(at)?;
        let entry = socket.local_addr()?;
        let path = impairment.path(SEED).map_err(LaneError::Path)?;
        let relay = Relay::new(socket, far.local(), path, Limits::default())?;
        let orders = Arc::new(Orders::default());
        let told = Arc::clone(&orders);
        let thread = std::thread::Builder::new().name(format!("path {}", order.name()));
        let relay = thread.spawn(move || carry(relay, &told))?;
        let near = Caller::bind(at, &options)?;
        let (fingerprint, lines) = (identity.fingerprint(), Mutex::default());
        Ok(Self { order, near, far, entry, fingerprint, token, orders, relay: Some(relay), lines })
    }

    /// The delivery order of its flows.
    pub fn order(&self) -> DeliveryOrder {
        self.order
    }

    /// Impairs what enters the path from now on in this way. What is on it arrives as before.
    pub fn impair(&self, impairment: Impairment) {
        *self.orders.impairment.lock().unwrap_or_else(PoisonError::into_inner) = Some(impairment);
        self.orders.has_news.store(true, Ordering::Relaxed);
    }

    /// Connects both ends over the path, and opens a flow. Waits for some round trips.
    ///
    /// # Errors
    /// If the path lets no connection through in time.
    pub fn open(&self) -> Result<Line, LaneError> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        *lines += 1;
        let label = lines.to_string();
        let trust = Trust::Fingerprint(self.fingerprint);
        let near = self.near.connect(self.entry, "localhost", &trust, self.token.clone())?;
        let config =
            FlowConfig { order: self.order, reliability: Reliability::Full, label: label.clone() };
        let send = near.open_flow(config)?;
        loop {
            // One that an attempt before left behind is dropped.
            let far = match self.far.accept_within(OPENING).ok_or(LaneError::Unheard)? {
                Accepted::Connection(far) => far,
                Accepted::Refused { .. } => continue,
            };
            let Some(Ok(receive)) = far.accept_flow_within(OPENING) else { continue };
            if receive.config().label == label {
                return Ok(Line { send, receive, _ends: [near, far] });
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.orders.ends.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
    }
}

/// Runs the relay until the lane ends, over one path after the other.
fn carry(mut relay: Relay, orders: &Orders) {
    let mut paths = 1;
    while !orders.ends.load(Ordering::Relaxed) {
        let has_news = || orders.has_news.load(Ordering::Relaxed);
        let stop = || orders.ends.load(Ordering::Relaxed) || has_news();
        if relay.run(stop, |_| {}).is_err() {
            // Its lines break, which those who have them see.
            return;
        }
        orders.has_news.store(false, Ordering::Relaxed);
        let next = orders.impairment.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Checked before: a path that cannot be built leaves the one before.
        if let Some(Ok(path)) = next.map(|next| next.path(SEED + paths)) {
            relay.replace_path(path);
            paths += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_transport::Delivery;
    use ontempo_transport::live::Message;

    use super::*;

    #[test]
    fn a_line_carries_units_over_a_path_that_loses_them_and_goes_on_when_the_path_changes() {
        let bad = Impairment { loss_percent: 20.0, round_trip_ms: 20, rate_kbps: 10_000 };
        for order in [DeliveryOrder::InOrder, DeliveryOrder::PartialOrder] {
            let lane = Lane::start(order, bad).expect("a lane");
            let lines = [lane.open().expect("a line"), lane.open().expect("another")];
            for line in &lines {
                for round in 0..40_u64 {
                    if round == 20 {
                        lane.impair(Impairment::default());
                    }
                    let depends_on = round.checked_sub(4).into_iter().collect();
                    let data = vec![round as u8; 900].into();
                    let message = Message { data, depends_on, ..Message::default() };
                    assert_eq!(line.send.send(message).expect("sent"), round);
                }
                let mut seen = Vec::new();
                while seen.len() < 40 {
                    let next = line.receive.receive_within(Duration::from_secs(30));
                    let Some(Ok(Some(Delivery::Unit(unit)))) = next else {
                        panic!("{order:?}: {next:?} after {seen:?}");
                    };
                    assert_eq!(unit.data[..], [unit.id as u8; 900]);
                    assert!(unit.depends_on.iter().all(|on| seen.contains(on)), "{seen:?}");
                    seen.push(unit.id);
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..40).collect::<Vec<_>>());
            }
        }
    }
}
