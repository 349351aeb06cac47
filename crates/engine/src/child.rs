//! A child that came without asking: its memory, as the kernel handed it over with the event of the fork.
//!
//! Its missing pages are those that were missing in the parent at that moment, and it waits where
//! it touches one. They are given to it one by one; when the descriptor is closed, what is missing
//! still shows zeroes. Until then the child may change its address space: what it tells of that
//! decides where a page goes, or that nobody wants it. A child of the child gets what is still to
//! come, too.

use alloc::vec::Vec;

use overspill_sys::uffd::{CopyMode, Message, Partial, RawMsg, Uffd};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock};

use crate::memory::REST_NS;
use crate::ranges::cut_out;

/// How often a copy is tried again while a change is under way in the child, before the page is
/// given up: about a second.
const TRIES: u32 = 20_000;

/// What is done to some bytes: at this address in the child, so far from the first of them, so many.
type Act<'a> = &'a dyn Fn(&Uffd, usize, usize, usize) -> Result<(), Partial>;

/// What the child did to its missing pages.
#[derive(Clone)]
enum Change {
    Dropped(AddressRange),
    Moved { from: AddressRange, to: usize },
}

/// What a child told.
pub(crate) enum Heard {
    Nothing,
    /// It waits at a page, which is missing, or write-protected.
    Touch {
        address: usize,
        wp: bool,
    },
    /// Its address space has changed.
    Change,
}

/// A process that wants what was out.
pub(crate) struct Child {
    uffd: Uffd,
    changes: Vec<Change>,
    /// What shows zeroes in it, where its parent had it, in order: that was marked MADV_WIPEONFORK.
    wiped: Vec<AddressRange>,
    /// Places that it moved something away from whose end is not told yet, and those of them that something
    /// else was moved to before it was: that end is not the end of the latter. See `memory/changes.rs`.
    owed: Vec<AddressRange>,
    taken: Vec<AddressRange>,
    /// It has ended, or called exec.
    gone: bool,
}

impl Child {
    /// Nothing is given of what is `wiped`.
    pub fn new(uffd: Uffd, wiped: Vec<AddressRange>) -> Self {
        Child { uffd, changes: Vec::new(), wiped, owed: Vec::new(), taken: Vec::new(), gone: false }
    }

    /// Does what was at an address when it was made show zeroes in it?
    pub fn is_wiped(&self, address: usize) -> bool {
        self.next_wiped(address).is_some_and(|range| range.start <= address)
    }

    /// How many of these bytes come before the next that is.
    fn before_wiped(&self, address: usize, bytes: usize) -> usize {
        let next = self.next_wiped(address);
        next.map_or(bytes, |next| bytes.min(next.start.saturating_sub(address)))
    }

    fn next_wiped(&self, address: usize) -> Option<&AddressRange> {
        self.wiped.get(self.wiped.partition_point(|range| range.end <= address))
    }

    /// Gives it the `pages` pages that were at `address` when it was made; at `source` is what they
    /// hold. Its own children since are added to `born`. False when one could not be given, and
    /// must not be taken for a page of zeroes.
    ///
    /// # Safety
    /// At `source` are so many readable pages, which do not change meanwhile.
    pub unsafe fn give(&mut self, address: usize, source: usize, pages: u32, born: &mut Vec<Child>) -> bool {
        // SAFETY: the pages were missing in the child, as they were in its parent, and this is their content.
        self.settle(address, pages, born, &|uffd, at, offset, len| unsafe {
            uffd.copy(at, source + offset, len, CopyMode::empty())
        })
    }

    /// The `pages` pages that were at `address` are lost, as far as they were missing: their touch
    /// raises SIGBUS. False where the kernel cannot do that.
    pub fn poison(&mut self, address: usize, pages: u32, born: &mut Vec<Child>) -> bool {
        // SAFETY: the content is lost.
        self.settle(address, pages, born, &|uffd, at, _, len| unsafe { uffd.poison(at..at + len, false) })
    }

    /// Does something to missing pages, wherever they are by now: all that are left at once, while
    /// the child has changed nothing.
    fn settle(&mut self, address: usize, pages: u32, born: &mut Vec<Child>, act: Act<'_>) -> bool {
        let bytes = pages as usize * PAGE_SIZE;
        let (mut done, mut tries) = (0, 0);
        while done < bytes && !self.gone {
            let kept = self.before_wiped(address + done, bytes - done);
            let Some(at) = self.place(address + done).filter(|_| kept > 0) else {
                done += PAGE_SIZE;
                continue;
            };
            let len = if self.changes.is_empty() { kept } else { PAGE_SIZE };
            let Err(Partial { done: some, errno }) = act(&self.uffd, at, done, len) else {
                done += len;
                continue;
            };
            done += some;
            match errno {
                Errno::AGAIN if some > 0 => {}
                Errno::AGAIN if tries == TRIES => return false,
                Errno::AGAIN => {
                    if !self.listen(born) && tries > 0 {
                        clock::sleep_ns(REST_NS);
                    }
                    tries += 1;
                }
                // It has one there, made after its birth, or shares its parent's.
                Errno::EXIST => {
                    let _ = self.uffd.wake(at..at + PAGE_SIZE);
                    done += PAGE_SIZE;
                }
                // Not its memory any more, or not all of it: page by page it is told.
                Errno::NOENT | Errno::INVAL if len > PAGE_SIZE => {
                    let pages = (bytes - done) / PAGE_SIZE;
                    let each = |n: usize| (address + done + n * PAGE_SIZE, done + n * PAGE_SIZE);
                    return (0..pages).map(each).all(|(address, offset)| {
                        self.settle(address, 1, born, &|uffd, at, _, len| act(uffd, at, offset, len))
                    });
                }
                Errno::NOENT | Errno::INVAL => done += PAGE_SIZE,
                Errno::SRCH => self.gone = true,
                _ => return false,
            }
        }
        true
    }

    fn place(&self, address: usize) -> Option<usize> {
        placed(&self.changes, address)
    }

    /// Reads what the child tells. False when that is nothing.
    fn listen(&mut self, born: &mut Vec<Child>) -> bool {
        self.read().map(|message| self.note(message, born)).is_some()
    }

    fn read(&mut self) -> Option<Message> {
        let mut message = [RawMsg::default(); 1];
        (self.uffd.read_messages(&mut message) == Ok(1)).then(|| message[0].decode())
    }

    /// What the child tells, a fault above all.
    pub fn hear(&mut self, born: &mut Vec<Child>) -> Heard {
        match self.read() {
            None => Heard::Nothing,
            Some(Message::Fault { address, wp, .. }) => {
                Heard::Touch { address: address / PAGE_SIZE * PAGE_SIZE, wp }
            }
            Some(message) => {
                self.note(message, born);
                Heard::Change
            }
        }
    }

    /// Its parent has moved this range, before it was made or after: before, if it has nothing of its
    /// parent's there.
    pub fn note_earlier_move(&mut self, from: AddressRange, to: usize) {
        let first = from.start..from.start + PAGE_SIZE;
        if self.uffd.write_protect(first, false, true) == Err(Errno::NOENT) {
            self.changes.push(Change::Moved { from, to });
        }
    }

    /// Has it ended, or called exec? Nobody protects what is at `address`.
    pub fn is_gone(&mut self, address: usize) -> bool {
        let asked = self.uffd.write_protect(address..address + PAGE_SIZE, false, true);
        self.gone |= asked == Err(Errno::SRCH);
        self.gone
    }

    /// The missing page at an address was never touched.
    pub fn give_zeroes(&mut self, address: usize) {
        // SAFETY: that is what the caller says. Where it fails the child touches it again.
        let done = unsafe { self.uffd.zeropage(address..address + PAGE_SIZE, false) };
        if done.is_err() {
            let _ = self.uffd.wake(address..address + PAGE_SIZE);
        }
    }

    /// Stores to the page at an address go on.
    pub fn unprotect(&mut self, address: usize) {
        let _ = self.uffd.write_protect(address..address + PAGE_SIZE, false, false);
    }

    fn note(&mut self, message: Message, born: &mut Vec<Child>) {
        match message {
            Message::Remove { start, end } => self.changes.push(Change::Dropped(start..end)),
            Message::Unmap { start, end } => self.note_end(&(start..end)),
            Message::Remap { from, to, len } if from != to => {
                let target = to..to + len;
                let common = |owed: &AddressRange| owed.start.max(to)..owed.end.min(target.end);
                self.taken.extend(self.owed.iter().map(common).filter(|part| !part.is_empty()));
                cut_out(&mut self.owed, &target);
                self.owed.push(from..from + len);
                self.changes.push(Change::Moved { from: from..from + len, to });
            }
            Message::Fork { fd } => {
                let changes = self.changes.clone();
                let (wiped, owed, taken) = (self.wiped.clone(), self.owed.clone(), self.taken.clone());
                born.push(Child { uffd: Uffd::received(fd), changes, wiped, owed, taken, gone: false });
            }
            _ => {}
        }
    }

    /// It told that a range is unmapped.
    fn note_end(&mut self, range: &AddressRange) {
        let mut dropped = Vec::from([range.clone()]);
        self.taken.iter().for_each(|part| cut_out(&mut dropped, part));
        cut_out(&mut self.taken, range);
        cut_out(&mut self.owed, range);
        self.changes.extend(dropped.into_iter().map(Change::Dropped));
    }

    /// Keeps the descriptor open for ever: a child that waits is better than one that reads zeroes.
    pub fn hold(self) {
        core::mem::forget(self);
    }
}

/// Where the page is that was at `address` before these changes; None when the child has dropped it.
fn placed(changes: &[Change], address: usize) -> Option<usize> {
    changes.iter().try_fold(address, |at, change| match change {
        Change::Dropped(range) => (!range.contains(&at)).then_some(at),
        Change::Moved { from, to } if from.contains(&at) => Some(at - from.start + to),
        Change::Moved { from, to } => (!(*to..*to + from.len()).contains(&at)).then_some(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_where_the_child_has_moved_it() {
        let moved = Change::Moved { from: 0x1000..0x3000, to: 0x9000 };
        assert_eq!(placed(&[], 0x2000), Some(0x2000));
        assert_eq!(placed(core::slice::from_ref(&moved), 0x2000), Some(0xa000));
        assert_eq!(placed(core::slice::from_ref(&moved), 0x3000), Some(0x3000), "beside it");
        assert_eq!(placed(&[moved], 0x9000), None, "replaced by what was moved there");
    }

    #[test]
    fn a_page_that_the_child_has_dropped_is_not_wanted_wherever_it_was_then() {
        let changes = [Change::Moved { from: 0x1000..0x3000, to: 0x9000 }, Change::Dropped(0xa000..0xb000)];
        assert_eq!(placed(&changes, 0x1000), Some(0x9000));
        assert_eq!(placed(&changes, 0x2000), None);
        assert_eq!(placed(&changes, 0xa000), None);
    }
}
