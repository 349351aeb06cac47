//! The pages of one file: which are there, which are on their way, which are newer than the file.
//!
//! One lock guards the books; it is not held while the device works. A page that is on its way has
//! its place already, so that nobody reads it twice. Which page leaves is [`Leaving`]'s to say; dirty
//! ones are written before, with their neighbours.

mod length;
mod openings;
mod outside;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use overspill_mm::fileread::policy::Policy;
use overspill_mm::fileread::{Advice, Ask, FileRead, PageCache, Reads};
use overspill_sys::{Errno, PAGE_SIZE, clock};

use super::FileStats;
use super::blocks::{Blocks, Frame};
use super::buffers::Buffers;
use super::leaving::{Leaving, Look};
use super::numbers::ByNumber;
use super::room::Frames;
use super::store::{Page, Store};
use crate::process::Process;
use openings::Reader;
pub(super) use openings::{Caller, FIRST, Opening};
use writing::{AGE_NS, Refused};

const PAGE: u64 = PAGE_SIZE as u64;
/// Pages of one request, at most.
pub(super) const REQUEST_MAX: u64 = 256;
/// Behind a reader so many of its windows are taken for passed, of those pages that are there.
const PASSED_WINDOWS: u64 = 2;
/// So many times a child of fork tries to get at the books, and so long it sleeps between.
const CHILD_TRIES: u32 = 10;
const CHILD_PAUSE: Duration = Duration::from_millis(1);
/// Where the file has more than a read gave, it is read so many times more.
const SHORT_READS: u32 = 8;

/// Pages that are on their way, and that somebody has to fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub first: u64,
    pub count: u64,
}

/// What is read lies here before it is copied to its frames, which others copy from meanwhile.
static ARRIVING: Buffers = Buffers::new();

/// A page's place. Without a frame it is on its way.
#[derive(Default)]
struct Entry {
    frame: Option<Frame>,
    /// Somebody fetches it, or is to. It may have a frame meanwhile, from whoever wrote all of it, and
    /// keeps its place even so.
    arriving: bool,
    /// The file was cut while it was read: what comes is of no worth.
    is_stale: bool,
    marked: bool,
    /// Used once, and since it was looked at last.
    used: bool,
    referenced: bool,
    /// Newer than the file; the number says which store was the last.
    dirty: Option<u64>,
}

impl Entry {
    /// It is on its way, in one direction or the other.
    fn is_moving(&self) -> bool {
        self.frame.is_none() || self.arriving || self.dirty.is_some()
    }
}

struct Books {
    pages: ByNumber<Entry>,
    blocks: Blocks,
    /// Calls that wait for a page: what comes for them stays until they have it.
    waiting: usize,
    leaving: Leaving,
    dirty: BTreeSet<u64>,
    /// Written since the last sync that went well: not known to be on stable storage. They stay until
    /// they are, since a sync that fails has them written once more.
    unsettled: BTreeSet<u64>,
    /// Somebody is to write back, for others to have room.
    is_room_ordered: bool,
    /// When that was ordered last.
    ordered_ns: u64,
    /// The last write-back, if some of it failed.
    refused: Option<Refused>,
    /// The file's own length when it was looked at last, and what was written since.
    in_file: u64,
    /// Pages that others have appended to, and of which some are not read anew yet.
    grown: Range<u64>,
    /// No page above it has ever had a place.
    highest: u64,
    stores: u64,
    openings: BTreeMap<Opening, Reader>,
    /// So many there were.
    opened: Opening,
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

    /// Pages of a range that are not here, nor on their way.
    fn missing_in(&self, range: Range<u64>) -> u64 {
        let count = range.end - range.start;
        let here = if count > self.pages.len() as u64 {
            self.pages.keys().filter(|page| range.contains(page)).count()
        } else {
            range.filter(|page| self.pages.contains_key(page)).count()
        };
        count - here as u64
    }

    /// The first page of a read, where a policy wants to see all of them.
    fn watched_from(&self, page: u64, opening: Opening) -> u64 {
        if self.openings[&opening].policy.watches() { page } else { u64::MAX }
    }

    /// Pages were read that are on their way.
    fn take_in(&mut self, run: Run, arriving: &[Page]) -> Result<(), Errno> {
        self.stats.reads += 1;
        self.stats.pages_read += run.count;
        for (page, bytes) in (run.first..).zip(arriving) {
            let entry = self.pages.get_mut(&page).expect("what is on its way keeps its place");
            assert!(std::mem::take(&mut entry.arriving), "a page is fetched once");
            // Somebody may have written the whole page meanwhile.
            let is_stale = std::mem::take(&mut entry.is_stale);
            if entry.frame.is_some() {
                self.leaving.freed(page);
                continue;
            }
            if is_stale {
                self.pages.remove(&page);
                continue;
            }
            let frame = self.blocks.take()?;
            self.blocks.bytes_mut(frame).copy_from_slice(&bytes.0);
            entry.frame = Some(frame);
            self.leaving.arrived(page);
        }
        Ok(())
    }
}

/// For whom pages get their places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Must {
    /// Nobody waits.
    Nothing,
    /// Somebody waits for this page, and is served, room or not.
    Serve(u64),
    /// A hint: so many pages at most, and none of what is in use makes room for them.
    Spare(u64),
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
    /// As it was opened first, and whether it may be written by.
    store: Box<dyn Store>,
    writes: bool,
    /// Of the first that may write, if that is another. What was written by one is synced by the same:
    /// a failure is told to it, and some devices keep for each what they have of it.
    writable: OnceLock<Box<dyn Store>>,
    books: Mutex<Books>,
    /// Bytes in the file. It is changed with the books only, and known without them: a child of fork
    /// may not get at them.
    len: AtomicU64,
    arrived: Condvar,
    /// One write-back or sync at a time: two write-backs of one page would race.
    writing: Mutex<()>,
    /// One of the file's threads was to make room, and somebody was at it: he has it told once more.
    was_put_off: AtomicBool,
    /// When it is looked whether something is dirty for too long; 0: nothing is. It is set with the books.
    due_ns: AtomicU64,
    /// That is so long after the first store.
    age_ns: AtomicU64,
    /// So long the file may be, as far as was asked.
    may_be: AtomicU64,
    /// What somebody else does when room was made for a store.
    #[cfg(test)]
    pub amid_stores: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    frames: Frames,
    /// Its threads, and the pager's, are of this process.
    process: Process,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Cache {
    /// `writes`: by this store it may be written.
    pub fn new(store: Box<dyn Store>, writes: bool, policy: Policy, frames: Frames) -> Result<Cache, Errno> {
        let len = store.len()?;
        let books = Books {
            pages: ByNumber::default(),
            blocks: Blocks::default(),
            waiting: 0,
            leaving: Leaving::default(),
            dirty: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            is_room_ordered: false,
            ordered_ns: 0,
            refused: None,
            in_file: len,
            grown: 0..0,
            highest: 0,
            stores: 0,
            openings: BTreeMap::new(),
            opened: FIRST,
            stats: FileStats::default(),
        };
        let (books, writing, process) = (Mutex::new(books), Mutex::new(()), Process::this());
        let cache = Cache {
            store,
            writes,
            writable: OnceLock::new(),
            books,
            len: len.into(),
            arrived: Condvar::new(),
            writing,
            was_put_off: AtomicBool::new(false),
            due_ns: AtomicU64::new(0),
            age_ns: AtomicU64::new(AGE_NS),
            may_be: AtomicU64::new(0),
            #[cfg(test)]
            amid_stores: Mutex::default(),
            frames,
            process,
        };
        cache.open(policy);
        Ok(cache)
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

    /// Threads that are to read ahead for it.
    pub fn readers(&self) -> usize {
        self.frames.readers()
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

    /// Reads.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64, caller: &impl Caller) -> Result<usize, Errno> {
        let mut books = self.books_of_any()?;
        let wanted = offset.saturating_add(buffer.len() as u64);
        if wanted > self.len() {
            self.look(&mut books);
        }
        let mut end = self.len().min(wanted);
        if offset >= end {
            // It may have been cut: what it was granted for the rest is regions' as they need it.
            self.settle(&mut books);
            return Ok(0);
        }
        let (mut at, first) = (offset, offset / PAGE);
        let mut watched = books.watched_from(first, caller.opening());
        while at < end {
            let (page, last) = (at / PAGE, (end - 1) / PAGE);
            if page == watched && self.is_ours().is_ok() {
                watched = self.watch(&mut books, page, last - page + 1, caller);
            }
            let Some(frame) = books.use_page(page) else {
                books = self.bring_in(books, page, last - page + 1, caller)?;
                // It may have been cut meanwhile.
                end = end.min(self.len());
                continue;
            };
            let within = (at % PAGE) as usize;
            let count = (PAGE_SIZE - within).min((end - at) as usize);
            let to = (at - offset) as usize;
            buffer[to..to + count].copy_from_slice(&books.blocks.bytes(frame)[within..within + count]);
            at += count as u64;
        }
        books.stats.pages_wanted += at.div_ceil(PAGE).saturating_sub(first);
        let Reader { policy, file, .. } = books.reader(caller.opening()).0;
        policy.finished(file, at);
        self.settle(&mut books);
        Ok((at - offset) as usize)
    }

    /// Nothing but reading what is here can be done in a child of fork: who would read ahead, give
    /// frames or take them is not there.
    fn is_ours(&self) -> Result<(), Errno> {
        if self.process.is_this() { Ok(()) } else { Err(Errno::CHILD) }
    }

    /// Sees to it that a page is there, the first of `wanted` of this call.
    fn bring_in<'a>(
        &'a self,
        mut books: MutexGuard<'a, Books>,
        page: u64,
        wanted: u64,
        caller: &impl Caller,
    ) -> Result<MutexGuard<'a, Books>, Errno> {
        if let Err(errno) = self.is_ours() {
            // Its mark asks for what nobody would read.
            let here = books.pages.get_mut(&page).filter(|entry| entry.frame.is_some());
            here.ok_or(errno)?.marked = false;
            return Ok(books);
        }
        books.waiting += 1;
        let outcome = self.wait_for(books, page, wanted, caller);
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
        caller: &impl Caller,
    ) -> Result<MutexGuard<'a, Books>, Errno> {
        loop {
            let found = books
                .pages
                .get_mut(&page)
                .map(|entry| (entry.frame.is_some(), std::mem::take(&mut entry.marked)));
            let Some((is_there, marked)) = found else {
                books.stats.misses += 1;
                books = self.fetch_missing(books, page, wanted, caller)?;
                continue;
            };
            if marked {
                let runs = self.ask(&mut books, page, wanted, true, caller);
                runs.into_iter().for_each(|run| caller.order(run));
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
        caller: &impl Caller,
    ) -> Result<MutexGuard<'a, Books>, Errno> {
        let runs = self.ask(&mut books, page, wanted, false, caller);
        let mut own = None;
        for run in runs {
            if (run.first..run.first + run.count).contains(&page) {
                own = Some(run);
            } else {
                caller.order(run);
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

    fn request(&self, page: u64, wanted: u64) -> Ask {
        Ask { now: clock::monotonic_ns(), ..Ask::new(page, wanted, self.len().div_ceil(PAGE)) }
    }

    /// Shows a policy a read that it wants to see; gives the page at which it wants to see the next.
    fn watch(&self, books: &mut Books, page: u64, wanted: u64, caller: &impl Caller) -> u64 {
        let ask = self.request(page, wanted);
        let mut reads = Reads::new(ask.file_pages);
        let (Reader { policy, file, .. }, pages) = books.reader(caller.opening());
        let next = policy.watch(file, &ask, &View(pages), &mut reads);
        self.place(books, &reads, Must::Serve(page)).into_iter().for_each(|run| caller.order(run));
        next
    }

    /// What a policy wants read: runs of missing pages, which have their places now.
    fn ask(&self, books: &mut Books, page: u64, wanted: u64, marked: bool, caller: &impl Caller) -> Vec<Run> {
        let ask = self.request(page, wanted);
        let mut reads = Reads::new(ask.file_pages);
        let (Reader { policy, file, .. }, pages) = books.reader(caller.opening());
        if marked {
            policy.marked(file, &ask, &View(pages), &mut reads);
        } else {
            policy.missing(file, &ask, &View(pages), &mut reads);
        }
        if let Some(passed) = reads.passed() {
            // A mark that orders nothing makes no room: where it made room for two windows, loops in
            // twelve worlds read from 3% less to 1% more.
            let ordered: u64 = reads.extents().iter().map(|extent| extent.pages).sum();
            books.leaving.passed(passed, ask.file_pages, PASSED_WINDOWS * ordered);
        }
        self.place(books, &reads, if marked { Must::Nothing } else { Must::Serve(page) })
    }

    /// Gives what is missing of an answer its places, as far as there is room.
    fn place(&self, books: &mut Books, reads: &Reads, must: Must) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut placed = 0;
        for extent in reads.extents() {
            for page in extent.start..extent.end() {
                if books.pages.contains_key(&page) {
                    continue;
                }
                let has_room = match must {
                    Must::Spare(most) => placed < most && self.has_spare(books),
                    _ => self.has_room_for_reads(books),
                };
                // Whoever waits is served, room or not.
                if !has_room && must != Must::Serve(page) {
                    return runs;
                }
                placed += 1;
                let marked = extent.marker == Some(page);
                books.place(page, Entry { marked, arriving: true, ..Entry::default() });
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
        self.has_room_for_reads(books);
        let before = books.place(page, Entry { arriving: true, ..Entry::default() });
        assert!(before.is_none(), "a page has one place");
    }

    /// Is there room for one more page? What is free of the budget goes before what is in use.
    fn has_room(&self, books: &mut Books) -> bool {
        books.pages.len() < self.frames.count() || self.grow() || self.evict_one(books, false)
    }

    fn grow(&self) -> bool {
        self.frames.grow(self.len().div_ceil(PAGE))
    }

    /// The same; where there is none for what is newer than the file, or some page leaves and not a
    /// written one because those are many, somebody is told to write back.
    ///
    /// *The story:* only those who wrote did so, and not before 4096 pages were dirty. Whoever read
    /// beside less of them had no room, and a request for every page, for good.
    /// *The other story:* it was told where nothing could leave. Pages written once kept three quarters
    /// of a cache for good, and a loop over half of it missed all of its pages on each lap.
    fn has_room_for_reads(&self, books: &mut Books) -> bool {
        if books.pages.len() < self.frames.count() || self.grow() {
            return true;
        }
        let has_room = self.evict_one(books, false);
        if !has_room || self.holds_too_much(books) {
            self.order_room(books);
        }
        has_room
    }

    /// Is there room that no page in use has to give up?
    fn has_spare(&self, books: &mut Books) -> bool {
        books.pages.len() < self.frames.count() || self.grow() || self.evict_one(books, true)
    }

    /// Gives back what is asked back, and makes up for pages that came without room.
    ///
    /// *The story:* the latter was left to the next read of the same file.
    fn settle(&self, books: &mut Books) {
        let may = self.frames.count();
        self.frames.note_pages(books.pages.len());
        if books.pages.len() <= may && self.frames.owed() == 0 || self.is_ours().is_err() {
            return;
        }
        self.settle_at(books, may);
    }

    /// The same; `may` pages were allowed a moment ago.
    fn settle_at(&self, books: &mut Books, may: usize) {
        while books.pages.len() > may && self.evict_one(books, false) {}
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
            self.make_room_or_put_off();
            self.settle_for_others();
        }
    }

    /// Frees the place of the oldest clean page that was not used again; its frame is the caller's.
    /// `spares`: those used again lose nothing, not even their turn.
    fn evict_one(&self, books: &mut Books, spares: bool) -> bool {
        let Books { pages, leaving, unsettled, .. } = books;
        let gone = leaving.next(|page| {
            let entry = pages.get_mut(&page).expect("who is in line is here");
            if entry.is_moving() || unsettled.contains(&page) {
                Look::Busy
            } else if spares && entry.referenced {
                Look::Spared
            } else if std::mem::take(&mut entry.referenced) {
                Look::Used
            } else {
                Look::Free
            }
        });
        let Some(page) = gone else { return false };
        let entry = books.pages.remove(&page).expect("who is in line is here");
        books.blocks.give_back(entry.frame.expect("who is not busy has one"));
        if !entry.used {
            books.note_unused(page);
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
        let outcome = ARRIVING.with(run.count as usize, |arriving| {
            let read = self.read_run(run, arriving);
            let (mut books, outcome) = match read {
                Ok((books, found)) => (books, Ok(found)),
                Err(errno) => (self.books(), Err(errno)),
            };
            let outcome = outcome.and_then(|found| {
                books.take_in(run, arriving)?;
                found.into_iter().for_each(|found| self.see_length(&mut books, found));
                Ok(())
            });
            if outcome.is_err() {
                self.forget(&mut books, run);
            }
            outcome
        });
        self.arrived.notify_all();
        outcome
    }

    /// Reads; gives the books, and the file's length where there was less of it than is known of.
    ///
    /// *The story:* a file was cut and written anew. What was read in between was zeroes, and they stayed,
    /// since its length was as before when it was asked for.
    /// *The other story:* a file of sysfs has less in it than it says. Zeroes were its content, as if they
    /// had been read.
    fn read_run(
        &self,
        run: Run,
        arriving: &mut [Page],
    ) -> Result<(MutexGuard<'_, Books>, Option<u64>), Errno> {
        let wanted = (run.first + run.count) * PAGE;
        let mut tries = 0..SHORT_READS;
        loop {
            let end = run.first * PAGE + self.store().read(run.first, arriving)?;
            let books = self.books();
            if end >= self.len().min(wanted) {
                return Ok((books, None));
            }
            let found = self.store().len()?;
            if end >= found.min(wanted) {
                return Ok((books, Some(found)));
            }
            tries.next().ok_or(Errno::IO)?;
        }
    }

    /// Nobody fetches these pages any more.
    fn forget(&self, books: &mut Books, run: Run) {
        for page in run.first..run.first + run.count {
            let Some(entry) = books.pages.get_mut(&page) else { continue };
            entry.arriving = false;
            if entry.frame.is_none() {
                books.pages.remove(&page);
            } else {
                books.leaving.freed(page);
            }
        }
    }

    /// Takes advice. Gives how many pages that are wanted soon are not read for it: a hint takes no
    /// more than its part of the budget, and none of what is in use.
    pub fn advise(&self, advice: Advice, caller: &impl Caller) -> u64 {
        let file_pages = self.len().div_ceil(PAGE);
        let wanted = match advice {
            Advice::WillNeed { page, pages } => {
                page.min(file_pages)..page.saturating_add(pages).min(file_pages)
            }
            _ => 0..0,
        };
        if self.is_ours().is_err() {
            return wanted.end - wanted.start;
        }
        let mut books = self.books();
        let missing = books.missing_in(wanted);
        let mut reads = Reads::new(file_pages);
        let (Reader { policy, file, .. }, pages) = books.reader(caller.opening());
        policy.advise(file, advice, &View(pages), &mut reads);
        let runs = self.place(&mut books, &reads, Must::Spare(self.frames.hint_max()));
        drop(books);
        let ordered: u64 = runs.iter().map(|run| run.count).sum();
        runs.into_iter().for_each(|run| caller.order(run));
        missing.saturating_sub(ordered)
    }

    /// All have closed it: nothing of it is here any more, and the frames can go back.
    pub fn empty(&self) {
        let mut books = self.books();
        books.pages.clear();
        books.blocks = Blocks::default();
        books.leaving = Leaving::default();
    }
}
