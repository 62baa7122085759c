//! A film from a file: a transport stream directly, anything else by way of ffmpeg.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use ontempo_media::{FilmError, FrameTable, begins_transport_stream, stuffing_share};

use super::Film;
use crate::failure::Failure;

/// Bytes of a film at most, which is held in memory: half an hour at 8 Mbit/s.
const MAX_BYTES: u64 = 2 << 30;

/// Bytes of what ffmpeg says that are kept, and lines that are shown.
const MAX_SAID: u64 = 64 << 10;
const MAX_LINES: usize = 3;

/// Bytes at a file's beginning by which a transport stream is recognised.
const HEAD: u64 = 64 << 10;

pub(super) fn film(path: &Path) -> Result<Film, Failure> {
    let name = path.display();
    let cannot = |error: std::io::Error| Failure::Input(format!("{name}: {error}"));
    let mut file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Failure::Input(format!("{name}: a folder, not a film")));
    }
    let mut head = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut head).map_err(cannot)?;
    if head.is_empty() {
        return Err(Failure::Input(format!("{name}: no film: the file is empty")));
    }
    let is_stream = begins_transport_stream(&head);
    let is_named_so = path.extension().is_some_and(|extension| extension == "ts");
    let (bytes, said) = match is_stream || is_named_so {
        true => {
            let mut bytes = head;
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
            (bytes, Vec::new())
        }
        false => remultiplexed(path)?,
    };
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::Input(format!(
            "{name}: larger than {} GiB; take a part of it, as with ffmpeg -t 600",
            MAX_BYTES >> 30
        )));
    }
    let read = FrameTable::from_transport_stream(&bytes);
    let (table, mut untold) = read.map_err(|error| {
        let more = match error {
            FilmError::NoStream(_) if !is_stream && !is_named_so => {
                "; ffmpeg has no mapping of its codec to a transport stream, as of AV1, if it has pictures"
            }
            _ => "",
        };
        Failure::Input(format!("{name}: {error}{more}"))
    })?;
    untold.extend(said.into_iter().map(|line| format!("ffmpeg: {line}")));
    let stuffing = (is_stream || is_named_so).then(|| stuffing_share(&bytes));
    Ok(Film { table, stuffing, untold })
}

/// The film as a transport stream of ffmpeg, and what ffmpeg says about it.
fn remultiplexed(path: &Path) -> Result<(Vec<u8>, Vec<String>), Failure> {
    let name = path.display();
    // With the protocol no name is taken for an option or an address.
    let mut file = std::ffi::OsString::from("file:");
    file.push(path);
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(file);
    // The first stream of pictures that is no cover, and all sound.
    command.args(["-map", "0:V:0?", "-map", "0:a?", "-c", "copy", "-f", "mpegts", "-"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Environment(format!(
            "{name} is no transport stream, and ffmpeg, which reads other films, is missing; install it \
             with: sudo apt-get install ffmpeg"
        )),
        _ => Failure::Environment(format!("ffmpeg cannot be started: {error}")),
    })?;
    let failed = |error: std::io::Error| Failure::Environment(format!("{name}: ffmpeg: {error}"));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let said = thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut err) = err {
            let _ = err.by_ref().take(MAX_SAID).read_to_end(&mut text);
            // What is not kept must be read, too, or ffmpeg waits.
            let _ = std::io::copy(&mut err, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut bytes = Vec::new();
    if let Some(out) = out {
        out.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    // Its output is closed: where the film is too long, it ends by that.
    let status = child.wait().map_err(failed)?;
    let said = said.join().unwrap_or_default();
    let lines: Vec<String> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(MAX_LINES)
        .map(str::to_owned)
        .collect();
    if !status.success() && bytes.len() as u64 <= MAX_BYTES {
        let why = if lines.is_empty() { status.to_string() } else { lines.join("; ") };
        return Err(Failure::Input(format!("{name}: no film that ffmpeg can read: {why}")));
    }
    Ok((bytes, lines))
}
