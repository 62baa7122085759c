//! What the streams of an element share: one connection, and which of them it carries.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration as Wall, Instant};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use ontempo_media::{Codings, Elementary, MAX_STREAMS};
use ontempo_session::Feed;

use super::OntempoSink;
use super::sending::{Prepared, Sending, Shared};
use crate::failure::wrong;
use crate::media::Format;
use crate::place::{Place, pad_name};
use crate::properties::lock;

/// How often the end of a stream is sent again while others go on: for those who come late, and for what is lost.
const AGAIN: Wall = Wall::from_secs(1);

/// A stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// What it carries, once that is known.
    format: Option<Format>,
    /// It is one of those with which the connection has begun.
    is_carried: bool,
    /// Its number, if the connection carries several.
    number: Option<u8>,
    has_ended: bool,
}

/// From READY to PAUSED and back.
struct Run {
    shared: Arc<Shared>,
    prepared: Prepared,
    /// Once it is known what is carried.
    sending: Option<Sending>,
    /// When ends were sent last.
    ends_sent: Option<Instant>,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<Place, Stream>,
    run: Option<Run>,
}

/// Shared by the element and its streams.
pub(super) struct Connection {
    element: glib::WeakRef<OntempoSink>,
    state: Mutex<State>,
}

/// What a stream needs to send.
pub(super) struct Carried {
    pub(super) feed: Arc<Feed>,
    /// Its number, if there are several.
    pub(super) number: Option<u8>,
    /// The queue is full, which a stream that must arrive whole waits for.
    pub(super) is_full: bool,
}

/// What the end of a stream is.
pub(super) enum End {
    /// Nothing has been sent.
    Nothing,
    /// Others go on; the number of this one.
    OfOne(Arc<Feed>, Option<u8>),
    /// That of all.
    OfAll(Arc<Feed>),
}

impl Connection {
    pub(super) fn new(element: glib::WeakRef<OntempoSink>) -> Self {
        Self { element, state: Mutex::default() }
    }

    /// What the streaming threads and the connection's share.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        lock(&self.state).run.as_ref().map(|run| Arc::clone(&run.shared))
    }

    /// A connection has been begun: what it carries does not change any more.
    pub(super) fn has_begun(&self) -> bool {
        lock(&self.state).run.as_ref().is_some_and(|run| run.sending.is_some())
    }

    /// The pads for which the others wait: it is not known what they carry.
    pub(super) fn awaited(&self) -> Vec<String> {
        let state = lock(&self.state);
        if state.run.as_ref().is_none_or(|run| run.sending.is_some()) {
            return Vec::new();
        }
        let unknown = |stream: &Stream| stream.format.is_none() && !stream.has_ended;
        let awaited = state.streams.iter().filter(|(_, stream)| unknown(stream));
        awaited.map(|(place, _)| pad_name("sink", *place)).collect()
    }

    /// A stream is there.
    pub(super) fn add(&self, place: Place) {
        lock(&self.state).streams.entry(place).or_default();
    }

    /// A stream is no longer there: at the receiver it ends.
    ///
    /// # Errors
    /// For those that are left no connection can be begun.
    pub(super) fn remove(&self, place: Place) -> Result<(), gst::ErrorMessage> {
        let ended = self.end(place);
        let mut state = lock(&self.state);
        match state.streams.get_mut(&place) {
            // Its end is sent again while others go on; another connection is without it.
            Some(stream) if stream.is_carried => stream.format = None,
            _ => {
                state.streams.remove(&place);
            }
        }
        let begun = self.begin(&mut state);
        drop(state);
        match ended {
            End::Nothing => {}
            End::OfOne(feed, number) => send_end(&feed, number),
            End::OfAll(feed) => feed.end(),
        }
        begun
    }

    /// Gets ready to connect, with what is known of the streams; that begins where all is known already, so that
    /// the connection is there when the first buffer comes.
    ///
    /// # Errors
    /// The streams cannot be carried together, or the system has no more threads.
    pub(super) fn prepare(
        &self,
        prepared: Prepared,
        known: &[(Place, Option<Format>)],
    ) -> Result<(), gst::ErrorMessage> {
        let mut state = lock(&self.state);
        let of = |format| Stream { format, ..Stream::default() };
        state.streams = known.iter().map(|&(place, format)| (place, of(format))).collect();
        let shared = Arc::<Shared>::default();
        state.run = Some(Run { shared, prepared, sending: None, ends_sent: None });
        self.begin(&mut state)
    }

    /// Ends the connection; what is queued is still sent, as far as that takes no longer than some seconds.
    pub(super) fn stop(&self) {
        let run = lock(&self.state).run.take();
        drop(run);
    }

    /// A stream carries this.
    ///
    /// # Errors
    /// It has carried something else, or the streams cannot be carried together.
    pub(super) fn set_format(&self, place: Place, format: Format) -> Result<(), gst::ErrorMessage> {
        let mut state = lock(&self.state);
        let has_begun = state.run.as_ref().is_some_and(|run| run.sending.is_some());
        // Its pad is being taken away.
        let Some(stream) = state.streams.get_mut(&place) else { return Ok(()) };
        let refused =
            |sentence: String| Err(gst::error_msg!(gst::StreamError::Format, ("{sentence}")));
        match stream.format.filter(|_| has_begun) {
            Some(before) if before != format => refused(format!(
                "the caps change from {before} to {format} in mid-stream: a stream is one of them to its end"
            )),
            None if has_begun => refused(format!(
                "{} has come in mid-stream: a connection carries the streams with which it has begun",
                pad_name("sink", place)
            )),
            _ => {
                stream.format = Some(format);
                self.begin(&mut state)
            }
        }
    }

    /// Begins to connect once it is known what all streams carry.
    fn begin(&self, state: &mut State) -> Result<(), gst::ErrorMessage> {
        let State { streams, run: Some(run) } = state else { return Ok(()) };
        let is_known = |stream: &Stream| stream.format.is_some() || stream.has_ended;
        if run.sending.is_some() || !streams.values().all(is_known) {
            return Ok(());
        }
        let formats: Vec<(Place, Format)> =
            streams.iter().filter_map(|(place, stream)| Some((*place, stream.format?))).collect();
        let codings = match formats.as_slice() {
            [] => return Ok(()),
            [(_, format)] => format.coding().map(Codings::from),
            several => Some(codings(several)?),
        };
        let sending = Sending::start(self.element.clone(), &run.prepared, codings, &run.shared);
        let no_thread = |error: io::Error| wrong(format!("no thread: {error}"));
        run.sending = Some(sending.map_err(no_thread)?);
        for (number, (place, _)) in (0..).zip(&formats) {
            if let Some(stream) = streams.get_mut(place) {
                stream.is_carried = true;
                stream.number = (formats.len() > 1).then_some(number);
            }
        }
        Ok(())
    }

    /// A stream was flushed, which takes its end back. If all had ended, so has the connection: another is begun
    /// when what is left of that one has been sent.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn reopen(&self, place: Place) -> Result<(), gst::ErrorMessage> {
        let mut state = lock(&self.state);
        let is_over = state.streams.values().all(|stream| stream.has_ended || !stream.is_carried);
        let Some(stream) = state.streams.get_mut(&place).filter(|stream| stream.has_ended) else {
            return Ok(());
        };
        stream.has_ended = false;
        let State { streams, run: Some(run) } = &mut *state else { return Ok(()) };
        let Some(ended) = run.sending.take_if(|_| is_over) else { return Ok(()) };
        // Who sends meanwhile waits for the other.
        (run.shared, run.ends_sent) = (Arc::default(), None);
        streams.values_mut().for_each(|stream| (stream.is_carried, stream.number) = (false, None));
        drop(state);
        drop(ended);
        self.begin(&mut lock(&self.state))
    }

    /// What a stream needs to send.
    ///
    /// # Errors
    /// The element stops, or the stream has ended.
    pub(super) fn carried(&self, place: Place) -> Result<Carried, gst::FlowError> {
        let state = lock(&self.state);
        let sending = state.run.as_ref().and_then(|run| run.sending.as_ref());
        let sending = sending.ok_or(gst::FlowError::Flushing)?;
        let stream = state.streams.get(&place).filter(|stream| stream.is_carried);
        let stream = stream.ok_or(gst::FlowError::NotNegotiated)?;
        if stream.has_ended {
            return Err(gst::FlowError::Eos);
        }
        let (feed, number) = (Arc::clone(&sending.feed), stream.number);
        Ok(Carried { feed, number, is_full: sending.is_full() })
    }

    /// The numbers of streams whose end is to be sent again.
    pub(super) fn ends(&self) -> Vec<u8> {
        let mut state = lock(&self.state);
        let State { streams, run: Some(run) } = &mut *state else { return Vec::new() };
        let ended = streams.values().filter(|stream| stream.has_ended);
        let numbers: Vec<u8> = ended.filter_map(|stream| stream.number).collect();
        if numbers.is_empty() || run.ends_sent.is_some_and(|at| at.elapsed() < AGAIN) {
            return Vec::new();
        }
        run.ends_sent = Some(Instant::now());
        numbers
    }

    /// A stream is carried that has not ended.
    pub(super) fn goes_on(&self, place: Place) -> bool {
        let state = lock(&self.state);
        state.streams.get(&place).is_some_and(|stream| stream.is_carried && !stream.has_ended)
    }

    /// A stream has ended.
    pub(super) fn end(&self, place: Place) -> End {
        let mut state = lock(&self.state);
        let Some(stream) = state.streams.get_mut(&place).filter(|stream| !stream.has_ended) else {
            return End::Nothing;
        };
        stream.has_ended = true;
        let (number, is_carried) = (stream.number, stream.is_carried);
        if !is_carried {
            // Perhaps the others have waited for it.
            let begun = self.begin(&mut state);
            drop(state);
            if let (Err(error), Some(element)) = (begun, self.element.upgrade()) {
                element.post_error_message(error);
            }
            return End::Nothing;
        }
        let State { streams, run: Some(run) } = &*state else { return End::Nothing };
        let Some(sending) = &run.sending else { return End::Nothing };
        let feed = Arc::clone(&sending.feed);
        if streams.values().any(|stream| stream.is_carried && !stream.has_ended) {
            End::OfOne(feed, number)
        } else {
            End::OfAll(feed)
        }
    }
}

/// Sends the end of a stream of several.
pub(super) fn send_end(feed: &Feed, number: Option<u8>) {
    if let Some(number) = number {
        feed.batch().push(&[number]);
    }
}

/// The codings of several streams.
fn codings(several: &[(Place, Format)]) -> Result<Codings, gst::ErrorMessage> {
    let mut all: Vec<Elementary> = Vec::new();
    for (place, format) in several {
        let coding = format.coding().ok_or_else(|| {
            gst::error_msg!(
                gst::StreamError::Format,
                (
                    "{} has {format}, which goes alone: pads beside each other take frames of elementary \
                     streams",
                    pad_name("sink", *place)
                )
            )
        })?;
        all.push(coding);
    }
    Codings::new(&all).ok_or_else(|| {
        wrong(format!("{} streams: a connection carries at most {MAX_STREAMS}", all.len()))
    })
}
