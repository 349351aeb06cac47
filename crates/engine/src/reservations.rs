//! Managed ranges that the program makes accessible piece by piece: how far a first touch may fill.
//!
//! No event tells that memory became accessible; the fault itself does, and nothing but the list of
//! mappings tells how much behind it did, too. Zeroes put behind that would be of no use, and could
//! not be taken out again: the kernel moves pages only between mappings of the same permissions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use overspill_sys::maps::{self, Maps};
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::ranges::cut_out;

/// The ranges, and the way to ask for their mappings.
#[derive(Default)]
pub(crate) struct Reservations {
    ranges: Vec<AddressRange>,
    /// Opened with the first range; without it pages are filled one by one.
    maps: Option<Maps>,
    buffer: Option<Box<[u8]>>,
}

impl Reservations {
    /// Parts of the range may not be accessible.
    pub fn note(&mut self, range: AddressRange) {
        if self.maps.is_none() {
            self.maps = Maps::open().ok();
        }
        self.forget(&range);
        self.ranges.push(range);
    }

    /// The range is unmapped: of reservations, what is beside it is left.
    pub fn forget(&mut self, range: &AddressRange) {
        cut_out(&mut self.ranges, range);
    }

    /// How many of `count` (at least one) pages from `address` on are accessible, given that the first is.
    pub fn accessible(&mut self, address: usize, count: u32) -> u32 {
        if count == 1 || !self.ranges.iter().any(|range| range.contains(&address)) {
            return count;
        }
        let buffer = self.buffer.get_or_insert_with(|| Box::new([0; maps::BUFFER_BYTES]));
        let end = self.maps.as_ref().and_then(|maps| {
            maps.query(address, false, buffer, |vma| if vma.prot.is_empty() { address } else { vma.end })
                .ok()
                .flatten()
        });
        let pages = end.map_or(1, |end| (end - address) / PAGE_SIZE);
        count.min(u32::try_from(pages).unwrap_or(u32::MAX)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_sys::mem::{Mapping, Prot};

    #[test]
    fn a_first_touch_fills_what_is_accessible() {
        let memory = Mapping::anon(64 * PAGE_SIZE, Prot::empty()).unwrap();
        let mut reservations = Reservations::default();
        assert_eq!(reservations.accessible(memory.start(), 16), 16, "nothing is known of it");
        reservations.note(memory.range());
        assert_eq!(
            reservations.accessible(memory.start(), 16),
            1,
            "who touched the page may have lost the right since"
        );
        // SAFETY: the mapping is the test's.
        unsafe { overspill_sys::mem::mprotect(memory.start()..memory.page(10), Prot::RW) }.unwrap();
        assert_eq!(reservations.accessible(memory.start(), 16), 10);
        assert_eq!(reservations.accessible(memory.page(8), 16), 2);
        assert_eq!(reservations.accessible(memory.page(8), 1), 1);
        reservations.forget(&(memory.start()..memory.page(4)));
        assert_eq!(reservations.accessible(memory.page(8), 16), 2, "a part of it is left");
        reservations.note(memory.range());
        let [begins, ends] = [memory.page(20), memory.page(30)];
        reservations.forget(&(begins..ends));
        reservations.forget(&(memory.page(60)..memory.range().end + PAGE_SIZE));
        let known = |reservations: &Reservations| {
            let mut ranges = reservations.ranges.clone();
            ranges.sort_by_key(|range| range.start);
            ranges
        };
        assert_eq!(known(&reservations), [memory.start()..begins, ends..memory.page(60)]);
        reservations.forget(&memory.range());
        assert_eq!(known(&reservations), []);
        assert_eq!(reservations.accessible(memory.page(8), 16), 16);
    }
}
