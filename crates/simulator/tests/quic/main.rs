//! A mechanism under a real QUIC stack: two sans-I/O endpoints (noq-proto) move real bytes
//! through a simulated bottleneck in virtual time, under a controller of
//! `ontempo-mechanisms`, the same struct that the simulator's TCP runs.
//!
//! [`world::run`] is the whole of it; the other modules are its parts.

mod adapter;
mod checksum;
mod content;
mod endpoint;
mod plaintext;
mod world;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};
use ontempo_mechanisms::congestion::{
    AckCounting, Pert, PertParameters, Reno, RenoParameters, Start, Window,
};

use crate::adapter::Pacing;
use crate::world::{Outcome, Path, Setup, run, run_with};

const FIFTY_MEGABYTES: Bytes = Bytes::new(50_000_000);

/// 10 Mbit/s, 20 ms one way, 50 packets of buffer: about 91 packets fill pipe and buffer.
fn path() -> Path {
    Path {
        rate: Rate::from_bits_per_sec(10_000_000),
        delay: Duration::from_millis(20),
        buffer: Packets::new(50),
    }
}

fn reno(start: Start) -> Reno {
    let parameters = RenoParameters { counting: AckCounting::Packets, ..Default::default() };
    Reno::new(start, parameters)
}

fn pert(start: Start) -> Pert {
    Pert::new(start, PertParameters::default(), RandomStream::new(1, "pert under quic"))
}

fn show(name: &str, outcome: &Outcome) {
    println!(
        "{name}: {} in {}, {} drops, {} held for lost, {} loss events, {} timeouts, {} spurious, \
         mean window {:.2}, {} changes, {} RTT samples, {:?}; {} at {:.0} packets/s",
        outcome.goodput,
        outcome.duration,
        outcome.drops,
        outcome.lost,
        outcome.log.loss_events.len(),
        outcome.log.timeouts.len(),
        outcome.log.spurious,
        outcome.mean_window(Time::from_secs_f64(5.0)),
        outcome.window_trace.len(),
        outcome.log.rtt_samples,
        outcome.snapshot(),
        outcome.packets,
        outcome.packets_per_second(),
    );
}

#[test]
fn fifty() {
    for pacing in [Pacing::Off, Pacing::Stack, Pacing::Window] {
    for ack_every in [None, Some(1)] {
    for iw in [2.0,10.0] {
        let s = Setup { pacing, ack_every, initial_window: Window::of_packets(iw), ..Default::default() };
        println!("{s:?}");
        show("reno", &run_with(path(), s, reno, FIFTY_MEGABYTES));
        show("pert", &run_with(path(), s, pert, FIFTY_MEGABYTES));
    }
    }
    }
    let o = run_with(path(), Setup{corrupt_every: Some(100), ..Default::default()}, reno, Bytes::new(5_000_000));
    show("corrupt", &o);
    let o = run(path(), reno, Bytes::new(5_000_000));
    for (t,w) in o.window_trace.iter().take(60) { println!("{t} {}", w.packets()); }
    println!("{:?}", o.log.loss_events);
}
