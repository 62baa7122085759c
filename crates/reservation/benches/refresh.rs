//! What 10,000 reservations cost a router: processor time of refreshes as a share of a core, and
//! memory. Run with `cargo bench -p ontempo-reservation`; an argument is the number.
//!
//! A sender, a router and a receiver, each a machine of its own. Only the router is timed: each
//! message that comes to it, and each of its timers. Memory is what the router's machine holds
//! when all reservations stand, counted by the allocator.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_reservation::machine::{
    Arrival, Config, InterfaceConfig, InterfaceId, Machine, NextHop, Routes, Transmit,
};
use ontempo_reservation::message::{Descriptor, FlowSpec, Sender, Session, Style, TrafficSpec};
use ontempo_testing::CountingAllocator;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

const SENDER: usize = 0;
const ROUTER: usize = 1;
const RECEIVER: usize = 2;
/// Refresh periods of 30 s that are timed.
const PERIODS: u64 = 10;

/// All that is not the node's own lies by one interface or the other.
struct Line {
    node: usize,
}

impl Routes for Line {
    fn towards(&self, destination: IpAddr, _source: IpAddr) -> Vec<NextHop> {
        let to_receiver = matches!(destination, IpAddr::V4(known) if known.octets()[1] == 1);
        let link = match (self.node, to_receiver) {
            (SENDER, _) | (ROUTER, false) => 0,
            _ => 1,
        };
        vec![NextHop { interface: InterfaceId(link), gateway: destination }]
    }
}

fn address(link: u32, end: u8) -> IpAddr {
    Ipv4Addr::new(10, link as u8, 0, end).into()
}

fn machine(node: usize, refresh_reduction: bool) -> Machine<Line> {
    let random = RandomStream::new(1, &format!("node {node}"));
    let mut machine = Machine::new(Config::default(), Line { node }, random);
    let ends = [vec![(0, 1)], vec![(0, 2), (1, 1)], vec![(1, 2)]];
    for &(link, end) in &ends[node] {
        let config = InterfaceConfig {
            addresses: vec![address(link, end)],
            reservable: Rate::from_bits_per_sec(100_000_000_000),
            reservable_burst: Bytes::new(1_000_000_000),
            rate: Rate::from_bits_per_sec(100_000_000_000),
            latency: None,
            mtu: 1500,
            overhead: Bytes::new(14),
            aggregates: Vec::new(),
            guaranteed: None,
            refresh_reduction,
            guard: None,
        };
        machine.add_interface(InterfaceId(link), config);
    }
    machine
}

struct Bench {
    now: Time,
    machines: Vec<Machine<Line>>,
    /// Processor time of the router.
    spent: std::time::Duration,
    /// Messages that came to the router.
    messages: u64,
}

impl Bench {
    fn timed<T>(&mut self, node: usize, work: impl FnOnce(&mut Machine<Line>) -> T) -> T {
        let begins = Instant::now();
        let result = black_box(work(&mut self.machines[node]));
        if node == ROUTER {
            self.spent += begins.elapsed();
        }
        result
    }

    /// Carries all messages at once, until there are none.
    fn deliver(&mut self) {
        loop {
            let mut packets: Vec<(usize, Transmit)> = Vec::new();
            for node in 0..self.machines.len() {
                while let Some(packet) = self.timed(node, Machine::poll_transmit) {
                    packets.push((node, packet));
                }
                while self.timed(node, Machine::poll_control).is_some() {}
                while self.machines[node].poll_event().is_some() {}
            }
            if packets.is_empty() {
                return;
            }
            for (node, packet) in packets {
                let other = if node == ROUTER { packet.interface.0 as usize * 2 } else { ROUTER };
                let now = self.now;
                self.messages += u64::from(other == ROUTER);
                let Transmit { interface, source, ttl, payload, .. } = packet;
                let arrival = Arrival { interface, source, ttl, payload: &payload };
                self.timed(other, |machine| machine.on_packet(now, arrival));
            }
        }
    }

    fn run(&mut self, until: Time) {
        loop {
            let timers = self.machines.iter().filter_map(Machine::poll_timeout);
            let Some(next) = timers.min().filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            for node in 0..self.machines.len() {
                self.timed(node, |machine| machine.on_timeout(now));
            }
            self.deliver();
        }
        self.now = until;
    }
}

fn flow(number: usize) -> (Session, Sender) {
    let port = 1024 + number as u16;
    let session = Session { destination: address(1, 2), protocol: 17, port };
    (session, Sender { address: address(0, 1), port })
}

/// Sets the reservations up.
fn set_up(bench: &mut Bench, count: usize) {
    let traffic = TrafficSpec { rate: 1e5, burst: 3e3, peak: 2e5, smallest: 64, largest: 1500 };
    for number in 0..count {
        let (session, sender) = flow(number);
        let flows =
            [Descriptor { flowspec: FlowSpec::ControlledLoad(traffic), filters: vec![sender] }];
        let now = bench.now;
        bench.machines[SENDER]
            .announce(now, session, sender, traffic)
            .expect("the sender is on this node");
        bench.machines[RECEIVER]
            .reserve(now, session, Style::FixedFilter, &flows, false)
            .expect("the receiver is on this node");
        bench.deliver();
        // Spread, as applications start one by one; refreshes are spread by their jitter.
        let next = bench.now + Duration::from_millis(5);
        bench.run(next);
    }
    bench.run(bench.now + Duration::from_secs(60));
    assert_eq!(bench.machines[ROUTER].census().enforced, count);
}

/// Bytes that the router's machine holds; it ends with it.
fn memory(mut bench: Bench) -> usize {
    let router = bench.machines.swap_remove(ROUTER);
    let before = HEAP.held();
    drop(router);
    before - HEAP.held()
}

fn main() {
    let argument = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let count: usize = argument.unwrap_or(10_000);
    for refresh_reduction in [false, true] {
        let mut bench = Bench {
            now: Time::ZERO,
            machines: (0..3).map(|node| machine(node, refresh_reduction)).collect(),
            spent: Default::default(),
            messages: 0,
        };
        let begins = Instant::now();
        set_up(&mut bench, count);
        let set_up = begins.elapsed();
        (bench.spent, bench.messages) = Default::default();
        let held = bench.machines[ROUTER].census();
        let span = Config::default().refresh * PERIODS;
        bench.run(bench.now + span);
        let after = bench.machines[ROUTER].census();
        assert_eq!(after.enforced, held.enforced, "every reservation still stands");
        let share = 100.0 * bench.spent.as_secs_f64() / span.as_secs_f64();
        let kind = if refresh_reduction { "refreshed by number" } else { "refreshed in full" };
        println!(
            "{count} reservations {kind}: {share:.3} % of a core, {:.1} messages a second to the \
             router, {} bytes a reservation; all set up in {:.2} s by three machines",
            bench.messages as f64 / span.as_secs_f64(),
            memory(bench) / count,
            set_up.as_secs_f64(),
        );
    }
}
