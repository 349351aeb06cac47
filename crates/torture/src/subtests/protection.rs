//! mprotect, guard pages, code in memory, and handlers of SIGSEGV and SIGBUS that belong to the program.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::context::{Context, parallel};
use crate::faults::{self, Fault};
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x9207;

/// `mprotect`: cold memory is made read-only and read, inaccessible and back, executable and run,
/// in parts as well.
pub fn mprotect(context: &mut Context) -> Outcome {
    faults::install()?;
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    sys::mprotect(memory.base(), memory.len(), libc::PROT_READ)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "read-only")?;
    expect_fault(faults::store(memory.page(5), 1), memory.page(5), "a store to read-only memory")?;
    context.press()?;
    sys::mprotect(memory.base(), memory.len(), libc::PROT_NONE)?;
    expect_fault(faults::load(memory.page(9)).map(drop), memory.page(9), "a load from inaccessible memory")?;
    context.press()?;
    sys::mprotect(memory.base(), memory.len(), RW)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "accessible again")?;
    striped(context, &memory)
}

/// Every other page read-only or inaccessible, while all of it goes cold, then plain again.
fn striped(context: &mut Context, memory: &Memory) -> Outcome {
    let pages = memory.pages().min(4096);
    for (stride, protection) in [(2, libc::PROT_READ), (16, libc::PROT_NONE)] {
        for page in (0..pages).step_by(stride) {
            sys::mprotect(memory.page(page), PAGE, protection)?;
        }
        context.press()?;
        for page in (0..pages).step_by(stride) {
            let fault = faults::store(memory.page(page), 1);
            expect_fault(fault, memory.page(page), "a store to a striped page")?;
            if protection == libc::PROT_READ {
                pattern::check_page(memory, page, SEED, page, "read-only stripe")?;
            }
            sys::mprotect(memory.page(page), PAGE, RW)?;
        }
        pattern::check_pages(memory, 0..memory.pages(), SEED, "striped")?;
    }
    Ok(())
}

fn expect_fault(result: Result<(), Fault>, address: usize, what: &str) -> Outcome {
    let expected = Fault { signal: libc::SIGSEGV, address };
    ensure!(result == Err(expected), "{what}: {result:?}, expected {expected:?}");
    Ok(())
}

/// `code`: functions written into memory with PROT_EXEC go cold, are run, rewritten and run again.
///
/// *The story:* such memory was not managed; the heaps of SBCL and Chez Scheme took all of the budget.
pub fn code(context: &mut Context) -> Outcome {
    const ALL: i32 = RW | libc::PROT_EXEC;
    let memory = Memory::map_with(context.options.mib * MIB / 4, ALL, PRIVATE)?;
    for round in 0..3u32 {
        for page in 0..memory.pages() {
            write_function(&memory, page, page as u32 ^ (round << 24));
        }
        context.cool(&memory)?;
        for page in 0..memory.pages() {
            if context.options.sabotage && page == memory.pages() / 2 {
                crate::fail!("page {page} holds no code any more, as it was sabotaged");
            }
            // SAFETY: `write_function` has put a function of this type there.
            let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(memory.page(page)) };
            let (found, expected) = (function(), page as u32 ^ (round << 24));
            ensure!(found == expected, "the code in page {page} returns {found:#x}, expected {expected:#x}");
        }
    }
    sys::mprotect(memory.base(), memory.len(), libc::PROT_READ | libc::PROT_EXEC)?;
    context.press()?;
    // SAFETY: as above; the memory is still executable.
    let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(memory.page(3)) };
    ensure!(function() == 3 | (2 << 24), "code in read-only memory returns something else");
    Ok(())
}

/// `mov eax, value; ret`
fn write_function(memory: &Memory, page: usize, value: u32) {
    let word = 0xb8 | u64::from(value) << 8 | 0xc3 << 40;
    memory.word(page, 0).store(word, Relaxed);
}

/// `guard`: accessible parts between inaccessible pages; the parts keep their content, the guards
/// keep guarding.
pub fn guard(context: &mut Context) -> Outcome {
    const PART: usize = 31;
    faults::install()?;
    let memory = Memory::map_with(context.options.mib * MIB / 4, libc::PROT_NONE, PRIVATE)?;
    let guards: Vec<usize> = (0..memory.pages()).step_by(PART + 1).collect();
    let part = |guard: usize| guard + 1..(guard + 1 + PART).min(memory.pages());
    for &guard in &guards {
        sys::mprotect(memory.page(guard + 1), part(guard).len() * PAGE, RW)?;
        pattern::fill_pages(&memory, part(guard), SEED);
    }
    let middle = guards[guards.len() / 2];
    for _ in 0..2 {
        context.press()?;
        if context.options.sabotage {
            pattern::fill_page(&memory, middle + 1, 0, 0);
        }
        for &guard in &guards {
            let fault = faults::load(memory.page(guard)).map(drop);
            expect_fault(fault, memory.page(guard), "a load from a guard page")?;
            pattern::check_pages(&memory, part(guard), SEED, "between guards")?;
        }
    }
    Ok(())
}

/// `guarded`: a block with some inaccessible pages right in front of it, from the start. It looks
/// like the stack of a thread that has ended, and must go cold all the same; beside it such stacks
/// are used again by new threads.
pub fn guarded(context: &mut Context) -> Outcome {
    const GUARD: usize = 16;
    let len = GUARD * PAGE + context.options.mib * MIB / 4;
    let memory = Memory::map_with(len, libc::PROT_NONE, PRIVATE)?;
    let block = GUARD..memory.pages();
    sys::mprotect(memory.page(GUARD), block.len() * PAGE, RW)?;
    pattern::fill_pages(&memory, block.clone(), SEED);
    parallel(context.options.threads, |_| Ok(()))?;
    let (base, len) = memory.forget();
    let memory = Memory::adopt(base + GUARD * PAGE, len - GUARD * PAGE);
    context.cool(&memory)?;
    context.sabotage(&memory);
    context.under_pressure(|context| {
        (0..100).try_for_each(|_| {
            parallel(context.options.threads, |lane| {
                pattern::check_page(&memory, lane, SEED, GUARD + lane, "by a new thread")
            })
        })
    })?;
    (0..memory.pages())
        .try_for_each(|page| pattern::check_page(&memory, page, SEED, GUARD + page, "behind a guard"))
}

/// The range in which `on_barrier` opens the page that was stored to.
static BARRIER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
static OPENED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_barrier(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let address = unsafe { (*info).si_addr() as usize };
    let range = BARRIER[0].load(Relaxed)..BARRIER[1].load(Relaxed);
    if range.contains(&address) && sys::mprotect(address / PAGE * PAGE, PAGE, RW).is_ok() {
        OPENED.fetch_add(1, Relaxed);
    } else {
        // SAFETY: restores the default: a fault elsewhere ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// `write-barrier`: a collector's way to learn of stores: cold memory is read-only, the handler
/// opens each page.
pub fn write_barrier(context: &mut Context) -> Outcome {
    faults::install_handler(libc::SIGSEGV, on_barrier)?;
    let memory = context.subject(SEED)?;
    BARRIER[0].store(memory.base(), Relaxed);
    BARRIER[1].store(memory.base() + memory.len(), Relaxed);
    context.cool(&memory)?;
    sys::mprotect(memory.base(), memory.len(), libc::PROT_READ)?;
    context.under_pressure(|context| {
        parallel(4, |lane| {
            for page in (lane..memory.pages()).step_by(4).filter(|page| page % 3 == 0) {
                memory.word(page, 100).store(lane as u64, Relaxed);
            }
            context.sabotage_status()
        })
    })?;
    let stored = memory.pages().div_ceil(3);
    ensure!(OPENED.load(Relaxed) == stored, "{} pages opened, {stored} stored to", OPENED.load(Relaxed));
    for page in 0..memory.pages() {
        if page % 3 == 0 {
            ensure!(
                memory.word(page, 100).load(Relaxed) == page as u64 % 4,
                "the store to page {page} is lost"
            );
            memory.word(page, 100).store(pattern::word(SEED, page, 100), Relaxed);
        }
        pattern::check_page(&memory, page, SEED, page, "behind the barrier")?;
    }
    Ok(())
}

/// `sigsegv`: wild accesses by several threads reach the program's handler with the right address,
/// as does SIGBUS behind the end of a mapped file, while other memory is paged.
pub fn sigsegv(context: &mut Context) -> Outcome {
    faults::install()?;
    let memory = context.subject(SEED)?;
    let gone = Memory::map(64 * PAGE)?.forget().0;
    sys::mprotect(gone, 64 * PAGE, libc::PROT_NONE)?;
    let file = sys::scratch_file(&context.options.directory, 0)?;
    file.set_len(PAGE as u64)?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let behind_end = sys::mmap(0, 2 * PAGE, RW, libc::MAP_SHARED, fd)? + PAGE;
    context.cool(&memory)?;
    context.under_pressure(|context| {
        parallel(4, |lane| {
            let mut rng = context.rng(lane);
            for _ in 0..500 {
                let wild = [8, gone + rng.below(64 * PAGE), gone + PAGE * lane][rng.below(3)];
                expect_fault(faults::load(wild).map(drop), wild, "a wild load")?;
                expect_fault(faults::store(wild, 1), wild, "a wild store")?;
                let bus = faults::load(behind_end + 5);
                let expected = Fault { signal: libc::SIGBUS, address: behind_end + 5 };
                ensure!(bus == Err(expected), "behind the end of a file: {bus:?}, expected {expected:?}");
                let page = rng.below(memory.pages());
                pattern::check_page(&memory, page, SEED, page, "between faults")?;
            }
            Ok(())
        })
    })?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after the faults")
}

const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

/// *A reader's story:* what is not mapped in the range makes the answer ENOMEM, and the rest has its
/// guards; behind those the old bytes were found.
fn guards_around_a_gap(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let (base, len, gap) = (memory.base(), memory.len(), memory.page(memory.pages() / 2));
    context.cool(&memory)?;
    sys::munmap(gap, PAGE)?;
    ensure!(sys::madvise(base, len, MADV_GUARD_INSTALL).is_err(), "guards over a gap, and no error");
    expect_fault(faults::load(base).map(drop), base, "a load from a guard before a gap")?;
    sys::mmap(gap, PAGE, RW, PRIVATE | libc::MAP_FIXED, -1)?;
    sys::madvise(base, len, MADV_GUARD_REMOVE)?;
    pattern::check_zero(&memory, 0..memory.pages(), "behind guards around a gap")
}

/// `madv-guard`: guards (MADV_GUARD_INSTALL) over cold, warm and untouched memory. They stay while
/// other memory is pushed out, while what lies beside them is read in order, and while fresh memory
/// is filled up to them; behind them nothing is left.
pub fn madv_guard(context: &mut Context) -> Outcome {
    const PART: usize = 64;
    faults::install()?;
    let memory = context.subject(SEED)?;
    let fresh = Memory::map(memory.len())?;
    context.cool(&memory)?;
    if sys::madvise(memory.base(), PAGE, MADV_GUARD_INSTALL).is_err() {
        // A kernel before 6.13.
        return context.sabotage_status();
    }
    let guarded = |page: usize| page / PART % 4 == 1 || page.is_multiple_of(97);
    for page in (0..memory.pages()).filter(|&page| guarded(page)) {
        sys::madvise(memory.page(page), PAGE, MADV_GUARD_INSTALL)?;
    }
    // Into memory that was never touched by the bare instruction: nobody hears of it before it is filled.
    for page in (0..fresh.pages()).filter(|&page| guarded(page)) {
        let arguments = [fresh.page(page), PAGE, MADV_GUARD_INSTALL as usize, 0, 0, 0];
        // SAFETY: concerns a page of ours in which nothing is.
        sys::check("madvise", unsafe { sys::bare(libc::SYS_madvise, arguments) })?;
    }
    for round in 0..2 {
        for page in 0..memory.pages() {
            if guarded(page) {
                let fault = faults::load(memory.page(page)).map(drop);
                expect_fault(fault, memory.page(page), "a load from a guard")?;
                let fault = faults::store(fresh.page(page), 1);
                expect_fault(fault, fresh.page(page), "a store to a guard in fresh memory")?;
            } else {
                pattern::check_page(&memory, page, SEED, page, "beside a guard")?;
                pattern::fill_page(&fresh, page, SEED + round, page);
            }
        }
        context.cool(&memory)?;
    }
    for memory in [&memory, &fresh] {
        sys::madvise(memory.base(), memory.len(), MADV_GUARD_REMOVE)?;
    }
    guards_around_a_gap(context)?;
    for page in 0..memory.pages() {
        if guarded(page) {
            pattern::check_zero(&memory, page..page + 1, "behind a guard")?;
            pattern::check_zero(&fresh, page..page + 1, "behind a guard in fresh memory")?;
        } else {
            pattern::check_page(&fresh, page, SEED + 1, page, "fresh, beside a guard")?;
        }
    }
    Ok(())
}
