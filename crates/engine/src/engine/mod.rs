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
mod areas;
mod budget;
mod children;
mod claiming;
mod compress;
mod ends;
mod files;
mod foreseeing;
mod fork;
mod guarding;
mod handing_back;
pub mod heirs;
mod keeping;
mod mapping;
mod marking;
mod messages;
mod regions;
mod sealing;
mod sharing;
mod spilling;
mod syncing;
mod whole;
mod wiping;
mod zeroes;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overspill_mm::readahead::policy::Policy;
use overspill_mm::types::{Nanos, Slot};
use overspill_mm::{Action, Actions, Config, Event, Mm, Run, WriteResult};
use overspill_sys::maps::Maps;
use overspill_sys::pagemap::Pagemap;
use overspill_sys::uffd::Message;
use overspill_sys::{AddressRange, Errno, Fd, clock};

use compress::Compressed;
use sealing::Sealing;

use crate::child::Child;
use crate::claims::Claims;
use crate::copies::Copies;
use crate::discards::Discards;
use crate::file_table::FileTable;
use crate::fingerprint::Fingerprints;
use crate::lending::Lending;
use crate::memory::Memory;
use crate::patience::Patience;
use crate::report::Report;
use crate::reservations::Reservations;
use crate::robust::Robust;
use crate::shared_regions::SharedRegions;
use crate::spill::Teller;
use crate::staging::Staging;
use crate::sums::{Reading, Sums};
use crate::trace::{Ring, Tracer};
use crate::transfers::{Ended, Transfers};
use crate::turnstile::Turnstile;
use crate::view::{Place, View};
use crate::vigil::Vigil;

/// What a crank met that its owner has to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A thread waits at an address that is registered but of no known region.
    Unknown {
        /// Which page.
        address: usize,
        /// It wants to store there.
        write: bool,
        /// The thread, by its own number.
        thread: u32,
    },
    /// A thread waits at an address of a region, and the kernel has refused for long to put anything
    /// anywhere, for a change that is not told. It may be the thread that has to tell it.
    Stuck {
        /// Which page.
        address: usize,
        /// It wants to store there.
        write: bool,
        /// The thread, by its own number.
        thread: u32,
    },
    /// A thread rings at this doorbell; it waits until [`Engine::answer_doorbell`].
    Doorbell(usize),
    /// Everything is in, after [`Engine::pause`].
    Populated,
    /// No slot is left and a page needed one.
    SwapFull,
    /// A write failed.
    AreaRetired,
    /// An area was to go, and so many pages of it cannot be read.
    AreaNotEmptied {
        /// How many.
        pages: u32,
    },
    /// A page could not be read back.
    PageLost {
        /// Where it was.
        place: Place,
        /// Its touch raises SIGBUS by itself.
        poisoned: bool,
        /// It is the page of a file as it lies on the disk.
        of_file: bool,
        /// None was lost in that way before.
        is_first: bool,
    },
}

/// The live memory manager of one process.
pub struct Engine {
    mm: Mm<Policy>,
    /// Dropped before the memory that its requests read and fill.
    transfers: Transfers,
    view: View,
    staging: Staging,
    fingerprints: Fingerprints,
    copies: Copies,
    sums: Sums,
    /// Pages are encrypted.
    sealing: Option<Sealing>,
    areas: Vec<areas::KnownArea>,
    /// When it is looked next whether one that had no room has it.
    reopens_next: Nanos,
    /// What areas may use is bounded for all processes of a run together.
    claims: Option<Claims>,
    /// What went where is told.
    spill: Option<Teller>,
    compressed: Compressed,
    /// Frames that pages and the pool may have, now and at the start.
    allowed: u32,
    allowed_at_first: u32,
    events: VecDeque<Event>,
    out: Actions,
    notices: VecDeque<Notice>,
    vigil: Vigil,
    turnstile: Turnstile,
    /// Who needs a page waits until then.
    faults_held: Nanos,
    /// Pages whose first store waits, while copies are guarded.
    stores_held: Option<Vec<usize>>,
    doorbells: AddressRange,
    reservations: Reservations,
    discards: Discards,
    report: Report,
    lending: Lending,
    /// When guards are looked for that nobody told of.
    guards_next: u64,
    /// What stays in RAM for the ends of threads; None where nobody asked for it.
    robust: Option<Robust>,
    /// Runs that were taken out since the lists of locks were read.
    suspects: Vec<Run>,
    /// Pages that have to be in view and could not be put back yet.
    owed: Vec<Place>,
    /// Children that nobody announced, while they get what they lack.
    children: Vec<Child>,
    /// Tells what happens, if somebody wants to know.
    tracer: Option<Tracer>,
    /// Reads from files that are under way.
    file_reads: Vec<files::FileRead>,
    /// Parts of files that the program has asked for.
    foreseen: VecDeque<foreseeing::Foreseen>,
    /// Where the program's threads find its files.
    file_table: Option<&'static FileTable>,
    /// How what it has marked stays so.
    keep_marks: Option<files::KeepMarks>,
    /// ... and that is up to date.
    are_files_told: bool,
    /// A fork waits for that since.
    untold: Patience,
    /// A page was lost.
    has_lost: bool,
    /// The process's mappings, once a file of the program's is managed.
    maps: Option<Arc<Maps>>,
    /// Everything is in, or comes in, for a fork that was announced.
    is_paused: bool,
    whole: whole::Whole,
    heirs: heirs::Heirs,
    wiping: wiping::Wiping,
    /// Who touches what lies behind the end of a file.
    behind: Vec<ends::Behind>,
    /// ... and whose file changed hands, or was about to.
    unsettled: Vec<ends::Behind>,
}

impl Engine {
    pub(crate) fn new(
        config: Config,
        policy: Policy,
        memory: Memory,
        staging: Staging,
        fingerprints: Fingerprints,
        transfers: Transfers,
        report: Report,
    ) -> Self {
        let allowed = config.budget;
        Engine {
            mm: Mm::new(config, policy),
            transfers,
            view: View { program: memory, shared: SharedRegions::default() },
            staging,
            fingerprints,
            copies: Copies::default(),
            sums: Sums::new(),
            sealing: None,
            areas: Vec::new(),
            reopens_next: 0,
            claims: None,
            spill: None,
            compressed: Compressed::new(0, false),
            allowed,
            allowed_at_first: allowed,
            events: VecDeque::new(),
            out: Actions::new(),
            notices: VecDeque::new(),
            vigil: Vigil::new(false),
            turnstile: Turnstile::default(),
            faults_held: 0,
            stores_held: None,
            doorbells: 0..0,
            reservations: Reservations::default(),
            discards: Discards::default(),
            report,
            lending: Lending::default(),
            guards_next: 0,
            robust: None,
            suspects: Vec::new(),
            owed: Vec::new(),
            children: Vec::new(),
            tracer: None,
            file_reads: Vec::new(),
            foreseen: VecDeque::new(),
            file_table: None,
            keep_marks: None,
            are_files_told: true,
            has_lost: false,
            untold: Patience::default(),
            maps: None,
            is_paused: false,
            whole: whole::Whole::default(),
            heirs: heirs::Heirs::default(),
            wiping: wiping::Wiping::default(),
            behind: Vec::new(),
            unsettled: Vec::new(),
        }
    }

    /// Pages may take so many frames compressed.
    pub(crate) fn with_pool(self, frames: u32, is_fixed: bool) -> Self {
        Engine { compressed: Compressed::new(frames, is_fixed), ..self }
    }

    /// Bounds on swap are those of all processes of a run together, and what went where is told to it.
    pub(crate) fn with_claims(self, claims: Option<Claims>, spill: Option<Teller>) -> Self {
        Engine { claims, spill, ..self }
    }

    /// Idle processors are kept awake while it matters.
    pub(crate) fn with_vigil(self, vigil: Vigil) -> Self {
        Engine { vigil, ..self }
    }

    /// What comes back is believed.
    pub(crate) fn without_checksums(self) -> Self {
        Engine { sums: Sums::nothing(), ..self }
    }

    /// From now on what happens is told to `ring`. `is_heir`: a fork made the process.
    pub fn trace_to(&mut self, ring: &'static Ring, is_heir: bool) {
        self.tracer = Some(Tracer::new(ring, is_heir));
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

    /// The program goes on above its budget: some frames may float there.
    pub fn allow_float(&mut self) {
        self.mm.allow_float();
    }

    /// The statistics that others see.
    pub fn report(&mut self) -> &mut Report {
        &mut self.report
    }

    /// What shows where the program's pages are.
    #[must_use]
    pub fn pagemap(&self) -> Arc<Pagemap> {
        self.view.program.pagemap.clone()
    }

    /// Descriptors that become readable when there is something to do.
    pub fn descriptors(&self) -> [Option<&Fd>; 3] {
        let (program, device) = (self.view.program.descriptor(), self.transfers.io().descriptor());
        [Some(program), Some(device), self.view.shared.descriptor()]
    }

    /// Handles everything there is to handle without waiting. True when there was anything.
    pub fn crank(&mut self) -> bool {
        let busy = self.view.program.read_messages() | self.view.shared.read_messages();
        while let Some(message) = self.next_message() {
            self.handle(message);
        }
        while let Some(fault) = self.view.shared.next_fault() {
            self.shared_fault(&fault);
        }
        self.bring_back_owed();
        self.hand_back_rest();
        self.crank_device() | self.read_foreseen() | busy || self.make_room_ahead()
    }

    /// The oldest change; where there is none the oldest fault, if it may pass.
    fn next_message(&mut self) -> Option<Message> {
        if let Some(change) = self.next_change() {
            return Some(change);
        }
        self.tell_file_ranges();
        let program = &mut self.view.program;
        if self.faults_held > 0 && program.is_helper_idle() && clock::monotonic_ns() < self.faults_held {
            let is_ring = |address: usize| self.doorbells.contains(&address);
            let rings =
                |fault: &Message| matches!(*fault, Message::Fault { address, .. } if is_ring(address));
            let ring = program.faults().iter().position(rings)?;
            return program.faults().remove(ring);
        }
        let passes = !program.faults().is_empty() && self.turnstile.passes(clock::monotonic_ns);
        if passes { program.faults().pop_front() } else { None }
    }

    /// Who needs a page waits until then, while room is made; 0: nobody does. But forks go on, and so does
    /// the helper, as what leaves may wait for it.
    ///
    /// *The story:* parent and child of a fork took out what they had together, each for itself, and brought
    /// in as much, 40 MiB above 64: what leaves one of them has left nobody as yet.
    pub fn hold_faults(&mut self, until: Nanos) {
        self.faults_held = until;
    }

    /// The process has no turn until then, by the launcher's word: its threads wait where they need
    /// a page, but for one now and then.
    pub fn hold(&mut self, until: Nanos) {
        self.turnstile.shut(until, clock::monotonic_ns());
    }

    /// Does a thread wait for the process's turn?
    #[must_use]
    pub fn is_held(&mut self) -> bool {
        !self.view.program.faults().is_empty() && self.turnstile.is_shut(clock::monotonic_ns)
    }

    /// There is nothing else to do while the device is at work: room is made that will be needed,
    /// see [`Event::Idle`].
    fn make_room_ahead(&mut self) -> bool {
        let may = self.transfers.in_flight() > 0 && self.mm.has_idle_work();
        if may {
            self.feed(Event::Idle);
            // What left may have made the pool larger: the budget holds at the end of a turn.
            self.share_budget();
            self.trim();
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
        self.report.sample_unseen(self.unseen_bytes());
        busy
    }

    /// The oldest unjudged notice.
    pub fn notice(&mut self) -> Option<Notice> {
        let lets_fork = self.notices.front() == Some(&Notice::Populated);
        if lets_fork && (self.must_tell_files() || !self.poison_lost()) {
            return None;
        }
        if lets_fork && self.is_handing_over() {
            self.finish_transfers();
            self.empty_pool_to_areas();
        }
        self.notices.pop_front()
    }

    /// Bytes of mappings that are sealed, as far as they were to leave: they stay.
    #[must_use]
    pub fn sealed_bytes(&self) -> u64 {
        self.view.program.sealed_bytes()
    }

    /// Time passed.
    pub fn tick(&mut self) {
        let now = clock::monotonic_ns();
        self.vigil.tick(now);
        self.look_at_claims();
        self.close_emptied(now);
        self.reopen_areas(now);
        self.look_for_guards(now);
        self.wiping.may_be();
        self.feed(Event::Tick);
        self.look_at_files();
        self.answer_unsettled();
        self.read_foreseen();
        self.size_pool();
        let packed = self.compressed.stats();
        self.tell_spilled();
        self.report.publish(self.mm.stats(), &packed, self.mm.slots_used());
    }

    /// Has any page come back?
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.mm.stats().pswpin + self.mm.stats().file_in > 0
    }

    /// Is nothing under way, and does nobody wait?
    #[must_use]
    pub fn is_at_rest(&mut self) -> bool {
        self.transfers.in_flight() == 0 && !self.mm.is_stalled() && self.view.program.faults().is_empty()
    }

    /// Waits until no request is under way, handling what ends.
    pub fn finish_transfers(&mut self) {
        self.mm.settle_transfers(true);
        while self.transfers.in_flight() > 0 {
            // What the device did not take yet is under way, too.
            self.transfers.submit();
            self.transfers.wait(10_000_000);
            while let Some(ended) = self.transfers.next_ended() {
                self.ended(ended);
            }
        }
        self.mm.settle_transfers(false);
    }

    fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Read(io, outcome) => {
                let reading = self.sums.read_ends(io);
                let outcome = outcome.and_then(|()| reading.map_or(Ok(()), |reading| self.judge(reading)));
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
                self.sealed_write_ends(io);
                let result = outcome.map_or_else(Self::write_result, |()| WriteResult::Done);
                if let (WriteResult::Failed, Err(errno)) = (result, outcome) {
                    self.report.note_error(errno);
                }
                self.feed(Event::WriteDone { io, result });
                if result == WriteResult::NoSpace {
                    self.look_at_closed();
                }
            }
            Ended::Discard { slot, kept } => self.feed(Event::DiscardDone { slot: Slot(slot), kept }),
            Ended::WriteBack { at, pages, outcome } => self.written_back(at, pages, outcome),
        }
    }

    /// Is what was read what was written there? From here on its frames hold what the program had.
    fn judge(&mut self, reading: Reading) -> Result<(), Errno> {
        let (program, sums, prints) = (&mut self.view.program, &self.sums, &self.fingerprints);
        let is_right = |(page, slot)| {
            let frame = self.staging.frame(page).expect("what was read has a frame");
            program.fill_frame(frame, |bytes| sums.is_as_written(slot, bytes, prints))
        };
        if reading.pages().all(is_right) { Ok(()) } else { Err(Errno::BADMSG) }
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
            self.tell_event(now, &event);
            self.copies.see(&event);
            self.mm.step(now, event, &mut out);
            let mut actions = out.drain();
            while let Some(&action) = actions.as_slice().first() {
                if !matches!(action, Action::Unmap { .. }) {
                    self.put_back_kept(); // before what takes long
                }
                let done = self.unmap_whole(actions.as_slice());
                if done == 0 {
                    self.carry_out(action);
                }
                actions.nth(done.saturating_sub(1));
            }
            drop(actions);
            self.put_back_kept();
            self.out = out;
        }
    }
}
