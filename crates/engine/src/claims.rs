//! What the processes of a run have of the limits that they share: of `--swap-max`, and of each
//! place's size.
//!
//! Each process has a row of words in the shared page, a word for each limit: what it has, and what
//! it asks for. Whoever wants more first adds it to what he asks for, and then looks at what all
//! ask for together. Of two who do that at the same time one at least sees the other, so that they
//! never have more than the limit, whoever is killed at whatever moment. There is no sum that could
//! be wrong: the words of who has ended do not count. Two may refuse each other; both ask again.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use overspill_sys::procfs::{self, SleepReader};
use overspill_sys::{Errno, PAGE_SIZE, file, proc_place};

use crate::orders::ORDERS;
use crate::shared::{Process, Shared};

/// Places of the start, at most: each has a limit of its own.
///
/// *The story:* there were 31 limits for 64 places. Those behind were bounded for each process alone.
pub const PLACES: usize = 64;
/// Limits that there can be: the first is that of `--swap-max`, then those of the places of the
/// start follow, then those of places that were added, by their orders.
pub const LIMITS: usize = 1 + PLACES + ORDERS;
/// What one process has of each limit, in pages. What it has is in the upper half of a word, below
/// its highest bit; what it asks for, which holds that, in the lower half.
pub type Row = [AtomicU64; LIMITS];

/// What a word has room for.
const PAGES_MAX: u32 = u32::MAX >> 1;
/// It may come to have some: others do not keep what they do not use.
const HERE: u64 = 1 << 63;
/// One page that it has, and asks for.
const HAS: u64 = 1 << 32;
const ASKS: u64 = 1;

/// One of the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Which one.
    pub index: u8,
    /// What all may have together, in pages.
    pub pages: u32,
}

impl Limit {
    /// Of so many bytes.
    #[must_use]
    pub fn new(index: u8, bytes: u64) -> Self {
        Limit {
            index,
            pages: u32::try_from(bytes / PAGE_SIZE as u64).map_or(PAGES_MAX, |pages| pages.min(PAGES_MAX)),
        }
    }
}

/// Of a process that has a place in the table.
pub struct Claims {
    rows: &'static [Row],
    processes: &'static [Process],
    used: &'static AtomicU32,
    own: usize,
    /// Places whose processes have ended, though nobody has freed them, with their generations.
    ended: Vec<(usize, u32)>,
}

impl Claims {
    /// Of the process that reports there. None: it has no place among the others.
    #[must_use]
    pub fn of(shared: &'static Shared, process: &Process) -> Option<Claims> {
        let own = shared.processes.iter().position(|other| core::ptr::eq(other, process))?;
        let used = &shared.tree.places_used;
        let (rows, processes) = (&shared.claims, &shared.processes);
        Some(Claims { rows, processes, used, own, ended: Vec::new() })
    }

    fn word(&self, limit: Limit) -> &AtomicU64 {
        &self.rows[self.own][usize::from(limit.index)]
    }

    /// The process may come to have some.
    pub fn appear(&self, limit: Limit) {
        self.word(limit).fetch_or(HERE, SeqCst);
    }

    /// Takes so many pages more of each limit, or none of any.
    pub fn take(&self, limits: &[Limit], pages: u32) -> bool {
        let refused = limits.iter().position(|&limit| !self.take_of(limit, pages));
        self.give(&limits[..refused.unwrap_or(0)], pages);
        refused.is_none()
    }

    fn take_of(&self, limit: Limit, pages: u32) -> bool {
        let (word, pages) = (self.word(limit), u64::from(pages));
        let own = asked(word.fetch_add(pages * ASKS, SeqCst)) + pages;
        let is_had = own + self.of_others(limit, asked) <= u64::from(limit.pages);
        if is_had {
            word.fetch_add(pages * HAS, SeqCst);
        } else {
            word.fetch_sub(pages * ASKS, SeqCst);
        }
        is_had
    }

    /// Others may have so many pages of each.
    pub fn give(&self, limits: &[Limit], pages: u32) {
        for &limit in limits {
            self.word(limit).fetch_sub(u64::from(pages) * (HAS + ASKS), SeqCst);
        }
    }

    /// Pages of a limit that nobody has, or is about to have.
    ///
    /// *The story:* it was what nobody had. While one asked, or was killed then, others took that for
    /// room and were refused.
    #[must_use]
    pub fn left(&self, limit: Limit) -> u32 {
        let all = had(self.word(limit).load(SeqCst)) + self.of_others(limit, asked);
        u32::try_from(u64::from(limit.pages).saturating_sub(all)).expect("it is no more than the limit")
    }

    /// Does anybody else have some, or may come to?
    #[must_use]
    pub fn has_company(&self, limit: Limit) -> bool {
        self.of_others(limit, |word| u64::from(word != 0)) > 0
    }

    /// The sum of what others have in their words.
    fn of_others(&self, limit: Limit, what: impl Fn(u64) -> u64) -> u64 {
        self.others(limit).map(|(_, word)| what(word)).sum()
    }

    /// The words of others that are there, with their places.
    fn others(&self, limit: Limit) -> impl Iterator<Item = (usize, u64)> + '_ {
        let used = (self.used.load(Acquire) as usize).min(self.rows.len());
        let others = (0..used).filter(|&other| other != self.own);
        let words = others.map(move |other| (other, self.rows[other][usize::from(limit.index)].load(SeqCst)));
        words.filter(|&(other, word)| word != 0 && self.counts(other))
    }

    /// Is the place that of a process that goes on, as far as is known?
    fn counts(&self, place: usize) -> bool {
        let process = &self.processes[place];
        let is_gone = process.is_free() || process.is_being_claimed() || process.is_over.load(Acquire) != 0;
        !is_gone && !self.ended.contains(&(place, process.generation.load(Acquire)))
    }

    /// Looks who has ended of those that have some. The launcher frees their places; where that has
    /// gone nobody does.
    pub fn find_ended(&mut self, limit: Limit) {
        // In another namespace processes have other numbers. A /proc that was given does not show those of
        // others.
        let own = self.processes[self.own].pid.load(Acquire);
        if proc_place::is_given() || procfs::process_id_in_proc() != Ok(own) {
            return;
        }
        self.ended
            .retain(|&(place, generation)| self.processes[place].generation.load(Acquire) == generation);
        let others: Vec<usize> = self.others(limit).map(|(place, _)| place).collect();
        for place in others {
            let process = &self.processes[place];
            let generation = process.generation.load(Acquire);
            if has_ended(process.pid.load(Acquire)) {
                self.ended.push((place, generation));
            }
        }
    }

    /// The process has nothing of any limit any more, and wants none.
    pub fn close(&self) {
        clear(&self.rows[self.own]);
    }
}

/// Empties the row of a place that somebody claims.
pub fn clear(row: &Row) {
    row.iter().for_each(|word| word.store(0, SeqCst));
}

fn had(word: u64) -> u64 {
    (word & !HERE) / HAS
}

fn asked(word: u64) -> u64 {
    word % HAS
}

/// A process whose first thread has ended has not, while others go on.
fn has_ended(pid: u32) -> bool {
    let path = |name| CString::new(alloc::format!("/proc/{pid}/{name}")).expect("it has no NUL");
    match SleepReader::open(&path("stat")) {
        Err(errno) => errno == Errno::NOENT,
        Ok(first) => {
            // A link for itself, one for its parent, and one for each thread.
            let is_alone = || file::status_of(&path("task")).is_ok_and(|task| task.links <= 3);
            first.has_ended().unwrap_or(false) && is_alone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use core::sync::atomic::Ordering::Relaxed;

    const LIMIT: Limit = Limit { index: 3, pages: 1000 };
    const WIDE: Limit = Limit { index: 0, pages: 5000 };

    /// Processes that live: their numbers are this one's.
    fn processes(count: usize) -> Vec<Claims> {
        let rows: Vec<Row> = (0..count).map(|_| [const { AtomicU64::new(0) }; LIMITS]).collect();
        let table: Vec<Process> = (0..count).map(|_| Process::new()).collect();
        for process in &table {
            process.pid.store(std::process::id(), Relaxed);
            process.generation.store(2, Relaxed);
        }
        let (rows, processes) = (&*rows.leak(), &*table.leak());
        let used = &*Box::leak(Box::new(AtomicU32::new(count as u32)));
        (0..count).map(|own| Claims { rows, processes, used, own, ended: Vec::new() }).collect()
    }

    fn has(claims: &Claims) -> u64 {
        had(claims.word(LIMIT).load(SeqCst))
    }

    #[test]
    fn all_together_have_no_more_than_the_limit() {
        let run = processes(3);
        assert!(!run[0].has_company(LIMIT));
        run[2].appear(LIMIT);
        assert!(run[0].has_company(LIMIT) && !run[2].has_company(LIMIT));
        assert!(run[0].take(&[LIMIT], 600) && !run[1].take(&[LIMIT], 401) && run[1].take(&[LIMIT], 400));
        assert_eq!((run[2].left(LIMIT), run[2].take(&[LIMIT], 1)), (0, false));
        run[0].give(&[LIMIT], 100);
        assert_eq!((run[2].left(LIMIT), run[2].take(&[LIMIT], 100)), (100, true));
    }

    #[test]
    fn of_two_limits_both_or_none_is_taken() {
        let run = processes(2);
        assert!(run[0].take(&[WIDE, LIMIT], 900) && !run[1].take(&[WIDE, LIMIT], 101));
        assert_eq!((run[1].left(WIDE), run[1].left(LIMIT)), (4100, 100));
    }

    /// Whoever has ended has nothing, whether the launcher has freed its place or it has gone.
    #[test]
    fn the_ended_have_nothing() {
        let mut run = processes(4);
        for claims in &run[..3] {
            assert!(claims.take(&[LIMIT], 300));
        }
        // One that was killed while it asked.
        run[0].word(LIMIT).fetch_add(500 * ASKS, SeqCst);
        assert!(!run[3].take(&[LIMIT], 101));
        let process = |index: usize| &run[index].processes[index];
        process(0).kept.store(2, Relaxed);
        assert!(run[3].take(&[LIMIT], 300));
        process(1).is_over.store(1, Relaxed);
        assert!(run[3].take(&[LIMIT], 300));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        process(2).pid.store(child.id(), Relaxed);
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(!run[3].take(&[LIMIT], 300), "nobody has looked");
        run[3].find_ended(LIMIT);
        assert!(run[3].take(&[LIMIT], 300), "nobody has asked for its status yet");
        child.wait().unwrap();
        assert!(has_ended(child.id()) && !has_ended(std::process::id()));
        assert_eq!((has(&run[3]), run[3].left(LIMIT)), (900, 100));
        run[3].close();
        assert_eq!(run[0].left(LIMIT), 400, "it has not looked, and knows that it lives");
    }

    /// Whenever it is looked, what they have is within the limit; and they do get all of it.
    #[test]
    fn many_at_a_time_never_pass_it() {
        let run = processes(4);
        let is_over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for claims in &run {
                scope.spawn(|| {
                    let mut seed = claims.own as u32 + 1;
                    for _ in 0..20_000 {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let pages = (seed >> 16) % 300;
                        if !claims.take(&[LIMIT], pages) {
                            let all = has(claims) as u32;
                            claims.give(&[LIMIT], all.min(pages));
                        }
                    }
                    is_over.fetch_add(1, Relaxed);
                });
            }
            while is_over.load(Relaxed) < 4 {
                // None gives anything back while its word is read, or the sum is of no moment.
                let words = || run.iter().map(|claims| claims.word(LIMIT).load(SeqCst)).collect::<Vec<_>>();
                let before = words();
                if words() == before {
                    assert!(before.iter().map(|&word| had(word)).sum::<u64>() <= 1000);
                }
            }
        });
        let all: u64 = run.iter().map(has).sum();
        assert!(run[0].take(&[LIMIT], 1000 - all as u32), "nothing is lost");
    }
}
