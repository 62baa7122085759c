//! UDP with packet spacing: constant, or adapted to the receiver's reports.

use ontempo_foundation::{Duration, Packets, Time};
use ontempo_mechanisms::spacing::{Report, ReportCounter};
use ontempo_runtime::{Distance, FlowTotals, Pace};

use super::receiver::Receiver;
use super::udp::Udp;
use crate::fabric::{Event, Fabric};
use crate::packet::Packet;
use crate::timer::LazyTimer;

/// Bytes of a report and of an RTT probe on the wire: IP and UDP headers, and two
/// counters of 8 bytes.
const REPORT_SIZE: u32 = 44;
/// The packet number that marks an RTT probe or its answer.
const PROBE: u64 = u64::MAX;
/// How long to wait for the answer to a probe before sending another.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

/// Both ends of a flow of spaced packets.
pub(crate) struct Spaced {
    flow: u32,
    back: u32,
    udp: Udp,
    pace: Pace,
    distance: Distance,
    last_sent: Option<Time>,
    wake: LazyTimer,
    /// Reports that reached the sender.
    reports: u64,
    /// When the last of them was sent: a copy that a link made would be a report of no arrivals.
    last_report: Option<Time>,
    // The receiver's end.
    counter: ReportCounter,
    /// The base RTT carried in the packets.
    told_rtt: Option<Duration>,
    report_timer: LazyTimer,
}

impl Spaced {
    pub(crate) fn new((flow, back): (u32, u32), udp: Udp, pace: Pace, distance: Distance) -> Self {
        Self {
            flow,
            back,
            udp,
            pace,
            distance,
            last_sent: None,
            wake: LazyTimer::unset(),
            reports: 0,
            last_report: None,
            counter: ReportCounter::default(),
            told_rtt: None,
            report_timer: LazyTimer::unset(),
        }
    }

    /// As [`Udp::allow_counting_ahead`].
    pub(crate) fn allow_counting_ahead(&mut self) {
        self.udp.allow_counting_ahead();
    }

    /// True if `packet`, which arrives at `at`, may be delivered before: its arrival causes no answer
    /// and no report, and none is sent before.
    #[inline]
    pub(crate) fn takes_ahead(&self, now: Time, at: Time, packet: &Packet) -> bool {
        let is_data = !packet.marks.ack && packet.number != PROBE;
        let reports = self.report_timer.is_set() && self.report_timer.deadline() > at;
        let is_counted = reports || matches!(self.pace, Pace::Constant(_));
        is_data && is_counted && self.udp.takes_ahead(now)
    }

    /// The arrival of data is pending as an event.
    #[inline]
    pub(crate) fn await_arrival(&mut self, at: Time) {
        self.udp.await_arrival(at);
    }

    /// As [`Udp::expect_copies`].
    pub(crate) fn expect_copies(&mut self) {
        self.udp.expect_copies();
    }

    // The sender's end.

    pub(crate) fn on_wake(&mut self, now: Time, fabric: &mut Fabric) {
        let event = Event::Wake(self.flow);
        if !self.wake.is_set() || self.wake.expires(now, event, fabric) {
            self.send_allowed(now, fabric);
        }
    }

    fn send_allowed(&mut self, now: Time, fabric: &mut Fabric) {
        let Some(interval) = self.interval() else {
            if !self.udp.has_stopped(now) {
                let mut probe = self.udp.packet(PROBE, now, REPORT_SIZE);
                probe.marks.leave_out();
                fabric.send(now, probe);
                self.wake.set(now + PROBE_AGAIN, Event::Wake(self.flow), fabric);
            }
            return;
        };
        let due = self.last_sent.map_or(now, |sent| sent + interval);
        let next = if due > now {
            due
        } else if self.udp.send_next(now, fabric) {
            self.last_sent = Some(now);
            now + interval
        } else {
            self.udp.next_offer(now)
        };
        if !self.udp.has_stopped(next) {
            self.wake.set(next, Event::Wake(self.flow), fabric);
        }
    }

    /// From the start of a packet to that of the next; `None` until the base RTT is
    /// known.
    fn interval(&self) -> Option<Duration> {
        self.spacing().map(|spacing| self.distance.interval(spacing))
    }

    /// A report, or the answer to a probe.
    fn on_answer(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric) {
        if packet.number == PROBE {
            let base_rtt = now.since(packet.stamp);
            if self.pace.begin(base_rtt) {
                self.told_rtt = Some(base_rtt);
                self.wake.clear();
                self.send_allowed(now, fabric);
            }
            return;
        }
        if self.last_report.replace(packet.stamp) == Some(packet.stamp) {
            return;
        }
        self.reports += 1;
        let report = Report { next: packet.number, received: Packets::new(packet.count()) };
        self.pace.on_report(report, self.udp.sent());
    }

    // The receiver's end.

    /// The packet of this handle has arrived.
    #[inline]
    pub(crate) fn on_arrival(&mut self, now: Time, handle: u32, fabric: &mut Fabric) {
        let packet = fabric.packet(handle);
        if packet.marks.ack || packet.number == PROBE {
            let packet = fabric.take(handle);
            return self.on_other(now, packet, fabric);
        }
        let data = (packet.number, packet.stamp);
        fabric.release(handle);
        self.on_data(now, data, fabric);
    }

    /// A report, a probe or the answer to one.
    #[inline(never)]
    fn on_other(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        if packet.marks.ack {
            return self.on_answer(now, &packet, fabric);
        }
        let mut answer = self.answer(PROBE, now);
        answer.stamp = packet.stamp;
        fabric.send(now, answer);
    }

    fn on_data(&mut self, now: Time, data: (u64, Time), fabric: &mut Fabric) {
        if !self.udp.on_packet(now, data) {
            return;
        }
        self.counter.on_packet(data.0);
        if let Some(rtt) = self.told_rtt
            && !self.report_timer.is_set()
        {
            self.report_timer.set(now + rtt, Event::Acknowledge(self.flow), fabric);
        }
    }

    /// The next report is due.
    pub(crate) fn on_report_timer(&mut self, now: Time, fabric: &mut Fabric) {
        let event = Event::Acknowledge(self.flow);
        let Some(rtt) = self.told_rtt else { return };
        if !self.report_timer.expires(now, event, fabric) {
            return;
        }
        let report = self.counter.report();
        let mut packet = self.answer(report.next, now);
        packet.set_count(report.received.get());
        fabric.send(now, packet);
        if !self.udp.has_stopped(now) {
            self.report_timer.set(now + rtt, event, fabric);
        }
    }

    fn answer(&self, number: u64, now: Time) -> Packet {
        let mut packet = Packet::data(self.flow, self.back, number, now, REPORT_SIZE);
        packet.marks.ack = true;
        packet
    }

    pub(crate) fn end(&mut self, now: Time) {
        self.udp.count_unsent(now);
        self.udp.end(now);
    }

    // What probes read.

    /// The current spacing; `None` until the base RTT is known.
    pub(crate) fn spacing(&self) -> Option<Duration> {
        self.pace.spacing()
    }

    pub(crate) fn controller_name(&self) -> Option<&'static str> {
        self.pace.name()
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals { acks: self.reports, reductions: self.pace.losses(), ..self.udp.totals() }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        self.udp.packet_size()
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        self.udp.receiver()
    }
}
