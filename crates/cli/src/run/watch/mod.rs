//! A thread that looks at the whole tree while the program runs: what /proc says of each process,
//! and what the agents report. It keeps the books ([`Census`]) and takes back the places of
//! processes that have ended.
//!
//! Its pauses follow from what its looks cost, so that it takes some thousandths of a processor at most.

mod families;
mod hurry;
mod needs;
mod shares;
mod strict;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use overspill_engine::shared::{PROCESSES, events, state};
use overspill_sys::{clock, thread};

use crate::machine;
use crate::run::group::{self, Group};
use crate::run::places::Place;
use crate::run::shared_page::{Report, SharedPage};
use crate::run::status_line;
use crate::run::tree::census::{Census, Sighting, UNKEPT_BYTES};
use crate::run::tree::descendants::{Descendants, Look, Orphans, exists, is_put_off, name, of_pid};
use crate::run::tree::extras::Extras;
use crate::run::tree::filled::Filled;
use crate::run::tree::objection::objection;
use crate::run::tree::others::Others;
use crate::run::tree::unmapped::Unmapped;
use families::Families;
use hurry::{Hurry, is_late};
use needs::{Known, Needs};
use shares::Shares;

/// Shortest and longest pause between two looks, and how many times as long as a look it is.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(50);
const PAUSE_FACTOR: u32 = 300;
/// ... while it is not known of some program whether it can be managed.
///
/// *The story:* a static program that lived for 100 ms was seen once, in its last instant, when
/// nobody could ask for its file any more, and the run was said to fit.
const PAUSE_FACTOR_UNSETTLED: u32 = 30;
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
    /// Much came and went between two looks.
    pub looks_late: bool,
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
            // Beside hundreds of processes it would come too late to see them. Without the right it does.
            let _ = thread::compete();
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
    shares: Shares,
    extras: Extras,
    unmapped: Unmapped,
    /// What agents reported last of files that the kernel keeps.
    kept_bytes: BTreeMap<u32, u64>,
    filled: Filled,
    others: Others,
    families: Families,
    needs: Needs,
    began: Instant,
    /// When it last looked; and whether that was too late once.
    looked: Option<Instant>,
    looks_late: bool,
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
            shares: Shares::new(page.clone(), options.ram_bytes),
            page,
            extras: Extras::new(options.ram_bytes),
            unmapped,
            kept_bytes: BTreeMap::new(),
            filled: Filled::default(),
            others: Others::default(),
            families: Families::new(options.ram_bytes),
            needs: Needs::default(),
            began: Instant::now(),
            looked: None,
            looks_late: false,
        }
    }

    /// Looks again and again until the run is over.
    fn watch(mut self, stopped: &AtomicBool) -> Watched {
        let mut hurry = Hurry::default();
        while !stopped.load(Ordering::Acquire) {
            let (began, spent_ns) = (Instant::now(), clock::thread_cpu_ns());
            self.look(false);
            status_line::answer(&self.page, self.options.ram_bytes, self.began.elapsed());
            let (took, spent_ns) = (began.elapsed(), clock::thread_cpu_ns() - spent_ns);
            let factor = if self.census.is_unsettled() { PAUSE_FACTOR_UNSETTLED } else { PAUSE_FACTOR };
            let pause = (took * factor).clamp(PAUSE_MIN, PAUSE_MAX);
            self.rest(pause, stopped);
            let waited = began.elapsed().saturating_sub(pause + Duration::from_nanos(spent_ns));
            if let Some(change) = hurry.looked(waited) {
                // Without the right it comes late.
                let _ = change.make();
            }
        }
        self.let_end();
        self.look(true);
        if self.refused.is_some() {
            self.end_all();
        }
        let (overlooks, orphans) = (self.descendants.overlooks(), self.descendants.used_at_end());
        let (group, places) = (self.group.told(), self.page.places_now());
        let (refused, looks_late) = (self.refused, self.looks_late);
        Watched { census: self.census, orphans, refused, overlooks, looks_late, group, places }
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
        let pause = self.looked.replace(Instant::now()).map_or(Duration::ZERO, |looked| looked.elapsed());
        let looks = self.descendants.look();
        if self.options.manages_files {
            self.filled.note(&self.page.reports().unwrap_or_default());
        }
        self.descendants.reap();
        self.families.note(&looks);
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
            self.families.tell(&looks, &self.page.reports().unwrap_or_default());
        }
        // What nobody has mapped is in no figure of a process.
        let unmapped_bytes = self.unmapped.bytes(&self.mapped(&looks));
        let peak_bytes = self.census.tree_peak_bytes.saturating_sub(unmapped_bytes);
        let believed = self.families.look(&looks, &self.extras, peak_bytes);
        self.census.note_peak(believed.beside(unmapped_bytes));
        if is_over {
            self.census.note_peak(self.families.sharing().believed(self.census.tree_peak_bytes));
        }
        self.unmapped.look(&looks, &self.mapped(&looks));
        let sightings = self.sightings(looks.iter());
        let new = sightings.iter().filter(|sighting| !self.census.knows(sighting.look.pid));
        let own = new.map(|sighting| sighting.look.anon_bytes.saturating_sub(sighting.doubly_bytes));
        self.looks_late |= is_late(pause, own, self.options.ram_bytes);
        for pid in self.census.look(&sightings, self.began.elapsed().as_nanos() as u64) {
            let objection = objection(pid, &self.agent, &self.page.mark()).or_else(|| self.no_place());
            self.census.describe(pid, name(pid), objection);
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

    /// Have so many agents at a time that there can be no more?
    ///
    /// *The story:* of the 513th process on it was said that a sandbox keeps the library from it.
    fn no_place(&self) -> Option<String> {
        // To read all reports is dear, and of most runs this says enough.
        let were_all_used = self.page.places_used().is_ok_and(|used| used >= PROCESSES);
        let is_full = || self.page.reports().is_ok_and(|reports| reports.len() >= PROCESSES);
        (were_all_used && is_full())
            .then(|| format!("{PROCESSES} processes had agents then, and no more can at a time"))
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
            let doubly_bytes = self.families.sharing().doubly(look.pid).shmem_bytes;
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
        let doubly = self.families.sharing().doubly(look.pid);
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
            is_doubtful: self.families.sharing().is_silent(look.pid),
            is_put_off: may_be_unkept && is_put_off(look.pid),
        }
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
                self.shares.take_back(&report)?;
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
        let known = Known { families: &self.families, filled: &self.filled, census: &self.census };
        let needed = self.needs.look(looks, &managed, &known);
        self.census.need(needed, shared_bytes(sightings), blank);
        let kept = |report: &Report| (report.pid, report.counter("files_kept_resident_bytes"));
        self.families.tell(looks, &managed);
        self.kept_bytes = managed.iter().map(kept).filter(|&(_, bytes)| bytes > 0).collect();
        self.unpaged_bytes = self.unpaged_bytes(sightings, &managed);
        self.census.note_unpaged(self.unpaged_bytes);
        if self.options.divides {
            self.families.lend(&self.page, looks, &managed)?;
            let known = Known { families: &self.families, filled: &self.filled, census: &self.census };
            self.shares.tell_pool(looks, sightings, &managed, &known)?;
            if is_over { self.shares.let_go(&managed)? } else { self.shares.divide(&managed)? }
        }
        Ok(())
    }
}

/// Shared memory of all, and what else nobody can page.
fn shared_bytes(sightings: &[Sighting]) -> u64 {
    sightings.iter().filter(|sighting| !sighting.look.is_guest).map(|sighting| sighting.shmem_bytes).sum()
}

/// `bytes` of `all`, of which there are no more than `most`.
fn part_of(bytes: u64, most: u64, all: u64) -> u64 {
    if all <= most { bytes } else { (u128::from(bytes) * u128::from(most) / u128::from(all)) as u64 }
}
