//! Both orders in virtual time: the same objects over the same path, with the same losses.

#[path = "../../window/tests/virtual_time/mod.rs"]
mod virtual_time;

use ontempo_foundation::{Duration, RandomStream};
use ontempo_transport::DeliveryOrder;
use ontempo_whiteboard::{Board, HEIGHT, Object, WIDTH};

use virtual_time::{CREDIT, times};

/// An object each 20 ms, as of two participants who draw without a pause.
const GAP: Duration = Duration::from_millis(20);
const OBJECTS: u64 = 1_500;

fn board(seed: u64) -> Board {
    let mut random = RandomStream::new(seed, "objects");
    let mut board = Board::new();
    for _ in 0..OBJECTS {
        let mut any = |most: i32| (random.next_u64() % most as u64) as i32;
        let from = (any(WIDTH - 60), any(HEIGHT - 40));
        let to = (from.0 + 8 + any(50), from.1 + 8 + any(30));
        let object = Object::Rectangle { from, to, colour: "#0b63c4".to_owned() };
        board.add(&object, vec![7; 120]).expect("it is not full");
    }
    board
}

/// A share of values, milliseconds.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
}

#[test]
fn in_partial_order_no_object_is_shown_later_and_many_are_sooner() {
    for seed in [1, 2, 3] {
        let board = board(seed);
        let units = board.entries().iter().map(|entry| (&entry.data[..], &entry.depends_on[..]));
        let units: Vec<_> = units.collect();
        let in_order = times(DeliveryOrder::InOrder, seed, &units, GAP);
        let partial = times(DeliveryOrder::PartialOrder, seed, &units, GAP);
        let is_later =
            |(partial, in_order): &(&Duration, &Duration)| **partial > **in_order + CREDIT;
        let later = partial.iter().zip(&in_order).filter(is_later).count();
        assert_eq!(later, 0, "seed {seed}");
        let sooner = partial.iter().zip(&in_order).filter(|(partial, in_order)| partial < in_order);
        let sooner = sooner.count();
        let figures =
            [&in_order, &partial].map(|times| [0.5, 0.9, 0.95].map(|share| quantile(times, share)));
        println!(
            "seed {seed}: median, 90 and 95 %, ms: in order {:.1?}, partial order {:.1?}; sooner {sooner} of {}",
            figures[0],
            figures[1],
            partial.len()
        );
        assert!(sooner > partial.len() / 10, "seed {seed}: {sooner}");
        assert!(figures[1][0] <= figures[0][0] && figures[1][1] < figures[0][1], "{figures:?}");
    }
}
