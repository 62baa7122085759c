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
use ontempo_media::{Codings, split_number};
use ontempo_session::{
    Call, DatagramTaker, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, StreamName,
    TakenDatagram, Target, configuration, is_rtcp,
};
use ontempo_transport::live::{Listener, Options};

use super::OntempoSrc;
use super::pads::{Pads, Sets};
use super::queue::{MAX_BYTES, Queue, Timing};
use super::queues::Queues;
use crate::access::Peer;
use crate::failure::Failed;
use crate::place::pad_name;

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
    pub(super) queues: Arc<Queues>,
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
        let queues = Arc::new(Queues::new());
        let (sets, pads) = Pads::start(element, &queues)?;
        let events = Events {
            element: element.downgrade(),
            queues: Arc::clone(&queues),
            sets,
            of_streams: vec![Arc::clone(&queues.first)],
            codings: None,
            is_last: options.once,
        };
        let (stop, of_thread) = (Arc::clone(&options.stop), Arc::clone(&queues));
        let work = move || {
            of_thread.end(receive(entrance, options, events));
            // A panic has been printed by the thread itself.
            let _ = pads.join();
            of_thread.set_over();
        };
        let thread = Some(Builder::new().name("ontemposrc".to_owned()).spawn(work)?);
        Ok(Self { queues, stop, thread })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.queues.stop(PATIENCE)
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
    queues: Arc<Queues>,
    sets: Sets,
    /// The queues of the streams that are received, in the order of their numbers.
    of_streams: Vec<Arc<Queue>>,
    /// How the streams are coded that begin, if they are elementary ones.
    codings: Option<Codings>,
    /// No other stream comes behind the end of this one.
    is_last: bool,
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
        for queue in &self.of_streams {
            queue.note(|state| state.timing = Some(timing));
        }
        if let Some(element) = self.element.upgrade() {
            let _ = element.post_message(gst::message::Latency::builder().src(&element).build());
        }
    }
}

/// Queues each datagram for the streaming thread of its pad.
struct Taker {
    queues: Arc<Queues>,
    /// Those of the streams, in the order of their numbers.
    of_streams: Vec<Arc<Queue>>,
    element: glib::WeakRef<OntempoSrc>,
    is_elementary: bool,
    /// See [`Events`].
    is_last: bool,
}

impl DatagramTaker for Taker {
    fn take(&mut self, datagram: TakenDatagram<'_>) {
        // Beside RTP, RTCP and session descriptions come.
        let is_left_out =
            if self.is_elementary { !datagram.is_whole } else { is_rtcp(datagram.data) };
        if is_left_out {
            return;
        }
        let (queue, data) = match self.of_streams.as_slice() {
            [only] => (only, datagram.data),
            several => {
                let Some((number, data)) = split_number(datagram.data) else { return };
                let Some(queue) = several.get(number) else { return };
                if data.is_empty() {
                    // Its pad would not begin again.
                    if self.is_last {
                        queue.end(Ok(()));
                    }
                    return;
                }
                (queue, data)
            }
        };
        let now = self.element.upgrade().and_then(|element| {
            // Only a playing element has a running time.
            element
                .current_running_time()
                .filter(|_| element.current_state() == gst::State::Playing)
        });
        let span = |time: Duration| gst::ClockTime::from_nseconds(time.as_nanos());
        let due = now.map(|now| (now + span(datagram.early)).saturating_sub(span(datagram.late)));
        self.queues.make_room(queue, &self.of_streams);
        if queue.push(data, due) {
            self.warn_of_overflow(queue);
        }
    }
}

impl Taker {
    fn warn_of_overflow(&self, queue: &Queue) {
        let Some(element) = self.element.upgrade() else { return };
        let (pad, most) = (pad_name("src", queue.place()), MAX_BYTES >> 20);
        let what =
            if self.is_elementary { "whole frames, up to a key frame" } else { "the oldest" };
        let sentence = format!(
            "{pad}: more than {most} MiB wait for what follows it, which takes nothing: {what} are left out"
        );
        gst::element_warning!(element, gst::ResourceError::Read, ("{sentence}"));
    }
}

impl ReceiverHandler for Events {
    fn open(&mut self) -> Result<Target, String> {
        let codings = self.codings.take();
        if let Some(element) = self.element.upgrade() {
            self.of_streams = self.sets.begin(&element, codings);
        }
        Ok(Target::Taker(Box::new(Taker {
            queues: Arc::clone(&self.queues),
            of_streams: self.of_streams.clone(),
            element: self.element.clone(),
            is_elementary: codings.is_some(),
            is_last: self.is_last,
        })))
    }

    fn take_elementary(&mut self, codings: Codings) -> Result<(), String> {
        self.codings = Some(codings);
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
                self.queues.first.note(|state| state.flowing = Some(*flowing));
            }
            ReceiverEvent::Progress(report, flow) => self.queues.first.note(|state| {
                state.report = *report;
                state.flow = Some(*flow);
            }),
            ReceiverEvent::StreamEnded(report) => {
                self.queues.first.note(|state| state.report = *report)
            }
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
