//! Units on their way from a connection to the thread that sends datagrams, without another thread between.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Time};
use ontempo_transport::live::{Connection, ReceiveFlow};
use ontempo_transport::{ConnectionStatistics, Delivery};
use ontempo_udp::{Clock, Wake};

use crate::error::Error;
use crate::flowing::Delays;
use crate::latency::patience;
use crate::message::{Content, read};
use crate::receiver::{Receiver, ReceiverEvent, ReceiverHandler, Stream};
use crate::sink::Sink;

/// Sentences about units that are no messages, kept until the receiver asks; further ones are not.
const MAX_UNREADABLE: usize = 16;

/// The flow whose units the thread takes whenever it wakes up to send.
#[derive(Default)]
pub(crate) struct Intake {
    state: Mutex<State>,
    /// The flow may have more than was taken.
    has_more: AtomicBool,
    /// How long what has arrived may lie unread, ns.
    patience: AtomicU64,
    /// Held while what has arrived is read: whoever detaches has the last reference to the flow, and not the thread that plays.
    visiting: Mutex<()>,
    /// Nothing is to be taken any more: who says so need not wait for all that has come.
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    flow: Option<Attached>,
    notes: Notes,
}

struct Attached {
    flow: Arc<ReceiveFlow>,
    /// The same moment by the connection's clock and by the thread's.
    moment: (Time, Time),
}

/// What the receiver is to know of the units that were taken.
#[derive(Default)]
pub(crate) struct Notes {
    delays: Delays,
    unreadable: Vec<String>,
}

impl Intake {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if [`take`](Self::take) may find something.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Acquire)
    }

    /// What has arrived may lie unread for so long; none: it is read by the thread of the endpoint.
    pub(crate) fn allow(&self, patience: Duration) {
        self.patience.store(patience.as_nanos(), Ordering::Relaxed);
    }

    /// Has the endpoint of the flow read what has arrived, if that may wait.
    pub(crate) fn visit(&self) {
        let patience = Duration::from_nanos(self.patience.load(Ordering::Relaxed));
        if patience == Duration::ZERO {
            return;
        }
        let _visiting = self.visiting.lock().unwrap_or_else(PoisonError::into_inner);
        let attached = self.lock().flow.as_ref().map(|attached| Arc::clone(&attached.flow));
        // Hooks are called without the lock of the state.
        if let Some(flow) = attached {
            flow.visit(patience);
        }
    }

    /// Gives `to` what has come, with the time at which it came, until `to` breaks: it has room for one at least.
    pub(crate) fn take(&self, mut to: impl FnMut(Time, Content) -> ControlFlow<()>) {
        if self.is_over.load(Ordering::Acquire) || !self.has_more.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut state = self.lock();
        let State { flow, notes } = &mut *state;
        let Some(Attached { flow, moment: (there, here) }) = flow else { return };
        while let Some(Ok(Some(delivery))) = flow.receive_within(Wall::ZERO) {
            let Delivery::Unit(unit) = delivery else { continue };
            notes.delays.count(&unit);
            let came = Time::ZERO
                + here.since(Time::ZERO).saturating_sub(there.since(unit.arrived))
                + unit.arrived.since(*there);
            let content = match read(unit.id, &unit.data) {
                Ok(content) => content,
                Err(sentence) => {
                    if notes.unreadable.len() < MAX_UNREADABLE {
                        notes.unreadable.push(sentence);
                    }
                    continue;
                }
            };
            if to(came, content).is_break() || self.is_over.load(Ordering::Acquire) {
                self.has_more.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// Units of this flow are taken from now on: at once if `wake`'s driver wakes up within `patience` anyway, else it is
    /// woken.
    pub(crate) fn attach(
        self: &Arc<Self>,
        flow: &Arc<ReceiveFlow>,
        (theirs, ours): (Clock, Clock),
        (wake, patience): (Wake, Duration),
    ) {
        // It is not known yet for this connection.
        self.allow(Duration::ZERO);
        let moment = (theirs.now(), ours.now());
        self.lock().flow = Some(Attached { flow: Arc::clone(flow), moment });
        let intake = Arc::clone(self);
        flow.on_change(move || {
            intake.has_more.store(true, Ordering::Release);
            wake.wake_by(ours.now() + patience);
        });
        flow.wake_no_reader(true);
    }

    /// Units of this flow are taken, and nobody is woken for them.
    #[cfg(test)]
    pub(crate) fn follow(&self, flow: ReceiveFlow) {
        self.lock().flow =
            Some(Attached { flow: Arc::new(flow), moment: (Time::ZERO, Time::ZERO) });
        self.has_more.store(true, Ordering::Release);
    }

    /// Nothing is taken of the flow any more.
    pub(crate) fn detach(&self) {
        self.is_over.store(true, Ordering::Release);
        // The hook is called without the lock.
        let attached = self.lock().flow.take();
        self.is_over.store(false, Ordering::Release);
        drop(self.visiting.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(Attached { flow, .. }) = attached {
            flow.on_change(|| {});
            flow.wake_no_reader(false);
        }
    }

    /// What has been noted since the last call.
    pub(crate) fn notes(&self) -> Notes {
        std::mem::take(&mut self.lock().notes)
    }
}

impl<H: ReceiverHandler> Receiver<H> {
    /// True if the thread that sends datagrams takes the units of this flow from now on.
    pub(crate) fn attach(&mut self, over: &Connection, flow: &Arc<ReceiveFlow>) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.sink.attach(over.clock(), flow))
    }

    /// Whether the receiver has to take them itself again: all has been taken, or the thread has ended; false after `limit`.
    pub(crate) fn is_given_back(&self, flow: &ReceiveFlow, limit: Wall) -> bool {
        flow.over(limit) || self.stream.as_ref().is_none_or(|stream| stream.sink.has_ended())
    }

    /// The receiver takes them itself again.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        if let Some(intake) = self.intake() {
            intake.detach();
        }
        self.take_notes()
    }

    fn intake(&self) -> Option<&Arc<Intake>> {
        self.stream.as_ref().and_then(|stream| stream.sink.intake())
    }

    /// How long what has arrived may lie unread, by the round trip.
    pub(crate) fn allow_patience(&self, over: &ConnectionStatistics) {
        let latency = self.stream.as_ref().and_then(Stream::latency);
        if let (Some(intake), Some(latency)) = (self.intake(), latency) {
            let patience = over.round_trip.map(|round_trip| patience(latency, round_trip));
            intake.allow(patience.unwrap_or(Duration::ZERO));
        }
    }

    /// Reports and counts what was noted of units that were taken.
    pub(crate) fn take_notes(&mut self) -> Result<(), Error> {
        let Some(Notes { delays, unreadable }) = self.intake().map(|intake| intake.notes()) else {
            return Ok(());
        };
        self.delays.add_all(&delays);
        unreadable.into_iter().try_for_each(|one| self.emit(ReceiverEvent::Unreadable(one)))
    }
}

impl Sink {
    /// The thread that sends timed datagrams takes the units of this flow from now on; false if there is none.
    fn attach(&self, clock: Clock, flow: &Arc<ReceiveFlow>) -> bool {
        let Self::Udp { driver, clock: own, patience, intake: Some(intake), .. } = self else {
            return false;
        };
        intake.attach(flow, (clock, *own), (driver.wake(), *patience));
        true
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::Udp { driver, .. } if driver.has_ended())
    }

    fn intake(&self) -> Option<&Arc<Intake>> {
        match self {
            Self::Udp { intake, .. } => intake.as_ref(),
            Self::Stream { .. } => None,
        }
    }
}
