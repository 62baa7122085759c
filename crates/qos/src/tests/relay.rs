//! A relay of datagrams that drops and reorders them.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration as Wall;

use crate::wire::VERSION;

/// Faults of the direction from the client to the server, set by the tests.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// One of so many data messages is dropped; 0: none.
    pub(super) lose_one_in: AtomicU32,
    /// One of so many data messages is sent after the next one; 0: none.
    pub(super) swap_one_in: AtomicU32,
    /// Data messages forwarded and dropped.
    pub(super) forwarded: AtomicU64,
    pub(super) lost: AtomicU64,
    /// One of so many datagrams of any kind is dropped; 0: none.
    pub(super) lose_any_in: AtomicU32,
    /// 1: all datagrams of both directions are dropped.
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
    let to_server = {
        let (front, back, faults, client) =
            (front.clone(), back.clone(), faults.clone(), client.clone());
        thread::spawn(move || forward(&front, &back, &faults, &client))
    };
    let settings = faults.clone();
    let to_client = thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        loop {
            match back.recv(&mut buffer) {
                Ok(received) if settings.is_cut.load(Relaxed) == 0 => {
                    if let Some(client) = *client.lock().unwrap() {
                        let _ = front.send_to(&buffer[..received], client);
                    }
                }
                Ok(_) => {}
                Err(_) => thread::sleep(Wall::from_millis(1)),
            }
        }
    });
    Relay { at, faults, _threads: [to_server, to_client] }
}

fn forward(
    front: &UdpSocket,
    back: &UdpSocket,
    faults: &Faults,
    client: &std::sync::Mutex<Option<SocketAddr>>,
) {
    let (mut buffer, mut count, mut all) = (vec![0; 65_536], 0, 0u32);
    let mut delayed: Option<Vec<u8>> = None;
    while let Ok((received, from)) = front.recv_from(&mut buffer) {
        *client.lock().unwrap() = Some(from);
        if faults.is_cut.load(Relaxed) == 1 {
            continue;
        }
        all = all.wrapping_add(1);
        let one_in = faults.lose_any_in.load(Relaxed);
        if one_in > 0 && all.is_multiple_of(one_in) {
            continue;
        }
        let datagram = &buffer[..received];
        let is_message = datagram.starts_with(&[0xa7, VERSION, 0]);
        count += u32::from(is_message);
        let is_hit = |one_in: &AtomicU32| match one_in.load(Relaxed) {
            0 => false,
            one_in => is_message && count.is_multiple_of(one_in),
        };
        if is_hit(&faults.lose_one_in) {
            faults.lost.fetch_add(1, Relaxed);
            continue;
        }
        if is_message {
            faults.forwarded.fetch_add(1, Relaxed);
        }
        if delayed.is_none() && is_hit(&faults.swap_one_in) {
            delayed = Some(datagram.to_vec());
            continue;
        }
        let _ = back.send(datagram);
        if let Some(delayed) = delayed.take() {
            let _ = back.send(&delayed);
        }
    }
}
