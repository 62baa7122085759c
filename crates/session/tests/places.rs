//! A sender that comes while a receiver has another.

mod common;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration as Wall;

use common::{Seen, both, unit};
use ontempo_session::{Backlog, Receiver, ReceiverOptions, Sender, SenderEvent, Source};
use ontempo_transport::CloseReason;
use ontempo_transport::live::Listener;

/// The next sender is refused, after all its units have been acknowledged, and none was read.
fn refuse(listener: &Listener) {
    let connection = listener.accept();
    let flow = connection.accept_flow().expect("its flow");
    std::thread::sleep(Wall::from_millis(1_500));
    drop(flow);
    connection.close_with(CloseReason::Busy, "another sender is connected");
}

#[test]
fn a_sender_that_is_refused_waits_and_what_was_acknowledged_is_sent_again() {
    let (listener, options) = both();
    let refusing = spawn(move || {
        refuse(&listener);
        let connection = listener.accept();
        connection.accept_flow().expect("its flow");
        connection.close_with(CloseReason::Busy, "another sender is connected");
        listener
    });
    let backlog = Arc::new(Backlog::new(1 << 20, false));
    let reported = Arc::new(Mutex::new((0, 0)));
    let events = Arc::clone(&reported);
    let handler = move |event: SenderEvent<'_>| {
        let mut reported = events.lock().expect("no panic");
        match event {
            SenderEvent::Occupied(..) => reported.0 += 1,
            SenderEvent::Connected { again } => reported.1 += u64::from(!again),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let mut sender =
        Sender::connect(options, Arc::clone(&backlog), Source::Program, handler).expect("connects");
    (0..100).for_each(|id| backlog.push(unit(id)));
    backlog.end(None);
    let sending = spawn(move || {
        let done = sender.run();
        (done, sender.totals())
    });
    let listener = refusing.join().expect("no panic");
    let seen = Seen::default();
    let once = ReceiverOptions { once: true, ..ReceiverOptions::default() };
    Receiver::new(listener, once, seen.clone()).run().expect("all was received");
    let (done, totals) = sending.join().expect("no panic");
    done.expect("all was sent");
    let all: Vec<u8> = (0..100u32).flat_map(u32::to_be_bytes).collect();
    assert!(seen.0.lock().expect("no panic").0 == all, "the bytes differ");
    // It is reported once that it waits, and that it is connected when it begins, and when it goes on.
    assert_eq!(*reported.lock().expect("no panic"), (1, 2));
    // Units of the stream, and its end, which is queued anew for each connection.
    assert_eq!((totals.flow.units, totals.reconnected), (102, 0));
}
