//! Turns, for processes of which each needs so much that together they only page: a pure value.
//!
//! Equal parts of too little serve nobody: four compilers that want 150 MiB each and have 35 read
//! back what they had written out a moment before, and none gets on. So while that lasts some have
//! their turn: they get what they need, as many of them as fit, and the others wait for theirs,
//! their pages going out as those of the first come in. The one token of the kernel's load control
//! and the gangs of parallel schedulers are the same idea.
//!
//! A turn is as long as it takes to be worth its costs: until who has it has computed for several
//! times as long as it waited for its pages to come back. It ends at once when it computes no
//! more, for it may wait for one of the others, and soon when it does little but wait even so. Who
//! has no turn is not stopped, only slow: see `overspill_engine::turnstile`.

use std::collections::{BTreeMap, BTreeSet};

use super::pace::{Pace, Times};

/// So long they must wait for more than they compute, together, before turns are taken.
const PATIENCE_US: u64 = 1_500_000;
/// What is needed is more than there is by this part at least.
const EXCESS_SHARE: u64 = 8;
/// Who computes for more than this part of the time, and for longer than it waits, gets on.
const GETS_ON_SHARE: u64 = 4;
/// Who needs less than this part of the budget is in nobody's way.
const LARGE_SHARE: u64 = 8;
/// A turn lasts until this many times as long was computed as waited.
const WORTH: u64 = 4;
/// After so many rounds it is tried without.
const ROUNDS: u32 = 4;
/// ... but for so long at least, and at most.
const TURN_US_MIN: u64 = 1_000_000;
const TURN_US_MAX: u64 = 10_000_000;
/// A turn that has brought nothing by then ends.
const TRIAL_US: u64 = 2_000_000;
/// Its pages still come in: it has more by this part than a while ago.
const GROWS_SHARE: u64 = 64;
/// Who computes and waits for less than an eighth of so long, together, has nothing to do.
const IDLE_US: u64 = 300_000;
const IDLE_SHARE: u64 = 8;

/// What is known of a process since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// Its key.
    pub place: usize,
    /// What it would hold with RAM enough, and what it has.
    pub need_bytes: u64,
    pub share_bytes: u64,
    /// For how long it waited for pages, since it began.
    pub waited_us: u64,
    /// For how long it computed, since it began.
    pub ran_us: u64,
    /// Somebody in it waits for its turn.
    pub is_held: bool,
}

/// The books of the turns.
#[derive(Default)]
pub struct Turns {
    last: BTreeMap<usize, Want>,
    /// For how long they have done little but page.
    paging_us: u64,
    turn: Option<Turn>,
    /// So many turns are left until it is tried without.
    left: u32,
    /// How each got on in the last while.
    paces: BTreeMap<usize, Pace>,
    /// Who got on when turns began: nobody takes it away.
    exempt: BTreeSet<usize>,
}

/// Somebody's turn.
struct Turn {
    /// Who leads it; others may fit beside.
    leader: usize,
    lasts_us: u64,
    computed_us: u64,
    waited_us: u64,
    /// Computed and waited in the last while, and how long that is.
    while_computed_us: u64,
    while_waited_us: u64,
    while_us: u64,
    /// What it had when that began, and has now.
    while_share_bytes: u64,
    share_bytes: u64,
}

impl Turn {
    fn of(leader: usize) -> Turn {
        Turn {
            while_share_bytes: 0,
            share_bytes: 0,
            leader,
            lasts_us: 0,
            computed_us: 0,
            waited_us: 0,
            while_computed_us: 0,
            while_waited_us: 0,
            while_us: 0,
        }
    }

    fn observe(&mut self, computed_us: u64, waited_us: u64, share_bytes: u64, passed_us: u64) {
        self.share_bytes = share_bytes;
        self.lasts_us += passed_us;
        self.computed_us += computed_us;
        self.waited_us += waited_us;
        if self.while_us >= IDLE_US {
            (self.while_computed_us, self.while_waited_us, self.while_us) = (0, 0, 0);
            self.while_share_bytes = share_bytes;
        }
        self.while_computed_us += computed_us;
        self.while_waited_us += waited_us;
        self.while_us += passed_us;
    }

    fn is_idle(&self) -> bool {
        let busy_us = self.while_computed_us + self.while_waited_us;
        self.while_us >= IDLE_US && busy_us < self.while_us / IDLE_SHARE
    }

    /// Whoever still waits for longer than it computes, and gets no more, wants more than there is.
    ///
    /// *The story:* three that went through as much as the budget had 7 s each, one after another,
    /// until they were done. The fourth would have fitted, and waited for all of it.
    fn is_vain(&self) -> bool {
        let waits = self.while_waited_us > self.while_computed_us;
        let grows = self.share_bytes > self.while_share_bytes + self.while_share_bytes / GROWS_SHARE;
        self.lasts_us >= TRIAL_US && self.while_us >= IDLE_US && waits && !grows
    }

    fn is_over(&self) -> bool {
        let is_worth_it = self.computed_us >= self.waited_us * WORTH;
        (self.lasts_us >= TURN_US_MIN && is_worth_it)
            || self.lasts_us >= TURN_US_MAX
            || self.is_idle()
            || self.is_vain()
    }
}

impl Turns {
    /// One look, `passed_us` after the one before. `total_bytes` is the budget. Who has its turn,
    /// if turns are taken; whoever is not `is_large` is not asked.
    pub fn take(&mut self, total_bytes: u64, passed_us: u64, wants: &[Want]) -> Option<BTreeSet<usize>> {
        let large: Vec<Want> =
            wants.iter().filter(|want| is_large(total_bytes, want.need_bytes)).copied().collect();
        self.observe(passed_us, &large);
        let needed: u64 = wants.iter().map(|want| want.need_bytes).sum();
        let is_tight = needed > total_bytes + total_bytes / EXCESS_SHARE;
        if self.turn.is_none() {
            self.exempt = large.iter().map(|want| want.place).filter(|place| self.gets_on(*place)).collect();
        }
        let players: Vec<Want> =
            large.iter().filter(|want| !self.exempt.contains(&want.place)).copied().collect();
        if players.len() < 2 || !is_tight {
            (self.paging_us, self.turn) = (0, None);
            return None;
        }
        if self.turn.is_none() {
            if self.paging_us < PATIENCE_US {
                return None;
            }
            self.left = ROUNDS * players.len() as u32;
        }
        let others: u64 = needed - players.iter().map(|want| want.need_bytes).sum::<u64>();
        let leader = self.leader(&players);
        if self.left == 0 {
            (self.paging_us, self.turn) = (0, None);
            return None;
        }
        let gang = gang(total_bytes.saturating_sub(others), leader, &players);
        Some(gang.into_iter().chain(self.exempt.iter().copied()).collect())
    }

    fn gets_on(&self, place: usize) -> bool {
        let last = self.paces.get(&place).and_then(Pace::last);
        last.is_some_and(|last| last.ran > last.passed / GETS_ON_SHARE && last.ran > last.waited)
    }

    fn observe(&mut self, passed_us: u64, large: &[Want]) {
        let before = |want: &Want| self.last.get(&want.place).copied().unwrap_or(*want);
        let waited = |want: &Want| want.waited_us.saturating_sub(before(want).waited_us).min(passed_us);
        let ran = |want: &Want| want.ran_us.saturating_sub(before(want).ran_us);
        self.paces.retain(|place, _| large.iter().any(|want| want.place == *place));
        for want in large {
            let times = Times { ran: ran(want), waited: waited(want), passed: passed_us };
            self.paces.entry(want.place).or_default().observe(times);
        }
        let others = || large.iter().filter(|want| !self.gets_on(want.place));
        let [waited_us, ran_us] = [others().map(waited).sum::<u64>(), others().map(ran).sum()];
        match waited_us > ran_us {
            true => self.paging_us = (self.paging_us + passed_us).min(PATIENCE_US),
            false => self.paging_us = self.paging_us.saturating_sub(passed_us),
        }
        if let Some(turn) = &mut self.turn
            && let Some(want) = large.iter().find(|want| want.place == turn.leader)
        {
            turn.observe(ran(want), waited(want), want.share_bytes, passed_us);
        }
        self.last = large.iter().map(|want| (want.place, *want)).collect();
    }

    /// Who leads now: the same as before, or the next one, of those that wait if any do.
    fn leader(&mut self, large: &[Want]) -> usize {
        let before = match &self.turn {
            Some(turn) if large.iter().any(|want| want.place == turn.leader) && !turn.is_over() => {
                return turn.leader;
            }
            Some(turn) => turn.leader,
            None => usize::MAX,
        };
        let at = large.iter().position(|want| want.place > before).unwrap_or(0);
        let circle = || large[at..].iter().chain(&large[..at]);
        let next = circle().find(|want| want.is_held).or_else(|| circle().next());
        let leader = next.expect("turns are of two at least").place;
        self.turn = Some(Turn::of(leader));
        self.left = self.left.saturating_sub(1);
        leader
    }
}

/// Does a process that needs so much take part at all?
pub fn is_large(total_bytes: u64, need_bytes: u64) -> bool {
    need_bytes > total_bytes / LARGE_SHARE
}

/// The leader, and those after it in the circle that fit beside.
fn gang(room_bytes: u64, leader: usize, large: &[Want]) -> BTreeSet<usize> {
    let at = large.iter().position(|want| want.place == leader).unwrap_or(0);
    let mut left = room_bytes;
    let mut gang = BTreeSet::new();
    for want in large[at..].iter().chain(&large[..at]) {
        if gang.is_empty() || want.need_bytes <= left {
            left = left.saturating_sub(want.need_bytes);
            gang.insert(want.place);
        }
    }
    gang
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TOTAL: u64 = 160 * MIB;
    const LOOK_US: u64 = 20_000;

    /// Processes of which one computes where it has its turn, and waits where not.
    struct Tree {
        turns: Turns,
        wants: Vec<Want>,
        now: Option<BTreeSet<usize>>,
    }

    impl Tree {
        fn new(needs: &[u64]) -> Tree {
            let want = |(place, mib): (usize, &u64)| Want {
                place,
                need_bytes: mib * MIB,
                ran_us: TURN_US_MAX,
                ..Want::default()
            };
            let wants = needs.iter().enumerate().map(want).collect();
            Tree { turns: Turns::default(), wants, now: None }
        }

        fn look(&mut self) -> Option<BTreeSet<usize>> {
            for want in &mut self.wants {
                match &self.now {
                    None => want.waited_us += LOOK_US,
                    Some(now) if now.contains(&want.place) => {
                        (want.ran_us, want.is_held) = (want.ran_us + LOOK_US, false)
                    }
                    Some(_) => want.is_held = true,
                }
            }
            self.now = self.turns.take(TOTAL, LOOK_US, &self.wants);
            self.now.clone()
        }

        /// Who had turns in that time, in their order.
        fn run(&mut self, us: u64) -> Vec<Vec<usize>> {
            let mut had: Vec<Vec<usize>> = Vec::new();
            for _ in 0..us / LOOK_US {
                if let Some(now) = self.look().map(|now| now.into_iter().collect::<Vec<_>>())
                    && had.last() != Some(&now)
                {
                    had.push(now);
                }
            }
            had
        }
    }

    /// *The story:* four compilers of 150 MiB had 35 each, and were not done after a hundred seconds.
    #[test]
    fn who_only_pages_has_its_turn_one_after_another() {
        let mut tree = Tree::new(&[150, 150, 150]);
        assert_eq!(tree.run(PATIENCE_US - LOOK_US), [[0; 0]; 0]);
        assert_eq!(tree.run(3 * TURN_US_MIN + TURN_US_MIN / 2), [[0], [1], [2], [0]]);
    }

    #[test]
    fn a_turn_that_brings_nothing_ends_soon() {
        let lasts = |computes_us: u64| {
            let mut turn = Turn::of(0);
            while !turn.is_over() {
                turn.observe(computes_us, LOOK_US - computes_us, MIB, LOOK_US);
            }
            turn.lasts_us
        };
        assert!((TRIAL_US..TRIAL_US + IDLE_US).contains(&lasts(LOOK_US / 4)));
        assert_eq!(lasts(LOOK_US * 5 / 8), TURN_US_MAX, "it gets on");
        assert_eq!(lasts(LOOK_US * 7 / 8), TURN_US_MIN, "it was worth it");
    }

    /// *The story:* of three that need 3 GiB in 4 nobody could bring them in within 2 s, page by page,
    /// and each lost what it had by then.
    #[test]
    fn a_turn_goes_on_while_pages_come_in() {
        let (mut turn, mut share_bytes) = (Turn::of(0), MIB);
        while !turn.is_over() {
            share_bytes += share_bytes / 50;
            turn.observe(0, LOOK_US, share_bytes, LOOK_US);
        }
        assert_eq!(turn.lasts_us, TURN_US_MAX);
    }

    /// Three only wait, and the fourth computes: it goes on, and they take turns.
    #[test]
    fn who_gets_on_is_left_alone() {
        let mut turns = Turns::default();
        let mut had = BTreeSet::new();
        for look in 0..400 {
            let wants: Vec<Want> = (0..4)
                .map(|place| Want {
                    place,
                    need_bytes: if place < 3 { 120 * MIB } else { 30 * MIB },
                    waited_us: if place < 3 { look * LOOK_US } else { 0 },
                    ran_us: if place < 3 { 0 } else { look * LOOK_US / 2 },
                    ..Want::default()
                })
                .collect();
            let Some(gang) = turns.take(TOTAL, LOOK_US, &wants) else { continue };
            assert!(gang.contains(&3) && gang.len() == 2, "{gang:?}");
            had.extend(gang);
        }
        assert_eq!(had.len(), 4);
    }

    #[test]
    fn as_many_as_fit_have_it_together() {
        let mut tree = Tree::new(&[90, 60, 90, 5]);
        tree.run(PATIENCE_US);
        assert_eq!(tree.run(4 * TURN_US_MIN)[..2], [[0, 1], [1, 2]]);
    }

    #[test]
    fn what_nearly_fits_or_does_not_only_page_takes_no_turns() {
        let mut tree = Tree::new(&[90, 80]);
        assert_eq!(tree.run(10 * PATIENCE_US), [[0; 0]; 0]);
        let mut tree = Tree::new(&[300, 10, 10]);
        assert_eq!(tree.run(10 * PATIENCE_US), [[0; 0]; 0], "one is large");
        let mut turns = Turns::default();
        for look in 0..1000 {
            let want = |place| Want {
                place,
                need_bytes: 150 * MIB,
                waited_us: look * LOOK_US / 3,
                ran_us: look * LOOK_US / 2,
                ..Want::default()
            };
            assert_eq!(turns.take(TOTAL, LOOK_US, &[want(0), want(1)]), None);
        }
    }

    /// What it takes to bring its pages back is paid for by a longer turn, up to a bound.
    #[test]
    fn a_turn_is_worth_its_costs() {
        let mut tree = Tree::new(&[150, 150]);
        tree.run(PATIENCE_US);
        for _ in 0..TURN_US_MIN / LOOK_US - 2 {
            tree.wants[0].waited_us += LOOK_US;
            tree.wants[0].ran_us -= LOOK_US;
            tree.look();
        }
        assert_eq!(tree.run(3 * TURN_US_MIN), [[0]]);
        assert_eq!(tree.run(TURN_US_MIN + TURN_US_MIN / 2), [[0], [1]]);
        for _ in 0..TURN_US_MAX / LOOK_US {
            tree.wants[1].waited_us += LOOK_US;
            tree.look();
        }
        assert_eq!(tree.look(), Some([0].into()));
    }

    /// A process that has its turn waits for another one that has none.
    #[test]
    fn who_does_nothing_loses_its_turn() {
        let mut tree = Tree::new(&[150, 150]);
        tree.run(PATIENCE_US);
        tree.run(TURN_US_MIN / 10);
        for _ in 0..2 * IDLE_US / LOOK_US {
            if tree.now.as_ref().is_some_and(|now| now.contains(&0)) {
                tree.wants[0].ran_us -= LOOK_US;
            }
            tree.look();
        }
        assert_eq!(tree.now, Some([1].into()));
    }

    /// What is large need not be used: hot parts may fit together where all does not.
    #[test]
    fn now_and_then_it_is_tried_without() {
        let mut tree = Tree::new(&[150, 150]);
        tree.run(PATIENCE_US);
        let turns = tree.run(2 * u64::from(ROUNDS) * TURN_US_MIN + TURN_US_MIN / 2).len();
        assert_eq!((turns, tree.now.clone()), (2 * ROUNDS as usize - 1, None));
    }

    #[test]
    fn turns_end_with_the_need() {
        let mut tree = Tree::new(&[150, 150]);
        tree.run(PATIENCE_US + LOOK_US);
        assert!(tree.now.is_some());
        tree.wants.pop();
        assert_eq!(tree.look(), None);
        tree.wants.push(Want { place: 7, need_bytes: 150 * MIB, ..Want::default() });
        assert_eq!(tree.look(), None, "it has to be seen again");
    }
}
