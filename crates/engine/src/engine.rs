//! The engine: turns messages of the kernel into events of `mm`, and the actions of `mm` into transfers.
//!
//! It has no loop and no thread of its own: whoever owns it calls [`Engine::crank`] and decides how to wait. Changes of
//! the address space always come before faults, and every action is carried out before the next event is fed: that is
//! the order that `mm` relies on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::readahead::policy::{Overrides, Policy, RegionState};
use overspill_mm::types::{Access, PageId, RegionKind, Vpn};
use overspill_mm::{
    Action, Actions, Config, Event, IoId, Mm, RegionStats, Run, State, Unmapped, WriteResult,
};
use overspill_sys::mem::IoVec;
use overspill_sys::uffd::{Message, Uffd};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock};

use crate::fingerprint::Fingerprints;
use crate::handoff::{Handoff, Held};
use crate::memory::{COPIED_MAX, Memory, REST_NS, bits};
use crate::report::{Answer, Report, Waiter};
use crate::shared_regions::{MapperId, SharedFault, SharedRegions};
use crate::staging::{BLOCK, Frame, Staging};
use crate::trace::{Ring, Tracer};
use crate::transfers::{Ended, PIECES, Transfers};
use crate::view::{PROGRAM, Place, SHARED, View, address, vpn, vpns};

/// Memory that is unshared by one call of the helper.
const UNSHARE_BYTES: usize = 1 << 20;
/// How often [`Engine::settle`] looks.
const SETTLE_TRIES: u32 = 200;

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
        place: Place,
        /// Its touch raises SIGBUS by itself.
        poisoned: bool,
    },
}

/// The live memory manager of one process.
pub struct Engine {
    mm: Mm<Policy>,
    view: View,
    staging: Staging,
    fingerprints: Fingerprints,
    transfers: Transfers,
    events: VecDeque<Event>,
    out: Actions,
    notices: VecDeque<Notice>,
    handoff: Handoff,
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
            view: View { program: memory, shared: SharedRegions::default() },
            staging: Staging::new(staging_blocks),
            fingerprints,
            transfers,
            events: VecDeque::new(),
            out: Actions::new(),
            notices: VecDeque::new(),
            handoff: Handoff::open(),
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
    pub fn descriptors(&self) -> [Option<&Fd>; 3] {
        let (program, device) = (self.view.program.descriptor(), self.transfers.io().descriptor());
        [Some(program), Some(device), self.view.shared.descriptor()]
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

    /// Was a thread woken on this very processor since the last call? Then it runs when the caller sleeps.
    pub fn take_handed_over(&mut self) -> bool {
        self.handoff.take_handed_over()
    }

    /// Handles everything there is to handle without waiting. True when there was anything.
    pub fn crank(&mut self) -> bool {
        let mut busy = self.view.program.read_messages() | self.view.shared.read_messages();
        while let Some(message) = self.view.program.next_message() {
            self.handle(message);
        }
        while let Some(fault) = self.view.shared.next_fault() {
            self.shared_fault(&fault);
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
        self.view.program.register(range)
    }

    /// Calls `visit` with every part of the range that is not managed, in order.
    pub fn unmanaged(&self, range: &AddressRange, mut visit: impl FnMut(AddressRange)) {
        let (start, end) = vpns(range);
        self.mm.unmanaged(PROGRAM, start, end, |start, end| visit(address(start)..address(end)));
    }

    /// The managed ranges of the program's own memory.
    pub fn regions(&self) -> impl Iterator<Item = AddressRange> + '_ {
        let own = self.mm.regions().filter(|&(space, ..)| space == PROGRAM);
        own.map(|(_, start, end)| address(start)..address(end))
    }

    /// The engine's own mappings, which must never be managed.
    #[must_use]
    pub fn own_ranges(&self) -> [AddressRange; 5] {
        let [staging, trash, zeroes, helper] = self.view.program.own_ranges();
        [staging, trash, zeroes, helper, self.transfers.io().range()]
    }

    /// Forgets a range whose content nobody wants any more.
    pub fn remove_region(&mut self, range: AddressRange) {
        let (start, end) = vpns(&range);
        self.feed(Event::RegionRemoved { space: PROGRAM, start, end });
        // Reports end with the mapping, which the caller unmaps next.
    }

    /// Manages a range that is registered already.
    pub fn add_region(&mut self, range: AddressRange, kind: RegionKind) {
        let (start, end) = vpns(&range);
        self.feed(Event::RegionAdded { space: PROGRAM, start, end, kind });
    }

    /// These pages of a region are present although nobody told.
    pub fn add_resident(&mut self, range: AddressRange) {
        let (start, end) = vpns(&range);
        self.feed(Event::Resident { space: PROGRAM, start, end });
    }

    /// Handles the changes of the address space that the kernel has reported.
    pub fn handle_changes(&mut self) {
        self.handle_changes_telling(&mut |_| {});
    }

    /// Handles changes until none is under way whose event is still to be read, and tells the ranges where mappings ended,
    /// moved away or arrived. False when such a moment does not come soon: threads may change the address space all the
    /// time, and a change counts until the thread that made it runs again.
    pub fn settle(&mut self, mut replaced: impl FnMut(AddressRange)) -> bool {
        for _ in 0..SETTLE_TRIES {
            self.handle_changes_telling(&mut replaced);
            if self.view.program.is_quiet() && !self.view.program.is_changed() {
                return true;
            }
            clock::sleep_ns(REST_NS);
        }
        false
    }

    fn handle_changes_telling(&mut self, replaced: &mut impl FnMut(AddressRange)) {
        self.view.program.read_messages();
        while let Some(message) = self.view.program.next_change() {
            match message {
                Message::Unmap { start, end } => replaced(start..end),
                Message::Remap { from, to, len } => {
                    replaced(from..from + len);
                    replaced(to..to + len);
                }
                _ => {}
            }
            self.handle(message);
        }
    }

    /// Page addresses in this range are doorbells: a touch is a [`Notice::Doorbell`].
    pub fn set_doorbells(&mut self, range: AddressRange) -> Result<(), Errno> {
        self.view.program.register_doorbell(range.clone())?;
        self.doorbells = range;
        Ok(())
    }

    /// Lets the threads at a doorbell go on, and silences it until [`Engine::resume_after_fork`].
    pub fn answer_doorbell(&mut self, address: usize) {
        self.view.program.fill_fresh(address, 1);
    }

    /// Brings everything in and stops reclaiming until [`Engine::resume_after_fork`]; [`Notice::Populated`] follows.
    pub fn pause(&mut self) {
        self.feed(Event::Pause);
    }

    /// After a fork, still paused: the kernel refuses to move pages that a child shares, or shared until it ended. Notes
    /// what is present, to be made the program's own by [`Engine::unshare_some`].
    pub fn start_unsharing(&mut self) {
        self.shared.clear();
        // The helper may be started next, and would be bound to one processor for ever.
        self.handoff.let_go();
        let mut parts = core::mem::take(&mut self.shared);
        for region in self.regions() {
            self.view.program.present_runs(region, |run| {
                let mut start = run.start;
                while start < run.end {
                    let end = run.end.min(start + UNSHARE_BYTES);
                    parts.push(start..end);
                    start = end;
                }
            });
        }
        self.shared = parts;
    }

    /// Has the helper thread unshare the next part. True when all is done.
    pub fn unshare_some(&mut self) -> bool {
        if let Some(range) = self.shared.last().cloned()
            && self.view.program.unshare(range)
        {
            self.shared.pop();
        }
        self.shared.is_empty() && self.view.program.helper_is_idle()
    }

    /// Goes on after [`Engine::pause`], with the doorbell armed again.
    pub fn resume_after_fork(&mut self, doorbell: usize) {
        self.view.program.rearm(doorbell);
        self.feed(Event::Resume);
    }

    /// To be called when the calling thread is about to compete for processors in another way: it may run on all of them again.
    pub fn let_go(&mut self) {
        self.handoff.let_go();
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

    /// `pages` pages from `first` on will be needed soon.
    pub fn will_need(&mut self, first: Place, pages: u64) {
        let (space, start) = first;
        self.feed(Event::WillNeed { space, start, end: Vpn(start.0 + pages) });
    }

    // Regions, by any of their pages.

    /// The page of the program's own memory at an address.
    #[must_use]
    pub fn place(address: usize) -> Place {
        (PROGRAM, vpn(address))
    }

    /// What is counted for a region, and what its read-ahead policy keeps.
    pub fn region(&mut self, (space, vpn): Place) -> Option<(&RegionStats, &mut RegionState)> {
        self.mm.region(space, vpn)
    }

    /// Knobs that hold for a region in place of those of all.
    pub fn set_overrides(&mut self, place: Place, overrides: Overrides) {
        if let Some((_, state)) = self.region(place) {
            state.overrides = overrides;
        }
    }

    // Shared regions, by their first page.

    /// Makes a shared region of the `pages` pages of `file`, a memory file that is one hole. It is already mapped as
    /// [`Engine::join`] has it. Returns its first page.
    pub fn share(
        &mut self,
        file: Fd,
        pages: u64,
        uffd: Uffd,
        address: usize,
    ) -> Result<(Place, MapperId), Errno> {
        let start = self.view.shared.add(file, pages)?;
        let joined = self.view.shared.join(start, uffd, address);
        let mapper = joined.inspect_err(|_| self.view.shared.remove(start))?;
        let end = Vpn(start.0 + pages);
        self.feed(Event::RegionAdded { space: SHARED, start, end, kind: RegionKind::Shared });
        Ok(((SHARED, start), mapper))
    }

    /// Some process has mapped the file of a shared region, wholly, at `address` there, and registered that on `uffd` for
    /// missing pages and write protection. EINVAL: it has not.
    pub fn join(&mut self, (_, region): Place, uffd: Uffd, address: usize) -> Result<MapperId, Errno> {
        self.view.shared.join(region, uffd, address)
    }

    /// That process maps it no more, or is gone. With the last one the region is forgotten.
    pub fn leave(&mut self, (_, start): Place, mapper: MapperId) {
        if self.view.shared.leave(start, mapper) == 0 {
            let end = Vpn(start.0 + self.view.shared.pages(start));
            self.feed(Event::RegionRemoved { space: SHARED, start, end });
            self.view.shared.remove(start);
        }
    }

    /// The content of `pages` pages of a shared region is to be forgotten: they show zeroes when they are touched next.
    pub fn discard_shared(&mut self, (space, start): Place, pages: u64) -> Result<(), Errno> {
        self.view.shared.punch(start, pages)?;
        self.feed(Event::Discarded { space, start, end: Vpn(start.0 + pages) });
        Ok(())
    }

    /// Are there any?
    #[must_use]
    pub fn is_sharing(&self) -> bool {
        self.view.shared.starts().next().is_some()
    }

    /// After [`Engine::pause`] and [`Notice::Populated`]: lets go of all shared regions, which are ordinary shared memory from
    /// now on. What could not be read back raises SIGBUS.
    pub fn release_shared(&mut self) {
        let starts: Vec<Vpn> = self.view.shared.starts().collect();
        for start in starts {
            for page in (0..self.view.shared.pages(start)).map(|n| start.offset(n as i64)) {
                if self.mm.lookup(SHARED, page).is_some_and(|id| self.mm.state(id) == State::Swapped) {
                    self.view.poison((SHARED, page));
                }
            }
            self.view.shared.release(start);
        }
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
            Message::Fault { address, write, wp, thread_id, .. } => {
                self.fault(address & !(PAGE_SIZE - 1), write, wp, thread_id);
            }
            Message::Remove { start, end } => {
                let (start, end) = vpns(&(start..end));
                self.feed(Event::Discarded { space: PROGRAM, start, end });
            }
            Message::Unmap { start, end } => {
                let (start, end) = vpns(&(start..end));
                self.feed(Event::RegionRemoved { space: PROGRAM, start, end });
            }
            Message::Remap { from, to, len } => {
                if from != to {
                    // What is on its way belongs to pages by their old places, where nothing may be put any more: with
                    // MREMAP_DONTUNMAP the kernel would not refuse it, and the content would be lost.
                    self.view.program.handle(from..from + len, to..to + len);
                    self.finish_transfers();
                    let pages = (len / PAGE_SIZE) as u64;
                    let (from, to) = (vpn(from), vpn(to));
                    self.feed(Event::Moved { space: PROGRAM, from, to, pages });
                    self.view.program.handled();
                }
            }
            // The child's pages were all brought in before the fork: nothing of it is ours. Closing lets it go.
            Message::Fork { .. } | Message::Other(_) => {}
        }
    }

    fn fault(&mut self, address: usize, write: bool, wp: bool, thread: u32) {
        if self.doorbells.contains(&address) {
            self.notices.push_back(Notice::Doorbell(address));
            return;
        }
        let vpn = vpn(address);
        if !self.mm.manages(PROGRAM, vpn, vpn.offset(1)) {
            self.notices.push_back(Notice::Unknown(address));
            return;
        }
        if wp {
            // Only copying a page out protects it, for an instant. It is gone by now, or it was refused and stays.
            self.view.program.unprotect(address..address + PAGE_SIZE);
            return;
        }
        self.missing((PROGRAM, vpn), write, thread);
    }

    fn shared_fault(&mut self, fault: &SharedFault) {
        let vpn = fault.vpn;
        if fault.wp {
            self.view.shared.unprotect(fault);
        } else if self.mm.manages(SHARED, vpn, vpn.offset(1)) {
            self.missing((SHARED, vpn), fault.write, 0);
        }
    }

    /// A thread (0: one of another process) waits for a page of a region.
    fn missing(&mut self, place: Place, write: bool, thread: u32) {
        let now = clock::monotonic_ns();
        let access = if write { Access::Write } else { Access::Read };
        let (space, vpn) = place;
        let before = self.mm.lookup(space, vpn).map(|id| self.mm.state(id));
        let major = before == Some(State::Swapped);
        if before == Some(State::Mapped) && self.view.is_missing(place) {
            // The page went without a word (the kernel reclaims what MADV_FREE released): it is untouched again.
            self.feed(Event::Discarded { space, start: vpn, end: vpn.offset(1) });
        }
        self.report.fault_begins(vpn, Waiter { thread, major }, now);
        if let Some(tracer) = &mut self.tracer {
            tracer.fault(now, vpn, self.mm.lookup(space, vpn), before);
        }
        self.feed(Event::Fault { space, vpn, access });
    }

    /// Lets a thread go on that waited at an unknown address, whatever that is now. Where it is in no region still, and cannot
    /// be (memory that grew by mremap and was made read-only at once), the page was never touched and shows zeroes.
    pub fn answer_unknown(&mut self, address: usize) {
        let page = address / PAGE_SIZE * PAGE_SIZE;
        let vpn = vpn(page);
        if !self.mm.manages(PROGRAM, vpn, vpn.offset(1)) {
            self.view.program.fill_fresh(page, 1);
        }
        self.view.program.wake(page..page + PAGE_SIZE);
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
                self.retry(run);
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
            pieces.push(self.view.program.frame_address(first), count);
            done += count;
        }
        self.transfers.read(io, slot, pieces.as_slice());
    }

    fn write(&mut self, io: IoId, run: Run, slot: u32) {
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < run.count {
            let segment = self.staging.segment(PageId(run.first.0 + done), run.count - done);
            pieces.push(self.view.program.frame_address(segment.first_frame), segment.count);
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
            let place = self.mm.place(segment.first_page);
            let held = self.hold_waiter(place, segment.count);
            let put = self.view.put_in(place, segment.first_frame, segment.count);
            self.handoff.release(held);
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

    /// Before pages are put into view: sees to it that the only thread that waits wakes up on this processor, if it is about to
    /// be free. Where pages come by windows it is not: there is work beside the thread's.
    fn hold_waiter(&mut self, (space, _): Place, count: u32) -> Option<Held> {
        let is_last = space == PROGRAM && count <= COPIED_MAX && self.transfers.reads_in_flight() == 0;
        let waiter = self.report.only_waiter().filter(|_| is_last)?;
        self.handoff.hold(waiter)
    }

    /// Pages could not be put where their range is changing: whoever waits there touches again, after the change.
    fn retry(&mut self, run: Run) {
        self.view.wake(self.mm.place(run.first), run.count);
        self.answered(run, Answer::Retry);
    }

    fn zero_fill(&mut self, run: Run) {
        let (space, first) = self.mm.place(run.first);
        let moves = self.view.moves((space, first));
        let mut done = 0;
        while done < run.count {
            let at = (space, first.offset(i64::from(done)));
            let count = run.count - done;
            let spare = if moves && count > COPIED_MAX { self.staging.take_spare() } else { None };
            let held = self.hold_waiter(at, count);
            let (filled, wanted) = match spare {
                Some((first, populated)) => self.fill_from_spare(at, count, first, populated),
                None => (self.view.fill_fresh(at, count), count),
            };
            self.handoff.release(held);
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
    fn fill_from_spare(&mut self, place: Place, count: u32, first: Frame, populated: u64) -> (u32, u32) {
        let start = populated.trailing_zeros();
        let wanted = (populated >> start).trailing_ones().min(count);
        let frame = Frame(first.0 + start);
        self.view.program.clear_frames(frame, wanted);
        let put = self.view.put_in(place, frame, wanted);
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
            let place = self.mm.place(first_page);
            let frames = if self.view.moves(place) {
                self.staging.take_holes(count)
            } else {
                // Copied, pages go into frames that are there already, if there are any.
                self.staging.take_for_read(count)
            };
            let Some(first) = frames else { break };
            let taken = self.view.take_out(place, first, count);
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
        let words = self.view.program.frame_words(frame);
        if is_zero(words) {
            return Content::Zero;
        }
        let slot = self.mm.slot(page).map(|slot| slot.0);
        if self.fingerprints.taken(page, frame, slot, words) { Content::Same } else { Content::Other }
    }

    fn fail(&mut self, page: PageId) {
        let place = self.mm.place(page);
        let poisoned = self.view.poison(place);
        self.notices.push_back(Notice::PageLost { place, poisoned });
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
            let (populated, left) = if let Some((first, populated)) = self.staging.take_spare() {
                let left = self.drop_frames(first, populated);
                self.staging.give_back(first, left);
                (populated, left)
            } else if let Some((first, idle)) = self.staging.take_idle() {
                let left = self.drop_frames(first, idle);
                self.staging.return_idle(first, left);
                (idle, left)
            } else {
                return;
            };
            if left == populated {
                return;
            }
        }
    }

    /// Gives frames of a block back to the kernel, and says which are there still.
    fn drop_frames(&mut self, first: Frame, populated: u64) -> u64 {
        let mut left = populated;
        let mut frame = 0;
        while frame < BLOCK {
            let count = (populated >> frame).trailing_ones();
            if count > 0 {
                let dropped = self.view.program.drop_frames(Frame(first.0 + frame), count);
                left &= !bits(frame, dropped);
            }
            frame += count + 1;
        }
        left
    }

    fn answered(&mut self, run: Run, answer: Answer) {
        let (_, first) = self.mm.place(run.first);
        self.report.fault_ends(first, run.count, answer);
        if let Some(tracer) = &mut self.tracer {
            tracer.answered(clock::monotonic_ns(), first, run.count, answer == Answer::Retry);
        }
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
