//! The handshakes of a listener over byte streams, whatever carries them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Instant;

use ontempo_foundation::{Time, first_of_largest_host};

use super::channel::{Channel, Waiting};
use super::setup::{SetupBytes, Verdict};
use super::wire::{MAX_SETUP, Offer};

/// Handshakes at a time; beyond, one of the host that has the largest number is dropped, its oldest.
pub(super) const MAX_PENDING: usize = 128;

/// Connections in their handshake.
#[derive(Debug)]
pub(super) struct Handshakes<S> {
    /// Oldest first.
    pending: Vec<Pending<S>>,
}

/// A connection in its handshake.
#[derive(Debug)]
struct Pending<S> {
    stream: S,
    remote: SocketAddr,
    bytes: SetupBytes,
    until: Instant,
}

/// A handshake whose message is complete.
#[derive(Debug)]
pub(super) struct Complete<S> {
    pub(super) stream: S,
    pub(super) remote: SocketAddr,
    pub(super) verdict: Verdict,
}

impl<S> Default for Handshakes<S> {
    fn default() -> Self {
        Self { pending: Vec::new() }
    }
}

impl<S: Channel> Handshakes<S> {
    /// Begins the handshake of a connection that was accepted; it is dropped after `until`.
    pub(super) fn begin(&mut self, stream: S, remote: SocketAddr, until: Instant) {
        if self.pending.len() == MAX_PENDING {
            self.give_up_one();
        }
        self.pending.push(Pending { stream, remote, bytes: SetupBytes::default(), until });
    }

    /// Drops the oldest handshake of the host that has the largest number; false if there is none.
    pub(super) fn give_up_one(&mut self) -> bool {
        let one = first_of_largest_host(self.pending.iter().map(|one| one.remote.ip()));
        one.map(|place| self.pending.remove(place)).is_some()
    }

    /// The streams that more may come from.
    pub(super) fn streams(&self) -> impl Iterator<Item = &S> {
        self.pending.iter().map(|one| &one.stream)
    }

    /// When the first handshake times out.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.pending.iter().map(|one| one.until).min()
    }

    /// Reads what has come: the oldest handshake that is complete. Those that have timed out, whose
    /// peers are gone or speak another protocol, are dropped. `time` is that of arrival.
    pub(super) fn next(
        &mut self,
        now: Instant,
        time: impl Fn() -> Time,
        own: &Offer,
    ) -> Option<Complete<S>> {
        let mut place = 0;
        while let Some(one) = self.pending.get_mut(place) {
            match one.progress(&time, own) {
                None if now < one.until => place += 1,
                None | Some(Verdict::Ignore) => drop(self.pending.remove(place)),
                Some(verdict) => {
                    let Pending { stream, remote, .. } = self.pending.remove(place);
                    return Some(Complete { stream, remote, verdict });
                }
            }
        }
        None
    }
}

impl<S: Channel> Pending<S> {
    /// Reads what has come; `None` if the message is not complete.
    fn progress(&mut self, time: impl Fn() -> Time, own: &Offer) -> Option<Verdict> {
        let mut room = [0; MAX_SETUP];
        loop {
            let missing = match self.bytes.missing() {
                Ok(0) => break,
                Ok(missing) => missing,
                Err(error) => return Some(Verdict::on_error(own, error)),
            };
            match self.stream.receive(&mut room[..missing], Waiting::Never) {
                Ok(0) => return Some(Verdict::Ignore),
                Ok(got) => self.bytes.push(&room[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Verdict::Ignore),
            }
        }
        let message = self.bytes.read();
        Some(message.map_or(Verdict::Ignore, |message| Verdict::on_message(time(), own, &message)))
    }
}

#[cfg(test)]
impl<S> Handshakes<S> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}
