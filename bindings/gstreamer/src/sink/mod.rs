//! `ontemposink`: sends a stream, or several, to `ontempo receive`, `ontemposrc` or a relay.
//!
//! The element is a bin with a `BaseSink` behind each of its pads, since that class knows one pad alone; all
//! share one connection. Each thus has what GStreamer's sinks have, and the bin what is common to several: it is
//! at its end when all are, is paused when all are, and its latency is the longest.

mod connection;
mod framer;
mod imp;
mod sending;
mod statistics;
mod stream;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_base as gst_base;

glib::wrapper! {
    /// The element.
    pub struct OntempoSink(ObjectSubclass<imp::OntempoSink>)
        @extends gst::Bin, gst::Element, gst::Object,
        @implements gst::URIHandler, gst::ChildProxy;
}

glib::wrapper! {
    /// The sink behind a pad of the element.
    pub struct StreamSink(ObjectSubclass<stream::StreamSink>)
        @extends gst_base::BaseSink, gst::Element, gst::Object;
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
