//! Who an endpoint is, and whom it trusts.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ontempo_endpoint as endpoint;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::IdentityError;

fn unusable(error: &endpoint::IdentityError) -> PyErr {
    IdentityError::new_err(error.to_string())
}

/// A certificate and its private key.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Identity(pub(crate) endpoint::Identity);

#[pymethods]
impl Identity {
    /// A certificate of our own making for these names.
    #[staticmethod]
    #[pyo3(signature = (names=None))]
    fn self_made(names: Option<Vec<String>>) -> PyResult<Self> {
        let names = names.unwrap_or_else(|| vec!["localhost".to_owned()]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        endpoint::Identity::self_made(&names).map(Self).map_err(|error| unusable(&error))
    }

    /// The certificate chain and private key of two texts in PEM; of one that has both.
    #[staticmethod]
    #[pyo3(signature = (chain, key=None))]
    fn from_pem(chain: &[u8], key: Option<&[u8]>) -> PyResult<Self> {
        let read = endpoint::Identity::from_pem(chain, key.unwrap_or(chain));
        read.map(Self).map_err(|error| unusable(&error))
    }

    /// The certificate and key of a file, made where the file is missing.
    #[staticmethod]
    fn kept(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| kept(&path)).map(Self)
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

fn kept(path: &Path) -> PyResult<endpoint::Identity> {
    let name = path.display();
    match fs::read(path) {
        Ok(pem) => endpoint::Identity::from_pem(&pem, &pem)
            .map_err(|error| IdentityError::new_err(format!("{name}: {error}"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made =
                endpoint::Identity::make(&["localhost"]).map_err(|error| unusable(&error))?;
            let mut options = OpenOptions::new();
            // Nobody else may read the key.
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            file.and_then(|mut file| file.write_all(made.pem.as_bytes())).map_err(|error| {
                IdentityError::new_err(format!("{name}: cannot write it: {error}"))
            })?;
            Ok(made.identity)
        }
        Err(error) => Err(IdentityError::new_err(format!("{name}: cannot read it: {error}"))),
    }
}

/// By what a client knows its server.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Trust(pub(crate) endpoint::Trust);

#[pymethods]
impl Trust {
    /// By its certificate's fingerprint.
    #[staticmethod]
    fn fingerprint(text: &str) -> PyResult<Self> {
        let parsed = text.parse::<endpoint::Fingerprint>();
        let parsed = parsed.map_err(|error| PyValueError::new_err(format!("`{text}`: {error}")))?;
        Ok(Self(endpoint::Trust::Fingerprint(parsed)))
    }

    /// By one of these certificates, in PEM, having signed its own.
    #[staticmethod]
    fn roots(pem: &[u8]) -> PyResult<Self> {
        endpoint::Trust::from_pem(pem).map(Self).map_err(|error| unusable(&error))
    }

    /// By nothing: for tests.
    #[staticmethod]
    fn anybody() -> Self {
        Self(endpoint::Trust::Anybody)
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            endpoint::Trust::Fingerprint(fingerprint) => format!("<Trust in {fingerprint}>"),
            endpoint::Trust::Roots(roots) => format!("<Trust in {} certificates>", roots.len()),
            endpoint::Trust::Anybody => "<Trust in anybody>".to_owned(),
        }
    }
}
