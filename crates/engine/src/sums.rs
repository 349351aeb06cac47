//! Checksums of slots: what comes back from an area must be what was written there last, or nobody
//! sees it.
//!
//! A page's sum is kept in memory, by slot, and mixed with the slot's number; so bytes that
//! changed, that are older, that were written in part only, or that are another slot's do not agree
//! with it. It is the hash of the fingerprints (two contents agree with a probability below 2^-62),
//! and taken from there where a page has one already. A read that does not agree is a read that
//! failed ([`Errno::BADMSG`]): it is repeated once, alone, and then the page is lost, with SIGBUS
//! for whoever touches it.

use alloc::vec::Vec;

use overspill_mm::IoId;
use overspill_mm::Run;
use overspill_sys::Errno;

/// The largest read, in pages.
const READ_MAX: usize = 256;

/// A read that is under way.
#[derive(Clone, Copy)]
struct Reading {
    run: Run,
    slot: u32,
    /// Pages that the device is not asked for: they were unpacked.
    unpacked: [u64; READ_MAX / 64],
}

/// The sums of slots.
pub(crate) struct Sums {
    is_on: bool,
    /// 0: nothing in the area stands for a page.
    of_slot: Vec<u64>,
    /// By [`IoId`].
    reading: Vec<Option<Reading>>,
}

impl Sums {
    pub fn new(is_on: bool) -> Self {
        Sums { is_on, of_slot: Vec::new(), reading: Vec::new() }
    }

    /// Are there any?
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// A page whose content has that hash is on its way to the slot.
    pub fn written(&mut self, slot: u32, hash: u64) {
        *self.at(slot) = of(slot, hash);
    }

    /// What the area has in the slot does not stand for a page any more.
    pub fn forget(&mut self, slot: u32) {
        if self.is_on {
            *self.at(slot) = 0;
        }
    }

    /// Is a content with that hash what was written to the slot?
    pub fn agrees(&self, slot: u32, hash: u64) -> bool {
        self.of_slot.get(slot as usize) == Some(&of(slot, hash))
    }

    /// A read of `run` from `slot` on begins; `unpacked` says which pages are there already.
    pub fn read_begins(&mut self, io: IoId, run: Run, slot: u32, unpacked: impl Fn(u32) -> bool) {
        if !self.is_on {
            return;
        }
        assert!(run.count as usize <= READ_MAX, "no read is larger");
        let mut reading = Reading { run, slot, unpacked: [0; READ_MAX / 64] };
        for n in (0..run.count).filter(|&n| unpacked(n)) {
            reading.unpacked[n as usize / 64] |= 1 << (n % 64);
        }
        let index = io.0 as usize;
        if index >= self.reading.len() {
            self.reading.resize(index + 1, None);
        }
        assert!(self.reading[index].is_none(), "a request ends before its number begins another");
        self.reading[index] = Some(reading);
    }

    /// It has ended: is each page what was written? `hash` is that of the n-th page's frame.
    pub fn read_ends(
        &mut self,
        io: IoId,
        outcome: Result<(), Errno>,
        hash: impl Fn(Run, u32) -> u64,
    ) -> Result<(), Errno> {
        let Some(Reading { run, slot, unpacked }) =
            self.reading.get_mut(io.0 as usize).and_then(Option::take)
        else {
            return outcome;
        };
        outcome?;
        for n in 0..run.count {
            let is_unpacked = unpacked[n as usize / 64] >> (n % 64) & 1 != 0;
            if !is_unpacked && !self.agrees(slot + n, hash(run, n)) {
                return Err(Errno::BADMSG);
            }
        }
        Ok(())
    }

    /// The table grows with use.
    fn at(&mut self, slot: u32) -> &mut u64 {
        let index = slot as usize;
        if index >= self.of_slot.len() {
            self.of_slot.resize((index + 1).next_multiple_of(512), 0);
        }
        &mut self.of_slot[index]
    }
}

/// The hash with the slot's identity; never 0.
fn of(slot: u32, hash: u64) -> u64 {
    let identity = u64::from(slot).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ identity.rotate_left(31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_mm::types::PageId;

    const OK: Result<(), Errno> = Ok(());
    const BAD: Result<(), Errno> = Err(Errno::BADMSG);

    fn run(count: u32) -> Run {
        Run { first: PageId(512), count }
    }

    #[test]
    fn what_was_written_last_there_is_right_and_nothing_else() {
        let mut sums = Sums::new(true);
        let read = |sums: &mut Sums, slot, hashes: &[u64]| {
            sums.read_begins(IoId(3), run(hashes.len() as u32), slot, |_| false);
            sums.read_ends(IoId(3), OK, |_, n| hashes[n as usize])
        };
        assert_eq!(read(&mut sums, 7, &[70]), BAD, "nothing was written there");
        sums.written(7, 70);
        sums.written(8, 80);
        assert_eq!(read(&mut sums, 7, &[70, 80]), OK);
        assert_eq!(read(&mut sums, 7, &[70, 81]), BAD, "wrong bytes");
        assert_eq!(read(&mut sums, 7, &[80]), BAD, "another slot's bytes");
        sums.written(7, 71);
        assert_eq!(read(&mut sums, 7, &[70]), BAD, "old bytes");
        assert_eq!(read(&mut sums, 7, &[71]), OK);
        sums.forget(7);
        assert_eq!(read(&mut sums, 7, &[71]), BAD, "the page is elsewhere");
        // Two slots with the same content have not the same sum.
        sums.written(9, 80);
        assert_ne!(sums.of_slot[8], sums.of_slot[9]);
    }

    #[test]
    fn what_was_unpacked_and_what_failed_is_not_looked_at() {
        let mut sums = Sums::new(true);
        sums.written(101, 5);
        sums.read_begins(IoId(0), run(100), 2, |n| n != 99);
        assert_eq!(sums.read_ends(IoId(0), OK, |_, n| if n == 99 { 5 } else { 6 }), OK);
        sums.read_begins(IoId(0), run(1), 101, |_| false);
        assert_eq!(sums.read_ends(IoId(0), Err(Errno::IO), |_, _| unreachable!()), Err(Errno::IO));
        let mut off = Sums::new(false);
        off.read_begins(IoId(0), run(1), 1, |_| false);
        assert_eq!(off.read_ends(IoId(0), OK, |_, _| unreachable!()), OK);
    }
}
