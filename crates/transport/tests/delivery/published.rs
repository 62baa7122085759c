//! The settings of rr3216's experiment: a static window, an acknowledgement every so many packets.

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

/// Units of a packet each over a path that loses one in ten: what sender and receiver counted.
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
        world.client().send(now, flow, unit).expect("there is room");
    }
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    assert!(world.run(Time::from_secs_f64(60.0), |world| world.has_ended(flow)));
    [CLIENT, SERVER].map(|node| world.connection(node).expect("it is open").statistics())
}

#[test]
fn a_static_window_stays_whatever_is_lost() {
    let [sender, _] = statistics(DelayedAcks::default());
    assert!(sender.packets_lost > UNITS / 20, "{sender:?}");
    assert_eq!(sender.window, Bytes::new(WINDOW * 1200));
}

#[test]
fn acknowledgements_cover_as_many_packets_as_asked_for_and_gaps_are_no_reason_for_more() {
    let rare = DelayedAcks { every: Packets::new(8), within: Duration::from_secs(60), gaps: false };
    let [sender, seldom] = statistics(rare);
    let [_, at_gaps] = statistics(DelayedAcks { gaps: true, ..rare });
    let [_, usual] = statistics(DelayedAcks::default());
    let arrived = sender.packets_sent;
    // Beside those of data: the handshake's, and of packets that come alone.
    assert!(seldom.acks_sent < arrived / 8 + 30, "{} for {arrived}", seldom.acks_sent);
    assert!(at_gaps.acks_sent > seldom.acks_sent, "{} {}", at_gaps.acks_sent, seldom.acks_sent);
    assert!(usual.acks_sent > 2 * seldom.acks_sent, "{} {}", usual.acks_sent, seldom.acks_sent);
}
