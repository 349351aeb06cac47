//! The agent's life: watch until the program comes near its budget, then manage its memory until it ends.
//!
//! While the program is far below its budget the agent does nothing but read one number from /proc now and then. All of
//! it runs in one thread that libc does not know, with its own stack, descriptors and allocator; it never touches the
//! program's heap.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use overspill_engine::growth::Growth;
use overspill_engine::report::Report;
use overspill_engine::shared::{Config, Process, Shared, events, flags, state};
use overspill_engine::trace::{self, Ring};
use overspill_engine::{Engine, Failure, Notice, Reactor, Settings, SwapPlace};
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::reserve::Reserve;
use overspill_sys::mem::{Mapping, Prot};
use overspill_sys::procfs::{self, Limit, ResidentReader};
use overspill_sys::thread::Scheduling;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, reserve};

use rustix::process::{Pid, Signal, test_kill_process};

use crate::adopt::Adopter;
use crate::fork;
use crate::fresh;
use crate::lend;
use crate::message;

/// At this share of what management starts at the earliest everything is opened that it takes, so that it can start at once.
const PREPARE_PERCENT: u64 = 75;
/// A child of fork that inherits this share of the budget is left alone.
const INHERITED_PERCENT: u64 = 25;
/// Length of the agent's turns on a busy processor: the shortest there is.
const TURN_NS: u64 = 100_000;
/// Longest and shortest pause between two looks.
const LOOK_NS_MAX: u64 = 50_000_000;
const LOOK_NS_MIN: u64 = 1_000_000;
/// While memory is not managed, so many looks share one look at the processor time that they took, which costs as much as one.
const LOOKS_A_CPU_SAMPLE: u32 = 16;
/// Longest pause once memory is managed: threads that map much wait for the next look.
const MANAGED_LOOK_NS_MAX: u64 = 5_000_000;
/// Pause while unmanaged memory grows.
const GROWING_LOOK_NS: u64 = 250_000;
/// Memory that appeared outside the managed ranges and is worth another look at the maps.
const STRAY_BYTES: u64 = 1 << 20;
/// Of the time this share at most (a quarter) goes into searching managed memory for pages that came without a fault.
const RESYNC_SHARE: u64 = 4;
/// Ranges that the agent's memory may get while they are listed.
const OWN_RANGES_SPARE: usize = 64;
/// The agent's own books come on top of the budget up to this share of it (1.6 %), beyond that off it. Like the kernel's page
/// structures and swap map, which no cgroup is charged for, they are not the program's memory.
const BOOKS_SHARE: u64 = 64;
/// For so long after fresh memory was found this thread comes before all others.
const HURRY_NS: u64 = 1_000_000_000;

/// Frames by which the budget must grow to be changed.
const BUDGET_STEP: u32 = 128;

/// How long a step may take that lowers the budget, and its size in frames.
const STEP_NS: u64 = 1_000_000;
const STEP_MIN: u32 = 64;
const STEP_MAX: u32 = 1 << 16;
/// For so long faults wait for the budget to come down, at most.
const FAULTS_WAIT_NS: u64 = 100_000_000;

/// How often a paused agent looks whether the fork is over.
const FORK_LOOK_NS: u64 = 100_000;

/// Everything the agent has besides the engine.
struct Agent {
    place: Place,
    shared: &'static Shared,
    process: &'static Process,
    resident: ResidentReader,
    growth: Growth,
}

/// Where the shared page is: descriptor `descriptor` of process `launcher`.
#[derive(Clone, Copy)]
pub struct Place {
    /// Process id.
    pub launcher: u32,
    /// Descriptor number there.
    pub descriptor: u32,
}

/// What the launcher told, and where to report.
pub struct Mission {
    place: Place,
    shared: &'static Shared,
    process: Option<&'static Process>,
}

impl Mission {
    /// The budget in bytes.
    pub fn ram(&self) -> u64 {
        self.shared.config.ram_bytes
    }
}

/// As [`stand_by`], and claims a place in the shared page.
pub fn enlist(place: Place) -> Option<Mission> {
    let mission = stand_by(place)?;
    Some(Mission { process: Some(claim(mission.shared)?), ..mission })
}

/// Finds the shared page and puts addresses aside, but claims nothing before there is something to report: most children of fork
/// call exec, or do little.
pub fn stand_by(place: Place) -> Option<Mission> {
    let shared = map_shared(place).ok()?;
    put_aside(&shared.config);
    Some(Mission { place, shared, process: None })
}

/// Puts aside the addresses that the agent will need; see [`reserve`] for why. Its books take less than a hundredth of the
/// program's memory, the compressed pool has its share of the budget, and the rest is a few MiB.
fn put_aside(config: &Config) {
    const BYTES: u64 = 256 << 20;
    const RAM_SHARE: u64 = 8;
    /// At most this share of a limit on address space.
    const LIMIT_SHARE: u64 = 16;
    let pool = config.ram_bytes / 100 * u64::from(config.max_pool_percent);
    let (limit, _) = procfs::limit(Limit::AddressSpace).unwrap_or((u64::MAX, u64::MAX));
    let bytes = (BYTES + config.ram_bytes / RAM_SHARE + pool).min(limit / LIMIT_SHARE);
    if let Ok(bytes) = usize::try_from(bytes) {
        // Without a reserve the kernel chooses the addresses, which is worse, not wrong.
        let _ = reserve::set_up(bytes);
    }
}

/// The ring of this process, if a trace is wanted. Without it the program is managed all the same.
fn ring_of(place: Place, shared: &'static Shared, process: &'static Process) -> Option<&'static Ring> {
    if shared.config.flags & flags::TRACE == 0 {
        return None;
    }
    let index = shared.processes.iter().position(|other| core::ptr::eq(other, process))?;
    let fd = overspill_sys::file::open_of_process(place.launcher, place.descriptor).ok()?;
    let range =
        Mapping::shared(&fd, trace::RING_BYTES, Prot::RW, trace::ring_offset(index) as u64).ok()?.leak();
    // SAFETY: with the flag the launcher made the file long enough for a ring for each process; a ring is integers and
    // atomics, valid whatever their bits. The mapping stays for ever.
    Some(unsafe { &*(range.start as *const Ring) })
}

/// The agent's life.
pub fn run(mission: Mission) {
    let _ = compete();
    // Until the program's memory is managed nothing but this thread's coming in time keeps the budget.
    let _ = Scheduling::first().set();
    let Mission { place, shared, process } = mission;
    let Ok(resident) = ResidentReader::open() else {
        return process.map_or((), |process| give_up(process, Failure { step: 6, errno: Errno::NOENT }));
    };
    let unlisted = || -> &'static Process { Box::leak(Box::new(Process::new())) };
    let mut agent = Agent {
        place,
        shared,
        process: process.unwrap_or_else(unlisted),
        resident,
        growth: Growth::default(),
    };
    // What a child shares with its parent cannot be taken from it: one that inherits much is left alone.
    if process.is_none() && agent.anon_bytes() >= agent.ram() / 100 * INHERITED_PERCENT {
        return;
    }
    let prepared = Growth::earliest_bytes(agent.ram()) / 100 * PREPARE_PERCENT;
    agent.watch(|_| (prepared, prepared));
    if process.is_none() {
        let Some(process) = claim(shared) else { return };
        agent.process = process;
    }
    if let Err(failure) = agent.manage() {
        give_up(agent.process, failure);
    }
}

/// When all processors are busy, a program that waits for a page waits for this thread to be given one. The lower nice value is
/// a privilege; without it things are merely slower.
fn compete() -> Result<(), Errno> {
    let ordinary = |nice| Scheduling::ordinary(nice, TURN_NS).set();
    ordinary(-10).or_else(|_| ordinary(0))
}

fn map_shared(place: Place) -> Result<&'static Shared, Errno> {
    let fd = overspill_sys::file::open_of_process(place.launcher, place.descriptor)?;
    let len = size_of::<Shared>().next_multiple_of(PAGE_SIZE);
    let range = Mapping::shared(&fd, len, Prot::RW, 0)?.leak();
    // SAFETY: the launcher made the file at least this long and keeps its layout; every field is valid whatever its
    // bits, and everything but the configuration (constant by now) is atomic. The mapping stays for ever.
    let shared = unsafe { &*(range.start as *const Shared) };
    let known = shared.config.magic == overspill_engine::shared::MAGIC
        && shared.config.version == overspill_engine::shared::VERSION;
    if known { Ok(shared) } else { Err(Errno::INVAL) }
}

/// A place in the table: after an exec the process's own, else a free one, else one whose process ended without ever having
/// been managed.
fn claim(shared: &'static Shared) -> Option<&'static Process> {
    let pid = overspill_sys::mem::process_id();
    let mine = |process: &&Process| process.pid.load(Ordering::Relaxed) == pid;
    let (free, watching) = (state::FREE, state::WATCHING);
    let is_free = |process: &&Process| {
        process.state.compare_exchange(free, watching, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let is_left = |process: &&Process| {
        let owner = process.pid.load(Ordering::Relaxed);
        process.state.load(Ordering::Acquire) == watching
            && is_gone(owner)
            && process.pid.compare_exchange(owner, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let all = || shared.processes.iter();
    let process = all().find(mine).or_else(|| all().find(is_free)).or_else(|| all().find(is_left))?;
    process.pid.store(pid, Ordering::Relaxed);
    process.state.store(state::WATCHING, Ordering::Release);
    Some(process)
}

fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
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

    /// Anonymous memory of the process. Zero when /proc cannot be read: then nothing is known and nothing is done.
    fn anon_bytes(&self) -> u64 {
        self.resident.anon_bytes().unwrap_or(0)
    }

    fn has(&self, flag: u32) -> bool {
        self.shared.config.flags & flag != 0
    }

    /// Returns when the program holds as many bytes as `start` tells for its growth: for now, and the least that it can tell
    /// at the next look.
    fn watch(&mut self, start: impl Fn(&Growth) -> (u64, u64)) {
        let mut report = Report::new(self.process);
        let ram = self.ram();
        for looks in 0_u32.. {
            let asked = fresh::asked();
            let bytes = self.anon_bytes();
            report.sample_resident(bytes);
            if looks.is_multiple_of(LOOKS_A_CPU_SAMPLE) {
                report.sample_cpu();
            }
            self.growth.observe(bytes, clock::monotonic_ns());
            let (start, earliest) = start(&self.growth);
            if bytes + fresh::coming() >= start {
                return;
            }
            fresh::seen(asked);
            let next = if bytes < earliest { earliest } else { start };
            let pause = self.growth.pause_ns(next, ram);
            fresh::sleep(asked, pause.clamp(LOOK_NS_MIN, LOOK_NS_MAX));
        }
    }

    /// Manages the program's memory until it ends. Returns only when that is impossible.
    fn manage(&mut self) -> Result<(), Failure> {
        // Threads that are started here compete as this one does.
        let _ = compete();
        let mut engine = Engine::open(self.settings(), Report::new(self.process))?;
        let _ = Scheduling::first().set();
        let failed = |errno| Failure { step: 4, errno };
        if let Some(ring) = ring_of(self.place, self.shared, self.process) {
            engine.trace_to(ring);
        }
        engine.watch_lending(lend::lent());
        engine.set_doorbells(fork::doorbells()).map_err(failed)?;
        let mut adopter = Adopter::open().map_err(failed)?;
        let ram = self.ram();
        self.watch(|growth| (growth.start_bytes(ram), Growth::earliest_bytes(ram)));
        self.process.state.store(state::MANAGING, Ordering::Release);
        let mut manager = Manager {
            engine,
            adopter: &mut adopter,
            agent: self,
            reactor: Reactor::default(),
            stray_accepted: 0,
            grew: false,
            shrinks_since: None,
            step: STEP_MIN,
            next_resync: 0,
            reserve: Reserve::new(ram),
            hurries: false,
            hurries_until: clock::monotonic_ns() + HURRY_NS,
            unsharing: false,
        };
        manager.hurry(true);
        if fork::start_managing() {
            manager.pause();
        }
        fresh::manage(ram);
        manager.look();
        loop {
            manager.turn();
        }
    }

    fn settings(&self) -> Settings {
        let config: &Config = &self.shared.config;
        let frames = |bytes: u64| u32::try_from(bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX / 32);
        Settings {
            frames: frames(config.ram_bytes),
            frames_max: frames(config.ram_bytes),
            swap: SwapPlace::decode(&config.swap_places),
            swap_bytes_max: config.swap_bytes_max,
            use_move: !self.has(flags::NO_MOVE),
            use_uring: !self.has(flags::NO_URING),
            poll_idle: self.has(flags::POLL_IDLE),
            user_mode_only: false,
            policy: policy_of(config, frames(config.ram_bytes)),
            max_pool_percent: config.max_pool_percent,
            fixed_pool: self.has(flags::FIXED_POOL),
            checksums: !self.has(flags::NO_CHECKSUM),
        }
    }
}

/// The read-ahead policy that the launcher chose: an index into the names that `mm` knows.
fn policy_of(config: &Config, frames: u32) -> Policy {
    let mut chosen = policy::Config { frames, ..policy::Config::default() };
    if config.page_cluster != u32::MAX {
        chosen.knobs.page_cluster = config.page_cluster.min(31) as u8;
    }
    let name = policy::NAMES.get(config.readahead as usize).unwrap_or(&policy::NAMES[0]);
    Policy::by_name(name, chosen).expect("every listed name makes a policy")
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

/// The second half of the agent's life.
struct Manager<'a> {
    engine: Engine,
    adopter: &'a mut Adopter,
    agent: &'a mut Agent,
    reactor: Reactor,
    /// Unmanaged bytes that the last look at the maps left.
    stray_accepted: u64,
    /// The last look found more of them.
    grew: bool,
    /// Since when the budget is on its way down to what it should be, and by how many frames the next step lowers it.
    shrinks_since: Option<u64>,
    step: u32,
    next_resync: u64,
    reserve: Reserve,
    /// This thread comes before all others.
    hurries: bool,
    hurries_until: u64,
    /// A fork is over, and pages are being made the program's own again.
    unsharing: bool,
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
        let pause = match (fork::is_paused(), self.grew) {
            (true, _) => FORK_LOOK_NS,
            (false, true) => GROWING_LOOK_NS,
            (false, false) => {
                self.agent.growth.pause_ns(0, self.agent.ram()).clamp(LOOK_NS_MIN, MANAGED_LOOK_NS_MAX)
            }
        };
        let until = clock::monotonic_ns() + pause;
        loop {
            self.reactor.turn(&mut self.engine, until, None);
            self.judge_all();
            if clock::monotonic_ns() >= until {
                break;
            }
        }
    }

    /// Compares what is resident with what is managed, adopts what is new and sets the budget of the rest.
    fn look(&mut self) {
        let asked = fresh::asked();
        let resident = self.agent.anon_bytes();
        self.engine.report().sample_resident(resident);
        self.engine.report().sample_cpu();
        let now = clock::monotonic_ns();
        self.agent.growth.observe(resident, now);
        let managed = u64::from(self.engine.frames()) * PAGE_SIZE as u64;
        let mut stray = resident.saturating_sub(managed);
        let growth = stray.saturating_sub(self.stray_accepted);
        self.grew = growth > STRAY_BYTES / 4;
        self.reserve.observe(growth, now);
        let has_grown = growth > STRAY_BYTES;
        if (has_grown || fresh::is_awaited(asked)) && !fork::is_paused() {
            if has_grown {
                self.hurries_until = clock::monotonic_ns() + HURRY_NS;
                self.hurry(true);
            }
            let missed = self.adopt(has_grown);
            let managed = u64::from(self.engine.frames()) * PAGE_SIZE as u64;
            stray = self.agent.anon_bytes().saturating_sub(managed);
            if !missed {
                self.stray_accepted = stray;
            }
        }
        fresh::seen(asked);
        self.stray_accepted = self.stray_accepted.min(stray);
        let ram = self.agent.ram();
        let books = (crate::book_bytes() as u64).min(ram / BOOKS_SHARE).min(stray);
        let budget = ram.saturating_sub(stray - books + self.reserve.bytes()) / PAGE_SIZE as u64;
        let budget = u32::try_from(budget).unwrap_or(u32::MAX / 32);
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
        self.hurry(clock::monotonic_ns() < self.hurries_until && !fork::is_paused());
        self.engine.tick();
    }

    /// Brings the engine's budget to `budget`, at once or by a step. True while more steps are due: see [`Engine::make_room`].
    fn approach(&mut self, budget: u32) -> bool {
        let now = self.engine.budget();
        // Lower each time, whether anything left or not; what the program itself has given back counts at once.
        let step = now.saturating_sub(self.step).min(self.engine.frames());
        if budget < step && self.engine.evicts_slowly() && !fork::is_paused() {
            let began = clock::monotonic_ns();
            self.engine.set_budget(step);
            let took = clock::monotonic_ns() - began;
            let next = u64::from(self.step) * STEP_NS / took.max(1);
            self.step = (next as u32).clamp(self.step / 2, self.step * 2).clamp(STEP_MIN, STEP_MAX);
            return true;
        }
        // What is unmanaged goes up and down by a few pages all the time: less is heeded at once, more when it is some.
        if budget < now || budget > now + BUDGET_STEP {
            self.engine.set_budget(budget - budget.min(BUDGET_STEP / 2));
        }
        self.step = STEP_MIN;
        false
    }

    /// Comes before all other threads, or competes with them again. *The story:* a program maps and touches some megabytes a
    /// millisecond, and beside other work this thread was put off by up to 45 ms while runnable, by whole sessions' worth of
    /// others (a nice value counts only within a session). Not all the time: a lone fault takes longer then.
    fn hurry(&mut self, hurries: bool) {
        if hurries != self.hurries {
            self.hurries = hurries;
            // The first is a privilege, the second is granted to whoever has that.
            let changed = if hurries { Scheduling::first().set() } else { compete() };
            self.reactor.set_spinning(!(hurries && changed.is_ok()));
        }
    }

    /// True when something is still to be adopted that was changing. What has grown is somewhere.
    fn adopt(&mut self, has_grown: bool) -> bool {
        let own = own_ranges(&self.engine);
        let adopted = self.adopter.adopt(&mut self.engine, own).unwrap_or_default();
        let now = clock::monotonic_ns();
        if has_grown && adopted.pages == 0 && !adopted.missed && now >= self.next_resync {
            // Nothing new is mapped: pages came in old mappings without a fault (stores to what had been read before it was
            // adopted, which is the zero page, and MADV_FREE that was not carried out).
            let _ = self.adopter.resync(&mut self.engine);
            self.next_resync = now + (clock::monotonic_ns() - now) * RESYNC_SHARE;
        }
        adopted.missed
    }

    fn judge_all(&mut self) {
        while let Some(notice) = self.engine.notice() {
            self.judge(notice);
        }
    }

    fn judge(&mut self, notice: Notice) {
        match notice {
            Notice::Unknown(address) => {
                let own = own_ranges(&self.engine);
                let _ = self.adopter.adopt_at(&mut self.engine, address, own);
                self.engine.answer_unknown(address);
            }
            Notice::Doorbell(_) => self.pause(),
            Notice::Populated => {
                fork::set_paused();
                self.engine.answer_doorbell(fork::doorbells().start);
            }
            Notice::SwapFull => self.swap_full(),
            Notice::AreaRetired => {
                self.engine.report().note_event(events::WRITE_ERROR);
                self.say(if self.engine.mm().is_swap_full() {
                    "a write to swap failed: pages stay in RAM from now on, above the budget"
                } else {
                    "a write to swap failed: that area takes no more, and its pages go to the others"
                });
            }
            Notice::PageLost { poisoned, .. } => {
                self.engine.report().note_event(events::READ_ERROR);
                let lies = self.engine.report().last_error() == Errno::BADMSG;
                self.say(if lies {
                    "a page came back from swap that is not what was written there (its checksum differs): the program gets SIGBUS \
                     where it touches it"
                } else {
                    "a page could not be read back from swap: the program gets SIGBUS where it touches it"
                });
                if !poisoned {
                    // This kernel cannot mark the page. Going on would show wrong bytes.
                    message::kill_self(Signal::BUS);
                }
            }
        }
    }

    fn swap_full(&mut self) {
        self.engine.report().note_event(events::SWAP_FULL);
        if self.agent.has(flags::STRICT) {
            self.agent.process.state.store(state::STRICT_FULL, Ordering::Release);
            message::kill_self(Signal::KILL);
        }
        self.say("swap is full: the program goes on above its budget");
    }

    fn pause(&mut self) {
        self.engine.report().note_event(events::FORKED);
        // A helper that is started for it competes like this thread, and has all of the program's memory to go through.
        self.hurry(false);
        self.engine.pause();
    }

    /// Ends a pause in two steps: when no fork is under way, what a child may share is made the program's own again, page
    /// by page, by the helper thread; when that is done and still no fork is under way, reclaim goes on.
    fn after_fork(&mut self) {
        if fork::is_under_way() {
            self.unsharing = false;
            return;
        }
        if !self.unsharing {
            self.unsharing = true;
            self.hurry(false);
            self.engine.start_unsharing();
        }
        if self.engine.unshare_some() && fork::may_resume() {
            self.unsharing = false;
            self.engine.resume_after_fork(fork::doorbells().start);
        }
    }

    fn say(&self, text: &str) {
        if !self.agent.has(flags::QUIET) {
            message::say(text);
        }
    }
}
