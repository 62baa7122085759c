//! `ontempo kernel` on a real kernel: what is loaded, what real TCP then does, what is left.

#[path = "../common/mod.rs"]
mod common;
mod testbed;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::{RwLock, RwLockReadGuard};
use std::thread::sleep;
use std::time::Duration;

use common::{Place, SCENARIO};
use ontempo_testing::{record_skip, require_programs};
use testbed::{Bottleneck, Testbed, goodput_mbit, run};

/// Held to read while something of this program is loaded; to write, by the test that compares
/// what is loaded before and after.
static MACHINE: RwLock<()> = RwLock::new(());

/// Errors for a missing build feature, right or kernel feature; any other error fails the test.
const LACKS: [&str; 7] = [
    "built without",
    "are root's",
    "this kernel is Linux",
    "this kernel does not describe",
    "this kernel has no congestion control by BPF",
    "no BPF file system",
    // Also to root, as a locked down kernel or its security module does with programs that trace.
    "cannot load PERT's BPF program into the kernel: Operation not permitted",
];

/// What the tests look and measure with.
const TOOLS: [&str; 5] = ["ip", "tc", "ss", "iperf3", "bpftool"];

/// A congestion control loaded under a name of its own, and removed at the end.
struct Loaded {
    place: Place,
    name: String,
    _machine: Option<RwLockReadGuard<'static, ()>>,
}

impl Loaded {
    /// `None`, with the reason printed, if this machine does not support it.
    fn new(test: &str, set: &[&str]) -> Option<Self> {
        let machine = MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self::with(test, set, Some(machine))
    }

    fn with(
        test: &str,
        set: &[&str],
        machine: Option<RwLockReadGuard<'static, ()>>,
    ) -> Option<Self> {
        let place = Place::new(&format!("kernel-{test}"), SCENARIO);
        if !require_programs(&TOOLS) {
            return None;
        }
        let name = format!("t{}{test}", std::process::id() % 100_000);
        let mut arguments = vec!["kernel", "load", "pert", "--as", &name];
        arguments.extend(set.iter().flat_map(|setting| ["--set", setting]));
        let ran = place.run(&arguments);
        if ran.code == Some(3) && LACKS.iter().any(|lack| ran.err.contains(lack)) {
            record_skip(ran.err.trim().lines().next().unwrap_or_default());
            return None;
        }
        ran.succeeds();
        Some(Self { place, name, _machine: machine })
    }

    fn run(&self, arguments: &[&str]) -> common::Ran {
        self.place.run(arguments)
    }

    fn unload(&self) -> common::Ran {
        self.run(&["kernel", "unload", &self.name])
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.place.command(&["kernel", "unload", &self.name, "--force"]).output();
    }
}

fn congestion_controls() -> String {
    run("cat /proc/sys/net/ipv4/tcp_available_congestion_control")
}

/// Every congestion control, `struct_ops` map and link of BPF.
fn all_of_bpf() -> BTreeSet<String> {
    let controls = congestion_controls();
    let maps = run("bpftool struct_ops list");
    let links = run("bpftool link list");
    let lines = controls.split_whitespace().chain(maps.lines()).chain(links.lines());
    lines.map(str::to_owned).collect()
}

#[test]
fn loading_and_unloading_leaves_the_kernel_as_it_was() {
    if !require_programs(&TOOLS) {
        return;
    }
    let _alone = MACHINE.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = all_of_bpf();
    let Some(loaded) = Loaded::with("life", &["t-max=20 ms"], None) else { return };
    let (place, name) = (&loaded.place, &loaded.name);
    assert!(congestion_controls().split_whitespace().any(|listed| listed == name.as_str()));
    assert_ne!(all_of_bpf(), before);

    let listed = place.run(&["kernel", "list"]);
    let line = listed.succeeds().out.lines().find(|line| line.starts_with(name));
    assert!(line.is_some_and(|line| line.contains("t-max=20 ms")), "{listed:?}");
    let status = place.run(&["kernel", "status", name, "--json"]).succeeds().json();
    assert_eq!(status["loaded"][0]["sockets"].as_array().map(Vec::len), Some(0));
    assert_eq!(status["loaded"][0]["settings"]["t-max"], "20 ms");

    place
        .run(&["kernel", "load", "pert", "--as", name])
        .fails(3, &[name, "is loaded already", "unload"]);
    loaded.unload().succeeds();
    loaded.unload().fails(3, &[name, "is not loaded"]);
    place.run(&["kernel", "status", name]).fails(3, &[name, "is not loaded"]);
    assert!(!Path::new("/sys/fs/bpf/ontempo").join(name).exists());
    // The kernel frees what is unregistered some time after.
    common::wait_until("the kernel to be as before", || all_of_bpf().is_subset(&before));
}

#[test]
fn a_congestion_control_of_another_program_is_not_unloaded() {
    let Some(loaded) = Loaded::new("taken", &[]) else { return };
    let before = congestion_controls();
    loaded
        .run(&["kernel", "load", "pert", "--as", "reno"])
        .fails(3, &["a congestion control `reno` that ontempo did not load", "--as NAME"]);
    loaded.run(&["kernel", "unload", "reno"]).fails(3, &["`reno` is not loaded"]);
    assert_eq!(congestion_controls(), before);
}

#[test]
fn invalid_input_is_reported_before_loading() {
    let place = Place::new("kernel-input", SCENARIO);
    for (arguments, words) in [
        (&["--set", "t-max=1 ms"][..], "t-max: 1 ms is not more than `t-min`, 5 ms"),
        (&["--set", "t_max=20 ms"], "t_max: no such parameter; there are alpha,"),
        (&["--as", "PERT!"], "cannot name a congestion control"),
    ] {
        let load = [&["kernel", "load", "pert"], arguments].concat();
        place.run(&load).fails(2, &[words]);
    }
}

#[test]
fn missing_rights_are_reported_in_a_sentence() {
    let place = Place::new("kernel-rights", SCENARIO);
    let program = place.path("ontempo");
    std::fs::copy(env!("CARGO_BIN_EXE_ontempo"), &program).expect("a copy");
    let is_root = run("id -u").trim() == "0";
    let run = |arguments: &[&str]| {
        let mut command = Command::new(if is_root { "setpriv" } else { "env" });
        if is_root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        }
        command.arg(&program).arg("kernel").args(arguments).output()
    };
    for arguments in [&["list"][..], &["status"], &["unload"]] {
        match run(arguments) {
            Ok(output) => common::Ran::of(output).fails(3, &["root's", "sudo"]),
            Err(error) => record_skip(&format!("setpriv: {error}")),
        }
    }
}

#[test]
fn one_flow_fills_the_link_and_its_state_is_shown() {
    let Some(loaded) = Loaded::new("fill", &[]) else { return };
    let mut bed = Testbed::new("fill");
    bed.transfer(&loaded.name, 1, 26);
    sleep(Duration::from_secs(5));

    let status = loaded.run(&["kernel", "status", &loaded.name, "--json"]).succeeds().json();
    let sockets = status["loaded"][0]["sockets"].as_array().expect("sockets").clone();
    // The one that carries data; iperf3 has another for its own talk.
    let busy = sockets.iter().max_by_key(|socket| socket["delivered_packets"].as_u64());
    let busy = busy.expect("a socket");
    assert!(busy["remote"].as_str().is_some_and(|remote| remote.ends_with(":5201")), "{busy}");
    assert!(busy["delivered_packets"].as_u64() > Some(10_000), "{busy}");
    assert!(busy["early_responses"].as_u64() > Some(0), "{busy}");
    assert!(busy["alpha"].as_f64().is_some_and(|alpha| (1.0..=32.0).contains(&alpha)), "{busy}");
    assert!(busy["cwnd_packets"].as_f64() >= Some(2.0), "{busy}");
    let table = loaded.run(&["kernel", "status", &loaded.name]);
    eprintln!("{}", table.succeeds().out);

    loaded.unload().fails(3, &["use", &loaded.name, "--force"]);
    // While others need the processor, no sender fills the link: it may take a few looks.
    let is_filled = |link: &Bottleneck| link.busy > 0.9;
    let mut looks = Vec::new();
    while looks.len() < 5 && !looks.last().is_some_and(is_filled) {
        looks.push(bed.watch(Duration::from_secs(4)));
    }
    eprintln!("one flow: {looks:?}");
    assert!(looks.last().is_some_and(is_filled), "{looks:?}");
    drop(bed);
    common::wait_until("the sockets to be gone", || loaded.unload().code == Some(0));
}

/// A packet's own time on a slow link is no queueing delay: the round trip of the small SYN does not
/// count.
#[test]
fn the_base_round_trip_is_that_of_full_packets() {
    let Some(loaded) = Loaded::new("base", &[]) else { return };
    let scenario = format!(
        r#"duration = "4 s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        bottleneck = {{ rate = "1 Mbit/s", delay = "8 ms", queue = {{ kind = "drop-tail", limit = "50 packets" }} }}
        [flows.download]
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", congestion = {{ kind = "kernel", name = "{}" }}, packet = "1500 bytes" }}
        start = "500 ms"
        "#,
        loaded.name
    );
    std::fs::write(loaded.place.path("slow.toml"), scenario).expect("a scenario");
    let (ran, sockets) = std::thread::scope(|scope| {
        let run = scope.spawn(|| loaded.run(&["emulate", "slow.toml", "--out", "out"]));
        sleep(Duration::from_millis(2_500));
        let status = loaded.run(&["kernel", "status", &loaded.name, "--json"]).succeeds().json();
        (run.join().expect("the emulation"), status["loaded"][0]["sockets"].clone())
    });
    ran.succeeds();
    let base_s = |socket: &serde_json::Value| socket["min_rtt_s"].as_f64();
    let base_s = sockets.as_array().and_then(|sockets| sockets.iter().find_map(base_s));
    // 20 ms of delay, and 12 ms for 1,500 bytes at 1 Mbit/s.
    assert!(base_s.is_some_and(|base_s| (0.032..0.040).contains(&base_s)), "{sockets}");
}

#[test]
fn a_transfer_continues_after_a_forced_unload() {
    let Some(loaded) = Loaded::new("force", &["counting=acks", "pacing-gain=0"]) else { return };
    let mut bed = Testbed::new("force");
    bed.transfer(&loaded.name, 2, 5);
    sleep(Duration::from_secs(2));
    let ran = loaded.run(&["kernel", "unload", &loaded.name, "--force"]);
    assert!(ran.succeeds().out.contains("keep it until they close"), "{ran:?}");
    assert!(!congestion_controls().contains(&loaded.name));
    let mbit = goodput_mbit(&bed.report(), 3.0);
    assert!(mbit > 50.0, "{mbit} Mbit/s after the unloading");
}

#[test]
fn what_new_sockets_choose_by_default_is_not_unloaded() {
    let Some(loaded) = Loaded::new("default", &[]) else { return };
    let bed = Testbed::new("default");
    let space = bed.namespace("sender");
    let set = |name: &str| {
        let setting = format!("net.ipv4.tcp_congestion_control={name}");
        run(&format!("ip netns exec {space} sysctl -qw {setting}"));
    };
    set(&loaded.name);
    let end = format!("ip netns exec {space} sysctl net.ipv4.tcp_congestion_control=");
    for more in [&[][..], &["--force"]] {
        let unload = [&["kernel", "unload", &loaded.name], more].concat();
        loaded.run(&unload).fails(3, &[&loaded.name, "by default", &end]);
        assert!(congestion_controls().contains(&loaded.name));
    }
    set("reno");
    loaded.unload().succeeds();
}

/// The bottleneck under four flows, without their first four seconds.
fn four_flows(test: &str, congestion: &str) -> Bottleneck {
    let mut bed = Testbed::new(test);
    bed.transfer(congestion, 4, 13);
    sleep(Duration::from_secs(4));
    let link = bed.watch(Duration::from_secs(8));
    let mbit = goodput_mbit(&bed.report(), 4.0);
    eprintln!("four flows, {congestion}: {link:?}, {mbit:.1} Mbit/s of data");
    link
}

#[test]
fn four_flows_keep_the_queue_under_a_quarter_of_renos() {
    let Some(loaded) = Loaded::new("queue", &[]) else { return };
    let (mut pert, reno) = std::thread::scope(|scope| {
        let reno = scope.spawn(|| four_flows("reno4", "reno"));
        (four_flows("pert4", &loaded.name), reno.join().expect("reno's flows"))
    });
    // A busy machine leaves the link idle and delays ACKs, now and then; a fault does so each time.
    let is_met = |pert: &Bottleneck| pert.busy > 0.9 && pert.queue_ms < reno.queue_ms / 4.0;
    for again in 1..=2 {
        if !is_met(&pert) {
            pert = four_flows(&format!("pert4again{again}"), &loaded.name);
        }
    }
    assert!(is_met(&pert), "{pert:?} beside {reno:?}");
}

/// The thesis' PERT would have about 0.6 of the 20 Mbit/s here, a fair share is 10.
#[test]
fn beside_reno_a_flow_has_at_least_half_of_its_fair_share_and_knows_the_queue() {
    let Some(loaded) = Loaded::new("beside", &[]) else { return };
    let flow = |name: &str, congestion: &str| {
        format!(
            r#"[flows.{name}]
            application = {{ kind = "ftp" }}
            transport = {{ kind = "tcp", congestion = {congestion}, packet = "1500 bytes" }}
            start = {{ low = "0 s", high = "1 s" }}
            "#
        )
    };
    let kernel = format!(r#"{{ kind = "kernel", name = "{}" }}"#, loaded.name);
    let scenario = format!(
        r#"duration = "30 s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        bottleneck = {{ rate = "20 Mbit/s", delay = "18 ms", queue = {{ kind = "drop-tail", limit = "66 packets" }} }}
        [measure]
        from = "10 s"
        {}{}"#,
        flow("pert", &kernel),
        flow("other", "\"reno\""),
    );
    std::fs::write(loaded.place.path("beside.toml"), scenario).expect("a scenario");
    // A machine that is busy for tens of milliseconds makes round trips that long, now and then; a fault of
    // PERT's makes them each time.
    for attempt in 1..=3 {
        let (ran, sockets) = std::thread::scope(|scope| {
            let run =
                scope.spawn(|| loaded.run(&["emulate", "beside.toml", "--out", "out", "--json"]));
            sleep(Duration::from_secs(25));
            let status =
                loaded.run(&["kernel", "status", &loaded.name, "--json"]).succeeds().json();
            (run.join().expect("the emulation"), status["loaded"][0]["sockets"].clone())
        });
        let shown = ran.succeeds().json();
        let flows = shown["runs"][0]["summary"]["flows"].as_array().expect("flows").clone();
        let pert = flows.iter().find(|flow| flow["group"] == "pert").expect("PERT's");
        let goodput_bps = pert["goodput_bps"].as_f64().expect("a rate");
        // The queue holds 40 ms; a sample that is a round trip too long would make it 80.
        let maxq_s = |socket: &serde_json::Value| {
            socket["delivered_packets"].as_u64().filter(|&packets| packets > 100)?;
            socket["maxq_s"].as_f64()
        };
        let maxq_s = sockets.as_array().and_then(|sockets| sockets.iter().find_map(maxq_s));
        if goodput_bps >= 5e6 && maxq_s.is_some_and(|maxq_s| maxq_s < 0.065) {
            return;
        }
        assert!(attempt < 3, "{goodput_bps} bit/s beside {flows:?}; {sockets}");
    }
}

/// Modes of the sockets that carry data.
fn modes(loaded: &Loaded) -> Vec<String> {
    let status = loaded.run(&["kernel", "status", &loaded.name, "--json"]).succeeds().json();
    let sockets = status["loaded"][0]["sockets"].as_array().expect("sockets").clone();
    let senders = sockets.iter().filter(|socket| socket["delivered_packets"].as_u64() > Some(100));
    senders.map(|socket| socket["mode"].as_str().expect("a mode").to_owned()).collect()
}

/// Each alone would find the others still Reno: they try early responses at the same times.
#[test]
fn after_a_download_beside_them_all_flows_respond_early_again() {
    let Some(loaded) = Loaded::new("after", &[]) else { return };
    let scenario = format!(
        r#"duration = "38 s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        bottleneck = {{ rate = "20 Mbit/s", delay = "3 ms", queue = {{ kind = "drop-tail", limit = "40 packets" }} }}
        [flows.pert]
        count = 3
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", congestion = {{ kind = "kernel", name = "{}" }}, packet = "1500 bytes" }}
        start = {{ low = "0 s", high = "1 s" }}
        [flows.download]
        application = {{ kind = "file", size = "6 MB" }}
        transport = {{ kind = "tcp", congestion = "cubic", packet = "1500 bytes" }}
        "#,
        loaded.name
    );
    std::fs::write(loaded.place.path("after.toml"), scenario).expect("a scenario");
    // Another program that fills the queue of a busy machine would be competition, too.
    for attempt in 1..=3 {
        let (beside, afterwards) = std::thread::scope(|scope| {
            let run = scope.spawn(|| loaded.run(&["emulate", "after.toml", "--out", "out"]));
            // The download takes 10 to 15 s. The wall clock may have a trial at one of these times.
            sleep(Duration::from_secs(4));
            let looks = (0..5).map(|_| {
                sleep(Duration::from_secs(1));
                modes(&loaded)
            });
            let renos = |modes: &Vec<String>| modes.iter().filter(|mode| *mode == "reno").count();
            let beside = looks.max_by_key(renos).unwrap_or_default();
            // Trials are 8 or 16 s apart.
            sleep(Duration::from_secs(26));
            let afterwards = modes(&loaded);
            run.join().expect("the emulation").succeeds();
            (beside, afterwards)
        });
        eprintln!("beside the download {beside:?}, afterwards {afterwards:?}");
        let all_reno = beside.len() == 3 && beside.iter().all(|mode| mode == "reno");
        if all_reno && afterwards.len() == 3 && !afterwards.iter().any(|mode| mode == "reno") {
            return;
        }
        assert!(attempt < 3, "beside the download {beside:?}, afterwards {afterwards:?}");
    }
}
