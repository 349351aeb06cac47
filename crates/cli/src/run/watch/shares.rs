//! The budget of the tree: what agents have of it, and what the launcher has for those that have none.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use overspill_engine::shared::state;
use overspill_engine::turnstile::HOLD_NS_MAX;
use overspill_sys::clock;

use super::families::Families;
use super::needs::Known;
use super::shared_bytes;
use crate::run::dividing::divider::{Divider, Member, Word};
use crate::run::shared_page::{Report, SharedPage};
use crate::run::tree::census::Sighting;
use crate::run::tree::descendants::{Look, processor_us};

/// Shared memory leaves so much of the budget to the rest.
const LEFT_SHARE: u64 = 16;

/// The books.
pub struct Shares {
    page: Arc<SharedPage>,
    ram_bytes: u64,
    divider: Divider,
    /// When it divided last.
    divided: Instant,
    /// What ended processes had of the budget.
    returned_bytes: u64,
}

impl Shares {
    /// Of a budget that agents find on that page.
    pub fn new(page: Arc<SharedPage>, ram_bytes: u64) -> Shares {
        let returned_bytes = page.returned_bytes().unwrap_or(0);
        Shares { page, ram_bytes, divider: Divider::default(), divided: Instant::now(), returned_bytes }
    }

    /// It has ended, and gives back what it had. Others have its place.
    pub fn take_back(&mut self, report: &Report) -> io::Result<()> {
        let share_bytes = self.page.share_bytes(report)?;
        self.page.release(report.claim())?;
        // Killed in between this process has lost it, and not given it back twice.
        self.returned_bytes += share_bytes;
        self.page.set_returned_bytes(self.returned_bytes)
    }

    /// Tells what nobody has, and how many there are that want some.
    pub fn tell_pool(
        &self,
        looks: &[Look],
        sightings: &[Sighting],
        managed: &[Report],
        known: &Known<'_>,
    ) -> io::Result<()> {
        self.page.set_launcher_bytes(self.own_part(looks, sightings, managed, known))?;
        self.page.set_crowded(Report::crowd(managed, self.ram_bytes))
    }

    /// The launcher's part of the pool: what nobody else has. Shared memory stays, and leaves less for the
    /// rest; but something, as to page all of that would bring the budget no nearer.
    ///
    /// *The story:* beside 60 MiB of shared memory a program had all of 100 MiB for the rest. 120 were held
    /// and nothing was paged.
    fn own_part(&self, looks: &[Look], sightings: &[Sighting], managed: &[Report], known: &Known<'_>) -> i64 {
        let is_managed =
            |look: &Look| managed.iter().any(|report| report.is_of(look) && report.state != state::UNMANAGED);
        // Who is not managed any more may have a share still: that much of what it holds is off already.
        let share =
            |pid| managed.iter().find(|report| report.pid == pid).map_or(0, |report| report.share_bytes);
        let others = looks.iter().filter(|look| !look.is_guest && !is_managed(look));
        let unmanaged: i64 = others
            .filter(|look| !known.census.is_passing(look.pid))
            .map(|look| {
                let own_bytes =
                    look.anon_bytes.saturating_sub(known.families.sharing().doubly(look.pid).anon_bytes);
                own_bytes.cast_signed() - share(look.pid).cast_signed()
            })
            .sum();
        let own = self.ram_bytes + self.returned_bytes + shared_by_copies(managed, known.families);
        // What the kernel keeps of files is told by agents as far as there is so much, of whatever kind.
        let told: u64 = sightings.iter().map(|sighting| sighting.kept_bytes.min(sighting.shmem_bytes)).sum();
        let shared = shared_bytes(sightings).saturating_sub(told);
        let ram = self.ram_bytes;
        let most = (ram - ram / LEFT_SHARE).cast_signed().saturating_sub(unmanaged).max(0);
        own.cast_signed() - unmanaged - shared.cast_signed().min(most)
    }

    /// Tells the agents who has to make room for whom.
    pub fn divide(&mut self, managed: &[Report]) -> io::Result<()> {
        let pages = |report: &Report, names: &[&str]| names.iter().map(|name| report.counter(name)).sum();
        let member = |report: &Report| Member {
            place: report.place,
            share_bytes: report.share_bytes,
            fixed_bytes: report.own_bytes("fixed_bytes"),
            read: pages(report, &["pswpin", "zswpin", "files_read"]),
            paged_out: pages(report, &["pswpout", "zswpout"]),
            // Its turn it waits for by the launcher's own word.
            waited_us: report.counter("stalled_ns").saturating_sub(report.counter("held_ns")) / 1000,
            ran_us: processor_us(report.pid).saturating_sub(report.counter("agent_cpu_ns") / 1000),
            need_bytes: report.own_bytes("needed_bytes"),
            is_held: report.is_held,
        };
        let members: Vec<Member> =
            managed.iter().filter(|report| report.state == state::MANAGING).map(member).collect();
        let (free_bytes, passed_us) = (self.page.free_bytes()?, self.divided.elapsed().as_micros() as u64);
        self.divided = Instant::now();
        for word in self.divider.divide(self.ram_bytes, free_bytes, passed_us, &members) {
            self.tell(word, managed)?;
        }
        Ok(())
    }

    /// A word holds for a while only: should the launcher end nobody waits for it.
    fn tell(&self, word: Word, managed: &[Report]) -> io::Result<()> {
        let Some(report) = managed.iter().find(|report| report.place == word.place) else { return Ok(()) };
        if report.limit_bytes != word.limit_bytes {
            self.page.set_limit(report.claim(), word.limit_bytes)?;
        }
        let until = if word.holds { clock::monotonic_ns() + HOLD_NS_MAX / 2 } else { 0 };
        if until != report.held_until_ns {
            self.page.hold(report.claim(), until)?;
        }
        Ok(())
    }

    /// Who goes on when the launcher ends has no limit until its keeper looks, or for good if there is none.
    ///
    /// *The story* (by reading): a daemon that had idled kept the limit of the last look for life, and
    /// what its parent had had was nobody's.
    pub fn let_go(&self, managed: &[Report]) -> io::Result<()> {
        self.page.set_crowded(0)?;
        for report in managed {
            self.page.set_limit(report.claim(), 0)?;
            self.page.hold(report.claim(), 0)?;
        }
        Ok(())
    }
}

/// What cannot be paged and is in several shares though it is there once, as children of fork
/// have it with their parents. What can be paged counts in full: it is copied at any moment.
///
/// *The story:* six processes of Chromium have 14 MiB of relocated data in common. Counted six
/// times it left the rest of the tree a sixth of its budget, and nothing got on.
fn shared_by_copies(managed: &[Report], families: &Families) -> u64 {
    let of =
        |report: &Report| families.sharing().walked_anon_bytes(report.pid).min(report.counter("fixed_bytes"));
    managed.iter().filter(|report| report.state == state::MANAGING).map(of).sum()
}
