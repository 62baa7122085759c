//! The kernel's traffic control objects, by rtnetlink.
//!
//! The text of `tc` is not read, nor its JSON: `tc` of iproute2 6.1 (Debian 12) prints `tc -j -s
//! class show` as text all the same, and in `tc -j filter show` the member `match` of a u32 filter
//! is there once for each key, of which a JSON object keeps one. `tc -j qdisc show` alone is sound.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use netlink_packet_core::{Nla, NlasIterator};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcFilterU32Option, TcHandle as WireHandle, TcMessage, TcOption, TcStats2, TcXstats,
};
use nix::net::if_::if_nametoindex;
use ontempo_foundation::{Bytes, Rate};
use ontempo_reservation::htb::{Class, Counters, Objects, Qdisc, TcHandle, U32Filter, U32Handle};

use crate::netlink::Netlink;

/// In the options of an HTB class: `struct tc_htb_opt`, and its rate in 64 bits (linux/pkt_sched.h).
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_RATE64: u16 = 6;
/// The kernel's tick of times in traffic control, nanoseconds (`PSCHED_SHIFT` of net/pkt_sched.h).
const TICK: u128 = 64;
/// In the options of an HTB qdisc: `struct tc_htb_glob` (linux/pkt_sched.h).
const TCA_HTB_INIT: u16 = 2;
/// Packets in 64 bits, beside the 32 of `TCA_STATS_BASIC` (linux/gen_stats.h).
const TCA_STATS_PKT64: u16 = 8;
/// The EtherTypes of the filters' protocols.
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// All queue disciplines, classes and u32 filters of an interface.
///
/// # Errors
/// A sentence, where the interface is unknown, the kernel refuses, or an object cannot be decoded;
/// with the interface, the object and the attribute.
pub fn objects(interface: &str) -> Result<Objects, String> {
    let index = index_of(interface)?;
    let mut found = Objects::default();
    for (message, kind) in dump(interface, RouteNetlinkMessage::GetQueueDiscipline, index)? {
        found.qdiscs.push(qdisc(&message, kind).map_err(|what| format!("{interface}: {what}"))?);
    }
    for (message, kind) in dump(interface, RouteNetlinkMessage::GetTrafficClass, index)? {
        let is_root = message.header.parent == WireHandle::ROOT;
        let (name, is_htb) = (handle(message.header.handle), kind == "htb");
        let lacks = || {
            format!("{interface}: class {name} of the kernel: TCA_HTB_PARMS is missing or short")
        };
        let rate = is_htb.then(|| htb_rate(&message).ok_or_else(lacks)).transpose()?;
        let parent = handle(message.header.parent);
        found.classes.push(Class { kind, handle: name, parent, is_root, rate });
    }
    for (message, kind) in dump(interface, RouteNetlinkMessage::GetTrafficFilter, index)? {
        if kind == "u32" {
            found.filters.extend(filter(&message));
        }
    }
    Ok(found)
}

/// The numbers of the interfaces whose root is an HTB 1:, as that of the daemon is.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn with_htb() -> Result<BTreeSet<u32>, String> {
    let mut found = BTreeSet::new();
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let failed = |error: io::Error| format!("cannot read traffic control by netlink: {error}");
    let is_ours = WireHandle { major: 1, minor: 0 };
    Netlink::open()
        .map_err(failed)?
        .dump(request, |answer| {
            if let RouteNetlinkMessage::NewQueueDiscipline(message) = answer
                && message.header.parent == WireHandle::ROOT
                && message.header.handle == is_ours
                && kind(&message).as_deref() == Some("htb")
            {
                found.extend(u32::try_from(message.header.index));
            }
        })
        .map_err(failed)?;
    Ok(found)
}

/// The counters of each class of an interface, by its name as `tc` writes it. Takes no rights.
///
/// # Errors
/// As [`objects`]; also where the kernel gives no counter.
pub fn class_counters(interface: &str) -> Result<BTreeMap<String, Counters>, String> {
    let classes = dump(interface, RouteNetlinkMessage::GetTrafficClass, index_of(interface)?)?;
    classes
        .iter()
        .filter(|(_, kind)| kind == "htb")
        .map(|(message, _)| {
            let name = handle(message.header.handle).to_string();
            let counters = counters(message)
                .map_err(|field| format!("{interface}: class {name} of the kernel: {field}"))?;
            Ok((name, counters))
        })
        .collect()
}

fn index_of(interface: &str) -> Result<i32, String> {
    let index = if_nametoindex(interface).map_err(|error| format!("{interface}: {error}"))?;
    i32::try_from(index).map_err(|_| format!("{interface}: the index {index} is out of range"))
}

/// The objects of an interface, with their kinds.
fn dump(
    interface: &str,
    request: fn(TcMessage) -> RouteNetlinkMessage,
    index: i32,
) -> Result<Vec<(TcMessage, String)>, String> {
    let failed = |error: io::Error| {
        format!("{interface}: cannot read its traffic control by netlink: {error}")
    };
    let mut found = Vec::new();
    let request = request(TcMessage::with_index(index));
    Netlink::open()
        .map_err(failed)?
        .dump(request, |answer| {
            let (RouteNetlinkMessage::NewQueueDiscipline(message)
            | RouteNetlinkMessage::NewTrafficClass(message)
            | RouteNetlinkMessage::NewTrafficFilter(message)) = answer
            else {
                return;
            };
            // The kernel answers a request for qdiscs with those of all interfaces.
            if message.header.index == index {
                found.push(message);
            }
        })
        .map_err(failed)?;
    found
        .into_iter()
        .map(|message| match kind(&message) {
            Some(kind) => Ok((message, kind)),
            None => Err(format!("{interface}: netlink gives an object without TCA_KIND")),
        })
        .collect()
}

fn kind(message: &TcMessage) -> Option<String> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    })
}

fn handle(wire: WireHandle) -> TcHandle {
    TcHandle { major: wire.major, minor: wire.minor }
}

fn options(message: &TcMessage) -> impl Iterator<Item = &TcOption> {
    message.attributes.iter().flat_map(|attribute| match attribute {
        TcAttribute::Options(options) => options.as_slice(),
        _ => &[],
    })
}

fn qdisc(message: &TcMessage, kind: String) -> Result<Qdisc, String> {
    let htb_default = if kind == "htb" { Some(htb_default(message)?) } else { None };
    let is_root = message.header.parent == WireHandle::ROOT;
    Ok(Qdisc { kind, handle: handle(message.header.handle), is_root, htb_default })
}

/// The field `defcls`, the third word of `struct tc_htb_glob`.
fn htb_default(message: &TcMessage) -> Result<u32, String> {
    let read = || {
        let TcOption::Other(nested) = options(message).next()? else { return None };
        let bytes = value(nested);
        let mut attributes = NlasIterator::new(bytes.as_slice()).flatten();
        let init = attributes.find(|attribute| attribute.kind() == TCA_HTB_INIT)?;
        word(init.value(), 2)
    };
    read().ok_or_else(|| "the HTB qdisc of the kernel: TCA_HTB_INIT is missing or short".to_owned())
}

/// Rate and burst of an HTB class, from `struct tc_htb_opt`: rate and ceiling of 12 bytes each, whose third
/// word is bytes a second, then the time that the burst takes at the rate.
fn htb_rate(message: &TcMessage) -> Option<(Rate, Bytes)> {
    let TcOption::Other(nested) = options(message).next()? else { return None };
    let bytes = value(nested);
    let of = |kind: u16| {
        let mut attributes = NlasIterator::new(bytes.as_slice()).flatten();
        attributes.find(|attribute| attribute.kind() == kind).map(|found| found.value().to_vec())
    };
    let parameters = of(TCA_HTB_PARMS)?;
    let (rate, ticks) = (word(&parameters, 2)?, word(&parameters, 6)?);
    // Only rates beyond 32 bits have the other attribute.
    let long = of(TCA_HTB_RATE64).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
    let rate = long.unwrap_or(u64::from(rate));
    let burst = u128::from(rate) * u128::from(ticks) * TICK;
    let burst = u64::try_from(burst.div_ceil(1_000_000_000)).unwrap_or(u64::MAX);
    Some((Rate::from_bits_per_sec(rate.saturating_mul(8)), Bytes::new(burst)))
}

/// A filter; none for the entry that stands for a preference or for a hash table.
fn filter(message: &TcMessage) -> Option<U32Filter> {
    let header = &message.header;
    // The upper half of `tcm_info` is the preference, the lower one the EtherType in network order.
    let (preference, ethertype) = (header.info >> 16, u16::from_be(header.info as u16));
    let mut filter = U32Filter {
        v6: ethertype == ETHERTYPE_IPV6,
        preference,
        handle: U32Handle::from(u32::from(header.handle)),
        class: None,
        link: None,
        keys: Vec::new(),
    };
    if filter.handle.node == 0 || ![ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&ethertype) {
        return None;
    }
    for option in options(message) {
        match option {
            TcOption::U32(TcFilterU32Option::ClassId(class)) => filter.class = Some(handle(*class)),
            TcOption::U32(TcFilterU32Option::Link(link)) => {
                filter.link = Some(U32Handle::from(*link));
            }
            TcOption::U32(TcFilterU32Option::Selector(selector)) => {
                filter.keys =
                    selector.keys.iter().map(|key| (key.off, key.val, key.mask)).collect();
            }
            _ => {}
        }
    }
    Some(filter)
}

/// The counters of an HTB class; an error is the attribute that is missing or short.
fn counters(message: &TcMessage) -> Result<Counters, &'static str> {
    let (mut sent, mut sent_64, mut dropped, mut borrowed) = (None, None, None, None);
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Stats2(parts) => {
                for part in parts {
                    match part {
                        TcStats2::Basic(basic) => sent = Some(u64::from(basic.packets)),
                        TcStats2::Queue(queue) => dropped = Some(u64::from(queue.drops)),
                        TcStats2::Other(other) if other.kind() == TCA_STATS_PKT64 => {
                            let bytes = value(other).try_into();
                            sent_64 = Some(bytes.map_err(|_| "TCA_STATS_PKT64 is not 8 bytes")?);
                        }
                        _ => {}
                    }
                }
            }
            // `struct tc_htb_xstats`: lends, borrows.
            TcAttribute::Xstats(TcXstats::Other(bytes)) => {
                borrowed = Some(word(bytes, 1).ok_or("TCA_XSTATS is short")?);
            }
            _ => {}
        }
    }
    Ok(Counters {
        sent: sent_64.map(u64::from_ne_bytes).or(sent).ok_or("TCA_STATS_BASIC is missing")?,
        borrowed: u64::from(borrowed.ok_or("TCA_XSTATS is missing")?),
        dropped: dropped.ok_or("TCA_STATS_QUEUE is missing")?,
    })
}

fn value(attribute: &impl Nla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

/// The word at this place, in the machine's order.
fn word(bytes: &[u8], place: usize) -> Option<u32> {
    let bytes = bytes.get(place * 4..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable, Parseable};

    use super::*;

    /// An attribute with its header, padded.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (4 + value.len()) as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// The class 1:1001 of HTB with these statistics.
    fn class(statistics: &[Vec<u8>]) -> TcMessage {
        let mut header = TcMessage::default().header;
        header.handle = WireHandle { major: 1, minor: 0x1001 };
        let mut bytes = vec![0; header.buffer_len()];
        header.emit(&mut bytes);
        bytes.extend(attribute(1, b"htb\0"));
        bytes.extend(statistics.concat());
        TcMessage::parse(&bytes[..]).expect("a message")
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_counter_that_is_missing_or_short_is_an_error_and_never_zero() {
        let basic = attribute(1, &words(&[240_000, 0, 240, 0]));
        let queue = attribute(3, &words(&[0, 0, 3, 0, 17]));
        let stats = attribute(7, &[basic.clone(), queue.clone()].concat());
        let xstats = attribute(4, &words(&[200, 40, 0, 0, 0]));
        let all = counters(&class(&[stats.clone(), xstats.clone()]));
        assert_eq!(all, Ok(Counters { sent: 240, borrowed: 40, dropped: 3 }));
        assert_eq!(
            counters(&class(std::slice::from_ref(&xstats))),
            Err("TCA_STATS_BASIC is missing")
        );
        assert_eq!(counters(&class(std::slice::from_ref(&stats))), Err("TCA_XSTATS is missing"));
        let short = attribute(4, &words(&[200]));
        assert_eq!(counters(&class(&[stats, short])), Err("TCA_XSTATS is short"));
        let no_queue = attribute(7, &basic);
        assert_eq!(
            counters(&class(&[no_queue, xstats.clone()])),
            Err("TCA_STATS_QUEUE is missing")
        );
        let many = attribute(8, &(1_u64 << 33).to_ne_bytes());
        let stats = attribute(7, &[basic, queue, many].concat());
        assert_eq!(counters(&class(&[stats, xstats])).map(|read| read.sent), Ok(1 << 33));
    }

    #[test]
    fn an_unknown_interface_is_an_error_that_names_it() {
        let error = class_counters("nosuchthing0").unwrap_err();
        assert!(error.starts_with("nosuchthing0: "), "{error}");
    }
}
