//! What several test programs of sessions send.

use ontempo_foundation::Time;
use ontempo_media::{Kind, Part, Span, Unit};

/// A unit of one datagram that says its number.
pub(crate) fn unit(id: u64) -> Unit {
    let spans = vec![Span { offset: 0, length: 4 }];
    let part = Part { datagram: id, length: 4, arrived: Time::ZERO, spans, stuffing: Vec::new() };
    Unit {
        id,
        kind: Kind::Datagram,
        media_time: None,
        slack: None,
        continues: None,
        dependencies: Vec::new(),
        parts: vec![part],
        data: (id as u32).to_be_bytes().to_vec(),
    }
}
