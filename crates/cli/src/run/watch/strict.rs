//! `--strict`: what ends the run, and how.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Watcher;
use crate::human;
use crate::run::report::verdict;
use crate::run::tree::descendants::Look;

/// What nobody can page may be more than the budget for so long.
const EXCESS_NS: u64 = 300_000_000;
/// When a run has been refused nobody is left once so many looks in a row have seen nobody. Who waits
/// for a disk may take longer to end than anybody has patience.
const LOOKS_UNSEEN: u32 = 3;
const END_PAUSE: Duration = Duration::from_millis(2);
const END_PATIENCE: Duration = Duration::from_secs(5);

impl Watcher {
    /// Ends the run for the sake of what is not managed: from then on whoever is seen.
    ///
    /// *The story:* those were ended that had been looked at before somebody was found without a limit.
    /// What was forked meanwhile ran on, without a launcher.
    pub(super) fn refuse(&mut self, looks: &[Look]) {
        if self.refused.is_none() {
            let now = self.began.elapsed().as_nanos() as u64;
            self.refused = self.census.unkept().or_else(|| self.excess(looks, now));
        }
        if self.refused.is_some() {
            self.end(looks);
        }
    }

    fn end(&mut self, looks: &[Look]) {
        for look in looks {
            if self.descendants.is_still(look.pid) {
                let _ = kill(Pid::from_raw(look.pid as i32), Signal::SIGKILL);
            }
        }
    }

    /// Goes on until nobody is left, as far as that can be waited for.
    pub(super) fn end_all(&mut self) {
        let began = Instant::now();
        let mut unseen = 0;
        while unseen < LOOKS_UNSEEN && began.elapsed() < END_PATIENCE {
            let looks = self.descendants.look();
            self.descendants.reap();
            self.end(&looks);
            unseen = if looks.is_empty() { unseen + 1 } else { 0 };
            std::thread::sleep(END_PAUSE);
        }
    }

    /// Is what nobody can page more than the budget, and not for an instant only?
    ///
    /// *The story:* the heap of a Java that shares it with itself was four times the budget.
    ///
    /// *The other story:* what a hundred processes of a database share counted once for each that had
    /// not been asked of late. So all are asked before anybody is ended.
    fn excess(&mut self, looks: &[Look], now: u64) -> Option<String> {
        let bound = verdict::bound_bytes(self.options.ram_bytes, looks.len() as u64);
        if self.unpaged_bytes <= bound {
            self.excess_ns = None;
            return None;
        }
        let since = *self.excess_ns.get_or_insert(now);
        if now - since < EXCESS_NS {
            return None;
        }
        self.excess_ns = None;
        let held = self.unpaged_afresh(looks)?;
        let others = if self.census.has_other_runs() { "or another run's, " } else { "" };
        let held_text = human::bytes(held);
        let text = || format!("{held_text} in RAM are shared memory, {others}or nobody can page them");
        (held > bound).then(text)
    }

    /// The same after all were asked. Of whom nobody tells what it has by itself, nothing is counted.
    fn unpaged_afresh(&mut self, looks: &[Look]) -> Option<u64> {
        for look in looks {
            self.extras.read_afresh(look);
        }
        self.families.walk_now(looks, &self.extras);
        self.unmapped.ask(looks, &self.mapped(looks));
        let mut managed = self.page.reports().ok()?;
        managed.retain(|report| !report.is_over);
        let tells = |look: &&Look| !self.families.sharing().is_silent(look.pid);
        let sightings = self.sightings(looks.iter().filter(tells));
        Some(self.unpaged_bytes(&sightings, &managed))
    }
}
