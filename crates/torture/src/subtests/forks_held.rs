//! Forks of a program most of whose memory is out of RAM, where one of the two stands still in the midst
//! of it, or another child is made beside it: nobody else waits for that for long.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use crate::child::{self, Form};
use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, RW, WORDS};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xf018;
/// A touch that takes longer has waited for somebody who stands still: for as long as that one did so, up to
/// five seconds. Now it waits while copies are made.
const TOUCH_MAX: Duration = Duration::from_millis(2500);

/// Memory of half of the ballast's size: more than the budget.
fn large(context: &Context) -> Outcome<Memory> {
    let memory = Memory::map(context.options.mib * MIB / 2)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    Ok(memory)
}

/// Touches one page after another of memory that is out until `stop` is set; the longest that one took.
fn touch(memory: &Memory, stop: &AtomicBool, mut rng: crate::rng::Rng) -> Outcome<Duration> {
    let mut longest = Duration::ZERO;
    while !stop.load(Relaxed) {
        let (page, begun) = (rng.below(memory.pages()), Instant::now());
        pattern::check_page(memory, page, SEED, page, "touched beside a fork")?;
        longest = longest.max(begun.elapsed());
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(longest)
}

/// Runs `body` while a thread touches memory that is out, which never takes long.
fn beside_touches(context: &Context, memory: &Memory, body: impl FnOnce() -> Outcome) -> Outcome {
    let (stop, rng) = (&AtomicBool::new(false), context.rng(1));
    let longest = std::thread::scope(|scope| {
        let toucher = scope.spawn(move || touch(memory, stop, rng));
        let done = body();
        stop.store(true, Relaxed);
        let longest = toucher.join().expect("a panic ends the process");
        done.and(longest)
    })?;
    println!("longest touch: {} us", longest.as_micros());
    ensure!(longest < TOUCH_MAX, "a touch beside a fork took {longest:?}");
    context.sabotage_status()
}

/// Children of one thread of this process, by /proc.
fn children_of(tid: i32) -> Vec<libc::pid_t> {
    let list = std::fs::read_to_string(format!("/proc/self/task/{tid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn signal(pid: libc::pid_t, signal: i32) -> Outcome {
    // SAFETY: sends a signal to a child that nobody has waited for, which keeps its number.
    sys::check("kill", unsafe { libc::kill(pid, signal) } as isize).map(drop)
}

/// `fork-stopped`: a child is stopped right after its birth, and goes on seconds later.
///
/// *The story:* the parent's agent served that child, which said nothing, for five seconds. Whatever other
/// thread of the parent touched what was out waited as long.
pub fn stopped(context: &mut Context) -> Outcome {
    const ROUNDS: u64 = 2;
    const LATER_US: u64 = 2400;
    const STOPPED_MS: u64 = 3500;
    let memory = &large(context)?;
    for round in 0..ROUNDS {
        let (forker, shown) = (sys::thread_id(), &*context);
        beside_touches(shown, memory, || {
            std::thread::scope(|scope| {
                let stops = scope.spawn(move || {
                    let until = Instant::now() + Duration::from_secs(20);
                    let child = loop {
                        if let Some(&child) = children_of(forker).first() {
                            break child;
                        }
                        ensure!(Instant::now() < until, "no child of round {round}");
                    };
                    std::thread::sleep(Duration::from_micros(round * LATER_US));
                    signal(child, libc::SIGSTOP)?;
                    sys::pause_ms(STOPPED_MS);
                    signal(child, libc::SIGCONT)
                });
                let child = child::fork(|| {
                    pattern::check_pages(memory, 0..memory.pages(), SEED, "in a child that was stopped")?;
                    // It is there to be stopped.
                    sys::pause_ms(100);
                    Ok(())
                })?;
                let stopped = stops.join().expect("a panic ends the process");
                child.succeed("a child that was stopped")?;
                stopped
            })
        })?;
    }
    pattern::check_pages(memory, 0..memory.pages(), SEED, "whose children were stopped")
}

/// `fork-maker-stopped`: who makes a child is stopped at any moment of that, and goes on later. The child
/// waits for it where it needs it, and has what it inherits.
pub fn maker_stopped(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 24;
    const US_MAX: usize = 8_000;
    let memory = &large(context)?;
    let told = &Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    let mut rng = context.rng(0);
    for round in 0..ROUNDS {
        told.word(0, 0).store(0, Relaxed);
        let maker = child::fork(|| {
            told.word(0, 0).store(u64::from(std::process::id()), SeqCst);
            let looks =
                || pattern::check_pages(memory, 0..memory.pages(), SEED, "inherited of who was stopped");
            child::fork(looks)?.succeed("whose maker was stopped")
        })?;
        let until = Instant::now() + Duration::from_secs(20);
        while told.word(0, 0).load(SeqCst) == 0 {
            ensure!(Instant::now() < until, "the maker of {round} does not begin");
            std::thread::sleep(Duration::from_micros(50));
        }
        let pid = told.word(0, 0).load(SeqCst) as libc::pid_t;
        std::thread::sleep(Duration::from_micros(rng.below(US_MAX) as u64));
        signal(pid, libc::SIGSTOP)?;
        sys::pause_ms(60);
        signal(pid, libc::SIGCONT)?;
        maker.succeed("who was stopped")?;
    }
    context.sabotage(memory);
    pattern::check_pages(memory, 0..memory.pages(), SEED, "above who was stopped")
}

/// `fork-beside-bare`: a thread forks as libc does, all the time, and another one by the bare instruction,
/// whose children do nothing for long.
///
/// *The story:* such a child was taken for one that asks, as a fork was under way that was announced. It was
/// served for five seconds, and everybody waited.
pub fn beside_bare(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 2;
    const IDLE_MS: u64 = 3500;
    let memory = &large(context)?;
    let (shown, over) = (&*context, &AtomicBool::new(false));
    beside_touches(shown, memory, || {
        let forks = || {
            while !over.load(Relaxed) {
                child::fork(|| Ok(()))?.succeed("a child that asks")?;
            }
            Ok(())
        };
        let bare = || {
            (0..ROUNDS).try_for_each(|round| {
                let idle = || {
                    let until = Instant::now() + Duration::from_millis(IDLE_MS);
                    // Every other one computes.
                    while round % 2 == 1 && Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    sys::pause_ms(if round % 2 == 0 { IDLE_MS } else { 0 });
                    pattern::check_pages(memory, 0..memory.pages(), SEED, "in a bare child")
                };
                match child::fork_by(Form::BareFork, idle) {
                    Ok(child) => child.succeed("a bare child"),
                    Err(_) if sys::errno() == libc::ENOMEM => Ok(()),
                    Err(failure) => Err(failure),
                }
            })
        };
        std::thread::scope(|scope| {
            let forker = scope.spawn(forks);
            let done = bare();
            over.store(true, Relaxed);
            let forked: Outcome = forker.join().expect("a panic ends the process");
            done.and(forked)
        })
    })?;
    pattern::check_pages(memory, 0..memory.pages(), SEED, "beside bare forks")
}

/// `fork-maker-waits`: a thread makes a child with memory of its own, and the kernel keeps it until that
/// ends (CLONE_VFORK without CLONE_VM). Pages leave meanwhile, and the child has all that it had at the fork.
///
/// *The story:* the pause of such a fork lasted as long as the child lived: 320 MiB were held in 64.
pub fn maker_waits(context: &mut Context) -> Outcome {
    const BEGUN: u64 = 1;
    const OVER: u64 = 2;
    let memory = &context.subject(SEED)?;
    context.cool(memory)?;
    let word = &Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    let becomes = |value| {
        let until = Instant::now() + Duration::from_secs(60);
        while word.word(0, 0).load(SeqCst) < value {
            ensure!(Instant::now() < until, "{value} does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    for by_call in [false, true, true, false] {
        word.word(0, 0).store(0, SeqCst);
        std::thread::scope(|scope| {
            let maker = scope.spawn(move || {
                let child = child::fork_and_wait(by_call, || {
                    word.word(0, 0).store(BEGUN, SeqCst);
                    becomes(OVER)?;
                    pattern::check_pages(
                        memory,
                        0..memory.pages(),
                        SEED,
                        "in a child for which its maker waits",
                    )
                })?;
                ensure!(word.word(0, 0).load(SeqCst) == OVER, "the maker did not wait");
                child.succeed("a child for which its maker waits")
            });
            let begun = becomes(BEGUN);
            // What the child has is shared: its parent's is other memory.
            let fresh = context.subject(SEED + 1).and_then(|fresh| {
                context.cool(&fresh)?;
                pattern::check_pages(&fresh, 0..fresh.pages(), SEED + 1, "beside one who waits for a child")
            });
            word.word(0, 0).store(OVER, SeqCst);
            let made: Outcome = maker.join().expect("a panic ends the process");
            begun.and(made).and(fresh)
        })?;
        pattern::check_pages(memory, 0..memory.pages(), SEED, "who waited for a child")?;
    }
    Ok(())
}

/// `fork-told`: the kernel tells the maker of its child, on pages that are out.
///
/// *The story:* it does so before the child runs, and until the child had asked for something nobody in the
/// maker was given a page. The call took five seconds, and all of the memory came in.
pub fn told(context: &mut Context) -> Outcome {
    const LONG: Duration = Duration::from_secs(3);
    let memory = context.subject(SEED)?;
    let check = |page: usize, what: &str| pattern::check_pages(&memory, page..page + 1, SEED, what);
    for round in 1..7 {
        context.cool(&memory)?;
        // The last word of a page, which has a page to itself.
        let [number, descriptor] = [round, round + 10].map(|part| memory.pages() * part / 20);
        let [number_at, descriptor_at] = [number, descriptor].map(|page| memory.at((page + 1) * PAGE - 8));
        let flags = (libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD) as u64;
        let words = [flags, descriptor_at as u64, 0u64, number_at as u64, libc::SIGCHLD as u64, 0, 0, 0];
        let begun = Instant::now();
        // SAFETY: the words are the arguments of clone3, and what they point to is this memory's.
        let made = unsafe { libc::syscall(libc::SYS_clone3, words.as_ptr(), size_of_val(&words)) };
        if made == 0 {
            let is_right = check(number + 1, "in the child").is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let took = begun.elapsed();
        let pid = sys::check("clone3", made as isize)? as libc::pid_t;
        child::of(pid).succeed("a child that its maker is told of")?;
        ensure!(took < LONG, "clone3 took {took:?}");
        let [told, opened] =
            [number, descriptor].map(|page| memory.word(page, WORDS - 1).load(Relaxed) as u32 as i32);
        ensure!(told == pid, "the maker was told of {told}, and its child is {pid}");
        // SAFETY: the kernel has made it for this process.
        unsafe { libc::close(opened) };
        [number, descriptor].iter().for_each(|&page| pattern::fill_pages(&memory, page..page + 1, SEED));
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "in the parent")?;
    }
    Ok(())
}
