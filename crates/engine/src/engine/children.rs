//! Forks that nobody announced: the kernel tells of them, and the child gets what was out.
//!
//! Whatever form of fork a program uses, bare system calls included, the kernel reports it with a
//! userfaultfd for the child where the process may have that (CAP_SYS_PTRACE). Nothing can be put
//! into the parent's view between the fork and the reading of that event: the kernel refuses it.
//! Between the reading and the handling `memory` refuses it. So the books tell what the child
//! lacks. All of it is copied there before any other message is handled; meanwhile pages that come
//! into the parent's view go to the child first (`Engine::give`), since the parent may change them
//! as soon as it sees them.
//!
//! A fork that was announced finds everything in, and there is nothing to be given.

use alloc::vec::Vec;

use overspill_mm::State;
use overspill_mm::types::{PageId, Vpn};
use overspill_sys::clock;
use overspill_sys::fd::{self, Fd};
use overspill_sys::uffd::{Message, Uffd};

use super::Engine;
use crate::child::Child;
use crate::memory::{BOUNCE, REST_NS};
use crate::view::{PROGRAM, address};

/// How often it is looked whether all is told that was done before a fork: about a second.
const QUIET_TRIES: u32 = 20_000;

impl Engine {
    /// Does the kernel tell of every fork?
    #[must_use]
    pub fn hears_forks(&self) -> bool {
        self.view.program.hears_forks()
    }

    /// A child was made, which this descriptor serves. It has what was in view, and gets what was not.
    pub(super) fn forked(&mut self, fd: Fd) {
        self.view.program.handle_fork(true);
        self.view.program.note_sharing();
        let wiped = self.wiped();
        self.children.push(Child::new(Uffd::received(fd), wiped));
        self.finish_transfers();
        let is_exact = self.is_at_the_fork();
        if !(is_exact && self.hand_over()) {
            self.note_earlier_moves();
            self.give_all();
            self.tell_all_is_in();
        }
        self.children.clear();
        self.view.program.handle_fork(false);
        fd::keep_spare();
    }

    /// Are the books those of the fork's moment? No other change is under way, and none was told with it
    /// or after it. The fork itself is one until the thread that made it runs again.
    fn is_at_the_fork(&mut self) -> bool {
        self.hears_all() && !self.view.program.is_changed()
    }

    /// Waits until all is told that was done so far. False: that takes long, other threads change the
    /// address space all the time.
    pub(super) fn hears_all(&mut self) -> bool {
        for _ in 0..QUIET_TRIES {
            self.view.program.read_messages();
            if self.view.program.is_quiet() {
                return true;
            }
            clock::sleep_ns(REST_NS);
        }
        false
    }

    /// What has moved before the fork, and is told after it, is elsewhere in the child.
    ///
    /// *The story* (by reading): a thread moved a mapping while another one forked, and the kernel told of
    /// the fork first. The child was given what was out where it had been.
    fn note_earlier_moves(&mut self) {
        let (changes, children) = (self.view.program.changes(), &mut self.children);
        for change in changes {
            if let &Message::Remap { from, to, len } = change
                && from != to
            {
                children.iter_mut().for_each(|child| child.note_earlier_move(from..from + len, to));
            }
        }
    }

    fn give_all(&mut self) {
        let mut out: Vec<PageId> = self.mm.known_pages().filter(|&id| self.is_out(id)).collect();
        out.retain(|&id| !self.is_the_files(id) && !self.is_wiped(id));
        let mut rest = out.as_slice();
        while let Some(&first) = rest.first() {
            let given = match self.read_from_file(rest) {
                0 => {
                    self.give_one(first);
                    1
                }
                count => {
                    self.give_pages(self.mm.place(first).1, self.view.program.bounce_address(0), count);
                    count
                }
            };
            rest = &rest[given as usize..];
        }
        if !self.is_paused {
            self.poison_files();
        }
    }

    /// Is what the page holds to be had from its file? What was stored to keeps its place in the
    /// file until it is written to swap.
    fn is_the_files(&mut self, id: PageId) -> bool {
        let slot = self.mm.slot(id).filter(|slot| slot.is_file());
        slot.is_some_and(|slot| !self.transfers.files().of_slot(slot).is_stored(slot))
    }

    /// Do children get zeroes for the page?
    pub(super) fn is_wiped(&self, id: PageId) -> bool {
        let at = address(self.mm.place(id).1);
        !self.children.is_empty() && self.children.iter().all(|child| child.is_wiped(at))
    }

    /// A child that was announced maps its files by itself. Another one gets SIGBUS where it touches
    /// what was out, which must not show zeroes.
    fn poison_files(&mut self) {
        for part in self.file_parts() {
            let mut vpn = part.start;
            while vpn < part.end {
                let run = (vpn.0..part.end.0).take_while(|&vpn| !self.is_in_view(Vpn(vpn))).count() as u32;
                if run > 0 {
                    self.each_child(|child, born| child.poison(address(vpn), run, born));
                }
                vpn = vpn.offset(i64::from(run.max(1)));
            }
        }
    }

    pub(super) fn is_in_view(&self, vpn: Vpn) -> bool {
        self.mm.lookup(PROGRAM, vpn).is_some_and(|id| self.mm.state(id) == State::Mapped)
    }

    /// Reads the pages at the head of the list that lie one after another in memory and in the
    /// file, to the bounce pages, none of which is in use while nothing is under way. Returns how
    /// many; 0: the first does not come from the file, or cannot be read as it was written.
    fn read_from_file(&mut self, pages: &[PageId]) -> u32 {
        let place = |id: PageId| {
            let slot = self.mm.slot(id).filter(|_| self.mm.state(id) == State::Swapped)?;
            (!self.compressed.pool.tier.holds(slot.0)).then_some((self.mm.place(id).1.0, slot.0))
        };
        let Some((vpn, slot)) = place(pages[0]) else { return 0 };
        let follows = |&(n, &id): &(u32, &PageId)| place(id) == Some((vpn + u64::from(n), slot + n));
        let count = (0..BOUNCE).zip(pages).take_while(follows).count() as u32;
        if !self.transfers.read_now(slot, self.view.program.bounce_address(0), count) {
            return 0;
        }
        let (program, sums, prints) = (&mut self.view.program, &self.sums, &self.fingerprints);
        let is_right = |&n: &u32| program.fill_bounce(n, |page| sums.is_as_written(slot + n, page, prints));
        (0..count).take_while(is_right).count() as u32
    }

    /// Gives a page from its frame, from the pool, or alone from the file.
    pub(super) fn give_one(&mut self, id: PageId) {
        let (_, vpn) = self.mm.place(id);
        if self.mm.state(id) == State::Swapped {
            self.give_from_swap(id, vpn);
        } else {
            self.give_from_frame(id, vpn);
        }
    }

    /// Gives a page that is about to come into view to the children that lack it.
    pub(super) fn give(&mut self, first: PageId, count: u32) {
        if self.children.is_empty() {
            return;
        }
        for id in (0..count).map(|n| PageId(first.0 + n)) {
            let (space, vpn) = self.mm.place(id);
            if space == PROGRAM {
                self.give_from_frame(id, vpn);
            }
        }
    }

    fn give_from_frame(&mut self, id: PageId, vpn: Vpn) {
        let Some(frame) = self.staging.frame(id) else { return };
        self.give_pages(vpn, self.view.program.frame_address(frame), 1);
    }

    fn give_from_swap(&mut self, id: PageId, vpn: Vpn) {
        let Some(slot) = self.mm.slot(id) else { return };
        let pool = &self.compressed.pool;
        let unpacked = self.view.program.fill_loan(|page| pool.peek(slot.0, page));
        let source = self.view.program.loan_address();
        if unpacked || self.transfers.read_now(slot.0, source, 1) && self.loan_agrees(slot.0) {
            self.give_pages(vpn, source, 1);
        } else {
            self.each_child(|child, born| child.poison(address(vpn), 1, born));
        }
    }

    /// Is what was read into the loan page what was written to the slot?
    fn loan_agrees(&mut self, slot: u32) -> bool {
        let (sums, prints) = (&self.sums, &self.fingerprints);
        self.view.program.fill_loan(|page| sums.is_as_written(slot, page, prints))
    }

    pub(super) fn give_pages(&mut self, vpn: Vpn, source: usize, pages: u32) {
        // SAFETY: the source are frames, bounce pages or the loan page, which nobody writes to meanwhile.
        self.each_child(|child, born| unsafe { child.give(address(vpn), source, pages, born) });
    }

    /// Those born meanwhile lack the page, too.
    fn each_child(&mut self, mut give: impl FnMut(&mut Child, &mut Vec<Child>) -> bool) {
        let mut index = 0;
        while index < self.children.len() {
            let mut born = Vec::new();
            if give(&mut self.children[index], &mut born) {
                index += 1;
            } else {
                self.children.swap_remove(index).hold();
            }
            self.children.append(&mut born);
        }
    }
}
