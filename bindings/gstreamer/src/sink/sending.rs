//! The thread that sends, and what it shares with the element.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration as Wall;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use ontempo_foundation::Rate;
use ontempo_media::Codings;
use ontempo_session::{
    Backlog, Feed, Sender, SenderEvent, SenderHandler, SenderOptions, SenderTotals, Source,
};
use ontempo_transport::{ConnectionStatistics, Reliability};

use super::OntempoSink;
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
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Sets whether a streaming thread must not wait, in its flag.
    pub(super) fn unlock(&self, flag: &AtomicBool, unlocked: bool) {
        // Under the lock, so that nobody begins to wait meanwhile.
        let noted = self.lock();
        flag.store(unlocked, Ordering::Relaxed);
        drop(noted);
        self.changed.notify_all();
    }

    /// Waits until `is_over`; `None` if that is forbidden by the flag of the thread.
    pub(super) fn wait<T>(
        &self,
        unlocked: &AtomicBool,
        is_over: impl Fn(&Noted) -> Option<T>,
    ) -> Option<T> {
        let mut noted = self.lock();
        loop {
            if let Some(over) = is_over(&noted) {
                return Some(over);
            }
            if unlocked.load(Ordering::Relaxed) {
                return None;
            }
            noted = self.changed.wait(noted).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits while no connection has been made; false if there is none after `limit`, or waiting is forbidden.
    pub(super) fn is_connected(&self, limit: Wall, unlocked: &AtomicBool) -> bool {
        let waits = |noted: &mut Noted| {
            matches!(noted.phase, Phase::Connecting) && !unlocked.load(Ordering::Relaxed)
        };
        let waited = self.changed.wait_timeout_while(self.lock(), limit, waits);
        !matches!(waited.unwrap_or_else(PoisonError::into_inner).0.phase, Phase::Connecting)
    }

    /// Waits for the end of sending; false after `limit`.
    fn has_ended(&self, limit: Wall) -> bool {
        let is_going = |noted: &mut Noted| !matches!(noted.phase, Phase::Ended(_));
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_going);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// What connections need, before it is known what they carry.
pub(super) struct Prepared {
    pub(super) peer: Peer,
    /// The address is not used, nor is `stop`.
    pub(super) options: SenderOptions,
    /// What may wait.
    pub(super) max_bytes: usize,
}

/// A connection in use, or being made.
pub(super) struct Sending {
    pub(super) feed: Arc<Feed>,
    shared: Arc<Shared>,
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
        element: glib::WeakRef<OntempoSink>,
        prepared: &Prepared,
        elementary: Option<Codings>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<Self> {
        let Prepared { peer, options, max_bytes } = prepared;
        let (peer, max_bytes, shared) = (peer.clone(), *max_bytes, Arc::clone(shared));
        let stop = Arc::new(AtomicBool::new(false));
        let options = SenderOptions { elementary, stop: Arc::clone(&stop), ..options.clone() };
        let is_live = options.reliability != Reliability::Full;
        // A queue that waits would not let the streaming thread go; that looks at `most` instead.
        let backlog = Arc::new(Backlog::new(if is_live { max_bytes } else { usize::MAX }, is_live));
        let most = (!is_live).then_some(max_bytes);
        let feed = Arc::new(match elementary {
            Some(codings) => Feed::elementary(codings, &backlog)?,
            None => Feed::new(&backlog)?,
        });
        let (handler, is_stopped) = (Events::new(element, &shared), Arc::clone(&stop));
        let (of_thread, units) = (Arc::clone(&shared), Arc::clone(&backlog));
        let work = move || {
            let ended = send(&peer, options, Arc::clone(&units), handler.clone());
            units.end(None);
            // What comes of a connection that nobody wants any more is none of what the element does now.
            if let Err(failed) = &ended
                && !is_stopped.load(Ordering::Relaxed)
            {
                handler.fail(failed);
            }
            of_thread.note(|noted| noted.phase = Phase::Ended(ended));
        };
        let thread = Some(Builder::new().name("ontemposink".to_owned()).spawn(work)?);
        Ok(Self { feed, shared, backlog, most, stop, thread })
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
        if self.shared.has_ended(limit)
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
    element: glib::WeakRef<OntempoSink>,
    shared: Arc<Shared>,
}

impl Events {
    fn new(element: glib::WeakRef<OntempoSink>, shared: &Arc<Shared>) -> Self {
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
        for pad in element.sink_pads() {
            // Encoders of sound do not know it.
            pad.push_event(gst::event::CustomUpstream::new(structure.clone()));
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
            SenderEvent::Occupied(closed, limit) => self.warn(&format!(
                "{}; waiting for up to {} s, as one that is gone may still have the place",
                closed.sentence,
                limit.as_secs()
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
