//! Hashes the sources that decide what a run yields, for `engine_fingerprint`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose code a run passes through.
const CRATES: [&str; 10] = [
    "foundation",
    "mechanisms",
    "network",
    "media",
    "scenario",
    "transport",
    "session",
    "elements",
    "runtime",
    "simulator",
];

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut hash = Fnv::new();
    for name in CRATES {
        let sources = crates.join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        let mut files = Vec::new();
        rust_files(&sources, &mut files)?;
        files.sort();
        for file in files {
            let place = file.strip_prefix(&crates)?;
            hash.add(place.to_string_lossy().as_bytes());
            hash.add(&fs::read(&file)?);
        }
    }
    let lock = crates.join("..").join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    hash.add(&fs::read(lock)?);
    println!("cargo::rustc-env=ONTEMPO_ENGINE_FINGERPRINT={:032x}", hash.0);
    Ok(())
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

    /// Adds a piece, and its length, so that pieces cannot be shifted into one another.
    fn add(&mut self, piece: &[u8]) {
        let length = (piece.len() as u64).to_le_bytes();
        for byte in length.iter().chain(piece) {
            self.0 ^= u128::from(*byte);
            self.0 = self.0.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}
