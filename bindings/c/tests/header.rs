//! `include/ontempo.h` is that of the sources, and its ABI is that of its number.

use std::fs;
use std::path::Path;

use ontempo::ONTEMPO_ABI;

/// What a program of C depends on: the declarations, without comments and blank lines.
fn declarations(header: &str) -> Vec<String> {
    let mut in_comment = false;
    let mut kept = Vec::new();
    for line in header.lines().map(str::trim) {
        in_comment |= line.starts_with("/*");
        let is_comment = in_comment || line.starts_with("//");
        in_comment &= !line.ends_with("*/");
        if !is_comment && !line.is_empty() {
            kept.push(line.to_owned());
        }
    }
    kept
}

#[test]
fn the_header_is_written_from_the_sources_and_changes_of_the_abi_have_a_new_number() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (header, abi) = (folder.join("include/ontempo.h"), folder.join("abi.txt"));
    let mut written = Vec::new();
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("read");
    let builder = cbindgen::Builder::new().with_crate(folder).with_config(config);
    builder.generate().expect("a header").write(&mut written);
    let written = String::from_utf8(written).expect("text");
    let text: String = format!("{ONTEMPO_ABI}\n{}\n", declarations(&written).join("\n"));
    let before = fs::read_to_string(&abi).unwrap_or_default();
    if std::env::var_os("ONTEMPO_WRITE_HEADER").is_some() {
        fs::write(&header, &written).expect("written");
    }
    assert_eq!(
        fs::read_to_string(&header).unwrap_or_default(),
        written,
        "include/ontempo.h is not up to date: run make c-header"
    );
    // Additions are lines that were not there; all that was has to stay, in its order.
    let mut new = text.lines();
    let is_kept = before.lines().all(|line| new.any(|one| one == line));
    let is_same_number = before.lines().next() == Some(&*ONTEMPO_ABI.to_string());
    assert!(
        is_kept || !is_same_number,
        "a declaration of ABI {ONTEMPO_ABI} has changed: raise ONTEMPO_ABI, or add instead"
    );
    if std::env::var_os("ONTEMPO_WRITE_HEADER").is_some() {
        fs::write(&abi, &text).expect("written");
    }
    assert_eq!(fs::read_to_string(&abi).unwrap_or_default(), text, "abi.txt: run make c-header");
}

/// The part of a manifest below a heading.
fn part<'a>(manifest: &'a str, heading: &str) -> &'a str {
    let (_, below) = manifest.split_once(&format!("\n[{heading}]\n")).expect("the heading");
    below.split_once("\n[").map_or(below, |(part, _)| part)
}

#[test]
fn cargo_c_finds_its_feature_and_the_number_of_the_abi() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest");
    assert!(part(&manifest, "features").contains("\ncapi = []"), "cargo-c builds with it");
    let library = part(&manifest, "package.metadata.capi.library");
    let (_, version) = library.split_once("version = \"").expect("a version");
    let first = version.split('.').next().expect("a number");
    assert_eq!(first, ONTEMPO_ABI.to_string(), "the library's first number is the ABI's");
}
