//! How programs end while their memory is out of RAM and threads wait for pages: each way in a
//! process of its own, whose status must be the one it ended with.

use std::os::unix::process::ExitStatusExt;

use crate::child;
use crate::context::Context;
use crate::memory::{Memory, PAGE};
use crate::outcome::Outcome;
use crate::{ensure, fail, pattern, sys};

const SEED: u64 = 0xe817;

/// How a process ends that finds wrong bytes: no way to end that is tried. *The story:* it was SIGABRT,
/// which is, so that wrong bytes were right there.
const WRONG: i32 = 97;

/// The ways, as (name of the part, argument, exit status or negated signal).
const WAYS: [(&str, i32, i32); 9] = [
    ("return", 0, 0),
    ("exit", 7, 7),
    ("quick-exit", 9, 9),
    ("main-leaves", 0, 0),
    ("signal", libc::SIGTERM, -libc::SIGTERM),
    ("signal", libc::SIGKILL, -libc::SIGKILL),
    ("signal", libc::SIGABRT, -libc::SIGABRT),
    ("signal", libc::SIGSEGV, -libc::SIGSEGV),
    ("signal", libc::SIGXCPU, -libc::SIGXCPU),
];

/// `exit`: see the head of this file.
pub fn exits(context: &mut Context) -> Outcome {
    let mib = context.options.mib.to_string();
    for (way, argument, expected) in WAYS {
        let mut command = child::part("exit", &[way, &argument.to_string(), "--mib", &mib]);
        let status = child::spawn_and_wait(&mut command)?;
        let found = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        ensure!(found == expected, "{way} {argument}: {status}, expected {expected}");
    }
    confined()?;
    context.sabotage_status()
}

/// A child behind the strict filter of system calls is killed by a call that is not on the list:
/// the kernel kills the thread that made it, and the process ends with its last one.
fn confined() -> Outcome {
    const STRICT: libc::c_ulong = 1;
    let child = child::fork(|| {
        // SAFETY: from here on this child may read, write and end, and close nothing.
        unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, STRICT);
            libc::close(0);
        }
        Ok(())
    })?;
    let status = child.wait()?;
    ensure!(status == libc::SIGKILL, "behind a strict filter: status {status:#x}");
    Ok(())
}

/// The body: fills memory, lets eight threads fault on it, and ends in the given way in the middle of that.
pub fn part(context: &mut Context, way: &str, argument: i32) -> Outcome {
    let memory = context.subject(SEED)?;
    context.press()?;
    let (base, len) = memory.forget();
    for lane in 0..8 {
        let mut rng = context.rng(lane);
        std::thread::spawn(move || {
            let memory = Memory::adopt(base, len);
            loop {
                let page = rng.below(len / PAGE);
                if let Err(failure) = pattern::check_page(&memory, page, SEED, page, "while ending") {
                    eprintln!("{failure}");
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(WRONG) };
                }
            }
        });
    }
    sys::pause_ms(50);
    match way {
        "return" => Ok(()),
        "exit" => std::process::exit(argument),
        // SAFETY: ends the process.
        "quick-exit" => unsafe { libc::_exit(argument) },
        "signal" => {
            // SAFETY: takes back the handler that Rust has for SIGSEGV, and sends a signal to this
            // process; a core would only take time.
            unsafe {
                libc::signal(argument, libc::SIG_DFL);
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
                libc::kill(libc::getpid(), argument);
            }
            sys::pause_ms(10_000);
            fail!("signal {argument} did not end the process")
        }
        "main-leaves" => main_leaves(base, len),
        other => fail!("no way to end called {other:?}"),
    }
}

/// The main thread ends, others go on: /proc/PID shows an empty process from then on. The last word
/// is another thread's.
fn main_leaves(base: usize, len: usize) -> Outcome {
    std::thread::spawn(move || {
        sys::pause_ms(200);
        let memory = Memory::adopt(base, len);
        let fresh = Memory::map(len).inspect(|fresh| {
            pattern::fill_pages(fresh, 0..fresh.pages(), SEED + 1);
        });
        let checked = fresh.and_then(|fresh| {
            pattern::check_pages(&memory, 0..memory.pages(), SEED, "after the main thread's end")?;
            pattern::check_pages(&fresh, 0..fresh.pages(), SEED + 1, "mapped after the main thread's end")
        });
        if let Err(failure) = &checked {
            eprintln!("{failure}");
        }
        std::process::exit(i32::from(checked.is_err()))
    });
    // SAFETY: ends this thread alone; nothing on its stack is used by others.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) does not return")
}
