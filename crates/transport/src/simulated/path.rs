use ontempo_foundation::{Duration, Packets, Rate, Time};
use ontempo_network::{DelayLaw, DropTail, Limit, Link, LinkParameters, LossModel, Queue};

/// One direction between two endpoints.
#[derive(Clone, Debug)]
pub struct Path {
    /// How fast packets leave.
    pub rate: Rate,
    /// How long they travel after that.
    pub delay: DelayLaw,
    /// How many may wait for the link; the next is dropped.
    pub buffer: Packets,
    /// What the wire loses.
    pub loss: LossModel,
    /// Whether packets may overtake each other, where the delay varies.
    pub reordering: bool,
    /// What else happens.
    pub mishaps: Mishaps,
}

/// What happens to datagrams beside queue, loss and delay.
#[derive(Clone, Debug, Default)]
pub struct Mishaps {
    /// The share of which a bit is flipped, 0 to 1.
    pub damaged: f64,
    /// The share that comes twice, the second time up to 50 ms later.
    pub repeated: f64,
    /// The share of ECN-capable ones that is marked.
    pub marked: f64,
    /// Times, each with its end, between which everything is lost.
    pub stalls: Vec<(Time, Time)>,
}

impl Path {
    /// A path that loses nothing: `rate` and `delay`, and a buffer of 100 packets.
    pub fn clean(rate: Rate, delay: Duration) -> Self {
        Self {
            rate,
            delay: DelayLaw::Constant(delay),
            buffer: Packets::new(100),
            loss: LossModel::None,
            reordering: false,
            mishaps: Mishaps::default(),
        }
    }

    pub(super) fn link(&self, seed: u64, name: &str) -> Link {
        let parameters = LinkParameters {
            rate: self.rate,
            delay: self.delay.clone(),
            mtu: None,
            queue: Queue::DropTail(DropTail::new(Limit::packets(self.buffer))),
            loss: self.loss.clone(),
            reordering: self.reordering,
        };
        Link::new(parameters, seed, name)
    }
}
