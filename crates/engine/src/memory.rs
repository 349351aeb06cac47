//! The program's memory and the staging frames, and every way in which a page passes from one to the other.
//!
//! This is the one module of the pager with unsafe code. Two descriptors (guides on userfaultfd
//! call them A and B): the program's memory and staging are registered on `program`, which reports
//! unmapping, remapping and discarding; the trash mapping is registered on `own`, which reports
//! nothing. All moves between program and staging are issued on `program`, because the kernel
//! refuses them (EAGAIN) while the address space is changing and its event is unread: a page of a
//! mapping that replaced the one we know can never be taken for the old one. Frames are dropped
//! through the trash mapping, because dropping them in place would raise an event that this very
//! thread would have to read.

mod file_pages;
mod putting;
mod tries;
mod zero_pages;

use alloc::{collections::VecDeque, sync::Arc};
use core::sync::atomic::{AtomicBool, Ordering};

use overspill_sys::mem::{self, Advice, Mapping, Prot};
use overspill_sys::pagemap::{Categories, PageRegion, Pagemap, Query};
use overspill_sys::uffd::{CopyMode, Features, Message, Mode, MoveMode, Partial, RawMsg, Uffd};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, overlap};

use crate::fingerprint::WORDS;
use crate::helper::{Helper, Job};
use crate::own_events;
use crate::pool::Page;
use crate::staging::{BLOCK, Frame};
pub(crate) use putting::Manner;
use tries::{Reach, Sharing, Tries};

/// Messages taken from the kernel by one read.
const MESSAGES: usize = 64;
/// How often a transfer is repeated while the kernel says "try again" and no event explains it, at
/// first without a rest.
const CHANGE_TRIES: u32 = 500;
const CHANGE_SPINS: u32 = 64;
/// How often it is looked whether the helper is done, at first without a rest: some 100 us.
const HELPER_LOOKS: u32 = 50;
/// How often a frame of one's own is tried to be dropped.
const PATIENCE: u32 = 20_000;
/// A rest in which another thread does what is waited for. Not sched_yield: each puts off this
/// thread's next turn, and many together by tens of milliseconds when all processors are busy.
///
/// *The story:* it was 1 ns, for which the kernel lets an ordinary thread sleep some 50 us. A
/// thread that comes before all others is woken exactly when it asked, which was at once: it never
/// slept, and the helper that it waited for never ran on the same processor. Children of fork
/// without UFFDIO_MOVE used it up for 20 s.
pub(crate) const REST_NS: u64 = 20_000;
/// How often a move is repeated while a frame is still pinned by the read that filled it.
const PIN_PATIENCE: u32 = 200;
/// So many refused pages speak for the rest of a run.
const BUSY_ENOUGH: u32 = 2;
/// So many pages one after another that do not fit speak for the rest of a run.
const UNFIT_ENOUGH: u32 = 4;
/// So few pages are copied into the program's view rather than moved. A move has to interrupt every
/// processor that may know the staging address (11 to 34 us where one is idle), a copy of a page
/// takes 3 us, and its frame serves the next read.
pub(crate) const COPIED_MAX: u32 = 4;
/// Zeroes to copy from, in pages.
const ZEROES: usize = 256;
/// Pages in RAM or in the kernel's own swap, whatever they hold.
const ANY_CONTENT: Query = Query {
    required: Categories::empty(),
    excluded: Categories::empty(),
    any_of: Categories::PRESENT.union(Categories::SWAPPED),
    report: Categories::empty(),
};
/// Guards in place of pages.
const GUARDS: Query = Query { required: Categories::GUARD, any_of: Categories::empty(), ..ANY_CONTENT };
/// Pages in RAM, the zero page among them.
const PRESENT: Query = Query { required: Categories::PRESENT, any_of: Categories::empty(), ..ANY_CONTENT };
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

/// What became of pages that were to be taken out of the program's view. Pages in neither set were busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    /// Bit i: page i is in frame i.
    pub taken: u64,
    /// Bit i: there was no page i.
    pub gone: u64,
}

/// What became of a try to move pages out, by their bits.
#[derive(Clone, Copy, Default)]
struct Tried {
    taken: u64,
    /// Moved, or refused by the kernel one by one.
    tried: u64,
    /// Refused since their mapping is not as staging is: read-only, without access, locked. They
    /// may be gone as well.
    unfit: u64,
    /// False when the range is changing: then the page map tells nothing about the pages we know.
    settled: bool,
}

/// The program's memory, as far as it is managed, and the staging frames.
pub(crate) struct Memory {
    program: Uffd,
    own: Uffd,
    staging: Mapping,
    trash: Mapping,
    zeroes: Mapping,
    /// Pages for what is on its way from the compressed pool to the file, and a last one for what
    /// is read and not wanted.
    bounce: Mapping,
    /// Changes of the address space that were read and not handled yet, oldest first. They are
    /// handled before any fault: a fault only says that a thread waits, and what it finds is
    /// decided by the changes.
    changes: VecDeque<Message>,
    /// The ranges of the change that is being handled: until that is done it concerns transfers
    /// like one to come.
    handling: [AddressRange; 2],
    /// Faults that were read and not handled yet.
    faults: VecDeque<Message>,
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
    copying: Tries,
}

/// What is known of guards (MADV_GUARD_INSTALL) in the program's memory.
#[derive(Default)]
struct Guards {
    /// The kernel tells them from other pages (6.15).
    are_told: bool,
    /// One was seen.
    seen: bool,
    /// Set before the program installs the first one by a call that is heard of.
    announced: Option<&'static AtomicBool>,
}

impl Guards {
    fn may_be(&self) -> bool {
        self.are_told && (self.seen || self.announced.is_some_and(|flag| flag.load(Ordering::SeqCst)))
    }
}

/// Events tell what becomes of mappings, protection which of them are registered.
const NEEDED: Features = Features::EVENT_REMAP
    .union(Features::EVENT_REMOVE)
    .union(Features::EVENT_UNMAP)
    .union(Features::PAGEFAULT_FLAG_WP);

impl Memory {
    /// Opens the descriptors and maps `staging_frames` frames (all holes).
    pub fn new(staging_frames: u32, use_move: bool, user_mode_only: bool) -> Result<Self, Errno> {
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
        let staging = frames(staging_frames as usize)?;
        let trash = frames(TRASH)?;
        let mut takes_zero_pages = true;
        if can_move {
            own.register(trash.range(), Mode::WP)?;
            takes_zero_pages = moves_zero_page(&own, &staging, &trash)?;
            // Write-protect mode reports nothing as long as nothing is protected: holes fault in as usual.
            program.register(staging.range(), Mode::WP)?;
        }
        let helper = if can_move { None } else { Some(Helper::start()?) };
        let pagemap = Arc::new(Pagemap::open()?);
        Ok(Memory {
            program,
            own,
            staging,
            trash,
            zeroes: zeroes()?,
            bounce: frames(BOUNCE as usize + 2)?,
            changes: VecDeque::with_capacity(MESSAGES),
            faults: VecDeque::with_capacity(MESSAGES),
            handling: [0..0, 0..0],
            can_move,
            takes_zero_pages,
            can_poison: granted.contains(Features::POISON),
            helper,
            guards: Guards { are_told: pagemap.knows_guards(), ..Guards::default() },
            pagemap,
            hears_forks,
            sharing: Sharing::default(),
            copying: Tries::default(),
        })
    }

    /// Does the kernel tell of every fork?
    pub fn hears_forks(&self) -> bool {
        self.hears_forks
    }

    /// From now on pages may be shared with another process: there was a fork.
    pub fn note_sharing(&mut self) {
        self.sharing.begin();
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
    pub fn own_ranges(&self) -> [AddressRange; 5] {
        let helper = self.helper.map_or(0..0, |helper| helper.range.0..helper.range.1);
        [self.staging.range(), self.trash.range(), self.zeroes.range(), self.bounce.range(), helper]
    }

    /// The address of a frame, for direct I/O.
    pub fn frame_address(&self, frame: Frame) -> usize {
        self.staging.page(frame.0 as usize)
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

    /// Ends the helper, if it is idle or becomes so.
    pub fn end_helper(&mut self) {
        if let Some(helper) = self.helper.take() {
            while !helper.is_idle() {
                clock::sleep_ns(REST_NS);
            }
            helper.end();
        }
    }

    // Messages.

    /// Reads what messages there are into the queues. True when there were any.
    pub fn read_messages(&mut self) -> bool {
        self.read_some(&mut [RawMsg::default(); MESSAGES])
    }

    fn read_some(&mut self, buffer: &mut [RawMsg]) -> bool {
        let count = match self.program.read_messages(buffer) {
            // It would be so for ever, and whoever forked would wait for ever.
            Err(Errno::MFILE) => panic!("a fork, and the process may have no descriptor at all"),
            read => read.unwrap_or(0),
        };
        for message in buffer[..count].iter().map(RawMsg::decode) {
            match message {
                Message::Fault { .. } => self.faults.push_back(message),
                _ => self.changes.push_back(message),
            }
        }
        count > 0
    }

    /// The faults that were read and not handled, the oldest first.
    pub fn faults(&mut self) -> &mut VecDeque<Message> {
        &mut self.faults
    }

    /// The oldest change.
    pub fn next_change(&mut self) -> Option<Message> {
        self.changes.pop_front()
    }

    /// Are there changes that were read and not handled?
    pub fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Is the address space free of changes whose events are unread? What was read from the
    /// process's maps before a "yes" is still true of everything that is registered.
    pub fn is_quiet(&mut self) -> bool {
        // The kernel checks for unread events before it looks at the pages; protecting nothing
        // changes nothing.
        let probe = self.staging.page(0)..self.staging.page(1);
        self.program.write_protect(probe, false, true) != Err(Errno::AGAIN)
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
        *tries > CHANGE_TRIES || self.is_changing(range)
    }

    /// Does a change that was read and not handled concern the range?
    fn is_changing(&self, range: &AddressRange) -> bool {
        self.handling.iter().any(|part| overlap(part, range))
            || self.changes.iter().any(|message| concerns(message, range))
    }

    /// Was a fork read of and not handled?
    fn is_forked(&self) -> bool {
        self.changes.iter().any(|message| matches!(message, Message::Fork { .. }))
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

    // Out of the program's view.

    /// Takes `count` (at most a block) pages at `address` into frames (holes) from `first` on.
    pub fn take_out(&mut self, address: usize, first: Frame, count: u32) -> Taken {
        if self.is_changing(&(address..address + count as usize * PAGE_SIZE)) {
            return Taken::default();
        }
        if self.can_move {
            self.move_out(address, first, count)
        } else {
            self.copy_out(address, first, count)
        }
    }

    fn move_out(&mut self, address: usize, first: Frame, count: u32) -> Taken {
        let Tried { mut taken, mut settled, mut tried, unfit } =
            self.try_move_out(address, first, count, u64::MAX);
        let refused = bits(0, count) & !taken & !unfit;
        if settled && refused != 0 && self.sharing.may_help() {
            let helped = self.unshare(address, refused);
            let again = self.try_move_out(address, first, count, helped);
            self.sharing.tries.note(again.taken != 0);
            taken |= again.taken;
            tried |= again.tried;
            settled = again.settled;
        }
        let mut result = Taken { taken, gone: 0 };
        if !settled {
            return result;
        }
        // The page map has the last word on what was refused: a page is where it is, whatever the call said.
        for page in (0..count).filter(|page| tried & !taken & 1 << page != 0) {
            let at = page as usize * PAGE_SIZE;
            if self.is_missing(address + at) {
                let arrived = !self.is_missing(self.frame_address(first) + at);
                let set = if arrived { &mut result.taken } else { &mut result.gone };
                *set |= bits(page, 1);
            }
        }
        let unfit = unfit & !(result.taken | result.gone);
        if unfit != 0 && self.copying.may_help() {
            let copied = self.copy_unfit(address, first, unfit);
            self.copying.note(copied != 0);
            result.taken |= copied;
        }
        result
    }

    /// Takes pages out that cannot be moved since their mapping is not as staging is. It may be
    /// read-only: then they can be copied and dropped. Or locked: then they stay, and their frames
    /// are holes again.
    ///
    /// *The story:* 96 MiB that were made read-only in a budget of 48 could not leave: each fault
    /// looked at all pages in vain, and took 150 times as long.
    fn copy_unfit(&mut self, address: usize, first: Frame, unfit: u64) -> u64 {
        if self.helper.is_none() {
            self.helper = Helper::start().ok();
        }
        let mut copied = 0;
        for (page, run) in runs(unfit) {
            if !self.helper.is_some_and(|helper| helper.is_idle()) {
                break;
            }
            let frame = Frame(first.0 + page);
            let taken = self.copy_out(address + page as usize * PAGE_SIZE, frame, run).taken;
            copied |= taken << page;
            for (spoiled, count) in runs(bits(0, run) & !taken) {
                self.drop_frames(Frame(frame.0 + spoiled), count);
            }
        }
        copied
    }

    /// Tries the pages of the set `which`.
    fn try_move_out(&mut self, address: usize, first: Frame, count: u32, which: u64) -> Tried {
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
                // A hole that is none: the program has locked all memory unheard, and so made it present.
                Some(Errno::EXIST) if !unlocked => {
                    unlocked = true;
                    self.unlock();
                    (page..count).for_each(|page| {
                        self.drop_frames(Frame(first.0 + page), 1);
                    });
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

    /// The older kernels' sequence: protect, so that no store is lost; copy; drop; wake whoever
    /// stored meanwhile.
    fn copy_out(&mut self, address: usize, first: Frame, count: u32) -> Taken {
        let range = address..address + count as usize * PAGE_SIZE;
        let mut result = Taken::default();
        if !self.protect(range.clone()) {
            return result;
        }
        let Ok(present) = self.present(range.clone()) else { return result };
        result.gone = bits(0, count) & !present;
        for (page, run) in runs(present) {
            let at = page as usize * PAGE_SIZE;
            let frame = self.frame_address(first) + at;
            // SAFETY: the frames were handed out for this and hold nothing.
            let bytes =
                unsafe { core::slice::from_raw_parts_mut(frame as *mut u8, run as usize * PAGE_SIZE) };
            let copied = mem::copy_from_self(bytes, address + at).unwrap_or(0);
            // What could not be copied stays where it is.
            result.taken |= bits(page, (copied / PAGE_SIZE) as u32);
        }
        result.taken &= self.drop_copied(address, result.taken);
        if result.taken == present {
            self.program.wake(range).unwrap_or(());
        } else {
            // What stays can be stored to again.
            self.unprotect(range);
        }
        result
    }

    /// Guards are announced by `flag`, before they are installed.
    pub fn watch_guards(&mut self, flag: &'static AtomicBool) {
        self.guards.announced = Some(flag);
    }

    /// Of `count` pages at `address`: how many at the head are not guarded, and how many behind
    /// those are. While nothing is known of any guard that is not looked for.
    pub fn guards(&mut self, address: usize, count: u32) -> (u32, u32) {
        if self.guards.may_be() { self.find_guards(address, count) } else { (count, 0) }
    }

    /// How many of `count` pages, of which a thread waits for the first, lie before the next guard.
    /// It does not wait where there is one.
    pub fn open_before_guards(&mut self, address: usize, count: u32) -> u32 {
        if count == 1 || !self.guards.are_told {
            return count;
        }
        let (open, guarded) = self.find_guards(address, count);
        self.guards.seen |= guarded > 0;
        open.max(1)
    }

    fn find_guards(&self, address: usize, count: u32) -> (u32, u32) {
        let mut runs = [PageRegion::default(); 1];
        let range = address..address + count as usize * PAGE_SIZE;
        match self.pagemap.scan(range, GUARDS, &mut runs) {
            Ok(scan) if scan.regions > 0 => {
                let open = (runs[0].start as usize - address) / PAGE_SIZE;
                (open as u32, runs[0].pages() as u32)
            }
            _ => (count, 0),
        }
    }

    /// Is the page at `address` really not there?
    pub fn is_missing(&self, address: usize) -> bool {
        let mut runs = [PageRegion::default(); 1];
        // A guard reads as something in the kernel's own swap.
        let excluded = if self.guards.are_told { Categories::GUARD } else { Categories::empty() };
        let query = Query { excluded, ..ANY_CONTENT };
        let scan = self.pagemap.scan(address..address + PAGE_SIZE, query, &mut runs);
        scan.is_ok_and(|scan| scan.regions == 0)
    }

    /// Bit i: page i of the range (at most a block) is there.
    fn present(&self, range: AddressRange) -> Result<u64, Errno> {
        let mut runs = [PageRegion::default(); BLOCK as usize];
        let scan = self.pagemap.scan(range.clone(), PRESENT, &mut runs)?;
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
    fn drop_program_pages(&mut self, range: AddressRange) {
        let helper = self.helper.expect("started where UFFDIO_MOVE is missing");
        helper.order(Job::Drop, range.clone());
        let mut looks = 0;
        while !helper.is_idle() {
            if helper.is_stuck() && self.read_some(&mut [RawMsg::default()]) {
                continue;
            }
            looks += 1;
            if looks > HELPER_LOOKS {
                // It may want this very processor.
                clock::sleep_ns(REST_NS);
            }
        }
        own_events::remove(&mut self.changes, &range);
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
        let mut by_move = false;
        let mut reach = Reach::new(ZEROES as u32);
        while done < count {
            let dst = address + done as usize * PAGE_SIZE;
            let len = reach.len(count - done);
            let (outcome, len) = if by_move {
                self.move_zeroes(dst, len)
            } else {
                // SAFETY: mm found the pages untouched: they show zeroes.
                let copied = unsafe { self.program.copy(dst, self.zeroes.start(), len, CopyMode::empty()) };
                (copied, len)
            };
            let (pages, errno) = progress(outcome, len);
            done += pages;
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
                Some(Errno::FAULT) if self.can_move && !by_move => by_move = true,
                Some(Errno::NOENT | Errno::INVAL) if reach.shorten() => {}
                Some(_) => break,
            }
        }
        done
    }

    /// Moves fresh pages to `dst`, as many of `len` bytes as are made at a time; says how many
    /// those are. For private mappings of /dev/zero: they are anonymous memory, but the kernel
    /// measures a copy into them by the length of the device, which is none.
    fn move_zeroes(&mut self, dst: usize, len: usize) -> (Result<(), Partial>, usize) {
        let len = len.min(TRASH * PAGE_SIZE);
        for at in (0..len).step_by(PAGE_SIZE) {
            // SAFETY: the trash is ours and holds nothing; a store makes a page of zeroes.
            unsafe { ((self.trash.start() + at) as *mut u64).write_volatile(0) };
        }
        // SAFETY: mm found the pages untouched: they show zeroes.
        let moved = unsafe { self.program.move_pages(dst, self.trash.start(), len, MoveMode::empty()) };
        self.empty_trash();
        (moved, len)
    }

    /// Takes locks off that mlockall of the program put on memory of ours, by a call that nobody heard of.
    fn unlock(&self) {
        for range in [&self.staging, &self.trash, &self.zeroes, &self.bounce].map(Mapping::range) {
            // It fails for what is not mapped, which ours is.
            let _ = mem::munlock(range);
        }
    }

    fn empty_trash(&mut self) {
        // SAFETY: the trash is ours and holds nothing; it is registered where no events are reported.
        let empty = || unsafe { self.trash.advise(Advice::DontNeed) };
        let emptied = empty().or_else(|_| {
            self.unlock();
            empty()
        });
        assert!(emptied.is_ok(), "dropping pages of a mapping of one's own cannot fail");
    }

    // Frames.

    /// Overwrites `count` populated frames with zeroes.
    pub fn clear_frames(&mut self, first: Frame, count: u32) {
        let address = self.frame_address(first);
        // SAFETY: the frames hold no page; staging is ours alone.
        unsafe { core::ptr::write_bytes(address as *mut u8, 0, count as usize * PAGE_SIZE) };
    }

    /// What a populated frame holds.
    pub fn frame_words(&self, frame: Frame) -> &[u64; WORDS] {
        // SAFETY: the frame lies within staging, is aligned, and nobody writes to it while it holds a page.
        unsafe { &*(self.frame_address(frame) as *const [u64; WORDS]) }
    }

    /// What a populated frame holds, in bytes.
    pub fn frame_page(&self, frame: Frame) -> &Page {
        // SAFETY: as for `frame_words`.
        unsafe { &*(self.frame_address(frame) as *const Page) }
    }

    /// Has `fill` write a frame into which a page is being brought.
    pub fn fill_frame<R>(&mut self, frame: Frame, fill: impl FnOnce(&mut Page) -> R) -> R {
        // SAFETY: the frame lies within staging, and no request to the device is under way for it.
        // `&mut self` keeps others from looking meanwhile.
        fill(unsafe { &mut *(self.frame_address(frame) as *mut Page) })
    }

    /// Has `fill` write a bounce page that is not on its way to the device.
    pub fn fill_bounce<R>(&mut self, index: u32, fill: impl FnOnce(&mut Page) -> R) -> R {
        assert!(index < BOUNCE);
        // SAFETY: the page lies within the mapping, which is ours alone; the device only reads, and
        // not from this page.
        fill(unsafe { &mut *(self.bounce_address(index) as *mut Page) })
    }

    /// Has `fill` write the page on which children are given what is on swap.
    ///
    /// *A review's story:* it was the scratch page, into which a read that is under way may still
    /// write what nobody wants; a child would have been given that.
    pub fn fill_loan<R>(&mut self, fill: impl FnOnce(&mut Page) -> R) -> R {
        // SAFETY: the page lies within the mapping, which is ours alone, and no request that
        // outlives a call names it.
        fill(unsafe { &mut *(self.loan_address() as *mut Page) })
    }

    /// Its address.
    pub fn loan_address(&self) -> usize {
        self.bounce_address(BOUNCE + 1)
    }

    /// The address of a bounce page, for direct I/O.
    pub fn bounce_address(&self, index: u32) -> usize {
        self.bounce.page(index as usize)
    }

    /// The address of a page whose content does not matter, for direct I/O.
    pub fn scratch_address(&self) -> usize {
        self.bounce_address(BOUNCE)
    }

    /// Gives the memory of `count` (at most a block) populated frames that hold nothing back to the
    /// kernel. Returns how many, from the first, are holes then.
    pub fn drop_frames(&mut self, first: Frame, count: u32) -> u32 {
        let (address, len) = (self.frame_address(first), count as usize * PAGE_SIZE);
        if !self.can_move {
            // SAFETY: the frames hold nothing and are not registered anywhere.
            let dropped = unsafe { mem::madvise(address..address + len, Advice::DontNeed) };
            return if dropped.is_ok() { count } else { 0 };
        }
        let mut done = 0;
        let mut pinned = 0;
        while done < len {
            // SAFETY: both sides are ours and hold nothing.
            let moved = unsafe {
                self.own.move_pages(self.trash.start() + done, address + done, len - done, MoveMode::DONTWAKE)
            };
            match moved {
                Ok(()) => done = len,
                Err(Partial { done: more, .. }) if more > 0 => done += more,
                Err(Partial { errno: Errno::BUSY | Errno::AGAIN, .. }) if pinned < PATIENCE => {
                    pinned += 1;
                    core::hint::spin_loop();
                }
                Err(_) => break,
            }
        }
        self.empty_trash();
        (done / PAGE_SIZE) as u32
    }

    /// Takes the page of a doorbell away, so that its next touch is reported again. False when it
    /// is still there.
    pub fn rearm(&mut self, address: usize) -> bool {
        if self.is_missing(address) {
            return true;
        }
        let trash = self.trash.start();
        if self.can_move {
            // SAFETY: the page belongs to the pager and holds nothing.
            let _ = unsafe { self.own.move_pages(trash, address, PAGE_SIZE, MoveMode::DONTWAKE) };
            // SAFETY: the trash is ours and holds nothing.
            let _ = unsafe { self.trash.advise(Advice::DontNeed) };
        } else {
            self.drop_program_pages(address..address + PAGE_SIZE);
        }
        self.is_missing(address)
    }

    /// Has pages of the program that another process shares made its own, so that they can be
    /// moved: those of the set `which` from `address` on. Returns those for which that was done.
    ///
    /// The helper does it, since a store to a page that is missing by then waits for this thread.
    /// Then it is left alone with the rest. Pages that a device uses stay as they are.
    fn unshare(&mut self, address: usize, which: u64) -> u64 {
        if self.helper.is_none() {
            self.helper = Helper::start().ok();
        }
        let Some(helper) = self.helper else { return 0 };
        let mut done = 0;
        for (page, run) in runs(which) {
            let start = address + page as usize * PAGE_SIZE;
            if !helper.is_idle() {
                break;
            }
            helper.order(Job::Unshare, start..start + run as usize * PAGE_SIZE);
            if !helper.is_awaited() {
                break;
            }
            done |= bits(page, run);
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
        let mut tries = 0;
        while let Err(errno) = self.program.write_protect(range.clone(), true, false) {
            if errno != Errno::AGAIN || self.is_conflict(&range, &mut tries) {
                return false;
            }
        }
        true
    }

    /// Gives write permission back and wakes the waiting threads.
    pub fn unprotect(&mut self, range: AddressRange) {
        let mut tries = 0;
        if self.is_changing(&range) {
            return self.wake(range);
        }
        while self.program.write_protect(range.clone(), false, false) == Err(Errno::AGAIN) {
            // An event about the range itself: the thread tries again and finds what is there then.
            if self.is_conflict(&range, &mut tries) {
                return self.wake(range);
            }
        }
    }

    /// The page is lost: touches of it raise SIGBUS where the kernel can do that. False when it cannot.
    pub fn poison(&mut self, range: AddressRange) -> bool {
        // SAFETY: mm gave the page up.
        self.can_poison && unsafe { self.program.poison(range, false) }.is_ok()
    }
}

/// Zeroes, every page of which is the kernel's zero page already: a fault in the middle of a copy
/// would wait for the lock of the address space (16 ms were seen, beside threads that map and
/// unmap).
fn zeroes() -> Result<Mapping, Errno> {
    let mapping = Mapping::anon(ZEROES * PAGE_SIZE, Prot::READ)?;
    // SAFETY: reading changes no content, and the mapping is ours. Before 5.14 the faults come later.
    let _ = unsafe { mapping.advise(Advice::PopulateRead) };
    Ok(mapping)
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

/// A page's bytes as words.
pub(crate) fn words_of(page: &Page) -> &[u64; WORDS] {
    let words = page.as_ptr().cast::<[u64; WORDS]>();
    assert!(words.is_aligned(), "pages are aligned");
    // SAFETY: the same bytes, aligned as was just seen.
    unsafe { &*words }
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

    #[test]
    fn runs_of_set_bits() {
        let all = |set| runs(set).collect::<std::vec::Vec<_>>();
        assert_eq!(all(0), []);
        assert_eq!(all(u64::MAX), [(0, 64)]);
        assert_eq!(all(0b0110_0001 | 1 << 63), [(0, 1), (5, 2), (63, 1)]);
    }
}
