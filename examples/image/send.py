"""Send a JPEG piece by piece: python -m examples.image.send HOST:PORT --fingerprint HEX.

The tables go first; each restart interval is a unit of its own that depends on them alone.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import ontempo as ot

from .jpeg import Cut, JpegError, cut
from .picture import chosen

__all__ = ["DELIVERIES", "DRAWN", "LABEL", "send"]

LABEL = "picture in restart intervals"
DRAWN = "drawn"
"""Labels the receiver's answer."""
DELIVERIES = {
    "in-order": ot.DeliveryOrder.IN_ORDER,
    "partial-order": ot.DeliveryOrder.PARTIAL_ORDER,
}
"""By their names: each piece after all that were sent before it, or after the tables alone."""


async def send(connection: ot.Connection, picture: Cut, order: ot.DeliveryOrder) -> float:
    """Send a picture and wait until its receiver has drawn it.

    Returns when the first piece was handed over, in seconds of `time.monotonic`. Raises
    `ClosedError` where the connection was lost before.
    """
    flow = await connection.open_flow(ot.FlowConfig(order, label=LABEL))
    begun_s = time.monotonic()
    tables = await flow.send(picture.tables, priority=1)
    for interval in picture.intervals:
        await flow.send(interval, depends_on=[tables])
    flow.finish()
    # What has arrived may not have been drawn, and a word of closing can be lost: an answer is not.
    async for answer in connection:
        if answer.config.label == DRAWN:
            return begun_s
    raise ot.ClosedError(f"the picture was not drawn: {connection.closed_because}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("examples.image.send", description=__doc__)
    parser.add_argument("to", metavar="HOST:PORT", help="where the receiver listens")
    parser.add_argument(
        "--picture", type=Path, help="a JPEG with restart markers; drawn if missing"
    )
    parser.add_argument("--fingerprint", required=True, help="the receiver's, which it prints")
    parser.add_argument("--token", default="", help="what the receiver wants to be known")
    parser.add_argument("--delivery", choices=DELIVERIES, default="partial-order")
    parser.add_argument("--congestion", default="pert", help="the congestion control (pert)")
    return parser.parse_args()


async def _main(arguments: argparse.Namespace) -> None:
    picture = cut(*chosen(arguments.picture))
    options = ot.Options(congestion=arguments.congestion, greeting_timeout_s=10)
    async with ot.connect(
        arguments.to, trust=arguments.fingerprint, token=arguments.token, options=options
    ) as connection:
        begun_s = await send(connection, picture, DELIVERIES[arguments.delivery])
    print(json.dumps({"begun_s": begun_s, "pieces": 1 + len(picture.intervals)}))


if __name__ == "__main__":
    try:
        asyncio.run(_main(_arguments()))
    except (JpegError, OSError, ValueError, ot.EndpointError) as error:
        sys.exit(str(error))
