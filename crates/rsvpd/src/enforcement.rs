//! Reservations as classes and filters of HTB.

use std::collections::BTreeMap;

use ontempo_reservation::htb::{Device, Htb, QueueKind, Root, left_on, root_of};
use ontempo_reservation::machine::{
    ControlError, ControlRequest, Handle, InterfaceId, TrafficControl,
};

use crate::tc::{Refused, batch, batch_all};
use crate::traffic_control::objects;

/// All interfaces that are enforced on.
#[derive(Default)]
pub(crate) struct Enforcement {
    devices: BTreeMap<InterfaceId, Htb>,
    /// Those that are down, by name, with what is on them.
    down: BTreeMap<String, Htb>,
}

impl Enforcement {
    /// Sets up an interface, or takes over the classes of a daemon before this one; returns their
    /// number.
    pub(crate) fn attach(&mut self, id: InterfaceId, device: Htb) -> Result<usize, String> {
        let name = device.name().to_owned();
        let found = objects(&name)?;
        let mut device = device;
        let lines = match root_of(&found) {
            Root::Free => device.begin(),
            Root::Ours => device.adopt(left_on(&found)),
            Root::Theirs => {
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
        batch(&lines).map_err(|refused| {
            let lacks = refused.reason.contains("kind is unknown");
            let why = "; this needs a kernel with CONFIG_NET_SCH_HTB";
            format!("{name}: {}{}", refused.reason, if lacks { why } else { "" })
        })?;
        shorten_queue(&mut device)?;
        let adopted = device.adopted();
        self.down.remove(&name);
        self.devices.insert(id, device);
        Ok(adopted)
    }

    /// The interface is down, or is to be attached anew; what is on it is then taken over.
    pub(crate) fn detach(&mut self, id: InterfaceId) {
        if let Some(device) = self.devices.remove(&id) {
            self.down.insert(device.name().to_owned(), device);
        }
    }

    /// The interface has another rate or other headers; its classes stay.
    pub(crate) fn reshape(&mut self, id: InterfaceId, to: Device) -> Result<(), String> {
        let Some(device) = self.devices.get_mut(&id) else { return Ok(()) };
        let lines = device.reshape(to);
        batch(&lines).map_err(|refused| format!("{}: {}", device.name(), refused.reason))
    }

    /// Ends the traffic control of an interface.
    pub(crate) fn remove(&mut self, id: InterfaceId) {
        if let Some(device) = self.devices.remove(&id) {
            batch_all(&device.end());
        }
    }

    /// Removes classes taken over that were not refreshed in time; returns their number.
    pub(crate) fn purge(&mut self) -> usize {
        let purged = self.devices.values().map(Htb::adopted).sum();
        let lines: Vec<String> = self.devices.values_mut().flat_map(Htb::purge).collect();
        if !lines.is_empty() {
            batch_all(&lines);
        }
        purged
    }

    /// Number of classes taken over on an interface that were not refreshed yet.
    pub(crate) fn adopted(&self, id: InterfaceId) -> usize {
        self.devices.get(&id).map_or(0, Htb::adopted)
    }

    /// A reservation's class, as `tc` names it.
    pub(crate) fn class_name(&self, id: InterfaceId, handle: Handle) -> String {
        self.devices.get(&id).and_then(|device| device.class_name(handle)).unwrap_or_default()
    }

    /// Removes the traffic control of all interfaces.
    pub(crate) fn end(&mut self) {
        let Self { devices, down } = core::mem::take(self);
        let lines = devices.values().chain(down.values()).flat_map(Htb::end);
        batch_all(&lines.collect::<Vec<_>>());
    }
}

/// Gives best effort FQ-CoDel, or a FIFO where the kernel has none.
fn shorten_queue(device: &mut Htb) -> Result<(), String> {
    let lines = device.best_effort(QueueKind::FqCodel);
    if lines.is_empty() || batch(&lines).is_ok() {
        return Ok(());
    }
    let lines = device.best_effort(QueueKind::Fifo);
    batch(&lines).map_err(|refused| format!("{}: {}", device.name(), refused.reason))
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
        let mut next = 0;
        while next < lines.len() {
            let Err(Refused { line, reason }) = batch(&lines[next..]) else { break };
            let at = next + line.unwrap_or(0);
            let Some(&owner) = owners.get(at) else { break };
            failed.push((owner, ControlError { value: 0, reason }));
            self.undo(&requests[owner]);
            // The rest of what failed is of no use.
            next = owners.iter().position(|other| *other > owner).unwrap_or(lines.len());
        }
        failed
    }
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
