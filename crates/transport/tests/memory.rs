//! Resident memory of a program that uses the defaults, under peers that mean to fill it.
//!
//! Each victim is a process of its own, so that its memory is not that of its attacker.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_transport::live::{
    Accepted, Caller, Connection, Listener, Options, ReceiveFlow, connect,
};
use ontempo_transport::{FlowConfig, Identity, Qlog, Token, Trust};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// What the memory of a program with the defaults stays below, in kB.
const MAX_RESIDENT_KB: u64 = 300_000;

/// Names the victim that this process is.
const ROLE: &str = "ONTEMPO_TEST_VICTIM";

/// Names the folder where the victim writes traces; none without it.
const TRACES: &str = "ONTEMPO_TEST_TRACES";

fn token() -> Token {
    Token::new(b"shared").expect("short")
}

/// The options of the victim, whose traces may be a thousand files.
fn options() -> Options {
    let mut options = Options::default();
    if let Ok(folder) = std::env::var(TRACES) {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let traces = Qlog::in_directory(folder.as_ref(), |_| {});
        options.configuration.qlog = Some(traces.expect("a folder of this user's"));
    }
    options
}

/// A listening program that accepts connections, and none of their flows or, as `hoarder` or `reader`,
/// all of them, which it keeps, and never reads or always.
fn serve(role: &str) -> ! {
    let mut flows: Vec<ReceiveFlow> = Vec::new();
    let identity = Identity::self_signed(&["victim"]).expect("a certificate can be made");
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(address, &identity, token(), &options()).expect("bound");
    println!("listens at {}", listener.local());
    let mut held: Vec<Connection> = Vec::new();
    loop {
        if let Some(Accepted::Connection(connection)) = listener.accept_within(Wall::from_millis(5))
        {
            held.push(connection);
        }
        if role != "listener" {
            for connection in &held {
                flows.extend(connection.accept_flow_within(Wall::ZERO).and_then(Result::ok));
            }
            let is_read = |flow: &ReceiveFlow| {
                role == "reader" && flow.receive_within(Wall::ZERO).is_some_and(|got| got.is_ok())
            };
            flows.iter().for_each(|flow| while is_read(flow) {});
        } else {
            held.retain(|connection| connection.is_closed().is_none());
        }
    }
}

/// A victim's process.
struct Victim {
    child: Child,
    address: SocketAddr,
    /// Kept open: the test program writes to it after a minute.
    _output: BufReader<ChildStdout>,
}

impl Victim {
    fn start(role: &str) -> Self {
        Self::writing(role, None)
    }

    /// One that writes traces to a folder.
    fn writing(role: &str, traces: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command
            .args(["--exact", "a_victim_that_nobody_attacks_is_small", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped());
        if let Some(traces) = traces {
            command.env(TRACES, traces);
        }
        let mut child = command.spawn().expect("the victim starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let lines = output.by_ref().lines().map_while(Result::ok);
        let line = lines.into_iter().find(|line| line.contains("listens at"));
        let line = line.expect("the victim listens");
        let address = line.rsplit(' ').next().and_then(|text| text.parse().ok());
        Self { child, address: address.expect("an address"), _output: output }
    }

    /// Its resident memory in kB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the victim runs");
        let line =
            status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux reports it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }

    fn connect(&self) -> Connection {
        connect(self.address, "victim", &Trust::Insecure, token(), &Options::default())
            .expect("the victim accepts connections")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Its end is not an error of the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The victim's largest resident memory while `attack` runs, in kB.
fn most_resident(victim: &Victim, attack: impl FnOnce() + Send) -> u64 {
    std::thread::scope(|scope| {
        let attack = scope.spawn(attack);
        let mut most = 0;
        while !attack.is_finished() {
            most = most.max(victim.resident());
            std::thread::sleep(Wall::from_millis(20));
        }
        attack.join().expect("the attack runs");
        most.max(victim.resident())
    })
}

/// Opens all flows that a connection may and sends units of `size` bytes on each until none are
/// taken for a while.
fn fill(attacker: &Connection, size: usize) {
    let data = Bytes::from(vec![7; size]);
    let flows: Vec<_> =
        (0..16).map_while(|_| attacker.open_flow(FlowConfig::default()).ok()).collect();
    let mut is_taken = true;
    while std::mem::take(&mut is_taken) {
        for flow in &flows {
            while flow.send_within(data.clone(), Wall::ZERO).is_ok() {
                is_taken = true;
            }
        }
        std::thread::sleep(Wall::from_millis(50));
    }
}

/// The other tests start this one as their victim.
#[test]
fn a_victim_that_nobody_attacks_is_small() {
    if let Ok(role) = std::env::var(ROLE) {
        serve(&role);
    }
    let victim = Victim::start("listener");
    let connection = victim.connect();
    let most = victim.resident();
    assert!(connection.is_closed().is_none());
    assert!(most < MAX_RESIDENT_KB / 5, "{most} kB");
}

#[test]
fn many_connections_that_send_all_they_may_do_not_fill_the_memory() {
    for size in [60_000, 1] {
        let victim = Victim::start("listener");
        let options = Options::default();
        let most = most_resident(&victim, || {
            let caller = Caller::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &options);
            let caller = caller.expect("bound");
            let mut reasons = Vec::new();
            let attackers: Vec<Connection> = (0..3)
                .map_while(|_| {
                    let trust = Trust::Insecure;
                    let attacker =
                        caller.connect(victim.address, "victim", &trust, token()).ok()?;
                    fill(&attacker, size);
                    Some(attacker)
                })
                .collect();
            for attacker in &attackers {
                reasons.extend(attacker.is_closed().map(|closed| closed.reason));
            }
            println!("units of {size}: {} connections, closed: {reasons:?}", attackers.len());
        });
        println!("units of {size}: at most {most} kB");
        assert!(most < MAX_RESIDENT_KB, "units of {size}: {most} kB");
    }
}

/// A caller at a host of this machine.
fn caller_at(host: u8) -> Caller {
    Caller::bind(SocketAddr::from(([127, 0, 0, host], 0)), &Options::default()).expect("bound")
}

/// Connections that send as much as is taken, and close.
fn send_and_close(to: SocketAddr, count: usize) {
    let caller = caller_at(1);
    let data = Bytes::from(vec![7; 60_000]);
    for _ in 0..count {
        let Ok(near) = caller.connect(to, "victim", &Trust::Insecure, token()) else { continue };
        let flows: Vec<_> =
            (0..16).map_while(|_| near.open_flow(FlowConfig::default()).ok()).collect();
        for flow in &flows {
            // As much as the victim's thread takes before its program does.
            (0..4).for_each(|_| drop(flow.send_within(data.clone(), Wall::from_secs(1))));
            flow.finish();
        }
        flows.iter().for_each(|flow| drop(flow.settled(Wall::from_secs(1))));
        near.close("");
    }
}

#[test]
fn what_closed_connections_leave_unread_does_not_fill_the_memory() {
    let victim = Victim::start("hoarder");
    let most = most_resident(&victim, || send_and_close(victim.address, 120));
    println!("120 connections: at most {most} kB");
    assert!(most < MAX_RESIDENT_KB, "{most} kB");
}

/// What a connection costs is counted: as many as fit are accepted, 3,400 with the defaults.
#[test]
fn a_connection_takes_no_more_memory_than_is_counted_for_it() {
    const COUNT: u64 = 500;
    /// 48 KiB, and a tenth for what the allocator adds.
    const MAX_COST_KB: u64 = 53;
    let victim = Victim::start("listener");
    let before = victim.resident();
    let most = most_resident(&victim, || {
        let caller = Caller::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &Options::default());
        let caller = caller.expect("bound");
        let connect = |_| {
            let near = caller.connect(victim.address, "victim", &Trust::Insecure, token());
            near.expect("the victim accepts connections")
        };
        // All are open until the last is.
        drop((0..COUNT).map(connect).collect::<Vec<_>>());
    });
    println!("{COUNT} connections: from {before} to {most} kB");
    assert!((most - before) / COUNT <= MAX_COST_KB, "{COUNT} connections: {before} to {most} kB");
}

/// Trusts any certificate, as an attacker does.
#[derive(Debug)]
struct AnyCertificate(Vec<rustls::SignatureScheme>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.clone()
    }
}

/// Clients of another stack, which speak TLS and QUIC and never send the token.
fn stranger() -> quinn::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("it has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(schemes)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"ontempo/1".to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).expect("it has its cipher");
    quinn::ClientConfig::new(Arc::new(tls))
}

/// Opens as many connections without a token as there may be, from 16 hosts, each with all that it may
/// send before; counts them and waits until they are closed.
fn half_open(to: SocketAddr, opened: &AtomicU64) {
    const HOSTS: u8 = 16;
    const OF_A_HOST: usize = 32;
    const BEFORE_THE_TOKEN: usize = 15 << 10;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut strangers = Vec::new();
        for host in 1..=HOSTS {
            let at = SocketAddr::from(([127, 0, 0, host], 0));
            let mut endpoint = quinn::Endpoint::client(at).expect("the loopback");
            endpoint.set_default_client_config(stranger());
            for _ in 0..OF_A_HOST {
                let connecting = endpoint.connect(to, "victim").expect("begun");
                strangers.push(tokio::spawn(async move {
                    let connection = connecting.await.ok()?;
                    let mut stream = connection.open_uni().await.ok()?;
                    stream.write_all(&[7; BEFORE_THE_TOKEN]).await.ok()?;
                    connection.closed().await;
                    Some(())
                }));
            }
        }
        for stranger in strangers {
            let done = tokio::time::timeout(Wall::from_secs(12), stranger).await;
            if let Ok(Ok(Some(()))) = done {
                opened.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

#[test]
fn half_open_connections_do_not_fill_the_memory() {
    let victim = Victim::start("listener");
    let before = victim.resident();
    let opened = AtomicU64::new(0);
    let most = most_resident(&victim, || half_open(victim.address, &opened));
    let opened = opened.into_inner();
    println!("{opened} half-open connections: from {before} to {most} kB");
    // On a busy machine the first are closed before the last have begun.
    assert!(opened > 256, "the attack runs: {opened}");
    assert!(most < MAX_RESIDENT_KB, "{most} kB");
}

#[test]
fn flows_that_nobody_accepts_do_not_fill_the_memory() {
    let victim = Victim::start("listener");
    let before = victim.resident();
    let until = Instant::now() + Wall::from_secs(5);
    let (opened, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let data = Bytes::from(vec![7; 200_000]);
    // Each closes its connection, which ends an opening that waits.
    let attackers: Vec<Connection> = (0..4).map(|_| victim.connect()).collect();
    std::thread::scope(|scope| {
        for attacker in &attackers {
            let (opened, data) = (&opened, &data);
            scope.spawn(move || {
                while Instant::now() < until
                    && let Ok(flow) = attacker.open_flow(FlowConfig::default())
                {
                    let sent = flow.send_within(data.clone(), Wall::from_secs(1));
                    flow.finish();
                    if sent.is_err() || flow.settled(Wall::from_secs(1)).is_none() {
                        return;
                    }
                    opened.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while Instant::now() < until {
            most.fetch_max(victim.resident(), Ordering::Relaxed);
            std::thread::sleep(Wall::from_millis(50));
        }
        attackers.iter().for_each(|attacker| attacker.close(""));
    });
    let (opened, most) = (opened.into_inner(), most.into_inner());
    println!("{opened} flows: resident memory from {before} to {most} kB");
    assert!(most < MAX_RESIDENT_KB, "{opened} flows: from {before} to {most} kB");
    // As many as a connection may have open, for each.
    assert!(opened <= 4 * 16, "{opened} flows were ended, and none was taken");
}

/// A folder for traces, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ontempo-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Connections from four hosts, all open at the end.
fn connect_from_four_hosts(to: SocketAddr, of_a_host: usize) -> Vec<Connection> {
    let callers: Vec<Caller> = (1..=4).map(caller_at).collect();
    let connect = |caller: &Caller| caller.connect(to, "victim", &Trust::Insecure, token()).ok();
    (0..of_a_host).flat_map(|_| callers.iter().filter_map(connect)).collect()
}

#[test]
fn a_thousand_traces_do_not_fill_the_memory() {
    let traces = Folder::new("memory-traces");
    let victim = Victim::writing("reader", Some(&traces.0));
    let before = victim.resident();
    let mut sent = 0;
    let most = most_resident(&victim, || {
        let all = connect_from_four_hosts(victim.address, 250);
        let open = |near: &Connection| near.open_flow(FlowConfig::default()).ok();
        let flows: Vec<_> = all.iter().filter_map(open).collect();
        let data = Bytes::from(vec![7; 1_000]);
        // Records are written once a second: each buffer has those of many packets meanwhile.
        for _ in 0..4 {
            for flow in &flows {
                let send = |_: &i32| flow.send_within(data.clone(), Wall::from_millis(100)).is_ok();
                sent += (0..50).take_while(send).count();
            }
        }
    });
    let files = traces.files();
    println!("{files} traces, {sent} units: from {before} to {most} kB");
    // On a busy machine some handshakes fail.
    assert!(files > 900 && sent > 100_000, "the attack runs: {files} traces, {sent} units");
    assert!(most < MAX_RESIDENT_KB, "{most} kB");
}

/// All that an endpoint holds for others at once: connections, what closed ones leave unread, half-open
/// ones, and all that may be received; with a thousand traces.
#[test]
fn all_ends_of_an_endpoint_together_do_not_fill_the_memory() {
    let traces = Folder::new("memory-together");
    let victim = Victim::writing("hoarder", Some(&traces.0));
    let before = victim.resident();
    let (opened, held) = (AtomicU64::new(0), AtomicU64::new(0));
    let most = most_resident(&victim, || {
        // With those that are half open as many as there may be.
        let all = connect_from_four_hosts(victim.address, 500);
        held.fetch_add(all.len() as u64, Ordering::Relaxed);
        send_and_close(victim.address, 60);
        std::thread::scope(|scope| {
            scope.spawn(|| half_open(victim.address, &opened));
            std::thread::sleep(Wall::from_secs(2));
            // What is sent beyond the memory closes who sent it.
            all.iter().rev().take(4).for_each(|near| fill(near, 60_000));
        });
    });
    let (opened, held, files) = (opened.into_inner(), held.into_inner(), traces.files());
    let attack = format!("{held} connections, {opened} half open, {files} traces");
    println!("{attack}: from {before} to {most} kB");
    assert!(held > 1_500 && opened > 128 && files > 900, "the attack runs: {attack}");
    assert!(most < MAX_RESIDENT_KB, "{most} kB");
}
