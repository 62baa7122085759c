use ontempo_foundation::Time;

/// A packet in flight, as tracked by an adapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// Its number in the order of sending.
    pub(super) number: u64,
    /// Its number among all packets of the connection.
    pub(super) fate: u64,
    /// The stack's number, unique within one of its spaces.
    pub(super) stack_number: u64,
    pub(super) sent: Time,
    pub(super) bytes: u64,
}
