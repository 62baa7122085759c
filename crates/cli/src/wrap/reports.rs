//! Reports of the program's connections, as of QoS sockets, for `ontempo monitor`, SNMP and
//! Prometheus.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use ontempo_monitor::{Publisher, ReportFolder, Role, SocketReport};

use super::reservations::{Reservations, State};
use super::sockets::Marker;
use super::traffic::{Flow, TcpCounters};
use crate::arguments::FlowDirection;
use crate::monitor::since_1970_ms;
use crate::output::write_stderr;

/// One direction of a socket: inode, and whether it sends.
type Key = (u64, bool);

/// One direction of a socket at the last measurement.
struct Measurement {
    id: u32,
    opened_ms: u64,
    bytes: u64,
    at: Instant,
}

/// Publishes reports of connections.
pub(super) struct Reports {
    name: String,
    direction: FlowDirection,
    publisher: Option<Publisher>,
    measured: BTreeMap<Key, Measurement>,
    last_id: u32,
    warned: bool,
}

impl Reports {
    pub(super) fn new(program: &str, direction: FlowDirection) -> Self {
        let name = Path::new(program).file_name().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            direction,
            publisher: ReportFolder::to_publish().map(Publisher::new),
            measured: BTreeMap::new(),
            last_id: 0,
            warned: false,
        }
    }

    /// Publishes a report of these connections, which replaces the one before. Connections over UDP
    /// have no counters.
    pub(super) fn publish(&mut self, flows: &[Flow], reservations: &Reservations, marker: &Marker) {
        let mut before = std::mem::take(&mut self.measured);
        let mut sockets = Vec::new();
        for flow in flows {
            for sends in [true, false] {
                let is_shown = match sends {
                    true => self.direction.sends(),
                    false => self.direction.receives() && !flow.is_closed,
                };
                if !is_shown {
                    continue;
                }
                let key = (flow.inode, sends);
                let state = reservations.of(flow, sends);
                let dscp = marker.dscp(flow.inode);
                sockets.push(self.socket(flow, sends, before.remove(&key), state, dscp));
            }
        }
        sockets.sort_by_key(|socket| socket.id);
        let published = self.publisher.as_mut().map(|publisher| publisher.publish(sockets));
        if let Some(Err(error)) = published {
            self.warn_once(&format!("cannot publish reports of the connections: {error}"));
        }
    }

    fn socket(
        &mut self,
        flow: &Flow,
        sends: bool,
        before: Option<Measurement>,
        (reservation, reason): State,
        dscp: u8,
    ) -> SocketReport {
        let TcpCounters {
            sent_bytes,
            acknowledged_bytes,
            received_bytes,
            segments_out,
            delivered_segments,
            segments_in,
        } = flow.counters.unwrap_or_default();
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
        self.measured.insert((flow.inode, sends), Measurement { id, opened_ms, bytes, at: now });
        SocketReport {
            id,
            name: self.name.clone(),
            role: if sends { Role::Sender } else { Role::Receiver },
            carrier: flow.carrier,
            local: flow.local.to_string(),
            remote: flow.remote.to_string(),
            dscp,
            reservation,
            reason,
            opened_ms,
            // TCP has no messages: its segments are counted. None is lost.
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
            rungs: 0,
            rung: 0,
            held: None,
            parameters: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn warn_once(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            write_stderr(why);
        }
    }
}
