//! How many browsers does a page bear?
//!
//! `make bench-page`, or `cargo bench -p ontempo-web --bench viewers -- SECONDS VIEWERS ...`. The server of the page, in a process of
//! its own, is fed a film of 2 Mbit/s, 25 pictures a second with sound, and shows it to viewers that are all in this
//! process, over loopback, each over a WebTransport session of its own as a browser has it, but for decoding.
//! Measured is what the server's process uses of the processor and of memory, what share of the pictures and of the sound arrived, and how
//! late, beyond the fastest message. The viewers need another core.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ontempo_foundation::Rate;
use ontempo_media::{Film, GeneratorParameters, Sending, generate};
use ontempo_testing::used;
use ontempo_web::{Server, ServerOptions, StreamTiming};
use web_transport_noq::{ClientBuilder, Session};

const RATE: u64 = 2_000_000;
const LATENCY: Duration = Duration::from_millis(400);

/// Bytes of a message's header, and the largest message that is read.
const HEADER: usize = 40;
const MAX_MESSAGE: usize = 1 << 20;

/// Sessions begun at a time.
const AT_ONCE: usize = 8;

/// The process of the server: prints its address, ends with its standard input.
fn serve(viewers: usize) {
    let server = Server::start(ServerOptions {
        at: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        certificate: None,
        names: vec!["localhost".to_owned()],
        token: None,
        allowed_origins: Vec::new(),
        viewers,
    });
    let server = server.expect("it listens");
    println!("{}", server.local());
    let parameters =
        GeneratorParameters { rate: Rate::from_bits_per_sec(RATE), ..Default::default() };
    let film = Film::new(generate(&parameters).expect("a film"), &Sending::Bursts);
    let (ended, mut feed) = (Arc::new(AtomicBool::new(false)), server.feed());
    let is_ended = Arc::clone(&ended);
    let feeding = std::thread::spawn(move || {
        let (begun, mut datagram) = (Instant::now(), Vec::new());
        feed.begin(StreamTiming { latency: Some(LATENCY) });
        let mut number = 0;
        while !is_ended.load(Ordering::Relaxed) {
            let sent = film.datagram(number).expect("a film has datagrams");
            let at = begun + Duration::from_nanos(sent.at.as_nanos());
            sleep(at.saturating_duration_since(Instant::now()));
            datagram.clear();
            film.write(&sent, &mut datagram);
            feed.take(&datagram, Duration::ZERO);
            number += 1;
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ended.store(true, Ordering::Relaxed);
    feeding.join().expect("it feeds");
}

/// What has come to all viewers.
#[derive(Clone, Debug, Default)]
struct Figures {
    open: usize,
    closed: usize,
    frames: u64,
    bytes: u64,
    /// From the time at which a frame was due to its last byte here, by two clocks; µs.
    ages: Vec<i64>,
    /// The least and the largest number of a picture and of a frame of sound.
    numbers: [Option<(u32, u32)>; 2],
}

impl Figures {
    /// Frames that each viewer could have got.
    fn expected(&self) -> u64 {
        self.numbers.iter().flatten().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    fn take(&mut self, message: &[u8], now: i64) {
        let Some((head, _)) = message.split_first_chunk::<HEADER>() else { return };
        let kind = match head[0] {
            1 => 0,
            2 => 1,
            _ => return,
        };
        // From before the viewer came.
        if head[2] & 2 != 0 {
            return;
        }
        let number = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let due = i64::from_be_bytes(head[24..32].try_into().expect("eight bytes"));
        let (first, last) = self.numbers[kind].unwrap_or((number, number));
        self.numbers[kind] = Some((first.min(number), last.max(number)));
        self.frames += 1;
        self.bytes += message.len() as u64;
        self.ages.push(now - due);
    }
}

async fn watch(session: Session, figures: Arc<Mutex<Figures>>, begun: Instant) {
    figures.lock().expect("no panic").open += 1;
    while let Ok(mut stream) = session.accept_uni().await {
        let figures = Arc::clone(&figures);
        tokio::spawn(async move {
            let Ok(message) = stream.read_to_end(MAX_MESSAGE).await else { return };
            let now = i64::try_from(begun.elapsed().as_micros()).expect("it is short");
            figures.lock().expect("no panic").take(&message, now);
        });
    }
    figures.lock().expect("no panic").closed += 1;
}

fn measure(viewers: usize, span: Duration) {
    let mut server = Command::new(std::env::current_exe().expect("this program"));
    server.args(["server", &viewers.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn().expect("the server starts");
    let mut line = String::new();
    let mut out = BufReader::new(server.stdout.take().expect("it is piped"));
    out.read_line(&mut line).expect("its address");
    let url = format!("https://{}/watch", line.trim());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (figures, begun) = (Arc::new(Mutex::new(Figures::default())), Instant::now());
    let taken = || std::mem::take(&mut *figures.lock().expect("no panic"));
    let (before, after, memory, took, last) = runtime.block_on(async {
        let client = ClientBuilder::new().dangerous().with_no_certificate_verification();
        let client = client.expect("a client");
        let (mut left, mut failed) = (viewers, 0);
        while left > 0 {
            let some = left.min(AT_ONCE);
            let sessions = (0..some).map(|_| {
                let (client, url) = (client.clone(), url.parse::<url::Url>().expect("a URL"));
                tokio::spawn(async move { client.connect(url).await })
            });
            for session in sessions.collect::<Vec<_>>() {
                match session.await.expect("no panic") {
                    Ok(session) => {
                        tokio::spawn(watch(session, Arc::clone(&figures), begun));
                    }
                    Err(error) => {
                        println!("not connected: {error}");
                        failed += 1;
                    }
                }
            }
            left -= some;
        }
        // A key picture for all, and slow start.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let open = taken().open;
        let ((before, _), from) = (used(&server.id().to_string()), Instant::now());
        tokio::time::sleep(span).await;
        let ((after, memory), took) =
            (used(&server.id().to_string()), from.elapsed().as_secs_f64());
        let mut last = taken();
        last.open += open;
        last.closed += failed;
        (before, after, memory, took, last)
    });
    let mut ages = last.ages.clone();
    ages.sort_unstable();
    let age = |share: f64| {
        let at = ages.get((ages.len() as f64 * share) as usize).copied().unwrap_or(i64::MAX);
        at.saturating_sub(ages.first().copied().unwrap_or(0)) as f64 / 1e3
    };
    let core = (after - before) / took;
    println!(
        "{:>8} {:>9.1} % {:>8.1} % {:>9.3} {:>9.2} {:>9.1} MB {:>8.1} ms {:>8.1} ms {:>7}",
        last.open,
        core * 100.0,
        last.frames as f64 / (last.expected() * last.open as u64).max(1) as f64 * 100.0,
        core / last.open.max(1) as f64 * 1e3,
        last.bytes as f64 * 8e-6 / took / last.open.max(1) as f64,
        memory,
        age(0.5),
        age(0.99),
        last.closed,
    );
    drop(server.stdin.take());
    let _ = server.wait();
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [what, viewers] = &words[..]
        && what == "server"
    {
        return serve(viewers.parse().expect("a number"));
    }
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(10).max(1);
    let viewers = numbers.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(&[10, 50, 100, 200]);
    println!("2 Mbit/s to each viewer for {seconds} s; processor and memory of the server alone");
    println!(
        "{:>8} {:>11} {:>10} {:>9} {:>9} {:>12} {:>11} {:>11} {:>7}",
        "viewers", "of a core", "arrived", "ms/s each", "Mbit/s", "memory", "age", "99 %", "closed"
    );
    for viewers in viewers {
        measure(*viewers, Duration::from_secs(seconds as u64));
    }
}
