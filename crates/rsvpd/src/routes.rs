//! The kernel's interfaces and routes, by netlink (RFC 3549).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use ontempo_reservation::machine::{InterfaceId, NextHop, Routes};

use crate::link_layer::LinkLayer;
use crate::netlink::Netlink;

/// Changes of links, addresses, routes and rules of both families (RTMGRP_ of rtnetlink(7)).
const CHANGES: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// An interface, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    pub(crate) layer: LinkLayer,
    /// Those that others can reach.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Interface {
    /// The same with the addresses that it had before first: neighbours know a node by the first one
    /// of their family, and the kernel lists the newest of IPv6 first.
    pub(crate) fn in_order_of(&self, before: &Self) -> Self {
        let place = |one: &IpAddr| before.addresses.iter().position(|old| old == one);
        let mut addresses = self.addresses.clone();
        // Stable: the new ones come behind, as the kernel has them.
        addresses.sort_by_key(|one| place(one).unwrap_or(usize::MAX));
        Self { addresses, ..self.clone() }
    }

    /// Whether neighbours know it as before: by its number and, of each family that it had, its first
    /// address.
    pub(crate) fn is_hop_of(&self, before: &Self) -> bool {
        let first = |of: &Self, is_v4| {
            of.addresses.iter().copied().find(|one: &IpAddr| one.is_ipv4() == is_v4)
        };
        let stays = |is_v4| first(before, is_v4).is_none_or(|old| first(self, is_v4) == Some(old));
        self.index == before.index && stays(true) && stays(false)
    }
}

/// The kernel's interfaces and routes.
pub(crate) struct Kernel(Netlink);

impl Kernel {
    pub(crate) fn open() -> io::Result<Self> {
        Netlink::open().map(Self)
    }

    /// All interfaces by name.
    pub(crate) fn interfaces(&self) -> io::Result<BTreeMap<String, Interface>> {
        let mut found: BTreeMap<u32, (String, Interface)> = BTreeMap::new();
        self.0.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
            let RouteNetlinkMessage::NewLink(link) = message else { return };
            let index = link.header.index;
            let up = link.header.flags.contains(LinkFlags::Up);
            let (mut name, mut mtu, mut kind) = (String::new(), 0, None);
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(known) => name = known,
                    LinkAttribute::Mtu(known) => mtu = known,
                    LinkAttribute::LinkInfo(infos) => {
                        kind = infos.into_iter().find_map(|info| match info {
                            LinkInfo::Kind(kind) => Some(kind),
                            _ => None,
                        });
                    }
                    _ => {}
                }
            }
            let layer = LinkLayer::of(link.header.link_layer_type, kind.as_ref());
            let interface = Interface { index, mtu, up, layer, addresses: Vec::new() };
            found.insert(index, (name, interface));
        })?;
        self.0.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), |message| {
            let RouteNetlinkMessage::NewAddress(address) = message else { return };
            let reachable =
                !matches!(address.header.scope, AddressScope::Link | AddressScope::Host);
            let known = found.get_mut(&address.header.index).filter(|_| reachable);
            if let (Some((_, interface)), Some(own)) = (known, own(&address)) {
                interface.addresses.push(own);
            }
        })?;
        Ok(found.into_values().collect())
    }

    /// The kind of each interface's root queue discipline, by its number.
    pub(crate) fn disciplines(&self) -> io::Result<BTreeMap<u32, String>> {
        let mut found = BTreeMap::new();
        self.0.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
            let RouteNetlinkMessage::NewLink(link) = message else { return };
            let index = link.header.index;
            found.extend(link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::Qdisc(kind) => Some((index, kind)),
                _ => None,
            }));
        })?;
        Ok(found)
    }

    /// Where packets to `destination` leave.
    fn route(&self, destination: IpAddr) -> io::Result<Option<NextHop>> {
        let mut question = RouteMessage::default();
        let (family, bits) = match destination {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        question.header.address_family = family;
        question.header.destination_prefix_length = bits;
        question.attributes.push(RouteAttribute::Destination(destination.into()));
        let mut found = None;
        self.0.get(RouteNetlinkMessage::GetRoute(question), |message| {
            let RouteNetlinkMessage::NewRoute(route) = message else { return };
            if route.header.kind != RouteType::Unicast {
                return;
            }
            let (mut interface, mut gateway) = (None, destination);
            for attribute in &route.attributes {
                match attribute {
                    RouteAttribute::Oif(index) => interface = Some(InterfaceId(*index)),
                    RouteAttribute::Gateway(RouteAddress::Inet(via)) => gateway = (*via).into(),
                    RouteAttribute::Gateway(RouteAddress::Inet6(via))
                    | RouteAttribute::Via(RouteVia::Inet6(via)) => gateway = (*via).into(),
                    _ => {}
                }
            }
            found = interface.map(|interface| NextHop { interface, gateway });
        })?;
        Ok(found)
    }
}

impl Routes for Kernel {
    /// The source address is not used: the kernel accepts only a local one in a route request, so
    /// that policy routing by source is not followed.
    fn towards(&self, destination: IpAddr, _source: IpAddr) -> Vec<NextHop> {
        // The kernel answers with an error where there is no route.
        self.route(destination).ok().flatten().into_iter().collect()
    }
}

/// The interface's own address: `Local` where the link has two ends.
fn own(message: &AddressMessage) -> Option<IpAddr> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(own) => return Some(*own),
            AddressAttribute::Address(other) => address = Some(*other),
            _ => {}
        }
    }
    address
}

/// Notifications of changed links, addresses, routes and rules.
pub(crate) struct Changes(Socket);

impl Changes {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, CHANGES))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Discards the notifications: all interfaces and routes are read again, so that none is
    /// missed.
    pub(crate) fn drain(&self) {
        let mut room = Vec::with_capacity(65_536);
        loop {
            room.clear();
            match self.0.recv(&mut room, 0) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkLayerType;

    use super::*;

    fn with(addresses: &[&str]) -> Interface {
        let layer = LinkLayer::of(LinkLayerType::Ether, None);
        let addresses = addresses.iter().map(|one| one.parse().expect("an address")).collect();
        Interface { index: 2, mtu: 1_500, up: true, layer, addresses }
    }

    #[test]
    fn an_address_more_or_less_is_no_other_hop_while_the_first_of_each_family_stays() {
        let known = with(&["10.0.0.1", "10.0.0.9", "fd00::1"]);
        for (listed, ordered, is_hop) in [
            // A temporary address of IPv6 is listed first.
            (
                &["10.0.0.1", "10.0.0.9", "fd00::7", "fd00::1"][..],
                &["10.0.0.1", "10.0.0.9", "fd00::1", "fd00::7"][..],
                true,
            ),
            (&["fd00::1", "10.9.9.9", "10.0.0.1"], &["10.0.0.1", "fd00::1", "10.9.9.9"], true),
            (&["10.0.0.9", "fd00::1"], &["10.0.0.9", "fd00::1"], false),
            (&["10.0.0.1"], &["10.0.0.1"], false),
        ] {
            let new = with(listed).in_order_of(&known);
            assert_eq!((&new, new.is_hop_of(&known)), (&with(ordered), is_hop));
        }
        // A family that it did not have is nobody's hop.
        assert!(with(&["fd00::1", "10.0.0.1"]).is_hop_of(&with(&["10.0.0.1"])));
        assert!(!Interface { index: 3, ..known.clone() }.is_hop_of(&known));
    }
}
