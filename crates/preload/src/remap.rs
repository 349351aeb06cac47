//! mremap and adoption take turns.
//!
//! A mapping that grows in place between the look at it and its registration is registered in part,
//! which splits it, and the kernel refuses (EFAULT) to remap two mappings at once. Nothing in the
//! kernel registers a mapping as it is. So the agent asks for a turn, in which mremap waits, and
//! gets it when the calls under way have ended. The turn takes some microseconds a mapping, and
//! comes only when there is fresh memory to be managed.
//!
//! The C library's own realloc does not come this way: it copies where mremap is refused.
//!
//! Linux 6.17 moves several mappings at once, with gaps between them, where their size stays
//! (MREMAP_FIXED), but none that is registered with userfaultfd: it moves what comes before, and then
//! refuses. So several are moved here mapping by mapping, each once, which it allows, and tells the
//! agent of each. Threads that map and unmap there meanwhile see it half done.
//!
//! *The story:* a range of which a part was read-only could not be moved: EFAULT, and the part in
//! front of the managed one was gone.
//!
//! *Another story* (by reading): what the refused call had moved was looked for again in its old place.
//! With MREMAP_DONTUNMAP an empty mapping was there, and elsewhere what another thread had just mapped:
//! that was moved over what had arrived.
//!
//! What moves and shrinks is cut first, and then moved. *The story* (by reading; Linux 6.18 tells it
//! right): kernels before 6.17 tell the length that it had. The agent took what followed the target
//! for a part of what had arrived, and gave up what it knew of there: pages on swap, of whoever had
//! them, showed zeroes. Who makes the call by the bare instruction is not helped.

mod split;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_mincore, __NR_mremap, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use overspill_sys::maps::{Maps, SHORT_BUFFER_BYTES, Vma};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, mem, procfs};

use crate::kept::{self, Change};
use crate::undisturbed::undisturbed;
use crate::{files, filters, foreign, fork, fresh, grow, libc, withheld};

use split::Parts;

/// How long the agent waits for its turn: threads in a call must get a processor to end it. (2 ms
/// were too short.) For ever it must not wait: a debugger may have stopped one.
const WAIT_NS: u64 = 50_000_000;
/// How long a call waits for the turn to end, at most: the agent's wait for it, and as much again
/// and more for the turn itself. *The story:* both waited equally long once, so that a call which
/// had begun to wait as early as the agent gave up in the midst of the turn (`mremap-adopted`,
/// EFAULT in one of some fifty runs, on a day when the host was slow).
///
/// *Another story* (by reading): it was counted by the clock. A program that was stopped (SIGSTOP) for
/// longer, in the midst of a turn, went on in its call while the agent was about to replace something.
const CALL_RESTS: u32 = (4 * WAIT_NS / REST_NS) as u32;
/// A rest. Shorter is none for a thread that comes before all others, as the agent may.
const REST_NS: u64 = 20_000;
/// As much and more, of a thread that must not sleep.
const REST_SPINS: u32 = 2000;

/// From then on the kernel moves several mappings at once, and tells how much it has moved.
const SEVERAL: (u32, u32, u32) = (6, 17, 0);

/// Addresses that every processor has.
const LOW_HALF: usize = 1 << 47;

/// Threads in a call.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The agent has its turn, or waits for it.
static HELD: AtomicBool = AtomicBool::new(false);
/// Turns that have begun. A call that is refused, and saw one begin, is made again: its thread may
/// have got no processor for so long that the agent did not wait for it. *The story:* beside two
/// busy programs one run in forty of `mremap-adopted` had EFAULT.
static TURNS: AtomicU32 = AtomicU32::new(0);

/// The agent's turn: it ends when this is dropped.
pub struct Turn(());

impl Turn {
    /// Holds mremap up, and calls `meanwhile` until no call is under way: calls wait for the agent
    /// to read their events.
    pub fn take(mut meanwhile: impl FnMut()) -> Turn {
        HELD.store(true, SeqCst);
        TURNS.fetch_add(1, SeqCst);
        let patience = clock::monotonic_ns() + WAIT_NS;
        while CALLS.load(SeqCst) > 0 && clock::monotonic_ns() < patience {
            meanwhile();
            clock::sleep_ns(REST_NS);
        }
        Turn(())
    }

    /// Is no call under way? Where one is that did not end in time, nothing may be replaced.
    pub fn is_alone(&self) -> bool {
        CALLS.load(SeqCst) == 0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HELD.store(false, SeqCst);
    }
}

/// A child of fork has an agent of its own, and none of the other threads.
pub fn forget() {
    CALLS.store(0, SeqCst);
    HELD.store(false, SeqCst);
}

/// mremap(2), in turns with the agent. The last argument has a meaning with MREMAP_FIXED only, and
/// is not given otherwise.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    foreign::pass!(mremap(old, old_len, new_len, flags, new));
    if !files::before_mremap(old as usize, old_len, new_len, flags as u32) {
        return libc::fail(Errno::NOMEM) as *mut c_void;
    }
    let new = if flags as u32 & MREMAP_FIXED != 0 { new } else { core::ptr::null_mut() };
    let mut arguments = [old as usize, old_len, new_len, flags as usize, new as usize, 0];
    let range = old as usize..(old as usize).saturating_add(pages(old_len) * PAGE_SIZE);
    let marks = withheld::before_change();
    let grown = grow::grow(&range, pages(new_len) * PAGE_SIZE, flags as u32, new as usize, |address| {
        marks.moved((range.start, old_len), (address, new_len), false);
    });
    if let Some(grown) = grown {
        return grown.unwrap_or_else(|errno| libc::fail(errno) as usize) as *mut c_void;
    }
    if shrinks(&arguments)
        && fork::is_managing()
        && is_told_wrong()
        && is_sound(&range, new as usize, range.len(), flags)
    {
        // SAFETY: the kernel would do the same, on behalf of the caller.
        if let Err(errno) = unsafe { mem::munmap(range.start + pages(new_len) * PAGE_SIZE..range.end) } {
            return libc::fail(errno) as *mut c_void;
        }
        arguments[1] = new_len;
    }
    let moves = || {
        // SAFETY: passed on to the caller.
        let address = unsafe { remap(&range, arguments) }?;
        let stays = flags as u32 & MREMAP_DONTUNMAP != 0;
        if old_len > 0 {
            marks.moved((range.start, old_len), (address, new_len), stays);
        } else {
            marks.replaced(address, new_len);
        }
        Ok(address)
    };
    // A handler that does not come back would leave a descriptor open, and marks where they were.
    undisturbed(moves).unwrap_or_else(|errno: Errno| libc::fail(errno) as usize) as *mut c_void
}

/// # Safety
/// As for mremap(2) with these arguments, which are of this range.
unsafe fn remap(range: &AddressRange, mut arguments: [usize; 6]) -> Result<usize, Errno> {
    let [start, old_len, new_len, flags, new, _] = arguments;
    let range = &(range.start..start.saturating_add(pages(old_len) * PAGE_SIZE));
    let (is_fixed, flags) = (flags as u32 & MREMAP_FIXED != 0, flags as c_int);
    let target_len = pages(new_len).saturating_mul(PAGE_SIZE);
    let is_simple = is_fixed && range.len() == target_len;
    let may_look = fork::is_managing() && !filters::is_filtered();
    let looks = is_fixed && may_look && is_sound(range, new, target_len, flags);
    let may_be_several = looks && is_simple && procfs::kernel_version() >= SEVERAL;
    let may_be_split = looks && target_len > 0 && (is_simple || flags as u32 & MREMAP_DONTUNMAP == 0);
    let left = range.start..range.end.min(range.start.saturating_add(target_len));
    let maps = if looks { Maps::open().ok() } else { None };
    let is_kept = files::before_move(range, new, new_len, maps.is_some() && may_be_several);
    let (mut is_several, mut split) = (false, false);
    let whole = || {
        if let Some(maps) = &maps {
            is_several = may_be_several && holds_several(maps, range);
            if is_several {
                return Ok(0);
            }
            if may_be_split && let Some(parts) = Parts::of(maps, &left) {
                split = true;
                let cut = left.end..start.saturating_add(pages(arguments[1]) * PAGE_SIZE);
                if !cut.is_empty() {
                    // SAFETY: the caller does not want it any more. The next try must not cut what others
                    // may have mapped there by then.
                    unsafe { mem::munmap(cut) }?;
                    arguments[1] = left.len();
                }
                // SAFETY: passed on to the caller.
                return unsafe { parts.remap(&left, target_len, flags as u32, Some(new)) };
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { overspill_sys::call(__NR_mremap, arguments) }
    };
    let mut result = match is_kept {
        true => kept::changing(range, whole, |_| Change::Moved(target_len)),
        false => in_turns(whole),
    };
    if let Some(maps) = maps.filter(|_| is_several) {
        // SAFETY: as above; nothing is wrong with range, target and flags.
        return unsafe { move_each(&maps, range, new, flags) };
    }
    if result == Err(Errno::FAULT) && !is_fixed && may_look && is_usual(range, target_len, flags) {
        result = in_turns(|| {
            let parts = Maps::open().ok().and_then(|maps| Parts::of(&maps, range));
            split = parts.is_some();
            // SAFETY: as above.
            parts.map_or(result, |parts| unsafe { parts.remap(range, target_len, flags as u32, None) })
        });
    }
    if split && result.is_ok() && target_len > range.len() {
        // Its end may not be registered, and grow as a fresh mapping does.
        fresh::wait(target_len - range.len());
    }
    result
}

/// Is it a range that the kernel would remap elsewhere, or make longer?
fn is_usual(range: &AddressRange, new_len: usize, flags: c_int) -> bool {
    let is_known = flags as u32 & !(MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == 0;
    let is_doubled = flags as u32 & MREMAP_DONTUNMAP != 0;
    let fits = if is_doubled { range.len() == new_len } else { range.len() <= new_len };
    is_known && fits && !range.is_empty() && range.start.is_multiple_of(PAGE_SIZE) && range.end < LOW_HALF
}

fn pages(len: usize) -> usize {
    len.div_ceil(PAGE_SIZE)
}

/// Is it a move to a given place, with a part that goes?
fn shrinks(&[_, old_len, new_len, flags, new, _]: &[usize; 6]) -> bool {
    let flags = flags as u32;
    let is_usual = flags & MREMAP_FIXED != 0 && flags & MREMAP_DONTUNMAP == 0;
    is_usual
        && (1..pages(old_len)).contains(&pages(new_len))
        && new < LOW_HALF.saturating_sub(pages(old_len) * PAGE_SIZE)
}

/// Do events of moves tell the length from before?
fn is_told_wrong() -> bool {
    procfs::kernel_version() < SEVERAL
}

/// Would the kernel find nothing wrong with a move before it moves anything?
pub fn is_sound(range: &AddressRange, new: usize, new_len: usize, flags: c_int) -> bool {
    let known = MREMAP_FIXED | MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
    let end = new.saturating_add(new_len);
    let is_apart = end <= range.start || range.end <= new;
    let is_aligned = range.start.is_multiple_of(PAGE_SIZE) && new.is_multiple_of(PAGE_SIZE);
    let is_usual = flags as u32 & MREMAP_MAYMOVE != 0 && flags as u32 & !known == 0 && end < LOW_HALF;
    !range.is_empty() && is_apart && is_aligned && is_usual && is_mapped(range.start)
}

/// Is there more in a range than one mapping?
fn holds_several(maps: &Maps, range: &AddressRange) -> bool {
    let first = next_mapping(maps, range.clone());
    matches!(first, Ok(Some(first)) if first != *range)
}

fn is_mapped(address: usize) -> bool {
    let mut is_resident = 0_u8;
    // SAFETY: the call writes a byte.
    unsafe { overspill_sys::call(__NR_mincore, [address, PAGE_SIZE, &raw mut is_resident as usize, 0, 0, 0]) }
        .is_ok()
}

/// Makes a call between two turns of the agent, and again where it is refused and saw one begin. No handler
/// of a signal runs in it: it might not come back. Those that no handler is for come after it, too: to ask
/// which these are takes a call for each.
///
/// *The stories:* handlers left mremap by siglongjmp. Their calls counted for ever: each turn of the agent
/// took all of its patience, and nothing was replaced any more (`citizens::jumps`). And where signals without
/// a handler were let through, mremap of what fits took 24.5 us in place of 2.6.
pub fn in_turns(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    let mut rests = CALL_RESTS;
    loop {
        // Before the call is counted: a turn that begins in between may run out of patience with it.
        let turns = TURNS.load(SeqCst);
        let result = undisturbed(|| {
            enter(&mut rests);
            let result = call();
            leave();
            result
        });
        let is_refused = result == Err(Errno::FAULT);
        if !is_refused || TURNS.load(SeqCst) == turns || rests == 0 {
            return result;
        }
    }
}

/// Moves the mappings of a range, one after another, each as it is found at its turn, and never looks
/// back. What lies at the target of a gap stays, as the kernel leaves it.
///
/// # Safety
/// As for mremap(2) with MREMAP_FIXED of the range to `new`.
pub unsafe fn move_each(maps: &Maps, range: &AddressRange, new: usize, flags: c_int) -> Result<usize, Errno> {
    let mut at = range.start;
    while at < range.end {
        let mut end = range.end;
        let step = || {
            let Some(part) = next_mapping(maps, at..range.end)? else { return Ok(0) };
            end = part.end;
            let (len, to) = (part.len(), new + (part.start - range.start));
            // SAFETY: passed on to the caller.
            unsafe { overspill_sys::call(__NR_mremap, [part.start, len, len, flags as usize, to, 0]) }
        };
        in_turns(step)?;
        at = end;
    }
    Ok(new)
}

/// The first mapping of a range, as far as it is in it.
fn next_mapping(maps: &Maps, range: AddressRange) -> Result<Option<AddressRange>, Errno> {
    let part = look(maps, range.start, true, |vma| vma.start.max(range.start)..vma.end.min(range.end))?;
    Ok(part.filter(|part| !part.is_empty()))
}

/// As [`Maps::query`], with little stack: no caller has the buffer in a frame of its own.
///
/// *The story:* mremap to a given place took 13 KiB, in buffers for looks that came one after another. A
/// thread with the smallest stack there is ran into its guard (`citizens::small-stack-moves`).
#[inline(never)]
fn look<B>(
    maps: &Maps,
    address: usize,
    or_next: bool,
    visit: impl FnOnce(&Vma<'_>) -> B,
) -> Result<Option<B>, Errno> {
    maps.query(address, or_next, &mut [0; SHORT_BUFFER_BYTES], visit)
}

/// Ends a call. In a child that a signal's handler made in the midst of one, it is counted no more.
fn leave() {
    let _ = CALLS.fetch_update(SeqCst, SeqCst, |calls| calls.checked_sub(1));
}

/// Begins a call, between two turns of the agent; not for more than so many `rests` is one waited for.
fn enter(rests: &mut u32) {
    // Whoever sees the other one waits: the count comes before the look at the agent's turn, and
    // there the other way round.
    CALLS.fetch_add(1, SeqCst);
    // A child that no handler of fork knows of may have been made during a turn: it waits in vain,
    // but not for ever.
    while HELD.load(SeqCst) && fork::is_ours() && *rests > 0 {
        leave();
        *rests -= 1;
        if filters::is_filtered() {
            (0..REST_SPINS).for_each(|_| core::hint::spin_loop());
        } else {
            clock::sleep_ns(REST_NS);
        }
        CALLS.fetch_add(1, SeqCst);
    }
}
