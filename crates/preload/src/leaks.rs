//! Programs that are searched for leaks, at their end or in mid-run.
//!
//! LeakSanitizer, a part of AddressSanitizer, stops every thread that it finds under /proc by
//! ptrace, the agent's too, and then reads all memory, from a process of its own that shares it. It
//! would wait for ever where a page is out. So such a program gets everything back before.
//!
//! Whoever searches asks the program first whether it wants that, by a function that most have none
//! of: the agent has one, and knows of each search, and of no other. Where the program has its own it
//! gets everything back at its end, and where it asks for a search: nobody tells whether there is one.
//!
//! After a search that the program asks for in mid-run the agent comes back, where it stands before
//! the function by which that is asked for. Where the sanitizer is part of the program it does not,
//! and stays away.
//!
//! *The story:* a program that was linked with AddressSanitizer ran to its end, and did not end. *The other
//! stories:* one that asked for a search in mid-run waited for ever; and all were above their budget at
//! their end, those that are not searched, too (`citizens::leaks-*`).

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::retire::Search;
use crate::{elf, libc, retire};

type Handler = extern "C" fn(*mut c_void);

/// Tells whether there is no search.
const ASKED: &CStr = c"__lsan_is_turned_off";

/// The next library's functions.
static TURNED_OFF: AtomicUsize = AtomicUsize::new(0);
static SEARCH: AtomicUsize = AtomicUsize::new(0);
static RECOVERABLE: AtomicUsize = AtomicUsize::new(0);

/// The program is at its end.
static ENDS: AtomicBool = AtomicBool::new(false);
/// Somebody before the agent answers: no search is heard of.
static IS_DEAF: AtomicBool = AtomicBool::new(false);
/// The thread, by the place of its errno, that asked for a search through here; 0: none.
static SEARCHER: AtomicUsize = AtomicUsize::new(0);

/// Asks to be called at the end, if there may be a search.
///
/// The search is an exit handler of the program's or the library's that has the sanitizer, and
/// those of one owner run in the reverse of their order, at that owner's end. So this one is
/// registered by the same handle.
pub fn set_up() {
    elf::find_next(&[
        (ASKED, &TURNED_OFF),
        (c"__lsan_do_leak_check", &SEARCH),
        (c"__lsan_do_recoverable_leak_check", &RECOVERABLE),
    ]);
    IS_DEAF.store(!elf::is_own_first(ASKED), SeqCst);
    let Some(register) = elf::next(c"__cxa_atexit") else { return };
    // SAFETY: the C library's function has this type.
    let register = unsafe {
        core::mem::transmute::<usize, extern "C" fn(Handler, *mut c_void, *mut c_void) -> c_int>(register)
    };
    elf::handles_of_askers(ASKED, |handle| {
        register(at_the_end, core::ptr::null_mut(), handle as *mut c_void);
    });
}

extern "C" fn at_the_end(_: *mut c_void) {
    ENDS.store(true, SeqCst);
    if IS_DEAF.load(SeqCst) {
        retire::before_search(&Search::AtTheEnd);
    }
}

/// A function without arguments that the next library has.
fn next(place: &AtomicUsize) -> Option<extern "C" fn() -> c_int> {
    let address = place.load(SeqCst);
    // SAFETY: where it is known it is a function of this type, or of one that gives nothing, of which
    // nobody reads what it gives; what is loaded at the start is not unloaded.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, extern "C" fn() -> c_int>(address) })
}

/// Calls what may search, and has the agent back then.
///
/// Where a second thread does the same the agent stays away after its search.
fn searching(place: &AtomicUsize) -> c_int {
    let Some(search) = next(place) else { return 0 };
    let own = libc::errno_place();
    let is_seen = SEARCHER.compare_exchange(0, own, SeqCst, SeqCst).is_ok();
    if IS_DEAF.load(SeqCst) {
        retire::before_search(&if is_seen { Search::Watched } else { Search::Unseen });
    }
    // Where leaks end the program it does not return.
    let result = search();
    if is_seen {
        retire::after_search();
        let _ = SEARCHER.compare_exchange(own, 0, SeqCst, SeqCst);
    }
    result
}

/// What LeakSanitizer asks before each search: not 0 where there is to be none.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_is_turned_off() -> c_int {
    let answer = next(&TURNED_OFF).map_or(0, |next| next());
    if answer == 0 {
        retire::before_search(&if ENDS.load(SeqCst) {
            Search::AtTheEnd
        } else if SEARCHER.load(SeqCst) == libc::errno_place() {
            Search::Watched
        } else {
            Search::Unseen
        });
    }
    answer
}

/// Searches, and ends the program if there are leaks.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_do_leak_check() {
    searching(&SEARCH);
}

/// Searches, and tells whether there are leaks.
#[unsafe(no_mangle)]
pub extern "C" fn __lsan_do_recoverable_leak_check() -> c_int {
    searching(&RECOVERABLE)
}
