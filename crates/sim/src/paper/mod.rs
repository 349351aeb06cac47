//! Published experiments, run again: what was printed then beside what the simulation says, and
//! whether the shape is the same.
//!
//! A [`Paper`] is a name, a source and a function that simulates its [`Sheet`]s. Shape means: who
//! wins, and by about how much. Absolute times depend on machines that the announcements do not
//! name; so a row is judged by the ratios to its first column, and by the order of its columns.

pub mod detector;
pub mod extents;
pub mod file_readahead;
pub mod lu;
pub mod reclaim;
pub mod render;
pub mod sheet;
pub mod vma;

pub use sheet::{Cell, Judge, Row, Sheet};

use crate::workload::WorkloadError;

/// An experiment.
pub struct Paper {
    /// What `sim paper` calls it.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Where it was published, and the section of the specification with its numbers.
    pub source: &'static str,
    /// What is long is divided by this unless somebody asks for another number: the rows hold, or
    /// not, as in full.
    pub shorten: u64,
    /// Runs it.
    pub run: fn(&Effort<'_>) -> Result<Vec<Sheet>, WorkloadError>,
}

/// How much to do, and whom to tell.
pub struct Effort<'a> {
    /// Simulations at a time.
    pub jobs: usize,
    /// Everything that is long is divided by this; 1 = as published (or as much as a simulation
    /// gets through).
    pub shorten: u64,
    /// Hears how many of how many simulations are done.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// All experiments.
pub const PAPERS: [Paper; 5] = [
    Paper {
        name: "swapin-detector",
        title: "swap: add a simple detector for inappropriate swapin readahead (Linux 3.14)",
        source: "kernel commit 579f82901f6f, 2014; specification 6.6 and 6.7, seed 1",
        shorten: 4,
        run: detector::run,
    },
    Paper {
        name: "vma-readahead",
        title: "mm, swap: VMA based swap readahead (Linux 4.14)",
        source: "announcement of the series, 2017; specification 6.7, seed 5",
        shorten: 1,
        run: vma::run,
    },
    Paper {
        name: "swap-extents",
        title: "mm, swap: use rbtree for swap_extent (Linux 5.3)",
        source: "kernel commit 4efaceb1c5f8, 2019; specification 3.2 and 6.7, seed 3",
        shorten: 1,
        run: extents::run,
    },
    Paper {
        name: "proportional-reclaim",
        title: "mm: vmscan: use proportional scanning during direct reclaim (Linux 3.16)",
        source: "kernel commit 1a501907bbea, 2014; specification 5.4, 6.1 and 6.7, seed 2",
        shorten: 8,
        run: reclaim::run,
    },
    Paper {
        name: "file-readahead",
        title: "readahead: on-demand readahead logic (Linux 2.6.23)",
        source: "kernel commit 122a21d11cbf, 2007; specification 6.2 to 6.5 and 6.7, seed 4",
        shorten: 8,
        run: file_readahead::run,
    },
];

/// The experiment of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Paper> {
    PAPERS.iter().find(|paper| paper.name == name)
}
