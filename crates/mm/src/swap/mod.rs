//! Swap areas: slots, their reference counts and owners, and where the next page goes.
//!
//! `areas` has all of them and decides which one is next, `area` is one, `table` its slots,
//! `allocator` the contract of those who choose among the free ones. Slots are handed out in
//! clusters of 512. Under [`Placement::ByAddress`] a window of memory has a home among them and a
//! page goes to the slot at its own offset, so that neighbours in memory are neighbours on disk.
//! Under [`Placement::InOrder`] slots follow the order of eviction and fill holes, as the kernel's
//! do. [`extents`] says where an area's pages lie on a device, [`header`] what its first page looks
//! like.

mod allocator;
mod area;
mod areas;
mod by_address;
mod claim;
mod clusters;
pub mod cost;
pub mod extents;
pub mod header;
mod next_fit;
mod ssd;
mod table;

pub(crate) use areas::Areas;

use crate::page::NONE;
use crate::types::{CHUNK_PAGES, Slot};

/// Slots in a cluster: what can be given back to a backing.
const CLUSTER: u32 = CHUNK_PAGES as u32;
/// Slots in a window: areas of one priority take turns after so many.
pub const WINDOW: u32 = 128;
/// Windows in a cluster.
const WINDOWS: usize = (CLUSTER / WINDOW) as usize;

/// Which slot an evicted page gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Neighbours in memory become neighbours on disk.
    ByAddress,
    /// Neighbours in time become neighbours on disk, as today's kernel has it.
    InOrder,
    /// The same as kernels from 3.12 on had it on SSDs.
    Ssd,
    /// The same as kernels of 2012 had it.
    NextFit,
}

/// A swap area, by its number in order of adding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct AreaId(pub u8);

/// What a shell decides of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AreaConfig {
    /// Its slots, the header (slot 0) included. Each that was ever in a cluster in use takes three
    /// bits; four bytes more where pages lie among strangers, from the first one on that does.
    pub slots: u32,
    /// Areas of a higher priority are filled first; those of one priority take turns.
    pub priority: i16,
    /// Clusters that nobody uses any more are given back ([`crate::Action::Discard`]).
    pub discards: bool,
    /// Others use what it may use: so many slots are claimed at a time before they are used
    /// ([`crate::Action::Claim`]). Then clusters are given back. 0: it has its slots for itself.
    pub claims: u32,
}

/// Where the bytes of a page are that has no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backing(u32);

const _: () = assert!(size_of::<Backing>() == 4);

impl Backing {
    /// Nowhere: it reads as zeroes. No page is ever in slot 0, the header of the first area.
    pub const NOTHING: Backing = Backing(0);

    /// In a slot of some area.
    ///
    /// # Panics
    /// With slot 0.
    #[must_use]
    pub fn in_slot(slot: Slot) -> Self {
        assert!(slot.0 != 0, "a header backs no page");
        Backing(slot.0)
    }

    /// The slot, if it is in one.
    #[must_use]
    #[inline]
    pub fn slot(self) -> Option<Slot> {
        (self.0 != 0).then_some(Slot(self.0))
    }
}

/// The homes of 2 MiB of memory among the slots of all areas, by window: the first slot, or
/// [`NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Homes([u32; WINDOWS]);

impl Homes {
    /// No home yet.
    pub const NONE: Homes = Homes([NONE; WINDOWS]);
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
