//! The relay of moq-dev in this process, and the program.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use moq_relay::{Config, Relay};
use serde_json::Value;

/// The relay, for as long as its runtime lives.
pub(crate) struct Running {
    runtime: Option<tokio::runtime::Runtime>,
    port: u16,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_at(free_port_of_both(), Duration::from_secs(10))
    }

    /// At this port; a connection over which nothing has come for so long is lost.
    pub(crate) fn start_at(port: u16, idle: Duration) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mut config = Config::default();
        config.quic.idle_timeout = idle;
        // The player asks HTTP at the same port for the certificate's digest.
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        config.listen.bind = Some(address.to_string().parse().expect("an address"));
        config.web.http.listen = Some(address);
        config.listen.tls.generate = vec!["localhost".to_owned()];
        config.auth.public = vec![moq_auth::Pattern::all()];
        let relay = runtime.block_on(Relay::load(config)).expect("the relay starts");
        let port = relay.quic_addr().expect("QUIC").port();
        runtime.spawn(async move { relay.with_signals(false).run().await });
        Self { runtime: Some(runtime), port }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("moq://127.0.0.1:{}/live/{name}", self.port)
    }

    /// As the player for the web has it.
    pub(crate) fn web(&self) -> String {
        format!("http://127.0.0.1:{}/live", self.port)
    }

    /// Goes away without a word.
    pub(crate) fn end(mut self) {
        self.runtime.take().expect("it runs").shutdown_background();
    }
}

/// A folder of this test, removed at its end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ontempo-moq-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that does not outlive the test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    pub(crate) fn interrupt(&self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    }

    pub(crate) fn events(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().expect("its output"))
    }
}

pub(crate) fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ontempo-moq"));
    command.args(words).stdin(Stdio::null());
    command
}

pub(crate) fn started(words: &[&str]) -> Killed {
    let mut command = program(words);
    Killed(command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("it starts"))
}

/// Waits for an event of `--json`.
pub(crate) fn event(events: &mut BufReader<ChildStdout>, name: &str) -> Value {
    loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).expect("a line") > 0, "it ended before `{name}`");
        let document: Value = serde_json::from_str(&line).expect("JSON");
        if document["event"] == name {
            return document;
        }
    }
}

pub(crate) fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("an address").port()
}

/// A port that neither TCP nor UDP uses.
pub(crate) fn free_port_of_both() -> u16 {
    let free = (0..100).find_map(|_| {
        let port = free_port();
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    free.expect("a port")
}
