//! The property `stats` of `ontemposrc`.

use gstreamer as gst;
use ontempo_foundation::Duration;

use super::queue::State;

/// Times are nanoseconds, sizes bytes, rates bits a second; what is not known is left out.
pub(super) fn structure(state: &State, overflow: u64) -> gst::Structure {
    let State { report, flowing, flow, timing, .. } = state;
    let mut built = gst::Structure::builder("application/x-ontempo-src-stats")
        .field("units", report.units)
        .field("bytes", report.bytes)
        .field("late-units", report.late_units)
        .field("dropped-units", report.dropped_units)
        .field("whole-datagrams", report.whole_datagrams)
        .field("damaged-datagrams", report.damaged_datagrams)
        .field("missing-datagrams", report.missing_datagrams)
        .field("overflow-datagrams", overflow);
    let over = flowing.as_ref().and_then(|flowing| flowing.connection);
    let more = [
        ("latency", timing.map(|timing| timing.latency.as_nanos())),
        ("grace", timing.map(|timing| timing.grace.as_nanos())),
        ("round-trip", over.and_then(|over| over.clock_round_trip).map(Duration::as_nanos)),
        ("bytes-received", over.map(|over| over.bytes_received)),
        ("throughput", flow.as_ref().map(|flow| flow.throughput.as_bits_per_sec())),
        ("min-delay", flow.as_ref().map(|flow| flow.delay.min.as_nanos())),
    ];
    for (name, value) in more {
        built = built.field_if_some(name, value);
    }
    built.build()
}
