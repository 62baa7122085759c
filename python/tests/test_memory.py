"""What peers with the token can make a Python listener hold: its process is the victim."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from coroutines import run

from ontempo import live

MAX_RESIDENT_KB = 300_000
"""What the memory of a program with the defaults stays below, in kB."""

ATTACK_S = 6.0

VICTIM = """
import asyncio, sys
from ontempo import live

flows = []

async def hoard(connection):
    async for flow in connection:
        flows.append(flow)

async def main():
    held = []
    async with live.listen("127.0.0.1:0", token="open") as listener:
        print(listener.local[1], listener.fingerprint, flush=True)
        async for connection in listener:
            held.append(connection)
            if sys.argv[1] == "hoarder":
                held.append(asyncio.create_task(hoard(connection)))

asyncio.run(main())
"""
"""Accepts connections, and none of their flows; a hoarder accepts all of them and never reads."""


@contextmanager
def victim(role: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A victim, its address and its fingerprint."""
    command = [sys.executable, "-c", VICTIM, role]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port, fingerprint = process.stdout.readline().split()
            yield process, f"127.0.0.1:{port}", fingerprint
        finally:
            process.kill()


def peak_kb(process: subprocess.Popen[str]) -> int:
    """The largest resident memory of a process so far, in kB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


async def fill(address: str, fingerprint: str, data: bytes) -> int:
    """Open all flows that a connection may have, and send on each for as long as any is taken."""
    sent = 0
    try:
        async with live.connect(address, trust=fingerprint, token="open") as connection:

            async def send() -> None:
                nonlocal sent
                async with connection.open_flow() as flow:
                    while True:
                        await flow.send(data)
                        sent += 1

            sending = [asyncio.create_task(send()) for _ in range(16)]
            await asyncio.wait(sending, timeout=ATTACK_S, return_when=asyncio.ALL_COMPLETED)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
    except live.EndpointError:
        # The victim has closed it: it holds too much.
        pass
    return sent


@pytest.mark.parametrize("role", ["listener", "hoarder"])
@pytest.mark.parametrize("size", [60_000, 1])
def test_flows_that_are_never_accepted_or_read_do_not_fill_the_memory(role: str, size: int) -> None:
    with victim(role) as (process, address, fingerprint):

        async def attack() -> None:
            attackers = (fill(address, fingerprint, bytes(size)) for _ in range(8))
            sent = sum(await asyncio.gather(*attackers))
            held_kb = peak_kb(process)
            print(f"{role}, units of {size}: {sent} sent, at most {held_kb} kB")
            assert sent > 100
            assert held_kb < MAX_RESIDENT_KB

        run(attack)
