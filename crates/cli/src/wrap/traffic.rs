//! Traffic counters of the host's connections, parsed from `ss` of iproute2, which has no JSON
//! output (6.1).

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use ontempo_monitor::Carrier;

/// A connected socket.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flow {
    pub(super) inode: u64,
    pub(super) carrier: Carrier,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) state: State,
    /// The program has closed it; the kernel still sends.
    pub(super) is_closed: bool,
    /// `None` over UDP: the kernel has no counters per UDP socket.
    pub(super) counters: Option<TcpCounters>,
}

/// State of a connected socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It sends or receives, or could: also half closed by either end.
    Open,
    /// Data or FIN of this end are not acknowledged: FIN-WAIT-1, CLOSING and LAST-ACK (RFC 9293,
    /// section 3.3.2).
    Closing,
}

/// Counters of a TCP connection; bytes are payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpCounters {
    /// Including retransmissions.
    pub(super) sent_bytes: u64,
    pub(super) acknowledged_bytes: u64,
    pub(super) received_bytes: u64,
    /// Including retransmissions.
    pub(super) segments_out: u64,
    pub(super) delivered_segments: u64,
    pub(super) segments_in: u64,
}

/// The connected sockets of this network namespace, also those that are being closed.
///
/// # Errors
/// `ss` cannot be run or fails, or a field of its output cannot be parsed; the error names the
/// field
/// and its text.
pub(super) fn connected() -> Result<Vec<Flow>, String> {
    let output =
        Command::new("ss").args(["-tuneiOH"]).output().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                "the program `ss` is missing: nothing is monitored or reserved; install it \
                 with: sudo apt-get install iproute2"
                    .to_owned()
            }
            _ => format!("cannot run `ss`: {error}"),
        })?;
    if !output.status.success() {
        return Err(format!("ss: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.lines().filter_map(|line| read(line).transpose()).collect()
}

/// Parses `tcp ESTAB 0 0 10.0.0.1:4000 10.0.0.2:80 ino:9 sk:2 <-> ts … bytes_acked:7 …`; `None` for
/// states without a connection, and other protocols.
fn read(line: &str) -> Result<Option<Flow>, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [kind, state, _, _, local, remote, rest @ ..] = &fields[..] else { return Ok(None) };
    let state = match *state {
        "ESTAB" | "CLOSE-WAIT" | "FIN-WAIT-2" => State::Open,
        "FIN-WAIT-1" | "CLOSING" | "LAST-ACK" => State::Closing,
        _ => return Ok(None),
    };
    let value = |name: &str| {
        let found = rest.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
        let number = found.map(|text| {
            text.parse::<u64>().map_err(|_| format!("ss: {name}: {text:?} is not a number"))
        });
        number.transpose()
    };
    let endpoint = |field: &str, text: &str| {
        address(text).ok_or_else(|| format!("ss: {field}: {text:?} is not an address with a port"))
    };
    let (carrier, counters) = match *kind {
        "udp" => (Carrier::Udp, None),
        "tcp" => {
            // `ss` leaves out counters of 0.
            let count = |name| value(name).map(Option::unwrap_or_default);
            let counters = TcpCounters {
                sent_bytes: count("bytes_sent")?,
                acknowledged_bytes: count("bytes_acked")?,
                received_bytes: count("bytes_received")?,
                segments_out: count("data_segs_out")?,
                delivered_segments: count("delivered")?,
                segments_in: count("data_segs_in")?,
            };
            (Carrier::Tcp, Some(counters))
        }
        _ => return Ok(None),
    };
    let (local, remote) = (endpoint("local address", local)?, endpoint("peer address", remote)?);
    let inode = match value("ino")? {
        Some(inode) => inode,
        // No process has it any more.
        None if state == State::Closing => 0,
        None => return Err(format!("ss: ino is missing in {line:?}")),
    };
    Ok(Some(Flow { inode, carrier, local, remote, state, is_closed: false, counters }))
}

/// Parses `10.0.0.1:80`, `[fd00::1]:80` or `[fe80::1]%eth0:80`. An IPv4-mapped IPv6 address becomes
/// IPv4.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.split('%').next()?.trim_start_matches('[').trim_end_matches(']');
    let host: IpAddr = host.parse().ok()?;
    Some(SocketAddr::new(host.to_canonical(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_parsed_with_their_counters() {
        let line = "tcp   ESTAB 0      0      10.0.0.1:4000 10.0.3.2:5201 ino:917 sk:1001 cgroup:/ \
                    <-> ts sack cubic rto:204 rtt:0.1/0.02 bytes_sent:9000 bytes_retrans:1000 \
                    bytes_acked:7001 bytes_received:37 segs_out:9 data_segs_out:8 data_segs_in:1 \
                    delivered:6";
        let flow = read(line).unwrap().unwrap();
        assert_eq!((flow.inode, flow.carrier), (917, Carrier::Tcp));
        assert_eq!(flow.remote, "10.0.3.2:5201".parse().unwrap());
        let expected = TcpCounters {
            sent_bytes: 9000,
            acknowledged_bytes: 7001,
            received_bytes: 37,
            segments_out: 8,
            delivered_segments: 6,
            segments_in: 1,
        };
        assert_eq!(flow.counters, Some(expected));
        let line = "udp ESTAB 0 0 [::ffff:10.0.0.1]:5353 [::ffff:10.0.0.2]:53 uid:7 ino:2 sk:3 <->";
        let flow = read(line).unwrap().unwrap();
        assert_eq!((flow.carrier, flow.counters), (Carrier::Udp, None));
        assert_eq!(flow.local, "10.0.0.1:5353".parse().unwrap());
        assert_eq!(address("[fe80::1]%eth0:80"), Some("[fe80::1]:80".parse().unwrap()));
        let line =
            "tcp FIN-WAIT-1 0 829545 10.0.0.1:8000 10.0.0.2:4 timer:(on,204ms,0) ino:0 sk:7 -->";
        let flow = read(line).unwrap().unwrap();
        assert_eq!((flow.inode, flow.state), (0, State::Closing));
        let line = "tcp CLOSE-WAIT 0 0 10.0.0.1:8000 10.0.0.2:4 ino:5 sk:7 -->";
        assert_eq!(read(line).unwrap().map(|flow| flow.state), Some(State::Open));
        assert_eq!(read("tcp TIME-WAIT 0 0 10.0.0.1:1 10.0.0.2:2 ino:0 sk:1"), Ok(None));
    }

    #[test]
    fn an_unparsable_number_is_an_error_and_not_zero() {
        let line = "tcp ESTAB 0 0 10.0.0.1:4000 10.0.3.2:5201 ino:917 sk:1 <-> bytes_sent:9k";
        assert_eq!(read(line), Err("ss: bytes_sent: \"9k\" is not a number".to_owned()));
        let line = "tcp ESTAB 0 0 10.0.0.1:4000 10.0.3.2:http ino:917 sk:1 <->";
        let error = "ss: peer address: \"10.0.3.2:http\" is not an address with a port";
        assert_eq!(read(line), Err(error.to_owned()));
        let line = "udp ESTAB 0 0 10.0.0.1:4000 10.0.3.2:53 sk:1 <->";
        assert!(read(line).is_err_and(|error| error.starts_with("ss: ino is missing")));
    }
}
