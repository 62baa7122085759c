//! What the transport does not have is refused by its name; what it has becomes options, flows and
//! units.

use ontempo_foundation::{Duration, Rate};
use ontempo_taps::{
    CapacityProfile, ChecksumLength, ConnectionProperties, EstablishmentError, MessageProperties,
    Multipath, MultipathPolicy, Preconnection, Preference, PropertyError, Scheduler,
    SecurityParameters, SendError, TransportProperties,
};
use ontempo_transport::{DeliveryOrder, Reliability, Trust};

/// The name under which a preconnection is refused, by both of its actions.
fn refused(one: &Preconnection) -> &'static str {
    let name = |error: Option<EstablishmentError>| match error {
        Some(EstablishmentError::Property(error)) => {
            assert!(error.to_string().starts_with(error.property()), "{error}");
            error.property()
        }
        other => panic!("{other:?}"),
    };
    let by_listening = name(one.listen().err());
    assert_eq!(name(one.initiate().err()), by_listening);
    by_listening
}

#[test]
fn selection_properties_that_are_not_there_or_always_are() {
    type Set = fn(&mut TransportProperties);
    let cases: [(&str, Set); 19] = [
        ("per_msg_reliability", |all| all.per_msg_reliability = Preference::Require),
        ("zero_rtt_msg", |all| all.zero_rtt_msg = Preference::Require),
        ("use_temporary_local_address", |all| {
            all.use_temporary_local_address = Preference::Require;
        }),
        ("soft_error_notify", |all| all.soft_error_notify = Preference::Require),
        ("interface", |all| {
            all.interface.insert("wlan0".to_owned(), Preference::Require);
        }),
        ("interface", |all| {
            all.interface.insert("wlan0".to_owned(), Preference::Prohibit);
        }),
        ("pvd", |all| {
            all.pvd.insert("home".to_owned(), Preference::Require);
        }),
        ("pvd", |all| {
            all.pvd.insert("home".to_owned(), Preference::Prohibit);
        }),
        ("multipath", |all| all.multipath = Multipath::Active),
        ("multipath", |all| all.multipath = Multipath::Passive),
        ("advertises_altaddr", |all| all.advertises_altaddr = true),
        ("preserve_msg_boundaries", |all| all.preserve_msg_boundaries = Preference::Prohibit),
        ("multistreaming", |all| all.multistreaming = Preference::Prohibit),
        ("full_checksum_send", |all| all.full_checksum_send = Preference::Prohibit),
        ("full_checksum_recv", |all| all.full_checksum_recv = Preference::Prohibit),
        ("congestion_control", |all| all.congestion_control = Preference::Prohibit),
        ("active_read_before_send", |all| all.active_read_before_send = Preference::Prohibit),
        // The first that is found.
        ("zero_rtt_msg", |all| {
            (all.zero_rtt_msg, all.advertises_altaddr) = (Preference::Require, true);
        }),
        ("multistreaming", |all| {
            all.multistreaming = Preference::Prohibit;
            all.interface.insert("wlan0".to_owned(), Preference::Prefer);
        }),
    ];
    for (name, set) in cases {
        let mut one = Preconnection::default();
        set(&mut one.transport);
        assert_eq!(refused(&one), name);
    }
}

#[test]
fn connection_properties_that_are_not_there() {
    type Set = fn(&mut ConnectionProperties);
    let cases: [(&str, Set); 12] = [
        ("conn_priority", |all| all.conn_priority = 1),
        ("recv_checksum_len", |all| all.recv_checksum_len = ChecksumLength::Bytes(8)),
        ("conn_scheduler", |all| all.conn_scheduler = Scheduler::Priority),
        ("multipath_policy", |all| all.multipath_policy = MultipathPolicy::Aggregate),
        ("min_send_rate", |all| all.min_send_rate = Some(Rate::from_bits_per_sec(1))),
        ("min_recv_rate", |all| all.min_recv_rate = Some(Rate::from_bits_per_sec(1))),
        ("max_send_rate", |all| all.max_send_rate = Some(Rate::from_bits_per_sec(1))),
        ("max_recv_rate", |all| all.max_recv_rate = Some(Rate::from_bits_per_sec(1))),
        ("group_conn_limit", |all| all.group_conn_limit = Some(2)),
        ("isolate_session", |all| all.isolate_session = true),
        ("conn_timeout", |all| all.conn_timeout = Duration::from_secs(0)),
        ("keep_alive_timeout", |all| all.keep_alive_timeout = Some(Duration::from_secs(0))),
    ];
    for (name, set) in cases {
        let mut one = Preconnection::default();
        set(&mut one.connection);
        assert_eq!(refused(&one), name);
    }
}

#[test]
fn rendezvous_disabled_security_and_contradicting_tokens() {
    let one = Preconnection::default();
    let error = one.rendezvous().err().expect("refused").to_string();
    assert!(error.starts_with("rendezvous: "), "{error}");
    let security = SecurityParameters { disabled: true, ..Default::default() };
    assert_eq!(refused(&Preconnection { security, ..Default::default() }), "disabled");
    let (token, anyone) = (Some(b"open".to_vec()), true);
    let security = SecurityParameters { token, anyone, ..Default::default() };
    let error = Preconnection { security, ..Default::default() }.listen().err().expect("both");
    assert!(error.to_string().starts_with("token is given beside anyone"), "{error}");
    let security = SecurityParameters { token: Some(Vec::new()), ..Default::default() };
    let error = Preconnection { security, ..Default::default() }.listen().err().expect("empty");
    assert!(error.to_string().starts_with("token: "), "{error}");
}

/// The name under which a message is refused by a connection with these properties.
fn refused_message(transport: TransportProperties, message: &MessageProperties) -> PropertyError {
    let local = ontempo_taps::LocalEndpoint { address: "127.0.0.1".to_owned(), port: 0 };
    let mut one = Preconnection { local: Some(local), transport, ..Default::default() };
    let listener = one.listen().expect("it listens");
    one.local = None;
    one.remote = Some(ontempo_taps::RemoteEndpoint {
        host: "127.0.0.1".to_owned(),
        port: listener.local().port(),
    });
    one.security.trust = Some(Trust::Fingerprint(listener.fingerprint()));
    one.security.token = Some(listener.token().to_vec());
    match one.initiate().expect("connected").send(&b"?"[..], message) {
        Err(SendError::Property(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn message_properties_that_are_not_there() {
    let plain = MessageProperties::default;
    let cases: [(&str, MessageProperties); 9] = [
        ("no_fragmentation", MessageProperties { no_fragmentation: true, ..plain() }),
        ("no_segmentation", MessageProperties { no_segmentation: true, ..plain() }),
        (
            "msg_checksum_len",
            MessageProperties { msg_checksum_len: ChecksumLength::Bytes(0), ..plain() },
        ),
        (
            "msg_capacity_profile",
            MessageProperties { msg_capacity_profile: Some(CapacityProfile::Scavenger), ..plain() },
        ),
        ("msg_ordered", MessageProperties { msg_ordered: Some(false), ..plain() }),
        ("msg_reliable", MessageProperties { msg_reliable: Some(false), ..plain() }),
        (
            "msg_lifetime",
            MessageProperties { msg_lifetime: Some(Duration::from_secs(1)), ..plain() },
        ),
        (
            "msg_lifetime",
            MessageProperties { msg_lifetime: Some(Duration::from_secs(0)), ..plain() },
        ),
        (
            "msg_checksum_len",
            MessageProperties {
                msg_checksum_len: ChecksumLength::Bytes(8),
                no_segmentation: true,
                ..plain()
            },
        ),
    ];
    for (name, message) in cases {
        assert_eq!(refused_message(TransportProperties::default(), &message).property(), name);
    }
    let brief = MessageProperties { msg_lifetime: Some(Duration::from_secs(1)), ..plain() };
    let error = refused_message(TransportProperties::default(), &brief).to_string();
    assert!(error.contains("Preference::Prefer"), "{error}");
}

#[test]
fn properties_become_flows_and_a_profile_a_dscp() {
    let flow = TransportProperties::default().flow(4);
    assert_eq!((flow.order, flow.reliability), (DeliveryOrder::InOrder, Reliability::Full));
    assert_eq!(flow.label, "taps 4");
    let reliabilities = [
        (Preference::Require, Reliability::Full),
        (Preference::Prefer, Reliability::Deadline),
        (Preference::NoPreference, Reliability::Deadline),
        (Preference::Avoid, Reliability::None),
        (Preference::Prohibit, Reliability::None),
    ];
    for (reliability, expected) in reliabilities {
        let properties = TransportProperties { reliability, ..Default::default() };
        assert_eq!(properties.flow(0).reliability, expected);
    }
    let mut loose =
        TransportProperties { preserve_order: Preference::NoPreference, ..Default::default() };
    assert_eq!(loose.flow(0).order, DeliveryOrder::OutOfOrder);
    loose.partial_order = true;
    assert_eq!(loose.flow(0).order, DeliveryOrder::PartialOrder);
    loose.preserve_order = Preference::Prefer;
    assert_eq!(loose.flow(0).order, DeliveryOrder::InOrder);
    let names = [
        (CapacityProfile::Default, "cs0"),
        (CapacityProfile::Scavenger, "le"),
        (CapacityProfile::LowLatencyInteractive, "af41"),
        (CapacityProfile::LowLatencyNonInteractive, "af21"),
        (CapacityProfile::ConstantRateStreaming, "af31"),
        (CapacityProfile::CapacitySeeking, "af11"),
    ];
    for (profile, name) in names {
        assert_eq!(profile.dscp(), name.parse().expect("a name"), "{name}");
    }
}
