//! Agents: the sender and receiver at the ends of a route.

mod adu;
mod carried;
mod consumer;
mod receiver;
mod spaced;
mod tcp;
mod trains;
mod udp;

pub(crate) use adu::Adu;
pub(crate) use carried::{Adus, Carried, Ends, Ontempo, Plain, Rist, Srt};
pub(crate) use consumer::Consumer;
pub(crate) use receiver::Receiver;
pub(crate) use spaced::Spaced;
pub(crate) use tcp::{ExtensionSettings, Extensions, SenderSettings, Tcp};
pub(crate) use udp::Udp;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::congestion::Snapshot;
use ontempo_mechanisms::playout::Playout;
use ontempo_runtime::FlowTotals;

use crate::fabric::Fabric;
use crate::packet::Packet;

/// Both ends of a flow.
#[expect(
    clippy::large_enum_variant,
    reason = "most flows are TCP, and a box would be one more step to each packet's agent"
)]
pub(crate) enum Agent {
    Tcp(Tcp),
    Udp(Udp),
    Spaced(Box<Spaced>),
    Adu(Box<Adu>),
    Carried(Box<Carried>),
}

impl Agent {
    /// The packet of this handle, which is of the flow, has arrived at the end of its route.
    #[inline(always)]
    pub(crate) fn on_arrival(&mut self, now: Time, handle: u32, fabric: &mut Fabric) {
        if let Self::Tcp(tcp) = self {
            return tcp.on_arrival(now, handle, fabric);
        }
        match self {
            Self::Tcp(_) => {}
            Self::Udp(udp) => {
                let packet = fabric.packet(handle);
                let data = (packet.number, packet.stamp);
                fabric.release(handle);
                udp.on_packet(now, data);
            }
            Self::Spaced(spaced) => spaced.on_arrival(now, handle, fabric),
            Self::Adu(adu) => adu.on_packet(now, fabric.take(handle), fabric),
            Self::Carried(carried) => carried.on_packet(now, fabric.take(handle), fabric),
        }
    }

    /// Links on the way of data may make copies. TCP's receiver and that of ADUs know what they have.
    pub(crate) fn expect_copies(&mut self) {
        match self {
            Self::Udp(udp) => udp.expect_copies(),
            Self::Spaced(spaced) => spaced.expect_copies(),
            Self::Carried(carried) => carried.expect_copies(),
            Self::Tcp(_) | Self::Adu(_) => {}
        }
    }

    /// Prefetches the state that a packet's arrival needs; see `Simulation::look_ahead`.
    #[inline]
    pub(crate) fn touch(&self, ack: bool) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.touch(ack),
            Self::Udp(udp) => udp.packet_size(),
            Self::Spaced(spaced) => spaced.packet_size(),
            Self::Adu(adu) => adu.packet_size(),
            Self::Carried(carried) => carried.packet_size(),
        }
    }

    /// True if `packet`, which arrives at `at`, may be delivered to the agent now; agents are read at
    /// `horizon`, not before `at`.
    #[inline]
    pub(crate) fn takes_ahead(
        &self,
        now: Time,
        (at, horizon): (Time, Time),
        packet: &Packet,
    ) -> bool {
        if let Self::Tcp(tcp) = self {
            return tcp.takes_ahead(now, packet);
        }
        match self {
            Self::Tcp(_) => false,
            // What is read at the time of an arrival may be read before it.
            Self::Udp(udp) => at < horizon && udp.takes_ahead(now),
            Self::Spaced(spaced) => at < horizon && spaced.takes_ahead(now, at, packet),
            Self::Adu(_) | Self::Carried(_) => false,
        }
    }

    /// A data packet's arrival is pending as an event.
    #[inline]
    pub(crate) fn await_arrival(&mut self, at: Time) {
        match self {
            Self::Tcp(tcp) => tcp.await_arrival(at),
            Self::Udp(udp) => udp.await_arrival(at),
            Self::Spaced(spaced) => spaced.await_arrival(at),
            Self::Adu(_) | Self::Carried(_) => {}
        }
    }

    pub(crate) fn on_wake(&mut self, now: Time, fabric: &mut Fabric) {
        match self {
            Self::Tcp(tcp) => tcp.on_wake(now, fabric),
            Self::Udp(udp) => udp.on_wake(now, fabric),
            Self::Spaced(spaced) => spaced.on_wake(now, fabric),
            Self::Adu(adu) => adu.on_wake(now, fabric),
            Self::Carried(carried) => carried.on_wake(now, fabric),
        }
    }

    /// A message of another flow has arrived that this flow waited for.
    pub(crate) fn on_prompt(&mut self, now: Time, fabric: &mut Fabric) {
        if let Self::Tcp(tcp) = self {
            tcp.on_prompt(now, fabric);
        }
    }

    pub(crate) fn on_retransmit_timer(&mut self, now: Time, fabric: &mut Fabric) {
        match self {
            Self::Tcp(tcp) => tcp.on_retransmit_timer(now, fabric),
            Self::Adu(adu) => adu.on_retransmit_timer(now, fabric),
            Self::Udp(_) | Self::Spaced(_) | Self::Carried(_) => {}
        }
    }

    /// The reordering timer of a TCP flow, or that of its tail loss probe.
    pub(crate) fn on_probe_timer(&mut self, now: Time, fabric: &mut Fabric) {
        if let Self::Tcp(tcp) = self {
            tcp.on_probe_timer(now, fabric);
        }
    }

    pub(crate) fn on_acknowledge_timer(&mut self, now: Time, fabric: &mut Fabric) {
        match self {
            Self::Tcp(tcp) => tcp.on_acknowledge_timer(now, fabric),
            Self::Udp(_) | Self::Adu(_) | Self::Carried(_) => {}
            Self::Spaced(spaced) => spaced.on_report_timer(now, fabric),
        }
    }

    /// The receiving application takes its next ADU.
    pub(crate) fn on_take(&mut self, now: Time, fabric: &mut Fabric) {
        if let Self::Adu(adu) = self {
            adu.on_take(now, fabric);
        }
    }

    /// A packet that the flow sent was lost, which its sender is told now.
    pub(crate) fn on_lost(&mut self, now: Time, packet: Packet, fabric: &mut Fabric) {
        match self {
            Self::Adu(adu) => adu.on_lost(now, packet, fabric),
            Self::Carried(carried) => carried.on_lost(now, packet, fabric),
            Self::Tcp(_) | Self::Udp(_) | Self::Spaced(_) => {}
        }
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        match self {
            Self::Tcp(tcp) => tcp.srtt(),
            Self::Adu(adu) => adu.sender().rtt().srtt(),
            Self::Udp(_) | Self::Spaced(_) | Self::Carried(_) => None,
        }
    }

    pub(crate) fn minimum_rtt(&self) -> Option<Duration> {
        match self {
            Self::Tcp(tcp) => tcp.minimum_rtt(),
            Self::Adu(adu) => adu.sender().rtt().minimum_rtt(),
            Self::Udp(_) | Self::Spaced(_) | Self::Carried(_) => None,
        }
    }

    pub(crate) fn in_flight(&self) -> Option<u64> {
        match self {
            Self::Tcp(tcp) => Some(tcp.in_flight()),
            Self::Adu(adu) => Some(adu.sender().in_flight()),
            Self::Udp(_) | Self::Spaced(_) | Self::Carried(_) => None,
        }
    }

    /// Whether all that was sent is acknowledged; never known of UDP.
    pub(crate) fn is_finished(&self) -> bool {
        let connects = matches!(self, Self::Tcp(tcp) if tcp.is_connecting());
        self.in_flight() == Some(0) && !connects
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        match self {
            Self::Tcp(tcp) => tcp.totals(),
            Self::Udp(udp) => udp.totals(),
            Self::Spaced(spaced) => spaced.totals(),
            Self::Adu(adu) => adu.totals(),
            Self::Carried(carried) => carried.totals(),
        }
    }

    /// Bytes of a data packet on the wire.
    pub(crate) fn packet_size(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.packet_size(),
            Self::Udp(udp) => udp.packet_size(),
            Self::Spaced(spaced) => spaced.packet_size(),
            Self::Adu(adu) => adu.packet_size(),
            Self::Carried(carried) => carried.packet_size(),
        }
    }

    /// Bytes sent there and back, headers counted.
    pub(crate) fn wire_bytes(&self) -> [u64; 2] {
        match self {
            Self::Carried(carried) => carried.wire_bytes(),
            Self::Tcp(tcp) => {
                let totals = tcp.totals();
                [totals.sent * tcp.packet_size(), totals.acks * Tcp::ACK_BYTES]
            }
            other => [other.totals().sent * other.packet_size(), 0],
        }
    }

    pub(crate) fn congestion(&self) -> Option<Snapshot> {
        match self {
            Self::Tcp(tcp) => Some(tcp.congestion()),
            Self::Udp(_) | Self::Spaced(_) | Self::Adu(_) | Self::Carried(_) => None,
        }
    }

    pub(crate) fn tcp(&self) -> Option<&Tcp> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Udp(_) | Self::Spaced(_) | Self::Adu(_) | Self::Carried(_) => None,
        }
    }

    pub(crate) fn spaced(&self) -> Option<&Spaced> {
        match self {
            Self::Spaced(spaced) => Some(spaced),
            Self::Tcp(_) | Self::Udp(_) | Self::Adu(_) | Self::Carried(_) => None,
        }
    }

    /// The kind of transport, and the name of its controller.
    pub(crate) fn transport(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Tcp(tcp) => ("tcp", Some(tcp.congestion_name())),
            Self::Udp(_) => ("udp", None),
            Self::Spaced(spaced) => ("spaced", spaced.controller_name()),
            Self::Adu(_) => ("adu", None),
            Self::Carried(carried) => carried.transport(),
        }
    }

    pub(crate) fn playout(&self) -> Option<&Playout> {
        self.receiver().playout()
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        match self {
            Self::Tcp(tcp) => tcp.receiver(),
            Self::Udp(udp) => udp.receiver(),
            Self::Spaced(spaced) => spaced.receiver(),
            Self::Adu(adu) => adu.receiver(),
            Self::Carried(carried) => carried.receiver(),
        }
    }

    /// The run has ended: units that never arrived are counted.
    pub(crate) fn end(&mut self, now: Time) {
        match self {
            Self::Tcp(tcp) => tcp.end(now),
            Self::Udp(udp) => udp.end(now),
            Self::Spaced(spaced) => spaced.end(now),
            Self::Adu(_) | Self::Carried(_) => {}
        }
    }
}
