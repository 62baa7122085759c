//! The settings of rr3216's experiment: a static window and an ACK for every n packets.

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::Path;
use ontempo_transport::{
    AckRequest, Configuration, ConnectionStatistics, DelayedAcks, FlowConfig, Outgoing,
};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World};

const UNITS: u64 = 320;
const WINDOW: u64 = 64;

/// Sends units of one packet each over a path with 10 % loss; returns the statistics of sender and
/// receiver.
fn statistics(delayed_acks: DelayedAcks) -> [ConnectionStatistics; 2] {
    let config = Configuration {
        static_window: Some(Packets::new(WINDOW)),
        pacing: None,
        acknowledge: AckRequest::Delayed,
        delayed_acks,
        batch: Bytes::ZERO,
        discover_packet_size: false,
        ..Configuration::default()
    };
    let back = Path::clean(Rate::from_bits_per_sec(1_000_000_000), Duration::from_millis(50));
    let path = Path { loss: LossModel::bernoulli(0.1).expect("a probability"), ..back.clone() };
    let mut world = World::new(7, &path, &back, &config);
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    for id in 0..UNITS {
        let now = world.now();
        let unit = Outgoing { data: content(id, 1000), ..Outgoing::default() };
        world.client().send(now, flow, unit).expect("the send queue has space");
    }
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    assert!(world.run(Time::from_secs_f64(60.0), |world| world.has_ended(flow)));
    [CLIENT, SERVER].map(|node| world.connection(node).expect("it is open").statistics())
}

#[test]
fn a_static_window_does_not_change_with_losses() {
    let [sender, _] = statistics(DelayedAcks::default());
    assert!(sender.packets_lost > UNITS / 20, "{sender:?}");
    assert_eq!(sender.window, Bytes::new(WINDOW * 1200));
}

#[test]
fn lost_packets_are_among_those_sent_and_their_bytes_are_not_among_those_acknowledged() {
    let [sender, _] = statistics(DelayedAcks::default());
    let lost = sender.packets_lost as f64 / sender.packets_sent as f64;
    assert!((0.05..0.15).contains(&lost), "{lost:.3} of 0.1: {sender:?}");
    // Each unit once, with its headers; the first packet that arrives measures the path.
    let units = UNITS * 1_000;
    assert!(sender.bytes_acknowledged >= units - 2_000, "{sender:?}");
    assert!(sender.bytes_acknowledged + sender.bytes_lost <= sender.bytes_sent, "{sender:?}");
}

#[test]
fn delayed_acks_cover_the_configured_number_of_packets_and_ignore_gaps_if_configured() {
    let rare = DelayedAcks { every: Packets::new(8), within: Duration::from_secs(60), gaps: false };
    let [sender, seldom] = statistics(rare);
    let [_, at_gaps] = statistics(DelayedAcks { gaps: true, ..rare });
    let [_, usual] = statistics(DelayedAcks::default());
    let arrived = sender.packets_sent - sender.packets_lost;
    // 30 more for the handshake and for single packets.
    assert!(seldom.acks_sent < arrived / 8 + 30, "{} for {arrived}", seldom.acks_sent);
    assert!(at_gaps.acks_sent > seldom.acks_sent, "{} {}", at_gaps.acks_sent, seldom.acks_sent);
    assert!(usual.acks_sent > 2 * seldom.acks_sent, "{} {}", usual.acks_sent, seldom.acks_sent);
}
