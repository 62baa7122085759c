//! The result tables: every world writes these, and judges read nothing else.

/// The version of the tables' schemas; written into every file, checked when one is read.
pub const TABLES_VERSION: u32 = 8;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text, dictionary encoded.
    Text,
    /// A whole number of zero or more, 64 bits.
    Count,
    /// A 64-bit floating-point number.
    Number,
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; one that measures ends in its unit.
    pub name: &'static str,
    /// What it holds.
    pub kind: ColumnKind,
    /// True where a row may have no value.
    pub optional: bool,
    /// What it means.
    pub about: &'static str,
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, and its file's without `.parquet`.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// Its columns, in order.
    pub columns: &'static [Column],
}

const fn column(name: &'static str, kind: ColumnKind, about: &'static str) -> Column {
    Column { name, kind, optional: false, about }
}

const fn optional(name: &'static str, kind: ColumnKind, about: &'static str) -> Column {
    Column { name, kind, optional: true, about }
}

use ColumnKind::{Count, Number, Text};

const FLOW: Column = column("flow", Count, "number of the flow, from 0");
const GROUP: Column = column("group", Text, "name of the flow's group in the scenario");
const INDEX: Column = column("index", Count, "number of the flow in its group, from 0");
const TIME: Column = column("time_s", Number, "seconds since the start of the run");

/// One row a flow: totals over the measured span.
pub const FLOWS: Table = Table {
    name: "flows",
    about: "one row a flow: totals over the measured span",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column(
            "transport",
            Text,
            "`tcp`, `udp`, `spaced`, `adu`, `ontempo`, `srt`, `rist`, or `own` where a command opened it",
        ),
        optional(
            "congestion",
            Text,
            "congestion controller of a TCP or ontempo flow, spacing controller of a spaced one",
        ),
        column("start_s", Number, "when the flow starts, in seconds"),
        column(
            "sent_packets",
            Count,
            "data packets sent, retransmissions counted, in the measured span; all packets of the sender for \
             `ontempo`, whose are encrypted, `own`, and programs that carry emulated films",
        ),
        column(
            "delivered_packets",
            Count,
            "data packets handed to the receiving application; of several copies one, also where a film's \
             datagram was sent again",
        ),
        column("delivered_bytes", Count, "the same in bytes on the wire"),
        column("goodput_bps", Number, "delivered bits per second over the measured span"),
        optional(
            "retransmitted",
            Count,
            "data packets sent again; none where all packets of the sender are counted",
        ),
        column("timeouts", Count, "retransmission timeouts"),
        column("reductions", Count, "window reductions of any kind"),
        column("early_responses", Count, "window reductions made on delay (PERT)"),
        column(
            "dropped_packets",
            Count,
            "of sent_packets, those lost in the network, or by their receivers for bit errors; ACKs, SYNs \
             and copies that links made are in the counts of `links` alone",
        ),
        column(
            "loss_rate",
            Number,
            "dropped_packets / sent_packets, from 0 to 1; 0 where nothing was sent",
        ),
        optional("srtt_s", Number, "smoothed round-trip time at the end (RFC 6298), in seconds"),
        optional("min_rtt_s", Number, "smallest round-trip time seen, in seconds"),
        column("acks", Count, "acknowledgements that reached the sender"),
        column(
            "transfers",
            Count,
            "files or web pages finished, as the sender knows by acknowledgements: none over spaced packets",
        ),
    ],
};

/// One row a link: totals over the measured span.
pub const LINKS: Table = Table {
    name: "links",
    about: "one row a link (one direction): totals over the measured span",
    columns: &[
        column("link", Text, "name of the link"),
        column("from", Text, "node it leaves"),
        column("to", Text, "node it reaches"),
        column("arrivals", Count, "packets that reached its queue"),
        column("departures", Count, "packets whose transmission began"),
        column("dropped_full", Count, "packets dropped by a full queue, or larger than the MTU"),
        column("dropped_early", Count, "packets dropped by active queue management"),
        column("dropped_loss", Count, "packets lost on the wire"),
        column("dropped_policer", Count, "packets dropped by the policer before the queue"),
        column(
            "corrupted",
            Count,
            "packets given bit errors on the wire: their receivers drop them, if no link does before",
        ),
        column("duplicated", Count, "packets of which the wire made a copy"),
        column("marked", Count, "packets marked by active queue management (ECN)"),
        column("departed_bytes", Count, "bytes whose transmission began"),
        column("mean_packets", Number, "time average of the packets waiting"),
        column("busy", Number, "fraction of the time spent transmitting"),
        column("span_s", Number, "length of the measured span in seconds"),
    ],
};

/// One row a link, group and queue length.
pub const QUEUES: Table = Table {
    name: "queues",
    about: "one row a watched link, flow group and queue length found by arriving packets",
    columns: &[
        column("link", Text, "name of the link"),
        GROUP,
        column("length", Count, "packets waiting when the packet arrived"),
        column("arrivals", Count, "packets of the group that found this length"),
        column(
            "drops",
            Count,
            "those of them that were dropped; under CoDel, FQ-CoDel and DualPI2, packets dropped at this length",
        ),
    ],
};

/// One row a sample.
pub const SAMPLES: Table = Table {
    name: "samples",
    about: "one row a sampled quantity and time",
    columns: &[
        TIME,
        column("subject", Text, "`GROUP.INDEX` of a flow, or the name of a link"),
        column(
            "quantity",
            Text,
            "`cwnd_packets`, `ssthresh_packets`, `srtt_s`, `in_flight_packets`, \
             `delivered_bytes`, `alpha`, `queueing_delay_s`, `largest_queueing_delay_s`, \
             `controller_srtt_s` (the last two PERT's own), `sent_bytes`, `spacing_s`, `buffered_adus` or `queue_packets`",
        ),
        column("value", Number, "the value, in the unit that the quantity's name ends in"),
    ],
};

/// One row a flow and start-up delay.
pub const PLAYOUT: Table = Table {
    name: "playout",
    about: "one row a flow and start-up delay: how many units came too late to be played",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column("startup_delay_s", Number, "start-up delay in seconds"),
        column(
            "units",
            Count,
            "units of the whole run, also before `measure.from`, whose deadline (due time and start-up delay) \
             came before its end, whether they arrived or not",
        ),
        column("late", Count, "of these, those that were late or never arrived"),
    ],
};

/// One row a unit.
pub const ADUS: Table = Table {
    name: "adus",
    about: "one row a unit of a stream, delivered or not, where the scenario asks for them",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column("unit", Count, "number of the unit, from 0"),
        column("due_s", Number, "when it was due to be sent, in seconds"),
        optional(
            "delivered_s",
            Number,
            "when the application received it, in seconds; none where it had not by the end",
        ),
        optional("emitted_s", Number, "ADUs: when it was first sent, in seconds"),
        optional(
            "last_emitted_s",
            Number,
            "ADUs: when it was last sent before it first arrived, in seconds",
        ),
        optional("arrived_s", Number, "ADUs: when it first arrived, in seconds"),
        optional("processed_s", Number, "ADUs: when the application was done with it, in seconds"),
        optional("retransmissions", Count, "ADUs: how often it was sent again"),
    ],
};

/// One row a packet and watched link.
pub const PACKETS: Table = Table {
    name: "packets",
    about: "one row a packet that reached a watched link",
    columns: &[
        TIME,
        column("link", Text, "name of the link"),
        FLOW,
        column("kind", Text, "`data` or `ack`"),
        column("number", Count, "data: its number; ack: the lowest number that has not arrived"),
        column("size_bytes", Count, "bytes on the wire"),
        column("retransmission", Count, "1 where it was sent before, else 0"),
        optional(
            "started_s",
            Number,
            "when its transmission began, in seconds; none where it had not by the end: with no reason in \
             `dropped`, it waits then",
        ),
        optional(
            "dropped",
            Text,
            "why it was lost: `full`, `early`, `loss`, `too large`, `policer`",
        ),
    ],
};

/// One row an event.
pub const EVENTS: Table = Table {
    name: "events",
    about: "one row a change of a link, by the scenario's events or while it ran (schedules and \
            outages are in `capacity`), and then, where the scenario asks for them, one row a \
            reaction of a congestion controller",
    columns: &[
        TIME,
        optional("flow", Count, "reaction: number of the flow"),
        optional("group", Text, "reaction: name of the flow's group"),
        optional("index", Count, "reaction: number of the flow in its group, from 0"),
        column(
            "event",
            Text,
            "`change` of a link; reaction: `loss`, `timeout` or `early response`",
        ),
        optional("cwnd_packets", Number, "reaction: congestion window after it, in packets"),
        optional("link", Text, "change: name of the link"),
        optional(
            "rate_bps",
            Number,
            "change: the new rate, in bits per second; none where it stays",
        ),
        optional("delay_s", Number, "change: the new delay, in seconds; none where it stays"),
        optional("loss", Number, "change: the new probability of loss; none where it stays"),
        optional(
            "by",
            Text,
            "change: `scenario`, or `control` where it was made while the emulation ran",
        ),
    ],
};

/// One row a message.
pub const MESSAGES: Table = Table {
    name: "messages",
    about: "one row a message received, where the scenario asks for them",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column("message", Count, "number of the message in its flow, from 0"),
        column("payload_bytes", Count, "its size, headers not counted"),
        column("sent_s", Number, "when the application gave it to the transport, in seconds"),
        column("received_s", Number, "when the application had all of it, in seconds"),
        column("delay_s", Number, "the difference (qosockets, equation 4)"),
        optional("jitter_s", Number, "change of the delay since the message before (equation 5)"),
    ],
};

/// One row a flow and interval.
pub const INTERVALS: Table = Table {
    name: "intervals",
    about: "one row a flow with messages and interval, where the scenario asks for them",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column("begins_s", Number, "when the interval begins, in seconds"),
        column("span_s", Number, "how long it is, in seconds"),
        column("sent_messages", Count, "messages given to the transport"),
        column("received_messages", Count, "messages received whole"),
        column("sent_bps", Number, "payload given to the transport, bits per second"),
        column("received_bps", Number, "payload received, bits per second (equation 2)"),
        optional(
            "loss_percent",
            Number,
            "100 (1 - received / sent messages) (equation 3); none where nothing was sent",
        ),
    ],
};

/// One row a link that changes and time.
pub const CAPACITY: Table = Table {
    name: "capacity",
    about: "one row a link that changes and change of it, from the start of the run; at equal \
            distances instead where a trace of opportunities or very many changes make it up",
    columns: &[
        TIME,
        column("link", Text, "name of the link"),
        optional(
            "rate_bps",
            Number,
            "mean capacity until the link's next row, in bits per second; none while unlimited",
        ),
        optional(
            "delay_s",
            Number,
            "propagation delay at this time, in seconds; none where not scheduled",
        ),
        optional("loss", Number, "probability of loss at this time; none where not scheduled"),
    ],
};

/// One row a frame of a film.
pub const FRAMES: Table = Table {
    name: "frames",
    about: "one row a frame of a film that was sent in the measured span",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column(
            "frame",
            Count,
            "number of the frame in its flow, from 0, over all rounds of the film",
        ),
        column("type", Text, "`key`, `reference`, `disposable` or `sound`"),
        column("size_bytes", Count, "its size, headers of the transport stream not counted"),
        column("sent_s", Number, "when its last packet was given to the transport, in seconds"),
        optional(
            "latency_s",
            Number,
            "from then until the receiving application had all of it; none where it never had",
        ),
        optional(
            "decodable_s",
            Number,
            "the least latency of a player at which it can be decoded: the largest of its own and of \
             those that it depends on; none where one never arrived",
        ),
    ],
};

/// One row a film and latency.
pub const MEDIA: Table = Table {
    name: "media",
    about: "one row a flow with a film and latency of a player; of frames that such a player has shown by \
            the end of the run",
    columns: &[
        FLOW,
        GROUP,
        INDEX,
        column(
            "player_latency_s",
            Number,
            "a frame is shown so long after its last packet was sent",
        ),
        column("pictures", Count, "pictures sent"),
        column("decodable_pictures", Count, "pictures that can be decoded on time"),
        column("sound_frames", Count, "frames of sound sent"),
        column("decodable_sound", Count, "frames of sound that are there on time"),
        column(
            "freezes",
            Count,
            "gaps between pictures of more than three mean gaps and 150 ms more than one (W3C WebRTC \
             statistics, `freezeCount`)",
        ),
        column("longest_freeze_s", Number, "the longest of them, in seconds; 0 without any"),
        column("frozen_s", Number, "all of them together, in seconds"),
        optional("latency_p50_s", Number, "median of the latencies of frames that arrived whole"),
        optional("latency_p95_s", Number, "95th percentile of them"),
        optional("latency_p99_s", Number, "99th percentile of them"),
        column("media_bytes", Count, "bytes of the transport stream given to the transport"),
        column("wire_bytes", Count, "bytes sent for them, headers and repetitions counted"),
        column("back_bytes", Count, "bytes sent in the other direction"),
    ],
};

/// Every table, in the order in which they are written.
pub const TABLES: [&Table; 13] = [
    &FLOWS, &LINKS, &QUEUES, &SAMPLES, &PLAYOUT, &ADUS, &PACKETS, &EVENTS, &MESSAGES, &INTERVALS,
    &CAPACITY, &FRAMES, &MEDIA,
];

impl Table {
    /// What a row is, in a line, and below it what each column means; plain text.
    pub fn documentation(&self) -> String {
        let mut text = format!("{}.\n\nColumns:\n", capitalised(self.about));
        for column in self.columns {
            text += &format!("    {} ({}): {}\n", column.name, column.type_name(), column.about);
        }
        text
    }
}

impl Column {
    fn type_name(&self) -> String {
        let kind = match self.kind {
            Text => "text",
            Count => "whole number",
            Number => "number",
        };
        let empty = if self.optional { ", may be empty" } else { "" };
        format!("{kind}{empty}")
    }
}

const PREAMBLE: &str = "\
# The result tables

A run's folder has a Parquet file for each table. Simulation and emulation write the same tables; a table whose
rows a scenario does not ask for is there and empty. A column that measures ends in its unit: `_s` seconds,
`_bps` bits per second, `_bytes` bytes, `_packets` packets.
";

/// The reference of the result tables in Markdown.
pub fn tables_reference() -> String {
    let mut page = format!("{PREAMBLE}\nThis is version {TABLES_VERSION} of the tables.\n");
    for table in TABLES {
        page += &format!("\n## `{}`\n\n{}.\n\n", table.name, capitalised(table.about));
        page += "| column | type | meaning |\n| --- | --- | --- |\n";
        for column in table.columns {
            let kind = column.type_name();
            page += &format!("| `{}` | {kind} | {} |\n", column.name, column.about);
        }
    }
    page
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
