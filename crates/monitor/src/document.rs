//! Documents that processes publish: which kinds there are, and how each is named, bounded and read.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::report::MAX_REPORT_LEN;
use super::{DeliveryReport, MAX_DELIVERY_LEN, ProcessReport};

/// What a document is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// QoS sockets.
    Sockets,
    /// What `ontempo send`, `receive` or `relay` delivers. A file of its own, so that programs that
    /// know only QoS sockets read theirs as before.
    Delivery,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Sockets, Self::Delivery];

    const fn ending(self) -> &'static str {
        match self {
            Self::Sockets => ".json",
            Self::Delivery => ".delivery.json",
        }
    }

    /// What it has several of.
    pub(crate) const fn counted(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Delivery => "flows",
        }
    }

    /// Maximum bytes of a document.
    pub(crate) const fn max_len(self) -> usize {
        match self {
            Self::Sockets => MAX_REPORT_LEN,
            Self::Delivery => MAX_DELIVERY_LEN,
        }
    }

    /// The name of a process's document.
    pub(crate) fn name_of(self, process: u32) -> String {
        format!("{process}{}", self.ending())
    }

    /// The process and the kind in the name of a document, written as [`Self::name_of`] writes it.
    pub(crate) fn of_name(name: &str) -> Option<(u32, Self)> {
        Self::ALL.into_iter().find_map(|kind| {
            let process = name.strip_suffix(kind.ending())?.parse().ok()?;
            (kind.name_of(process) == name).then_some((process, kind))
        })
    }

    /// The start of the process that wrote these bytes.
    ///
    /// # Errors
    /// As [`parse`].
    pub(crate) fn started_in(self, bytes: &[u8], process: u32) -> Result<u64, String> {
        match self {
            Self::Sockets => parse::<ProcessReport>(bytes, process).map(|report| report.started),
            Self::Delivery => parse::<DeliveryReport>(bytes, process).map(|report| report.started),
        }
    }
}

/// A document of a process's.
pub(crate) trait Document: Serialize + DeserializeOwned {
    const KIND: Kind;

    /// Process id, and the start of the process.
    fn written_by(&self) -> (u32, u64);

    /// How many sockets or flows it has.
    fn count(&self) -> usize;

    /// Whether it is within its bounds: any user may have written it.
    ///
    /// # Errors
    /// A sentence about the first field that is not.
    fn check(&self) -> Result<(), String>;
}

/// The document of this process in these bytes.
///
/// # Errors
/// If they are none, or that of another process.
pub(crate) fn parse<D: Document>(bytes: &[u8], process: u32) -> Result<D, String> {
    let report: D =
        serde_json::from_slice(bytes).map_err(|error| format!("is no report: {error}"))?;
    report.check().map_err(|why| format!("is no report: {why}"))?;
    match report.written_by() {
        (of, _) if of == process => Ok(report),
        (of, _) => Err(format!("is that of process {of}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_of_which_process_and_kind_a_document_is() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_name(&kind.name_of(7)), Some((7, kind)));
        }
        for other in ["07.json", "7.JSON", "7.delivery", "+7.delivery.json", "a.json", ".json"] {
            assert_eq!(Kind::of_name(other), None, "{other}");
        }
    }
}
