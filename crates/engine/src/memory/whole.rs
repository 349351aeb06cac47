//! Chunks of files that come into view and leave it whole, by one move. Where the frames are one huge
//! page, and nothing is in the way, the kernel moves that; where not, page by page. What became of it
//! is the page map's to say.
//!
//! In the way is a page table: where a page of the chunk was in view for itself there is an empty one
//! later. Nothing but dropping the whole range frees it ([`Memory::discard`] does, since 6.14).

use overspill_sys::mem::{self, Advice};
use overspill_sys::pagemap::{Categories, PageRegion, Query};
use overspill_sys::uffd::{Mode, MoveMode};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::{Memory, PIN_PATIENCE, progress, putting::Manner};
use crate::huge::PART;
use crate::staging::Frame;

/// Bytes of a chunk.
const CHUNK: usize = PART as usize * PAGE_SIZE;

/// All pages that are part of a huge page.
const HUGE: Query = Query {
    required: Categories::HUGE,
    excluded: Categories::empty(),
    any_of: Categories::empty(),
    report: Categories::empty(),
};

impl Memory {
    /// What comes into a range in whole chunks may be huge pages: who touches it before leaves no page
    /// table there.
    pub fn allow_huge(&self, range: AddressRange) {
        // SAFETY: content stays as it is. Refused, chunks are moved page by page.
        let _ = unsafe { mem::madvise(range, Advice::HugePage) };
    }

    /// Is the chunk at this address one huge page? No, too, where the kernel does not tell.
    pub fn is_huge(&self, address: usize) -> bool {
        let mut found = [PageRegion::default(); 1];
        let scan = self.pagemap.scan(address..address + CHUNK, HUGE, &mut found);
        scan.is_ok_and(|scan| scan.regions == 1 && found[0].pages() == PART as usize)
    }

    /// Makes a part of staging present, as a huge page if there is one. False: some of it is not there.
    pub fn populate(&self, part: Frame) -> bool {
        let start = self.frame_address(part);
        // SAFETY: the part is staging's, and holds nothing.
        unsafe { mem::madvise(start..start + CHUNK, Advice::PopulateWrite) }.is_ok()
    }

    /// Gives a part of staging that holds nothing back to the kernel, with its page table. False where
    /// that was refused.
    ///
    /// What is dropped where it is registered is told, to this very thread. So it is not, meanwhile.
    pub fn renew(&self, part: Frame) -> bool {
        let start = self.frame_address(part);
        let range = start..start + CHUNK;
        // SAFETY: nobody waits in staging.
        if unsafe { self.program.unregister(range.clone()) }.is_err() {
            return false;
        }
        // SAFETY: the part is ours and holds nothing.
        let drop = || unsafe { mem::madvise(range.clone(), Advice::DontNeed) };
        let dropped = drop().or_else(|_| {
            self.unlock();
            drop()
        });
        self.program.register(range.clone(), Mode::WP).is_ok() && dropped.is_ok()
    }

    /// Moves the chunk in a part into view at `address`, as [`Memory::put_in`] does. Returns how many
    /// pages were, from the first; the rest is for `put_in` to judge.
    pub fn put_whole(&mut self, address: usize, part: Frame, manner: Manner) -> u32 {
        let range = address..address + CHUNK;
        let source = self.frame_address(part);
        let done = self.move_chunk(address, source, &range, manner.move_mode());
        if done > 0 {
            self.seal_moved(address..address + done as usize * PAGE_SIZE, manner);
        }
        done
    }

    /// Moves a chunk out of view into a part that is not there, as [`Memory::take_out`] does. Returns how
    /// many pages were, from the first.
    pub fn take_whole(&mut self, address: usize, part: Frame) -> u32 {
        let range = address..address + CHUNK;
        if self.sealed.touches(&range) {
            return 0;
        }
        self.move_chunk(self.frame_address(part), address, &range, MoveMode::DONTWAKE)
    }

    /// Moves a chunk. `range` is the program's side of it.
    fn move_chunk(&mut self, to: usize, from: usize, range: &AddressRange, mode: MoveMode) -> u32 {
        let (mut done, mut tries, mut pinned) = (0, 0, 0);
        while done < PART && !self.refuses(range) {
            let at = done as usize * PAGE_SIZE;
            // SAFETY: one side is staging's, and holds what mm ordered into view, or nothing; the other is
            // managed, and mm ordered its pages here or out. If the program changed it, the kernel refuses.
            let moved = unsafe { self.program.move_pages(to + at, from + at, CHUNK - at, mode) };
            let (more, errno) = progress(moved, CHUNK - at);
            done += more;
            match errno {
                None => {}
                Some(Errno::AGAIN) if more > 0 => {}
                Some(Errno::AGAIN) if self.is_conflict(range, &mut tries) => break,
                Some(Errno::AGAIN) => {}
                // Still pinned by the read that filled it.
                Some(Errno::BUSY) if pinned < PIN_PATIENCE => {
                    pinned += 1;
                    core::hint::spin_loop();
                }
                Some(_) => break,
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bits;
    use crate::staging::BLOCK;
    use core::mem::ManuallyDrop;
    use overspill_sys::mem::{Mapping, Prot};
    use overspill_sys::pagemap::Pagemap;

    /// Its first part of two.
    const PARTS: Frame = Frame(2 * BLOCK);

    /// A chunk that is managed, as a file's range is, with nothing in it, and memory with a part in
    /// which each page has its number. None where userfaultfd may not be opened, or there are no huge
    /// pages. Never unmapped: nobody would read of it.
    fn filled() -> Option<(Memory, usize)> {
        let mut memory = Memory::new(2 * BLOCK, 2, true, false, Pagemap::open().ok()?).ok()?;
        let place = ManuallyDrop::new(Mapping::anon(2 * CHUNK, Prot::RW).expect("there is memory"));
        let start = place.start().next_multiple_of(CHUNK);
        memory.register(start..start + CHUNK).expect("anonymous memory");
        memory.allow_huge(start..start + CHUNK);
        fill(&mut memory, PARTS);
        let is_huge = memory.is_huge(memory.frame_address(PARTS));
        (memory.can_move() && is_huge).then_some((memory, start))
    }

    fn fill(memory: &mut Memory, part: Frame) {
        assert!(memory.populate(part));
        for page in 0..PART {
            memory.fill_frame(Frame(part.0 + page), |bytes| bytes[..4].copy_from_slice(&page.to_ne_bytes()));
        }
    }

    fn holds(address: usize, page: u32) -> bool {
        // SAFETY: the test's memory, which is there.
        unsafe { ((address + page as usize * PAGE_SIZE) as *const u32).read_volatile() == page }
    }

    #[test]
    fn a_chunk_comes_and_leaves_as_one_huge_page() {
        let Some((mut memory, start)) = filled() else { return };
        for _ in 0..2 {
            assert_eq!(memory.put_whole(start, PARTS, Manner::Sealed), PART);
            assert!(memory.is_huge(start) && (0..PART).all(|page| holds(start, page)));
            assert!(memory.is_missing(memory.frame_address(PARTS)));
            assert_eq!(memory.take_whole(start, PARTS), PART);
            let part = memory.frame_address(PARTS);
            assert!(memory.is_huge(part) && (0..PART).all(|page| holds(part, page)));
        }
    }

    /// The kernel splits it: singly, and by the rest in one call.
    #[test]
    fn pages_leave_a_huge_page_for_themselves() {
        let Some((mut memory, start)) = filled() else { return };
        assert_eq!(memory.put_whole(start, PARTS, Manner::Sealed), PART);
        let single = memory.take_out(start + 70 * PAGE_SIZE, Frame(3), 1, 0);
        assert_eq!((single.taken, single.gone), (1, 0));
        assert!(holds(memory.frame_address(Frame(3)) - 70 * PAGE_SIZE, 70) && !memory.is_huge(start));
        assert_eq!(memory.take_whole(start, PARTS), 70, "up to the page that left");
        assert!((71..PART).all(|page| holds(start, page)));
        let rest = memory.take_out(start + 70 * PAGE_SIZE, Frame(PARTS.0 + 70), 50, 0);
        assert_eq!((rest.taken, rest.gone), (bits(1, 49), 1));
        let part = memory.frame_address(PARTS);
        assert!((0..120).all(|page| page == 70 || holds(part, page)));
    }

    /// With its page table: else the kernel would make no huge page there any more, and move none there.
    #[test]
    fn a_part_that_was_given_back_is_as_new() {
        let Some((mut memory, start)) = filled() else { return };
        assert_eq!(memory.put_in(start, PARTS, 5, Manner::Open).moved, 0b1_1111);
        assert!(memory.renew(PARTS) && memory.is_missing(memory.frame_address(PARTS)));
        assert!(!memory.read_messages(), "nobody is told of it");
        fill(&mut memory, PARTS);
        assert!(memory.is_huge(memory.frame_address(PARTS)));
        // So it is with the program's side.
        assert!(memory.discard(start..start + CHUNK));
        assert_eq!(memory.put_whole(start, PARTS, Manner::Sealed), PART);
        assert!(memory.is_huge(start));
    }

    #[test]
    fn a_chunk_that_is_in_the_way_in_part_comes_up_to_there() {
        let Some((mut memory, start)) = filled() else { return };
        memory.clear_frames(Frame(0), 1);
        assert_eq!(memory.put_in(start + 9 * PAGE_SIZE, Frame(0), 1, Manner::Sealed).done, 1);
        assert_eq!(memory.put_whole(start, PARTS, Manner::Sealed), 9);
        assert!((0..9).all(|page| holds(start, page)));
        assert!((9..PART).all(|page| holds(memory.frame_address(PARTS), page)));
    }
}
