//! `ontempo gateway`: streams over QUIC, whom it admits, and where descriptors run out.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use common::{Killed, Place};
use ontempo_qos::wire::{Offer, Setup};
use ontempo_testing::{require_programs, require_root};
use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;

/// Held by the tests that make hundreds of handshakes: each has 5 s, on the processors of one machine.
static HANDSHAKES: Mutex<()> = Mutex::new(());

fn many_handshakes() -> MutexGuard<'static, ()> {
    HANDSHAKES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A gateway with at most `files` open files, its address, and over QUIC its URL.
struct Gateway {
    child: Killed,
    local: String,
    url: String,
    out: Option<BufReader<ChildStdout>>,
}

impl Gateway {
    fn start(place: &Place, files: u32, to: &[&str]) -> Self {
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ontempo"), "gateway", "--json"]);
        command.args(["--listen", "127.0.0.1:0"]).args(to).current_dir(&place.0);
        command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock")).env_remove("ONTEMPO_TOKEN");
        Self::of(command)
    }

    /// Ends it by Ctrl-C: what it has written on standard output and standard error.
    fn end(mut self) -> [String; 2] {
        common::interrupt(&self.child.0);
        let (mut out, mut err) = (String::new(), String::new());
        self.out.take().expect("its output").read_to_string(&mut out).expect("text");
        let errors = self.child.0.stderr.as_mut().expect("its errors");
        errors.read_to_string(&mut err).expect("text");
        assert_eq!(self.child.0.wait().expect("it ends").code(), Some(0), "{err}");
        [out, err]
    }

    /// The gateway that this command starts.
    fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn().expect("the program starts"));
        let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).expect("JSON");
        let local = printed["local"].as_str().expect("an address").to_owned();
        let url = printed["url"].as_str().unwrap_or_default().to_owned();
        Self { child, local, url, out: Some(out) }
    }
}

/// A server that returns what it receives; its address.
fn echo() -> String {
    echo_at(TcpListener::bind("127.0.0.1:0").expect("a port"))
}

/// The same at a socket.
fn echo_at(server: TcpListener) -> String {
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

/// Connects from `from`, an address of this host.
fn connect_from(from: [u8; 4], to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().expect("an address");
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// Whether a new client gets back what it sends, tried for ten seconds.
fn is_served(at: &str) -> bool {
    (0..100).any(|_| is_served_from([127, 0, 0, 1], at))
}

/// Whether a new client at `from` gets back what it sends; if not, a tenth of a second passes.
fn is_served_from(from: [u8; 4], at: &str) -> bool {
    {
        let tried = connect_from(from, at).and_then(|mut client| {
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
    }
}

#[test]
fn idle_clients_of_one_host_that_take_all_places_do_not_keep_another_host_out() {
    let place = Place::new("gateway-shares", "");
    let near_server = Gateway::start(&place, 1_024, &["--over", "tcp", "--server", &echo()]);
    // Ten places.
    let near_client = Gateway::start(&place, 44, &["--over", "tcp", "--to", &near_server.local]);
    let take = |_| {
        let mut client = TcpStream::connect(&near_client.local).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(6))).expect("set");
        client.write_all(b"anybody?").expect("written");
        let mut back = [0; 8];
        client.read_exact(&mut back).expect("served");
        client
    };
    let clients: Vec<TcpStream> = (0..10).map(take).collect();
    assert!(!is_served_from([127, 0, 0, 1], &near_client.local), "a place beyond the limit");
    assert!(is_served_from([127, 0, 0, 2], &near_client.local), "another host is kept out");
    // It took one place of the host that has the largest number of them.
    let is_open = |mut client: &TcpStream| {
        client.write_all(b"x").is_ok() && client.read_exact(&mut [0]).is_ok()
    };
    assert_eq!(clients.iter().filter(|client| is_open(client)).count(), 9);
}

#[test]
fn silent_strangers_that_take_all_descriptors_neither_end_a_gateway_nor_block_it() {
    let place = Place::new("gateway-strangers", "");
    let mut near_server = Gateway::start(&place, 64, &["--over", "tcp", "--server", &echo()]);
    let near_client = Gateway::start(&place, 1_024, &["--over", "tcp", "--to", &near_server.local]);
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
    let near_server = Gateway::start(&place, 1_024, &["--over", "tcp", "--server", &echo()]);
    let mut near_client =
        Gateway::start(&place, 64, &["--over", "tcp", "--to", &near_server.local]);
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
    let mut near_server = Gateway::start(&place, 1_024, &["--over", "tcp", "--server", &echo()]);
    // The usual soft limit, below a hard limit that suffices.
    let script = "ulimit -Sn 256; ulimit -Hn 1024; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_ontempo"), "gateway", "--json"]);
    command.args(["--listen", "127.0.0.1:0", "--over", "tcp", "--to", &near_server.local]);
    command.current_dir(&place.0);
    command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock")).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().expect("the program starts"));
    let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let printed: Value = serde_json::from_str(&line).expect("JSON");
    spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let local = printed["local"].as_str().expect("an address");
    let room = vec![7; 100_000];
    let clients: Vec<TcpStream> = (0..500)
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
    let insecure = ["--to", "127.0.0.1:1", "--insecure"];
    let to = ["--over", "tcp", "--to", "127.0.0.1:1"];
    for to in [&insecure[..], &to, &["--over", "tcp", "--server", "127.0.0.1:1"]] {
        let words = [&["gateway", "--listen", "0.0.0.0:0"], to].concat();
        place.run(&words).fails(2, &["--listen 0.0.0.0:0", "without a token", "--anyone"]);
    }
    let words = ["gateway", "--listen", "0.0.0.0:0", "--over", "tcp", "--server", "127.0.0.1:1"];
    let words = [&words[..], &["--anyone"]].concat();
    let listening = common::ListeningProgram::start(&place, &words);
    assert!(listening.local.starts_with("0.0.0.0:"));
}

/// Reads all that comes, in a thread: the text at the end.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    spawn(move || {
        let mut all = String::new();
        from.read_to_string(&mut all).map(|_| all).unwrap_or_default()
    })
}

#[test]
fn lines_about_connections_are_bounded_and_the_others_counted() {
    let place = Place::new("gateway-lines", "");
    let mut near_server = Gateway::start(&place, 4_096, &["--over", "tcp", "--server", &echo()]);
    let out = collect(near_server.out.take().expect("its output"));
    let begun = Instant::now();
    let hello = Setup::Hello { session: 1, cookie: [0; 16], sent: 1, offer: Offer::default() };
    let (hello, mut answer) = (hello.to_bytes(), [0; 8]);
    // Some are refused: so many that enough are not.
    for number in 0..4_000 {
        if number % 100 == 0 {
            // Those before have left.
            sleep(Duration::from_millis(50));
        }
        let mut client = TcpStream::connect(&near_server.local).expect("connected");
        client.write_all(&hello).expect("written");
        client.read_exact(&mut answer).expect("an answer");
    }
    sleep(Duration::from_secs(1));
    common::interrupt(&near_server.child.0);
    let all = out.join().expect("read");
    let seconds = begun.elapsed().as_secs_f64();
    let (lines, connections) = (all.lines().count() as f64, all.matches("\"remote\"").count());
    // Without the limit three for each: its begin, and the figures of both directions.
    assert!(connections > 1_000, "it says what it does: {connections} connections");
    assert!(lines <= 4_000.0 + 50.0 * seconds, "{lines} lines in {seconds} s");
    assert!(
        all.contains("lines not shown"),
        "{lines} lines of {connections} connections: {}",
        &all[all.len().saturating_sub(600)..]
    );
}

#[test]
fn a_gateway_that_gets_no_threads_loses_no_place() {
    if !require_root() || !require_programs(&["setpriv", "prlimit"]) {
        return;
    }
    let place = Place::new("gateway-threads", "");
    let program = place.copy_of_program();
    for path in [&place.0, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let server = echo();
    let near_server = Gateway::start(&place, 1_024, &["--over", "tcp", "--server", &server]);
    // Ten places, and threads for a few connections; the limit is that of a user without others.
    let mut command = Command::new("prlimit");
    command.args(["--nofile=44:44", "--nproc=12:1000", "setpriv", "--reuid=64003"]);
    command.args(["--regid=64003", "--clear-groups", "--"]);
    command.arg(&program).args(["gateway", "--json", "--listen", "127.0.0.1:0"]);
    command
        .args(["--over", "tcp", "--to", &near_server.local])
        .env("ONTEMPO_RSVP_SOCKET", "/nonexistent");
    let mut near_client = Gateway::of(command);
    let errors = collect(near_client.child.0.stderr.take().expect("its errors"));
    let _out = collect(near_client.out.take().expect("its output"));
    for _ in 0..6 {
        let connect = |_| TcpStream::connect(&near_client.local).expect("connected");
        let clients: Vec<TcpStream> = (0..12).map(connect).collect();
        sleep(Duration::from_millis(300));
        drop(clients);
    }
    let id = near_client.child.0.id().to_string();
    // That user may raise it again.
    let raised = Command::new("setpriv")
        .args(["--reuid=64003", "--regid=64003", "--clear-groups", "--"])
        .args(["prlimit", "--pid", &id, "--nproc=1000:1000"])
        .status();
    assert!(raised.is_ok_and(|raised| raised.success()), "prlimit");
    // The places of those that have left are free when their connections have ended.
    common::wait_until("ten clients at once", || {
        let serve = |_: usize| -> std::io::Result<TcpStream> {
            let mut client = TcpStream::connect(&near_client.local)?;
            client.set_read_timeout(Some(Duration::from_secs(5)))?;
            client.write_all(b"anybody?")?;
            client.read_exact(&mut [0; 8]).map(|()| client)
        };
        let clients: Vec<_> = (0..10).map_while(|number| serve(number).ok()).collect();
        clients.len() == 10
    });
    assert!(near_client.child.0.try_wait().expect("a status").is_none(), "it has ended");
    common::interrupt(&near_client.child.0);
    let errors = errors.join().expect("read");
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(errors.contains("Resource temporarily unavailable"), "no thread was refused: {errors}");
}

/// A server that reads each stream to its end and then sends it back; its address.
fn returning() -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    spawn(move || {
        for mut one in server.incoming().flatten() {
            spawn(move || {
                let mut all = Vec::new();
                if one.read_to_end(&mut all).is_ok() {
                    let _ = one.write_all(&all);
                }
            });
        }
    });
    address
}

/// Sends so many bytes through a gateway, ends the stream, and checks that all come back.
#[track_caller]
fn exchange(at: &str, bytes: u32) {
    let mut client = TcpStream::connect(at).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let sent: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
    client.write_all(&sent).expect("written");
    client.shutdown(Shutdown::Write).expect("ended");
    let mut back = Vec::new();
    client.read_to_end(&mut back).expect("it comes back");
    assert_eq!(back.len(), sent.len());
    assert!(back == sent, "it has changed");
}

#[test]
fn over_quic_the_printed_line_carries_whole_streams_both_ways() {
    let place = Place::new("gateway-quic", "");
    let server = returning();
    let near_server = Gateway::start(&place, 1_024, &["--server", &server]);
    let (head, token) = near_server.url.split_once('#').expect("a URL with a token");
    assert!(head.starts_with(&format!("ontempo://{}/", near_server.local)), "{head}");
    assert_eq!(token.len(), 32, "128 bits");
    let near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    // Half-closed meanwhile, and several at once.
    std::thread::scope(|scope| {
        for bytes in [0, 1, 70_000, 5_000_000] {
            let at = near_client.local.as_str();
            scope.spawn(move || exchange(at, bytes));
        }
    });
    for gateway in [near_client, near_server] {
        let [_, err] = gateway.end();
        assert_eq!(err, "");
    }
    // The text for people has the line to paste.
    let mut command = place.command(&["gateway", "--listen", "127.0.0.1:0", "--server", &server]);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert!(line().starts_with("listening at 127.0.0.1:"));
    let line = line();
    let pasted = line.strip_prefix("ontempo gateway --listen ... --to ").expect("a command");
    let near_client = Gateway::start(&place, 1_024, &["--to", pasted]);
    exchange(&near_client.local, 100_000);
}

#[test]
fn tokens_and_fingerprints_are_given_as_between_send_and_receive() {
    let place = Place::new("gateway-tokens", "");
    let server = returning();
    let identity = ["--server", &server, "--identity", "id.pem"];
    let with_file = [&identity[..], &["--token-file", "token"]].concat();
    let near_server = Gateway::start(&place, 1_024, &with_file);
    assert!(near_server.url.contains('#'), "it was made: {}", near_server.url);
    let fingerprint = near_server.url.rsplit(['/', '#']).nth(1).expect("one").to_owned();
    drop(near_server);
    let near_server = Gateway::start(&place, 1_024, &with_file);
    assert!(near_server.url.ends_with(&fingerprint), "given tokens are not shown");
    let known = ["--fingerprint", &fingerprint, "--token-file", "token"];
    let known = [&["--to", &near_server.local][..], &known].concat();
    let near_client = Gateway::start(&place, 1_024, &known);
    exchange(&near_client.local, 100_000);
    let to = ["gateway", "--listen", "127.0.0.1:0", "--to"];
    let run = |words: &[&str]| place.run(words);
    run(&[&to[..], &[&near_server.local]].concat()).fails(2, &["cannot be verified", "--insecure"]);
    run(&[&to[..], &[&near_server.url, "--over", "tcp"]].concat()).fails(2, &["over quic"]);
    let tcp = ["127.0.0.1:1", "--over", "tcp", "--token", "x"];
    run(&[&to[..], &tcp].concat()).fails(2, &["--over tcp", "over quic"]);
    let at = ["gateway", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:1"];
    run(&[&at[..], &["--over", "tcp", "--token", "x"]].concat()).fails(2, &["--over quic"]);
    run(&[&at[..], &["--anyone", "--token", "x"]].concat()).fails(2, &["--anyone", "--token"]);
    run(&[&at[..], &["--token", ""]].concat()).fails(2, &["--token", "--anyone"]);
}

#[test]
fn a_wrong_token_is_refused_and_both_gateways_say_so() {
    let place = Place::new("gateway-wrong", "");
    let near_server = Gateway::start(&place, 1_024, &["--server", &returning()]);
    let near_client = Gateway::start(&place, 1_024, &["--to", &format!("{}0", near_server.url)]);
    let mut client = TcpStream::connect(&near_client.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let _ = client.write_all(b"anybody?");
    let refused = client.read(&mut [0; 8]);
    assert!(!matches!(refused, Ok(1..)), "{refused:?}");
    let [out, err] = near_client.end();
    assert!(err.contains("the peer refused our token"), "{err}");
    let [at_server, err] = near_server.end();
    assert!(err.contains("127.0.0.1:") && err.contains("wrong token"), "{err}");
    assert!(!(out + &at_server).contains("\"remote\""), "nobody got in");
}

#[test]
fn without_anyone_no_gateway_gets_in_without_the_token() {
    let place = Place::new("gateway-nobody", "");
    let server = returning();
    for (more, is_open) in [(&[][..], false), (&["--anyone"], true)] {
        let at = [&["--server", &server][..], more].concat();
        let near_server = Gateway::start(&place, 1_024, &at);
        let url = near_server.url.split('#').next().expect("a URL");
        let near_client = Gateway::start(&place, 1_024, &["--to", url]);
        if is_open {
            exchange(&near_client.local, 1_000);
        } else {
            let mut client = TcpStream::connect(&near_client.local).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
            assert!(!matches!(client.read(&mut [0; 8]), Ok(1..)));
        }
        let [out, err] = near_server.end();
        assert_eq!(out.contains("\"remote\""), is_open, "{out}");
        assert_eq!(err.contains("wrong token"), !is_open, "{err}");
    }
    let words = ["gateway", "--listen", "127.0.0.1:0", "--server", &server, "--anyone"];
    let mut command = place.command(&words);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let lines: Vec<String> = lines.take(2).map(|line| line.expect("text")).collect();
    assert!(lines[1].contains("anyone who reaches this port may connect (--anyone)"), "{lines:?}");
}

#[test]
fn a_specification_that_permits_loss_loses_no_byte_of_a_stream() {
    let scenario = r#"duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "50 Mbit/s", delay = "1 ms", loss = { kind = "bernoulli", rate = 0.03 } }
reverse = { rate = "50 Mbit/s", delay = "1 ms", loss = { kind = "bernoulli", rate = 0.03 } }
access = { rate = "1 Gbit/s", delay = "0 s" }
[flows.one]
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;
    let place = Place::new("gateway-loss", scenario);
    fs::write(
        place.path("never.toml"),
        "max_rate = \"9000 messages/s\"\nsize = \"1000 bytes\"\nloss = \"60 %\"\npermutable = true\n",
    )
    .expect("a specification");
    fs::write(
        place.path("late.toml"),
        "max_rate = \"9000 messages/s\"\nsize = \"1000 bytes\"\nloss = \"60 %\"\n\
         max_delay = \"1 ms\"\npermutable = true\n",
    )
    .expect("a specification");
    for spec in ["never.toml", "late.toml"] {
        let near_server =
            Gateway::start(&place, 1_024, &["--server", &returning(), "--spec", spec]);
        let words = ["impair", "--listen", "127.0.0.1:0", "--scenario", "s.toml", "--to"];
        let words = [&words[..], &[&near_server.local]].concat();
        let relay = common::ListeningProgram::start(&place, &words);
        let url = near_server.url.replace(&near_server.local, &relay.local);
        let near_client = Gateway::start(&place, 1_024, &["--to", &url, "--spec", spec]);
        exchange(&near_client.local, 1_000_000);
        let [out, _] = near_client.end();
        assert!(out.contains("\"loss\":\"60 %\""), "it was agreed: {out}");
    }
}

#[test]
fn over_quic_a_stream_that_is_broken_off_does_not_seem_to_have_ended() {
    let place = Place::new("gateway-broken", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    let near_server = Gateway::start(&place, 1_024, &["--server", &address]);
    let near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    let mut client = TcpStream::connect(&near_client.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let (mut accepted, _) = server.accept().expect("a client");
    accepted.write_all(b"the first part").expect("written");
    client.read_exact(&mut [0; 14]).expect("it comes");
    near_server.end();
    let end = client.read(&mut [0; 1]);
    assert!(end.is_err(), "it seems to have ended: {end:?}");
}

#[test]
fn over_quic_as_many_clients_that_read_nothing_as_there_are_places_keep_within_the_memory() {
    let _alone = many_handshakes();
    let place = Place::new("gateway-full", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    // The system's buffers are filled before the gateways' own.
    let small = 16 << 10;
    rustix::net::sockopt::set_socket_send_buffer_size(&server, small).expect("set");
    rustix::net::sockopt::set_socket_recv_buffer_size(&server, small).expect("set");
    // The usual limit suffices for all places.
    let mut near_server = Gateway::start(&place, 1_024, &["--server", &echo_at(server)]);
    let mut near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    for gateway in [&mut near_server, &mut near_client] {
        let mut out = gateway.out.take().expect("its output");
        spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let mut errors = gateway.child.0.stderr.take().expect("its errors");
        spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    }
    let room = vec![7; 100_000];
    let connect = || -> std::io::Result<TcpStream> {
        let mut client = TcpStream::connect(&near_client.local)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&client, small)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&client, small)?;
        client.set_read_timeout(Some(Duration::from_secs(60)))?;
        client.write_all(b"anybody?")?;
        client.read_exact(&mut [0; 8])?;
        client.set_write_timeout(Some(Duration::from_millis(20)))?;
        // What comes back is not read: all buffers on the way are full.
        while client.write_all(&room).is_ok() {}
        Ok(client)
    };
    // Beside hundreds that are busy, the set-up of one may last too long: it comes again.
    let clients: Vec<TcpStream> =
        (0..512).map(|_| (0..10).find_map(|_| connect().ok()).expect("served")).collect();
    for gateway in [&mut near_client, &mut near_server] {
        assert!(gateway.child.0.try_wait().expect("a status").is_none());
        let held = common::peak_memory(gateway.child.0.id());
        assert!(held < 300_000_000, "{held} bytes held for {} clients", clients.len());
    }
    // None of them was closed for what others hold.
    for mut client in &clients {
        client.read_exact(&mut [0; 1_000]).expect("it is still open");
    }
}

#[test]
fn over_quic_idle_clients_of_one_host_that_take_all_places_do_not_keep_another_host_out() {
    let place = Place::new("gateway-quic-shares", "");
    let near_server = Gateway::start(&place, 1_024, &["--server", &echo()]);
    // Ten places.
    let near_client = Gateway::start(&place, 34, &["--to", &near_server.url]);
    let take = |_| {
        let mut client = TcpStream::connect(&near_client.local).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        client.write_all(b"anybody?").expect("written");
        client.read_exact(&mut [0; 8]).expect("served");
        client
    };
    let clients: Vec<TcpStream> = (0..10).map(take).collect();
    assert!(!is_served_from([127, 0, 0, 1], &near_client.local), "a place beyond the limit");
    assert!(is_served_from([127, 0, 0, 2], &near_client.local), "another host is kept out");
    drop(clients);
}

#[test]
fn over_quic_more_clients_at_once_than_a_host_has_places_for_are_all_served() {
    let _alone = many_handshakes();
    let place = Place::new("gateway-burst", "");
    let near_server = Gateway::start(&place, 4_096, &["--server", &returning()]);
    let near_client = Gateway::start(&place, 4_096, &["--to", &near_server.url]);
    let local = near_client.local.clone();
    // Nobody else reads what they say about so many connections.
    let said = [near_client, near_server].map(|mut gateway| {
        let out = collect(gateway.out.take().expect("its output"));
        let errors = collect(gateway.child.0.stderr.take().expect("its errors"));
        (gateway, out, errors)
    });
    // More than the half-open connections that one host has places for.
    for clients in [50, 100] {
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| exchange(&local, 10_000));
            }
        });
    }
    for (gateway, out, errors) in said {
        common::interrupt(&gateway.child.0);
        assert_eq!(errors.join().expect("read"), "");
        let out = out.join().expect("read");
        let begun = out.lines().filter(|line| line.contains("\"remote\"")).count();
        assert_eq!(begun, 150, "{out}");
    }
}

/// A way to a server on which everything is reset now and then, until `times` resets.
fn resetting(server: String, times: u32) -> (String, std::sync::Arc<Mutex<u32>>) {
    use rustix::net::sockopt::set_socket_linger;
    let way = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = way.local_addr().expect("an address").to_string();
    let made = std::sync::Arc::new(Mutex::new(0));
    let count = std::sync::Arc::clone(&made);
    spawn(move || {
        for (number, near) in (0_u32..).zip(way.incoming().flatten()) {
            *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            let Ok(far) = TcpStream::connect(&server) else { return };
            let clone = |one: &TcpStream| one.try_clone().expect("a descriptor");
            let both = [clone(&near), clone(&far)];
            for (mut from, mut to) in [(clone(&near), clone(&far)), (far, near)] {
                spawn(move || std::io::copy(&mut from, &mut to));
            }
            if number < times {
                spawn(move || {
                    sleep(Duration::from_millis(150));
                    for one in &both {
                        let _ = set_socket_linger(one, Some(Duration::ZERO));
                        // The threads that copy end, and RST is sent.
                        let _ = one.shutdown(Shutdown::Read);
                    }
                });
            }
        }
    });
    (address, made)
}

#[test]
fn over_tcp_programs_notice_nothing_of_a_connection_between_gateways_that_is_reset() {
    let place = Place::new("gateway-resets", "");
    fs::write(place.path("spec.toml"), "rec_time = \"20 s\"\n").expect("written");
    let spec = ["--spec", "spec.toml", "--direction", "both", "--over", "tcp"];
    let server = echo();
    let server = [&spec[..], &["--server", &server]].concat();
    let near_server = Gateway::start(&place, 1_024, &server);
    let (way, made) = resetting(near_server.local.clone(), 5);
    let near_client = Gateway::start(&place, 1_024, &[&spec[..], &["--to", &way]].concat());
    let mut client = TcpStream::connect(&near_client.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let begun = Instant::now();
    for number in 0..150_u32 {
        let sent: Vec<u8> = (0..5_000).map(|place| (place * 7 + number) as u8).collect();
        client.write_all(&sent).expect("written");
        let mut back = vec![0; sent.len()];
        client.read_exact(&mut back).expect("it comes back");
        assert!(back == sent, "piece {number} differs");
        sleep(Duration::from_millis(4));
    }
    let connections = *made.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(connections >= 4, "{connections} connections in {:?}", begun.elapsed());
    client.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(client.read(&mut [0; 10]).expect("an end"), 0);
    for gateway in [near_client, near_server] {
        let [out, _] = gateway.end();
        assert!(out.contains("connection-lost") && out.contains("connection-recovered"), "{out}");
    }
}
