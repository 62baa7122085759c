//! Emulated networks, checked by tools that are not ours: ping, iperf3, tshark. Needs the rights of
//! root; skipped tests are reported.

mod common;
mod emulated;

use arrow_array::Array;
use common::{Place, Ran, interrupt, wait_until};
use emulated::{can_emulate, captured, counts, milliseconds, numbers, run_name, shell, table};
use ontempo_testing::require_programs;

/// One flow of each kind that has no need of the link's whole rate.
const QUIET: &str = r#"
duration = "3 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "20 Mbit/s", delay = "10 ms", queue = { kind = "drop-tail", limit = "100 packets" } }
access = { rate = "1 Gbit/s", delay = "2 ms" }
[flows.a]
application = { kind = "cbr", interval = "20 ms" }
transport = { kind = "udp", packet = "200 B" }
playout = ["10 ms", "200 ms"]
[flows.b]
application = { kind = "cbr", interval = "20 ms" }
transport = { kind = "tcp", congestion = "cubic", packet = "500 B" }
playout = ["200 ms"]
[flows.pages]
application = { kind = "http", think = "100 ms" }
transport = { kind = "tcp", packet = "1500 B" }
[flows.asks]
application = { kind = "request", of = "answers", size = "100 B", think = "20 ms" }
transport = { kind = "tcp" }
[flows.answers]
from = "right"
application = { kind = "respond", smallest = "2 kB", largest = "2 kB" }
transport = { kind = "tcp" }
[measure]
sample-every = "100 ms"
queues = ["bottleneck"]
packets = ["bottleneck"]
adus = true
messages = true
"#;

#[test]
fn a_ping_takes_the_rtt_of_its_path_over_ipv4_and_ipv6() {
    if !can_emulate() || !require_programs(&["ping"]) {
        return;
    }
    let place = Place::new("ping", QUIET);
    for address in ["10.0.0.3", "fd6f:6e74:656d:706f::3"] {
        let ping = ["ping", "-c", "20", "-i", "0.02", "-q", "-s", "16", address];
        let ran = shell(&place, "a.0.source", &ping);
        // 2 + 10 + 2 ms in each direction, and the transmission time of small packets.
        let min = milliseconds(&ran.out, "rtt min/avg/max/mdev = ", 0);
        let mean = milliseconds(&ran.out, "rtt min/avg/max/mdev = ", 1);
        assert!((28.0..28.5).contains(&min), "{}", ran.out);
        assert!((28.0..29.5).contains(&mean), "{}", ran.out);
    }
}

#[test]
fn iperf3_fills_a_link_to_what_its_headers_allow() {
    if !can_emulate() || !require_programs(&["iperf3"]) {
        return;
    }
    let place = Place::new("iperf3", QUIET);
    let script = "ip netns exec $SINK iperf3 -s -1 -D >/dev/null && sleep 0.5 && \
                  iperf3 -c 10.0.0.3 -t 6 -O 2 -C cubic -J";
    let ran = shell(&place, "a.0.source", &["sh", "-c", script]);
    let report = ran.json();
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
    // Of a packet of 1500 bytes, 52 are headers.
    let allowed = 20e6 * 1448.0 / 1500.0;
    assert!((rate / allowed - 1.0).abs() < 0.01, "{rate} of {allowed} bit/s");
}

#[test]
fn udp_loses_the_packets_of_the_loss_model_and_is_not_reordered() {
    if !can_emulate() {
        return;
    }
    let lossy = r#"
        duration = "4 s"
        [topology]
        kind = "graph"
        [[topology.links]]
        from = "a"
        to = "b"
        rate = "100 Mbit/s"
        delay = { kind = "uniform", low = "5 ms", high = "15 ms" }
        loss = { kind = "bernoulli", rate = 0.05 }
        [flows.u]
        from = "a"
        to = "b"
        application = { kind = "cbr", interval = "200 us" }
        transport = { kind = "udp", packet = "300 B" }
        [measure]
        messages = true
    "#;
    let place = Place::new("loss", lossy);
    place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
    let flows = table(&place, "out", "flows");
    let sent = counts(&flows, "sent_packets")[0] as f64;
    let dropped = counts(&flows, "dropped_packets")[0] as f64;
    assert!(sent > 19_000.0, "{sent} of 20,000 packets were sent");
    let deviation = (sent * 0.05 * 0.95).sqrt();
    assert!((dropped - sent * 0.05).abs() < 4.0 * deviation, "{dropped} of {sent} were lost");
    // Packets neither lost nor in flight at the end have arrived in order.
    let numbers = counts(&table(&place, "out", "messages"), "message");
    let under_way = sent - dropped - numbers.len() as f64;
    assert!((0.0..200.0).contains(&under_way), "{under_way} are missing");
    assert!(numbers.is_sorted(), "a packet has overtaken another");
}

#[test]
fn emulation_and_simulation_write_the_same_columns_and_agree_on_an_idle_network() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("columns", QUIET);
    for (world, version) in [("emulate", None), ("emulate", Some("--ipv6")), ("simulate", None)] {
        let out = format!("{world}{}", version.unwrap_or_default());
        let mut arguments = vec![world, "s.toml", "--out", &out];
        arguments.extend(version);
        place.run(&arguments).succeeds();
    }
    for name in ["flows", "links", "queues", "samples", "playout", "adus", "packets", "messages"] {
        let simulated = table(&place, "simulate", name);
        for out in ["emulate", "emulate--ipv6"] {
            let emulated = table(&place, out, name);
            assert_eq!(emulated.schema(), simulated.schema(), "{name}");
            assert!(emulated.num_rows() > 0, "{name} has no rows");
        }
    }
    // Of 150 packets, the last few are in flight, and opening a connection takes a round trip.
    let flows = table(&place, "emulate", "flows");
    let delivered = counts(&flows, "delivered_packets");
    let [a, answers, asks, b, pages] = delivered[..] else { panic!("{delivered:?}") };
    assert!((145..=150).contains(&a) && (143..=150).contains(&b), "{delivered:?}");
    // 3 s of a request and an answer, each 14 ms long, and a pause of 20 ms.
    assert!((40..=62).contains(&asks) && answers > 40 && pages > 10, "{delivered:?}");
    // A unit of 200 bytes comes after 14.08 ms: too late for 10 ms, in time for 200 ms.
    let playout = table(&place, "emulate", "playout");
    let (units, late) = (counts(&playout, "units"), counts(&playout, "late"));
    assert!(late[0] == units[0] && late[1] == 0 && late[2] == 0, "{late:?} of {units:?}");
    let units = table(&place, "emulate", "adus");
    let due = numbers(&units, "due_s");
    let at = numbers(&units, "delivered_s");
    let delivered = units.column_by_name("delivered_s").unwrap();
    // A unit that was under way at the end has no time.
    let delivered: Vec<usize> = (0..at.len()).filter(|row| delivered.is_valid(*row)).collect();
    assert!(delivered.len() > 140, "{delivered:?}");
    let is_possible = |row: &usize| at[*row] - due[*row] > 0.014;
    assert!(delivered.iter().all(is_possible), "a unit came before it could");
}

#[test]
fn tshark_sees_a_flows_packets_in_its_namespace() {
    if !can_emulate() || !require_programs(&["tshark", "ping"]) {
        return;
    }
    let place = Place::new("tshark", QUIET);
    // On a busy machine tshark takes seconds to begin.
    let script = "tshark -q -i ontempo0 -a packets:6 -w seen.pcapng 2>/dev/null & capture=$!; \
                  while kill -0 $capture 2>/dev/null; do ping -q -c 3 -i 0.1 10.0.0.3 >/dev/null; done; \
                  tshark -r seen.pcapng -T fields -e ip.src -e ip.dst -e icmp.type 2>/dev/null";
    let ran = shell(&place, "a.0.source", &["sh", "-c", script]);
    assert!(ran.out.contains("10.0.0.2\t10.0.0.3\t8"), "{ran:?}");
    assert!(ran.out.contains("10.0.0.3\t10.0.0.2\t0"), "{ran:?}");
}

#[test]
fn a_command_runs_in_its_host_and_its_packets_are_counted() {
    if !can_emulate() || !require_programs(&["ping"]) {
        return;
    }
    let scenario = QUIET.replace(
        "[flows.pages]",
        "[flows.ping]\napplication = { kind = \"command\", command = [\"ping\", \"-c\", \"10\", \
         \"-i\", \"0.1\", \"{sink}\"] }\ntransport = { kind = \"own\" }\n[flows.pages]",
    );
    let place = Place::new("command", &scenario);
    place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
    let log = std::fs::read_to_string(place.path("out/ping.0.source.log")).expect("a log");
    assert!(log.contains("10 packets transmitted, 10 received"), "{log}");
    let flows = table(&place, "out", "flows");
    assert_eq!(counts(&flows, "delivered_packets")[5], 10);
    assert_eq!(counts(&flows, "delivered_bytes")[5], 840);
    let simulated = place.run(&["simulate", "s.toml", "--out", "simulated"]);
    let words = ["only be emulated", "flows.ping.application.kind", "no programs"];
    simulated.fails(2, &words);
    let checked = place.run(&["check", "s.toml"]);
    assert!(checked.succeeds().out.contains("can only be emulated"), "{checked:?}");
}

#[test]
fn constant_spacing_is_kept_and_adaptive_spacing_converges() {
    if !can_emulate() {
        return;
    }
    let spaced = r#"
        duration = "3 s"
        [topology]
        kind = "dumbbell"
        bottleneck = { rate = "10 Mbit/s", delay = "5 ms", queue = { kind = "drop-tail", limit = "20 packets" } }
        access = { rate = "100 Mbit/s", delay = "1 ms" }
        [flows.even]
        application = { kind = "ftp" }
        transport = { kind = "spaced", spacing = "2 ms" }
        [flows.found]
        application = { kind = "ftp" }
        transport = { kind = "spaced", controller = "psp" }
        start = "500 ms"
        [measure]
        sample-every = "100 ms"
        packets = ["even.0.source -> left"]
    "#;
    let place = Place::new("spaced", spaced);
    place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
    let times = numbers(&table(&place, "out", "packets"), "time_s");
    let mut distances: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_by(f64::total_cmp);
    let median = distances[distances.len() / 2];
    assert!((0.002..0.0021).contains(&median), "half of the distances are below {median} s");
    let flows = table(&place, "out", "flows");
    assert!(counts(&flows, "acks")[1] > 50, "a report comes each round trip");
    assert!(counts(&flows, "reductions")[1] > 0, "no loss has widened the spacing");
}

#[test]
fn ecn_marks_of_a_queue_reach_the_kernels_congestion_control() {
    if !can_emulate() {
        return;
    }
    let marking = r#"
        duration = "4 s"
        [topology]
        kind = "dumbbell"
        bottleneck = { rate = "10 Mbit/s", delay = "10 ms", queue = { kind = "codel", ecn = true } }
        access = { rate = "100 Mbit/s", delay = "1 ms" }
        [flows.bulk]
        application = { kind = "ftp" }
        transport = { kind = "tcp", congestion = "reno", packet = "1500 B", ecn = true }
        [measure]
        events = true
    "#;
    let place = Place::new("marks", marking);
    for version in [None, Some("--ipv6")] {
        let mut arguments = vec!["emulate", "s.toml", "--out", "out"];
        arguments.extend(version);
        place.run(&arguments).succeeds();
        let flows = table(&place, "out", "flows");
        assert!(counts(&flows, "reductions")[0] > 0, "no mark has reduced the window");
        assert_eq!(counts(&flows, "dropped_packets")[0], 0, "a packet was dropped, not marked");
        assert!(numbers(&flows, "goodput_bps")[0] > 8e6);
    }
}

#[test]
fn runs_with_several_seeds_have_folders_means_and_intervals_and_outlive_an_interrupt() {
    if !can_emulate() {
        return;
    }
    let short = QUIET.replace("duration = \"3 s\"", "duration = \"1 s\"");
    let place = Place::new("seeds", &short);
    let ran = place.run(&["emulate", "s.toml", "--out", "study", "--seeds", "3..5"]);
    let text = &ran.succeeds().out;
    assert!(text.contains("Means of 3 runs") && text.contains("±"), "{text}");
    for seed in [3, 4, 5] {
        let manifest = place.path(&format!("study/seed-{seed}/run.json"));
        let manifest = std::fs::read_to_string(manifest).expect("a manifest");
        assert!(manifest.contains(&format!("\"seed\": {seed}")), "{manifest}");
    }
    assert!(place.run(&["summary", "study"]).succeeds().out.contains("Means of 3 runs"));
    let conflict = ["emulate", "s.toml", "--out", "study", "--seeds", "1", "--control"];
    assert_eq!(place.run(&conflict).code, Some(2));

    let child = place.spawn(&["emulate", "s.toml", "--out", "cut", "--seeds", "0..60", "--json"]);
    wait_until("two runs", || place.path("cut/seed-1/run.json").exists());
    interrupt(&child);
    let ran = Ran::of(child.wait_with_output().expect("it ends"));
    ran.fails(130, &["interrupted", "of 61 runs", "cut/seed-0", "cut/seed-1"]);
    let json = ran.json();
    let finished = json["runs"].as_array().expect("a list").len();
    assert!(finished >= 2 && json["complete"] == false, "{json}");
    assert!(json["means"]["flows"][0]["goodput_bps"]["ci95"].is_number(), "{json}");
    assert!(!place.path(&format!("cut/seed-{finished}")).exists(), "a run is half there");
}

#[test]
fn a_trace_has_every_packet_that_left_the_link_whole_and_with_its_time() {
    if !can_emulate() {
        return;
    }
    let lossy = QUIET.replace(
        "delay = \"10 ms\",",
        "delay = \"10 ms\", loss = { kind = \"bernoulli\", rate = 0.05 },",
    );
    for queue in ["{ kind = \"drop-tail\", limit = \"100 packets\" }", "{ kind = \"codel\" }"] {
        let scenario = lossy.replace("{ kind = \"drop-tail\", limit = \"100 packets\" }", queue);
        let place = Place::new("trace", &scenario);
        let trace = ["--trace", "bottleneck", "--trace", "left -> a.0.source"];
        for version in [None, Some("--ipv6")] {
            let mut arguments = vec!["emulate", "s.toml", "--out", "out"];
            arguments.extend(trace.iter().chain(version.iter()));
            place.run(&arguments).succeeds();
            let links = table(&place, "out", "links");
            let (packets, names) = captured(&place.path("out/bottleneck.pcapng"));
            assert_eq!(packets.len() as u64, counts(&links, "departures")[0], "{queue}");
            assert!(counts(&links, "dropped_loss")[0] > 0, "nothing was lost");
            assert!(names.contains("a.0.source") && names.contains("b.0.sink"), "{names}");
            assert!(packets.is_sorted_by_key(|packet| packet.at), "{queue}");
            // The table has a time for each packet that was not lost.
            let recorded = table(&place, "out", "packets");
            let started = recorded.column_by_name("started_s").expect("a column");
            let started: Vec<f64> = numbers(&recorded, "started_s")
                .into_iter()
                .enumerate()
                .filter(|(row, _)| started.is_valid(*row))
                .map(|(_, at)| at)
                // The trace ends with the run, the table with the last packet that was sent in it.
                .filter(|at| *at < 3.0)
                .collect();
            let seen = |at: &f64| {
                let place = packets.partition_point(|one| (one.at as f64) < at * 1e9 - 1.0);
                packets.get(place).is_some_and(|one| (one.at as f64) < at * 1e9 + 1.0)
            };
            assert!(started.len() > 300, "{queue}: {}", started.len());
            assert_eq!(started.iter().find(|at| !seen(at)), None, "{queue}");
            // Flow 0 goes from address 2 to 3, in packets of 200 bytes; all go to the sinks.
            let (ends, first) = match version {
                None => (12..20, 0x45),
                Some(_) => (8..40, 0x60),
            };
            let of_first = packets.iter().filter(|packet| packet.bytes.len() == 200);
            let of_first: Vec<_> = of_first.map(|packet| &packet.bytes).collect();
            let middle = (ends.start + ends.end) / 2;
            let of_a = |bytes: &&&Vec<u8>| bytes[middle - 1] == 2 && bytes[ends.end - 1] == 3;
            assert!(of_first.iter().filter(of_a).count() > 130, "{queue}");
            assert!(packets.iter().all(|packet| packet.bytes[0] & 0xf0 == first & 0xf0));
        }
        // UDP has no way back.
        let (back, _) = captured(&place.path("out/left -> a.0.source.pcapng"));
        assert!(back.is_empty());
        let manifest = std::fs::read_to_string(place.path("out/run.json")).expect("a manifest");
        assert!(manifest.contains("\"link\": \"bottleneck\""), "{manifest}");
        // A run without traces removes those of the run before it.
        place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
        assert!(!place.path("out/bottleneck.pcapng").exists());
    }
    let place = Place::new("no-trace", QUIET);
    let unknown = ["emulate", "s.toml", "--out", "out", "--trace", "botleneck"];
    place.run(&unknown).fails(2, &["--trace", "did you mean `bottleneck`"]);
}

/// The threads of a process that run with real-time priority (`SCHED_FIFO`), each by its priority.
fn real_time_priorities(process: u32) -> Vec<u32> {
    let folder = format!("/proc/{process}/task");
    let threads = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let priority = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        let (_, fields) = text.rsplit_once(") ")?;
        // Field 40 of proc_pid_stat(5) is the priority, 41 the class; the first here is field 3.
        let fields: Vec<u32> =
            fields.split(' ').skip(37).take(2).filter_map(|field| field.parse().ok()).collect();
        (fields.get(1) == Some(&1)).then(|| fields.first().copied())?
    };
    let mut found: Vec<u32> = threads.filter_map(priority).collect();
    found.sort_unstable();
    found
}

#[test]
fn applications_have_real_time_priority_below_that_of_the_network_and_a_run_tells_how_late_they_sent()
 {
    if !can_emulate() {
        return;
    }
    let place = Place::new("sending", QUIET);
    let json = place.path("json");
    let run = run_name(&place);
    let mut command =
        place.command(&["emulate", "s.toml", "--json", "--out", "out", "--name", &run]);
    let mut child = command
        .stdout(std::fs::File::create(&json).expect("a file"))
        .spawn()
        .expect("the program starts");
    let process = child.id();
    wait_until("two threads", || real_time_priorities(process) == [1, 2]);
    assert!(child.wait().expect("it ends").success());

    let printed: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("output")).expect("JSON");
    let work = &printed["runs"][0]["work"];
    let manifest = std::fs::read(place.path("out/run.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(*work, manifest["work"]);
    // 150 units of `a`, those of `b` since its connection is open, questions, answers and some pages.
    let units = work["units"].as_u64().expect("a number");
    assert!((280..1000).contains(&units), "{work}");
    let late = ["p50", "p99", "max"]
        .map(|which| work[format!("sending_lateness_{which}_s")].as_f64().expect("a time"));
    assert!(late[0] <= late[1] && late[1] <= late[2] && late[2] < 3.0, "{work}");
    let summary = place.run(&["summary", "out", "--json"]).json();
    assert_eq!(summary["runs"][0]["work"], *work);
}

#[test]
fn a_link_without_a_rate_to_the_end_is_named_with_what_waits_there() {
    if !can_emulate() {
        return;
    }
    let text = r#"
duration = "2 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "1 ms" }
[topology.bottleneck]
rate = "10 Mbit/s"
delay = "5 ms"
queue = { kind = "drop-tail", limit = "10 packets" }
outages = [{ at = "500 ms", for = "9 s" }]
[flows.v]
application = { kind = "cbr", interval = "10 ms" }
transport = { kind = "udp", packet = "500 B" }
[flows.t]
application = { kind = "ftp" }
transport = { kind = "tcp" }
start = "600 ms"
"#;
    let place = Place::new("standstill", text);
    let json = place
        .run(&["emulate", "s.toml", "--json", "--out", "out", "--name", &run_name(&place)])
        .json();
    let still = &json["runs"][0]["summary"]["standstills"];
    assert_eq!(still.as_array().map(Vec::len), Some(2), "both directions: {json}");
    assert_eq!((&still[0]["link"], &still[0]["since_s"]), (&"bottleneck".into(), &0.5.into()));
    assert_eq!(still[0]["waiting_packets"], 10);
    // The connection never opens.
    assert_eq!(still[0]["unfinished_flows"], serde_json::json!({ "t": 1, "v": 1 }));
}
