//! What a program does to its memory: a stream of accesses, from a generator or from a trace.
//!
//! A [`Workload`] is one program. Its accesses carry a thread and a space (an address space of the
//! program's own numbering); each thread's accesses come in that thread's order, and a thread waits
//! for its own faults only. Streams are never held in memory as a whole.

use crate::time::Nanos;
use crate::trace::sightings::GoneRecord;
use overspill_mm::types::RegionKind;
use std::collections::HashSet;
use thiserror::Error;

/// One touch of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Virtual page number.
    pub vpn: u64,
    /// What the thread computes before it, in ns.
    pub think_ns: Nanos,
    /// The thread, from 0 on.
    pub thread: u16,
    /// The address space, from 0 on.
    pub space: u16,
    /// A store (else a load).
    pub write: bool,
}

/// A range of pages that a workload declares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionSpec {
    /// The address space.
    pub space: u16,
    /// First page.
    pub start: u64,
    /// One past the last page.
    pub end: u64,
    /// What backs it.
    pub kind: RegionKind,
}

/// A workload that cannot go on.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The trace is damaged or cannot be read.
    #[error("{0}")]
    Trace(String),
    /// Address spaces are numbered by 16 bits.
    #[error("more than 65,535 address spaces")]
    Spaces,
}

/// A stream of accesses.
pub trait Workload {
    /// The next access; `None` at the end, and ever after.
    fn next(&mut self) -> Result<Option<Access>, WorkloadError>;

    /// Adds up to `most` accesses to `batch`; none at the end.
    fn fill(&mut self, batch: &mut Vec<Access>, most: usize) -> Result<(), WorkloadError> {
        for _ in 0..most {
            let Some(access) = self.next()? else { break };
            batch.push(access);
        }
        Ok(())
    }

    /// The ranges that are known beforehand. Pages outside them become anonymous regions as they are touched.
    fn regions(&self) -> Vec<RegionSpec> {
        Vec::new()
    }

    /// Those that were not known beforehand and that it has come to since the last call.
    fn take_regions(&mut self) -> Vec<RegionSpec> {
        Vec::new()
    }

    /// Pages that the program gave back before the accesses that [`Workload::fill`] added last, and after
    /// those before them.
    fn take_gone(&mut self) -> Vec<GoneRecord> {
        Vec::new()
    }
}

impl<W: Workload + ?Sized> Workload for Box<W> {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        (**self).next()
    }

    fn fill(&mut self, batch: &mut Vec<Access>, most: usize) -> Result<(), WorkloadError> {
        (**self).fill(batch, most)
    }

    fn regions(&self) -> Vec<RegionSpec> {
        (**self).regions()
    }

    fn take_regions(&mut self) -> Vec<RegionSpec> {
        (**self).take_regions()
    }

    fn take_gone(&mut self) -> Vec<GoneRecord> {
        (**self).take_gone()
    }
}

/// A list of accesses, for tests.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    accesses: std::vec::IntoIter<Access>,
}

impl Listed {
    /// The workload that does `accesses`.
    #[must_use]
    pub fn new(accesses: Vec<Access>) -> Listed {
        Listed { accesses: accesses.into_iter() }
    }
}

impl Workload for Listed {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        Ok(self.accesses.next())
    }
}

/// Of another workload, with pages that have content from their first touch on: that is a store.
pub struct Filled<W> {
    workload: W,
    touched: HashSet<(u16, u64)>,
}

impl<W: Workload> Filled<W> {
    /// Nothing has been touched yet.
    #[must_use]
    pub fn new(workload: W) -> Filled<W> {
        Filled { workload, touched: HashSet::new() }
    }
}

impl Filled<Box<dyn Workload + Send>> {
    /// All of these programs so.
    #[must_use]
    pub fn all(programs: Vec<Box<dyn Workload + Send>>) -> Vec<Box<dyn Workload + Send>> {
        programs
            .into_iter()
            .map(|program| Box::new(Filled::new(program)) as Box<dyn Workload + Send>)
            .collect()
    }
}

impl<W: Workload> Workload for Filled<W> {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        let Some(access) = self.workload.next()? else { return Ok(None) };
        let is_new = self.touched.insert((access.space, access.vpn));
        Ok(Some(Access { write: access.write || is_new, ..access }))
    }

    fn regions(&self) -> Vec<RegionSpec> {
        self.workload.regions()
    }

    fn take_regions(&mut self) -> Vec<RegionSpec> {
        self.workload.take_regions()
    }
}

/// Workloads one after another, as one thread.
pub struct Chain {
    parts: std::collections::VecDeque<Box<dyn Workload + Send>>,
    regions: Vec<RegionSpec>,
}

impl Chain {
    /// All of `parts`, in order; the regions are those of the first.
    #[must_use]
    pub fn new(parts: Vec<Box<dyn Workload + Send>>) -> Chain {
        let regions = parts.first().map(|part| part.regions()).unwrap_or_default();
        Chain { parts: parts.into(), regions }
    }
}

impl Workload for Chain {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        while let Some(part) = self.parts.front_mut() {
            if let Some(access) = part.next()? {
                return Ok(Some(access));
            }
            self.parts.pop_front();
        }
        Ok(None)
    }

    fn regions(&self) -> Vec<RegionSpec> {
        self.regions.clone()
    }
}
