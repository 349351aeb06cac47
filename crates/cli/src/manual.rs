//! Man pages and completions, made from the one table of options ([`crate::usage::table`]).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use overspill_sim::nearest;

use crate::stdout::print;
use crate::{output, usage};

/// Prints a page, or writes all of them.
pub fn main(command: &[String], out: Option<&Path>) -> Result<u8> {
    let pages = pages()?;
    match out {
        Some(directory) => write_all(directory, &pages)?,
        None => print(&chosen(&pages, &command.join("-"))?.text)?,
    }
    Ok(0)
}

/// Prints a shell's completions.
pub fn completions(shell: Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&usage::table()), "overspill", &mut script);
    print(&String::from_utf8(script).context("the completion script")?)?;
    Ok(0)
}

/// The table without what is no command of a user's.
///
/// *The story:* shells offered `guard`, `keep` and others beside `run`.
fn shown(table: &Command) -> Command {
    let commands = table.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let version = table.get_version().unwrap_or_default().to_owned();
    Command::new("overspill").version(version).subcommands(commands)
}

/// A page, and its file.
struct Page {
    name: String,
    text: String,
}

/// The pages `overspill.1`, `overspill-run.1`, `overspill-sim-calibrate.1` and so on.
fn pages() -> Result<Vec<Page>> {
    let mut table = usage::table();
    table.build();
    let mut all = Vec::new();
    add_pages("overspill", &table, &mut all)?;
    Ok(all)
}

fn add_pages(name: &str, command: &Command, all: &mut Vec<Page>) -> Result<()> {
    all.push(page(name, command.clone())?);
    let shown = |inner: &&Command| !inner.is_hide_set() && inner.get_name() != "help";
    command
        .get_subcommands()
        .filter(shown)
        .try_for_each(|inner| add_pages(&format!("{name}-{}", inner.get_name()), inner, all))
}

fn page(name: &str, command: Command) -> Result<Page> {
    let name = name.to_owned();
    let mut text = Vec::new();
    let man = Man::new(command.display_name(name.clone())).title(name.to_uppercase()).manual("Overspill");
    let man = man.source(concat!("overspill ", env!("CARGO_PKG_VERSION")));
    man.render(&mut text).context("a page in memory")?;
    let text = String::from_utf8(text).context("a page of text")?;
    Ok(Page { name, text: text.replace(".SH EXTRA\n", ".SH EXAMPLES\n") })
}

/// The page of a command: `run`, `sim-calibrate`, or with `overspill-` before it. No name is the
/// first page.
fn chosen<'a>(pages: &'a [Page], name: &str) -> Result<&'a Page> {
    let name = name.replace(' ', "-");
    let short = |page: &'a Page| page.name.strip_prefix("overspill-").unwrap_or_default();
    let found = pages.iter().find(|page| page.name == name || short(page) == name);
    found.ok_or_else(|| {
        let hint = nearest::hint(&name, pages.iter().map(short));
        anyhow!("there is no page `{name}`{hint}; overspill help lists the commands")
    })
}

fn write_all(directory: &Path, pages: &[Page]) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for page in pages {
        let path = directory.join(format!("{}.1", page.name));
        let same = fs::read(&path).is_ok_and(|old| old == page.text.as_bytes());
        if !same {
            output::say_replaced(&path);
            fs::write(&path, &page.text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See [`shown`].
    #[test]
    fn shells_complete_what_is_for_users() {
        let names = |table: &Command| -> Vec<String> {
            table.get_subcommands().map(|command| command.get_name().to_owned()).collect()
        };
        let (all, shown) = (names(&usage::table()), names(&shown(&usage::table())));
        for name in ["run", "doctor", "completions", "man", "top"] {
            assert!(shown.iter().any(|other| other == name), "{name}");
        }
        for name in ["guard", "keep", "reach", "load"] {
            assert!(
                !shown.iter().any(|other| other == name) && all.iter().any(|other| other == name),
                "{name}"
            );
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_options_and_variables() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["overspill", "overspill-run", "overspill-sim-calibrate", "overspill-swap-make"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.iter().any(|name| name.ends_with("guard") || name.ends_with("keep")), "{names:?}");
        let run = &chosen(&pages, "run").unwrap().text;
        // *The story:* the foot of each page named the command's last word, without a version.
        let title = format!(".TH OVERSPILL-RUN 1  \"overspill {}\" Overspill", env!("CARGO_PKG_VERSION"));
        assert!(run.contains(&title), "{run}");
        assert!(run.contains("OVERSPILL_SWAP_MAX") && run.contains("strict"), "{run}");
        let error = chosen(&pages, "rnu").err().unwrap().to_string();
        assert!(error.contains("no page") && error.contains("did you mean `run`?"), "{error}");
        for (asked, found) in
            [("overspill-run", "overspill-run"), ("sim calibrate", "overspill-sim-calibrate")]
        {
            assert_eq!(chosen(&pages, asked).unwrap().name, found);
        }
        assert_eq!(chosen(&pages, "").unwrap().name, "overspill");
    }
}
