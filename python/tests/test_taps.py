"""The words of RFC 9622: what is there works, what is not is refused by its name."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
