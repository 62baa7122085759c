//! Who may send: tokens, and the URL that a receiver prints and its sender takes.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;

use ontempo_place::{read_token, write_new};
use ontempo_session::{ReceiverUrl, TOKEN_VARIABLE, own_host, random_token};
use ontempo_transport::{Fingerprint, Token, Trust};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

use crate::arguments::{Admission, Credentials};
use crate::failure::{Failure, environment};
use crate::output::write_stderr;
use crate::place::{is_of_another_user, output_failure};
use crate::signals::is_stopped;

/// The option of the file with a token.
const TOKEN_FILE: &str = "--token-file";

/// Where a program would admit everybody: at an address that others can reach, its user must say so.
/// `instead` is what the user can do, beside listening at the loopback.
pub(crate) fn check_admission(at: SocketAddr, anyone: bool, instead: &str) -> Result<(), Failure> {
    if anyone || at.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(wrong(format!(
        "--listen {at}: everybody who reaches it could connect, without a token: {instead}, or \
         listen at 127.0.0.1"
    )))
}

/// Says that anyone may use a program, where others reach its address: `what` they may do, and what limits it.
pub(crate) fn tell_of_anyone(at: SocketAddr, what: &str) {
    if !at.ip().to_canonical().is_loopback() {
        write_stderr(&format!("anyone who reaches {at} may {what}"));
    }
}

/// The token that both ends of a program were given; empty without one.
pub(crate) fn shared_token(options: &Credentials) -> Result<Token, Failure> {
    token(&admitted_text(options)?.unwrap_or_default(), "the token")
}

/// The text of the token that a receiver asks for, if any; a file that is missing is created.
pub(crate) fn admitted_text(options: &Credentials) -> Result<Option<String>, Failure> {
    match (&options.token, &options.token_file) {
        (Some(text), _) => given(text).map(Some),
        (None, Some(path)) => match token_in(TOKEN_FILE, path)? {
            Some(text) => Ok(Some(text)),
            None => token_into(TOKEN_FILE, path).map(Some),
        },
        (None, None) => from_environment(),
    }
}

/// The text of the token that a sender presents, if any.
pub(crate) fn presented_text(options: &Credentials) -> Result<Option<String>, Failure> {
    match given_text(options)? {
        Some(text) => Ok(Some(text)),
        None => from_environment(),
    }
}

/// The same of the options alone.
fn given_text(options: &Credentials) -> Result<Option<String>, Failure> {
    match (&options.token, &options.token_file) {
        (Some(text), _) => given(text).map(Some),
        (None, Some(path)) => token_in(TOKEN_FILE, path)?.map(Some).ok_or_else(|| {
            Failure::Environment(format!("--token-file {}: no such file", path.display()))
        }),
        (None, None) => Ok(None),
    }
}

/// A receiver's token.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) token: Token,
    text: String,
    origin: Origin,
}

/// Where a receiver's token is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It was made now, and is printed.
    Made,
    /// It was given, and is not printed.
    Given,
    /// Any sender is admitted.
    None,
}

fn wrong(sentence: impl Into<String>) -> Failure {
    Failure::Input(sentence.into())
}

/// A token of this text; none if it is empty, which has been said by then.
fn token(text: &str, option: &str) -> Result<Token, Failure> {
    if text.is_empty() {
        return Ok(Token::anyone());
    }
    Token::new(text.as_bytes()).map_err(|error| wrong(format!("{option}: {error}")))
}

/// The text of `--token`, which must not be empty.
fn given(text: &str) -> Result<String, Failure> {
    if text.is_empty() {
        return Err(wrong(
            "--token: an empty token admits anybody: leave it out for a random one, or say --anyone",
        ));
    }
    Ok(text.to_owned())
}

/// The token in the environment; an empty variable counts as none.
fn from_environment() -> Result<Option<String>, Failure> {
    match std::env::var(TOKEN_VARIABLE) {
        Ok(text) => Ok((!text.is_empty()).then_some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(wrong(format!("${TOKEN_VARIABLE}: the token is not UTF-8 text")))
        }
    }
}

fn no_randomness(error: &io::Error) -> Failure {
    Failure::Environment(format!("no random token: /dev/urandom: {error}"))
}

/// Why the file of a secret cannot be read.
pub(crate) fn unreadable(named: &str, error: &io::Error) -> Failure {
    if is_of_another_user(error) {
        wrong(format!("{named}: {error}"))
    } else if error.kind() == ErrorKind::Interrupted {
        Failure::Interrupted(format!("{named}: {error}"))
    } else {
        Failure::Environment(format!("{named}: cannot be read: {error}"))
    }
}

/// The token in a file, without the ending of its line; `None` if there is no file.
fn token_in(option: &str, path: &Path) -> Result<Option<String>, Failure> {
    let named = format!("{option} {}", path.display());
    match read_token(path, is_stopped) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&named, &error)),
        Ok(Some(text)) => Ok(Some(text)),
        Ok(None) => Err(wrong(format!("{named}: it must hold one line, the token"))),
    }
}

/// Writes a new token to a new file, which only this user can read.
fn token_into(option: &str, path: &Path) -> Result<String, Failure> {
    let text = random_token().map_err(|error| no_randomness(&error))?;
    write_new(path, format!("{text}\n").as_bytes())
        .map_err(|error| output_failure(&format!("{option} {}", path.display()), &error))?;
    Ok(text)
}

/// The token that senders must present: that of the options or of the environment, or a new one.
pub(crate) fn admitted(options: &Admission) -> Result<Admitted, Failure> {
    let (text, origin) = if options.anyone {
        (String::new(), Origin::None)
    } else if let Some(text) = &options.credentials.token {
        (given(text)?, Origin::Given)
    } else if let Some(path) = &options.credentials.token_file {
        match token_in(TOKEN_FILE, path)? {
            Some(text) => (text, Origin::Given),
            None => (token_into(TOKEN_FILE, path)?, Origin::Made),
        }
    } else if let Some(text) = from_environment()? {
        (text, Origin::Given)
    } else {
        (random_token().map_err(|error| no_randomness(&error))?, Origin::Made)
    };
    Ok(Admitted { token: token(&text, "the token")?, text, origin })
}

/// The token that viewers of a relay must present: of a file, which is made if it is missing, or a new
/// one. The environment has that of sources, with which viewers could send.
pub(crate) fn viewers_token(path: Option<&Path>) -> Result<Admitted, Failure> {
    let option = "--viewers-token-file";
    let (text, origin) = match path {
        Some(path) => match token_in(option, path)? {
            Some(text) => (text, Origin::Given),
            None => (token_into(option, path)?, Origin::Made),
        },
        None => (random_token().map_err(|error| no_randomness(&error))?, Origin::Made),
    };
    Ok(Admitted { token: token(&text, "the token of viewers")?, text, origin })
}

impl Admitted {
    /// True if both are the same token.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.token == other.token
    }

    /// The URL of a receiver at `local`. A token that was given is only in it if `with_token`.
    pub(crate) fn url(
        &self,
        local: SocketAddr,
        fingerprint: Fingerprint,
        with_token: bool,
    ) -> ReceiverUrl {
        let ip = local.ip();
        let host = if ip.is_unspecified() { own_host() } else { ip.to_string() };
        let has_token = with_token || self.origin == Origin::Made;
        let token = if has_token { self.text.clone() } else { String::new() };
        ReceiverUrl { host, port: local.port(), fingerprint, token }
    }

    /// The text of the token.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// True if the token was made now, and is printed.
    pub(crate) fn is_made(&self) -> bool {
        self.origin == Origin::Made
    }

    /// The command that the other side pastes, `command` with the URL, and a line about who is
    /// admitted, if that is not said by the token in it.
    pub(crate) fn invitation(&self, command: &str, url: &ReceiverUrl) -> String {
        let url = url.to_string();
        // A shell takes brackets for a pattern of file names.
        let url = if url.contains('[') { format!("'{url}'") } else { url };
        match self.origin {
            Origin::Made => format!("{command} {url}"),
            Origin::Given => format!("{command} {url} --token-file FILE"),
            Origin::None => {
                format!("anyone who reaches this port may connect (--anyone)\n{command} {url}")
            }
        }
    }

    /// True if no token is needed.
    pub(crate) fn is_anyone(&self) -> bool {
        self.origin == Origin::None
    }
}

/// The URL as a QR code of block characters.
pub(crate) fn qr(url: &ReceiverUrl) -> Result<String, Failure> {
    let code =
        QrCode::new(url.to_string()).map_err(|error| environment(format!("--qr: {error}")))?;
    // Terminals are dark, and readers expect a dark code on a light ground.
    let mut image = code.render::<Dense1x2>();
    Ok(image.dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build())
}

/// A receiver as a sender's user names it.
pub(crate) struct Destination {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// The host, expected in the certificate where names are checked.
    pub(crate) name: String,
    url: Option<ReceiverUrl>,
}

impl Destination {
    /// Reads `HOST:PORT` or `ontempo://HOST:PORT/FINGERPRINT#TOKEN`.
    pub(crate) fn read(text: &str, option: &str) -> Result<Self, Failure> {
        // A URL without its beginning is not taken for a name.
        if !text.contains(['/', '#']) {
            let host = text.rsplit_once(':').map_or("", |(host, _)| host);
            let name = host.trim_matches(['[', ']']).to_owned();
            return Ok(Self { address: text.to_owned(), name, url: None });
        }
        // The text is not repeated: it may hold a token.
        let url: ReceiverUrl = text.parse().map_err(|error| wrong(format!("{option}{error}")))?;
        let host = &url.host;
        let address = if host.contains(':') {
            format!("[{host}]:{}", url.port)
        } else {
            format!("{host}:{}", url.port)
        };
        Ok(Self { address, name: url.host.clone(), url: Some(url) })
    }

    /// False if both are URLs with different fingerprints or tokens.
    pub(crate) fn is_same_receiver(&self, other: &Self) -> bool {
        match (&self.url, &other.url) {
            (Some(one), Some(other)) => {
                let is_same_token =
                    one.token == other.token || one.token.is_empty() || other.token.is_empty();
                one.fingerprint == other.fingerprint && is_same_token
            }
            _ => true,
        }
    }

    /// True if it is a URL.
    pub(crate) fn is_url(&self) -> bool {
        self.url.is_some()
    }

    /// How the receiver is verified: by the URL, or by `other`, the options beside it.
    pub(crate) fn trust(
        &self,
        fingerprint: Option<Fingerprint>,
        other: impl FnOnce() -> Result<Option<Trust>, Failure>,
    ) -> Result<Trust, Failure> {
        let of_url = self.url.as_ref().map(|url| url.fingerprint);
        match (of_url, fingerprint) {
            (Some(of_url), Some(given)) if of_url != given => {
                Err(wrong("--fingerprint: the URL has another fingerprint: leave one of them out"))
            }
            (Some(fingerprint), _) => match other()? {
                None => Ok(Trust::Fingerprint(fingerprint)),
                Some(_) => Err(wrong(
                    "the URL has the receiver's fingerprint: leave out --trust and --insecure",
                )),
            },
            (None, Some(fingerprint)) => Ok(Trust::Fingerprint(fingerprint)),
            (None, None) => other()?.ok_or_else(|| {
                wrong(
                    "the receiver cannot be verified: give the URL that it prints, or its \
                     --fingerprint, or --insecure",
                )
            }),
        }
    }

    /// The token to present: that of the URL, of the options, or of the environment; empty without.
    pub(crate) fn token(&self, options: &Credentials) -> Result<Token, Failure> {
        let given = given_text(options)?;
        let of_url = self.url.as_ref().map(|url| &url.token).filter(|token| !token.is_empty());
        let text = match (of_url.cloned(), given) {
            (Some(of_url), Some(given)) if of_url != given => {
                let sentence = "the URL has another token: leave one of them out";
                return Err(wrong(format!("--token, --token-file: {sentence}")));
            }
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) => from_environment()?.unwrap_or_default(),
        };
        token(&text, "the token")
    }
}
