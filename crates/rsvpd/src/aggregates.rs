//! Aggregates as the configuration has them.

use ontempo_foundation::Rate;
use ontempo_reservation::htb::{Aggregate, Serves};
use ontempo_udp::Dscp;
use serde::{Deserialize, Deserializer};

use crate::written::{list, text, word};

/// Reservations that share a class: the first that fits.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { dscp = \"EF\" }"
)]
pub(crate) struct WrittenAggregate {
    /// Their packets' code point: a name such as AF41, or a number.
    #[serde(deserialize_with = "code_point")]
    dscp: String,
    /// Their service; where not given, both.
    service: Option<WrittenService>,
    /// The largest token rate of one; where not given, any.
    up_to: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum WrittenService {
    Guaranteed,
    ControlledLoad,
}

impl<'de> Deserialize<'de> for WrittenService {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = [("guaranteed", Self::Guaranteed), ("controlled-load", Self::ControlledLoad)];
        word(deserializer, r#""guaranteed" or "controlled-load""#, &words)
    }
}

fn code_point<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer, r#"a code point such as "AF41", "EF" or "46""#)
}

/// A list of aggregates.
pub(crate) fn aggregates<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<WrittenAggregate>, D::Error> {
    list(deserializer, r#"a list of tables, such as [{ dscp = "EF" }]"#)
}

/// The code points that no aggregate can have: best effort's, and what goes ahead of it.
const NOT_OF_AGGREGATES: [u8; 3] = [0, 48, 56];

impl WrittenAggregate {
    /// Whether it takes reservations of guaranteed service.
    pub(crate) fn takes_guaranteed(&self) -> bool {
        self.service != Some(WrittenService::ControlledLoad)
    }

    /// As it is enforced.
    pub(crate) fn read(&self) -> Result<Aggregate, String> {
        let named = self.dscp.parse().ok().map(Dscp::get);
        let dscp = named.filter(|dscp| !NOT_OF_AGGREGATES.contains(dscp));
        let dscp = dscp.ok_or_else(|| {
            format!("dscp: {:?} must be a code point such as \"AF41\", \"EF\" or \"46\", not 0, CS6 or CS7", self.dscp)
        })?;
        let serves = match self.service {
            None => Serves::Both,
            Some(WrittenService::Guaranteed) => Serves::Guaranteed,
            Some(WrittenService::ControlledLoad) => Serves::ControlledLoad,
        };
        Ok(Aggregate { dscp, serves, up_to: self.up_to })
    }
}
