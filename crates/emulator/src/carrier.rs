//! The thread that carries packets: from hosts' interfaces into the network, and out of it when
//! they are due.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::thread;

use ontempo_foundation::{Duration, Time};
use rustix::event::epoll::EventFlags;

use crate::clock::Clock;
use crate::lateness::Lateness;
use crate::network::{Delivery, Network};
use crate::rest::Rest;
use crate::waiter::Waiter;
use crate::{Control, sys};

/// This near, the thread looks at the clock instead of sleeping: what a sleep on this kind of
/// machine overshoots by.
pub(crate) const SPIN: Duration = Duration::from_micros(60);

/// The shortest sleep that is worth its system call.
const MIN_SLEEP: Duration = Duration::from_micros(5);

/// The longest sleep, after which it looks whether the run was cancelled.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// The most packets read off one interface before what is due is looked at.
const MAX_BATCH: usize = 32;

/// Carries packets of a run.
pub(crate) struct Carrier {
    clock: Clock,
    network: Network,
    interfaces: Vec<File>,
    /// The largest packet that an interface hands out.
    mtu: usize,
    waiter: Waiter,
    rest: Rest,
    lateness: Lateness,
    /// Packets that a host would not take.
    refused: u64,
}

/// What was carried, and how.
pub(crate) struct Carried {
    pub(crate) network: Network,
    pub(crate) lateness: Lateness,
    pub(crate) refused: u64,
    /// Whether the thread went before all ordinary ones.
    pub(crate) went_first: bool,
}

impl Carrier {
    /// One that carries between `interfaces`.
    ///
    /// # Errors
    /// Where the system refuses a timer, or the like.
    pub(crate) fn new(
        clock: Clock,
        network: Network,
        interfaces: Vec<File>,
        mtu: usize,
    ) -> io::Result<Self> {
        let waiter = Waiter::new(clock)?;
        for (place, interface) in interfaces.iter().enumerate() {
            waiter.add(interface, place as u64, EventFlags::IN)?;
        }
        let (rest, lateness) = (Rest::default(), Lateness::default());
        Ok(Self { clock, network, interfaces, mtu, waiter, rest, lateness, refused: 0 })
    }

    /// Carries until `end`, or until `control` says so.
    ///
    /// # Errors
    /// Where the system refuses to wait, or an interface fails.
    pub(crate) fn run(mut self, end: Time, control: &Control) -> io::Result<Carried> {
        // Without the right to, it carries as well as an ordinary thread can.
        let went_first = sys::run_first().is_ok();
        loop {
            let now = self.clock.now();
            if now >= end || control.is_cancelled() {
                break;
            }
            self.advance(now);
            self.wait(end)?;
            for ready in 0..self.waiter.ready() {
                if let Some(place) = self.waiter.name(ready) {
                    self.read(place as usize)?;
                }
            }
        }
        // All that was due by the end is counted, and nothing later.
        self.advance(end.min(self.clock.now()));
        let Self { network, lateness, refused, .. } = self;
        Ok(Carried { network, lateness, refused, went_first })
    }

    /// Waits until a packet may have come or something is nearly due.
    fn wait(&mut self, end: Time) -> io::Result<()> {
        let now = self.clock.now();
        self.rest.count(now, Duration::ZERO);
        let left = self.network.next().min(end).since(now);
        if let Some(pause) = self.rest.is_overdue() {
            thread::sleep(std::time::Duration::from_nanos(pause.as_nanos()));
            self.waiter.look()?;
        } else if left > SPIN {
            self.waiter.wait(now + left.saturating_sub(SPIN).min(MAX_SLEEP))?;
        } else if left > MIN_SLEEP && self.rest.is_owed() {
            self.waiter.wait(now + left)?;
        } else {
            return self.waiter.look();
        }
        let woken = self.clock.now();
        self.rest.count(woken, woken.since(now));
        Ok(())
    }

    fn advance(&mut self, now: Time) {
        let Self { network, interfaces, lateness, refused, clock, .. } = self;
        network.advance(now, &mut |Delivery { interface, bytes, due }| {
            lateness.note(clock.now().since(due));
            // A host takes a packet whole or not at all.
            if (&interfaces[interface]).write(bytes).is_err() {
                *refused += 1;
            }
        });
    }

    fn read(&mut self, place: usize) -> io::Result<()> {
        let mtu = self.mtu;
        let mut interface = &self.interfaces[place];
        for _ in 0..MAX_BATCH {
            // The kernel hands a packet over as soon as it is sent, so that reading it is as near
            // to its sending as can be.
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
