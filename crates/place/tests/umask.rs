//! In a program of its own: the umask is that of all threads.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ontempo_place::make_system_folder;
use rustix::fs::Mode;

#[test]
fn a_system_folder_that_is_made_has_its_rights_whatever_the_umask() {
    let folder = std::env::temp_dir().join(format!("ontempo-made-{}", std::process::id()));
    for mask in [0o000, 0o002, 0o077] {
        let before = rustix::process::umask(Mode::from_raw_mode(mask));
        let made = make_system_folder(&folder);
        rustix::process::umask(before);
        assert!(made.unwrap());
        assert!(!make_system_folder(&folder).unwrap(), "it is there");
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o755, "{mask:o}");
        fs::remove_dir(&folder).unwrap();
    }
}
