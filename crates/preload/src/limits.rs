//! Limits on address space (RLIMIT_AS) and private data (RLIMIT_DATA) are the program's: what the agent
//! takes comes on top of them.
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
//!
//! *Another story:* with 160 MiB of private data a program was managed, in 32 MiB of RAM, and staging was 128
//! MiB of that. What it mapped next failed.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_getrlimit, __NR_prlimit64, __NR_setrlimit};
use overspill_engine::raised::Raised;
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{Errno, mem};

use crate::{agent, cpu_limit, files, foreign, libc, peek, veto};

/// Current and largest value (`struct rlimit`).
type Pair = [u64; 2];

/// A limit that is kept for the program.
pub struct Kept {
    limit: Limit,
    /// What the agent takes of it; 0 while there is none, or none that had to ask.
    taken: AtomicU64,
    /// What it will ever take: by so much the largest value is higher, which is not raised twice without
    /// a privilege.
    largest: AtomicU64,
}

pub static ADDRESSES: Kept = Kept::new(Limit::AddressSpace);
pub static DATA: Kept = Kept::new(Limit::Data);

impl Kept {
    const fn new(limit: Limit) -> Kept {
        Kept { limit, taken: AtomicU64::new(0), largest: AtomicU64::new(0) }
    }

    /// The agent is about to take so many bytes of it, all told, and `largest` in the end. EPERM: there is
    /// a limit that leaves no room, and it may not be raised.
    pub fn make_room(&self, bytes: u64, largest: u64) -> Result<(), Errno> {
        /// This share of a limit is not missed.
        const SHARE: u64 = 16;
        let Some(known) = self.known() else { return Ok(()) };
        let mut limits = procfs::limit(self.limit)?;
        let before = self.taken.swap(bytes, SeqCst);
        self.largest.store(largest, SeqCst);
        // The program may set it meanwhile.
        while let Some(was) = self.raise(known, limits) {
            if was == limits {
                return Ok(());
            }
            limits = was;
        }
        if bytes > limits.0 / SHARE {
            self.taken.store(before, SeqCst);
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Raises the limits by that much more than the program asked for, and tells what they were. A program
    /// before this one may have had more on top, or less. `None`: they may not be raised, or so many
    /// are noted already.
    fn raise(&self, known: &Raised, (now, most): (u64, u64)) -> Option<(u64, u64)> {
        let more = |limit, bytes| known.raise(known.asked(limit).unwrap_or(limit), bytes);
        let set = |now, most| procfs::set_limit(self.limit, (now, most)).ok();
        let [taken, largest] = self.on_top();
        let (more_now, more_most) = (more(now, taken)?, more(most, largest)?);
        if (more_now, more_most) == (now, most) {
            return Some((now, most));
        }
        set(more_now, more_most).or_else(|| if more_now <= most { set(more_now, most) } else { None })
    }

    /// Is there a limit?
    pub fn is_set(&self) -> bool {
        procfs::limit(self.limit).is_ok_and(|(now, _)| now != u64::MAX)
    }

    /// Where it is noted what its values stand for.
    fn known(&self) -> Option<&'static Raised> {
        let tree = agent::tree()?;
        Some(if self.limit == Limit::Data { &tree.raised_data } else { &tree.raised })
    }

    /// What is not the program's, of the current and of the largest value.
    fn on_top(&self) -> Pair {
        let others = match self.limit {
            Limit::AddressSpace => veto::range().len() as u64 + files::twin_bytes(),
            _ => 0,
        };
        [&self.taken, &self.largest].map(|bytes| bytes.load(SeqCst) + others)
    }

    /// What the kernel is told in place of what the program asks for.
    fn raised(&self, known: &Raised, [now, most]: Pair) -> Pair {
        let [taken, largest] = self.on_top();
        // A program of that many limits shares this one with the agent.
        [(now, taken), (most, largest)].map(|(limit, bytes)| known.raise(limit, bytes).unwrap_or(limit))
    }

    /// The same where the largest value may not be raised: as much as it leaves. `None`: the program
    /// asks for more than it may.
    fn within_most(&self, known: &Raised, [now, most]: Pair) -> Option<Pair> {
        let (_, there) = procfs::limit(self.limit).ok()?;
        let may = known.asked(there).unwrap_or(there);
        let [taken, largest] = self.on_top();
        let below =
            |limit, bytes, bound| if limit == may { there } else { known.raise_below(limit, bytes, bound) };
        let new_most = below(most, largest, there);
        let new_now = if now == most { new_most } else { below(now, taken, new_most) };
        (now <= most && most <= may).then_some([new_now, new_most])
    }
}

/// Is this limit kept for the program? Then where it is noted, too.
fn kept(resource: c_int) -> Option<(&'static Kept, &'static Raised)> {
    let is_kept = |kept: &&Kept| kept.limit as u32 == resource as u32 && kept.taken.load(SeqCst) != 0;
    let kept = [&ADDRESSES, &DATA].into_iter().find(is_kept)?;
    Some((kept, kept.known()?))
}

/// prlimit(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(pid: c_int, resource: c_int, new: *const Pair, old: *mut Pair) -> c_int {
    foreign::pass!(prlimit(pid, resource, new, old));
    let is_own = pid == 0 || pid as u32 == mem::process_id();
    if is_own && cpu_limit::is_kept(resource as u32) {
        // SAFETY: passed on to the caller.
        return unsafe { of_processor(pid, new, old) };
    }
    let kept = kept(resource).filter(|_| is_own);
    let asked = kept.filter(|_| !new.is_null()).and_then(|kept| {
        // SAFETY: behind a filter the caller vouches for the pair. What cannot be read is the kernel's to
        // refuse.
        unsafe { peek::words(new as usize) }.map(|asked| (kept, asked))
    });
    let call = |new: *const Pair| {
        let arguments = [pid as usize, resource as usize, new as usize, old as usize, 0, 0];
        // SAFETY: passed on to the caller.
        unsafe { libc::call(__NR_prlimit64, arguments) as c_int }
    };
    let result = match asked {
        None => call(new),
        Some(((kept, known), asked)) => {
            let limits = kept.raised(known, asked);
            let result = call(&raw const limits);
            let is_refused = result != 0 && libc::errno() == Errno::PERM;
            let less = is_refused.then(|| kept.within_most(known, asked)).flatten();
            less.map_or(result, |less| call(&raw const less))
        }
    };
    if let Some((_, known)) = kept.filter(|_| result == 0 && !old.is_null()) {
        // SAFETY: the kernel has just stored a pair there.
        unsafe { old.write_unaligned(old.read_unaligned().map(|limit| known.asked(limit).unwrap_or(limit))) }
    }
    result
}

/// [`prlimit`] of this process's processor time, see [`cpu_limit`].
///
/// # Safety
/// As for the system call.
unsafe fn of_processor(pid: c_int, new: *const Pair, old: *mut Pair) -> c_int {
    let call = |new: *const Pair, old: *mut Pair| {
        let resource = Limit::Processor as usize;
        // SAFETY: passed on to the caller.
        unsafe { libc::call(__NR_prlimit64, [pid as usize, resource, new as usize, old as usize, 0, 0]) }
    };
    // SAFETY: what cannot be read is the kernel's to refuse.
    let asked = if new.is_null() { None } else { unsafe { peek::words(new as usize) } };
    if asked.is_none() && !new.is_null() {
        return call(new, old) as c_int;
    }
    let set = |told: Option<Pair>| {
        let mut was = [0; 2];
        let told = told.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        if call(told, &raw mut was) == 0 { Ok(was) } else { Err(libc::errno()) }
    };
    let was = match cpu_limit::call(asked, set) {
        Ok(was) => was,
        Err(errno) => return libc::fail(errno) as c_int,
    };
    if !old.is_null() {
        // The kernel says what is wrong with the place.
        if call(core::ptr::null(), old) != 0 {
            return -1;
        }
        // SAFETY: it has just stored a pair there.
        unsafe { old.write_unaligned(was) };
    }
    0
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
    let resource = if number == __NR_prlimit64 { b } else { a };
    // Of these two a null pointer is the kernel's to refuse; prlimit(2) takes one.
    if number != __NR_prlimit64 && b == 0 {
        return None;
    }
    if !cpu_limit::is_kept(resource as u32) {
        kept(resource as c_int)?;
    }
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
