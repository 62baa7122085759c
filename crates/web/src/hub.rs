//! From the thread that receives to all viewers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ontempo_media::{AccessUnit, LiveDemultiplexer, StreamCoding};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::frame::{Frame, Place, document};
use crate::queue::Queue;

/// Maximum bytes of memory of the frames kept for viewers to come: those since the last key picture.
const MAX_GROUP: usize = 3 << 20;

/// Maximum documents that wait for a viewer; older ones are replaced by newer ones.
const MAX_DOCUMENTS: usize = 8;

/// The least time for which a frame is worth sending after it came.
const MIN_LIFETIME: Duration = Duration::from_millis(400);

/// How a stream is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTiming {
    /// From a datagram's arrival at the sender to its time here, without the fastest transit; `None` where
    /// datagrams come as they can, with full reliability.
    pub latency: Option<Duration>,
}

/// What a viewer's session sends next.
pub(crate) enum Message {
    Frame(Arc<Frame>, Place),
    Document(Bytes),
}

/// A viewer.
pub(crate) struct Viewer {
    queue: Mutex<Queue>,
    documents: Mutex<VecDeque<Bytes>>,
    changed: Notify,
}

impl Viewer {
    /// The next message, once there is one.
    pub(crate) async fn next(&self, hub: &Hub) -> Message {
        loop {
            // Made before the look, so that nothing added in between is missed.
            let changed = self.changed.notified();
            if let Some(document) = lock(&self.documents).pop_front() {
                return Message::Document(document);
            }
            let lifetime = lock(&hub.state).lifetime;
            if let Some((frame, place)) = lock(&self.queue).pop(hub.now(), lifetime) {
                return Message::Frame(frame, place);
            }
            changed.await;
        }
    }

    /// Frames left out so far.
    pub(crate) fn dropped(&self) -> u64 {
        lock(&self.queue).dropped()
    }

    fn tell(&self, document: &Bytes) {
        let mut documents = lock(&self.documents);
        if documents.len() >= MAX_DOCUMENTS {
            documents.pop_front();
        }
        documents.push_back(document.clone());
        drop(documents);
        self.changed.notify_one();
    }
}

/// What viewers share.
#[derive(Default)]
struct State {
    viewers: Vec<Arc<Viewer>>,
    /// The frames since the last key picture.
    group: Vec<Arc<Frame>>,
    group_bytes: usize,
    /// What the stream is, and its last figures, for viewers to come.
    stream: Option<Value>,
    figures: Option<Bytes>,
    /// The sender is away.
    is_lost: bool,
    /// The next picture, and the next frame of sound.
    numbers: [u32; 2],
    /// How long after its time a frame is worth sending, microseconds.
    lifetime: i64,
}

/// The meeting point of the thread that receives and the viewers' sessions.
pub(crate) struct Hub {
    state: Mutex<State>,
    started: Instant,
    max_viewers: usize,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What viewers are told while the sender is away.
fn lost() -> Value {
    json!({ "event": "lost" })
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Hub {
    pub(crate) fn new(max_viewers: usize) -> Self {
        let state = State { lifetime: micros(MIN_LIFETIME), ..State::default() };
        Self { state: Mutex::new(state), started: Instant::now(), max_viewers }
    }

    /// Microseconds since the server began.
    pub(crate) fn now(&self) -> i64 {
        micros(self.started.elapsed())
    }

    /// A new viewer; `None` if there is no place.
    pub(crate) fn join(&self) -> Option<Arc<Viewer>> {
        let mut state = lock(&self.state);
        if state.viewers.len() >= self.max_viewers {
            return None;
        }
        let viewer = Arc::new(Viewer {
            queue: Mutex::new(Queue::new(&state.group)),
            documents: Mutex::default(),
            changed: Notify::new(),
        });
        let stream = state.stream.clone().unwrap_or_else(|| json!({ "event": "waiting" }));
        viewer.tell(&document(&stream.to_string(), self.now()));
        if state.is_lost {
            viewer.tell(&document(&lost().to_string(), self.now()));
        }
        if let Some(figures) = &state.figures {
            viewer.tell(figures);
        }
        state.viewers.push(Arc::clone(&viewer));
        Some(viewer)
    }

    pub(crate) fn leave(&self, viewer: &Arc<Viewer>) {
        lock(&self.state).viewers.retain(|other| !Arc::ptr_eq(other, viewer));
    }

    /// Viewers at this moment.
    pub(crate) fn viewers(&self) -> usize {
        lock(&self.state).viewers.len()
    }

    /// Tells all viewers. What `state` has for those to come is changed under the same lock: who joins gets either.
    fn tell_all(&self, state: &State, text: &Value) -> Bytes {
        let told = document(&text.to_string(), self.now());
        for viewer in &state.viewers {
            viewer.tell(&told);
        }
        told
    }

    fn say_stream(&self, stream: Value) {
        let mut state = lock(&self.state);
        self.tell_all(&state, &stream);
        state.stream = Some(stream);
        state.is_lost = false;
    }

    fn push(&self, unit: AccessUnit, due: i64, late: i64) {
        let mut state = lock(&self.state);
        let AccessUnit { coding, bytes, shown, timeline, .. } = unit;
        let number = &mut state.numbers[usize::from(coding.is_sound)];
        let frame = Arc::new(Frame {
            coding,
            number: *number,
            shown: i64::try_from(shown.as_nanos() / 1_000).unwrap_or(i64::MAX),
            timeline,
            due,
            late,
            is_key: unit.is_key,
            is_disposable: unit.is_disposable,
            is_damaged: unit.is_damaged,
            bytes: Bytes::from(bytes),
        });
        *number = number.wrapping_add(1);
        if !frame.is_sound() {
            state.keep(&frame);
        }
        for viewer in &state.viewers {
            lock(&viewer.queue).push(&frame);
            viewer.changed.notify_one();
        }
    }
}

impl State {
    /// Keeps a picture for viewers to come.
    fn keep(&mut self, frame: &Arc<Frame>) {
        if frame.is_key {
            self.group.clear();
            self.group_bytes = 0;
        } else if self.group.is_empty() {
            return;
        }
        self.group_bytes += frame.cost();
        if self.group_bytes > MAX_GROUP {
            // Viewers to come wait for the next key picture.
            self.group.clear();
            return;
        }
        self.group.push(Arc::clone(frame));
    }
}

/// Takes one stream after the other, and hands it to the viewers.
pub struct Feed {
    pub(crate) hub: Arc<Hub>,
    demultiplexer: LiveDemultiplexer,
    timing: StreamTiming,
    streams: Vec<StreamCoding>,
    units: Vec<AccessUnit>,
    /// Timelines of the streams before, and of this one, too: the page takes a lower one for an older one.
    timelines_before: u64,
    timelines: u64,
}

impl Feed {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let timing = StreamTiming { latency: None };
        let demultiplexer = LiveDemultiplexer::new();
        let (streams, units) = (Vec::new(), Vec::new());
        Self { hub, demultiplexer, timing, streams, units, timelines_before: 0, timelines: 0 }
    }

    /// A stream begins, or goes on over another connection, with the timing that it has.
    pub fn go_on(&mut self) {
        self.say();
    }

    /// How the stream that begins is timed; until then datagrams are taken to come as they can.
    pub fn begin(&mut self, timing: StreamTiming) {
        self.timing = timing;
        let lifetime = timing.latency.unwrap_or_default().max(MIN_LIFETIME);
        lock(&self.hub.state).lifetime = micros(lifetime);
        self.say();
    }

    /// A datagram of the stream, `late` after its time.
    pub fn take(&mut self, datagram: &[u8], late: Duration) {
        let foreign = self.demultiplexer.foreign();
        let mut units = std::mem::take(&mut self.units);
        self.demultiplexer.push(datagram, &mut units);
        if foreign == 0 && self.demultiplexer.foreign() > 0 {
            self.say();
        }
        if !units.is_empty() && self.streams != self.demultiplexer.streams() {
            self.streams = self.demultiplexer.streams();
            self.say();
        }
        let late = micros(late);
        let due = self.hub.now().saturating_sub(late);
        for mut unit in units.drain(..) {
            unit.timeline += self.timelines_before;
            self.timelines = unit.timeline + 1;
            self.hub.push(unit, due, late);
        }
        self.units = units;
    }

    /// Figures for the page: an object of JSON.
    pub fn figures(&mut self, mut figures: Value) {
        figures["event"] = json!("figures");
        let mut state = lock(&self.hub.state);
        figures["viewers"] = json!(state.viewers.len());
        state.figures = Some(self.hub.tell_all(&state, &figures));
    }

    /// The stream has ended; viewers wait for the next.
    pub fn end(&mut self) {
        self.demultiplexer = LiveDemultiplexer::new();
        self.timing = StreamTiming { latency: None };
        self.streams.clear();
        self.timelines_before = self.timelines;
        let mut state = lock(&self.hub.state);
        state.group.clear();
        state.group_bytes = 0;
        state.figures = None;
        drop(state);
        self.hub.say_stream(json!({ "event": "ended" }));
    }

    /// The sender is away; it may come back.
    pub fn lost(&mut self) {
        let mut state = lock(&self.hub.state);
        state.is_lost = true;
        self.hub.tell_all(&state, &lost());
    }

    fn say(&self) {
        let of = |stream: &StreamCoding| json!({ "sound": stream.is_sound, "stream_type": stream.stream_type });
        self.hub.say_stream(json!({
            "event": "stream",
            "latency_s": self.timing.latency.map(|latency| latency.as_secs_f64()),
            "streams": self.streams.iter().map(of).collect::<Vec<_>>(),
            "is_foreign": self.streams.is_empty() && self.demultiplexer.foreign() > 0,
        }));
    }
}

#[cfg(test)]
mod tests {
    use ontempo_media::{Film, GeneratorParameters, Sending, generate};

    use super::*;
    use crate::frame::HEADER;

    const VIEWERS: usize = 4;

    fn feed() -> Feed {
        Feed::new(Arc::new(Hub::new(VIEWERS)))
    }

    /// What a viewer has been told since the last look.
    fn told(viewer: &Viewer) -> Vec<Value> {
        let told = lock(&viewer.documents).drain(..).collect::<Vec<_>>();
        let read = |bytes: Bytes| serde_json::from_slice(&bytes[HEADER..]).expect("JSON");
        told.into_iter().map(read).collect()
    }

    fn events(viewer: &Viewer) -> Vec<String> {
        told(viewer).iter().map(|one| one["event"].as_str().expect("words").to_owned()).collect()
    }

    #[test]
    fn who_comes_while_the_sender_is_away_is_told_so_until_it_is_back() {
        let mut feed = feed();
        let newcomer = |feed: &Feed| events(&feed.hub.join().expect("a place"));
        feed.begin(StreamTiming { latency: None });
        assert_eq!(newcomer(&feed), ["stream"]);
        feed.lost();
        assert_eq!(newcomer(&feed), ["stream", "lost"]);
        feed.go_on();
        assert_eq!(newcomer(&feed), ["stream"]);
        feed.lost();
        feed.end();
        assert_eq!(newcomer(&feed), ["ended"]);
    }

    #[test]
    fn a_stream_has_later_timelines_than_those_before() {
        let film = generate(&GeneratorParameters::default()).expect("a film");
        let film = Film::new(film, &Sending::Bursts);
        let mut feed = feed();
        let viewer = feed.hub.join().expect("a place");
        let mut timelines = Vec::new();
        for _ in 0..3 {
            for number in 0..100 {
                let mut datagram = Vec::new();
                film.write(&film.datagram(number).expect("a datagram"), &mut datagram);
                feed.take(&datagram, Duration::ZERO);
            }
            feed.end();
            while let Some((frame, _)) = lock(&viewer.queue).pop(0, i64::MAX) {
                timelines.push(frame.timeline);
            }
        }
        timelines.dedup();
        assert_eq!(timelines, [0, 1, 2]);
    }
}
