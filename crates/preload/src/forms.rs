//! The forms of fork that run no handlers: `_Fork`, `clone` without shared memory, and the bare
//! calls by way of libc's `syscall`. Each is done as [`fork`](crate::fork) has it: everything comes
//! in first.
//!
//! What comes by none of these (the instruction itself, in the program's own code) is not seen
//! here: the kernel tells the engine of it, where it may (see `engine/children.rs`), and where it
//! may not such a call fails (`veto`).
//!
//! *The story:* children of `_Fork()` read zeroes where the parent's page was out.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use linux_raw_sys::general::{
    __NR_bind, __NR_clone, __NR_clone3, __NR_close, __NR_execve, __NR_execveat, __NR_fork, __NR_getppid,
    __NR_getrlimit, __NR_io_uring_setup, __NR_ioctl, __NR_lstat, __NR_madvise, __NR_mlock, __NR_mlock2,
    __NR_mlockall, __NR_mmap, __NR_mprotect, __NR_mremap, __NR_munmap, __NR_newfstatat, __NR_pkey_mprotect,
    __NR_prctl, __NR_prlimit64, __NR_process_madvise, __NR_seccomp, __NR_sendmmsg, __NR_sendmsg, __NR_sendto,
    __NR_set_tid_address, __NR_setns, __NR_setrlimit, __NR_setsockopt, __NR_shmat, __NR_stat, __NR_statx,
    __NR_unshare, __NR_vmsplice, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_VM,
};

use crate::tasks::Layout;
use crate::waiting::Ticket;
use crate::{
    advising, attaching, closing, elf, exec, files, filters, foreign, fork, joining, kept, lend, libc,
    limits, locking, parent, peek, populate, registering, remap, retire, tasks,
};

/// The next library's `_Fork` and `clone`; 0 where it has none.
static FORK: AtomicUsize = AtomicUsize::new(0);
static CLONE: AtomicUsize = AtomicUsize::new(0);

const SIGCHLD: usize = 17;

/// Looks up what is called later.
pub fn set_up() {
    elf::find_next(&[(c"_Fork", &FORK), (c"clone", &CLONE)]);
}

/// _Fork(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    let next = FORK.load(Ordering::Acquire);
    fork::between(SIGCHLD, |_| {
        if next == 0 {
            // SAFETY: forks; the C library has no such function, and so nothing of its own to do.
            return unsafe { libc::call(__NR_clone, [SIGCHLD, 0, 0, 0, 0, 0]) };
        }
        // SAFETY: the library's function has this type.
        let call = unsafe { core::mem::transmute::<usize, extern "C" fn() -> c_int>(next) };
        call() as isize
    }) as c_int
}

/// What a new process runs.
type Start = extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(
    Start,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// What the child of [`clone`] runs, in the copy of its maker's memory.
struct Errand {
    start: Start,
    argument: *mut c_void,
    flags: usize,
    /// Where its end is told of.
    word: Option<usize>,
    /// Its maker waits for that.
    ticket: Option<Ticket>,
}

extern "C" fn run_errand(errand: *mut c_void) -> c_int {
    // SAFETY: `clone` passes an `Errand` that stays on its stack until its parent returns; the
    // child has a copy of that.
    let Errand { start, argument, flags, word, ticket } = *unsafe { &*errand.cast::<Errand>() };
    fork::child_of(ticket, flags);
    joining::in_child(word);
    start(argument)
}

/// clone(2), libc's function. The last three arguments have a meaning with some flags only.
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    start: Option<Start>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    foreign::pass!(clone(start, stack, flags, argument, parent_tid, tls, child_tid));
    let (next, Some(start)) = (CLONE.load(Ordering::Acquire), start) else {
        return libc::fail(overspill_sys::Errno::INVAL) as c_int;
    };
    if next == 0 {
        return libc::fail(overspill_sys::Errno::NOSYS) as c_int;
    }
    // SAFETY: the library's function has this type; on this processor it takes as many arguments as it wants.
    let call = unsafe { core::mem::transmute::<usize, Clone>(next) };
    if flags as c_uint & CLONE_VM != 0 {
        retire::before_clone(flags as usize);
        let place = joining::before_clone(flags as usize, child_tid as usize);
        // SAFETY: passed on to the caller.
        let result = unsafe { call(start, stack, flags, argument, parent_tid, tls, child_tid) };
        if let Some(place) = place {
            joining::made(place, result as isize);
        }
        return result;
    }
    let word = joining::word(flags as usize, child_tid as usize);
    let told = told(flags as usize, parent_tid as usize, parent_tid as usize);
    fork::between_telling(flags as usize, told, |ticket| {
        let mut errand = Errand { start, argument, flags: flags as usize, word, ticket };
        let errand = (&raw mut errand).cast();
        // SAFETY: as above; the errand lives until the call returns, and the child has a copy of it.
        unsafe { call(run_errand, stack, flags, errand, parent_tid, tls, child_tid) as isize }
    }) as c_int
}

/// The calls that are looked at: of each number one bit.
static WATCHED: [u64; WATCHED_WORDS] = {
    let mut bits = [0; WATCHED_WORDS];
    let mut index = 0;
    while index < WATCHED_NUMBERS.len() {
        let number = WATCHED_NUMBERS[index] as usize;
        bits[number / 64] |= 1 << (number % 64);
        index += 1;
    }
    bits
};
const WATCHED_WORDS: usize = 8;
const WATCHED_NUMBERS: [c_uint; 38] = [
    __NR_bind,
    __NR_clone,
    __NR_clone3,
    __NR_close,
    __NR_execve,
    __NR_execveat,
    __NR_fork,
    __NR_getppid,
    __NR_getrlimit,
    __NR_io_uring_setup,
    __NR_ioctl,
    __NR_lstat,
    __NR_madvise,
    __NR_mlock,
    __NR_mlock2,
    __NR_mlockall,
    __NR_mmap,
    __NR_mprotect,
    __NR_mremap,
    __NR_munmap,
    __NR_newfstatat,
    __NR_pkey_mprotect,
    __NR_prctl,
    __NR_prlimit64,
    __NR_process_madvise,
    __NR_seccomp,
    __NR_sendmmsg,
    __NR_sendmsg,
    __NR_sendto,
    __NR_set_tid_address,
    __NR_setns,
    __NR_setrlimit,
    __NR_setsockopt,
    __NR_shmat,
    __NR_stat,
    __NR_statx,
    __NR_unshare,
    __NR_vmsplice,
];

/// libc's `syscall`, without a frame: who makes a thread with it returns from it on another stack.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jnz 7f",
        "cmp edi, {numbers}",
        "jae 5f",
        "lea rax, [rip + {watched}]",
        "bt dword ptr [rax], edi",
        "jnc 5f",
        "cmp edi, {clone}",
        "je 2f",
        "cmp edi, {clone3}",
        "jne 4f",
        // A process, or a thread. The stack is aligned by the seventh push.
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {cloning}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 5f",
        "js 4f",
        // A thread whose word is at this place, which goes where no clone has an argument: the thread
        // returns on another stack.
        "mov r11, rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, r11",
        "syscall",
        "test rax, rax",
        "jz 3f",
        "push rax",
        "mov rdi, r9",
        "mov rsi, rax",
        "call {cloned}",
        "pop rax",
        "cmp rax, -4095",
        "jae 6f",
        "3:",
        "ret",
        // The arguments one place to the left and the number behind the fifth, as `concerning` has them.
        "4:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rcx, r8",
        "mov r8, r9",
        "mov r9, rax",
        "jmp {concerning}",
        "5:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 6f",
        "ret",
        "6:",
        "mov rdi, rax",
        "jmp {failed}",
        "7:",
        "jmp rax",
        next = sym foreign::of_libc::syscall,
        numbers = const WATCHED_WORDS * 64,
        watched = sym WATCHED,
        clone = const __NR_clone,
        clone3 = const __NR_clone3,
        cloning = sym cloning,
        cloned = sym cloned,
        concerning = sym concerning,
        failed = sym failed,
    )
}

/// What clone or clone3 with these arguments makes.
const PROCESS: isize = -1;
const WITHOUT_WORD: isize = 0;

/// A child with memory of its own, on its maker's stack; or a thread, or what else needs no more
/// than the call itself: then the place of its word, counted from 1, if it has one. Who is to share
/// memory is told before.
extern "C" fn cloning(number: c_uint, first: usize, second: usize, _: usize, fourth: usize) -> isize {
    let (flags, stack, word) = if number == __NR_clone {
        (first, second as u64, fourth)
    } else {
        let Some(words) = clone3_words(first, second) else { return WITHOUT_WORD };
        (words[0] as usize, words[STACK], words[CHILD_TID] as usize)
    };
    retire::before_clone(flags);
    if flags as c_uint & CLONE_VM == 0 && stack == 0 {
        return PROCESS;
    }
    joining::before_clone(flags, word).map_or(WITHOUT_WORD, |place| place as isize + 1)
}

/// What came of the call of a thread whose word is at this place.
extern "C" fn cloned(place: usize, result: isize) {
    joining::made(place - 1, result);
}

/// Flags are the first word of the arguments of clone3, the stack is the sixth.
const PIDFD: usize = 1;
const CHILD_TID: usize = 2;
const PARENT_TID: usize = 3;
const STACK: usize = 5;

/// The arguments of clone3. What is wrong with them is the kernel's to say; nothing is read where
/// nothing may be.
fn clone3_words(arguments: usize, size: usize) -> Option<[u64; 8]> {
    // SAFETY: the caller passes so many bytes to the kernel.
    (size >= size_of::<[u64; 8]>()).then(|| unsafe { peek::words(arguments) }).flatten()
}

/// The calls that concern the agent. `clone` and `clone3` come without CLONE_VM and without a stack.
///
/// # Safety
/// As for the system call.
unsafe extern "C" fn concerning(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    number: c_long,
    f: usize,
) -> isize {
    let number = number as c_uint;
    // SAFETY: passed on to the caller.
    let call = || unsafe { libc::call(number, [a, b, c, d, e, f]) };
    if [__NR_fork, __NR_clone, __NR_clone3].contains(&number) {
        let made = Made::by(number, [a, b, c, d]);
        let result = fork::between_telling(made.flags, made.told, |_| call());
        if result == 0 {
            joining::in_child(made.word);
        }
        return result;
    }
    if number == __NR_getppid {
        return parent::getppid() as isize;
    }
    if number == __NR_bind {
        return closing::taking_address(call);
    }
    if number == __NR_close {
        closing::before_close(a as c_int);
    }
    if number == __NR_set_tid_address {
        joining::before_set_tid_address(a);
    }
    if number == __NR_unshare {
        // SAFETY: passed on to the caller.
        return retire::for_unshare(a, |flags| unsafe { libc::call(number, [flags, b, c, d, e, f]) });
    }
    if number == __NR_setns {
        return retire::for_setns(a, b, call);
    }
    if [__NR_stat, __NR_lstat].contains(&number) {
        // SAFETY: passed on to the caller.
        return unsafe { tasks::looking(a as *const c_char, (b as _, Layout::Stat), call) };
    }
    if [__NR_newfstatat, __NR_statx].contains(&number) {
        let to = if number == __NR_statx { (e as _, Layout::Statx) } else { (c as _, Layout::Stat) };
        // SAFETY: passed on to the caller.
        return unsafe { tasks::looking(b as *const c_char, to, call) };
    }
    if number == __NR_execve {
        // SAFETY: passed on to the caller.
        return unsafe { exec::execve(a as *const c_char, b as _, c as _) } as isize;
    }
    if number == __NR_execveat {
        // SAFETY: passed on to the caller.
        return unsafe { exec::execveat(a as c_int, b as *const c_char, c as _, d as _, e as c_int) }
            as isize;
    }
    if number == __NR_madvise {
        // SAFETY: passed on to the caller.
        return unsafe { populate::madvise(a as *mut c_void, b, c as c_int) } as isize;
    }
    if number == __NR_process_madvise {
        let pieces = b as *const c_void;
        // SAFETY: passed on to the caller.
        return unsafe { advising::process_madvise(a as c_int, pieces, c, d as c_int, e as c_uint) };
    }
    if number == __NR_mlockall {
        // SAFETY: passed on to the caller.
        return unsafe { locking::mlockall(a as c_int) } as isize;
    }
    // SAFETY: passed on to the caller.
    if let Some(result) = unsafe { of_mappings(number, [a, b, c, d, e, f]) } {
        return result;
    }
    if number == __NR_ioctl {
        // SAFETY: passed on to the caller.
        return unsafe { registering::ioctl(a as c_int, b as c_ulong, c) } as isize;
    }
    if number == __NR_seccomp {
        return filters::for_seccomp(a, b, c, call);
    }
    if number == __NR_prctl {
        // SAFETY: passed on to the caller.
        return unsafe { filters::prctl(a as c_int, b, c, d, e) } as isize;
    }
    // SAFETY: passed on to the caller.
    if let Some(result) = unsafe { limits::by_number(number, [a, b, c, d]) } {
        return result as isize;
    }
    lend::announce(number, b, c, d);
    call()
}

/// The calls that change what is mapped. `None`: it is another.
///
/// *The story* (by reading): what was unmapped so was still taken for the file's, and taken in a turn in
/// which other memory came there.
///
/// # Safety
/// As for the system call.
#[expect(non_upper_case_globals, reason = "the kernel's headers name them so")]
unsafe fn of_mappings(number: c_uint, [a, b, c, d, e, f]: [usize; 6]) -> Option<isize> {
    let start = a as *mut c_void;
    // SAFETY: passed on to the caller.
    Some(unsafe {
        match number {
            __NR_mmap => populate::mmap(start, b, c as c_int, d as c_int, e as c_int, f as i64) as isize,
            __NR_shmat => attaching::shmat(a as c_int, b as *const c_void, c as c_int) as isize,
            __NR_munmap => kept::munmap(start, b) as isize,
            __NR_mremap => remap::mremap(start, b, c, d as c_int, e as *mut c_void) as isize,
            __NR_mprotect => files::mprotect(start, b, c as c_int) as isize,
            __NR_pkey_mprotect => files::pkey_mprotect(start, b, c as c_int, d as c_int) as isize,
            __NR_mlock => files::mlock(start, b) as isize,
            __NR_mlock2 => files::mlock2(start, b, c as u32) as isize,
            _ => return None,
        }
    })
}

/// What fork, clone or clone3 makes.
#[derive(Default)]
struct Made {
    flags: usize,
    /// Where the child's end is told of.
    word: Option<usize>,
    /// Where its maker is told of it, or 0.
    told: [usize; 2],
}

impl Made {
    /// With these arguments.
    fn by(number: c_uint, [first, second, third, fourth]: [usize; 4]) -> Made {
        if number == __NR_clone {
            return Made {
                flags: first,
                word: joining::word(first, fourth),
                told: told(first, third, third),
            };
        }
        // Of fork they are whatever was there.
        let words = (number == __NR_clone3).then(|| clone3_words(first, second)).flatten();
        words.map_or_else(Made::default, |words| {
            let flags = words[0] as usize;
            let told = told(flags, words[PARENT_TID] as usize, words[PIDFD] as usize);
            Made { flags, word: joining::word(flags, words[CHILD_TID] as usize), told }
        })
    }
}

/// The words with which the kernel tells a child's maker of it: its number, and a descriptor.
fn told(flags: usize, parent_tid: usize, pidfd: usize) -> [usize; 2] {
    let is_set = |flag| flags as c_uint & flag != 0;
    [if is_set(CLONE_PARENT_SETTID) { parent_tid } else { 0 }, if is_set(CLONE_PIDFD) { pidfd } else { 0 }]
}

/// A system call failed with minus this.
pub extern "C" fn failed(result: isize) -> isize {
    libc::fail(overspill_sys::Errno::from_raw_os_error(-result as i32))
}
