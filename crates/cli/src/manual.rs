//! `ontempo manual`: the manual pages and the shell completions, from the definition of the command
//! line.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use ontempo_place::OutputFolder;

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Where each shell looks for completions below `share`, and under which name.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/ontempo"),
    (Shell::Zsh, "zsh/site-functions/_ontempo"),
    (Shell::Fish, "fish/vendor_completions.d/ontempo.fish"),
];

/// Writes them into `folder`, which stands for `share`.
pub(crate) fn manual(folder: &Path) -> Result<(), Failure> {
    write(folder).map_err(|error| Failure::Environment(format!("{}: {error}", folder.display())))
}

fn write(folder: &Path) -> io::Result<()> {
    let mut command = Arguments::command();
    for (shell, place) in COMPLETIONS {
        let (below, name) = place.rsplit_once('/').unwrap_or(("", place));
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "ontempo", &mut text);
        OutputFolder::create(&folder.join(below))?.replace(name, &text)?;
    }
    command = command.disable_help_subcommand(true);
    command.build();
    write_pages(&command, &OutputFolder::create(&folder.join("man/man1"))?)
}

/// Writes the page of `command`, and those of the commands below it.
fn write_pages(command: &Command, folder: &OutputFolder) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    folder.replace(&page.get_filename(), &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The names of the pages of `command` and of those below it.
    fn pages(command: &clap::Command, before: &str) -> Vec<String> {
        let name = format!("{before}{}", command.get_name());
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        let below = below.flat_map(|below| pages(below, &format!("{name}-")));
        std::iter::once(format!("{name}.1")).chain(below).collect()
    }

    #[test]
    fn each_command_has_a_page_with_an_example_and_each_shell_its_completions() {
        let folder = std::env::temp_dir().join(format!("ontempo-manual-{}", std::process::id()));
        write(&folder).unwrap();
        let expected = pages(&Arguments::command(), "");
        assert!(expected.len() > 30, "{expected:?}");
        for page in &expected {
            let text = fs::read_to_string(folder.join("man/man1").join(page)).unwrap();
            // As its title has it: `ontempo kernel load`.
            let command = page.trim_end_matches(".1").replace('-', " ");
            let plain = text.replace("\\-", "-");
            let examples = plain.lines().skip_while(|line| !line.starts_with("Example"));
            assert!(examples.skip(1).any(|line| line.contains(&command)), "{page}: {text}");
        }
        for (_, place) in COMPLETIONS {
            assert!(
                fs::read_to_string(folder.join(place)).unwrap().contains("simulate"),
                "{place}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
