//! What transfers of pages remember from one try to the next: how far a call may reach, and whether
//! a dear second way is worth it.

use overspill_sys::{Errno, PAGE_SIZE, clock};

/// How it goes with pages that are refused because another process shares them, or shared them.
/// Nobody tells them from pages that a device uses, which stay.
#[derive(Default)]
pub(super) struct Sharing {
    /// There was a fork.
    pub begun: bool,
    /// What is in view may be protected, so that its copies are told.
    pub is_guarded: bool,
    pub tries: Tries,
}

impl Sharing {
    pub fn begin(&mut self) {
        *self = Sharing { begun: true, tries: Tries::default(), ..*self };
    }

    /// Is it worth a try?
    pub fn may_help(&mut self) -> bool {
        self.begun && self.tries.may_help()
    }
}

/// A dear second way for pages that the first one refuses: after a try in vain the next ones are
/// left out, twice as many each time.
#[derive(Default)]
pub(crate) struct Tries {
    in_vain: u32,
    left_out: u32,
}

impl Tries {
    /// As many refusals are passed over between two tries, at most.
    const LEFT_OUT_MAX: u32 = 64;

    /// Is it worth a try?
    pub fn may_help(&mut self) -> bool {
        let may = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        may
    }

    pub fn note(&mut self, helped: bool) {
        self.in_vain = if helped { 0 } else { (self.in_vain * 2 + 1).min(Self::LEFT_OUT_MAX) };
        self.left_out = self.in_vain;
    }
}

/// So long, and so often, the kernel may refuse to put a page into view without a reason that passes.
const REFUSED_NS: u64 = 10_000_000_000;
const REFUSED_TIMES: u32 = 1000;
/// After so long without a refusal the next one is the first: nobody waited for the page.
const RESTED_NS: u64 = 1_000_000_000;

/// The page that the kernel refuses to have put into view, for another reason than that the address space
/// is changing. Who waits there touches it again, and it is put there again.
///
/// *The story:* that was so for ever where the kernel knew no way to put it there, with a processor busy:
/// see `is_of_zeroes` in the agent.
#[derive(Default)]
pub(super) struct Refused {
    address: usize,
    since: u64,
    last: u64,
    times: u32,
}

impl Refused {
    /// Ends the program where it goes on for too long: its threads wait for the page, and for nothing else.
    pub fn note(&mut self, address: usize, errno: Errno) {
        self.note_at(address, errno, clock::monotonic_ns());
    }

    fn note_at(&mut self, address: usize, errno: Errno, now: u64) {
        if self.address != address || now > self.last + RESTED_NS {
            *self = Refused { address, since: now, last: now, times: 0 };
        }
        self.last = now;
        self.times += 1;
        let is_for_ever = self.times > REFUSED_TIMES && now > self.since + REFUSED_NS;
        assert!(!is_for_ever, "the kernel puts no page at {address:#x}: {errno}");
    }

    /// Pages of a range have come.
    pub fn came(&mut self, first: usize, pages: u32) {
        if (first..first + pages as usize * PAGE_SIZE).contains(&self.address) {
            self.address = 0;
        }
    }
}

/// How far the next call of a transfer reaches. A managed range may consist of several mappings,
/// and a call that spans two of them fails as a whole: then it is tried shorter and shorter.
pub(super) struct Reach {
    pages: u32,
}

impl Reach {
    pub fn new(pages: u32) -> Self {
        Reach { pages }
    }

    /// Bytes of the next call when `left` pages are left.
    pub fn len(&self, left: u32) -> usize {
        self.pages.min(left) as usize * PAGE_SIZE
    }

    /// Halves the reach; false when a single page was tried.
    pub fn shorten(&mut self) -> bool {
        let may = self.pages > 1;
        self.pages = (self.pages / 2).max(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn refuse(refused: &mut Refused, times: std::ops::Range<u64>) {
        times.for_each(|n| refused.note_at(PAGE_SIZE, Errno::INVAL, n * 10 * MS));
    }

    #[test]
    #[should_panic(expected = "the kernel puts no page at 0x1000")]
    fn a_page_that_never_comes_ends_the_program() {
        refuse(&mut Refused::default(), 0..1010);
    }

    #[test]
    fn a_page_that_comes_at_last_does_not() {
        let mut refused = Refused::default();
        refuse(&mut refused, 0..990);
        refused.came(0, 2);
        refuse(&mut refused, 990..1980);
        // Nor one that nobody has waited for in between, or is another one.
        refuse(&mut refused, 2100..3090);
        refused.note_at(3 * PAGE_SIZE, Errno::INVAL, 30_900 * MS);
        refuse(&mut refused, 3091..4080);
    }
}
