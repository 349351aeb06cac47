//! Changes of the address space, in an order in which the kernel can have made them.
//!
//! The kernel makes a change under the lock of the address space, and tells it when it has let go of
//! that. So of two threads the one that was later may be heard first. A move is told in two parts,
//! that it arrived (REMAP) and that its old place is free (UNMAP); where it was told to take a place
//! (MREMAP_FIXED) what it replaces comes before both.
//!
//! Who moves memory can only be given a place that is free. So where the books have something at the
//! place that a move arrives at, or the place is one that was moved away from and whose end is still
//! *owed*, what frees it was made before and is told later: it is waited for, and handled first. It is
//! known when nothing more is to come: while a change is untold the kernel refuses transfers.
//!
//! What ends or moves memory of which the books have nothing is not held back. It may be memory that
//! nobody has found yet; and who was given a place by a move knows of it when that was heard.
//!
//! *The story:* three threads that only called realloc lost 1275 pages in 4 seconds. One moved its
//! array away; before it told that the old place is free, another one's had moved there. The end of the
//! first was taken for the end of the second, and what of it was on swap was forgotten and read zero.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_sys::uffd::Message;
use overspill_sys::{AddressRange, Errno, clock, overlap};

use crate::memory::{Memory, REST_NS};
use crate::ranges::cut_out;

/// So long it is waited for a change that was made before one that was told: its thread is about to tell it.
const EARLIER_WAIT_NS: u64 = 1_000_000_000;

/// Those that were read and not handled.
#[derive(Default)]
pub(crate) struct Changes {
    /// As they were read.
    queue: VecDeque<Message>,
    /// Places that were moved away from, as far as it was not told that they are free. With
    /// MREMAP_DONTUNMAP it never is.
    owed: Vec<AddressRange>,
    /// One is not told for long, and something could not be put where it belongs.
    is_untold: bool,
}

impl Changes {
    pub fn push(&mut self, change: Message) {
        self.queue.push_back(change);
    }

    /// As they were read, the oldest first.
    pub fn queue(&self) -> &VecDeque<Message> {
        &self.queue
    }

    /// To take out what does not have to be handled.
    pub fn queue_mut(&mut self) -> &mut VecDeque<Message> {
        &mut self.queue
    }

    /// Puts the change first that is to be handled next, given what the books hold something of. False:
    /// it is still to be told.
    pub fn order(&mut self, is_known: impl Fn(&AddressRange) -> bool) -> bool {
        // Where each waits for another one the books are wrong, and they are handled as they came.
        for _ in 0..self.queue.len() {
            let Some(wanted) = self.queue.front().and_then(|first| self.wanted(first, &is_known)) else {
                return true;
            };
            let Some(index) = self.queue.iter().skip(1).position(|change| wanted.is_met(change)) else {
                return false;
            };
            let earlier = self.queue.remove(index + 1).expect("it was found there");
            self.queue.push_front(earlier);
        }
        true
    }

    /// What must have been before a change.
    fn wanted(&self, change: &Message, is_known: impl Fn(&AddressRange) -> bool) -> Option<Wanted> {
        let is_owed = |range: &AddressRange| self.owed.iter().any(|owed| overlap(owed, range));
        match *change {
            Message::Remap { from, to, len } if from != to => {
                let to = to..to + len;
                if is_known(&to) {
                    return Some(Wanted::Left(to));
                }
                is_owed(&to).then_some(Wanted::Freed(to))
            }
            _ => None,
        }
    }

    /// The first, which is handled now.
    pub fn take(&mut self) -> Option<Message> {
        let change = self.queue.pop_front()?;
        match change {
            Message::Remap { from, to, len } if from != to => {
                cut_out(&mut self.owed, &(to..to + len));
                self.owed.push(from..from + len);
            }
            Message::Unmap { start, end } => cut_out(&mut self.owed, &(start..end)),
            _ => {}
        }
        Some(change)
    }

    /// The kernel says that something is still to be told; `is_long`: for long.
    pub fn note_untold(&mut self, is_long: bool) {
        self.is_untold |= is_long;
    }

    /// All that was done is told: nothing is owed.
    pub fn all_is_told(&mut self) {
        self.is_untold = false;
        if self.queue.is_empty() {
            self.owed.clear();
        }
    }
}

impl Memory {
    /// The change to be handled next, given what the books hold something of;
    /// it is waited for.
    pub fn next_change(&mut self, is_known: impl Fn(&AddressRange) -> bool) -> Option<Message> {
        let mut until = None;
        // All who have something to tell come to it before more is read: what they did later would be taken
        // for what they did before.
        while !(self.changes.order(&is_known) || self.is_quiet() && !self.read_messages()) {
            let now = clock::monotonic_ns();
            if now > *until.get_or_insert(now + EARLIER_WAIT_NS) {
                break;
            }
            clock::sleep_ns(REST_NS);
            self.read_messages();
        }
        self.changes.take()
    }

    /// Those that were read and not handled, the oldest first.
    pub fn changes(&self) -> &VecDeque<Message> {
        self.changes.queue()
    }

    /// Are there changes that were read and not handled?
    pub fn is_changed(&self) -> bool {
        !self.changes.queue().is_empty()
    }

    /// Has the kernel refused something for long for a change that is not told, and still is not?
    pub fn is_stuck(&mut self) -> bool {
        self.changes.is_untold && !self.is_quiet()
    }

    /// Is the address space free of changes whose events are unread? What was read from the
    /// process's maps before a "yes" is still true of everything that is registered.
    pub fn is_quiet(&mut self) -> bool {
        // The kernel checks for unread events before it looks at the pages; protecting nothing
        // changes nothing.
        let probe = self.staging.page(0)..self.staging.page(1);
        let is_quiet = self.program.write_protect(probe, false, true) != Err(Errno::AGAIN);
        if is_quiet {
            self.changes.all_is_told();
        }
        is_quiet
    }
}

/// What was before a change, and is told after it.
enum Wanted {
    /// What had been there was moved away, or unmapped.
    Left(AddressRange),
    /// What had been there was moved away, and that is known: its end.
    Freed(AddressRange),
}

impl Wanted {
    fn is_met(&self, change: &Message) -> bool {
        match (self, change) {
            (Wanted::Left(range) | Wanted::Freed(range), &Message::Unmap { start, end }) => {
                overlap(range, &(start..end))
            }
            (Wanted::Left(range), &Message::Remap { from, to, len }) => {
                from != to && overlap(range, &(from..from + len))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Each page by what is there.
    #[derive(Default)]
    struct Books(BTreeMap<usize, u32>);

    impl Books {
        fn of(ranges: &[(AddressRange, u32)]) -> Self {
            Books(ranges.iter().flat_map(|(range, what)| range.clone().map(|page| (page, *what))).collect())
        }

        fn handle(&mut self, change: &Message) {
            match *change {
                Message::Unmap { start, end } => self.0.retain(|page, _| !(start..end).contains(page)),
                Message::Remap { from, to, len } => {
                    let moving: Vec<_> =
                        (0..len).filter_map(|n| Some((to + n, self.0.remove(&(from + n))?))).collect();
                    self.0.retain(|page, _| !(to..to + len).contains(page));
                    self.0.extend(moving);
                }
                _ => {}
            }
        }

        fn holds(&self, range: &AddressRange) -> bool {
            self.0.range(range.clone()).next().is_some()
        }
    }

    /// Hears these one by one, as far as it is not told to wait, and then that there is no more.
    fn hear(books: &mut Books, told: Vec<Message>) {
        let mut changes = Changes::default();
        for change in told {
            changes.push(change);
            handle_all(&mut changes, books);
        }
        handle_rest(&mut changes, books);
    }

    /// False: something is still to be told.
    fn handle_all(changes: &mut Changes, books: &mut Books) -> bool {
        while !changes.queue().is_empty() {
            if !changes.order(|range| books.holds(range)) {
                return false;
            }
            books.handle(&changes.take().expect("there is one"));
        }
        true
    }

    fn handle_rest(changes: &mut Changes, books: &mut Books) {
        while let Some(change) = {
            changes.order(|range| books.holds(range));
            changes.take()
        } {
            books.handle(&change);
        }
        changes.all_is_told();
        assert!(changes.owed.is_empty());
    }

    fn remap(from: usize, to: usize) -> Message {
        Message::Remap { from, to, len: 10 }
    }

    fn unmap(start: usize) -> Message {
        Message::Unmap { start, end: start + 10 }
    }

    /// The story above: the place of the first is the second one's before its end is told.
    #[test]
    fn an_end_that_was_owed_is_not_that_of_what_came_after() {
        let mut books = Books::of(&[(0..10, 1), (20..30, 2)]);
        hear(&mut books, vec![remap(0, 50), remap(20, 0), unmap(20), unmap(0)]);
        assert_eq!(books.0, Books::of(&[(50..60, 1), (0..10, 2)]).0);
    }

    #[test]
    fn what_took_a_place_is_heard_of_before_its_end() {
        // Unmapped by one thread, and taken by another.
        let mut books = Books::of(&[(0..10, 1), (20..30, 2)]);
        hear(&mut books, vec![remap(20, 0), unmap(0), unmap(20)]);
        assert_eq!(books.0, Books::of(&[(0..10, 2)]).0);
        // Moved away by one, and taken by another.
        let mut books = Books::of(&[(0..10, 1), (20..30, 2)]);
        hear(&mut books, vec![remap(20, 0), unmap(20), remap(0, 50), unmap(0)]);
        assert_eq!(books.0, Books::of(&[(50..60, 1), (0..10, 2)]).0);
    }

    #[test]
    fn a_place_that_keeps_its_mapping_may_be_taken_by_force() {
        // MREMAP_DONTUNMAP, and then MREMAP_FIXED, which tells what it replaces.
        let mut books = Books::of(&[(0..10, 1), (20..30, 2)]);
        hear(&mut books, vec![remap(0, 50), unmap(0), remap(20, 0), unmap(20)]);
        assert_eq!(books.0, Books::of(&[(50..60, 1), (0..10, 2)]).0);
    }

    /// Who changes the address space: what it has still to tell, and whether the first of that can be read.
    #[derive(Default)]
    struct Thread {
        untold: VecDeque<Message>,
        block: u32,
        is_posted: bool,
    }

    /// Threads move blocks about, and tell of it whenever they come to it; none touches a block before the
    /// call that put it there has returned. Where it is waited for what is still to be told, all come to it.
    #[test]
    fn whatever_the_order_the_books_are_right() {
        let mut seed = 11u64;
        let mut below = move |bound: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % bound
        };
        for round in 0..4000 {
            let mut truth = Books::of(&[(0..10, 1), (10..20, 2), (20..30, 3)]);
            let mut books = Books(truth.0.clone());
            let mut changes = Changes::default();
            let mut threads: [Thread; 4] = Default::default();
            let mut shown = Vec::new();
            for step in 0..60 {
                let thread = below(4);
                let busy: Vec<u32> =
                    threads.iter().filter(|t| !t.untold.is_empty()).map(|t| t.block).collect();
                let (from, to) = (below(5) * 10, below(5) * 10);
                let block = truth.0.get(&from).copied().filter(|block| !busy.contains(block));
                let thread = &mut threads[thread];
                if !thread.untold.is_empty() {
                    thread.is_posted = true;
                } else if let Some(block) = block
                    && step < 40
                {
                    thread.block = block;
                    if below(6) == 0 {
                        thread.untold.push_back(unmap(from));
                        truth.handle(&unmap(from));
                    } else if !truth.holds(&(to..to + 10)) {
                        thread.untold.extend([remap(from, to), unmap(from)]);
                        truth.handle(&remap(from, to));
                    }
                }
                if below(3) > 0 {
                    continue;
                }
                loop {
                    for thread in threads.iter_mut().filter(|thread| thread.is_posted) {
                        thread.is_posted = false;
                        let message = thread.untold.pop_front().expect("it was posted");
                        shown.push(format!("{message:?}"));
                        changes.push(message);
                    }
                    if handle_all(&mut changes, &mut books) || threads.iter().all(|t| t.untold.is_empty()) {
                        break;
                    }
                    threads.iter_mut().for_each(|thread| thread.is_posted = !thread.untold.is_empty());
                }
            }
            while let Some(thread) = threads.iter_mut().find(|thread| !thread.untold.is_empty()) {
                changes.push(thread.untold.pop_front().expect("there is one"));
            }
            handle_rest(&mut changes, &mut books);
            assert_eq!(books.0, truth.0, "round {round}: {shown:?}");
        }
    }
}
