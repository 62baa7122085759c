//! Another configuration while the daemon runs: what stands is not touched.

use ontempo_foundation::Bytes;
use ontempo_reservation::machine::InterfaceId;

use super::interfaces::interface_config;
use super::state::Daemon;
use crate::config::Config;
use crate::log::Level;

impl Daemon<'_> {
    /// Takes over another configuration. One that is wrong, or that this daemon cannot follow, is
    /// refused as a whole.
    pub(super) fn reload(&mut self, read: Result<Config, String>) {
        let new = read.and_then(|new| self.config.check_change(&new).map(|()| new));
        let new = match new {
            Ok(new) => new,
            Err(what) => {
                let line = format!("not reloaded, the configuration before stays: {what}");
                return self.say(Level::Error, &line);
            }
        };
        let old = std::mem::replace(&mut self.config, new);
        let now = self.now();
        self.machine.configure(now, self.config.machine());
        let names: Vec<String> = self.interfaces.keys().cloned().collect();
        for name in names {
            match self.config.interfaces.get(&name) {
                None => self.remove(&name),
                Some(new) if Some(new) != old.interfaces.get(&name) => {
                    let keeps_keys =
                        old.interfaces.get(&name).is_some_and(|old| old.has_keys_of(new));
                    self.change(&name, keeps_keys);
                }
                Some(_) => {}
            }
        }
        let config = &self.config;
        self.enforcement.end_down(|name| !config.interfaces.contains_key(name));
        // One that has been down since the start has what a daemon before this one left.
        if let Err(what) = self.end_others() {
            self.say(Level::Error, &what);
        }
        // What is still in the way is logged again for who reloads.
        self.failed.clear();
        self.follow_interfaces();
        self.say_unused(|name| !old.interfaces.contains_key(name));
        self.check_disciplines();
        let now = self.now();
        self.machine.routes_changed(now);
        self.settle();
        self.say(Level::Notice, "reloaded the configuration");
    }

    fn remove(&mut self, name: &str) {
        let Some(known) = self.interfaces.remove(name) else { return };
        let (id, now) = (InterfaceId(known.index), self.now());
        self.machine.remove_interface(now, id);
        self.settle();
        self.enforcement.remove(id);
        self.say(Level::Notice, &format!("{name}: no longer has RSVP"));
    }

    /// Takes over what is configured, or known of the kernel, of an interface.
    pub(super) fn change(&mut self, name: &str, keeps_keys: bool) {
        let Some(known) = self.interfaces.get(name).cloned() else { return };
        let Some(config) = self.config.interfaces.get(name) else { return };
        let (id, now) = (InterfaceId(known.index), self.now());
        let neighbours = self.config.machine().limits.neighbours;
        let device = config.describe(name, Bytes::new(u64::from(known.mtu)), known.layer);
        let changed = interface_config(config, &known, neighbours);
        // The link first: what is reserved anew must fit into it.
        if let Err(what) = self.enforcement.reshape(id, device) {
            self.say(Level::Error, &what);
        }
        self.machine.change_interface(now, id, changed, keeps_keys);
        self.settle();
        self.say(Level::Notice, &format!("{name}: changed"));
    }
}
