"""Send a JPEG piece by piece: python -m examples.image.send HOST:PORT --fingerprint HEX.

The tables go first; each restart interval is one unit that depends on them alone.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from ontempo import live

from .jpeg import JpegError, Pieces, split
from .picture import chosen

__all__ = ["DELIVERIES", "DRAWN", "LABEL", "send"]

LABEL = "picture in restart intervals"
DRAWN = "drawn"
"""The label of the receiver's answer."""
DELIVERIES = {
    "in-order": live.DeliveryOrder.IN_ORDER,
    "partial-order": live.DeliveryOrder.PARTIAL_ORDER,
}
"""Deliveries by name: each piece after all earlier ones, or after the tables alone."""


async def send(connection: live.Connection, picture: Pieces, order: live.DeliveryOrder) -> float:
    """Send a picture and wait until its receiver has drawn it.

    Returns when the first piece was sent, in seconds of `time.monotonic`. Raises
    `ClosedError` if the connection was lost before.
    """
    flow = await connection.open_flow(live.FlowConfig(order, label=LABEL))
    begun_s = time.monotonic()
    tables = await flow.send(picture.tables, priority=1)
    for interval in picture.intervals:
        await flow.send(interval, depends_on=[tables])
    flow.finish()
    # What has arrived may not have been drawn, and a CONNECTION_CLOSE can be lost; an answer is
    # repeated until it arrives.
    async for answer in connection:
        if answer.config.label == DRAWN:
            return begun_s
    raise live.ClosedError(f"the picture was not drawn: {connection.close_reason}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("examples.image.send", description=__doc__)
    parser.add_argument("to", metavar="HOST:PORT", help="where the receiver listens")
    parser.add_argument(
        "--picture", type=Path, help="a JPEG with restart markers; drawn if missing"
    )
    parser.add_argument("--fingerprint", required=True, help="the receiver's, which it prints")
    parser.add_argument("--token", default="", help="the secret that the receiver asks for")
    parser.add_argument("--delivery", choices=DELIVERIES, default="partial-order")
    parser.add_argument("--congestion", default="pert", help="the congestion control (pert)")
    return parser.parse_args()


async def _main(arguments: argparse.Namespace) -> None:
    picture = split(*chosen(arguments.picture))
    options = live.Options(congestion=arguments.congestion, handshake_timeout_s=10)
    async with live.connect(
        arguments.to, trust=arguments.fingerprint, token=arguments.token, options=options
    ) as connection:
        begun_s = await send(connection, picture, DELIVERIES[arguments.delivery])
    print(json.dumps({"begun_s": begun_s, "pieces": 1 + len(picture.intervals)}))


if __name__ == "__main__":
    try:
        asyncio.run(_main(_arguments()))
    except (JpegError, OSError, ValueError, live.EndpointError) as error:
        sys.exit(str(error))
