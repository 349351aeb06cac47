//! Memory that children do not get, where nothing else keeps them from reading zeroes.
//!
//! A fork that nobody hears of, and that the kernel does not refuse either (`veto`), would give a
//! child zeroes for what is out. So what is managed is marked as not to be inherited: such a child
//! gets SIGSEGV where it touches that memory. Before a fork that was announced, when all is in, the
//! marks are taken off all memory of the program, but for what the program itself has marked by way
//! of libc; after it they are set again. Nothing here looks at what is mapped without being managed.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general::{MADV_DOFORK, MADV_DONTFORK};

use overspill_engine::Engine;
use overspill_sys::lock::Lock;
use overspill_sys::maps::{self, Maps};
use overspill_sys::mem::{self, Advice};
use overspill_sys::{AddressRange, Errno, overlap};

use crate::undisturbed::undisturbed;

/// Ranges of the program's that are kept in mind; more of them are inherited.
const KEPT_MAX: usize = 64;

/// This process withholds its memory.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Everything is in, and may be inherited.
static IS_LIFTED: AtomicBool = AtomicBool::new(false);

/// What the program has marked itself.
static KEPT: Kept = Kept { lock: Lock::new(), ranges: UnsafeCell::new(Ranges::NONE) };

struct Kept {
    lock: Lock,
    ranges: UnsafeCell<Ranges>,
}

// SAFETY: the ranges are only touched under the lock.
unsafe impl Sync for Kept {}

impl Kept {
    fn with<R>(&self, action: impl FnOnce(&mut Ranges) -> R) -> R {
        // SAFETY: the lock is held, so this is the only reference.
        self.lock.with(|| action(unsafe { &mut *self.ranges.get() }))
    }
}

/// Begins to withhold what is registered from now on.
pub fn set_up() {
    IS_LIFTED.store(false, SeqCst);
    IS_ON.store(true, SeqCst);
}

/// A child that has all its memory withholds nothing.
pub fn forget() {
    IS_ON.store(false, SeqCst);
    KEPT.lock.forget();
}

/// Has the engine told of missing pages of a range, which no child gets from then on.
pub fn register(engine: &Engine, range: AddressRange) -> Result<(), Errno> {
    engine.register(range.clone())?;
    if IS_ON.load(SeqCst) && !IS_LIFTED.load(SeqCst) {
        advise(range, Advice::DontFork);
    }
    Ok(())
}

/// Sets the marks again.
pub fn withhold_all(engine: &Engine) {
    if IS_ON.load(SeqCst) {
        IS_LIFTED.store(false, SeqCst);
        engine.regions().for_each(|region| advise(region, Advice::DontFork));
    }
}

/// Takes the marks off all memory but the agent's own, whose ranges are `own`.
///
/// *The story:* the list of mappings was opened here. A program that had no descriptors left forked, and
/// its child had none of its memory.
pub fn lift(own: &[AddressRange], maps: &Maps) {
    if !IS_ON.load(SeqCst) {
        return;
    }
    IS_LIFTED.store(true, SeqCst);
    let mut buffer = [0; maps::BUFFER_BYTES];
    let mut at = 0;
    let of_program = |range: &AddressRange| !own.iter().any(|own| overlap(own, range));
    while let Ok(Some((range, may_be_marked))) =
        maps.query(at, true, &mut buffer, |vma| (vma.range(), vma.is_private_anonymous()))
    {
        at = range.end;
        if may_be_marked && of_program(&range) {
            advise(range, Advice::DoFork);
        }
    }
}

/// The program marks memory, or takes its mark off, by `call`. A mark that it takes off stays while
/// the memory is withheld for another reason: the next announced fork lifts it.
pub fn note(advice: c_int, range: AddressRange, call: impl FnOnce() -> c_int) -> c_int {
    match advice as u32 {
        MADV_DONTFORK => {
            let result = call();
            if result == 0 {
                undisturbed(|| KEPT.with(|ranges| ranges.add(range)));
            }
            result
        }
        MADV_DOFORK => {
            undisturbed(|| KEPT.with(|ranges| ranges.remove(&range)));
            if IS_ON.load(SeqCst) && !IS_LIFTED.load(SeqCst) { 0 } else { call() }
        }
        _ => call(),
    }
}

/// Marks a range, or takes its mark off, but for what the program has marked: to the kernel that
/// may be one mapping with its neighbours.
fn advise(range: AddressRange, advice: Advice) {
    let mut from = range.start;
    while from < range.end {
        let kept = KEPT.with(|ranges| ranges.first_in(from..range.end));
        let kept = kept.unwrap_or(range.end..range.end);
        if from < kept.start {
            // SAFETY: content does not change. What is not mapped any more is left out.
            let _ = unsafe { mem::madvise(from..kept.start, advice) };
        }
        from = kept.end;
    }
}

/// Some ranges, in no order.
struct Ranges {
    ranges: [(usize, usize); KEPT_MAX],
    count: usize,
}

impl Ranges {
    const NONE: Ranges = Ranges { ranges: [(0, 0); KEPT_MAX], count: 0 };

    fn add(&mut self, range: AddressRange) {
        self.remove(&range);
        if self.count < KEPT_MAX && !range.is_empty() {
            self.ranges[self.count] = (range.start, range.end);
            self.count += 1;
        }
    }

    fn remove(&mut self, range: &AddressRange) {
        let mut index = 0;
        while index < self.count {
            let (start, end) = self.ranges[index];
            if !overlap(&(start..end), range) {
                index += 1;
                continue;
            }
            self.count -= 1;
            self.ranges[index] = self.ranges[self.count];
            for (from, to) in [(start, range.start.min(end)), (range.end.max(start), end)] {
                if from < to && self.count < KEPT_MAX {
                    self.ranges[self.count] = (from, to);
                    self.count += 1;
                }
            }
        }
    }

    /// The first of them that has a part in a range.
    fn first_in(&self, range: AddressRange) -> Option<AddressRange> {
        let all = self.ranges[..self.count].iter().map(|&(start, end)| start..end);
        all.filter(|kept| overlap(kept, &range)).min_by_key(|kept| kept.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &Ranges) -> std::vec::Vec<(usize, usize)> {
        let mut list = ranges.ranges[..ranges.count].to_vec();
        list.sort_unstable();
        list
    }

    #[test]
    fn what_is_marked_again_is_kept_once_and_what_is_unmarked_leaves_the_rest() {
        let mut ranges = Ranges::NONE;
        ranges.add(10..20);
        ranges.add(15..30);
        assert_eq!(list(&ranges), [(10, 15), (15, 30)]);
        ranges.remove(&(12..17));
        assert_eq!(list(&ranges), [(10, 12), (17, 30)]);
        assert_eq!(ranges.first_in(11..40), Some(10..12));
        assert_eq!(ranges.first_in(12..40), Some(17..30));
        assert_eq!(ranges.first_in(12..17), None);
        ranges.remove(&(0..100));
        assert_eq!(list(&ranges), []);
    }

    #[test]
    fn of_too_many_ranges_the_last_are_not_kept() {
        let mut ranges = Ranges::NONE;
        (0..KEPT_MAX + 5).for_each(|index| ranges.add(10 * index..10 * index + 5));
        assert_eq!(ranges.count, KEPT_MAX);
        ranges.remove(&(2..3));
        assert_eq!(ranges.count, KEPT_MAX, "a piece of it has the place of the whole");
    }
}
