//! The server of the viewers of a stream.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::certificate::Certificate;
use crate::hub::{Feed, Hub};
use crate::server::{ServerError, SiteOptions, SiteServer};
use crate::site::watch;

/// Options of a [`Server`].
#[derive(Debug)]
pub struct ServerOptions {
    /// Where to listen, with UDP and TCP; with port 0 the system chooses one.
    pub at: SocketAddr,
    /// The certificate; `None`: one is made, and anew each week.
    pub certificate: Option<Certificate>,
    /// Names of this host for the certificate that is made, which requests may name.
    pub names: Vec<String>,
    /// What viewers must present; `None`: anyone may watch.
    pub token: Option<String>,
    /// Origins whose pages may connect, beside the page served here: `https://example.org`.
    pub allowed_origins: Vec<String>,
    /// Viewers at a time.
    pub viewers: usize,
}

/// Serves the page and its viewers from a thread, until it is dropped.
pub struct Server {
    hub: Arc<Hub>,
    site: SiteServer,
}

impl Server {
    /// Listens and starts the thread.
    ///
    /// # Errors
    /// If the address is in use, or the certificate cannot be used.
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let hub = Arc::new(Hub::new(options.viewers));
        let ServerOptions { at, certificate, names, token, allowed_origins, .. } = options;
        let options = SiteOptions { at, certificate, names, token, allowed_origins, site: watch() };
        let site = SiteServer::start_with(options, Arc::new(Arc::clone(&hub)))?;
        Ok(Self { hub, site })
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.site.local()
    }

    /// As [`SiteServer::link`].
    pub fn link(&self, own_host: &str, token: &str) -> String {
        self.site.link(own_host, token)
    }

    /// Takes the stream for all viewers.
    pub fn feed(&self) -> Feed {
        Feed::new(Arc::clone(&self.hub))
    }

    /// Viewers at this moment.
    pub fn viewers(&self) -> usize {
        self.hub.viewers()
    }
}
