//! The constructor: runs before the program's main, in a few hundred microseconds, and changes
//! nothing that the program could notice.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use overspill_engine::shared::ENV;
use overspill_sys::futex::{self, Scope};
use overspill_sys::mem::Mapping;
use overspill_sys::thread::{self, Descriptors, Thread};
use overspill_sys::{AddressRange, Errno, deep_sleep, fd, proc_place, reserve, uffd};

use crate::agent::Beginning;
use crate::heir::Heir;
use crate::launcher::{self, Address};
use crate::told_range::ToldRange;
use crate::{
    agent, closing, elf, exec, files, filters, foreign, fork, forms, fresh, heir, leaks, lend, message,
    retire, settings, speaker, stacks, tasks, veto,
};

/// Launcher and descriptor of the shared page, for the agent's thread.
static PLACE: AtomicU64 = AtomicU64::new(0);
/// And the launcher's token, and its filters.
static TOKEN: AtomicU64 = AtomicU64::new(0);
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// The agent has closed its copies of the program's descriptors, and is known to the launcher.
/// The one who waits for it may come before all others: it sleeps.
///
/// *The story* (by reading): it yielded. A real-time thread that yields goes on at once on the processor on
/// which the agent, which did not inherit its class, was to run.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// This process is a child of fork that has not called exec.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// The agent was there before, and went.
static IS_BACK: AtomicBool = AtomicBool::new(false);

/// The memory of the agent's thread.
static THREAD: ToldRange = ToldRange::none();

/// Its number.
static TID: AtomicU32 = AtomicU32::new(0);

/// The agent's stack. Without optimization a function's variables have places of their own, all at a time.
///
/// *The story:* what was built for debugging ended each program that paged, by SIGSEGV.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 4 << 20 } else { 256 << 10 };

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

extern "C" fn constructor(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    if !foreign::is_glibc() {
        foreign::set_up();
        look_up();
        return;
    }
    // SAFETY: glibc's loader passes the environment: pointers to strings, then a null pointer and the
    // auxiliary vector.
    unsafe { elf::set_up(environment) };
    look_up();
    // SAFETY: as above.
    let address = unsafe { value(environment, ENV.as_bytes()) }.and_then(Address::parse);
    // SAFETY: as above.
    let libraries = unsafe { value(environment, b"LD_PRELOAD") };
    let Some(address) = address.filter(|_| !libraries.is_some_and(is_in_valgrind)) else { return };
    launcher::note_libraries(libraries.unwrap_or_default());
    TOKEN.store(address.token, Ordering::Release);
    FILTERS.store(address.filters, Ordering::Release);
    PLACE.store(u64::from(address.process) << 32 | u64::from(address.descriptor), Ordering::Release);
    if filters::is_confined(address.filters) {
        filters::note_confined();
        return;
    }
    message::set_up();
    leaks::set_up();
    stacks::set_up();
    let (Some(()), Some(register)) = (fork::set_up(), foreign::register()) else { return };
    // SAFETY: the handlers are safe to call in any thread of the program; the library is never unloaded.
    if unsafe { register(fork::prepare, fork::parent, fork::child, core::ptr::null_mut()) } != 0 {
        return;
    }
    let _ = start_agent();
}

/// Programs that have no agent make these calls, too.
fn look_up() {
    exec::set_up();
    tasks::set_up();
    forms::set_up();
    lend::set_up();
    closing::set_up();
}

/// In a child of fork: the parent's agent is not there.
///
/// *The story:* a signal handler forked while its thread waited for the agent to go. In the child
/// that wait went on when the handler returned, for a thread that only the parent had.
pub fn forget_agent() {
    if THREAD.is_there() {
        // SAFETY: the range is that of the parent's thread, of which the child has the memory.
        unsafe { Thread::forget_at(THREAD.get()) };
    }
    THREAD.clear();
    agent::forget_place();
}

/// Is there an agent, on its way or not?
pub fn is_there() -> bool {
    THREAD.is_there() && fork::is_ours()
}

/// In a child of fork, in its only thread: an agent of its own. What the parent's agent had is not
/// there, or lies idle.
pub fn start_again() {
    // SAFETY: only the agent's threads allocate, and the child has none of them: it has one thread.
    unsafe {
        crate::ARENA.forget();
        reserve::forget();
    }
    STARTED.store(0, Ordering::Release);
    IS_FORKED.store(true, Ordering::Release);
    IS_BACK.store(false, Ordering::Release);
    if !retire::is_gone() && fork::set_up().is_some() {
        let _ = start_agent();
    }
    // Where there is no agent, or it did not get so far.
    heir::refuse();
}

/// The thread that waits for the agent goes on.
pub fn let_go() {
    STARTED.store(1, Ordering::Release);
    futex::wake(&STARTED, u32::MAX, Scope::Private);
}

/// After [`wait_until_gone`], in any thread of the program: another agent.
pub fn come_back() {
    STARTED.store(0, Ordering::Release);
    IS_BACK.store(true, Ordering::Release);
    if let Err(errno) = start_agent() {
        agent::stays_away(errno);
    }
}

/// Waits until the agent's thread has ended. It must be on its way.
pub fn wait_until_gone() {
    if is_there() {
        // Its number is read first: a child that is made meanwhile has an agent of its own, which goes on.
        let (range, tid) = (THREAD.get(), TID.load(Ordering::Acquire));
        // SAFETY: the range is that of the agent's thread, which is never joined. Once it has ended
        // nobody uses its memory, nor does a child that was made meanwhile.
        unsafe {
            let _ = Thread::wait_at(range.clone(), None);
            thread::wait_until_counted_out(tid);
            // Before its memory is gone: a child that is made in between must not look there. One
            // that was made meanwhile has an agent of its own by now.
            THREAD.clear_this(&range);
            drop(Mapping::from_range(range));
        }
    }
}

/// Without a thread the program runs unmanaged, and the launcher is told why. No signal comes meanwhile: its
/// handler might fork, and the child would go on here.
///
/// *The story:* nobody told. Where one process was all that might be (pids.max) the summary spoke of a
/// sandbox.
fn start_agent() -> Result<(), Errno> {
    let mask = thread::block_all_signals()?;
    let started = start_thread();
    if let Err(errno) = started
        && !IS_BACK.load(Ordering::Acquire)
    {
        agent::tell_failure(address(), errno);
    }
    thread::restore_signals(mask);
    started
}

fn start_thread() -> Result<(), Errno> {
    // SAFETY: the agent keeps to the rules: no libc, no thread-locals, no unwinding.
    let agent = unsafe { thread::spawn(STACK_BYTES, Descriptors::Private, entry, core::ptr::null_mut())? };
    TID.store(agent.tid(), Ordering::Release);
    THREAD.set(agent.range());
    // Its copies of the program's descriptors must be gone before the program counts on closing one.
    while STARTED.load(Ordering::Acquire) == 0 {
        let is_seen = !IS_FORKED.load(Ordering::Acquire) || deep_sleep::until_set(&STARTED).is_err();
        if is_seen {
            let _ = futex::wait(&STARTED, 0, None, Scope::Private);
        }
    }
    Ok(())
}

extern "C" fn entry(_: *mut ()) {
    // SAFETY: the thread has a descriptor table of its own: the program's descriptors stay open.
    let _ = unsafe { fd::close_all_descriptors() };
    fd::forget_spare();
    fd::insist();
    // What the parent's agent was given is not in this table.
    uffd::forget_device();
    proc_place::forget_given();
    if settings::is_rich() {
        fd::keep_spare();
    }
    // Nor does the agent keep a file system busy that the program leaves and unmounts.
    let _ = overspill_sys::file::change_directory(c"/");
    let beginning = match (IS_FORKED.load(Ordering::Acquire), IS_BACK.load(Ordering::Acquire)) {
        (_, true) => Beginning::Return,
        (true, false) => Beginning::Fork,
        (false, false) => Beginning::Program,
    };
    let mission = agent::enlist(address(), beginning);
    if let Some(mission) = &mission {
        fresh::watch(mission.ram());
        files::watch(mission.files_min_bytes(), mission.reach());
    }
    // It may be an heir's: then it goes on when that has what it inherits.
    let heir = if mission.is_some() { Heir::begin() } else { None };
    if heir.is_none() {
        let_go();
    }
    if let Some(mission) = mission {
        agent::run(mission, heir);
        speaker::leave();
        files::forget();
        fresh::forget();
    }
}

/// Where the launcher is.
pub fn address() -> Address {
    let place = PLACE.load(Ordering::Acquire);
    let (token, filters) = (TOKEN.load(Ordering::Acquire), FILTERS.load(Ordering::Acquire));
    Address { process: (place >> 32) as u32, descriptor: place as u32, token, filters }
}

/// Valgrind loads a library of its own by the same variable. It runs no thread that libc does not know.
///
/// *The story:* it ended the program for the flags of the call that makes the agent's thread.
fn is_in_valgrind(libraries: &[u8]) -> bool {
    const NAME: &[u8] = b"/vgpreload_";
    libraries.windows(NAME.len()).any(|part| part == NAME)
}

/// The value of a variable.
///
/// # Safety
/// `environment` is null or a null-terminated array of strings, which stays as it is.
unsafe fn value(environment: *const *const c_char, name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: passed on to the caller.
    let mut entries = unsafe { exec::entries(environment) };
    entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
}

/// What the agent has besides its arena: the addresses put aside, its thread, its doorbell.
pub fn each_range(visit: &mut impl FnMut(AddressRange)) {
    visit(reserve::range());
    visit(fork::doorbells());
    visit(fork::mailbox());
    visit(veto::range());
    visit(THREAD.get());
    visit(speaker::range());
    agent::growing::each_range(visit);
}
