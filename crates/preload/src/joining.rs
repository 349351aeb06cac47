//! Where the kernel says that a thread has ended: words that the program names when it makes a thread
//! (CLONE_CHILD_CLEARTID), or the thread itself (set_tid_address). Whoever joins it waits for that.
//!
//! The kernel clears the word at the thread's end and does not wait for a page that is out. So the
//! page of a word that is known stays in (see `engine/robust.rs`), and a word is known before its
//! thread is made.
//!
//! *The story:* a thread that a library had made by clone ended while the page of its word was
//! out. The word was never cleared: whoever joined it waits today.

use linux_raw_sys::general::{CLONE_CHILD_CLEARTID, CLONE_VM};
use overspill_engine::join_words::JoinWords;
use overspill_sys::{mem, thread};

use crate::filters;

static WORDS: JoinWords = JoinWords::new();

/// For the agent.
pub fn words() -> &'static JoinWords {
    &WORDS
}

/// The word that these arguments of clone(2) name.
pub fn word(flags: usize, child_tid: usize) -> Option<usize> {
    (flags as u32 & CLONE_CHILD_CLEARTID != 0 && child_tid != 0).then_some(child_tid)
}

/// A thread is about to be made by these arguments of clone(2), or what shares this one's memory.
/// Returns the place of its word, for [`made`].
pub fn before_clone(flags: usize, child_tid: usize) -> Option<usize> {
    let word = word(flags, child_tid).filter(|_| flags as u32 & CLONE_VM != 0)?;
    note(word)
}

/// What came of it: the thread's number, or minus an error.
pub fn made(place: usize, result: isize) {
    match u32::try_from(result) {
        Ok(tid) if tid != 0 => WORDS.born(place, tid),
        _ => WORDS.forget(place),
    }
}

/// The calling thread has its word there from now on.
pub fn before_set_tid_address(address: usize) {
    let own = thread::id();
    WORDS.forget_those(|tid| tid == own);
    in_own_thread(own, address);
}

/// In a child of fork: `word` is the one of its only thread.
pub fn in_child(word: Option<usize>) {
    WORDS.clear();
    if let Some(word) = word {
        in_own_thread(thread::id(), word);
    }
}

fn in_own_thread(tid: u32, address: usize) {
    if let Some(place) = note(address) {
        WORDS.born(place, tid);
    }
}

/// Notes a word, and then has its page in: what leaves later is looked at for words that are known.
fn note(address: usize) -> Option<usize> {
    // Behind a filter there is no agent, and no call that the program does not make.
    if address == 0 || filters::is_filtered() {
        return None;
    }
    let place = WORDS.note(address, thread::is_gone)?;
    WORDS.wait_for_batch(thread::yield_now);
    // This waits for what is out. Where nothing is mapped it is the kernel's to find nothing.
    let _ = mem::copy_from_self(&mut [0; size_of::<u32>()], address);
    Some(place)
}
