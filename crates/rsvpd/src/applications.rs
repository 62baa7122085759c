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
use ontempo_reservation::local::{MAX_LINE_LEN, Reply, line};
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

/// The extended attribute that holds a file's ACL (acl(5)).
const ACL: &str = "system.posix_acl_access";

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
            let Ok(user) = getsockopt(&stream, PeerCredentials).map(|peer| peer.uid()) else {
                continue;
            };
            if self.is_full(user) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.last += 1;
            self.open.insert(Id(self.last), Connection::new(stream, user));
        }
    }

    /// Whether there are as many connections as may be, or a user other than root has half of them.
    fn is_full(&self, user: u32) -> bool {
        let of_user = self.of_user(user).count();
        self.open.len() >= self.max_connections
            || user != 0 && of_user >= (self.max_connections / 2).max(1)
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
pub(crate) mod tests {
    use std::path::Path;
    use std::process::Command;

    use ontempo_reservation::local::Answer;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// Applications with one connection, and its other end.
    fn connected(name: &str) -> (Applications, UnixStream, PathBuf) {
        let name = format!("ontempo-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let text = format!("socket = {socket:?}\n[interfaces.l0]\nrate = \"1 Mbit/s\"\n");
        fs::write(folder.join("rsvpd.toml"), text).unwrap();
        let config = Config::read(&folder.join("rsvpd.toml")).unwrap();
        let mut applications = Applications::listen(&config).unwrap();
        let client = UnixStream::connect(&socket).unwrap();
        assert!(applications.accept(Time::from_nanos(1)).is_none());
        (applications, client, folder)
    }

    fn only(applications: &Applications) -> Id {
        applications.connections().next().unwrap().0
    }

    fn refused(bytes: usize) -> Reply {
        Reply::Answer { id: 1, result: Answer::Refused("x".repeat(bytes)) }
    }

    #[test]
    fn a_line_that_would_exceed_the_unsent_bytes_is_not_queued() {
        let (mut applications, _client, folder) = connected("unsent");
        let id = only(&applications);
        // As one status of 20,000 sessions was.
        assert!(!applications.send(id, &refused(12 << 20)));
        assert!(applications.send(id, &refused(2 << 20)));
        assert!(!applications.send(id, &refused(2 << 20)));
        assert!(applications.open[&id].unsent.len() <= MAX_UNSENT);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_applications_of_a_user_leave_a_bounded_number_of_bytes_unread() {
        let (mut applications, _client, folder) = connected("unread");
        let clients: Vec<_> =
            (0..60).map(|_| UnixStream::connect(folder.join("socket")).unwrap()).collect();
        assert!(applications.accept(Time::from_nanos(1)).is_none());
        let ids: Vec<Id> = applications.connections().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), clients.len() + 1);
        for id in ids {
            if !applications.send(id, &refused(2 << 20)) {
                applications.close(id);
            }
        }
        let unsent = applications.open.values().map(|one| one.unsent.len()).sum::<usize>();
        assert!((4 << 20..=MAX_UNSENT_OF_USER).contains(&unsent), "{unsent} bytes");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_flood_of_changes_of_a_sender_does_not_end_an_application_that_reads_late() {
        let (mut applications, mut client, folder) = connected("flood");
        let id = only(&applications);
        let address = [192, 0, 2, 1].into();
        let session = Session { destination: address, protocol: 17, port: 1 };
        let path = (session, Sender { address, port: 1 });
        for _ in 0..100_000 {
            assert!(applications.send_path(id, path, &refused(400)));
        }
        assert!(applications.open[&id].unsent.len() < 4_096);
        assert_eq!(applications.next_pending(id), None, "earlier bytes wait");
        client.set_nonblocking(true).unwrap();
        let mut buffer = [0; 65_536];
        while client.read(&mut buffer).is_ok() {}
        assert!(applications.flush(id));
        assert_eq!(applications.next_pending(id), Some(path));
        assert_eq!(applications.next_pending(id), None);
        fs::remove_dir_all(folder).unwrap();
    }

    /// The limit of descriptors is that of a process: the test runs in one of its own, so that the
    /// others keep theirs.
    #[test]
    fn what_takes_the_place_of_the_socket_keeps_its_mode() {
        let folder = std::env::temp_dir().join(format!("ontempo-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (socket, victim) = (folder.join("socket"), folder.join("victim"));
        fs::write(&victim, "precious").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&victim, &socket).unwrap();
        assert!(open_to(&socket, Some(0), 0o666).is_err());
        assert!(open_to(&victim, Some(0), 0o666).is_err());
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(&socket).unwrap();
        // By the folder's ACL a user of its own may use what is made in it.
        let word = |tag: u16, rights: u16, whose: u32| -> Vec<u8> {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &whose.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries =
            [(1, 7, none), (2, 7, 64_007), (4, 7, none), (0x10, 7, none), (0x20, 0, none)];
        let entries = entries.map(|(tag, rights, whose)| word(tag, rights, whose)).concat();
        let acl = [&2_u32.to_le_bytes()[..], &entries].concat();
        let flags = rustix::fs::XattrFlags::empty();
        // Where the file system has none there is nothing to be taken away.
        let set = rustix::fs::setxattr(&folder, "system.posix_acl_default", &acl, flags);
        let _bound = UnixListener::bind(&socket).unwrap();
        let acl_of = || rustix::fs::getxattr(&socket, ACL, &mut [0_u8; 256]);
        assert_eq!(acl_of().is_ok(), set.is_ok());
        open_to(&socket, None, 0o660).unwrap();
        assert!(acl_of().is_err(), "somebody beside owner and group may connect");
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o660);
        let _ = rustix::fs::removexattr(&folder, "system.posix_acl_default");
        // Nor is it made where another user could replace it.
        for (mode, is_fit) in [(0o755, true), (0o1777, true), (0o775, false), (0o777, false)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_folder(&socket).is_ok(), is_fit, "{mode:o}");
        }
        if ontempo_testing::require_root() {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
            assert!(check_folder(&socket).is_err());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn without_descriptors_accept_backs_off_and_then_serves() {
        const CHILD: &str = "ONTEMPO_RSVPD_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return without_descriptors();
        }
        let name = "applications::tests::without_descriptors_accept_backs_off_and_then_serves";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && shown.contains("1 passed"), "{output:?}");
    }

    fn without_descriptors() {
        let folder = std::env::temp_dir().join(format!("ontempo-accept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let text = format!("socket = {socket:?}\n[interfaces.l0]\nrate = \"1 Mbit/s\"\n");
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

    /// Connects as another user, in a thread that becomes that user.
    pub(crate) fn connect_as(user: u32, to: &Path, count: usize) -> Vec<UnixStream> {
        let to = to.to_owned();
        let connecting = std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(user);
            rustix::thread::set_thread_uid(user).expect("root may");
            (0..count).map(|_| UnixStream::connect(&to).expect("connected")).collect()
        });
        connecting.join().expect("connected")
    }

    #[test]
    fn a_user_gets_half_of_the_connections_and_another_the_rest() {
        if !ontempo_testing::require_root() {
            return;
        }
        let (mut applications, _client, folder) = connected("users");
        applications.max_connections = 21;
        let socket = folder.join("socket");
        for path in [&folder, &socket] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(path, open).unwrap();
        }
        let of = |applications: &Applications, user| applications.of_user(user).count();
        let first = connect_as(64_001, &socket, 12);
        assert!(applications.accept(Time::from_nanos(1)).is_none());
        assert_eq!((of(&applications, 0), of(&applications, 64_001)), (1, 10));
        let second = connect_as(64_002, &socket, 12);
        assert!(applications.accept(Time::from_nanos(1)).is_none());
        assert_eq!((of(&applications, 64_001), of(&applications, 64_002)), (10, 10));
        // What one user leaves unread ends that user's connections alone.
        let ids: Vec<Id> = applications.of_user(64_001).collect();
        for id in ids {
            // Less than one connection may leave.
            if !applications.send(id, &refused(2 << 20)) {
                applications.close(id);
            }
        }
        assert!(of(&applications, 64_001) < 10, "what it leaves unread has no bound");
        let other = applications.of_user(64_002).next().expect("one");
        assert!(applications.send(other, &refused(1 << 20)));
        drop((first, second));
        fs::remove_dir_all(folder).unwrap();
    }
}
