//! A child of fork that inherits what its parent had out: how it asks (`engine/heirs.rs` answers).
//!
//! Until it is on its own its parent serves it, and it has one thread, which waits here. Whatever goes
//! wrong before, it gets all that is out. Where the parent has ended meanwhile, pages may have shown
//! zeroes, and nobody knows which: the child ends.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use overspill_engine::Inheritance;
use overspill_engine::estate::Estate;
use overspill_engine::heirs::{ALL_IS_IN, Asks, GO_ON, LIES_THERE, page_of};
use overspill_sys::file::{self, Open};

use crate::{fork, message, start, withheld};

/// A question that is to be brought to an end, which the thread that forked waits for.
pub struct Heir {
    mailbox: Option<usize>,
}

/// What there is, and how to have it.
pub struct Legacy {
    pub estate: Estate,
    pub inheritance: Option<Inheritance>,
}

impl Heir {
    /// In a child that is to ask; of any other there is nothing to be waited for.
    pub fn begin() -> Option<Heir> {
        fork::inherits_from().map(|mailbox| Heir { mailbox: Some(mailbox) })
    }

    /// What is inherited. None: all is in, or comes in now.
    pub fn take(&mut self) -> Option<Legacy> {
        let [answer, tid, descriptor, token] = ask(self.mailbox?, Asks::Takes);
        if answer == ALL_IS_IN {
            self.mailbox = None;
            return None;
        }
        assert_eq!(answer, LIES_THERE, "one of two answers");
        if withheld::has_marked() {
            self.refuse();
            return None;
        }
        let tid = tid as u32;
        let found = file::open_of_other(tid, descriptor as u32, Open::empty())
            .and_then(|file| Estate::read(&file, token))
            .and_then(|estate| Ok((Inheritance::open(&estate, tid)?, estate)));
        match found {
            Ok((inheritance, estate)) => Some(Legacy { estate, inheritance: Some(inheritance) }),
            Err(_) => {
                self.refuse();
                None
            }
        }
    }

    /// From now on nobody serves what is out but this process. False: all is in.
    pub fn commit(&mut self) -> bool {
        self.mailbox.take().is_some_and(|mailbox| ask(mailbox, Asks::Commits)[0] == GO_ON)
    }

    fn refuse(&mut self) {
        if let Some(mailbox) = self.mailbox.take() {
            ask(mailbox, Asks::Refuses);
        }
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        self.refuse();
        start::let_go();
    }
}

/// In a child without an agent: all that is out comes in.
pub fn refuse() {
    if let Some(mailbox) = fork::inherits_from() {
        ask(mailbox, Asks::Refuses);
    }
}

/// The answer to a touch.
fn ask(mailbox: usize, what: Asks) -> [u64; 4] {
    let page = page_of(mailbox, what);
    let words: [u64; 4] = core::array::from_fn(|n| {
        // SAFETY: the page stays mapped for ever, readable; only the kernel and the parent's agent
        // change it. The read may wait for that.
        unsafe { AtomicUsize::from_ptr((page + n * size_of::<u64>()) as *mut usize) }.load(Relaxed) as u64
    });
    if words[0] == 0 {
        message::end_with("the process that made this one ended before it could hand over what is on swap");
    }
    words
}
