//! What is known of an elementary stream.

use ontempo_foundation::Duration;

use crate::scan::{Av1State, Marks};
use crate::unit::Kind;

/// State of an elementary stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) kind: Kind,
    /// The last unit at which decoding can begin.
    pub(super) key: Option<u64>,
    /// The last picture to which others may refer: its first unit.
    pub(super) reference: Option<u64>,
    /// What a decoder has to know, if that is said of this stream alone.
    pub(super) description: Option<u64>,
    /// The highest temporal layer so far.
    pub(super) top_layer: u8,
    /// What its pictures of AV1 have said so far.
    pub(super) av1: Av1State,
    /// Remaining bytes of its PES packet, if the packet has a length.
    pub(super) left: Option<usize>,
    pub(super) media_time: Option<Duration>,
}

impl Stream {
    pub(super) fn new(kind: Kind) -> Self {
        let av1 = Av1State::default();
        Self {
            kind,
            key: None,
            reference: None,
            description: None,
            top_layer: 0,
            av1,
            left: None,
            media_time: None,
        }
    }

    /// The content of a picture that begins, as far as its first packet tells; what is not marked as
    /// disposable there is not.
    pub(super) fn kind_of(&mut self, kind: Kind, marks: Option<Marks>) -> Kind {
        let Some(marks) = marks.filter(|_| kind == Kind::Frame) else { return kind };
        self.top_layer = self.top_layer.max(marks.layer);
        match (marks.is_key, marks.is_disposable && marks.layer == self.top_layer) {
            (true, _) => Kind::Key,
            (false, true) => Kind::Disposable,
            (false, false) => Kind::Frame,
        }
    }
}
