//! A headless Chromium, driven over its DevTools protocol through a pair of pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Killed, Place};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    // Closed first: the browser then ends by itself.
    to: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    last: u64,
    /// Errors of scripts and of the content security policy since the last look.
    errors: Vec<String>,
    _child: Killed,
}

impl Browser {
    pub(crate) fn start(place: &Place) -> Self {
        let profile = place.path("profile");
        // It reads commands from descriptor 3 and writes answers to 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --no-first-run \
                      --disable-dev-shm-usage --remote-debugging-pipe --user-data-dir=\"$0\" \
                      about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(&profile);
        // It keeps files elsewhere, too.
        command.env("HOME", &place.0).env("TMPDIR", &place.0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Killed(command.spawn().expect("a shell"));
        let to = child.0.stdin.take().expect("its input");
        let mut from = BufReader::new(child.0.stdout.take().expect("its output"));
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|count| count > 0) {
                message.pop();
                let read = serde_json::from_slice(&message).expect("a message is JSON");
                message.clear();
                if sender.send(read).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            to,
            messages,
            session: String::new(),
            last: 0,
            errors: Vec::new(),
            _child: child,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    /// Calls a method and waits for its answer.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        write!(self.to, "{message}\0").expect("the browser runs");
        loop {
            let answer = self.message();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    #[track_caller]
    fn message(&mut self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE).expect("an answer of the browser");
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.errors.push(parameters["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.errors.push(parameters["entry"]["text"].to_string());
            }
            _ => {}
        }
        message
    }

    /// Errors since the last call.
    pub(crate) fn errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.errors)
    }

    /// Opens a file and waits until it is loaded and its scripts have run.
    #[track_caller]
    pub(crate) fn open(&mut self, file: &Path) {
        self.go(&format!("file://{}", file.display()));
        // Plots draw in a microtask, and are fitted in the next frame.
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))");
    }

    /// Opens a page and waits until it is loaded.
    #[track_caller]
    pub(crate) fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        while self.message()["method"] != "Page.loadEventFired" {}
    }

    /// The value of an expression on the page.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        // As if a user had clicked: sound needs that.
        let parameters = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
            "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The window's size in CSS pixels, and the theme of the system.
    pub(crate) fn appear(&mut self, width: u32, height: u32, theme: &str) {
        let phone = width < 600;
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": feature }));
    }

    /// An event of the mouse at a place of the window.
    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64, clicks: u32) {
        let button = if kind == "mouseMoved" && clicks == 0 { "none" } else { "left" };
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "clickCount": clicks,
            "buttons": u32::from(button == "left" && kind != "mouseReleased"),
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// A turn of the wheel, with Ctrl.
    pub(crate) fn wheel(&mut self, x: f64, y: f64, delta: f64) {
        let event = json!({
            "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "modifiers": 2,
        });
        self.call("Input.dispatchMouseEvent", event);
    }
}
