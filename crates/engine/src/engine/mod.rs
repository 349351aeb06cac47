//! The engine: turns messages of the kernel into events of `mm`, and the actions of `mm` into transfers.
//!
//! It has no loop and no thread of its own: whoever owns it calls [`Engine::crank`] and decides how
//! to wait. Changes of the address space always come before faults, and every action is carried out
//! before the next event is fed: that is the order that `mm` relies on.
//!
//! Here are its parts, the crank and the feeding of events. What becomes an event is in `messages`,
//! how an action is carried out in `actions` and `mapping`, by way of a compressed pool in
//! `compress`, what owners ask for in `regions`, `sharing` (of memory between processes), `fork`
//! and `budget`.

mod actions;
mod budget;
mod children;
mod compress;
mod files;
mod fork;
mod handing_back;
mod mapping;
mod messages;
mod regions;
mod sharing;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::readahead::policy::Policy;
use overspill_mm::types::{PageId, Slot};
use overspill_mm::{Actions, AreaConfig, AreaId, Config, Event, Mm, WriteResult};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock};

use compress::Compressed;

use crate::child::Child;
use crate::file_table::FileTable;
use crate::fingerprint::Fingerprints;
use crate::lending::Lending;
use crate::memory::Memory;
use crate::report::Report;
use crate::reservations::Reservations;
use crate::robust::Robust;
use crate::shared_regions::SharedRegions;
use crate::staging::Staging;
use crate::sums::Sums;
use crate::swapfile::SwapFile;
use crate::trace::{Ring, Tracer};
use crate::transfers::{Ended, Transfers};
use crate::view::{Place, View};
use crate::vigil::Vigil;

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
    sums: Sums,
    areas: u8,
    compressed: Compressed,
    /// Frames that pages and the pool may have, now and at the start.
    allowed: u32,
    allowed_at_first: u32,
    events: VecDeque<Event>,
    out: Actions,
    notices: VecDeque<Notice>,
    vigil: Vigil,
    doorbells: AddressRange,
    reservations: Reservations,
    report: Report,
    lending: Lending,
    /// What stays in RAM for the ends of threads; None where nobody asked for it.
    robust: Option<Robust>,
    /// Children that nobody announced, while they get what they lack.
    children: Vec<Child>,
    /// Tells what happens, if somebody wants to know.
    tracer: Option<Tracer>,
    /// Reads from files that are under way.
    file_reads: Vec<files::FileRead>,
    /// Where the program's threads find its files.
    file_table: Option<&'static FileTable>,
    /// Everything is in, or comes in, for a fork that was announced.
    is_paused: bool,
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
        let allowed = config.budget;
        Engine {
            mm: Mm::new(config, policy),
            view: View { program: memory, shared: SharedRegions::default() },
            staging: Staging::new(staging_blocks),
            fingerprints,
            transfers,
            sums: Sums::new(true),
            areas: 0,
            compressed: Compressed::new(0, false),
            allowed,
            allowed_at_first: allowed,
            events: VecDeque::new(),
            out: Actions::new(),
            notices: VecDeque::new(),
            vigil: Vigil::new(false),
            doorbells: 0..0,
            reservations: Reservations::default(),
            report,
            lending: Lending::default(),
            robust: None,
            children: Vec::new(),
            tracer: None,
            file_reads: Vec::new(),
            file_table: None,
            is_paused: false,
        }
    }

    /// Pages may take so many frames compressed.
    pub(crate) fn with_pool(self, frames: u32, is_fixed: bool) -> Self {
        Engine { compressed: Compressed::new(frames, is_fixed), ..self }
    }

    /// Idle processors are kept awake while it matters.
    pub(crate) fn with_vigil(self, vigil: Vigil) -> Self {
        Engine { vigil, ..self }
    }

    /// What comes back is believed.
    pub(crate) fn without_checksums(self) -> Self {
        Engine { sums: Sums::new(false), ..self }
    }

    /// One more swap area, as large as there are slot numbers left.
    pub(crate) fn add_area(&mut self, swap: SwapFile) {
        let slots = u32::try_from(swap.bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX);
        let area = AreaConfig { slots, priority: swap.priority, discards: swap.is_sparse };
        self.feed(Event::AreaAdded(area));
        let id = AreaId(self.areas);
        self.areas += 1;
        swap.bad_pages.iter().for_each(|&page| self.mm.exclude(id, page));
        self.transfers.add_area(swap.file, self.mm.area_place(id).0.0);
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

    /// Descriptors that become readable when there is something to do.
    pub fn descriptors(&self) -> [Option<&Fd>; 3] {
        let (program, device) = (self.view.program.descriptor(), self.transfers.io().descriptor());
        [Some(program), Some(device), self.view.shared.descriptor()]
    }

    /// Handles everything there is to handle without waiting. True when there was anything.
    pub fn crank(&mut self) -> bool {
        let busy = self.view.program.read_messages() | self.view.shared.read_messages();
        while let Some(message) = self.view.program.next_message() {
            self.handle(message);
        }
        while let Some(fault) = self.view.shared.next_fault() {
            self.shared_fault(&fault);
        }
        self.crank_device() | busy || self.make_room_ahead()
    }

    /// There is nothing else to do while the device is at work: room is made that will be needed,
    /// see [`Event::Idle`].
    fn make_room_ahead(&mut self) -> bool {
        let may = self.transfers.in_flight() > 0 && self.mm.has_idle_work();
        if may {
            self.feed(Event::Idle);
        }
        may
    }

    /// As [`Engine::crank`], but leaves whoever waits for a page waiting: for owners that have too
    /// much and make room first.
    pub fn crank_without_faults(&mut self) {
        self.handle_changes();
        while self.crank_device() {}
    }

    /// One end of a transfer at a time: those who were woken meanwhile wait for their next read to
    /// be ordered, and the device with them. With eight threads at random, making room ahead, two
    /// at a time come to 0.95 as many touches.
    fn crank_device(&mut self) -> bool {
        let ended = self.transfers.next_ended();
        let busy = ended.is_some();
        if let Some(ended) = ended {
            self.ended(ended);
        }
        self.keep_pool();
        self.transfers.submit();
        self.trim();
        busy
    }

    /// The oldest unjudged notice.
    pub fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Time passed.
    pub fn tick(&mut self) {
        self.vigil.tick(clock::monotonic_ns());
        self.feed(Event::Tick);
        self.look_at_files();
        self.size_pool();
        let packed = self.compressed.stats();
        self.report.publish(self.mm.stats(), &packed, self.mm.slots_used());
    }

    /// Has any page come back?
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.mm.stats().pswpin > 0
    }

    /// Waits until no request is under way, handling what ends.
    pub fn finish_transfers(&mut self) {
        while self.transfers.in_flight() > 0 {
            // What the device did not take yet is under way, too.
            self.transfers.submit();
            self.transfers.wait(10_000_000);
            while let Some(ended) = self.transfers.next_ended() {
                self.ended(ended);
            }
        }
    }

    fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Read(io, outcome) => {
                let (program, staging, prints) = (&self.view.program, &self.staging, &self.fingerprints);
                let outcome = self.sums.read_ends(io, outcome, |run, n| {
                    let frame = staging.frame(PageId(run.first.0 + n)).expect("what was read has a frame");
                    prints.hash(program.frame_words(frame))
                });
                if let Err(errno) = outcome {
                    self.report.note_error(errno);
                }
                // What a failed read left in its frames is not what their slots hold.
                self.file_was_read(io, outcome.is_ok());
                self.compressed.keeps = outcome.is_ok();
                self.feed(Event::ReadDone { io, ok: outcome.is_ok() });
                self.compressed.keeps = true;
            }
            Ended::Write(io, outcome) => {
                let result = outcome.map_or_else(Self::write_result, |()| WriteResult::Done);
                if let (WriteResult::Failed, Err(errno)) = (result, outcome) {
                    self.report.note_error(errno);
                }
                self.feed(Event::WriteDone { io, result });
            }
            Ended::Discard(slot) => self.feed(Event::DiscardDone { slot: Slot(slot) }),
            Ended::WriteBack { at, pages, outcome } => self.written_back(at, pages, outcome),
        }
    }

    /// What a write's error means: no room, or a device that fails.
    fn write_result(errno: Errno) -> WriteResult {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => WriteResult::NoSpace,
            _ => WriteResult::Failed,
        }
    }

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
}
