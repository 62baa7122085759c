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
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use netlink_packet_route::link::LinkLayerType;
use ontempo_foundation::{Bytes, Duration, Percent, Rate};
use ontempo_place::read_own;
use ontempo_reservation::htb::{Aggregate, Device, Htb};
use ontempo_reservation::integrity::{Algorithm, Guard, Key, NeighbourKeys};
use ontempo_reservation::{local, machine};
use serde::Deserialize;

use crate::aggregates::WrittenAggregate;
use crate::error::DaemonError;
use crate::link_layer::{LinkLayer, Overhead};
use crate::log::Level;

/// Bytes of a secret at least: shorter ones can be guessed.
const MIN_SECRET: usize = 16;
/// Refresh periods below this are a flood, above it state would live for hours.
const REFRESHES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];

/// The configuration of a daemon; read with [`Config::read`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// R, the mean time between refreshes.
    #[serde(default = "default_refresh")]
    pub(crate) refresh: Duration,
    /// The path of the local socket.
    #[serde(default = "default_socket")]
    pub(crate) socket: PathBuf,
    /// The group that may connect, besides root.
    pub(crate) group: Option<String>,
    /// The socket's mode, octal.
    #[serde(default = "default_mode")]
    mode: String,
    /// Interfaces without a key serve routers and hosts behind them, not this host's applications
    /// alone.
    #[serde(default)]
    pub(crate) trust_network: bool,
    /// Lines of this level and above are written.
    #[serde(default = "default_log")]
    pub(crate) log: Level,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    pub(crate) interfaces: BTreeMap<String, Interface>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Limits {
    sessions: Option<usize>,
    all_senders: Option<usize>,
    all_flows: Option<usize>,
    senders: Option<usize>,
    next_hops: Option<usize>,
    neighbours: Option<usize>,
    states: Option<usize>,
    applications: Option<usize>,
}

/// An interface with RSVP.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
    #[serde(default = "yes")]
    pub(crate) guaranteed: bool,
    /// Refresh reduction (RFC 2961).
    #[serde(default = "yes")]
    pub(crate) refresh_reduction: bool,
    /// Reservations are enforced by HTB; otherwise only admitted.
    #[serde(default = "yes")]
    pub(crate) enforce: bool,
    /// Reservations that share a class, to which packets come by their DSCP (RFC 2998).
    #[serde(default)]
    aggregates: Vec<WrittenAggregate>,
    /// Messages must be sealed with it (RFC 2747), except those of neighbours with their own.
    key: Option<WrittenKey>,
    /// Keys of neighbours, by their addresses.
    #[serde(default)]
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

/// A neighbour's key, or one for each direction.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenNeighbour {
    key: Option<WrittenKey>,
    send: Option<WrittenKey>,
    receive: Option<WrittenKey>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenKey {
    id: u64,
    #[serde(default = "default_algorithm")]
    algorithm: WrittenAlgorithm,
    secret_file: PathBuf,
    /// For a router of another make.
    identifiers: Option<Identifiers>,
}

/// Key Identifiers of both directions, 48 bits each.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Identifiers {
    send: u64,
    receive: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum WrittenAlgorithm {
    HmacMd5,
    HmacSha256,
}

fn default_refresh() -> Duration {
    machine::Config::default().refresh
}

/// Mode bits of access to a secret by those who are neither its owner nor in its group.
const OTHERS: u32 = 0o007;

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

fn default_algorithm() -> WrittenAlgorithm {
    WrittenAlgorithm::HmacSha256
}

fn yes() -> bool {
    true
}

impl Config {
    /// Reads the file and the secrets that it names.
    ///
    /// # Errors
    /// Where one cannot be read, a field is unknown, lacks its unit or has a value that cannot be;
    /// with the file and the field.
    pub fn read(path: &Path) -> Result<Self, DaemonError> {
        let failed = |what: String| DaemonError::Input(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|error| failed(error.to_string().trim_end().into()))?;
        config.check().map_err(failed)?;
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
            Err(format!("{field}: this cannot change while the daemon runs; restart it"))
        };
        if self.socket != new.socket {
            return refused("socket");
        }
        if (&self.group, &self.mode) != (&new.group, &new.mode) {
            return refused("group, mode");
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
        machine::Config {
            refresh: self.refresh,
            trust_network: self.trust_network,
            limits: machine::Limits {
                sessions: written.sessions.unwrap_or(default.sessions),
                all_senders: written.all_senders.unwrap_or(default.all_senders),
                all_flows: written.all_flows.unwrap_or(default.all_flows),
                senders: written.senders.unwrap_or(default.senders),
                next_hops: written.next_hops.unwrap_or(default.next_hops),
                neighbours: written.neighbours.unwrap_or(default.neighbours),
                states: written.states.unwrap_or(default.states),
            },
            ..machine::Config::default()
        }
    }

    /// Connections of applications at once.
    pub(crate) fn max_applications(&self) -> usize {
        self.limits.applications.unwrap_or(512)
    }
}

impl Interface {
    fn check(&self, name: &str) -> Result<(), String> {
        if self.rate == Rate::default() {
            return Err(".rate: must be above 0".to_owned());
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

impl WrittenKey {
    /// What its Key Identifiers differ by from those of other keys: all of a fixed one.
    fn sending_id(&self) -> (bool, u64) {
        match self.identifiers {
            Some(Identifiers { send, .. }) => (true, send),
            None => (false, self.id),
        }
    }

    fn read(&self, folder: &Path) -> Result<Key, String> {
        if self.id > u64::from(u16::MAX) {
            return Err(format!("id: {} must be at most {}", self.id, u16::MAX));
        }
        if let Some(Identifiers { send, receive }) = self.identifiers
            && (send == receive || send.max(receive) >= 1 << 48)
        {
            return Err("identifiers: send and receive must differ and have 48 bits".to_owned());
        }
        let path = folder.join(&self.secret_file);
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let secret = read_own(&path, OTHERS, || false).map_err(|error| failed(&error))?;
        let secret = secret.trim_ascii();
        if secret.len() < MIN_SECRET {
            return Err(failed(&format_args!(
                "the secret has {} bytes; it must have {MIN_SECRET} at least",
                secret.len()
            )));
        }
        let algorithm = match self.algorithm {
            WrittenAlgorithm::HmacMd5 => Algorithm::HmacMd5,
            WrittenAlgorithm::HmacSha256 => Algorithm::HmacSha256,
        };
        let key = Key::new(self.id, algorithm, secret.to_vec());
        Ok(match self.identifiers {
            Some(Identifiers { send, receive }) => key.with_identifiers(send, receive),
            None => key,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use ontempo_reservation::htb::Serves;

    use super::*;

    /// Reads the configuration of an interface with these lines; files `a`, `b` hold secrets.
    fn read(test: &str, lines: &str) -> Result<Config, String> {
        let name = format!("ontempo-config-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        for (name, secret) in [("a", "sixteen bytes of a"), ("b", "sixteen bytes of b")] {
            fs::write(folder.join(name), secret).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let text = format!("[interfaces.eth1]\nrate = \"1 Mbit/s\"\n{lines}");
        fs::write(folder.join("rsvpd.toml"), text).unwrap();
        let config = Config::read(&folder.join("rsvpd.toml"));
        fs::remove_dir_all(folder).unwrap();
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn neighbours_have_keys_of_their_own_for_both_directions_or_for_each() {
        let lines = "key = { id = 1, secret-file = \"a\" }\n\
                     [interfaces.eth1.neighbours.\"10.1.0.2\"]\n\
                     key = { id = 2, secret-file = \"b\" }\n\
                     [interfaces.eth1.neighbours.\"fe80::2\"]\n\
                     send = { id = 3, secret-file = \"a\" }\n\
                     receive = { id = 3, secret-file = \"b\" }\n";
        let config = read("keys", lines).unwrap();
        let interface = &config.interfaces["eth1"];
        assert!(interface.is_authenticated());
        let mut guard = interface.guard(1, 8).unwrap();
        let own: IpAddr = "10.1.0.1".parse().unwrap();
        for (to, number) in [(None, 1), (Some("10.1.0.2"), 2), (Some("10.1.0.9"), 1)] {
            let to = to.map(|to| to.parse().unwrap());
            let sealed = guard.seal(own, to, &[0x10, 25, 0, 0, 64, 0, 0, 8]).unwrap();
            // The last two bytes of the Key Identifier.
            assert_eq!(sealed[18..20], [0, number], "{to:?}");
        }
        let alone = "[interfaces.eth1.neighbours.\"10.1.0.2\"]\n\
                     key = { id = 2, secret-file = \"b\" }\n";
        let config = read("alone", alone).unwrap();
        assert!(config.interfaces["eth1"].is_authenticated());
    }

    #[test]
    fn aggregates_have_code_points_of_their_own_and_other_ones_are_named() {
        let of = |lines: &str| read("aggregates", &format!("aggregates = [{lines}]\n"));
        let config = of("{ dscp = \"AF41\", up-to = \"1 Mbit/s\" }, { dscp = \"ef\", service = \
                         \"guaranteed\" }, { dscp = \"CS5\" }, { dscp = \"12\" }")
        .unwrap();
        let all = config.interfaces["eth1"].read_aggregates().unwrap();
        let dscps: Vec<u8> = all.iter().map(|one| one.dscp).collect();
        assert_eq!(dscps, [34, 46, 40, 12]);
        assert_eq!(all[0].up_to, Some(Rate::from_bits_per_sec(1_000_000)));
        assert_eq!((all[0].serves, all[1].serves), (Serves::Both, Serves::Guaranteed));
        assert!(config.shown().contains("enforced, with 4 aggregates"), "{}", config.shown());
        for (lines, words) in [
            (
                "{ dscp = \"AF44\" }",
                "interfaces.eth1.aggregates[0].dscp: \"AF44\" must be a code point",
            ),
            ("{ dscp = \"CS6\" }", "not 0, CS6 or CS7"),
            ("{ dscp = \"0\" }", "not 0, CS6 or CS7"),
            ("{ dscp = \"64\" }", "must be a code point"),
            ("{ dscp = \"éé\" }", "must be a code point"),
            (
                "{ dscp = \"EF\" }, { dscp = \"46\" }",
                "interfaces.eth1.aggregates: two have the DSCP 46",
            ),
            // Of these the line is shown.
            ("{ dscp = \"EF\", up-to = \"5\" }", "up-to"),
            ("{ dscp = \"EF\", service = \"best\" }", "`guaranteed`"),
        ] {
            let error = of(lines).expect_err("it is wrong");
            assert!(error.contains(words), "{words}: {error}");
        }
        let error = read("aggregates", "enforce = false\naggregates = [{ dscp = \"EF\" }]\n");
        assert!(error.expect_err("it has no classes").contains(".aggregates: "));
    }

    #[test]
    fn wrong_keys_of_neighbours_are_named() {
        let of = |lines: &str| format!("[interfaces.eth1.neighbours.\"10.1.0.2\"]\n{lines}\n");
        let key = "key = { id = 1, secret-file = \"a\" }";
        for (lines, words) in [
            (of("send = { id = 3, secret-file = \"a\" }"), "give key, or send and receive"),
            (of(&format!("{key}\nsend = {{ id = 3, secret-file = \"a\" }}")), "give key, or send"),
            (of("key = { id = 1, secret-file = \"none\" }"), "none: "),
            (format!("{key}\n{}", of(key)), "key has the same id"),
            ("[interfaces.eth1.neighbours.r2]\n".to_owned(), "neighbours"),
        ] {
            let error = read("wrong", &lines).expect_err("it is wrong");
            assert!(error.contains(words) && error.contains("eth1"), "{words}: {error}");
        }
    }

    #[test]
    fn a_secret_that_another_user_knows_or_chooses_is_no_key() {
        let folder = std::env::temp_dir().join(format!("ontempo-secrets-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (secret, config) = (folder.join("a"), folder.join("rsvpd.toml"));
        fs::write(&secret, "sixteen bytes of a").unwrap();
        fs::write(
            &config,
            "[interfaces.eth1]\nrate = \"1 Mbit/s\"\nkey = { id = 1, secret-file = \"a\" }\n",
        )
        .unwrap();
        let mode = |mode| fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        let refused = |why: &str| {
            let error = Config::read(&config).expect_err(why).to_string();
            assert!(error.contains("interfaces.eth1") && error.contains(why), "{error}");
        };
        mode(0o640);
        Config::read(&config).unwrap();
        mode(0o644);
        refused("other users have access to it (mode 644)");
        mode(0o660);
        refused("other users may write it (mode 660)");
        mode(0o600);
        if ontempo_testing::require_root() {
            chown(&secret, Some(65_534), None).unwrap();
            refused("user 65534 owns it");
            // Nor is a link of another user followed, in a folder that others can write to.
            chown(&secret, Some(0), None).unwrap();
            fs::rename(&secret, folder.join("b")).unwrap();
            symlink("b", &secret).unwrap();
            std::os::unix::fs::lchown(&secret, Some(65_534), None).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
            refused("the link belongs to user 65534");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
