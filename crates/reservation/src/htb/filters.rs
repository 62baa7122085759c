//! Classification: u32 filters.
//!
//! Each address family has one preference with a hash table of 256 buckets, by the last byte of the
//! destination port, and a table for sessions without a port. A packet is compared with the few
//! filters of its bucket, and each filter is removed by its own handle.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::layout::{NEIGHBOURS, NETWORK_CONTROL};
use super::objects::{TcHandle, U32Filter, U32Handle};
use crate::message::{Sender, Session};

/// Of IPv4 and IPv6, by their first filter's preference, tables' numbers and the ports' place: an
/// IPv4 header without options, an IPv6 header.
const FAMILIES: [Family; 2] = [
    Family { protocol: "ip", preference: 0x1000, hashed: 0x5e1, plain: 0x5e3, ports: 20 },
    Family { protocol: "ipv6", preference: 0x1001, hashed: 0x5e2, plain: 0x5e4, ports: 40 },
];
/// Filters of one bucket: their numbers have twelve bits, and 0 is none.
const MAX_NODES: u16 = 0xfff;

/// What goes ahead of best effort: protocol, preference, matches, class. Neighbour discovery has a
/// hop limit of 255, which a packet that was forwarded cannot have (RFC 4861 section 3.1), so that
/// only this node's own takes its class. The preferences of IP come after those of reservations, and
/// the last line is the one by which the next daemon sees that all are there.
const CONTROL: [(&str, u32, &str, u16); 6] = [
    ("arp", 0xfff, "match u32 0 0", NEIGHBOURS),
    // ICMPv6 types 132 to 135 and 136, 137: solicitations, advertisements, redirects.
    (
        "ipv6",
        0x1003,
        "match ip6 protocol 58 0xff match u8 255 0xff at 7 match u8 0x84 0xfc at 40",
        NEIGHBOURS,
    ),
    (
        "ipv6",
        0x1003,
        "match ip6 protocol 58 0xff match u8 255 0xff at 7 match u8 0x88 0xfe at 40",
        NEIGHBOURS,
    ),
    ("ipv6", 0x1003, "match u32 0x0c000000 0x0fc00000 at 0", NETWORK_CONTROL),
    // IS-IS: LLC with its service access point (ISO/IEC 10589), with which no IP packet begins.
    ("all", 0x1004, "match u32 0xfefe0300 0xffffff00 at 0", NETWORK_CONTROL),
    // DSCP CS6, network control (RFC 4594 section 3.1): OSPF, BGP, BFD.
    ("ip", 0x1002, "match ip dsfield 0xc0 0xfc", NETWORK_CONTROL),
];

/// The lines for the filters of what goes ahead of best effort.
pub(super) fn control(device: &str) -> impl Iterator<Item = String> {
    CONTROL.iter().map(move |(protocol, preference, matches, class)| {
        format!(
            "filter add dev {device} parent 1: protocol {protocol} prio {preference} u32 {matches} \
             flowid 1:{class:x}"
        )
    })
}

/// The lines that remove them.
pub(super) fn end_control(device: &str) -> impl Iterator<Item = String> {
    let places: BTreeSet<_> =
        CONTROL.iter().map(|(protocol, preference, ..)| (*protocol, *preference)).collect();
    places.into_iter().map(move |(protocol, preference)| {
        format!("filter del dev {device} parent 1: protocol {protocol} prio {preference}")
    })
}

/// Whether they are there.
pub(super) fn has_control(filters: &[U32Filter]) -> bool {
    let class = Some(TcHandle { major: 1, minor: NETWORK_CONTROL });
    filters.iter().any(|filter| !filter.v6 && filter.class == class)
}

struct Family {
    protocol: &'static str,
    preference: u32,
    hashed: u16,
    plain: u16,
    ports: i32,
}

fn family(v6: bool) -> &'static Family {
    &FAMILIES[usize::from(v6)]
}

/// The keys of a filter: by offset in the IP header, a 32-bit word and its mask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Keys {
    v6: bool,
    words: BTreeMap<i32, (u32, u32)>,
}

impl Keys {
    /// All packets of a family.
    pub(super) fn of(v6: bool) -> Self {
        Self { v6, words: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, at: i32, value: u32, mask: u32) {
        let word = self.words.entry(at).or_default();
        *word = (word.0 | value & mask, word.1 | mask);
    }

    fn address(&mut self, at: i32, address: IpAddr) {
        let words = match address {
            IpAddr::V4(address) => vec![address.to_bits()],
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                (0..4).rev().map(|word| (bits >> (32 * word)) as u32).collect()
            }
        };
        for (at, word) in (at..).step_by(4).zip(words) {
            self.add(at, word, u32::MAX);
        }
    }
}

/// The keys of the packets of a session's sender, or of any sender: those that [`matches`] writes.
pub(super) fn keys(session: &Session, sender: Option<&Sender>) -> Keys {
    let v6 = session.destination.is_ipv6();
    let mut keys = Keys::of(v6);
    let (source, destination) = if v6 { (8, 24) } else { (12, 16) };
    let ports = family(v6).ports;
    keys.address(destination, session.destination);
    let protocol = u32::from(session.protocol);
    if v6 {
        keys.add(4, protocol << 8, 0xff00);
    } else {
        keys.add(8, protocol << 16, 0xff_0000);
    }
    if let Some(sender) = sender {
        keys.address(source, sender.address);
    }
    if let Some(sender) = sender.filter(|sender| sender.port > 0) {
        keys.add(ports, u32::from(sender.port) << 16, 0xffff_0000);
    }
    if session.port > 0 {
        keys.add(ports, u32::from(session.port), 0xffff);
    }
    keys
}

/// The packets of a flow, by addresses, protocol and ports.
fn matches(session: &Session, sender: Option<&Sender>) -> String {
    let (family, bits) = match session.destination {
        IpAddr::V4(_) => ("ip", 32),
        IpAddr::V6(_) => ("ip6", 128),
    };
    let mut text = format!(" match {family} dst {}/{bits}", session.destination);
    if let Some(sender) = sender {
        text += &format!(" match {family} src {}/{bits}", sender.address);
    }
    text += &format!(" match {family} protocol {} 0xff", session.protocol);
    if let Some(sender) = sender.filter(|sender| sender.port > 0) {
        text += &format!(" match {family} sport {} 0xffff", sender.port);
    }
    if session.port > 0 {
        text += &format!(" match {family} dport {} 0xffff", session.port);
    }
    text
}

/// Where a filter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) v6: bool,
    pub(super) preference: u32,
    pub(super) handle: U32Handle,
}

impl Place {
    /// The line that removes the filter.
    pub(super) fn remove(&self, device: &str) -> String {
        let Self { v6, preference, handle } = self;
        let protocol = family(*v6).protocol;
        format!(
            "filter del dev {device} parent 1: protocol {protocol} prio {preference} handle \
             {handle} u32"
        )
    }

    /// Its table and bucket, where it is in one of our tables.
    fn bucket(&self) -> Option<(u16, u8)> {
        let known = family(self.v6);
        let U32Handle { table, bucket, .. } = self.handle;
        let ours =
            self.preference == known.preference && (table == known.hashed || table == known.plain);
        ours.then_some((table, bucket))
    }
}

/// The numbers that are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    taken: BTreeMap<(u16, u8), BTreeSet<u16>>,
}

impl Filters {
    /// The lines that make the tables.
    pub(super) fn tables(device: &str) -> impl Iterator<Item = String> {
        FAMILIES.iter().flat_map(move |family| {
            let Family { protocol, preference, hashed, plain, .. } = family;
            [(hashed, 256), (plain, 1)].map(|(table, buckets)| {
                format!(
                    "filter add dev {device} parent 1: protocol {protocol} prio {preference} \
                     handle {table:x}: u32 divisor {buckets}"
                )
            })
        })
    }

    /// The lines for the filters that link to the tables.
    pub(super) fn links(device: &str) -> impl Iterator<Item = String> {
        FAMILIES.iter().flat_map(move |family| {
            let Family { protocol, preference, hashed, plain, ports } = family;
            let add =
                format!("filter add dev {device} parent 1: protocol {protocol} prio {preference}");
            [
                format!(
                    "{add} u32 match u32 0 0 hashkey mask 0x000000ff at {ports} link {hashed:x}:"
                ),
                format!("{add} u32 match u32 0 0 link {plain:x}:"),
            ]
        })
    }

    /// Whether filters lead to all tables.
    pub(super) fn are_there(filters: &[U32Filter]) -> bool {
        let is_linked = |table: u16| {
            filters.iter().filter_map(|filter| filter.link).any(|link| link.table == table)
        };
        FAMILIES.iter().all(|family| is_linked(family.hashed) && is_linked(family.plain))
    }

    /// The lines that remove the tables with all filters in them.
    pub(super) fn end(device: &str) -> impl Iterator<Item = String> {
        FAMILIES.iter().map(move |family| {
            let Family { protocol, preference, .. } = family;
            format!("filter del dev {device} parent 1: protocol {protocol} prio {preference}")
        })
    }

    /// A filter that is there already.
    pub(super) fn note(&mut self, place: &Place) {
        if let Some(bucket) = place.bucket() {
            self.taken.entry(bucket).or_default().insert(place.handle.node);
        }
    }

    /// The line that adds a filter, and its place. In a full bucket its node is beyond 12 bits,
    /// which
    /// `tc` refuses.
    pub(super) fn add(
        &mut self,
        device: &str,
        session: &Session,
        sender: Option<&Sender>,
        class: u16,
    ) -> (Place, String) {
        let v6 = session.destination.is_ipv6();
        let Family { protocol, preference, hashed, plain, .. } = family(v6);
        let [_, last] = session.port.to_be_bytes();
        let table = if session.port == 0 { plain } else { hashed };
        let taken = self.taken.entry((*table, last)).or_default();
        let next = taken.last().map_or(1, |last| last + 1);
        let node = match next {
            next if next <= MAX_NODES => next,
            _ => (1..=MAX_NODES).find(|node| !taken.contains(node)).unwrap_or(MAX_NODES + 1),
        };
        taken.insert(node);
        let handle = U32Handle { table: *table, bucket: last, node };
        let line = format!(
            "filter add dev {device} parent 1: protocol {protocol} prio {preference} handle \
             {handle} u32 ht {table:x}:{last:x}:{} flowid 1:{class:x}",
            matches(session, sender)
        );
        (Place { v6, preference: *preference, handle }, line)
    }

    /// The line that removes a filter.
    pub(super) fn remove(&mut self, device: &str, place: &Place) -> String {
        if let Some(taken) = place.bucket().and_then(|bucket| self.taken.get_mut(&bucket)) {
            taken.remove(&place.handle.node);
        }
        place.remove(device)
    }
}
