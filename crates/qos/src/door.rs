//! Set-up of flows over UDP at the listening end, without its socket.

use std::net::SocketAddr;

use ontempo_foundation::{Time, host_prefix};
use ontempo_udp::CookieJar;

use super::setup::{Established, SetupError, Verdict};
use super::wire::{MAX_SETUP, Offer, Reason, Setup, WireError};

/// Maximum flows of a listener.
pub(super) const MAX_FLOWS: usize = 1_024;

/// Maximum flows of one host: it leaves places for others.
pub(super) const MAX_FLOWS_OF_HOST: usize = MAX_FLOWS / 4;

/// Peers that ask for a flow, and the flows that they have.
#[derive(Debug)]
pub(super) struct Door<F> {
    jar: CookieJar,
    open: Vec<(SocketAddr, u64, F)>,
}

/// What to do about a datagram.
#[derive(Debug)]
pub(super) enum Asked {
    Nothing,
    /// Send this.
    Answer(Setup),
    /// Send this; the peer is refused.
    Refuse(Setup, SetupError),
    /// Send this and make the flow of this session; then call [`Door::begun`].
    Accept(Setup, u64, Box<Established>),
}

impl<F> Door<F> {
    /// `secret` is the key of cookies, which must be unpredictable.
    pub(super) fn new(secret: u128) -> Self {
        Self { jar: CookieJar::new(secret), open: Vec::new() }
    }

    /// A datagram from `remote`; `is_open` says whether a flow has not ended. Nothing is stored of
    /// a peer that has not proved that it receives at its address, and no answer to it is longer
    /// than what it sent.
    pub(super) fn on_datagram(
        &mut self,
        now: Time,
        own: &Offer,
        (remote, datagram): (SocketAddr, &[u8]),
        is_open: impl Fn(&F) -> bool,
    ) -> Asked {
        let message = match Setup::read(datagram) {
            Ok(message) => message,
            Err(WireError::Version(_)) if datagram.len() >= MAX_SETUP => {
                let (reason, offer) = (Reason::Version, *own);
                return Asked::Answer(Setup::Refuse { session: 0, reason, offer });
            }
            Err(_) => return Asked::Nothing,
        };
        let Setup::Hello { session, cookie, .. } = message else { return Asked::Nothing };
        if !self.jar.knows(now, remote, session, &cookie) {
            let cookie = self.jar.bake(now, remote, session);
            return Asked::Answer(Setup::Challenge { session, cookie });
        }
        self.open.retain(|(_, _, flow)| is_open(flow));
        if self.open.iter().any(|(address, of, _)| (*address, *of) == (remote, session)) {
            return Asked::Nothing;
        }
        let host = host_prefix(remote.ip());
        let of_host = self.open.iter().filter(|(at, ..)| host_prefix(at.ip()) == host).count();
        if self.open.len() >= MAX_FLOWS || of_host >= MAX_FLOWS_OF_HOST {
            let (reason, offer) = (Reason::Busy, *own);
            return Asked::Answer(Setup::Refuse { session, reason, offer });
        }
        match Verdict::on_message(now, own, &message) {
            Verdict::Ignore | Verdict::Return(_) => Asked::Nothing,
            Verdict::Refuse(answer, error) => Asked::Refuse(answer, error),
            Verdict::Accept(answer, established) => Asked::Accept(answer, session, established),
        }
    }

    /// The flow was made.
    pub(super) fn begun(&mut self, remote: SocketAddr, session: u64, flow: F) {
        self.open.push((remote, session, flow));
    }
}

#[cfg(test)]
impl<F> Door<F> {
    /// How many flows there are.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
