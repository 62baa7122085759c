//! What the UDP driver costs a packet, over loopback: `cargo bench -p ontempo-udp --bench udp`.
//!
//! Packets of 1,200 bytes from one driver to another, in batches (GSO, GRO) and one by one. Counted
//! is the processor time of each driver's thread, so that what else the machine does hardly shows;
//! the sender's includes what the kernel does to bring its packets to the receiver's socket.

use std::net::SocketAddr;

use ontempo_foundation::Time;
use ontempo_udp::{
    Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket, SocketOptions, Transmit,
};
use rustix::time::{ClockId, clock_gettime};

const PACKETS: u64 = 100_000;
const SIZE: u16 = 1_200;

/// Processor time of this thread, s.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Sends so many packets, or counts what comes.
struct Load {
    to: Option<SocketAddr>,
    batch: u64,
    left: u64,
    received: u64,
    began: Option<f64>,
    ended: f64,
}

impl Load {
    fn note(&mut self) {
        self.ended = processor();
        self.began.get_or_insert(self.ended);
    }

    fn seconds(&self) -> f64 {
        self.ended - self.began.unwrap_or(self.ended)
    }
}

impl Protocol for Load {
    type Command = ();

    fn handle(&mut self, _: Time, _: Datagram<'_>) {
        self.received += 1;
        if self.received % 64 == 1 {
            self.note();
        }
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, _: Time) {}

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn poll_transmit(&mut self, _: Time, buffer: &mut Vec<u8>) -> Next {
        self.note();
        let Some(to) = self.to.filter(|_| self.left > 0) else { return Next::Idle };
        let count = self.batch.min(self.left);
        self.left -= count;
        buffer.resize(usize::from(SIZE) * count as usize, 7);
        Next::Transmit(Transmit { segment: (count > 1).then_some(SIZE), ..Transmit::to(to) })
    }

    fn is_finished(&self) -> bool {
        self.to.is_some() && self.left == 0
    }
}

fn measure(
    name: &str,
    batch: u64,
    options: SocketOptions,
) -> Result<(), Box<dyn std::error::Error>> {
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let (near, far) = (Socket::bind(at, options)?, Socket::bind(at, options)?);
    let clock = Clock::new();
    let idle = || Load { to: None, batch: 1, left: 0, received: 0, began: None, ended: 0.0 };
    let load = Load { to: Some(far.local_address()?), batch, left: PACKETS, ..idle() };
    let sink = Driver::spawn(far, idle(), clock, DriverOptions::default())?;
    let source = Driver::spawn(near, load, clock, DriverOptions::default())?;
    let sent = source.wait()?.seconds();
    let sink = sink.end()?;
    let per_second = |packets: u64, seconds: f64| packets as f64 / seconds / 1e3;
    println!(
        "{name:24} sent {:7.0} k/s ({:.0} ns), received {:7.0} k/s; {:.1} % arrived",
        per_second(PACKETS, sent),
        sent / PACKETS as f64 * 1e9,
        per_second(sink.received, sink.seconds()),
        sink.received as f64 / PACKETS as f64 * 100.0,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let all = SocketOptions::default();
    println!("packets of {SIZE} bytes a second of processor time");
    measure("GSO 32, GRO", 32, all)?;
    measure("GSO 10, GRO", 10, all)?;
    measure("GSO 10, no GRO", 10, SocketOptions { gro: false, ..all })?;
    measure("batches cut by us", 10, SocketOptions { gso: false, ..all })?;
    measure("one by one", 1, all)?;
    measure("plain sockets", 1, SocketOptions { plain: true, ..all })?;
    Ok(())
}
