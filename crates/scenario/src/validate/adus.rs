//! ADUs: how many, what they depend on, and how they are carried.

use ontempo_foundation::{Duration, Packets};

use super::Findings;
use super::flows::{MIN_UDP, packet_size};
use crate::model::{AduSpec, Dependencies};
use crate::path::FieldPath;

/// The most ADUs of a flow; each is kept in mind.
const MAX_ADUS: u64 = 10_000_000;
/// The largest window.
const MAX_WINDOW: Packets = Packets::new(1 << 20);
/// An acknowledgement reports the last 128 transmissions, and one of two may be lost.
const MAX_PER_ACK: Packets = Packets::new(64);

pub(super) fn application(
    count: u64,
    depends: &Dependencies,
    path: &FieldPath,
    findings: &mut Findings,
) {
    if count == 0 || count > MAX_ADUS {
        let what = format!("{count} ADUs will not do; 1 to {MAX_ADUS} are possible");
        findings.add(&path.key("count"), what);
    }
    let path = path.key("depends");
    match depends {
        Dependencies::None {} => {}
        Dependencies::Images { adus, tables, .. } => {
            findings.require(*adus > 0, &path.key("adus"), "an image has at least one ADU");
            if tables > adus {
                let what = format!("{tables} tables do not fit into an image of {adus} ADUs");
                findings.add(&path.key("tables"), what);
            }
        }
        Dependencies::Listed { adus } => {
            for (place, entry) in adus.iter().enumerate() {
                let path = path.key("adus").index(place);
                if entry.adu >= count {
                    let what = format!("there is no ADU {}, of {count}", entry.adu);
                    findings.add(&path.key("adu"), what);
                }
                if let Some(later) = entry.on.iter().find(|named| **named >= entry.adu) {
                    let what = format!("ADU {later} is not before ADU {}", entry.adu);
                    findings.add(&path.key("on"), what);
                }
            }
        }
    }
}

pub(super) fn transport(spec: &AduSpec, path: &FieldPath, findings: &mut Findings) {
    packet_size(spec.packet, MIN_UDP, &path.key("packet"), findings);
    if spec.window == Packets::new(0) || spec.window > MAX_WINDOW {
        let what = format!("{} will not do; 1 to {MAX_WINDOW} are possible", spec.window);
        findings.add(&path.key("window"), what);
    }
    for (field, packets) in [("ack-every", spec.ack_every), ("lost-after", spec.lost_after)] {
        if packets == Packets::new(0) || packets > MAX_PER_ACK {
            let what = format!("{packets} will not do; 1 to {MAX_PER_ACK} are possible");
            findings.add(&path.key(field), what);
        }
    }
    if spec.ack_every > spec.window {
        let what = format!("the window of {} shuts before it is acknowledged", spec.window);
        findings.add(&path.key("ack-every"), what);
    }
    for (field, rto, usual) in
        [("min-rto", spec.min_rto, "200 ms"), ("initial-rto", spec.initial_rto, "1 s")]
    {
        let what = format!("the timeout is zero; write {field} = \"{usual}\"");
        findings.require(rto > Duration::ZERO, &path.key(field), &what);
    }
}
