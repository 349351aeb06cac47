//! A limit on address space (RLIMIT_AS) is the program's: what the agent takes comes on top of it.
//!
//! The kernel is told more than the program asks for, and the program is told what it asked for.
//! What stands for what is in the launcher's page ([`Raised`](overspill_engine::raised::Raised)), so
//! that a program that was executed or started with a raised limit knows it, and raises it no more.
//! Where a limit was there before and may not be raised, the agent takes a sixteenth of it at most, or
//! stays away.
//!
//! Out of reach: calls by the bare instruction, and prlimit of another process.
//!
//! *The story:* a program set 160 MiB and used 96. The agent had put 280 aside before: the program's
//! next mapping failed, and the verdict said that it fits.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_getrlimit, __NR_prlimit64, __NR_setrlimit, RLIMIT_AS};
use overspill_engine::raised::Raised;
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{Errno, mem};

use crate::{agent, libc, peek, veto};

/// Current and largest value (`struct rlimit`).
type Pair = [u64; 2];

/// What the agent takes of the addresses; 0 while there is none, or none that had to ask.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The agent is about to take `bytes` of addresses. EPERM: there is a limit that leaves no room, and
/// it may not be raised.
pub fn make_room(raised: &Raised, bytes: u64) -> Result<(), Errno> {
    /// This share of a limit is not missed.
    const SHARE: u64 = 16;
    let (now, most) = procfs::limit(Limit::AddressSpace)?;
    let more = |limit| match raised.asked(limit) {
        // A program before this one may have had more on top.
        Some(asked) => raised.raise(asked, bytes).map_or(Some(limit), |more| Some(more.min(limit))),
        None => raised.raise(limit, bytes),
    };
    let set = |now, most| procfs::set_limit(Limit::AddressSpace, (now, most)).is_ok();
    let has_room = match [more(now), more(most)] {
        [Some(more_now), Some(more_most)] => {
            [more_now, more_most] == [now, most]
                || set(more_now, more_most)
                || more_now <= most && set(more_now, most)
        }
        // So many limits are noted already.
        _ => false,
    };
    if !has_room && bytes > now / SHARE {
        return Err(Errno::PERM);
    }
    TAKEN.store(bytes, SeqCst);
    Ok(())
}

/// Is there a limit?
pub fn are_set() -> bool {
    procfs::limit(Limit::AddressSpace).is_ok_and(|(now, _)| now != u64::MAX)
}

/// Is this limit kept for the program? Then where it is noted.
fn kept(resource: c_int) -> Option<&'static Raised> {
    let is_kept = resource as u32 == RLIMIT_AS && TAKEN.load(SeqCst) != 0;
    agent::raised().filter(|_| is_kept)
}

/// What the kernel is told in place of what the program asks for.
fn raised(raised: &Raised, asked: Pair) -> Pair {
    // A program of that many limits shares this one with the agent.
    asked.map(|limit| raised.raise(limit, taken()).unwrap_or(limit))
}

/// The addresses that are not the program's.
fn taken() -> u64 {
    TAKEN.load(SeqCst) + veto::range().len() as u64
}

/// The same where the largest value may not be raised: as much as it leaves. `None`: the program asks
/// for more than it may.
fn within_most(known: &Raised, [now, most]: Pair) -> Option<Pair> {
    let (_, largest) = procfs::limit(Limit::AddressSpace).ok()?;
    let may = known.asked(largest).unwrap_or(largest);
    let below = |limit, bound| if limit == may { largest } else { known.raise_below(limit, taken(), bound) };
    let new_most = below(most, largest);
    let new_now = if now == most { new_most } else { below(now, new_most) };
    (now <= most && most <= may).then_some([new_now, new_most])
}

/// prlimit(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(pid: c_int, resource: c_int, new: *const Pair, old: *mut Pair) -> c_int {
    let kept = kept(resource).filter(|_| pid == 0 || pid as u32 == mem::process_id());
    let asked = kept.filter(|_| !new.is_null()).and_then(|known| {
        // SAFETY: behind a filter the caller vouches for the pair. What cannot be read is the kernel's to
        // refuse.
        unsafe { peek::words(new as usize) }.map(|asked| (known, asked))
    });
    let call = |new: *const Pair| {
        let arguments = [pid as usize, resource as usize, new as usize, old as usize, 0, 0];
        // SAFETY: passed on to the caller.
        unsafe { libc::call(__NR_prlimit64, arguments) as c_int }
    };
    let result = match asked {
        None => call(new),
        Some((known, asked)) => {
            let limits = raised(known, asked);
            let result = call(&raw const limits);
            let is_refused = result != 0 && libc::errno() == Errno::PERM;
            let less = is_refused.then(|| within_most(known, asked)).flatten();
            less.map_or(result, |less| call(&raw const less))
        }
    };
    if let Some(known) = kept.filter(|_| result == 0 && !old.is_null()) {
        // SAFETY: the kernel has just stored a pair there.
        unsafe { old.write_unaligned(old.read_unaligned().map(|limit| known.asked(limit).unwrap_or(limit))) }
    }
    result
}

/// prlimit64, the same.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(pid: c_int, resource: c_int, new: *const Pair, old: *mut Pair) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { prlimit(pid, resource, new, old) }
}

/// setrlimit(2), by the call that libc makes for it: a filter may allow that one only.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_int, new: *const Pair) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { prlimit(0, resource, new, core::ptr::null_mut()) }
}

/// setrlimit64, the same.
///
/// # Safety
/// As for [`setrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_int, new: *const Pair) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { setrlimit(resource, new) }
}

/// getrlimit(2), as above.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit(resource: c_int, old: *mut Pair) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { prlimit(0, resource, core::ptr::null(), old) }
}

/// getrlimit64, the same.
///
/// # Safety
/// As for [`getrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit64(resource: c_int, old: *mut Pair) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { getrlimit(resource, old) }
}

/// One of these calls by its number, where the limit is one that is kept.
///
/// # Safety
/// As for the system call.
pub unsafe fn by_number(number: c_uint, arguments: [usize; 4]) -> Option<c_int> {
    let [a, b, c, d] = arguments;
    kept(if number == __NR_prlimit64 { b } else { a } as c_int)?;
    // SAFETY: passed on to the caller.
    unsafe {
        if number == __NR_getrlimit {
            Some(getrlimit(a as c_int, b as _))
        } else if number == __NR_setrlimit {
            Some(setrlimit(a as c_int, b as _))
        } else if number == __NR_prlimit64 {
            Some(prlimit(a as c_int, b as c_int, c as _, d as _))
        } else {
            None
        }
    }
}
