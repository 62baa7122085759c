//! Whom an element reaches, or lets in: what its properties say of addresses, certificates and tokens.

use std::net::SocketAddr;
use std::path::Path;

use ontempo_foundation::AddressError;
use ontempo_place::read_token;
use ontempo_session::reach::{Greeting, first_answering, resolve_all};
use ontempo_session::{ReceiverAddress, TOKEN_VARIABLE, random_token};
use ontempo_transport::{Fingerprint, Token, Trust};

/// What the properties of both elements say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) uri: Option<String>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<String>,
}

/// The peer that an element calls.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// The host.
    pub(crate) name: String,
    pub(crate) trust: Trust,
    pub(crate) token: Token,
}

impl Peer {
    /// The address that answers; this may take some seconds.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, String> {
        let all = resolve_all(&self.address).map_err(|error| match error {
            AddressError::Written(what) => format!("uri: {}: {what}", self.address),
            AddressError::Unknown(what) => format!("uri: {what}"),
        })?;
        let reached = first_answering(&all, &Greeting::quic());
        reached.map_err(|why| format!("{}: {why}", self.address))
    }
}

/// Whom a listener admits.
pub(crate) struct Admitted {
    pub(crate) token: Token,
    /// The token, where it was made now: nobody else knows it.
    pub(crate) made: Option<String>,
}

impl Access {
    /// The address in `uri`.
    pub(crate) fn address(&self) -> Result<ReceiverAddress, String> {
        let uri = self.uri.as_deref().filter(|uri| !uri.is_empty());
        let uri = uri.ok_or("uri: it is not set: write ontempo://HOST:PORT")?;
        // The text is not repeated: it may hold a token.
        uri.parse().map_err(|error| format!("uri: {error}"))
    }

    /// The fingerprint of the property.
    pub(crate) fn given_fingerprint(&self) -> Result<Option<Fingerprint>, String> {
        let given = self.fingerprint.as_deref().filter(|text| !text.is_empty());
        let read = given.map(str::parse).transpose();
        read.map_err(|_| {
            "fingerprint: write the 64 hexadecimal digits that the receiver prints".into()
        })
    }

    /// The peer to call. With `is_insecure` its certificate is not verified.
    pub(crate) fn peer(&self, is_insecure: bool) -> Result<Peer, String> {
        let address = self.address()?;
        if address.host.is_empty() {
            return Err("uri: the host is missing: write ontempo://HOST:PORT".to_owned());
        }
        let trust = match (address.fingerprint, self.given_fingerprint()?) {
            (Some(one), Some(other)) if one != other => {
                return Err(
                    "fingerprint: the URI has another one: leave one of them out".to_owned()
                );
            }
            (Some(_), _) | (_, Some(_)) if is_insecure => {
                return Err(
                    "insecure: a fingerprint is given, too: leave one of them out".to_owned()
                );
            }
            (Some(one), _) | (None, Some(one)) => Trust::Fingerprint(one),
            (None, None) if is_insecure => Trust::Insecure,
            (None, None) => {
                return Err("the receiver cannot be verified: set uri to all that it prints, \
                            ontempo://HOST:PORT/FINGERPRINT#TOKEN, or set fingerprint"
                    .to_owned());
            }
        };
        let text = self.token_text(&address)?.unwrap_or_default();
        let token = if text.is_empty() { Token::anyone() } else { token(&text)? };
        Ok(Peer { address: address.authority(), name: address.host, trust, token })
    }

    /// Whom to admit: with `anyone` everybody, else who has the token; a new one, if none is given.
    pub(crate) fn admitted(&self, anyone: bool) -> Result<Admitted, String> {
        let given = self.token_text(&self.address()?)?;
        match given {
            Some(_) if anyone => {
                Err("anyone: a token is given, too: leave one of them out".to_owned())
            }
            Some(text) => Ok(Admitted { token: token(&text)?, made: None }),
            None if anyone => Ok(Admitted { token: Token::anyone(), made: None }),
            None => {
                let text = random_token().map_err(|error| format!("no random token: {error}"))?;
                Ok(Admitted { token: token(&text)?, made: Some(text) })
            }
        }
    }

    /// The token of the URI, of the properties, or of the environment.
    fn token_text(&self, address: &ReceiverAddress) -> Result<Option<String>, String> {
        let of_uri = Some(address.token.clone()).filter(|text| !text.is_empty());
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let given = match (given(&self.token), given(&self.token_file)) {
            (Some(_), Some(_)) => {
                return Err("token, token-file: both are set: leave one of them out".to_owned());
            }
            (Some(text), None) => Some(text),
            (None, Some(path)) => Some(token_in(Path::new(&path))?),
            (None, None) => None,
        };
        match (of_uri, given) {
            (Some(one), Some(other)) if one != other => {
                Err("token: the URI has another one: leave one of them out".to_owned())
            }
            (Some(text), _) | (None, Some(text)) => Ok(Some(text)),
            (None, None) => Ok(std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.is_empty())),
        }
    }
}

fn token(text: &str) -> Result<Token, String> {
    Token::new(text.as_bytes()).map_err(|error| format!("token: {error}"))
}

/// The token in a file that others cannot read.
fn token_in(path: &Path) -> Result<String, String> {
    let named = format!("token-file {}", path.display());
    let text = read_token(path, || false).map_err(|error| format!("{named}: {error}"))?;
    text.ok_or_else(|| format!("{named}: it must hold one line, the token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn access(uri: &str) -> Access {
        let uri = Some(uri.replace("FP", FINGERPRINT));
        Access { uri, ..Access::default() }
    }

    fn refused(access: &Access) -> String {
        access.peer(false).expect_err("refused")
    }

    #[test]
    fn each_mistake_is_named_by_its_property() {
        assert!(refused(&Access::default()).starts_with("uri: it is not set"));
        assert!(refused(&access("http://a:1")).starts_with("uri: "));
        assert!(refused(&access("ontempo://:1/FP")).contains("the host is missing"));
        assert!(refused(&access("ontempo://a:1")).contains("cannot be verified"));
        let wrong = Access { fingerprint: Some("12".to_owned()), ..access("ontempo://a:1") };
        assert!(refused(&wrong).starts_with("fingerprint: "));
        let both = Access { token: Some("b".to_owned()), ..access("ontempo://a:1/FP#a") };
        assert!(refused(&both).contains("the URI has another"));
        let none = Access { token_file: Some("/no/such".to_owned()), ..access("ontempo://a:1/FP") };
        assert!(refused(&none).starts_with("token-file /no/such"));
        assert!(access("ontempo://a:1/FP").peer(true).is_err());
    }

    #[test]
    fn a_pasted_url_is_enough() {
        let peer = access("ontempo://[::1]:4433/FP#secret").peer(false).expect("a peer");
        assert_eq!((peer.address.as_str(), peer.name.as_str()), ("[::1]:4433", "::1"));
        assert!(peer.token == Token::new(b"secret").expect("short"));
    }

    #[test]
    fn a_listener_without_a_token_makes_one() {
        let admitted = access("ontempo://:4433").admitted(false).expect("a token");
        assert_eq!(admitted.made.map(|text| text.len()), Some(32));
        assert!(access("ontempo://:4433#a").admitted(true).is_err());
    }
}
