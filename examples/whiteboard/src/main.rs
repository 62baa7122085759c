//! A whiteboard that several people share; see README.md.

use std::process::ExitCode;

use clap::Parser;
use ontempo_web::{Site, SiteFile};
use ontempo_whiteboard::Room;
use ontempo_window::{Arguments, FILES, Impairment, run, serve};

/// A whiteboard that several people share, shown twice: in order and in partial order, over a path that loses and
/// delays packets. Open the link that is printed in two browsers.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    arguments: Arguments,
}

fn site() -> Site {
    let own = [
        SiteFile::html(include_str!("../assets/index.html")),
        SiteFile::script("/board.js", include_str!("../assets/board.js")),
        SiteFile::script("/paint.js", include_str!("../assets/paint.js")),
        SiteFile::script("/tools.js", include_str!("../assets/tools.js")),
        SiteFile::style("/board.css", include_str!("../assets/board.css")),
    ];
    Site { files: [&own[..], &FILES].concat(), sessions: "/board" }
}

fn main() -> ExitCode {
    let Options { arguments } = Options::parse();
    run(|| {
        let room = Room::new(Impairment::default())?;
        serve(&arguments, site(), move |visit| room.visit(visit))
    })
}
