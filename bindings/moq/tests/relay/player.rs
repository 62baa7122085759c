//! The player of moq-dev for the web, as it is in npm's registry, in headless Chromium: the other side of what
//! `ontempo publish` gives to the relay.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ontempo_testing::{record_skip, require_programs};
use serde_json::Value;

use crate::browser::Browser;
use crate::common::{Killed, Place, Running, event, free_port, started};

/// Pictures of the film: 8 s.
const PICTURES: u64 = 200;

/// Installs the packages of the lock file, once for all runs, and makes one script of them; `None`, and reported, where the
/// registry cannot be reached.
fn player() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moq-player");
    std::fs::create_dir_all(&place).expect("a folder");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relay/player");
    let lock = std::fs::read(from.join("package-lock.json")).expect("the lock file");
    let installed = place.join("installed-lock.json");
    let is_installed = std::fs::read(&installed).is_ok_and(|before| before == lock);
    for name in ["package.json", "package-lock.json", "page.js", "index.html"] {
        std::fs::copy(from.join(name), place.join(name)).expect("copied");
    }
    if !is_installed {
        // What a package would run at its installation is not needed.
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]);
        let done = npm.current_dir(&place).stdin(Stdio::null()).output().expect("npm");
        if !done.status.success() {
            record_skip("npm cannot install the player of moq-dev from its registry");
            return None;
        }
        std::fs::write(&installed, lock).expect("written");
    }
    let mut bundle = Command::new(place.join("node_modules/.bin/esbuild"));
    let options = "page.js --bundle --format=esm --log-level=error --outfile=player.js";
    bundle.args(options.split_whitespace()).current_dir(&place);
    assert!(bundle.status().expect("esbuild").success(), "it makes one script");
    Some(place)
}

/// Serves the page and its script; its port.
fn serve(place: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A browser that goes away is no error.
            let _ = answer(&stream, &place);
        }
    });
    port
}

fn answer(mut stream: &TcpStream, place: &Path) -> std::io::Result<()> {
    let mut request = String::new();
    BufReader::new(stream).read_line(&mut request)?;
    let (name, kind) = match request.split_whitespace().nth(1) {
        Some("/player.js") => ("player.js", "text/javascript"),
        Some("/") => ("index.html", "text/html"),
        // Its icon.
        _ => return stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
    };
    let body = std::fs::read(place.join(name))?;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

/// ffmpeg that sends a film, as if live, to a port: each picture has its number painted into it.
fn film(port: u16) -> Killed {
    let mut filter = "drawbox=x=0:y=148:w=320:h=32:color=black:t=fill".to_owned();
    for field in 0..10 {
        let (left, unit) = (field * 32, 1 << field);
        filter += &format!(
            ",drawbox=x={left}:y=148:w=32:h=32:color=white:t=fill:enable='mod(floor(n/{unit}),2)'"
        );
    }
    let sources = "-loglevel error -re -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i \
                   sine=frequency=440:sample_rate=48000 -t 8 -vf";
    let coding = format!(
        "-c:v libx264 -preset ultrafast -tune zerolatency -g 25 -pix_fmt yuv420p -c:a aac -pes_payload_size 0 \
         -f mpegts udp://127.0.0.1:{port}?pkt_size=1316"
    );
    let mut command = Command::new("ffmpeg");
    command.args(sources.split_whitespace()).arg(filter).args(coding.split_whitespace());
    Killed(command.stdin(Stdio::null()).spawn().expect("ffmpeg"))
}

/// Looks until an expression on the page is true.
fn wait_for(browser: &mut Browser, expression: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while browser.value(expression) != Value::Bool(true) {
        assert!(Instant::now() < end, "{expression}: {}", browser.value("figures(0)"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_web_player_of_the_relay_paints_what_is_published() {
    if !require_programs(&["chromium", "ffmpeg", "npm"]) {
        return;
    }
    let Some(player) = player() else { return };
    let (relay, place) = (Running::start(), Place::new("player"));
    let from = free_port();
    let source = format!("udp://127.0.0.1:{from}");
    let url = relay.url("film.hang");
    let mut publisher = started(&["publish", &url, "--from", &source, "--insecure", "--json"]);
    let mut published = publisher.events();
    event(&mut published, "publishing");
    let mut browser = Browser::start(&place);
    browser.go(&format!("http://127.0.0.1:{}/", serve(player)));
    browser.value(&format!("watch('{}', 'film.hang')", relay.web()));
    wait_for(&mut browser, "figures(0).status === 'connected'");
    let mut film = film(from);
    assert!(film.0.wait().expect("ffmpeg").success());
    // What was sent last comes within the player's latency of 3 s.
    std::thread::sleep(Duration::from_secs(5));
    let figures = browser.value(&format!("figures({PICTURES})"));
    assert_eq!(browser.errors(), [""; 0], "{figures:#}");
    let painted = figures["painted"].as_u64().expect("a number");
    println!(
        "of {PICTURES} pictures {} came to the web player's decoder, {} out of it, {painted} were painted; not \
         painted: {}",
        figures["given"], figures["decoded"], figures["missing"]
    );
    assert!(painted * 100 >= PICTURES * 95, "{figures:#}");
    assert!(figures["sound_bytes"].as_u64() > Some(0), "{figures:#}");
}
