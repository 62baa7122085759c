"""Connections for asyncio, over loopback, with real sockets and threads."""

import array
import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from coroutines import GARBAGE, refused, run, there

from ontempo import _native, live
from ontempo.live.bridge import bridge

SOON_S = 10.0
MANY = live.Options(receive_flows=256)


@asynccontextmanager
async def pair(
    near: live.Options | None = None, far: live.Options | None = None
) -> AsyncIterator[tuple[live.Connection, live.Connection]]:
    """Both ends of a connection."""
    async with (
        live.listen("127.0.0.1:0", token="open", options=far) as listener,
        live.connect(
            there(listener), trust=listener.fingerprint, token=b"open", options=near
        ) as connection,
        await listener.accept() as accepted,
    ):
        yield connection, accepted


async def units(flow: live.ReceiveFlow) -> list[live.Unit]:
    return [unit async for unit in flow]


@pytest.mark.parametrize("order", live.DeliveryOrder)
@pytest.mark.parametrize("reliability", [live.Reliability.FULL, live.Reliability.DEADLINE])
def test_units_arrive_in_every_order_and_reliability(
    order: live.DeliveryOrder, reliability: live.Reliability
) -> None:
    sizes = [0, 1, 200, 1200, 30_000]
    data = [bytes([number % 256]) * sizes[number % 5] for number in range(500)]

    async def main() -> None:
        async with pair() as (near, far):
            config = live.FlowConfig(order, reliability, "a label")
            begun_s = time.monotonic()

            async def send() -> None:
                async with near.open_flow(config) as flow:
                    for number, piece in enumerate(data):
                        depends_on = [number - 3] if number > 2 else []
                        sent = await flow.send(
                            piece,
                            lifetime_s=None if reliability is live.Reliability.FULL else 10,
                            priority=number % 3,
                            depends_on=depends_on,
                        )
                        assert sent == number

            sending = asyncio.create_task(send())
            flow = await far.accept_flow()
            assert flow.config == config
            got = await units(flow)
            await sending
            if order is live.DeliveryOrder.IN_ORDER:
                assert [unit.number for unit in got] == list(range(500))
            got.sort(key=lambda unit: unit.number)
            assert [unit.data for unit in got] == data
            assert [unit.priority for unit in got] == [number % 3 for number in range(500)]
            assert all(not unit.missing for unit in got)
            assert all(begun_s <= unit.arrived_s <= time.monotonic() for unit in got)
            if reliability is live.Reliability.DEADLINE:
                # The sender may be kept from the processor between two clocks.
                assert [unit.lifetime_s for unit in got] == pytest.approx([10] * 500, abs=0.1)

    run(main)


def test_an_out_of_order_flow_does_not_wait_for_a_delayed_unit() -> None:
    # What matters more overtakes a long unit on the way.
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow(live.FlowConfig(live.DeliveryOrder.OUT_OF_ORDER))
            for _ in range(30):
                await flow.send(bytes(200_000))
            urgent = await flow.send(b"urgent", priority=9)
            flow.finish()
            got = [unit.number for unit in await units(await far.accept_flow())]
            assert sorted(got) == list(range(31))
            assert got.index(urgent) < 30

    run(main)


def test_late_units_are_dropped_and_both_sides_agree_which() -> None:
    async def main() -> None:
        limited = live.Options(receive_bytes=64 << 10)
        async with pair(far=limited) as (near, far):
            config = live.FlowConfig(reliability=live.Reliability.DEADLINE)
            flow = await near.open_flow(config)
            for _ in range(200):
                await flow.send(bytes(4096), lifetime_s=0.2)
            flow.finish()
            # Nothing is taken until all are late but those for which there was room.
            await asyncio.sleep(0.4)
            incoming = await far.accept_flow()
            got = [unit.number async for unit in incoming]
            missed = incoming.dropped()
            settled = await flow.settled()
            assert sorted(flow.dropped()) == missed
            assert missed
            assert sorted(got + missed) == list(range(200))
            assert settled.dropped == len(missed)
            assert flow.dropped() == []
            assert incoming.dropped() == []

    run(main)


def test_a_receiver_that_does_not_read_exerts_backpressure_and_loses_nothing() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()
            sent = 0
            with suppress(TimeoutError):
                while sent < 2000:
                    async with asyncio.timeout(0.3):
                        await flow.send(bytes(64 << 10))
                    sent += 1
            assert 10 < sent < 2000
            assert flow.try_send(bytes(64 << 10)) is None
            flow.finish()
            incoming = await far.accept_flow()
            assert [unit.number for unit in await units(incoming)] == list(range(sent))
            assert (await flow.settled()).arrived == sent

    run(main)


def test_a_receiver_waits_for_a_slow_sender_and_others_run_meanwhile() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()
            await flow.send(b"first")
            incoming = await far.accept_flow()
            first = await incoming.receive()
            assert first is not None
            assert first.data == b"first"
            waiting = asyncio.create_task(incoming.receive())
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            await flow.send(b"second")
            second = await waiting
            assert second is not None
            assert second.data == b"second"

    run(main)


def test_cancelling_a_receive_loses_no_unit() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()

            async def send() -> None:
                for number in range(300):
                    await flow.send(str(number).encode())
                    await asyncio.sleep(0.001)
                flow.finish()

            sending = asyncio.create_task(send())
            incoming = await far.accept_flow()
            got: list[int] = []
            cancelled = 0
            while True:
                try:
                    async with asyncio.timeout(0.0007):
                        unit = await incoming.receive()
                except TimeoutError:
                    cancelled += 1
                    continue
                if unit is None:
                    break
                got.append(int(unit.data))
            await sending
            assert got == list(range(300))
            assert cancelled > 10

    run(main)


def test_cancelling_a_send_sends_nothing() -> None:
    async def main() -> None:
        async with pair(far=live.Options(receive_bytes=64 << 10)) as (near, far):
            flow = await near.open_flow()
            sent = []
            for number in range(3000):
                try:
                    async with asyncio.timeout(0.0005):
                        await flow.send(number.to_bytes(4, "big") * 1024)
                    sent.append(number)
                except TimeoutError:
                    if len(sent) < number - 20:
                        break
            flow.finish()
            got = await units(await far.accept_flow())
            assert [int.from_bytes(unit.data[:4], "big") for unit in got] == sent

    run(main)


def test_a_connection_whose_opening_is_cancelled_is_given_up() -> None:
    async def main() -> None:
        async with live.listen("127.0.0.1:0", identity=None, anyone=True) as listener:
            for _ in range(20):
                opening = asyncio.create_task(_open(listener))
                await asyncio.sleep(0.0005)
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            async with live.connect(there(listener), trust=listener.fingerprint) as near:
                assert near.close_reason is None
        gc.collect()
        assert len(bridge().waitables) < 5

    async def _open(listener: live.Listener) -> None:
        connection = await live.connect(there(listener), trust=listener.fingerprint)
        await connection.open_flow()
        await asyncio.sleep(60)

    run(main)


def test_a_hundred_flows_at_once() -> None:
    async def main() -> None:
        async with pair(far=MANY) as (near, far):

            async def send(label: str) -> None:
                async with near.open_flow(live.FlowConfig(label=label)) as flow:
                    for number in range(50):
                        await flow.send(f"{label} {number}".encode())

            async def take(flow: live.ReceiveFlow) -> tuple[str, list[bytes]]:
                return flow.config.label, [unit.data for unit in await units(flow)]

            labels = [f"flow {number}" for number in range(100)]
            sending = [asyncio.create_task(send(label)) for label in labels]
            taking = [asyncio.create_task(take(await far.accept_flow())) for _ in labels]
            got = dict(await asyncio.gather(*taking))
            await asyncio.gather(*sending)
            assert got == {
                label: [f"{label} {number}".encode() for number in range(50)] for label in labels
            }

    run(main)


def test_more_flows_than_the_peer_allows_are_refused() -> None:
    async def main() -> None:
        async with pair(far=live.Options(receive_flows=2)) as (near, _):
            held = [await near.open_flow() for _ in range(2)]
            with pytest.raises(live.EndpointError, match="the peer takes 2 flows at a time"):
                await near.open_flow()
            del held

    run(main)


def test_statistics_count_delivered_units() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()
            for _ in range(50):
                await flow.send(bytes(1000))
            flow.finish()
            incoming = await far.accept_flow()
            assert len(await units(incoming)) == 50
            sent, received = await flow.settled(), await incoming.statistics()
            assert (sent.units, sent.bytes, sent.arrived, sent.settled) == (50, 50_000, 50, 50)
            assert received is not None
            assert (received.units, received.bytes, received.dropped) == (50, 50_000, 0)
            assert received.delay.max_s < SOON_S
            assert await flow.statistics() == sent
            of_connection = await near.statistics()
            assert of_connection is not None
            assert of_connection.bytes_sent > 50_000
            assert of_connection.round_trip_s is not None
            assert 0 < of_connection.round_trip_s < SOON_S
            await near.close("enough")
            assert await near.statistics() is None

    run(main)


def test_closing_is_reported_to_the_peer_and_ends_all_waiting() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()
            await flow.send(b"only this")
            incoming = await far.accept_flow()
            assert await incoming.receive() is not None
            waiting = [
                asyncio.create_task(work)
                for work in (incoming.receive(), far.accept_flow(), near.accept_flow())
            ]
            closed = asyncio.create_task(far.closed())
            await asyncio.sleep(0.05)
            await near.close("enough")
            assert await closed == "the peer closed: enough"
            assert far.close_reason is live.CloseReason.DONE
            for error in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(error, live.ClosedError)
                assert error.orderly
                assert error.close_reason is live.CloseReason.DONE
            assert [flow async for flow in far] == []
            with pytest.raises(live.ClosedError, match="closed by this side"):
                await near.open_flow()
            with pytest.raises(live.ClosedError):
                await flow.send(b"more")
            await near.close()

    run(main)


@pytest.mark.parametrize(
    ("code", "reason", "number"),
    [
        (live.CloseReason.BUSY, live.CloseReason.BUSY, 4),
        (live.CloseReason.OVERLOADED, live.CloseReason.OVERLOADED, 8),
        (4_711, live.CloseReason.OTHER, 4_711),
    ],
)
def test_the_reason_of_the_peer_arrives_whole_and_stays(
    code: live.CloseReason | int, reason: live.CloseReason, number: int
) -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()
            await flow.send(b"one")
            await far.accept_flow()
            assert (far.close_code, far.said) == (None, "")
            await near.close("the film is over", code)
            await far.closed()
            assert (far.close_reason, far.close_code) == (reason, number)
            assert far.said == "the film is over"
            assert far.close_reason is not None
            assert far.close_reason.code == (None if number == 4_711 else number)
            with pytest.raises(live.ClosedError) as failed:
                await far.accept_flow()
            assert (failed.value.close_reason, failed.value.close_code) == (reason, number)
            assert failed.value.said == "the film is over"
            # What this side closes says what it said itself.
            assert (near.close_reason, near.close_code, near.said) == (reason, number, "")
            with pytest.raises(live.ClosedError):
                await flow.send(b"more")
            # Closing what the peer has closed hides its reason from nobody.
            await far.close()
            assert (far.close_reason, far.close_code) == (reason, number)
            with pytest.raises(live.ClosedError) as failed:
                await far.open_flow()
            assert failed.value.close_code == number

    run(main)


def test_a_terminal_that_shows_a_traceback_obeys_no_peer() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            await near.close("\x1b]0;title\x07")
            sentence = await far.closed()
            with pytest.raises(live.ClosedError) as failed:
                await far.accept_flow()
            assert failed.value.said == far.said == r"\u001b]0;title\u0007"
            assert str(failed.value).endswith(far.said)
            assert sentence.endswith(far.said)

    run(main)


def test_only_a_reason_with_a_code_or_a_code_of_its_own_closes_a_connection() -> None:
    async def main() -> None:
        async with pair() as (near, _):
            for code in (live.CloseReason.TIMED_OUT, live.CloseReason.OTHER, 9, 255, 2**62, -1):
                with pytest.raises(ValueError, match=r"^code is "):
                    await near.close("", code)
            with pytest.raises(TypeError, match=r"^code is "):
                await near.close("", 1.5)  # type: ignore[arg-type]
            assert near.close_reason is None

    run(main)


def test_a_closed_listener_ends_its_loop_and_leaves_connections_alone() -> None:
    async def main() -> None:
        listener = await live.listen("127.0.0.1:0", anyone=True)
        taken: list[live.Connection] = []

        async def take() -> None:
            taken.extend([connection async for connection in listener])

        taking = asyncio.create_task(take())
        async with live.connect(there(listener), trust=listener.fingerprint) as near:
            async with near.open_flow() as flow:
                await flow.send(b"before")
                await asyncio.sleep(0.05)
                await listener.close()
                await taking
                await flow.send(b"after")
            (far,) = taken
            got = await units(await far.accept_flow())
            assert [unit.data for unit in got] == [b"before", b"after"]

    run(main)


def test_a_wrong_token_or_fingerprint_is_reported_on_both_sides() -> None:
    async def main() -> None:
        async with live.listen("127.0.0.1:0", token="open") as listener:
            with pytest.raises(
                live.NotConnectedError, match="the peer refused our token"
            ) as failed:
                await live.connect(there(listener), trust=listener.fingerprint, token="guess")
            assert failed.value.close_reason is live.CloseReason.WRONG_TOKEN
            refused = await listener.arrival()
            assert isinstance(refused, live.Refused)
            assert refused.close_reason is live.CloseReason.WRONG_TOKEN
            assert refused.reason == "a client had the wrong token"
            other = live.Identity.self_signed().fingerprint
            with pytest.raises(live.NotConnectedError, match=f"expected is {other}"):
                await live.connect(there(listener), trust=other, token="open")
            refused = await listener.arrival()
            assert isinstance(refused, live.Refused)
            assert "does not trust our certificate" in refused.reason
            assert refused.close_reason is live.CloseReason.UNTRUSTED

    run(main)


def test_a_listener_without_a_token_makes_one_and_anyone_must_be_said() -> None:
    async def main() -> None:
        async with live.listen("127.0.0.1:0") as listener:
            trust = listener.fingerprint
            assert len(listener.token) == 32
            for token in (b"", bytes(32)):
                with pytest.raises(live.NotConnectedError, match="the peer refused our token"):
                    await live.connect(there(listener), trust=trust, token=token)
            async with (
                live.connect(there(listener), trust=trust, token=listener.token),
                await listener.accept() as far,
            ):
                assert far.close_reason is None
            async with live.listen("127.0.0.1:0") as other:
                assert other.token != listener.token
        async with live.listen("127.0.0.1:0", anyone=True) as listener:
            assert listener.token == b""
            async with live.connect(there(listener), trust=listener.fingerprint):
                pass
        async with live.listen("127.0.0.1:0", token="open") as listener:
            assert listener.token == b"open"

    run(main)


def test_an_absent_peer_is_reported_in_time() -> None:
    async def main() -> None:
        options = live.Options(handshake_timeout_s=0.3)
        with pytest.raises(live.NotConnectedError, match="no answer came within 300 ms"):
            await live.connect("127.0.0.1:9", trust=live.Trust.insecure(), options=options)
        with pytest.raises(live.NotConnectedError, match=r"host\.invalid: no such name"):
            await live.connect("host.invalid:4433", trust=live.Trust.insecure())

    run(main)


def test_a_port_in_use_is_named() -> None:
    async def main() -> None:
        async with live.listen("127.0.0.1:0") as listener:
            with pytest.raises(live.BindError, match=f"{listener.local[1]} is taken by another"):
                await live.listen(there(listener))

    run(main)


def test_an_identity_is_loaded_or_created_and_trusted_by_its_root(tmp_path: Path) -> None:
    path = tmp_path / "player.pem"
    identity = live.Identity.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert live.Identity.load_or_create(str(path)).fingerprint == identity.fingerprint
    pem = path.read_bytes()
    assert live.Identity.from_pem(pem).fingerprint == identity.fingerprint
    (tmp_path / "none.pem").write_text("nonsense")
    with pytest.raises(live.IdentityError, match=r"none\.pem: the certificate is not valid PEM"):
        live.Identity.load_or_create(tmp_path / "none.pem")

    async def main() -> None:
        async with live.listen(":0", identity=identity, anyone=True) as listener:
            for host in ("127.0.0.1", "[::1]", "localhost"):
                # The certificate is for this name.
                async with live.connect(
                    f"{host}:{listener.local[1]}", trust=listener.fingerprint, name="localhost"
                ) as near:
                    assert near.remote[1] == listener.local[1]

    run(main)


def test_bytes_like_data_is_taken_as_it_is_now() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            buffer = bytearray(b"abc")
            async with near.open_flow() as flow:
                await flow.send(buffer)
                buffer[:] = b"xyz"
                await flow.send(memoryview(buffer)[::2])
                await flow.send(array.array("H", [0x4141]))  # type: ignore[arg-type]
            got = [unit.data for unit in await units(await far.accept_flow())]
            assert got == [b"abc", b"xz", b"AA"]

    run(main)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"data": "text"}, TypeError, "bytes-like object is required, not 'str'"),
        ({"data": None}, TypeError, "bytes-like object is required, not 'NoneType'"),
        ({"lifetime_s": -1}, ValueError, "lifetime_s is -1: a number of seconds from 0"),
        ({"lifetime_s": float("nan")}, ValueError, "lifetime_s is nan: a number of seconds"),
        ({"lifetime_s": "soon"}, TypeError, "lifetime_s is 'soon': a number of seconds"),
        ({"priority": 256}, ValueError, "priority is 256: a whole number from 0 to 255"),
        ({"priority": 1.5}, TypeError, "priority is 1.5: a whole number"),
        ({"depends_on": [0, -1]}, ValueError, r"depends_on\[1\] is -1: a whole number from 0"),
        ({"lifetime_s": 1}, live.UnitError, "reliability is full, which ignores it: open the flow"),
        ({"depends_on": [7]}, live.UnitError, "at most 32 units, each sent before it"),
        ({"depends_on": [0] * 33}, live.UnitError, "at most 32 units"),
        ({"data": bytes(5 << 20)}, live.UnitError, "longer than the 4194304 bytes that the peer"),
    ],
)
def test_an_invalid_unit_is_refused(
    arguments: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    async def main() -> None:
        async with pair() as (near, far):
            flow = await near.open_flow()
            await flow.send(b"a unit")
            with pytest.raises(error, match=sentence):
                await flow.send(**{"data": b"", **arguments})
            # The flow is none the worse.
            flow.finish()
            assert len(await units(await far.accept_flow())) == 1
            with pytest.raises(live.UnitError, match="it is finished"):
                await flow.send(b"more")

    run(main)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: live.connect("host", trust="0" * 64), ValueError, "'host': the port is missing"),
        (lambda: live.connect(":1", trust="0" * 64), ValueError, "':1': the host is missing"),
        (lambda: live.connect("h:0", trust="0" * 64), ValueError, "'0' is no port from 1 to 65535"),
        (lambda: live.connect("h:x", trust="0" * 64), ValueError, "'x' is no port"),
        (lambda: live.connect("::1:9", trust="0" * 64), ValueError, "IPv6 stands in brackets"),
        (lambda: live.connect(GARBAGE, trust="0" * 64), TypeError, "the address is 9: a text"),
        (lambda: live.connect("h:1", trust="12"), ValueError, "`12`: a fingerprint is 64"),
        (lambda: live.connect("h:1", trust=GARBAGE), TypeError, "trust is 9: a fingerprint's text"),
        (lambda: live.listen("host.invalid:1"), ValueError, "`host.invalid` is no address"),
        (lambda: live.listen(":1", token="x" * 257), ValueError, "a token has at most 256 bytes"),
        (lambda: live.listen(":1", token=GARBAGE), TypeError, "bytes-like"),
        (lambda: live.listen(":1", token=""), ValueError, "say anyone=True"),
        (lambda: live.listen(":1", token="t", anyone=True), ValueError, "leave out token"),
        (lambda: live.listen(":99999"), ValueError, "'99999' is no port from 0 to 65535"),
    ],
)
def test_garbage_is_refused_with_a_sentence(
    call: Callable[[], Any], error: type[Exception], sentence: str
) -> None:
    refused(call, error, sentence)


@pytest.mark.parametrize(
    ("values", "error", "sentence"),
    [
        ({"congestion": "tahoe"}, ValueError, "`tahoe` is not a congestion control; there are"),
        (
            {"congestion_parameters": {"p-max": 1.5}},
            ValueError,
            "p-max: 1.5 is out of range; write a number",
        ),
        ({"congestion_parameters": {"q-max": 1}}, ValueError, "q-max: no such parameter; there"),
        ({"congestion_parameters": "t-min"}, TypeError, "a dict of values by name"),
        ({"acknowledge": "often"}, ValueError, "`often`: one of immediate, delayed, adaptive"),
        ({"dscp": "best"}, ValueError, "`best` is no DSCP"),
        ({"dscp": 46}, TypeError, "dscp is 46: a text"),
        ({"idle_timeout_s": 0}, ValueError, "idle_timeout_s is 0: a number of seconds above 0"),
        ({"keep_alive_s": -1.0}, ValueError, "keep_alive_s is -1.0"),
        ({"send_units": 0}, ValueError, "send_units is 0: a whole number from 1"),
        ({"receive_bytes": "8 MB"}, TypeError, "receive_bytes is '8 MB': a whole number"),
        ({"connections": True}, TypeError, "connections is True"),
    ],
)
def test_options_out_of_range_are_named(
    values: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        live.Options(**values)


def test_an_invalid_flow_is_refused() -> None:
    with pytest.raises(ValueError, match="order is 'random': one of in-order, out-of-order"):
        live.FlowConfig(order="random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label has 257 bytes: at most 256"):
        live.FlowConfig(label="x" * 257)


def test_the_options_are_those_of_the_endpoint() -> None:
    assert asdict(live.Options()) == _native.default_options()


def test_the_stubs_name_what_the_module_has() -> None:
    stub = (Path(_native.__file__).parent / "_native.pyi").read_text()
    for name in dir(_native):
        if not name.startswith("_"):
            assert f"class {name}" in stub or f"def {name}(" in stub, name


def test_no_connection_is_used_from_another_loop() -> None:
    async def listening() -> live.Listener:
        return await live.listen("127.0.0.1:0")

    async def elsewhere(listener: live.Listener) -> None:
        await listener.accept()

    listener = asyncio.run(listening())
    with pytest.raises(live.EndpointError, match="belongs to the event loop in which it was made"):
        asyncio.run(elsewhere(listener))


LEAVES_ALL_OPEN = """
import asyncio, sys
from ontempo import live

async def main():
    listener = await live.listen("127.0.0.1:0", anyone=True)
    address = f"127.0.0.1:{listener.local[1]}"
    near = await live.connect(address, trust=listener.fingerprint)
    far = await listener.accept()
    flow = await near.open_flow()
    kept.extend([listener, near, far, flow, asyncio.create_task(busy(flow))])
    await asyncio.sleep(0.1)
    print("leaving", flush=True)
    if sys.argv[1] == "exit":
        sys.exit(3)
    if sys.argv[1] == "fail":
        raise RuntimeError("as it happens")

async def busy(flow):
    while True:
        await flow.send(bytes(1000))

kept = []
asyncio.run(main())
"""


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 3), ("fail", 1)])
def test_the_interpreter_ends_with_open_and_busy_connections(how: str, code: int) -> None:
    begun_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_ALL_OPEN, how],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "leaving\n"), done.stderr
    assert time.monotonic() - begun_s < SOON_S
