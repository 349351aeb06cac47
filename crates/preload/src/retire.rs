//! The agent goes, and comes back: for calls that a process with more than one thread may not make,
//! and for good where it could not live on.
//!
//! The kernel gives a new user namespace only to who has one thread. So before `unshare` and
//! `setns` the agent brings everything in, gives up its registrations and ends; after the call
//! another one starts. A filter that seccomp(2) gives to all threads would be given to the agent,
//! too: it goes before, and stays away, which the launcher is told.
//!
//! A process that is made to share this one's memory (clone with CLONE_VM, and no thread) may live
//! longer than this one. The agent ends with this one, and what it keeps with it. So it goes before
//! and stays away. The maker of a vfork waits for its child, as a rule: where its process ends before
//! that one calls exec the launcher sees to it (`custody`).
//!
//! A program that moves its pages with a userfaultfd of its own has to find them all where they lie:
//! the agent goes before the first move and stays away.
//!
//! A search for leaks stops every thread and reads all memory (`leaks`): the agent goes before it. It
//! comes back where the end of the search is seen.
//!
//! What is known of the shared page stays mapped: in another namespace it might not be found again.
//!
//! *The story:* `unshare -Ur` was refused under `run` (EINVAL), and with it rootless containers and
//! sandboxes.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use linux_raw_sys::general::{
    __NR_ioctl, __NR_setns, __NR_unshare, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER, CLONE_SIGHAND,
    CLONE_THREAD, CLONE_VFORK, CLONE_VM,
};

use overspill_engine::Failure;
use overspill_sys::lock::Lock;
use overspill_sys::{Errno, clock};

use crate::undisturbed::undisturbed;
use crate::{filters, foreign, fork, fresh, libc, start};

/// What `unshare` may be asked for by a process with one thread only.
const ALONE: u32 = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
/// Tells which kind of namespace a descriptor is of, see ioctl_nsfs(2).
const NS_GET_NSTYPE: usize = 0xb703;

/// How often a call is repeated that the kernel refuses while it still counts the agent's threads.
const INSISTS: u32 = 50;
const INSIST_REST_NS: u64 = 1_000_000;
/// Steps that are failed for good, see [`overspill_engine::STEPS`].
pub const START_THREAD: u32 = 5;
const OUTLIVE: u32 = 8;
const MOVED: u32 = 9;
const SEARCHED: u32 = 13;

/// The agent is to go.
static ASKED: AtomicBool = AtomicBool::new(false);
/// It does not come back.
static GONE: AtomicBool = AtomicBool::new(false);
/// ... though the program goes on: the step that is failed for good, see
/// [`overspill_engine::STEPS`]; 0 = none.
static BANNED: AtomicU32 = AtomicU32::new(0);
/// The agent is away, and who sent it has it come back: nobody else does.
static AWAY: AtomicBool = AtomicBool::new(false);
/// It goes for a search.
static SEARCHES: AtomicBool = AtomicBool::new(false);
/// One thread at a time is alone.
static TURN: Lock = Lock::new();

/// Is the agent to go?
pub fn is_asked() -> bool {
    ASKED.load(SeqCst)
}

/// A child of fork has none of the threads for which the agent was away.
pub fn forget() {
    ASKED.store(false, SeqCst);
    AWAY.store(false, SeqCst);
    if !is_gone() {
        BANNED.store(0, SeqCst);
        SEARCHES.store(false, SeqCst);
    }
    TURN.forget();
}

/// Does a new agent have to stay away?
pub fn is_gone() -> bool {
    GONE.load(SeqCst)
}

/// Returns when no agent is there, `step` being the one that it goes for, if it does not come back.
///
/// *The story:* a signal handler forked meanwhile. Its child, which goes on here, has an agent of its
/// own, and knows nothing of what the parent's was asked.
fn send_away(step: u32) {
    loop {
        BANNED.store(step, SeqCst);
        ASKED.store(true, SeqCst);
        fresh::knock();
        start::wait_until_gone();
        if !start::is_there() {
            return;
        }
    }
}

/// The same before a call that may put up a filter, behind which the signals could not be let in
/// again: so they are let in before it.
///
/// *The story:* a signal came while the agent brought everything in. Its handler forked, and the
/// child, which had an agent by then, went on into the call.
fn send_away_before(step: u32) {
    loop {
        undisturbed(|| send_away(step));
        if !start::is_there() {
            return;
        }
    }
}

/// Why the program goes on without an agent, if it does.
pub fn ban() -> Option<Failure> {
    let step = BANNED.load(SeqCst);
    (step != 0).then_some(Failure { step, errno: Errno::PERM })
}

/// Makes a call behind which the agent cannot start a thread, nor live: it goes before. Only if the
/// call fails it comes back.
pub fn for_good(call: impl FnOnce() -> isize) -> isize {
    going_for(START_THREAD, call)
}

/// A process is about to be made with these flags of clone(2).
pub fn before_clone(flags: usize) {
    let flags = flags as u32;
    let shares = flags & CLONE_VM != 0 && flags & (CLONE_THREAD | CLONE_VFORK) == 0;
    if shares {
        leave_for(OUTLIVE);
    }
}

/// The program is about to move pages of its own.
pub fn before_moves() {
    leave_for(MOVED);
}

/// When a search for leaks is over.
pub enum Search {
    /// With the program.
    AtTheEnd,
    /// [`after_search`] is called then.
    Watched,
    /// Nobody tells.
    Unseen,
}

/// All memory is about to be read by who has stopped every thread.
pub fn before_search(search: &Search) {
    if is_gone() {
        return;
    }
    SEARCHES.store(true, SeqCst);
    match search {
        Search::AtTheEnd => leave_for(0),
        Search::Watched if can_leave() => go_away(),
        Search::Watched | Search::Unseen => leave_for(SEARCHED),
    }
}

/// The agent goes; [`after_search`] has it come back.
fn go_away() {
    undisturbed(|| {
        TURN.with(|| {
            if !is_gone() {
                send_away(0);
                AWAY.store(true, SeqCst);
            }
        });
    });
}

/// That is over.
pub fn after_search() {
    if !AWAY.load(SeqCst) {
        return;
    }
    undisturbed(|| {
        TURN.with(|| {
            // A signal's handler may have forked: its child has an agent.
            if AWAY.swap(false, SeqCst) && !is_gone() {
                SEARCHES.store(false, SeqCst);
                ASKED.store(false, SeqCst);
                start::come_back();
            }
        });
    });
}

/// Does it go for a search?
pub fn is_for_search() -> bool {
    SEARCHES.load(SeqCst)
}

/// The agent goes before something that it could not serve. Asked first is what costs no system call.
fn leave_for(step: u32) {
    if is_gone() {
        return;
    }
    if filters::is_filtered() {
        leave_unheard(step);
    } else if !fork::is_borrowing() {
        leave(step);
    }
}

/// It is told to be gone before a signal comes: a handler that forks gives its child no agent, either.
fn leave(step: u32) {
    undisturbed(|| {
        TURN.with(|| {
            if !is_gone() {
                send_away(step);
                GONE.store(true, SeqCst);
            }
        });
    });
}

/// The same behind a filter, where no call may be made: the doorbell of forks takes none. Everything
/// is in when it has been answered, and stays so: the agent is asked to go before that ends.
///
/// *The stories:* nobody told the agent there. What was out when the process ended read as zeroes in
/// the one that shared its memory. And (by reading) of two threads that did this at once the second
/// found that the agent was gone, while the first waited for what was out.
fn leave_unheard(step: u32) {
    BANNED.store(step, SeqCst);
    ASKED.store(true, SeqCst);
    fork::prepare_whole();
    // Not before: another thread that does the same has to wait for it, too.
    GONE.store(true, SeqCst);
    fork::parent();
}

fn going_for(step: u32, call: impl FnOnce() -> isize) -> isize {
    if is_gone() {
        return call();
    }
    TURN.with(|| {
        // Another thread may have had its turn meanwhile.
        if is_gone() {
            return call();
        }
        send_away_before(step);
        let result = call();
        if result == 0 {
            GONE.store(true, SeqCst);
        } else if AWAY.load(SeqCst) {
            BANNED.store(0, SeqCst);
        } else {
            BANNED.store(0, SeqCst);
            ASKED.store(false, SeqCst);
            start::come_back();
        }
        result
    })
}

/// Does the agent go for a call by the calling thread, and come back?
pub fn can_leave() -> bool {
    !(filters::is_filtered() || is_gone() || fork::is_borrowing())
}

/// Makes a call while there is no agent.
///
/// *The story:* a signal's handler forked while there was none. Its child got an agent at once, and
/// another one when the handler returned into the call.
pub fn without(mut call: impl FnMut() -> isize) -> isize {
    if !can_leave() {
        return call();
    }
    undisturbed(|| {
        TURN.with(|| {
            if is_gone() {
                return call();
            }
            if AWAY.load(SeqCst) {
                return insist(&mut call);
            }
            send_away(0);
            let result = insist(&mut call);
            ASKED.store(false, SeqCst);
            start::come_back();
            result
        })
    })
}

/// Makes a call that is refused to who has more than one thread, until they are counted out.
///
/// *The story:* a thread is told to have ended a moment before the kernel counts it out, and the
/// workers of its ring end by themselves: one `unshare` in some dozens was refused.
fn insist(mut call: impl FnMut() -> isize) -> isize {
    for _ in 0..INSISTS {
        let result = call();
        if result != libc::FAILED || ![Errno::INVAL, Errno::USERS].contains(&libc::errno()) {
            return result;
        }
        clock::sleep_ns(INSIST_REST_NS);
    }
    call()
}

/// Makes a call of unshare(2) with these flags, by `call`, which is given them.
///
/// The kernel makes no thread for who has asked for another pid or time namespace for its children.
/// So the agent is back before that is asked for, in a call of its own. If that one is refused the
/// first is done already, which cannot be undone; see docs/limits.md.
///
/// *The story:* `unshare -Urpf` had a user namespace and no agent any more.
pub fn for_unshare(flags: usize, call: impl Fn(usize) -> isize) -> isize {
    let flags = flags as u32;
    if flags & ALONE == 0 || !can_leave() {
        return call(flags as usize);
    }
    let (first, then) = split(flags, CLONE_NEWPID | CLONE_NEWTIME);
    in_two(first, then, call)
}

/// Makes a call of setns(2) for these kinds of namespaces; 0: whatever the descriptor is, which that
/// one tells.
///
/// One call, even where no agent can come back after it: what a process may enter in one it may not
/// always enter in two.
pub fn for_setns(fd: usize, kinds: usize, call: impl Fn() -> isize) -> isize {
    let needs_one_thread = |kinds: u32| kinds & (CLONE_NEWUSER | CLONE_NEWTIME) != 0;
    let kinds = kinds as u32;
    if !can_leave() || !needs_one_thread(if kinds == 0 { kind_of(fd) } else { kinds }) {
        return call();
    }
    without(call)
}

/// The kind of a namespace, by its descriptor; any of them, where that is not known.
fn kind_of(fd: usize) -> u32 {
    // SAFETY: tells a number, if it is a namespace (4.11).
    let told = unsafe { overspill_sys::call(__NR_ioctl, [fd, NS_GET_NSTYPE, 0, 0, 0, 0]) };
    told.map_or(u32::MAX, |kind| kind as u32)
}

/// What is asked for at first, and what once the agent is back. What the kernel does not know is in
/// the first, so that nothing is done.
fn split(flags: u32, late: u32) -> (u32, u32) {
    (flags & !late, flags & late)
}

fn in_two(first: u32, then: u32, call: impl Fn(usize) -> isize) -> isize {
    let result = without(|| call(first as usize));
    if result != 0 || then == 0 { result } else { call(then as usize) }
}

/// unshare(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    foreign::pass!(unshare(flags));
    // SAFETY: passed on to the caller.
    for_unshare(flags as usize, |flags| unsafe { libc::call(__NR_unshare, [flags, 0, 0, 0, 0, 0]) }) as c_int
}

/// setns(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kinds: c_int) -> c_int {
    foreign::pass!(setns(fd, kinds));
    let fd = fd as usize;
    // SAFETY: passed on to the caller.
    let call = || unsafe { libc::call(__NR_setns, [fd, kinds as usize, 0, 0, 0, 0]) };
    for_setns(fd, kinds as usize, call) as c_int
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn what_no_thread_can_be_made_behind_comes_last() {
        let late = CLONE_NEWPID | CLONE_NEWTIME;
        assert_eq!(split(CLONE_NEWUSER | CLONE_NEWPID, late), (CLONE_NEWUSER, CLONE_NEWPID));
        // A flag that nobody knows: the first call is refused.
        assert_eq!(split(CLONE_NEWUSER | 1 | CLONE_NEWTIME, late), (CLONE_NEWUSER | 1, CLONE_NEWTIME));
        assert_eq!(split(CLONE_NEWUSER, late), (CLONE_NEWUSER, 0));
    }

    #[test]
    fn the_second_call_is_made_if_there_is_one_and_the_first_was_not_refused() {
        let calls = |first, then, answer| {
            let made = RefCell::new(std::vec::Vec::new());
            let result = in_two(first, then, |flags| {
                made.borrow_mut().push(flags);
                answer
            });
            (result, made.into_inner())
        };
        assert_eq!(calls(1, 2, 0), (0, std::vec![1, 2]));
        assert_eq!(calls(1, 0, 0), (0, std::vec![1]));
        assert_eq!(calls(1, 2, -1), (-1, std::vec![1]));
    }
}
