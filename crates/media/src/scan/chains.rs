//! What each picture depends on.

use std::collections::VecDeque;

use super::marks::{Marks, Refers};
use crate::{FrameKind, MAX_FRAME_DEPENDENCIES};

/// References that are remembered: two of the largest buffers of a decoder.
const REMEMBERED: usize = 2 * MAX_FRAME_DEPENDENCIES;

/// A picture before it is in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture {
    pub(super) marks: Marks,
    /// When it is shown, 90 kHz, unwrapped; `None` if it does not say.
    pub(super) shown: Option<u64>,
}

/// A reference to which pictures may refer.
#[derive(Clone, Copy, Debug)]
struct Reference {
    number: u32,
    marks: Marks,
    shown: Option<u64>,
    /// The number of the last key picture, or its own.
    key: u32,
}

/// Kind and dependencies of each picture, in decoding order; dependencies are numbers of pictures.
///
/// No reference lists are decoded: which of the possible references a picture uses is not known, and
/// it is said to depend on all that it could use, directly or through others.
/// - A key picture depends on none.
/// - A P picture depends on the reference before it in decoding order, and thereby on all back to the
///   key picture. An I picture among these that is no key breaks no chain: the P picture depends on the
///   one before it, too.
/// - A B picture depends on the same, and on the two references that are shown nearest before and after
///   it, of those that are decoded before.
/// - A picture that is shown after the last key picture depends on nothing decoded before that, nor on
///   pictures shown before it (leading ones, of an open group): what begins to decode at the key does
///   without them. A leading picture depends on both sides, but a RADL picture of HEVC not on what is
///   before the key.
/// - No picture depends on one of a higher temporal layer, nor on one of its own layer that its marks say
///   is disposable.
///
/// A picture is disposable if its marks say so and it is in the highest temporal layer.
pub(super) fn chains(pictures: &[Picture]) -> Vec<(FrameKind, Vec<u32>)> {
    let top = pictures.iter().map(|picture| picture.marks.layer).max().unwrap_or(0);
    let mut references: VecDeque<Reference> = VecDeque::new();
    let mut key: Option<Reference> = None;
    let mut all = Vec::with_capacity(pictures.len());
    for (number, picture) in pictures.iter().enumerate() {
        let Picture { marks, shown } = *picture;
        // A table has fewer.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let own_key = if marks.is_key { number } else { key.map_or(0, |key| key.number) };
        let own = Reference { number, marks, shown, key: own_key };
        let depends_on = depends_on(&own, key.as_ref(), &references);
        if marks.is_key {
            key = Some(own);
        }
        let is_disposable = marks.is_disposable && marks.layer == top && !marks.is_key;
        if !is_disposable {
            if references.len() >= REMEMBERED {
                references.pop_front();
            }
            references.push_back(own);
        }
        let kind = match (marks.is_key, is_disposable) {
            (true, _) => FrameKind::Key,
            (false, true) => FrameKind::Disposable,
            (false, false) => FrameKind::Reference,
        };
        all.push((kind, depends_on));
    }
    all
}

/// Whether one is shown before the other; `None` if not both say when.
fn is_before(one: &Reference, other: &Reference) -> Option<bool> {
    Some(one.shown? < other.shown?)
}

fn depends_on(
    own: &Reference,
    key: Option<&Reference>,
    references: &VecDeque<Reference>,
) -> Vec<u32> {
    if own.marks.refers == Refers::Nothing {
        return Vec::new();
    }
    let leads = key.is_some_and(|key| is_before(own, key) == Some(true));
    let may_refer = |other: &&Reference| {
        let in_layer = other.marks.layer < own.marks.layer
            || other.marks.layer == own.marks.layer && !other.marks.is_disposable;
        let in_group = match key {
            None => true,
            Some(_) if leads && !own.marks.is_decodable_leading => true,
            Some(_) if leads => other.key == own.key,
            Some(key) => other.key == own.key && is_before(other, key) != Some(true),
        };
        in_layer && in_group
    };
    let possible: Vec<&Reference> = references.iter().filter(may_refer).collect();
    let mut depends_on = before(&possible, leads);
    if leads || own.marks.refers == Refers::Both {
        depends_on.extend(neighbours(own, &possible));
    }
    depends_on.sort_unstable();
    depends_on.dedup();
    depends_on
}

/// The references that are shown nearest before and after `own`.
fn neighbours(own: &Reference, possible: &[&Reference]) -> impl Iterator<Item = u32> {
    let earlier = possible.iter().filter(|other| is_before(other, own) == Some(true));
    let later = possible.iter().filter(|other| is_before(own, other) == Some(true));
    let nearest = [earlier.max_by_key(|other| other.shown), later.min_by_key(|other| other.shown)];
    nearest.into_iter().flatten().map(|other| other.number)
}

/// The reference before, and before I pictures the ones before these; of a picture that leads its key,
/// also before this.
fn before(possible: &[&Reference], leads: bool) -> Vec<u32> {
    let mut numbers = Vec::new();
    // Two are left for the neighbours.
    for other in possible.iter().rev().take(MAX_FRAME_DEPENDENCIES - 2) {
        numbers.push(other.number);
        if other.marks.is_key && !leads || other.marks.refers != Refers::Nothing {
            break;
        }
    }
    numbers
}
