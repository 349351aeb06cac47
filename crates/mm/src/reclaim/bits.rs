//! The kernel's rules where the shell reports accessed bits (the simulator's kernels; an accessed
//! feed): the second look at the tail is `live`'s, since it needs the page; here is who becomes
//! inactive, and when ([`super::ageing`]), and which refaults are close.

use super::BATCH;
use super::ageing::{Ageing, is_low};
use super::policy::{Arrival, Away, Place, Policy, Scene, Stamp, Waited};
use crate::list::ListId;
use crate::types::RegionKind;

/// The rules of a memory cgroup, or (`early`) of a machine before 5.9.
#[derive(Debug)]
pub(crate) struct Bits {
    early: bool,
    scale: u32,
    ageing: Ageing,
}

impl Bits {
    pub fn new(early: bool, scale: u32) -> Bits {
        Bits { early, scale, ageing: Ageing::default() }
    }

    /// Lets the statistics be summed, if it is time.
    fn sum(&mut self, scene: &Scene) {
        self.ageing.look(scene.now, scene.inactive, scene.active, scene.activations);
    }
}

impl Policy for Bits {
    /// Before 5.9 private pages begin active.
    fn admit(&mut self, _: &Scene, arrival: Arrival) -> ListId {
        let is_active = self.early && arrival == Arrival::Touched(RegionKind::Anon);
        if is_active { ListId::Active } else { ListId::Inactive }
    }

    /// A refault in mid-write proves nothing to the kernel: it waits for the bits.
    fn touched(&mut self, _: &Scene, waited: Waited, _: Stamp) -> Place {
        if waited == Waited::Written { Place::INACTIVE } else { Place::ACTIVE }
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        if self.early {
            return Place::INACTIVE;
        }
        self.sum(scene);
        if away.evictions <= self.ageing.active() { Place::ACTIVE } else { Place::INACTIVE }
    }

    fn begin(&mut self, scene: &Scene, anew: bool) -> u32 {
        if self.early {
            return 0;
        }
        self.sum(scene);
        if anew || self.ageing.is_outdated() { self.ageing.begin() } else { 0 }
    }

    fn end(&mut self) {
        self.ageing.end();
    }

    fn deactivates(&mut self, scene: &Scene) -> u32 {
        let (inactive, active) = (scene.inactive, scene.active);
        if self.early {
            return if is_low(inactive, active, self.scale) { BATCH } else { 0 };
        }
        // With nothing else left the active list is scanned whatever the statistics say.
        if inactive == 0 { BATCH } else { self.ageing.due(inactive, active) }
    }
}
