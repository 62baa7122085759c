//! A web page whose pictures arrive piece by piece; see README.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use ontempo_web::{Site, SiteFile};
use ontempo_web_page::{Page, Picture, Visits};
use ontempo_window::{Arguments, FILES, Impairment, Trouble, run, serve};

/// A web page whose pictures arrive piece by piece, shown twice: in order and in any order, over a path that loses
/// and delays packets. Open the link that is printed in a browser.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    arguments: Arguments,
    /// A JPEG with restart markers, or a progressive one, in place of the pictures that the program has; several times
    /// for several.
    #[arg(long, value_name = "FILE")]
    picture: Vec<PathBuf>,
}

const TITLE: &str = "An evening over the hills";
const TEXT: &str = "Four pictures, each cut where a decoder can go on by itself: three at their restart markers, the last, \
                    a progressive one, between its scans. A piece is painted when it is delivered.";

/// The pictures of the program, drawn by `examples/image`.
const PICTURES: [(&str, &str, &[u8]); 4] = [
    (
        "meadow.jpg",
        "A meadow before hills, in the evening",
        include_bytes!("../pictures/meadow.jpg"),
    ),
    ("sun.jpg", "The sun above the hills", include_bytes!("../pictures/sun.jpg")),
    ("flowers.jpg", "Flowers in the grass", include_bytes!("../pictures/flowers.jpg")),
    (
        "hills.jpg",
        "Hills with trees, as a progressive picture",
        include_bytes!("../pictures/hills.jpg"),
    ),
];

fn site() -> Site {
    let own = [
        SiteFile::html(include_str!("../assets/index.html")),
        SiteFile::script("/load.js", include_str!("../assets/load.js")),
        SiteFile::script("/article.js", include_str!("../assets/article.js")),
        SiteFile::style("/load.css", include_str!("../assets/load.css")),
    ];
    Site { files: [&own[..], &FILES].concat(), sessions: "/load" }
}

fn read(path: &Path) -> Result<Picture, String> {
    let name = path.display().to_string();
    let jpeg = fs::read(path).map_err(|error| format!("--picture {name}: {error}"))?;
    let alt = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Picture { name: format!("--picture {name}"), alt, jpeg })
}

fn pictures(paths: &[PathBuf]) -> Result<Vec<Picture>, String> {
    if !paths.is_empty() {
        return paths.iter().map(|path| read(path)).collect();
    }
    let own = PICTURES.iter().map(|(name, alt, jpeg)| Picture {
        name: (*name).to_owned(),
        alt: (*alt).to_owned(),
        jpeg: jpeg.to_vec(),
    });
    Ok(own.collect())
}

fn main() -> ExitCode {
    let Options { arguments, picture } = Options::parse();
    run(|| {
        let pictures = pictures(&picture).map_err(Trouble::Input)?;
        let page =
            Page::new(TITLE, TEXT, &pictures).map_err(|error| Trouble::Input(error.to_string()))?;
        let visits = Visits::new(page, Impairment::default())?;
        serve(&arguments, site(), move |visit| visits.visit(visit))
    })
}
