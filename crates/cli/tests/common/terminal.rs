//! A program at a pseudo-terminal.

use std::io::{Read, Write};
use std::process::{ChildStdout, Command, Stdio};

use super::Killed;

/// `script` of util-linux, in which a program runs.
pub(crate) struct Terminal {
    script: Killed,
    out: ChildStdout,
    shown: Vec<u8>,
}

impl Terminal {
    /// Runs a line of the shell. With `exec` before the program no shell is between: one would take the keys, and end
    /// with its own code at Ctrl-C, as dash does. `prepare` sets its folder and environment.
    pub(crate) fn start(line: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut script = Command::new("script");
        script.args(["-qec", line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut script);
        let mut script = Killed(script.spawn().expect("script starts"));
        let out = script.0.stdout.take().expect("its output");
        Self { script, out, shown: Vec::new() }
    }

    /// What it has shown so far.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Waits until this is so of what it has shown.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, is_so: impl Fn(&str) -> bool) {
        while !is_so(&self.shown()) {
            let mut room = [0; 4_000];
            let got = self.out.read(&mut room).expect("it is shown");
            assert!(got > 0, "{}", self.shown());
            self.shown.extend(&room[..got]);
        }
    }

    /// Types keys, by which it is to end with success: all that it has shown.
    #[track_caller]
    pub(crate) fn end_by(mut self, keys: &[u8]) -> Vec<u8> {
        let mut typed = self.script.0.stdin.take().expect("its input");
        typed.write_all(keys).expect("typed");
        self.out.read_to_end(&mut self.shown).expect("it ends");
        assert_eq!(self.script.0.wait().expect("it ends").code(), Some(0), "{}", self.shown());
        // Not before: the end of the input would be a key, too.
        drop(typed);
        self.shown
    }
}
