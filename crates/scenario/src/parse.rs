//! From a file, or a text, to a scenario that is known to make sense.

use std::path::{Path, PathBuf};

use crate::check::check;
use crate::document::{Node, Value};
use crate::error::{Problem, ScenarioError};
use crate::model::Scenario;
use crate::overrides::Overrides;
use crate::path::FieldPath;

/// How deep files may include one another.
const MOST_DEPTH: usize = 16;
/// How many files one scenario may be made of, each counted as often as it is included.
const MOST_FILES: usize = 256;

/// Reads the scenario in the file `path`.
pub fn load(path: impl AsRef<Path>) -> Result<Scenario, ScenarioError> {
    load_with(path, &Overrides::none())
}

/// Reads the scenario in the file `path`, with some of its values replaced.
pub fn load_with(
    path: impl AsRef<Path>,
    overrides: &Overrides,
) -> Result<Scenario, ScenarioError> {
    let document = Loader::default().file(path.as_ref())?;
    finish(document, overrides)
}

/// Reads the scenario that `text` holds, `name` being what errors call it. A text cannot
/// include files.
pub fn parse(text: &str, name: &str) -> Result<Scenario, ScenarioError> {
    parse_with(text, name, &Overrides::none())
}

/// Reads the scenario that `text` holds, with some of its values replaced.
pub fn parse_with(
    text: &str,
    name: &str,
    overrides: &Overrides,
) -> Result<Scenario, ScenarioError> {
    let document = Node::parse(text, name)?;
    let include = FieldPath::root("include");
    if let Value::Table(table) = &document.value
        && table.contains_key("include")
    {
        let what = "a text cannot include files; load the scenario from a file";
        return Err(problem(&document, &include, what.to_owned()).into());
    }
    finish(document, overrides)
}

fn finish(mut document: Node, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
    overrides.apply(&mut document)?;
    let mut problems = check(&document);
    problems.sort_by_key(Problem::place);
    ScenarioError::unless_empty(problems)?;
    let scenario: Scenario =
        serde_path_to_error::deserialize(document.to_json()).map_err(|error| {
            problem(&document, &FieldPath::of_serde(error.path()), error.inner().to_string())
        })?;
    let locate = |(path, what)| problem(&document, &path, what);
    let mut problems: Vec<Problem> = scenario.findings().into_iter().map(locate).collect();
    problems.sort_by_key(Problem::place);
    ScenarioError::unless_empty(problems)?;
    Ok(scenario)
}

fn problem(document: &Node, path: &FieldPath, what: String) -> Problem {
    Problem { origin: Some(document.locate(path).clone()), field: path.to_string(), what }
}

/// Reads a file and those it includes.
#[derive(Default)]
struct Loader {
    /// The files being read, outermost first: as written, and as the system knows them.
    open: Vec<(String, PathBuf)>,
    files: usize,
}

impl Loader {
    fn file(&mut self, path: &Path) -> Result<Node, Problem> {
        let name = path.display().to_string();
        let refuse = |what| Problem { origin: None, field: String::new(), what };
        let unreadable = |error| refuse(format!("cannot read {name}: {error}"));
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let real = path.canonicalize().map_err(unreadable)?;
        let looped = self.open.iter().any(|(_, open)| *open == real);
        self.open.push((name.clone(), real));
        self.files += 1;
        if looped {
            return Err(refuse(format!("{}; a file cannot include itself", self.chain())));
        }
        if self.open.len() > MOST_DEPTH {
            let what = format!("{}; at most {MOST_DEPTH} files deep will do", self.chain());
            return Err(refuse(what));
        }
        if self.files > MOST_FILES {
            return Err(refuse(format!("more than {MOST_FILES} files are included")));
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
            what: format!("{}; a list of files is needed, such as [\"base.toml\"]", node.describe()),
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
