//! What a command prints on standard output where it fails and was asked for `--json`.
//!
//! One that prints a document prints `{"problems": [...]}` in its place; one that prints documents until it is
//! stopped prints that as its last line; one that prints a line for each event prints the event `error`, with
//! its `text` and `exit_code`. The sentence on standard error and the exit code are those without `--json`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::Command;
use serde_json::{Value, json};

use crate::output::emit;

/// The error, or a document that stands for all of the output, was written.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// The documents of a command's `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One, which says all.
    Document,
    /// One on each line.
    Lines,
    /// One on each line, with the name of an event.
    Events,
}

impl Form {
    /// That of the command line `words` of `program`; `None` where it does not ask for JSON.
    pub(crate) fn asked(program: &Command, words: &[String]) -> Option<Self> {
        let words = words.split(|word| word == "--").next()?;
        let (mut command, mut path) = (program, Vec::new());
        for word in words {
            if let Some(found) = command.find_subcommand(word) {
                command = found;
                path.push(found.get_name());
            }
        }
        let takes_json = command.get_arguments().any(|given| given.get_long() == Some("json"));
        if !takes_json || !words.iter().any(|word| word == "--json") {
            return None;
        }
        let listens =
            || words.iter().any(|word| word == "--listen" || word.starts_with("--listen="));
        Some(match *path {
            ["top" | "monitor", ..] => Self::Lines,
            ["rsvp", "status", ..] => Self::Document,
            [
                "send" | "receive" | "relay" | "gateway" | "impair" | "netvideo" | "tg" | "rsvp",
                ..,
            ] => Self::Events,
            ["probe", ..] if listens() => Self::Events,
            _ => Self::Document,
        })
    }

    /// Writes the error, unless it was written or the output has its document.
    pub(crate) fn report(self, text: &str, exit_code: u8) {
        if IS_DONE.swap(true, Relaxed) {
            return;
        }
        let problems = || json!({ "problems": [problem(text)] });
        // Standard error has the sentence, too.
        let _ = match self {
            Self::Document => emit(&format!("{:#}", problems())),
            Self::Lines => emit(&problems().to_string()),
            Self::Events => {
                let event = json!({ "event": "error", "text": text, "exit_code": exit_code });
                emit(&event.to_string())
            }
        };
    }
}

/// The error, or a document that stands for all of the output, is written.
pub(crate) fn is_done() {
    IS_DONE.store(true, Relaxed);
}

/// An error that has no place in a file.
fn problem(text: &str) -> Value {
    json!({ "file": null, "line": null, "set": null, "field": null, "what": text })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    fn asked(line: &str) -> Option<Form> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Form::asked(&Arguments::command(), &words)
    }

    #[test]
    fn the_form_of_an_error_is_that_of_the_commands_documents() {
        assert_eq!(asked("summary nodir --json"), Some(Form::Document));
        assert_eq!(asked("kernel status pert --json"), Some(Form::Document));
        assert_eq!(asked("rsvp status --json"), Some(Form::Document));
        assert_eq!(asked("probe host:1 --json"), Some(Form::Document));
        assert_eq!(asked("probe --listen 0.0.0.0:1 --json"), Some(Form::Events));
        assert_eq!(asked("top --json"), Some(Form::Lines));
        assert_eq!(asked("receive --json --to -"), Some(Form::Events));
        assert_eq!(asked("summary nodir"), None);
        assert_eq!(asked("schema --json"), None, "it takes none");
        assert_eq!(asked("qos run -- program --json"), None, "it is the program's");
        assert_eq!(asked(""), None);
    }
}
