//! Whose turn it is: of the threads that can run the one that is furthest behind, equals by number.
//!
//! Knows no more of a thread than its number, its time and its program. A thread is in at most one
//! of the sets, with the time that it has while it is there; the one that runs is in none. So a turn
//! costs the logarithm of the threads that can run, whatever others there are.

use crate::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Threads by their time.
type Waiting = BTreeSet<(Nanos, u32)>;

/// Everybody who can run, or could if others caught up.
#[derive(Debug, Default)]
pub struct Turns {
    /// Can run.
    ready: Waiting,
    /// By program: can run when there is room for what they pass over.
    starved: BTreeMap<usize, Waiting>,
    /// Were starved; what was kept for them since they can have at any time.
    fed: Waiting,
    /// Has its turn.
    running: Option<u32>,
}

impl Turns {
    /// How many can run, whoever runs and whoever is or was starved apart.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Who is next, its time, and that of the one after it. Starved threads count where their
    /// program `has_room`.
    pub fn next(&self, has_room: impl Fn(usize) -> bool) -> Option<(u32, Nanos, Nanos)> {
        let starved = self.starved.iter().filter(|(source, _)| has_room(**source)).map(|(_, set)| set);
        let sets = [&self.ready, &self.fed].into_iter().chain(starved);
        let (mut best, mut second_at) = (None, Nanos::MAX);
        for &turn in sets.flat_map(|set| set.iter().take(2)) {
            let later = match best {
                Some(first) if first < turn => Some(turn),
                _ => best.replace(turn),
            };
            second_at = later.map_or(second_at, |(at, _)| second_at.min(at));
        }
        best.map(|(at, lane)| (lane, at, second_at))
    }

    /// A thread's turn begins.
    pub fn begin(&mut self, source: usize, time: Nanos, lane: u32) {
        let turn = (time, lane);
        let was_waiting = self.ready.remove(&turn) || self.fed.remove(&turn) || self.unstarve(source, turn);
        assert!(was_waiting && self.running.is_none(), "one thread at a time, which can run");
        self.running = Some(lane);
    }

    /// It ends; what becomes of the thread is said afterwards.
    pub fn end(&mut self) {
        self.running = None;
    }

    /// A thread can run. Of the one that has its turn this is said when that ends.
    pub fn may_run(&mut self, time: Nanos, lane: u32) {
        if self.running != Some(lane) {
            self.ready.insert((time, lane));
        }
    }

    /// A thread must wait for others of its program.
    pub fn starves(&mut self, source: usize, time: Nanos, lane: u32) {
        self.starved.entry(source).or_default().insert((time, lane));
    }

    /// Something is kept for a thread; nothing changes for one that is not starved.
    pub fn feed(&mut self, source: usize, time: Nanos, lane: u32) {
        if self.unstarve(source, (time, lane)) {
            self.fed.insert((time, lane));
        }
    }

    fn unstarve(&mut self, source: usize, turn: (Nanos, u32)) -> bool {
        let Some(starved) = self.starved.get_mut(&source) else { return false };
        let was_starved = starved.remove(&turn);
        if starved.is_empty() {
            self.starved.remove(&source);
        }
        was_starved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_furthest_behind_is_next_and_equals_come_by_number() {
        let mut turns = Turns::default();
        assert_eq!(turns.next(|_| true), None);
        [(9, 4), (5, 3), (5, 2)].into_iter().for_each(|(time, lane)| turns.may_run(time, lane));
        assert_eq!(turns.next(|_| true), Some((2, 5, 5)));
        turns.begin(0, 5, 2);
        turns.may_run(7, 2);
        assert_eq!((turns.next(|_| true), turns.ready()), (Some((3, 5, 9)), 2), "who runs is not next");
        turns.end();
        turns.may_run(7, 2);
        assert_eq!(turns.next(|_| true), Some((3, 5, 7)));
    }

    #[test]
    fn the_starved_run_when_there_is_room_or_something_was_kept_for_them() {
        let mut turns = Turns::default();
        turns.may_run(5, 0);
        turns.starves(1, 3, 1);
        turns.starves(1, 2, 2);
        let no_room = |turns: &Turns| turns.next(|source| source != 1);
        assert_eq!((no_room(&turns), turns.next(|_| true)), (Some((0, 5, Nanos::MAX)), Some((2, 2, 3))));
        turns.feed(1, 3, 1);
        turns.feed(1, 5, 0);
        assert_eq!((no_room(&turns), turns.ready()), (Some((1, 3, 5)), 1));
        turns.begin(1, 2, 2);
        assert_eq!(turns.next(|_| true), Some((1, 3, 5)));
    }
}
