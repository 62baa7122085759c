//! The page of `ontempo receive --serve`: who has its link watches the stream in a browser.
//!
//! A [`Feed`] takes the datagrams of a transport stream as they are due, finds the pictures and the sound in
//! them, and hands them to all viewers. Each viewer has a WebTransport session, and a queue of bounded size from which
//! whole pictures are left out where the session is too slow. The page, its script and its style are in the
//! program; they decode with WebCodecs and draw each picture at its time.
//!
//! A [`SiteServer`] serves other pages in the same way: who has the link of one has a [`Visit`], with messages both ways. The
//! examples `whiteboard` and `page` are such.
//!
//! WebTransport, HTTP and TLS are libraries' (`web-transport-noq`, `hyper`, `rustls`). They run in a thread of
//! their own, and hold nothing of the thread that receives.

mod certificate;
mod frame;
mod hub;
mod pages;
mod places;
mod queue;
mod server;
mod sessions;
mod site;
mod viewers;
mod visit;

pub use certificate::{Certificate, CertificateError};
pub use hub::{Feed, StreamTiming};
pub use server::{ServerError, SiteOptions, SiteServer};
pub use site::{BASE, CONNECT, Site, SiteFile};
pub use viewers::{Server, ServerOptions};
pub use visit::{MAX_MESSAGE, Visit, VisitSender};
