//! Load packets of a measurement that is not of spacings: how they are written, and what of their
//! arrivals can be.

use ontempo_foundation::Time;
use ontempo_udp::{Next, Transmit};

use crate::sender::SenderOptions;
use crate::wire::{self, LOAD_HEADER, Load, Message};

/// Bytes of a scout's UDP payload: its report with one or two records is not longer.
pub(crate) const SCOUT: usize = 62;

/// Times of a receiver further than this from its first are not believed, ns.
pub(crate) const MAX_TIME: u64 = 1 << 50;

/// The longest round trip that is believed, ns.
const MAX_ROUND_TRIP: u64 = 60_000_000_000;

/// Writes a load packet that takes `bits` with its IP and UDP headers.
pub(crate) fn write(
    options: &SenderOptions,
    session: u64,
    load: Load<'_>,
    bits: f64,
    buffer: &mut Vec<u8>,
) -> Next {
    wire::write(session, &Message::Load(load), buffer);
    let size = (bits as usize / 8).saturating_sub(options.headers());
    buffer.resize(size.max(LOAD_HEADER), 0);
    let transmit = Transmit::to(options.destination);
    Next::Transmit(Transmit { ecn: options.ecn, dscp: options.dscp, ..transmit })
}

/// The round trip of a packet sent `sent` ns after `started`, whose report was `received` after the
/// receiver had held it for `held` ns; `None` for one that is not believed. In ns.
pub(crate) fn round_trip(started: Time, sent: i64, received: Time, held: u64) -> Option<u64> {
    let answered = received.since(started).as_nanos().wrapping_sub(held);
    Some(answered.wrapping_sub(sent as u64)).filter(|round_trip| *round_trip <= MAX_ROUND_TRIP)
}
