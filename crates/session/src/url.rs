//! The URL of a receiver: all that a sender needs to find it, to verify it and to be admitted.

use std::fmt;
use std::fs;
use std::net::UdpSocket;
use std::str::FromStr;

use ontempo_transport::{Fingerprint, Token};

/// The scheme, with what follows it.
const SCHEME: &str = "ontempo://";

/// The environment variable of the token. Other users cannot read it, as they can the arguments.
pub const TOKEN_VARIABLE: &str = "ONTEMPO_TOKEN";

/// Characters of a host or a token that are written as they are (RFC 3986, section 2.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// `ontempo://HOST:PORT/FINGERPRINT#TOKEN`. The token is a fragment (RFC 3986, section 3.5): what
/// takes it for the URL of a web page sends it to nobody. Bytes of the token other than letters,
/// digits and `-._~` are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverUrl {
    /// The host: a name, or an address, which is in brackets in the text if it is of IPv6.
    pub host: String,
    /// The UDP port, above 0.
    pub port: u16,
    /// The fingerprint of the receiver's certificate.
    pub fingerprint: Fingerprint,
    /// The token, at most 256 bytes; empty if the receiver admits everybody, or if the token is
    /// given elsewhere.
    pub token: String,
}

/// Why a text is not the URL of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverUrlError {
    /// It does not begin with `ontempo://`.
    Scheme,
    /// No host, or one with a character that no host has.
    Host,
    /// No port, or not one from 1 to 65535.
    Port,
    /// No fingerprint of 64 hexadecimal digits.
    Fingerprint,
    /// An empty or too long token, or a character that must be percent-encoded.
    Token,
}

impl fmt::Display for ReceiverUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "not the URL of a receiver: it begins with ontempo://",
            Self::Host => {
                "the host is wrong: write a name or an address, one of IPv6 in brackets, as in \
                 ontempo://[::1]:4433/FINGERPRINT#TOKEN"
            }
            Self::Port => {
                "the port is missing or wrong: write one from 1 to 65535, as in \
                 ontempo://host.example:4433/FINGERPRINT#TOKEN"
            }
            Self::Fingerprint => {
                "the fingerprint is missing or wrong: 64 hexadecimal digits stand behind the port; \
                 paste all that the receiver has printed"
            }
            Self::Token => {
                "the token behind # is wrong: 1 to 256 letters, digits and -._~, all else as % and \
                 two hexadecimal digits; quote the URL in a shell"
            }
        })
    }
}

impl std::error::Error for ReceiverUrlError {}

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, fingerprint, token } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{SCHEME}{open}{host}{close}:{port}/{fingerprint}")?;
        for (place, byte) in token.bytes().enumerate() {
            let mark = if place == 0 { "#" } else { "" };
            if is_plain(byte) {
                write!(f, "{mark}{}", char::from(byte))?;
            } else {
                write!(f, "{mark}%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for ReceiverUrl {
    type Err = ReceiverUrlError;

    fn from_str(text: &str) -> Result<Self, ReceiverUrlError> {
        let ReceiverAddress { host, port, fingerprint, token } = text.parse()?;
        // A URL without a host is that of a listener.
        if host.is_empty() {
            return Err(ReceiverUrlError::Host);
        }
        let fingerprint = fingerprint.ok_or(ReceiverUrlError::Fingerprint)?;
        Ok(Self { host, port, fingerprint, token })
    }
}

/// A [`ReceiverUrl`] whose fingerprint may be given elsewhere: also `ontempo://HOST:PORT`. A listener may
/// leave out HOST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverAddress {
    /// As [`ReceiverUrl::host`]; empty: all addresses.
    pub host: String,
    /// The UDP port, above 0.
    pub port: u16,
    /// The fingerprint of the receiver's certificate.
    pub fingerprint: Option<Fingerprint>,
    /// As [`ReceiverUrl::token`].
    pub token: String,
}

impl ReceiverAddress {
    /// `HOST:PORT`; an address of IPv6 in brackets.
    pub fn authority(&self) -> String {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{open}{}{close}:{}", self.host, self.port)
    }
}

impl FromStr for ReceiverAddress {
    type Err = ReceiverUrlError;

    fn from_str(text: &str) -> Result<Self, ReceiverUrlError> {
        let scheme = text.get(..SCHEME.len()).ok_or(ReceiverUrlError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(ReceiverUrlError::Scheme);
        }
        let rest = &text[SCHEME.len()..];
        let (rest, token) = match rest.split_once('#') {
            Some((rest, token)) => (rest, decoded(token).ok_or(ReceiverUrlError::Token)?),
            None => (rest, String::new()),
        };
        let (authority, fingerprint) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(after) => {
                let (host, port) = after.split_once(']').ok_or(ReceiverUrlError::Host)?;
                if !host.contains(':') {
                    return Err(ReceiverUrlError::Host);
                }
                (host, port.strip_prefix(':').ok_or(ReceiverUrlError::Port)?)
            }
            None => {
                let (host, port) = authority.split_once(':').ok_or(ReceiverUrlError::Port)?;
                (host, port)
            }
        };
        // The zone of a link-local address stands behind a %.
        let is_of_host = |byte: u8| is_plain(byte) || b":%".contains(&byte);
        // Without brackets an address of IPv6 looks like one without a host.
        if !host.bytes().all(is_of_host) || host.is_empty() && port.contains(':') {
            return Err(ReceiverUrlError::Host);
        }
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port > 0);
        let fingerprint = match fingerprint {
            "" => None,
            digits => Some(digits.parse().map_err(|_| ReceiverUrlError::Fingerprint)?),
        };
        let port = port.ok_or(ReceiverUrlError::Port)?;
        Ok(Self { host: host.to_owned(), port, fingerprint, token })
    }
}

/// A name or an address of this host: its address on the route outwards. Nothing is sent.
pub fn own_host() -> String {
    // Addresses for documentation (RFC 5737, RFC 3849), which the default route leads to.
    let outwards = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let address = outwards.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_unspecified()).then(|| ip.to_string())
    });
    let name = || {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    address.or_else(name).unwrap_or_else(|| "localhost".to_owned())
}

/// A token without its percent-encoding; `None` if it is not one.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push((digit()? << 4 | digit()?) as u8);
        } else if is_plain(byte) {
            bytes.push(byte);
        } else {
            return None;
        }
    }
    let token = String::from_utf8(bytes).ok().filter(|token| !token.is_empty())?;
    Token::new(token.as_bytes()).is_ok().then_some(token)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINGERPRINT: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn read(text: &str) -> Result<ReceiverUrl, ReceiverUrlError> {
        text.replace("FP", FINGERPRINT).parse()
    }

    #[test]
    fn each_error_names_the_part_that_is_wrong() {
        use ReceiverUrlError::{Fingerprint, Host, Port, Scheme, Token};
        for (text, error) in [
            ("", Scheme),
            ("http://host:1/FP", Scheme),
            ("ontempo:/host:1/FP", Scheme),
            ("ontempo://host/FP", Port),
            ("ontempo://host:0/FP", Port),
            ("ontempo://host:65536/FP", Port),
            ("ontempo://host:+1/FP", Port),
            ("ontempo://[::1]/FP", Port),
            ("ontempo://::1:4433/FP", Host),
            ("ontempo://:1/FP", Host),
            ("ontempo://who@host:1/FP", Host),
            ("ontempo://[host]:1/FP", Host),
            ("ontempo://[::1:1/FP", Host),
            ("ontempo://host:1", Fingerprint),
            ("ontempo://host:1#token", Fingerprint),
            ("ontempo://host:1/FP?a=b#token", Fingerprint),
            ("ontempo://host:1/FP/#token", Fingerprint),
            ("ontempo://host:1/FP#", Token),
            ("ontempo://host:1/FP#a b", Token),
            ("ontempo://host:1/FP#%4", Token),
            ("ontempo://host:1/FP#%FF", Token),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
        assert_eq!(read(&format!("ontempo://host:1/FP#{}", "a".repeat(257))), Err(Token));
        let url = read("ONTEMPO://[fe80::1%eth0]:4433/FP#se%20cret").expect("a URL");
        assert_eq!(
            (url.host.as_str(), url.port, url.token.as_str()),
            ("fe80::1%eth0", 4433, "se cret")
        );
    }

    #[test]
    fn the_fingerprint_and_a_listeners_host_may_be_left_out() {
        let read = |text: &str| text.parse::<ReceiverAddress>();
        let address = read("ontempo://[::1]:4433#a").expect("an address");
        assert_eq!((address.authority().as_str(), address.token.as_str()), ("[::1]:4433", "a"));
        assert_eq!(address.fingerprint, None);
        assert_eq!(read("ontempo://:4433").expect("an address").authority(), ":4433");
        assert_eq!(read("ontempo://host:1/abc"), Err(ReceiverUrlError::Fingerprint));
        assert_eq!(read("ontempo://host"), Err(ReceiverUrlError::Port));
    }

    proptest! {
        #[test]
        fn a_url_is_read_as_it_is_written(
            host in "[a-z0-9][a-z0-9.-]{0,20}|[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}",
            port in 1u16.., fingerprint in "[0-9a-f]{64}", token in ".{0,60}",
        ) {
            let fingerprint = fingerprint.parse().expect("64 digits");
            let url = ReceiverUrl { host, port, fingerprint, token };
            prop_assert_eq!(url.to_string().parse(), Ok(url));
        }

        #[test]
        fn any_text_is_a_url_or_an_error(
            text in "(ontempo://)?[\\[\\]:/#%@a1é]{0,20}(/[0-9a-f]{64})?(#.{0,20})?",
        ) {
            if let Ok(url) = text.parse::<ReceiverUrl>() {
                prop_assert_eq!(url.to_string().parse(), Ok(url));
            }
        }
    }
}
