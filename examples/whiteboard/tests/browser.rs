//! Two participants in headless Chromium, over a path that loses 5 % with a round trip of 100 ms.

#[path = "../../window/tests/common/mod.rs"]
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::browser::Browser;
use common::{Place, Served, look, says, wait_for};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ontempo-whiteboard");

/// One test with browsers at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two participants, whose pages are connected.
struct Two {
    people: [Browser; 2],
    _places: [Place; 2],
}

impl Two {
    fn come(test: &str, link: &str) -> Self {
        let places = ["one", "other"].map(|who| Place::new(&format!("{test}-{who}")));
        let people = [0, 1].map(|at| {
            let mut browser = Browser::start(&places[at]);
            browser.appear(1280, 1000, "light");
            browser.go(link);
            wait_for(&mut browser, "document.getElementById('message').textContent === ''");
            browser
        });
        Self { people, _places: places }
    }
}

fn shows(units: u64) -> String {
    format!("Object.values(ontempo.lanes).every(lane => lane.shown === {units})")
}

#[test]
fn a_stroke_drawn_with_the_pointer_comes_to_the_other_participant() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let served = Served::start(PROGRAM, &[]);
    let mut two = Two::come("board-stroke", &served.link);
    let [one, other] = &mut two.people;
    let at = one.value(
        "(() => { const box = document.querySelector('#partial-order + .glass').getBoundingClientRect();
           return [box.left + box.width / 4, box.top + box.height / 4]; })()",
    );
    let [x, y] = [0, 1].map(|place| at[place].as_f64().expect("a number"));
    one.mouse("mousePressed", x, y, 1);
    for step in 1..=4 {
        one.mouse("mouseMoved", x + 10.0 * f64::from(step), y + 5.0 * f64::from(step), 1);
    }
    one.mouse("mouseReleased", x + 40.0, y + 20.0, 1);
    for participant in [&mut *one, other] {
        wait_for(participant, "Object.values(ontempo.lanes).every(lane => lane.shown > 0)");
        // In the colour that was chosen, where it was drawn.
        let colour =
            "Array.from(ontempo.lanes['partial-order'].context.getImageData(210, 130, 1, 1).data)";
        wait_for(participant, &format!("{colour}.join() === '11,99,196,255'"));
        assert_eq!(participant.errors(), [""; 0]);
    }
    // What was drawn here has come back: nothing is faint any more.
    wait_for(one, "Object.values(ontempo.lanes).every(lane => lane.pending.size === 0)");
}

#[test]
fn a_slider_that_one_participant_moves_changes_the_path_of_all() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let served = Served::start(PROGRAM, &[]);
    let mut two = Two::come("board-slider", &served.link);
    let [one, other] = &mut two.people;
    let dot =
        "ontempo.draw({ kind: 'rectangle', from: [10, 10], to: [20, 20], colour: '#000000' })";
    one.value(dot);
    wait_for(other, &shows(1));
    one.value(
        "(() => { const slider = document.getElementById('round_trip_ms'); slider.value = 1000;
           for (const kind of ['input', 'change']) slider.dispatchEvent(new Event(kind)); })()",
    );
    let output = "document.querySelector('output[for=round_trip_ms]').textContent === '1000 ms'";
    wait_for(other, output);
    // The relay looks for news ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    one.value(dot);
    for participant in [one, other] {
        wait_for(participant, &shows(2));
        let took = participant.value("Object.values(ontempo.lanes).map(lane => lane.times[1].ms)");
        for lane in [0, 1] {
            assert!(took[lane].as_f64() >= Some(500.0), "{took}");
        }
        assert_eq!(participant.errors(), [""; 0]);
    }
}

#[test]
fn both_boards_of_both_participants_end_with_the_same_objects_and_pixels() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    const EACH: u64 = 100;
    let served = Served::start(PROGRAM, &[]);
    let mut two = Two::come("board-same", &served.link);
    let path = json!({ "loss_percent": 5, "round_trip_ms": 100, "rate_kbps": 5000 });
    two.people[0].value(&format!("ontempo.send({{ do: 'path', impairment: {path} }})"));
    // Many of them overlap; both draw at the same time.
    let draw = format!(
        "(async () => {{
            for (let at = 0; at < {EACH}; at += 1) {{
                ontempo.draw(ontempo.something());
                await new Promise(done => setTimeout(done, 20));
            }}
            return true;
        }})()"
    );
    let begin = draw.replacen("(async", "window.drawing = (async", 1) + " && true";
    two.people[0].value(&begin);
    two.people[1].value(&draw);
    two.people[0].value("window.drawing");
    for participant in &mut two.people {
        wait_for(participant, &format!("ontempo.sent() >= {}", 2 * EACH));
    }
    let units = two.people[0].value("ontempo.sent()").as_u64().expect("a number");
    let mut seen = Vec::new();
    for participant in &mut two.people {
        wait_for(participant, &shows(units));
        let sorted = "Object.values(ontempo.lanes).map(lane => lane.numbers.toSorted((a, b) => a - b).join())";
        let all: Vec<_> = (0..units).map(|number| number.to_string()).collect();
        assert_eq!(participant.value(sorted), json!([all.join(","), all.join(",")]));
        for lane in ["in-order", "partial-order"] {
            let hash = format!("ontempo.hashOf(document.getElementById('{lane}'))");
            seen.push(participant.value(&hash));
            for figure in ["50", "90", "95", "100"] {
                let is_shown = format!(
                    "/^[0-9.]+ m?s$/.test(document.getElementById('{lane}-{figure}').textContent)"
                );
                wait_for(participant, &is_shown);
            }
            let figures = participant.value(&format!("ontempo.lanes['{lane}'].figures()"));
            println!("{lane}: {figures}");
        }
        assert_eq!(participant.errors(), [""; 0]);
    }
    // All of them, also the one that was delivered in order; and something is on it.
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    let blank = two.people[0].value(
        "(() => { const blank = document.createElement('canvas'); [blank.width, blank.height] = [800, 500];
           const context = blank.getContext('2d'); context.fillStyle = '#fff';
           context.fillRect(0, 0, 800, 500); return ontempo.hashOf(blank); })()",
    );
    assert_ne!(seen[0], blank);
    for participant in &mut two.people {
        // Its figures are those of all.
        wait_for(
            participant,
            "document.getElementById('partial-order-under-way').textContent === '0'",
        );
    }
    look(&mut two.people[0], "whiteboard");
    // Who comes later finds the same.
    let (place, units) = (Place::new("board-late"), units);
    let mut late = Browser::start(&place);
    late.appear(390, 844, "dark");
    late.go(&served.link);
    wait_for(&mut late, &shows(units));
    assert_eq!(late.value("ontempo.hashOf(document.getElementById('partial-order'))"), seen[0]);
    for lane in ["in-order", "partial-order"] {
        let found = format!("document.getElementById('{lane}-found').textContent");
        wait_for(
            &mut late,
            &format!("/{units} were here.*50 %.*90 %.*100 % of them after/.test({found})"),
        );
    }
    let wide = late.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(390), "{wide}");
    look(&mut late, "whiteboard-phone");
}

#[test]
fn a_wrong_token_a_full_board_and_what_is_refused_are_told_in_a_sentence() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let served = Served::start(PROGRAM, &["--visitors", "1"]);
    let (page, _) = served.link.split_once("#token=").expect("a token");
    let places = [Place::new("board-token"), Place::new("board-full")];
    let mut browser = Browser::start(&places[0]);
    browser.go(page);
    wait_for(&mut browser, &says("no token"));
    let old = "if (location.search === '?old') delete window.WebTransport;";
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": old }));
    browser.go(&format!("{page}?old"));
    wait_for(&mut browser, &says("This browser has no WebTransport"));
    browser.go("about:blank");
    browser.go(&format!("{page}#token=wrong"));
    wait_for(&mut browser, &says("The token of the link is wrong"));
    browser.go("about:blank");
    browser.go(&served.link);
    wait_for(&mut browser, "document.getElementById('message').textContent === ''");
    let mut second = Browser::start(&places[1]);
    second.go(&served.link);
    wait_for(&mut second, &says("no place left"));
    // It would take the place when the first comes again.
    second.go("about:blank");
    for (message, field) in [
        (
            "{ do: 'draw', mark: 1, object: { kind: 'stroke', points: [[900, 1]], width: 4, colour: '#000000' } }",
            "800",
        ),
        (
            "{ do: 'draw', mark: 1, object: { kind: 'text', at: [1, 1], text: '', size: 20, colour: '#000000' } }",
            "letters",
        ),
        (
            "{ do: 'path', impairment: { loss_percent: 90, round_trip_ms: 1, rate_kbps: 1000 } }",
            "loss_percent",
        ),
    ] {
        browser.value(&format!("ontempo.send({message})"));
        wait_for(&mut browser, &says(field));
    }
    // One that is too long ends the visit, and the page comes again.
    browser.value("ontempo.send({ do: 'x'.repeat(20000) })");
    wait_for(&mut browser, "document.getElementById('message').textContent === ''");
    assert_eq!(browser.errors(), [""; 0]);
}
