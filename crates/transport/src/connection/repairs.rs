//! Repairs by deadline: what is missing of units with a deadline shortly before it is asked for by the receiver, and
//! sent once more in datagrams, beside the stack's own retransmissions. `docs/mechanisms/loss-recovery.md` says why.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use noq_proto::{Dir, StreamId};
use ontempo_foundation::{Duration, Time};

use super::incoming::Asking;
use super::{Connection, Violation};
use crate::config::DATAGRAM_BUFFER;
use crate::wire::{DatagramHeader, Missing, Range};

/// The share of the bytes written that repairs may have, and how much of it is kept; bytes.
const SHARE: f64 = 0.125;
const MAX_ALLOWANCE: f64 = 65_536.0;

/// With less space for datagrams, earlier repairs wait still; bytes.
const MIN_SPACE: usize = DATAGRAM_BUFFER / 2;

/// A stream that is not acknowledged.
#[derive(Debug)]
pub(super) struct OnStream {
    pub(super) flow: u64,
    pub(super) units: Vec<u64>,
    /// All that goes on it, where it may be repaired.
    data: Vec<Bytes>,
    begun: Time,
}

/// Streams that are not acknowledged, and how much may be sent again of them.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    pub(super) streams: BTreeMap<StreamId, OnStream>,
    allowance: f64,
    /// Datagrams with repairs.
    pub(super) repairs_sent: u64,
}

impl OnStream {
    /// The bytes from an offset on, at most `most` and not beyond `to`, or the end.
    fn part(&self, from: u64, to: Option<u64>, most: usize) -> BytesMut {
        let mut part = BytesMut::new();
        let mut at = 0;
        for chunk in &self.data {
            let end = at + chunk.len() as u64;
            let until = to.unwrap_or(end).min(end).min(from + most as u64);
            let begin = from.max(at);
            if begin < until {
                part.put_slice(&chunk[(begin - at) as usize..(until - at) as usize]);
            }
            at = end;
        }
        part
    }
}

impl Unacknowledged {
    /// A stream is begun; `data` is all that goes on it, where it may be repaired.
    pub(super) fn begin(
        &mut self,
        now: Time,
        stream: StreamId,
        (flow, units): (u64, Vec<u64>),
        data: Vec<Bytes>,
    ) {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        self.allowance = (self.allowance + SHARE * bytes as f64).min(MAX_ALLOWANCE);
        self.streams.insert(stream, OnStream { flow, units, data, begun: now });
    }

    /// Answers a request with datagrams of at most `most` bytes, as far as the allowance goes and `send` takes them.
    /// What was written less than a `round_trip` ago may not have been sent.
    fn answer(
        &mut self,
        (now, round_trip): (Time, Duration),
        (stream, ranges): (StreamId, &[Range]),
        most: usize,
        mut send: impl FnMut(Bytes) -> bool,
    ) {
        let Some(on) = self.streams.get(&stream).filter(|on| on.begun + round_trip <= now) else {
            return;
        };
        for Range { from, to } in ranges {
            let mut offset = *from;
            while self.allowance > 0.0 {
                let mut front = Vec::new();
                DatagramHeader::Repair { stream: stream.index(), offset }.write(&mut front);
                let part = on.part(offset, *to, most.saturating_sub(front.len()));
                if part.is_empty() {
                    break;
                }
                offset += part.len() as u64;
                let datagram: Bytes = front.into_iter().chain(part).collect();
                let bytes = datagram.len();
                if !send(datagram) {
                    return;
                }
                self.allowance -= bytes as f64;
                self.repairs_sent += 1;
            }
        }
    }
}

impl Connection {
    /// Asks for what is missing of units whose deadline is near.
    pub(super) fn request_repairs(&mut self, now: Time) {
        // Comparisons of clocks take longer where packets are lost: they are sent again.
        let round_trip = self.round_trip().or_else(|| self.clocks.round_trip());
        let known = round_trip.zip(self.receiving.lifetime);
        let asking = known.map(|(round_trip, lifetime)| Asking {
            round_trip,
            lifetime,
            clocks: &self.clocks,
        });
        let missing = self.receiving.streams.missing(now, asking.as_ref());
        if missing.is_empty() {
            return;
        }
        self.repairs_asked_at = Some(now);
        let mut datagram = Vec::new();
        DatagramHeader::Request(missing).write(&mut datagram);
        // One that cannot be sent now would come too late.
        self.urgent |= self.stack.datagrams().send(datagram.into(), false).is_ok();
    }

    /// The peer asks for what is missing. While more waits than the path takes it gets nothing: what is sent twice
    /// would make that late.
    pub(super) fn repair(&mut self, now: Time, missing: &[Missing]) {
        self.repairs_asked_at = Some(now);
        let is_queued = self.stack.datagrams().send_buffer_space() < MIN_SPACE;
        let Some(most) = self.stack.datagrams().max_size().filter(|_| !is_queued) else { return };
        let Some(round_trip) = self.round_trip().filter(|_| self.sending.has_room(now)) else {
            return;
        };
        let side = self.stack.side();
        for Missing { stream, ranges } in missing {
            let asked = (StreamId::new(side, Dir::Uni, *stream), ranges.as_slice());
            let send = |datagram| self.stack.datagrams().send(datagram, false).is_ok();
            self.sending.unacknowledged.answer((now, round_trip), asked, most, send);
        }
        self.urgent = true;
    }

    /// A repair has come. One that was not asked for, is beyond what was, or has no room in the receive window, which the
    /// stack does not count it in, is discarded.
    pub(super) fn on_repair(
        &mut self,
        now: Time,
        stream: u64,
        offset: u64,
        data: Bytes,
    ) -> Result<(), Violation> {
        let stream = StreamId::new(!self.stack.side(), Dir::Uni, stream);
        let whole = self.config.receive_window();
        let streams = &mut self.receiving.streams;
        let has_room = streams.waiting + data.len() as u64 <= whole;
        let Some(mut incoming) = streams.take(stream) else { return Ok(()) };
        let end = offset.saturating_add(data.len() as u64);
        if has_room && incoming.was_asked() && end <= incoming.bound() {
            self.take_data(now, stream, &mut incoming, (offset, data))?;
            self.receiving.repaired += 1;
        }
        self.receiving.streams.insert(now, stream, incoming);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    fn stream() -> StreamId {
        StreamId::new(noq_proto::Side::Client, Dir::Uni, 5)
    }

    /// A stream of these chunks, begun at 0.
    fn begun(chunks: &[Vec<u8>]) -> Unacknowledged {
        let mut repairs = Unacknowledged::default();
        let data = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect();
        repairs.begin(Time::ZERO, stream(), (0, vec![1]), data);
        repairs.allowance = MAX_ALLOWANCE;
        repairs
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// What is sent for a request at so many ms.
    fn answers(repairs: &mut Unacknowledged, ms: u64, range: Range, most: usize) -> Vec<Bytes> {
        let mut datagrams = Vec::new();
        repairs.answer((at(ms), ROUND_TRIP), (stream(), &[range]), most, |datagram| {
            datagrams.push(datagram);
            true
        });
        datagrams
    }

    proptest! {
        #[test]
        fn what_is_asked_for_is_answered_and_no_more(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3_000), 1..4),
            from in 0u64..9_000, length in 1u64..9_000, is_rest: bool, most in 100usize..1_500,
        ) {
            let whole = chunks.concat();
            let to = (!is_rest).then_some(from + length);
            let end = to.unwrap_or(u64::MAX).min(whole.len() as u64);
            let range = Range { from, to };
            let datagrams = answers(&mut begun(&chunks), 100, range, most);
            let mut next = from;
            for datagram in datagrams {
                prop_assert!(datagram.len() <= most);
                let (header, taken) = DatagramHeader::read(&datagram).expect("a header");
                prop_assert_eq!(header, DatagramHeader::Repair { stream: 5, offset: next });
                let data = &datagram[taken..];
                prop_assert_eq!(data, &whole[next as usize..next as usize + data.len()]);
                next += data.len() as u64;
            }
            prop_assert_eq!(next, end.max(from));
        }
    }

    #[test]
    fn what_may_not_have_been_sent_is_not_repaired_and_an_eighth_of_what_was_written_is() {
        let all = Range { from: 0, to: None };
        let mut repairs = begun(&[vec![7; 40_000]]);
        repairs.allowance = 0.0;
        repairs.begin(Time::ZERO, stream(), (0, vec![1]), vec![vec![7; 40_000].into()]);
        assert!(answers(&mut repairs, 99, all, 1_000).is_empty());
        let sent: usize = (0..50)
            .flat_map(|_| answers(&mut repairs, 100, all, 1_000))
            .map(|datagram| datagram.len())
            .sum();
        assert!((5_000..=6_000).contains(&sent), "{sent}");
    }
}
