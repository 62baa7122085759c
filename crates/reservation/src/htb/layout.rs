//! Minor numbers of the HTB classes: `1:fff0` is the class with the minor number 0xfff0.

/// The class of all, and that of what is not reserved, where the discipline is ours.
pub(super) const ROOT: u16 = 0xfff0;
pub(super) const BEST_EFFORT: u16 = 0xfff1;
/// ARP and neighbour discovery.
pub(super) const NEIGHBOURS: u16 = 0xfff2;
/// Routing protocols and other network control: CS6, and IS-IS.
pub(super) const NETWORK_CONTROL: u16 = 0xfff3;
/// The daemon's own messages.
pub(super) const SIGNALLING: u16 = 0xfff4;
/// The class of all where the discipline was there before us, as docs/emulation.md has it.
pub(super) const THEIR_ROOT: u16 = 1;
/// Handle 1 has the next class. Below, others may have theirs.
pub(super) const FIRST_CLASS: u16 = 0x1000;
/// The machine's handles end before.
pub(super) const LAST_CLASS: u16 = FIRST_CLASS + 0x7fff;
/// Aggregates: as many as there are code points, above the classes of an emulated network, which may
/// share the interface (docs/emulation.md).
pub(super) const FIRST_AGGREGATE: u16 = 0xf000;
pub(super) const LAST_AGGREGATE: u16 = FIRST_AGGREGATE + 63;
