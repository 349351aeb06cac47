//! What a program has said of a mapping by madvise, and the kernel keeps with it: that it is no part of core
//! dumps, or how it is used. Another mapping that takes its place is marked as it was.
//!
//! (What children do not get is kept elsewhere: that is withheld for other reasons, too.)
//!
//! *The story:* a file that was marked MADV_DONTDUMP was the kernel's again after mlock of one page, or as
//! others wrote to it, and was in core dumps from then on; so was one that was taken from the kernel
//! (`torture file-advised`).

use alloc::vec::Vec;

use overspill_sys::maps::{BUFFER_BYTES, Inherited};
use overspill_sys::mem::{self, Advice};
use overspill_sys::{AddressRange, overlap};

use super::Engine;

/// Marks, each with the mapping that has it.
#[derive(Default)]
pub struct Marks(Vec<(AddressRange, Advice)>);

impl Marks {
    /// What is marked in a range. Where nobody can be asked nothing is.
    fn of(range: &AddressRange) -> Marks {
        let mut marks = Vec::new();
        if let Ok(inherited) = Inherited::open() {
            let visit = |mapping: AddressRange, advice| marks.push((mapping, advice));
            let _ = inherited.for_each_mark_in(range, &mut [0; BUFFER_BYTES], visit);
        }
        Marks(marks)
    }

    /// Marks of a range what was marked when they were looked for; each is told.
    pub fn set(&self, range: &AddressRange, mut told: impl FnMut(AddressRange, Advice)) {
        for (mapping, advice) in self.0.iter().filter(|(mapping, _)| overlap(mapping, range)) {
            let part = mapping.start.max(range.start)..mapping.end.min(range.end);
            // SAFETY: no content changes.
            let _ = unsafe { mem::madvise(part.clone(), *advice) };
            told(part, *advice);
        }
    }
}

impl Engine {
    /// What the program has marked in a range; nothing, where it never marked any.
    #[must_use]
    pub fn marks_of(&self, range: &AddressRange) -> Marks {
        let has_marks = !range.is_empty() && self.file_table.is_some_and(|table| table.has_marks());
        if has_marks { Marks::of(range) } else { Marks::default() }
    }
}
