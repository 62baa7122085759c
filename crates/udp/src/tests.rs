use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Duration, Time};

use super::*;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// A datagram that has been taken, and when.
#[derive(Clone, Debug)]
struct Taken {
    source: SocketAddr,
    local: Option<IpAddr>,
    received: Time,
    read: Time,
    ecn: Ecn,
    dscp: Dscp,
    data: Vec<u8>,
}

fn at(ip: IpAddr, options: SocketOptions) -> Socket {
    Socket::bind(SocketAddr::new(ip, 0), options).expect("a socket")
}

fn address(socket: &Socket) -> SocketAddr {
    socket.local_address().expect("an address")
}

/// Takes `count` datagrams, or fewer within two seconds.
fn take(socket: &Socket, clock: Clock, count: usize) -> Vec<Taken> {
    let (mut reader, mut all) = (socket.reader(), Vec::new());
    let end = Instant::now() + Wall::from_secs(2);
    while all.len() < count && Instant::now() < end {
        let taken = reader.each(socket, clock, |read, datagram| {
            let Datagram { source, local, received, ecn, dscp, data } = datagram;
            all.push(Taken { source, local, received, read, ecn, dscp, data: data.to_vec() });
        });
        if taken.is_err() {
            std::thread::sleep(Wall::from_micros(100));
        }
    }
    all
}

fn dscp(number: u8) -> Dscp {
    Dscp::new(number).expect("a DSCP")
}

#[test]
fn ecn_and_dscp_of_each_packet_and_of_the_socket_reach_the_other_end() {
    let options = SocketOptions { dscp: dscp(46), ..SocketOptions::default() };
    for ip in [V4, V6] {
        let (from, to) = (at(ip, options), at(ip, SocketOptions::default()));
        let plain = Transmit::to(address(&to));
        for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congestion] {
            for own in [None, Some(dscp(34)), Some(dscp(0))] {
                from.send(&Transmit { ecn, dscp: own, ..plain }, b"class").expect("sent");
                let got = take(&to, Clock::new(), 1).remove(0);
                assert_eq!((got.ecn, got.dscp), (ecn, own.unwrap_or(dscp(46))), "over {ip}");
                assert_eq!((got.data.as_slice(), got.source), (&b"class"[..], address(&from)));
                assert_eq!(got.local, Some(ip));
            }
        }
    }
}

#[test]
fn a_dual_socket_speaks_ipv4_with_its_class_and_ipv6() {
    let options = SocketOptions { dscp: dscp(34), ..SocketOptions::default() };
    let dual = Socket::bind_any(0, options).expect("a dual socket");
    let port = address(&dual).port();
    for ip in [V4, V6] {
        let other = at(ip, SocketOptions::default());
        let there = Transmit { ecn: Ecn::Capable0, ..Transmit::to(SocketAddr::new(ip, port)) };
        other.send(&there, b"there").expect("sent");
        let got = take(&dual, Clock::new(), 1).remove(0);
        assert_eq!((got.source, got.local, got.ecn), (address(&other), Some(ip), Ecn::Capable0));
        let back = Transmit { ecn: Ecn::Capable1, source: got.local, ..Transmit::to(got.source) };
        dual.send(&back, b"back").expect("sent");
        let got = take(&other, Clock::new(), 1).remove(0);
        assert_eq!((got.source.ip(), got.ecn, got.dscp), (ip, Ecn::Capable1, dscp(34)));
    }
}

#[test]
fn a_packet_leaves_from_the_address_that_it_names() {
    let any = Socket::bind("0.0.0.0:0".parse().expect("an address"), SocketOptions::default());
    let (any, to) = (any.expect("a socket"), at(V4, SocketOptions::default()));
    let second = "127.0.0.2".parse().expect("an address");
    let transmit = Transmit { source: Some(second), ..Transmit::to(address(&to)) };
    any.send(&transmit, b"x").expect("sent");
    assert_eq!(take(&to, Clock::new(), 1)[0].source.ip(), second);
}

/// Five datagrams of 1,000 bytes and one of 123, each of a byte of its own.
fn batch() -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut parts: Vec<_> = (0..5).map(|place| vec![place; 1_000]).collect();
    parts.push(vec![9; 123]);
    (parts.concat(), parts)
}

#[test]
fn a_batch_is_cut_into_its_datagrams_whether_the_receiver_joins_them_or_not() {
    for (gro, plain) in [(true, false), (false, false), (false, true)] {
        let options = SocketOptions { gro, plain, ..SocketOptions::default() };
        let (from, to) = (at(V4, SocketOptions::default()), at(V4, options));
        let (whole, parts) = batch();
        let class = Transmit { ecn: Ecn::Capable0, ..Transmit::to(address(&to)) };
        let sent = from.send(&Transmit { segment: Some(1_000), ..class }, &whole);
        assert_eq!(sent.expect("sent"), whole.len());
        assert!(from.sends_batches() || cfg!(not(target_os = "linux")));
        let got = take(&to, Clock::new(), parts.len());
        assert!(plain || got.iter().all(|one| one.ecn == Ecn::Capable0));
        assert_eq!(got.into_iter().map(|one| one.data).collect::<Vec<_>>(), parts);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn batches_that_the_kernel_refuses_leave_one_by_one() {
    use std::os::fd::AsFd;
    let (from, to) = (at(V4, SocketOptions::default()), at(V4, SocketOptions::default()));
    // Linux cuts no batches for a socket without checksums, and says EINVAL.
    linux::set_option(from.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).expect("set");
    let (whole, parts) = batch();
    let transmit = Transmit { segment: Some(1_000), ..Transmit::to(address(&to)) };
    assert_eq!(from.most_segments(1_000), 64);
    assert_eq!(from.send(&transmit, &whole).expect("sent"), whole.len());
    assert_eq!(from.most_segments(1_000), 1, "and are not tried again");
    let got = take(&to, Clock::new(), parts.len());
    assert_eq!(got.into_iter().map(|one| one.data).collect::<Vec<_>>(), parts);
}

#[test]
fn arrival_is_when_the_kernel_saw_the_packet_not_when_it_is_read() {
    let clock = Clock::new();
    let (from, to) = (at(V4, SocketOptions::default()), at(V4, SocketOptions::default()));
    // The kernel turns its stamps on a moment after they are asked for.
    std::thread::sleep(Wall::from_millis(50));
    let before = clock.now();
    from.send(&Transmit::to(address(&to)), b"x").expect("sent");
    let after = clock.now();
    std::thread::sleep(Wall::from_millis(100));
    let got = take(&to, clock, 1).remove(0);
    // The two clocks are read one after the other.
    let slack = Duration::from_micros(500);
    assert!(before <= got.received + slack && got.received <= after + slack, "{got:?}");
    assert!(got.read.since(got.received) >= Duration::from_millis(99), "{got:?}");
}

#[test]
fn an_arrival_that_a_set_clock_makes_absurd_is_now() {
    let now = Time::from_secs_f64(100.0);
    let wall = 1_700_000_000_000_000_000;
    assert_eq!(Clock::at_wall(now, wall, wall - 5_000), now - Duration::from_nanos(5_000));
    assert_eq!(Clock::at_wall(now, wall, wall + 1), now, "from the future");
    assert_eq!(Clock::at_wall(now, wall, wall - 3_600_000_000_000), now, "from long ago");
}

#[test]
fn a_plain_socket_carries_bytes() {
    let options = SocketOptions { plain: true, ..SocketOptions::default() };
    let dual = Socket::bind_any(0, options).expect("a socket");
    for ip in [V4, V6] {
        let other = at(ip, options);
        let port = address(&dual).port();
        other.send(&Transmit::to(SocketAddr::new(ip, port)), b"there").expect("sent");
        let got = take(&dual, Clock::new(), 1).remove(0);
        assert_eq!((got.data.as_slice(), got.source), (&b"there"[..], address(&other)));
        dual.send(&Transmit::to(got.source), b"").expect("sent");
        assert_eq!(take(&other, Clock::new(), 1)[0].data, b"");
    }
}

#[test]
fn a_packet_above_the_mtu_is_refused_and_the_mtu_told() {
    let (from, to) = (at(V4, SocketOptions::default()), at(V4, SocketOptions::default()));
    let mtu = from.path_mtu(address(&to)).expect("the MTU of loopback").get() as usize;
    assert!(mtu >= 1_500, "{mtu}");
    let much = vec![0; (mtu - 27).min(65_535)];
    let error = from.send(&Transmit::to(address(&to)), &much).expect_err("too large");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
}

#[test]
fn a_taken_port_is_told_in_a_sentence() {
    let first = at(V4, SocketOptions::default());
    let port = address(&first).port();
    let error = Socket::bind(address(&first), SocketOptions::default()).expect_err("taken");
    assert_eq!(
        error.to_string(),
        format!("UDP port {port} is taken by another program; choose another")
    );
    let error = Socket::bind("192.0.2.1:0".parse().expect("an address"), SocketOptions::default());
    assert_eq!(error.expect_err("not ours").to_string(), "192.0.2.1 is no address of this machine");
}

#[test]
fn code_points_are_read_by_name_and_number() {
    assert_eq!("AF41".parse(), Ok(Dscp::VIDEO));
    assert_eq!("46".parse::<Dscp>(), "ef".parse());
    for text in ["64", "-1", "", "gold"] {
        let error = text.parse::<Dscp>().expect_err("no code point").to_string();
        assert_eq!(
            error,
            format!("`{text}` is no DSCP: write 0 to 63, or a name such as af41 or ef")
        );
    }
}

/// What the test's protocol has seen.
enum Seen {
    Datagram(Vec<u8>),
    Command(Time),
    Timeout(Time),
}

/// Echoes what comes, sends `left` packets at a distance, reports every event.
struct Recorder {
    seen: Sender<Seen>,
    echoes: Vec<(SocketAddr, Vec<u8>)>,
    timeout: Time,
    to: Option<SocketAddr>,
    due: Time,
    distance: Duration,
    left: u32,
    lateness: Vec<Duration>,
}

impl Recorder {
    fn new(seen: Sender<Seen>) -> Self {
        Self {
            seen,
            echoes: Vec::new(),
            timeout: Time::NEVER,
            to: None,
            due: Time::ZERO,
            distance: Duration::ZERO,
            left: 0,
            lateness: Vec::new(),
        }
    }
}

impl Protocol for Recorder {
    type Command = Time;

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        self.echoes.push((datagram.source, datagram.data.to_vec()));
        let _ = self.seen.send(Seen::Datagram(datagram.data.to_vec()));
    }

    fn handle_command(&mut self, now: Time, command: Time) {
        self.timeout = command;
        let _ = self.seen.send(Seen::Command(now));
    }

    fn handle_timeout(&mut self, now: Time) {
        self.timeout = Time::NEVER;
        let _ = self.seen.send(Seen::Timeout(now));
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        if let Some((source, data)) = self.echoes.pop() {
            buffer.extend(data);
            return Next::Transmit(Transmit::to(source));
        }
        match self.to {
            Some(to) if self.left > 0 => {
                if now < self.due {
                    return Next::WaitUntil(self.due);
                }
                self.lateness.push(now.since(self.due));
                self.due = now + self.distance;
                self.left -= 1;
                buffer.extend_from_slice(&[0; 100]);
                Next::Transmit(Transmit::to(to))
            }
            _ => Next::Idle,
        }
    }

    fn is_finished(&self) -> bool {
        self.to.is_some() && self.left == 0
    }
}

#[test]
fn a_driver_hears_packets_commands_and_timers_and_ends_cleanly() {
    let clock = Clock::new();
    let (seen, sees) = channel();
    let far = at(V6, SocketOptions::default());
    let near = at(V6, SocketOptions::default());
    let near_address = address(&near);
    let driver = Driver::spawn(near, Recorder::new(seen), clock, DriverOptions::default());
    let driver = driver.expect("a thread");
    far.send(&Transmit::to(near_address), b"hello").expect("sent");
    let Ok(Seen::Datagram(data)) = sees.recv_timeout(Wall::from_secs(5)) else { panic!("none") };
    assert_eq!(data, b"hello");
    assert_eq!(take(&far, clock, 1)[0].data, b"hello");
    // It sleeps without end now; only the wake_events wakes it.
    let asked = clock.now();
    let due = asked + Duration::from_millis(30);
    driver.command(due).expect("taken");
    let Ok(Seen::Command(heard)) = sees.recv_timeout(Wall::from_secs(5)) else { panic!("none") };
    assert!(heard >= asked);
    let Ok(Seen::Timeout(fired)) = sees.recv_timeout(Wall::from_secs(5)) else { panic!("none") };
    assert!(fired >= due);
    let statistics = driver.statistics();
    assert_eq!((statistics.received, statistics.send_calls), (1, 1));
    assert_eq!((statistics.received_bytes, statistics.sent_bytes), (5, 5));
    driver.end().expect("ended");
}

#[test]
fn a_driver_that_is_dropped_or_finished_ends_its_thread() {
    let (seen, sees) = channel();
    let driver = Driver::spawn(
        at(V4, SocketOptions::default()),
        Recorder::new(seen),
        Clock::new(),
        DriverOptions::default(),
    );
    drop(driver.expect("a thread"));
    assert!(sees.recv().is_err(), "the protocol is gone");
}

#[test]
fn commands_are_bounded_and_handed_back() {
    let (seen, _sees) = channel();
    let recorder = Recorder { to: Some((V4, 9).into()), ..Recorder::new(seen) };
    let driver = Driver::spawn(
        at(V4, SocketOptions::default()),
        recorder,
        Clock::new(),
        DriverOptions { commands: 1, ..DriverOptions::default() },
    );
    let driver = driver.expect("a thread");
    while !driver.has_ended() {
        std::thread::sleep(Wall::from_millis(1));
    }
    assert_eq!(driver.command(Time::ZERO), Err(CommandError::Ended(Time::ZERO)));
}

#[test]
fn a_precise_driver_never_sends_a_paced_packet_early_and_rarely_late() {
    let clock = Clock::new();
    let (seen, _sees) = channel();
    let to = at(V4, SocketOptions::default());
    let recorder = Recorder {
        to: Some(address(&to)),
        due: clock.now() + Duration::from_millis(1),
        distance: Duration::from_micros(300),
        left: 1_000,
        ..Recorder::new(seen)
    };
    let options = DriverOptions { precise: true, ..DriverOptions::default() };
    let driver = Driver::spawn(at(V4, SocketOptions::default()), recorder, clock, options);
    let mut lateness = driver.expect("a thread").wait().expect("finished").lateness;
    assert_eq!(lateness.len(), 1_000, "one for each packet, none early");
    lateness.sort_unstable();
    // How late depends on what else the machine does: half of all is what it always manages.
    println!("late: median {}, 99 % {}", lateness[500], lateness[990]);
    assert!(lateness[500] < Duration::from_millis(1), "median {}", lateness[500]);
}

/// Takes its time: counts datagrams, and at which wake-up each was read.
struct Leisurely {
    seen: Sender<(Time, Time)>,
    commands: Sender<Time>,
    timeout: Time,
    reads_late: bool,
}

impl Protocol for Leisurely {
    type Command = Time;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        let _ = self.seen.send((datagram.received, now));
    }

    fn handle_command(&mut self, now: Time, command: Time) {
        self.timeout = command;
        let _ = self.commands.send(now);
    }

    fn handle_timeout(&mut self, _: Time) {
        self.timeout = Time::NEVER;
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }

    fn reads_at_timeout(&self) -> bool {
        self.reads_late
    }
}

/// A driver, the address of its socket, and what it tells: of datagrams, of commands.
type Watched = (
    Driver<Leisurely>,
    SocketAddr,
    std::sync::mpsc::Receiver<(Time, Time)>,
    std::sync::mpsc::Receiver<Time>,
);

fn leisurely(clock: Clock, reads_late: bool) -> Watched {
    let ((seen, sees), (commands, handled)) = (channel(), channel());
    let socket = at(V4, SocketOptions::default());
    let to = address(&socket);
    let protocol = Leisurely { seen, commands, timeout: Time::NEVER, reads_late };
    let driver = Driver::spawn(socket, protocol, clock, DriverOptions::default());
    (driver.expect("a thread"), to, sees, handled)
}

#[cfg(target_os = "linux")]
#[test]
fn what_may_be_read_at_the_timeout_is_read_then_with_the_times_of_its_arrival() {
    let clock = Clock::new();
    let (driver, to, sees, handled) = leisurely(clock, true);
    let due = clock.now() + Duration::from_millis(200);
    driver.command(due).expect("taken");
    handled.recv_timeout(Wall::from_secs(5)).expect("handled");
    // Until it is asleep: awake, it reads what is there.
    std::thread::sleep(Wall::from_millis(50));
    let far = at(V4, SocketOptions::default());
    let before = clock.now();
    for _ in 0..3 {
        far.send(&Transmit::to(to), b"early").expect("sent");
    }
    let after = clock.now();
    for _ in 0..3 {
        let (arrived, read) = sees.recv_timeout(Wall::from_secs(5)).expect("read");
        // The wall clock may be adjusted between the notes of the kernel and of the program.
        let slack = Duration::from_millis(5);
        assert!(arrived + slack >= before && (arrived <= after + slack || after >= due));
        assert!(read >= due, "read {read:?}, due {due:?}");
    }
    // Without a timeout nothing is kept waiting.
    far.send(&Transmit::to(to), b"late").expect("sent");
    assert!(sees.recv_timeout(Wall::from_secs(5)).is_ok());
}

#[test]
fn a_command_with_a_time_wakes_a_driver_only_if_it_would_sleep_longer() {
    let clock = Clock::new();
    let (driver, _, _, handled) = leisurely(clock, false);
    let taken = || handled.recv_timeout(Wall::from_secs(5)).expect("handled");
    // It sleeps without end: it is woken.
    driver.command_by(clock.now() + Duration::from_secs(3_600), Time::NEVER).expect("taken");
    taken();
    let due = clock.now() + Duration::from_millis(300);
    driver.command(due).expect("taken");
    taken();
    // Until it is asleep.
    std::thread::sleep(Wall::from_millis(100));
    let asked = clock.now();
    driver.command_by(due + Duration::from_millis(1), Time::NEVER).expect("taken");
    let at = taken();
    assert!(at >= due || asked >= due, "handled at {at:?}, though it would wake at {due:?}");
    let far = clock.now() + Duration::from_secs(3_600);
    driver.command(far).expect("taken");
    taken();
    // It would wake too late.
    driver.command_by(far - Duration::from_secs(1), Time::NEVER).expect("taken");
    assert!(taken() < far);
}

#[test]
fn programs_at_a_multicast_address_all_get_what_is_sent_to_the_group() {
    let group = Ipv4Addr::new(239, 255, 77, 1);
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    if let Err(error) = probe.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED) {
        ontempo_testing::skip!("this machine has no route for multicast: {error}");
    }
    let first = at(group.into(), SocketOptions::default());
    let to = address(&first);
    let second = Socket::bind(to, SocketOptions::default()).expect("a second socket");
    let from = at(IpAddr::V4(Ipv4Addr::UNSPECIFIED), SocketOptions::default());
    from.send(&Transmit::to(to), b"picture").expect("sent");
    for member in [first, second] {
        let taken = take(&member, Clock::new(), 1);
        assert_eq!(taken.first().map(|one| one.data.as_slice()), Some(&b"picture"[..]));
    }
}
