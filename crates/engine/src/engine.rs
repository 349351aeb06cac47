//! The engine: turns messages of the kernel into events of `mm`, and the actions of `mm` into transfers.
//!
//! It has no loop and no thread of its own: whoever owns it calls [`Engine::crank`] and decides how to wait. Changes of
//! the address space always come before faults, and every action is carried out before the next event is fed: that is
//! the order that `mm` relies on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::readahead::policy::Policy;
use overspill_mm::types::{Access, PageId, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, IoId, Mm, Run, State, Unmapped, WriteResult};
use overspill_sys::mem::IoVec;
use overspill_sys::uffd::Message;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock};

use crate::fingerprint::Fingerprints;
use crate::memory::{COPIED_MAX, Memory, bits};
use crate::report::{Answer, Report};
use crate::staging::{BLOCK, Frame, Staging};
use crate::trace::{Ring, Tracer};
use crate::transfers::{Ended, PIECES, Transfers};

/// The one space of this process.
const SPACE: SpaceId = SpaceId(0);

/// Memory that is unshared by one call of the helper.
const UNSHARE_BYTES: usize = 1 << 20;

/// What a crank met that its owner has to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A thread waits at an address that is registered but of no known region.
    Unknown(usize),
    /// A thread rings at this doorbell; it waits until [`Engine::answer_doorbell`].
    Doorbell(usize),
    /// Everything is in, after [`Engine::pause`].
    Populated,
    /// No slot is left and a page needed one.
    SwapFull,
    /// A write failed.
    AreaRetired,
    /// A page could not be read back.
    PageLost {
        /// Where it was.
        address: usize,
        /// Its touch raises SIGBUS by itself.
        poisoned: bool,
    },
}

/// The live memory manager of one process.
pub struct Engine {
    mm: Mm<Policy>,
    pub(crate) memory: Memory,
    staging: Staging,
    fingerprints: Fingerprints,
    transfers: Transfers,
    events: VecDeque<Event>,
    out: Actions,
    notices: VecDeque<Notice>,
    doorbells: AddressRange,
    report: Report,
    /// Frames are used again. Not so once the program has lent pages to the kernel without a pin that UFFDIO_MOVE sees
    /// (vmsplice, MSG_ZEROCOPY): what the borrower still reads must not change.
    recycle: bool,
    /// What is still to be unshared after a fork.
    shared: Vec<AddressRange>,
    /// Tells what happens, if somebody wants to know.
    tracer: Option<Tracer>,
}

impl Engine {
    pub(crate) fn new(
        config: Config,
        policy: Policy,
        memory: Memory,
        staging_blocks: u32,
        fingerprints: Fingerprints,
        transfers: Transfers,
        report: Report,
    ) -> Self {
        Engine {
            mm: Mm::new(config, policy),
            memory,
            staging: Staging::new(staging_blocks),
            fingerprints,
            transfers,
            events: VecDeque::new(),
            out: Actions::new(),
            notices: VecDeque::new(),
            doorbells: 0..0,
            report,
            recycle: true,
            shared: Vec::new(),
            tracer: None,
        }
    }

    /// From now on what happens is told to `ring`.
    pub fn trace_to(&mut self, ring: &'static Ring) {
        self.tracer = Some(Tracer::new(ring));
    }

    /// The state machine, to look at.
    #[must_use]
    pub fn mm(&self) -> &Mm<Policy> {
        &self.mm
    }

    /// The policy's knobs.
    pub fn policy_mut(&mut self) -> &mut Policy {
        self.mm.policy_mut()
    }

    /// The statistics that others see.
    pub fn report(&mut self) -> &mut Report {
        &mut self.report
    }

    /// Frames that count against the budget: held by `mm`, or populated and idle.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.mm.frames_held() + self.staging.idle_frames()
    }

    /// Descriptors that become readable when there is something to do.
    pub fn descriptors(&self) -> [&overspill_sys::Fd; 2] {
        [self.memory.descriptor(), self.transfers.io().descriptor()]
    }

    /// Is a request to the device under way?
    #[must_use]
    pub fn is_waiting_for_device(&self) -> bool {
        self.transfers.in_flight() > 0
    }

    /// Is a thread of the program waiting for a page?
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.report.is_awaited()
    }

    /// Handles everything there is to handle without waiting. True when there was anything.
    pub fn crank(&mut self) -> bool {
        let mut busy = self.memory.read_messages();
        while let Some(message) = self.memory.next_message() {
            self.handle(message);
        }
        while let Some(ended) = self.transfers.next_ended() {
            busy = true;
            self.ended(ended);
        }
        self.transfers.submit();
        self.trim();
        busy
    }

    /// The oldest unjudged notice.
    pub fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    // What owners do.

    /// Asks the kernel to report the missing pages of a range of private anonymous memory.
    pub fn register(&self, range: AddressRange) -> Result<(), Errno> {
        self.memory.register(range)
    }

    /// Is no change of the address space under way, whose event is still to be read?
    pub fn is_quiet(&mut self) -> bool {
        self.memory.is_quiet()
    }

    /// Calls `visit` with every part of the range that is not managed, in order.
    pub fn unmanaged(&self, range: &AddressRange, mut visit: impl FnMut(AddressRange)) {
        let (start, end) = vpns(range);
        self.mm.unmanaged(SPACE, start, end, |start, end| visit(address(start)..address(end)));
    }

    /// The managed ranges.
    pub fn regions(&self) -> impl Iterator<Item = AddressRange> + '_ {
        self.mm.regions().map(move |(_, start, end)| address(start)..address(end))
    }

    /// The engine's own mappings, which must never be managed.
    #[must_use]
    pub fn own_ranges(&self) -> [AddressRange; 5] {
        let [staging, trash, zeroes, helper] = self.memory.own_ranges();
        [staging, trash, zeroes, helper, self.transfers.io().range()]
    }

    /// Forgets a range whose content nobody wants any more.
    pub fn remove_region(&mut self, range: AddressRange) {
        let (start, end) = vpns(&range);
        self.feed(Event::RegionRemoved { space: SPACE, start, end });
        // Reports end with the mapping, which the caller unmaps next.
    }

    /// Manages a range that is registered already.
    pub fn add_region(&mut self, range: AddressRange, kind: RegionKind) {
        let (start, end) = vpns(&range);
        self.feed(Event::RegionAdded { space: SPACE, start, end, kind });
    }

    /// These pages of a region are present although nobody told.
    pub fn add_resident(&mut self, range: AddressRange) {
        let (start, end) = vpns(&range);
        self.feed(Event::Resident { space: SPACE, start, end });
    }

    /// Handles the changes of the address space that the kernel has reported. True when there were any.
    pub fn handle_changes(&mut self) -> bool {
        self.memory.read_messages();
        let mut any = false;
        while let Some(message) = self.memory.next_change() {
            any = true;
            self.handle(message);
        }
        any
    }

    /// Page addresses in this range are doorbells: a touch is a [`Notice::Doorbell`].
    pub fn set_doorbells(&mut self, range: AddressRange) -> Result<(), Errno> {
        self.memory.register_doorbell(range.clone())?;
        self.doorbells = range;
        Ok(())
    }

    /// Lets the threads at a doorbell go on, and silences it until [`Engine::resume_after_fork`].
    pub fn answer_doorbell(&mut self, address: usize) {
        self.memory.fill_fresh(address, 1);
    }

    /// Brings everything in and stops reclaiming until [`Engine::resume_after_fork`]; [`Notice::Populated`] follows.
    pub fn pause(&mut self) {
        self.feed(Event::Pause);
    }

    /// After a fork, still paused: the kernel refuses to move pages that a child shares, or shared until it ended. Notes
    /// what is present, to be made the program's own by [`Engine::unshare_some`].
    pub fn start_unsharing(&mut self) {
        self.shared.clear();
        for region in self.mm.regions().map(|(_, start, end)| address(start)..address(end)) {
            self.memory.present_runs(region, |run| {
                let mut start = run.start;
                while start < run.end {
                    let end = run.end.min(start + UNSHARE_BYTES);
                    self.shared.push(start..end);
                    start = end;
                }
            });
        }
    }

    /// Has the helper thread unshare the next part. True when all is done.
    pub fn unshare_some(&mut self) -> bool {
        if let Some(range) = self.shared.last().cloned()
            && self.memory.unshare(range)
        {
            self.shared.pop();
        }
        self.shared.is_empty() && self.memory.helper_is_idle()
    }

    /// Goes on after [`Engine::pause`], with the doorbell armed again.
    pub fn resume_after_fork(&mut self, doorbell: usize) {
        self.memory.rearm(doorbell);
        self.feed(Event::Resume);
    }

    /// Changes the budget, in frames.
    pub fn set_budget(&mut self, frames: u32) {
        if frames != self.mm.config().budget {
            self.feed(Event::Budget { frames });
        }
    }

    /// From now on a frame that held a page is given back to the kernel, never to another page.
    pub fn stop_recycling(&mut self) {
        self.recycle = false;
        self.trim();
    }

    /// The program will need a range soon.
    pub fn will_need(&mut self, range: AddressRange) {
        let (start, end) = vpns(&range);
        self.feed(Event::WillNeed { space: SPACE, start, end });
    }

    /// Time passed.
    pub fn tick(&mut self) {
        self.feed(Event::Tick);
        self.report.publish(self.mm.stats(), self.mm.slots_used(), self.mm.config().budget);
    }

    /// Waits until no request is under way, handling what ends.
    pub fn finish_transfers(&mut self) {
        while self.transfers.in_flight() > 0 {
            self.transfers.wait(10_000_000);
            while let Some(ended) = self.transfers.next_ended() {
                self.ended(ended);
            }
        }
    }

    // Messages.

    fn handle(&mut self, message: Message) {
        match message {
            Message::Fault { address, write, wp, .. } => self.fault(address & !(PAGE_SIZE - 1), write, wp),
            Message::Remove { start, end } => {
                let (start, end) = vpns(&(start..end));
                self.feed(Event::Discarded { space: SPACE, start, end });
            }
            Message::Unmap { start, end } => {
                let (start, end) = vpns(&(start..end));
                self.feed(Event::RegionRemoved { space: SPACE, start, end });
            }
            Message::Remap { from, to, len } => {
                if from != to {
                    // What is on its way belongs to pages by their old places, where nothing may be put any more: with
                    // MREMAP_DONTUNMAP the kernel would not refuse it, and the content would be lost.
                    self.memory.handle(from..from + len, to..to + len);
                    self.finish_transfers();
                    let pages = (len / PAGE_SIZE) as u64;
                    let (from, to) = (vpn(from), vpn(to));
                    self.feed(Event::Moved { space: SPACE, from, to, pages });
                    self.memory.handled();
                }
            }
            // The child's pages were all brought in before the fork: nothing of it is ours. Closing lets it go.
            Message::Fork { .. } | Message::Other(_) => {}
        }
    }

    fn fault(&mut self, address: usize, write: bool, wp: bool) {
        if self.doorbells.contains(&address) {
            self.notices.push_back(Notice::Doorbell(address));
            return;
        }
        let vpn = vpn(address);
        if !self.mm.manages(SPACE, vpn, vpn.offset(1)) {
            self.notices.push_back(Notice::Unknown(address));
            return;
        }
        if wp {
            // Only copying a page out protects it, for an instant. It is gone by now, or it was refused and stays.
            self.memory.unprotect(address..address + PAGE_SIZE);
            return;
        }
        let now = clock::monotonic_ns();
        let access = if write { Access::Write } else { Access::Read };
        let before = self.mm.lookup(SPACE, vpn).map(|id| self.mm.state(id));
        let major = before == Some(State::Swapped);
        if before == Some(State::Mapped) && self.memory.is_missing(address) {
            // The page went without a word (the kernel reclaims what MADV_FREE released): it is untouched again.
            self.feed(Event::Discarded { space: SPACE, start: vpn, end: vpn.offset(1) });
        }
        self.report.fault_begins(vpn, now, major);
        if let Some(tracer) = &mut self.tracer {
            tracer.fault(now, vpn, self.mm.lookup(SPACE, vpn), before);
        }
        self.feed(Event::Fault { space: SPACE, vpn, access });
    }

    /// A thread that waits at a place that is no region (any more) tries again.
    pub fn wake(&self, address: usize) {
        self.memory.wake(address..address + PAGE_SIZE);
    }

    fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Read(io, outcome) => {
                if let Err(errno) = outcome {
                    self.report.note_error(errno);
                }
                self.feed(Event::ReadDone { io, ok: outcome.is_ok() });
            }
            Ended::Write(io, outcome) => {
                let result = match outcome {
                    Ok(()) => WriteResult::Done,
                    Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => WriteResult::NoSpace,
                    Err(errno) => {
                        self.report.note_error(errno);
                        WriteResult::Failed
                    }
                };
                self.feed(Event::WriteDone { io, result });
            }
        }
    }

    // Events and actions.

    /// Feeds an event and everything that carrying out its actions gives rise to.
    fn feed(&mut self, event: Event) {
        self.events.push_back(event);
        while let Some(event) = self.events.pop_front() {
            let now = clock::monotonic_ns();
            let mut out = core::mem::take(&mut self.out);
            self.mm.step(now, event, &mut out);
            for action in out.drain() {
                self.carry_out(action);
            }
            self.out = out;
        }
    }

    fn carry_out(&mut self, action: Action) {
        self.tell(&action);
        match action {
            Action::Read { io, run, slot } => self.read(io, run, slot.0),
            Action::Write { io, run, slot } => self.write(io, run, slot.0),
            Action::ZeroFill { run } => self.zero_fill(run),
            Action::Map { run } => self.map(run),
            Action::Unmap { run } => self.unmap(run),
            Action::Free { run } => run.pages().for_each(|page| self.staging.leave(page, true)),
            Action::Rename { from, to } => self.staging.rename(from, to),
            Action::Wake { run } => {
                self.memory.wake(self.addresses(run));
                self.answered(run, Answer::Retry);
            }
            Action::Fail { page } => self.fail(page),
            Action::Populated => self.notices.push_back(Notice::Populated),
            Action::Warn(warning) => self.warn(warning),
        }
    }

    /// Tells the tracer what is about to be done.
    fn tell(&mut self, action: &Action) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = clock::monotonic_ns();
        match action {
            Action::Read { run, .. } => {
                run.pages().for_each(|id| tracer.reading(now, self.mm.place(id).1, id))
            }
            Action::Write { run, .. } => run.pages().for_each(|id| tracer.writing(id)),
            Action::Map { run } => run.pages().for_each(|id| tracer.mapped(id)),
            Action::Free { run } => run.pages().for_each(|id| {
                if let (State::Swapped, Some(slot)) = (self.mm.state(id), self.mm.slot(id)) {
                    tracer.evicted(now, self.mm.place(id).1, id, slot.0);
                }
            }),
            _ => {}
        }
    }

    fn read(&mut self, io: IoId, run: Run, slot: u32) {
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < run.count {
            let count = (run.count - done).min(BLOCK);
            let first = self.staging.take_for_read(count).expect("staging has room for all that may be read");
            for index in 0..count {
                let (page, frame) = (PageId(run.first.0 + done + index), Frame(first.0 + index));
                self.staging.enter(page, frame);
                self.fingerprints.read(slot + done + index, frame);
            }
            pieces.push(self.memory.frame_address(first), count);
            done += count;
        }
        self.transfers.read(io, slot, pieces.as_slice());
    }

    fn write(&mut self, io: IoId, run: Run, slot: u32) {
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < run.count {
            let segment = self.staging.segment(PageId(run.first.0 + done), run.count - done);
            pieces.push(self.memory.frame_address(segment.first_frame), segment.count);
            for index in 0..segment.count {
                self.fingerprints.written(slot + done + index, Frame(segment.first_frame.0 + index));
            }
            done += segment.count;
        }
        self.transfers.write(io, slot, pieces.as_slice());
    }

    fn map(&mut self, run: Run) {
        let mut done = 0;
        while done < run.count {
            let segment = self.staging.segment(PageId(run.first.0 + done), run.count - done);
            let address = self.address(segment.first_page);
            let put = self.memory.put_in(address, segment.first_frame, segment.count);
            for index in 0..put.done {
                let page = PageId(segment.first_page.0 + index);
                self.staging.leave(page, put.moved & 1 << index == 0);
            }
            done += put.done;
            if put.done < segment.count {
                let rest = Run { first: PageId(run.first.0 + done), count: run.count - done };
                self.events.push_back(Event::NotMapped { run: rest });
                self.retry(rest);
                break;
            }
        }
        if done > 0 {
            self.answered(Run { first: run.first, count: done }, Answer::Mapped);
        }
    }

    /// Pages could not be put where their range is changing: whoever waits there touches again, after the change.
    fn retry(&mut self, run: Run) {
        self.memory.wake(self.addresses(run));
        self.answered(run, Answer::Retry);
    }

    fn zero_fill(&mut self, run: Run) {
        let address = self.address(run.first);
        let mut done = 0;
        while done < run.count {
            let at = address + done as usize * PAGE_SIZE;
            let count = run.count - done;
            let spare = if count > COPIED_MAX { self.staging.take_spare() } else { None };
            let (filled, wanted) = match spare {
                Some((first, populated)) => self.fill_from_spare(at, count, first, populated),
                None => (self.memory.fill_fresh(at, count), count),
            };
            done += filled;
            if filled < wanted {
                let rest = Run { first: PageId(run.first.0 + done), count: run.count - done };
                self.events.push_back(Event::NotFilled { run: rest });
                self.retry(rest);
                break;
            }
        }
        if done > 0 {
            self.answered(Run { first: run.first, count: done }, Answer::Mapped);
        }
    }

    /// Fills pages from the populated frames of a spare block. Returns how many were filled and how many could be.
    fn fill_from_spare(&mut self, address: usize, count: u32, first: Frame, populated: u64) -> (u32, u32) {
        let start = populated.trailing_zeros();
        let wanted = (populated >> start).trailing_ones().min(count);
        let frame = Frame(first.0 + start);
        self.memory.clear_frames(frame, wanted);
        let put = self.memory.put_in(address, frame, wanted);
        self.staging.give_back(first, populated & !(put.moved << start));
        (put.done, wanted)
    }

    fn unmap(&mut self, run: Run) {
        // Making room takes a while: who waits for a read need not wait for that too.
        self.transfers.submit();
        let mut result = Unmapped::default();
        let mut done = 0;
        while done < run.count {
            let count = (run.count - done).min(BLOCK);
            let first_page = PageId(run.first.0 + done);
            let Some(first) = self.staging.take_holes(count) else { break };
            let taken = self.memory.take_out(self.address(first_page), first, count);
            for index in (0..count).filter(|index| taken.taken & 1 << index != 0) {
                let (page, frame) = (PageId(first_page.0 + index), Frame(first.0 + index));
                self.staging.enter(page, frame);
                let content = self.content(page, frame);
                result.zero |= u64::from(content == Content::Zero) << (done + index);
                result.same |= u64::from(content == Content::Same) << (done + index);
            }
            if taken.taken == 0 {
                self.staging.abandon(first);
            }
            result.taken |= taken.taken << done;
            result.gone |= taken.gone << done;
            done += count;
        }
        self.events.push_back(Event::Unmapped { run, result });
    }

    /// What there is to say of a page that was just taken out of view.
    fn content(&mut self, page: PageId, frame: Frame) -> Content {
        let words = self.memory.frame_words(frame);
        if is_zero(words) {
            return Content::Zero;
        }
        let slot = self.mm.slot(page).map(|slot| slot.0);
        if self.fingerprints.taken(page, frame, slot, words) { Content::Same } else { Content::Other }
    }

    fn fail(&mut self, page: PageId) {
        let range = self.addresses(Run::one(page));
        let poisoned = self.memory.poison(range.clone());
        self.notices.push_back(Notice::PageLost { address: range.start, poisoned });
        self.answered(Run::one(page), Answer::Retry);
    }

    fn warn(&mut self, warning: overspill_mm::Warning) {
        match warning {
            overspill_mm::Warning::SwapFull => self.notices.push_back(Notice::SwapFull),
            overspill_mm::Warning::AreaRetired => self.notices.push_back(Notice::AreaRetired),
            // `Fail` follows and says which page.
            overspill_mm::Warning::PageLost => {}
        }
    }

    /// Idle frames count against the budget: those that do not fit are given back to the kernel.
    fn trim(&mut self) {
        let spare = self.mm.config().budget.saturating_sub(self.mm.frames_held());
        let allowed = if self.recycle { spare } else { 0 };
        while self.staging.idle_frames() > allowed {
            let Some((first, populated)) = self.staging.take_spare() else { return };
            let mut left = populated;
            let mut frame = 0;
            while frame < BLOCK {
                let count = (populated >> frame).trailing_ones();
                if count > 0 {
                    let dropped = self.memory.drop_frames(Frame(first.0 + frame), count);
                    left &= !bits(frame, dropped);
                }
                frame += count + 1;
            }
            self.staging.give_back(first, left);
            if left == populated {
                return;
            }
        }
    }

    fn answered(&mut self, run: Run, answer: Answer) {
        let (_, first) = self.mm.place(run.first);
        self.report.fault_ends(first, run.count, answer);
        if let Some(tracer) = &mut self.tracer {
            tracer.answered(clock::monotonic_ns(), first, run.count, answer == Answer::Retry);
        }
    }

    fn address(&self, page: PageId) -> usize {
        address(self.mm.place(page).1)
    }

    fn addresses(&self, run: Run) -> AddressRange {
        let start = self.address(run.first);
        start..start + run.count as usize * PAGE_SIZE
    }
}

/// The content of a page, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Zero,
    /// What its slot holds.
    Same,
    Other,
}

fn is_zero(words: &[u64]) -> bool {
    words.chunks(32).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}

/// The pieces of one request, neighbours joined.
struct Pieces {
    pieces: [IoVec; PIECES],
    count: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces { pieces: [IoVec { base: 0, len: 0 }; PIECES], count: 0 }
    }
}

impl Pieces {
    fn push(&mut self, address: usize, pages: u32) {
        let len = pages as usize * PAGE_SIZE;
        if let Some(last) = self.count.checked_sub(1).map(|last| &mut self.pieces[last])
            && last.base + last.len == address
        {
            last.len += len;
            return;
        }
        self.pieces[self.count] = IoVec { base: address, len };
        self.count += 1;
    }

    fn as_slice(&self) -> &[IoVec] {
        &self.pieces[..self.count]
    }
}

fn vpn(address: usize) -> Vpn {
    Vpn((address / PAGE_SIZE) as u64)
}

fn address(vpn: Vpn) -> usize {
    vpn.0 as usize * PAGE_SIZE
}

/// The whole pages of a range.
fn vpns(range: &AddressRange) -> (Vpn, Vpn) {
    (vpn(range.start), vpn(range.end.next_multiple_of(PAGE_SIZE)))
}
