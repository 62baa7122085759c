use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use ontempo_foundation::Rate;
use ontempo_network::LossModel;

use super::*;
use crate::Reliability;
use crate::live::{Listener, Options, connect};
use crate::simulated::{Network, Path};
use crate::{Configuration, Delivery, Endpoint, FlowConfig, Identity, Poll, Source, Token, Trust};

/// The records of a JSON text sequence: each begins with RS and ends with LF.
fn records(text: &[u8]) -> Vec<Value> {
    let mut records = text.split(|byte| *byte == 0x1e);
    assert_eq!(records.next(), Some(&b""[..]), "something stands before the first record");
    records
        .map(|record| {
            assert_eq!(record.last(), Some(&b'\n'));
            serde_json::from_slice(record).expect("a record is JSON")
        })
        .collect()
}

/// A directory of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("ontempo-qlog-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn never(error: &QlogError) {
    panic!("{error}");
}

/// Sends units over loopback with this configuration.
fn deliver(configuration: Configuration) {
    let options = Options { configuration, ..Options::default() };
    let identity = Identity::self_signed(&["localhost"]).expect("made");
    let trust = Trust::Fingerprint(identity.fingerprint());
    let at = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(at, &identity, Token::anyone(), &options).expect("bound");
    let near = connect(listener.local(), "localhost", &trust, Token::anyone(), &options)
        .expect("connected");
    let far = listener.accept();
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    for _ in 0..50 {
        flow.send(Bytes::from(vec![7; 5_000])).expect("sent");
    }
    flow.finish();
    let incoming = far.accept_flow().expect("a flow");
    let mut came = 0;
    while let Some(delivery) = incoming.receive().expect("whole") {
        came += usize::from(matches!(delivery, Delivery::Unit(_)));
    }
    assert_eq!(came, 50);
    assert!(flow.settled(std::time::Duration::from_secs(10)).is_some());
}

#[test]
fn both_sides_trace_packets_recovery_and_units_as_the_schema_wants() {
    let folder = Folder::new("both");
    let qlog = Qlog::in_directory(&folder.0, never).expect("a directory");
    deliver(Configuration { qlog: Some(qlog), ..Configuration::default() });
    let mut ids = Vec::new();
    for side in ["client", "server"] {
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let names = fs::read_dir(&folder.0).expect("a directory").map(name);
        let names = names.filter_map(|name| name.into_string().ok());
        let ending = format!("_{side}.sqlog");
        let name = names.into_iter().find(|name| name.ends_with(&ending)).expect("a trace");
        let records = records(&fs::read(folder.0.join(&name)).expect("read"));
        let (header, events) = records.split_first().expect("a header");
        assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(header["serialization_format"], "application/qlog+json-seq");
        assert_eq!(header["trace"]["vantage_point"]["type"], side);
        assert_eq!(header["trace"]["event_schemas"].as_array().map(Vec::len), Some(2));
        let id = header["trace"]["common_fields"]["group_id"].as_str().expect("an id");
        assert_eq!(name, format!("{id}{ending}"));
        ids.push(id.to_owned());
        let mut counts = BTreeMap::new();
        for event in events {
            assert!(event["time"].as_f64().is_some_and(|time| time >= 0.0), "{event}");
            let name = event["name"].as_str().expect("a name");
            *counts.entry(name).or_insert(0) += 1;
            let packet = event["data"]["header"]["packet_number"].as_u64();
            assert_eq!(packet.is_some(), name.starts_with("quic:packet"), "{event}");
            if name == "quic:recovery_metrics_updated" {
                assert!(event["data"]["congestion_window"].as_u64() > Some(0), "{event}");
            }
        }
        let count = |name| counts.get(name).copied().unwrap_or(0);
        assert!(count("quic:recovery_metrics_updated") > 1, "{counts:?}");
        let (packets, units) = if side == "client" {
            assert_eq!(count("ontempo:unit_arrived"), 50);
            ("quic:packet_sent", "ontempo:unit_queued")
        } else {
            ("quic:packet_received", "ontempo:unit_delivered")
        };
        // 50 units of 5,000 bytes, in packets of at most 1,452.
        assert!(count(packets) > 150, "{counts:?}");
        assert_eq!(count(units), 50);
    }
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn where_no_trace_can_be_written_the_reason_is_told_before_anything_begins() {
    let folder = Folder::new("file");
    fs::write(&folder.0, "a file").expect("written");
    let error = Qlog::in_directory(&folder.0, never).expect_err("no directory");
    let text = error.to_string();
    fs::remove_file(&folder.0).expect("removed");
    assert!(text.starts_with("no qlog can be written to ") && text.contains("file"), "{text}");
}

#[test]
fn a_directory_that_vanishes_is_told_for_each_connection_and_delivery_goes_on() {
    let folder = Folder::new("gone");
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let count = move |_: &QlogError| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let qlog = Qlog::in_directory(&folder.0, count).expect("a directory");
    fs::remove_dir_all(&folder.0).expect("removed");
    deliver(Configuration { qlog: Some(qlog), ..Configuration::default() });
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_trace_and_is_told_once() {
    let full = File::options().write(true).open("/dev/full").expect("the full device");
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let hook: Hook = Arc::new(move |error| {
        assert_eq!(error.error.kind(), io::ErrorKind::StorageFull);
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let path = PathBuf::from("/dev/full");
    let out = Output::File(BufWriter::with_capacity(ROOM, Box::new(full)));
    let mut writing = Writing::new(Time::ZERO, path, out, hook);
    for second in 0..5 {
        let now = Time::ZERO + Duration::from_secs(second);
        writing.event(now, "quic:packet_sent", json!({ "header": { "packet_number": 1 } }));
    }
    drop(writing);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

fn address(host: u8) -> std::net::SocketAddr {
    std::net::SocketAddr::from(([10, 0, 0, host], 4433))
}

/// Passes all datagrams between two endpoints until there are none.
fn exchange(now: Time, client: &mut Endpoint, from: u8, server: &mut Endpoint) {
    let mut out = Vec::new();
    for _ in 0..20 {
        while let Poll::Transmit(transmit) = client.poll_transmit(now, &mut out) {
            for datagram in out[..transmit.size].chunks(transmit.segment.unwrap_or(transmit.size)) {
                server.handle(now, Source::of(address(from)), datagram.into());
            }
        }
        while let Poll::Transmit(transmit) = server.poll_transmit(now, &mut out) {
            for datagram in out[..transmit.size].chunks(transmit.segment.unwrap_or(transmit.size)) {
                client.handle(now, Source::of(address(9)), datagram.into());
            }
        }
    }
}

/// Files of a directory: their names and sizes.
fn files(folder: &Folder) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(&folder.0).expect("a directory").flatten();
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().expect("text"), entry.metadata().expect("a file").len())
    };
    entries.map(file).collect()
}

/// A client of this seed, which also determines its connection's id, and that has sent nothing.
fn client(seed: u8, identity: &Identity, token: &Token) -> Endpoint {
    let mut client = Endpoint::new(Configuration::default(), [seed; 32]);
    let trust = Trust::Fingerprint(identity.fingerprint());
    client.connect(Time::ZERO, address(9), "a", &trust, token.clone()).expect("begun");
    client
}

#[test]
fn strangers_neither_make_traces_nor_overwrite_them() {
    let folder = Folder::new("strangers");
    let qlog = Qlog::in_directory(&folder.0, never).expect("a directory");
    let identity = Identity::self_signed(&["a"]).expect("made");
    let token = Token::new(b"secret").expect("short");
    let mut server =
        Endpoint::new(Configuration { qlog: Some(qlog), ..Configuration::default() }, [9; 32]);
    server.listen(&identity, token.clone()).expect("the identity can be used");
    let mut friend = client(1, &identity, &token);
    let mut later = Time::ZERO;
    // Records are written once a second.
    for _ in 0..30 {
        friend.handle_timeout(later);
        server.handle_timeout(later);
        exchange(later, &mut friend, 1, &mut server);
        later += Duration::from_millis(100);
    }
    let before = files(&folder);
    assert!(before.len() == 1 && before.values().all(|size| *size > 500), "{before:?}");
    // The same first packet, that of the friend's connection, from elsewhere.
    let mut stranger = client(1, &identity, &Token::anyone());
    exchange(later, &mut stranger, 2, &mut server);
    // And others, with a wrong token or without an answer to anything.
    for seed in 10..60 {
        let mut stranger = client(seed, &identity, &Token::anyone());
        exchange(later, &mut stranger, seed, &mut server);
    }
    let after = files(&folder);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(after.iter().all(|(name, size)| *size >= before[name]), "{before:?} {after:?}");
}

#[test]
fn traces_have_a_budget_of_files_and_bytes_whose_end_is_told_once() {
    let folder = Folder::new("budget");
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let hook = move |error: &QlogError| {
        assert_eq!(error.error.kind(), ErrorKind::QuotaExceeded, "{error}");
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let qlog = Qlog::in_directory(&folder.0, hook).expect("a directory");
    qlog.left.files.store(3, Ordering::Relaxed);
    for _ in 0..10 {
        qlog.trace(Time::ZERO, &"same", None);
    }
    let names: Vec<String> = files(&folder).into_keys().collect();
    assert_eq!(names, ["same_client-2.sqlog", "same_client-3.sqlog", "same_client.sqlog"]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);

    qlog.left.files.store(1, Ordering::Relaxed);
    qlog.left.bytes.store(5_000, Ordering::Relaxed);
    let trace = qlog.trace(Time::ZERO, &"long", None);
    for second in 0..200 {
        trace.received(Time::ZERO + Duration::from_secs(second), &[second]);
    }
    drop(trace);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(files(&folder)["long_client.sqlog"] <= 5_000);
}

#[test]
fn that_files_of_a_host_and_all_files_are_used_up_is_told_once_each() {
    let folder = Folder::new("limits");
    let said = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let said = Arc::clone(&said);
        move |error: &QlogError| said.lock().expect("whole").push(error.error.to_string())
    };
    let qlog = Qlog::in_directory(&folder.0, hook).expect("a directory");
    let attackers = [1, 2].map(|host| Origin::from([10, 0, 0, host]));
    for number in 0..2 * MAX_TRACES {
        qlog.trace(Time::ZERO, &number, Some(attackers[number % 2])).open();
    }
    let of_host = "250 traces of one host were written: the limit";
    assert_eq!(*said.lock().expect("whole"), [of_host]);
    for number in 0..MAX_TRACES {
        qlog.trace(Time::ZERO, &number, None);
    }
    assert_eq!(*said.lock().expect("whole"), [of_host, "1000 traces were written, the most"]);
}

#[test]
fn one_host_leaves_files_and_bytes_of_traces_to_others() {
    let folder = Folder::new("shares");
    let qlog = Qlog::in_directory(&folder.0, |_| {}).expect("a directory");
    let [attacker, other] = [1, 2].map(|host| Origin::from([10, 0, 0, host]));
    for number in 0..MAX_TRACES {
        qlog.trace(Time::ZERO, &number, Some(attacker)).open();
    }
    assert_eq!(files(&folder).len(), MAX_TRACES / 4);
    qlog.trace(Time::ZERO, &"good", Some(other)).open();
    assert!(files(&folder).contains_key("good_server.sqlog"));

    // What one connection and one host may write, and no more.
    let counted = |origin: u8| {
        let origin = Some(Origin::from([10, 0, 1, origin]));
        let of_origin = qlog.left.take_file(origin).expect("a file").expect("of a host");
        let share = Share { of_connection: MAX_TRACE_BYTES / PART_OF_CONNECTION, of_origin };
        Counted { out: io::sink(), left: Arc::clone(&qlog.left), share: Some(share) }
    };
    let written = |out: &mut Counted<io::Sink>| {
        let piece = vec![0; 1 << 20];
        std::iter::from_fn(|| out.write(&piece).ok()).count() as u64 * (1 << 20)
    };
    let of_one: Vec<u64> = (0..4).map(|_| written(&mut counted(1))).collect();
    assert_eq!(of_one, [128 << 20, 128 << 20, 0, 0]);
    assert_eq!(written(&mut counted(2)), 128 << 20);
}

/// Names of the fates of the client's units, by unit, over a path that loses a tenth; the connection
/// is closed while units are under way.
fn fates(reliability: Reliability, lifetime: Option<Duration>) -> BTreeMap<u64, Vec<String>> {
    let folder = Folder::new(&format!("fates-{}", reliability.name()));
    let qlog = Qlog::in_directory(&folder.0, never).expect("a directory");
    let identity = Identity::self_signed(&["a"]).expect("made");
    let config = Configuration { qlog: Some(qlog), ..Configuration::default() };
    let mut client = Endpoint::new(config, [1; 32]);
    let mut server = Endpoint::new(Configuration::default(), [2; 32]);
    server.listen(&identity, Token::anyone()).expect("usable");
    let trust = Trust::Fingerprint(identity.fingerprint());
    let id = client.connect(Time::ZERO, address(2), "a", &trust, Token::anyone()).expect("begun");
    let mut network = Network::new(3);
    network.add(client, address(1));
    network.add(server, address(2));
    let way = Path::clean(Rate::from_bits_per_sec(8_000_000), Duration::from_millis(50));
    let lossy = Path { loss: LossModel::bernoulli(0.1).expect("a share"), ..way };
    network.join(0, 1, &lossy, &lossy);
    network.flush(0);
    let (mut flow, mut next) = (None, Time::ZERO);
    while network.now() < Time::ZERO + Duration::from_secs(8) {
        network.step(next);
        while let Some(event) = network.endpoint(0).poll_event() {
            if let crate::Event::Connected { .. } = event {
                let config = FlowConfig { reliability, ..FlowConfig::default() };
                let opened = network.endpoint(0).connection(id).expect("open").open_flow(config);
                flow = Some(opened.expect("a flow"));
            }
        }
        while let Some(event) = network.endpoint(1).poll_event() {
            if let crate::Event::Readable { connection, flow } = event {
                let server = network.endpoint(1).connection(connection);
                server.into_iter().for_each(|server| while server.receive(flow).is_some() {});
            }
        }
        if network.now() >= next {
            next = network.now() + Duration::from_millis(10);
            let now = network.now();
            if let (Some(flow), Some(client)) = (flow, network.endpoint(0).connection(id)) {
                let data = Bytes::from(vec![7; 3_000]);
                let deadline = lifetime.map(|lifetime| now + lifetime);
                let unit = crate::Outgoing { data, deadline, ..crate::Outgoing::default() };
                let _ = client.send(now, flow, unit);
            }
            network.flush(0);
        }
    }
    let now = network.now();
    network.endpoint(0).connection(id).expect("open").close(now, "enough");
    network.flush(0);
    drop(network);
    fates_in(&folder)
}

/// Those of the one trace in a folder.
fn fates_in(folder: &Folder) -> BTreeMap<u64, Vec<String>> {
    let trace = files(folder).into_keys().next().expect("a trace");
    let mut fates = BTreeMap::new();
    for event in &records(&fs::read(folder.0.join(trace)).expect("read"))[1..] {
        let name = event["name"].as_str().expect("a name");
        let Some(fate) = name.strip_prefix("ontempo:unit_") else { continue };
        let unit = event["data"]["unit"].as_u64().expect("a number");
        if fate == "queued" {
            assert_eq!(fates.insert(unit, Vec::new()), None, "queued once");
        } else {
            fates.get_mut(&unit).expect("queued before").push(fate.to_owned());
        }
    }
    fates
}

#[test]
fn every_queued_unit_has_exactly_one_fate_over_a_lossy_path() {
    let short = Some(Duration::from_millis(130));
    for (reliability, lifetime, expected) in [
        (Reliability::Full, None, &["arrived", "unknown"][..]),
        (Reliability::Deadline, short, &["arrived", "dropped", "unknown"]),
        (Reliability::None, short, &["unknown"]),
    ] {
        let fates = fates(reliability, lifetime);
        assert!(fates.len() > 500, "{reliability:?}: {}", fates.len());
        let several: Vec<_> = fates.iter().filter(|(_, fates)| fates.len() != 1).collect();
        assert!(several.is_empty(), "{reliability:?}: {several:?}");
        for fate in expected {
            assert!(fates.values().flatten().any(|one| one == fate), "{reliability:?}: {fate}");
        }
    }
}
