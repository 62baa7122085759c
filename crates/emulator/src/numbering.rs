//! Packet numbers of a flow, from TCP headers, for the table `packets`.

use crate::ip;

/// Observed sequence numbers of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Numbering {
    /// Data of a full packet.
    payload: u64,
    /// The sequence number of the first byte of data; `None` until the connection opens.
    begins: Option<u32>,
    /// At each link by which data have entered the network: one, or with routers of the kernel
    /// each of the way.
    seen: Vec<Seen>,
}

/// Observed sequence numbers at one link.
#[derive(Clone, Copy, Debug)]
struct Seen {
    link: usize,
    /// End of the data seen so far.
    end: u64,
    /// Packets other than TCP.
    others: u64,
}

impl Numbering {
    /// For a flow whose full packets hold `payload` bytes.
    pub(crate) fn new(payload: u64) -> Self {
        Self { payload: payload.max(1), begins: None, seen: Vec::new() }
    }

    /// The number of a packet that enters at `link`, or for an ACK the lowest that has not
    /// arrived; and whether data of it was sent before.
    pub(crate) fn number(&mut self, link: usize, packet: &[u8], is_data: bool) -> (u64, bool) {
        if !is_data {
            return (self.acknowledged(packet), false);
        }
        let place = self.seen.iter().position(|seen| seen.link == link).unwrap_or_else(|| {
            self.seen.push(Seen { link, end: 0, others: 0 });
            self.seen.len() - 1
        });
        let seen = &mut self.seen[place];
        let Some(segment) = ip::segment(packet) else {
            let number = seen.others;
            seen.others += 1;
            return (number, false);
        };
        if segment.opens {
            self.begins = Some(segment.sequence.wrapping_add(1));
            seen.end = 0;
        }
        let Some(begins) = self.begins else { return (0, false) };
        let offset = unwrapped(segment.sequence.wrapping_sub(begins), seen.end);
        let payload = u64::from(segment.payload);
        let again = payload > 0 && offset < seen.end;
        if !segment.opens {
            seen.end = seen.end.max(offset + payload);
        }
        (offset / self.payload, again)
    }

    fn acknowledged(&self, packet: &[u8]) -> u64 {
        let (Some(segment), Some(begins)) = (ip::segment(packet), self.begins) else { return 0 };
        let end = self.seen.iter().map(|seen| seen.end).max().unwrap_or_default();
        unwrapped(segment.acknowledges.wrapping_sub(begins), end) / self.payload
    }
}

/// The offset, nearest to `end`, whose lower half is `low`.
fn unwrapped(low: u32, end: u64) -> u64 {
    const SPAN: u64 = 1 << 32;
    let near = (end & !(SPAN - 1)) + u64::from(low);
    if near > end + SPAN / 2 {
        near.saturating_sub(SPAN)
    } else if near + SPAN / 2 < end {
        near + SPAN
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u32, acknowledges: u32, opens: bool, payload: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([10, 0, 0, 2, 10, 0, 0, 3, 0, 80, 0, 81]);
        packet.extend(sequence.to_be_bytes());
        packet.extend(acknowledges.to_be_bytes());
        packet.extend([0x50, if opens { 2 } else { 16 }, 0, 0, 0, 0, 0, 0]);
        packet.resize(40 + payload, 0);
        packet
    }

    #[test]
    fn packets_are_numbered_past_the_wrap_of_sequence_numbers() {
        let mut numbering = Numbering::new(1000);
        let start = u32::MAX - 1500;
        assert!(!numbering.number(0, &packet(start, 0, true, 0), true).1);
        let at = |number: u32| start.wrapping_add(1 + number * 1000);
        assert_eq!(numbering.number(0, &packet(at(0), 0, false, 1000), true), (0, false));
        assert_eq!(numbering.number(0, &packet(at(1), 0, false, 1000), true), (1, false));
        assert_eq!(numbering.number(0, &packet(at(2), 0, false, 1000), true), (2, false));
        assert_eq!(numbering.number(0, &packet(at(1), 0, false, 1000), true), (1, true));
        assert_eq!(numbering.number(0, &packet(7, at(3), false, 0), false), (3, false));
    }

    #[test]
    fn what_passes_a_second_link_is_no_retransmission_there() {
        let mut numbering = Numbering::new(1000);
        for link in [4, 6] {
            numbering.number(link, &packet(0, 0, true, 0), true);
            let data = packet(1, 0, false, 1000);
            assert_eq!(numbering.number(link, &data, true), (0, false));
        }
        assert_eq!(numbering.number(6, &packet(1, 0, false, 1000), true), (0, true));
    }
}
