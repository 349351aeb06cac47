//! What the kernel does today: per-region for anonymous memory, cluster mode otherwise (specification 2.1).
//!
//! One rotating swap device switches the per-region mode off for everybody; shared memory never has it.
//! From a device that answers within the call private memory is read page by page (1.6).

use super::cluster::{Cluster, Distrust, Variant};
use super::vma::{PerRegion, Word};
use super::{Plan, SwapIn, Touch};
use crate::types::{RegionKind, Vpn};

/// The policy.
#[derive(Clone, Debug)]
pub struct Linux {
    /// `/sys/kernel/mm/swap/vma_ra_enabled`.
    pub vma_ra_enabled: bool,
    /// Is any swap device in use a rotating one (or not known not to be)?
    pub rotating: bool,
    /// Does the swap device answer within the call?
    pub synchronous: bool,
    cluster: Cluster,
    per_region: PerRegion,
}

/// What a region remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    word: Word,
    distrust: Distrust,
}

impl Linux {
    /// Both detectors in their initial state.
    #[must_use]
    pub fn new(page_cluster: u8, vma_ra_enabled: bool, rotating: bool, synchronous: bool) -> Self {
        Linux {
            vma_ra_enabled,
            rotating,
            synchronous,
            cluster: Cluster::new(Variant::Merged, page_cluster),
            per_region: PerRegion { page_cluster },
        }
    }

    /// Sets log2 of the largest window of both modes.
    pub fn set_page_cluster(&mut self, page_cluster: u8) {
        self.cluster.page_cluster = page_cluster;
        self.per_region.page_cluster = page_cluster;
    }

    fn is_per_region(&self, kind: RegionKind) -> bool {
        kind == RegionKind::Anon && self.vma_ra_enabled && !self.rotating
    }
}

impl SwapIn for Linux {
    type Region = Region;

    fn cached(&mut self, region: &mut Region, touch: &Touch) -> Option<Plan> {
        if self.is_per_region(touch.kind) {
            self.per_region.cached(&mut region.word, touch)
        } else {
            self.cluster.cached(&mut region.distrust, touch)
        }
    }

    fn miss(&mut self, region: &mut Region, touch: &Touch) -> Option<Plan> {
        if self.synchronous && touch.kind == RegionKind::Anon {
            return None;
        }
        if self.is_per_region(touch.kind) {
            self.per_region.miss(&mut region.word, touch)
        } else {
            self.cluster.miss(&mut region.distrust, touch)
        }
    }

    fn unused(&mut self, _: &mut Region, _: Vpn) {}
}
