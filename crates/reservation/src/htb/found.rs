//! What an interface has already, as `tc` shows it.

use std::collections::BTreeMap;

use super::filters::{Filters, Keys, Place};
use super::layout::{BEST_EFFORT, FIRST_CLASS, LAST_CLASS, ROOT, THEIR_ROOT};

/// A class of ours that was there, with its filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub(super) present: BTreeMap<Keys, Place>,
    /// Filters of packets that another has already.
    pub(super) more: Vec<Place>,
}

/// What a daemon has left on an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Its reservations.
    pub classes: BTreeMap<u16, Found>,
    /// The tables of filters are there.
    pub tables: bool,
}

/// Who has the interface's root discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// Nobody: it is what the kernel chose.
    Free,
    /// We, from before.
    Ours,
    /// Somebody else, with an HTB 1: whose class 1:1 is the link; the class 1:2 is best effort.
    Theirs,
    /// Somebody else, with what leaves us no place: the line of `tc qdisc show`.
    Taken(String),
}

/// Reads `tc qdisc show dev D` and `tc class show dev D`.
pub fn read_root(disciplines: &str, classes: &str) -> Root {
    let Some(root) = disciplines.lines().find(|line| line.contains(" root ")) else {
        return Root::Free;
    };
    let handle = root.split_whitespace().nth(2).unwrap_or_default();
    if handle == "0:" {
        return Root::Free;
    }
    let has = |class: u16| {
        let head = format!("class htb 1:{class:x} root ");
        classes.lines().any(|line| line.starts_with(&head))
    };
    if root.starts_with("qdisc htb 1: ") {
        if root.contains(&format!("default {BEST_EFFORT:#x} ")) && has(ROOT) {
            return Root::Ours;
        }
        if has(THEIR_ROOT) {
            return Root::Theirs;
        }
    }
    Root::Taken(root.trim().to_owned())
}

/// Reads `tc class show dev D` and `tc filter show dev D`: what is ours.
pub fn read_found(classes: &str, filters: &str) -> Left {
    let ours = |name: &str| {
        let minor = u16::from_str_radix(name.strip_prefix("1:")?, 16).ok()?;
        (FIRST_CLASS..=LAST_CLASS).contains(&minor).then_some(minor)
    };
    let names = classes.lines().filter_map(|line| line.strip_prefix("class htb "));
    let mut found: BTreeMap<u16, Found> = names
        .filter_map(|line| ours(line.split(' ').next()?))
        .map(|class| (class, Found::default()))
        .collect();
    let mut current: Option<(u16, Keys, Place)> = None;
    for line in filters.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["match", key, "at", at] = words[..] {
            if let (Some((_, keys, _)), Some((at, value, mask))) = (&mut current, word(key, at)) {
                keys.add(at, value, mask);
            }
            continue;
        }
        finish(&mut found, current.take());
        let after = |name: &str| {
            words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
        };
        let class = after("flowid").or(after("*flowid")).and_then(ours);
        let preference = after("pref").and_then(|preference| preference.parse().ok());
        if let (Some(class), Some(preference), Some(handle)) = (class, preference, after("fh")) {
            let v6 = after("protocol") == Some("ipv6");
            let place = Place { v6, preference, handle: handle.to_owned() };
            current = Some((class, Keys::of(v6), place));
        }
    }
    finish(&mut found, current);
    Left { classes: found, tables: Filters::are_there(filters) }
}

fn finish(found: &mut BTreeMap<u16, Found>, filter: Option<(u16, Keys, Place)>) {
    let Some((class, keys, place)) = filter else { return };
    let known = found.entry(class).or_default();
    match known.present.entry(keys) {
        std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(place)),
        std::collections::btree_map::Entry::Occupied(_) => known.more.push(place),
    }
}

/// `0a000003/ffffffff` at `16`.
fn word(key: &str, at: &str) -> Option<(u32, u32, u32)> {
    let (value, mask) = key.split_once('/')?;
    let hex = |digits| u32::from_str_radix(digits, 16).ok();
    Some((at.parse().ok()?, hex(value)?, hex(mask)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::htb::filters::keys;
    use crate::message::{Sender, Session};

    const CLASSES: &str = "\
class htb 1:1001 parent 1:fff0 prio 7 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b 
class htb 1:1002 parent 1:fff0 prio 7 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b 
class htb 1:fff0 root rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b 
";
    const FILTERS: &str = "\
filter parent 1: protocol ip pref 4096 u32 chain 0 
filter parent 1: protocol ip pref 4096 u32 chain 0 fh 5e1: ht divisor 256 
filter parent 1: protocol ip pref 4096 u32 chain 0 fh 5e1:88:1 order 1 key ht 5e1 bkt 88 *flowid 1:1001 not_in_hw 
  match 0a000003/ffffffff at 16
  match 0a000002/ffffffff at 12
  match 00110000/00ff0000 at 8
  match 0fa01388/ffffffff at 20
filter parent 1: protocol ip pref 4096 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 link 5e1: not_in_hw 
  match 00000000/00000000 at 0
    hash mask 000000ff at 20 
filter parent 1: protocol ipv6 pref 4097 u32 chain 0 fh 5e2:88:2 order 2 key ht 5e2 bkt 88 flowid 1:1002 not_in_hw 
  match fd000000/ffffffff at 24
  match 00000000/ffffffff at 28
  match 00000000/ffffffff at 32
  match 00010003/ffffffff at 36
  match 00001100/0000ff00 at 4
  match 00001388/0000ffff at 40
filter parent 1: protocol ip pref 1 u32 chain 0 fh 802::800 order 2048 key ht 802 bkt 0 *flowid 1:10 not_in_hw 
  match 00000000/00000000 at 0
";

    #[test]
    fn what_tc_shows_is_known_again() {
        let Left { classes, tables } = read_found(CLASSES, FILTERS);
        assert!(!tables, "those of IPv6 are missing");
        assert_eq!(classes.keys().copied().collect::<Vec<_>>(), [0x1001, 0x1002]);
        let session = |destination: &str| Session {
            destination: destination.parse().unwrap(),
            protocol: 17,
            port: 5000,
        };
        let sender = Sender { address: "10.0.0.2".parse().unwrap(), port: 4000 };
        let place = classes[&0x1001].present.get(&keys(&session("10.0.0.3"), Some(&sender)));
        assert_eq!(place.map(|place| place.handle.as_str()), Some("5e1:88:1"));
        let place = classes[&0x1002].present.get(&keys(&session("fd00::1:3"), None));
        assert_eq!(place.map(|place| (place.preference, place.v6)), Some((4097, true)));
        // Another filter for the same packets.
        let twice = FILTERS.to_owned() + &FILTERS.replace("fh 5e1:88:1 ", "fh 5e1:88:7 ");
        let more = &read_found(CLASSES, &twice).classes[&0x1001].more;
        assert_eq!((more.len(), more[0].handle.as_str()), (1, "5e1:88:7"));
    }

    #[test]
    fn roots_are_told_apart() {
        let of = |root: &str| read_root(root, CLASSES);
        assert_eq!(of("qdisc noqueue 0: root refcnt 2 "), Root::Free);
        assert_eq!(of(""), Root::Free);
        let ours = "qdisc htb 1: root refcnt 2 r2q 10 default 0xfff1 direct_packets_stat 0 ";
        assert_eq!(of(ours), Root::Ours);
        let theirs = "qdisc htb 1: root refcnt 2 r2q 10 default 0x2 direct_packets_stat 0 ";
        let class = "class htb 1:1 root rate 1500Kbit ";
        assert_eq!(read_root(theirs, class), Root::Theirs);
        assert!(matches!(of(theirs), Root::Taken(_)));
        assert!(matches!(of("qdisc fq 8001: root refcnt 2 "), Root::Taken(_)));
    }
}
