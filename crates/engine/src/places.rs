//! Who has which place of the table of processes.
//!
//! A place is taken by its generation: even while it is at rest, odd while somebody claims it, so
//! that of two who saw the same generation one has it. The launcher gives a place back by writing
//! which generation it has kept, to a word of its own: late or early it frees nothing but that one.
//!
//! *The story:* the launcher gave places back by storing "free" over their state. With the table
//! full an agent had just taken the place of a program that another had replaced; that store freed
//! it a second time, and two processes had one share.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::shared::{Process, state};

impl Process {
    /// Was it never claimed, or has the launcher kept what its last claim reported?
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.generation.load(Acquire) == self.kept.load(Acquire)
    }

    /// Is somebody about to claim it? Nothing in it is valid then.
    #[must_use]
    pub fn is_being_claimed(&self) -> bool {
        !self.generation.load(Acquire).is_multiple_of(2)
    }

    /// What the claimant wrote is valid from now on.
    pub fn settle(&self) {
        self.generation.fetch_add(1, AcqRel);
    }

    /// Takes it if it `suits`, which is asked after the generation was read.
    fn take_if(&self, suits: impl Fn(&Process, u32) -> bool) -> bool {
        let generation = self.generation.load(Acquire);
        let next = generation.wrapping_add(1);
        generation.is_multiple_of(2)
            && suits(self, generation)
            && self.generation.compare_exchange(generation, next, AcqRel, Relaxed).is_ok()
    }
}

/// Takes a place, for who fills it and then settles it. Free ones come first, with `spares` those
/// that were never used; where there are none, what a program reported that watched to its exec,
/// though it may not have been kept yet.
pub fn take(places: &[Process], spares: bool) -> Option<(usize, &Process)> {
    let take = |suits: &dyn Fn(&Process, u32) -> bool| {
        places.iter().enumerate().find(|(_, process)| process.take_if(suits))
    };
    let is_over = |process: &Process, _| {
        process.is_over.load(Acquire) != 0 && process.state.load(Acquire) == state::WATCHING
    };
    let unused = if spares { take(&|_, generation| generation == 0) } else { None };
    unused
        .or_else(|| take(&|process, generation| process.kept.load(Acquire) == generation))
        .or_else(|| take(&is_over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn table(places: usize) -> Vec<Process> {
        (0..places).map(|_| Process::new()).collect()
    }

    fn claim(places: &[Process], spares: bool) -> Option<usize> {
        let (index, process) = take(places, spares)?;
        process.clear();
        process.state.store(state::WATCHING, Relaxed);
        process.settle();
        Some(index)
    }

    /// See the head of the file.
    #[test]
    fn what_is_given_back_late_frees_nobody_elses_place() {
        let places = table(1);
        assert_eq!(claim(&places, false), Some(0));
        assert_eq!(claim(&places, false), None, "it is full");
        let seen = places[0].generation.load(Relaxed);
        places[0].is_over.store(1, Relaxed);
        assert_eq!(claim(&places, false), Some(0), "its program was replaced");
        places[0].kept.store(seen, Relaxed);
        assert!(!places[0].is_free());
        assert_eq!(claim(&places, false), None, "it has an owner");
        places[0].kept.store(places[0].generation.load(Relaxed), Relaxed);
        assert_eq!(claim(&places, false), Some(0));
    }

    #[test]
    fn who_is_claiming_has_it() {
        let places = table(1);
        let (_, process) = take(&places, false).unwrap();
        assert!(process.is_being_claimed() && !process.is_free());
        assert!(take(&places, false).is_none());
        process.settle();
        assert!(!process.is_being_claimed());
    }

    #[test]
    fn a_trace_wants_places_that_were_never_used() {
        let places = table(2);
        let used = |spares| {
            let index = claim(&places, spares).unwrap();
            places[index].kept.store(places[index].generation.load(Relaxed), Relaxed);
            index
        };
        assert_eq!([false, false, true, true].map(used), [0, 0, 1, 0]);
    }
}
