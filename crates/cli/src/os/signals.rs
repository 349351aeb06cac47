//! Signals of the launcher: survive them, pass on what the terminal does not deliver to the program
//! itself, and end the way the program ended.
//!
//! What asks a process to end, or tells it something, is passed on, timers' signals too: `alarm`
//! outlives an exec, so that `perl -e 'alarm 5; exec @ARGV' overspill run -- prog` ends the program,
//! not the launcher alone. What faults raise (SIGSEGV, SIGSYS, SIGTRAP and their kin) is the
//! launcher's own.
//!
//! *The story:* `timeout -s ALRM 5 overspill run -- prog` ended the launcher, and the program ran on.
//! `timeout -s PIPE` did nothing: Rust's start-up ignores that one.
//!
//! Ctrl-C and Ctrl-\ reach the whole foreground process group from the kernel, so the program has
//! them already. So does a hang-up, unless the launcher leads the session (`ssh -t host overspill run
//! ...`): that is told to the leader alone, and to the group only once the leader has ended. A signal that some process sent to the launcher alone is sent on,
//! except when the program itself sent it. Handlers (unlike ignored signals) do not survive exec,
//! so the program gets the default dispositions back by itself; a signal that was ignored at the
//! start stays ignored for both.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

/// What asks a process to end.
pub const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// What else is passed on, beside the signals without a name.
const NAMED: [i32; 11] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPIPE,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGABRT,
];
/// What the kernel sends to the program by itself where it is meant: a terminal to its whole group, a
/// limit to who passed it.
const SENT_TO_EACH: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGXFSZ, libc::SIGXCPU];

/// The process that signals are passed on to; 0 = none yet.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The last signal that was sent by a process and not passed on: its number, and the sender in the
/// upper half.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// Somebody asks how the run goes ([`STATUS`]).
static STATUS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// Such lines are given.
static ANSWERS_STATUS: AtomicBool = AtomicBool::new(false);
/// Asks for a line of status; it is not passed on unasked, as it kills programs that do not wait
/// for it.
const STATUS: i32 = libc::SIGUSR1;
/// The last signal of any origin.
static LAST: AtomicI32 = AtomicI32::new(0);

/// The thread that it interrupts finds its errno as it was.
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let errno = nix::errno::Errno::last();
    handle(signal, info);
    errno.set();
}

fn handle(signal: i32, info: *mut libc::siginfo_t) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    // SAFETY: codes <= 0 are user-sent and carry the sender's id.
    let sender = if code > 0 { 0 } else { unsafe { (*info).si_pid() } };
    // SAFETY: getpid cannot fail.
    let is_own = sender == unsafe { libc::getpid() };
    if signal == libc::SIGPIPE && is_own {
        return; // nobody reads what the launcher says: that is its own affair
    }
    LAST.store(signal, SeqCst);
    if code > 0 && SENT_TO_EACH.contains(&signal) && !is_for_leader(signal) {
        return;
    }
    if signal == libc::SIGABRT && is_own {
        return; // an abort of the launcher's own: libc raises it again, with its default
    }
    match CHILD.load(SeqCst) {
        child if signal == STATUS && ANSWERS_STATUS.load(SeqCst) => {
            STATUS_REQUESTED.fetch_or(child != sender, SeqCst);
        }
        0 => PENDING.store(u64::from(sender as u32) << 32 | u64::from(signal as u32), SeqCst),
        child if child != sender && code == libc::SI_QUEUE => {
            // SAFETY: a queued signal carries a value; sigqueue does not look at where it points to
            // and is async-signal-safe; the child is not reaped before CHILD is cleared. Where no
            // more may be queued kill is let through.
            unsafe {
                if libc::sigqueue(child, signal, (*info).si_value()) != 0 {
                    libc::kill(child, signal);
                }
            }
        }
        child if child != sender => {
            // SAFETY: kill takes no pointers and is async-signal-safe; the child as above.
            unsafe { libc::kill(child, signal) };
        }
        _ => {}
    }
}

/// Is it a hang-up of which the terminal tells nobody but this process?
///
/// *The story:* it was taken for one of which the whole group is told. A program whose terminal went away
/// lived on for ever, and so did its launcher.
fn is_for_leader(signal: i32) -> bool {
    // SAFETY: both take a number, cannot fail for this process, and are async-signal-safe.
    signal == libc::SIGHUP && unsafe { libc::getsid(0) == libc::getpid() }
}

/// What is passed on to the program.
pub fn forwarded() -> Vec<i32> {
    ENDING.into_iter().chain(NAMED).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).collect()
}

/// From now on these signals no longer end this process, except those that were ignored anyway (as
/// under nohup).
pub fn survive(signals: &[i32]) {
    for &signal in signals {
        if super::inherit::was_ignored(signal) {
            continue;
        }
        // SAFETY: all-zero bytes are a valid sigaction: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction =
            on_signal as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler is async-signal-safe (atomics and kill) and lives as long as the
        // process.
        let status = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        assert_eq!(status, 0, "these signals can be caught");
    }
}

/// Passes signals on to `child` from now on, and what has come in before, unless the child itself
/// was quick to send it.
pub fn forward_to(child: i32) {
    assert!(child > 0);
    CHILD.store(child, SeqCst);
    let pending = PENDING.swap(0, SeqCst);
    let (sender, signal) = ((pending >> 32) as i32, pending as u32 as i32);
    if signal != 0 && sender != child {
        // SAFETY: kill takes no pointers; the child is ours and not reaped yet.
        unsafe { libc::kill(child, signal) };
    }
}

/// From now on SIGUSR1 asks for a line of status.
pub fn answer_status() {
    ANSWERS_STATUS.store(true, SeqCst);
}

/// Whether a line of status was asked for since the last call.
pub fn take_status_request() -> bool {
    STATUS_REQUESTED.swap(false, SeqCst)
}

/// The process that signals are passed on to, as long as there is one.
pub fn child() -> Option<i32> {
    Some(CHILD.load(SeqCst)).filter(|&child| child > 0)
}

/// Sends the child a signal, if there still is one.
pub fn pass_on(signal: i32) {
    if let Some(child) = child() {
        // SAFETY: kill takes no pointers; the child is not reaped before CHILD is cleared.
        unsafe { libc::kill(child, signal) };
    }
}

/// The child is about to be reaped: its number may soon be somebody else's.
pub fn stop_forwarding() {
    CHILD.store(0, SeqCst);
}

/// The last signal that came in, if any.
pub fn last() -> Option<i32> {
    Some(LAST.load(SeqCst)).filter(|&signal| signal != 0)
}

/// Ends this process by `signal`, without a core dump of its own: the program had its chance to
/// leave one.
pub fn die_by(signal: i32) -> ! {
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: SIG_DFL is valid for every signal (for SIGKILL the call fails and is not needed).
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: all-zero bytes are a valid sigset, which sigemptyset and sigaddset then define.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid place, the old mask is not asked for, raise takes no pointer.
    unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
    // A signal whose default is harmless cannot have killed the program; the shells' convention is
    // all that is left.
    std::process::exit(128 + signal)
}
