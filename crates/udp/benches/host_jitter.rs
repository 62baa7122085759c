//! How late a host sends: what `hosts.jitter` of a scenario stands for.
//!
//! Prints how long a waiting thread takes to reply to a datagram on the loopback, and how late a
//! timer wakes a thread, both above the least value seen, for several pauses between the events:
//! a processor that has slept longer wakes later. Run it on a quiet machine:
//!
//! ```sh
//! cargo bench -p ontempo-udp --bench host_jitter
//! ```

use std::hint::spin_loop;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

/// How long each row is measured.
const SPAN: Duration = Duration::from_secs(5);

fn main() -> std::io::Result<()> {
    let head = ["mean", "p50", "p90", "p99", "exponential", "uniform"];
    println!("microseconds above the least; distance of the law with this mean (Kolmogorov)");
    println!("{:<36}{}", "", head.map(|name| format!("{name:>12}")).concat());
    for pause in [100, 1_000, 10_000].map(Duration::from_micros) {
        print_row(&format!("reply to a datagram, {pause:?} apart"), replies(pause)?);
    }
    for period in [1_000, 10_000].map(Duration::from_micros) {
        print_row(&format!("timer of {period:?}"), timers(period));
    }
    Ok(())
}

/// Times from a datagram sent to the reply received, in microseconds. The asking thread does not
/// sleep, so that the time is the replying thread's.
fn replies(pause: Duration) -> std::io::Result<Vec<f64>> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(server.local_addr()?)?;
    client.set_nonblocking(true)?;
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length @ 1.., from)) = server.recv_from(&mut buffer) {
            // Without the reply the measurement would stop, and say so.
            let _ = server.send_to(&buffer[..length], from);
        }
    });
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < SPAN {
        let paused = Instant::now();
        while paused.elapsed() < pause {
            spin_loop();
        }
        let sent = Instant::now();
        client.send(&[0; 40])?;
        while client.recv(&mut [0; 64]).is_err() {
            spin_loop();
        }
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    client.send(&[])?;
    Ok(times)
}

/// How late a thread wakes that sleeps until the next period, in microseconds.
fn timers(period: Duration) -> Vec<f64> {
    let mut late = Vec::new();
    let begun = Instant::now();
    for number in 1.. {
        let due = period * number;
        if due > SPAN {
            break;
        }
        if let Some(wait) = due.checked_sub(begun.elapsed()) {
            thread::sleep(wait);
            late.push((begun.elapsed() - due).as_secs_f64() * 1e6);
        }
    }
    late
}

fn print_row(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let least = times.first().copied().unwrap_or_default();
    times.iter_mut().for_each(|time| *time -= least);
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let quantile = |share: f64| times[((count - 1.0) * share) as usize];
    let distance = |law: fn(f64) -> f64| {
        let apart = |(rank, time): (usize, &f64)| (law(time / mean) - rank as f64 / count).abs();
        times.iter().enumerate().map(apart).fold(0.0, f64::max)
    };
    let micros = [mean, quantile(0.5), quantile(0.9), quantile(0.99)];
    let laws = [distance(|x| 1.0 - (-x).exp()), distance(|x| (x / 2.0).min(1.0))];
    let micros = micros.map(|value| format!("{value:>12.1}")).concat();
    println!("{name:<36}{micros}{}", laws.map(|value| format!("{value:>12.2}")).concat());
}
