//! Swap-in read-ahead: which pages to read beside the one that is wanted.
//!
//! `mm` calls a policy at exactly three moments: a fault finds its page in the swap cache
//! ([`SwapIn::cached`]), a fault finds it on swap ([`SwapIn::miss`]), and a page that was read
//! ahead is evicted before anybody touched it ([`SwapIn::unused`]); and it reports what it did
//! ([`SwapIn::issued`], [`SwapIn::cut_short`], [`SwapIn::swapped_out`]). The policy answers with a
//! [`Plan`]; it never does I/O, never looks at page states (`mm` skips what is present, empty or
//! already on its way) and keeps its state in itself (system wide) and in [`SwapIn::Region`] (one a
//! region).

pub mod adaptive;
pub mod cluster;
pub mod files;
pub mod linux;
pub mod none;
pub mod policy;
pub mod vma;
pub mod window;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod testing;

use crate::types::{Nanos, RegionKind, Slot, Vpn};

/// What a policy is told about one fault.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Virtual time of the fault.
    pub now: Nanos,
    /// The page that was touched.
    pub vpn: Vpn,
    /// Its slot on swap (`None`: the page is all zero or lives only in the swap cache so far).
    pub slot: Option<Slot>,
    /// Slots in the area in which `slot` lies (the header included): cluster mode reads no further.
    pub area_slots: u32,
    /// First page of the region.
    pub region_start: Vpn,
    /// One past the last page of the region.
    pub region_end: Vpn,
    /// What backs the region.
    pub kind: RegionKind,
    /// Reclaim's clock, modulo 2^32: it goes on with each page that leaves or becomes active.
    pub clock: u32,
    /// What that was when the page left; now, in `cached`.
    pub left_at: u32,
    /// The page was read ahead and this is its first touch (a hit). Always false in `miss`.
    pub read_ahead: bool,
    /// The page is the marker of a window: its touch is the moment to read the next one. Always
    /// false in `miss`.
    pub marker: bool,
    /// Frames that nobody needs.
    pub room: u32,
    /// The page is still on its way in: whoever touched it is faster than the device. Always false in `miss`.
    pub arriving: bool,
}

/// The numbers a window counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// Pages of the region: `start`, `start + stride`, ... (`count` of them). The policy has
    /// clipped them to the region.
    Pages {
        /// First page, in the order in which they will be wanted.
        start: Vpn,
        /// Distance from one to the next; 1 ascending, -1 descending, never 0.
        stride: i64,
        /// How many.
        count: u32,
    },
    /// Slots `start .. start + count` of the area in which the faulting page lies, whoever owns
    /// them (cluster mode).
    Slots {
        /// First slot.
        start: Slot,
        /// How many.
        count: u32,
    },
}

impl Window {
    /// How many pages or slots.
    #[must_use]
    pub fn count(&self) -> u32 {
        match *self {
            Window::Pages { count, .. } | Window::Slots { count, .. } => count,
        }
    }
}

/// When the pages of a window enter the program's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// They wait in the swap cache; each is mapped by its own first touch (a soft fault, and a counted hit).
    OnTouch,
    /// As [`Mapping::OnTouch`], and they are the first to leave: nobody asked for them.
    Filling,
    /// All but the marker are mapped as they arrive: no soft faults. Only the marker's touch is seen.
    Together,
    /// Like `Together`, but the marker and the next pages that are read stay unmapped, [`SAMPLES`]
    /// in all: their touches tell how much of the window is used.
    Sampled,
}

/// Pages of a window under [`Mapping::Sampled`] that are mapped by their own first touch.
pub const SAMPLES: usize = 4;

/// One read-ahead decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What to read.
    pub window: Window,
    /// The page whose first touch asks for the next window; it is left unmapped even under
    /// [`Mapping::Together`].
    ///
    /// Should that page not need reading, `mm` marks the next one of the window, in the order of
    /// use, that does, or where none does the last before it.
    pub marker: Option<Vpn>,
    /// When the pages enter the program's view.
    pub mapping: Mapping,
    /// Pages that the reader has left behind, where that is known: they may be the first to go.
    pub passed: Option<Window>,
    /// The faulting page is read before the rest, by itself: whoever waits for it does not wait for that.
    pub wanted_first: bool,
}

/// What `mm` asks of a swap-in read-ahead policy.
///
/// Contract: `miss` is called once for every fault that must read; its plan may or may not contain
/// the faulting page, which is read in any case. `cached` is called once for every fault answered
/// from the swap cache, and a plan it returns is read ahead without anybody waiting. Neither may
/// allocate without bound or loop over the window.
pub trait SwapIn {
    /// What the policy keeps for one region; `Default` is the state of a new region.
    type Region: Default;

    /// A fault found its page in the swap cache (or on its way in).
    fn cached(&mut self, region: &mut Self::Region, touch: &Touch) -> Option<Plan>;

    /// A fault found its page on swap. `None`: read the faulting page alone.
    fn miss(&mut self, region: &mut Self::Region, touch: &Touch) -> Option<Plan>;

    /// `vpn`, read ahead by this policy, was evicted before its first touch.
    fn unused(&mut self, region: &mut Self::Region, vpn: Vpn);

    /// What became of the plan this policy returned last: `read` pages, beside the one that
    /// faulted, were on swap and are being read. Called at once after the plan was carried out; a
    /// policy that bets needs to know its stake.
    fn issued(&mut self, _region: &mut Self::Region, _plan: &Plan, _read: u32) {}

    /// Frames ran out: only the first `covered` pages of the window, in the order of use, were
    /// dealt with. Called before `issued`; a policy that goes on where it stopped has to know where
    /// that was.
    fn cut_short(&mut self, _region: &mut Self::Region, _plan: &Plan, _covered: u32) {}

    /// `pages` pages of the region were written to swap.
    fn swapped_out(&mut self, _region: &mut Self::Region, _pages: u32) {}

    /// Do windows reach over small holes in a region? A kernel's end with their VMA.
    fn spans_holes(&self) -> bool {
        false
    }

    /// Does a window also mark those of its pages that were in the swap cache already? So 3.14 did,
    /// a defect (an old cached page could be hit again and again); since 4.14, and by default here,
    /// only pages that are newly read are marked.
    fn marks_cached(&self) -> bool {
        false
    }
}
