//! The program's connections as QoS sockets report theirs, for `ontempo monitor`, SNMP and
//! Prometheus.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use ontempo_monitor::{ProcessReport, Publisher, Role, SocketReport, folder_to_publish};

use super::reservations::Reservations;
use super::traffic::{Carried, Flow};
use crate::arguments::FlowDirection;
use crate::monitor::since_1970_ms;
use crate::output::complain;

/// One direction of a socket.
type Key = (u64, bool);

/// What was known of it at the last measurement.
struct Known {
    id: u32,
    opened_ms: u64,
    bytes: u64,
    at: Instant,
}

/// Tells of connections.
pub(super) struct Reports {
    name: String,
    dscp: u8,
    direction: FlowDirection,
    publisher: Option<Publisher>,
    known: BTreeMap<Key, Known>,
    last_id: u32,
    complained: bool,
}

impl Reports {
    pub(super) fn new(program: &str, dscp: u8, direction: FlowDirection) -> Self {
        let name = Path::new(program).file_name().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            dscp,
            direction,
            publisher: folder_to_publish().map(|folder| Publisher::new(&folder)),
            known: BTreeMap::new(),
            last_id: 0,
            complained: false,
        }
    }

    /// Tells of these connections, in place of those before. One over UDP is told of without
    /// figures.
    pub(super) fn tell(&mut self, flows: &[Flow], reservations: &Reservations) {
        let mut before = std::mem::take(&mut self.known);
        let mut sockets = Vec::new();
        for flow in flows {
            for sends in [true, false] {
                if sends && !self.direction.sends() || !sends && !self.direction.receives() {
                    continue;
                }
                let key = (flow.inode, sends);
                sockets.push(self.socket(flow, sends, before.remove(&key), reservations));
            }
        }
        sockets.sort_by_key(|socket| socket.id);
        let report = ProcessReport { process: std::process::id(), sockets };
        let published = self.publisher.as_ref().map(|publisher| publisher.publish(&report));
        if let Some(Err(error)) = published {
            self.complain_once(&format!("nobody can be told of the connections: {error}"));
        }
    }

    fn socket(
        &mut self,
        flow: &Flow,
        sends: bool,
        before: Option<Known>,
        reservations: &Reservations,
    ) -> SocketReport {
        let Carried {
            sent_bytes,
            acknowledged_bytes,
            received_bytes,
            segments_out,
            delivered_segments,
            segments_in,
        } = flow.carried.unwrap_or_default();
        let now = Instant::now();
        let bytes = if sends { acknowledged_bytes } else { received_bytes };
        let throughput = before.as_ref().map_or(0.0, |before| {
            let span = now.duration_since(before.at).as_secs_f64();
            bytes.saturating_sub(before.bytes) as f64 * 8.0 / span.max(1e-3)
        });
        let (id, opened_ms) = before.map_or_else(
            || {
                self.last_id += 1;
                (self.last_id, since_1970_ms())
            },
            |before| (before.id, before.opened_ms),
        );
        self.known.insert((flow.inode, sends), Known { id, opened_ms, bytes, at: now });
        let (reservation, reason) = reservations.of(flow, sends);
        SocketReport {
            id,
            name: self.name.clone(),
            role: if sends { Role::Sender } else { Role::Receiver },
            carrier: flow.carrier,
            local: flow.local.to_string(),
            remote: flow.remote.to_string(),
            dscp: self.dscp,
            reservation,
            reason,
            opened_ms,
            // Segments stand for messages, of which TCP knows none; it loses none either.
            sent_messages: if sends { segments_out } else { segments_in },
            sent_bytes: if sends { sent_bytes } else { received_bytes },
            messages: if sends { delivered_segments } else { segments_in },
            bytes,
            lost_messages: 0,
            throughput,
            loss: None,
            delay: None,
            delay_error: None,
            jitter: None,
            parameters: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn complain_once(&mut self, why: &str) {
        if !std::mem::replace(&mut self.complained, true) {
            complain(why);
        }
    }
}
