//! `ontempo gateway` where descriptors run out, and whom it admits.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStdout, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;

use common::{Killed, Place};
use serde_json::Value;

/// A gateway with at most `files` open files, and its address.
struct Gateway {
    child: Killed,
    local: String,
    _out: BufReader<ChildStdout>,
}

impl Gateway {
    fn start(place: &Place, files: u32, to: &[&str]) -> Self {
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ontempo"), "gateway", "--json"]);
        command.args(["--listen", "127.0.0.1:0"]).args(to).current_dir(&place.0);
        command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock")).stdout(Stdio::piped());
        let mut child = Killed(command.spawn().expect("the program starts"));
        let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).expect("JSON");
        let local = printed["local"].as_str().expect("an address").to_owned();
        Self { child, local, _out: out }
    }
}

/// A server that returns what it receives; its address.
fn echo() -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    spawn(move || {
        for mut one in server.incoming().flatten() {
            spawn(move || {
                let mut room = [0; 4_096];
                while let Ok(got @ 1..) = one.read(&mut room) {
                    if one.write_all(&room[..got]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Whether a new client gets back what it sends, tried for ten seconds.
fn is_served(at: &str) -> bool {
    (0..100).any(|_| {
        let tried = TcpStream::connect(at).and_then(|mut client| {
            client.set_read_timeout(Some(Duration::from_secs(6)))?;
            client.write_all(b"anybody?")?;
            let mut back = [0; 8];
            client.read_exact(&mut back).map(|()| back)
        });
        let is_back = tried.is_ok_and(|back| &back == b"anybody?");
        if !is_back {
            sleep(Duration::from_millis(100));
        }
        is_back
    })
}

#[test]
fn silent_strangers_that_take_all_descriptors_neither_end_a_gateway_nor_block_it() {
    let place = Place::new("gateway-strangers", "");
    let mut near_server = Gateway::start(&place, 64, &["--server", &echo()]);
    let near_client = Gateway::start(&place, 1_024, &["--to", &near_server.local]);
    let connect = |_| TcpStream::connect(&near_server.local).expect("connected");
    let strangers: Vec<TcpStream> = (0..120).map(connect).collect();
    sleep(Duration::from_millis(500));
    let ended = near_server.child.0.try_wait().expect("a status");
    assert!(ended.is_none(), "it ended: {ended:?}");
    assert!(is_served(&near_client.local), "a client is not served beside 120 strangers");
    drop(strangers);
}

#[test]
fn clients_that_take_all_descriptors_do_not_end_a_gateway() {
    let place = Place::new("gateway-clients", "");
    let near_server = Gateway::start(&place, 1_024, &["--server", &echo()]);
    let mut near_client = Gateway::start(&place, 64, &["--to", &near_server.local]);
    let connect = |_| TcpStream::connect(&near_client.local).expect("connected");
    let clients: Vec<TcpStream> = (0..100).map(connect).collect();
    sleep(Duration::from_secs(1));
    let ended = near_client.child.0.try_wait().expect("a status");
    assert!(ended.is_none(), "it ended: {ended:?}");
    drop(clients);
    assert!(is_served(&near_client.local), "no client is served after the others have left");
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_for_as_many_connections_as_a_gateway_takes() {
    let place = Place::new("gateway-many", "");
    let mut near_server = Gateway::start(&place, 8_192, &["--server", &echo()]);
    // The usual soft limit, below a hard limit that suffices.
    let script = "ulimit -Sn 256; ulimit -Hn 8192; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_ontempo"), "gateway", "--json"]);
    command.args(["--listen", "127.0.0.1:0", "--to", &near_server.local]).current_dir(&place.0);
    command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock")).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().expect("the program starts"));
    let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let printed: Value = serde_json::from_str(&line).expect("JSON");
    spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let local = printed["local"].as_str().expect("an address");
    let room = vec![7; 100_000];
    let clients: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut client = TcpStream::connect(local).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
            client.write_all(b"anybody?").expect("written");
            let mut back = [0; 8];
            client.read_exact(&mut back).expect("served");
            // What comes back is not read: all buffers on the way are full.
            client.set_write_timeout(Some(Duration::from_millis(20))).expect("set");
            while client.write_all(&room).is_ok() {}
            client
        })
        .collect();
    for gateway in [&mut child, &mut near_server.child] {
        assert!(gateway.0.try_wait().expect("a status").is_none());
        let held = common::peak_memory(gateway.0.id());
        assert!(held < 300 << 20, "{held} bytes held for {} clients", clients.len());
    }
}

#[test]
fn at_an_address_that_others_reach_a_gateway_is_told_that_anyone_may_connect() {
    let place = Place::new("gateway-anyone", "");
    for to in [["--to", "127.0.0.1:1"], ["--server", "127.0.0.1:1"]] {
        let words = [&["gateway", "--listen", "0.0.0.0:0"], &to[..]].concat();
        place.run(&words).fails(2, &["--listen 0.0.0.0:0", "without a token", "--anyone"]);
    }
    let words = ["gateway", "--listen", "0.0.0.0:0", "--server", "127.0.0.1:1", "--anyone"];
    let listening = common::ListeningProgram::start(&place, &words);
    assert!(listening.local.starts_with("0.0.0.0:"));
}
