//! `ontempo media`: the frames of a film.

mod generated;
mod read;
mod summary;

use ontempo_media::{FrameTable, generate};

use crate::arguments::Media;
use crate::failure::Failure;
use crate::media::summary::Summary;
use crate::output::{emit, emit_json, wrapped};
use crate::place::write_new;

/// A film, and what is known beside its frames.
pub(crate) struct Film {
    table: FrameTable,
    /// Share of stuffing among the packets of a transport stream, 0 to 1; `None` of others.
    stuffing: Option<f64>,
    /// Sentences about what could not be told.
    untold: Vec<String>,
}

/// Columns of the names in the summary.
const NAMES: usize = 14;

pub(crate) fn media(arguments: &Media) -> Result<(), Failure> {
    let film = match (&arguments.file, &arguments.generate) {
        (Some(file), _) => read::film(file)?,
        (None, parameters) => {
            let parameters = generated::parameters(parameters.as_deref().unwrap_or_default())
                .map_err(|what| Failure::Input(format!("--generate: {what}")))?;
            let table = generate(&parameters)
                .map_err(|error| Failure::Input(format!("--generate: {error}")))?;
            Film { table, stuffing: None, untold: Vec::new() }
        }
    };
    if let Some(path) = &arguments.frames {
        let named = format!("--frames {}", path.display());
        write_new(&named, path, &film.table.write_csv())?;
    }
    let summary = Summary::of(&film);
    match arguments.json {
        true => emit_json(&summary.json()),
        false => emit(&wrapped(&summary.text(), NAMES)),
    }
}
