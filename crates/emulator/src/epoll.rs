//! Waits for files to become ready, or for a time, whichever comes first.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use ontempo_foundation::Time;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::Clock;

/// The key of the timer among the files.
const TIMER: u64 = u64::MAX;

/// Ready files reported at a time; the others follow next time.
const MAX_READY: usize = 64;

const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An epoll set with a timer.
pub(crate) struct Epoll {
    clock: Clock,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer fires.
    armed: Time,
    /// Keys of the files that were ready.
    ready: Vec<u64>,
}

impl Epoll {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { clock, epoll, timer, armed: Time::NEVER, ready: Vec::new() })
    }

    /// Adds `file`, as long as it is open, under the key `name`.
    pub(crate) fn add(&self, file: impl AsFd, name: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, EventData::new_u64(name), flags)?)
    }

    /// Collects ready files without waiting.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        self.collect(Some(&NONE))
    }

    /// Waits until a file is ready, or until `until`.
    pub(crate) fn wait(&mut self, until: Time) -> io::Result<()> {
        if until <= self.clock.now() {
            return self.look();
        }
        if self.armed != until {
            let it_value = self.clock.system_time(until);
            let once = Itimerspec { it_interval: NONE, it_value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
            self.armed = until;
        }
        self.collect(None)
    }

    fn collect(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        self.ready.clear();
        let mut events = [MaybeUninit::uninit(); MAX_READY];
        let events = match epoll::wait(&self.epoll, &mut events, timeout) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            match event.data.u64() {
                TIMER => self.armed = Time::NEVER,
                name => self.ready.push(name),
            }
        }
        Ok(())
    }

    /// Number of ready files.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The key of a ready file.
    pub(crate) fn name(&self, place: usize) -> Option<u64> {
        self.ready.get(place).copied()
    }
}
