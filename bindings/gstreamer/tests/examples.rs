//! The examples run as their pages say.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{end_of, free_port, pipeline, play, require_elements, stop, url};
use ontempo_testing::skip;

#[test]
fn glass_to_glass_is_measured_from_what_is_painted_into_the_pictures() {
    if !require_elements(&[
        "videotestsrc",
        "x264enc",
        "mpegtsmux",
        "tsdemux",
        "h264parse",
        "avdec_h264",
    ]) {
        return;
    }
    let test = std::env::current_exe().expect("this program");
    let example = test.ancestors().nth(2).expect("target/PROFILE").join("examples/glass");
    let ran = Command::new(example).args(["100", "200"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let (shown, rest) = said.split_once(" of 100 pictures: median ").expect("figures");
    let shown: u32 = shown.parse().expect("a number");
    let median: f64 = rest.split(' ').next().expect("a word").parse().expect("a number");
    // All of it is over the latency; a busy machine takes its time.
    assert!(shown >= 90 && (200.0..2_000.0).contains(&median), "{said}");
}

#[test]
fn an_encoder_follows_in_python() {
    let mut asked = Command::new("/usr/bin/python3");
    asked.args(["-c", "import gi; gi.require_version('Gst', '1.0')"]).stderr(Stdio::null());
    if !asked.status().is_ok_and(|status| status.success()) {
        skip!("python3-gi is missing");
    }
    if !require_elements(&["videotestsrc", "x264enc"]) {
        return;
    }
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri=ontempo://127.0.0.1:{} ! fakesink",
        free_port()
    ));
    play(&receiving);
    let test = std::env::current_exe().expect("this program");
    let built = test.ancestors().nth(2).expect("target/PROFILE").join("libgstontempo.so");
    let plugins = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    std::fs::create_dir_all(&plugins).expect("a folder");
    std::fs::copy(built, plugins.join("libgstontempo.so")).expect("the plugin is built");
    let ran = Command::new("/usr/bin/python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/follow.py"))
        .args([&url(&receiving), "75"])
        .env("GST_PLUGIN_PATH", &plugins)
        .env("GST_REGISTRY", plugins.join("registry.bin"))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.contains(" kbit/s"), "{said}");
    end_of(&receiving).expect("received");
    stop(&receiving);
}
