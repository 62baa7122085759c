//! Cost of units over QUIC compared with plain quinn and the kernel's TCP, over loopback: `cargo
//! bench -p ontempo-transport --bench deliver`, or parts of it by name after ` -- `: `whole`,
//! `units`, `delay`, `many`.
//!
//! The measure is the processor time of the whole process, both ends, which other load on the
//! machine hardly changes. All transfer the same bytes; quinn one stream, ontempo units of 64 KiB.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::spawn;
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_transport::live::{Caller, Connection, Listener, Message, Options, connect};
use ontempo_transport::{Delivery, DeliveryOrder, FlowConfig, Identity, Token, Trust};
use rustix::time::{ClockId, clock_gettime};

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const BYTES: usize = 256 << 20;
const CHUNK: usize = 64 << 10;

/// Processor time of this process, seconds.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Prints the rate of `work` per second of processor time and of wall time; returns the first in
/// Gbit/s.
fn measure(name: &str, bytes: usize, work: impl FnOnce() -> Done) -> Done<f64> {
    let (used, started) = (processor(), Instant::now());
    work()?;
    let (used, passed) = (processor() - used, started.elapsed().as_secs_f64());
    let gbit = bytes as f64 * 8e-9;
    println!("{name:28} {:6.2} Gbit/s a core, {:6.2} Gbit/s", gbit / used, gbit / passed);
    Ok(gbit / used)
}

fn pair(options: &Options) -> Done<(Connection, Connection)> {
    let identity = Identity::self_signed(&["localhost"])?;
    let trust = Trust::Fingerprint(identity.fingerprint());
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(at, &identity, Token::anyone(), options)?;
    let near = connect(listener.local(), "localhost", &trust, Token::anyone(), options)?;
    Ok((near, listener.accept()))
}

/// Receives a flow to its end; returns the number of units.
fn drain(far: &Connection) -> Done<u64> {
    let flow = far.accept_flow()?;
    let mut units = 0;
    while let Some(delivery) = flow.receive()? {
        units += u64::from(matches!(delivery, Delivery::Unit(_)));
    }
    Ok(units)
}

fn transfer(options: &Options, size: usize, count: usize) -> Done {
    let (near, far) = pair(options)?;
    let receiving = spawn(move || drain(&far).map(|units| (units, far)));
    let order = DeliveryOrder::OutOfOrder;
    let flow = near.open_flow(FlowConfig { order, ..FlowConfig::default() })?;
    let data = Bytes::from(vec![7; size]);
    for _ in 0..count {
        flow.send(data.clone())?;
    }
    flow.finish();
    let (units, _far) = receiving.join().map_err(|_| "the receiver panicked")??;
    assert_eq!(units, count as u64);
    Ok(())
}

fn tcp() -> Done {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    let receiving = spawn(move || {
        let (mut buffer, mut all) = (vec![0; CHUNK], 0);
        while let Ok(count) = far.read(&mut buffer) {
            if count == 0 {
                break;
            }
            all += count;
        }
        all
    });
    let data = vec![7; CHUNK];
    for _ in 0..BYTES / CHUNK {
        near.write_all(&data)?;
    }
    drop(near);
    assert_eq!(receiving.join().map_err(|_| "the receiver panicked")?, BYTES);
    Ok(())
}

fn quinn_configs() -> Done<(quinn::ServerConfig, quinn::ClientConfig)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let server = quinn::ServerConfig::with_single_cert(vec![certificate.clone()], key)?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate)?;
    Ok((server, quinn::ClientConfig::with_root_certificates(Arc::new(roots))?))
}

fn plain_quinn() -> Done {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (server, client) = quinn_configs()?;
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let far = quinn::Endpoint::server(server, at)?;
        let to = far.local_addr()?;
        let receiving = tokio::spawn(async move {
            let incoming = far.accept().await.ok_or("no connection arrived")?;
            let connection = incoming.await?;
            let mut stream = connection.accept_uni().await?;
            let mut all = 0;
            while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
                all += chunk.bytes.len();
            }
            Done::Ok(all)
        });
        let mut near = quinn::Endpoint::client(at)?;
        near.set_default_client_config(client);
        let connection = near.connect(to, "localhost")?.await?;
        let mut stream = connection.open_uni().await?;
        let data = Bytes::from(vec![7; CHUNK]);
        for _ in 0..BYTES / CHUNK {
            stream.write_chunk(data.clone()).await?;
        }
        stream.finish()?;
        assert_eq!(receiving.await??, BYTES);
        Ok(())
    })
}

/// Units per second of processor time, by size.
fn units() -> Done {
    for (size, count) in [(200, 400_000), (1_200, 200_000), (100_000, 1_500)] {
        let (used, started) = (processor(), Instant::now());
        transfer(&Options::default(), size, count)?;
        let (used, passed) = (processor() - used, started.elapsed().as_secs_f64());
        let count = count as f64 / 1e3;
        println!(
            "units of {size:6} bytes: {:8.1} k/s a core, {:8.1} k/s",
            count / used,
            count / passed
        );
    }
    Ok(())
}

/// Delay of single units from `send` to `receive`.
fn delay() -> Done {
    let (near, far) = pair(&Options::default())?;
    let flow = near.open_flow(FlowConfig::default())?;
    let incoming = far.accept_flow()?;
    let mut all = Vec::new();
    for _ in 0..2_000 {
        let started = Instant::now();
        flow.send(Message::from(Bytes::from_static(&[7; 1_200])))?;
        incoming.receive()?;
        all.push(started.elapsed());
        std::thread::sleep(Wall::from_millis(1));
    }
    all.sort();
    let at = |share: f64| all[(share * (all.len() - 1) as f64) as usize].as_secs_f64() * 1e6;
    println!(
        "delay of a unit: p50 {:.0} us, p99 {:.0} us, max {:.0} us",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

/// Resident memory of this process in bytes.
fn memory() -> Done<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split_whitespace().nth(1).ok_or("no resident pages")?.parse()?;
    Ok(pages * 4096)
}

/// A thousand connections to one listener, each 1 Mbit/s for some seconds, from one thread.
fn many() -> Done {
    const CONNECTIONS: usize = 1_000;
    const SECONDS: usize = 5;
    let identity = Identity::self_signed(&["localhost"])?;
    let trust = Trust::Fingerprint(identity.fingerprint());
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::default();
    let listener = Listener::bind(at, &identity, Token::anyone(), &options)?;
    let near = Caller::bind(at, &options)?;
    let before = memory()?;
    let mut flows = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = near.connect(listener.local(), "localhost", &trust, Token::anyone())?;
        flows.push(connection.open_flow(FlowConfig::default())?);
        ends.push((connection, listener.accept()));
    }
    let incoming: Result<Vec<_>, _> = ends.iter().map(|(_, far)| far.accept_flow()).collect();
    let incoming = incoming?;
    let each = (memory()? - before) / CONNECTIONS as u64;
    println!("memory of a connection at rest, both ends: {:.1} kB", each as f64 / 1e3);
    let data = Bytes::from(vec![7; 1_250]);
    let (used, started, mut received) = (processor(), Instant::now(), 0u64);
    for turn in 0..SECONDS * 100 {
        for flow in &flows {
            flow.send(data.clone())?;
        }
        for flow in &incoming {
            while let Some(Ok(Some(Delivery::Unit(_)))) = flow.receive_within(Wall::ZERO) {
                received += 1;
            }
        }
        let due = started + Wall::from_millis(10) * (turn as u32 + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let passed = started.elapsed().as_secs_f64();
    println!(
        "{CONNECTIONS} connections of 1 Mbit/s: {:.0} Mbit/s arrived in {passed:.1} s, {:.2} cores, \
         {:.1} kB each",
        received as f64 * 1_250.0 * 8e-6 / passed,
        (processor() - used) / passed,
        (memory()? - before) as f64 / 1e3 / CONNECTIONS as f64,
    );
    let all: Vec<_> = ends.iter().filter_map(|(near, _)| near.statistics()).collect();
    let mut round_trips: Vec<_> = all.iter().filter_map(|one| one.round_trip).collect();
    round_trips.sort();
    println!(
        "their packets: {} sent, {} lost; median round trip {}",
        all.iter().map(|one| one.packets_sent).sum::<u64>(),
        all.iter().map(|one| one.packets_lost).sum::<u64>(),
        round_trips.get(round_trips.len() / 2).copied().unwrap_or_default(),
    );
    Ok(())
}

/// Units of 64 KiB compared with the same bytes on one stream of quinn and of TCP.
fn whole() -> Done {
    println!("{} MB over loopback, both ends counted", BYTES >> 20);
    measure("kernel TCP", BYTES, tcp)?;
    let mut shares = Vec::new();
    for _ in 0..3 {
        let theirs = measure("plain quinn, one stream", BYTES, plain_quinn)?;
        let ours = || transfer(&Options::default(), CHUNK, BYTES / CHUNK);
        shares.push(measure("ontempo, units of 64 KiB", BYTES, ours)? / theirs);
    }
    shares.sort_by(f64::total_cmp);
    println!("ontempo over quinn, a core: {:.2} (of three)", shares[1]);
    Ok(())
}

fn main() -> Done {
    let names: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let parts = if names.is_empty() { vec!["whole", "units", "delay", "many"] } else { Vec::new() };
    for part in parts.into_iter().chain(names.iter().map(String::as_str)) {
        match part {
            "whole" => whole()?,
            "units" => units()?,
            "delay" => delay()?,
            "many" => many()?,
            other => return Err(format!("`{other}` is no part: whole, units, delay, many").into()),
        }
    }
    Ok(())
}
