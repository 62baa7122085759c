//! Arbitrary messages of either family, as bytes can hold them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ontempo_foundation::Duration;
use ontempo_reservation::message::{
    Ack, AdSpec, Body, Cause, Dclass, Descriptor, ErrorSpec, FlowSpec, GuaranteedAd, Hop, Marked,
    Message, MessageId, Path, PathErr, PathTear, RawObject, Resv, ResvConf, ResvErr, ResvTear,
    Sender, Session, Srefresh, Style, TrafficSpec, class,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub(super) fn address(v6: bool) -> BoxedStrategy<IpAddr> {
    if v6 {
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()).boxed()
    } else {
        any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()).boxed()
    }
}

fn session(v6: bool) -> impl Strategy<Value = Session> {
    (address(v6), any::<u8>(), any::<u16>()).prop_map(|(destination, protocol, port)| Session {
        destination,
        protocol,
        port,
    })
}

fn sender(v6: bool) -> impl Strategy<Value = Sender> {
    (address(v6), any::<u16>()).prop_map(|(address, port)| Sender { address, port })
}

fn hop(v6: bool) -> impl Strategy<Value = Hop> {
    (address(v6), any::<u32>()).prop_map(|(address, interface)| Hop { address, interface })
}

fn refresh() -> impl Strategy<Value = Duration> {
    any::<u32>().prop_map(|millis| Duration::from_millis(millis.into()))
}

pub(super) fn traffic() -> impl Strategy<Value = TrafficSpec> {
    let peak = prop_oneof![9 => 0f32..1e12, 1 => Just(f32::INFINITY)];
    (0f32..1e12, 0f32..1e12, peak, any::<u32>(), any::<u32>()).prop_map(
        |(rate, burst, peak, smallest, largest)| TrafficSpec {
            rate,
            burst,
            peak,
            smallest,
            largest,
        },
    )
}

pub(super) fn flowspec() -> impl Strategy<Value = FlowSpec> {
    prop_oneof![
        traffic().prop_map(FlowSpec::ControlledLoad),
        (traffic(), 0f32..1e12, any::<u32>())
            .prop_map(|(traffic, rate, slack)| FlowSpec::Guaranteed { traffic, rate, slack }),
    ]
}

fn adspec() -> impl Strategy<Value = AdSpec> {
    let guaranteed = any::<(bool, u32, u32, u32, u32)>().prop_map(
        |(broken, c_total, d_total, c_since, d_since)| GuaranteedAd {
            broken,
            c_total,
            d_total,
            c_since,
            d_since,
        },
    );
    (any::<(bool, u32, u32, u32)>(), 0f32..1e12, of(guaranteed), any::<Option<bool>>()).prop_map(
        |((broken, hops, latency, mtu), bandwidth, guaranteed, controlled_load_broken)| AdSpec {
            broken,
            hops,
            bandwidth,
            latency,
            mtu,
            guaranteed,
            controlled_load_broken,
        },
    )
}

fn error(v6: bool) -> impl Strategy<Value = ErrorSpec> {
    (address(v6), any::<bool>(), any::<bool>(), any::<u8>(), any::<u16>()).prop_map(
        |(node, in_place, not_guilty, code, value)| ErrorSpec {
            node,
            in_place,
            not_guilty,
            cause: Cause::of(code, value),
        },
    )
}

/// A style with flows that fit it.
fn flows(v6: bool) -> impl Strategy<Value = (Style, Vec<Descriptor>)> {
    let single = (flowspec(), sender(v6))
        .prop_map(|(flowspec, filter)| Descriptor { flowspec, filters: vec![filter] });
    let shared = (flowspec(), vec(sender(v6), 1..5))
        .prop_map(|(flowspec, filters)| vec![Descriptor { flowspec, filters }]);
    let open = flowspec().prop_map(|flowspec| vec![Descriptor { flowspec, filters: vec![] }]);
    prop_oneof![
        (Just(Style::FixedFilter), vec(single, 1..5)),
        (Just(Style::SharedExplicit), shared),
        (Just(Style::Wildcard), open),
    ]
}

fn path(v6: bool) -> impl Strategy<Value = Body> {
    (session(v6), hop(v6), refresh(), sender(v6), traffic(), of(adspec())).prop_map(
        |(session, hop, refresh, sender, traffic, adspec)| {
            Body::Path(Path { session, hop, refresh, sender, traffic, adspec })
        },
    )
}

fn resv(v6: bool) -> impl Strategy<Value = Body> {
    let scope = vec(address(v6), 0..3);
    let dscps = vec(vec(0u8..64, 0..3), 4);
    (session(v6), hop(v6), refresh(), of(address(v6)), scope, flows(v6), dscps).prop_map(
        |(session, hop, refresh, confirm, scope, (style, flows), dscps)| {
            let dclass = |dscps: Vec<u8>| Dclass::try_from(dscps).expect("they are below 64");
            let marked = |(descriptor, dscps)| Marked { descriptor, dclass: dclass(dscps) };
            let flows = flows.into_iter().zip(dscps).map(marked).collect();
            Body::Resv(Resv { session, hop, refresh, confirm, scope, style, flows })
        },
    )
}

fn resv_err(v6: bool) -> impl Strategy<Value = Body> {
    let scope = vec(address(v6), 0..3);
    (session(v6), hop(v6), error(v6), scope, flows(v6)).prop_map(
        |(session, hop, error, scope, (style, mut flows))| {
            let flow = flows.remove(0);
            Body::ResvErr(ResvErr { session, hop, error, scope, style, flow })
        },
    )
}

fn resv_tear(v6: bool) -> impl Strategy<Value = Body> {
    let scope = vec(address(v6), 0..3);
    (session(v6), hop(v6), scope, flows(v6)).prop_map(|(session, hop, scope, (style, flows))| {
        let filters = flows.into_iter().flat_map(|flow| flow.filters).collect();
        Body::ResvTear(ResvTear { session, hop, scope, style, filters })
    })
}

fn body(v6: bool) -> BoxedStrategy<Body> {
    let path_err = (session(v6), error(v6), sender(v6), traffic()).prop_map(
        |(session, error, sender, traffic)| {
            Body::PathErr(PathErr { session, error, sender, traffic })
        },
    );
    let path_tear = (session(v6), hop(v6), sender(v6))
        .prop_map(|(session, hop, sender)| Body::PathTear(PathTear { session, hop, sender }));
    let conf = (session(v6), error(v6), address(v6), flows(v6)).prop_map(
        |(session, error, confirm, (style, flows))| {
            Body::ResvConf(ResvConf { session, error, confirm, style, flows })
        },
    );
    let srefresh = (0u32..1 << 24, vec(any::<u32>(), 1..9))
        .prop_map(|(epoch, ids)| Body::Srefresh(Srefresh { epoch, ids }));
    let cookie = vec(any::<[u8; 4]>(), 0..5).prop_map(|words| words.concat());
    let proof = (0u64..1 << 48, cookie, any::<bool>()).prop_map(|(key, cookie, answers)| {
        if answers { Body::Response { key, cookie } } else { Body::Challenge { key, cookie } }
    });
    prop_oneof![
        path(v6),
        resv(v6),
        path_err,
        resv_err(v6),
        path_tear,
        resv_tear(v6),
        conf,
        Just(Body::Ack),
        srefresh,
        proof,
    ]
    .boxed()
}

fn single(v6: bool) -> impl Strategy<Value = Message> {
    let id = (any::<bool>(), 0u32..1 << 24, any::<u32>())
        .prop_map(|(ack_desired, epoch, id)| MessageId { ack_desired, epoch, id });
    let ack = (any::<bool>(), 0u32..1 << 24, any::<u32>()).prop_map(|(negative, epoch, id)| Ack {
        negative,
        epoch,
        id,
    });
    let forwarded = (192u8..=255, any::<u8>(), vec(any::<[u8; 4]>(), 0..4))
        // That of a RESV is none that is forwarded as it came.
        .prop_map(|(class, ctype, words)| RawObject {
            class,
            ctype: if class == class::DCLASS { ctype.max(2) } else { ctype },
            body: words.concat(),
        });
    (any::<u8>(), any::<bool>(), of(id), vec(ack, 0..3), body(v6), vec(forwarded, 0..2)).prop_map(
        |(send_ttl, refresh_reduction, id, acks, body, forwarded)| Message {
            send_ttl,
            refresh_reduction,
            id,
            acks,
            body,
            forwarded,
            unknown: None,
        },
    )
}

/// Any message.
pub(super) fn message() -> impl Strategy<Value = Message> {
    let bundle = vec(single(false), 1..4).prop_map(|messages| Message::new(Body::Bundle(messages)));
    prop_oneof![8 => single(false), 8 => single(true), 1 => bundle]
}
