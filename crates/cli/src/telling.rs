//! What programs with QoS sockets tell while they run: a sentence each, or a line of JSON.

use std::thread;

use ontempo_foundation::{Bytes, Duration};
use ontempo_mechanisms::qos::{Parameter, Specification, Turn};
use ontempo_qos::{Delivery, Direction, Event, Events};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::monitor::reserved;
use crate::output::{complain, emit};

/// How, and where, it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Teller {
    pub(crate) as_json: bool,
    /// Standard output is for something else.
    pub(crate) to_stderr: bool,
    /// Which of several connections it is about, from 1.
    pub(crate) connection: Option<u64>,
}

impl Teller {
    /// Tells that `event` has happened: `what`, an object, as JSON, else `text`.
    pub(crate) fn say(self, event: &str, mut what: Value, text: &str) -> Result<(), Failure> {
        let line = if self.as_json {
            what["event"] = event.into();
            if let Some(number) = self.connection {
                what["connection"] = number.into();
            }
            what.to_string()
        } else {
            match self.connection {
                Some(number) => format!("{number}: {text}"),
                None => text.to_owned(),
            }
        };
        if self.to_stderr {
            complain(&line);
            return Ok(());
        }
        emit(&line)
    }

    /// Tells of what changes, until the connection ends.
    pub(crate) fn follow(self, events: Events) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            for event in events {
                let Some((kind, what, text)) = described(&event) else { continue };
                // Where the output is gone, the summary says so.
                let _ = self.say(kind, what, &text);
            }
        })
    }

    /// Tells what both ends have agreed on for a direction; nothing where neither asked.
    pub(crate) fn agreed(
        self,
        direction: Direction,
        agreed: &Specification,
    ) -> Result<(), Failure> {
        let values = Parameter::ALL
            .into_iter()
            .filter_map(|parameter| Some((parameter.name(), agreed.value(parameter)?.to_string())));
        let values: Vec<(&str, String)> = values.collect();
        if values.is_empty() {
            return Ok(());
        }
        let words: Vec<String> =
            values.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let specification: serde_json::Map<String, Value> =
            values.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let direction = word(direction);
        let what = json!({ "direction": direction, "specification": specification });
        self.say("agreed", what, &format!("agreed, {direction}: {}", words.join(", ")))
    }

    /// Tells what was delivered in one direction.
    pub(crate) fn summary(self, delivery: &Delivery, more: Value) -> Result<(), Failure> {
        let seconds = |span: Option<Duration>| span.map(Duration::as_secs_f64);
        let mut what = json!({
            "sent_messages": delivery.sent_messages,
            "messages": delivery.messages,
            "bytes": delivery.bytes,
            "lost_messages": delivery.lost_messages,
            "delay_s": seconds(delivery.delay),
            "delay_error_s": seconds(delivery.delay_error),
            "jitter_s": seconds(delivery.jitter),
        });
        if let (Value::Object(what), Value::Object(more)) = (&mut what, more) {
            what.extend(more);
        }
        let last =
            delivery.delay.zip(delivery.delay_error).map_or_else(String::new, |(delay, error)| {
                format!("; delay at last {delay}, off by {error} at most")
            });
        let text = format!(
            "{} messages sent, {} delivered ({}), {} lost{last}",
            delivery.sent_messages,
            delivery.messages,
            Bytes::new(delivery.bytes),
            delivery.lost_messages,
        );
        self.say("summary", what, &text)
    }
}

/// A direction, in a word.
pub(crate) fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Sending => "sending",
        Direction::Receiving => "receiving",
    }
}

/// An event's kind, what it is as JSON, and its sentence.
fn described(event: &Event) -> Option<(&'static str, Value, String)> {
    match event {
        Event::Violation { violation, direction } => {
            let (turn, text) = match violation.turn {
                Turn::Begins => ("begins", "violated"),
                Turn::Ends => ("ends", "kept again"),
            };
            let (parameter, asked, delivered) =
                (violation.parameter, violation.asked, violation.delivered);
            let what = json!({
                "direction": word(*direction),
                "parameter": parameter.name(),
                "turn": turn,
                "asked": asked.to_string(),
                "delivered": delivered.to_string(),
            });
            let text = format!("{parameter} {text}: asked {asked}, delivered {delivered}");
            Some(("violation", what, text))
        }
        Event::Reservation { state, reason, direction } => {
            let state = reserved(*state, "");
            let what = json!({ "direction": word(*direction), "state": state, "reason": reason });
            let colon = if reason.is_empty() { "" } else { ": " };
            Some(("reservation", what, format!("reservation {state}{colon}{reason}")))
        }
        Event::Step { .. } | Event::Changed { .. } => None,
    }
}
