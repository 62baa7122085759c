//! `ontempo profiles`: the link profiles, and what they generate.

use ontempo_foundation::Duration;
use ontempo_scenario::model::{AccessDirection, LinkProfile};
use ontempo_scenario::profiles::{Profile, find, shown, trace};

use crate::arguments::Profiles;
use crate::failure::{Failure, environment};
use crate::output::{emit, wrapped};
use crate::place::write_new;

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
    write_new(&format!("--csv {}", file.display()), file, &table)
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
