//! `ontempo kernel`: congestion control in this machine's kernel.

use ontempo_foundation::{Duration, Rate};
use ontempo_kernel::{Loaded, Mode, Settings, SocketStatus};
use serde_json::json;

use crate::arguments::{KernelCommand, Load, Mechanism, Status, Unload};
use crate::failure::Failure;
use crate::output::{emit, emit_json, table, write_stderr};

pub(crate) fn kernel(command: &KernelCommand) -> Result<(), Failure> {
    match command {
        KernelCommand::Load(arguments) => load(arguments),
        KernelCommand::List(arguments) => list(arguments.json),
        KernelCommand::Status(arguments) => status(arguments),
        KernelCommand::Unload(arguments) => unload(arguments),
    }
}

fn load(arguments: &Load) -> Result<(), Failure> {
    let Mechanism::Pert = arguments.mechanism;
    let settings = Settings::parse(arguments.set.iter().map(String::as_str))?;
    if ontempo_kernel::load(&arguments.name, &settings)? {
        write_stderr("the BPF file system was missing: mounted at /sys/fs/bpf");
    }
    emit(&format!("loaded `{}`", arguments.name))
}

fn list(as_json: bool) -> Result<(), Failure> {
    let all = ontempo_kernel::list()?;
    if as_json {
        let loaded: Vec<_> = all.iter().map(described).collect();
        return emit_json(&json!({ "loaded": loaded }));
    }
    if all.is_empty() {
        return emit("nothing is loaded");
    }
    let mut table = table(&["name", "sockets", "changed settings"], &[1]);
    for loaded in &all {
        let changed = changed(loaded.settings);
        table.add_row([
            loaded.name.to_string(),
            loaded.sockets.len().to_string(),
            if changed.is_empty() { "-".to_owned() } else { changed.join(", ") },
        ]);
    }
    emit(&table.trim_fmt())
}

fn status(arguments: &Status) -> Result<(), Failure> {
    let all = match &arguments.name {
        Some(name) => vec![Loaded::read(name)?],
        None => ontempo_kernel::list()?,
    };
    if arguments.output.json {
        let loaded: Vec<_> = all.iter().map(with_sockets).collect();
        return emit_json(&json!({ "loaded": loaded }));
    }
    if all.is_empty() {
        return emit("nothing is loaded");
    }
    let parts: Vec<String> = all.iter().map(sockets_table).collect();
    emit(&parts.join("\n\n"))
}

fn unload(arguments: &Unload) -> Result<(), Failure> {
    let users = ontempo_kernel::unload(&arguments.name, arguments.force)?;
    let note = match users {
        0 => String::new(),
        1 => "; 1 socket keeps it until it closes".to_owned(),
        _ => format!("; {users} sockets keep it until they close"),
    };
    emit(&format!("unloaded `{}`{note}", arguments.name))
}

/// The settings that differ from the defaults, as KEY=VALUE.
fn changed(settings: Settings) -> Vec<String> {
    let defaults = Settings::default().described();
    let pairs = settings.described().into_iter().zip(defaults);
    let changed = pairs.filter(|(is, default)| is != default);
    changed.map(|((key, value), _)| format!("{key}={value}")).collect()
}

/// One congestion control and its sockets, as a table.
fn sockets_table(loaded: &Loaded) -> String {
    let title = format!("{}: {} sockets", loaded.name, loaded.sockets.len());
    if loaded.sockets.is_empty() {
        return title;
    }
    let mut table = table(
        &[
            "local", "remote", "mode", "alpha", "curq", "maxq", "cwnd", "min RTT", "pacing",
            "early", "losses",
        ],
        &[3, 4, 5, 6, 7, 8, 9, 10],
    );
    for socket in &loaded.sockets {
        table.add_row([
            socket.local.to_string(),
            socket.remote.to_string(),
            mode(socket).to_owned(),
            format!("{:.2}", socket.alpha),
            milliseconds(socket.curq),
            milliseconds(socket.maxq),
            format!("{:.1}", socket.cwnd),
            milliseconds(socket.min_rtt),
            socket.pacing_rate.map_or_else(|| "-".to_owned(), megabits),
            socket.early_responses.to_string(),
            socket.losses.to_string(),
        ]);
    }
    format!("{title}\n\n{}", table.trim_fmt())
}

fn mode(socket: &SocketStatus) -> &'static str {
    match socket.mode {
        _ if socket.as_reno => "reno",
        Mode::HighSpeed => "high-speed",
        Mode::Safe => "safe",
        Mode::Compete => "compete",
    }
}

fn milliseconds(delay: Duration) -> String {
    format!("{:.2} ms", delay.as_secs_f64() * 1e3)
}

fn megabits(rate: Rate) -> String {
    format!("{:.2} Mbit/s", rate.as_mbit_per_sec())
}

fn described(loaded: &Loaded) -> serde_json::Value {
    let settings: serde_json::Map<_, _> = loaded
        .settings
        .described()
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    json!({
        "name": loaded.name.as_str(),
        "socket_count": loaded.sockets.len(),
        "settings": settings,
        "changed": changed(loaded.settings),
    })
}

fn with_sockets(loaded: &Loaded) -> serde_json::Value {
    let mut value = described(loaded);
    value["sockets"] = loaded.sockets.iter().map(socket).collect();
    value
}

fn socket(socket: &SocketStatus) -> serde_json::Value {
    json!({
        "namespace": socket.namespace,
        "local": socket.local.to_string(),
        "remote": socket.remote.to_string(),
        "mode": mode(socket),
        "alpha": socket.alpha,
        "curq_s": socket.curq.as_secs_f64(),
        "maxq_s": socket.maxq.as_secs_f64(),
        "cwnd_packets": socket.cwnd,
        "ssthresh_packets": socket.ssthresh,
        "srtt_s": socket.srtt.as_secs_f64(),
        "min_rtt_s": socket.min_rtt.as_secs_f64(),
        "loss_rate": socket.loss_rate,
        "response_rate": socket.response_rate,
        "early_responses": socket.early_responses,
        "losses": socket.losses,
        "timeouts": socket.timeouts,
        "pacing_rate_bps": socket.pacing_rate.map(Rate::as_bits_per_sec),
        "delivered_packets": socket.delivered,
    })
}
