//! The DSCP of packets, which over QUIC only the receiver of a packet can see.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ontempo_foundation::Time;

use super::transports::token;
use super::*;
use crate::core::lock;
use crate::maintenance::{Maintained, hear_daemon};
use ontempo_transport::{Identity, Trust};
use ontempo_udp::{
    Clock, Datagram, Driver, DriverOptions, Dscp, Next, Protocol, Socket, SocketOptions, Transmit,
};

/// Forwards datagrams between one client and a server, and records the DSCP of both directions.
struct DscpRelay {
    server: SocketAddr,
    client: Option<SocketAddr>,
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    latest: Arc<Mutex<[Dscp; 2]>>,
}

impl Protocol for DscpRelay {
    type Command = ();

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        let is_client = datagram.source != self.server;
        self.latest.lock().unwrap()[usize::from(!is_client)] = datagram.dscp;
        if is_client {
            self.client = Some(datagram.source);
        }
        let to = if is_client { Some(self.server) } else { self.client };
        self.waiting.extend(to.map(|to| (to, datagram.data.to_vec())));
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, _: Time) {}

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn poll_transmit(&mut self, _: Time, buffer: &mut Vec<u8>) -> Next {
        let Some((to, data)) = self.waiting.pop_front() else { return Next::Idle };
        buffer.extend(data);
        Next::Transmit(Transmit::to(to))
    }
}

#[test]
fn quic_packets_carry_the_dscp_agreed_for_their_direction() {
    let identity = Identity::self_signed(&["localhost"]).unwrap();
    let trust = Trust::Fingerprint(identity.fingerprint());
    let known = (&identity, &token());
    let reserve = Reserve::ControlledLoad;
    let receiving = QosOptions { reserve, ..QosOptions::receiving(video()) };
    let listener = QosConnection::bind("127.0.0.1:0", known, receiving).unwrap();
    let latest = Arc::new(Mutex::new([Dscp::default(); 2]));
    let (client, waiting) = (None, VecDeque::new());
    let server = listener.local_address();
    let relay = DscpRelay { server, client, waiting, latest: latest.clone() };
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
    let to = socket.local_address().unwrap();
    let _driver = Driver::spawn(socket, relay, Clock::new(), DriverOptions::default()).unwrap();
    let connecting = thread::spawn(move || {
        let known = (&trust, &token());
        let sending = QosOptions { reserve, ..QosOptions::sending(video()) };
        QosConnection::connect(to, "localhost", known, &sending).unwrap()
    });
    let (far, _) = listener.accept().unwrap();
    let near = connecting.join().unwrap();
    for number in 0..20u8 {
        near.send_message(&[number; 100]).unwrap();
        assert!(far.receive_message(&mut [0; 1_280]).unwrap().is_some());
        thread::sleep(Wall::from_millis(10));
    }
    assert_eq!(near.dscp().get(), 34);
    // The receiver's direction has no specification.
    assert_eq!(latest.lock().unwrap().map(Dscp::get), [34, 0]);
    ask(&**near.inner(), Some(26));
    for number in 0..20u8 {
        near.send_message(&[number; 100]).unwrap();
        assert!(far.receive_message(&mut [0; 1_280]).unwrap().is_some());
    }
    assert_eq!((near.dscp().get(), latest.lock().unwrap()[0].get()), (26, 26));
}

/// The network asks for a DSCP with the reservation.
fn ask(connection: &dyn Maintained, dscp: Option<u8>) {
    for standing in &mut lock(&connection.core().reserved).standing {
        standing.dscp = dscp.and_then(Dscp::new);
    }
    hear_daemon(connection);
}

/// The DSCP that the system gives to what a socket sends.
fn marked(socket: socket2::SockRef<'_>, is_ipv6: bool) -> u32 {
    let class = if is_ipv6 { socket.tclass_v6() } else { socket.tos_v4() };
    class.unwrap() >> 2
}

#[test]
fn packets_get_what_the_network_asks_for_as_long_as_it_does_unless_the_options_have_a_dscp() {
    for is_ipv6 in [false, true] {
        let Some(at) = loopback(is_ipv6) else { continue };
        for own in [None, Some(Dscp::VIDEO)] {
            let reserve = Reserve::ControlledLoad;
            let sending = QosOptions { reserve, dscp: own, ..QosOptions::sending(video()) };
            let receiving = QosOptions { reserve, ..QosOptions::receiving(video()) };
            let (near, _far) = sockets(at, sending.clone(), receiving.clone());
            let (stream, _other) = streams(at, sending, receiving);
            for (asked, followed) in [(Some(26), 26), (Some(10), 10), (None, 34)] {
                let expected = if own.is_some() { 34 } else { followed };
                ask(&**near.inner(), asked);
                assert_eq!(u32::from(near.dscp().get()), expected);
                assert_eq!(marked((&near).into(), is_ipv6), expected);
                ask(&**stream.inner(), asked);
                assert_eq!(u32::from(stream.dscp().get()), expected);
                assert_eq!(marked((&stream).into(), is_ipv6), expected);
                let report = near.reports().remove(0);
                assert_eq!(u32::from(report.dscp), expected);
            }
        }
    }
}

#[test]
fn a_new_socket_is_not_marked_as_before_while_the_network_asks_for_something_else() {
    let sending = QosOptions { reserve: Reserve::ControlledLoad, ..QosOptions::sending(video()) };
    let receiving = QosOptions::receiving(video());
    let (stream, _other) = streams(([127, 0, 0, 1], 0).into(), sending, receiving);
    let core = stream.inner().core();
    for standing in &mut lock(&core.reserved).standing {
        standing.dscp = Dscp::new(26);
    }
    let given = thread::scope(|scope| {
        let (marking, begun) = std::sync::mpsc::channel();
        let again = scope.spawn(move || {
            begun.recv().unwrap();
            let mut given = None;
            core.mark_again(|dscp| {
                given = Some(dscp.get());
                Ok(())
            })
            .unwrap();
            given
        });
        core.mark_anew(|_| {
            marking.send(()).unwrap();
            // Time in which the other would take the DSCP of before.
            thread::sleep(Wall::from_millis(50));
            Ok(())
        });
        again.join().unwrap()
    });
    assert_eq!(given, Some(26));
}
