//! Where the kernels before the cluster lists put an evicted page on a disk: after the last one (specification 3.4, 3.14).
//!
//! After a cluster's worth of slots the first run of that many free slots is sought from the lowest on; where there is none,
//! and within a run, it is the next free slot upwards, and from the lowest again.

use super::References;

/// The cursor.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextFit {
    next: u32,
    /// Slots left to take before the next run is sought.
    left: u32,
}

/// Slots in a cluster, in those days.
const RUN: u32 = 256;

impl NextFit {
    pub fn new() -> Self {
        NextFit { next: 1, left: 0 }
    }

    /// A free slot of `references` (0 = free), of which `free` are.
    pub fn allocate(&mut self, references: &[References], free: u32) -> Option<u32> {
        if self.left == 0 {
            self.left = RUN;
            if free >= RUN
                && let Some(start) = first_run(references)
            {
                self.next = start;
            }
        }
        self.left -= 1;
        let is_free = |slot: &u32| references[*slot as usize] == 0;
        let slots = references.len() as u32;
        let slot = (self.next..slots).find(is_free).or_else(|| (1..self.next.min(slots)).find(is_free))?;
        self.next = slot + 1;
        Some(slot)
    }
}

/// The lowest run of [`RUN`] free slots.
fn first_run(references: &[References]) -> Option<u32> {
    let mut free = 0;
    for (slot, &count) in references.iter().enumerate().skip(1) {
        free = if count == 0 { free + 1 } else { 0 };
        if free == RUN {
            return Some(slot as u32 + 1 - RUN);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_first_then_holes() {
        let mut references = vec![0 as References; 1 + 3 * RUN as usize];
        references[0] = 1;
        references[10] = 1;
        let mut cursor = NextFit::new();
        let take = |cursor: &mut NextFit, references: &mut Vec<References>| {
            let free = references.iter().filter(|&&count| count == 0).count() as u32;
            let slot = cursor.allocate(references, free)?;
            references[slot as usize] = 1;
            Some(slot)
        };
        let first: Vec<u32> = (0..RUN).filter_map(|_| take(&mut cursor, &mut references)).collect();
        assert_eq!(first, (11..11 + RUN).collect::<Vec<_>>(), "the first run of free slots");
        references[12] = 0;
        let second: Vec<u32> = (0..RUN).filter_map(|_| take(&mut cursor, &mut references)).collect();
        assert_eq!(second[0], 11 + RUN, "one hole is no run");
        let rest: Vec<u32> = std::iter::from_fn(|| take(&mut cursor, &mut references)).collect();
        assert_eq!(rest.last(), Some(&12), "in the end the holes are filled");
        assert!(rest.contains(&1));
    }
}
