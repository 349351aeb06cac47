//! Shared regions: memory files that several processes map. A page of one exists once, however many map it.
//!
//! A page in view is a page of the file, and whoever maps the file sees it without asking us. A
//! page out of view is a hole of the file; its bytes are in a staging frame or on swap, as those of
//! private memory are. Every process has registered its mapping on a userfaultfd of its own and
//! handed that over, so a touch of a hole is told here, by whoever made it.
//!
//! - Into view: UFFDIO_COPY through the mapping of one who waits. The file has the page at once and
//!   as a whole, so the others find it there by themselves, once they are woken.
//! - Out of view: write-protect in every mapping (which holds for pages that are mapped later,
//!   too), copy to staging, punch a hole, which unmaps the page everywhere, and take the protection
//!   off. A store meanwhile waits, and then finds the hole.
//!
//! The file is never touched through a mapping here, only by calls that do not wait for us. A
//! process may die or unmap at any moment: what it maps is of no concern then.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::types::{CHUNK_PAGES, Vpn};
use overspill_sys::event::{WATCH_MAX, Watch};
use overspill_sys::file;
use overspill_sys::uffd::{CopyMode, Message, Partial, RawMsg, Uffd};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE};

use crate::memory::{Put, Taken, bits, is_gone, progress};

/// Where the numbers of shared pages begin: beyond all addresses, so that they are told apart in every table.
const FIRST: Vpn = Vpn(1 << 40);
/// Messages taken from the kernel by one read.
const MESSAGES: usize = 32;
/// How often a call is repeated while the kernel says "try again".
const PATIENCE: u32 = 1000;
/// What a page is filled with that nobody can be reached to map.
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// A mapping of a shared region in some process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapperId(u64);

/// A touch of a shared page that waits.
pub(crate) struct SharedFault {
    pub vpn: Vpn,
    pub write: bool,
    pub wp: bool,
    mapper: MapperId,
}

struct Mapper {
    id: MapperId,
    uffd: Uffd,
    /// Where its mapping begins, in its process.
    address: usize,
    /// Pages that its threads wait for.
    waiting: Vec<Vpn>,
}

struct Region {
    start: Vpn,
    pages: u64,
    file: Fd,
    mappers: Vec<Mapper>,
    /// Who touched a page last that was not there.
    latest: MapperId,
}

/// All shared regions.
pub(crate) struct SharedRegions {
    /// By start.
    regions: Vec<Region>,
    next: Vpn,
    next_mapper: u64,
    /// The descriptors of all mappers; made with the first region.
    watch: Option<Watch>,
    faults: VecDeque<SharedFault>,
}

impl Default for SharedRegions {
    fn default() -> Self {
        let (regions, faults) = (Vec::new(), VecDeque::new());
        SharedRegions { regions, next: FIRST, next_mapper: 0, watch: None, faults }
    }
}

impl SharedRegions {
    /// Adds a region: all `pages` of `file`, a memory file that is one hole. Nobody maps it yet.
    pub fn add(&mut self, file: Fd, pages: u64) -> Result<Vpn, Errno> {
        if self.watch.is_none() {
            self.watch = Some(Watch::new()?);
        }
        let start = self.next;
        // A chunk of distance: regions that touch would become one.
        self.next = Vpn((start.0 + pages).next_multiple_of(CHUNK_PAGES) + CHUNK_PAGES);
        self.regions.push(Region { start, pages, file, mappers: Vec::new(), latest: MapperId(0) });
        Ok(start)
    }

    /// Forgets the region that begins at `start`; its pages must be forgotten already.
    pub fn remove(&mut self, start: Vpn) {
        self.regions.retain(|region| region.start != start);
    }

    /// Pages of the region.
    pub fn pages(&self, start: Vpn) -> u64 {
        self.region(start).map_or(0, |region| region.pages)
    }

    /// Starts of all regions.
    pub fn starts(&self) -> impl Iterator<Item = Vpn> + '_ {
        self.regions.iter().map(|region| region.start)
    }

    /// A process has mapped the whole region at `address` and registered that on `uffd`, for
    /// missing pages and write protection. EINVAL: that is not so.
    pub fn join(&mut self, start: Vpn, uffd: Uffd, address: usize) -> Result<MapperId, Errno> {
        let watch = self.watch.as_ref().ok_or(Errno::NOENT)?;
        let at = self.regions.partition_point(|region| region.start < start);
        let region = self.regions.get_mut(at).filter(|region| region.start == start).ok_or(Errno::NOENT)?;
        let id = MapperId(self.next_mapper);
        let mapper = Mapper { id, uffd, address, waiting: Vec::new() };
        address.checked_add(region.pages as usize * PAGE_SIZE).ok_or(Errno::INVAL)?;
        // Taking off protection that is not there changes nothing, and fails where nothing is registered.
        let all = mapper.range(region.start, region.start, region.pages);
        mapper.uffd.write_protect(all, false, true).map_err(|_| Errno::INVAL)?;
        watch.add(mapper.uffd.fd(), id.0)?;
        self.next_mapper += 1;
        region.mappers.push(mapper);
        Ok(id)
    }

    /// A process maps the region no more. Returns how many still do.
    pub fn leave(&mut self, start: Vpn, id: MapperId) -> usize {
        let watch = self.watch.as_ref();
        let Some(region) = self.regions.iter_mut().find(|region| region.start == start) else { return 0 };
        if let Some(at) = region.mappers.iter().position(|mapper| mapper.id == id) {
            let mapper = region.mappers.swap_remove(at);
            // It fails only where the kernel has forgotten the descriptor already.
            let _ = watch.map(|watch| watch.remove(mapper.uffd.fd()));
        }
        region.mappers.len()
    }

    /// Lets go of the region's mappings: from now on they are ordinary shared memory. Every page
    /// must be there or poisoned.
    pub fn release(&mut self, start: Vpn) {
        let Some(region) = self.region_mut(start) else { return };
        for mapper in region.mappers.drain(..) {
            let range = mapper.range(region.start, region.start, region.pages);
            // SAFETY: the caller vouches that what is missing was never touched. A process that is
            // gone needs nothing.
            let _ = unsafe { mapper.uffd.unregister(range) };
        }
    }

    // Messages.

    /// The descriptor that is readable when a message waits, once there is a region.
    pub fn descriptor(&self) -> Option<&Fd> {
        self.watch.as_ref().map(Watch::fd)
    }

    /// Reads what messages there are. True when there were any.
    pub fn read_messages(&mut self) -> bool {
        let Some(watch) = self.watch.as_ref().filter(|_| !self.regions.is_empty()) else { return false };
        let mut ready = [0; WATCH_MAX];
        let count = watch.ready(&mut ready).unwrap_or(0);
        let before = self.faults.len();
        for id in ready[..count].iter().copied().map(MapperId) {
            let mut regions = self.regions.iter();
            let found = regions.find_map(|region| region.mapper(id).map(|mapper| (region, mapper)));
            if let Some((region, mapper)) = found {
                read_from(mapper, region, &mut self.faults);
            }
        }
        self.faults.len() > before
    }

    /// The oldest fault. From now on its thread counts as waiting, until its page is answered.
    pub fn next_fault(&mut self) -> Option<SharedFault> {
        let fault = self.faults.pop_front()?;
        if !fault.wp
            && let Some(region) = self.region_mut(fault.vpn)
            && let Some(mapper) = region.mappers.iter_mut().find(|mapper| mapper.id == fault.mapper)
        {
            if !mapper.waiting.contains(&fault.vpn) {
                mapper.waiting.push(fault.vpn);
            }
            region.latest = fault.mapper;
        }
        Some(fault)
    }

    // Out of view.

    /// Takes `count` (at most 64) pages from `vpn` on out of everybody's view and copies them to
    /// `frames`, an address.
    pub fn take_out(&mut self, vpn: Vpn, frames: usize, count: u32) -> Taken {
        let Some(region) = self.region_mut(vpn) else { return Taken::default() };
        let protected = region.protect(vpn, count, true);
        let taken = protected && region.copy_out(vpn, frames, count);
        // Whoever wanted to store waits, and finds a hole now, or the page where nothing came of it.
        region.protect(vpn, count, false);
        Taken { taken: if taken { bits(0, count) } else { 0 }, ..Taken::default() }
    }

    /// Is there no such page in the file?
    pub fn is_missing(&self, vpn: Vpn) -> bool {
        self.region(vpn)
            .is_some_and(|region| !file::has_data(&region.file, region.offset(vpn)).unwrap_or(true))
    }

    // Into view.

    /// Puts `count` pages, whose bytes are at the address `frames`, into everybody's view, and
    /// wakes who waits.
    pub fn put_in(&mut self, vpn: Vpn, frames: usize, count: u32) -> Put {
        let Some(region) = self.region_mut(vpn) else { return Put::default() };
        let done = region.fill(
            vpn,
            count,
            // SAFETY: the frames hold the pages' content; mm ordered it into view.
            |mapper, range, done| unsafe {
                mapper.uffd.copy(
                    range.start,
                    frames + done as usize * PAGE_SIZE,
                    range.len(),
                    CopyMode::DONTWAKE,
                )
            },
            // SAFETY: the frame is whole and stays as it is meanwhile.
            |file, offset, done| unsafe {
                file::pwrite_at(file, frames + done as usize * PAGE_SIZE, PAGE_SIZE, offset)
            },
        );
        Put { done, ..Put::default() }
    }

    /// Fills `count` pages with zeroes and wakes who waits. Returns how many were done.
    pub fn fill_fresh(&mut self, vpn: Vpn, count: u32) -> u32 {
        let Some(region) = self.region_mut(vpn) else { return 0 };
        region.fill(
            vpn,
            count,
            // SAFETY: mm found the pages untouched: they show zeroes.
            |mapper, range, _| unsafe { mapper.uffd.zeropage(range, true) },
            |file, offset, _| file::pwrite(file, &ZEROES, offset),
        )
    }

    /// The content of `[vpn, vpn + pages)` is to be forgotten: what is in view is dropped.
    pub fn punch(&mut self, vpn: Vpn, pages: u64) -> Result<(), Errno> {
        let region = self.region(vpn).ok_or(Errno::NOENT)?;
        file::punch_hole(&region.file, region.offset(vpn), pages * PAGE_SIZE as u64)
    }

    // Threads that wait.

    /// Lets the threads that wait for these pages try again.
    pub fn wake(&mut self, vpn: Vpn, count: u32) {
        if let Some(region) = self.region_mut(vpn) {
            region.wake(vpn, count);
        }
    }

    /// Lets the thread of a fault on a protected page store.
    pub fn unprotect(&mut self, fault: &SharedFault) {
        if let Some(region) = self.region(fault.vpn)
            && let Some(mapper) = region.mapper(fault.mapper)
        {
            let _ = mapper.protect(region.start, fault.vpn, 1, false);
        }
    }

    /// The page is lost: touches of it raise SIGBUS, in every process. False where the kernel cannot do that.
    pub fn poison(&mut self, vpn: Vpn) -> bool {
        let Some(region) = self.region_mut(vpn) else { return false };
        let mut all = true;
        for mapper in &region.mappers {
            // SAFETY: mm gave the page up.
            let poisoned = unsafe { mapper.uffd.poison(mapper.range(region.start, vpn, 1), true) };
            all &= match poisoned {
                Ok(()) => true,
                Err(Partial { errno, .. }) => errno == Errno::EXIST || is_gone(errno),
            };
        }
        region.wake(vpn, 1);
        all
    }

    // The table.

    fn region(&self, vpn: Vpn) -> Option<&Region> {
        let at = self.regions.partition_point(|region| region.start <= vpn).checked_sub(1)?;
        self.regions.get(at).filter(|region| vpn.0 < region.start.0 + region.pages)
    }

    fn region_mut(&mut self, vpn: Vpn) -> Option<&mut Region> {
        let at = self.regions.partition_point(|region| region.start <= vpn).checked_sub(1)?;
        self.regions.get_mut(at).filter(|region| vpn.0 < region.start.0 + region.pages)
    }
}

impl Region {
    fn offset(&self, vpn: Vpn) -> u64 {
        (vpn.0 - self.start.0) * PAGE_SIZE as u64
    }

    fn mapper(&self, id: MapperId) -> Option<&Mapper> {
        self.mappers.iter().find(|mapper| mapper.id == id)
    }

    /// Protects pages against stores in every mapping, or takes that off and wakes. False when some
    /// mapping refuses.
    fn protect(&self, vpn: Vpn, count: u32, on: bool) -> bool {
        let mut all = true;
        for mapper in &self.mappers {
            // The others too, if one fails: what was protected must not stay so.
            all &= mapper.protect(self.start, vpn, u64::from(count), on).is_ok();
        }
        all
    }

    /// Copies pages that nobody can store to, and drops them. False when they are still there.
    fn copy_out(&self, vpn: Vpn, frames: usize, count: u32) -> bool {
        let (offset, len) = (self.offset(vpn), count as usize * PAGE_SIZE);
        // SAFETY: the frames were handed out for this.
        let copied = unsafe { file::pread_at(&self.file, frames, len, offset) };
        copied == Ok(len) && file::punch_hole(&self.file, offset, len as u64).is_ok()
    }

    /// Fills pages that are not there: `through` the mapping of somebody who waits, if that can be,
    /// or else page by page `by` writing to the file. Both are told how many pages are done
    /// already.
    fn fill(
        &mut self,
        vpn: Vpn,
        count: u32,
        through: impl Fn(&Mapper, AddressRange, u32) -> Result<(), Partial>,
        by_write: impl Fn(&Fd, u64, u32) -> Result<usize, Errno>,
    ) -> u32 {
        let mut done = 0;
        let mut tries = 0;
        let mut mapper = self.reader(vpn, count);
        while done < count {
            let next = Vpn(vpn.0 + u64::from(done));
            let Some(through_whom) = mapper else {
                if by_write(&self.file, self.offset(next), done) != Ok(PAGE_SIZE) {
                    break;
                }
                done += 1;
                continue;
            };
            let range = through_whom.range(self.start, next, u64::from(count - done));
            let (pages, errno) = progress(through(through_whom, range.clone(), done), range.len());
            done += pages;
            match errno {
                None => {}
                Some(Errno::AGAIN) if pages > 0 => {}
                Some(Errno::AGAIN) if tries < PATIENCE => tries += 1,
                // Somebody filled it otherwise: what is there is newer.
                Some(Errno::EXIST) => done += 1,
                Some(Errno::NOMEM) => break,
                // It is gone, or does not map the page any more.
                Some(_) => mapper = None,
            }
        }
        self.wake(vpn, done);
        done
    }

    /// Through whose mapping pages are best filled: who waits for one of them, or who waited last.
    fn reader(&self, vpn: Vpn, count: u32) -> Option<&Mapper> {
        let waits = |mapper: &&Mapper| mapper.waiting.iter().any(|&page| is_within(page, vpn, count));
        self.mappers.iter().find(waits).or_else(|| self.mapper(self.latest)).or_else(|| self.mappers.first())
    }

    fn wake(&mut self, vpn: Vpn, count: u32) {
        for mapper in &mut self.mappers {
            let before = mapper.waiting.len();
            mapper.waiting.retain(|&page| !is_within(page, vpn, count));
            if mapper.waiting.len() < before {
                mapper.uffd.wake(mapper.range(self.start, vpn, u64::from(count))).unwrap_or(());
            }
        }
    }
}

impl Mapper {
    /// Where pages are in its process.
    fn range(&self, region: Vpn, vpn: Vpn, pages: u64) -> AddressRange {
        let start = self.address + (vpn.0 - region.0) as usize * PAGE_SIZE;
        start..start + pages as usize * PAGE_SIZE
    }

    /// Protects pages against stores, or takes that off and wakes. What is not mapped needs no protection.
    fn protect(&self, region: Vpn, vpn: Vpn, pages: u64, on: bool) -> Result<(), Errno> {
        let mut tries = 0;
        loop {
            match self.uffd.write_protect(self.range(region, vpn, pages), on, false) {
                Err(Errno::AGAIN) if tries < PATIENCE => tries += 1,
                // Part of it is mapped no more. The rest is.
                Err(Errno::NOENT) if pages > 1 => {
                    return (0..pages).try_for_each(|n| self.protect(region, vpn.offset(n as i64), 1, on));
                }
                Err(errno) if is_gone(errno) => return Ok(()),
                other => return other,
            }
        }
    }
}

fn is_within(page: Vpn, first: Vpn, count: u32) -> bool {
    page >= first && page.0 < first.0 + u64::from(count)
}

/// Appends the faults that a mapper reports.
fn read_from(mapper: &Mapper, region: &Region, faults: &mut VecDeque<SharedFault>) {
    let mut buffer = [RawMsg::default(); MESSAGES];
    let count = mapper.uffd.read_messages(&mut buffer).unwrap_or(0);
    for message in buffer[..count].iter().map(RawMsg::decode) {
        if let Message::Fault { address, write, wp, .. } = message {
            // Another process's word: it may say anything.
            let page = address.wrapping_sub(mapper.address) / PAGE_SIZE;
            if (page as u64) < region.pages {
                let vpn = Vpn(region.start.0 + page as u64);
                faults.push_back(SharedFault { vpn, write, wp, mapper: mapper.id });
            }
        }
    }
}
