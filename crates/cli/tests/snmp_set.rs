//! A manager holds a sender at a rung of its ladder by SNMP SET, with net-snmp's agent and tools.

mod common;
mod snmp;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration as Wall;

use common::{Killed, Place, wait_until};
use ontempo_foundation::{Duration, MessageRate};
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{LadderOptions, QosListener, QosOptions, QosStream};
use ontempo_testing::{require_programs, require_root};
use snmp::Master;

const ROOT: &str = "1.3.6.1.4.1.8072.9999.9999.2000";

/// Set for the process that has the sockets.
const PLAYS: &str = "ONTEMPO_TEST_PLAYS_THE_SENDER";

fn of(rate: u32) -> Specification {
    Specification {
        max_rate: Term::coerced(MessageRate::per_second(rate)),
        ..Specification::default()
    }
}

/// Not a test by itself: another process that has a sender with a ladder of three rungs, and one without
/// a ladder.
#[test]
fn the_sender() {
    if std::env::var_os(PLAYS).is_none() {
        return;
    }
    let ladder = LadderOptions {
        below: vec![of(40), of(20)],
        step_down_after: Duration::from_secs(600),
        step_up_after: Duration::from_secs(600),
    };
    let receiving = QosOptions::receiving(of(80));
    let listener = QosListener::bind("127.0.0.1:0", receiving).expect("a port");
    let address = listener.local_address().expect("an address");
    let accepting = std::thread::spawn(move || {
        (0..2).map(|_| listener.accept().expect("a client").0).collect::<Vec<_>>()
    });
    let named = |name: &str| QosOptions { name: name.to_owned(), ..QosOptions::sending(of(80)) };
    let laddered = QosOptions { ladder: Some(ladder), ..named("ladder") };
    let with = QosStream::connect(address, &laddered).expect("connected");
    let without = QosStream::connect(address, &named("none")).expect("connected");
    let _accepted = accepting.join().expect("accepted");
    loop {
        let sent = with.send_message(b"message").and_then(|()| without.send_message(b"message"));
        if sent.is_err() {
            return;
        }
        std::thread::sleep(Wall::from_millis(50));
    }
}

/// That process, which publishes in the place, run by this user.
fn sender(place: &Place, user: Option<&str>) -> Killed {
    fs::create_dir_all(place.path("reports")).expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let mut command = match user {
        None => Command::new(own),
        Some(user) => {
            // In a folder of root's, where all may write their own files.
            run("chmod", &["755", &place.0.display().to_string()]);
            run("chmod", &["1777", &place.path("reports").display().to_string()]);
            let copy = place.path("sender");
            fs::copy(own, &copy).expect("a copy");
            let ids = [format!("--reuid={user}"), format!("--regid={user}")];
            let mut command = Command::new("setpriv");
            command.args(ids).args(["--clear-groups", "--"]).arg(copy);
            command
        }
    };
    command.args(["--exact", "the_sender"]).current_dir(&place.0).env(PLAYS, "yes");
    command.env("ONTEMPO_QOS_FOLDER", place.path("reports"));
    command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock")).stdout(Stdio::null());
    Killed(command.spawn().expect("it starts"))
}

fn run(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status().expect("it starts");
    assert!(status.success(), "{program}: {status}");
}

/// The number of the sending socket of this name.
fn index_of(master: &Master, name: &str) -> String {
    let names = master.query("snmpwalk", &format!("{ROOT}.1.2.1.2"));
    let line = names.lines().find(|line| line.contains(name)).expect("the socket");
    let (head, _) = line.split_once(" = ").expect("a value");
    head.rsplit('.').next().expect("a number").to_owned()
}

fn column(master: &Master, column: u32, index: &str) -> String {
    let printed = master.query("snmpget", &format!("{ROOT}.1.2.1.{column}.{index}"));
    printed.split_once(" = ").map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// A manager steps the sender down and up, and releases it.
fn steps(master: &Master) {
    let index = index_of(master, "ladder");
    assert_eq!([23, 24, 25].map(|one| column(master, one, &index)), ["3", "0", "-1"]);
    let held = format!("{ROOT}.1.2.1.25.{index}");
    let agreed = format!("{ROOT}.1.3.1.8.{index}.2");
    for (rung, rate) in [("2", "= 20000"), ("1", "= 40000")] {
        let printed = master.set("private", &held, rung);
        assert!(printed.contains(&format!("= {rung}")), "{printed}");
        wait_until("the step", || column(master, 24, &index) == rung);
        wait_until("its agreement", || master.query("snmpget", &agreed).contains(rate));
        assert_eq!(column(master, 25, &index), rung);
    }
    master.set("private", &held, "-1");
    wait_until("the first rung", || column(master, 24, &index) == "0");
    assert_eq!(column(master, 25, &index), "-1");
    // The file that told it is gone.
    wait_until("no orders", || {
        let names = fs::read_dir(master.place.path("reports")).expect("the folder").flatten();
        !names.into_iter().any(|one| one.file_name().to_string_lossy().contains("orders"))
    });
}

#[test]
fn a_manager_holds_a_sender_at_a_rung_of_its_ladder_where_the_operator_allows_it() {
    if !require_programs(&["snmpd", "snmpset", "snmpget", "snmpwalk"]) {
        return;
    }
    let master = Master::new("snmp-set");
    let _agent = master.agent();
    let _sender = sender(&master.place, None);
    let to = master.to();
    let words = ["export", &to, "--folder", "reports"];
    let count = format!("{ROOT}.1.1.0");
    let exporting = Killed(master.place.spawn(&words));
    // Both ends of both are in one process.
    wait_until("the sockets", || master.query("snmpget", &count).contains("= 4"));
    let held = format!("{ROOT}.1.2.1.25.{}", index_of(&master, "ladder"));
    let refused = master.set("private", &held, "1");
    assert!(refused.contains("notWritable"), "without --allow-set: {refused}");
    drop(exporting);

    let _exporting = Killed(master.place.spawn(&[&words[..], &["--allow-set"]].concat()));
    wait_until("the sub-agent again", || {
        let printed = master.query("snmpget", &count);
        printed.contains("= 4") && master.set("private", &held, "3").contains("wrongValue")
    });
    let index = index_of(&master, "ladder");
    let held = format!("{ROOT}.1.2.1.25.{index}");
    for (community, name, value, why) in [
        ("public", held.clone(), "1", "noAccess"),
        ("private", held.clone(), "-2", "wrongValue"),
        ("private", format!("{ROOT}.1.2.1.25.{}", index_of(&master, "none")), "0", "wrongValue"),
        ("private", format!("{ROOT}.1.2.1.25.77"), "0", "noCreation"),
        ("private", format!("{ROOT}.1.2.1.24.{index}"), "0", "notWritable"),
    ] {
        let printed = master.set(community, &name, value);
        assert!(printed.contains(why), "{name} {value}: {printed}");
    }
    assert_eq!(column(&master, 24, &index), "0", "nothing was set");
    steps(&master);
}

#[test]
fn root_holds_another_users_sender_and_no_third_user_does() {
    if !require_root() || !require_programs(&["snmpd", "snmpset", "snmpget", "snmpwalk", "setpriv"])
    {
        return;
    }
    let master = Master::new("snmp-set-other");
    let _agent = master.agent();
    let other = sender(&master.place, Some("64005"));
    let words = ["export", &master.to(), "--folder", "reports", "--allow-set"];
    let _exporting = Killed(master.place.spawn(&words));
    let count = format!("{ROOT}.1.1.0");
    wait_until("the sockets", || master.query("snmpget", &count).contains("= 4"));
    // Orders of a third user, in a folder where all may write: not obeyed.
    let process = other.0.id();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("its start is field 22");
    let started = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    let started = started.expect("a start");
    let forged = master.place.path(&format!("reports/{process}.orders"));
    let held: Vec<_> = (1..=8).map(|id| format!("\"{id}\":2")).collect();
    let text =
        format!("{{\"process\":{process},\"started\":{started},\"held\":{{{}}}}}", held.join(","));
    fs::write(&forged, &text).expect("written");
    std::os::unix::fs::chown(&forged, Some(64_006), Some(64_006)).expect("another user's");
    std::thread::sleep(Wall::from_millis(1_500));
    let index = index_of(&master, "ladder");
    assert_eq!(column(&master, 24, &index), "0", "it obeyed a third user");
    // Root's take its place.
    steps(&master);
    // The same text of root's is obeyed: the test above was one of ownership.
    fs::write(&forged, &text).expect("written");
    wait_until("root's orders", || column(&master, 24, &index) == "2");
}
