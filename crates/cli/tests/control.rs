//! Emulations that are changed while they run, with real packets. Need the rights of root; skipped
//! tests are reported.

mod common;
mod emulated;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use common::{Place, Ran, interrupt, peak_memory, wait_until};
use emulated::{assert_carried, can_emulate, counts, numbers, run_name, table, texts};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// UDP at 16 Mbit/s, packets of 1,000 bytes.
const LOAD: &str = r#"
duration = "5 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "8 Mbit/s", delay = "10 ms", queue = { kind = "drop-tail", limit = "20 packets" } }
access = { rate = "1 Gbit/s", delay = "1 ms" }
[flows.a]
application = { kind = "cbr", interval = "500 us" }
transport = { kind = "udp", packet = "1000 B" }
[measure]
packets = ["bottleneck"]
messages = true
"#;

/// A user without rights.
const NOBODY: u32 = 65_534;

/// An emulation that takes commands.
struct Controlled<'a> {
    place: &'a Place,
    run: String,
    child: Child,
}

impl<'a> Controlled<'a> {
    fn start(place: &'a Place, more: &[&str], sudo_user: Option<u32>) -> Self {
        let run = run_name(place);
        let words = ["emulate", "s.toml", "--out", "out", "--name", &run, "--control"];
        let mut command = place.command(&[&words, more].concat());
        match sudo_user {
            Some(user) => command.env("SUDO_UID", user.to_string()),
            None => command.env_remove("SUDO_UID"),
        };
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let controlled = Self { place, run, child };
        let socket = controlled.socket();
        wait_until("the control", || UnixStream::connect(&socket).is_ok());
        controlled
    }

    fn socket(&self) -> PathBuf {
        Path::new("/run/ontempo").join(format!("{}.control", self.run))
    }

    fn link(&self, words: &[&str]) -> Ran {
        self.place.run(&[&["link", &self.run], words].concat())
    }

    fn end(self) -> Ran {
        let socket = self.socket();
        let ran = Ran::of(self.child.wait_with_output().expect("it ends"));
        ran.succeeds();
        assert!(!socket.exists(), "the socket is left");
        ran
    }
}

/// Checks the packets that left the bottleneck between the changes, whose rates were `rates`.
#[track_caller]
fn assert_rates(place: &Place, out: &str, times: &[f64], rates: &[f64]) {
    assert_carried(&table(place, out, "packets"), times, rates, 5.0);
}

#[test]
fn a_link_that_is_changed_while_it_runs_carries_what_was_asked_and_the_run_can_be_repeated() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("control", LOAD);
    let running = Controlled::start(&place, &["--seed", "9"], None);
    let mut times = vec![0.0];
    sleep(Duration::from_millis(1_000));
    for set in [&["rate=2 Mbit/s", "delay=\"40 ms\""][..], &["rate=0 bit/s"], &["rate=6 Mbit/s"]] {
        let changed = running.link(&[&["bottleneck"], set, &["--json"]].concat());
        times.push(changed.succeeds().json()["at_s"].as_f64().expect("a time"));
        sleep(Duration::from_millis(700));
    }
    let listed = running.link(&["--json"]).succeeds().json();
    let link = &listed["links"][0];
    assert_eq!((&link["link"], &link["rate_bps"]), (&"bottleneck".into(), &6_000_000.into()));
    assert_eq!((link["delay_s"].as_f64(), link["loss"].as_f64()), (Some(0.04), Some(0.0)));
    let listed = running.link(&["bottleneck"]);
    assert!(
        listed.succeeds().out.contains("6 Mbit/s") && listed.out.contains("40 ms"),
        "{listed:?}"
    );
    running.end();

    let rates = [8e6, 2e6, 0.0, 6e6];
    let events = table(&place, "out", "events");
    assert_eq!(numbers(&events, "time_s"), times[1..]);
    assert_eq!(numbers(&events, "rate_bps"), rates[1..]);
    assert_eq!(texts(&events, "link"), ["bottleneck"; 3]);
    assert_eq!(texts(&events, "by"), ["control"; 3]);
    assert_rates(&place, "out", &times, &rates);
    // A packet that left after the first change takes 40 ms instead of 10.
    let messages = table(&place, "out", "messages");
    let delays = numbers(&messages, "delay_s");
    let late = numbers(&messages, "sent_s").iter().zip(&delays).fold(0, |late, (sent, delay)| {
        late + usize::from(*sent > times[1] + 0.2 && *delay < 0.042)
    });
    assert_eq!(late, 0, "packets arrived before they could");

    place.run(&["show", "out", "--output", "page.html"]).succeeds();
    let page = fs::read_to_string(place.path("page.html")).expect("a page");
    assert!(
        page.contains("bottleneck: change to 2.00 Mbit/s, 40.0 ms"),
        "a change is not on the page"
    );
    let checked = place.run(&["check", "out/repeat.toml"]);
    assert!(checked.succeeds().out.contains("rate 0 bit/s"), "{checked:?}");
    let capacity = table(&place, "out", "capacity");
    for world in ["simulate", "emulate"] {
        place.run(&[world, "out/repeat.toml", "--out", world]).succeeds();
        assert_eq!(table(&place, world, "capacity"), capacity, "{world}");
        let again = table(&place, world, "events");
        assert_eq!(numbers(&again, "time_s"), times[1..], "{world}");
        assert_eq!(texts(&again, "by"), ["scenario"; 3], "{world}");
        assert_rates(&place, world, &times, &rates);
        let manifest = fs::read_to_string(place.path(&format!("{world}/run.json"))).expect("one");
        assert!(manifest.contains("\"seed\": 9"), "{world}");
    }
}

#[test]
fn a_change_that_cannot_be_is_refused_with_what_can() {
    if !can_emulate() {
        return;
    }
    let scenario = LOAD.replace(
        "access = { rate = \"1 Gbit/s\", delay = \"1 ms\" }",
        "access = { rate = \"1 Gbit/s\", delay = \"1 ms\", aggregation = { every = \"1 ms\" } }",
    );
    let place = Place::new("refused", &scenario);
    let running = Controlled::start(&place, &[], None);
    let run = running.run.clone();
    running
        .link(&["botleneck", "rate=1 Mbit/s"])
        .fails(2, &["did you mean `bottleneck`", "`reverse`"]);
    running.link(&["bottleneck", "speed=1"]).fails(2, &["speed", "`rate`, `delay`, `loss`"]);
    running.link(&["bottleneck", "rate=1"]).fails(2, &["missing unit", "1 Mbit/s"]);
    running.link(&["bottleneck", "loss=2"]).fails(2, &["not a probability"]);
    running.link(&["botleneck"]).fails(2, &["no link `botleneck`", "`bottleneck`"]);
    let access = "a.0.source -> left";
    running.link(&[access, "rate=1 Mbit/s"]).fails(2, &[access, "while it runs", "aggregates"]);
    let listed = running.link(&[]);
    assert!(listed.succeeds().out.contains("cannot be changed"), "{listed:?}");
    place
        .run(&["link", "nobody", "bottleneck", "loss=1"])
        .fails(2, &["no emulation called `nobody`"]);
    let emulate = ["emulate", "s.toml", "--out", "other", "--name", &run];
    place.run(&emulate).fails(2, &["active"]);
    running.end();
    let events = table(&place, "out", "events");
    assert_eq!(events.num_rows(), 0, "something was changed");
    let over = place.run(&["link", &run, "bottleneck", "rate=1 Mbit/s"]);
    over.fails(2, &[&format!("no emulation called `{run}` runs")]);
}

#[test]
fn a_link_that_follows_a_pair_of_traces_is_not_changed() {
    if !can_emulate() {
        return;
    }
    let pair = "schedule = { kind = \"cellreplay\", light-text = \"0 9 0\\n5 19 0\\n10 9 0\", heavy-text \
                = \"1\" }, queue = { kind = \"drop-tail\"";
    let place = Place::new("pair", &LOAD.replace("queue = { kind = \"drop-tail\"", pair));
    let running = Controlled::start(&place, &[], None);
    let words = ["`bottleneck` cannot be changed", "while it runs", "CellReplay pair of traces"];
    for set in ["rate=1 Mbit/s", "delay=\"5 ms\"", "loss=0.1"] {
        running.link(&["bottleneck", set]).fails(2, &words);
    }
    let listed = running.link(&["--json"]).succeeds().json();
    let (link, delay) = (&listed["links"][0], listed["links"][0]["delay_s"].as_f64());
    // The mean rate of the heavy trace, and the base delay now.
    assert_eq!(link["rate_bps"], 11_200_000);
    assert!(delay.is_some_and(|delay| (0.009..=0.019).contains(&delay)), "{listed}");
    running.end();
    assert_eq!(table(&place, "out", "events").num_rows(), 0, "something was changed");
}

#[test]
fn an_emulation_without_control_says_so_and_a_shell_opens_in_its_hosts() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("uncontrolled", LOAD);
    let run = run_name(&place);
    let child = place.spawn(&["emulate", "s.toml", "--out", "out", "--name", &run]);
    let addresses = ["shell", &run, "a.0.source", "--", "ip", "-br", "address"];
    wait_until("the hosts", || place.run(&addresses).out.contains("10.0.0.2/32"));
    place.run(&["link", &run]).fails(2, &[&run, "start it with --control"]);
    let code = ["shell", &run, "a.0.sink", "--", "sh", "-c", "exit 7"];
    assert_eq!(place.run(&code).code, Some(7));
    place.run(&["shell", &run, "a.1.sink"]).fails(2, &["a.1.sink", "`a.0.sink`", "`a.0.source`"]);
    let set = ["shell", &run, "a.0.sink", "--set", "seed=3", "--", "true"];
    place.run(&set).fails(2, &["running emulation", "--set"]);
    place.run(&["shell", "nowhere", "a.0.sink"]).fails(2, &["neither", "`nowhere`"]);
    // A file of the same name is given by its path.
    fs::copy(place.path("s.toml"), place.path(&run)).expect("a copy");
    let path = format!("./{run}");
    let of_file =
        ["shell", &path, "a.0.sink", "--name", "other_run", "--", "ip", "netns", "identify"];
    let identified = place.run(&of_file);
    assert!(identified.succeeds().out.contains("ontempo-other_run-a.0.sink"), "{identified:?}");
    interrupt(&child);
    assert_eq!(Ran::of(child.wait_with_output().expect("it ends")).code, Some(130));
}

#[test]
fn the_socket_of_a_killed_emulation_is_no_emulation_and_the_next_one_removes_it() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("killed", LOAD);
    let mut running = Controlled::start(&place, &[], None);
    running.link(&["bottleneck", "rate=1 Mbit/s"]).succeeds();
    let (socket, run) = (running.socket(), running.run.clone());
    // Another start that removes what is left shares the lock meanwhile. This waits for it.
    let lock = fs::File::open(socket.with_file_name(&run)).expect("the lock of a run");
    let (locked, is_locked) = mpsc::channel();
    let (looked, has_looked) = mpsc::channel();
    let removing = thread::spawn(move || {
        flock(&lock, FlockOperation::LockShared).expect("its owner has ended");
        locked.send(()).expect("the test waits");
        has_looked.recv().expect("the test goes on");
        sleep(Duration::from_millis(300));
    });
    running.child.kill().expect("killed");
    running.child.wait().expect("it has ended");
    is_locked.recv().expect("no panic");
    assert!(socket.exists());
    running.link(&[]).fails(2, &[&format!("no emulation called `{run}` runs")]);
    place.run(&["shell", &run, "h"]).fails(2, &[&run, "neither the name of a running emulation"]);
    looked.send(()).expect("no panic");
    // Of the same name, it takes the place of the one before it, and waits until that is removed.
    let again = Controlled::start(&place, &[], None);
    again.link(&["bottleneck", "rate=1 Mbit/s"]).succeeds();
    removing.join().expect("no panic");
    again.end();
    assert!(!socket.exists());
}

/// Runs the program as a user without rights.
fn as_nobody(place: &Place, words: &[&str]) -> Ran {
    let mut command = Command::new(place.path("ontempo"));
    command.args(words).current_dir("/").uid(NOBODY).gid(NOBODY);
    Ran::of(command.output().expect("the program starts"))
}

#[test]
fn another_user_is_refused_and_the_one_who_called_sudo_is_not() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("users", LOAD);
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).expect("set");
    place.copy_of_program();
    let running = Controlled::start(&place, &[], None);
    let run = running.run.clone();
    let slow = ["link", &run, "bottleneck", "rate=1 Mbit/s"];
    as_nobody(&place, &slow).fails(3, &["only root and the user who started"]);
    // Whoever gets at the socket all the same is known by the kernel.
    fs::set_permissions(running.socket(), fs::Permissions::from_mode(0o666)).expect("set");
    as_nobody(&place, &slow).fails(3, &[&run]);
    running.end();
    assert_eq!(table(&place, "out", "events").num_rows(), 0, "another user changed a link");

    let running = Controlled::start(&place, &[], Some(NOBODY));
    as_nobody(&place, &slow).succeeds();
    running.link(&["bottleneck", "rate=2 Mbit/s"]).succeeds();
    running.end();
    assert_eq!(table(&place, "out", "events").num_rows(), 2);
}

#[test]
fn clients_that_hang_or_flood_take_no_packet_and_no_place_from_others() {
    if !can_emulate() {
        return;
    }
    let quiet = LOAD.replace("\"500 us\"", "\"2 ms\"");
    let place = Place::new("flood", &quiet);
    let running = Controlled::start(&place, &[], None);
    let socket = running.socket();
    let mut held = Vec::new();
    for round in 0..1_500_u32 {
        let Ok(mut stream) = UnixStream::connect(&socket) else { continue };
        let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
        // Nothing, half a line, a line without end, one that is no command.
        let text: &[u8] = match round % 4 {
            0 => b"",
            1 => b"{\"link\":",
            2 => &[b'x'; 10_000],
            _ => b"\xff\xfe {}\n",
        };
        let _ = stream.write_all(text);
        held.push(stream);
        held.drain(..held.len().saturating_sub(100));
        if round % 300 == 150 {
            let rate = format!("rate={} Mbit/s", 5 + round / 300);
            running.link(&["bottleneck", &rate]).succeeds();
        }
    }
    let mut long = UnixStream::connect(&socket).expect("a connection");
    long.write_all(&[b'x'; 5_000]).expect("sent");
    let mut answer = String::new();
    long.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("at most 4096 bytes"), "{answer}");
    running.end();
    assert_eq!(table(&place, "out", "events").num_rows(), 5);
    let flows = table(&place, "out", "flows");
    assert_eq!(counts(&flows, "dropped_packets"), [0]);
    let (sent, got) = (counts(&flows, "sent_packets")[0], counts(&flows, "delivered_packets")[0]);
    assert!(sent > 2_400 && sent - got < 20, "{got} of {sent} arrived");
}

#[test]
fn connections_that_end_at_once_are_limited_in_rate_and_keep_nobody_out() {
    if !can_emulate() {
        return;
    }
    let quiet = LOAD.replace("\"500 us\"", "\"2 ms\"");
    let place = Place::new("hasty", &quiet);
    let running = Controlled::start(&place, &[], None);
    let (socket, stop) = (running.socket(), Arc::new(AtomicBool::new(false)));
    let flood = {
        let stop = stop.clone();
        thread::spawn(move || {
            let (begun, mut count) = (Instant::now(), 0_u32);
            while !stop.load(Ordering::Relaxed) {
                count += u32::from(UnixStream::connect(&socket).is_ok());
            }
            (count, begun.elapsed().as_secs_f64())
        })
    };
    for rate in [5, 6, 7] {
        running.link(&["bottleneck", &format!("rate={rate} Mbit/s")]).succeeds();
        sleep(Duration::from_millis(300));
    }
    stop.store(true, Ordering::Relaxed);
    let (count, seconds) = flood.join().expect("it ends");
    running.end();
    assert!(f64::from(count) < 600.0 * seconds + 300.0, "{count} connections in {seconds} s");
    assert_eq!(table(&place, "out", "events").num_rows(), 3);
}

/// Processor time that the thread of the control has used, in hundredths of a second.
fn control_time(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("procfs");
    let stats = tasks.map(|task| task.expect("an entry").path().join("stat"));
    let stat = stats.filter_map(|path| fs::read_to_string(path).ok());
    let fields =
        stat.filter_map(|stat| stat.split_once(" (control) ").map(|(_, rest)| rest.to_owned()));
    let fields = fields.last().expect("the thread of the control");
    // The first is the third of proc_pid_stat(5): utime and stime are its fields 14 and 15.
    fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum()
}

#[test]
fn without_descriptors_the_control_waits_and_then_serves() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("descriptors", LOAD);
    let running = Controlled::start(&place, &[], None);
    let process = running.child.id();
    // The program is past its start, and the connection that waited for it has ended.
    running.link(&["--json"]).succeeds();
    let open = |number: &u64| Path::new(&format!("/proc/{process}/fd/{number}")).exists();
    let free = (0..).find(|number| !open(number)).expect("one is free");
    // poll(2) takes as many as the limit, which must not fail in place of accept().
    assert!(free >= 6, "only {free} are open");
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(free), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, limit).expect("root may");
    let held: Vec<_> =
        (0..3).map(|_| UnixStream::connect(running.socket()).expect("it waits")).collect();
    let start = control_time(process);
    sleep(Duration::from_millis(1_500));
    let used = control_time(process) - start;
    drop(held);
    prlimit(pid, Resource::Nofile, before).expect("root may");
    running.link(&["bottleneck", "rate=5 Mbit/s"]).succeeds();
    let ran = running.end();
    assert!(used < 15, "it used {} ms of 1.5 s", 10 * used);
    assert!(ran.err.contains("no connection is accepted for now"), "{}", ran.err);
}

#[test]
fn as_many_changes_as_a_run_takes_are_held_and_one_more_is_refused() {
    if !can_emulate() {
        return;
    }
    let mut text = LOAD.replace("\"500 us\"", "\"2 ms\"");
    for number in 0..9_950 {
        let rate = 4 + number % 5;
        text += &format!(
            "[[events]]\nat = \"{} us\"\nlink = \"bottleneck\"\nset = {{ rate = \"{rate} Mbit/s\" }}\n",
            100 + 490 * number
        );
    }
    let place = Place::new("changes", &text);
    let running = Controlled::start(&place, &[], None);
    let change =
        |number: u32| running.link(&["bottleneck", &format!("rate={} Mbit/s", 4 + number % 5)]);
    for number in 0..50 {
        change(number).succeeds();
    }
    change(50).fails(2, &["10000"]);
    let held = peak_memory(running.child.id());
    println!("{held} bytes");
    running.end();
    assert!(held < 300_000_000, "{held} bytes held");
    assert_eq!(table(&place, "out", "events").num_rows(), 10_000);
}
