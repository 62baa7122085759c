//! Options, by name and text.

use std::ffi::c_char;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;

use ontempo_foundation::{Bytes, Duration};
use ontempo_transport::live::Options;
use ontempo_transport::{CongestionName, Identity, Token, Trust};

use crate::handle::{Table, ontempo_options};
use crate::status::ontempo_status;
use crate::status::{Failure, ONTEMPO_ERROR_IDENTITY, ONTEMPO_ERROR_OPTION, ONTEMPO_OK, call};
use crate::text::{place, text};

static OPTIONS: Table<Mutex<Chosen>> = Table::new("set of options");

/// The names of options, for the error of an unknown one.
const NAMES: [&str; 16] = [
    "token",
    "anyone",
    "name",
    "fingerprint",
    "ca-file",
    "insecure",
    "identity-file",
    "certificate-file",
    "key-file",
    "congestion",
    "congestion.PARAMETER",
    "handshake-timeout",
    "idle-timeout",
    "dscp",
    "send-bytes",
    "receive-bytes",
];

/// The options that were set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    options: Options,
    token: Option<Token>,
    name: Option<String>,
    trust: Option<Trust>,
    identity: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    congestion: Option<String>,
    parameters: Vec<(String, String)>,
}

fn wrong(name: &str, value: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(ONTEMPO_ERROR_OPTION, format!("{name} is `{value}`: {why}"))
}

fn parsed<T: FromStr>(name: &str, value: &str) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error| wrong(name, value, error))
}

fn yes(name: &str, value: &str) -> Result<bool, Failure> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(name, value, "it is true or false")),
    }
}

fn read(name: &str, path: &PathBuf) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let sentence = format!("{name}: {}: cannot read it: {error}", path.display());
        Failure::new(ONTEMPO_ERROR_IDENTITY, sentence)
    })
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::new(ONTEMPO_ERROR_IDENTITY, error.to_string())
}

impl Chosen {
    /// The options of a handle; the defaults for NULL.
    pub(crate) fn of(handle: *const ontempo_options) -> Result<Self, Failure> {
        if handle.is_null() {
            return Ok(Self::default());
        }
        let found = OPTIONS.get(handle)?;
        let chosen = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(chosen.clone())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let configuration = &mut self.options.configuration;
        match name {
            // A token is a secret: its errors do not repeat it.
            "token" => {
                let token = Token::new(value.as_bytes());
                self.token = Some(token.map_err(|error| {
                    Failure::new(ONTEMPO_ERROR_OPTION, format!("token: {error}"))
                })?);
            }
            "anyone" => self.token = yes(name, value)?.then(Token::anyone),
            "name" => self.name = Some(value.to_owned()),
            "fingerprint" => self.trust = Some(Trust::Fingerprint(parsed(name, value)?)),
            "ca-file" => {
                let roots = Trust::from_pem(&read(name, &value.into())?).map_err(unusable)?;
                self.trust = Some(roots);
            }
            "insecure" => self.trust = yes(name, value)?.then_some(Trust::Insecure),
            "identity-file" => self.identity = Some(value.into()),
            "certificate-file" => self.certificate = Some(value.into()),
            "key-file" => self.key = Some(value.into()),
            "congestion" => {
                let _: CongestionName = parsed(name, value)?;
                self.congestion = Some(value.to_owned());
            }
            "handshake-timeout" => {
                configuration.handshake_timeout = parsed::<Duration>(name, value)?;
            }
            "idle-timeout" => configuration.idle_timeout = parsed::<Duration>(name, value)?,
            "dscp" => self.options.socket.dscp = parsed(name, value)?,
            "send-bytes" => configuration.send_bytes = parsed::<Bytes>(name, value)?,
            "receive-bytes" => configuration.limits.bytes = parsed::<Bytes>(name, value)?.get(),
            _ => {
                let Some(parameter) = name.strip_prefix("congestion.") else {
                    let known = NAMES.join(", ");
                    let sentence = format!("there is no option `{name}`; there are {known}");
                    return Err(Failure::new(ONTEMPO_ERROR_OPTION, sentence));
                };
                self.parameters.retain(|(name, _)| name != parameter);
                self.parameters.push((parameter.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    }

    /// The endpoint's options. The congestion control is BBR for media unless another is named, as of
    /// `ontempo send`.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let mut options = self.options.clone();
        let name = self.congestion.as_deref().map_or(Ok(CongestionName::FOR_MEDIA), |name| {
            parsed::<CongestionName>("congestion", name)
        })?;
        let set: Vec<(&str, &str)> =
            self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        options.configuration.congestion = name.over_udp(&set).map_err(|error| {
            Failure::new(ONTEMPO_ERROR_OPTION, format!("congestion.PARAMETER: {error}"))
        })?;
        Ok(options)
    }

    pub(crate) fn trust(&self) -> Result<Trust, Failure> {
        self.trust.clone().ok_or_else(|| {
            let sentence = "the peer cannot be verified: set fingerprint, ca-file or insecure";
            Failure::new(ONTEMPO_ERROR_OPTION, sentence)
        })
    }

    /// The name in the peer's certificate; without one, the host of the address.
    pub(crate) fn name(&self, address: &str) -> String {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.name.clone().unwrap_or_else(|| host.to_owned())
    }

    /// What a client presents.
    pub(crate) fn presented(&self) -> Token {
        self.token.clone().unwrap_or_else(Token::anyone)
    }

    /// What a listener demands.
    pub(crate) fn demanded(&self) -> Result<Token, Failure> {
        self.token.clone().ok_or_else(|| {
            let sentence = "who may connect is not said: set token, or anyone to true";
            Failure::new(ONTEMPO_ERROR_OPTION, sentence)
        })
    }

    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        match (&self.certificate, &self.key, &self.identity) {
            (Some(certificate), Some(key), _) => {
                let chain = read("certificate-file", certificate)?;
                Identity::from_pem(&chain, &read("key-file", key)?).map_err(unusable)
            }
            (None, None, Some(path)) => {
                Identity::load_or_create(path, &["localhost"]).map_err(unusable)
            }
            (None, None, None) => Identity::self_signed(&["localhost"]).map_err(unusable),
            _ => {
                let sentence = "certificate-file and key-file belong together";
                Err(Failure::new(ONTEMPO_ERROR_OPTION, sentence))
            }
        }
    }
}

/// Makes a set of options; `ontempo_options_free` ends it.
///
/// # Safety
/// `options` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_options_new(options: *mut *mut ontempo_options) -> ontempo_status {
    call(|| {
        // SAFETY: as this function asks.
        *unsafe { place("options", options) }? = OPTIONS.keep(Mutex::default());
        Ok(ONTEMPO_OK)
    })
}

/// Sets an option; durations, sizes and rates have units, as in "300 ms" and "8 MB".
///
/// | name | value |
/// | --- | --- |
/// | token | secret that a client presents and a listener demands, at most 256 bytes |
/// | anyone | true: a listener without token admits everybody |
/// | fingerprint | of the peer's certificate, 64 hexadecimal digits |
/// | ca-file, name | issuers of the peer's certificate, PEM; the name in it (default: the host) |
/// | insecure | true: any peer is trusted, and gets the token; for tests |
/// | identity-file | the listener's certificate and key, created if it does not exist |
/// | certificate-file, key-file | the listener's, in PEM |
/// | congestion, congestion.PARAMETER | congestion control and its parameters; BBR for media |
/// | handshake-timeout, idle-timeout | durations |
/// | dscp | of the packets, such as af41 |
/// | send-bytes, receive-bytes | what a flow may queue, and what is taken of each of at most 16 flows and the program has not received |
///
/// # Safety
/// Both texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_options_set(
    options: *mut ontempo_options,
    name: *const c_char,
    value: *const c_char,
) -> ontempo_status {
    call(|| {
        let found = OPTIONS.get(options)?;
        // SAFETY: as this function asks.
        let (name, value) = unsafe { (text("name", name)?, text("value", value)?) };
        let mut chosen = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        chosen.set(name, value)?;
        Ok(ONTEMPO_OK)
    })
}

/// Ends a set of options; what was made with it goes on.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_options_free(options: *mut ontempo_options) -> ontempo_status {
    call(|| OPTIONS.take(options).map(|_| ONTEMPO_OK))
}
