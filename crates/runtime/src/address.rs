//! Addresses: each end of each flow has its own, in both IP versions, so that a packet's two
//! addresses identify its flow. The packets of an emulation and the trace files of a simulation have
//! the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ontempo_foundation::Time;

/// The /64 of all addresses: a unique local one (RFC 4193).
pub const V6_PREFIX: [u8; 8] = [0xfd, 0x6f, 0x6e, 0x74, 0x65, 0x6d, 0x70, 0x6f];

/// The /8 of all addresses.
const V4_PREFIX: u32 = 10 << 24;

/// The first number in use: 10.0.0.0 is the network's address, and 10.0.0.1 has no partner.
const FIRST: u32 = 2;

/// The number of the first router's interface, beyond all flows' ends.
const FIRST_OF_ROUTERS: u32 = 1 << 16;

/// From one of a source's addresses to that after a change: beyond all other numbers.
const CHANGED: u32 = 1 << 17;

/// What has an address: where a flow begins or ends, or a router's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End(u32);

impl End {
    /// Where flow `flow` begins.
    pub fn source(flow: usize) -> Self {
        Self(flow as u32 * 2 + FIRST)
    }

    /// Where flow `flow` ends.
    pub fn sink(flow: usize) -> Self {
        Self(Self::source(flow).0 + 1)
    }

    /// A router's interface to link `link`.
    pub fn router(link: usize) -> Self {
        Self(FIRST_OF_ROUTERS + link as u32)
    }

    /// The same end after its address has changed so often, at most 100 times.
    pub fn changed(self, times: u8) -> Self {
        Self(self.0 % CHANGED + u32::from(times) * CHANGED)
    }

    /// How often the end's address had changed when it got this one.
    pub fn changes(self) -> u8 {
        // Of 24 bits, 7 are left.
        (self.0 / CHANGED) as u8
    }

    /// The end with this address number; `None` if there is none.
    pub fn of_number(number: u32) -> Option<Self> {
        (FIRST..1 << 24).contains(&number).then_some(Self(number))
    }

    /// The end with this IPv4 address; `None` if there is none.
    pub fn of_v4(address: u32) -> Option<Self> {
        if address & 0xff00_0000 == V4_PREFIX { Self::of_number(address & 0xff_ffff) } else { None }
    }

    /// The flow; beyond all flows for a router's interface.
    pub fn flow(self) -> usize {
        ((self.0 - FIRST) / 2) as usize
    }

    /// The other end of the flow.
    pub fn peer(self) -> Self {
        if self.is_sink() { Self(self.0 - 1) } else { Self(self.0 + 1) }
    }

    /// Whether a flow ends there; without meaning for a router's interface.
    pub fn is_sink(self) -> bool {
        self.0 % 2 == 1
    }

    /// Its IPv4 address.
    pub fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from(V4_PREFIX | self.0)
    }

    /// Its IPv6 address.
    pub fn v6(self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&V6_PREFIX);
        octets[12..].copy_from_slice(&self.0.to_be_bytes());
        octets.into()
    }

    /// The address in the version that the run's flows use.
    pub fn ip(self, version: Version) -> IpAddr {
        match version {
            Version::V4 => self.v4().into(),
            Version::V6 => self.v6().into(),
        }
    }
}

/// A version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Version {
    /// Bytes of a header without options.
    pub fn header(self) -> u64 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// When the address of a flow's source changes, in ascending order. An address is named by the number of
/// changes before it.
#[derive(Clone, Debug, Default)]
pub struct AddressChanges(Box<[Time]>);

impl AddressChanges {
    /// Changes at these times.
    pub fn new(changes: &[Time]) -> Self {
        Self(changes.into())
    }

    /// True if the address never changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How often the address has changed by `now`: which address the source has.
    pub fn before(&self, now: Time) -> u8 {
        // A scenario has at most 100.
        u8::try_from(self.0.partition_point(|change| *change <= now)).unwrap_or(u8::MAX)
    }
}
