//! Which areas are which places of the run, and what is told of them ([`crate::spill`]).

use overspill_mm::AreaId;
use overspill_mm::types::Slot;

use super::Engine;
use crate::spill::{SPOTS, Told, stand};

impl Engine {
    /// The place that an area is, or lies in. That of one which a parent made is known by its path.
    fn spot_of(&self, id: AreaId) -> Option<u8> {
        let area = &self.areas[usize::from(id.0)];
        let same = |other: &&super::areas::KnownArea| other.path == area.path && other.spot.is_some();
        area.spot.or_else(|| self.areas.iter().find(same)?.spot)
    }

    /// So many pages are written to slots of an area, or read from there.
    pub(super) fn note_moved(&self, slot: u32, pages: u32, writes: bool) {
        if let Some(teller) = &self.spill
            && let Some(spot) = self.spot_of(self.mm.area_of(Slot(slot)))
        {
            teller.moved(spot, writes, pages);
        }
    }

    /// Tells what there is at each place.
    pub(super) fn tell_spilled(&self) {
        let Some(teller) = &self.spill else { return };
        let mut told = [Told::default(); SPOTS];
        for id in (0..self.areas.len()).map(|index| AreaId(index as u8)) {
            if let Some(spot) = self.spot_of(id) {
                let told = &mut told[usize::from(spot)];
                *told = told.and(self.told_of(id));
            }
        }
        teller.tell(&told);
    }

    fn told_of(&self, id: AreaId) -> Told {
        let area = &self.areas[usize::from(id.0)];
        let stand = match () {
            () if self.mm.has_area_failed(id) => stand::FAILED,
            // Others of its place say how that stands.
            () if area.is_sealed => stand::NONE,
            () if area.bytes == 0 => stand::DRAINED,
            () if area.leaves => stand::DRAINING,
            () if self.mm.is_area_closed(id) => stand::CLOSED,
            () => stand::OPEN,
        };
        Told { pages: self.mm.areas_beside(id).0, bytes_max: area.bytes, stand }
    }
}
