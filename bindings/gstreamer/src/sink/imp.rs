//! The element.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration as Wall;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use gstreamer_base::prelude::*;
use gstreamer_base::subclass::prelude::*;
use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::CongestionName;
use ontempo_media::Elementary;
use ontempo_session::latency::GRACE;
use ontempo_session::message::MAX_LATENCY;
use ontempo_session::{Feed, SenderOptions, StreamName, configuration};
use ontempo_transport::live::Options;
use ontempo_transport::{Configuration, DeliveryOrder, Reliability as Flow};

use super::Reliability;
use super::framer::Framer;
use super::sending::{Noted, Phase, Prepared, Sending, Shared};
use super::statistics::structure;
use crate::access::Access;
use crate::failure::{Failed, wrong};
use crate::media::{Cutter, Format, all_caps};
use crate::properties::{access, choice, lock, number, stats, text};

/// How long a full queue is left before it is looked at again.
const FULL: Wall = Wall::from_millis(5);

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
    /// Until it is known what is carried.
    prepared: Mutex<Option<Prepared>>,
    sending: Mutex<Option<Sending>>,
    carrier: Mutex<Option<Carrier>>,
}

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

#[glib::object_subclass]
impl ObjectSubclass for OntempoSink {
    const NAME: &'static str = "GstOntempoSink";
    type Type = super::OntempoSink;
    type ParentType = gstreamer_base::BaseSink;
    type Interfaces = (gst::URIHandler,);
}

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
    ]);
    all
});

impl ObjectImpl for OntempoSink {
    fn properties() -> &'static [glib::ParamSpec] {
        &PROPERTIES
    }

    fn set_property(&self, _: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut settings = lock(&self.settings);
        let settings = &mut *settings;
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
            name => {
                settings.access.set(name, value);
            }
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
                "Sends MPEG-TS, RTP or an elementary stream with deadlines over QUIC, to ontempo receive or ontemposrc",
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

impl OntempoSink {
    fn shared(&self) -> Option<Arc<Shared>> {
        lock(&self.sending).as_ref().map(|sending| Arc::clone(&sending.shared))
    }

    fn feed(&self) -> Option<Arc<Feed>> {
        lock(&self.sending).as_ref().map(|sending| Arc::clone(&sending.feed))
    }

    fn target_bitrate(&self) -> u32 {
        let target = self.shared().and_then(|shared| shared.lock().target);
        target.map_or(0, |rate| u32::try_from(rate.as_bits_per_sec()).unwrap_or(u32::MAX))
    }

    fn statistics(&self) -> gst::Structure {
        match self.shared() {
            Some(shared) => structure(&shared.lock()),
            None => structure(&Noted::default()),
        }
    }

    /// Begins to connect for what is carried, unless it has begun; the error is on the bus.
    fn begin(&self, elementary: Option<Elementary>) -> Result<(), gst::LoggableError> {
        let Some(prepared) = lock(&self.prepared).take() else { return Ok(()) };
        match Sending::start(self, prepared, elementary) {
            Ok(sending) => {
                *lock(&self.sending) = Some(sending);
                Ok(())
            }
            Err(error) => {
                gst::element_imp_error!(self, gst::ResourceError::Settings, ("no thread: {error}"));
                Err(gst::loggable_error!(gst::CAT_RUST, "no thread"))
            }
        }
    }

    /// The stream would be another one.
    fn refuse_caps(&self, sentence: &str) -> gst::LoggableError {
        gst::element_imp_error!(self, gst::StreamError::Format, ("{sentence}"));
        gst::loggable_error!(gst::CAT_RUST, "{sentence}")
    }

    /// Waits until `is_over`, also while the element is paused.
    fn wait<T>(
        &self,
        shared: &Shared,
        is_over: impl Fn(&Noted) -> Option<T>,
    ) -> Result<T, gst::FlowError> {
        loop {
            match shared.wait(None, &is_over) {
                Some(over) => return Ok(over),
                None => self.obj().wait_preroll()?,
            };
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

    /// Sends buffers that come together.
    fn send<'a>(
        &self,
        buffers: impl Iterator<Item = &'a gst::BufferRef>,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        if self.begin(None).is_err() {
            return Err(gst::FlowError::Error);
        }
        let shared = self.shared().ok_or(gst::FlowError::Flushing)?;
        self.connected(&shared)?;
        while lock(&self.sending).as_ref().is_some_and(Sending::is_full) {
            std::thread::sleep(FULL);
            self.connected(&shared)?;
            if shared.is_unlocked() {
                self.obj().wait_preroll()?;
            }
        }
        let feed = self.feed().ok_or(gst::FlowError::Flushing)?;
        let segment = self.obj().segment();
        let mut carrier = lock(&self.carrier);
        let of_bytes = || Carrier::Cutter(Cutter::new(Format::TransportStream));
        let carrier = carrier.get_or_insert_with(of_bytes);
        let mut batch = feed.batch();
        for buffer in buffers {
            let map = buffer.map_readable().map_err(|_| gst::FlowError::Error)?;
            let take = |datagram: &[u8]| batch.push(datagram);
            match carrier {
                Carrier::Cutter(cutter) => cutter.cut(&map, take),
                Carrier::Framer(framer) => framer.cut(buffer, &segment, &map, take),
            }
        }
        if let Carrier::Cutter(cutter) = carrier {
            cutter.flush(|datagram| batch.push(datagram));
        }
        Ok(gst::FlowSuccess::Ok)
    }

    /// The end of the stream: waits until the receiver has all that it will get.
    fn end(&self) -> Result<(), gst::FlowError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        self.connected(&shared)?;
        if let Some(feed) = self.feed() {
            let mut batch = feed.batch();
            if let Some(Carrier::Cutter(cutter)) = lock(&self.carrier).as_mut() {
                cutter.finish(|datagram| batch.push(datagram));
            }
            drop(batch);
            feed.end();
        }
        let ended = self.wait(&shared, |noted| match &noted.phase {
            Phase::Ended(ended) => Some(ended.clone()),
            _ => None,
        })?;
        ended.map_err(|_: Failed| gst::FlowError::Error)
    }
}

impl BaseSinkImpl for OntempoSink {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let settings = lock(&self.settings).clone();
        let peer = settings.access.peer(settings.insecure).map_err(wrong)?;
        let options = settings.options(&peer).map_err(wrong)?;
        let max_bytes = settings.buffer as usize;
        *lock(&self.carrier) = None;
        *lock(&self.prepared) = Some(Prepared { peer, options, max_bytes });
        // Where it is known already, the connection is there when the first buffer comes.
        let coming = self.obj().sink_pad().peer_query_caps(Some(&all_caps()));
        if let Some(format) = Format::of_all(&coming) {
            let failed = |_| gst::error_msg!(gst::ResourceError::Settings, ("no thread"));
            self.begin(format.coding()).map_err(failed)?;
        }
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        lock(&self.prepared).take();
        let sending = lock(&self.sending).take();
        drop(sending);
        Ok(())
    }

    fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let format = Format::of_caps(caps)
            .ok_or_else(|| gst::loggable_error!(gst::CAT_RUST, "{caps} is not carried"))?;
        self.begin(format.coding())?;
        let begun = lock(&self.sending).as_ref().and_then(|sending| sending.elementary);
        let mut carrier = lock(&self.carrier);
        let before = match carrier.as_ref().map(Carrier::format) {
            // What upstream alone could give when it was asked was something else.
            None if begun != format.coding() => {
                Some(begun.map_or(Format::TransportStream, Format::Elementary))
            }
            before => before,
        };
        if let Some(before) = before.filter(|before| *before != format) {
            return Err(self.refuse_caps(&format!(
                "the caps change from {before} to {format} in mid-stream: a stream is one of them to its end"
            )));
        }
        let changed = match carrier.as_mut() {
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
        if event.type_() == gst::EventType::Eos && self.end().is_err() {
            return false;
        }
        self.parent_event(event)
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        if let Some(shared) = self.shared() {
            shared.unlock(true);
        }
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        if let Some(shared) = self.shared() {
            shared.unlock(false);
        }
        Ok(())
    }
}
