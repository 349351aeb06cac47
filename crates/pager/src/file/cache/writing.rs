//! How what was written gets to the file: when, in which order, and what becomes of failures.
//!
//! A page that was written back stays until a sync has settled it. A sync that fails leaves nobody to
//! ask what of it is on the device, so all that it was to settle is written once more; for that it
//! has to be here. Where there is no room for such pages, syncs make it. Whatever fails is told
//! once, to whoever syncs next, and nothing is given up for it.
//!
//! *The story:* pages left as soon as they were written. After a sync that failed those that had
//! left were not written again, and the next sync said that all was well.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use overspill_sys::thread::block_program_signals;
use overspill_sys::{Errno, PAGE_SIZE, clock};

use super::{Books, Cache, Caller, Entry, Opening, PAGE, Page, REQUEST_MAX, Run};
use crate::file::threads::Job;

/// With so many dirty pages, or a quarter of the frames that it can have, whoever writes writes some back.
const DIRTY_MAX: usize = 4096;
const DIRTY_MIN: usize = 64;
const DIRTY_PART: usize = 4;
/// With this part of them written and not settled, they are settled ahead.
const UNSETTLED_PART: usize = 2;
/// With this part of them in either state they are settled for readers, who lose other pages meanwhile.
const HELD_PART: usize = 8;
/// So long after that was told it is not told again; nor is what failed tried again.
const PAUSE_NS: u64 = 1_000_000_000;

/// What is dirty is written back after so long, whether anybody syncs or not: a kernel does the same.
///
/// *The story:* as long as little was dirty nothing of it was ever written. A program that ended in order,
/// but left a file open, lost what it had written an hour before.
pub(super) const AGE_NS: u64 = 30_000_000_000;
/// Whether a file may be longer is asked for so many bytes ahead.
const AHEAD: u64 = 64 << 20;

/// For so many dirty pages another thread writes, if they are no neighbours.
const PAGES_A_WRITER: usize = 32;

/// Neighbours that are dirty: the first one's number, copies, the stores that these know of, and the
/// file's length.
type Dirty = (u64, Vec<Page>, Vec<u64>, u64);

/// A write-back that failed.
pub(super) struct Refused {
    at_ns: u64,
    /// Pages that were dirty after it.
    dirty: usize,
    errno: Errno,
}

/// Held by whoever writes back or syncs.
pub(super) struct Alone<'a> {
    cache: &'a Cache,
    guard: Option<MutexGuard<'a, ()>>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.guard = None;
        if self.cache.was_put_off.swap(false, SeqCst) {
            self.cache.frames.tell(Job::MakeRoom);
        }
    }
}

impl Cache {
    pub fn write_at(&self, bytes: &[u8], offset: u64, caller: &impl Caller) -> Result<(), Errno> {
        self.is_ours()?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if end > i64::MAX as u64 {
            return Err(Errno::FBIG);
        }
        if !bytes.is_empty() {
            self.see_that_it_may_be(end)?;
        }
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let within = (at % PAGE) as usize;
            let count = (PAGE_SIZE - within).min((end - at) as usize);
            let from = (at - offset) as usize;
            self.write_page(page, within, &bytes[from..from + count], caller)?;
            at += count as u64;
        }
        self.bound_what_is_written();
        Ok(())
    }

    /// The file may become so long. What its file system will never take is not stored.
    ///
    /// *The story:* it was, and each sync failed from then on.
    fn see_that_it_may_be(&self, len: u64) -> Result<(), Errno> {
        if len <= self.may_be.load(Acquire) {
            return Ok(());
        }
        let ahead = len.saturating_add(AHEAD).min(i64::MAX as u64);
        let may_be = match self.store().may_be_long(ahead) {
            Ok(()) => ahead,
            Err(_) => self.store().may_be_long(len).map(|()| len)?,
        };
        self.may_be.store(may_be, Release);
        Ok(())
    }

    /// Something is dirty, perhaps since a moment ago: a thread of the file's looks at it in due time.
    fn note_dirty(&self, books: &Books) {
        if self.due_ns.load(Acquire) == 0 && !books.dirty.is_empty() {
            self.be_due_in(self.age_ns.load(Acquire));
            self.frames.tell(Job::Wait);
        }
    }

    fn be_due_in(&self, ns: u64) {
        self.due_ns.store(clock::monotonic_ns() + ns, Release);
    }

    /// So long nobody need look at what is dirty; `None`: nothing is.
    pub fn until_due(&self) -> Option<Duration> {
        let due = self.due_ns.load(Acquire);
        (due != 0).then(|| Duration::from_nanos(due.saturating_sub(clock::monotonic_ns())))
    }

    /// It is due: writes back what is dirty, unless somebody is at that. A failure is told by the next sync.
    pub fn write_aged(&self) {
        let books = self.books();
        if self.until_due() != Some(Duration::ZERO) {
            return;
        }
        if books.dirty.is_empty() {
            self.due_ns.store(0, Release);
            return;
        }
        self.be_due_in(PAUSE_NS);
        drop(books);
        if let Some(_alone) = self.alone_at_once() {
            let _ = self.write_dirty();
            let books = self.books();
            self.due_ns.store(0, Release);
            self.note_dirty(&books);
        }
    }

    /// What is dirty gets old sooner.
    #[cfg(test)]
    pub fn write_after(&self, age: Duration) {
        self.age_ns.store(age.as_nanos() as u64, Release);
    }

    /// Not too much is dirty, and not too much unsettled, after a write.
    fn bound_what_is_written(&self) {
        let most = self.dirty_max();
        let mut books = self.books();
        if books.dirty.len() >= most && books.refused_with(most).is_none() {
            drop(books);
            // It is told by the next sync.
            let _ = self.write_back();
            books = self.books();
        }
        if books.unsettled.len() > self.frames.reach() / UNSETTLED_PART {
            self.order_room(&mut books);
        }
        self.settle(&mut books);
    }

    fn dirty_max(&self) -> usize {
        (self.frames.reach() / DIRTY_PART).clamp(DIRTY_MIN, DIRTY_MAX)
    }

    /// Do many pages stay because they were written to, and was nobody told of late?
    pub(super) fn holds_too_much(&self, books: &Books) -> bool {
        books.dirty.len() + books.unsettled.len() > self.frames.reach() / HELD_PART
            && clock::monotonic_ns() - books.ordered_ns > PAUSE_NS
    }

    /// Has the file's threads write back and settle, unless they were told already, or it is of no use.
    pub(super) fn order_room(&self, books: &mut Books) {
        let can_write = !books.dirty.is_empty() && books.refused_with(self.dirty_max()).is_none();
        let is_of_use = can_write || !books.unsettled.is_empty();
        if is_of_use && !std::mem::replace(&mut books.is_room_ordered, true) {
            books.ordered_ns = clock::monotonic_ns();
            self.frames.tell(Job::MakeRoom);
        }
    }

    /// The file's threads were told to. A failure is told by the next sync.
    pub fn make_ordered_room(&self) {
        if self.make_room_or_put_off() {
            self.books().is_room_ordered = false;
        }
        self.settle_for_others();
    }

    /// Makes room, unless somebody is at it: then it is told once more when he is done. A thread that
    /// reads ahead does not wait for a device to sync.
    ///
    /// *The story:* while one thread synced both that read ahead for a file waited to write.
    pub(super) fn make_room_or_put_off(&self) -> bool {
        let alone = self.alone_at_once().or_else(|| {
            self.was_put_off.store(true, SeqCst);
            // Whoever has it looks after he has let go of it: this time he is still there, or it is ours.
            self.alone_at_once()
        });
        alone.is_some_and(|alone| {
            let _ = self.make_room(&alone);
            true
        })
    }

    /// Makes room for a store, which others may have made meanwhile; not where nothing is there to be
    /// written but what could not be a moment ago.
    ///
    /// *The story:* so many threads that wrote without room, so many syncs, one after the other. And
    /// on a device that was full each store tried all pages anew.
    fn make_room_for_store(&self) -> Result<(), Errno> {
        let alone = self.alone();
        let mut books = self.books();
        if self.has_room(&mut books) {
            return Ok(());
        }
        if books.unsettled.is_empty()
            && let Some(errno) = books.refused_with(1)
        {
            return Err(errno);
        }
        drop(books);
        self.make_room(&alone)
    }

    /// Writes back and settles, so that pages can leave.
    fn make_room(&self, _: &Alone<'_>) -> Result<(), Errno> {
        let written = self.write_dirty();
        if self.books().unsettled.is_empty() {
            return written;
        }
        written.and(self.settle_written(false))
    }

    /// Sees to it that a page that is about to be stored to has its place, and its bytes where any are
    /// kept. Without room for it what is dirty is written back: the lock is let go of for that, and the
    /// page looked at anew. What fails there is this store's concern only if there is no room after it.
    fn place_for_store(
        &self,
        page: u64,
        stored: Range<usize>,
        caller: &impl Caller,
    ) -> Result<MutexGuard<'_, Books>, Errno> {
        let mut books = self.books();
        let mut made_room = None;
        loop {
            let is_here = books.pages.contains_key(&page);
            if !is_here && !self.has_room(&mut books) {
                match made_room {
                    None => {
                        drop(books);
                        made_room = Some(self.make_room_for_store());
                        #[cfg(test)]
                        self.be_amid_store();
                        books = self.books();
                        continue;
                    }
                    Some(outcome) => outcome?,
                }
            }
            let inside = self.len().saturating_sub(page * PAGE).min(PAGE) as usize;
            // Only what is kept of the page has to be known.
            if stored.start > 0 || stored.end < inside {
                return self.bring_in(books, page, 1, caller);
            }
            if !is_here {
                books.place(page, Entry::default());
            }
            return Ok(books);
        }
    }

    #[cfg(test)]
    fn be_amid_store(&self) {
        let event = self.amid_stores.lock().unwrap_or_else(PoisonError::into_inner).take();
        event.into_iter().for_each(|event| event());
    }

    fn write_page(&self, page: u64, within: usize, bytes: &[u8], caller: &impl Caller) -> Result<(), Errno> {
        let mut books = self.place_for_store(page, within..within + bytes.len(), caller)?;
        books.stores += 1;
        let stores = books.stores;
        let Books { pages, blocks, leaving, .. } = &mut *books;
        let entry = pages.get_mut(&page).expect("it has its place");
        let frame = match entry.frame {
            Some(frame) => frame,
            None => {
                let Ok(frame) = blocks.take() else {
                    if !entry.arriving {
                        self.forget(&mut books, Run { first: page, count: 1 });
                    }
                    return Err(Errno::NOMEM);
                };
                blocks.bytes_mut(frame).fill(0);
                leaving.arrived(page);
                *entry.frame.insert(frame)
            }
        };
        blocks.bytes_mut(frame)[within..within + bytes.len()].copy_from_slice(bytes);
        (entry.dirty, entry.used) = (Some(stores), true);
        books.dirty.insert(page);
        self.note_dirty(&books);
        self.len.fetch_max(page * PAGE + (within + bytes.len()) as u64, Release);
        drop(books);
        self.arrived.notify_all();
        Ok(())
    }

    /// Writes what is dirty, neighbours together.
    pub fn write_back(&self) -> Result<(), Errno> {
        let _alone = self.alone();
        self.write_dirty()
    }

    pub(super) fn alone(&self) -> Alone<'_> {
        let guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        Alone { cache: self, guard: Some(guard) }
    }

    /// The same, if nobody else is.
    fn alone_at_once(&self) -> Option<Alone<'_>> {
        let guard = match self.writing.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Alone { cache: self, guard: Some(guard) })
    }

    fn write_dirty(&self) -> Result<(), Errno> {
        // What others have cut is not seen any more when something was written behind it.
        self.look(&mut self.books());
        let outcome = self.write_all();
        let mut books = self.books();
        let (at_ns, dirty) = (clock::monotonic_ns(), books.dirty.len());
        books.refused = outcome.err().map(|errno| Refused { at_ns, dirty, errno });
        outcome
    }

    /// Several runs at a time: a device that takes one after another is idle in between.
    ///
    /// *The story:* 16 threads that wrote 64 KiB here and there had 0.4 of what pread and pwrite give,
    /// as one of them wrote all that was dirty, run by run, and the others waited for room.
    /// *The other story:* so many threads were started for 256 neighbours as for 256 pages here and there.
    fn write_all(&self) -> Result<(), Errno> {
        let next = Mutex::new(0);
        let writers = self.books().requests(self.frames.writers());
        std::thread::scope(|scope| {
            let spawn = |_| {
                std::thread::Builder::new().name("overspill file".into()).spawn_scoped(scope, || {
                    let _ = block_program_signals();
                    self.write_from(&next)
                })
            };
            // Those that cannot be started are done without.
            let others: Vec<_> = (1..writers).filter_map(|at| spawn(at).ok()).collect();
            let own = self.write_from(&next);
            let join = |outcome: Result<(), Errno>, other: ScopedJoinHandle<'_, Result<(), Errno>>| {
                outcome.and(other.join().unwrap_or(Err(Errno::IO)))
            };
            others.into_iter().fold(own, join)
        })
    }

    /// Writes what is dirty from a page on until nothing is left for others, either. The file grows in
    /// order: while one writes behind its end nobody takes what comes after that.
    ///
    /// *The story:* a program that was killed left megabytes of zeroes before what it had written later.
    fn write_from(&self, next: &Mutex<u64>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        loop {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((first, pages, stamps, len)) = self.next_dirty(*next) else { return outcome };
            *next = first + pages.len() as u64;
            let grows = len.min(*next * PAGE) > self.books().in_file;
            let _others_wait = grows.then_some(next);
            if self.write_run(first, &pages, &stamps, len).is_ok() {
                continue;
            }
            // One page that cannot be written keeps no other from the device.
            for ((page, copy), stamp) in (first..).zip(pages.chunks(1)).zip(stamps.chunks(1)) {
                if let Err(errno) = self.write_run(page, copy, stamp, len) {
                    self.books().note_failure(errno);
                    outcome = Err(errno);
                }
            }
        }
    }

    /// Writes copies of neighbours, which are as new as their stamps say.
    fn write_run(&self, first: u64, pages: &[Page], stamps: &[u64], len: u64) -> Result<(), Errno> {
        self.store().write(first, pages, len)?;
        let mut books = self.books();
        books.stats.writes += 1;
        books.stats.pages_written += pages.len() as u64;
        books.in_file = books.in_file.max(((first + pages.len() as u64) * PAGE).min(len));
        for (page, &stamp) in (first..).zip(stamps) {
            books.unsettled.insert(page);
            let entry = books.pages.get_mut(&page).expect("what is dirty stays");
            // Stored to meanwhile: still newer than the file.
            if entry.dirty == Some(stamp) {
                entry.dirty = None;
                books.dirty.remove(&page);
            }
        }
        Ok(())
    }

    /// The first run of dirty pages from a page on: copies, as they are now.
    fn next_dirty(&self, from: u64) -> Option<Dirty> {
        let books = self.books();
        let first = *books.dirty.range(from..).next()?;
        let (mut pages, mut stamps) = (Vec::new(), Vec::new());
        for page in books.dirty.range(first..).copied().take(REQUEST_MAX as usize) {
            if page != first + pages.len() as u64 {
                break;
            }
            let entry = &books.pages[&page];
            let mut copy = Page([0; PAGE_SIZE]);
            copy.0.copy_from_slice(books.blocks.bytes(entry.frame.expect("what is dirty is there")));
            pages.push(copy);
            stamps.push(entry.dirty.expect("what is listed is dirty"));
        }
        Some((first, pages, stamps, self.len()))
    }

    /// One at a time, and nothing is written meanwhile: a device tells its failure to one of those who
    /// ask it, and what it has settled is known of what was written before.
    pub fn sync(&self, opening: Opening) -> Result<(), Errno> {
        self.is_ours()?;
        let _alone = self.alone();
        let written = self.write_dirty();
        // What could be written is settled, whatever became of the rest.
        let settled = self.settle_written(true);
        let mut books = self.books();
        self.look(&mut books);
        let told = books.take_failure(opening).map_or(Ok(()), Err);
        told.and(written).and(settled)
    }

    /// Asks the device to settle what was written. The caller is alone: nothing is added meanwhile.
    fn settle_written(&self, all: bool) -> Result<(), Errno> {
        let settled = self.store().sync(all);
        let mut books = self.books();
        let pages = std::mem::take(&mut books.unsettled);
        for page in pages {
            if settled.is_ok() {
                books.leaving.freed(page);
            } else {
                books.soil(page);
            }
        }
        if let Err(errno) = settled {
            books.note_failure(errno);
            self.note_dirty(&books);
        }
        settled
    }
}

impl Books {
    /// Requests that can be under way for what is dirty, as far as they are worth threads, and no more
    /// than `most`. All that lies behind the file's end is one: it is written in order.
    fn requests(&self, most: usize) -> usize {
        let mut from = 0;
        let mut next = || {
            let first = *self.dirty.range(from..).next()?;
            let end = first + REQUEST_MAX;
            let is_behind = first * PAGE >= self.in_file;
            let gap = (first..end).find(|page| !self.dirty.contains(page));
            from = if is_behind { u64::MAX } else { gap.unwrap_or(end) };
            Some(())
        };
        let most = most.min(self.dirty.len().div_ceil(PAGES_A_WRITER));
        (0..most).map_while(|_| next()).count()
    }

    /// Why the last write-back failed, if that was a moment ago, and not so many `more` are dirty since.
    ///
    /// *The story:* whoever stored to a file whose device was full had all that was dirty tried anew.
    fn refused_with(&self, more: usize) -> Option<Errno> {
        let refused = self.refused.as_ref().filter(|refused| self.dirty.len() < refused.dirty + more)?;
        (clock::monotonic_ns() - refused.at_ns < PAUSE_NS).then_some(refused.errno)
    }

    /// After a sync that failed: a kernel takes such a page for written from then on, and its next
    /// sync goes well. So it is written once more; one that was cut off has left.
    fn soil(&mut self, page: u64) {
        self.stores += 1;
        let stores = self.stores;
        if let Some(entry) = self.pages.get_mut(&page).filter(|entry| entry.frame.is_some()) {
            entry.dirty.get_or_insert(stores);
            self.dirty.insert(page);
        }
    }
}
