//! The player behind a receiver: what its path and the system bear.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ontempo_testing::{require_programs, require_root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{Place, SCENARIO, free_port, interrupt, ran};
use crate::{Receiver, send};

/// Sends datagrams of this size to a source until `is_done`, for 30 s at most.
fn feed(port: u16, size: usize, is_done: &AtomicBool) {
    let encoder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..3_000 {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let _ = encoder.send_to(&vec![7; size], ("127.0.0.1", port));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a receiver for a player, and a sender whose source gives datagrams of this size, in this thread's
/// network, while `look` does; what the receiver said.
fn carry(name: &str, player: &str, size: usize, look: impl FnOnce()) -> String {
    let place = Place::new(name, SCENARIO);
    let receiver = Receiver::start(&place, &["--to", player]);
    let port = free_port();
    let (from, more) =
        (format!("udp://127.0.0.1:{port}"), ["--fingerprint", &receiver.fingerprint]);
    let sender = send(&place, receiver.address, &from, &more);
    let is_done = AtomicBool::new(false);
    // The scope's thread is of the same network.
    std::thread::scope(|scope| {
        scope.spawn(|| feed(port, size, &is_done));
        look();
        is_done.store(true, Ordering::Relaxed);
    });
    interrupt(&sender);
    ran(sender).succeeds();
    interrupt(&receiver.child);
    let (code, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    said
}

/// A network of its own whose loopback takes packets of up to 1,400 bytes, removed with it.
struct Network(String);

impl Network {
    fn new() -> Self {
        let network = Self(format!("player-{}", std::process::id()));
        network.ip(&["netns", "add", &network.0]);
        network.ip(&["-n", &network.0, "link", "set", "lo", "mtu", "1400", "up"]);
        network
    }

    fn ip(&self, words: &[&str]) {
        let done = Command::new("ip").args(words).status();
        assert!(done.is_ok_and(|status| status.success()), "ip {}", words.join(" "));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn a_datagram_longer_than_the_packets_of_the_players_path_arrives() {
    if !require_root() || !require_programs(&["ip"]) {
        return;
    }
    let network = Network::new();
    let at = std::fs::File::open(format!("/run/netns/{}", network.0)).expect("a namespace");
    let work = move || {
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&at), Some(LinkNameSpaceType::Network))
            .expect("root may");
        let player = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        player.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let to = format!("udp://{}", player.local_addr().expect("its address"));
        carry("deliver-fragments", &to, 3_000, || {
            let mut datagram = [0; 4_000];
            assert_eq!(player.recv(&mut datagram).expect("a datagram in time"), 3_000);
        });
    };
    std::thread::spawn(work).join().expect("it arrives");
}

#[test]
fn datagrams_that_the_system_does_not_send_to_the_player_are_a_warning() {
    // Without the right to broadcast. What is missing is reported once a second.
    let look = || std::thread::sleep(Duration::from_secs(4));
    let said = carry("deliver-refused-player", "udp://255.255.255.255:9", 500, look);
    assert!(said.contains("not sent to the player: "), "{said}");
}
