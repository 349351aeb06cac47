//! Who of the tree has memory in common by forks, also where those between them have ended.
//!
//! *The story:* a daemon's parent ends when it has made it. Its child is the launcher's then, and was a
//! stranger to the program that it shares all of its memory with: 225 MiB were told as 451.
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::{BTreeMap, BTreeSet};

use super::descendants::{Look, of_pid};

/// Who was seen to be whose child.
#[derive(Default)]
pub struct Kin {
    makers: BTreeMap<u32, u32>,
    /// Those of which it is known that they have made all of their children.
    only_makers: BTreeSet<u32>,
}

impl Kin {
    /// All that live, in the order of their numbers. Of those that have ended makers of the living are known.
    pub fn note(&mut self, looks: &[Look]) {
        let is_there = |look: &&Look| of_pid(looks, look.parent).is_some();
        self.makers.extend(looks.iter().filter(is_there).map(|look| (look.pid, look.parent)));
        let mut kept = BTreeMap::new();
        for look in looks {
            let mut at = look.pid;
            while let Some(&maker) = self.makers.get(&at) {
                if kept.insert(at, maker).is_some() {
                    break;
                }
                at = maker;
            }
        }
        self.makers = kept;
    }

    /// What agents tell: orphans do not become the children of these.
    pub fn tell(&mut self, only_makers: impl Iterator<Item = u32>) {
        self.only_makers = only_makers.collect();
    }

    /// Has it made its children, and adopted none?
    pub fn has_made_its_children(&self, pid: u32) -> bool {
        self.only_makers.contains(&pid)
    }

    /// A process's parent; where that has ended, the nearest ancestor that lives and surely runs what it runs,
    /// from before the fork; where none was seen, one of the others of which that is true, if it `may_be`.
    pub fn elder<'a>(
        &self,
        looks: &'a [Look],
        look: &Look,
        may_be: impl Fn(&Look) -> bool,
    ) -> Option<&'a Look> {
        if let Some(parent) = of_pid(looks, look.parent) {
            return Some(parent);
        }
        let mut ancestors = self.ancestors(look.pid).filter_map(|pid| of_pid(looks, pid));
        let is_other = |other: &&Look| is_kin(other, look) && may_be(other) && !self.has_made(look, other);
        ancestors.find(|other| is_kin(other, look)).or_else(|| looks.iter().find(is_other))
    }

    /// The oldest of those that run the same program, each the [`Kin::elder`] of the next.
    pub fn eldest(&self, looks: &[Look], pid: u32, may_be: impl Fn(&Look) -> bool) -> Option<u32> {
        let mut look = of_pid(looks, pid)?;
        for _ in looks {
            match self.elder(looks, look, &may_be).filter(|elder| elder.program_pages == look.program_pages) {
                Some(elder) => look = elder,
                None => break,
            }
        }
        Some(look.pid)
    }

    fn ancestors(&self, pid: u32) -> impl Iterator<Item = u32> + '_ {
        let maker = |pid: &u32| self.makers.get(pid).copied();
        std::iter::successors(maker(&pid), maker).take(self.makers.len())
    }

    fn has_made(&self, look: &Look, other: &Look) -> bool {
        self.ancestors(other.pid).any(|pid| pid == look.pid)
    }
}

/// Do two run the same program since the same exec? Where addresses are not random others may seem to.
pub fn is_kin(one: &Look, other: &Look) -> bool {
    one.pid != other.pid
        && !one.is_guest
        && one.program_pages == other.program_pages
        && one.program_stamp == other.program_stamp
        && one.program_stamp != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, program_stamp: u64) -> Look {
        Look { pid, parent, program_pages: 30, program_stamp, ..Look::default() }
    }

    #[test]
    fn who_has_lost_its_parent_is_its_ancestors_kin() {
        let all = [process(5, 1, 9), process(6, 5, 9), process(7, 6, 9), process(8, 7, 9)];
        let mut kin = Kin::default();
        kin.note(&all);
        let elder = |kin: &Kin, looks: &[Look], pid| {
            kin.elder(looks, of_pid(looks, pid).unwrap(), |_| false).map(|look| look.pid)
        };
        assert_eq!([5, 6, 8].map(|pid| elder(&kin, &all, pid)), [None, Some(5), Some(7)]);
        let left = [all[0], process(8, 1, 9)];
        for _ in 0..3 {
            kin.note(&left);
            assert_eq!(elder(&kin, &left, 8), Some(5));
        }
        assert_eq!(kin.eldest(&left, 8, |_| false), Some(5));
        let other = [process(5, 1, 4), left[1]];
        assert_eq!(elder(&kin, &other, 8), None, "it runs another program by now");
        kin.note(&left[..1]);
        assert!(kin.makers.is_empty());
    }

    #[test]
    fn who_was_never_seen_with_its_parent_is_kin_of_its_program() {
        let looks = [process(5, 1, 9), process(8, 1, 9), process(9, 8, 9)];
        let mut kin = Kin::default();
        kin.note(&looks);
        let elder = |may_be: fn(&Look) -> bool| kin.elder(&looks, &looks[1], may_be).map(|look| look.pid);
        assert_eq!((elder(|_| true), elder(|_| false)), (Some(5), None));
        assert_eq!(elder(|look| look.pid == 9), None, "that is its own child");
    }
}
