//! The file of an identity.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ontempo_testing::{require_programs, require_root};
use ontempo_transport::Identity;

/// Names the directory of the test that this process runs alone.
const DIRECTORY: &str = "ONTEMPO_TEST_DIRECTORY";

/// A directory of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("ontempo-identity-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn an_identity_is_made_once_and_is_readable_by_its_owner_only() {
    let folder = Folder::new("once");
    let path = folder.0.join("identity.pem");
    let made = Identity::load_or_create(&path, &["a"]).expect("made");
    let loaded = Identity::load_or_create(&path, &["a"]).expect("loaded");
    assert_eq!(made.fingerprint(), loaded.fingerprint());
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(names(&folder.0), ["identity.pem"]);
}

#[test]
fn an_identity_that_others_may_write_is_not_taken() {
    let folder = Folder::new("writable");
    let path = folder.0.join("identity.pem");
    Identity::load_or_create(&path, &["a"]).expect("made");
    for mode in [0o620, 0o602] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let error = Identity::load_or_create(&path, &["a"]).expect_err("refused").to_string();
        let right = format!("(mode {mode:o}): chmod go-w {}", path.display());
        assert!(error.ends_with(&right), "{error}");
    }
}

#[test]
fn an_identity_of_another_user_is_not_taken() {
    if !require_root() {
        return;
    }
    let folder = Folder::new("foreign");
    let path = folder.0.join("identity.pem");
    Identity::load_or_create(&path, &["a"]).expect("made");
    std::os::unix::fs::chown(&path, Some(65_534), None).expect("root may");
    let error = Identity::load_or_create(&path, &["a"]).expect_err("refused").to_string();
    assert!(error.contains("user 65534 owns it: it must belong to user 0 or to root"), "{error}");
}

#[test]
fn programs_that_start_at_once_get_one_identity() {
    let folder = Folder::new("race");
    let path = folder.0.join("identity.pem");
    let make = || Identity::load_or_create(&path, &["a"]).expect("made").fingerprint();
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ended")).collect()
    });
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    assert_eq!(names(&folder.0), ["identity.pem"]);
}

#[test]
fn a_full_disk_leaves_no_file() {
    // The test starts itself once more, on the full disk.
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return on_a_full_disk(Path::new(&directory));
    }
    if !require_programs(&["unshare", "mount", "sh"]) || !require_root() {
        return;
    }
    let folder = Folder::new("full");
    let script = "mount -t tmpfs -o size=4k tmpfs \"$0\" && exec \"$1\" --exact \
                  a_full_disk_leaves_no_file --nocapture";
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(&folder.0)
        .arg(std::env::current_exe().expect("this program has a file"))
        .env(DIRECTORY, &folder.0)
        .status()
        .expect("unshare runs");
    assert!(status.success());
}

fn on_a_full_disk(directory: &Path) {
    let (path, other) = (directory.join("identity.pem"), directory.join("other"));
    fs::write(&other, vec![7; 4096]).expect("it fits");
    let error = Identity::load_or_create(&path, &["a"]).expect_err("the disk is full");
    let error = error.to_string();
    assert!(error.contains("cannot write it"), "{error}");
    assert_eq!(names(directory), ["other"]);
    // And once there is space, it works.
    fs::remove_file(&other).expect("removed");
    let made = Identity::load_or_create(&path, &["a"]).expect("made");
    let loaded = Identity::load_or_create(&path, &["a"]).expect("loaded");
    assert_eq!(made.fingerprint(), loaded.fingerprint());
}
