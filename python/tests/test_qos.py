"""QoS sockets for asyncio, over loopback."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from coroutines import GARBAGE, refused, run, there

from ontempo import qos
from ontempo.qos.connection import Carrier

CARRIERS: tuple[Carrier, ...] = ("tcp", "udp", "quic")
VIDEO = qos.Specification(
    min_rate=60, max_rate=80, size=1280, max_delay_s=0.1, loss_percent=5, coerced=("max_rate",)
)

each_carrier = pytest.mark.parametrize("carrier", CARRIERS)
each_that_loses_nothing = pytest.mark.parametrize("carrier", ["tcp", "quic"])


@asynccontextmanager
async def pair(
    carrier: Carrier, near: qos.QosOptions | None = None, far: qos.QosOptions | None = None
) -> AsyncIterator[tuple[qos.Connection, qos.Connection]]:
    """Both ends of a connection."""
    async with (
        qos.listen("127.0.0.1:0", far, carrier=carrier) as listener,
        qos.connect(
            there(listener),
            near,
            carrier=carrier,
            trust=listener.fingerprint,
            token=listener.token or b"",
        ) as connection,
        await listener.accept() as accepted,
    ):
        yield connection, accepted


@each_carrier
def test_messages_arrive_in_both_directions_with_their_number_and_delay(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier) as (near, far):
            for number in range(50):
                await near.send(f"forth {number}".encode())
                forth = await far.receive()
                assert forth is not None
                assert (forth.data, forth.sequence) == (f"forth {number}".encode(), number)
                assert abs(forth.delay_s) < 1
                await far.send(bytearray(f"back {number}".encode()))
                back = await near.receive()
                assert back is not None
                assert back.data == f"back {number}".encode()
            assert near.remote == far.local
            assert near.local == far.remote

    run(main)


WITHOUT_THREADS = """
import asyncio, os, resource
from ontempo import qos

async def main():
    async with (
        qos.listen("127.0.0.1:0") as listener,
        qos.connect(f"127.0.0.1:{listener.local[1]}") as near,
        await listener.accept() as far,
    ):
        # The limit does not hold for root.
        if os.getuid() == 0:
            os.setuid(65534)
        most, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        for call in (lambda: near.send(b"message"), far.receive):
            resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
            try:
                async with asyncio.timeout(10):
                    await call()
            except OSError as error:
                assert not isinstance(error, TimeoutError)
            else:
                raise AssertionError("there was a thread")
            resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
            async with asyncio.timeout(10):
                got = await call()
        print(got.data)

asyncio.run(main())
"""


def test_where_no_thread_can_be_started_the_next_call_tries_again() -> None:
    command = [sys.executable, "-c", WITHOUT_THREADS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.returncode) == ("b'message'\n", 0), ran.stderr


def test_the_congestion_control_of_quic_is_chosen() -> None:
    async def main() -> None:
        options = qos.QosOptions(congestion="cubic", congestion_parameters={"beta": 0.5})
        async with pair("quic", options) as (near, far):
            await near.send(b"over CUBIC")
            message = await far.receive()
            assert message is not None
            assert message.data == b"over CUBIC"

    run(main)


@each_carrier
def test_both_ends_agree_and_report_it(carrier: Carrier) -> None:
    async def main() -> None:
        asked = qos.Specification(max_rate=70, coerced=("max_rate",))
        async with pair(
            carrier, qos.QosOptions(send=VIDEO, name="film"), qos.QosOptions(receive=asked)
        ) as (near, far):
            agreed = near.agreed("sending")
            assert (agreed.max_rate, agreed.size, agreed.max_delay_s) == (70, 1280, 0.1)
            assert far.agreed("receiving").max_rate == 70
            assert near.agreed("receiving") == qos.Specification()
            assert near.dscp == 34  # AF41: a delay below 150 ms
            assert (near.max_send_size, far.max_receive_size) == (1280, 1280)
            with pytest.raises(qos.UnitError, match="1281 bytes is longer than what was agreed"):
                await near.send(bytes(1281))
            (report,) = near.reports()
            assert (report["name"], report["carrier"]) == ("film", carrier)
            assert near.reservation("sending").state == "none"

    run(main)


@each_carrier
def test_a_disagreement_is_reported_at_both_ends(carrier: Carrier) -> None:
    async def main() -> None:
        more = qos.QosOptions(send=qos.Specification(max_rate=80))
        firm = qos.QosOptions(receive=qos.Specification(max_rate=70))
        async with qos.listen("127.0.0.1:0", firm, carrier=carrier) as listener:
            trust, token = listener.fingerprint, listener.token or b""
            with pytest.raises(qos.DisagreementError, match="sending: max_rate") as raised:
                await qos.connect(there(listener), more, carrier=carrier, trust=trust, token=token)
            refused = await listener.arrival()
            assert isinstance(refused, qos.Refused)
            assert "receiving: max_rate" in refused.reason
            assert str(raised.value).startswith("the two ends do not agree: sending: max_rate")

    run(main)


def test_a_violation_that_lasts_is_told_again() -> None:
    async def main() -> None:
        asked = qos.Specification(max_rate=20, size=100)
        async with pair("tcp", qos.QosOptions(send=asked)) as (near, far):
            events = far.events()

            async def send() -> None:
                while True:
                    await near.send(bytes(100))
                    await asyncio.sleep(0.01)

            async def take() -> None:
                async for _ in far:
                    pass

            working = [asyncio.create_task(send()), asyncio.create_task(take())]
            async with asyncio.timeout(60):
                event = await anext(events)
                while not isinstance(event, qos.Lasting):
                    event = await anext(events)
            assert (event.direction, event.parameter, event.asked) == ("receiving", "max_rate", 20)
            assert event.delivered is not None
            assert event.delivered > 20
            assert 10 <= event.lasted_s < 30
            assert str(event).startswith("max_rate has been violated for 1")
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    run(main)


@each_carrier
def test_a_violation_begins_and_ends_and_is_reported_at_both_ends(carrier: Carrier) -> None:
    async def main() -> None:
        asked = qos.Specification(max_rate=20, size=100)
        async with pair(carrier, qos.QosOptions(send=asked)) as (near, far):
            at_near, at_far = near.events(), far.events()
            rate = [200.0]

            async def send() -> None:
                while True:
                    await near.send(bytes(100))
                    await asyncio.sleep(1 / rate[0])

            async def take() -> None:
                async for _ in far:
                    pass

            working = [asyncio.create_task(send()), asyncio.create_task(take())]
            begun_s = time.monotonic()
            for events, direction in ((at_far, "receiving"), (at_near, "sending")):
                event = await anext(events)
                assert isinstance(event, qos.Violation)
                assert (event.direction, event.parameter, event.begins) == (
                    direction, "max_rate", True,
                )  # fmt: skip
                assert event.asked == 20
                assert event.delivered > 20
                assert str(event).startswith("max_rate is violated: 20 messages/s agreed, ")
            assert time.monotonic() - begun_s > 0.9
            rate[0] = 5
            event = await anext(at_near)
            assert isinstance(event, qos.Violation)
            assert not event.begins
            delivery = near.delivery("sending")
            assert delivery.messages > 20
            assert delivery.bytes == 100 * delivery.messages
            assert 0 < delivery.throughput_bps < 20 * 800
            assert delivery.delay_s is not None
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    run(main)


@each_carrier
def test_a_change_is_agreed_on_and_reported(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier, qos.QosOptions(send=VIDEO)) as (near, far):
            events = far.events()
            lesser = qos.Specification(min_rate=10, max_rate=30, size=1280)
            assert near.change(lesser).max_rate == 30
            await near.send(b"so that it is read")
            assert await far.receive() is not None
            event = await anext(events)
            assert isinstance(event, qos.Changed)
            assert (event.direction, event.agreed.max_rate) == ("receiving", 30)
            assert far.agreed("receiving").max_rate == 30

    run(main)


@each_that_loses_nothing
def test_a_receiver_that_does_not_read_exerts_backpressure(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier) as (near, far):
            size = min(near.max_send_size, 60_000)
            sent = 0
            with suppress(TimeoutError):
                while sent < 20_000:
                    async with asyncio.timeout(1):
                        await near.send(bytes(size))
                    sent += 1
            assert 0 < sent < 20_000
            # The last one was under way when it was given up.
            for number in range(sent + 1):
                message = await far.receive()
                assert message is not None
                assert (message.sequence, len(message.data)) == (number, size)

    run(main)


@each_carrier
def test_cancelling_a_receive_loses_no_message(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier) as (near, far):

            async def send() -> None:
                for number in range(200):
                    await near.send(str(number).encode())
                    await asyncio.sleep(0.001)

            sending = asyncio.create_task(send())
            got: list[int] = []
            while len(got) < 200:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.0007):
                        message = await far.receive()
                        assert message is not None
                        got.append(int(message.data))
            await sending
            assert got == list(range(200))

    run(main)


@each_carrier
def test_closing_ends_the_other_end_s_loop_and_all_waiting(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier) as (near, far):
            for _ in range(20):
                await near.send(b"a message")
            waiting = asyncio.create_task(near.receive())
            events = near.events()
            taking = asyncio.create_task(_all(far))
            await asyncio.sleep(0.3)
            await near.close()
            assert len(await taking) == 20
            with pytest.raises(qos.ClosedError, match="closed by this side"):
                await waiting
            assert [event async for event in events] == []
            with pytest.raises(qos.ClosedError):
                await near.send(b"more")
            with pytest.raises(qos.ClosedError):
                near.agreed("sending")
            await near.close()

    async def _all(connection: qos.Connection) -> list[qos.Message]:
        return [message async for message in connection]

    run(main)


@each_that_loses_nothing
def test_closing_with_a_timeout_waits_until_all_has_arrived(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier) as (near, far):
            for _ in range(200):
                await near.send(bytes(1000))
            closing = asyncio.create_task(near.close(timeout_s=10))
            await asyncio.sleep(0.05)
            assert not closing.done()
            got = [message async for message in far]
            assert len(got) == 200
            if carrier == "tcp":  # which knows only of the other end's closing
                assert not closing.done()
                await far.close()
            async with asyncio.timeout(2):
                await closing

    run(main)


@each_that_loses_nothing
def test_two_ends_that_close_with_a_timeout_do_not_wait_for_each_other(carrier: Carrier) -> None:
    async def main() -> None:
        async with pair(carrier) as (near, far):
            for _ in range(200):
                await near.send(bytes(1000))
                await far.send(bytes(1000))
            async with asyncio.timeout(5):
                await asyncio.gather(near.close(timeout_s=20), far.close(timeout_s=20))

    run(main)


def test_over_quic_the_ends_authenticate_each_other() -> None:
    async def main() -> None:
        identity = qos.Identity.self_signed(["film.example"])
        listening = qos.listen("127.0.0.1:0", carrier="quic", identity=identity, token="open")
        async with listening as listener:
            assert listener.fingerprint == identity.fingerprint
            at, trust = there(listener), qos.Trust.fingerprint(identity.fingerprint)
            for token in ("guess", b""):
                with pytest.raises(qos.NotConnectedError, match="the peer refused our token"):
                    await qos.connect(at, carrier="quic", trust=trust, token=token)
            other = qos.Identity.self_signed().fingerprint
            with pytest.raises(qos.NotConnectedError, match="certificate"):
                await qos.connect(at, carrier="quic", trust=other, token="open")
            async with (
                qos.connect(at, carrier="quic", trust=trust, token=b"open") as near,
                await listener.accept() as far,
            ):
                assert near.remote == far.local

    run(main)


def test_over_quic_a_listener_without_a_token_makes_one_and_reports_who_has_another() -> None:
    async def main() -> None:
        async with qos.listen("127.0.0.1:0", carrier="quic") as listener:
            at, trust = there(listener), listener.fingerprint
            assert listener.token is not None
            assert len(listener.token) == 32
            with pytest.raises(qos.NotConnectedError, match="the peer refused our token"):
                await qos.connect(at, carrier="quic", trust=trust)
            refused = await listener.arrival()
            assert isinstance(refused, qos.Refused)
            assert refused.reason == "a client had the wrong token"
            async with (
                qos.connect(at, carrier="quic", trust=trust, token=listener.token) as near,
                await listener.accept() as far,
            ):
                assert near.remote == far.local
        async with qos.listen("127.0.0.1:0", carrier="quic", anyone=True) as listener:
            assert listener.token == b""
            async with qos.connect(there(listener), carrier="quic", trust=listener.fingerprint):
                pass
        async with qos.listen("127.0.0.1:0") as listener:
            assert listener.token is None

    run(main)


def test_over_quic_sending_to_a_closed_end_is_an_error() -> None:
    async def main() -> None:
        async with pair("quic") as (near, far):
            await far.close()
            assert await near.receive() is None
            with pytest.raises(qos.ClosedError, match=r"^the connection is over: the peer closed"):
                await _send_on(near)

    async def _send_on(connection: qos.Connection) -> None:
        while True:
            await connection.send(b"a message")
            await asyncio.sleep(0.01)

    run(main)


def test_over_quic_the_server_name_matters_if_trust_verifies_it(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "identity.pem"
        identity = qos.Identity.load_or_create(path)  # for localhost
        trust = qos.Trust.roots(path.read_bytes())
        listening = qos.listen("127.0.0.1:0", carrier="quic", identity=identity, anyone=True)
        async with listening as listener:
            at = there(listener)
            async with qos.connect(at, carrier="quic", trust=trust, name="localhost") as near:
                assert near.remote == listener.local
            with pytest.raises(qos.NotConnectedError, match="certificate"):
                await qos.connect(at, carrier="quic", trust=trust, name="other.example")
        other = tmp_path / "other.pem"
        qos.Identity.load_or_create(other)
        mixed = qos.Identity.from_pem(path.read_bytes(), other.read_bytes())
        with pytest.raises(qos.IdentityError):
            await qos.listen("127.0.0.1:0", carrier="quic", identity=mixed)

    run(main)


@each_carrier
def test_a_closed_listener_ends_its_loop_and_frees_its_port(carrier: Carrier) -> None:
    async def main() -> None:
        for at in ("127.0.0.1:0", ":0"):
            listener = await qos.listen(at, carrier=carrier)
            port = listener.local[1]
            ending = asyncio.create_task(_count(listener))
            await asyncio.sleep(0.05)
            await listener.close()
            assert await ending == 0
            await listener.close()
            again = await _again(f"127.0.0.1:{port}", carrier)
            assert again.local[1] == port
            await again.close()

    async def _again(at: str, carrier: Carrier) -> qos.Listener:
        while True:  # it ends a moment after it is closed
            with suppress(qos.BindError):
                return await qos.listen(at, carrier=carrier)
            await asyncio.sleep(0.01)

    async def _count(listener: qos.Listener) -> int:
        return len([connection async for connection in listener])

    run(main)


def test_an_absent_peer_and_a_port_in_use_are_errors() -> None:
    async def main() -> None:
        options = qos.QosOptions(setup_timeout_s=0.3)
        for carrier in CARRIERS:
            trust = qos.Trust.insecure() if carrier == "quic" else None
            with pytest.raises(qos.NotConnectedError):
                await qos.connect("127.0.0.1:9", options, carrier=carrier, trust=trust)
            async with qos.listen("127.0.0.1:0", carrier=carrier) as listener:
                assert (listener.fingerprint is None) == (carrier != "quic")
                if carrier != "udp":  # whose connections share the listener's port
                    with pytest.raises(qos.BindError, match=f"no listener at {there(listener)}"):
                        await qos.listen(there(listener), carrier=carrier)
        must = qos.QosOptions(send=VIDEO, reserve="controlled-load", must_reserve=True)
        async with qos.listen("127.0.0.1:0") as listener:
            with pytest.raises(
                qos.NotConnectedError, match="nothing is reserved: the other end does"
            ):
                await qos.connect(there(listener), must)

    run(main)


def test_a_specification_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "video.toml"
    path.write_text(
        'min_rate = "60 messages/s"\nmax_rate = "80 messages/s"\nsize = "1280 bytes"\n'
        'max_delay = "100 ms"\nloss = "5 %"\ncoerced = ["max_rate"]\n'
    )
    assert qos.read(path) == VIDEO
    path.write_text('max_dely = "100 ms"')
    with pytest.raises(
        qos.SpecificationError, match=r"video\.toml: (.|\n)*unknown field `max_dely`"
    ):
        qos.read(str(path))


@pytest.mark.parametrize(
    ("values", "error", "sentence"),
    [
        ({"min_rate": 9, "max_rate": 8}, qos.SpecificationError, "min_rate .* is above max_rate"),
        ({"size": 0}, qos.SpecificationError, "size is 0; more is needed"),
        ({"coerced": ["loss"]}, qos.SpecificationError, "loss is not asked for"),
        ({"coerced": ["speed"]}, qos.SpecificationError, "`speed` is no parameter; there are"),
        ({"coerced": "loss"}, TypeError, "coerced is 'loss': the names of parameters"),
        ({"max_rate": -1}, ValueError, "max_rate is -1: messages per second, from 0"),
        ({"max_rate": "80"}, TypeError, "max_rate is '80': a number of messages per second"),
        ({"loss_percent": 101}, ValueError, "loss_percent is 101: per cent, from 0 to 100"),
        ({"jitter_s": float("nan")}, ValueError, "jitter_s is nan: a number of seconds"),
        ({"size": 1.5}, TypeError, "size is 1.5: a whole number"),
    ],
)
def test_an_invalid_specification_is_refused(
    values: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        qos.Specification(**values)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (
            lambda: qos.connect("h:1", carrier=GARBAGE),
            ValueError,
            "carrier is 9: one of tcp, udp, quic",
        ),
        (lambda: qos.connect("h"), ValueError, "'h': the port is missing"),
        (lambda: qos.connect("h:1", carrier="quic"), ValueError, "trust is missing"),
        (
            lambda: qos.connect("h:1", carrier="quic", trust=GARBAGE),
            TypeError,
            "trust is 9: a fingerprint's text, or a Trust",
        ),
        (
            lambda: qos.connect("h:1", trust="0" * 64),
            ValueError,
            "trust is given, but carrier is 'tcp': trust is for 'quic'",
        ),
        (
            lambda: qos.connect("h:1", carrier="udp", token="open"),
            ValueError,
            "token is given, but carrier is 'udp'",
        ),
        (lambda: qos.connect("h:1", name="h"), ValueError, "name is given, but carrier is 'tcp'"),
        (lambda: qos.listen(":0", token=b"open"), ValueError, "token is given, but carrier"),
        (lambda: qos.listen(":0", anyone=True), ValueError, "anyone is given, but carrier"),
        (lambda: qos.listen(":0", carrier="quic", token=b""), ValueError, "say anyone=True"),
        (
            lambda: qos.listen(":0", carrier="udp", identity=qos.Identity.self_signed()),
            ValueError,
            "identity is given, but carrier is 'udp': identity is for 'quic'",
        ),
        (
            lambda: qos.listen(":0", carrier="quic", token="x" * 257),
            ValueError,
            "a token has at most 256 bytes",
        ),
        (
            lambda: qos.listen("127.0.0.1:0", qos.QosOptions(dscp="best")),
            ValueError,
            "`best` is no DSCP",
        ),
        (
            lambda: qos.listen("127.0.0.1:0", qos.QosOptions(congestion="cubic"), carrier="tcp"),
            ValueError,
            "that of TCP is the kernel's",
        ),
        (
            lambda: qos.listen("127.0.0.1:0", qos.QosOptions(congestion="cubic"), carrier="udp"),
            ValueError,
            "a UDP socket has none",
        ),
        (
            lambda: qos.listen(
                "127.0.0.1:0",
                qos.QosOptions(congestion="pert", congestion_parameters={"p-max": 2}),
                carrier="quic",
            ),
            ValueError,
            "p-max",
        ),
        (
            lambda: qos.QosOptions(congestion_parameters={"p-max": 0.1}),
            ValueError,
            "no congestion",
        ),
        (
            lambda: qos.listen("127.0.0.1:0", qos.QosOptions(reserve=GARBAGE)),
            TypeError,
            "reserve",
        ),
    ],
)
def test_garbage_is_refused_with_a_sentence(
    call: Callable[[], Any], error: type[Exception], sentence: str
) -> None:
    refused(call, error, sentence)
