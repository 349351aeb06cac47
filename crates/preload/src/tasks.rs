//! Whoever counts its threads by the links of /proc/self/task finds none of the agent's.
//!
//! Chromium's zygote looks that way whether it has one thread before it forks its first child, and ends
//! where it has two. What the kernel has told is corrected: the threads are counted here, but for the
//! agent's. Where that is not possible the agent goes for the call, as for those of `retire`. Other files
//! are not delayed: the call is made, and the path looked at. What is opened and read in pieces shows the
//! thread.
//!
//! Where another library stands before libc behind the agent, its function makes the call.
//!
//! *A third story:* the kernel was asked past it. Under fakeroot a file was root's that the program had
//! given to somebody else, and so it was in an archive.
//!
//! Programs that were linked with a glibc before 2.33 call `__xstat` and its kin.
//!
//! *The story:* those names, statx, calls by way of `syscall` and /proc/PID/task were not known here.
//!
//! *Another story:* the agent went each time, and all that was out came in for it: 65 to 97 ms a look,
//! and 195 MiB in 64.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

#[cfg(target_arch = "x86_64")]
use linux_raw_sys::general::{__NR_lstat, __NR_stat};
use linux_raw_sys::general::{__NR_newfstatat, __NR_statx, AT_FDCWD, AT_SYMLINK_NOFOLLOW};

use overspill_sys::file::{self, Open};
use overspill_sys::procfs::{self, TASK_PATH_BYTES, ThreadId};
use overspill_sys::text::take_number;
use overspill_sys::{Errno, mem, thread};

use crate::undisturbed::undisturbed;
use crate::{elf, libc, retire};

/// Where the number of links is in what a call has stored, and how wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `struct stat`: behind device and inode.
    Stat,
    /// `struct statx`: behind what is known, the size of a block and attributes.
    Statx,
}

/// A directory's links that are not one of its directories'.
const LINKS: u32 = 2;
const LINKS_AT: usize = 16;

impl Layout {
    /// Says that there are so many links.
    ///
    /// # Safety
    /// The kernel has just stored such a structure there, for the caller.
    unsafe fn put(self, to: *mut c_void, links: u32) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Layout::Stat => to.byte_add(LINKS_AT).cast::<u64>().write_unaligned(u64::from(links)),
                Layout::Statx => to.byte_add(LINKS_AT).cast::<u32>().write_unaligned(links),
            }
        }
    }
}

/// How many threads of the program there are; `None` where it cannot be told which are.
fn programs_threads() -> Option<u32> {
    let (mut count, mut is_known) = (0, true);
    procfs::for_each_thread_id(|thread| match whose(thread) {
        Some(is_agents) => count += u32::from(!is_agents),
        None => is_known = false,
    })
    .ok()?;
    is_known.then_some(count)
}

/// Is it the agent's? `None`: a worker of the kernel's for an io_uring, and it cannot be told for whose.
///
/// The agent's have no list of robust futexes, as libc's have: a number that was theirs once may be another
/// thread's now.
fn whose(thread: ThreadId) -> Option<bool> {
    let has_list = procfs::robust_list(thread.tid).is_ok_and(|(head, _)| head != 0);
    if has_list {
        return Some(false);
    }
    let (mut name, mut path) = ([0; 32], [0; TASK_PATH_BYTES]);
    let file = file::open(procfs::task_path(thread.in_proc, b"/comm", &mut path), Open::empty());
    let len = file.and_then(|file| file::pread(&file, &mut name, 0)).unwrap_or(0);
    match works_for(&name[..len]) {
        None => Some(thread::is_own(thread.tid)),
        Some(0) => None,
        Some(maker) if thread::is_own(maker) => Some(true),
        // By the numbers of the first namespace, which need not be these.
        Some(maker) => {
            file::open(procfs::task_path(maker, b"/comm", &mut path), Open::empty()).ok().map(|_| false)
        }
    }
}

/// The thread whose io_uring it serves that has such a name: "iou-wrk-123", "iou-sqp-123".
fn works_for(name: &[u8]) -> Option<u32> {
    let rest = name.strip_prefix(b"iou-")?;
    let number = rest.iter().position(|&byte| byte == b'-').map_or(&[][..], |at| &rest[at + 1..]);
    Some(take_number(number, 10).map_or(0, |(number, _)| number as u32))
}

/// Makes a call that looks at the file of this name, and stores what it is `to` there. If it showed the
/// agent's threads that is corrected; or the call is made once more without the agent.
/// A path that the kernel has not read is not looked at: EFAULT is its answer to what is none.
///
/// *The story:* `syscall(SYS_stat, (char *)1, ...)` ended the program.
///
/// # Safety
/// The path is null, or the call looks at it and fails where it is no string. If it succeeds it has stored
/// such a structure there.
pub unsafe fn looking(
    path: *const c_char,
    (to, layout): (*mut c_void, Layout),
    mut call: impl FnMut() -> isize,
) -> isize {
    let result = call();
    // SAFETY: the kernel has read it as a string.
    let is_own = || unsafe { may_be_tasks(path) && names_own_tasks(CStr::from_ptr(path)) };
    if result == libc::FAILED || path.is_null() || !is_own() || !retire::can_leave() {
        return result;
    }
    let Some(count) = undisturbed(programs_threads) else { return retire::without(call) };
    // SAFETY: the call has succeeded, and the caller vouches for what it stores.
    unsafe { layout.put(to, LINKS + count) };
    result
}

/// Most paths are told by how they begin.
///
/// # Safety
/// It is a string.
unsafe fn may_be_tasks(path: *const c_char) -> bool {
    // SAFETY: a string has a first character.
    match unsafe { *path } as u8 {
        // SAFETY: this one is not its end, so there is another one.
        b'/' => unsafe { *path.add(1) == b'p' as c_char },
        first => first == b's' || first.is_ascii_digit(),
    }
}

fn names_own_tasks(path: &CStr) -> bool {
    let path = path.to_bytes();
    let path = path.strip_prefix(b"/proc/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let Some(process) = path.strip_suffix(b"/task") else { return false };
    let is_own = |number| number == u64::from(mem::process_id());
    process == b"self" || matches!(take_number(process, 10), Some((number, [])) if is_own(number))
}

/// # Safety
/// As for newfstatat(2).
unsafe fn status(directory: c_int, path: *const c_char, status: *mut c_void, flags: u32) -> c_int {
    let arguments = [directory as usize, path as usize, status as usize, flags as usize, 0, 0];
    // SAFETY: passed on to the caller; the call looks at the path.
    unsafe { looking(path, (status, Layout::Stat), || libc::call(__NR_newfstatat, arguments)) as c_int }
}

/// The call that `__xstat` and `__lxstat` make in any libc, where there is such a one: sandboxes of
/// their time may allow no other.
///
/// # Safety
/// As for stat(2).
unsafe fn status_of_old(path: *const c_char, to: *mut c_void, flags: u32) -> c_int {
    #[cfg(target_arch = "x86_64")]
    {
        let number = if flags == 0 { __NR_stat } else { __NR_lstat };
        let arguments = [path as usize, to as usize, 0, 0, 0, 0];
        // SAFETY: as above.
        unsafe { looking(path, (to, Layout::Stat), || libc::call(number, arguments)) as c_int }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: passed on to the caller.
    unsafe {
        status(AT_FDCWD, path, to, flags)
    }
}

/// A function of another library that stands before glibc's, behind the agent; 0: there is none, or it
/// was not looked for yet.
struct Behind(AtomicUsize);

impl Behind {
    const fn new() -> Behind {
        Behind(AtomicUsize::new(0))
    }

    fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Acquire)).filter(|&address| address != 0)
    }
}

/// Functions that look at a path, and what they are where nobody else stands before libc. Who does is
/// asked in its place (fakeroot knows another owner of a file than the kernel).
macro_rules! looks {
    ($($layout:ident $function:ident ($($argument:ident: $kind:ty),*) of $path:ident, $to:ident:
        $body:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($function), "`: see stat(2) and statx(2).")]
            ///
            /// # Safety
            /// As for the function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function($($argument: $kind),*) -> c_int {
                let Some(address) = behind::$function.get() else {
                    // SAFETY: passed on to the caller.
                    return unsafe { $body };
                };
                type Next = unsafe extern "C" fn($($kind),*) -> c_int;
                // SAFETY: a function of this name, which the loader has found.
                let next: Next = unsafe { core::mem::transmute(address) };
                // SAFETY: passed on to the caller. It looks at the path.
                unsafe { looking($path, ($to, Layout::$layout), || next($($argument),*) as isize) as c_int }
            }
        )*

        #[expect(non_upper_case_globals, reason = "each is named after its function")]
        mod behind {
            use super::Behind;
            $(pub static $function: Behind = Behind::new();)*
        }

        /// Looks for who stands before libc.
        pub fn set_up() {
            $(
                let name = const { named(concat!(stringify!($function), "\0")) };
                behind::$function.0.store(elf::next_but_glibc(name).unwrap_or(0), Ordering::Release);
            )*
        }
    };
}

/// What ends with a null byte is a string.
pub const fn named(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("it ends with its only null byte"),
    }
}

looks! {
    Stat stat(path: *const c_char, to: *mut c_void) of path, to: status(AT_FDCWD, path, to, 0);
    Stat stat64(path: *const c_char, to: *mut c_void) of path, to: status(AT_FDCWD, path, to, 0);
    Stat lstat(path: *const c_char, to: *mut c_void) of path, to:
        status(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
    Stat lstat64(path: *const c_char, to: *mut c_void) of path, to:
        status(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
    Stat fstatat(at: c_int, path: *const c_char, to: *mut c_void, flags: c_int) of path, to:
        status(at, path, to, flags as u32);
    Stat fstatat64(at: c_int, path: *const c_char, to: *mut c_void, flags: c_int) of path, to:
        status(at, path, to, flags as u32);
    Stat __xstat(version: c_int, path: *const c_char, to: *mut c_void) of path, to:
        of_version(version, || status_of_old(path, to, 0));
    Stat __xstat64(version: c_int, path: *const c_char, to: *mut c_void) of path, to:
        of_version(version, || status_of_old(path, to, 0));
    Stat __lxstat(version: c_int, path: *const c_char, to: *mut c_void) of path, to:
        of_version(version, || status_of_old(path, to, AT_SYMLINK_NOFOLLOW));
    Stat __lxstat64(version: c_int, path: *const c_char, to: *mut c_void) of path, to:
        of_version(version, || status_of_old(path, to, AT_SYMLINK_NOFOLLOW));
    Stat __fxstatat(version: c_int, at: c_int, path: *const c_char, to: *mut c_void, flags: c_int)
        of path, to:
        of_version(version, || status(at, path, to, flags as u32));
    Stat __fxstatat64(version: c_int, at: c_int, path: *const c_char, to: *mut c_void, flags: c_int)
        of path, to:
        of_version(version, || status(at, path, to, flags as u32));
    Statx statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) of path, to:
        extended(at, path, flags, mask, to);
}

/// There is one layout of the status on this processor, which has two numbers.
fn of_version(version: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if matches!(version, 0 | 1) { call() } else { libc::fail(Errno::INVAL) as c_int }
}

/// # Safety
/// As for statx(2).
unsafe fn extended(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int {
    let arguments = [at as usize, path as usize, flags as usize, mask as usize, to as usize, 0];
    // SAFETY: passed on to the caller; the call looks at the path.
    unsafe { looking(path, (to, Layout::Statx), || libc::call(__NR_statx, arguments)) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::format;

    #[test]
    fn own_threads_are_looked_at_by_several_names() {
        let own = std::process::id();
        let by_number = [format!("/proc/{own}/task"), format!("{own}/task/")];
        let names = by_number.iter().map(String::as_str).chain(["self/task", "/proc/self/task/"]);
        for name in names {
            let name = CString::new(name).unwrap();
            // SAFETY: it is a string.
            assert!(unsafe { may_be_tasks(name.as_ptr()) } && names_own_tasks(&name), "{name:?}");
        }
    }

    /// See [`looking`].
    #[test]
    fn what_is_no_path_is_the_kernels_to_refuse() {
        let mut to = [0u64; 32];
        let to = to.as_mut_ptr().cast();
        let wrong = core::ptr::dangling::<c_char>();
        // SAFETY: passed on to the caller.
        let new = |path, to, flags| unsafe { status(AT_FDCWD, path, to, flags) };
        for call in [status_of_old, new] {
            // SAFETY: there is room for the status; the kernel looks at the path.
            unsafe {
                assert_eq!((call(wrong, to, 0), libc::errno()), (-1, Errno::FAULT));
                assert_eq!(call(c"/".as_ptr(), to, AT_SYMLINK_NOFOLLOW), 0);
            }
        }
    }

    #[test]
    fn workers_are_told_by_their_names() {
        let names: [&[u8]; 5] = [b"iou-wrk-4711\n", b"iou-sqp-12\n", b"iou-wrk\n", b"iouring-1\n", b""];
        assert_eq!(names.map(works_for), [Some(4711), Some(12), Some(0), None, None]);
    }

    #[test]
    fn other_paths_are_let_through() {
        let others = ["", "/", "s", "/proc/1/task", "/proc/self", "/proc/self/task/1", "/tmp/task", "7/task"];
        for name in others {
            let name = CString::new(name).unwrap();
            // SAFETY: it is a string.
            assert!(!unsafe { may_be_tasks(name.as_ptr()) } || !names_own_tasks(&name), "{name:?}");
        }
    }
}
