//! What QoS sockets cost beside plain ones, over loopback, both in one run:
//! `cargo bench -p ontempo-qos --bench qos`.
//!
//! Plain TCP has what any program needs that sends messages over it: Nagle's algorithm off, four
//! bytes of length before each, small ones written by one call of one piece and long ones where
//! they lie, read through a buffer of 32 KiB that long ones bypass. Plain UDP is a connected
//! socket. The QoS sockets number, stamp, count and watch what they carry, and report twice a
//! second.
//!
//! - Throughput: messages one way as fast as they go, wall time of each.
//! - Latency: a message there and back, half of the round trip's wall time.
//! - Processor: one thread sends and receives in turn, its processor time of each message. Nobody
//!   is woken, so that what the sockets themselves cost shows, and little else.
//!
//! Short rounds of both kinds take turns, and the median of the rounds' ratios is told, with its
//! quartiles, so that what else the machine does hardly shows. TCP's processor time has two levels,
//! 15 % apart, by how the system's receiver acknowledges; either kind may be at either.
//!
//! Words pick lines that have them: `cargo bench -p ontempo-qos --bench qos -- UDP latency`.

use std::error::Error;
use std::io::{BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ontempo_qos::{QosListener, QosOptions, QosSocket, QosStream};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 40;

/// Messages up to this length are put behind their own length, to be written in one piece.
const COPIED: usize = 4_096;

/// An end of something that carries messages.
trait End: Send {
    fn send(&mut self, data: &[u8]);
    /// Bytes that came; 0 where nothing came in time.
    fn receive(&mut self, room: &mut [u8]) -> usize;
}

struct Pair {
    near: Box<dyn End>,
    far: Box<dyn End>,
}

/// Messages over plain TCP.
struct Framed {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    piece: Vec<u8>,
}

impl Framed {
    fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let reader = BufReader::with_capacity(32 * 1024, stream.try_clone()?);
        Ok(Self { stream, reader, piece: Vec::new() })
    }

    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let mut length = [0; 4];
        self.reader.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        self.reader.read_exact(&mut room[..length])?;
        Ok(length)
    }
}

impl End for Framed {
    fn send(&mut self, data: &[u8]) {
        let length = (data.len() as u32).to_be_bytes();
        if data.len() <= COPIED {
            self.piece.clear();
            self.piece.extend(length);
            self.piece.extend(data);
            self.stream.write_all(&self.piece).expect("written");
            return;
        }
        let pieces = [IoSlice::new(&length), IoSlice::new(data)];
        let written = self.stream.write_vectored(&pieces).expect("written");
        let (head, body) = (written.min(4), written.saturating_sub(4));
        self.stream.write_all(&length[head..]).expect("written");
        self.stream.write_all(&data[body..]).expect("written");
    }

    fn receive(&mut self, room: &mut [u8]) -> usize {
        self.read(room).unwrap_or(0)
    }
}

impl End for UdpSocket {
    fn send(&mut self, data: &[u8]) {
        UdpSocket::send(self, data).expect("sent");
    }

    fn receive(&mut self, room: &mut [u8]) -> usize {
        self.recv(room).unwrap_or(0)
    }
}

impl End for QosStream {
    fn send(&mut self, data: &[u8]) {
        self.send_message(data).expect("written");
    }

    fn receive(&mut self, room: &mut [u8]) -> usize {
        self.receive_message(room).ok().flatten().map_or(0, |message| message.length)
    }
}

impl End for QosSocket {
    fn send(&mut self, data: &[u8]) {
        self.send_message(data).expect("sent");
    }

    fn receive(&mut self, room: &mut [u8]) -> usize {
        self.receive_message(room).ok().flatten().map_or(0, |message| message.length)
    }
}

/// Seconds a message, one way: until all, or over UDP the last that came, are there.
fn throughput(pair: &mut Pair, size: usize, count: usize) -> f64 {
    let Pair { near, far } = pair;
    let began = Instant::now();
    let (got, last) = thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let mut room = vec![0; size];
            let (mut got, mut last) = (0, Instant::now());
            while got < count && far.receive(&mut room) == size {
                got += 1;
                last = Instant::now();
            }
            (got, last)
        });
        let data = vec![7; size];
        for _ in 0..count {
            near.send(&data);
        }
        receiving.join().expect("received")
    });
    last.duration_since(began).as_secs_f64() / got.max(1) as f64
}

/// Seconds of half a round trip.
fn latency(pair: &mut Pair, size: usize, count: usize) -> f64 {
    let Pair { near, far } = pair;
    let took = thread::scope(|scope| {
        scope.spawn(move || {
            let mut room = vec![0; size];
            for _ in 0..count {
                if far.receive(&mut room) == size {
                    far.send(&room);
                }
            }
        });
        let (data, mut room) = (vec![7; size], vec![0; size]);
        let began = Instant::now();
        for _ in 0..count {
            near.send(&data);
            near.receive(&mut room);
        }
        began.elapsed()
    });
    took.as_secs_f64() / count as f64 / 2.0
}

/// Seconds of processor time of a message sent and received by one thread.
fn processor(pair: &mut Pair, size: usize, count: usize) -> f64 {
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (data, mut room) = (vec![7; size], vec![0; size]);
    let began = used();
    for _ in 0..count {
        pair.near.send(&data);
        pair.far.receive(&mut room);
    }
    (used() - began) / count as f64
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

type Measure = fn(&mut Pair, usize, usize) -> f64;

fn compare(name: &str, plain: &mut Pair, ours: &mut Pair, size: usize) {
    let count = (60_000_000 / (size + 2_000)).min(15_000);
    let kinds: [(&str, Measure, usize); 3] = [
        ("throughput", throughput, count),
        ("latency", latency, count / 4),
        ("processor", processor, count),
    ];
    for (what, measure, count) in kinds {
        let title = format!("{name} {size:6} bytes {what:10}");
        let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
        if !words.all(|word| title.contains(&word)) {
            continue;
        }
        let (mut ratios, mut bases, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (base, qos) = if round % 2 == 0 {
                let base = measure(plain, size, count);
                (base, measure(ours, size, count))
            } else {
                let qos = measure(ours, size, count);
                (measure(plain, size, count), qos)
            };
            ratios.push((qos / base - 1.0) * 100.0);
            bases.push(base * 1e6);
            all.push(qos * 1e6);
        }
        let [low, middle, high] = quartiles(ratios);
        let (base, qos) = (quartiles(bases)[1], quartiles(all)[1]);
        println!(
            "{title}: plain {base:8.3} us, QoS {qos:8.3} us, \
             overhead {middle:+6.1} % ({low:+.1} to {high:+.1})"
        );
    }
}

const PATIENCE: Duration = Duration::from_millis(300);

fn tcp() -> Result<(Pair, Pair), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let (near, far) = (Framed::new(near)?, Framed::new(far)?);
    let plain = Pair { near: Box::new(near), far: Box::new(far) };
    let listener = QosListener::bind("127.0.0.1:0", QosOptions::default())?;
    let to = listener.local_address()?;
    let connecting = thread::spawn(move || QosStream::connect(to, &QosOptions::default()));
    let (far, _) = listener.accept()?;
    let near = connecting.join().expect("connected")?;
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(PATIENCE))?;
    }
    Ok((plain, Pair { near: Box::new(near), far: Box::new(far) }))
}

fn udp() -> Result<(Pair, Pair), Box<dyn Error>> {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    let plain = Pair { near: Box::new(near), far: Box::new(far) };
    let listener = QosSocket::bind("127.0.0.1:0", QosOptions::default())?;
    let to = listener.local_address();
    let connecting = thread::spawn(move || QosSocket::connect(to, &QosOptions::default()));
    let (far, _) = listener.accept()?;
    let near = connecting.join().expect("connected")?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    Ok((plain, Pair { near: Box::new(near), far: Box::new(far) }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut plain_tcp, mut qos_tcp) = tcp()?;
    let (mut plain_udp, mut qos_udp) = udp()?;
    for size in [64, 1_280, 60_000] {
        compare("TCP", &mut plain_tcp, &mut qos_tcp, size);
        compare("UDP", &mut plain_udp, &mut qos_udp, size);
    }
    Ok(())
}
