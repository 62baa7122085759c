//! The element.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration as Wall;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use ontempo_foundation::{AddressError, Duration};
use ontempo_media::{Elementary, MAX_STREAMS};
use ontempo_session::message::MAX_LATENCY;
use ontempo_session::{ReceiverOptions, ReceiverUrl, StreamName, own_host};
use ontempo_transport::Identity;
use ontempo_transport::live::Listener;
use ontempo_udp::{Socket, SocketOptions};

use super::StreamSrc;
use super::outlet::{Chosen, Common};
use super::queue::{Queue, State};
use super::queues::Queues;
use super::receiving::{Entrance, Receiving, options};
use super::statistics::structure;
use crate::access::Access;
use crate::failure::wrong;
use crate::media::{all_caps, caps_of_frames};
use crate::place::{Place, pad_name};
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
    /// Of each pad; −1: all.
    num_buffers: NumBuffers,
}

#[derive(Clone, Copy, Debug)]
struct NumBuffers(i32);

impl Default for NumBuffers {
    fn default() -> Self {
        Self(-1)
    }
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
}

/// The private part of the element.
#[derive(Default)]
pub struct OntempoSrc {
    settings: Mutex<Settings>,
    running: Mutex<Running>,
    common: OnceLock<Arc<Common>>,
    streams: Mutex<BTreeMap<Place, StreamSrc>>,
}

#[glib::object_subclass]
impl ObjectSubclass for OntempoSrc {
    const NAME: &'static str = "GstOntempoSrc";
    type Type = super::OntempoSrc;
    type ParentType = gst::Bin;
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
        glib::ParamSpecInt::builder("num-buffers")
            .nick("num-buffers")
            .blurb("Buffers to give out at each pad before the end of the stream; -1: all")
            .minimum(-1)
            .default_value(-1)
            .build(),
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
        element.set_suppressed_flags(gst::ElementFlags::SINK | gst::ElementFlags::SOURCE);
        element.set_element_flags(gst::ElementFlags::SOURCE);
        let stream = StreamSrc::new(self.common(), None, None);
        // Nothing has these names yet.
        let _ = element.add(&stream);
        if let Some(pad) = self.common().ghost(&stream, None) {
            let _ = element.add_pad(&pad);
        }
        lock(&self.streams).insert(None, stream);
    }

    fn set_property(&self, _: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut held = lock(&self.settings);
        let settings = &mut *held;
        // The type of each value has been checked.
        match spec.name() {
            "identity" => settings.identity = value.get().ok().flatten(),
            "anyone" => settings.anyone = value.get().unwrap_or_default(),
            "stream" => settings.stream = value.get().ok().flatten(),
            "latency" => settings.latency = value.get().unwrap_or_default(),
            "keep-listening" => settings.keep_listening = value.get().unwrap_or_default(),
            "give-up" => settings.give_up = GiveUp(value.get().unwrap_or_default()),
            "caps" => settings.caps = value.get().ok().flatten(),
            "num-buffers" => {
                settings.num_buffers = NumBuffers(value.get().unwrap_or(-1));
            }
            name => {
                settings.access.set(name, value);
            }
        }
        // Who is notified of a child's property may read ours.
        drop(held);
        if spec.name() == "num-buffers" {
            let streams: Vec<StreamSrc> = lock(&self.streams).values().cloned().collect();
            streams.iter().for_each(|stream| stream.set_property_from_value("num-buffers", value));
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
            "num-buffers" => settings.num_buffers.0.to_value(),
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
                "Receives MPEG-TS, RTP or elementary streams with deadlines over QUIC, of ontempo send or ontemposink",
                "The ontempo developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let made = |name, presence, caps: &gst::Caps| {
                gst::PadTemplate::new(name, gst::PadDirection::Src, presence, caps)
            };
            let always = made("src", gst::PadPresence::Always, &all_caps());
            let sometimes = made("src_%u", gst::PadPresence::Sometimes, &caps_of_frames());
            always.into_iter().chain(sometimes).collect()
        });
        &TEMPLATES
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::ReadyToPaused
            && let Err(error) = self.begin()
        {
            self.post_error_message(error);
            return Err(gst::StateChangeError);
        }
        let changed = self.parent_change_state(transition);
        match (transition, self.queues()) {
            (gst::StateChange::PausedToPlaying, Some(queues)) => queues.play(true),
            (gst::StateChange::PlayingToPaused, Some(queues)) => queues.play(false),
            _ => {}
        }
        let is_stopped = transition == gst::StateChange::PausedToReady;
        if is_stopped || transition == gst::StateChange::ReadyToPaused && changed.is_err() {
            self.end();
        }
        changed
    }

    /// A bin asks its sinks alone.
    fn query(&self, query: &mut gst::QueryRef) -> bool {
        let always = lock(&self.streams).get(&None).cloned();
        match (query.type_(), always) {
            (gst::QueryType::Latency, Some(always)) => always.query(query),
            _ => self.parent_query(query),
        }
    }
}

impl BinImpl for OntempoSrc {}

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
    pub(super) fn common(&self) -> &Arc<Common> {
        self.common.get_or_init(|| Arc::new(Common::new(self.obj().downgrade())))
    }

    fn queues(&self) -> Option<Arc<Queues>> {
        lock(&self.running).receiving.as_ref().map(|receiving| Arc::clone(&receiving.queues))
    }

    fn statistics(&self) -> gst::Structure {
        match self.queues() {
            Some(queues) => {
                let overflow = queues.overflow();
                structure(&queues.first.lock(), overflow)
            }
            None => structure(&State::default(), 0),
        }
    }

    /// Begins to listen, or to call.
    fn begin(&self) -> Result<(), gst::ErrorMessage> {
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
        let Settings { keep_listening, caps, latency, .. } = settings;
        self.common().begin(Chosen { keep_listening, caps, latency });
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
        if let Some(always) = lock(&self.streams).get(&None) {
            always.set_queue(Some(Arc::clone(&receiving.queues.first)));
        }
        let mut running = lock(&self.running);
        (running.receiving, running.url) = (Some(receiving), url);
        drop(running);
        self.obj().notify("url");
        Ok(())
    }

    /// Ends receiving; the pads of streams go.
    fn end(&self) {
        let running = std::mem::take(&mut *lock(&self.running));
        drop(running);
        self.remove_others();
        self.common().use_pads(&[]);
    }

    /// Removes all pads but `src`.
    fn remove_others(&self) {
        let others: Vec<Place> = lock(&self.streams).keys().copied().collect();
        others.into_iter().filter(Option::is_some).for_each(|place| self.remove(place));
    }

    /// Removes the pad of this queue.
    pub(super) fn remove_of(&self, queue: &Arc<Queue>) {
        let streams = lock(&self.streams);
        let of_queue = streams.iter().find(|(_, stream)| stream.takes_from(queue));
        let place = of_queue.map(|(place, _)| *place);
        drop(streams);
        if let Some(place) = place {
            self.remove(place);
        }
    }

    /// Removes a pad, and the stream behind it.
    fn remove(&self, place: Place) {
        let Some(stream) = lock(&self.streams).remove(&place) else { return };
        let element = self.obj();
        stream.set_locked_state(true);
        let _ = stream.set_state(gst::State::Null);
        if let Some(pad) = element.static_pad(&pad_name("src", place)) {
            let _ = pad.set_active(false);
            let _ = element.remove_pad(&pad);
        }
        let _ = element.remove(&stream);
    }

    /// Adds the pad of a stream of several: that of its number, or a higher one where a pad that stands still has it.
    /// `None` if the element stops.
    pub(super) fn add(
        &self,
        number: usize,
        coding: Elementary,
        queue: &Arc<Queue>,
        queues: &Queues,
    ) -> Option<gst::Pad> {
        if queues.is_stopping() {
            return None;
        }
        let place = self.free_place(number);
        queue.set_place(place);
        let element = self.obj();
        let stream = StreamSrc::new(self.common(), place, Some(coding));
        stream.set_queue(Some(Arc::clone(queue)));
        let num_buffers = lock(&self.settings).num_buffers.0;
        stream.set_property("num-buffers", num_buffers);
        element.add(&stream).ok()?;
        let pad = self.common().ghost(&stream, place)?;
        lock(&self.streams).insert(place, stream.clone());
        // Who stops the element removes the streams that are there after this was set.
        if queues.is_stopping() {
            self.remove(place);
            return None;
        }
        let _ = pad.set_active(true);
        element.add_pad(&pad).ok()?;
        let _ = stream.sync_state_with_parent();
        Some(pad.upcast())
    }

    /// The place of the stream of this number, or the first behind those of all numbers.
    fn free_place(&self, number: usize) -> Place {
        let streams = lock(&self.streams);
        let is_free = |number: &usize| !streams.contains_key(&u32::try_from(*number).ok());
        let number = std::iter::once(number).chain(MAX_STREAMS..).find(is_free);
        number.and_then(|number| u32::try_from(number).ok())
    }
}
