use ontempo_foundation::{Duration, Packets, Rate, Time};
use ontempo_network::{DelayLaw, DropTail, Extras, Limit, Link, LinkParameters, LossModel, Queue};

/// One direction between two endpoints.
#[derive(Clone, Debug)]
pub struct Path {
    /// Rate of the link.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: DelayLaw,
    /// Queue limit, in packets.
    pub buffer: Packets,
    /// Loss model.
    pub loss: LossModel,
    /// Whether packets may overtake each other if the delay varies.
    pub reordering: bool,
    /// Further impairments.
    pub mishaps: Mishaps,
}

/// Impairments beside queue, loss and delay.
#[derive(Clone, Debug, Default)]
pub struct Mishaps {
    /// Share of datagrams with a flipped bit, 0 to 1.
    pub damaged: f64,
    /// Share duplicated, the duplicate up to 50 ms later.
    pub repeated: f64,
    /// Share of ECN-capable datagrams marked CE.
    pub marked: f64,
    /// Outages: begin and end.
    pub stalls: Vec<(Time, Time)>,
    /// From a time on, datagrams longer than so many bytes are dropped: the path's MTU has shrunk.
    pub shrinks: Option<(Time, usize)>,
}

impl Path {
    /// A path without loss: `rate` and `delay`, and a queue of 100 packets.
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
            extras: Extras::default(),
        };
        Link::new(parameters, seed, name)
    }
}
