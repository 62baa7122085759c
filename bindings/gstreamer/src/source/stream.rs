//! A stream of the element: the source behind one of its pads.

use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use gstreamer_base::prelude::*;
use gstreamer_base::subclass::base_src::CreateSuccess;
use gstreamer_base::subclass::prelude::*;
use ontempo_foundation::Duration;
use ontempo_media::Elementary;

use super::frames::{Frames, Ready};
use super::outlet::Common;
use super::queue::{Item, Nothing, Queue, Timing};
use crate::media::{Format, all_caps, elementary_caps, transport_stream};
use crate::place::{Place, pad_name};
use crate::properties::lock;

/// What the stream shares with the others, and what is its own.
struct Whole {
    common: Arc<Common>,
    place: Place,
    /// How it is coded, if its pad is there because of that.
    coding: Option<Elementary>,
}

/// The private part of a stream.
#[derive(Default)]
pub struct StreamSrc {
    whole: OnceLock<Whole>,
    queue: Mutex<Option<Arc<Queue>>>,
    frames: Mutex<Option<Frames>>,
    /// What is received.
    format: Mutex<Option<Format>>,
}

#[glib::object_subclass]
impl ObjectSubclass for StreamSrc {
    const NAME: &'static str = "GstOntempoStreamSrc";
    type Type = super::StreamSrc;
    type ParentType = gstreamer_base::PushSrc;
}

impl ObjectImpl for StreamSrc {
    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        element.set_live(true);
        element.set_format(gst::Format::Time);
    }
}

impl GstObjectImpl for StreamSrc {}

impl ElementImpl for StreamSrc {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "ontempo stream",
                "Source/Network",
                "A stream of ontemposrc",
                "The ontempo developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let (direction, presence) = (gst::PadDirection::Src, gst::PadPresence::Always);
            let made = gst::PadTemplate::new("src", direction, presence, &all_caps());
            made.into_iter().collect()
        });
        &TEMPLATES
    }
}

impl super::StreamSrc {
    /// The stream of this pad of the element.
    pub(super) fn new(common: &Arc<Common>, place: Place, coding: Option<Elementary>) -> Self {
        let stream: Self = glib::Object::builder().property("name", pad_name("src", place)).build();
        let common = Arc::clone(common);
        // It is new.
        let _ = stream.imp().whole.set(Whole { common, place, coding });
        stream
    }

    /// Takes from this queue, or from none.
    pub(super) fn set_queue(&self, queue: Option<Arc<Queue>>) {
        *lock(&self.imp().queue) = queue;
    }

    pub(super) fn takes_from(&self, queue: &Arc<Queue>) -> bool {
        self.imp().queue().is_some_and(|own| Arc::ptr_eq(&own, queue))
    }

    /// Its thread ends: what still comes is not kept.
    pub(super) fn abandon(&self) {
        if let Some(queue) = self.imp().queue() {
            queue.abandon();
        }
    }

    /// Its thread has ended.
    pub(super) fn leave(&self) {
        if let Some(queue) = self.imp().queue() {
            queue.leave();
        }
    }
}

impl StreamSrc {
    fn queue(&self) -> Option<Arc<Queue>> {
        lock(&self.queue).clone()
    }

    fn whole(&self) -> Result<&Whole, gst::FlowError> {
        self.whole.get().ok_or(gst::FlowError::Error)
    }

    /// Puts an error on the bus, as one of the element.
    fn refuse(&self, error: gst::ErrorMessage) {
        match self.whole.get().and_then(|whole| whole.common.element()) {
            Some(element) => element.post_error_message(error),
            None => self.obj().post_error_message(error),
        }
    }

    /// The caps are none that can be handed on.
    fn refuse_format(&self, sentence: &str) {
        self.refuse(gst::error_msg!(gst::StreamError::Format, ("{sentence}")));
    }

    /// Sets caps, unless what follows does not take them.
    fn offer(&self, format: Format, caps: &gst::Caps) -> Result<(), gst::FlowError> {
        let whole = self.whole()?;
        let peer = whole.common.pad(whole.place).and_then(|pad| pad.peer());
        if let Some(peer) = peer.filter(|peer| !peer.query_accept_caps(caps)) {
            let next = peer.parent().map_or_else(|| "what follows".into(), |next| next.name());
            let name = caps.structure(0).map_or("", |structure| structure.name().as_str());
            let sentence =
                format!("the sender sends {format} ({name}), which {next} does not take");
            self.refuse(gst::error_msg!(gst::StreamError::Format, ("{sentence}"), ["{caps}"]));
            return Err(gst::FlowError::NotNegotiated);
        }
        *lock(&self.format) = Some(format);
        self.obj().set_caps(caps).map_err(|_| gst::FlowError::NotNegotiated)
    }

    /// The next buffer of an elementary stream, or `None` before more has come.
    fn next_frame(&self) -> Result<Option<gst::Buffer>, gst::FlowError> {
        loop {
            let next = lock(&self.frames).as_mut().and_then(|frames| frames.ready.pop_front());
            match next {
                None => return Ok(None),
                Some(Ready::Buffer(buffer)) => return Ok(Some(buffer)),
                Some(Ready::Caps(caps)) => {
                    let format = Format::of_caps(&caps).ok_or(gst::FlowError::NotNegotiated)?;
                    self.offer(format, &caps)?;
                }
            }
        }
    }

    /// Takes datagrams of an elementary stream.
    fn take_frames(&self, coding: Elementary, taken: &[Item]) -> Result<(), gst::FlowError> {
        let common = &self.whole()?.common;
        let keeps_listening = common.chosen().keep_listening;
        let mut frames = lock(&self.frames);
        let frames = frames.get_or_insert_with(|| Frames::new(&common.timeline));
        for item in taken {
            let Err(sentence) = frames.push(coding, item) else { continue };
            // Another sender may send what can be read.
            if keeps_listening {
                if !std::mem::replace(&mut frames.is_warned, true) {
                    let sentence = format!("left out: {sentence}");
                    common.warn(&sentence);
                }
            } else {
                self.refuse_format(&sentence);
                return Err(gst::FlowError::Error);
            }
        }
        Ok(())
    }

    /// Sets the caps when the first datagram says what it is, or when that changes.
    fn recognise(&self, datagram: &[u8]) -> Result<Format, gst::FlowError> {
        let before = *lock(&self.format);
        let found = Format::of(datagram).or(before.filter(|before| before.coding().is_none()));
        if let (Some(found), true) = (found, found == before) {
            return Ok(found);
        }
        let given = self.whole()?.common.chosen().caps;
        let of_given = given.as_ref().and_then(|caps| Format::of_caps(caps));
        let caps = match (found, given) {
            (Some(format), Some(caps)) if of_given == Some(format) => caps,
            (Some(Format::TransportStream), None) => transport_stream(),
            (found, given) => {
                self.refuse_caps(found, given.is_some());
                return Err(gst::FlowError::NotNegotiated);
            }
        };
        let format = found.unwrap_or(Format::TransportStream);
        self.offer(format, &caps)?;
        Ok(format)
    }

    fn refuse_caps(&self, found: Option<Format>, has_caps: bool) {
        let sentence = match (found, has_caps) {
            (Some(Format::Rtp), false) => {
                "the sender sends RTP: set caps, as in caps=\"application/x-rtp,media=video,\
                 clock-rate=90000,encoding-name=H264\""
                    .to_owned()
            }
            (Some(found), _) => format!("caps: the sender sends {found}, which they are not"),
            (None, _) => "the sender sends neither MPEG-TS nor RTP".to_owned(),
        };
        self.refuse_format(&sentence);
    }
}

/// A buffer of these datagrams, the time of which is that of the first.
fn buffer(data: Vec<u8>, at: Option<gst::ClockTime>, is_discontinuous: bool) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(data);
    if let Some(buffer) = buffer.get_mut() {
        buffer.set_pts(at);
        if is_discontinuous {
            buffer.set_flags(gst::BufferFlags::DISCONT);
        }
    }
    buffer
}

impl BaseSrcImpl for StreamSrc {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.frames) = None;
        *lock(&self.format) = None;
        Ok(())
    }

    fn is_seekable(&self) -> bool {
        false
    }

    /// Of a pad that is there because of a coding, that.
    fn caps(&self, filter: Option<&gst::Caps>) -> Option<gst::Caps> {
        let coding = self.whole.get().and_then(|whole| whole.coding);
        let caps = match self.obj().src_pad().current_caps() {
            Some(caps) => caps,
            None => coding.map_or_else(all_caps, elementary_caps),
        };
        Some(match filter {
            Some(filter) => filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First),
            None => caps,
        })
    }

    /// The caps are known with the first datagram.
    fn negotiate(&self) -> Result<(), gst::LoggableError> {
        Ok(())
    }

    fn query(&self, query: &mut gst::QueryRef) -> bool {
        if let gst::QueryViewMut::Latency(latency) = query.view_mut() {
            let known = self.queue().and_then(|queue| queue.lock().timing);
            let given = || {
                let given = self.whole.get().map(|whole| whole.common.chosen().latency);
                let given = Duration::from_millis(given.unwrap_or_default().into());
                Timing { latency: given, grace: Duration::ZERO }
            };
            let Timing { latency: delay, grace } = known.unwrap_or_else(given);
            let least = gst::ClockTime::from_nseconds(delay.saturating_add(grace).as_nanos());
            latency.set(true, least, gst::ClockTime::NONE);
            return true;
        }
        BaseSrcImplExt::parent_query(self, query)
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        if let Some(queue) = self.queue() {
            queue.unlock(true);
        }
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        if let Some(queue) = self.queue() {
            queue.unlock(false);
        }
        Ok(())
    }
}

impl PushSrcImpl for StreamSrc {
    fn create(&self, _: Option<&mut gst::BufferRef>) -> Result<CreateSuccess, gst::FlowError> {
        let queue = self.queue().ok_or(gst::FlowError::Flushing)?;
        let taken = loop {
            if let Some(buffer) = self.next_frame()? {
                return Ok(CreateSuccess::NewBuffer(buffer));
            }
            let taken = match queue.take() {
                Ok(taken) => taken,
                Err(Nothing::Unlocked) => return Err(gst::FlowError::Flushing),
                Err(Nothing::Ended(Ok(()))) => return Err(gst::FlowError::Eos),
                Err(Nothing::Ended(Err(failed))) => {
                    self.refuse(gst::error_msg!(failed.code, ("{}", failed.sentence)));
                    return Err(gst::FlowError::Error);
                }
            };
            match taken.first().and_then(|first| first.coding) {
                Some(coding) => self.take_frames(coding, &taken)?,
                None => break taken,
            }
        };
        let Some(first) = taken.first() else { return Err(gst::FlowError::Error) };
        let (at, is_discontinuous) = (first.at, first.is_discontinuous);
        match self.recognise(&first.data)? {
            Format::TransportStream => {
                let data = taken.into_iter().flat_map(|item| item.data).collect();
                Ok(CreateSuccess::NewBuffer(buffer(data, at, is_discontinuous)))
            }
            Format::Rtp | Format::Elementary(_) => {
                let mut list = gst::BufferList::new();
                if let Some(list) = list.get_mut() {
                    for Item { data, at, is_discontinuous, .. } in taken {
                        list.add(buffer(data, at, is_discontinuous));
                    }
                }
                Ok(CreateSuccess::NewBufferList(list))
            }
        }
    }
}
