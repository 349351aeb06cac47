//! Where a program's accesses come from: one workload, dealt out to its threads.
//!
//! A generator has one thread and needs no dealing. A trace mixes the threads: when one thread asks
//! and the next accesses are others', those are kept for them, up to a limit, so that memory does
//! not grow with the trace. At the limit the thread that asked waits until the others have caught
//! up.

use crate::trace::sightings::GoneRecord;
use crate::workload::{Access, RegionSpec, Workload, WorkloadError};
use std::collections::VecDeque;

/// Accesses taken from the workload at a time.
const BATCH: usize = 512;
/// Accesses that may be kept for threads that are not ready for them.
const KEPT_MAX: usize = 1 << 16;

/// What a thread gets when it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Its next access.
    Access(Access),
    /// Nothing yet: too much is kept for the other threads.
    Later,
    /// First the program gives pages back: [`Source::take_gone`].
    Gone,
    /// There is no more.
    End,
}

/// One program's stream.
pub struct Source {
    workload: Box<dyn Workload + Send>,
    /// Accesses not yet dealt, from `at` on.
    batch: Vec<Access>,
    at: usize,
    /// By thread.
    kept: Vec<VecDeque<Access>>,
    kept_total: usize,
    /// By thread: the caller knows of it.
    known: Vec<bool>,
    /// By thread: it was told [`Next::Later`], and nothing was kept for it since.
    starved: Vec<bool>,
    /// Threads that are not starved any more.
    fed: Vec<u16>,
    gone: Vec<GoneRecord>,
    ended: bool,
}

impl Source {
    /// Nothing dealt yet.
    pub fn new(workload: Box<dyn Workload + Send>) -> Source {
        Source {
            workload,
            batch: Vec::with_capacity(BATCH),
            at: 0,
            kept: Vec::new(),
            kept_total: 0,
            known: Vec::new(),
            starved: Vec::new(),
            fed: Vec::new(),
            gone: Vec::new(),
            ended: false,
        }
    }

    /// The workload, for what it declares.
    pub fn workload(&self) -> &dyn Workload {
        &*self.workload
    }

    /// The next access in the stream, whoever's it is.
    #[inline]
    fn draw(&mut self) -> Option<Access> {
        let access = self.batch.get(self.at).copied();
        self.at += usize::from(access.is_some());
        access
    }

    /// Sees to it that there is a next access, unless the stream has ended. True: first pages are given back.
    fn refill(&mut self) -> Result<bool, WorkloadError> {
        if self.ended {
            return Ok(false);
        }
        self.batch.clear();
        self.at = 0;
        self.workload.fill(&mut self.batch, BATCH)?;
        self.ended = self.batch.is_empty();
        self.gone = self.workload.take_gone();
        Ok(!self.gone.is_empty())
    }

    /// The thread of the first access; `None` for an empty stream. To be called before anything else.
    pub fn first_thread(&mut self) -> Result<Option<u16>, WorkloadError> {
        self.refill()?; // What is given back first was never had.
        self.gone.clear();
        let Some(first) = self.batch.first().copied() else { return Ok(None) };
        self.introduce(first.thread);
        Ok(Some(first.thread))
    }

    /// True when `thread` is new; it is not new any more.
    fn introduce(&mut self, thread: u16) -> bool {
        let index = thread as usize;
        if index >= self.known.len() {
            self.known.resize(index + 1, false);
            self.kept.resize_with(index + 1, VecDeque::new);
            self.starved.resize(index + 1, false);
        }
        !std::mem::replace(&mut self.known[index], true)
    }

    /// May all threads that were told [`Next::Later`] ask again?
    pub fn has_room(&self) -> bool {
        self.kept_total <= KEPT_MAX / 2
    }

    /// Threads that may ask again in any case, since the last call: something was kept for them.
    pub fn take_fed(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.fed)
    }

    /// Regions that the workload has come to since the last call.
    pub fn take_regions(&mut self) -> Vec<RegionSpec> {
        self.workload.take_regions()
    }

    /// Pages that the program gave back, since the last call.
    pub fn take_gone(&mut self) -> Vec<GoneRecord> {
        std::mem::take(&mut self.gone)
    }

    /// The next access of `thread`. Threads that turn up for the first time are added to `newcomers`.
    #[inline]
    pub fn next(&mut self, thread: u16, newcomers: &mut Vec<u16>) -> Result<Next, WorkloadError> {
        if self.kept_total > 0
            && let Some(access) = self.kept[thread as usize].pop_front()
        {
            self.kept_total -= 1;
            return Ok(Next::Access(access));
        }
        loop {
            if self.kept_total >= KEPT_MAX {
                self.starved[thread as usize] = true;
                return Ok(Next::Later);
            }
            if self.at == self.batch.len() && self.refill()? {
                return Ok(Next::Gone);
            }
            let Some(access) = self.draw() else { return Ok(Next::End) };
            if access.thread == thread {
                return Ok(Next::Access(access));
            }
            if self.introduce(access.thread) {
                newcomers.push(access.thread);
            }
            self.kept[access.thread as usize].push_back(access);
            self.kept_total += 1;
            if std::mem::take(&mut self.starved[access.thread as usize]) {
                self.fed.push(access.thread);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Listed;

    fn access(thread: u16, vpn: u64) -> Access {
        Access { vpn, think_ns: 0, thread, space: 0, write: false }
    }

    #[test]
    fn each_thread_gets_its_own_in_order() {
        let list = vec![access(0, 1), access(1, 2), access(1, 3), access(0, 4), access(2, 5)];
        let mut source = Source::new(Box::new(Listed::new(list)));
        let mut newcomers = Vec::new();
        assert_eq!(source.first_thread().expect("no error"), Some(0));
        let mut take = |source: &mut Source, thread| source.next(thread, &mut newcomers).expect("no error");
        assert_eq!(take(&mut source, 0), Next::Access(access(0, 1)));
        assert_eq!(take(&mut source, 0), Next::Access(access(0, 4)));
        assert_eq!(take(&mut source, 0), Next::End);
        assert_eq!(take(&mut source, 1), Next::Access(access(1, 2)));
        assert_eq!(take(&mut source, 2), Next::Access(access(2, 5)));
        assert_eq!(take(&mut source, 1), Next::Access(access(1, 3)));
        assert_eq!(take(&mut source, 1), Next::End);
        assert_eq!(newcomers, [1, 2]);
    }

    /// A thread that was told to wait must not wait for others once its own accesses have turned
    /// up: all would wait.
    #[test]
    fn who_has_something_kept_may_ask_whatever_is_kept_for_others() {
        let flood = |thread| (0..KEPT_MAX as u64).map(move |vpn| access(thread, vpn));
        let mut list = vec![access(0, 0), access(1, 0)];
        list.extend(flood(1));
        list.push(access(0, 1));
        list.extend(flood(1));
        let mut source = Source::new(Box::new(Listed::new(list)));
        let mut newcomers = Vec::new();
        source.first_thread().expect("no error");
        assert_eq!(source.next(0, &mut newcomers).expect("no error"), Next::Access(access(0, 0)));
        assert_eq!(source.next(0, &mut newcomers).expect("no error"), Next::Later);
        // Thread 1 takes what was kept for it and goes on; what it passes over is kept for thread 0.
        for _ in 0..KEPT_MAX + 2 {
            source.next(1, &mut newcomers).expect("no error");
        }
        assert_eq!((source.take_fed(), source.take_fed()), (vec![0], vec![]));
        assert_eq!(source.next(0, &mut newcomers).expect("no error"), Next::Access(access(0, 1)));
    }

    #[test]
    fn a_flood_for_another_thread_is_bounded() {
        let mut list = vec![access(0, 0)];
        list.extend((0..2 * KEPT_MAX as u64).map(|vpn| access(1, vpn)));
        list.push(access(0, 1));
        let mut source = Source::new(Box::new(Listed::new(list)));
        let mut newcomers = Vec::new();
        assert_eq!(source.first_thread().expect("no error"), Some(0));
        assert_eq!(source.next(0, &mut newcomers).expect("no error"), Next::Access(access(0, 0)));
        assert_eq!(source.next(0, &mut newcomers).expect("no error"), Next::Later);
        assert_eq!(newcomers, [1]);
        assert!(!source.has_room() && source.take_fed().is_empty());
        for vpn in 0..2 * KEPT_MAX as u64 {
            assert_eq!(source.next(1, &mut newcomers).expect("no error"), Next::Access(access(1, vpn)));
        }
        assert!(source.has_room());
        assert_eq!(source.next(0, &mut newcomers).expect("no error"), Next::Access(access(0, 1)));
        assert_eq!(source.next(1, &mut newcomers).expect("no error"), Next::End);
    }
}
