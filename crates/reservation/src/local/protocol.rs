//! The documents of the local socket, and its place.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::status::Status;
use crate::message::{
    AdSpec, Descriptor, ErrorSpec, FlowSpec, Mark, Sender, Session, Style, TrafficSpec,
};

/// The default path of the daemon's socket.
pub const SOCKET: &str = "/run/ontempo-rsvp.sock";

/// The environment variable with another path of the daemon's socket.
pub const SOCKET_VARIABLE: &str = "ONTEMPO_RSVP_SOCKET";

/// Bytes of the longest line from an application, its end included. The daemon's answers about
/// its status may be longer.
pub const MAX_LINE_LEN: usize = 65_536;

/// Where applications find the daemon: [`SOCKET_VARIABLE`], or [`SOCKET`] where that is not set or empty.
pub fn socket() -> PathBuf {
    let set = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
    set.map_or_else(|| PathBuf::from(SOCKET), PathBuf::from)
}

/// A request of an application, with a number of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The answer has the same.
    pub id: u64,
    /// The flowspec.
    pub request: Request,
}

/// The requests of applications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Announce a flow of this host; again with other traffic to change it. Its
    /// [`Notice::Reserved`] and [`Notice::PathError`] come to this connection.
    Send {
        /// Where it goes.
        session: Session,
        /// Who sends: an address of this host.
        sender: Sender,
        /// Its traffic.
        traffic: TrafficSpec,
    },
    /// That flow ends.
    StopSending {
        /// Where it goes.
        session: Session,
        /// Who sends.
        sender: Sender,
    },
    /// Subscribe to senders to an address of this host: [`Notice::Path`] for those that are known
    /// already and those that come, [`Notice::PathGone`] for those that end.
    Watch {
        /// Where they send.
        session: Session,
    },
    /// Reserve for flows to an address of this host, in place of what this connection reserved before.
    /// Connections of one user can reserve for different senders of a session under FF. Senders that
    /// are not known yet are waited for. [`Notice::ResvError`] and [`Notice::Confirmed`] come to this
    /// connection, under FF of its own senders.
    Reserve {
        /// Where they go.
        session: Session,
        /// Which senders share.
        style: Style,
        /// Flow descriptors: one sender each under FF, one flow with its senders under SE,
        /// one flow without senders under WF.
        flows: Vec<Descriptor>,
        /// Request [`Notice::Confirmed`].
        confirm: bool,
    },
    /// Give the reservations of a session up.
    Release {
        /// Where the flows go.
        session: Session,
    },
    /// What the daemon knows and enforces: [`Answer::Status`].
    Status,
}

/// A line from the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To the question of this number; number 0 where the line was no question at all, and the
    /// connection then ends.
    Answer {
        /// The question's.
        id: u64,
        /// The result.
        result: Answer,
    },
    /// Something has happened.
    Event(Notice),
}

/// What a question is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Accepted by the daemon; events follow when the network has admitted or refused it.
    Done,
    /// Refused, with the reason.
    Refused(String),
    /// To [`Request::Status`].
    Status(Box<Status>),
}

/// Notifications to applications: events of [`Machine`](crate::machine::Machine).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// A sender to this host is announced, or has changed.
    Path {
        /// Where it sends.
        session: Session,
        /// Who sends.
        sender: Sender,
        /// Its traffic.
        traffic: TrafficSpec,
        /// What the path offers.
        adspec: Option<AdSpec>,
    },
    /// That sender has ended.
    PathGone {
        /// Where it sent.
        session: Session,
        /// Who sent.
        sender: Sender,
    },
    /// What is reserved now for this application's flows, up to their receivers; no flows:
    /// nothing any more.
    Reserved {
        /// Where they go.
        session: Session,
        /// The style.
        style: Style,
        /// What is reserved for whom.
        flows: Vec<Descriptor>,
        /// What their packets are to be marked with, as far as the network asks for it (RFC 2996). Not in
        /// the document where there is nothing, as before it had this member.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<Mark>,
    },
    /// The announcement of a flow has failed.
    PathError {
        /// Where it goes.
        session: Session,
        /// Who sends.
        sender: Sender,
        /// Where and why.
        failure: Failure,
    },
    /// A reservation has failed.
    ResvError {
        /// Where the flows go.
        session: Session,
        /// What has failed.
        flow: Descriptor,
        /// Where and why.
        failure: Failure,
    },
    /// A reservation stands up to a node.
    Confirmed {
        /// Where the flows go.
        session: Session,
        /// What stands.
        flows: Vec<Descriptor>,
        /// The node that sent the ResvConf.
        node: IpAddr,
    },
}

impl Notice {
    /// The session that it is about.
    pub fn session(&self) -> &Session {
        match self {
            Self::Path { session, .. }
            | Self::PathGone { session, .. }
            | Self::Reserved { session, .. }
            | Self::PathError { session, .. }
            | Self::ResvError { session, .. }
            | Self::Confirmed { session, .. } => session,
        }
    }
}

/// What failed, where (RFC 2205 appendix B).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The node that found it.
    pub node: IpAddr,
    /// What was reserved before still is.
    pub in_place: bool,
    /// The failed flowspec is larger than that of this application (flag NotGuilty).
    pub not_guilty: bool,
    /// The error's number.
    pub code: u8,
    /// Its value.
    pub value: u16,
    /// A sentence.
    pub reason: String,
}

impl From<ErrorSpec> for Failure {
    fn from(error: ErrorSpec) -> Self {
        let ErrorSpec { node, in_place, not_guilty, cause } = error;
        let (code, value) = cause.numbers();
        Self { node, in_place, not_guilty, code, value, reason: cause.to_string() }
    }
}

/// A document as a line.
pub fn line(document: &impl Serialize) -> Vec<u8> {
    // Maps with keys that are no text would fail; there are none.
    let mut line = serde_json::to_vec(document).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Reads a question.
///
/// # Errors
/// A sentence with what is wrong.
pub fn question(line: &[u8]) -> Result<Question, String> {
    let question: Question =
        serde_json::from_slice(line).map_err(|error| format!("not a question: {error}"))?;
    let bounded = match &question.request {
        Request::Send { traffic, .. } => is_bounded(traffic),
        Request::Reserve { flows, .. } => flows.iter().all(|flow| match &flow.flowspec {
            FlowSpec::ControlledLoad(traffic) => is_bounded(traffic),
            FlowSpec::Guaranteed { traffic, rate, .. } => is_bounded(traffic) && rate.is_finite(),
        }),
        _ => true,
    };
    if bounded { Ok(question) } else { Err("a rate or burst is no number of bytes".to_owned()) }
}

/// Only the peak rate may be infinite.
fn is_bounded(traffic: &TrafficSpec) -> bool {
    traffic.rate.is_finite() && traffic.burst.is_finite() && !traffic.peak.is_nan()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Dclass;

    fn reserved(marks: Vec<Mark>) -> Notice {
        let address = IpAddr::from([10, 0, 0, 3]);
        let session = Session { destination: address, protocol: 17, port: 5000 };
        Notice::Reserved { session, style: Style::Wildcard, flows: Vec::new(), marks }
    }

    #[test]
    fn a_notice_with_marks_is_read_by_an_application_of_before_and_one_without_is_as_before() {
        let session = r#"{"destination":"10.0.0.3","protocol":17,"port":5000}"#;
        let before = format!(
            r#"{{"event":{{"reserved":{{"session":{session},"style":"wildcard","flows":[]}}}}}}"#
        );
        let none = Reply::Event(reserved(Vec::new()));
        assert_eq!(line(&none), format!("{before}\n").into_bytes());
        assert_eq!(serde_json::from_str::<Reply>(&before).expect("it is read"), none);
        let marks = vec![Mark { senders: Vec::new(), dscps: Dclass::of(34) }];
        let marked = Reply::Event(reserved(marks));
        let written = String::from_utf8(line(&marked)).expect("text");
        assert!(written.contains(r#""marks":[{"senders":[],"dscps":[34]}]"#), "{written}");
        assert_eq!(serde_json::from_str::<Reply>(&written).expect("it is read"), marked);
        // A member that is not known is passed over.
        let later = written.replace("marks", "unheard-of");
        assert_eq!(serde_json::from_str::<Reply>(&later).expect("it is read"), none);
    }
}
