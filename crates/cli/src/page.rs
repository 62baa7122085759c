//! `ontempo show`: one HTML page of runs.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ontempo_page::{Contents, MAX_RUNS, Page, PageError, Run, is_page, read};
use ontempo_place::{Output, open_regular};
use serde_json::json;

use crate::arguments::Show;
use crate::failure::Failure;
use crate::output::{counted, emit, emit_json};
use crate::place::{self, is_of_another_user, output_failure};

/// The page's name if none is given.
const NAME: &str = "show.html";

/// Programs that open a file in the browser, in order of preference.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// Bytes of a file by which a page of ours is known.
const BEGIN_BYTES: u64 = 400;

impl From<PageError> for Failure {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Input(what) => Self::Input(what),
            PageError::Environment(what) => Self::Environment(what),
        }
    }
}

pub(crate) fn show(arguments: &Show) -> Result<(), Failure> {
    let output = output(arguments);
    let named = output.display().to_string();
    place::check_output(&named, &output)?;
    check_output(&output, arguments.force)?;
    let mut runs: Vec<Run> = Vec::new();
    for path in &arguments.runs {
        runs.extend(read(path)?);
        if runs.len() > MAX_RUNS {
            return Err(Failure::Input(format!(
                "{}: these are more than {MAX_RUNS} runs, the most that a page shows",
                path.display()
            )));
        }
    }
    let page = Page::of(runs);
    let html = page.html();
    let written = Output::at(&output, false).and_then(|place| place.replace(html.as_bytes()));
    written.map_err(|error| match is_of_another_user(&error) {
        true => output_failure(&named, &error),
        false => Failure::Environment(format!("cannot write {named}: {error}")),
    })?;
    let contents = page.contents();
    if arguments.json {
        emit_json(&json!({
            "output": output.display().to_string(),
            "bytes": html.len(),
            "runs": contents.runs,
            "charts": contents.charts,
            "notes": contents.notes,
        }))?;
    } else {
        emit(&sentences(&output, html.len(), &contents))?;
    }
    if arguments.open { open(&output) } else { Ok(()) }
}

/// Where the page is written.
fn output(arguments: &Show) -> PathBuf {
    match (&arguments.output, arguments.runs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [one]) if one.is_dir() => one.join(NAME),
        (None, _) => PathBuf::from(NAME),
    }
}

/// A file that is no page of ours stays as it is.
fn check_output(path: &Path, force: bool) -> Result<(), Failure> {
    let mut begin = Vec::new();
    let is_ours = match open_regular(path) {
        Ok(_) if force => return Ok(()),
        Ok(file) => file.take(BEGIN_BYTES).read_to_end(&mut begin).map(|_| is_page(&begin)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    match is_ours {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Input(format!(
            "{}: it exists and is no page of this command: --force replaces it, --output names \
             another file",
            path.display()
        ))),
        Err(error) => Err(Failure::Environment(format!("cannot read {}: {error}", path.display()))),
    }
}

fn sentences(output: &Path, bytes: usize, contents: &Contents) -> String {
    let mut text = format!(
        "{}: {}, {}, {:.1} MB\n",
        output.display(),
        counted(contents.runs.len() as u64, "run"),
        counted(contents.charts.len() as u64, "chart"),
        bytes as f64 / 1e6
    );
    let several = contents.runs.len() > 1;
    for run in &contents.runs {
        for missing in run.missing.iter().filter(|missing| !missing.scenario.is_empty()) {
            let of = if several { format!("{}: ", run.run) } else { String::new() };
            let lines = missing.scenario.join(", ");
            text += &format!("{of}not recorded: {}; in the scenario: {lines}\n", missing.what);
        }
    }
    text
}

/// Opens the page in the browser, and does not wait for it.
fn open(path: &Path) -> Result<(), Failure> {
    for opener in OPENERS {
        let mut command = Command::new(opener);
        command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::Environment(format!("--open: cannot run {opener}: {error}")));
            }
        }
    }
    Err(Failure::Environment(format!(
        "--open: neither {} is installed; the page is {}",
        OPENERS.join(" nor "),
        path.display()
    )))
}
