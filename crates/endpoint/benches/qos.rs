//! What QoS sockets cost beside plain ones, over loopback, both sides in one run:
//! `cargo bench -p ontempo-endpoint --bench qos`.
//!
//! One way: messages as fast as they go. Latency: a message there and back, half of the round
//! trip. In turn: one thread sends and receives, and its processor time counts. Plain TCP has Nagle's algorithm off, and reads a message of known length; plain UDP
//! is a connected socket. Rounds of both kinds take turns, and the median of the rounds' ratios is
//! told, with its quartiles, so that what else the machine does hardly shows.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ontempo_endpoint::qos::{QosListener, QosOptions, QosSocket, QosStream};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 15;

/// Both ends of something that carries messages.
trait Pair: Send + Sync {
    fn send(&self, near: bool, data: &[u8]);
    /// Bytes that came; 0 where nothing came in time.
    fn receive(&self, near: bool, room: &mut [u8]) -> usize;
}

struct Both<T>(T, T);

impl<T> Both<T> {
    fn end(&self, near: bool) -> &T {
        if near { &self.0 } else { &self.1 }
    }
}

impl Pair for Both<TcpStream> {
    fn send(&self, near: bool, data: &[u8]) {
        self.end(near).write_all(data).expect("written");
    }

    fn receive(&self, near: bool, room: &mut [u8]) -> usize {
        self.end(near).read_exact(room).map_or(0, |()| room.len())
    }
}

impl Pair for Both<UdpSocket> {
    fn send(&self, near: bool, data: &[u8]) {
        self.end(near).send(data).expect("sent");
    }

    fn receive(&self, near: bool, room: &mut [u8]) -> usize {
        self.end(near).recv(room).unwrap_or(0)
    }
}

impl Pair for Both<QosStream> {
    fn send(&self, near: bool, data: &[u8]) {
        self.end(near).send_message(data).expect("written");
    }

    fn receive(&self, near: bool, room: &mut [u8]) -> usize {
        self.end(near).receive_message(room).ok().flatten().map_or(0, |message| message.length)
    }
}

impl Pair for Both<QosSocket> {
    fn send(&self, near: bool, data: &[u8]) {
        self.end(near).send_message(data).expect("sent");
    }

    fn receive(&self, near: bool, room: &mut [u8]) -> usize {
        self.end(near).receive_message(room).ok().flatten().map_or(0, |message| message.length)
    }
}

/// Seconds a message, one way: until all, or over UDP the last that came, are there.
fn one_way(pair: &Arc<dyn Pair>, size: usize, count: usize) -> f64 {
    let began = Instant::now();
    let far = pair.clone();
    let receiving = thread::spawn(move || {
        let mut room = vec![0; size];
        let (mut got, mut last) = (0, Instant::now());
        while got < count && far.receive(false, &mut room) == size {
            got += 1;
            last = Instant::now();
        }
        (got, last)
    });
    let data = vec![7; size];
    for _ in 0..count {
        pair.send(true, &data);
    }
    let (got, last) = receiving.join().expect("received");
    last.duration_since(began).as_secs_f64() / got.max(1) as f64
}

/// Seconds of half a round trip.
fn half_round(pair: &Arc<dyn Pair>, size: usize, count: usize) -> f64 {
    let far = pair.clone();
    let answering = thread::spawn(move || {
        let mut room = vec![0; size];
        for _ in 0..count {
            if far.receive(false, &mut room) == size {
                far.send(false, &room);
            }
        }
    });
    let (data, mut room) = (vec![7; size], vec![0; size]);
    let began = Instant::now();
    for _ in 0..count {
        pair.send(true, &data);
        pair.receive(true, &mut room);
    }
    let took = began.elapsed().as_secs_f64();
    answering.join().expect("answered");
    took / count as f64 / 2.0
}

/// Processor time of a message sent and received by one thread: nobody is woken for it, so that
/// what the sockets themselves cost shows, and little else.
fn in_turn(pair: &Arc<dyn Pair>, size: usize, count: usize) -> f64 {
    let processor = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (data, mut room) = (vec![7; size], vec![0; size]);
    let began = processor();
    for _ in 0..count {
        pair.send(true, &data);
        pair.receive(false, &mut room);
    }
    (processor() - began) / count as f64
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

type Measure = fn(&Arc<dyn Pair>, usize, usize) -> f64;

fn compare(name: &str, plain: &Arc<dyn Pair>, ours: &Arc<dyn Pair>, size: usize) {
    let count = (200_000_000 / (size + 2_000)).min(60_000);
    let kinds: [(&str, Measure, usize); 3] = [
        ("one way", one_way, count),
        ("latency", half_round, count / 4),
        ("in turn", in_turn, count / 2),
    ];
    for (what, measure, count) in kinds {
        let (mut ratios, mut times) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (base, qos) = if round % 2 == 0 {
                let base = measure(plain, size, count);
                (base, measure(ours, size, count))
            } else {
                let qos = measure(ours, size, count);
                (measure(plain, size, count), qos)
            };
            ratios.push((qos / base - 1.0) * 100.0);
            times.push((base, qos));
        }
        let [low, middle, high] = quartiles(ratios);
        let base = quartiles(times.iter().map(|(base, _)| *base).collect())[1] * 1e6;
        let qos = quartiles(times.iter().map(|(_, qos)| *qos).collect())[1] * 1e6;
        println!(
            "{name} {size:6} bytes {what}: plain {base:8.3} us, QoS {qos:8.3} us, \
             overhead {middle:+6.1} % ({low:+.1} to {high:+.1})"
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let patience = Some(Duration::from_millis(300));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(patience)?;
    }
    let plain_tcp: Arc<dyn Pair> = Arc::new(Both(near, far));
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default())?;
    let to = listener.local_address()?;
    let connecting = thread::spawn(move || QosStream::connect(to, &QosOptions::default()));
    let (far, _) = listener.accept()?;
    let near = connecting.join().expect("connected")?;
    for stream in [&near, &far] {
        stream.set_read_timeout(patience)?;
    }
    let qos_tcp: Arc<dyn Pair> = Arc::new(Both(near, far));
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    for socket in [&near, &far] {
        socket.set_read_timeout(patience)?;
    }
    let plain_udp: Arc<dyn Pair> = Arc::new(Both(near, far));
    let listener = QosSocket::bind("127.0.0.1:0", QosOptions::default())?;
    let to = listener.local_address();
    let connecting = thread::spawn(move || QosSocket::connect(to, &QosOptions::default()));
    let (far, _) = listener.accept()?;
    let near = connecting.join().expect("connected")?;
    for socket in [&near, &far] {
        socket.set_read_timeout(patience)?;
    }
    let qos_udp: Arc<dyn Pair> = Arc::new(Both(near, far));
    for size in [64, 1_280, 60_000] {
        compare("TCP", &plain_tcp, &qos_tcp, size);
        compare("UDP", &plain_udp, &qos_udp, size);
    }
    Ok(())
}
