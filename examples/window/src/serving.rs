//! The program around a page.

use std::net::SocketAddr;
use std::process::ExitCode;

use ontempo_session::{own_host, random_token};
use ontempo_web::{BASE, CONNECT, Site, SiteFile, SiteOptions, SiteServer, Visit};

use crate::lane::LaneError;

/// Scripts and styles that both pages have beside their own.
pub const FILES: [SiteFile; 5] = [
    BASE,
    CONNECT,
    SiteFile::script("/visit.js", include_str!("../assets/visit.js")),
    SiteFile::script("/panel.js", include_str!("../assets/panel.js")),
    SiteFile::style("/window.css", include_str!("../assets/window.css")),
];

/// Options of both programs.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the page is served, over TCP and UDP. At the loopback it comes over HTTP, elsewhere over HTTPS with a
    /// certificate that is made here.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Visitors at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub visitors: u8,
}

/// Why a program ends.
#[derive(Debug)]
pub enum Trouble {
    /// An option is wrong.
    Input(String),
    /// The system has no sockets, or the address is in use.
    Environment(String),
}

impl From<LaneError> for Trouble {
    fn from(error: LaneError) -> Self {
        Self::Environment(error.to_string())
    }
}

/// Runs a program: what `start` starts, until it is ended from outside. Errors have the exit codes of `ontempo`.
pub fn run(start: impl FnOnce() -> Result<SiteServer, Trouble>) -> ExitCode {
    let (code, sentence) = match start() {
        Ok(_server) => loop {
            std::thread::park();
        },
        Err(Trouble::Input(sentence)) => (2, sentence),
        Err(Trouble::Environment(sentence)) => (3, sentence),
    };
    eprintln!("{sentence}");
    ExitCode::from(code)
}

/// Serves a page until the server is dropped, prints its link, and gives each visitor with the link to `visit`.
///
/// # Errors
/// If the address is in use.
pub fn serve(
    arguments: &Arguments,
    site: Site,
    visit: impl Fn(Visit) + Send + Sync + 'static,
) -> Result<SiteServer, Trouble> {
    let at = arguments.listen;
    let cannot =
        |error: &dyn std::fmt::Display| Trouble::Environment(format!("--listen {at}: {error}"));
    let (host, token) = (own_host(), random_token().map_err(|error| cannot(&error))?);
    let options = SiteOptions {
        at,
        certificate: None,
        names: vec!["localhost".to_owned(), host.clone()],
        token: Some(token.clone()),
        allowed_origins: Vec::new(),
        site,
    };
    let server = SiteServer::start(options, usize::from(arguments.visitors), visit);
    let server = server.map_err(|error| cannot(&error))?;
    println!("open {}", server.link(&host, &token));
    Ok(server)
}
