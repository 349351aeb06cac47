//! Programs that stream through files and write them, beside programs with memory of their own, on a
//! few processors, over the kernel's reclaim ([`overspill_mm::reclaim`]): what a page cache larger than
//! RAM costs, and whom. Each program belongs to a budget domain, which may be protected.
//!
//! Every step of a program is one page read or one pass of reclaim, and all processors advance in
//! one order of time, so that readers and background reclaim take frames from each other as they
//! would. Files begin sparse: reading a hole is page cache work and no I/O. Anonymous pages are
//! written to a device and read back, each after a fixed time; pages of files that were written go to
//! a disk one after another.
//!
//! Here is what the world is made of and how it goes on; `working` has the steps of the programs,
//! `flusher` those of writeback, `contest` a contest of domains for one memory.

pub mod contest;
mod files;
mod flusher;
mod outcome;
mod programs;
mod schedule;
#[cfg(test)]
mod tests;
mod working;

pub use flusher::Writeback;
pub use outcome::{Faults, Finish, Outcome, Share};

use crate::rng::Rng;
use crate::time::{MICROSECOND, MILLISECOND, Nanos};
use files::{Files, Spot};
use overspill_mm::reclaim::background::{self, Background};
use overspill_mm::reclaim::direct::{self, Direct};
use overspill_mm::reclaim::lists::{DomainId, PageNumber};
use overspill_mm::reclaim::node::{Arrival, Config, Node, Order, Orders, Protection};
use overspill_mm::reclaim::shadow::{Shadow, Shadows};
use programs::{Place, Resident, Walker};
use schedule::{Next, Schedule};

/// What work takes.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A page that is not in the cache: its frame, its zeroes, its place in the file.
    pub fill_ns: Nanos,
    /// A page handed to the program.
    pub copy_ns: Nanos,
    /// A page that reclaim looks at.
    pub look_ns: Nanos,
    /// Entering direct reclaim, beside what it looks at.
    pub stall_ns: Nanos,
    /// What every stall waits for others, without a processor.
    pub stall_wait_ns: Nanos,
    /// One stall in so many sleeps for a time before it goes on (0 = none does), as throttled
    /// callers do.
    pub sleeps_one_in: u64,
    /// For so long.
    pub throttle_ns: Nanos,
    /// A page that comes back from swap, or goes there; a page read from a file that was written.
    pub device_ns: Nanos,
    /// A page that goes to the disk of the files, one after another.
    pub disk_ns: Nanos,
    /// A program runs so long before another gets its processor.
    pub slice_ns: Nanos,
    /// Each of these varies by so many hundredths, either way.
    pub jitter_percent: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            fill_ns: 700,
            copy_ns: 450,
            look_ns: 300,
            stall_ns: 3 * MICROSECOND,
            stall_wait_ns: 0,
            sleeps_one_in: 0,
            throttle_ns: 100 * MILLISECOND,
            device_ns: 5 * MILLISECOND,
            disk_ns: 20 * MICROSECOND,
            slice_ns: 3 * MILLISECOND,
            jitter_percent: 30,
        }
    }
}

/// The machine, and the programs that are there all along.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Frames, swap, rules.
    pub node: Config,
    /// Processors.
    pub processors: usize,
    /// What work takes.
    pub costs: Costs,
    /// The budget domains, by number.
    pub domains: Vec<Protection>,
    /// Programs with memory of their own.
    pub residents: Vec<Habit>,
    /// Of everything that varies.
    pub seed: u64,
}

/// A program with memory of its own, and how it uses it: it sleeps, wakes, touches some pages, lets a
/// child live for a moment, and sleeps again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// Whose it is.
    pub domain: DomainId,
    /// Anonymous pages that it has.
    pub pages: u32,
    /// The first so many are used, the others never again.
    pub hot: u32,
    /// Pages touched each time that it wakes, in a row from one of those by chance (from the first if
    /// it touches all).
    pub burst: u32,
    /// Pages that a child of it touches for the first time, and gives back when it ends.
    pub child: u32,
    /// It sleeps so long (0 = for ever).
    pub period_ns: Nanos,
}

impl Habit {
    /// So many pages that nobody touches.
    #[must_use]
    pub const fn idle(pages: u32) -> Habit {
        Habit { domain: DomainId(0), pages, hot: 0, burst: 0, child: 0, period_ns: 0 }
    }

    fn is_awake_ever(&self) -> bool {
        self.period_ns > 0 && self.burst + self.child > 0
    }
}

/// What a program does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It reads it.
    Read,
    /// It writes it.
    Write,
}

/// One program that goes through a file: which, how many of its pages.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The file. Readers of one file share its pages.
    pub file: u16,
    /// Pages from its start.
    pub pages: u32,
    /// Who pays for the pages that it brings in.
    pub domain: DomainId,
    /// What it does.
    pub way: Way,
}

impl Stream {
    /// A reader in the first domain.
    #[must_use]
    pub const fn reader(file: u16, pages: u32) -> Stream {
        Stream { file, pages, domain: DomainId(0), way: Way::Read }
    }
}

/// Pages of a read-ahead window.
const WINDOW: u32 = 32;
/// After so many calls in vain, one after another, with no frame meanwhile, a program is ended:
/// memory is full.
const VAIN_CALLS: u32 = 16;
/// The file that nobody reads.
const OLD: u16 = 999;

/// Whose page it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Nobody,
    File {
        spot: Spot,
        domain: DomainId,
    },
    /// Of a program with memory of its own, by its task.
    Own {
        task: u32,
        index: u32,
    },
    /// Of a child of it.
    Child {
        task: u32,
    },
    /// Its program has ended, and it is still on its way to swap.
    Leaving,
}

/// A program on its way.
enum Program {
    Walker(Walker),
    Resident(Resident),
    Background(Background),
    Flusher,
}

struct Task {
    program: Program,
    reclaiming: Option<Direct>,
    /// Calls that freed nothing since it last got on.
    vain_calls: u32,
}

/// What a step of a program came to.
enum Did {
    Worked(Nanos),
    /// It sleeps so long.
    Slept(Nanos),
    /// No frame is to be had.
    Short,
    Done,
}

/// The world.
pub struct World {
    setup: Setup,
    node: Node,
    schedule: Schedule,
    tasks: Vec<Task>,
    files: Files,
    /// By page number.
    owners: Vec<Owner>,
    /// By page number: is it on its way to the device or the disk?
    is_sent: Vec<bool>,
    shadows: Shadows,
    orders: Orders,
    shares: Vec<Share>,
    writeback: Writeback,
    /// Dirty pages that reclaim has met so far; pages that it wants to be flushed.
    met_dirty: u64,
    flush_asked: u64,
    /// Everything is to be written.
    is_syncing: bool,
    disk_free_at: Nanos,
    rng: Rng,
    finished: Vec<Finish>,
    /// Frames that one direct reclaim freed at most.
    largest_call: u64,
    /// Programs that ended as no frame was to be had.
    out_of_memory: u64,
    /// When the readers of now began.
    started: Nanos,
}

/// The tasks that are background reclaim and the flusher; residents come next.
const BACKGROUND: u32 = 0;
const FLUSHER: u32 = 1;

impl World {
    /// The residents are there, nobody reads yet.
    #[must_use]
    pub fn new(setup: Setup) -> World {
        let mut world = World {
            node: Node::new(setup.node, &setup.domains),
            schedule: Schedule::new(setup.processors, setup.costs.slice_ns),
            tasks: Vec::new(),
            files: Files::default(),
            owners: vec![Owner::Nobody; setup.node.frames as usize],
            is_sent: vec![false; setup.node.frames as usize],
            shadows: Shadows::new(setup.node.frames),
            orders: Orders::new(),
            shares: vec![Share::default(); setup.domains.len()],
            writeback: Writeback::default(),
            met_dirty: 0,
            flush_asked: 0,
            is_syncing: false,
            disk_free_at: 0,
            rng: Rng::new(setup.seed),
            finished: Vec::new(),
            largest_call: 0,
            out_of_memory: 0,
            started: 0,
            setup,
        };
        world.add(Program::Background(Background::new()));
        world.add(Program::Flusher);
        world.schedule.sleep_until(FLUSHER, flusher::PERIOD);
        for habit in world.setup.residents.clone() {
            world.settle(habit);
        }
        world
    }

    fn add(&mut self, program: Program) -> u32 {
        self.tasks.push(Task { program, reclaiming: None, vain_calls: 0 });
        self.schedule.add();
        self.tasks.len() as u32 - 1
    }

    /// A resident with its memory, as far as there is room, which wakes within its first period.
    fn settle(&mut self, habit: Habit) {
        assert!(habit.burst <= habit.hot && habit.hot <= habit.pages, "what is touched is there");
        let task = self.tasks.len() as u32;
        let mut places = vec![Place::New; habit.pages as usize];
        for (index, place) in (0u32..).zip(&mut places) {
            if let Some(page) = self.admit(habit.domain, &Arrival::ANON, None) {
                self.owners[page.0 as usize] = Owner::Own { task, index };
                *place = Place::In(page);
            }
        }
        self.add(Program::Resident(Resident::new(habit, places)));
        if habit.is_awake_ever() {
            let first = self.rng.below(habit.period_ns);
            self.schedule.sleep_until(task, first);
        }
    }

    /// Lets programs go through files, all starting now, until every one is done, or for so long (with
    /// none of them that must be said); gives what that took.
    pub fn run(&mut self, streams: &[Stream], limit_ns: Option<Nanos>) -> Outcome {
        let start = self.schedule.now();
        self.started = start;
        for stream in streams {
            self.files.open(stream.file, stream.pages, stream.way == Way::Write);
            let id = self.add(Program::Walker(Walker::new(*stream)));
            self.schedule.ready(id, start);
        }
        for (id, share) in (0u8..).zip(&mut self.shares) {
            share.least_held = self.node.held(DomainId(id));
        }
        self.finished.clear();
        let end = limit_ns.map_or(Nanos::MAX, |limit| start + limit);
        let is_endless = streams.is_empty();
        assert!(!is_endless || limit_ns.is_some(), "a run ends");
        while (is_endless || self.finished.len() < streams.len()) && self.advance(end) {}
        let elapsed_ns = self.schedule.now() - start;
        for task in &mut self.tasks {
            if let Program::Walker(walker) = &mut task.program
                && !walker.is_done()
            {
                let (pages, stream) = (walker.pages_done(), walker.stream);
                self.finished.push(Finish { elapsed_ns, pages, domain: stream.domain, way: stream.way });
                walker.end();
            }
        }
        for (id, share) in (0u8..).zip(&mut self.shares) {
            share.held = self.node.held(DomainId(id));
        }
        Outcome {
            elapsed_ns,
            finishes: std::mem::take(&mut self.finished),
            counters: *self.node.counters(),
            shares: self.shares.clone(),
            writeback: self.writeback,
            largest_call: self.largest_call,
            out_of_memory: self.out_of_memory,
        }
    }

    /// What happens next happens; false where that is not before `end`.
    fn advance(&mut self, end: Nanos) -> bool {
        let next = self.schedule.next(end);
        match next {
            Some(Next::Step { task, at }) => self.step(task, at),
            Some(Next::Written { page }) => self.written(PageNumber(page)),
            None => {}
        }
        next.is_some()
    }

    /// Goes on until all that was written is on the disk.
    pub fn sync(&mut self) {
        self.is_syncing = true;
        self.schedule.wake(FLUSHER, self.schedule.now());
        while self.files.unwritten() > 0 {
            self.advance(Nanos::MAX);
        }
        self.is_syncing = false;
        assert!(self.files.are_written(), "every store has arrived");
    }

    /// What is free but for the high watermark holds pages of a file that nobody reads any more.
    pub fn fill(&mut self) {
        let left = self.setup.node.watermarks.high;
        let count = self.node.free().saturating_sub(left) as u32;
        self.files.open(OLD, count, false);
        for index in 0..count {
            let page = self.node.admit(DomainId(0), &Arrival::FILE, None);
            self.place(Spot { file: OLD, index }, page, DomainId(0));
        }
    }

    /// The page of the file has this frame now.
    fn place(&mut self, spot: Spot, page: PageNumber, domain: DomainId) {
        self.owners[page.0 as usize] = Owner::File { spot, domain };
        self.files.enter(spot, page);
    }

    /// The files are gone, and their pages with them.
    pub fn drop_files(&mut self) {
        for page in 0..self.owners.len() as u32 {
            if let Owner::File { .. } = self.owners[page as usize] {
                self.node.forget(PageNumber(page));
                self.owners[page as usize] = Owner::Nobody;
            }
        }
        self.files.clear();
    }

    /// Checks that lists, frames and owners add up.
    pub fn check(&self) {
        self.node.check();
        let owned = self.owners.iter().filter(|&&owner| owner != Owner::Nobody).count() as u64;
        assert_eq!(owned + self.node.free(), u64::from(self.setup.node.frames), "every page is somebody's");
    }

    fn vary(&mut self, ns: Nanos) -> Nanos {
        let span = ns * self.setup.costs.jitter_percent / 100;
        if span == 0 { ns } else { ns - span + self.rng.below(2 * span + 1) }
    }

    /// One step of a task on its processor.
    fn step(&mut self, id: u32, at: Nanos) {
        let mut task = std::mem::replace(
            &mut self.tasks[id as usize],
            Task { program: Program::IDLE, reclaiming: None, vain_calls: 0 },
        );
        if let Some(call) = &mut task.reclaiming {
            let step = call.step(&mut self.node, &mut self.orders);
            self.after_direct(&mut task, step);
        } else {
            match &mut task.program {
                Program::Background(kswapd) => {
                    let step = kswapd.step(at, &mut self.node, &mut self.orders);
                    self.after_background(step, at);
                }
                Program::Flusher => self.flush(at),
                Program::Walker(walker) => {
                    let did = self.walk(walker, at);
                    self.after_work(&mut task, &did, at);
                }
                Program::Resident(resident) => {
                    let did = self.live(id, resident);
                    self.after_work(&mut task, &did, at);
                }
            }
        }
        let is_at_an_end = task.vain_calls == VAIN_CALLS;
        self.tasks[id as usize] = task;
        self.carry_out(at);
        if is_at_an_end {
            self.end(id, at);
        }
        self.flush_for_reclaim(at);
        if self.node.wants_background() && self.has_hope(at) {
            self.schedule.wake(BACKGROUND, at);
        }
    }

    fn after_work(&mut self, task: &mut Task, did: &Did, at: Nanos) {
        if matches!(did, Did::Worked(_) | Did::Slept(_)) {
            // It got what it had called for, whoever freed it.
            task.vain_calls = 0;
        }
        match *did {
            Did::Worked(ns) => self.schedule.spend(ns),
            Did::Slept(ns) => self.schedule.sleep(ns),
            Did::Short => task.reclaiming = Some(self.begin_direct()),
            Did::Done => {
                self.note_end(&task.program, at);
                self.schedule.block();
            }
        }
    }

    fn note_end(&mut self, program: &Program, at: Nanos) {
        if let Program::Walker(walker) = program
            && !walker.is_ended()
        {
            let (elapsed_ns, pages) = (at - self.started, walker.pages_done());
            let Stream { domain, way, .. } = walker.stream;
            self.finished.push(Finish { elapsed_ns, pages, domain, way });
        }
    }

    /// *The story:* background reclaim that had given up was woken by its own step, and no time went by.
    fn has_hope(&self, at: Nanos) -> bool {
        let Program::Background(kswapd) = &self.tasks[BACKGROUND as usize].program else {
            unreachable!("the first task is background reclaim")
        };
        kswapd.is_due(at, &self.node)
    }

    fn background(&mut self) -> &mut Background {
        match &mut self.tasks[BACKGROUND as usize].program {
            Program::Background(kswapd) => kswapd,
            _ => unreachable!("the first task is background reclaim"),
        }
    }

    fn begin_direct(&mut self) -> Direct {
        let costs = self.setup.costs;
        let (ns, mut wait_ns) = (self.vary(costs.stall_ns), self.vary(costs.stall_wait_ns));
        if costs.sleeps_one_in > 0 && self.rng.ratio(1, costs.sleeps_one_in) {
            wait_ns += costs.throttle_ns;
        }
        if wait_ns > 0 {
            self.schedule.sleep(ns + wait_ns)
        } else {
            self.schedule.spend(ns)
        }
        Direct::new()
    }

    fn after_direct(&mut self, task: &mut Task, step: direct::Step) {
        match step {
            direct::Step::Looked(pages) => {
                let ns = self.vary(self.setup.costs.look_ns * pages.max(1));
                self.schedule.spend(ns);
            }
            direct::Step::Sleep(ns) => self.schedule.sleep(ns),
            direct::Step::WaitForBackground => self.schedule.sleep(direct::WAIT_NS),
            direct::Step::Done(freed) => {
                task.reclaiming = None;
                self.largest_call = self.largest_call.max(freed);
                if freed > 0 {
                    self.background().note_progress();
                }
                task.vain_calls = if freed == 0 { task.vain_calls + 1 } else { 0 };
                if freed == 0 {
                    self.schedule.sleep(10 * MILLISECOND);
                }
            }
        }
    }

    /// Nothing is to be had: the program ends where it is, and gives back what it has.
    fn end(&mut self, id: u32, at: Nanos) {
        self.out_of_memory += 1;
        let mut program = std::mem::replace(&mut self.tasks[id as usize].program, Program::IDLE);
        self.note_end(&program, at);
        match &mut program {
            Program::Walker(walker) => walker.end(),
            Program::Resident(resident) => self.leaves(resident),
            Program::Background(_) | Program::Flusher => unreachable!("only programs ask for frames"),
        }
        self.tasks[id as usize].program = program;
        self.schedule.block();
    }

    fn after_background(&mut self, step: background::Step, at: Nanos) {
        match step {
            background::Step::Looked(pages) => {
                let ns = self.vary(self.setup.costs.look_ns * pages.max(1));
                self.schedule.spend(ns);
            }
            background::Step::Until(until) => self.schedule.sleep(until - at),
            background::Step::Asleep => self.schedule.block(),
        }
    }

    /// What reclaim ordered.
    fn carry_out(&mut self, at: Nanos) {
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            match order {
                Order::Freed { page, shadow, has_slot } => self.freed(page, shadow, has_slot),
                Order::Write { page } => self.write_back(page, at),
            }
        }
        self.orders = orders;
    }

    /// Reclaim has begun to write a page.
    fn write_back(&mut self, page: PageNumber, at: Nanos) {
        match self.owners[page.0 as usize] {
            Owner::File { spot, .. } => {
                self.writeback.by_reclaim += 1;
                self.send(spot, page, at);
            }
            Owner::Own { task, .. } | Owner::Child { task } => {
                let domain = self.resident(task).domain();
                self.shares[usize::from(domain.0)].faults.pswpout += 1;
                self.is_sent[page.0 as usize] = true;
                self.schedule.written_at(at + self.setup.costs.device_ns, page.0);
            }
            owner @ (Owner::Nobody | Owner::Leaving) => panic!("a page that is written is {owner:?}'s"),
        }
    }

    /// A page of a file is on its way to the disk, behind those before it.
    fn send(&mut self, spot: Spot, page: PageNumber, at: Nanos) {
        self.files.send(spot);
        self.is_sent[page.0 as usize] = true;
        self.disk_free_at = self.disk_free_at.max(at) + self.setup.costs.disk_ns;
        self.schedule.written_at(self.disk_free_at, page.0);
    }

    /// It has arrived.
    fn written(&mut self, page: PageNumber) {
        self.is_sent[page.0 as usize] = false;
        self.node.written(page, true);
        if let Program::Background(kswapd) = &mut self.tasks[BACKGROUND as usize].program
            && kswapd.note_written(&self.node)
        {
            self.schedule.wake(BACKGROUND, self.schedule.now());
        }
        match self.owners[page.0 as usize] {
            Owner::File { spot, .. } => self.files.arrive(spot),
            Owner::Leaving => self.forget(page),
            Owner::Own { .. } | Owner::Child { .. } => {}
            Owner::Nobody => panic!("a page that was written is somebody's"),
        }
    }

    fn forget(&mut self, page: PageNumber) {
        self.node.forget(page);
        self.owners[page.0 as usize] = Owner::Nobody;
    }

    fn freed(&mut self, page: PageNumber, shadow: Shadow, has_slot: bool) {
        match std::mem::replace(&mut self.owners[page.0 as usize], Owner::Nobody) {
            Owner::File { spot, domain } => {
                self.files.leave(spot);
                self.shadows.put(key(spot, domain), shadow, self.node.clock(domain));
                self.note_held(domain);
            }
            Owner::Own { task, index } => {
                let resident = self.resident(task);
                resident.places[index as usize] = Place::Out(shadow);
                let domain = resident.domain();
                self.note_held(domain);
            }
            Owner::Child { task } => {
                assert!(has_slot, "anonymous memory leaves for swap");
                // Nobody touches it again before its program ends.
                self.node.release_slot();
                self.resident(task).child.retain(|&other| other != page);
            }
            owner @ (Owner::Nobody | Owner::Leaving) => panic!("a page that is freed is {owner:?}'s"),
        }
    }

    fn note_held(&mut self, domain: DomainId) {
        let least = &mut self.shares[usize::from(domain.0)].least_held;
        *least = (*least).min(self.node.held(domain));
    }

    fn resident(&mut self, task: u32) -> &mut Resident {
        match &mut self.tasks[task as usize].program {
            Program::Resident(resident) => resident,
            _ => unreachable!("the task is a resident"),
        }
    }
}

/// What a shadow is kept by: it says something to the domain that it was made in only.
fn key(spot: Spot, domain: DomainId) -> u64 {
    u64::from(domain.0) << 48 | u64::from(spot.file) << 32 | u64::from(spot.index)
}
