//! The thread that carries packets: from hosts' interfaces into the network, and out of it when
//! they are due.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};

use ontempo_foundation::{Duration, Time};
use rustix::event::epoll::EventFlags;

use crate::clock::Clock;
use crate::lateness::Lateness;
use crate::network::{Delivery, Network};
use crate::waiter::Waiter;
use crate::{Control, sys};

/// This near, the thread looks at the clock instead of sleeping: what a sleep on this kind of
/// machine overshoots by.
pub(crate) const SPIN: Duration = Duration::from_micros(60);

/// The longest sleep, after which it looks whether the run was cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// The most packets read off one interface before what is due is looked at.
const MOST_AT_ONCE: usize = 32;

/// Carries packets of a run.
pub(crate) struct Carrier {
    clock: Clock,
    network: Network,
    interfaces: Vec<File>,
    /// The largest packet that an interface hands out.
    mtu: usize,
    waiter: Waiter,
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
    /// The smallest step of the clock that was seen.
    pub(crate) clock_step: Duration,
}

impl Carrier {
    /// One that carries between `interfaces`, one a host.
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
        let lateness = Lateness::default();
        Ok(Self { clock, network, interfaces, mtu, waiter, lateness, refused: 0 })
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
            let now = self.clock.now();
            let left = self.network.next().min(end).since(now);
            if left <= SPIN {
                self.waiter.look()?;
            } else {
                self.waiter.wait(now + left.saturating_sub(SPIN).min(LONGEST_SLEEP))?;
            }
            for ready in 0..self.waiter.ready() {
                if let Some(place) = self.waiter.name(ready) {
                    self.read(place as usize)?;
                }
            }
        }
        // All that was due by the end is counted, and nothing later.
        self.advance(end.min(self.clock.now()));
        let Self { network, lateness, refused, clock, .. } = self;
        Ok(Carried { network, lateness, refused, went_first, clock_step: clock.step() })
    }

    fn advance(&mut self, now: Time) {
        let Self { network, interfaces, lateness, refused, clock, .. } = self;
        network.advance(now, &mut |Delivery { host, bytes, due }| {
            lateness.note(clock.now().since(due));
            // A host takes a packet whole or not at all.
            if (&interfaces[host]).write(bytes).is_err() {
                *refused += 1;
            }
        });
    }

    fn read(&mut self, place: usize) -> io::Result<()> {
        let mtu = self.mtu;
        let mut interface = &self.interfaces[place];
        for _ in 0..MOST_AT_ONCE {
            // The kernel hands a packet over as soon as it is sent, so that reading it is as near
            // to its sending as can be.
            let now = self.clock.now();
            let came = self.network.inject(now, |bytes| {
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
