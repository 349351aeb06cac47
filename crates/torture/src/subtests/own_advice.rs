//! process_madvise on oneself (6.13): as madvise, for several ranges at once.

use std::sync::atomic::Ordering::Relaxed;

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::{child, ensure, faults, pattern, sys};

const SEED: u64 = 0xad51;
/// What a process may give for a descriptor of itself (6.14).
pub(super) const PIDFD_SELF: i32 = -10_000;

type Function = unsafe extern "C" fn(i32, *const [usize; 2], usize, i32, u32) -> isize;

/// How the call is made.
#[derive(Clone, Copy)]
struct Caller {
    process: i32,
    /// libc's function, where it has one.
    function: Option<Function>,
}

impl Caller {
    /// All ways: with a descriptor of this process or without one, by the function or by `syscall`.
    fn all() -> Outcome<Vec<Caller>> {
        // SAFETY: opens a descriptor; looks up a name.
        let (opened, function) = unsafe {
            let opened = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as isize;
            (opened, libc::dlsym(libc::RTLD_DEFAULT, c"process_madvise".as_ptr()))
        };
        let opened = sys::check("pidfd_open", opened)? as i32;
        // SAFETY: libc's function has this type.
        let function = (!function.is_null()).then(|| unsafe { std::mem::transmute(function) });
        let ways = [(opened, function), (opened, None), (PIDFD_SELF, function)];
        let ways = ways.map(|(process, function)| Caller { process, function });
        // Kernels before 6.14 know no such number.
        let knows = |caller: &Caller| caller.advise(&[], libc::MADV_DOFORK) != Err(libc::EBADF);
        Ok(ways.into_iter().filter(knows).collect())
    }

    fn advise(self, pieces: &[[usize; 2]], advice: i32) -> Result<usize, i32> {
        let (start, count) = (pieces.as_ptr(), pieces.len());
        // SAFETY: the pieces are whole; they are memory of the subtest's, or none.
        let result = unsafe {
            match self.function {
                Some(function) => function(self.process, start, count, advice, 0),
                None => {
                    libc::syscall(libc::SYS_process_madvise, self.process, start, count, advice, 0) as isize
                }
            }
        };
        usize::try_from(result).map_err(|_| sys::errno())
    }
}

fn piece(memory: &Memory, pages: std::ops::Range<usize>) -> [usize; 2] {
    [memory.page(pages.start), pages.len() * PAGE]
}

/// `madvise-self`: what children get, and what is answered.
///
/// *The story:* what was marked MADV_WIPEONFORK so was inherited where it was out (18,663 of 24,576 pages).
pub fn forks(context: &mut Context) -> Outcome {
    faults::install()?;
    for caller in Caller::all()? {
        if caller.advise(&[], libc::MADV_DOFORK).is_err() {
            // A kernel before 6.13.
            return context.sabotage_status();
        }
        answers(caller)?;
        let memory = context.subject(SEED)?;
        let sixth = memory.pages() / 6;
        let part = |from: usize, to: usize| piece(&memory, from * sixth..to * sixth);
        for (pieces, advice) in [
            ([part(0, 1), part(1, 2)], libc::MADV_WIPEONFORK),
            ([part(2, 3), part(3, 4)], libc::MADV_DONTFORK),
        ] {
            let advised = caller.advise(&pieces, advice);
            ensure!(advised == Ok(2 * sixth * PAGE), "advice {advice}: {advised:?}");
        }
        context.cool(&memory)?;
        let child = child::fork(|| {
            pattern::check_zero(&memory, 0..2 * sixth, "wiped on fork")?;
            let mut rng = Rng::new(1, 1);
            for _ in 0..100 {
                let page = 2 * sixth + rng.below(2 * sixth);
                let word = pattern::word(SEED, page, 1).to_ne_bytes();
                let at = memory.page(page) + size_of_val(&word);
                let is_same = |(index, &byte): (usize, &u8)| faults::load(at + index) == Ok(byte);
                ensure!(!word.iter().enumerate().all(is_same), "page {page} is there in the child");
            }
            pattern::check_pages(&memory, 4 * sixth..memory.pages(), SEED, "inherited")
        })?;
        child.succeed("a child of who has advised itself")?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "in the parent")?;
    }
    Ok(())
}

/// What was done before something is wrong is told, else what is wrong.
fn answers(caller: Caller) -> Outcome {
    let memory = Memory::map(16 * PAGE)?;
    sys::munmap(memory.page(8), 4 * PAGE)?;
    let advice = libc::MADV_DONTFORK;
    let (whole, gap, within) = (piece(&memory, 0..4), piece(&memory, 6..10), [memory.base() + 1, PAGE]);
    let far = [usize::MAX / 2 / PAGE * PAGE, PAGE];
    type Case<'a> = (&'a [[usize; 2]], Result<usize, i32>);
    let expected: [Case<'_>; 7] = [
        (&[whole, [memory.page(4), 0], whole], Ok(8 * PAGE)),
        (&[whole, gap, whole], Ok(4 * PAGE)),
        (&[gap, whole], Err(libc::ENOMEM)),
        (&[whole, within], Ok(4 * PAGE)),
        (&[within, whole], Err(libc::EINVAL)),
        (&[whole, far], Err(libc::EFAULT)),
        (&[[memory.base(), 100], whole], Ok(100 + 4 * PAGE)),
    ];
    for (pieces, expected) in expected {
        let advised = caller.advise(pieces, advice);
        ensure!(advised == expected, "{pieces:x?}: {advised:?}, not {expected:?}");
    }
    // SAFETY: the kernel cannot read that vector.
    let advised = unsafe { libc::syscall(libc::SYS_process_madvise, caller.process, 8, 1, advice, 0) };
    ensure!((advised, sys::errno()) == (-1, libc::EFAULT), "a vector that cannot be read: {advised}");
    Ok(())
}

/// `madvise-self-populate`: more than the budget, in one call.
pub fn populate(context: &mut Context) -> Outcome {
    for caller in Caller::all()? {
        // Less may be through before anybody could have looked.
        let fresh = Memory::map(context.options.mib * MIB * 5 / 2)?;
        let half = fresh.pages() / 2;
        let pieces = [piece(&fresh, 0..half), piece(&fresh, half..fresh.pages())];
        match caller.advise(&pieces, libc::MADV_POPULATE_WRITE) {
            Ok(bytes) => ensure!(bytes == fresh.len(), "{bytes} bytes of {}", fresh.len()),
            // A kernel before 6.13.
            Err(errno) => ensure!(errno == libc::EINVAL, "error {errno}"),
        }
        pattern::check_zero(&fresh, 0..fresh.pages(), "populated by who advises itself")?;
        let memory = context.subject(SEED)?;
        context.cool(&memory)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside it")?;
        fresh.word(0, 0).store(1, Relaxed);
    }
    Ok(())
}
