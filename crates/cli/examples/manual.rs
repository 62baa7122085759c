//! Writes the manual pages and the shell completions of `ontempo`, from the definition of its
//! command line: `cargo run --example manual -- FOLDER`. `make dist` packs them.

// The program's own definition; what reads the arguments is not part of it.
#[allow(dead_code, unused_imports)]
#[path = "../src/arguments/mod.rs"]
mod arguments;
#[allow(dead_code)]
#[path = "../src/seeds.rs"]
mod seeds;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

/// Where each shell looks for completions below `share`, and under which name.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/ontempo"),
    (Shell::Zsh, "zsh/site-functions/_ontempo"),
    (Shell::Fish, "fish/vendor_completions.d/ontempo.fish"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let folder =
        std::env::args_os().nth(1).ok_or("name the folder for man1 and the completions")?;
    write_manual(&PathBuf::from(folder))
}

/// Writes `man/man1` and the completions into `folder`, which stands for `share`.
fn write_manual(folder: &Path) -> Result<(), Box<dyn Error>> {
    let command = arguments::Arguments::command();
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone(), &pages)?;
    for (shell, place) in COMPLETIONS {
        let file = folder.join(place);
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        clap_complete::generate(
            shell,
            &mut command.clone(),
            "ontempo",
            &mut fs::File::create(file)?,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        write_manual(&folder).unwrap();
        let expected = pages(&arguments::Arguments::command(), "");
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
