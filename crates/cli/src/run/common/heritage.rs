//! What children of fork have in slots as their parents do, so that what a tree needs counts it once.
//!
//! A child inherits what is out where it is. It tells how much of that it has not stored to since, and its
//! parent how much of all that lay so it has not any more: that is its children's, each's by its part.
//!
//! *The story:* a child that only read what it had inherited was told as if it had all of it by itself. A
//! program that holds 224 MiB paged in 64, and 485 "would avoid that".
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::BTreeMap;

/// What a process tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heir {
    /// The process.
    pub pid: u32,
    /// Which claim of which place it has.
    pub claim: (usize, u32),
    /// Of whom it has inherited, if that one lives.
    pub elder: Option<u32>,
    /// What it has inherited in slots and not stored to.
    pub inherited_bytes: u64,
    /// What has gone of all that lay in slots that others know.
    pub gone_bytes: u64,
    /// What was copied to leave while others had it, too, and is as it was then.
    pub copied_bytes: u64,
    /// Pages that it may have stored to so far; 0: it has not told. It wraps.
    pub stored: u32,
    /// All that it has, in RAM or out.
    pub needed_bytes: u64,
}

/// The books, by heir.
#[derive(Default)]
pub struct Heritage {
    known: BTreeMap<u32, Known>,
}

struct Known {
    claim: (usize, u32),
    elder: (usize, u32),
    /// What had gone of its elder's when it was first seen.
    gone_bytes: u64,
    /// No more than this is in common.
    most_bytes: u64,
}

impl Heritage {
    /// All that tell. Returns what of each counts with its elder.
    pub fn look(&mut self, all: &[Heir]) -> BTreeMap<u32, u64> {
        let of: BTreeMap<u32, &Heir> = all.iter().map(|heir| (heir.pid, heir)).collect();
        self.known.retain(|pid, known| of.get(pid).is_some_and(|heir| heir.claim == known.claim));
        let mut children: BTreeMap<u32, u64> = BTreeMap::new();
        let elder = |heir: &Heir| of.get(&heir.elder?).copied();
        let heirs = || all.iter().filter(|heir| heir.inherited_bytes > 0);
        heirs().filter_map(elder).for_each(|elder| *children.entry(elder.pid).or_default() += 1);
        let mut common = BTreeMap::new();
        for heir in heirs() {
            let Some(elder) = elder(heir) else {
                // What it has in common with others nobody knows any more.
                self.known.entry(heir.pid).and_modify(|known| known.most_bytes = 0);
                continue;
            };
            let new = |most_bytes| Known {
                claim: heir.claim,
                elder: elder.claim,
                gone_bytes: elder.gone_bytes,
                most_bytes,
            };
            let known = self.known.entry(heir.pid).or_insert_with(|| new(u64::MAX));
            if known.elder != elder.claim {
                // Its elder has ended, and that one's elder has no more of it than that had.
                *known = new(known.most_bytes);
            }
            let gone = elder.gone_bytes.saturating_sub(known.gone_bytes) / children[&elder.pid];
            known.most_bytes = known.most_bytes.min(heir.inherited_bytes.saturating_sub(gone));
            common.insert(heir.pid, known.most_bytes);
        }
        common
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn heir(pid: u32, elder: u32, inherited_bytes: u64, gone_bytes: u64) -> Heir {
        Heir {
            pid,
            claim: (pid as usize, 2),
            elder: Some(elder),
            inherited_bytes,
            gone_bytes,
            ..Heir::default()
        }
    }

    fn look(heritage: &mut Heritage, all: &[Heir]) -> Vec<(u32, u64)> {
        heritage.look(all).into_iter().collect()
    }

    #[test]
    fn what_was_inherited_counts_until_somebody_stores_to_it() {
        let mut heritage = Heritage::default();
        let parent = |gone| heir(5, 1, 0, gone);
        assert_eq!(look(&mut heritage, &[parent(70), heir(6, 5, 100, 0)]), [(6, 100)], "that was before");
        assert_eq!(look(&mut heritage, &[parent(70), heir(6, 5, 90, 10)]), [(6, 90)]);
        assert_eq!(look(&mut heritage, &[parent(100), heir(6, 5, 90, 10)]), [(6, 60)]);
        let two = [parent(100), heir(6, 5, 90, 10), heir(7, 5, 40, 0)];
        assert_eq!(look(&mut heritage, &two), [(6, 60), (7, 40)]);
        assert_eq!(look(&mut heritage, &[heir(6, 5, 90, 10)]), [], "its parent has ended");
        assert_eq!(look(&mut heritage, &two), [(6, 0), (7, 40)]);
    }

    #[test]
    fn what_a_parent_had_inherited_is_its_parents() {
        let mut heritage = Heritage::default();
        let all = [heir(5, 1, 0, 0), heir(6, 5, 100, 0), heir(7, 6, 80, 0)];
        assert_eq!(look(&mut heritage, &all), [(6, 100), (7, 80)]);
        let left = |gone| [heir(5, 1, 0, gone), heir(7, 5, 80, 0)];
        assert_eq!(look(&mut heritage, &left(0)), [(7, 80)]);
        assert_eq!(look(&mut heritage, &left(30)), [(7, 50)]);
        let another = [heir(5, 1, 0, 30), Heir { claim: (7, 4), ..heir(7, 5, 20, 0) }];
        assert_eq!(look(&mut heritage, &another), [(7, 20)], "it has the number of one that has ended");
    }
}
