//! Which options mean something to a bench that is no load. What else is typed is refused, so that
//! nobody takes for measured what was not. Variables and the configuration file, which are for all
//! commands, are let pass.
//!
//! *The story:* `bench slots --threads 4 --encrypt` gave four threads' worth of nothing, and `bench slots
//! --json FILE` wrote none, without a word.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error};

use super::What;
use crate::args::Tuning;

/// What a bench takes.
pub struct Options {
    /// Its options, by their long names.
    pub names: &'static [&'static str],
    /// And those of [`Tuning`], without the policies, which its ways name.
    pub tuning: bool,
}

impl Options {
    fn has(&self, long: &str) -> bool {
        self.names.contains(&long) || self.tuning && is_tuning(long)
    }

    fn list(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|long| format!("--{long}")).collect();
        names.join(", ") + if self.tuning { ", and how to spill" } else { "" }
    }
}

fn is_tuning(long: &str) -> bool {
    let tuning = Tuning::augment_args(Command::new("tuning"));
    let is_there = tuning.get_arguments().any(|arg| arg.get_long() == Some(long));
    is_there && !["readahead", "reclaim"].contains(&long)
}

/// Refuses an option that does nothing, of a line that has been parsed. `table` is that of all commands.
pub fn refuse_idle(table: &Command, matches: &ArgMatches) -> Result<(), Error> {
    let Some(("bench", typed)) = matches.subcommand() else { return Ok(()) };
    let Some((name, options)) = typed.get_one::<What>("what").and_then(|what| what.options()) else {
        return Ok(());
    };
    let is_typed = |arg: &&Arg| typed.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let bench = table.find_subcommand("bench").expect("it was parsed");
    let mut typed = bench.get_arguments().filter(is_typed).filter_map(Arg::get_long);
    let Some(idle) = typed.find(|long| !options.has(long)) else { return Ok(()) };
    let text = format!("--{idle} does nothing for `bench {name}`, which takes {}", options.list());
    Err(Error::raw(ErrorKind::ArgumentConflict, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::complaint_of;

    fn complaint(line: &str) -> Option<String> {
        complaint_of(format!("overspill bench {line}").split(' ').map(str::to_owned).collect())
    }

    /// See the head of the module.
    #[test]
    fn what_does_nothing_is_refused_and_what_does_is_told() {
        for (line, idle, taken) in [
            ("slots --size 1M --laps 1000", "--size", "takes --laps"),
            ("slots --laps 3 --threads 4", "--threads", "takes --laps"),
            ("slots --encrypt", "--encrypt", "takes --laps"),
            ("slots --json f", "--json", "takes --laps"),
            ("extents --only nonsense", "--only", "takes --size, --swap"),
            ("extents --ways kernel:3", "--ways", "takes --size, --swap"),
            ("files --reclaim lru", "--reclaim", "takes --ram, --only, "),
            ("files --size 1G", "--size", "takes --ram, --only, "),
            ("files --no-files", "--no-files", "takes --ram, --only, "),
            ("files --seed 1", "--seed", "takes --ram, --only, "),
            ("reclaim --ways overspill --threads 9", "--threads", "takes --ram, --size, "),
            ("reclaim --only x", "--only", "takes --ram, --size, "),
            ("reclaim --reclaim lru", "--reclaim", "--ways, "),
            ("reclaim --write", "--write", "takes --ram, --size, "),
        ] {
            let text = complaint(line).unwrap_or_else(|| panic!("`{line}` was accepted"));
            assert!(text.starts_with(&format!("{idle} does nothing for `bench ")), "{text}");
            assert!(text.contains(taken) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn what_means_something_is_taken() {
        for line in [
            "slots --laps 3",
            "extents --size 64M --swap .",
            "files --ram 256M --only cold,cyclic --runs 3 --json f --swap .",
            "files --out d",
            "reclaim --laps 8 --ways kernel:0,overspill:adaptive --encrypt --ram 1G --size 1G --runs 2",
            "seq --threads 4 --write --encrypt",
            "all --only seq --out d",
        ] {
            assert_eq!(complaint(line), None, "{line}");
        }
    }

    #[test]
    fn every_option_that_is_taken_is_one() {
        let table = crate::usage::table();
        let bench = table.find_subcommand("bench").expect("it is a command");
        let all: Vec<&str> = bench.get_arguments().filter_map(Arg::get_long).collect();
        for name in ["files", "extents", "slots", "reclaim"] {
            let (own, options) = name.parse::<What>().ok().and_then(What::options).expect("it is no load");
            assert_eq!(own, name);
            assert!(options.names.iter().all(|long| all.contains(long)), "{name}: {:?}", options.names);
        }
    }
}
