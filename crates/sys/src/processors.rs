//! Sets of processors: where threads may run, and where one runs now. From sched_setaffinity(2).

use crate::Errno;
use crate::raw::{nr, syscall};

const WORDS: usize = 16;

/// A set of processors, by number; room for the first 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors([u64; WORDS]);

impl Processors {
    /// Those that a thread may run on. `INVAL`: this kernel knows of more than there is room for. `SRCH`: no such thread.
    pub fn of(thread: u32) -> Result<Processors, Errno> {
        let mut set = Processors::default();
        let (len, at) = (size_of::<Processors>(), &raw mut set as usize);
        // SAFETY: the call writes at most so many bytes to the set.
        unsafe { syscall!(nr::__NR_sched_getaffinity, thread as usize, len, at)? };
        Ok(set)
    }

    /// Just this one; empty when there is no room for it.
    #[must_use]
    pub fn one(processor: u32) -> Processors {
        let mut set = Processors::default();
        if let Some(word) = set.0.get_mut(processor as usize / 64) {
            *word = 1 << (processor % 64);
        }
        set
    }

    /// Those of both sets.
    #[must_use]
    pub fn with(mut self, other: &Processors) -> Processors {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, others)| *mine |= others);
        self
    }

    /// Is every processor of this set in the other, too?
    #[must_use]
    pub fn is_within(&self, other: &Processors) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, others)| mine & !others == 0)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The first one after `processor`, going round; None when there is no other.
    #[must_use]
    pub fn after(&self, processor: u32) -> Option<u32> {
        let has = |number: u32| self.0[number as usize / 64] & 1 << (number % 64) != 0;
        let all = WORDS as u32 * 64;
        (1..all).map(|distance| (processor + distance) % all).find(|&number| has(number))
    }

    /// From now on a thread of this process runs on these. It moves at once if it runs elsewhere. `INVAL`: none of them may
    /// be used. `PERM`: the thread belongs to another user.
    pub fn bind(&self, thread: u32) -> Result<(), Errno> {
        let (len, at) = (size_of::<Processors>(), &raw const *self as usize);
        // SAFETY: the call only reads the set.
        unsafe { syscall!(nr::__NR_sched_setaffinity, thread as usize, len, at) }.map(drop)
    }
}

/// The one that the calling thread runs on.
#[must_use]
pub fn current() -> u32 {
    let mut processor = 0u32;
    // SAFETY: the call writes one number.
    unsafe { syscall!(nr::__NR_getcpu, &raw mut processor as usize, 0) }
        .expect("getcpu cannot fail with a valid address");
    processor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;

    #[test]
    fn a_thread_runs_where_it_is_bound() {
        let all = Processors::of(thread::id()).unwrap();
        assert!(all.count() >= 1 && Processors::one(current()).is_within(&all));
        let one = Processors::one(current());
        one.bind(thread::id()).unwrap();
        assert_eq!(Processors::of(thread::id()), Ok(one));
        all.bind(thread::id()).unwrap();
        assert_eq!(Processors::of(thread::id()), Ok(all));
    }

    #[test]
    fn processors_come_in_turn() {
        let some = Processors([1 << 3 | 1 << 63, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 << 63]);
        let turn: Vec<_> =
            [0, 3, 63, 64, 1023].map(|number| some.after(number)).into_iter().flatten().collect();
        assert_eq!(turn, [3, 63, 64, 1023, 3]);
        assert_eq!(Processors::one(7).after(7), None);
    }

    #[test]
    fn none_is_refused() {
        assert_eq!(Processors::one(5000), Processors::default());
        assert_eq!(Processors::default().bind(thread::id()), Err(Errno::INVAL));
        assert!(!Processors::one(65).is_within(&Processors::one(1)));
    }
}
