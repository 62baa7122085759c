//! Several sockets at one address, one for each of several threads.

use std::io;
use std::num::NonZeroU8;

use super::socket::{Socket, SocketOptions};

/// Which of several sockets at one address a datagram is for: a byte of it says so, modulo their
/// number. Where that byte is depends on its first one. What is too short is for the first socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Bits of the first byte.
    pub flags: u8,
    /// Place of the byte if any of them is set, and if none is.
    pub set: u8,
    /// See `set`.
    pub clear: u8,
}

impl Steering {
    /// The number of the socket, below `count`.
    pub fn place(self, datagram: &[u8], count: NonZeroU8) -> usize {
        let at = |place: u8| datagram.get(usize::from(place)).copied();
        let byte = match at(0) {
            Some(first) if first & self.flags != 0 => at(self.set),
            Some(_) => at(self.clear),
            None => None,
        };
        byte.map_or(0, |byte| usize::from(byte % count))
    }

    /// [`place`](Self::place) for the kernel, as a program of classic BPF over the payload. It returns 0 where a byte to load
    /// is missing.
    #[cfg(target_os = "linux")]
    pub(super) fn program(self, count: NonZeroU8) -> [libc::sock_filter; 7] {
        use libc::{
            BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JA, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MOD,
        };
        let step = |code: u32, k: u8, (jt, jf): (u8, u8)| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k: u32::from(k),
        };
        let load = |place: u8| step(BPF_LD | BPF_B | BPF_ABS, place, (0, 0));
        [
            load(0),
            step(BPF_JMP | BPF_JSET | BPF_K, self.flags, (0, 2)),
            load(self.set),
            step(BPF_JMP | BPF_JA, 1, (0, 0)),
            load(self.clear),
            step(BPF_ALU | BPF_MOD | BPF_K, count.get(), (0, 0)),
            step(libc::BPF_RET | BPF_A, 0, (0, 0)),
        ]
    }
}

impl Socket {
    /// This socket and others at its address, `count` together, among which the kernel spreads what arrives by `steering`.
    /// Where it cannot, it spreads by addresses and ports, or gives all to one: whoever reads has to ask
    /// [`Steering::place`]. `options` are those that this one was bound with.
    ///
    /// # Errors
    /// If the system has no more sockets at this address.
    pub fn group(
        self,
        count: NonZeroU8,
        options: SocketOptions,
        steering: Steering,
    ) -> io::Result<Vec<Self>> {
        let mut sockets = vec![self];
        if count.get() == 1 {
            return Ok(sockets);
        }
        // This one was bound alone, so that an address in use was an error.
        sockets[0].share()?;
        let address = sockets[0].local_address()?;
        for _ in 1..count.get() {
            sockets.push(Self::open(address, options, true)?);
        }
        // Kernels before 4.5 do not have it.
        let _ = sockets[0].steer(count, steering);
        Ok(sockets)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Clock, Transmit};

    const STEERING: Steering = Steering { flags: 0x80, set: 6, clear: 1 };

    fn count(count: u8) -> NonZeroU8 {
        NonZeroU8::new(count).expect("some")
    }

    /// A group of a system's sockets at a free port.
    fn group(ip: IpAddr, of: u8) -> Vec<Socket> {
        let options = SocketOptions::default();
        let first = Socket::bind(SocketAddr::new(ip, 0), options).expect("a socket");
        first.group(count(of), options, STEERING).expect("sockets")
    }

    #[test]
    fn a_byte_of_the_datagram_chooses_and_short_ones_are_for_the_first() {
        let place = |datagram: &[u8]| STEERING.place(datagram, count(3));
        assert_eq!(place(&[0x40, 5, 9]), 2);
        assert_eq!(place(&[0xc0, 5, 9, 9, 9, 9, 4]), 1);
        assert_eq!((place(&[]), place(&[0x40]), place(&[0xc0, 5, 5, 5, 5, 5])), (0, 0, 0));
        assert_eq!(STEERING.place(&[0x40, 255], count(1)), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_gives_each_datagram_to_the_socket_that_its_byte_says() {
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        for (ip, of) in [(v4, 2), (v4, 7), (v6, 3)] {
            let sockets = group(ip, of);
            let to = sockets[0].local_address().expect("an address");
            let from = Socket::bind(SocketAddr::new(ip, 0), SocketOptions::default());
            let (from, mut sent) = (from.expect("a socket"), vec![0; usize::from(of)]);
            for byte in 0..=255u8 {
                for first in [0x41, 0xc1] {
                    // A long and a short one; the byte at the other place says something else.
                    let other = byte.wrapping_mul(31).wrapping_add(1);
                    let datagram = match first {
                        0x41 => vec![first, byte, 0, 0, 0, 0, other, 0],
                        _ => vec![first, other, 0, 0, 0, 0, byte],
                    };
                    sent[STEERING.place(&datagram, count(of))] += 1;
                    from.send(&Transmit::to(to), &datagram).expect("sent");
                }
            }
            let end = Instant::now() + Duration::from_secs(5);
            for (place, socket) in sockets.iter().enumerate() {
                let (mut reader, mut came) = (socket.reader(), 0);
                while came < sent[place] && Instant::now() < end {
                    let read = reader.each(socket, Clock::new(), |_, datagram| {
                        assert_eq!(STEERING.place(datagram.data, count(of)), place);
                        came += 1;
                    });
                    if read.is_err() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                assert_eq!(came, sent[place], "socket {place} of {of}");
            }
        }
    }

    #[test]
    fn a_group_keeps_its_address_from_others() {
        let sockets = group(IpAddr::V4(Ipv4Addr::LOCALHOST), 2);
        let address = sockets[0].local_address().expect("an address");
        assert_eq!(sockets[1].local_address().expect("an address"), address);
        let refused = Socket::bind(address, SocketOptions::default()).expect_err("it is in use");
        assert_eq!(refused.error.kind(), io::ErrorKind::AddrInUse);
    }
}
