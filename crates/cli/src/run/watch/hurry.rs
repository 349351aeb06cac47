//! Looks that come late: the watcher comes before ordinary threads then, and where much was missed says so.
//!
//! *The story:* agents of processes that grow come before ordinary threads. Beside hundreds of them there were
//! five looks in 16 s: 450 copies came and went unseen, and what was free was divided among those that had
//! been there three seconds before.

use std::time::Duration;

use overspill_sys::{Errno, thread};

/// A look that waited for a processor for so long came late.
const LATE: Duration = Duration::from_millis(100);
/// After so many in a row that did not, the watcher competes like others again.
const TIMELY_MAX: u32 = 100;

/// Looks that are so far apart are late, where so many have come in between that hold more than this share
/// of the budget: others may have come and gone.
const TOO_LATE: Duration = Duration::from_millis(250);
const LATE_PROGRAMS: usize = 16;
const LATE_SHARE: u64 = 8;

/// How the watcher competes: with ordinary threads until it is late.
#[derive(Debug, Default)]
pub struct Hurry {
    /// Looks in time since the last late one; none: it competes with ordinary threads.
    timely: Option<u32>,
}

/// What is to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It comes before ordinary threads from now on.
    First,
    /// It competes with them.
    Ordinary,
}

impl Hurry {
    /// A look, and the pause before it, waited for a processor for so long.
    pub fn looked(&mut self, waited: Duration) -> Option<Change> {
        let timely = match (self.timely, waited > LATE) {
            (None, false) => return None,
            (None, true) => {
                self.timely = Some(0);
                return Some(Change::First);
            }
            (Some(_), true) => 0,
            (Some(timely), false) => timely + 1,
        };
        self.timely = (timely < TIMELY_MAX).then_some(timely);
        self.timely.is_none().then_some(Change::Ordinary)
    }
}

impl Change {
    /// Makes it that of the calling thread.
    ///
    /// # Errors
    /// The user may not have that.
    pub fn make(self) -> Result<(), Errno> {
        match self {
            Change::First => thread::come_before(0),
            Change::Ordinary => thread::compete(),
        }
    }
}

/// Was so much new after a pause that nobody knows what was held meanwhile? What they hold by themselves
/// tells that.
///
/// *The story:* beside a hundred programs that wanted a processor there were five looks in 16 s. 450 copies
/// came and went, 275 MiB were the most that was seen, and 493 were held.
pub fn is_late(pause: Duration, new: impl Iterator<Item = u64>, ram_bytes: u64) -> bool {
    let (count, bytes) = new.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
    pause > TOO_LATE && count >= LATE_PROGRAMS && bytes > ram_bytes / LATE_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_comes_first_until_it_is_in_time_for_long() {
        let mut hurry = Hurry::default();
        let [late, timely] = [101, 99].map(Duration::from_millis);
        assert_eq!(hurry.looked(timely), None);
        assert_eq!(hurry.looked(late), Some(Change::First));
        assert!((1..TIMELY_MAX).all(|_| hurry.looked(timely).is_none()));
        assert_eq!(hurry.looked(late), None, "and again");
        assert!((1..TIMELY_MAX).all(|_| hurry.looked(timely).is_none()));
        assert_eq!(hurry.looked(timely), Some(Change::Ordinary));
        assert_eq!(hurry.looked(timely), None);
    }

    /// See [`is_late`].
    #[test]
    fn looks_are_late_where_much_came_between_two() {
        const MIB: u64 = 1 << 20;
        let of = |ms, count, mib: u64| {
            is_late(Duration::from_millis(ms), (0..count).map(|_| mib * MIB), 200 * MIB)
        };
        assert!(of(300, 20, 3));
        assert!(!of(60, 20, 3), "that is as often as it looks");
        assert!(!of(300, 20, 1), "they hold little");
        assert!(!of(300, 3, 100), "a few tell what they held themselves");
    }
}
