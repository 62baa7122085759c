//! Does memory or do descriptors grow under load that lasts? `make soak`: 30 minutes, as root.
//!
//! Five loads run side by side, each on processes of its own:
//!
//! - `connections`: one client process keeps 4,000 connections open, and replaces twenty a second;
//! - `churn`: connections come and go for one hour of virtual time, over the simulated network;
//! - `reservations`: 500 reservations over two routers, of which 50 a second change their rate;
//! - `agreed`: a flow at exactly its agreed rate beside an overload, 10 minutes of each IP version: the
//!   median delay of each minute. Processors that the other loads keep busy delay its sender: run it alone;
//! - `outages`: `ontempo send` carries a stream through 1,000 outages of its path.
//!
//! Resident memory and open descriptors of each process are read once a second. The slope is that
//! of a straight line through the last three quarters of the time, so that filling caches at the
//! start is no growth.
//!
//! Arguments: `--minutes N` (30), `--connections N` (4,000), and names of the loads to run (all).

#[path = "../../tests/common/mod.rs"]
mod common;
mod loads;
mod measure;
#[path = "../../tests/reserved/mod.rs"]
mod reserved;

use std::time::Duration;

use measure::Watch;

const LOADS: [&str; 5] = ["connections", "churn", "reservations", "outages", "agreed"];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve-connections"] => loads::serve_connections(),
        ["keep-connections", address, fingerprint, count] => {
            loads::keep_connections(address, fingerprint, count.parse().expect("a number"));
        }
        ["churn"] => loads::churn(),
        words => soak(words),
    }
}

fn soak(words: &[&str]) {
    let option = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1)?.parse::<f64>().ok()
    };
    let minutes = option("--minutes").unwrap_or(30.0);
    let count = option("--connections").map_or(loads::CONNECTIONS, |count| count as usize);
    let chosen: Vec<&str> = LOADS.into_iter().filter(|load| words.contains(load)).collect();
    let chosen = if chosen.is_empty() { LOADS.to_vec() } else { chosen };
    let span = Duration::from_secs_f64(minutes * 60.0);
    println!("soak: {} for {minutes} minutes", chosen.join(", "));
    let mut running: Vec<std::thread::JoinHandle<Vec<Watch>>> = Vec::new();
    for load in chosen {
        let work = move || match load {
            "connections" => loads::connections(span, count),
            "churn" => loads::virtual_churn(span),
            "reservations" => loads::reservations(span),
            "agreed" => loads::agreed(span),
            _ => loads::outages(span),
        };
        running.push(std::thread::spawn(work));
    }
    println!("{}", measure::HEAD);
    for load in running {
        for watch in load.join().expect("a load failed") {
            println!("{}", watch.row());
        }
    }
}
