//! Finding the program's memory: which of its mappings are managed, and what is resident in them.
//!
//! Managed is private, anonymous, writable memory of some size, with the reservation into which it
//! grows: memory without any permission directly behind it, as allocators keep it and make it
//! accessible piece by piece. (No event tells of that.) Left alone are the agent's own mappings,
//! the kernel's special ones, the small ones that follow a file mapping (a library's bss), and
//! thread stacks but for what is deep in them (`stacks`).
//!
//! To the kernel neighbours with the same properties are one mapping: what is the agent's own is
//! cut out of those that hold it.
//!
//! *The story of the reservations:* what an arena of malloc grew by was managed when the next look
//! found it. Four threads at full speed passed a budget of 64 MiB by up to 13 in one run of twelve,
//! and without UFFDIO_MOVE, where it takes long to make room, in most: while that was done they
//! grew on.

mod lost;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use overspill_engine::Engine;
use overspill_mm::types::RegionKind;
use overspill_sys::maps::{self, Maps, Name, Vma};
use overspill_sys::mem::{OwnMemory, Prot};
use overspill_sys::pagemap::{Pagemap, Query};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, overlap};

use crate::remap;
use crate::stacks::Stacks;
use crate::withheld;

use lost::Lost;

/// Smaller mappings are not worth the trouble; those from the second size on are where they are more than
/// this share of the budget together.
///
/// *The story:* a program took blocks of 512 KiB from one mapping and made a page in the middle of each
/// inaccessible, or one in front of blocks of 256 KiB. 158 MiB of such halves were held in 64.
const BYTES_MIN: usize = 256 << 10;
const SMALL_BYTES_MIN: usize = 64 << 10;
const SMALL_SHARE: usize = 8;
/// A mapping without any permission of at most this size, directly before another one, guards a stack.
const GUARD_BYTES_MAX: usize = 1 << 20;
/// What follows a private mapping of a file directly is taken for the end of a library's data up to
/// this size. *The story:* any block was, and a large one under which the program happened to map a
/// file was never managed. The parts of a library's data that the kernel writes to without waiting
/// for anybody (a thread library's own) are small.
const LIBRARY_DATA_BYTES_MAX: usize = 1 << 20;
/// Larger reservations are not there to be filled, and kernels before 6.7 take seconds a TiB to say
/// that nothing is in them.
const RESERVATION_BYTES_MAX: usize = 4 << 30;
/// Up to this share of the budget (a sixteenth) zero pages do not matter.
const FEW_ZEROES_SHARE: usize = 16;
/// For so long a child waits until its parent has let go of its memory: 10 s.
const INHERIT_TRIES: u32 = 200_000;
const INHERIT_REST_NS: u64 = 50_000;
/// How often the maps are read again when the program changes them meanwhile.
const TRIES: u32 = 4;

/// Reads the process's maps for one engine.
pub struct Adopter {
    maps: Maps,
    pagemap: Arc<Pagemap>,
    buffer: Box<[u8]>,
    /// Candidates, then those parts of them that are not managed yet.
    mapped: Vec<Found>,
    found: Vec<Found>,
    /// Candidates changed while they were looked at, and are not managed yet.
    missed: bool,
    /// The agent's own ranges.
    own: Vec<AddressRange>,
    stacks: Stacks,
    lost: Lost,
    droppable: Vec<AddressRange>,
}

/// A part of a mapping that can be managed, or of a mapping and the reservation behind it.
struct Found {
    part: AddressRange,
    mapping: AddressRange,
    /// The reservation; empty where there is none.
    reserved: AddressRange,
}

impl Found {
    fn new(part: AddressRange, mapping: AddressRange) -> Self {
        Found { part, mapping, reserved: 0..0 }
    }

    /// With the reservation that begins where the mapping ends.
    fn growing_into(self, reserved: AddressRange) -> Self {
        let ending = |range: AddressRange| range.start..reserved.end;
        Found { part: ending(self.part), mapping: ending(self.mapping), reserved }
    }

    /// As it was before that.
    fn without_reservation(&self) -> Self {
        let ending = |range: &AddressRange| range.start..self.reserved.start;
        Found::new(ending(&self.part), ending(&self.mapping))
    }
}

/// What one look at the maps brought.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Mappings that are managed from now on.
    pub regions: usize,
    /// Pages that were found resident in them.
    pub pages: usize,
    /// Mappings changed all the while and are still to be managed.
    pub missed: bool,
    /// What is there is to be looked for again: not all of it was believed, see
    /// [`overspill_engine::discards`].
    pub again: bool,
}

impl Adopter {
    /// Opens the files under /proc that it reads, but for the process's memory.
    pub fn open(engine: &Engine, memory: Option<Arc<OwnMemory>>) -> Result<Self, Errno> {
        Ok(Adopter {
            maps: Maps::open()?,
            pagemap: engine.pagemap(),
            buffer: Box::new([0; maps::BUFFER_BYTES]),
            mapped: Vec::with_capacity(1024),
            found: Vec::with_capacity(1024),
            missed: false,
            own: Vec::new(),
            stacks: Stacks::new(memory),
            lost: Lost::default(),
            droppable: Vec::new(),
        })
    }

    /// Memory that the kernel lets nobody page by a userfaultfd, when it was last looked: what it may drop
    /// (MAP_DROPPABLE).
    pub fn droppable(&self) -> &[AddressRange] {
        &self.droppable
    }

    /// What tells the mappings that it manages.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Manages what the program has mapped since the last time.
    ///
    /// What is read from the maps is only true if no change was under way: a mapping that is being
    /// replaced, and whose event is unread, would be taken for its successor. So the ranges are
    /// registered first, and taken for good only if the kernel then says that nothing is pending,
    /// and no event that came in between concerns them.
    pub fn adopt(
        &mut self,
        engine: &mut Engine,
        own: impl Fn(&mut Vec<AddressRange>),
    ) -> Result<Adopted, Errno> {
        let mut adopted = Adopted::default();
        for _ in 0..TRIES {
            engine.handle_changes();
            self.look(engine)?;
            if self.lost.give_up(engine, &self.maps, &mut self.buffer) {
                self.look(engine)?;
            }
            self.leave_out_own(engine, &own);
            if self.register(engine) {
                let taken = self.take(engine)?;
                adopted.regions += taken.regions;
                adopted.pages += taken.pages;
                adopted.again |= taken.again;
            }
            if !self.missed {
                return Ok(adopted);
            }
        }
        // A program that changes its mappings without pause: the next look may find it at rest.
        Ok(Adopted { missed: true, ..adopted })
    }

    /// Does the process have these ranges of its parent's?
    pub fn finds(&mut self, regions: &[AddressRange]) -> bool {
        let Adopter { maps, buffer, .. } = self;
        let fits = |vma: &Vma<'_>| vma.is_private_anonymous();
        regions.iter().all(|region| covering(maps, buffer, region, fits).is_some())
    }

    /// Manages these ranges, which the process had from its parent as they were managed there. It has one
    /// thread of its own, which waits.
    ///
    /// The parent has let go of them at this moment, or is about to.
    pub fn inherit(&mut self, engine: &mut Engine, regions: &[AddressRange]) -> Result<(), Errno> {
        self.found.clear();
        for region in regions {
            let mut tries = 0;
            while let Err(errno) = withheld::register(engine, region.clone()) {
                if errno != Errno::BUSY || tries == INHERIT_TRIES {
                    return Err(errno);
                }
                tries += 1;
                clock::sleep_ns(INHERIT_REST_NS);
            }
            // Which part of it is a reservation is not known: it is asked for.
            let found = Found::new(region.clone(), region.clone());
            self.found.push(Found { reserved: region.clone(), ..found });
        }
        self.take(engine).map(drop)
    }

    /// Manages what a registered mapping that is managed has grown down by, where a thread waited at
    /// `address`, or sees that the page is managed by now. False where it is anything else.
    ///
    /// What the list of mappings said is still true when the kernel says that the page is registered
    /// (see [`Engine::settle`]); what is registered has nothing of the agent's own, and was not there
    /// before. So nothing else need be asked.
    ///
    /// *The story:* each page of a stack that grew by 107 MiB in 64 was adopted as any mapping is,
    /// with the agent's own ranges listed and sorted, the mapping registered anew, and the page map
    /// asked three times: 4.2 times as long as other memory that was filled downwards.
    pub fn adopt_grown(&mut self, engine: &mut Engine, address: usize) -> bool {
        engine.handle_changes();
        if engine.manages(&(address..address + 1)) {
            // It was adopted for another thread that waited there.
            return true;
        }
        let range_if_plain = |vma: &Vma<'_>| if is_plain(vma) { vma.range() } else { 0..0 };
        let asked = self.maps.query(address, false, &mut self.buffer, range_if_plain);
        let Ok(Some(mapping)) = asked else { return false };
        // The mapping may have a hundred thousand gaps.
        let Some(grown) = engine.unmanaged(&mapping).next() else { return false };
        let is_below_managed = grown.start == mapping.start && grown.end < mapping.end;
        if !is_below_managed || !grown.contains(&address) || !engine.is_registered(address) {
            return false;
        }
        if self.pagemap.has_any(grown.clone(), Query::ANY_CONTENT) != Ok(false) {
            return false;
        }
        engine.grow_region_down(grown);
        true
    }

    /// The mapping at an address; 0..0: there is none.
    pub fn mapping_at(&mut self, address: usize) -> AddressRange {
        let asked = self.maps.query(address, false, &mut self.buffer, |vma| vma.range());
        asked.ok().flatten().unwrap_or(0..0)
    }

    /// Manages the mapping at `address`, where a thread waited although no region is known: the
    /// kernel extended a registered mapping (mremap), or cut one so that what is left is no
    /// candidate any more, or it was registered and not taken yet.
    ///
    /// The thread may have gone on meanwhile, and anything may be mapped there now.
    pub fn adopt_at(
        &mut self,
        engine: &mut Engine,
        address: usize,
        own: impl Fn(&mut Vec<AddressRange>),
    ) -> Result<(), Errno> {
        for _ in 0..TRIES {
            engine.handle_changes();
            let range = self.maps.query(address, false, &mut self.buffer, |vma| {
                let is_program_memory = vma.is_private_anonymous() && vma.prot.contains(Prot::WRITE);
                if is_program_memory { vma.range() } else { 0..0 }
            })?;
            self.mapped.clear();
            let range = range.unwrap_or(0..0);
            self.mapped.push(Found::new(range.clone(), range));
            self.leave_out_own(engine, &own);
            self.found.retain(|found| found.part.contains(&address));
            if self.register(engine) {
                return self.take(engine).map(drop);
            }
        }
        Ok(())
    }

    /// Registers what was found. True if that is still what is there.
    ///
    /// *The stories behind the second look:* the kernel registers what lies in a range, holes or
    /// not. A mapping that was unmapped between the list and the call raised no event, others stood
    /// in part of its place, and so the call succeeded. Later a mapping of the agent's own came to
    /// lie in the hole, was taken for the program's and moved away. And later still, when several
    /// mappings side by side were as good as one, a thread put another block into the hole: its
    /// pages left, since UFFDIO_MOVE does not ask whether they may, and showed zeroes, since nobody
    /// was told of their touches (`munmap-again`, one run in twenty). So every mapping there must
    /// say itself that it is registered; after that it cannot go without an event.
    ///
    /// What came to lie across an end of the range is split there, and mremap refuses it. So what
    /// is beside the range then is registered too, whereupon the kernel joins the parts; until that
    /// is done mremap waits.
    ///
    /// *Another story:* a mapping was listed but for its first page, whose place was still managed,
    /// since the event of its predecessor's end was unread. It was read while the agent waited for its
    /// turn, and nobody was told; nobody looked beside the range within the mapping, and a page by
    /// itself is too small to be listed: EFAULT for ever (`mremap-adopted`, in one run of twenty
    /// beside busy programs).
    fn register(&mut self, engine: &mut Engine) -> bool {
        let Adopter { maps, buffer, mapped, found, missed, own, stacks, droppable, .. } = self;
        let sought = found.len();
        let mut replaced = |replaced| found.retain(|Found { mapping, .. }| !overlap(mapping, &replaced));
        let take = || remap::Turn::take(|| engine.handle_changes_telling(&mut replaced));
        let turn = (sought > 0).then(take);
        let mut refused = 0;
        found.retain(|Found { part, mapping, .. }| {
            // Registering a part of a mapping splits it, and mremap of the whole fails then: so is
            // it still the same? Where it ends and its reservation begins does not matter.
            let fits = |vma: &Vma<'_>| is_plain(vma) || vma.is_private_anonymous() && vma.prot.is_empty();
            if covering(maps, buffer, mapping, fits) != Some(mapping.clone()) {
                return false;
            }
            let outcome = withheld::register(engine, part.clone());
            let registered = outcome.is_ok();
            refused += usize::from(!registered);
            if outcome == Err(Errno::INVAL) {
                droppable.push(part.clone());
            }
            for beside in [part.start - 1, part.end] {
                let rest = |vma: &Vma<'_>| {
                    let fits = is_plain(vma) && !stacks.overlap(vma);
                    if fits { vma.range() } else { 0..0 }
                };
                let rest = maps.query(beside, false, buffer, rest).ok().flatten().unwrap_or(0..0);
                let is_split = rest.end == part.start || rest.start == part.end;
                let is_listed = || mapped.iter().any(|listed| listed.mapping == rest);
                if is_split && !is_listed() && !own.iter().any(|own| overlap(own, &rest)) {
                    let _ = withheld::register(engine, rest);
                }
            }
            registered
        });
        drop(turn);
        // Waiting for quiet costs little: whoever touches what was just registered waits for us meanwhile.
        let settled =
            engine.settle(|replaced| found.retain(|Found { mapping, .. }| !overlap(mapping, &replaced)));
        let is_registered = |vma: &Vma<'_>| engine.is_registered(vma.start);
        found.retain(|Found { part, .. }| covering(maps, buffer, part, is_registered).is_some());
        *missed = !settled || found.len() + refused < sought;
        settled
    }

    /// Tells the engine of pages that are resident in managed memory and that it does not know of.
    /// True when it did not believe all of it: it is to be told again, see [`overspill_engine::discards`].
    pub fn resync(&mut self, engine: &mut Engine) -> Result<bool, Errno> {
        self.found.clear();
        let regions = engine.regions();
        self.found.extend(regions.map(|region| Found::new(region.clone(), region)));
        engine.outwait_changes();
        let mut again = false;
        self.each_run(Query::OWN_CONTENT, |run| again |= engine.add_resident(run))?;
        Ok(again)
    }

    /// Takes over what was found, as it is registered now. What is there may leave in steps (see
    /// `agent`), but not where there are many zero pages: those come first, and so leave first, at
    /// once, and are protected until that is done.
    ///
    /// *The stories:* a store to memory that was only read before its adoption is no missing page.
    /// What a program read first and stored to at full speed then was found by searches alone: up
    /// to 20 MiB too much in a budget of 64. And where the kernel takes 120 ms to move 192 MiB of
    /// zero pages, eight threads stored to 40 MiB of them in the meantime.
    fn take(&mut self, engine: &mut Engine) -> Result<Adopted, Errno> {
        for Found { part, reserved, .. } in &self.found {
            engine.add_region(part.clone(), RegionKind::Anon);
            if !reserved.is_empty() {
                engine.note_reservation(part.clone());
            }
        }
        let (mut protected, mut again) = (0, false);
        let few = engine.budget() as usize / FEW_ZEROES_SHARE;
        if engine.takes_zero_pages() {
            protected = self.each_run(Query::ZERO_PAGE, |run| engine.protect(run))?;
            self.each_run(Query::ZERO_PAGE, |run| again |= engine.add_resident(run))?;
        }
        let pages = self.each_run(Query::OWN_CONTENT, |run| {
            if protected <= few {
                engine.make_room(run.len() / PAGE_SIZE);
            }
            again |= engine.add_resident(run);
        });
        if protected > 0 {
            self.found.iter().for_each(|found| engine.unprotect(found.part.clone()));
        }
        Ok(Adopted { regions: self.found.len(), pages: pages?, missed: false, again })
    }

    /// Calls `visit` with every run of pages in what was found that matches. Returns how many pages
    /// there are.
    fn each_run(&self, query: Query, mut visit: impl FnMut(AddressRange)) -> Result<usize, Errno> {
        let parts = self.found.iter().map(|found| found.part.clone());
        parts.map(|part| self.pagemap.for_each_run(part, query, &mut visit)).sum()
    }

    /// Reads the maps: what could be managed.
    fn look(&mut self, engine: &Engine) -> Result<(), Errno> {
        let Adopter { maps, pagemap, buffer, mapped, stacks, lost, droppable, .. } = self;
        let is_managed = |range: AddressRange| engine.manages(&range);
        droppable.clear();
        lost.begin();
        stacks.look(is_managed)?;
        mapped.clear();
        let mut before = Before::default();
        // The last candidate, until it is known what follows it.
        let mut last: Option<Found> = None;
        let mut small_bytes = 0;
        let mut list = |found: Found| {
            let bytes = found.part.len();
            if bytes >= SMALL_BYTES_MIN {
                small_bytes += if bytes < BYTES_MIN { bytes } else { 0 };
                mapped.push(found);
            }
        };
        let _ = maps.for_each(buffer, |vma| -> ControlFlow<()> {
            lost.look_at(engine, vma.range());
            if let Some(found) = last.take() {
                let grows = is_reserved(vma) && vma.start == found.mapping.end;
                list(if grows { found.growing_into(vma.range()) } else { found });
            }
            if is_candidate(vma) && !before.is_data_of(vma) {
                let is_all_managed = engine.unmanaged(&vma.range()).next().is_none();
                // *The story:* each of hundreds of fibers' stacks was read at each look.
                let start = match is_all_managed {
                    true => vma.start,
                    false => stacks.end(vma, before.guards(vma), is_managed, pagemap),
                };
                let part = start..vma.end;
                if part.start > vma.start
                    && let Some(deep) = stacks.deep(vma, pagemap)
                {
                    list(Found::new(deep, vma.range()));
                }
                last = (!part.is_empty()).then_some(Found::new(part, vma.range()));
            }
            before = Before::of(vma);
            ControlFlow::Continue(())
        })?;
        last.into_iter().for_each(&mut list);
        if small_bytes / PAGE_SIZE <= engine.budget() as usize / SMALL_SHARE {
            mapped.retain(|found| found.part.len() >= BYTES_MIN);
        }
        lost.end();
        Ok(())
    }

    /// What of the listed mappings is neither managed nor the agent's own.
    fn leave_out_own(&mut self, engine: &Engine, own: impl Fn(&mut Vec<AddressRange>)) {
        // Last, because collecting may have grown the agent's own memory.
        self.own.clear();
        own(&mut self.own);
        self.own.sort_unstable_by_key(|own| own.start);
        let is_own = |range: &AddressRange| self.own.iter().any(|own| overlap(own, range));
        // The agent's own addresses are put aside without permissions, too: what lies below them
        // does not grow into them.
        for found in self.mapped.iter_mut().filter(|found| is_own(&found.reserved)) {
            *found = found.without_reservation();
        }
        self.found.clear();
        for Found { part, mapping, reserved } in &self.mapped {
            each_rest(part, &self.own, |rest| {
                let parts = engine.unmanaged(&rest);
                let found = |part| Found { part, mapping: mapping.clone(), reserved: reserved.clone() };
                self.found.extend(parts.map(found));
            });
        }
    }
}

/// Calls `visit` with every part of a range that is in none of `others`, which are in order.
pub fn each_rest(range: &AddressRange, others: &[AddressRange], mut visit: impl FnMut(AddressRange)) {
    let mut from = range.start;
    for other in others.iter().filter(|other| overlap(other, range)) {
        if from < other.start {
            visit(from..other.start);
        }
        from = from.max(other.end);
    }
    if from < range.end {
        visit(from..range.end);
    }
}

/// The mapping before the one that is looked at.
#[derive(Default)]
struct Before {
    end: usize,
    is_file: bool,
    is_guard: bool,
}

impl Before {
    fn of(vma: &Vma<'_>) -> Self {
        let is_file = matches!(vma.name, Name::File { .. }) && !vma.shared;
        // The anonymous tail of a library's data may itself be followed by another one.
        let is_guard = vma.prot.is_empty() && vma.range().len() <= GUARD_BYTES_MAX;
        Before { end: vma.end, is_file, is_guard }
    }

    /// Is the mapping the end of a library's data?
    fn is_data_of(&self, vma: &Vma<'_>) -> bool {
        self.end == vma.start && self.is_file && vma.range().len() <= LIBRARY_DATA_BYTES_MAX
    }

    fn guards(&self, vma: &Vma<'_>) -> bool {
        self.end == vma.start && self.is_guard
    }
}

fn is_candidate(vma: &Vma<'_>) -> bool {
    matches!(vma.name, Name::Anonymous | Name::Heap | Name::Named(_)) && is_plain(vma)
}

/// Memory that nobody may touch yet, too large to be the guard of the stack above it.
fn is_reserved(vma: &Vma<'_>) -> bool {
    let is_arena = (GUARD_BYTES_MAX + 1..=RESERVATION_BYTES_MAX).contains(&vma.range().len());
    is_arena && vma.is_private_anonymous() && vma.prot.is_empty()
}

/// The addresses of the mappings that cover the range without a gap; None unless every one of them fits.
fn covering(
    maps: &Maps,
    buffer: &mut [u8],
    range: &AddressRange,
    fits: impl Fn(&Vma<'_>) -> bool,
) -> Option<AddressRange> {
    let mut covered: Option<AddressRange> = None;
    loop {
        let at = covered.as_ref().map_or(range.start, |covered| covered.end);
        let next = maps.query(at, false, buffer, |vma| fits(vma).then(|| vma.range())).ok()???;
        let start = covered.map_or(next.start, |covered| covered.start);
        if next.end >= range.end {
            return Some(start..next.end);
        }
        covered = Some(start..next.end);
    }
}

fn is_plain(vma: &Vma<'_>) -> bool {
    vma.is_private_anonymous() && vma.prot.contains(Prot::WRITE)
}
