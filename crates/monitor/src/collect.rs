//! Reads the reports of all processes of a host.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::numbers::Numbers;
use super::{ProcessReport, SocketReport};

/// A report larger than this is not read.
const MAX_REPORT: u64 = 4 << 20;

/// One socket of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// A number unique among open sockets, constant while the socket is open.
    pub index: u32,
    /// Process id of its owner.
    pub process: u32,
    /// Its report.
    pub socket: SocketReport,
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
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// Reads what the processes of a host publish.
#[derive(Debug, Default)]
pub struct Collector {
    indexes: Numbers<(u32, u32)>,
}

impl Collector {
    /// A collector without state.
    pub fn new() -> Self {
        Self::default()
    }

    /// All sockets of living processes that publish into `folders`, in the order of their
    /// numbers, and the rejected reports. Reports of processes that have ended are removed.
    pub fn collect(&mut self, folders: &[PathBuf]) -> (Vec<Collected>, Vec<Skipped>) {
        let mut reports = BTreeMap::new();
        let mut skipped = Vec::new();
        for path in folders.iter().flat_map(|folder| reports_in(folder)) {
            match read(&path) {
                Ok(Some(report)) => drop(reports.insert(report.process, report)),
                Ok(None) => drop(fs::remove_file(&path)),
                Err(reason) => skipped.push(Skipped { path, reason }),
            }
        }
        (self.numbered(reports.into_values()), skipped)
    }

    fn numbered(&mut self, reports: impl Iterator<Item = ProcessReport>) -> Vec<Collected> {
        let sockets: Vec<_> = reports
            .flat_map(|report| {
                report.sockets.into_iter().map(move |socket| (report.process, socket))
            })
            .collect();
        let indexes = self.indexes.look(sockets.iter().map(|(process, one)| (*process, one.id)));
        let collected = indexes.into_iter().zip(sockets);
        let mut collected: Vec<_> = collected
            .map(|(index, (process, socket))| Collected { index, process, socket })
            .collect();
        collected.sort_by_key(|one| one.index);
        collected
    }
}

/// The files `NUMBER.json` of a folder.
fn reports_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| process_of(path).is_some());
    paths.sort();
    paths
}

fn process_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()
}

/// The report in a file; `None` if its process has ended.
fn read(path: &Path) -> Result<Option<ProcessReport>, String> {
    let Some(process) = process_of(path) else { return Ok(None) };
    let Some(owner) = owner_of_process(process) else { return Ok(None) };
    let failed = |error: io::Error| error.to_string();
    // Following a link would read another's file with the collector's rights.
    let flags =
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|error| failed(error.into()))?;
    let mut file = File::from(file);
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() || about.uid() != owner {
        return Err(format!("is not a file of the user who runs process {process}"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_REPORT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_REPORT {
        return Err(format!("is larger than {MAX_REPORT} bytes"));
    }
    let report: ProcessReport =
        serde_json::from_slice(&bytes).map_err(|error| format!("is no report: {error}"))?;
    if report.process != process {
        return Err(format!("is that of process {}", report.process));
    }
    Ok(Some(report))
}

/// User id of a process; `None` if there is no such process.
fn owner_of_process(process: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{process}")).ok().map(|about| about.uid())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{folder, socket};
    use super::super::{ProcessReport, Publisher};
    use super::*;

    fn own_report(ids: &[u32]) -> ProcessReport {
        let sockets = ids.iter().map(|id| socket(*id)).collect();
        ProcessReport { process: std::process::id(), sockets }
    }

    #[test]
    fn a_socket_keeps_its_number_as_long_as_it_is_open() {
        let folder = folder("numbers");
        let publisher = Publisher::new(&folder);
        let mut collector = Collector::new();
        let mut indexes = |ids: &[u32]| {
            publisher.publish(&own_report(ids)).unwrap();
            let (sockets, skipped) = collector.collect(std::slice::from_ref(&folder));
            assert_eq!(skipped, []);
            sockets.iter().map(|one| (one.socket.id, one.index)).collect::<Vec<_>>()
        };
        assert_eq!(indexes(&[7, 8]), [(7, 1), (8, 2)]);
        assert_eq!(indexes(&[8, 9]), [(8, 2), (9, 3)]);
        assert_eq!(indexes(&[7]), [(7, 4)]);
        drop(publisher);
        assert_eq!(collector.collect(&[folder]).0, []);
    }

    #[test]
    fn what_a_process_left_behind_is_removed() {
        let folder = folder("left");
        let path = folder.join("4194304.json"); // One more than the most processes of Linux.
        fs::write(&path, "{}").unwrap();
        assert_eq!(Collector::new().collect(&[folder]), (vec![], vec![]));
        assert!(!path.exists());
    }

    #[test]
    fn a_report_that_cannot_be_read_is_told_of() {
        let folder = folder("wrong");
        let path = folder.join(format!("{}.json", std::process::id()));
        let reason = |text: &str| {
            fs::write(&path, text).unwrap();
            Collector::new().collect(std::slice::from_ref(&folder)).1.remove(0).reason
        };
        assert!(reason("{").starts_with("is no report: EOF while parsing"));
        assert_eq!(reason(r#"{"process": 1, "sockets": []}"#), "is that of process 1");
        assert!(reason(&" ".repeat(5 << 20)).starts_with("is larger than"));
    }
}
