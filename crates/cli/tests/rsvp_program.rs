//! `ontempo rsvpd` and `ontempo rsvp status` as programs: log, service manager, terminal, a daemon that restarts. Needs
//! root; skipped tests are reported.

mod common;
mod reserved;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use common::{Killed, Place, Ran, Terminal, check_ends_with_its_reader, interrupt, wait_until};
use ontempo_reservation::local::Client;
use ontempo_testing::require_programs;
use reserved::{Network, can_reserve, run};

#[test]
fn at_a_terminal_status_is_shown_in_place_again_and_again_until_ctrl_c() {
    if !can_reserve() || !require_programs(&["script"]) {
        return;
    }
    let mut network = Network::new("watched", false);
    network.configure("r1", "");
    network.start("r1");
    let line = format!("exec {} rsvp status --watch 100ms", env!("CARGO_BIN_EXE_ontempo"));
    let mut terminal = Terminal::start(&line, |script| {
        script.env("ONTEMPO_RSVP_SOCKET", network.socket("r1"));
    });
    terminal.wait_until(|shown| shown.matches("reservable").count() >= 3);
    // Each clears the screen: ESC [ 2 J or ESC [ J after going home.
    let cleared = terminal.shown().matches("\u{1b}[").count();
    assert!(cleared >= 3, "not in place: {:?}", terminal.shown());
    // Ctrl-C.
    terminal.end_by(b"\x03");
    // Into a pipe, it ends with its reader.
    check_ends_with_its_reader(network.ontempo("r1", &["rsvp", "status", "--watch", "100ms"]));
    network.end();
}

#[test]
fn a_status_that_is_watched_goes_on_when_the_daemon_is_back() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::new("returns", false);
    network.configure("r1", "");
    network.start("r1");
    let [out, err] = ["watched", "said"].map(|name| network.place.path(name));
    let watching = network
        .ontempo("r1", &["rsvp", "status", "--watch", "100ms"])
        .stdout(File::create(&out).expect("a file"))
        .stderr(File::create(&err).expect("a file"))
        .spawn()
        .expect("it starts");
    let mut watching = Killed(watching);
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let shown = || text(&out).matches("reservable").count();
    wait_until("a status", || shown() > 0);
    network.signal("r1", "-USR1");
    wait_until("a word", || text(&err).contains("does not answer"));
    let before = shown();
    network.start("r1");
    wait_until("the next statuses", || shown() > before + 1);
    interrupt(&watching.0);
    assert!(watching.0.wait().expect("it ends").success());
    assert_eq!(text(&err).lines().count(), 1, "{}", text(&err));
    network.end();
}

#[test]
fn a_daemon_whose_log_nobody_reads_goes_on() {
    if !can_reserve() {
        return;
    }
    let network = Network::new("unread", false);
    network.configure("r1", "");
    let mut daemon = network.daemon("r1");
    daemon.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = Killed(daemon.spawn().expect("it starts"));
    wait_until("a daemon", || Client::connect(network.socket("r1").as_ref()).is_ok());
    let process = network.status("r1").process.to_string();
    // Each time some kilobytes; a pipe holds 64.
    network.rewrite("r1", |text| format!("{text}\n{} = 1\n", "x".repeat(2_000)));
    for _ in 0..60 {
        run("kill", &["-HUP", &process]);
        // Answered within 10 s.
        network.status("r1");
    }
    let mut err = daemon.0.stderr.take().expect("its log");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).expect("text");
        text
    });
    network.rewrite("r1", |text| text.replace("x = 1", "x"));
    run("kill", &["-HUP", &process]);
    network.status("r1");
    run("kill", &["-TERM", &process]);
    assert!(daemon.0.wait().expect("it ends").success());
    let text = reading.join().expect("text");
    assert!(text.contains(" lines are missing, which nobody read in time"), "{text}");
}

#[test]
fn what_a_test_that_fails_has_started_ends_with_its_folder() {
    let (started, child) = std::sync::mpsc::channel();
    let failed = std::thread::spawn(move || {
        let place = Place::new("started", "");
        let words = ["gateway", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--over", "tcp"];
        started.send(place.spawn(&words)).expect("it is waited for");
        panic!("as a test does that fails");
    });
    let mut child = Killed(child.recv().expect("it is started"));
    assert!(failed.join().is_err());
    let ended = child.0.try_wait().expect("a process");
    // A signal takes a moment.
    let ended = ended.or_else(|| {
        std::thread::sleep(Duration::from_secs(5));
        child.0.try_wait().expect("a process")
    });
    assert!(ended.is_some_and(|status| !status.success()), "it outlives its test");
}

#[test]
fn an_empty_path_of_the_socket_is_none() {
    let place = Place::new("nosocket", "");
    let mut status = place.command(&["rsvp", "status"]);
    let ran = Ran::of(status.env("ONTEMPO_RSVP_SOCKET", "").output().expect("it starts"));
    // A daemon may run on this host.
    if ran.code != Some(0) {
        ran.fails(3, &["/run/ontempo-rsvp.sock: "]);
    }
}

#[test]
fn the_service_manager_is_told_and_journald_gets_levels() {
    if !can_reserve() {
        return;
    }
    let network = Network::new("managed", false);
    network.configure("r1", "");
    let manager = UnixDatagram::bind(network.place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let told = || {
        let mut state = [0; 256];
        let length = manager.recv(&mut state).expect("a state");
        String::from_utf8_lossy(&state[..length]).into_owned()
    };
    let log = network.place.path("managed.log");
    let daemon = network
        .daemon("r1")
        .env("NOTIFY_SOCKET", network.place.path("notify"))
        .env("JOURNAL_STREAM", "8:1")
        .stdin(Stdio::null())
        .stderr(File::create(&log).expect("a log"))
        .spawn()
        .expect("it starts");
    let mut daemon = Killed(daemon);
    assert_eq!(told(), "READY=1");
    assert!(Client::connect(network.socket("r1").as_ref()).is_ok(), "it is ready when it says so");
    run("kill", &["-HUP", &daemon.0.id().to_string()]);
    assert_eq!([told(), told()], ["RELOADING=1", "READY=1"]);
    // An error of the file has several lines, each with its level.
    let right = fs::read_to_string(network.place.path("r1.toml")).expect("a configuration");
    network.rewrite("r1", |text| format!("{text}\n[interfaces.none]\nwrong = 1\n"));
    run("kill", &["-HUP", &daemon.0.id().to_string()]);
    assert_eq!([told(), told()], ["RELOADING=1", "READY=1"]);
    network.rewrite("r1", |_| right);
    let watching = network
        .ontempo("r1", &["rsvp", "status", "--json", "--watch", "100ms"])
        .stdout(File::create(network.place.path("watched")).expect("a file"))
        .spawn()
        .expect("it starts");
    let mut watching = Killed(watching);
    let watched = || fs::read_to_string(network.place.path("watched")).unwrap_or_default();
    wait_until("three statuses", || watched().matches("\"census\"").count() >= 3);
    run("kill", &["-TERM", &watching.0.id().to_string()]);
    watching.0.wait().expect("it ends");
    run("kill", &["-TERM", &daemon.0.id().to_string()]);
    assert!(daemon.0.wait().expect("it ends").success());
    assert_eq!(told(), "STOPPING=1");
    let log = fs::read_to_string(log).expect("a log");
    assert!(
        log.contains("<5>ready, process")
            && log.contains("<3>interfaces.none.wrong: unknown field `wrong`")
            && log.lines().all(|line| line.starts_with('<')),
        "{log}"
    );
    let checked = network.place.run(&["rsvpd", "--check", "r1.toml"]);
    for word in ["l1: 1.5 Mbit/s, of which 1.35 Mbit/s", "refresh 500 ms", "the network is trusted"]
    {
        assert!(checked.succeeds().out.contains(word), "{word}: {}", checked.out);
    }
}
