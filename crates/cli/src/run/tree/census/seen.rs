//! What is seen of a tree at a look, and what is added up of it.

use std::borrow::Borrow;

use super::record::Record;
use crate::run::tree::descendants::Look;

/// Two looks are so far apart at most, twice.
const BRIEF_NS: u64 = 100_000_000;

/// A sighting with what was read beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sighting {
    /// What /proc says.
    pub look: Look,
    /// Of its anonymous memory, what others of the tree hold, too.
    pub doubly_bytes: u64,
    /// Its part of shared memory, and of what else nobody pages: page tables, if they are large.
    pub shmem_bytes: u64,
    pub table_bytes: u64,
    /// What it has in RAM of files that the kernel keeps for it while they fit.
    pub kept_bytes: u64,
    /// What of its anonymous memory are pages of files that nobody asked for.
    pub filled_bytes: u64,
    /// What others hold, too, could not be asked.
    pub is_doubtful: bool,
    /// It does not get on for now: it is stopped, or waits for a disk.
    pub is_put_off: bool,
}

impl Borrow<Look> for Sighting {
    fn borrow(&self) -> &Look {
        &self.look
    }
}

/// Programs that were there for so short that what they held beside others is a matter of luck.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brief {
    /// How many.
    pub programs: u64,
    /// The most that each held, added up.
    pub bytes: u64,
}

impl Brief {
    /// Counts a program, if it is one.
    pub fn add(&mut self, record: &Record) {
        if record.lived_ns() < BRIEF_NS {
            (self.programs, self.bytes) = (self.programs + 1, self.bytes + record.anon_peak_bytes);
        }
    }
}

/// Processes that are stopped keep what they have: their agents are, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopped {
    /// For how long anything was held so.
    pub for_ns: u64,
    /// The most that was, and by how many.
    pub peak_bytes: u64,
    /// See there.
    pub programs: u64,
}
