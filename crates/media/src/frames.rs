//! A film as a table of frames: when each is made, how large it is, and what it depends on.

use std::fmt;

use ontempo_foundation::Duration;

mod csv;
#[cfg(test)]
mod tests;

pub use csv::FrameTableError;

/// Frames of a table at most: 12 h of 50 pictures and 47 frames of sound a second.
pub const MAX_FRAMES: usize = 1 << 22;

/// Bytes of a frame at most: more than an uncompressed picture of 3,840 x 2,160 pixels in 4:2:0 with
/// 8 bits (12.4 MB).
pub const MAX_FRAME_SIZE: u32 = 16 << 20;

/// Dependencies of a frame at most: pictures that a decoder holds (H.264 A.3.1, HEVC A.4.2).
pub const MAX_FRAME_DEPENDENCIES: usize = 16;

/// The longest film: [`MAX_FRAMES`] at one a second, with room. A film that is repeated for years is
/// still far from the end of the clock.
pub const MAX_PERIOD: Duration = Duration::from_secs(10_000_000);

/// How long a picture is shown where a single one, or all at once, do not say: 25 a second.
const USUAL_DISTANCE: Duration = Duration::from_millis(40);

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A picture at which decoding can begin.
    Key,
    /// A picture that others depend on.
    Reference,
    /// A picture on which none depends: H.264 `nal_ref_idc` 0, HEVC `*_N`, a higher temporal layer
    /// of AV1.
    Disposable,
    /// A frame of sound.
    Sound,
}

/// How pictures are coded: what an elementary stream's marks look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// H.264 (ITU-T H.264).
    #[default]
    H264,
    /// HEVC (ITU-T H.265).
    Hevc,
    /// AV1.
    Av1,
    /// Sizes and times are known, marks are not.
    Unknown,
}

/// A picture or a piece of sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When the encoder gives it out, from the film's beginning.
    pub made: Duration,
    /// What it is.
    pub kind: FrameKind,
    /// Bytes of the elementary stream, at least 1.
    pub size: u32,
    /// The frames that decoding it needs besides itself, by number, each less than its own, rising.
    pub depends_on: Vec<u32>,
}

/// The frames of a film in the order in which the encoder gives them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTable {
    /// How its pictures are coded.
    pub codec: Codec,
    /// At least one; `made` never goes back.
    pub frames: Vec<Frame>,
    /// After this the film begins anew; later than the last frame.
    pub period: Duration,
}

/// What is wrong with a frame of a table, or with the table; as text what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameProblem {
    /// It has no picture.
    NoPictures,
    /// It has more than [`MAX_FRAMES`].
    TooManyFrames,
    /// A size of 0 or above [`MAX_FRAME_SIZE`].
    Size,
    /// A time before that of the frame before, in this order.
    GoesBack(Duration, Duration),
    /// The frame depends on itself or on a later one: on which, and its own number.
    DependsOnLater(u32, u32),
    /// Dependencies are named twice, or not in rising order.
    DependenciesOrder,
    /// It has more than [`MAX_FRAME_DEPENDENCIES`].
    TooManyDependencies,
    /// The period, which is not after the last frame's time.
    Period(Duration, Duration),
    /// The period is above [`MAX_PERIOD`].
    TooLong,
}

impl fmt::Display for FrameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPictures => f.write_str(
                "a film has pictures: at least one frame of type key, reference or disposable",
            ),
            Self::TooManyFrames => write!(f, "a film has at most {MAX_FRAMES} frames"),
            Self::Size => write!(f, "a size is 1 to {MAX_FRAME_SIZE} bytes"),
            Self::GoesBack(time, before) => write!(
                f,
                "the time {} s is before that of the frame before, {} s; frames are in the order in \
                 which the encoder gives them out",
                seconds_text(*time),
                seconds_text(*before)
            ),
            Self::DependsOnLater(on, own) => write!(
                f,
                "frame {own} depends on frame {on}; a frame depends only on earlier ones, counted \
                 from 0"
            ),
            Self::DependenciesOrder => {
                f.write_str("dependencies are in rising order, each named once")
            }
            Self::TooManyDependencies => {
                write!(f, "a frame depends on at most {MAX_FRAME_DEPENDENCIES} others")
            }
            Self::Period(period, last) => write!(
                f,
                "the period {} s must be after the last frame, which is at {} s",
                seconds_text(*period),
                seconds_text(*last)
            ),
            Self::TooLong => {
                write!(f, "a film lasts at most {} s", seconds_text(MAX_PERIOD))
            }
        }
    }
}

impl std::error::Error for FrameProblem {}

impl FrameTable {
    /// Whether it is what its fields' descriptions say.
    ///
    /// # Errors
    /// The first problem, and the number of its frame unless it is of the whole table.
    pub fn check(&self) -> Result<(), (Option<usize>, FrameProblem)> {
        if self.frames.len() > MAX_FRAMES {
            return Err((None, FrameProblem::TooManyFrames));
        }
        let mut before = Duration::ZERO;
        for (number, frame) in self.frames.iter().enumerate() {
            frame.check(number, before).map_err(|problem| (Some(number), problem))?;
            before = frame.made;
        }
        if !self.frames.iter().any(|frame| frame.kind != FrameKind::Sound) {
            return Err((None, FrameProblem::NoPictures));
        }
        if self.period <= before {
            return Err((None, FrameProblem::Period(self.period, before)));
        }
        if self.period > MAX_PERIOD {
            return Err((None, FrameProblem::TooLong));
        }
        Ok(())
    }
}

impl FrameTable {
    /// How long its pictures last: as many of their mean distances as there are. Their rate is that of
    /// this time, since the film may go on with sound.
    pub fn length_of_pictures(&self) -> Duration {
        self.length_of(|kind| kind != FrameKind::Sound)
    }

    /// How long its sound lasts, alike; zero without.
    pub fn length_of_sound(&self) -> Duration {
        self.length_of(|kind| kind == FrameKind::Sound)
    }

    fn length_of(&self, of: impl Fn(FrameKind) -> bool) -> Duration {
        let those = self.frames.iter().filter(|frame| of(frame.kind));
        length(&those.map(|frame| frame.made).collect::<Vec<_>>())
    }
}

impl Frame {
    /// Whether it can be the frame of this number, after one of the time `before`.
    fn check(&self, number: usize, before: Duration) -> Result<(), FrameProblem> {
        if self.size == 0 || self.size > MAX_FRAME_SIZE {
            return Err(FrameProblem::Size);
        }
        if self.made < before {
            return Err(FrameProblem::GoesBack(self.made, before));
        }
        if self.depends_on.len() > MAX_FRAME_DEPENDENCIES {
            return Err(FrameProblem::TooManyDependencies);
        }
        if !self.depends_on.is_sorted_by(|one, next| one < next) {
            return Err(FrameProblem::DependenciesOrder);
        }
        // Frames are counted with 22 bits.
        let own = u32::try_from(number).unwrap_or(u32::MAX);
        match self.depends_on.last().filter(|&&last| last >= own) {
            Some(&later) => Err(FrameProblem::DependsOnLater(later, own)),
            None => Ok(()),
        }
    }
}

/// When a film of these frames ends that does not say: as long after the last frame as its pictures
/// are apart in the mean; 40 ms where it has a single one.
fn usual_period(frames: &[Frame]) -> Duration {
    let pictures = frames.iter().filter(|frame| frame.kind != FrameKind::Sound);
    let times: Vec<Duration> = pictures.map(|frame| frame.made).collect();
    let last = frames.last().map_or(Duration::ZERO, |last| last.made);
    last.saturating_add(mean_distance(&times))
}

/// The mean distance of rising times; 40 ms where there is none.
fn mean_distance(times: &[Duration]) -> Duration {
    let steps = times.len().saturating_sub(1) as u64;
    let ends = times.first().zip(times.last());
    let span = ends.map_or(0, |(first, last)| (*last - *first).as_nanos());
    if steps > 0 && span >= steps { Duration::from_nanos(span / steps) } else { USUAL_DISTANCE }
}

/// How long frames last that are made at these rising times: as many mean distances as there are.
/// Zero without frames.
pub(crate) fn length(times: &[Duration]) -> Duration {
    match (times.first(), times.last()) {
        (Some(first), Some(last)) => (*last - *first).saturating_add(mean_distance(times)),
        _ => Duration::ZERO,
    }
}

/// Seconds with nine decimals, exactly.
fn seconds_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
