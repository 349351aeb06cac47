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

use linux_raw_sys::general::{MADV_DOFORK, MADV_DONTFORK, MADV_KEEPONFORK, MADV_WIPEONFORK};

use overspill_engine::Engine;
use overspill_sys::lock::Lock;
use overspill_sys::maps::{self, Inherited, Maps, Share};
use overspill_sys::mem::{self, Advice};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, overlap};

use crate::adopt::each_rest;
use crate::fork;
use crate::undisturbed::undisturbed;

/// Ranges of the program's that are kept in mind; more of them are inherited.
const KEPT_MAX: usize = 64;
/// How often the agent asks for the marks, at most, and how long it rests: who has them makes some stores.
const TRIES: u32 = 50;
const REST_NS: u64 = 20_000;
const EVERYTHING: AddressRange = 0..usize::MAX / PAGE_SIZE * PAGE_SIZE;

/// This process withholds its memory.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The program ever had memory that children do not get, or get empty.
static HAS_MARKED: AtomicBool = AtomicBool::new(false);
/// ... get empty.
static HAS_WIPED: AtomicBool = AtomicBool::new(false);
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

    /// For the agent while pages may be out: who has the lock may wait for one. `None`: somebody has it.
    fn try_with<R>(&self, action: impl FnOnce(&mut Marks) -> R) -> Option<R> {
        // SAFETY: as above.
        self.lock.try_with(|| action(unsafe { &mut *self.marks.get() }))
    }
}

struct Marks {
    kept: Ranges,
    /// They stay until memory is inherited.
    undone: Ranges,
    /// How many were ever made: a later mark has a larger number.
    made: u64,
}

impl Marks {
    const NONE: Marks = Marks { kept: Ranges::NONE, undone: Ranges::NONE, made: 0 };

    fn keep(&mut self, range: AddressRange) {
        self.made += 1;
        self.undone.remove(&range);
        self.kept.add(range, self.made);
    }

    /// What was in a range is gone, with those of its marks that are no younger than `youngest`.
    fn forget(&mut self, range: &AddressRange, youngest: u64) {
        self.kept.remove_older(range, youngest);
        self.undone.remove_older(range, youngest);
    }

    /// What was in the range `from` is at `to` by now, as it was marked. What it has grown by is marked
    /// as its end was. What was at `to` is gone.
    fn follow(&mut self, from: &AddressRange, to: &AddressRange, stays: bool, youngest: u64) {
        self.made += 1;
        let made = self.made;
        if from.start != to.start {
            self.forget(to, youngest);
        }
        for ranges in [&mut self.kept, &mut self.undone] {
            let mut at = from.start;
            while let Some((part, since)) = ranges.next_in(at..from.end) {
                at = part.end;
                if since > youngest {
                    continue;
                }
                let offset = |address: usize| address - from.start + to.start;
                let end = if part.end == from.end { to.end } else { offset(part.end).min(to.end) };
                if !stays {
                    ranges.remove_older(&part, youngest);
                }
                if offset(part.start) < end {
                    ranges.add(offset(part.start)..end, made);
                }
            }
        }
    }

    /// A mark goes: at the next fork, where this is true, or by the call. Of too many that wait for a fork
    /// all go that are not kept.
    fn take_off(&mut self, range: AddressRange) -> bool {
        self.kept.remove(&range);
        let waits = IS_ON.load(SeqCst) && !IS_LIFTED.load(SeqCst);
        self.made += 1;
        if waits && !self.undone.add(range, self.made) {
            self.undone = Ranges::NONE;
            self.undone.add(EVERYTHING, self.made);
        }
        waits
    }
}

/// Did the program ever mark memory that children do not get as it is, by way of libc? What is out there
/// is not for them.
pub fn has_marked() -> bool {
    HAS_MARKED.load(SeqCst)
}

/// Set before the program first marks memory that children get empty, by way of libc.
pub fn wiped() -> &'static AtomicBool {
    &HAS_WIPED
}

/// Begins to withhold what is registered from now on.
pub fn set_up() {
    IS_LIFTED.store(false, SeqCst);
    IS_ON.store(true, SeqCst);
}

/// A child that has all its memory withholds nothing, and has nothing of what is marked.
pub fn forget() {
    IS_ON.store(false, SeqCst);
    MARKS.lock.forget();
    MARKS.with(|marks| (marks.kept, marks.undone) = (Ranges::NONE, Ranges::NONE));
}

/// The youngest mark before a call that changes what is mapped; `None`: there never was any.
#[derive(Clone, Copy)]
pub struct Before(Option<u64>);

/// To be asked before a call that replaces mappings, or moves them. Marks go, or follow, when it is done:
/// those that were there before it, as by then another thread may have mapped and marked what it was given
/// at the same place.
///
/// *The story* (by reading, and then shown): marks stayed where they had been made. What was mapped there
/// next was not withheld, and read as zeroes in a child that nobody had heard of; and the next fork that was
/// announced took the mark off what had been moved away.
pub fn before_change() -> Before {
    outwait_forks();
    // A copy that nobody heard of may have been made in the midst of a change.
    let is_known = has_marked() && !fork::is_strange();
    Before(is_known.then(|| undisturbed(|| MARKS.with(|marks| marks.made))))
}

/// For the agent: calls `action`, which puts another mapping in the place of the program's in a range, and
/// marks that as the program has marked what was there. False: it failed, or was not called, as somebody
/// changes marks for a millisecond.
///
/// *The story:* the kernel had a mapped file again after mlock of one page, or as others wrote to the file,
/// and children had what was marked (`torture file-marks`).
pub fn keeping_marks(range: &AddressRange, action: &mut dyn FnMut() -> bool) -> bool {
    let mut replace = |marks: &mut Marks| {
        let is_done = action();
        let mut at = range.start;
        while is_done && let Some((part, _)) = marks.kept.next_in(at..range.end) {
            at = part.end;
            // SAFETY: content does not change.
            let _ = unsafe { mem::madvise(part, Advice::DontFork) };
        }
        is_done
    };
    for _ in 0..TRIES {
        if let Some(is_done) = MARKS.try_with(&mut replace) {
            return is_done;
        }
        clock::sleep_ns(REST_NS);
    }
    false
}

/// A fork by the bare instruction left marks as they are now: who changes them, or what is marked, waits
/// until they were looked at.
fn outwait_forks() {
    if HAS_WIPED.load(SeqCst) {
        fork::outwait_heard();
    }
}

impl Before {
    /// What was there is gone.
    pub fn replaced(self, start: usize, len: usize) {
        if let Before(Some(youngest)) = self {
            let range = whole_pages(start, len);
            undisturbed(|| MARKS.with(|marks| marks.forget(&range, youngest)));
        }
    }

    /// What was in one range is in another. `stays`: something as it was is in its old place, too.
    pub fn moved(self, from: (usize, usize), to: (usize, usize), stays: bool) {
        if let Before(Some(youngest)) = self {
            let (from, to) = (whole_pages(from.0, from.1), whole_pages(to.0, to.1));
            undisturbed(|| MARKS.with(|marks| marks.follow(&from, &to, stays, youngest)));
        }
    }
}

fn whole_pages(start: usize, len: usize) -> AddressRange {
    start..start.saturating_add(len).checked_next_multiple_of(PAGE_SIZE).unwrap_or(EVERYTHING.end)
}

/// Has the engine told of missing pages of a range, which no child gets from then on.
pub fn register(engine: &Engine, range: AddressRange) -> Result<(), Errno> {
    if IS_ON.load(SeqCst) {
        drop_stale(&range);
    }
    engine.register(range.clone())?;
    if IS_ON.load(SeqCst) && !IS_LIFTED.load(SeqCst) {
        advise(range, Advice::DontFork);
    }
    Ok(())
}

/// Marks in a range that is not managed yet are the program's own: the kernel has those that are true.
/// Others are of what was there before, and went by a call that was not seen: the C library gives memory
/// back by calls of its own.
fn drop_stale(range: &AddressRange) {
    let look = |marks: &mut Marks| (marks.kept.first_in(range.clone()).is_some(), marks.made);
    let Some((true, youngest)) = MARKS.try_with(look) else { return };
    // Where it cannot be asked marks are believed.
    if let Ok(inherited) = Inherited::open() {
        let _ = inherited.for_each_in(range, &mut [0; maps::BUFFER_BYTES], |mapping, share| {
            if share != Share::Nothing {
                let _ = MARKS.try_with(|marks| marks.kept.remove_older(&mapping, youngest));
            }
        });
    }
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
    note_advice(advice);
    let is_wrong = !range.start.is_multiple_of(PAGE_SIZE) || range.is_empty() || range.end == usize::MAX;
    let is_wrong = is_wrong || fork::is_strange();
    match advice as u32 {
        MADV_DONTFORK if !is_wrong => {
            undisturbed(|| MARKS.with(|marks| marks.keep(range.clone())));
            let result = call();
            if result == 0 {
                // Before the call it was not true, and may have been dropped.
                undisturbed(|| MARKS.with(|marks| marks.keep(range)));
            }
            result
        }
        MADV_DOFORK if !is_wrong => {
            let is_undone = undisturbed(|| MARKS.with(|marks| marks.take_off(range)));
            if is_undone { 0 } else { call() }
        }
        MADV_WIPEONFORK | MADV_KEEPONFORK => {
            outwait_forks();
            call()
        }
        _ => call(),
    }
}

/// Advice is given, of what is not known.
pub fn note_advice(advice: c_int) {
    if matches!(advice as u32, MADV_DONTFORK | MADV_WIPEONFORK) {
        HAS_MARKED.store(true, SeqCst);
    }
    if advice as u32 == MADV_WIPEONFORK {
        HAS_WIPED.store(true, SeqCst);
    }
}

/// Marks a range, all of it: nothing is asked of who may wait for a page. Or takes its mark off, when all is
/// in, but for what the program has marked: to the kernel that may be one mapping with its neighbours.
fn advise(range: AddressRange, advice: Advice) {
    let mut from = range.start;
    while from < range.end {
        let lifts = advice == Advice::DoFork;
        let kept = if lifts { MARKS.with(|marks| marks.kept.first_in(from..range.end)) } else { None };
        let kept = kept.unwrap_or(range.end..range.end);
        if from < kept.start {
            // SAFETY: content does not change. What is not mapped any more is left out.
            let _ = unsafe { mem::madvise(from..kept.start, advice) };
        }
        from = kept.end;
    }
}

/// Some ranges, in no order, each with the number of its mark.
struct Ranges {
    ranges: [(usize, usize, u64); KEPT_MAX],
    count: usize,
}

impl Ranges {
    const NONE: Ranges = Ranges { ranges: [(0, 0, 0); KEPT_MAX], count: 0 };

    /// False: there is no room.
    fn add(&mut self, range: AddressRange, since: u64) -> bool {
        self.remove(&range);
        let has_room = self.count < KEPT_MAX;
        if has_room {
            self.ranges[self.count] = (range.start, range.end, since);
            self.count += 1;
        }
        has_room
    }

    fn remove(&mut self, range: &AddressRange) {
        self.remove_older(range, u64::MAX);
    }

    /// What of them is no younger than that.
    fn remove_older(&mut self, range: &AddressRange, youngest: u64) {
        let mut index = 0;
        while index < self.count {
            let (start, end, since) = self.ranges[index];
            if !overlap(&(start..end), range) || since > youngest {
                index += 1;
                continue;
            }
            self.count -= 1;
            self.ranges[index] = self.ranges[self.count];
            for (from, to) in [(start, range.start.min(end)), (range.end.max(start), end)] {
                if from < to && self.count < KEPT_MAX {
                    self.ranges[self.count] = (from, to, since);
                    self.count += 1;
                }
            }
        }
    }

    /// The first of them that has a part in a range.
    fn first_in(&self, range: AddressRange) -> Option<AddressRange> {
        let all = self.ranges[..self.count].iter().map(|&(start, end, _)| start..end);
        all.filter(|kept| overlap(kept, &range)).min_by_key(|kept| kept.start)
    }

    /// The same, what of it is in the range, with its number.
    fn next_in(&self, range: AddressRange) -> Option<(AddressRange, u64)> {
        let all = self.ranges[..self.count].iter();
        let parts = all.map(|&(start, end, since)| (start.max(range.start)..end.min(range.end), since));
        parts.filter(|(part, _)| !part.is_empty()).min_by_key(|(part, _)| part.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &Ranges) -> Vec<(usize, usize)> {
        let mut list =
            ranges.ranges[..ranges.count].iter().map(|&(start, end, _)| (start, end)).collect::<Vec<_>>();
        list.sort_unstable();
        list
    }

    #[test]
    fn what_is_marked_again_is_kept_once_and_what_is_unmarked_leaves_the_rest() {
        let mut ranges = Ranges::NONE;
        assert!(ranges.add(10..20, 1) && ranges.add(15..30, 2));
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
        (0..KEPT_MAX).for_each(|index| assert!(ranges.add(10 * index..10 * index + 5, 1)));
        (0..5).for_each(|index| assert!(!ranges.add(10_000 + 10 * index..10_005 + 10 * index, 1)));
        assert_eq!(ranges.count, KEPT_MAX);
        ranges.remove(&(2..3));
        assert_eq!(ranges.count, KEPT_MAX, "a piece of it has the place of the whole");
    }

    /// *The story:* see [`before_change`].
    #[test]
    fn marks_go_with_what_they_are_of() {
        let mut marks = Marks::NONE;
        marks.keep(0x10_000..0x18_000);
        marks.follow(&(0x12_000..0x16_000), &(0x40_000..0x44_000), false, marks.made);
        assert_eq!(list(&marks.kept), [(0x10_000, 0x12_000), (0x16_000, 0x18_000), (0x40_000, 0x44_000)]);
        let youngest = marks.made;
        marks.keep(0x41_000..0x42_000);
        marks.forget(&(0x40_000..0x44_000), youngest);
        assert_eq!(list(&marks.kept)[2..], [(0x41_000, 0x42_000)], "what was made since then is another's");
        marks.forget(&(0..0x100_000), marks.made);
        assert_eq!(list(&marks.kept), []);
    }

    #[test]
    fn what_grows_shrinks_or_is_doubled_keeps_its_marks() {
        let mut marks = Marks::NONE;
        marks.keep(0x12_000..0x14_000);
        marks.follow(&(0x10_000..0x14_000), &(0x10_000..0x18_000), false, marks.made);
        assert_eq!(list(&marks.kept), [(0x12_000, 0x18_000)], "in place");
        marks.follow(&(0x10_000..0x18_000), &(0x10_000..0x13_000), false, marks.made);
        assert_eq!(list(&marks.kept), [(0x12_000, 0x13_000)], "cut");
        marks.keep(0x50_000..0x60_000);
        marks.follow(&(0x10_000..0x13_000), &(0x50_000..0x53_000), true, marks.made);
        let left = [(0x12_000, 0x13_000), (0x52_000, 0x53_000), (0x53_000, 0x60_000)];
        assert_eq!(list(&marks.kept), left, "over another that was marked");
    }
}
