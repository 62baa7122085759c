//! A sender that comes while a receiver has another.

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration as Wall;

use common::{Seen, both, unit};
use ontempo_foundation::Duration;
use ontempo_session::message::Label;
use ontempo_session::{
    Backlog, Error, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, Sender, SenderEvent,
    SenderOptions, Source, Target,
};
use ontempo_testing::path_that_can_be_cut;
use ontempo_transport::live::{Listener, connect};
use ontempo_transport::{CloseReason, FlowConfig, Reliability, Token};

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

/// Counts streams that have ended.
struct Ends(Seen, Arc<AtomicUsize>);

impl ReceiverHandler for Ends {
    fn open(&mut self) -> Result<Target, String> {
        self.0.open()
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        if let ReceiverEvent::StreamEnded(_) = event {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn who_has_come_and_is_gone_again_takes_no_place_of_a_sender_whose_path_is_interrupted() {
    let (listener, options) = both();
    let remote = listener.local();
    let (at, is_cut) = path_that_can_be_cut(remote);
    let (seen, ends) = (Seen::default(), Arc::<AtomicUsize>::default());
    let stop = Arc::<AtomicBool>::default();
    let receiving = {
        let (handler, stop) = (Ends(seen.clone(), Arc::clone(&ends)), Arc::clone(&stop));
        spawn(move || {
            let options = ReceiverOptions { stop, ..ReceiverOptions::default() };
            Receiver::new(listener, options, handler).run()
        })
    };
    let backlog = Arc::new(Backlog::new(1 << 20, true));
    let over_path = SenderOptions { remote: at, ..options.clone() };
    let handler = |_: SenderEvent<'_>| ControlFlow::Continue(());
    let mut sender = Sender::connect(over_path, Arc::clone(&backlog), Source::Program, handler)
        .expect("connects");
    let sending = spawn(move || sender.run());
    let has = |units: usize| {
        while seen.0.lock().expect("no panic").0.len() < 4 * units {
            sleep(Wall::from_millis(10));
        }
    };
    (0..10).for_each(|id| backlog.push(unit(id)));
    has(10);
    is_cut.store(true, Ordering::Relaxed);
    let SenderOptions { name, trust, token, transport, .. } = options;
    let other = connect(remote, &name, &trust, token, &transport).expect("connected");
    let label = Label::of(7, Duration::from_millis(100), Duration::ZERO).to_string();
    let flow = other.open_flow(FlowConfig { label, ..FlowConfig::default() }).expect("opened");
    sleep(Wall::from_millis(200));
    drop((flow, other));
    // For longer than a sender may be silent.
    sleep(Wall::from_millis(1_300));
    is_cut.store(false, Ordering::Relaxed);
    (10..20).for_each(|id| backlog.push(unit(id)));
    has(20);
    assert_eq!(ends.load(Ordering::Relaxed), 0, "its stream has ended");
    backlog.end(None);
    sending.join().expect("no panic").expect("all was sent");
    stop.store(true, Ordering::Relaxed);
    receiving.join().expect("no panic").expect("nothing failed");
    let all: Vec<u8> = (0..20u32).flat_map(u32::to_be_bytes).collect();
    assert!(seen.0.lock().expect("no panic").0 == all, "the bytes differ");
}

/// Its first units are under way when the answer comes.
#[test]
fn a_sender_of_a_given_latency_with_a_wrong_token_never_was_connected() {
    let (listener, options) = both();
    let token = Token::new(b"guessed").expect("short");
    let latency = Some(Duration::from_millis(200));
    let reliability = Reliability::Deadline;
    let options = SenderOptions { token, latency, reliability, ..options };
    let backlog = Arc::new(Backlog::new(1 << 20, true));
    (0..10).for_each(|id| backlog.push(unit(id)));
    let handler = |event: SenderEvent<'_>| panic!("{event:?}");
    let refused = Sender::connect(options, Arc::clone(&backlog), Source::Program, handler);
    let Err(Error::Transport(error)) = refused else { panic!("it was not refused") };
    assert_eq!(error.close_reason(), Some(CloseReason::WrongToken), "{error}");
    assert!(error.to_string().starts_with("no connection to"), "{error}");
    drop(listener);
}
