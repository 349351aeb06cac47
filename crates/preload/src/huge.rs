//! Can memory that nobody knows of yet come in huge pages? It comes three times as fast then.
//!
//! Where the machine gives them to those that ask, somebody has to: the program by madvise, which
//! is seen here, or its C library's malloc, which is told to by a variable. Who asks by a bare
//! system call is not seen.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use overspill_sys::procfs::{self, HugePages};

/// The variable is `GLIBC_TUNABLES`, and may hold other things, too.
const MALLOC_ASKS: &[u8] = b"glibc.malloc.hugetlb=";

/// Somebody has asked.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The program asks for huge pages somewhere.
pub fn note() {
    ASKED.store(true, Relaxed);
}

/// What does not change while a program runs.
pub struct Huge {
    given: HugePages,
}

impl Huge {
    /// Looks how the machine is set up, and the program.
    pub fn look() -> Huge {
        // What cannot be read may be there.
        if procfs::environment_holds(MALLOC_ASKS).unwrap_or(true) {
            note();
        }
        Huge { given: procfs::huge_pages() }
    }

    /// May they come?
    pub fn may_come(&self) -> bool {
        match self.given {
            HugePages::Always => true,
            HugePages::Advised => ASKED.load(Relaxed),
            HugePages::Never => false,
        }
    }
}
