"""A slide show: requests one image after another over one TCP connection, and measures each.

python examples/slideshow/client.py 127.0.0.1:8000 --seconds 60
python examples/slideshow/client.py 127.0.0.1:8000 --seconds 60 --json > slides.jsonl

After each complete image it pauses, then requests the next (qosockets, III.C; the pause is not
in the paper: with 350 ms, images of 38 kB on average over an idle link of 1.5 Mbit/s arrive at the
480 kbit/s of its profile). Delays between server and client need one clock for both; the time from
request to image does not.
"""

import argparse
import http.client
import json
import statistics
import sys
import time

from server import address

PAUSE_MS = 350
TIMEOUT_S = 30


def slide(connection: http.client.HTTPConnection, number: int) -> dict[str, int]:
    """Request one image; returns the times of request, sending and arrival, in ns since 1970."""
    asked_ns = time.time_ns()
    connection.request("GET", f"/{number}")
    answer = connection.getresponse()
    size = len(answer.read())
    received_ns = time.time_ns()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"the server answered {answer.status} {answer.reason}")
    row = {"number": number, "bytes": size, "asked_ns": asked_ns, "received_ns": received_ns}
    if sent := answer.getheader("X-Sent-Ns"):
        row["sent_ns"] = int(sent)
    return row


def summary(rows: list[dict[str, int]]) -> dict[str, float | None]:
    """Images and bytes, and the mean time from request to image, in seconds."""
    times = [(row["received_ns"] - row["asked_ns"]) / 1e9 for row in rows]
    return {
        "images": len(rows),
        "bytes": sum(int(row["bytes"]) for row in rows),
        "time_s": statistics.fmean(times) if times else None,
        "longest_s": max(times, default=None),
    }


def main() -> None:
    """Show slides until the time is over, or Ctrl-C."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("server", type=address, metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long: 10")
    parser.add_argument("--pause", type=float, default=PAUSE_MS, metavar="MS", help="350")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each image")
    arguments = parser.parse_args()
    if not (arguments.seconds > 0 and arguments.pause >= 0):
        parser.error("--seconds: above 0; --pause: 0 or more")
    rows: list[dict[str, int]] = []
    failure = ""
    host, port = arguments.server
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    until = time.monotonic() + arguments.seconds
    try:
        while time.monotonic() < until:
            rows.append(slide(connection, len(rows)))
            if arguments.json:
                print(json.dumps({"event": "image", **rows[-1]}), flush=True)
            time.sleep(arguments.pause / 1e3)
    except KeyboardInterrupt:
        pass
    except (OSError, http.client.HTTPException) as error:
        failure = f"{host}:{port}: {error or type(error).__name__}"
    totals = summary(rows)
    if arguments.json:
        print(json.dumps({"event": "summary", **totals}), flush=True)
    elif rows:
        print(
            f"{totals['images']} images, {totals['bytes']} bytes; {totals['time_s']:.3f} s each on"
            f" average, {totals['longest_s']:.3f} s at most"
        )
    if failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
