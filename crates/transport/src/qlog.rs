//! Traces of connections in qlog, as JSON text sequences (draft-ietf-quic-qlog-main-schema-14,
//! RFC 7464), one file a connection.
//!
//! A trace has what this side knows without parsing packets: those that congestion control counts,
//! with their sizes, when sent or lost; numbers of received packets; metrics of recovery and
//! congestion control (draft-ietf-quic-qlog-quic-events-13); and, in a namespace of our own, units.
//! The stack's own qlog records every frame, but collects them for each packet whether they are
//! used or not: an eighth of the goodput of a core.

mod budget;

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use ontempo_foundation::{Duration, Time};
use ontempo_place::OutputFolder;
use serde_json::{Value, json};

use crate::admission::Origin;
use crate::flow::FlowId;
use crate::quic::{Epoch, SharedAccount};
use budget::{Counted, Left, PART_OF_CONNECTION, Share, used_up};

/// How long records may be buffered.
const FLUSHED_EVERY: Duration = Duration::from_secs(1);

/// Maximum bytes buffered.
const ROOM: usize = 64 << 10;

/// Maximum bytes of records kept of an incoming connection whose client has not presented the token:
/// its file is made when it has. More are discarded.
const MAX_WAITING: usize = 8 << 10;

/// Maximum trace files of a [`Qlog`].
pub const MAX_TRACES: usize = 1000;

/// Maximum bytes of all traces of a [`Qlog`].
pub const MAX_TRACE_BYTES: u64 = 1 << 30;

/// Names tried for one file.
const MAX_NAMES: usize = 100;

/// Why a trace cannot be written.
#[derive(Debug)]
pub struct QlogError {
    /// The directory or file.
    pub path: PathBuf,
    /// The system's error.
    pub error: io::Error,
}

impl fmt::Display for QlogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no qlog can be written to {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for QlogError {}

/// Called with traces that cannot be written.
type Hook = Arc<dyn Fn(&QlogError) + Send + Sync>;

/// Writes a trace of each connection to a directory: `ID_client.sqlog` or `ID_server.sqlog`; the ID
/// is the connection's first one, the same at both sides. An existing file is never overwritten: the
/// next trace of that name is `ID_server-2.sqlog`. At most [`MAX_TRACES`] files with
/// [`MAX_TRACE_BYTES`] in all are written; what is beyond them is not traced. Of the connections
/// that one source makes to a listener (an address of IPv4 or 56 bits of IPv6) a quarter of both is
/// for all, and an eighth of the bytes for one.
#[derive(Clone)]
pub struct Qlog {
    directory: PathBuf,
    folder: Arc<OutputFolder>,
    hook: Hook,
    left: Arc<Left>,
}

/// Creates a new file and returns it with its name, which has a number if the first is taken. It
/// follows no link that another user may have put there.
fn create(folder: &OutputFolder, name: &str) -> Result<(File, String), (String, io::Error)> {
    let mut file = format!("{name}.sqlog");
    let mut number = 1;
    loop {
        match folder.create_new(&file) {
            Ok(made) => return Ok((made, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_NAMES => {
                number += 1;
                file = format!("{name}-{number}.sqlog");
            }
            Err(error) => return Err((file, error)),
        }
    }
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Qlog {
    /// Traces in `directory`, which is created if missing. If a trace can no longer be
    /// written, it ends and `hook` is called, on the endpoint's thread, which it must not block;
    /// the connection continues.
    ///
    /// # Errors
    /// If the directory cannot be created or written to, or if another user may have put it there.
    pub fn in_directory(
        directory: &Path,
        hook: impl Fn(&QlogError) + Send + Sync + 'static,
    ) -> Result<Self, QlogError> {
        let failed = |error| QlogError { path: directory.to_owned(), error };
        let folder = OutputFolder::create(directory).map_err(failed)?;
        let (mut trial, name) = create(&folder, &format!(".ontempo-{}", std::process::id()))
            .map_err(|(_, error)| failed(error))?;
        let written = trial.write_all(b"\x1e");
        folder.remove(&name).and(written).map_err(failed)?;
        let (hook, left) = (Arc::new(hook), Arc::new(Left::new()));
        Ok(Self { directory: directory.to_owned(), folder: Arc::new(folder), hook, left })
    }

    /// The trace of the connection whose first ID is `id`, and which comes from `origin`; `None` for
    /// one of this side's own. Of an incoming one nothing is written until its client has presented
    /// the token.
    pub(crate) fn trace(&self, now: Time, id: &dyn fmt::Display, origin: Option<Origin>) -> Trace {
        let side = if origin.is_none() { "client" } else { "server" };
        let name = format!("{id}_{side}");
        let path = self.directory.join(format!("{name}.sqlog"));
        let mut begun = Vec::new();
        record(&mut begun, &header(&id.to_string(), side));
        let waiting = Waiting { qlog: self.clone(), name, origin, records: begun };
        let mut writing = Writing::new(now, path, Output::Waiting(waiting), self.hook.clone());
        if origin.is_none() {
            writing.open();
        }
        Trace(Some(Arc::new(Mutex::new(writing))))
    }

    /// Makes a file for a trace; an error ends that trace. That there are no more files of a host, and
    /// none at all, is reported once each.
    fn create(
        &self,
        name: &str,
        origin: Option<Origin>,
    ) -> Result<(Counted<File>, PathBuf), Option<QlogError>> {
        let of_origin = self.left.take_file(origin).map_err(|sentence| {
            let path = self.directory.clone();
            sentence.map(|sentence| QlogError { path, error: used_up(sentence) })
        })?;
        let of_connection = MAX_TRACE_BYTES / PART_OF_CONNECTION;
        let share = of_origin.map(|of_origin| Share { of_connection, of_origin });
        let at = |name: String| self.directory.join(name);
        let created = create(&self.folder, name);
        let (out, name) =
            created.map_err(|(name, error)| Some(QlogError { path: at(name), error }))?;
        Ok((Counted { out, left: Arc::clone(&self.left), share }, at(name)))
    }
}

/// Appends one record (RFC 7464, section 2.2).
fn record(out: &mut Vec<u8>, record: &Value) {
    out.push(0x1e);
    // Writing to memory does not fail, nor does a value without keys that are no text.
    let _ = serde_json::to_writer(&mut *out, record);
    out.push(b'\n');
}

fn header(id: &str, side: &str) -> Value {
    json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "title": concat!("ontempo ", env!("CARGO_PKG_VERSION")),
        "trace": {
            "common_fields": {
                "group_id": id,
                "time_format": "relative_to_epoch",
                "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
            },
            "vantage_point": { "type": side },
            "event_schemas": [
                "urn:ietf:params:qlog:events:quic-13",
                "urn:ontempo:qlog:events:units-1",
            ],
        },
    })
}

/// Where records go.
enum Output {
    Waiting(Waiting),
    File(BufWriter<Box<dyn Write + Send>>),
    /// After an error.
    Ended,
}

/// Records that wait for their file.
struct Waiting {
    qlog: Qlog,
    name: String,
    origin: Option<Origin>,
    records: Vec<u8>,
}

/// A trace.
struct Writing {
    path: PathBuf,
    out: Output,
    /// The record being written; reused.
    buffer: Vec<u8>,
    hook: Hook,
    began: Time,
    flushed: Time,
    /// QUIC's handshake is not complete: packets may be of any type.
    handshaking: bool,
    /// The metrics written last.
    metrics: Value,
}

impl Writing {
    fn new(now: Time, path: PathBuf, out: Output, hook: Hook) -> Self {
        let (began, flushed, buffer) = (now, now, Vec::new());
        let metrics = Value::Null;
        Self { path, out, buffer, hook, began, flushed, handshaking: true, metrics }
    }

    /// Makes the file.
    fn open(&mut self) {
        if !matches!(self.out, Output::Waiting(_)) {
            return;
        }
        let Output::Waiting(waiting) = std::mem::replace(&mut self.out, Output::Ended) else {
            return;
        };
        match waiting.qlog.create(&waiting.name, waiting.origin) {
            Ok((file, path)) => {
                self.path = path;
                let mut out: BufWriter<Box<dyn Write + Send>> =
                    BufWriter::with_capacity(ROOM, Box::new(file));
                let written = out.write_all(&waiting.records);
                self.out = Output::File(out);
                self.check(written);
            }
            Err(Some(error)) => (self.hook)(&error),
            Err(None) => {}
        }
    }

    fn write(&mut self, value: &Value) {
        if matches!(self.out, Output::Ended) {
            return;
        }
        self.buffer.clear();
        record(&mut self.buffer, value);
        match &mut self.out {
            Output::Waiting(Waiting { records, .. }) => {
                if records.len() + self.buffer.len() <= MAX_WAITING {
                    records.extend_from_slice(&self.buffer);
                }
            }
            Output::File(out) => {
                let written = out.write_all(&self.buffer);
                self.check(written);
            }
            Output::Ended => {}
        }
    }

    fn flush(&mut self) {
        if let Output::File(out) = &mut self.out {
            let flushed = out.flush();
            self.check(flushed);
        }
    }

    fn check(&mut self, done: io::Result<()>) {
        let Err(error) = done else { return };
        if let Output::File(out) = std::mem::replace(&mut self.out, Output::Ended) {
            // The buffered records are lost, too.
            let _ = out.into_parts();
        }
        (self.hook)(&QlogError { path: self.path.clone(), error });
    }

    fn event(&mut self, now: Time, name: &str, data: Value) {
        if matches!(self.out, Output::Ended) {
            return;
        }
        let time = millis(now.since(self.began));
        self.write(&json!({ "time": time, "name": name, "data": data }));
        if now.since(self.flushed) >= FLUSHED_EVERY {
            self.flushed = now;
            self.flush();
        }
    }

    fn header_of(&self, number: u64) -> Value {
        let kind = if self.handshaking { "unknown" } else { "1RTT" };
        json!({ "packet_type": kind, "packet_number": number })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Milliseconds with microsecond resolution, as in qlog.
fn millis(span: Duration) -> f64 {
    (span.as_nanos() / 1000) as f64 / 1000.0
}

/// Trace of a connection; without a file it costs nothing.
#[derive(Clone, Default)]
pub(crate) struct Trace(Option<Arc<Mutex<Writing>>>);

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Trace" } else { "no trace" })
    }
}

impl Trace {
    fn with(&self, write: impl FnOnce(&mut Writing)) {
        if let Some(writing) = &self.0 {
            write(&mut writing.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The client has presented the token: the trace gets its file.
    pub(crate) fn open(&self) {
        self.with(Writing::open);
    }

    /// The handshake is complete.
    pub(crate) fn connected(&self) {
        self.with(|writing| writing.handshaking = false);
    }

    /// Packets were received.
    pub(crate) fn received(&self, now: Time, numbers: &[u64]) {
        self.with(|writing| {
            for number in numbers {
                let header = json!({ "packet_type": "1RTT", "packet_number": number });
                writing.event(now, "quic:packet_received", json!({ "header": header }));
            }
        });
    }

    /// An event of a unit: `queued`; then one of `arrived`, `dropped` and `unknown`; or `delivered`
    /// to the program. `more` has further fields.
    pub(crate) fn unit(&self, now: Time, what: &str, flow: FlowId, id: u64, more: &[(&str, u64)]) {
        self.with(|writing| {
            let mut data = json!({ "flow": flow.number, "outgoing": flow.outgoing, "unit": id });
            for (name, value) in more {
                data[*name] = json!(value);
            }
            writing.event(now, &format!("ontempo:unit_{what}"), data);
        });
    }

    /// Wraps `factory` so that its controllers' packets are traced.
    pub(crate) fn of(
        &self,
        factory: Arc<dyn ControllerFactory + Send + Sync>,
        epoch: Epoch,
        account: SharedAccount,
    ) -> Arc<dyn ControllerFactory + Send + Sync> {
        if self.0.is_none() {
            return factory;
        }
        Arc::new(TracedFactory { inner: factory, trace: self.clone(), epoch, account })
    }
}

struct TracedFactory {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
    trace: Trace,
    epoch: Epoch,
    account: SharedAccount,
}

impl ControllerFactory for TracedFactory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, mtu);
        let (trace, epoch, account) = (self.trace.clone(), self.epoch, self.account.clone());
        Box::new(Traced { inner, trace, epoch, account, in_flight: 0 })
    }
}

/// A controller with a trace of its calls.
#[derive(Debug)]
struct Traced {
    inner: Box<dyn Controller>,
    trace: Trace,
    epoch: Epoch,
    account: SharedAccount,
    in_flight: u64,
}

impl Traced {
    /// Writes the metrics if they have changed.
    fn write_metrics(&self, now: Time) {
        let account = self.account.read();
        let metrics = self.inner.metrics();
        let mut data = json!({
            "congestion_window": self.inner.window(),
            "bytes_in_flight": self.in_flight,
        });
        if let Some(srtt) = account.srtt {
            data["smoothed_rtt"] = json!(millis(srtt));
        }
        if let Some(threshold) = metrics.ssthresh {
            data["ssthresh"] = json!(threshold);
        }
        if let Some(rate) = account.rate {
            data["pacing_rate"] = json!(rate.as_bits_per_sec());
        }
        self.trace.with(|writing| {
            if writing.metrics != data {
                writing.metrics = data.clone();
                writing.event(now, "quic:recovery_metrics_updated", data);
            }
        });
    }
}

impl Controller for Traced {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest: u64) {
        self.inner.on_sent(now, bytes, largest);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, number: u64) {
        self.inner.on_packet_sent(now, bytes, number);
        self.in_flight += u64::from(bytes);
        self.trace.with(|writing| {
            let header = writing.header_of(number);
            let data = json!({ "header": header, "raw": { "length": bytes } });
            writing.event(self.epoch.time(now), "quic:packet_sent", data);
        });
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        number: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, number, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, limited, largest);
        self.in_flight = in_flight;
        self.write_metrics(self.epoch.time(now));
    }

    fn on_packet_lost(&mut self, bytes: u16, number: u64, now: Instant) {
        self.inner.on_packet_lost(bytes, number, now);
        self.in_flight = self.in_flight.saturating_sub(bytes.into());
        self.trace.with(|writing| {
            let data = json!({ "header": writing.header_of(number) });
            writing.event(self.epoch.time(now), "quic:packet_lost", data);
        });
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost: u64,
    ) {
        let (persistent, ecn) = (is_persistent, is_ecn);
        self.inner.on_congestion_event(now, sent, persistent, ecn, lost_bytes, largest_lost);
        self.write_metrics(self.epoch.time(now));
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.inner.on_mtu_update(mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, delay: std::time::Duration) {
        self.inner.on_ack_frequency_update(threshold, delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let (trace, account) = (self.trace.clone(), self.account.clone());
        let inner = self.inner.clone_box();
        Box::new(Self { inner, trace, account, epoch: self.epoch, in_flight: self.in_flight })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}

#[cfg(all(test, unix))]
mod tests;
