//! The virtual-time shell around `mm`: threads, a worker, a device, and the truth about every page.
//!
//! Discrete events in integer nanoseconds. Program threads run through their accesses until they
//! fault; faults and completions are messages to the worker (one reactor, or the kernel in each
//! thread's own context), which steps `mm` and carries its actions out in order, at the cost of the
//! table; transfers go to the device model and come back when it says. Equal times are settled by
//! order of creation, threads by number, so a run is a function of its options.
//!
//! [`memory`] keeps what is really where, apart from `mm`, and asserts at every action that the two
//! agree: frames within the budget, one frame a page, no slot reused while it is referred to, the
//! bytes that a page shows the last ones stored. Faults that nobody answers end the run with their
//! list. [`chaos`] makes the world unfriendly.

pub mod chaos;
pub mod costs;
pub mod histogram;
mod lane;
pub mod memory;
pub mod outcome;
pub mod pool;
mod print;
mod source;
#[cfg(test)]
mod tests;
mod turns;
mod worker;

use self::chaos::{Chaos, Mischief};
use self::costs::Costs;
use self::lane::{Lane, LaneState, RunEnd};
use self::memory::Memory;
use self::outcome::{FaultClass, Outcome, ThreadOutcome};
use self::pool::{PoolModel, SimulatedPool};
use self::source::Source;
use self::turns::Turns;
use self::worker::{Transfer, Worker};
use crate::device::params::Model;
use crate::device::several::Several;
use crate::device::{Device, Op, Request};
use crate::time::{MICROSECOND, Nanos};
use crate::trace::sightings::GoneRecord;
use crate::workload::{RegionSpec, Workload, WorkloadError};
use histogram::Histogram;
use overspill_mm::readahead::SwapIn;
use overspill_mm::reserve::{HALVES_NS, Reserve};
use overspill_mm::types::{Access, CHUNK_PAGES, PAGE_SIZE, PageId, RegionKind, SpaceId, Vpn};
use overspill_mm::{AreaConfig, Config, Event, Mm, Probe};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Everything that a run depends on, beside the workloads and the policy.
#[derive(Clone, Debug)]
pub struct Options {
    /// `mm`'s own.
    pub mm: Config,
    /// The processor's part.
    pub costs: Costs,
    /// Nobody manages the program before it holds so many frames: until then the kernel answers its
    /// first touches, and from then on the pager keeps some of the budget in reserve, as
    /// [`overspill_mm::reserve`] says; the least of that is off the budget already.
    pub managed_from: u64,
    /// The swap device.
    pub device: Model,
    /// Swap areas beside the first one.
    pub more_areas: Vec<MoreArea>,
    /// A compressed pool in a part of the budget.
    pub pool: Option<PoolModel>,
    /// Processors for the program's threads; 0 = one for each thread.
    pub processors: u32,
    /// How far a thread may run ahead of the slowest one.
    pub quantum_ns: Nanos,
    /// Follow contents (8 bytes a page more, and every action checked against them).
    pub shadow: bool,
    /// Walk all of `mm`'s tables after every so many steps; 0 = never.
    pub check_every: u32,
    /// End after this time.
    pub until: Option<Nanos>,
    /// Make trouble.
    pub chaos: Option<Chaos>,
    /// Hears of every event and action, as it happens.
    pub log: Option<fn(std::fmt::Arguments<'_>)>,
}

/// A swap area beside the first one.
#[derive(Clone, Debug)]
pub struct MoreArea {
    /// What `mm` is told.
    pub area: AreaConfig,
    /// Its own device; none: it lies on that of the area before.
    pub device: Option<Model>,
}

impl Options {
    /// The live pager with `budget` frames and a swap area of `slots`.
    #[must_use]
    pub fn live(budget: u32, slots: u32, device: Model) -> Options {
        Options {
            mm: Config { compares: true, maps_zeroes: true, ..Config::live(budget, slots) },
            costs: Costs::pager(),
            managed_from: 0,
            device,
            more_areas: Vec::new(),
            pool: None,
            processors: 0,
            quantum_ns: 10 * MICROSECOND,
            shadow: false,
            check_every: 0,
            until: None,
            chaos: None,
            log: None,
        }
    }

    /// A kernel that swaps the pages of a memory cgroup: hardware bits, slots in order of eviction,
    /// reclaim in the faulting thread by 32 pages (specification 5.5), one frame a first touch.
    /// `window` is the largest read-ahead window.
    #[must_use]
    pub fn kernel(budget: u32, slots: u32, device: Model, window: u32) -> Options {
        let swap_in_frames = window.clamp(1, (budget / 8).max(1));
        let mm = Config {
            placement: overspill_mm::Placement::InOrder,
            low: 0,
            high: 32.max(swap_in_frames).min(budget / 4).max(swap_in_frames),
            swap_in_frames,
            cache: 0,
            unit: 1,
            write_max: 1,
            fill_max: 1,
            probe: Probe::Kernel,
            compares: false,
            ..Config::live(budget, slots)
        };
        Options { mm, costs: Costs::kernel(), ..Options::live(budget, slots, device) }
    }

    /// A machine with a kernel of 2012: its order of use, slots and background reclaim of all its
    /// memory, between the low and the high watermark (specification 5.1, 3.4 and 5.6).
    #[must_use]
    pub fn kernel_2012(budget: u32, slots: u32, device: Model, window: u32) -> Options {
        let today = Options::kernel(budget, slots, device, window);
        // min_free: the root of 16 times the memory in KiB, in KiB, 64 MiB at most; low and high are 5/4
        // and 3/2 of it.
        let min_free = ((u64::from(budget) * 4 * 16).isqrt().min(65_536) / 4) as u32;
        let mm = Config {
            placement: overspill_mm::Placement::NextFit,
            low: (min_free * 5 / 4).clamp(1, budget / 4),
            high: (min_free * 3 / 2).max(today.mm.high).clamp(1, budget / 2),
            early: true,
            newcomers: 16,
            ..today.mm
        };
        Options { mm, costs: Costs::kernel_2012(), ..today }
    }

    /// The same of 2017: what does not rotate has its slots in clusters since 3.12 (specification 3.4).
    #[must_use]
    pub fn kernel_2017(budget: u32, slots: u32, device: Model, window: u32) -> Options {
        let mut options = Options::kernel_2012(budget, slots, device, window);
        if !options.device.rotating() {
            options.mm.placement = overspill_mm::Placement::Ssd;
        }
        options
    }
}

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happening {
    /// A message reaches the worker; index into `messages`.
    Message(u32),
    /// The reactor looks at its inbox, or goes on with its actions.
    Reactor,
    /// A transfer reaches the device; index into `transfers`.
    Submit(u32),
}

/// What is said to the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    event: Event,
    /// The thread that is in a system call until the message has been dealt with.
    caller: Option<u32>,
}

/// A simulation.
pub struct Engine<P: SwapIn> {
    options: Options,
    mm: Mm<P>,
    memory: Memory,
    device: Box<dyn Device + Send>,
    now: Nanos,
    sequence: u64,
    happenings: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    messages: Slab<Message>,
    transfers: Slab<Transfer>,
    worker: Worker,
    sources: Vec<Source>,
    /// By source: global number of each of its spaces that was seen.
    spaces: Vec<Vec<Option<u16>>>,
    space_count: u16,
    lanes: Vec<Lane>,
    /// By source and thread: index of its lane.
    lane_of: BTreeMap<(usize, u16), u32>,
    turns: Turns,
    /// Threads that wait for a page.
    waiting: BTreeMap<(u16, u64), Vec<u32>>,
    waited: Histogram,
    soft: Histogram,
    fill: Histogram,
    lost: u64,
    /// [`Options::managed_from`] was reached.
    managed: bool,
    mischief: Option<Mischief>,
    pool: Option<SimulatedPool>,
}

impl<P: SwapIn> Engine<P> {
    /// A machine without programs.
    #[must_use]
    pub fn new(options: Options, policy: P) -> Engine<P> {
        assert!(options.quantum_ns > 0, "threads must be able to move");
        let mischief = options.chaos.clone().map(Mischief::new);
        let mut mm = Mm::new(options.mm, policy);
        let mut device = Several::new(options.device.build());
        for more in &options.more_areas {
            let id = mm.add_area(&more.area);
            if let Some(model) = &more.device {
                device.add(u64::from(mm.area_place(id).0.0) * PAGE_SIZE, model.build());
            }
        }
        let slots = options.more_areas.iter().map(|more| more.area.slots.next_multiple_of(512));
        let slots = options.mm.swap_slots.next_multiple_of(512) + slots.sum::<u32>();
        let slots = if options.more_areas.is_empty() { options.mm.swap_slots } else { slots };
        Engine {
            mm,
            memory: Memory::new(slots, options.shadow),
            // Alone it is asked without a detour.
            device: if options.more_areas.iter().any(|more| more.device.is_some()) {
                Box::new(device)
            } else {
                options.device.build()
            },
            now: 0,
            sequence: 0,
            happenings: BinaryHeap::new(),
            messages: Slab::default(),
            transfers: Slab::default(),
            worker: Worker::default(),
            sources: Vec::new(),
            spaces: Vec::new(),
            space_count: 0,
            lanes: Vec::new(),
            lane_of: BTreeMap::new(),
            turns: Turns::default(),
            waiting: BTreeMap::new(),
            waited: Histogram::default(),
            soft: Histogram::default(),
            fill: Histogram::default(),
            lost: 0,
            managed: options.managed_from == 0,
            mischief,
            pool: options.pool.map(|model| SimulatedPool::new(model, options.mm.budget)),
            options,
        }
    }

    /// Adds a program, which starts now.
    pub fn add(&mut self, workload: Box<dyn Workload + Send>) -> Result<(), WorkloadError> {
        let index = self.sources.len();
        let mut source = Source::new(workload);
        let first = source.first_thread()?;
        let regions = source.workload().regions();
        self.sources.push(source);
        self.spaces.push(Vec::new());
        for region in regions {
            self.declare(index, region)?;
        }
        if let Some(thread) = first {
            self.begin_lane(index, thread, self.now);
        }
        Ok(())
    }

    /// A thread of a program begins at `at`.
    fn begin_lane(&mut self, source: usize, thread: u16, at: Nanos) {
        let lane = self.lanes.len() as u32;
        self.lanes.push(Lane::new(source, thread, at));
        self.lane_of.insert((source, thread), lane);
        self.turns.may_run(at, lane);
    }

    /// The compressed pool, for its counters.
    #[must_use]
    pub fn pool(&self) -> Option<&SimulatedPool> {
        self.pool.as_ref()
    }

    /// `mm`, for its counters and its policy's knobs.
    pub fn mm(&mut self) -> &mut Mm<P> {
        &mut self.mm
    }

    /// What is behind the pages of a region is made when they are touched: it may be reserved, and huge.
    fn declare(&mut self, source: usize, region: RegionSpec) -> Result<(), WorkloadError> {
        let space = self.space(source, region.space)?;
        self.step_quietly(Event::RegionAdded {
            space: SpaceId(space),
            start: Vpn(region.start),
            end: Vpn(region.end),
            kind: region.kind,
        });
        Ok(())
    }

    /// The global number of a source's space: in the order in which they are seen.
    fn space(&mut self, source: usize, space: u16) -> Result<u16, WorkloadError> {
        let (known, index) = (&mut self.spaces[source], usize::from(space));
        if known.len() <= index {
            known.resize(index + 1, None);
        }
        if let Some(number) = known[index] {
            return Ok(number);
        }
        let number = self.space_count;
        self.space_count = number.checked_add(1).ok_or(WorkloadError::Spaces)?;
        known[index] = Some(number);
        Ok(number)
    }

    /// Runs until every thread is done (or the time is up) and the last transfer has ended.
    pub fn run(&mut self) -> Result<Outcome, WorkloadError> {
        self.advance()?;
        self.verify_all_answered();
        Ok(self.outcome())
    }

    fn advance(&mut self) -> Result<(), WorkloadError> {
        loop {
            let event_at = self.next_event_at();
            match self.turns.next(|source| self.sources[source].has_room()) {
                Some((lane, at, second_at)) if event_at.is_none_or(|event_at| at < event_at) => {
                    let ahead = second_at.saturating_add(self.options.quantum_ns);
                    let limit = event_at.unwrap_or(Nanos::MAX).min(ahead);
                    self.take_turn(lane, limit)?;
                }
                _ => match event_at {
                    Some(at) => self.happen(at),
                    None => return Ok(()),
                },
            }
        }
    }

    fn next_event_at(&self) -> Option<Nanos> {
        let happening = self.happenings.peek().map(|Reverse((at, _, _))| *at);
        let completion = self.device.next_completion().map(|at| at.max(self.now));
        match (happening, completion) {
            (Some(happening), Some(completion)) => Some(happening.min(completion)),
            (one, other) => one.or(other),
        }
    }

    /// A thread runs, and takes its place among the others again.
    fn take_turn(&mut self, index: u32, limit: Nanos) -> Result<(), WorkloadError> {
        let Lane { source, time, .. } = self.lanes[index as usize];
        self.turns.begin(source, time, index);
        self.run_lane(index, limit)?;
        self.turns.end();
        let Lane { state, time, .. } = self.lanes[index as usize];
        match state {
            LaneState::Runnable => self.turns.may_run(time, index),
            LaneState::Starved => self.turns.starves(source, time, index),
            LaneState::Blocked | LaneState::Calling | LaneState::Finished => {}
        }
        for thread in self.sources[source].take_fed() {
            let lane = self.lane_of[&(source, thread)];
            self.turns.feed(source, self.lanes[lane as usize].time, lane);
        }
        Ok(())
    }

    fn run_lane(&mut self, index: u32, limit: Nanos) -> Result<(), WorkloadError> {
        if self.options.until.is_some_and(|until| self.lanes[index as usize].time >= until) {
            self.lanes[index as usize].state = LaneState::Finished;
            return Ok(());
        }
        let limit = self.mischief(index, limit);
        if self.lanes[index as usize].state != LaneState::Runnable
            && self.lanes[index as usize].state != LaneState::Starved
        {
            return Ok(());
        }
        let stretch = self.stretch(index);
        let lane = &mut self.lanes[index as usize];
        let (source, spaces) = (&mut self.sources[lane.source], &self.spaces[lane.source]);
        let mut newcomers = Vec::new();
        let end = lane.run(
            source,
            spaces,
            &mut self.memory,
            &mut self.mm,
            &self.options,
            stretch,
            limit,
            &mut newcomers,
        )?;
        let (source, time) = (lane.source, lane.time);
        self.record_answers(index);
        for thread in newcomers {
            self.begin_lane(source, thread, time);
        }
        for region in self.sources[source].take_regions() {
            self.declare(source, region)?;
        }
        match end {
            RunEnd::Limit | RunEnd::Finished | RunEnd::Starved => {}
            RunEnd::Gone => self.give_back(index, source),
            RunEnd::NewSpace(space) => {
                self.space(source, space)?;
            }
            RunEnd::NewChunk { space, vpn } => self.new_chunk(space, vpn),
            RunEnd::Fault { space, vpn, write } => {
                self.fault(index, space, vpn, write);
            }
            RunEnd::Lost => self.lost += 1,
        }
        Ok(())
    }

    /// How much slower threads compute when there are more of them than processors, while `lane`
    /// has its turn: numerator and denominator.
    fn stretch(&self, lane: u32) -> (u32, u32) {
        if self.options.processors == 0 {
            return (1, 1);
        }
        let runs = self.lanes[lane as usize].state == LaneState::Runnable;
        let running = self.turns.ready() as u32 + u32::from(runs);
        (running.max(self.options.processors), self.options.processors)
    }

    /// Counts the fault that the thread got over, if it did.
    fn record_answers(&mut self, index: u32) {
        let lane = &mut self.lanes[index as usize];
        for (class, latency_ns) in std::mem::take(&mut lane.answered) {
            lane.record(class, latency_ns);
            match class {
                FaultClass::Read => self.waited.add(latency_ns),
                FaultClass::Soft => self.soft.add(latency_ns),
                FaultClass::Fill => self.fill.add(latency_ns),
            }
        }
    }

    /// A thread waits in the calls that give pages back until the worker has heard of the last of them.
    fn give_back(&mut self, lane: u32, source: usize) {
        let gone = self.sources[source].take_gone();
        let spaces = &self.spaces[source];
        let known = |gone: &GoneRecord| Some((*spaces.get(usize::from(gone.space))?.as_ref()?, *gone));
        let known: Vec<(u16, GoneRecord)> = gone.iter().filter_map(known).collect();
        let at = self.lanes[lane as usize].time + self.options.costs.trap_ns;
        for (index, &(space, GoneRecord { start, end, .. })) in known.iter().enumerate() {
            let event = Event::Discarded { space: SpaceId(space), start: Vpn(start), end: Vpn(end) };
            if !self.managed {
                self.memory.discard_range(space, start, end);
                self.step_quietly(event);
                continue;
            }
            let is_last = index + 1 == known.len();
            if is_last {
                self.lanes[lane as usize].state = LaneState::Calling;
            }
            self.tell(at, event, is_last.then_some(lane));
        }
    }

    /// A page outside all regions: what is left of its 2 MiB becomes one.
    fn new_chunk(&mut self, space: u16, vpn: u64) {
        self.memory.find_or_create(space, vpn);
        let start = vpn / CHUNK_PAGES * CHUNK_PAGES;
        self.step_quietly(Event::RegionAdded {
            space: SpaceId(space),
            start: Vpn(start),
            end: Vpn(start + CHUNK_PAGES),
            kind: RegionKind::Anon,
        });
    }

    fn fault(&mut self, lane: u32, space: u16, vpn: u64, write: bool) {
        if self.mischief.as_ref().is_some_and(|mischief| mischief.is_gone(space, vpn)) {
            // A real program does not touch what it has unmapped.
            self.lanes[lane as usize].give_up();
            return;
        }
        if self.mischief.is_none() && !self.mm.manages(SpaceId(space), Vpn(vpn), Vpn(vpn + 1)) {
            // A region covers another part of the chunk.
            self.new_chunk(space, vpn);
        }
        if !self.managed {
            self.touch_unmanaged(lane, space, vpn);
            return;
        }
        self.lanes[lane as usize].state = LaneState::Blocked;
        self.waiting.entry((space, vpn)).or_default().push(lane);
        let (space, vpn) = (SpaceId(space), Vpn(vpn));
        let access = if write { Access::Write } else { Access::Read };
        let event = Event::Fault { space, vpn, access };
        self.send(self.lanes[lane as usize].time + self.options.costs.trap_ns, event, None);
    }

    /// A first touch, as all are that fault while nobody manages the program. (The agent hears of
    /// such pages when it takes over, by address; here the order of use is kept.)
    fn touch_unmanaged(&mut self, lane: u32, space: u16, vpn: u64) {
        let (place, _) = self.memory.find_or_create(space, vpn);
        self.memory.zero_fill(place);
        self.step_quietly(Event::Resident { space: SpaceId(space), start: Vpn(vpn), end: Vpn(vpn + 1) });
        let id = self.mm.lookup(SpaceId(space), Vpn(vpn)).expect("a page in view is known to mm");
        self.memory.name(place, id.0 - u32::from(place.page));
        let lane = &mut self.lanes[lane as usize];
        lane.time += costs::UNMANAGED_FILL_NS;
        lane.class = FaultClass::Fill;
        let now = lane.time;
        self.managed = self.memory.held().0 >= self.options.managed_from;
        if self.managed {
            self.keep_reserve(now);
        }
    }

    /// Management starts: all that is there has just been found, and nothing like that is found again.
    fn keep_reserve(&mut self, now: Nanos) {
        let budget = self.options.mm.budget;
        let mut reserve = Reserve::new(u64::from(budget) * PAGE_SIZE);
        reserve.observe(u64::MAX, now);
        let mut at = now;
        loop {
            let more = (reserve.bytes() - reserve.least_bytes()) / PAGE_SIZE;
            self.send(at, Event::Budget { frames: budget - more as u32 }, None);
            if more == 0 {
                return;
            }
            at += HALVES_NS;
            reserve.observe(0, at);
        }
    }

    /// Sends `event` to the worker; it arrives at `at`.
    fn send(&mut self, at: Nanos, event: Event, caller: Option<u32>) {
        let message = self.messages.insert(Message { event, caller });
        self.schedule(at, Happening::Message(message));
    }

    fn schedule(&mut self, at: Nanos, happening: Happening) {
        self.happenings.push(Reverse((at.max(self.now), self.sequence, happening)));
        self.sequence += 1;
    }

    /// Does what is due at `at`: completions first, then one happening.
    fn happen(&mut self, at: Nanos) {
        assert!(at >= self.now, "time does not run backwards");
        self.now = at;
        let mut completed = false;
        while let Some(ticket) = self.device.complete(at) {
            completed = true;
            self.request_done(ticket as u32);
        }
        if completed {
            return;
        }
        let Some(Reverse((due, _, happening))) = self.happenings.pop() else { return };
        assert_eq!(due, at, "the next event is the one that was announced");
        match happening {
            Happening::Message(message) => {
                let message = self.messages.remove(message);
                self.arrive(message);
            }
            Happening::Reactor => self.reactor(),
            Happening::Submit(transfer) => self.submit(transfer),
        }
    }

    /// The request that begins with this transfer reaches the device.
    fn submit(&mut self, ticket: u32) {
        let first = self.transfers.get(ticket);
        let (mut pages, mut next) = (u64::from(first.run.count), first.next);
        while let Some(joined) = next {
            let transfer = self.transfers.get(joined);
            (pages, next) = (pages + u64::from(transfer.run.count), transfer.next);
        }
        let request = Request {
            op: if first.is_read { Op::Read } else { Op::Write },
            offset_bytes: u64::from(first.slot.0) * PAGE_SIZE,
            bytes: pages * PAGE_SIZE,
        };
        self.device.submit(self.now, u64::from(ticket), request);
    }

    /// The page that `mm` calls `id`.
    fn place(&mut self, id: PageId) -> (u16, u64, memory::Place) {
        let (space, vpn) = self.mm.place(id);
        let (place, _) = self.memory.find_or_create(space.0, vpn.0);
        (space.0, vpn.0, place)
    }

    /// Every fault has been answered, or the run is worth nothing.
    fn verify_all_answered(&self) {
        let blocked: Vec<_> = self.waiting.iter().collect();
        assert!(blocked.is_empty(), "faults without answer: {blocked:?}");
        assert!(
            self.lanes.iter().all(|lane| lane.state == LaneState::Finished),
            "threads that cannot go on: {:?}",
            self.lanes.iter().map(|lane| (lane.source, lane.thread(), lane.state)).collect::<Vec<_>>()
        );
        assert_eq!(self.transfers.len(), 0, "every transfer has ended");
    }

    fn outcome(&self) -> Outcome {
        let threads: Vec<ThreadOutcome> = self.lanes.iter().map(Lane::outcome).collect();
        let pool = self.pool.as_ref().map(SimulatedPool::outcome);
        let mut vmstat = *self.mm.stats();
        if let Some(pool) = pool {
            // To `mm` the pool is part of the device.
            vmstat.pswpin -= pool.totals.loaded;
            vmstat.pswpout = vmstat.pswpout - pool.taken + pool.totals.written_back;
        }
        Outcome {
            elapsed_ns: threads.iter().map(|thread| thread.end_ns).max().unwrap_or(0),
            accesses: threads.iter().map(|thread| thread.accesses).sum(),
            vmstat,
            pool,
            waited: self.waited.clone(),
            soft: self.soft.clone(),
            fill: self.fill.clone(),
            device: *self.device.usage(),
            pager_ns: self.worker.busy_ns,
            frames_max: self.memory.held().1,
            threads,
            lost: self.lost,
        }
    }
}

/// Values by index; indices are used again.
#[derive(Debug)]
struct Slab<T> {
    entries: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { entries: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn insert(&mut self, value: T) -> u32 {
        match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(value);
                index
            }
            None => {
                self.entries.push(Some(value));
                self.entries.len() as u32 - 1
            }
        }
    }

    fn get(&self, index: u32) -> &T {
        self.entries[index as usize].as_ref().expect("the index is in use")
    }

    fn get_mut(&mut self, index: u32) -> &mut T {
        self.entries[index as usize].as_mut().expect("the index is in use")
    }

    fn remove(&mut self, index: u32) -> T {
        let value = self.entries[index as usize].take().expect("the index is in use");
        self.vacant.push(index);
        value
    }

    fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }
}
