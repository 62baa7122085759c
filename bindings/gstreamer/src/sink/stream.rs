//! A stream of the element: the sink behind one of its pads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration as Wall, Instant};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use gstreamer_base::prelude::*;
use gstreamer_base::subclass::prelude::*;

use super::OntempoSink;
use super::connection::{Carried, Connection, End, send_end};
use super::framer::Framer;
use super::sending::{Noted, Phase, Shared};
use crate::failure::Failed;
use crate::media::{Cutter, Format, all_caps, caps_of_frames};
use crate::place::{Place, pad_name};
use crate::properties::lock;

/// How long a full queue is left before it is looked at again.
const FULL: Wall = Wall::from_millis(5);

/// How long other pads are waited for before that is said.
const AWAITED: Wall = Wall::from_secs(3);

/// The least time between two warnings of frames that are too long.
const WARN_EACH: Wall = Wall::from_secs(1);

/// What makes datagrams of buffers.
enum Carrier {
    Cutter(Cutter),
    Framer(Framer),
}

impl Carrier {
    fn new(format: Format, caps: &gst::CapsRef) -> Result<Self, String> {
        Ok(match format.coding() {
            Some(coding) => Self::Framer(Framer::new(coding, caps)?),
            None => Self::Cutter(Cutter::new(format)),
        })
    }

    fn format(&self) -> Format {
        match self {
            Self::Cutter(cutter) => cutter.format(),
            Self::Framer(framer) => Format::Elementary(framer.coding()),
        }
    }
}

/// The element's, and where this stream is among the others.
struct Whole {
    connection: Arc<Connection>,
    place: Place,
    element: glib::WeakRef<OntempoSink>,
}

/// The private part of a stream.
#[derive(Default)]
pub struct StreamSink {
    whole: OnceLock<Whole>,
    carrier: Mutex<Option<Carrier>>,
    /// Set while the streaming thread must not wait.
    unlocked: AtomicBool,
    /// A warning has named the pads that are waited for.
    has_warned: AtomicBool,
    /// When it was said last that a frame is too long.
    warned: Mutex<Option<Instant>>,
}

#[glib::object_subclass]
impl ObjectSubclass for StreamSink {
    const NAME: &'static str = "GstOntempoStreamSink";
    type Type = super::StreamSink;
    type ParentType = gstreamer_base::BaseSink;
}

impl ObjectImpl for StreamSink {}

impl GstObjectImpl for StreamSink {}

impl ElementImpl for StreamSink {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "ontempo stream",
                "Sink/Network",
                "A stream of ontemposink",
                "The ontempo developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let (direction, presence) = (gst::PadDirection::Sink, gst::PadPresence::Always);
            let made = gst::PadTemplate::new("sink", direction, presence, &all_caps());
            made.into_iter().collect()
        });
        &TEMPLATES
    }
}

/// The caps that a pad takes.
pub(super) fn taken(place: Place) -> gst::Caps {
    place.map_or_else(all_caps, |_| caps_of_frames())
}

impl super::StreamSink {
    /// The stream of this pad of the element.
    pub(super) fn new(element: &OntempoSink, connection: &Arc<Connection>, place: Place) -> Self {
        let stream: Self =
            glib::Object::builder().property("name", pad_name("sink", place)).build();
        let (connection, element) = (Arc::clone(connection), element.downgrade());
        // It is new.
        let _ = stream.imp().whole.set(Whole { connection, place, element });
        stream
    }
}

impl StreamSink {
    fn whole(&self) -> Result<&Whole, gst::FlowError> {
        self.whole.get().ok_or(gst::FlowError::Error)
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        self.whole.get()?.connection.shared()
    }

    /// Puts an error on the bus, as one of the element.
    fn refuse(&self, error: gst::ErrorMessage) {
        match self.whole.get().and_then(|whole| whole.element.upgrade()) {
            Some(element) => element.post_error_message(error),
            None => self.obj().post_error_message(error),
        }
    }

    fn refuse_caps(&self, sentence: &str) -> gst::LoggableError {
        self.refuse(gst::error_msg!(gst::StreamError::Format, ("{sentence}")));
        gst::loggable_error!(gst::CAT_RUST, "{sentence}")
    }

    /// A frame is left out; a warning a second is enough.
    fn warn(&self, sentence: &str) {
        let mut warned = lock(&self.warned);
        if warned.is_some_and(|at| at.elapsed() < WARN_EACH) {
            return;
        }
        *warned = Some(Instant::now());
        drop(warned);
        if let Some(whole) = self.whole.get()
            && let Some(element) = whole.element.upgrade()
        {
            let pad = pad_name("sink", whole.place);
            gst::element_warning!(
                element,
                gst::StreamError::Encode,
                ("{pad}: {sentence}; it is left out")
            );
        }
    }

    fn set_unlocked(&self, unlocked: bool) {
        match self.shared() {
            Some(shared) => shared.unlock(&self.unlocked, unlocked),
            None => self.unlocked.store(unlocked, Ordering::Relaxed),
        }
    }

    /// Waits until `is_over`, also while the element is paused.
    fn wait<T>(
        &self,
        shared: &Shared,
        is_over: impl Fn(&Noted) -> Option<T>,
    ) -> Result<T, gst::FlowError> {
        loop {
            match shared.wait(&self.unlocked, &is_over) {
                Some(over) => return Ok(over),
                None => self.obj().wait_preroll()?,
            };
        }
    }

    /// Waits for the other pads; says so once if that takes long.
    fn await_others(&self, whole: &Whole, shared: &Shared) {
        if whole.connection.awaited().is_empty() || shared.is_connected(AWAITED, &self.unlocked) {
            return;
        }
        let awaited = whole.connection.awaited();
        if !awaited.is_empty()
            && !self.unlocked.load(Ordering::Relaxed)
            && !self.has_warned.swap(true, Ordering::Relaxed)
            && let Some(element) = whole.element.upgrade()
        {
            let awaited = awaited.join(", ");
            gst::element_warning!(
                element,
                gst::StreamError::Format,
                ("waiting for the caps of {awaited}: a connection begins when it is known what all pads carry")
            );
        }
    }

    /// Waits for the connection.
    fn connected(&self, shared: &Shared) -> Result<(), gst::FlowError> {
        let phase = self.wait(shared, |noted| match &noted.phase {
            Phase::Connecting => None,
            phase => Some(phase.clone()),
        })?;
        match phase {
            Phase::Ended(Ok(())) => Err(gst::FlowError::Eos),
            // The error is on the bus.
            Phase::Ended(Err(_)) => Err(gst::FlowError::Error),
            Phase::Connecting | Phase::Sending => Ok(()),
        }
    }

    /// Waits until there is room.
    fn carried(&self, whole: &Whole, shared: &Shared) -> Result<Carried, gst::FlowError> {
        loop {
            self.connected(shared)?;
            let carried = whole.connection.carried(whole.place)?;
            if !carried.is_full {
                return Ok(carried);
            }
            std::thread::sleep(FULL);
            if self.unlocked.load(Ordering::Relaxed) {
                self.obj().wait_preroll()?;
            }
        }
    }

    /// Buffers without caps are bytes of a transport stream.
    fn begin_without_caps(&self, whole: &Whole) -> Result<(), gst::FlowError> {
        if lock(&self.carrier).is_some() {
            return Ok(());
        }
        let begun = whole.connection.set_format(whole.place, Format::TransportStream);
        begun.map_err(|error| {
            self.refuse(error);
            gst::FlowError::Error
        })?;
        *lock(&self.carrier) = Some(Carrier::Cutter(Cutter::new(Format::TransportStream)));
        Ok(())
    }

    /// Sends buffers that come together.
    fn send<'a>(
        &self,
        buffers: impl Iterator<Item = &'a gst::BufferRef>,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        let whole = self.whole()?;
        self.begin_without_caps(whole)?;
        let shared = self.shared().ok_or(gst::FlowError::Flushing)?;
        self.await_others(whole, &shared);
        let Carried { feed, number, .. } = self.carried(whole, &shared)?;
        let (segment, ends) = (self.obj().segment(), whole.connection.ends());
        let mut held = lock(&self.carrier);
        let Some(carrier) = held.as_mut() else { return Err(gst::FlowError::NotNegotiated) };
        let (mut too_long, mut batch) = (None, feed.batch());
        ends.into_iter().for_each(|number| batch.push(&[number]));
        for buffer in buffers {
            let map = buffer.map_readable().map_err(|_| gst::FlowError::Error)?;
            let take = |datagram: &[u8]| batch.push(datagram);
            match carrier {
                Carrier::Cutter(cutter) => cutter.cut(&map, take),
                Carrier::Framer(framer) => {
                    too_long =
                        framer.cut(number, (buffer, &map), &segment, take).err().or(too_long);
                }
            }
        }
        if let Carrier::Cutter(cutter) = carrier {
            cutter.flush(|datagram| batch.push(datagram));
        }
        drop((batch, held));
        if let Some(error) = too_long {
            self.warn(&error.to_string());
        }
        Ok(gst::FlowSuccess::Ok)
    }

    /// A flush takes the end of the stream back.
    fn reopen(&self) {
        // What follows is described again, as the receiver may be another.
        if let Some(Carrier::Framer(framer)) = lock(&self.carrier).as_mut() {
            framer.describe_again();
        }
        let reopened = self.whole.get().map(|whole| whole.connection.reopen(whole.place));
        if let Some(Err(error)) = reopened {
            self.refuse(error);
        }
    }

    /// The end of the stream: the last of several waits until the receiver has all that it will get.
    fn end(&self) -> Result<(), gst::FlowError> {
        let whole = self.whole()?;
        let shared = self.shared();
        // A flush may break this off, and the stream goes on.
        if let Some(shared) = shared.as_ref().filter(|_| whole.connection.goes_on(whole.place)) {
            self.connected(shared)?;
        }
        let (Some(shared), ended) = (shared, whole.connection.end(whole.place)) else {
            return Ok(());
        };
        match ended {
            End::Nothing => return Ok(()),
            End::OfOne(feed, number) => {
                send_end(&feed, number);
                return Ok(());
            }
            End::OfAll(feed) => {
                if let Some(Carrier::Cutter(cutter)) = lock(&self.carrier).as_mut() {
                    let mut batch = feed.batch();
                    cutter.finish(|datagram| batch.push(datagram));
                }
                feed.end();
            }
        }
        let ended = self.wait(&shared, |noted| match &noted.phase {
            Phase::Ended(ended) => Some(ended.clone()),
            _ => None,
        })?;
        ended.map_err(|_: Failed| gst::FlowError::Error)
    }
}

impl BaseSinkImpl for StreamSink {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.carrier) = None;
        self.has_warned.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn caps(&self, filter: Option<&gst::Caps>) -> Option<gst::Caps> {
        let caps = taken(self.whole.get().and_then(|whole| whole.place));
        Some(match filter {
            Some(filter) => filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First),
            None => caps,
        })
    }

    fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let format = Format::of_caps(caps)
            .ok_or_else(|| gst::loggable_error!(gst::CAT_RUST, "{caps} is not carried"))?;
        let whole = self.whole().map_err(|_| gst::loggable_error!(gst::CAT_RUST, "no element"))?;
        if let Err(error) = whole.connection.set_format(whole.place, format) {
            let logged = gst::loggable_error!(gst::CAT_RUST, "{error}");
            self.refuse(error);
            return Err(logged);
        }
        let mut carrier = lock(&self.carrier);
        let changed = match carrier.as_mut().filter(|carrier| carrier.format() == format) {
            Some(Carrier::Framer(framer)) => framer.set_caps(caps),
            Some(Carrier::Cutter(_)) => Ok(()),
            None => Carrier::new(format, caps).map(|new| *carrier = Some(new)),
        };
        changed.map_err(|sentence| self.refuse_caps(&sentence))
    }

    fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.send(std::iter::once(buffer.as_ref()))
    }

    fn render_list(&self, list: &gst::BufferList) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.send(list.iter())
    }

    fn event(&self, event: gst::Event) -> bool {
        match event.type_() {
            gst::EventType::Eos if self.end().is_err() => return false,
            gst::EventType::FlushStop => self.reopen(),
            _ => {}
        }
        self.parent_event(event)
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        self.set_unlocked(true);
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        self.set_unlocked(false);
        Ok(())
    }
}
