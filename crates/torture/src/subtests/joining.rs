//! Threads that a program makes itself, by clone: the kernel clears a word when one ends, and whoever
//! joins it waits for that.
//!
//! *The story:* the word's page was out when the thread ended. The kernel does not wait for it: the
//! word was never cleared.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::context::Context;
use crate::memory::Memory;
use crate::outcome::Outcome;
use crate::sys::{self, Birth};
use crate::{ensure, pattern};

const SEED: u64 = 0x101;
const THREADS: usize = 10;
const STACK_BYTES: usize = 64 << 10;
/// Which word of its page, and how long it takes to be cleared.
const INDEX: usize = 5;
const PATIENCE_MS: u32 = 2000;

/// Threads that are ready to end, and whether they are to.
static READY: AtomicU32 = AtomicU32::new(0);
static GO: AtomicU32 = AtomicU32::new(0);

/// `join-words`: threads end whose words are in cold memory.
pub fn run(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let stacks = Memory::map(THREADS * STACK_BYTES)?;
    let page = |thread: usize| (memory.pages() / THREADS) * thread + 1;
    let word = |thread: usize| memory.word(page(thread), INDEX);
    for birth in Birth::ALL {
        READY.store(0, SeqCst);
        GO.store(0, SeqCst);
        for thread in 0..THREADS {
            word(thread).store(1, SeqCst);
            let address = std::ptr::from_ref(word(thread)) as usize;
            sys::make_thread(birth, stacks.at((thread + 1) * STACK_BYTES) as usize, address, live)?;
        }
        while READY.load(SeqCst) < THREADS as u32 {
            sys::pause_ms(1);
        }
        let cold = context.cool(&memory).and_then(|()| context.press());
        GO.store(1, SeqCst);
        cold?;
        // Nobody looks, which would bring the pages in, before all have ended.
        sys::pause_ms(100);
        for thread in 0..THREADS {
            let is_cleared = (0..PATIENCE_MS).any(|_| {
                let is_cleared = word(thread).load(SeqCst) == 0;
                if !is_cleared {
                    sys::pause_ms(1);
                }
                is_cleared
            });
            ensure!(is_cleared, "the word of thread {thread}, made by {birth:?}, was not cleared");
        }
    }
    let is_word = |at: usize| (0..THREADS).any(|thread| page(thread) == at);
    (0..memory.pages())
        .filter(|&page| !is_word(page))
        .try_for_each(|page| pattern::check_page(&memory, page, SEED, page, "around words"))
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
