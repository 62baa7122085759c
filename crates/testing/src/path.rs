//! A path over the loopback that can be cut.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// Hands datagrams on between a client and `to`, until the flag is set: the path's address, and the flag.
///
/// # Panics
/// Where the loopback has no sockets.
pub fn path_that_can_be_cut(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let [front, back] =
        [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket of this machine"));
    let at = front.local_addr().expect("an address");
    let (is_cut, client) = (Arc::<AtomicBool>::default(), Arc::new(Mutex::new(None)));
    for forward in [true, false] {
        let [from, out] = [&front, &back].map(|one| one.try_clone().expect("a socket"));
        let (from, out) = if forward { (from, out) } else { (out, from) };
        let (is_cut, client) = (Arc::clone(&is_cut), Arc::clone(&client));
        spawn(move || {
            let mut room = [0; 65_536];
            while let Ok((length, source)) = from.recv_from(&mut room) {
                if forward {
                    *client.lock().expect("no panic") = Some(source);
                }
                let target = if forward { Some(to) } else { *client.lock().expect("no panic") };
                if let Some(target) = target.filter(|_| !is_cut.load(Ordering::Relaxed)) {
                    let _ = out.send_to(&room[..length], target);
                }
            }
        });
    }
    (at, is_cut)
}
