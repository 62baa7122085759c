//! Cost of QoS sockets compared with plain ones, over loopback, both in one run:
//! `cargo bench -p ontempo-qos --bench qos`.
//!
//! Plain TCP does what any program with messages over TCP needs: Nagle's algorithm is off, a length
//! of four bytes precedes each message, small messages are copied behind it and written at once,
//! long ones are written without a copy, and reads go through a buffer of 32 KiB that long messages
//! bypass. Plain UDP is a connected socket. QoS sockets number, timestamp, count and monitor
//! messages, and report twice a second; where `rec_time` is agreed, they also keep and acknowledge them.
//!
//! - Throughput: messages in one direction as fast as possible, wall time per message.
//! - Latency: half of the wall time of a message's round trip.
//! - Processor: one thread sends and receives in turn, its processor time per message. No thread is
//!   woken, so the result is the cost of the sockets alone.
//!
//! Short rounds of both kinds alternate, and the median and quartiles of the ratios are printed, so
//! that other load on the machine has little effect. TCP's processor time has two levels, 15 %
//! apart, depending on how the kernel's receiver acknowledges; either kind may be at either level.
//!
//! Arguments select the lines that contain them: `cargo bench -p ontempo-qos --bench qos -- UDP
//! latency`. With `--link` (as root, with iproute2) the ends are in two network namespaces with a pair
//! of virtual Ethernet interfaces between them, as an application's are on a network; with `--mbit=1000`
//! that link has such a rate.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{QosListener, QosOptions, QosSocket, QosStream};
use ontempo_testing::Link;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 40;

/// Messages up to this length are copied behind their length, to be written at once.
const COPIED: usize = 4_096;

/// An end of a connection that sends and receives messages.
trait End: Send {
    fn send(&mut self, data: &[u8]);
    /// Bytes received; 0 after a timeout.
    fn receive(&mut self, buffer: &mut [u8]) -> usize;
}

struct Pair {
    near: Box<dyn End>,
    far: Box<dyn End>,
}

/// Messages over plain TCP.
struct PlainTcp {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    write_buffer: Vec<u8>,
}

impl PlainTcp {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let reader = BufReader::with_capacity(32 * 1024, stream.try_clone()?);
        Ok(Self { stream, reader, write_buffer: Vec::new() })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut length = [0; 4];
        self.reader.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        self.reader.read_exact(&mut buffer[..length])?;
        Ok(length)
    }
}

impl End for PlainTcp {
    fn send(&mut self, data: &[u8]) {
        let length = (data.len() as u32).to_be_bytes();
        if data.len() <= COPIED {
            self.write_buffer.clear();
            self.write_buffer.extend(length);
            self.write_buffer.extend(data);
            self.stream.write_all(&self.write_buffer).expect("written");
            return;
        }
        let pieces = [IoSlice::new(&length), IoSlice::new(data)];
        let written = self.stream.write_vectored(&pieces).expect("written");
        let (head, body) = (written.min(4), written.saturating_sub(4));
        self.stream.write_all(&length[head..]).expect("written");
        self.stream.write_all(&data[body..]).expect("written");
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        self.read(buffer).unwrap_or(0)
    }
}

impl End for UdpSocket {
    fn send(&mut self, data: &[u8]) {
        UdpSocket::send(self, data).expect("sent");
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        self.recv(buffer).unwrap_or(0)
    }
}

/// A plain socket whose messages are sent and received in two pieces, as those of QoS sockets that are too long
/// to be copied behind their header: what that costs without anything else.
struct TwoPieces(UdpSocket);

/// As long as the header of a QoS socket's long message.
const HEAD: [u8; 32] = [0; 32];

impl End for TwoPieces {
    fn send(&mut self, data: &[u8]) {
        let pieces = [IoSlice::new(&HEAD), IoSlice::new(data)];
        let mut none = SendAncillaryBuffer::default();
        sendmsg(&self.0, &pieces, &mut none, SendFlags::NOSIGNAL).expect("sent");
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        let mut head = HEAD;
        let mut places = [IoSliceMut::new(&mut head), IoSliceMut::new(buffer)];
        let mut none = RecvAncillaryBuffer::default();
        let got = recvmsg(&self.0, &mut places, &mut none, RecvFlags::empty());
        got.map_or(0, |got| got.bytes - HEAD.len())
    }
}

impl End for QosStream {
    fn send(&mut self, data: &[u8]) {
        self.send_message(data).expect("written");
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        self.receive_message(buffer).ok().flatten().map_or(0, |message| message.length)
    }
}

impl End for QosSocket {
    fn send(&mut self, data: &[u8]) {
        self.send_message(data).expect("sent");
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        self.receive_message(buffer).ok().flatten().map_or(0, |message| message.length)
    }
}

/// Seconds per message in one direction, until the last one received.
fn throughput(pair: &mut Pair, size: usize, count: usize) -> f64 {
    let Pair { near, far } = pair;
    let started = Instant::now();
    let (received, last) = thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let mut buffer = vec![0; size];
            let (mut received, mut last) = (0, Instant::now());
            while received < count && far.receive(&mut buffer) == size {
                received += 1;
                last = Instant::now();
            }
            (received, last)
        });
        let data = vec![7; size];
        for _ in 0..count {
            near.send(&data);
        }
        receiving.join().expect("received")
    });
    last.duration_since(started).as_secs_f64() / received.max(1) as f64
}

/// Half a round trip, seconds.
fn latency(pair: &mut Pair, size: usize, count: usize) -> f64 {
    let Pair { near, far } = pair;
    let elapsed = thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; size];
            for _ in 0..count {
                if far.receive(&mut buffer) == size {
                    far.send(&buffer);
                }
            }
        });
        let (data, mut buffer) = (vec![7; size], vec![0; size]);
        let started = Instant::now();
        for _ in 0..count {
            near.send(&data);
            near.receive(&mut buffer);
        }
        started.elapsed()
    });
    elapsed.as_secs_f64() / count as f64 / 2.0
}

/// Processor time of a message sent and received by one thread, seconds.
fn processor(pair: &mut Pair, size: usize, count: usize) -> f64 {
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (data, mut buffer) = (vec![7; size], vec![0; size]);
    let started = used();
    for _ in 0..count {
        pair.near.send(&data);
        pair.far.receive(&mut buffer);
    }
    (used() - started) / count as f64
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
    for (kind, measure, count) in kinds {
        let title = format!("{name} {size:6} bytes {kind:10}");
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
            "{title}: plain {base:8.3} us, this {qos:8.3} us, \
             overhead {middle:+6.1} % ({low:+.1} to {high:+.1})"
        );
    }
}

const READ_TIMEOUT: Duration = Duration::from_millis(300);

/// The link between the ends; `None`: both are on loopback.
struct At(Option<Link>);

impl At {
    /// The calling thread makes sockets at this end from now on: 0 near, 1 far.
    fn enter(&self, end: usize) {
        let Some(link) = &self.0 else { return };
        let space = File::open(format!("/run/netns/{}", link.spaces[end])).expect("the namespace");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(space.as_fd(), kind).expect("entered");
    }

    /// Makes sockets at the far end.
    fn make<T: Send>(&self, make: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let made = scope.spawn(|| {
                self.enter(1);
                make()
            });
            made.join().expect("made")
        })
    }

    /// Any port of the far end.
    fn address(&self) -> (&'static str, u16) {
        (if self.0.is_some() { Link::ADDRESSES[1] } else { "127.0.0.1" }, 0)
    }
}

/// Plain TCP, and QoS sockets that ask for this.
fn tcp(asked: Specification, at: &At) -> Result<(Pair, Pair), Box<dyn Error>> {
    let listener = at.make(|| TcpListener::bind(at.address()))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let (near, far) = (PlainTcp::new(near)?, PlainTcp::new(far)?);
    let plain = Pair { near: Box::new(near), far: Box::new(far) };
    let options = QosOptions::both(asked);
    let listener = at.make(|| QosListener::bind(at.address(), options.clone()))?;
    let to = listener.local_address()?;
    let connecting = thread::spawn(move || QosStream::connect(to, &options));
    let (far, _) = listener.accept()?;
    let near = connecting.join().expect("connected")?;
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
    }
    Ok((plain, Pair { near: Box::new(near), far: Box::new(far) }))
}

fn plain_udp(at: &At) -> io::Result<[UdpSocket; 2]> {
    let (near, far) = (UdpSocket::bind("0.0.0.0:0")?, at.make(|| UdpSocket::bind(at.address()))?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
    }
    Ok([near, far])
}

/// Plain UDP, plain UDP in two pieces, and QoS sockets.
fn udp(at: &At) -> Result<[Pair; 3], Box<dyn Error>> {
    let [near, far] = plain_udp(at)?;
    let plain = Pair { near: Box::new(near), far: Box::new(far) };
    let [near, far] = plain_udp(at)?.map(TwoPieces);
    let pieces = Pair { near: Box::new(near), far: Box::new(far) };
    let listener = at.make(|| QosSocket::bind(at.address(), QosOptions::default()))?;
    let to = listener.local_address();
    let connecting = thread::spawn(move || QosSocket::connect(to, &QosOptions::default()));
    // It makes a socket for the connection.
    let (far, _) = at.make(|| listener.accept())?;
    let near = connecting.join().expect("connected")?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
    }
    Ok([plain, pieces, Pair { near: Box::new(near), far: Box::new(far) }])
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mbit = words.iter().find_map(|word| word.strip_prefix("--mbit="));
    let mbit = mbit.map(str::parse).transpose()?;
    let is_linked = mbit.is_some() || words.iter().any(|word| word == "--link");
    let at = At(is_linked.then(|| Link::new(mbit)));
    at.enter(0);
    let (mut plain_tcp, mut qos_tcp) = tcp(Specification::default(), &at)?;
    // Messages are kept until they are acknowledged.
    let rec_time = Term::coerced(ontempo_foundation::Duration::from_secs(10));
    let recovers = Specification { rec_time, ..Specification::default() };
    let (mut plain_beside, mut recovering) = tcp(recovers, &at)?;
    let [mut plain_udp, mut pieces, mut qos_udp] = udp(&at)?;
    for size in [64, 1_280, 60_000] {
        compare("TCP", &mut plain_tcp, &mut qos_tcp, size);
        compare("TCP, rec_time", &mut plain_beside, &mut recovering, size);
        compare("UDP", &mut plain_udp, &mut qos_udp, size);
        compare("UDP, two plain pieces", &mut plain_udp, &mut pieces, size);
    }
    Ok(())
}
