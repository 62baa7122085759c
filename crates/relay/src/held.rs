//! Payloads that viewers share, counted once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

/// Memory counted for a payload beside its bytes.
const OVERHEAD: u64 = 256;

/// Bytes of payloads that are held by anyone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Arc<AtomicU64>);

/// A payload that is taken from the account when nobody has it any more.
struct Payload {
    data: Bytes,
    account: Account,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.account.0.fetch_sub(OVERHEAD + self.data.len() as u64, Relaxed);
    }
}

impl Account {
    /// The payload, counted until its last copy and slice are gone; its bytes are not copied.
    pub(crate) fn count(&self, data: Bytes) -> Bytes {
        self.0.fetch_add(OVERHEAD + data.len() as u64, Relaxed);
        Bytes::from_owner(Payload { data, account: self.clone() })
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_counts_once_until_its_last_slice_is_gone_and_is_not_copied() {
        let (account, data) = (Account::default(), Bytes::from(vec![7; 1000]));
        let at = data.as_ptr();
        let first = account.count(data);
        let slice = first.clone().slice(10..20);
        assert_eq!((account.held(), first.as_ptr()), (1000 + OVERHEAD, at));
        drop(first);
        assert_eq!(account.held(), 1000 + OVERHEAD);
        drop(slice);
        assert_eq!(account.held(), 0);
    }
}
