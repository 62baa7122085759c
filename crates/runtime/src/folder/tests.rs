//! A run appears in its folder completely or not at all.

use std::fs;

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_appear_together_and_an_abandoned_run_leaves_what_was_there() {
    let root = std::env::temp_dir().join(format!("ontempo-folder-{}", std::process::id()));
    let mut run = RunFolder::begin(&root).unwrap();
    run.create("a").unwrap().write_all(b"first").unwrap();
    assert_eq!(names(&root), [PARTIAL]);
    run.keep(Some("{}")).unwrap();
    assert_eq!(names(&root), ["a", MANIFEST]);

    let mut run = RunFolder::begin(&root).unwrap();
    run.create("a").unwrap().write_all(b"second").unwrap();
    drop(run);
    assert_eq!(names(&root), ["a", MANIFEST]);
    assert_eq!(fs::read(root.join("a")).unwrap(), b"first");

    // A run without a manifest must not keep that of an earlier run, nor use the files that a
    // killed run left behind.
    let left = make_partial(&OutputFolder::create(&root).unwrap()).unwrap();
    // A process that another test starts has it, too, until its program begins.
    rustix::fs::flock(&left, FlockOperation::Unlock).unwrap();
    drop(left);
    fs::write(root.join(PARTIAL).join("b.parquet"), "half").unwrap();
    RunFolder::begin(&root).unwrap().keep(None).unwrap();
    assert_eq!(names(&root), ["a"]);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn who_can_rename_the_folders_cannot_have_files_written_or_removed_elsewhere() {
    use std::os::unix::fs::symlink;
    let root = std::env::temp_dir().join(format!("ontempo-swapped-{}", std::process::id()));
    let (out, victim) = (root.join("out"), root.join("victim"));
    fs::create_dir_all(&victim).unwrap();
    for name in ["a", MANIFEST] {
        fs::write(victim.join(name), "of another").unwrap();
    }
    let kept = |what: &str| {
        assert_eq!(names(&victim), ["a", MANIFEST], "{what}");
        assert_eq!(fs::read(victim.join("a")).unwrap(), b"of another", "{what}");
    };
    fs::create_dir(&out).unwrap();
    symlink(&victim, out.join(PARTIAL)).unwrap();
    assert!(RunFolder::begin(&out).is_err(), "a link is there");
    kept("a link before the run");
    fs::remove_file(out.join(PARTIAL)).unwrap();

    let mut run = RunFolder::begin(&out).unwrap();
    fs::rename(out.join(PARTIAL), out.join("moved")).unwrap();
    symlink(&victim, out.join(PARTIAL)).unwrap();
    run.create("a").unwrap().write_all(b"ours").unwrap();
    kept("a link during the run");
    symlink(victim.join("a"), out.join("a")).unwrap();
    run.keep(Some("{}")).unwrap();
    kept("a link in a file's place");
    assert_eq!(fs::read(out.join("a")).unwrap(), b"ours");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn outdated_files_go_from_the_folder_that_was_opened_not_from_what_has_its_name() {
    use std::os::unix::fs::symlink;
    let root = std::env::temp_dir().join(format!("ontempo-outdated-{}", std::process::id()));
    let (out, victim) = (root.join("out"), root.join("victim"));
    for folder in [&out, &victim] {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("old"), "old").unwrap();
    }
    let opened = OutputFolder::create(&out).unwrap();
    fs::rename(&out, root.join("moved")).unwrap();
    symlink(&victim, &out).unwrap();
    let mut run = RunFolder::begin_in(opened, &out).unwrap();
    run.create("a").unwrap().write_all(b"ours").unwrap();
    run.replaces(vec!["old".to_owned(), "never".to_owned()]);
    run.keep(Some("{}")).unwrap();
    assert_eq!(names(&victim), ["old"]);
    assert_eq!(names(&root.join("moved")), ["a", MANIFEST]);
    fs::remove_dir_all(&root).unwrap();
}

/// What a run says that finds `.partial` made by another: its error names the folder.
fn refusal(out: &Path) -> String {
    let error = RunFolder::begin(out).expect_err("it is refused").to_string();
    assert!(error.starts_with(&out.join(PARTIAL).display().to_string()), "{error}");
    error
}

#[test]
fn a_second_run_into_the_folder_of_one_that_goes_on_is_refused_and_takes_nothing_from_it() {
    let root = std::env::temp_dir().join(format!("ontempo-two-{}", std::process::id()));
    let mut first = RunFolder::begin(&root).unwrap();
    first.create("flows.parquet").unwrap().write_all(b"first").unwrap();
    assert!(refusal(&root).contains("another run is being written to this folder"));
    assert_eq!(names(&root.join(PARTIAL)), ["flows.parquet"]);
    first.keep(Some("{}")).unwrap();
    assert_eq!(names(&root), ["flows.parquet", MANIFEST]);
    // Now it may.
    RunFolder::begin(&root).unwrap().keep(Some("{}")).unwrap();
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn what_ontempo_did_not_make_is_not_emptied() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let root = std::env::temp_dir().join(format!("ontempo-others-{}", std::process::id()));
    let partial = root.join(PARTIAL);
    fs::create_dir_all(&partial).unwrap();
    fs::write(partial.join("a"), "of another").unwrap();
    // A folder that others may read was not made for incomplete files, whoever owns it.
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(refusal(&root).contains("mode 755"));
    assert_eq!(names(&partial), ["a"]);
    fs::rename(&partial, root.join("other")).unwrap();
    symlink(root.join("other"), &partial).unwrap();
    assert!(refusal(&root).contains("no folder"));
    assert_eq!(names(&root.join("other")), ["a"]);
    fs::remove_file(&partial).unwrap();
    fs::write(&partial, "a file").unwrap();
    assert!(refusal(&root).contains("no folder"));
    assert_eq!(fs::read(&partial).unwrap(), b"a file");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_folder_that_was_moved_there_is_not_emptied() {
    use std::os::unix::fs::PermissionsExt;
    let root = std::env::temp_dir().join(format!("ontempo-moved-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let partial = root.join(PARTIAL);
    fs::create_dir_all(&partial).unwrap();
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(partial.join("key"), "precious").unwrap();
    fs::write(partial.join("flows.parquet"), "precious").unwrap();
    assert!(refusal(&root).contains("`key` in it is no file of a run"));
    // Where others may write, also a folder with files of a run is another that has this name.
    fs::remove_file(partial.join("key")).unwrap();
    for mode in [0o775, 0o777, 0o1777] {
        fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refusal(&root).contains("others can write to the folder that it is in"));
    }
    assert_eq!(names(&partial), ["flows.parquet"]);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    drop(RunFolder::begin(&root).unwrap());
    assert_eq!(names(&root), [""; 0]);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_run_removes_what_it_made_and_nothing_else() {
    let root = std::env::temp_dir().join(format!("ontempo-only-{}", std::process::id()));
    let mut run = RunFolder::begin(&root).unwrap();
    run.create("a").unwrap();
    fs::write(root.join(PARTIAL).join("key"), "precious").unwrap();
    drop(run);
    assert_eq!(names(&root.join(PARTIAL)), ["key"]);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_run_that_cannot_be_kept_leaves_the_earlier_one_as_it_was() {
    let root = std::env::temp_dir().join(format!("ontempo-undone-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let run = |text: &str, names: &[&str]| {
        let mut run = RunFolder::begin(&root).unwrap();
        for name in names {
            run.create(name).unwrap().write_all(text.as_bytes()).unwrap();
        }
        run
    };
    run("first", &["a", "b"]).keep(Some("first")).unwrap();
    let is_first = || {
        for name in ["a", "b", MANIFEST] {
            assert_eq!(fs::read(root.join(name)).unwrap(), b"first", "{name}");
        }
    };
    fs::create_dir(root.join("c")).unwrap();
    let error = run("second", &["a", "c"]).keep(Some("second")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    is_first();
    assert_eq!(names(&root), ["a", "b", "c", MANIFEST]);
    // One that fails when others have been replaced: the file is gone.
    let failing = run("second", &["a", "b"]);
    let mut failing = failing;
    failing.files.push("gone".to_owned());
    let error = failing.place().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    is_first();
    drop(failing);
    assert_eq!(names(&root), ["a", "b", "c", MANIFEST]);
    // What cannot be undone is said, and not removed.
    let mut failing = run("second", &["a", "b"]);
    failing.files.push("gone".to_owned());
    let mut placed = 0;
    failing.replace_all(&mut placed).unwrap_err();
    assert_eq!(placed, 2);
    fs::remove_file(root.join("a")).unwrap();
    assert!(failing.undo(placed).is_err());
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let root = std::env::temp_dir().join(format!("ontempo-modes-{}", std::process::id()));
    for text in ["first", "second"] {
        let mut run = RunFolder::begin(&root).unwrap();
        run.create("a").unwrap().write_all(text.as_bytes()).unwrap();
        run.keep(None).unwrap();
        assert_eq!(fs::read(root.join("a")).unwrap(), text.as_bytes());
        fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
        if text == "second" {
            let mut run = RunFolder::begin(&root).unwrap();
            run.create("a").unwrap();
            run.keep(None).unwrap();
            assert_eq!(fs::metadata(root.join("a")).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn only_a_file_that_this_user_alone_has_written_names_files_of_an_earlier_run() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let root = std::env::temp_dir().join(format!("ontempo-earlier-{}", std::process::id()));
    let run = RunFolder::begin(&root).unwrap();
    let path = root.join(MANIFEST);
    fs::write(&path, "{}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run.read_earlier(MANIFEST).unwrap(), "{}");
    fs::hard_link(&path, root.join("other")).unwrap();
    assert!(run.read_earlier(MANIFEST).is_err(), "it may be a file from elsewhere");
    fs::remove_file(root.join("other")).unwrap();
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(run.read_earlier(MANIFEST).is_err(), "others may have written it");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(MAX_MANIFEST + 1).unwrap();
    let error = run.read_earlier(MANIFEST).unwrap_err().to_string();
    assert_eq!(error, "it has 67108865 bytes, of at most 67108864");
    drop(run);
    if ontempo_testing::require_root() {
        // Nor does it remove the file of another user.
        fs::write(&path, "{}").unwrap();
        fs::write(root.join("old"), "of another").unwrap();
        chown(root.join("old"), Some(65_534), None).unwrap();
        chown(&path, Some(65_534), None).unwrap();
        let mut run = RunFolder::begin(&root).unwrap();
        assert!(run.read_earlier(MANIFEST).is_err());
        run.replaces(vec!["old".to_owned()]);
        run.keep(None).unwrap();
        assert_eq!(names(&root), ["old"]);
    }
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn root_does_not_empty_the_folder_of_another_user() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !ontempo_testing::require_root() {
        return;
    }
    let root = std::env::temp_dir().join(format!("ontempo-foreign-{}", std::process::id()));
    let partial = root.join(PARTIAL);
    fs::create_dir_all(&partial).unwrap();
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(partial.join("a"), "of another").unwrap();
    chown(&partial, Some(65_534), None).unwrap();
    assert!(refusal(&root).contains("user 65534"));
    assert_eq!(names(&partial), ["a"]);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_folder_made_for_an_abandoned_run_goes_with_it() {
    let root = std::env::temp_dir().join(format!("ontempo-made-{}", std::process::id()));
    drop(RunFolder::begin(&root).unwrap());
    assert!(!root.exists());
}
