//! Programs that stream through files beside a system with memory of its own, on a few processors,
//! over the kernel's reclaim ([`overspill_mm::reclaim`]): what a page cache larger than RAM costs,
//! and whom.
//!
//! Every step of a program is one page read or one pass of reclaim, and all processors advance in
//! one order of time, so that readers and background reclaim take frames from each other as they
//! would. Files are sparse: reading one is page cache work and no I/O. Anonymous pages are written
//! to a device and read back, each after a fixed time.

mod outcome;
mod programs;
mod schedule;

pub use outcome::{Faults, Finish, Outcome};

use crate::rng::Rng;
use crate::time::{MICROSECOND, MILLISECOND, Nanos};
use overspill_mm::reclaim::background::{self, Background};
use overspill_mm::reclaim::direct::{self, Direct};
use overspill_mm::reclaim::lists::{DomainId, PageNumber};
use overspill_mm::reclaim::node::{Admission, Arrival, Config, Node, Order, Orders, Protection};
use overspill_mm::reclaim::shadow::{Shadow, Shadows};
use overspill_mm::types::Access;
use programs::{Reader, System};
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
    /// A page that comes back from swap, or goes there.
    pub device_ns: Nanos,
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
            slice_ns: 3 * MILLISECOND,
            jitter_percent: 30,
        }
    }
}

/// The machine, and the system that runs on it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Frames, swap, rules.
    pub node: Config,
    /// Processors.
    pub processors: usize,
    /// What work takes.
    pub costs: Costs,
    /// Anonymous pages of the system.
    pub system_pages: u32,
    /// Of them, the part in thousandths that is touched.
    pub system_hot_permille: u32,
    /// It touches one so often; 0 = never.
    pub system_period_ns: Nanos,
    /// Of everything that varies.
    pub seed: u64,
}

/// One reader: which file, how many of its pages.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The file. Readers of one file share its pages.
    pub file: u16,
    /// Pages from its start.
    pub pages: u32,
}

/// Pages of a read-ahead window.
const WINDOW: u32 = 32;
/// After so many calls in vain, one after another, a program is ended: memory is full.
const VAIN_CALLS: u32 = 16;
/// "Not in the cache."
const NONE: u32 = u32::MAX;
/// The file that nobody reads.
const OLD: u16 = 999;
const ONLY: DomainId = DomainId(0);

/// Whose page it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Nobody,
    File { file: u16, index: u32 },
    System { index: u32 },
}

/// A program on its way.
enum Program {
    Reader(Reader),
    System(System),
    Background(Background),
}

struct Task {
    program: Program,
    reclaiming: Option<Direct>,
    /// Calls that freed nothing, one after another.
    vain_calls: u32,
}

/// The world.
pub struct World {
    setup: Setup,
    node: Node,
    schedule: Schedule,
    tasks: Vec<Task>,
    /// By file, then page.
    files: Vec<Vec<u32>>,
    /// By page number.
    owners: Vec<Owner>,
    shadows: Shadows,
    orders: Orders,
    faults: Faults,
    rng: Rng,
    finished: Vec<Finish>,
    /// Frames that one direct reclaim freed at most.
    largest_call: u64,
    /// Programs that ended as no frame was to be had.
    out_of_memory: u64,
    /// When the readers of now began.
    started: Nanos,
}

/// The task that is background reclaim, and the one that is the system.
const BACKGROUND: u32 = 0;
const SYSTEM: u32 = 1;

impl World {
    /// The system has its memory, nobody reads yet.
    #[must_use]
    pub fn new(setup: Setup) -> World {
        let mut world = World {
            node: Node::new(setup.node, &[Protection::default()]),
            schedule: Schedule::new(setup.processors, setup.costs.slice_ns),
            tasks: Vec::new(),
            files: Vec::new(),
            owners: vec![Owner::Nobody; setup.node.frames as usize],
            shadows: Shadows::new(setup.node.frames),
            orders: Orders::new(),
            faults: Faults::default(),
            rng: Rng::new(setup.seed),
            finished: Vec::new(),
            largest_call: 0,
            out_of_memory: 0,
            started: 0,
            setup,
        };
        let pages: Vec<PageNumber> =
            (0..world.setup.system_pages).map(|_| world.node.admit(ONLY, &Arrival::ANON, None)).collect();
        for (index, page) in (0u32..).zip(&pages) {
            world.owners[page.0 as usize] = Owner::System { index };
        }
        let system = System::new(&world.setup, pages);
        world.add(Program::Background(Background::new()));
        world.add(Program::System(system));
        world.schedule.sleep_until(SYSTEM, 0);
        world
    }

    fn add(&mut self, program: Program) -> u32 {
        self.tasks.push(Task { program, reclaiming: None, vain_calls: 0 });
        self.schedule.add();
        self.tasks.len() as u32 - 1
    }

    /// Lets readers read, all starting now, until every one is done (or for so long); gives what
    /// that took.
    pub fn run(&mut self, streams: &[Stream], limit_ns: Option<Nanos>) -> Outcome {
        let start = self.schedule.now();
        self.started = start;
        for stream in streams {
            let file = usize::from(stream.file);
            if self.files.len() <= file {
                self.files.resize(file + 1, Vec::new());
            }
            let length = self.files[file].len().max(stream.pages as usize);
            self.files[file].resize(length, NONE);
            let id = self.add(Program::Reader(Reader::new(*stream)));
            self.schedule.ready(id, start);
        }
        self.finished.clear();
        let end = limit_ns.map_or(Nanos::MAX, |limit| start + limit);
        while self.finished.len() < streams.len() && self.schedule.now() < end {
            match self.schedule.next() {
                Next::Step { task, at } => self.step(task, at),
                Next::Written { page } => self.node.written(PageNumber(page), true),
            }
        }
        let elapsed_ns = self.schedule.now() - start;
        for task in &self.tasks {
            if let Program::Reader(reader) = &task.program
                && !reader.is_done()
            {
                self.finished.push(Finish { elapsed_ns, pages: reader.pages_read() });
            }
        }
        let finishes = std::mem::take(&mut self.finished);
        Outcome {
            elapsed_ns,
            finishes,
            counters: *self.node.counters(),
            faults: self.faults,
            largest_call: self.largest_call,
            out_of_memory: self.out_of_memory,
        }
    }

    /// What is free but for the high watermark holds pages of a file that nobody reads any more.
    pub fn fill(&mut self) {
        let left = self.setup.node.watermarks.high;
        let count = self.node.free().saturating_sub(left) as usize;
        self.files.resize(self.files.len().max(usize::from(OLD) + 1), Vec::new());
        self.files[usize::from(OLD)] = vec![NONE; count];
        for index in 0..count as u32 {
            let page = self.node.admit(ONLY, &Arrival::FILE, None);
            self.owners[page.0 as usize] = Owner::File { file: OLD, index };
            self.files[usize::from(OLD)][index as usize] = page.0;
        }
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
            self.after_direct(&mut task, step, at);
        } else {
            match &mut task.program {
                Program::Background(kswapd) => {
                    let step = kswapd.step(at, &mut self.node, &mut self.orders);
                    self.after_background(step, at);
                }
                Program::Reader(reader) => match self.read(reader) {
                    Did::Worked(ns) => self.schedule.spend(ns),
                    Did::Short => task.reclaiming = Some(self.begin_direct()),
                    Did::Done => {
                        let pages = reader.pages_read();
                        self.finished.push(Finish { elapsed_ns: at - self.started, pages });
                        self.schedule.block();
                    }
                },
                Program::System(system) => match self.live(system) {
                    Did::Worked(ns) => self.schedule.sleep(ns),
                    Did::Short => task.reclaiming = Some(self.begin_direct()),
                    Did::Done => self.schedule.block(),
                },
            }
        }
        self.tasks[id as usize] = task;
        self.carry_out(at);
        if self.node.wants_background() && self.has_hope(at) {
            self.schedule.wake(BACKGROUND, at);
        }
    }

    /// *The story:* background reclaim that had given up was woken by its own step, and no time went by.
    fn has_hope(&self, at: Nanos) -> bool {
        let Program::Background(kswapd) = &self.tasks[BACKGROUND as usize].program else {
            unreachable!("the first task is background reclaim")
        };
        kswapd.is_due(at, &self.node)
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

    fn after_direct(&mut self, task: &mut Task, step: direct::Step, at: Nanos) {
        match step {
            direct::Step::Looked(pages) => {
                let ns = self.vary(self.setup.costs.look_ns * pages.max(1));
                self.schedule.spend(ns);
            }
            direct::Step::Sleep(ns) => self.schedule.sleep(ns),
            direct::Step::WaitForBackground => self.schedule.sleep(MILLISECOND),
            direct::Step::Done(freed) => {
                task.reclaiming = None;
                self.largest_call = self.largest_call.max(freed);
                task.vain_calls = if freed == 0 { task.vain_calls + 1 } else { 0 };
                if task.vain_calls == VAIN_CALLS {
                    self.end(task, at);
                } else if freed == 0 {
                    self.schedule.sleep(10 * MILLISECOND);
                }
            }
        }
    }

    /// Nothing is to be had: the program ends where it is.
    fn end(&mut self, task: &mut Task, at: Nanos) {
        self.out_of_memory += 1;
        if let Program::Reader(reader) = &mut task.program {
            self.finished.push(Finish { elapsed_ns: at - self.started, pages: reader.pages_read() });
            reader.end();
        }
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
                Order::Freed { page, shadow, .. } => self.freed(page, shadow),
                Order::Write { page } => {
                    self.faults.pswpout += 1;
                    self.schedule.written_at(at + self.setup.costs.device_ns, page.0);
                }
            }
        }
        self.orders = orders;
    }

    fn freed(&mut self, page: PageNumber, shadow: Shadow) {
        match std::mem::replace(&mut self.owners[page.0 as usize], Owner::Nobody) {
            Owner::File { file, index } => {
                self.files[usize::from(file)][index as usize] = NONE;
                let clock = self.node.clock(ONLY);
                self.shadows.put(key(file, index), shadow, clock);
            }
            Owner::System { index } => {
                let Program::System(system) = &mut self.tasks[SYSTEM as usize].program else {
                    unreachable!("the second task is the system")
                };
                system.pages[index as usize] = programs::Place::Out(shadow);
            }
            Owner::Nobody => panic!("a page that is freed was somebody's"),
        }
    }

    /// The next page of a reader: handed over, or brought into the cache with those after it.
    fn read(&mut self, reader: &mut Reader) -> Did {
        let file = usize::from(reader.stream.file);
        let Some(index) = reader.next_fill(&self.files[file]) else {
            let Some(index) = reader.next_page() else { return Did::Done };
            let page = self.files[file][index as usize];
            if page == NONE {
                // Gone before it was used: once more.
                reader.miss(index);
                return Did::Worked(0);
            }
            self.node.mark_accessed(PageNumber(page));
            return Did::Worked(self.vary(self.setup.costs.copy_ns));
        };
        if self.node.allocate() == Admission::Refused {
            return Did::Short;
        }
        let shadow = self.shadows.take(key(reader.stream.file, index));
        let page = self.node.admit(ONLY, &Arrival::FILE, shadow);
        self.owners[page.0 as usize] = Owner::File { file: reader.stream.file, index };
        self.files[file][index as usize] = page.0;
        reader.filled();
        Did::Worked(self.vary(self.setup.costs.fill_ns))
    }

    /// The system touches one of its pages.
    fn live(&mut self, system: &mut System) -> Did {
        if system.period_ns == 0 || system.hot == 0 {
            return Did::Done;
        }
        let index = match system.waiting.take() {
            Some(index) => index,
            None => self.rng.below(system.hot as u64) as usize,
        };
        match system.pages[index] {
            programs::Place::In(page) => {
                let access = if self.rng.ratio(1, 4) { Access::Write } else { Access::Read };
                self.node.touch(page, access, false);
                self.faults.minor += 1;
                Did::Worked(self.vary(system.period_ns))
            }
            programs::Place::Out(shadow) => {
                if self.node.allocate() == Admission::Refused {
                    system.waiting = Some(index);
                    return Did::Short;
                }
                let page = self.node.admit(ONLY, &Arrival::SWAPPED, Some(shadow));
                self.owners[page.0 as usize] = Owner::System { index: index as u32 };
                system.pages[index] = programs::Place::In(page);
                self.node.touch(page, Access::Read, false);
                self.faults.major += 1;
                self.faults.pswpin += 1;
                Did::Worked(self.setup.costs.device_ns)
            }
        }
    }
}

/// What a step of a program came to.
enum Did {
    Worked(Nanos),
    /// No frame is to be had.
    Short,
    Done,
}

fn key(file: u16, index: u32) -> u64 {
    u64::from(file) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_mm::reclaim::Rules;
    use overspill_mm::reclaim::scan::Era;

    /// *The story:* with nothing to be had a program tried again for ever, and the world never ended.
    #[test]
    fn a_program_that_gets_no_frame_ends() {
        for rules in [Rules::Early, Rules::Late] {
            let frames = 4096;
            let node = Config::new(frames, 0, rules, Era::Seed);
            let setup = Setup {
                node,
                processors: 2,
                // Early rules' background reclaim never rests: it takes fewer steps so.
                costs: Costs { look_ns: 50 * MICROSECOND, ..Costs::default() },
                // Without swap the system's pages stay, and leave nothing above the watermark.
                system_pages: frames - node.watermarks.min as u32,
                system_hot_permille: 0,
                system_period_ns: 0,
                seed: 1,
            };
            let mut world = World::new(setup);
            let streams = [0, 1].map(|file| Stream { file, pages: 1000 });
            let outcome = world.run(&streams, None);
            world.check();
            assert_eq!((outcome.out_of_memory, outcome.finishes.len()), (2, 2), "{rules:?}");
            assert!(outcome.finishes.iter().all(|finish| finish.pages < 1000));
        }
    }
}
