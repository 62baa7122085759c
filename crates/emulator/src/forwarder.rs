//! The forwarding thread: reads packets from hosts' interfaces into the network and writes them to
//! their destination when they are due.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::thread;

use ontempo_foundation::{Duration, Time};
use rustix::event::epoll::EventFlags;

use crate::changes::Incoming;
use crate::clock::Clock;
use crate::epoll::Epoll;
use crate::lateness::Lateness;
use crate::network::{Delivery, Network};
use crate::sleep_quota::SleepQuota;
use crate::{Control, sys};

/// Closer than this to the next packet the thread polls the clock instead of sleeping: by about so
/// much a sleep overshoots on a virtual machine.
pub(crate) const SPIN: Duration = Duration::from_micros(60);

/// The shortest sleep that is worth its system call.
const MIN_SLEEP: Duration = Duration::from_micros(5);

/// The longest sleep, after which the thread checks for cancellation.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Packets read from one interface at a time, before due packets are written.
const MAX_BATCH: usize = 32;

/// The key of the changes among the files.
const CHANGES: u64 = u64::MAX - 1;

/// Forwards the packets of a run.
pub(crate) struct Forwarder {
    clock: Clock,
    network: Network,
    interfaces: Vec<File>,
    /// Changes of links, if somebody may ask for them.
    incoming: Option<Incoming>,
    /// The MTU of the interfaces, in bytes.
    mtu: usize,
    epoll: Epoll,
    sleep_quota: SleepQuota,
    lateness: Lateness,
    /// Packets that the kernel refused to deliver to a host.
    refused: u64,
}

/// The network after a run, and how exactly packets were forwarded.
pub(crate) struct Forwarded {
    pub(crate) network: Network,
    pub(crate) lateness: Lateness,
    pub(crate) refused: u64,
    /// Whether the thread ran with real-time priority (`SCHED_FIFO`).
    pub(crate) realtime: bool,
}

impl Forwarder {
    /// A forwarder between `interfaces`.
    ///
    /// # Errors
    /// If the system refuses a timer or an epoll descriptor.
    pub(crate) fn new(
        clock: Clock,
        network: Network,
        interfaces: Vec<File>,
        mtu: usize,
        incoming: Option<Incoming>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(clock)?;
        for (place, interface) in interfaces.iter().enumerate() {
            epoll.add(interface, place as u64, EventFlags::IN)?;
        }
        if let Some(incoming) = &incoming {
            epoll.add(incoming.wake(), CHANGES, EventFlags::IN)?;
        }
        let (sleep_quota, lateness) = (SleepQuota::default(), Lateness::default());
        let refused = 0;
        Ok(Self {
            clock,
            network,
            interfaces,
            incoming,
            mtu,
            epoll,
            sleep_quota,
            lateness,
            refused,
        })
    }

    /// Forwards until `end`, or until `control` is cancelled.
    ///
    /// # Errors
    /// If waiting fails, or reading from an interface.
    pub(crate) fn run(mut self, end: Time, control: &Control) -> io::Result<Forwarded> {
        // Without CAP_SYS_NICE it runs at ordinary priority.
        let realtime = sys::set_realtime_priority(sys::FORWARDING_PRIORITY).is_ok();
        loop {
            let now = self.clock.now();
            if now >= end || control.is_cancelled() {
                break;
            }
            self.advance(now);
            self.wait(end)?;
            for ready in 0..self.epoll.ready() {
                match self.epoll.name(ready) {
                    Some(CHANGES) => self.change(end),
                    Some(place) => self.read(place as usize)?,
                    None => {}
                }
            }
        }
        // All that was due by the end is counted, and nothing later.
        self.advance(end.min(self.clock.now()));
        let Self { network, lateness, refused, .. } = self;
        Ok(Forwarded { network, lateness, refused, realtime })
    }

    /// Waits until a packet may have arrived or one is nearly due.
    fn wait(&mut self, end: Time) -> io::Result<()> {
        let now = self.clock.now();
        self.sleep_quota.count(now, Duration::ZERO);
        let left = self.network.next().min(end).since(now);
        if let Some(pause) = self.sleep_quota.is_overdue() {
            thread::sleep(std::time::Duration::from_nanos(pause.as_nanos()));
            self.epoll.look()?;
        } else if left > SPIN {
            self.epoll.wait(now + left.saturating_sub(SPIN).min(MAX_SLEEP))?;
        } else if left > MIN_SLEEP && self.sleep_quota.is_owed() {
            self.epoll.wait(now + left)?;
        } else {
            return self.epoll.look();
        }
        let woken = self.clock.now();
        self.sleep_quota.count(woken, woken.since(now));
        Ok(())
    }

    /// Makes the changes of links that wait.
    fn change(&mut self, end: Time) {
        let now = self.clock.now().min(end);
        self.advance(now);
        let Self { incoming, network, .. } = self;
        if let Some(incoming) = incoming {
            incoming.take(now, |link, schedule| network.change(now, link, schedule));
        }
    }

    fn advance(&mut self, now: Time) {
        let Self { network, interfaces, lateness, refused, clock, .. } = self;
        network.advance(now, &mut |Delivery { interface, bytes, due }| {
            lateness.note(clock.now().since(due));
            // A TUN device takes a packet whole or not at all.
            if (&interfaces[interface]).write(bytes).is_err() {
                *refused += 1;
            }
        });
    }

    fn read(&mut self, place: usize) -> io::Result<()> {
        let mtu = self.mtu;
        let mut interface = &self.interfaces[place];
        for _ in 0..MAX_BATCH {
            // The kernel passes a packet on as soon as it is sent, so the time of reading is the
            // best estimate of its sending time.
            let now = self.clock.now();
            let came = self.network.inject(now, place, |bytes| {
                bytes.resize(mtu, 0);
                match interface.read(bytes) {
                    Ok(length) => {
                        bytes.truncate(length);
                        Ok(true)
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                    Err(error) => Err(error),
                }
            })?;
            if !came {
                break;
            }
        }
        Ok(())
    }
}
