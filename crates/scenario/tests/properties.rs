//! Whatever a scenario file holds, it is read or refused; and what is read can be written.

#[path = "../fuzz/exercise.rs"]
#[allow(dead_code)] // overrides are made here
mod exercise;

use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, parse, parse_with};
use proptest::prelude::*;

const MANY: &str = include_str!("scenarios/many.toml");
const MIXED: &str = include_str!("scenarios/mixed.toml");
const GRAPH: &str = include_str!("scenarios/graph.toml");
const LOT: &str = include_str!("scenarios/parking-lot.toml");
const VARYING: &str = include_str!("scenarios/varying.toml");
const EXTRAS: &str = include_str!("scenarios/extras.toml");

fn valid() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![MANY, MIXED, GRAPH, LOT, VARYING, EXTRAS])
}

#[track_caller]
fn assert_same_when_written(scenario: &Scenario) {
    let toml = toml::to_string(scenario).expect("a scenario can be written as TOML");
    assert_eq!(&parse(&toml, "written.toml").expect("what is written can be read"), scenario);
}

/// Reads the text, and where it is a scenario does with it all that can be done.
fn use_up(text: &str) {
    exercise::scenario_text(text.as_bytes());
    if let Ok(scenario) = parse(text, "arbitrary.toml")
        && scenario.seed <= i64::MAX as u64
    {
        assert_same_when_written(&scenario);
    }
}

#[test]
fn the_scenarios_of_the_tests_are_valid_and_survive_being_written() {
    for text in [MANY, MIXED, GRAPH, LOT, VARYING, EXTRAS] {
        use_up(text);
        assert!(parse(text, "valid.toml").is_ok());
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let lists = format!("title = {}", "[".repeat(100_000));
    let keys = format!("{}x = 1", "a.".repeat(100_000));
    let tables = format!("title = {}", "{ a = ".repeat(100_000));
    let sums = format!("x = {}", "{ kind = \"sum\", terms = [".repeat(10_000));
    for text in [lists, keys, tables, sums] {
        assert!(parse(&text, "deep.toml").is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        use_up(&text);
    }

    #[test]
    fn arbitrary_keys_and_values_never_panic(
        lines in prop::collection::vec(
            ("(duration|topology|flows|measure|kind|rate|delay|[a-z.\"]{1,8})",
             "([0-9]{1,3}|\"[0-9]{1,4} ?[a-zA-Z/]{0,6}\"|\\{ kind = \"[a-z-]{1,8}\" \\}|\\[\\]|nan)"),
            0..8,
        )
    ) {
        let text: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        use_up(&text);
    }

    #[test]
    fn a_valid_file_with_a_piece_replaced_never_panics(
        text in valid(), at in 0.0..1.0f64, length in 0usize..12, piece in "[ -~\n]{0,8}"
    ) {
        let from = (at * text.len() as f64) as usize;
        let to = (from + length).min(text.len());
        if text.is_char_boundary(from) && text.is_char_boundary(to) {
            use_up(&format!("{}{piece}{}", &text[..from], &text[to..]));
        }
    }

    #[test]
    fn a_valid_file_with_two_words_swapped_never_panics(
        text in valid(), one in 0usize..400, other in 0usize..400
    ) {
        let mut words: Vec<&str> = text.split_inclusive([' ', '\n']).collect();
        let count = words.len();
        words.swap(one % count, other % count);
        use_up(&words.concat());
    }

    #[test]
    fn a_number_replaced_by_any_other_never_panics(
        text in valid(), which in 0usize..60, number in any::<u64>()
    ) {
        let numbers: Vec<_> = text.match_indices(|c: char| c.is_ascii_digit()).collect();
        let (at, digit) = numbers[which % numbers.len()];
        use_up(&format!("{}{number}{}", &text[..at], &text[at + digit.len()..]));
    }

    #[test]
    fn an_arbitrary_trace_is_read_or_refused_with_its_line(
        header in "(|(time_s|time_ms)(,(rate_bps|rate_mbps|delay_ms|loss|x)){0,3}\n)",
        rows in prop::collection::vec("(#|-)?[0-9]{0,9}(\\.|e|,|\r)?[0-9]{0,4}(,[0-9]{0,3}){0,2}", 0..12),
    ) {
        exercise::trace(format!("{header}{}", rows.join("\n")).as_bytes());
    }

    #[test]
    fn times_in_order_are_a_trace(gaps in prop::collection::vec(0u64..2000, 1..40)) {
        let mut time = 1;
        let lines = gaps.iter().map(|gap| { time += gap; time.to_string() });
        let text = lines.collect::<Vec<_>>().join("\n");
        prop_assert_eq!(ontempo_scenario::traces::read_mahimahi(&text).map(|times| times.len()), Ok(gaps.len()));
        exercise::trace(text.as_bytes());
    }

    #[test]
    fn an_arbitrary_light_trace_is_read_or_refused_with_its_line(
        rows in prop::collection::vec("[0-9]{1,5}( |  |\t)[0-9]{1,4}( [0-9]{1,2}){0,3}( |\r|-)?", 0..8),
    ) {
        exercise::trace(rows.join("\n").as_bytes());
    }

    #[test]
    fn lines_in_order_are_a_light_trace(
        lines in prop::collection::vec((0u64..300, 0u64..90, prop::collection::vec(0u64..9, 1..7)), 3..20),
    ) {
        let mut time = 0;
        let count = lines.len();
        let lines = lines.into_iter().map(|(gap, base, train)| {
            time += gap + 1;
            let mut last = 0;
            let train = train.into_iter().map(|gap| { last += gap; format!(" {last}") });
            format!("{time} {base}{}", train.collect::<String>())
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let read = ontempo_scenario::traces::read_light(&text).map(|trace| trace.lines().len());
        prop_assert_eq!(read, Ok(count));
        exercise::trace(text.as_bytes());
    }

    #[test]
    fn arbitrary_overrides_never_panic(key in "[a-z.\"']{0,20}", value in "\\PC{0,20}") {
        if let Ok(overrides) = Overrides::parse([format!("{key}={value}")]) {
            _ = parse_with(MANY, "many.toml", &overrides);
        }
        if let Ok(overrides) = Overrides::parse([format!("flows.long.{key}={value}")]) {
            _ = parse_with(MANY, "many.toml", &overrides);
        }
    }
}
