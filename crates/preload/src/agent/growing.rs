//! Locked memory that grows as it moves (mremap). The kernel fills what it grows by before it tells of the
//! move, and until that is read it refuses whatever else might fill it. So that part is left to the kernel,
//! and is not managed before the call has ended.
//!
//! *The story:* mlock, and a realloc that moved: the thread waited for ever, and so did all who touched what
//! was out (`torture mlock-grows`).

use alloc::vec::Vec;

use linux_raw_sys::general::{__NR_mremap, MREMAP_FIXED, MREMAP_MAYMOVE};
use overspill_engine::Engine;
use overspill_sys::thread_call::{Call, call_of, number_in_proc};
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::told_range::ToldRange;

/// What is left to the kernel now.
static RANGE: ToldRange = ToldRange::none();

/// See [`RANGE`]; 0..0: nothing is.
pub fn range() -> AddressRange {
    RANGE.get()
}

/// The call that is under way, and others that began meanwhile.
#[derive(Default)]
pub struct Growing {
    is_under_way: bool,
    /// Where their threads wait: one after another.
    waiting: Vec<usize>,
}

impl Growing {
    /// None is. (What a child of fork has of its parent's is its parent's.)
    pub fn none() -> Growing {
        RANGE.clear();
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
        let Some(in_proc) = number_in_proc(thread) else { return false };
        let Some(grown) = call_of(in_proc).and_then(|call| grown_by(&call, page)) else { return false };
        self.look(engine);
        if self.is_under_way {
            self.waiting.push(page);
            return true;
        }
        let grown = grown.start..grown.end.min(mapping(page).end);
        let Some(grown) = engine.unmanaged(&grown).next().filter(|part| part.contains(&page)) else {
            return false;
        };
        RANGE.set(grown.clone());
        self.is_under_way = true;
        // SAFETY: nobody has touched what it grows by: the kernel is about to fill it, with zeroes.
        unsafe { engine.leave_to_kernel(grown) };
        true
    }

    /// Once the move is told, which is when all is filled, that is memory like any other.
    pub fn look(&mut self, engine: &mut Engine) {
        if self.is_under_way && engine.is_all_told() {
            self.is_under_way = false;
            RANGE.clear();
            self.waiting.drain(..).for_each(|page| engine.let_touch_again(page));
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        RANGE.clear();
    }
}

/// What memory grows by that moves, of a call whose thread waits at `page`: the kernel fills it from its
/// beginning on.
fn grown_by(&(number, [old, old_len, new_len, flags, new, _]): &Call, page: usize) -> Option<AddressRange> {
    if number != __NR_mremap || flags as u32 & MREMAP_MAYMOVE == 0 {
        return None;
    }
    let (old_len, new_len) =
        (old_len.checked_next_multiple_of(PAGE_SIZE)?, new_len.checked_next_multiple_of(PAGE_SIZE)?);
    let by = new_len.checked_sub(old_len).filter(|&by| by > 0)?;
    let is_fixed = flags as u32 & MREMAP_FIXED != 0;
    let start = if is_fixed { new.checked_add(old_len)? } else { page };
    let in_place = old.checked_add(old_len)?..old.checked_add(new_len)?;
    let grown = start..start.checked_add(by)?;
    (grown.contains(&page) && !in_place.contains(&page)).then_some(grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_behind_what_moves() {
        const MAY_MOVE: usize = MREMAP_MAYMOVE as usize;
        const FIXED: usize = MAY_MOVE | MREMAP_FIXED as usize;
        let by = |flags, page| grown_by(&(__NR_mremap, [0x10000, 0x2000, 0x5000, flags, 0x40000, 0]), page);
        assert_eq!(by(MAY_MOVE, 0x72000), Some(0x72000..0x75000));
        assert_eq!(by(FIXED, 0x43000), Some(0x42000..0x45000));
        assert_eq!((by(FIXED, 0x41000), by(0, 0x72000)), (None, None), "what moved is not to be filled");
        assert_eq!(by(MAY_MOVE, 0x13000), None, "in place nothing is refused");
        assert_eq!(grown_by(&(__NR_mremap, [0x10000, 0x2000, 0x2000, MAY_MOVE, 0, 0]), 0x72000), None);
        assert_eq!(grown_by(&(0, [0, 1, 2, MAY_MOVE, 0, 0]), 0x72000), None, "it is another call");
        assert_eq!(grown_by(&(__NR_mremap, [0, 1, usize::MAX, MAY_MOVE, 0, 0]), 0x72000), None);
    }
}
