//! Enforcement on an interface: reservations as lines for Linux's `tc -batch`.
//!
//! [`Htb`] turns [`ControlRequest`]s into text and runs nothing. A reservation is an HTB class and
//! a u32 filter for each sender, or a part of an [`Aggregate`], which many have; how excess traffic is
//! treated: docs/mechanisms/reservation.md.
//! Classes from 1:1000 on belong to the daemon: it takes over those that a daemon before it left
//! ([`Htb::adopt`]), so that a restart does not interrupt enforcement.

mod aggregates;
mod counters;
mod filters;
mod found;
mod layout;
mod objects;
mod queue;
mod stuck;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Bytes, Rate};

use crate::machine::{ControlRequest, Handle, Reservation};
use crate::message::{Sender, Session};

use aggregates::Aggregates;
pub use aggregates::{Aggregate, Serves};
pub use counters::Counters;
use filters::{Filters, Keys, Place, keys};
pub use found::{Found, Left, Root, is_left_on, left_on, lines_to_end, root_of};
use layout::{
    BEST_EFFORT, FIRST_CLASS, LAST_CLASS, NEIGHBOURS, NETWORK_CONTROL, ROOT, SIGNALLING, THEIR_ROOT,
};
pub use objects::{Class, Objects, Qdisc, TcHandle, U32Filter, U32Handle};
use queue::BestEffortQueue;
pub use queue::QueueKind;
pub use stuck::{Stuck, in_the_way};

/// HTB's priorities: when classes borrow, what keeps the network together comes first, then best
/// effort, then what flows send beyond their reservations.
const FIRST: u8 = 0;
const MIDDLE: u8 = 1;
const LAST: u8 = 7;
/// Packets that may wait in a class: as many as a burst has, and these bounds. What conforms is
/// never dropped, and what does not cannot wait for ever.
const QUEUE: [u64; 2] = [64, 10_000];
/// HTB refuses a rate of zero.
const MIN_RATE: Rate = Rate::from_bits_per_sec(8_000);
/// The classes beside those of reservations, each with [`MIN_RATE`] at least.
const FIXED_CLASSES: u64 = 4;
/// Length of an interface's name (IFNAMSIZ, with its end).
const NAME_LENGTH: usize = 15;

/// SO_PRIORITY of the daemon's messages: HTB then takes the class with this handle before it asks
/// any filter.
pub const SIGNALLING_PRIORITY: u32 = 1 << 16 | SIGNALLING as u32;

/// An interface to enforce on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// The link's rate.
    pub rate: Rate,
    /// What of it may be reserved; the rest is best effort's own.
    pub reservable: Rate,
    /// Its largest IP packet.
    pub mtu: Bytes,
    /// Bytes of a link header that the kernel counts with each packet.
    pub header: Bytes,
    /// Bytes that each packet takes on the link beyond what the kernel counts.
    pub uncounted: Bytes,
}

impl Device {
    /// What of the link can be reserved at most: the fixed classes have the rest.
    ///
    /// Each of the aggregates has as much as one of these, also without a reservation.
    pub fn most_reservable(rate: Rate, aggregates: usize) -> Rate {
        let classes = FIXED_CLASSES + u64::try_from(aggregates).unwrap_or(u64::MAX / 2);
        let fixed = classes.saturating_mul(MIN_RATE.as_bits_per_sec());
        Rate::from_bits_per_sec(rate.as_bits_per_sec().saturating_sub(fixed))
    }

    /// What is left beside so much.
    fn beside(&self, reserved: u64) -> Rate {
        Rate::from_bits_per_sec(self.rate.as_bits_per_sec().saturating_sub(reserved))
    }

    /// Its largest packet as the kernel counts it.
    fn frame(&self) -> Bytes {
        Bytes::new(self.mtu.get() + self.header.get() + self.uncounted.get())
    }
}

/// A name that no interface can have, or that `tc` could read as something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the interface name {:?} must be 1 to {NAME_LENGTH} letters, digits, dots, dashes or \
             underscores, and not begin with a dash",
            self.0
        )
    }
}

impl core::error::Error for BadName {}

/// The traffic control of one interface.
#[derive(Clone, Debug)]
pub struct Htb {
    device: Device,
    /// The discipline was there before us.
    theirs: bool,
    installed: BTreeMap<Handle, Installed>,
    /// Classes that were there whose reservation has not been refreshed yet.
    adopted: BTreeMap<u16, Found>,
    /// Those of them that this daemon has made.
    own: BTreeSet<u16>,
    /// Those classes by the keys of their filters.
    adopted_by: BTreeMap<Keys, u16>,
    /// The state from before a restart is not yet complete.
    recovering: bool,
    /// All classes that are there.
    classes: BTreeSet<u16>,
    /// Those that lines have removed which may not have run.
    leaving: BTreeSet<u16>,
    /// Those that the kernel does not remove.
    stuck: BTreeSet<u16>,
    filters: Filters,
    queue: BestEffortQueue,
    aggregates: Aggregates,
}

#[derive(Clone, Debug)]
struct Installed {
    class: u16,
    rate: Rate,
    burst: Bytes,
    session: Session,
    senders: Vec<Sender>,
    /// What is classified: more than `senders` while state recovers.
    present: BTreeMap<Keys, Place>,
}

impl Htb {
    /// Nothing is reserved yet.
    ///
    /// # Errors
    /// Where the name cannot be an interface's.
    pub fn new(device: Device) -> Result<Self, BadName> {
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let name = &device.name;
        let length = (1..=NAME_LENGTH).contains(&name.len());
        if !length || !name.chars().all(fits) || name.starts_with('-') {
            return Err(BadName(device.name));
        }
        Ok(Self {
            device,
            theirs: false,
            installed: BTreeMap::new(),
            adopted: BTreeMap::new(),
            own: BTreeSet::new(),
            adopted_by: BTreeMap::new(),
            recovering: false,
            classes: BTreeSet::new(),
            leaving: BTreeSet::new(),
            stuck: BTreeSet::new(),
            filters: Filters::default(),
            queue: BestEffortQueue::FqCodel,
            aggregates: Aggregates::default(),
        })
    }

    /// Reservations that one of these takes, the first that does, have its class in place of one of their own. At
    /// most 63, each with a code point of its own.
    #[must_use]
    pub fn with_aggregates(mut self, aggregates: Vec<Aggregate>) -> Self {
        self.aggregates = Aggregates::new(aggregates);
        self
    }

    /// Works under the class 1:1 of another program's root qdisc.
    #[must_use]
    pub fn under_theirs(mut self) -> Self {
        self.theirs = true;
        self
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// The interface.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The lines that set up the interface: root qdisc, the fixed classes, hash tables. The queue
    /// of best effort follows: [`best_effort`](Self::best_effort).
    pub fn begin(&mut self) -> Vec<String> {
        let aggregates = self.all_aggregates("replace");
        let name = &self.device.name;
        let mut lines = Vec::new();
        if !self.theirs {
            let root =
                format!("qdisc replace dev {name} root handle 1: htb default {BEST_EFFORT:x}");
            lines.push(root);
        }
        lines.extend(self.fixed_classes());
        lines.extend(Filters::tables(name));
        lines.extend(Filters::links(name));
        lines.extend(filters::control(name));
        lines.extend(aggregates);
        lines.extend(self.aggregates.filters(name));
        lines
    }

    /// The lines that create the hash tables below another program's root, to run before
    /// [`adopt`](Self::adopt). Each fails where its table exists, which the kernel does not list: a
    /// table outlives the filters that link to it while the device has other u32 filters.
    pub fn tables(&self) -> Vec<String> {
        Filters::tables(&self.device.name).collect()
    }

    /// The classes that stand before any reservation, made or changed. Each has a share of what is
    /// not reservable, and those of control no more than all of it, however much they are sent.
    fn fixed_classes(&self) -> Vec<String> {
        let device = &self.device;
        let (name, root) = (&device.name, self.root());
        let left = device.beside(device.reservable.as_bits_per_sec());
        let spare =
            left.as_bits_per_sec().saturating_sub(FIXED_CLASSES * MIN_RATE.as_bits_per_sec());
        let eighths =
            |count: u64| Rate::from_bits_per_sec(MIN_RATE.as_bits_per_sec() + spare / 8 * count);
        let burst = Bytes::new(device.frame().get() * 2);
        let mut lines = Vec::new();
        if !self.theirs {
            lines = vec![
                format!(
                    "class replace dev {name} parent 1: classid 1:{ROOT:x} {}",
                    self.shape(device.rate, device.rate, burst, FIRST)
                ),
                format!(
                    "class replace dev {name} parent 1:{root:x} classid 1:{BEST_EFFORT:x} {}",
                    self.shape(eighths(3), device.rate, burst, MIDDLE)
                ),
            ];
        }
        for (class, count) in [(NEIGHBOURS, 1), (NETWORK_CONTROL, 2), (SIGNALLING, 2)] {
            lines.push(format!(
                "class replace dev {name} parent 1:{root:x} classid 1:{class:x} {}",
                self.shape(eighths(count), left.max(eighths(count)), burst, FIRST)
            ));
            lines.push(queue::control(name, class));
        }
        lines
    }

    fn root(&self) -> u16 {
        if self.theirs { THEIR_ROOT } else { ROOT }
    }

    /// The lines that give best effort a queue of the kind that is chosen; none where best effort is
    /// another program's.
    pub fn best_effort(&mut self, kind: QueueKind) -> Vec<String> {
        if self.theirs {
            return Vec::new();
        }
        let (queue, line) = BestEffortQueue::new(kind, &self.device, self.reserved());
        self.queue = queue;
        vec![line]
    }

    /// Sum of the rates of all reservations.
    fn reserved(&self) -> u64 {
        let alone: u64 = self.installed.values().map(|known| known.rate.as_bits_per_sec()).sum();
        alone + self.aggregates.reserved()
    }

    /// Takes over the classes and filters that are there, of a daemon before this one or of this one before
    /// the interface was down; returns the lines that set up the rest of the interface.
    pub fn adopt(&mut self, left: Left) -> Vec<String> {
        let Left { classes, tables, control, aggregates, finds_aggregates } = left;
        let mut lines = self.fixed_classes();
        if !tables {
            if !self.theirs {
                lines.extend(Filters::tables(&self.device.name));
            }
            lines.extend(Filters::links(&self.device.name));
        }
        if !control {
            lines.extend(filters::control(&self.device.name));
        }
        lines.extend(self.adopt_aggregates(&aggregates, finds_aggregates));
        self.classes = classes.keys().copied().collect();
        for (class, known) in &classes {
            self.adopted_by.extend(known.present.keys().map(|keys| (keys.clone(), *class)));
            known.present.values().chain(&known.more).for_each(|place| self.filters.note(place));
        }
        self.recovering = !classes.is_empty();
        self.adopted = classes;
        lines
    }

    /// Number of classes taken over whose reservation has not been refreshed yet.
    pub fn adopted(&self) -> usize {
        self.adopted.len()
    }

    /// What was taken over is this daemon's own where the interface had it before it was down.
    pub fn follow(&mut self, before: &Self) {
        let made = before.installed.values().map(|known| known.class);
        let all: BTreeSet<u16> = made.chain(before.own.iter().copied()).collect();
        self.own = self.adopted.keys().copied().filter(|class| all.contains(class)).collect();
        for class in &before.stuck {
            self.stuck.extend(self.adopted.remove(class).map(|_| *class));
        }
    }

    /// Number of classes taken over, and not refreshed yet, that this daemon has made.
    pub fn adopted_own(&self) -> usize {
        self.own.iter().filter(|class| self.adopted.contains_key(class)).count()
    }

    /// Whether anything was taken over that [`purge`](Self::purge) sets right.
    pub fn is_recovering(&self) -> bool {
        self.recovering || self.aggregates.are_recovering()
    }

    /// The class of a reservation, as `tc class show` names it.
    pub fn class_name(&self, handle: Handle) -> Option<String> {
        let alone = self.installed.get(&handle).map(|known| known.class);
        alone.or_else(|| self.aggregates.class_of(handle)).map(|class| format!("1:{class:x}"))
    }

    /// The lines that remove the classes taken over that were not refreshed within the cleanup
    /// timeout.
    pub fn purge(&mut self) -> Vec<String> {
        self.adopted_by.clear();
        self.recovering = false;
        let mut lines = Vec::new();
        for (class, found) in core::mem::take(&mut self.adopted) {
            self.classes.remove(&class);
            for place in found.present.values().chain(&found.more) {
                lines.push(self.filters.remove(&self.device.name, place));
            }
            lines.push(self.leave_class(class));
        }
        let mut installed = core::mem::take(&mut self.installed);
        for known in installed.values_mut() {
            lines.extend(self.classify(known));
        }
        self.installed = installed;
        lines.extend(self.purge_aggregates());
        lines
    }

    /// The lines that remove all classes, filters and the root qdisc, where it is the daemon's.
    pub fn end(&self) -> Vec<String> {
        let name = &self.device.name;
        if !self.theirs {
            return vec![format!("qdisc del dev {name} root")];
        }
        let found = self.adopted.values();
        let found = found.flat_map(|found| found.present.values().chain(&found.more));
        let installed = self.installed.values().flat_map(|known| known.present.values());
        // Tables outlive their preference where another program has u32 filters, too.
        let filters = found.chain(installed).map(|place| place.remove(name));
        let fixed = [NEIGHBOURS, NETWORK_CONTROL, SIGNALLING];
        let aggregates = self.aggregates.classes();
        let classes = self.classes.iter().chain(&fixed).chain(&aggregates);
        let classes = classes.map(|class| self.remove_class(*class));
        let tables = Filters::end(name).chain(filters::end_control(name));
        let tables = tables.chain(self.aggregates.end_filters(name));
        filters.chain(tables).chain(classes).collect()
    }

    /// The lines that give all aggregates their rates and queues again: after a request that failed,
    /// whose other lines may not have run.
    pub fn aggregates_again(&mut self) -> Vec<String> {
        self.aggregates.forget_limits();
        self.all_aggregates("change")
    }

    /// The lines that carry out a request; none for a handle that is not installed.
    pub fn lines(&mut self, request: &ControlRequest) -> Vec<String> {
        let mut lines = self.change(request);
        if !self.theirs && self.queue.kind() == QueueKind::Fifo {
            let reserved = self.reserved();
            lines.extend(self.queue.follow(&self.device, reserved));
        }
        lines
    }

    fn change(&mut self, request: &ControlRequest) -> Vec<String> {
        let (_, handle) = request.place();
        let left = self.aggregates.leave(handle);
        let is_known = left.is_some() || self.installed.contains_key(&handle);
        let joined = match request {
            ControlRequest::Add(_, _, new) => self.aggregates.of(new).zip(Some(new)),
            ControlRequest::Modify(_, _, new) if is_known => self.aggregates.of(new).zip(Some(new)),
            ControlRequest::Modify(..) | ControlRequest::Remove(..) => None,
        };
        if let Some((place, new)) = joined {
            self.aggregates.join(handle, place, new);
        }
        let joined = joined.map(|(place, _)| place);
        // What it joins first, so that it is served all the time.
        let mut lines = joined.map_or_else(Vec::new, |place| self.aggregate("change", place));
        lines.extend(match (left, joined, request) {
            // From an aggregate to a class of its own.
            (Some(_), None, ControlRequest::Modify(_, _, new)) => self.add(handle, new),
            // The other way, or one that stays.
            (_, Some(_), _) => self.remove(handle),
            _ => self.change_alone(request),
        });
        if let Some(left) = left.filter(|left| joined != Some(*left)) {
            lines.extend(self.aggregate("change", left));
        }
        lines
    }

    fn remove(&mut self, handle: Handle) -> Vec<String> {
        let Some(known) = self.installed.remove(&handle) else { return Vec::new() };
        self.classes.remove(&known.class);
        let name = &self.device.name;
        let places = known.present.values();
        let mut lines: Vec<String> = places.map(|place| self.filters.remove(name, place)).collect();
        lines.push(self.leave_class(known.class));
        lines
    }

    fn change_alone(&mut self, request: &ControlRequest) -> Vec<String> {
        match request {
            ControlRequest::Add(_, handle, reservation) => self.add(*handle, reservation),
            ControlRequest::Modify(_, handle, reservation) => {
                let Some(mut known) = self.installed.remove(handle) else { return Vec::new() };
                let mut lines = self.class("change", known.class, reservation);
                known.session = reservation.session;
                (known.rate, known.burst) = (reservation.rate, reservation.burst);
                known.senders.clone_from(&reservation.filters);
                lines.extend(self.classify(&mut known));
                self.installed.insert(*handle, known);
                lines
            }
            ControlRequest::Remove(_, handle) => self.remove(*handle),
        }
    }

    fn add(&mut self, handle: Handle, reservation: &Reservation) -> Vec<String> {
        let (session, senders) = (reservation.session, reservation.filters.clone());
        // Senders are refreshed one by one: the filters of all stay until then.
        let required = keys(&session, senders.first());
        let left = self.adopted_by.get(&required).copied();
        let left = left.and_then(|class| Some((class, self.adopted.remove(&class)?)));
        let (class, present, verb, old) = match left {
            Some((class, Found { present, more })) => {
                for keys in present.keys() {
                    self.adopted_by.remove(keys);
                }
                (class, present, "replace", more)
            }
            None => (self.free_class(handle), BTreeMap::new(), "add", Vec::new()),
        };
        self.classes.insert(class);
        let (rate, burst) = (reservation.rate, reservation.burst);
        let mut known = Installed { class, rate, burst, session, senders, present };
        let mut lines = self.class(verb, class, reservation);
        lines.extend(self.classify(&mut known));
        lines.extend(old.iter().map(|place| self.filters.remove(&self.device.name, place)));
        self.installed.insert(handle, known);
        lines
    }

    /// Adds missing filters, then removes those of former senders; these stay while state recovers.
    fn classify(&mut self, known: &mut Installed) -> Vec<String> {
        let name = &self.device.name;
        let senders: Vec<Option<&Sender>> = match known.senders.as_slice() {
            [] => vec![None],
            senders => senders.iter().map(Some).collect(),
        };
        let mut required = BTreeSet::new();
        let mut lines = Vec::new();
        for sender in senders {
            let keys = keys(&known.session, sender);
            if !known.present.contains_key(&keys) {
                let (place, line) = self.filters.add(name, &known.session, sender, known.class);
                known.present.insert(keys.clone(), place);
                lines.push(line);
            }
            required.insert(keys);
        }
        if !self.recovering {
            known.present.retain(|keys, place| {
                let stays = required.contains(keys);
                if !stays {
                    lines.push(self.filters.remove(name, place));
                }
                stays
            });
        }
        lines
    }

    /// The class of the handle, or another one where it is in use since a restart.
    fn free_class(&self, handle: Handle) -> u16 {
        let own = FIRST_CLASS + handle.0;
        // Fewer than 2^15 are taken, so that one is free.
        core::iter::once(own)
            .chain(FIRST_CLASS + 1..=LAST_CLASS)
            .find(|class| !self.classes.contains(class))
            .unwrap_or(own)
    }

    /// The lines for a class and its queue.
    fn class(&self, verb: &str, class: u16, reservation: &Reservation) -> Vec<String> {
        let name = &self.device.name;
        let [fewest, most] = QUEUE;
        let smallest = u64::from(reservation.flowspec.traffic().smallest.max(1));
        let packets = reservation.burst.get().div_ceil(smallest).clamp(fewest, most);
        vec![
            self.class_line(verb, class, reservation.rate, reservation.burst),
            format!("qdisc replace dev {name} parent 1:{class:x} pfifo limit {packets}"),
        ]
    }

    fn class_line(&self, verb: &str, class: u16, rate: Rate, burst: Bytes) -> String {
        let (name, root) = (&self.device.name, self.root());
        let (rate, burst) = (rate.max(MIN_RATE), burst.max(self.device.frame()));
        let ceiling = self.device.rate.max(rate);
        format!(
            "class {verb} dev {name} parent 1:{root:x} classid 1:{class:x} {}",
            self.shape(rate, ceiling, burst, LAST)
        )
    }

    /// The lines for a link that has changed, none for one that has not; classes and queues stay, with what
    /// waits in them.
    pub fn reshape(&mut self, device: Device) -> Vec<String> {
        if device == self.device {
            return Vec::new();
        }
        self.device = device;
        let mut lines = self.fixed_classes();
        if !self.theirs {
            let kind = self.queue.kind();
            lines.extend(self.best_effort(kind));
        }
        let installed = self.installed.values();
        lines.extend(
            installed.map(|known| self.class_line("change", known.class, known.rate, known.burst)),
        );
        lines.extend(self.all_aggregates("change"));
        lines
    }

    /// A class's own rate, and what it has at most.
    fn shape(&self, rate: Rate, ceiling: Rate, burst: Bytes, priority: u8) -> String {
        let frame = self.device.frame().get();
        let uncounted = match self.device.uncounted.get() {
            0 => String::new(),
            bytes => format!(" overhead {bytes}"),
        };
        format!(
            "htb rate {}bit ceil {}bit burst {}b cburst {}b quantum {frame} prio {priority}{uncounted}",
            rate.as_bits_per_sec(),
            ceiling.as_bits_per_sec(),
            burst.get(),
            frame * 2,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_tc_could_misread_are_refused() {
        let device = |name: &str| Device {
            name: name.to_owned(),
            rate: Rate::from_bits_per_sec(1_500_000),
            reservable: Rate::from_bits_per_sec(1_000_000),
            mtu: Bytes::new(1500),
            header: Bytes::new(14),
            uncounted: Bytes::ZERO,
        };
        for name in ["", "-all", "eth0 root", "a\nqdisc", "averyveryverylongname"] {
            assert!(Htb::new(device(name)).is_err(), "{name:?}");
        }
        assert!(Htb::new(device("ot-1.2_a")).is_ok());
    }
}
