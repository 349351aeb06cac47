//! A child that came without asking: its memory, as the kernel handed it over with the event of the fork.
//!
//! Its missing pages are those that were missing in the parent at that moment, and it waits where it touches one. They are
//! given to it one by one; when the descriptor is closed, what is missing still shows zeroes. Until then the child may
//! change its address space: what it tells of that decides where a page goes, or that nobody wants it. A child of the child
//! gets what is still to come, too.

use alloc::vec::Vec;

use overspill_sys::uffd::{CopyMode, Message, Partial, RawMsg, Uffd};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock};

use crate::memory::REST_NS;

/// How often a copy is tried again while a change is under way in the child, before the page is given up: about a second.
const TRIES: u32 = 20_000;

/// What the child did to its missing pages.
#[derive(Clone)]
enum Change {
    Dropped(AddressRange),
    Moved { from: AddressRange, to: usize },
}

/// A process that wants what was out.
pub(crate) struct Child {
    uffd: Uffd,
    changes: Vec<Change>,
    /// It has ended, or called exec.
    gone: bool,
}

impl Child {
    pub fn new(uffd: Uffd) -> Self {
        Child { uffd, changes: Vec::new(), gone: false }
    }

    /// Gives it the page that was at `address` when it was made; `source` is a page that does not change meanwhile. Its own
    /// children since are added to `born`. False when it could not be given, and must not be taken for a page of zeroes.
    ///
    /// # Safety
    /// `source` is a readable page.
    pub unsafe fn give(&mut self, address: usize, source: usize, born: &mut Vec<Child>) -> bool {
        // SAFETY: the page was missing in the child, as it was in its parent, and this is its content.
        self.settle(address, born, |uffd, at| unsafe { uffd.copy(at, source, PAGE_SIZE, CopyMode::empty()) })
    }

    /// The page that was at `address` is lost: its touch raises SIGBUS. False where the kernel cannot do that.
    pub fn poison(&mut self, address: usize, born: &mut Vec<Child>) -> bool {
        // SAFETY: the content is lost.
        self.settle(address, born, |uffd, at| unsafe { uffd.poison(at..at + PAGE_SIZE, false) })
    }

    /// Does something to a missing page, wherever that is by now.
    fn settle(
        &mut self,
        address: usize,
        born: &mut Vec<Child>,
        act: impl Fn(&Uffd, usize) -> Result<(), Partial>,
    ) -> bool {
        for tries in 0..TRIES {
            let Some(at) = self.place(address).filter(|_| !self.gone) else { return true };
            match act(&self.uffd, at).map_err(|partial| partial.errno) {
                Ok(()) => return true,
                Err(Errno::AGAIN) => {
                    if !self.listen(born) && tries > 0 {
                        clock::sleep_ns(REST_NS);
                    }
                }
                // It has one there, made after its birth, or shares its parent's.
                Err(Errno::EXIST) => {
                    let _ = self.uffd.wake(at..at + PAGE_SIZE);
                    return true;
                }
                // Not its memory any more.
                Err(Errno::NOENT | Errno::INVAL) => return true,
                Err(Errno::SRCH) => self.gone = true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Where the page is that was at `address`; None when the child has dropped it.
    fn place(&self, address: usize) -> Option<usize> {
        self.changes.iter().try_fold(address, |at, change| match change {
            Change::Dropped(range) => (!range.contains(&at)).then_some(at),
            Change::Moved { from, to } if from.contains(&at) => Some(at - from.start + to),
            Change::Moved { from, to } => (!(*to..*to + from.len()).contains(&at)).then_some(at),
        })
    }

    /// Reads what the child tells. False when that is nothing.
    fn listen(&mut self, born: &mut Vec<Child>) -> bool {
        let mut message = [RawMsg::default(); 1];
        if self.uffd.read_messages(&mut message) != Ok(1) {
            return false;
        }
        match message[0].decode() {
            Message::Remove { start, end } | Message::Unmap { start, end } => {
                self.changes.push(Change::Dropped(start..end));
            }
            Message::Remap { from, to, len } if from != to => {
                self.changes.push(Change::Moved { from: from..from + len, to });
            }
            Message::Fork { fd } => {
                let changes = self.changes.clone();
                born.push(Child { uffd: Uffd::received(fd), changes, gone: false });
            }
            _ => {}
        }
        true
    }

    /// Keeps the descriptor open for ever: a child that waits is better than one that reads zeroes.
    pub fn hold(self) {
        core::mem::forget(self);
    }
}
