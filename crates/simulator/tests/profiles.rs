//! The profiles of TCP beside each other, run as scenarios.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayAccessor, StringArray};
use ontempo_simulator::{Control, Results, Simulation};

/// A dumbbell with an RTT of 40 ms and a bottleneck of 10 Mbit/s; `loss` on it, and one flow. Hosts
/// are exact, so that times can be computed.
fn scenario(loss: &str, application: &str, transport: &str) -> String {
    format!(
        "duration = \"20 s\"\n\
         [hosts]\n\
         jitter = \"0 s\"\n\
         [topology]\n\
         kind = \"dumbbell\"\n\
         access = {{ rate = \"100 Mbit/s\", delay = \"2 ms\" }}\n\
         reverse = {{ rate = \"10 Mbit/s\", delay = \"16 ms\" }}\n\
         [topology.bottleneck]\n\
         rate = \"10 Mbit/s\"\n\
         delay = \"16 ms\"\n\
         queue = {{ kind = \"drop-tail\", limit = \"500 packets\" }}\n\
         {loss}\n\
         [flows.one]\n\
         application = {application}\n\
         transport = {{ kind = \"tcp\", {transport} }}\n\
         [measure]\n\
         packets = [\"bottleneck\"]\n\
         sample-every = \"1 s\"\n\
         events = true\n"
    )
}

fn run(text: &str) -> Results {
    let scenario = ontempo_scenario::parse(text, "test.toml").expect("the scenario is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

fn lost(packets: &[u64]) -> String {
    format!("loss = {{ kind = \"trace\", lost = {packets:?} }}")
}

/// A file of so many packets with 960 bytes of payload.
fn file(packets: u64) -> String {
    format!("{{ kind = \"file\", size = \"{} bytes\" }}", packets * 960)
}

fn count(results: &Results, name: &str) -> u64 {
    let flows = &results.table("flows").expect("there is such a table").batch;
    let column = flows.column_by_name(name).expect("there is such a column");
    column.as_primitive::<UInt64Type>().value(0)
}

fn goodput(results: &Results) -> f64 {
    let flows = &results.table("flows").expect("there is such a table").batch;
    let column = flows.column_by_name("goodput_bps").expect("there is such a column");
    column.as_primitive::<Float64Type>().value(0)
}

/// The data packets that reached the bottleneck: time in seconds, number, and size.
fn data(results: &Results) -> Vec<(f64, u64, u64)> {
    let packets = &results.table("packets").expect("there is such a table").batch;
    let column = |name: &str| packets.column_by_name(name).expect("there is such a column");
    let kinds = column("kind").as_dictionary::<Int32Type>();
    let kinds = kinds.downcast_dict::<StringArray>().expect("it holds texts");
    let times = column("time_s").as_primitive::<Float64Type>();
    let numbers = column("number").as_primitive::<UInt64Type>();
    let sizes = column("size_bytes").as_primitive::<UInt64Type>();
    (0..packets.num_rows())
        .filter(|row| kinds.value(*row) == "data")
        .map(|row| (times.value(row), numbers.value(row), sizes.value(row)))
        .collect()
}

/// When the first full packet reached the bottleneck.
fn first_data(results: &Results) -> f64 {
    data(results).iter().find(|(_, _, size)| *size == 1000).expect("data is sent").0
}

/// The samples of the window in packets.
fn windows(results: &Results) -> Vec<f64> {
    let samples = &results.table("samples").expect("there is such a table").batch;
    let column = |name: &str| samples.column_by_name(name).expect("there is such a column");
    let quantities = column("quantity").as_dictionary::<Int32Type>();
    let quantities = quantities.downcast_dict::<StringArray>().expect("it holds texts");
    let values = column("value").as_primitive::<Float64Type>();
    let rows = (0..quantities.len()).filter(|row| quantities.value(*row) == "cwnd_packets");
    rows.map(|row| values.value(row)).collect()
}

#[test]
fn a_handshake_takes_one_round_trip_before_the_data() {
    let with = |profile: &str| run(&scenario("", &file(1), &format!("profile = \"{profile}\"")));
    let (plain, linux) = (with("ns-2"), with("linux"));
    let sizes: Vec<_> = data(&linux).iter().map(|(_, _, size)| *size).collect();
    assert_eq!(sizes, [60, 1000]);
    // 40 ms, and 60 bytes on four links at 100 Mbit/s and two at 10 Mbit/s.
    let trip = 0.040 + 480.0 * (4.0 / 100e6 + 2.0 / 10e6);
    let later = first_data(&linux) - first_data(&plain);
    assert!((later - trip).abs() < 1e-6, "{later}");
}

#[test]
fn a_lost_syn_is_sent_again_after_one_second_and_then_after_two() {
    let with = |loss: &str| run(&scenario(loss, &file(1), "profile = \"linux\""));
    let regular = first_data(&with(""));
    for (numbers, seconds) in [(&[0][..], 1.0), (&[0, 1][..], 3.0)] {
        let results = with(&lost(numbers));
        assert!((first_data(&results) - regular - seconds).abs() < 1e-9);
        assert_eq!(count(&results, "timeouts"), numbers.len() as u64);
        assert_eq!(count(&results, "transfers"), 1);
    }
}

#[test]
fn without_timestamps_the_timeout_after_a_lost_syn_is_three_seconds() {
    let between = |options: &str, numbers: &[u64]| {
        let transport = format!("profile = \"linux\", tail-loss-probe = false{options}");
        let results = run(&scenario(&lost(numbers), &file(1), &transport));
        let sent = data(&results);
        let mut times = sent.iter().filter(|(_, _, size)| *size == 1000).map(|(at, ..)| *at);
        let (first, again) = (times.next().expect("sent"), times.next().expect("sent again"));
        again - first
    };
    let without = ", timestamps = false, undo-timeouts = false";
    // The SYN is number 0, and 1 where it is sent again; then comes the only packet.
    assert!((between(without, &[0, 2]) - 3.0).abs() < 1e-6);
    assert!(between(without, &[1]) < 0.5, "the handshake gave a sample");
    assert!(between("", &[0, 2]) < 0.5, "with timestamps it gives one, too");
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe_and_not_by_a_timeout() {
    // Of a file of 8 packets the last two are lost; the SYN is number 0 of the link.
    let linux = run(&scenario(&lost(&[7, 8]), &file(8), "profile = \"linux\""));
    assert_eq!((count(&linux, "timeouts"), count(&linux, "retransmitted")), (0, 2));
    assert_eq!(count(&linux, "transfers"), 1);
    let sent = data(&linux);
    let probe = sent.iter().rev().find(|(_, number, _)| *number == 7).expect("a probe").0;
    // The last ACK is that of the sixth packet; two SRTT and 2 ms later comes the probe.
    let sixth = sent.iter().find(|(_, number, _)| *number == 5).expect("it was sent").0;
    assert!((0.110..0.145).contains(&(probe - sixth)), "{}", probe - sixth);
    let plain = run(&scenario(&lost(&[6, 7]), &file(8), "profile = \"ns-2\""));
    assert!(count(&plain, "timeouts") >= 1);
}

#[test]
fn the_probe_of_a_single_packet_takes_the_place_of_the_timeout_that_is_due_before_it() {
    let linux = run(&scenario(&lost(&[8]), &file(8), "profile = \"linux\""));
    assert_eq!((count(&linux, "timeouts"), count(&linux, "retransmitted")), (0, 1));
    assert_eq!(count(&linux, "transfers"), 1);
}

/// A transfer that loses packet 40 and, twice, its retransmission.
fn lost_again(recovery: &str) -> Results {
    let transport = format!(
        "profile = \"ns-2\", {recovery}, congestion = \"reno\", initial-window = \"20 packets\""
    );
    let first = run(&scenario(&lost(&[40]), &file(2000), &transport));
    let again = data(&first).iter().rposition(|(_, number, _)| *number == 40).expect("sent");
    run(&scenario(&lost(&[40, again as u64]), &file(2000), &transport))
}

#[test]
fn a_retransmission_that_is_lost_is_found_by_time_and_waits_for_the_timer_with_sack() {
    assert_eq!(count(&lost_again("recovery = \"sack\""), "timeouts"), 1);
    assert_eq!(count(&lost_again("recovery = \"rack\""), "timeouts"), 0);
}

#[test]
fn under_random_loss_linux_has_fewer_timeouts_with_the_same_congestion_control() {
    let with = |profile: &str| {
        let loss = "loss = { kind = \"bernoulli\", rate = 0.03 }";
        let transport = format!("profile = \"{profile}\", congestion = \"reno\"");
        run(&scenario(loss, "{ kind = \"ftp\" }", &transport))
    };
    let (plain, linux) = (with("ns-2"), with("linux"));
    assert!(count(&plain, "timeouts") > 0);
    assert!(count(&linux, "timeouts") < count(&plain, "timeouts"));
    assert!(goodput(&linux) > 0.0);
    // Delayed ACKs, but for packets out of order.
    let share = |results: &Results| {
        count(results, "acks") as f64 / count(results, "delivered_packets") as f64
    };
    assert!(share(&linux) < 0.9 && share(&plain) > 0.95, "{} {}", share(&linux), share(&plain));
}

#[test]
fn the_window_of_a_live_stream_grows_with_ns_2_and_not_with_linux() {
    let with = |profile: &str| {
        let application = "{ kind = \"cbr\", rate = \"300 kbit/s\" }";
        run(&scenario("", application, &format!("profile = \"{profile}\", congestion = \"reno\"")))
    };
    let last = |results: &Results| windows(results).last().copied().expect("there are samples");
    assert_eq!(last(&with("linux")), 10.0);
    assert!(last(&with("ns-2")) > 100.0);
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    let with = |hystart: bool| {
        let cubic = format!("congestion = {{ kind = \"cubic\", hystart = {hystart} }}");
        let text = scenario("", "{ kind = \"ftp\" }", &format!("profile = \"linux\", {cubic}"));
        run(&text.replace("20 s", "1 s").replace("500 packets", "100 packets"))
    };
    assert_eq!(count(&with(true), "dropped_packets"), 0);
    assert!(count(&with(false), "dropped_packets") > 20);
}

#[test]
fn a_timeout_in_an_outage_is_undone_when_the_packets_arrive_after_all() {
    let with = |undo: bool| {
        let application = "{ kind = \"cbr\", rate = \"2 Mbit/s\" }";
        let transport = format!("profile = \"linux\", undo-timeouts = {undo}");
        run(&scenario("outages = [{ at = \"10 s\", for = \"1 s\" }]", application, &transport))
    };
    let (undone, not) = (with(true), with(false));
    assert!(count(&undone, "timeouts") >= 1 && count(&not, "timeouts") >= 1);
    assert!(count(&undone, "retransmitted") <= 3, "{}", count(&undone, "retransmitted"));
    assert!(count(&not, "retransmitted") > 10, "{}", count(&not, "retransmitted"));
    assert!(goodput(&undone) >= goodput(&not));
}

#[test]
fn packets_that_overtake_each_other_are_not_sent_again() {
    // Up to 8 ms of reordering, of a least RTT of 40 ms.
    let delay =
        "\ndelay = { kind = \"uniform\", low = \"16 ms\", high = \"24 ms\" }\nreordering = true";
    let with = |transport: &str| {
        let text = scenario("", &file(2000), transport);
        // The bottleneck's delay is on a line of its own.
        run(&text.replacen("\ndelay = \"16 ms\"", delay, 1))
    };
    let rack = with("profile = \"linux\"");
    let sack = with("profile = \"linux\", recovery = \"sack\"");
    assert_eq!(count(&rack, "transfers"), 1);
    let (rack, sack) = (count(&rack, "retransmitted"), count(&sack, "retransmitted"));
    assert!(sack > 10 && rack * 10 < sack, "{rack} {sack}");
}
