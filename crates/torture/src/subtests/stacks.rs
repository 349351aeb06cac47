//! Thread stacks: many threads come and go under pressure, stacks lie in memory that has been paged
//! out before, and recursion goes deep.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::{Failure, Outcome};
use crate::rng::Rng;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x57ac;
static FINISHED: AtomicUsize = AtomicUsize::new(0);
static BROKEN: AtomicUsize = AtomicUsize::new(0);

/// `stacks`: threads are created, joined and detached by the hundred while memory is paged.
pub fn many(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 20;
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    context.under_pressure(|context| {
        for round in 0..ROUNDS {
            parallel(24, |lane| {
                descend(round * 100 + lane, 16)?;
                let page = Rng::new(round as u64, lane).below(memory.pages());
                pattern::check_page(&memory, page, SEED, page, "read by a short thread")
            })?;
            for lane in 0..8 {
                std::thread::Builder::new().stack_size(MIB).spawn(move || note(descend(lane, 8).is_ok()))?;
            }
        }
        context.sabotage_status()
    })?;
    let expected = ROUNDS * 8;
    wait_for(expected)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside the stacks")
}

fn note(intact: bool) {
    if !intact {
        BROKEN.fetch_add(1, Relaxed);
    }
    FINISHED.fetch_add(1, Relaxed);
}

fn wait_for(expected: usize) -> Outcome {
    for _ in 0..2000 {
        if FINISHED.load(Relaxed) == expected {
            break;
        }
        sys::pause_ms(5);
    }
    ensure!(
        FINISHED.load(Relaxed) == expected,
        "{} of {expected} detached threads ended",
        FINISHED.load(Relaxed)
    );
    ensure!(BROKEN.load(Relaxed) == 0, "{} detached threads found their stacks broken", BROKEN.load(Relaxed));
    Ok(())
}

/// Fills a page of stack a level, goes deeper, and checks on the way back.
fn descend(identity: usize, levels: usize) -> Outcome {
    descend_to(identity, levels, &mut |_| Ok(()))
}

/// As [`descend`]; `at_bottom` is called in between, with an address in the lowest frame.
#[inline(never)]
fn descend_to(identity: usize, levels: usize, at_bottom: &mut dyn FnMut(usize) -> Outcome) -> Outcome {
    let mut frame = [0u64; 512];
    for (index, word) in frame.iter_mut().enumerate() {
        *word = pattern::word(SEED, identity + levels, index);
    }
    let frame = std::hint::black_box(&mut frame);
    if levels > 0 {
        descend_to(identity, levels - 1, at_bottom)?;
    } else {
        at_bottom(std::ptr::from_ref(frame).addr())?;
    }
    let intact =
        frame.iter().enumerate().all(|(index, &word)| word == pattern::word(SEED, identity + levels, index));
    ensure!(intact, "a stack broke {levels} levels above its bottom");
    Ok(())
}

/// `recursion`: the main thread uses 6 MiB of its stack, leaves it idle while all else is walked,
/// and comes back.
pub fn recursion(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    descend_to(0, 1200, &mut |_| context.cool(&memory))?;
    // A stack of 32 MiB is an ordinary mapping to a pager.
    std::thread::scope(|scope| -> Outcome {
        let builder = std::thread::Builder::new().stack_size(32 * MIB);
        let thread = builder.spawn_scoped(scope, || descend_to(0, 6000, &mut |_| context.cool(&memory)))?;
        thread.join().expect("a panic ends the process")
    })?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside deep stacks")
}

/// `deep-stacks`: threads whose stacks go deep, go cold there and come back, on new stacks and on
/// those of threads that have ended; and the block by which the kernel knows a thread is never
/// paged.
pub fn deep(context: &mut Context) -> Outcome {
    const STACK: usize = 12 * MIB;
    const LEVELS: usize = 2000;
    const ROUNDS: usize = 12;
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let expects = context.options.expect_cold;
    FINISHED.store(0, Relaxed);
    BROKEN.store(0, Relaxed);
    context.under_pressure(|context| {
        for round in 0..ROUNDS {
            // One thread in four uses little of a stack that was used to the ground before.
            let body = move |lane: usize| {
                let levels = if lane == round % 4 { 8 } else { LEVELS };
                let is_deep = levels == LEVELS;
                descend_and_wait(levels, expects && is_deep)?;
                ensure_kept()
            };
            std::thread::scope(|scope| -> Outcome {
                let start = |lane| {
                    std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || body(lane))
                };
                let threads: Vec<_> = (0..2).map(start).collect::<Result<_, _>>()?;
                let detached = move || note(body(2).is_ok());
                std::thread::Builder::new().stack_size(STACK).spawn(detached)?;
                threads.into_iter().try_for_each(|thread| thread.join().expect("a panic ends the process"))
            })?;
            wait_for(round + 1)?;
        }
        context.sabotage_status()
    })?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside deep stacks")
}

/// Goes as deep as that and rests there; if it `expects_managed`, what is at the bottom is.
fn descend_and_wait(levels: usize, expects_managed: bool) -> Outcome {
    descend_to(0, levels, &mut |bottom| {
        sys::pause_ms(60);
        let is_managed = || -> Outcome {
            ensure!(sys::is_watched(bottom)?, "what is deep in a stack is not managed");
            Ok(())
        };
        if expects_managed { sys::eventually(is_managed) } else { Ok(()) }
    })
}

/// The control block of the calling thread is not managed.
fn ensure_kept() -> Outcome {
    // SAFETY: it has no precondition. The C library's handle is the block's address.
    let block = unsafe { libc::pthread_self() } as usize;
    ensure!(!sys::is_watched(block)?, "the control block of a thread is managed");
    Ok(())
}

struct CustomThread {
    identity: usize,
    pages: usize,
    intact: bool,
}

extern "C" fn custom_body(argument: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `custom` passes a CustomThread that outlives the thread and is not touched before the join.
    let task = unsafe { &mut *argument.cast::<CustomThread>() };
    sys::pause_ms(5);
    task.intact = descend(task.identity, task.pages).is_ok();
    argument
}

/// `custom-stacks`: threads whose stacks, with their thread-local data, lie in ordinary memory that
/// is cold when they start, as runtimes that allocate stacks themselves do it.
pub fn custom(context: &mut Context) -> Outcome {
    const STACK: usize = 64 * PAGE;
    const THREADS: usize = 32;
    let memory = context.subject(SEED)?;
    for round in 0..4 {
        context.cool(&memory)?;
        context.under_pressure(|_| {
            let mut tasks: Vec<CustomThread> = (0..THREADS)
                .map(|lane| CustomThread { identity: round * THREADS + lane, pages: 40, intact: false })
                .collect();
            let mut threads = Vec::new();
            for (lane, task) in tasks.iter_mut().enumerate() {
                let stack = Some((memory.at(lane * 2 * STACK), STACK));
                threads.push(start(stack, custom_body, std::ptr::from_mut(task).cast())?);
            }
            threads.into_iter().try_for_each(join)?;
            ensure!(tasks.iter().all(|task| task.intact), "a stack in ordinary memory broke");
            Ok(())
        })?;
    }
    for page in (0..memory.pages()).filter(|page| *page >= THREADS * 2 * 64 || page / 64 % 2 == 1) {
        pattern::check_page(&memory, page, SEED, page, "between the stacks")?;
    }
    Ok(())
}

/// `grows-down`: a mapping that grows down (MAP_GROWSDOWN) grows into the hole below it, and what is
/// at its top goes cold meanwhile. *The story:* a mapping of the agent's own, made when memory was
/// found, lay in the hole, where the kernel puts what fits there; the program got SIGSEGV.
pub fn grows_down(context: &mut Context) -> Outcome {
    const HOLE: usize = 4096 * MIB;
    let len = context.options.mib * MIB / 2;
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is valid. What grows down is bounded as the stack is.
    sys::check("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const unlimited) } as isize)?;
    let (hole, whole) = Memory::map_with(HOLE, libc::PROT_NONE, PRIVATE)?.forget();
    Memory::adopt(hole, whole).unmap()?;
    let flags = PRIVATE | libc::MAP_GROWSDOWN | libc::MAP_FIXED_NOREPLACE;
    sys::mmap(hole + whole - 16 * PAGE, 16 * PAGE, RW, flags, -1)?;
    let stack = Memory::adopt(hole + whole - len, len);
    for page in (0..stack.pages()).rev() {
        pattern::fill_pages(&stack, page..page + 1, SEED);
    }
    context.cool(&stack)?;
    pattern::check_pages(&stack, 0..stack.pages(), SEED, "grown down")
}

/// `joined-stacks`: memory that is one mapping with the stack below it, as a kernel before 6.7
/// joins the two; with a thread on the stack, and with one that has ended (which later kernels keep
/// apart by themselves).
pub fn joined(context: &mut Context) -> Outcome {
    const STACK: usize = 8 * MIB;
    let len = context.options.mib * MIB / 4;
    // Before memory is managed: with managed memory the kernel joins nothing.
    let above_ended = Memory::map(len)?;
    let ended = start(None, brief_body, std::ptr::null_mut())?;
    join(ended)?;
    let (guard, _) = Memory::map_with(PAGE + STACK + len, libc::PROT_NONE, PRIVATE)?.forget();
    sys::mprotect(guard + PAGE, STACK + len, RW)?;
    let above = Memory::adopt(guard + PAGE + STACK, len);

    let stop = AtomicBool::new(false);
    let stack = Some(((guard + PAGE) as *mut u8, STACK));
    let thread = start(stack, lasting_body, (&raw const stop).cast_mut().cast())?;
    let mut outcome = go_cold_and_move(context, above).and_then(|()| go_cold_and_move(context, above_ended));
    if outcome.is_ok() && sys::is_watched(ended as usize)? {
        outcome = Err(Failure("the control block of a thread that has ended is managed".into()));
    }
    stop.store(true, Relaxed);
    join(thread)?;
    outcome
}

/// `behind-guards`: what has a guard in front, and whose first pages nobody ever touches, is memory like
/// any other: one large block, and the stacks of fibers, which are used from their ends. Threads come and
/// go meanwhile, whose control blocks stay.
///
/// *The story:* only what was used to its first page was managed. A block of 256 MiB was held in a budget
/// of 64, and so were 512 stacks of fibers.
pub fn behind_guards(context: &mut Context) -> Outcome {
    const FIBER: usize = 512 << 10;
    const UNUSED: usize = 64 << 10;
    let len = context.options.mib * MIB / 4;
    for (each, unused) in [(len, 2 * PAGE), (FIBER, UNUSED)] {
        let parts = (0..len / each).map(|_| -> Outcome<Memory> {
            let whole = Memory::map(each)?;
            sys::mprotect(whole.base(), PAGE, libc::PROT_NONE)?;
            Ok(whole)
        });
        let parts = parts.collect::<Outcome<Vec<_>>>()?;
        let used = |part: &Memory| Memory::adopt(part.base() + unused, part.len() - unused);
        let used = parts.iter().map(used).map(std::mem::ManuallyDrop::new).collect::<Vec<_>>();
        for part in &used {
            (0..part.pages()).rev().for_each(|page| pattern::fill_pages(part, page..page + 1, SEED));
        }
        parallel(context.options.threads, |_| ensure_kept())?;
        context.cool_all(&used)?;
        context.under_pressure(|context| {
            (0..40).try_for_each(|_| parallel(context.options.threads, |_| ensure_kept()))
        })?;
        used.iter().try_for_each(|part| {
            pattern::check_pages(part, 0..part.pages(), SEED, "behind a guard whose neighbours are unused")
        })?;
    }
    Ok(())
}

extern "C" fn brief_body(argument: *mut libc::c_void) -> *mut libc::c_void {
    argument
}

extern "C" fn lasting_body(argument: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `joined` passes a flag that outlives the thread.
    let stop = unsafe { &*argument.cast::<AtomicBool>() };
    while !stop.load(Relaxed) {
        sys::pause_ms(5);
    }
    argument
}

/// Memory is what the program believes it to be: it goes cold, and moves as a whole.
fn go_cold_and_move(context: &mut Context, memory: Memory) -> Outcome {
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    let (base, len) = memory.forget();
    let moved = Memory::adopt(sys::mremap(base, len, 2 * len, libc::MREMAP_MAYMOVE, 0)?, 2 * len);
    pattern::check_pages(&moved, 0..len / PAGE, SEED, "above a stack")
}

type Body = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

/// Starts a thread on a stack, or on one of the C library's. The stack and what the argument points
/// to outlive it.
fn start(
    stack: Option<(*mut u8, usize)>,
    body: Body,
    argument: *mut libc::c_void,
) -> Outcome<libc::pthread_t> {
    let mut thread = 0;
    // SAFETY: all-zero is storage for the attributes, which init fills; for the rest see above.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        if let Some((base, len)) = stack {
            libc::pthread_attr_setstack(&raw mut attributes, base.cast(), len);
        }
        let error = libc::pthread_create(&raw mut thread, &raw const attributes, body, argument);
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    ensure!(error == 0, "pthread_create: error {error}");
    Ok(thread)
}

fn join(thread: libc::pthread_t) -> Outcome {
    // SAFETY: a thread that was started here and is joined once.
    let error = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    ensure!(error == 0, "pthread_join: error {error}");
    Ok(())
}
