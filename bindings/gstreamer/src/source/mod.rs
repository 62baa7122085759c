//! `ontemposrc`: receives a stream of `ontempo send`, `ontemposink` or a relay.

mod frames;
mod imp;
mod queue;
mod receiving;
mod statistics;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_base as gst_base;

glib::wrapper! {
    /// The element.
    pub struct OntempoSrc(ObjectSubclass<imp::OntempoSrc>)
        @extends gst_base::PushSrc, gst_base::BaseSrc, gst::Element, gst::Object,
        @implements gst::URIHandler;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    let (rank, kind) = (gst::Rank::PRIMARY, OntempoSrc::static_type());
    gst::Element::register(Some(plugin), "ontemposrc", rank, kind)
}
