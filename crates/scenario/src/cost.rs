//! What a simulation of a scenario will take: packets, rows, memory, time.

use std::{fmt, fs};

use ontempo_foundation::{Duration, Rate};

use crate::backbone::Backbone;
use crate::explain::{offered_bits_per_sec, packet_of};
use crate::model::{
    Application, FlowGroup, LinkSpec, QueueLimit, QueueSpec, Scenario, Topology, Transport,
};
use crate::traces;

/// Memory of a flow with its four access links and their names, in bytes: measured with a million
/// flows.
const BYTES_OF_FLOW: f64 = 5_000.0;
/// Time to set up a flow and to write its results, in seconds: measured with a million flows.
const SECONDS_OF_FLOW: f64 = 25e-6;
/// Memory of a packet under way, in bytes: the packet and its event.
const BYTES_OF_PACKET: f64 = 96.0;
/// Memory of a row of a large result table until it is written, in bytes.
const BYTES_OF_ROW: f64 = 24.0;
/// Values that a sample records of a flow.
const VALUES_OF_SAMPLE: f64 = 6.0;
/// Time of a packet from sender to receiver with its ACK, in seconds: `make bench`, 25 flows to
/// 10,000.
const SECONDS_OF_PACKET: f64 = 1e-6;
/// Time of a packet that is sent and finds its first queue full, in seconds: UDP at 1000 times the rate
/// of a link.
const SECONDS_OF_LOST: f64 = 0.05e-6;
/// Time of a row, in seconds.
const SECONDS_OF_ROW: f64 = 0.1e-6;

/// Share of the available memory that runs may take: the rest of the machine lives on.
const MAX_SHARE: f64 = 0.8;
/// The longest estimated time of a run that needs no word of the user's, in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// An estimate of what one run takes on an ordinary core, within a factor of about three.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Packets that the flows send, ACKs not counted.
    pub packets: f64,
    /// Rows of the result tables.
    pub rows: f64,
    /// Memory in bytes.
    pub memory: f64,
    /// Time of computation in seconds.
    pub seconds: f64,
}

impl Cost {
    /// Why `at_once` simulations are too large: they take more memory than `available` bytes bear, or
    /// one takes more than a day. `None` if they are not, or for memory if `available` is not known.
    fn too_large(&self, at_once: usize, available: Option<f64>) -> Option<String> {
        let lacks = self.lacks(at_once, available);
        if lacks.is_none() && self.seconds <= MAX_SECONDS {
            return None;
        }
        let rarer = "fewer flows, a shorter duration, lower rates or rarer samples make it smaller";
        Some(format!("a run takes {self}: {}{}; {rarer}", self.counts(), lacks.unwrap_or_default()))
    }

    /// Why an emulation is too large: its results take more memory than `available` bytes bear. It
    /// takes the time of the scenario, whatever is estimated here.
    fn too_large_to_emulate(&self, available: Option<f64>) -> Option<String> {
        let lacks = self.lacks(1, available)?;
        let memory = rounded_bytes(self.memory);
        let rarer = "a shorter duration, lower rates or rarer samples make it smaller";
        Some(format!("a run takes about {memory} of memory: {}{lacks}; {rarer}", self.counts()))
    }

    fn counts(&self) -> String {
        format!("{:.1e} packets and {:.1e} rows", self.packets, self.rows)
    }

    /// What is free, if `at_once` runs take more than their share of it.
    fn lacks(&self, at_once: usize, available: Option<f64>) -> Option<String> {
        let available = available?;
        let memory = self.memory * at_once as f64;
        (memory > MAX_SHARE * available).then(|| {
            let runs =
                if at_once > 1 { format!(", and {at_once} run at a time") } else { String::new() };
            format!("; {:.1} GB of memory are free{runs}", available / 1e9)
        })
    }
}

/// Free memory of this machine in bytes; `None` where the system does not say.
fn available_bytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "about {} of memory and {}",
            rounded_bytes(self.memory),
            rounded_time(self.seconds)
        )
    }
}

/// `12 MB`, with one digit below 10.
fn rounded_bytes(bytes: f64) -> String {
    let (unit, name) = [(1e12, "TB"), (1e9, "GB")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
        .unwrap_or((1e6, "MB"));
    match bytes / unit {
        small if small < 1.0 => format!("1 {name}"),
        small if small < 10.0 => format!("{small:.1} {name}"),
        count => format!("{count:.0} {name}"),
    }
}

/// `5 minutes`: an estimated time in words.
pub fn rounded_time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "less than a second".to_owned(),
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6_000.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 360_000.0 => format!("{:.0} hours", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

impl Scenario {
    /// Estimates what one simulation of the scenario takes.
    pub fn cost(&self) -> Cost {
        let backbone = Backbone::new(&self.topology);
        let groups = rates(self, &backbone);
        let packets: f64 = groups.iter().map(|group| group.packets).sum();
        let under_way: f64 = groups.iter().map(|group| group.under_way).sum();
        let endless: f64 = groups.iter().map(|group| group.endless).sum();
        let queued: f64 = backbone.links.iter().map(|link| queue_packets(&link.spec.queue)).sum();
        let flows: f64 = self.flows.values().map(|group| f64::from(group.count)).sum();
        let rows = self.rows(&groups);
        let memory = BYTES_OF_FLOW * flows
            + BYTES_OF_PACKET * (under_way + (queued + endless).min(packets))
            + BYTES_OF_ROW * rows
            + traces::memory(backbone.specs()) as f64;
        let carried: f64 = groups.iter().map(|group| group.carried).sum();
        let seconds = SECONDS_OF_FLOW * flows
            + SECONDS_OF_PACKET * carried
            + SECONDS_OF_LOST * (packets - carried)
            + SECONDS_OF_ROW * rows;
        Cost { packets, rows, memory, seconds }
    }

    /// Why this machine does not bear `at_once` simulations of the scenario at a time: a sentence with
    /// the estimate and what makes it smaller. `None` if it does; with `at_once` 0 (they run
    /// elsewhere) if none takes more than a day.
    pub fn too_large(&self, at_once: usize) -> Option<String> {
        self.cost().too_large(at_once, available_bytes())
    }

    /// Why this machine does not bear what an emulation of the scenario records, as
    /// [`too_large`](Self::too_large) says it.
    pub fn too_large_to_emulate(&self) -> Option<String> {
        self.cost().too_large_to_emulate(available_bytes())
    }

    fn rows(&self, groups: &[Load<'_>]) -> f64 {
        let measure = &self.measure;
        let is_sampled = |name: &str| match &measure.sample_flows {
            Some(names) => names.iter().any(|sampled| sampled == name),
            None => true,
        };
        let times = |interval: Duration| self.duration.as_secs_f64() / interval.as_secs_f64();
        let sampled = groups.iter().filter(|group| is_sampled(group.name));
        let subjects: f64 = sampled.map(|group| group.flows).sum();
        let mut rows = 0.0;
        if let Some(interval) = measure.sample_every {
            let values = VALUES_OF_SAMPLE * subjects + measure.queues.len() as f64;
            rows += times(interval) * values;
        }
        if let Some(interval) = measure.intervals {
            rows += times(interval) * groups.iter().map(|group| group.flows).sum::<f64>();
        }
        let packets: f64 = groups.iter().map(|group| group.packets).sum();
        rows += measure.packets.len() as f64 * packets;
        if measure.adus || measure.messages {
            rows += packets;
        }
        rows
    }
}

/// What a group of flows sends.
struct Load<'a> {
    name: &'a str,
    flows: f64,
    /// In the whole run.
    packets: f64,
    /// Those of them that the links bear.
    carried: f64,
    /// In the network at a time, without those that wait in queues.
    under_way: f64,
    /// Most that wait in queues without a limit.
    endless: f64,
}

/// Each group's packets: what its application offers or its window allows, as far as the links
/// that it shares bear it.
fn rates<'a>(scenario: &'a Scenario, backbone: &Backbone<'_>) -> Vec<Load<'a>> {
    let mut demanded = vec![0.0; backbone.links.len()];
    let mut demands = Vec::new();
    for (name, group) in &scenario.flows {
        let demand = Demand::of(group, &scenario.topology, backbone);
        for place in &demand.route {
            demanded[*place] += demand.bits_per_sec;
        }
        demands.push((name.as_str(), group, demand));
    }
    let load = |(name, group, demand): (&'a str, &FlowGroup, Demand)| {
        let share = |place: &usize| {
            let capacity = bits_per_sec(backbone.links[*place].spec.rate);
            (capacity / demanded[*place]).min(1.0)
        };
        let granted = demand.route.iter().map(share).fold(1.0, f64::min) * demand.bits_per_sec;
        let per_sec =
            |bits_per_sec: f64| bits_per_sec / (8.0 * packet_of(group).get().max(1) as f64);
        let in_run = |bits_per_sec: f64| {
            (per_sec(bits_per_sec) * scenario.duration.as_secs_f64()).min(most_packets(group))
        };
        // Whatever the network bears.
        let is_deaf = matches!(group.transport, Transport::Udp { .. });
        let packets = in_run(if is_deaf { demand.offered } else { granted });
        let carried = in_run(granted).min(packets);
        let under_way = (per_sec(granted) * demand.round_trip).min(packets);
        let endless = if !demand.fills_endless(backbone, &demanded) {
            0.0
        } else if is_deaf {
            packets - carried
        } else {
            // What the window allows; other transports stop before.
            demand.window.min(packets)
        };
        Load { name, flows: f64::from(group.count), packets, carried, under_way, endless }
    };
    demands.into_iter().map(load).collect()
}

/// Packets of all flows of the group together, if what each sends has an end; repetitions not counted.
fn most_packets(group: &FlowGroup) -> f64 {
    let one = match &group.application {
        Application::File { size } => {
            let payload = packet_of(group).get().saturating_sub(headers_of(&group.transport));
            size.get() as f64 / payload.max(1) as f64 + 1.0
        }
        Application::Adus { count, .. } => *count as f64,
        _ => f64::INFINITY,
    };
    f64::from(group.count) * one
}

/// Bytes of IP and of the transport in each packet, for those that carry files.
fn headers_of(transport: &Transport) -> u64 {
    match transport {
        Transport::Tcp(_) => 40,
        Transport::Udp { .. } | Transport::Spaced { .. } => 28,
        _ => 0,
    }
}

struct Demand {
    /// Places of the links between routers.
    route: Vec<usize>,
    /// Of all flows of the group together, if no link between routers were shared.
    bits_per_sec: f64,
    /// The same as the application gives it, whatever its first links bear.
    offered: f64,
    /// Packets that the receivers' windows allow in flight; 0 without windows.
    window: f64,
    /// The rate of all access links of one side together, and whether the narrower one's queue is endless.
    access: (f64, bool),
    /// Of propagation alone, in seconds.
    round_trip: f64,
}

impl Demand {
    fn of(group: &FlowGroup, topology: &Topology, backbone: &Backbone<'_>) -> Self {
        let ends = backbone.ends(group).ok();
        let route = |from, to| backbone.route(from, to).unwrap_or_default();
        let forward = ends.map(|(from, to)| route(from, to)).unwrap_or_default();
        let back = ends.map(|(from, to)| route(to, from)).unwrap_or_default();
        let access: Vec<_> = match topology {
            Topology::Graph { .. } => Vec::new(),
            _ => [backbone.source_access, backbone.sink_access].into_iter().flatten().collect(),
        };
        let delay = |place: &usize| backbone.links[*place].spec.delay.mean().as_secs_f64();
        let round_trip = forward.iter().chain(&back).map(delay).sum::<f64>()
            + access
                .iter()
                .flat_map(|spec| [spec, spec.way_back()])
                .map(|spec| spec.delay.mean().as_secs_f64())
                .sum::<f64>();
        let narrowest = access
            .iter()
            .map(|spec| spec.rate)
            .chain(forward.iter().map(|place| backbone.links[*place].spec.rate))
            .min()
            .map_or(f64::INFINITY, bits_per_sec);
        let flows = f64::from(group.count);
        let packet = 8.0 * packet_of(group).get() as f64;
        let receive_window = match &group.transport {
            Transport::Tcp(spec) => Some(spec.receive_window.get() as f64),
            _ => None,
        };
        let window =
            receive_window.map_or(f64::INFINITY, |most| most * packet / round_trip.max(1e-6));
        let offered = offered_bits_per_sec(group).unwrap_or(f64::INFINITY);
        // A program of which nothing is known sends nothing in a simulation.
        let finite = |rate: f64| if rate.is_finite() { rate } else { 0.0 };
        let one = finite(offered.min(window).min(narrowest));
        let access = access.iter().min_by_key(|spec| spec.rate);
        Self {
            route: forward,
            bits_per_sec: flows * one,
            offered: flows * if offered.is_finite() { offered } else { one },
            window: flows * receive_window.unwrap_or(0.0),
            access: access.map_or((f64::INFINITY, false), |spec| {
                (flows * bits_per_sec(spec.rate), is_endless(spec))
            }),
            round_trip,
        }
    }

    /// Whether the link that bears least of what is offered has a queue without a limit.
    fn fills_endless(&self, backbone: &Backbone<'_>, demanded: &[f64]) -> bool {
        let shared = self.route.iter().map(|place| {
            let spec = backbone.links[*place].spec;
            let share = bits_per_sec(spec.rate) / demanded[*place];
            (share * self.bits_per_sec, is_endless(spec))
        });
        let narrowest = shared.chain([self.access]).min_by(|one, other| one.0.total_cmp(&other.0));
        narrowest.is_some_and(|(bears, endless)| {
            endless && (self.offered > bears || self.offered >= bears && self.window > 0.0)
        })
    }
}

/// Whether the link's queue has no limit.
fn is_endless(spec: &LinkSpec) -> bool {
    matches!(spec.queue, QueueSpec::DropTail { limit: None })
}

/// The most packets that wait in a queue; 0 where it has no limit, or is empty most of the time.
fn queue_packets(queue: &QueueSpec) -> f64 {
    /// Of a limit in bytes.
    const MEAN_PACKET: f64 = 500.0;
    let limit = match queue {
        QueueSpec::DropTail { limit }
        | QueueSpec::Wfq { limit, .. }
        | QueueSpec::Cbq { limit, .. } => *limit,
        QueueSpec::Red { limit, .. }
        | QueueSpec::Codel { limit, .. }
        | QueueSpec::FqCodel { limit, .. }
        | QueueSpec::Dualpi2 { limit, .. }
        | QueueSpec::Pie { limit, .. } => Some(*limit),
    };
    match limit {
        None => 0.0,
        Some(QueueLimit::Packets(packets)) => packets.get() as f64,
        Some(QueueLimit::Bytes(bytes)) => bytes.get() as f64 / MEAN_PACKET,
    }
}

fn bits_per_sec(rate: Rate) -> f64 {
    if rate == Rate::UNLIMITED { f64::INFINITY } else { rate.as_bits_per_sec() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{VIDEO, scenario};

    #[test]
    fn a_run_is_too_large_beyond_the_free_memory_or_a_day() {
        let cost = |memory, seconds| Cost { packets: 1e6, rows: 10.0, memory, seconds };
        let refused = |cost: Cost, runs| cost.too_large(runs, Some(4e9));
        assert_eq!(refused(cost(3e9, 10.0), 1), None);
        let why = refused(cost(3e9, 10.0), 2).unwrap();
        assert!(
            why.contains("3.0 GB") && why.contains("4.0 GB of memory are free, and 2"),
            "{why}"
        );
        let why = refused(cost(1e6, 1e6), 0).unwrap();
        assert!(why.contains("12 days") && !why.contains("free"), "{why}");
        assert_eq!(cost(1e15, 1.0).too_large(1, None), None);
        assert_eq!(refused(cost(1e15, 1.0), 0), None, "it runs elsewhere");
    }

    #[test]
    fn an_emulation_is_too_large_beyond_the_free_memory_alone() {
        let cost = |memory, seconds| Cost { packets: 1e6, rows: 10.0, memory, seconds };
        assert_eq!(cost(3e9, 1e9).too_large_to_emulate(Some(4e9)), None);
        let why = cost(4e9, 10.0).too_large_to_emulate(Some(4e9)).unwrap();
        assert!(why.starts_with("a run takes about 4.0 GB of memory: 1.0e6 packets"), "{why}");
        assert!(why.contains("4.0 GB of memory are free; a shorter"), "{why}");
    }

    #[test]
    fn packets_are_what_is_offered_or_what_the_links_bear() {
        let cost = scenario(VIDEO).cost();
        // 25 flows of 300 kbit/s in packets of 1,000 bytes, for 20 s.
        assert_eq!(cost.packets, 25.0 * 300e3 / 8e3 * 20.0);
        let file = "kind = \"file\", size = \"100 kB\"";
        let file = VIDEO.replace("kind = \"cbr\", rate = \"300 kbit/s\"", file);
        let file = scenario(&file.replace("playout", "# playout").replace("20 s", "2000 h"));
        // 960 bytes of each packet are the file's.
        let packets = 25.0 * (100e3 / 960.0 + 1.0);
        assert_eq!(file.cost().packets, packets, "it ends, however long the run is");
        let bulk = VIDEO.replace("kind = \"cbr\", rate = \"300 kbit/s\"", "kind = \"ftp\"");
        let bulk = scenario(&bulk.replace("playout", "# playout")).cost();
        assert_eq!(bulk.packets, 25e6 / 8e3 * 20.0);
    }

    #[test]
    fn packets_that_udp_sends_count_though_no_link_bears_them_and_wait_in_endless_queues() {
        let udp = VIDEO
            .replace("300 kbit/s", "30 Mbit/s")
            .replace("kind = \"tcp\", congestion = \"pert\"", "kind = \"udp\"");
        let bounded = scenario(&udp).cost();
        assert_eq!(bounded.packets, 25.0 * 30e6 / 8e3 * 20.0);
        let queue = "queue = { kind = \"drop-tail\", limit = \"150 packets\" }";
        assert!(udp.contains(queue));
        let endless = scenario(&udp.replace(queue, "")).cost();
        let waiting = (25.0 * 30e6 - 25e6) / 8e3 * 20.0 * BYTES_OF_PACKET;
        assert!((endless.memory - bounded.memory) / waiting > 0.99, "{endless:?} {bounded:?}");
        let tcp = VIDEO.replace("kind = \"cbr\", rate = \"300 kbit/s\"", "kind = \"ftp\"");
        let endless = scenario(&tcp.replace(queue, "")).cost();
        let bounded = scenario(&tcp).cost();
        let all = bounded.packets * BYTES_OF_PACKET;
        assert!((endless.memory - bounded.memory) / all > 0.9, "{endless:?} {bounded:?}");
    }

    #[test]
    fn what_is_out_of_all_proportion_is_seen_to_be() {
        let cost = |from: &str, to: &str| {
            assert!(VIDEO.contains(from), "{from}");
            scenario(&VIDEO.replace(from, to)).cost()
        };
        let many = cost("count = 25", "count = 999995");
        assert!(many.memory > 3e9 && many.seconds > 20.0, "{many:?}");
        let often = scenario(&format!("{VIDEO}\n[measure]\nsample-every = \"1 us\"\n")).cost();
        assert!(often.memory > 50e9 && often.rows == 20e6 * 150.0, "{often:?}");
    }
}
