//! Tests of the rules: artificial rows that meet them, break them, and leave them undecided.

use crate::compare::{Estimate, Finding, Row, Rule};
use crate::known::{Bounds, Cause, Difference, Known};

fn row(rule: Rule, ns2: Estimate, ontempo: Estimate) -> Row {
    let scenario = "made up".to_owned();
    Row { scenario, runs: 5, quantity: "queue drops", ns2, ontempo, rule, known: None }
}

fn once(mean: f64) -> Estimate {
    Estimate { mean, half: None }
}

fn often(mean: f64, half: f64) -> Estimate {
    Estimate { mean, half: Some(half) }
}

fn known(min: f64, max: f64) -> Known {
    let (scenario, quantity) = ("made up".to_owned(), "queue drops".to_owned());
    let bounds = Box::leak(Box::new(Bounds { scenario, quantity, min, max }));
    let (name, reason) = ("A difference".to_owned(), "a reason".to_owned());
    let difference = Box::leak(Box::new(Difference { name, reason, rows: Vec::new() }));
    Known { cause: Cause::Explained(difference), bounds }
}

#[test]
fn one_run_agrees_within_its_fraction_and_differs_beyond() {
    for (ns2, ontempo, finding) in [
        (100.0, 110.0, Finding::Agrees),
        (100.0, 90.0, Finding::Agrees),
        (100.0, 110.1, Finding::Differs),
        (1117.0, 303.0, Finding::Differs),
        (0.0, 0.0, Finding::Agrees),
        (0.0, 1.0, Finding::Differs),
        (1.0, 0.0, Finding::Differs),
    ] {
        let row = row(Rule::Fraction(0.1), once(ns2), once(ontempo));
        assert_eq!(row.finding(), finding, "{ns2} beside {ontempo}");
    }
}

#[test]
fn several_runs_agree_only_where_their_intervals_are_narrow() {
    let ns2 = often(100.0, 2.0);
    for (ontempo, finding) in [
        (often(104.0, 2.0), Finding::Agrees),
        (often(104.0, 5.9), Finding::Agrees),
        (often(104.0, 6.1), Finding::Undecided),
        (often(106.0, 2.0), Finding::Differs),
        (often(106.0, 5.9), Finding::Differs),
        (often(106.0, 6.1), Finding::Undecided),
        // The means are equal, but the interval could hide a difference of two thirds.
        (often(100.0, 68.0), Finding::Undecided),
    ] {
        assert_eq!(row(Rule::Means, ns2, ontempo).finding(), finding, "{ontempo:?}");
    }
    let swapped = row(Rule::Means, often(100.0, 20.0), often(104.0, 2.0));
    assert_eq!(swapped.finding(), Finding::Undecided, "ns-2's interval counts as well");
    let twice_as_many = row(Rule::Means, often(101.3, 68.8), often(224.4, 153.3));
    assert_eq!(twice_as_many.finding(), Finding::Undecided);
    let nothing = row(Rule::Means, often(0.0, 0.0), often(0.0, 0.0));
    assert_eq!(nothing.finding(), Finding::Agrees);
}

#[test]
fn a_number_that_is_missing_decides_nothing() {
    for rule in [Rule::Fraction(0.1), Rule::Means] {
        for (ns2, ontempo) in [(f64::NAN, 1.0), (1.0, f64::NAN), (1.0, f64::INFINITY)] {
            assert_eq!(row(rule, once(ns2), once(ontempo)).finding(), Finding::Undecided);
        }
    }
    let no_interval = row(Rule::Means, often(1.0, f64::NAN), often(1.0, 0.0));
    assert_eq!(no_interval.finding(), Finding::Undecided);
}

#[test]
fn a_difference_is_a_problem_unless_it_is_known_and_within_its_bounds() {
    let with = |ontempo: f64, known: Option<Known>| {
        Row { known, ..row(Rule::Fraction(0.1), once(100.0), once(ontempo)) }.problem()
    };
    let bounds = Some(known(140.0, 160.0));
    assert_eq!(with(100.0, None), None);
    assert_eq!(with(150.0, bounds), None);
    for (ontempo, known, words) in [
        (150.0, None, "no such difference is known"),
        (100.0, bounds, "has disappeared"),
        (139.0, bounds, "outside 140 to 160"),
        (161.0, bounds, "outside 140 to 160"),
        (f64::NAN, bounds, "can no longer be told"),
    ] {
        let problem = with(ontempo, known).expect("a problem");
        assert!(problem.contains(words), "{problem}");
    }
}
