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
//! frame's page was taken out of view, or just before: what was lent was lent before. An io_uring,
//! a socket that may lend, or a pipe into which anything may have been put (see [`Pipes`]) settles
//! it for good: from a pipe pages may be passed on, and nothing tells when the last one is back.
//!
//! What this cannot see, of calls by the bare instruction: a descriptor that was opened and closed
//! between two looks while what it lent is still out, an io_uring that has no descriptor
//! (IORING_SETUP_REGISTERED_FD_ONLY), and threads with a descriptor table of their own.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::SeqCst;

use overspill_mm::types::Nanos;
use overspill_sys::descriptors::{Descriptor, Kind, Table};
use overspill_sys::{Errno, clock};

use crate::pipes::Pipes;

/// Two looks lie so far apart, and farther where a look takes long. (Where pages go one by one
/// there were looks as often as every third fault.) In less time nobody opens a descriptor, lends a
/// page by it, and loses the page to swap.
const LOOK_NS: Nanos = 2_000_000;
const LOOK_SHARE: u64 = 100;
/// Sockets are asked so often, since that takes a descriptor of each for an instant.
const SOCKETS_NS: Nanos = 500_000_000;
/// An io_uring is looked for so often where something may be lent, and nobody looks for anything else.
const RINGS_NS: Nanos = 500_000_000;

/// What is known of the program's lending.
#[derive(Default)]
pub(crate) struct Lending {
    /// Set before the program first lends a page, or when it prepares to; None where nobody manages
    /// a program.
    lent: Option<&'static AtomicBool>,
    table: Option<Table>,
    pipes: Pipes,
    /// Every page taken out before this time was out when the descriptors were last looked at, and
    /// nothing could be lent.
    cleared: u64,
    /// The next look, and the next question to sockets.
    next_look: Nanos,
    next_sockets: Nanos,
    /// Set before the program makes an io_uring by a call that is seen; or one was found. The next look
    /// for one.
    rings: Option<&'static AtomicBool>,
    has_ring: bool,
    next_rings: Nanos,
}

impl Lending {
    /// `lent` is set before the program lends a page by a call that is seen; `pipes` are those that
    /// it began with.
    pub fn watch(&mut self, lent: &'static AtomicBool, pipes: Pipes) {
        (self.lent, self.pipes) = (Some(lent), pipes);
    }

    /// `rings` is set before the program makes an io_uring by a call that is seen.
    pub fn watch_rings(&mut self, rings: &'static AtomicBool) {
        self.rings = Some(rings);
    }

    /// Has the program an io_uring, or had it one, as far as that was found?
    pub fn has_ring(&mut self, now: Nanos) -> bool {
        self.has_ring |= self.rings.is_some_and(|rings| rings.load(SeqCst));
        // Else a look at descriptors would have found it, before a frame was used again.
        if !self.has_ring && !self.allows() && now >= self.next_rings {
            self.next_rings = now + RINGS_NS;
            self.has_ring = self.finds_ring();
        }
        self.has_ring
    }

    fn finds_ring(&mut self) -> bool {
        let mut has_ring = false;
        let mut look = |table: &Table| {
            table.for_each(|descriptor| {
                has_ring |= descriptor.kind == Kind::Uring;
                !has_ring
            })
        };
        // Where descriptors cannot be seen there may be one.
        Table::open().and_then(|table| look(&table)).is_err() || has_ring
    }

    /// May frames be used again that are given back at once where they may not? Without a look.
    pub fn allows(&self) -> bool {
        self.lent.is_none_or(|lent| !lent.load(SeqCst))
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
        let looks = now >= self.next_look;
        if self.pipes.have_changed() || looks && self.finds_lender(now) {
            lent.store(true, SeqCst);
            self.pipes = Pipes::default(); // a user has few watches
            return false;
        }
        if looks {
            self.cleared = takes;
        }
        true
    }

    /// Is there a descriptor by which pages may have been lent?
    fn finds_lender(&mut self, now: Nanos) -> bool {
        let sockets = now >= self.next_sockets;
        if sockets {
            self.next_sockets = now + SOCKETS_NS;
        }
        let found = self.look_at_table(sockets).or_else(|_| {
            // The thread whose table it was has ended: another one's.
            self.table = None;
            self.look_at_table(sockets)
        });
        // Without any descriptor there is nothing to lend by. Where they cannot be seen there may be.
        let found = found.unwrap_or_else(|errno| errno != Errno::NOENT);
        let ended = clock::monotonic_ns();
        self.next_look = ended + LOOK_NS.max((ended - now) * LOOK_SHARE);
        found
    }

    fn look_at_table(&mut self, sockets: bool) -> Result<bool, Errno> {
        let Lending { table, pipes, has_ring, .. } = self;
        let table = match table {
            Some(table) => table,
            None => table.insert(Table::open()?),
        };
        let mut is_lender = Ok(false);
        table.for_each(|Descriptor { number, kind }| {
            *has_ring |= kind == Kind::Uring;
            is_lender = match kind {
                Kind::Uring | Kind::Unknown => Ok(true),
                Kind::Socket => socket_may_lend(sockets.then(|| table.lends(number))),
                end => Ok(pipes.may_lend(end)),
            };
            is_lender != Ok(false)
        })?;
        is_lender
    }
}

/// What a socket said, if it was asked. Whoever cannot be asked may lend. ESRCH: the table is none
/// any more.
fn socket_may_lend(said: Option<Result<bool, Errno>>) -> Result<bool, Errno> {
    match said {
        None | Some(Err(Errno::BADF)) => Ok(false), // not asked, or closed meanwhile
        Some(Err(Errno::SRCH)) => Err(Errno::SRCH),
        Some(said) => Ok(said.unwrap_or(true)),
    }
}
