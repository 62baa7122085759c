//! How much may be written, and the shares of it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{MAX_TRACE_BYTES, MAX_TRACES};
use crate::admission::Origin;

/// Part of [`MAX_TRACES`] and [`MAX_TRACE_BYTES`] for the incoming connections of one source: a
/// quarter.
pub(super) const PART_OF_ORIGIN: usize = 4;

/// Part of [`MAX_TRACE_BYTES`] for one incoming connection: an eighth, 128 MiB.
pub(super) const PART_OF_CONNECTION: u64 = 8;

/// What may still be written.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) files: AtomicUsize,
    pub(super) bytes: AtomicU64,
    /// That all files, or those of a host, are used up, was reported.
    is_reported: AtomicBool,
    is_reported_of_host: AtomicBool,
    /// What is left of each source's part.
    origins: Mutex<BTreeMap<Origin, (usize, Arc<AtomicU64>)>>,
}

impl Left {
    pub(super) fn new() -> Self {
        Self {
            files: AtomicUsize::new(MAX_TRACES),
            bytes: AtomicU64::new(MAX_TRACE_BYTES),
            is_reported: AtomicBool::new(false),
            is_reported_of_host: AtomicBool::new(false),
            origins: Mutex::default(),
        }
    }

    /// Takes one of the files, for a connection from `origin` one of its source's part: the bytes
    /// that are left to the source. A source is remembered only with a file, so that there are no
    /// more of them than files.
    ///
    /// # Errors
    /// A sentence with the limit that is reached, the first time that it is.
    pub(super) fn take_file(
        &self,
        origin: Option<Origin>,
    ) -> Result<Option<Arc<AtomicU64>>, Option<String>> {
        let once = |is_reported: &AtomicBool, sentence: String| {
            Err((!is_reported.swap(true, Ordering::Relaxed)).then_some(sentence))
        };
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let of_origin = origin.and_then(|origin| origins.get(&origin));
        if of_origin.is_some_and(|(files, _)| *files == 0) {
            let limit = MAX_TRACES / PART_OF_ORIGIN;
            let sentence = format!("{limit} traces of one host were written: the limit");
            return once(&self.is_reported_of_host, sentence);
        }
        let take = |left: usize| left.checked_sub(1);
        if self.files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            let sentence = format!("{MAX_TRACES} traces were written, the most");
            return once(&self.is_reported, sentence);
        }
        let Some(origin) = origin else { return Ok(None) };
        let (files, bytes) = origins.entry(origin).or_insert_with(|| {
            let bytes = AtomicU64::new(MAX_TRACE_BYTES / PART_OF_ORIGIN as u64);
            (MAX_TRACES / PART_OF_ORIGIN, Arc::new(bytes))
        });
        *files -= 1;
        Ok(Some(Arc::clone(bytes)))
    }
}

/// What is left to an incoming connection.
pub(super) struct Share {
    pub(super) of_connection: u64,
    pub(super) of_origin: Arc<AtomicU64>,
}

/// A file that is written until the bytes of its connection, of its source or of all traces are
/// used up.
pub(super) struct Counted<W> {
    pub(super) out: W,
    pub(super) left: Arc<Left>,
    pub(super) share: Option<Share>,
}

/// Takes bytes of what is left; false if there are not so many.
fn take(left: &AtomicU64, count: u64) -> bool {
    let take = |left: u64| left.checked_sub(count);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
}

pub(super) fn used_up(sentence: String) -> io::Error {
    io::Error::new(ErrorKind::QuotaExceeded, sentence)
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len() as u64;
        if let Some(share) = &mut self.share {
            let Some(left) = share.of_connection.checked_sub(count) else {
                let limit = MAX_TRACE_BYTES / PART_OF_CONNECTION;
                return Err(used_up(format!(
                    "the trace of one connection has at most {limit} bytes"
                )));
            };
            if !take(&share.of_origin, count) {
                let limit = MAX_TRACE_BYTES / PART_OF_ORIGIN as u64;
                let sentence =
                    format!("the traces of one host have at most {limit} bytes together");
                return Err(used_up(sentence));
            }
            share.of_connection = left;
        }
        if !take(&self.left.bytes, count) {
            let sentence = format!("all traces together have {MAX_TRACE_BYTES} bytes, the most");
            return Err(used_up(sentence));
        }
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
