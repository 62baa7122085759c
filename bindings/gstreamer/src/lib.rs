//! GStreamer elements for media over QUIC: `ontemposink` sends what `ontempo receive` or `ontemposrc`
//! receives, and `ontemposrc` receives what `ontempo send` or `ontemposink` sends.
//!
//! The protocol is that of `ontempo_session`, which also has the threads, sockets and reconnection; here
//! are properties, buffers and the bus.

mod access;
mod failure;
mod media;
mod place;
mod properties;
mod sink;
mod source;

use gstreamer as gst;
use gstreamer::glib;

fn plugin_init(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    sink::register(plugin)?;
    source::register(plugin)
}

gst::plugin_define!(
    ontempo,
    env!("CARGO_PKG_DESCRIPTION"),
    plugin_init,
    env!("CARGO_PKG_VERSION"),
    "MIT/X11",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    "ontempo"
);
