//! Statistics, converted to dictionaries from which Python makes its data classes.

use ontempo_foundation::Duration;
use ontempo_qos::{Delivery, Direction};
use pyo3::prelude::*;

use crate::live::choice;

const DIRECTIONS: [(&str, Direction); 2] =
    [("sending", Direction::Sending), ("receiving", Direction::Receiving)];

pub(super) fn direction(text: &str) -> PyResult<Direction> {
    choice("direction", text, &DIRECTIONS)
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Sending => "sending",
        Direction::Receiving => "receiving",
    }
}

#[derive(IntoPyObject)]
pub(crate) struct DeliveryFields {
    sent_messages: u64,
    messages: u64,
    bytes: u64,
    lost_messages: u64,
    throughput_bps: u64,
    loss_percent: Option<f64>,
    delay_s: Option<f64>,
    delay_error_s: Option<f64>,
    jitter_s: Option<f64>,
}

impl DeliveryFields {
    pub(super) fn of(all: &Delivery) -> Self {
        let seconds = |span: Option<Duration>| span.map(Duration::as_secs_f64);
        Self {
            sent_messages: all.sent_messages,
            messages: all.messages,
            bytes: all.bytes,
            lost_messages: all.lost_messages,
            throughput_bps: all.throughput.as_bits_per_sec(),
            loss_percent: all.loss,
            delay_s: seconds(all.delay),
            delay_error_s: seconds(all.delay_error),
            jitter_s: seconds(all.jitter),
        }
    }
}
