//! The worker: takes messages, steps `mm`, carries its actions out.
//!
//! One rule above all, the shell's part of `mm`'s contract: the actions of one step are carried out
//! in order, and all of them before the next message is looked at. A reactor works through its
//! inbox one message after another and is busy for as long as the cost table says; the kernel
//! handles each message where it arises. Actions take effect when the worker comes to them, their
//! waiters and transfers go on at the worker's own clock. With [`super::chaos`] the reactor stops
//! between two actions now and then and lets the program run.

use super::chaos::Mischief;
use super::costs;
use super::lane::LaneState;
use super::memory::{Memory, Place};
use super::outcome::FaultClass;
use super::print::Print;
use super::{Engine, Happening, Message};
use crate::time::Nanos;
use overspill_mm::fingerprint::Fingerprints;
use overspill_mm::readahead::SwapIn;
use overspill_mm::types::{PageId, Slot};
use overspill_mm::{Action, Actions, Event, IoId, Run, Unmapped, Warning, WriteResult};
use std::collections::{BTreeMap, VecDeque};

/// Pages of the largest request that transfers are joined into: 512 KiB, the usual limit of a queue.
const JOINED_MAX: u32 = 128;

/// A request under construction.
struct Joined {
    is_read: bool,
    /// Its last transfer.
    last: u32,
    /// Its slots.
    start: u32,
    end: u32,
}

/// A transfer on its way.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub io: IoId,
    /// The pages.
    pub run: Run,
    /// The first slot.
    pub slot: Slot,
    /// From the device.
    pub is_read: bool,
    /// The transfer that is joined to this one in a request.
    pub next: Option<u32>,
    /// What a write carries, when contents are followed.
    versions: Vec<u64>,
    /// How a write will end; a read fails unless it is `Done`.
    result: WriteResult,
    /// It is of the compressed pool, which calls its first entry so.
    of_pool: Option<u32>,
}

impl Transfer {
    /// A write of the compressed pool.
    pub fn of_pool(at: u32, slot: Slot, count: u32) -> Transfer {
        let run = Run { first: PageId(0), count };
        let (versions, result) = (Vec::new(), WriteResult::Done);
        Transfer { io: IoId(0), run, slot, is_read: false, next: None, versions, result, of_pool: Some(at) }
    }
}

/// The worker's state.
#[derive(Debug, Default)]
pub struct Worker {
    inbox: VecDeque<Message>,
    /// Actions not yet carried out.
    pending: VecDeque<Action>,
    /// Answers to actions, to be stepped before the next message.
    answers: VecDeque<Event>,
    /// The system call that the current message comes from.
    caller: Option<u32>,
    actions: Actions,
    /// The reactor's time: what it has begun ends then.
    clock: Nanos,
    scheduled: bool,
    /// Processor time used.
    pub busy_ns: Nanos,
    steps: u64,
    /// Reads whose end has not been stepped yet.
    reads_ended: BTreeMap<IoId, Run>,
    /// `mm` has said that it cannot hold the budget.
    over_budget: bool,
    /// Transfers not yet submitted.
    plug: Vec<u32>,
    /// By page, as a page outside the view has one frame.
    fingerprints: Fingerprints<Print>,
}

impl Worker {
    /// Its own time.
    pub fn clock(&self) -> Nanos {
        self.clock
    }
}

impl<P: SwapIn> Engine<P> {
    /// A message is there.
    pub(super) fn arrive(&mut self, message: Message) {
        match self.options.costs.worker {
            costs::Worker::Kernel => {
                self.worker.clock = self.now;
                self.worker.inbox.push_back(message);
                while let Some(message) = self.next_message() {
                    self.begin(message);
                    while !self.work_is_done() {
                        self.work_a_bit();
                    }
                    self.unplug();
                }
            }
            costs::Worker::Reactor { wake_ns, spin_ns } => {
                self.worker.inbox.push_back(message);
                if !self.worker.scheduled {
                    let asleep = self.now > self.worker.clock + spin_ns;
                    let at = if asleep { self.now + wake_ns } else { self.now.max(self.worker.clock) };
                    self.schedule_reactor(at);
                }
            }
        }
    }

    fn schedule_reactor(&mut self, at: Nanos) {
        assert!(!self.worker.scheduled, "there is one reactor");
        self.worker.scheduled = true;
        self.schedule(at, Happening::Reactor);
    }

    /// The reactor's turn: everything it has, or up to where chaos stops it.
    pub(super) fn reactor(&mut self) {
        self.worker.scheduled = false;
        self.worker.clock = self.now;
        loop {
            while !self.work_is_done() {
                self.work_a_bit();
                if self.mischief.as_mut().is_some_and(|mischief| mischief.interrupts()) {
                    let at = self.worker.clock;
                    self.schedule_reactor(at);
                    return;
                }
            }
            if self.keep_pool() {
                // Its share has changed, and `mm` is to hear of it.
            } else if let Some(message) = self.next_message() {
                self.begin(message);
            } else if self.worker.inbox.is_empty() && self.mm.in_flight() > 0 && self.mm.has_idle_work() {
                self.step(Event::Idle);
            } else {
                return;
            }
        }
    }

    /// The next message that may be dealt with: a move waits until no transfer is under way, and
    /// all but completions wait behind it.
    fn next_message(&mut self) -> Option<Message> {
        if self.mischief.is_none() {
            // Nobody moves anything.
            return self.worker.inbox.pop_front();
        }
        let moving =
            self.worker.inbox.iter().position(|message| matches!(message.event, Event::Moved { .. }));
        match moving {
            Some(0) if self.mm.in_flight() == 0 => self.worker.inbox.pop_front(),
            Some(0) => {
                let ends = |message: &Message| {
                    matches!(message.event, Event::ReadDone { .. } | Event::WriteDone { .. })
                };
                let at = self.worker.inbox.iter().position(ends)?;
                self.worker.inbox.remove(at)
            }
            _ => self.worker.inbox.pop_front(),
        }
    }

    fn begin(&mut self, message: Message) {
        self.worker.caller = message.caller;
        if let Event::ReadDone { io, .. } = message.event {
            self.mark_waited(io);
        }
        match message.event {
            Event::ReadDone { .. } | Event::WriteDone { .. } => self.spend(self.options.costs.complete.of(1)),
            Event::Discarded { space, .. }
            | Event::RegionRemoved { space, .. }
            | Event::Moved { space, .. } => {
                if let Some(mischief) = &mut self.mischief {
                    mischief.settled(space.0);
                }
            }
            _ => {}
        }
        match message.event {
            Event::Discarded { space, start, end } if self.mischief.is_none() => {
                self.memory.discard_range(space.0, start.0, end.0);
            }
            Event::RegionRemoved { space, start, end } => self.memory.unname(space.0, start.0, end.0),
            Event::RegionAdded { space, start, end, .. } => {
                if let Some(mischief) = &mut self.mischief {
                    mischief.returned(space.0, start.0, end.0);
                }
            }
            Event::Moved { space, from, to, pages } => {
                self.memory.unname(space.0, from.0, from.0 + pages);
                self.memory.unname(space.0, to.0, to.0 + pages);
            }
            Event::Budget { frames } if self.pool.is_some() => {
                // Shared out at the end of the turn.
                self.pool.as_mut().expect("it was seen").set_allowed(frames);
                return;
            }
            Event::Fault { space, vpn, .. } if !self.mm.manages(space, vpn, vpn.offset(1)) => {
                // The range went away before the message was read.
                self.answer(space.0, vpn.0, FaultClass::Soft);
                return;
            }
            Event::Fault { space, vpn, .. } => self.wait_begins(space, vpn),
            _ => {}
        }
        self.step(message.event);
    }

    pub(super) fn spend(&mut self, ns: Nanos) {
        self.worker.clock += ns;
        self.worker.busy_ns += ns;
    }

    fn step(&mut self, event: Event) {
        self.spend(self.options.costs.step_ns);
        if let Some(log) = self.options.log {
            log(format_args!("{} {event:?}", self.now));
        }
        self.mm.step(self.now, event, &mut self.worker.actions);
        self.worker.pending.extend(self.worker.actions.drain());
        self.worker.steps += 1;
        let every = u64::from(self.options.check_every);
        if every > 0 && self.worker.steps.is_multiple_of(every) {
            self.mm.check();
        }
    }

    /// Steps what costs nothing: a region is declared.
    pub(super) fn step_quietly(&mut self, event: Event) {
        let mut actions = Actions::new();
        self.mm.step(self.now, event, &mut actions);
        // The end of any step may reclaim; a reactor in mid-work does these after what it has begun.
        self.worker.pending.extend(actions.drain());
        if self.options.costs.worker == costs::Worker::Kernel {
            self.worker.clock = self.now;
            while !self.work_is_done() {
                self.work_a_bit();
            }
            self.unplug();
        } else if !self.worker.pending.is_empty() && !self.worker.scheduled {
            let at = self.now.max(self.worker.clock);
            self.schedule_reactor(at);
        }
    }

    fn work_is_done(&self) -> bool {
        self.worker.pending.is_empty() && self.worker.answers.is_empty() && self.worker.caller.is_none()
    }

    /// Carries out one action, or steps one answer, or ends the system call.
    fn work_a_bit(&mut self) {
        if let Some(action) = self.worker.pending.pop_front() {
            self.carry_out(action);
            self.check_budget();
        } else if let Some(event) = self.worker.answers.pop_front() {
            self.step(event);
        } else if let Some(caller) = self.worker.caller.take() {
            self.resume_caller(caller);
        }
    }

    /// Frames held never exceed the budget, unless `mm` has said why or the world does not let it.
    fn check_budget(&mut self) {
        let (held, _) = self.memory.held();
        // What a pool has just taken, `mm` has yet to give.
        let allowed = if self.pool.is_some() { self.options.mm.budget } else { self.mm.config().budget };
        if held > u64::from(allowed) {
            assert!(
                self.worker.over_budget || self.mischief.as_ref().is_some_and(Mischief::excuses),
                "{held} frames are held, {allowed} are allowed"
            );
        }
    }

    fn carry_out(&mut self, action: Action) {
        let costs = self.options.costs;
        if let Some(log) = self.options.log {
            log(format_args!("{} -> {action:?}", self.worker.clock));
        }
        match action {
            Action::Read { io, run, slot } => {
                self.spend(costs.submit.of(run.count));
                self.read(io, run, slot);
            }
            Action::Write { io, run, slot } => {
                self.spend(costs.submit.of(run.count));
                self.write(io, run, slot);
            }
            Action::ZeroFill { run } => {
                self.spend(costs.fill.of(run.count));
                self.show(run, Memory::zero_fill, Event::NotFilled { run });
            }
            Action::ShowZeroes { run } => {
                self.spend(costs.fill.of(1));
                self.show(run, Memory::show_zeroes, Event::NotFilled { run });
            }
            Action::TakeStores { run } => {
                self.spend(costs.fill.of(1));
                self.show(run, Memory::take_stores, Event::StillZeroes { run });
            }
            Action::Map { run } => {
                self.spend(costs.map.of(run.count));
                self.map(run);
            }
            Action::Unmap { run } => {
                self.spend(costs.unmap.of(run.count));
                let result = self.unmap(run);
                self.worker.answers.push_back(Event::Unmapped { run, result });
            }
            Action::Free { run } => {
                self.spend(costs.free.of(run.count));
                run.pages().for_each(|id| {
                    self.keep_packed(id);
                    self.memory.free(id);
                });
            }
            Action::Rename { from, to } => self.memory.rename(from, to),
            Action::Wake { run } => run.pages().for_each(|id| {
                let (space, vpn, _) = self.place(id);
                self.answer(space, vpn, FaultClass::Soft);
            }),
            Action::Fail { page } => self.fail(page),
            Action::Confirm => self.worker.answers.push_back(Event::Confirmed),
            Action::Populated => self.populated(),
            // A simulated device has blocks enough, and forgets nothing.
            Action::Discard { slot, .. } => {
                self.worker.answers.push_back(Event::DiscardDone { slot, kept: false })
            }
            // Nobody else is there to use it.
            Action::Claim { area, slots } => {
                let (more, has_company) = (u32::MAX, false);
                self.worker.answers.push_back(Event::Claimed { area, slots, more, has_company });
            }
            Action::AreaLeft { .. } => {}
            Action::Warn(warning) => {
                self.worker.over_budget |= warning != Warning::PageLost;
            }
        }
    }

    fn read(&mut self, io: IoId, run: Run, slot: Slot) {
        for (index, id) in run.pages().enumerate() {
            let slot = Slot(slot.0 + index as u32);
            self.memory.read_begins(id, slot);
            if self.options.mm.compares {
                self.worker.fingerprints.read(slot, id.0);
            }
        }
        if self.unpack(io, run, slot) {
            return;
        }
        self.start(Transfer {
            io,
            run,
            slot,
            is_read: true,
            next: None,
            versions: Vec::new(),
            result: WriteResult::Done,
            of_pool: None,
        });
    }

    fn write(&mut self, io: IoId, run: Run, slot: Slot) {
        let shadow = self.memory.has_shadow();
        let mut versions = Vec::with_capacity(if shadow { run.count as usize } else { 0 });
        for (index, id) in run.pages().enumerate() {
            let (_, _, place) = self.place(id);
            let slot = Slot(slot.0 + index as u32);
            let version = self.memory.write_begins(id, place, slot);
            if self.options.mm.compares {
                self.worker.fingerprints.written(slot, id.0);
            }
            if shadow {
                versions.push(version);
            }
        }
        let result = WriteResult::Done;
        let transfer =
            Transfer { io, run, slot, is_read: false, next: None, versions, result, of_pool: None };
        if !self.pack(&transfer) {
            self.start(transfer);
        }
    }

    pub(super) fn start(&mut self, mut transfer: Transfer) {
        if let Some(mischief) = &mut self.mischief {
            transfer.result = mischief.result_of_transfer();
        }
        let ticket = self.transfers.insert(transfer);
        match self.options.costs.worker {
            costs::Worker::Kernel => self.worker.plug.push(ticket),
            costs::Worker::Reactor { .. } => self.schedule(self.worker.clock, Happening::Submit(ticket)),
        }
    }

    /// The kernel gathers the transfers of a fault and joins those that are neighbours on the
    /// device, whatever pages they carry, into one request.
    fn unplug(&mut self) {
        let mut plug = std::mem::take(&mut self.worker.plug);
        plug.sort_by_key(|&ticket| {
            let transfer = self.transfers.get(ticket);
            (!transfer.is_read, transfer.slot.0)
        });
        let mut open: Option<Joined> = None;
        for &ticket in &plug {
            let transfer = self.transfers.get(ticket);
            let (is_read, end) = (transfer.is_read, transfer.slot.0 + transfer.run.count);
            let joins = |open: &&mut Joined| {
                open.is_read == is_read && open.end == transfer.slot.0 && end - open.start <= JOINED_MAX
            };
            if let Some(open) = open.as_mut().filter(joins) {
                self.transfers.get_mut(open.last).next = Some(ticket);
                (open.last, open.end) = (ticket, end);
            } else {
                open = Some(Joined { is_read, last: ticket, start: transfer.slot.0, end });
                self.schedule(self.worker.clock, Happening::Submit(ticket));
            }
        }
        plug.clear();
        self.worker.plug = plug;
    }

    /// The device is done with a request: the worker hears of its transfers.
    pub(super) fn request_done(&mut self, first: u32) {
        let mut next = Some(first);
        while let Some(ticket) = next {
            next = self.transfers.get(ticket).next;
            self.transfer_done(ticket);
        }
    }

    /// The worker hears of a transfer, perhaps late.
    fn transfer_done(&mut self, ticket: u32) {
        let transfer = self.transfers.get(ticket);
        if let Some(at) = transfer.of_pool {
            let count = self.transfers.remove(ticket).run.count;
            self.written_back(at, count);
            return;
        }
        let event = if transfer.is_read {
            Event::ReadDone { io: transfer.io, ok: transfer.result == WriteResult::Done }
        } else {
            Event::WriteDone { io: transfer.io, result: transfer.result }
        };
        self.end_transfer(ticket);
        let late_ns = self.mischief.as_mut().map_or(0, |mischief| mischief.lateness_ns());
        self.send(self.now + late_ns, event, None);
    }

    /// The bytes are where they belong.
    fn end_transfer(&mut self, ticket: u32) {
        let transfer = self.transfers.remove(ticket);
        if !transfer.is_read {
            return self.write_ended(&transfer);
        }
        let ok = transfer.result == WriteResult::Done;
        for (id, slot) in transfer.run.pages().zip(transfer.slot.0..) {
            self.memory.read_ends(id, Slot(slot), ok);
        }
        self.worker.reads_ended.insert(transfer.io, transfer.run);
    }

    /// The bytes of a write are where they belong.
    pub(super) fn write_ended(&mut self, transfer: &Transfer) {
        let ok = transfer.result == WriteResult::Done;
        for (index, id) in transfer.run.pages().enumerate() {
            let slot = Slot(transfer.slot.0 + index as u32);
            let version = transfer.versions.get(index).copied().unwrap_or(0);
            self.memory.write_ends(id, slot, version, ok);
        }
    }

    /// An answer to an action that was carried out at once.
    pub(super) fn answer_soon(&mut self, event: Event) {
        self.worker.answers.push_back(event);
    }

    /// What the slot holds does not matter any more: no page is like it.
    pub(super) fn forget_fingerprint(&mut self, slot: Slot) {
        self.worker.fingerprints.forget(slot);
    }

    /// Threads that wait for the pages of a read have waited for the device.
    fn mark_waited(&mut self, io: IoId) {
        let run = self.worker.reads_ended.remove(&io).expect("a read ends once");
        for id in run.pages() {
            let (space, vpn) = self.mm.place(id);
            for &lane in self.waiting.get(&(space.0, vpn.0)).into_iter().flatten() {
                self.lanes[lane as usize].class = FaultClass::Read;
            }
        }
    }

    /// Pages without content come into view; `refused` tells that their range is changing.
    fn show(&mut self, run: Run, show: fn(&mut Memory, Place), refused: Event) {
        if self.is_changing(run.first) {
            self.answer_run(run, FaultClass::Fill);
            self.worker.answers.push_back(refused);
            return;
        }
        for id in run.pages() {
            let (space, vpn, place) = self.place(id);
            show(&mut self.memory, place);
            self.memory.name(place, id.0 - u32::from(place.page));
            self.answer(space, vpn, FaultClass::Fill);
        }
    }

    fn map(&mut self, run: Run) {
        if self.is_changing(run.first) {
            self.answer_run(run, FaultClass::Soft);
            self.worker.answers.push_back(Event::NotMapped { run });
            return;
        }
        for id in run.pages() {
            let (space, vpn, place) = self.place(id);
            self.drop_packed(id);
            self.memory.map(id, place);
            self.memory.name(place, id.0 - u32::from(place.page));
            self.answer(space, vpn, FaultClass::Soft);
        }
    }

    fn unmap(&mut self, run: Run) -> Unmapped {
        let mut result = Unmapped::default();
        if self.is_changing(run.first) {
            return result;
        }
        for (index, id) in run.pages().enumerate() {
            if self.mischief.as_mut().is_some_and(|mischief| mischief.page_is_busy()) {
                continue;
            }
            let (_, _, place) = self.place(id);
            match self.memory.unmap(id, place) {
                None => result.gone |= 1 << index,
                Some(zero) => {
                    let zero = zero && self.options.costs.sees_zero;
                    let same = !zero && self.options.mm.compares && self.is_same(id, place);
                    result.taken |= 1 << index;
                    result.zero |= u64::from(zero) << index;
                    result.same |= u64::from(same) << index;
                }
            }
        }
        result
    }

    /// Does the pager see that a page just taken out of view is what its slot holds?
    fn is_same(&mut self, id: PageId, place: Place) -> bool {
        let slot = self.mm.slot(id);
        let same = slot.is_some_and(|slot| self.memory.is_same(id, place, slot));
        self.worker.fingerprints.taken(id, id.0, slot, |before| before.of(same))
    }

    /// Is the page's address space being changed by a system call of which the worker has not heard yet?
    fn is_changing(&self, id: PageId) -> bool {
        let (space, _) = self.mm.place(id);
        self.mischief.as_ref().is_some_and(|mischief| mischief.is_changing(space.0))
    }

    fn answer_run(&mut self, run: Run, class: FaultClass) {
        for id in run.pages() {
            let (space, vpn, _) = self.place(id);
            self.answer(space, vpn, class);
        }
    }

    /// The threads that wait for a page go on.
    fn answer(&mut self, space: u16, vpn: u64, class: FaultClass) {
        let Some(lanes) = self.waiting.remove(&(space, vpn)) else { return };
        if let Some(pool) = &mut self.pool {
            pool.wait_ends((space, vpn), self.worker.clock);
        }
        for index in lanes {
            let lane = &mut self.lanes[index as usize];
            assert_eq!(lane.state, LaneState::Blocked, "only a thread that waits is answered");
            lane.state = LaneState::Runnable;
            lane.time = lane.time.max(self.worker.clock + self.options.costs.resume_ns);
            self.turns.may_run(lane.time, index);
            if lane.class != FaultClass::Read {
                lane.class = class;
            }
        }
    }

    /// The page is lost: whoever waits for it gets a signal.
    fn fail(&mut self, id: PageId) {
        let (space, vpn, place) = self.place(id);
        self.memory.lose(place);
        self.answer(space, vpn, FaultClass::Read);
    }
}
