//! Programs that are started where there is little stack, with environments that others have made.

use std::ffi::{CString, c_char};

use crate::child::{self, Child};
use crate::context::Context;
use crate::ensure;
use crate::outcome::Outcome;
use crate::pattern;
use crate::sys::{self, check};

const SEED: u64 = 0x57_AC_C5;
/// The smallest stack that a thread may have.
const STACK: usize = 16 << 10;
/// What a handler of signals has beside what the kernel puts there.
const HANDLER_STACK: usize = 4 << 10;
/// Tries until what children left is gone.
const TRIES: usize = 2000;

/// An environment, ready to be handed on.
struct Environment {
    entries: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: it is only read.
unsafe impl Sync for Environment {}

impl Environment {
    /// Nothing but that many entries.
    fn of(count: usize) -> Environment {
        let entry = |index| CString::new(format!("V{index}=value{index}")).expect("no NUL");
        let entries: Vec<CString> = (0..count).map(entry).collect();
        let pointers = entries.iter().map(|entry| entry.as_ptr()).chain([std::ptr::null()]).collect();
        Environment { entries, pointers }
    }
}

const PROGRAM: &std::ffi::CStr = c"/proc/self/exe";
const WORDS: [&std::ffi::CStr; 3] = [c"torture", c"part", c"nothing"];

fn words() -> [*const c_char; WORDS.len() + 1] {
    [WORDS[0].as_ptr(), WORDS[1].as_ptr(), WORDS[2].as_ptr(), std::ptr::null()]
}

/// `exec-small-stack`: exec, vfork and posix_spawn in a thread with the smallest stack, exec in a handler
/// that has less, with small and large environments that know of no preload. What a child of vfork has made
/// for its exec does not stay with its parent.
///
/// *The story:* with 1500 entries a thread of 16 KiB got SIGSEGV, as the agent put the environment together
/// on the stack. With 50,000 the program ran without an agent.
pub fn exec(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    for count in [3, 100, 1500, 50_000] {
        context.cool(&memory)?;
        let environment = Environment::of(count);
        ensure!(environment.entries.len() == count, "an environment of {count} entries");
        let before = shared_mappings()?;
        in_small_thread(&|| starts(&environment))?;
        handlers_exec(&environment)?.succeed(&format!("exec in a handler, {count} entries"))?;
        let mut tries = 0;
        while shared_mappings()? > before {
            ensure!(tries < TRIES, "mappings that children of vfork made stay, {count} entries");
            tries += 1;
            sys::pause_ms(1);
        }
    }
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after children")
}

/// Runs it in a thread of libc's own with the smallest stack.
fn in_small_thread(body: &(dyn Fn() -> Outcome + Sync)) -> Outcome {
    let thread = std::thread::Builder::new().stack_size(STACK);
    std::thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, body).map_err(|error| format!("a thread: {error}"));
        thread.map_err(crate::outcome::Failure)?.join().expect("a panic ends the process")
    })
}

fn starts(environment: &Environment) -> Outcome {
    for round in 0..8 {
        let (how, child) = match round % 4 {
            0 => ("vfork", vfork_exec(environment)?),
            1 => ("posix_spawn", spawn(environment)?),
            2 => ("fork", child::fork(|| execve(environment))?),
            _ => ("execvpe", child::fork(|| execvpe(environment))?),
        };
        child.succeed(how)?;
    }
    Ok(())
}

fn execve(environment: &Environment) -> Outcome {
    // SAFETY: a path, words and entries, each list with a null pointer behind it.
    let result = unsafe { libc::execve(PROGRAM.as_ptr(), words().as_ptr(), environment.pointers.as_ptr()) };
    check("execve", result as isize).map(drop)
}

fn execvpe(environment: &Environment) -> Outcome {
    // SAFETY: as above.
    let result = unsafe { libc::execvpe(PROGRAM.as_ptr(), words().as_ptr(), environment.pointers.as_ptr()) };
    check("execvpe", result as isize).map(drop)
}

fn vfork_exec(environment: &Environment) -> Outcome<Child> {
    let (words, nothing) = (words(), c"/no/such/program");
    // SAFETY: as above; the child shares memory and stack until it execs, and calls nothing but exec and
    // exit. The first of its calls fails.
    let pid = unsafe {
        #[expect(deprecated, reason = "it is what is tested")]
        let pid = libc::vfork();
        if pid == 0 {
            libc::execve(nothing.as_ptr(), words.as_ptr(), environment.pointers.as_ptr());
            libc::execve(PROGRAM.as_ptr(), words.as_ptr(), environment.pointers.as_ptr());
            libc::_exit(112);
        }
        pid
    };
    check("vfork", pid as isize)?;
    Ok(Child::adopt(pid))
}

fn spawn(environment: &Environment) -> Outcome<Child> {
    let mut pid = 0;
    let (path, words) = (PROGRAM.as_ptr(), words());
    let (words, entries) = (words.as_ptr().cast(), environment.pointers.as_ptr().cast());
    // SAFETY: as above.
    let error =
        unsafe { libc::posix_spawn(&raw mut pid, path, std::ptr::null(), std::ptr::null(), words, entries) };
    ensure!(error == 0, "posix_spawn: {}", std::io::Error::from_raw_os_error(error));
    Ok(Child::adopt(pid))
}

/// The environment that [`handler`] hands on.
static HANDED: std::sync::atomic::AtomicPtr<*const c_char> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

extern "C" fn handler(_: i32) {
    let entries = HANDED.load(std::sync::atomic::Ordering::SeqCst).cast_const();
    // SAFETY: as above.
    unsafe {
        libc::execve(PROGRAM.as_ptr(), words().as_ptr(), entries);
        libc::_exit(112);
    }
}

/// A child whose handler of a signal, on a stack of its own, becomes a program.
fn handlers_exec(environment: &Environment) -> Outcome<Child> {
    child::fork(|| {
        HANDED.store(environment.pointers.as_ptr().cast_mut(), std::sync::atomic::Ordering::SeqCst);
        // SAFETY: asks for a number.
        let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let bytes = least.max(libc::MINSIGSTKSZ) + HANDLER_STACK;
        let memory = crate::memory::Memory::map(bytes.next_multiple_of(crate::memory::PAGE) * 2)?;
        // The end of what is below it must not be touched.
        let below = memory.len() - bytes.next_multiple_of(crate::memory::PAGE);
        // SAFETY: the memory is this subtest's, and the stack is in it; the handler has this type.
        unsafe {
            check("mprotect", libc::mprotect(memory.base() as *mut _, below, libc::PROT_NONE) as isize)?;
            let start = memory.base() + below;
            let stack = libc::stack_t { ss_sp: start as *mut _, ss_flags: 0, ss_size: memory.len() - below };
            check("sigaltstack", libc::sigaltstack(&raw const stack, std::ptr::null_mut()) as isize)?;
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            check(
                "sigaction",
                libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) as isize,
            )?;
            libc::raise(libc::SIGUSR1);
        }
        crate::fail!("the handler has returned")
    })
}

/// How many mappings of shared memory this process has that no file of a name is behind.
fn shared_mappings() -> Outcome<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps");
    let maps = maps.map_err(|error| crate::outcome::Failure(format!("/proc/self/maps: {error}")))?;
    Ok(maps.lines().filter(|line| line.contains("/dev/zero")).count())
}
