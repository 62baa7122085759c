//! Numbers of a flow's packets, read off their TCP headers, for the table `packets`.

use crate::ip;

/// What has been seen of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Numbering {
    /// Data of a full packet.
    payload: u64,
    /// The sequence number of the first byte of data; `None` until the connection opens.
    begins: Option<u32>,
    /// Where the data seen so far ends.
    end: u64,
    /// Packets that are no TCP.
    others: u64,
}

impl Numbering {
    /// For a flow whose full packets hold `payload` bytes.
    pub(crate) fn new(payload: u64) -> Self {
        Self { payload: payload.max(1), begins: None, end: 0, others: 0 }
    }

    /// The number of a packet, or for an ACK the lowest that has not arrived; and whether data of
    /// it was sent before.
    pub(crate) fn number(&mut self, packet: &[u8], is_data: bool) -> (u64, bool) {
        let Some(segment) = ip::segment(packet) else {
            let number = self.others;
            self.others += u64::from(is_data);
            return (number, false);
        };
        if is_data && segment.opens {
            self.begins = Some(segment.sequence.wrapping_add(1));
            self.end = 0;
        }
        let Some(begins) = self.begins else { return (0, false) };
        let sequence = if is_data { segment.sequence } else { segment.acknowledges };
        let offset = self.unwrapped(sequence.wrapping_sub(begins));
        let payload = u64::from(segment.payload);
        let again = is_data && payload > 0 && offset < self.end;
        if is_data && !segment.opens {
            self.end = self.end.max(offset + payload);
        }
        (offset / self.payload, again)
    }

    /// The offset, nearest to what was seen, whose lower half is `low`.
    fn unwrapped(&self, low: u32) -> u64 {
        const SPAN: u64 = 1 << 32;
        let near = (self.end & !(SPAN - 1)) + u64::from(low);
        if near > self.end + SPAN / 2 {
            near.saturating_sub(SPAN)
        } else if near + SPAN / 2 < self.end {
            near + SPAN
        } else {
            near
        }
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
        assert!(!numbering.number(&packet(start, 0, true, 0), true).1);
        let at = |number: u32| start.wrapping_add(1 + number * 1000);
        assert_eq!(numbering.number(&packet(at(0), 0, false, 1000), true), (0, false));
        assert_eq!(numbering.number(&packet(at(1), 0, false, 1000), true), (1, false));
        assert_eq!(numbering.number(&packet(at(2), 0, false, 1000), true), (2, false));
        assert_eq!(numbering.number(&packet(at(1), 0, false, 1000), true), (1, true));
        assert_eq!(numbering.number(&packet(7, at(3), false, 0), false), (3, false));
    }
}
