//! `ontempo gateway`: TCP connections carried over connections with a quality of service, as the
//! paper's DIRM does.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ontempo_mechanisms::qos::Specification;
use ontempo_qos::{Accepted, Direction, QosListener, QosOptions, QosStream};
use serde_json::json;

use crate::address::resolve;
use crate::arguments::{FlowDirection, Gateway};
use crate::failure::Failure;
use crate::output::complain;
use crate::quality::{failed, options};
use crate::signals::{stop_flag, unless_stopped};
use crate::telling::{Teller, word};

/// Connections carried at once.
const MAX_CARRIED: usize = 512;

/// The connections that are carried, by their number.
#[derive(Clone)]
struct Carrying {
    as_json: bool,
    all: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    /// The number of the last one.
    last: u64,
    /// `None` until the other gateway has agreed.
    now: BTreeMap<u64, Option<QosStream>>,
}

/// Which directions a gateway asks something of.
fn directions(which: FlowDirection, is_near_client: bool) -> Vec<Direction> {
    let (there, back) = if is_near_client {
        (Direction::Sending, Direction::Receiving)
    } else {
        (Direction::Receiving, Direction::Sending)
    };
    match which {
        FlowDirection::Send => vec![there],
        FlowDirection::Receive => vec![back],
        FlowDirection::Both => vec![there, back],
    }
}

pub(crate) fn gateway(arguments: &Gateway) -> Result<(), Failure> {
    let listen = arguments.listen.as_str();
    let asked = directions(arguments.direction, arguments.to.is_some());
    let options = options("gateway", &arguments.quality, Specification::default(), &asked)?;
    let at = resolve(listen, "--listen ")?;
    let named = format!("--listen {listen}");
    let environment = |error: io::Error| Failure::Environment(format!("{named}: {error}"));
    let carrying = Carrying { as_json: arguments.json, all: Arc::default() };
    let stopped = stop_flag()?;
    let (local, work): (SocketAddr, Box<dyn FnOnce(Carrying) -> io::Error + Send>) =
        match (&arguments.to, &arguments.server) {
            (Some(to), _) => {
                let to = resolve(to, "--to ")?;
                let listener = TcpListener::bind(at).map_err(environment)?;
                let local = listener.local_addr().map_err(environment)?;
                (local, Box::new(move |carrying| near_clients(&listener, to, &options, &carrying)))
            }
            (None, Some(server)) => {
                let server = resolve(server, "--server ")?;
                let listener = QosListener::bind(at, options).map_err(failed(&named))?;
                let local = listener.local_address().map_err(environment)?;
                (local, Box::new(move |carrying| near_server(&listener, server, &carrying)))
            }
            // The parser sees to it that one of them is there.
            (None, None) => return Err(Failure::Input("--to or --server is needed".to_owned())),
        };
    let text = format!("listening at {local}; Ctrl-C ends it");
    carrying.teller(None).say("listening", json!({ "local": local.to_string() }), &text)?;
    let carried_by = carrying.clone();
    let failed = unless_stopped(&stopped, move || work(carried_by));
    carrying.summaries()?;
    failed.map_or(Ok(()), |error| Err(environment(error)))
}

/// Carries plain connections to the other gateway.
fn near_clients(
    listener: &TcpListener,
    to: SocketAddr,
    options: &QosOptions,
    carrying: &Carrying,
) -> io::Error {
    loop {
        match listener.accept() {
            Ok((plain, remote)) => {
                let options = options.clone();
                carrying.begin(remote, move || {
                    Ok((plain, QosStream::connect(to, &options).map_err(io::Error::from)?))
                });
            }
            Err(error) => return error,
        }
    }
}

/// Carries what comes from the other gateway to the server.
fn near_server(listener: &QosListener, server: SocketAddr, carrying: &Carrying) -> io::Error {
    loop {
        match listener.accept_or_refuse() {
            Ok(Accepted::Connection(far, remote)) => {
                carrying.begin(remote, move || Ok((TcpStream::connect(server)?, far)));
            }
            Ok(Accepted::Refused(remote, why)) => complain(&format!("{remote}: {why}")),
            Err(error) => return error,
        }
    }
}

impl Carrying {
    fn teller(&self, connection: Option<u64>) -> Teller {
        Teller { as_json: self.as_json, to_stderr: false, connection }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // Whoever panicked with it has left it whole.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries in a thread of its own; what fails is told.
    fn begin(
        &self,
        remote: SocketAddr,
        connect: impl FnOnce() -> io::Result<(TcpStream, QosStream)> + Send + 'static,
    ) {
        let mut all = self.lock();
        if all.now.len() >= MAX_CARRIED {
            complain(&format!("{remote}: {MAX_CARRIED} connections are carried already"));
            return;
        }
        all.last += 1;
        let number = all.last;
        all.now.insert(number, None);
        drop(all);
        let carrying = self.clone();
        let named = thread::Builder::new().name("carry".to_owned());
        let begun = named.spawn(move || {
            if let Err(error) = carrying.carry(number, remote, connect) {
                complain(&format!("{remote}: {error}"));
            }
            carrying.end(number);
        });
        if let Err(error) = begun {
            self.end(number);
            complain(&format!("{remote}: {error}"));
        }
    }

    /// Both ways, until both have ended.
    fn carry(
        &self,
        number: u64,
        remote: SocketAddr,
        connect: impl FnOnce() -> io::Result<(TcpStream, QosStream)>,
    ) -> io::Result<()> {
        let (plain, far) = connect()?;
        plain.set_nodelay(true)?;
        let teller = self.teller(Some(number));
        // Where the output is gone, connections are carried all the same; here and below.
        let _ = teller.say(
            "connection",
            json!({ "remote": remote.to_string() }),
            &format!("from {remote}"),
        );
        let telling = teller.follow(far.events());
        for direction in [Direction::Sending, Direction::Receiving] {
            let _ = teller.agreed(direction, &far.agreed(direction));
        }
        self.lock().now.insert(number, Some(far.clone()));
        let (plain_back, far_back) = (plain.try_clone()?, far.clone());
        let back = thread::spawn(move || backward(&far_back, &plain_back));
        let there = forward(&plain, &far);
        let back = back.join().unwrap_or_else(|_| Err(io::Error::other("carrying back has ended")));
        let _ = summary(teller, &far);
        drop(far);
        self.end(number);
        // It ends with the connection.
        let _ = telling.join();
        there.and(back)
    }

    fn end(&self, number: u64) {
        // What is dropped with it looks after itself; not while others wait for the lock.
        let ended = self.lock().now.remove(&number);
        drop(ended);
    }

    /// Of the connections that are carried when it ends.
    fn summaries(&self) -> Result<(), Failure> {
        let all = std::mem::take(&mut self.lock().now);
        all.iter()
            .filter_map(|(number, far)| Some((number, far.as_ref()?)))
            .try_for_each(|(number, far)| summary(self.teller(Some(*number)), far))
    }
}

/// What was delivered in both directions.
fn summary(teller: Teller, far: &QosStream) -> Result<(), Failure> {
    [Direction::Sending, Direction::Receiving]
        .into_iter()
        .try_for_each(|of| teller.summary(&far.delivery(of), json!({ "direction": word(of) })))
}

/// What comes at once is a message.
fn forward(mut plain: &TcpStream, far: &QosStream) -> io::Result<()> {
    let mut room = vec![0; far.most_sent().min(64 * 1024)];
    let carried = loop {
        match plain.read(&mut room) {
            Ok(0) => break Ok(()),
            Ok(got) => {
                if let Err(error) = far.send_message(&room[..got]) {
                    break Err(error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    // The other side may have ended already.
    let _ = far.shutdown(Shutdown::Write);
    carried
}

fn backward(mut far: &QosStream, mut plain: &TcpStream) -> io::Result<()> {
    let carried = io::copy(&mut far, &mut plain).map(drop);
    let _ = plain.shutdown(Shutdown::Write);
    carried
}
