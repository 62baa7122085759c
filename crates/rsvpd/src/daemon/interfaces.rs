//! Interfaces that appear, change and disappear.

use std::collections::BTreeMap;

use ontempo_foundation::{Bytes, Duration, Rate, Time};
use ontempo_reservation::htb::Stuck;
use ontempo_reservation::machine::{ControlRequest, ErrorTerms, InterfaceConfig, InterfaceId};

use super::state::{Daemon, time_of_day};
use crate::config::{self, Config};
use crate::enforcement::end_left;
use crate::error::DaemonError;
use crate::log::Level;
use crate::routes::Interface;
use crate::traffic_control::with_htb;

/// What another program keeps from being removed, or set up, is tried again so often.
const RETRY: Duration = Duration::from_secs(5);

impl Daemon<'_> {
    /// Sets up the interfaces that are up, and ends what a daemon before this one has left on others.
    pub(super) fn set_up_all(&mut self) -> Result<(), DaemonError> {
        let failed = self.update_interfaces();
        let failed = failed.and_then(|failed| failed.into_values().next().map_or(Ok(()), Err));
        if let Err(error) = failed {
            self.enforcement.end_begun();
            return Err(error);
        }
        if let Err(what) = self.end_others() {
            self.say(Level::Error, &what);
        }
        self.say_unused(|_| true);
        Ok(())
    }

    /// Tells which of the interfaces that are named are not there.
    pub(super) fn say_unused(&mut self, of: impl Fn(&str) -> bool) {
        let names = self.config.interfaces.keys();
        let unused = names.filter(|name| !self.interfaces.contains_key(*name) && of(name));
        let unused: Vec<String> = unused.cloned().collect();
        for name in unused {
            let line = format!("{name}: not used until it is up and has an address");
            self.say(Level::Warning, &line);
        }
    }

    fn kernel_interfaces(&mut self) -> Result<BTreeMap<String, Interface>, DaemonError> {
        let found = self.machine.routes_mut().interfaces();
        found.map_err(|error| DaemonError::system("cannot read the interfaces by netlink", &error))
    }

    /// Removes the classes of a daemon before this one from interfaces that are not enforced any more.
    pub(super) fn end_others(&mut self) -> Result<(), String> {
        self.end_left_where(|config, name| {
            !config.interfaces.get(name).is_some_and(|one| one.enforce)
        })
    }

    /// The same from all interfaces, at the end of the daemon: one that has been down all the time was never
    /// taken over.
    pub(super) fn end_all_left(&mut self) -> Result<(), String> {
        self.end_left_where(|_, _| true)
    }

    fn end_left_where(&mut self, is_over: impl Fn(&Config, &str) -> bool) -> Result<(), String> {
        let found = self.kernel_interfaces().map_err(|error| error.to_string())?;
        let with_htb = with_htb()?;
        for (name, one) in found {
            let is_over = is_over(&self.config, &name);
            if is_over && with_htb.contains(&one.index) && end_left(&name)? {
                let line = format!("{name}: removed the classes of a daemon before this one");
                self.say(Level::Notice, &line);
            }
        }
        Ok(())
    }

    /// The same as [`update_interfaces`](Self::update_interfaces) while the daemon runs: what cannot be set up is logged once
    /// and tried again, and keeps no other from it.
    pub(super) fn follow_interfaces(&mut self) {
        let failed = match self.update_interfaces() {
            Ok(failed) => failed,
            Err(error) => return self.say(Level::Error, &error.to_string()),
        };
        let failed = failed.into_iter().map(|(name, error)| (name, error.to_string()));
        let before = std::mem::replace(&mut self.failed, failed.collect());
        let new = self.failed.iter().filter(|(name, what)| before.get(*name) != Some(*what));
        for what in new.map(|(_, what)| what.clone()).collect::<Vec<_>>() {
            self.say(Level::Error, &what);
        }
        if !self.failed.is_empty() {
            self.retry_at = self.retry_at.min(self.now() + RETRY);
        }
    }

    /// Reads the kernel's interfaces; adds new ones, changes others and removes those that are down. Returns why some
    /// cannot be set up, by their names; the others are.
    ///
    /// # Errors
    /// Where the kernel's cannot be read.
    pub(super) fn update_interfaces(
        &mut self,
    ) -> Result<BTreeMap<String, DaemonError>, DaemonError> {
        let found = self.kernel_interfaces()?;
        let names: Vec<String> = self.config.interfaces.keys().cloned().collect();
        let mut failed = BTreeMap::new();
        for name in names {
            let usable = found.get(&name).filter(|new| new.up && !new.addresses.is_empty());
            let known = self.interfaces.get(&name);
            let usable = usable.map(|new| match known {
                Some(known) => new.in_order_of(known),
                None => new.clone(),
            });
            if known == usable.as_ref() {
                continue;
            }
            if let (Some(known), Some(new)) = (known, &usable)
                && new.is_hop_of(known)
            {
                self.interfaces.insert(name.clone(), new.clone());
                self.change(&name, true);
                continue;
            }
            if let Some(known) = known {
                let id = InterfaceId(known.index);
                let now = self.now();
                self.interfaces.remove(&name);
                self.machine.remove_interface(now, id);
                // What that changed elsewhere goes out before the handles are used again.
                self.settle();
                self.enforcement.detach(id);
                if usable.is_none() {
                    let why = match found.get(&name) {
                        None => "is gone",
                        Some(new) if new.up => "has no address",
                        Some(_) => "is down",
                    };
                    self.say(Level::Warning, &format!("{name}: {why}"));
                }
            }
            if let Some(new) = usable
                && let Err(error) = self.set_up(&name, &new)
            {
                failed.insert(name, error);
            }
        }
        Ok(failed)
    }

    pub(super) fn set_up(&mut self, name: &str, new: &Interface) -> Result<(), DaemonError> {
        let Some(config) = self.config.interfaces.get(name).cloned() else { return Ok(()) };
        let id = InterfaceId(new.index);
        if config.enforce {
            let mtu = Bytes::new(u64::from(new.mtu));
            let device = config.device(name, mtu, new.layer).map_err(DaemonError::Input)?;
            let taken = self.enforcement.attach(id, device).map_err(DaemonError::System)?;
            self.say_stuck();
            if self.enforcement.is_stuck() {
                self.retry_at = self.retry_at.min(self.now() + RETRY);
            }
            if self.enforcement.is_recovering(id) {
                let machine = self.config.machine();
                let until = self.now() + machine.lifetime(machine.refresh);
                self.purge_at.insert(id, until);
            }
            for (count, whose) in [
                (taken.own, "that this daemon has made"),
                (taken.left, "of a daemon before this one"),
            ] {
                if count > 0 {
                    let line = format!("{name}: took over {count} classes {whose}");
                    self.say(Level::Notice, &line);
                }
            }
        }
        if !config.is_authenticated() && !self.config.trust_network {
            let line = format!(
                "{name}: has no key: only this host's applications are served; a router needs a \
                 key, or --trust-network"
            );
            self.say(Level::Warning, &line);
        }
        let config = interface_config(&config, new, self.config.machine().limits.neighbours);
        self.machine.add_interface(id, config);
        self.interfaces.insert(name.to_owned(), new.clone());
        self.say(Level::Notice, &format!("{name}: has RSVP"));
        self.ask_neighbours_of(id);
        Ok(())
    }

    /// Sets up traffic control again where another program has removed or replaced the daemon's: the kernel
    /// notifies nobody, and what is reserved would be promised and not kept.
    pub(super) fn check_disciplines(&mut self) {
        let Ok(kinds) = self.machine.routes_mut().disciplines() else { return };
        let lost = self.interfaces.iter().filter_map(|(name, one)| {
            let id = InterfaceId(one.index);
            let kind = kinds.get(&one.index).filter(|kind| *kind != "htb")?;
            self.enforcement.is_on(id).then(|| (name.clone(), id, kind.clone()))
        });
        for (name, id, kind) in lost.collect::<Vec<_>>() {
            let line = format!(
                "{name}: another program has removed the daemon's queue discipline: {kind} is there now"
            );
            self.say(Level::Error, &line);
            self.enforcement.forget(id);
            match self.enforce_again(&name, id) {
                Ok(count) => {
                    let line = format!("{name}: set up again, with {count} reservations");
                    self.say(Level::Notice, &line);
                }
                Err(what) => {
                    let line = format!("{what}; until then {name} has no RSVP");
                    self.say(Level::Error, &line);
                    self.failed.insert(name.clone(), what);
                    self.retry_at = self.retry_at.min(self.now() + RETRY);
                    let now = self.now();
                    self.interfaces.remove(&name);
                    self.machine.remove_interface(now, id);
                }
            }
        }
    }

    /// Its reservations stay; their number.
    fn enforce_again(&mut self, name: &str, id: InterfaceId) -> Result<usize, String> {
        let Some(known) = self.interfaces.get(name) else { return Ok(0) };
        let Some(config) = self.config.interfaces.get(name) else { return Ok(0) };
        let device = config.device(name, Bytes::new(u64::from(known.mtu)), known.layer)?;
        self.enforcement.attach(id, device)?;
        let reserved = self.machine.enforced(id);
        let requests: Vec<_> =
            reserved.map(|(handle, one)| ControlRequest::Add(id, handle, one.clone())).collect();
        self.control(&requests);
        Ok(requests.len())
    }

    /// Removes the classes taken over that were not refreshed in time.
    pub(super) fn purge(&mut self, now: Time) {
        let mut purged = 0;
        let enforcement = &mut self.enforcement;
        self.purge_at.retain(|id, at| {
            let is_due = *at <= now;
            if is_due {
                purged += enforcement.purge(*id);
            }
            !is_due
        });
        self.say_stuck();
        if purged > 0 {
            let line =
                format!("removed {purged} classes that were taken over and not refreshed in time");
            self.say(Level::Notice, &line);
        }
    }

    /// Tells which classes could not be removed since this was asked last, each once.
    pub(super) fn say_stuck(&mut self) -> Vec<Stuck> {
        let stuck = self.enforcement.take_stuck();
        for one in &stuck {
            self.say(Level::Error, &one.to_string());
        }
        if !stuck.is_empty() {
            self.retry_at = self.retry_at.min(self.now() + RETRY);
        }
        stuck
    }

    /// Tries again to remove these, and to set up what could not be, as long as there are any.
    pub(super) fn retry(&mut self, now: Time) {
        if now < self.retry_at {
            return;
        }
        self.retry_at = Time::NEVER;
        if !self.failed.is_empty() {
            self.follow_interfaces();
            // What is set up now may be the way of flows that are known.
            self.machine.routes_changed(now);
        }
        for (name, class) in self.enforcement.retry_stuck() {
            let line = format!("{name}: class {class} removed: nothing is in its way any more");
            self.say(Level::Notice, &line);
        }
        if self.enforcement.is_stuck() {
            self.retry_at = now + RETRY;
        }
    }

    /// An interface's name; its number where it has none of ours.
    pub(super) fn name_of(&self, id: InterfaceId) -> String {
        let known = self.interfaces.iter().find(|(_, known)| known.index == id.0);
        known.map_or_else(|| format!("interface {}", id.0), |(name, _)| name.clone())
    }
}

pub(super) fn interface_config(
    config: &config::Interface,
    new: &Interface,
    neighbours: usize,
) -> InterfaceConfig {
    let mtu = Bytes::new(u64::from(new.mtu));
    let guard = config.guard(time_of_day(), neighbours);
    let (overhead, _) = new.layer.overhead(config.overhead);
    let frame = Bytes::new(mtu.get() + overhead.get());
    InterfaceConfig {
        addresses: new.addresses.clone(),
        reservable: config.reservable(),
        reservable_burst: config.buffer(),
        rate: config.rate,
        latency: config.latency,
        mtu: new.mtu,
        overhead,
        aggregates: config.aggregates(),
        guaranteed: config.guaranteed.then(|| {
            let others = if config.aggregates_guaranteed() { config.buffer() } else { Bytes::ZERO };
            error_terms(config.rate, mtu, frame, others)
        }),
        refresh_reduction: config.refresh_reduction,
        guard,
    }
}

/// C: one packet of the flow at its rate, which the link's headers have raised as much as the packet;
/// D: one packet of another flow being sent, with them (RFC 2212), and in an aggregate, whose flows
/// share a queue, the bursts of all others.
fn error_terms(rate: Rate, mtu: Bytes, frame: Bytes, others: Bytes) -> ErrorTerms {
    let d: Duration = rate.time_to_send(Bytes::new(frame.get().saturating_add(others.get())));
    ErrorTerms { c: mtu, d }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_an_aggregate_the_bursts_of_others_go_first() {
        let (rate, mtu) = (Rate::from_bits_per_sec(8_000_000), Bytes::new(1_500));
        let of = |others| error_terms(rate, mtu, Bytes::new(2_000), Bytes::new(others));
        assert_eq!((of(0).c, of(0).d), (mtu, Duration::from_millis(2)));
        assert_eq!((of(50_000).c, of(50_000).d), (mtu, Duration::from_millis(52)));
    }
}
