//! What becomes of each packet, told to whoever wants to know.

/// Is told what becomes of each packet. `()` does not want to know, at no cost.
pub trait Watch {
    /// `packet` is newly acknowledged, cumulatively or selectively.
    fn delivered(&mut self, packet: u64);
    /// What was in flight of `packet` was found lost.
    fn lost(&mut self, packet: u64);
}

impl Watch for () {
    #[inline]
    fn delivered(&mut self, _: u64) {}

    #[inline]
    fn lost(&mut self, _: u64) {}
}
