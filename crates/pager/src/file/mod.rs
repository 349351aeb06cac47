//! A file with a cache of its own, in the pager's budget: reads that are read ahead, writes that are
//! gathered and written back in file order.
//!
//! What [`File::sync`] has returned for is on stable storage. What could not be written or settled
//! stays here, and is tried again; the failure is told once, to whoever syncs next. (A kernel tells
//! it once, too, but has given the data up by then.) For that a page that was written stays until it
//! is settled: where room is short, room is made by syncs. What others write to the file meanwhile is
//! not seen, as a cached page is what was read; that it has grown or was cut is seen by a read that
//! comes to its end, and by whoever writes back or syncs.

mod blocks;
mod cache;
mod leaving;
mod numbers;
mod room;
mod store;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use overspill_mm::fileread::Advice;
use overspill_mm::fileread::policy::{Config, Policy};
use overspill_mm::fileread::{Limits, adaptive};
use overspill_sys::mem;

use crate::Error;
use crate::link::Link;
use cache::{Cache, Run};
pub(crate) use room::Room;
use room::{Frames, Share};
pub(crate) use store::{Page, RealFile, Store};

/// What a reader's thread does.
type Reader = Box<dyn FnOnce() + Send>;

/// How a cached file is opened.
#[derive(Debug, Clone)]
pub struct FileOptions {
    write: bool,
    create: bool,
    readahead: &'static str,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { write: false, create: false, readahead: "adaptive" }
    }
}

impl FileOptions {
    /// For reading only.
    #[must_use]
    pub fn new() -> Self {
        FileOptions::default()
    }

    /// For writing, too.
    #[must_use]
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// The file is made where it is missing.
    #[must_use]
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// The rules of file read-ahead by name, one of
    /// [`FILE_READAHEAD_NAMES`](crate::FILE_READAHEAD_NAMES). Default: adaptive.
    ///
    /// # Panics
    /// When there are none of that name.
    #[must_use]
    pub fn readahead(mut self, name: &'static str) -> Self {
        assert!(Policy::by_name(name, Config::default()).is_some(), "no rules are called {name}");
        self.readahead = name;
        self
    }
}

/// What was counted for a cached file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FileStats {
    /// Pages that reads wanted, and those of them that had to be waited for.
    pub pages_wanted: u64,
    /// Of those, the ones that were not cached.
    pub misses: u64,
    /// Pages read from the file, and in how many requests.
    pub pages_read: u64,
    /// Requests to read.
    pub reads: u64,
    /// Pages read ahead that left before anybody used them.
    pub unused: u64,
    /// Pages written back.
    pub pages_written: u64,
    /// Requests to write.
    pub writes: u64,
    /// Pages in the cache now.
    pub cached: u64,
    /// Pages that are newer than the file.
    pub dirty: u64,
}

/// What the threads of a file do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Job {
    /// Pages are read ahead.
    Fetch(Run),
    /// Frames are given back.
    GiveBack,
    /// What is dirty is written back, and settled, for others to have room.
    MakeRoom,
}

/// A file whose pages are cached within a pager's budget. It may be used by many threads.
///
/// It is of the process that opened it. A child of fork can read what was cached then, if no thread
/// was at the cache in the very moment of the fork; whatever else it wants of it fails.
#[derive(Debug)]
pub struct File {
    cache: Arc<Cache>,
    jobs: Option<Sender<Job>>,
    readers: Vec<JoinHandle<()>>,
    /// What is queued need not be read any more.
    closing: Arc<AtomicBool>,
    process: u32,
}

impl File {
    pub(crate) fn open(
        path: &Path,
        options: &FileOptions,
        link: &Arc<Link>,
        room: &Arc<Room>,
    ) -> Result<File, Error> {
        let failed = |errno| Error::File(path.to_owned(), errno);
        let store = RealFile::open(path, options.write, options.create).map_err(failed)?;
        let budget = link.wire().ask(|engine| engine.budget_at_first())?;
        let adaptive = adaptive::Config { frames: u64::from(budget), ..adaptive::Config::default() };
        let config = Config { limits: Limits::default(), adaptive };
        let policy = Policy::by_name(options.readahead, config).expect("the options know the names");
        let (jobs, orders) = channel();
        let frames =
            Frames::of_pager(Share::new(jobs.clone(), 0), Arc::clone(link), Arc::clone(room), budget);
        let cache = Cache::new(Box::new(store), policy, frames).map_err(failed)?;
        File::with(cache, jobs, orders)
    }

    fn with(cache: Cache, jobs: Sender<Job>, orders: Receiver<Job>) -> Result<File, Error> {
        File::with_readers(cache, jobs, orders, |named, reader| named.spawn(reader))
    }

    /// The same, whose readers are started by `spawn`. One that cannot be has the file closed, with
    /// those that there are.
    ///
    /// *The story:* the first went on when the second could not be started: it waited for ever, and
    /// kept the cache with its frames.
    fn with_readers(
        cache: Cache,
        jobs: Sender<Job>,
        orders: Receiver<Job>,
        mut spawn: impl FnMut(Builder, Reader) -> std::io::Result<JoinHandle<()>>,
    ) -> Result<File, Error> {
        let (cache, closing) = (Arc::new(cache), Arc::new(AtomicBool::new(false)));
        let orders = Arc::new(std::sync::Mutex::new(orders));
        let process = mem::process_id();
        let (jobs, readers) = (Some(jobs), Vec::new());
        let mut file = File { cache, jobs, readers, closing, process };
        for _ in 0..file.cache.readers() {
            let (cache, closing) = (Arc::clone(&file.cache), Arc::clone(&file.closing));
            let orders = Arc::clone(&orders);
            let reader = Box::new(move || serve(&cache, &orders, &closing));
            let named = Builder::new().name("overspill file".into());
            file.readers.push(spawn(named, reader).map_err(|_| Error::Stopped)?);
        }
        Ok(file)
    }

    /// Reads bytes from `offset` on; fewer than wanted only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Io`]: the device's reason.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.cache.read_at(buffer, offset, |run| self.order(run)).map_err(Error::Io)
    }

    /// Writes bytes from `offset` on, into the cache; the file grows if need be.
    ///
    /// # Errors
    /// [`Error::Io`]: a page that is written in part could not be read, or there is no room, since what
    /// is dirty cannot be written or settled, which is not tried again within a second; what came
    /// before in this call is stored. EBADF: it was
    /// opened for reading only.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.cache.write_at(bytes, offset, |run| self.order(run)).map_err(Error::Io)
    }

    /// Writes what is dirty, and returns when it is on stable storage.
    ///
    /// # Errors
    /// [`Error::Io`]: the first failure since the last sync. What could not be written or settled stays
    /// dirty, and the next sync means it, too.
    pub fn sync(&self) -> Result<(), Error> {
        self.cache.sync().map_err(Error::Io)
    }

    /// Says how the file will be used. What will be needed is read ahead, no more than a quarter of the
    /// budget, and nothing that is in use leaves for it. Returns how many bytes of that are not here and
    /// not read: whoever needs them reads them.
    ///
    /// # Errors
    /// None today.
    pub fn advise(&self, advice: Advice) -> Result<u64, Error> {
        let left = self.cache.advise(advice, |run| self.order(run));
        Ok(left.saturating_mul(overspill_sys::PAGE_SIZE as u64))
    }

    /// Bytes in the file, those included that were not written back yet.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.cache.len()
    }

    /// Is there nothing in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters. All are zero in a child of fork that can read nothing of the file.
    #[must_use]
    pub fn stats(&self) -> FileStats {
        self.cache.stats()
    }

    fn order(&self, run: Run) {
        let jobs = self.jobs.as_ref().expect("taken when the file is closed");
        jobs.send(Job::Fetch(run)).expect("the readers go on while the file is open");
    }
}

fn serve(cache: &Cache, orders: &std::sync::Mutex<Receiver<Job>>, closing: &AtomicBool) {
    loop {
        let order = orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        if closing.load(Ordering::Relaxed) {
            return;
        }
        match order {
            // Who waits for a page that could not be read finds it missing, and tries for himself.
            Ok(Job::Fetch(run)) => drop(cache.fetch_ahead(run)),
            Ok(Job::GiveBack) => cache.give_back(),
            Ok(Job::MakeRoom) => cache.make_ordered_room(),
            Err(_) => return,
        }
    }
}

impl Drop for File {
    /// Writes back what is dirty; whoever wants to know whether that went well calls [`File::sync`].
    /// What was to be read ahead is not read any more.
    fn drop(&mut self) {
        if self.process != mem::process_id() {
            // A child of fork has no readers to wait for, and nobody to give anything back to.
            std::mem::forget(std::mem::take(&mut self.readers));
            return;
        }
        self.closing.store(true, Ordering::Relaxed);
        let jobs = self.jobs.take().expect("it is closed once");
        // Each of them sleeps, until it hears that it is to look.
        for _ in &self.readers {
            let _ = jobs.send(Job::GiveBack);
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let _ = self.cache.write_back();
        self.cache.empty();
    }
}
