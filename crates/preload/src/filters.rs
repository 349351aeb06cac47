//! Programs that put themselves behind a seccomp filter: what the agent does in their threads.
//!
//! A filter may kill whoever makes a call that is not on its list, and nobody can ask it. From the
//! first one on the agent therefore makes no call in the program's threads that libc would not make
//! there: a child of fork gets no agent, and whoever maps or moves memory does not wait. The
//! agent's own thread stays outside, unless the filter is given to all threads at once ([`SYNC`]);
//! then it hands everything back first and goes (`retire`).
//!
//! A program that was started behind a filter is told by the count in /proc: as many filters as the
//! launcher has are the container's, which let programs run; one more may be anything. The launcher
//! tells how many it has: in another pid namespace /proc does not show it.
//!
//! *The story:* a program with a list of twenty calls forked. The child was killed, because the
//! agent that was started in it makes others.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use linux_raw_sys::general::__NR_prctl;
use overspill_sys::procfs::Fields;
use overspill_sys::{Errno, clock};

use crate::{files, foreign, fork, fresh, libc, retire};

const PR_SET_SECCOMP: c_int = 22;
const PR_SET_TSC: c_int = 26;
const MODE_FILTER: usize = 2;
/// The operation of seccomp(2) that installs a filter, and its flag for all threads.
const SET_MODE_FILTER: usize = 1;
const SET_MODE_STRICT: usize = 0;
const SYNC: usize = 1;
/// With this flag what succeeds gives a descriptor. (Otherwise a positive result is the thread that has
/// other filters.)
///
/// *The story:* that was taken for a failure, and the agent came back behind the filter.
const NEW_LISTENER: usize = 1 << 3;

/// Filters of this process that are there, or about to be.
///
/// *The story* (by reading): it was a flag that a refused call set back to what it had found. Of two calls
/// at once the first was refused, the second not, and the flag said that there was no filter.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// A child of vfork has put up a filter of its own. Which of the two runs could only be asked by a call.
static CHILD_IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// Has the program put a filter before any of its threads?
pub fn is_filtered() -> bool {
    FILTERS.load(SeqCst) > 0
}

/// The same, where the caller may be a child of vfork. Once one had a filter of its own all may.
///
/// *The story:* such a child executed a program, and was killed for the question whether the agent is to
/// be found.
pub fn may_be_filtered() -> bool {
    is_filtered() || CHILD_IS_FILTERED.load(SeqCst)
}

/// Was this program started behind more filters than the launcher is behind? No, where the kernel
/// does not count (before 5.9). The calls are those that the loader makes, too.
pub fn is_confined(launchers: u32) -> bool {
    let own = Fields::of_process().ok().and_then(|fields| fields.number("Seccomp_filters"));
    own.unwrap_or(0) > u64::from(launchers)
}

/// It was: nothing is called in its threads that libc would not call, and its children get no agent.
pub fn note_confined() {
    FILTERS.store(1, SeqCst);
}

/// Makes a call of seccomp(2). Without a list it only asks what the kernel can do.
pub fn for_seccomp(operation: usize, flags: usize, list: usize, call: impl FnOnce() -> isize) -> isize {
    let installs = operation == SET_MODE_FILTER && list != 0;
    if !installs && operation != SET_MODE_STRICT {
        return call();
    }
    let has_succeeded = |result: isize| result == 0 || result > 0 && flags & NEW_LISTENER != 0;
    if is_another() {
        return noting_a_childs(has_succeeded, call);
    }
    if !installs || flags & SYNC == 0 {
        return noting(has_succeeded, call);
    }
    let mut result = 0;
    retire::for_good(|| {
        result = noting(has_succeeded, call);
        if has_succeeded(result) { 0 } else { result }
    });
    result
}

/// Is this a child of vfork, whose filter is its own? Behind a filter that cannot be asked.
fn is_another() -> bool {
    !is_filtered() && fork::is_borrowing()
}

/// Makes a call that puts the program behind a filter if it succeeds.
fn noting(has_succeeded: impl Fn(isize) -> bool, call: impl FnOnce() -> isize) -> isize {
    // Behind it nobody could ask for that.
    if !files::hand_all_back(overspill_engine::report::Left::Other) {
        return libc::fail(Errno::NOMEM);
    }
    counted(&FILTERS, has_succeeded, |is_first| {
        // What another thread mapped in between.
        files::leave(&(0..usize::MAX), overspill_engine::report::Left::Other);
        // A nap could not be ended from behind it.
        if is_first {
            fresh::knock();
        }
        call()
    })
}

/// Counts the filter that a call puts up: before it, as a thread may fork at once.
fn counted(
    filters: &AtomicU32,
    has_succeeded: impl Fn(isize) -> bool,
    call: impl FnOnce(bool) -> isize,
) -> isize {
    let is_first = filters.fetch_add(1, SeqCst) == 0;
    let result = call(is_first);
    if !has_succeeded(result) {
        filters.fetch_sub(1, SeqCst);
    }
    result
}

/// The same in a child of vfork.
fn noting_a_childs(has_succeeded: impl Fn(isize) -> bool, call: impl FnOnce() -> isize) -> isize {
    let result = call();
    if has_succeeded(result) {
        CHILD_IS_FILTERED.store(true, SeqCst);
    }
    result
}

/// prctl(2), watched.
///
/// *The story:* after PR_SET_TSC the hooks' own look at the clock ended the program.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
) -> c_int {
    foreign::pass!(prctl(option, second, third, fourth, fifth));
    let arguments = [option as usize, second, third, fourth, fifth, 0];
    // SAFETY: passed on to the caller.
    let call = || unsafe { libc::call(__NR_prctl, arguments) };
    if option == PR_SET_TSC {
        clock::ask_the_kernel();
    }
    let installs = option == PR_SET_SECCOMP && (second != MODE_FILTER || third != 0);
    let has_succeeded = |result| result == 0;
    let result = match installs {
        false => call(),
        true if is_another() => noting_a_childs(has_succeeded, call),
        true => noting(has_succeeded, call),
    };
    result as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See [`FILTERS`].
    #[test]
    fn a_filter_counts_whatever_becomes_of_another_at_the_same_time() {
        let filters = AtomicU32::new(0);
        let has_succeeded = |result| result == 0;
        let refused = counted(&filters, has_succeeded, |is_first| {
            assert!(is_first);
            counted(&filters, has_succeeded, |is_first| -isize::from(is_first)) - 1
        });
        assert_eq!((refused, filters.into_inner()), (-1, 1));
    }
}
