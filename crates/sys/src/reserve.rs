//! Addresses put aside for this crate's own mappings, before the program around us counts on which
//! ones are free.
//!
//! *The story:* a program unmapped a part of its memory and, a moment later, mapped it again at the
//! same addresses, as it may. In between the agent's heap had grown, and the kernel had put it into
//! the gap. `MAP_FIXED_NOREPLACE` failed; `MAP_FIXED` would have replaced the agent's books.
//! Another program lowered its limit on address space, and the heap could not grow at all.
//!
//! So the agent asks for a range without access rights ([`set_up`]) while the program still waits
//! for it. From then on every [`Mapping`] lies in there, as long as there is room; afterwards the
//! kernel chooses, as it does where nothing was put aside. (It always does for the rings of
//! io_uring before 6.14, which are mapped once.) A reserve costs no memory, no commit charge, and no
//! more of a limit on address space than its length.
//!
//! Its first and its last page are never used. *The story:* a program mapped memory with
//! MAP_NORESERVE, which came to lie directly below the agent's heap. To the kernel the two were one
//! mapping, which was taken for the agent's own: 234 MiB stayed unmanaged.

use crate::lock::Lock;
use crate::maps::{self, Maps};
use crate::mem::{self, Advice, Mapping, Prot};
use crate::{AddressRange, Errno, PAGE_SIZE};
use core::cell::UnsafeCell;

/// Gaps that are kept in mind; the smallest is forgotten beyond that.
const GAPS_MAX: usize = 128;

struct Reserve {
    lock: Lock,
    state: UnsafeCell<State>,
}

struct State {
    start: usize,
    end: usize,
    /// What of the reserves before this one is mapped still, at most.
    left_behind: usize,
    /// The last of them, and its part of that, until it is counted.
    last: AddressRange,
    uncounted: usize,
    gaps: Gaps,
}

// SAFETY: the state is only touched under the lock.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve {
    lock: Lock::new(),
    state: UnsafeCell::new(State {
        start: 0,
        end: 0,
        left_behind: 0,
        last: 0..0,
        uncounted: 0,
        gaps: Gaps::NONE,
    }),
};

fn with<R>(action: impl FnOnce(&mut State) -> R) -> R {
    // SAFETY: the lock is held, so this is the only reference.
    RESERVE.lock.with(|| action(unsafe { &mut *RESERVE.state.get() }))
}

/// Puts `bytes` of addresses aside, or fewer: half as many as often as the kernel refuses (a limit
/// on address space), a page at least. There must be no reserve yet.
pub fn set_up(bytes: usize) -> Result<(), Errno> {
    let mut bytes = bytes.max(1).next_multiple_of(PAGE_SIZE);
    let range = loop {
        match Mapping::reserve(bytes) {
            Err(Errno::NOMEM) if bytes > PAGE_SIZE => bytes = (bytes / 2).next_multiple_of(PAGE_SIZE),
            result => break result?.leak(),
        }
    };
    without_huge_pages(&range);
    with(|state| {
        assert!(state.end == 0, "there is one reserve");
        (state.start, state.end, state.gaps) = (range.start, range.end, Gaps::NONE);
        let inner = range.start + PAGE_SIZE..range.end - PAGE_SIZE.min(range.len());
        if inner.start < inner.end {
            state.gaps.put(inner);
        }
    });
    Ok(())
}

/// Is there one?
#[must_use]
pub fn is_set_up() -> bool {
    with(|state| state.end != 0)
}

/// All of it, what is in use and what is not; empty when there is none.
#[must_use]
pub fn range() -> AddressRange {
    with(|state| state.start..state.end)
}

/// Begins anew in a child of fork: without a reserve, and without the unused part of its parent's.
/// What lay in there stays mapped, if the child has it.
///
/// # Safety
/// The process has one thread.
pub unsafe fn forget() {
    let was_free = RESERVE.lock.forget();
    let mut gaps = with(|state| {
        state.last = state.start..state.end;
        state.uncounted = state.last.len();
        (state.start, state.end) = (0, 0);
        core::mem::replace(&mut state.gaps, Gaps::NONE)
    });
    // Where fork came in the middle of a change the gaps may be anything.
    while let Some(gap) = gaps.pop().filter(|_| was_free) {
        // SAFETY: a gap was mapped in the parent and is inherited; nobody uses it.
        if unsafe { mem::munmap(gap.clone()) }.is_ok() {
            with(|state| state.uncounted -= gap.len());
        }
    }
    with(|state| state.left_behind += state.uncounted);
}

/// Bytes of reserves before [`forget`] that are mapped still. It is asked before anything is
/// mapped where they were.
///
/// *The story:* what no child of fork gets was counted, staging above all. The child's reserve was
/// smaller by that, and what found no room in there came out of the program's limit.
#[must_use]
pub fn left_behind() -> usize {
    let last = with(|state| state.last.clone());
    if let Ok(bytes) = mapped_bytes(last) {
        with(|state| {
            state.left_behind -= state.uncounted - bytes.min(state.uncounted);
            (state.last, state.uncounted) = (0..0, 0);
        });
    }
    with(|state| state.left_behind)
}

/// What of a range is mapped.
fn mapped_bytes(range: AddressRange) -> Result<usize, Errno> {
    if range.is_empty() {
        return Ok(0);
    }
    let maps = Maps::open()?;
    let mut buffer = [0; maps::BUFFER_BYTES];
    let (mut bytes, mut at) = (0, range.start);
    while let Some(found) = maps.query(at, true, &mut buffer, |vma| vma.range())? {
        if found.start >= range.end {
            break;
        }
        bytes += found.end.min(range.end) - found.start.max(at);
        at = found.end;
    }
    Ok(bytes)
}

/// Where in the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// At the start of the lowest gap: so the highest, the largest at first, stays whole.
    None,
    /// In the middle of the largest gap, for what may be extended.
    ToGrow,
}

/// Takes `len` bytes (whole pages), to be replaced by a mapping. `None` when there is no gap of that size.
pub(crate) fn take(len: usize) -> Option<usize> {
    with(|state| state.gaps.take(len, Room::None))
}

/// Takes `len` bytes (whole pages) as private anonymous memory, zeroed. NOMEM: the process may not
/// have more private data (`RLIMIT_DATA`), or not so many mappings.
pub(crate) fn take_anon(len: usize, prot: Prot, room: Room) -> Result<Option<usize>, Errno> {
    let Some(start) = with(|state| state.gaps.take(len, room)) else { return Ok(None) };
    open(start..start + len, prot).map(|()| Some(start))
}

/// Makes a range of private anonymous memory `len` bytes long, in its place. NOMEM when there is no
/// gap behind it that is long enough, and as for [`take_anon`].
pub(crate) fn extend(range: AddressRange, len: usize) -> Result<(), Errno> {
    let more = range.end..range.start + len;
    if !with(|state| state.gaps.take_at(more.clone())) {
        return Err(Errno::NOMEM);
    }
    open(more, Prot::RW)
}

/// Gives access to what was taken from the gaps, or gives it back.
fn open(range: AddressRange, prot: Prot) -> Result<(), Errno> {
    // SAFETY: nobody else uses what was taken, and nothing was ever stored in it. A refusal leaves
    // it as it is.
    let result = unsafe { mem::mprotect(range.clone(), prot) };
    if result.is_err() {
        with(|state| state.gaps.put(range));
    }
    result
}

/// Is the range a part of it? Then it must be given back, not unmapped.
pub(crate) fn holds(range: &AddressRange) -> bool {
    with(|state| state.start <= range.start && range.end <= state.end)
}

/// Gives back what was taken. What cannot be given back is not used again.
///
/// # Safety
/// Nobody uses the range any more.
pub(crate) unsafe fn give_back(range: AddressRange) -> Result<(), Errno> {
    // SAFETY: the caller vouches that what is mapped there may go.
    unsafe { mem::map_anon_fixed(range.clone(), Prot::empty())? };
    without_huge_pages(&range);
    with(|state| state.gaps.put(range));
    Ok(())
}

/// Sparse tables and stacks must cost only what is touched.
fn without_huge_pages(range: &AddressRange) {
    // SAFETY: content does not change. A kernel without huge pages refuses the advice, which is as good.
    let _ = unsafe { mem::madvise(range.clone(), Advice::NoHugePage) };
}

/// Ranges that are free, in no order, no two of them adjacent.
struct Gaps {
    gaps: [(usize, usize); GAPS_MAX],
    count: usize,
}

impl Gaps {
    const NONE: Gaps = Gaps { gaps: [(0, 0); GAPS_MAX], count: 0 };

    fn take(&mut self, len: usize, room: Room) -> Option<usize> {
        let length = |&index: &usize| self.gaps[index].1 - self.gaps[index].0;
        let fitting = (0..self.count).filter(|index| length(index) >= len);
        let start = match room {
            Room::None => fitting.map(|index| self.gaps[index].0).min()?,
            Room::ToGrow => {
                let largest = fitting.max_by_key(length)?;
                self.gaps[largest].0 + (length(&largest) - len) / 2 / PAGE_SIZE * PAGE_SIZE
            }
        };
        assert!(self.take_at(start..start + len), "it lies in a gap");
        Some(start)
    }

    /// Takes a certain range; false when it is not free.
    fn take_at(&mut self, range: AddressRange) -> bool {
        let holds = |&(start, end): &(usize, usize)| start <= range.start && range.end <= end;
        let Some(index) = self.gaps[..self.count].iter().position(holds) else { return false };
        let (start, end) = self.gaps[index];
        self.remove(index);
        for part in [start..range.start, range.end..end] {
            if !part.is_empty() {
                self.put(part);
            }
        }
        true
    }

    fn put(&mut self, range: AddressRange) {
        let (mut start, mut end) = (range.start, range.end);
        let mut index = 0;
        while index < self.count {
            let (from, to) = self.gaps[index];
            assert!(to <= start || end <= from, "a range is given back once");
            if to == start || end == from {
                (start, end) = (start.min(from), end.max(to));
                self.remove(index);
            } else {
                index += 1;
            }
        }
        if self.count == GAPS_MAX {
            let length = |&index: &usize| self.gaps[index].1 - self.gaps[index].0;
            self.remove((0..self.count).min_by_key(length).expect("it is full"));
        }
        self.gaps[self.count] = (start, end);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<AddressRange> {
        let index = self.count.checked_sub(1)?;
        let (start, end) = self.gaps[index];
        self.remove(index);
        Some(start..end)
    }

    fn remove(&mut self, index: usize) {
        self.count -= 1;
        self.gaps[index] = self.gaps[self.count];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = PAGE_SIZE;

    /// Their first and last pages, in order.
    fn gaps_of(gaps: &Gaps) -> std::vec::Vec<(usize, usize)> {
        let pages = |&(start, end): &(usize, usize)| (start / PAGE, end / PAGE);
        let mut list: std::vec::Vec<_> = gaps.gaps[..gaps.count].iter().map(pages).collect();
        list.sort_unstable();
        list
    }

    #[test]
    fn the_lowest_gap_that_fits_is_taken_from() {
        let mut gaps = Gaps::NONE;
        gaps.put(10 * PAGE..12 * PAGE);
        gaps.put(20 * PAGE..90 * PAGE);
        assert_eq!(gaps.take(3 * PAGE, Room::None), Some(20 * PAGE));
        assert_eq!(gaps.take(2 * PAGE, Room::None), Some(10 * PAGE));
        assert_eq!(gaps.take(68 * PAGE, Room::None), None);
        assert_eq!(gaps_of(&gaps), [(23, 90)]);
    }

    #[test]
    fn what_grows_has_a_gap_behind_it() {
        let mut gaps = Gaps::NONE;
        gaps.put(0..100 * PAGE);
        assert_eq!(gaps.take(10 * PAGE, Room::ToGrow), Some(45 * PAGE));
        assert_eq!(gaps.take(10 * PAGE, Room::ToGrow), Some(72 * PAGE));
        assert!(gaps.take_at(55 * PAGE..60 * PAGE));
        assert!(!gaps.take_at(60 * PAGE..73 * PAGE));
        assert_eq!(gaps_of(&gaps), [(0, 45), (60, 72), (82, 100)]);
    }

    #[test]
    fn neighbours_become_one() {
        let mut gaps = Gaps::NONE;
        gaps.put(0..PAGE);
        gaps.put(2 * PAGE..3 * PAGE);
        gaps.put(PAGE..2 * PAGE);
        assert_eq!(gaps_of(&gaps), [(0, 3)]);
    }

    #[test]
    #[should_panic(expected = "once")]
    fn nothing_is_given_back_twice() {
        let mut gaps = Gaps::NONE;
        gaps.put(0..4 * PAGE);
        gaps.put(PAGE..2 * PAGE);
    }

    #[test]
    fn of_too_many_gaps_the_smallest_is_forgotten() {
        let mut gaps = Gaps::NONE;
        for index in 0..GAPS_MAX {
            gaps.put(index * 100 * PAGE..(index * 100 + 2 + usize::from(index != 5)) * PAGE);
        }
        gaps.put(1_000_000 * PAGE..1_000_009 * PAGE);
        let list = gaps_of(&gaps);
        assert_eq!(list.len(), GAPS_MAX);
        assert!(list.iter().all(|(start, end)| end - start > 2));
    }
}
