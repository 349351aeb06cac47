//! Which process this is: a child of fork has what its parent has made, but none of the threads that serve
//! it. A mark says so that the kernel wipes in children; it takes no system call to look at it.
//!
//! *The story:* the process's number said so. A child in a new pid namespace may have its parent's: it took
//! itself for that, and waited for threads that it did not have.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use overspill_sys::mem;

use crate::raw;

/// A process, among itself and those that it comes from by fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u64);

/// So many marks were given. A child goes on from its parent's, so it never gets one that it inherits.
static GIVEN: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The one that calls.
    pub fn this() -> Process {
        // Without such memory the number has to do.
        let Some(word) = raw::word_of_process() else { return Process(mem::process_id().into()) };
        let mark = match word.load(SeqCst) {
            0 => {
                let new = GIVEN.fetch_add(1, SeqCst) + 1;
                word.compare_exchange(0, new, SeqCst, SeqCst).err().unwrap_or(new)
            }
            mark => mark,
        };
        Process(mark)
    }

    /// Is it the one that calls?
    pub fn is_this(self) -> bool {
        self == Process::this()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The child's answer to a question; it asks only.
    fn in_child(ask: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let answer = ask();
            // SAFETY: it ends, without what the test's process would do at its end.
            unsafe { libc::_exit(i32::from(!answer)) };
        }
        let mut status = 0;
        // SAFETY: the status is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn each_child_is_another_and_all_threads_are_one() {
        let this = Process::this();
        assert!(raw::word_of_process().is_some());
        assert_eq!(std::thread::spawn(Process::this).join().unwrap(), this);
        assert!(in_child(|| !this.is_this()));
        assert!(in_child(|| {
            let child = Process::this();
            child.is_this() && in_child(|| !this.is_this() && !child.is_this()) && child.is_this()
        }));
        assert!(this.is_this());
    }
}
