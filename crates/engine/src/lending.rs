//! Pages that the program lends to the kernel by reference, and what that means for frames.
//!
//! Direct I/O and registered buffers pin the pages they use, and UFFDIO_MOVE leaves pinned pages
//! alone. What splices pages into pipes (vmsplice, tee) or sends them without copying
//! (MSG_ZEROCOPY, io_uring's SEND_ZC) only counts a reference, which nothing in user space can see:
//! the page would be moved out, and its frame, still read by the borrower, would be filled with
//! something else. So a frame that held a page of the program is used again only if nothing can
//! have been lent; else it is given back to the kernel, and the borrower keeps what it was lent.
//!
//! Whoever stands before libc's functions says when the program calls one of those
//! ([`Lending::watch`]). That does not see what is called by the bare instruction. So before a
//! frame is used again the program's descriptors are looked at, unless that was done since the
//! frame's page was taken out of view, or just before: what was lent was lent before. An io_uring
//! or a socket that may lend settles it for good, a pipe to somebody else that is full for as long
//! as it is.
//!
//! What this cannot see, of calls by the bare instruction: a descriptor that was opened and closed
//! between two looks while what it lent is still out, an io_uring that has no descriptor
//! (IORING_SETUP_REGISTERED_FD_ONLY), vmsplice into a pipe that is not full or that the program
//! itself reads from (nothing tells what is in it without the pipe's lock, which may be held by a
//! thread that waits for this one), and threads with a descriptor table of their own.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::SeqCst;

use alloc::vec::Vec;

use overspill_mm::types::Nanos;
use overspill_sys::descriptors::{Descriptor, Kind, Table};
use overspill_sys::{Errno, clock};

/// Two looks lie so far apart, and farther where a look takes long. (Where pages go one by one
/// there were looks as often as every third fault.) In less time nobody opens a descriptor, lends a
/// page by it, and loses the page to swap.
const LOOK_NS: Nanos = 2_000_000;
const LOOK_SHARE: u64 = 100;
/// Sockets are asked so often, since that takes a descriptor of each for an instant.
const SOCKETS_NS: Nanos = 500_000_000;
/// A pipe that was full is asked again after this.
const PIPES_NS: Nanos = 2_000_000;

/// What is known of the program's lending.
#[derive(Default)]
pub(crate) struct Lending {
    /// Set before the program first lends a page, or when it prepares to; None where nobody manages
    /// a program.
    lent: Option<&'static AtomicBool>,
    table: Option<Table>,
    /// Pipes that the program reads from, and those that it writes to with a descriptor of each:
    /// room for a look.
    read: Vec<u64>,
    written: Vec<(u64, u32)>,
    /// Every page taken out before this time was out when the descriptors were last looked at, and
    /// nothing could be lent.
    cleared: u64,
    /// A pipe was full: nothing is cleared before this.
    held_until: Nanos,
    /// The next look, and the next question to sockets.
    next_look: Nanos,
    next_sockets: Nanos,
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A pipe that is full.
    Held,
    /// A descriptor by which pages can be lent at any time.
    Lender,
}

impl Lending {
    /// `lent` is set before the program lends a page by a call that is seen.
    pub fn watch(&mut self, lent: &'static AtomicBool) {
        self.lent = Some(lent);
    }

    /// May frames be used again that are given back at once where they may not? Without a look.
    pub fn allows(&self) -> bool {
        self.lent.is_none_or(|lent| !lent.load(SeqCst)) && self.held_until == 0
    }

    /// May a frame be used again whose page was taken out at time `taken`, now being `takes`? To be
    /// asked when it is about to be.
    pub fn clears(&mut self, taken: u64, takes: u64) -> bool {
        let Some(lent) = self.lent else { return true };
        if lent.load(SeqCst) {
            return false;
        }
        if taken <= self.cleared {
            return true;
        }
        let now = clock::monotonic_ns();
        if now < self.held_until {
            return false;
        }
        if now < self.next_look {
            return true;
        }
        let found = self.look(now);
        self.held_until = if found == Found::Held { now + PIPES_NS } else { 0 };
        match found {
            Found::Nothing => self.cleared = takes,
            Found::Held => {}
            Found::Lender => lent.store(true, SeqCst),
        }
        found == Found::Nothing
    }

    fn look(&mut self, now: Nanos) -> Found {
        let sockets = now >= self.next_sockets;
        if sockets {
            self.next_sockets = now + SOCKETS_NS;
        }
        let found = self.look_at_table(sockets).unwrap_or_else(|_| {
            // The thread whose table it was has ended: another one's. Without any descriptor there
            // is nothing to lend by.
            self.table = None;
            self.look_at_table(sockets).unwrap_or(Found::Nothing)
        });
        let ended = clock::monotonic_ns();
        self.next_look = ended + LOOK_NS.max((ended - now) * LOOK_SHARE);
        found
    }

    /// What can be lent by the descriptors that there are.
    fn look_at_table(&mut self, sockets: bool) -> Result<Found, Errno> {
        let Lending { table, read, written, .. } = self;
        let table = match table {
            Some(table) => table,
            None => table.insert(Table::open()?),
        };
        read.clear();
        written.clear();
        let mut is_lender = false;
        table.for_each(|Descriptor { number, kind }| {
            match kind {
                Kind::Uring => is_lender = true,
                Kind::Socket => is_lender |= sockets && table.lends(number) == Some(true),
                Kind::PipeReader(inode) => read.push(inode),
                Kind::PipeWriter(inode) => written.push((inode, number)),
                Kind::Userfaultfd | Kind::Other => {}
            }
            is_lender
        })?;
        let is_held =
            |&(inode, number): &(u64, u32)| !read.contains(&inode) && table.is_full(number) != Some(false);
        Ok(if is_lender {
            Found::Lender
        } else if written.iter().any(is_held) {
            Found::Held
        } else {
            Found::Nothing
        })
    }
}
