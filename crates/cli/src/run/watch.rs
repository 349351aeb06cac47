//! A thread that looks at the whole tree while the program runs: what /proc says of each process,
//! and what the agents report. It keeps the books ([`Census`]) and takes back the places of
//! processes that have ended.
//!
//! Its pauses follow from what its looks cost, so that it takes some thousandths of a processor at most.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overspill_engine::in_common::InCommon;
use overspill_engine::shared::{ENV, state};
use overspill_engine::turnstile::HOLD_NS_MAX;
use overspill_sys::clock;

use super::census::{Census, Sighting};
use super::descendants::{Descendants, Look, Orphans, faults, figure, figures, name, of_pid, processor_us};
use super::divider::{Divider, Member, Word};
use super::program;
use super::shared_page::{Report, SharedPage};
use super::sharing::{Doubly, Sharing};
use super::status_line;

/// Shortest and longest pause between two looks, and how many times as long as a look it is.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(50);
const PAUSE_FACTOR: u32 = 300;
/// ... and the longest while nothing changes that is cheaply seen: new processes, and the pool.
///
/// *The story:* 225 programs slept, and twenty times a second the launcher looked at each of them,
/// for a twelfth of a processor.
const STILL_PAUSE_MAX: Duration = Duration::from_millis(500);
/// ... and while processes are made, of whatever tree: the walk that finds whose is most of a look.
const NEWCOMERS_FACTOR: u32 = 80;
/// ... while it is not known of some program whether it can be managed.
///
/// *The story:* a static program that lived for 100 ms was seen once, in its last instant, when
/// nobody could ask for its file any more, and the run was said to fit.
const PAUSE_FACTOR_UNSETTLED: u32 = 30;
/// A process's shared memory is asked for again when the sum of it and of its files has changed by so much.
const SHARED_STEP_BYTES: u64 = 1 << 20;
/// A process without an agent may hold so much under `--strict`.
const STRICT_BYTES: u64 = 4 << 20;
/// What the run was like, when it is over.
pub struct Watched {
    /// The books.
    pub census: Census,
    /// What orphans used.
    pub orphans: Orphans,
    /// Why `--strict` ended the run.
    pub refused: Option<String>,
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
}

/// The thread.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watched>,
}

impl Watch {
    /// Begins to watch the tree below this process.
    pub fn start(page: Arc<SharedPage>, descendants: Descendants, options: Options) -> io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut watcher = Watcher::new(page, descendants, options);
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let began = Instant::now();
                watcher.look(false);
                status_line::answer(&watcher.page, options.ram_bytes, watcher.began.elapsed());
                let is_unsettled = watcher.census.is_unsettled();
                let factor = if is_unsettled { PAUSE_FACTOR_UNSETTLED } else { PAUSE_FACTOR };
                let due = began.elapsed() * factor;
                std::thread::park_timeout(due.clamp(PAUSE_MIN, PAUSE_MAX));
                let still = if is_unsettled { Duration::ZERO } else { due.min(STILL_PAUSE_MAX) };
                let unwalked = still.min(due / PAUSE_FACTOR * NEWCOMERS_FACTOR);
                let rests =
                    || began.elapsed() < if watcher.descendants.is_anybody_new() { unwalked } else { still };
                while rests() && !stopped.load(Ordering::Acquire) && watcher.is_still() {
                    std::thread::park_timeout(PAUSE_MAX);
                }
            }
            watcher.look(true);
            let orphans = watcher.descendants.orphans();
            Watched { census: watcher.census, orphans, refused: watcher.refused }
        })?;
        Ok(Watch { stop, thread })
    }

    /// The run is over.
    pub fn finish(self) -> Watched {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("the watcher does not panic")
    }
}

/// What agents reported, by process.
type Managed = BTreeMap<u32, Report>;

struct Watcher {
    page: Arc<SharedPage>,
    options: Options,
    refused: Option<String>,
    descendants: Descendants,
    census: Census,
    divider: Divider,
    /// When it divided last.
    divided: Instant,
    /// What ended processes had of the budget.
    returned_bytes: u64,
    extras: BTreeMap<u32, Extra>,
    sharing: Sharing,
    began: Instant,
    /// What nobody had at the last look, if there was nothing to be divided and agents reported all.
    free_bytes: Option<i64>,
}

/// What is not read at every look.
#[derive(Default)]
struct Extra {
    /// The figure of files and shared memory when it was read.
    shared_bytes: u64,
    shmem_bytes: u64,
}

impl Watcher {
    fn new(page: Arc<SharedPage>, descendants: Descendants, options: Options) -> Watcher {
        Watcher {
            page,
            options,
            refused: None,
            descendants,
            census: Census::default(),
            divider: Divider::default(),
            divided: Instant::now(),
            returned_bytes: 0,
            extras: BTreeMap::new(),
            sharing: Sharing::default(),
            began: Instant::now(),
            free_bytes: None,
        }
    }

    fn look(&mut self, is_over: bool) {
        let looks = self.descendants.look();
        self.extras.retain(|pid, _| of_pid(&looks, *pid).is_some());
        for look in &looks {
            self.read_shmem(look);
        }
        let shmem_bytes = |look: &Look| self.extras.get(&look.pid).map_or(0, |extra| extra.shmem_bytes);
        let sum: u64 = looks.iter().map(|look| look.anon_bytes + shmem_bytes(look)).sum();
        let is_short = sum > self.options.ram_bytes / 8 * 7;
        let now = || self.began.elapsed().as_nanos() as u64;
        let walk = |look: &Look| walk(look, shmem_bytes(look));
        self.sharing.look(&looks, &self.census, is_short, now, walk);
        let sighting = |look: &Look| {
            let doubly = self.sharing.doubly(look.pid);
            let shmem_bytes = shmem_bytes(look).saturating_sub(doubly.shmem_bytes);
            Sighting { look: *look, doubly_bytes: doubly.anon_bytes, shmem_bytes }
        };
        let sightings: Vec<Sighting> = looks.iter().map(sighting).collect();
        for pid in self.census.look(&sightings, self.began.elapsed().as_nanos() as u64) {
            self.census.describe(pid, name(pid), objection(pid));
        }
        if self.options.strict && !is_over {
            self.refuse(&looks);
        }
        // A report that cannot be read is told by no record having it.
        let _ = self.read_reports(&looks, is_over);
    }

    /// Is nothing seen that would be worth a look? Agents that take or give some change the pool.
    fn is_still(&self) -> bool {
        let free_bytes = self.page.free_bytes().ok();
        free_bytes.is_some() && free_bytes == self.free_bytes
    }

    /// Ends the run for the sake of a process that cannot be managed.
    fn refuse(&mut self, looks: &[Look]) {
        let Some(reason) = self.census.unkept(STRICT_BYTES) else { return };
        self.refused.get_or_insert(reason);
        for look in looks {
            let _ = kill(Pid::from_raw(look.pid as i32), Signal::SIGKILL);
        }
    }

    /// Shared memory is asked for again when it may have changed.
    fn read_shmem(&mut self, look: &Look) {
        let extra = self.extras.entry(look.pid).or_default();
        if look.shared_bytes.abs_diff(extra.shared_bytes) >= SHARED_STEP_BYTES {
            extra.shared_bytes = look.shared_bytes;
            extra.shmem_bytes = figure(look.pid, "status", "RssShmem").unwrap_or(0);
            self.sharing.wear(look.pid);
        }
    }

    /// Keeps what those reported that have ended, and lets others have their places.
    fn read_reports(&mut self, looks: &[Look], is_over: bool) -> io::Result<()> {
        let mut managed = Managed::new();
        for report in self.page.reports()? {
            let lives = of_pid(looks, report.pid).is_some();
            let has_ended = report.is_over || (!lives && !exists(report.pid));
            if !has_ended && !is_over {
                self.census.note(&report);
                managed.insert(report.pid, report);
                continue;
            }
            if has_ended && !is_over {
                self.returned_bytes += self.page.share_bytes(&report)?;
                self.page.release(report.claim())?;
            }
            self.census.keep(report);
        }
        self.census.need(self.needed(looks, &managed));
        if self.options.divides && !is_over {
            self.divide(looks, &managed)?;
        }
        Ok(())
    }

    /// What the tree would hold now with RAM enough, what several have together once.
    fn needed(&self, looks: &[Look], managed: &Managed) -> u64 {
        let of = |look: &Look| {
            let report = managed.get(&look.pid);
            let needed = report.map_or(0, |report| report.counter("needed_bytes")).max(look.anon_bytes);
            needed.saturating_sub(self.sharing.doubly(look.pid).anon_bytes)
        };
        looks.iter().filter(|look| !look.is_guest && !self.census.is_passing(look.pid)).map(of).sum()
    }

    /// Tells the agents what nobody else has, and who has to make room for whom.
    fn divide(&mut self, looks: &[Look], managed: &Managed) -> io::Result<()> {
        // First: what others have, too, is not given away when one of them has ended.
        self.tell_in_common(managed)?;
        let unmanaged: i64 = looks.iter().map(|look| self.unmanaged_bytes(look, managed)).sum();
        let own = self.options.ram_bytes + self.returned_bytes;
        let unheard = unheard_bytes(&self.sharing, managed);
        self.page.set_launcher_bytes(own.cast_signed() - unmanaged - unheard.cast_signed())?;
        let is_managed = |report: &&Report| report.state == state::MANAGING;
        let members: Vec<Member> =
            managed.values().filter(is_managed).map(|report| self.member(report)).collect();
        let (free_bytes, passed_us) = (self.page.free_bytes()?, self.divided.elapsed().as_micros() as u64);
        self.divided = Instant::now();
        let words = self.divider.divide(self.options.ram_bytes, free_bytes, passed_us, &members);
        let is_divided = words.iter().any(|word| word.holds || word.limit_bytes != 0);
        // What nobody manages changes nothing in the pool: only a look shows that it has grown.
        self.free_bytes = (!is_divided && unmanaged == 0).then_some(free_bytes);
        let places: BTreeMap<usize, &Report> =
            managed.values().map(|report| (report.place, report)).collect();
        words.iter().try_for_each(|word| self.tell(*word, places[&word.place]))
    }

    /// What nobody manages of the budget. Who is not managed any more may have a share still: that
    /// much of what it holds is off already.
    fn unmanaged_bytes(&self, look: &Look, managed: &Managed) -> i64 {
        let report = managed.get(&look.pid);
        let is_managed = report.is_some_and(|report| report.state != state::UNMANAGED);
        if look.is_guest || is_managed || self.census.is_passing(look.pid) {
            return 0;
        }
        look.anon_bytes.cast_signed() - report.map_or(0, |report| report.share_bytes).cast_signed()
    }

    fn member(&self, report: &Report) -> Member {
        let pages = |names: [&str; 2]| names.iter().map(|name| report.counter(name)).sum();
        let needed = report.counter("needed_bytes");
        Member {
            place: report.place,
            share_bytes: report.share_bytes,
            fixed_bytes: report.counter("fixed_bytes"),
            returned: pages(["workingset_refault_anon", "pgmajfault"]),
            paged_out: pages(["pswpout", "zswpout"]),
            // Its turn it waits for by the launcher's own word.
            waited_us: report.counter("stalled_ns").saturating_sub(report.counter("held_ns")) / 1000,
            ran_us: processor_us(report.pid).saturating_sub(report.counter("agent_cpu_ns") / 1000),
            need_bytes: needed.saturating_sub(report.believed_bytes),
            is_held: report.is_held,
        }
    }

    /// Tells each process what others have, too, so that it counts once: a page that nobody stores
    /// to is there once, whoever is charged. Each store is a fault, so a process knows at its next
    /// look what does not hold any more, and whose answer is worn is asked again.
    ///
    /// *The story:* 100 children of fork of 7 MiB, nearly all of it their parent's, had 700 MiB in
    /// a budget of 64, and paged what was there once.
    ///
    /// *The other story:* six processes of Chromium have 14 MiB of relocated data in common.
    /// Counted six times it left the rest of the tree a sixth of its budget, and nothing got on.
    fn tell_in_common(&mut self, managed: &Managed) -> io::Result<()> {
        for report in managed.values() {
            let Some(told) = self.sharing.told(report.pid) else { continue };
            let is_same = told == report.in_common;
            if !is_same && (told.pages != 0 || report.in_common.pages != 0) {
                self.page.set_in_common(report.claim(), told)?;
            }
            if is_same && told.all_bytes() / 2 > report.believed_bytes {
                self.sharing.wear(report.pid);
            }
        }
        Ok(())
    }

    /// A word holds for a while only: should the launcher end nobody waits for it.
    fn tell(&self, word: Word, report: &Report) -> io::Result<()> {
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

/// What agents believe to count elsewhere and does not, as far as the launcher knows: they have not
/// heard yet. It is theirs, and not to be given away meanwhile.
///
/// A child that is not asked yet believes that its parent counts what it was born with. Of a parent
/// that was told of nothing in common no fault is heard, though each may have left a page to the
/// child alone.
///
/// *The story:* a worker ended, and all it had was given away at once. Its brothers, who slept,
/// believed for half a second more that it counted what was theirs alone now.
fn unheard_bytes(sharing: &Sharing, managed: &Managed) -> u64 {
    let word = |pid: u32| {
        let heard = managed.get(&pid).map_or(InCommon::default(), |report| report.in_common);
        sharing.told(pid).unwrap_or(heard)
    };
    let is_alone = |parent: u32| word(parent).pages == 0;
    let unheard = |report: &Report| {
        let is_newborn =
            sharing.told(report.pid).is_none() && sharing.parent_of_newborn(report.pid).is_some_and(is_alone);
        let counted = if is_newborn { 0 } else { word(report.pid).all_bytes() };
        report.believed_bytes.saturating_sub(counted)
    };
    let believes = |report: &&Report| [state::WATCHING, state::MANAGING].contains(&report.state);
    managed.values().filter(believes).map(unheard).sum()
}

/// What others have, too, of what a process holds: all but its own part, which is what it has with
/// others divided by their number. `None`: nobody knows.
///
/// *The story:* all of it was the look's figure, and its own part was read here. What a process had
/// let go of meanwhile was said to be in common, and given away a second time.
fn walk(look: &Look, shmem_bytes: u64) -> Option<Doubly> {
    // Before: a fault meanwhile counts twice rather than not at all.
    let faults = faults(look.pid);
    let names = ["Anonymous", "Pss_Anon", "Pss_Shmem"];
    let [anon_bytes, own_anon, own_shmem] = figures(look.pid, "smaps_rollup", names)?;
    Some(Doubly {
        anon_bytes: anon_bytes.saturating_sub(own_anon),
        shmem_bytes: shmem_bytes.saturating_sub(own_shmem),
        faults,
    })
}

fn exists(pid: u32) -> bool {
    let state = |stat: String| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    stat.and_then(state).is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// What is known against a program's being managed. To be asked while it lives.
fn objection(pid: u32) -> Option<String> {
    let executable = format!("/proc/{pid}/exe");
    if let Some(reason) = program::unmanageable(Path::new(&executable)) {
        let path =
            std::fs::read_link(&executable).map_or_else(|_| name(pid), |path| path.display().to_string());
        return Some(reason.replace(&executable, &path));
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variable = [ENV.as_bytes(), b"="].concat();
    let is_there = environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(&variable));
    (!is_there && !environment.is_empty()).then(|| "its environment was cleaned before it was started".into())
}

#[cfg(test)]
mod tests {
    use super::super::shared_page::Settings;
    use super::*;

    const MIB: u64 = 1 << 20;
    const PYTHON: u32 = 30;

    fn watcher() -> Watcher {
        let page = Arc::new(SharedPage::new(&Settings::default()).unwrap());
        let options = Options { ram_bytes: 100 * MIB, divides: true, strict: false };
        Watcher::new(page, Descendants::new(0, None), options)
    }

    fn process(pid: u32, parent: u32, mib: u64) -> Look {
        Look { pid, parent, program_pages: PYTHON, anon_bytes: mib * MIB, ..Look::default() }
    }

    /// Who was told of `told` MiB and believes `believed`. Nobody has the place, so no word goes out.
    fn report(pid: u32, told: u64, believed: u64) -> Report {
        let in_common = InCommon::new(told * MIB, 0);
        let empty = Report::empty(pid as usize, 2, pid, PYTHON);
        Report { state: state::WATCHING, in_common, believed_bytes: believed * MIB, ..empty }
    }

    fn managed<const N: usize>(reports: [Report; N]) -> Managed {
        reports.into_iter().map(|report| (report.pid, report)).collect()
    }

    /// What is free when each has `mib` in common with others, but nobody is asked unless memory `is_short`.
    fn free_mib(looks: &[Look], is_short: bool, mib: u64, managed: &Managed) -> i64 {
        let mut watcher = watcher();
        let walk = |_: &Look| Some(Doubly { anon_bytes: mib * MIB, ..Doubly::default() });
        watcher.sharing.look(looks, &watcher.census, is_short, || 0, walk);
        watcher.divide(looks, managed).unwrap();
        watcher.page.free_bytes().unwrap() / MIB.cast_signed()
    }

    /// See [`unheard_bytes`].
    #[test]
    fn what_was_told_and_not_heard_is_not_given_away() {
        let looks = [process(5, 1, 40), process(6, 5, 40)];
        let free = |told, believed| {
            free_mib(&looks, true, 10, &managed([report(5, told, believed), report(6, 10, 7)]))
        };
        assert_eq!(free(10, 10), 100, "it is as they were told");
        assert_eq!(free(30, 25), 85, "one has less in common now");
        assert_eq!(free(30, 8), 100, "and has heard, or stored to as much");
        let gave_up = Report { state: state::UNMANAGED, share_bytes: 40 * MIB, ..report(5, 30, 25) };
        assert_eq!(free_mib(&looks, true, 10, &managed([gave_up, report(6, 10, 7)])), 100);
    }

    /// See [`unheard_bytes`].
    #[test]
    fn what_a_newborn_believes_of_a_parent_that_knows_of_nothing_is_not_given_away() {
        let looks = [process(5, 1, 40), process(6, 5, 40)];
        let child = || report(6, 40, 38);
        assert_eq!(free_mib(&looks, false, 0, &managed([report(5, 0, 0), child()])), 62);
        assert_eq!(free_mib(&looks, true, 40, &managed([report(5, 0, 0), child()])), 100, "both are told");
    }

    /// See [`walk`].
    #[test]
    fn what_is_in_common_is_of_one_moment() {
        let own = walk(&process(std::process::id(), 1, 1 << 20), 0).unwrap();
        assert!(own.anon_bytes < 1 << 36, "not what an older look says: {}", own.anon_bytes);
    }

    /// *The story:* a program without an agent took memory for half a second that agents had, too.
    #[test]
    fn no_long_rest_while_somebody_is_unmanaged() {
        let mut watcher = watcher();
        let looks = [process(5, 1, 40), process(6, 1, 10)];
        watcher.divide(&looks, &managed([report(5, 0, 0), report(6, 0, 0)])).unwrap();
        assert!(watcher.is_still());
        watcher.divide(&looks, &managed([report(5, 0, 0)])).unwrap();
        assert!(!watcher.is_still(), "what 6 does no agent reports");
    }
}
