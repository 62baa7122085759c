//! The state of each socket, parsed from the lines that the BPF program prints.

use std::net::SocketAddr;

use ontempo_foundation::{Duration, Rate};
pub use ontempo_mechanisms::congestion::Mode;

use crate::Settings;
use crate::settings::{delay_of, packets_of};

/// PERT's current state on one socket.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketStatus {
    /// Number of the network namespace (`ls -Li /proc/self/ns/net`).
    pub namespace: u32,
    /// Local address and port.
    pub local: SocketAddr,
    /// Peer's address and port.
    pub remote: SocketAddr,
    /// The current mode.
    pub mode: Mode,
    /// True while the flow is Reno, because loss-based flows keep the queue full.
    pub as_reno: bool,
    /// Additive increase in packets per round trip.
    pub alpha: f64,
    /// Smoothed queueing delay.
    pub curq: Duration,
    /// Largest queueing delay seen, at least the setting `maxq-floor`.
    pub maxq: Duration,
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Slow-start threshold in whole packets; `None` before the first reduction.
    pub ssthresh: Option<u32>,
    /// PERT's own smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// The smallest round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// `p`: losses per packet; `None` before the first.
    pub loss_rate: Option<f64>,
    /// `p'`: early responses per packet; `None` before the first.
    pub response_rate: Option<f64>,
    /// Early responses so far.
    pub early_responses: u64,
    /// Loss episodes so far, including those that began with a timeout or a congestion mark.
    pub losses: u64,
    /// Retransmission timeouts so far.
    pub timeouts: u64,
    /// The pacing rate; `None` before the first round trip.
    pub pacing_rate: Option<Rate>,
    /// Packets delivered, modulo 2^32.
    pub delivered: u32,
}

/// `TCP_INFINITE_SSTHRESH` of Linux: the threshold is not set yet.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// Parses a pinned file; `None` if it is not understood.
pub(crate) fn read(text: &str) -> Option<(Settings, Vec<SocketStatus>)> {
    let mut settings = None;
    let mut sockets = Vec::new();
    for line in text.lines() {
        match line.split_once(' ')? {
            ("parameters", numbers) => {
                let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
                let numbers: [u64; Settings::COUNT] = numbers.ok()?.try_into().ok()?;
                settings = Some(Settings::from_fixed_point(&numbers));
            }
            ("socket", fields) => sockets.push(socket(fields)?),
            _ => return None,
        }
    }
    sockets.sort_by_key(|socket| (socket.namespace, socket.local, socket.remote));
    Some((settings?, sockets))
}

fn socket(fields: &str) -> Option<SocketStatus> {
    let field = |name: &str| {
        let mut words = fields.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let small = |name: &str| field(name)?.parse::<u32>().ok();
    // The mean interval between two events; `None` before the first.
    let rate = |name: &str| number(name).map(|mean| (mean > 0).then(|| 1.0 / packets_of(mean)));
    Some(SocketStatus {
        namespace: small("netns")?,
        local: field("local")?.parse().ok()?,
        remote: field("remote")?.parse().ok()?,
        mode: match number("mode")? {
            0 => Mode::HighSpeed,
            1 => Mode::Safe,
            2 => Mode::Compete,
            _ => return None,
        },
        as_reno: number("reno")? != 0,
        alpha: packets_of(number("alpha")?),
        curq: delay_of(number("curq")?),
        maxq: delay_of(number("maxq")?),
        cwnd: packets_of(number("cwnd")?),
        ssthresh: Some(small("ssthresh")?).filter(|&packets| packets != NO_THRESHOLD),
        srtt: delay_of(number("srtt")?),
        min_rtt: Duration::from_micros(number("min_rtt")?),
        loss_rate: rate("p")?,
        response_rate: rate("p'")?,
        early_responses: number("early")?,
        losses: number("losses")?,
        timeouts: number("timeouts")?,
        // The kernel's "no limit" is all bits set.
        pacing_rate: number("pacing")?.checked_mul(8).map(Rate::from_bits_per_sec),
        delivered: small("delivered")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: &str = "parameters 16609444 40960000 20480000 40960000 838861 10905190 \
                              33554432 1048576 33554432 524288 15099494 104858 8388608 10905190 \
                              167772 5242880 0 1 2097152 1 1 1048576\n";

    fn line(local: &str, more: &str) -> String {
        format!(
            "socket netns=4026531833 local={local} remote=10.0.0.2:5201 mode=1 reno=0 alpha=1048576 \
             curq=36864000 maxq=409600000 cwnd=22020096 ssthresh=20 srtt=40960000 min_rtt=1000 \
             p=0 p'=104857600 early=7 losses=0 timeouts=0 pacing=3000000 delivered=900{more}\n"
        )
    }

    #[test]
    fn a_socket_is_read_in_its_units() {
        let text = line("10.0.0.1:40000", "") + PARAMETERS;
        let (settings, sockets) = read(&text).expect("understood");
        assert_eq!(settings, Settings::default());
        let socket = &sockets[0];
        assert_eq!(socket.mode, Mode::Safe);
        assert_eq!(socket.curq, Duration::from_millis(9));
        assert_eq!(socket.maxq, Duration::from_millis(100));
        assert_eq!((socket.alpha, socket.cwnd), (1.0, 21.0));
        assert_eq!((socket.loss_rate, socket.response_rate), (None, Some(0.01)));
        assert_eq!(socket.pacing_rate, Some(Rate::from_bits_per_sec(24_000_000)));
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let local = "[fd00:0000:0000:0000:0000:0000:0000:0001]:40000";
        let (_, sockets) = read(&(line(local, "") + PARAMETERS)).expect("understood");
        assert_eq!(sockets[0].local.to_string(), "[fd00::1]:40000");
    }

    #[test]
    fn malformed_lines_are_refused() {
        for text in ["", "socket netns=1", "nonsense", "parameters 1 2 3\n"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&line("10.0.0.1:1", "")), None, "no parameters");
        assert_eq!(read(&(line("nowhere", "") + PARAMETERS)), None);
    }
}
