//! Notices that the program is about to lend pages to the kernel by reference: vmsplice, sockets
//! with SO_ZEROCOPY, what is sent by MSG_ZEROCOPY, io_uring.
//!
//! From then on the engine gives every frame back to the kernel instead of using it again: see
//! `engine/lending.rs`, which also finds what these functions do not hear of.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use linux_raw_sys::general::{
    __NR_io_uring_setup, __NR_sendmmsg, __NR_sendmsg, __NR_sendto, __NR_setsockopt, __NR_vmsplice,
};

use crate::{elf, foreign, libc};

const SOL_SOCKET: c_int = 1;
const SO_ZEROCOPY: c_int = 60;
const MSG_ZEROCOPY: u32 = 0x400_0000;

static LENT: AtomicBool = AtomicBool::new(false);
/// The program has made an io_uring, as far as that is heard of.
static RINGS: AtomicBool = AtomicBool::new(false);

/// A call by number that is about to be made: vmsplice, io_uring_setup, or setsockopt, sendmsg, sendto and
/// sendmmsg with these arguments behind the socket's.
pub fn announce(number: u32, second: usize, third: usize, fourth: usize) {
    let by_flags = |flags: usize| flags as u32 & MSG_ZEROCOPY != 0;
    let lends = if number == __NR_setsockopt {
        is_zerocopy(second as c_int, third as c_int)
    } else if number == __NR_sendmsg {
        by_flags(third)
    } else {
        ![__NR_sendto, __NR_sendmmsg].contains(&number) || by_flags(fourth)
    };
    if lends {
        LENT.store(true, SeqCst);
    }
    if number == __NR_io_uring_setup {
        RINGS.store(true, SeqCst);
    }
}

fn is_zerocopy(level: c_int, option: c_int) -> bool {
    level == SOL_SOCKET && option == SO_ZEROCOPY
}

/// Set before the program first lends a page, or when it prepares to.
pub fn lent() -> &'static AtomicBool {
    &LENT
}

/// Set before the program makes an io_uring by a call that is heard of.
pub fn rings() -> &'static AtomicBool {
    &RINGS
}

/// vmsplice(2), watched.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(fd: c_int, pieces: *const c_void, count: usize, flags: c_uint) -> isize {
    foreign::pass!(vmsplice(fd, pieces, count, flags));
    LENT.store(true, SeqCst);
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_vmsplice, [fd as usize, pieces as usize, count, flags as usize, 0, 0]) }
}

/// setsockopt(2), watched.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: c_uint,
) -> c_int {
    foreign::pass!(setsockopt(socket, level, option, value, len));
    if is_zerocopy(level, option) {
        LENT.store(true, SeqCst);
    }
    let arguments = [socket as usize, level as usize, option as usize, value as usize, len as usize, 0];
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_setsockopt, arguments) as c_int }
}

/// A function of libc's that sends, without a frame: who is cancelled in it is unwound past it. What is sent
/// by reference ($flags has MSG_ZEROCOPY) is noted before.
///
/// *The story:* only who asked for it by setsockopt was heard. A socket that another process had made so (a
/// child, or one that was received) was found after up to half a second, and never if it was closed at once:
/// 865 of 2048 pages went out with other bytes.
macro_rules! sends {
    ($name:ident, $flags:literal, $number:ident, $next:ident $(, $rest:literal)*) => {
        /// Where the next library has it; 0: it has none, or nobody has looked as yet.
        static $next: AtomicUsize = AtomicUsize::new(0);

        #[doc = concat!(stringify!($name), "(2), watched.")]
        ///
        /// # Safety
        /// As for the system call.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> isize {
            core::arch::naked_asm!(
                concat!("test ", $flags, ", {zerocopy}"),
                "jz 2f",
                "lock or byte ptr [rip + {lent}], 1",
                "2:",
                crate::libc::next_or_call!($($rest,)* "mov r10, rcx"),
                zerocopy = const MSG_ZEROCOPY,
                lent = sym LENT,
                next = sym $next,
                number = const $number,
                failed = sym crate::forms::failed,
            )
        }
    };
}

// The bare call is sendto's, which takes an address, too.
sends!(send, "ecx", __NR_sendto, SEND, "xor r8d, r8d", "xor r9d, r9d");
sends!(sendto, "ecx", __NR_sendto, SENDTO);
sends!(sendmsg, "edx", __NR_sendmsg, SENDMSG);
sends!(sendmmsg, "ecx", __NR_sendmmsg, SENDMMSG);

/// Looks up what is called later.
pub fn set_up() {
    let functions =
        [(c"send", &SEND), (c"sendto", &SENDTO), (c"sendmsg", &SENDMSG), (c"sendmmsg", &SENDMMSG)];
    elf::find_next(&functions);
}
