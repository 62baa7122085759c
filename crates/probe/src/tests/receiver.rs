//! What a receiver holds and answers, whoever asks.

use super::*;

#[test]
fn a_forged_address_gets_one_short_answer_and_no_session() {
    let (mut receiver, _events) = receiver(None);
    let hello = written(1, &Message::Hello { stamp: 3 });
    let challenge = answer(&mut receiver, address(9), &hello).expect("a challenge");
    assert!(challenge.len() <= hello.len());
    let Ok((1, Message::Challenge { stamp: 3, cookie })) = wire::read(&challenge) else {
        panic!("{challenge:?}")
    };
    // The cookie is good for that address and session alone.
    let start = Message::Start { stamp: 4, cookie, proof: [0; 16] };
    assert_eq!(answer(&mut receiver, address(8), &written(1, &start)), None);
    assert_eq!(answer(&mut receiver, address(9), &written(2, &start)), None);
    assert_eq!(receiver.sessions(), 0);
    let accept = answer(&mut receiver, address(9), &written(1, &start)).expect("accepted");
    assert_eq!(wire::read(&accept), Ok((1, Message::Accept { stamp: 4 })));
    assert_eq!(receiver.sessions(), 1);
    // Strangers' data changes nothing.
    let data = Data { step: 1, number: 0, base_rtt_us: 0, stamp: 0, payload: &[] };
    for (source, session) in [(address(8), 1), (address(9), 2)] {
        assert_eq!(answer(&mut receiver, source, &written(session, &Message::Data(data))), None);
        let ask = Message::RequestReport { step: 1, round: 1 };
        assert_eq!(answer(&mut receiver, source, &written(session, &ask)), None);
        answer(&mut receiver, source, &written(session, &Message::End));
    }
    assert_eq!(receiver.sessions(), 1);
    answer(&mut receiver, address(9), &written(1, &Message::End));
    assert_eq!(receiver.sessions(), 0);
}

/// What the receiver says to a sender that begins this session.
fn begin(receiver: &mut Receiver, source: SocketAddr, session: u64) -> Vec<u8> {
    let hello = written(session, &Message::Hello { stamp: 0 });
    let challenge = answer(receiver, source, &hello).expect("a challenge");
    let Ok((_, Message::Challenge { cookie, .. })) = wire::read(&challenge) else { panic!() };
    let start = Message::Start { stamp: 0, cookie, proof: [0; 16] };
    answer(receiver, source, &written(session, &start)).expect("an answer")
}

fn is_accepted(answer: &[u8]) -> bool {
    matches!(wire::read(answer), Ok((_, Message::Accept { .. })))
}

#[test]
fn sessions_are_bounded_and_end_when_nothing_comes() {
    let (mut receiver, events) = receiver(None);
    for session in 0..16 {
        assert!(is_accepted(&begin(&mut receiver, address(9 + session as usize / 4), session)));
    }
    let busy = begin(&mut receiver, address(9), 16);
    assert_eq!(wire::read(&busy), Ok((16, Message::Refuse(Reason::Busy))));
    assert!(is_accepted(&begin(&mut receiver, address(9), 3)), "is known");
    let end = receiver.next_timeout();
    assert_eq!(end, Time::from_secs_f64(30.0));
    receiver.handle_timeout(end);
    assert_eq!(receiver.sessions(), 0);
    let ended = events.try_iter().filter(|event| matches!(event, Event::Ended { .. })).count();
    assert_eq!(ended, 16);
    assert_eq!(receiver.next_timeout(), Time::NEVER);
}

#[test]
fn hosts_that_hold_all_sessions_by_a_packet_now_and_then_keep_no_other_out() {
    let at = |now: f64, receiver: &mut Receiver, place: usize, message: &Message<'_>| {
        let now = Time::from_secs_f64(now);
        receiver.handle(now, datagram(address(place), &written(place as u64, message)));
        let mut bytes = Vec::new();
        match receiver.poll_transmit(now, &mut bytes) {
            Next::Transmit(_) => bytes,
            _ => Vec::new(),
        }
    };
    let begin_at = |now: f64, receiver: &mut Receiver, place: usize| {
        let challenge = at(now, receiver, place, &Message::Hello { stamp: 0 });
        let Ok((_, Message::Challenge { cookie, .. })) = wire::read(&challenge) else { panic!() };
        is_accepted(&at(now, receiver, place, &Message::Start { stamp: 0, cookie, proof: [0; 16] }))
    };
    let data = Message::Data(Data { step: 1, number: 0, base_rtt_us: 0, stamp: 0, payload: &[] });
    // Four hosts with four sessions each, of which the second of the first host sends least.
    let (mut own, events) = receiver(None);
    for session in 0..16 {
        assert!(is_accepted(&begin(&mut own, address(session as usize / 4), session)));
    }
    for session in (0..16).filter(|session| *session != 1) {
        let bytes = written(session, &data);
        own.handle(Time::from_secs_f64(3.0), datagram(address(session as usize / 4), &bytes));
    }
    assert!(begin_at(3.1, &mut own, 30), "another host is kept out");
    let ended = events.try_iter().filter_map(|event| match event {
        Event::Ended { peer, session, .. } => Some((peer, session)),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [(address(0), 1)]);
    assert_eq!(own.sessions(), 16);
    // Sixteen hosts with one each: one that measures keeps its place, a silent one does not.
    let (mut own, _events) = receiver(None);
    (0..16).for_each(|place| assert!(begin_at(0.0, &mut own, place)));
    (1..16).for_each(|place| drop(at(10.0, &mut own, place, &data)));
    assert!(!begin_at(11.9, &mut own, 30), "nobody is silent for long");
    assert!(begin_at(12.0, &mut own, 30), "the first has sent nothing for 12 s");
    assert!(!begin_at(12.0, &mut own, 31));
}

#[test]
fn one_host_cannot_take_all_sessions() {
    let (mut receiver, _events) = receiver(None);
    let mut greedy = 0;
    for session in 0..100 {
        // Other ports, and in IPv6 other addresses of its network, are the same host.
        let v6 = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(session));
        let v6 = SocketAddr::from((v6, 5_000 + session as u16));
        greedy += usize::from(is_accepted(&begin(&mut receiver, v6, session)));
    }
    assert_eq!(greedy, 4);
    assert!(is_accepted(&begin(&mut receiver, address(9), 7)), "another host still has a session");
}

#[test]
fn reports_are_at_most_three_times_what_came_whatever_round_trip_the_sender_claims() {
    for size in [34, 1_372] {
        let (mut receiver, _events) = receiver(None);
        begin(&mut receiver, address(9), 1);
        let payload = vec![0; size - wire::DATA_HEADER];
        let data = Data { step: 1, number: 0, base_rtt_us: 0, stamp: 0, payload: &payload };
        let data = written(1, &Message::Data(data));
        assert_eq!(answer(&mut receiver, address(9), &data), None);
        let (mut reports, mut bytes) = (0, 0);
        let mut now = receiver.next_timeout();
        while now < Time::from_secs_f64(10.0) {
            receiver.handle_timeout(now);
            let mut buffer = Vec::new();
            if receiver.poll_transmit(now, &mut buffer) != Next::Idle {
                assert_eq!(buffer.len(), wire::REPORT);
                (reports, bytes) = (reports + 1, bytes + buffer.len() + 28);
            }
            now = receiver.next_timeout();
        }
        let most = 3 * (size + 28);
        assert!((1..=most).contains(&bytes), "{reports} reports, {bytes} bytes of {most}");
        // The last report comes nevertheless, as often as it is asked for.
        for round in 1..50 {
            let ask = Message::RequestReport { step: 1, round };
            let report = answer(&mut receiver, address(9), &written(1, &ask)).expect("a report");
            let report = wire::read(&report).expect("a report").1;
            assert!(matches!(report, Message::Report(report) if report.totals.received == 1));
        }
    }
}

#[test]
fn no_honest_sender_lacks_reports() {
    let psp = Pace::Adaptive(SpacingParameters::psp());
    // The smallest packets and the longest spacing of the command.
    for packet in [90, 1_400] {
        for (pace, seconds) in [
            (Pace::Constant(Duration::ZERO), 1),
            (Pace::Constant(Duration::from_millis(20)), 20),
            (Pace::Constant(Duration::from_secs(10)), 40),
            (psp, 60),
        ] {
            let mut network = Network::new(TEN, Mischief::default(), 1);
            let step = Step { pace, duration: Duration::from_secs(seconds) };
            let (on_event, results) = channel();
            let options = ProbeOptions {
                steps: vec![step],
                packet: Bytes::new(packet),
                sender: SenderOptions::to(address(RECEIVER)),
            };
            let mut probe = Probe::new(options, 77, move |outcome| drop(on_event.send(outcome)));
            let (mut receiver, _events) = receiver(None);
            network.run(&mut probe, &mut receiver, Time::from_secs_f64(600.0));
            let measured = results.try_recv().expect("a result").expect("measured");
            assert!(!measured.is_partial && measured.totals.received > 0);
            let [came, reported] = network.bytes.map(|bytes| bytes as f64);
            println!("{packet} bytes, {pace:?}: reports are {:.3} of what came", reported / came);
            // One in each round trip, where there is a packet in each.
            let has_packets = pace != Pace::Constant(Duration::from_secs(10));
            let reports = network.packets[RECEIVER] as f64;
            let expected = if has_packets { 0.9 * seconds as f64 / 0.021 } else { 5.0 };
            assert!(reports >= expected, "{packet} bytes, {pace:?}: {reports} of {expected}");
        }
    }
}

#[test]
fn a_report_of_what_was_never_sent_is_ignored() {
    let mut sender = Sender::new(SenderOptions::to(address(RECEIVER)), 4);
    sender.begin(Pace::Adaptive(SpacingParameters::psp()), Some(100));
    sender.handle(
        Time::ZERO,
        datagram(address(RECEIVER), &written(4, &Message::Accept { stamp: 0 })),
    );
    let mut buffer = Vec::new();
    sender.poll_transmit(Time::ZERO, &mut buffer);
    let sent = sender.sent();
    for next in [sent + 1, u64::MAX] {
        let totals = Totals { next, ..Totals::default() };
        let report = Report { step: 1, totals, ..Report::default() };
        sender
            .handle(Time::ZERO, datagram(address(RECEIVER), &written(4, &Message::Report(report))));
        assert_eq!((sender.totals(), sender.spacing()), (Totals::default(), Duration::ZERO));
    }
    let totals = Totals { next: sent, ..Totals::default() };
    let report = Report { step: 1, totals, ..Report::default() };
    sender.handle(Time::ZERO, datagram(address(8), &written(4, &Message::Report(report))));
    assert_eq!(sender.totals(), Totals::default(), "of another host");
    sender.handle(Time::ZERO, datagram(address(RECEIVER), &written(4, &Message::Report(report))));
    assert_eq!(sender.spacing(), Duration::from_micros(50), "all lost");
}

#[test]
fn a_time_stamp_from_before_the_handshake_is_no_round_trip() {
    let mut sender = Sender::new(SenderOptions::to(address(RECEIVER)), 4);
    let mut now = Time::from_secs_f64(1e6);
    sender.poll_transmit(now, &mut Vec::new());
    let mut answer = |stamp: u64, message: fn(u64) -> Message<'static>| {
        now += Duration::from_millis(5);
        let bytes = written(4, &message(stamp));
        sender.handle(now, Datagram { received: now, ..datagram(address(RECEIVER), &bytes) });
        sender.base_rtt()
    };
    let challenge = |stamp| Message::Challenge { stamp, cookie: [0; 16] };
    assert_eq!(answer(0, challenge), None, "the sender would wait for days");
    assert_eq!(answer(1_000_000_000_000_000, challenge), Some(Duration::from_millis(10)));
    assert_eq!(answer(7, |stamp| Message::Accept { stamp }), Some(Duration::from_millis(10)));
}
