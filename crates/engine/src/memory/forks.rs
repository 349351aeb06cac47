//! Forks that the kernel tells of, between the reading and the end of their handling.
//!
//! Whoever forked goes on when it is read of that. What it changes next, which the child has as it was, it
//! must not change before the fork is handled. So a word is odd from before the reading on until then.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use overspill_sys::uffd::Message;
use overspill_sys::{clock, mem};

use super::Memory;

/// What is known of them.
#[derive(Default)]
pub(super) struct Forks {
    /// When the first of those was read that are not handled, or if there is none the last that was, as
    /// /proc has moments. The kernel makes the child after that.
    read_ns: u64,
    /// Odd while one may be read of and not handled.
    word: Option<&'static AtomicU32>,
    is_open: bool,
    is_handling: bool,
    /// Pages that left otherwise than they had come. It wraps.
    rewritten: u32,
}

impl Forks {
    pub fn begin_reading(&mut self) {
        self.set_open(true);
    }

    fn set_open(&mut self, is_open: bool) {
        if let Some(word) = self.word
            && self.is_open != is_open
        {
            word.fetch_add(1, SeqCst);
            self.is_open = is_open;
        }
    }
}

impl Memory {
    /// From now on that word is odd while a fork may be read of and not handled.
    pub fn watch_forks(&mut self, word: &'static AtomicU32) {
        // Who had it before may have ended in the midst of that.
        (self.forks.word, self.forks.is_open) = (Some(word), word.load(SeqCst) % 2 == 1);
        self.forks.set_open(self.is_forked());
    }

    /// Messages were read; before that a fork had been read of or not.
    pub(super) fn note_read(&mut self, was_forked: bool) {
        let is_forked = self.is_forked();
        if !was_forked && is_forked {
            self.forks.read_ns = clock::boottime_ns();
        }
        self.forks.set_open(is_forked || self.forks.is_handling);
    }

    /// One that was read of is handled from now on, or has been.
    pub fn handle_fork(&mut self, is_handling: bool) {
        self.forks.is_handling = is_handling;
        self.forks.set_open(is_handling || self.is_forked());
    }

    /// When it was read of the fork that is being handled, or of one before it.
    pub fn fork_read_ns(&self) -> u64 {
        self.forks.read_ns
    }

    /// How many pages the program may have stored to: minor faults of the process without those of this
    /// thread and its helper, and what was found to be changed: what comes back is put where it can be
    /// stored to without a fault. It wraps.
    pub fn stored(&self) -> u32 {
        let helpers = self.helper.map_or(0, |helper| helper.faults());
        let own = mem::minor_faults_here().wrapping_add(helpers);
        mem::minor_faults().wrapping_sub(own).wrapping_add(self.forks.rewritten)
    }

    /// A page left otherwise than it had come.
    pub fn note_rewritten(&mut self) {
        self.forks.rewritten = self.forks.rewritten.wrapping_add(1);
    }

    /// Was a fork read of and not handled?
    pub(super) fn is_forked(&self) -> bool {
        self.changes().iter().any(|message| matches!(message, Message::Fork { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_odd_while_a_fork_may_be_on_its_way() {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(4)));
        let mut forks = Forks { word: Some(word), ..Forks::default() };
        let mut after = |is_open: bool| {
            forks.set_open(is_open);
            word.load(SeqCst)
        };
        assert_eq!([true, true, false, false, true].map(&mut after), [5, 5, 6, 6, 7]);
    }
}
