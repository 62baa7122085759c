r"""MPEG transport streams as units: frames, sound, tables.

The packetizer of `ontempo send`, for programs that examine a stream or measure how much arrived.
`read_transport_stream` lists the units of a stream with the packets that carry them, when each
packet is due by the stream's clock, and where packets are missing. An example that needs no file,
a stream of two stuffing packets::

    from ontempo import media

    stuffing = b"\x47\x1f\xff\x10" + bytes(184)
    stream = media.read_transport_stream(stuffing * 2)
    for unit in stream.units:
        print(unit.kind, unit.pid, unit.size, unit.packets)    # filler 8191 368 [0, 1]
    print(stream.continuity_errors)                            # []
"""

from ontempo._native import MediaUnit, TransportStream, read_transport_stream

__all__ = ["PACKET_BYTES", "SYNC_BYTE", "MediaUnit", "TransportStream", "read_transport_stream"]

PACKET_BYTES = 188
"""Bytes of a transport packet (ISO/IEC 13818-1, section 2.4.3.2)."""

SYNC_BYTE = 0x47
"""The first byte of each transport packet."""
