// Shared by the tests that feed a crate's fuzz corpus to the stable compiler's build.

use std::fs;
use std::path::Path;

/// Runs `exercise` on every file of `fuzz/corpus/TARGET` and `fuzz/regressions/TARGET`, and names
/// the file if it fails; `fuzz` is the crate's folder of that name.
pub(crate) fn feed(fuzz: &Path, target: &str, exercise: fn(&[u8])) {
    for folder in ["corpus", "regressions"] {
        let folder = fuzz.join(folder).join(target);
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut fed = 0;
        for entry in entries {
            let path = entry.expect("the folder can be read").path();
            let bytes = fs::read(&path).expect("the file can be read");
            println!("{}", path.display());
            exercise(&bytes);
            fed += 1;
        }
        assert!(fed > 0, "nothing is in {}", folder.display());
    }
}
