//! `ontemposink`: sends a stream to `ontempo receive`, `ontemposrc` or a relay.

mod framer;
mod imp;
mod sending;
mod statistics;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_base as gst_base;

glib::wrapper! {
    /// The element.
    pub struct OntempoSink(ObjectSubclass<imp::OntempoSink>)
        @extends gst_base::BaseSink, gst::Element, gst::Object,
        @implements gst::URIHandler;
}

/// How lost packets are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstOntempoReliability")]
pub(crate) enum Reliability {
    /// They are sent again until the latency has passed.
    #[default]
    #[enum_value(name = "Sent again until the latency has passed", nick = "deadline")]
    Deadline,
    /// They are sent again until they have arrived.
    #[enum_value(name = "Sent again until it has arrived", nick = "full")]
    Full,
    /// They are not sent again.
    #[enum_value(name = "Not sent again", nick = "none")]
    None,
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    let (rank, kind) = (gst::Rank::PRIMARY, OntempoSink::static_type());
    gst::Element::register(Some(plugin), "ontemposink", rank, kind)
}
