//! What parents and children of fork have as copies that were made only so that a page could leave, so that
//! what a tree needs counts it once. Agents tell how much that is: see `engine/copies.rs`.
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::BTreeMap;

use super::heritage::Heir;

const PAGE_BYTES: u64 = 4096;

/// The books, by heir.
#[derive(Default)]
pub struct Copies {
    copiers: BTreeMap<u32, Copier>,
}

/// Who may have copies of what its elder has.
#[derive(Clone, Copy)]
struct Copier {
    claim: (usize, u32),
    elder: (usize, u32),
    /// What its elder had stored to before it had copies: such pages were its own by then.
    stored: u32,
    /// Its part of what that has stored to since, at most.
    stored_bytes: u64,
}

impl Copies {
    /// What of the copies of each the others have still. A store of an elder's makes one of them its own, of
    /// whichever of its heirs: each has its part of that. It has, or had when it ended, the rest. Who is
    /// nobody's heir has copies of what all of its heirs have.
    ///
    /// *The story:* a parent stored to all that its child had copied out. Each needed its own, and X was two
    /// thirds of that.
    pub fn look(&mut self, all: &[Heir]) -> BTreeMap<u32, u64> {
        let of: BTreeMap<u32, &Heir> = all.iter().map(|heir| (heir.pid, heir)).collect();
        self.copiers.retain(|pid, known| of.get(pid).is_some_and(|heir| heir.claim == known.claim));
        let elder = |heir: &Heir| of.get(&heir.elder?).copied();
        let with_elder = || all.iter().filter_map(|heir| Some((heir, elder(heir)?)));
        let mut families: BTreeMap<u32, Family> = BTreeMap::new();
        for (heir, elder) in with_elder() {
            families.entry(elder.pid).or_default().add(heir);
        }
        for (heir, elder) in with_elder().filter(|(_, elder)| elder.has_told()) {
            self.note(heir, elder, families[&elder.pid].copiers);
        }
        let stored = |heir: &Heir| match self.copiers.get(&heir.pid) {
            Some(known) => known.stored_bytes,
            None => families.get(&heir.pid).map_or(u64::MAX, |family| family.least_stored),
        };
        let copied = |heir: &Heir| elder(heir).map_or(heir.copied_bytes, |elder| unstored_bytes(heir, elder));
        all.iter().map(|heir| (heir.pid, copied(heir).saturating_sub(stored(heir)))).collect()
    }

    /// Its elder has told, and so many heirs of that have copies.
    fn note(&mut self, heir: &Heir, elder: &Heir, copiers: u64) {
        let new = Copier { claim: heir.claim, elder: elder.claim, stored: elder.stored, stored_bytes: 0 };
        let known = self.copiers.entry(heir.pid).or_insert(new);
        if heir.copied_bytes == 0 {
            *known = new;
        } else if known.elder == elder.claim {
            known.stored_bytes = bytes_since(elder.stored, known.stored) / copiers.max(1);
        }
    }
}

/// The heirs of one.
struct Family {
    /// Those that have copies.
    copiers: u64,
    /// What that one has stored to that has stored to the least.
    least_stored: u64,
}

impl Default for Family {
    fn default() -> Family {
        Family { copiers: 0, least_stored: u64::MAX }
    }
}

impl Family {
    fn add(&mut self, heir: &Heir) {
        self.copiers += u64::from(heir.copied_bytes > 0);
        if heir.has_told() {
            self.least_stored = self.least_stored.min(heir.stored_bytes());
        }
    }
}

impl Heir {
    fn has_told(&self) -> bool {
        self.stored > 0
    }

    fn stored_bytes(&self) -> u64 {
        bytes_since(self.stored, 0)
    }
}

/// An heir's copies, without the part to which it has stored since they came back. Nobody is told of that. So
/// it is as many of them as it has stored to of all that its elder has; what it grew by is stored to, too.
///
/// *The story:* workers counted references in a list, up and down. Each page was stored to, and was what it
/// had been when it left again.
fn unstored_bytes(heir: &Heir, elder: &Heir) -> u64 {
    let grown = heir.needed_bytes.saturating_sub(elder.needed_bytes);
    let stored = heir.stored_bytes().saturating_sub(grown).min(elder.needed_bytes);
    let left = u128::from(elder.needed_bytes - stored) * u128::from(heir.copied_bytes);
    left.checked_div(elder.needed_bytes.into()).unwrap_or(0) as u64
}

/// Of pages, of which the number wraps, and may be less for a moment as its parts are told one by one.
fn bytes_since(now: u32, before: u32) -> u64 {
    u64::from(now.wrapping_sub(before).cast_signed().max(0).cast_unsigned()) * PAGE_BYTES
}

/// What a process needs by itself, and how much of that is copies that were made only to leave.
pub struct Holder {
    /// What it runs.
    pub program: (u32, u64),
    /// What it has, in RAM or out.
    pub told_bytes: u64,
    /// ... without what is known to be its elder's.
    pub needed_bytes: u64,
    /// What parent or children have, too, if they still do.
    pub copied_bytes: u64,
}

/// What all of them need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Each page once.
    pub bytes: u64,
    /// As if each had all that it has by itself.
    pub apart_bytes: u64,
}

/// Copies that were made only to leave count once: no more is off for those who run one program than others
/// have beside the largest of them.
pub fn needed(all: impl Iterator<Item = Holder>) -> Need {
    let mut apart_bytes = 0;
    #[derive(Default)]
    struct Sum {
        needed: u64,
        largest: u64,
        copied: u64,
    }
    let mut families: BTreeMap<(u32, u64), Sum> = BTreeMap::new();
    for Holder { program, told_bytes, needed_bytes, copied_bytes } in all {
        apart_bytes += told_bytes;
        let family = families.entry(program).or_default();
        family.needed += needed_bytes;
        family.largest = family.largest.max(needed_bytes);
        family.copied += copied_bytes;
    }
    let own = |family: &Sum| family.needed - family.copied.min(family.needed - family.largest);
    Need { bytes: families.values().map(own).sum(), apart_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::common::heritage::tests::heir;

    /// See [`Copies::look`].
    #[test]
    fn copies_count_until_all_who_have_it_may_have_stored_to_it() {
        let mut copies = Copies::default();
        let of = |pid, elder, copied: u64, stored| Heir {
            copied_bytes: copied * PAGE_BYTES,
            stored,
            needed_bytes: (10_000 + if pid == 5 { 0 } else { u64::from(stored) }) * PAGE_BYTES,
            ..heir(pid, elder, 0, 0)
        };
        let mut look = |all: &[Heir]| {
            let pages = |(_, bytes): (u32, u64)| bytes / PAGE_BYTES;
            copies.look(all).into_iter().map(pages).collect::<Vec<_>>()
        };
        let parent = |copied, stored| of(5, 1, copied, stored);
        assert_eq!(look(&[parent(50, 1000)]), [0], "nobody else has it");
        assert_eq!(look(&[parent(50, 0), of(6, 5, 0, 0)]), [0, 0], "they have not told");
        assert_eq!(look(&[parent(50, 0), of(6, 5, 9, 1)]), [49, 0], "the parent has not");
        assert_eq!(look(&[parent(50, 1000), of(6, 5, 0, 10)]), [40, 0]);
        assert_eq!(
            look(&[parent(50, 1060), of(6, 5, 0, 10)]),
            [40, 0],
            "what it stored to by then is its own"
        );
        assert_eq!(look(&[parent(50, 1058), of(6, 5, 100, 10)]), [40, 100], "its faults were told first");
        let two = [parent(50, 1120), of(6, 5, 100, 10), of(7, 5, 0, 45)];
        assert_eq!(look(&two), [40, 40, 0]);
        let two = [parent(50, 1120), of(6, 5, 100, 10), of(7, 5, 80, 45)];
        assert_eq!(look(&two), [40, 70, 80], "each page that the parent stored to is one that all had");
        let two = [parent(50, 1180), two[1], two[2]];
        assert_eq!(look(&two), [40, 40, 50]);
        assert_eq!(look(&[two[1], two[2]]), [40, 50], "the parent has ended");
        let stores = Heir { stored: 7010, needed_bytes: 12_010 * PAGE_BYTES, ..of(6, 5, 100, 0) };
        let all = look(&[parent(0, 1180), Heir { claim: (6, 4), ..stores }]);
        assert_eq!(all, [0, 50], "it has stored to half of what it has, beside what it grew by");
    }

    /// *The story:* see `engine/copies.rs`.
    #[test]
    fn what_was_copied_to_leave_counts_once_for_those_that_have_it() {
        let holder = |program, needed_bytes, copied_bytes| Holder {
            program,
            told_bytes: needed_bytes,
            needed_bytes,
            copied_bytes,
        };
        let all = |holders: Vec<Holder>| needed(holders.into_iter()).bytes;
        let (one, other) = ((5, 1), (6, 1));
        assert_eq!(all(vec![holder(one, 200, 0), holder(one, 210, 190), holder(one, 200, 200)]), 220);
        assert_eq!(all(vec![holder(one, 210, 190)]), 210, "its parent has ended");
        assert_eq!(all(vec![holder(one, 210, 190), holder(one, 200, 190)]), 210, "nobody has it twice");
        assert_eq!(all(vec![holder(one, 200, 190), holder(one, 8, 0), holder(other, 300, 0)]), 500);
    }
}
