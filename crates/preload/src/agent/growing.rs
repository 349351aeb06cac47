//! Locked memory that grows as it moves (mremap). The kernel fills what it grows by before it tells of the
//! move, and until that is read it refuses whatever else might fill it. So that part is left to the kernel,
//! and is not managed before the call has ended.
//!
//! *The story:* mlock, and a realloc that moved: the thread waited for ever, and so did all who touched what
//! was out (`torture mlock-grows`).

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

/// The call that is under way.
#[derive(Default)]
pub struct Growing(Option<(u32, Call)>);

impl Growing {
    /// None is. (What a child of fork has of its parent's is its parent's.)
    pub fn none() -> Growing {
        RANGE.clear();
        Growing(None)
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
        let call = call_of(in_proc);
        let Some((call, grown)) = call.and_then(|call| Some((call, grown_by(&call, page)?))) else {
            return false;
        };
        self.look();
        if self.0.is_some() {
            // One at a time: it touches again.
            engine.let_touch_again(page);
            return true;
        }
        let grown = grown.start..grown.end.min(mapping(page).end);
        let Some(grown) = engine.unmanaged(&grown).next().filter(|part| part.contains(&page)) else {
            return false;
        };
        RANGE.set(grown.clone());
        self.0 = Some((in_proc, call));
        // SAFETY: nobody has touched what it grows by: the kernel is about to fill it, with zeroes.
        unsafe { engine.leave_to_kernel(grown) };
        true
    }

    /// Once the call has ended what it has filled is memory like any other.
    pub fn look(&mut self) {
        if self.0.is_some_and(|(in_proc, call)| call_of(in_proc) != Some(call)) {
            self.0 = None;
            RANGE.clear();
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
    let (old_len, new_len) = (old_len.next_multiple_of(PAGE_SIZE), new_len.next_multiple_of(PAGE_SIZE));
    let may_move = number == __NR_mremap && flags as u32 & MREMAP_MAYMOVE != 0;
    let is_fixed = flags as u32 & MREMAP_FIXED != 0;
    let by = new_len.checked_sub(old_len).filter(|&by| by > 0 && may_move)?;
    let start = if is_fixed { new + old_len } else { page };
    let in_place = old + old_len..old + new_len;
    let grown = start..start + by;
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
    }
}
