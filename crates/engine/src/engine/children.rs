//! Forks that nobody announced: the kernel tells of them, and the child gets what was out.
//!
//! Whatever form of fork a program uses, bare system calls included, the kernel reports it with a userfaultfd for the child
//! where the process may have that (CAP_SYS_PTRACE). Nothing can be put into the parent's view between the fork and the
//! reading of that event: the kernel refuses it. So the books tell what the child lacks. All of it is copied there before
//! any other message is handled; meanwhile pages that come into the parent's view go to the child first (`Engine::give`),
//! since the parent may change them as soon as it sees them.
//!
//! A fork that was announced finds everything in, and there is nothing to be given.

use alloc::vec::Vec;

use overspill_mm::State;
use overspill_mm::types::{PageId, Vpn};
use overspill_sys::Fd;
use overspill_sys::uffd::Uffd;

use super::Engine;
use crate::child::Child;
use crate::view::{PROGRAM, address};

impl Engine {
    /// Does the kernel tell of every fork?
    #[must_use]
    pub fn hears_forks(&self) -> bool {
        self.view.program.hears_forks()
    }

    /// A child was made, which this descriptor serves. It has what was in view, and gets what was not.
    pub(super) fn forked(&mut self, fd: Fd) {
        self.view.program.note_sharing();
        self.children.push(Child::new(Uffd::received(fd)));
        self.finish_transfers();
        let is_out = |id: &PageId| {
            !matches!(self.mm.state(*id), State::Untouched | State::Mapped) && self.mm.place(*id).0 == PROGRAM
        };
        let out: Vec<PageId> = self.mm.known_pages().filter(is_out).collect();
        for id in out {
            let (_, vpn) = self.mm.place(id);
            if self.mm.state(id) == State::Swapped {
                self.give_from_swap(id, vpn);
            } else {
                self.give_from_frame(id, vpn);
            }
        }
        self.children.clear();
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
        self.give_page(vpn, self.view.program.frame_address(frame));
    }

    fn give_from_swap(&mut self, id: PageId, vpn: Vpn) {
        let Some(slot) = self.mm.slot(id) else { return };
        let pool = &self.compressed.pool;
        let unpacked = self.view.program.fill_scratch(|page| pool.peek(slot.0, page));
        let source = self.view.program.scratch_address();
        if unpacked || self.transfers.read_now(slot.0, source) {
            self.give_page(vpn, source);
        } else {
            self.each_child(|child, born| child.poison(address(vpn), born));
        }
    }

    fn give_page(&mut self, vpn: Vpn, source: usize) {
        // SAFETY: the source is a frame or the scratch page, which nobody writes to meanwhile.
        self.each_child(|child, born| unsafe { child.give(address(vpn), source, born) });
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
