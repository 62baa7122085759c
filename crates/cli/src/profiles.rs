//! `ontempo profiles`: the link profiles, and what they generate.

use std::io::{ErrorKind, Write};
use std::path::Path;

use ontempo_foundation::Duration;
use ontempo_place::Output;
use ontempo_scenario::model::{AccessDirection, LinkProfile};
use ontempo_scenario::profiles::{Profile, find, shown, trace};

use crate::arguments::Profiles;
use crate::failure::{Failure, environment};
use crate::output::{emit, wrapped};
use crate::place::output_failure;
use crate::signals::{is_stopped, stop_flag};

/// Columns of the names in the list.
const NAMES: usize = 17;

pub(crate) fn profiles(arguments: &Profiles) -> Result<(), Failure> {
    let Some(name) = &arguments.name else { return emit(&wrapped(&list(), NAMES)) };
    let profile = find(name).map_err(Failure::Input)?;
    let Some(file) = &arguments.csv else { return emit(&wrapped(&shown(profile), 4)) };
    let direction = match arguments.uplink {
        true => AccessDirection::Uplink,
        false => AccessDirection::Downlink,
    };
    let duration = Duration::from_secs(arguments.seconds);
    let table = trace(profile, direction, duration, arguments.seed).map_err(environment)?;
    write(file, &table)
}

/// Writes a new file, or over one that is not of another user in a folder that others can write to.
fn write(path: &Path, table: &str) -> Result<(), Failure> {
    let named = format!("--csv {}", path.display());
    let failed = |error| output_failure(&named, &error);
    stop_flag()?;
    let place = Output::at(path, true).map_err(failed)?;
    let mut file = match place.create_new(0o666) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            place.open(is_stopped).map_err(failed)?
        }
        made => made.map_err(failed)?,
    };
    let cannot = |error| Failure::Environment(format!("cannot write {}: {error}", path.display()));
    // A pipe or a device has no length.
    if file.metadata().map_err(cannot)?.is_file() {
        file.set_len(0).map_err(cannot)?;
    }
    file.write_all(table.as_bytes()).map_err(cannot)
}

/// A line for each profile.
fn list() -> String {
    let lines = LinkProfile::ALL.into_iter().map(|profile| {
        let Profile { summary, downlink, uplink, .. } = Profile::of(profile);
        let round_trip = downlink.delay.mean() + uplink.delay.mean();
        let rates = format!("{} down, {} up", downlink.rate, uplink.rate);
        format!(
            "{:NAMES$}{summary}\n{:NAMES$}{rates}, round trip from {round_trip}\n",
            profile.name(),
            ""
        )
    });
    lines.collect()
}
