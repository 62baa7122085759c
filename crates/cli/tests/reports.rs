//! Reports of QoS sockets, and what other users can do to those who write and read them. The tests
//! with a second user need root and a mount namespace, in which `/run` is empty.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::{Killed, Place, Ran, files, free_port, wait_until};
use ontempo_testing::{record_skip, require_programs, require_root};
use serde_json::{Value, json};

/// Another user's id, and the options that make a program run as that user.
const OTHER: &str = "64001";
const AS_OTHER: &str = "setpriv --reuid=64001 --regid=64001 --clear-groups --";

/// The options that give a program namespaces of its own.
const UNSHARE: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--"];

/// A port of these namespaces, where nobody else takes it.
const PORT: u16 = 4_000;

const SPECIFICATION: &str = "max_rate = \"40 messages/s\"\nsize = \"1280 bytes\"\n";

/// A place with a specification whose program and folder every user may read, if a second user and
/// an own `/run` can be had; otherwise the test is recorded as skipped.
fn place(test: &str) -> Option<Place> {
    if !require_root() || !require_programs(&["unshare", "setpriv", "mount", "timeout", "ip", "ss"])
    {
        return None;
    }
    let mut command = Command::new("unshare");
    let made = command.args(UNSHARE).arg("true").output();
    if !made.is_ok_and(|output| output.status.success()) {
        record_skip("this machine has no namespaces of mounts and processes for root");
        return None;
    }
    let place = Place::new(test, "");
    place.copy_of_program();
    fs::write(place.path("flow.toml"), SPECIFICATION).expect("a specification");
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).expect("our folder");
    Some(place)
}

/// Runs a shell's script in the place, in namespaces of its own: with an empty `/run` in which
/// the other user has a runtime folder, and with process ids from 1.
fn script(place: &Place, text: &str) -> Ran {
    let begin = format!(
        "set -e; ip link set lo up; mount -t tmpfs -o mode=755 tmpfs /run; \
         mkdir -p /run/user/{OTHER} /run/ontempo/qos; chmod 1777 /run/ontempo/qos; \
         chown {OTHER}:{OTHER} /run/user/{OTHER}; chmod 700 /run/user/{OTHER}\n"
    );
    let mut command = Command::new("unshare");
    command
        .args(UNSHARE)
        .args(["sh", "-c"])
        .arg(begin + text)
        .current_dir(&place.0)
        .env_remove("XDG_RUNTIME_DIR");
    Ran::of(command.output().expect("unshare starts"))
}

#[test]
fn a_link_of_another_user_makes_root_delete_nothing() {
    let Some(place) = place("reports-link") else { return };
    let secret = place.path("secret");
    fs::create_dir(&secret).expect("a folder");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("our folder");
    let names = ["500000.json", "500001.json", "500002.json"];
    for name in names {
        fs::write(secret.join(name), "of root's").expect("a file");
    }
    let link = format!(
        "{AS_OTHER} sh -c 'mkdir /run/user/{OTHER}/ontempo; \
         ln -s {} /run/user/{OTHER}/ontempo/qos'\n./ontempo monitor --once",
        secret.display()
    );
    let ran = script(&place, &link);
    assert_eq!(files(&secret), names, "{ran:?}");
    let words = format!("/run/user/{OTHER}/ontempo/qos: is a link");
    assert!(ran.succeeds().err.contains(&words), "{ran:?}");
}

/// Makes 1001 the next process id.
const NEXT: &str = "echo 1000 > /proc/sys/kernel/ns_last_pid\n";

/// Waits, as the wrapped program, until there is a report of the process that runs it.
const UNTIL_PUBLISHED: &str = "timeout 60 ./ontempo qos run --spec flow.toml -- \
    sh -c 'until test -s /run/ontempo/qos/$PPID.json; do sleep 0.05; done'";

#[test]
fn files_and_links_that_another_user_has_put_there_do_no_harm() {
    let Some(place) = place("reports-planted") else { return };
    let victim = place.path("victim");
    fs::write(&victim, "of root's").expect("a file");
    for plant in [
        format!("ln -s {} $name", victim.display()),
        "mkfifo $name".to_owned(),
        "mkdir $name".to_owned(),
        "touch $name".to_owned(),
    ] {
        let planted = format!(
            "{AS_OTHER} sh -c 'cd /run/ontempo/qos; for number in $(seq 1001 1009); do \
             for name in .$number.json .$number.json.new; do {plant}; done; done'\n{NEXT}"
        );
        let ran = script(&place, &format!("{planted}{UNTIL_PUBLISHED}"));
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "of root's", "{plant}");
        assert_eq!(ran.code, Some(0), "{plant}: no report: {ran:?}");
    }
}

#[test]
fn a_fifo_in_a_reports_place_keeps_nobody_from_ending() {
    let Some(place) = place("reports-fifo") else { return };
    // In the place of the report itself, and of what is written beside it.
    let ran = script(
        &place,
        &format!(
            "{AS_OTHER} sh -c 'cd /run/ontempo/qos; for number in $(seq 1001 1009); do \
             mkfifo $number.json .$number.json; done'\n{NEXT}\
             timeout --kill-after=20 --signal=TERM 2 \
             ./ontempo qos run --spec flow.toml -- sleep 60"
        ),
    );
    // The code of timeout where its signal has ended the program.
    assert_eq!(ran.code, Some(124), "{ran:?}");
}

#[test]
fn who_takes_the_name_of_a_users_report_does_not_keep_it_from_being_seen() {
    let Some(place) = place("reports-taken") else { return };
    let ran = script(
        &place,
        &format!(
            "setpriv --reuid=64002 --regid=64002 --clear-groups -- \
             sh -c 'cd /run/ontempo/qos; touch $(seq -f %g.json 1001 1009)'\n{NEXT}\
             {AS_OTHER} env XDG_RUNTIME_DIR=/run/user/{OTHER} timeout 60 \
             ./ontempo qos run --spec flow.toml -- \
             sh -c 'until test -s /run/user/{OTHER}/ontempo/qos/$PPID.json; do sleep 0.05; done'\n\
             ls -A /run/user/{OTHER}/ontempo/qos; ls /run/ontempo/qos | wc -l"
        ),
    );
    assert_eq!(
        ran.succeeds().out.trim(),
        "9",
        "no report is left, and nothing is removed: {ran:?}"
    );
}

#[test]
fn root_sees_the_sockets_of_another_user_in_both_folders() {
    let Some(place) = place("reports-seen") else { return };
    for prepare in ["true", "rm -r /run/ontempo"] {
        let ran = script(
            &place,
            &format!(
                "{prepare}\n\
                 as_other=\"{AS_OTHER} env XDG_RUNTIME_DIR=/run/user/{OTHER} ./ontempo netvideo\"\n\
                 $as_other receive --over tcp --listen 127.0.0.1:{PORT} >&2 &\n\
                 until ss -tlnH | grep -q 127.0.0.1:{PORT}; do kill -0 $!; sleep 0.05; done\n\
                 $as_other send 127.0.0.1:{PORT} --over tcp --seconds 60 >&2 &\n\
                 for count in $(seq 1 600); do\n\
                     ./ontempo monitor --once --json > seen\n\
                     grep -q sender seen && grep -q receiver seen && break\n\
                     sleep 0.05\n\
                 done\ncat seen"
            ),
        );
        let sockets = ran.succeeds().json()["sockets"].take();
        let roles: Vec<_> = sockets.as_array().expect("a list").iter().collect();
        assert_eq!(roles.len(), 2, "{prepare}: {ran:?}");
    }
}

/// A process of the other user's with this report, and then `reading`.
fn with_report_of_other(place: &Place, socket: &Value, reading: &str) -> Ran {
    let report = json!({ "process": "PROCESS", "started": "STARTED", "sockets": [socket] });
    let text = report.to_string().replace("\"PROCESS\"", "$$").replace("\"STARTED\"", "$started");
    let text = text.replace('\\', "\\\\\\\\").replace('"', "\\\"");
    let publish = format!(
        "set -- $(sed \"s/.*) //\" /proc/$$/stat); shift 19; started=$1\n\
         printf %b \"{text}\" > /run/ontempo/qos/$$.json\nsleep 60"
    );
    fs::write(place.path("publish.sh"), publish).expect("a script");
    script(
        place,
        &format!(
            "{AS_OTHER} sh publish.sh & \
             until test -s /run/ontempo/qos/$!.json; do kill -0 $!; sleep 0.05; done\n{reading}"
        ),
    )
}

fn socket(name: &str) -> Value {
    json!({
        "id": 1, "name": name, "role": "receiver", "carrier": "udp",
        "local": "192.0.2.1:5000", "remote": "192.0.2.2:5000", "dscp": 34,
        "reservation": "refused", "reason": name, "opened_ms": 0,
        "sent_messages": 40, "sent_bytes": 51_200, "messages": 35, "bytes": 44_800,
        "lost_messages": 5, "throughput": 614_400.0, "loss": 12.5, "delay": 0.0125,
        "delay_error": 0.0005, "jitter": 0.001, "parameters": [], "violations": [],
    })
}

#[test]
fn what_another_user_has_named_a_socket_does_not_command_roots_terminal() {
    let Some(place) = place("reports-escapes") else { return };
    let name = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r\nfilm";
    let ran = with_report_of_other(&place, &socket(name), "./ontempo monitor --once");
    let out = &ran.succeeds().out;
    assert!(out.contains(r"\u001b]0;owned\u0007\u009b2J\u202e\u000d\u000afilm"), "{ran:?}");
    assert!(!out.contains(|one: char| one.is_control() && one != '\n'), "{out:?}");

    let ran = with_report_of_other(&place, &socket(name), "./ontempo monitor --once --json");
    let out = &ran.succeeds().out;
    assert!(!out.trim_end().contains(|one: char| one.is_control() || one == '\u{202e}'), "{out}");
    assert_eq!(ran.json()["sockets"][0]["socket"]["name"], name, "JSON keeps the name");
}

/// Both ends of a flow over loopback, which report into the place's folder `reports`; the messages
/// of the sender's report while they run.
fn flow(place: &Place) -> [Killed; 2] {
    fs::create_dir_all(place.path("reports")).expect("a folder");
    let at = format!("127.0.0.1:{}", free_port());
    let start = |words: &[&str]| {
        let mut command = place.command(&[&["netvideo"], words].concat());
        command.env("ONTEMPO_QOS_FOLDER", place.path("reports"));
        command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock"));
        Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    };
    let receiver = start(&["receive", "--over", "tcp", "--listen", &at]);
    let port: u16 = at.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    wait_until("the receiver", || {
        let bound = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        bound.contains(&format!("0100007F:{port:04X} 00000000:0000 0A"))
    });
    [receiver, start(&["send", &at, "--over", "tcp", "--seconds", "3"])]
}

#[test]
fn a_report_goes_with_its_process() {
    let place = Place::new("reports-end", "");
    let mut ends = flow(&place);
    let reports = place.path("reports");
    let has_published = |end: &Killed| reports.join(format!("{}.json", end.0.id())).exists();
    wait_until("both reports", || ends.iter().all(has_published));
    for end in &mut ends {
        assert_eq!(end.0.wait().expect("it ends").code(), Some(0));
    }
    assert_eq!(files(&reports), [""; 0], "left behind");
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next_of_its_user() {
    if !require_programs(&["ss"]) {
        return;
    }
    let place = Place::new("reports-killed", "");
    fs::write(place.path("flow.toml"), SPECIFICATION).expect("a specification");
    let reports = place.path("reports");
    fs::create_dir_all(&reports).expect("a folder");
    let run = |words: &[&str]| {
        let mut command =
            place.command(&[&["qos", "run", "--spec", "flow.toml", "--"], words].concat());
        command.env("ONTEMPO_QOS_FOLDER", &reports).stdout(Stdio::null()).stderr(Stdio::null());
        Killed(command.spawn().expect("it starts"))
    };
    let killed = run(&["sleep", "60"]);
    let name = format!("{}.json", killed.0.id());
    wait_until("its report", || reports.join(&name).exists());
    drop(killed);
    assert_eq!(files(&reports), [name]);
    // Not one of this user's reports.
    fs::write(reports.join("500000.json"), "[]").expect("a file");
    let next = run(&["sleep", "60"]);
    let own = format!("{}.json", next.0.id());
    wait_until("the next report", || reports.join(&own).exists());
    let mut expected = [own, "500000.json".to_owned()];
    expected.sort();
    assert_eq!(files(&reports), expected);
    let terminated = Command::new("kill").args(["-TERM", &next.0.id().to_string()]).status();
    assert!(terminated.is_ok_and(|status| status.success()));
    let mut next = next;
    assert_eq!(next.0.wait().expect("it ends").code(), Some(128 + 15));
    assert_eq!(files(&reports), ["500000.json"]);
}

#[test]
fn a_folder_in_which_others_replace_files_is_named_with_the_mend() {
    let place = Place::new("reports-open", "");
    let reports = place.path("reports");
    fs::create_dir_all(&reports).expect("a folder");
    fs::set_permissions(&reports, fs::Permissions::from_mode(0o777)).expect("our folder");
    let ran = place.run(&["monitor", "--once", "--folder", "reports"]);
    assert!(ran.succeeds().err.contains("end that with: chmod go-w reports"), "{ran:?}");
}

#[test]
fn users_cannot_fill_run_through_the_folder_that_the_exporter_makes() {
    let Some(place) = place("reports-fill") else { return };
    let ran = script(
        &place,
        &format!(
            "mounts() {{ grep -c ' /run/ontempo/qos ' /proc/mounts || true; }}; before=$(mounts)\n\
             umount /run; mount -t tmpfs -o mode=755,size=80m tmpfs /run\n\
             ./ontempo export --prometheus 127.0.0.1:0 & exporter=$!\n\
             until test -w /run/ontempo/qos && test $(stat -c %a /run/ontempo/qos) = 1777; do \
             sleep 0.05; done\n\
             {AS_OTHER} sh -c 'head -c 100000000 /dev/zero > /run/ontempo/qos/x; \
             for number in $(seq 10000); do : > /run/ontempo/qos/$number || exit 0; done' \
             2> /dev/null || true\n\
             head -c 10000000 /dev/zero > /run/of-root; mkdir /run/another\n\
             ls -f /run/ontempo/qos | wc -l\n\
             kill $exporter; wait $exporter || true\n\
             ./ontempo export --prometheus 127.0.0.1:0 > /dev/null & exporter=$!\n\
             sleep 0.5; kill $exporter; wait $exporter || true\n\
             expr $(mounts) - $before\n"
        ),
    );
    let out = &ran.succeeds().out;
    let numbers: Vec<u64> = out.lines().filter_map(|line| line.parse().ok()).collect();
    let [entries, mounts] = numbers[..] else { panic!("{ran:?}") };
    assert!(entries < 8_200, "{ran:?}");
    assert_eq!(mounts, 1, "the second exporter uses the file system of the first");
}
