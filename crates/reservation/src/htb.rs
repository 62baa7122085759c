//! What is enforced on an interface, as lines for Linux's `tc -batch`.
//!
//! [`Htb`] turns [`ControlRequest`]s into text and runs nothing. A reservation is a class of its
//! own and a u32 filter for each sender; docs/mechanisms/reservation.md tells how excess is
//! treated.

use core::fmt;
use std::collections::BTreeMap;
use std::net::IpAddr;

use ontempo_foundation::{Bytes, Rate};

use crate::machine::{ControlRequest, Handle, Reservation};
use crate::message::{Sender, Session};

/// The class of all, and that of what is not reserved; handles stay below.
const ROOT: u16 = 0xfff0;
const BEST_EFFORT: u16 = 0xfff1;
/// HTB's priorities: when classes borrow, best effort comes before what flows send beyond their
/// reservations.
const FIRST: u8 = 0;
const LAST: u8 = 7;
/// HTB refuses a rate of zero.
const LEAST_RATE: Rate = Rate::from_bits_per_sec(8_000);
/// Length of an interface's name (IFNAMSIZ, with its end).
const NAME_LENGTH: usize = 15;

/// An interface to enforce on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// The link's rate.
    pub rate: Rate,
    /// What of it may be reserved; the rest is best effort's own.
    pub reservable: Rate,
    /// Its largest packet.
    pub mtu: Bytes,
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
    installed: BTreeMap<Handle, Installed>,
}

#[derive(Clone, Debug)]
struct Installed {
    session: Session,
    filters: Vec<Sender>,
    /// Filters have one of two preferences, so that new ones stand before old ones go.
    second: bool,
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
        Ok(Self { device, installed: BTreeMap::new() })
    }

    /// The lines that set the interface up, in place of any root discipline.
    pub fn begin(&self) -> Vec<String> {
        let Device { name, rate, reservable, mtu } = &self.device;
        let left = rate.as_bits_per_sec().saturating_sub(reservable.as_bits_per_sec());
        let own = Rate::from_bits_per_sec(left).max(LEAST_RATE);
        let burst = Bytes::new(mtu.get() * 2);
        vec![
            format!("qdisc replace dev {name} root handle 1: htb default {BEST_EFFORT:x}"),
            format!(
                "class add dev {name} parent 1: classid 1:{ROOT:x} {}",
                self.shape(*rate, burst, FIRST)
            ),
            format!(
                "class add dev {name} parent 1:{ROOT:x} classid 1:{BEST_EFFORT:x} {}",
                self.shape(own, burst, FIRST)
            ),
        ]
    }

    /// The line that takes all away.
    pub fn end(&self) -> Vec<String> {
        vec![format!("qdisc del dev {} root", self.device.name)]
    }

    /// The lines that carry a request out. One for a handle that is not there says nothing.
    pub fn lines(&mut self, request: &ControlRequest) -> Vec<String> {
        match request {
            ControlRequest::Add(_, handle, reservation) => {
                let mut lines = vec![self.class("add", *handle, reservation)];
                lines.extend(self.filters(*handle, false, reservation));
                self.note(*handle, reservation, false);
                lines
            }
            ControlRequest::Modify(_, handle, reservation) => {
                let Some(before) = self.installed.get(handle).cloned() else { return Vec::new() };
                let mut lines = vec![self.class("change", *handle, reservation)];
                let same = before.session == reservation.session;
                if !same || before.filters != reservation.filters {
                    lines.extend(self.filters(*handle, !before.second, reservation));
                    lines.push(self.remove_filters(*handle, before.second));
                    self.note(*handle, reservation, !before.second);
                }
                lines
            }
            ControlRequest::Remove(_, handle) => {
                let Some(before) = self.installed.remove(handle) else { return Vec::new() };
                let class = format!("class del dev {} classid 1:{:x}", self.device.name, handle.0);
                vec![self.remove_filters(*handle, before.second), class]
            }
        }
    }

    fn note(&mut self, handle: Handle, reservation: &Reservation, second: bool) {
        let (session, filters) = (reservation.session, reservation.filters.clone());
        self.installed.insert(handle, Installed { session, filters, second });
    }

    fn class(&self, verb: &str, handle: Handle, reservation: &Reservation) -> String {
        let burst = reservation.burst.max(self.device.mtu);
        format!(
            "class {verb} dev {} parent 1:{ROOT:x} classid 1:{:x} {}",
            self.device.name,
            handle.0,
            self.shape(reservation.rate.max(LEAST_RATE), burst, LAST)
        )
    }

    /// Its own rate, and all of the link's where nobody else needs it.
    fn shape(&self, rate: Rate, burst: Bytes, priority: u8) -> String {
        let Device { rate: link, mtu, .. } = &self.device;
        format!(
            "htb rate {}bit ceil {}bit burst {}b cburst {}b quantum {} prio {priority}",
            rate.as_bits_per_sec(),
            link.as_bits_per_sec().max(rate.as_bits_per_sec()),
            burst.get(),
            mtu.get() * 2,
            mtu.get(),
        )
    }

    fn filters(&self, handle: Handle, second: bool, reservation: &Reservation) -> Vec<String> {
        let line = |sender: Option<&Sender>| {
            let v4 = reservation.session.destination.is_ipv4();
            format!(
                "filter add dev {} parent 1: protocol {} prio {} u32{} flowid 1:{:x}",
                self.device.name,
                if v4 { "ip" } else { "ipv6" },
                preference(handle, second),
                matches(&reservation.session, sender),
                handle.0,
            )
        };
        if reservation.filters.is_empty() {
            return vec![line(None)];
        }
        reservation.filters.iter().map(|sender| line(Some(sender))).collect()
    }

    fn remove_filters(&self, handle: Handle, second: bool) -> String {
        let preference = preference(handle, second);
        format!("filter del dev {} parent 1: prio {preference}", self.device.name)
    }
}

/// Two for each handle, of which there are fewer than 2^15.
fn preference(handle: Handle, second: bool) -> u32 {
    u32::from(handle.0) * 2 + u32::from(second)
}

/// The packets of a flow, by addresses, protocol and ports.
fn matches(session: &Session, sender: Option<&Sender>) -> String {
    let (family, bits) = match session.destination {
        IpAddr::V4(_) => ("ip", 32),
        IpAddr::V6(_) => ("ip6", 128),
    };
    let mut text = format!(" match {family} dst {}/{bits}", session.destination);
    if let Some(sender) = sender {
        text += &format!(" match {family} src {}/{bits}", sender.address);
    }
    text += &format!(" match {family} protocol {} 0xff", session.protocol);
    if let Some(sender) = sender.filter(|sender| sender.port > 0) {
        text += &format!(" match {family} sport {} 0xffff", sender.port);
    }
    if session.port > 0 {
        text += &format!(" match {family} dport {} 0xffff", session.port);
    }
    text
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
        };
        for name in ["", "-all", "eth0 root", "a\nqdisc", "averyveryverylongname"] {
            assert!(Htb::new(device(name)).is_err(), "{name:?}");
        }
        assert!(Htb::new(device("ot-1.2_a")).is_ok());
    }
}
