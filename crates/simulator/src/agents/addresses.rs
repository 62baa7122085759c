//! Changes of a sender's address.

use ontempo_foundation::Time;

/// When the address of a flow's sender changes, in ascending order. An address is named by the number of
/// changes before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressChanges(Box<[Time]>);

impl AddressChanges {
    pub(crate) fn new(changes: &[Time]) -> Self {
        Self(changes.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How often the address has changed by `now`: which address the sender has.
    pub(crate) fn before(&self, now: Time) -> u8 {
        // A scenario has at most 100.
        u8::try_from(self.0.partition_point(|change| *change <= now)).unwrap_or(u8::MAX)
    }
}
