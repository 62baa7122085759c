//! RTCP beside RTP: at the source it arrives at a port of its own, and joins the datagrams of the
//! stream in the order of arrival; at the target it leaves to a port of its own.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Time;
use ontempo_udp::{Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket};

use crate::description::{Description, is_description};
use crate::source::{Datagrams, SourceCommand};

/// Maximum bytes of a packet: RTCP does not exceed the path's MTU. Longer ones are ignored.
pub(crate) const MAX_PACKET: usize = 1_500;

/// Packet types of RTCP, which no RTP has (RFC 5761, section 4).
const TYPES: std::ops::RangeInclusive<u8> = 192..=223;

/// True for a packet of RTCP: version 2, and one of its types (RFC 5761, section 4).
pub fn is_rtcp(bytes: &[u8]) -> bool {
    matches!(bytes, [first, kind, _, _, ..] if first >> 6 == 2 && TYPES.contains(kind))
}

/// Hands received packets to the thread that packetizes.
pub(crate) struct Forwarder {
    to: Arc<Driver<Datagrams>>,
}

impl Protocol for Forwarder {
    type Command = ();

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        let is_own = is_description(datagram.data);
        if datagram.data.len() <= MAX_PACKET && is_rtcp(datagram.data) && !is_own {
            let packet = SourceCommand::Datagram(datagram.received, datagram.data.into());
            // While the queue is full packets are lost, as in the socket's buffer.
            let _ = self.to.command(packet);
        }
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, _: Time) {}

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }
}

/// A running source of RTP and RTCP.
pub struct RtpSource {
    // Dropped first: it uses the other.
    _control: Driver<Forwarder>,
    pub(crate) media: Arc<Driver<Datagrams>>,
    clock: Clock,
}

/// How often a description is sent: who comes to a relay later gets it, too, and it may be lost.
const DESCRIBED_EACH: Wall = Wall::from_secs(2);

/// How often it is looked for.
const LOOKED_EACH: Wall = Wall::from_millis(500);

impl RtpSource {
    /// Sends the description that `look` returns beside the packets, again and again, until the source
    /// ends. `look` is called twice a second, in a thread.
    pub(crate) fn describe(
        &self,
        mut look: impl FnMut() -> Option<Description> + Send + 'static,
    ) -> io::Result<()> {
        let (media, clock) = (Arc::downgrade(&self.media), self.clock);
        let work = move || {
            let mut sent: Option<(Instant, Description)> = None;
            loop {
                let found = look();
                let Some(media) = media.upgrade() else { return };
                let is_due = |(at, before): &(Instant, Description)| {
                    at.elapsed() >= DESCRIBED_EACH || found.as_ref() != Some(before)
                };
                if let Some(found) = found.clone().filter(|_| sent.as_ref().is_none_or(is_due)) {
                    let packet = SourceCommand::Datagram(clock.now(), found.to_packet().into());
                    if media.command(packet).is_ok() {
                        sent = Some((Instant::now(), found));
                    }
                }
                drop(media);
                thread::sleep(LOOKED_EACH);
            }
        };
        thread::Builder::new().name("description".to_owned()).spawn(work).map(drop)
    }

    pub(crate) fn spawn(
        (media, control): (Socket, Socket),
        datagrams: Datagrams,
        clock: Clock,
    ) -> io::Result<Self> {
        // One clock: arrivals at both sockets are compared.
        let options = DriverOptions::default();
        let media = Arc::new(Driver::spawn(media, datagrams, clock, options)?);
        let forwarder = Forwarder { to: Arc::clone(&media) };
        let control = Driver::spawn(control, forwarder, clock, options)?;
        Ok(Self { _control: control, media, clock })
    }
}

#[cfg(test)]
mod tests {
    use ontempo_media::rtp;

    use super::*;

    #[test]
    fn a_packet_is_rtcp_or_rtp_and_never_both() {
        for (first, second) in
            (0..=255u8).flat_map(|first| (0..=255u8).map(move |one| (first, one)))
        {
            let bytes = [&[first, second][..], &[0; 100]].concat();
            assert!(!(is_rtcp(&bytes) && rtp::header(&bytes).is_some()), "{first} {second}");
            assert_eq!(is_rtcp(&bytes), first >> 6 == 2 && (192..=223).contains(&second));
        }
        assert!(!is_rtcp(&[0x80, 200, 0]));
    }
}
