//! Finding the program's memory: which of its mappings are managed, and what is resident in them.
//!
//! Managed is private, anonymous, writable memory of some size. Left alone are the agent's own mappings, the kernel's
//! special ones, what touches a file mapping (a library's bss), and thread stacks: the kernel writes to the control
//! block in a dying thread's stack at a moment when it no longer waits for anybody (guide on userfaultfd, pitfall 7), so
//! that block must never be away.
//!
//! *The story:* a thread's stack is mapped right below what was mapped before it, and a kernel before 6.7 makes one mapping of the
//! two (later ones forbid huge pages in stacks, and so keep them apart). The whole was left alone for the guard page in front of it:
//! on 6.1 `sort` with two threads had its buffer above its stack, and in two of six runs nothing was ever managed. Now only the
//! stack is left out of such a mapping.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use overspill_engine::Engine;
use overspill_mm::types::RegionKind;
use overspill_sys::maps::{self, Maps, Name, Vma};
use overspill_sys::mem::Prot;
use overspill_sys::pagemap::{PageRegion, Pagemap, Query};
use overspill_sys::procfs::Limit;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, overlap, procfs};

use crate::remap;

/// Smaller mappings are not worth the trouble.
const BYTES_MIN: usize = 256 << 10;
/// A mapping without any permission of at most this size, directly before another one, guards a stack.
const GUARD_BYTES_MAX: usize = 1 << 20;
/// A thread's control block lies at most this far from the end of its stack.
const CONTROL_BLOCK_BYTES: usize = 64 << 10;
/// How often the maps are read again when the program changes them meanwhile.
const TRIES: u32 = 4;

/// Reads the process's maps for one engine.
pub struct Adopter {
    maps: Maps,
    pagemap: Pagemap,
    buffer: Box<[u8; maps::BUFFER_BYTES]>,
    /// Candidates, then those parts of them that are not managed yet.
    mapped: Vec<Found>,
    found: Vec<Found>,
    /// Candidates changed while they were looked at, and are not managed yet.
    missed: bool,
    /// The agent's own ranges.
    own: Vec<AddressRange>,
    /// Control blocks of the threads that live now.
    control_blocks: Vec<usize>,
    /// Size of a stack that may have no thread any more and have been joined with what lies above; as large as can be where the
    /// kernel never joins them.
    stack_bytes: usize,
}

/// A part of a mapping that can be managed.
struct Found {
    part: AddressRange,
    mapping: AddressRange,
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
}

impl Adopter {
    /// Opens the files under /proc that it reads.
    pub fn open() -> Result<Self, Errno> {
        Ok(Adopter {
            maps: Maps::open()?,
            pagemap: Pagemap::open()?,
            buffer: Box::new([0; maps::BUFFER_BYTES]),
            mapped: Vec::with_capacity(1024),
            found: Vec::with_capacity(1024),
            missed: false,
            own: Vec::new(),
            control_blocks: Vec::with_capacity(256),
            stack_bytes: joined_stack_bytes(),
        })
    }

    /// Manages what the program has mapped since the last time.
    ///
    /// What is read from the maps is only true if no change was under way: a mapping that is being replaced, and whose
    /// event is unread, would be taken for its successor. So the ranges are registered first, and taken for good only if
    /// the kernel then says that nothing is pending, and no event that came in between concerns them.
    pub fn adopt(
        &mut self,
        engine: &mut Engine,
        own: impl Fn(&mut Vec<AddressRange>),
    ) -> Result<Adopted, Errno> {
        let mut adopted = Adopted::default();
        for _ in 0..TRIES {
            engine.handle_changes();
            self.look()?;
            self.leave_out_own(engine, &own);
            if self.register(engine) {
                let taken = self.take(engine)?;
                adopted.regions += taken.regions;
                adopted.pages += taken.pages;
            }
            if !self.missed {
                return Ok(adopted);
            }
        }
        // A program that changes its mappings without pause: the next look may find it at rest.
        Ok(Adopted { missed: true, ..adopted })
    }

    /// Manages the mapping at `address`, where a thread waited although no region is known: the kernel extended a
    /// registered mapping (mremap), or cut one so that what is left is no candidate any more, or it was registered and
    /// not taken yet.
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
                let is_program_memory = vma.is_private_anonymous() && vma.prot.contains(Prot::RW);
                if is_program_memory { vma.range() } else { 0..0 }
            })?;
            self.mapped.clear();
            let range = range.unwrap_or(0..0);
            self.mapped.push(Found { part: range.clone(), mapping: range });
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
    /// *The story behind the second look:* the kernel registers what lies in a range, holes or not. A mapping that was
    /// unmapped between the list and the call raised no event, others stood in part of its place, and so the call
    /// succeeded. Later a mapping of the agent's own came to lie in the hole, was taken for the program's and moved away.
    /// A single mapping over the whole range is the registered one, or else the registered one is gone, which is not quiet.
    ///
    /// What came to lie across an end of the range is split there, and mremap refuses it. So what is beside the range then
    /// is registered too, whereupon the kernel joins the parts; until that is done mremap waits.
    fn register(&mut self, engine: &mut Engine) -> bool {
        let Adopter { maps, buffer, mapped, found, missed, own, control_blocks, .. } = self;
        let sought = found.len();
        let turn = (sought > 0).then(|| remap::Turn::take(|| engine.handle_changes()));
        let mut refused = 0;
        found.retain(|Found { part, mapping }| {
            // Registering a part of a mapping splits it, and mremap of the whole fails then: so is it still the same?
            let is_same = |vma: &Vma<'_>| vma.range() == *mapping;
            let covers = |vma: &Vma<'_>| vma.start <= part.start && part.end <= vma.end;
            if !matches!(maps.query(part.start, false, buffer, is_same), Ok(Some(true))) {
                return false;
            }
            let registered = engine.register(part.clone()).is_ok();
            refused += usize::from(!registered);
            for beside in [part.start - 1, part.end].into_iter().filter(|beside| !mapping.contains(beside)) {
                let rest = |vma: &Vma<'_>| {
                    let fits = is_plain(vma) && !is_stack(vma, control_blocks);
                    if fits { vma.range() } else { 0..0 }
                };
                let rest = maps.query(beside, false, buffer, rest).ok().flatten().unwrap_or(0..0);
                let is_split = rest.end == part.start || rest.start == part.end;
                let is_listed = || mapped.iter().any(|listed| listed.mapping == rest);
                if is_split && !is_listed() && !own.iter().any(|own| overlap(own, &rest)) {
                    let _ = engine.register(rest);
                }
            }
            registered && matches!(maps.query(part.start, false, buffer, covers), Ok(Some(true)))
        });
        drop(turn);
        // Waiting for quiet costs little: whoever touches what was just registered waits for us meanwhile.
        let settled =
            engine.settle(|replaced| found.retain(|Found { mapping, .. }| !overlap(mapping, &replaced)));
        *missed = !settled || found.len() + refused < sought;
        settled
    }

    /// Tells the engine of pages that are resident in managed memory and that it does not know of.
    pub fn resync(&mut self, engine: &mut Engine) -> Result<(), Errno> {
        self.found.clear();
        self.found.extend(engine.regions().map(|region| Found { part: region.clone(), mapping: region }));
        self.take_resident(engine, Query::OWN_CONTENT).map(drop)
    }

    /// Takes over what was found, as it is registered now. Zero pages come first, and so leave first, before they are stored to.
    ///
    /// *The story:* a store to memory that was only read before its adoption is no missing page. What a program read first and
    /// stored to at full speed then was found by searches alone: up to 20 MiB too much in a budget of 64.
    fn take(&mut self, engine: &mut Engine) -> Result<Adopted, Errno> {
        for Found { part, .. } in &self.found {
            engine.add_region(part.clone(), RegionKind::Anon);
        }
        if engine.takes_zero_pages() {
            self.take_resident(engine, Query::ZERO_PAGE)?;
        }
        let pages = self.take_resident(engine, Query::OWN_CONTENT)?;
        Ok(Adopted { regions: self.found.len(), pages, missed: false })
    }

    /// Tells the engine of the resident pages that match; what is told first leaves first. Returns how many there are.
    fn take_resident(&self, engine: &mut Engine, query: Query) -> Result<usize, Errno> {
        let mut runs = [PageRegion::default(); 64];
        let mut pages = 0;
        for Found { part: range, .. } in &self.found {
            let mut at = range.start;
            while at < range.end {
                let scan = self.pagemap.scan(at..range.end, query, &mut runs)?;
                for run in &runs[..scan.regions] {
                    pages += run.pages();
                    engine.add_resident(run.start as usize..run.end as usize);
                }
                at = scan.end;
            }
        }
        Ok(pages)
    }

    /// Reads the maps: what could be managed.
    fn look(&mut self) -> Result<(), Errno> {
        self.control_blocks.clear();
        procfs::for_each_thread(|thread| {
            if let Ok((head, _)) = procfs::robust_list(thread) {
                self.control_blocks.push(head);
            }
        })?;
        self.mapped.clear();
        let mut before = Before::default();
        let (mapped, control_blocks, stack_bytes) =
            (&mut self.mapped, &self.control_blocks, self.stack_bytes);
        let _ = self.maps.for_each(&mut self.buffer, |vma| -> ControlFlow<()> {
            if is_candidate(vma) && !before.is_file_below(vma) && !is_stack(vma, control_blocks) {
                let start =
                    if before.guards(vma) { stack_end(vma, control_blocks, stack_bytes) } else { vma.start };
                if vma.end.saturating_sub(start) >= BYTES_MIN {
                    mapped.push(Found { part: start..vma.end, mapping: vma.range() });
                }
            }
            before = Before::of(vma);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// What of the listed mappings is neither managed nor the agent's own.
    fn leave_out_own(&mut self, engine: &Engine, own: impl Fn(&mut Vec<AddressRange>)) {
        // Last, because collecting may have grown the agent's own memory.
        self.own.clear();
        own(&mut self.own);
        let is_own = |range: &AddressRange| self.own.iter().any(|own| overlap(own, range));
        self.found.clear();
        for Found { part, mapping } in self.mapped.iter().filter(|found| !is_own(&found.part)) {
            engine.unmanaged(part, |part| self.found.push(Found { part, mapping: mapping.clone() }));
        }
    }
}

/// Where the stack ends that a mapping with a guard in front begins with: behind the last control block in it, which lies in the
/// last page of its stack. A stack without a thread is taken to have the usual size.
fn stack_end(vma: &Vma<'_>, control_blocks: &[usize], stack_bytes: usize) -> usize {
    let last = control_blocks.iter().filter(|block| vma.range().contains(block)).max();
    last.map_or(vma.start.saturating_add(stack_bytes), |block| (block + 1).next_multiple_of(PAGE_SIZE))
}

/// The size that the C library gives to stacks, where the kernel may join them with what lies above.
fn joined_stack_bytes() -> usize {
    const KEEPS_APART: (u32, u32, u32) = (6, 7, 0);
    /// Of the C library, where there is no limit.
    const UNLIMITED_BYTES: usize = 2 << 20;
    if procfs::kernel_version() >= KEEPS_APART {
        return usize::MAX;
    }
    match procfs::limit(Limit::Stack) {
        Ok((bytes, _)) if bytes != u64::MAX => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => UNLIMITED_BYTES,
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

    fn is_file_below(&self, vma: &Vma<'_>) -> bool {
        self.end == vma.start && self.is_file
    }

    fn guards(&self, vma: &Vma<'_>) -> bool {
        self.end == vma.start && self.is_guard
    }
}

fn is_candidate(vma: &Vma<'_>) -> bool {
    let kind = matches!(vma.name, Name::Anonymous | Name::Heap | Name::Named(_));
    kind && is_plain(vma) && vma.range().len() >= BYTES_MIN
}

fn is_plain(vma: &Vma<'_>) -> bool {
    vma.is_private_anonymous() && vma.prot == Prot::RW
}

fn is_stack(vma: &Vma<'_>, control_blocks: &[usize]) -> bool {
    control_blocks.iter().any(|&block| vma.range().contains(&block) && vma.end - block <= CONTROL_BLOCK_BYTES)
}
