//! fork, vfork and posix_spawn of a program whose memory is out of RAM: the child sees what the
//! parent saw at the fork, and neither sees what the other does later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use std::time::{Duration, Instant};

use crate::child::{self, Child, Form};
use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, RW, WORDS};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::subtests::process;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xf04c;

/// `fork`: the child verifies all memory and ends, the parent goes on; the child changes it, the
/// parent does not see.
pub fn plain(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    for round in 0..4 {
        context.cool(&memory)?;
        let child = child::fork(|| {
            pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the child")?;
            pattern::fill_pages(&memory, 0..memory.pages(), SEED + 99);
            pattern::check_pages(&memory, 0..memory.pages(), SEED + 99, "written in the child")
        })?;
        if round % 2 == 0 {
            child.succeed("a child that verifies and writes")?;
            pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the parent")?;
            pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
        } else {
            pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the parent")?;
            pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
            child.succeed("a child that verifies and writes")?;
        }
    }
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED + 4, "after the forks")
}

/// `fork-asleep`: a child that is seen asleep (S in /proc) has come to where it is to sleep. It
/// touches nothing that is out: who waits for a page sleeps, too.
///
/// *The story:* it slept before fork returned in it, until it had an agent (LTP's msgsnd05 and others).
pub fn asleep(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    for _ in 0..100 {
        let word = sys::mmap(0, PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)?;
        // SAFETY: it stays mapped while it is used, and is only accessed so.
        let is_there = unsafe { AtomicU64::from_ptr(word as *mut u64) };
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        sys::check("pipe", unsafe { libc::pipe(ends.as_mut_ptr()) } as isize)?;
        let child = child::fork(|| {
            is_there.store(1, Relaxed);
            // SAFETY: a byte of this function's; the parent writes it.
            unsafe { libc::read(ends[0], (&raw mut ends[0]).cast(), 1) };
            Ok(())
        })?;
        let path = format!("/proc/{}/stat", child.id());
        let state =
            || std::fs::read_to_string(&path).map(|all| all.rsplit(") ").next().map(|s| s.starts_with('S')));
        while state().ok().flatten() == Some(false) {
            std::hint::spin_loop();
        }
        let came = is_there.load(Relaxed) == 1;
        // SAFETY: the pipe's own ends, and a byte of this function's.
        unsafe {
            libc::write(ends[1], (&raw const came).cast(), 1);
            libc::close(ends[0]);
            libc::close(ends[1]);
        }
        child.succeed("a child that sleeps")?;
        sys::munmap(word, PAGE)?;
        ensure!(came, "seen asleep before fork had returned in it");
    }
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after the forks")
}

/// A word that is valid by itself: a sequence number and what follows from it, its page and its place.
fn sealed(sequence: u64, page: usize, index: usize) -> u64 {
    sequence << 32 | pattern::word(sequence, page, index) >> 32
}

/// `fork-storing`: the program forks while threads store. In the child every word is one that was
/// stored, and no older than what was known to be stored before the fork.
pub fn storing(context: &mut Context) -> Outcome {
    const THREADS: usize = 4;
    const PLACES: [usize; 3] = [0, 77, WORDS - 1];
    let memory = &context.subject(SEED)?;
    let pages = memory.pages();
    for page in 0..pages {
        PLACES.iter().for_each(|&index| memory.word(page, index).store(sealed(1, page, index), Relaxed));
    }
    let known: &Vec<AtomicU64> = &(0..pages).map(|_| AtomicU64::new(1)).collect();
    let stop = &AtomicBool::new(false);
    context.cool(memory)?;
    let check = |floors: &[u64], what: &str| -> Outcome {
        for (page, &floor) in floors.iter().enumerate() {
            for index in PLACES {
                let found = memory.word(page, index).load(Relaxed);
                let valid = found == sealed(found >> 32, page, index) && found >> 32 >= floor;
                ensure!(
                    valid,
                    "{what}: page {page} word {index} is {found:#018x}, at least number {floor} was stored"
                );
            }
        }
        Ok(())
    };
    context.under_pressure(|context| {
        parallel(THREADS + 1, |lane| {
            if lane == THREADS {
                let forked = (0..6).try_for_each(|_| {
                    sys::pause_ms(100);
                    let floors: Vec<u64> = known.iter().map(|known| known.load(Relaxed)).collect();
                    child::fork(|| check(&floors, "in the child"))?.succeed("a child of a storing parent")
                });
                stop.store(true, Relaxed);
                return forked;
            }
            let mut rng = context.rng(lane);
            while !stop.load(Relaxed) {
                let page = rng.below(pages / THREADS) * THREADS + lane;
                let sequence = known[page].load(Relaxed) + 1;
                PLACES.iter().for_each(|&index| {
                    memory.word(page, index).store(sealed(sequence, page, index), Relaxed)
                });
                known[page].store(sequence, Relaxed);
            }
            Ok(())
        })
    })?;
    let floors: Vec<u64> = known.iter().map(|known| known.load(Relaxed)).collect();
    context.cool(memory)?;
    check(&floors, "in the parent")
}

/// `fork-exec`: forks that exec at once, vforks and spawns, by several threads, while memory is paged.
pub fn exec_loops(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    context.under_pressure(|context| {
        parallel(3, |lane| {
            for round in 0..6 {
                // posix_spawn, as std does it without hooks; then a fork, as it does with one.
                let mut command = child::part("nothing", &[]);
                command.stdout(std::process::Stdio::null());
                if lane == 0 {
                    // SAFETY: a hook that does nothing is safe in a forked child.
                    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, || Ok(())) };
                }
                child::expect_success(command, &format!("child {round} of thread {lane}"))?;
                let page = context.rng(lane * 100 + round).below(memory.pages());
                pattern::check_page(&memory, page, SEED, page, "between children")?;
            }
            Ok(())
        })
    })?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after the children")
}

/// `fork-snapshot`: a child lives long and walks its memory slowly while the parent changes all of
/// it, twice: the child sees the state at the fork, as a server that saves itself relies on.
pub fn snapshot(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let child = child::fork(|| {
        for part in 0..16 {
            let share = memory.pages() / 16;
            pattern::check_pages(&memory, part * share..(part + 1) * share, SEED, "in the snapshot")?;
            sys::pause_ms(60);
        }
        Ok(())
    })?;
    for round in 1..3 {
        pattern::fill_pages(&memory, 0..memory.pages(), SEED + round);
        context.press()?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the parent")?;
    }
    child.succeed("a child that holds a snapshot")?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED + 2, "after the snapshot")
}

/// `fork-beside`: parent and child where the budget just holds one of them, and most of what they
/// have is shared. The parent stores to random pages, and discards some, while the child reads back
/// all that it had at the fork, and stores to some itself. Neither may see what the other does.
///
/// *The story:* a pager that counted shared pages once had a child that read a page of zeroes, in
/// two saves of redis-server in eighteen; no test showed it.
pub fn beside(context: &mut Context) -> Outcome {
    // Five sixths of the budget, which is two fifths of the ballast.
    let memory = &Memory::map(context.options.mib * MIB / 3 / PAGE * PAGE)?;
    let mut seed = SEED + context.options.seed;
    pattern::fill_pages(memory, 0..memory.pages(), seed);
    for pause in [Duration::ZERO, Duration::from_millis(1)] {
        for form in [None, Some(Form::Quiet)] {
            let ended = Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
            let shown: &Context = context;
            let body = || {
                shown.sabotage(memory);
                let read = read_back(memory, seed);
                ended.word(0, 0).store(1, Relaxed);
                read
            };
            let child = match form {
                None => child::fork(body),
                Some(form) => child::fork_by(form, body),
            }?;
            let changed = change_beside(context, memory, seed, pause, ended.word(0, 0));
            child.succeed(&format!("a child beside stores each {pause:?}, by {form:?}"))?;
            changed?;
            seed += 2;
            pattern::fill_pages(memory, 0..memory.pages(), seed);
        }
    }
    context.cool(memory)?;
    pattern::check_pages(memory, 0..memory.pages(), seed, "after the children")
}

/// The child of `fork-beside`: in each pass it stores to some more pages, and all are checked.
fn read_back(memory: &Memory, seed: u64) -> Outcome {
    const STORED_ONE_IN: u64 = 64;
    let mut rng = Rng::new(seed, 1);
    for pass in 0..6 {
        let first = rng.below(memory.pages());
        for page in (first..memory.pages()).chain(0..first) {
            let stored = pattern::mix(page as u64) % STORED_ONE_IN;
            if stored == pass {
                pattern::check_page(memory, page, seed, page, "before the child's store")?;
                pattern::fill_page(memory, page, seed + 1, page);
            }
            let seed = if stored <= pass { seed + 1 } else { seed };
            pattern::check_page(memory, page, seed, page, "in the child")?;
        }
    }
    Ok(())
}

/// The parent of `fork-beside`: changes one page after another until the child has ended.
fn change_beside(
    context: &Context,
    memory: &Memory,
    seed: u64,
    pause: Duration,
    ended: &AtomicU64,
) -> Outcome {
    let mut rng = Rng::new(seed, 0);
    let mut changed = vec![false; memory.pages()];
    let until = Instant::now() + Duration::from_secs(20 + context.options.seconds);
    while ended.load(Relaxed) == 0 && Instant::now() < until {
        let page = rng.below(memory.pages());
        let before = if changed[page] { seed + 100 } else { seed };
        pattern::check_page(memory, page, before, page, "in the parent")?;
        if rng.below(8) == 0 {
            sys::madvise(memory.page(page), PAGE, libc::MADV_DONTNEED)?;
            pattern::check_zero(memory, page..page + 1, "discarded by the parent")?;
        }
        pattern::fill_page(memory, page, seed + 100, page);
        changed[page] = true;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    (0..memory.pages()).try_for_each(|page| {
        let seed = if changed[page] { seed + 100 } else { seed };
        pattern::check_page(memory, page, seed, page, "in the parent, at the end")
    })
}

/// `fork-tree`: children of children, two at a time, each of which writes; daemons do this twice at
/// the start.
pub fn tree(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    grow(&memory, 2, SEED)?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "at the root")
}

fn grow(memory: &Memory, levels: u64, seed: u64) -> Outcome {
    if levels == 0 {
        return Ok(());
    }
    let children = [1, 2].map(|side| {
        child::fork(|| {
            pattern::check_pages(memory, 0..memory.pages(), seed, "inherited")?;
            pattern::fill_pages(memory, 0..memory.pages() / 2, seed + side * levels);
            pattern::check_pages(memory, memory.pages() / 2..memory.pages(), seed, "inherited, second half")?;
            pattern::fill_pages(memory, 0..memory.pages(), seed + side * levels);
            grow(memory, levels - 1, seed + side * levels)
        })
    });
    for child in children {
        child?.succeed("a child in a tree")?;
    }
    pattern::check_pages(memory, 0..memory.pages(), seed, "above the children")
}

/// `fork-advice`: MADV_WIPEONFORK memory is zero in the child, MADV_DONTFORK memory is not there,
/// both stay in the parent; what is shared, and not marked any more, is there.
///
/// *The story:* a mark that was taken off a shared mapping while children did not get managed memory stayed.
pub fn advice(context: &mut Context) -> Outcome {
    crate::faults::install()?;
    let memory = context.subject(SEED)?;
    let third = memory.pages() / 3;
    sys::madvise(memory.base(), third * PAGE, libc::MADV_WIPEONFORK)?;
    sys::madvise(memory.page(third), third * PAGE, libc::MADV_DONTFORK)?;
    let shared = Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    shared.word(0, 0).store(SEED, Relaxed);
    sys::madvise(shared.base(), PAGE, libc::MADV_DONTFORK)?;
    context.cool(&memory)?;
    sys::madvise(shared.base(), PAGE, libc::MADV_DOFORK)?;
    let child = child::fork(|| {
        let first = crate::faults::load(shared.base());
        ensure!(first == Ok(SEED.to_ne_bytes()[0]), "what is shared, and not marked any more, is {first:?}");
        pattern::check_zero(&memory, 0..third, "wiped on fork")?;
        let mut rng = Rng::new(1, 1);
        for _ in 0..100 {
            let page = third + rng.below(third);
            // Nothing is there, or something else: the child's own pager may have mapped memory since.
            let word = pattern::word(SEED, page, 1).to_ne_bytes();
            let at = memory.page(page) + size_of_val(&word);
            let is_same = |(index, &byte): (usize, &u8)| crate::faults::load(at + index) == Ok(byte);
            ensure!(!word.iter().enumerate().all(is_same), "page {page} is there in the child");
        }
        pattern::check_pages(&memory, 2 * third..memory.pages(), SEED, "inherited")
    })?;
    child.succeed("a child under MADV_WIPEONFORK and MADV_DONTFORK")?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "in the parent")
}

/// `fork-forms`: children made past libc's fork, and children of theirs. *The story:* whoever
/// forked by `_Fork`, `clone` or the bare call had a child that read zeroes where the parent's page
/// was out. A form that nobody hears of may fail, as a fork may; where the kernel promises all
/// memory that is asked for, its child may lack the memory (SIGSEGV), but is never shown zeroes.
pub fn forms(context: &mut Context) -> Outcome {
    ensure_refused()?;
    let memory = context.subject(SEED)?;
    for (round, form) in (0..).zip(Form::ALL) {
        context.cool(&memory)?;
        let verify = || pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the child");
        let verify_both = || {
            let grandchild = child::fork_by(form, verify)?;
            verify()?;
            judge(grandchild, form)
        };
        let ended = match child::fork_by(form, verify_both) {
            Ok(child) => judge(child, form),
            Err(failure) => {
                let is_refused = form.is_bare() && sys::errno() == libc::ENOMEM;
                ensure!(is_refused, "{form:?}: {failure:?}");
                Ok(())
            }
        };
        // First, as it matters most: is only the child wrong?
        pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the parent")?;
        ended?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
    }
    Ok(())
}

/// `fork-few`: forks of a process that may have no more descriptors than it has, or none at all.
///
/// *The story:* the kernel tells of a fork together with a descriptor. With a limit of three that
/// could not be made, the report was never read, and the fork waited for ever.
pub fn few_descriptors(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    for (round, limit) in (0..).zip([3, 1, 0]) {
        context.cool(&memory)?;
        let before = process::set_limit(libc::RLIMIT_NOFILE, limit)?;
        let verify = || pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the child");
        let children = [child::fork(verify), child::fork_by(Form::CallClone, verify)];
        process::set_limit(libc::RLIMIT_NOFILE, before)?;
        for child in children {
            child?.succeed(&format!("a child at a limit of {limit} descriptors"))?;
        }
        pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in the parent")?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
    }
    Ok(())
}

/// `fork-outlive`: a process that was made with CLONE_VM goes on when its maker has ended.
///
/// *The story:* the pager is a thread of the maker and ended with it. What was out of RAM then read
/// as zeroes.
///
/// *The other story:* behind a filter of its own thread the maker told the pager of nothing.
pub fn outlive(context: &mut Context) -> Outcome {
    context.press()?;
    for way in ["function", "call", "filtered"] {
        let mib = context.options.mib.to_string();
        let mut part = child::part("outlived", &["--mib", &mib, "--dir", way]);
        if context.options.sabotage {
            part.arg("--sabotage");
        }
        let output = part.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(said == "right\n", "a process that outlives its maker ({way}): {said}");
    }
    Ok(())
}

/// The maker of `fork-outlive`. It ends at once, and leaves the rest to whom it made.
pub fn outlived_part(mut context: Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let maker = std::process::id() as i32;
    let go_on = || {
        // SAFETY: takes nothing, changes nothing.
        while unsafe { libc::getppid() } == maker {
            std::hint::spin_loop();
        }
        match pattern::check_pages(&memory, 0..memory.pages(), SEED, "after its maker's end") {
            Ok(()) => child::say(1, "right\n"),
            Err(failure) => child::say(1, &format!("{failure}\n")),
        }
        0
    };
    let by_call = context.options.directory.as_os_str() == "call";
    if context.options.directory.as_os_str() == "filtered" {
        filter_this_thread()?;
    }
    sys::share_memory(by_call, &go_on)?;
    // SAFETY: ends this process, and nothing that the other one uses.
    unsafe { libc::_exit(0) }
}

/// Puts the calling thread behind a filter that allows everything.
fn filter_this_thread() -> Outcome {
    const RETURN: u16 = 6;
    const ALLOW: u32 = 0x7fff_0000;
    let mut list = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: ALLOW }];
    let program = libc::sock_fprog { len: 1, filter: list.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its list.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    ensure!(failed == 0, "the filter was refused");
    Ok(())
}

/// What the kernel refuses is refused, not looked at. *The story:* clone3 by way of libc's `syscall`,
/// with arguments that lead nowhere, ended the program.
fn ensure_refused() -> Outcome {
    // SAFETY: neither call makes a child.
    let results = [(8, 64), (0, 88)]
        .map(|(at, size)| unsafe { (libc::syscall(libc::SYS_clone3, at, size), sys::errno()) });
    ensure!(results == [(-1, libc::EFAULT); 2], "clone3 with a wrong address: {results:?}");
    Ok(())
}

fn judge(child: Child, form: Form) -> Outcome {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory")?;
    if !form.is_bare() || mode.trim() == "0" {
        return child.succeed(&format!("a child by {form:?}"));
    }
    let status = child.wait()?;
    let is_refused = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
    ensure!(status == 0 || is_refused, "a child by {form:?}: status {status:#x}");
    Ok(())
}

/// `fork-unheard`: bare forks while a thread walks through cold memory, so that pages come into view
/// all the time. *The story:* the agent read of such a fork amid other work, and went on bringing
/// pages in before it saw to the child, which read zeroes where they were out at the fork.
pub fn unheard(context: &mut Context) -> Outcome {
    let memory = &context.subject(SEED)?;
    let stop = &AtomicBool::new(false);
    context.cool(memory)?;
    let walk = || {
        while !stop.load(Relaxed) {
            pattern::check_pages(memory, 0..memory.pages(), SEED, "beside a fork")?;
        }
        Ok(())
    };
    let fork = || {
        let verify = || pattern::check_pages(memory, 0..memory.pages(), SEED, "in the child");
        (0..6).try_for_each(|_| {
            sys::pause_ms(20);
            match child::fork_by(Form::BareFork, verify) {
                Ok(child) => child.succeed("a child beside a thread that reads"),
                Err(_) if sys::errno() == libc::ENOMEM => Ok(()),
                Err(failure) => Err(failure),
            }
        })
    };
    context.under_pressure(|context| {
        parallel(2, |lane| {
            if lane == 0 {
                return walk();
            }
            let forked = fork();
            stop.store(true, Relaxed);
            forked
        })?;
        context.sabotage_status()
    })
}

/// `fork-discarding`: forks while threads discard memory all the time, so that no moment is quiet.
/// *The story:* the agent gave the forking thread one answer, gave that up while the address space
/// was changing, and the fork waited for ever.
pub fn discarding(context: &mut Context) -> Outcome {
    const THREADS: usize = 3;
    let memory = &context.subject(SEED)?;
    let scratch = &Memory::map(THREADS * 64 * PAGE)?;
    let stop = &AtomicBool::new(false);
    context.cool(memory)?;
    parallel(THREADS + 1, |lane| {
        if lane < THREADS {
            while !stop.load(Relaxed) {
                scratch.word(lane * 64, 0).store(1, Relaxed);
                sys::madvise(scratch.page(lane * 64), 64 * PAGE, libc::MADV_DONTNEED)?;
            }
            return Ok(());
        }
        let forked = (0..12).try_for_each(|round: usize| {
            let page = round * memory.pages() / 12;
            child::fork(|| pattern::check_page(memory, page, SEED, page, "in the child"))?
                .succeed("a child beside threads that discard")
        });
        stop.store(true, Relaxed);
        forked
    })?;
    context.cool(memory)?;
    pattern::check_pages(memory, 0..memory.pages(), SEED, "after the forks")
}
