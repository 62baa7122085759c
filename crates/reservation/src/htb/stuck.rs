//! Classes that the kernel does not remove: another program has a class below, or a filter leads to it.

use core::fmt;

use ontempo_foundation::Bytes;

use super::aggregates::is_aggregate;
use super::layout::{BEST_EFFORT, FIRST_CLASS, LAST_CLASS, SIGNALLING};
use super::objects::{Objects, TcHandle};
use super::{Htb, MIN_RATE};

/// A class of ours that the kernel has refused to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The interface's name.
    pub device: String,
    /// The class, as `tc class show` names it.
    pub class: String,
    /// Classes of others below it.
    below: Vec<TcHandle>,
    /// Preferences of others' u32 filters that lead to it.
    led_by: Vec<u32>,
}

impl fmt::Display for Stuck {
    /// A sentence with the class, and what its operator can do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, class, below, led_by } = self;
        write!(f, "{device}: class {class} cannot be removed: ")?;
        match (below.as_slice(), led_by.as_slice()) {
            ([], []) => write!(
                f,
                "a filter of another program leads to it; find and remove that: tc filter show dev {device}"
            )?,
            ([], [one, ..]) => write!(
                f,
                "a filter of another program, of the preference {one}, leads to it; remove that: tc filter show dev {device}"
            )?,
            ([one, more @ ..], _) => {
                write!(f, "class {one} of another program is below it")?;
                if !more.is_empty() {
                    write!(f, ", and {} more", more.len())?;
                }
                write!(f, "; remove that: tc class del dev {device} classid {one}")?;
            }
        }
        write!(f, "; then the daemon removes {class}, which nothing is reserved in")
    }
}

impl Htb {
    /// The line that removes a class, which may fail.
    pub(super) fn leave_class(&mut self, class: u16) -> String {
        self.leaving.insert(class);
        self.remove_class(class)
    }

    pub(super) fn remove_class(&self, class: u16) -> String {
        format!("class del dev {} classid {}", self.device.name, named(class))
    }

    /// Lines have run that [`lines`](Self::lines), [`purge`](Self::purge) or [`adopt`](Self::adopt) gave. Where any has
    /// failed, `found` is what is there now: the classes that are there still, and were not before, are stuck. No
    /// reservation gets one of these.
    pub fn removed(&mut self, found: Option<&Objects>) -> Vec<Stuck> {
        let leaving = core::mem::take(&mut self.leaving);
        let Some(found) = found else { return Vec::new() };
        let all = leaving.into_iter().filter_map(|class| self.stuck_in(class, found));
        let all: Vec<(u16, Stuck)> = all.collect();
        // Another reservation may have it again.
        let mine = |class: &u16| self.installed.values().any(|known| known.class == *class);
        let all: Vec<_> = all.into_iter().filter(|(class, _)| !mine(class)).collect();
        self.stuck.extend(all.iter().map(|(class, _)| *class));
        self.classes.extend(all.iter().map(|(class, _)| *class));
        all.into_iter().map(|(_, stuck)| stuck).collect()
    }

    /// The lines that take from stuck classes what was reserved in them.
    pub fn empty_stuck(&self) -> Vec<String> {
        let line = |class: &u16| self.class_line("change", *class, MIN_RATE, Bytes::ZERO);
        self.stuck.iter().map(line).collect()
    }

    /// The lines that remove stuck classes, to be tried again now and then.
    pub fn retry_stuck(&self) -> Vec<String> {
        self.stuck.iter().map(|class| self.remove_class(*class)).collect()
    }

    /// After these lines have run: the classes that are gone, as `tc` names them.
    pub fn freed(&mut self, found: &Objects) -> Vec<String> {
        let gone = |class: &u16| !found.classes.iter().any(|one| one.handle == named(*class));
        let freed: Vec<u16> = self.stuck.iter().copied().filter(gone).collect();
        for class in &freed {
            self.stuck.remove(class);
            self.classes.remove(class);
        }
        freed.into_iter().map(|class| named(class).to_string()).collect()
    }

    /// Whether any class is stuck.
    pub fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// What of the daemon's is there after the lines of [`end`](Self::end).
    pub fn left_at_end(&self, found: &Objects) -> Vec<Stuck> {
        let own = self.classes.iter().copied().chain(self.aggregates.classes());
        own.filter_map(|class| self.stuck_in(class, found)).map(|(_, stuck)| stuck).collect()
    }

    fn stuck_in(&self, class: u16, found: &Objects) -> Option<(u16, Stuck)> {
        let handle = named(class);
        found.classes.iter().find(|one| one.handle == handle)?;
        let below = found.classes.iter().filter(|one| one.parent == handle);
        let led_by = found.filters.iter().filter(|one| one.class == Some(handle));
        let stuck = Stuck {
            device: self.device.name.clone(),
            class: handle.to_string(),
            below: below.map(|one| one.handle).collect(),
            led_by: led_by.map(|one| one.preference).collect(),
        };
        Some((class, stuck))
    }
}

/// Why lines of ours may have failed on an interface, with what its operator can do: another program has a class below
/// one that must have a queue. `None` where there is none.
pub fn in_the_way(device: &str, found: &Objects) -> Option<String> {
    let is_fixed = |class: u16| (BEST_EFFORT..=SIGNALLING).contains(&class);
    let is_ours = |class: u16| {
        is_fixed(class) || (FIRST_CLASS..=LAST_CLASS).contains(&class) || is_aggregate(class)
    };
    let mut below: Vec<_> = found
        .classes
        .iter()
        .filter(|one| one.parent.major == 1 && is_ours(one.parent.minor))
        .collect();
    // Those of the interface itself hinder all of it.
    below.sort_by_key(|one| (!is_fixed(one.parent.minor), one.handle));
    let one = below.first()?;
    let (class, parent) = (one.handle, one.parent);
    Some(format!(
        "{device}: class {class} of another program is below the daemon's {parent}, which must have none; remove it: tc \
         class del dev {device} classid {class}"
    ))
}

fn named(class: u16) -> TcHandle {
    TcHandle { major: 1, minor: class }
}
