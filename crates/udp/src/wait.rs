//! Waiting for the socket, for another thread, or for a time to the microsecond.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

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
}

/// The other end wakes a [`Bell`].
#[derive(Debug)]
pub(super) struct Ringer {
    file: OwnedFd,
    awake: Arc<AtomicBool>,
}

/// What another thread wakes the driver by.
#[derive(Debug)]
pub(super) struct Bell {
    file: OwnedFd,
    /// False while the driver sleeps or is about to: only then is a ring worth a system call.
    awake: Arc<AtomicBool>,
}

/// A bell and who rings it. Linux: one eventfd; elsewhere a pair of sockets.
pub(super) fn bell() -> io::Result<(Ringer, Bell)> {
    let awake = Arc::new(AtomicBool::new(true));
    let (near, far) = files()?;
    Ok((Ringer { file: near, awake: Arc::clone(&awake) }, Bell { file: far, awake }))
}

#[cfg(target_os = "linux")]
fn files() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::event::{EventfdFlags, eventfd};
    let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok((file.try_clone()?, file))
}

#[cfg(not(target_os = "linux"))]
fn files() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    Ok((near.into(), far.into()))
}

impl Ringer {
    /// Wakes the driver, or keeps it from falling asleep. What it is to find was put there before.
    pub(super) fn ring(&self) {
        // Beside the fence of `doze`: either this sees that the driver falls asleep, or the
        // driver, that looks again before it does, sees what was put there.
        fence(Ordering::SeqCst);
        if !self.awake.swap(true, Ordering::AcqRel) {
            // Full means that it has been rung and not heard yet.
            let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }
}

impl Bell {
    /// The driver is about to sleep: whatever is put before it from now on is rung for. What was
    /// put before, it has to look for once more.
    pub(super) fn doze(&self) {
        self.awake.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn hush(&self) {
        let mut bytes = [0; 64];
        let _ = rustix::io::read(&self.file, &mut bytes);
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
        let mut files = [PollFd::new(&socket, wanted), PollFd::new(&self.file, PollFlags::IN)];
        let ahead = until.since(clock.now());
        let sleep = if precise { ahead.saturating_sub(SPIN) } else { ahead };
        let timeout = (until != Time::NEVER).then(|| timespec(sleep));
        let polled = poll(&mut files, timeout.as_ref());
        self.awake.store(true, Ordering::Release);
        match polled {
            Ok(0) if precise => {
                while clock.now() < until {
                    std::hint::spin_loop();
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is = |place: usize| !files[place].revents().is_empty();
        let (readable, woken) = (is(0), is(1));
        if woken {
            self.hush();
        }
        Ok(Ready { readable })
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
