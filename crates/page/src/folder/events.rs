//! The table `events`: marks on the axis of time.

use std::collections::BTreeMap;

use arrow_array::{Array, Float64Array};
use ontempo_foundation::printable;
use ontempo_scenario::tables::EVENTS;

use super::Reading;
use crate::columns::{Columns, Texts, optional};
use crate::error::PageError;
use crate::model::Mark;
use crate::numbers;

/// Reactions of congestion controllers: each has a lane of its group.
const REACTIONS: [&str; 3] = ["loss", "timeout", "early response"];

/// Marks of a lane; beyond, those close to each other are one.
const MAX_MARKS: f64 = 400.0;

/// Events that are drawn through all charts; if there are more, none is.
const MAX_THROUGH_ALL: usize = 60;

pub(super) fn read(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let table = reading.table(&EVENTS)?;
    let (time, event) = (table.number("time_s")?, table.text("event")?);
    let (flow, group) = (table.count("flow")?, table.text("group")?);
    let changes = Changes::read(&table)?;
    let mut lanes: BTreeMap<(bool, String), Vec<(f64, String)>> = BTreeMap::new();
    for row in 0..table.len() {
        let event = printable(event.get(row).unwrap_or_default());
        let is_reaction = REACTIONS.contains(&&*event);
        let number = flow.is_valid(row).then(|| usize::try_from(flow.value(row)).ok()).flatten();
        let place = number.and_then(|flow| reading.flows.get(flow));
        let (lane, text) = match (is_reaction, place) {
            (true, Some(place)) => {
                let group = printable(&reading.groups[place.group]);
                (format!("{group}: {event}"), format!("{group}.{}: {event}", place.index))
            }
            _ => {
                let of = group.get(row).or_else(|| changes.link.get(row)).map(printable);
                let of = of.map_or_else(String::new, |of| format!("{of}: "));
                ("network".to_owned(), format!("{of}{event}{}", changes.values(row)))
            }
        };
        lanes.entry((is_reaction, lane)).or_default().push((time.value(row), text));
    }
    let has_reactions = lanes.keys().any(|(is_reaction, _)| *is_reaction);
    if !has_reactions && !reading.network.records_events {
        reading.run.lacks("reactions of congestion controllers", &["measure.events = true"]);
    }
    for ((is_reaction, lane), events) in lanes {
        let concerns_all = !is_reaction && events.len() <= MAX_THROUGH_ALL;
        add(reading, &lane, events, concerns_all);
    }
    Ok(())
}

/// What the table says of changes of links.
struct Changes<'a> {
    link: Texts<'a>,
    rate: &'a Float64Array,
    delay: &'a Float64Array,
    loss: &'a Float64Array,
}

impl<'a> Changes<'a> {
    fn read(table: &'a Columns) -> Result<Self, PageError> {
        Ok(Self {
            link: table.text("link")?,
            rate: table.number("rate_bps")?,
            delay: table.number("delay_s")?,
            loss: table.number("loss")?,
        })
    }

    /// The new values in `row`: ` to 2 Mbit/s, 40 ms`; empty if there are none.
    fn values(&self, row: usize) -> String {
        let values = [
            optional(self.rate, row).map(numbers::rate),
            optional(self.delay, row).map(numbers::seconds),
            optional(self.loss, row).map(|loss| format!("{} lost", numbers::percent(loss))),
        ];
        let values: Vec<String> = values.into_iter().flatten().collect();
        if values.is_empty() { String::new() } else { format!(" to {}", values.join(", ")) }
    }
}

fn add(reading: &mut Reading<'_>, lane: &str, mut events: Vec<(f64, String)>, concerns_all: bool) {
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let width = if events.len() as f64 > MAX_MARKS { reading.run.end_s / MAX_MARKS } else { 0.0 };
    let near = |a: &(f64, String), b: &(f64, String)| {
        width > 0.0 && (a.0 / width).floor() == (b.0 / width).floor()
    };
    for together in events.chunk_by(near) {
        let (at_s, first) = &together[0];
        let text = match together.len() {
            1 => first.clone(),
            count => {
                format!("{first}, and {} more within {}", count - 1, numbers::seconds(width))
            }
        };
        reading.run.marks.push(Mark { at_s: *at_s, lane: lane.to_owned(), text, concerns_all });
    }
}
