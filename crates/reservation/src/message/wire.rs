//! Bytes of objects: reading, writing, the Internet checksum, class numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the common header (RFC 2205 section 3.1.1).
pub const HEADER_LENGTH: usize = 8;
/// RSVP's number among IP protocols.
pub const PROTOCOL: u8 = 46;

/// Class numbers (RFC 2205 appendix A, RFC 2747, RFC 2961, RFC 2996).
pub mod class {
    #![allow(missing_docs)] // the RFCs' names
    pub const NULL: u8 = 0;
    pub const SESSION: u8 = 1;
    pub const RSVP_HOP: u8 = 3;
    pub const INTEGRITY: u8 = 4;
    pub const TIME_VALUES: u8 = 5;
    pub const ERROR_SPEC: u8 = 6;
    pub const SCOPE: u8 = 7;
    pub const STYLE: u8 = 8;
    pub const FLOWSPEC: u8 = 9;
    pub const FILTER_SPEC: u8 = 10;
    pub const SENDER_TEMPLATE: u8 = 11;
    pub const SENDER_TSPEC: u8 = 12;
    pub const ADSPEC: u8 = 13;
    pub const POLICY_DATA: u8 = 14;
    pub const RESV_CONFIRM: u8 = 15;
    pub const MESSAGE_ID: u8 = 23;
    pub const MESSAGE_ID_ACK: u8 = 24;
    pub const MESSAGE_ID_LIST: u8 = 25;
    pub const CHALLENGE: u8 = 64;
    pub const DCLASS: u8 = 225;
}

/// Flag of the common header: refresh-reduction capable (RFC 2961 section 2).
pub(super) const REFRESH_REDUCTION: u8 = 0x01;
/// C-Types of addresses: IPv4 and IPv6 (RFC 2205 appendix A).
pub(super) const IPV4: u8 = 1;
pub(super) const IPV6: u8 = 2;
/// C-Type of FLOWSPEC, SENDER_TSPEC and ADSPEC of integrated services (RFC 2210).
pub(super) const INTSERV: u8 = 2;

/// Reads big-endian numbers; `None` past the end.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of zero or more; the rates of RFC 2210 may be infinite.
    pub(super) fn amount(&mut self) -> Option<f32> {
        let value = f32::from_be_bytes(self.array()?);
        // Minus zero would be equal, but not the same bytes.
        (value >= 0.0).then_some(value.abs())
    }

    pub(super) fn address(&mut self, ctype: u8) -> Option<IpAddr> {
        match ctype {
            IPV4 => self.array::<4>().map(|bytes| Ipv4Addr::from(bytes).into()),
            IPV6 => self.array::<16>().map(|bytes| Ipv6Addr::from(bytes).into()),
            _ => None,
        }
    }

    /// `value` if nothing is left to read.
    pub(super) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Writes objects behind each other.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    /// An object whose body `fill` writes; its length is filled in.
    pub(super) fn object(&mut self, class: u8, ctype: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let begins = self.0.len();
        self.0.extend([0, 0, class, ctype]);
        fill(&mut self.0);
        // A length beyond 16 bits is refused with the whole message.
        let length = u16::try_from(self.0.len() - begins).unwrap_or(u16::MAX);
        self.0[begins..begins + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// The C-Type of objects that hold this address.
pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { IPV4 } else { IPV6 }
}

/// Appends an address.
pub(super) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

/// One object as it lies in a message.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub(super) class: u8,
    pub(super) ctype: u8,
    pub(super) body: &'a [u8],
}

/// The Internet checksum (RFC 1071) over `bytes`, of which an odd last one counts as if a zero
/// followed.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
