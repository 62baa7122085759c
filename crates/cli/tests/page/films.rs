//! Films on the page: their charts and figures, contenders side by side.

use std::fs;

use serde_json::Value;

use crate::browser::Browser;
use crate::common::Place;
use crate::{DRAWN, ids};

/// A film of which UDP loses pictures and SRT few; two players.
const FILM: &str = r#"title = "A film"
duration = "12 s"

[topology]
kind = "dumbbell"
access = { rate = "100 Mbit/s", delay = "1 ms" }

[topology.bottleneck]
rate = "10 Mbit/s"
delay = "20 ms"
loss = { kind = "bernoulli", rate = 0.01 }
queue = { kind = "drop-tail", limit = "100 packets" }

[flows.film]
application = { kind = "media", generate = { rate = "2 Mbit/s" }, latency = ["30 ms", "300 ms"] }
transport = { kind = "udp" }
stop = "11 s"

[measure]
from = "1 s"
"#;

/// A folder with the run `udp`, of which `summary` is what the command says, and `srt`.
fn filmed(test: &str) -> (Place, Value) {
    let place = Place::new(test, FILM);
    let run = ["simulate", "s.toml", "--json", "--out", "udp"];
    let summary = place.run(&run).succeeds().json();
    let transport = "flows.film.transport={kind=\"srt\",latency=\"120 ms\"}";
    place.run(&["simulate", "s.toml", "--out", "srt", "--set", transport]).succeeds();
    (place, summary["runs"][0]["summary"]["flows"][0]["films"].clone())
}

/// The data of a page.
fn data(page: &str) -> Value {
    let begin = page.find("id=\"data\">").expect("data") + "id=\"data\">".len();
    let end = begin + page[begin..].find("</script>").expect("their end");
    serde_json::from_str(&page[begin..end]).expect("JSON")
}

/// The line of a chart whose label begins so.
fn line<'a>(data: &'a Value, chart: &str, label: &str) -> &'a Value {
    let chart = data["charts"].as_array().expect("charts").iter().find(|one| one["id"] == chart);
    let mut lines = chart.expect("the chart")["lines"].as_array().expect("lines").iter();
    let is_it = |line: &&Value| line["label"].as_str().is_some_and(|text| text.starts_with(label));
    lines.find(is_it).unwrap_or_else(|| panic!("no line `{label}`"))
}

fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().expect("numbers").iter();
    numbers.map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
}

#[test]
fn what_is_drawn_of_a_film_is_what_its_tables_count() {
    let (place, films) = filmed("show-film");
    let document = place.run(&["show", "udp", "--json"]).succeeds().json();
    assert_eq!(ids(&document), ["on-time", "frames"]);
    assert_eq!(document["charts"][1]["film"], "film");
    let page = fs::read_to_string(place.path("udp/show.html")).expect("a page");
    let data = data(&page);
    let curve = line(&data, "on-time", "film");
    let (latencies, shares) = (numbers(&curve["x"]), numbers(&curve["y"]));
    for (player, label) in films.as_array().expect("players").iter().zip(["30.0 ms", "300 ms"]) {
        let number = |name: &str| player[name].as_f64().expect("a number");
        let share = number("decodable_pictures") / number("pictures");
        let step = latencies.iter().rposition(|at| *at <= number("player_latency_s"));
        assert!((shares[step.expect("a step")] - share).abs() < 1e-4, "{player} {shares:?}");
        assert!((0.0..0.9).contains(&share), "the test needs losses: {player}");
        // The freezes were found anew from the frames.
        let spans = line(&data, "frames", &format!("freezes, player {label}"));
        let (from, to) = (numbers(&spans["x"]), numbers(&spans["y"]));
        assert_eq!(from.len() as u64, player["freezes"].as_u64().expect("a count"));
        let total: f64 = from.iter().zip(&to).map(|(from, to)| to - from).sum();
        assert!((total - number("frozen_s")).abs() < 1e-4, "{total} s: {player}");
        let cell = format!("{} of {}", player["decodable_pictures"], player["pictures"]);
        assert!(page.contains(&cell), "{cell}");
    }
    let whole: usize = ["key pictures", "reference", "disposable"]
        .iter()
        .map(|kind| numbers(&line(&data, "frames", kind)["x"]).len())
        .sum();
    let lost = numbers(&line(&data, "frames", "lost pictures")["x"]).len();
    // The second player sees no picture that was sent less than 300 ms before the end.
    assert_eq!((whole + lost) as u64, films[0]["pictures"].as_u64().expect("a count"));
    assert!(page.contains("not told"), "UDP's table does not tell what was sent again");
}

#[test]
fn contenders_are_overlaid_and_each_has_its_frames() {
    let (place, _) = filmed("show-contenders");
    let document = place.run(&["show", "udp", "srt", "--json"]).succeeds().json();
    assert_eq!(ids(&document), ["on-time", "frame-latency", "not-shown", "frames", "frames"]);
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let mut browser = Browser::start(&place);
    for (width, theme) in [(1280, "light"), (390, "dark")] {
        let what = format!("{theme}, {width} pixels");
        browser.appear(width, 900, theme);
        browser.open(&place.path("show.html"));
        assert_eq!(browser.errors(), [""; 0], "{what}");
        let drawn = browser.value(DRAWN);
        let drawn = drawn.as_array().expect("charts");
        let ids: Vec<_> = drawn.iter().map(|chart| chart[0].as_str().expect("an id")).collect();
        assert_eq!(ids, ["on-time", "frame-latency", "not-shown", "frames-1", "frames-2"]);
        for chart in drawn {
            assert!(chart[1].as_u64() > Some(100), "{what}: nothing is drawn: {chart}");
        }
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(width.into()), "{what}: it is {wide} pixels wide");
        let zoomed = browser.value("document.documentElement.classList.contains('zoomed')");
        assert_eq!(zoomed, false, "{what}: all of the run is in view");
    }
    // A contender that is switched off takes its frames along.
    let frames = "document.getElementById('frames-1').hidden";
    assert_eq!(browser.value(frames), false);
    browser.value("document.querySelector('.runs input[value=\"0\"]').click()");
    browser.value("new Promise(done => setTimeout(done, 100))");
    assert_eq!(browser.value(frames), true);
    assert_eq!(browser.value("document.getElementById('frames-2').hidden"), false);
    browser.value("document.querySelector('.runs input[value=\"0\"]').click()");
    browser.value("new Promise(done => setTimeout(done, 100))");
    assert_eq!(browser.value(frames), false);
    assert_eq!(browser.errors(), [""; 0]);
}
