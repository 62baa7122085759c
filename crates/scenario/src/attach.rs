//! Puts the traces that a scenario names as files into the scenario, so that it needs no file any
//! more: a run's folder, a cache's key and a copy of the scenario then have all of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ontempo_media::FrameTable;

use crate::document::Node;
use crate::error::{Origin, Problem};
use crate::model::{Application, LinkSpec, Scenario, ScheduleSpec, Topology};
use crate::path::FieldPath;
use crate::traces::{Format, MAX_MEMORY, MAX_TRACE_BYTES, TraceError};

/// The most bytes of all traces of a scenario together: each becomes part of it. Four of the largest:
/// the light and the heavy one of both directions of a cellular link.
const MAX_BYTES: usize = 128 << 20;

/// The largest transport stream, in bytes.
const MAX_FILM_BYTES: u64 = 512 << 20;

/// A trace or film that a scenario names: the field, the file, the text that takes its place.
struct Named<'a> {
    field: &'static str,
    file: &'a mut Option<String>,
    text: &'a mut Option<String>,
    format: Format,
}

/// Reads every trace that `scenario` names. `document` says where each name was written;
/// `scenario_file` is what names on the command line are relative to, `None` for a text, which
/// cannot name files.
pub(crate) fn traces(
    scenario: &mut Scenario,
    document: &Node,
    scenario_file: Option<&Path>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut files = Files::default();
    let flows = scenario.flows.iter_mut().filter_map(|(name, group)| {
        let path = FieldPath::root("flows").key(name).key("application");
        Some((path, film(&mut group.application)?))
    });
    for (path, named) in schedules(&mut scenario.topology).into_iter().chain(flows) {
        let Named { field, file, text, format } = named;
        // Both are refused later.
        if text.is_some() {
            continue;
        }
        let Some(name) = file else { continue };
        let path = path.key(field);
        let origin = document.locate(&path);
        let refuse =
            |what: String| Problem { origin: Some(origin.clone()), field: path.to_string(), what };
        let at = match (origin, scenario_file) {
            (_, None) => {
                let what = "a text cannot name files; load the scenario from a file, or write \
                            the {} as `text`";
                let what = what.replace("{}", format.noun());
                problems.push(refuse(what.replace("`text`", &text_field(field))));
                continue;
            }
            (Origin::File { name: beside, .. }, _) => beside_file(Path::new(&**beside), name),
            (Origin::Override(_), Some(beside)) => beside_file(beside, name),
        };
        match files.text(&at, format) {
            Ok(read) => (*text, *file) = (Some(read), None),
            Err(Unusable::Unreadable(what)) => problems.push(refuse(what)),
            Err(Unusable::Wrong(TraceError { line, what })) => problems.push(Problem {
                origin: Some(Origin::File { name: Arc::from(at.display().to_string()), line }),
                field: path.to_string(),
                what,
            }),
            Err(Unusable::TooMany(what)) => {
                problems.push(refuse(format!(
                    "with {} the traces and films of the scenario together {what}; shorter ones, or \
                     fewer, are needed",
                    at.display()
                )));
                return problems;
            }
        }
    }
    problems
}

/// The traces of the schedules of all links.
fn schedules(topology: &mut Topology) -> Vec<(FieldPath, Named<'_>)> {
    let mut links = links(topology);
    let mut all = Vec::new();
    while let Some((path, link)) = links.pop() {
        if let Some(back) = &mut link.back {
            links.push((path.key("back"), &mut **back));
        }
        let path = path.key("schedule");
        let traces = named(link.schedule.as_mut()).into_iter();
        all.extend(traces.map(|named| (path.clone(), named)));
    }
    all
}

/// The frames of a film.
fn film(application: &mut Application) -> Option<Named<'_>> {
    let Application::Media { file, frames, frames_text, .. } = application else { return None };
    let (field, file, format) = match file {
        Some(_) => ("file", file, Format::Film),
        None => ("frames", frames, Format::Frames),
    };
    Some(Named { field, file, text: frames_text, format })
}

/// The field of a trace that is written as a text, in backquotes.
fn text_field(field: &str) -> String {
    if field == "file" { "`text`".to_owned() } else { format!("`{field}-text`") }
}

/// The traces of a schedule.
fn named(schedule: Option<&mut ScheduleSpec>) -> Vec<Named<'_>> {
    match schedule {
        Some(ScheduleSpec::Csv { file, text, .. }) => {
            vec![Named { field: "file", file, text, format: Format::Csv }]
        }
        Some(ScheduleSpec::Mahimahi { file, text }) => {
            vec![Named { field: "file", file, text, format: Format::Mahimahi }]
        }
        Some(ScheduleSpec::Cellreplay { light, light_text, heavy, heavy_text, .. }) => {
            let (one, other) = (Format::Light, Format::Mahimahi);
            vec![
                Named { field: "light", file: light, text: light_text, format: one },
                Named { field: "heavy", file: heavy, text: heavy_text, format: other },
            ]
        }
        _ => Vec::new(),
    }
}

/// Why a trace is not used.
#[derive(Clone)]
enum Unusable {
    Unreadable(String),
    Wrong(TraceError),
    /// What all traces have with it: more than [`MAX_BYTES`], or [`MAX_MEMORY`].
    TooMany(String),
}

/// The files of traces, each read once, however many links name it.
#[derive(Default)]
struct Files {
    texts: BTreeMap<PathBuf, Result<Arc<str>, String>>,
    checked: BTreeMap<(PathBuf, Format), Result<(), TraceError>>,
    /// Of the texts handed out.
    bytes: usize,
    /// What they take once they are read.
    memory: u64,
}

impl Files {
    fn text(&mut self, path: &Path, format: Format) -> Result<String, Unusable> {
        let read = || if format == Format::Film { read_film(path) } else { read(path) };
        let text = self.texts.entry(path.to_owned()).or_insert_with(|| read().map(Arc::from));
        let text = text.clone().map_err(Unusable::Unreadable)?;
        // Each link holds its own. Before it is read: that takes the memory.
        self.bytes += text.len();
        self.memory += format.memory(&text);
        if self.bytes > MAX_BYTES {
            return Err(Unusable::TooMany(format!("have more than {} MiB", MAX_BYTES >> 20)));
        }
        if self.memory > MAX_MEMORY {
            return Err(Unusable::TooMany(format!(
                "take {} MiB of memory once they are read, of at most {}",
                self.memory.div_ceil(1 << 20),
                MAX_MEMORY >> 20
            )));
        }
        let key = (path.to_owned(), format);
        let checked = self.checked.entry(key).or_insert_with(|| format.check(&text));
        checked.clone().map_err(Unusable::Wrong)?;
        Ok(String::from(&*text))
    }
}

fn beside_file(file: &Path, name: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(name)
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = read_at_most(path, MAX_TRACE_BYTES, "a trace has at most 32 MiB")?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not a text", path.display()))
}

/// The table of the frames of a transport stream.
fn read_film(path: &Path) -> Result<String, String> {
    let bytes = read_at_most(path, MAX_FILM_BYTES, "a film has at most 512 MiB")?;
    match FrameTable::from_transport_stream(&bytes) {
        Ok((table, _)) => Ok(table.write_csv()),
        Err(error) => Err(format!(
            "{}: {error}; `ontempo media` makes a table of frames from other films",
            path.display()
        )),
    }
}

fn read_at_most(path: &Path, most: u64, limit: &str) -> Result<Vec<u8>, String> {
    let name = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read {name}: {error}");
    // A pipe or a device would block, or never end.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("cannot read {name}: it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(format!("{name} is too large; {limit}"));
    }
    Ok(bytes)
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
