//! The files of a page.

/// A file that is served.
#[derive(Clone, Copy, Debug)]
pub struct SiteFile {
    /// Where: `/` or `/page.js`.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub kind: &'static str,
    /// Its bytes.
    pub body: &'static [u8],
}

impl SiteFile {
    /// The page itself, at `/`.
    pub const fn html(text: &'static str) -> Self {
        Self { path: "/", kind: "text/html; charset=utf-8", body: text.as_bytes() }
    }

    /// A style sheet.
    pub const fn style(path: &'static str, text: &'static str) -> Self {
        Self { path, kind: "text/css; charset=utf-8", body: text.as_bytes() }
    }

    /// A script.
    pub const fn script(path: &'static str, text: &'static str) -> Self {
        Self { path, kind: "text/javascript; charset=utf-8", body: text.as_bytes() }
    }
}

/// The script that connects a page to its server: `connect(path, token)` is a WebTransport that is not ready yet.
pub const CONNECT: SiteFile = SiteFile::script("/connect.js", include_str!("../assets/connect.js"));

/// Colours and type of all pages: their styles import it.
pub const BASE: SiteFile = SiteFile::style("/base.css", include_str!("../assets/base.css"));

/// A page: its files, and where its sessions are.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its files; `config.json` is there beside them.
    pub files: Vec<SiteFile>,
    /// The path of its WebTransport sessions.
    pub sessions: &'static str,
}

/// The page of `ontempo receive --serve`.
pub(crate) fn watch() -> Site {
    let files = vec![
        SiteFile::html(include_str!("../assets/index.html")),
        BASE,
        SiteFile::style("/page.css", include_str!("../assets/page.css")),
        SiteFile::script("/page.js", include_str!("../assets/page.js")),
        CONNECT,
        SiteFile::script("/session.js", include_str!("../assets/session.js")),
        SiteFile::script("/codecs.js", include_str!("../assets/codecs.js")),
        SiteFile::script("/playout.js", include_str!("../assets/playout.js")),
        SiteFile::script("/sound.js", include_str!("../assets/sound.js")),
    ];
    Site { files, sessions: "/watch" }
}
