//! When looks come late for want of a processor, the watcher comes before ordinary threads.
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
}
