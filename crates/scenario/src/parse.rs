//! From a file, or a text, to a scenario that is known to make sense.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::attach;
use crate::check::check;
use crate::custom::CustomNames;
use crate::document::{Node, Value};
use crate::error::{Problem, ScenarioError};
use crate::model::Scenario;
use crate::overrides::Overrides;
use crate::path::FieldPath;
use crate::{profile, profiles};

/// The largest file; the list of a loss trace is the longest thing that one holds.
pub(crate) const MAX_FILE: u64 = 4 << 20;
/// How deep files may include one another.
const MAX_DEPTH: usize = 16;
/// How many files one scenario may be made of, each counted as often as it is included.
const MAX_FILES: usize = 256;
/// The most bytes of these together, counted likewise.
const MAX_BYTES: usize = 16 << 20;

/// Reads the scenario in the file `path`.
pub fn load(path: impl AsRef<Path>) -> Result<Scenario, ScenarioError> {
    load_with(path, &Overrides::none())
}

/// Reads the scenario in the file `path`, with some of its values replaced.
pub fn load_with(path: impl AsRef<Path>, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
    load_custom(path, overrides, &CustomNames::default())
}

/// As [`load_with`]; flows may also name congestion controllers of the caller.
pub fn load_custom(
    path: impl AsRef<Path>,
    overrides: &Overrides,
    controllers: &CustomNames,
) -> Result<Scenario, ScenarioError> {
    finish(read_document(path.as_ref())?, overrides, controllers, Some(path.as_ref()))
}

/// The file with what it includes.
pub(crate) fn read_document(path: &Path) -> Result<Node, Problem> {
    Loader::default().file(path)
}

/// Reads the scenario that `text` holds, `name` being what errors call it. A text cannot
/// include files, nor name files of traces.
pub fn parse(text: &str, name: &str) -> Result<Scenario, ScenarioError> {
    parse_with(text, name, &Overrides::none())
}

/// Reads the scenario that `text` holds, with some of its values replaced.
pub fn parse_with(
    text: &str,
    name: &str,
    overrides: &Overrides,
) -> Result<Scenario, ScenarioError> {
    parse_custom(text, name, overrides, &CustomNames::default())
}

/// As [`parse_with`]; flows may also name congestion controllers of the caller.
pub fn parse_custom(
    text: &str,
    name: &str,
    overrides: &Overrides,
    controllers: &CustomNames,
) -> Result<Scenario, ScenarioError> {
    let document = Node::parse(text, name)?;
    let include = FieldPath::root("include");
    if let Value::Table(table) = &document.value
        && table.contains_key("include")
    {
        let what = "a text cannot include files; load the scenario from a file";
        return Err(problem(&document, &include, what.to_owned()).into());
    }
    finish(document, overrides, controllers, None)
}

/// `file` is the scenario's file, `None` for a text.
pub(crate) fn finish(
    mut document: Node,
    overrides: &Overrides,
    controllers: &CustomNames,
    file: Option<&Path>,
) -> Result<Scenario, ScenarioError> {
    overrides.apply(&mut document)?;
    // Before the check: what a profile gives need not be written.
    profiles::fill(&mut document);
    let mut problems = check(&document, controllers);
    problems.sort_by_key(Problem::place);
    ScenarioError::unless_empty(problems)?;
    profile::fill(&mut document);
    let mut scenario: Scenario =
        serde_path_to_error::deserialize(document.to_json()).map_err(|error| {
            problem(&document, &FieldPath::of_serde(error.path()), error.inner().to_string())
        })?;
    scenario.controllers = controllers.clone();
    let mut problems = attach::traces(&mut scenario, &document, file);
    problems.sort_by_key(Problem::place);
    ScenarioError::unless_empty(problems)?;
    let locate = |(path, what)| problem(&document, &path, what);
    let mut problems: Vec<Problem> = scenario.findings().into_iter().map(locate).collect();
    problems.sort_by_key(Problem::place);
    ScenarioError::unless_empty(problems)?;
    Ok(scenario)
}

pub(crate) fn problem(document: &Node, path: &FieldPath, what: String) -> Problem {
    Problem { origin: Some(document.locate(path).clone()), field: path.to_string(), what }
}

/// The text of a file of at most [`MAX_FILE`] bytes. Its length is not known before it is read: it may
/// be a pipe, or a device that never ends.
fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    if file.take(MAX_FILE + 1).read_to_string(&mut text)? as u64 > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Reads a file and those it includes.
#[derive(Default)]
struct Loader {
    /// The files being read, outermost first: as written, and as the system knows them.
    open: Vec<(String, PathBuf)>,
    files: usize,
    bytes: usize,
}

impl Loader {
    fn file(&mut self, path: &Path) -> Result<Node, Problem> {
        let name = path.display().to_string();
        let refuse = |what| Problem { origin: None, field: String::new(), what };
        let unreadable = |error| refuse(format!("cannot read {name}: {error}"));
        let text = read_bounded(path).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => refuse(format!(
                "{name} is larger than {} MiB; a scenario is a short text",
                MAX_FILE >> 20
            )),
            _ => unreadable(error),
        })?;
        let real = path.canonicalize().map_err(unreadable)?;
        let looped = self.open.iter().any(|(_, open)| *open == real);
        self.open.push((name.clone(), real));
        self.files += 1;
        self.bytes += text.len();
        if looped {
            return Err(refuse(format!("{}; a file cannot include itself", self.chain())));
        }
        if self.open.len() > MAX_DEPTH {
            let what = format!("{}; at most {MAX_DEPTH} files deep will do", self.chain());
            return Err(refuse(what));
        }
        if self.files > MAX_FILES {
            return Err(refuse(format!("more than {MAX_FILES} files are included")));
        }
        if self.bytes > MAX_BYTES {
            let what = format!("the files of the scenario are larger than {} MiB", MAX_BYTES >> 20);
            return Err(refuse(what));
        }
        let document = self.with_includes(Node::parse(&text, &name)?, path)?;
        self.open.pop();
        Ok(document)
    }

    /// `document` laid over the files that it includes.
    fn with_includes(&mut self, mut document: Node, path: &Path) -> Result<Node, Problem> {
        let field = FieldPath::root("include");
        let include = document.as_table_mut().and_then(|table| table.remove("include"));
        let Some(include) = include else { return Ok(document) };
        let misfit = |node: &Node| Problem {
            origin: Some(node.origin.clone()),
            field: field.to_string(),
            what: format!(
                "{}; a list of files is needed, such as [\"base.toml\"]",
                node.describe()
            ),
        };
        let Value::List(items) = &include.value else { return Err(misfit(&include)) };
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut base: Option<Node> = None;
        for item in items {
            let Value::Text(file) = &item.value else { return Err(misfit(item)) };
            let included = self.file(&folder.join(file)).map_err(|mut problem| {
                if problem.origin.is_none() {
                    problem.origin = Some(item.origin.clone());
                    problem.field = field.to_string();
                }
                problem
            })?;
            match &mut base {
                Some(base) => base.merge(included),
                None => base = Some(included),
            }
        }
        Ok(match base {
            Some(mut base) => {
                base.merge(document);
                base
            }
            None => document,
        })
    }

    fn chain(&self) -> String {
        let names: Vec<&str> = self.open.iter().map(|(name, _)| name.as_str()).collect();
        names.join(" includes ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::VIDEO;

    /// A folder of its own for a test, gone with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder =
                std::env::temp_dir().join(format!("ontempo-{}-{name}", std::process::id()));
            for (file, text) in files {
                let path = folder.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(folder)
        }

        fn load(&self, file: &str) -> Result<Scenario, String> {
            load(self.0.join(file))
                .map_err(|error| error.to_string().replace(&format!("{}/", self.0.display()), ""))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_including_file_wins_over_what_it_includes() {
        let main = "include = [\"parts/base.toml\"]\nduration = \"5 s\"\n\
                    [topology.bottleneck]\nrate = \"10 Mbit/s\"\n";
        let folder = Folder::new("wins", &[("main.toml", main), ("parts/base.toml", VIDEO)]);
        let scenario = folder.load("main.toml").unwrap();
        let expected = VIDEO.replace("25 Mbit/s", "10 Mbit/s").replace("20 s", "5 s");
        assert_eq!(scenario, parse(&expected, "").unwrap());
    }

    #[test]
    fn a_table_of_another_kind_replaces_the_included_one() {
        let main = "include = [\"base.toml\"]\n[topology.bottleneck.queue]\nkind = \"red\"\n\
                    limit = \"9 packets\"\nmin-th = \"3 packets\"\n\
                    [flows.video.application]\nkind = \"ftp\"\n";
        let folder = Folder::new("kind", &[("main.toml", main), ("base.toml", VIDEO)]);
        let scenario = folder.load("main.toml").unwrap();
        assert_eq!(scenario.flows["video"].application, crate::model::Application::Ftp {});
    }

    #[test]
    fn an_error_names_the_very_file_that_holds_it() {
        let main = "include = [\"base.toml\"]\n[topology.access]\nrate = \"fast\"\n";
        let base = VIDEO.replace("count = 25", "count = 0");
        let folder = Folder::new("names", &[("main.toml", main), ("base.toml", &base)]);
        assert_eq!(
            folder.load("main.toml").unwrap_err(),
            "main.toml:3: topology.access.rate: `fast` does not begin with a number; a rate is \
             needed, such as \"25 Mbit/s\""
        );
        let fixed = main.replace("fast", "1 Gbit/s");
        let folder = Folder::new("names", &[("main.toml", &fixed), ("base.toml", &base)]);
        assert_eq!(
            folder.load("main.toml").unwrap_err(),
            "base.toml:17: flows.video.count: 0 flows will not do; 1 to 1000000 are possible"
        );
    }

    #[test]
    fn a_loop_of_includes_is_shown_as_a_chain() {
        let include = |file: &str| format!("# a comment\ninclude = [\"{file}\"]\n");
        let files = [("a.toml", include("b.toml")), ("b.toml", include("a.toml"))];
        let files: Vec<(&str, &str)> = files.iter().map(|(n, text)| (*n, text.as_str())).collect();
        assert_eq!(
            Folder::new("loop", &files).load("a.toml").unwrap_err(),
            "b.toml:2: include: a.toml includes b.toml includes a.toml; a file cannot include itself"
        );
    }

    #[test]
    fn includes_end_at_a_depth() {
        let names: Vec<String> = (0..20).map(|place| format!("{place}.toml")).collect();
        let texts: Vec<String> =
            (0..20).map(|place| format!("include = [\"{}.toml\"]\n", place + 1)).collect();
        let files: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let error = Folder::new("depth", &files).load("0.toml").unwrap_err();
        assert!(
            error.starts_with("15.toml:1: include: 0.toml includes 1.toml includes"),
            "{error}"
        );
        assert!(error.ends_with("includes 16.toml; at most 16 files deep will do"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_where_it_is_included() {
        let folder = Folder::new("absent", &[("main.toml", "include = [\"no.toml\"]")]);
        let error = folder.load("main.toml").unwrap_err();
        assert!(error.starts_with("main.toml:1: include: cannot read no.toml: "), "{error}");
        let error = folder.load("nowhere.toml").unwrap_err();
        assert!(error.starts_with("cannot read nowhere.toml: "), "{error}");
    }

    #[test]
    fn an_include_is_a_list_of_files() {
        let folder = Folder::new("list", &[("main.toml", "include = \"base.toml\"")]);
        assert_eq!(
            folder.load("main.toml").unwrap_err(),
            "main.toml:1: include: \"base.toml\" is a text; a list of files is needed, such as \
             [\"base.toml\"]"
        );
    }

    #[test]
    fn a_text_includes_nothing() {
        assert_eq!(
            parse("include = [\"/etc/passwd\"]", "s.toml").unwrap_err().to_string(),
            "s.toml:1: include: a text cannot include files; load the scenario from a file"
        );
    }
}
