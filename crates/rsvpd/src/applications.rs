//! The applications' connections: reads and writes lines, whose meaning it does not know.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use nix::unistd::Group;
use ontempo_foundation::{Duration, Time};
use ontempo_reservation::local::{MAX_LINE_LEN, Reply, line};
use rustix::fs::Mode;

use crate::config::Config;
use crate::error::DaemonError;

/// Bytes that wait for an application that does not read; more end its connection.
const MAX_UNSENT: usize = 1 << 20;

/// After an error of accept(), no connection is accepted for this time: where descriptors have run
/// out, the listening socket stays readable.
const ACCEPT_BACK_OFF: Duration = Duration::from_secs(1);

/// A connection's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u64);

impl Id {
    /// Below the numbers of all connections.
    pub(crate) const FIRST: Self = Self(0);
}

/// The local socket and its connections.
pub(crate) struct Applications {
    listener: UnixListener,
    path: PathBuf,
    open: BTreeMap<Id, Connection>,
    last: u64,
    /// No connection is accepted before; [`Time::ZERO`] after a success.
    accept_at: Time,
    max_connections: usize,
}

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
}

/// The result of a read from a connection.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) lines: Vec<Vec<u8>>,
    /// The connection has ended, or must be closed.
    pub(crate) ended: bool,
}

impl Applications {
    /// Listens on the configured path.
    ///
    /// # Errors
    /// Where another daemon listens, the group is unknown, or the system refuses.
    pub(crate) fn listen(config: &Config) -> Result<Self, DaemonError> {
        let path = config.socket.clone();
        let shown = path.display().to_string();
        let failed = |error: io::Error| DaemonError::system(&shown, &error);
        let mode = config.socket_mode().map_err(DaemonError::Input)?;
        let group = config.group.as_deref().map(group).transpose()?;
        if UnixStream::connect(&path).is_ok() {
            return Err(DaemonError::System(format!(
                "{shown}: another daemon listens there; give this one another `socket`"
            )));
        }
        match fs::symlink_metadata(&path) {
            Ok(there) if std::os::unix::fs::FileTypeExt::is_socket(&there.file_type()) => {
                fs::remove_file(&path).map_err(failed)?;
            }
            Ok(_) => {
                return Err(DaemonError::System(format!(
                    "{shown}: there is a file that is no socket; `socket` must be another path"
                )));
            }
            Err(_) => {}
        }
        // Only root may connect until its group and mode are set.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(before);
        let listener = bound.map_err(failed)?;
        let done = Self {
            listener,
            path,
            open: BTreeMap::new(),
            last: 0,
            accept_at: Time::ZERO,
            max_connections: config.max_applications(),
        };
        done.listener.set_nonblocking(true).map_err(failed)?;
        if let Some(group) = group {
            std::os::unix::fs::chown(&done.path, None, Some(group)).map_err(failed)?;
        }
        fs::set_permissions(&done.path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        Ok(done)
    }

    /// The listening socket; none while [`accept`](Self::accept) backs off.
    pub(crate) fn listener(&self, now: Time) -> Option<BorrowedFd<'_>> {
        (self.accept_at <= now).then(|| self.listener.as_fd())
    }

    /// When the listening socket is to be polled again; [`Time::NEVER`] where it is polled now.
    pub(crate) fn accept_at(&self, now: Time) -> Time {
        if self.accept_at > now { self.accept_at } else { Time::NEVER }
    }

    /// The connections, and whether something waits to be sent there.
    pub(crate) fn connections(&self) -> impl Iterator<Item = (Id, BorrowedFd<'_>, bool)> {
        self.open
            .iter()
            .map(|(id, connection)| (*id, connection.stream.as_fd(), !connection.unsent.is_empty()))
    }

    /// Accepts new connections; one beyond the limit is closed at once.
    /// The first error in a row is returned.
    pub(crate) fn accept(&mut self, now: Time) -> Option<io::Error> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(error) => {
                    let first = self.accept_at == Time::ZERO;
                    self.accept_at = now + ACCEPT_BACK_OFF;
                    return first.then_some(error);
                }
            };
            self.accept_at = Time::ZERO;
            if self.open.len() >= self.max_connections || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.last += 1;
            let connection = Connection { stream, received: Vec::new(), unsent: VecDeque::new() };
            self.open.insert(Id(self.last), connection);
        }
    }

    /// Reads from a connection.
    pub(crate) fn receive(&mut self, id: Id) -> Received {
        let mut received = Received::default();
        let Some(connection) = self.open.get_mut(&id) else { return received };
        let mut piece = [0; MAX_LINE_LEN];
        match connection.stream.read(&mut piece) {
            Ok(0) => received.ended = true,
            Ok(length) => connection.received.extend(&piece[..length]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => received.ended = true,
        }
        while let Some(end) = connection.received.iter().position(|byte| *byte == b'\n') {
            received.lines.push(connection.received.drain(..=end).collect());
        }
        // What follows a line that is too long would be read as another one.
        received.ended |= connection.received.len() > MAX_LINE_LEN;
        received
    }

    /// Queues and sends a reply; false where the connection must be closed.
    pub(crate) fn send(&mut self, id: Id, reply: &Reply) -> bool {
        let Some(connection) = self.open.get_mut(&id) else { return false };
        if connection.unsent.len() > MAX_UNSENT {
            return false;
        }
        connection.unsent.extend(line(reply));
        self.flush(id)
    }

    /// Sends queued bytes; false where the connection must be closed.
    pub(crate) fn flush(&mut self, id: Id) -> bool {
        let Some(connection) = self.open.get_mut(&id) else { return false };
        while !connection.unsent.is_empty() {
            match connection.stream.write(connection.unsent.as_slices().0) {
                Ok(sent) => drop(connection.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    pub(crate) fn close(&mut self, id: Id) {
        self.open.remove(&id);
    }
}

impl Drop for Applications {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

fn group(name: &str) -> Result<u32, DaemonError> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(DaemonError::Input(format!(
            "group: this host has no group {name:?}; make it with: groupadd --system {name}"
        ))),
        Err(error) => Err(DaemonError::system("group", &error)),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn without_descriptors_accept_backs_off_and_then_serves() {
        let folder = std::env::temp_dir().join(format!("ontempo-accept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let text = format!("socket = {socket:?}\n[interfaces.lo]\nrate = \"1 Mbit/s\"\n");
        fs::write(folder.join("rsvpd.toml"), text).unwrap();
        let config = Config::read(&folder.join("rsvpd.toml")).unwrap();
        let mut applications = Applications::listen(&config).unwrap();
        let _client = UnixStream::connect(&socket).unwrap();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        let (now, later) = (Time::from_nanos(1), Time::from_nanos(1) + ACCEPT_BACK_OFF);
        let [first, second] = [applications.accept(now), applications.accept(now)];
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(first.and_then(|error| error.raw_os_error()), Some(libc::EMFILE));
        assert!(second.is_none(), "the error is reported once");
        // The socket is readable all the while, so that polling it would spin.
        let mut polled = [PollFd::new(&applications.listener, PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 1);
        assert!(applications.listener(now).is_none() && applications.accept_at(now) == later);
        assert!(applications.listener(later).is_some());
        assert!(applications.accept(later).is_none());
        assert_eq!(applications.connections().count(), 1);
        drop(applications);
        fs::remove_dir_all(folder).unwrap();
    }
}
