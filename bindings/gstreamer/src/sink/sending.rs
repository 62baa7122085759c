//! The thread that sends, and what it shares with the element.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration as Wall, Instant};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use ontempo_foundation::Rate;
use ontempo_media::Elementary;
use ontempo_session::{
    Backlog, Feed, Sender, SenderEvent, SenderHandler, SenderOptions, SenderTotals, Source,
};
use ontempo_transport::{ConnectionStatistics, Reliability};

use super::imp::OntempoSink;
use crate::access::Peer;
use crate::failure::Failed;

/// How long the end of the thread is waited for when the element stops. The thread itself ends within some
/// 3 s, without anybody.
const PATIENCE: Wall = Wall::from_secs(3);

/// How far the stream is.
#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// No connection has been made yet.
    #[default]
    Connecting,
    /// Units are sent, or a lost connection is made again.
    Sending,
    /// All is sent, or it failed.
    Ended(Result<(), Failed>),
}

/// What the thread notes.
#[derive(Default)]
pub(super) struct Noted {
    pub(super) phase: Phase,
    pub(super) totals: SenderTotals,
    pub(super) connection: Option<ConnectionStatistics>,
    pub(super) target: Option<Rate>,
}

/// What element and thread share.
#[derive(Default)]
pub(super) struct Shared {
    noted: Mutex<Noted>,
    changed: Condvar,
    /// Set while the element's streaming thread must not wait.
    unlocked: AtomicBool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Sets whether waiting is forbidden.
    pub(super) fn unlock(&self, unlocked: bool) {
        // Under the lock, so that nobody begins to wait meanwhile.
        let noted = self.lock();
        self.unlocked.store(unlocked, Ordering::Relaxed);
        drop(noted);
        self.changed.notify_all();
    }

    pub(super) fn is_unlocked(&self) -> bool {
        self.unlocked.load(Ordering::Relaxed)
    }

    /// Waits until `is_over`; `None` if waiting was forbidden meanwhile, or after `limit`.
    pub(super) fn wait<T>(
        &self,
        limit: Option<Wall>,
        is_over: impl Fn(&Noted) -> Option<T>,
    ) -> Option<T> {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut noted = self.lock();
        loop {
            if let Some(over) = is_over(&noted) {
                return Some(over);
            }
            if limit.is_none() && self.unlocked.load(Ordering::Relaxed) {
                return None;
            }
            noted = match end {
                None => self.changed.wait(noted).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.checked_duration_since(Instant::now())?;
                    let waited = self.changed.wait_timeout(noted, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// What a stream needs, before it is known what it carries.
pub(super) struct Prepared {
    pub(super) peer: Peer,
    /// The address is not used.
    pub(super) options: SenderOptions,
    /// What may wait.
    pub(super) max_bytes: usize,
}

/// A running stream.
pub(super) struct Sending {
    /// How the stream is coded, if it is an elementary one.
    pub(super) elementary: Option<Elementary>,
    pub(super) feed: Arc<Feed>,
    pub(super) shared: Arc<Shared>,
    backlog: Arc<Backlog>,
    /// Bytes that may wait before the streaming thread does; `None`: what is too much is dropped.
    most: Option<usize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sending {
    /// Begins to connect.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(
        element: &OntempoSink,
        prepared: Prepared,
        elementary: Option<Elementary>,
    ) -> std::io::Result<Self> {
        let Prepared { peer, options, max_bytes } = prepared;
        let options = SenderOptions { elementary, ..options };
        let is_live = options.reliability != Reliability::Full;
        // A queue that waits would not let the streaming thread go; that looks at `most` instead.
        let backlog = Arc::new(Backlog::new(if is_live { max_bytes } else { usize::MAX }, is_live));
        let most = (!is_live).then_some(max_bytes);
        let feed = Arc::new(match options.elementary {
            Some(_) => Feed::elementary(&backlog)?,
            None => Feed::new(&backlog)?,
        });
        let shared = Arc::<Shared>::default();
        let (stop, handler) =
            (Arc::clone(&options.stop), Events::new(element.obj().downgrade(), &shared));
        let (of_thread, units) = (Arc::clone(&shared), Arc::clone(&backlog));
        let work = move || {
            let ended = send(&peer, options, Arc::clone(&units), handler.clone());
            units.end(None);
            if let Err(failed) = &ended {
                handler.fail(failed);
            }
            of_thread.note(|noted| noted.phase = Phase::Ended(ended));
        };
        let thread = Some(Builder::new().name("ontemposink".to_owned()).spawn(work)?);
        Ok(Self { elementary, feed, shared, backlog, most, stop, thread })
    }

    /// True if the streaming thread has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.backlog.waiting() >= most)
    }
}

impl Drop for Sending {
    /// What is queued is still sent, as far as that takes no longer than 2 s.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.feed.end();
        let limit = match self.shared.lock().phase {
            Phase::Connecting => Wall::ZERO,
            _ => PATIENCE,
        };
        let has_ended = |noted: &Noted| matches!(noted.phase, Phase::Ended(_)).then_some(());
        if self.shared.wait(Some(limit), has_ended).is_some()
            && let Some(thread) = self.thread.take()
        {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Sends to the end of the stream.
fn send(
    peer: &Peer,
    mut options: SenderOptions,
    backlog: Arc<Backlog>,
    handler: Events,
) -> Result<(), Failed> {
    let unreachable = |sentence| Failed { code: gst::ResourceError::NotFound, sentence };
    options.remote = peer.resolve().map_err(unreachable)?;
    let stop = Arc::clone(&options.stop);
    let connected = Sender::connect(options, backlog, Source::Program, handler);
    let mut sender =
        connected.map_err(|error| Failed::of(&error, gst::ResourceError::OpenWrite))?;
    let done = sender.run();
    let totals = sender.totals();
    sender.handler().shared.note(|noted| noted.totals = totals);
    match done {
        Err(error) if !stop.load(Ordering::Relaxed) => {
            Err(Failed::of(&error, gst::ResourceError::Write))
        }
        _ => Ok(()),
    }
}

/// Tells the element's bus and properties what happens.
#[derive(Clone)]
struct Events {
    element: glib::WeakRef<super::OntempoSink>,
    shared: Arc<Shared>,
}

impl Events {
    fn new(element: glib::WeakRef<super::OntempoSink>, shared: &Arc<Shared>) -> Self {
        Self { element, shared: Arc::clone(shared) }
    }

    fn fail(&self, failed: &Failed) {
        if let Some(element) = self.element.upgrade() {
            gst::element_error!(element, failed.code, ("{}", failed.sentence));
        }
    }

    fn warn(&self, sentence: &str) {
        if let Some(element) = self.element.upgrade() {
            gst::element_warning!(element, gst::ResourceError::Write, ("{sentence}"));
        }
    }

    fn say(&self, sentence: &str) {
        if let Some(element) = self.element.upgrade() {
            gst::element_info!(element, gst::ResourceError::Write, ("{sentence}"), ["{sentence}"]);
        }
    }

    /// Asks the encoder for a picture that needs no others: what the receiver has lacks those before.
    fn force_key_unit(&self) {
        let Some(element) = self.element.upgrade() else { return };
        let structure = gst::Structure::builder("GstForceKeyUnit")
            .field("running-time", gst::ClockTime::NONE)
            .field("all-headers", true)
            .field("count", 0_u32)
            .build();
        if let Some(pad) = element.static_pad("sink") {
            pad.push_event(gst::event::CustomUpstream::new(structure));
        }
    }

    fn on_target(&self, rate: Rate) {
        self.shared.note(|noted| noted.target = Some(rate));
        if let Some(element) = self.element.upgrade() {
            element.notify("target-bitrate");
        }
    }
}

impl SenderHandler for Events {
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()> {
        match event {
            SenderEvent::Connected { again: false } => {
                self.shared.note(|noted| noted.phase = Phase::Sending);
            }
            SenderEvent::Connected { again: true } => self.force_key_unit(),
            SenderEvent::Returned(away) => {
                self.say(&format!(
                    "connected again: nothing was heard of the receiver for {:.1} s",
                    away.as_secs_f64()
                ));
            }
            SenderEvent::Latency(latency) => {
                self.shared.note(|noted| noted.totals.latency = Some(latency.latency));
                self.say(&latency.to_string());
            }
            SenderEvent::LatencyTooShort(short) => self.warn(&format!(
                "the latency of {} holds no repair at this round trip of {}: what is lost stays lost",
                short.latency, short.round_trip
            )),
            SenderEvent::Lost(closed) => self.warn(&format!("{}; connecting again", closed.sentence)),
            SenderEvent::Overflow(dropped) => self.warn(&format!(
                "the stream is faster than the network: {} units of {} bytes were dropped before they \
                 were sent; let the encoder's bit rate follow target-bitrate",
                dropped.units, dropped.bytes
            )),
            SenderEvent::Missed(sentence) => self.warn(&sentence),
            SenderEvent::Target(rate) => self.on_target(rate),
            SenderEvent::Progress(totals, connection) => self.shared.note(|noted| {
                noted.totals = *totals;
                noted.connection = Some(*connection);
            }),
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
