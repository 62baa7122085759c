//! The summary of a run, computed from its tables.

use std::collections::BTreeSet;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use ontempo_simulator::{ResultTable, StandstillEntry};
use serde::Serialize;

use crate::columns::{Columns, optional};
use crate::output::counted;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) flows: Vec<Group>,
    pub(crate) links: Vec<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) standstills: Vec<StandstillEntry>,
}

/// A sentence about a link over which nothing passes from some time to the end of the run.
pub(crate) fn sentence(standstill: &StandstillEntry) -> String {
    let StandstillEntry { link, since_s, waiting_packets, unfinished_flows } = standstill;
    let flows: Vec<_> = unfinished_flows
        .iter()
        .map(|(group, count)| format!("{} of {group}", counted(*count, "flow")))
        .collect();
    let verb = if *waiting_packets == 1 { "waits" } else { "wait" };
    let unfinished = match flows.len() {
        0 => "no flow over it is unfinished".to_owned(),
        _ => format!("not finished: {}", flows.join(", ")),
    };
    format!(
        "Nothing passes {link} from {since_s} s to the end of the run: {} {verb} there; {unfinished}.",
        counted(*waiting_packets, "packet")
    )
}

/// The flows of one group together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Group {
    pub(crate) group: String,
    pub(crate) transport: String,
    pub(crate) congestion: Option<String>,
    pub(crate) flows: u64,
    /// Sum over all flows.
    pub(crate) goodput_bps: f64,
    pub(crate) sent_packets: u64,
    pub(crate) dropped_packets: u64,
    /// `None` where the transport does not tell it.
    pub(crate) retransmitted: Option<u64>,
    pub(crate) timeouts: u64,
    /// Mean over the flows with a measured RTT.
    pub(crate) srtt_s: Option<f64>,
    /// Smallest of all flows.
    pub(crate) min_rtt_s: Option<f64>,
    pub(crate) playout: Vec<Playout>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) films: Vec<Film>,
}

impl Group {
    /// Share of sent packets lost in the network, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        share(self.dropped_packets, self.sent_packets)
    }

    /// Share of retransmissions in the sent packets, 0 to 1.
    pub(crate) fn retransmissions(&self) -> Option<f64> {
        Some(share(self.retransmitted?, self.sent_packets))
    }
}

/// Units of a group's streams with one start-up delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Playout {
    pub(crate) startup_delay_s: f64,
    pub(crate) units: u64,
    pub(crate) late: u64,
}

impl Playout {
    pub(crate) fn late_share(&self) -> f64 {
        share(self.late, self.units)
    }
}

/// The films of a group for players of one latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Film {
    pub(crate) player_latency_s: f64,
    pub(crate) pictures: u64,
    pub(crate) decodable_pictures: u64,
    pub(crate) sound_frames: u64,
    pub(crate) decodable_sound: u64,
    pub(crate) freezes: u64,
    /// The longest of all films.
    pub(crate) longest_freeze_s: f64,
    pub(crate) frozen_s: f64,
    /// Quantiles of the latencies of frames, the largest of all films; `None`: a film of which no frame
    /// arrived, or none.
    pub(crate) latency_p50_s: Option<f64>,
    pub(crate) latency_p95_s: Option<f64>,
    pub(crate) latency_p99_s: Option<f64>,
    pub(crate) media_bytes: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) back_bytes: u64,
}

impl Film {
    /// Share of the pictures that can be decoded on time, 0 to 1.
    pub(crate) fn decodable(&self) -> f64 {
        share(self.decodable_pictures, self.pictures)
    }

    /// Share of the sound that is there on time, 0 to 1.
    pub(crate) fn sound(&self) -> f64 {
        share(self.decodable_sound, self.sound_frames)
    }

    /// Bytes on the wire for each of the film's.
    pub(crate) fn bytes(&self) -> f64 {
        share(self.wire_bytes, self.media_bytes)
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Link {
    pub(crate) link: String,
    /// Share of the time in which it transmitted.
    pub(crate) busy: f64,
    pub(crate) arrivals: u64,
    pub(crate) dropped: u64,
    /// Mean queue length over time.
    pub(crate) mean_packets: f64,
}

impl Link {
    pub(crate) fn drop_rate(&self) -> f64 {
        share(self.dropped, self.arrivals)
    }
}

/// `part` / `whole`; 0 if `whole` is 0.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Summary {
    pub(crate) fn of(tables: &[ResultTable]) -> Self {
        let mut flows = groups(tables);
        add_playout(tables, &mut flows);
        add_films(tables, &mut flows);
        Self { flows, links: links(tables), standstills: Vec::new() }
    }
}

/// The groups; rows of one group are adjacent in the table.
fn groups(tables: &[ResultTable]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let Some(flows) = Columns::of(tables, "flows") else { return groups };
    let names = (flows.text("group"), flows.text("transport"), flows.text("congestion"));
    let (goodput, srtt) = (flows.number("goodput_bps"), flows.number("srtt_s"));
    let (sent, dropped) = (flows.count("sent_packets"), flows.count("dropped_packets"));
    let (again, timeouts) = (flows.count("retransmitted"), flows.count("timeouts"));
    let minimum = flows.number("min_rtt_s");
    let mut timed = 0.0;
    for row in flows.rows() {
        let name = names.0.get(row).unwrap_or_default();
        if groups.last().is_none_or(|group| group.group != name) {
            groups.push(Group {
                group: name.to_owned(),
                transport: names.1.get(row).unwrap_or_default().to_owned(),
                congestion: names.2.get(row).map(str::to_owned),
                ..Group::default()
            });
            timed = 0.0;
        }
        let Some(group) = groups.last_mut() else { continue };
        group.flows += 1;
        group.goodput_bps += goodput.value(row);
        group.sent_packets += sent.value(row);
        group.dropped_packets += dropped.value(row);
        if again.is_valid(row) {
            *group.retransmitted.get_or_insert_default() += again.value(row);
        }
        group.timeouts += timeouts.value(row);
        if let Some(rtt) = optional(srtt, row) {
            timed += 1.0;
            let mean = group.srtt_s.unwrap_or_default();
            group.srtt_s = Some(mean + (rtt - mean) / timed);
        }
        if let Some(rtt) = optional(minimum, row) {
            group.min_rtt_s = Some(group.min_rtt_s.map_or(rtt, |min| min.min(rtt)));
        }
    }
    groups
}

fn add_playout(tables: &[ResultTable], groups: &mut [Group]) {
    let Some(playout) = Columns::of(tables, "playout") else { return };
    let names = playout.text("group");
    let delays = playout.number("startup_delay_s");
    let (units, late) = (playout.count("units"), playout.count("late"));
    for row in playout.rows() {
        let name = names.get(row).unwrap_or_default();
        let Some(group) = groups.iter_mut().find(|group| group.group == name) else { continue };
        let delay = delays.value(row);
        let known = group.playout.iter().position(|known| known.startup_delay_s == delay);
        let place = known.unwrap_or(group.playout.len());
        if known.is_none() {
            group.playout.push(Playout { startup_delay_s: delay, units: 0, late: 0 });
        }
        group.playout[place].units += units.value(row);
        group.playout[place].late += late.value(row);
    }
}

fn add_films(tables: &[ResultTable], groups: &mut [Group]) {
    let Some(media) = Columns::of(tables, "media") else { return };
    let names = media.text("group");
    let [player, longest, frozen] =
        ["player_latency_s", "longest_freeze_s", "frozen_s"].map(|name| media.number(name));
    let quantiles =
        ["latency_p50_s", "latency_p95_s", "latency_p99_s"].map(|name| media.number(name));
    let counts = [
        "pictures",
        "decodable_pictures",
        "sound_frames",
        "decodable_sound",
        "freezes",
        "media_bytes",
        "wire_bytes",
        "back_bytes",
    ]
    .map(|name| media.count(name));
    for row in media.rows() {
        let name = names.get(row).unwrap_or_default();
        let Some(group) = groups.iter_mut().find(|group| group.group == name) else { continue };
        let latency = player.value(row);
        let known = group.films.iter().position(|known| known.player_latency_s == latency);
        let place = known.unwrap_or(group.films.len());
        if known.is_none() {
            group.films.push(Film { player_latency_s: latency, ..Film::default() });
        }
        let film = &mut group.films[place];
        let sums = [
            &mut film.pictures,
            &mut film.decodable_pictures,
            &mut film.sound_frames,
            &mut film.decodable_sound,
            &mut film.freezes,
            &mut film.media_bytes,
            &mut film.wire_bytes,
            &mut film.back_bytes,
        ];
        for (sum, count) in sums.into_iter().zip(&counts) {
            *sum += count.value(row);
        }
        film.longest_freeze_s = film.longest_freeze_s.max(longest.value(row));
        film.frozen_s += frozen.value(row);
        let largest = [&mut film.latency_p50_s, &mut film.latency_p95_s, &mut film.latency_p99_s];
        for (largest, quantile) in largest.into_iter().zip(quantiles) {
            let one = optional(quantile, row);
            // A film of which nothing arrived has none.
            *largest = if known.is_none() { one } else { largest.zip(one).map(|(a, b)| a.max(b)) };
        }
    }
}

/// Links between routers; links between a host and its router only if traced or if packets were
/// dropped there.
fn links(tables: &[ResultTable]) -> Vec<Link> {
    let Some(links) = Columns::of(tables, "links") else { return Vec::new() };
    let watched = watched(tables);
    let (names, from, to) = (links.text("link"), links.text("from"), links.text("to"));
    let causes = ["dropped_full", "dropped_early", "dropped_loss", "dropped_policer", "corrupted"];
    let dropped = causes.map(|cause| links.count(cause));
    let (arrivals, busy) = (links.count("arrivals"), links.number("busy"));
    let queue = links.number("mean_packets");
    let summarise = |row: usize| {
        let name = names.get(row).unwrap_or_default();
        let dropped = dropped.iter().map(|count| count.value(row)).sum();
        let between_routers = ![from.get(row), to.get(row)].into_iter().flatten().any(is_host);
        (between_routers || dropped > 0 || watched.contains(name)).then(|| Link {
            link: name.to_owned(),
            busy: busy.value(row),
            arrivals: arrivals.value(row),
            dropped,
            mean_packets: queue.value(row),
        })
    };
    links.rows().filter_map(summarise).collect()
}

/// The hosts of a flow are named `GROUP.INDEX.source` and `GROUP.INDEX.sink`.
fn is_host(node: &str) -> bool {
    node.ends_with(".source") || node.ends_with(".sink")
}

/// The links whose queues or packets were measured.
fn watched(tables: &[ResultTable]) -> BTreeSet<String> {
    let measured = ["queues", "packets"].into_iter().filter_map(|name| Columns::of(tables, name));
    let names = measured.map(|columns| columns.distinct("link"));
    names
        .flat_map(|names| {
            let names: Vec<String> =
                names.as_string::<i32>().iter().flatten().map(str::to_owned).collect();
            names
        })
        .collect()
}
