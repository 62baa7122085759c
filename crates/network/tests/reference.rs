//! Queue disciplines beside a program that was written from their sources alone: RFC 8289, 8290, 8033
//! and 9332, and ns-2 2.35's RED. The program, in Python, is not part of this project. Its figures for
//! the same packets stand here; each packet's fate and time is in a digest.
//!
//! It reads the sources as docs/mechanisms says (of RFC 8033 no optional part but marking; Linux's
//! lists of flows and scheduler of two queues), and gets the same numbers for what is drawn at random.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};
use ontempo_network::{
    Capacity, CoDel, CoDelParameters, DelayLaw, Discipline, Dropped, DualPi2, DualPi2Parameters,
    Extras, Fate, FqCoDel, FqCoDelParameters, Limit, Link, LinkParameters, LossModel, Pie,
    PieParameters, Queue, Queued, RateLaw, RateSteps, Red, RedMeasure, RedParameters, Schedule,
    ScheduledLink, ScheduledLinkParameters, Steps,
};

const RATE: Rate = Rate::from_bits_per_sec(10_000_000);
const NAME: &str = "reference";

/// Drops, marks, and a hash of all outcomes.
type Digest = (u64, u64, u64);

/// Packets of one flow: mean gap in ns, least size, how many more bytes are drawn (below), flow,
/// whether it is ECN-capable (and L4S), from and until in ms.
type Part = (u64, u64, u64, u32, bool, u64, u64);

/// Knuth's linear congruential generator (MMIX), of which the upper 31 bits are used.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn packets(seed: u64, parts: &[Part]) -> Vec<Queued> {
    let mut numbers = Numbers(seed);
    let mut packets = Vec::new();
    for &(gap, size, span, flow, ecn_capable, from, until) in parts {
        let mut nanos = from * 1_000_000;
        loop {
            nanos += 1 + numbers.below(2 * gap);
            if nanos >= until * 1_000_000 {
                break;
            }
            let more = if span > 0 { numbers.below(span) } else { 0 };
            packets.push(Queued {
                handle: 0,
                flow,
                class: 0,
                size: Bytes::new(size + more),
                ecn_capable,
                l4s: ecn_capable,
                enqueued: Time::from_nanos(nanos),
            });
        }
    }
    packets.sort_by_key(|packet| packet.enqueued);
    let mut last = Time::ZERO;
    for (handle, packet) in (0..).zip(&mut packets) {
        // No two at the same time.
        last = packet.enqueued.max(last + Duration::from_nanos(1));
        (packet.handle, packet.enqueued) = (handle, last);
    }
    packets
}

/// What became of a packet, and when: when it was dropped, or its last bit left.
#[derive(Clone, Copy)]
enum Outcome {
    Dropped(Time),
    Sent(Time),
    Marked(Time),
}

/// The hash is FNV-1a.
fn digest(outcomes: &[Option<Outcome>]) -> Digest {
    let (mut drops, mut marks, mut hash) = (0, 0, 0xcbf2_9ce4_8422_2325u64);
    for outcome in outcomes {
        let (kind, at) = match outcome.expect("each packet leaves or is dropped") {
            Outcome::Dropped(at) => (0, at),
            Outcome::Sent(at) => (1, at),
            Outcome::Marked(at) => (2, at),
        };
        drops += u64::from(kind == 0);
        marks += u64::from(kind == 2);
        for byte in [kind].into_iter().chain(at.as_nanos().to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    (drops, marks, hash)
}

fn sent(at: Time, marked: bool) -> Outcome {
    if marked { Outcome::Marked(at) } else { Outcome::Sent(at) }
}

fn through_link(queue: Queue, extras: Extras, packets: &[Queued]) -> Digest {
    let parameters = LinkParameters {
        rate: RATE,
        delay: DelayLaw::Constant(Duration::ZERO),
        mtu: None,
        queue,
        loss: LossModel::None,
        reordering: false,
        extras,
    };
    let mut link = Link::new(parameters, 1, NAME);
    let offer = |packet: &Queued| {
        Some(match link.offer(packet.enqueued, packet.size, packet.ecn_capable) {
            Fate::Arrives { at, marked, .. } => sent(at, marked),
            Fate::Dropped(_) => Outcome::Dropped(packet.enqueued),
        })
    };
    digest(&packets.iter().map(offer).collect::<Vec<_>>())
}

fn through_scheduled(
    discipline: Box<dyn Discipline>,
    extras: Extras,
    packets: &[Queued],
) -> Digest {
    let parameters = ScheduledLinkParameters {
        rate: RATE,
        delay: DelayLaw::Constant(Duration::ZERO),
        mtu: None,
        discipline,
        loss: LossModel::None,
        reordering: false,
        extras,
    };
    let mut link = ScheduledLink::new(parameters, 1, NAME);
    let mut outcomes = vec![None; packets.len()];
    let drop_all = |drops: &mut Vec<Dropped>, now: Time, outcomes: &mut Vec<Option<Outcome>>| {
        for dropped in drops.drain(..) {
            outcomes[dropped.packet.handle as usize] = Some(Outcome::Dropped(now));
        }
    };
    let (mut now, mut drops) = (Time::ZERO, Vec::new());
    let mut left = packets.iter().peekable();
    loop {
        let next = link.next_dequeue(now);
        let arrival = left.peek().map_or(Time::NEVER, |packet| packet.enqueued);
        if next <= arrival && next < Time::NEVER {
            now = next;
            if let Some(departure) = link.dequeue(now, &mut drops) {
                let at = departure.arrives.expect("nothing is lost on the wire");
                outcomes[departure.packet.handle as usize] = Some(sent(at, departure.marked));
            }
        } else if let Some(packet) = left.next() {
            now = arrival;
            link.enqueue(now, *packet, &mut drops);
        } else {
            return digest(&outcomes);
        }
        drop_all(&mut drops, now, &mut outcomes);
    }
}

fn codel(ecn: bool, packets: u64) -> CoDelParameters {
    let limit = Limit::packets(Packets::new(packets));
    CoDelParameters { ecn, limit, ..CoDelParameters::default() }
}

fn fq_codel(codel: CoDelParameters, quantum: u64) -> Box<dyn Discipline> {
    let parameters =
        FqCoDelParameters { codel, quantum: Bytes::new(quantum), ..FqCoDelParameters::default() };
    Box::new(FqCoDel::new(parameters, &mut RandomStream::new(1, "reference queue")))
}

fn red() -> Queue {
    let parameters = RedParameters {
        min_th: 5.0,
        max_th: 15.0,
        max_p: 0.1,
        weight: 0.002,
        mean_packet_size: Bytes::new(500),
        measure: RedMeasure::Bytes,
        by_size: true,
        wait: true,
        gentle: true,
        ecn: true,
        mark_p: 0.1,
        limit: Limit::bytes(Bytes::new(100_000)),
    };
    Queue::Red(Box::new(Red::new(parameters).expect("parameters in their ranges")))
}

/// CoDel; the same marking, of 60 packets; FQ-CoDel marking; the same with a quantum of 300 bytes and
/// 30 packets, not marking; PIE marking; RED marking; DualPI2.
fn found(extras: &Extras, packets: &[Queued]) -> [Digest; 7] {
    let scheduled = |discipline| through_scheduled(discipline, extras.clone(), packets);
    let pie = Pie::new(PieParameters { ecn: true, ..PieParameters::default() });
    [
        scheduled(Box::new(CoDel::new(codel(false, 1000)))),
        scheduled(Box::new(CoDel::new(codel(true, 60)))),
        scheduled(fq_codel(codel(true, 10_240), 1514)),
        scheduled(fq_codel(codel(false, 30), 300)),
        through_link(Queue::Pie(Box::new(pie)), extras.clone(), packets),
        through_link(red(), extras.clone(), packets),
        scheduled(Box::new(DualPi2::new(DualPi2Parameters::default()))),
    ]
}

/// The rate falls from 10 to 4 Mbit/s and rises to 20.
fn changing() -> Extras {
    let steps = [(0, 10_000_000), (1_500_000_777, 4_000_000), (3_000_000_333, 20_000_000)];
    let steps = steps.map(|(nanos, rate)| (Time::from_nanos(nanos), Rate::from_bits_per_sec(rate)));
    let steps = RateSteps::new(Steps::new(steps, None).expect("ascending"));
    let capacity = Capacity::new([(Time::ZERO, RateLaw::Steps(Arc::new(steps)))]).expect("one law");
    let schedule = Schedule { capacity, delay: None, loss: None, cellreplay: None };
    Extras { schedule: Some(Arc::new(schedule)), ..Extras::default() }
}

fn parts(name: &str) -> Vec<Part> {
    match name {
        "overload" => vec![(923_077, 1500, 0, 1, false, 0, 4000)],
        "bursts" => {
            let burst = |k: u64| (240_000, 1200, 0, 1, false, k * 600, k * 600 + 150);
            let mut parts: Vec<Part> = (0..5).map(burst).collect();
            parts.push((1_600_000, 400, 0, 2, true, 0, 3000));
            parts
        }
        "load" => vec![(758_000, 300, 1201, 1, false, 0, 6000)],
        "flows" => vec![
            (2_400_000, 1500, 0, 1, false, 0, 4000),
            (1_152_000, 576, 0, 2, true, 0, 4000),
            (1_280_000, 160, 0, 3, true, 0, 4000),
            (2_000_000, 1000, 0, 4, false, 1000, 3000),
        ],
        "idle" => vec![
            (923_077, 1500, 0, 1, false, 0, 1000),
            (1_200_000, 300, 0, 2, true, 0, 1000),
            (923_077, 1500, 0, 1, false, 4000, 5000),
            (1_200_000, 300, 0, 2, true, 4000, 5000),
        ],
        "change" => {
            vec![(1_333_333, 1500, 0, 1, false, 0, 4500), (5_600_000, 700, 0, 2, true, 0, 4500)]
        }
        "large" => vec![
            (12_000_000, 9000, 0, 1, false, 0, 4000),
            (2_400_000, 1499, 0, 2, true, 0, 4000),
            (1_600_000, 201, 0, 3, false, 0, 4000),
        ],
        _ => unreachable!("the table names only these"),
    }
}

/// Traffic, its packets, and for each discipline of [`found`] the program's drops, marks and digest.
#[rustfmt::skip]
const REFERENCE: [(&str, usize, [Digest; 7]); 7] = [
    ("overload", 4295, [
        (520, 0, 0x2969_cb11_6380_5c9e), (918, 0, 0x7578_9ffa_47b0_7e19),
        (520, 0, 0x2969_cb11_6380_5c9e), (952, 0, 0x4cb1_3380_989d_41d5),
        (938, 0, 0xfd06_eefe_ab39_f954), (963, 0, 0x834e_9404_46f8_54df),
        (949, 0, 0xe4c6_8af4_3b5d_f93c),
    ]),
    ("bursts", 4967, [
        (366, 0, 0xbadf_6c29_9f38_ce44), (2426, 5, 0xc58b_90c3_0cd7_eb75),
        (278, 0, 0xef8c_def8_3aec_51cb), (2363, 0, 0xbfa4_c01e_b00b_a9c7),
        (2174, 0, 0xe5e2_d22a_7e7c_f784), (2485, 0, 0x1838_2330_00c1_f17f),
        (2505, 1111, 0x4294_a847_3d2b_177a),
    ]),
    ("load", 7904, [
        (6, 0, 0x6266_77ef_2d3f_fbae), (6, 0, 0x6266_77ef_2d3f_fbae),
        (6, 0, 0x6266_77ef_2d3f_fbae), (20, 0, 0x4b20_7c9a_4aba_9714),
        (0, 0, 0xcdc9_f476_e4e5_59b0), (52, 0, 0xe6af_f1fe_d64b_444d),
        (1, 0, 0x809e_8801_f0d8_d048),
    ]),
    ("flows", 9242, [
        (778, 0, 0x11d0_a15a_e7c2_f5f1), (1430, 170, 0x4559_f354_c53f_c8ce),
        (481, 267, 0x81c2_6dd8_3239_ce1d), (990, 0, 0x7870_cb4c_3181_835b),
        (1635, 8, 0xe767_5e5f_3e77_10c5), (930, 33, 0xfef3_aa9e_d693_b473),
        (1465, 4267, 0xdbba_2702_9179_baf8),
    ]),
    ("idle", 3795, [
        (110, 0, 0x9a41_20bf_24ed_efd1), (1158, 29, 0xd141_ce5d_6fae_c856),
        (106, 0, 0x8d23_8194_4781_71f9), (774, 0, 0xb8c5_f1b3_7f53_8d6b),
        (1193, 13, 0x82fb_14f4_fe4b_4c1d), (854, 3, 0xbd9b_9045_fa2b_7972),
        (1144, 962, 0x8f62_11c8_d0a6_23a8),
    ]),
    ("change", 4161, [
        (155, 0, 0x8c0d_3f2f_f680_9714), (763, 19, 0x0dcf_fb78_4ad5_0b46),
        (154, 0, 0x28c7_12af_4c29_2c88), (719, 0, 0x9cdb_f7d8_405a_a740),
        (817, 1, 0x442d_138d_8346_ffc4), (780, 5, 0x9ccf_68c0_da3d_f544),
        (1323, 295, 0x10a0_513b_2165_0d94),
    ]),
    ("large", 4531, [
        (504, 0, 0xba83_0fd1_ec6b_312d), (906, 144, 0x5057_9e90_184e_c158),
        (92, 456, 0xf0d1_06b7_8516_a56c), (277, 0, 0x2063_e029_6f63_2dbc),
        (964, 4, 0x975f_e8bb_d1f9_9a4d), (173, 78, 0xdecd_5e35_d131_ed1c),
        (1035, 1385, 0xb5d5_0a98_a0db_79ef),
    ]),
];

#[test]
fn each_packet_fares_as_in_the_program_written_from_the_sources() {
    for (seed, (name, count, expected)) in (1..).zip(REFERENCE) {
        let packets = packets(seed, &parts(name));
        assert_eq!(packets.len(), count, "{name}");
        let extras = if name == "change" { changing() } else { Extras::default() };
        let found = found(&extras, &packets);
        assert_eq!(found, expected, "{name}: {found:x?}");
    }
}
