//! `ontempo send` and `ontempo receive`: their own code, in virtual time.

use std::sync::Arc;

use ontempo_foundation::Time;
use ontempo_media::ts::PACKET;
use ontempo_media::{Film, RestoredDatagram, Sent};
use ontempo_session::simulated::{self, Stream, StreamOptions};

use super::{End, Ends, HEADERS, Outgoing, Payload};

/// Both programs, from when the flow starts.
pub(crate) struct Ontempo {
    congestion: String,
    film: Arc<Film>,
    stream: Stream,
    /// Bytes of a datagram of the film.
    scratch: Vec<u8>,
}

impl Ontempo {
    /// `congestion` is what the table of flows calls the sender's controller.
    pub(crate) fn new(
        film: Arc<Film>,
        start: Time,
        congestion: String,
        options: StreamOptions,
        seed: u64,
    ) -> Result<Self, simulated::SetupError> {
        let stream = Stream::new(start, options, seed)?;
        Ok(Self { congestion, film, stream, scratch: Vec::new() })
    }

    /// Which transport packets of its datagram a restored one has, a bit each.
    fn packets(&mut self, restored: &RestoredDatagram) -> u64 {
        if restored.is_whole {
            return u64::MAX;
        }
        let Some(sent) = self.film.datagram(restored.datagram) else { return 0 };
        self.scratch.clear();
        self.film.write(&sent, &mut self.scratch);
        let mut there = restored.data.chunks_exact(PACKET).peekable();
        let mut packets = 0;
        for (place, packet) in self.scratch.chunks_exact(PACKET).enumerate() {
            if there.next_if(|next| *next == packet).is_some() {
                packets |= 1 << place;
            }
        }
        packets
    }
}

impl Ends for Ontempo {
    fn push(&mut self, now: Time, _: u64, datagram: &Sent, film: &Film) {
        self.scratch.clear();
        film.write(datagram, &mut self.scratch);
        self.stream.push(now, &self.scratch);
    }

    fn receive(&mut self, now: Time, (end, address): (End, u8), payload: Payload, is_marked: bool) {
        let Payload::Bytes(bytes) = payload else { return };
        let end = match end {
            End::Sender => simulated::End::Sender,
            End::Receiver => simulated::End::Receiver,
        };
        self.stream.receive(now, (end, address), bytes, is_marked);
    }

    fn next_timeout(&self) -> Time {
        self.stream.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.stream.handle_timeout(now);
    }

    fn poll_transmit(&mut self, _: Time) -> Option<(End, Outgoing)> {
        let (end, datagram) = self.stream.poll_transmit()?;
        let end = match end {
            simulated::End::Sender => End::Sender,
            simulated::End::Receiver => End::Receiver,
        };
        let size = datagram.data.len() as u32 + HEADERS;
        let simulated::Datagram { data, is_ecn_capable, to } = datagram;
        Some((end, Outgoing { payload: Payload::Bytes(data), size, is_ecn_capable, to }))
    }

    fn poll_delivery(&mut self, now: Time) -> Option<(u64, u64)> {
        let restored = self.stream.poll_restored(now)?;
        Some((restored.datagram, self.packets(&restored)))
    }

    fn name(&self) -> &'static str {
        "ontempo"
    }

    fn congestion(&self) -> Option<&str> {
        Some(&self.congestion)
    }
}
