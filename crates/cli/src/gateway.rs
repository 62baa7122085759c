//! `ontempo gateway`: TCP connections carried over connections with a quality of service, as the
//! paper's DIRM does.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use ontempo_endpoint::qos::{Accepted, Direction, QosListener, QosStream};
use ontempo_mechanisms::qos::Specification;

use crate::address::resolve;
use crate::arguments::Gateway;
use crate::failure::Failure;
use crate::netvideo::{failed, options};
use crate::output::{complain, emit};

/// Connections carried at once.
const MOST_CARRIED: usize = 512;

pub(crate) fn gateway(arguments: &Gateway) -> Result<(), Failure> {
    let (listen, both) = (arguments.listen.as_str(), [Direction::Sending, Direction::Receiving]);
    let options = options("gateway", &arguments.quality, Specification::default(), &both)?;
    let at = resolve(listen, "--listen ")?;
    let carried = Arc::new(AtomicUsize::new(0));
    let environment =
        |error: io::Error| Failure::Environment(format!("--listen {listen}: {error}"));
    if let Some(to) = &arguments.to {
        let to = resolve(to, "--to ")?;
        let listener = TcpListener::bind(at).map_err(environment)?;
        emit(&format!("listening at {}", listener.local_addr().map_err(environment)?))?;
        loop {
            let (plain, remote) = listener.accept().map_err(environment)?;
            let options = options.clone();
            begin(&carried, remote, move || {
                let far = QosStream::connect(to, &options).map_err(io::Error::from)?;
                carry(plain, far)
            });
        }
    }
    let Some(server) = &arguments.server else {
        // The parser sees to it that one of them is there.
        return Err(Failure::Input("--to or --server is needed".to_owned()));
    };
    let server = resolve(server, "--server ")?;
    let listener = QosListener::bind(at, options).map_err(failed(&format!("--listen {listen}")))?;
    emit(&format!("listening at {}", listener.local_address().map_err(environment)?))?;
    loop {
        match listener.accept_or_refuse().map_err(environment)? {
            Accepted::Connection(far, remote) => {
                begin(&carried, remote, move || carry(TcpStream::connect(server)?, far));
            }
            Accepted::Refused(remote, why) => complain(&format!("{remote}: {why}")),
        }
    }
}

/// Carries in a thread of its own; what fails is told.
fn begin(
    carried: &Arc<AtomicUsize>,
    remote: SocketAddr,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) {
    if carried.fetch_add(1, Relaxed) >= MOST_CARRIED {
        carried.fetch_sub(1, Relaxed);
        complain(&format!("{remote}: {MOST_CARRIED} connections are carried already"));
        return;
    }
    let count = carried.clone();
    let named = thread::Builder::new().name("carry".to_owned());
    let begun = named.spawn(move || {
        if let Err(error) = work() {
            complain(&format!("{remote}: {error}"));
        }
        count.fetch_sub(1, Relaxed);
    });
    if let Err(error) = begun {
        carried.fetch_sub(1, Relaxed);
        complain(&format!("{remote}: {error}"));
    }
}

/// Both ways, until both have ended.
fn carry(plain: TcpStream, far: QosStream) -> io::Result<()> {
    plain.set_nodelay(true)?;
    let (plain_back, far_back) = (plain.try_clone()?, far.clone());
    let back = thread::spawn(move || backward(&far_back, &plain_back));
    let there = forward(&plain, &far);
    let back = back.join().unwrap_or_else(|_| Err(io::Error::other("carrying back has ended")));
    there.and(back)
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
