//! Compares the BPF program's arithmetic, compiled for this machine, with PERT in Rust.
//!
//! `vectors/pert.csv` holds inputs in fixed point and the results of PERT in Rust; with
//! `ONTEMPO_WRITE_VECTORS=1` it is rewritten. `bpf/host.c` computes the same inputs.

mod vectors_support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vectors_support::generate;

/// The largest allowed difference from the Rust result, as a fraction of it, and the absolute
/// difference that is always allowed; by the kind of row and the result's column.
///
/// These are the roundings that docs/kernel.md states.
fn allowed(kind: &str, place: usize) -> (f64, f64) {
    let share = 1.0 / f64::from(1 << 24);
    let packet = 1.0 / f64::from(1 << 20);
    match (kind, place) {
        // T_3 in microseconds; a probability; a decrease; a mode; two windows and one at once.
        ("L", 0) => (1e-7, 1e-3),
        ("L", 1) => (0.0, 6.0 * share),
        ("L", 2) => (0.0, share),
        ("L", 3) => (0.0, 0.0),
        ("L", _) => (1e-6, 2.0 * packet),
        ("K", _) => (0.0, 2e-6),
        ("I", _) => (0.0, packet),
        ("F", _) => (0.0, 0.0),
        // A whole connection: window, threshold, alpha; mode; queueing delay; responses.
        (_, 0..=2) => (5e-6, 2.0 * packet),
        (_, 4) => (0.0, 0.1),
        _ => (0.0, 0.0),
    }
}

/// Fixed point to the unit of the expectations.
fn natural(kind: &str, place: usize, fixed: u64) -> f64 {
    let delay = fixed as f64 / f64::from(1 << 12);
    let share = fixed as f64 / f64::from(1 << 24);
    let packets = fixed as f64 / f64::from(1 << 20);
    match (kind, place) {
        ("L", 0) => delay,
        ("L", 1 | 2) | ("K", _) => share,
        ("L", 3) | ("F", _) => fixed as f64,
        ("L" | "I", _) => packets,
        (_, 0..=2) => packets,
        (_, 4) => delay,
        _ => fixed as f64,
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/pert.csv")
}

#[test]
fn the_vectors_match_the_rust_pert() {
    let generated = generate();
    if std::env::var_os("ONTEMPO_WRITE_VECTORS").is_some() {
        fs::write(path(), &generated).expect("the vectors are written");
    }
    let kept = fs::read_to_string(path()).expect("the vectors are there");
    assert!(kept == generated, "the Rust PERT answers otherwise: see this file's head");
}

/// Compiles `bpf/host.c` with the C compiler that `make build` needs, too.
fn compile() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("pert-host-{}", std::process::id()));
    let status = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-sign-compare", "-Werror", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/host.c"))
        .status()
        .expect("the C compiler starts");
    assert!(status.success(), "bpf/host.c compiles");
    program
}

/// The C program's results for `input`.
fn answers(input: String) -> String {
    let program = compile();
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("its input");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads its input");
    fs::remove_file(&program).expect("the program is removed");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_arithmetic_of_the_bpf_program_agrees_within_its_rounding() {
    let vectors = fs::read_to_string(path()).expect("the vectors are there");
    let rows: Vec<Vec<&str>> =
        vectors.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let input: String = rows.iter().map(|row| format!("{} {}\n", row[0], row[1])).collect();
    let answered = answers(input);
    let expecting: Vec<&Vec<&str>> = rows.iter().filter(|row| row[0] != "P").collect();
    assert_eq!(answered.lines().count(), expecting.len());

    let mut worst = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for (row, answer) in expecting.iter().zip(answered.lines()) {
        let kind = if "SARTO".contains(row[0]) { "connection" } else { row[0] };
        let values = answer.split(' ').zip(row[2].split(' ')).enumerate();
        for (place, (fixed, expected)) in values {
            let value = natural(kind, place, fixed.parse().expect("a number"));
            let expected: f64 = expected.parse().expect("a number");
            let distance = (value - expected).abs();
            let (share, floor) = allowed(kind, place);
            if distance > floor.max(share * expected) {
                wrong.push(format!("{row:?} at {place}: {value} is not {expected}"));
            }
            let most = worst.entry((kind, place)).or_insert((0.0_f64, 0.0_f64));
            most.0 = most.0.max(distance);
            most.1 = most.1.max(distance / expected.max(1e-9));
        }
    }
    for ((kind, place), (distance, share)) in &worst {
        println!("{kind} {place}: at most {distance:.3e} apart, a share of {share:.3e}");
    }
    let count = wrong.len();
    wrong.truncate(5);
    assert!(wrong.is_empty(), "{count} differ, the first:\n{}", wrong.join("\n"));
}
