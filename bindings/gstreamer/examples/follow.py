#!/usr/bin/env python3
"""An encoder whose bit rate follows what the path bears.

Usage: follow.py ontempo://HOST:PORT/FINGERPRINT#TOKEN [PICTURES]
"""

import sys

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402 (its version is named first)

Gst.init(None)
pipeline = Gst.parse_launch(
    f"videotestsrc is-live=true pattern=snow num-buffers={(sys.argv[2:] or [-1])[0]} ! "
    "video/x-raw,width=640,height=360,framerate=25/1 ! "
    "x264enc name=encoder tune=zerolatency speed-preset=ultrafast bitrate=1000 "
    "vbv-buf-capacity=300 ! ontemposink name=sink sync=false latency=500"
)
encoder, sink = pipeline.get_by_name("encoder"), pipeline.get_by_name("sink")
sink.set_property("uri", sys.argv[1])


share = 1.0  # what the encoder makes of what it is asked for
asked = made = 0.0  # bits, since that was measured


def follow(*_):
    """Ask for what the path bears, less 3 % for headers: x264enc counts kbit/s, the sink bit/s."""
    if target := sink.get_property("target-bitrate"):
        kbit_s = round(target * 0.97 / share / 1000)
        encoder.set_property("bitrate", min(max(kbit_s, 100), 5000))
        print(f"{kbit_s} kbit/s", flush=True)


def measure(_, info):
    """Compare once a second what the encoder makes with what it was asked for."""
    global share, asked, made
    frame, bitrate = info.get_buffer(), encoder.get_property("bitrate") * 1000
    asked += bitrate * frame.duration / Gst.SECOND
    made += frame.get_size() * 8
    if asked >= bitrate:
        share = min(max((share + made / asked) / 2, 0.8), 1.2)
        asked = made = 0.0
        follow()
    return Gst.PadProbeReturn.OK


encoder.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, measure)
sink.connect("notify::target-bitrate", follow)
pipeline.set_state(Gst.State.PLAYING)
end = Gst.MessageType.EOS | Gst.MessageType.ERROR
message = pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, end)
pipeline.set_state(Gst.State.NULL)
if message.type == Gst.MessageType.ERROR:
    sys.exit(message.parse_error()[0].message)
