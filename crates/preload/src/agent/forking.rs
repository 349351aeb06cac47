//! The pause around a fork: everything comes in for it, and stays in while the next one may follow.
//!
//! *The story:* a pool of four is forked one worker after the other, within milliseconds. In between
//! the parent began to page out what it had just brought in. It shared that with the workers made
//! before, so each page was copied to leave; then all was brought in again for the next worker, and
//! each worker kept a full set of its own: a list of 300 MB in a budget of 200 held 1188 MiB.

use overspill_engine::shared::events;
use overspill_engine::{Engine, frames_of};
use overspill_sys::{PAGE_SIZE, clock};

use super::{Agent, Manager, own_ranges};
use crate::adopt::Adopter;
use crate::heir::{Heir, Legacy};
use crate::{aside, files, filters, fork, fresh, message, retire, veto};

use alloc::vec::Vec;

/// How often a paused agent looks whether the fork is over, and whether the next one comes.
const FORK_LOOK_NS: u64 = 100_000;
const NEXT_LOOK_NS: u64 = 1_000_000;
/// After so long no other fork follows; and that is waited for at most so long.
const NEXT_FORK_NS: u64 = 200_000_000;
const LINGER_NS_MAX: u64 = 2_000_000_000;
/// Pages that are copied to leave at a time: this share of the budget, or so many if that is more.
const COPIES_SHARE: u64 = 64;
const COPIES_MIN: u64 = 256;
/// ... which several processes do in parts, of so many at least.
const COPIES_LEAST: u64 = 32;
/// A child that inherits what is out reads so much of it without making room for that.
const YOUNG_BYTES: u64 = 1 << 20;
/// Who brought in less than this share of what it holds has little to bring in again.
const BROUGHT_SHARE: u32 = 16;
/// Others copy at the same time, on as many processors as are taken to be theirs; and so much of a pause is
/// for each of them, so that looking at all takes a twelfth of a processor at most.
const COPY_PROCESSORS: u64 = 2;
const COPY_LOOK_NS: u64 = 250_000;
/// Frames by which the program may grow meanwhile.
const GROWTH_MAX: u32 = 512;

/// Whether a pause is to last beyond its fork.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Linger {
    /// Pages that the fork brings in.
    brought: u32,
    /// Frames when all were in; 0: they are not yet.
    frames: u32,
    /// Forks that had ended when it was looked last.
    ended: u32,
    /// When the next fork must have come, and when this is over whatever comes; 0: no fork has ended.
    until: u64,
    at_most: u64,
}

impl Linger {
    /// A pause begins, of a process that has so many pages out, when so many of its forks have ended.
    fn begin(out: u32, ended: u32) -> Linger {
        Linger { brought: out, ended, ..Linger::default() }
    }

    /// Is the pause to go on? At `now` `ended` forks have ended, and `frames` are held, managed or not.
    /// To be asked while no fork is under way.
    ///
    /// *The story* (by reading): only what was managed was counted. A program that forked a worker and
    /// filled fresh memory then, which nobody manages meanwhile, did so without any bound.
    fn goes_on(&mut self, now: u64, ended: u32, frames: u32) -> bool {
        if self.frames == 0 {
            self.frames = frames;
        }
        if ended != self.ended {
            self.ended = ended;
            self.until = now + NEXT_FORK_NS;
            if self.at_most == 0 {
                self.at_most = now + LINGER_NS_MAX;
            }
        }
        let is_worth_it = self.brought > self.frames / BROUGHT_SHARE;
        is_worth_it && now < self.until.min(self.at_most) && frames <= self.frames + GROWTH_MAX
    }

    /// How long the agent may look away.
    pub(super) fn look_ns(&self) -> u64 {
        if self.until > 0 && !fork::is_under_way() { NEXT_LOOK_NS } else { FORK_LOOK_NS }
    }
}

/// A copy of its parent begins with what it holds, `bytes`, and goes down from there by steps.
pub(super) fn begin_with(engine: &mut Engine, bytes: u64) {
    let held = frames_of(bytes);
    engine.set_budget(engine.budget().max(held));
}

impl Agent {
    /// How long nobody need look at a copy that could store to all it shares, while others might, too.
    ///
    /// *The story:* twenty workers looked at what they had in common for two seconds, with 23 MiB free, and
    /// stored to it then, all at once. Each agent slept for as long as its own worker would need for
    /// what is free, or until a timer that is as late as a tick of each worker's own time: 60 MiB
    /// were copied before the first looked.
    pub(super) fn copy_pause_ns(&self, pause_ns: u64) -> u64 {
        let sharers = u64::from(self.purse.sharers());
        (pause_ns / COPY_PROCESSORS).max(sharers * COPY_LOOK_NS)
    }

    /// Manages what the parent had out, before anything in this process touches it. None: all of that is in.
    pub(super) fn inherit(
        &self,
        engine: &mut Engine,
        adopter: &mut Adopter,
        mut heir: Heir,
        Legacy { estate, .. }: &Legacy,
    ) -> Option<Heir> {
        if !(adopter.finds(&estate.regions) && heir.commit()) {
            return None;
        }
        engine.note_sharing();
        begin_with(engine, self.resident().anon_bytes + YOUNG_BYTES);
        if adopter.inherit(engine, &estate.regions).is_err() {
            // What is out would show zeroes.
            message::end_with("what is on swap cannot be managed in a child of fork");
        }
        engine.inherit(estate);
        Some(heir)
    }
}

impl Manager<'_> {
    /// Is this a copy that may call exec at once? It makes no room as yet.
    ///
    /// *The story:* a child that inherits what is out is managed from its first moment. It held what its
    /// parent did, twice the budget by then, and each store of Python's own part of a fork waited until there
    /// was room: a fork with exec took 220 ms where it had taken 20, in bash 280.
    pub(super) fn is_young(&self, now: u64) -> bool {
        now < self.agent.counts_from
    }

    /// What the budget is to be next on its way down to `budget`: what may be shared leaves as a copy,
    /// and no more of them are made before the last ones are out.
    ///
    /// *The story:* a worker had all but a few of 365 MiB to page out. All of it was copied before the
    /// first page was written, and four workers held 1100 MiB in a budget of 200.
    pub(super) fn in_steps(&mut self, budget: u32) -> u32 {
        let step = (self.agent.ram() / COPIES_SHARE / PAGE_SIZE as u64).max(COPIES_MIN);
        let step = (step / u64::from(self.agent.purse.sharers())).max(COPIES_LEAST) as u32;
        let next = self.engine.frames().saturating_sub(step);
        self.goes_down = self.engine.may_share() && budget < next;
        // Else all that might be shared was, and nothing is copied.
        self.engine.copies_to_take(self.goes_down && self.agent.purse.borrows());
        if self.goes_down { next.min(self.engine.budget()).max(budget) } else { budget }
    }

    /// A fork comes: what is on swap stays there if children can inherit it, and that is worth it.
    pub(super) fn pause(&mut self) {
        self.begin_pause();
        // Behind a filter no child has an agent.
        let may_be_out = !(fork::wants_all() || filters::is_filtered());
        if may_be_out && self.engine.can_hand_over() {
            // Who forks, and its child, wait for this thread at each step.
            self.hurry(true);
            self.engine.pause_out();
        } else {
            self.hurry(false);
            self.engine.pause();
        }
    }

    /// A fork is under way that did not ask: everything comes in.
    pub(super) fn pause_whole(&mut self) {
        self.begin_pause();
        self.hurry(false);
        self.engine.pause();
    }

    fn begin_pause(&mut self) {
        self.engine.report().note_event(events::FORKED);
        self.engine.note_sharing();
        self.end_halt();
        self.linger = Linger::begin(self.engine.mm().pages_swapped(), fork::ended());
    }

    /// Children are being made that inherit what is out.
    pub(super) fn is_attending(&self) -> bool {
        self.engine.is_handing_over() && fork::is_under_way()
    }

    /// Everything is in: children may have it.
    pub(super) fn permit_forks(&self) {
        let mut own = Vec::new();
        own_ranges(&self.engine)(&mut own);
        veto::permit(&mut own, self.adopter.maps(), &self.engine);
    }

    /// What may be out is not for children, unless the kernel tells of them.
    ///
    /// *The story:* this began before forks rang. One that was on its way into the kernel by then was
    /// refused, though nothing was out.
    pub(super) fn forbid_forks(&mut self) {
        if !self.engine.hears_forks() && !core::mem::replace(&mut self.forbids, true) {
            veto::set_up();
        }
        veto::forbid(&self.engine);
    }

    /// Ends a pause when no fork is under way, and none is likely to follow. The doorbell comes
    /// first: nobody waits at it while the pause lasts.
    pub(super) fn after_fork(&mut self) {
        self.note_settled();
        fork::count_told();
        if fork::wants_all() && self.engine.is_handing_over() {
            self.engine.pause();
        }
        if !self.hands_back
            && !retire::is_asked()
            && !fork::is_under_way()
            && !self.lingers()
            && self.engine.rearm_doorbell(fork::doorbells().start)
            && fork::may_resume()
        {
            self.forbid_forks();
            self.engine.resume_after_fork();
        }
    }

    /// Children of whose making the kernel has told are on their own, or have all.
    fn note_settled(&mut self) {
        if fork::is_child_awaited() {
            let made = fork::made();
            // What was read of before that may not be handled yet.
            self.engine.handle_changes();
            fork::note_settled(made);
        }
    }

    /// Who waits for fresh memory to be managed comes first, or for a file to be mapped. So does who has made
    /// too many copies: where pages stayed out the fork itself holds no more than there was.
    ///
    /// *The story:* nothing left, and no store was held, for 200 ms after a fork. The program stored to all
    /// that it had in view, which its child had, too: 80 to 110 MiB in 64, and all of it was known.
    fn lingers(&mut self) -> bool {
        let held = self.engine.frames().saturating_add(aside::frames(self.stray_growth));
        let goes_on = self.linger.goes_on(clock::monotonic_ns(), fork::ended(), held);
        let is_too_much = self.engine.is_handing_over() && self.copies_far_too_much();
        goes_on && !is_too_much && !fresh::is_awaited(fresh::asked()) && !files::is_pause_in_the_way()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_next_fork_is_waited_for_and_the_one_after_it() {
        let mut linger = Linger::begin(1000, 0);
        assert!(!linger.goes_on(MS, 0, 4000), "no fork has ended: it was given up");
        assert!(linger.goes_on(2 * MS, 1, 4000));
        assert!(linger.goes_on(201 * MS, 1, 4000));
        assert!(linger.goes_on(201 * MS, 2, 4000));
        assert!(linger.goes_on(400 * MS, 2, 4000));
        assert!(!linger.goes_on(402 * MS, 2, 4000), "no fork follows");
    }

    #[test]
    fn it_is_over_whoever_goes_on_forking() {
        let mut linger = Linger::begin(1000, 0);
        let forks = (1..1000).take_while(|&n| linger.goes_on(u64::from(n) * 10 * MS, n, 4000));
        assert_eq!(forks.count(), 200);
    }

    #[test]
    fn it_is_over_when_the_program_grows_or_had_little_out() {
        let mut linger = Linger::begin(1000, 0);
        assert!(linger.goes_on(MS, 1, 4000));
        assert!(!linger.goes_on(2 * MS, 1, 4600));
        assert!(!Linger::begin(100, 0).goes_on(MS, 1, 4000));
    }
}
