//! Mappings of files that fit: the kernel's for as long as the budget has room for all of them.
//!
//! What the kernel has mapped costs nobody anything: no reads past the page cache, no agent, small pages
//! of the cache mapped sixteen at a time. So a large read-only mapping of a file that fits in what the
//! budget has free is made by the kernel, and only where it lies is remembered. When the budget gets
//! tight the agent takes all of them (`file_agent::take_kept`): it puts managed memory over each, in a
//! turn ([`remap::Turn`]) in which nobody else changes them.
//!
//! So whatever changes a kept mapping by way of libc goes through [`changing`]: between two turns, and
//! told here before the next one begins. Who does it by calls of his own is not seen; the agent asks the
//! kernel what is there in its turn, and leaves alone what is not the file's.
//!
//! A child of fork has the mappings, too, and they are still kept: for its own agent.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use linux_raw_sys::general::__NR_munmap;
use overspill_sys::lock::Lock;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use crate::undisturbed::undisturbed;
use crate::{fork, libc, remap};

/// Pieces that can be kept at a time.
const PIECES: usize = 64;

/// Bytes that may still be mapped and kept: what the budget has free beside all that is kept.
static ROOM: AtomicUsize = AtomicUsize::new(0);
/// Bytes of all pieces.
static TOTAL: AtomicUsize = AtomicUsize::new(0);
/// Held by whoever changes the pieces, or looks at more than one.
static CHANGING: Lock = Lock::new();
static START: [AtomicUsize; PIECES] = [const { AtomicUsize::new(0) }; PIECES];
static END: [AtomicUsize; PIECES] = [const { AtomicUsize::new(0) }; PIECES];

/// For the agent: the budget has so many bytes free, all that is kept being in RAM.
pub fn set_room(bytes: u64) {
    ROOM.store(usize::try_from(bytes).unwrap_or(usize::MAX), SeqCst);
}

/// Takes room for a mapping. False: it does not fit, or there are too many.
///
/// *The story* (by reading): the mapping behind the last place was the kernel's for good, and counted by
/// nobody.
pub fn take_room(bytes: usize) -> bool {
    let has_place = (0..PIECES).any(|index| piece(index).is_empty());
    has_place
        && !fork::is_strange()
        && ROOM.fetch_update(SeqCst, SeqCst, |room| room.checked_sub(bytes)).is_ok()
}

/// Bytes that are kept, in RAM or not.
pub fn bytes() -> u64 {
    TOTAL.load(SeqCst) as u64
}

/// Of `shared_bytes` of files and shared memory that the process has in RAM: so many at most are of
/// mappings that are kept. What there is of libraries counts for them, too, where less of them is in RAM.
pub fn resident(shared_bytes: u64) -> u64 {
    shared_bytes.min(bytes())
}

fn piece(index: usize) -> AddressRange {
    START[index].load(SeqCst)..END[index].load(SeqCst)
}

fn set(index: usize, range: &AddressRange) {
    let before = piece(index).len();
    let (start, end) = if range.is_empty() { (0, 0) } else { (range.start, range.end) };
    START[index].store(start, SeqCst);
    END[index].store(end, SeqCst);
    // First what comes, as the sum is never below zero.
    TOTAL.fetch_add(range.len(), SeqCst);
    TOTAL.fetch_sub(before, SeqCst);
}

/// Does it concern anything that is kept? A child that no handler of fork knows of may have been made while
/// another thread changed the pieces: it would wait for that in vain, and has no agent that takes them.
pub fn overlaps(range: &AddressRange) -> bool {
    bytes() > 0
        && !fork::is_strange()
        && undisturbed(|| {
            CHANGING.with(|| (0..PIECES).any(|index| overspill_sys::overlap(&piece(index), range)))
        })
}

/// The first piece, or part of one, at or behind an address.
pub fn next(from: usize) -> Option<AddressRange> {
    let parts = || (0..PIECES).map(piece).map(|range| range.start.max(from)..range.end);
    undisturbed(|| CHANGING.with(|| parts().filter(|part| !part.is_empty()).min_by_key(|part| part.start)))
}

/// Keeps a range from now on. False: there are too many.
fn keep(range: &AddressRange) -> bool {
    let free = (0..PIECES).find(|&index| piece(index).is_empty());
    free.is_some_and(|index| {
        set(index, range);
        true
    })
}

/// Keeps nothing of a range any more. Returns how many bytes of it were; none where a piece would be cut
/// in two for which there is no place: it stays whole then, as the kernel is asked what is there.
fn drop_range(range: &AddressRange) -> usize {
    let before = TOTAL.load(SeqCst);
    for index in 0..PIECES {
        let piece = piece(index);
        if !overspill_sys::overlap(&piece, range) {
            continue;
        }
        let (head, behind) = (piece.start..range.start.max(piece.start), range.end..piece.end);
        set(index, if head.is_empty() { &behind } else { &head });
        if !head.is_empty() && !behind.is_empty() && !keep(&behind) {
            set(index, &piece);
        }
    }
    before - TOTAL.load(SeqCst)
}

/// Forgets what is kept of a range, in the agent's turn or between two. Returns its bytes.
pub fn forget(range: &AddressRange) -> usize {
    undisturbed(|| CHANGING.with(|| drop_range(range)))
}

/// What a call does to what is kept.
pub enum Change {
    /// It is gone from there.
    Gone,
    /// It lies elsewhere, and is so long.
    Moved(usize),
    /// It stays.
    None,
}

/// Makes a call that concerns a range between two turns of the agent; `change` says from its result what
/// became of what is kept there.
pub fn changing(
    range: &AddressRange,
    mut call: impl FnMut() -> Result<usize, Errno>,
    change: impl Fn(usize) -> Change,
) -> Result<usize, Errno> {
    remap::in_turns(|| {
        let value = call()?;
        match change(value) {
            Change::Gone => drop(forget(range)),
            Change::Moved(len) => undisturbed(|| {
                CHANGING.with(|| {
                    if drop_range(range) > 0 {
                        drop_range(&(value..value + len));
                        keep(&(value..value + len));
                    }
                });
            }),
            Change::None => {}
        }
        Ok(value)
    })
}

/// Has a mapping of `bytes` of a file made by the kernel, and keeps it. The room for it was taken.
pub fn map(bytes: usize, mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    let start = call()?;
    let range = start..start + bytes.next_multiple_of(PAGE_SIZE);
    undisturbed(|| {
        CHANGING.with(|| {
            // What was there went by a call that nobody saw.
            drop_range(&range);
            keep(&range);
        });
    });
    Ok(start)
}

/// Nothing of a range is kept any more, for it is to be the kernel's for good. Returns its bytes.
pub fn give_up(range: &AddressRange) -> usize {
    if !overlaps(range) {
        return 0;
    }
    let mut bytes = 0;
    let _ = remap::in_turns(|| {
        bytes = forget(range);
        Ok(0)
    });
    bytes
}

/// In a child of fork, in its only thread.
pub fn in_child() {
    ROOM.store(0, SeqCst);
    if !CHANGING.forget() {
        // Half changed, by a thread that is not there: they are the kernel's.
        (0..PIECES).for_each(|index| set(index, &(0..0)));
        TOTAL.store(0, SeqCst);
    }
}

/// munmap(2), in turns with the agent where it concerns what is kept.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, len: usize) -> c_int {
    let arguments = [start as usize, len, 0, 0, 0, 0];
    // SAFETY: passed on to the caller.
    let call = || unsafe { overspill_sys::call(__NR_munmap, arguments) };
    let end = (start as usize).saturating_add(len.checked_next_multiple_of(PAGE_SIZE).unwrap_or(len));
    let range = start as usize..end;
    let result = if overlaps(&range) { changing(&range, call, |_| Change::Gone) } else { call() };
    result.map_or_else(|errno| libc::fail(errno) as c_int, |_| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: what is kept is the process's.
    #[test]
    fn pieces_are_cut_moved_and_counted() {
        let kept = || {
            let mut pieces = Vec::new();
            let mut from = 0;
            while let Some(piece) = next(from) {
                from = piece.end;
                pieces.push(piece);
            }
            pieces
        };
        set_room(0x7000);
        assert!(take_room(0x6000) && !take_room(0x2000) && take_room(0x1000));
        assert_eq!(map(0x8fff, || Ok(0x10000)), Ok(0x10000));
        assert_eq!((bytes(), resident(0x3000), resident(0x30000)), (0x9000, 0x3000, 0x9000));
        assert!(overlaps(&(0x18000..0x30000)) && !overlaps(&(0x19000..0x30000)));
        let failed = changing(&(0..0x20000), || Err(Errno::NOMEM), |_| Change::Gone);
        assert_eq!((failed, kept().len(), bytes()), (Err(Errno::NOMEM), 1, 0x9000));
        let _ = changing(&(0x12000..0x13000), || Ok(0), |_| Change::Gone);
        assert_eq!(kept(), [0x10000..0x12000, 0x13000..0x19000]);
        let _ = changing(&(0x10000..0x12000), || Ok(0x40000), |_| Change::Moved(0x1000));
        assert_eq!((kept(), bytes()), (vec![0x13000..0x19000, 0x40000..0x41000], 0x7000));
        let _ = changing(&(0x50000..0x52000), || Ok(0x60000), |_| Change::Moved(0x1000));
        assert_eq!(give_up(&(0x14000..0x15000)), 0x1000);
        assert_eq!(forget(&(0..usize::MAX)), 0x6000);
        assert_eq!((kept(), bytes()), (vec![], 0));
        for at in 0..=PIECES {
            let _ = map(0x3000, || Ok(0x10000 * (at + 1)));
        }
        assert_eq!(kept().len(), PIECES);
        assert_eq!(forget(&(0x11000..0x12000)), 0, "no place for the second half");
        assert_eq!(forget(&(0x10000..0x11000)), 0x1000);
        in_child();
        assert_eq!(kept().len(), PIECES, "a child has them, too");
        forget(&(0..usize::MAX));
    }
}
