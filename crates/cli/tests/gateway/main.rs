//! `ontempo gateway`: where places, descriptors, threads and lines run out; the streams it carries.

#[path = "../common/mod.rs"]
mod common;
mod streams;

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStdout, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{JoinHandle, panicking, sleep, spawn};
use std::time::{Duration, Instant};

use common::{Killed, ListeningProgram, Place};
use ontempo_qos::wire::{Offer, Setup};
use ontempo_testing::{record_skip, require_programs, require_root};
use rustix::net::{AddressFamily, SocketType};

/// Each handshake has 5 s, on the processors of one machine: a test that makes hundreds of them runs
/// beside none that makes any.
static HANDSHAKES: RwLock<()> = RwLock::new(());

fn many_handshakes() -> RwLockWriteGuard<'static, ()> {
    HANDSHAKES.write().unwrap_or_else(PoisonError::into_inner)
}

fn few_handshakes() -> RwLockReadGuard<'static, ()> {
    HANDSHAKES.read().unwrap_or_else(PoisonError::into_inner)
}

/// A gateway with at most `files` open files, its address, and over QUIC its URL. If the test fails, what
/// it wrote on standard error is shown.
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
    fn of(command: Command) -> Self {
        let (ListeningProgram { child, out, local }, printed) = ListeningProgram::of(command);
        let url = printed["url"].as_str().unwrap_or_default().to_owned();
        Self { child, local, url, out: Some(out) }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.0.kill();
        if let Some(errors) = self.child.0.stderr.as_mut().filter(|_| panicking()) {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            eprintln!("the gateway at {} wrote: {text}", self.local);
        }
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
    let _beside = few_handshakes();
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
    let _beside = few_handshakes();
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
    let _beside = few_handshakes();
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

/// Whether the test runs where TCP's buffers hold at most 16 KiB. Elsewhere it is run there, as root:
/// hundreds of connections with full buffers take all memory that the kernel has for TCP, and it
/// would reset connections of other tests.
fn has_small_tcp_buffers(test: &str) -> bool {
    const MARK: &str = "ONTEMPO_TEST_SMALL_TCP_BUFFERS";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    if !require_root() || !require_programs(&["unshare", "ip", "sysctl"]) {
        return false;
    }
    let made = Command::new("unshare").args(["--net", "--", "true"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        record_skip("this machine has no namespaces of networks for root");
        return false;
    }
    let script = "ip link set lo up
        sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384' net.ipv4.tcp_wmem='4096 16384 16384'
        exec \"$0\" --exact \"$1\" --nocapture";
    let program = std::env::current_exe().expect("its path");
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-ec", script]).arg(program).arg(test).env(MARK, "1");
    let ran = common::Ran::of(command.output().expect("unshare starts"));
    ran.succeeds();
    assert!(ran.out.contains("1 passed"), "{}", ran.out);
    false
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_for_as_many_connections_as_a_gateway_takes() {
    const TEST: &str =
        "the_soft_limit_of_descriptors_is_raised_for_as_many_connections_as_a_gateway_takes";
    if !has_small_tcp_buffers(TEST) {
        return;
    }
    let _alone = many_handshakes();
    let place = Place::new("gateway-many", "");
    let mut near_server = Gateway::start(&place, 1_024, &["--over", "tcp", "--server", &echo()]);
    // The usual soft limit, below a hard limit that suffices.
    let script = "ulimit -Sn 256; ulimit -Hn 1024; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_ontempo"), "gateway", "--json"]);
    command.args(["--listen", "127.0.0.1:0", "--over", "tcp", "--to", &near_server.local]);
    command.current_dir(&place.0);
    command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock"));
    let mut near_client = Gateway::of(command);
    let mut out = near_client.out.take().expect("its output");
    spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let room = vec![7; 100_000];
    let clients: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut client = TcpStream::connect(&near_client.local).expect("connected");
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
    for gateway in [&mut near_client.child, &mut near_server.child] {
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
    let listening = ListeningProgram::start(&place, &words);
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
    let _alone = many_handshakes();
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
    let _beside = few_handshakes();
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
