//! Certificates and trust.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::IdentityError;

fn unusable(error: &ontempo_transport::IdentityError) -> PyErr {
    IdentityError::new_err(error.to_string())
}

/// A certificate and its private key.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Identity(pub(crate) ontempo_transport::Identity);

#[pymethods]
impl Identity {
    /// A self-signed certificate for these names.
    #[staticmethod]
    #[pyo3(signature = (names=None))]
    fn self_signed(names: Option<Vec<String>>) -> PyResult<Self> {
        let names = names.unwrap_or_else(|| vec!["localhost".to_owned()]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        ontempo_transport::Identity::self_signed(&names).map(Self).map_err(|error| unusable(&error))
    }

    /// The certificate chain and private key from PEM texts, or from one text that has both.
    #[staticmethod]
    #[pyo3(signature = (chain, key=None))]
    fn from_pem(chain: &[u8], key: Option<&[u8]>) -> PyResult<Self> {
        let read = ontempo_transport::Identity::from_pem(chain, key.unwrap_or(chain));
        read.map(Self).map_err(|error| unusable(&error))
    }

    /// The certificate and key of a file, which is created if it does not exist.
    #[staticmethod]
    fn load_or_create(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        // Ctrl-C, while a named pipe has no writer.
        let is_stopped = || Python::attach(|py| py.check_signals().is_err());
        let names = ["localhost"];
        let found = py.detach(|| {
            ontempo_transport::Identity::load_or_create_unless(&path, &names, is_stopped)
        });
        found.map(Self).map_err(|error| unusable(&error))
    }

    /// The SHA-256 of the certificate, as 64 hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Identity {}>", self.0.fingerprint())
    }
}

/// How a client verifies its server.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Trust(pub(crate) ontempo_transport::Trust);

#[pymethods]
impl Trust {
    /// Accept the certificate with this fingerprint.
    #[staticmethod]
    fn fingerprint(text: &str) -> PyResult<Self> {
        let parsed = text.parse::<ontempo_transport::Fingerprint>();
        let parsed = parsed.map_err(|error| PyValueError::new_err(format!("`{text}`: {error}")))?;
        Ok(Self(ontempo_transport::Trust::Fingerprint(parsed)))
    }

    /// Accept certificates signed by one of these, in PEM.
    #[staticmethod]
    fn roots(pem: &[u8]) -> PyResult<Self> {
        ontempo_transport::Trust::from_pem(pem).map(Self).map_err(|error| unusable(&error))
    }

    /// Accept any certificate; only for tests.
    #[staticmethod]
    fn insecure() -> Self {
        Self(ontempo_transport::Trust::Insecure)
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            ontempo_transport::Trust::Fingerprint(fingerprint) => {
                format!("<Trust in {fingerprint}>")
            }
            ontempo_transport::Trust::Roots(roots) => {
                format!("<Trust in {} certificates>", roots.len())
            }
            ontempo_transport::Trust::Insecure => "<Trust insecure: any certificate>".to_owned(),
        }
    }
}
