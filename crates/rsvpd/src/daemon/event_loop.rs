//! The loop around the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use ontempo_foundation::{RandomStream, Time};
use ontempo_reservation::machine::{
    Arrival, ControlRequest, Event, InterfaceId, Machine, TrafficControl,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lock::{self, Lock};
use super::neighbours_file::NeighboursFile;
use super::observed::Observed;
use super::owners::Owners;
use super::state::{Daemon, SETTLING};
use super::sweep::sweep;
use crate::applications::{Applications, Id};
use crate::config::Config;
use crate::enforcement::Enforcement;
use crate::error::DaemonError;
use crate::log::{Level, Log};
use crate::notify::notify;
use crate::packets::{Packets, SocketKind};
use crate::routes::{Changes, Kernel};

/// Packets received from one socket before others are served.
const MAX_BATCH: usize = 64;
/// Kinds of reasons for dropping packets that are counted apart.
const MAX_REASONS: usize = 256;

/// What the process is told while it runs: each stream becomes readable.
#[derive(Clone, Copy)]
pub struct Signals<'a> {
    /// To end: state and classes are removed.
    pub stop: &'a UnixStream,
    /// To end, for another daemon to start: state and classes stay.
    pub restart: &'a UnixStream,
    /// To read the configuration again.
    pub reload: &'a UnixStream,
    /// Reads it.
    pub read: &'a dyn Fn() -> Result<Config, DaemonError>,
}

/// A descriptor that is ready.
enum Ready {
    Stop,
    Restart,
    Reload,
    Packets(SocketKind),
    Changes,
    Connect,
    Application(Id, PollFlags),
}

/// How the daemon ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    ForGood,
    ForRestart,
}

/// Runs the daemon until it is told to stop; then tears down the senders and reservations of this
/// host's applications, and removes all classes. `log` gets a line for each event.
///
/// # Errors
/// Where it cannot start: missing rights, another daemon, an interface with another program's
/// qdisc.
pub fn run(config: Config, signals: Signals<'_>, log: Log<'_>) -> Result<(), DaemonError> {
    let packets = Packets::open().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => DaemonError::System(
            "rsvpd needs the rights of root (CAP_NET_RAW and CAP_NET_ADMIN); run it with sudo"
                .to_owned(),
        ),
        _ => DaemonError::system("cannot open sockets for RSVP", &error),
    })?;
    let lock = Lock::take(Path::new(lock::FOLDER))?;
    sweep(&lock);
    let mut daemon = Daemon::open(config, packets, log)?;
    let of_namespace = NeighboursFile::of_this_namespace(lock.neighbours());
    daemon.neighbours_file =
        Some(of_namespace.map_err(|error| DaemonError::system("cannot open a socket", &error))?);
    daemon.set_up_all()?;
    daemon.recall_neighbours();
    daemon.say(Level::Notice, &format!("ready, process {}", std::process::id()));
    notify("READY=1");
    let ended = daemon.run_loop(&signals);
    notify("STOPPING=1");
    match ended {
        Ok(Ended::ForRestart) => {
            daemon.look(daemon.now());
            daemon.say(Level::Notice, "ends for a restart: its classes stay");
        }
        _ => daemon.end(),
    }
    ended.map(|_| ())
}

/// Different after each start, so that numbers and jitter are.
fn seed() -> Result<u64, DaemonError> {
    let mut bytes = [0; 8];
    let read = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| DaemonError::system("/dev/urandom", &error))?;
    Ok(u64::from_ne_bytes(bytes))
}

impl<'a> Daemon<'a> {
    /// Without interfaces.
    pub(super) fn open(
        config: Config,
        packets: Packets,
        log: Log<'a>,
    ) -> Result<Self, DaemonError> {
        let netlink =
            |error: io::Error| DaemonError::system("cannot open netlink for routes", &error);
        let changes = Changes::open().map_err(netlink)?;
        let kernel = Kernel::open().map_err(netlink)?;
        let applications = Applications::listen(&config)?;
        let machine = Machine::new(config.machine(), kernel, RandomStream::new(seed()?, "rsvpd"));
        Ok(Daemon {
            config,
            machine,
            packets,
            changes,
            enforcement: Enforcement::default(),
            applications,
            owners: Owners::default(),
            interfaces: BTreeMap::new(),
            started: Instant::now(),
            purge_at: BTreeMap::new(),
            update_at: Time::NEVER,
            retry_at: Time::NEVER,
            failed: BTreeMap::new(),
            dropped: BTreeMap::new(),
            bad_packets: 0,
            packets_in: 0,
            packets_out: 0,
            observed: Observed::default(),
            neighbours_file: None,
            log,
        })
    }
}

impl Daemon<'_> {
    fn run_loop(&mut self, signals: &Signals<'_>) -> Result<Ended, DaemonError> {
        loop {
            for ready in self.wait(signals)? {
                match ready {
                    Ready::Stop => return Ok(Ended::ForGood),
                    Ready::Restart => return Ok(Ended::ForRestart),
                    Ready::Reload => self.on_reload(signals),
                    Ready::Packets(from) => self.receive_packets(from)?,
                    Ready::Changes => {
                        self.changes.drain();
                        self.update_at = self.update_at.min(self.now() + SETTLING);
                    }
                    Ready::Connect => {
                        let now = self.now();
                        if let Some(error) = self.applications.accept(now) {
                            self.say(Level::Error, &format!("cannot accept applications: {error}"));
                        }
                        if let Some(refused) = self.applications.take_refused(now) {
                            self.say(Level::Warning, &refused);
                        }
                    }
                    Ready::Application(id, flags) => self.serve_application(id, flags),
                }
            }
            let now = self.now();
            if self.update_at <= now {
                self.update_at = Time::NEVER;
                self.follow_interfaces();
                self.machine.routes_changed(now);
            }
            self.purge(now);
            self.retry(now);
            self.machine.on_timeout(now);
            self.settle();
            self.observe(now);
        }
    }

    fn on_reload(&mut self, signals: &Signals<'_>) {
        // Several signals are one reload.
        let _ = (&*signals.reload).read(&mut [0; 64]);
        notify("RELOADING=1");
        self.reload((signals.read)().map_err(|error| error.to_string()));
        notify("READY=1");
    }

    /// Waits for input or the next timer; returns what can be read or written.
    fn wait(&self, signals: &Signals<'_>) -> Result<Vec<Ready>, DaemonError> {
        let mut sources = vec![
            (Ready::Stop, signals.stop.as_fd(), PollFlags::IN),
            (Ready::Restart, signals.restart.as_fd(), PollFlags::IN),
            (Ready::Reload, signals.reload.as_fd(), PollFlags::IN),
        ];
        let packets = self.packets.sources();
        sources.extend(
            packets.into_iter().map(|(from, fd)| (Ready::Packets(from), fd, PollFlags::IN)),
        );
        sources.push((Ready::Changes, self.changes.as_fd(), PollFlags::IN));
        let now = self.now();
        let listener = self.applications.listener(now);
        sources.extend(listener.map(|fd| (Ready::Connect, fd, PollFlags::IN)));
        sources.extend(self.applications.connections().map(|(id, fd, waits)| {
            let flags = if waits { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            (Ready::Application(id, flags), fd, flags)
        }));
        let mut polled: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let due = self.machine.poll_timeout().unwrap_or(Time::NEVER);
        let due = self.purge_at.values().copied().fold(due, Time::min);
        let due = due.min(self.update_at).min(self.applications.accept_at(now));
        let due = due.min(self.observed.due()).min(self.retry_at);
        let wait = (due != Time::NEVER).then(|| {
            let nanos = due.as_nanos().saturating_sub(self.now().as_nanos());
            let (secs, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
            // Both fit: nanoseconds of 64 bits are fewer seconds.
            Timespec { tv_sec: secs as i64, tv_nsec: nanos as _ }
        });
        match poll(&mut polled, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(DaemonError::system("cannot wait", &error)),
        }
        let flags: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        let ready = sources.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty());
        Ok(ready
            .map(|((ready, ..), flags)| match ready {
                Ready::Application(id, _) => Ready::Application(id, flags),
                other => other,
            })
            .collect())
    }

    fn receive_packets(&mut self, from: SocketKind) -> Result<(), DaemonError> {
        for _ in 0..MAX_BATCH {
            let now = self.now();
            let received = self.packets.receive(from);
            let packet = match received {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(()),
                // Also reported here when an interface goes down.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => return Ok(()),
                Err(error) => return Err(DaemonError::system("cannot receive RSVP", &error)),
            };
            self.packets_in += 1;
            let crate::packets::Packet { interface, source, ttl, payload } = packet;
            self.machine.on_packet(now, Arrival { interface, source, ttl, payload });
        }
        Ok(())
    }

    /// Carries out all output of the machine: traffic control first, so that no RESV or event goes
    /// out for a reservation that the system then refuses.
    pub(super) fn settle(&mut self) {
        loop {
            self.enforce();
            let mut idle = true;
            while let Some(packet) = self.machine.poll_transmit() {
                idle = false;
                match self.packets.send(&packet) {
                    Ok(()) => self.packets_out += 1,
                    Err(error) => self.count_drop(&format!("cannot send: {error}"), None),
                }
            }
            while let Some(event) = self.machine.poll_event() {
                idle = false;
                match event {
                    Event::Dropped { interface, source, reason } => {
                        self.count_drop(&reason, Some((interface, source)));
                    }
                    Event::Changed(change) => self.log_change(&change),
                    event => self.notify(event),
                }
            }
            if idle {
                return;
            }
        }
    }

    fn enforce(&mut self) {
        loop {
            let mut requests: Vec<ControlRequest> = Vec::new();
            while let Some(request) = self.machine.poll_control() {
                requests.push(request);
            }
            if requests.is_empty() {
                return;
            }
            if !self.control(&requests) {
                self.check_disciplines();
            }
        }
    }

    /// False where traffic control has refused any of them.
    pub(super) fn control(&mut self, requests: &[ControlRequest]) -> bool {
        let now = self.now();
        let classes: Vec<String> = requests
            .iter()
            .map(|request| {
                let (interface, handle) = request.place();
                self.enforcement.class_name(interface, handle)
            })
            .collect();
        let failed = self.enforcement.apply(requests);
        let stuck = self.say_stuck();
        for (place, (request, before)) in requests.iter().zip(classes).enumerate() {
            let name = self.name_of(request.place().0);
            let stays = matches!(request, ControlRequest::Remove(..))
                && stuck.iter().any(|one| one.device == name && one.class == before);
            if !stays && failed.iter().all(|(other, _)| *other != place) {
                self.log_class(request, before);
            }
        }
        let done = failed.is_empty();
        for (place, error) in failed {
            self.count_error(0, 1);
            let (interface, handle) = requests[place].place();
            let name = self.name_of(interface);
            self.say(Level::Error, &format!("{name}: traffic control refused: {error}"));
            self.machine.control_failed(now, interface, handle, error.value);
        }
        done
    }

    /// Counts a dropped packet; the first for each reason that is counted by itself is logged.
    fn count_drop(&mut self, reason: &str, from: Option<(InterfaceId, std::net::IpAddr)>) {
        self.bad_packets += u64::from(from.is_some());
        self.count_error(1, 0);
        if count(&mut self.dropped, reason) {
            let from = from.map_or_else(String::new, |(interface, source)| {
                format!(" from {source} by {}", self.name_of(interface))
            });
            self.say(Level::Warning, &format!("dropped an RSVP packet{from}: {reason}"));
        }
    }

    /// Tears down the senders and reservations of this host's applications, then traffic control.
    fn end(&mut self) {
        let now = self.now();
        self.owners.all_of(None).end(&mut self.machine, now);
        self.settle();
        self.enforcement.end();
        self.say_stuck();
        if let Err(what) = self.end_all_left() {
            self.say(Level::Error, &what);
        }
        if let Some(file) = &self.neighbours_file {
            file.remove();
        }
    }
}

/// Counts a reason, beyond [`MAX_REASONS`] of them among the others; true the first time.
fn count(dropped: &mut BTreeMap<String, u64>, reason: &str) -> bool {
    let has_room = dropped.len() < MAX_REASONS || dropped.contains_key(reason);
    let counted = dropped.entry(if has_room { reason } else { "others" }.to_owned()).or_default();
    *counted += 1;
    *counted == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_varies_the_reason_causes_no_line_for_each_packet() {
        let mut dropped = BTreeMap::new();
        let reasons = (0..10_000).map(|number| format!("an object of {number} bytes"));
        let lines = reasons.filter(|reason| count(&mut dropped, reason)).count();
        assert_eq!((lines, dropped.len()), (MAX_REASONS + 1, MAX_REASONS + 1));
        assert_eq!(dropped.values().sum::<u64>(), 10_000);
    }
}
