//! The self-tests on a machine where everything works, and in a process that may do little.

use overspill_sys::probe::{Probe, probe};
use overspill_sys::uffd::Source;
use overspill_sys::{Errno, clock, thread};

#[test]
fn everything_works_here() {
    let start = clock::monotonic_ns();
    let found: Probe = probe();
    let took_ms = (clock::monotonic_ns() - start) / 1_000_000;
    assert_eq!(found.userfaultfd, Ok(Source::Syscall), "these tests need root");
    let checks = [
        ("missing", found.missing),
        ("events", found.events),
        ("event_fork", found.event_fork),
        ("move_pages", found.move_pages),
        ("write_protect", found.write_protect),
        ("poison", found.poison),
        ("pagemap_scan", found.pagemap_scan),
        ("pagemap", found.pagemap),
        ("own_memory", found.own_memory),
        ("io_uring", found.io_uring),
        ("raw_thread", found.raw_thread),
    ];
    for (name, check) in checks {
        assert_eq!(check, Ok(()), "{name}");
    }
    assert_eq!(found.can_move(), Ok(()));
    assert!(found.kernel >= (6, 8, 0) && found.ram_bytes > Some(1 << 28));
    assert_eq!(found.seccomp, Some(0));
    assert!(took_ms < 500, "{took_ms} ms");
}

/// Runs a closure in a child without privileges; returns its exit status.
fn as_nobody(action: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child makes system calls only and ends without libc.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let dropped = libc::setgid(65534) == 0 && libc::setuid(65534) == 0;
            thread::exit_process(if dropped && action() { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn without_privileges_it_says_so() {
    let status = as_nobody(|| {
        let found = probe();
        let expected = match found.unprivileged_userfaultfd {
            Some(1) => Source::Syscall,
            _ => Source::UserMode,
        };
        found.userfaultfd == Ok(expected)
            && found.event_fork == Err(Errno::PERM)
            && found.missing.is_ok()
            && found.move_pages.is_ok()
            && found.raw_thread.is_ok()
    });
    assert_eq!(status, 0);
}
