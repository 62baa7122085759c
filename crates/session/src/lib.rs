//! The media protocol of `ontempo send` and `ontempo receive`, for programs.
//!
//! A [`Sender`] takes units from a [`Backlog`], sends them to one receiver, and connects again when
//! the connection is lost. A [`Receiver`] receives one stream at a time, restores its datagrams and
//! writes them to a [`Target`]; it reports to the sender once a second. Both run on the thread that
//! calls `run`, and report events to a handler.
//!
//! The crate reads no arguments, prints nothing and handles no signals: a program sets `stop` to
//! end either side. No unit is changed: [`ontempo_media`] packetizes and depacketizes,
//! [`ontempo_transport`] delivers.
//!
//! The wire format is described in [`message`].

mod attempts;
mod backlog;
mod calling;
mod connecting;
mod connection;
mod contest;
mod description;
mod ending;
mod error;
mod feed;
pub mod file;
mod flowing;
mod following;
mod intake;
pub mod latency;
pub mod message;
mod output;
pub mod paths;
pub mod reach;
mod receiver;
mod reporting;
mod rtcp;
mod sender;
pub mod simulated;
mod sink;
mod source;
mod stream_name;
mod takeover;
mod totals;
mod url;
mod viewers;

use ontempo_foundation::Duration;
use ontempo_transport::{Configuration, Limits};

pub use backlog::{Backlog, Overflow};
pub use calling::Call;
pub use contest::{CONTEST_STEP, Contest, Holder, Verdict};
pub use description::{Description, DescriptionError, MAX_DESCRIPTION, MAX_FILE};
pub use error::Error;
pub use feed::{Batch, Feed};
pub use file::{PartFile, SourceFile};
pub use flowing::{DELAY_BOUNDS, Delays, Flowing};
pub use output::StoppableWriter;
pub use receiver::{Outcome, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions};
pub use rtcp::is_rtcp;
pub use sender::{Sender, SenderEvent, SenderHandler, SenderOptions};
pub use sink::{DatagramTaker, DescriptionTaker, TakenDatagram, Target};
pub use source::Source;
pub use stream_name::{StreamName, StreamNameError, split_name, with_name};
pub use totals::SenderTotals;
pub use url::{ReceiverAddress, ReceiverUrl, ReceiverUrlError, TOKEN_VARIABLE, own_host};
pub use viewers::{RelayReport, Viewers};

pub use ontempo_transport::random_token;

/// Connections with the token at a time of a receiver: it receives one stream, and refuses other
/// senders in a moment. More are refused. Strangers without the token take none of these places.
const MAX_CONNECTIONS: usize = 8;

/// Of these, those of one source. A sender that comes back has two for a moment, and others behind
/// the same address are refused in one; two places are left for senders elsewhere.
const MAX_CONNECTIONS_OF_HOST: usize = 6;

/// Flows at a time of a connection in each direction: one carries the stream, one the reports.
const MAX_FLOWS: u64 = 2;

/// The transport configuration of both sides: a lost path is detected after an idle timeout of 4 s.
pub fn configuration() -> Configuration {
    let defaults = Configuration::default();
    Configuration {
        limits: Limits { flows: MAX_FLOWS, ..defaults.limits },
        connections: MAX_CONNECTIONS,
        connections_of_host: MAX_CONNECTIONS_OF_HOST,
        idle_timeout: Duration::from_secs(4),
        keep_alive: Some(Duration::from_secs(1)),
        handshake_timeout: Duration::from_secs(3),
        ..defaults
    }
}
