//! What an emulation sets up is gone when it ends, however it ends. Each test has a network and
//! a `/run` of its own, so that it sees all that is left, and nothing of others.

mod common;
mod emulated;

use std::fs;
use std::process::Command;

use common::{Place, Ran};
use emulated::can_emulate;
use ontempo_testing::{record_skip, require_programs, skip};

const SCENARIO: &str = r#"
duration = "1 s"
[topology]
kind = "graph"
[[topology.links]]
from = "a"
to = "b"
rate = "10 Mbit/s"
delay = "1 ms"
[flows.one]
from = "a"
to = "b"
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "CONGESTION" }
[flows.two]
from = "a"
to = "b"
application = { kind = "command", command = COMMAND }
transport = { kind = "own" }
"#;

/// Words of the shell that every test begins with.
const PRELUDE: &str = r#"
set -u
mount -t tmpfs none /run
ip link set lo up
bpf=no-control
control() { bpftool struct_ops list | while read -r id _; do
    bpftool struct_ops dump id "${id%:}" 2>/dev/null | grep -o "\"name\": \"$bpf\""; done
    grep -ow "$bpf" /proc/sys/net/ipv4/tcp_available_congestion_control; }
state() { ip netns; ip -o link; tc qdisc show; ls -A /run/ontempo 2>/dev/null; control; }
started() { for i in $(seq 500); do [ -n "$(ip netns)" ] && return; sleep 0.01; done; }
busy() {
    for i in $(seq 1000); do
        for one in $(ip netns pids $1 2>/dev/null); do
            grep -qsx sleep /proc/$one/comm && return
        done
        sleep 0.01
    done
    exit 84
}
same() { state > after; diff before after > left || { echo "LEFT: $(cat left)"; exit 99; }; }
state > before
"#;

fn scenario(congestion: &str, command: &str) -> String {
    SCENARIO.replace("CONGESTION", congestion).replace("COMMAND", command)
}

/// Runs `script` in its own network namespace and `/run`; `None` if this is not possible here.
fn alone(test: &str, scenario: &str, script: &str) -> Option<Ran> {
    if !can_emulate() || !require_programs(&["unshare", "tc"]) {
        return None;
    }
    let place = Place::new(test, scenario);
    let longer = scenario.replace("\"1 s\"", "\"1000 s\"");
    fs::write(place.path("long.toml"), longer).expect("a scenario");
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("{PRELUDE}{script}"))
        .env("ontempo", env!("CARGO_BIN_EXE_ontempo"))
        .current_dir(&place.0)
        .output();
    Some(Ran::of(output.expect("unshare starts")))
}

#[test]
fn nothing_is_left_after_success() {
    let script = "$ontempo emulate s.toml --out out && same";
    let Some(ran) = alone("left-success", &scenario("reno", r#"["true"]"#), script) else { return };
    ran.succeeds();
}

#[test]
fn nothing_is_left_after_a_missing_command() {
    let script = "$ontempo emulate s.toml --out out; code=$?; same; exit $code";
    let scenario = scenario("reno", r#"["no-such-program"]"#);
    let Some(ran) = alone("left-missing", &scenario, script) else { return };
    ran.fails(2, &["flows.two.application.command", "no program `no-such-program`"]);
}

#[test]
fn nothing_is_left_after_a_command_that_fails() {
    let script =
        "$ontempo emulate s.toml --out out; code=$?; [ -e out ] && exit 98; same; exit $code";
    let scenario = scenario("reno", r#"["sh", "-c", "echo no camera; exit 4"]"#);
    let Some(ran) = alone("left-failing", &scenario, script) else { return };
    ran.fails(3, &["two.0.source", "exit status: 4", "no camera"]);
}

#[test]
fn nothing_is_left_of_a_command_that_never_ends() {
    // It ignores SIGTERM.
    let stubborn = r#"["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]"#;
    let script = "$ontempo emulate s.toml --out out && same";
    let Some(ran) = alone("left-endless", &scenario("reno", stubborn), script) else { return };
    ran.succeeds();
}

#[test]
fn nothing_is_left_after_sigint_and_after_sigterm() {
    let script = "for signal in INT TERM; do
        $ontempo emulate long.toml --out out & started; sleep 0.3; kill -$signal $!
        wait $!; code=$?; [ $code = 130 ] || exit $code
        same
    done; [ ! -e out ]";
    let scenario = scenario("reno", r#"["sleep", "1000"]"#);
    let Some(ran) = alone("left-signal", &scenario, script) else { return };
    ran.succeeds();
    assert!(ran.err.contains("interrupted; nothing was written"), "{ran:?}");
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next_run_and_nothing_else() {
    // A namespace with a similar name and a running run stay.
    let script = "ip netns add ontempo-mine-a; state > before
        $ontempo emulate long.toml --name killed --out out & killed=$!; busy ontempo-killed-a; kill -9 $killed
        wait $! 2>/dev/null
        [ -n \"$(ip netns pids ontempo-killed-a)\" ] || exit 97
        $ontempo emulate long.toml --name other --out other & other=$!; busy ontempo-other-a
        ip netns | grep -q ontempo-killed && exit 96
        $ontempo emulate s.toml --out out || exit 95
        ip netns | grep -q ontempo-other-a || exit 94
        kill -INT $other; wait $other
        same; ip netns pids ontempo-mine-a || exit 93
        pgrep -fx 'sleep SECONDS' && exit 92; true";
    // A number that no other run of this test has.
    let seconds = (1_000_000 + std::process::id()).to_string();
    let scenario = scenario("reno", r#"["sleep", "SECONDS"]"#).replace("SECONDS", &seconds);
    let Some(ran) = alone("left-killed", &scenario, &script.replace("SECONDS", &seconds)) else {
        return;
    };
    ran.succeeds();
    assert!(ran.err.contains("removed what a killed run left: ontempo-killed-a"), "{ran:?}");
}

#[test]
fn a_run_name_in_use_is_refused_and_the_other_run_continues() {
    let script = "ip netns add ontempo-demo-b; state > before
        $ontempo emulate s.toml --name demo --out out; code=$?; same
        $ontempo emulate long.toml --name twice --out out & started
        until [ -e /run/ontempo/twice ]; do sleep 0.01; done
        $ontempo emulate s.toml --name twice --out second && exit 91
        kill -INT $!; wait; same; exit $code";
    let scenario = scenario("reno", r#"["true"]"#);
    let Some(ran) = alone("left-taken", &scenario, script) else { return };
    ran.fails(3, &["ontempo-demo-b is taken", "a run called `twice` is active"]);
}

#[test]
fn nothing_is_left_where_the_kernel_lacks_the_congestion_control() {
    let script = "$ontempo emulate s.toml --out out; code=$?; same; exit $code";
    let scenario = scenario("vegas", r#"["true"]"#);
    let Some(ran) = alone("left-control", &scenario, script) else { return };
    if ran.code == Some(0) {
        skip!("this kernel has the congestion control vegas");
    }
    ran.fails(3, &["flow one.0", "no congestion control `vegas`", "reno"]);
}

#[test]
fn each_part_that_only_a_simulation_supports_is_refused() {
    let script = "$ontempo emulate s.toml --out out; code=$?; same; exit $code";
    let scenario = scenario("reno", r#"["true"]"#).replace(
        "transport = { kind = \"tcp\", congestion = \"reno\" }",
        "transport = { kind = \"tcp\", congestion = { kind = \"cubic\", variant = \"linux-2.6\" } }",
    ) + "[flows.data]\nfrom = \"a\"\nto = \"b\"\napplication = { kind = \"adus\", count = 3 }\n\
         transport = { kind = \"adu\" }\n";
    let Some(ran) = alone("left-simulated", &scenario, script) else { return };
    ran.fails(
        2,
        &["only be simulated", "flows.one.transport.congestion", "flows.data.application"],
    );
}

/// The congestion control that a test has loaded; gone with it.
struct Pert(String);

impl Pert {
    /// `None`, with the reason printed, if this machine does not support it.
    fn load() -> Option<Self> {
        if !can_emulate() || !require_programs(&["bpftool"]) {
            return None;
        }
        let name = format!("left{}", std::process::id());
        let place = Place::new("left-load", "");
        let ran = place.run(&["kernel", "load", "pert", "--as", &name]);
        // What build, rights or kernel lack; anything else is a failure.
        if ran.code == Some(3) {
            record_skip(ran.err.trim());
            return None;
        }
        ran.succeeds();
        Some(Self(name))
    }
}

impl Drop for Pert {
    fn drop(&mut self) {
        let unload = ["kernel", "unload", &self.0, "--force"];
        let _ = Command::new(env!("CARGO_BIN_EXE_ontempo")).args(unload).output();
    }
}

#[test]
fn nothing_of_a_run_holds_a_congestion_control_of_bpf_however_the_run_ends() {
    let Some(pert) = Pert::load() else { return };
    let script = format!(
        "bpf={name}; state > before; [ $(control | wc -l) = 2 ] || exit 90
        $ontempo emulate s.toml --out out || exit 89; same
        $ontempo emulate s.toml --set 'flows.two.application.command=[\"false\"]' --out no && exit 88
        same
        $ontempo emulate long.toml --out no & started; sleep 0.8; kill -INT $!; wait $!; same
        $ontempo emulate long.toml --name killed --out no & started; sleep 0.8
        kill -9 $!; wait $! 2>/dev/null
        $ontempo emulate s.toml --out out || exit 87; same
        # No socket uses it: it can go without force, and is gone.
        i=0; until $ontempo kernel unload {name}; do
            i=$((i + 1)); [ $i = 50 ] && exit 86; sleep 0.1
        done
        # The kernel lists it for a moment longer.
        i=0; while [ -n \"$(control)\" ]; do
            i=$((i + 1)); [ $i = 50 ] && exit 85; sleep 0.1
        done",
        name = pert.0
    );
    let control = format!("{{ kind = \"kernel\", name = \"{}\" }}", pert.0);
    let scenario = scenario("CONTROL", r#"["true"]"#).replace("\"CONTROL\"", &control);
    let Some(ran) = alone("left-bpf", &scenario, &script) else { return };
    ran.succeeds();
}

#[test]
fn interface_names_and_addresses_of_the_machine_do_not_conflict() {
    // A run's are in namespaces of its own.
    let script = "ip link add ontempo0 type dummy && ip address add 10.0.0.2/8 dev ontempo0
        ip link set ontempo0 up; state > before
        $ontempo emulate s.toml --out out && same";
    let Some(ran) = alone("left-interface", &scenario("reno", r#"["true"]"#), script) else {
        return;
    };
    ran.succeeds();
}

#[test]
fn missing_tun_devices_and_a_missing_ip_command_are_reported() {
    let script = "mount -t tmpfs none /dev/net
        $ontempo emulate s.toml --out out; code=$?; same
        PATH=/nowhere $ontempo emulate s.toml --set 'flows.two.application.command=[\"/bin/true\"]' \
            --out out; [ $? = 3 ] || exit 85
        same; exit $code";
    let Some(ran) = alone("left-tun", &scenario("reno", r#"["true"]"#), script) else { return };
    ran.fails(3, &["no TUN devices", "modprobe tun", "program `ip` is missing", "iproute2"]);
}

#[test]
fn missing_root_rights_are_reported() {
    if !can_emulate() || !require_programs(&["setpriv"]) {
        return;
    }
    let place = Place::new("nobody", &scenario("reno", r#"["true"]"#));
    let copy = place.copy_of_program();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let output = Command::new("setpriv")
        .args(nobody)
        .arg(&copy)
        .args(["emulate", "s.toml", "--out", "out"])
        .current_dir(&place.0)
        .output();
    Ran::of(output.expect("setpriv starts")).fails(3, &["need root", "sudo"]);
}
