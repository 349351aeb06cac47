//! Divides the budget of a tree between its processes, by need: a pure value, with no clock and no
//! memory but its own.
//!
//! Agents take what is free by themselves (`overspill_engine::purse`). Only where nothing is free
//! and somebody pages does it matter who has it: then each process that is managed gets a limit.
//! That a process needs more shows in how long it waits for pages and in those that it has to page
//! out for new ones. What a frame is worth to it depends on what it lacks: one more is worth most
//! to whom few are missing, for with them it runs, and without them it waits nearly as long as one
//! that lacks ten times as many. So need counts by what is missing (to give each as much more speed
//! as another loses is to make the sum of the logarithms of their speeds as large as can be), and
//! nobody gets more than it wants.
//!
//! One that idles gives up what it has, step by step, down to a floor. One that computes and does
//! not wait may need all it has: it gives up little at first, and twice as much each time until it
//! waits. The limits of those that need more add up to what there is; who grows without having paged
//! may take what is spare.

use std::collections::{BTreeMap, BTreeSet};

use super::pace::{Pace, Times};
use super::turns::{self, Turns, Want};

/// What is left to a process that does nothing.
const FLOOR_BYTES: u64 = 4 << 20;
/// ... or this share of an equal part, if that is less.
const FLOOR_SHARE: u64 = 4;
/// A process gives up this part of the budget at a time.
const STEP_SHARE: u64 = 16;
/// Of what was needed before this part still counts, in eighths.
const MEMORY_EIGHTHS: u64 = 6;
/// Who computes gives up this part of the budget at first.
const FIRST_STEP_SHARE: u64 = 1024;
/// ... which is who computes for more than this part of the time.
const IDLE_SHARE: u64 = 16;
/// Who waits for more than this part of the time lacks what it gave up.
const PAIN_SHARE: u64 = 64;
/// Nobody lacks less than this part of the budget, as far as need is concerned.
const LACK_SHARE: u64 = 64;
/// Need is in parts of a page's wait, so that little of it is not none.
const NEED_PARTS: u64 = 1 << 10;
/// What was read in counts for less by this part at each look.
const READ_SHARE: u64 = 16;
/// While less than this part of the budget is free the rest is divided.
const FREE_SHARE: u64 = 4;
/// ... and while less than this is, others give up what they have.
const GIVEN_SHARE: u64 = 32;

/// What is known of a managed process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its key.
    pub place: usize,
    /// What it has of the budget.
    pub share_bytes: u64,
    /// What of that cannot be paged.
    pub fixed_bytes: u64,
    /// Pages that came back to it, and that it has paged out, since it began.
    pub read: u64,
    pub paged_out: u64,
    /// Microseconds in which it waited for pages.
    pub waited_us: u64,
    /// Microseconds in which it computed.
    pub ran_us: u64,
    /// What it would hold with RAM enough.
    pub need_bytes: u64,
    /// Somebody in it waits for its turn.
    pub is_held: bool,
}

/// What a process is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its key.
    pub place: usize,
    /// What it may have; 0: no limit.
    pub limit_bytes: u64,
    /// It has no turn.
    pub holds: bool,
}

/// The books of the division.
#[derive(Default)]
pub struct Divider {
    known: BTreeMap<usize, Known>,
    turns: Turns,
}

struct Known {
    last: Member,
    pace: Pace,
    is_idle: bool,
    /// Read in of late: it lacks no more.
    read_bytes: u64,
    /// How much it needs more, in pages for each look and smoothed.
    need: u64,
    /// What it gives up at a time, and whether it was told to.
    step_bytes: u64,
    gave_up: bool,
}

impl Divider {
    /// A look, `passed_us` after the one before: `free_bytes` are nobody's, `total_bytes` is the budget.
    pub fn divide(
        &mut self,
        total_bytes: u64,
        free_bytes: i64,
        passed_us: u64,
        members: &[Member],
    ) -> Vec<Word> {
        let wants: Vec<Want> = members.iter().map(want).collect();
        let all: u64 = members.iter().map(|member| member.share_bytes).sum();
        let all = all.saturating_add_signed(free_bytes);
        let turn = self.turns.take(total_bytes, passed_us, &wants);
        let limits = self.limits(total_bytes, free_bytes, passed_us, members);
        match turn {
            Some(gang) => {
                self.known.values_mut().for_each(|known| known.gave_up = false);
                take_turns(total_bytes, all, members, &gang)
            }
            None => limits
                .into_iter()
                .map(|(place, limit_bytes)| Word { place, limit_bytes, holds: false })
                .collect(),
        }
    }

    /// The limits by place, by need; 0: none.
    fn limits(
        &mut self,
        total_bytes: u64,
        free_bytes: i64,
        passed_us: u64,
        members: &[Member],
    ) -> Vec<(usize, u64)> {
        self.known.retain(|place, _| members.iter().any(|member| member.place == *place));
        for member in members {
            self.observe(total_bytes, passed_us, member);
        }
        let wants = members.iter().any(|member| self.known[&member.place].need > 0);
        if members.len() < 2 || !wants || !is_tight(total_bytes, free_bytes) {
            return members.iter().map(|member| (member.place, 0)).collect();
        }
        let shares: u64 = members.iter().map(|member| member.share_bytes).sum();
        let all = shares.saturating_add_signed(free_bytes);
        let targets = self.targets(total_bytes, all, members);
        // What those take who need more comes out of what is free first. Who can take it slowly only,
        // page by page, finds it there.
        let needy = |member: &Member| self.known[&member.place].need > 0;
        let wanting = members.iter().zip(&targets).filter(|(member, _)| needy(member));
        let more = wanting.map(|(member, target)| target.saturating_sub(member.share_bytes));
        let (count, more) = more.fold((0, 0), |(count, sum), more| (count + 1, sum + more.cast_signed()));
        let spare_bytes = (free_bytes - more).max(0).cast_unsigned();
        let gives = more > free_bytes && free_bytes < (total_bytes / GIVEN_SHARE).cast_signed();
        let mut limit = |member: &Member, target: u64| {
            let known = self.known.get_mut(&member.place).expect("all were observed");
            // Who grows and has not paged yet need not begin with it.
            let spare_bytes = spare_bytes / if known.need > 0 { count } else { 1 };
            known.gave_up = target < member.share_bytes && gives;
            let step_bytes = if known.gave_up { known.step_bytes } else { 0 };
            (target.max(member.share_bytes.saturating_sub(step_bytes)) + spare_bytes).max(1)
        };
        members.iter().zip(targets).map(|(member, target)| (member.place, limit(member, target))).collect()
    }

    fn observe(&mut self, total_bytes: u64, passed_us: u64, member: &Member) {
        let largest = (total_bytes / STEP_SHARE).max(1 << 20);
        let smallest = (total_bytes / FIRST_STEP_SHARE).max(1 << 16);
        let first = Known {
            last: *member,
            pace: Pace::default(),
            is_idle: false,
            read_bytes: 0,
            need: 0,
            step_bytes: smallest,
            gave_up: false,
        };
        let known = self.known.entry(member.place).or_insert(first);
        let paged_out = member.paged_out.saturating_sub(known.last.paged_out);
        let read = member.read.saturating_sub(known.last.read);
        let waited_us = member.waited_us.saturating_sub(known.last.waited_us);
        let ran_us = member.ran_us.saturating_sub(known.last.ran_us);
        known.last = *member;
        known.read_bytes = known.read_bytes - known.read_bytes / READ_SHARE + read * 4096;
        known.pace.observe(Times { ran: ran_us, waited: waited_us, passed: passed_us });
        let is_little = |us: u64, of: u64| us < of / IDLE_SHARE;
        let was_idle = core::mem::replace(&mut known.is_idle, {
            let last = known.pace.last();
            is_little(ran_us + waited_us, passed_us)
                && last.is_some_and(|last| is_little(last.ran + last.waited, last.passed))
        });
        // A wait of 100 us is a page's.
        let lack_bytes = known.lack_bytes();
        let need = (paged_out + waited_us / 100) * NEED_PARTS / in_64ths(total_bytes, lack_bytes);
        known.need = (known.need * MEMORY_EIGHTHS + need * (8 - MEMORY_EIGHTHS)) / 8;
        let gave_up = core::mem::take(&mut known.gave_up);
        known.step_bytes = match () {
            () if known.is_idle => largest,
            // The more it lacks the less it misses what it gives.
            () if waited_us > passed_us / PAIN_SHARE => (lack_bytes / 8).clamp(smallest, largest),
            () if was_idle => smallest,
            () if gave_up => (known.step_bytes * 2).min(largest),
            () => known.step_bytes,
        };
    }

    /// What each is to have in the end: what cannot be paged, a floor, and of the rest by need, but
    /// no more than it wants while others want more. They add up to `all` at most, if so much can be
    /// paged.
    fn targets(&self, total_bytes: u64, all: u64, members: &[Member]) -> Vec<u64> {
        let count = members.len() as u64;
        let fixed: u64 = members.iter().map(|member| member.fixed_bytes).sum();
        let all = all.saturating_sub(fixed);
        let floor = FLOOR_BYTES.min(all / count / FLOOR_SHARE);
        // Who is told what it wants exactly would wait for each page that is new.
        let wanted = |member: &Member| {
            let wanted = member.need_bytes.max(member.share_bytes);
            let wanted = wanted + (wanted / 8 + (1 << 20)).min(total_bytes / STEP_SHARE);
            wanted.saturating_sub(member.fixed_bytes + floor)
        };
        let needs = members.iter().map(|member| (self.known[&member.place].need, wanted(member)));
        let parts = by_need(all - floor * count, &needs.collect::<Vec<_>>());
        members.iter().zip(parts).map(|(member, part)| member.fixed_bytes + floor + part).collect()
    }
}

impl Known {
    /// What it lacks, as far as it was read in of late: who has much that it never touches does not
    /// lack that.
    fn lack_bytes(&self) -> u64 {
        self.last.need_bytes.saturating_sub(self.last.share_bytes).min(self.read_bytes)
    }
}

fn is_tight(total_bytes: u64, free_bytes: i64) -> bool {
    free_bytes < (total_bytes / FREE_SHARE).cast_signed()
}

/// That many bytes, in 64ths of the budget: 1 at least.
fn in_64ths(total_bytes: u64, bytes: u64) -> u64 {
    (bytes * LACK_SHARE).div_ceil(total_bytes.max(1)).max(1)
}

/// Divides `rest` by need, given with what each wants at most.
fn by_need(rest: u64, needs: &[(u64, u64)]) -> Vec<u64> {
    let mut parts: Vec<Option<u64>> = vec![None; needs.len()];
    loop {
        let open = || needs.iter().zip(&parts).filter(|(_, part)| part.is_none());
        let left = rest - parts.iter().flatten().sum::<u64>();
        let sum: u64 = open().map(|((need, _), _)| need).sum();
        let part = |need: u64| (u128::from(left) * u128::from(need) / u128::from(sum.max(1))) as u64;
        let full: Vec<usize> =
            (0..needs.len()).filter(|&at| parts[at].is_none() && part(needs[at].0) > needs[at].1).collect();
        if full.is_empty() {
            return needs.iter().zip(&parts).map(|((need, _), full)| full.unwrap_or(part(*need))).collect();
        }
        full.into_iter().for_each(|at| parts[at] = Some(needs[at].1));
    }
}

fn want(member: &Member) -> Want {
    Want {
        place: member.place,
        need_bytes: member.need_bytes,
        share_bytes: member.share_bytes,
        waited_us: member.waited_us,
        ran_us: member.ran_us,
        is_held: member.is_held,
    }
}

/// Those of the gang have no limit, the small ones neither; the others have in equal parts what
/// these leave, and a floor.
fn take_turns(total_bytes: u64, all: u64, members: &[Member], gang: &BTreeSet<usize>) -> Vec<Word> {
    let holds =
        |member: &Member| turns::is_large(total_bytes, member.need_bytes) && !gang.contains(&member.place);
    let taken = |member: &Member| match gang.contains(&member.place) {
        true => (member.need_bytes + total_bytes / STEP_SHARE).max(member.share_bytes),
        false => member.share_bytes,
    };
    let wanted: u64 = members.iter().filter(|member| !holds(member)).map(taken).sum();
    let others = members.iter().filter(|member| holds(member)).count() as u64;
    let fixed: u64 = members.iter().filter(|member| holds(member)).map(|member| member.fixed_bytes).sum();
    let floor = FLOOR_BYTES.min(all / members.len() as u64 / FLOOR_SHARE).max(1);
    let part = (all.saturating_sub(wanted + fixed) / others.max(1)).max(floor);
    let word = |member: &Member| {
        let holds = holds(member);
        let limit_bytes = if holds { member.fixed_bytes + part } else { 0 };
        Word { place: member.place, limit_bytes, holds }
    };
    members.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TOTAL: u64 = 160 * MIB;
    const LOOK_US: u64 = 20_000;

    /// Processes that follow their limits, of which each pages as much as it has too little.
    struct Tree {
        divider: Divider,
        members: Vec<Member>,
        /// What each would hold with RAM enough; 0: it idles.
        wants: Vec<u64>,
    }

    impl Tree {
        fn new(shares: &[u64], wants: &[u64]) -> Tree {
            let member = |(place, (share, want)): (usize, (&u64, &u64))| Member {
                place,
                share_bytes: share * MIB,
                need_bytes: want * MIB,
                ..Member::default()
            };
            Tree {
                divider: Divider::default(),
                members: shares.iter().zip(wants).enumerate().map(member).collect(),
                wants: wants.iter().map(|mib| mib * MIB).collect(),
            }
        }

        fn run(&mut self, turns: u32) {
            for _ in 0..turns {
                let free = TOTAL - self.members.iter().map(|member| member.share_bytes).sum::<u64>();
                let limits = limits(&mut self.divider, free.cast_signed(), &self.members);
                assert_eq!(limits.len(), self.members.len());
                let mut free = free;
                for (member, (_, limit)) in self.members.iter_mut().zip(&limits) {
                    let limit = if *limit == 0 { TOTAL } else { *limit };
                    if member.share_bytes > limit {
                        free += member.share_bytes - limit;
                        member.share_bytes = limit;
                    }
                }
                for (index, (_, limit)) in limits.iter().enumerate() {
                    let member = &mut self.members[index];
                    let limit = if *limit == 0 { TOTAL } else { *limit };
                    let more = limit.min(self.wants[index]).saturating_sub(member.share_bytes).min(free);
                    member.share_bytes += more;
                    free -= more;
                    let lacks = self.wants[index].saturating_sub(member.share_bytes);
                    let waited_us = (lacks * LOOK_US / MIB).min(LOOK_US * 9 / 10);
                    member.waited_us += waited_us;
                    member.read += lacks / 4096;
                    member.ran_us += if self.wants[index] == 0 { 0 } else { LOOK_US - waited_us };
                }
                let sum: u64 = self.members.iter().map(|member| member.share_bytes).sum();
                assert!(sum <= TOTAL, "{sum}");
            }
        }

        fn shares(&self) -> Vec<u64> {
            self.members.iter().map(|member| member.share_bytes / MIB).collect()
        }
    }

    /// The limits where no turns are taken.
    fn limits(divider: &mut Divider, free_bytes: i64, members: &[Member]) -> Vec<(usize, u64)> {
        divider.limits(TOTAL, free_bytes, LOOK_US, members)
    }

    /// *The story:* four compilers, each with a quarter of what it needs, went on reading back what
    /// they had written out.
    #[test]
    fn who_has_its_turn_gets_what_it_needs() {
        let mut divider = Divider::default();
        let member =
            |place| Member { place, share_bytes: 50 * MIB, need_bytes: 120 * MIB, ..Member::default() };
        let mut members = [member(0), member(1), member(2)];
        let small = Member { place: 3, share_bytes: 2 * MIB, need_bytes: 2 * MIB, ..Member::default() };
        let mut words = Vec::new();
        for _ in 0..200 {
            members.iter_mut().for_each(|member| member.waited_us += 20_000);
            words =
                divider.divide(TOTAL, 8 * MIB as i64, 20_000, &[members[0], members[1], members[2], small]);
            if words.iter().any(|word| word.holds) {
                break;
            }
        }
        let told = |place: usize| (words[place].limit_bytes, words[place].holds);
        assert_eq!([told(0), told(3)], [(0, false); 2]);
        assert_eq!([told(1), told(2)], [(14 * MIB, true); 2], "160 less 130 and 2");
    }

    #[test]
    fn who_is_alone_or_need_not_page_has_no_limit() {
        let mut divider = Divider::default();
        let one = [Member { share_bytes: TOTAL, waited_us: 7, ..Member::default() }];
        assert_eq!(limits(&mut divider, 0, &one), [(0, 0)]);
        let two = [one[0], Member { place: 1, ..Member::default() }];
        assert_eq!(limits(&mut divider, 0, &two), [(0, 0), (1, 0)]);
    }

    /// One that idles had filled the budget; another one comes.
    #[test]
    fn an_idle_process_gives_up_what_it_has() {
        let mut tree = Tree::new(&[158, 2], &[0, 150]);
        tree.run(40);
        let shares = tree.shares();
        assert!(shares[0] <= 14 && shares[1] >= 140, "{shares:?}");
    }

    /// What a process cannot page it keeps, and it is nobody else's.
    #[test]
    fn what_cannot_be_paged_is_no_part_of_the_division() {
        let mut divider = Divider::default();
        let fixed = 40 * MIB;
        let idle = Member { share_bytes: 60 * MIB, fixed_bytes: fixed, ..Member::default() };
        let busy = |waited_us| Member { place: 1, share_bytes: 100 * MIB, waited_us, ..Member::default() };
        let mut idle_limit = 0;
        for look in 0..20 {
            let members =
                [Member { share_bytes: idle.share_bytes - look * MIB, ..idle }, busy(look * LOOK_US)];
            idle_limit = limits(&mut divider, 0, &members)[0].1;
        }
        assert!((fixed + MIB..fixed + 5 * MIB).contains(&idle_limit), "{}", idle_limit / MIB);
    }

    #[test]
    fn equal_needs_end_as_equal_shares() {
        let mut tree = Tree::new(&[150, 5, 5], &[300, 300, 300]);
        tree.run(100);
        let shares = tree.shares();
        assert!(shares.iter().all(|share| (45..=62).contains(share)), "{shares:?}");
    }

    /// *The story:* need was the number of pages that came back. Beside three processes that went
    /// through 128 MiB each, in order and read ahead, one that touched 77 MiB at random had 20 of
    /// 128: a hundredth of its speed, where the kernel leaves it half.
    #[test]
    fn who_lacks_little_is_let_run() {
        let mut tree = Tree::new(&[50, 50, 50, 10], &[160, 160, 160, 77]);
        tree.run(100);
        for _ in 0..100 {
            tree.run(1);
            let shares = tree.shares();
            assert!(shares[3] >= 75 && shares.iter().all(|share| *share >= 15), "{shares:?}");
        }
    }

    /// What one that computes gives up and does not miss is the others'; what it misses it gets back.
    #[test]
    fn who_does_not_wait_gives_up_what_it_can_do_without() {
        let mut tree = Tree::new(&[120, 40], &[60, 300]);
        let mut least = |looks: u32| {
            let one = |_| {
                tree.run(1);
                tree.shares()[0]
            };
            (0..looks).map(one).min().expect("there are looks")
        };
        let (at_first, later) = (least(100), least(200));
        assert!(at_first >= 50, "{at_first}: it came down in steps, of which the last was too many");
        assert!((57..=60).contains(&later) && tree.shares()[1] >= 90, "{later}, {:?}", tree.shares());
    }

    /// One that grows beside many that sleep takes what is free, although a third waits for pages.
    #[test]
    fn what_is_spare_is_had_by_who_grows() {
        let mut divider = Divider::default();
        let member = |place, share: u64, need: u64| Member {
            place,
            share_bytes: share * MIB,
            need_bytes: need * MIB,
            ..Member::default()
        };
        let asleep = (2..60).map(|place| member(place, 0, 0));
        let mut members: Vec<Member> =
            [member(0, 70, 72), member(1, 60, 60)].into_iter().chain(asleep).collect();
        let mut told = Vec::new();
        for _ in 0..3 {
            members[0].waited_us += LOOK_US / 2;
            told = limits(&mut divider, 30 * MIB as i64, &members);
        }
        let [waits, grows] = [told[0].1 / MIB, told[1].1 / MIB];
        assert!(waits >= 72 && grows >= 70, "{waits} and {grows}");
    }

    #[test]
    fn parts_go_by_need_and_end_where_no_more_is_wanted() {
        assert_eq!(by_need(100, &[(1, 90), (3, 90)]), [25, 75]);
        assert_eq!(by_need(100, &[(1, 90), (3, 20), (1, 30)]), [50, 20, 30]);
        assert_eq!(by_need(100, &[(0, 90), (3, 20)]), [0, 20]);
        assert_eq!(by_need(100, &[]), [0; 0]);
    }

    /// A share goes down by no more than a sixteenth of the budget at a time, and never below the floor.
    #[test]
    fn limits_go_down_in_steps_to_a_floor() {
        let mut divider = Divider::default();
        let members = |waited_us| {
            let idle = Member { place: 3, share_bytes: 150 * MIB, ..Member::default() };
            [idle, Member { place: 9, share_bytes: 10 * MIB, waited_us, ..Member::default() }]
        };
        for look in 0..20 {
            limits(&mut divider, 0, &members(look * LOOK_US));
        }
        assert_eq!(limits(&mut divider, 0, &members(20 * LOOK_US))[0], (3, 140 * MIB));
        let tiny = [Member { share_bytes: 5 * MIB, ..members(0)[0] }, members(21 * LOOK_US)[1]];
        assert_eq!(limits(&mut divider, 0, &tiny)[0].1, 15 * MIB / 2 / FLOOR_SHARE);
    }
}
