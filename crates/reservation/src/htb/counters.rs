/// Counters of a class since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub sent: u64,
    /// Packets sent beyond the class's own rate, with tokens borrowed from its parent; counted in
    /// `sent`, too.
    pub borrowed: u64,
    /// Packets dropped because the class's queue was full.
    pub dropped: u64,
}
