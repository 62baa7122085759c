//! The element.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration as Wall;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use gstreamer_base::prelude::*;
use gstreamer_base::subclass::base_src::CreateSuccess;
use gstreamer_base::subclass::prelude::*;
use ontempo_foundation::{AddressError, Duration};
use ontempo_media::Elementary;
use ontempo_session::message::MAX_LATENCY;
use ontempo_session::{ReceiverOptions, ReceiverUrl, StreamName, own_host};
use ontempo_transport::Identity;
use ontempo_transport::live::Listener;
use ontempo_udp::{Socket, SocketOptions};

use super::frames::{Frames, Ready};
use super::queue::{Item, Nothing, Queue, State, Timing};
use super::receiving::{Entrance, Receiving, options};
use super::statistics::structure;
use crate::access::Access;
use crate::failure::wrong;
use crate::media::{Format, all_caps, transport_stream};
use crate::properties::{access, choice, lock, number, stats, text};

/// The properties.
#[derive(Clone, Debug, Default)]
struct Settings {
    access: Access,
    identity: Option<String>,
    anyone: bool,
    stream: Option<String>,
    /// Milliseconds; 0: the sender's.
    latency: u32,
    keep_listening: bool,
    give_up: GiveUp,
    caps: Option<gst::Caps>,
}

/// Seconds.
#[derive(Clone, Copy, Debug)]
struct GiveUp(u32);

impl Default for GiveUp {
    fn default() -> Self {
        Self(90)
    }
}

impl Settings {
    fn give_up(&self) -> Wall {
        Wall::from_secs(u64::from(self.give_up.0))
    }

    /// True if a relay is called: a fingerprint is that of another side.
    fn calls(&self) -> Result<bool, String> {
        Ok(self.access.address()?.fingerprint.is_some()
            || self.access.given_fingerprint()?.is_some())
    }

    fn identity(&self) -> Result<Identity, String> {
        let names = ["localhost"];
        let made = match self.identity.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => Identity::load_or_create(Path::new(path), &names),
            None => Identity::self_signed(&names),
        };
        made.map_err(|error| format!("identity: {error}"))
    }

    fn relay(&self) -> Result<Entrance, String> {
        if self.anyone || self.identity.as_deref().is_some_and(|path| !path.is_empty()) {
            return Err(
                "anyone, identity: they are of a listener; the fingerprint is that of a relay \
                        to call"
                    .to_owned(),
            );
        }
        let stream = self.stream.as_deref().filter(|name| !name.is_empty());
        let stream = stream.map(str::parse::<StreamName>).transpose();
        let stream = stream.map_err(|error| format!("stream: {error}"))?;
        Ok(Entrance::Relay(Box::new(self.access.peer(false)?), stream, self.give_up()))
    }

    /// Listens; also the URL for senders.
    fn listener(&self) -> Result<(Entrance, String), gst::ErrorMessage> {
        let address = self.access.address().map_err(wrong)?;
        let admitted = self.access.admitted(self.anyone).map_err(wrong)?;
        let identity = self.identity().map_err(wrong)?;
        let socket = if address.host.is_empty() {
            Socket::bind_any(address.port, SocketOptions::default())
        } else {
            let at = ontempo_foundation::resolve(&address.authority()).map_err(|error| {
                wrong(match error {
                    AddressError::Written(what) => format!("uri: {what}"),
                    AddressError::Unknown(what) => format!("uri: {what}"),
                })
            })?;
            Socket::bind(at, SocketOptions::default())
        };
        let unbound = |why: String| {
            let place = address.authority();
            gst::error_msg!(gst::ResourceError::OpenRead, ("uri: cannot listen at {place}: {why}"))
        };
        let socket = socket.map_err(|error| unbound(error.to_string()))?;
        let listener = Listener::new(socket, &identity, admitted.token.clone(), &options())
            .map_err(|error| unbound(error.to_string()))?;
        let local = listener.local();
        let host = if local.ip().is_unspecified() { own_host() } else { local.ip().to_string() };
        let (fingerprint, token) = (identity.fingerprint(), admitted.made.unwrap_or_default());
        let url = ReceiverUrl { host, port: local.port(), fingerprint, token };
        Ok((Entrance::Listener(listener), url.to_string()))
    }
}

/// What runs.
#[derive(Default)]
struct Running {
    receiving: Option<Receiving>,
    /// The URL for senders, of a listener.
    url: Option<String>,
    /// What is received.
    format: Option<Format>,
}

/// The private part of the element.
#[derive(Default)]
pub struct OntempoSrc {
    settings: Mutex<Settings>,
    running: Mutex<Running>,
    frames: Mutex<Frames>,
}

#[glib::object_subclass]
impl ObjectSubclass for OntempoSrc {
    const NAME: &'static str = "GstOntempoSrc";
    type Type = super::OntempoSrc;
    type ParentType = gstreamer_base::PushSrc;
    type Interfaces = (gst::URIHandler,);
}

static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
    let most = (MAX_LATENCY.as_nanos() / 1_000_000) as u32;
    let mut all = access(
        "Where to listen, ontempo://HOST:PORT or ontempo://:PORT; with a fingerprint: a relay to call, ontempo://HOST:PORT/FINGERPRINT#TOKEN",
    );
    all.extend([
        text(
            "identity",
            "Identity",
            "A file with certificate and key of a listener (PEM), which is made if it is missing; without it each start has new ones",
        ),
        choice("anyone", "Anyone", "A listener admits senders without a token"),
        text("stream", "Stream", "The stream's name at a relay"),
        number(
            "latency",
            "Latency",
            "From a datagram's arrival at the sender to its delivery here, without the fastest transit: milliseconds; 0: the sender's",
            (0, most, 0),
        ),
        choice(
            "keep-listening",
            "Keep listening",
            "Wait for another stream after the end of one; without it that is the end of the stream",
        ),
        number(
            "give-up",
            "Give up",
            "How long to wait for a sender that was lost, unless keep-listening, and for a relay: seconds",
            (0, u32::MAX, GiveUp::default().0),
        ),
        glib::ParamSpecBoxed::builder::<gst::Caps>("caps")
            .nick("Caps")
            .blurb("Caps of what is received, which a stream of RTP needs; others are known")
            .mutable_ready()
            .build(),
        glib::ParamSpecString::builder("url")
            .nick("URL")
            .blurb("What a sender is given to send here; with the token only if that was made here")
            .read_only()
            .build(),
        stats("What has arrived, and the path"),
    ]);
    all
});

impl ObjectImpl for OntempoSrc {
    fn properties() -> &'static [glib::ParamSpec] {
        &PROPERTIES
    }

    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        element.set_live(true);
        element.set_format(gst::Format::Time);
    }

    fn set_property(&self, _: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut settings = lock(&self.settings);
        let settings = &mut *settings;
        // The type of each value has been checked.
        match spec.name() {
            "identity" => settings.identity = value.get().ok().flatten(),
            "anyone" => settings.anyone = value.get().unwrap_or_default(),
            "stream" => settings.stream = value.get().ok().flatten(),
            "latency" => settings.latency = value.get().unwrap_or_default(),
            "keep-listening" => settings.keep_listening = value.get().unwrap_or_default(),
            "give-up" => settings.give_up = GiveUp(value.get().unwrap_or_default()),
            "caps" => settings.caps = value.get().ok().flatten(),
            name => {
                settings.access.set(name, value);
            }
        }
    }

    fn property(&self, _: usize, spec: &glib::ParamSpec) -> glib::Value {
        match spec.name() {
            "url" => return lock(&self.running).url.to_value(),
            "stats" => return self.statistics().to_value(),
            _ => {}
        }
        let settings = lock(&self.settings);
        match spec.name() {
            "identity" => settings.identity.to_value(),
            "anyone" => settings.anyone.to_value(),
            "stream" => settings.stream.to_value(),
            "latency" => settings.latency.to_value(),
            "keep-listening" => settings.keep_listening.to_value(),
            "give-up" => settings.give_up.0.to_value(),
            "caps" => settings.caps.to_value(),
            name => settings.access.get(name).unwrap_or_else(|| None::<String>.to_value()),
        }
    }
}

impl GstObjectImpl for OntempoSrc {}

impl ElementImpl for OntempoSrc {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "ontempo source",
                "Source/Network",
                "Receives MPEG-TS, RTP or an elementary stream with deadlines over QUIC, of ontempo send or ontemposink",
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

impl URIHandlerImpl for OntempoSrc {
    const URI_TYPE: gst::URIType = gst::URIType::Src;

    fn protocols() -> &'static [&'static str] {
        &["ontempo"]
    }

    fn uri(&self) -> Option<String> {
        lock(&self.settings).access.uri.clone()
    }

    fn set_uri(&self, uri: &str) -> Result<(), glib::Error> {
        lock(&self.settings).access.set_uri(uri)
    }
}

impl OntempoSrc {
    fn queue(&self) -> Option<Arc<Queue>> {
        lock(&self.running).receiving.as_ref().map(|receiving| Arc::clone(&receiving.queue))
    }

    fn statistics(&self) -> gst::Structure {
        match self.queue() {
            Some(queue) => structure(&queue.lock()),
            None => structure(&State::default()),
        }
    }

    /// Sets caps, unless what follows does not take them.
    fn offer(&self, format: Format, caps: &gst::Caps) -> Result<(), gst::FlowError> {
        let element = self.obj();
        let peer = element.src_pad().peer();
        if let Some(peer) = peer.filter(|peer| !peer.query_accept_caps(caps)) {
            let next = peer.parent().map_or_else(|| "what follows".into(), |next| next.name());
            let name = caps.structure(0).map_or("", |structure| structure.name().as_str());
            let sentence =
                format!("the sender sends {format} ({name}), which {next} does not take");
            gst::element_imp_error!(self, gst::StreamError::Format, ("{sentence}"), ["{caps}"]);
            return Err(gst::FlowError::NotNegotiated);
        }
        lock(&self.running).format = Some(format);
        element.set_caps(caps).map_err(|_| gst::FlowError::NotNegotiated)
    }

    /// The next buffer of an elementary stream, or `None` before more has come.
    fn next_frame(&self) -> Result<Option<gst::Buffer>, gst::FlowError> {
        loop {
            let next = lock(&self.frames).ready.pop_front();
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
        let keeps_listening = lock(&self.settings).keep_listening;
        let mut frames = lock(&self.frames);
        for item in taken {
            let Err(sentence) = frames.push(coding, item) else { continue };
            // Another sender may send what can be read.
            if keeps_listening {
                if !std::mem::replace(&mut frames.is_warned, true) {
                    let sentence = format!("left out: {sentence}");
                    gst::element_imp_warning!(self, gst::StreamError::Format, ("{sentence}"));
                }
            } else {
                gst::element_imp_error!(self, gst::StreamError::Format, ("{sentence}"));
                return Err(gst::FlowError::Error);
            }
        }
        Ok(())
    }

    /// Sets the caps when the first datagram says what it is, or when that changes.
    fn recognise(&self, datagram: &[u8]) -> Result<Format, gst::FlowError> {
        let before = lock(&self.running).format;
        let found = Format::of(datagram).or(before.filter(|before| before.coding().is_none()));
        if let (Some(found), true) = (found, found == before) {
            return Ok(found);
        }
        let given = lock(&self.settings).caps.clone();
        let of_given = given.as_ref().and_then(|caps| Format::of_caps(caps));
        let caps = match (found, given) {
            (Some(format), Some(caps)) if of_given == Some(format) => caps,
            (Some(Format::TransportStream), None) => transport_stream(),
            (found, given) => {
                self.refuse(found, given.is_some());
                return Err(gst::FlowError::NotNegotiated);
            }
        };
        let format = found.unwrap_or(Format::TransportStream);
        self.offer(format, &caps)?;
        Ok(format)
    }

    fn refuse(&self, found: Option<Format>, has_caps: bool) {
        let sentence = match (found, has_caps) {
            (Some(Format::Rtp), false) => {
                "the sender sends RTP: set caps, as in caps=\"application/x-rtp,media=video,\
                 clock-rate=90000,encoding-name=H264\""
                    .to_owned()
            }
            (Some(found), _) => format!("caps: the sender sends {found}, which they are not"),
            (None, _) => "the sender sends neither MPEG-TS nor RTP".to_owned(),
        };
        gst::element_imp_error!(self, gst::StreamError::Format, ("{sentence}"));
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

impl BaseSrcImpl for OntempoSrc {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let settings = lock(&self.settings).clone();
        let (entrance, url) = if settings.calls().map_err(wrong)? {
            (settings.relay().map_err(wrong)?, None)
        } else {
            settings.listener().map(|(entrance, url)| (entrance, Some(url)))?
        };
        let latency =
            (settings.latency > 0).then(|| Duration::from_millis(settings.latency.into()));
        let options = ReceiverOptions {
            latency,
            once: !settings.keep_listening,
            give_up: Some(settings.give_up()),
            stop: Arc::new(AtomicBool::new(false)),
        };
        let receiving = Receiving::start(&self.obj(), entrance, options);
        let receiving = receiving.map_err(|error| wrong(format!("no thread: {error}")))?;
        if let Some(url) = &url {
            let sentence = format!("senders send to {url}");
            gst::element_imp_info!(
                self,
                gst::ResourceError::OpenRead,
                ("{sentence}"),
                ["{sentence}"]
            );
        }
        *lock(&self.frames) = Frames::default();
        *lock(&self.running) = Running { receiving: Some(receiving), url, format: None };
        self.obj().notify("url");
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        let running = std::mem::take(&mut *lock(&self.running));
        drop(running);
        Ok(())
    }

    fn is_seekable(&self) -> bool {
        false
    }

    /// The caps are known with the first datagram.
    fn negotiate(&self) -> Result<(), gst::LoggableError> {
        Ok(())
    }

    fn query(&self, query: &mut gst::QueryRef) -> bool {
        if let gst::QueryViewMut::Latency(latency) = query.view_mut() {
            let known = self.queue().and_then(|queue| queue.lock().timing);
            let given = || {
                let given = Duration::from_millis(lock(&self.settings).latency.into());
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

impl PushSrcImpl for OntempoSrc {
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
                    gst::element_imp_error!(self, failed.code, ("{}", failed.sentence));
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
