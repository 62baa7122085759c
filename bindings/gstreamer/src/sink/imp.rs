//! The element.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration as Wall;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::CongestionName;
use ontempo_media::MAX_STREAMS;
use ontempo_session::latency::GRACE;
use ontempo_session::message::MAX_LATENCY;
use ontempo_session::{SenderOptions, StreamName, configuration};
use ontempo_transport::live::Options;
use ontempo_transport::{Configuration, DeliveryOrder, Reliability as Flow};

use super::connection::Connection;
use super::sending::{Noted, Prepared};
use super::statistics::structure;
use super::stream::taken;
use super::{Reliability, StreamSink};
use crate::access::Access;
use crate::failure::wrong;
use crate::media::Format;
use crate::place::{Place, pad_name};
use crate::properties::{access, choice, lock, number, stats, text};

/// The properties.
#[derive(Clone, Debug)]
struct Settings {
    access: Access,
    insecure: bool,
    stream: Option<String>,
    /// Milliseconds; 0: by the round trip.
    latency: u32,
    grace: u32,
    reliability: Reliability,
    congestion: Option<String>,
    /// Seconds.
    give_up: u32,
    /// Bytes.
    buffer: u32,
    /// Of each stream.
    sync: bool,
    is_async: bool,
    /// Nanoseconds.
    ts_offset: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            access: Access::default(),
            insecure: false,
            stream: None,
            latency: 0,
            grace: (GRACE.as_nanos() / 1_000_000) as u32,
            reliability: Reliability::default(),
            congestion: None,
            give_up: 60,
            buffer: 16 << 20,
            sync: true,
            is_async: true,
            ts_offset: 0,
        }
    }
}

impl Settings {
    fn reliability(&self) -> Flow {
        match self.reliability {
            Reliability::Deadline => Flow::Deadline,
            Reliability::Full => Flow::Full,
            Reliability::None => Flow::None,
        }
    }

    /// Options of the session, without the receiver's address.
    fn options(&self, peer: &crate::access::Peer) -> Result<SenderOptions, String> {
        let stream = self.stream.as_deref().filter(|name| !name.is_empty());
        let stream = stream.map(str::parse::<StreamName>).transpose();
        let congestion = match self.congestion.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => name.parse().map_err(|error| format!("congestion: {error}"))?,
            None => CongestionName::FOR_MEDIA,
        };
        let configuration = Configuration {
            congestion: congestion.over_udp(&[]).map_err(|error| error.to_string())?,
            ..configuration()
        };
        let millis = |span: u32| Duration::from_millis(u64::from(span));
        Ok(SenderOptions {
            remote: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            name: peer.name.clone(),
            trust: peer.trust.clone(),
            token: peer.token.clone(),
            transport: Options { configuration, ..Options::default() },
            latency: (self.latency > 0).then(|| millis(self.latency)),
            grace: millis(self.grace),
            order: DeliveryOrder::InOrder,
            reliability: self.reliability(),
            stream: stream.map_err(|error| format!("stream: {error}"))?,
            elementary: None,
            give_up: Wall::from_secs(u64::from(self.give_up)),
            stop: Arc::new(AtomicBool::new(false)),
        })
    }
}

/// The private part of the element.
#[derive(Default)]
pub struct OntempoSink {
    settings: Mutex<Settings>,
    connection: OnceLock<Arc<Connection>>,
    /// Those that take part.
    streams: Mutex<BTreeMap<Place, StreamSink>>,
}

#[glib::object_subclass]
impl ObjectSubclass for OntempoSink {
    const NAME: &'static str = "GstOntempoSink";
    type Type = super::OntempoSink;
    type ParentType = gst::Bin;
    type Interfaces = (gst::URIHandler,);
}

/// Properties of each stream's sink.
const OF_STREAMS: [&str; 3] = ["sync", "async", "ts-offset"];

static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
    let most = (MAX_LATENCY.as_nanos() / 1_000_000) as u32;
    let defaults = Settings::default();
    let mut all = access(
        "The receiver: all that it prints, ontempo://HOST:PORT/FINGERPRINT#TOKEN, or ontempo://HOST:PORT",
    );
    all.extend([
        choice("insecure", "Insecure", "Do not verify the receiver's certificate"),
        text("stream", "Stream", "The stream's name at a relay"),
        number(
            "latency",
            "Latency",
            "From a buffer's arrival here to its delivery at the receiver, without the fastest transit: milliseconds; 0: by the round trip",
            (0, most, defaults.latency),
        ),
        number(
            "grace",
            "Grace",
            "How much longer the receiver waits for what is missing, milliseconds",
            (0, most, defaults.grace),
        ),
        glib::ParamSpecEnum::builder_with_default("reliability", defaults.reliability)
            .nick("Reliability")
            .blurb("What is lost is sent again: how long")
            .mutable_ready()
            .build(),
        text("congestion", "Congestion control", "As of ontempo send: bbr, where it is not set, media, pert, and others"),
        number(
            "give-up",
            "Give up",
            "How long to connect again after a connection was lost, seconds",
            (0, u32::MAX, defaults.give_up),
        ),
        number(
            "buffer",
            "Buffer",
            "What may wait for the network, bytes; beyond it the oldest of the least important is dropped",
            (65_536, 1 << 30, defaults.buffer),
        ),
        glib::ParamSpecUInt::builder("target-bitrate")
            .nick("Target bit rate")
            .blurb("The bit rate that the path bears, of the whole stream, for the encoder: bits a second; 0: not known. It is notified")
            .read_only()
            .build(),
        stats("What was sent, what arrived, and the path"),
        glib::ParamSpecBoolean::builder("sync")
            .nick("Sync")
            .blurb("Send each buffer at its time by the clock; for live sources false")
            .default_value(defaults.sync)
            .build(),
        glib::ParamSpecBoolean::builder("async")
            .nick("Async")
            .blurb("Go to PAUSED only with a first buffer at each pad")
            .default_value(defaults.is_async)
            .build(),
        glib::ParamSpecInt64::builder("ts-offset")
            .nick("TS Offset")
            .blurb("How much later than its time a buffer is sent, nanoseconds")
            .build(),
    ]);
    all
});

impl ObjectImpl for OntempoSink {
    fn properties() -> &'static [glib::ParamSpec] {
        &PROPERTIES
    }

    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        // Also while it has no stream.
        element.set_suppressed_flags(gst::ElementFlags::SINK | gst::ElementFlags::SOURCE);
        element.set_element_flags(gst::ElementFlags::SINK);
        if let Some(template) = element.pad_template("sink") {
            let pad = gst::GhostPad::from_template(&template);
            let weak = self.downgrade();
            pad.connect_linked(move |_, _| {
                if let Some(sink) = weak.upgrade() {
                    sink.choose_always();
                }
            });
            // Nothing has this name yet.
            let _ = element.add_pad(&pad);
            self.attach(None, &pad);
        }
    }

    fn set_property(&self, _: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut held = lock(&self.settings);
        let settings = &mut *held;
        // The type of each value has been checked.
        let number = || value.get::<u32>().unwrap_or_default();
        match spec.name() {
            "insecure" => settings.insecure = value.get().unwrap_or_default(),
            "stream" => settings.stream = value.get().ok().flatten(),
            "latency" => settings.latency = number(),
            "grace" => settings.grace = number(),
            "congestion" => settings.congestion = value.get().ok().flatten(),
            "reliability" => settings.reliability = value.get().unwrap_or_default(),
            "give-up" => settings.give_up = number(),
            "buffer" => settings.buffer = number(),
            "sync" => settings.sync = value.get().unwrap_or_default(),
            "async" => settings.is_async = value.get().unwrap_or_default(),
            "ts-offset" => settings.ts_offset = value.get().unwrap_or_default(),
            name => {
                settings.access.set(name, value);
            }
        }
        drop(held);
        if OF_STREAMS.contains(&spec.name()) {
            let streams: Vec<StreamSink> = lock(&self.streams).values().cloned().collect();
            streams.iter().for_each(|stream| stream.set_property_from_value(spec.name(), value));
        }
    }

    fn property(&self, _: usize, spec: &glib::ParamSpec) -> glib::Value {
        match spec.name() {
            "target-bitrate" => return self.target_bitrate().to_value(),
            "stats" => return self.statistics().to_value(),
            _ => {}
        }
        let settings = lock(&self.settings);
        match spec.name() {
            "insecure" => settings.insecure.to_value(),
            "stream" => settings.stream.to_value(),
            "latency" => settings.latency.to_value(),
            "grace" => settings.grace.to_value(),
            "congestion" => settings.congestion.to_value(),
            "reliability" => settings.reliability.to_value(),
            "give-up" => settings.give_up.to_value(),
            "buffer" => settings.buffer.to_value(),
            "sync" => settings.sync.to_value(),
            "async" => settings.is_async.to_value(),
            "ts-offset" => settings.ts_offset.to_value(),
            name => settings.access.get(name).unwrap_or_else(|| None::<String>.to_value()),
        }
    }
}

impl GstObjectImpl for OntempoSink {}

impl ElementImpl for OntempoSink {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "ontempo sink",
                "Sink/Network",
                "Sends MPEG-TS, RTP or elementary streams with deadlines over QUIC, to ontempo receive or ontemposrc",
                "The ontempo developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let made = |name, presence, caps: &gst::Caps| {
                gst::PadTemplate::new(name, gst::PadDirection::Sink, presence, caps)
            };
            let always = made("sink", gst::PadPresence::Always, &taken(None));
            let asked_for = made("sink_%u", gst::PadPresence::Request, &taken(Some(0)));
            always.into_iter().chain(asked_for).collect()
        });
        &TEMPLATES
    }

    fn request_new_pad(
        &self,
        template: &gst::PadTemplate,
        name: Option<&str>,
        _: Option<&gst::Caps>,
    ) -> Option<gst::Pad> {
        let connection = self.connection();
        if connection.has_begun() {
            self.warn("a pad is asked for in mid-stream: a connection carries the streams with which it begins");
            return None;
        }
        let asked = name.and_then(|name| name.strip_prefix("sink_")?.parse().ok());
        let number = {
            let streams = lock(&self.streams);
            let mut taken = streams.keys().filter_map(|place| *place);
            let after = taken.clone().max().map_or(0, |last| last.saturating_add(1));
            let number: u32 = asked.unwrap_or(after);
            if taken.clone().count() >= MAX_STREAMS || taken.any(|other| other == number) {
                return None;
            }
            number
        };
        let place = Some(number);
        let pad =
            gst::GhostPad::builder_from_template(template).name(pad_name("sink", place)).build();
        self.attach(place, &pad);
        // A pad that is active when it is added to a running element.
        let _ = pad.set_active(true);
        self.obj().add_pad(&pad).ok()?;
        if self.obj().current_state() >= gst::State::Paused {
            self.choose_always();
        }
        Some(pad.upcast())
    }

    fn release_pad(&self, pad: &gst::Pad) {
        let place = pad.name().strip_prefix("sink_").and_then(|number| number.parse().ok());
        if place.is_none() {
            return;
        }
        let stream = lock(&self.streams).get(&place).cloned();
        // Who waits in it with a buffer holds what the pad's end waits for.
        if let Some(stream) = stream {
            halt(&stream);
        }
        let _ = pad.set_active(false);
        self.detach(place);
        let _ = self.obj().remove_pad(pad);
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::ReadyToPaused
            && let Err(error) = self.prepare()
        {
            self.post_error_message(error);
            self.connection().stop();
            return Err(gst::StateChangeError);
        }
        let changed = self.parent_change_state(transition);
        let is_stopped = transition == gst::StateChange::PausedToReady;
        if is_stopped || transition == gst::StateChange::ReadyToPaused && changed.is_err() {
            self.connection().stop();
        }
        changed
    }
}

impl BinImpl for OntempoSink {}

impl URIHandlerImpl for OntempoSink {
    const URI_TYPE: gst::URIType = gst::URIType::Sink;

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

/// Ends the sink behind a pad; who waits in it comes back.
fn halt(stream: &StreamSink) {
    stream.set_locked_state(true);
    let _ = stream.set_state(gst::State::Null);
}

impl OntempoSink {
    fn connection(&self) -> &Arc<Connection> {
        self.connection.get_or_init(|| Arc::new(Connection::new(self.obj().downgrade())))
    }

    fn target_bitrate(&self) -> u32 {
        let target = self.connection().shared().and_then(|shared| shared.lock().target);
        target.map_or(0, |rate| u32::try_from(rate.as_bits_per_sec()).unwrap_or(u32::MAX))
    }

    fn statistics(&self) -> gst::Structure {
        match self.connection().shared() {
            Some(shared) => structure(&shared.lock()),
            None => structure(&Noted::default()),
        }
    }

    fn warn(&self, sentence: &str) {
        gst::element_imp_warning!(self, gst::ResourceError::Settings, ("{sentence}"));
    }

    /// Makes the sink behind this pad.
    fn attach(&self, place: Place, pad: &gst::GhostPad) {
        let element = self.obj();
        let stream = StreamSink::new(&element, self.connection(), place);
        let settings = lock(&self.settings).clone();
        stream.set_property("sync", settings.sync);
        stream.set_property("async", settings.is_async);
        stream.set_property("ts-offset", settings.ts_offset);
        if element.add(&stream).is_err() {
            // Another thread has asked for the same pad.
            return;
        }
        let _ = pad.set_target(stream.static_pad("sink").as_ref());
        self.connection().add(place);
        lock(&self.streams).insert(place, stream.clone());
        let _ = stream.sync_state_with_parent();
    }

    /// Takes the sink behind a pad away; its stream ends.
    fn detach(&self, place: Place) {
        let Some(stream) = lock(&self.streams).remove(&place) else { return };
        let element = self.obj();
        if let Some(pad) = element.static_pad(&pad_name("sink", place))
            && let Some(pad) = pad.downcast_ref::<gst::GhostPad>()
        {
            let _ = pad.set_target(None::<&gst::Pad>);
        }
        halt(&stream);
        let ended = self.connection().remove(place);
        let _ = element.remove(&stream);
        if let Err(error) = ended {
            self.post_error_message(error);
        }
    }

    /// The pad that is always there takes part if it is linked, or the only one: nobody waits for what never
    /// comes.
    fn choose_always(&self) {
        let Some(pad) = self.obj().static_pad("sink") else { return };
        let (is_there, is_alone) = {
            let streams = lock(&self.streams);
            let is_there = streams.contains_key(&None);
            (is_there, streams.len() == usize::from(is_there))
        };
        let is_wanted = pad.is_linked() || is_alone;
        if is_there && !is_wanted {
            self.detach(None);
        } else if !is_there && is_wanted {
            if self.connection().has_begun() {
                self.warn("sink is linked in mid-stream: a connection carries the streams with which it begins");
            } else if let Some(pad) = pad.downcast_ref::<gst::GhostPad>() {
                self.attach(None, pad);
            }
        }
    }

    /// Reads the settings, and begins to connect if it is known what is carried.
    fn prepare(&self) -> Result<(), gst::ErrorMessage> {
        let settings = lock(&self.settings).clone();
        let peer = settings.access.peer(settings.insecure).map_err(wrong)?;
        let options = settings.options(&peer).map_err(wrong)?;
        let max_bytes = settings.buffer as usize;
        self.choose_always();
        let places: Vec<Place> = lock(&self.streams).keys().copied().collect();
        let format = |place: &Place| {
            let pad = self.obj().static_pad(&pad_name("sink", *place))?;
            Format::of_all(&pad.peer_query_caps(Some(&taken(*place))))
        };
        let known: Vec<_> = places.iter().map(|place| (*place, format(place))).collect();
        self.connection().prepare(Prepared { peer, options, max_bytes }, &known)
    }
}
