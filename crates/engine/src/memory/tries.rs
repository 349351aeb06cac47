//! What transfers of pages remember from one try to the next: how far a call may reach, and whether
//! a dear second way is worth it.

use overspill_sys::PAGE_SIZE;

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
