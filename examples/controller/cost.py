"""Measure what a congestion controller in Python costs: the same AIMD in Python and in Rust.

Run it in the repository's root: ``python -m examples.controller.cost``. Both give the same tables,
so that the difference in time is that of the calls alone.
"""

import time

import ontempo as ot
from ontempo.congestion import Ack, Loss

TEXT = """
duration = "100 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "5 ms" }
bottleneck = { rate = "50 Mbit/s", delay = "15 ms", queue = { kind = "drop-tail", \
limit = "250 packets" } }
[flows.bulk]
count = 10
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "reno" }
"""
ROUNDS = 5
"""Runs of each; the fastest counts: others of the machine's programs only add time."""


class Aimd(ot.CongestionController):
    """Additive increase, multiplicative decrease: Reno, as the simulator's own has it."""

    def on_ack(self, ack: Ack) -> None:
        """Grow by a packet for each, or by one in a round trip."""
        if ack.in_recovery or ack.packets <= 0 or not ack.window_limited:
            return
        if self.cwnd < self.ssthresh:
            self.cwnd += ack.packets
        else:
            self.cwnd += ack.packets / self.cwnd

    def on_loss(self, _loss: Loss) -> None:
        """Halve the window."""
        self.ssthresh = self.cwnd = max(self.cwnd / 2, 2.0)


def seconds(scenario: ot.Scenario, controllers: dict[str, type[Aimd]]) -> tuple[float, ot.Result]:
    """The least processor time of a few runs, and the last result."""
    least = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        result = ot.run(scenario, controllers=controllers)
        least = min(least, time.process_time() - begun)
    return least, result


def total(result: ot.Result, column: str) -> int:
    """The sum of a column over all flows."""
    return sum(int(row[column] or 0) for row in result.flows)


def main() -> None:
    """Measure, and print."""
    rust, built_in = seconds(ot.parse(TEXT), {})
    mine = {"aimd": Aimd}
    override = ["flows.bulk.transport.congestion=aimd"]
    python, own = seconds(ot.parse(TEXT, overrides=override, controllers=mine), mine)
    packets, acks = total(own, "sent_packets"), total(own, "acks")
    assert (packets, acks) == (total(built_in, "sent_packets"), total(built_in, "acks"))
    print(f"{packets} packets, {acks} acknowledgements")
    print(f"Rust:   {rust:6.2f} s of a core, {rust / packets * 1e6:.2f} us a packet")
    print(f"Python: {python:6.2f} s of a core, {python / packets * 1e6:.2f} us a packet")
    cost = python - rust
    print(f"more: {cost / packets * 1e6:.2f} us a packet, {cost / acks * 1e6:.2f} us an ACK")


if __name__ == "__main__":
    main()
