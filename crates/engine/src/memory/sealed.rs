//! Mappings that are read-only and sealed (mseal, 6.10): the kernel discards none of their pages, and
//! nobody can change that any more. They stay in RAM, as locked memory does.
//!
//! *The story:* each page was copied at each try to take it out, in vain: a program with twice its
//! budget, half of it sealed, took ten times as long.

use alloc::vec::Vec;

use overspill_sys::AddressRange;

use super::rights::mapping_at;

/// So many are known; pages of others are copied in vain.
const RANGES_MAX: usize = 1024;

/// Those of which a page was refused. None ever goes while the process lives.
#[derive(Debug, Default)]
pub(super) struct Sealed(Vec<AddressRange>);

impl Sealed {
    /// Is a part of the range sealed?
    pub fn touches(&self, range: &AddressRange) -> bool {
        let after = self.0.partition_point(|sealed| sealed.end <= range.start);
        self.0.get(after).is_some_and(|sealed| sealed.start < range.end)
    }

    /// The kernel refused to discard the range: so it does with the whole mapping.
    pub fn note(&mut self, range: AddressRange) {
        self.insert(mapping_around(&range).unwrap_or(range));
    }

    fn insert(&mut self, range: AddressRange) {
        if !self.touches(&range) && self.0.len() < RANGES_MAX {
            let at = self.0.partition_point(|sealed| sealed.end <= range.start);
            self.0.insert(at, range);
        }
    }

    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.len() as u64).sum()
    }
}

fn mapping_around(range: &AddressRange) -> Option<AddressRange> {
    let (found, _) = mapping_at(range.start)?;
    (found.start <= range.start && range.end <= found.end).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_kept_apart_and_found() {
        let mut sealed = Sealed::default();
        for range in [40..50, 10..20, 10..20, 45..60] {
            sealed.insert(range);
        }
        assert_eq!((sealed.0.as_slice(), sealed.bytes()), ([10..20, 40..50].as_slice(), 20));
        let touched = [0..10, 9..11, 19..21, 20..40, 49..70, 50..60].map(|range| sealed.touches(&range));
        assert_eq!(touched, [false, true, true, false, true, false]);
    }

    #[test]
    fn the_whole_mapping_is_found() {
        let mapping = overspill_sys::mem::Mapping::anon(16 << 12, overspill_sys::mem::Prot::READ).unwrap();
        let found = mapping_around(&(mapping.page(3)..mapping.page(4))).unwrap();
        assert!(found.start <= mapping.start() && mapping.range().end <= found.end, "{found:?}");
    }
}
