//! Threads that libc does not know: made by the bare system call, with a stack and a thread-local block of
//! their own.
//!
//! Such a thread is invisible to the program: it is not counted by libc, gets no signal (all are blocked for
//! its whole life), and can have its own descriptor table. The price: it must not call libc, nor anything
//! that uses thread-locals. Its thread pointer leads to a block that makes the common accidents harmless: the
//! words the compiler and libc read relative to it (self pointer, stack canary, pointer guard) are there, and
//! the 64 KiB below it, where static thread-locals would lie, are zeroes that it may scribble on.
//!
//! A child of fork gets a copy of the memory, and no thread in it: nobody there runs on it, and what the
//! kernel would do at the thread's end does not happen. So it stays mapped in the child and does no harm.

use crate::futex::{self, Scope};
use crate::mem::{self, Mapping, Prot};
use crate::procfs::{self, Limit};
use crate::raw::{nr, syscall};
use crate::{AddressRange, Errno, PAGE_SIZE, clock};
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::prctl;

/// What a thread runs. It ends by returning.
pub type Entry = extern "C" fn(*mut ());

/// Which descriptors a new thread sees, and whose root and working directory it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// Those of the thread that makes it, from now on the same table.
    Shared,
    /// A copy of the table, which keeps the files of the program open: its first act should be
    /// [`crate::fd::close_all_descriptors`], and the maker should wait for that. Root and working
    /// directory are copies too: chroot in the program does not reach the thread, and setns sees a
    /// program with a single thread.
    Private,
}

/// The highest priority of real-time threads.
const PRIORITY_MAX: u32 = 99;
/// Length of a thread's turns on a busy processor: the shortest there is.
const TURN_NS: u64 = 100_000;
const THREAD_LOCAL_BYTES: usize = 64 * 1024;
/// Where in the page behind the thread pointer its id is kept: behind everything libc has there.
const TID_AT: usize = PAGE_SIZE - 64;
/// Who traces the program, and what it starts (`strace -f`, a debugger), is not given the thread.
///
/// *The story:* each of its calls stopped it for the tracer. The program of 200 MiB held 181 in 77, and
/// of 90,800 lines of strace 90,300 were the agent's.
const FLAGS: u32 = nr::CLONE_VM
    | nr::CLONE_UNTRACED
    | nr::CLONE_SIGHAND
    | nr::CLONE_THREAD
    | nr::CLONE_SYSVSEM
    | nr::CLONE_SETTLS
    | nr::CLONE_CHILD_CLEARTID
    | nr::CLONE_PARENT_SETTID;

/// A thread made by [`spawn`]. Dropping it lets it run on, with its memory.
#[derive(Debug)]
pub struct Thread {
    /// Guard page, stack, thread-locals, thread control block.
    memory: ManuallyDrop<Mapping>,
    tid: u32,
}

// SAFETY: the handle is an address and a number; the memory is the thread's until it has ended.
unsafe impl Send for Thread {}
// SAFETY: as above; all access is atomic.
unsafe impl Sync for Thread {}

/// Starts a thread on a stack of `stack_bytes` (whole pages) with all signals blocked. ENOSYS on processors
/// other than x86_64. The caller's own signal mask is as before when it returns.
///
/// # Safety
/// `entry(argument)` may run concurrently with everything; neither it nor what it calls uses libc,
/// thread-locals or unwinding; whatever `argument` points to lives long enough.
pub unsafe fn spawn(
    stack_bytes: usize,
    descriptors: Descriptors,
    entry: Entry,
    argument: *mut (),
) -> Result<Thread, Errno> {
    assert!(stack_bytes >= 4 * PAGE_SIZE && stack_bytes.is_multiple_of(PAGE_SIZE));
    let memory = Mapping::anon(PAGE_SIZE + stack_bytes + THREAD_LOCAL_BYTES + PAGE_SIZE, Prot::RW)?;
    mem::name(memory.range(), c"overspill thread");
    // SAFETY: the first page is ours and nobody uses it.
    unsafe { mem::mprotect(memory.start()..memory.page(1), Prot::empty())? };
    let block = memory.range().end - PAGE_SIZE;
    let stack_top = block - THREAD_LOCAL_BYTES;
    // SAFETY: the block is a page of ours; the two words at the top of the stack are too, and aligned.
    unsafe {
        arch::prepare_block(block);
        let start = (memory.range().end - size_of::<Start>()) as *mut Start;
        start.write(Start { entry, argument });
        (stack_top as *mut usize).sub(1).write(begin as *const () as usize);
        (stack_top as *mut usize).sub(2).write(start as usize);
    }
    let flags = match descriptors {
        Descriptors::Shared => FLAGS | nr::CLONE_FILES | nr::CLONE_FS,
        Descriptors::Private => FLAGS,
    };
    let mask = block_all_signals()?;
    // SAFETY: stack and block are prepared as the function wants them; the caller vouches for the entry.
    let result = unsafe { arch::clone(flags, stack_top - 16, block, block + TID_AT) };
    restore_signals(mask);
    let tid = result? as u32;
    remember(tid);
    Ok(Thread { tid, memory: ManuallyDrop::new(memory) })
}

/// What a thread begins with; it lies at the end of its control block's page.
struct Start {
    entry: Entry,
    argument: *mut (),
}

/// It is known to be one of ours before it does anything, whichever thread runs first. If a place is free:
/// who started it may find another, by system calls that a filter may not allow here.
///
/// *The story:* whoever started it noted its number when clone had returned. Until then it was taken for one
/// of the program's: in a child with a root of its own it went by that, and found no /proc.
extern "C" fn begin(start: *mut ()) {
    let word = start as usize / PAGE_SIZE * PAGE_SIZE + TID_AT;
    // SAFETY: `spawn` has put it there, and the kernel the thread's number, in a page of the thread's.
    let (Start { entry, argument }, tid) =
        unsafe { (start.cast::<Start>().read(), AtomicU32::from_ptr(word as *mut u32)) };
    let tid = tid.load(Ordering::Relaxed);
    OWN.iter().any(|own| own.compare_exchange(0, tid, Ordering::SeqCst, Ordering::SeqCst).is_ok());
    entry(argument);
}

/// As [`spawn`], but the new thread is an ordinary one though the caller may come before all.
///
/// # Safety
/// As for [`spawn`].
pub unsafe fn spawn_ordinary(
    stack_bytes: usize,
    descriptors: Descriptors,
    entry: Entry,
    argument: *mut (),
) -> Result<Thread, Errno> {
    let own = Scheduling::current().ok().filter(|own| own.real_time_priority() > 0);
    if own.is_some() {
        let _ = compete();
    }
    // SAFETY: the caller vouches for it.
    let thread = unsafe { spawn(stack_bytes, descriptors, entry, argument) };
    if let Some(own) = own.filter(|_| may_come_before()) {
        let _ = own.set();
    }
    thread
}

/// Ids of threads that were started here, 0 for none. A thread is started now and then while others
/// live as long as the program.
///
/// *The story:* this was a ring, and after 64 lines of a trace, each said by a thread of its own, the
/// agent's thread was taken for one of the program's.
static OWN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Takes a place that is free, or whose thread is not there any more. The thread itself notes its number, and
/// whoever started it, who may ask for it at once.
fn remember(tid: u32) {
    if is_own(tid) {
        return;
    }
    let is_taken = OWN.iter().any(|own| {
        let before = own.load(Ordering::SeqCst);
        let is_free = before == 0 || send_signal(before, 0) == Err(Errno::SRCH);
        is_free && own.compare_exchange(before, tid, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    });
    if !is_taken {
        // So many live, or nobody may ask: the last one is the least likely to stay.
        OWN[OWN.len() - 1].store(tid, Ordering::SeqCst);
    }
}

/// The thread has ended: its number will be another's.
fn forget(tid: u32) {
    for own in &OWN {
        let _ = own.compare_exchange(tid, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Was a thread of this id started by [`spawn`]? It may have ended since.
#[must_use]
pub fn is_own(tid: u32) -> bool {
    OWN.iter().any(|own| own.load(Ordering::SeqCst) == tid)
}

impl Thread {
    /// Waits until the thread in this memory, which [`spawn`] made and nobody joins, has ended or the
    /// time is up; says which (`true`: ended).
    ///
    /// # Safety
    /// The range is the [`Thread::range`] of a thread, and stays mapped.
    pub unsafe fn wait_at(range: AddressRange, timeout_ns: Option<u64>) -> bool {
        let address = range.end - PAGE_SIZE + TID_AT;
        // SAFETY: the word is the thread's, as in `tid_word`.
        wait_for_end(unsafe { AtomicU32::from_ptr(address as *mut u32) }, timeout_ns)
    }

    /// In a child of fork, which has that thread's memory and not the thread: it has ended.
    ///
    /// # Safety
    /// As for [`Thread::wait_at`].
    pub unsafe fn forget_at(range: AddressRange) {
        let address = range.end - PAGE_SIZE + TID_AT;
        // SAFETY: as above.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        forget(word.swap(0, Ordering::AcqRel));
    }

    /// Its id.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// All its memory: guard page, stack, thread-locals.
    #[must_use]
    pub fn range(&self) -> AddressRange {
        self.memory.range()
    }

    /// It runs no more (or is on its last instructions, in the kernel).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.tid_word().load(Ordering::Acquire) == 0
    }

    /// Waits until it has ended or the time is up; says which (`true`: ended).
    #[must_use]
    pub fn wait(&self, timeout_ns: Option<u64>) -> bool {
        wait_for_end(self.tid_word(), timeout_ns)
    }

    /// Waits until it has ended and gives its memory back.
    pub fn join(self) {
        assert!(self.wait(None), "waiting without a limit ends with the thread");
        forget(self.tid);
        // The kernel clears the word when the thread will not run in user mode any more.
        drop(ManuallyDrop::into_inner(self.memory));
    }

    /// The word that the kernel sets at the start and clears at the end.
    fn tid_word(&self) -> &AtomicU32 {
        let address = self.memory.range().end - PAGE_SIZE + TID_AT;
        // SAFETY: the word is in our memory, aligned, and only ever accessed atomically.
        unsafe { AtomicU32::from_ptr(address as *mut u32) }
    }
}

/// Waits until the kernel clears the word of a thread, or the time is up.
fn wait_for_end(word: &AtomicU32, timeout_ns: Option<u64>) -> bool {
    let end = timeout_ns.map(|timeout| clock::monotonic_ns().saturating_add(timeout));
    loop {
        let tid = word.load(Ordering::Acquire);
        if tid == 0 {
            return true;
        }
        let left = end.map(|end| end.saturating_sub(clock::monotonic_ns()));
        if left == Some(0) {
            return false;
        }
        // The kernel wakes as if the word were shared between processes.
        let _ = futex::wait(word, tid, left, Scope::Shared);
    }
}

/// A set of signals, as the kernel has it.
pub type SignalSet = u64;

fn change_signals(new: SignalSet) -> Result<SignalSet, Errno> {
    let mut old: SignalSet = 0;
    let (how, new_at, old_at) = (nr::SIG_SETMASK as usize, &raw const new as usize, &raw mut old as usize);
    // SAFETY: both sets are valid.
    unsafe { syscall!(nr::__NR_rt_sigprocmask, how, new_at, old_at, size_of::<SignalSet>())? };
    Ok(old)
}

/// Blocks every signal that can be blocked, for the calling thread; returns what was blocked before.
pub fn block_all_signals() -> Result<SignalSet, Errno> {
    change_signals(SignalSet::MAX)
}

/// The signals that the C library keeps for itself, as bits: it has each thread that it knows do something
/// by them, and waits for all. 34 is a program's where it is not musl's.
const OF_THE_LIBRARY: SignalSet =
    if cfg!(target_env = "musl") { 0b111 << (32 - 1) } else { 0b11 << (32 - 1) };

/// The same, but for those by which the C library asks its threads for something: for threads that it has
/// made. Their handlers are its own.
///
/// *The story:* setuid(2) of glibc has every thread change its own rights. It waited for ever for those of
/// a pager, which had blocked the signal by which they are told.
pub fn block_program_signals() -> Result<SignalSet, Errno> {
    change_signals(SignalSet::MAX & !OF_THE_LIBRARY)
}

/// Goes back to what [`block_all_signals`] returned. Only a seccomp filter that has come since can
/// refuse that: then the signals stay blocked, and the program goes on.
pub fn restore_signals(mask: SignalSet) {
    let _ = change_signals(mask);
}

/// After [`block_all_signals`] of the calling thread: those that were not blocked before, and that no
/// handler of the program's is for, have their effect again.
pub fn unblock_unhandled(before: SignalSet) {
    let mask = (1..=SignalSet::BITS)
        .map(|signal| (signal, 1 << (signal - 1)))
        .filter(|&(signal, bit)| before & bit == 0 && has_default_action(signal))
        .fold(SignalSet::MAX, |mask, (_, bit)| mask & !bit);
    restore_signals(mask);
}

fn has_default_action(signal: u32) -> bool {
    // `struct sigaction` as the kernel has it: the handler comes first, and 0 is none.
    let mut action = [0usize; 4];
    let (at, size) = (&raw mut action as usize, size_of::<SignalSet>());
    // SAFETY: asks; the structure is as long as the kernel takes it to be.
    let asked = unsafe { syscall!(nr::__NR_rt_sigaction, signal as usize, 0, at, size) };
    asked.is_ok() && action[0] == 0
}

/// Id of the calling thread.
#[must_use]
pub fn id() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall!(nr::__NR_gettid) }.expect("gettid cannot fail") as u32
}

/// Names the calling thread, for those who look at the process; 15 bytes count.
pub fn set_name(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    let _ = unsafe { syscall!(nr::__NR_prctl, prctl::PR_SET_NAME as usize, name.as_ptr() as usize) };
}

/// Lets others run.
pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall!(nr::__NR_sched_yield) };
}

/// How a thread competes for processors: `struct sched_attr`, first version. See sched_setattr(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Scheduling {
    const SIZE: u32 = size_of::<Scheduling>() as u32;

    /// Like all others, with a nice value (-20, most, to 19) and turns of so many nanoseconds (100
    /// us to 100 ms; kernels before 6.12 take no notice of it). Short turns come sooner: the thread
    /// gets no larger a share by them, but waits less for it.
    #[must_use]
    pub fn ordinary(nice: i32, turn_ns: u64) -> Scheduling {
        Scheduling {
            size: Self::SIZE,
            policy: nr::SCHED_NORMAL,
            nice,
            runtime: turn_ns,
            ..Scheduling::default()
        }
    }

    /// Before every ordinary thread, and every real-time one of a lower priority (1 to 99): it is given
    /// a processor as soon as it wants one, and keeps it until it sleeps (`SCHED_FIFO`).
    #[must_use]
    pub fn first(priority: u32) -> Scheduling {
        Scheduling { size: Self::SIZE, policy: nr::SCHED_FIFO, priority, ..Scheduling::default() }
    }

    /// That of the calling thread.
    pub fn current() -> Result<Scheduling, Errno> {
        Scheduling::of(0)
    }

    /// That of a thread, by its number; 0 is the caller.
    pub fn of(tid: u32) -> Result<Scheduling, Errno> {
        let mut current = Scheduling::default();
        let (at, size) = (&raw mut current as usize, Self::SIZE as usize);
        // SAFETY: the call writes at most so many bytes.
        unsafe { syscall!(nr::__NR_sched_getattr, tid as usize, at, size, 0)? };
        current.size = Self::SIZE;
        Ok(current)
    }

    /// Its priority among real-time threads; 0: it is none.
    #[must_use]
    pub fn real_time_priority(&self) -> u32 {
        if matches!(self.policy, nr::SCHED_FIFO | nr::SCHED_RR) { self.priority } else { 0 }
    }

    /// Makes it that of the calling thread.
    ///
    /// # Errors
    /// `ACCESS` or `PERM` when the process may not have that: coming first and nice values below 0
    /// take CAP_SYS_NICE or a limit that allows them.
    pub fn set(&self) -> Result<(), Errno> {
        // SAFETY: the attributes are as long as they say, and are only read.
        unsafe { syscall!(nr::__NR_sched_setattr, 0, &raw const *self as usize, 0) }.map(drop)
    }
}

/// The calling thread comes before every ordinary one from now on, and before real-time ones of this
/// priority; never with less than it has.
///
/// Not where real-time threads may work so long only without a pause (`RLIMIT_RTTIME`): whoever
/// passes that has the whole process killed. No real-time thread keeps a processor for longer there.
pub fn come_before(priority: u32) -> Result<(), Errno> {
    if !may_come_before() {
        return Err(Errno::PERM);
    }
    let own = Scheduling::current()?.real_time_priority();
    Scheduling::first(own.max((priority + 1).min(PRIORITY_MAX))).set()
}

/// The calling thread competes with ordinary ones from now on. When all processors are busy, a program that
/// waits for a page waits for this thread to be given one, so it has a lower nice value, which is a
/// privilege; without it things are merely slower.
///
/// # Errors
/// As for [`Scheduling::set`].
pub fn compete() -> Result<(), Errno> {
    let ordinary = |nice| Scheduling::ordinary(nice, TURN_NS).set();
    ordinary(-10).or_else(|_| ordinary(0))
}

/// May a thread of this process be in a real-time class for as long as it works?
#[must_use]
pub fn may_come_before() -> bool {
    procfs::limit(Limit::RealTime).is_ok_and(|(soft, _)| soft == u64::MAX)
}

/// The calling thread competes like any other from now on. Whoever leaves a class needs no privilege for it.
pub fn stand_back() {
    let _ = Scheduling { size: Scheduling::SIZE, ..Scheduling::default() }.set();
}

/// Waits until a thread of this process that has told its end is counted no more, but not for ever: its
/// number may be another's by now.
///
/// *The story:* the kernel tells that a thread has ended, and counts it out a little later. On a busy
/// machine somebody who counted threads in between found one too many (`citizens::forks-while-away`).
pub fn wait_until_counted_out(tid: u32) {
    const LOOKS: u32 = 5_000;
    const REST_NS: u64 = 20_000;
    for _ in 0..LOOKS {
        if send_signal(tid, 0).is_err() {
            break;
        }
        clock::sleep_ns(REST_NS);
    }
    forget(tid);
}

/// Is there no thread of this number, of whatever process? A child that shares memory has words there, too.
///
/// *The story:* threads of the caller's own process were asked for. What a child of vfork had noted was
/// given up while the child ran, and the other way round.
#[must_use]
pub fn is_gone(tid: u32) -> bool {
    // SAFETY: nothing is sent.
    let asked = unsafe { syscall!(nr::__NR_tkill, tid as usize, 0) };
    asked == Err(Errno::SRCH)
}

/// Sends a signal to a thread of this process.
pub fn send_signal(tid: u32, signal: u32) -> Result<(), Errno> {
    let process = mem::process_id() as usize;
    // SAFETY: what the signal does is what the program asked for.
    unsafe { syscall!(nr::__NR_tgkill, process, tid as usize, signal as usize).map(drop) }
}

/// Ends the process at once, without exit handlers.
pub fn exit_process(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { syscall!(nr::__NR_exit_group, status as usize) };
    }
}

/// Ends the process by a signal, whatever the program has it do; by status 128 and it, where it
/// does not end one.
pub fn end_process_by(signal: u32) -> ! {
    let number = signal as usize;
    // The default action, no flags, nothing blocked: `struct sigaction` as the kernel has it.
    let default = [0usize; 4];
    let (action, size) = (&raw const default as usize, size_of::<SignalSet>());
    // SAFETY: the structure is valid, and as long as the kernel takes it to be.
    let _ = unsafe { syscall!(nr::__NR_rt_sigaction, number, action, 0, size) };
    restore_signals(0);
    let (process, thread) = (mem::process_id() as usize, id() as usize);
    // SAFETY: a signal to this thread.
    let _ = unsafe { syscall!(nr::__NR_tgkill, process, thread, number) };
    exit_process(128 + signal as i32)
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use crate::Errno;
    use crate::raw::{nr, split};
    use core::arch::asm;

    /// Fills the block behind a new thread pointer: pointer to itself (twice: for the compiler and for libc),
    /// and the caller's stack canary and pointer guard.
    ///
    /// # Safety
    /// `block` is a zeroed page; the caller has a thread pointer of its own (any libc thread, or one made
    /// here).
    pub(super) unsafe fn prepare_block(block: usize) {
        const SELF: [usize; 2] = [0x00, 0x10];
        const CANARY: usize = 0x28;
        const POINTER_GUARD: usize = 0x30;
        let (canary, guard): (usize, usize);
        // SAFETY: every libc thread has these words behind its thread pointer.
        unsafe {
            asm!("mov {}, fs:[0x28]", out(reg) canary, options(nostack, readonly, preserves_flags));
            asm!("mov {}, fs:[0x30]", out(reg) guard, options(nostack, readonly, preserves_flags));
        }
        let words = [(SELF[0], block), (SELF[1], block), (CANARY, canary), (POINTER_GUARD, guard)];
        for (offset, word) in words {
            // SAFETY: inside the page.
            unsafe { ((block + offset) as *mut usize).write(word) };
        }
    }

    /// The call itself. The new thread takes argument and entry off its stack, runs, and exits.
    ///
    /// # Safety
    /// `stack` points to two words, argument and entry, below a 16-byte boundary of free stack;
    /// `thread_pointer` to a prepared block; `tid` to a word that lives as long as the thread.
    pub(super) unsafe fn clone(
        flags: u32,
        stack: usize,
        thread_pointer: usize,
        tid: usize,
    ) -> Result<usize, Errno> {
        let result: isize;
        // SAFETY: in the parent nothing but the result register and what the instruction clobbers changes;
        // the child never leaves the block.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "pop rdi",
                "pop rax",
                "call rax",
                "mov eax, {exit}",
                "xor edi, edi",
                "syscall",
                "ud2",
                "2:",
                exit = const nr::__NR_exit,
                inlateout("rax") nr::__NR_clone as usize => result,
                in("rdi") flags as usize, in("rsi") stack, in("rdx") tid, in("r10") tid, in("r8") thread_pointer,
                lateout("rcx") _, lateout("r11") _,
            );
        }
        split(result)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    use crate::Errno;

    /// # Safety
    /// None needed: does nothing.
    pub(super) unsafe fn prepare_block(_: usize) {}

    /// # Safety
    /// None needed: always fails.
    pub(super) unsafe fn clone(_: u32, _: usize, _: usize, _: usize) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
}
