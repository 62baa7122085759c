//! `ontemposrc`: receives a stream, or several, of `ontempo send`, `ontemposink` or a relay.
//!
//! The element is a bin with a live `PushSrc` behind each of its pads, since that class knows one pad alone. Each has
//! its own thread and queue, so that sound does not wait for a decoder of pictures, and all share one timeline.

mod frames;
mod imp;
mod outlet;
mod pads;
mod queue;
mod queues;
mod receiving;
mod statistics;
mod stream;
mod timeline;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_base as gst_base;

glib::wrapper! {
    /// The element.
    pub struct OntempoSrc(ObjectSubclass<imp::OntempoSrc>)
        @extends gst::Bin, gst::Element, gst::Object,
        @implements gst::URIHandler, gst::ChildProxy;
}

glib::wrapper! {
    /// The source behind a pad of the element.
    pub struct StreamSrc(ObjectSubclass<stream::StreamSrc>)
        @extends gst_base::PushSrc, gst_base::BaseSrc, gst::Element, gst::Object;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    let (rank, kind) = (gst::Rank::PRIMARY, OntempoSrc::static_type());
    gst::Element::register(Some(plugin), "ontemposrc", rank, kind)
}
