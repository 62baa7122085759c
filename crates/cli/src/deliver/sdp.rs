//! Session descriptions of RTP (`--sdp`): the encoder's file is read, the player's is written.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ontempo_place::{Output, read_regular};
use ontempo_session::{Description, DescriptionTaker, MAX_FILE};
use serde_json::json;

use super::documents::Documents;
use crate::failure::Failure;
use crate::output::write_stderr;
use crate::place::output_failure;

/// Looks for the encoder's description again and again; says once what is wrong with a file.
pub(super) fn look(path: &Path, port: u16) -> impl FnMut() -> Option<Description> + Send + use<> {
    let path = path.to_owned();
    // What was wrong when it was looked at before, and whether that was said.
    let mut wrong = (String::new(), false);
    move || {
        let read = match read_regular(&path, MAX_FILE) {
            // The encoder has not begun.
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
            // It may just be written.
            Ok(bytes) if bytes.is_empty() => return None,
            Ok(bytes) => Description::read(&bytes, port).map_err(|error| error.to_string()),
        };
        match read {
            Ok(description) => {
                wrong = (String::new(), false);
                Some(description)
            }
            Err(error) => {
                if wrong == (error.clone(), false) {
                    write_stderr(&format!("--sdp {}: not carried: {error}", path.display()));
                    wrong.1 = true;
                } else if wrong.0 != error {
                    wrong = (error, false);
                }
                None
            }
        }
    }
}

/// A file that exists is refused before a sender comes.
pub(super) fn check(path: &Path, overwrite: bool) -> Result<(), Failure> {
    let option = format!("--sdp {}", path.display());
    let place = Output::at(path, overwrite).map_err(|error| output_failure(&option, &error))?;
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Input(format!("{option}: it must be a regular file, or not exist")));
    }
    match place.exists() && !overwrite {
        true => Err(Failure::Input(format!("{option}: it exists: --overwrite replaces it"))),
        false => Ok(()),
    }
}

/// Writes the sender's description for the player at `to`.
pub(super) fn write(path: PathBuf, to: SocketAddr, documents: Documents) -> DescriptionTaker {
    Box::new(move |description| {
        let shown = path.display().to_string();
        let written = description.map_err(|error| error.to_string()).and_then(|description| {
            let text = description.at(to);
            let place = Output::at(&path, true).map_err(|error| error.to_string())?;
            place.replace(text.as_bytes()).map_err(|error| error.to_string())
        });
        match written {
            Ok(()) => {
                write_stderr(&format!("the session description is in {shown}"));
                // A closed output shows with the next figures.
                let _ = documents.emit("description", json!({ "file": shown }));
            }
            Err(error) => write_stderr(&format!("--sdp {shown}: not written: {error}")),
        }
    })
}
