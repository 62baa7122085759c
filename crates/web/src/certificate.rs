//! Certificates: one that is given, or one made here, which browsers take by its hash.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;

/// A certificate made here is valid from a day before it is made, for clocks that are slow, ...
const BEFORE: Duration = Duration::from_secs(86_400);

/// ... for 14 days less an hour: browsers refuse hashes of certificates that are valid for longer than 14 days
/// (WebTransport, section 6.1, custom certificate requirements).
const VALID: Duration = Duration::from_secs(14 * 86_400 - 3_600);

/// How long one is used before the next is made.
const RENEWAL: Duration = Duration::from_secs(7 * 86_400);

/// Whether the next one has to be made: by the clock that browsers compare its validity with. Where that was set back
/// beyond `made`, the old one may not be valid yet.
pub(crate) fn is_due(made: SystemTime, now: SystemTime) -> bool {
    now.duration_since(made).map_or(true, |age| age >= RENEWAL)
}

/// Why there is no certificate.
#[derive(Debug)]
pub enum CertificateError {
    /// The file of the certificate, or of the key, is not PEM or has none.
    Pem(&'static str, rustls::pki_types::pem::Error),
    /// Certificate and key do not fit, or are of an unknown kind.
    Unusable(rustls::Error),
    /// None could be made.
    Make(rcgen::Error),
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem(what, error) => write!(f, "no {what} in PEM: {error}"),
            Self::Unusable(error) => write!(f, "certificate and key cannot be used: {error}"),
            Self::Make(error) => write!(f, "no certificate can be made: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

/// A certificate with its chain, and its key.
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// Made here: no browser knows its issuer.
    is_made: bool,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("is_made", &self.is_made).finish_non_exhaustive()
    }
}

impl Certificate {
    /// A chain and its key, in PEM.
    ///
    /// # Errors
    /// If one is missing, or they do not fit.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let what = "certificate";
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| CertificateError::Pem(what, error))?;
        if chain.is_empty() {
            return Err(CertificateError::Pem(what, rustls::pki_types::pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| CertificateError::Pem("private key", error))?;
        let certificate = Self { chain, key, is_made: false };
        certificate.config(&[b"h3"])?;
        Ok(certificate)
    }

    /// A new one for these names, signed by itself (ECDSA, P-256), valid for 14 days.
    pub(crate) fn make(names: &[String]) -> Result<Self, CertificateError> {
        let make = || {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
            let mut parameters = rcgen::CertificateParams::new(names)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let since = |time: Duration| rcgen::date_time_ymd(1970, 1, 1) + time;
            parameters.not_before = since(now.saturating_sub(BEFORE));
            parameters.not_after = since(now.saturating_sub(BEFORE) + VALID);
            parameters.distinguished_name.push(rcgen::DnType::CommonName, "ontempo");
            let made = parameters.self_signed(&key)?;
            Ok((made.der().clone(), key.serialize_der()))
        };
        let (certificate, key) = make().map_err(CertificateError::Make)?;
        let key = PrivateKeyDer::try_from(key).map_err(|error| {
            CertificateError::Unusable(rustls::Error::General(error.to_owned()))
        })?;
        Ok(Self { chain: vec![certificate], key, is_made: true })
    }

    /// The SHA-256 of one that was made here, in base64.
    pub(crate) fn hash(&self) -> Option<String> {
        let of = |certificate: &CertificateDer<'_>| {
            BASE64_STANDARD.encode(digest(&SHA256, certificate).as_ref())
        };
        self.chain.first().filter(|_| self.is_made).map(of)
    }

    /// The configuration of TLS for these protocols.
    pub(crate) fn config(
        &self,
        protocols: &[&[u8]],
    ) -> Result<rustls::ServerConfig, CertificateError> {
        let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(self.chain.clone(), self.key.clone_key())
            })
            .map_err(CertificateError::Unusable)?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // No 0-RTT: it could be replayed.
        config.max_early_data_size = 0;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_certificate_is_due_after_a_week_and_where_the_clock_was_set_back() {
        let (made, day) = (UNIX_EPOCH + Duration::from_secs(1_000_000_000), BEFORE);
        assert!(!is_due(made, made));
        assert!(!is_due(made, made + 6 * day));
        assert!(is_due(made, made + 7 * day));
        assert!(is_due(made, made + 9_000 * day));
        assert!(is_due(made, made - Duration::from_secs(1)));
        assert!(is_due(made, UNIX_EPOCH));
    }
}
