//! The kernel calls that subtests make, with their failures as sentences. Pointers are plain
//! addresses here: most subtests hand the kernel addresses that Rust knows nothing about, which is
//! what they are for.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::child::Form;
use crate::memory::PAGE;
use crate::outcome::{Failure, Outcome};
use crate::{ensure, fail};

/// Turns the -1 of a kernel call into a failure that names the call.
pub fn check(call: &str, result: isize) -> Outcome<usize> {
    usize::try_from(result).map_err(|_| Failure(format!("{call}: {}", std::io::Error::last_os_error())))
}

/// The errno of the last call that failed.
#[must_use]
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `mmap(2)`; an `address` of 0 lets the kernel choose.
pub fn mmap(address: usize, len: usize, protection: i32, flags: i32, fd: i32) -> Outcome<usize> {
    // SAFETY: without MAP_FIXED nothing that exists is touched; with it, the caller names a range
    // that it owns.
    let result = unsafe { libc::mmap(address as *mut _, len, protection, flags, fd, 0) };
    if result == libc::MAP_FAILED {
        return Err(Failure(format!("mmap of {len} bytes: {}", std::io::Error::last_os_error())));
    }
    Ok(result as usize)
}

/// `mmap(2)` of a file from byte `offset` on, shared, to be read.
pub fn mmap_from(offset: usize, len: usize, fd: i32) -> Outcome<usize> {
    let flags = libc::MAP_SHARED;
    // SAFETY: nothing that exists is touched.
    let mapped = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ, flags, fd, offset as i64) };
    check("mmap", mapped as isize)
}

/// `mmap(2)` of anonymous memory past libc and whatever stands before it.
pub fn mmap_unheard(len: usize, protection: i32, flags: i32) -> Outcome<usize> {
    // SAFETY: nothing that exists is touched.
    let result = unsafe { libc::syscall(libc::SYS_mmap, 0, len, protection, flags, -1, 0) };
    check("mmap", result as isize)
}

/// `munmap(2)`.
pub fn munmap(address: usize, len: usize) -> Outcome {
    // SAFETY: the caller names a range that it owns and uses no more.
    check("munmap", unsafe { libc::munmap(address as *mut _, len) } as isize).map(drop)
}

/// `mremap(2)`; `target` is used with MREMAP_FIXED only.
pub fn mremap(address: usize, old: usize, new: usize, flags: i32, target: usize) -> Outcome<usize> {
    // SAFETY: the caller names a range that it owns, and with MREMAP_FIXED a target that it owns too.
    let result = unsafe { libc::mremap(address as *mut _, old, new, flags, target) };
    if result == libc::MAP_FAILED {
        return Err(Failure(format!(
            "mremap from {old} to {new} bytes, flags {flags}: {}",
            std::io::Error::last_os_error()
        )));
    }
    Ok(result as usize)
}

/// The same by the bare instruction.
pub fn mremap_unheard(address: usize, old: usize, new: usize, flags: i32, target: usize) -> Outcome<usize> {
    // SAFETY: as above.
    let result = unsafe { bare(libc::SYS_mremap, [address, old, new, flags as usize, target, 0]) };
    ensure!(!(-4095..0).contains(&result), "mremap by the bare instruction: error {}", -result);
    Ok(result as usize)
}

/// `mprotect(2)`.
pub fn mprotect(address: usize, len: usize, protection: i32) -> Outcome {
    // SAFETY: changes access to a range that the caller owns; a fault that follows is one that the
    // subtest wants.
    check("mprotect", unsafe { libc::mprotect(address as *mut _, len, protection) } as isize).map(drop)
}

/// `madvise(2)`.
pub fn madvise(address: usize, len: usize, advice: i32) -> Outcome {
    // SAFETY: the caller owns the range and expects what the advice does to its bytes.
    let result = unsafe { libc::madvise(address as *mut _, len, advice) };
    check(&format!("madvise({advice})"), result as isize).map(drop)
}

/// `mlock(2)`.
pub fn mlock(address: usize, len: usize) -> Outcome {
    // SAFETY: changes no bytes.
    check("mlock", unsafe { libc::mlock(address as *const _, len) } as isize).map(drop)
}

/// `mlock2(2)`; `on_fault`: what is missing stays so until it is touched.
pub fn mlock2(address: usize, len: usize, on_fault: bool) -> Outcome {
    let flags = if on_fault { libc::MLOCK_ONFAULT } else { 0 };
    // SAFETY: changes no bytes.
    check("mlock2", unsafe { libc::mlock2(address as *const _, len, flags as _) } as isize).map(drop)
}

/// `munlock(2)`.
pub fn munlock(address: usize, len: usize) -> Outcome {
    // SAFETY: changes no bytes.
    check("munlock", unsafe { libc::munlock(address as *const _, len) } as isize).map(drop)
}

/// How many pages of a range are in RAM, as `mincore(2)` sees it, but for those that show the
/// kernel's one zero page: they take none.
pub fn resident_pages(address: usize, len: usize) -> Outcome<usize> {
    let mut residency = vec![0u8; len.div_ceil(PAGE)];
    // SAFETY: the vector holds a byte for each page of the range.
    check("mincore", unsafe { libc::mincore(address as *mut _, len, residency.as_mut_ptr()) } as isize)?;
    let there = residency.iter().filter(|&&byte| byte & 1 != 0).count();
    Ok(there - zero_pages(address, len)?.min(there))
}

/// The argument of the call that tells of pages (PAGEMAP_SCAN, 6.7), as the kernel has it.
#[repr(C)]
#[derive(Default)]
struct PagemapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    required: u64,
    any_of: u64,
    reported: u64,
}

/// How many pages of a range show the zero page; none where nobody tells.
pub fn zero_pages(address: usize, len: usize) -> Outcome<usize> {
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
    const PFNZERO: u64 = 1 << 5;
    // A subtest may have no descriptor left.
    let Ok(pagemap) = File::open("/proc/self/pagemap") else { return Ok(0) };
    let mut regions = [[0u64; 3]; 64];
    let mut scan = PagemapScan {
        size: size_of::<PagemapScan>() as u64,
        start: address as u64,
        end: (address + len) as u64,
        regions: regions.as_mut_ptr() as u64,
        regions_len: regions.len() as u64,
        required: PFNZERO,
        reported: PFNZERO,
        ..PagemapScan::default()
    };
    let mut pages = 0;
    while scan.start < scan.end {
        // SAFETY: the argument is whole, and says where and how large the array is.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let Ok(found) = usize::try_from(found) else { return Ok(0) };
        pages += regions[..found].iter().map(|[start, end, _]| (end - start) as usize / PAGE).sum::<usize>();
        scan.start = scan.walk_end;
    }
    Ok(pages)
}

/// Is somebody told of faults at the address, or in the way of stores to it (userfaultfd)?
pub fn is_watched(address: usize) -> Outcome<bool> {
    Ok(has_flag(address, "um")? || has_flag(address, "uw")?)
}

/// Has the mapping at an address a flag, by its name in smaps?
pub fn has_flag(address: usize, name: &str) -> Outcome<bool> {
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
    let contains = |line: &str| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).ok());
        Some((start?..end?).contains(&address))
    };
    let mut lines = maps.lines().skip_while(|line| contains(line) != Some(true));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
    let Some(flags) = flags else { fail!("nothing is mapped at {address:#x}") };
    Ok(flags.split(' ').any(|flag| flag == name))
}

/// `read(2)` to an address.
pub fn read(fd: i32, address: *mut u8, len: usize) -> Outcome<usize> {
    // SAFETY: the caller owns the range, and reads it as bytes that anybody may have written.
    check("read", unsafe { libc::read(fd, address.cast(), len) })
}

/// `write(2)` from an address.
pub fn write(fd: i32, address: *const u8, len: usize) -> Outcome<usize> {
    // SAFETY: the kernel only reads, and reports a bad range.
    check("write", unsafe { libc::write(fd, address.cast(), len) })
}

/// Reads until `len` bytes have come.
pub fn read_all(fd: i32, address: *mut u8, len: usize) -> Outcome {
    let mut done = 0;
    while done < len {
        let count = read(fd, address.wrapping_add(done), len - done)?;
        if count == 0 {
            return Err(Failure(format!("read: end of file after {done} of {len} bytes")));
        }
        done += count;
    }
    Ok(())
}

/// Writes until `len` bytes have gone.
pub fn write_all(fd: i32, address: *const u8, len: usize) -> Outcome {
    let mut done = 0;
    while done < len {
        done += write(fd, address.wrapping_add(done), len - done)?;
    }
    Ok(())
}

/// A pipe: (read end, write end), both closed on exec.
pub fn pipe() -> Outcome<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } as isize)?;
    // SAFETY: the kernel has just given these two to us alone.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// A file without a name in `directory`, opened for reading and writing with `flags` in addition.
pub fn scratch_file(directory: &Path, flags: i32) -> Outcome<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE | flags);
    options
        .open(directory)
        .map_err(|error| Failure(format!("no scratch file in {}: {error}", directory.display())))
}

/// From now on the calling thread runs only where no ordinary one wants to.
pub fn run_when_idle() -> Outcome {
    // SAFETY: an all-zero `sched_param` is valid, and the call reads it only.
    let result = unsafe {
        let ordinary: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const ordinary)
    };
    check("sched_setscheduler", result as isize).map(drop)
}

/// The kernel's number for this thread.
#[must_use]
pub fn thread_id() -> i32 {
    // SAFETY: takes nothing, changes nothing.
    unsafe { libc::gettid() }
}

/// Sleeps.
pub fn pause_ms(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// What is seen by looking is seen a moment later, on a busy machine a long one: checks again and
/// again, for ten seconds at most.
pub fn eventually(mut check: impl FnMut() -> Outcome) -> Outcome {
    for _ in 0..500 {
        if check().is_ok() {
            return Ok(());
        }
        pause_ms(20);
    }
    check()
}

unsafe extern "C" {
    /// glibc 2.34.
    fn _Fork() -> libc::pid_t;
}

/// The arguments of clone3(2), first version.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Makes a child: its pid, 0 in the child, -1 and errno. By `clone` the child runs `body` on a
/// stack of its own and ends.
pub fn fork_by(form: Form, body: &dyn Fn() -> i32) -> isize {
    let signal = libc::SIGCHLD as usize;
    let arguments = CloneArguments { exit_signal: signal as u64, ..CloneArguments::default() };
    let (at, size) = (&raw const arguments as usize, size_of::<CloneArguments>());
    // SAFETY: each call forks as fork(2) does, and the child does no more than `body`.
    unsafe {
        match form {
            Form::Quiet => _Fork() as isize,
            Form::Clone => clone(body, libc::SIGCHLD),
            Form::CallFork => libc::syscall(libc::SYS_fork) as isize,
            Form::CallClone => libc::syscall(libc::SYS_clone, signal, 0, 0, 0, 0) as isize,
            Form::CallClone3 => libc::syscall(libc::SYS_clone3, at, size) as isize,
            Form::BareFork => bare(libc::SYS_fork, [0; 6]),
            Form::BareClone => bare(libc::SYS_clone, [signal, 0, 0, 0, 0, 0]),
            Form::BareClone3 => bare(libc::SYS_clone3, [at, size, 0, 0, 0, 0]),
        }
    }
}

/// As [`fork_by`], with a child for whose end the call waits; by libc's function or its `syscall`.
pub fn fork_and_wait(by_call: bool, body: &dyn Fn() -> i32) -> isize {
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child has memory of its own, and does no more than `body`.
    unsafe {
        if by_call { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as isize } else { clone(body, flags) }
    }
}

/// # Safety
/// The child runs `body` and ends.
unsafe fn clone(body: &dyn Fn() -> i32, flags: i32) -> isize {
    extern "C" fn run(body: *mut libc::c_void) -> i32 {
        // SAFETY: the caller's reference, in the copy of its memory.
        let body = unsafe { *body.cast::<&dyn Fn() -> i32>() };
        body()
    }
    let mut stack = vec![0_u128; 8192];
    let argument = (&raw const body).cast_mut().cast();
    // SAFETY: the stack grows down from its end, and lives until the call returns: the child has a
    // copy of it.
    unsafe { libc::clone(run, stack.as_mut_ptr().add(8192).cast(), flags, argument) as isize }
}

/// Makes a process that shares this one's memory, and waits in that for its end, as vfork does. `body` runs
/// there, and may go on when this process has ended.
pub fn lend_memory(body: &dyn Fn() -> i32) -> Outcome {
    share_memory_by(false, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, body)
}

/// Makes a process that shares this one's memory, and in which `body` runs while this one ends.
pub fn share_memory(by_call: bool, body: &dyn Fn() -> i32) -> Outcome {
    share_memory_by(by_call, libc::CLONE_VM | libc::SIGCHLD, body)
}

fn share_memory_by(by_call: bool, flags: i32, body: &dyn Fn() -> i32) -> Outcome {
    extern "C" fn run(body: *mut libc::c_void) -> i32 {
        // SAFETY: the maker ends without returning: its stack stays as it is.
        let body = unsafe { *body.cast::<&dyn Fn() -> i32>() };
        body()
    }
    let stack = vec![0_u128; 1 << 16].leak();
    let top: *mut u128 = stack.as_mut_ptr_range().end;
    let argument: *mut libc::c_void = (&raw const body).cast_mut().cast();
    // SAFETY: the stack is the new process's alone.
    let made = unsafe {
        if by_call {
            let stack = top as usize - size_of::<usize>();
            call_on(top, libc::SYS_clone, [flags as usize, stack, 0, 0], run, argument)
        } else {
            libc::clone(run, top.cast(), flags, argument) as isize
        }
    };
    check("clone", made).map(drop)
}

/// Ways to make a thread that libc knows nothing of, with a word that is cleared at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// libc's function `clone`.
    Clone,
    /// `clone` by way of libc's `syscall`.
    CallClone,
    /// See above.
    CallClone3,
    /// The thread is told of its word, for `set_tid_address`.
    Later,
}

impl Birth {
    /// All of them.
    pub const ALL: [Birth; 4] = [Birth::Clone, Birth::CallClone, Birth::CallClone3, Birth::Later];
}

/// Makes a thread on the stack that ends at `top`. It calls `run`, with the word or null.
pub fn make_thread(birth: Birth, top: usize, word: usize, run: Run) -> Outcome {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let with_word = flags | libc::CLONE_CHILD_CLEARTID;
    let (stack, null) = (top as *mut u128, core::ptr::null_mut::<libc::c_void>());
    let return_at = top - size_of::<usize>();
    let arguments = CloneArguments {
        flags: with_word as u64,
        child_tid: word as u64,
        stack: (return_at - PAGE) as u64,
        stack_size: PAGE as u64,
        ..CloneArguments::default()
    };
    // SAFETY: the stack is the thread's alone.
    let made = unsafe {
        match birth {
            Birth::Clone => {
                libc::clone(run, stack.cast(), with_word, null, null, null, word as *mut u32) as isize
            }
            Birth::Later => libc::clone(run, stack.cast(), flags, word as *mut libc::c_void) as isize,
            Birth::CallClone => {
                call_on(stack, libc::SYS_clone, [with_word as usize, return_at, 0, word], run, null)
            }
            Birth::CallClone3 => {
                let (at, size) = (&raw const arguments as usize, size_of::<CloneArguments>());
                call_on(stack, libc::SYS_clone3, [at, size, 0, 0], run, null)
            }
        }
    };
    check(&format!("{birth:?}"), made).map(drop)
}

/// What a new thread or process runs.
type Run = extern "C" fn(*mut libc::c_void) -> i32;

/// clone(2) or clone3(2) by way of libc's `syscall`, which comes back on either stack: what is made
/// has its stack pointer a word below `top`.
///
/// # Safety
/// The stack is free, and `run` may be called there with `argument`.
unsafe fn call_on(
    top: *mut u128,
    number: libc::c_long,
    arguments: [usize; 4],
    run: Run,
    argument: *mut libc::c_void,
) -> isize {
    let [first, second, third, fourth] = arguments;
    let result: isize;
    // SAFETY: what is made finds the same registers and its own stack, on which `syscall`'s return
    // address was put; it calls `run` and ends.
    unsafe {
        std::arch::asm!(
            "lea rax, [rip + 2f]",
            "mov [r14 - 8], rax",
            "xor r9d, r9d",
            "xor eax, eax",
            "call {syscall}",
            "2:",
            "test rax, rax",
            "jnz 3f",
            "and rsp, -16",
            "mov rdi, r13",
            "call r12",
            "mov edi, eax",
            "mov eax, 60",
            "syscall",
            "3:",
            syscall = sym libc::syscall,
            in("rdi") number,
            in("rsi") first,
            in("rdx") second,
            in("rcx") third,
            in("r8") fourth,
            in("r12") run,
            in("r13") argument,
            in("r14") top,
            out("rax") result,
            clobber_abi("C"),
        );
    }
    result
}

/// A system call by the bare instruction: nothing that stands before libc's functions hears of it.
/// -1 where it fails, with errno.
///
/// # Safety
/// As for the call.
pub unsafe fn bare(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the instruction clobbers rcx and r11 only; the caller vouches for the call.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack, preserves_flags),
        );
        if (-4095..0).contains(&result) {
            *libc::__errno_location() = -result as i32;
            return -1;
        }
    }
    result
}
