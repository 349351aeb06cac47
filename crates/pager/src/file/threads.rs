//! A file's cache with its threads, which read ahead for it, and make room.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use overspill_sys::Errno;
use overspill_sys::thread::block_program_signals;

use super::cache::{Cache, Run};
use crate::Error;
use crate::link::say;
use crate::process::Process;

/// What a thread does.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// What the threads of a file do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Pages are read ahead.
    Fetch(Run),
    /// Frames are given back.
    GiveBack,
    /// What is dirty is written back, and settled, for others to have room.
    MakeRoom,
    /// Something is dirty: it is written back in due time.
    Wait,
}

/// They run as long as anybody has the file open.
#[derive(Debug)]
pub(super) struct Threads {
    cache: Arc<Cache>,
    jobs: Sender<Job>,
    readers: Vec<JoinHandle<()>>,
    /// What is queued need not be read any more.
    closing: Arc<AtomicBool>,
    process: Process,
}

impl Threads {
    pub fn start(cache: Cache, jobs: Sender<Job>, orders: Receiver<Job>) -> Result<Threads, Error> {
        Threads::start_by(cache, jobs, orders, |named, body| named.spawn(body))
    }

    /// The same, each started by `spawn`. One that cannot be has the file closed, with those that there
    /// are.
    ///
    /// *The story:* the first went on when the second could not be started: it waited for ever, and
    /// kept the cache with its frames.
    pub fn start_by(
        cache: Cache,
        jobs: Sender<Job>,
        orders: Receiver<Job>,
        mut spawn: impl FnMut(Builder, Body) -> std::io::Result<JoinHandle<()>>,
    ) -> Result<Threads, Error> {
        let (cache, closing) = (Arc::new(cache), Arc::new(AtomicBool::new(false)));
        let orders = Arc::new(Mutex::new(orders));
        let mut threads = Threads { cache, jobs, readers: Vec::new(), closing, process: Process::this() };
        for _ in 0..threads.cache.readers() {
            let (cache, closing) = (Arc::clone(&threads.cache), Arc::clone(&threads.closing));
            let orders = Arc::clone(&orders);
            let body = Box::new(move || serve(&cache, &orders, &closing));
            let named = Builder::new().name("overspill file".into());
            threads
                .readers
                .push(spawn(named, body).map_err(|_| Error::Start("start a thread", Errno::AGAIN))?);
        }
        Ok(threads)
    }

    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Has them read pages.
    pub fn order(&self, run: Run) {
        self.jobs.send(Job::Fetch(run)).expect("they go on while the file is open");
    }
}

fn serve(cache: &Cache, orders: &Mutex<Receiver<Job>>, closing: &AtomicBool) {
    // A handler that read this file here could wait for itself.
    let _ = block_program_signals();
    loop {
        let order = next(cache, &orders.lock().unwrap_or_else(PoisonError::into_inner));
        if closing.load(Ordering::Relaxed) {
            return;
        }
        match order {
            // Who waits for a page that could not be read finds it missing, and tries for himself.
            Ok(Job::Fetch(run)) => drop(cache.fetch_ahead(run)),
            Ok(Job::GiveBack) => cache.give_back(),
            Ok(Job::MakeRoom) => cache.make_ordered_room(),
            Ok(Job::Wait) => {}
            Err(RecvTimeoutError::Timeout) => cache.write_aged(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What is to be done next; a timeout: what is dirty is due. Orders that come all the time put that off by
/// no more than one of them.
fn next(cache: &Cache, orders: &Receiver<Job>) -> Result<Job, RecvTimeoutError> {
    match cache.until_due() {
        None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
        Some(left) => orders.recv_timeout(left),
    }
}

impl Drop for Threads {
    /// All have closed the file. What was to be read ahead is not read any more; what is dirty is written
    /// back.
    ///
    /// *The story:* what a thread's sync had found lost, after the last one who closed had written all of
    /// it, was thrown away.
    /// *The other story:* what could not be written at all was thrown away without a word, where nobody
    /// synced or nobody tried once more.
    fn drop(&mut self) {
        if !self.process.is_this() {
            // A child of fork has no threads to wait for, and nobody to give anything back to.
            std::mem::forget(std::mem::take(&mut self.readers));
            return;
        }
        self.closing.store(true, Ordering::Relaxed);
        // Each of them sleeps, until it hears that it is to look.
        for _ in &self.readers {
            let _ = self.jobs.send(Job::GiveBack);
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        // One of them may have met a device that could not settle what was written.
        if let Err(errno) = self.cache.write_back() {
            let pages = self.cache.stats().dirty;
            say(&format!("{pages} pages that were written to a file are lost: {errno}"));
        }
        self.cache.empty();
    }
}
