//! Carries datagrams over a path in real time.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use ontempo_foundation::{Duration, Time, first_of_largest_host, host_prefix};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::histogram::Histogram;
use crate::listening::Listening;
use crate::path::{Delivery, Path, Undelivered, Way};
use crate::report::{ClientCounts, Report};

/// Largest payload of a datagram.
const MAX_DATAGRAM: usize = 65_535;

/// Datagrams read from a socket before what is due is sent.
const BATCH: usize = 64;

/// How long the relay sleeps at most, so that it sees that it is to stop.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// How often idle clients are looked for, and progress is reported.
const TICK: Duration = Duration::from_secs(1);

/// Receive buffer of each socket: what comes while the relay is not scheduled.
const RECEIVE_BUFFER: usize = 4 << 20;

/// What clients may make a relay hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time: addresses and ports.
    pub clients: usize,
    /// Clients of one host: an address of IPv4, or 56 bits of one of IPv6.
    pub clients_of_host: usize,
    /// A client without datagrams either way for this long is forgotten.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { clients: 256, clients_of_host: 64, idle: Duration::from_secs(60) }
    }
}

/// A client, with its socket towards the server.
#[derive(Debug)]
struct Client {
    address: SocketAddr,
    /// The address of this machine that it wrote to last, from which it is answered; `None` if the relay has one
    /// alone.
    local: Option<IpAddr>,
    socket: UdpSocket,
    /// Its address at the server before the last change, for what was on the path then, and when it changed.
    before: Option<(UdpSocket, Time)>,
    /// Distinguishes it from those that had its place before.
    id: u64,
    last: Time,
    /// Whether the server has sent it anything.
    is_answered: bool,
}

impl Client {
    /// Sends a datagram that entered the path at `entered` from the address of that time.
    fn send(&self, entered: Time, bytes: &[u8]) -> io::Result<usize> {
        let before = self.before.as_ref().filter(|(_, changed)| entered < *changed);
        before.map_or(&self.socket, |(socket, _)| socket).send(bytes)
    }

    /// Whether what the server sent at `entered` reaches it: its address is still the same.
    fn is_reached(&self, entered: Time) -> bool {
        self.before.as_ref().is_none_or(|(_, changed)| entered >= *changed)
    }
}

/// The clients, each at a place of its own.
#[derive(Debug)]
struct Clients {
    server: SocketAddr,
    limits: Limits,
    places: Vec<Option<Client>>,
    by_address: HashMap<SocketAddr, usize>,
    of_host: HashMap<IpAddr, usize>,
    counts: ClientCounts,
}

/// The place of a client's id is in the lower half.
fn place_of(id: u64) -> usize {
    (id & u64::from(u32::MAX)) as usize
}

impl Clients {
    /// The client at this address, admitted if there is room.
    fn at(&mut self, now: Time, address: SocketAddr) -> io::Result<Option<u64>> {
        if let Some(place) = self.by_address.get(&address)
            && let Some(client) = &mut self.places[*place]
        {
            client.last = now;
            return Ok(Some(client.id));
        }
        let host = host_prefix(address.ip());
        let of_host = self.of_host.get(&host).copied().unwrap_or_default();
        // What the server sent to itself would come back as a question of a client, for ever.
        let is_of_server = (address.ip(), address.port()) == (self.server.ip(), self.server.port());
        if is_of_server || of_host >= self.limits.clients_of_host {
            self.counts.refused_packets += 1;
            return Ok(None);
        }
        if self.by_address.len() >= self.limits.clients {
            let Some(place) = self.that_yields(of_host) else {
                self.counts.refused_packets += 1;
                return Ok(None);
            };
            self.forget(place);
            self.counts.replaced += 1;
        }
        let socket = upstream(self.server)?;
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.counts.admitted += 1;
        let id = self.counts.admitted << 32 | place as u64;
        let before = None;
        self.places[place] = Some(Client {
            address,
            local: None,
            socket,
            before,
            id,
            last: now,
            is_answered: false,
        });
        self.by_address.insert(address, place);
        *self.of_host.entry(host).or_default() += 1;
        Ok(Some(id))
    }

    fn get(&self, id: u64) -> Option<&Client> {
        self.places.get(place_of(id))?.as_ref().filter(|client| client.id == id)
    }

    /// The place that a newcomer gets whose host has `of_host` clients, where all are taken: that of the
    /// client silent for longest, of the host with most. First of those to whom the server never answered;
    /// the others yield only to a host with less than theirs.
    fn that_yields(&self, of_host: usize) -> Option<usize> {
        let clients = || {
            let places = self.places.iter().enumerate();
            places.filter_map(|(place, client)| Some((place, client.as_ref()?)))
        };
        let has_more = |client: &Client| {
            let host = host_prefix(client.address.ip());
            self.of_host.get(&host).is_some_and(|count| *count > of_host)
        };
        let mut some: Vec<_> = clients().filter(|(_, client)| !client.is_answered).collect();
        if some.is_empty() {
            some = clients().filter(|(_, client)| has_more(client)).collect();
        }
        some.sort_by_key(|(place, client)| (client.last, *place));
        let hosts = some.iter().map(|(_, client)| client.address.ip());
        first_of_largest_host(hosts).map(|at| some[at].0)
    }

    fn forget(&mut self, place: usize) {
        let Some(client) = self.places[place].take() else { return };
        self.by_address.remove(&client.address);
        let host = host_prefix(client.address.ip());
        if let Some(count) = self.of_host.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.of_host.remove(&host);
            }
        }
    }

    /// Gives all another address towards the server, as a NAT that has lost its state. One that gets no
    /// socket is forgotten, and admitted anew with its next datagram.
    fn readdress(&mut self, now: Time) {
        for place in 0..self.places.len() {
            let Some(client) = &mut self.places[place] else { continue };
            match upstream(self.server) {
                Ok(socket) => {
                    let before = std::mem::replace(&mut client.socket, socket);
                    client.before = Some((before, now));
                }
                Err(_) => self.forget(place),
            }
        }
    }

    fn forget_idle(&mut self, now: Time) {
        for place in 0..self.places.len() {
            let idle = |client: &Client| now.since(client.last) >= self.limits.idle;
            if self.places[place].as_ref().is_some_and(idle) {
                self.forget(place);
            }
        }
    }
}

/// A socket that reaches the server and hears nobody else.
fn upstream(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match server.ip() {
        address if address.is_loopback() => address,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    hears_only(UdpSocket::bind((any, 0))?, server)
}

/// The socket, connected to `server`, without what others sent to it before.
fn hears_only(socket: UdpSocket, server: SocketAddr) -> io::Result<UdpSocket> {
    prepare(&socket)?;
    socket.connect(server)?;
    // The server does not know this socket yet: nothing of it is lost.
    // Room for a whole one, which Windows wants.
    let mut buffer = vec![0; MAX_DATAGRAM];
    while socket.recv(&mut buffer).is_ok() {}
    Ok(socket)
}

fn prepare(socket: &UdpSocket) -> io::Result<()> {
    // The system may grant less.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER);
    socket.set_nonblocking(true)
}

/// A relay between clients and one server.
#[derive(Debug)]
pub struct Relay {
    listen: Listening,
    clients: Clients,
    path: Path,
    /// The path before it, as long as datagrams are on it.
    before: Option<Path>,
    /// Changes of the path's address that were made.
    changes: usize,
    epoch: Instant,
    late: Histogram,
}

impl Relay {
    /// Carries datagrams that reach `listen` over `path` to `server`, and its answers back.
    ///
    /// # Errors
    /// If the socket cannot be set up.
    pub fn new(
        listen: UdpSocket,
        server: SocketAddr,
        path: Path,
        limits: Limits,
    ) -> io::Result<Self> {
        prepare(&listen)?;
        let clients = Clients {
            server,
            limits,
            places: Vec::new(),
            by_address: HashMap::new(),
            of_host: HashMap::new(),
            counts: ClientCounts::default(),
        };
        let listen = Listening::new(listen)?;
        let (epoch, late) = (Instant::now(), Histogram::default());
        Ok(Self { listen, clients, path, before: None, changes: 0, epoch, late })
    }

    /// Runs until `stop` is true, which is asked ten times a second or more; `progress` gets the
    /// counters once a second.
    ///
    /// # Errors
    /// If waiting fails, or the listening socket.
    pub fn run(
        &mut self,
        stop: impl Fn() -> bool,
        mut progress: impl FnMut(&Report),
    ) -> io::Result<Report> {
        let mut buffer = vec![0; MAX_DATAGRAM];
        let mut tick = Time::ZERO + TICK;
        while !stop() {
            self.send_due();
            let now = self.now();
            self.readdress(now);
            if now >= tick {
                self.clients.forget_idle(now);
                progress(&self.report());
                tick = now + TICK;
            }
            let ready = self.wait()?;
            self.read(&ready, &mut buffer)?;
        }
        Ok(self.report())
    }

    /// What enters from now on takes another path, which counts and changes the address anew. What is on the one before
    /// arrives by it, unless there is a third by then. For between two calls of [`run`](Self::run).
    pub fn replace_path(&mut self, path: Path) {
        self.before = Some(std::mem::replace(&mut self.path, path));
        self.changes = 0;
    }

    /// The counters so far.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            seconds: self.now().as_secs_f64(),
            clients: ClientCounts {
                now: self.clients.by_address.len() as u64,
                ..self.clients.counts
            },
            forward: self.path.report(Way::Forward),
            reverse: self.path.report(Way::Reverse),
            late_p50_s: self.late.quantile(0.5),
            late_p99_s: self.late.quantile(0.99),
        }
    }

    fn now(&self) -> Time {
        let nanos = self.epoch.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Makes the changes of the address that are due.
    fn readdress(&mut self, now: Time) {
        let due = self.path.address_changes().partition_point(|at| *at <= now);
        if due > self.changes {
            self.changes = due;
            self.clients.readdress(now);
        }
    }

    /// Sends what is due on.
    fn send_due(&mut self) {
        let now = self.now();
        let (epoch, listen, clients, late) =
            (self.epoch, &self.listen, &self.clients, &mut self.late);
        let mut deliver = |delivery: Delivery<'_>| {
            let client = clients.get(delivery.client).ok_or(Undelivered::Gone)?;
            let sent = match delivery.way {
                Way::Forward => client.send(delivery.entered, delivery.bytes),
                Way::Reverse if !client.is_reached(delivery.entered) => {
                    return Err(Undelivered::Gone);
                }
                Way::Reverse => listen.send(delivery.bytes, client.address, client.local),
            };
            let nanos = epoch.elapsed().as_nanos() as u64;
            late.add(Time::from_nanos(nanos.max(delivery.due.as_nanos())).since(delivery.due));
            sent.map(|_| ()).map_err(|_| Undelivered::Unsent)
        };
        if let Some(before) = &mut self.before {
            before.advance(now, &mut deliver);
            if before.next() == Time::NEVER {
                self.before = None;
            }
        }
        self.path.advance(now, &mut deliver);
    }

    /// Waits until a socket is readable or something is due; the places of readable clients, and
    /// `None` for the listening socket.
    fn wait(&self) -> io::Result<Vec<Option<usize>>> {
        let change = self.path.address_changes().get(self.changes).copied();
        let before = self.before.as_ref().map_or(Time::NEVER, Path::next);
        let next = self.path.next().min(before).min(change.unwrap_or(Time::NEVER));
        let now = self.now();
        let sleep = if next <= now { Duration::ZERO } else { next.since(now) }.min(MAX_SLEEP);
        let sleep = std::time::Duration::from_nanos(sleep.as_nanos());
        // Its fields differ between systems.
        let timeout = Timespec::try_from(sleep).map_err(|_| ErrorKind::InvalidInput)?;
        let clients = self.clients.places.iter().enumerate();
        let clients = clients.filter_map(|(place, client)| Some((place, client.as_ref()?)));
        let mut places = vec![None];
        let mut polled = vec![PollFd::new(self.listen.socket(), PollFlags::IN)];
        for (place, client) in clients {
            places.push(Some(place));
            polled.push(PollFd::new(&client.socket, PollFlags::IN));
        }
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |(polled, place): (&PollFd<'_>, &Option<usize>)| {
            (!polled.revents().is_empty()).then_some(*place)
        };
        Ok(polled.iter().zip(&places).filter_map(is_ready).collect())
    }

    fn read(&mut self, ready: &[Option<usize>], buffer: &mut [u8]) -> io::Result<()> {
        for place in ready {
            match place {
                None => self.read_clients(buffer)?,
                Some(place) => self.read_server(*place, buffer),
            }
        }
        Ok(())
    }

    fn read_clients(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let (size, address, local) = match self.listen.receive(buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that is gone answered with ICMP.
                Err(error) if is_of_peer(&error) => continue,
                Err(error) => return Err(error),
            };
            let now = self.now();
            // Without a socket for it, a client is not admitted; others go on.
            match self.clients.at(now, address) {
                Ok(Some(client)) => {
                    if let Some(known) = &mut self.clients.places[place_of(client)] {
                        known.local = local;
                    }
                    self.path.inject(now, client, Way::Forward, &buffer[..size]);
                }
                Ok(None) => {}
                Err(_) => self.clients.counts.refused_packets += 1,
            }
        }
        Ok(())
    }

    fn read_server(&mut self, place: usize, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let now = self.now();
            let Some(client) = &mut self.clients.places[place] else { return };
            match client.socket.recv(buffer) {
                Ok(size) => {
                    client.last = now;
                    client.is_answered = true;
                    let id = client.id;
                    self.path.inject(now, id, Way::Reverse, &buffer[..size]);
                }
                // Nobody listens there: the error is read, and the next datagram may find somebody.
                Err(error) if is_of_peer(&error) => {}
                Err(_) => return,
            }
        }
    }
}

/// Whether the error is about an earlier datagram, not about the socket.
fn is_of_peer(error: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | Interrupted
    )
}

#[cfg(test)]
mod tests;
