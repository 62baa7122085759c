//! Event output of the programs with QoS sockets: a line of text or JSON for each event.

use std::io;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Bytes, Duration, printable};
use ontempo_mechanisms::qos::{Parameter, Specification, Step, Turn};
use ontempo_qos::{Delivery, Direction, Event, Events};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::limited::{LineLimit, Share, not_shown};
use crate::monitor::reserved;
use crate::output::{counted, emit, try_emit, write_stderr};
use crate::signals::is_stopped;

/// Writes events to standard output or standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLog {
    pub(crate) as_json: bool,
    /// Write to standard error, as standard output carries the frames.
    pub(crate) to_stderr: bool,
    /// Number of the connection, from 1, if there can be several.
    pub(crate) connection: Option<u64>,
    /// Strangers cause the lines: beyond [`LINES`], and where nobody reads them, they are counted. No connection waits
    /// for a reader.
    pub(crate) is_limited: bool,
}

/// Lines of connections: 4,000 at once, then 50 a second, which is some 20 MB an hour.
const LINES: Share = Share { burst: 4_000, interval: Wall::from_millis(20) };

/// The limit of all connections of this process.
static LIMIT: LazyLock<Mutex<LineLimit>> =
    LazyLock::new(|| Mutex::new(LineLimit::new(Instant::now(), LINES)));

impl EventLog {
    /// Writes one event: as JSON, the object `fields` with its name `event`; otherwise `text`.
    pub(crate) fn write(self, event: &str, mut fields: Value, text: &str) -> Result<(), Failure> {
        let line = if self.as_json {
            fields["event"] = event.into();
            if let Some(number) = self.connection {
                fields["connection"] = number.into();
            }
            fields.to_string()
        } else {
            match self.connection {
                Some(number) => format!("{number}: {text}"),
                None => text.to_owned(),
            }
        };
        self.put(&line)
    }

    /// Writes each line of what this program itself has to say to a person; as JSON, nothing.
    pub(crate) fn explain(self, text: &str) -> Result<(), Failure> {
        let mut lines = text.lines().filter(|_| !self.as_json);
        lines.try_for_each(|line| self.put(line))
    }

    fn put(self, line: &str) -> Result<(), Failure> {
        if self.is_limited {
            // Whatever a thread that panicked has left is valid.
            let mut limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let (not_shown, allows) = (limit.not_shown(now), limit.allows(now));
            drop(limit);
            if let Some(count) = not_shown {
                self.put_limited(&self.said_not_shown(count), count)?;
            }
            if !allows {
                return Ok(());
            }
        }
        // A peer's sentence may not begin a line of its own.
        let line = printable(line);
        if self.is_limited && !self.to_stderr {
            return self.put_limited(&line, 1);
        }
        if self.to_stderr {
            write_stderr(&line);
            return Ok(());
        }
        emit(&line)
    }

    /// Writes a line that stands for so many, if somebody reads it. At the end of the program there is time to wait.
    fn put_limited(self, line: &str, lines: u64) -> Result<(), Failure> {
        if is_stopped() {
            return emit(line);
        }
        if !try_emit(line)? {
            LIMIT.lock().unwrap_or_else(PoisonError::into_inner).count(lines);
        }
        Ok(())
    }

    fn said_not_shown(self, lines: u64) -> String {
        match self.as_json {
            true => json!({ "event": "lines not shown", "lines": lines }).to_string(),
            false => not_shown(lines, "connections"),
        }
    }

    /// Writes a connection's events in a thread, which ends with the connection.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(crate) fn follow(self, events: Events) -> io::Result<thread::JoinHandle<()>> {
        thread::Builder::new().name("events".to_owned()).spawn(move || {
            for event in events {
                let Some((kind, fields, text)) = describe(&event) else { continue };
                // A closed output is reported by the summary.
                let _ = self.write(kind, fields, &text);
            }
        })
    }

    /// Writes the agreed specification of a direction, unless it is empty.
    pub(crate) fn agreed(
        self,
        direction: Direction,
        agreed: &Specification,
    ) -> Result<(), Failure> {
        let Some((specification, parts)) = written(agreed) else { return Ok(()) };
        let direction = direction_name(direction);
        let fields = json!({ "direction": direction, "specification": specification });
        self.write("agreed", fields, &format!("agreed, {direction}: {parts}"))
    }

    /// Writes the delivery statistics of one direction.
    pub(crate) fn summary(self, delivery: &Delivery, more: Value) -> Result<(), Failure> {
        let seconds = |span: Option<Duration>| span.map(Duration::as_secs_f64);
        let mut fields = json!({
            "sent_messages": delivery.sent_messages,
            "messages": delivery.messages,
            "bytes": delivery.bytes,
            "lost_messages": delivery.lost_messages,
            "delay_s": seconds(delivery.delay),
            "delay_error_s": seconds(delivery.delay_error),
            "jitter_s": seconds(delivery.jitter),
        });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        let last_delay =
            delivery.delay.zip(delivery.delay_error).map_or_else(String::new, |(delay, error)| {
                format!("; last delay {delay}, error at most {error}")
            });
        let text = format!(
            "{} sent, {} delivered ({}), {} lost{last_delay}",
            counted(delivery.sent_messages, "message"),
            delivery.messages,
            Bytes::new(delivery.bytes),
            delivery.lost_messages,
        );
        self.write("summary", fields, &text)
    }
}

/// What a specification asks for, as JSON and as text; `None` if nothing.
fn written(specification: &Specification) -> Option<(Value, String)> {
    let values = Parameter::ALL.into_iter().filter_map(|parameter| {
        Some((parameter.name(), specification.value(parameter)?.to_string()))
    });
    let values: Vec<(&str, String)> = values.collect();
    let parts: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let object: serde_json::Map<String, Value> =
        values.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    (!object.is_empty()).then(|| (object.into(), parts.join(", ")))
}

/// The name of a direction.
pub(crate) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Sending => "sending",
        Direction::Receiving => "receiving",
    }
}

/// An event's name, its JSON fields and its text.
fn describe(event: &Event) -> Option<(&'static str, Value, String)> {
    match event {
        Event::Violation { violation, direction } => {
            let (turn, text) = match violation.turn {
                Turn::Begins => ("begins", "violated"),
                Turn::Ends => ("ends", "met again"),
            };
            let (parameter, asked, delivered) =
                (violation.parameter, violation.asked, violation.delivered);
            let fields = json!({
                "direction": direction_name(*direction),
                "parameter": parameter.name(),
                "turn": turn,
                "asked": asked.to_string(),
                "delivered": delivered.to_string(),
            });
            let text = format!("{parameter} {text}: requested {asked}, delivered {delivered}");
            Some(("violation", fields, text))
        }
        Event::Reservation { state, reason, direction } => {
            let state = reserved(*state, "");
            let direction = direction_name(*direction);
            let fields = json!({ "direction": direction, "state": state, "reason": reason });
            let colon = if reason.is_empty() { "" } else { ": " };
            Some(("reservation", fields, format!("reservation {state}{colon}{reason}")))
        }
        Event::Lasting { direction, parameter, asked, delivered, lasted } => {
            let delivered = delivered.map(|value| value.to_string());
            let fields = json!({
                "direction": direction_name(*direction),
                "parameter": parameter.name(),
                "turn": "lasts",
                "asked": asked.to_string(),
                "delivered": delivered,
                "lasted_s": lasted.as_secs_f64(),
            });
            let delivered = delivered.map_or_else(String::new, |one| format!(", delivered {one}"));
            let text =
                format!("{parameter} still violated, for {lasted}: requested {asked}{delivered}");
            Some(("violation", fields, text))
        }
        Event::Lost { reason } => {
            let text = format!("connection lost: {reason}; making it anew");
            Some(("connection-lost", json!({ "reason": reason }), text))
        }
        Event::Recovered { after } => {
            let fields = json!({ "after_s": after.as_secs_f64() });
            let ms = after.as_nanos() / 1_000_000;
            Some(("connection-recovered", fields, format!("connection recovered after {ms} ms")))
        }
        Event::Unrecoverable { reason } => {
            let text = format!("rec_time is not enforced: {reason}");
            Some(("connection-unrecoverable", json!({ "reason": reason }), text))
        }
        Event::Step { step, agreed } => {
            let (way, number) = match step {
                Step::Down(number) => ("down", number),
                Step::Up(number) => ("up", number),
            };
            let (specification, parts) = written(agreed).unwrap_or_default();
            let fields = json!({ "way": way, "step": number, "specification": specification });
            Some(("step", fields, format!("{way} to step {number}: {parts}")))
        }
        Event::Changed { direction, agreed } => {
            let direction = direction_name(*direction);
            let (specification, parts) = written(agreed).unwrap_or_default();
            let fields = json!({ "direction": direction, "specification": specification });
            Some(("changed", fields, format!("agreed anew, {direction}: {parts}")))
        }
    }
}
