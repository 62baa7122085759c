//! Another user's attempts need root.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use ontempo_testing::require_root;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};

use crate::{Output, OutputFolder, read_own, write_new};

const OTHER: u32 = 65_534;

/// A folder of mode 1777 in one of this test's own.
struct Shared(PathBuf);

impl Shared {
    fn new(test: &str) -> Self {
        let name = format!("ontempo-output-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("shared")).expect("made");
        let open = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(path.join("shared"), open).expect("set");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("shared").join(name)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mkfifo(path: &Path) {
    let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
    rustix::fs::mknodat(CWD, path, kind, mode, 0).expect("a named pipe");
}

fn refused<T: std::fmt::Debug>(opened: io::Result<T>, what: &str) {
    let error = opened.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains(what) && text.contains("belongs to user 65534"), "{text}");
}

#[test]
fn an_abandoned_folder_goes_if_it_was_made_and_is_empty() {
    let shared = Shared::new("abandoned");
    let path = shared.path("made");
    let made = OutputFolder::create(&path).expect("made");
    OutputFolder::create(&path).expect("there").abandon();
    assert!(path.exists(), "another made it");
    fs::write(path.join("file"), "").expect("written");
    made.abandon();
    assert!(path.exists(), "a file is in it");
    fs::remove_file(path.join("file")).expect("removed");
    made.abandon();
    assert!(!path.exists());
}

#[test]
fn processes_with_one_number_replace_a_file_at_once() {
    let shared = Shared::new("numbers");
    let path = shared.path("file");
    // What a process of this number in another container has begun.
    let begun = shared.path(&format!(".file.{}", std::process::id()));
    fs::write(&begun, "half").expect("written");
    Output::at(&path, true).expect("its own").replace(b"whole").expect("replaced");
    assert_eq!(fs::read(&path).expect("read"), b"whole");
    assert_eq!(fs::read(&begun).expect("read"), b"half");
}

#[test]
fn what_another_user_puts_into_a_shared_folder_is_refused() {
    if !require_root() {
        return;
    }
    let shared = Shared::new("refused");
    let victim = shared.0.join("victim");
    fs::create_dir(&victim).expect("made");
    fs::write(shared.path("file"), "").expect("written");
    mkfifo(&shared.path("fifo"));
    fs::create_dir(shared.path("folder")).expect("made");
    symlink(&victim, shared.path("link")).expect("linked");
    for (name, what) in
        [("file", "file"), ("fifo", "named pipe"), ("folder", "folder"), ("link", "link")]
    {
        let path = shared.path(name);
        assert!(Output::at(&path, true).is_ok(), "its own {what}");
        lchown(&path, Some(OTHER), Some(OTHER)).expect("root may");
        refused(Output::at(&path, true), what);
        refused(Output::at(&path, false), what);
    }
    refused(Output::at(&shared.path("link/new"), true), "link");
    refused(OutputFolder::create(&shared.path("link")), "link");
    refused(OutputFolder::create(&shared.path("link/new")), "link");
    refused(OutputFolder::create(&shared.path("folder")), "folder");
    assert_eq!(fs::read_dir(&victim).expect("read").count(), 0);
    // Through a link of our own elsewhere, too; and in a folder of the other user.
    symlink(shared.path("link"), shared.0.join("own")).expect("linked");
    refused(Output::at(&shared.0.join("own"), true), "link");
    chown(&victim, Some(OTHER), Some(OTHER)).expect("root may");
    fs::write(victim.join("file"), "").expect("written");
    chown(victim.join("file"), Some(OTHER), Some(OTHER)).expect("root may");
    refused(Output::at(&victim.join("file"), true), "file");
}

#[test]
fn what_takes_the_place_of_a_file_after_the_check_is_not_opened() {
    if !require_root() {
        return;
    }
    let shared = Shared::new("swapped");
    let (path, victim) = (shared.path("out"), shared.0.join("victim"));
    fs::write(&victim, "precious").expect("written");
    let place = Output::at(&path, true).expect("free");
    symlink(&victim, &path).expect("linked");
    assert_eq!(place.create_new(0o666).expect_err("a link").kind(), ErrorKind::AlreadyExists);
    assert!(place.open(|| false).is_err());
    fs::remove_file(&path).expect("removed");
    mkfifo(&path);
    chown(&path, Some(OTHER), Some(OTHER)).expect("root may");
    // A reader, so that opening does not wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = rustix::fs::open(&path, flags, Mode::empty()).expect("a reader");
    refused(place.open(|| false), "named pipe");
    // Nor is its reader waited for.
    drop(reader);
    let asked = AtomicUsize::new(0);
    refused(place.open(|| asked.fetch_add(1, Relaxed) > 3), "named pipe");
    fs::remove_file(&path).expect("removed");
    // What was made is removed where it was made, and nothing else.
    fs::create_dir(shared.path("runs")).expect("made");
    let place = Output::at(&shared.path("runs/line"), true).expect("free");
    let file = place.create_new(0o666).expect("made");
    fs::rename(shared.path("runs"), shared.path("old")).expect("moved");
    symlink(&shared.0, shared.path("runs")).expect("linked");
    fs::write(shared.0.join("line"), "precious").expect("written");
    place.remove(&file).expect("removed");
    assert!(shared.0.join("line").is_file() && !shared.path("old/line").exists());
    fs::write(shared.path("old/line"), "another").expect("written");
    assert!(place.remove(&file).is_err() && shared.path("old/line").is_file());
    // A folder stays the one that was opened.
    let folder = OutputFolder::create(&shared.path("qlog")).expect("made");
    fs::rename(shared.path("qlog"), shared.path("moved")).expect("moved");
    symlink(&shared.0, shared.path("qlog")).expect("linked");
    folder.create_new("trace").expect("made").write_all(b"x").expect("written");
    assert!(shared.path("moved/trace").is_file() && !shared.0.join("trace").exists());
}

#[test]
fn ordinary_places_are_opened() {
    let shared = Shared::new("ordinary");
    let own = shared.0.join("own/deep");
    let folder = OutputFolder::create(&own).expect("made with those on the way");
    folder.create_new("one").expect("made");
    folder.remove("one").expect("removed");
    // A link of our own, in a shared folder, to what does not exist yet.
    symlink(own.join("to"), shared.path("link")).expect("linked");
    let place = Output::at(&shared.path("link"), true).expect("our own link");
    place.create_new(0o600).expect("made").write_all(b"x").expect("written");
    assert_eq!(fs::read(own.join("to")).expect("there"), b"x");
    assert!(Output::at(&shared.path("link"), true).expect("a link").is_file());
    assert!(Output::at(&shared.path("link"), false).expect("a link").open(|| false).is_err());
    let null = Output::at(Path::new("/dev/null"), true).expect("a device");
    null.open(|| false).expect("opened").write_all(b"x").expect("written");
    let of_process = Output::at(Path::new("/dev/stderr"), true).expect("of this process");
    of_process.open(|| false).expect("opened");
    let missing = Output::at(&shared.path("none/new"), true).expect_err("no folder");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn several_threads_make_the_same_folders() {
    let shared = Shared::new("together");
    for round in 0..50 {
        let path = shared.path(&format!("{round}/a/b/c"));
        let begin = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            let make = || {
                begin.wait();
                OutputFolder::create(&path).map(drop)
            };
            let makers: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            for maker in makers {
                maker.join().expect("no panic").expect("made");
            }
        });
    }
}

#[test]
fn a_file_is_replaced_and_nothing_is_written_through_a_link() {
    let shared = Shared::new("replaced");
    let victim = shared.0.join("victim");
    fs::write(&victim, "precious").expect("written");
    symlink(&victim, shared.path("page")).expect("linked");
    Output::at(&shared.path("page"), false).expect("its own").replace(b"one").expect("replaced");
    assert_eq!(fs::read(shared.path("page")).expect("read"), b"one");
    let folder = OutputFolder::create(&shared.0.join("shared")).expect("its own");
    folder.replace("page", b"two").expect("replaced");
    assert_eq!(fs::read(shared.path("page")).expect("read"), b"two");
    assert_eq!(fs::read(victim).expect("read"), b"precious");
    // A failure leaves what was there, and nothing else.
    fs::create_dir(shared.path("folder")).expect("made");
    folder.replace("folder", b"three").expect_err("it is a folder");
    assert_eq!(fs::read_dir(shared.0.join("shared")).expect("read").count(), 2);
}

#[test]
fn a_folder_that_a_group_or_an_access_list_may_write_to_is_shared() {
    if !require_root() {
        return;
    }
    let shared = Shared::new("group");
    let victim = shared.0.join("victim");
    fs::write(&victim, "precious").expect("written");
    symlink(&victim, shared.path("link")).expect("linked");
    lchown(shared.path("link"), Some(OTHER), None).expect("root may");
    // The group is this process's own; with an access list its bits are the most that others may.
    for mode in [0o775, 0o2775, 0o720] {
        fs::set_permissions(shared.path(""), fs::Permissions::from_mode(mode)).expect("set");
        refused(Output::at(&shared.path("link"), true), "link");
        assert!(OutputFolder::create(&shared.path("")).expect("own").is_shared().expect("seen"));
    }
    fs::set_permissions(shared.path(""), fs::Permissions::from_mode(0o755)).expect("set");
    Output::at(&shared.path("link"), true).expect("nobody else can have put it there");
}

#[test]
fn a_link_that_is_exchanged_while_it_is_read_leads_nowhere_else() {
    if !require_root() {
        return;
    }
    let shared = Shared::new("exchanged");
    let [good, bad] = ["good", "bad"].map(|name| shared.0.join(name));
    for folder in [&good, &bad] {
        fs::create_dir(folder).expect("made");
    }
    let [link, evil] = ["link", "evil"].map(|name| shared.path(name));
    symlink(&good, &link).expect("linked");
    symlink(&bad, &evil).expect("linked");
    lchown(&evil, Some(OTHER), None).expect("root may");
    let bad = fs::metadata(bad).expect("made").ino();
    let is_done = AtomicBool::new(false);
    let exchange = || {
        while !is_done.load(Relaxed) {
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, &link, CWD, &evil, flags).expect("exchanged");
        }
    };
    let reached = thread::scope(|scope| {
        scope.spawn(exchange);
        let path = link.join("file");
        let reached = (0..30_000).filter_map(|_| {
            let place = Output::at(&path, true).ok()?;
            Some(rustix::fs::fstat(place.parts().0).expect("open").st_ino)
        });
        let reached: Vec<u64> = reached.collect();
        is_done.store(true, Relaxed);
        reached
    });
    assert!(!reached.is_empty());
    assert!(!reached.contains(&bad), "a link of another user was followed");
}

/// What is read of a secret at `path`, with nobody to wait for.
fn secret(path: &Path) -> io::Result<Vec<u8>> {
    read_own(path, 0o077, || true)
}

#[test]
fn a_secret_that_another_user_has_put_somewhere_is_not_read() {
    if !require_root() {
        return;
    }
    let shared = Shared::new("secrets");
    let in_memory = PathBuf::from(format!("/dev/shm/ontempo-secret-{}", std::process::id()));
    let (name, to) = (in_memory.file_name().expect("a name"), shared.path("secret"));
    let around = Path::new("/dev/../dev/shm").join(name);
    for path in [&in_memory, &around, &to] {
        fs::write(path, "known").expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(secret(path).expect("its own"), b"known");
        chown(path, Some(OTHER), None).expect("root may");
        let error = secret(path).expect_err("another's").to_string();
        assert!(error.contains("user 65534"), "{error}");
        fs::remove_file(path).expect("removed");
        mkfifo(path);
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("set");
        let error = secret(path).expect_err("others may write").to_string();
        assert!(error.contains("other users may write it (mode 666)"), "{error}");
        chown(path, Some(OTHER), None).expect("root may");
        assert_eq!(secret(path).expect_err("another's").kind(), ErrorKind::PermissionDenied);
        fs::remove_file(path).expect("removed");
    }
    // A file of this user's, by a link of another.
    fs::write(shared.0.join("known"), "known").expect("written");
    fs::set_permissions(shared.0.join("known"), fs::Permissions::from_mode(0o600)).expect("set");
    symlink(shared.0.join("known"), &to).expect("linked");
    assert_eq!(secret(&to).expect("its own link"), b"known");
    lchown(&to, Some(OTHER), None).expect("root may");
    refused(secret(&to), "link");
    // What the user has opened for this process may be anybody's; a device of the system's is.
    chown(shared.0.join("known"), Some(OTHER), None).expect("root may");
    let opened = fs::File::open(shared.0.join("known")).expect("root may");
    for folder in ["/dev/fd", "/proc/self/fd"] {
        let path = format!("{folder}/{}", opened.as_raw_fd());
        assert_eq!(secret(Path::new(&path)).expect("opened"), b"known");
    }
    assert_eq!(secret(Path::new("/dev/null")).expect("a device"), b"");
}

#[test]
fn the_writer_of_a_secret_is_waited_for_until_stopped() {
    let shared = Shared::new("waits");
    let path = shared.0.join("pipe");
    mkfifo(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    assert_eq!(secret(&path).expect_err("no writer").kind(), ErrorKind::Interrupted);
    let asked = AtomicUsize::new(0);
    let read = thread::scope(|scope| {
        scope.spawn(|| {
            while asked.load(Relaxed) < 2 {
                thread::yield_now();
            }
            let mut writer = fs::File::options().write(true).open(&path).expect("a reader");
            writer.write_all(b"one ").expect("written");
            thread::sleep(std::time::Duration::from_millis(120));
            writer.write_all(b"two").expect("written");
        });
        read_own(&path, 0o077, || asked.fetch_add(1, Relaxed) > 200)
    });
    assert_eq!(read.expect("written"), b"one two");
    // A file without an end is not read for ever.
    let error = secret(Path::new("/dev/zero")).expect_err("endless").to_string();
    assert_eq!(error, "it has more than 1048576 bytes");
}

#[test]
fn a_file_with_the_longest_name_is_replaced_and_keeps_its_permissions() {
    let shared = Shared::new("names");
    for name in ["n".repeat(255), "\u{fc}".repeat(127)] {
        let path = shared.path(&name);
        write_new(&path, b"new").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        Output::at(&path, false).expect("its own").replace(b"whole").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"whole");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
    }
    assert_eq!(fs::read_dir(shared.path("")).expect("read").count(), 2);
    if require_root() {
        // But not those that another user has chosen.
        let path = shared.0.join("anothers");
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o606)).expect("set");
        chown(&path, Some(OTHER), None).expect("root may");
        Output::at(&path, false).expect("a folder of its own").replace(b"x").expect("replaced");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o002, 0);
    }
}
