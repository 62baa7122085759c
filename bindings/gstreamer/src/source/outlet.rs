//! What the element's pads share.

use std::sync::{Arc, Mutex};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_base::UniqueFlowCombiner;

use super::timeline::Timeline;
use super::{OntempoSrc, StreamSrc};
use crate::place::{Place, pad_name};
use crate::properties::lock;

/// What the streams have to know of the properties.
#[derive(Clone, Debug, Default)]
pub(super) struct Chosen {
    pub(super) keep_listening: bool,
    pub(super) caps: Option<gst::Caps>,
    /// Milliseconds; 0: the sender's.
    pub(super) latency: u32,
}

#[derive(Default)]
struct Flows {
    combiner: UniqueFlowCombiner,
    /// A pad has been flushed, and is not among the others any more.
    has_flushed: bool,
}

impl Flows {
    /// What a pad's thread has to do, of what became of its buffer: one branch that is flushed, as it is stopped, is
    /// the end of its own thread alone.
    fn update(
        &mut self,
        pad: &gst::Pad,
        done: Result<gst::FlowSuccess, gst::FlowError>,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        if done == Err(gst::FlowError::Flushing) {
            // It reads what became of the pad's last buffer of the pad itself.
            self.combiner.remove_pad(pad);
            self.has_flushed = true;
            return done;
        }
        match self.combiner.update_pad_flow(pad, done) {
            // Another pad, whose thread has not come here yet.
            Err(gst::FlowError::Flushing) => Ok(gst::FlowSuccess::Ok),
            // There was one that was linked.
            Err(gst::FlowError::NotLinked) if self.has_flushed => Ok(gst::FlowSuccess::Ok),
            combined => combined,
        }
    }
}

/// Shared by the element and its streams.
pub(super) struct Common {
    element: glib::WeakRef<OntempoSrc>,
    chosen: Mutex<Chosen>,
    pub(super) timeline: Arc<Mutex<Timeline>>,
    /// What became of the last buffer of each pad in use.
    flows: Mutex<Flows>,
    /// All streams belong together.
    group: gst::GroupId,
}

impl Common {
    pub(super) fn new(element: glib::WeakRef<OntempoSrc>) -> Self {
        Self {
            element,
            chosen: Mutex::default(),
            timeline: Arc::default(),
            flows: Mutex::default(),
            group: gst::GroupId::next(),
        }
    }

    pub(super) fn element(&self) -> Option<OntempoSrc> {
        self.element.upgrade()
    }

    /// A pad of the element.
    pub(super) fn pad(&self, place: Place) -> Option<gst::Pad> {
        self.element()?.static_pad(&pad_name("src", place))
    }

    pub(super) fn chosen(&self) -> Chosen {
        lock(&self.chosen).clone()
    }

    pub(super) fn warn(&self, sentence: &str) {
        if let Some(element) = self.element() {
            gst::element_warning!(element, gst::StreamError::Format, ("{sentence}"));
        }
    }

    /// The element begins to receive.
    pub(super) fn begin(&self, chosen: Chosen) {
        *lock(&self.chosen) = chosen;
        *lock(&self.timeline) = Timeline::default();
        if let Some(always) = self.pad(None) {
            self.use_pads(&[always]);
        }
    }

    /// The pads that streams go to. One that is not linked is no error, unless none is.
    pub(super) fn use_pads(&self, pads: &[gst::Pad]) {
        let mut flows = lock(&self.flows);
        flows.has_flushed = false;
        flows.combiner.clear();
        pads.iter().for_each(|pad| flows.combiner.add_pad(pad));
        flows.combiner.reset();
    }

    /// The element's pad of a stream.
    pub(super) fn ghost(
        self: &Arc<Self>,
        stream: &StreamSrc,
        place: Place,
    ) -> Option<gst::GhostPad> {
        let element = self.element()?;
        let template = element.pad_template(if place.is_none() { "src" } else { "src_%u" })?;
        let target = stream.static_pad("src")?;
        let group = self.group;
        // It holds pads, and these what is below.
        let (common, weak) = (Arc::downgrade(self), stream.downgrade());
        let update = move |parent: Option<&gst::Object>, done| {
            let pad = parent.and_then(|pad| pad.downcast_ref::<gst::Pad>());
            let (Some(pad), Some(common)) = (pad, common.upgrade()) else { return done };
            let combined = lock(&common.flows).update(pad, done);
            if combined.is_err()
                && let Some(stream) = weak.upgrade()
            {
                stream.abandon();
                // After other errors the end is still to be pushed.
                if combined == Err(gst::FlowError::Flushing) {
                    stream.leave();
                }
            }
            combined
        };
        let (of_lists, weak) = (update.clone(), stream.downgrade());
        let builder = gst::GhostPad::builder_from_template_with_target(&template, &target).ok()?;
        let builder = builder.name(pad_name("src", place));
        let builder = builder.proxy_pad_chain_function(move |proxy, parent, buffer| {
            update(parent, gst::ProxyPad::chain_default(proxy, parent, buffer))
        });
        let builder = builder.proxy_pad_chain_list_function(move |proxy, parent, list| {
            of_lists(parent, gst::ProxyPad::chain_list_default(proxy, parent, list))
        });
        let builder = builder.proxy_pad_event_function(move |proxy, parent, event| {
            // Also after an error, and after `num-buffers`.
            let is_end = event.type_() == gst::EventType::Eos;
            let ending = weak.upgrade().filter(|_| is_end);
            if let Some(stream) = &ending {
                stream.abandon();
            }
            let event = match event.view() {
                gst::EventView::StreamStart(start) => {
                    let built = gst::event::StreamStart::builder(start.stream_id());
                    built.seqnum(event.seqnum()).group_id(group).flags(start.stream_flags()).build()
                }
                _ => event,
            };
            let is_taken = gst::Pad::event_default(proxy, parent, event);
            if let Some(stream) = &ending {
                stream.leave();
            }
            is_taken
        });
        Some(builder.build())
    }
}
