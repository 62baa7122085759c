//! Waiting for the socket, for another thread, or for a time to the microsecond.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ontempo_foundation::{Duration, Time};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::Clock;

/// How long before a precise time sleep ends: what a wake-up takes on a machine at rest, 50 us with
/// an ordinary kernel. The rest is spent looking at the clock.
const SPIN: Duration = Duration::from_micros(60);

/// What ended a wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) woken: bool,
}

/// The other end wakes a [`Bell`].
#[derive(Debug)]
pub(super) struct Ringer(OwnedFd);

/// What another thread wakes the driver by.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

/// A bell and who rings it. Linux: one eventfd; elsewhere a pair of sockets.
pub(super) fn bell() -> io::Result<(Ringer, Bell)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::event::{EventfdFlags, eventfd};
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok((Ringer(file.try_clone()?), Bell(file)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok((Ringer(near.into()), Bell(far.into())))
    }
}

impl Ringer {
    /// Wakes the driver, or keeps it from falling asleep.
    pub(super) fn ring(&self) {
        // Full means that it has been rung and not heard yet.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Bell {
    pub(super) fn hush(&self) {
        let mut bytes = [0; 64];
        let _ = rustix::io::read(&self.0, &mut bytes);
    }

    /// Waits until `until`, the socket is ready (for sending too, where `blocked`), or the bell
    /// rings. A precise wait sleeps until shortly before, and looks at the clock from then on.
    pub(super) fn wait(
        &self,
        socket: impl AsFd,
        blocked: bool,
        clock: Clock,
        until: Time,
        precise: bool,
    ) -> io::Result<Ready> {
        let wanted = if blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut files = [PollFd::new(&socket, wanted), PollFd::new(&self.0, PollFlags::IN)];
        let ahead = until.since(clock.now());
        let sleep = if precise { ahead.saturating_sub(SPIN) } else { ahead };
        let timeout = (until != Time::NEVER).then(|| timespec(sleep));
        match poll(&mut files, timeout.as_ref()) {
            Ok(0) if precise => {
                while clock.now() < until {
                    std::hint::spin_loop();
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is = |place: usize| !files[place].revents().is_empty();
        Ok(Ready { readable: is(0), woken: is(1) })
    }
}

fn timespec(span: Duration) -> Timespec {
    const NANOS: u64 = 1_000_000_000;
    let nanos = span.as_nanos();
    Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as _ }
}

/// Lets this thread's sleeps end when they should: Linux otherwise adds 50 us, so that wake-ups
/// fall together.
pub(super) fn be_punctual() {
    #[cfg(target_os = "linux")]
    {
        // As one that is not punctual.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}
