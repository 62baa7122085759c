//! Keys at the terminal while the table is shown.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// A terminal that gives each key at once, and shows none; as before when dropped.
pub(super) struct Keys {
    before: Termios,
}

impl Keys {
    /// `None` if standard input is no terminal, or another process's now.
    pub(super) fn read() -> Option<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).ok()?;
        if tcgetpgrp(&stdin).ok()? != getpgrp() {
            return None;
        }
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &single).ok()?;
        Some(Self { before })
    }

    /// Whether `q` was pressed since the last call.
    pub(super) fn is_quit(&self) -> bool {
        let stdin = io::stdin();
        let mut keys = [0; 64];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&now))
            .is_ok_and(|ready| ready > 0)
        {
            match rustix::io::read(&stdin, &mut keys) {
                Ok(0) | Err(_) => return false,
                Ok(got) if keys[..got].iter().any(|key| matches!(key, b'q' | b'Q')) => return true,
                Ok(_) => {}
            }
        }
        false
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
