//! Whether a live source gives anything.

use std::time::{Duration as Wall, Instant};

use crate::arguments::Place;

/// Silence of a source after which it is reported.
const SILENCE: Wall = Wall::from_secs(5);

/// Watches the bytes that a live source has given.
#[derive(Debug)]
pub(super) struct SourceWatch {
    /// The source as its user named it; `None`: it may pause.
    name: Option<String>,
    bytes: u64,
    /// Since when there is nothing new; `None` before the first look.
    since: Option<Instant>,
    is_reported: bool,
}

impl SourceWatch {
    pub(super) fn new(from: &Place) -> Self {
        let name = match from {
            Place::Udp(address) => Some(format!("udp://{address}")),
            Place::Rtp(address) => Some(format!("rtp://{address}")),
            Place::Pipe | Place::File(_) => None,
        };
        Self { name, bytes: 0, since: None, is_reported: false }
    }

    /// A sentence where the source falls silent, or is heard again.
    pub(super) fn check(&mut self, now: Instant, bytes: u64) -> Option<String> {
        let name = self.name.as_ref()?;
        if bytes != self.bytes {
            (self.bytes, self.since) = (bytes, Some(now));
            let is_again = std::mem::take(&mut self.is_reported);
            return is_again.then(|| format!("data comes from {name} again"));
        }
        let silent = now.saturating_duration_since(*self.since.get_or_insert(now));
        if silent < SILENCE || std::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        let seconds = silent.as_secs();
        Some(if bytes == 0 {
            format!(
                "nothing has come from {name} yet: start the encoder, and let it send to this \
                 address and port"
            )
        } else {
            format!("nothing has come from {name} for {seconds} s: is the encoder still running?")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_source_is_reported_once_and_again_when_it_is_heard() {
        let mut watch = SourceWatch::new(&Place::Udp(":5000".to_owned()));
        let start = Instant::now();
        let mut at = |seconds, bytes| watch.check(start + Wall::from_secs(seconds), bytes);
        assert_eq!(at(0, 0), None);
        assert!(at(5, 0).is_some_and(|said| said.contains("udp://:5000 yet: start the encoder")));
        assert_eq!(at(60, 0), None);
        assert_eq!(at(61, 9), Some("data comes from udp://:5000 again".to_owned()));
        assert_eq!((at(62, 18), at(66, 18)), (None, None));
        assert!(at(67, 18).is_some_and(|said| said.contains("for 5 s: is the encoder still")));
        let mut file = SourceWatch::new(&Place::Pipe);
        let (first, later) = (file.check(start, 0), file.check(start + SILENCE * 3, 0));
        assert_eq!((first, later), (None, None));
    }
}
