//! What an interface has already: its root qdisc, and classes that a daemon before this one left.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Bytes, Rate};

use super::aggregates;
use super::filters::{Filters, Keys, Place, has_control};
use super::layout::{
    BEST_EFFORT, FIRST_CLASS, LAST_CLASS, NEIGHBOURS, NETWORK_CONTROL, ROOT, SIGNALLING, THEIR_ROOT,
};
use super::objects::{Objects, TcHandle};
use super::{Device, Htb};

/// A class of ours that was there, with its filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub(super) present: BTreeMap<Keys, Place>,
    /// Filters of packets that another has already.
    pub(super) more: Vec<Place>,
}

/// The daemon's objects on an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Its reservations.
    pub classes: BTreeMap<u16, Found>,
    /// The tables of filters are there.
    pub tables: bool,
    /// The filters of what goes ahead of best effort are there.
    pub control: bool,
    /// Its aggregates, with their rates and bursts.
    pub aggregates: BTreeMap<u16, (Rate, Bytes)>,
    /// The preferences of the filters that find them.
    pub finds_aggregates: BTreeSet<u32>,
}

/// Who has the interface's root discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// None but the kernel's default.
    Free,
    /// A daemon before this one.
    Ours,
    /// Another program, with an HTB 1: whose class 1:1 is the link; the class 1:2 is best effort.
    Theirs,
    /// Another program, with a qdisc that leaves no place for reservations: its kind and handle.
    Taken(String),
}

/// Who has the interface's root qdisc.
pub fn root_of(objects: &Objects) -> Root {
    let Some(root) = objects.qdiscs.iter().find(|qdisc| qdisc.is_root) else { return Root::Free };
    if root.handle.major == 0 {
        return Root::Free;
    }
    let has = |minor: u16| {
        let handle = TcHandle { major: 1, minor };
        objects.classes.iter().any(|class| class.is_root && class.handle == handle)
    };
    if root.kind == "htb" && root.handle.major == 1 {
        if root.htb_default == Some(u32::from(BEST_EFFORT)) && has(ROOT) {
            return Root::Ours;
        }
        if has(THEIR_ROOT) {
            return Root::Theirs;
        }
    }
    Root::Taken(format!("{} {}", root.kind, root.handle))
}

/// The classes of the daemon's range with their filters, and whether its hash tables are there.
pub fn left_on(objects: &Objects) -> Left {
    let ours = |handle: &TcHandle| {
        let in_range = (FIRST_CLASS..=LAST_CLASS).contains(&handle.minor);
        (handle.major == 1 && in_range).then_some(handle.minor)
    };
    let mut found: BTreeMap<u16, Found> = objects
        .classes
        .iter()
        .filter_map(|class| ours(&class.handle))
        .map(|class| (class, Found::default()))
        .collect();
    for filter in &objects.filters {
        let Some(class) = filter.class.as_ref().and_then(ours) else { continue };
        let mut keys = Keys::of(filter.v6);
        filter.keys.iter().for_each(|(at, value, mask)| keys.add(*at, *value, *mask));
        let (v6, preference, handle) = (filter.v6, filter.preference, filter.handle);
        add(&mut found, class, keys, Place { v6, preference, handle });
    }
    let tables = Filters::are_there(&objects.filters);
    let of_root = objects.classes.iter().filter(|class| class.handle.major == 1);
    let aggregates = of_root.filter(|class| aggregates::is_aggregate(class.handle.minor));
    let aggregates = aggregates.map(|class| (class.handle.minor, class.rate.unwrap_or_default()));
    Left {
        classes: found,
        tables,
        control: has_control(&objects.filters),
        aggregates: aggregates.collect(),
        finds_aggregates: aggregates::preferences(&objects.filters),
    }
}

/// Whether a daemon has set up an interface below another program's root: its fixed classes are there.
/// A class of its range alone may be anybody's.
pub fn is_left_on(objects: &Objects) -> bool {
    let has = |minor: u16| {
        let handle = TcHandle { major: 1, minor };
        objects.classes.iter().any(|class| class.handle == handle)
    };
    [NEIGHBOURS, NETWORK_CONTROL, SIGNALLING].into_iter().all(has)
}

/// The lines that remove what a daemon has left on an interface; none where that is nothing.
pub fn lines_to_end(name: &str, objects: &Objects) -> Vec<String> {
    let (name, rate, none) = (name.to_owned(), Rate::default(), Bytes::ZERO);
    let device = Device { name, rate, reservable: rate, mtu: none, header: none, uncounted: none };
    // No daemon has anything on an interface whose name it refuses.
    let Ok(mut htb) = Htb::new(device) else { return Vec::new() };
    match root_of(objects) {
        Root::Ours => htb.end(),
        Root::Theirs if is_left_on(objects) => {
            let mut left = left_on(objects);
            let finds = core::mem::take(&mut left.finds_aggregates);
            let mut lines: Vec<String> = aggregates::end_filters(htb.name(), &finds).collect();
            let classes = core::mem::take(&mut left.aggregates).into_keys();
            lines.extend(classes.map(|class| htb.remove_class(class)));
            htb = htb.under_theirs();
            // For what is there; nothing is set up.
            let _ = htb.adopt(left);
            lines.extend(htb.end());
            lines
        }
        _ => Vec::new(),
    }
}

fn add(found: &mut BTreeMap<u16, Found>, class: u16, keys: Keys, place: Place) {
    let known = found.entry(class).or_default();
    match known.present.entry(keys) {
        Entry::Vacant(free) => drop(free.insert(place)),
        Entry::Occupied(_) => known.more.push(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::htb::filters::keys;
    use crate::htb::objects::{Class, Qdisc, U32Filter, U32Handle};
    use crate::message::{Sender, Session};

    fn class(minor: u16, is_root: bool) -> Class {
        let none = TcHandle { major: u16::MAX, minor: u16::MAX };
        let parent = if is_root { none } else { TcHandle { major: 1, minor: ROOT } };
        let handle = TcHandle { major: 1, minor };
        Class { kind: "htb".to_owned(), handle, parent, is_root, rate: None }
    }

    fn filter(v6: bool, preference: u32, handle: u32, minor: Option<u16>) -> U32Filter {
        let class = minor.map(|minor| TcHandle { major: 1, minor });
        let handle = U32Handle::from(handle);
        U32Filter { v6, preference, handle, class, link: None, keys: Vec::new() }
    }

    fn objects() -> Objects {
        let mut v4 = filter(false, 4096, 0x5e18_8001, Some(0x1001));
        v4.keys = vec![
            (16, 0x0a00_0003, u32::MAX),
            (12, 0x0a00_0002, u32::MAX),
            (8, 0x0011_0000, 0x00ff_0000),
            (20, 0x0fa0_1388, u32::MAX),
        ];
        let mut link = filter(false, 4096, 0x8000_0800, None);
        link.link = Some(U32Handle::from(0x5e10_0000));
        let mut v6 = filter(true, 4097, 0x5e28_8002, Some(0x1002));
        v6.keys = vec![
            (24, 0xfd00_0000, u32::MAX),
            (28, 0, u32::MAX),
            (32, 0, u32::MAX),
            (36, 0x0001_0003, u32::MAX),
            (4, 0x1100, 0xff00),
            (40, 0x1388, 0xffff),
        ];
        Objects {
            qdiscs: Vec::new(),
            classes: vec![class(0x1001, false), class(0x1002, false), class(ROOT, true)],
            filters: vec![v4, link, v6, filter(false, 1, 0x8020_0800, Some(0x10))],
        }
    }

    #[test]
    fn classes_and_filters_of_a_daemon_before_are_recognised() {
        let mut objects = objects();
        let Left { classes, tables, .. } = left_on(&objects);
        assert!(!tables, "those of IPv6 are missing");
        assert_eq!(classes.keys().copied().collect::<Vec<_>>(), [0x1001, 0x1002]);
        let session = |destination: &str| Session {
            destination: destination.parse().unwrap(),
            protocol: 17,
            port: 5000,
        };
        let sender = Sender { address: "10.0.0.2".parse().unwrap(), port: 4000 };
        let place = classes[&0x1001].present.get(&keys(&session("10.0.0.3"), Some(&sender)));
        assert_eq!(place.map(|place| place.handle.to_string()).as_deref(), Some("5e1:88:1"));
        let place = classes[&0x1002].present.get(&keys(&session("fd00::1:3"), None));
        assert_eq!(place.map(|place| (place.preference, place.v6)), Some((4097, true)));
        // Another filter for the same packets.
        let mut twice = objects.filters[0].clone();
        twice.handle.node = 7;
        objects.filters.push(twice);
        let more = &left_on(&objects).classes[&0x1001].more;
        assert_eq!((more.len(), more[0].handle.to_string().as_str()), (1, "5e1:88:7"));
    }

    #[test]
    fn the_owner_of_the_root_qdisc_is_recognised() {
        let of = |kind: &str, major: u16, default: Option<u32>, classes: Vec<Class>| {
            let handle = TcHandle { major, minor: 0 };
            let root = Qdisc { kind: kind.to_owned(), handle, is_root: true, htb_default: default };
            root_of(&Objects { qdiscs: vec![root], classes, filters: Vec::new() })
        };
        assert_eq!(of("noqueue", 0, None, vec![]), Root::Free);
        assert_eq!(root_of(&Objects::default()), Root::Free);
        assert_eq!(of("htb", 1, Some(0xfff1), objects().classes), Root::Ours);
        assert_eq!(of("htb", 1, Some(2), vec![class(1, true)]), Root::Theirs);
        assert!(matches!(of("htb", 1, Some(2), objects().classes), Root::Taken(_)));
        assert_eq!(of("fq", 0x8001, None, vec![]), Root::Taken("fq 8001:".to_owned()));
    }
}
