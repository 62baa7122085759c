//! Puts the traces that a scenario names as files into the scenario, so that it needs no file any
//! more: a run's folder, a cache's key and a copy of the scenario then have all of it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::document::Node;
use crate::error::{Origin, Problem};
use crate::model::{LinkSpec, Scenario, ScheduleSpec, Topology};
use crate::path::FieldPath;
use crate::traces::{MAX_TRACE_BYTES, TraceError, read_csv, read_mahimahi};

/// Whether a text is a trace.
type Check = fn(&str) -> Result<(), TraceError>;

/// Reads every trace that `scenario` names. `document` says where each name was written;
/// `scenario_file` is what names on the command line are relative to, `None` for a text, which
/// cannot name files.
pub(crate) fn traces(
    scenario: &mut Scenario,
    document: &Node,
    scenario_file: Option<&Path>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut links = links(&mut scenario.topology);
    while let Some((path, link)) = links.pop() {
        if let Some(back) = &mut link.back {
            links.push((path.key("back"), &mut **back));
        }
        let path = path.key("schedule");
        let (file, text, check): (_, _, Check) = match &mut link.schedule {
            Some(ScheduleSpec::Csv { file, text, .. }) => {
                (file, text, |text| read_csv(text).map(|_| ()))
            }
            Some(ScheduleSpec::Mahimahi { file, text }) => {
                (file, text, |text| read_mahimahi(text).map(|_| ()))
            }
            _ => continue,
        };
        // Both are refused later.
        if text.is_some() {
            continue;
        }
        let Some(name) = file else { continue };
        let path = path.key("file");
        let origin = document.locate(&path);
        let refuse =
            |what: String| Problem { origin: Some(origin.clone()), field: path.to_string(), what };
        let at = match (origin, scenario_file) {
            (_, None) => {
                let what = "a text cannot name files; load the scenario from a file, or write the \
                            trace as `text`";
                problems.push(refuse(what.to_owned()));
                continue;
            }
            (Origin::File { name: beside, .. }, _) => beside_file(Path::new(&**beside), name),
            (Origin::Override(_), Some(beside)) => beside_file(beside, name),
        };
        match read(&at) {
            Err(what) => problems.push(refuse(what)),
            Ok(read) => match check(&read) {
                Ok(()) => (*text, *file) = (Some(read), None),
                Err(TraceError { line, what }) => problems.push(Problem {
                    origin: Some(Origin::File { name: Arc::from(at.display().to_string()), line }),
                    field: path.to_string(),
                    what,
                }),
            },
        }
    }
    problems
}

fn beside_file(file: &Path, name: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(name)
}

fn read(path: &Path) -> Result<String, String> {
    let name = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read {name}: {error}");
    // A pipe or a device would block, or never end.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("cannot read {name}: it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_TRACE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_TRACE_BYTES {
        return Err(format!("{name} is too large; a trace has at most 32 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{name} is not a text"))
}

/// The links of a topology as they are written, with their fields.
fn links(topology: &mut Topology) -> Vec<(FieldPath, &mut LinkSpec)> {
    let path = FieldPath::root("topology");
    match topology {
        Topology::Dumbbell { bottleneck, reverse, access, receiver_access } => {
            let fields = [
                ("bottleneck", Some(bottleneck)),
                ("reverse", reverse.as_mut()),
                ("access", Some(access)),
                ("receiver-access", receiver_access.as_mut()),
            ];
            let given = fields.into_iter().filter_map(|(name, link)| Some((name, link?)));
            given.map(|(name, link)| (path.key(name), &mut **link)).collect()
        }
        Topology::ParkingLot { bottleneck, access, .. } => {
            vec![(path.key("bottleneck"), &mut **bottleneck), (path.key("access"), &mut **access)]
        }
        Topology::Graph { links } => {
            let path = path.key("links");
            let links = links.iter_mut().enumerate();
            links.map(|(place, link)| (path.index(place), &mut link.link)).collect()
        }
    }
}
