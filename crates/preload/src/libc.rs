//! What the functions that stand before libc's owe their callers: the system call, and errno.
//!
//! The call is made here, not by libc's `syscall`: others may stand before that, the agent itself
//! does (`forms`).

use core::ffi::c_int;

use overspill_sys::Errno;

unsafe extern "C" {
    /// Where the calling thread's errno lies. Only threads of the program call this.
    fn __errno_location() -> *mut c_int;
}

/// What libc returns when a call failed.
pub const FAILED: isize = -1;

/// A system call as libc makes it: -1 and errno when it fails.
///
/// # Safety
/// The call must be sound with these arguments, and the calling thread one of the program's.
pub unsafe fn call(number: u32, arguments: [usize; 6]) -> isize {
    // SAFETY: passed on to the caller.
    match unsafe { overspill_sys::call(number, arguments) } {
        Ok(value) => value.cast_signed(),
        Err(errno) => fail(errno),
    }
}

/// What the last call that failed left.
pub fn errno() -> Errno {
    // SAFETY: the caller is a thread of the program: libc knows it.
    Errno::from_raw_os_error(unsafe { *__errno_location() })
}

/// Where the calling thread's errno lies: no other thread's does.
pub fn errno_place() -> usize {
    // SAFETY: the caller is a thread of the program: libc knows it.
    unsafe { __errno_location() as usize }
}

/// Sets errno and returns -1.
pub fn fail(errno: Errno) -> isize {
    // SAFETY: the caller is a thread of the program: libc knows it.
    unsafe { *__errno_location() = errno.raw_os_error() };
    FAILED
}

/// The end of a function without a frame that stands before one of libc's: the next library's function at
/// `{next}`, with all arguments as they are; or, where there is none, the call `{number}` after what is to be
/// done for it, by `{failed}` where it fails.
macro_rules! next_or_call {
    ($($before:literal),*) => {
        concat!(
            "mov rax, qword ptr [rip + {next}]\n",
            "test rax, rax\n",
            "jz 6f\n",
            "jmp rax\n",
            "6:\n",
            $($before, "\n",)*
            "mov eax, {number}\n",
            "syscall\n",
            "cmp rax, -4095\n",
            "jae 7f\n",
            "ret\n",
            "7:\n",
            "mov rdi, rax\n",
            "jmp {failed}",
        )
    };
}
pub(crate) use next_or_call;
