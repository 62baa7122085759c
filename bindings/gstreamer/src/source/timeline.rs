//! When frames of streams that come together are shown here.

use gstreamer as gst;
use ontempo_media::{FrameKind, FrameTimes, MAX_STREAMS};

/// A jump of the sender's times, ns: a new beginning.
const JUMP: i64 = 1_000_000_000;

/// Half of the time for which the fastest frame counts, ns.
const HALF: i64 = 15_000_000_000;

/// A second in which all frames come slower by more than this than the fastest one is a new beginning, ns: the sender
/// has stood still, and video sinks would leave out what they get from then on. The network is in no frame's time, the
/// encoder is; clocks that drift apart by 1 ms a second are 30 ms apart before the fastest frame is forgotten.
const SLOWER: i64 = 100_000_000;

/// What is compared with the fastest frame, ns.
const SECOND: i64 = 1_000_000_000;

/// Streams whose fastest frames are further apart than this have not the same clock, ns; an encoder that looks ahead
/// for some seconds has.
const APART: u64 = 10_000_000_000;

/// The offset of a stream that is no longer heard of counts for less and less: this part of the time since, so that
/// the frames of the others come together by 5 ms a second.
const SLIDE: i64 = 200;

/// How a frame came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    /// The stream, or the set of streams, counted from the first that was received.
    pub(super) epoch: u64,
    /// Running time at which its last datagram would have come without the latency; `None` while the element is
    /// not playing.
    pub(super) at: Option<gst::ClockTime>,
    /// Its stream is delivered in time.
    pub(super) is_timed: bool,
    /// It does not follow the one before.
    pub(super) begins: bool,
}

/// Maps the sender's times to running time here.
///
/// The frame of the last 15 to 30 s of a stream that came fastest is where it would have come without the latency,
/// so that the clocks may drift apart. Of several streams all go by the slowest one: they are in step as they were
/// at the sender, though an encoder of pictures takes longer than one of sound.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    epoch: u64,
    tracks: [Track; MAX_STREAMS],
}

/// What is known of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// The least difference of this half of the time and of the one before.
    least: [Option<i64>; 2],
    since: i64,
    /// When the second that runs has begun, and the least difference in it.
    second: Option<(i64, i64)>,
    /// How often a sender of what is delivered whole has begun anew.
    beginnings: u32,
    /// Since when it is heard of without a break.
    run: Option<i64>,
    /// When it was heard of last.
    heard: i64,
    /// The last time of decoding.
    last: i64,
}

/// The times of a frame here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) shown: Option<gst::ClockTime>,
    pub(super) decoded: Option<gst::ClockTime>,
    /// They do not go on from those before.
    pub(super) begins: bool,
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn time(nanos: i64) -> Option<gst::ClockTime> {
    u64::try_from(nanos).ok().map(gst::ClockTime::from_nseconds)
}

impl Track {
    fn offset(&self) -> Option<i64> {
        self.least.iter().flatten().min().copied()
    }

    /// A frame that is decoded at this time of the sender's came at `at`. Of a stream that is not delivered in time,
    /// the first frame alone counts. True if times begin anew.
    fn note(&mut self, decoded: i64, at: i64, is_timed: bool) -> bool {
        let difference = at.saturating_sub(decoded);
        let known = self.offset();
        let mut begins = false;
        if known.is_some_and(|offset| is_timed && offset.abs_diff(difference) > JUMP as u64) {
            (*self, begins) = (Self::default(), true);
        }
        if is_timed && let Some(least) = self.of_second(difference, at) {
            let is_slower = |offset: i64| least.saturating_sub(offset) > SLOWER;
            if self.offset().is_some_and(is_slower) {
                (self.least, self.since, begins) = ([Some(least), None], at, true);
            }
        }
        if at.saturating_sub(self.since) > HALF && is_timed {
            (self.least, self.since) = ([None, self.least[0]], at);
        }
        if is_timed || known.is_none() {
            let least = self.least[0].unwrap_or(i64::MAX).min(difference);
            self.least[0] = Some(least);
        }
        if self.run.is_none() || at.saturating_sub(self.heard) > JUMP {
            self.run = Some(at);
        }
        self.heard = at;
        begins
    }

    /// Takes the difference of a frame that came at `at`; the least of a second that this one is behind.
    fn of_second(&mut self, difference: i64, at: i64) -> Option<i64> {
        let (since, least) = self.second.unwrap_or((at, difference));
        let is_over = at.saturating_sub(since) >= SECOND;
        self.second = Some(if is_over { (at, difference) } else { (since, least.min(difference)) });
        is_over.then_some(least)
    }
}

impl Timeline {
    /// The difference for a stream: that of the slowest of those that are heard of, to which it slides down where one
    /// falls silent while this runs without a break, or that of the first frame of
    /// all if they are not delivered in time.
    fn offset(&self, place: usize, is_timed: bool) -> Option<i64> {
        let track = self.tracks.get(place)?;
        let own = track.offset()?;
        let counted = |other: &Track| {
            let silent = other.heard.saturating_add(2 * HALF);
            let has_followed = other.beginnings == track.beginnings;
            if !has_followed || track.run.is_none_or(|run| silent < run) {
                return None;
            }
            // Of those that are not delivered in time the distances are kept.
            let slid = if is_timed { track.heard.saturating_sub(silent).max(0) / SLIDE } else { 0 };
            Some(other.offset()?.saturating_sub(slid))
        };
        // Its own, too.
        let others = self.tracks.iter().filter_map(counted).chain([own]);
        let near = others.filter(|offset| offset.abs_diff(own) <= APART);
        if is_timed { near.max() } else { near.min() }
    }

    /// The times of a frame of the stream at this place.
    pub(super) fn place(
        &mut self,
        place: usize,
        times: &FrameTimes,
        kind: FrameKind,
        Came { epoch, at, is_timed, begins }: Came,
    ) -> Placed {
        let unknown = |shown| Placed { shown, ..Placed::default() };
        if epoch > self.epoch {
            *self = Self { epoch, ..Self::default() };
        }
        let Some(track) = self.tracks.get_mut(place).filter(|_| epoch == self.epoch) else {
            // Of a set of streams that has ended.
            return unknown(at);
        };
        if begins {
            *track = Track { beginnings: track.beginnings, ..Track::default() };
        }
        let Some(shown) = times.shown.map(|time| signed(time.as_nanos())) else {
            return unknown(at);
        };
        let before = signed(times.decoded_before.unwrap_or_default().as_nanos());
        let decoded = shown.saturating_sub(before);
        let mut at = at.map(|at| signed(at.nseconds()));
        let mut begins = !is_timed && self.goes_back(place, decoded);
        let track = &mut self.tracks[place];
        if begins {
            let (last, beginnings) = (track.last, track.beginnings + 1);
            *track = Track { last, beginnings, ..Track::default() };
            // What is before may still wait to be shown.
            at = Some(at.map_or(last, |at| at.max(last)));
        }
        begins |= at.is_some_and(|at| track.note(decoded, at, is_timed));
        let Some(offset) = self.offset(place, is_timed) else { return unknown(None) };
        let mut decoded = decoded.saturating_add(offset);
        let track = &mut self.tracks[place];
        // Times of decoding never go back; those of showing do where pictures are shown in another order.
        if times.decoded_before.is_some() || kind == FrameKind::Sound {
            decoded = decoded.max(track.last);
        }
        track.last = track.last.max(decoded);
        let shown = time(decoded.saturating_add(before));
        Placed { shown, decoded: times.decoded_before.and_then(|_| time(decoded)), begins }
    }

    /// The sender of a stream that is delivered whole has begun anew with this time of decoding, as after a seek: the
    /// times of one that is delivered in time tell it by when they come.
    fn goes_back(&self, place: usize, decoded: i64) -> bool {
        let is_before = |offset: i64| {
            decoded.saturating_add(offset).saturating_add(JUMP) < self.tracks[place].last
        };
        self.offset(place, false).is_some_and(is_before)
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;

    use super::*;

    const KIND: FrameKind = FrameKind::Reference;

    impl Timeline {
        /// Of the first of the streams.
        fn place_first(
            &mut self,
            times: &FrameTimes,
            kind: FrameKind,
            at: Option<gst::ClockTime>,
            is_timed: bool,
        ) -> (Option<gst::ClockTime>, Option<gst::ClockTime>) {
            let came = Came { epoch: 1, at, is_timed, begins: false };
            let placed = self.place(0, times, kind, came);
            (placed.shown, placed.decoded)
        }
    }

    fn ms(time: u64) -> Option<gst::ClockTime> {
        Some(gst::ClockTime::from_mseconds(time))
    }

    fn frame(shown: u64, before: u64) -> FrameTimes {
        FrameTimes {
            shown: Some(Duration::from_millis(shown)),
            decoded_before: Some(Duration::from_millis(before)),
            duration: None,
        }
    }

    #[test]
    fn times_are_those_of_the_sender_from_its_fastest_frame_on() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.place_first(&frame(5_000, 0), KIND, ms(130), true), (ms(130), ms(130)));
        // 30 ms faster, then late, then with a picture shown after others.
        assert_eq!(timeline.place_first(&frame(5_040, 0), KIND, ms(140), true), (ms(140), ms(140)));
        assert_eq!(timeline.place_first(&frame(5_080, 0), KIND, ms(260), true), (ms(180), ms(180)));
        assert_eq!(
            timeline.place_first(&frame(5_200, 80), KIND, ms(220), true),
            (ms(300), ms(220))
        );
        // While the element is paused.
        assert_eq!(timeline.place_first(&frame(5_240, 80), KIND, None, true), (ms(340), ms(260)));
    }

    #[test]
    fn a_clock_that_is_slower_than_ours_is_followed_and_a_jump_begins_anew() {
        let mut timeline = Timeline::default();
        let mut last = None;
        // 1 ms a second for ten minutes.
        for second in 0..600 {
            last =
                timeline.place_first(&frame(second * 1_000, 0), KIND, ms(second * 1_001), true).0;
        }
        let late = ms(599 * 1_001).zip(last).map(|(at, pts)| at.saturating_sub(pts).mseconds());
        assert!(late.is_some_and(|late| late <= 31), "{late:?}");
        assert_eq!(
            timeline.place_first(&frame(7, 0), KIND, ms(700_000), true),
            (ms(700_000), ms(700_000))
        );
    }

    #[test]
    fn of_a_stream_that_is_delivered_whole_the_distances_are_kept() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.place_first(&frame(0, 0), KIND, ms(100), false).0, ms(100));
        assert_eq!(timeline.place_first(&frame(4_000, 0), KIND, ms(101), false).0, ms(4_100));
    }

    #[test]
    fn pictures_without_a_time_of_decoding_keep_theirs_in_any_order() {
        let mut timeline = Timeline::default();
        let shown = [0, 120, 40, 80].map(|shown| {
            let times = FrameTimes { decoded_before: None, ..frame(shown, 0) };
            timeline.place_first(&times, KIND, ms(1_000 + shown), true).0
        });
        assert_eq!(shown, [1_000, 1_120, 1_040, 1_080].map(ms));
    }

    /// Pictures take 80 ms longer than sound to be encoded; both are shown at the same times.
    #[test]
    fn several_streams_go_by_the_slowest_and_stay_in_step() {
        let mut timeline = Timeline::default();
        let came = |at| Came { epoch: 1, at: ms(at), is_timed: true, begins: false };
        let mut apart = Vec::new();
        for number in 0..100 {
            let (shown, at) = (number * 40, 1_000 + number * 40);
            let sound = timeline.place(1, &frame(shown, 0), FrameKind::Sound, came(at)).shown;
            let picture = timeline.place(0, &frame(shown, 0), KIND, came(at + 80)).shown;
            assert_eq!(picture, ms(at + 80), "never before it has come");
            apart.push(picture.zip(sound).map(|(one, other)| one.absdiff(other).mseconds()));
        }
        assert_eq!(apart.remove(0), Some(80), "before the first picture nothing is known of it");
        assert!(apart.iter().all(|apart| *apart == Some(0)), "{apart:?}");
    }

    #[test]
    fn a_stream_with_another_clock_goes_by_its_own() {
        let mut timeline = Timeline::default();
        let came = |at| Came { epoch: 1, at: ms(at), is_timed: true, begins: false };
        timeline.place(0, &frame(100_000, 0), KIND, came(500));
        let sound = timeline.place(1, &frame(0, 0), FrameKind::Sound, came(510)).shown;
        assert_eq!(sound, ms(510));
        let picture = timeline.place(0, &frame(100_040, 0), KIND, came(540)).shown;
        assert_eq!(picture, ms(540));
    }

    #[test]
    fn a_stream_that_is_no_longer_heard_of_holds_the_others_no_more() {
        let mut timeline = Timeline::default();
        let came = |at| Came { epoch: 1, at: ms(at), is_timed: true, begins: false };
        timeline.place(1, &frame(0, 0), FrameKind::Sound, came(900));
        let shown = [20, 40_000].map(|at| timeline.place(0, &frame(at, 0), KIND, came(at)).shown);
        assert_eq!(shown, [ms(920), ms(40_000)]);
    }

    #[test]
    fn the_slowest_stream_ends_and_the_sound_goes_on_without_a_jump() {
        let mut timeline = Timeline::default();
        let came = |at| Came { epoch: 1, at: ms(at), is_timed: true, begins: false };
        let mut last = None;
        // 1.7 s slower; they end after 10 s.
        for at in (1_000..401_000).step_by(20).map(|at| at + 1_700) {
            if at < 11_000 {
                timeline.place(0, &frame(at - 1_700, 0), KIND, came(at));
            }
            let sound = timeline.place(1, &frame(at, 0), FrameKind::Sound, came(at)).shown;
            let sound = sound.expect("a time").nseconds();
            if let Some(last) = last {
                let step = sound - last;
                assert!((19_800_000..=20_000_000).contains(&step), "{step} ns at {at} ms");
            }
            last = Some(sound);
        }
        assert_eq!(last, Some(402_680_000_000), "in the end it has its own times");
    }

    #[test]
    fn another_set_of_streams_begins_anew() {
        let mut timeline = Timeline::default();
        let came = |epoch, at| Came { epoch, at: ms(at), is_timed: true, begins: false };
        timeline.place(0, &frame(0, 0), KIND, came(1, 5_000));
        timeline.place(1, &frame(0, 0), FrameKind::Sound, came(1, 5_000));
        assert_eq!(timeline.place(0, &frame(0, 0), KIND, came(2, 6_000)).shown, ms(6_000));
        // What was left of the one before.
        assert_eq!(
            timeline.place(1, &frame(20, 0), FrameKind::Sound, came(1, 6_001)).shown,
            ms(6_001)
        );
        assert_eq!(
            timeline.place(1, &frame(20, 0), FrameKind::Sound, came(2, 6_021)).shown,
            ms(6_021)
        );
    }

    #[test]
    fn of_streams_that_are_delivered_whole_the_first_frame_decides() {
        let mut timeline = Timeline::default();
        let came = |at| Came { epoch: 1, at: ms(at), is_timed: false, begins: false };
        assert_eq!(timeline.place(0, &frame(0, 0), KIND, came(100)).shown, ms(100));
        assert_eq!(timeline.place(1, &frame(0, 0), FrameKind::Sound, came(103)).shown, ms(100));
        assert_eq!(timeline.place(0, &frame(4_000, 0), KIND, came(104)).shown, ms(4_100));
    }

    #[test]
    fn a_sender_that_stood_still_for_less_than_a_second_is_soon_shown_in_time_again() {
        let mut timeline = Timeline::default();
        let mut beginnings = 0;
        let mut late = 0;
        for number in 0..325 {
            // 10 s, then 600 ms of nothing.
            let (shown, still) = (number * 40, if number < 250 { 0 } else { 600 });
            let at = ms(1_000 + shown + still);
            let came = Came { epoch: 1, at, is_timed: true, begins: false };
            let placed = timeline.place(0, &frame(shown, 0), KIND, came);
            beginnings += u32::from(placed.begins);
            late = at.zip(placed.shown).map_or(u64::MAX, |(at, shown)| (at - shown).mseconds());
        }
        assert!(late <= 100, "{late} ms late 3 s later");
        assert_eq!(beginnings, 1, "what does not go on says so");
    }

    #[test]
    fn a_frame_that_is_slow_now_and_then_is_no_new_beginning() {
        let mut timeline = Timeline::default();
        for number in 0..500 {
            let slow = if number % 12 == 0 { 300 } else { 0 };
            let at = ms(1_000 + number * 40 + slow);
            let came = Came { epoch: 1, at, is_timed: true, begins: false };
            assert!(!timeline.place(0, &frame(number * 40, 0), KIND, came).begins);
        }
    }

    #[test]
    fn a_seek_in_streams_that_are_delivered_whole_keeps_the_distances_behind_it() {
        let mut timeline = Timeline::default();
        let mut place = |place, shown, at| {
            let came = Came { epoch: 1, at, is_timed: false, begins: false };
            let placed = timeline.place(place, &frame(shown, 0), KIND, came);
            (placed.shown, placed.begins)
        };
        assert_eq!(place(0, 0, ms(0)), (ms(0), false));
        assert_eq!(place(1, 0, ms(0)), (ms(0), false));
        assert_eq!(place(0, 5_000, ms(5_000)), (ms(5_000), false));
        assert_eq!(place(0, 0, ms(5_100)), (ms(5_100), true));
        assert_eq!(place(0, 40, ms(5_101)), (ms(5_140), false));
        // What is left of the other stream from before the seek, and then that, too.
        assert_eq!(place(1, 4_900, ms(5_102)), (ms(4_900), false));
        assert_eq!(place(1, 0, ms(5_103)), (ms(5_100), true));
        assert_eq!(place(1, 40, ms(5_104)), (ms(5_140), false), "in step again");
        // It has sent ahead, and seeks while this side is paused.
        assert_eq!(place(0, 60_000, ms(5_200)), (ms(65_100), false));
        assert_eq!(place(0, 0, None), (ms(65_100), true));
        assert_eq!(place(0, 40, None), (ms(65_140), false));
    }
}
