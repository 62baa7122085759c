//! Packet traces: the packets that cross a link, as a pcapng file for Wireshark and tshark.
//!
//! A packet is written at the start of its transmission, if that is before the run ends,
//! as IPv4 with TCP or UDP. Headers are written, payload is not: the model has none. Because of
//! the model, a trace differs from a capture of real traffic:
//!
//! - A connection has no SYN and no FIN. Data begins at sequence number 1.
//! - An ACK with SACK blocks is 40 bytes in the model, as in ns-2; its frame is longer by the
//!   options (12, 20 or 28 bytes). Every other frame is as long as the model's packet.
//! - Timestamps that a scenario's TCP times round trips by are not written as options, for
//!   which its 40 bytes of headers leave no room.
//! - A packet that is lost on the wire, after the queue, has left and is in the trace.
//!
//! Names of the hosts are in the file (a name resolution block); `GROUP.INDEX.source` and
//! `GROUP.INDEX.sink` have the addresses that they have in an emulation.
//!
//! A trace covers the whole run, while the table `links` covers the measured span.

mod frame;

pub(crate) use frame::{Ends, Protocol};

use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ontempo_foundation::Time;
use ontempo_runtime::{End, pcapng};
use ontempo_scenario::Layout;
use ontempo_scenario::model::{RecoveryKind, Scenario, Transport};

use crate::names::{NamedFlow, Names};
use crate::packet::Packet;
use frame::{Frame, MAX_HEADERS};

/// Addresses and ports of each flow in traces.
pub(crate) fn ends_of_flows(scenario: &Scenario, layout: &Layout) -> Arc<[Ends]> {
    let flows = layout.flows.iter().enumerate().map(|(number, flow)| {
        let group = scenario.flows.get(&layout.groups[flow.group]);
        let protocol = match group.map(|group| &group.transport) {
            Some(Transport::Tcp(tcp)) => Protocol::Tcp {
                packet_size: u32::try_from(tcp.packet.get()).unwrap_or(u32::MAX),
                sack: matches!(tcp.recovery, RecoveryKind::Sack | RecoveryKind::Rack),
            },
            _ => Protocol::Udp,
        };
        Ends::new(number as u32, protocol)
    });
    flows.collect()
}

/// The hosts' names by address.
pub(crate) fn names_of_hosts(names: &Names) -> Vec<(IpAddr, String)> {
    let both = |(number, flow): (usize, &NamedFlow)| {
        let name = format!("{}.{}", names.group_of(number), flow.index);
        let (source, sink) = (End::source(number).v4().into(), End::sink(number).v4().into());
        [(source, format!("{name}.source")), (sink, format!("{name}.sink"))]
    };
    names.flows.iter().enumerate().flat_map(both).collect()
}

/// A trace in progress, to be finished after the run.
#[must_use = "a trace is whole only when it was finished"]
pub struct Trace(Arc<Mutex<State>>);

struct State {
    out: BufWriter<Box<dyn Write + Send>>,
    frames: u64,
    /// The error that ended the trace.
    error: Option<io::Error>,
}

impl Trace {
    /// Writes the remaining buffer; returns the number of packets in the trace.
    ///
    /// # Errors
    /// If this or an earlier write failed, such as on a full disk.
    pub fn finish(self) -> io::Result<u64> {
        let mut state = lock(&self.0);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        state.out.flush()?;
        Ok(state.frames)
    }
}

/// The side of a trace that the traced link writes to.
pub(crate) struct Tap {
    state: Arc<Mutex<State>>,
    ends: Arc<[Ends]>,
    /// The run's end: later departures are not written.
    until: Time,
}

impl Tap {
    /// Begins a trace of the link `name` in `out`.
    pub(crate) fn new(
        name: &str,
        (ends, names): (Arc<[Ends]>, &[(IpAddr, String)]),
        until: Time,
        out: Box<dyn Write + Send>,
    ) -> (Self, Trace) {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let begun = pcapng::begin(&mut out, name, MAX_HEADERS as u32);
        let error = begun.and_then(|()| pcapng::names(&mut out, names)).err();
        let state = Arc::new(Mutex::new(State { out, frames: 0, error }));
        (Self { state: state.clone(), ends, until }, Trace(state))
    }

    /// `packet` leaves the queue at `starts`.
    pub(crate) fn departs(&mut self, starts: Time, packet: &Packet, marked: bool) {
        let mut state = lock(&self.state);
        if starts > self.until || state.error.is_some() {
            return;
        }
        let frame = Frame::new(&self.ends[packet.flow as usize], packet, marked);
        match pcapng::packet(&mut state.out, starts, frame.captured(), frame.length) {
            Ok(()) => state.frames += 1,
            Err(error) => state.error = Some(error),
        }
    }

    /// True after a failed write, so that the run may end.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.state).error.is_some()
    }
}

/// A panic of the run's thread leaves the state usable.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
