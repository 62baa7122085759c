//! Serves the page of Prometheus over plain HTTP, to many clients at once in one thread.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ontempo_foundation::host_prefix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::prometheus::Page;

/// The media type of OpenMetrics, and the part of it that a client's `Accept` names.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OPEN_METRICS_NAME: &[u8] = b"application/openmetrics-text";
/// The media type of the text format 0.0.4.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of a sentence.
const SENTENCE: &str = "text/plain; charset=utf-8";

/// What a client gets whose request names another host.
const NOT_OURS: &str =
    "the Host of the request is no address and no name of this exporter: --host-name adds one\n";

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 8_192;
/// Maximum connections. Beyond, a new one ends the oldest: a scrape takes milliseconds.
const MAX_CLIENTS: usize = 64;
/// Maximum connections of one host. Beyond, a new one ends its oldest.
const MAX_CLIENTS_PER_HOST: usize = 16;
/// For the whole request and its answer: as long as Prometheus waits by default.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often the stop flag is read, and how long nothing is accepted after an error.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What remains to be done for a client.
enum Stage {
    /// The head that has come.
    Reading(Vec<u8>),
    /// Head and body of the answer, and how many of their bytes have been sent.
    Writing([Arc<[u8]>; 2], usize),
}

struct Client {
    stream: TcpStream,
    host: IpAddr,
    until: Instant,
    stage: Stage,
}

/// Serves until `stopped`, which takes effect at once. `page` is called for each request. A request
/// names an address, `localhost` or one of `names`, or it is refused: a page of a web site that
/// resolves its own name to this host (DNS rebinding) cannot read the figures.
pub fn serve(
    listener: &TcpListener,
    names: &[String],
    stopped: &AtomicBool,
    mut page: impl FnMut() -> Result<Page, fmt::Error>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // Oldest first.
    let mut clients: Vec<Client> = Vec::new();
    let mut accept_at = Instant::now();
    while !stopped.load(Relaxed) {
        let accepts = accept_at <= Instant::now();
        let ready = wait(accepts.then_some(listener), &clients);
        let now = Instant::now();
        let mut place = 0;
        clients.retain_mut(|client| {
            let is_ready = ready.get(place).copied().unwrap_or(false);
            place += 1;
            now < client.until && (!is_ready || client.advance(names, &mut page).unwrap_or(false))
        });
        // Where descriptors have run out, the listening socket stays readable.
        if accepts && accept_all(listener, &mut clients, now).is_err() {
            accept_at = now + POLL_INTERVAL;
        }
    }
    Ok(())
}

/// Waits for one of them at most [`POLL_INTERVAL`]: which clients can go on.
fn wait(listener: Option<&TcpListener>, clients: &[Client]) -> Vec<bool> {
    let mut files: Vec<PollFd<'_>> = clients.iter().map(Client::waits_for).collect();
    files.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
    let interval = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    if poll(&mut files, Some(&interval)).is_err() {
        // A signal: the next round waits again.
        return Vec::new();
    }
    files[..clients.len()].iter().map(|file| !file.revents().is_empty()).collect()
}

fn accept_all(listener: &TcpListener, clients: &mut Vec<Client>, now: Instant) -> io::Result<()> {
    // The bound gives those that have connected their turn.
    for _ in 0..MAX_CLIENTS {
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        let host = host_prefix(address.ip());
        make_room(clients, host);
        let stage = Stage::Reading(Vec::new());
        clients.push(Client { stream, host, until: now + DEADLINE, stage });
    }
    Ok(())
}

/// Ends the oldest connection of this host if it has its share, or else the oldest of all if there
/// are as many as may be.
fn make_room(clients: &mut Vec<Client>, host: IpAddr) {
    let is_of_host = |client: &Client| client.host == host;
    if clients.iter().filter(|client| is_of_host(client)).count() >= MAX_CLIENTS_PER_HOST {
        if let Some(oldest) = clients.iter().position(is_of_host) {
            clients.remove(oldest);
        }
    } else if clients.len() >= MAX_CLIENTS {
        clients.remove(0);
    }
}

impl Client {
    fn waits_for(&self) -> PollFd<'_> {
        let flags = match self.stage {
            Stage::Reading(_) => PollFlags::IN,
            Stage::Writing(..) => PollFlags::OUT,
        };
        PollFd::new(&self.stream, flags)
    }

    /// Reads or writes what can be; false at the end.
    fn advance(
        &mut self,
        names: &[String],
        page: impl FnMut() -> Result<Page, fmt::Error>,
    ) -> io::Result<bool> {
        let advanced = self.read(names, page).and_then(|()| self.write());
        match advanced {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(true)
            }
            advanced => advanced,
        }
    }

    /// Returns when the head is complete.
    fn read(
        &mut self,
        names: &[String],
        page: impl FnMut() -> Result<Page, fmt::Error>,
    ) -> io::Result<()> {
        let Stage::Reading(head) = &mut self.stage else { return Ok(()) };
        let mut buffer = [0; 1024];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if head.len() > MAX_HEAD {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => head.extend_from_slice(&buffer[..count]),
            }
        }
        self.stage = Stage::Writing(answer(head, names, page), 0);
        Ok(())
    }

    /// False when all is written.
    fn write(&mut self) -> io::Result<bool> {
        let Stage::Writing([head, body], sent) = &mut self.stage else { return Ok(true) };
        loop {
            let rest = match sent.checked_sub(head.len()) {
                None => &head[*sent..],
                Some(sent) => &body[sent..],
            };
            if rest.is_empty() {
                return Ok(false);
            }
            match self.stream.write(rest)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => *sent += count,
            }
        }
    }
}

/// Head and body of the answer to this request.
fn answer(
    request: &[u8],
    names: &[String],
    mut page: impl FnMut() -> Result<Page, fmt::Error>,
) -> [Arc<[u8]>; 2] {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let path = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let (status, kind, body): (_, _, Arc<str>) = match (line.starts_with(b"GET "), path) {
        _ if !is_addressed(request, names) => {
            ("421 Misdirected Request", SENTENCE, NOT_OURS.into())
        }
        (true, b"/metrics") => match page() {
            Ok(page) if accepts_open_metrics(request) => {
                ("200 OK", OPEN_METRICS, page.open_metrics)
            }
            Ok(page) => ("200 OK", PLAIN, page.plain),
            Err(error) => ("500 Internal Server Error", SENTENCE, format!("{error}\n").into()),
        },
        (true, _) => ("404 Not Found", SENTENCE, "the figures are at /metrics\n".into()),
        (false, _) => ("405 Method Not Allowed", SENTENCE, "only GET is answered\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    [head.into_bytes().into(), body.into()]
}

/// The values of a field of a request.
fn values<'a>(head: &'a [u8], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    head.split(|byte| *byte == b'\n').skip(1).filter_map(move |line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// Whether the `Host` field of a request names this host: an address, `localhost` or one of
/// `names`, with or without a port. Browsers always send it; without it a request is answered.
fn is_addressed(head: &[u8], names: &[String]) -> bool {
    values(head, b"host").all(|value| {
        let Ok(value) = std::str::from_utf8(value) else { return false };
        let bare = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
        if value.parse::<SocketAddr>().is_ok()
            || value.parse::<Ipv4Addr>().is_ok()
            || bare.is_some_and(|value| value.parse::<Ipv6Addr>().is_ok())
        {
            return true;
        }
        let name = value.rsplit_once(':').map_or(value, |(name, _)| name).trim_end_matches('.');
        name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|own| name.eq_ignore_ascii_case(own))
    })
}

/// Whether the `Accept` field of a request names OpenMetrics, as Prometheus does since version 2.5.
fn accepts_open_metrics(head: &[u8]) -> bool {
    values(head, b"accept")
        .any(|value| value.windows(OPEN_METRICS_NAME.len()).any(|part| part == OPEN_METRICS_NAME))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Calls `ask` with the address of a server, which is stopped afterwards.
    fn served(ask: impl FnOnce(SocketAddr) + Send) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = AtomicBool::new(false);
        let page = Page { open_metrics: "open\n".into(), plain: "x".repeat(9 << 20).into() };
        thread::scope(|scope| {
            let server = scope
                .spawn(|| serve(&listener, &["ours".to_owned()], &stopped, || Ok(page.clone())));
            // It stops even if a check fails.
            let asked = scope.spawn(|| ask(address)).join();
            stopped.store(true, Relaxed);
            server.join().unwrap().unwrap();
            asked.unwrap();
        });
    }

    fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_the_figures_are_served() {
        served(|address| {
            let request = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
            assert!(asked(address, request).ends_with("\r\n\r\nopen\n"));
            // More than a socket's buffer takes at once.
            let plain = asked(address, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert_eq!(plain.split_once("\r\n\r\n").unwrap().1.len(), 9 << 20);
            assert!(asked(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            assert!(asked(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        });
    }

    #[test]
    fn only_who_names_this_host_is_answered() {
        served(|address| {
            let with = |host: &str| {
                let request = format!("GET /metrics HTTP/1.1\r\nHost:{host}\r\n\r\n");
                let answer = asked(address, request.as_bytes());
                answer.split(' ').nth(1).map(str::to_owned).unwrap_or_default()
            };
            for host in [
                " 127.0.0.1",
                " 127.0.0.1:9100",
                "[::1]",
                " [::1]:80 ",
                " localhost",
                "LocalHost:80",
                " ours",
                " OURS.:9",
            ] {
                assert_eq!(with(host), "200", "{host}");
            }
            for host in ["", " evil.example", " evil.example:80", " 127.0.0.1.evil.example"] {
                assert_eq!(with(host), "421", "{host}");
            }
            assert_eq!(with(" ours\r\nHost: evil.example"), "421");
            let old = asked(address, b"GET / HTTP/1.0\r\n\r\n");
            assert!(old.starts_with("HTTP/1.1 404"), "{old}");
        });
    }

    #[test]
    fn clients_that_send_nothing_or_take_nothing_keep_nobody_waiting() {
        served(|address| {
            let mut idle = Vec::new();
            for place in 0..100 {
                let mut stream = TcpStream::connect(address).unwrap();
                match place % 3 {
                    0 => {}
                    1 => stream.write_all(b"GET /met").unwrap(),
                    _ => stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap(),
                }
                idle.push(stream);
            }
            assert!(asked(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            // The latest of this host are still open, and one goes on where it was.
            let last = idle.iter_mut().rev().nth(2).unwrap();
            last.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
            let mut begin = [0; 15];
            last.read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"HTTP/1.1 200 OK");
        });
    }

    #[test]
    fn a_head_that_does_not_end_ends_the_connection() {
        served(|address| {
            let mut stream = TcpStream::connect(address).unwrap();
            let written = (0..1_000).try_for_each(|_| stream.write_all(&[b'x'; 64]));
            let mut answer = Vec::new();
            // Reset, because not all of it was read.
            assert!(written.is_err() || stream.read_to_end(&mut answer).is_err());
            assert_eq!(answer, b"");
        });
    }

    #[test]
    fn a_host_ends_its_own_oldest_connection_and_only_then_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            drop(listener.accept().unwrap());
            stream
        };
        let client = |host: u8| Client {
            stream: connect(),
            host: [192, 0, 2, host].into(),
            until: Instant::now(),
            stage: Stage::Reading(Vec::new()),
        };
        let mut clients = vec![client(1)];
        for _ in 0..50 {
            make_room(&mut clients, [192, 0, 2, 2].into());
            clients.push(client(2));
        }
        assert_eq!(clients.len(), 1 + MAX_CLIENTS_PER_HOST);
        for host in 3..100 {
            make_room(&mut clients, [192, 0, 2, host].into());
            clients.push(client(host));
        }
        assert_eq!(clients.len(), MAX_CLIENTS);
    }

    #[test]
    fn open_metrics_is_for_who_accepts_it() {
        assert!(accepts_open_metrics(
            b"GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n"
        ));
        assert!(!accepts_open_metrics(b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n"));
    }
}
