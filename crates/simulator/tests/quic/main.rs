//! Congestion controllers under a real QUIC stack: two sans-I/O endpoints (noq-proto) move real
//! bytes through a simulated bottleneck in virtual time, under a controller of
//! `ontempo-mechanisms`, the same struct that the simulator's TCP runs.
//!
//! [`world::run`] is the entry point; the other modules are its parts. `--nocapture` prints
//! each run's results and speed.

mod checksum;
mod content;
mod endpoint;
mod plaintext;
mod same_path;
mod world;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};
use ontempo_mechanisms::congestion::{
    Ack, AckCounting, CongestionControl, Loss, Pert, PertParameters, Reno, RenoParameters,
    Snapshot, Start, Timeout, Window,
};

use crate::same_path::{WindowTrace, tcp};
use crate::world::{Mishaps, Outcome, PAYLOAD, Path, Setup, run, run_with};
use ontempo_transport::quic::Pacing;

const FIFTY_MEGABYTES: Bytes = Bytes::new(50_000_000);
const FIVE_MEGABYTES: Bytes = Bytes::new(5_000_000);

/// 10 Mbit/s, 20 ms one way, a queue of 50 packets: about 92 fill pipe and queue.
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

/// Sends at a constant rate.
#[derive(Clone)]
struct FixedRate(Rate);

impl CongestionControl for FixedRate {
    fn on_ack(&mut self, _ack: &Ack) {}

    fn on_loss(&mut self, _loss: &Loss) {}

    fn on_timeout(&mut self, _timeout: &Timeout) {}

    fn on_idle_restart(&mut self) {}

    fn window(&self) -> Window {
        Window::of_packets(1000.0)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.0)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: self.window(),
            ssthresh: self.window(),
            alpha: None,
            queueing_delay: None,
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: 0,
            reductions: 0,
            bears: None,
        }
    }
}

fn show(name: &str, outcome: &Outcome) {
    println!(
        "{name}: {} in {}, {} dropped, {} held for lost, {} loss events, {} timeouts, {} early \
         responses, {} taken back, mean window {:.2}, {} RTT samples, {} back to back, trace \
         {:016x}; {} at {:.0} packets/s of wall time",
        outcome.goodput,
        outcome.duration,
        outcome.drops,
        outcome.lost,
        outcome.log.loss_events.len(),
        outcome.log.timeouts.len(),
        outcome.snapshot().early_responses,
        outcome.log.spurious,
        outcome.mean_window(Time::ZERO),
        outcome.log.rtt_samples,
        outcome.back_to_back,
        outcome.trace,
        outcome.packets,
        outcome.packets_per_second(),
    );
}

fn assert_intact(outcome: &Outcome, sent: Bytes) {
    assert_eq!(outcome.wrong_at, None);
    assert_eq!(outcome.received, sent);
}

/// The window before and after each reduction.
fn reductions(outcome: &Outcome) -> Vec<(f64, f64)> {
    let windows = outcome.window_trace.windows(2);
    let pairs = windows.map(|pair| (pair[0].1.packets(), pair[1].1.packets()));
    pairs.filter(|(before, after)| after < before).collect()
}

fn smallest_window(outcome: &Outcome) -> f64 {
    outcome.window_trace.iter().map(|(_, window)| window.packets()).fold(f64::MAX, f64::min)
}

#[test]
fn fifty_megabytes_arrive_as_they_were_sent() {
    for (name, pacing) in
        [("unpaced", Pacing::Off), ("stack's pacer", Pacing::Stack), ("paced", Pacing::Window)]
    {
        let setup = Setup { pacing, ..Setup::default() };
        let outcome = run_with(path(), setup, reno, FIFTY_MEGABYTES);
        show(name, &outcome);
        assert_intact(&outcome, FIFTY_MEGABYTES);
        assert!(outcome.goodput > Rate::from_bits_per_sec(9_000_000));
        assert!(outcome.goodput < path().rate);
    }
}

#[test]
fn the_same_seed_gives_the_same_packets_to_the_byte() {
    let once = run(path(), pert, FIVE_MEGABYTES);
    let again = run(path(), pert, FIVE_MEGABYTES);
    show("once", &once);
    show("again", &again);
    assert_eq!(once.trace, again.trace);
    assert_eq!(once.packets, again.packets);
    assert_eq!(once.window_trace, again.window_trace);
}

#[test]
fn another_seed_gives_other_packets() {
    let run_of = |seed| run_with(path(), Setup { seed, ..Setup::default() }, reno, FIVE_MEGABYTES);
    assert_ne!(run_of(1).trace, run_of(2).trace);
}

#[test]
fn reno_halves_its_window_once_for_each_loss_event_and_never_goes_below_its_floor() {
    let outcome = run(path(), reno, FIFTY_MEGABYTES);
    show("reno", &outcome);
    let halvings = reductions(&outcome);
    for (before, after) in &halvings {
        assert_eq!(*after, (before / 2.0).max(Window::FLOOR.packets()));
    }
    assert_eq!(outcome.log.timeouts, []);
    assert_eq!(halvings.len(), outcome.log.loss_events.len());
    assert_eq!(halvings.len() as u64, outcome.snapshot().reductions);
    assert!(smallest_window(&outcome) >= Window::FLOOR.packets());
    // Losses occur when pipe and queue are full. The first is slow start's, at twice that; half of
    // it is still too much, hence the second.
    let settled = &halvings[2..];
    assert!(settled.len() >= 10);
    for (before, _) in settled {
        assert!((90.0..96.0).contains(before), "{before}");
    }
    // Only the queue dropped packets, and all drops are detected.
    assert_eq!(outcome.lost, outcome.drops);
}

#[test]
fn pert_gives_way_to_delay_and_fills_the_queue_only_at_the_start() {
    let outcome = run(path(), pert, FIFTY_MEGABYTES);
    show("pert", &outcome);
    assert_intact(&outcome, FIFTY_MEGABYTES);
    assert!(smallest_window(&outcome) >= Window::FLOOR.packets());
    let reductions = reductions(&outcome);
    assert_eq!(reductions.len() as u64, outcome.snapshot().reductions);
    for (before, after) in reductions {
        assert!(after >= (before / 2.0).max(Window::FLOOR.packets()));
    }
    assert!(outcome.snapshot().early_responses > 50);
    let start = Time::from_secs_f64(5.0);
    assert!(outcome.log.loss_events.iter().all(|at| *at < start));
    let against = run(path(), reno, FIFTY_MEGABYTES);
    assert!(outcome.mean_window(start) < 0.8 * against.mean_window(start));
    assert!(outcome.goodput > Rate::from_bits_per_sec(8_500_000));
}

#[test]
fn the_controllers_pacing_rate_is_applied() {
    let rate = Rate::from_bits_per_sec(4_000_000);
    let outcome = run(path(), move |_| FixedRate(rate), FIVE_MEGABYTES);
    show("4 Mbit/s", &outcome);
    assert_intact(&outcome, FIVE_MEGABYTES);
    assert_eq!(outcome.lost, Packets::new(0));
    let least = rate.time_to_send(FIVE_MEGABYTES);
    assert!(outcome.duration > least);
    assert!(outcome.duration < least.mul_f64(1.06), "headers take some 4 %");
    // Only the burst that the stack allows at the start.
    assert!(outcome.back_to_back <= Packets::new(20), "{}", outcome.back_to_back);
}

#[test]
fn a_damaged_packet_is_found_by_its_tag_and_sent_again() {
    let mishaps = Mishaps { damage_every: Some(200), ..Mishaps::default() };
    let outcome = run_with(path(), Setup { mishaps, ..Setup::default() }, reno, FIVE_MEGABYTES);
    show("damaged", &outcome);
    assert_intact(&outcome, FIVE_MEGABYTES);
    let damaged = outcome.lost - outcome.drops;
    let packets = FIVE_MEGABYTES.get() / u64::from(PAYLOAD);
    assert!(damaged >= Packets::new(packets / 200), "{damaged}");
}

#[test]
fn congestion_marks_reduce_the_window_where_nothing_is_lost() {
    let mishaps = Mishaps { mark_every: Some(500), ..Mishaps::default() };
    let outcome = run_with(path(), Setup { mishaps, ..Setup::default() }, reno, FIVE_MEGABYTES);
    show("marked", &outcome);
    assert_intact(&outcome, FIVE_MEGABYTES);
    let marks = outcome.snapshot().reductions - outcome.log.loss_events.len() as u64;
    assert!((6..=9).contains(&marks), "{marks}");
}

#[test]
fn an_outage_is_a_timeout_after_which_the_window_grows_again() {
    let outage = (Time::from_secs_f64(2.0), Time::from_secs_f64(5.0));
    let mishaps = Mishaps { outage: Some(outage), ..Mishaps::default() };
    let outcome = run_with(path(), Setup { mishaps, ..Setup::default() }, reno, FIVE_MEGABYTES);
    show("outage", &outcome);
    println!("timeouts at {:?}", outcome.log.timeouts);
    assert_intact(&outcome, FIVE_MEGABYTES);
    assert_eq!(outcome.log.timeouts.len(), 1);
    assert!(outcome.log.timeouts[0] > outage.1);
    assert_eq!(smallest_window(&outcome), 1.0);
    assert!(outcome.snapshot().cwnd > Window::of_packets(20.0));
}

/// Both runs on one path: QUIC's, with every packet acknowledged as by the simulator's TCP, and
/// the simulator's.
fn on_the_same_path<C>(controller: fn(Start) -> C, congestion: &str) -> (WindowTrace, WindowTrace)
where
    C: CongestionControl + Clone + Send + Sync + 'static,
{
    let setup = Setup { ack_every: Some(1), ..Setup::default() };
    let outcome = run_with(path(), setup, controller, FIFTY_MEGABYTES);
    show("quic", &outcome);
    let quic = WindowTrace::of(&outcome);
    let tcp = tcp(path(), congestion, outcome.duration);
    for (name, trace) in [("quic", &quic), ("tcp", &tcp)] {
        println!(
            "{name}: mean window {:.3}, {} losses every {:?} s, {} early responses",
            trace.mean(),
            trace.losses.len(),
            trace.period(),
            trace.early_responses,
        );
    }
    (quic, tcp)
}

fn within(share: f64, one: f64, other: f64) -> bool {
    (one - other).abs() <= share * other
}

#[test]
fn reno_has_the_same_window_in_quic_as_in_the_simulators_tcp() {
    let (quic, tcp) = on_the_same_path(reno, r#"{ kind = "reno", counting = "packets" }"#);
    assert!(within(0.02, quic.mean(), tcp.mean()));
    assert!(within(0.02, quic.period().unwrap(), tcp.period().unwrap()));
    // Each period matches, from the same point of the sawtooth.
    let (quic, tcp) = (quic.periods(8), tcp.periods(8));
    let pairs = quic.iter().zip(tcp);
    let apart = pairs.clone().map(|(quic, tcp)| (quic - tcp).abs()).sum::<f64>();
    println!("{:.3} packets apart on average", apart / pairs.len() as f64);
    assert!(apart / (pairs.len() as f64) < 2.0);
}

#[test]
fn pert_keeps_the_same_window_in_quic_as_in_the_simulators_tcp() {
    let (quic, tcp) = on_the_same_path(pert, r#""pert""#);
    assert!(within(0.05, quic.mean(), tcp.mean()));
    assert!(within(0.1, quic.early_responses as f64, tcp.early_responses as f64));
}
