//! The documents of `--json`: one on each line of standard output, and nothing else there.

use std::time::{Duration as Wall, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::json_errors::is_done;
use crate::output::emit;

/// Makes documents with the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Documents {
    is_on: bool,
    pub(super) started: Instant,
}

impl Documents {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, started: Instant::now() }
    }

    pub(super) fn is_on(self) -> bool {
        self.is_on
    }

    /// Writes a document: `fields`, an object, with the name of the event and the time.
    pub(super) fn emit(self, event: &str, fields: Value) -> Result<(), Failure> {
        if !self.is_on {
            return Ok(());
        }
        let mut document = fields;
        document["event"] = json!(event);
        document["time"] = json!(rfc3339(SystemTime::now()));
        document["seconds"] = json!(self.started.elapsed().as_secs_f64());
        emit(&document.to_string())
    }

    /// Writes what the program says on standard error, too.
    pub(super) fn say(self, event: &str, text: &str) {
        // A reader that has gone is noticed by the next figures.
        let _ = self.emit(event, json!({ "text": text }));
    }

    /// Writes the error with which the program ends.
    pub(super) fn fail<T>(self, done: &Result<T, Failure>) {
        if let Err(failure) = done {
            let fields = json!({ "text": failure.text(), "exit_code": failure.number() });
            let _ = self.emit("error", fields);
            is_done();
        }
    }
}

/// What changes from one document of figures to the next, of counters since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// Bytes that came in, and that went out.
    pub(super) input: u64,
    pub(super) output: u64,
    /// Packets or datagrams that were lost, and all.
    pub(super) lost: u64,
    pub(super) all: u64,
}

/// Rates of counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    at: Instant,
    before: Counters,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { at: Instant::now(), before: Counters::default() }
    }

    /// `input_bps`, `output_bps` and `loss` since the last call. A counter that begins anew, because
    /// the connection did, counts from 0.
    pub(super) fn rates(&mut self, now: Instant, counters: Counters) -> Value {
        let seconds = now.saturating_duration_since(self.at).max(Wall::from_millis(1));
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
        let before = std::mem::replace(&mut self.before, counters);
        self.at = now;
        let rate = |now, before| (since(now, before) * 8.0 / seconds.as_secs_f64()).round();
        let is_anew = counters.all < before.all;
        let all = since(counters.all, before.all);
        let lost = counters.lost.saturating_sub(if is_anew { 0 } else { before.lost }) as f64;
        json!({
            "input_bps": rate(counters.input, before.input),
            "output_bps": rate(counters.output, before.output),
            "loss": if all > 0.0 { Some((lost / all).min(1.0)) } else { None },
        })
    }
}

/// The fields of two objects; those of `more` count.
pub(super) fn with(mut fields: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
    fields
}

/// A time in UTC with milliseconds, as RFC 3339 writes it.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar. Years begin in March
/// here, so that the leap day is their last.
fn civil(days: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01, and of four centuries.
    const TO_1970: u64 = 719_468;
    const OF_ERA: u64 = 146_097;
    let days = days + TO_1970;
    let (era, day_of_era) = (days / OF_ERA, days % OF_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_wants_them() {
        let at = |seconds: u64, millis: u64| {
            rfc3339(UNIX_EPOCH + Wall::from_millis(seconds * 1_000 + millis))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_868_799, 1), "2000-02-29T23:59:59.001Z");
        assert_eq!(at(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
        assert_eq!(at(4_102_444_799, 0), "2099-12-31T23:59:59.000Z");
    }

    #[test]
    fn days_follow_each_other_through_four_centuries() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(civil(days), (year, month, day));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let of_month = match month {
                2 if is_leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > of_month {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn rates_are_of_the_time_since_the_last_document_also_after_a_counter_began_anew() {
        let mut meter = Meter::new();
        let first = meter.at + Wall::from_secs(1);
        let counters = Counters { input: 1_000, output: 500, lost: 1, all: 4 };
        let rates = meter.rates(first, counters);
        let expected = json!({ "input_bps": 8_000.0, "output_bps": 4_000.0, "loss": 0.25 });
        assert_eq!(rates, expected);
        let later = Counters { input: 2_000, output: 250, lost: 1, all: 4 };
        let rates = meter.rates(first + Wall::from_secs(2), later);
        let expected = json!({ "input_bps": 4_000.0, "output_bps": 1_000.0, "loss": null });
        assert_eq!(rates, expected);
        let anew = Counters { input: 3_000, output: 250, lost: 1, all: 2 };
        let rates = meter.rates(first + Wall::from_secs(3), anew);
        let expected = json!({ "input_bps": 8_000.0, "output_bps": 0.0, "loss": 0.5 });
        assert_eq!(rates, expected);
    }
}
