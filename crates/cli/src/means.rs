//! Means over the summaries of several runs.

use std::collections::HashMap;

use serde::Serialize;

use crate::statistics::Mean;
use crate::summary::{Film, Group, Link, Playout, Summary};

/// Means over runs of one scenario that differ in their seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Means {
    /// Whether all summaries are equal: the seed then decides nothing.
    pub(crate) equal: bool,
    pub(crate) flows: Vec<GroupMeans>,
    pub(crate) links: Vec<LinkMeans>,
}

/// Means of one group's values; `None` for a value that no run has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GroupMeans {
    pub(crate) group: String,
    pub(crate) transport: String,
    pub(crate) congestion: Option<String>,
    pub(crate) flows: u64,
    pub(crate) goodput_bps: Option<Mean>,
    pub(crate) loss: Option<Mean>,
    /// Of transports that send again and tell it.
    pub(crate) retransmissions: Option<Mean>,
    /// Of TCP alone.
    pub(crate) timeouts: Option<Mean>,
    pub(crate) srtt_s: Option<Mean>,
    pub(crate) min_rtt_s: Option<Mean>,
    pub(crate) playout: Vec<PlayoutMeans>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) films: Vec<FilmMeans>,
}

/// Means of the films for players of one latency.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FilmMeans {
    pub(crate) player_latency_s: f64,
    /// Shares, 0 to 1.
    pub(crate) decodable: Option<Mean>,
    pub(crate) sound: Option<Mean>,
    pub(crate) freezes: Option<Mean>,
    pub(crate) longest_freeze_s: Option<Mean>,
    pub(crate) frozen_s: Option<Mean>,
    pub(crate) latency_p50_s: Option<Mean>,
    pub(crate) latency_p95_s: Option<Mean>,
    pub(crate) latency_p99_s: Option<Mean>,
    /// Bytes on the wire for each of the film's.
    pub(crate) bytes: Option<Mean>,
}

/// Means of the units with one start-up delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PlayoutMeans {
    pub(crate) startup_delay_s: f64,
    pub(crate) units: Option<Mean>,
    /// Share of the units, 0 to 1.
    pub(crate) late: Option<Mean>,
}

/// Means of one direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LinkMeans {
    pub(crate) link: String,
    pub(crate) busy: Option<Mean>,
    pub(crate) dropped: Option<Mean>,
    pub(crate) drop_rate: Option<Mean>,
    pub(crate) mean_packets: Option<Mean>,
}

impl Means {
    /// The means over `summaries`, in the order of the first.
    pub(crate) fn of(summaries: &[Summary]) -> Self {
        let Some(first) = summaries.first() else { return Self::default() };
        Self {
            equal: summaries.len() > 1 && summaries.iter().all(|summary| summary == first),
            flows: first.flows.iter().map(|group| group_means(group, summaries)).collect(),
            links: link_means(summaries),
        }
    }
}

fn group_means(first: &Group, summaries: &[Summary]) -> GroupMeans {
    let every = |figure: &dyn Fn(&Group) -> Option<f64>| {
        let groups = summaries.iter().flat_map(|summary| &summary.flows);
        Mean::of(groups.filter(|other| other.group == first.group).filter_map(figure))
    };
    let is_tcp = first.transport == "tcp";
    let repeats = !["udp", "spaced"].contains(&first.transport.as_str());
    let playout = |(place, playout): (usize, &Playout)| {
        let every = |figure: fn(&Playout) -> f64| {
            every(&|group: &Group| group.playout.get(place).map(figure))
        };
        PlayoutMeans {
            startup_delay_s: playout.startup_delay_s,
            units: every(|playout| playout.units as f64),
            late: every(Playout::late_share),
        }
    };
    let film = |(place, film): (usize, &Film)| {
        let every = |figure: fn(&Film) -> Option<f64>| {
            every(&|group: &Group| group.films.get(place).and_then(figure))
        };
        FilmMeans {
            player_latency_s: film.player_latency_s,
            decodable: every(|film| Some(film.decodable())),
            sound: every(|film| Some(film.sound())),
            freezes: every(|film| Some(film.freezes as f64)),
            longest_freeze_s: every(|film| Some(film.longest_freeze_s)),
            frozen_s: every(|film| Some(film.frozen_s)),
            latency_p50_s: every(|film| film.latency_p50_s),
            latency_p95_s: every(|film| film.latency_p95_s),
            latency_p99_s: every(|film| film.latency_p99_s),
            bytes: every(|film| Some(film.bytes())),
        }
    };
    GroupMeans {
        group: first.group.clone(),
        transport: first.transport.clone(),
        congestion: first.congestion.clone(),
        flows: first.flows,
        goodput_bps: every(&|group| Some(group.goodput_bps)),
        loss: every(&|group| Some(group.loss())),
        retransmissions: every(&|group| group.retransmissions().filter(|_| repeats)),
        timeouts: every(&|group| is_tcp.then_some(group.timeouts as f64)),
        srtt_s: every(&|group| group.srtt_s),
        min_rtt_s: every(&|group| group.min_rtt_s),
        playout: first.playout.iter().enumerate().map(playout).collect(),
        films: first.films.iter().enumerate().map(film).collect(),
    }
}

/// A link may be in the summaries of some runs only.
fn link_means(summaries: &[Summary]) -> Vec<LinkMeans> {
    let mut rows: Vec<Vec<&Link>> = Vec::new();
    let mut places = HashMap::new();
    for link in summaries.iter().flat_map(|summary| &summary.links) {
        let place = *places.entry(link.link.as_str()).or_insert_with(|| {
            rows.push(Vec::new());
            rows.len() - 1
        });
        rows[place].push(link);
    }
    let means = |links: Vec<&Link>| {
        let every = |figure: fn(&Link) -> f64| Mean::of(links.iter().map(|link| figure(link)));
        LinkMeans {
            link: links[0].link.clone(),
            busy: every(|link| link.busy),
            dropped: every(|link| link.dropped as f64),
            drop_rate: every(Link::drop_rate),
            mean_packets: every(|link| link.mean_packets),
        }
    };
    rows.into_iter().map(means).collect()
}
