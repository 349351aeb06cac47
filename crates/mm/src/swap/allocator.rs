//! The contract of slot allocators: which free slot of an area an evicted page gets.
//!
//! The caller guarantees that the area is not full, that it marks what was chosen as taken before
//! it asks again, and that it reports each slot that became free. The allocator must answer with a
//! free slot whenever there is one, and never with another. It may let the table grow. There is one
//! file for each: `by_address` (ours), `clusters` (the kernel's today), `ssd` (3.12 to 4.x) and
//! `next_fit` (2012).

use super::Placement;
use super::by_address::ByAddress;
use super::clusters::Clusters;
use super::next_fit::NextFit;
use super::ssd::Ssd;
use super::table::SlotTable;

/// See the head of the file.
pub(super) trait SlotAllocator {
    /// Any free slot, and how many of those behind it, up to `count` in all, are free and in the
    /// same window.
    fn choose(&mut self, table: &mut SlotTable, count: u32) -> Option<(u32, u32)>;

    /// So many windows side by side, at a multiple of their number, that nobody uses: they are the
    /// home of a piece of memory until [`SlotAllocator::disown`]. None: there are none, or slots do
    /// not go by address.
    fn home(&mut self, _table: &mut SlotTable, _windows: u32) -> Option<u32> {
        None
    }

    /// A slot became free.
    fn freed(&mut self, _table: &SlotTable, _slot: u32) {}

    /// The memory that had its home in this window is gone.
    fn disown(&mut self, _table: &SlotTable, _window: u32) {}
}

/// One of them. With a tag of its own: which one it is is asked with each run.
#[repr(u8)]
pub(super) enum Allocator {
    ByAddress(ByAddress),
    Clusters(Clusters),
    Ssd(Ssd),
    NextFit(NextFit),
}

impl Allocator {
    pub fn new(placement: Placement) -> Self {
        match placement {
            Placement::ByAddress => Allocator::ByAddress(ByAddress::default()),
            Placement::InOrder => Allocator::Clusters(Clusters::new()),
            Placement::Ssd => Allocator::Ssd(Ssd::default()),
            Placement::NextFit => Allocator::NextFit(NextFit::new()),
        }
    }

    /// A slot was taken.
    #[inline]
    pub fn taken(&mut self, table: &SlotTable, slot: u32) {
        if let Allocator::Clusters(allocator) = self {
            allocator.taken(table, slot);
        }
    }

    /// A slot became free. Ours, which is told of every run, is spared the way through the trait.
    #[inline]
    pub fn freed(&mut self, table: &SlotTable, slot: u32) {
        match self {
            Allocator::ByAddress(allocator) => allocator.freed(table, slot),
            _ => self.get().freed(table, slot),
        }
    }

    pub fn get(&mut self) -> &mut dyn SlotAllocator {
        match self {
            Allocator::ByAddress(allocator) => allocator,
            Allocator::Clusters(allocator) => allocator,
            Allocator::Ssd(allocator) => allocator,
            Allocator::NextFit(allocator) => allocator,
        }
    }
}
