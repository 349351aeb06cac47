//! Pages of mappings that are not as staging is: read-only, inaccessible. The kernel moves none from there
//! to staging, but it moves any of them, with their mapping, to another address (MREMAP_DONTUNMAP). So they
//! are led to a place of the pager's own, the lobby, which may be made writable, and from there into
//! frames. What is missing in the program's mapping meanwhile is waited for, as any page that is out.
//!
//! Only so it is known which pages a device may still write to: the kernel moves none of those, and they go
//! back with their mapping. Locked memory stays where it is.
//!
//! *The story:* such pages were protected, copied and dropped. A buffer that was registered with an io_uring
//! and made read-only later was then filled where nobody looked any more: 1420 of 4096 pages were old.
//!
//! *Another story:* 96 MiB that were made read-only in a budget of 48 could not leave at first: each fault
//! looked at all pages in vain, and took 150 times as long.

use core::mem::ManuallyDrop;

use overspill_sys::mem::{self, Mapping, Prot};
use overspill_sys::uffd::{CopyMode, Message, Uffd};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock};

use super::rights::mapping_at;
use super::{CHANGE_TRIES, Memory, REST_NS, bits, runs};
use crate::own_events;
use crate::staging::{BLOCK, Frame};

/// The place, where it was needed before. Nothing is in it between two turns.
#[derive(Debug, Default)]
pub(super) struct Lobby(Option<Mapping>);

impl Lobby {
    /// Where it is.
    pub fn range(&self) -> AddressRange {
        self.0.as_ref().map_or(0..0, Mapping::range)
    }

    fn start(&mut self) -> Option<usize> {
        if self.0.is_none() {
            self.0 = Mapping::anon(BLOCK as usize * PAGE_SIZE, Prot::empty()).ok();
        }
        self.0.as_ref().map(Mapping::start)
    }

    /// What is there may be registered still, and is not touched any more.
    fn give_up(&mut self) {
        core::mem::forget(self.0.take());
    }
}

impl Memory {
    /// Takes `count` (at most a block) pages at `address` that were refused, since their mapping is not as
    /// staging is, into frames (holes) from `first` on; for what is `watched` see [`Memory::take_out`].
    /// Returns which.
    pub(super) fn lead_out(&mut self, address: usize, first: Frame, count: u32, watched: u64) -> u64 {
        let range = part(address, count);
        // What is put back must be what a child has, too.
        if self.refuses(&range) || mem::is_locked(range.clone()) {
            return 0;
        }
        let (Some((mapping, prot)), Some(lobby)) = (mapping_at(address), self.lobby.start()) else {
            return 0;
        };
        let fitting = mapping.end.saturating_sub(address).min(range.len()) / PAGE_SIZE;
        if fitting < count as usize {
            // Of two mappings.
            let fitting = fitting as u32;
            if fitting == 0 {
                return 0;
            }
            let rest = Frame(first.0 + fitting);
            let behind = address + fitting as usize * PAGE_SIZE;
            return self.lead_out(address, first, fitting, watched)
                | self.lead_out(behind, rest, count - fitting, watched >> fitting) << fitting;
        }
        if !self.lead(&range, lobby) {
            return 0;
        }
        let taken = self.empty_lobby(lobby, &range, first, prot, watched);
        self.close_lobby();
        // Who touched them meanwhile touches them again.
        self.wake(range);
        taken
    }

    /// Moves the pages of a range to the lobby. False: they are where they were.
    fn lead(&mut self, range: &AddressRange, lobby: usize) -> bool {
        let Some(helper) = self.started_helper().filter(|helper| helper.is_idle()) else { return false };
        helper.order_lead(range.clone(), lobby);
        self.await_helper(helper);
        if helper.failure() == Some(Errno::PERM) {
            self.sealed.note(range.clone());
        }
        own_events::remove_move(self.changes.queue_mut(), range, lobby);
        helper.succeeded()
    }

    /// Moves what is in the lobby into frames, and back what may not leave. No device writes to what is
    /// watched: that is copied where another process has it, too.
    fn empty_lobby(
        &mut self,
        lobby: usize,
        range: &AddressRange,
        first: Frame,
        prot: Prot,
        watched: u64,
    ) -> u64 {
        let count = (range.len() / PAGE_SIZE) as u32;
        let there = self.in_lobby(lobby, count);
        let mut taken = 0;
        // SAFETY: the mapping is the lobby's now, which nobody else knows of; its content stays.
        if unsafe { mem::mprotect(part(lobby, count), Prot::RW) }.is_ok() {
            taken = self.try_move_out(lobby, first, count, there).taken & there;
            let known = self.present(part(lobby, count)).unwrap_or(0);
            let copied = if self.sharing.begun { known & there & !taken & watched } else { 0 };
            for (page, run) in runs(copied) {
                let at = lobby + page as usize * PAGE_SIZE;
                taken |= self.copy_from_lobby(at, Frame(first.0 + page), run) << page;
            }
            let shared = there & !taken;
            if shared != 0 && self.sharing.begun {
                let helped = self.unshare(lobby, shared);
                taken |= self.try_move_out(lobby, first, count, helped).taken & helped;
            }
        }
        let left = self.in_lobby(lobby, count) & there & !(taken & watched);
        taken = (taken | there & !left) & !left;
        for (page, run) in runs(left) {
            let at = page as usize * PAGE_SIZE;
            let goes_back = part(range.start + at, run);
            if self.go_back(lobby + at, &goes_back, prot) {
                continue;
            }
            // The program has done something to the place, or a child came. What a device has still to
            // write there is lost: nobody can tell where to.
            taken |= self.copy_from_lobby(lobby + at, Frame(first.0 + page), run) << page;
        }
        taken
    }

    /// Which of so many pages are there. Where that cannot be known: all.
    fn in_lobby(&self, lobby: usize, count: u32) -> u64 {
        self.present(part(lobby, count)).unwrap_or(bits(0, count))
    }

    /// Moves pages in the lobby back to where they were, with their mapping. False: they are where they are.
    fn go_back(&mut self, from: usize, to: &AddressRange, prot: Prot) -> bool {
        let Some(helper) = self.helper.filter(|helper| helper.is_idle()) else { return false };
        if !self.is_at_rest() || self.refuses(to) {
            return false;
        }
        let pages = from..from + to.len();
        // SAFETY: as in `empty_lobby`.
        if unsafe { mem::mprotect(pages.clone(), prot) }.is_err() {
            return false;
        }
        helper.order_move(pages.clone(), to.start);
        self.await_helper(helper);
        if !helper.succeeded() {
            // SAFETY: as above.
            let opened = unsafe { mem::mprotect(pages, Prot::RW) };
            assert!(opened.is_ok(), "what was just writable can be made so again");
            return false;
        }
        own_events::remove_move(self.changes.queue_mut(), &pages, to.start);
        own_events::remove_end(self.changes.queue_mut(), to);
        own_events::remove_end(self.changes.queue_mut(), &pages);
        self.give_to_newborn(to);
        true
    }

    /// Waits, for a while, until all is told that was done so far.
    fn is_at_rest(&mut self) -> bool {
        (0..CHANGE_TRIES).any(|_| {
            self.read_messages();
            let is_quiet = self.is_quiet();
            if !is_quiet {
                clock::sleep_ns(REST_NS);
            }
            is_quiet
        })
    }

    /// Gives pages that came back into view just now to the children of forks that were told meanwhile: one
    /// that was made while they were in the lobby lacks them, and nobody knows.
    fn give_to_newborn(&mut self, range: &AddressRange) {
        assert!(
            self.is_at_rest(),
            "a program that changes its memory for so long, or a fork that takes as long"
        );
        for message in self.changes.queue() {
            let Message::Fork { fd } = message else { continue };
            // SAFETY: the descriptor is the message's, and is not closed by this.
            let child = ManuallyDrop::new(Uffd::received(unsafe { Fd::from_raw(fd.raw()) }));
            for address in range.clone().step_by(PAGE_SIZE) {
                // SAFETY: the page is there, and is what it had.
                let given = unsafe { child.copy(address, address, PAGE_SIZE, CopyMode::empty()) };
                let missing = given.err().map(|partial| partial.errno);
                let has_it = matches!(missing, None | Some(Errno::EXIST | Errno::NOENT | Errno::SRCH));
                assert!(has_it, "a child of a fork lacks a page, and would read zeroes");
            }
        }
    }

    /// Copies pages from the lobby into frames. Returns which.
    fn copy_from_lobby(&mut self, from: usize, first: Frame, count: u32) -> u64 {
        for page in 0..count {
            let source = (from + page as usize * PAGE_SIZE) as *const [u8; PAGE_SIZE];
            // SAFETY: the page is there, and the pager's; it is readable and writable.
            self.fill_frame(Frame(first.0 + page), |bytes| bytes.copy_from_slice(unsafe { &*source }));
        }
        bits(0, count)
    }

    /// What is left of the lobby is no mapping of the program's any more.
    fn close_lobby(&mut self) {
        let range = self.lobby.range();
        // SAFETY: nobody waits in the lobby.
        let is_free = unsafe { self.program.unregister(range.clone()) }.is_ok();
        // SAFETY: the place is the pager's, and what is there was moved or copied elsewhere.
        if !is_free || unsafe { mem::map_anon_fixed(range, Prot::empty()) }.is_err() {
            self.lobby.give_up();
        }
    }
}

fn part(start: usize, pages: u32) -> AddressRange {
    start..start + pages as usize * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Taken;
    use overspill_sys::mem::IoVec;
    use overspill_sys::pagemap::Pagemap;
    use overspill_sys::uring::Ring;

    const PAGES: usize = 16;

    /// Pages that are managed, each with its number, and may be used so. None where userfaultfd may not be
    /// opened, or pages are not moved. Never unmapped: nobody would read of it.
    fn managed(prot: Prot, prepare: impl FnOnce(&Mapping)) -> Option<(Memory, ManuallyDrop<Mapping>)> {
        let memory = Memory::new(2 * BLOCK, 0, true, false, Pagemap::open().ok()?).ok()?;
        let mapping = ManuallyDrop::new(Mapping::anon(PAGES * PAGE_SIZE, Prot::RW).expect("there is memory"));
        for page in 0..PAGES {
            // SAFETY: the memory is the test's.
            unsafe { (mapping.page(page) as *mut u64).write_volatile(page as u64 + 1) };
        }
        prepare(&mapping);
        memory.register(mapping.range()).expect("anonymous memory");
        // SAFETY: as above.
        unsafe { mem::mprotect(mapping.range(), prot) }.expect("the test's memory");
        memory.can_move().then_some((memory, mapping))
    }

    fn held(memory: &Memory) -> std::vec::Vec<u64> {
        (0..PAGES).map(|page| memory.frame_words(Frame(page as u32))[0]).collect()
    }

    #[test]
    fn what_is_not_writable_leaves_and_comes_back() {
        for prot in [Prot::READ, Prot::empty(), Prot::READ | Prot::EXEC] {
            let Some((mut memory, place)) = managed(prot, |_| {}) else { return };
            for _ in 0..2 {
                let taken = memory.take_out(place.page(0), Frame(0), PAGES as u32, 0);
                assert_eq!(taken, Taken { taken: 0xffff, ..Taken::default() }, "{prot:?}");
                assert_eq!(held(&memory), (1..=PAGES as u64).collect::<std::vec::Vec<_>>());
                assert!((0..PAGES).all(|page| memory.is_missing(place.page(page))) && !memory.is_changed());
                let put = memory.put_in(place.page(0), Frame(0), PAGES as u32, super::super::Manner::Open);
                assert_eq!((put.done, put.found), (PAGES as u32, 0), "{put:?}");
                let frames = memory.drop_frames(Frame(0), PAGES as u32);
                assert_eq!(frames, PAGES as u32);
            }
            let (mapping, found) = mapping_at(place.page(3)).expect("it is mapped");
            assert!(mapping.start <= place.start() && place.range().end <= mapping.end && found == prot);
        }
    }

    /// *The story:* see above. A device writes into two of the pages, whenever it likes.
    #[test]
    fn what_a_device_holds_stays() {
        let Ok(ring) = Ring::best(4, 4) else { return };
        let hold = |mapping: &Mapping| {
            let buffer = IoVec { base: mapping.page(5), len: 2 * PAGE_SIZE };
            // SAFETY: nobody else uses the memory.
            unsafe { ring.register_buffers(&[buffer]) }.expect("a registered buffer");
        };
        let Some((mut memory, place)) = managed(Prot::READ, hold) else { return };
        for _ in 0..2 {
            let taken = memory.take_out(place.page(0), Frame(0), PAGES as u32, 0).taken;
            assert_eq!(taken & 0b110_0000, 0, "{taken:#b}");
            for page in [5, 6] {
                // SAFETY: the pages are there.
                assert_eq!(unsafe { (place.page(page) as *const u64).read_volatile() }, page as u64 + 1);
            }
        }
        assert!(!memory.is_changed());
        let (mapping, found) = mapping_at(place.page(5)).expect("it is mapped");
        assert!(found == Prot::READ && mapping.contains(&place.page(6)));
        assert!(memory.is_registered(place.page(5)), "its faults are told");
    }

    #[test]
    fn what_is_locked_stays_locked() {
        let Some((mut memory, place)) = managed(Prot::READ, |_| {}) else { return };
        // SAFETY: locks the test's memory.
        let call = unsafe { overspill_sys::call(149, [place.page(4), 2 * PAGE_SIZE, 0, 0, 0, 0]) };
        if call.is_err() {
            return;
        }
        for _ in 0..2 {
            let taken = memory.take_out(place.page(0), Frame(0), PAGES as u32, 0).taken;
            assert_eq!(taken & 0b11_0000, 0, "{taken:#b}");
            assert!(mem::is_locked(place.page(4)..place.page(6)));
        }
    }
}
