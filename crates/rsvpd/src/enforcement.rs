//! Reservations as classes and filters of HTB.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_reservation::htb::{
    Device, Htb, QueueKind, Root, Stuck, in_the_way, is_left_on, left_on, lines_to_end, root_of,
};
use ontempo_reservation::machine::{
    ControlError, ControlRequest, Handle, InterfaceId, TrafficControl,
};

use crate::tc::{Refused, batch, batch_all, batch_each};
use crate::traffic_control::objects;

/// All interfaces that are enforced on.
#[derive(Default)]
pub(crate) struct Enforcement {
    devices: BTreeMap<InterfaceId, Htb>,
    /// Those that are down, by name, with what is on them.
    down: BTreeMap<String, Htb>,
    /// Those on which no daemon before this one had anything.
    begun: BTreeSet<InterfaceId>,
    /// Classes that could not be removed, to be logged.
    stuck: Vec<Stuck>,
}

/// Numbers of classes that were taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenOver {
    /// That this daemon has made, before the interface was down or had another address.
    pub(crate) own: usize,
    /// That a daemon before this one has left.
    pub(crate) left: usize,
}

impl Enforcement {
    /// Sets up an interface, or takes over the classes that are there.
    pub(crate) fn attach(&mut self, id: InterfaceId, device: Htb) -> Result<TakenOver, String> {
        let name = device.name().to_owned();
        let found = objects(&name)?;
        let mut device = device;
        let mut is_new = false;
        let lines = match root_of(&found) {
            Root::Free => {
                is_new = true;
                device.begin()
            }
            Root::Ours => device.adopt(left_on(&found)),
            Root::Theirs => {
                is_new = !is_left_on(&found);
                device = device.under_theirs();
                batch_all(&device.tables());
                device.adopt(left_on(&objects(&name)?))
            }
            Root::Taken(what) => {
                return Err(format!(
                    "{name}: its queue discipline is somebody else's ({what}); remove it with: tc \
                     qdisc del dev {name} root, or set enforce = false for interfaces.{name}"
                ));
            }
        };
        // What is no more may be in another program's use, and hinders nothing that is set up.
        let (ended, lines): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| line.starts_with("class del "));
        let done = batch(&lines).map_err(|refused| {
            if let Some(cause) = cause(&name) {
                return cause;
            }
            let lacks = refused.reason.contains("kind is unknown");
            let why = "; this needs a kernel with CONFIG_NET_SCH_HTB";
            format!("{name}: {}{}", refused.reason, if lacks { why } else { "" })
        });
        let done = done.and_then(|()| shorten_queue(&mut device));
        if done.is_err() && is_new {
            batch_all(&device.end());
        }
        done?;
        self.stuck.extend(after_removal(&mut device, batch_all(&ended)));
        if let Some(before) = self.down.remove(&name) {
            device.follow(&before);
        }
        let own = device.adopted_own();
        let taken = TakenOver { own, left: device.adopted() - own };
        if is_new {
            self.begun.insert(id);
        }
        self.devices.insert(id, device);
        Ok(taken)
    }

    /// Ends traffic control where it was set up anew: the daemon does not start, and what was there
    /// before it stays.
    pub(crate) fn end_begun(&mut self) {
        for id in core::mem::take(&mut self.begun) {
            self.remove(id);
        }
    }

    /// Ends that of interfaces that are down and not to be attached again.
    pub(crate) fn end_down(&mut self, is_over: impl Fn(&str) -> bool) {
        self.down.retain(|name, device| {
            let is_over = is_over(name);
            if is_over {
                batch_all(&device.end());
            }
            !is_over
        });
    }

    /// The interface is down, or is to be attached anew; what is on it is then taken over.
    pub(crate) fn detach(&mut self, id: InterfaceId) {
        if let Some(device) = self.devices.remove(&id) {
            self.down.insert(device.name().to_owned(), device);
        }
    }

    /// Whether there is traffic control of the daemon on an interface.
    pub(crate) fn is_on(&self, id: InterfaceId) -> bool {
        self.devices.contains_key(&id)
    }

    /// Another program has removed what is on an interface.
    pub(crate) fn forget(&mut self, id: InterfaceId) {
        self.devices.remove(&id);
    }

    /// The interface has another rate or other headers; its classes stay.
    pub(crate) fn reshape(&mut self, id: InterfaceId, to: Device) -> Result<(), String> {
        let Some(device) = self.devices.get_mut(&id) else { return Ok(()) };
        let lines = device.reshape(to);
        // What one line cannot change keeps no other from it.
        batch_each(&lines).map_err(|refused| {
            cause(device.name()).unwrap_or_else(|| format!("{}: {}", device.name(), refused.reason))
        })
    }

    /// Ends the traffic control of an interface.
    pub(crate) fn remove(&mut self, id: InterfaceId) {
        if let Some(device) = self.devices.remove(&id) {
            batch_all(&device.end());
        }
    }

    /// Removes classes taken over on an interface that were not refreshed in time; returns their
    /// number.
    pub(crate) fn purge(&mut self, id: InterfaceId) -> usize {
        let Some(device) = self.devices.get_mut(&id) else { return 0 };
        let purged = device.adopted();
        let lines = device.purge();
        let stuck = after_removal(device, batch_all(&lines));
        let removed = purged.saturating_sub(stuck.len());
        self.stuck.extend(stuck);
        removed
    }

    /// The classes that could not be removed since this was asked last.
    pub(crate) fn take_stuck(&mut self) -> Vec<Stuck> {
        core::mem::take(&mut self.stuck)
    }

    /// Whether any class waits for another program to be removed.
    pub(crate) fn is_stuck(&self) -> bool {
        self.devices.values().any(Htb::is_stuck)
    }

    /// Tries again to remove these: the interface and the class of those that are gone.
    pub(crate) fn retry_stuck(&mut self) -> Vec<(String, String)> {
        let mut freed = Vec::new();
        for device in self.devices.values_mut().filter(|device| device.is_stuck()) {
            batch_all(&device.retry_stuck());
            let Ok(found) = objects(device.name()) else { continue };
            let name = device.name().to_owned();
            freed.extend(device.freed(&found).into_iter().map(|class| (name.clone(), class)));
        }
        freed
    }

    /// Number of classes taken over on an interface that were not refreshed yet.
    pub(crate) fn adopted(&self, id: InterfaceId) -> usize {
        self.devices.get(&id).map_or(0, Htb::adopted)
    }

    /// Whether anything of a daemon before this one was taken over, to be [purged](Self::purge).
    pub(crate) fn is_recovering(&self, id: InterfaceId) -> bool {
        self.devices.get(&id).is_some_and(Htb::is_recovering)
    }

    /// A reservation's class, as `tc` names it.
    pub(crate) fn class_name(&self, id: InterfaceId, handle: Handle) -> String {
        self.devices.get(&id).and_then(|device| device.class_name(handle)).unwrap_or_default()
    }

    /// Removes the traffic control of all interfaces; what could not be removed is to be logged.
    pub(crate) fn end(&mut self) {
        let Self { devices, down, .. } = core::mem::take(self);
        for device in devices.values().chain(down.values()) {
            if !batch_all(&device.end())
                && let Ok(found) = objects(device.name())
            {
                self.stuck.extend(device.left_at_end(&found));
            }
        }
    }
}

/// After lines that remove classes have run, `all` of them with success: those that are stuck.
fn after_removal(device: &mut Htb, all: bool) -> Vec<Stuck> {
    if all {
        return device.removed(None);
    }
    let Ok(found) = objects(device.name()) else { return Vec::new() };
    let stuck = device.removed(Some(&found));
    if !stuck.is_empty() {
        batch_all(&device.empty_stuck());
    }
    stuck
}

/// Ends what a daemon has left on an interface that is not enforced on; false where that is nothing.
pub(crate) fn end_left(name: &str) -> Result<bool, String> {
    let lines = lines_to_end(name, &objects(name)?);
    if !lines.is_empty() {
        batch_all(&lines);
    }
    Ok(!lines.is_empty())
}

/// Gives best effort FQ-CoDel, or a FIFO where the kernel has none.
fn shorten_queue(device: &mut Htb) -> Result<(), String> {
    let lines = device.best_effort(QueueKind::FqCodel);
    if lines.is_empty() || batch(&lines).is_ok() {
        return Ok(());
    }
    let lines = device.best_effort(QueueKind::Fifo);
    batch(&lines).map_err(|refused| {
        cause(device.name()).unwrap_or_else(|| format!("{}: {}", device.name(), refused.reason))
    })
}

/// What is in the way on an interface, where that is another program's.
fn cause(name: &str) -> Option<String> {
    in_the_way(name, &objects(name).ok()?)
}

impl TrafficControl for Enforcement {
    fn apply(&mut self, requests: &[ControlRequest]) -> Vec<(usize, ControlError)> {
        let mut failed = Vec::new();
        let mut lines = Vec::new();
        // Of each line, the request that it belongs to.
        let mut owners = Vec::new();
        for (place, request) in requests.iter().enumerate() {
            let (interface, _) = request.place();
            let Some(device) = self.devices.get_mut(&interface) else { continue };
            let more = device.lines(request);
            owners.extend(more.iter().map(|_| place));
            lines.extend(more);
        }
        let mut concerned = BTreeSet::new();
        while !lines.is_empty() {
            let Err(Refused { line, reason }) = batch(&lines) else { break };
            let at = line.unwrap_or(0).min(lines.len() - 1);
            let owner = owners[at];
            lines.drain(..=at);
            owners.drain(..=at);
            let request = &requests[owner];
            concerned.insert(request.place().0);
            // What is not there need not be removed; the rest of it may be.
            if matches!(request, ControlRequest::Remove(..)) {
                continue;
            }
            // The rest of what failed is of no use, nor what changes it later.
            let (changed, ended) = later(requests, owner);
            let mut is_of_use =
                owners.iter().map(|other| *other != owner && !changed.contains(other));
            lines.retain(|_| is_of_use.next().unwrap_or(false));
            owners.retain(|other| *other != owner && !changed.contains(other));
            // Its end is among the lines, before its handle is another one's.
            if !ended {
                failed.push((owner, ControlError { value: 0, reason }));
                self.undo(request);
            }
        }
        // The lines of an aggregate state its sum: with what has failed since, or not at all where
        // they were passed over.
        let all: BTreeSet<_> = requests.iter().map(|request| request.place().0).collect();
        for interface in all {
            let Some(device) = self.devices.get_mut(&interface) else { continue };
            let is_concerned = concerned.contains(&interface);
            if is_concerned {
                batch_all(&device.aggregates_again());
            }
            self.stuck.extend(after_removal(device, !is_concerned));
        }
        failed
    }
}

/// The requests that change the reservation of a request later, and whether one ends it.
fn later(requests: &[ControlRequest], of: usize) -> (BTreeSet<usize>, bool) {
    let place = requests[of].place();
    let mut changed = BTreeSet::new();
    for (number, request) in requests.iter().enumerate().skip(of + 1) {
        match request {
            _ if request.place() != place => {}
            ControlRequest::Remove(..) => return (changed, true),
            _ => {
                changed.insert(number);
            }
        }
    }
    (changed, false)
}

impl Enforcement {
    /// Undoes the part of a failed request that succeeded.
    fn undo(&mut self, request: &ControlRequest) {
        let (interface, handle) = request.place();
        if let Some(device) = self.devices.get_mut(&interface) {
            batch_all(&device.lines(&ControlRequest::Remove(interface, handle)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};
    use ontempo_foundation::{Bytes, Rate};
    use ontempo_reservation::htb::Objects;
    use ontempo_reservation::machine::Reservation;
    use ontempo_reservation::message::{FlowSpec, Session, TrafficSpec};

    use super::*;

    const BY: InterfaceId = InterfaceId(0);

    fn reservation(port: u16) -> Reservation {
        let traffic = TrafficSpec {
            rate: 12_500.0,
            burst: 3_000.0,
            peak: f32::INFINITY,
            smallest: 64,
            largest: 1_500,
        };
        let destination: IpAddr = [10, 0, 1, 2].into();
        Reservation {
            session: Session { destination, protocol: 17, port },
            filters: Vec::new(),
            flowspec: FlowSpec::ControlledLoad(traffic),
            rate: Rate::from_bits_per_sec(100_000),
            burst: Bytes::new(3_000),
        }
    }

    /// With an interface `d0` of a new namespace; not where this machine gives none.
    fn enforcing(work: impl FnOnce(Enforcement, fn() -> Htb) + Send) {
        if !ontempo_testing::require_programs(&["ip", "tc"]) {
            return;
        }
        let work = || {
            let has_interface = unshare(CloneFlags::CLONE_NEWNET).is_ok()
                && run("ip tuntap add d0 mode tun && ip link set d0 up");
            if !has_interface {
                return ontempo_testing::record_skip("no namespace of its own");
            }
            let mut enforcement = Enforcement::default();
            enforcement.attach(BY, device()).expect("it is free");
            work(enforcement, device);
        };
        // A namespace belongs to a thread; its name tells which test a skip is of.
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
            thread.expect("a thread").join().expect("no panic");
        });
    }

    fn device() -> Htb {
        let rate = Rate::from_bits_per_sec(1_500_000);
        let (name, mtu, none) = ("d0".to_owned(), Bytes::new(1_500), Bytes::ZERO);
        let reservable = Rate::from_bits_per_sec(1_000_000);
        let device = Device { name, rate, reservable, mtu, header: none, uncounted: none };
        Htb::new(device).expect("d0 is a name")
    }

    fn run(script: &str) -> bool {
        Command::new("sh").args(["-c", script]).status().is_ok_and(|status| status.success())
    }

    /// Classes of reservations, and filters that lead to them.
    fn there(found: &Objects) -> (Vec<String>, usize) {
        let is_ours = |minor: u16| (0x1001..0x1100).contains(&minor);
        let classes = found.classes.iter().filter(|class| is_ours(class.handle.minor));
        let mut classes: Vec<String> = classes.map(|class| class.handle.to_string()).collect();
        classes.sort();
        let leads = found.filters.iter().filter_map(|filter| filter.class);
        (classes, leads.filter(|class| is_ours(class.minor)).count())
    }

    #[test]
    fn after_a_flap_the_daemons_own_classes_are_told_from_those_that_were_left_to_it() {
        enforcing(|mut enforcement, device| {
            let add = |handle, port| ControlRequest::Add(BY, Handle(handle), reservation(port));
            assert_eq!(enforcement.apply(&[add(1, 9), add(2, 10)]), []);
            // The daemon ends, and the next one has the first of both refreshed before the link flaps.
            let mut enforcement = Enforcement::default();
            let taken = |enforcement: &mut Enforcement| {
                let TakenOver { own, left } = enforcement.attach(BY, device()).expect("it is ours");
                (own, left)
            };
            assert_eq!(taken(&mut enforcement), (0, 2));
            assert_eq!(enforcement.apply(&[add(1, 9), add(3, 11)]), []);
            enforcement.detach(BY);
            assert_eq!(taken(&mut enforcement), (2, 1));
            // Also the second time, though nothing has been refreshed in between.
            enforcement.detach(BY);
            assert_eq!(taken(&mut enforcement), (2, 1));
            assert_eq!((enforcement.adopted(BY), enforcement.purge(BY)), (3, 3));
        });
    }

    #[test]
    fn a_class_that_another_program_keeps_is_reported_once_and_no_reservation_gets_it_until_it_is_gone()
     {
        for (keep, advice, end) in [
            (
                "tc class add dev d0 parent 1:1001 classid 1:77 htb rate 8kbit",
                "class 1:77 of another program is below it; remove that: tc class del dev d0 classid 1:77;",
                "tc class del dev d0 classid 1:77",
            ),
            (
                "tc filter add dev d0 parent 1: protocol ip prio 7 u32 match ip dst 1.2.3.4 flowid 1:1001",
                "a filter of another program, of the preference 7, leads to it",
                "tc filter del dev d0 parent 1: protocol ip prio 7",
            ),
        ] {
            enforcing(|mut enforcement, device| {
                let add = |handle, port| ControlRequest::Add(BY, Handle(handle), reservation(port));
                let remove = |handle| ControlRequest::Remove(BY, Handle(handle));
                let classes = || there(&objects("d0").expect("it is there")).0;
                assert_eq!(enforcement.apply(&[add(1, 9)]), []);
                assert!(run(keep));
                assert_eq!(enforcement.apply(&[remove(1)]), []);
                let reported = |enforcement: &mut Enforcement| {
                    let all = enforcement.take_stuck();
                    all.iter().map(ToString::to_string).collect::<Vec<_>>()
                };
                let said = reported(&mut enforcement);
                let begin = format!("d0: class 1:1001 cannot be removed: {advice}");
                assert!(said.len() == 1 && said[0].starts_with(&begin), "{said:?}");
                let shown = |of: &str| run(&format!("tc class show dev d0 | grep -q '{of}'"));
                assert!(shown("1:1001 .*rate 8Kbit"), "what was reserved in it is free again");
                // The next with its handle has another class, also after the link was down.
                assert_eq!(enforcement.apply(&[add(1, 10)]), []);
                assert_eq!(enforcement.class_name(BY, Handle(1)), "1:1002");
                assert_eq!(enforcement.apply(&[remove(1)]), []);
                enforcement.detach(BY);
                let taken = enforcement.attach(BY, device()).expect("it is ours");
                assert_eq!((taken.own, taken.left), (0, 0));
                assert_eq!(enforcement.apply(&[add(1, 10)]), []);
                assert_eq!(classes(), ["1:1001", "1:1002"]);
                assert_eq!(enforcement.retry_stuck(), []);
                assert!(enforcement.is_stuck() && reported(&mut enforcement).is_empty());
                assert!(run(end));
                let freed = ("d0".to_owned(), "1:1001".to_owned());
                assert_eq!(enforcement.retry_stuck(), [freed]);
                assert!(!enforcement.is_stuck());
                assert_eq!(classes(), ["1:1002"]);
                assert_eq!(enforcement.apply(&[add(2, 11), remove(1), remove(2)]), []);
                assert_eq!((classes(), reported(&mut enforcement)), (vec![], vec![]));
                // What a daemon before has left, and nobody refreshes; its filters end with it, whosever.
                assert_eq!(enforcement.apply(&[add(1, 9), add(2, 10)]), []);
                assert!(run(keep));
                let mut enforcement = Enforcement::default();
                enforcement.attach(BY, device()).expect("it is ours");
                let stays = usize::from(keep.contains("class add"));
                assert_eq!(enforcement.purge(BY), 2 - stays);
                assert_eq!((classes().len(), reported(&mut enforcement).len()), (stays, stays));
            });
        }
    }

    #[test]
    fn a_class_of_another_program_where_a_queue_must_be_is_named() {
        enforcing(|mut enforcement, device| {
            assert!(run("tc class add dev d0 parent 1:fff1 classid 1:79 htb rate 8kbit"));
            let advice = "d0: class 1:79 of another program is below the daemon's 1:fff1, which must have \
                          none; remove it: tc class del dev d0 classid 1:79";
            let other = Device { mtu: Bytes::new(1_400), ..device().device().clone() };
            assert_eq!(enforcement.reshape(BY, other), Err(advice.to_owned()));
            enforcement.detach(BY);
            assert_eq!(enforcement.attach(BY, device()), Err(advice.to_owned()));
            assert!(run("tc class del dev d0 classid 1:79"));
            enforcement.attach(BY, device()).expect("nothing is in the way");
        });
    }

    #[test]
    fn what_fails_takes_nothing_from_the_next_with_its_handle_and_what_is_gone_hinders_no_removal()
    {
        enforcing(|mut enforcement, _| {
            let add = |handle, port| ControlRequest::Add(BY, Handle(handle), reservation(port));
            let remove = |handle| ControlRequest::Remove(BY, Handle(handle));
            let modify =
                |handle, port| ControlRequest::Modify(BY, Handle(handle), reservation(port));
            // Its class is another one's.
            let occupied = "tc class add dev d0 parent 1:fff0 classid 1:1001 htb rate 8kbit";
            assert!(run(occupied));
            let requests = [add(1, 9), modify(1, 10), remove(1), add(1, 11), add(2, 12)];
            assert_eq!(enforcement.apply(&requests), []);
            let named =
                |enforcement: &Enforcement, handle| enforcement.class_name(BY, Handle(handle));
            assert_eq!([1, 2].map(|handle| named(&enforcement, handle)), ["1:1001", "1:1002"]);
            let both = (vec!["1:1001".to_owned(), "1:1002".to_owned()], 2);
            assert_eq!(there(&objects("d0").expect("it is there")), both);
            // One that stays failed is told once, whatever changes it.
            assert!(run(&occupied.replace("1:1001", "1:1003")));
            let failed = enforcement.apply(&[add(3, 13), modify(3, 14), add(4, 15)]);
            assert_eq!(failed.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0]);
            assert_eq!([3, 4].map(|handle| named(&enforcement, handle)), ["", "1:1004"]);
            assert!(run("tc filter del dev d0 parent 1: protocol ip prio 4096 handle 5e1:b:1 u32"));
            assert_eq!(enforcement.apply(&[remove(1), remove(2), remove(4)]), []);
            assert_eq!(there(&objects("d0").expect("it is there")), (Vec::new(), 0));
        });
    }
}
