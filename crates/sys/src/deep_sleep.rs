//! A sleep that does not look like one: state D in /proc, not S.
//!
//! Programs that wait until a child of fork sleeps, and take that for a sign that it has come to where they
//! sent it, look for an S. So what the child waits for before fork returns in it must not be one.
//!
//! Who calls vfork is in D until its child has ended. Here the child is a thread of the same process, on the
//! stack of the one who sleeps, without using it: a few instructions that wait for the word and end.
//!
//! *The story:* seven of LTP's programs sent their signal, or removed what their child was to sleep on,
//! before it came there (msgsnd05, msgrcv06, semop03, epoll_wait08 and others).

use core::sync::atomic::{AtomicU32, Ordering};

use crate::raw::nr;
use crate::thread;
use crate::{Errno, PAGE_SIZE};

const FLAGS: u32 = nr::CLONE_VM
    | nr::CLONE_VFORK
    | nr::CLONE_UNTRACED
    | nr::CLONE_SIGHAND
    | nr::CLONE_THREAD
    | nr::CLONE_SYSVSEM
    | nr::CLONE_FS
    | nr::CLONE_FILES;
/// How often it is asked whether the thread is counted out without a sleep.
const LOOKS: u32 = 1_000;

/// Sleeps until the word, which a futex of this process wakes, is not 0. All signals are blocked. An error:
/// there can be no such thread, and nobody has slept.
pub fn until_set(word: &AtomicU32) -> Result<(), Errno> {
    let tid = vfork(word)?;
    assert!(word.load(Ordering::Acquire) != 0, "the thread ends when it is set");
    for _ in 0..LOOKS {
        if thread::is_gone(tid) {
            return Ok(());
        }
        core::hint::spin_loop();
    }
    thread::wait_until_counted_out(tid);
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn vfork(word: &AtomicU32) -> Result<u32, Errno> {
    const FUTEX_WAIT_PRIVATE: usize = 128;
    let mut result = nr::__NR_clone as isize;
    // SAFETY: the new thread touches neither stack nor memory but the word, and runs nothing but this; the
    // caller goes on when it has ended. It shares registers with nobody: those that are changed are named.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 4f",
            "2:",
            "cmp dword ptr [r12], 0",
            "jne 3f",
            "mov eax, {futex}",
            "mov rdi, r12",
            "mov esi, {wait}",
            "xor edx, edx",
            "xor r10d, r10d",
            "syscall",
            "jmp 2b",
            "3:",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "4:",
            futex = const nr::__NR_futex,
            wait = const FUTEX_WAIT_PRIVATE,
            exit = const nr::__NR_exit,
            in("r12") word.as_ptr(),
            inlateout("rax") result,
            inlateout("rdi") FLAGS as usize => _,
            inlateout("rsi") 0_usize => _,
            inlateout("rdx") 0_usize => _,
            inlateout("r10") 0_usize => _,
            in("r8") 0_usize,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    if result < 0 && result > -(PAGE_SIZE as isize) {
        return Err(Errno::from_raw_os_error(-result as i32));
    }
    Ok(result as u32)
}

#[cfg(not(target_arch = "x86_64"))]
fn vfork(_: &AtomicU32) -> Result<u32, Errno> {
    Err(Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::futex::{self, Scope};
    use std::time::Duration;

    /// The story of this file.
    #[test]
    fn who_sleeps_so_is_not_seen_asleep() {
        let word = &AtomicU32::new(0);
        let state = |tid: libc::pid_t| {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().chars().next().unwrap()
        };
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel();
            let sleeper = scope.spawn(move || {
                let mask = thread::block_all_signals().unwrap();
                // SAFETY: asks.
                send.send(unsafe { libc::gettid() }).unwrap();
                let slept = until_set(word);
                thread::restore_signals(mask);
                slept
            });
            let tid = receive.recv().unwrap();
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(state(tid), 'D');
            word.store(1, Ordering::Release);
            futex::wake(word, u32::MAX, Scope::Private);
            assert_eq!(sleeper.join().unwrap(), Ok(()));
        });
        assert_eq!(until_set(word), Ok(()), "it is set");
    }
}
