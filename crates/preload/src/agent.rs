//! The agent's life: watch until the program comes near its budget, then manage its memory until it ends.
//!
//! While the program is far below its budget the agent does nothing but read one number from /proc
//! now and then. All of it runs in one thread that libc does not know, with its own stack,
//! descriptors and allocator; it never touches the program's heap.

mod borrowing;
mod churn;
mod copies;
mod dropping;
mod enlisting;
mod forking;
pub mod growing;
mod halting;
mod judging;
mod lacking;
mod leaving;
mod left;
mod lending;
mod orders;
mod sleeping;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Display;
use core::sync::atomic::Ordering;

use overspill_engine::claims::Claims;
use overspill_engine::crowd::Crowd;
use overspill_engine::discards;
use overspill_engine::doze::{Doze, Signs};
use overspill_engine::growth::Growth;
use overspill_engine::patience::Patience;
use overspill_engine::pipes::Pipes;
use overspill_engine::purse::Purse;
use overspill_engine::report::Report;
use overspill_engine::shared::{Process, Shared, flags, state};
use overspill_engine::trace::{self, Ring};
use overspill_engine::{Engine, Failure, Reactor};
use overspill_mm::reserve::Reserve;
use overspill_sys::mem::{Mapping, Prot};
use overspill_sys::procfs::{self, Resident, ResidentReader};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock, thread};

use crate::adopt::Adopter;
use crate::custody::Custody;
use crate::ending::Ending;
use crate::heir::{Heir, Legacy};
use crate::huge::Huge;
use crate::launcher::Files;
use crate::nap::Nap;
use crate::settings;
use crate::sight::Sight;
use crate::urgency::Urgency;
use crate::{
    aside, file_agent, files, fork, fresh, guards, kept, lend, merging, message, retire, room, withheld,
};

use borrowing::Borrowing;
use churn::Churn;
use enlisting::place_of;
pub use enlisting::{
    Beginning, Mission, enlist, forget_place, has_elder, parents_place, path, stays_away, tell_failure, tree,
};
use forking::Linger;
use growing::Growing;
use halting::Halt;
use leaving::leave;
use lending::Lending;

/// At this share of what management starts at the earliest everything is opened that it takes, so
/// that it can start at once.
const PREPARE_PERCENT: u64 = 75;
/// A process with less is not worth managing: so much, or this share of the tree's budget if that is less.
const SMALL_BYTES: u64 = 4 << 20;
const SMALL_SHARE: u64 = 16;
/// ... or so much, while all who could be managed hold this share of the budget more than that together.
///
/// *The story:* a hundred of 3 MiB were let alone by each agent for itself, and held 316 MiB of 64.
const SMALL_CROWDED_BYTES: u64 = 1 << 20;
const CROWDED_SHARE: u64 = 16;
/// ... or so much, of a copy that could come to have far more as fast as it can store.
const SMALL_COPY_BYTES: u64 = 512 << 10;
/// A child of fork that has not called exec by then is taken for a program of its own.
const COPY_NS: u64 = 20_000_000;
/// Beside others a process has this share of the budget more than it holds, if nobody else wants it and if it
/// grows so fast; else its part of that.
///
/// *The story:* each had that much. Five that held 143 MiB of 200 together had all of it, and paged.
const HEADROOM_SHARE: u64 = 16;
/// Longest and shortest pause between two looks.
const LOOK_NS_MAX: u64 = 50_000_000;
const LOOK_NS_MIN: u64 = 1_000_000;
/// The shortest for a process that holds next to nothing where others hold most.
const TINY_LOOK_NS: u64 = 5_000_000;
/// While memory is not managed, so many looks share one look at the processor time that they took,
/// which costs as much as one.
const LOOKS_A_CPU_SAMPLE: u32 = 16;
/// Longest pause once memory is managed: threads that map much wait for the next look.
const MANAGED_LOOK_NS_MAX: u64 = 5_000_000;
/// Pause while unmanaged memory grows.
const GROWING_LOOK_NS: u64 = 250_000;
/// Memory that appeared outside the managed ranges and is worth another look at the maps.
const STRAY_BYTES: u64 = 1 << 20;
/// Of the time this share at most (a quarter) goes into searching managed memory for pages that
/// came without a fault.
const RESYNC_SHARE: u64 = 4;
/// Ranges that the agent's memory may get while they are listed.
const OWN_RANGES_SPARE: usize = 64;
/// The agent's own books come on top of the budget up to this share of it (1.6 %), beyond that off
/// it. Like the kernel's page structures and swap map, which no cgroup is charged for, they are not
/// the program's memory.
const BOOKS_SHARE: u64 = 64;
/// For so long after fresh memory was found this thread comes before all others.
const HURRY_NS: u64 = 1_000_000_000;

/// A process whose turn has come has what is out brought back for so long.
const RETURN_NS: u64 = 1_500_000_000;

/// With less than this part of the budget left what the kernel keeps of files is managed.
const TIGHT_SHARE: u64 = 32;
/// What could not be is tried again after that: a thread may be in the midst of a call for long, and each
/// try waits for it.
const TAKE_AGAIN_NS: u64 = 100_000_000;

/// Frames by which the budget must grow to be changed, or this share of a small one. *The story:*
/// of 9 MiB up to 192 frames lay idle, so that sqlite3 paged in what was said to hold it.
const BUDGET_STEP: u32 = 128;
const BUDGET_STEP_SHARE: u32 = 64;

/// How long a step may take that lowers the budget, and its size in frames.
const STEP_NS: u64 = 1_000_000;
const STEP_MIN: u32 = 64;
const STEP_MAX: u32 = 1 << 16;
/// For so long faults wait for the budget to come down, at most.
const FAULTS_WAIT_NS: u64 = 100_000_000;

/// Everything the agent has besides the engine.
struct Agent {
    shared: &'static Shared,
    process: &'static Process,
    /// The file of the shared page, for a trace; and those to page to that the launcher gave.
    memory: Option<Fd>,
    swap: Files,
    resident: ResidentReader,
    sight: Sight,
    pipes: Pipes,
    growth: Growth,
    ending: Ending,
    purse: Purse,
    borrowing: Borrowing,
    lending: Lending,
    churn: Churn,
    urgency: Urgency,
    /// A child of fork holds what its parent does until then, most of it only as a copy that was never made.
    counts_from: u64,
}

/// The ring of this process, if a trace is wanted. Without it the program is managed all the same.
fn ring_of(memory: &Fd, shared: &'static Shared, process: &'static Process) -> Option<&'static Ring> {
    let index = place_of(shared, process)?;
    let range =
        Mapping::shared(memory, trace::RING_BYTES, Prot::RW, trace::ring_offset(index) as u64).ok()?.leak();
    // SAFETY: with the flag the launcher made the file long enough for a ring for each process; a
    // ring is integers and atomics, valid whatever their bits. The mapping stays for ever.
    Some(unsafe { &*(range.start as *const Ring) })
}

/// The agent's life.
pub fn run(mission: Mission, mut heir: Option<Heir>) {
    // Until the program's memory is managed nothing but this thread's coming in time keeps the budget.
    let mut urgency = Urgency::inherited();
    if !urgency.hurry() {
        let _ = urgency.compete();
    }
    let purse = mission.purse();
    let Mission { shared, process, memory, swap, inherits, resident, sight, pipes } = mission;
    let counts_from = if inherits { clock::monotonic_ns() + COPY_NS } else { 0 };
    let borrowing = match (inherits && purse.lends()).then(|| resident.anon_bytes()) {
        Some(Ok(held)) => Borrowing::begin(process, held),
        _ => Borrowing::default(),
    };
    let (growth, ending) = (Growth::default(), Ending::new());
    // An agent before this one may have had places.
    process.counters.swap_area_bytes.store(0, Ordering::Relaxed);
    let mut agent = Agent {
        shared,
        process,
        memory,
        swap,
        resident,
        sight,
        pipes,
        growth,
        ending,
        purse,
        borrowing,
        lending: Lending::since(fork::ended()),
        churn: Churn::default(),
        urgency,
        counts_from,
    };
    let legacy = heir.as_mut().and_then(Heir::take);
    // Where nothing is inherited nobody waits any more.
    let heir = heir.filter(|_| legacy.is_some());
    if legacy.is_none() {
        agent.watch(|_, ram| {
            let prepared = Growth::earliest_bytes(ram) / 100 * PREPARE_PERCENT;
            (prepared, prepared)
        });
        if retire::is_asked() {
            return leave(agent.process);
        }
    }
    let outcome = agent.manage(inherits, heir.zip(legacy));
    // Its files to page to are closed.
    if let Some(claims) = Claims::of(shared, process) {
        claims.close();
    }
    if let Err(failure) = outcome {
        give_up(process, failure);
    }
}

fn give_up(process: &Process, failure: Failure) {
    process.error_step.store(failure.step, Ordering::Relaxed);
    process.error.store(failure.errno.raw_os_error() as u32, Ordering::Relaxed);
    process.state.store(state::UNMANAGED, Ordering::Release);
}

impl Agent {
    fn ram(&self) -> u64 {
        self.shared.config.ram_bytes
    }

    /// What the process holds. Nothing when /proc cannot be read: then nothing is known and nothing
    /// is done.
    fn resident(&self) -> Resident {
        self.resident.read().unwrap_or_default()
    }

    fn has(&self, flag: u32) -> bool {
        self.shared.config.flags & flag != 0
    }

    /// Who has less than this is left alone, however little there is.
    fn small_bytes(&self, is_crowded: bool) -> u64 {
        if self.has(flags::PER_PROCESS) {
            return 0;
        }
        let most = if is_crowded { SMALL_CROWDED_BYTES } else { SMALL_BYTES };
        most.min(self.ram() / SMALL_SHARE)
    }

    /// Returns when the program holds as many bytes as `start` tells for its growth: for now, and
    /// the least that it can tell at the next look.
    fn watch(&mut self, mut start: impl FnMut(&Growth, u64) -> (u64, u64)) {
        let (mut report, mut nap) = (Report::new(self.process), Nap::default());
        for looks in 0_u32.. {
            let asked = fresh::asked();
            let Resident { anon_bytes: bytes, shared_bytes, .. } = self.resident();
            file_agent::note_what_the_kernel_has(&report);
            room::borrowed::give_back();
            let kept = kept::resident(shared_bytes);
            report.sample_files_kept(kept);
            let bytes = bytes + kept;
            report.sample_resident(bytes, shared_bytes - kept);
            report.sample_needed(bytes, 0);
            if looks.is_multiple_of(LOOKS_A_CPU_SAMPLE) {
                report.sample_cpu();
            }
            let now = clock::monotonic_ns();
            self.keep_watch(now);
            let (bytes, ram) = self.reach(bytes, now);
            self.growth.observe(bytes, now);
            offer_room(ram, bytes.saturating_sub(kept));
            let (start, earliest) = start(&self.growth, ram);
            let small = self.small_bytes(self.purse.excess_of_managed() > self.ram() / CROWDED_SHARE);
            let is_copy = now >= self.counts_from && self.purse.could_copy_all();
            let small = if is_copy { small.min(SMALL_COPY_BYTES) } else { small };
            let (start, earliest) = (start.max(small), earliest.max(small));
            if bytes + fresh::coming() >= start || retire::is_asked() || files::is_asked() {
                return;
            }
            fresh::seen(asked);
            let next = if bytes < earliest { earliest } else { start };
            let pause = self.growth.pause_ns(next, ram);
            let is_tiny = bytes < self.small_bytes(false) / 2 && ram < self.ram() / 2;
            let least = if is_tiny { TINY_LOOK_NS } else { LOOK_NS_MIN };
            let pause = if is_copy { self.copy_pause_ns(pause) } else { pause };
            nap.sleep(asked, bytes, pause.clamp(least, LOOK_NS_MAX), is_copy);
        }
    }

    /// Manages the program's memory until it ends, or until the agent is asked to go. `inherits`: a
    /// fork made the process, which may have inherited what its parent had out.
    fn manage(&mut self, inherits: bool, mut legacy: Option<(Heir, Legacy)>) -> Result<(), Failure> {
        let Sight { pagemap, memory } = core::mem::take(&mut self.sight);
        let memory = memory.map(Arc::new);
        let files = core::mem::take(&mut self.swap);
        aside::put_data(&self.shared.config)?;
        let settings = settings::of(self.shared, self.process, files, pagemap);
        let report = Report::new(self.process);
        let mut engine = match legacy.as_mut().and_then(|(_, legacy)| legacy.inheritance.take()) {
            Some(inheritance) => Engine::open_heir(settings, report, inheritance)?,
            None => Engine::open(settings, report)?,
        };
        let failed = |errno| Failure { step: 4, errno };
        let ring = self.memory.as_ref().and_then(|memory| ring_of(memory, self.shared, self.process));
        if let Some(ring) = ring {
            engine.trace_to(ring, inherits);
        }
        engine.watch_lending(lend::lent(), core::mem::take(&mut self.pipes));
        engine.watch_rings(lend::rings());
        engine.watch_guards(guards::installed());
        engine.watch_wiping(withheld::wiped(), fork::heard());
        if let Some(memory) = &memory {
            engine.read_by(memory.clone());
            engine.watch_threads(memory.clone(), crate::joining::words());
        }
        engine.set_doorbells(fork::doorbells()).map_err(failed)?;
        let mut adopter = Adopter::open(&engine, memory).map_err(failed)?;
        let ram = self.ram();
        let (shared, process) = (self.shared, self.process);
        let heir = legacy.and_then(|(heir, legacy)| self.inherit(&mut engine, &mut adopter, heir, &legacy));
        if heir.is_none() {
            self.watch(|growth, ram| {
                orders::follow(&mut engine, shared, process);
                (growth.start_bytes(ram), Growth::earliest_bytes(ram))
            });
        }
        if retire::is_asked() && heir.is_none() {
            leave(self.process);
            return Ok(());
        }
        // *The story:* a parent that had forked before it was managed could page nothing out of what its
        // children had, too: it kept 66 MiB of 120 as long as they lived.
        if inherits || fork::ended() > 0 {
            engine.note_sharing();
        }
        if inherits {
            forking::begin_with(&mut engine, self.resident().anon_bytes);
        }
        self.process.state.store(state::MANAGING, Ordering::Release);
        let crowd = Crowd::new(self.process.pid.load(Ordering::Acquire));
        let mut manager = Manager {
            engine,
            adopter: &mut adopter,
            agent: self,
            reactor: Reactor::default(),
            crowd,
            stray_accepted: 0,
            stray_growth: 0,
            lack_accepted: 0,
            shrinks_since: None,
            step: STEP_MIN,
            next_resync: 0,
            resyncs_again: None,
            looked: clock::monotonic_ns(),
            returns_until: 0,
            returned: 0,
            reserve: Reserve::new(ram),
            growing: Growing::none(),
            takes_from: 0,
            drops_from: 0,
            excess: None,
            sealed_told: 0,
            hands_back: false,
            hands_back_for: Patience::default(),
            forbids: false,
            custody: None,
            linger: Linger::default(),
            goes_down: false,
            halt: Halt::of(inherits),
            hurries: false,
            hurries_until: clock::monotonic_ns() + HURRY_NS,
            doze: Doze::default(),
            own_threads: (0, 0),
            processors: procfs::processors().unwrap_or(u32::MAX),
            huge: Huge::look(),
        };
        manager.hurry(true);
        manager.engine.publish_files(files::table(), withheld::keeping_marks);
        // Where that cannot be everything comes in for a fork. *The story:* it was registered before the
        // watch. The kernel told of a fork then, for which the fork waits, and nobody listened: a program
        // that forked near its budget hung.
        let _ = manager.engine.set_mailbox(fork::mailbox(), fork::under_way());
        manager.custody = Custody::give(&manager.engine);
        let forks = fork::start_managing();
        // Who forked goes on: what it forks now is announced.
        if heir.is_some() {
            manager.agent.counts_from = clock::monotonic_ns() + COPY_NS;
        }
        drop(heir);
        if forks {
            manager.pause_whole();
            manager.permit_forks();
        } else {
            manager.forbid_forks();
        }
        fresh::manage(ram);
        // Who asked behind a filter, and saw nothing managed as yet, does not wait.
        if !retire::is_asked() {
            manager.look();
        }
        while !(retire::is_asked() && manager.hand_back()) {
            manager.turn();
        }
        manager.end_custody(false);
        Ok(())
    }
}

/// Says how much of files may be kept beside `held` bytes, of `ram` that could be held.
fn offer_room(ram: u64, held: u64) {
    kept::set_most(Growth::latest_bytes(ram).saturating_sub(held));
}

/// Says lines, or nothing.
fn say_unless(quiet: bool) -> impl Fn(&dyn Display) {
    move |line| {
        if !quiet {
            message::say(line);
        }
    }
}

/// Lists what is the agent's own and must never be managed.
fn own_ranges(engine: &Engine) -> impl Fn(&mut Vec<AddressRange>) + use<> {
    let engine_ranges = engine.own_ranges();
    move |ranges| {
        // The arena is locked while it tells its ranges: nothing may be allocated then.
        let mut count = engine_ranges.len();
        crate::each_own_range(|_| count += 1);
        ranges.reserve(count + OWN_RANGES_SPARE);
        ranges.extend(engine_ranges.iter().cloned());
        crate::each_own_range(|range| ranges.push(range));
    }
}

/// What is managed and in RAM, in bytes.
fn managed_bytes(engine: &Engine) -> u64 {
    u64::from(engine.frames()) * PAGE_SIZE as u64
}

/// Threads of the process, the agent's own among them; too many if nobody knows.
fn all_threads() -> u32 {
    procfs::thread_count().unwrap_or(u32::MAX)
}

/// The second half of the agent's life.
struct Manager<'a> {
    engine: Engine,
    adopter: &'a mut Adopter,
    agent: &'a mut Agent,
    reactor: Reactor,
    crowd: Crowd,
    /// Unmanaged bytes that the last look at the maps left.
    stray_accepted: u64,
    /// By so many the last look found more.
    stray_growth: u64,
    /// So much is managed by the books, and was not to be found.
    lack_accepted: u64,
    /// Since when the budget is on its way down to what it should be, and by how many frames the
    /// next step lowers it.
    shrinks_since: Option<u64>,
    step: u32,
    next_resync: u64,
    /// What was found and not believed is looked for once more then.
    resyncs_again: Option<u64>,
    /// When it looked last.
    looked: u64,
    /// Its turn has come: until then what is out is brought back.
    returns_until: u64,
    /// ... from this address on.
    returned: usize,
    reserve: Reserve,
    growing: Growing,
    /// What the kernel keeps could not be taken, and is not tried to be before then.
    takes_from: u64,
    /// Where dropping goes on.
    drops_from: usize,
    /// Forks that nobody hears of are refused.
    forbids: bool,
    /// Who may have the memory for longer than this process lives finds no zeroes.
    custody: Option<Custody>,
    /// Swap is full.
    excess: Option<judging::Excess>,
    /// So many bytes of sealed memory were told.
    sealed_told: u64,
    /// Everything is brought in, for the agent is to go.
    hands_back: bool,
    /// For so long files could not be given back.
    hands_back_for: Patience,
    /// Everything is in, and the next fork may follow.
    linger: Linger,
    /// The budget goes down step by step.
    goes_down: bool,
    /// A copy of its parent makes room before it stores.
    halt: Halt,
    /// This thread comes before all others.
    hurries: bool,
    hurries_until: u64,
    /// The process does nothing.
    doze: Doze,
    /// Threads of the process when the agent's own among them were counted, and those.
    own_threads: (u32, u32),
    processors: u32,
    huge: Huge,
}

impl Manager<'_> {
    /// One turn of the reactor, and a look around when it is time.
    fn turn(&mut self) {
        match self.shrinks_since {
            None => self.react(),
            Some(since) => {
                self.engine.crank_without_faults();
                if clock::monotonic_ns() > since + FAULTS_WAIT_NS {
                    // Whatever goes on being found: nobody waits for ever.
                    self.engine.crank();
                }
                self.judge_all();
            }
        }
        if fork::is_paused() {
            self.after_fork();
        }
        self.look();
    }

    /// Does what there is to do until the next look is due.
    fn react(&mut self) {
        let pause = match (fork::is_paused(), self.stray_growth > STRAY_BYTES / 4) {
            (true, _) => self.linger.look_ns(),
            (false, true) => GROWING_LOOK_NS,
            (false, false) if self.goes_down || self.agent.borrowing.left().goes_on() => LOOK_NS_MIN,
            (false, false) => {
                let ram = self.agent.ram();
                let sleepers = self.doze.is_quiet().then(|| self.sleepers());
                let quiet = sleepers.map_or(0, |sleepers| self.doze.pause_ns(ram, &sleepers));
                self.agent.growth.pause_ns(0, ram).max(quiet).clamp(LOOK_NS_MIN, MANAGED_LOOK_NS_MAX)
            }
        };
        let began = clock::monotonic_ns();
        let (mut until, faults) = (began + pause, self.engine.mm().stats().pgfault);
        loop {
            self.reactor.turn(&mut self.engine, until, None);
            self.judge_all();
            let now = clock::monotonic_ns();
            self.heed_others(now);
            if self.engine.mm().stats().pgfault != faults || fresh::is_awaited(fresh::asked()) {
                // It does something again.
                until = until.min(began + LOOK_NS_MIN);
            }
            if now >= until {
                break;
            }
        }
    }

    /// Others of the run page to the same device.
    fn heed_others(&mut self, now: u64) {
        let is_held = self.agent.process.held_until_ns.load(Ordering::Acquire) > now;
        self.crowd.exchange(&self.agent.shared.tree, self.engine.policy_mut(), now, is_held);
    }

    /// Compares what is resident with what is managed, adopts what is new and sets the budget of the rest.
    fn look(&mut self) {
        let asked = fresh::asked();
        let is_awaited = fresh::is_awaited(asked);
        merging::stop();
        room::borrowed::give_back();
        self.serve_files();
        self.growing.look(&mut self.engine);
        let Resident { anon_bytes: resident, shared_bytes, .. } = self.agent.resident();
        let mut kept = kept::resident(shared_bytes);
        self.engine.report().sample_resident(resident + kept, shared_bytes - kept);
        self.engine.report().sample_cpu();
        let now = clock::monotonic_ns();
        self.agent.keep_watch(now);
        self.agent.share_with_kin(resident + kept, now);
        // What nobody has asked for is no growth, and is nobody's to keep: it goes when others want room.
        let unseen = self.engine.unseen_bytes();
        self.agent.growth.observe(self.agent.purse.own((resident + kept).saturating_sub(unseen)), now);
        let managed = managed_bytes(&self.engine);
        let mut stray = resident.saturating_sub(managed);
        let growth = stray.saturating_sub(self.stray_accepted);
        self.stray_growth = growth;
        self.reserve.observe(growth, now);
        let has_grown = growth > STRAY_BYTES;
        let looks_again = self.resyncs_again.is_some_and(|at| at <= now);
        if !fork::is_paused() && (has_grown || looks_again || is_awaited || self.lacks(resident)) {
            if has_grown {
                self.hurries_until = clock::monotonic_ns() + HURRY_NS;
                self.hurry(true);
            }
            let missed = self.adopt(has_grown || looks_again);
            let managed = managed_bytes(&self.engine);
            stray = self.agent.resident().anon_bytes.saturating_sub(managed);
            if !missed {
                self.stray_accepted = stray;
            }
        }
        fresh::seen(asked);
        if self.is_young(now) {
            self.engine.tick();
            return;
        }
        self.stray_accepted = self.stray_accepted.min(stray);
        let ram = self.agent.ram();
        let books = (crate::book_bytes() as u64).min(stray).min(ram / BOOKS_SHARE);
        // What the books are beyond that is part of the need, as it comes off the budget.
        let pages = self.engine.pages_bytes() + stray - books;
        let blank = self.engine.blank_bytes();
        self.engine.tell_heritage();
        self.engine.report().sample_needed(pages + kept, blank);
        let held = (managed_bytes(&self.engine) + stray).saturating_sub(books);
        let used = held.saturating_sub(self.engine.unseen_bytes());
        self.bound_excess(held, now);
        self.drop_droppable(used);
        self.wait_for_turn(now);
        self.halt_stores(now);
        self.tell_sealed();
        let sealed = self.engine.sealed_bytes().min(managed_bytes(&self.engine));
        self.engine.report().sample_fixed(stray - books + sealed);
        let wanted = if now < self.returns_until { used.max(pages) } else { 0 };
        let wanted = wanted.max(self.wanted(used + kept));
        let allowed = self.agent.purse.follow(held + kept, wanted, stray - books);
        if kept::bytes() > 0 && self.is_tight(used + kept) && self.take_kept() {
            kept = 0;
        }
        self.engine.report().sample_files_kept(kept);
        offer_room(self.agent.purse.reach(), used);
        let unpaged = stray - books + self.reserve.beside(self.agent.purse.spare(allowed)) + kept;
        let floor = self.agent.purse.floor(stray - books).max(self.reserve.least_bytes());
        let budget = self.in_steps(aside::frames(allowed.saturating_sub(unpaged).max(floor)));
        if self.approach(budget) {
            self.shrinks_since.get_or_insert_with(clock::monotonic_ns);
        } else {
            self.shrinks_since = None;
        }
        if self.engine.has_read() {
            let more = self.reserve.bytes() - self.reserve.least_bytes();
            let allowed = u64::from(self.engine.budget()) * PAGE_SIZE as u64;
            self.engine.report().sample_budget(allowed + more);
        }
        let is_growing = clock::monotonic_ns() < self.hurries_until && !fork::is_paused();
        self.hurry(is_growing || self.agent.may_copy_all(now) || self.is_attending());
        self.engine.tick();
        self.follow_orders();
        let is_busy = is_awaited
            || self.shrinks_since.is_some()
            || self.resyncs_again.is_some()
            || now < self.returns_until
            || self.hurries
            || !self.engine.is_at_rest();
        let faults = self.engine.mm().stats().pgfault;
        let threads = all_threads();
        self.doze.observe(Signs { faults, resident_bytes: resident, threads, is_busy });
    }

    /// Follows the launcher's word on whose turn it is. Whoever waits for it waits for memory.
    fn wait_for_turn(&mut self, now: u64) {
        let process = self.agent.process;
        let until = process.held_until_ns.load(Ordering::Acquire);
        if until > now {
            (self.returns_until, self.returned) = (now + RETURN_NS, 0);
        } else if now < self.returns_until && !fork::is_paused() {
            self.returned = self.engine.bring_back(self.returned);
        }
        self.engine.hold(if fork::is_paused() || self.hands_back { 0 } else { until });
        let is_held = self.engine.is_held();
        if process.is_held.swap(u32::from(is_held), Ordering::AcqRel) != 0 {
            self.engine.report().note_wait(now - self.looked);
        }
        self.looked = now;
    }

    /// Does what threads ask for that map files.
    fn serve_files(&mut self) {
        file_agent::serve(&mut self.engine, say_unless(self.agent.has(flags::QUIET)));
    }

    /// Is what the kernel keeps of files in the way of what is held? Before anything has to leave.
    fn is_tight(&self, held: u64) -> bool {
        let reach = self.agent.purse.reach();
        held + self.reserve.bytes() + reach / TIGHT_SHARE > reach
    }

    /// Manages what the kernel keeps, all of it. False where that is to be tried again.
    fn take_kept(&mut self) -> bool {
        let now = clock::monotonic_ns();
        if fork::is_paused() || fork::is_under_way() || self.hands_back || now < self.takes_from {
            return false;
        }
        let say = say_unless(self.agent.has(flags::QUIET));
        let is_done = file_agent::take(&mut self.engine, &(0..usize::MAX), &say);
        if !is_done {
            self.takes_from = now + TAKE_AGAIN_NS;
        }
        is_done
    }

    /// What a process that holds `held` bytes should have before it pages: all, unless others want some, too.
    fn wanted(&self, held: u64) -> u64 {
        let (ram, purse) = (self.agent.ram(), &self.agent.purse);
        if purse.is_alone() {
            return ram;
        }
        let most = ram / HEADROOM_SHARE;
        // Without that it would page to have it.
        let frames = (self.engine.mm().frames_kept() + BUDGET_STEP) as u64 * PAGE_SIZE as u64;
        let (least, burst) = (self.reserve.least_bytes(), self.reserve.bytes());
        let lead = self.agent.growth.lead_bytes().max(most / u64::from(purse.sharers()));
        held + least + frames + (burst - least + lead).min(most)
    }

    /// Brings the engine's budget to `budget`, at once or by a step. True while more steps are due:
    /// see [`Engine::make_room`].
    fn approach(&mut self, budget: u32) -> bool {
        let now = self.engine.budget();
        // Lower each time, whether anything left or not; what the program itself has given back
        // counts at once.
        let step = now.saturating_sub(self.step).min(self.engine.frames());
        if budget < step && self.engine.evicts_slowly() && !fork::is_paused() {
            let began = clock::monotonic_ns();
            self.engine.set_budget(step);
            let took = clock::monotonic_ns() - began;
            let next = u64::from(self.step) * STEP_NS / took.max(1);
            self.step = (next as u32).clamp(self.step / 2, self.step * 2).clamp(STEP_MIN, STEP_MAX);
            return true;
        }
        // What is unmanaged goes up and down by a few pages all the time: less is heeded at once,
        // more when it is some.
        let step = BUDGET_STEP.min(budget / BUDGET_STEP_SHARE);
        if budget < now || budget > now + step {
            self.engine.set_budget(budget - step / 2);
        }
        self.step = STEP_MIN;
        false
    }

    /// Comes before all other threads, or competes with them again. *The story:* a program maps and
    /// touches some megabytes a millisecond, and beside other work this thread was put off by up to
    /// 45 ms while runnable, by whole sessions' worth of others (a nice value counts only within a
    /// session). Not all the time: a lone fault takes longer then.
    fn hurry(&mut self, hurries: bool) {
        let hurries = hurries && thread::may_come_before();
        if hurries != self.hurries {
            self.hurries = hurries;
            let urgency = &mut self.agent.urgency;
            let comes_first = if hurries { urgency.hurry() } else { urgency.compete() };
            self.reactor.set_spinning(!comes_first);
        }
    }

    /// True when something is still to be adopted that was changing. What has grown is somewhere.
    fn adopt(&mut self, has_grown: bool) -> bool {
        let own = own_ranges(&self.engine);
        let adopted = self.adopter.adopt(&mut self.engine, own);
        self.own_up(adopted.as_ref().err().copied());
        let adopted = adopted.unwrap_or_default();
        let now = clock::monotonic_ns();
        if adopted.again {
            self.resyncs_again = Some(now + 2 * discards::REST_NS);
        }
        if has_grown && adopted.pages == 0 && !adopted.missed && now >= self.next_resync {
            // Nothing new is mapped: pages came in old mappings without a fault (stores to what had
            // been read before it was adopted, which is the zero page, and MADV_FREE that was not
            // carried out).
            let again = self.adopter.resync(&mut self.engine).unwrap_or(false);
            let now_through = clock::monotonic_ns();
            self.next_resync = now_through + (now_through - now) * RESYNC_SHARE;
            self.resyncs_again = again.then_some(now_through + 2 * discards::REST_NS);
        }
        adopted.missed
    }

    /// A process of which nothing can be managed is not managed, whatever the agent would like to do.
    fn own_up(&self, failure: Option<Errno>) {
        let process = self.agent.process;
        match failure {
            Some(errno) if self.engine.frames() == 0 => give_up(process, Failure { step: 4, errno }),
            _ => process.state.store(state::MANAGING, Ordering::Release),
        }
    }

    fn say(&self, text: &str) {
        self.say_words(format_args!("{text}"));
    }

    fn say_words(&self, words: core::fmt::Arguments<'_>) {
        if !self.agent.has(flags::QUIET) {
            message::say(words);
        }
    }
}
