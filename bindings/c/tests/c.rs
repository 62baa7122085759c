//! Programs in C, compiled with the header and run with the library, under valgrind.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ontempo_testing::require_programs;

/// The library, installed for the tests: its prefix. `cargo build` has made it.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let test = std::env::current_exe().expect("this program");
        let built = test.ancestors().nth(2).expect("target/PROFILE");
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-c");
        let ran = Command::new(script).arg(built).arg(&prefix).output().expect("it starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        prefix
    })
}

/// What pkg-config says to compile and link with, of the shared or of the static library.
fn flags(is_static: bool) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    command.args(["--cflags", "--libs"]).args(is_static.then_some("--static")).arg("ontempo");
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8(ran.stdout).expect("text");
    said.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program with all warnings, which are errors.
fn compiled(source: &str, how: &[&str], is_static: bool) -> PathBuf {
    let name = format!("{}-{is_static}", source.replace(['/', '.'], "-"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(how[0]);
    command.args(&how[1..]).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
    if is_static {
        command.arg("-Wl,-Bstatic").args(flags(true).iter().filter(|one| !is_of_the_system(one)));
        command.arg("-Wl,-Bdynamic").args(flags(true).iter().filter(|one| is_of_the_system(one)));
    } else {
        let folder = installed().join("lib");
        command.args(flags(false)).arg(format!("-Wl,-rpath,{}", folder.display()));
    }
    let ran = command.arg("-o").arg(&program).output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    program
}

fn is_of_the_system(flag: &str) -> bool {
    flag.starts_with("-l") && flag != "-lontempo"
}

const C: [&str; 2] = ["cc", "-std=c11"];

/// The program under valgrind: a leak, or a read of what is not there, ends with 99.
fn watched(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/valgrind.supp");
    command.arg(format!("--suppressions={}", known.display()));
    command.args(["--errors-for-leak-kinds=definite", "--fair-sched=yes"]).arg(program);
    command
}

#[test]
fn a_program_in_c_sends_units_to_another_and_neither_leaks() {
    if !require_programs(&["cc", "pkg-config", "valgrind"]) {
        return;
    }
    let program = compiled("examples/units.c", &C, false);
    let mut receiver = watched(&program)
        .args(["receive", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(receiver.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("read");
    let (address, fingerprint) = line.trim().split_once(' ').unwrap_or_else(|| {
        panic!("`{line}` is no address with a fingerprint");
    });
    let sent =
        watched(&program).args(["send", address, fingerprint, "100"]).output().expect("runs");
    let (said, errors) =
        (String::from_utf8_lossy(&sent.stdout), String::from_utf8_lossy(&sent.stderr));
    if !sent.status.success() {
        // It would wait for a sender for ever.
        let _ = receiver.kill();
    }
    assert!(sent.status.success(), "{said}{errors}");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("read");
    let received = receiver.wait_with_output().expect("it ends");
    assert!(received.status.success(), "{rest}{}", String::from_utf8_lossy(&received.stderr));
    // Valgrind is slow: a unit may be dropped at its deadline, and both sides say so.
    let arrived: u64 = said
        .split_once(" units, ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert!(arrived > 0, "{said}");
    let dropped = 100 - arrived;
    let expected = format!("{arrived} units, {} bytes, {dropped} dropped\n", arrived * 5_000);
    assert_eq!(rest, expected, "{said}");
    assert!(said.contains("closed with code 7: complete: "), "{said}");
}

#[test]
fn mistakes_of_a_program_are_errors_with_a_sentence_and_no_crash() {
    if !require_programs(&["cc", "pkg-config", "valgrind"]) {
        return;
    }
    let program = compiled("tests/mistakes.c", &C, false);
    let ran = watched(&program).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.contains("there is no option `tokn`; there are token, "), "{said}");
}

#[test]
fn a_program_is_linked_with_the_static_library_too() {
    if !require_programs(&["cc", "pkg-config"]) {
        return;
    }
    let ran = Command::new(compiled("tests/mistakes.c", &C, true)).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_header_is_one_of_c_plus_plus_too() {
    if !require_programs(&["c++", "pkg-config"]) {
        return;
    }
    let program = compiled("tests/header.cpp", &["c++", "-std=c++20"], false);
    assert!(Command::new(program).status().expect("it runs").success());
}
