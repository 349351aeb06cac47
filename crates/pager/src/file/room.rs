//! The part of a pager's budget that cached files have: taken as it is needed, given back when they
//! are closed, never more than half.

use std::sync::{Arc, Mutex, PoisonError};

use crate::link::Link;

/// Frames that are taken from the pager at a time.
const STEP: u32 = 256;

/// What all cached files of a pager have together.
#[derive(Debug, Default)]
pub(crate) struct Room {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Frames that the pager goes without.
    granted: u32,
    /// Those of them that hold a page.
    used: u32,
    /// No more is to be had until something was given back.
    refused: bool,
}

impl Room {
    /// A frame for one more page; false where there is none to be had.
    pub fn take(&self, link: &Link) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.used >= taken.granted && !taken.refused {
            let step = grant(link);
            taken.refused = step == 0;
            taken.granted += step;
        }
        let may = taken.used < taken.granted;
        taken.used += u32::from(may);
        may
    }

    /// A frame for a page that somebody waits for.
    pub fn take_anyway(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).used += 1;
    }

    /// Do files have more than they were granted?
    pub fn is_overdrawn(&self) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.used > taken.granted
    }

    /// Pages were given up.
    pub fn release(&self, link: &Link, pages: u32) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.used = taken.used.checked_sub(pages).expect("each page was counted");
        taken.refused &= taken.used >= taken.granted;
        let spare = taken.granted.saturating_sub(taken.used) / STEP * STEP;
        if spare > STEP || taken.used == 0 {
            let back = if taken.used == 0 { taken.granted } else { spare - STEP };
            taken.granted -= back;
            // A pager that has stopped needs nothing back.
            let _ = link.wire().ask(move |engine| engine.set_budget(engine.budget() + back));
        }
    }
}

/// Frames that the pager parts with: a step, as long as it keeps as much as the files would have.
fn grant(link: &Link) -> u32 {
    let granted = link.wire().ask(|engine| {
        let (budget, first) = (engine.budget(), engine.budget_at_first());
        let may = first.saturating_sub(budget) + STEP <= first / 2;
        if may {
            engine.set_budget(budget - STEP);
        }
        may
    });
    if matches!(granted, Ok(true)) { STEP } else { 0 }
}

/// The frames come from a pager, or, in tests, from nowhere.
pub(super) enum Frames {
    Pager(Arc<Link>, Arc<Room>),
    #[cfg(test)]
    Fixed(std::sync::atomic::AtomicI32),
}

impl Frames {
    pub fn take(&self) -> bool {
        match self {
            Frames::Pager(link, room) => room.take(link),
            #[cfg(test)]
            Frames::Fixed(left) => {
                use std::sync::atomic::Ordering::SeqCst;
                left.fetch_update(SeqCst, SeqCst, |left| (left > 0).then_some(left - 1)).is_ok()
            }
        }
    }

    pub fn take_anyway(&self) {
        match self {
            Frames::Pager(_, room) => room.take_anyway(),
            #[cfg(test)]
            Frames::Fixed(left) => {
                left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
    }

    /// Has somebody got a frame where there was none?
    pub fn are_overdrawn(&self) -> bool {
        match self {
            Frames::Pager(_, room) => room.is_overdrawn(),
            #[cfg(test)]
            Frames::Fixed(left) => left.load(std::sync::atomic::Ordering::SeqCst) < 0,
        }
    }

    pub fn release(&self, pages: u32) {
        match self {
            Frames::Pager(link, room) => room.release(link, pages),
            #[cfg(test)]
            Frames::Fixed(left) => {
                left.fetch_add(pages as i32, std::sync::atomic::Ordering::SeqCst);
            }
        }
    }
}
