//! Changes of traffic control by the program `tc` of iproute2, whose error messages are documented.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Lines of `tc` about one error that are logged.
const MAX_REASONS: usize = 8;

/// An error of `tc`.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The line that it stopped at, from 0; `None` where it could not be run.
    pub(crate) line: Option<usize>,
    pub(crate) reason: String,
}

/// Runs lines in order, until one fails.
pub(crate) fn batch(lines: &[String]) -> Result<(), Refused> {
    run(&["-batch", "-"], lines)
}

/// Runs all lines; those that fail are passed over. False where any has failed: what is not there any more need not be
/// removed.
pub(crate) fn batch_all(lines: &[String]) -> bool {
    batch_each(lines).is_ok()
}

/// The same, with the reasons.
pub(crate) fn batch_each(lines: &[String]) -> Result<(), Refused> {
    if lines.is_empty() { Ok(()) } else { run(&["-force", "-batch", "-"], lines) }
}

fn run(arguments: &[&str], lines: &[String]) -> Result<(), Refused> {
    let failed = |error: std::io::Error| Refused {
        line: None,
        reason: match error.kind() {
            ErrorKind::NotFound => {
                "the program `tc` is missing; install it with: sudo apt-get install iproute2".into()
            }
            _ => format!("cannot run `tc`: {error}"),
        },
    };
    let mut command = Command::new("tc");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        let mut text = lines.join("\n");
        text.push('\n');
        // Where `tc` has ended already, its exit status is evaluated below.
        let _ = pipe.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(&String::from_utf8_lossy(&output.stderr)))
}

/// Reads the errors of `tc -batch`: reasons, then `Command failed -:LINE`.
fn refused(printed: &str) -> Refused {
    let number = |line: &str| line.strip_prefix("Command failed -:")?.parse::<usize>().ok();
    let line = printed.lines().find_map(number).and_then(|line| line.checked_sub(1));
    let reasons: Vec<&str> = printed
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && number(line).is_none())
        .take(MAX_REASONS)
        .collect();
    let reason = match reasons[..] {
        [] => "tc failed without a word".to_owned(),
        _ => reasons.join("; "),
    };
    Refused { line, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_failed_and_the_reason_are_read() {
        let printed = "Error: Exclusivity flag on, cannot modify.\nCommand failed -:3\n";
        let refused = refused(printed);
        assert_eq!(refused.line, Some(2));
        assert_eq!(refused.reason, "Error: Exclusivity flag on, cannot modify.");
    }
}
