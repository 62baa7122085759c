//! Reads the reports of all processes of a host.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use ontempo_foundation::printable;

use super::document::{Document, parse};
use super::folder::{Folder, not_of};
use super::numbers::Numbers;
use super::{DeliveryReport, FlowReport, ProcessReport, ReportFolder, SocketReport, process};

/// Maximum of one user's reports, of bytes in them and of sockets, or flows: any user may write there.
const MAX_PER_USER: Amount = Amount { reports: 256, bytes: 16 << 20, sockets: 2_048 };

/// The same of all users.
const MAX_IN_ALL: Amount = Amount { reports: 4_096, bytes: 64 << 20, sockets: 8_192 };

/// Maximum of rejected reports that are reported one by one.
const MAX_SKIPPED: usize = 16;

/// One socket of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// A number unique among open sockets, constant while the socket is open.
    pub index: u32,
    /// Process id of its owner.
    pub process: u32,
    /// User id of its owner.
    pub user: u32,
    /// Its report.
    pub socket: SocketReport,
}

/// One flow of a `send`, `receive` or `relay` of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedFlow {
    /// A number unique among flows, constant while the flow is.
    pub index: u32,
    /// Process id of its owner.
    pub process: u32,
    /// User id of its owner.
    pub user: u32,
    /// Its report.
    pub flow: FlowReport,
}

/// A report that was rejected, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parts of both are of the report's user.
        let path: Cow<'_, str> = self.path.to_string_lossy();
        write!(f, "{}: {}", printable(&path), printable(&self.reason))
    }
}

/// What is read of users' reports.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    reports: usize,
    bytes: usize,
    sockets: usize,
}

impl Amount {
    fn add(&mut self, bytes: usize, sockets: usize) {
        self.reports += 1;
        self.bytes += bytes;
        self.sockets += sockets;
    }

    /// Whether so many bytes and sockets more, in one report, are within `most`.
    fn has_room(&self, bytes: usize, sockets: usize, most: &Self) -> bool {
        self.reports < most.reports
            && self.bytes + bytes <= most.bytes
            && self.sockets + sockets <= most.sockets
    }
}

/// The reports that are read at one time, within the bounds.
struct Reading<D> {
    /// By process: the user's id and the report.
    reports: BTreeMap<u32, (u32, D)>,
    of_users: BTreeMap<u32, Amount>,
    in_all: Amount,
    skipped: Vec<Skipped>,
    not_told: usize,
    /// By process: the place of its folder.
    places: BTreeMap<u32, usize>,
}

impl<D> Default for Reading<D> {
    fn default() -> Self {
        Self {
            reports: BTreeMap::new(),
            of_users: BTreeMap::new(),
            in_all: Amount::default(),
            skipped: Vec::new(),
            not_told: 0,
            places: BTreeMap::new(),
        }
    }
}

impl<D: Document> Reading<D> {
    fn skip(&mut self, path: PathBuf, reason: String) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(Skipped { path, reason });
        } else {
            self.not_told += 1;
        }
    }

    fn has_room(&self, user: u32, bytes: usize, sockets: usize) -> bool {
        let of_user = self.of_users.get(&user).copied().unwrap_or_default();
        of_user.has_room(bytes, sockets, &MAX_PER_USER)
            && self.in_all.has_room(bytes, sockets, &MAX_IN_ALL)
    }

    fn add(&mut self, user: u32, bytes: usize, sockets: usize) {
        self.of_users.entry(user).or_default().add(bytes, sockets);
        self.in_all.add(bytes, sockets);
    }

    /// Reads the report of a process of this user, if there is one.
    fn read(&mut self, folder: &Folder, process: u32, user: u32) {
        let name = D::KIND.name_of(process);
        let Some((owner, length)) = folder.about(&name) else { return };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(D::KIND.max_len());
        let may_own = |owner| owner == user && (folder.is_shared || owner == folder.owner);
        // Not counted as this user's: another one may not use up what is read of him.
        if !may_own(owner) {
            return self.skip(folder.path_of(&name), not_of(owner));
        }
        let is_too_much = || {
            let Amount { reports, bytes, sockets } = MAX_PER_USER;
            format!(
                "is not shown: of a user at most {reports} reports with {sockets} {} and \
                 {bytes} bytes are",
                D::KIND.counted()
            )
        };
        // Before it is read, so that reading costs no more, either.
        if !self.has_room(user, length, 0) {
            return self.skip(folder.path_of(&name), is_too_much());
        }
        let report = folder.read(&name, length, may_own).and_then(|bytes| match bytes {
            Some(bytes) => parse::<D>(&bytes, process).map(Some),
            None => Ok(None),
        });
        match report {
            Ok(None) => {}
            Err(reason) => {
                self.add(user, length, 0);
                self.skip(folder.path_of(&name), reason);
            }
            // Left by an ended process that had the number before.
            Ok(Some(report)) if process::started(process) != Some(report.written_by().1) => {
                self.add(user, length, 0);
            }
            Ok(Some(report)) => {
                let sockets = report.count();
                if self.has_room(user, length, sockets) {
                    self.add(user, length, sockets);
                    self.reports.insert(process, (user, report));
                } else {
                    self.add(user, length, 0);
                    self.skip(folder.path_of(&name), is_too_much());
                }
            }
        }
    }
}

impl<D: Document> Reading<D> {
    /// What living processes publish into `folders`.
    fn of(folders: &[ReportFolder]) -> Self {
        let mut reading = Self::default();
        // By process, and not by file: a folder may hold any number of files.
        let processes: Vec<(u32, u32)> = process::all()
            .into_iter()
            .filter_map(|process| Some((process, process::owner(process)?)))
            .collect();
        for (place, at) in folders.iter().enumerate() {
            match at.open() {
                Ok(Some(folder)) => {
                    let is_of = |user: u32| folder.is_shared || user == folder.owner;
                    for (process, user) in processes.iter().filter(|(_, user)| is_of(*user)) {
                        let before = reading.in_all.sockets;
                        reading.read(&folder, *process, *user);
                        if reading.in_all.sockets > before {
                            reading.places.insert(*process, place);
                        }
                    }
                }
                Ok(None) => {}
                // The error names the folder.
                Err(error) => {
                    let reason = error.to_string();
                    let path = at.path();
                    let named = format!("{}: ", path.display());
                    let reason = reason.strip_prefix(&named).unwrap_or(&reason).to_owned();
                    reading.skip(path, reason);
                }
            }
        }
        reading
    }

    /// The rejected reports, the first of them one by one.
    fn rejected(&mut self) -> Vec<Skipped> {
        let mut skipped = std::mem::take(&mut self.skipped);
        let not_told = self.not_told;
        if let Some(last) = skipped.last_mut().filter(|_| not_told > 0) {
            last.reason += &format!("; and {not_told} more reports are not shown");
        }
        skipped
    }
}

/// What names a socket or a flow on this host: its process, the process's start, its number there.
type Key = (u32, u64, u32);

/// The parts of all reports with their numbers, in the order of these.
fn numbered<T>(
    indexes: &mut Numbers<Key>,
    parts: impl Iterator<Item = (Key, T)>,
) -> Vec<(u32, u32, T)> {
    let (keys, parts): (Vec<_>, Vec<_>) = parts.unzip();
    let processes = keys.iter().map(|key| key.0).collect::<Vec<_>>();
    let numbers = indexes.look(keys).into_iter();
    let mut all: Vec<_> = numbers
        .zip(processes)
        .zip(parts)
        .map(|((index, process), part)| (index, process, part))
        .collect();
    all.sort_by_key(|one| one.0);
    all
}

/// Reads what the processes of a host publish. It writes and removes nothing.
#[derive(Debug, Default)]
pub struct Collector {
    sockets: Numbers<Key>,
    flows: Numbers<Key>,
    /// Where the report of each process was found.
    folders: BTreeMap<u32, ReportFolder>,
}

impl Collector {
    /// A collector without state.
    pub fn new() -> Self {
        Self::default()
    }

    /// All sockets of living processes that publish into `folders`, in the order of their
    /// numbers, and the rejected reports, the first of them one by one. A report counts only if it
    /// belongs to the user who runs the process, and in a folder that is not for all users, to its
    /// owner; and only so much of each user and in all as the constants of this module say.
    pub fn collect(&mut self, folders: &[ReportFolder]) -> (Vec<Collected>, Vec<Skipped>) {
        let mut reading = Reading::<ProcessReport>::of(folders);
        let skipped = reading.rejected();
        let found = reading.places.into_iter();
        self.folders = found.map(|(process, place)| (process, folders[place].clone())).collect();
        let sockets = reading.reports.into_values().flat_map(|(user, report)| {
            let ProcessReport { process, started, sockets } = report;
            sockets.into_iter().map(move |socket| ((process, started, socket.id), (user, socket)))
        });
        let sockets = numbered(&mut self.sockets, sockets)
            .into_iter()
            .map(|(index, process, (user, socket))| Collected { index, process, user, socket })
            .collect();
        (sockets, skipped)
    }

    /// All flows of `send`, `receive` and `relay`, by the same rules and within the same bounds.
    pub fn collect_flows(
        &mut self,
        folders: &[ReportFolder],
    ) -> (Vec<CollectedFlow>, Vec<Skipped>) {
        let mut reading = Reading::<DeliveryReport>::of(folders);
        let skipped = reading.rejected();
        let flows = reading.reports.into_values().flat_map(|(user, report)| {
            let DeliveryReport { process, started, flows, .. } = report;
            flows.into_iter().map(move |flow| ((process, started, flow.id), (user, flow)))
        });
        let flows = numbered(&mut self.flows, flows)
            .into_iter()
            .map(|(index, process, (user, flow))| CollectedFlow { index, process, user, flow })
            .collect();
        (flows, skipped)
    }

    /// The folder in which the report of a process was found at the last time.
    pub fn folder_of(&self, process: u32) -> Option<&ReportFolder> {
        self.folders.get(&process)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::Publisher;
    use super::super::folder::this_user;
    use super::super::report::MAX_REPORT_LEN;
    use super::super::tests::{folder, socket};
    use super::*;

    fn at(path: &Path) -> [ReportFolder; 1] {
        [ReportFolder::At(path.to_owned())]
    }

    fn own() -> (u32, u64) {
        let process = std::process::id();
        (process, process::started(process).unwrap())
    }

    #[test]
    fn a_socket_keeps_its_number_as_long_as_it_is_open() {
        let folder = folder("numbers");
        let mut publisher = Publisher::new(ReportFolder::At(folder.clone()));
        let mut collector = Collector::new();
        let mut indexes = |ids: &[u32]| {
            publisher.publish(ids.iter().map(|id| socket(*id)).collect()).unwrap();
            let (sockets, skipped) = collector.collect(&at(&folder));
            assert_eq!(skipped, []);
            sockets.iter().map(|one| (one.socket.id, one.index)).collect::<Vec<_>>()
        };
        assert_eq!(indexes(&[7, 8]), [(7, 1), (8, 2)]);
        assert_eq!(indexes(&[8, 9]), [(8, 2), (9, 3)]);
        assert_eq!(indexes(&[7]), [(7, 4)]);
        drop(publisher);
        assert_eq!(collector.collect(&at(&folder)).0, []);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_an_ended_process_left_is_not_shown_for_who_has_its_number() {
        let folder = folder("reused");
        let (process, started) = own();
        let path = folder.join(format!("{process}.json"));
        let shown = |started: u64| {
            let report = ProcessReport { process, started, sockets: vec![socket(1)] };
            fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
            let (sockets, skipped) = Collector::new().collect(&at(&folder));
            assert_eq!(skipped, []);
            sockets.len()
        };
        assert_eq!((shown(started), shown(started - 1)), (1, 0));
        assert!(path.exists(), "a collector removes nothing");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_report_that_cannot_be_read_is_told_of() {
        let folder = folder("wrong");
        let path = folder.join(format!("{}.json", std::process::id()));
        let reason = |text: &str| {
            fs::write(&path, text).unwrap();
            Collector::new().collect(&at(&folder)).1.remove(0).to_string()
        };
        let expected = format!("{}: is no report: EOF while parsing", path.display());
        assert!(reason("{").starts_with(&expected));
        let other = r#"{"process": 1, "started": 1, "sockets": []}"#;
        assert!(reason(other).ends_with("is that of process 1"));
        assert!(reason(&" ".repeat(MAX_REPORT_LEN + 1)).contains("is larger than"));
        // A user's text may not reach the terminal as it is.
        let foreign = reason("{\"\\u001b]0;title\\u0007\": 1}");
        assert!(foreign.contains(r"unknown field `\u001b]0;title\u0007`"), "{foreign}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_link_in_a_users_folder_is_told_of_and_not_followed() {
        let runtime = folder("user");
        let elsewhere = folder("elsewhere");
        let (process, started) = own();
        let report = ProcessReport { process, started, sockets: vec![socket(1)] };
        let file = elsewhere.join(format!("{process}.json"));
        fs::write(&file, serde_json::to_vec(&report).unwrap()).unwrap();
        fs::create_dir(runtime.join("ontempo")).unwrap();
        symlink(&elsewhere, runtime.join("ontempo/qos")).unwrap();
        let of_user = ReportFolder::OfUser { runtime: runtime.clone(), user: this_user() };
        let (sockets, skipped) = Collector::new().collect(std::slice::from_ref(&of_user));
        assert_eq!(sockets, []);
        assert!(skipped[0].reason.contains("is a link"), "{skipped:?}");
        // The folder itself is good.
        assert_eq!(Collector::new().collect(&at(&elsewhere)).0.len(), 1);
        let other = ReportFolder::OfUser { runtime: elsewhere.clone(), user: this_user() + 1 };
        assert_eq!(Collector::new().collect(&[other]).0, []);
        for path in [runtime, elsewhere] {
            fs::remove_dir_all(path).unwrap();
        }
    }

    #[test]
    fn one_user_can_neither_fill_the_memory_nor_displace_others() {
        let path = folder("many");
        let folder = Folder::open(&path).unwrap();
        let mut reading = Reading::<ProcessReport>::default();
        let (process, started) = own();
        let write = |sockets: u32| {
            let sockets = (0..sockets).map(socket).collect();
            let report = ProcessReport { process, started, sockets };
            let name = format!("{process}.json");
            folder.replace(&name, &serde_json::to_vec(&report).unwrap()).unwrap();
        };
        let user = this_user();
        // As if other processes had them: 2,048 sockets in two reports, and no third.
        for sockets in [1_024, 1_024, 1] {
            write(sockets);
            reading.read(&folder, process, user);
        }
        let amount = reading.of_users[&user];
        assert_eq!((amount.reports, amount.sockets), (3, 2_048));
        assert!(reading.skipped[0].reason.contains("at most 256 reports"), "{:?}", reading.skipped);
        for _ in 0..300 {
            reading.read(&folder, process, user);
        }
        let amount = reading.of_users[&user];
        assert_eq!((amount.reports, amount.sockets), (256, 2_048));
        assert_eq!((reading.skipped.len(), reading.not_told), (MAX_SKIPPED, 301 - MAX_SKIPPED));
        // Files in the place of another user's reports are not that user's.
        let other = user + 1;
        reading.read(&folder, process, other);
        assert!(!reading.of_users.contains_key(&other));
        assert_eq!(reading.not_told, 302 - MAX_SKIPPED);
        fs::remove_dir_all(path).unwrap();
    }
}
