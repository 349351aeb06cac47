//! Pages out of the program's view: moved, or, where the kernel moves none, protected, copied and dropped.
//! It owns what each refusal of the kernel means; what became of a page is the page map's to say.

use overspill_sys::pagemap::{PageRegion, Query};
use overspill_sys::uffd::MoveMode;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, mem};

use super::tries::Reach;
use super::{Memory, REST_NS, bits, progress, runs};
use crate::helper::{Helper, Job};
use crate::own_events;
use crate::staging::{BLOCK, Frame};

/// So many refused pages speak for the rest of a run.
const BUSY_ENOUGH: u32 = 2;
/// So many pages one after another that do not fit speak for the rest of a run.
const UNFIT_ENOUGH: u32 = 4;
/// How often it is looked whether the helper is done, at first without a rest: some 100 us.
const HELPER_LOOKS: u32 = 50;

/// What became of pages that were to be taken out of the program's view. Pages in neither set were busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    /// Bit i: page i is in frame i.
    pub taken: u64,
    /// Bit i: there was no page i.
    pub gone: u64,
    /// Subset of `taken`: others had the page, too, and it was copied so that it could leave.
    pub copied: u64,
}

/// What became of a try to move pages out, by their bits.
#[derive(Clone, Copy, Default)]
pub(super) struct Tried {
    pub taken: u64,
    /// Moved, or refused by the kernel one by one.
    tried: u64,
    /// Refused since their mapping is not as staging is: read-only, without access, locked. They
    /// may be gone as well.
    unfit: u64,
    /// False when the range is changing: then the page map tells nothing about the pages we know.
    settled: bool,
}

impl Tried {
    /// After a second try of some of the pages. What does not fit is as it was.
    fn and_then(self, again: Tried) -> Tried {
        let (taken, tried) = (self.taken | again.taken, self.tried | again.tried);
        Tried { taken, tried, settled: again.settled, ..self }
    }
}

impl Memory {
    /// Takes `count` (at most a block) pages at `address` into frames (holes) from `first` on. Those that are
    /// `watched`, by their bits, are protected and stay so while they are in view: a store would be told.
    pub fn take_out(&mut self, address: usize, first: Frame, count: u32, watched: u64) -> Taken {
        let range = address..address + count as usize * PAGE_SIZE;
        if self.is_changing(&range) || self.sealed.touches(&range) {
            return Taken::default();
        }
        if self.can_move {
            self.move_out(address, first, count, watched)
        } else {
            self.copy_out(address, first, count, watched)
        }
    }

    fn move_out(&mut self, address: usize, first: Frame, count: u32, watched: u64) -> Taken {
        let mut tried = self.try_learning_rights(address, first, count);
        let refused = bits(0, count) & !tried.taken & !tried.unfit;
        if tried.settled && self.sharing.begun && refused & watched != 0 {
            self.copy_watched(address, first, refused & watched);
            // Meanwhile messages were read.
            tried.settled = !self.is_changing(&(address..address + count as usize * PAGE_SIZE));
        }
        let refused = refused & !watched;
        let mut copied = 0;
        if tried.settled && refused != 0 && self.sharing.may_help() {
            let range = address..address + count as usize * PAGE_SIZE;
            let common = self.pagemap.in_common(&range).unwrap_or(0);
            let helped = self.unshare(address, refused);
            let again = self.try_move_out(address, first, count, helped);
            self.sharing.tries.note(again.taken != 0);
            tried = tried.and_then(again);
            copied = common & again.taken;
        }
        let mut result = Taken { copied, ..self.find(address, first, count, &tried) };
        let unfit = tried.unfit & !(result.taken | result.gone);
        if tried.settled && unfit != 0 && self.leading.may_help() {
            let led = self.lead_unfit(address, first, unfit, watched);
            self.leading.note(led != 0);
            result.taken |= led;
        }
        result
    }

    /// The page map has the last word on what was refused: a page is where it is, whatever the call said.
    /// A frame was a hole before: what is in it has come from the page.
    fn find(&self, address: usize, first: Frame, count: u32, tried: &Tried) -> Taken {
        let mut result = Taken { taken: tried.taken, ..Taken::default() };
        let refused = bits(0, count) & !tried.taken;
        if refused == 0 {
            return result;
        }
        let range = |start: usize| start..start + count as usize * PAGE_SIZE;
        let (in_view, in_frames) = (range(address), range(self.frame_address(first)));
        if let (Ok(in_view), Ok(in_frames)) = (self.present(in_view), self.present(in_frames)) {
            let out = refused & !in_view;
            result.taken |= out & in_frames;
            // Of what is changing nothing else is known.
            result.gone = if tried.settled { out & tried.tried & !in_frames } else { 0 };
        }
        result
    }

    /// Takes pages out that cannot be moved since their mapping is not as staging is, run by run.
    fn lead_unfit(&mut self, address: usize, first: Frame, unfit: u64, watched: u64) -> u64 {
        let lead = |(page, run): (u32, u32)| {
            let start = address + page as usize * PAGE_SIZE;
            self.lead_out(start, Frame(first.0 + page), run, watched >> page) << page
        };
        runs(unfit).map(lead).fold(0, |all, taken| all | taken)
    }

    /// Has a page passed, though the call that moved it says that its place is taken?
    ///
    /// *The story:* Linux 6.18 moves a page to which a thread stores just then, and which a child of a fork
    /// had, too, and answers EEXIST, some ten times in 100,000. That was taken for a frame which the program
    /// had made present, and was dropped, with the page. Next the page was found to be gone, and showed
    /// zeroes: `torture file-kept-fork`, twice in 300 runs.
    pub(super) fn has_passed(&self, from: usize, to: usize) -> bool {
        self.is_missing(from) && !self.is_missing(to)
    }

    /// Tries all pages, and once more where it turns out that their mapping has other rights than frames.
    fn try_learning_rights(&mut self, address: usize, first: Frame, count: u32) -> Tried {
        let tried = self.try_move_out(address, first, count, u64::MAX);
        let range = address..address + count as usize * PAGE_SIZE;
        if !tried.settled || tried.unfit == 0 || !self.rights.learn(&range) {
            return tried;
        }
        let again = self.try_move_out(address, first, count, tried.unfit);
        Tried { unfit: again.unfit, ..tried.and_then(again) }
    }

    /// Tries the pages of the set `which`.
    pub(super) fn try_move_out(&mut self, address: usize, first: Frame, count: u32, which: u64) -> Tried {
        let range = address..address + count as usize * PAGE_SIZE;
        self.with_rights_of(&range, first, count, |memory| memory.try_each(address, first, count, which))
    }

    /// The same, from frames that have the rights for it.
    fn try_each(&mut self, address: usize, first: Frame, count: u32, which: u64) -> Tried {
        let mut result = Tried { settled: true, ..Tried::default() };
        let mut unfit_in_row = 0;
        let mut unlocked = false;
        let mut tries = 0;
        let mut page = 0;
        let mut busy = 0;
        let mut reach = Reach::new(count);
        while page < count {
            let at = page as usize * PAGE_SIZE;
            let run = (which >> page).trailing_ones().min(count - page);
            if run == 0 {
                page += 1;
                continue;
            }
            let len = reach.len(run);
            let (dst, src) = (self.frame_address(first) + at, address + at);
            // SAFETY: the frames are holes of staging, ours; the pages are managed and mm ordered
            // them out. If the program changed the range meanwhile, the kernel refuses.
            let moved = unsafe { self.program.move_pages(dst, src, len, MoveMode::DONTWAKE) };
            let (done, errno) = progress(moved, len);
            result.taken |= bits(page, done);
            page += done;
            result.tried |= bits(page, 1);
            match errno {
                None => {}
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::AGAIN)
                    if self.is_conflict(&(address..address + count as usize * PAGE_SIZE), &mut tries) =>
                {
                    return Tried { settled: false, ..result };
                }
                Some(Errno::AGAIN) => {}
                // A hole, or a page that is being copied on write and missing for an instant.
                Some(Errno::NOENT) => page += 1,
                Some(Errno::BUSY) => {
                    busy += 1;
                    if busy == BUSY_ENOUGH {
                        break;
                    }
                    page += 1;
                }
                // A hole that is none, since the page is in it.
                Some(Errno::EXIST) if self.has_passed(src, dst) => {
                    result.taken |= bits(page, 1);
                    page += 1;
                }
                // Or since the program has locked all memory unheard, and so made it present. What is not
                // tried in this pass may have been taken in the one before.
                Some(Errno::EXIST) if !unlocked => {
                    unlocked = true;
                    self.unlock();
                    let in_view = self.present(address..address + count as usize * PAGE_SIZE).unwrap_or(0);
                    let unused = which & in_view & bits(page, count - page);
                    for (page, count) in runs(unused) {
                        self.drop_frames(Frame(first.0 + page), count);
                    }
                }
                // Two mappings, or one that does not fit (locked, other protection): page by page it is told.
                Some(_) if reach.shorten() => {}
                Some(_) => {
                    result.unfit |= bits(page, 1);
                    page += 1;
                    unfit_in_row += 1;
                    if unfit_in_row == UNFIT_ENOUGH {
                        // What follows is likely to be of the same mapping.
                        result.unfit |= which & bits(page, count - page);
                        break;
                    }
                }
            }
            if done > 0 {
                unfit_in_row = 0;
            }
        }
        result
    }

    /// Has pages of the program that another process shares made its own, so that they can be
    /// moved: those of the set `which` from `address` on. Returns those for which that was done.
    ///
    /// The helper does it, since a store to a page that is missing by then waits for this thread.
    /// Then it is left alone with the rest. Pages that a device uses stay as they are.
    pub(super) fn unshare(&mut self, address: usize, which: u64) -> u64 {
        let Some(helper) = self.started_helper() else { return 0 };
        let mut done = 0;
        for (page, run) in runs(which) {
            let start = address + page as usize * PAGE_SIZE;
            let range = start..start + run as usize * PAGE_SIZE;
            if !helper.is_idle() {
                break;
            }
            // The helper's own store would wait for this thread.
            if self.sharing.is_guarded && !self.allow_stores(range.clone()) {
                self.wake(range);
                break;
            }
            helper.order(Job::Unshare, range);
            if !helper.is_awaited() {
                break;
            }
            done |= bits(page, run);
        }
        done
    }

    /// Copies those of the set `which` from `address` on, which are watched, into frames (holes), and drops
    /// them. The kernel moves none that another process has, too. A store would make them this process's
    /// own, and would be told as the program's. Who else refers to such a page keeps it as it is.
    ///
    /// *The story:* after a fork such pages were made this process's own by a store of the helper's. They
    /// counted as stored to, and went to swap. Of 6144 that the program only read 1707 showed what their file
    /// had held before somebody else wrote to it, for good; of those that may not be stored to each became a
    /// mapping of its own (`torture file-fork-written`).
    fn copy_watched(&mut self, address: usize, first: Frame, which: u64) {
        if !self.started_helper().is_some_and(|helper| helper.is_idle()) {
            return;
        }
        let range = |page: u32, run: u32| {
            let start = address + page as usize * PAGE_SIZE;
            start..start + run as usize * PAGE_SIZE
        };
        if !runs(which).all(|(page, run)| self.protect(range(page, run))) {
            return;
        }
        let present = self.present(range(0, u64::BITS - which.leading_zeros())).unwrap_or(0) & which;
        let taken = self.copy_and_drop(address, first, present);
        for (page, run) in runs(present & !taken) {
            self.drop_frames(Frame(first.0 + page), run);
        }
    }

    /// The older kernels' sequence: protect, so that no store is lost; copy; drop; wake whoever
    /// stored meanwhile.
    fn copy_out(&mut self, address: usize, first: Frame, count: u32, watched: u64) -> Taken {
        let range = address..address + count as usize * PAGE_SIZE;
        let mut result = Taken::default();
        if !self.protect(range.clone()) {
            return result;
        }
        let Ok(present) = self.present(range.clone()) else { return result };
        result.gone = bits(0, count) & !present;
        result.taken = self.copy_and_drop(address, first, present);
        if result.taken == present {
            self.program.wake(range).unwrap_or(());
        } else {
            // What stays can be stored to again.
            for (page, run) in runs(bits(0, count) & !watched) {
                let start = address + page as usize * PAGE_SIZE;
                self.unprotect(start..start + run as usize * PAGE_SIZE);
            }
        }
        result
    }

    /// Copies pages that are there and protected into frames that hold nothing, and drops them. Returns those
    /// for which both was done.
    fn copy_and_drop(&mut self, address: usize, first: Frame, present: u64) -> u64 {
        let mut copied = 0;
        for (page, run) in runs(present) {
            let at = page as usize * PAGE_SIZE;
            let frame = self.frame_address(first) + at;
            // SAFETY: the frames were handed out for this and hold nothing.
            let bytes =
                unsafe { core::slice::from_raw_parts_mut(frame as *mut u8, run as usize * PAGE_SIZE) };
            let done = self.read(bytes, address + at);
            // What could not be copied stays where it is.
            copied |= bits(page, (done / PAGE_SIZE) as u32);
        }
        copied & self.drop_copied(address, copied)
    }

    /// Copies pages of the program that were there just now. Returns how many bytes, from the first.
    ///
    /// *The story* (by reading): between the look at a page and its copy another thread moved it away
    /// with MREMAP_DONTUNMAP, or the kernel took what MADV_FREE had released. The call that copied then
    /// waits until somebody answers for the page: its caller, for itself. It is left for where there
    /// is no other, in a process that must not be looked into.
    pub(super) fn read(&self, bytes: &mut [u8], address: usize) -> usize {
        let read = match &self.reader {
            Some(reader) => reader.read(bytes, address),
            None => mem::copy_from_self(bytes, address),
        };
        read.unwrap_or(0)
    }

    /// Bit i: page i of the range (at most a block) is there.
    ///
    /// *A review's story:* pages in RAM were meant. One that the kernel was just moving elsewhere
    /// was taken for one that is gone.
    pub(super) fn present(&self, range: AddressRange) -> Result<u64, Errno> {
        let mut runs = [PageRegion::default(); BLOCK as usize];
        let scan = self.pagemap.scan(range.clone(), Query::ANY_CONTENT, &mut runs)?;
        let page = |address: u64| ((address as usize - range.start) / PAGE_SIZE) as u32;
        let masks =
            runs[..scan.regions].iter().map(|run| bits(page(run.start), page(run.end) - page(run.start)));
        Ok(masks.fold(0, |all, mask| all | mask))
    }

    /// Drops the pages that were copied, run by run, but for runs that the program has changed
    /// since: what is there may be other memory by now. Returns those that were dropped.
    fn drop_copied(&mut self, address: usize, copied: u64) -> u64 {
        let mut dropped = 0;
        for (page, run) in runs(copied) {
            let start = address + page as usize * PAGE_SIZE;
            let range = start..start + run as usize * PAGE_SIZE;
            if !self.is_changing(&range) {
                self.drop_program_pages(range.clone());
                // The kernel drops nothing of a locked mapping, and says so to the helper only.
                let left = if self.is_changing(&range) { 0 } else { self.present(range).unwrap_or(0) };
                dropped |= bits(page, run) & !(left << page);
            }
        }
        dropped
    }

    /// Has the helper discard a range, and takes the events that this raises out of the queue.
    ///
    /// Whoever unmaps the range at the same time waits until the event of that is read, and then
    /// may get the same addresses for other memory, which must not be discarded. So messages are
    /// read only while the helper waits, for its own event to be read or for the lock of the
    /// address space, and one at a time, since reading its event lets it go on. That leaves two
    /// cases in which new memory can still be hit, both within microseconds: another thread is
    /// given the addresses while the first still waits, or a part of the range is unmapped and
    /// mapped again while the helper waits with the part before it. When it fails, the program has
    /// unmapped part of the range: that event is still to come, and settles it.
    pub(super) fn drop_program_pages(&mut self, range: AddressRange) {
        let helper = self.helper.expect("started before anything is copied");
        helper.order(Job::Drop, range.clone());
        self.await_helper(helper);
        own_events::remove(self.changes.queue_mut(), &range);
        if helper.failure() == Some(Errno::PERM) {
            self.sealed.note(range);
        }
    }

    /// Bytes of sealed mappings, which stay where they are.
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed.bytes()
    }

    /// The helper, which is started where it was not needed before.
    pub(super) fn started_helper(&mut self) -> Option<Helper> {
        if self.helper.is_none() {
            self.helper = Helper::start().ok();
        }
        self.helper
    }

    /// Has the helper nothing to do? Its last order may wait for a page that somebody has to bring.
    pub fn is_helper_idle(&self) -> bool {
        self.helper.is_none_or(|helper| helper.is_idle())
    }

    /// Waits until the helper is done, and lets it go on where it waits for its own event to be read.
    pub(super) fn await_helper(&mut self, helper: Helper) {
        let mut looks = 0;
        while !helper.is_idle() {
            if helper.is_stuck() && self.read_some(1) {
                continue;
            }
            looks += 1;
            if looks > HELPER_LOOKS {
                // It may want this very processor.
                clock::sleep_ns(REST_NS);
            }
        }
    }
}
