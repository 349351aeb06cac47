//! What the program has discarded a short while ago, of which the kernel may not have freed all yet.
//!
//! The kernel tells of MADV_DONTNEED before it frees anything, waits until that was read, and frees
//! then. Until it has, old pages are in view of which `mm` knows nothing any more. Whoever looks
//! for pages that `mm` does not know (they come with MADV_FREE that was not carried out) must not
//! take those for such: taken out of view, the old bytes would come back. Nothing tells when the
//! kernel is through. So what is found in such a range counts only after a rest that is longer than
//! any freeing takes, and after whoever held the lock of the address space has let go of it.

use alloc::vec::Vec;
use core::mem;

use overspill_mm::types::Nanos;
use overspill_sys::{AddressRange, overlap};

/// How long a range rests at least; twice as long at most.
pub const REST_NS: Nanos = 1_000_000_000;
/// Ranges that are told apart. More are taken for one with all between them.
const RANGES: usize = 256;

/// The ranges, of the running rest and of the one before.
#[derive(Default)]
pub(crate) struct Discards {
    young: Vec<AddressRange>,
    old: Vec<AddressRange>,
    turned: Nanos,
}

impl Discards {
    /// The program discards a range.
    pub fn note(&mut self, range: AddressRange, now: Nanos) {
        self.turn(now);
        if let Some(last) = self.young.last_mut()
            && last.start <= range.end
            && range.start <= last.end
        {
            return join(last, &range);
        }
        if self.young.len() == RANGES {
            let (all, others) = self.young.split_first_mut().expect("there are some");
            others.iter().for_each(|part| join(all, part));
            join(all, &range);
            self.young.truncate(1);
        } else {
            self.young.push(range);
        }
    }

    /// The range is new memory, or gone: what is seen there is of now.
    pub fn forget(&mut self, range: &AddressRange) {
        for known in [&mut self.young, &mut self.old] {
            known.retain(|known| known.start < range.start || range.end < known.end);
        }
    }

    /// Calls `visit` with the parts of a range, in order, and whether each has rested.
    pub fn each_part(&mut self, range: AddressRange, now: Nanos, mut visit: impl FnMut(AddressRange, bool)) {
        self.turn(now);
        let mut at = range.start;
        while at < range.end {
            let rest = at..range.end;
            let touching = self.young.iter().chain(&self.old).filter(|known| overlap(known, &rest));
            let next = touching.min_by_key(|known| known.start);
            let (start, end) = next.map_or((rest.end, rest.end), |next| (next.start, next.end.min(rest.end)));
            if at < start {
                visit(at..start, true);
            }
            if start < end {
                visit(start.max(at)..end, false);
            }
            at = end;
        }
    }

    fn turn(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.turned);
        if passed >= REST_NS {
            self.old = mem::take(&mut self.young);
            self.turned = now;
        }
        if passed >= 2 * REST_NS {
            self.old.clear();
        }
    }
}

fn join(all: &mut AddressRange, part: &AddressRange) {
    *all = all.start.min(part.start)..all.end.max(part.end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rested(discards: &mut Discards, range: AddressRange, now: Nanos) -> (Vec<AddressRange>, bool) {
        let mut parts = Vec::new();
        let mut others = false;
        discards.each_part(range, now, |part, rested| {
            if rested {
                parts.push(part);
            } else {
                others = true;
            }
        });
        (parts, others)
    }

    #[test]
    fn a_range_counts_again_after_its_rest() {
        let mut discards = Discards::default();
        let start = 10 * REST_NS;
        discards.note(100..200, start);
        discards.note(400..500, start);
        let cut = (std::vec![50..100, 200..400, 500..600], true);
        assert_eq!(rested(&mut discards, 50..600, start), cut);
        assert_eq!(rested(&mut discards, 50..600, start + REST_NS), cut, "rested, and known so by the next");
        assert_eq!(rested(&mut discards, 120..180, start + REST_NS), (std::vec![], true));
        assert_eq!(rested(&mut discards, 50..600, start + 2 * REST_NS), (std::vec![50..600], false));
    }

    #[test]
    fn a_range_that_is_discarded_late_rests_as_long() {
        let mut discards = Discards::default();
        let start = 10 * REST_NS;
        discards.note(100..200, start);
        discards.note(300..400, start + REST_NS - 1);
        assert!(rested(&mut discards, 300..400, start + 2 * REST_NS - 2).1, "not yet");
        assert!(!rested(&mut discards, 300..400, start + 3 * REST_NS).1);
    }

    #[test]
    fn new_memory_need_not_rest() {
        let mut discards = Discards::default();
        discards.note(100..200, REST_NS);
        discards.forget(&(0..150));
        assert!(rested(&mut discards, 100..120, REST_NS).1, "a part of it is not the whole");
        discards.forget(&(0..200));
        assert!(!rested(&mut discards, 100..200, REST_NS).1);
    }

    #[test]
    fn many_ranges_become_one() {
        let mut discards = Discards::default();
        for index in 0..=RANGES {
            discards.note(index * 10..index * 10 + 1, REST_NS);
        }
        assert_eq!(discards.young.len(), 1);
        let rested = rested(&mut discards, 0..RANGES * 10 + 5, REST_NS).0;
        assert_eq!(rested, std::vec![RANGES * 10 + 1..RANGES * 10 + 5]);
    }
}
