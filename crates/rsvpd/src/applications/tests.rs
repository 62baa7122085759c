use std::path::Path;
use std::process::Command;

use ontempo_reservation::local::{Client, ClientError, Request};
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
    let entries = [(1, 7, none), (2, 7, 64_007), (4, 7, none), (0x10, 7, none), (0x20, 0, none)];
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
fn who_is_refused_for_want_of_room_gets_the_reason_and_the_log_once_in_a_while() {
    let (mut applications, _client, folder) = connected("full");
    applications.max_connections = 1;
    let user = rustix::process::geteuid().as_raw();
    let mut ask = |now: Time| {
        let mut client = Client::connect(&folder.join("socket")).unwrap();
        assert!(applications.accept(now).is_none());
        let error = client.ask(Request::Status).expect_err("there is no room");
        assert!(matches!(error, ClientError::Refused(_)), "{error}");
        assert!(error.to_string().contains("limits.applications"), "{error}");
        applications.take_refused(now)
    };
    let start = Time::from_nanos(1);
    let logged = ask(start).expect("the first");
    let begin = format!("refused an application of user {user}: the RSVP daemon has 1 ");
    assert!(logged.starts_with(&begin), "{logged}");
    assert_eq!(ask(start + LOG_INTERVAL / 2), None);
    assert!(ask(start + LOG_INTERVAL).is_some());
    assert_eq!(applications.connections().count(), 1);
    drop(applications);
    fs::remove_dir_all(folder).unwrap();
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
