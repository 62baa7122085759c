"""The words of RFC 9622: what is there works, what is not is refused by its name."""

import asyncio
import math
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from coroutines import run

from ontempo import live, taps
from ontempo.taps import Preference

LATE = taps.TransportProperties(reliability=Preference.PREFER)


@asynccontextmanager
async def pair(
    transport: taps.TransportProperties | None = None,
) -> AsyncIterator[tuple[taps.Connection, taps.Connection]]:
    """Both ends of a connection."""
    transport = transport or taps.TransportProperties()
    here = taps.LocalEndpoint(address="127.0.0.1")
    async with await taps.Preconnection(local=here, transport=transport).listen() as listener:
        near = await to(listener, transport).initiate()
        far = await anext(aiter(listener))
        yield near, far
        await asyncio.gather(near.close(), far.close())


def to(listener: taps.Listener, transport: taps.TransportProperties) -> taps.Preconnection:
    security = taps.SecurityParameters(trust=listener.fingerprint, token=listener.token)
    there = taps.RemoteEndpoint(host="127.0.0.1", port=listener.local[1])
    return taps.Preconnection(remote=there, transport=transport, security=security)


def test_messages_go_both_ways_whole_and_in_order_until_the_final_one() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            assert [await near.send(bytes([n]) * 5000) for n in range(3)] == [0, 1, 2]
            await near.send(b"last", taps.MessageProperties(final=True))
            got = [message async for message in far]
            assert [message.data for message in got] == [
                *(bytes([n]) * 5000 for n in range(3)),
                b"last",
            ]
            assert not near.can_send
            assert far.can_send
            with pytest.raises(taps.SendError, match="does not send"):
                await near.send(b"more")
            await far.send(b"answer")
            answer = await near.receive()
            assert answer is not None
            assert (answer.data, answer.number) == (b"answer", 0)

    run(main)


def test_clones_of_both_sides_are_connections_of_one_group() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            ours, theirs = near.clone(), far.clone()
            await ours.send(b"ours")
            await theirs.send(b"theirs")
            at_far, at_near = await anext(far.cloned()), await anext(near.cloned())
            assert (at_far.number, at_near.number) == (ours.number, theirs.number) == (2, 1)
            for end, data in ((at_far, b"ours"), (at_near, b"theirs")):
                message = await end.receive()
                assert message is not None
                assert message.data == data
            await asyncio.gather(*(end.close() for end in (ours, theirs, at_far, at_near)))
            assert near.state is taps.ConnectionState.ESTABLISHED

    run(main)


def test_what_a_peer_sends_late_to_a_clone_that_has_ended_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ontempo.taps.connection.LINGER_S", 0.05)

    async def main() -> None:
        async with pair() as (near, far):
            ours = near.clone()
            await ours.send(b"ours")
            theirs = await anext(far.cloned())
            await ours.close()
            await theirs.send(b"late")
            await theirs.close()
            await far.send(b"still")
            message = await near.receive()
            assert message is not None
            assert message.data == b"still"

    run(main)


def test_who_waits_for_a_message_of_a_connection_that_is_closed_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ontempo.taps.connection.LINGER_S", 0.05)

    async def main() -> None:
        async with pair() as (near, _):
            ours = near.clone()
            waiting = asyncio.create_task(ours.receive())
            await asyncio.sleep(0)
            await ours.close()
            assert await asyncio.wait_for(waiting, 10) is None
            assert near.state is taps.ConnectionState.ESTABLISHED

    run(main)


def test_the_end_of_a_clone_that_only_sends_waits_for_nothing_of_the_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the test may take.
    monkeypatch.setattr("ontempo.taps.connection.LINGER_S", 3600.0)

    async def main() -> None:
        here = taps.LocalEndpoint(address="127.0.0.1")
        receives = taps.TransportProperties(direction=taps.Direction.UNIDIRECTIONAL_RECEIVE)
        sends = taps.TransportProperties(direction=taps.Direction.UNIDIRECTIONAL_SEND)
        async with await taps.Preconnection(local=here, transport=receives).listen() as listener:
            near = await to(listener, sends).initiate()
            far = await anext(aiter(listener))
            ours = near.clone()
            await ours.send(b"ours")
            theirs = await anext(far.cloned())
            await asyncio.gather(ours.close(), theirs.close())
            assert near.state is taps.ConnectionState.ESTABLISHED
            await asyncio.gather(near.close(), far.close())

    run(main)


def test_a_first_message_goes_with_the_connection_or_there_is_none() -> None:
    async def main() -> None:
        here = taps.LocalEndpoint(address="127.0.0.1")
        async with await taps.Preconnection(local=here).listen() as listener:
            pre = to(listener, taps.TransportProperties())
            near = await pre.initiate_with_send(b"first", taps.MessageProperties(final=True))
            far = await anext(aiter(listener))
            assert [message.data async for message in far] == [b"first"]
            await asyncio.gather(near.close(), far.close())
            with pytest.raises(taps.NotProvidedError, match="msg_lifetime_s"):
                await pre.initiate_with_send(b"?", taps.MessageProperties(msg_lifetime_s=1))
            far = await anext(aiter(listener))
            assert isinstance(await anext(far.events()), taps.ConnectionError)

    run(main)


def test_the_other_end_may_be_in_rust() -> None:
    answer = Path(__file__).parents[2] / "target" / "release" / "examples" / "answer"
    if not answer.exists():
        pytest.skip("the example answer is not built: cargo test --release -p ontempo-taps")

    async def main(told: str) -> None:
        at, fingerprint, token = told.split()
        there = taps.RemoteEndpoint(host="127.0.0.1", port=int(at.rpartition(":")[2]))
        security = taps.SecurityParameters(trust=fingerprint, token=token)
        near = await taps.Preconnection(remote=there, security=security).initiate()
        other = near.clone()
        for data in (b"one", b"two"):
            await near.send(data)
            await other.send(data)
        for connection in (near, other):
            await connection.send(b"last", taps.MessageProperties(final=True))
        for connection in (near, other):
            assert [message.data async for message in connection] == [b"ONE", b"TWO", b"LAST"]
        await asyncio.gather(near.close(), other.close())
        assert near.state is taps.ConnectionState.CLOSED

    with subprocess.Popen([answer, "127.0.0.1"], stdout=subprocess.PIPE, text=True) as rust:
        try:
            assert rust.stdout is not None
            told = rust.stdout.readline()
            run(lambda: main(told))
        finally:
            rust.kill()


def test_a_message_whose_lifetime_has_passed_is_an_event() -> None:
    async def main() -> None:
        async with pair(LATE) as (near, far):
            await near.send(b"first")
            assert (await far.receive()) is not None
            # Gone before it leaves: more than a window is sent at once.
            brief = taps.MessageProperties(msg_lifetime_s=0.000001)
            number = await near.send(bytes(2_000_000), brief)
            event = await anext(near.events())
            assert event == taps.Expired(number)

    run(main)


def test_the_end_is_closed_and_an_abort_a_connection_error_with_its_reason() -> None:
    async def main() -> None:
        async with pair() as (near, far):
            at_far = aiter(far.events())
            await near.abort("enough")
            event = await anext(at_far)
            assert isinstance(event, taps.ConnectionError)
            assert "enough" in event.reason
            with pytest.raises(taps.AbortedError):
                await far.receive()
            assert far.state is taps.ConnectionState.CLOSED
        async with pair() as (near, far):
            at_near = aiter(near.events())
            await asyncio.gather(near.close(), far.close())
            assert await anext(at_near) == taps.Closed()

    run(main)


class Forwarder:
    """Hands datagrams on, from another port towards the listener as soon as it has moved."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._outside = _bound()
        self.port = int(self._outside.getsockname()[1])
        self._inside = _bound()
        self._client: tuple[str, int] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._outside, self._to_target)
        self._loop.add_reader(self._inside, self._to_client)

    def move(self) -> None:
        """From now on the listener sees another port."""
        self._loop.remove_reader(self._inside)
        self._inside.close()
        self._inside = _bound()
        self._loop.add_reader(self._inside, self._to_client)

    def close(self) -> None:
        for one in (self._outside, self._inside):
            self._loop.remove_reader(one)
            one.close()

    def _to_target(self) -> None:
        data, self._client = self._outside.recvfrom(65_536)
        self._inside.sendto(data, self._target)

    def _to_client(self) -> None:
        data = self._inside.recv(65_536)
        if self._client is not None:
            self._outside.sendto(data, self._client)


def _bound() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.setblocking(False)
    bound.bind(("127.0.0.1", 0))
    return bound


def test_a_peer_that_moves_is_a_change_of_path() -> None:
    async def main() -> None:
        transport = taps.TransportProperties()
        here = taps.LocalEndpoint(address="127.0.0.1")
        pre = taps.Preconnection(local=here, transport=transport)
        async with await pre.listen() as listener:
            through = Forwarder(listener.local)
            security = taps.SecurityParameters(trust=listener.fingerprint, token=listener.token)
            there = taps.RemoteEndpoint(host="127.0.0.1", port=through.port)
            near = await taps.Preconnection(
                remote=there, transport=transport, security=security
            ).initiate()
            far = await anext(aiter(listener))
            await near.send(b"before")
            assert (await far.receive()) is not None
            before, events = far.remote, far.events()
            coming = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.3)
            assert not coming.done()
            through.move()
            await near.send(b"after")
            assert (await far.receive()) is not None
            event = await coming
            assert isinstance(event, taps.PathChange)
            assert event.remote == far.remote != before
            await asyncio.gather(near.close(), far.close())
            assert await anext(events) == taps.Closed()
            through.close()

    run(main)


def test_who_is_not_admitted_or_not_there_is_an_establishment_error() -> None:
    async def main() -> None:
        here = taps.LocalEndpoint(address="127.0.0.1")
        async with await taps.Preconnection(local=here).listen() as listener:
            wrong = taps.SecurityParameters(trust=listener.fingerprint, token="no")
            there = taps.RemoteEndpoint(host="127.0.0.1", port=listener.local[1])
            with pytest.raises(taps.EstablishmentError, match="token"):
                await taps.Preconnection(remote=there, security=wrong).initiate()
            taken = taps.LocalEndpoint(address="127.0.0.1", port=listener.local[1])
            with pytest.raises(taps.EstablishmentError):
                await taps.Preconnection(local=taken).listen()
        with pytest.raises(ValueError, match="remote"):
            await taps.Preconnection().initiate()
        with pytest.raises(taps.NotProvidedError, match="rendezvous"):
            await taps.Preconnection().rendezvous()

    run(main)


def test_a_peer_whose_flows_are_none_of_ours_is_refused() -> None:
    async def main() -> None:
        here = taps.LocalEndpoint(address="127.0.0.1")
        async with await taps.Preconnection(local=here).listen() as listener:
            for label in ("video", "taps 1", "taps -2", "taps ²"):
                async with live.connect(
                    f"127.0.0.1:{listener.local[1]}",
                    trust=listener.fingerprint,
                    token=listener.token,
                ) as carrier:
                    await anext(aiter(listener))
                    flow = await carrier.open_flow(live.FlowConfig(label=label))
                    # It may be refused before anything is sent on it.
                    with suppress(live.ClosedError):
                        await flow.send(b"?")
                    await carrier.closed()
                    assert carrier.close_reason is live.CloseReason.PROTOCOL_VIOLATION

    run(main)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: taps.TransportProperties(zero_rtt_msg=Preference.REQUIRE), "zero_rtt_msg"),
        (lambda: taps.TransportProperties(interface={"a": Preference.REQUIRE}), "interface"),
        (lambda: taps.TransportProperties(pvd={"a": Preference.PROHIBIT}), "pvd"),
        (lambda: taps.TransportProperties(multipath="active"), "multipath"),
        (lambda: taps.TransportProperties(advertises_altaddr=True), "advertises_altaddr"),
        (
            lambda: taps.TransportProperties(congestion_control=Preference.PROHIBIT),
            "congestion_control",
        ),
        (lambda: taps.ConnectionProperties.of({"max_send_rate_bps": 1e6}), "max_send_rate_bps"),
        (lambda: taps.ConnectionProperties.of({"colour": 1}), "colour: RFC 9622 has no such"),
        (lambda: taps.MessageProperties(no_fragmentation=True), "no_fragmentation"),
        (lambda: taps.MessageProperties(msg_checksum_len="0"), "msg_checksum_len"),
    ],
)
def test_what_is_not_there_is_refused_by_its_name(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(taps.NotProvidedError, match=name):
        make()


def test_properties_become_options_flows_and_arguments() -> None:
    flow = taps.TransportProperties().flow(4)
    assert flow == live.FlowConfig(live.DeliveryOrder.IN_ORDER, live.Reliability.FULL, "taps 4")
    loose = taps.TransportProperties(
        reliability=Preference.AVOID, preserve_order=Preference.NO_PREFERENCE, partial_order=True
    )
    assert loose.flow(0).order is live.DeliveryOrder.PARTIAL_ORDER
    assert loose.flow(0).reliability is live.Reliability.NONE
    connection = taps.ConnectionProperties.of(
        {"conn_timeout_s": 3.0, "conn_capacity_profile": "scavenger", "conn_priority": 100}
    )
    options = connection.options(
        taps.TransportProperties(keep_alive=Preference.PROHIBIT), live.Options(send_units=7)
    )
    assert (options.idle_timeout_s, options.keep_alive_s) == (3.0, None)
    assert (options.dscp, options.send_units) == ("1", 7)
    message = taps.MessageProperties(msg_lifetime_s=0.5, msg_priority=0, depends_on=(1,))
    assert message.arguments(LATE.flow(0)) == {
        "lifetime_s": 0.5,
        "priority": 255,
        "depends_on": (1,),
    }
    assert taps.MessageProperties(msg_priority=1000).arguments(flow)["priority"] == 0
    assert math.isinf(taps.MessageProperties().msg_lifetime_s)
    with pytest.raises(taps.NotProvidedError, match=r"msg_lifetime_s: .*Preference\.PREFER"):
        message.arguments(flow)
    with pytest.raises(taps.NotProvidedError, match="msg_ordered"):
        taps.MessageProperties(msg_ordered=False).arguments(flow)
    with pytest.raises(ValueError, match="conn_timeout_s"):
        taps.ConnectionProperties(conn_timeout_s=0)
    with pytest.raises(ValueError, match="msg_priority"):
        taps.MessageProperties(msg_priority=-1)
