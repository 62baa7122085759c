//! What does an idle connection hold?
//!
//! `make bench-idle`, or `cargo bench -p ontempo-transport --bench idle -- [CONNECTIONS [SECONDS]]`. That many
//! clients connect to an endpoint in virtual time, over a path of 10 ms, and stay idle for that long: they
//! send keep-alives and compare clocks, as the defaults are. Measured is what the endpoint has allocated: all
//! allocations of its side are counted by an allocator of this program. Then a single client connects to another endpoint, and what
//! is still allocated for it is listed by the functions that allocated it. The last line is the
//! resident memory of the whole process for one pair, both ends, to compare with what was counted.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use bytes::BytesMut;
use ontempo_foundation::{Duration, Time};
use ontempo_transport::{
    Configuration, Endpoint, Event, Identity, Poll, Source, Token, Transmit, Trust,
};

/// One way of the path.
const DELAY: Duration = Duration::from_millis(10);

/// Connections begun at a time, fewer than one host may have half open.
const AT_ONCE: usize = 50;

thread_local! {
    /// True while the endpoint that is measured works.
    static MEASURED: Cell<bool> = const { Cell::new(false) };
    /// True while the list of places is written, whose own allocations do not count.
    static NOTING: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATED: AtomicI64 = AtomicI64::new(0);
static BLOCKS: AtomicI64 = AtomicI64::new(0);
/// True: each allocation's place is noted.
static IS_TRACED: AtomicBool = AtomicBool::new(false);
static PLACES: Mutex<BTreeMap<usize, (usize, String)>> = Mutex::new(BTreeMap::new());

/// Counts what is allocated while the endpoint works.
struct Counting;

/// Runs `note` unless it is running.
fn once(note: impl FnOnce()) {
    if NOTING.try_with(|noting| noting.replace(true)) == Ok(false) {
        note();
        let _ = NOTING.try_with(|noting| noting.set(false));
    }
}

fn is_measured() -> bool {
    MEASURED.try_with(Cell::get) == Ok(true) && NOTING.try_with(Cell::get) == Ok(false)
}

fn note(at: *mut u8, size: usize) {
    if is_measured() {
        ALLOCATED.fetch_add(size as i64, Relaxed);
        BLOCKS.fetch_add(1, Relaxed);
        if IS_TRACED.load(Relaxed) {
            once(|| {
                let place = place();
                PLACES.lock().expect("no panic").insert(at as usize, (size, place));
            });
        }
    }
}

fn forget(at: *mut u8, size: usize) {
    if is_measured() {
        ALLOCATED.fetch_sub(size as i64, Relaxed);
        BLOCKS.fetch_sub(1, Relaxed);
        if IS_TRACED.load(Relaxed) {
            once(|| drop(PLACES.lock().expect("no panic").remove(&(at as usize))));
        }
    }
}

// SAFETY: all is done by the system's allocator; beside it only numbers change.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let at = unsafe { System.alloc(layout) };
        note(at, layout.size());
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        forget(at, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        forget(at, layout.size());
        // SAFETY: as the caller promises.
        let at = unsafe { System.realloc(at, layout, size) };
        note(at, size);
        at
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The innermost functions of this allocation that are of a crate and not of the standard library.
fn place() -> String {
    const LIBRARY: [&str; 7] =
        ["alloc::", "core::", "std::", "idle::", "hashbrown::", "__", "<alloc::"];
    let text = Backtrace::force_capture().to_string();
    let names = text.lines().map(str::trim).filter_map(|line| line.split_once(": "));
    let names = names.map(|(_, name)| name).filter(|name| {
        !LIBRARY.iter().any(|library| name.starts_with(library)) && !name.contains("Counting")
    });
    let names: Vec<&str> = names.take(2).collect();
    names.join(" < ")
}

/// Lets the endpoint that is measured do something.
fn measured<T>(act: impl FnOnce() -> T) -> T {
    MEASURED.with(|measured| measured.set(true));
    let done = act();
    MEASURED.with(|measured| measured.set(false));
    done
}

/// Packets under way: when they arrive, whether at the server, and their bytes.
type Way = VecDeque<(Time, bool, Vec<u8>)>;

struct World {
    now: Time,
    server: Endpoint,
    clients: Endpoint,
    way: Way,
    wake: [Time; 2],
    open: usize,
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
}

impl World {
    fn new(connections: usize) -> Self {
        let identity = Identity::self_signed(&["server"]).expect("an identity");
        let configuration = Configuration {
            connections: connections + 8,
            connections_of_host: connections + 8,
            half_open: 4096,
            receive_memory: ontempo_foundation::Bytes::new(4 << 30),
            ..Configuration::default()
        };
        let server = measured(|| {
            let mut server = Endpoint::new(configuration.clone(), [1; 32]);
            let token = Token::new(b"token").expect("short");
            server.listen(&identity, token).expect("it listens");
            server
        });
        let clients = Endpoint::new(configuration, [2; 32]);
        let (now, wake) = (Time::ZERO, [Time::NEVER; 2]);
        Self { now, server, clients, way: VecDeque::new(), wake, open: 0 }
    }

    fn connect(&mut self) {
        let token = Token::new(b"token").expect("short");
        let begun = self.clients.connect(self.now, address(1), "server", &Trust::Insecure, token);
        begun.expect("it begins");
        self.flush(false);
    }

    /// Sends all that an end has to send.
    fn flush(&mut self, is_server: bool) {
        // Its room is not of the endpoint.
        let mut out = Vec::with_capacity(1 << 17);
        loop {
            let poll = match is_server {
                true => measured(|| self.server.poll_transmit(self.now, &mut out)),
                false => self.clients.poll_transmit(self.now, &mut out),
            };
            match poll {
                Poll::Transmit(Transmit { size, segment, .. }) => {
                    for packet in out[..size].chunks(segment.unwrap_or(size).max(1)) {
                        self.way.push_back((self.now + DELAY, !is_server, packet.to_vec()));
                    }
                }
                Poll::WaitUntil(until) => {
                    self.wake[usize::from(is_server)] = until;
                    return;
                }
                Poll::Idle => {
                    self.wake[usize::from(is_server)] = Time::NEVER;
                    return;
                }
            }
        }
    }

    fn run(&mut self, until: Time) {
        loop {
            let arrives = self.way.front().map_or(Time::NEVER, |(at, ..)| *at);
            let next = arrives.min(self.wake[0]).min(self.wake[1]);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            let mut touched = [false; 2];
            while self.way.front().is_some_and(|(at, ..)| *at <= self.now)
                && let Some((_, to_server, packet)) = self.way.pop_front()
            {
                touched[usize::from(to_server)] = true;
                match to_server {
                    true => measured(|| {
                        let data = BytesMut::from(&packet[..]);
                        self.server.handle(self.now, Source::of(address(2)), data);
                    }),
                    false => {
                        let data = BytesMut::from(&packet[..]);
                        self.clients.handle(self.now, Source::of(address(1)), data);
                    }
                }
            }
            for is_server in [false, true] {
                if self.wake[usize::from(is_server)] <= self.now {
                    touched[usize::from(is_server)] = true;
                    match is_server {
                        true => measured(|| self.server.handle_timeout(self.now)),
                        false => self.clients.handle_timeout(self.now),
                    }
                }
                if touched[usize::from(is_server)] {
                    self.flush(is_server);
                }
            }
            while let Some(event) = measured(|| self.server.poll_event()) {
                self.open += usize::from(matches!(event, Event::Connected { .. }));
                measured(|| drop(event));
            }
            while let Some(event) = self.clients.poll_event() {
                if let Event::Closed { closed, .. } = event {
                    println!("closed: {closed:?}");
                }
            }
        }
    }
}

fn counted() -> (i64, i64) {
    (ALLOCATED.load(Relaxed), BLOCKS.load(Relaxed))
}

impl World {
    /// Connects so many more.
    fn fill(&mut self, count: usize) {
        let wanted = self.open + count;
        let mut begun = self.open;
        while self.open < wanted {
            while begun < wanted && begun - self.open < AT_ONCE {
                self.connect();
                begun += 1;
            }
            self.run(self.now + Duration::from_millis(10));
        }
    }
}

fn main() {
    let numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let numbers: Vec<u64> = numbers.collect();
    let count = numbers.first().copied().unwrap_or(2_000).max(1) as usize;
    let seconds = numbers.get(1).copied().unwrap_or(20);
    let mut world = World::new(count);
    let before = counted();
    world.fill(count);
    let each = |after: (i64, i64)| {
        let each = |after: i64, before: i64| (after - before) as f64 / count as f64;
        format!("{:.1} kB in {:.0} blocks", each(after.0, before.0) / 1e3, each(after.1, before.1))
    };
    println!("{count} connections; of each the endpoint holds");
    println!("  as soon as it is open   {}", each(counted()));
    world.run(world.now + Duration::from_secs(seconds));
    println!("  after {seconds} s idle         {}", each(counted()));
    drop(world);
    let mut world = World::new(1);
    let before = counted();
    IS_TRACED.store(true, Relaxed);
    world.fill(1);
    world.run(world.now + Duration::from_secs(seconds));
    IS_TRACED.store(false, Relaxed);
    let after = counted();
    println!("a single one, {} bytes, by what has allocated them:", after.0 - before.0);
    let mut places: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    once(|| {
        for (size, place) in PLACES.lock().expect("no panic").values() {
            let sum = places.entry(place.clone()).or_default();
            *sum = (sum.0 + size, sum.1 + 1);
        }
    });
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
    for (place, (bytes, blocks)) in places.iter().take(40) {
        println!("{bytes:>8} bytes {blocks:>4} blocks  {place}");
    }
}
