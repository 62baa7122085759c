//! A scenario in plain words.

mod draw;
mod varying;
mod words;

pub(crate) use words::link as link_in_words;

use std::fmt::Write;

use ontempo_foundation::{Bytes, Duration, Rate};

use crate::backbone::Backbone;
use crate::model::{Application, FlowGroup, LinkSpec, Measure, Scenario, Topology, Transport};
use crate::varying::Schedules;
use varying::DelayRange;

/// The most columns that text takes, on a wider terminal too: longer lines are hard to read.
const COLUMNS: usize = 80;
/// The most that a drawing takes.
const MAX_COLUMNS: usize = 200;
/// The fewest: drawings need some.
const MIN_COLUMNS: usize = 40;
/// The largest packet of a program that the scenario knows nothing of.
const ETHERNET: Bytes = Bytes::new(1500);
/// The most lines that list links or nodes one by one.
const MAX_LINES: usize = 30;

impl Scenario {
    /// The scenario in plain words: the topology and its drawing, each group of flows with its
    /// base round trip, what the links are offered, and what is measured.
    pub fn explain(&self) -> String {
        self.explain_in(COLUMNS)
    }

    /// As [`explain`](Self::explain), for a terminal of so many columns: text is 40 to 80 wide, and the drawing
    /// up to 200, where it has more to show.
    pub fn explain_in(&self, columns: usize) -> String {
        let backbone = Backbone::new(&self.topology);
        let mut schedules = Schedules::new(self, self.seed);
        let links = backbone.links.iter();
        // The rate of each link between routers over the run, and how that is said; its delays.
        let said = links.map(|link| {
            let schedule = schedules.of(link.spec, &link.name, &link.drawn_as);
            let schedule = schedule.as_deref();
            let rate = varying::mean_rate(link.spec.rate, schedule, self.duration);
            (rate, varying::delays(link.spec, schedule, self.duration))
        });
        let (rates, delays): (Vec<(Rate, String)>, Vec<DelayRange>) = said.unzip();
        let drawn = columns.clamp(MIN_COLUMNS, MAX_COLUMNS);
        let mut text = Text { text: String::new(), columns: drawn.min(COLUMNS) };
        if !self.title.is_empty() {
            text.paragraph("", &self.title);
            text.blank();
        }
        text.paragraph("", &format!("Runs for {} with seed {}.", self.duration, self.seed));
        text.blank();
        self.explain_topology(&mut text);
        text.blank();
        text.lines(&draw::topology(self, &backbone, drawn));
        text.blank();
        text.paragraph("", "Flows:");
        for (name, group) in &self.flows {
            text.paragraph("  ", &words::group(name, group));
            for sentence in way(group, &backbone, &rates, &delays).into_iter().flatten() {
                text.paragraph("    ", &sentence);
            }
        }
        if self.hosts.jitter > Duration::ZERO {
            let jitter = self.hosts.jitter;
            text.blank();
            text.paragraph("", &format!("Hosts: each packet leaves up to {jitter} late."));
        }
        if !self.reservations.is_empty() {
            text.blank();
            text.paragraph("", "Reserved:");
            for reservation in &self.reservations {
                text.paragraph("  ", &words::reservation(reservation));
            }
        }
        if !self.events.is_empty() {
            text.blank();
            text.paragraph("", "Changes:");
            for event in self.events.iter().take(MAX_LINES) {
                text.paragraph("  ", &varying::event(event));
            }
            if self.events.len() > MAX_LINES {
                text.paragraph("  ", "… and further changes");
            }
        }
        text.blank();
        text.paragraph("", "Offered load:");
        self.explain_load(&backbone, &rates, &mut text);
        text.blank();
        text.paragraph("", "Measured:");
        measure(&self.measure).iter().for_each(|sentence| text.paragraph("  ", sentence));
        text.blank();
        text.paragraph("", &format!("To simulate it takes {}.", self.cost()));
        text.text
    }

    fn explain_topology(&self, text: &mut Text) {
        let mut list = |heading: String, links: &[(&str, Option<&LinkSpec>)]| {
            text.paragraph("", &heading);
            for (name, spec) in links {
                if let Some(spec) = spec {
                    text.paragraph("  ", &format!("{name}: {}", words::link(spec)));
                    if let Some(back) = &spec.back {
                        text.paragraph(
                            "  ",
                            &format!("{name}, the way back: {}", words::link(back)),
                        );
                    }
                }
            }
        };
        match &self.topology {
            Topology::Dumbbell { bottleneck, reverse, access, receiver_access } => {
                let links = [
                    ("bottleneck, left to right", Some(bottleneck.as_ref())),
                    ("right to left", reverse.as_deref()),
                    ("each sender's access", Some(access.as_ref())),
                    ("each receiver's access", receiver_access.as_deref()),
                ];
                list("A dumbbell: two routers joined by one bottleneck.".to_owned(), &links);
            }
            Topology::ParkingLot { hops, bottleneck, access } => {
                let heading = format!("A parking lot: {hops} bottlenecks in a row.");
                list(
                    heading,
                    &[("each bottleneck", Some(bottleneck)), ("each access", Some(access))],
                );
            }
            Topology::Graph { links } => {
                list(format!("A graph with {}.", words::count(links.len() as u64, "link")), &[]);
            }
        }
    }

    /// What each link between routers is offered at a given rate, and by how many flows that
    /// take what is left.
    fn explain_load(&self, backbone: &Backbone<'_>, rates: &[(Rate, String)], text: &mut Text) {
        let mut loads = vec![(0.0, 0u64); backbone.links.len()];
        for group in self.flows.values() {
            let Ok((from, to)) = backbone.ends(group) else { continue };
            for place in backbone.route(from, to).unwrap_or_default() {
                match offered_bits_per_sec(group) {
                    Some(bits) => loads[place].0 += bits * f64::from(group.count),
                    None => loads[place].1 += u64::from(group.count),
                }
            }
        }
        let links = backbone.links.iter().zip(rates).zip(loads);
        let used = links.filter(|(_, (bits, flows))| *bits > 0.0 || *flows > 0);
        for (line, ((link, (rate, said)), (bits, elastic))) in used.enumerate() {
            if line == MAX_LINES {
                return text.paragraph("  ", "… and further links");
            }
            let share = match rate.as_bits_per_sec() {
                0 => String::new(),
                rate => format!(" ({:.0} %)", 100.0 * bits / rate as f64),
            };
            let offered = Rate::from_bits_per_sec(bits.round() as u64);
            let fixed = format!("{offered} of {said}{share} is offered at a given rate");
            let takers = words::count(elastic, "flow");
            let takes = if elastic == 1 { "takes" } else { "take" };
            let sentence = match (bits > 0.0, elastic) {
                (true, 0) => fixed,
                (true, _) => format!("{fixed}; {takers} {takes} what is left"),
                (false, _) => format!("{takers} {takes} what there is of {said}"),
            };
            text.paragraph("  ", &format!("{}: {sentence}", link.name));
        }
    }
}

/// The mean rate at which the application offers data; `None` where the network decides.
pub(crate) fn offered_bits_per_sec(group: &FlowGroup) -> Option<f64> {
    match &group.application {
        Application::Cbr { rate: Some(rate), .. } => Some(rate.as_bits_per_sec() as f64),
        Application::Cbr { interval: Some(interval), .. } => {
            Some(packet_of(group).get() as f64 * 8.0 / interval.as_secs_f64())
        }
        Application::OnOff { rate, on, off, .. } => {
            let share = on.as_secs_f64() / (on.as_secs_f64() + off.as_secs_f64());
            Some(rate.as_bits_per_sec() as f64 * share)
        }
        Application::Messages { interval, .. } => {
            let mean = (interval.low + interval.high) / 2;
            Some(packet_of(group).get() as f64 * 8.0 / mean.as_secs_f64())
        }
        Application::Media { .. } => crate::film::plan(&group.application)?
            .ok()
            .map(|plan| plan.offered().as_bits_per_sec() as f64),
        _ => None,
    }
}

pub(crate) fn packet_of(group: &FlowGroup) -> Bytes {
    match &group.transport {
        Transport::Tcp(spec) => spec.packet,
        Transport::Udp { packet, .. } | Transport::Spaced { packet, .. } => *packet,
        Transport::Adu(spec) => spec.packet,
        Transport::Own {} | Transport::Ontempo(_) | Transport::Srt(_) | Transport::Rist(_) => {
            ETHERNET
        }
    }
}

/// The base round trip of a group's flows, and the bandwidth-delay product of their narrowest
/// link.
fn way(
    group: &FlowGroup,
    backbone: &Backbone<'_>,
    rates: &[(Rate, String)],
    delays: &[DelayRange],
) -> Option<[String; 2]> {
    let (from, to) = backbone.ends(group).ok()?;
    let (forward, back) = (backbone.route(from, to)?, backbone.route(to, from)?);
    let access = [
        ("the sender's access", backbone.source_access),
        ("the receiver's access", backbone.sink_access),
    ];
    let access = || access.into_iter().filter_map(|(name, spec)| Some((name, spec?)));
    let links = forward.iter().chain(&back).map(|place| delays[*place]);
    let twice = access().flat_map(|(_, spec)| [spec, spec.way_back()]);
    let DelayRange { low, high, mean } = links.chain(twice.map(DelayRange::of)).sum();
    let round_trip = match low == high {
        true => format!("base round trip (propagation alone): {}", words::rounded(mean)),
        false => format!(
            "base round trip (propagation alone): {} to {}, {} on average",
            words::rounded(low),
            words::rounded(high),
            words::rounded(mean)
        ),
    };
    let on_way = forward.iter().map(|place| {
        let (rate, said) = &rates[*place];
        (backbone.links[*place].name.as_str(), *rate, said.clone())
    });
    // Access links as they leave their host: data reach the receiver by the way back.
    let rates = [backbone.source_access, backbone.sink_access.map(LinkSpec::way_back)];
    let access = access().zip(rates.into_iter().flatten());
    let access = access.map(|((name, _), spec)| (name, spec.rate, spec.rate.to_string()));
    let (name, narrowest, said) = on_way.chain(access).min_by_key(|(_, rate, _)| *rate)?;
    let product = narrowest.as_bits_per_sec() as f64 / 8.0 * mean.as_secs_f64();
    let packets = product / packet_of(group).get() as f64;
    let decimals = usize::from(packets < 100.0);
    let product = match narrowest {
        Rate::UNLIMITED => "no link on the way limits the rate".to_owned(),
        _ => format!(
            "bandwidth-delay product of {name}: {said} × {} = {} bytes, {packets:.decimals$} packets",
            words::rounded(mean),
            words::grouped(product.round() as u64)
        ),
    };
    Some([round_trip, product])
}

fn measure(measure: &Measure) -> Vec<String> {
    let mut sentences = vec![match measure.from {
        Duration::ZERO => "totals of every flow and link, from the start".to_owned(),
        from => format!("totals of every flow and link, from {from} on"),
    }];
    if let Some(interval) = measure.sample_every {
        let which = match &measure.sample_flows {
            Some(groups) => format!("the groups {}", groups.join(", ")),
            None => "every flow".to_owned(),
        };
        sentences.push(format!("window, RTT and goodput of {which}, every {interval}"));
    }
    let lists = [("queue", &measure.queues), ("every packet", &measure.packets)];
    for (what, links) in lists {
        if !links.is_empty() {
            sentences.push(format!("{what} of {}", links.join(", ")));
        }
    }
    if measure.adus {
        sentences.push("every unit of the groups with a playout".to_owned());
    }
    if measure.messages {
        sentences.push("delay and jitter of every message".to_owned());
    }
    if let Some(interval) = measure.intervals {
        sentences.push(format!("throughput and loss of messages, every {interval}"));
    }
    if measure.events {
        sentences.push("window reductions, timeouts and early responses".to_owned());
    }
    sentences
}

/// The lines of `words`, broken between words at so many columns: the first begins with `first`, the others
/// with `further`.
fn broken(first: &str, further: &str, words: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push(std::mem::replace(&mut line, further.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Text that is broken at so many columns.
struct Text {
    text: String,
    columns: usize,
}

impl Text {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            _ = writeln!(self.text, "{}", line.trim_end());
        }
    }

    /// Writes `words` between `indent` and the last column; further lines stand two further in.
    fn paragraph(&mut self, indent: &str, words: &str) {
        self.lines(&broken(indent, &format!("{indent}  "), words, self.columns));
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{VIDEO, scenario};

    const LOT: &str = r#"
        duration = "20 s"
        [topology]
        kind = "parking-lot"
        hops = 3
        bottleneck = { rate = "10 Mbit/s", delay = "10 ms" }
        access = { rate = "unlimited", delay = "1 ms" }
        [flows.long]
        application = { kind = "ftp" }
        transport = { kind = "tcp" }
        [flows.back]
        count = 2
        from = "r2"
        to = "r1"
        application = { kind = "cbr", interval = "8 ms" }
        transport = { kind = "udp", packet = "500 bytes" }
        [measure]
        queues = ["hop 1"]
        events = true
    "#;

    #[test]
    fn a_group_reads_as_a_sentence() {
        let text = scenario(&format!("tcp-profile = \"ns-2\"\n{VIDEO}")).explain();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains(
                "25 video flows: 300 kbit/s constant bit rate over TCP with PERT, packets of 1000 \
             bytes, SACK recovery, an ACK for each packet; starting within 1 s"
            ),
            "{text}"
        );
        assert!(words.contains("base round trip (propagation alone): 80 ms"), "{text}");
        assert!(words.contains("25 Mbit/s × 80 ms = 250,000 bytes, 250 packets"), "{text}");
        assert!(words.contains("bottleneck: 7.5 Mbit/s of 25 Mbit/s (30 %)"), "{text}");
    }

    #[test]
    fn a_dumbbell_is_drawn_with_its_groups_on_both_sides() {
        let more = "[flows.back]\nfrom = \"right\"\napplication = { kind = \"ftp\" }\n\
                    transport = { kind = \"tcp\" }\n";
        let text = scenario(&format!("{VIDEO}{more}")).explain();
        let drawing: Vec<&str> = text.lines().filter(|line| line.contains('×')).collect();
        assert_eq!(
            drawing[..2],
            [
                "    1 × back ← ─┐                                       ┌─ ← 1 × back",
                "  25 × video → ─┴─ left ═══ 25 Mbit/s, 30 ms ═══ right ─┴─ → 25 × video",
            ],
            "{text}"
        );
    }

    #[test]
    fn a_parking_lot_is_drawn_with_the_stretch_of_each_group() {
        let text = scenario(LOT).explain();
        assert!(text.contains("r0 ══ r1 ══ r2 ══ r3\n"), "{text}");
        assert!(text.contains("2 × back       ←─────┤\n"), "{text}");
        assert!(text.contains("1 × long ├─────────────────→\n"), "{text}");
        assert!(text.contains("hop 1 reverse: 1 Mbit/s of 10 Mbit/s (10 %)"), "{text}");
        assert!(text.contains("hop 0: 1 flow takes what there is of 10 Mbit/s"), "{text}");
        assert!(text.contains("  queue of hop 1\n"), "{text}");
    }

    #[test]
    fn a_graph_is_drawn_as_nodes_and_the_links_that_leave_them() {
        let text = scenario(crate::testing::GRAPH).explain();
        assert!(
            text.contains("  a\n  ├─→ b  10 Mbit/s, 5 ms of delay, an endless queue\n"),
            "{text}"
        );
    }

    #[test]
    fn a_link_is_described_to_its_end_on_a_terminal_of_any_width() {
        let queue =
            "queue = { kind = \"fq-codel\" }, loss = { kind = \"gilbert\", p = 0.01, q = 0.3 }";
        let text = crate::testing::GRAPH.replace("mtu = \"1500 bytes\"", queue);
        let scenario = scenario(&text);
        for columns in [30, 40, 60, 80, 200] {
            let text = scenario.explain_in(columns);
            let words = text.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("queues of 10240 packets that mark"), "{text}");
            assert!(words.contains("losses in bursts"), "{text}");
            let width = columns.clamp(40, 200);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }

    #[test]
    fn a_drawing_uses_the_width_of_the_terminal_and_text_stays_narrow() {
        let long = "a-very-long-name-that-somebody-chose-for-a-group-of-flows-in-a-hurry";
        for (text, group) in [(VIDEO, "[flows.video]"), (LOT, "[flows.long]")] {
            assert!(text.contains(group));
            let scenario = scenario(&text.replace(group, &format!("[flows.{long}]")));
            let drawn = |columns| {
                let text = scenario.explain_in(columns);
                let is_drawn = |line: &&str| line.contains('→') && !line.contains(':');
                text.lines().filter(is_drawn).map(str::to_owned).collect::<Vec<_>>()
            };
            assert!(drawn(80).iter().all(|line| line.chars().count() <= 80));
            assert!(!drawn(80).concat().contains(long));
            assert!(drawn(200).concat().contains(long), "{:?}", drawn(200));
            assert_eq!(drawn(200), drawn(500), "there is a bound");
            let widest = |columns| {
                let text = scenario.explain_in(columns);
                let words = text.lines().filter(|line| !line.contains(['→', '═', '←']));
                words.map(|line| line.chars().count()).max()
            };
            assert!(widest(200) <= Some(80));
        }
        // What fits is the same at any width.
        let text = scenario(VIDEO);
        assert_eq!(text.explain_in(80), text.explain_in(160));
    }

    #[test]
    fn packets_of_red_are_said_to_be_of_the_mean_size() {
        let queue = "kind = \"drop-tail\", limit = \"150 packets\"";
        assert!(VIDEO.contains(queue));
        for (red, words) in [
            ("limit = \"9 packets\"", "a RED queue of 9 packets of 500 bytes each that drops"),
            ("limit = \"9 packets\", byte-mode = false", "a RED queue of 9 packets that drops"),
        ] {
            let text = scenario(&VIDEO.replace(queue, &format!("kind = \"red\", {red}"))).explain();
            let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(words), "{text}");
        }
    }

    #[test]
    fn nothing_is_wider_than_a_terminal() {
        let long = "a-very-long-name-that-somebody-chose-for-a-group-of-flows-in-a-hurry";
        for text in [VIDEO, LOT, crate::testing::GRAPH] {
            let text = text.replace("[flows.video]", &format!("[flows.{long}]"));
            let text = text.replace("hops = 3", "hops = 700");
            for line in scenario(&text).explain().lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
