//! The page in headless Chromium, for two visitors, over a path that loses 5 % with a round trip of 100 ms.

#[path = "../../window/tests/common/mod.rs"]
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::browser::Browser;
use common::{Place, Served, look, says, wait_for};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ontempo-web-page");

/// One test with browsers at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn come(place: &Place, link: &str) -> Browser {
    let mut browser = Browser::start(place);
    browser.appear(1280, 1220, "light");
    browser.go(link);
    wait_for(&mut browser, "document.getElementById('message').textContent === ''");
    browser
}

/// Hashes of the pictures of a page.
fn hashes(browser: &mut Browser, lane: usize) -> Value {
    browser.value(&format!(
        "Promise.all(ontempo.articles[{lane}].pictures.map(one => ontempo.hashOf(one.canvas)))"
    ))
}

#[test]
fn both_pages_of_two_visitors_become_whole_and_are_the_same_pixel_by_pixel() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    // More of them for figures.
    let loads = std::env::var("ONTEMPO_LOADS").ok().and_then(|count| count.parse().ok());
    let loads: u64 = loads.unwrap_or(3);
    let served = Served::start(PROGRAM, &[]);
    let places = ["one", "other"].map(|who| Place::new(&format!("page-{who}")));
    let mut visitors = [0, 1].map(|at| come(&places[at], &served.link));
    let mut seen = Vec::new();
    for load in 1..=loads {
        // Both at once the last time.
        for visitor in &mut visitors {
            visitor.value("document.getElementById('load').click()");
            if load < loads {
                wait_for(visitor, &format!("ontempo.loads.every(all => all.length === {load})"));
            }
        }
    }
    for visitor in &mut visitors {
        wait_for(visitor, &format!("ontempo.loads.every(all => all.length === {loads})"));
        assert_eq!(visitor.errors(), [""; 0]);
        assert_eq!(visitor.value("ontempo.articles.map(one => one.failed)"), json!([0, 0]));
        for lane in [0, 1] {
            seen.push(hashes(visitor, lane));
            let article = format!("ontempo.articles[{lane}]");
            assert_eq!(visitor.value(&format!("{article}.shown - {article}.pixels")), json!(0));
        }
        for name in ["in-order", "partial-order"] {
            for figure in ["50", "90", "100", "sharp"] {
                for id in [format!("{name}-{figure}"), format!("{name}-{figure}-median")] {
                    let text = format!("document.getElementById('{id}').textContent");
                    wait_for(visitor, &format!("/^[0-9.]+ m?s$/.test({text})"));
                }
            }
        }
        println!("{}", visitor.value("document.querySelector('table').innerText"));
    }
    assert_eq!(seen[0].as_array().map(Vec::len), Some(4));
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    // The progressive one is the whole file as the browser decodes it.
    let file = include_bytes!("../pictures/hills.jpg");
    let bytes = json!(&file[..]);
    let whole = visitors[0].value(&format!(
        "(async () => {{
            const bitmap = await createImageBitmap(new Blob([new Uint8Array({bytes})], {{ type: 'image/jpeg' }}));
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
            canvas.getContext('2d', {{ willReadFrequently: true }}).drawImage(bitmap, 0, 0);
            return ontempo.hashOf(canvas);
        }})()"
    ));
    assert_eq!(seen[0][3], whole);
    visitors[0].value("new Promise(done => setTimeout(done, 500))");
    look(&mut visitors[0], "page");
    visitors[1].appear(390, 844, "dark");
    let wide = visitors[1].value("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(390), "{wide}");
    visitors[1].value("new Promise(done => setTimeout(done, 500))");
    look(&mut visitors[1], "page-phone");
}

#[test]
fn a_wrong_token_and_what_is_refused_are_told_in_a_sentence() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let served = Served::start(PROGRAM, &[]);
    let (page, _) = served.link.split_once("#token=").expect("a token");
    let place = Place::new("page-token");
    let mut browser = Browser::start(&place);
    browser.go(&format!("{page}#token=wrong"));
    wait_for(&mut browser, &says("The token of the link is wrong"));
    browser.go("about:blank");
    browser.go(&served.link);
    wait_for(&mut browser, "document.getElementById('message').textContent === ''");
    let path =
        "{ do: 'path', impairment: { loss_percent: 5, round_trip_ms: 9000, rate_kbps: 1000 } }";
    browser.value(&format!("ontempo.send({path})"));
    wait_for(&mut browser, &says("round_trip_ms"));
    browser.value("ontempo.send({ do: 'load' }); ontempo.send({ do: 'load' })");
    wait_for(&mut browser, &says("is being loaded"));
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn what_cannot_be_served_is_an_error_that_names_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let fails = |arguments: &[&str], code: i32, words: &str| {
        let output = std::process::Command::new(PROGRAM).args(arguments).output().expect("it ran");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(code) && said.contains(words),
            "{arguments:?}: {said}"
        );
    };
    fails(&["--listen", &taken], 3, &format!("--listen {taken}: "));
    fails(&["--picture", "nothing.jpg"], 2, "--picture nothing.jpg: ");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    fails(&["--picture", manifest], 2, "no JPEG");
    fails(&["--visitors", "0"], 2, "--visitors");
}
