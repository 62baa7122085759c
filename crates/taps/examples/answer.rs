//! Answers each message in capitals, on every connection of every group, until it is killed: the other end may be
//! in Rust or in Python (`ontempo.taps`). Prints address, fingerprint and token.
//!
//! `cargo run --release -p ontempo-taps --example answer -- 127.0.0.1 4433`

use std::error::Error;
use std::thread::spawn;

use ontempo_taps::{Connection, LocalEndpoint, MessageProperties, Preconnection};

fn answer(connection: &Connection) -> Result<(), Box<dyn Error>> {
    while let Some(message) = connection.receive()? {
        let capitals = message.data.to_ascii_uppercase();
        connection.send(capitals, &MessageProperties::default())?;
    }
    connection.close();
    Ok(())
}

/// A thread for each connection of a group.
fn serve(first: Connection) {
    let say = |ended: Result<(), Box<dyn Error>>| {
        if let Err(error) = ended {
            eprintln!("{error}");
        }
    };
    std::thread::scope(|all| {
        all.spawn(|| say(answer(&first)));
        while let Some(clone) = first.cloned() {
            all.spawn(move || say(answer(&clone)));
        }
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or_default();
    let port = words.next().map_or(Ok(0), |port| port.parse())?;
    let local = Some(LocalEndpoint { address, port });
    let listener = Preconnection { local, ..Default::default() }.listen()?;
    let token = String::from_utf8_lossy(listener.token());
    println!("{} {} {token}", listener.local(), listener.fingerprint());
    for connection in listener.incoming() {
        spawn(move || serve(connection));
    }
    Ok(())
}
