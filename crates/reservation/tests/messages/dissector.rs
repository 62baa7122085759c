//! tshark reads every kind of message as we mean it, and finds nothing malformed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use ontempo_reservation::integrity::{Algorithm, Key, Seal, seal};
use ontempo_reservation::message::{
    Body, Cause, Descriptor, FlowSpec, Message, PROTOCOL, Sender, Session, TrafficSpec, checksum,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::strategy;

const MESSAGES: usize = 400;
/// Packets begin with their IP header.
const LINKTYPE_RAW: u32 = 101;

/// A classic pcap file of IP packets.
fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, LINKTYPE_RAW] {
        out.extend(word.to_le_bytes());
    }
    for (second, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        for word in [second as u32, 0, length, length] {
            out.extend(word.to_le_bytes());
        }
        out.extend(packet);
    }
    out
}

/// The message in an IPv4 packet.
fn packet(message: &[u8]) -> Vec<u8> {
    let length = (20 + message.len()) as u16;
    let mut out = vec![0x45, 0];
    out.extend(length.to_be_bytes());
    out.extend([0, 0, 0, 0, 63, PROTOCOL, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&out);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend(message);
    out
}

/// Runs tshark on the packets; `None`, with a word about it, where there is none.
fn tshark(name: &str, packets: &[Vec<u8>], arguments: &[&str]) -> Option<String> {
    if !ontempo_testing::require_programs(&["tshark"]) {
        return None;
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, pcap(packets)).expect("the folder of the build is writable");
    let run = Command::new("tshark").arg("-r").arg(&path).args(arguments).output();
    let run = run.expect("tshark starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(String::from_utf8(run.stdout).expect("tshark writes UTF-8"))
}

fn messages() -> Vec<Message> {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let one = strategy::message();
    (0..MESSAGES)
        .map(|_| one.new_tree(&mut runner).expect("nothing is filtered out").current())
        .map(without_unknown_objects)
        .collect()
}

/// Arbitrary bytes of classes that tshark knows and we do not are malformed for it, rightly.
fn without_unknown_objects(mut message: Message) -> Message {
    message.forwarded.clear();
    if let Body::Bundle(messages) = message.body {
        message.body = Body::Bundle(messages.into_iter().map(without_unknown_objects).collect());
    }
    message
}

#[test]
fn tshark_finds_nothing_malformed_in_any_kind_of_message() {
    let key = Key::new(0x1234, Algorithm::HmacMd5, b"secret".to_vec());
    let packets: Vec<_> = messages()
        .iter()
        .enumerate()
        .map(|(number, message)| {
            let bytes = message.encode().unwrap();
            let stamp = Seal { handshake: true, sequence: number as u64 };
            // tshark expects a bundle's messages right behind its header.
            let sealed = number % 5 == 0 && !matches!(message.body, Body::Bundle(_));
            let bytes = if sealed { seal(&bytes, &key, stamp).unwrap() } else { bytes };
            packet(&bytes)
        })
        .collect();
    // CHALLENGE objects are unknown to tshark 4.0, which then warns that there is no session; so it does
    // of an Ack or Srefresh in a bundle, which has none.
    let filter = "_ws.malformed || !rsvp || (_ws.expert.severity >= 0x400000 && \
                  !((rsvp.msg in {25, 26} || rsvp.msg == 12 && rsvp.msg in {13, 15}) && _ws.expert.message == \"Unknown session type\"))";
    let Some(found) = tshark("kinds.pcap", &packets, &["-Y", filter, "-V"]) else { return };
    assert!(found.is_empty(), "{}", &found[..found.len().min(6000)]);
    let kinds = tshark("kinds.pcap", &packets, &["-T", "fields", "-e", "rsvp.msg"]).unwrap();
    for kind in [1, 2, 3, 4, 5, 6, 7, 12, 13, 15, 25, 26] {
        let seen = kinds.lines().any(|line| line.split(',').next() == Some(&kind.to_string()));
        assert!(seen, "no message of type {kind} among them");
    }
}

/// What tshark should show for a message: fields and, for each, its values in order.
#[derive(Default)]
struct Shown(Vec<(&'static str, Vec<f64>)>, Vec<(&'static str, Vec<IpAddr>)>);

impl Shown {
    fn number(&mut self, field: &'static str, value: impl Into<f64>) {
        match self.0.iter_mut().find(|(known, _)| *known == field) {
            Some((_, values)) => values.push(value.into()),
            None => self.0.push((field, vec![value.into()])),
        }
    }

    fn address(&mut self, field: &'static str, value: IpAddr) {
        match self.1.iter_mut().find(|(known, _)| *known == field) {
            Some((_, values)) => values.push(value),
            None => self.1.push((field, vec![value])),
        }
    }

    fn session(&mut self, session: &Session) {
        let [address, protocol, port] = if session.destination.is_ipv4() {
            ["rsvp.session.ip", "rsvp.session.proto", "rsvp.session.port"]
        } else {
            [
                "rsvp.session.destination_address",
                "rsvp.session.protocol",
                "rsvp.session.destination_port",
            ]
        };
        self.address(address, session.destination);
        self.number(protocol, session.protocol);
        self.number(port, session.port);
    }

    fn sender(&mut self, sender: &Sender) {
        let [address, port] = if sender.address.is_ipv4() {
            ["rsvp.sender.ip", "rsvp.sender.port"]
        } else {
            ["rsvp.template_filter.source_address_ipv6", "rsvp.template_filter.source_port"]
        };
        self.address(address, sender.address);
        self.number(port, sender.port);
    }

    fn traffic(&mut self, traffic: &TrafficSpec, [rate, burst, peak]: [&'static str; 3]) {
        self.number(rate, traffic.rate);
        self.number(burst, traffic.burst);
        self.number(peak, traffic.peak);
        self.number("rsvp.minimum_policed_unit", traffic.smallest);
        self.number("rsvp.maximum_packet_size", traffic.largest);
    }

    fn flow(&mut self, flow: &Descriptor) {
        let fields = [
            "rsvp.flowspec.token_bucket_rate",
            "rsvp.flowspec.token_bucket_size",
            "rsvp.flowspec.peak_data_rate",
        ];
        self.traffic(flow.flowspec.traffic(), fields);
        if let FlowSpec::Guaranteed { rate, slack, .. } = flow.flowspec {
            self.number("rsvp.flowspec.rate", rate);
            self.number("rsvp.flowspec.slack_term", slack);
        }
        flow.filters.iter().for_each(|filter| self.sender(filter));
    }

    fn cause(&mut self, cause: Cause) {
        self.number("rsvp.error.error_code", cause.numbers().0);
    }

    fn of(message: &Message) -> Self {
        let mut shown = Self::default();
        shown.number("rsvp.msg", message.body.kind());
        shown.number("rsvp.sending_ttl", message.send_ttl);
        let tspec = [
            "rsvp.tspec.token_bucket_rate",
            "rsvp.tspec.token_bucket_size",
            "rsvp.tspec.peak_data_rate",
        ];
        match &message.body {
            Body::Path(path) => {
                shown.session(&path.session);
                shown.number("rsvp.hop.logical_interface", path.hop.interface);
                shown.number("rsvp.refresh_interval", (path.refresh.as_nanos() / 1_000_000) as f64);
                shown.sender(&path.sender);
                shown.traffic(&path.traffic, tspec);
            }
            Body::Resv(resv) => {
                shown.session(&resv.session);
                shown.number("rsvp.refresh_interval", (resv.refresh.as_nanos() / 1_000_000) as f64);
                for flow in &resv.flows {
                    shown.flow(&flow.descriptor);
                    // tshark 4.0 shows the byte with its two unused bits.
                    let byte = |dscp: u8| dscp << 2;
                    let dscps = flow.dclass.iter().map(byte);
                    dscps.for_each(|byte| shown.number("rsvp.dclass.dscp", byte));
                }
            }
            Body::ResvErr(error) => {
                shown.session(&error.session);
                shown.cause(error.error.cause);
                shown.flow(&error.flow);
            }
            Body::PathErr(error) => {
                shown.session(&error.session);
                shown.cause(error.error.cause);
                shown.sender(&error.sender);
                shown.traffic(&error.traffic, tspec);
            }
            Body::Srefresh(refresh) => {
                for id in &refresh.ids {
                    shown.number("rsvp.message_id_list.message_id", *id);
                }
            }
            _ => {}
        }
        shown
    }
}

#[test]
fn tshark_reads_the_values_that_were_written() {
    let messages: Vec<_> =
        messages().into_iter().filter(|message| !matches!(message.body, Body::Bundle(_))).collect();
    let packets: Vec<_> =
        messages.iter().map(|message| packet(&message.encode().unwrap())).collect();
    let shown: Vec<Shown> = messages.iter().map(Shown::of).collect();
    let mut fields: Vec<&str> = shown
        .iter()
        .flat_map(|shown| shown.0.iter().map(|f| f.0).chain(shown.1.iter().map(|f| f.0)))
        .collect();
    fields.sort_unstable();
    fields.dedup();
    let mut arguments = vec!["-T", "fields", "-E", "separator=|"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    let Some(read) = tshark("values.pcap", &packets, &arguments) else { return };
    assert_eq!(read.lines().count(), shown.len());
    for (line, shown) in read.lines().zip(&shown) {
        let columns: Vec<&str> = line.split('|').collect();
        let column =
            |field: &str| columns[fields.iter().position(|known| *known == field).unwrap()];
        for (field, values) in &shown.0 {
            let read: Vec<f64> = column(field).split(',').map(number).collect();
            let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 1e-5 * b.abs();
            let equal = read.len() == values.len() && read.iter().zip(values).all(close);
            assert!(equal, "{field}: {read:?} is not {values:?} in {line}");
        }
        for (field, values) in &shown.1 {
            let read: Vec<IpAddr> =
                column(field).split(',').map(|text| text.parse().unwrap()).collect();
            assert_eq!(&read, values, "{field}");
        }
    }
}

/// A number as tshark writes it, decimal or hexadecimal.
fn number(text: &str) -> f64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_or(f64::NAN, |value| value as f64),
        None => text.parse().unwrap_or(f64::NAN),
    }
}
