//! `ontempo show`: what it writes, and what a browser makes of it.

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod films;

use browser::Browser;
use common::{Place, SCENARIO};
use serde_json::Value;
use std::fs;

/// Everything that is drawn is recorded.
const MEASURE: &str = "\n[measure]\nsample-every = \"20 ms\"\nqueues = [\"bottleneck\"]\n\
                       packets = [\"bottleneck\"]\nadus = true\nevents = true\nmessages = true\n";

/// The charts of such a run, in their order; `late` needs two start-up delays.
const CHARTS: [&str; 11] = [
    "rates",
    "flow-rates",
    "queue",
    "waiting",
    "losses",
    "window",
    "round-trip",
    "unit-delay",
    "message-delay",
    "delays",
    "late",
];

/// A folder with the run `run`, of everything, and `bare`, of nothing but totals.
fn measured(test: &str) -> Place {
    let scenario = SCENARIO.replace("[\"1 s\"]", "[\"100 ms\", \"1 s\"]") + MEASURE;
    let place = Place::new(test, &scenario);
    place.run(&["simulate", "s.toml", "--out", "run"]).succeeds();
    fs::write(place.path("bare.toml"), SCENARIO).expect("written");
    place.run(&["simulate", "bare.toml", "--out", "bare"]).succeeds();
    place
}

fn ids(document: &Value) -> Vec<&str> {
    let charts = document["charts"].as_array().expect("charts");
    charts.iter().map(|chart| chart["chart"].as_str().expect("a name")).collect()
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    let place = measured("show-bytes");
    let shown = |output: &str| {
        place.run(&["show", "run", "bare", "--output", output]).succeeds();
        fs::read(place.path(output)).expect("a page")
    };
    assert!(shown("a.html") == shown("b.html"), "two pages of the same runs differ");
}

#[test]
fn what_was_read_and_drawn_is_reported_and_what_was_not_recorded_is_named_on_the_page() {
    let place = measured("show-reported");
    let whole = place.run(&["show", "run", "--json"]);
    let document = whole.succeeds().json();
    assert_eq!(ids(&document), CHARTS);
    assert_eq!(document["output"], "run/show.html");
    let page = fs::read_to_string(place.path("run/show.html")).expect("a page");
    assert_eq!(document["bytes"].as_u64(), Some(page.len() as u64));
    assert_eq!(document["runs"][0]["missing"], serde_json::json!([]));
    assert!(document["charts"].as_array().unwrap().iter().all(|chart| chart["points"] != 0));
    assert!(!page.contains("Not recorded"));

    let text = place.run(&["show", "bare"]).succeeds().out.clone();
    let page = fs::read_to_string(place.path("bare/show.html")).expect("a page");
    let lines = [
        "measure.sample-every = \"100 ms\"",
        "measure.queues = [\"bottleneck\"]",
        "measure.packets = [\"bottleneck\"]",
        "measure.adus = true",
        "measure.messages = true",
        "measure.events = true",
    ];
    for line in lines {
        assert!(text.contains(line), "{line} is missing: {text}");
        assert!(page.contains(&line.replace('"', "&quot;")), "{line} is not on the page");
        // Each is a line that a scenario takes.
        fs::write(place.path("more.toml"), format!("{line}\n{SCENARIO}")).expect("written");
        place.run(&["check", "more.toml"]).succeeds();
    }
}

#[test]
fn many_flows_are_a_sum_and_a_band_and_not_a_line_each() {
    let place = measured("show-many");
    let more = ["--set", "flows.video.count=60"];
    place.run(&[&["simulate", "s.toml", "--out", "many"][..], &more].concat()).succeeds();
    let document = place.run(&["show", "many", "--json"]).succeeds().json();
    for chart in document["charts"].as_array().expect("charts") {
        assert!(chart["lines"].as_u64() <= Some(6), "{chart}");
    }
    let page = fs::read_to_string(place.path("many/show.html")).expect("a page");
    assert!(page.contains("median and 10 to 90 % of 60 flows"));
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
fn a_file_of_others_is_replaced_only_with_force() {
    let place = measured("show-force");
    fs::write(place.path("notes.html"), "<!doctype html>\nmine").expect("written");
    let arguments = ["show", "run", "--output", "notes.html"];
    place.run(&arguments).fails(2, &["notes.html: it exists and is no page", "--force"]);
    assert_eq!(fs::read_to_string(place.path("notes.html")).unwrap(), "<!doctype html>\nmine");
    place.run(&[&arguments[..], &["--force"]].concat()).succeeds();
    // A page of ours is replaced.
    place.run(&["show", "bare", "--output", "notes.html"]).succeeds();
    place.run(&["show", "run", "bare"]).succeeds();
    assert!(place.path("show.html").exists(), "the page of several runs is here");
    assert!(common::files(&place.0).iter().all(|name| !name.starts_with(".show")));
    place.run(&["show", "run", "--output", "none/a.html"]).fails(3, &["cannot write none/a.html"]);
}

#[test]
fn what_is_no_run_is_an_error_that_names_file_and_field() {
    let place = measured("show-errors");
    fs::create_dir(place.path("empty")).expect("made");
    place.run(&["show", "empty"]).fails(2, &["empty: no complete run here", "run.json", "sqlog"]);
    place.run(&["show", "nowhere"]).fails(2, &["cannot read nowhere"]);
    place.run(&["show", "s.toml"]).fails(2, &["s.toml: neither a run's folder nor a qlog trace"]);
    let many = ["run"; 17];
    place.run(&[&["show"][..], &many].concat()).fails(2, &["more than 16 runs"]);
    let manifest = fs::read_to_string(place.path("run/run.json")).expect("a manifest");
    let spoilt = manifest.replacen("\"tables_version\": ", "\"tables_version\": 1000", 1);
    fs::write(place.path("run/run.json"), spoilt).expect("written");
    place.run(&["show", "run"]).fails(3, &["run/run.json", "tables are of version 1000"]);
    let spoilt = manifest.replacen("\"seed\": 1", "\"seed\": \"x\"", 1);
    fs::write(place.path("run/run.json"), spoilt).expect("written");
    place.run(&["show", "run"]).fails(3, &["run/run.json", "line"]);
    fs::write(place.path("run/run.json"), &manifest).expect("written");
    fs::write(place.path("run/samples.parquet"), "PAR1").expect("written");
    place.run(&["show", "run"]).fails(3, &["run/samples.parquet"]);
    fs::write(place.path("t.sqlog"), "\u{1e}{\"file_schema\":\"other\"}\n").expect("written");
    place.run(&["show", "t.sqlog"]).fails(3, &["t.sqlog: record 1: file_schema is `other`"]);
}

#[test]
fn a_scenario_larger_than_its_tables_is_not_laid_out() {
    let place = measured("show-larger");
    let path = place.path("bare/run.json");
    let manifest = fs::read_to_string(&path).expect("a manifest");
    let larger = manifest.replacen("\"count\": 2", "\"count\": 2000000000", 1);
    assert_ne!(larger, manifest);
    fs::write(&path, larger).expect("written");
    let document = place.run(&["show", "bare", "--json"]).succeeds().json();
    let note = document["notes"][0].as_str().expect("a note");
    assert!(note.contains("2000000002 flows") && note.contains("4 rows"), "{note}");
}

/// Counts the pixels of each chart's canvas that have a colour, not only grid and text.
const DRAWN: &str = "[...document.querySelectorAll('.chart')].map(section => {
    const canvas = section.querySelector('canvas');
    const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let colored = 0;
    for (let at = 0; at < all.length; at += 4) {
        const [low, high] = [Math.min(all[at], all[at + 1], all[at + 2]), Math.max(all[at], all[at + 1], all[at + 2])];
        colored += all[at + 3] > 128 && high - low > 40;
    }
    return [section.id, colored, canvas.getBoundingClientRect().width];
})";

#[test]
fn every_chart_is_drawn_in_a_browser_light_dark_and_on_a_phone() {
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let place = measured("show-drawn");
    place.run(&["show", "run"]).succeeds();
    let mut browser = Browser::start(&place);
    for (width, theme) in [(1200, "light"), (1200, "dark"), (375, "light"), (375, "dark")] {
        let what = format!("{theme}, {width} pixels");
        browser.appear(width, 800, theme);
        browser.open(&place.path("run/show.html"));
        assert_eq!(browser.errors(), [""; 0], "{what}");
        let drawn = browser.value(DRAWN);
        let drawn = drawn.as_array().expect("charts");
        let ids: Vec<_> = drawn.iter().map(|chart| chart[0].as_str().expect("an id")).collect();
        // Events stand between what is over time and what is not.
        assert_eq!(ids, [&CHARTS[..9], &["events"], &CHARTS[9..]].concat(), "{what}");
        for chart in drawn {
            assert!(chart[1].as_u64() > Some(100), "{what}: nothing is drawn: {chart}");
            assert!(chart[2].as_f64() > Some(250.0), "{what}: too narrow: {chart}");
        }
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(width.into()), "{what}: it is {wide} pixels wide");
        let paper = browser.value("getComputedStyle(document.body).backgroundColor");
        let digits = paper.as_str().expect("a colour").trim_start_matches("rgb(");
        let red: u32 = digits.split(',').next().unwrap().parse().expect("a number");
        assert_eq!(red < 128, theme == "dark", "{what}: {paper}");
    }
}

/// How many pixels of each chart have the colour of a run.
fn colored(browser: &mut Browser, run: u32) -> Vec<u64> {
    let script = format!(
        "(() => {{
            const [red, green, blue] = getComputedStyle(document.querySelector('.runs .c{run}'))
                .color.match(/\\d+/g).map(Number);
            return [...document.querySelectorAll('.chart')].map(section => {{
                const canvas = section.querySelector('canvas');
                const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                let count = 0;
                for (let at = 0; at < all.length; at += 4) {{
                    const away = Math.abs(all[at] - red) + Math.abs(all[at + 1] - green) + Math.abs(all[at + 2] - blue);
                    count += all[at + 3] > 100 && away < 24;
                }}
                return count;
            }});
        }})()"
    );
    let counts = browser.value(&script);
    counts
        .as_array()
        .expect("charts")
        .iter()
        .map(|count| count.as_u64().expect("a count"))
        .collect()
}

/// Where a chart is in the window: left, top, width, height.
fn rectangle(browser: &mut Browser, chart: &str) -> [f64; 4] {
    let script = format!(
        "(() => {{ const over = document.querySelector('#{chart} .u-over');
           over.scrollIntoView({{block: 'center'}});
           const at = over.getBoundingClientRect();
           return [at.left, at.top, at.width, at.height]; }})()"
    );
    let place = browser.value(&script);
    [0, 1, 2, 3].map(|side| place[side].as_f64().expect("a number"))
}

/// The times that all charts show at the crosshair, those over time first.
fn times(browser: &mut Browser) -> Vec<String> {
    let script = "[...document.querySelectorAll('.chart .at')].map(at => at.textContent)";
    let times = browser.value(script);
    let times = times.as_array().expect("texts").iter();
    times.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

#[test]
fn charts_share_zoom_and_crosshair_and_a_double_click_resets() {
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let place = measured("show-zoomed");
    place.run(&["show", "run"]).succeeds();
    let mut browser = Browser::start(&place);
    browser.appear(1200, 900, "light");
    browser.open(&place.path("run/show.html"));
    let [left, top, width, height] = rectangle(&mut browser, "queue");
    let (at, y) = (|share: f64| left + width * share, top + height / 2.0);
    let time_at = |browser: &mut Browser, share: f64| {
        browser.mouse("mouseMoved", at(share), y, 0);
        let shown = times(browser);
        assert!(shown[..9].iter().all(|time| *time == shown[0]), "they differ: {shown:?}");
        let seconds = shown[0].trim_end_matches(" s");
        seconds.parse::<f64>().unwrap_or_else(|_| panic!("no time: {shown:?}"))
    };
    let middle = time_at(&mut browser, 0.5);
    assert!((middle - 1.5).abs() < 0.02, "{middle} s is no middle of 3 s");
    let values = browser.value("document.querySelector('#queue .legend output').textContent");
    assert!(values.as_str().is_some_and(|text| text.ends_with(" packets")), "{values}");

    let zoomed = "document.documentElement.classList.contains('zoomed')";
    assert_eq!(browser.value(zoomed), false);
    browser.mouse("mousePressed", at(0.5), y, 1);
    browser.mouse("mouseMoved", at(0.6), y, 1);
    browser.mouse("mouseMoved", at(0.75), y, 1);
    browser.mouse("mouseReleased", at(0.75), y, 1);
    assert_eq!(browser.value(zoomed), true);
    let (first, last) = (time_at(&mut browser, 0.02), time_at(&mut browser, 0.98));
    assert!((first - 1.515).abs() < 0.02 && (last - 2.235).abs() < 0.02, "{first} to {last} s");

    for clicks in [1, 2] {
        browser.mouse("mousePressed", at(0.5), y, clicks);
        browser.mouse("mouseReleased", at(0.5), y, clicks);
    }
    assert_eq!(browser.value(zoomed), false, "a double click resets");
    browser.wheel(at(0.5), y, -300.0);
    browser.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))");
    assert_eq!(browser.value(zoomed), true, "the wheel with Ctrl zooms");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn runs_are_overlaid_and_switched_and_a_missing_table_leaves_no_empty_chart() {
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let place = measured("show-switched");
    // With other windows, so that no line lies on another.
    let more = [
        "--set",
        "flows.bulk.transport.congestion=cubic",
        "--set",
        "topology.bottleneck.rate=1 Mbit/s",
    ];
    place.run(&[&["simulate", "s.toml", "--out", "other"][..], &more].concat()).succeeds();
    place.run(&["show", "run", "other", "bare"]).succeeds();
    let mut browser = Browser::start(&place);
    browser.appear(1200, 900, "light");
    browser.open(&place.path("show.html"));
    let both = colored(&mut browser, 0);
    assert_eq!(both.len(), CHARTS.len() + 1, "{both:?}");
    assert!(both.iter().all(|pixels| *pixels > 20), "{both:?}");
    let switch = |browser: &mut Browser, run: u32| {
        browser.value(&format!("document.querySelector('.runs input[value=\"{run}\"]').click()"));
        browser.value("new Promise(done => setTimeout(done, 100))");
    };
    switch(&mut browser, 0);
    let none = colored(&mut browser, 0);
    // Where lines of others cross, a few pixels may look alike.
    assert!(none.iter().zip(&both).all(|(none, both)| none * 10 < *both), "{none:?} {both:?}");
    assert!(colored(&mut browser, 1).iter().all(|pixels| *pixels > 20));
    assert_eq!(
        browser.value("document.querySelectorAll('tr.off[data-run=\"0\"]').length > 0"),
        true
    );
    switch(&mut browser, 0);
    assert_eq!(colored(&mut browser, 0), both, "switched off and on");
    // A single line is switched by its entry.
    browser.value("document.querySelector('#queue .legend button').click()");
    browser.value("new Promise(done => setTimeout(done, 100))");
    let queue = browser.value("document.querySelector('#queue .legend button').ariaPressed");
    assert_eq!(queue, "false");
    assert!(colored(&mut browser, 0)[2] * 10 < both[2]);
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_title_that_is_html_runs_no_script_and_a_script_put_into_the_page_does_not_run() {
    const TITLE: &str =
        "</script><script>window.owned = 1</script><img src=x onerror=\"window.owned = 1\">'&";
    let place = measured("show-hostile");
    let path = place.path("run/run.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).expect("JSON");
    manifest["title"] = TITLE.into();
    manifest["engine"]["name"] = TITLE.into();
    fs::write(&path, manifest.to_string()).expect("written");
    let folder = "<img src=x onerror=alert(1)>";
    fs::rename(place.path("run"), place.path(folder)).expect("renamed");
    place.run(&["show", folder, "bare", "--output", "two.html"]).succeeds();
    place.run(&["show", folder, "--output", "page.html"]).succeeds();
    let page = fs::read_to_string(place.path("page.html")).expect("a page");
    for text in [&page, &fs::read_to_string(place.path("two.html")).expect("a page")] {
        assert!(!text.contains("<script>window") && !text.contains("<img"), "it is not escaped");
        assert_eq!(text.matches("</script>").count(), 2, "the data and the script end once each");
    }
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let mut browser = Browser::start(&place);
    browser.appear(1200, 900, "light");
    browser.open(&place.path("two.html"));
    assert_eq!(browser.errors(), [""; 0]);
    browser.open(&place.path("page.html"));
    assert_eq!(browser.errors(), [""; 0]);
    assert_eq!(browser.value("document.querySelector('h1').textContent"), TITLE);
    assert_eq!(browser.value("document.title"), TITLE);
    assert_eq!(browser.value("typeof window.owned"), "undefined");

    let body = "<body>";
    let attacked = page.replacen(body, &format!("{body}<script>window.owned = 1</script>"), 1);
    fs::write(place.path("attacked.html"), attacked).expect("written");
    browser.open(&place.path("attacked.html"));
    assert_eq!(browser.value("typeof window.owned"), "undefined");
    let errors = browser.errors();
    assert!(errors.iter().any(|error| error.contains("Content Security Policy")), "{errors:?}");
    assert_ne!(browser.value("document.documentElement.dataset.drawn"), Value::Null);
}
