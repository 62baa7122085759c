//! The applications' connections: reads and writes lines, whose meaning it does not know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Group;
use ontempo_foundation::{Duration, Time};
use ontempo_place::ACL;
use ontempo_reservation::local::{Answer, MAX_LINE_LEN, Reply, line};
use ontempo_reservation::message::{Sender, Session};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};
use rustix::io::Errno;

use crate::config::Config;
use crate::error::DaemonError;

/// Bytes that wait for an application that does not read; more end its connection. A status fits.
const MAX_UNSENT: usize = 3 << 20;
/// The same for all applications of a user.
const MAX_UNSENT_OF_USER: usize = 16 << 20;

/// After an error of accept(), no connection is accepted for this time: where descriptors have run
/// out, the listening socket stays readable.
const ACCEPT_BACK_OFF: Duration = Duration::from_secs(1);

/// Refused connections are logged so often at most.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Permission to write for the group and for all others.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// A connection's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u64);

impl Id {
    /// Below the numbers of all connections.
    pub(crate) const FIRST: Self = Self(0);

    /// Three different ones.
    #[cfg(test)]
    pub(crate) fn some() -> [Self; 3] {
        [1, 2, 3].map(Self)
    }
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
    /// Why a connection was refused, to be logged.
    refused: Option<String>,
    /// Not before this is another one logged.
    log_at: Time,
}

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
    /// Whose it is.
    user: u32,
    /// Senders whose state has changed while earlier bytes waited, each once, the first first.
    pending: VecDeque<(Session, Sender)>,
    is_pending: BTreeSet<(Session, Sender)>,
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
        check_folder(&path).map_err(failed)?;
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
            refused: None,
            log_at: Time::ZERO,
        };
        done.listener.set_nonblocking(true).map_err(failed)?;
        open_to(&done.path, group, mode).map_err(failed)?;
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
            .map(|(id, connection)| (*id, connection.stream.as_fd(), connection.waits()))
    }

    /// Accepts new connections; one beyond the limit is refused with a reason and closed at once.
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
            let Ok(user) = getsockopt(&stream, PeerCredentials).map(|peer| peer.uid()) else {
                continue;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Some(why) = self.full(user) {
                self.refused = Some(format!("refused an application of user {user}: {why}"));
                let reply = Reply::Answer { id: 0, result: Answer::Refused(why) };
                // It may have gone already.
                let _ = (&stream).write_all(&line(&reply));
                continue;
            }
            self.last += 1;
            self.open.insert(Id(self.last), Connection::new(stream, user));
        }
    }

    /// Why no connection of a user is accepted: there are as many as may be, or a user other than root has half of
    /// them.
    fn full(&self, user: u32) -> Option<String> {
        let (all, most) = (self.open.len(), self.max_connections);
        let share = (most / 2).max(1);
        if all >= most {
            return Some(format!(
                "the RSVP daemon has {all} connections of applications, as many as it may \
                 (limits.applications)"
            ));
        }
        (user != 0 && self.of_user(user).count() >= share).then(|| {
            format!(
                "this user has {share} connections of the RSVP daemon, half of what all may have \
                 (limits.applications)"
            )
        })
    }

    /// The last refusal to be logged: one in a while, whoever comes again and again.
    pub(crate) fn take_refused(&mut self, now: Time) -> Option<String> {
        let refused = self.refused.take().filter(|_| self.log_at <= now)?;
        self.log_at = now + LOG_INTERVAL;
        Some(refused)
    }

    /// The connections of a user.
    pub(crate) fn of_user(&self, user: u32) -> impl Iterator<Item = Id> {
        self.open.iter().filter(move |(_, one)| one.user == user).map(|(id, _)| *id)
    }

    /// Whose connection it is.
    pub(crate) fn user(&self, id: Id) -> Option<u32> {
        self.open.get(&id).map(|connection| connection.user)
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
        let line = line(reply);
        if connection.unsent.len() + line.len() > MAX_UNSENT {
            return false;
        }
        connection.unsent.extend(line);
        self.flush(id) && self.is_within_share(id)
    }

    /// Whether the user's applications leave no more bytes unread than they may.
    fn is_within_share(&self, id: Id) -> bool {
        let Some(own) = self.open.get(&id).filter(|own| !own.unsent.is_empty()) else {
            return true;
        };
        let of_user = self.open.values().filter(|one| one.user == own.user);
        of_user.map(|one| one.unsent.len()).sum::<usize>() <= MAX_UNSENT_OF_USER
    }

    /// Sends a notice about a sender. While earlier bytes wait it is only noted that the sender has
    /// changed, so that one who makes changes without end fills no queue. False where the
    /// connection must be closed.
    pub(crate) fn send_path(&mut self, id: Id, path: (Session, Sender), notice: &Reply) -> bool {
        let Some(connection) = self.open.get_mut(&id) else { return false };
        if !connection.waits() {
            return self.send(id, notice);
        }
        if connection.is_pending.insert(path) {
            connection.pending.push_back(path);
        }
        true
    }

    /// A sender that has changed, where no bytes wait.
    pub(crate) fn next_pending(&mut self, id: Id) -> Option<(Session, Sender)> {
        let connection = self.open.get_mut(&id).filter(|one| one.unsent.is_empty())?;
        let path = connection.pending.pop_front()?;
        connection.is_pending.remove(&path);
        Some(path)
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
        // Its memory, too.
        connection.unsent = VecDeque::new();
        true
    }

    pub(crate) fn close(&mut self, id: Id) {
        self.open.remove(&id);
    }
}

impl Connection {
    fn new(stream: UnixStream, user: u32) -> Self {
        Self {
            stream,
            received: Vec::new(),
            unsent: VecDeque::new(),
            user,
            pending: VecDeque::new(),
            is_pending: BTreeSet::new(),
        }
    }

    /// Whether something waits to be sent.
    fn waits(&self) -> bool {
        !self.unsent.is_empty() || !self.pending.is_empty()
    }
}

impl Drop for Applications {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// An error if another user can rename the socket and put something else in its place: its folder must be of
/// this user or root, and nobody else may write to it, or remove what is not theirs (`/tmp`).
fn check_folder(socket: &Path) -> io::Result<()> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let about = fs::metadata(folder)?;
    let is_own = about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw();
    let (mode, sticky) = (about.mode(), 0o1000);
    if is_own && (mode & OTHERS_MAY_WRITE == 0 || mode & sticky != 0) {
        return Ok(());
    }
    let sentence = "another user can replace what is in its folder: name a folder of root's";
    Err(io::Error::new(ErrorKind::PermissionDenied, sentence))
}

/// Gives the socket its group and mode, and nothing that has taken its place.
fn open_to(socket: &Path, group: Option<u32>, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(socket, flags, Mode::empty())?;
    let about = rustix::fs::fstat(&opened)?;
    let is_own = about.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket || !is_own {
        return Err(io::Error::other("another user has put something in its place"));
    }
    if let Some(group) = group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(&opened, "", None, group, AtFlags::EMPTY_PATH)?;
    }
    // An opened path has no fchmod(2) of its own.
    let itself = format!("/proc/self/fd/{}", opened.as_raw_fd());
    // Its folder may have given it an ACL, whose users and groups the mode would let in.
    match rustix::fs::removexattr(&itself, ACL) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    fs::set_permissions(itself, fs::Permissions::from_mode(mode))
}

pub(crate) fn group(name: &str) -> Result<u32, DaemonError> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(DaemonError::Input(format!(
            "group: this host has no group {name:?}; make it with: groupadd --system {name}"
        ))),
        Err(error) => Err(DaemonError::system("group", &error)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
