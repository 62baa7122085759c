//! What a link adds to each IP packet, and what of it the kernel counts.
//!
//! A queue discipline sees a packet with the header that the device's driver or the kernel has put
//! before it: 14 bytes of Ethernet, none at a tunnel or PPP, whose headers come later. A VLAN's tag,
//! the headers of a tunnel and of PPPoE are on the link and not in that count. HTB adds them by its
//! `overhead` (linux/pkt_sched.h, `struct tc_ratespec`), which cannot be negative.

use netlink_packet_route::link::{InfoKind, LinkLayerType};
use ontempo_foundation::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::written::text;

/// Ethernet: two addresses and a type.
const ETHERNET: u64 = 14;
/// IEEE 802.1Q.
const VLAN_TAG: u64 = 4;
/// PPPoE (RFC 2516): six bytes, and two of PPP, in Ethernet.
const PPPOE: u64 = ETHERNET + 8;
/// Preamble, start, check sequence and gap of Ethernet (IEEE 802.3).
const WIRE: u64 = ETHERNET + 8 + 4 + 12;
const IPV4: u64 = 20;
const IPV6: u64 = 40;
const UDP: u64 = 8;
/// GRE (RFC 2784) without options.
const GRE: u64 = 4;
/// VXLAN (RFC 7348) and Geneve (RFC 8926) without options.
const VXLAN: u64 = 8;
/// WireGuard's header and tag.
const WIREGUARD: u64 = 32;
/// What an operator may write.
const OVERHEAD: &str =
    r#""ethernet", "ethernet-wire", "vlan", "pppoe" or a number of bytes, such as "22 bytes""#;
/// More than any link adds.
const MOST: u64 = 256;

/// Bytes per packet beyond those of IP, as an operator writes them: a name or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overhead(pub(crate) Bytes);

impl<'de> Deserialize<'de> for Overhead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: String = text(deserializer, OVERHEAD)?;
        let bytes = match text.as_str() {
            "ethernet" => ETHERNET,
            "ethernet-wire" => WIRE,
            "vlan" => ETHERNET + VLAN_TAG,
            "pppoe" => PPPOE,
            other => other.parse::<Bytes>().map(Bytes::get).map_err(|error| {
                D::Error::custom(format!("{error}; {OVERHEAD}, is what a packet has beyond IP"))
            })?,
        };
        if bytes > MOST {
            return Err(D::Error::custom(format!("{bytes} bytes must be at most {MOST}")));
        }
        Ok(Self(Bytes::new(bytes)))
    }
}

/// The link of an interface, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkLayer {
    /// What the kernel counts beyond IP.
    pub(crate) header: Bytes,
    /// What the link adds by its kind, unless the operator knows better.
    usual: Bytes,
}

impl LinkLayer {
    pub(crate) fn of(layer: LinkLayerType, kind: Option<&InfoKind>) -> Self {
        let is_ethernet = matches!(layer, LinkLayerType::Ether | LinkLayerType::Loopback);
        let header = if is_ethernet { ETHERNET } else { 0 };
        let usual = match (kind, layer) {
            (Some(InfoKind::Vlan), _) => ETHERNET + VLAN_TAG,
            (Some(InfoKind::GreTun), _) => IPV4 + GRE,
            (Some(InfoKind::GreTun6), _) => IPV6 + GRE,
            (Some(InfoKind::GreTap), _) => ETHERNET + IPV4 + GRE,
            (Some(InfoKind::GreTap6), _) => ETHERNET + IPV6 + GRE,
            (Some(InfoKind::IpIp | InfoKind::SitTun), _) => IPV4,
            (Some(InfoKind::Ip6Tnl), _) => IPV6,
            (Some(InfoKind::Vxlan | InfoKind::Geneve), _) => ETHERNET + IPV4 + UDP + VXLAN,
            // Its peers may have either family.
            (Some(InfoKind::Wireguard), _) => IPV6 + UDP + WIREGUARD,
            (_, LinkLayerType::Ppp) => PPPOE,
            _ => header,
        };
        Self { header: Bytes::new(header), usual: Bytes::new(usual) }
    }

    /// Bytes on the link beyond IP, and those of them that the kernel does not count. What it counts
    /// is on the link.
    pub(crate) fn overhead(&self, written: Option<Overhead>) -> (Bytes, Bytes) {
        let all = written.map_or(self.usual, |Overhead(bytes)| bytes).max(self.header);
        (all, Bytes::new(all.get() - self.header.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_count_is_added_and_no_more() {
        let of = |layer, kind: Option<InfoKind>, written: Option<u64>| {
            let written = written.map(|bytes| Overhead(Bytes::new(bytes)));
            let (all, more) = LinkLayer::of(layer, kind.as_ref()).overhead(written);
            (all.get(), more.get())
        };
        let (ether, none) = (LinkLayerType::Ether, LinkLayerType::None);
        assert_eq!(of(ether, Some(InfoKind::Veth), None), (14, 0));
        assert_eq!(of(ether, None, Some(38)), (38, 24));
        assert_eq!(of(ether, None, Some(0)), (14, 0), "the kernel counts the header all the same");
        assert_eq!(of(ether, Some(InfoKind::Vlan), None), (18, 4));
        assert_eq!(of(LinkLayerType::Ppp, None, None), (22, 22));
        assert_eq!(of(LinkLayerType::Ipgre, Some(InfoKind::GreTun), None), (24, 24));
        assert_eq!(of(none, Some(InfoKind::Wireguard), None), (80, 80));
        assert_eq!(of(none, Some(InfoKind::Tun), Some(28)), (28, 28));
    }
}
