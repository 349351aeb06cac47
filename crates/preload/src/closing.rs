//! What the program closes while the agent asks a socket of it something is closed after the answer. The
//! agent has a copy for that (`sys/descriptors.rs`), and what is closed then is not closed: neither for who
//! waits for the end of the stream, nor for who wants the port again, nor for an epoll. So whoever closes
//! that very descriptor waits for the question's end; and who is told that an address is in use while
//! anything is looked at asks once more.
//!
//! It is a few microseconds, or milliseconds where the agent lost its processor. What goes by the bare
//! instruction, by close_range and at exec is not heard of; and who looked here just before the agent said
//! what it asks, and closes just after, has closed late.
//!
//! close and its kin have no frame: who is cancelled in one is unwound past it.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_bind, __NR_close, __NR_dup2, __NR_dup3, __NR_listen};
use overspill_sys::descriptors::{ASKED, Looks};
use overspill_sys::{Errno, clock};

use crate::{elf, filters, fork, libc};

/// So many turns it is waited, in the last of which the processor is left to others for so long.
const TURNS: u32 = 600;
const TURNS_AWAKE: u32 = 200;
const REST_NS: u64 = 50_000;
/// So many times it is asked again: each time the agent has looked at something meanwhile.
const AGAIN: u32 = 16;

/// A function of libc's that closes the descriptor whose number is in this register.
macro_rules! closes {
    ($name:ident, $closed:literal, $number:ident, $next:ident) => {
        /// Where the next library has it; 0: it has none, or nobody has looked as yet.
        static $next: AtomicUsize = AtomicUsize::new(0);

        #[doc = concat!(stringify!($name), "(2).")]
        ///
        /// # Safety
        /// As for the system call.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            core::arch::naked_asm!(
                concat!("cmp ", $closed, ", dword ptr [rip + {asked}]"),
                "je 4f",
                "2:",
                crate::libc::next_or_call!(),
                // The stack is aligned by the third push.
                "4:",
                "push rdi",
                "push rsi",
                "push rdx",
                concat!("mov edi, ", $closed),
                "call {before}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp 2b",
                asked = sym ASKED,
                next = sym $next,
                number = const $number,
                before = sym before_close,
                failed = sym crate::forms::failed,
            )
        }
    };
}

closes!(close, "edi", __NR_close, CLOSE);
closes!(dup2, "esi", __NR_dup2, DUP2);
closes!(dup3, "esi", __NR_dup3, DUP3);

/// Before this descriptor is closed.
pub extern "C" fn before_close(descriptor: c_int) {
    outwait(|| ASKED.load(SeqCst) != descriptor);
}

/// Waits, for a while at most. Behind a filter, which may end who makes a call, without one. What was left by
/// another process's agent, of which this one is a copy, is over.
fn outwait(is_over: impl Fn() -> bool) {
    for turn in 0..TURNS {
        if is_over() || fork::is_strange() {
            return;
        }
        if turn < TURNS_AWAKE || filters::may_be_filtered() {
            core::hint::spin_loop();
        } else {
            clock::sleep_ns(REST_NS);
        }
    }
}

/// Makes a call that takes an address. "In use" is believed where nobody has looked at anything meanwhile.
///
/// *The story:* three threads that bind a port, close it, and bind it again: 24 to 395 of 1.6 million calls
/// were refused.
pub fn taking_address(mut call: impl FnMut() -> isize) -> isize {
    for _ in 0..AGAIN {
        let looks = Looks::now();
        let result = call();
        let is_in_use = result == libc::FAILED && libc::errno() == Errno::ADDRINUSE;
        if !is_in_use || !looks.were_any() || fork::is_strange() {
            return result;
        }
        outwait(|| !Looks::are_any());
    }
    call()
}

static BIND: AtomicUsize = AtomicUsize::new(0);
static LISTEN: AtomicUsize = AtomicUsize::new(0);

type Bind = unsafe extern "C" fn(c_int, *const c_void, c_uint) -> c_int;
type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;

/// bind(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(socket: c_int, address: *const c_void, len: c_uint) -> c_int {
    let next = BIND.load(Acquire);
    taking_address(|| {
        if next == 0 {
            let arguments = [socket as usize, address as usize, len as usize, 0, 0, 0];
            // SAFETY: passed on to the caller.
            return unsafe { libc::call(__NR_bind, arguments) };
        }
        // SAFETY: the library's function has this type, and the rest is passed on to the caller.
        unsafe { core::mem::transmute::<usize, Bind>(next)(socket, address, len) as isize }
    }) as c_int
}

/// listen(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(socket: c_int, waiting: c_int) -> c_int {
    let next = LISTEN.load(Acquire);
    taking_address(|| {
        if next == 0 {
            // SAFETY: passed on to the caller.
            return unsafe { libc::call(__NR_listen, [socket as usize, waiting as usize, 0, 0, 0, 0]) };
        }
        // SAFETY: as above.
        unsafe { core::mem::transmute::<usize, Listen>(next)(socket, waiting) as isize }
    }) as c_int
}

/// Looks up what is called later.
pub fn set_up() {
    let functions =
        [(c"close", &CLOSE), (c"dup2", &DUP2), (c"dup3", &DUP3), (c"bind", &BIND), (c"listen", &LISTEN)];
    elf::find_next(&functions);
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};
    use std::time::{Duration, Instant};

    use overspill_sys::descriptors::{NONE_ASKED, Table};

    use super::*;

    const QUESTION: Duration = Duration::from_millis(5);

    /// Makes a call while this descriptor is asked, for a moment; and says how long it took.
    fn while_asked(descriptor: c_int, call: impl FnOnce() -> c_int) -> (c_int, Duration) {
        ASKED.store(descriptor, SeqCst);
        // From before the thread is there: it may have slept already when the call is made.
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(QUESTION);
                ASKED.store(NONE_ASKED, SeqCst);
            });
            (call(), began.elapsed())
        })
    }

    /// One test, as what is asked is the process's. See [`taking_address`].
    #[test]
    fn what_is_asked_is_closed_later_and_an_address_is_asked_for_again() {
        let null = || File::open("/dev/null").unwrap();
        // SAFETY: they are this test's own descriptors.
        type Call = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
        // SAFETY: each takes so many integers, or fewer, as C has it.
        let [close, dup2, dup3] = [close as *const (), dup2 as *const (), dup3 as *const ()]
            .map(|function| unsafe { core::mem::transmute::<*const (), Call>(function) });
        let closed = null().into_raw_fd();
        // SAFETY: these are this test's own descriptors, also below.
        let (result, took) = while_asked(closed, || unsafe { close(closed, 0, 0) });
        assert!(result == 0 && took >= QUESTION, "{result} after {took:?}");
        // SAFETY: as above.
        let again = unsafe { close(closed, 0, 0) };
        assert_eq!((again, libc::errno()), (-1, Errno::BADF), "it is closed");
        let (from, to) = (null(), null());
        for call in [dup2, dup3] {
            // SAFETY: as above.
            let made = while_asked(to.as_raw_fd(), || unsafe { call(from.as_raw_fd(), to.as_raw_fd(), 0) });
            assert!(made.0 == to.as_raw_fd() && made.1 >= QUESTION, "{made:?}");
        }
        let table = Table::open().unwrap();
        let look = || table.for_each(|_| false).unwrap();
        let tries = |looks: bool, taken: u32| {
            let mut calls = 0;
            let result = taking_address(|| {
                calls += 1;
                if looks {
                    look();
                }
                if calls <= taken { libc::fail(Errno::ADDRINUSE) } else { 0 }
            });
            (result, calls)
        };
        assert_eq!(tries(false, 1), (-1, 1), "it is in use");
        assert_eq!(tries(true, 0), (0, 1));
        assert_eq!(tries(true, 1), (0, 2), "it was looked at meanwhile");
        assert_eq!(tries(true, 1000), (-1, AGAIN + 1), "not for ever");
    }
}
