//! The part of a pager's budget that cached files have.
//!
//! A file takes what it uses, as long as it is free: what regions do not hold, nor keep free. When
//! they have to make room for their own pages the files give back what they have beyond half of the
//! budget, a little first, then more; the half itself they take from regions, too. So neither can
//! push the other out, and neither leaves idle what the other could use. A file that has less than
//! another, and needs more, has it of that one. No file is granted many more frames than it has used,
//! or than it has pages; what a file was granted and does not use goes back as soon as regions make
//! room, and before what holds something.
//!
//! The pager's thread only asks. Frames are given back by whoever uses the file next, or by the
//! threads that read ahead for it: a file that nobody uses hears of it, too.
//!
//! *The story:* files had half of the budget at most, whoever needed the rest. A loop over 284M in
//! 256M read 164 MB a lap of which 28 do not fit. And frames that a file was granted above that, for
//! a page that somebody waited for, were made up for by its own reads only.
//! *The other story:* the first page of a file took 256 frames of the budget, and the last 256 were never
//! asked back. 64 files of a page each left a budget of 64 MiB 60 frames for regions, and 100 files of 1 MiB
//! kept 100 MiB when the budget became 64.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use overspill_engine::Engine;
use overspill_sys::clock;

use super::cache::REQUEST_MAX;
use super::threads::Job;
use crate::link::Link;

/// Frames that are taken, or asked back, at a time, at most.
const STEP: u32 = 256;
/// And those that a file is granted first. From then on it is granted as many as it has.
const FIRST_STEP: u32 = 32;
/// A file that was granted frames in the last of so long may be about to use them.
const IDLE_NS: u64 = 100_000_000;
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
    /// When it was looked last for frames that hold nothing.
    idle_ns: u64,
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
    /// Pages that it had when somebody used it last, and when it was granted frames last.
    pages: AtomicU32,
    granted_ns: AtomicU64,
    /// It was refused more: so many times it does not ask again.
    patience: AtomicU32,
    jobs: Sender<Job>,
}

impl Share {
    pub fn new(jobs: Sender<Job>, granted: u32) -> Arc<Share> {
        let [owed, pages, patience] = [0; 3].map(AtomicU32::new);
        let (granted, granted_ns) = (granted.into(), AtomicU64::new(0));
        Arc::new(Share { granted, owed, pages, granted_ns, patience, jobs })
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

    /// Of what it might give up, no more than leaves it so many.
    fn could_give(&self, kept: u32) -> u32 {
        if self.owed() > 0 { 0 } else { self.has().saturating_sub(kept) }
    }

    /// Frames that hold nothing.
    fn idle(&self) -> u32 {
        self.could_give(self.pages.load(Relaxed))
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

    /// The whole budget is another. Files give back at once what they have beyond half of it: what holds
    /// nothing first.
    pub fn allow(&self, engine: &mut Engine, ram: u32) {
        self.ram.store(ram, Relaxed);
        self.share_out(engine);
        let half = ram / 2;
        self.shares().give_up(self.taken().saturating_sub(half), half);
    }

    fn share_out(&self, engine: &mut Engine) {
        engine.set_budget(self.ram().saturating_sub(self.taken()).max(1));
    }

    /// The pager's regions part with up to `wanted` frames of what nobody needs, or of the files' half.
    fn part_with(&self, engine: &mut Engine, wanted: u32) -> u32 {
        let half = (self.ram() / 2).saturating_sub(self.taken());
        let left = self.ram().saturating_sub(self.taken());
        let frames = wanted.min(half.max(engine.mm().frames_left_over())).min(left);
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

    /// The pager's thread looks whether regions make room. That is the files' to do with frames that hold
    /// nothing, and with all as long as they have more than half of the budget.
    pub fn look(&self, engine: &Engine) {
        let (taken, half) = (self.taken(), self.ram() / 2);
        if taken == 0 {
            return;
        }
        let stats = engine.mm().stats();
        let scanned = stats.pgscan_kswapd + stats.pgscan_direct;
        let mut shares = self.shares();
        if std::mem::replace(&mut shares.scanned, scanned) != scanned {
            let now_ns = clock::monotonic_ns();
            shares.ask_idle(now_ns);
            if taken > half {
                shares.ask_back(taken - half, half, now_ns);
            }
        }
    }

    /// A file needs up to `wanted` frames more than it can have: the one that has most gives up a part of
    /// what it has more, if that is much.
    fn ask_rival(&self, share: &Arc<Share>, wanted: u32) {
        let shares = self.shares();
        let Some(most) = shares.all.iter().max_by_key(|other| other.could_give(0)) else { return };
        let (has, more) = (share.has(), most.could_give(0).saturating_sub(share.has()));
        if more > (3 * STEP).min(has + FIRST_STEP) {
            most.owe(wanted.min(more / 2));
        }
    }
}

impl Shares {
    fn owed(&self) -> u32 {
        self.all.iter().map(|share| share.owed()).sum()
    }

    /// A file that has no more than this keeps it: its part of the files' half, and a step at most.
    fn kept(&self, half: u32) -> u32 {
        let files = self.all.iter().filter(|share| share.has() > 0).count();
        STEP.min(half / u32::try_from(files.max(1)).unwrap_or(u32::MAX))
    }

    /// All files together give up `beyond` frames, of more than `half` of a budget, which is less now.
    fn give_up(&self, beyond: u32, half: u32) {
        let mut left = beyond.saturating_sub(self.owed());
        let kept = self.kept(half);
        let idle: Vec<u32> = self.all.iter().map(|share| share.idle()).collect();
        let in_turn: [&dyn Fn(usize) -> u32; 2] =
            [&|number| idle[number], &|number| self.all[number].has().saturating_sub(kept)];
        for could_give in in_turn {
            for (number, share) in self.all.iter().enumerate() {
                let frames = could_give(number).min(left);
                if frames > 0 {
                    share.owe(frames);
                    left -= frames;
                }
            }
        }
    }

    /// Asks back what was granted and holds nothing, now and then.
    fn ask_idle(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.idle_ns) < SOON_NS {
            return;
        }
        self.idle_ns = now_ns;
        for share in &self.all {
            let is_new = now_ns.saturating_sub(share.granted_ns.load(Relaxed)) < IDLE_NS;
            let frames = if is_new { 0 } else { share.idle() };
            if frames > 0 {
                share.owe(frames);
            }
        }
    }

    /// Has the files that have most give back some of the `beyond` frames that are not the files', whose
    /// `half` is less than they have.
    fn ask_back(&mut self, beyond: u32, half: u32, now_ns: u64) {
        let beyond = beyond.saturating_sub(self.owed());
        let is_soon = now_ns.saturating_sub(self.asked_ns) < SOON_NS;
        let step = if is_soon { self.asked.saturating_mul(2) } else { STEP };
        let (kept, mut left) = (self.kept(half), step.min(beyond));
        let mut givers: Vec<&Arc<Share>> =
            self.all.iter().filter(|share| share.could_give(kept) > 0).collect();
        if left == 0 || givers.is_empty() {
            return;
        }
        givers.sort_by_key(|share| std::cmp::Reverse(share.could_give(kept)));
        for share in givers {
            let frames = share.could_give(kept).min(left);
            if frames == 0 {
                break;
            }
            share.owe(frames);
            left -= frames;
        }
        (self.asked_ns, self.asked) = (now_ns, step);
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

    /// Takes more for a file of `pages`, if there is more to be had: as many as it has, and no more than
    /// it may need.
    pub fn grow(&self, pages: u64) -> bool {
        let Some((link, room)) = &self.pager else { return false };
        let patience = self.share.patience.load(Relaxed);
        if patience > 0 || self.owed() > 0 {
            self.share.patience.store(patience.saturating_sub(1), Relaxed);
            return false;
        }
        let (asked, wanted) = (Arc::clone(room), wanted(self.share.has(), pages));
        let frames = link.wire().ask(move |engine| asked.part_with(engine, wanted)).unwrap_or(0);
        if frames == 0 {
            self.share.patience.store(STEP, Relaxed);
            room.ask_rival(&self.share, wanted);
            return false;
        }
        self.share.granted_ns.store(clock::monotonic_ns(), Relaxed);
        self.share.granted.fetch_add(frames, Relaxed);
        true
    }

    /// Its cache has so many pages: what it was granted beyond them holds nothing.
    pub fn note_pages(&self, pages: usize) {
        self.share.pages.store(u32::try_from(pages).unwrap_or(u32::MAX), Relaxed);
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

/// Frames that a file is granted that has some, and needs more: of `pages`, or of one that grows.
fn wanted(has: u32, pages: u64) -> u32 {
    let most = has.clamp(FIRST_STEP, STEP);
    match u32::try_from(pages.saturating_sub(has.into())).unwrap_or(u32::MAX) {
        // One more page than it is long is about to be written.
        0 => has.clamp(1, STEP),
        left => left.min(most),
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
        const HALF: u32 = 4 * STEP;
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
            books.ask_back(6000, HALF, now);
            assert_eq!(orders.try_iter().count(), 1);
            assert_eq!(pay(&shares[1]), (asked, 0));
        }
        books.ask_back(6000, HALF, 3 * SOON_NS);
        assert_eq!(shares[1].owed(), STEP, "long after it begins anew");
        books.ask_back(6000, HALF, 3 * SOON_NS);
        assert_eq!(shares[0].owed(), 2 * STEP, "one that owes is not asked again");
        books.ask_back(6000, HALF, 3 * SOON_NS);
        assert_eq!((shares[0].owed(), shares[1].owed()), (2 * STEP, STEP));
        shares.iter().for_each(|share| assert_eq!(pay(share).1, 0));
        (0..40).for_each(|n| {
            books.ask_back(100_000, HALF, (4 + n) * SOON_NS);
            shares.iter().for_each(|share| assert_eq!(pay(share).1, 0));
        });
        assert_eq!([shares[0].has(), shares[1].has()], [STEP, STEP]);
        books.ask_back(0, HALF, 90 * SOON_NS);
        assert_eq!(shares[0].owed() + shares[1].owed(), 0);
    }

    /// *The story:* see the head of this file.
    #[test]
    fn many_small_files_give_back_all_but_their_part_of_half() {
        let (jobs, _orders) = channel();
        let with = |count: usize, granted, pages| {
            let share = || {
                let frames = Frames::fixed(Share::new(jobs.clone(), granted));
                frames.note_pages(pages);
                Arc::clone(&frames.share)
            };
            Shares { all: (0..count).map(|_| share()).collect(), ..Shares::default() }
        };
        let have = |books: &Shares| books.all.iter().map(|share| share.has()).sum::<u32>();
        // The budget becomes 16,384 frames, of which half are the files'.
        let books = with(100, 256, 256);
        books.give_up(25_600 - 8192, 8192);
        assert!((8100..=8192).contains(&have(&books)), "{}", have(&books));
        let least = books.all.iter().map(|share| share.has()).min();
        assert_eq!(least, Some(81), "each keeps its part");
        books.give_up(25_600 - 8192, 8192);
        assert!(have(&books) >= 8100, "what is owed is not asked for again");
        // What holds nothing goes first: those that use what they have lose nothing.
        let mut books = with(50, 256, 256);
        books.all.extend(with(50, 256, 10).all);
        books.give_up(5000, 20_600);
        assert!(books.all[..50].iter().all(|share| share.owed() == 0));
        assert_eq!(have(&books), 20_600);
        // And so it does where regions make room, whatever files have; nothing of what holds something.
        let mut books = with(4, 256, 100);
        books.all[3].granted_ns.store(9 * IDLE_NS, Relaxed);
        books.ask_idle(9 * IDLE_NS + 1);
        assert_eq!(books.all.iter().map(|share| share.owed()).collect::<Vec<_>>(), [156, 156, 156, 0]);
        // Beyond half many give what one alone could not.
        let mut books = with(64, 200, 200);
        books.ask_back(6400, 6400, SOON_NS);
        assert_eq!(books.owed(), STEP);
    }

    #[test]
    fn a_file_is_granted_as_much_as_it_has_and_no_more_than_its_pages() {
        let first = [0, 1, 2, 40, 1_000_000].map(|pages| wanted(0, pages));
        assert_eq!(first, [1, 1, 2, FIRST_STEP, FIRST_STEP]);
        assert_eq!([100, 1000].map(|has| wanted(has, 1_000_000)), [100, STEP]);
        assert_eq!(wanted(100, 103), 3);
        assert_eq!([1, 2, 1000].map(|pages| wanted(pages, pages.into())), [1, 2, STEP], "it grows");
    }
}
