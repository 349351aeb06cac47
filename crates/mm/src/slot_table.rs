//! What is noted of slots, by their numbers, for whoever notes something.
//!
//! Areas lie one behind another in the numbers, so a second place begins where the first one ends,
//! however much of that is in use. Parts of which nothing is noted are not there.
//!
//! *The story:* tables reached from slot 0 to the last one in use. A file system of terabytes and
//! another place beside it: with the first page in the second one the agent held 3.9 GiB under a
//! budget of 64 MiB, and went through all of that again and again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::types::Slot;

/// Slots of a part.
const PART: usize = 4096;

/// A value for each slot; the default one where nothing else was noted.
#[derive(Debug)]
pub struct SlotTable<T> {
    parts: Vec<Option<Box<[T]>>>,
}

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        SlotTable { parts: Vec::new() }
    }
}

impl<T: Copy + Default + PartialEq> SlotTable<T> {
    /// What was noted of the slot.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: Slot) -> T {
        let (part, at) = place(slot);
        self.parts.get(part).and_then(Option::as_ref).map_or_else(T::default, |part| part[at])
    }

    /// Notes something of the slot.
    pub fn set(&mut self, slot: Slot, value: T) {
        let (index, at) = place(slot);
        if index >= self.parts.len() {
            if value == T::default() {
                return;
            }
            self.parts.resize_with(index + 1, || None);
        }
        let part = &mut self.parts[index];
        if part.is_none() && value == T::default() {
            return;
        }
        part.get_or_insert_with(|| alloc::vec![T::default(); PART].into_boxed_slice())[at] = value;
    }

    /// The slots of which anything but the default is noted, in ascending order.
    pub fn noted(&self) -> impl Iterator<Item = Slot> {
        let parts = (0..).zip(&self.parts).filter_map(|(index, part)| Some((index * PART, part.as_ref()?)));
        let noted = |(_, value): &(usize, &T)| **value != T::default();
        parts.flat_map(move |(first, part)| {
            (first..).zip(part.iter()).filter(noted).map(|(slot, _)| Slot(slot as u32))
        })
    }
}

/// The part of a slot, and where it is there.
fn place(slot: Slot) -> (usize, usize) {
    (slot.0 as usize / PART, slot.0 as usize % PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_found_and_nothing_else_takes_room() {
        let mut table = SlotTable::default();
        let (near, far) = (Slot(7), Slot(u32::MAX - 5));
        table.set(far, 0u64);
        assert!(table.parts.is_empty(), "the default is noted of all");
        table.set(near, 1);
        table.set(far, 2);
        assert_eq!(
            (table.get(near), table.get(far), table.get(Slot(8)), table.get(Slot(1 << 30))),
            (1, 2, 0, 0)
        );
        assert_eq!(table.noted().collect::<Vec<_>>(), [near, far]);
        assert_eq!(table.parts.iter().flatten().count(), 2);
        table.set(near, 0);
        assert_eq!(table.noted().collect::<Vec<_>>(), [far]);
    }
}
