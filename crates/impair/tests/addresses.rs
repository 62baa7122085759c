//! A relay at all addresses of this machine, on Linux: other systems do not tell to which one a datagram came.

#![cfg(target_os = "linux")]

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ontempo_impair::{Limits, Path, Relay};

const SCENARIO: &str = r#"
duration = "60 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "100 Mbit/s", delay = "1 ms" }
access = { rate = "1 Gbit/s", delay = "0 s" }
[flows.one]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
"#;

fn bound(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    socket
}

#[test]
fn a_connected_client_hears_the_answers_from_the_address_that_it_chose() {
    let scenario = ontempo_scenario::parse(SCENARIO, "s.toml").expect("a scenario");
    for at in ["0.0.0.0:0", "[::]:0"] {
        let path = Path::of(&scenario, None, 1, 28, 1 << 20).expect("a path");
        let (listen, server) = (bound(at), bound("127.0.0.1:0"));
        let port = listen.local_addr().expect("an address").port();
        let to = server.local_addr().expect("an address");
        let mut relay = Relay::new(listen, to, path, Limits::default()).expect("a relay");
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || relay.run(|| stop.load(Ordering::Relaxed), |_| {}));
            let client = bound("127.0.0.1:0");
            let mut buffer = [0; 16];
            // It may write to another address than before, which then answers.
            let heard = ["127.0.0.2", "127.0.0.3"].map(|address| {
                client.connect((address, port)).expect("connected");
                client.send(b"question").expect("sent");
                let (_, from) = server.recv_from(&mut buffer).expect("a question");
                server.send_to(b"answer", from).expect("sent");
                client.recv(&mut buffer).ok()
            });
            stop.store(true, Ordering::Relaxed);
            assert_eq!(heard, [Some(6), Some(6)], "{at}");
        });
    }
}
