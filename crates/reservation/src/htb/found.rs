//! What an interface has already, as `tc` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{BEST_EFFORT, FIRST_CLASS, LAST_CLASS, ROOT, THEIR_ROOT, preference};
use crate::message::{Sender, Session};

/// Bytes before the ports: an IPv4 header without options, an IPv6 header.
const PORTS: [u32; 2] = [20, 40];

/// What packets one u32 filter takes: words at their places, with masks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys {
    v6: bool,
    words: BTreeMap<u32, (u32, u32)>,
}

impl Keys {
    fn add(&mut self, at: u32, value: u32, mask: u32) {
        let word = self.words.entry(at).or_default();
        *word = (word.0 | value & mask, word.1 | mask);
    }

    fn address(&mut self, at: u32, address: IpAddr) {
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

/// The packets of a session's senders; of anybody, where there are none.
pub(super) fn keys(session: &Session, senders: &[Sender]) -> BTreeSet<Keys> {
    match senders {
        [] => [keys_of(session, None)].into(),
        senders => senders.iter().map(|sender| keys_of(session, Some(sender))).collect(),
    }
}

/// As [`matches`](super::matches) says it to `tc`.
fn keys_of(session: &Session, sender: Option<&Sender>) -> Keys {
    let v6 = session.destination.is_ipv6();
    let mut keys = Keys { v6, ..Keys::default() };
    let (source, destination, ports) = if v6 { (8, 24, PORTS[1]) } else { (12, 16, PORTS[0]) };
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

/// A class of ours that was there, with its filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What its filters take; empty where they are not as we leave them.
    pub(super) keys: BTreeSet<Keys>,
    pub(super) preferences: BTreeSet<u32>,
    /// Of its two preferences, the second.
    pub(super) second: bool,
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

/// Reads `tc class show dev D` and `tc filter show dev D`: the classes that are ours.
pub fn read_found(classes: &str, filters: &str) -> BTreeMap<u16, Found> {
    let ours = |name: &str| {
        let minor = u16::from_str_radix(name.strip_prefix("1:")?, 16).ok()?;
        (FIRST_CLASS..=LAST_CLASS).contains(&minor).then_some(minor)
    };
    let names = classes.lines().filter_map(|line| line.strip_prefix("class htb "));
    let mut found: BTreeMap<u16, Found> = names
        .filter_map(|line| ours(line.split(' ').next()?))
        .map(|class| (class, Found::default()))
        .collect();
    let mut current: Option<(u16, Keys)> = None;
    for line in filters.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1))
        };
        if let ["match", key, "at", at] = words[..] {
            if let (Some((_, keys)), Some((at, value, mask))) = (&mut current, word(key, at)) {
                keys.add(at, value, mask);
            }
            continue;
        }
        finish(&mut found, current.take());
        let class = after("flowid").or(after("*flowid")).and_then(|name| ours(name));
        if let Some(class) = class {
            let known = found.entry(class).or_default();
            known.preferences.extend(after("pref").and_then(|pref| pref.parse::<u32>().ok()));
            let v6 = after("protocol").is_some_and(|protocol| *protocol == "ipv6");
            current = Some((class, Keys { v6, ..Keys::default() }));
        }
    }
    finish(&mut found, current);
    for (class, known) in &mut found {
        let only = known.preferences.first().filter(|_| known.preferences.len() == 1);
        match only {
            Some(only) if *only == preference(*class, true) => known.second = true,
            Some(only) if *only == preference(*class, false) => {}
            // Killed while it changed them.
            _ => known.keys.clear(),
        }
    }
    found
}

fn finish(found: &mut BTreeMap<u16, Found>, filter: Option<(u16, Keys)>) {
    if let Some((class, keys)) = filter {
        found.entry(class).or_default().keys.insert(keys);
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

    const CLASSES: &str = "\
class htb 1:1001 parent 1:fff0 prio 7 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b 
class htb 1:1002 parent 1:fff0 prio 7 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b 
class htb 1:fff0 root rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b 
";
    const FILTERS: &str = "\
filter parent 1: protocol ip pref 2 u32 chain 0 
filter parent 1: protocol ip pref 2 u32 chain 0 fh 800: ht divisor 1 
filter parent 1: protocol ip pref 2 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:1001 not_in_hw 
  match 0a000003/ffffffff at 16
  match 0a000002/ffffffff at 12
  match 00110000/00ff0000 at 8
  match 0fa01388/ffffffff at 20
filter parent 1: protocol ipv6 pref 5 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 flowid 1:1002 not_in_hw 
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
        let found = read_found(CLASSES, FILTERS);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0x1001, 0x1002]);
        let session = |destination: &str| Session {
            destination: destination.parse().unwrap(),
            protocol: 17,
            port: 5000,
        };
        let sender = Sender { address: "10.0.0.2".parse().unwrap(), port: 4000 };
        assert_eq!(found[&0x1001].keys, keys(&session("10.0.0.3"), &[sender]));
        assert!(!found[&0x1001].second);
        assert_eq!(found[&0x1002].keys, keys(&session("fd00::1:3"), &[]));
        assert!(found[&0x1002].second);
    }

    #[test]
    fn filters_at_two_preferences_are_not_known_again() {
        let again = FILTERS.replace("pref 2 u32 chain 0 fh 800::800", "pref 9 u32 chain 0");
        let found = read_found(CLASSES, &(FILTERS.to_owned() + &again));
        assert!(found[&0x1001].keys.is_empty());
        assert_eq!(found[&0x1001].preferences, [2, 9].into());
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
