//! What may be written on the command line.

mod adus;
mod deliver;
mod monitor;
mod probe;
mod qosockets;
mod rsvp;
mod wrap;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ontempo_kernel::Name;

pub(crate) use self::adus::{Adus, AdusCommand, AdusReceive, AdusSend};
pub(crate) use self::deliver::{Place, Receive, Repair, Send};
pub(crate) use self::monitor::{Export, Monitor};
pub(crate) use self::probe::{Probe, ProbeSpacing};
pub(crate) use self::qosockets::{
    At, Gateway, Netvideo, NetvideoCommand, Printed, Quality, Receiver, Service, Tg, TgCommand,
    Transport, Way,
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
  0    all went well
  2    the input is wrong: a scenario, an option, a folder without a run
  3    the environment is: an output that cannot be written, a full disk, tables of another version
  130  interrupted by Ctrl-C; finished runs are kept

Example:
  ontempo simulate dumbbell.toml --out run";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explain a scenario in words and draw its network, or say what is wrong with it
    #[command(after_help = "\
Example:
  ontempo check dumbbell.toml --set flows.video.count=30")]
    Check(Check),
    /// Simulate a scenario and write its result tables
    #[command(after_help = "\
Each run's folder holds its tables as Parquet, the traces asked for as pcapng, and run.json, which \
is written last: a folder without it holds no whole run. Runs that are in the way are overwritten.

Examples:
  ontempo simulate dumbbell.toml --out run --trace bottleneck
  ontempo simulate dumbbell.toml --out study --seeds 0..19 --set flows.video.count=30")]
    Simulate(Simulate),
    /// Run a scenario with real packets, in real time, between namespaces of this machine
    #[command(after_help = "\
Each host is a network namespace, ontempo-RUN-HOST, which is there as long as the run is. Needs the \
rights of root. What a killed run has left is removed by the next.

Example:
  sudo ontempo emulate dumbbell.toml --out run")]
    Emulate(Emulate),
    /// Open a shell, or run a command, in the network of one host of a scenario
    #[command(after_help = "\
The scenario's network carries packets; its flows do not run. Without a command, the hosts and their \
addresses are listed, and $SHELL is run.

Examples:
  sudo ontempo shell dumbbell.toml video.0.source
  sudo ontempo shell dumbbell.toml video.0.source -- ping -c 3 10.0.0.3")]
    Shell(Shell),
    /// Print the summary of finished runs again, from their tables
    #[command(after_help = "\
Example:
  ontempo summary study --json")]
    Summary(Summary),
    /// Measure a path to another machine: throughput and loss against the spacing of packets
    #[command(after_help = "\
Packets are sent to a receiver that has agreed (--listen on the other machine), at one spacing after \
the other, without encryption. Without spacing they fill the path: expect others to notice. Spacings \
psp and psp-damped adapt to the receiver's reports.

Examples:
  ontempo probe --listen :4434                                        # on one machine
  ontempo probe host.example:4434                                     # on the other
  ontempo probe host.example:4434 --spacing \"500 us,psp-damped\" --seconds 10 --json > path.json")]
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
MPEG-TS and RTP are cut into frames, sound and tables, each sent with its deadline; anything else goes \
datagram by datagram. A lost receiver is looked for; what a udp:// source sends meanwhile is dropped when \
the buffer is full, what is least wanted first.

Examples:
  ontempo send --from udp://:5000 --to host.example:4433 --fingerprint HEX --token secret
  ontempo send --from film.ts --realtime --to host.example:4433 --fingerprint HEX --latency '500 ms'
  ontempo send --from film.ts --to host.example:4433 --fingerprint HEX --qlog traces
  tar c folder | ontempo send --from - --to host.example:4433 --fingerprint HEX")]
    Send(Send),
    /// Receive media from `ontempo send` and hand it to a player, a file or a program
    #[command(after_help = "\
It prints the fingerprint by which senders know it. With a file or standard output it ends with the \
stream; with udp:// it goes on until Ctrl-C.

Examples:
  ontempo receive --listen :4433 --to udp://127.0.0.1:5001 --identity receiver.pem --token secret
  ontempo receive --listen :4433 --to film.ts --qlog traces
  ontempo receive --listen :4433 --to - | ffplay -")]
    Receive(Receive),
    /// Congestion control of this machine's kernel: load PERT, watch it, remove it
    #[command(after_help = "\
Examples:
  sudo ontempo kernel load pert
  sudo ontempo kernel status")]
    Kernel(Kernel),
    /// Show what the QoS sockets of this host ask for and get
    #[command(after_help = "\
On a terminal it is drawn anew twice a second, until Ctrl-C; elsewhere it is printed once.

Examples:
  ontempo monitor
  ontempo monitor --json --every '5 s'")]
    Monitor(Monitor),
    /// Quality of service for programs that know nothing of it
    #[command(after_help = "\
Example:
  ontempo qos run --spec video.toml -- iperf3 -c host.example")]
    Qos(Qos),
    /// Serve the figures of this host's QoS sockets to SNMP and to Prometheus, and reservations to SNMP
    #[command(after_help = "\
SNMP: as a sub-agent of net-snmp's snmpd or any other master agent, by AgentX (RFC 2741); the objects \
are those of mibs/ONTEMPO-QOS-MIB.txt, and each violation is a notification; of the RSVP daemon, where one \
runs, those of RSVP-MIB (RFC 2206) and INTEGRATED-SERVICES-MIB (RFC 2213). A master that goes away is \
looked for until it is back. Run as root, it makes the folder into which all users' processes report.

Examples:
  sudo ontempo export --agentx --prometheus 127.0.0.1:9464
  ontempo export --agentx=tcp:localhost:705
  snmptable -v2c -c public -m +ONTEMPO-QOS-MIB localhost ontempoQosSocketTable")]
    Export(Export),
    /// Speak RSVP for this host or router: reserve along the way of flows, enforce it by HTB
    #[command(after_help = "\
Needs the rights of root. SIGTERM tears down what this host's applications have asked for and removes \
all classes; after a crash, the next start takes them over. The file, and a network of four to try: \
docs/reservations.md

Example of a file:
  group = \"video\"                    # who may reserve, besides root
  [interfaces.eth1]
  rate = \"1.5 Mbit/s\"
  reservable = \"90 %\"

Example:
  sudo ontempo rsvpd /etc/ontempo/rsvpd.toml")]
    Rsvpd(Rsvpd),
    /// Ask this host's RSVP daemon: what is reserved, and for a reservation by hand
    #[command(after_help = "\
Example:
  ontempo rsvp status")]
    Rsvp(Rsvp),
    /// Send or receive frames of video with a quality of service, and count them
    #[command(after_help = "\
What is asked for where no --spec is given is what the paper on QoSockets asked for: 60 to 80 frames a \
second of at most 1,280 bytes within 100 ms, 5 % lost at most.

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
    /// Carry TCP connections of any client and server over a connection with a quality of service
    #[command(after_help = "\
The gateway near the clients has --to, the one near the server --server. Both ask for what --spec says of \
the way that --way names; without --spec they ask for nothing.

Examples:
  ontempo gateway --listen 127.0.0.1:8080 --to far.example:7070       # near the client
  ontempo gateway --listen 0.0.0.0:7070 --server 127.0.0.1:80         # near the server
  ontempo gateway --listen 0.0.0.0:7070 --server 127.0.0.1:80 --spec images.toml --way back")]
    Gateway(Gateway),
    /// Print the JSON Schema of the scenario file
    #[command(after_help = "\
Example:
  ontempo schema > scenario.schema.json")]
    Schema,
    /// Print the reference of the scenario file, as Markdown
    #[command(after_help = "\
Example:
  ontempo reference | less")]
    Reference,
}

/// The scenario and what is changed of it.
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
pub(crate) struct Simulate {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Folder that the results are written to, made where it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// What the random streams are drawn from; the scenario's own seed where not given
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    /// Several seeds, each with a folder DIR/seed-N: 0..19, or 0,3,5..7; both ends count
    #[arg(long, value_name = "LIST")]
    pub(crate) seeds: Option<Seeds>,
    /// Runs at once; as many as there are cores where not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// Write what crosses a link to LINK.pcapng; may be given several times
    #[arg(long, value_name = "LINK")]
    pub(crate) trace: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Emulate {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Folder that the results are written to, made where it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// What the random streams are drawn from; the scenario's own seed where not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
}

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// The scenario file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The host: GROUP.INDEX.source or GROUP.INDEX.sink, or a node of a graph
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The command to run there; $SHELL where not given
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// Set a value of the scenario; may be given several times
    #[arg(long = "set", value_name = "KEY.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
}

/// How the hosts of an emulation are made.
#[derive(Debug, Args)]
pub(crate) struct Hosts {
    /// Let flows use IPv6; hosts have addresses of both versions
    #[arg(long)]
    pub(crate) ipv6: bool,
    /// What the run is called in the names of its namespaces; a number where not given
    #[arg(long, value_name = "RUN", value_parser = run_name)]
    pub(crate) name: Option<String>,
}

/// A run's name, which becomes part of files' names.
fn run_name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if (1..=32).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err("a name of 1 to 32 letters, digits and underscores is needed".to_owned())
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
    /// Load a congestion control, which any program can choose from then on
    #[command(after_help = "\
It stays until it is unloaded or the machine is shut down. Every key of --set: docs/kernel.md

Examples:
  sudo ontempo kernel load pert
  sudo ontempo kernel load pert --as pert_slow --set t-min=\"10 ms\" --set t-max=\"20 ms\"
  iperf3 --client server.example --congestion pert")]
    Load(Load),
    /// List what is loaded, with the settings that are not the defaults
    #[command(after_help = "\
Example:
  sudo ontempo kernel list")]
    List(Json),
    /// Show what each socket's congestion control knows
    #[command(after_help = "\
Example:
  sudo ontempo kernel status pert --json")]
    Status(Status),
    /// Remove what was loaded
    #[command(after_help = "\
Example:
  sudo ontempo kernel unload pert")]
    Unload(Unload),
}

/// What can be loaded.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mechanism {
    /// PERT, early response to delay
    Pert,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// What to load
    pub(crate) mechanism: Mechanism,
    /// The name by which programs choose it
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
    /// The name it was loaded by; all that is loaded where not given
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<Name>,
    #[command(flatten)]
    pub(crate) output: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Unload {
    /// The name it was loaded by
    #[arg(value_name = "NAME", default_value = "pert")]
    pub(crate) name: Name,
    /// Remove it though sockets use it: they keep it until they close
    #[arg(long)]
    pub(crate) force: bool,
}
