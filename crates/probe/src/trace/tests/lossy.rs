//! Paths that lose everything for a time, and paths that lose in bursts.

use super::recorder::{MISSING, Noted};
use super::*;

impl World {
    /// What becomes of a packet of 500 bytes each 5 ms between these times, s: its delay, ms, or `None` if
    /// it is lost.
    fn carries(mut self, from: f64, until: f64) -> Vec<Option<f64>> {
        let count = ((until - from) / 0.005) as u64;
        let carried = (0..count).map(|place| {
            self.now = Time::from_secs_f64(from) + Duration::from_millis(5) * place;
            self.there.clear();
            self.send(vec![0; 472]);
            self.there.front().map(|(at, _)| at.since(self.now).as_secs_f64() * 1e3)
        });
        carried.collect()
    }
}

/// A path as the rows say; recording began at `begun`, s.
fn replayed(trace: &Trace, begun: f64) -> World {
    let begun = begun + trace.left_out.as_secs_f64();
    let row = |row: &TraceRow| Piece {
        from: Time::from_secs_f64(begun) + row.time,
        rate: row.rate.as_bits_per_sec().max(1) as f64,
        delay: row.delay,
        loss: row.loss,
    };
    let mut pieces: Vec<Piece> = trace.rows.iter().map(row).collect();
    pieces[0].from = Time::ZERO;
    World::new(pieces)
}

/// The packets that the path lost are lost again: they neither pass nor come late.
#[test]
fn an_outage_that_loses_packets_is_recorded_as_that() {
    for length in [1.0, 3.0] {
        let (from, until) = (4.0, 4.0 + length);
        let pieces =
            vec![piece(0.0, 4.0, 20, 0.0), piece(from, 4.0, 20, 1.0), piece(until, 4.0, 20, 0.0)];
        let mut world = World::new(pieces.clone());
        let recording = record(&mut world, until + 3.0);
        let trace = recording.trace(WINDOW);
        let begun = 0.08 + trace.left_out.as_secs_f64();
        for row in &trace.rows {
            let time = begun + row.time.as_secs_f64();
            let text = format!("{length} s, at {time}: {row:?}\n{}", trace.csv(""));
            // Scouts are 20 ms apart.
            if time > from + 0.01 && time + 0.1 < until - 0.03 {
                assert!(row.loss > 0.999, "{text}");
            } else if time + 0.1 < from - 0.01 || time > until + 0.01 {
                assert!(row.loss < 0.001, "{text}");
            }
            let mbit = row.rate.as_mbit_per_sec();
            assert!((mbit / 4.0 - 1.0).abs() < 0.1, "{text}");
        }
        let before = World::new(pieces).carries(1.0, until + 2.0);
        let rows = recording.trace(Duration::from_millis(20));
        let after = replayed(&rows, 0.08).carries(1.0, until + 2.0);
        let lost = |fates: &[Option<f64>]| fates.iter().filter(|fate| fate.is_none()).count();
        let same = before.iter().zip(&after).filter(|(one, other)| match (one, other) {
            (Some(one), Some(other)) => (one - other).abs() < 2.0,
            (one, other) => one.is_none() && other.is_none(),
        });
        // Four packets in the row at each end, and four between two scouts.
        let (all, same) = (before.len(), same.count());
        assert!(all - same < 16, "{same} of {all}: {} and {}", lost(&before), lost(&after));
    }
}

/// In bursts of 10, 20, and 200 packets on average.
#[test]
fn losses_in_bursts_are_found_and_leave_the_rate() {
    for (p, q) in [(0.005, 0.1), (0.002, 0.05), (0.0007, 0.005)] {
        for seed in 1..=8 {
            let mut world = World::new(vec![piece(0.0, 4.0, 20, 0.0)]);
            world.random = RandomStream::new(seed, "bursts");
            world.bursts = Some(Bursts { p, q, ..Bursts::default() });
            let trace = record(&mut world, 20.0).trace(WINDOW);
            let bursts = world.bursts.expect("as set");
            let text = format!("{p} {q} {seed}: {bursts:?}\n{}", trace.csv(""));
            for number in 0..trace.rows.len() / 10 {
                let (rate, ..) = second(&trace, number);
                assert!((rate / 4.0 - 1.0).abs() < 0.1, "second {number}: {rate}\n{text}");
            }
            // What is sent in an outage is less than before: its share of the time counts.
            let found =
                trace.rows.iter().map(|row| row.loss).sum::<f64>() / trace.rows.len() as f64;
            let truth = bursts.lasted.as_secs_f64() / (0.1 * trace.rows.len() as f64);
            assert!((found - truth).abs() < 0.015 + 0.1 * truth, "{found} of {truth}\n{text}");
        }
    }
}

/// Packets each 10 ms from `begun` ms on, lost or not, by the letters: `L` a full one, `s` a scout, in capitals or not as
/// they are; `x` behind it: lost; `_`: nothing is sent for 100 ms.
fn noted(letters: &str) -> Recording {
    let mut recording = Recording { bits: (11_200.0, 944.0), ..Recording::default() };
    let (mut now, mut index) = (0, 0);
    for letter in letters.chars() {
        match letter {
            '_' => now += 100_000_000,
            'x' => {
                index -= 1;
                recording.packets.last_mut().expect("one before").index = MISSING;
            }
            _ => {
                let is_scout = letter == 's';
                let at = now + 20_000_000;
                recording.packets.push(Noted { sent: now, at, index, is_scout });
                (now, index) = (now + 10_000_000, index + 1);
            }
        }
    }
    recording.duration = Duration::from_nanos(now as u64);
    recording
}

/// While nothing is sent nothing is lost, and one scout may be lost for another reason.
#[test]
fn a_pause_beside_losses_is_no_outage() {
    let lost = |letters: &str| {
        let trace = noted(letters).trace(WINDOW);
        trace.rows.iter().filter(|row| row.loss > 0.9).count()
    };
    let (many, few) = ("L".repeat(40), "Lx".repeat(9));
    assert_eq!(lost(&format!("{many}{few}__sx{many}")), 0);
    assert_eq!(lost(&format!("{many}{few}__sxsx{many}")), 0);
    // Three in a row were not.
    assert!(lost(&format!("{many}{few}__sxsxsx{many}")) >= 3);
    assert!(lost(&format!("{many}{few}{few}sx{many}")) >= 1);
}
