//! What a film is like, in a few lines or as JSON.

use std::fmt::Write;

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_media::{Codec, Frame, FrameKind};
use serde_json::{Value, json};

use super::Film;

/// The kinds of pictures.
const PICTURES: [FrameKind; 3] = [FrameKind::Key, FrameKind::Reference, FrameKind::Disposable];

/// Frames of some kinds.
#[derive(Clone, Copy, Default)]
struct Group {
    count: u64,
    bytes: u64,
    largest: u32,
}

impl Group {
    fn of<'a>(frames: impl Iterator<Item = &'a Frame>) -> Self {
        frames.fold(Self::default(), |group, frame| Self {
            count: group.count + 1,
            bytes: group.bytes + u64::from(frame.size),
            largest: group.largest.max(frame.size),
        })
    }

    fn mean(self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }

    fn json(self) -> Value {
        json!({ "count": self.count, "mean_bytes": self.mean(), "largest_bytes": self.largest })
    }
}

/// What is shown of a film.
pub(super) struct Summary<'a> {
    film: &'a Film,
    by_kind: [Group; 3],
    pictures: Group,
    sound: Group,
    /// From one key picture to the next: mean and longest in seconds and pictures; `None` with one.
    key_distance: Option<[(f64, f64); 2]>,
    largest: &'a Frame,
}

impl<'a> Summary<'a> {
    pub(super) fn of(film: &'a Film) -> Self {
        let frames = &film.table.frames;
        let of = |kind| Group::of(frames.iter().filter(move |frame| frame.kind == kind));
        let is_picture = |frame: &&Frame| frame.kind != FrameKind::Sound;
        Self {
            film,
            by_kind: PICTURES.map(of),
            pictures: Group::of(frames.iter().filter(is_picture)),
            sound: of(FrameKind::Sound),
            key_distance: key_distance(frames),
            // A table has frames; of equal ones the first.
            largest: frames.iter().rev().max_by_key(|frame| frame.size).unwrap_or(&frames[0]),
        }
    }

    fn rate_of_pictures(&self) -> Rate {
        Rate::of(Bytes::new(self.pictures.bytes), self.film.table.length_of_pictures())
    }

    fn rate_of_sound(&self) -> Rate {
        match self.sound.count {
            0 => Rate::from_bits_per_sec(0),
            _ => Rate::of(Bytes::new(self.sound.bytes), self.film.table.length_of_sound()),
        }
    }

    fn picture_rate(&self) -> f64 {
        self.pictures.count as f64 / self.film.table.length_of_pictures().as_secs_f64()
    }

    /// Of pictures and sound together.
    fn total(&self) -> Rate {
        let rates = [self.rate_of_pictures(), self.rate_of_sound()].map(Rate::as_bits_per_sec);
        Rate::from_bits_per_sec(rates[0].saturating_add(rates[1]))
    }

    pub(super) fn text(&self) -> String {
        let table = &self.film.table;
        let mut text = String::new();
        let codec = match table.codec {
            Codec::Unknown => "unknown codec",
            codec => codec.name(),
        };
        let mut line = |name: &str, rest: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:14}{rest}");
        };
        let duration = seconds(table.period);
        line("film", format!("{codec}, {duration}, {}", megabits(self.total())));
        let (count, rate) = (self.pictures.count, megabits(self.rate_of_pictures()));
        line("pictures", format!("{count}, {:.2} a second, {rate}", self.picture_rate()));
        for (kind, group) in PICTURES.into_iter().zip(self.by_kind) {
            let sizes = format!("mean {:.0} bytes, largest {} bytes", group.mean(), group.largest);
            match group.count {
                0 => line(&format!("  {}", kind.name()), "none".to_owned()),
                count => line(&format!("  {}", kind.name()), format!("{count}, {sizes}")),
            }
        }
        if let Some([(mean, pictures), (longest, most)]) = self.key_distance {
            let mean = format!("{mean:.3} s ({pictures:.1} pictures) in the mean");
            line("key distance", format!("{mean}, longest {longest:.3} s ({most:.0})"));
        }
        let (size, kind) = (self.largest.size, self.largest.kind.name());
        line("largest", format!("{size} bytes, {kind}, at {}", seconds(self.largest.made)));
        match self.sound.count {
            0 => line("sound", "none".to_owned()),
            count => {
                let rate = self.rate_of_sound().as_bits_per_sec() as f64 / 1e3;
                line("sound", format!("{count} frames, {rate:.1} kbit/s"));
            }
        }
        if let Some(share) = self.film.stuffing {
            line("stuffing", format!("{:.1} % of the packets", 100.0 * share));
        }
        for sentence in &self.film.untold {
            line("not told", sentence.clone());
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let table = &self.film.table;
        let [key, reference, disposable] = self.by_kind.map(Group::json);
        let distance = self.key_distance.map(|[mean, longest]| {
            json!({
                "mean_s": mean.0,
                "mean_pictures": mean.1,
                "longest_s": longest.0,
                "longest_pictures": longest.1,
            })
        });
        json!({
            "codec": table.codec.name(),
            "duration_s": table.period.as_secs_f64(),
            "rate_bps": self.total().as_bits_per_sec(),
            "pictures": {
                "count": self.pictures.count,
                "per_second": self.picture_rate(),
                "rate_bps": self.rate_of_pictures().as_bits_per_sec(),
                "key": key,
                "reference": reference,
                "disposable": disposable,
            },
            "key_distance": distance,
            "largest": {
                "bytes": self.largest.size,
                "type": self.largest.kind.name(),
                "time_s": self.largest.made.as_secs_f64(),
            },
            "sound": {
                "count": self.sound.count,
                "rate_bps": self.rate_of_sound().as_bits_per_sec(),
            },
            "stuffing_share": self.film.stuffing,
            "not_told": self.film.untold,
        })
    }
}

/// Mean and longest distance of key pictures, in seconds and in pictures.
fn key_distance(frames: &[Frame]) -> Option<[(f64, f64); 2]> {
    let pictures = frames.iter().filter(|frame| frame.kind != FrameKind::Sound).enumerate();
    let keys = pictures.filter(|(_, frame)| frame.kind == FrameKind::Key);
    let keys: Vec<(f64, f64)> =
        keys.map(|(place, frame)| (frame.made.as_secs_f64(), place as f64)).collect();
    let (first, last) = (keys.first()?, keys.last()?);
    let steps = keys.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1));
    let longest = steps.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))?;
    let count = (keys.len() - 1) as f64;
    Some([((last.0 - first.0) / count, (last.1 - first.1) / count), longest])
}

fn megabits(rate: Rate) -> String {
    format!("{:.3} Mbit/s", rate.as_mbit_per_sec())
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}
