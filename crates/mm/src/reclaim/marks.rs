//! What a touch does to a page, and what the marks on a page at the inactive tail lead to
//! (specification 5.1): two tables.
//!
//! A page that is read by a system call twice, by two separate calls, becomes active; one that is
//! read once is a passenger. A page in a program's view has the hardware's accessed bits in place
//! of calls, and is judged when reclaim finds it.

use super::Rules;
use super::lists::{Kind, List};

/// What becomes of a page that is read or written by a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// It is referenced now.
    SetBit,
    /// It is active now, and not referenced.
    Activate,
    /// It is what it was.
    Nothing,
}

/// A system call used the page.
#[must_use]
pub fn mark_accessed(list: List, referenced: bool) -> Mark {
    match (list, referenced) {
        (List::InactiveAnon | List::InactiveFile, true) => Mark::Activate,
        (List::ActiveAnon | List::ActiveFile | List::Unevictable, true) => Mark::Nothing,
        (_, false) => Mark::SetBit,
    }
}

/// What reclaim sees of a page at the inactive tail; the marks are cleared by the look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// Somebody who maps it has locked it in memory.
    pub locked: bool,
    /// The mappings could not be looked at, since somebody is changing them.
    pub contended: bool,
    /// Mappings whose accessed bit was set.
    pub ptes: u32,
    /// The software's bit was set.
    pub referenced: bool,
    /// What backs it.
    pub kind: Kind,
    /// A mapping is executable.
    pub executable: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// To the active list; the software's bit is set again or not.
    Activate {
        /// Is the bit set?
        referenced: bool,
    },
    /// To the head of the inactive list.
    Keep {
        /// Is the bit set?
        referenced: bool,
    },
    /// It goes.
    Reclaim,
    /// It goes if nothing need be written for that, else it is kept.
    ReclaimIfClean,
    /// To the list that is not scanned.
    Unevictable,
}

/// Judges a page at the inactive tail.
#[must_use]
pub fn judge(rules: Rules, seen: &Sighting) -> Verdict {
    if seen.locked {
        return Verdict::Unevictable;
    }
    if seen.contended && rules == Rules::Late {
        return Verdict::Keep { referenced: seen.referenced };
    }
    let is_file = seen.kind == Kind::File;
    if seen.ptes == 0 {
        return if seen.referenced && is_file { Verdict::ReclaimIfClean } else { Verdict::Reclaim };
    }
    if rules == Rules::Early && !is_file {
        return Verdict::Activate { referenced: false };
    }
    if seen.referenced || seen.ptes > 1 || is_file && seen.executable {
        return Verdict::Activate { referenced: true };
    }
    Verdict::Keep { referenced: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sighting = Sighting {
        locked: false,
        contended: false,
        ptes: 0,
        referenced: false,
        kind: Kind::File,
        executable: false,
    };
    const BOTH: [Rules; 2] = [Rules::Early, Rules::Late];

    /// The table "mark accessed", line by line.
    #[test]
    fn touches_by_calls() {
        for list in [List::InactiveAnon, List::InactiveFile] {
            assert_eq!(mark_accessed(list, false), Mark::SetBit);
            assert_eq!(mark_accessed(list, true), Mark::Activate);
        }
        for list in [List::ActiveAnon, List::ActiveFile] {
            assert_eq!(mark_accessed(list, false), Mark::SetBit);
            assert_eq!(mark_accessed(list, true), Mark::Nothing);
        }
        assert_eq!(mark_accessed(List::Unevictable, false), Mark::SetBit);
        assert_eq!(mark_accessed(List::Unevictable, true), Mark::Nothing);
    }

    /// The table "page found at the inactive tail", line by line, left column and right.
    #[test]
    fn pages_at_the_tail() {
        let both = |seen: Sighting, early: Verdict, late: Verdict| {
            assert_eq!(BOTH.map(|rules| judge(rules, &seen)), [early, late], "{seen:?}");
        };
        let same = |seen: Sighting, verdict: Verdict| both(seen, verdict, verdict);
        let anon = Sighting { kind: Kind::Anon, ..PLAIN };
        let up = Verdict::Activate { referenced: true };
        let again = Verdict::Keep { referenced: true };

        same(Sighting { locked: true, ptes: 2, ..PLAIN }, Verdict::Unevictable);
        both(Sighting { contended: true, ..PLAIN }, Verdict::Reclaim, Verdict::Keep { referenced: false });
        both(Sighting { ptes: 1, ..anon }, Verdict::Activate { referenced: false }, again);
        both(Sighting { ptes: 2, ..anon }, Verdict::Activate { referenced: false }, up);
        both(Sighting { ptes: 1, referenced: true, ..anon }, Verdict::Activate { referenced: false }, up);
        same(Sighting { ptes: 1, referenced: true, ..PLAIN }, up);
        same(Sighting { ptes: 2, ..PLAIN }, up);
        same(Sighting { ptes: 1, executable: true, ..PLAIN }, up);
        same(Sighting { ptes: 1, ..PLAIN }, again);
        same(Sighting { referenced: true, ..PLAIN }, Verdict::ReclaimIfClean);
        same(Sighting { referenced: true, ..anon }, Verdict::Reclaim);
        same(PLAIN, Verdict::Reclaim);
        same(anon, Verdict::Reclaim);
    }
}
