//! WebTransport sessions: who may come, and what a viewer is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, timeout, timeout_at};
use web_transport_noq::noq::{self, VarInt};
use web_transport_noq::{Request, Session, SessionError};

use crate::frame::{Frame, document, header};
use crate::hub::{Hub, Message};
use crate::pages::Pages;
use crate::places::Places;

/// Handshakes at a time, all together; beyond it, newcomers are refused.
const MAX_HANDSHAKES: usize = 64;

/// Time limit for a client from its first packet to its request.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Bytes that QUIC holds for a viewer: what is beyond waits in the queue, where it can be left out.
const SEND_WINDOW: u64 = 512 << 10;

/// How long a frame may be under way, from its sending to its acknowledgement.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// Frames under way to a viewer at a time.
const MAX_UNDER_WAY: usize = 256;

/// Why a session is closed; the page has a sentence for each.
pub(crate) mod code {
    pub(crate) const WRONG_TOKEN: u32 = 1;
    pub(crate) const FULL: u32 = 2;
    pub(crate) const ENDING: u32 = 3;
}

/// How often a viewer is told the time, so that it knows that the session is alive.
const TICK: Duration = Duration::from_secs(1);

/// A viewer that reads nothing for this long is gone.
const IDLE: u32 = 10_000;

/// Limits of a connection: a viewer sends nothing but its request, a visitor small messages.
pub(crate) fn transport() -> noq::TransportConfig {
    let mut transport = noq::TransportConfig::default();
    transport
        // The request, and one more that is refused; HTTP/3's control streams.
        .max_concurrent_bidi_streams(VarInt::from_u32(4))
        .max_concurrent_uni_streams(VarInt::from_u32(8))
        .stream_receive_window(VarInt::from_u32(32 << 10))
        .receive_window(VarInt::from_u32(128 << 10))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(Some(8 << 10))
        .max_idle_timeout(Some(VarInt::from_u32(IDLE).into()))
        .keep_alive_interval(Some(Duration::from_secs(3)));
    transport
}

/// Who may watch.
pub(crate) struct Admission {
    /// Digest of the token; `None`: anyone.
    pub(crate) token: Option<[u8; 32]>,
    /// Origins beside the page's own.
    pub(crate) origins: Vec<String>,
}

impl Admission {
    pub(crate) fn new(token: Option<&str>, origins: Vec<String>) -> Self {
        Self { token: token.map(|token| sha256(token.as_bytes())), origins }
    }

    /// Constant time: digests are compared whole.
    fn admits(&self, presented: &str) -> bool {
        let Some(ours) = &self.token else { return true };
        let theirs = sha256(presented.as_bytes());
        let differ = ours.iter().zip(theirs).fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(differ) == 0
    }

    /// Whether a page of this origin may connect to `authority`: the page from there, and those named. A program that is
    /// no browser says none.
    fn allows(&self, origin: Option<&str>, authority: &str) -> bool {
        let Some(origin) = origin else { return true };
        let is_own = origin.split_once("://").is_some_and(|(scheme, host)| {
            let (host, own) = (host.to_ascii_lowercase(), authority.to_ascii_lowercase());
            matches!(scheme, "https" | "http") && host == own
        });
        is_own || self.origins.iter().any(|allowed| allowed == origin)
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digits = [0; 32];
    digits.copy_from_slice(digest(&SHA256, bytes).as_ref());
    digits
}

/// What is done in the sessions of those whose token is right.
pub(crate) trait Sessions: Send + Sync + 'static {
    /// Serves one until it ends, or until no more is to be done.
    fn serve<'a>(&'a self, session: &'a Session) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// Takes sessions of the page until the endpoint is closed.
pub(crate) async fn serve(
    endpoint: noq::Endpoint,
    pages: Arc<Pages>,
    sessions: Arc<dyn Sessions>,
    admission: Arc<Admission>,
) {
    let places = Places::new(MAX_HANDSHAKES);
    while let Some(incoming) = endpoint.accept().await {
        // An address that is forged is not answered with a certificate.
        let from = incoming.remote_address().ip();
        if !incoming.remote_address_validated() && places.is_scarce(from) {
            let _ = incoming.retry();
            continue;
        }
        let Some(place) = places.take(from) else {
            incoming.refuse();
            continue;
        };
        let (sessions, admission) = (Arc::clone(&sessions), Arc::clone(&admission));
        let pages = Arc::clone(&pages);
        tokio::spawn(async move {
            let session = match timeout(HANDSHAKE, request(incoming)).await {
                Ok(Some(request)) => admit(request, &pages, &admission).await,
                _ => None,
            };
            // Not before: who has no token counts until its connection is closed.
            drop(place);
            if let Some(session) = session {
                sessions.serve(&session).await;
            }
        });
    }
}

async fn request(incoming: noq::Incoming) -> Option<Request> {
    let connection = incoming.await.ok()?;
    Request::accept(connection).await.ok()
}

/// Answers a request; the session, if it may come in.
async fn admit(request: Request, pages: &Pages, admission: &Admission) -> Option<Session> {
    let origin = request.headers.get("origin").map(|value| value.to_str().unwrap_or("?"));
    let authority = authority(request.url.as_str());
    let is_ours = pages.is_ours(&authority) && request.url.path() == pages.site.sessions;
    if !is_ours || !admission.allows(origin, &authority) {
        let _ = timeout(HANDSHAKE, request.reject(http_status(403))).await;
        return None;
    }
    let token = request.url.query_pairs().find(|(name, _)| name == "token");
    let is_admitted = admission.admits(&token.map(|(_, token)| token).unwrap_or_default());
    // The library reads the session's own stream for as long as it lasts, and may keep all of it: what can still
    // come is the credit given so far, which is not renewed.
    request.conn().set_receive_window(VarInt::from_u32(0));
    let session = timeout(HANDSHAKE, request.ok()).await.ok()?.ok()?;
    // A browser tells its page nothing of a refused request, but the code of a closed session.
    if !is_admitted {
        close(&session, code::WRONG_TOKEN, "wrong token").await;
        return None;
    }
    Some(session)
}

/// The viewers of a stream.
impl Sessions for Arc<Hub> {
    fn serve<'a>(&'a self, session: &'a Session) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(watch(session, self))
    }
}

/// Serves a viewer until it goes.
async fn watch(session: &Session, hub: &Hub) {
    let Some(viewer) = hub.join() else {
        close(session, code::FULL, "no place").await;
        return;
    };
    let under_way = Arc::new(Semaphore::new(MAX_UNDER_WAY));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            _ = session.closed() => break,
            _ = ticks.tick() => {
                let time = json!({ "event": "time", "left_out": viewer.dropped() });
                let time = document(&time.to_string(), hub.now());
                send(session, hub, None, time, &under_way).await
            }
            message = viewer.next(hub) => match message {
                Message::Document(bytes) => send(session, hub, None, bytes, &under_way).await,
                Message::Frame(frame, place) => {
                    let head = header(&frame, place, hub.now());
                    send(session, hub, Some((&frame, head)), frame.bytes.clone(), &under_way).await
                }
            },
        };
        if sent.is_err() {
            break;
        }
    }
    hub.leave(&viewer);
}

pub(crate) async fn close(session: &Session, code: u32, reason: &str) {
    session.close(code, reason.as_bytes());
    let _ = timeout(HANDSHAKE, session.closed()).await;
}

/// Host and port of a request, as browsers write those of an origin.
fn authority(url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned()
}

fn http_status(status: u16) -> web_transport_noq::http::StatusCode {
    web_transport_noq::http::StatusCode::from_u16(status).unwrap_or_default()
}

/// Sends a message over a stream of its own; one that is under way for too long is given up.
async fn send(
    session: &Session,
    hub: &Hub,
    frame: Option<(&Frame, Bytes)>,
    bytes: Bytes,
    under_way: &Arc<Semaphore>,
) -> Result<(), SessionError> {
    let deadline = tokio::time::Instant::now() + UNDER_WAY;
    let Ok(place) = Arc::clone(under_way).acquire_owned().await else { return Ok(()) };
    // A viewer that grants no stream reads nothing.
    let patience = Duration::from_millis(u64::from(IDLE));
    let Ok(opened) = timeout(patience, session.open_uni()).await else {
        session.close(code::ENDING, b"nothing is read");
        return Ok(());
    };
    let mut stream = opened?;
    // Sound first, then older pictures before newer ones.
    let age = i32::try_from(hub.now() / 1_000_000).unwrap_or(i32::MAX - 1);
    let priority = match &frame {
        Some((frame, _)) if !frame.is_sound() => -age,
        _ => i32::MAX,
    };
    let _ = stream.set_priority(priority);
    let written = timeout_at(deadline, async {
        if let Some((_, head)) = frame {
            stream.write_chunk(head).await?;
        }
        stream.write_chunk(bytes).await
    });
    match written.await {
        Ok(Ok(())) => {}
        // The viewer wants no more of it.
        Ok(Err(_)) => return session.close_reason().map_or(Ok(()), Err),
        Err(_) => {
            let _ = stream.reset(0);
            return Ok(());
        }
    }
    let _ = stream.finish();
    tokio::spawn(async move {
        if timeout_at(deadline, stream.stopped()).await.is_err() {
            let _ = stream.reset(0);
        }
        drop(place);
    });
    Ok(())
}
