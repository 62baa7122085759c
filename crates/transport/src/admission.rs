//! Which connections get a place: before they have presented the token, and after it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::config::Configuration;
use crate::share::Share;

/// Part of [`half_open`](crate::Configuration::half_open) that one source may use: a sixteenth.
const MAX_SHARE: usize = 16;

/// Part of [`half_open`](crate::Configuration::half_open) for clients whose addresses are not
/// validated: an eighth. Beyond it clients must validate them first (Retry).
const MAX_UNVALIDATED: usize = 8;

/// Where packets come from, as far as one host or site can choose ([`host_prefix`]).
///
/// [`host_prefix`]: ontempo_foundation::host_prefix
pub(crate) type Origin = IpAddr;

/// What to do with a client's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A connection is made for it.
    Accept,
    /// The client must validate its address first; nothing is stored (RFC 9000, section 8.1.2).
    Validate,
    /// It is not answered. The client repeats it, and there may be a place by then.
    Ignore,
}

/// Shortest datagram whose packet of an unknown version is answered (RFC 9000, sections 5.2.2 and
/// 14.1): the answer is then shorter.
const MIN_ANSWERED: usize = 1_200;

/// Whether the stack's answer to a datagram of `received` bytes, which belongs to no connection, is
/// sent: it would send Version Negotiation (RFC 9000, section 17.2.1: version 0) for any length.
pub(crate) fn is_answered(received: usize, answer: &[u8]) -> bool {
    let is_long = answer.first().is_some_and(|first| first & 0x80 != 0);
    let is_negotiation = is_long && answer.get(1..5) == Some(&[0; 4]);
    !is_negotiation || received >= MIN_ANSWERED
}

/// An incoming connection that has not presented the token.
#[derive(Clone, Copy, Debug)]
struct Entry {
    origin: Origin,
    /// Its address is validated.
    is_validated: bool,
}

/// Incoming connections that have not presented the token, of all endpoints that share an address.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    all: usize,
    origins: BTreeMap<Origin, usize>,
    unvalidated: usize,
}

impl HalfOpen {
    fn add(&mut self, entry: Entry) {
        self.all += 1;
        *self.origins.entry(entry.origin).or_default() += 1;
        self.unvalidated += usize::from(!entry.is_validated);
    }

    fn remove(&mut self, entry: Entry) {
        self.all -= 1;
        self.unvalidated -= usize::from(!entry.is_validated);
        if let Some(count) = self.origins.get_mut(&entry.origin) {
            *count -= 1;
            if *count == 0 {
                self.origins.remove(&entry.origin);
            }
        }
    }
}

/// Incoming connections of an endpoint that have not presented the token.
#[derive(Debug)]
pub(crate) struct Admission {
    entries: BTreeMap<usize, Entry>,
    share: Share,
}

impl Admission {
    /// None so far.
    pub(crate) fn new(share: Share) -> Self {
        Self { entries: BTreeMap::new(), share }
    }

    /// What to do with a first packet from `origin`, where `most` connections may be half open and
    /// `always` asks for Retry in any case. One to be accepted is counted from now on, until it is
    /// [inserted](Self::insert) and removed, or [withdrawn](Self::withdraw).
    pub(crate) fn decide(
        &self,
        origin: Origin,
        is_validated: bool,
        (most, always): (usize, bool),
    ) -> Decision {
        let mut all = self.share.half_open();
        let part = |part: usize| (most / part).max(1);
        let of_origin = all.origins.get(&origin).copied().unwrap_or(0);
        if !is_validated {
            let is_pressed = all.unvalidated >= part(MAX_UNVALIDATED)
                || of_origin >= part(2 * MAX_SHARE)
                || all.all >= part(2);
            if always || is_pressed {
                return Decision::Validate;
            }
        }
        if of_origin >= part(MAX_SHARE) || all.all >= most {
            return Decision::Ignore;
        }
        all.add(Entry { origin, is_validated });
        Decision::Accept
    }

    /// The connection at `place` was accepted, as [decided](Self::decide).
    pub(crate) fn insert(&mut self, place: usize, origin: Origin, is_validated: bool) {
        self.remove(place);
        self.entries.insert(place, Entry { origin, is_validated });
    }

    /// A connection that was to be accepted could not be.
    pub(crate) fn withdraw(&self, origin: Origin, is_validated: bool) {
        self.share.half_open().remove(Entry { origin, is_validated });
    }

    /// The connection at `place` has proved to receive at its address.
    pub(crate) fn validate(&mut self, place: usize) {
        if let Some(entry) = self.entries.get_mut(&place)
            && !std::mem::replace(&mut entry.is_validated, true)
        {
            self.share.half_open().unvalidated -= 1;
        }
    }

    /// The connection at `place` has presented the token, or nothing of it is held any more.
    pub(crate) fn remove(&mut self, place: usize) {
        if let Some(entry) = self.entries.remove(&place) {
            self.share.half_open().remove(entry);
        }
    }
}

/// The places of connections that were begun here or have presented the token, of all endpoints that
/// share an address. Those without it have no share in them: whoever can send packets could take them all.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: usize,
    /// Those accepted, of each origin.
    origins: BTreeMap<Origin, usize>,
}

impl Places {
    /// Whether one more connection has a place; `origin` is `None` for one begun here.
    pub(crate) fn has(&self, origin: Option<Origin>, config: &Configuration) -> bool {
        let of_origin = origin.and_then(|origin| self.origins.get(&origin)).copied();
        self.taken < config.connections
            && (origin.is_none() || of_origin.unwrap_or(0) < config.connections_of_host)
    }

    /// A connection takes a place.
    pub(crate) fn take(&mut self, origin: Option<Origin>) {
        self.taken += 1;
        if let Some(origin) = origin {
            *self.origins.entry(origin).or_default() += 1;
        }
    }

    /// The place of a connection is free again.
    pub(crate) fn free(&mut self, origin: Option<Origin>) {
        self.taken -= 1;
        let Some(origin) = origin else { return };
        if let Some(count) = self.origins.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.origins.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str) -> Origin {
        ontempo_foundation::host_prefix(address.parse().unwrap())
    }

    #[test]
    fn an_origin_is_an_address_of_ipv4_or_a_site_of_ipv6() {
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
        assert_eq!(origin("10.0.0.1"), origin("::ffff:10.0.0.1"));
        assert_eq!(origin("2001:db8:0:100::1"), origin("2001:db8:0:1ff::2"));
        assert_ne!(origin("2001:db8:0:100::1"), origin("2001:db8:0:200::1"));
    }

    #[test]
    fn one_origin_gets_its_share_and_leaves_the_others() {
        let mut admission = Admission::new(Share::alone());
        let attacker = origin("10.0.0.1");
        let mut place = 0;
        for is_validated in [false, true] {
            for _ in 0..1000 {
                if admission.decide(attacker, is_validated, (512, false)) == Decision::Accept {
                    admission.insert(place, attacker, is_validated);
                    place += 1;
                }
            }
        }
        assert_eq!(place, 512 / 16);
        assert_eq!(admission.decide(attacker, true, (512, false)), Decision::Ignore);
        let other = origin("10.0.0.2");
        assert_eq!(admission.decide(other, false, (512, false)), Decision::Accept);
        admission.withdraw(other, false);
        (0..place).for_each(|place| admission.remove(place));
        assert!(admission.entries.is_empty());
        let all = admission.share.half_open();
        assert!(all.origins.is_empty() && (all.all, all.unvalidated) == (0, 0));
    }

    #[test]
    fn endpoints_that_share_an_address_have_one_limit_of_half_open_connections() {
        let shares = Share::among(std::num::NonZeroU8::new(3).unwrap());
        let mut admissions: Vec<Admission> = shares.into_iter().map(Admission::new).collect();
        let mut accepted = 0;
        for host in 0..10_000u32 {
            let from = Origin::from(std::net::Ipv4Addr::from_bits(host));
            let admission = &mut admissions[host as usize % 3];
            if admission.decide(from, true, (512, false)) == Decision::Accept {
                admission.insert(accepted, from, true);
                accepted += 1;
            }
        }
        assert_eq!(accepted, 512);
        admissions.iter_mut().for_each(|admission| (0..512).for_each(|at| admission.remove(at)));
        assert_eq!(admissions[0].share.half_open().all, 0);
    }

    #[test]
    fn addresses_that_nobody_receives_at_use_an_eighth() {
        let mut admission = Admission::new(Share::alone());
        let mut place = 0;
        for host in 0..10_000u32 {
            let spoofed = Origin::from(std::net::Ipv4Addr::from_bits(host));
            if admission.decide(spoofed, false, (512, false)) == Decision::Accept {
                admission.insert(place, spoofed, false);
                place += 1;
            }
        }
        assert_eq!(place, 64);
        assert_eq!(
            admission.decide(
                Origin::from(std::net::Ipv4Addr::from_bits(1 << 30)),
                false,
                (512, false)
            ),
            Decision::Validate
        );
        assert_eq!(
            admission.decide(
                Origin::from(std::net::Ipv4Addr::from_bits(1 << 30)),
                true,
                (512, false)
            ),
            Decision::Accept
        );
    }
}
