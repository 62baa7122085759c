//! The pads of both elements.

/// A pad: `None` is the one that is always there (`sink`, `src`), a number that of `sink_%u` or `src_%u`.
pub(crate) type Place = Option<u32>;

/// The name of a pad; `always` is that of the one that is always there.
pub(crate) fn pad_name(always: &str, place: Place) -> String {
    place.map_or_else(|| always.to_owned(), |number| format!("{always}_{number}"))
}
