//! `ontempo impair`: a scenario's path between UDP programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ontempo_impair::program::{self, Arguments, Trouble};

use crate::failure::Failure;
use crate::output::{emit, write_stderr};
use crate::signals::stop_flag;

struct Terminal {
    stop: Arc<AtomicBool>,
}

impl program::Terminal for Terminal {
    fn print(&self, text: &str) -> Result<(), Trouble> {
        emit(text).map_err(|failure| Trouble::Environment(failure.text().to_owned()))
    }

    fn tell(&self, text: &str) {
        write_stderr(text);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

pub(crate) fn impair(arguments: &Arguments) -> Result<(), Failure> {
    program::run(arguments, &Terminal { stop: stop_flag()? }).map_err(|trouble| match trouble {
        Trouble::Input(what) => Failure::Input(what),
        Trouble::Environment(what) => Failure::Environment(what),
    })
}
