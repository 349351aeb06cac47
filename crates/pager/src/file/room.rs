//! The part of a pager's budget that cached files have.
//!
//! A file takes what it uses, as long as it is free: what regions do not hold, nor keep free. When
//! they have to make room for their own pages the files give back what they have beyond half of the
//! budget, a little first, then more; the half itself they take from regions, too. So neither can
//! push the other out, and neither leaves idle what the other could use. A file that has less than
//! another, and needs more, has it of that one.
//!
//! The pager's thread only asks. Frames are given back by whoever uses the file next, or by the
//! threads that read ahead for it: a file that nobody uses hears of it, too.
//!
//! *The story:* files had half of the budget at most, whoever needed the rest. A loop over 284M in
//! 256M read 164 MB a lap of which 28 do not fit. And frames that a file was granted above that, for
//! a page that somebody waited for, were made up for by its own reads only.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use overspill_engine::Engine;
use overspill_sys::clock;

use super::cache::REQUEST_MAX;
use super::threads::Job;
use crate::link::Link;

/// Frames that are taken, or asked back, at a time.
const STEP: u32 = 256;
/// The part of the budget that one hint may have read.
const HINT_PART: u32 = 4;
/// Threads that read ahead for one file. Each has a request of 1 MiB under way: an NVMe drive takes
/// eight of them at a time before it is as fast as it gets.
const READERS_MIN: u64 = 2;
const READERS_MAX: u64 = 8;
/// And the part of the budget that all their requests are, at most. So are those of the threads that
/// write back, which are one where two threads do not fit.
const READERS_PART: u32 = 16;
/// An order to give frames back that comes so soon after the last one is twice as large.
const SOON_NS: u64 = 50_000_000;

/// What all cached files of a pager have together.
#[derive(Debug)]
pub(crate) struct Room {
    shares: Mutex<Shares>,
    /// Frames of the whole budget, and those of them that regions go without. They change on the pager's
    /// thread only, which makes the difference the engine's budget.
    ram: AtomicU32,
    taken: AtomicU32,
}

#[derive(Debug, Default)]
struct Shares {
    all: Vec<Arc<Share>>,
    /// What reclaim had looked at when the pager's thread looked last.
    scanned: u64,
    /// When frames were asked back last, and how many.
    asked_ns: u64,
    asked: u32,
}

/// What one file has.
#[derive(Debug)]
pub(super) struct Share {
    granted: AtomicU32,
    /// Frames of those that it is to give back.
    owed: AtomicU32,
    /// It was refused more: so many times it does not ask again.
    patience: AtomicU32,
    jobs: Sender<Job>,
}

impl Share {
    pub fn new(jobs: Sender<Job>, granted: u32) -> Arc<Share> {
        let [owed, patience] = [0, 0].map(AtomicU32::new);
        Arc::new(Share { granted: granted.into(), owed, patience, jobs })
    }

    fn owed(&self) -> u32 {
        self.owed.load(Relaxed)
    }

    /// Frames that it may have.
    fn has(&self) -> u32 {
        self.granted.load(Relaxed).saturating_sub(self.owed())
    }

    #[cfg(test)]
    pub fn granted(&self) -> usize {
        self.granted.load(Relaxed) as usize
    }

    /// Frames are asked back: its threads see to it, or whoever uses the file next.
    pub fn owe(&self, frames: u32) {
        self.owed.fetch_add(frames, Relaxed);
        // A file that is being closed gives back all it has.
        let _ = self.jobs.send(Job::GiveBack);
    }

    /// Of what it might give up, no more than leaves it a step.
    fn could_give(&self) -> u32 {
        if self.owed() > 0 { 0 } else { self.has().saturating_sub(STEP) }
    }
}

impl Room {
    pub fn new(ram: u32) -> Room {
        Room { shares: Mutex::default(), ram: ram.into(), taken: AtomicU32::new(0) }
    }

    /// Frames of the whole budget.
    pub fn ram(&self) -> u32 {
        self.ram.load(Relaxed)
    }

    /// The whole budget is another. Files give back at once what they have beyond half of it.
    pub fn allow(&self, engine: &mut Engine, ram: u32) {
        self.ram.store(ram, Relaxed);
        self.share_out(engine);
        let (mut beyond, kept) = (self.taken().saturating_sub(ram / 2), STEP.min(ram / 4));
        for share in &self.shares().all {
            let frames = share.has().saturating_sub(kept).min(beyond);
            if frames > 0 {
                share.owe(frames);
                beyond -= frames;
            }
        }
    }

    fn share_out(&self, engine: &mut Engine) {
        engine.set_budget(self.ram().saturating_sub(self.taken()).max(1));
    }

    /// The pager's regions part with up to a step of what nobody needs, or of the files' half.
    fn part_with(&self, engine: &mut Engine) -> u32 {
        let half = (self.ram() / 2).saturating_sub(self.taken());
        let left = self.ram().saturating_sub(self.taken());
        let frames = STEP.min(half.max(engine.mm().frames_left_over())).min(left);
        if frames > 0 {
            self.taken.fetch_add(frames, Relaxed);
            self.share_out(engine);
        }
        frames
    }

    /// Frames have become free: whoever was refused may ask again.
    fn take_back(&self, engine: &mut Engine, frames: u32) {
        self.taken.fetch_sub(frames, Relaxed);
        self.share_out(engine);
        self.shares().all.iter().for_each(|share| share.patience.store(0, Relaxed));
    }

    /// Frames that files have.
    pub fn taken(&self) -> u32 {
        self.taken.load(Relaxed)
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pager's thread looks whether regions make room, which is the files' to do as long as they
    /// have more than half of the budget.
    pub fn look(&self, engine: &Engine) {
        let beyond = self.taken().saturating_sub(self.ram() / 2);
        if beyond == 0 {
            return;
        }
        let stats = engine.mm().stats();
        let scanned = stats.pgscan_kswapd + stats.pgscan_direct;
        let mut shares = self.shares();
        if std::mem::replace(&mut shares.scanned, scanned) != scanned {
            shares.ask_back(beyond, clock::monotonic_ns());
        }
    }

    /// A file needs more than it can have: the one that has most, if that is more, gives up a step.
    fn ask_rival(&self, share: &Arc<Share>) {
        let shares = self.shares();
        let Some(most) = shares.all.iter().max_by_key(|other| other.could_give()) else { return };
        if most.could_give() > share.has() + 2 * STEP {
            most.owe(STEP);
        }
    }
}

impl Shares {
    /// Has the file that has most give back some of the `beyond` frames that are not the files'.
    fn ask_back(&mut self, beyond: u32, now_ns: u64) {
        let owed: u32 = self.all.iter().map(|share| share.owed()).sum();
        let beyond = beyond.saturating_sub(owed);
        let Some(most) = self.all.iter().max_by_key(|share| share.could_give()) else { return };
        let is_soon = now_ns.saturating_sub(self.asked_ns) < SOON_NS;
        let step = if is_soon { self.asked.saturating_mul(2) } else { STEP };
        let frames = step.min(beyond).min(most.could_give());
        if frames > 0 {
            most.owe(frames);
            (self.asked_ns, self.asked) = (now_ns, step);
        }
    }
}

/// The frames of one file: from a pager, or, in tests, from nowhere.
#[derive(Debug)]
pub(super) struct Frames {
    share: Arc<Share>,
    pager: Option<(Arc<Link>, Arc<Room>)>,
    /// What it has where there is no pager.
    fixed: u32,
}

impl Frames {
    pub fn of_pager(share: Arc<Share>, link: Arc<Link>, room: Arc<Room>) -> Frames {
        room.shares().all.push(Arc::clone(&share));
        Frames { share, pager: Some((link, room)), fixed: 0 }
    }

    #[cfg(test)]
    pub fn fixed(share: Arc<Share>) -> Frames {
        let fixed = share.has();
        Frames { share, pager: None, fixed }
    }

    /// All that the pager has, regions' and files'.
    fn budget(&self) -> u32 {
        self.pager.as_ref().map_or(self.fixed, |(_, room)| room.ram())
    }

    /// Has the file's threads do something.
    pub fn tell(&self, job: Job) {
        // A file that is being closed has no use for it.
        let _ = self.share.jobs.send(job);
    }

    /// Pages that may be here, or could: all of the budget, until more was refused.
    pub fn reach(&self) -> usize {
        let is_refused = self.share.patience.load(Relaxed) > 0 || self.owed() > 0;
        if is_refused { self.count() } else { self.count().max(self.budget() as usize) }
    }

    /// Pages that one hint may have read.
    pub fn hint_max(&self) -> u64 {
        u64::from(self.budget() / HINT_PART)
    }

    /// Threads that read ahead: what they read into is not counted, and stays a small part of the budget.
    pub fn readers(&self) -> usize {
        self.requests_that_fit().clamp(READERS_MIN, READERS_MAX) as usize
    }

    /// Threads that write back at a time: the same of them.
    ///
    /// *The story:* in small budgets what two wrote from and two read into was more than that part.
    pub fn writers(&self) -> usize {
        self.requests_that_fit().clamp(1, READERS_MAX) as usize
    }

    fn requests_that_fit(&self) -> u64 {
        u64::from(self.budget() / READERS_PART) / REQUEST_MAX
    }

    /// Pages that may be here.
    pub fn count(&self) -> usize {
        self.share.has() as usize
    }

    /// Frames that are to be given back.
    pub fn owed(&self) -> u32 {
        self.share.owed()
    }

    /// Takes more, if there is more to be had.
    pub fn grow(&self) -> bool {
        let Some((link, room)) = &self.pager else { return false };
        let patience = self.share.patience.load(Relaxed);
        if patience > 0 || self.owed() > 0 {
            self.share.patience.store(patience.saturating_sub(1), Relaxed);
            return false;
        }
        let asked = Arc::clone(room);
        let frames = link.wire().ask(move |engine| asked.part_with(engine)).unwrap_or(0);
        if frames == 0 {
            self.share.patience.store(STEP, Relaxed);
            room.ask_rival(&self.share);
            return false;
        }
        self.share.granted.fetch_add(frames, Relaxed);
        true
    }

    /// The file has `pages`, and frames that take RAM: gives back what it owes beyond them.
    pub fn settle(&self, pages: usize) {
        let granted = self.share.granted.load(Relaxed);
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.give_back(self.owed().min(granted.saturating_sub(pages)));
    }

    fn give_back(&self, frames: u32) {
        if frames == 0 {
            return;
        }
        self.share.granted.fetch_sub(frames, Relaxed);
        let paid = |owed: u32| Some(owed.saturating_sub(frames));
        let _ = self.share.owed.fetch_update(Relaxed, Relaxed, paid);
        let Some((link, room)) = &self.pager else { return };
        // A pager that has stopped needs nothing back.
        let room = Arc::clone(room);
        let _ = link.wire().tell(move |engine| room.take_back(engine, frames));
    }
}

impl Drop for Frames {
    /// The file is closed.
    fn drop(&mut self) {
        if let Some((_, room)) = &self.pager {
            room.shares().all.retain(|share| !Arc::ptr_eq(share, &self.share));
            self.give_back(self.share.granted.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_file_that_has_most_gives_back_more_each_time_and_keeps_a_step() {
        let (jobs, orders) = channel();
        let shares: Vec<Arc<Share>> =
            [1000, 9000].map(|granted| Share::new(jobs.clone(), granted)).into_iter().collect();
        let mut books = Shares { all: shares.clone(), ..Shares::default() };
        let pay = |share: &Arc<Share>| {
            let owed = share.owed();
            Frames::fixed(Arc::clone(share)).settle(share.has() as usize);
            (owed, share.owed())
        };
        for (now, asked) in [(SOON_NS, STEP), (SOON_NS + 5, 2 * STEP), (SOON_NS + 9, 4 * STEP)] {
            books.ask_back(6000, now);
            assert_eq!(orders.try_iter().count(), 1);
            assert_eq!(pay(&shares[1]), (asked, 0));
        }
        books.ask_back(6000, 3 * SOON_NS);
        assert_eq!(shares[1].owed(), STEP, "long after it begins anew");
        books.ask_back(6000, 3 * SOON_NS);
        assert_eq!(shares[0].owed(), 2 * STEP, "one that owes is not asked again");
        books.ask_back(6000, 3 * SOON_NS);
        assert_eq!((shares[0].owed(), shares[1].owed()), (2 * STEP, STEP));
        shares.iter().for_each(|share| assert_eq!(pay(share).1, 0));
        (0..40).for_each(|n| {
            books.ask_back(100_000, (4 + n) * SOON_NS);
            shares.iter().for_each(|share| assert_eq!(pay(share).1, 0));
        });
        assert_eq!([shares[0].has(), shares[1].has()], [STEP, STEP]);
        books.ask_back(0, 90 * SOON_NS);
        assert_eq!(shares[0].owed() + shares[1].owed(), 0);
    }
}
