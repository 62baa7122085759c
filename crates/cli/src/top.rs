//! `ontempo top`: what this host sends, receives, relays and reserves, in one look.

mod gather;
mod history;
mod json;
mod layout;
mod screen;
mod sections;

use std::io::IsTerminal;
use std::time::{Duration as Wall, Instant};

use self::gather::{Gatherer, Look};
use crate::arguments::Top;
use crate::failure::Failure;
use crate::output::{columns, emit, emit_json_line, has_reader, write_stderr};
use crate::signals::{pause, stop_flag};

/// Looks no more often, however small `--every` is: reports are written once a second.
const LEAST: Wall = Wall::from_millis(100);

/// Columns of the table where standard output is no terminal and `$COLUMNS` says nothing.
const WIDE: usize = 120;

pub(crate) fn top(arguments: &Top) -> Result<(), Failure> {
    if let Some(folder) = &arguments.folder {
        std::fs::read_dir(folder).map_err(|error| {
            Failure::Input(format!("--folder {}: cannot be read: {error}", folder.display()))
        })?;
    }
    let stopped = stop_flag()?;
    let every = Wall::from_nanos(arguments.every.as_nanos()).max(LEAST);
    let mut gatherer = Gatherer::new(arguments);
    if arguments.json {
        return loop {
            let look = told(gatherer.look(Instant::now()));
            emit_json_line(&json::document(&look, gatherer.history()))?;
            if arguments.once || !has_reader() {
                break Ok(());
            }
            pause(every, &stopped);
            if stopped.load(std::sync::atomic::Ordering::Relaxed) {
                break Ok(());
            }
        };
    }
    if arguments.once || !std::io::stdout().is_terminal() {
        let look = told(gatherer.look(Instant::now()));
        let width = if std::env::var_os("COLUMNS").is_some() || std::io::stdout().is_terminal() {
            columns()
        } else {
            WIDE
        };
        return emit(&layout::plain(&sections::of(&look, arguments.sort), width));
    }
    screen::run(&mut gatherer, arguments.sort, every, &stopped)
}

/// Says which reports were rejected.
fn told(look: Look) -> Look {
    look.skipped.iter().for_each(|one| write_stderr(&one.to_string()));
    look
}
