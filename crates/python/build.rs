//! Hashes the sources and the locked dependencies that decide what a run yields, for `engine_fingerprint` and `claims_fingerprint`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose code a run passes through, and what of it only films use.
const SOURCES: &str = include_str!("engine-sources.txt");

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-changed=engine-sources.txt");
    let (names, films) = listed(SOURCES)?;
    let films: Vec<PathBuf> = films.iter().map(|place| crates.join(place)).collect();
    if let Some(absent) = films.iter().find(|place| !place.exists()) {
        return Err(format!("engine-sources.txt: there is no {}", absent.display()).into());
    }
    let (mut whole, mut claims) = (Fnv::new(), Fnv::new());
    for name in &names {
        let sources = crates.join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        let mut files = Vec::new();
        rust_files(&sources, &mut files)?;
        files.sort();
        for file in files {
            let (place, content) = (file.strip_prefix(&crates)?, fs::read(&file)?);
            let is_of_films = films.iter().any(|film| file.starts_with(film));
            let place = place.to_string_lossy();
            whole.add_file(&place, &content);
            if !is_of_films {
                claims.add_file(&place, &content);
            }
        }
    }
    let lock = crates.join("..").join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    for package in locked(&fs::read_to_string(lock)?, &names)? {
        whole.add(package.as_bytes());
        claims.add(package.as_bytes());
    }
    println!("cargo::rustc-env=ONTEMPO_ENGINE_FINGERPRINT={:032x}", whole.0);
    println!("cargo::rustc-env=ONTEMPO_CLAIMS_FINGERPRINT={:032x}", claims.0);
    Ok(())
}

type Names<'a> = Vec<&'a str>;

/// The crates, and the places of films, of `engine-sources.txt`.
fn listed(text: &str) -> Result<(Names<'_>, Names<'_>), Box<dyn Error>> {
    let (mut crates, mut films) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ') {
            Some(("crate", name)) => crates.push(name),
            Some(("film", place)) => films.push(place),
            _ => return Err(format!("engine-sources.txt: neither crate nor film: {line}").into()),
        }
    }
    Ok((crates, films))
}

/// The packages of Cargo.lock that these crates of ours depend on, directly or through others, and
/// they themselves: each as `name version checksum`, in the order of the names. What only other
/// programs of the workspace use decides no run.
fn locked(lock: &str, crates: &[&str]) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let packages: Vec<Package<'_>> = lock.split("[[package]]").skip(1).map(Package::read).collect();
    let mut wanted: Vec<String> = crates.iter().map(|name| format!("ontempo-{name}")).collect();
    let mut found = BTreeSet::new();
    while let Some(dependency) = wanted.pop() {
        let mut words = dependency.split(' ');
        let (name, version) = (words.next(), words.next());
        let package = packages
            .iter()
            .find(|one| {
                Some(one.name) == name && version.is_none_or(|version| one.version == version)
            })
            .ok_or_else(|| format!("Cargo.lock: there is no package {dependency}"))?;
        if found.insert(format!("{} {} {}", package.name, package.version, package.checksum)) {
            wanted.extend(package.dependencies.iter().map(|&one| one.to_owned()));
        }
    }
    Ok(found)
}

/// A package of Cargo.lock. A dependency is written `name`, or `name version` where several versions
/// are locked.
#[derive(Default)]
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    checksum: &'a str,
    dependencies: Vec<&'a str>,
}

impl<'a> Package<'a> {
    fn read(block: &'a str) -> Self {
        let mut package = Self::default();
        for line in block.lines() {
            let quoted = line.split('"').nth(1).unwrap_or_default();
            match line.split(" = ").next().unwrap_or_default() {
                "name" => package.name = quoted,
                "version" => package.version = quoted,
                "checksum" => package.checksum = quoted,
                indented if indented.starts_with(" \"") => package.dependencies.push(quoted),
                _ => {}
            }
        }
        package
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, 128 bits: tells versions of the same sources apart, and needs no dependency.
struct Fnv(u128);

impl Fnv {
    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add_file(&mut self, place: &str, content: &[u8]) {
        self.add(place.as_bytes());
        self.add(content);
    }

    /// Adds a piece, and its length, so that pieces cannot be shifted into one another.
    fn add(&mut self, piece: &[u8]) {
        let length = (piece.len() as u64).to_le_bytes();
        for byte in length.iter().chain(piece) {
            self.0 ^= u128::from(*byte);
            self.0 = self.0.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}
