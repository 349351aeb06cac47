//! Memory that children do not get, where nothing else keeps them from reading zeroes.
//!
//! A fork that nobody hears of, and that the kernel does not refuse either (`veto`), would give a
//! child zeroes for what is out. So what is managed is marked as not to be inherited: such a child
//! gets SIGSEGV where it touches that memory. Before a fork that was announced, when all is in, the
//! marks are taken off all private anonymous memory, but for what the program itself has marked by way
//! of libc; after it they are set again. Nothing here looks at what is mapped without being managed,
//! but for marks that the program takes off meanwhile: those go with the others, whatever is mapped there.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general::{MADV_DOFORK, MADV_DONTFORK, MADV_WIPEONFORK};

use overspill_engine::Engine;
use overspill_sys::lock::Lock;
use overspill_sys::maps::{self, Maps};
use overspill_sys::mem::{self, Advice};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, overlap};

use crate::adopt::each_rest;
use crate::undisturbed::undisturbed;

/// Ranges of the program's that are kept in mind; more of them are inherited.
const KEPT_MAX: usize = 64;
const EVERYTHING: AddressRange = 0..usize::MAX / PAGE_SIZE * PAGE_SIZE;

/// This process withholds its memory.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The program ever had memory that children do not get, or get empty.
static HAS_MARKED: AtomicBool = AtomicBool::new(false);
/// Everything is in, and may be inherited.
static IS_LIFTED: AtomicBool = AtomicBool::new(false);

/// What the program has marked itself, and where it has taken its marks off.
static MARKS: Shared = Shared { lock: Lock::new(), marks: UnsafeCell::new(Marks::NONE) };

struct Shared {
    lock: Lock,
    marks: UnsafeCell<Marks>,
}

// SAFETY: the marks are only touched under the lock.
unsafe impl Sync for Shared {}

impl Shared {
    fn with<R>(&self, action: impl FnOnce(&mut Marks) -> R) -> R {
        // SAFETY: the lock is held, so this is the only reference.
        self.lock.with(|| action(unsafe { &mut *self.marks.get() }))
    }
}

struct Marks {
    kept: Ranges,
    /// They stay until memory is inherited.
    undone: Ranges,
}

impl Marks {
    const NONE: Marks = Marks { kept: Ranges::NONE, undone: Ranges::NONE };

    fn keep(&mut self, range: AddressRange) {
        self.undone.remove(&range);
        self.kept.add(range);
    }

    /// A mark goes: at the next fork, where this is true, or by the call. Of too many that wait for a fork
    /// all go that are not kept.
    fn take_off(&mut self, range: AddressRange) -> bool {
        self.kept.remove(&range);
        let waits = IS_ON.load(SeqCst) && !IS_LIFTED.load(SeqCst);
        if waits && !self.undone.add(range) {
            self.undone = Ranges::NONE;
            self.undone.add(EVERYTHING);
        }
        waits
    }
}

/// Did the program ever mark memory that children do not get as it is, by way of libc? What is out there
/// is not for them.
pub fn has_marked() -> bool {
    HAS_MARKED.load(SeqCst)
}

/// Begins to withhold what is registered from now on.
pub fn set_up() {
    IS_LIFTED.store(false, SeqCst);
    IS_ON.store(true, SeqCst);
}

/// A child that has all its memory withholds nothing.
pub fn forget() {
    IS_ON.store(false, SeqCst);
    MARKS.lock.forget();
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
///
/// *Another story* (by reading): an error ended this in the middle, and the child had no more than the first
/// part. And what the kernel had joined with a mapping of the agent's own was passed over with that.
pub fn lift(own: &mut [AddressRange], maps: &Maps, engine: &Engine) {
    if !IS_ON.load(SeqCst) {
        return;
    }
    // Marks that the program takes off are among those that are lifted here, or go at once.
    MARKS.with(|_| IS_LIFTED.store(true, SeqCst));
    own.sort_unstable_by_key(|own| own.start);
    let own = &*own;
    let lift = |range: &AddressRange| each_rest(range, own, |part| advise(part, Advice::DoFork));
    let mut buffer = [0; maps::BUFFER_BYTES];
    let listed = maps.for_each(&mut buffer, |vma| -> ControlFlow<()> {
        if vma.is_private_anonymous() {
            lift(&vma.range());
        } else {
            each_undone(vma.range(), lift);
        }
        ControlFlow::Continue(())
    });
    if listed.is_err() {
        engine.regions().for_each(|region| lift(&region));
        each_undone(EVERYTHING, lift);
    }
    MARKS.with(|marks| marks.undone = Ranges::NONE);
}

/// Calls `visit` with the parts of a range in which the program has taken its marks off.
fn each_undone(range: AddressRange, visit: impl Fn(&AddressRange)) {
    let mut from = range.start;
    while let Some(part) = MARKS.with(|marks| marks.undone.first_in(from..range.end)) {
        from = part.end.min(range.end);
        visit(&(part.start.max(range.start)..from));
    }
}

/// The program marks memory, or takes its mark off, by `call`. A mark that it takes off stays while
/// the memory is withheld for another reason, or may be: the next announced fork lifts it. Where the
/// arguments are wrong, and nothing is done, nothing is noted.
///
/// *The stories:* a mark that was taken off a shared mapping, or one of a file, stayed for ever, as an
/// announced fork takes marks off other memory only. And (by reading) a mark was noted after the call:
/// a fork of another thread in between took it off, and it was never set again.
pub fn note(advice: c_int, range: AddressRange, call: impl FnOnce() -> c_int) -> c_int {
    if matches!(advice as u32, MADV_DONTFORK | MADV_WIPEONFORK) {
        HAS_MARKED.store(true, SeqCst);
    }
    let is_wrong = !range.start.is_multiple_of(PAGE_SIZE) || range.is_empty() || range.end == usize::MAX;
    match advice as u32 {
        MADV_DONTFORK if !is_wrong => {
            undisturbed(|| MARKS.with(|marks| marks.keep(range)));
            call()
        }
        MADV_DOFORK if !is_wrong => {
            let is_undone = undisturbed(|| MARKS.with(|marks| marks.take_off(range)));
            if is_undone { 0 } else { call() }
        }
        _ => call(),
    }
}

/// Marks a range, or takes its mark off, but for what the program has marked: to the kernel that
/// may be one mapping with its neighbours.
fn advise(range: AddressRange, advice: Advice) {
    let mut from = range.start;
    while from < range.end {
        let kept = MARKS.with(|marks| marks.kept.first_in(from..range.end));
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

    /// False: there is no room.
    fn add(&mut self, range: AddressRange) -> bool {
        self.remove(&range);
        let has_room = self.count < KEPT_MAX;
        if has_room {
            self.ranges[self.count] = (range.start, range.end);
            self.count += 1;
        }
        has_room
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
        assert!(ranges.add(10..20) && ranges.add(15..30));
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
        (0..KEPT_MAX).for_each(|index| assert!(ranges.add(10 * index..10 * index + 5)));
        (0..5).for_each(|index| assert!(!ranges.add(10_000 + 10 * index..10_005 + 10 * index)));
        assert_eq!(ranges.count, KEPT_MAX);
        ranges.remove(&(2..3));
        assert_eq!(ranges.count, KEPT_MAX, "a piece of it has the place of the whole");
    }
}
