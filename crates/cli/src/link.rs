//! `ontempo link`: the links of a running emulation, listed or changed; and what a running emulation
//! is called.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ontempo_emulator::{control_socket, controlled_runs, is_active};
use ontempo_foundation::{Duration as Span, Rate};
use serde_json::json;

use crate::arguments::Link;
use crate::control::{Answer, Request, State};
use crate::failure::{Failure, environment};
use crate::output::{emit, emit_json, table};

/// How long the emulation may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Bytes of an answer: of 6,000 links, each with some 2,000 bytes.
const MAX_ANSWER: u64 = 12 << 20;

/// What the words of the command line mean.
#[derive(Debug, PartialEq, Eq)]
struct Words<'a> {
    run: Option<&'a str>,
    link: Option<&'a str>,
    set: &'a [String],
}

/// Takes `[RUN] [LINK] [KEY=VALUE]...` apart: settings have a `=`; a single word before them is the
/// link, a single word without them the run.
fn words(words: &[String]) -> Result<Words<'_>, Failure> {
    let is_setting = |word: &String| {
        // A node's name may have a `=`, too.
        !word.contains(" -> ") && word.contains('=')
    };
    let names = words.iter().position(is_setting).unwrap_or(words.len());
    let (names, set) = words.split_at(names);
    let (run, link) = match names {
        [] if set.is_empty() => (None, None),
        [run] if set.is_empty() => (Some(run.as_str()), None),
        [link] => (None, Some(link.as_str())),
        [run, link] => (Some(run.as_str()), Some(link.as_str())),
        [] => {
            return Err(Failure::Input("which link? write ontempo link RUN LINK KEY=VALUE".into()));
        }
        [_, _, other, ..] => {
            return Err(Failure::Input(format!(
                "`{other}` is no setting; write ontempo link RUN LINK rate=\"2 Mbit/s\", and names \
                 with spaces in quotes"
            )));
        }
    };
    Ok(Words { run, link, set })
}

pub(crate) fn link(arguments: &Link) -> Result<(), Failure> {
    let Words { run, link, set } = words(&arguments.words)?;
    let (run, mut stream) = connect(run)?;
    let is_change = !set.is_empty();
    let request =
        Request { link: link.filter(|_| is_change).map(str::to_owned), set: set.to_vec() };
    match ask(&mut stream, &request).map_err(|error| {
        Failure::Environment(format!("the emulation {run} does not answer: {error}"))
    })? {
        Answer::Refused(what) => Err(Failure::Input(what)),
        Answer::ChangedAt(at) if arguments.json => {
            emit_json(&json!({ "run": run, "link": link, "set": set, "at_s": at }))
        }
        Answer::ChangedAt(at) => {
            let (link, set) = (link.unwrap_or_default(), set.join(" "));
            emit(&format!("{run}: {link}: {set}, from {at:.3} s of the run on"))
        }
        Answer::Links(mut links) => {
            if let Some(link) = link {
                let known: Vec<String> = links.iter().map(|one| one.link.clone()).collect();
                links.retain(|one| one.link == link);
                if links.is_empty() {
                    let known = ontempo_scenario::known_names(known.iter().map(String::as_str));
                    return Err(Failure::Input(format!(
                        "there is no link `{link}` in {run}; known: {known}"
                    )));
                }
            }
            if arguments.json {
                return emit_json(&json!({ "run": run, "links": links }));
            }
            emit(&listed(&links))
        }
    }
}

fn listed(links: &[State]) -> String {
    let mut rows = table(&["link", "rate", "delay", "loss", ""], &[1, 2, 3]);
    for link in links {
        let rate = link.rate_bps.map_or_else(
            || "unlimited".to_owned(),
            |rate| Rate::from_bits_per_sec(rate).to_string(),
        );
        let delay = Span::from_secs_f64(link.delay_s).to_string();
        let loss = format!("{} %", (link.loss * 1e6).round() / 1e4);
        let fixed = if link.fixed.is_some() { "cannot be changed" } else { "" };
        rows.add_row([link.link.clone(), rate, delay, loss, fixed.to_owned()]);
    }
    let mut text = rows.to_string();
    let mut reasons: Vec<&str> = links.iter().filter_map(|link| link.fixed.as_deref()).collect();
    reasons.dedup();
    for reason in reasons {
        text += &format!("\nCannot be changed while it runs: {reason}.");
    }
    text
}

/// The control of the emulation called `run`; of the only one that runs if `None`.
fn connect(run: Option<&str>) -> Result<(String, UnixStream), Failure> {
    if let Some(run) = run {
        return match open(run)? {
            Some(stream) => Ok((run.to_owned(), stream)),
            None => Err(not_running(run)?),
        };
    }
    let mut running = Vec::new();
    for run in controlled_runs().map_err(environment)? {
        running.extend(open(&run)?.map(|stream| (run, stream)));
    }
    if running.len() > 1 {
        let names: Vec<&str> = running.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Failure::Input(format!(
            "several emulations run; name one of: {}",
            names.join(", ")
        )));
    }
    running.pop().ok_or_else(|| {
        Failure::Input(
            "no emulation takes commands; start one with: sudo ontempo emulate FILE --out DIR \
             --control"
                .to_owned(),
        )
    })
}

/// The control of `run`; `None` if nobody serves it.
fn open(run: &str) -> Result<Option<UnixStream>, Failure> {
    if !crate::arguments::is_run_name(run) {
        return Ok(None);
    }
    let path = match control_socket(run, false) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        path => path.map_err(environment)?,
    };
    match UnixStream::connect(&path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Ok(None),
            ErrorKind::PermissionDenied => Err(Failure::Environment(format!(
                "{}: only root and the user who started the emulation may control it",
                path.display()
            ))),
            _ => Err(Failure::Environment(format!("{}: {error}", path.display()))),
        },
    }
}

/// Why the emulation called `run` takes no commands.
fn not_running(run: &str) -> Result<Failure, Failure> {
    let is_running = crate::arguments::is_run_name(run) && is_active(run).map_err(environment)?;
    let what = if is_running {
        format!("the emulation {run} takes no commands; start it with --control")
    } else {
        let mut runs = controlled_runs().map_err(environment)?;
        // A run that was killed has left its socket.
        runs.retain(|run| matches!(open(run), Ok(Some(_))));
        let runs = if runs.is_empty() { "none".to_owned() } else { runs.join(", ") };
        format!("no emulation called `{run}` runs; those that take commands: {runs}")
    };
    Ok(Failure::Input(what))
}

fn ask(stream: &mut UnixStream, request: &Request) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.write_all(format!("{}\n", json!(request)).as_bytes())?;
    let mut text = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut text)?;
    if text.is_empty() {
        return Err(std::io::Error::other("it has ended, or is busy with other commands"));
    }
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_before_settings_are_the_run_and_the_link() {
        let taken = |line: &[&str]| {
            let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            let Words { run, link, set } = words(&line).ok()?;
            Some((run.map(str::to_owned), link.map(str::to_owned), set.len()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(taken(&[]), Some((None, None, 0)));
        assert_eq!(taken(&["run"]), Some((some("run"), None, 0)));
        assert_eq!(taken(&["hop 0", "loss=1"]), Some((None, some("hop 0"), 1)));
        assert_eq!(taken(&["run", "a -> b"]), Some((some("run"), some("a -> b"), 0)));
        let all = ["run", "a=1 -> b", "rate=2 Mbit/s", "loss=0"];
        assert_eq!(taken(&all), Some((some("run"), some("a=1 -> b"), 2)));
        assert_eq!(taken(&["loss=1"]), None);
        assert_eq!(taken(&["run", "hop", "0", "loss=1"]), None);
    }
}
