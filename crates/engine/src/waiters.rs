//! The threads that wait for pages, by page: thousands may wait, each for a page of its own, and the
//! one thread that answers them all has to find them at each answer.
//!
//! *The story:* they were in no order. 5,000 threads on as many pages were 25 million comparisons.

use alloc::collections::BTreeMap;

/// What waits, by what it waits for.
pub(crate) struct Waiters<P, W>(BTreeMap<P, W>);

impl<P: Ord + Copy, W> Waiters<P, W> {
    /// Nobody.
    pub fn new() -> Self {
        Waiters(BTreeMap::new())
    }

    /// Notes who waits for a page, if nobody did. True: nobody did.
    pub fn enter(&mut self, page: P, waiter: impl FnOnce() -> W) -> bool {
        let mut is_first = false;
        self.0.entry(page).or_insert_with(|| {
            is_first = true;
            waiter()
        });
        is_first
    }

    /// Takes out who waits for the first page of a range for which anybody does.
    pub fn take_first(&mut self, first: P, end: P) -> Option<W> {
        let (&page, _) = self.0.range(first..end).next()?;
        self.0.remove(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use core::cmp::Ordering;
    use std::thread_local;

    thread_local! {
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Counted(u64);

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    /// See the head of this file.
    #[test]
    fn a_waiter_costs_as_much_beside_thousands_as_beside_few() {
        let each = |count: u64| {
            let mut waiters = Waiters::new();
            COMPARISONS.set(0);
            (0..count).for_each(|page| assert!(waiters.enter(Counted(page * 7), || page)));
            for page in 0..count {
                assert_eq!(waiters.take_first(Counted(page * 7), Counted(page * 7 + 1)), Some(page));
            }
            COMPARISONS.get() / count
        };
        let (few, many) = (each(50), each(5_000));
        assert!(many < 4 * few && many < 200, "{few} comparisons a waiter of 50, {many} of 5,000");
    }

    #[test]
    fn who_waits_for_a_page_is_noted_once_and_taken_out_with_its_range() {
        let mut waiters = Waiters::new();
        assert!(waiters.enter(5, || 'a') && !waiters.enter(5, || 'b') && waiters.enter(9, || 'c'));
        assert_eq!(waiters.take_first(0, 5), None);
        assert_eq!(waiters.take_first(0, 10), Some('a'));
        assert_eq!(waiters.take_first(0, 10), Some('c'));
        assert_eq!(waiters.take_first(0, 10), None);
    }
}
