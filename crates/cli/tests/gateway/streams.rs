//! Streams through a pair of gateways, and whom these admit.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::common::{self, Killed, Place};
use crate::{Gateway, collect, echo, echo_at, few_handshakes, is_served_from, many_handshakes};

/// A server that reads each stream to its end and then sends it back; its address.
fn returning() -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    spawn(move || {
        for mut one in server.incoming().flatten() {
            spawn(move || {
                let mut all = Vec::new();
                if one.read_to_end(&mut all).is_ok() {
                    let _ = one.write_all(&all);
                }
            });
        }
    });
    address
}

/// Sends so many bytes through a gateway, ends the stream, and checks that all come back.
#[track_caller]
fn exchange(at: &str, bytes: u32) {
    let mut client = TcpStream::connect(at).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let sent: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
    client.write_all(&sent).expect("written");
    client.shutdown(Shutdown::Write).expect("ended");
    let mut back = Vec::new();
    client.read_to_end(&mut back).expect("it comes back");
    assert_eq!(back.len(), sent.len());
    assert!(back == sent, "it has changed");
}

#[test]
fn over_quic_the_printed_line_carries_whole_streams_both_ways() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-quic", "");
    let server = returning();
    let near_server = Gateway::start(&place, 1_024, &["--server", &server]);
    let (head, token) = near_server.url.split_once('#').expect("a URL with a token");
    assert!(head.starts_with(&format!("ontempo://{}/", near_server.local)), "{head}");
    assert_eq!(token.len(), 32, "128 bits");
    let near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    // Half-closed meanwhile, and several at once.
    std::thread::scope(|scope| {
        for bytes in [0, 1, 70_000, 5_000_000] {
            let at = near_client.local.as_str();
            scope.spawn(move || exchange(at, bytes));
        }
    });
    for gateway in [near_client, near_server] {
        let [_, err] = gateway.end();
        assert_eq!(err, "");
    }
    // The text for people has the line to paste.
    let mut command = place.command(&["gateway", "--listen", "127.0.0.1:0", "--server", &server]);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert!(line().starts_with("listening at 127.0.0.1:"));
    let line = line();
    let pasted = line.strip_prefix("ontempo gateway --listen ... --to ").expect("a command");
    let near_client = Gateway::start(&place, 1_024, &["--to", pasted]);
    exchange(&near_client.local, 100_000);
}

#[test]
fn of_a_server_that_is_not_there_the_address_is_named() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-noserver", "");
    // Taken and given back: nobody listens there.
    let server = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port");
    let server = server.to_string();
    let near_server = Gateway::start(&place, 1_024, &["--server", &server]);
    let near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    let mut client = TcpStream::connect(&near_client.local).expect("the gateway is there");
    let _ = client.read(&mut [0]);
    let [_, err] = near_server.end();
    assert!(err.contains(&format!("--server {server}: ")), "{err}");
}

#[test]
fn tokens_and_fingerprints_are_given_as_between_send_and_receive() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-tokens", "");
    let server = returning();
    let identity = ["--server", &server, "--identity", "id.pem"];
    let with_file = [&identity[..], &["--token-file", "token"]].concat();
    let near_server = Gateway::start(&place, 1_024, &with_file);
    assert!(near_server.url.contains('#'), "it was made: {}", near_server.url);
    let fingerprint = near_server.url.rsplit(['/', '#']).nth(1).expect("one").to_owned();
    drop(near_server);
    let near_server = Gateway::start(&place, 1_024, &with_file);
    assert!(near_server.url.ends_with(&fingerprint), "given tokens are not shown");
    let known = ["--fingerprint", &fingerprint, "--token-file", "token"];
    let known = [&["--to", &near_server.local][..], &known].concat();
    let near_client = Gateway::start(&place, 1_024, &known);
    exchange(&near_client.local, 100_000);
    let to = ["gateway", "--listen", "127.0.0.1:0", "--to"];
    let run = |words: &[&str]| place.run(words);
    run(&[&to[..], &[&near_server.local]].concat()).fails(2, &["cannot be verified", "--insecure"]);
    run(&[&to[..], &[&near_server.url, "--over", "tcp"]].concat()).fails(2, &["over quic"]);
    let tcp = ["127.0.0.1:1", "--over", "tcp", "--token", "x"];
    run(&[&to[..], &tcp].concat()).fails(2, &["--over tcp", "over quic"]);
    let at = ["gateway", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:1"];
    run(&[&at[..], &["--over", "tcp", "--token", "x"]].concat()).fails(2, &["--over quic"]);
    run(&[&at[..], &["--anyone", "--token", "x"]].concat()).fails(2, &["--anyone", "--token"]);
    run(&[&at[..], &["--token", ""]].concat()).fails(2, &["--token", "--anyone"]);
}

#[test]
fn a_wrong_token_is_refused_and_both_gateways_say_so() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-wrong", "");
    let near_server = Gateway::start(&place, 1_024, &["--server", &returning()]);
    let near_client = Gateway::start(&place, 1_024, &["--to", &format!("{}0", near_server.url)]);
    let mut client = TcpStream::connect(&near_client.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let _ = client.write_all(b"anybody?");
    let refused = client.read(&mut [0; 8]);
    assert!(!matches!(refused, Ok(1..)), "{refused:?}");
    let [out, err] = near_client.end();
    assert!(err.contains("the peer refused our token"), "{err}");
    let [at_server, err] = near_server.end();
    assert!(err.contains("127.0.0.1:") && err.contains("wrong token"), "{err}");
    assert!(!(out + &at_server).contains("\"remote\""), "nobody got in");
}

#[test]
fn without_anyone_no_gateway_gets_in_without_the_token() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-nobody", "");
    let server = returning();
    for (more, is_open) in [(&[][..], false), (&["--anyone"], true)] {
        let at = [&["--server", &server][..], more].concat();
        let near_server = Gateway::start(&place, 1_024, &at);
        let url = near_server.url.split('#').next().expect("a URL");
        let near_client = Gateway::start(&place, 1_024, &["--to", url]);
        if is_open {
            exchange(&near_client.local, 1_000);
        } else {
            let mut client = TcpStream::connect(&near_client.local).expect("connected");
            client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
            assert!(!matches!(client.read(&mut [0; 8]), Ok(1..)));
        }
        let [out, err] = near_server.end();
        assert_eq!(out.contains("\"remote\""), is_open, "{out}");
        assert_eq!(err.contains("wrong token"), !is_open, "{err}");
    }
    let words = ["gateway", "--listen", "127.0.0.1:0", "--server", &server, "--anyone"];
    let mut command = place.command(&words);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let lines: Vec<String> = lines.take(2).map(|line| line.expect("text")).collect();
    assert!(lines[1].contains("anyone who reaches this port may connect (--anyone)"), "{lines:?}");
}

#[test]
fn a_specification_that_permits_loss_loses_no_byte_of_a_stream() {
    let scenario = r#"duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "50 Mbit/s", delay = "1 ms", loss = { kind = "bernoulli", rate = 0.03 } }
reverse = { rate = "50 Mbit/s", delay = "1 ms", loss = { kind = "bernoulli", rate = 0.03 } }
access = { rate = "1 Gbit/s", delay = "0 s" }
[flows.one]
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;
    let _beside = few_handshakes();
    let place = Place::new("gateway-loss", scenario);
    fs::write(
        place.path("never.toml"),
        "max_rate = \"9000 messages/s\"\nsize = \"1000 bytes\"\nloss = \"60 %\"\npermutable = true\n",
    )
    .expect("a specification");
    fs::write(
        place.path("late.toml"),
        "max_rate = \"9000 messages/s\"\nsize = \"1000 bytes\"\nloss = \"60 %\"\n\
         max_delay = \"1 ms\"\npermutable = true\n",
    )
    .expect("a specification");
    for spec in ["never.toml", "late.toml"] {
        let near_server =
            Gateway::start(&place, 1_024, &["--server", &returning(), "--spec", spec]);
        let words = ["impair", "--listen", "127.0.0.1:0", "--scenario", "s.toml", "--to"];
        let words = [&words[..], &[&near_server.local]].concat();
        let relay = common::ListeningProgram::start(&place, &words);
        let url = near_server.url.replace(&near_server.local, &relay.local);
        let near_client = Gateway::start(&place, 1_024, &["--to", &url, "--spec", spec]);
        exchange(&near_client.local, 1_000_000);
        let [out, _] = near_client.end();
        assert!(out.contains("\"loss\":\"60 %\""), "it was agreed: {out}");
    }
}

#[test]
fn over_quic_a_stream_that_is_broken_off_does_not_seem_to_have_ended() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-broken", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address").to_string();
    let near_server = Gateway::start(&place, 1_024, &["--server", &address]);
    let near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    let mut client = TcpStream::connect(&near_client.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let (mut accepted, _) = server.accept().expect("a client");
    accepted.write_all(b"the first part").expect("written");
    client.read_exact(&mut [0; 14]).expect("it comes");
    near_server.end();
    let end = client.read(&mut [0; 1]);
    assert!(end.is_err(), "it seems to have ended: {end:?}");
}

#[test]
fn over_quic_as_many_clients_that_read_nothing_as_there_are_places_keep_within_the_memory() {
    let _alone = many_handshakes();
    let place = Place::new("gateway-full", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    // The system's buffers are filled before the gateways' own.
    let small = 16 << 10;
    rustix::net::sockopt::set_socket_send_buffer_size(&server, small).expect("set");
    rustix::net::sockopt::set_socket_recv_buffer_size(&server, small).expect("set");
    // The usual limit suffices for all places.
    let mut near_server = Gateway::start(&place, 1_024, &["--server", &echo_at(server)]);
    let mut near_client = Gateway::start(&place, 1_024, &["--to", &near_server.url]);
    for gateway in [&mut near_server, &mut near_client] {
        let mut out = gateway.out.take().expect("its output");
        spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let mut errors = gateway.child.0.stderr.take().expect("its errors");
        spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    }
    let room = vec![7; 100_000];
    let connect = || -> std::io::Result<TcpStream> {
        let mut client = TcpStream::connect(&near_client.local)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&client, small)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&client, small)?;
        client.set_read_timeout(Some(Duration::from_secs(60)))?;
        client.write_all(b"anybody?")?;
        client.read_exact(&mut [0; 8])?;
        client.set_write_timeout(Some(Duration::from_millis(20)))?;
        // What comes back is not read: all buffers on the way are full.
        while client.write_all(&room).is_ok() {}
        Ok(client)
    };
    // Beside hundreds that are busy, the set-up of one may last too long: it comes again, once its place is free.
    let attempt = |number: u64| {
        sleep(Duration::from_secs(number.min(1)));
        connect().ok()
    };
    let clients: Vec<TcpStream> =
        (0..512).map(|_| (0..10).find_map(attempt).expect("served")).collect();
    for gateway in [&mut near_client, &mut near_server] {
        assert!(gateway.child.0.try_wait().expect("a status").is_none());
        let held = common::peak_memory(gateway.child.0.id());
        assert!(held < 300_000_000, "{held} bytes held for {} clients", clients.len());
    }
    // None of them was closed for what others hold.
    for mut client in &clients {
        client.read_exact(&mut [0; 1_000]).expect("it is still open");
    }
}

#[test]
fn over_quic_idle_clients_of_one_host_that_take_all_places_do_not_keep_another_host_out() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-quic-shares", "");
    let near_server = Gateway::start(&place, 1_024, &["--server", &echo()]);
    // Ten places.
    let near_client = Gateway::start(&place, 34, &["--to", &near_server.url]);
    let take = |_| {
        let mut client = TcpStream::connect(&near_client.local).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        client.write_all(b"anybody?").expect("written");
        client.read_exact(&mut [0; 8]).expect("served");
        client
    };
    let clients: Vec<TcpStream> = (0..10).map(take).collect();
    assert!(!is_served_from([127, 0, 0, 1], &near_client.local), "a place beyond the limit");
    assert!(is_served_from([127, 0, 0, 2], &near_client.local), "another host is kept out");
    drop(clients);
}

#[test]
fn over_quic_more_clients_at_once_than_a_host_has_places_for_are_all_served() {
    let _alone = many_handshakes();
    let place = Place::new("gateway-burst", "");
    let near_server = Gateway::start(&place, 4_096, &["--server", &returning()]);
    let near_client = Gateway::start(&place, 4_096, &["--to", &near_server.url]);
    let local = near_client.local.clone();
    // Nobody else reads what they say about so many connections.
    let said = [near_client, near_server].map(|mut gateway| {
        let out = collect(gateway.out.take().expect("its output"));
        let errors = collect(gateway.child.0.stderr.take().expect("its errors"));
        (gateway, out, errors)
    });
    // More than the half-open connections that one host has places for.
    for clients in [50, 100] {
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| exchange(&local, 10_000));
            }
        });
    }
    for (gateway, out, errors) in said {
        common::interrupt(&gateway.child.0);
        assert_eq!(errors.join().expect("read"), "");
        let out = out.join().expect("read");
        let begun = out.lines().filter(|line| line.contains("\"remote\"")).count();
        assert_eq!(begun, 150, "{out}");
    }
}

/// A way to a server on which everything is reset now and then, until `times` resets.
fn resetting(server: String, times: u32) -> (String, Arc<Mutex<u32>>) {
    use rustix::net::sockopt::set_socket_linger;
    let way = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = way.local_addr().expect("an address").to_string();
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    spawn(move || {
        for (number, near) in (0_u32..).zip(way.incoming().flatten()) {
            *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            let Ok(far) = TcpStream::connect(&server) else { return };
            let clone = |one: &TcpStream| one.try_clone().expect("a descriptor");
            let both = [clone(&near), clone(&far)];
            for (mut from, mut to) in [(clone(&near), clone(&far)), (far, near)] {
                spawn(move || std::io::copy(&mut from, &mut to));
            }
            if number < times {
                spawn(move || {
                    sleep(Duration::from_millis(150));
                    for one in &both {
                        let _ = set_socket_linger(one, Some(Duration::ZERO));
                        // The threads that copy end, and RST is sent.
                        let _ = one.shutdown(Shutdown::Read);
                    }
                });
            }
        }
    });
    (address, made)
}

#[test]
fn over_tcp_programs_notice_nothing_of_a_connection_between_gateways_that_is_reset() {
    let _beside = few_handshakes();
    let place = Place::new("gateway-resets", "");
    fs::write(place.path("spec.toml"), "rec_time = \"20 s\"\n").expect("written");
    let spec = ["--spec", "spec.toml", "--direction", "both", "--over", "tcp"];
    let server = echo();
    let server = [&spec[..], &["--server", &server]].concat();
    let near_server = Gateway::start(&place, 1_024, &server);
    let (way, made) = resetting(near_server.local.clone(), 5);
    let near_client = Gateway::start(&place, 1_024, &[&spec[..], &["--to", &way]].concat());
    let mut client = TcpStream::connect(&near_client.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let begun = Instant::now();
    for number in 0..150_u32 {
        let sent: Vec<u8> = (0..5_000).map(|place| (place * 7 + number) as u8).collect();
        client.write_all(&sent).expect("written");
        let mut back = vec![0; sent.len()];
        client.read_exact(&mut back).expect("it comes back");
        assert!(back == sent, "piece {number} differs");
        sleep(Duration::from_millis(4));
    }
    let connections = *made.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(connections >= 4, "{connections} connections in {:?}", begun.elapsed());
    client.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(client.read(&mut [0; 10]).expect("an end"), 0);
    for gateway in [near_client, near_server] {
        let [out, _] = gateway.end();
        assert!(out.contains("connection-lost") && out.contains("connection-recovered"), "{out}");
    }
}
