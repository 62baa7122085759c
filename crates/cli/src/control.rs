//! The control of a running emulation: a local socket that takes commands, one line of JSON each.
//!
//! It runs on a thread of its own at ordinary priority, below the one that forwards packets. Whoever
//! connects has a budget of bytes and of time, and one command.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ontempo_emulator::{LinkState, Links, NotChanged, control_socket};
use ontempo_qos::{ACCEPT_BACK_OFF, is_of_one_connection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::failure::Failure;
use crate::limited::Sentences;

/// Connections at a time; with one more, the oldest ends.
const MAX_CLIENTS: usize = 16;

/// Bytes of a command.
const MAX_COMMAND: usize = 4096;

/// Time from the connection to the end of the answer.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Connections that wait to be accepted; further ones wait to connect. Who makes them without end
/// makes others wait for so many.
const MAX_WAITING: i32 = 64;

/// Pause after each connection: who makes them without end gets 500 a second, also if each ends at
/// once or is refused.
const PAUSE: Duration = Duration::from_millis(2);

/// What a client asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The link to be changed; without it, the links are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
    /// New values: `rate=2 Mbit/s`.
    #[serde(default)]
    pub(crate) set: Vec<String>,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The links.
    Links(Vec<State>),
    /// When the change holds, in seconds of the run.
    ChangedAt(f64),
    /// Why nothing was changed.
    Refused(String),
}

/// Values of a link, as `--json` has them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) link: String,
    /// In bits per second; none if unlimited.
    pub(crate) rate_bps: Option<u64>,
    /// In seconds; of a random delay, the mean.
    pub(crate) delay_s: f64,
    /// Probability of loss on the wire, 0 to 1.
    pub(crate) loss: f64,
    /// Why it cannot be changed.
    pub(crate) fixed: Option<String>,
}

impl From<LinkState> for State {
    fn from(state: LinkState) -> Self {
        let is_limited = state.rate < ontempo_foundation::Rate::UNLIMITED;
        Self {
            link: state.link,
            rate_bps: is_limited.then(|| state.rate.as_bits_per_sec()),
            delay_s: state.delay.as_secs_f64(),
            loss: state.loss,
            fixed: state.fixed.map(str::to_owned),
        }
    }
}

/// The control of a run; dropping it ends it and removes its socket.
pub(crate) struct Control {
    path: PathBuf,
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Takes commands for the run called `run`.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub(crate) fn start(run: &str, links: Links) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Environment(format!("cannot make the control socket of {run}: {error}"))
        };
        let path = control_socket(run, true).map_err(failed)?;
        let users = users();
        let listener = listen(&path, users.last().copied()).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let server = Server {
            run: run.to_owned(),
            listener,
            users,
            links,
            clients: Vec::new(),
            accept_at: Instant::now(),
            complaints: Sentences::about("the control"),
        };
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || server.serve(&stopped))
            .map_err(failed)?;
        Ok(Self { path, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was shown.
            let _ = thread.join();
        }
        // In a folder into which root alone writes. It may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Root, and the user who started this process: also where sudo has made it root's.
fn users() -> Vec<u32> {
    vec![0, ontempo_place::starter()]
}

/// A socket to which only root and `user` may connect. One that a killed run left is replaced: the
/// run's lock is held. Names stay what they are: root alone writes into the folder, which
/// [`control_socket`] has checked.
fn listen(path: &PathBuf, user: Option<u32>) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound?;
    chown(path, user, None)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, MAX_WAITING)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A connection.
struct Client {
    stream: UnixStream,
    since: Instant,
    received: Vec<u8>,
    /// The rest of the answer; `None` before it.
    unsent: Option<Vec<u8>>,
}

/// The thread's state.
struct Server {
    run: String,
    listener: UnixListener,
    /// Who may connect.
    users: Vec<u32>,
    links: Links,
    clients: Vec<Client>,
    /// No connection is accepted before.
    accept_at: Instant,
    complaints: Sentences,
}

impl Server {
    /// Serves until the other end of `stopped` is closed.
    fn serve(mut self, stopped: &UnixStream) {
        loop {
            match self.wait(stopped) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    self.complaints.say(&format!("the control of {}: {error}", self.run));
                    thread::sleep(Duration::from_secs(1));
                }
            }
            // Those who wait first, so that new ones cannot take the place of one that is ready.
            let (run, links) = (&self.run, &self.links);
            self.clients.retain_mut(|client| client.proceed(run, links));
            if self.accept_at > Instant::now() {
                continue;
            }
            if let Err(error) = self.accept() {
                // The connection that waits keeps the socket readable: who has a command has his turn
                // meanwhile.
                self.accept_at = Instant::now() + ACCEPT_BACK_OFF;
                self.complaints.say(&format!(
                    "the control of {}: no connection is accepted for now: {error}",
                    self.run
                ));
            }
        }
    }

    /// Waits until there is something to do; true if this is the end.
    fn wait(&self, stopped: &UnixStream) -> io::Result<bool> {
        let mut files = vec![PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN)];
        let pause = self.accept_at.saturating_duration_since(Instant::now());
        let pause = Some(pause).filter(|pause| !pause.is_zero());
        if pause.is_none() {
            files.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        }
        files.extend(self.clients.iter().map(|client| {
            let flags = if client.unsent.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(client.stream.as_fd(), flags)
        }));
        let left = self.clients.iter().map(Client::left).chain(pause).min();
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!files[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts one connection, if one waits; the next one only after a pause.
    ///
    /// # Errors
    /// One that the next call would return too, such as that descriptors have run out.
    fn accept(&mut self) -> io::Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_wait(&error) || is_of_one_connection(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.accept_at = Instant::now() + PAUSE;
        let may =
            socket_peercred(&stream).is_ok_and(|peer| self.users.contains(&peer.uid.as_raw()));
        if !may || stream.set_nonblocking(true).is_err() {
            return Ok(());
        }
        if self.clients.len() >= MAX_CLIENTS {
            self.clients.remove(0);
        }
        let since = Instant::now();
        self.clients.push(Client { stream, since, received: Vec::new(), unsent: None });
        Ok(())
    }
}

impl Client {
    /// The time that it has left.
    fn left(&self) -> Duration {
        MAX_TIME.saturating_sub(self.since.elapsed())
    }

    /// Reads, answers and writes what is possible without waiting; false at the connection's end.
    fn proceed(&mut self, run: &str, links: &Links) -> bool {
        if self.left() == Duration::ZERO {
            return false;
        }
        if self.unsent.is_none() {
            match self.read() {
                Ok(true) => self.answer(run, links),
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        self.write().is_ok_and(|is_done| !is_done)
    }

    /// Whether a whole command has come.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; MAX_COMMAND];
        match self.stream.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.received.extend(&piece[..length]),
            Err(error) if is_wait(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.received.contains(&b'\n') || self.received.len() > MAX_COMMAND)
    }

    fn answer(&mut self, run: &str, links: &Links) {
        let line = self.received.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let request = match line.len() {
            ..=MAX_COMMAND => serde_json::from_slice(line).map_err(|error| error.to_string()),
            _ => Err(format!("a command has at most {MAX_COMMAND} bytes")),
        };
        let answer = match request {
            Err(what) => Answer::Refused(format!("this is no command: {what}")),
            Ok(Request { link: None, .. }) => {
                Answer::Links(links.states().into_iter().map(State::from).collect())
            }
            Ok(Request { link: Some(link), set }) => match links.change(&link, &set) {
                Ok(at) => Answer::ChangedAt(at.as_secs_f64()),
                Err(NotChanged::Wrong(what)) => Answer::Refused(what),
                Err(NotChanged::Over) => {
                    Answer::Refused(format!("the emulation {run} is over; nothing was changed"))
                }
            },
        };
        let mut text = json!(answer).to_string().into_bytes();
        text.push(b'\n');
        self.unsent = Some(text);
    }

    /// Whether the whole answer is sent.
    fn write(&mut self) -> io::Result<bool> {
        let Some(unsent) = &mut self.unsent else { return Ok(false) };
        while !unsent.is_empty() {
            match self.stream.write(unsent) {
                Ok(length) => drop(unsent.drain(..length)),
                Err(error) if is_wait(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
