//! The profiles in words: for a terminal, and as a page of the documentation.

use std::fmt::Write;

use super::{Profile, Read, Statistic, Target};
use crate::explain::link_in_words;
use crate::model::{AccessDirection, LinkProfile, LinkSpec, LossSpec, QueueLimit, QueueSpec};

const PREAMBLE: &str = include_str!("preamble.txt");

/// `docs/profiles.md`: what the profiles are, from their files.
pub fn page() -> String {
    let mut page = PREAMBLE.to_owned();
    _ = writeln!(
        page,
        "\n## Overview\n\nRates are medians. Delays are one way, without what varies. A queue is \
         given with the time in which it drains at the median rate.\n\n\
         | profile | | rate | delay | loss | queue | sources |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    for profile in LinkProfile::ALL {
        let name = profile.name();
        let values = Profile::of(profile);
        for direction in [AccessDirection::Downlink, AccessDirection::Uplink] {
            let link = values.link(direction);
            let (first, sources) = match direction {
                AccessDirection::Downlink => {
                    let names: Vec<&str> = values.sources.keys().map(String::as_str).collect();
                    (format!("[`{name}`](#{name})"), names.join(", "))
                }
                AccessDirection::Uplink => (String::new(), String::new()),
            };
            _ = writeln!(
                page,
                "| {first} | {} | {} | {} | {} | {} | {sources} |",
                direction.name(),
                link.rate,
                link.delay.mean(),
                loss(link),
                queue(link)
            );
        }
    }
    standing(&mut page);
    for profile in LinkProfile::ALL {
        section(&mut page, profile);
    }
    page
}

/// How many statistics of each profile stand on what.
fn standing(page: &mut String) {
    _ = writeln!(
        page,
        "\n## What stands on what\n\n\
         Each statistic that a profile is held against has bounds. Of a source that is named for them, the figure was\n\
         read in the source itself (its text, its abstract, its authors' own account) or in the report that is named with\n\
         it; or it was written down from memory, and has not been read since: check it before you rely on it. Some\n\
         sources say what a link is like and give no figure. Bounds \"around our assumption\" only hold the generator to\n\
         a choice of ours: that they are kept says nothing about real links.\n\n\
         | profile | statistics | read in the source | read in a report | from memory | source without a figure | \
         around our assumption |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut sums = [0; 6];
    for profile in LinkProfile::ALL {
        let targets = &Profile::of(profile).targets;
        let of = |read| targets.iter().filter(|target| target.read == read).count();
        let kinds = [Read::Source, Read::Report, Read::Memory, Read::NoFigure];
        let [source, report, memory, none] = kinds.map(|read| of(Some(read)));
        let counts = [targets.len(), source, report, memory, none, of(None)];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let name = profile.name();
        _ = writeln!(
            page,
            "| [`{name}`](#{name}) | {} |",
            counts.map(|it| it.to_string()).join(" | ")
        );
    }
    _ = writeln!(page, "| all | {} |", sums.map(|it| it.to_string()).join(" | "));
}

/// The source of a statistic's bounds, and where its figure was read.
fn source(target: &Target) -> String {
    let Some(source) = &target.source else { return "assumed".to_owned() };
    match target.read {
        Some(Read::Memory) => format!("{source}, from memory"),
        Some(Read::Report) => format!("{source}, by a report"),
        Some(Read::Source | Read::NoFigure) | None => source.clone(),
    }
}

fn section(page: &mut String, profile: LinkProfile) {
    let values = Profile::of(profile);
    _ = writeln!(page, "\n## {}\n\n{}.\n", profile.name(), values.summary);
    for direction in [AccessDirection::Downlink, AccessDirection::Uplink] {
        let link = link_in_words(values.link(direction));
        _ = writeln!(page, "- {}: {link}", direction.name());
    }
    _ = writeln!(page, "\n| values | from | |\n| --- | --- | --- |");
    for basis in &values.basis {
        let source = basis.source.as_deref().unwrap_or("assumed");
        _ = writeln!(page, "| {} | {source} | {} |", basis.of, basis.why);
    }
    _ = writeln!(
        page,
        "\n| statistic | direction | bounds | source says | source |\n| --- | --- | --- | --- | --- |"
    );
    for target in &values.targets {
        let source = source(target);
        let direction = target.direction.map_or("both", AccessDirection::name);
        _ = writeln!(
            page,
            "| {} | {direction} | {} | {} | {source} |",
            target.statistic.words(),
            bounds(target),
            target.says
        );
    }
    _ = writeln!(page);
    for (name, text) in &values.sources {
        _ = writeln!(page, "- {name}: {text}");
    }
}

/// The profile in words, for a terminal.
pub fn shown(profile: LinkProfile) -> String {
    let values = Profile::of(profile);
    let mut text = format!("{}: {}\n", profile.name(), values.summary);
    for direction in [AccessDirection::Downlink, AccessDirection::Uplink] {
        _ = write!(text, "\n{}: {}\n", direction.name(), link_in_words(values.link(direction)));
    }
    text.push_str("\nFrom:\n");
    for basis in &values.basis {
        let source = basis.source.as_deref().unwrap_or("assumed");
        _ = writeln!(text, "  {} ({source}): {}", basis.of, basis.why);
    }
    text.push_str("\nSources:\n");
    for (name, source) in &values.sources {
        _ = writeln!(text, "  {name}: {source}");
    }
    text
}

fn bounds(target: &Target) -> String {
    let unit = target.statistic.unit();
    let space = if unit.is_empty() { "" } else { " " };
    format!("{} to {}{space}{unit}", target.low, target.high)
}

fn loss(link: &LinkSpec) -> String {
    match &link.loss {
        None => "none".to_owned(),
        Some(LossSpec::Bernoulli { rate }) => percent(*rate),
        Some(LossSpec::Gilbert { p, q }) => {
            format!("{} in bursts of {:.1}", percent(p / (p + q)), 1.0 / q)
        }
        Some(LossSpec::Trace { .. }) => "as listed".to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e5).round() / 1e3)
}

fn queue(link: &LinkSpec) -> String {
    let (kind, limit) = match &link.queue {
        QueueSpec::DropTail { limit } => ("drop-tail", *limit),
        QueueSpec::FqCodel { .. } => ("FQ-CoDel", None),
        QueueSpec::Dualpi2 { .. } => ("DualPI2", None),
        QueueSpec::Codel { .. } => ("CoDel", None),
        QueueSpec::Pie { .. } => ("PIE", None),
        QueueSpec::Red { .. } => ("RED", None),
        QueueSpec::Wfq { .. } => ("WFQ", None),
        QueueSpec::Cbq { .. } => ("CBQ", None),
    };
    match limit {
        Some(QueueLimit::Bytes(bytes)) => {
            let millis = 8e3 * bytes.get() as f64 / link.rate.as_bits_per_sec() as f64;
            format!("{kind}, {bytes} ({millis:.0} ms)")
        }
        Some(QueueLimit::Packets(packets)) => format!("{kind}, {packets}"),
        None => kind.to_owned(),
    }
}

impl Statistic {
    /// What it is called in a table.
    pub const fn words(self) -> &'static str {
        match self {
            Self::RateMedian => "median rate",
            Self::RateMean => "mean rate",
            Self::RateP5 => "5th percentile of the rate",
            Self::RateP95 => "95th percentile of the rate",
            Self::RateVariation => "coefficient of variation of the rate",
            Self::RateStep => "change of the rate from second to second, RMS",
            Self::RateCorrelationTime => "correlation time of the rate",
            Self::ShareBelowNominal => "share of time below the nominal rate",
            Self::OutageShare => "share of time without a rate",
            Self::LongOutage => "mean outage, of those longer than 100 ms",
            Self::ShortOutage => "mean outage, of those of at most 100 ms",
            Self::ShortOutageInterval => "time between outages of at most 100 ms",
            Self::OutageInterval => "time between outages",
            Self::RttMin => "lowest round trip",
            Self::RttP25 => "round trip, 25th percentile",
            Self::RttMedian => "round trip, median",
            Self::RttP75 => "round trip, 75th percentile",
            Self::RttP90 => "round trip, 90th percentile",
            Self::RttP99 => "round trip, 99th percentile",
            Self::RttJitter => "difference of round trips a second apart, mean",
            Self::Loss => "share of packets lost",
            Self::LossRun => "packets lost in a row, of one each 20 ms",
            Self::QueueDrain => "time in which a full queue drains",
        }
    }

    /// Its unit; empty for a ratio.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::RateMedian | Self::RateMean | Self::RateP5 | Self::RateP95 | Self::RateStep => {
                "Mbit/s"
            }
            Self::RateCorrelationTime
            | Self::LongOutage
            | Self::ShortOutageInterval
            | Self::OutageInterval => "s",
            Self::ShortOutage
            | Self::RttMin
            | Self::RttP25
            | Self::RttMedian
            | Self::RttP75
            | Self::RttP90
            | Self::RttP99
            | Self::RttJitter
            | Self::QueueDrain => "ms",
            Self::RateVariation
            | Self::ShareBelowNominal
            | Self::OutageShare
            | Self::Loss
            | Self::LossRun => "",
        }
    }
}
