use ontempo_foundation::{Duration, Packets, Percent, Rate};

/// Options of a connection. The defaults are those of `srt-live-transmit` 1.5.1
/// (`srtcore/socketconfig.h`; API-socket-options).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrtParameters {
    /// From sending to delivery, without the time on the path: the larger of both sides' values
    /// (SRTO_LATENCY; the draft, section 4.4).
    pub latency: Duration,
    /// The rate that the sender does not exceed (SRTO_MAXBW, SRTO_INPUTBW).
    pub max_bandwidth: MaxBandwidth,
    /// What retransmissions may take beyond the rate of the media, if
    /// [`max_bandwidth`](Self::max_bandwidth) follows it (SRTO_OHEADBW).
    pub overhead: Percent,
    /// Packets sent and not acknowledged at most; the receive buffer limits it, too (SRTO_FC).
    pub flow_window: Packets,
    /// Packets that wait or are not acknowledged at most (SRTO_SNDBUF).
    pub send_buffer: Packets,
    /// Packets at the receiver at most, 2 or more (SRTO_RCVBUF).
    pub receive_buffer: Packets,
    /// Both sides give up what is too late (SRTO_TLPKTDROP).
    pub drop_too_late: bool,
    /// How much longer than the latency the sender keeps a packet (SRTO_SNDDROPDELAY).
    pub send_drop_delay: Duration,
    /// The receiver repeats its loss reports (SRTO_NAKREPORT). Otherwise the sender repeats all
    /// that is not acknowledged when no ACK comes.
    pub periodic_nak: bool,
    /// A connection without a packet from the peer for this long is broken (SRTO_PEERIDLETIMEO).
    pub peer_idle_timeout: Duration,
    /// `srt-live-transmit` looks at its input this often, and when an ACK comes; `None`: a program
    /// that hands its datagrams over at once, as one that is written for libsrt does (10 ms;
    /// `CGlobEvent::waitForEvent` in `sync.cpp`, called by `srt_epoll_wait`).
    pub input_interval: Option<Duration>,
    /// An attempt to connect ends after this time, and the next begins (SRTO_CONNTIMEO).
    pub connection_timeout: Duration,
}

/// What limits the sender's rate, headers of IPv4, UDP and SRT included (the draft, section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxBandwidth {
    /// 1 Gbit/s (SRTO_MAXBW = -1; BW_INFINITE in `common.h`).
    Unlimited,
    /// This rate, at least 8 bit/s.
    Fixed(Rate),
    /// The given rate of the media and the overhead (SRTO_MAXBW = 0, SRTO_INPUTBW).
    Input(Rate),
    /// The measured rate of the media and the overhead (SRTO_MAXBW = 0, SRTO_INPUTBW = 0).
    Measured,
}

impl Default for SrtParameters {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(120),
            max_bandwidth: MaxBandwidth::Unlimited,
            overhead: Percent::new(25),
            flow_window: Packets::new(25_600),
            send_buffer: Packets::new(8_192),
            receive_buffer: Packets::new(8_192),
            drop_too_late: true,
            send_drop_delay: Duration::ZERO,
            periodic_nak: true,
            peer_idle_timeout: Duration::from_secs(5),
            input_interval: Some(Duration::from_millis(10)),
            connection_timeout: Duration::from_secs(3),
        }
    }
}

impl SrtParameters {
    /// What a receiver states in its handshake (`flightCapacity` in `socketconfig.h`).
    pub(super) fn flight_capacity(&self) -> Packets {
        self.receive_buffer.min(self.flow_window)
    }
}
