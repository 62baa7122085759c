//! A relay of datagrams that loses and reorders.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration as Wall;

/// What befalls datagrams from the client to the server.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Of so many application's messages one is lost; 0: none.
    pub(super) lose_one_in: AtomicU32,
    /// Of so many application's messages one is sent behind the next; 0: none.
    pub(super) swap_one_in: AtomicU32,
    /// Messages of the application's that came and that were lost.
    pub(super) passed: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Of so many datagrams of any kind, towards the server, one is lost; 0: none.
    pub(super) lose_any_in: AtomicU32,
    /// 1: everything is lost, both ways.
    pub(super) is_cut: AtomicU32,
}

pub(super) struct Relay {
    pub(super) at: SocketAddr,
    pub(super) faults: Arc<Faults>,
    _threads: [JoinHandle<()>; 2],
}

/// A relay to `server`, for one client. Its threads end with the test's process.
pub(super) fn relay(server: SocketAddr) -> Relay {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    back.connect(server).unwrap();
    let at = front.local_addr().unwrap();
    let faults = Arc::new(Faults::default());
    let client = Arc::new(std::sync::Mutex::new(None));
    let forth = {
        let (front, back, faults, client) =
            (front.clone(), back.clone(), faults.clone(), client.clone());
        thread::spawn(move || carry_forth(&front, &back, &faults, &client))
    };
    let cut = faults.clone();
    let here = thread::spawn(move || {
        let mut room = vec![0; 65_536];
        loop {
            match back.recv(&mut room) {
                Ok(got) if cut.is_cut.load(Relaxed) == 0 => {
                    if let Some(client) = *client.lock().unwrap() {
                        let _ = front.send_to(&room[..got], client);
                    }
                }
                Ok(_) => {}
                Err(_) => thread::sleep(Wall::from_millis(1)),
            }
        }
    });
    Relay { at, faults, _threads: [forth, here] }
}

fn carry_forth(
    front: &UdpSocket,
    back: &UdpSocket,
    faults: &Faults,
    client: &std::sync::Mutex<Option<SocketAddr>>,
) {
    let (mut room, mut count, mut all) = (vec![0; 65_536], 0, 0u32);
    let mut held: Option<Vec<u8>> = None;
    while let Ok((got, from)) = front.recv_from(&mut room) {
        *client.lock().unwrap() = Some(from);
        if faults.is_cut.load(Relaxed) == 1 {
            continue;
        }
        all = all.wrapping_add(1);
        let one_in = faults.lose_any_in.load(Relaxed);
        if one_in > 0 && all.is_multiple_of(one_in) {
            continue;
        }
        let datagram = &room[..got];
        let is_message = datagram.starts_with(&[0xa7, 1, 0]);
        count += u32::from(is_message);
        let falls = |one_in: &AtomicU32| match one_in.load(Relaxed) {
            0 => false,
            one_in => is_message && count.is_multiple_of(one_in),
        };
        if falls(&faults.lose_one_in) {
            faults.lost.fetch_add(1, Relaxed);
            continue;
        }
        if is_message {
            faults.passed.fetch_add(1, Relaxed);
        }
        if held.is_none() && falls(&faults.swap_one_in) {
            held = Some(datagram.to_vec());
            continue;
        }
        let _ = back.send(datagram);
        if let Some(held) = held.take() {
            let _ = back.send(&held);
        }
    }
}
