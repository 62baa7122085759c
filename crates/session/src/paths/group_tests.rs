//! Properties of a sender's paths, whatever they do.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Open(usize),
    Close(usize),
    /// Something is acknowledged; all up to here, if told.
    Answer(usize, bool),
    Push(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0usize..3).prop_map(Step::Open),
        1 => (0usize..3).prop_map(Step::Close),
        4 => ((0usize..3), any::<bool>()).prop_map(|(path, all)| Step::Answer(path, all)),
        4 => (1usize..4_000).prop_map(Step::Push),
        4 => (1u64..200).prop_map(Step::Wait),
    ]
}

/// A group, and the next number of each path's flow.
struct World {
    group: Group<u64>,
    flows: [Option<u64>; 3],
    samples: [Sample; 3],
    now: Time,
}

impl World {
    fn give(&mut self, path: usize) -> Option<u64> {
        let next = self.flows[path].as_mut()?;
        *next += 1;
        Some(*next - 1)
    }

    fn send_again(&mut self) {
        while let Some((number, _, targets)) = self.group.next_again(self.now) {
            let Some(path) = targets.iter().find(|path| self.flows[*path].is_some()) else {
                return;
            };
            let in_flow = self.give(path).expect("it is open");
            self.group.sent_again(number, path, in_flow);
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Open(path) if self.flows[path].is_none() => {
                (self.flows[path], self.samples[path]) = (Some(0), Sample::default());
                self.group.opened(self.now, path);
            }
            Step::Close(path) if self.flows[path].take().is_some() => {
                self.group.closed(self.now, path);
            }
            Step::Answer(path, all) => {
                let Some(next) = self.flows[path] else { return };
                let sample = &mut self.samples[path];
                sample.progress += 1;
                if all {
                    (sample.settled, sample.held) = (next, 0);
                } else {
                    sample.held = (next - sample.settled) * 1_000;
                }
                self.group.sample(self.now, path, *sample);
            }
            Step::Push(bytes) if self.group.has_room() => {
                let (targets, mut on) = (self.group.targets(bytes), [None; MAX_PATHS]);
                for path in targets.iter() {
                    on[path] = self.give(path);
                    if !targets.all {
                        break;
                    }
                }
                if on != [None; MAX_PATHS] {
                    let number = self.group.next_number();
                    self.group.keep(number, bytes, None, on);
                }
            }
            Step::Wait(millis) => self.now += Duration::from_millis(millis),
            _ => {}
        }
        self.group.look(self.now);
        self.send_again();
    }
}

impl World {
    fn new(mode: PathMode) -> Self {
        let (group, now) = (Group::new(mode, 3), Time::from_nanos(1));
        Self { group, flows: [None; 3], samples: [Sample::default(); 3], now }
    }
}

#[test]
fn a_preferred_path_carries_at_once_if_it_comes_within_a_second_of_the_first() {
    let carried_after = |steps: u64| {
        let mut world = World::new(PathMode::Failover);
        world.apply(&Step::Open(1));
        world.apply(&Step::Push(1_000));
        let answered = |paths: &[usize], world: &mut World| {
            paths.iter().for_each(|path| world.apply(&Step::Answer(*path, true)));
            world.apply(&Step::Wait(50));
        };
        (0..steps).for_each(|_| answered(&[1], &mut world));
        let opened = world.now;
        world.apply(&Step::Open(0));
        while world.group.carrying == 1 {
            answered(&[0, 1], &mut world);
        }
        world.now.since(opened)
    };
    assert_eq!(carried_after(1), Duration::ZERO);
    assert_eq!(carried_after(19), Duration::ZERO);
    assert_eq!(carried_after(20), RETURN_AFTER);
}

proptest! {
    #[test]
    fn what_is_not_settled_is_on_a_path_that_is_up_if_there_is_one(
        mode in prop_oneof![Just(PathMode::Duplicate), Just(PathMode::Failover), Just(PathMode::Balance)],
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(mode);
        for step in &steps {
            world.apply(step);
            let group = &world.group;
            if group.ups().next().is_some() {
                for kept in group.kept.iter().filter(|kept| !group.is_done(world.now, kept)) {
                    let is_up = |path: usize| group.paths[path].is_up && kept.on[path].is_some();
                    prop_assert!((0..3).any(is_up), "{mode} {}: {step:?}", kept.number);
                }
                if mode == PathMode::Failover {
                    prop_assert!(group.paths[group.carrying].is_up, "{step:?}");
                }
            }
            let bytes: usize = group.kept.iter().map(|kept| kept.bytes + MESSAGE_BYTES).sum();
            prop_assert_eq!(bytes, group.kept_bytes);
            prop_assert!(bytes <= MAX_KEPT + 4_000 + MESSAGE_BYTES);
            for path in 0..3 {
                prop_assert!(!group.paths[path].is_up || group.paths[path].is_open);
            }
        }
    }
}
