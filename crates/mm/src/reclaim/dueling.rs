//! Two policies contend: each rules a small part of memory ([`crate::part`]), and the one under which fewer
//! faults wait rules the rest.
//!
//! Faults alone do not tell what would be the better rule: who keeps what came first does not see whether
//! it is used, who lets it go cannot know what it would have been worth. So both are tried, at the same
//! time and on the same program. The parts are memories of their own, since who shares the way out with
//! another is judged by the other's misses. (*The story:* at first only the active pages were apart. Of
//! clamscan the part that held on to what it had looked better by 6 %, while the other part's pages were
//! pushed out by what it missed; had all done as the other, a quarter would have been read.)
//!
//! - *First*, `adaptive`: for what is used lately is used again.
//! - *Second*, `reuse`: for loops and scans, which gain by what is held. It begins, as what came first is
//!   gone when it was let go once.
//! - Where more is read ahead than waited for, the first rules, undisputed: to hold single pages tears
//!   streams apart, and a stream's cost is not where its pages are.
//!
//! Unfit for: programs of which each phase is another kind, and shorter than it takes to tell.

use super::adaptive::Adaptive;
use super::policy::{Arrival, Away, Follows, Noted, Place, Policy, Scene, Stamp, Waited};
use super::reuse::Reuse;
use crate::list::ListId;
use crate::part::Part;

/// Faults that waited in the two small parts, together, before anything is said; and beyond so many the
/// past counts half.
const LEAST: u32 = 64;
const MOST: u32 = 512;
/// Who is to rule has less than so many eighths of the other's.
const LESS_EIGHTHS: u32 = 7;
/// Pages that were read ahead or waited for, of which the past counts half.
const AHEAD_MOST: u32 = 1024;
/// Of the budget one page in so many is active when the first begins to rule, as it would be then.
const ACTIVE_SHARE: u32 = 2;

/// Both, for the rest and for their own part.
#[derive(Debug)]
pub(crate) struct Dueling {
    first: [Adaptive; 2],
    second: [Reuse; 2],
    /// The second rules the rest.
    is_second: bool,
    /// The first begins to, and finds more active than it would have.
    is_handed_over: bool,
    /// Faults that waited in each one's part.
    waits: [u32; 2],
    /// Pages that were read ahead, and waited for.
    ahead: u32,
    waited: u32,
}

impl Dueling {
    pub fn new(budget: u32) -> Dueling {
        let reuse = |part: Part| Reuse::by_faults(part.of_all(u64::from(budget)) as u32);
        Dueling {
            first: [Adaptive::default(), Adaptive::default()],
            second: [reuse(Part::Rest), reuse(Part::Second)],
            is_second: true,
            is_handed_over: false,
            waits: [0; 2],
            ahead: 0,
            waited: 0,
        }
    }

    /// Who rules a part.
    fn of(&mut self, part: Part) -> &mut dyn Policy {
        match part {
            Part::First => &mut self.first[1],
            Part::Second => &mut self.second[1],
            Part::Rest if self.is_second => &mut self.second[0],
            Part::Rest => &mut self.first[0],
        }
    }

    fn peek(&self, part: Part) -> &dyn Policy {
        match part {
            Part::First => &self.first[1],
            Part::Second => &self.second[1],
            Part::Rest if self.is_second => &self.second[0],
            Part::Rest => &self.first[0],
        }
    }

    fn rule(&mut self, is_second: bool) {
        self.is_handed_over = self.is_second && !is_second;
        self.is_second = is_second;
    }

    /// Are there streams, which nobody is to tear apart?
    fn streams(&self) -> bool {
        self.ahead > self.waited
    }

    /// A page is read ahead, or waited for.
    fn note_read(&mut self, is_ahead: bool) {
        *(if is_ahead { &mut self.ahead } else { &mut self.waited }) += 1;
        if self.ahead + self.waited > AHEAD_MOST {
            (self.ahead, self.waited) = (self.ahead / 2, self.waited / 2);
        }
        if self.streams() && self.is_second {
            self.waits = [0; 2];
            self.rule(false);
        }
    }

    /// A fault waits in the part of one of the two.
    fn note_wait(&mut self, which: usize) {
        if self.streams() {
            return;
        }
        self.waits[which] += 1;
        let [first, second] = self.waits;
        if first + second < LEAST {
            return;
        }
        let is_less = |one: u32, other: u32| 8 * one < LESS_EIGHTHS * other;
        let changes = if self.is_second { is_less(first, second) } else { is_less(second, first) };
        if changes {
            self.rule(!self.is_second);
        }
        if first + second > MOST {
            self.waits = [first / 2, second / 2];
        }
    }
}

impl Policy for Dueling {
    fn divides(&self) -> bool {
        true
    }

    fn asks_what_is_free(&self) -> bool {
        true
    }

    fn admit(&mut self, scene: &Scene, arrival: Arrival) -> ListId {
        self.of(scene.part).admit(scene, arrival)
    }

    fn touched(&mut self, scene: &Scene, waited: Waited, stamp: Stamp) -> Place {
        self.of(scene.part).touched(scene, waited, stamp)
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        self.note_read(false);
        match scene.part {
            Part::Rest => {}
            Part::First => self.note_wait(0),
            Part::Second => self.note_wait(1),
        }
        self.of(scene.part).refault(scene, away)
    }

    fn read_ahead(&mut self, scene: &Scene, away: &Away) {
        self.note_read(true);
        self.of(scene.part).read_ahead(scene, away);
    }

    fn foreseen(&mut self, scene: &Scene, away: &Away) -> Place {
        self.of(scene.part).foreseen(scene, away)
    }

    fn ranks_active(&self, part: Part) -> bool {
        self.peek(part).ranks_active(part)
    }

    fn deactivates(&mut self, scene: &Scene) -> u32 {
        self.of(scene.part).deactivates(scene)
    }

    /// What came first is active under the first, too, but no more than half of memory.
    ///
    /// *The story:* seven eighths were active when `adaptive` was handed it, and stayed so, as its own rule
    /// lets them be. Then the oldest of them became inactive, as the youngest there: those left first that
    /// were used last.
    fn handed_back(&mut self, scene: &Scene) -> u32 {
        if !self.is_handed_over || scene.part != Part::Rest {
            return 0;
        }
        self.is_handed_over = false;
        let due = scene.active.saturating_sub(scene.budget / ACTIVE_SHARE);
        self.first[0].take_over(scene.active - due);
        due
    }

    fn replaced(&mut self, scene: &Scene) -> u32 {
        self.of(scene.part).replaced(scene)
    }

    fn follow(&mut self, scene: &Scene, going: u32) -> u32 {
        self.of(scene.part).follow(scene, going)
    }

    fn kept(&self, scene: &Scene) -> u32 {
        self.peek(Part::Rest).kept(scene)
    }

    fn arrived(&mut self, part: Part, pages: u32) {
        match part {
            Part::First => {}
            Part::Second => self.second[1].arrived(part, pages),
            // It has to know the time when it begins to rule.
            Part::Rest => self.second[0].arrived(part, pages),
        }
    }

    fn stamp(&self, part: Part, noted: Noted) -> Option<Stamp> {
        match part {
            Part::First => None,
            Part::Second => self.second[1].stamp(part, noted),
            Part::Rest => self.second[0].stamp(part, noted),
        }
    }

    fn follows(&self) -> Follows {
        self.peek(Part::Rest).follows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: Away = Away { evictions: 5000, stamp: 0, failed: false };

    fn of(part: Part) -> Scene {
        let budget = part.of_all(32_000) as u32;
        Scene { part, budget, active: budget / 4 * 3, inactive: budget / 4, ..Scene::default() }
    }

    fn wait(policy: &mut Dueling, part: Part, faults: u32) {
        (0..faults).for_each(|_| _ = policy.refault(&of(part), &AWAY));
    }

    #[test]
    fn the_one_under_which_fewer_faults_wait_rules_the_rest() {
        let mut policy = Dueling::new(32_000);
        assert!(policy.ranks_active(Part::Rest), "the second begins");
        wait(&mut policy, Part::Second, 34);
        wait(&mut policy, Part::First, 29);
        assert!(policy.is_second, "that is too few to tell");
        wait(&mut policy, Part::Second, 1);
        assert!(!policy.is_second && !policy.ranks_active(Part::Rest), "29 are less than 7/8 of 35");
        assert!(policy.ranks_active(Part::Second) && !policy.ranks_active(Part::First), "each has its own");
        wait(&mut policy, Part::First, 10);
        assert!(!policy.is_second, "35 are not less than 7/8 of 39");
        wait(&mut policy, Part::First, 2);
        assert!(policy.is_second);
        wait(&mut policy, Part::Rest, 1000);
        assert_eq!(policy.waits, [41, 35], "the rest does not count");
    }

    /// What was long ago is as good as forgotten.
    #[test]
    fn the_past_fades() {
        let mut policy = Dueling::new(32_000);
        wait(&mut policy, Part::Second, 10_000);
        assert!(!policy.is_second);
        wait(&mut policy, Part::First, 600);
        assert!(policy.is_second);
    }

    #[test]
    fn streams_are_not_torn_apart() {
        let mut policy = Dueling::new(32_000);
        wait(&mut policy, Part::Rest, 10);
        (0..10).for_each(|_| policy.read_ahead(&of(Part::Rest), &AWAY));
        assert!(policy.is_second, "half is read ahead");
        policy.read_ahead(&of(Part::Rest), &AWAY);
        assert!(!policy.is_second);
        (0..500).for_each(|_| policy.read_ahead(&of(Part::Rest), &AWAY));
        wait(&mut policy, Part::First, 500);
        assert_eq!(policy.waits, [0; 2], "nobody contends");
        wait(&mut policy, Part::First, 500);
        assert!(policy.is_second, "there are none any more");
    }

    /// See [`Dueling::handed_back`].
    #[test]
    fn what_is_handed_over_is_as_the_first_would_have_it() {
        let mut policy = Dueling::new(32_000);
        policy.rule(false);
        assert_eq!(policy.handed_back(&of(Part::First)), 0);
        assert_eq!(policy.handed_back(&of(Part::Rest)), 7500, "half of 30,000 is active");
        assert_eq!(policy.handed_back(&of(Part::Rest)), 0, "once");
        // None of them is proven: who proves to be in use takes the place of one.
        policy.refault(&of(Part::Rest), &Away { evictions: 1, ..AWAY });
        assert_eq!(policy.replaced(&of(Part::Rest)), 1);
    }
}
