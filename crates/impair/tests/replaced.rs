//! A relay whose path is replaced while it has clients.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ontempo_impair::{Limits, Path, Relay};

fn path(delay: &str, loss: f64) -> Path {
    let text = format!(
        r#"
duration = "60 s"
[topology]
kind = "dumbbell"
bottleneck = {{ rate = "100 Mbit/s", delay = "{delay}", loss = {{ kind = "bernoulli", rate = {loss:?} }} }}
access = {{ rate = "1 Gbit/s", delay = "0 s" }}
[flows.one]
application = {{ kind = "cbr", rate = "1 Mbit/s" }}
transport = {{ kind = "udp" }}
"#
    );
    let scenario = ontempo_scenario::parse(&text, "s.toml").expect("a scenario");
    Path::of(&scenario, None, 1, 28, 1 << 20).expect("a path")
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    socket
}

#[test]
fn what_is_on_a_path_that_is_replaced_arrives_and_what_comes_later_takes_the_new_one() {
    let (listen, server, client) = (bound(), bound(), bound());
    let relayed = listen.local_addr().expect("an address");
    let to = server.local_addr().expect("an address");
    let mut relay = Relay::new(listen, to, path("2 s", 0.0), Limits::default()).expect("a relay");
    // How many paths there may have been; 4: the end.
    let wanted = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let paths = [None, Some(path("0 s", 1.0)), Some(path("0 s", 0.0))];
            for (number, path) in paths.into_iter().enumerate() {
                path.into_iter().for_each(|path| relay.replace_path(path));
                relay.run(|| wanted.load(Ordering::Relaxed) > number, |_| {}).expect("it runs");
            }
        });
        let send = |text: &str| client.send_to(text.as_bytes(), relayed).map(|_| ()).expect("sent");
        send("over the slow one");
        std::thread::sleep(Duration::from_millis(500));
        wanted.store(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        send("lost");
        let mut buffer = [0; 100];
        let size = server.recv(&mut buffer).expect("it arrives");
        assert_eq!(&buffer[..size], b"over the slow one");
        wanted.store(2, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        send("over the last one");
        let size = server.recv(&mut buffer).expect("it arrives");
        assert_eq!(&buffer[..size], b"over the last one");
        wanted.store(4, Ordering::Relaxed);
    });
}
