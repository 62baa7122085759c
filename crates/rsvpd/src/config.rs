//! The daemon's configuration: a TOML file.
//!
//! ```toml
//! refresh = "30 s"
//! group = "video"                  # who may reserve, besides root
//!
//! [interfaces.eth1]
//! rate = "1.5 Mbit/s"
//! reservable = "90 %"
//! key = { id = 1, algorithm = "hmac-sha256", secret-file = "/etc/ontempo/eth1.key" }
//!
//! [interfaces.eth1.neighbours."10.1.0.2"]       # another key than that of the interface
//! key = { id = 2, secret-file = "/etc/ontempo/r2.key" }
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use netlink_packet_route::link::LinkLayerType;
use ontempo_foundation::{Bytes, Duration, Percent, Rate};
use ontempo_place::read_regular;
use ontempo_reservation::htb::{Aggregate, Device, Htb};
use ontempo_reservation::integrity::{Guard, Key, NeighbourKeys};
use ontempo_reservation::{local, machine};
use serde::{Deserialize, Deserializer};

use crate::aggregates::{WrittenAggregate, aggregates};
use crate::applications::group;
use crate::count::Count;
use crate::error::DaemonError;
use crate::keys::{WrittenKey, WrittenNeighbour, by_address};
use crate::link_layer::{LinkLayer, Overhead};
use crate::log::Level;
use crate::written::{flag, table, text, with_key};

/// Bytes of the file at most.
const MAX_FILE: u64 = 4 << 20;
/// Bytes of a socket's path at most (unix(7)).
const MAX_SOCKET: usize = 107;
/// Refresh periods below this are a flood, above it state would live for hours.
const REFRESHES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];

const NOTHING: Rate = Rate::from_bits_per_sec(0);

/// The configuration of a daemon; read with [`Config::read`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The file that it was read from.
    #[serde(skip)]
    path: PathBuf,
    /// R, the mean time between refreshes.
    #[serde(default = "default_refresh")]
    pub(crate) refresh: Duration,
    /// The path of the local socket.
    #[serde(default = "default_socket", deserialize_with = "socket_path")]
    pub(crate) socket: PathBuf,
    /// The group that may connect, besides root.
    #[serde(default, deserialize_with = "group_name")]
    pub(crate) group: Option<String>,
    /// The socket's mode, octal.
    #[serde(default = "default_mode", deserialize_with = "octal")]
    mode: String,
    /// Interfaces without a key serve routers and hosts behind them, not this host's applications
    /// alone.
    #[serde(default, deserialize_with = "flag")]
    pub(crate) trust_network: bool,
    /// Lines of this level and above are written.
    #[serde(default = "default_log")]
    pub(crate) log: Level,
    #[serde(default)]
    limits: Limits,
    #[serde(default, deserialize_with = "by_name")]
    pub(crate) interfaces: BTreeMap<String, Interface>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { sessions = 20000 }"
)]
struct Limits {
    sessions: Option<Count>,
    all_senders: Option<Count>,
    all_flows: Option<Count>,
    senders: Option<Count>,
    next_hops: Option<Count>,
    neighbours: Option<Count>,
    states: Option<Count>,
    applications: Option<Count>,
}

/// An interface with RSVP.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { rate = \"1.5 Mbit/s\" }"
)]
pub(crate) struct Interface {
    /// The link's rate.
    pub(crate) rate: Rate,
    /// The share of it that may be reserved.
    #[serde(default = "default_reservable")]
    reservable: Percent,
    /// Limit of the sum of the bursts; where not given, the bytes of one second at the link's rate.
    buffer: Option<Bytes>,
    /// Bytes of a packet on the link beyond those of IP, at whose layer `rate` counts; where not
    /// given, those that the interface's kind has.
    pub(crate) overhead: Option<Overhead>,
    /// The link's latency without queueing, for ADSPEC.
    pub(crate) latency: Option<Duration>,
    /// Guaranteed service is offered.
    #[serde(default = "yes", deserialize_with = "flag")]
    pub(crate) guaranteed: bool,
    /// Refresh reduction (RFC 2961).
    #[serde(default = "yes", deserialize_with = "flag")]
    pub(crate) refresh_reduction: bool,
    /// Reservations are enforced by HTB; otherwise only admitted.
    #[serde(default = "yes", deserialize_with = "flag")]
    pub(crate) enforce: bool,
    /// Reservations that share a class, to which packets come by their DSCP (RFC 2998).
    #[serde(default, deserialize_with = "aggregates")]
    aggregates: Vec<WrittenAggregate>,
    /// Messages must be sealed with it (RFC 2747), except those of neighbours with their own.
    key: Option<WrittenKey>,
    /// Keys of neighbours, by their addresses.
    #[serde(default, deserialize_with = "by_address")]
    neighbours: BTreeMap<IpAddr, WrittenNeighbour>,
    /// The keys, read.
    #[serde(skip)]
    keys: Keys,
}

/// The keys of an interface.
#[derive(Clone, Debug, Default, PartialEq)]
struct Keys {
    of_interface: Option<Key>,
    of_neighbours: BTreeMap<IpAddr, NeighbourKeys>,
}

fn default_refresh() -> Duration {
    machine::Config::default().refresh
}

fn default_socket() -> PathBuf {
    PathBuf::from(local::SOCKET)
}

fn default_mode() -> String {
    "0660".to_owned()
}

fn default_reservable() -> Percent {
    Percent::new(90)
}

fn default_log() -> Level {
    Level::Info
}

fn yes() -> bool {
    true
}

/// What is in a file, or comes by a pipe, as in `ontempo rsvpd <(...)`.
fn read_to_end(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it has more than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

fn group_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, r#"the name of a group, such as "video""#).map(Some)
}

fn socket_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    text(deserializer, r#"a path, such as "/run/ontempo-rsvp.sock""#)
}

fn octal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer, r#"up to four octal digits in quotes, such as "0660""#)
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Interface>, D::Error> {
    table(deserializer, "a table for each interface, such as [interfaces.eth1]")
}

impl Config {
    /// Reads the file and the secrets that it names.
    ///
    /// # Errors
    /// Where one cannot be read, a field is unknown, lacks its unit or has a value that cannot be;
    /// with the file and the field.
    pub fn read(path: &Path) -> Result<Self, DaemonError> {
        Self::of(path, read_to_end(path))
    }

    /// The same for a daemon that runs, which waits for no writer of a named pipe.
    ///
    /// # Errors
    /// As [`read`](Self::read); also where it is no regular file.
    pub fn read_again(path: &Path) -> Result<Self, DaemonError> {
        Self::of(path, read_regular(path, MAX_FILE))
    }

    fn of(path: &Path, read: io::Result<Vec<u8>>) -> Result<Self, DaemonError> {
        let failed = |what: String| DaemonError::Input(format!("{}: {what}", path.display()));
        let bytes = read.map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| failed(error.to_string()))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|error| failed(with_key(&error, &text)))?;
        config.check().map_err(failed)?;
        config.path = path.to_owned();
        let folder = path.parent().unwrap_or(Path::new("."));
        for (name, interface) in &mut config.interfaces {
            interface.keys = interface
                .read_keys(folder)
                .map_err(|what| failed(format!("interfaces.{name}.{what}")))?;
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let [shortest, longest] = REFRESHES;
        if !(shortest..=longest).contains(&self.refresh) {
            return Err(format!(
                "refresh: {} must be between {shortest} and {longest}",
                self.refresh
            ));
        }
        self.socket_mode()?;
        let socket = self.socket.as_os_str().as_bytes();
        if !(1..=MAX_SOCKET).contains(&socket.len()) || socket.contains(&0) {
            return Err(format!(
                "socket: {:?} must be a path of 1 to {MAX_SOCKET} bytes",
                self.socket.display().to_string()
            ));
        }
        if self.interfaces.is_empty() {
            return Err("interfaces: none is given, so that no packet would be processed; give \
                        one as [interfaces.NAME] with its rate"
                .to_owned());
        }
        for (name, interface) in &self.interfaces {
            interface.check(name).map_err(|what| format!("interfaces.{name}{what}"))?;
        }
        Ok(())
    }

    /// Serves flows of other hosts on interfaces without a key, too, whatever the file says.
    #[must_use]
    pub fn trusting_network(self) -> Self {
        Self { trust_network: true, ..self }
    }

    /// The socket's mode.
    pub(crate) fn socket_mode(&self) -> Result<u32, String> {
        u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
            format!("mode: {:?} must be up to four octal digits, \"0660\" say", self.mode)
        })
    }

    /// Whether a daemon that runs with this configuration can take over that one.
    pub(crate) fn check_change(&self, new: &Self) -> Result<(), String> {
        let refused = |field: &str| {
            let path = self.path.display();
            Err(format!("{path}: {field}: this cannot change while the daemon runs; restart it"))
        };
        if self.socket != new.socket {
            return refused("socket");
        }
        if self.group != new.group {
            return refused("group");
        }
        if self.mode != new.mode {
            return refused("mode");
        }
        if self.max_applications() != new.max_applications() {
            return refused("limits.applications");
        }
        for (name, old) in &self.interfaces {
            let Some(new) = new.interfaces.get(name) else { continue };
            if new.enforce != old.enforce {
                return refused(&format!("interfaces.{name}.enforce"));
            }
            if new.aggregates != old.aggregates {
                return refused(&format!("interfaces.{name}.aggregates"));
            }
        }
        Ok(())
    }

    /// Whether this host has the group that it names, which a daemon needs at its start.
    ///
    /// # Errors
    /// Where it has not; with the file and how to make it.
    pub fn check_group(&self) -> Result<(), DaemonError> {
        let found = self.group.as_deref().map(group).transpose();
        found
            .map(drop)
            .map_err(|error| DaemonError::Input(format!("{}: {error}", self.path.display())))
    }

    /// The configuration as it is in effect, with what the file leaves out.
    pub fn shown(&self) -> String {
        let machine = self.machine();
        let mut lines = vec![
            format!(
                "refresh {}, state ends after {}",
                machine.refresh,
                machine.lifetime(machine.refresh)
            ),
            format!(
                "socket {}, mode {}, group {}",
                self.socket.display(),
                self.mode,
                self.group.as_deref().unwrap_or("none: root alone")
            ),
            format!(
                "at most {} sessions, {} senders, {} flow descriptors, {} neighbours",
                machine.limits.sessions,
                machine.limits.all_senders,
                machine.limits.all_flows,
                machine.limits.neighbours
            ),
        ];
        for (name, one) in &self.interfaces {
            let overhead = one.overhead.map_or_else(
                || "the headers of its kind".to_owned(),
                |Overhead(bytes)| format!("{bytes} of headers a packet"),
            );
            let key = match (one.is_authenticated(), self.trust_network) {
                (true, _) => "messages are sealed",
                (false, true) => "without a key, the network is trusted",
                (false, false) => "without a key: for this host's applications alone",
            };
            let enforced = match (one.enforce, one.aggregates.len()) {
                (false, _) => "not enforced".to_owned(),
                (true, 0) => "enforced".to_owned(),
                (true, count) => format!("enforced, with {count} aggregates"),
            };
            lines.push(format!(
                "{name}: {}, of which {} and bursts of {} may be reserved; {overhead}; {enforced}; {key}",
                one.rate,
                one.reservable(),
                one.buffer()
            ));
        }
        lines.join("\n")
    }

    /// The configuration of the machine.
    pub(crate) fn machine(&self) -> machine::Config {
        let (written, default) = (&self.limits, machine::Limits::default());
        let or = |one: Option<Count>, other| one.map_or(other, |Count(count)| count);
        machine::Config {
            refresh: self.refresh,
            trust_network: self.trust_network,
            limits: machine::Limits {
                sessions: or(written.sessions, default.sessions),
                all_senders: or(written.all_senders, default.all_senders),
                all_flows: or(written.all_flows, default.all_flows),
                senders: or(written.senders, default.senders),
                next_hops: or(written.next_hops, default.next_hops),
                neighbours: or(written.neighbours, default.neighbours),
                states: or(written.states, default.states),
            },
            ..machine::Config::default()
        }
    }

    /// Connections of applications at once.
    pub(crate) fn max_applications(&self) -> usize {
        self.limits.applications.map_or(512, |Count(count)| count)
    }
}

impl Interface {
    fn check(&self, name: &str) -> Result<(), String> {
        if name == "lo" {
            return Err(
                ": the loopback has no neighbours; name interfaces to other hosts".to_owned()
            );
        }
        if self.rate == Rate::default() {
            return Err(".rate: must be above 0".to_owned());
        }
        // All traffic would wait for a link that is slower than any.
        if self.enforce && Device::most_reservable(self.rate, self.aggregates.len()) == NOTHING {
            return Err(format!(
                ".rate: of {} nothing is left beside the daemon's own classes; give the rate of the \
                 link, such as \"1.5 Mbit/s\"",
                self.rate
            ));
        }
        if self.reservable > Percent::ALL {
            return Err(format!(".reservable: {} is more than 100 %", self.reservable));
        }
        if !self.aggregates.is_empty() && !self.enforce {
            return Err(
                ".aggregates: they are classes, which enforce = false has none of".to_owned()
            );
        }
        let read = self.read_aggregates().map_err(|what| format!(".{what}"))?;
        for (place, one) in read.iter().enumerate() {
            if read[..place].iter().any(|other| other.dscp == one.dscp) {
                return Err(format!(".aggregates: two have the DSCP {}", one.dscp));
            }
        }
        let any = LinkLayer::of(LinkLayerType::Ether, None);
        self.device(name, Bytes::new(1500), any).map_err(|what| format!(": {what}"))?;
        Ok(())
    }

    /// Whether guaranteed service can be in an aggregate.
    pub(crate) fn aggregates_guaranteed(&self) -> bool {
        self.aggregates.iter().any(WrittenAggregate::takes_guaranteed)
    }

    /// Its aggregates; [`Config::read`] has checked that they can be read.
    pub(crate) fn aggregates(&self) -> Vec<Aggregate> {
        self.read_aggregates().unwrap_or_default()
    }

    fn read_aggregates(&self) -> Result<Vec<Aggregate>, String> {
        let numbered = self.aggregates.iter().enumerate();
        numbered
            .map(|(place, one)| one.read().map_err(|what| format!("aggregates[{place}].{what}")))
            .collect()
    }

    fn read_keys(&self, folder: &Path) -> Result<Keys, String> {
        let mut keys = Keys::default();
        // A sender's Key Identifiers must differ (RFC 2747, section 2.1), and so what they end with.
        let mut sending = BTreeMap::new();
        if let Some(key) = &self.key {
            keys.of_interface = Some(key.read(folder).map_err(|what| format!("key: {what}"))?);
            sending.insert(key.sending_id(), "key".to_owned());
        }
        for (address, written) in &self.neighbours {
            let place = format!("neighbours.\"{address}\"");
            let read = |name: &str, key: &WrittenKey| {
                key.read(folder).map_err(|what| format!("{place}.{name}: {what}"))
            };
            let ((name, send), (other, receive)) = match written {
                WrittenNeighbour { key: Some(key), send: None, receive: None } => {
                    (("key", key), ("key", key))
                }
                WrittenNeighbour { key: None, send: Some(send), receive: Some(receive) } => {
                    (("send", send), ("receive", receive))
                }
                _ => return Err(format!("{place}: give key, or send and receive")),
            };
            let pair = NeighbourKeys { send: read(name, send)?, receive: read(other, receive)? };
            keys.of_neighbours.insert(*address, pair);
            let place = format!("{place}.{name}");
            if let Some(other) = sending.insert(send.sending_id(), place.clone()) {
                return Err(format!(
                    "{place}: {other} has the same id: each key that an interface sends with needs \
                     its own"
                ));
            }
        }
        Ok(keys)
    }

    /// True if messages by the interface must be sealed.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.keys.of_interface.is_some() || !self.keys.of_neighbours.is_empty()
    }

    /// Its security associations; their first sequence number, and the neighbours that are known at
    /// most.
    pub(crate) fn guard(&self, first_sequence: u64, neighbours: usize) -> Option<Guard> {
        if !self.is_authenticated() {
            return None;
        }
        let Keys { of_interface, of_neighbours } = self.keys.clone();
        let guard = Guard::new(of_interface, first_sequence, true, neighbours);
        let with = |guard: Guard, (address, keys)| guard.with_neighbour(address, keys);
        Some(of_neighbours.into_iter().fold(guard, with))
    }

    /// What of the rate may be reserved.
    pub(crate) fn reservable(&self) -> Rate {
        let share = u128::from(self.rate.as_bits_per_sec())
            * u128::from(self.reservable.as_thousandths())
            / u128::from(Percent::ALL.as_thousandths());
        // No more than the rate, which fits.
        let share = Rate::from_bits_per_sec(u64::try_from(share).unwrap_or(u64::MAX));
        if self.enforce {
            share.min(Device::most_reservable(self.rate, self.aggregates.len()))
        } else {
            share
        }
    }

    pub(crate) fn buffer(&self) -> Bytes {
        self.buffer.unwrap_or(Bytes::new(self.rate.as_bits_per_sec() / 8))
    }

    /// Whether its secrets and associations are those of another one.
    pub(crate) fn has_keys_of(&self, other: &Self) -> bool {
        self.keys == other.keys
    }

    /// The interface for its traffic control.
    pub(crate) fn describe(&self, name: &str, mtu: Bytes, layer: LinkLayer) -> Device {
        let (name, rate, reservable) = (name.to_owned(), self.rate, self.reservable());
        let (_, uncounted) = layer.overhead(self.overhead);
        Device { name, rate, reservable, mtu, header: layer.header, uncounted }
    }

    /// Its traffic control.
    pub(crate) fn device(&self, name: &str, mtu: Bytes, layer: LinkLayer) -> Result<Htb, String> {
        let device = self.describe(name, mtu, layer);
        let htb = Htb::new(device).map_err(|error| error.to_string())?;
        Ok(htb.with_aggregates(self.read_aggregates()?))
    }
}

#[cfg(test)]
mod tests;
