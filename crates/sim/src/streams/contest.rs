//! Budget domains that want more than there is, under one memory: programs with memory of their own,
//! readers and writers of files, each domain with what it is guaranteed.

use super::{Costs, Habit, Outcome, Setup, Stream, Way, World};
use crate::options::{Amount, amount, entries};
use crate::time::{Nanos, SECOND};
use overspill_mm::reclaim::lists::DomainId;
use overspill_mm::reclaim::node::{Config, Protection};
use overspill_mm::reclaim::scan::Era;
use overspill_mm::types::PAGE_SIZE;
use thiserror::Error;

/// Domains in one contest.
const DOMAINS_MAX: usize = 32;
/// Programs of a kind in one domain.
const PROGRAMS_MAX: u64 = 64;
/// Touches a second.
const TOUCHES_MAX: u64 = 1_000_000;
/// Less RAM has no room for watermarks.
const RAM_MIN: u64 = 16 << 20;
/// Pages of files, of programs and of RAM in all (256 GiB): the simulator keeps some 16 bytes for each.
const PAGES_MAX: u64 = 1 << 26;
/// What the rows that are nobody's are called.
const ALL: &str = "all";
/// Pages of a file are numbered by 32 bits.
const FILE_MAX: u64 = 1 << 40;

/// What a domain's text may say, for those who mistype it.
const KEYS: &str = "min=SIZE, low=SIZE, memory=SIZE, hot=PERCENT, touches=N, readers=N, writers=N, file=SIZE";

/// A domain that cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ContestError {
    /// Not `key=value`, or not such a key, or not such a value.
    #[error("'{entry}' of '{text}' does not fit; a domain is NAME:KEY=VALUE,... with {KEYS}")]
    Entry {
        /// What was typed.
        entry: String,
        /// The whole of it.
        text: String,
    },
    /// It has nothing to do.
    #[error("'{text}' has neither memory nor readers nor writers")]
    Nothing {
        /// The whole of it.
        text: String,
    },
    /// Sizes that do not go together.
    #[error("{0}")]
    Size(String),
}

/// A domain: what it is guaranteed, and its programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entrant {
    /// What it is called.
    pub name: String,
    /// Never less than this, in bytes; nor than `low` while others have something to give.
    pub min: u64,
    /// See `min`.
    pub low: u64,
    /// Anonymous memory of its program, in bytes; 0 = there is none.
    pub memory: u64,
    /// The part of it that is touched, in thousandths.
    pub hot_permille: u64,
    /// So often a second, at random.
    pub touches: u64,
    /// Programs that read a file each, from its start to its end.
    pub readers: u64,
    /// Programs that write one each.
    pub writers: u64,
    /// How long the files are; `None`: as the contest says.
    pub file: Option<u64>,
}

impl Entrant {
    /// From `NAME:KEY=VALUE,...`.
    pub fn parse(text: &str) -> Result<Entrant, ContestError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut entrant = Entrant {
            name: name.trim().to_owned(),
            min: 0,
            low: 0,
            memory: 0,
            hot_permille: 1000,
            touches: 10_000,
            readers: 0,
            writers: 0,
            file: None,
        };
        let wrong = |entry: &str| ContestError::Entry { entry: entry.to_owned(), text: text.to_owned() };
        if entrant.name.is_empty() {
            return Err(wrong(name));
        }
        if rest.is_empty() {
            return Err(ContestError::Nothing { text: text.to_owned() });
        }
        let mut keys = Vec::new();
        for entry in entries(rest).map_err(|_| wrong(rest))? {
            let (key, value) = entry.split_once('=').ok_or_else(|| wrong(entry))?;
            if keys.contains(&key.trim()) {
                return Err(wrong(entry));
            }
            keys.push(key.trim());
            entrant.set(key.trim(), value.trim()).ok_or_else(|| wrong(entry))?;
        }
        if entrant.memory + entrant.readers + entrant.writers == 0 {
            return Err(ContestError::Nothing { text: text.to_owned() });
        }
        Ok(entrant)
    }

    /// `None`: there is no such key, or it has no such value.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "min" => self.min = bytes(value)?,
            "low" => self.low = bytes(value)?,
            "memory" => self.memory = bytes(value)?,
            "hot" => self.hot_permille = share(value)?,
            "touches" => self.touches = count(value, TOUCHES_MAX)?,
            "readers" => self.readers = count(value, PROGRAMS_MAX)?,
            "writers" => self.writers = count(value, PROGRAMS_MAX)?,
            "file" => self.file = Some(bytes(value).filter(|bytes| (1..=FILE_MAX).contains(bytes))?),
            _ => return None,
        }
        Some(())
    }

    fn protection(&self) -> Protection {
        Protection { min: pages(self.min), low: pages(self.low) }
    }

    fn habit(&self, domain: DomainId) -> Option<Habit> {
        let own = pages(self.memory);
        let hot = (u64::from(own) * self.hot_permille / 1000) as u32;
        let burst = u32::from(hot > 0 && self.touches > 0);
        let period_ns = SECOND / self.touches.max(1);
        (own > 0).then_some(Habit { domain, pages: own, hot, burst, child: 0, period_ns })
    }
}

fn bytes(value: &str) -> Option<u64> {
    match amount(value).ok()? {
        Amount::Bytes(bytes) => Some(bytes),
        Amount::Permille(_) => None,
    }
}

fn share(value: &str) -> Option<u64> {
    match amount(value).ok()? {
        Amount::Permille(permille) if permille <= 1000 => Some(permille),
        _ => None,
    }
}

fn count(value: &str, most: u64) -> Option<u64> {
    value.parse().ok().filter(|&count| count <= most)
}

fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE_SIZE)).unwrap_or(u32::MAX)
}

/// Who contends for what.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The domains.
    pub entrants: Vec<Entrant>,
    /// One memory for all, in bytes.
    pub ram_bytes: u64,
    /// Swap, in bytes.
    pub swap_bytes: u64,
    /// It ends when all files (if any) have been gone through, after so long at the latest.
    pub limit_ns: Nanos,
    /// Processors.
    pub processors: usize,
    /// Of all chance.
    pub seed: u64,
}

impl Contest {
    /// Do the sizes go together?
    pub fn check(&self) -> Result<(), ContestError> {
        let wrong = |text: &str| Err(ContestError::Size(text.to_owned()));
        if self.entrants.is_empty() || self.entrants.len() > DOMAINS_MAX {
            return wrong("from 1 to 32 domains can contend");
        }
        if self.ram_bytes < RAM_MIN || self.ram_bytes > FILE_MAX {
            return wrong("the RAM is from 16M to 1T");
        }
        let guaranteed: u64 = self.entrants.iter().map(|it| it.min.min(FILE_MAX)).sum();
        if guaranteed * 10 > self.ram_bytes * 9 {
            return wrong("what is guaranteed (min) is at most nine tenths of the RAM");
        }
        if self.entrants.iter().any(|it| it.memory > FILE_MAX) {
            return wrong("a program has at most 1T of memory");
        }
        if self.pages() > PAGES_MAX {
            return wrong(
                "files (8 times the RAM each, or file=SIZE), memory and RAM are 256G in all at most",
            );
        }
        let is_taken = |name: &str| self.entrants.iter().filter(|it| it.name == name).count() > 1;
        if self.entrants.iter().any(|it| it.name == ALL || is_taken(&it.name)) {
            return wrong("each domain has a name of its own, and none is called 'all'");
        }
        Ok(())
    }

    /// What the simulator has to keep account of, in pages.
    fn pages(&self) -> u64 {
        let of = |it: &Entrant| {
            let files = u128::from(it.file.unwrap_or(8 * self.ram_bytes));
            u128::from(it.memory) + files * u128::from(it.readers + it.writers)
        };
        let bytes = u128::from(self.ram_bytes) + self.entrants.iter().map(of).sum::<u128>();
        u64::try_from(bytes / u128::from(PAGE_SIZE)).unwrap_or(u64::MAX)
    }

    /// Carries it out under the loop and the rules of an era. At the end what was written is awaited,
    /// and it is checked that all of it has arrived.
    pub fn run(&self, era: Era) -> Outcome {
        let domains = || (0u8..).map(DomainId).zip(&self.entrants);
        let node = Config::new(pages(self.ram_bytes), pages(self.swap_bytes), era.rules(), era);
        let setup = Setup {
            node,
            processors: self.processors,
            costs: Costs::default(),
            domains: self.entrants.iter().map(Entrant::protection).collect(),
            residents: domains().filter_map(|(id, entrant)| entrant.habit(id)).collect(),
            seed: self.seed,
        };
        let mut streams = Vec::new();
        for (domain, entrant) in domains() {
            let pages = pages(entrant.file.unwrap_or(8 * self.ram_bytes));
            let ways = [(Way::Read, entrant.readers), (Way::Write, entrant.writers)];
            for (way, count) in ways {
                for _ in 0..count {
                    streams.push(Stream { file: streams.len() as u16, pages, domain, way });
                }
            }
        }
        let mut world = World::new(setup);
        let outcome = world.run(&streams, Some(self.limit_ns));
        world.check();
        world.sync();
        world.check();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn domains_are_typed() {
        let db = Entrant::parse("db:low=100M, memory=64M,hot=50%,touches=5").expect("fine");
        assert_eq!((db.name.as_str(), db.min, db.low), ("db", 0, 100 * MIB));
        let habit = db.habit(DomainId(3)).expect("it has memory");
        assert_eq!((habit.pages, habit.hot, habit.burst, habit.period_ns), (16_384, 8192, 1, SECOND / 5));
        let log = Entrant::parse("log:writers=2,file=1G").expect("fine");
        assert_eq!((log.writers, log.file, log.habit(DomainId(0))), (2, Some(1 << 30), None));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, named) in [
            ("db:low", "'low' of"),
            ("db:low=50%", "'low=50%' of"),
            ("db:loww=5M", "'loww=5M' of"),
            ("db:readers=65", "'readers=65' of"),
            ("db:readers=1,readers=2", "'readers=2' of"),
            ("db:memory=1M,,", "'memory=1M,,' of"),
            (":memory=1M", "'' of"),
            ("db", "neither memory"),
            ("db:low=5M", "neither memory"),
        ] {
            let error = Entrant::parse(text).expect_err("refused").to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn sizes_go_together() {
        let contest = |text: &str, ram_bytes| Contest {
            entrants: vec![Entrant::parse(text).expect("fine")],
            ram_bytes,
            swap_bytes: 0,
            limit_ns: SECOND,
            processors: 1,
            seed: 1,
        };
        assert!(contest("a:readers=1", 64 * MIB).check().is_ok());
        assert!(contest("a:readers=1", MIB).check().is_err());
        assert!(contest("a:readers=1,min=60M", 64 * MIB).check().is_err());
        // *The story:* accounts of the pages of these files took 60 GiB of memory.
        assert!(contest("a:readers=8,writers=8", 65_536 * MIB).check().is_err());
        assert!(contest("a:readers=8,writers=8,file=1G", 65_536 * MIB).check().is_ok());
        assert!(contest("all:readers=1", 64 * MIB).check().is_err());
        let mut twice = contest("a:readers=1", 64 * MIB);
        twice.entrants.push(twice.entrants[0].clone());
        assert!(twice.check().is_err());
    }
}
