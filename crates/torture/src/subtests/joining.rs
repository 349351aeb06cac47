//! Threads that a program makes itself, by clone: the kernel clears a word when one ends, and whoever
//! joins it waits for that.
//!
//! *The story:* the word's page was out when the thread ended. The kernel does not wait for it: the
//! word was never cleared.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::context::Context;
use crate::memory::{MIB, Memory};
use crate::outcome::Outcome;
use crate::sys::{self, Birth};
use crate::{ensure, pattern};

const SEED: u64 = 0x101;
const THREADS: usize = 10;
/// So many come and go one after another.
const THREADS_MANY: usize = 1100;
const STACK_BYTES: usize = 64 << 10;
/// Which word of its page, and how long it takes to be cleared.
const INDEX: usize = 5;
const PATIENCE_MS: u32 = 2000;

/// Threads that are ready to end, and whether they are to.
static READY: AtomicU32 = AtomicU32::new(0);
static GO: AtomicU32 = AtomicU32::new(0);

/// `join-words`: threads end whose words are in cold memory.
pub fn run(context: &mut Context) -> Outcome {
    let stacks = Memory::map(THREADS * STACK_BYTES)?;
    let memory = Memory::map(context.options.mib * MIB / 4)?;
    come_and_go(&memory, &stacks)?;
    let is_word = |at: usize| (0..THREADS).any(|thread| page(&memory, thread) == at);
    let others = || (0..memory.pages()).filter(|&page| !is_word(page));
    for birth in Birth::ALL {
        make(&memory, &stacks, birth)?;
        if birth == Birth::ALL[0] {
            others().for_each(|page| pattern::fill_pages(&memory, page..page + 1, SEED));
        }
        let cold = context.cool(&memory).and_then(|()| context.press());
        GO.store(1, SeqCst);
        cold?;
        // Nobody looks, which would bring the pages in, before all have ended.
        sys::pause_ms(100);
        for thread in 0..THREADS {
            let is_cleared = is_cleared(word(&memory, thread));
            ensure!(is_cleared, "the word of thread {thread}, made by {birth:?}, was not cleared");
        }
    }
    others().try_for_each(|page| pattern::check_page(&memory, page, SEED, page, "around words"))
}

/// More threads than a pager keeps in mind come and go, one after another, before there is anything to
/// page.
///
/// *The story:* places of ended threads were given up only once memory was managed. There was none for
/// the next ones.
fn come_and_go(memory: &Memory, stacks: &Memory) -> Outcome {
    let (word, top) = (word(memory, 0), stacks.at(STACK_BYTES) as usize);
    GO.store(1, SeqCst);
    for thread in 0..THREADS_MANY {
        word.store(1, SeqCst);
        sys::make_thread(Birth::CallClone, top, std::ptr::from_ref(word) as usize, live)?;
        ensure!(is_cleared(word), "the word of thread {thread} of many was not cleared");
    }
    Ok(())
}

/// Makes threads that wait for the word to end.
fn make(memory: &Memory, stacks: &Memory, birth: Birth) -> Outcome {
    READY.store(0, SeqCst);
    GO.store(0, SeqCst);
    for thread in 0..THREADS {
        let word = word(memory, thread);
        word.store(1, SeqCst);
        let address = std::ptr::from_ref(word) as usize;
        sys::make_thread(birth, stacks.at((thread + 1) * STACK_BYTES) as usize, address, live)?;
    }
    while READY.load(SeqCst) < THREADS as u32 {
        sys::pause_ms(1);
    }
    Ok(())
}

fn page(memory: &Memory, thread: usize) -> usize {
    (memory.pages() / THREADS) * thread + 1
}

fn word(memory: &Memory, thread: usize) -> &AtomicU64 {
    memory.word(page(memory, thread), INDEX)
}

/// Is a word cleared, now or soon?
fn is_cleared(word: &AtomicU64) -> bool {
    (0..PATIENCE_MS).any(|_| {
        let is_cleared = word.load(SeqCst) == 0;
        if !is_cleared {
            sys::pause_ms(1);
        }
        is_cleared
    })
}

/// What the threads do. They have no thread-local memory of their own.
extern "C" fn live(word: *mut libc::c_void) -> i32 {
    if !word.is_null() {
        // SAFETY: the word stays mapped until this thread has ended.
        unsafe { libc::syscall(libc::SYS_set_tid_address, word) };
    }
    READY.fetch_add(1, SeqCst);
    while GO.load(SeqCst) == 0 {
        let rest = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: the time is ours.
        unsafe { sys::bare(libc::SYS_nanosleep, [&raw const rest as usize, 0, 0, 0, 0, 0]) };
    }
    0
}
