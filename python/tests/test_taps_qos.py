"""The words of RFC 9622 for QoS sockets: the properties select the protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from coroutines import run

from ontempo import taps
from ontempo.qos import QosOptions, Specification
from ontempo.taps import Preference, qos

PLAIN = taps.SecurityParameters(disabled=True)
LOOSE = taps.TransportProperties(
    reliability=Preference.AVOID, congestion_control=Preference.NO_PREFERENCE
)


@asynccontextmanager
async def pair(wanted: qos.Preconnection) -> AsyncIterator[tuple[qos.Connection, qos.Connection]]:
    """Both ends, over what `wanted` selects."""
    here = taps.LocalEndpoint(address="127.0.0.1")
    async with await replace(wanted, local=here).listen() as listener:
        security = replace(wanted.security, trust=listener.fingerprint, token=listener.token)
        there = taps.RemoteEndpoint(host="127.0.0.1", port=listener.local[1])
        initiating = replace(wanted, remote=there, security=security)
        near, far = await asyncio.gather(initiating.initiate(), anext(aiter(listener)))
        yield near, far
        await asyncio.gather(near.close(), far.close())


@pytest.mark.parametrize(
    ("wanted", "protocol"),
    [
        (qos.Preconnection(), "quic"),
        (qos.Preconnection(security=PLAIN), "tcp"),
        (qos.Preconnection(security=PLAIN, transport=LOOSE), "udp"),
    ],
)
def test_messages_go_both_ways_over_what_is_selected(
    wanted: qos.Preconnection, protocol: qos.Protocol
) -> None:
    async def main() -> None:
        assert wanted.protocol() == protocol
        async with pair(wanted) as (near, far):
            assert (near.protocol, far.protocol) == (protocol, protocol)
            for one, other in ((near, far), (far, near)):
                for number in range(3):
                    await one.send(bytes([number]) * 700)
                for number in range(3):
                    message = await other.receive()
                    assert message is not None
                    assert (message.data, message.number) == (bytes([number]) * 700, number)
            for properties, name in (
                (taps.MessageProperties(msg_lifetime_s=1), "msg_lifetime_s"),
                (taps.MessageProperties(msg_priority=1), "msg_priority"),
                (taps.MessageProperties(depends_on=(0,)), "depends_on"),
                (taps.MessageProperties(final=True), "final"),
                (taps.MessageProperties(msg_ordered=False), "msg_ordered"),
                (taps.MessageProperties(msg_reliable=protocol == "udp"), "msg_reliable"),
            ):
                with pytest.raises(taps.NotProvidedError, match=name):
                    await near.send(b"?", properties)
            with pytest.raises(taps.NotProvidedError, match="clone"):
                near.clone()

    run(main)


def test_order_that_does_not_matter_is_agreed_as_permutable() -> None:
    async def main() -> None:
        loose = taps.TransportProperties(preserve_order=Preference.NO_PREFERENCE)
        async with pair(qos.Preconnection(transport=loose)) as (near, far):
            assert near.socket.agreed("sending").permutable
            assert far.socket.agreed("sending").permutable
            await near.send(b"loose", taps.MessageProperties(msg_ordered=False))
            with pytest.raises(taps.NotProvidedError, match="msg_ordered"):
                await near.send(b"?", taps.MessageProperties(msg_ordered=True))

    run(main)


def test_without_security_the_properties_select_between_tcp_and_udp() -> None:
    for reliability, congestion_control, protocol in (
        (Preference.REQUIRE, Preference.REQUIRE, "tcp"),
        (Preference.PREFER, Preference.NO_PREFERENCE, "tcp"),
        (Preference.AVOID, Preference.NO_PREFERENCE, "udp"),
        (Preference.NO_PREFERENCE, Preference.AVOID, "udp"),
        (Preference.NO_PREFERENCE, Preference.NO_PREFERENCE, "tcp"),
    ):
        properties = taps.TransportProperties(
            reliability=reliability, congestion_control=congestion_control
        )
        assert qos.Preconnection(transport=properties, security=PLAIN).protocol() == protocol


LOSSY = Specification(loss_percent=5)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (
            qos.Preconnection(
                transport=taps.TransportProperties(multistreaming=Preference.REQUIRE)
            ),
            "multistreaming: QUIC",
        ),
        (
            qos.Preconnection(
                transport=taps.TransportProperties(reliability=Preference.PROHIBIT), security=PLAIN
            ),
            "reliability: TCP always has it; congestion_control: UDP does not have it",
        ),
        (
            qos.Preconnection(transport=taps.TransportProperties(reliability=Preference.PROHIBIT)),
            "reliability: QUIC",
        ),
        (
            qos.Preconnection(transport=taps.TransportProperties(partial_order=True)),
            "partial_order",
        ),
        (
            qos.Preconnection(options=QosOptions(send=Specification(permutable=True))),
            "preserve_order",
        ),
        (qos.Preconnection(options=QosOptions(send=LOSSY)), "reliability: the specification"),
        (
            qos.Preconnection(connection=taps.ConnectionProperties(conn_timeout_s=3)),
            "conn_timeout_s",
        ),
        (qos.Preconnection(local=taps.LocalEndpoint()), "local"),
    ],
)
def test_what_cannot_be_established_is_refused_by_its_name(
    wanted: qos.Preconnection, name: str
) -> None:
    async def main() -> None:
        with pytest.raises(taps.NotProvidedError, match=name):
            await wanted.initiate()

    run(main)


def test_what_is_missing_and_who_is_not_there_are_told() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="remote"):
            await qos.Preconnection().initiate()
        there = taps.RemoteEndpoint(host="127.0.0.1", port=1)
        with pytest.raises(ValueError, match=r"security\.trust"):
            await qos.Preconnection(remote=there).initiate()
        with pytest.raises(taps.EstablishmentError):
            await qos.Preconnection(remote=there, security=PLAIN).initiate()
        with pytest.raises(taps.NotProvidedError, match="rendezvous"):
            await qos.Preconnection().rendezvous()
        with pytest.raises(taps.NotProvidedError, match="disabled"):
            await taps.Preconnection(security=PLAIN).listen()
        with pytest.raises(taps.NotProvidedError, match="disabled"):
            await taps.Preconnection(remote=there, security=PLAIN).initiate()

    run(main)


def test_over_quic_the_specification_says_whether_reliability_can_be_prohibited() -> None:
    never = taps.TransportProperties(reliability=Preference.PROHIBIT)
    both = QosOptions(send=LOSSY, receive=LOSSY)
    assert qos.Preconnection(transport=never, options=both).protocol() == "quic"
    repeated = replace(both, receive=replace(LOSSY, max_delay_s=0.1))
    with pytest.raises(taps.NotProvidedError, match="reliability"):
        qos.Preconnection(transport=never, options=repeated).protocol()
