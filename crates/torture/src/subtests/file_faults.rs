//! A mapped file on a device that fails: what read(2) cannot read raises SIGBUS where it is mapped,
//! and only that. On a healthy device nothing is bad; `overspill-faultyfs --bad-block-every` makes
//! the other kind. And files that others write to all the while.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::mapped_files::{LEN, REWRITTEN, SEED, Scratch};
use crate::child::{fork, part, spawn_and_wait};
use crate::context::{Context, parallel};
use crate::faults::{self, Fault};
use crate::memory::{Memory, PAGE, PRIVATE, RW, WORDS};
use crate::outcome::{Failure, Outcome};
use crate::{ensure, pattern, sys};

/// A file's address that does not exist (BUS_ADRERR): what the kernel says of its own mappings.
const NO_SUCH_ADDRESS: i32 = 2;

/// `file-bad`: in order, backwards, again after they were given up, by a system call, by a store, in
/// a child: bad pages raise the kernel's own SIGBUS, and those beside them have every byte.
pub fn bad_blocks(context: &mut Context) -> Outcome {
    faults::install()?;
    let file = Scratch::new(context, LEN)?;
    let mut page = vec![0; PAGE];
    let is_bad: Vec<bool> = (0..LEN / PAGE)
        .map(|number| match file.file.read_exact_at(&mut page, (number * PAGE) as u64) {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(true),
            outcome => outcome.map(|()| false),
        })
        .collect::<Result<_, _>>()?;
    let bad: Vec<usize> = (0..is_bad.len()).filter(|&number| is_bad[number]).collect();
    println!("{} of {} pages cannot be read", bad.len(), is_bad.len());
    let flags = PRIVATE & !libc::MAP_ANONYMOUS;
    for (protection, flags) in [(libc::PROT_READ, libc::MAP_SHARED), (libc::PROT_READ, flags), (RW, flags)] {
        let memory = file.map(LEN, protection, flags)?;
        let check = |number: usize, what: &str| {
            if is_bad[number] { is_refused(&memory, number, what) } else { is_right(&memory, number, what) }
        };
        (0..is_bad.len()).try_for_each(|number| check(number, "in order"))?;
        (0..is_bad.len()).rev().try_for_each(|number| check(number, "backwards"))?;
        for &number in &bad {
            by_system_call(&memory, number)?;
            sys::madvise(memory.page(number), PAGE, libc::MADV_DONTNEED)?;
            check(number, "given up")?;
            let stored = faults::store(memory.page(number), 1).err().map(|fault| fault.signal);
            let expected = if protection == RW { libc::SIGBUS } else { libc::SIGSEGV };
            // Nobody says which of two reasons comes first where both hold.
            let is_expected = stored == Some(expected) || stored == Some(libc::SIGBUS);
            ensure!(is_expected, "a store to bad page {number}: signal {stored:?}");
        }
        let around = || bad.iter().flat_map(|&number| [number.saturating_sub(1), number, number + 1]);
        let in_child = fork(|| around().try_for_each(|number| check(number, "in a child")))?;
        in_child.succeed("a child with a bad file")?;
        memory.unmap()?;
    }
    Ok(())
}

fn is_right(memory: &Memory, number: usize, what: &str) -> Outcome {
    pattern::check_page(memory, number, SEED, number, what)
}

fn is_refused(memory: &Memory, number: usize, what: &str) -> Outcome {
    let expected = Fault { signal: libc::SIGBUS, address: memory.page(number) };
    let found = faults::load(memory.page(number));
    ensure!(found == Err(expected), "bad page {number}, {what}: {found:?}, expected {expected:?}");
    let code = faults::last_code();
    ensure!(code == NO_SUCH_ADDRESS, "bad page {number}, {what}: si_code {code}");
    Ok(())
}

/// A system call that reads a bad page gets EFAULT.
fn by_system_call(memory: &Memory, number: usize) -> Outcome {
    let mut ends = [0; 2];
    // SAFETY: two descriptors go into an array of two.
    sys::check("pipe", unsafe { libc::pipe(ends.as_mut_ptr()) } as isize)?;
    // SAFETY: the page is ours; the kernel finds out whether it can be read.
    let written = unsafe { libc::write(ends[1], memory.at(number * PAGE).cast(), 8) };
    let errno = sys::errno();
    for end in ends {
        // SAFETY: opened above, known to nobody else.
        unsafe { libc::close(end) };
    }
    ensure!(
        written == -1 && errno == libc::EFAULT,
        "write(2) from bad page {number} gave {written}, {errno}"
    );
    Ok(())
}

/// `file-writers`: two threads read, a third stores to a private mapping, while two other processes
/// write to the file, one after the other and both at once. Every word is the old one or the new one;
/// when the writers are done it is the new one, and the program's own stores are still there.
pub fn writers(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, LEN)?;
    let shared = file.map(LEN, libc::PROT_READ, libc::MAP_SHARED)?;
    let private = file.map(LEN, RW, PRIVATE & !libc::MAP_ANONYMOUS)?;
    // More than the budget, so that both have left in part.
    for memory in [&shared, &private] {
        pattern::check_pages(memory, 0..memory.pages(), SEED, "before the writers")?;
    }
    let own = |page: usize| page >= REWRITTEN && page.is_multiple_of(11);
    let path = file.path.to_str().ok_or_else(|| Failure("the directory has no name".into()))?;
    let writing = AtomicUsize::new(2);
    let write = || {
        let status = spawn_and_wait(&mut part("rewrite", &[path]));
        writing.fetch_sub(1, Relaxed);
        ensure!(status?.success(), "a writer failed");
        Ok(())
    };
    let read = || {
        while writing.load(Relaxed) > 0 {
            (0..shared.pages()).try_for_each(|page| old_or_new(&shared, page))?;
        }
        Ok(())
    };
    let store = || {
        let pages = (0..private.pages()).filter(|&page| own(page));
        pages.for_each(|page| pattern::fill_page(&private, page, SEED + 2, page));
        Ok(())
    };
    parallel(5, |lane| match lane {
        0 | 1 => read(),
        2 => store(),
        3 => write(),
        _ => {
            sys::pause_ms(30);
            write()
        }
    })?;
    // Who looks at a file instead of being told sees what was written a moment later.
    sys::eventually(|| {
        (0..shared.pages()).try_for_each(|page| {
            let seed = SEED + u64::from(page < REWRITTEN);
            pattern::check_page(&shared, page, seed, page, "after the writers")
        })
    })?;
    for page in (0..private.pages()).filter(|&page| own(page)) {
        pattern::check_page(&private, page, SEED + 2, page, "stored to beside writers")?;
    }
    Ok(())
}

fn old_or_new(memory: &Memory, page: usize) -> Outcome {
    for index in 0..WORDS {
        let found = memory.word(page, index).load(Relaxed);
        let is_known = (0..2).any(|newer| found == pattern::word(SEED + newer, page, index));
        ensure!(is_known, "word {index} of page {page} is {found:#x}: nobody wrote that");
    }
    Ok(())
}
