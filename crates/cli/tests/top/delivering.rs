//! A host that delivers: a sender over two lossy paths to a receiver, and a sender by a relay to a viewer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Killed, Place, free_port};
use crate::lossy::Relay as Lossy;

/// Where the programs publish.
pub(crate) const REPORTS: &str = "reports";

/// All of it, ended with the test.
pub(crate) struct Delivering {
    pub(crate) place: Place,
    /// In the order in which they were started.
    pub(crate) programs: Vec<Killed>,
    encoders: Vec<Encoder>,
    _players: [UdpSocket; 2],
    _paths: [Lossy; 2],
}

/// Sends datagrams to a port of loopback, about 2 Mbit/s.
struct Encoder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Encoder {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            while !stopped.load(Ordering::Relaxed) {
                // Before the sender listens there is nobody.
                let _ = socket.send_to(&[7; 1_200], ("127.0.0.1", port));
                sleep(Duration::from_millis(5));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn start(place: &Place, words: &[&str]) -> Killed {
    let mut command = place.command(words);
    command.env("ONTEMPO_QOS_FOLDER", place.path(REPORTS));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Killed(command.spawn().expect("it starts"))
}

/// The first document of a program that listens. What follows is read and dropped.
fn listening(child: &mut Child) -> Value {
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    spawn(move || out.lines().map_while(Result::ok).for_each(drop));
    serde_json::from_str(&line).expect("JSON")
}

fn player() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("udp://{}", socket.local_addr().expect("an address"));
    (socket, to)
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().expect(field).to_owned()
}

impl Delivering {
    pub(crate) fn start(test: &str) -> Self {
        let place = Place::new(test, "");
        fs::create_dir(place.path(REPORTS)).expect("a folder");
        let [(first, to_first), (second, to_second)] = [player(), player()];
        let sources =
            [free_port(), free_port()].map(|port| (port, format!("udp://127.0.0.1:{port}")));

        let words = ["receive", "--listen", "127.0.0.1:0", "--token", "open", "--json", "--to"];
        let mut receiver = start(&place, &[&words[..], &[&to_first]].concat());
        let said = listening(&mut receiver.0);
        let address: SocketAddr = text(&said, "local").parse().expect("an address");
        let paths = [(0.03, 5), (0.03, 15)]
            .map(|(share, millis)| Lossy::start(address, share, Duration::from_millis(millis)));
        let [to, other] = [0, 1].map(|path: usize| paths[path].address.to_string());
        let fingerprint = text(&said, "fingerprint");
        let words = ["send", "--from", &sources[0].1, "--to", &to, "--to", &other];
        let more = ["--paths", "balance", "--token", "open", "--fingerprint", &fingerprint];
        let sender =
            start(&place, &[&words[..], &more, &["--latency", "600 ms", "--json"]].concat());

        let mut relay = start(&place, &["relay", "--listen", "127.0.0.1:0", "--json"]);
        let said = listening(&mut relay.0);
        let (url, viewers_url) = (text(&said, "url"), text(&said, "viewers_url"));
        let words = ["send", "--from", &sources[1].1, "--to", &url, "--stream", "news"];
        let source = start(&place, &words);
        let words = ["receive", "--from", &viewers_url, "--to", &to_second, "--stream", "news"];
        let viewer = start(&place, &words);
        // Nobody reads what the sender says.
        let mut programs = vec![receiver, sender, relay, source, viewer];
        for program in &mut programs {
            if let Some(mut out) = program.0.stdout.take() {
                spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
            }
        }
        let encoders = sources.iter().map(|(port, _)| Encoder::start(*port)).collect();
        Self { place, programs, encoders, _players: [first, second], _paths: paths }
    }

    /// What `ontempo top --json --once` shows.
    pub(crate) fn top(&self) -> Value {
        let ran = self.place.run(&["top", "--json", "--once", "--folder", REPORTS]);
        ran.succeeds().json()
    }

    /// Ends the encoders, so that nothing flows.
    pub(crate) fn fall_silent(&mut self) {
        self.encoders.clear();
    }
}
