//! What the tests of both pages share: a folder, the program, and browsers.

#[allow(dead_code)]
#[path = "../../../../crates/cli/tests/page/browser.rs"]
pub(crate) mod browser;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use browser::Browser;

/// A folder of a test's own, removed at its end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(test: &str) -> Self {
        let place = std::env::temp_dir().join(format!("ontempo-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).expect("a folder for the test");
        Self(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program, killed at the end of the test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that serves a page.
pub(crate) struct Served {
    /// The link to the page.
    pub(crate) link: String,
    _program: Killed,
}

impl Served {
    /// Starts it at any port, and reads its link.
    pub(crate) fn start(program: &str, more: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0"]).args(more).stdout(Stdio::piped());
        let mut program = Killed(command.spawn().expect("the program"));
        let out = program.0.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let link = line.trim().strip_prefix("open ").expect("a link").to_owned();
        Self { link, _program: program }
    }
}

/// Waits until an expression on the page is true.
#[track_caller]
pub(crate) fn wait_for(browser: &mut Browser, expression: &str) {
    let begun = Instant::now();
    while browser.value(expression) != json!(true) {
        if begun.elapsed() > Duration::from_secs(60) {
            let page = browser.value("document.body.innerText");
            panic!("in vain waited for {expression}; the page says {page}");
        }
        sleep(Duration::from_millis(200));
    }
}

/// Whether the page's message has these words.
pub(crate) fn says(words: &str) -> String {
    format!("document.getElementById('message').textContent.includes({})", json!(words))
}

/// Keeps what the page looks like in a folder that `ONTEMPO_SCREENSHOTS` names, if it does.
pub(crate) fn look(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("ONTEMPO_SCREENSHOTS") else { return };
    let seen = browser.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
    let png = seen["data"].as_str().expect("a picture");
    fs::write(PathBuf::from(folder).join(format!("{name}.png.base64")), png).expect("written");
}
