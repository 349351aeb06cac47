//! The program's memory and the staging frames, and every way in which a page passes from one to the other.
//!
//! These files are the pager's only ones with unsafe code. Two descriptors (guides on userfaultfd
//! call them A and B): the program's memory and staging are registered on `program`, which reports
//! unmapping, remapping and discarding; the trash mapping is registered on `own`, which reports
//! nothing. All moves between program and staging are issued on `program`, because the kernel
//! refuses them (EAGAIN) while the address space is changing and its event is unread: a page of a
//! mapping that replaced the one we know can never be taken for the old one. Frames are dropped
//! through the trash mapping, because dropping them in place would raise an event that this very
//! thread would have to read.

mod changes;
mod file_pages;
mod forks;
mod frames;
mod guards;
mod lobby;
mod lost;
mod putting;
mod rights;
mod sealed;
mod taking;
mod tries;
mod whole;
mod zero_pages;

use alloc::{boxed::Box, collections::VecDeque, sync::Arc};

use overspill_sys::mem::{self, Advice, Mapping, OwnMemory, Prot};
use overspill_sys::pagemap::{PageRegion, Pagemap, Query};
use overspill_sys::uffd::{CopyMode, Features, Message, Mode, MoveMode, Partial, RawMsg, Uffd};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, overlap};

use crate::helper::Helper;
use crate::huge::PART;
use crate::staging::BLOCK;
use changes::Changes;
use forks::Forks;
pub(crate) use frames::{is_zero, words_of};
use guards::Guards;
use lobby::Lobby;
use lost::zeroes;
pub(crate) use putting::Manner;
use rights::Rights;
use sealed::Sealed;
pub(crate) use taking::Taken;
pub(crate) use tries::Tries;
use tries::{Reach, Refused, Sharing};

/// Messages taken from the kernel by one read.
const MESSAGES: usize = 64;
/// How often a transfer is repeated while the kernel says "try again" and no event explains it, at
/// first without a rest.
const CHANGE_TRIES: u32 = 500;
const CHANGE_SPINS: u32 = 64;
/// A rest in which another thread does what is waited for. Not sched_yield: each puts off this
/// thread's next turn, and many together by tens of milliseconds when all processors are busy.
///
/// *The story:* it was 1 ns, for which the kernel lets an ordinary thread sleep some 50 us. A
/// thread that comes before all others is woken exactly when it asked, which was at once: it never
/// slept, and the helper that it waited for never ran on the same processor. Children of fork
/// without UFFDIO_MOVE used it up for 20 s.
pub(crate) const REST_NS: u64 = 20_000;
/// So long it is waited for the helper's last order before it is ended.
const HELPER_ENDS_NS: u64 = 10_000_000_000;
/// How often a move is repeated while a frame is still pinned by the read that filled it.
const PIN_PATIENCE: u32 = 200;
/// So few pages are copied into the program's view rather than moved. A move has to interrupt every
/// processor that may know the staging address (11 to 34 us where one is idle), a copy of a page
/// takes 3 us, and its frame serves the next read.
pub(crate) const COPIED_MAX: u32 = 4;
/// Zeroes to copy from, in pages.
const ZEROES: usize = 256;
/// Pages of the compressed pool that can be on their way to the file.
pub(crate) const BOUNCE: u32 = overspill_mm::pool::LEAVING_MAX;
/// The trash mapping, in pages.
const TRASH: usize = BLOCK as usize;

/// What became of pages that were to be put into the program's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Put {
    /// Pages done, from the first.
    pub done: u32,
    /// Bit i: frame i is a hole now (its page was moved, not copied).
    pub moved: u64,
    /// Bit i: page i was there already, and stays as it is.
    pub found: u64,
}

/// The program's memory, as far as it is managed, and the staging frames.
pub(crate) struct Memory {
    program: Uffd,
    own: Uffd,
    staging: Mapping,
    /// Where its first frame is: the parts behind the frames are aligned.
    staging_start: usize,
    trash: Mapping,
    zeroes: Mapping,
    /// Pages for what is on its way from the compressed pool to the file, and a last one for what
    /// is read and not wanted.
    bounce: Mapping,
    /// Changes of the address space that were read and not handled yet, oldest first. They are
    /// handled before any fault: a fault only says that a thread waits, and what it finds is
    /// decided by the changes.
    changes: Changes,
    forks: Forks,
    /// The ranges of the change that is being handled: until that is done it concerns transfers
    /// like one to come.
    handling: [AddressRange; 2],
    /// Faults that were read and not handled yet.
    faults: VecDeque<Message>,
    /// What both are read into. *The story:* it was cleared for each look, and who waits looks again and
    /// again.
    buffer: Box<[RawMsg; MESSAGES]>,
    can_move: bool,
    takes_zero_pages: bool,
    can_poison: bool,
    /// Makes the calls that could wait for us. Started when first needed: where UFFDIO_MOVE is
    /// missing, or after a fork.
    helper: Option<Helper>,
    /// Tells which pages are there.
    pub pagemap: Arc<Pagemap>,
    guards: Guards,
    /// The kernel tells of every fork.
    hears_forks: bool,
    /// How it goes with pages that other processes share.
    sharing: Sharing,
    /// How it goes with pages in mappings that are read-only, or locked.
    leading: Tries,
    /// The page that does not come into view.
    refused: Refused,
    /// Reads what is copied, if it may be opened.
    reader: Option<Arc<OwnMemory>>,
    lobby: Lobby,
    sealed: Sealed,
    rights: Rights,
}

/// Events tell what becomes of mappings, protection which of them are registered.
const NEEDED: Features = Features::EVENT_REMAP
    .union(Features::EVENT_REMOVE)
    .union(Features::EVENT_UNMAP)
    .union(Features::THREAD_ID)
    .union(Features::PAGEFAULT_FLAG_WP);

impl Memory {
    /// Opens the descriptors and maps `staging_frames` frames, and behind them `parts` parts that may be
    /// huge pages (all holes).
    pub fn new(
        staging_frames: u32,
        parts: u32,
        use_move: bool,
        user_mode_only: bool,
        pagemap: Pagemap,
    ) -> Result<Self, Errno> {
        let wanted = NEEDED | Features::MOVE | Features::POISON;
        let heard = Uffd::open(wanted | Features::EVENT_FORK, user_mode_only);
        let hears_forks = heard.is_ok();
        // Only a privilege lets the kernel tell of forks.
        let (program, granted) = heard.or_else(|_| Uffd::open(wanted, user_mode_only))?;
        if !granted.contains(NEEDED) {
            return Err(Errno::NOSYS);
        }
        let can_move = use_move && granted.contains(Features::MOVE);
        let (own, _) = Uffd::open(Features::MOVE, user_mode_only)?;
        let in_parts = (parts * PART) as usize;
        let staging = frames(staging_frames as usize + in_parts + PART as usize)?;
        let parts_start = (staging.page(staging_frames as usize)).next_multiple_of(PART as usize * PAGE_SIZE);
        let staging_start = parts_start - staging_frames as usize * PAGE_SIZE;
        let trash = frames(TRASH)?;
        let mut takes_zero_pages = true;
        if can_move {
            own.register(trash.range(), Mode::WP)?;
            takes_zero_pages = moves_zero_page(&own, &staging, &trash)?;
            // Write-protect mode reports nothing as long as nothing is protected: holes fault in as usual.
            program.register(staging.range(), Mode::WP)?;
        }
        if in_parts > 0 && can_move {
            // SAFETY: the mapping is ours. Refused, they are no huge pages.
            let _ =
                unsafe { mem::madvise(parts_start..parts_start + in_parts * PAGE_SIZE, Advice::HugePage) };
        }
        let helper = if can_move { None } else { Some(Helper::start()?) };
        let pagemap = Arc::new(pagemap);
        Ok(Memory {
            program,
            own,
            staging,
            staging_start,
            trash,
            zeroes: zeroes()?,
            bounce: frames(BOUNCE as usize + 2)?,
            changes: Changes::default(),
            forks: Forks::default(),
            faults: VecDeque::with_capacity(MESSAGES),
            buffer: Box::new([RawMsg::default(); MESSAGES]),
            handling: [0..0, 0..0],
            can_move,
            takes_zero_pages,
            can_poison: granted.contains(Features::POISON),
            helper,
            guards: Guards::new(pagemap.knows_guards()),
            pagemap,
            hears_forks,
            sharing: Sharing::default(),
            leading: Tries::default(),
            refused: Refused::default(),
            reader: None,
            lobby: Lobby::default(),
            sealed: Sealed::default(),
            rights: Rights::default(),
        })
    }

    /// Does the kernel tell of every fork?
    pub fn hears_forks(&self) -> bool {
        self.hears_forks
    }

    /// Pages that are copied are read by this, which does not wait for one that has just gone.
    pub fn read_by(&mut self, memory: Arc<OwnMemory>) {
        self.reader = Some(memory);
    }

    /// From now on pages may be shared with another process: there was a fork.
    pub fn note_sharing(&mut self) {
        self.sharing.begin();
    }

    /// May they be?
    pub fn may_share(&self) -> bool {
        self.sharing.begun
    }

    /// What is in view is protected, or is no longer.
    pub fn note_guarded(&mut self, is_guarded: bool) {
        self.sharing.is_guarded = is_guarded;
    }

    /// Are pages moved, not copied?
    pub fn can_move(&self) -> bool {
        self.can_move
    }

    /// Can pages that show the kernel's zero page be taken out of view? The first kernels with
    /// UFFDIO_MOVE refuse to move them.
    pub fn takes_zero_pages(&self) -> bool {
        self.takes_zero_pages
    }

    /// The descriptor to poll for messages.
    pub fn descriptor(&self) -> &overspill_sys::Fd {
        self.program.fd()
    }

    /// Starts managing a range of private anonymous memory: missing pages are reported from now on.
    pub fn register(&self, range: AddressRange) -> Result<(), Errno> {
        self.program.register(range, Mode::MISSING | Mode::WP)
    }

    /// Is the page at `address`, which nobody protected, in a registered mapping? No, too, while a
    /// change's event is unread.
    pub fn is_registered(&self, address: usize) -> bool {
        self.program.write_protect(address..address + PAGE_SIZE, false, true).is_ok()
    }

    /// Registers a range for doorbells: its missing pages are reported, nothing else is.
    pub fn register_doorbell(&self, range: AddressRange) -> Result<(), Errno> {
        self.program.register(range, Mode::MISSING)
    }

    /// All ranges that are the pager's own and must never be managed.
    pub fn own_ranges(&self) -> [AddressRange; 6] {
        let helper = self.helper.map_or(0..0, |helper| helper.range.0..helper.range.1);
        let (lobby, staging) = (self.lobby.range(), self.staging.range());
        [staging, self.trash.range(), self.zeroes.range(), self.bounce.range(), lobby, helper]
    }

    /// Lets go of a range, and of who waits in it. EAGAIN while a change is under way is the
    /// caller's to wait out.
    ///
    /// # Safety
    /// Every page of the range is in view, or was never touched.
    pub unsafe fn unregister(&self, range: AddressRange) {
        // SAFETY: passed on to the caller. What cannot be registered at all was replaced, and is
        // not registered.
        let _ = unsafe { self.program.unregister(range) };
    }

    /// Ends the helper, if it is idle or becomes so. Where its last order waits for a page that nobody brings
    /// any more it stays.
    ///
    /// *The story* (by reading): nothing was read meanwhile, and it may wait for just that.
    pub fn end_helper(&mut self) {
        let Some(helper) = self.helper else { return };
        let until = clock::monotonic_ns() + HELPER_ENDS_NS;
        while !helper.is_idle() {
            if clock::monotonic_ns() > until {
                return;
            }
            self.read_messages();
            clock::sleep_ns(REST_NS);
        }
        self.helper = None;
        helper.end();
    }

    // Messages.

    /// Reads what messages there are into the queues. True when there were any.
    pub fn read_messages(&mut self) -> bool {
        self.read_some(MESSAGES)
    }

    fn read_some(&mut self, most: usize) -> bool {
        let was_forked = self.is_forked();
        self.forks.begin_reading();
        let buffer = &mut self.buffer[..most];
        let count = match self.program.read_messages(buffer) {
            // It would be so for ever, and whoever forked would wait for ever.
            Err(Errno::MFILE) => panic!("a fork, and the process may have no descriptor at all"),
            read => read.unwrap_or(0),
        };
        for message in buffer[..count].iter().map(RawMsg::decode) {
            match message {
                Message::Fault { .. } => self.faults.push_back(message),
                _ => self.changes.push(message),
            }
        }
        self.note_read(was_forked);
        count > 0
    }

    /// The faults that were read and not handled, the oldest first.
    pub fn faults(&mut self) -> &mut VecDeque<Message> {
        &mut self.faults
    }

    /// Waits until whoever has the lock of the address space has let go of it: unlocking what is not
    /// locked takes it for writing, and changes nothing.
    pub fn outwait(&self) {
        let _ = mem::munlock(self.staging.page(0)..self.staging.page(1));
    }

    /// After EAGAIN: reads events and says whether one of them concerns the range. Then the
    /// transfer must be given up: what the page shows is no longer what we know.
    fn is_conflict(&mut self, range: &AddressRange, tries: &mut u32) -> bool {
        self.read_messages();
        *tries += 1;
        if *tries > CHANGE_SPINS {
            clock::sleep_ns(REST_NS);
        }
        let is_long = *tries > CHANGE_TRIES;
        self.changes.note_untold(is_long);
        is_long || self.is_changing(range)
    }

    /// Does a change that was read and not handled concern the range?
    fn is_changing(&self, range: &AddressRange) -> bool {
        self.handling.iter().any(|part| overlap(part, range))
            || self.changes.queue().iter().any(|message| concerns(message, range))
    }

    /// Refuses transfers in these ranges until [`Memory::handled`]: the pages have moved, the books
    /// have not yet.
    pub fn handle(&mut self, from: AddressRange, to: AddressRange) {
        self.handling = [from, to];
    }

    /// The books are right again.
    pub fn handled(&mut self) {
        self.handling = [0..0, 0..0];
    }

    /// Is the page at `address` really not there?
    pub fn is_missing(&self, address: usize) -> bool {
        let mut runs = [PageRegion::default(); 1];
        let scan = self.pagemap.scan(address..address + PAGE_SIZE, Query::ANY_CONTENT, &mut runs);
        scan.is_ok_and(|scan| scan.regions == 0)
    }

    /// Calls `visit` with each run of pages of a range that are there.
    pub fn each_present(&self, range: AddressRange, visit: impl FnMut(AddressRange)) {
        // Nothing is known where it cannot be asked.
        let _ = self.pagemap.for_each_run(range, Query::ANY_CONTENT, visit);
    }

    /// Calls `visit` with each run of pages of a range that are there and not write-protected.
    pub fn each_open(&self, range: AddressRange, visit: impl FnMut(AddressRange)) {
        let _ = self.pagemap.for_each_run(range, Query::OPEN, visit);
    }

    // Into the program's view.

    /// Fills `count` pages at `address` with zeroes out of the kernel's own stock. Returns how many
    /// were done, up to the first page that is there already: it may be one that was discarded and
    /// is not freed yet, of which nothing must be known.
    pub fn fill_fresh(&mut self, address: usize, count: u32) -> u32 {
        let range = address..address + count as usize * PAGE_SIZE;
        if self.is_changing(&range) {
            return 0;
        }
        let mut done = 0;
        let mut tries = 0;
        let mut reach = Reach::new(ZEROES as u32);
        while done < count {
            let dst = address + done as usize * PAGE_SIZE;
            let len = reach.len(count - done);
            // SAFETY: mm found the pages untouched: they show zeroes.
            let copied = unsafe { self.program.copy(dst, self.zeroes.start(), len, CopyMode::empty()) };
            let (pages, errno) = progress(copied, len);
            done += pages;
            self.refused.came(dst, pages);
            match errno {
                None => {}
                Some(Errno::AGAIN) if pages > 0 => {}
                Some(Errno::AGAIN) if self.is_conflict(&range, &mut tries) => break,
                Some(Errno::AGAIN) => {}
                Some(Errno::EXIST) => {
                    if done == 0 {
                        self.unprotect(dst..dst + PAGE_SIZE);
                    }
                    break;
                }
                Some(Errno::NOENT | Errno::INVAL) if reach.shorten() => {}
                Some(errno) => {
                    self.refused.note(address + done as usize * PAGE_SIZE, errno);
                    break;
                }
            }
        }
        done
    }

    // Threads that wait.

    /// Lets the threads that wait in the range try again.
    pub fn wake(&self, range: AddressRange) {
        self.program.wake(range).unwrap_or(());
    }

    /// Takes write permission away: whoever stores to what is there waits. False when that was refused.
    pub fn protect(&mut self, range: AddressRange) -> bool {
        self.set_protected(range, true)
    }

    /// Gives write permission back and wakes the waiting threads: an event about the range itself
    /// has them try again, and find what is there then.
    pub fn unprotect(&mut self, range: AddressRange) {
        if !self.allow_stores(range.clone()) {
            self.wake(range);
        }
    }

    /// Gives write permission back and wakes the waiting threads. False, and nobody is woken, when
    /// the range is changing.
    pub fn allow_stores(&mut self, range: AddressRange) -> bool {
        !self.is_changing(&range) && self.set_protected(range, false)
    }

    fn set_protected(&mut self, range: AddressRange, is_protected: bool) -> bool {
        let mut tries = 0;
        while let Err(errno) = self.program.write_protect(range.clone(), is_protected, false) {
            if errno != Errno::AGAIN || self.is_conflict(&range, &mut tries) {
                return false;
            }
        }
        true
    }

    /// The page is lost: touches of it raise SIGBUS where the kernel can do that. False when it cannot.
    /// True, too, where its range is changing: whoever waits touches again, and it is lost again.
    ///
    /// *The story:* a page behind the end of a file that was just cut was being read when it was
    /// poisoned for that. As it was poisoned already the kernel refused to, and the program was taken
    /// to need a signal that nobody's touch had raised.
    ///
    /// *Another story:* see [`Memory::discard`]. Pages that were on swap were lost in the same way.
    pub fn poison(&mut self, range: AddressRange) -> bool {
        let mut tries = 0;
        while self.can_poison {
            if self.is_changing(&range) {
                self.wake(range);
                return true;
            }
            // SAFETY: mm gave the page up.
            let Err(Partial { errno, .. }) = (unsafe { self.program.poison(range.clone(), false) }) else {
                return true;
            };
            if errno == Errno::AGAIN && !self.is_conflict(&range, &mut tries) {
                continue;
            }
            self.wake(range);
            return matches!(errno, Errno::EXIST | Errno::AGAIN) || is_gone(errno);
        }
        false
    }

    /// As [`Memory::poison`], for many pages that are not there. False: to be tried again.
    pub fn poison_all(&mut self, range: AddressRange) -> bool {
        let pages = (range.len() / PAGE_SIZE) as u32;
        let (mut at, mut tries) = (range.start, 0);
        let mut reach = Reach::new(pages);
        while self.can_poison && at < range.end {
            let part = at..at + reach.len(((range.end - at) / PAGE_SIZE) as u32);
            if self.is_changing(&part) {
                return false;
            }
            // SAFETY: mm gave the pages up.
            let (done, errno) = progress(unsafe { self.program.poison(part.clone(), false) }, part.len());
            at += done as usize * PAGE_SIZE;
            match errno {
                None => reach = Reach::new(pages),
                Some(_) if done > 0 => {}
                Some(Errno::AGAIN) if self.is_conflict(&part, &mut tries) => return false,
                Some(Errno::AGAIN) => {}
                Some(Errno::EXIST) => {
                    self.wake(at..at + PAGE_SIZE);
                    at += PAGE_SIZE;
                }
                // Two mappings.
                Some(_) if reach.shorten() => {}
                Some(_) => at += PAGE_SIZE,
            }
        }
        true
    }
}

/// The process is gone, or the range is not mapped there, or not registered, any more.
pub(crate) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::SRCH | Errno::NOENT)
}

fn frames(count: usize) -> Result<Mapping, Errno> {
    let mapping = Mapping::anon(count * PAGE_SIZE, Prot::RW)?;
    for advice in [Advice::NoHugePage, Advice::DontFork, Advice::DontDump] {
        // SAFETY: none of these changes content, and the mapping is ours.
        unsafe { mapping.advise(advice) }?;
    }
    Ok(mapping)
}

/// Tries to move the zero page from the first frame, which a read puts there, to the trash. Both
/// are holes before and after.
fn moves_zero_page(own: &Uffd, staging: &Mapping, trash: &Mapping) -> Result<bool, Errno> {
    // SAFETY: the mapping is readable, and ours.
    unsafe { (staging.start() as *const u64).read_volatile() };
    // SAFETY: both are ours and hold nothing.
    let moved =
        unsafe { own.move_pages(trash.start(), staging.start(), PAGE_SIZE, MoveMode::DONTWAKE) }.is_ok();
    for mapping in [staging, trash] {
        // SAFETY: as above.
        unsafe { mapping.advise(Advice::DontNeed) }?;
    }
    Ok(moved)
}

/// Pages done and why it stopped.
pub(crate) fn progress(outcome: Result<(), Partial>, len: usize) -> (u32, Option<Errno>) {
    match outcome {
        Ok(()) => ((len / PAGE_SIZE) as u32, None),
        Err(partial) => ((partial.done / PAGE_SIZE) as u32, Some(partial.errno)),
    }
}

/// The runs of set bits: the first bit of each, and how many there are.
pub(crate) fn runs(set: u64) -> impl Iterator<Item = (u32, u32)> {
    let mut left = set;
    core::iter::from_fn(move || {
        let first = left.trailing_zeros();
        let count = left.checked_shr(first)?.trailing_ones();
        left &= !bits(first, count);
        Some((first, count))
    })
}

/// `count` bits from `first` on.
pub(crate) fn bits(first: u32, count: u32) -> u64 {
    (((1u128 << count) - 1) << first) as u64
}

/// Does the event change what the range shows or where it is?
fn concerns(message: &Message, range: &AddressRange) -> bool {
    let overlaps = |start: usize, end: usize| overlap(&(start..end), range);
    match *message {
        Message::Remove { start, end } | Message::Unmap { start, end } => overlaps(start, end),
        Message::Remap { from, to, len } => overlaps(from, from + len) || overlaps(to, to + len),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::Frame;
    use core::mem::ManuallyDrop;
    use std::sync::mpsc;
    use std::time::Duration;

    /// None where userfaultfd may not be opened.
    fn memory() -> Option<Memory> {
        Memory::new(2 * BLOCK, 2, true, false, Pagemap::open().ok()?).ok()
    }

    /// Pages that are managed; the first `filled` of them are there. Never unmapped: nobody would read of it.
    fn managed(memory: &Memory, pages: usize, filled: usize) -> ManuallyDrop<Mapping> {
        let mapping = frames(pages).expect("there is memory");
        fill(&mapping, filled);
        memory.register(mapping.range()).expect("anonymous memory");
        ManuallyDrop::new(mapping)
    }

    fn part(mapping: &Mapping, first: usize, pages: usize) -> AddressRange {
        mapping.page(first)..mapping.page(first) + pages * PAGE_SIZE
    }

    fn fill(mapping: &Mapping, pages: usize) {
        // SAFETY: the mapping is the test's, and longer.
        (0..pages)
            .for_each(|page| unsafe { (mapping.page(page) as *mut u64).write_volatile(page as u64 + 1) });
    }

    /// See [`Memory::discard`] and [`Memory::poison`]: other memory is where a file was, which was read
    /// and not handled.
    #[test]
    fn what_has_arrived_unheard_is_kept() {
        let Some(mut memory) = memory() else { return };
        let place = managed(&memory, 4, 4);
        let range = place.range();
        // SAFETY: the memory is the test's.
        let mapper = std::thread::spawn(move || unsafe { mem::map_anon_fixed(range, Prot::RW) });
        while !memory.is_changed() {
            memory.read_messages();
        }
        mapper.join().expect("it does not panic").expect("the place was mapped");
        fill(&place, 2);
        memory.register(place.range()).expect("anonymous memory");
        assert!(!memory.discard(place.range()), "what is there is not what is known of");
        assert!(!memory.is_missing(place.page(0)) && !memory.is_missing(place.page(1)));
        assert!(memory.poison(part(&place, 2, 1)), "who waits there touches again");
        assert!(!memory.poison_all(part(&place, 2, 2)));
        // SAFETY: nobody needs the page.
        let first_time = unsafe { memory.program.poison(part(&place, 2, 2), false) };
        assert_eq!(first_time, Ok(()), "it was poisoned");
        memory.next_change(|_| true);
        assert!(!memory.is_changed() && memory.discard(place.range()));
        assert!(memory.is_missing(place.page(0)));
    }

    #[test]
    fn all_that_is_missing_is_poisoned() {
        let Some(mut memory) = memory() else { return };
        let place = managed(&memory, 64, 0);
        // SAFETY: as above. It makes three mappings of one.
        unsafe { mem::mprotect(part(&place, 20, 1), Prot::READ) }.expect("the test's memory");
        for there in [0, 7, 8, 63] {
            assert_eq!(memory.fill_fresh(place.page(there), 1), 1);
        }
        assert!(memory.poison_all(place.range()));
        for page in 0..64 {
            // SAFETY: as above.
            let again = unsafe { memory.program.poison(part(&place, page, 1), false) };
            assert_eq!(again, Err(Partial { done: 0, errno: Errno::EXIST }), "page {page} was left out");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { (place.page(7) as *const u64).read_volatile() }, 0, "what was there is poisoned");
    }

    /// See `Memory::read`: it says that the page is not there, and does not wait for it.
    #[test]
    fn a_page_that_has_gone_is_not_waited_for() {
        let Some(mut memory) = memory() else { return };
        let place = managed(&memory, 4, 2);
        memory.read_by(Arc::new(OwnMemory::open().expect("a test may look at itself")));
        let (ready, looks) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = std::vec![0_u8; 4 * PAGE_SIZE];
            let read = [place.page(2), place.page(0)].map(|address| memory.read(&mut bytes, address));
            let _ = ready.send(read);
        });
        assert_eq!(looks.recv_timeout(Duration::from_secs(5)), Ok([0, 2 * PAGE_SIZE]));
    }

    /// See [`Memory::drop_frames`].
    #[test]
    fn a_hole_among_frames_is_no_obstacle() {
        let Some(mut memory) = memory() else { return };
        for frame in [0, 1, 3] {
            memory.clear_frames(Frame(frame), 1);
        }
        assert_eq!(memory.drop_frames(Frame(0), 4), 4);
        assert!((0..4).all(|frame| memory.is_missing(memory.frame_address(Frame(frame)))));
    }

    /// See [`Memory::has_passed`]: what the kernel did unsaid is done here. The page before is not there,
    /// the one behind has left in the same way.
    #[test]
    fn a_page_that_has_left_unsaid_is_taken() {
        let Some(mut memory) = memory().filter(Memory::can_move) else { return };
        let place = managed(&memory, 8, 8);
        let frame = |memory: &Memory, page: u32| memory.frame_address(Frame(page));
        for page in [3, 4, 7] {
            let (to, from) = (frame(&memory, page), place.page(page as usize));
            // SAFETY: the memory is the test's.
            let moved = unsafe { memory.program.move_pages(to, from, PAGE_SIZE, MoveMode::DONTWAKE) };
            assert_eq!(moved, Ok(()));
        }
        // SAFETY: nobody needs the page.
        let gone = unsafe {
            memory.own.move_pages(memory.trash.start(), place.page(2), PAGE_SIZE, MoveMode::DONTWAKE)
        };
        assert_eq!(gone, Ok(()));
        memory.empty_trash();
        assert_eq!(
            memory.take_out(place.page(0), Frame(0), 8, 0),
            Taken { taken: 0b1111_1011, gone: 0b100, copied: 0 }
        );
        let held = (0..8).map(|page| memory.frame_words(Frame(page))[0]);
        assert_eq!(held.collect::<std::vec::Vec<_>>(), [1, 2, 0, 4, 5, 6, 7, 8], "each is in its frame");
    }

    /// The same, where the next thing that is heard is a change of the range.
    #[test]
    fn a_page_that_has_left_unsaid_is_taken_before_a_change() {
        let Some(mut memory) = memory().filter(Memory::can_move) else { return };
        let place = managed(&memory, 8, 8);
        let (to, from, changed) = (memory.frame_address(Frame(0)), place.page(0), part(&place, 5, 1));
        // SAFETY: the memory is the test's.
        let moved = unsafe { memory.program.move_pages(to, from, PAGE_SIZE, MoveMode::DONTWAKE) };
        assert_eq!(moved, Ok(()));
        // SAFETY: as above.
        let changer = std::thread::spawn(move || unsafe { mem::madvise(changed, Advice::DontNeed) });
        while memory.is_quiet() {
            std::thread::yield_now();
        }
        assert_eq!(memory.take_out(place.page(0), Frame(0), 8, 0), Taken { taken: 1, ..Taken::default() });
        assert_eq!(memory.frame_words(Frame(0))[0], 1);
        changer.join().expect("it does not panic").expect("the test's memory");
    }

    /// The same in the other direction.
    #[test]
    fn a_page_that_has_come_unsaid_is_in_view() {
        let Some(mut memory) = memory().filter(Memory::can_move) else { return };
        let place = managed(&memory, 8, 0);
        for page in 0..8 {
            memory.fill_frame(Frame(page), |bytes| bytes[0] = page as u8 + 1);
        }
        let (from, to) = (memory.frame_address(Frame(3)), place.page(3));
        // SAFETY: the memory is the test's.
        let moved = unsafe { memory.program.move_pages(to, from, PAGE_SIZE, MoveMode::DONTWAKE) };
        assert_eq!(moved, Ok(()));
        let put = memory.put_in(place.page(0), Frame(0), 8, Manner::Sealed);
        assert_eq!(put, Put { done: 8, moved: 0xff, found: 0 });
        // SAFETY: as above; they are there.
        let shown = (0..8).map(|page| unsafe { (place.page(page) as *const u8).read_volatile() });
        assert_eq!(shown.collect::<std::vec::Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// See [`Memory::keep`]. In place of a lack of memory the frames are said not to be needed.
    #[test]
    fn what_was_freed_lazily_stays_once_it_is_taken() {
        let Some(mut memory) = memory().filter(Memory::can_move) else { return };
        let place = ManuallyDrop::new(frames(16).expect("there is memory"));
        fill(&place, 16);
        // SAFETY: the memory is the test's.
        unsafe { (place.page(11) as *mut u64).write_volatile(0) };
        // SAFETY: as above. It is told to nobody yet.
        unsafe { place.advise(Advice::Free) }.expect("the test's memory");
        memory.register(place.range()).expect("anonymous memory");
        assert_eq!(memory.take_out(place.page(0), Frame(0), 16, 0).taken, 0xffff);
        (0..16).for_each(|page| memory.keep(Frame(page)));
        let frames = memory.frame_address(Frame(0))..memory.frame_address(Frame(16));
        // SAFETY: nothing that is there is lost: that is what is tested.
        unsafe { mem::madvise(frames, Advice::PageOut) }.expect("the frames are the test's");
        let expected = |page: usize| if page == 11 { 0 } else { page as u64 + 1 };
        for page in (0..16).filter(|&page| page != 11) {
            assert_eq!(memory.frame_words(Frame(page as u32))[0], expected(page), "page {page}");
        }
        let put = memory.put_in(place.page(0), Frame(0), 16, Manner::Open);
        assert_eq!((put.done, put.moved & 0x7ff), (16, 0x7ff), "{put:?}");
        // SAFETY: as above.
        let shown = (0..16).map(|page| unsafe { (place.page(page) as *const u64).read_volatile() });
        assert!(shown.eq((0..16).map(expected)));
    }

    #[test]
    fn runs_of_set_bits() {
        let all = |set| runs(set).collect::<std::vec::Vec<_>>();
        assert_eq!(all(0), []);
        assert_eq!(all(u64::MAX), [(0, 64)]);
        assert_eq!(all(0b0110_0001 | 1 << 63), [(0, 1), (5, 2), (63, 1)]);
    }
}
