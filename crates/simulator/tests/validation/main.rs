//! Compares ontempo with ns-2 2.35: the same scenarios must give the same statistics.
//!
//! `docs/validation.md` shows the comparison and explains each difference; its tables are
//! written by `ONTEMPO_WRITE_VALIDATION=1 cargo test --release -p ontempo-simulator --test
//! validation`. The numbers of ns-2 and the scripts that made them are in `ns2`.

mod compare;
mod document;
mod known;
mod measure;
mod reference;
mod rules;
mod scenarios;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use compare::{Pair, Row};
use known::Bounds;
use reference::{Numbers, Run};

/// Every row of the comparison; the runs are made once, for all tests.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let runs = reference::runs();
    let measured = measure_all(&runs);
    let pairs = Pair::all(runs, measured);
    pairs.iter().flat_map(Pair::rows).collect()
});

/// ontempo's measurements of each run, on all processors.
fn measure_all(runs: &[Run]) -> Vec<Numbers> {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let claim = || runs.get(next.fetch_add(1, Ordering::Relaxed));
        let mut measured = Vec::new();
        while let Some(run) = claim() {
            measured.push((run, measure::run(run)));
        }
        measured
    };
    let mut measured = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("a run panicked"));
        joined.flatten().collect::<Vec<_>>()
    });
    let place = |run: &Run| runs.iter().position(|other| std::ptr::eq(run, other));
    measured.sort_by_key(|(run, _)| place(run));
    measured.into_iter().map(|(_, numbers)| numbers).collect()
}

/// No row of these scripts breaks its rule in an unlisted way.
fn assert_agreement(script: &str) {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.scenario.starts_with(script)).collect();
    assert!(!rows.is_empty(), "no rows of {script}");
    let problems: Vec<String> = rows.iter().filter_map(|row| row.problem()).collect();
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), rows.len(), problems.join("\n"));
}

#[test]
fn one_flow_agrees_with_ns2() {
    assert_agreement("single.tcl");
}

#[test]
fn one_flow_past_its_start_agrees_with_ns2() {
    assert_agreement("steady.tcl");
}

#[test]
fn one_flow_with_a_switch_of_ns2_set_agrees_with_ns2() {
    assert_agreement("switched.tcl");
}

#[test]
fn flows_whose_slow_start_ends_early_agree_with_ns2() {
    assert_agreement("two_switched.tcl");
    assert_agreement("many_switched.tcl");
}

#[test]
fn two_flows_agree_with_ns2() {
    assert_agreement("two.tcl");
}

#[test]
fn many_flows_agree_with_ns2() {
    assert_agreement("many.tcl");
}

#[test]
fn evenly_spaced_packets_agree_with_ns2() {
    assert_agreement("spacing.tcl");
    assert_agreement("spacing_apart.tcl");
}

#[test]
fn every_known_difference_is_of_a_row_and_is_explained() {
    let document = document::committed();
    for difference in known::differences() {
        let name = &difference.name;
        let heading = format!("### {name}\n");
        assert!(document.contains(&heading), "docs/validation.md does not explain {name:?}");
        assert!(!difference.reason.is_empty(), "{name:?} has no reason");
        assert_are_rows(&difference.rows);
    }
    for unexplained in known::unexplained() {
        assert!(!unexplained.suspicion.is_empty(), "{:?}: nothing is suspected", unexplained.rows);
        assert_are_rows(&unexplained.rows);
    }
}

/// Each entry belongs to a row, and no two entries to the same row.
fn assert_are_rows(listed: &[Bounds]) {
    for bounds in listed {
        let speaks_of =
            |row: &Row| row.known.is_some_and(|known| std::ptr::eq(known.bounds, bounds));
        assert!(ROWS.iter().any(speaks_of), "no row is {bounds:?}, or it is listed twice");
    }
}

#[test]
fn the_committed_tables_are_the_current_ones() {
    document::check_or_write(&ROWS);
}
