//! Waiting for the socket, for another thread, or for a time to the microsecond.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use ontempo_foundation::{Duration, Time};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::Clock;

/// How long before a precise time the sleep ends: a wake-up takes up to 50 us on an idle machine
/// with an ordinary kernel. The rest is spent polling the clock.
const SPIN: Duration = Duration::from_micros(60);

/// What ended a wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) readable: bool,
}

/// Wakes the driver from other threads.
#[derive(Debug)]
pub(super) struct Waker {
    file: OwnedFd,
    state: Arc<State>,
}

/// What a driver and its wakers share.
#[derive(Debug)]
struct State {
    /// False while the driver sleeps or is about to: only then a wake needs a system call.
    awake: AtomicBool,
    /// When the driver's sleep ends at the latest; `u64::MAX` before it is known. Nanoseconds of its clock.
    until: AtomicU64,
}

/// The driver's end of a [`Waker`].
#[derive(Debug)]
pub(super) struct WakeEvents {
    file: OwnedFd,
    state: Arc<State>,
}

/// A driver's wait and its waker. Linux: one eventfd; elsewhere a pair of sockets.
pub(super) fn wake_pair() -> io::Result<(Waker, WakeEvents)> {
    let state = State { awake: AtomicBool::new(true), until: AtomicU64::new(u64::MAX) };
    let state = Arc::new(state);
    let (near, far) = files()?;
    Ok((Waker { file: near, state: Arc::clone(&state) }, WakeEvents { file: far, state }))
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

impl Waker {
    /// Wakes the driver, or keeps it from falling asleep. Its data was stored before.
    pub(super) fn wake(&self) {
        // Pairs with the fence of `prepare_to_sleep`: either this sees that the driver falls
        // asleep, or the driver, which checks again before it does, sees the data.
        fence(Ordering::SeqCst);
        if !self.state.awake.swap(true, Ordering::AcqRel) {
            // Full means that it is awake already.
            let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }

    /// As [`wake`](Self::wake), unless the driver's sleep ends by `latest` anyway.
    pub(super) fn wake_by(&self, latest: Time) {
        fence(Ordering::SeqCst);
        // A sleep that begins now stores its end behind the check for data, and before `awake` that
        // it is not known.
        let is_awake = self.state.awake.load(Ordering::Acquire);
        if is_awake || self.state.until.load(Ordering::Acquire) > latest.as_nanos() {
            self.wake();
        }
    }
}

impl WakeEvents {
    /// The driver is about to sleep: from now on `wake` makes a system call. Data stored
    /// before must be checked once more.
    pub(super) fn prepare_to_sleep(&self) {
        self.state.until.store(u64::MAX, Ordering::Release);
        self.state.awake.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The sleep that was prepared ends then.
    pub(super) fn note_end(&self, until: Time) {
        self.state.until.store(until.as_nanos(), Ordering::Release);
    }

    fn hush(&self) {
        let mut bytes = [0; 64];
        let _ = rustix::io::read(&self.file, &mut bytes);
    }

    /// Waits until `until`, until the socket is as `wanted`, or until woken. A precise wait sleeps
    /// until shortly before, then polls the clock.
    pub(super) fn wait(
        &self,
        socket: impl AsFd,
        wanted: PollFlags,
        clock: Clock,
        until: Time,
        precise: bool,
    ) -> io::Result<Ready> {
        let mut files = [PollFd::new(&socket, wanted), PollFd::new(&self.file, PollFlags::IN)];
        let ahead = until.since(clock.now());
        let sleep = if precise { ahead.saturating_sub(SPIN) } else { ahead };
        let timeout = (until != Time::NEVER).then(|| timespec(sleep));
        let polled = poll(&mut files, timeout.as_ref());
        self.state.awake.store(true, Ordering::Release);
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

/// Sets the timer slack of this thread to the minimum: Linux otherwise delays wake-ups by up to
/// 50 us.
pub(super) fn minimize_timer_slack() {
    #[cfg(target_os = "linux")]
    {
        // Then it runs with the default timer slack.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}
