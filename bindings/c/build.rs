//! The shared library's name for programs that are linked with it: with the number of its ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // ONTEMPO_ABI; `tests/c.rs` runs programs that look for this name.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libontempo.so.1");
    }
}
