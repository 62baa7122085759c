use std::sync::{Arc, Mutex, PoisonError};

/// What became of a packet that counts for the congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was sent.
    Sent {
        /// Its number in the order of sending, over all paths of the connection.
        packet: u64,
        /// Its size, bytes.
        bytes: u64,
    },
    /// It has arrived.
    Arrived {
        /// Its number.
        packet: u64,
    },
}

#[derive(Debug, Default)]
struct Fates {
    is_wanted: bool,
    next: u64,
    news: Vec<Fate>,
}

/// The fates of packets, shared by the controllers of a connection, which the stack owns, and the
/// connection that repairs what is lost. Nothing is kept unless it is wanted.
#[derive(Clone, Debug, Default)]
pub struct SharedFates(Arc<Mutex<Fates>>);

impl SharedFates {
    fn with<T>(&self, change: impl FnOnce(&mut Fates) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they are kept until they are taken.
    pub(crate) fn want(&self) {
        self.with(|fates| fates.is_wanted = true);
    }

    /// A packet is sent; returns its number.
    pub(super) fn sent(&self, bytes: u64) -> u64 {
        self.with(|fates| {
            let packet = fates.next;
            fates.next += 1;
            if fates.is_wanted {
                fates.news.push(Fate::Sent { packet, bytes });
            }
            packet
        })
    }

    /// A packet was acknowledged.
    pub(super) fn arrived(&self, packet: u64) {
        self.with(|fates| {
            if fates.is_wanted {
                fates.news.push(Fate::Arrived { packet });
            }
        });
    }

    /// What has happened since it was last asked.
    pub(crate) fn take(&self) -> Vec<Fate> {
        self.with(|fates| std::mem::take(&mut fates.news))
    }
}
