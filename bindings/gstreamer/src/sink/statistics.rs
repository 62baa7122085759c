//! The property `stats` of `ontemposink`.

use gstreamer as gst;
use ontempo_foundation::{Duration, Rate};

use super::sending::Noted;

/// Times are nanoseconds, rates bits a second, sizes bytes; what is not known is left out.
pub(super) fn structure(noted: &Noted) -> gst::Structure {
    let Noted { totals, connection, target, .. } = noted;
    let (datagrams, bad) = totals.datagrams();
    let mut built = gst::Structure::builder("application/x-ontempo-sink-stats")
        .field("units", totals.flow.units)
        .field("bytes", totals.flow.bytes)
        .field("input-bytes", totals.input_bytes)
        .field("arrived-units", totals.flow.arrived)
        .field("dropped-units", totals.flow.dropped)
        .field("overflow-units", totals.overflow.units)
        .field("waiting-bytes", totals.waiting_bytes)
        .field("reconnected", totals.reconnected)
        .field("interrupted", totals.interrupted.as_nanos())
        .field("datagrams", datagrams)
        .field("bad-datagrams", bad)
        .field("late-units", totals.report.late_units);
    let rate = |rate: Option<Rate>| rate.map(Rate::as_bits_per_sec);
    let over = connection.as_ref();
    let more = [
        ("latency", totals.latency.map(Duration::as_nanos)),
        ("target-bitrate", rate(*target)),
        ("round-trip", over.and_then(|over| over.round_trip).map(Duration::as_nanos)),
        ("packets-sent", over.map(|over| over.packets_sent)),
        ("packets-lost", over.map(|over| over.packets_lost)),
        ("bytes-sent", over.map(|over| over.bytes_sent)),
    ];
    for (name, value) in more {
        built = built.field_if_some(name, value);
    }
    built.build()
}
