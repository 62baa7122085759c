//! Interfaces that appear, change and disappear.

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_reservation::machine::{ErrorTerms, InterfaceConfig, InterfaceId};

use super::state::{Daemon, time_of_day};
use crate::config;
use crate::error::DaemonError;
use crate::log::Level;
use crate::routes::Interface;

impl Daemon<'_> {
    /// Sets up the interfaces that are up.
    pub(super) fn set_up_all(&mut self) -> Result<(), DaemonError> {
        self.update_interfaces()?;
        let names = self.config.interfaces.keys();
        let unused = names.filter(|name| !self.interfaces.contains_key(*name));
        let unused: Vec<String> = unused.cloned().collect();
        for name in unused {
            let line = format!("{name}: not used until it is up and has an address");
            self.say(Level::Warning, &line);
        }
        Ok(())
    }

    /// Reads the kernel's interfaces; adds new ones and removes those that are down.
    pub(super) fn update_interfaces(&mut self) -> Result<(), DaemonError> {
        let found = self.machine.routes_mut().interfaces();
        let found = found.map_err(|error| {
            DaemonError::system("cannot read the interfaces by netlink", &error)
        })?;
        let names: Vec<String> = self.config.interfaces.keys().cloned().collect();
        for name in names {
            let usable = found.get(&name).filter(|new| new.up && !new.addresses.is_empty());
            let known = self.interfaces.get(&name);
            if known == usable {
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
                    self.say(Level::Warning, &format!("{name}: is down"));
                }
            }
            if let Some(new) = usable {
                self.set_up(&name, new)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_up(&mut self, name: &str, new: &Interface) -> Result<(), DaemonError> {
        let Some(config) = self.config.interfaces.get(name).cloned() else { return Ok(()) };
        let id = InterfaceId(new.index);
        if config.enforce {
            let mtu = Bytes::new(u64::from(new.mtu));
            let device = config.device(name, mtu, new.layer).map_err(DaemonError::Input)?;
            let adopted = self.enforcement.attach(id, device).map_err(DaemonError::System)?;
            if adopted > 0 {
                let machine = self.config.machine();
                self.purge_at = self.now() + machine.lifetime(machine.refresh);
                let line =
                    format!("{name}: took over {adopted} classes of a daemon before this one");
                self.say(Level::Notice, &line);
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
        Ok(())
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
        guaranteed: config.guaranteed.then(|| error_terms(config.rate, mtu, frame)),
        refresh_reduction: config.refresh_reduction,
        guard,
    }
}

/// C: one packet of the flow at its rate, which the link's headers have raised as much as the packet;
/// D: one packet of another flow being sent, with them (RFC 2212).
fn error_terms(rate: Rate, mtu: Bytes, frame: Bytes) -> ErrorTerms {
    let d: Duration = rate.time_to_send(frame);
    ErrorTerms { c: mtu, d }
}
