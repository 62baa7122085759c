//! The page over HTTP: its files, and one that says how to reach its sessions.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::hub::lock;
use crate::places::Places;
use crate::site::Site;

/// Connections at a time; a newcomer beyond it is closed.
const MAX_CONNECTIONS: usize = 128;

/// Time limit for a connection, from its beginning to its last answer.
const CONNECTION: Duration = Duration::from_secs(20);

/// Maximum bytes of a request's head; the least that hyper takes.
const MAX_HEAD: usize = 8 << 10;

/// How long nothing is accepted after an error, as when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(50);

/// The page runs what is served beside it alone, and connects to its own host alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self' https:; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// What the pages say.
pub(crate) struct Pages {
    pub(crate) site: Site,
    /// SHA-256 of the certificate, if browsers do not know its issuer.
    pub(crate) hash: Mutex<Option<String>>,
    /// Hosts that requests may name beside addresses and `localhost`; `None`: any, since the certificate has the names.
    pub(crate) hosts: Option<Vec<String>>,
}

impl Pages {
    /// Whether a request's `Host` is ours: a web site that resolves its own name to this host (DNS rebinding) gets
    /// nothing.
    pub(crate) fn is_ours(&self, host: &str) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if !host.is_some_and(|host| self.is_ours(host)) {
            let sentence = "the Host of the request is no address, and no name of this host: \
                            --allow-origin adds one\n";
            return sentence_with(StatusCode::MISDIRECTED_REQUEST, sentence);
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return sentence_with(StatusCode::METHOD_NOT_ALLOWED, "only GET is known here\n");
        }
        let path = request.uri().path();
        let (kind, body) = if path == "/config.json" {
            let config = json!({ "certificate_sha256": *lock(&self.hash) });
            ("application/json", Bytes::from(config.to_string()))
        } else {
            let Some(file) = self.site.files.iter().find(|file| file.path == path) else {
                return sentence_with(StatusCode::NOT_FOUND, "nothing is here\n");
            };
            (file.kind, Bytes::from_static(file.body))
        };
        let mut response = Response::new(Full::new(body));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        guard(headers);
        response
    }
}

fn sentence_with(status: StatusCode, sentence: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(sentence.as_bytes())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    guard(response.headers_mut());
    response
}

fn guard(headers: &mut hyper::HeaderMap) {
    let all = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // One connection for each file: none is kept for a later one.
        (header::CONNECTION, "close"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Serves the page until it is dropped; over TLS if `tls`.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Mutex<TlsAcceptor>>>,
    pages: Arc<Pages>,
) {
    let places = Places::new(MAX_CONNECTIONS);
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(place) = places.take(from.ip()) else { continue };
        let (pages, tls) = (Arc::clone(&pages), tls.as_ref().map(|tls| lock(tls).clone()));
        tokio::spawn(async move {
            // What does not end in time is dropped, and its place is free.
            let _ = timeout(CONNECTION, async move {
                match tls {
                    None => answer(stream, &pages).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, &pages).await;
                        }
                    }
                }
            })
            .await;
            drop(place);
        });
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, pages: &Pages) {
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(pages.answer(&request))
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.max_buf_size(MAX_HEAD).keep_alive(false);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
