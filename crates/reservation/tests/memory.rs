//! Resident memory of a router without keys whose neighbours fill every budget.
//!
//! The router is in a process of its own, so that its memory is not that of other tests.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_reservation::machine::{
    Arrival, Config, ErrorTerms, InterfaceConfig, InterfaceId, Machine, NextHop, Routes,
};
use ontempo_reservation::message::{
    Ack, Body, Descriptor, FlowSpec, Hop, Message, MessageId, Path, Resv, Sender, Session, Style,
    TrafficSpec,
};

/// What the memory of a program with the defaults stays below, in kB.
const MAX_RESIDENT_KB: u64 = 300_000;
/// Names the process that is the router.
const ROLE: &str = "ONTEMPO_TEST_ROUTER";

const UPSTREAM: InterfaceId = InterfaceId(0);
const OTHER_UPSTREAM: InterfaceId = InterfaceId(1);
/// The first of those towards the receivers.
const DOWNSTREAM: u32 = 2;
const DOWNSTREAMS: u32 = 4;
/// Hops of an interface that take part: with both kinds nearly all places for neighbours.
const HOPS: u32 = 120;
/// Bytes of an object of an unknown class that a node passes on.
const OBJECT: u16 = 1_000;

/// Every destination is downstream, by its address on one of the interfaces.
struct Downstream;

fn downstream(destination: IpAddr) -> InterfaceId {
    let IpAddr::V4(address) = destination else { return InterfaceId(DOWNSTREAM) };
    InterfaceId(DOWNSTREAM + u32::from(address) % DOWNSTREAMS)
}

impl Routes for Downstream {
    fn towards(&self, destination: IpAddr, _source: IpAddr) -> Vec<NextHop> {
        vec![NextHop { interface: downstream(destination), gateway: destination }]
    }
}

fn address(network: u8, number: u32) -> IpAddr {
    let [_, high, middle, low] = number.to_be_bytes();
    Ipv4Addr::new(network, high, middle, low).into()
}

fn interface(number: u32) -> InterfaceConfig {
    InterfaceConfig {
        addresses: vec![address(10, (number + 1) << 16)],
        reservable: Rate::from_bits_per_sec(1_000_000_000_000),
        reservable_burst: Bytes::new(1_000_000_000_000),
        rate: Rate::from_bits_per_sec(1_000_000_000_000),
        latency: None,
        mtu: 1500,
        overhead: Bytes::ZERO,
        aggregates: Vec::new(),
        guaranteed: Some(ErrorTerms { c: Bytes::new(1500), d: Duration::from_millis(8) }),
        refresh_reduction: true,
        guard: None,
    }
}

fn traffic() -> TrafficSpec {
    TrafficSpec { rate: 1_000.0, burst: 3_000.0, peak: 2_000.0, smallest: 64, largest: 1_500 }
}

/// The message with an object of class 0xC5, which nodes that do not know it pass on (RFC 2205, 3.10), and
/// without a checksum.
fn with_unknown_object(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(OBJECT.to_be_bytes());
    bytes.extend([0xC5, 1]);
    bytes.resize(bytes.len() + usize::from(OBJECT) - 4, 7);
    let length = (bytes.len() as u16).to_be_bytes();
    bytes[6..8].copy_from_slice(&length);
    bytes[2..4].fill(0);
    bytes
}

struct Router {
    machine: Machine<Downstream>,
    now: Time,
    /// Whether its neighbours acknowledge what it sends.
    acknowledges: bool,
}

impl Router {
    fn new(acknowledges: bool) -> Self {
        let random = RandomStream::new(1, "router");
        let mut machine = Machine::new(Config::default(), Downstream, random);
        for number in 0..DOWNSTREAM + DOWNSTREAMS {
            machine.add_interface(InterfaceId(number), interface(number));
        }
        Self { machine, now: Time::ZERO, acknowledges }
    }

    fn hears(&mut self, interface: InterfaceId, source: IpAddr, payload: &[u8]) {
        self.now += Duration::from_micros(100);
        self.machine.on_packet(self.now, Arrival { interface, source, ttl: 64, payload });
        while let Some(sent) = self.machine.poll_transmit() {
            if !self.acknowledges {
                continue;
            }
            let id = Message::decode(&sent.payload).ok().and_then(|message| message.id);
            let Some(MessageId { epoch, id, .. }) = id else { continue };
            let mut ack = Message::new(Body::Ack);
            (ack.send_ttl, ack.acks) = (64, vec![Ack { negative: false, epoch, id }]);
            let payload = ack.encode().expect("it is right");
            let (interface, source) = (sent.interface, sent.destination);
            self.machine
                .on_packet(self.now, Arrival { interface, source, ttl: 64, payload: &payload });
        }
        while self.machine.poll_event().is_some() {}
    }
}

fn hop(number: u32) -> Hop {
    Hop { address: address(10, number % HOPS + 1), interface: 0 }
}

fn message(number: u32, body: Body) -> Message {
    let mut message = Message::new(body);
    message.send_ttl = 64;
    message.id = Some(MessageId { ack_desired: true, epoch: 1, id: number + 1 });
    message
}

fn print_state(router: &Router) {
    println!("{:?}", router.machine.census());
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux reports it");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!("peak{}", peak.expect("the largest resident memory"));
}

/// Fills paths, passed-on objects, reservations and MESSAGE_IDs; prints what is there.
fn fill(acknowledges: bool) {
    let mut router = Router::new(acknowledges);
    let session =
        |number: u32| Session { destination: address(20, number / 6), protocol: 17, port: 5004 };
    let sender = |number: u32| Sender { address: address(30, number), port: 4000 };
    let refresh = Duration::from_secs(300);
    for number in 0..150_000 {
        let path = Path {
            session: session(number),
            hop: hop(number),
            refresh,
            sender: sender(number),
            traffic: traffic(),
            adspec: None,
        };
        let bytes = message(number, Body::Path(path)).encode().expect("it is right");
        let bytes = if number % 4 == 0 { with_unknown_object(bytes) } else { bytes };
        let upstream = if number % 2 == 0 { UPSTREAM } else { OTHER_UPSTREAM };
        router.hears(upstream, hop(number).address, &bytes);
    }
    print_state(&router);
    for number in 0..150_000 {
        let flows = vec![Descriptor {
            flowspec: FlowSpec::ControlledLoad(traffic()),
            filters: vec![sender(number)],
        }];
        let by = downstream(session(number).destination);
        let next = Hop { address: address(11, number % HOPS + 1), interface: by.0 };
        let (scope, style) = (Vec::new(), Style::FixedFilter);
        let resv = Resv {
            session: session(number),
            hop: next,
            refresh,
            confirm: None,
            scope,
            style,
            flows: flows.into_iter().map(Into::into).collect(),
        };
        let bytes = message(number, Body::Resv(resv)).encode().expect("it is right");
        router.hears(by, next.address, &bytes);
    }
    print_state(&router);
    // Freed at last, so that the memory is of a router that has all of it.
    drop(router);
}

/// What a router prints whose neighbours acknowledge, or do not.
fn filled(test: &str, acknowledges: bool) -> String {
    let output = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, acknowledges.to_string())
        .output()
        .expect("the router starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The last number that follows a name.
fn number(text: &str, name: &str) -> u64 {
    let rest = text.rsplit(name).next().expect("there is a last part");
    let digits = rest.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    digits.and_then(|digits| digits.parse().ok()).expect("a number follows")
}

#[test]
fn neighbours_that_fill_every_budget_leave_a_router_small() {
    if let Ok(acknowledges) = std::env::var(ROLE) {
        return fill(acknowledges == "true");
    }
    for acknowledges in [true, false] {
        let text = filled("neighbours_that_fill_every_budget_leave_a_router_small", acknowledges);
        eprintln!("neighbours that acknowledge: {acknowledges}\n{text}");
        // The budgets were reached: seven eighths of them are for neighbours.
        assert_eq!(number(&text, "paths:"), 87_500, "{text}");
        let reserved = number(&text, "reservations:");
        assert!(reserved <= 28_672 && (reserved == 28_672 || !acknowledges), "{text}");
        assert!(number(&text, "peak") < MAX_RESIDENT_KB, "{text}");
    }
}
