//! Certificates, trust and tokens.
//!
//! A certificate is self-signed and identified by its fingerprint, or comes from files and is
//! verified by its issuer. A shared token controls who may connect.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ontempo_place::{read_own, write_new};
use ring::digest::{SHA256, digest};
use ring::hmac;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme, version::TLS13};

use crate::wire::{ALPN, EARLIER_ALPN, MAX_TOKEN};

/// Why an identity cannot be created or loaded.
#[derive(Debug)]
pub enum IdentityError {
    /// No certificate could be created.
    Make(rcgen::Error),
    /// A certificate or key is not valid PEM.
    Pem(&'static str, rustls::pki_types::pem::Error),
    /// The certificate, its key or the trusted certificates cannot be used.
    Unusable(rustls::Error),
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The file cannot be written.
    Write(PathBuf, io::Error),
    /// The file is not an identity.
    In(PathBuf, Box<Self>),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(error) => write!(f, "no certificate could be made: {error}"),
            Self::Pem(what, error) => write!(f, "the {what} is not valid PEM: {error}"),
            Self::Unusable(error) => write!(f, "the certificate or key cannot be used: {error}"),
            Self::Read(path, error) => write!(f, "{}: cannot read it: {error}", path.display()),
            Self::Write(path, error) => write!(f, "{}: cannot write it: {error}", path.display()),
            Self::In(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for IdentityError {}

/// The SHA-256 of a certificate in DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of `certificate`, in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAFingerprint;

impl fmt::Display for NotAFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fingerprint is 64 hexadecimal digits, with or without colons")
    }
}

impl std::error::Error for NotAFingerprint {}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|character| *character != ':')
            .map(|character| character.to_digit(16).map(|digit| digit as u8))
            .collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(NotAFingerprint)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

/// A certificate and its private key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

impl Identity {
    /// A self-signed certificate for these names, with an Ed25519 key.
    ///
    /// # Errors
    /// If a name is invalid, or the system has no random numbers.
    pub fn self_signed(names: &[&str]) -> Result<Self, IdentityError> {
        Self::make(names).map(|(identity, _)| identity)
    }

    /// Loads the identity in the file at `path`, certificate and key in PEM. If there is no
    /// file, creates a self-signed one for these names and stores it there, readable by the owner
    /// only, whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be read or written, another user owns it, may write it or could have put it there,
    /// or it is not an identity; as [`self_signed`](Self::self_signed).
    pub fn load_or_create(path: &Path, names: &[&str]) -> Result<Self, IdentityError> {
        Self::load_or_create_unless(path, names, || false)
    }

    /// The same; stopped while the file is a named pipe to which no program writes.
    ///
    /// # Errors
    /// As [`load_or_create`](Self::load_or_create); [`IdentityError::Read`] of the kind
    /// [`ErrorKind::Interrupted`] if stopped.
    pub fn load_or_create_unless(
        path: &Path,
        names: &[&str],
        is_stopped: impl Fn() -> bool,
    ) -> Result<Self, IdentityError> {
        let load = |pem: Vec<u8>| {
            Self::from_pem(&pem, &pem)
                .map_err(|error| IdentityError::In(path.to_owned(), Box::new(error)))
        };
        match read_own(path, 0, &is_stopped) {
            Ok(pem) => return load(pem),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(IdentityError::Read(path.to_owned(), error)),
        }
        let (identity, pem) = Self::make(names)?;
        match write_new(path, pem.as_bytes()) {
            Ok(()) => Ok(identity),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Another process was faster.
                let read = read_own(path, 0, &is_stopped);
                load(read.map_err(|error| IdentityError::Read(path.to_owned(), error))?)
            }
            Err(error) => Err(IdentityError::Write(path.to_owned(), error)),
        }
    }

    /// A self-signed identity for these names, and its certificate and key in PEM.
    fn make(names: &[&str]) -> Result<(Self, String), IdentityError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key =
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(IdentityError::Make)?;
        let made = rcgen::CertificateParams::new(names)
            .and_then(|parameters| parameters.self_signed(&key))
            .map_err(IdentityError::Make)?;
        let pem = made.pem() + &key.serialize_pem();
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| IdentityError::Unusable(rustls::Error::General(error.to_owned())))?;
        Ok((Self { chain: vec![made.der().clone()], key }, pem))
    }

    /// The certificate chain and private key in two PEM files.
    ///
    /// # Errors
    /// If one of them is not PEM, or has no certificate or key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain = certificates(chain, "certificate")?;
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|e| IdentityError::Pem("private key", e))?;
        Ok(Self { chain, key })
    }

    /// The fingerprint of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.chain[0])
    }

    /// A key that only who has the private key and the token can derive, for stateless resets (RFC 9000,
    /// section 10.3): a program that is started again with both tells its clients at once that it knows
    /// their connections no more.
    pub(crate) fn reset_key(&self, token: &Token) -> hmac::Key {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.secret_der());
        let mut context = hmac::Context::with_key(&key);
        context.update(b"ontempo stateless reset");
        context.update(token.as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref())
    }

    pub(crate) fn server_config(&self) -> Result<rustls::ServerConfig, IdentityError> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(self.chain.clone(), self.key.clone_key())
            })
            .map_err(IdentityError::Unusable)?;
        config.alpn_protocols = protocols();
        // No 0-RTT: it could be replayed.
        config.max_early_data_size = 0;
        Ok(config)
    }
}

fn certificates(
    pem: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| IdentityError::Pem(what, error))?;
    if all.is_empty() {
        return Err(IdentityError::Pem(what, rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(all)
}

/// The protocol, and its earlier versions, to refuse them by name.
fn protocols() -> Vec<Vec<u8>> {
    std::iter::once(&ALPN).chain(EARLIER_ALPN).map(|alpn| alpn.to_vec()).collect()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// How a client verifies its server.
#[derive(Clone, Debug)]
pub enum Trust {
    /// By its certificate's fingerprint; name and validity are ignored.
    Fingerprint(Fingerprint),
    /// By one of these issuers, in DER; name and validity are checked.
    Roots(Vec<CertificateDer<'static>>),
    /// Not at all: any server is accepted, and gets the token. For tests.
    Insecure,
}

impl Trust {
    /// Trust in the certificates of a PEM file.
    ///
    /// # Errors
    /// If it is not PEM, or has no certificate.
    pub fn from_pem(roots: &[u8]) -> Result<Self, IdentityError> {
        Ok(Self::Roots(certificates(roots, "list of trusted certificates")?))
    }

    pub(crate) fn client_config(&self) -> Result<rustls::ClientConfig, IdentityError> {
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(IdentityError::Unusable)?;
        let mut config = match self {
            Self::Fingerprint(_) | Self::Insecure => {
                let expected = match self {
                    Self::Fingerprint(expected) => Some(*expected),
                    _ => None,
                };
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(ByFingerprint::new(expected)))
                    .with_no_client_auth()
            }
            Self::Roots(roots) => {
                let mut store = RootCertStore::empty();
                for root in roots {
                    store.add(root.clone()).map_err(IdentityError::Unusable)?;
                }
                builder.with_root_certificates(store).with_no_client_auth()
            }
        };
        config.alpn_protocols = protocols();
        Ok(config)
    }
}

/// Accepts a server whose certificate has the expected fingerprint, and that proves
/// possession of the key.
#[derive(Debug)]
struct ByFingerprint {
    /// `None`: accepts any.
    expected: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ByFingerprint {
    fn new(expected: Option<Fingerprint>) -> Self {
        Self { expected, provider: provider() }
    }
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(expected) = self.expected else { return Ok(ServerCertVerified::assertion()) };
        let found = Fingerprint::of(certificate);
        if found == expected {
            Ok(ServerCertVerified::assertion())
        } else {
            let sentence = format!("its fingerprint is {found}, expected is {expected}");
            Err(rustls::Error::General(sentence))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Random bytes of a token: 128 bits, as 32 hexadecimal digits.
const TOKEN_BYTES: usize = 16;

/// A token of 128 random bits, as hexadecimal digits.
///
/// # Errors
/// The system gives no random bytes.
pub fn random_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A secret shared by both sides, which controls who may connect.
///
/// It is compared by its digest, so that neither length nor time reveals anything. It
/// is sent to a server only after the server has been verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It is longer than 256 bytes.
    TooLong,
    /// It is empty and so admits everybody, which [`Token::anyone`] says.
    Empty,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a token has at most {MAX_TOKEN} bytes"),
            Self::Empty => f.write_str("an empty token admits everybody"),
        }
    }
}

impl std::error::Error for TokenError {}

impl Token {
    /// The token with these bytes, 1 to 256.
    ///
    /// # Errors
    /// If there are none, or more.
    pub fn new(bytes: &[u8]) -> Result<Self, TokenError> {
        match bytes.len() {
            0 => Err(TokenError::Empty),
            1..=MAX_TOKEN => Ok(Self(bytes.to_vec())),
            _ => Err(TokenError::TooLong),
        }
    }

    /// No token: a listener with it admits everybody, and a client presents none.
    pub fn anyone() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn admits(&self, presented: &[u8]) -> bool {
        let (ours, theirs) = (digest(&SHA256, &self.0), digest(&SHA256, presented));
        // Constant time: the comparison does not stop at the first difference.
        let differ = ours.as_ref().iter().zip(theirs.as_ref()).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_have_128_bits_and_differ() {
        let (one, other) = (random_token().expect("random"), random_token().expect("random"));
        assert_eq!((one.len(), other.len()), (32, 32));
        assert!(one != other && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_and_with_colons() {
        let fingerprint = Identity::self_signed(&["localhost"]).map(|made| made.fingerprint());
        let fingerprint = fingerprint.expect("a certificate can be made");
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        let colons: Vec<&str> = (0..32).map(|at| &text[2 * at..2 * at + 2]).collect();
        assert_eq!(colons.join(":").to_uppercase().parse(), Ok(fingerprint));
        assert_eq!(text[1..].parse::<Fingerprint>(), Err(NotAFingerprint));
    }

    #[test]
    fn a_token_admits_itself_alone() {
        let token = Token::new(b"secret").expect("short");
        assert!(token.admits(b"secret"));
        assert!(!token.admits(b"secret "));
        assert!(!token.admits(b""));
        assert_eq!(Token::new(&[0; 257]), Err(TokenError::TooLong));
        assert_eq!(Token::new(b""), Err(TokenError::Empty));
        assert!(Token::anyone().admits(b"") && !Token::anyone().admits(b"secret"));
    }

    #[test]
    fn what_is_not_pem_is_refused_by_name() {
        let error = Identity::from_pem(b"nonsense", b"").expect_err("not PEM").to_string();
        assert!(error.starts_with("the certificate is not valid PEM"), "{error}");
    }
}
