//! An unfriendly world: failing and late transfers, busy pages, threads that change the address
//! space while others fault.
//!
//! What a real kernel and a real device may do at any moment, done at random moments from one seed.
//! The rules are the shell's side of `mm`'s contract: while a change of an address space has not
//! been heard of, its pages can be neither mapped nor unmapped (userfaultfd answers EAGAIN); a
//! thread that changes a mapping waits until the worker has heard of it; touches of a range that is
//! gone never reach `mm`.

use super::costs::Worker;
use super::lane::LaneState;
use super::memory::view;
use super::{Engine, Message, Source};
use crate::rng::Rng;
use crate::time::Nanos;
use crate::workload::{Access, Listed};
use overspill_mm::readahead::{Mapping, Plan, SwapIn, Touch, Window};
use overspill_mm::types::{CHUNK_PAGES, RegionKind, SpaceId, Vpn};
use overspill_mm::{Event, WriteResult};

/// How unfriendly. Rates are in thousandths of the occasions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chaos {
    /// The generator's seed.
    pub seed: u64,
    /// Transfers that fail, in millionths.
    pub fail_ppm: u64,
    /// Completions that are reported late (and so out of order).
    pub late_permille: u64,
    /// By at most this.
    pub late_max_ns: Nanos,
    /// Pages that cannot be unmapped just now.
    pub busy_permille: u64,
    /// A thread that comes to run does a system call first.
    pub call_permille: u64,
    /// The reactor is interrupted between two actions.
    pub interrupt_permille: u64,
    /// The budget changes now and then, pauses (forks) happen.
    pub pressure: bool,
}

/// Chaos in progress.
#[derive(Debug)]
pub struct Mischief {
    chaos: Chaos,
    rng: Rng,
    /// By space: system calls of which the worker has not heard.
    changing: Vec<u32>,
    /// Ranges that are unmapped until the worker has heard of what replaces them.
    gone: Vec<(u16, u64, u64)>,
    /// The thread that forks.
    forking: Option<u32>,
    calm: bool,
}

impl Mischief {
    /// Nothing has happened yet.
    pub fn new(chaos: Chaos) -> Mischief {
        let rng = Rng::new(chaos.seed);
        Mischief { chaos, rng, changing: Vec::new(), gone: Vec::new(), forking: None, calm: false }
    }

    fn strikes(&mut self, permille: u64) -> bool {
        !self.calm && self.rng.ratio(permille, 1000)
    }

    /// Does the reactor stop between two actions?
    pub fn interrupts(&mut self) -> bool {
        let permille = self.chaos.interrupt_permille;
        self.strikes(permille)
    }

    /// Is this page pinned?
    pub fn page_is_busy(&mut self) -> bool {
        let permille = self.chaos.busy_permille;
        self.strikes(permille)
    }

    /// How a transfer will end.
    pub fn result_of_transfer(&mut self) -> WriteResult {
        if self.calm || !self.rng.ratio(self.chaos.fail_ppm, 1_000_000) {
            WriteResult::Done
        } else if self.rng.ratio(1, 3) {
            WriteResult::NoSpace
        } else {
            WriteResult::Failed
        }
    }

    /// How late a completion is reported.
    pub fn lateness_ns(&mut self) -> Nanos {
        let permille = self.chaos.late_permille;
        if self.strikes(permille) { self.rng.below(self.chaos.late_max_ns.max(1)) } else { 0 }
    }

    /// A system call changes `space`.
    fn disturbed(&mut self, space: u16) {
        let index = usize::from(space);
        if index >= self.changing.len() {
            self.changing.resize(index + 1, 0);
        }
        self.changing[index] += 1;
    }

    /// The worker has heard of it.
    pub fn settled(&mut self, space: u16) {
        let count = &mut self.changing[usize::from(space)];
        assert!(*count > 0, "each change is heard of once");
        *count -= 1;
    }

    /// See the module's rules.
    pub fn is_changing(&self, space: u16) -> bool {
        self.changing.get(usize::from(space)).is_some_and(|&count| count > 0)
    }

    /// Is the page in a range that is gone?
    pub fn is_gone(&self, space: u16, vpn: u64) -> bool {
        self.gone.iter().any(|&(gone, start, end)| gone == space && (start..end).contains(&vpn))
    }

    /// A range is there again.
    pub fn returned(&mut self, space: u16, start: u64, end: u64) {
        self.gone.retain(|&range| range != (space, start, end));
    }

    /// Is there anything in this world that excuses more frames than the budget?
    pub fn excuses(&self) -> bool {
        self.chaos.busy_permille > 0 || self.chaos.call_permille > 0 || self.chaos.pressure
    }
}

/// A managed range of a space.
#[derive(Clone, Copy, Debug)]
struct Range {
    space: u16,
    start: u64,
    end: u64,
}

impl Range {
    fn pages(self) -> std::ops::Range<u64> {
        self.start..self.end
    }

    fn overlaps(self, other: Range) -> bool {
        self.space == other.space && self.start < other.end && other.start < self.end
    }
}

impl<P: SwapIn> Engine<P> {
    /// Before thread `lane` runs up to `limit`: perhaps a system call, perhaps less time.
    pub(super) fn mischief(&mut self, lane: u32, limit: Nanos) -> Nanos {
        let Some(mischief) = &mut self.mischief else { return limit };
        if mischief.calm {
            return limit;
        }
        let span_ns = 1 + mischief.rng.below(self.options.quantum_ns);
        let permille = mischief.chaos.call_permille;
        if mischief.strikes(permille) && !self.lanes[lane as usize].is_faulting() {
            self.system_call(lane);
            // What the call led to comes before what the thread does next.
            return self.lanes[lane as usize].time;
        }
        limit.min(self.lanes[lane as usize].time + span_ns)
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.mischief.as_mut().expect("only chaos draws").rng
    }

    fn system_call(&mut self, lane: u32) {
        match self.rng().below(20) {
            0..8 => self.call_discard(lane),
            8..11 => self.call_unmap(lane),
            11..14 => self.call_move(lane),
            14..18 => self.call_will_need(lane),
            18 => self.change_budget(lane),
            _ => self.call_fork(lane),
        }
    }

    /// Some pages of a managed range, none of them gone.
    fn some_range(&mut self) -> Option<Range> {
        let chunks = u64::from(self.memory.chunk_count());
        let index = self.rng().below(chunks.max(1));
        if chunks == 0 {
            return None;
        }
        let (space, number) = {
            let chunk = self.memory.chunk(index as u32);
            (chunk.space, chunk.number)
        };
        let start = number * CHUNK_PAGES + self.rng().below(CHUNK_PAGES);
        let length_max = if self.rng().ratio(1, 8) { 2 * CHUNK_PAGES } else { 40 };
        let length = 1 + self.rng().below(length_max);
        let within = |&(owner, first, end): &(SpaceId, Vpn, Vpn)| {
            owner.0 == space && (first.0..end.0).contains(&start)
        };
        let (_, _, end) = self.mm.regions().find(within)?;
        let range = Range { space, start, end: (start + length).min(end.0) };
        let mischief = self.mischief.as_ref().expect("only chaos calls");
        let whole = range.pages().all(|vpn| !mischief.is_gone(space, vpn));
        whole.then_some(range)
    }

    fn calling(&mut self, lane: u32) -> Nanos {
        self.lanes[lane as usize].state = LaneState::Calling;
        self.lanes[lane as usize].time + self.options.costs.trap_ns
    }

    /// A change of the address space that is made already. A reactor hears of it at `at`; a kernel
    /// made it itself, so nothing happens in between: a thread that touches a page just moved, in
    /// view, leaves its mark in the page that is there now.
    pub(super) fn tell(&mut self, at: Nanos, event: Event, caller: Option<u32>) {
        match self.options.costs.worker {
            Worker::Kernel => self.arrive(Message { event, caller }),
            Worker::Reactor { .. } => self.send(at, event, caller),
        }
    }

    fn drop_content(&mut self, range: Range) {
        for vpn in range.pages() {
            let (place, _) = self.memory.find_or_create(range.space, vpn);
            self.memory.discard(place);
        }
    }

    fn disturb(&mut self, space: u16) {
        self.mischief.as_mut().expect("only chaos calls").disturbed(space);
    }

    fn call_discard(&mut self, lane: u32) {
        let Some(range) = self.some_range() else { return };
        self.drop_content(range);
        self.disturb(range.space);
        let at = self.calling(lane);
        let (space, start, end) = (SpaceId(range.space), Vpn(range.start), Vpn(range.end));
        self.tell(at, Event::Discarded { space, start, end }, Some(lane));
    }

    /// munmap, and mmap of new memory at the same place.
    fn call_unmap(&mut self, lane: u32) {
        let Some(range) = self.some_range() else { return };
        self.drop_content(range);
        self.disturb(range.space);
        let (space, start, end) = (SpaceId(range.space), Vpn(range.start), Vpn(range.end));
        let at = self.calling(lane);
        self.tell(at, Event::RegionRemoved { space, start, end }, None);
        self.come_back(at, lane, range);
    }

    /// `range` is gone until the worker has heard of new memory there.
    fn come_back(&mut self, at: Nanos, lane: u32, range: Range) {
        let mischief = self.mischief.as_mut().expect("only chaos calls");
        mischief.gone.push((range.space, range.start, range.end));
        let (space, start, end) = (SpaceId(range.space), Vpn(range.start), Vpn(range.end));
        let event = Event::RegionAdded { space, start, end, kind: RegionKind::Anon };
        self.tell(at, event, Some(lane));
    }

    /// mremap on top of another range, and new memory at the old place.
    fn call_move(&mut self, lane: u32) {
        // `mm` hears of a move when no transfer is under way. A kernel moves in an instant, so then
        // or not at all.
        if self.options.costs.worker == Worker::Kernel && self.mm.in_flight() > 0 {
            return;
        }
        let (Some(mut from), Some(mut to)) = (self.some_range(), self.some_range()) else { return };
        let length = (from.end - from.start).min(to.end - to.start);
        from.end = from.start + length;
        to.end = to.start + length;
        if from.space != to.space || from.overlaps(to) {
            return;
        }
        self.drop_content(to);
        for (source, target) in from.pages().zip(to.pages()) {
            let (source, _) = self.memory.find_or_create(from.space, source);
            let (target, _) = self.memory.find_or_create(to.space, target);
            self.memory.relocate(source, target);
        }
        self.disturb(from.space);
        let at = self.calling(lane);
        let (space, pages) = (SpaceId(from.space), length);
        let event = Event::Moved { space, from: Vpn(from.start), to: Vpn(to.start), pages };
        self.tell(at, event, None);
        self.come_back(at, lane, from);
    }

    fn call_will_need(&mut self, lane: u32) {
        let Some(range) = self.some_range() else { return };
        let at = self.calling(lane);
        let (space, start, end) = (SpaceId(range.space), Vpn(range.start), Vpn(range.end));
        self.tell(at, Event::WillNeed { space, start, end }, Some(lane));
    }

    fn change_budget(&mut self, lane: u32) {
        let mischief = self.mischief.as_ref().expect("only chaos calls");
        if !mischief.chaos.pressure {
            return;
        }
        let initial = u64::from(self.options.mm.budget);
        let frames = initial / 2 + self.rng().below(initial);
        let at = self.lanes[lane as usize].time;
        self.send(at, Event::Budget { frames: frames as u32 }, None);
    }

    fn call_fork(&mut self, lane: u32) {
        let mischief = self.mischief.as_mut().expect("only chaos calls");
        // Only the pager brings everything in for a fork; the kernel needs not.
        if !mischief.chaos.pressure || mischief.forking.is_some() || self.options.mm.probe.is_kernel() {
            return;
        }
        mischief.forking = Some(lane);
        let at = self.calling(lane);
        self.send(at, Event::Pause, None);
    }

    /// Everything is in view: the fork happens, and the program goes on.
    pub(super) fn populated(&mut self) {
        let mischief = self.mischief.as_mut().expect("only chaos forks");
        let lane = mischief.forking.take().expect("a pause is answered once");
        self.each_content(|engine, space, vpn| {
            let place = engine.memory.find(space, vpn).expect("a page with content has a place");
            assert!(
                engine.memory.bits(place) & view::PRESENT != 0,
                "space {space} page {vpn} is in view when everything is populated"
            );
        });
        self.send(self.now, Event::Resume, Some(lane));
    }

    /// Calls `visit` for every page that has content and is not lost.
    fn each_content(&mut self, mut visit: impl FnMut(&mut Self, u16, u64)) {
        for index in 0..self.memory.chunk_count() {
            let (space, number) = (self.memory.chunk(index).space, self.memory.chunk(index).number);
            for page in 0..CHUNK_PAGES {
                let vpn = number * CHUNK_PAGES + page;
                let place = self.memory.find(space, vpn).expect("the chunk exists");
                if self.memory.has_content(place) && self.memory.bits(place) & view::LOST == 0 {
                    visit(self, space, vpn);
                }
            }
        }
    }

    /// The worker has dealt with a system call: its thread goes on.
    pub(super) fn resume_caller(&mut self, index: u32) {
        let at = self.worker.clock() + self.options.costs.resume_ns;
        let lane = &mut self.lanes[index as usize];
        assert_eq!(lane.state, LaneState::Calling, "a call returns once");
        lane.state = LaneState::Runnable;
        lane.time = lane.time.max(at);
        self.turns.may_run(lane.time, index);
    }

    /// Ends all chaos and reads every page that has content: each must come back with what was
    /// stored last. Needs [`super::Options::shadow`] to mean anything.
    pub fn sweep(&mut self) -> Result<(), crate::workload::WorkloadError> {
        if let Some(mischief) = &mut self.mischief {
            mischief.calm = true;
        }
        let mut accesses = Vec::new();
        self.each_content(|_, space, vpn| {
            accesses.push(Access { vpn, think_ns: 0, thread: 0, space, write: false });
        });
        if accesses.is_empty() {
            return Ok(());
        }
        let time = self.lanes.iter().map(|lane| lane.time).max().unwrap_or(0).max(self.now);
        let mut source = Source::new(Box::new(Listed::new(accesses)));
        source.first_thread()?;
        self.begin_lane(self.sources.len(), 0, time);
        self.sources.push(source);
        self.spaces.push((0..self.space_count).map(Some).collect());
        self.run().map(|_| ())
    }
}

/// A read-ahead policy that plans anything a policy may plan.
#[derive(Clone, Debug)]
pub struct Wild(Rng);

impl Wild {
    /// With its own seed.
    #[must_use]
    pub fn new(seed: u64) -> Wild {
        Wild(Rng::new(seed))
    }

    fn plan(&mut self, touch: &Touch) -> Option<Plan> {
        if self.0.ratio(1, 4) {
            return None;
        }
        let mapping = if self.0.ratio(1, 2) { Mapping::OnTouch } else { Mapping::Together };
        if self.0.ratio(1, 4) {
            let count = self.0.below(16) as u32;
            let window = Window::Slots { start: touch.slot?, count };
            let wanted_first = self.0.ratio(1, 2);
            return Some(Plan { window, marker: None, mapping, passed: None, wanted_first });
        }
        let stride = *self.0.pick(&[1, 1, 1, -1, 2, 3, 64]).expect("not empty");
        let start = touch.vpn.offset(self.0.below(5) as i64 - 2);
        let count = self.0.below(80) as u32;
        let marker = self.0.ratio(1, 2).then(|| start.offset(stride * 3));
        let passed =
            self.0.ratio(1, 2).then(|| Window::Pages { start: start.offset(-stride * 40), stride, count });
        let (window, wanted_first) = (Window::Pages { start, stride, count }, self.0.ratio(1, 3));
        Some(Plan { window, marker, mapping, passed, wanted_first })
    }
}

impl SwapIn for Wild {
    type Region = ();

    fn cached(&mut self, (): &mut (), touch: &Touch) -> Option<Plan> {
        self.plan(touch)
    }

    fn miss(&mut self, (): &mut (), touch: &Touch) -> Option<Plan> {
        self.plan(touch)
    }

    fn unused(&mut self, (): &mut (), _: Vpn) {}
}
