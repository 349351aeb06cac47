//! Processes that have the memory of another one, which ends: they find what it had, or are ended, and are
//! never shown anything else.

use std::sync::atomic::Ordering::SeqCst;

use crate::child::{self, describe};
use crate::context::Context;
use crate::memory::{Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xf019;
/// What the word that all share says.
const BEGUN: u64 = 1;
const ALONE: u64 = 2;
const RIGHT: u64 = 3;
const WRONG: u64 = 4;

/// `fork-vfork-orphan`: a thread is in vfork when its process ends, by another thread or by SIGKILL. The
/// child goes on in the memory, most of which is out of RAM.
///
/// *The story:* the pager ended with the process, and the child read zeroes in 34,715 of 49,152 pages.
pub fn vfork_orphan(context: &mut Context) -> Outcome {
    child::take_orphans()?;
    let word = &Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    let is = |value| word.word(0, 0).load(SeqCst) == value;
    let becomes = |value| {
        sys::eventually(|| {
            ensure!(is(value), "{value} does not come");
            Ok(())
        })
    };
    for is_killed in [false, true] {
        word.word(0, 0).store(0, SeqCst);
        let options = context.options.clone();
        let maker = child::fork(move || {
            let mut context = Context::new(options);
            let memory = context.subject(SEED)?;
            context.cool(&memory)?;
            let (base, len) = memory.forget();
            let lent = move || {
                word.word(0, 0).store(BEGUN, SeqCst);
                while !is(ALONE) {
                    std::hint::spin_loop();
                }
                let memory = std::mem::ManuallyDrop::new(Memory::adopt(base, len));
                let found = pattern::check_pages(&memory, 0..memory.pages(), SEED, "of who has ended");
                word.word(0, 0).store(if found.is_ok() { RIGHT } else { WRONG }, SeqCst);
                // SAFETY: ends the process, and not the memory's maker.
                unsafe { libc::_exit(0) }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| sys::lend_memory(&lent));
                becomes(BEGUN)?;
                if is_killed {
                    // That comes from outside.
                    sys::pause_ms(600_000);
                }
                // SAFETY: ends the process, as a thread may that knows of no other.
                unsafe { libc::_exit(0) }
            })
        })?;
        // It has to bring its memory out first.
        for _ in 0..20 {
            if becomes(BEGUN).is_ok() {
                break;
            }
        }
        becomes(BEGUN)?;
        if is_killed {
            maker.kill()?;
        } else {
            maker.succeed("who made a child by vfork")?;
        }
        sys::pause_ms(100);
        word.word(0, 0).store(ALONE, SeqCst);
        let status = child::wait_any().unwrap_or(0);
        let is_ended = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL && is(ALONE);
        let may_be_ended = context.options.expect_cold;
        let found = word.word(0, 0).load(SeqCst);
        ensure!(found != WRONG, "a child of vfork found other memory than its maker had");
        ensure!(is(RIGHT) || is_ended && may_be_ended, "a child of vfork: {found}, {}", describe(status));
    }
    context.sabotage_status()
}
