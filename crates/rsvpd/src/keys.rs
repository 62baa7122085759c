//! Keys of interfaces and neighbours as the configuration has them.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ontempo_place::read_own;
use ontempo_reservation::integrity::{Algorithm, Key};
use ontempo_reservation::machine::is_of_host;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::written::{number, table, text, word};

/// Bytes of a secret at least: shorter ones can be guessed.
const MIN_SECRET: usize = 16;
/// Mode bits of access to a secret by those who are neither its owner nor in its group.
const OTHERS: u32 = 0o007;

/// A neighbour's key, or one for each direction.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table with key, or with send and receive"
)]
pub(crate) struct WrittenNeighbour {
    pub(crate) key: Option<WrittenKey>,
    pub(crate) send: Option<WrittenKey>,
    pub(crate) receive: Option<WrittenKey>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { id = 1, secret-file = \"eth1.key\" }"
)]
pub(crate) struct WrittenKey {
    #[serde(deserialize_with = "key_number")]
    id: u64,
    #[serde(default = "default_algorithm")]
    algorithm: WrittenAlgorithm,
    #[serde(deserialize_with = "secret_file")]
    secret_file: PathBuf,
    /// For a router of another make.
    identifiers: Option<Identifiers>,
}

/// Key Identifiers of both directions, 48 bits each.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, expecting = "a table such as { send = 1, receive = 2 }")]
struct Identifiers {
    #[serde(deserialize_with = "identifier")]
    send: u64,
    #[serde(deserialize_with = "identifier")]
    receive: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum WrittenAlgorithm {
    HmacMd5,
    HmacSha256,
}

impl<'de> Deserialize<'de> for WrittenAlgorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = [("hmac-md5", Self::HmacMd5), ("hmac-sha256", Self::HmacSha256)];
        word(deserializer, r#""hmac-sha256" or "hmac-md5""#, &words)
    }
}

fn key_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    number(deserializer, "a whole number from 0 to 65535")
}

fn identifier<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    number(deserializer, "a whole number of 48 bits")
}

fn secret_file<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    text(deserializer, r#"the path of the file with the secret, such as "eth1.key""#)
}

pub(crate) fn by_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<IpAddr, WrittenNeighbour>, D::Error> {
    let what = r#"a table for each neighbour, such as [interfaces.eth1.neighbours."10.1.0.2"]"#;
    let written: BTreeMap<String, WrittenNeighbour> = table(deserializer, what)?;
    let read = |(text, one): (String, WrittenNeighbour)| {
        let address = text.parse().ok().filter(|address| is_of_host(*address));
        address.map(|address| (address, one)).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} must be the address of a neighbour, such as \"10.1.0.2\""
            ))
        })
    };
    written.into_iter().map(read).collect()
}

fn default_algorithm() -> WrittenAlgorithm {
    WrittenAlgorithm::HmacSha256
}

impl WrittenKey {
    /// What its Key Identifiers differ by from those of other keys: all of a fixed one.
    pub(crate) fn sending_id(&self) -> (bool, u64) {
        match self.identifiers {
            Some(Identifiers { send, .. }) => (true, send),
            None => (false, self.id),
        }
    }

    pub(crate) fn read(&self, folder: &Path) -> Result<Key, String> {
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
        // The writer of a named pipe would be waited for, also by a daemon that runs.
        if !fs::metadata(&path).map_err(|error| failed(&error))?.is_file() {
            return Err(failed(&"it is no regular file"));
        }
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
