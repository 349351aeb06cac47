//! A thread that looks at the whole tree while the program runs: what /proc says of each process,
//! and what the agents report. It keeps the books ([`Census`]) and takes back the places of
//! processes that have ended.
//!
//! Its pauses follow from what its looks cost, so that it takes some thousandths of a processor at most.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overspill_engine::shared::{Loan, events, state};
use overspill_engine::turnstile::HOLD_NS_MAX;
use overspill_sys::clock;

use super::census::{Census, Sighting, UNKEPT_BYTES};
use super::copies::{self, Copies, Holder, Need};
use super::descendants::{
    Descendants, Look, Orphans, exists, figures, is_program, is_put_off, minor_faults, name, of_pid,
    processor_us,
};
use super::divider::{Divider, Member, Word};
use super::extras::Extras;
use super::filled::Filled;
use super::group::{self, Group};
use super::heritage::{Heir, Heritage};
use super::kin::Kin;
use super::lending::{self, Borrower, Lender, Lending};
use super::objection::objection;
use super::others::Others;
use super::places::Place;
use super::shared_page::{Report, SharedPage};
use super::sharing::{Doubly, Loans, Sharing, Told, Walked, Walker};
use super::unmapped::Unmapped;
use super::{status_line, verdict};
use crate::{human, machine};

/// Shortest and longest pause between two looks, and how many times as long as a look it is.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(50);
const PAUSE_FACTOR: u32 = 300;
/// ... while it is not known of some program whether it can be managed.
///
/// *The story:* a static program that lived for 100 ms was seen once, in its last instant, when
/// nobody could ask for its file any more, and the run was said to fit.
const PAUSE_FACTOR_UNSETTLED: u32 = 30;
/// Under `--strict` what nobody can page may be more than the budget for so long.
const EXCESS_NS: u64 = 300_000_000;
/// Loans are asked for anew while less than this share of the budget is free, and as much might be.
const RENEWED_SHARE: u64 = 16;
/// Shared memory leaves so much of the budget to the rest.
const LEFT_SHARE: u64 = 16;
/// When a run has been refused nobody is left once so many looks in a row have seen nobody. Who waits
/// for a disk may take longer to end than anybody has patience.
const LOOKS_UNSEEN: u32 = 3;
const END_PAUSE: Duration = Duration::from_millis(2);
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Who ends within so long after the command has not gone on: it was looked at so often.
const AFTER: Duration = Duration::from_millis(100);
const AFTER_PAUSE: Duration = Duration::from_millis(5);

/// What the run was like, when it is over.
pub struct Watched {
    /// The books.
    pub census: Census,
    /// What orphans used, and who went on.
    pub orphans: Orphans,
    /// Why `--strict` ended the run.
    pub refused: Option<String>,
    /// There may have been processes that could not be looked at.
    pub overlooks: bool,
    /// What its memory cgroup gives, and whom the kernel has ended in it.
    pub group: group::Told,
    /// What went where.
    pub places: Vec<Place>,
}

/// What it has to know.
#[derive(Clone, Copy)]
pub struct Options {
    /// The budget.
    pub ram_bytes: u64,
    /// It is the tree's, not each process's.
    pub divides: bool,
    /// What cannot be managed, and holds more than next to nothing, ends the run.
    pub strict: bool,
    /// Files are managed: some of what is held may be such that nobody asked for.
    pub manages_files: bool,
}

/// The thread. It waits for somebody to watch.
///
/// *The story:* it was started when the program had been. Where no more threads were allowed the
/// command ended, and the program ran on.
pub struct Watch {
    begin: Sender<Descendants>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Watched>>,
}

impl Watch {
    /// Starts it, before there is a program.
    pub fn start(page: Arc<SharedPage>, agent: PathBuf, options: Options) -> io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (begin, begun) = mpsc::channel();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            let unmapped = Unmapped::new(options.ram_bytes);
            let descendants = begun.recv().ok()?; // else no program could be started
            Some(Watcher::new(page, descendants, agent, options, unmapped).watch(&stopped))
        })?;
        Ok(Watch { begin, stop, thread })
    }

    /// From now on it watches the tree below this process.
    pub fn begin(&self, descendants: Descendants) {
        self.begin.send(descendants).expect("it waits for them");
    }

    /// The run is over.
    pub fn finish(self) -> Watched {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("the watcher does not panic").expect("it was begun")
    }
}

struct Watcher {
    page: Arc<SharedPage>,
    /// The launcher's parent, as it was told last.
    starter: Option<u32>,
    /// The path of the agent's library.
    agent: PathBuf,
    /// What the memory cgroup has left is asked once an agent has found swap full.
    group: Group,
    is_swap_full: bool,
    options: Options,
    refused: Option<String>,
    /// What nobody can page of what is in RAM; and since when it is more than the budget.
    unpaged_bytes: u64,
    excess_ns: Option<u64>,
    descendants: Descendants,
    census: Census,
    divider: Divider,
    /// When it divided last.
    divided: Instant,
    /// What ended processes had of the budget.
    returned_bytes: u64,
    extras: Extras,
    unmapped: Unmapped,
    /// What agents reported last of files that the kernel keeps.
    kept_bytes: BTreeMap<u32, u64>,
    filled: Filled,
    others: Others,
    sharing: Sharing,
    kin: Kin,
    heritage: Heritage,
    copies: Copies,
    lending: Lending,
    /// What was told of loans last.
    loans: Loans,
    /// Little is free, and more may be had in common than is lent; or a loan has passed to another lender.
    is_tight: bool,
    has_passed: bool,
    began: Instant,
}

impl Watcher {
    fn new(
        page: Arc<SharedPage>,
        descendants: Descendants,
        agent: PathBuf,
        options: Options,
        unmapped: Unmapped,
    ) -> Watcher {
        Watcher {
            group: Group::own(page.clone()),
            is_swap_full: false,
            starter: None,
            agent,
            options,
            refused: None,
            unpaged_bytes: 0,
            excess_ns: None,
            descendants,
            census: Census::default(),
            divider: Divider::default(),
            divided: Instant::now(),
            returned_bytes: page.returned_bytes().unwrap_or(0),
            page,
            extras: Extras::new(options.ram_bytes),
            unmapped,
            kept_bytes: BTreeMap::new(),
            filled: Filled::default(),
            others: Others::default(),
            sharing: Sharing::default(),
            kin: Kin::default(),
            heritage: Heritage::default(),
            copies: Copies::default(),
            lending: Lending::default(),
            loans: Loans::new(),
            is_tight: false,
            has_passed: false,
            began: Instant::now(),
        }
    }

    /// Looks again and again until the run is over.
    fn watch(mut self, stopped: &AtomicBool) -> Watched {
        while !stopped.load(Ordering::Acquire) {
            let began = Instant::now();
            self.look(false);
            status_line::answer(&self.page, self.options.ram_bytes, self.began.elapsed());
            let factor = if self.census.is_unsettled() { PAUSE_FACTOR_UNSETTLED } else { PAUSE_FACTOR };
            self.rest((began.elapsed() * factor).clamp(PAUSE_MIN, PAUSE_MAX), stopped);
        }
        self.let_end();
        self.look(true);
        if self.refused.is_some() {
            self.end_all();
        }
        let (overlooks, orphans) = (self.descendants.overlooks(), self.descendants.used_at_end());
        let (group, places) = (self.group.told(), self.page.places_now());
        Watched { census: self.census, orphans, refused: self.refused, overlooks, group, places }
    }

    /// Gives those a moment that end because the command has. It is short where nobody is left.
    ///
    /// *The story:* a helper of Python's multiprocessing ends when the pipe from its maker does. "1 of its
    /// programs went on when the command had ended" was said of it, and nothing else of the run.
    fn let_end(&mut self) {
        let ended = Instant::now();
        while self.descendants.is_anybody_left() && ended.elapsed() < AFTER {
            std::thread::sleep(AFTER_PAUSE);
            self.look(false);
        }
    }

    /// Until the next look.
    fn rest(&mut self, pause: Duration, stopped: &AtomicBool) {
        let until = Instant::now() + pause;
        let asks = self.is_swap_full && self.group.is_bounded();
        while !stopped.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if asks {
                self.group.look();
            }
            std::thread::park_timeout(if asks { left.min(group::PAUSE) } else { left });
        }
    }

    fn look(&mut self, is_over: bool) {
        self.note_starter();
        let looks = self.descendants.look();
        if self.options.manages_files {
            self.filled.note(&self.page.reports().unwrap_or_default());
        }
        self.descendants.reap();
        self.kin.note(&looks);
        self.extras.read(&looks);
        let held = |look: &Look| look.anon_bytes + self.extras.shmem_bytes(look);
        let sum: u64 = looks.iter().map(held).sum();
        let others = self.extras.other_bytes();
        if self.options.strict {
            self.extras.read_locked(&looks, sum + others > self.options.ram_bytes);
        } else if sum > self.options.ram_bytes / 8 * 7 {
            self.extras.find_locked(&looks);
        }
        if looks.iter().any(|look| !self.census.knows(look.pid)) {
            // Who is new may have told already.
            self.loans = self.page.reports().map_or_else(|_| Loans::new(), |told| self.loans(&looks, &told));
        }
        let mut walks = Walks { extras: &self.extras, began: self.began };
        // What nobody has mapped is in no figure of a process.
        let unmapped_bytes = self.unmapped.bytes(&self.mapped(&looks));
        let peak_bytes = self.census.tree_peak_bytes.saturating_sub(unmapped_bytes);
        let is_wanted = self.is_tight || self.has_passed;
        let told = Told { kin: &self.kin, loans: &self.loans, peak_bytes, is_wanted };
        let believed = self.sharing.look(&looks, &told, &mut walks);
        self.has_passed &= !self.sharing.has_walked();
        self.census.note_peak(believed.beside(unmapped_bytes));
        if is_over {
            self.census.note_peak(self.sharing.believed(self.census.tree_peak_bytes));
        }
        self.unmapped.look(&looks, &self.mapped(&looks));
        let sightings = self.sightings(looks.iter());
        for pid in self.census.look(&sightings, self.began.elapsed().as_nanos() as u64) {
            self.census.describe(pid, name(pid), objection(pid, &self.agent, &self.page.mark()));
            self.ask_other_runs(of_pid(&looks, pid));
        }
        let is_large = |look: &&Look| look.anon_bytes > UNKEPT_BYTES && !look.is_guest;
        self.others.forget_reports();
        self.ask_other_runs(looks.iter().filter(is_large));
        // A report that cannot be read is told by no record having it.
        let _ = self.read_reports(&sightings, &looks, is_over);
        if self.options.strict && !is_over {
            self.refuse(&looks);
        }
    }

    /// The launcher's own parent may have ended.
    fn note_starter(&mut self) {
        let starter = parent_id();
        if self.starter != Some(starter) {
            self.starter = self.page.set_starter(starter).is_ok().then_some(starter);
        }
    }

    /// Who has no agent of this run may have one of a run within it.
    fn ask_other_runs<'a>(&mut self, looks: impl IntoIterator<Item = &'a Look>) {
        for look in looks {
            if self.census.lacks_agent(look.pid) {
                self.census.belongs(look.pid, self.others.run_of(look, &self.page.mark()));
            }
        }
    }

    /// What each has mapped of shared memory, each page once.
    fn mapped(&self, looks: &[Look]) -> Vec<(u32, u64)> {
        let own = |look: &Look| {
            let doubly_bytes = self.sharing.doubly(look.pid).shmem_bytes;
            (look.pid, self.extras.shmem_bytes(look).saturating_sub(doubly_bytes))
        };
        looks.iter().filter(|look| !look.is_guest).map(own).collect()
    }

    /// What is seen of each. They have no more shared memory together than the machine has.
    ///
    /// *The story:* twenty processes that looked at the same 60 MiB were said to hold 907, as not all
    /// of them had been asked yet what others have, too. One that mapped 100 MiB three times held 300.
    fn sightings<'a>(&self, looks: impl Iterator<Item = &'a Look>) -> Vec<Sighting> {
        let mut sightings: Vec<Sighting> = looks.map(|look| self.sighting(look)).collect();
        let counted = || sightings.iter().filter(|sighting| !sighting.look.is_guest);
        let all: u64 = counted().map(|sighting| sighting.shmem_bytes).sum();
        let most = if all > 0 { machine::shmem_bytes().unwrap_or(u64::MAX) } else { u64::MAX };
        for sighting in &mut sightings {
            sighting.shmem_bytes = part_of(sighting.shmem_bytes, most, all);
        }
        let counted = sightings.iter().filter(|sighting| !sighting.look.is_guest);
        let mapped: Vec<_> = counted.map(|sighting| (sighting.look.pid, sighting.shmem_bytes)).collect();
        let unmapped = self.unmapped.parts(&mapped);
        for sighting in &mut sightings {
            let extra = self.extras.of(sighting.look.pid);
            let unmapped_bytes = unmapped.get(&sighting.look.pid).copied().unwrap_or(0);
            sighting.shmem_bytes += extra.other_bytes() + unmapped_bytes;
            sighting.table_bytes = extra.table_bytes;
        }
        sightings
    }

    fn sighting(&self, look: &Look) -> Sighting {
        let doubly = self.sharing.doubly(look.pid);
        let shmem_bytes = self.extras.shmem_bytes(look).saturating_sub(doubly.shmem_bytes);
        let may_be_unkept =
            self.options.strict && look.anon_bytes > UNKEPT_BYTES && self.census.lacks_agent(look.pid);
        Sighting {
            look: *look,
            doubly_bytes: doubly.anon_bytes,
            shmem_bytes,
            table_bytes: 0,
            kept_bytes: self.kept_bytes.get(&look.pid).copied().unwrap_or(0),
            filled_bytes: self.filled.bytes(look.pid),
            is_doubtful: self.sharing.is_silent(look.pid),
            is_put_off: may_be_unkept && is_put_off(look.pid),
        }
    }

    /// Ends the run for the sake of what is not managed: from then on whoever is seen.
    ///
    /// *The story:* those were ended that had been looked at before somebody was found without a limit.
    /// What was forked meanwhile ran on, without a launcher.
    fn refuse(&mut self, looks: &[Look]) {
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
    fn end_all(&mut self) {
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
        let mut walks = Walks { extras: &self.extras, began: self.began };
        self.sharing.walk_now(looks, (&self.kin, &self.loans), &mut walks);
        self.unmapped.ask(looks, &self.mapped(looks));
        let mut managed = self.page.reports().ok()?;
        managed.retain(|report| !report.is_over);
        let tells = |look: &&Look| !self.sharing.is_silent(look.pid);
        let sightings = self.sightings(looks.iter().filter(tells));
        Some(self.unpaged_bytes(&sightings, &managed))
    }

    /// What nobody can page: shared memory, what has no agent, and what agents have to leave alone.
    fn unpaged_bytes(&self, sightings: &[Sighting], managed: &[Report]) -> u64 {
        let of = |sighting: &Sighting| {
            let look = &sighting.look;
            let report = managed.iter().find(|report| report.is_of(look));
            let locked_bytes = self.extras.of(look.pid).locked_bytes;
            // What was locked before it was managed is in both.
            let kept = |fixed_bytes: u64| match self.options.strict {
                true => (fixed_bytes + locked_bytes).min(look.anon_bytes),
                false => fixed_bytes.max(locked_bytes).min(look.anon_bytes),
            };
            let anon_bytes = match report.map(|report| report.state) {
                Some(state::WATCHING) => kept(0),
                Some(state::MANAGING) => kept(report.map_or(0, |report| report.counter("fixed_bytes"))),
                _ if self.census.is_passing(look.pid) => 0,
                _ => look.anon_bytes,
            };
            anon_bytes.saturating_sub(sighting.doubly_bytes) + sighting.shmem_bytes
        };
        let each = sightings.iter().filter(|sighting| !sighting.look.is_guest).map(of);
        if self.options.divides { each.sum() } else { each.max().unwrap_or(0) }
    }

    /// Keeps what those reported that have ended, and lets others have their places.
    fn read_reports(&mut self, sightings: &[Sighting], looks: &[Look], is_over: bool) -> io::Result<()> {
        let mut managed = Vec::new();
        for report in self.page.reports()? {
            let lives = of_pid(looks, report.pid).is_some();
            // Who has ended between two looks tells it, too.
            self.census.note_unpaged(report.own_bytes("fixed_bytes"));
            let has_ended = report.is_over || (!lives && !exists(report.pid));
            if has_ended {
                let share_bytes = self.page.share_bytes(&report)?;
                self.page.release(report.claim())?;
                // Killed in between this process has lost it, and not given it back twice.
                self.returned_bytes += share_bytes;
                self.page.set_returned_bytes(self.returned_bytes)?;
                self.census.keep(report);
                continue;
            }
            self.descendants.claim(report.pid);
            self.is_swap_full |= report.events & events::SWAP_FULL != 0;
            if is_over {
                self.census.keep(report.clone())
            } else {
                self.census.note(&report)
            }
            managed.push(report);
        }
        self.page.note_peaks(&managed)?;
        let blank = managed.iter().map(|report| report.counter("blank_bytes")).sum();
        let needed = self.needed(looks, &managed);
        self.census.need(needed, shared_bytes(sightings), blank);
        let kept = |report: &Report| (report.pid, report.counter("files_kept_resident_bytes"));
        self.loans = self.loans(looks, &managed);
        self.kept_bytes = managed.iter().map(kept).filter(|&(_, bytes)| bytes > 0).collect();
        self.unpaged_bytes = self.unpaged_bytes(sightings, &managed);
        self.census.note_unpaged(self.unpaged_bytes);
        if self.options.divides {
            self.lend(looks, &managed)?;
            self.page.set_launcher_bytes(self.own_part(looks, sightings, &managed))?;
            self.page.set_crowded(Report::crowd(&managed, self.options.ram_bytes))?;
            if is_over { self.let_go(&managed)? } else { self.divide(&managed)? }
        }
        Ok(())
    }

    /// Who goes on when the launcher ends has no limit until its keeper looks, or for good if there is none.
    ///
    /// *The story* (by reading): a daemon that had idled kept the limit of the last look for life, and
    /// what its parent had had was nobody's.
    fn let_go(&self, managed: &[Report]) -> io::Result<()> {
        self.page.set_crowded(0)?;
        for report in managed {
            self.page.set_limit(report.claim(), 0)?;
            self.page.hold(report.claim(), 0)?;
        }
        Ok(())
    }

    /// Children of fork that tell what they have of their parents, and these.
    fn loans(&self, looks: &[Look], managed: &[Report]) -> Loans {
        let mut loans = Loans::new();
        let pids = borrowing(looks, managed);
        for (look, report) in borrowers(looks, managed) {
            loans.insert(look.pid, report.borrowed_bytes);
            if let Some(elder) = self.kin.elder(looks, look, |other| !pids.contains(&other.pid)) {
                loans.entry(elder.pid).or_insert(0);
            }
        }
        loans
    }

    /// Takes back of loans what their parents have not any more, and gives anew what faults were
    /// taken for copies that were none.
    fn lend(&mut self, looks: &[Look], managed: &[Report]) -> io::Result<()> {
        let pids = borrowing(looks, managed);
        let borrower = |(look, report): (&Look, &Report)| {
            let elder = self.kin.elder(looks, look, |other| !pids.contains(&other.pid));
            let (pid, parent, word) = (report.pid, elder.map_or(0, |elder| elder.pid), report.loan);
            let own_bytes = look.anon_bytes.saturating_sub(report.borrowed_bytes);
            Borrower { pid, claim: report.claim(), parent, word, own_bytes }
        };
        let borrowers: Vec<Borrower> = borrowers(looks, managed).map(borrower).collect();
        let (words, lent) = self.lending.look(&borrowers, |pid| lender(looks, pid));
        for (claim, word) in words {
            self.page.lend(claim, word)?;
        }
        self.page.note_lent(managed, &lent)?;
        self.has_passed |= self.lending.take_passed();
        self.renew(looks, managed, &borrowers)?;
        self.is_tight = self.worth_renewing(looks, managed) && self.page.free_bytes()? < self.tight_bytes();
        Ok(())
    }

    /// Of families that were walked at this look: what several of one have counts with the eldest, and is
    /// lent to the others.
    ///
    /// *The story:* children of children were walked by nobody. A shell of 19 MiB that started shells, each
    /// of which started some, paged in 30.
    fn renew(&mut self, looks: &[Look], managed: &[Report], borrowers: &[Borrower]) -> io::Result<()> {
        let pids = borrowing(looks, managed);
        let eldest = |pid: u32| self.kin.eldest(looks, pid, |other| !pids.contains(&other.pid));
        let walked = |pid: u32| Some((self.sharing.walked(pid)?, eldest(pid)?));
        #[derive(Default)]
        struct Family<'a> {
            common: u64,
            children: Vec<(&'a Borrower, Walked)>,
        }
        let mut families: BTreeMap<u32, Family<'_>> = BTreeMap::new();
        for report in managed.iter().filter(|report| report.state != state::UNMANAGED) {
            let Some((walked, eldest)) = walked(report.pid) else { continue };
            let family = families.entry(eldest).or_default();
            family.common += walked.doubly.anon_bytes;
            let child = borrowers.iter().find(|one| one.pid == report.pid && one.pid != eldest);
            family.children.extend(child.map(|child| (child, walked)));
        }
        for Family { common, children } in families.into_values() {
            let each: Vec<u64> = children.iter().map(|(_, walked)| walked.doubly.anon_bytes).collect();
            for ((child, walked), bytes) in children.iter().zip(lending::parts(common, &each)) {
                let Some(lender) = lender(looks, child.parent) else { continue };
                let loan = Loan { pages: (bytes / 4096) as u32, faults: walked.faults as u32 };
                self.page.lend(child.claim, loan.word())?;
                self.lending.renew(child, loan, lender);
            }
        }
        Ok(())
    }

    /// While less is free loans are asked for anew, if that can give back as much.
    fn tight_bytes(&self) -> i64 {
        (self.options.ram_bytes / RENEWED_SHARE).cast_signed()
    }

    fn worth_renewing(&self, looks: &[Look], managed: &[Report]) -> bool {
        let lost = |(look, report): (&Look, &Report)| look.anon_bytes.saturating_sub(report.borrowed_bytes);
        let lost: u64 = borrowers(looks, managed).map(lost).sum();
        lost.cast_signed() > self.tight_bytes()
    }

    /// What the tree would hold now with RAM enough beside shared memory, what several have together once.
    fn needed(&mut self, looks: &[Look], managed: &[Report]) -> Need {
        let inherits = |report: &&Report| report.counter("inherited_bytes") > 0;
        let heirs: BTreeSet<u32> = managed.iter().filter(inherits).map(|report| report.pid).collect();
        let heir = |report: &Report| {
            let look = of_pid(looks, report.pid).filter(|look| report.is_of(look))?;
            let runs_same = |elder: &&Look| look.runs(elder.program_pages, elder.program_stamp);
            let elder = self.kin.elder(looks, look, |other| !heirs.contains(&other.pid)).filter(runs_same);
            Some(Heir {
                pid: report.pid,
                claim: report.claim(),
                elder: elder.map(|elder| elder.pid),
                inherited_bytes: report.counter("inherited_bytes"),
                gone_bytes: report.counter("inherited_gone_bytes"),
                copied_bytes: report.counter("copied_bytes"),
                stored: report.counter("stored_pages") as u32,
                needed_bytes: report.counter("needed_bytes"),
            })
        };
        let heirs: Vec<Heir> = managed.iter().filter_map(heir).collect();
        let (common, copies) = (self.heritage.look(&heirs), self.copies.look(&heirs));
        let of = |look: &Look| {
            let report = managed.iter().find(|report| report.is_of(look));
            let told = report.map_or(0, |report| report.counter("needed_bytes"));
            let told_bytes = told.max(look.anon_bytes.saturating_sub(self.filled.bytes(look.pid)));
            let doubly = self.sharing.doubly(look.pid).anon_bytes;
            let common = doubly + common.get(&look.pid).copied().unwrap_or(0);
            let needed_bytes = told_bytes.saturating_sub(common);
            let copied_bytes = copies.get(&look.pid).copied().unwrap_or(0);
            let program = (look.program_pages, look.program_stamp);
            Holder { program, told_bytes, needed_bytes, copied_bytes }
        };
        let counted = looks.iter().filter(|look| !look.is_guest && !self.census.is_passing(look.pid));
        copies::needed(counted.map(of))
    }

    /// The launcher's part of the pool: what nobody else has. Shared memory stays, and leaves less for the
    /// rest; but something, as to page all of that would bring the budget no nearer.
    ///
    /// *The story:* beside 60 MiB of shared memory a program had all of 100 MiB for the rest. 120 were held
    /// and nothing was paged.
    fn own_part(&self, looks: &[Look], sightings: &[Sighting], managed: &[Report]) -> i64 {
        let is_managed =
            |look: &Look| managed.iter().any(|report| report.is_of(look) && report.state != state::UNMANAGED);
        // Who is not managed any more may have a share still: that much of what it holds is off already.
        let share =
            |pid| managed.iter().find(|report| report.pid == pid).map_or(0, |report| report.share_bytes);
        let others = looks.iter().filter(|look| !look.is_guest && !is_managed(look));
        let unmanaged: i64 = others
            .filter(|look| !self.census.is_passing(look.pid))
            .map(|look| {
                let own_bytes = look.anon_bytes.saturating_sub(self.sharing.doubly(look.pid).anon_bytes);
                own_bytes.cast_signed() - share(look.pid).cast_signed()
            })
            .sum();
        let own = self.options.ram_bytes + self.returned_bytes + self.shared_by_copies(managed);
        // What the kernel keeps of files is told by agents as far as there is so much, of whatever kind.
        let told: u64 = sightings.iter().map(|sighting| sighting.kept_bytes.min(sighting.shmem_bytes)).sum();
        let shared = shared_bytes(sightings).saturating_sub(told);
        let ram = self.options.ram_bytes;
        let most = (ram - ram / LEFT_SHARE).cast_signed().saturating_sub(unmanaged).max(0);
        own.cast_signed() - unmanaged - shared.cast_signed().min(most)
    }

    /// Tells the agents who has to make room for whom.
    fn divide(&mut self, managed: &[Report]) -> io::Result<()> {
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
        for word in self.divider.divide(self.options.ram_bytes, free_bytes, passed_us, &members) {
            self.tell(word, managed)?;
        }
        Ok(())
    }

    /// What cannot be paged and is in several shares though it is there once, as children of fork
    /// have it with their parents. What can be paged counts in full: it is copied at any moment.
    ///
    /// *The story:* six processes of Chromium have 14 MiB of relocated data in common. Counted six
    /// times it left the rest of the tree a sixth of its budget, and nothing got on.
    fn shared_by_copies(&self, managed: &[Report]) -> u64 {
        let of =
            |report: &Report| self.sharing.walked_anon_bytes(report.pid).min(report.counter("fixed_bytes"));
        managed.iter().filter(|report| report.state == state::MANAGING).map(of).sum()
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
}

/// Children of fork that have loans.
fn borrowers<'a>(looks: &'a [Look], managed: &'a [Report]) -> impl Iterator<Item = (&'a Look, &'a Report)> {
    let has_loan = |report: &&Report| report.loan != 0 && report.state != state::UNMANAGED;
    let look =
        |report: &'a Report| Some((of_pid(looks, report.pid).filter(|look| report.is_of(look))?, report));
    managed.iter().filter(has_loan).filter_map(look)
}

/// Their numbers.
fn borrowing(looks: &[Look], managed: &[Report]) -> BTreeSet<u32> {
    borrowers(looks, managed).map(|(look, _)| look.pid).collect()
}

/// What a parent of the tree has now.
fn lender(looks: &[Look], pid: u32) -> Option<Lender> {
    let look = of_pid(looks, pid).filter(|look| !look.is_guest)?;
    let (program_pages, anon_bytes) = (look.program_pages, look.anon_bytes);
    Some(Lender { program_pages, anon_bytes, faults: minor_faults(pid)? })
}

/// Shared memory of all, and what else nobody can page.
fn shared_bytes(sightings: &[Sighting]) -> u64 {
    sightings.iter().filter(|sighting| !sighting.look.is_guest).map(|sighting| sighting.shmem_bytes).sum()
}

/// `bytes` of `all`, of which there are no more than `most`.
fn part_of(bytes: u64, most: u64, all: u64) -> u64 {
    if all <= most { bytes } else { (u128::from(bytes) * u128::from(most) / u128::from(all)) as u64 }
}

struct Walks<'a> {
    extras: &'a Extras,
    began: Instant,
}

impl Walker for Walks<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn spent_ns(&self) -> u64 {
        clock::thread_cpu_ns()
    }

    fn shmem_bytes(&self, look: &Look) -> u64 {
        self.extras.shmem_bytes(look)
    }

    fn all_shmem_bytes(&self) -> u64 {
        machine::shmem_bytes().unwrap_or(0)
    }

    /// What others have, too, of what a process holds: all but its own part, which is what it has with
    /// others divided by their number.
    ///
    /// *The story* (by reading): it was subtracted from what was read before, at the start of a look. What
    /// had left RAM in between counted as shared, which hid an excess.
    fn walk(&mut self, look: &Look) -> Option<Walked> {
        let faults = minor_faults(look.pid)?;
        let names = ["Anonymous", "Pss_Anon", "Pss_Shmem"];
        let [anon, own_anon, own_shmem] = figures(look.pid, "smaps_rollup", names)?;
        let doubly = Doubly {
            anon_bytes: anon.saturating_sub(own_anon).min(look.anon_bytes),
            shmem_bytes: self.shmem_bytes(look).saturating_sub(own_shmem),
        };
        Some(Walked { doubly, left_bytes: look.anon_bytes.saturating_sub(anon), faults })
    }

    fn is_still(&mut self, look: &Look) -> bool {
        is_program(look.pid, look.program_pages)
    }
}
