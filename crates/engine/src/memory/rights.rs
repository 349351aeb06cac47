//! Mappings that are writable, and that is not all, or not with the right to read: generated code, the heaps
//! of SBCL and Chez Scheme, memory that was mapped with PROT_WRITE only (x86 has it read all the same).
//! UFFDIO_MOVE wants the same rights on both sides, so the frames have them for as long as a move takes.
//!
//! *The story:* such memory was not managed, and took all of the budget; copies in place of moves can
//! lose what another thread stores to addresses that were unmapped just then (docs/limits.md).

use alloc::boxed::Box;
use alloc::vec::Vec;

use overspill_sys::maps::{BUFFER_BYTES, Maps};
use overspill_sys::mem::{self, Prot};
use overspill_sys::{AddressRange, PAGE_SIZE, overlap};

use super::Memory;
use crate::staging::Frame;

/// So many are known; pages of others are copied.
const RANGES_MAX: usize = 1024;
/// After so many refusals a mapping is looked at again: there may be another one by now.
const BELIEF: u32 = 64;

/// The mappings of which it was found so, with their rights, in order, apart from each other. One may
/// have got other rights since: then its pages are refused, and it is forgotten.
#[derive(Debug, Default)]
pub(super) struct Rights {
    known: Vec<(AddressRange, Prot)>,
    /// The last mapping that was looked at and is of another kind, and how often that is still
    /// believed: refusals come in series.
    other: AddressRange,
    belief: u32,
}

impl Rights {
    /// The rights of the one that all of the range is in, if it is in one.
    pub fn of(&self, range: &AddressRange) -> Option<Prot> {
        let after = self.known.partition_point(|(known, _)| known.end <= range.start);
        let (known, prot) = self.known.get(after)?;
        (known.start <= range.start && range.end <= known.end).then_some(*prot)
    }

    /// A page of the range was refused. True if that may be since its mapping is of this kind, and
    /// that was not known.
    pub fn learn(&mut self, range: &AddressRange) -> bool {
        if self.of(range).is_some() {
            self.forget(range);
            return false;
        }
        if self.belief > 0 && overlap(&self.other, range) {
            self.belief -= 1;
            return false;
        }
        match mapping_at(range.start) {
            Some((found, prot)) if prot.contains(Prot::WRITE) && prot != Prot::RW => {
                self.insert(found, prot);
            }
            Some((found, _)) => (self.other, self.belief) = (found, BELIEF),
            None => {}
        }
        self.of(range).is_some()
    }

    fn insert(&mut self, range: AddressRange, prot: Prot) {
        self.forget(&range);
        if self.known.len() == RANGES_MAX {
            self.known.clear();
        }
        let at = self.known.partition_point(|(known, _)| known.end <= range.start);
        self.known.insert(at, (range, prot));
    }

    fn forget(&mut self, range: &AddressRange) {
        self.known.retain(|(known, _)| known.end <= range.start || range.end <= known.start);
    }
}

/// The mapping at an address, and what it may be used for.
pub(super) fn mapping_at(address: usize) -> Option<(AddressRange, Prot)> {
    let mut buffer: Box<[u8]> = Box::new([0; BUFFER_BYTES]);
    Maps::open().ok()?.query(address, false, &mut buffer, |vma| (vma.range(), vma.prot)).ok()?
}

impl Memory {
    /// Does `act`, which moves pages between `count` frames from `first` on and a mapping of the
    /// program, while the frames have the rights that pages of `range` have.
    pub(super) fn with_rights_of<R>(
        &mut self,
        range: &AddressRange,
        first: Frame,
        count: u32,
        act: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let Some(prot) = self.rights.of(range) else { return act(self) };
        let frames = self.frame_address(first)..self.frame_address(first) + count as usize * PAGE_SIZE;
        // SAFETY: the frames are ours, no transfer of them is under way, and nobody touches them until they
        // are as before. Refused (a policy that allows no such memory, too many mappings), the move is
        // refused, too.
        let _ = unsafe { mem::mprotect(frames.clone(), prot) };
        let result = act(self);
        // SAFETY: as above; nobody executes frames. Refused, frames are of another kind, and moves
        // of them fail as if the program's pages were.
        let _ = unsafe { mem::mprotect(frames, Prot::RW) };
        result
    }
}

#[cfg(test)]
mod tests {
    use overspill_sys::mem::Mapping;

    use super::*;

    #[test]
    fn mappings_are_kept_apart_and_forgotten() {
        let mut known = Rights::default();
        [40..50, 10..20, 15..30].into_iter().for_each(|range| known.insert(range, Prot::RWX));
        assert_eq!(known.known.as_slice(), [(15..30, Prot::RWX), (40..50, Prot::RWX)]);
        let covered =
            [14..16, 15..30, 20..21, 29..31, 30..40, 40..41].map(|range| known.of(&range).is_some());
        assert_eq!(covered, [false, true, true, false, false, true]);
        assert!(!known.learn(&(20..21)), "what is known and refused has got other rights");
        assert!(known.known.len() == 1 && known.of(&(40..50)).is_some(), "{known:?}");
    }

    #[test]
    fn only_what_is_writable_in_another_way_is_learnt() {
        let [w, wx] = [Prot::WRITE, Prot::WRITE | Prot::EXEC];
        for (prot, is_learnt) in
            [(Prot::RW, false), (Prot::READ, false), (Prot::RWX, true), (w, true), (wx, true)]
        {
            let mut known = Rights::default();
            let mapping = Mapping::anon(16 * PAGE_SIZE, prot).expect("there is memory");
            let page = mapping.page(3)..mapping.page(4);
            let expected = is_learnt.then_some(prot);
            assert_eq!((known.learn(&page), known.of(&page)), (is_learnt, expected), "{prot:?}");
        }
    }
}
