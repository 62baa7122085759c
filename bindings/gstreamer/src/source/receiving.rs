//! The thread that receives.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration as Wall;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use ontempo_foundation::Duration;
use ontempo_media::Elementary;
use ontempo_session::{
    Call, DatagramTaker, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, StreamName,
    TakenDatagram, Target, configuration, is_rtcp,
};
use ontempo_transport::live::{Listener, Options};

use super::OntempoSrc;
use super::queue::{Queue, Timing};
use crate::access::Peer;
use crate::failure::Failed;

/// How long the end of the thread is waited for when the element stops. It ends within some 3 s, without
/// anybody.
const PATIENCE: Wall = Wall::from_secs(1);

/// Where the stream comes from.
pub(super) enum Entrance {
    Listener(Listener),
    /// A relay, and the name of the stream there.
    Relay(Box<Peer>, Option<StreamName>, Wall),
}

/// Options of the connections.
pub(super) fn options() -> Options {
    Options { configuration: configuration(), ..Options::default() }
}

/// A stream that is received, or waited for.
pub(super) struct Receiving {
    pub(super) queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiving {
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(
        element: &OntempoSrc,
        entrance: Entrance,
        options: ReceiverOptions,
    ) -> std::io::Result<Self> {
        let queue = Arc::<Queue>::default();
        let (element, coding) = (element.downgrade(), None);
        let events = Events { element, queue: Arc::clone(&queue), coding };
        let (stop, of_thread) = (Arc::clone(&options.stop), Arc::clone(&queue));
        let work = move || {
            let ended = receive(entrance, options, events);
            of_thread.note(|state| state.ended = Some(ended));
        };
        let thread = Some(Builder::new().name("ontemposrc".to_owned()).spawn(work)?);
        Ok(Self { queue, stop, thread })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.queue.stop();
        if self.queue.has_ended(PATIENCE)
            && let Some(thread) = self.thread.take()
        {
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

fn receive(entrance: Entrance, options: ReceiverOptions, events: Events) -> Result<(), Failed> {
    let mut receiver = match entrance {
        Entrance::Listener(listener) => Receiver::new(listener, options, events),
        Entrance::Relay(peer, stream, give_up) => {
            let unreachable = |sentence| Failed { code: gst::ResourceError::NotFound, sentence };
            let remote = peer.resolve().map_err(unreachable)?;
            let Peer { name, trust, token, .. } = *peer;
            let transport = self::options();
            let call = Call { remote, name, trust, token, transport, stream, give_up };
            Receiver::calling(call, options, events)
        }
    };
    match receiver.run() {
        Ok(_) => Ok(()),
        Err(error) => Err(Failed::of(&error, gst::ResourceError::Read)),
    }
}

/// Tells the element's bus and queue what happens.
struct Events {
    element: glib::WeakRef<OntempoSrc>,
    queue: Arc<Queue>,
    /// How the stream is coded that begins, if it is an elementary one.
    coding: Option<Elementary>,
}

impl Events {
    fn warn(&self, sentence: &str) {
        if let Some(element) = self.element.upgrade() {
            gst::element_warning!(element, gst::ResourceError::Read, ("{sentence}"));
        }
    }

    fn say(&self, sentence: &str) {
        if let Some(element) = self.element.upgrade() {
            gst::element_info!(element, gst::ResourceError::Read, ("{sentence}"), ["{sentence}"]);
        }
    }

    /// A pipeline has to wait for that long.
    fn on_timing(&self, timing: Timing) {
        self.queue.note(|state| state.timing = Some(timing));
        if let Some(element) = self.element.upgrade() {
            let _ = element.post_message(gst::message::Latency::builder().src(&element).build());
        }
    }
}

/// Queues each datagram for the streaming thread.
struct Taker {
    queue: Arc<Queue>,
    element: glib::WeakRef<OntempoSrc>,
    is_elementary: bool,
}

impl DatagramTaker for Taker {
    fn take(&mut self, datagram: TakenDatagram<'_>) {
        // Beside RTP, RTCP and session descriptions come.
        let is_left_out =
            if self.is_elementary { !datagram.is_whole } else { is_rtcp(datagram.data) };
        if is_left_out {
            return;
        }
        let now = self.element.upgrade().and_then(|element| {
            // Only a playing element has a running time.
            element
                .current_running_time()
                .filter(|_| element.current_state() == gst::State::Playing)
        });
        let span = |time: Duration| gst::ClockTime::from_nseconds(time.as_nanos());
        let due = now.map(|now| (now + span(datagram.early)).saturating_sub(span(datagram.late)));
        self.queue.push(datagram.data, due);
    }
}

impl ReceiverHandler for Events {
    fn open(&mut self) -> Result<Target, String> {
        let coding = self.coding.take();
        self.queue.begin(coding);
        let (queue, element) = (Arc::clone(&self.queue), self.element.clone());
        let is_elementary = coding.is_some();
        Ok(Target::Taker(Box::new(Taker { queue, element, is_elementary })))
    }

    fn take_elementary(&mut self, coding: Elementary) -> Result<(), String> {
        self.coding = Some(coding);
        Ok(())
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        match event {
            ReceiverEvent::Receiving(remote) => self.say(&format!("receiving from {remote}")),
            ReceiverEvent::Latency { latency, of_sender, grace } => {
                if latency < of_sender {
                    self.warn(&format!(
                        "latency: {latency} is less than the sender's {of_sender}: what comes later is \
                         left out"
                    ));
                }
                self.on_timing(Timing { latency, grace });
            }
            ReceiverEvent::Refused { remote, reason } => {
                let sender = remote.map_or_else(|| "a sender".to_owned(), |at| at.to_string());
                self.warn(&format!("{sender} was refused: {reason}"));
            }
            ReceiverEvent::Lost(remote, reason) => {
                self.warn(&format!("lost {remote}: {reason}; waiting for a sender"));
            }
            ReceiverEvent::Unreadable(what) => self.warn(&format!("a unit cannot be read: {what}")),
            ReceiverEvent::Missed(sentence) => self.warn(&sentence),
            ReceiverEvent::Flowing(flowing) => {
                self.queue.note(|state| state.flowing = Some(*flowing));
            }
            ReceiverEvent::Progress(report, flow) => self.queue.note(|state| {
                state.report = *report;
                state.flow = Some(*flow);
            }),
            ReceiverEvent::StreamEnded(report) => self.queue.note(|state| state.report = *report),
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
