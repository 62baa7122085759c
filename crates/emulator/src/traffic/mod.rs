//! The traffic of a run: each flow's application over sockets of the kernel.
//!
//! A socket belongs for ever to the network namespace in which its thread created it. So one
//! thread serves all flows, both ends of each: it timestamps sending and arrival with one
//! clock, and everything is released when the process ends.

mod film;
mod pert;
mod receiver;
mod sending;
mod serve;
mod spaced;
mod tcp;
mod udp;

pub(crate) use film::{FilmFlow, Way};
use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::playout::Playout;
use ontempo_runtime::{FlowTotals, Messages, Showing};
pub(crate) use pert::{Connection, Telling};
pub(crate) use receiver::Receiver;
use sending::Sending;
pub(crate) use serve::{Served, Traffic, serve};
pub(crate) use spaced::Spaced;
pub(crate) use tcp::{FilmStream, Tcp, TcpSockets};
pub(crate) use udp::{STAMP, Udp, UdpSockets};

/// A flow's traffic.
pub(crate) enum Agent {
    /// Over TCP.
    Tcp(Box<Tcp>),
    /// Over UDP.
    Udp(Box<Udp>),
    /// Over UDP, spaced.
    Spaced(Box<Spaced>),
    /// A film in datagrams.
    Film(Box<FilmFlow>),
}

/// Which of a flow's sockets is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The listening socket.
    Listener,
    /// The sender's.
    Source,
    /// The receiver's.
    Sink,
}

/// A received message makes flow `flow` send, at `at`.
pub(crate) struct Prompt {
    pub(crate) flow: u32,
    pub(crate) at: Time,
}

impl Agent {
    /// The flow starts, or a wait may have ended; returns when to call again.
    fn on_time(&mut self, now: Time, sending: &mut Sending) -> Time {
        match self {
            Self::Tcp(tcp) => tcp.on_time(now, sending),
            Self::Udp(udp) => udp.on_time(now, sending),
            Self::Spaced(spaced) => spaced.on_time(now, sending),
            Self::Film(film) => film.on_time(now, sending),
        }
    }

    /// A message has arrived that this flow answers, at `due`; returns when to call again.
    fn on_prompt(&mut self, now: Time, due: Time, sending: &mut Sending) -> Time {
        match self {
            Self::Tcp(tcp) => tcp.on_prompt(now, due, sending),
            Self::Udp(udp) => udp.on_time(now, sending),
            Self::Spaced(spaced) => spaced.on_time(now, sending),
            Self::Film(film) => film.on_time(now, sending),
        }
    }

    /// A socket is ready; returns when to call again.
    fn on_ready(
        &mut self,
        now: Time,
        side: Side,
        prompts: &mut Vec<Prompt>,
        sending: &mut Sending,
    ) -> Time {
        match self {
            Self::Tcp(tcp) => tcp.on_ready(now, side, prompts, sending),
            Self::Udp(udp) => {
                if side == Side::Sink {
                    udp.receive(now);
                }
                udp.next(now)
            }
            Self::Spaced(spaced) if side == Side::Sink => spaced.receive(now, sending),
            Self::Spaced(spaced) => spaced.take_reports(now, sending),
            Self::Film(film) => {
                film.receive(|| sending.now());
                film.next(now)
            }
        }
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, now: Time) {
        match self {
            Self::Tcp(tcp) => tcp.end(now),
            Self::Udp(udp) => udp.end(now),
            Self::Spaced(spaced) => spaced.udp.end(now),
            Self::Film(film) => film.end(now),
        }
    }

    /// Counters of both ends.
    pub(crate) fn totals(&self) -> FlowTotals {
        match self {
            Self::Tcp(tcp) => tcp.totals(),
            Self::Udp(udp) => udp.totals(),
            Self::Spaced(spaced) => spaced.totals(),
            // The network counts its packets, and cannot tell which a program sends again.
            Self::Film(film) => FlowTotals {
                retransmitted: (film.way.name.0 == "udp").then_some(0),
                ..FlowTotals::default()
            },
        }
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        match self {
            Self::Tcp(tcp) => &tcp.receiver,
            Self::Udp(udp) => &udp.receiver,
            Self::Spaced(spaced) => &spaced.udp.receiver,
            Self::Film(film) => film.receiver(),
        }
    }

    /// What has arrived of its film.
    pub(crate) fn showing(&self) -> Option<&Showing> {
        match self {
            Self::Film(film) => Some(film.showing()),
            Self::Tcp(tcp) => tcp.film.as_ref().map(FilmStream::showing),
            Self::Udp(_) | Self::Spaced(_) => None,
        }
    }

    /// Datagrams of its film that came out of the transport and were lost before they were read.
    pub(crate) fn overflowed(&self) -> u64 {
        if let Self::Film(film) = self { film.overflowed() } else { 0 }
    }

    /// Whether the network, not the agent, counts its packets.
    pub(crate) fn is_counted_outside(&self) -> bool {
        matches!(self, Self::Film(_))
    }

    pub(crate) fn tcp(&self) -> Option<&Tcp> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Udp(_) | Self::Spaced(_) | Self::Film(_) => None,
        }
    }

    pub(crate) fn tcp_mut(&mut self) -> Option<&mut Tcp> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Udp(_) | Self::Spaced(_) | Self::Film(_) => None,
        }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.packet_size(),
            Self::Udp(udp) => udp.packet_size(),
            Self::Spaced(spaced) => spaced.udp.packet_size(),
            Self::Film(_) => 0,
        }
    }

    /// Names of its transport and its controller in the tables.
    pub(crate) fn transport(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Tcp(tcp) => ("tcp", Some(tcp.congestion())),
            Self::Udp(_) => ("udp", None),
            Self::Spaced(spaced) => ("spaced", spaced.controller_name()),
            Self::Film(film) => (film.way.name.0, film.way.name.1.as_deref()),
        }
    }

    /// Names and values of its sampled quantities.
    pub(crate) fn quantities(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Tcp(tcp) => tcp.quantities().collect(),
            Self::Udp(_) | Self::Film(_) => Vec::new(),
            Self::Spaced(spaced) => spaced.quantities().collect(),
        }
    }

    pub(crate) fn playout(&self) -> Option<&Playout> {
        self.receiver().playout()
    }

    pub(crate) fn messages(&self) -> Option<&Messages> {
        self.receiver().messages()
    }
}

/// How often a connection's state is read: controller reactions and acknowledged bytes.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);
