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
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ontempo_foundation::{Bytes, Duration, Percent, Rate};
use ontempo_reservation::htb::{Device, Htb};
use ontempo_reservation::integrity::{Algorithm, Key};
use ontempo_reservation::{local, machine};
use serde::Deserialize;

use crate::error::DaemonError;

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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Interface {
    /// The link's rate.
    pub(crate) rate: Rate,
    /// The share of it that may be reserved.
    #[serde(default = "default_reservable")]
    reservable: Percent,
    /// Limit of the sum of the bursts; where not given, the bytes of one second at the link's rate.
    buffer: Option<Bytes>,
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
    /// Messages must be sealed with it (RFC 2747).
    key: Option<WrittenKey>,
    /// The same, read.
    #[serde(skip)]
    pub(crate) secret: Option<Key>,
}

#[derive(Clone, Debug, Deserialize)]
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
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identifiers {
    send: u64,
    receive: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenAlgorithm {
    HmacMd5,
    HmacSha256,
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
            let Some(key) = &interface.key else { continue };
            interface.secret = Some(
                key.read(folder)
                    .map_err(|what| failed(format!("interfaces.{name}.key: {what}")))?,
            );
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
        self.device(name, Bytes::new(1500)).map_err(|what| format!(": {what}"))?;
        Ok(())
    }

    /// What of the rate may be reserved.
    pub(crate) fn reservable(&self) -> Rate {
        let share = u128::from(self.rate.as_bits_per_sec())
            * u128::from(self.reservable.as_thousandths())
            / u128::from(Percent::ALL.as_thousandths());
        // No more than the rate, which fits.
        Rate::from_bits_per_sec(u64::try_from(share).unwrap_or(u64::MAX))
    }

    pub(crate) fn buffer(&self) -> Bytes {
        self.buffer.unwrap_or(Bytes::new(self.rate.as_bits_per_sec() / 8))
    }

    /// Its traffic control.
    pub(crate) fn device(&self, name: &str, mtu: Bytes) -> Result<Htb, String> {
        let (name, rate, reservable) = (name.to_owned(), self.rate, self.reservable());
        Htb::new(Device { name, rate, reservable, mtu }).map_err(|error| error.to_string())
    }
}

impl WrittenKey {
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
        let mode = fs::metadata(&path).map_err(|error| failed(&error))?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(failed(&"everybody may read or write it; set its mode to 0600"));
        }
        let secret = fs::read(&path).map_err(|error| failed(&error))?;
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
