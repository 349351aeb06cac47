//! mlockall: what is locked is the program's memory, never the agent's.
//!
//! The kernel locks all there is, and makes it present. The agent's staging would be filled with
//! pages that nobody ordered, and counted against whatever limit there is; nothing could be given
//! back any more. So mappings are locked one by one, as the call does it, but for the agent's own;
//! mappings to come are the kernel's business.
//!
//! *The story:* the agent found its trash locked, which it had asserted could not be, and ended the program.

use core::ffi::c_int;

use linux_raw_sys::general::{
    __NR_mlock2, __NR_mlockall, MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT,
};

use overspill_engine::report::Left;
use overspill_sys::maps::{self, Maps, Name, Vma};
use overspill_sys::{AddressRange, Errno, overlap};

use crate::undisturbed::undisturbed;
use crate::{files, filters, foreign, libc};

/// What is locked by one call: the kernel holds the lock of the address space meanwhile.
const PIECE_BYTES: usize = 2 << 20;

/// mlockall(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    foreign::pass!(mlockall(flags));
    // SAFETY: passed on to the caller.
    let call = |flags: u32| unsafe { libc::call(__NR_mlockall, [flags as usize, 0, 0, 0, 0, 0]) as c_int };
    // What could not be is locked as it is.
    let _ = files::hand_all_back(Left::Locked);
    let flags = flags as u32;
    let is_known = flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
    if !is_known || flags & MCL_CURRENT == 0 || filters::is_filtered() {
        return call(flags);
    }
    let Ok(maps) = Maps::open() else { return call(flags) };
    let how = if flags & MCL_ONFAULT == 0 { 0 } else { MLOCK_ONFAULT };
    // What is to come last: a call that is refused must not lock that.
    //
    // *The story:* it was locked first. Beyond the limit the call failed, and whoever went on could map
    // nothing any more.
    let mut locked = lock_all(&maps, how);
    if flags & MCL_FUTURE != 0 && locked.is_ok() {
        let result = call(flags & !MCL_CURRENT);
        if result != 0 {
            return result;
        }
        // What was mapped meanwhile.
        locked = lock_all(&maps, how);
    }
    locked.map_or_else(|errno| libc::fail(errno) as c_int, |()| 0)
}

/// Locks mapping by mapping. What cannot be made present is no failure, as for the call: only a
/// limit or a missing right is.
fn lock_all(maps: &Maps, how: u32) -> Result<(), Errno> {
    let mut buffer = [0; maps::BUFFER_BYTES];
    let mut at = 0;
    let lockable =
        |vma: &Vma<'_>| (vma.range(), !vma.prot.is_empty() && !matches!(vma.name, Name::Special(_)));
    while let Some((range, is_lockable)) = maps.query(at, true, &mut buffer, lockable)? {
        at = range.end;
        if is_lockable {
            lock_rest(range, how)?;
        }
    }
    Ok(())
}

/// Locks what of a mapping is not the agent's own.
fn lock_rest(range: AddressRange, how: u32) -> Result<(), Errno> {
    let mut from = range.start;
    while from < range.end {
        // The first of the agent's ranges that lies behind, or around.
        let mut own = range.end..range.end;
        // The arena is locked meanwhile, and the agent needs it for a fork.
        undisturbed(|| {
            crate::each_own_range(|part| {
                if overlap(&part, &(from..range.end)) && part.start < own.start {
                    own = part;
                }
            });
        });
        lock(from..own.start.max(from), how)?;
        from = own.end.max(from + 1);
    }
    Ok(())
}

/// Locks a range first and makes it present then: of the first a failure is one of the call, a
/// limit or a missing right.
fn lock(range: AddressRange, how: u32) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    let call = |start: usize, len: usize, how: u32| {
        // SAFETY: locking changes no content, whatever is mapped there by now.
        unsafe { overspill_sys::call(__NR_mlock2, [start, len, how as usize, 0, 0, 0]) }
    };
    if let Err(errno @ (Errno::NOMEM | Errno::PERM)) = call(range.start, range.len(), MLOCK_ONFAULT) {
        return Err(errno);
    }
    if how != MLOCK_ONFAULT {
        for start in range.clone().step_by(PIECE_BYTES) {
            // What lies behind the end of a file cannot be made present.
            let _ = call(start, (range.end - start).min(PIECE_BYTES), how);
        }
    }
    Ok(())
}
