//! Locked memory that grows as it moves (mremap). The kernel fills what it grows by before it tells of the
//! move, and until that is read it refuses whatever else might fill it. So that part is left to the kernel,
//! and is not managed before the call has ended.
//!
//! *The story:* mlock, and a realloc that moved: the thread waited for ever, and so did all who touched what
//! was out (`torture mlock-grows`).
//!
//! *Another story:* where it moved over memory that was managed (MREMAP_FIXED), the books still had what had
//! been there, as that is told after the filling, too: a page of that was read and refused, for ever
//! (`torture mlock-grows-over`).
//!
//! *A third:* two threads did so at once. The second had to wait for what the first had to tell, and that
//! was only known to be all once the second had told its own (`torture mlock-grows-at-once`).
//!
//! *A fourth:* where it moved to right behind where it had been, what it grew by was taken for growth in
//! place, by its address: both hung again, once in some hundred runs (`torture mlock-grows-over`).

use alloc::vec::Vec;

use linux_raw_sys::general::{__NR_mremap, MREMAP_FIXED, MREMAP_MAYMOVE};
use overspill_engine::Engine;
use overspill_sys::thread_call::{Call, call_of, number_in_proc};
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::told_range::ToldRange;

/// So many calls at once are let go on. More wait until one of them has ended.
const CALLS_MAX: usize = 32;

/// What is left to the kernel now.
static RANGES: [ToldRange; CALLS_MAX] = [const { ToldRange::none() }; CALLS_MAX];

/// See [`RANGES`]: those of calls that are under way.
pub fn each_range(visit: &mut impl FnMut(AddressRange)) {
    RANGES.iter().map(ToldRange::get).filter(|range| !range.is_empty()).for_each(visit);
}

/// The calls that are under way.
#[derive(Default)]
pub struct Growing {
    /// Each by the number of its thread in /proc; its range is at the same place of [`RANGES`].
    calls: [Option<u32>; CALLS_MAX],
    /// Where the threads of others wait.
    waiting: Vec<usize>,
}

impl Growing {
    /// None is. (What a child of fork has of its parent's is its parent's.)
    pub fn none() -> Growing {
        clear_all();
        Growing::default()
    }

    /// A thread waits at `page`, where nothing is known; `mapping` says how far that is one. True: it fills
    /// what locked memory grows by, and goes on.
    pub fn lets_go(
        &mut self,
        engine: &mut Engine,
        page: usize,
        thread: u32,
        mapping: impl FnOnce(usize) -> AddressRange,
    ) -> bool {
        let Some((in_proc, grown)) = grown_by_thread(thread, page) else { return false };
        let mapping = mapping(page);
        if grown.is_in_place(&mapping) {
            return false;
        }
        let grown = grown.range.start..grown.range.end.min(mapping.end);
        let Some(grown) = engine.unmanaged(&grown).next().filter(|part| part.contains(&page)) else {
            return false;
        };
        self.leave(engine, page, in_proc, grown);
        true
    }

    /// The same where something is known of the page, and a change is not told for long: what was there
    /// before memory moved over it.
    pub fn lets_go_over(&mut self, engine: &mut Engine, page: usize, thread: u32) -> bool {
        let grown = grown_by_thread(thread, page).filter(|(_, grown)| grown.is_fixed);
        let Some((in_proc, grown)) = grown else { return false };
        self.leave(engine, page, in_proc, grown.range);
        true
    }

    /// Leaves `grown` to the kernel, for a thread that waits at a page of it.
    fn leave(&mut self, engine: &mut Engine, page: usize, in_proc: u32, grown: AddressRange) {
        self.look(engine);
        let Some(place) = self.calls.iter().position(Option::is_none) else {
            self.waiting.push(page);
            return;
        };
        // What the books have of it is gone. Of what is not registered no more is told.
        engine.forget_lost(grown.clone());
        self.calls[place] = Some(in_proc);
        RANGES[place].set(grown.clone());
        // SAFETY: nobody has touched what it grows by: the kernel is about to fill it, with zeroes.
        unsafe { engine.leave_to_kernel(grown) };
    }

    /// Once all is told, which is when all is filled, that is memory like any other. Calls that have ended
    /// make room before that.
    pub fn look(&mut self, engine: &mut Engine) {
        if self.calls.iter().all(Option::is_none) {
            return;
        }
        if engine.is_all_told() {
            self.calls = Default::default();
            clear_all();
        } else if self.calls.iter().all(Option::is_some) {
            self.make_room();
        }
        if self.calls.iter().any(Option::is_none) {
            self.waiting.drain(..).for_each(|page| engine.let_touch_again(page));
        }
    }

    fn make_room(&mut self) {
        for (call, range) in self.calls.iter_mut().zip(&RANGES) {
            let is_under_way = |&in_proc: &u32| {
                call_of(in_proc).and_then(|call| grown_by(&call, range.get().start)).is_some()
            };
            *call = call.filter(is_under_way);
            if call.is_none() {
                range.clear();
            }
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        clear_all();
    }
}

fn clear_all() {
    RANGES.iter().for_each(ToldRange::clear);
}

/// What a call makes memory grow by.
#[derive(Debug, PartialEq)]
struct Grown {
    range: AddressRange,
    /// Where what grows was before the call.
    old: usize,
    /// The caller has said where.
    is_fixed: bool,
}

impl Grown {
    /// Has it not moved? It is in one mapping with what grew, and nothing is refused there.
    fn is_in_place(&self, mapping: &AddressRange) -> bool {
        !self.is_fixed && mapping.contains(&self.old)
    }
}

/// The number in /proc of a thread that waits at `page`, and what its call makes memory grow by there.
fn grown_by_thread(thread: u32, page: usize) -> Option<(u32, Grown)> {
    let in_proc = number_in_proc(thread)?;
    Some((in_proc, grown_by(&call_of(in_proc)?, page)?))
}

/// What memory grows by that moves, of a call whose thread waits at `page`: the kernel fills it from its
/// beginning on.
fn grown_by(&(number, [old, old_len, new_len, flags, new, _]): &Call, page: usize) -> Option<Grown> {
    if number != __NR_mremap || flags as u32 & MREMAP_MAYMOVE == 0 {
        return None;
    }
    let (old_len, new_len) =
        (old_len.checked_next_multiple_of(PAGE_SIZE)?, new_len.checked_next_multiple_of(PAGE_SIZE)?);
    let by = new_len.checked_sub(old_len).filter(|&by| by > 0)?;
    let is_fixed = flags as u32 & MREMAP_FIXED != 0;
    let start = if is_fixed { new.checked_add(old_len)? } else { page };
    let range = start..start.checked_add(by)?;
    range.contains(&page).then_some(Grown { range, old, is_fixed })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Right behind where it was there may be what it has moved to.
    #[test]
    fn growth_in_place_is_in_one_mapping_with_what_grew() {
        let grown = |is_fixed| Grown { range: 0x14000..0x17000, old: 0x10000, is_fixed };
        assert!(grown(false).is_in_place(&(0x8000..0x17000)));
        assert!(!grown(false).is_in_place(&(0x12000..0x17000)), "another mapping, behind a hole");
        assert!(!grown(true).is_in_place(&(0x8000..0x17000)), "over other memory nothing grows in place");
    }

    #[test]
    fn what_grows_is_behind_what_moves() {
        const MAY_MOVE: usize = MREMAP_MAYMOVE as usize;
        const FIXED: usize = MAY_MOVE | MREMAP_FIXED as usize;
        let by = |flags, page| grown_by(&(__NR_mremap, [0x10000, 0x2000, 0x5000, flags, 0x40000, 0]), page);
        let grown = |range, is_fixed| Some(Grown { range, old: 0x10000, is_fixed });
        assert_eq!(by(MAY_MOVE, 0x72000), grown(0x72000..0x75000, false));
        assert_eq!(by(FIXED, 0x43000), grown(0x42000..0x45000, true));
        assert_eq!((by(FIXED, 0x41000), by(0, 0x72000)), (None, None), "what moved is not to be filled");
        assert_eq!(grown_by(&(__NR_mremap, [0x10000, 0x2000, 0x2000, MAY_MOVE, 0, 0]), 0x72000), None);
        assert_eq!(grown_by(&(0, [0, 1, 2, MAY_MOVE, 0, 0]), 0x72000), None, "it is another call");
        assert_eq!(grown_by(&(__NR_mremap, [0, 1, usize::MAX, MAY_MOVE, 0, 0]), 0x72000), None);
    }
}
