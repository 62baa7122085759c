use super::*;

fn clients(limits: Limits) -> Clients {
    Clients {
        server: "127.0.0.1:9".parse().expect("an address"),
        limits,
        places: Vec::new(),
        by_address: HashMap::new(),
        of_host: HashMap::new(),
        counts: ClientCounts::default(),
    }
}

#[test]
fn clients_are_few_of_a_host_and_in_all_and_idle_ones_make_room() {
    let limits = Limits { clients: 3, clients_of_host: 2, idle: Duration::from_secs(10) };
    let mut clients = clients(limits);
    let at = |clients: &mut Clients, second: u64, address: &str| {
        let now = Time::ZERO + Duration::from_secs(second);
        clients.at(now, address.parse().expect("an address")).expect("a socket")
    };
    let first = at(&mut clients, 0, "10.0.0.1:1").expect("admitted");
    assert!(at(&mut clients, 0, "10.0.0.1:2").is_some());
    assert_eq!(at(&mut clients, 0, "10.0.0.1:3"), None, "a third of one host");
    assert_eq!(at(&mut clients, 5, "10.0.0.1:1"), Some(first), "the same again");
    assert!(at(&mut clients, 5, "10.0.0.2:1").is_some());
    clients.forget_idle(Time::ZERO + Duration::from_secs(12));
    let next = at(&mut clients, 12, "10.0.0.3:1").expect("the idle one made room");
    assert!(clients.get(first).is_some() && clients.get(next).is_some());
    clients.forget_idle(Time::ZERO + Duration::from_secs(16));
    assert!(clients.get(first).is_none(), "it was idle, too");
    let again = at(&mut clients, 16, "10.0.0.1:1").expect("admitted anew");
    assert_ne!(again, first, "what is on its way for the one before is not for it");
    assert_eq!(clients.counts.refused_packets, 1);
}

#[test]
fn a_newcomer_gets_the_place_of_who_is_silent_for_longest_of_the_host_with_most() {
    let limits = Limits { clients: 4, clients_of_host: 3, idle: Duration::from_secs(60) };
    let mut clients = clients(limits);
    let at = |clients: &mut Clients, second: u64, address: &str| {
        let now = Time::ZERO + Duration::from_secs(second);
        clients.at(now, address.parse().expect("an address")).expect("a socket")
    };
    let answer = |clients: &mut Clients, id: u64| {
        let client = clients.places[place_of(id)].as_mut().expect("a client");
        client.is_answered = true;
    };
    let good = at(&mut clients, 0, "10.0.0.9:1").expect("admitted");
    answer(&mut clients, good);
    let flood = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]
        .map(|address| at(&mut clients, 1, address).expect("admitted"));
    at(&mut clients, 2, "10.0.0.1:1");
    let other = at(&mut clients, 3, "10.0.0.2:1").expect("another host finds a place");
    assert!(clients.get(flood[1]).is_none(), "the longest silent of the host with most");
    assert!(clients.get(flood[0]).is_some() && clients.get(flood[2]).is_some());
    assert!(clients.get(good).is_some(), "whom the server answered stays, silent or not");
    for id in [flood[0], flood[2], other] {
        answer(&mut clients, id);
    }
    let next = at(&mut clients, 4, "10.0.0.3:1").expect("a host with none finds a place");
    assert!(clients.get(flood[2]).is_none(), "the host with most yields to one with less");
    answer(&mut clients, next);
    assert_eq!(at(&mut clients, 5, "10.0.0.3:2"), None, "no host has more than one");
    let counts = clients.counts;
    assert_eq!((counts.replaced, counts.refused_packets), (2, 1));
}

#[test]
fn the_server_is_no_client_of_its_own() {
    let mut clients = clients(Limits::default());
    let server = clients.server;
    assert_eq!(clients.at(Time::ZERO, server).expect("a socket"), None);
    assert_eq!(clients.counts.refused_packets, 1);
}

#[test]
fn a_socket_towards_the_server_has_nothing_that_others_sent_before() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = socket.local_addr().expect("an address");
    stranger.send_to(b"forged", to).expect("sent");
    let socket = hears_only(socket, "127.0.0.1:9".parse().expect("an address")).expect("connected");
    let error = socket.recv(&mut [0; 10]).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn clients_have_another_address_after_a_change_and_what_was_on_its_way_has_the_old_one() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let patience = Some(std::time::Duration::from_secs(20));
    server.set_read_timeout(patience).expect("a limit");
    let mut clients = clients(Limits::default());
    clients.server = server.local_addr().expect("an address");
    let at = |millis| Time::ZERO + Duration::from_millis(millis);
    let address = "10.0.0.1:1".parse().expect("an address");
    let id = clients.at(Time::ZERO, address).expect("a socket").expect("admitted");
    clients.get(id).expect("a client").send(at(1), b"1").expect("sent");
    clients.readdress(at(10));
    let client = clients.get(id).expect("it stays the same client");
    assert!(!client.is_reached(at(9)) && client.is_reached(at(10)));
    client.send(at(9), b"2").expect("sent");
    client.send(at(10), b"3").expect("sent");
    let mut from = [0; 3].map(|_| server.recv_from(&mut [0; 10]).expect("a datagram").1);
    assert_eq!(from[0], from[1]);
    assert_ne!(from[1], from[2]);
    clients.readdress(at(20));
    from[0] = from[2];
    clients.get(id).expect("a client").send(at(19), b"4").expect("sent");
    assert_eq!(server.recv_from(&mut [0; 10]).expect("a datagram").1, from[0]);
}

#[test]
fn the_address_of_a_running_relay_changes_when_the_scenario_says() {
    const CHANGING: &str = r#"
duration = "60 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "100 Mbit/s", delay = "0 s", queue = { kind = "drop-tail" } }
access = { rate = "1 Gbit/s", delay = "0 s" }
[flows.one]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
address-changes = ["300 ms"]
"#;
    let scenario = ontempo_scenario::parse(CHANGING, "s.toml").expect("a scenario");
    let path = Path::of(&scenario, None, 1, 28, 1 << 20).expect("a path");
    let bound = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let patience = Some(std::time::Duration::from_secs(20));
        socket.set_read_timeout(patience).expect("a limit");
        let address = socket.local_addr().expect("an address");
        (socket, address)
    };
    let ((listen, relayed), (server, to), (client, _)) = (bound(), bound(), bound());
    let relay = Relay::new(listen, to, path, Limits::default()).expect("a relay");
    let stop = &std::sync::atomic::AtomicBool::new(false);
    let stopped = move || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let mut relay = relay;
        let running = scope.spawn(move || relay.run(stopped, |_| {}).expect("it runs"));
        // Each is answered to where it came from, until it comes from elsewhere.
        let mut seen = Vec::new();
        while seen.len() < 2 {
            client.send_to(b"question", relayed).expect("sent");
            let (_, from) = server.recv_from(&mut [0; 10]).expect("a question");
            if seen.last() != Some(&from) {
                seen.push(from);
            }
        }
        server.send_to(b"answer", seen[1]).expect("sent");
        assert_eq!(client.recv(&mut [0; 10]).expect("an answer"), 6);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let report = running.join().expect("it ended");
        assert_eq!((report.clients.admitted, report.reverse.delivered), (1, 1));
    });
}
