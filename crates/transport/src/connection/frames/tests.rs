//! Which frames go.

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn path(kbit_s: u64) -> Path {
    let round_trip = Duration::from_millis(100);
    let bears = Rate::from_bits_per_sec(kbit_s * 1_000);
    Path { bears, measured: bears, round_trip, least: round_trip }
}

/// A flow's queue without a connection.
#[derive(Default)]
struct Flow {
    frames: Frames,
    queue: Vec<Waiting>,
    sent: BTreeSet<u64>,
    gone: BTreeSet<u64>,
    next: u64,
    /// Of units, in ms.
    lifetime: u64,
}

impl Flow {
    /// One that has asked more of its path than any bears.
    fn narrow() -> Self {
        let mut flow = Self { lifetime: 300, ..Self::default() };
        flow.frames.asked[1].bytes = 1 << 40;
        flow
    }

    fn push(
        &mut self,
        now: Time,
        size: usize,
        priority: u8,
        on: &[u64],
        continues: Option<u64>,
    ) -> u64 {
        let (id, deadline) = (self.next, Some(now + Duration::from_millis(self.lifetime)));
        self.next += 1;
        let unit = Outgoing {
            data: vec![0; size].into(),
            deadline,
            priority,
            depends_on: on.to_vec(),
            continues,
        };
        match self.frames.on_push(now, id, &unit) {
            Fate::Gone => assert!(self.gone.insert(id)),
            Fate::Queued { .. } => {
                let frame = self.frames.frame_of(id).expect("just queued");
                self.queue.push(Waiting { id, frame, size: size as u64, sent: now, deadline });
            }
        }
        id
    }

    fn plan(&mut self, now: Time, path: &Path) -> Vec<u64> {
        if !self.frames.note_path(now, path) {
            return Vec::new();
        }
        let dropped = self.frames.plan(now, path, 0, &self.queue);
        self.queue.retain(|waiting| !dropped.contains(&waiting.id));
        for id in &dropped {
            assert!(self.gone.insert(*id), "{id} is dropped twice");
        }
        dropped
    }

    fn send(&mut self) {
        if !self.queue.is_empty() {
            let id = self.queue.remove(0).id;
            self.frames.on_sent(id);
            self.sent.insert(id);
        }
    }
}

#[test]
fn what_fits_is_kept() {
    let mut flow = Flow::narrow();
    let key = flow.push(ms(0), 20_000, 5, &[], None);
    (0..5).for_each(|_| {
        flow.push(ms(0), 2_000, 3, &[key], None);
    });
    assert!(flow.plan(ms(0), &path(4_000)).is_empty());
}

#[test]
fn of_what_does_not_fit_the_largest_frames_on_which_none_depends_go() {
    let mut flow = Flow::narrow();
    let key = flow.push(ms(0), 60_000, 5, &[], None);
    let reference = flow.push(ms(0), 20_000, 4, &[key], None);
    let small = flow.push(ms(0), 2_000, 3, &[key, reference], None);
    let large = flow.push(ms(0), 40_000, 3, &[key, reference], None);
    let sound = flow.push(ms(0), 500, 6, &[], None);
    assert_eq!(flow.plan(ms(0), &path(3_000)), [large]);
    let left: Vec<u64> = flow.queue.iter().map(|waiting| waiting.id).collect();
    assert_eq!(left, [key, reference, small, sound]);
}

/// 5 s of a key picture each 2 s, and in turn pictures of 10 kB on which others depend, and of 2 and 8 kB on which none
/// does, 25 a second: 1.06 Mbit/s of those that are needed, and of the others 0.12 and 0.46.
fn film(flow: &mut Flow, in_parts: bool) {
    let mut on = 0;
    for at in 0..125 {
        let now = ms(at * 40);
        flow.queue.clear();
        match at % 4 {
            _ if at % 50 == 0 => on = flow.push(now, 20_000, 5, &[], None),
            0 | 2 => on = flow.push(now, 10_000, 4, &[on], None),
            1 => drop(flow.push(now, 2_000, 3, &[on], None)),
            _ if in_parts => {
                let first = flow.push(now, 4_000, 3, &[on], None);
                flow.push(now, 4_000, 3, &[on], Some(first));
            }
            _ => drop(flow.push(now, 8_000, 3, &[on], None)),
        }
    }
}

/// Among which priority a new picture goes on which none depends.
fn among(flow: &mut Flow, kbit_s: u64, size: usize, priority: u8, lifetime: u64) -> Option<u8> {
    let now = ms(5_000);
    flow.frames.note_path(now, &path(kbit_s));
    let deadline = Some(now + Duration::from_millis(lifetime));
    let data = vec![0; size].into();
    let unit = Outgoing { data, deadline, priority, ..Outgoing::default() };
    let fate = flow.frames.on_push(now, flow.next, &unit);
    flow.next += 1;
    let Fate::Queued { is_begun: false, among } = fate else { panic!("{fate:?}") };
    among
}

#[test]
fn pictures_on_which_none_depends_go_among_the_others_where_they_are_small_enough_for_the_rest_of_the_path()
 {
    let mut flow = Flow::default();
    film(&mut flow, false);
    assert_eq!(among(&mut flow, 1_300, 2_000, 3, 800), Some(4));
    assert_eq!(among(&mut flow, 1_300, 8_000, 3, 800), None, "too large");
    assert_eq!(among(&mut flow, 1_300, 2_000, 0, 800), None, "stuffing");
    assert_eq!(among(&mut flow, 1_300, 2_000, 3, 790), None, "repairs need the time");
    assert_eq!(among(&mut flow, 900, 2_000, 3, 800), None, "the path does not bear the others");
    assert_eq!(among(&mut flow, 9_000, 2_000, 3, 800), None, "the path bears all");
}

#[test]
fn where_a_picture_comes_in_parts_its_size_is_not_known_when_it_begins() {
    let mut flow = Flow::default();
    film(&mut flow, true);
    assert_eq!(among(&mut flow, 1_300, 2_000, 3, 800), None);
}

/// Key pictures at these times in ms; then at `now` a picture of 20 kB on which others depend, and one of 2 kB on which none
/// does, all with 450 ms to live: which of the two go over 1 Mbit/s, 100 ms.
fn before_a_key(begin: &[u64], now: u64, key_bytes: usize) -> Vec<&'static str> {
    let mut flow = Flow { lifetime: 450, ..Flow::default() };
    let mut key = 0;
    for at in begin {
        key = flow.push(ms(*at), key_bytes, 5, &[], None);
        let on = flow.push(ms(*at), 100, 4, &[key], None);
        flow.push(ms(*at), 100, 3, &[key, on], None);
        flow.queue.clear();
    }
    let reference = flow.push(ms(now), 20_000, 4, &[key], None);
    let spare = flow.push(ms(now), 2_000, 3, &[key], None);
    flow.frames.asked.iter_mut().for_each(|asked| asked.bytes = 1 << 40);
    let gone = flow.plan(ms(now), &path(1_000));
    let names = [(reference, "reference"), (spare, "spare")];
    names.into_iter().filter(|(id, _)| gone.contains(id)).map(|(_, name)| name).collect()
}

/// 40 kB take 0.36 s, and 0.53 s behind the 20 kB.
#[test]
fn a_picture_that_would_delay_the_next_key_picture_goes_where_these_come_regularly() {
    let regular = [0, 2_000, 4_000];
    assert!(before_a_key(&regular, 5_000, 40_000).is_empty(), "a second before it");
    assert_eq!(before_a_key(&regular, 5_960, 40_000), ["reference"]);
    assert!(before_a_key(&regular, 5_960, 28_000).is_empty(), "it has the time");
    assert!(before_a_key(&regular, 5_960, 80_000).is_empty(), "it is late alone");
    for (begin, now) in [(regular, 6_300), ([0, 1_000, 4_000], 6_960), ([0, 3_000, 4_000], 4_960)] {
        assert!(
            !before_a_key(&begin, now, 40_000).contains(&"reference"),
            "not expected: {begin:?}"
        );
    }
}

#[test]
fn pictures_on_which_none_depends_leave_room_for_a_key_picture_where_none_is_expected() {
    assert_eq!(before_a_key(&[0, 3_000, 4_000], 4_500, 40_000), ["spare"]);
    assert!(before_a_key(&[0, 2_000, 4_000], 4_500, 40_000).is_empty());
}

#[test]
fn a_flow_that_asks_no_more_than_its_path_bears_keeps_what_comes_late() {
    let mut flow = Flow::default();
    flow.push(ms(0), 60_000, 5, &[], None);
    flow.push(ms(0), 600_000, 3, &[], None);
    assert!(flow.plan(ms(0), &path(3_000)).is_empty());
}

#[test]
fn what_depends_on_a_dropped_frame_is_dropped_and_so_is_its_rest() {
    let mut flow = Flow::narrow();
    let key = flow.push(ms(0), 10_000, 5, &[], None);
    let first = flow.push(ms(0), 400_000, 4, &[key], None);
    let second = flow.push(ms(0), 1_000, 4, &[key, first], None);
    assert_eq!(flow.plan(ms(0), &path(3_000)), [first, second]);
    let rest = flow.push(ms(1), 1_000, 4, &[key, first], Some(first));
    let third = flow.push(ms(1), 1_000, 4, &[key, second], None);
    assert!(flow.gone.contains(&rest) && flow.gone.contains(&third));
    let next_key = flow.push(ms(2), 1_000, 5, &[], None);
    flow.push(ms(2), 1_000, 4, &[next_key], None);
    assert!(flow.plan(ms(2), &path(3_000)).is_empty());
}

proptest! {
    /// A step: what happens, a size, a priority, and how far back its references lie.
    #[test]
    fn no_plan_cuts_a_frame_nor_drops_what_is_to_be_kept(
        steps in prop::collection::vec((0u8..4, 1usize..40_000, 0u8..8, 1u64..6), 1..200),
        kbit_s in 100u64..8_000,
    ) {
        let mut flow = Flow::narrow();
        let mut priorities: Vec<u8> = Vec::new();
        for (at, (what, size, priority, back)) in (0u64..).zip(steps) {
            let now = ms(at * 7);
            match what {
                0 => flow.send(),
                1 => {
                    let begun: BTreeSet<u64> =
                        flow.sent.iter().filter_map(|id| flow.frames.frame_of(*id)).collect();
                    for id in flow.plan(now, &path(kbit_s)) {
                        let frame = flow.frames.frame_of(id).expect("of the last units");
                        prop_assert!(!begun.contains(&frame), "{id} is the rest of {frame}");
                        prop_assert!(priorities[id as usize] < KEEP);
                    }
                }
                what => {
                    let before = flow.next.checked_sub(back);
                    let continues = before.filter(|_| what == 3);
                    let priority = match continues {
                        Some(before) => priorities[before as usize],
                        None => priority,
                    };
                    let on: Vec<u64> = before.into_iter().collect();
                    let id = flow.push(now, size, priority, &on, continues);
                    priorities.push(priority);
                    let needs_missed = on.iter().any(|on| flow.frames.gone.get(on) == Some(&false));
                    let is_kept = priority >= KEEP || continues.is_some();
                    prop_assert!(!needs_missed || flow.gone.contains(&id) || is_kept);
                }
            }
            // Every unit is queued, sent or dropped, and one of them.
            let all = flow.queue.len() + flow.sent.len() + flow.gone.len();
            prop_assert_eq!(all as u64, flow.next);
        }
    }
}
