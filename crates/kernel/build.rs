//! Compiles the BPF program if clang is installed; otherwise `ontempo kernel load` reports that.

use std::env;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(bpf_object)");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    // Where libbpf-sys puts libbpf's headers; unset without the feature `bpf`.
    let (Some(headers), Some(out)) = (env::var_os("DEP_BPF_INCLUDE"), env::var_os("OUT_DIR"))
    else {
        return;
    };
    let object = PathBuf::from(out).join("pert.bpf.o");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let compiled = Command::new(&clang)
        // -g: the types from which libbpf finds each field in the running kernel.
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I"])
        .arg(&headers)
        .args(["-c", "bpf/pert.bpf.c", "-o"])
        .arg(&object)
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=bpf_object"),
        // clang is old or lacks the target: everything else can still be built.
        Ok(_) => println!("cargo::warning=clang could not compile bpf/pert.bpf.c"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => panic!("cannot start {}: {error}", clang.display()),
    }
}
