//! `ontempo receive --serve`, watched in a headless Chromium: real video, over a path that loses packets.

#[allow(dead_code)]
#[path = "../page/browser.rs"]
mod browser;
mod codecs;
#[path = "../common/mod.rs"]
mod common;
mod film;
mod playout;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use browser::Browser;
use common::{Killed, ListeningProgram, Place, free_port, send_with};
use serde_json::{Value, json};

use film::{Coded, FRAMES, GLASS, LOOK, film, live, play, play_packets};

/// 3 % lost on the way to the receiver, a round trip of 100 ms.
const PATH: &str = r#"duration = "60 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "20 Mbit/s", delay = "50 ms", loss = { kind = "bernoulli", rate = 0.03 } }
reverse = { rate = "20 Mbit/s", delay = "50 ms" }
access = { rate = "1 Gbit/s", delay = "0 s" }
[flows.line]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
"#;

/// One browser at a time: a film needs the machine.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `ontempo receive --serve`, or `relay`.
struct Served {
    program: ListeningProgram,
    /// The link to the page.
    link: String,
}

impl Served {
    fn start(place: &Place, listen: &str, serve: &str, more: &[&str]) -> Self {
        Self::of("receive", place, listen, serve, more)
    }

    fn of(command: &str, place: &Place, listen: &str, serve: &str, more: &[&str]) -> Self {
        let words = [command, "--listen", listen, "--serve", serve, "--token", "open"];
        let identity = ["--identity", "identity.pem"];
        let mut program = ListeningProgram::start(place, &[&words[..], &identity, more].concat());
        let url = program.next_event("serving")["url"].clone();
        let link = url.as_str().expect("a link").to_owned();
        Self { program, link }
    }
}

fn send(place: &Place, to: &str, port: u16, more: &[&str]) -> Killed {
    let words = ["--token", "open", "--insecure", "--give-up", "60 s"];
    Killed(send_with(place, to, &format!("udp://127.0.0.1:{port}"), &[&words[..], more].concat()))
}

/// Waits until an expression on the page is true.
#[track_caller]
fn wait_for(browser: &mut Browser, expression: &str) {
    let begun = Instant::now();
    while browser.value(expression) != json!(true) {
        if begun.elapsed() > Duration::from_secs(30) {
            let message = browser.value("document.getElementById('message').textContent");
            panic!("in vain waited for {expression}; the page says {message}");
        }
        sleep(Duration::from_millis(200));
    }
}

fn says(words: &str) -> String {
    format!("document.getElementById('message').textContent.includes({})", json!(words))
}

/// A share of sorted values.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

#[test]
fn a_film_over_a_path_that_loses_packets_is_painted_whole_and_in_time() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-film", PATH);
    if film(&place, Coded::H264AndAac).is_none() {
        return;
    }
    watch_well(&place, feed_played);
}

/// Watches the film until all is well, at most twice: a machine that is busy with something else gets a second chance.
#[track_caller]
fn watch_well(place: &Place, feed: fn(&Place, &str) -> Killed) {
    let mut watched = watch_film(place, feed);
    if !watched.is_good() {
        println!("once more, after {watched:?}");
        watched = watch_film(place, feed);
    }
    println!("of {FRAMES} pictures, latency 400 ms: {watched:?}");
    assert!(watched.is_good(), "{watched:?}");
}

/// Sends what ffmpeg plays, until its end.
fn feed_played(place: &Place, to: &str) -> Killed {
    let port = free_port();
    let sender = send(place, to, port, &["--latency", "400 ms"]);
    assert!(play(place, port).0.wait().expect("ffmpeg").success());
    sender
}

/// Sends the packets of the file at their times: ffmpeg does not know what is in it.
fn feed_packets(place: &Place, to: &str) -> Killed {
    let port = free_port();
    let sender = send(place, to, port, &["--latency", "400 ms"]);
    play_packets(place, port);
    sender
}

/// What a page has shown of the film.
#[derive(Debug)]
#[allow(dead_code)] // shown by `Debug`
struct Watched {
    /// Different pictures that were on the canvas.
    painted: u64,
    figures: Value,
    /// Median and 95 % of the latencies of all pictures, ms.
    latency: (f64, f64),
    /// Figures, and how much later than its picture sound is heard, ms, median and 90 %; `None` without sound.
    sound: Option<(Value, f64, f64)>,
}

impl Watched {
    fn is_good(&self) -> bool {
        self.painted >= FRAMES * 99 / 100
            && (400.0..1_000.0).contains(&self.latency.0)
            && self.sound.as_ref().is_none_or(|(figures, _, behind)| {
                figures["played"].as_u64() > Some(700) && *behind < 200.0
            })
    }
}

/// Carries the film over the path to a page with sound.
fn watch_film(place: &Place, feed: fn(&Place, &str) -> Killed) -> Watched {
    let served = Served::start(place, "127.0.0.1:0", "127.0.0.1:0", &[]);
    let server = served.program.local.clone();
    let path = ["impair", "--listen", ":0", "--to", &server, "--scenario", "s.toml"];
    let path = ListeningProgram::start(place, &path);
    let mut browser = Browser::start(place);
    browser.appear(1280, 800, "dark");
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting"));
    assert_eq!(browser.value(LOOK), json!(true));
    browser.value("ontempo.sound.turnOn().then(() => true)");
    let _sender = feed(place, &path.local);
    sleep(Duration::from_secs(2));
    let painted = browser.value("window.seen.size").as_u64().expect("a number");
    let figures = browser.value("ontempo.pictures.figures");
    let has_sound = browser.value("ontempo.sound.isThere") == json!(true);
    let sound = has_sound.then(|| {
        let figures = browser.value("ontempo.sound.figures");
        let behind = numbers(&mut browser, "ontempo.sound.drifts");
        (figures, quantile(&behind, 0.5), quantile(&behind, 0.9))
    });
    let latency = numbers(&mut browser, "ontempo.pictures.history.map(one => one.latency)");
    assert_eq!(browser.errors(), [""; 0]);
    let latency = (quantile(&latency, 0.5), quantile(&latency, 0.95));
    Watched { painted, figures, latency, sound }
}

fn numbers(browser: &mut Browser, expression: &str) -> Vec<f64> {
    let all = serde_json::from_value(browser.value(expression)).expect("numbers");
    assert_ne!(all, [0.0; 0], "{expression}");
    all
}

#[test]
fn the_page_of_a_relay_shows_the_stream_that_it_names() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-relay", PATH);
    if film(&place, Coded::H264AndAac).is_none() {
        return;
    }
    let more = ["--serve-stream", "stage"];
    let mut served = Served::of("relay", &place, "127.0.0.1:0", "127.0.0.1:0", &more);
    let mut browser = Browser::start(&place);
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting for a sender"));
    let port = free_port();
    let named = ["--latency", "300 ms", "--stream", "stage"];
    let _sender = send(&place, &served.program.local, port, &named);
    let _film = play(&place, port);
    wait_for(&mut browser, "ontempo.pictures.figures.painted > 50");
    // Its figures are those of a receiver.
    wait_for(&mut browser, "ontempo.pictures.history.length > 50");
    assert_eq!(browser.errors(), [""; 0]);
    // The page is one of the relay's viewers.
    let is_watched =
        |figures: &Value| figures["viewers"] == 1 && figures["streams"][0]["name"] == "stage";
    let mut figures = served.program.next_event("figures");
    while !is_watched(&figures) {
        figures = served.program.next_event("figures");
    }
    served.program.said_until_interrupted();
}

#[test]
fn from_glass_to_glass_a_picture_takes_a_part_of_a_second() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-glass", PATH);
    // The page over HTTPS, whose certificate no issuer has signed.
    let served = Served::start(&place, "127.0.0.1:0", "0.0.0.0:0", &[]);
    let (_, port_and_token) = served.link.rsplit_once(':').expect("a port");
    assert!(served.link.starts_with("https://"), "{}", served.link);
    let port = free_port();
    let server = served.program.local.clone();
    let _sender = send(&place, &server, port, &["--latency", "60 ms"]);
    let mut browser = Browser::start(&place);
    browser.call("Security.enable", json!({}));
    browser.call("Security.setIgnoreCertificateErrors", json!({ "ignore": true }));
    browser.appear(1400, 900, "dark");
    browser.go(&format!("https://127.0.0.1:{port_and_token}"));
    wait_for(&mut browser, &says("Waiting"));
    assert_eq!(browser.value(GLASS), json!(true));
    let _film = live(port, Duration::from_secs(10));
    sleep(Duration::from_secs(9));
    let ages = numbers(&mut browser, "window.ages.slice(50)");
    let latency = "ontempo.pictures.history.slice(-50).map(one => one.latency)";
    let latency = numbers(&mut browser, latency);
    println!(
        "{} pictures, from glass to glass: median {:.0} ms, 95 % below {:.0} ms; of it from the sender \
         to the canvas {:.0} ms, of 60 ms",
        ages.len(),
        quantile(&ages, 0.5),
        quantile(&ages, 0.95),
        quantile(&latency, 0.5)
    );
    assert!(quantile(&ages, 0.5) < 5_000.0, "{ages:?}");
}

#[test]
fn a_page_without_the_right_token_says_so_and_gets_nothing() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let place = Place::new("browser-token", PATH);
    let served = Served::start(&place, "127.0.0.1:0", "127.0.0.1:0", &["--viewers", "1"]);
    let (page, token) = served.link.split_once("#token=").expect("a token");
    assert_eq!(token.len(), 32, "{}", served.link);
    let mut browser = Browser::start(&place);
    browser.go(&format!("{page}#token=wrong"));
    wait_for(&mut browser, &says("wrong"));
    browser.go("about:blank");
    browser.go(page);
    wait_for(&mut browser, &says("no token"));
    // The sender's token opens nothing here.
    browser.go("about:blank");
    browser.go(&format!("{page}#token=open"));
    wait_for(&mut browser, &says("wrong"));
    browser.go("about:blank");
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting for a sender"));
    // The place is taken: a second viewer learns why it is closed.
    let watch = page.replacen("http", "https", 1) + "watch?token=" + token;
    let code = browser.value(&format!(
        "(async () => {{
            const {{ certificate_sha256: hash }} = await (await fetch('config.json')).json();
            const value = Uint8Array.from(atob(hash), one => one.charCodeAt(0));
            const serverCertificateHashes = [{{ algorithm: 'sha-256', value }}];
            const session = new WebTransport({}, {{ serverCertificateHashes }});
            await session.ready;
            return (await session.closed).closeCode;
        }})()",
        json!(watch)
    ));
    assert_eq!(code, json!(2));
    // On a phone, too, nothing is wider than the screen.
    browser.appear(390, 844, "light");
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(390), "{wide}");
}

#[test]
fn what_the_page_cannot_be_served_with_is_an_error_that_names_the_option() {
    let place = Place::new("browser-options", PATH);
    let receive = |more: &[&str]| {
        place.run(&[&["receive", "--listen", "127.0.0.1:0", "--token", "open"][..], more].concat())
    };
    let at = ["--serve", "127.0.0.1:0"];
    receive(&[]).fails(2, &["--to"]);
    receive(&["--serve", "127.0.0.1:0", "--to", "film.ts"]).fails(2, &["--serve", "--to"]);
    receive(&["--serve", ":port"]).fails(2, &["--serve", ":8443"]);
    receive(&["--to", "film.ts", "--viewers", "7"]).fails(2, &["--serve"]);
    receive(&[&at[..], &["--viewers", "0"]].concat()).fails(2, &["--viewers"]);
    receive(&[&at[..], &["--allow-origin", "example.org"]].concat())
        .fails(2, &["--allow-origin", "https://example.org"]);
    receive(&[&at[..], &["--certificate", "s.toml"]].concat()).fails(2, &["--key"]);
    let certificate = ["--certificate", "s.toml", "--key", "s.toml"];
    receive(&[&at[..], &certificate].concat()).fails(2, &["--certificate s.toml", "PEM"]);
    let relay = |more: &[&str]| {
        place.run(&[&["relay", "--listen", "127.0.0.1:0", "--token", "open"][..], more].concat())
    };
    relay(&["--serve-stream", "stage"]).fails(2, &["--serve"]);
    relay(&["--serve", ":port"]).fails(2, &["--serve", ":8443"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    receive(&["--serve", &taken]).fails(3, &["--serve", &taken, "in use"]);
}

/// Whether a page of `localhost` can watch the stream that `127.0.0.1` serves.
fn can_watch(browser: &mut Browser, port: u16, token: &str) -> Value {
    browser.go(&format!("http://localhost:{port}/"));
    browser.value(&format!(
        "(async () => {{
            const {{ certificate_sha256: hash }} = await (await fetch('config.json')).json();
            const value = Uint8Array.from(atob(hash), one => one.charCodeAt(0));
            const serverCertificateHashes = [{{ algorithm: 'sha-256', value }}];
            const url = 'https://127.0.0.1:{port}/watch?token={token}';
            const session = new WebTransport(url, {{ serverCertificateHashes }});
            session.closed.catch(() => null);
            try {{
                await session.ready;
            }} catch {{
                return false;
            }}
            session.close();
            return true;
        }})()"
    ))
}

#[test]
fn pages_of_other_origins_are_refused_unless_they_are_allowed() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let place = Place::new("browser-origin", PATH);
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let mut browser = Browser::start(&place);
    for allowed in [false, true] {
        let origin = format!("http://localhost:{port}");
        let more: &[&str] = if allowed { &["--allow-origin", &origin] } else { &[] };
        let served = Served::start(&place, "127.0.0.1:0", &at, more);
        let token = served.link.split_once('=').expect("a token").1;
        assert_eq!(can_watch(&mut browser, port, token), json!(allowed));
        assert!(served.program.said_until_interrupted().is_empty());
    }
}

#[test]
fn a_page_finds_its_way_back_to_a_receiver_that_was_killed_and_shows_the_stream_again() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-back", PATH);
    if film(&place, Coded::H264AndAac).is_none() {
        return;
    }
    let (listen, serve) =
        (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let more = ["--viewers-token-file", "viewers"];
    let served = Served::start(&place, &listen, &serve, &more);
    let mut browser = Browser::start(&place);
    browser.go(&served.link);
    let port = free_port();
    let _sender = send(&place, &listen, port, &["--latency", "120 ms"]);
    let _film = play(&place, port);
    wait_for(&mut browser, "ontempo.pictures.figures.painted > 20");
    // Killed without a word.
    drop(served);
    // Nothing is kept by which what the next one sends first would be thrown away.
    wait_for(&mut browser, "ontempo.clock.timeline === null");
    let _served = Served::start(&place, &listen, &serve, &more);
    let before = browser.value("ontempo.pictures.figures.painted").as_u64().expect("a number");
    wait_for(&mut browser, &format!("ontempo.pictures.figures.painted > {before} + 20"));
    wait_for(&mut browser, "document.getElementById('message').textContent === ''");
}
