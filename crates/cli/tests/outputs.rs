//! Files that a user names where others can write: links, named pipes, files and folders of another user
//! are refused. And readers of runs that find a named pipe in a file's place.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

use common::{Place, Ran, SCENARIO, files};
use ontempo_testing::{require_programs, require_root};

const OTHER: u32 = 65_534;

/// Runs the program for at most ten seconds.
fn run(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    command.args(["10", env!("CARGO_BIN_EXE_ontempo")]).args(arguments).current_dir(&place.0);
    Ran::of(command.env_remove("SUDO_UID").output().expect("timeout starts"))
}

fn mkfifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|made| made.success()), "mkfifo");
}

#[test]
fn outputs_that_another_user_has_put_into_a_shared_folder_are_refused() {
    if !require_root() || !require_programs(&["timeout", "mkfifo"]) {
        return;
    }
    let place = Place::new("outputs-shared", SCENARIO);
    let shared = place.path("shared");
    fs::create_dir(&shared).expect("made");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("set");
    let victim = place.path("victim");
    fs::create_dir(&victim).expect("made");
    mkfifo(&shared.join("fifo"));
    symlink(&victim, shared.join("link")).expect("linked");
    symlink(victim.join("file"), shared.join("new")).expect("linked");
    fs::create_dir(shared.join("folder")).expect("made");
    for name in ["fifo", "link", "new", "folder"] {
        lchown(shared.join(name), Some(OTHER), Some(OTHER)).expect("root may");
    }
    let receive = ["receive", "--listen", "127.0.0.1:0", "--token", "x"];
    let to = |path| [&receive[..], &["--to", path]].concat();
    let with = |option, path| [&to("udp://127.0.0.1:9")[..], &[option, path]].concat();
    let simulate = |path| vec!["simulate", "s.toml", "--out", path];
    run(&place, &simulate("run")).succeeds();
    let show = vec!["show", "run", "--output", "shared/new"];
    let profile = vec!["profiles", "dsl", "--csv", "shared/new"];
    let asks = ["receive", "--listen", "127.0.0.1:0", "--to", "udp://127.0.0.1:9", "--token-file"];
    for (arguments, what) in [
        (to("shared/fifo"), "--to shared/fifo: the named pipe belongs"),
        (to("shared/new"), "--to shared/new: the link belongs"),
        (to("shared/link/film"), "--to shared/link/film: the link link belongs"),
        (with("--qlog", "shared/folder"), "shared/folder: the folder belongs"),
        (with("--qlog", "shared/link"), "shared/link: the link belongs"),
        ([&asks[..], &["shared/new"]].concat(), "--token-file shared/new: the link belongs"),
        (simulate("shared/link"), "--out shared/link: the link belongs"),
        (simulate("shared/folder"), "--out shared/folder: the folder belongs"),
        (show, "shared/new: the link belongs"),
        (profile, "--csv shared/new: the link belongs"),
    ] {
        run(&place, &arguments).fails(2, &[what, "to user 65534", "name a folder of your own"]);
    }
    let identity = run(&place, &with("--identity", "shared/new"));
    identity.fails(3, &["shared/new", "the link belongs to user 65534"]);
    assert_eq!(files(&victim), [""; 0], "nothing was written through a link");
    // Links of our own are followed, there, too.
    fs::create_dir(place.path("own")).expect("made");
    symlink(place.path("own"), shared.join("own")).expect("linked");
    run(&place, &simulate("shared/own")).succeeds();
    assert!(place.path("own/run.json").is_file());
}

#[test]
fn a_named_pipe_in_a_run_is_an_error_and_not_waited_for() {
    if !require_programs(&["timeout", "mkfifo"]) {
        return;
    }
    let place = Place::new("outputs-fifo", SCENARIO);
    run(&place, &["simulate", "s.toml", "--out", "run"]).succeeds();
    fs::create_dir(place.path("traces")).expect("made");
    mkfifo(&place.path("traces/x.sqlog"));
    let show = run(&place, &["show", "traces"]);
    show.fails(3, &["traces/x.sqlog: it is no regular file"]);
    for name in ["flows.parquet", "packets.parquet", "run.json"] {
        let (path, kept) = (place.path("run").join(name), place.path("kept"));
        fs::rename(&path, &kept).expect("moved");
        mkfifo(&path);
        let words = format!("run/{name}: it is no regular file");
        run(&place, &["summary", "run"]).fails(3, &[&words]);
        run(&place, &["show", "run", "--output", "other.html"]).fails(3, &[&words]);
        fs::rename(&kept, &path).expect("moved back");
    }
    // A new run takes its place.
    fs::remove_file(place.path("run/run.json")).expect("removed");
    mkfifo(&place.path("run/run.json"));
    run(&place, &["simulate", "s.toml", "--out", "run"]).succeeds();
    run(&place, &["summary", "run"]).succeeds();
    mkfifo(&place.path("page.html"));
    let show = run(&place, &["show", "run", "--output", "page.html"]);
    show.fails(3, &["page.html: it is no regular file"]);
}

#[test]
fn a_manifest_that_is_too_large_is_not_read() {
    let place = Place::new("outputs-large", SCENARIO);
    run(&place, &["simulate", "s.toml", "--out", "run"]).succeeds();
    let manifest = fs::File::options().write(true).open(place.path("run/run.json"));
    manifest.expect("written").set_len(1 << 30).expect("it has holes");
    let words = ["run/run.json: it has 1073741824 bytes, of at most 67108864"];
    run(&place, &["summary", "run"]).fails(3, &words);
    run(&place, &["show", "run"]).fails(3, &words);
    run(&place, &["simulate", "s.toml", "--out", "run"]).succeeds();
    run(&place, &["summary", "run"]).succeeds();
}

#[test]
fn a_manifest_of_another_user_names_no_file_to_remove() {
    if !require_root() || !require_programs(&["timeout"]) {
        return;
    }
    let place = Place::new("outputs-names", SCENARIO);
    let shared = place.path("shared");
    fs::create_dir(&shared).expect("made");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("set");
    fs::write(shared.join("precious.pcapng"), "precious").expect("written");
    let text = r#"{"seed": 1, "tables_version": 6, "traces": [{"file": "precious.pcapng"}]}"#;
    fs::write(shared.join("run.json"), text).expect("written");
    lchown(shared.join("run.json"), Some(OTHER), Some(OTHER)).expect("root may");
    run(&place, &["simulate", "s.toml", "--out", "shared"]).succeeds();
    assert_eq!(fs::read(shared.join("precious.pcapng")).expect("kept"), b"precious");
}

#[test]
fn secrets_that_another_user_has_put_there_are_not_taken() {
    if !require_root() || !require_programs(&["timeout"]) {
        return;
    }
    let place = Place::new("outputs-secrets", SCENARIO);
    let shared = place.path("shared");
    fs::create_dir(&shared).expect("made");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("set");
    let of_other = |path: &Path| lchown(path, Some(OTHER), Some(OTHER)).expect("root may");
    let receive = ["receive", "--listen", "127.0.0.1:0", "--to", "udp://127.0.0.1:9"];
    let with = |options: &[&str]| run(&place, &[&receive[..], options].concat());
    // A file of root's, by a link of another user.
    fs::write(place.path("known"), "known").expect("written");
    fs::set_permissions(place.path("known"), fs::Permissions::from_mode(0o600)).expect("set");
    for name in ["token", "identity", "trust"] {
        symlink(place.path("known"), shared.join(name)).expect("linked");
        of_other(&shared.join(name));
    }
    let link = "the link belongs to user 65534";
    with(&["--token-file", "shared/token"]).fails(2, &["--token-file shared/token", link]);
    let identity = with(&["--token", "x", "--identity", "shared/identity"]);
    identity.fails(3, &["--identity shared/identity", link]);
    let to = ["send", "--from", "s.toml", "--to", "127.0.0.1:9", "--trust", "shared/trust"];
    run(&place, &to).fails(2, &["--trust shared/trust", link]);
    // Below /dev, too.
    let name = format!("/dev/shm/ontempo-token-{}", std::process::id());
    fs::write(&name, "known").expect("written");
    fs::set_permissions(&name, fs::Permissions::from_mode(0o600)).expect("set");
    of_other(Path::new(&name));
    let token = with(&["--token-file", &name]);
    let identity = with(&["--token", "x", "--identity", &name]);
    fs::remove_file(&name).expect("removed");
    token.fails(2, &["--token-file", "the file belongs to user 65534"]);
    identity.fails(3, &["--identity", "the file belongs to user 65534"]);
}

#[test]
fn a_secret_whose_writer_is_waited_for_is_ended_by_a_signal() {
    if !require_programs(&["timeout", "mkfifo"]) {
        return;
    }
    let place = Place::new("outputs-waits", SCENARIO);
    mkfifo(&place.path("pipe"));
    fs::set_permissions(place.path("pipe"), fs::Permissions::from_mode(0o600)).expect("set");
    let receive = ["receive", "--listen", "127.0.0.1:0", "--to", "udp://127.0.0.1:9"];
    let with = |options: &[&'static str]| [&receive[..], options].concat();
    let gateway = ["gateway", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9"];
    let send = ["send", "--from", "s.toml", "--to", "127.0.0.1:9", "--insecure"];
    for (arguments, signal) in [
        (with(&["--token-file", "pipe"]), "TERM"),
        (with(&["--token", "x", "--identity", "pipe"]), "INT"),
        ([&gateway[..], &["--identity", "pipe"]].concat(), "TERM"),
        ([&send[..], &["--token-file", "pipe"]].concat(), "INT"),
        (vec!["probe", "127.0.0.1:9", "--token-file", "pipe"], "INT"),
    ] {
        let mut command = Command::new("timeout");
        // The signal, and 5 s later one that cannot be ignored, which ends `timeout`, too.
        command.args(["--preserve-status", "--kill-after=5", "--signal", signal, "1"]);
        command.arg(env!("CARGO_BIN_EXE_ontempo")).args(&arguments).current_dir(&place.0);
        let ended = command.output().expect("timeout starts");
        assert_eq!(ended.status.code(), Some(130), "{arguments:?}: SIG{signal} does nothing");
    }
}

/// Locks a folder as a run does that goes on.
fn locked(folder: &Path) -> fs::File {
    let open = fs::File::open(folder).expect("it is there");
    rustix::fs::flock(&open, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("free");
    open
}

/// A process that another test starts has the file, too, until its program begins.
fn unlock(open: &fs::File) {
    rustix::fs::flock(open, rustix::fs::FlockOperation::Unlock).expect("unlocked");
}

#[test]
fn a_second_run_into_a_folder_is_refused_at_once_while_the_first_goes_on() {
    let place = Place::new("outputs-two", SCENARIO);
    let partial = place.path("out").join(".partial");
    fs::create_dir_all(&partial).expect("made");
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o700)).expect("set");
    fs::write(partial.join("flows.parquet"), "half").expect("written");
    let one = ["simulate", "s.toml", "--out", "out"];
    let first = locked(&partial);
    run(&place, &one).fails(3, &["out/.partial: another run is being written to this folder"]);
    assert_eq!(files(&partial), ["flows.parquet"]);
    unlock(&first);
    run(&place, &one).succeeds();
    assert!(!partial.exists());
    // Runs of a study, of which each has its own folder.
    let study = ["simulate", "s.toml", "--out", "study", "--seeds", "1,2"];
    run(&place, &study).succeeds();
    let first = locked(&place.path("study"));
    run(&place, &study).fails(3, &["study: another run is being written to this folder"]);
    unlock(&first);
    run(&place, &study).succeeds();
}

#[test]
fn runs_of_different_scenarios_have_no_mean() {
    let place = Place::new("outputs-other", SCENARIO);
    let study = |seeds: &str, set: &str| {
        run(&place, &["simulate", "s.toml", "--out", "out", "--seeds", seeds, "--set", set])
    };
    study("1..3", "seed=1").succeeds();
    // The scenario's own seed does not count.
    study("4", "seed=7").succeeds();
    assert_eq!(run(&place, &["summary", "out", "--json"]).succeeds().json()["complete"], true);
    let other = "topology.bottleneck.rate=\"3 Mbit/s\"";
    study("5", other).fails(2, &["out/seed-", "its scenario is another than the one to be run"]);
    assert!(!place.path("out/seed-5").exists());
    // Its own runs it may replace, but not when others stay.
    study("1..3", other).fails(2, &["out/seed-4: its scenario"]);
    study("1..4", other).succeeds();
    let single = ["simulate", "s.toml", "--out", "out/seed-3", "--seed", "3"];
    run(&place, &single).succeeds();
    for json in [&["summary", "out"][..], &["summary", "out", "--json"]] {
        run(&place, json)
            .fails(2, &["out/seed-3: its scenario is another than that of out/seed-1"]);
    }
    run(&place, &["summary", "out/seed-3"]).succeeds();
}
