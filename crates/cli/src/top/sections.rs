//! The tables: which columns each has, and what stands in them. Texts of other users have been made
//! printable here.

use std::cmp::Ordering;

use ontempo_foundation::printable;
use ontempo_monitor::{
    Collected, CollectedFlow, DELAY_BOUNDS_S, DelayReport, FlowReport, FlowRole, Role,
};

use super::gather::{Look, Reserved};
use super::history::Key;
use crate::arguments::SortBy;
use crate::monitor::{reserved, violated};

/// A column of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// Where there is no room, the column with the largest number goes first.
    pub(super) goes: u8,
}

const fn column(head: &'static str, goes: u8) -> Column {
    Column { head, goes }
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// It is not as it should be.
    pub(super) is_bad: bool,
}

/// What rows are sorted by.
#[derive(Clone, Debug, Default)]
struct Order {
    rate: f64,
    loss: f64,
    late: f64,
    /// Those of one process stay together: a relay, then its streams.
    process: u32,
}

/// A row: its name, whose rates it has, and a figure for each column.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) key: Key,
    pub(super) cells: Vec<Cell>,
    order: Order,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// What stands in place of rows.
    pub(super) empty: &'static str,
}

const SENDERS: [Column; 10] = [
    column("Mbit/s", 0),
    column("bears", 4),
    column("RTT", 3),
    column("loss", 1),
    column("again", 7),
    column("late", 2),
    column("dropped", 5),
    column("missing", 6),
    column("viewers", 8),
    column("latency", 9),
];

const RECEIVERS: [Column; 9] = [
    column("Mbit/s", 0),
    column("RTT", 5),
    column("loss", 1),
    column("late", 2),
    column("dropped", 4),
    column("missing", 3),
    column("95 % in", 6),
    column("latency", 7),
    column("units", 8),
];

const RELAYS: [Column; 7] = [
    column("in Mbit/s", 0),
    column("out Mbit/s", 1),
    column("viewers", 2),
    column("worst bad", 3),
    column("late", 4),
    column("dropped", 5),
    column("units", 6),
];

const SOCKETS: [Column; 6] = [
    column("kbit/s", 0),
    column("loss", 1),
    column("delay", 2),
    column("jitter", 5),
    column("violated", 3),
    column("reserved", 4),
];

const RESERVATIONS: [Column; 4] =
    [column("reserved", 0), column("packets/s", 1), column("interface", 2), column("service", 3)];

/// All tables; that of reservations only where an RSVP daemon answers.
pub(super) fn of(look: &Look, sort: SortBy) -> Vec<Section> {
    let of_roles = |roles: &[FlowRole], row: fn(&CollectedFlow) -> Row| -> Vec<Row> {
        look.flows.iter().filter(|one| roles.contains(&one.flow.role)).map(row).collect()
    };
    let mut relays = of_roles(&[FlowRole::Relay, FlowRole::Stream], relay);
    let is_relay = |row: &Row| !row.name.starts_with(STREAM);
    // A relay's streams stand under it, whatever the order.
    relays.sort_by(|one, other| {
        let of = |row: &Row| (row.order.process, !is_relay(row));
        of(one).cmp(&of(other)).then_with(|| compare(one, other, sort))
    });
    let mut all = vec![
        Section {
            title: "senders",
            columns: &SENDERS,
            rows: of_roles(&[FlowRole::Sender], sender),
            empty: "nothing is sent: ontempo send",
        },
        Section {
            title: "receivers",
            columns: &RECEIVERS,
            rows: of_roles(&[FlowRole::Receiver], receiver),
            empty: "nothing is received: ontempo receive",
        },
        Section {
            title: "relays",
            columns: &RELAYS,
            rows: relays,
            empty: "no relay: ontempo relay",
        },
        Section {
            title: "QoS sockets",
            columns: &SOCKETS,
            rows: look.sockets.iter().map(socket).collect(),
            empty: "no process has a QoS socket",
        },
    ];
    if let Some(reservations) = &look.reservations {
        all.push(Section {
            title: "reservations",
            columns: &RESERVATIONS,
            rows: reservations.iter().map(reservation).collect(),
            empty: "nothing is reserved",
        });
    }
    for section in all.iter_mut().filter(|section| section.title != "relays") {
        section.rows.sort_by(|one, other| compare(one, other, sort));
    }
    all
}

fn compare(one: &Row, other: &Row, sort: SortBy) -> Ordering {
    let most_first = |of: fn(&Order) -> f64| of(&other.order).total_cmp(&of(&one.order));
    let first = match sort {
        SortBy::Rate => most_first(|order| order.rate),
        SortBy::Loss => most_first(|order| order.loss),
        SortBy::Late => most_first(|order| order.late),
        SortBy::Name => Ordering::Equal,
    };
    first.then_with(|| one.name.cmp(&other.name)).then_with(|| one.key.cmp(&other.key))
}

fn plain(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), is_bad: false }
}

/// A number that should be 0.
fn bad(count: u64) -> Cell {
    Cell { text: count.to_string(), is_bad: count > 0 }
}

fn or_dash(cell: Option<Cell>) -> Cell {
    cell.unwrap_or_else(|| plain("-"))
}

fn share(share: Option<f64>) -> Cell {
    or_dash(
        share.map(|share| Cell { text: format!("{:.1} %", share * 100.0), is_bad: share > 0.0 }),
    )
}

fn megabits(rate: Option<f64>) -> Cell {
    or_dash(rate.map(|rate| plain(format!("{:.2}", rate / 1e6))))
}

fn milliseconds(seconds: Option<f64>) -> Cell {
    or_dash(seconds.map(|seconds| {
        let millis = seconds * 1e3;
        plain(if millis < 10.0 { format!("{millis:.1} ms") } else { format!("{millis:.0} ms") })
    }))
}

/// The bound within which 95 % of units came.
fn most_delays(delays: &DelayReport) -> Cell {
    let all = delays.cumulative.last().copied().unwrap_or(0);
    let enough = (all as f64 * 0.95).ceil() as u64;
    if all == 0 {
        return plain("-");
    }
    let bound = DELAY_BOUNDS_S.iter().zip(delays.cumulative).find(|(_, up_to)| *up_to >= enough);
    bound.map_or_else(
        || Cell { text: "> 5 s".to_owned(), is_bad: true },
        |(bound, _)| milliseconds(Some(*bound)),
    )
}

/// Its stream's name, its place and its peers.
fn name(flow: &FlowReport, arrow: &str) -> String {
    let peers = flow.peers.iter().map(|peer| format!("{arrow} {peer}")).collect::<Vec<_>>();
    let parts = [flow.name.clone(), flow.place.clone(), peers.join(" ")];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    printable(&parts.join(" ")).into_owned()
}

fn order(one: &CollectedFlow, rate: f64, loss: Option<f64>) -> Order {
    Order {
        rate,
        loss: loss.unwrap_or(0.0),
        late: one.flow.late_units as f64,
        process: one.process,
    }
}

/// Datagrams missing or damaged.
fn bad_datagrams(flow: &FlowReport) -> u64 {
    flow.missing_datagrams.unwrap_or(0).saturating_add(flow.damaged_datagrams.unwrap_or(0))
}

fn sender(one: &CollectedFlow) -> Row {
    let flow = &one.flow;
    Row {
        name: name(flow, "to"),
        key: Key::Flow(one.index),
        cells: vec![
            megabits(flow.output_bps),
            megabits(flow.target_bps),
            milliseconds(flow.round_trip_s),
            share(flow.loss),
            or_dash(flow.lost_packets.map(|packets| plain(packets.to_string()))),
            bad(flow.late_units),
            bad(flow.dropped_units),
            bad(bad_datagrams(flow)),
            or_dash(flow.viewers.map(|viewers| plain(viewers.count.to_string()))),
            milliseconds(flow.latency_s),
        ],
        order: order(one, flow.output_bps.unwrap_or(0.0), flow.loss),
    }
}

fn receiver(one: &CollectedFlow) -> Row {
    let flow = &one.flow;
    Row {
        name: name(flow, "from"),
        key: Key::Flow(one.index),
        cells: vec![
            megabits(Some(flow.input_bps)),
            milliseconds(flow.round_trip_s),
            share(flow.loss),
            bad(flow.late_units),
            bad(flow.dropped_units),
            bad(bad_datagrams(flow)),
            or_dash(flow.delays.as_ref().map(most_delays)),
            milliseconds(flow.latency_s),
            plain(flow.units.to_string()),
        ],
        order: order(one, flow.input_bps, flow.loss),
    }
}

/// Before the name of a relay's stream.
const STREAM: &str = "  stream";

fn relay(one: &CollectedFlow) -> Row {
    let flow = &one.flow;
    let name = match flow.role {
        FlowRole::Stream => format!("{STREAM} {}", printable(&flow.name)),
        _ => name(flow, ""),
    };
    let is_stream = flow.role == FlowRole::Stream;
    let worst = flow.viewers.and_then(|viewers| viewers.worst_bad_share);
    Row {
        name,
        key: Key::Flow(one.index),
        cells: vec![
            megabits(Some(flow.input_bps)),
            megabits(flow.output_bps),
            or_dash(flow.viewers.map(|viewers| plain(viewers.count.to_string()))),
            share(worst),
            or_dash(is_stream.then(|| bad(flow.late_units))),
            bad(flow.dropped_units),
            or_dash(is_stream.then(|| plain(flow.units.to_string()))),
        ],
        order: order(one, flow.output_bps.unwrap_or(flow.input_bps), worst),
    }
}

fn socket(one: &Collected) -> Row {
    let socket = &one.socket;
    let arrow = match socket.role {
        Role::Sender => "to",
        Role::Receiver => "from",
    };
    let name = format!("{} {arrow} {}", printable(&socket.name), printable(&socket.remote));
    let violated = violated(one);
    Row {
        name: name.trim_start().to_owned(),
        key: Key::Socket(one.index),
        cells: vec![
            plain(format!("{:.0}", socket.throughput / 1e3)),
            share(socket.loss.map(|percent| percent / 100.0)),
            milliseconds(socket.delay),
            milliseconds(socket.jitter),
            Cell { is_bad: violated != "-", text: violated },
            plain(reserved(socket.reservation, &socket.reason)),
        ],
        order: Order {
            rate: socket.throughput,
            loss: socket.loss.unwrap_or(0.0),
            late: socket.delay.unwrap_or(0.0),
            process: one.process,
        },
    }
}

fn reservation(one: &Reserved) -> Row {
    let printed = |text: &str| printable(text).into_owned();
    let service = one.service.split_once(',').map_or(one.service.as_str(), |(kind, _)| kind);
    Row {
        name: format!("{} from {}", printed(&one.session), printed(&one.senders)),
        key: one.key(),
        cells: vec![
            plain(format!("{:.2} Mbit/s", one.rate_bps / 1e6)),
            or_dash(one.packets_per_s.map(|rate| plain(format!("{rate:.0}")))),
            plain(printed(&one.interface)),
            plain(printed(service)),
        ],
        order: Order { rate: one.rate_bps, ..Order::default() },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn flow(index: u32, role: FlowRole, name: &str, rate: f64) -> CollectedFlow {
        let flow = FlowReport {
            id: index,
            role,
            name: name.to_owned(),
            place: "udp://:5000".to_owned(),
            flowing: true,
            peers: vec!["192.0.2.1:4433".to_owned()],
            input_bps: rate,
            output_bps: Some(rate),
            loss: Some(0.02),
            late_units: 3,
            units: 900,
            delays: Some(DelayReport {
                cumulative: [0, 0, 0, 90, 96, 99, 99, 99, 99, 99, 99, 99, 100],
                sum_s: 5.0,
            }),
            ..FlowReport::default()
        };
        CollectedFlow { index, process: 7, user: 0, flow }
    }

    pub(crate) fn look() -> Look {
        let flows = vec![
            flow(1, FlowRole::Sender, "film", 4e6),
            flow(2, FlowRole::Sender, "news", 8e6),
            flow(3, FlowRole::Receiver, "", 4e6),
            flow(5, FlowRole::Stream, "b", 1e6),
            flow(6, FlowRole::Stream, "a", 2e6),
            flow(4, FlowRole::Relay, "", 3e6),
        ];
        let reserved = Reserved {
            session: "udp 10.0.3.2:5004".to_owned(),
            senders: "10.0.0.1:4000".to_owned(),
            service: "guaranteed, 500 kbit/s".to_owned(),
            rate_bps: 500_000.0,
            interface: "eth1".to_owned(),
            class: None,
            packets_per_s: Some(42.0),
        };
        Look { flows, reservations: Some(vec![reserved]), ..Look::default() }
    }

    fn names(sort: SortBy, title: &str) -> Vec<String> {
        let sections = of(&look(), sort);
        let section = sections.into_iter().find(|section| section.title == title).unwrap();
        section.rows.into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn rows_are_sorted_and_streams_stand_under_their_relay() {
        let (film, news) =
            ("film udp://:5000 to 192.0.2.1:4433", "news udp://:5000 to 192.0.2.1:4433");
        assert_eq!(names(SortBy::Rate, "senders"), [news, film]);
        assert_eq!(names(SortBy::Name, "senders"), [film, news]);
        let relay = names(SortBy::Rate, "relays");
        assert_eq!(relay[1..], ["  stream a", "  stream b"], "{relay:?}");
        assert!(relay[0].starts_with("udp://:5000"));
    }

    #[test]
    fn each_row_has_a_figure_for_each_column() {
        let sections = of(&look(), SortBy::Rate);
        assert_eq!(sections.len(), 5);
        for section in &sections {
            let mut goes: Vec<_> = section.columns.iter().map(|column| column.goes).collect();
            goes.sort_unstable();
            let all: Vec<u8> = (0..section.columns.len() as u8).collect();
            assert_eq!(goes, all, "{}: which column goes first", section.title);
            for row in &section.rows {
                assert_eq!(row.cells.len(), section.columns.len(), "{}", section.title);
            }
        }
        let none = of(&Look::default(), SortBy::Rate);
        assert_eq!(none.len(), 4, "no daemon, no table of reservations");
    }

    #[test]
    fn the_bound_of_most_delays_is_shown() {
        let delays = look().flows[0].flow.delays.unwrap();
        assert_eq!(most_delays(&delays).text, "100 ms");
        let mut none = delays;
        none.cumulative = [0; 13];
        assert_eq!(most_delays(&none).text, "-");
        none.cumulative[12] = 1;
        assert_eq!(most_delays(&none), Cell { text: "> 5 s".to_owned(), is_bad: true });
    }

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let mut one = flow(1, FlowRole::Sender, "\u{1b}]0;title\u{7}\u{202e}", 0.0);
        one.flow.place = "a\nb".to_owned();
        let shown = sender(&one).name;
        assert!(shown.starts_with(r"\u001b]0;title\u0007\u202e a\u000ab to"), "{shown}");
    }
}
