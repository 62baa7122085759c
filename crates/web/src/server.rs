//! The thread that serves a page and its sessions.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use web_transport_noq::noq::crypto::rustls::QuicServerConfig;
use web_transport_noq::noq::{self, EndpointConfig, TokioRuntime};

use crate::certificate::{Certificate, CertificateError, is_due};
use crate::hub::lock;
use crate::pages::{self, Pages};
use crate::sessions::{self, Admission, Sessions, code, transport};
use crate::site::Site;
use crate::visit::{Visit, Visits};

/// How often a port is looked for that both UDP and TCP have free.
const ATTEMPTS: usize = 20;

/// How often the age of a certificate is looked at: the clock may be set, and stands still for `interval` while the machine
/// sleeps.
const LOOK: Duration = Duration::from_secs(60);

/// Options of a [`SiteServer`].
#[derive(Debug)]
pub struct SiteOptions {
    /// Where to listen, with UDP and TCP; with port 0 the system chooses one.
    pub at: SocketAddr,
    /// The certificate; `None`: one is made, and anew each week.
    pub certificate: Option<Certificate>,
    /// Names of this host for the certificate that is made, which requests may name.
    pub names: Vec<String>,
    /// What visitors must present; `None`: anyone may come.
    pub token: Option<String>,
    /// Origins whose pages may connect, beside the page served here: `https://example.org`.
    pub allowed_origins: Vec<String>,
    /// The page.
    pub site: Site,
}

/// Why there is no server.
#[derive(Debug)]
pub enum ServerError {
    /// No socket, or no thread.
    Io(io::Error),
    /// No certificate.
    Certificate(CertificateError),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Certificate(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ServerError {}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<CertificateError> for ServerError {
    fn from(error: CertificateError) -> Self {
        Self::Certificate(error)
    }
}

/// Serves a page and its sessions from a thread, until it is dropped.
#[derive(Debug)]
pub struct SiteServer {
    local: SocketAddr,
    is_plain: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SiteServer {
    /// Listens and starts the thread. Each visitor whose token is right is given to `visit`, with a thread of its own,
    /// as long as there are not more than `places` of them.
    ///
    /// # Errors
    /// If the address is in use, or the certificate cannot be used.
    pub fn start(
        options: SiteOptions,
        places: usize,
        visit: impl Fn(Visit) + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        Self::start_with(options, Arc::new(Visits::new(places, visit)))
    }

    pub(crate) fn start_with(
        options: SiteOptions,
        sessions: Arc<dyn Sessions>,
    ) -> Result<Self, ServerError> {
        let (udp, tcp) = sockets(options.at)?;
        let local = udp.local_addr()?;
        // A page over plain HTTP may use WebTransport and WebCodecs only at the loopback.
        let is_plain = options.certificate.is_none() && local.ip().is_loopback();
        let certificate = match options.certificate {
            Some(certificate) => certificate,
            None => Certificate::make(&options.names)?,
        };
        let hosts = certificate.hash().is_some().then(|| {
            let of_origin = |origin: &String| {
                let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
                host.split(':').next().unwrap_or_default().to_owned()
            };
            let of_origins = options.allowed_origins.iter().map(of_origin);
            options.names.iter().cloned().chain(of_origins).collect()
        });
        let site = options.site;
        let pages = Arc::new(Pages { site, hash: Mutex::new(certificate.hash()), hosts });
        let admission = Admission::new(options.token.as_deref(), options.allowed_origins);
        let serving = Serving {
            sessions,
            pages,
            admission: Arc::new(admission),
            quic: quic_config(&certificate)?,
            tls: match is_plain {
                true => None,
                false => Some(Arc::new(Mutex::new(acceptor(&certificate)?))),
            },
            names: options.names,
        };
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("visitors".to_owned()).spawn(move || {
            run(serving, udp, tcp, stopped, &tell);
        })?;
        let server = Self { local, is_plain, stop: Some(stop), thread: Some(thread) };
        match told.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(io::Error::other("the thread of the page ended").into()),
        }
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The scheme of the page: `https`, or `http` at the loopback without a certificate of its own.
    fn scheme(&self) -> &'static str {
        if self.is_plain { "http" } else { "https" }
    }

    /// The link to the page for who presents `token`. `own_host`, a name or an address of this host, stands for the address
    /// where it listens at all.
    pub fn link(&self, own_host: &str, token: &str) -> String {
        let host = match self.local.ip() {
            ip if ip.is_unspecified() => own_host.to_owned(),
            ip => ip.to_string(),
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        format!("{}://{host}:{}/#token={token}", self.scheme(), self.local.port())
    }
}

impl Drop for SiteServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread serves.
struct Serving {
    sessions: Arc<dyn Sessions>,
    pages: Arc<Pages>,
    admission: Arc<Admission>,
    quic: noq::ServerConfig,
    tls: Option<Arc<Mutex<TlsAcceptor>>>,
    names: Vec<String>,
}

/// Two sockets of one port.
fn sockets(at: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let udp = UdpSocket::bind(at)?;
        match TcpListener::bind(udp.local_addr()?) {
            Err(error)
                if at.port() == 0
                    && error.kind() == ErrorKind::AddrInUse
                    && attempts < ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(tcp) => {
                tcp.set_nonblocking(true)?;
                return Ok((udp, tcp));
            }
        }
    }
}

fn quic_config(certificate: &Certificate) -> Result<noq::ServerConfig, ServerError> {
    let tls = certificate.config(&[web_transport_noq::ALPN.as_bytes()])?;
    let crypto = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport())).max_incoming(256);
    Ok(config)
}

fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor, ServerError> {
    Ok(TlsAcceptor::from(Arc::new(certificate.config(&[b"http/1.1"])?)))
}

fn run(
    serving: Serving,
    udp: UdpSocket,
    tcp: TcpListener,
    stopped: oneshot::Receiver<()>,
    tell: &std::sync::mpsc::SyncSender<io::Result<()>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let config = EndpointConfig::default();
        let quic = Some(serving.quic.clone());
        let endpoint = noq::Endpoint::new(config, quic, udp, Arc::new(TokioRuntime));
        let both =
            endpoint.and_then(|endpoint| Ok((endpoint, tokio::net::TcpListener::from_std(tcp)?)));
        let (endpoint, listener) = match both {
            Ok(both) => both,
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        let _ = tell.send(Ok(()));
        let pages = pages::serve(listener, serving.tls.clone(), Arc::clone(&serving.pages));
        let sessions = sessions::serve(
            endpoint.clone(),
            Arc::clone(&serving.pages),
            Arc::clone(&serving.sessions),
            Arc::clone(&serving.admission),
        );
        tokio::select! {
            _ = pages => {}
            () = sessions => {}
            () = renew(&serving, &endpoint) => {}
            _ = stopped => {}
        }
        endpoint.close(noq::VarInt::from_u32(code::ENDING), b"the server ends");
        let _ = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    });
    runtime.shutdown_background();
}

/// Replaces a certificate that was made here before it expires; sessions that are open go on.
async fn renew(serving: &Serving, endpoint: &noq::Endpoint) {
    if lock(&serving.pages.hash).is_none() {
        return std::future::pending().await;
    }
    let mut made = SystemTime::now();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = SystemTime::now();
        if !is_due(made, now) {
            continue;
        }
        // Without a new one the old one is kept, which is mostly valid for almost another week.
        let Ok(certificate) = Certificate::make(&serving.names) else { continue };
        let Ok(quic) = quic_config(&certificate) else { continue };
        if let Some(tls) = &serving.tls
            && let Ok(new) = acceptor(&certificate)
        {
            *lock(tls) = new;
        }
        endpoint.set_server_config(Some(quic));
        *lock(&serving.pages.hash) = certificate.hash();
        made = now;
    }
}
