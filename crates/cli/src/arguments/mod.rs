//! The command line: subcommands, options and their help texts.

mod adus;
mod deliver;
mod emulate;
mod media;
mod monitor;
mod page;
mod probe;
mod profiles;
mod qosockets;
mod rsvp;
mod wrap;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ontempo_kernel::Name;

pub(crate) use self::adus::{Adus, AdusCommand, AdusReceive, AdusSend};
pub(crate) use self::deliver::{
    Admission, Credentials, MAX_BROWSERS, Page, PathsArgument, Place, Receive, Relay, Repair, Send,
    Serve,
};
pub(crate) use self::emulate::{Emulate, Hosts, Link, Shell, is_run_name};
pub(crate) use self::media::Media;
pub(crate) use self::monitor::{Export, Monitor, SortBy, Top};
pub(crate) use self::page::Show;
pub(crate) use self::probe::{Probe, ProbeSpacing};
pub(crate) use self::profiles::Profiles;
pub(crate) use self::qosockets::{
    At, BetweenGateways, Gateway, Netvideo, NetvideoCommand, OutputOptions, Quality, Receiver,
    Service, Tg, TgCommand, Transport,
};
pub(crate) use self::rsvp::{
    Announce, Bucket, FlowOptions, Reserve, ReserveStyle, Rsvp, RsvpCommand, Rsvpd,
};
pub(crate) use self::wrap::{FlowDirection, Qos, QosCommand, WrappedRun};
use crate::seeds::Seeds;

/// Will this media arrive on time, over this network, with this transport?
#[derive(Debug, Parser)]
#[command(name = "ontempo", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
0    success
  2    input error: a scenario, an option, a folder without a run
  3    environment error: an output that cannot be written, a full disk, tables of another version
  130  interrupted by Ctrl-C; finished runs are kept

Example:
  ontempo simulate dumbbell.toml --out run";

/// Arguments for ontempo-moq.
#[derive(Debug, Args)]
pub(crate) struct MoqArguments {
    /// moq://HOST/PATH/NAME, with a port behind the host if it is not 443, and options of ontempo-moq
    #[arg(value_name = "URL|OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Validate a scenario, describe it and draw its network
    #[command(after_help = "\
Example:
  ontempo check dumbbell.toml --set flows.video.count=30")]
    Check(Check),
    /// Simulate a scenario and write its result tables
    #[command(after_help = "\
Each run's folder holds its tables (Parquet), its traces (pcapng) and run.json, which is written \
last: a folder without it holds no complete run. Existing runs are overwritten.

Examples:
  ontempo simulate dumbbell.toml --out run --trace bottleneck
  ontempo simulate dumbbell.toml --out study --seeds 0..19 --set flows.video.count=30")]
    Simulate(Simulate),
    /// Run a scenario with real packets, in real time, between network namespaces of this machine
    #[command(after_help = "\
Each host is a network namespace, ontempo-RUN-HOST, removed at the end of the run. Needs root. \
The next run removes what a killed run has left behind.

With --control, `ontempo link` changes links while it runs, and the run's folder has repeat.toml: the \
scenario with these changes, each at its time.

Examples:
  sudo ontempo emulate dumbbell.toml --out run --trace bottleneck
  sudo ontempo emulate dumbbell.toml --out study --seeds 1..4
  sudo ontempo emulate dumbbell.toml --out run --name demo --control
  sudo ontempo emulate run/repeat.toml --out again")]
    Emulate(Emulate),
    /// List or change the links of a running emulation
    #[command(after_help = "\
For an emulation that was started with --control, by root or the user who started it. RUN is its name; it may be \
left out where only one runs. A change holds from a few milliseconds later on, and does what the same change in \
[[events]] of the scenario does: packets that wait then leave at the new rate, and those on the wire keep \
their delay. Without a setting, the present values are listed.

Examples:
  sudo ontempo emulate dumbbell.toml --out run --name demo --control     # in one terminal
  sudo ontempo link demo                                                 # in another
  sudo ontempo link demo bottleneck rate=\"2 Mbit/s\" delay=\"40 ms\" loss=0.01
  sudo ontempo link bottleneck rate=\"0 bit/s\"                          # nothing leaves
  sudo ontempo link --json")]
    Link(Link),
    /// Open a shell, or run a command, on one host of a scenario's network, or of a running emulation
    #[command(after_help = "\
With the name of a running emulation (--name of `ontempo emulate`, else the number in the names of its \
namespaces) the command runs in a host of it, beside its flows, until the emulation ends. Otherwise \
the first argument is a scenario's file: its network is set up and carries packets, its flows do not run. A \
file that is called as a running emulation is given as ./NAME. Without a command, the hosts are \
listed and $SHELL is started.

Examples:
  sudo ontempo shell dumbbell.toml video.0.source
  sudo ontempo shell dumbbell.toml video.0.source -- ping -c 3 10.0.0.3
  sudo ontempo shell demo video.0.source -- ss -tin")]
    Shell(Shell),
    /// Put a scenario's path between any two UDP programs, in real time, without root
    #[command(after_help = ontempo_impair::impair_help!("ontempo impair"))]
    Impair(ontempo_impair::program::Arguments),
    /// Print the summary of finished runs from their tables
    #[command(after_help = "\
Example:
  ontempo summary study --json")]
    Summary(Summary),
    /// Write one HTML page with the figures and charts of one or several runs
    #[command(after_help = "\
The page is one file that needs no network: rates beside the capacity, queue, losses by cause, windows, \
round trips, delays of units and packets, events. What a run did not record is listed on it, with the \
line of the scenario that records it. A page of an earlier call is replaced; no other file is, without \
--force.

Examples:
  ontempo show run --open
  ontempo show reno cubic pert --output compared.html
  ontempo show traces/4f1d_client.sqlog")]
    Show(Show),
    /// Measure a path to another machine: throughput and loss against packet spacing, or its
    /// network trace
    #[command(after_help = "\
Packets are sent to a receiver that consents (--listen on the other machine), at one spacing after \
the other, not encrypted. Spacing 0 saturates the path and disturbs other traffic. Spacings psp and \
psp-damped adapt to the receiver's reports.

With --trace the path is kept busy: all of its rate is used, up to --max-rate, and its queue is about \
60 ms long, for the whole time. Its rate, delay and loss on the way to the receiver are written when \
it ends; Ctrl-C keeps what was recorded (docs/recording.md).

Examples:
  ontempo probe --listen :4434                                        # on one machine
  ontempo probe host.example:4434                                     # on the other
  ontempo probe host.example:4434 --spacing \"500 us,psp-damped\" --seconds 10 --json > path.json
  ontempo probe host.example:4434 --trace up.csv --seconds 60")]
    Probe(Probe),
    /// Send or receive application data units and print the times of each
    /// (docs/experiments-rr3216.md)
    #[command(
        hide = true,
        after_help = "\
Examples:
  ontempo adus receive --listen :4435                                 # on one machine
  ontempo adus send host.example:4435                                 # on the other"
    )]
    Adus(Adus),
    /// Send media to `ontempo receive` on another machine, on time and encrypted
    #[command(after_help = "\
MPEG-TS and RTP are split into units (frames, sound, tables), each sent with its deadline; other input is \
sent datagram by datagram. If the receiver is lost, the sender reconnects; meanwhile a udp:// source fills the \
buffer, and when it is full, units of the lowest priority are dropped first.

`ontempo receive` prints the URL, with a token in it. Other users of this machine see it in ps: among them, \
leave # and the token out of the URL and put the token into --token-file or $ONTEMPO_TOKEN.

Examples:
  ontempo send --from udp://:5000 --to ontempo://host.example:4433/FINGERPRINT#TOKEN
  ontempo send --from film.ts --realtime --to ontempo://host.example:4433/FINGERPRINT#TOKEN --reliability deadline
  ontempo send --from film.ts --to host.example:4433 --fingerprint HEX --token-file token --qlog traces
  ontempo send --from udp://:5000 --to ontempo://line.example:4433/FINGERPRINT#TOKEN --to mobile.example:4433 --paths failover
  tar c folder | ontempo send --from - --to ontempo://host.example:4433/FINGERPRINT#TOKEN")]
    Send(Send),
    /// Receive media from `ontempo send` and pass it to a player, a file or a program
    #[command(after_help = "\
Prints the command line of its sender: a URL with its fingerprint, by which the sender verifies it, and with \
a random token, without which it admits nobody. With a file or standard output it receives one stream and \
ends with it; with udp:// it runs until Ctrl-C.

Examples:
  ontempo receive --listen :4433 --to udp://127.0.0.1:5001
  ontempo receive --listen :4433 --to udp://127.0.0.1:5001 --identity receiver.pem --token-file token
  ontempo receive --listen :4433 --to film.ts --overwrite --qlog traces
  ontempo receive --listen :4433 --to - --qr | ffplay -")]
    Receive(Receive),
    /// Give what `ontempo send` sends to many receivers, to each what its path bears
    #[command(after_help = "\
Prints two command lines: that of the source, and that of receivers, which call the relay. Each has a token of \
its own; that of receivers cannot send. A receiver begins at a key frame. One that is slow gets fewer frames, \
and slows down neither the source nor others.

Examples:
  ontempo relay --listen :4433
  ontempo relay --listen :4433 --identity relay.pem --token-file token --viewers-token-file viewers
  ontempo relay --listen :4433 --serve :8443
  ontempo send --from udp://:5000 --to ontempo://relay.example:4433/FINGERPRINT#TOKEN
  ontempo receive --from ontempo://relay.example:4433/FINGERPRINT#TOKEN --to udp://127.0.0.1:5001")]
    Relay(Relay),
    /// Publish a stream at a relay for Media over QUIC (ontempo-moq)
    #[command(
        disable_help_flag = true,
        after_help = "\
`ontempo publish --help` shows the options of ontempo-moq, which does it.

Example:
  ontempo publish moq://relay.example/anon/film.hang --from udp://:5000"
    )]
    Publish(MoqArguments),
    /// Get a stream from a relay for Media over QUIC (ontempo-moq)
    #[command(
        disable_help_flag = true,
        after_help = "\
`ontempo subscribe --help` shows the options of ontempo-moq, which does it.

Example:
  ontempo subscribe moq://relay.example/anon/film.hang --to udp://127.0.0.1:5001"
    )]
    Subscribe(MoqArguments),
    /// Congestion control in this machine's kernel: load PERT, monitor it, unload it
    #[command(after_help = "\
Examples:
  sudo ontempo kernel load pert
  sudo ontempo kernel status")]
    Kernel(Kernel),
    /// One look at this host: what it sends, receives and relays, its QoS sockets and reservations
    #[command(after_help = "\
On a terminal a screen with the rates of the last minute, refreshed each second: q or Ctrl-C ends, s sorts by \
the next column, the arrow keys scroll. Elsewhere one table. Figures of other users' programs are shown where \
`ontempo export` runs as root, or where this user is root. NO_COLOR=1 shows no colours. Columns: docs/top.md

Examples:
  ontempo top
  ontempo top --once
  ontempo top --json | jq '.senders[] | {name, output_bps, loss}'")]
    Top(Top),
    /// Show the QoS sockets of this host: specification, delivery, reservation
    #[command(after_help = "\
On a terminal the table is refreshed until Ctrl-C; elsewhere it is printed once.

Examples:
  ontempo monitor
  ontempo monitor --json --every '5 s'")]
    Monitor(Monitor),
    /// Quality of service for unmodified programs
    #[command(after_help = "\
Example:
  ontempo qos run --spec video.toml -- iperf3 -c host.example")]
    Qos(Qos),
    /// Export statistics of this host's QoS sockets and reservations to SNMP and Prometheus, and what
    /// it sends, receives and relays to Prometheus
    #[command(after_help = "\
SNMP: a subagent of net-snmp's snmpd or another AgentX master agent (RFC 2741). It serves \
mibs/ONTEMPO-QOS-MIB.txt and sends a notification for each violation; if an RSVP daemon runs, also \
RSVP-MIB (RFC 2206) and INTEGRATED-SERVICES-MIB (RFC 2213). It reconnects when the master agent \
restarts. Run as root, it creates the folder into which the processes of all users report.

Examples:
  sudo ontempo export --agentx --prometheus 127.0.0.1:9464
  ontempo export --agentx=tcp:localhost:705
  snmptable -v2c -c public -m +ONTEMPO-QOS-MIB localhost ontempoQosSocketTable")]
    Export(Export),
    /// RSVP daemon of this host or router: reserves along the path of flows, enforces with HTB
    #[command(after_help = "\
Needs root. SIGTERM tears down the reservations of this host's applications and removes all classes; \
after a crash, the next start takes them over. Configuration file, and an example network of four \
nodes: docs/reservations.md

Example of a file:
  group = \"video\"                    # who may reserve, besides root
  [interfaces.eth1]
  rate = \"1.5 Mbit/s\"
  reservable = \"90 %\"

Example:
  sudo ontempo rsvpd /etc/ontempo/rsvpd.toml
  sudo ontempo rsvpd /etc/ontempo/rsvpd.toml --trust-network     # a router without keys")]
    Rsvpd(Rsvpd),
    /// Query this host's RSVP daemon, or make a reservation by hand
    #[command(after_help = "\
Example:
  ontempo rsvp status")]
    Rsvp(Rsvp),
    /// Send or receive video frames over QoS sockets and measure their delivery
    #[command(after_help = "\
Default specification, from the QoSockets paper: 60 to 80 frames a second of at most 1,280 bytes, \
delay at most 100 ms, loss at most 5 %.

Examples:
  ontempo netvideo receive --listen 0.0.0.0:5004                      # on one machine
  ontempo netvideo send host.example:5004 --seconds 30                # on the other")]
    Netvideo(Netvideo),
    /// Send or receive messages at a rate, to load a path
    #[command(after_help = "\
Examples:
  ontempo tg receive --listen 0.0.0.0:5005 --over udp
  ontempo tg send host.example:5005 --over udp --rate '65.9 messages/s'   # 540 kbit/s")]
    Tg(Tg),
    /// Carry TCP connections of any client and server over a QoS socket
    #[command(after_help = "\
The gateway near the clients is started with --to, the one near the server with --server. Both request \
--spec for the directions of --direction; without --spec they request nothing.

Between the gateways is QUIC, encrypted: the gateway near the server prints the line that the other one is \
started with, and admits only those with its token. With --over tcp nothing is encrypted or authenticated: \
whoever reaches the gateway near the server reaches the server, and it listens at an address other than a \
loopback only with --anyone; so does a gateway near the client, in either case.

Examples:
  ontempo gateway --listen 10.0.0.2:7070 --server 127.0.0.1:80                # near the server
  ontempo gateway --listen 127.0.0.1:8080 --to ontempo://10.0.0.2:7070/FINGERPRINT#TOKEN    # near the client
  ontempo gateway --listen 10.0.0.2:7070 --server 127.0.0.1:80 --spec images.toml --direction receive
  ontempo gateway --listen 127.0.0.1:8080 --to 10.0.0.2:7070 --over tcp       # over a tunnel, say")]
    Gateway(Gateway),
    /// List the link profiles (LTE, satellite, Wi-Fi, …), show one, or write what it generates
    #[command(after_help = "\
A link of a scenario has the values of a technology with profile = \"lte-driving\". Where the values come \
from: docs/profiles.md

Examples:
  ontempo profiles
  ontempo profiles lte-driving
  ontempo profiles lte-driving --seconds 60 --csv lte.csv")]
    Profiles(Profiles),
    /// Show what the frames of a film are like, and write their table: times, types, sizes, dependencies
    #[command(after_help = "\
A transport stream is read directly, other files by way of ffmpeg. With --generate the film is made up. \
Columns, parameters, and how dependencies are told: docs/media.md

Examples:
  ontempo media film.ts
  ontempo media film.mp4 --frames film.csv
  ontempo media --generate rate=4M,key=50,b=3,duration=20s --frames made.csv")]
    Media(Media),
    /// Print the JSON Schema of the scenario file
    #[command(after_help = "\
Example:
  ontempo schema > scenario.schema.json")]
    Schema,
    /// Print the reference of the scenario file, of the result tables or of the link profiles, as
    /// Markdown
    #[command(after_help = "\
Examples:
  ontempo reference | less
  ontempo reference tables | less")]
    Reference(Reference),
    /// Write the manual pages, and the completions of bash, zsh and fish
    #[command(after_help = "\
Example:
  ontempo manual ~/.local/share")]
    Manual {
        /// Folder for man/man1 and for each shell's completions
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// The scenario file and its overrides.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The scenario file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Set a value of the scenario; may be given several times
    #[arg(long = "set", value_name = "KEY.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) input: Input,
}

#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// Of what
    #[arg(value_enum, default_value = "scenario")]
    pub(crate) of: Documented,
}

/// What has a reference.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Documented {
    /// The scenario file
    Scenario,
    /// The tables in a run's folder
    Tables,
    /// The link profiles
    Profiles,
}

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Folder for the results, created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Seed of the random streams; default: the scenario's seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    /// Several seeds, each run in a folder DIR/seed-N: 0..19 (inclusive), or 0,3,5..7
    #[arg(long, value_name = "LIST")]
    pub(crate) seeds: Option<Seeds>,
    /// Number of parallel runs; default: number of cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// Run it even if it is estimated to take more memory than is free, or more than a day
    #[arg(long)]
    pub(crate) any_size: bool,
    /// Capture the packets of a link in LINK.pcapng; may be given several times
    #[arg(long, value_name = "LINK")]
    pub(crate) trace: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Summary {
    /// Folder of a run, or of a study with its folders seed-N
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Kernel {
    #[command(subcommand)]
    pub(crate) command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// Load a congestion control, which any program can then select
    #[command(after_help = "\
It stays loaded until unloaded or until shutdown. Keys of --set: docs/kernel.md

Examples:
  sudo ontempo kernel load pert
  sudo ontempo kernel load pert --as pert_slow --set t-min=\"10 ms\" --set t-max=\"20 ms\"
  iperf3 --client server.example --congestion pert")]
    Load(Load),
    /// List loaded congestion controls, with settings that differ from the defaults
    #[command(after_help = "\
Example:
  sudo ontempo kernel list")]
    List(Json),
    /// Show the congestion control state of each socket
    #[command(after_help = "\
Example:
  sudo ontempo kernel status pert --json")]
    Status(Status),
    /// Unload a congestion control
    #[command(after_help = "\
Example:
  sudo ontempo kernel unload pert")]
    Unload(Unload),
}

/// Congestion controls that can be loaded.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mechanism {
    /// PERT, early response to delay
    Pert,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// The congestion control
    pub(crate) mechanism: Mechanism,
    /// The name by which programs select it
    #[arg(long = "as", value_name = "NAME", default_value = "pert")]
    pub(crate) name: Name,
    /// Set a parameter; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Json {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The name it was loaded under; default: all that are loaded
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<Name>,
    #[command(flatten)]
    pub(crate) output: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Unload {
    /// The name it was loaded under
    #[arg(value_name = "NAME", default_value = "pert")]
    pub(crate) name: Name,
    /// Unload it even if sockets use it; they keep it until they close
    #[arg(long)]
    pub(crate) force: bool,
}
