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


# What an encoder makes of what it is asked for; beyond, it has not yet followed a change.
STEADY = (0.85, 1.1)


class Follower:
    """Asks an encoder for what the path bears, and corrects for what it makes of that."""

    def __init__(self, encoder, sink):
        self.encoder, self.sink = encoder, sink
        self.share = 1.0  # what the encoder makes of what it is asked for
        self.asked = self.made = 0.0  # bits, since that was measured
        sink.connect("notify::target-bitrate", self.follow)
        encoder.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, self.measure)

    def follow(self, *_):
        """Set the rate, less 3 % for headers: x264enc counts kbit/s, the sink bit/s."""
        if target := self.sink.get_property("target-bitrate"):
            kbit_s = round(target * 0.97 / self.share / 1000)
            self.encoder.set_property("bitrate", min(max(kbit_s, 100), 5000))
            print(f"{kbit_s} kbit/s", flush=True)

    def measure(self, _, info):
        """Compare once a second what the encoder makes with what it was asked for."""
        frame, bitrate = info.get_buffer(), self.encoder.get_property("bitrate") * 1000
        self.asked += bitrate * frame.duration / Gst.SECOND
        self.made += frame.get_size() * 8
        if self.asked >= bitrate:
            share, self.asked, self.made = self.made / self.asked, 0.0, 0.0
            if STEADY[0] < share < STEADY[1]:
                self.share = (self.share + share) / 2
            self.follow()
        return Gst.PadProbeReturn.OK


follower = Follower(encoder, sink)
pipeline.set_state(Gst.State.PLAYING)
end = Gst.MessageType.EOS | Gst.MessageType.ERROR
message = pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, end)
pipeline.set_state(Gst.State.NULL)
if message.type == Gst.MessageType.ERROR:
    sys.exit(message.parse_error()[0].message)
