//! The suites of `bench`: several loads, each with its own kernel settings, budgets alike. What is
//! in them stands in the tables here, what is asked of them in [`super::goals`].

use std::fmt;
use std::str::FromStr;

use overspill_sim::nearest;

use crate::compare::way::Way;
use crate::load::Work;
use crate::load::pattern::Pattern;

/// A suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// Sequential and random, private and shared memory, every kind of read-ahead.
    Swapin,
    /// Four sequential threads beside eight random ones, every kind of read-ahead.
    Mixed,
    /// Every load that has a goal, against the kernel's best setting.
    All,
}

/// How long a load goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Amount {
    /// Multiples of its pages.
    Laps(u32),
    /// Seconds: for threads and phases of different speed.
    Seconds(u32),
}

/// A load of a suite.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Its name, for `--only` and for files.
    pub name: &'static str,
    /// Its pattern.
    pub pattern: Pattern,
    /// Its memory, in ninths of the budget.
    pub ninths: u64,
    threads: u32,
    shared: bool,
    amount: Amount,
}

/// A tenth more than fits.
pub const NINTHS: u64 = 10;

const fn load(name: &'static str, pattern: Pattern, amount: Amount) -> Load {
    Load { name, pattern, ninths: NINTHS, threads: 1, shared: false, amount }
}

/// Neither half fits, so that the load is not won by who gets its half into RAM.
const fn mixed(name: &'static str, sequential: u32, random: u32) -> Load {
    Load { ninths: 27, ..load(name, Pattern::Mixed { sequential, random }, Amount::Seconds(10)) }
}

const SEQUENTIAL: Load = load("seq", Pattern::Sequential, Amount::Laps(3));
const RANDOM: Load = load("random", Pattern::Random, Amount::Laps(4));
const MIXED: Load = mixed("mixed", 4, 8);

const SWAPIN_LOADS: [Load; 4] = [
    SEQUENTIAL,
    RANDOM,
    Load { name: "seq-shared", shared: true, ..SEQUENTIAL },
    Load { name: "random-shared", shared: true, ..RANDOM },
];
const MIXED_LOADS: [Load; 1] = [MIXED];
const ALL_LOADS: [Load; 11] = [
    SEQUENTIAL,
    load("descending", Pattern::Descending, Amount::Laps(3)),
    load("interleaved-4", Pattern::Interleaved(4), Amount::Laps(3)),
    load("stride-4", Pattern::Stride(4), Amount::Laps(3)),
    load("stride-16", Pattern::Stride(16), Amount::Laps(3)),
    load("stride-64", Pattern::Stride(64), Amount::Laps(3)),
    mixed("mixed-1-1", 1, 1),
    MIXED,
    RANDOM,
    Load { name: "random-8", threads: 8, ..RANDOM },
    load("phases", Pattern::Phases, Amount::Seconds(10)),
];

/// Every kind of read-ahead that kernel and overspill have.
const EVERY_WAY: &str = "kernel:0:cluster,kernel:0:vma,kernel:3:cluster,kernel:3:vma,kernel:5:cluster,kernel:5:vma,\
                         overspill:cluster,overspill:vma,overspill:adaptive";
/// What the goals are about. Without read-ahead it is all one by which rules there is none.
const GOAL_WAYS: &str = "kernel:0,kernel:3:cluster,kernel:3:vma,kernel:5:cluster,kernel:5:vma,overspill:linux,\
                         overspill:adaptive";

impl Suite {
    /// Its loads, in the order of its report.
    pub fn loads(self) -> &'static [Load] {
        match self {
            Suite::Swapin => &SWAPIN_LOADS,
            Suite::Mixed => &MIXED_LOADS,
            Suite::All => &ALL_LOADS,
        }
    }

    /// The ways that it compares unless it is told others.
    pub fn ways(self) -> Vec<Way> {
        let names = if self == Suite::All { GOAL_WAYS } else { EVERY_WAY };
        names.split(',').map(|name| name.parse().expect("the suites' ways are ways")).collect()
    }

    /// Its loads of these names, all if there are none; or what is wrong with a name.
    pub fn chosen(self, names: &[String]) -> Result<Vec<Load>, String> {
        let all = || self.loads().iter().copied();
        if let Some(stranger) = names.iter().find(|name| !all().any(|load| load.name == name.as_str())) {
            let known: Vec<_> = all().map(|load| load.name).collect();
            let hint = nearest::hint(stranger, known.iter().copied());
            return Err(format!("`{stranger}` is no load of `{self}`{hint}: it has {}", known.join(", ")));
        }
        Ok(all().filter(|load| names.is_empty() || names.iter().any(|name| name == load.name)).collect())
    }
}

impl Load {
    /// What the load is to do, with the user's wishes for its length, its seed and its stores.
    pub fn work(&self, wishes: &Work) -> Work {
        let mut work =
            Work { threads: self.threads, shared: self.shared, latency: true, hint: true, ..wishes.clone() };
        if work.laps.is_none() && work.touches.is_none() && work.seconds.is_none() {
            match self.amount {
                Amount::Laps(laps) => work.laps = Some(laps),
                Amount::Seconds(seconds) => work.seconds = Some(seconds),
            }
        }
        work
    }

    /// Whether its memory is shared: then overspill means the library's regions.
    pub fn is_shared(&self) -> bool {
        self.shared
    }
}

impl FromStr for Suite {
    type Err = ();

    fn from_str(text: &str) -> Result<Suite, ()> {
        [Suite::Swapin, Suite::Mixed, Suite::All]
            .into_iter()
            .find(|suite| suite.to_string() == text)
            .ok_or(())
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Suite::Swapin => "swapin",
            Suite::Mixed => "mixed",
            Suite::All => "all",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(words: &[&str]) -> Work {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            work: Work,
        }
        Line::parse_from([&["x"], words].concat()).work
    }

    #[test]
    fn every_suite_has_ways_of_both_kinds_and_loads_of_different_names() {
        for suite in [Suite::Swapin, Suite::Mixed, Suite::All] {
            let ways = suite.ways();
            assert!(ways.iter().any(|way| matches!(way, Way::Kernel { .. })));
            assert!(ways.iter().any(|way| way.to_string() == "overspill:adaptive"));
            let mut names: Vec<_> = suite.loads().iter().map(|load| load.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), suite.loads().len());
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
    }

    #[test]
    fn loads_are_chosen_by_name_and_strangers_are_named() {
        let chosen = Suite::All.chosen(&["random".into(), "seq".into()]).unwrap();
        assert_eq!(chosen.iter().map(|load| load.name).collect::<Vec<_>>(), ["seq", "random"]);
        assert_eq!(Suite::Swapin.chosen(&[]).unwrap().len(), 4);
        let complaint = Suite::Mixed.chosen(&["seq".into()]).unwrap_err();
        assert_eq!(complaint, "`seq` is no load of `mixed`: it has mixed");
    }

    #[test]
    fn the_user_may_shorten_a_load_but_not_change_what_it_is() {
        let random = Suite::All.chosen(&["random-8".into()]).unwrap()[0];
        let work = random.work(&wishes(&[]));
        assert_eq!((work.threads, work.laps, work.seconds, work.latency), (8, Some(4), None, true));
        let work = random.work(&wishes(&["--seconds=1", "--write", "--threads=2"]));
        assert_eq!((work.threads, work.laps, work.seconds, work.write), (8, None, Some(1), true));
    }
}
