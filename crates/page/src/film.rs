//! What a viewer sees of a film, from its frames: freezes, the share of pictures that a player of
//! each latency shows on time, and the lines of its charts.

use serde::Serialize;

use crate::model::{Chart, Form, Run, Shape};
use crate::numbers::{count, percent, seconds};
use crate::reduce::{BandRow, Point, intervals, quantile};

/// A gap between pictures is a freeze if it is longer than three mean gaps, and by more than this
/// longer than one (W3C, Identifiers for WebRTC's Statistics API, `freezeCount`).
const FREEZE_S: f64 = 0.15;

/// Latencies of a curve of shares, at most, besides those of players.
const CURVE_POINTS: usize = 400;

/// Intervals of the lines that compare contenders.
const INTERVALS: usize = 150;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Key,
    Reference,
    Disposable,
    Sound,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Key, Self::Reference, Self::Disposable, Self::Sound];

    /// As the table `frames` names it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "key" => Some(Self::Key),
            "reference" => Some(Self::Reference),
            "disposable" => Some(Self::Disposable),
            "sound" => Some(Self::Sound),
            _ => None,
        }
    }

    fn about(self) -> (&'static str, Form) {
        match self {
            Self::Key => ("key pictures", Form::Key),
            Self::Reference => ("reference", Form::Reference),
            Self::Disposable => ("disposable", Form::Disposable),
            Self::Sound => ("sound", Form::Sound),
        }
    }
}

/// A frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) sent_s: f64,
    /// Until all of it was there; `None`: it was not by the end.
    pub(crate) latency_s: Option<f64>,
    /// The least latency of a player that can decode it; `None`: none can.
    pub(crate) decodable_s: Option<f64>,
}

impl Frame {
    fn is_picture(&self) -> bool {
        self.kind != Kind::Sound
    }

    pub(crate) fn is_on_time(&self, latency_s: f64) -> bool {
        self.decodable_s.is_some_and(|least| least <= latency_s)
    }
}

/// Frames sent, those not whole by the end, and those whole that nobody can decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct KindCount {
    pub(crate) sent: u64,
    pub(crate) not_whole: u64,
    pub(crate) undecodable: u64,
}

/// A film for a player of one latency, as the table `media` has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Player {
    pub(crate) latency_s: f64,
    pub(crate) pictures: u64,
    pub(crate) decodable_pictures: u64,
    pub(crate) sound_frames: u64,
    pub(crate) decodable_sound: u64,
    pub(crate) freezes: u64,
    pub(crate) longest_freeze_s: f64,
    pub(crate) frozen_s: f64,
}

/// A group of flows with a film.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Film {
    pub(crate) group: String,
    pub(crate) flows: u64,
    pub(crate) transport: String,
    pub(crate) players: Vec<Player>,
    /// Of the frames that arrived whole.
    pub(crate) p50_s: Option<f64>,
    pub(crate) p95_s: Option<f64>,
    pub(crate) p99_s: Option<f64>,
    pub(crate) media_bytes: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) back_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) dropped_packets: u64,
    /// Packets sent again; `None` where the tables do not tell.
    pub(crate) sent_again: Option<u64>,
    /// Key, reference and disposable pictures, sound.
    pub(crate) kinds: [KindCount; 4],
}

/// Where the picture stands still for a player of `latency_s`, in times of sending. `frames` are
/// those of one flow in the order of sending; as in the table `media`, those due after `until_s` do
/// not count.
pub(crate) fn freezes(frames: &[Frame], latency_s: f64, until_s: f64) -> Vec<Point> {
    let due = |frame: &&Frame| frame.is_picture() && frame.sent_s + latency_s <= until_s;
    let pictures: Vec<&Frame> = frames.iter().filter(due).collect();
    let (Some(first), Some(last)) = (pictures.first(), pictures.last()) else { return Vec::new() };
    let gaps_between = pictures.len().saturating_sub(1).max(1) as f64;
    let mean = (last.sent_s - first.sent_s) / gaps_between;
    let limit = f64::max(3.0 * mean, mean + FREEZE_S);
    let on_time = pictures.iter().filter(|frame| frame.is_on_time(latency_s));
    let mut shown = first.sent_s;
    let mut found = Vec::new();
    for at in on_time.map(|frame| frame.sent_s).chain([last.sent_s]) {
        if at - shown > limit {
            found.push((shown, at));
        }
        shown = at;
    }
    found
}

/// For each latency of a player the share of the pictures that it shows on time, of those due by
/// `until_s`: at most [`CURVE_POINTS`] latencies at which pictures become decodable, and `players`.
/// Beyond the latency at which only half of the pictures are due, the curve would say little.
pub(crate) fn curve(frames: &[Frame], players: &[f64], until_s: f64) -> Vec<Point> {
    let pictures = || frames.iter().filter(|frame| frame.is_picture());
    let mut sorted: Vec<f64> = pictures().filter_map(|frame| frame.decodable_s).collect();
    sorted.sort_by(f64::total_cmp);
    let mut steps: Vec<f64> = (0..=CURVE_POINTS)
        .filter_map(|place| quantile(&sorted, place as f64 / CURVE_POINTS as f64))
        .chain(players.iter().copied())
        .filter(|latency| latency.is_finite() && *latency > 0.0)
        .collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    // Each picture counts at the steps from its first to its last: differences, then their sums.
    let (mut due, mut on_time) = (vec![0i64; steps.len() + 1], vec![0i64; steps.len() + 1]);
    for picture in pictures() {
        let end = steps.partition_point(|step| picture.sent_s + step <= until_s);
        due[0] += 1;
        due[end] -= 1;
        let least = picture.decodable_s.unwrap_or(f64::INFINITY);
        let begin = steps.partition_point(|step| *step < least);
        if begin < end {
            on_time[begin] += 1;
            on_time[end] -= 1;
        }
    }
    let (mut all, mut good, mut points) = (0, 0, Vec::new());
    let sent = pictures().count() as i64;
    for (place, step) in steps.into_iter().enumerate() {
        (all, good) = (all + due[place], good + on_time[place]);
        if all > 0 && (2 * all >= sent || players.contains(&step)) {
            points.push((step, good as f64 / all as f64));
        }
    }
    points
}

/// Draws a film's frames: those of its first flow one by one, those of all flows compared.
pub(crate) fn draw(run: &mut Run, film: &Film, flows: &mut [Vec<Frame>]) {
    let label = film.group.as_str();
    let (end_s, players) = (run.end_s, &film.players);
    let latencies: Vec<f64> = players.iter().map(|player| player.latency_s).collect();
    let judged_s = latencies.last().copied();
    let all: Vec<Frame> = {
        let mut all = flows.concat();
        all.sort_by(|a, b| a.sent_s.total_cmp(&b.sent_s));
        all
    };
    run.draw(
        Chart::OnTime,
        label,
        "of the pictures sent",
        Shape::Steps(curve(&all, &latencies, end_s)),
    );
    run.draw(Chart::FrameLatency, label, "5, 50 and 99 % of frames", Shape::Band(band(&all)));
    if let Some(latency_s) = judged_s {
        let detail = format!("player {}", seconds(latency_s));
        run.draw(Chart::NotShown, label, detail, Shape::Steps(not_shown(&all, latency_s, end_s)));
    }
    run.players.extend(&latencies);
    if let Some(first) = flows.first() {
        draw_freezes(run, film, first);
        draw_frames(run, film, first, judged_s);
    }
}

fn draw_freezes(run: &mut Run, film: &Film, frames: &[Frame]) {
    let of = (Chart::Frames, film.group.as_str());
    for player in &film.players {
        let latency = seconds(player.latency_s);
        let spans = freezes(frames, player.latency_s, run.end_s);
        let total: f64 = spans.iter().map(|span| span.1 - span.0).sum();
        let detail = format!("{}, {} in all", count(spans.len() as u64), seconds(total));
        run.draw_of(of, (format!("freezes, player {latency}"), detail), Shape::Spans(spans));
        let detail = "frames above are late".to_owned();
        let deadline = Shape::Limit(vec![(0.0, player.latency_s)]);
        run.draw_of(of, (format!("player {latency}"), detail), deadline);
    }
}

fn draw_frames(run: &mut Run, film: &Film, frames: &[Frame], judged_s: Option<f64>) {
    let of = (Chart::Frames, film.group.as_str());
    let whole = |frame: &Frame| frame.latency_s.map(|latency| (frame.sent_s, latency));
    // What is drawn later lies above.
    for kind in Kind::ALL.into_iter().rev() {
        let of_kind = || frames.iter().filter(move |frame| frame.kind == kind);
        let (label, form) = kind.about();
        let detail = count(of_kind().count() as u64);
        let points = apart(of_kind().filter_map(whole).collect());
        run.draw_of(of, (label.to_owned(), detail), Shape::Symbols(form, points));
    }
    let late = |frame: &&Frame| match judged_s {
        Some(latency_s) => !frame.is_on_time(latency_s),
        None => frame.decodable_s.is_none(),
    };
    let late: Vec<Point> = frames.iter().filter(late).filter_map(whole).collect();
    let label = match judged_s {
        Some(latency_s) => format!("whole, not decodable for player {}", seconds(latency_s)),
        None => "whole, never decodable".to_owned(),
    };
    let detail = count(late.len() as u64);
    run.draw_of(of, (label, detail), Shape::Symbols(Form::Undecodable, apart(late)));
    for (label, form, is_picture) in
        [("lost sound", Form::LostSound, false), ("lost pictures", Form::Lost, true)]
    {
        let lost = frames
            .iter()
            .filter(|frame| frame.latency_s.is_none() && frame.is_picture() == is_picture);
        let lost: Vec<Point> = lost.map(|frame| (frame.sent_s, 0.0)).collect();
        let share = lost.len() as f64 / frames.len().max(1) as f64;
        let detail = format!("{}, {} of all frames", count(lost.len() as u64), percent(share));
        run.draw_of(of, (label.to_owned(), detail), Shape::Symbols(form, apart(lost)));
    }
}

/// The points, none at the time of another: as many microseconds later as are taken.
pub(crate) fn apart(mut points: Vec<Point>) -> Vec<Point> {
    const STEP_S: f64 = 1e-6;
    let mut last = f64::NEG_INFINITY;
    for point in &mut points {
        point.0 = point.0.max(last + STEP_S);
        last = point.0;
    }
    points
}

/// 5, 50 and 99 % of the latencies of frames that arrived, in intervals.
fn band(frames: &[Frame]) -> Vec<BandRow> {
    let row = |bucket: &[Frame]| {
        let mut sorted: Vec<f64> = bucket.iter().filter_map(|frame| frame.latency_s).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        let middle = bucket.iter().map(|frame| frame.sent_s).sum::<f64>() / bucket.len() as f64;
        Some([middle, at(0.05)?, at(0.5)?, at(0.99)?])
    };
    intervals(frames, INTERVALS, |frame| frame.sent_s).filter_map(row).collect()
}

/// The share of pictures that a player of `latency_s` does not show, in intervals.
fn not_shown(frames: &[Frame], latency_s: f64, until_s: f64) -> Vec<Point> {
    let due = |frame: &&Frame| frame.is_picture() && frame.sent_s + latency_s <= until_s;
    let pictures: Vec<Frame> = frames.iter().filter(due).copied().collect();
    let share = |bucket: &[Frame]| {
        let missing = bucket.iter().filter(|frame| !frame.is_on_time(latency_s)).count();
        (bucket[0].sent_s, missing as f64 / bucket.len() as f64)
    };
    intervals(&pictures, INTERVALS, |frame| frame.sent_s).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pictures 40 ms apart with these least latencies, and a frame of sound with each.
    fn frames(decodable_s: &[Option<f64>]) -> Vec<Frame> {
        let one = |(place, decodable_s): (usize, &Option<f64>)| {
            let sent_s = place as f64 * 0.04;
            let picture = Frame {
                kind: Kind::Reference,
                sent_s,
                latency_s: *decodable_s,
                decodable_s: *decodable_s,
            };
            let heard = Some(0.01);
            [picture, Frame { kind: Kind::Sound, latency_s: heard, decodable_s: heard, ..picture }]
        };
        decodable_s.iter().enumerate().flat_map(one).collect()
    }

    #[test]
    fn a_gap_is_a_freeze_from_the_last_picture_shown_to_the_next() {
        let mut pictures = vec![Some(0.1); 100];
        // Three missing pictures: a gap of 160 ms, no more than 40 + 150 ms. Four: 200 ms.
        pictures[20..23].fill(None);
        pictures[50..54].fill(Some(0.3));
        let of = |latency_s| freezes(&frames(&pictures), latency_s, 60.0);
        let found = of(0.2);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((found[0].0 - 1.96).abs() < 1e-9 && (found[0].1 - 2.16).abs() < 1e-9);
        assert!(of(0.3).is_empty(), "that player waits long enough");
        assert_eq!(of(0.05), [(0.0, 99.0 * 0.04)], "nothing is shown: one freeze of all");
        assert!(freezes(&[], 0.1, 60.0).is_empty());
    }

    #[test]
    fn a_curve_has_the_share_of_the_pictures_due_at_each_latency() {
        let mut pictures = vec![Some(0.1); 50];
        pictures.extend([Some(0.5); 30]);
        pictures.extend([None; 20]);
        let points = curve(&frames(&pictures), &[0.05, 0.2], 60.0);
        assert_eq!(points, [(0.05, 0.0), (0.1, 0.5), (0.2, 0.5), (0.5, 0.8)]);
        // By 2 s no picture after the 38th is due for a player of 0.5 s, nor any of 3 s.
        let short = curve(&frames(&pictures), &[0.5, 3.0], 2.0);
        assert_eq!(short, [(0.5, 38.0 / 38.0)], "fewer than half, but a player's");
        let short = curve(&frames(&pictures), &[3.0], 2.2);
        assert_eq!(short, [(0.1, 50.0 / 53.0)]);
        assert!(curve(&[], &[0.1], 60.0).is_empty());
    }

    #[test]
    fn a_curve_of_many_pictures_has_a_bounded_number_of_points_and_never_falls() {
        let pictures: Vec<_> =
            (0..20_000).map(|place| Some(f64::from(place * 7919 % 20_011) / 1e4)).collect();
        let points = curve(&frames(&pictures), &[0.5], 1e4);
        assert!(points.len() <= CURVE_POINTS + 2 && points.len() > 200, "{}", points.len());
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert_eq!(points.last().map(|point| point.1), Some(1.0));
    }

    #[test]
    fn pictures_that_are_not_shown_are_shares_of_intervals() {
        let mut pictures = vec![Some(0.1); 300];
        pictures[100..110].fill(None);
        let points = not_shown(&frames(&pictures), 0.2, 60.0);
        assert!(points.len() <= INTERVALS);
        let shares: f64 = points.iter().map(|point| point.1).sum();
        assert!((shares * 2.0 - 10.0).abs() < 2.0, "{shares}");
        assert_eq!(points[0].1, 0.0);
    }
}
