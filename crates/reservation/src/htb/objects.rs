//! Traffic control objects as the kernel reports them (rtnetlink(7), tc(8)).

use core::fmt;

use ontempo_foundation::{Bytes, Rate};

/// A handle of traffic control: `major:minor`. Of a qdisc the minor number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TcHandle {
    /// The number of the qdisc.
    pub major: u16,
    /// The number of the class below the qdisc.
    pub minor: u16,
}

impl fmt::Display for TcHandle {
    /// As `tc` writes it: both numbers hexadecimal, a minor number of 0 left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            0 => write!(f, "{:x}:", self.major),
            minor => write!(f, "{:x}:{minor:x}", self.major),
        }
    }
}

/// A queue discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Its kind: `htb`, `pfifo`, `noqueue`.
    pub kind: String,
    /// Its handle; `0:` where the kernel chose the qdisc.
    pub handle: TcHandle,
    /// It is the root qdisc of the interface.
    pub is_root: bool,
    /// HTB's `default`: the minor number of the class of unclassified packets.
    pub htb_default: Option<u32>,
}

/// A class of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The kind of its qdisc: `htb`.
    pub kind: String,
    /// Its handle.
    pub handle: TcHandle,
    /// Its parent; `ffff:ffff` where it has none.
    pub parent: TcHandle,
    /// It has no parent class.
    pub is_root: bool,
    /// HTB's own rate and burst of it; `None` where it is not HTB's.
    pub rate: Option<(Rate, Bytes)>,
}

/// The handle of a u32 filter: hash table, bucket and node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct U32Handle {
    /// The hash table, 12 bits.
    pub table: u16,
    /// The bucket of the table.
    pub bucket: u8,
    /// The filter in the bucket, 12 bits; 0 for the table itself.
    pub node: u16,
}

impl From<u32> for U32Handle {
    /// From the 32 bits of the kernel (`TC_U32_HTID`, `TC_U32_HASH`, `TC_U32_NODE` of
    /// linux/pkt_cls.h).
    fn from(bits: u32) -> Self {
        Self { table: (bits >> 20) as u16, bucket: (bits >> 12) as u8, node: (bits & 0xfff) as u16 }
    }
}

impl fmt::Display for U32Handle {
    /// As `tc` reads it: `5e1:8c:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}:{:x}", self.table, self.bucket, self.node)
    }
}

/// A u32 filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct U32Filter {
    /// It takes IPv6 packets; otherwise IPv4.
    pub v6: bool,
    /// Its preference (`pref`, `prio`).
    pub preference: u32,
    /// Its handle.
    pub handle: U32Handle,
    /// The class of the packets that match (`flowid`).
    pub class: Option<TcHandle>,
    /// The hash table in which the packets that match are looked up next.
    pub link: Option<U32Handle>,
    /// What must match: offset in the IP header in bytes, value and mask of a 32-bit word.
    pub keys: Vec<(i32, u32, u32)>,
}

/// All traffic control objects of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Its queue disciplines.
    pub qdiscs: Vec<Qdisc>,
    /// Its classes.
    pub classes: Vec<Class>,
    /// The u32 filters of its root qdisc.
    pub filters: Vec<U32Filter>,
}
