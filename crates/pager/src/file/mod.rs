//! A file with a cache of its own, in the pager's budget: reads that are read ahead, writes that are
//! gathered and written back, what lies behind the file's end in order.
//!
//! What [`File::sync`] has returned for is on stable storage. What could not be written or settled
//! stays here, and is tried again; the failure is told once, to whoever syncs next. (A kernel tells
//! it once, too, but has given the data up by then.) For that a page that was written stays until it
//! is settled: where room is short, room is made by syncs. What others write to the file meanwhile is
//! not seen (but what this pager's other [`File`]s write is), as a cached page is what was read; that
//! it has grown or was cut is seen by a read that comes to its end, and by whoever writes back or
//! syncs.

mod blocks;
mod buffers;
mod cache;
mod inodes;
mod leaving;
mod numbers;
mod room;
mod store;
#[cfg(test)]
mod tests;
mod threads;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use overspill_mm::fileread::Advice;
use overspill_mm::fileread::policy::{Config, NAMES, Policy};
use overspill_mm::fileread::{Limits, adaptive};
use overspill_sys::Errno;

use crate::Error;
use crate::link::Link;
use crate::process::Process;
use cache::{Cache, Caller, FIRST, Opening, Run};
use inodes::Inode;
pub(crate) use inodes::{Claim, Inodes};
pub(crate) use room::Room;
use room::{Frames, Share};
pub(crate) use store::{Page, RealFile, Store, open_regular};
use threads::Threads;

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

    /// The file is made where it is missing; it takes [`FileOptions::write`]. File systems like ext4, xfs and
    /// btrfs settle its name as it is synced; elsewhere its directory has to be synced, too.
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
    pub fn readahead(mut self, name: &str) -> Self {
        let known = NAMES.into_iter().find(|&known| known == name);
        self.readahead = known.unwrap_or_else(|| panic!("no rules are called {name}"));
        self
    }
}

/// What was counted for a cached file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FileStats {
    /// Pages that reads wanted.
    pub pages_wanted: u64,
    /// Times that a page was wanted, by a read or a store, that was not cached.
    pub misses: u64,
    /// Pages read from the file.
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

/// A file whose pages are cached within a pager's budget. It may be used by many threads.
///
/// All that a pager opens of one file, by whatever name, share one cache: what one writes the others
/// read at once. Each reads ahead by its own rules, and is told of a failure to write by its own next
/// sync, whoever wrote. Closing one that may write, or the last, writes back what is dirty, of all of
/// them.
///
/// What was written is in this process alone until it is written back, which happens when it is synced or
/// closed, where much is dirty, and after 30 s: a process that is killed before, or ends without dropping
/// it (`exit`, a `static`, an abort), loses that. On stable storage it is when it was synced. Dropping
/// tells nobody what could not be written (but for a line on standard error): [`File::close`] does.
///
/// As with any descriptor, closing it lets go of the record locks that the process has on the file
/// (fcntl(2), F_SETLK); opening does not. F_OFD_SETLK is kept in any case.
///
/// Stores and reads of several threads are whole within a page of 4096 bytes, not beyond. Each file that is
/// open takes 2 to 8 threads and two descriptors, however often it is opened, and each further opening one
/// descriptor.
///
/// It is of the process that opened it. A child of fork can read what was cached then, if no thread
/// was at the cache in the very moment of the fork; whatever else it wants of it fails.
#[derive(Debug)]
pub struct File {
    cache: Arc<Cache>,
    /// Taken when it is closed.
    threads: Option<Arc<Threads>>,
    inode: Arc<Inode>,
    opening: Opening,
    is_writable: bool,
    process: Process,
    /// As it was opened, where another one's serves: whoever closes it lets go of the process's locks.
    kept: Option<std::fs::File>,
}

impl File {
    pub(crate) fn open(
        path: &Path,
        options: &FileOptions,
        link: &Arc<Link>,
        room: &Arc<Room>,
        inodes: &Inodes,
    ) -> Result<File, Error> {
        // In a child of fork a thread of the parent's may have the lock of an inode for ever.
        let asked = Arc::clone(room);
        let budget = link.wire().ask(move |_| asked.ram())?;
        let failed = |errno| Error::File(path.to_owned(), errno);
        let store = RealFile::open(path, options.write, options.create).map_err(failed)?;
        let inode = inodes.of(store.key().map_err(failed)?);
        let mut users = inode.users();
        if users.is_mapped() {
            return Err(Error::InUse(path.to_owned(), inodes::IS_MAPPED));
        }
        let adaptive = adaptive::Config { frames: u64::from(budget), ..adaptive::Config::default() };
        let config = Config { limits: Limits::default(), adaptive };
        let policy = Policy::by_name(options.readahead, config).expect("the options know the names");
        let mut kept = None;
        let (threads, opening) = match &users.threads {
            Some(threads) => {
                let cache = threads.cache();
                let writable = if options.write && cache.wants_writer() {
                    Some(Box::new(store.past_the_page_cache(true)) as Box<dyn Store>)
                } else {
                    kept = Some(store.into_plain());
                    None
                };
                (Arc::clone(threads), cache.open_again(writable, policy))
            }
            None => {
                let (jobs, orders) = channel();
                let share = Share::new(jobs.clone(), 0);
                let frames = Frames::of_pager(share, Arc::clone(link), Arc::clone(room));
                let store = Box::new(store.past_the_page_cache(options.write));
                let cache = Cache::new(store, options.write, policy, frames).map_err(failed)?;
                let threads = Arc::new(Threads::start(cache, jobs, orders)?);
                users.threads = Some(Arc::clone(&threads));
                (threads, FIRST)
            }
        };
        drop(users);
        let mut file = File::of(threads, inode, opening, options.write);
        file.kept = kept;
        Ok(file)
    }

    fn of(threads: Arc<Threads>, inode: Arc<Inode>, opening: Opening, is_writable: bool) -> File {
        let cache = Arc::clone(threads.cache());
        let (threads, process) = (Some(threads), Process::this());
        File { cache, threads, inode, opening, is_writable, process, kept: None }
    }

    /// Reads bytes from `offset` on; fewer than wanted only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Io`]: the device's reason.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.cache.read_at(buffer, offset, self).map_err(Error::Io)
    }

    /// Writes bytes from `offset` on, into the cache; the file grows if need be. See [`File`] for when it is
    /// in the file.
    ///
    /// # Errors
    /// [`Error::Io`]: EFBIG, where the file system takes no file so long, or the process may write none
    /// (RLIMIT_FSIZE); a page that is written in part could not be read, or there is no room, since what
    /// is dirty cannot be written or settled, which is not tried again within a second; what came
    /// before in this call is stored. EBADF: it was
    /// opened for reading only.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        if !self.is_writable {
            return Err(Error::Io(Errno::BADF));
        }
        self.cache.write_at(bytes, offset, self).map_err(Error::Io)
    }

    /// Writes what is dirty, whoever wrote it, and returns when it is on stable storage.
    ///
    /// # Errors
    /// [`Error::Io`]: the first failure since this one's last sync, told to each that is open. What could
    /// not be written or settled stays dirty, and the next sync means it, too.
    pub fn sync(&self) -> Result<(), Error> {
        self.cache.sync(self.opening).map_err(Error::Io)
    }

    /// Closes it: syncs, if it may write, and tells what came of that. Whoever drops it is told nothing.
    ///
    /// # Errors
    /// Those of [`File::sync`]. It is closed all the same: what could not be written is tried once more as
    /// the last who has the file open closes it, and is lost if that fails, too.
    pub fn close(self) -> Result<(), Error> {
        if self.is_writable { self.sync() } else { Ok(()) }
    }

    /// Says how the file will be used. What will be needed is read ahead, no more than a quarter of the
    /// budget, and nothing that is in use leaves for it. Returns how many bytes of that are not here and
    /// not read: whoever needs them reads them.
    ///
    /// # Errors
    /// None today.
    pub fn advise(&self, advice: Advice) -> Result<u64, Error> {
        let left = self.cache.advise(advice, self);
        Ok(left.saturating_mul(overspill_sys::PAGE_SIZE as u64))
    }

    /// The file ends there from now on, whether it is synced or not: what lies behind that is gone, stored or
    /// not, and what it has less of is zeroes. On stable storage that is when it was synced.
    ///
    /// # Errors
    /// [`Error::Io`]: EFBIG, where the file system takes no file so long, or the process may write none
    /// (RLIMIT_FSIZE); the device's reason. EBADF: it was opened for reading only.
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        if !self.is_writable {
            return Err(Error::Io(Errno::BADF));
        }
        self.cache.set_len(len).map_err(Error::Io)
    }

    /// Bytes in the file as it was seen last, those included that were not written back yet.
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
}

impl Caller for File {
    fn opening(&self) -> Opening {
        self.opening
    }

    fn order(&self, run: Run) {
        self.threads.as_ref().expect("taken when the file is closed").order(run);
    }
}

impl Drop for File {
    /// Writes back what is dirty; whoever wants to know whether that went well calls [`File::sync`]. Who
    /// could only read leaves that to the others, and the last of them all to the end of its threads.
    ///
    /// *The story:* whoever closed what he had read waited for the syncs of those who wrote.
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        if self.is_writable {
            let _ = self.cache.write_back();
        }
        let mut users = self.inode.users();
        self.cache.close(self.opening);
        self.threads = None;
        // Whoever opens it now waits until the last one is gone.
        if users.threads.as_ref().is_some_and(|threads| Arc::strong_count(threads) == 1) {
            users.threads = None;
        }
    }
}
