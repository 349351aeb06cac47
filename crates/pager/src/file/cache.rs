//! The pages of one file: which are there, which are on their way, which are newer than the file.
//!
//! One lock guards the books; it is not held while the device works. A page that is on its way has
//! its place already, so that nobody reads it twice. Which page leaves is [`Leaving`]'s to say; dirty
//! ones are written before, with their neighbours.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use overspill_mm::fileread::policy::{FileState, Policy};
use overspill_mm::fileread::{Advice, Ask, FileRead, PageCache, Reads};
use overspill_sys::{Errno, PAGE_SIZE, mem};

use super::FileStats;
use super::blocks::{Blocks, Frame};
use super::leaving::{Leaving, Look};
use super::numbers::ByNumber;
use super::room::Frames;
use super::store::{Page, Store};

const PAGE: u64 = PAGE_SIZE as u64;
/// Pages of one request, at most.
const REQUEST_MAX: u64 = 256;
/// Behind a reader so many of its windows are taken for passed, of those pages that are there.
const PASSED_WINDOWS: u64 = 2;
/// With so many dirty pages whoever writes writes some back.
const DIRTY_MAX: usize = 4096;
/// So many times a child of fork tries to get at the books, and so long it sleeps between.
const CHILD_TRIES: u32 = 10;
const CHILD_PAUSE: Duration = Duration::from_millis(1);

/// Pages that are on their way, and that somebody has to fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub first: u64,
    pub count: u64,
}

thread_local! {
    /// What a thread reads into before it is copied to its frames, which others copy from meanwhile.
    static ARRIVING: RefCell<Vec<Page>> = const { RefCell::new(Vec::new()) };
}

/// A page's place. Without a frame it is on its way.
#[derive(Default)]
struct Entry {
    frame: Option<Frame>,
    /// Somebody fetches it, or is to. It may have a frame meanwhile, from whoever wrote all of it, and
    /// keeps its place even so.
    arriving: bool,
    marked: bool,
    /// Used once, and since it was looked at last.
    used: bool,
    referenced: bool,
    /// Newer than the file; the number says which store was the last.
    dirty: Option<u64>,
}

struct Books {
    pages: ByNumber<Entry>,
    blocks: Blocks,
    /// Calls that wait for a page: what comes for them stays until they have it.
    waiting: usize,
    leaving: Leaving,
    dirty: BTreeSet<u64>,
    /// Written since the last sync that went well: not known to be on stable storage.
    unsettled: BTreeSet<u64>,
    stores: u64,
    policy: Policy,
    file: FileState,
    error: Option<Errno>,
    stats: FileStats,
}

impl Books {
    /// The frame of a page that is there, which is used now; `None` where somebody has to see to it.
    fn use_page(&mut self, page: u64) -> Option<Frame> {
        let entry = self.pages.get_mut(&page)?;
        let frame = entry.frame.filter(|_| !entry.marked)?;
        entry.referenced |= std::mem::replace(&mut entry.used, true);
        Some(frame)
    }

    /// Pages were read that are on their way.
    fn take_in(&mut self, run: Run, arriving: &[Page]) -> Result<(), Errno> {
        self.stats.reads += 1;
        self.stats.pages_read += run.count;
        for (page, bytes) in (run.first..).zip(arriving) {
            let entry = self.pages.get_mut(&page).expect("what is on its way keeps its place");
            assert!(std::mem::take(&mut entry.arriving), "a page is fetched once");
            // Somebody may have written the whole page meanwhile.
            if entry.frame.is_none() {
                let frame = self.blocks.take()?;
                self.blocks.bytes_mut(frame).copy_from_slice(&bytes.0);
                entry.frame = Some(frame);
                self.leaving.arrived(page);
            }
        }
        Ok(())
    }
}

/// What a policy sees.
struct View<'a>(&'a ByNumber<Entry>);

impl PageCache for View<'_> {
    fn holds(&self, page: u64) -> bool {
        self.0.contains_key(&page)
    }
}

/// The cache of one file.
pub(super) struct Cache {
    store: Box<dyn Store>,
    books: Mutex<Books>,
    /// Bytes in the file. It is changed with the books only, and known without them: a child of fork
    /// may not get at them.
    len: AtomicU64,
    arrived: Condvar,
    /// One write-back or sync at a time: two write-backs of one page would race.
    writing: Mutex<()>,
    frames: Frames,
    /// Its threads, and the pager's, are of this process.
    process: u32,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Cache {
    pub fn new(store: Box<dyn Store>, mut policy: Policy, frames: Frames) -> Result<Cache, Errno> {
        let books = Books {
            pages: ByNumber::default(),
            blocks: Blocks::default(),
            waiting: 0,
            leaving: Leaving::default(),
            dirty: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            stores: 0,
            file: policy.open(),
            policy,
            error: None,
            stats: FileStats::default(),
        };
        let (books, writing, process) = (Mutex::new(books), Mutex::new(()), mem::process_id());
        let len = store.len()?.into();
        Ok(Cache { store, books, len, arrived: Condvar::new(), writing, frames, process })
    }

    /// The books, in the process that opened the file.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The books, in a child of fork, too. Whoever was at them when it forked is not there to leave them:
    /// they may be half changed, and stay locked. Threads of the child's own leave them soon.
    ///
    /// *The story:* a child waited for ever for a lock that a thread of its parent's had held.
    fn books_of_any(&self) -> Result<MutexGuard<'_, Books>, Errno> {
        for round in 0..=CHILD_TRIES {
            match self.books.try_lock() {
                Ok(books) => return Ok(books),
                Err(TryLockError::Poisoned(books)) => return Ok(books.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_ours().is_ok() => return Ok(self.books()),
                Err(TryLockError::WouldBlock) if round < CHILD_TRIES => std::thread::sleep(CHILD_PAUSE),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        Err(Errno::CHILD)
    }

    pub fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// The counters; none where the books are not whole.
    pub fn stats(&self) -> FileStats {
        let Ok(books) = self.books_of_any() else { return FileStats::default() };
        FileStats { cached: books.pages.len() as u64, dirty: books.dirty.len() as u64, ..books.stats }
    }

    /// What happens while somebody is at the books.
    #[cfg(test)]
    pub fn while_locked(&self, body: impl FnOnce()) {
        let _books = self.books();
        body();
    }

    /// Settles; something happens after it was looked how many pages are allowed.
    #[cfg(test)]
    pub fn settle_while(&self, happens: impl FnOnce()) {
        let may = self.frames.count();
        happens();
        self.settle_at(&mut self.books(), may);
    }

    /// Frames that take RAM.
    #[cfg(test)]
    pub fn populated(&self) -> usize {
        self.books().blocks.populated()
    }

    /// Reads; `order` has somebody else fetch what is read ahead.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64, order: impl Fn(Run)) -> Result<usize, Errno> {
        let mut books = self.books_of_any()?;
        let end = self.len().min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let (mut at, last) = (offset, (end - 1) / PAGE);
        while at < end {
            let page = at / PAGE;
            let Some(frame) = books.use_page(page) else {
                books = self.bring_in(books, page, last - page + 1, &order)?;
                continue;
            };
            let within = (at % PAGE) as usize;
            let count = (PAGE_SIZE - within).min((end - at) as usize);
            let to = (at - offset) as usize;
            buffer[to..to + count].copy_from_slice(&books.blocks.bytes(frame)[within..within + count]);
            at += count as u64;
        }
        books.stats.pages_wanted += last - offset / PAGE + 1;
        let Books { policy, file, .. } = &mut *books;
        policy.finished(file, end);
        self.settle(&mut books);
        Ok((end - offset) as usize)
    }

    /// Nothing but reading what is here can be done in a child of fork: who would read ahead, give
    /// frames or take them is not there.
    fn is_ours(&self) -> Result<(), Errno> {
        if self.process == mem::process_id() { Ok(()) } else { Err(Errno::CHILD) }
    }

    /// Sees to it that a page is there, the first of `wanted` of this call.
    fn bring_in<'a>(
        &'a self,
        mut books: MutexGuard<'a, Books>,
        page: u64,
        wanted: u64,
        order: &impl Fn(Run),
    ) -> Result<MutexGuard<'a, Books>, Errno> {
        if let Err(errno) = self.is_ours() {
            // Its mark asks for what nobody would read.
            let here = books.pages.get_mut(&page).filter(|entry| entry.frame.is_some());
            here.ok_or(errno)?.marked = false;
            return Ok(books);
        }
        books.waiting += 1;
        let outcome = self.wait_for(books, page, wanted, order);
        match outcome {
            Ok(mut books) => {
                books.waiting -= 1;
                Ok(books)
            }
            Err(errno) => {
                self.books().waiting -= 1;
                Err(errno)
            }
        }
    }

    fn wait_for<'a>(
        &'a self,
        mut books: MutexGuard<'a, Books>,
        page: u64,
        wanted: u64,
        order: &impl Fn(Run),
    ) -> Result<MutexGuard<'a, Books>, Errno> {
        loop {
            let found = books
                .pages
                .get_mut(&page)
                .map(|entry| (entry.frame.is_some(), std::mem::take(&mut entry.marked)));
            let Some((is_there, marked)) = found else {
                books.stats.misses += 1;
                books = self.fetch_missing(books, page, wanted, order)?;
                continue;
            };
            if marked {
                let runs = self.ask(&mut books, page, wanted, true);
                runs.into_iter().for_each(order);
            }
            // What was read ahead just now may have taken its place.
            match books.pages.get(&page) {
                Some(entry) if entry.frame.is_some() => return Ok(books),
                Some(_) => {
                    books = self.arrived.wait(books).unwrap_or_else(PoisonError::into_inner);
                }
                None => debug_assert!(is_there, "what is on its way stays"),
            }
        }
    }

    /// Asks the policy, reads what is wanted at once, and has the rest read.
    fn fetch_missing<'a>(
        &'a self,
        mut books: MutexGuard<'a, Books>,
        page: u64,
        wanted: u64,
        order: &impl Fn(Run),
    ) -> Result<MutexGuard<'a, Books>, Errno> {
        let runs = self.ask(&mut books, page, wanted, false);
        let mut own = None;
        for run in runs {
            if (run.first..run.first + run.count).contains(&page) {
                own = Some(run);
            } else {
                order(run);
            }
        }
        let own = match own {
            Some(run) => run,
            None => {
                self.claim(&mut books, page);
                Run { first: page, count: 1 }
            }
        };
        drop(books);
        let fetched = self.fetch(own);
        if fetched.is_err() && own.count > 1 {
            // A window may fail for a page that nobody wants.
            let mut books = self.books();
            if books.pages.contains_key(&page) {
                // Somebody else tries.
                return Ok(books);
            }
            self.claim(&mut books, page);
            drop(books);
            self.fetch(Run { first: page, count: 1 })?;
        } else {
            fetched?;
        }
        Ok(self.books())
    }

    /// What a policy wants read: runs of missing pages, which have their places now.
    fn ask(&self, books: &mut Books, page: u64, wanted: u64, marked: bool) -> Vec<Run> {
        let file_pages = self.len().div_ceil(PAGE);
        let ask = Ask::new(page, wanted, file_pages);
        let mut reads = Reads::new(file_pages);
        let Books { policy, file, pages, .. } = books;
        if marked {
            policy.marked(file, &ask, &View(pages), &mut reads);
        } else {
            policy.missing(file, &ask, &View(pages), &mut reads);
        }
        if let Some(passed) = reads.passed() {
            // A mark that orders nothing makes no room: where it made room for two windows, loops in
            // twelve worlds read from 3% less to 1% more.
            let ordered: u64 = reads.extents().iter().map(|extent| extent.pages).sum();
            books.leaving.passed(passed, file_pages, PASSED_WINDOWS * ordered);
        }
        self.place(books, &reads, (!marked).then_some(page))
    }

    /// Gives what is missing of an answer its places, as far as there is room.
    fn place(&self, books: &mut Books, reads: &Reads, must: Option<u64>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for extent in reads.extents() {
            for page in extent.start..extent.end() {
                if books.pages.contains_key(&page) {
                    continue;
                }
                // Whoever waits is served, room or not.
                if !self.has_room(books) && must != Some(page) {
                    return runs;
                }
                let marked = extent.marker == Some(page);
                books.pages.insert(page, Entry { marked, arriving: true, ..Entry::default() });
                match runs.last_mut() {
                    Some(run) if run.first + run.count == page && run.count < REQUEST_MAX => {
                        run.count += 1;
                    }
                    _ => runs.push(Run { first: page, count: 1 }),
                }
            }
        }
        runs
    }

    /// A place for a page that somebody waits for, room or not.
    fn claim(&self, books: &mut Books, page: u64) {
        self.has_room(books);
        let before = books.pages.insert(page, Entry { arriving: true, ..Entry::default() });
        assert!(before.is_none(), "a page has one place");
    }

    /// Is there room for one more page? What is free of the budget goes before what is in use.
    fn has_room(&self, books: &mut Books) -> bool {
        books.pages.len() < self.frames.count() || self.frames.grow() || self.evict_one(books)
    }

    /// Gives back what is asked back, and makes up for pages that came without room.
    ///
    /// *The story:* the latter was left to the next read of the same file.
    fn settle(&self, books: &mut Books) {
        let may = self.frames.count();
        if books.pages.len() <= may && self.frames.owed() == 0 || self.is_ours().is_err() {
            return;
        }
        self.settle_at(books, may);
    }

    /// The same; `may` pages were allowed a moment ago.
    fn settle_at(&self, books: &mut Books, may: usize) {
        while books.pages.len() > may && self.evict_one(books) {}
        let pages = books.pages.len();
        books.blocks.drop_down_to(pages.max(may));
        // What was asked back since is not dropped yet, and what could not be dropped is not free.
        self.frames.settle(pages.max(books.blocks.populated()));
    }

    /// The same, while others may wait for what was brought in for them without room: to take it away
    /// before they have it would go round for ever.
    fn settle_for_others(&self) {
        let mut books = self.books();
        if books.waiting == 0 || books.pages.len() <= self.frames.count() + self.frames.owed() as usize {
            self.settle(&mut books);
        }
    }

    /// The file's threads were told that frames are asked back.
    pub fn give_back(&self) {
        self.settle_for_others();
        if self.frames.owed() > 0 {
            // What is dirty cannot leave. A failure is told by the next sync.
            let _ = self.write_back();
            self.settle_for_others();
        }
    }

    /// Frees the place of the oldest clean page that was not used again; its frame is the caller's.
    fn evict_one(&self, books: &mut Books) -> bool {
        let Books { pages, leaving, .. } = books;
        let gone = leaving.next(|page| {
            let entry = pages.get_mut(&page).expect("who is in line is here");
            let is_busy = entry.frame.is_none() || entry.arriving || entry.dirty.is_some();
            match (is_busy, std::mem::take(&mut entry.referenced)) {
                (true, _) => Look::Busy,
                (false, true) => Look::Used,
                (false, false) => Look::Free,
            }
        });
        let Some(page) = gone else { return false };
        let entry = books.pages.remove(&page).expect("who is in line is here");
        // If it has to be written once more, that cannot be done from here.
        books.unsettled.remove(&page);
        books.blocks.give_back(entry.frame.expect("who is not busy has one"));
        if !entry.used {
            books.stats.unused += 1;
            let Books { policy, file, .. } = books;
            policy.unused(file, page);
        }
        true
    }

    /// Reads pages that nobody has asked for yet.
    pub fn fetch_ahead(&self, run: Run) -> Result<(), Errno> {
        let outcome = self.fetch(run);
        self.settle_for_others();
        outcome
    }

    /// Reads pages that have their places. When it fails their places are free again.
    pub fn fetch(&self, run: Run) -> Result<(), Errno> {
        let outcome = ARRIVING.with_borrow_mut(|arriving| {
            let count = run.count as usize;
            if arriving.len() < count {
                arriving.resize(count, Page([0; PAGE_SIZE]));
            }
            let outcome = self.store.read(run.first, &mut arriving[..count]);
            let mut books = self.books();
            let outcome = outcome.and_then(|()| books.take_in(run, &arriving[..count]));
            if outcome.is_err() {
                self.forget(&mut books, run);
            }
            outcome
        });
        self.arrived.notify_all();
        outcome
    }

    /// Nobody fetches these pages any more.
    fn forget(&self, books: &mut Books, run: Run) {
        for page in run.first..run.first + run.count {
            let Some(entry) = books.pages.get_mut(&page) else { continue };
            entry.arriving = false;
            if entry.frame.is_none() {
                books.pages.remove(&page);
            }
        }
    }

    pub fn advise(&self, advice: Advice, order: impl Fn(Run)) {
        if self.is_ours().is_err() {
            return;
        }
        let mut books = self.books();
        let mut reads = Reads::new(self.len().div_ceil(PAGE));
        let Books { policy, file, pages, .. } = &mut *books;
        policy.advise(file, advice, &View(pages), &mut reads);
        let runs = self.place(&mut books, &reads, None);
        drop(books);
        runs.into_iter().for_each(order);
    }

    pub fn write_at(&self, bytes: &[u8], offset: u64, order: impl Fn(Run)) -> Result<(), Errno> {
        self.is_ours()?;
        if !self.store.is_writable() {
            return Err(Errno::BADF);
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if end > i64::MAX as u64 {
            return Err(Errno::FBIG);
        }
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let within = (at % PAGE) as usize;
            let count = (PAGE_SIZE - within).min((end - at) as usize);
            let from = (at - offset) as usize;
            self.write_page(page, within, &bytes[from..from + count], &order)?;
            at += count as u64;
        }
        if self.books().dirty.len() >= DIRTY_MAX {
            // It is told by the next sync.
            let _ = self.write_back();
        }
        self.settle(&mut self.books());
        Ok(())
    }

    /// Sees to it that a page that is about to be stored to has its place, and its bytes where any are
    /// kept. Without room for it what is dirty is written back: the lock is let go of for that, and the
    /// page looked at anew.
    fn place_for_store(
        &self,
        page: u64,
        stored: Range<usize>,
        order: &impl Fn(Run),
    ) -> Result<MutexGuard<'_, Books>, Errno> {
        let mut books = self.books();
        let mut made_room = false;
        loop {
            let inside = self.len().saturating_sub(page * PAGE).min(PAGE) as usize;
            // Only what is kept of the page has to be known.
            if stored.start > 0 || stored.end < inside {
                return self.bring_in(books, page, 1, order);
            }
            if books.pages.contains_key(&page) {
                return Ok(books);
            }
            if self.has_room(&mut books) || made_room {
                books.pages.insert(page, Entry::default());
                return Ok(books);
            }
            drop(books);
            self.write_back()?;
            made_room = true;
            books = self.books();
        }
    }

    fn write_page(&self, page: u64, within: usize, bytes: &[u8], order: &impl Fn(Run)) -> Result<(), Errno> {
        let mut books = self.place_for_store(page, within..within + bytes.len(), order)?;
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
        self.len.fetch_max(page * PAGE + (within + bytes.len()) as u64, Release);
        drop(books);
        self.arrived.notify_all();
        Ok(())
    }

    /// Writes what is dirty, in file order, neighbours together.
    pub fn write_back(&self) -> Result<(), Errno> {
        let _alone = self.alone();
        self.write_dirty()
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_dirty(&self) -> Result<(), Errno> {
        let mut next = 0;
        let mut outcome = Ok(());
        while let Some((first, pages, stamps, len)) = self.next_dirty(next) {
            next = first + pages.len() as u64;
            if self.write_run(first, &pages, &stamps, len).is_ok() {
                continue;
            }
            // One page that cannot be written keeps no other from the device.
            for ((page, copy), stamp) in (first..).zip(pages.chunks(1)).zip(stamps.chunks(1)) {
                if let Err(errno) = self.write_run(page, copy, stamp, len) {
                    self.books().error.get_or_insert(errno);
                    outcome = Err(errno);
                }
            }
        }
        outcome
    }

    /// Writes copies of neighbours, which are as new as their stamps say.
    fn write_run(&self, first: u64, pages: &[Page], stamps: &[u64], len: u64) -> Result<(), Errno> {
        self.store.write(first, pages, len)?;
        let mut books = self.books();
        books.stats.writes += 1;
        books.stats.pages_written += pages.len() as u64;
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
    fn next_dirty(&self, from: u64) -> Option<(u64, Vec<Page>, Vec<u64>, u64)> {
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
    pub fn sync(&self) -> Result<(), Errno> {
        self.is_ours()?;
        let _alone = self.alone();
        let written = self.write_dirty();
        let unsettled = std::mem::take(&mut self.books().unsettled);
        // What could be written is settled, whatever became of the rest.
        let synced = self.store.sync();
        let mut books = self.books();
        if synced.is_err() {
            self.soil(&mut books, unsettled);
        }
        match books.error.take() {
            Some(errno) => Err(errno),
            None => written.and(synced),
        }
    }

    /// After a sync that failed: a kernel takes such pages for written from then on, and its next
    /// sync goes well. So they are written once more; of those that are not here any more there is
    /// nothing to write.
    fn soil(&self, books: &mut Books, pages: BTreeSet<u64>) {
        for page in pages {
            books.stores += 1;
            let stores = books.stores;
            if let Some(entry) = books.pages.get_mut(&page).filter(|entry| entry.frame.is_some()) {
                entry.dirty.get_or_insert(stores);
                books.dirty.insert(page);
            }
        }
    }

    /// The file is closed: nothing of it is here any more, and the frames can go back.
    pub fn empty(&self) {
        let mut books = self.books();
        books.pages.clear();
        books.blocks = Blocks::default();
        books.leaving = Leaving::default();
        let Books { policy, file, .. } = &mut *books;
        policy.close(file);
    }
}
