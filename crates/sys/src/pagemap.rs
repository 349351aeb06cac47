//! What is behind a range of addresses: present, swapped out by the kernel, zero page, file.
//!
//! It only looks. By the PAGEMAP_SCAN command where the kernel has it (6.7), otherwise by reading the older
//! array of entries, which knows fewer categories. Rules from Documentation/admin-guide/mm/pagemap.rst.

use crate::file::{self, Open};
use crate::mem::{self, Advice, Mapping, Prot};
use crate::raw::{IOC_READ, IOC_WRITE, ioctl_number};
use crate::{AddressRange, Errno, Fd, PAGE_SIZE, random};
use bitflags::bitflags;

bitflags! {
    /// What a page is; several may hold.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Categories: u64 {
        /// Armed by asynchronous write protection.
        const WPALLOWED = 1 << 0;
        /// Stored to since it was write-protected.
        const WRITTEN = 1 << 1;
        /// File-backed, or shared memory.
        const FILE = 1 << 2;
        /// In RAM.
        const PRESENT = 1 << 3;
        /// In the kernel's own swap, or on its way from one place in RAM to another (compaction).
        const SWAPPED = 1 << 4;
        /// The shared zero page.
        const PFNZERO = 1 << 5;
        /// Part of a huge page.
        const HUGE = 1 << 6;
        /// Soft-dirty (6.12).
        const SOFT_DIRTY = 1 << 7;
        /// Guard marker (6.15).
        const GUARD = 1 << 8;
    }
}

impl Categories {
    /// What the older array tells: the rest reads as unset there.
    pub const BASIC: Categories = Categories::FILE.union(Categories::PRESENT).union(Categories::SWAPPED);
}

/// Which pages to tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// All of these must hold.
    pub required: Categories,
    /// None of these may hold.
    pub excluded: Categories,
    /// At least one of these must hold, unless empty.
    pub any_of: Categories,
    /// Which categories to tell; pages that do not differ in them make one region.
    pub report: Categories,
}

impl Query {
    /// Pages that are there, whatever they hold: in RAM, or in the kernel's own swap.
    pub const ANY_CONTENT: Query = Query {
        required: Categories::empty(),
        // A guard reads as something in swap.
        excluded: Categories::GUARD,
        any_of: Categories::PRESENT.union(Categories::SWAPPED),
        report: Categories::empty(),
    };

    /// Pages to which a store is told to nobody.
    pub const OPEN: Query = Query {
        required: Categories::PRESENT.union(Categories::WRITTEN),
        excluded: Categories::empty(),
        any_of: Categories::empty(),
        report: Categories::empty(),
    };

    /// Pages that hold content of their own: private, not the zero page.
    ///
    /// *The story:* pages in RAM were asked for. One that the kernel was just moving elsewhere when its
    /// memory was adopted was not found, and held data of which nobody knew.
    pub const OWN_CONTENT: Query = Query {
        required: Categories::empty(),
        excluded: Categories::PFNZERO.union(Categories::FILE).union(Categories::GUARD),
        any_of: Categories::PRESENT.union(Categories::SWAPPED),
        report: Categories::empty(),
    };

    /// Pages that were only read so far: the kernel's zero page. A store to one raises no fault
    /// that anybody hears of.
    pub const ZERO_PAGE: Query = Query {
        required: Categories::PRESENT.union(Categories::PFNZERO),
        excluded: Categories::FILE,
        any_of: Categories::empty(),
        report: Categories::empty(),
    };
}

/// A run of pages with the same categories (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRegion {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Those of [`Query::report`] that hold.
    pub categories: Categories,
}

impl PageRegion {
    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.end - self.start) as usize / PAGE_SIZE
    }
}

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Number of regions written.
    pub regions: usize,
    /// Where it ended: the end of the range, or where to go on when the regions did not fit.
    pub end: usize,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    pages_max: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

const _: () = assert!(size_of::<PageRegion>() == 24);
const _: () = assert!(size_of::<ScanArgument>() == 96);
const PAGEMAP_SCAN: u32 = ioctl_number(IOC_READ | IOC_WRITE, b'f', 16, size_of::<ScanArgument>());
const _: () = assert!(PAGEMAP_SCAN == 0xC060_6610);

/// Entries of the older array that are read at a time.
const ENTRIES: usize = 256;

/// This process's page map.
#[derive(Debug)]
pub struct Pagemap {
    fd: Fd,
    by_scan: bool,
    tells_guards: bool,
}

impl Pagemap {
    /// Opens it.
    pub fn open() -> Result<Pagemap, Errno> {
        Ok(Pagemap::by(file::open(c"/proc/thread-self/pagemap", Open::empty())?))
    }

    /// One that another process has opened. EXDEV: it is not that of this memory.
    pub fn given(fd: Fd) -> Result<Pagemap, Errno> {
        let pagemap = Pagemap::by(fd);
        if pagemap.is_own()? { Ok(pagemap) } else { Err(Errno::XDEV) }
    }

    /// Is it the page map of the caller's memory? Tried out: it shows which of some pages were stored to.
    ///
    /// A page map is bound to a memory when it is opened. Of whom it was asked for, by a number, may have
    /// been another process by then. What is told of other memory would be believed: pages would be lost.
    fn is_own(&self) -> Result<bool, Errno> {
        let chosen = random::unpredictable();
        let pages = Mapping::anon(u64::BITS as usize * PAGE_SIZE, Prot::empty())?;
        // SAFETY: changes no content. It fails where there are no huge pages.
        let _ = unsafe { mem::madvise(pages.range(), Advice::NoHugePage) };
        // Nothing comes into what nobody may touch, not even where all that is mapped is locked.
        for page in (0..u64::BITS as usize).filter(|page| chosen >> page & 1 != 0) {
            let start = pages.page(page);
            // SAFETY: nobody else uses these pages; they may be stored to when that is done.
            unsafe {
                mem::mprotect(start..start + PAGE_SIZE, Prot::RW)?;
                (start as *mut u8).write_volatile(1);
            }
        }
        let mut shown = 0_u64;
        self.for_each_run(pages.range(), Query::ANY_CONTENT, |run| {
            for address in run.step_by(PAGE_SIZE) {
                shown |= 1 << ((address - pages.start()) / PAGE_SIZE);
            }
        })?;
        Ok(shown == chosen)
    }

    /// Finds out whether the kernel can scan.
    fn by(fd: Fd) -> Pagemap {
        let mut empty = ScanArgument { size: size_of::<ScanArgument>() as u64, ..ScanArgument::default() };
        // SAFETY: the structure is the command's; the range is empty.
        let by_scan = !matches!(unsafe { fd.ioctl(PAGEMAP_SCAN, &raw mut empty) }, Err(Errno::NOTTY));
        let pagemap = Pagemap { fd, by_scan, tells_guards: true };
        let tells_guards = by_scan && pagemap.accepts_guards();
        Pagemap { tells_guards, ..pagemap }
    }

    /// Opens it for the older way only, for tests and comparison.
    pub fn open_basic() -> Result<Pagemap, Errno> {
        Ok(Pagemap { by_scan: false, tells_guards: false, ..Pagemap::open()? })
    }

    /// All categories are known, not only [`Categories::BASIC`].
    #[must_use]
    pub fn can_scan(&self) -> bool {
        self.by_scan
    }

    /// [`Categories::GUARD`] is known.
    #[must_use]
    pub fn knows_guards(&self) -> bool {
        self.tells_guards
    }

    fn accepts_guards(&self) -> bool {
        let guards = Query { required: Categories::GUARD, ..Query::default() };
        let somewhere = PAGE_SIZE..2 * PAGE_SIZE;
        self.by_command(&somewhere, guards, 0, &mut [PageRegion::default()]).is_ok()
    }

    /// Finds the pages of a page-aligned range that match. Go on at [`Scan::end`] until it is the range's
    /// end. The answer is a snapshot of nothing: each page was like that at some moment during the call.
    pub fn scan(&self, range: AddressRange, query: Query, out: &mut [PageRegion]) -> Result<Scan, Errno> {
        assert!(
            range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE) && !out.is_empty()
        );
        if range.is_empty() {
            return Ok(Scan { regions: 0, end: range.end });
        }
        let scan = if self.by_scan {
            self.by_command(&range, query, 0, out)
        } else {
            self.by_array(&range, query, out)
        }?;
        assert!(scan.regions <= out.len() && (scan.end == range.end || scan.end > range.start));
        Ok(scan)
    }

    /// Calls `visit` with every run of pages of the range that match. Returns how many pages there are.
    pub fn for_each_run(
        &self,
        range: AddressRange,
        query: Query,
        mut visit: impl FnMut(AddressRange),
    ) -> Result<usize, Errno> {
        let mut runs = [PageRegion::default(); 64];
        let (mut at, mut pages) = (range.start, 0);
        while at < range.end {
            let scan = self.scan(at..range.end, query, &mut runs)?;
            for run in &runs[..scan.regions] {
                pages += run.pages();
                visit(run.start as usize..run.end as usize);
            }
            at = scan.end;
        }
        Ok(pages)
    }

    /// Is there any page in a page-aligned range that matches?
    pub fn has_any(&self, range: AddressRange, query: Query) -> Result<bool, Errno> {
        let mut run = [PageRegion::default(); 1];
        if self.by_scan {
            return Ok(self.by_command(&range, query, 1, &mut run)?.regions > 0);
        }
        for start in range.clone().step_by(ENTRIES * PAGE_SIZE) {
            let step = start..range.end.min(start + ENTRIES * PAGE_SIZE);
            if self.by_array(&step, query, &mut run)?.regions > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends behind `pages_max` pages that match, unless that is zero. What the kernel does not know no
    /// page is.
    fn by_command(
        &self,
        range: &AddressRange,
        query: Query,
        pages_max: u64,
        out: &mut [PageRegion],
    ) -> Result<Scan, Errno> {
        let unknown = if self.tells_guards { Categories::empty() } else { Categories::GUARD };
        let excluded = query.excluded.difference(unknown);
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: range.start as u64,
            end: range.end as u64,
            regions: out.as_mut_ptr() as u64,
            regions_len: out.len() as u64,
            pages_max,
            inverted: excluded.bits(),
            mask: (query.required | excluded).bits(),
            any_of: query.any_of.bits(),
            returned: query.report.bits(),
            ..ScanArgument::default()
        };
        // SAFETY: the structure is the command's, and it names an exclusive slice.
        let regions = unsafe { self.fd.ioctl(PAGEMAP_SCAN, &raw mut argument)? };
        Ok(Scan { regions, end: argument.walk_end as usize })
    }

    fn by_array(&self, range: &AddressRange, query: Query, out: &mut [PageRegion]) -> Result<Scan, Errno> {
        let mut entries = [0u64; ENTRIES];
        let mut runs = Runs { out, count: 0 };
        let mut at = range.start;
        while at < range.end {
            let wanted = ((range.end - at) / PAGE_SIZE).min(entries.len());
            let pages = self.read_entries(at, &mut entries[..wanted])?;
            for &entry in &entries[..pages] {
                let categories = categories_of(entry);
                if matches(categories, query) && !runs.add(at, categories & query.report) {
                    return Ok(Scan { regions: runs.count, end: at });
                }
                at += PAGE_SIZE;
            }
            if pages == 0 {
                break; // Behind the last address a process can have.
            }
        }
        Ok(Scan { regions: runs.count, end: range.end })
    }

    /// Which of the pages of a range, at most 64, others have, too, by their bits: parents and children of
    /// forks, until one of both stores.
    pub fn in_common(&self, range: &AddressRange) -> Result<u64, Errno> {
        let mut entries = [0u64; u64::BITS as usize];
        let pages = self.read_entries(range.start, &mut entries[..range.len() / PAGE_SIZE])?;
        let is_common = |entry: u64| entry & ENTRY_PRESENT != 0 && entry & ENTRY_EXCLUSIVE == 0;
        Ok((0..pages).fold(0, |all, page| all | u64::from(is_common(entries[page])) << page))
    }

    /// Entries of the array from `address` on; returns how many there were.
    fn read_entries(&self, address: usize, entries: &mut [u64]) -> Result<usize, Errno> {
        let offset = (address / PAGE_SIZE * size_of::<u64>()) as u64;
        // SAFETY: the slice is exclusive and holds plain integers.
        let bytes =
            unsafe { file::pread_at(&self.fd, entries.as_mut_ptr() as usize, size_of_val(entries), offset)? };
        Ok(bytes / size_of::<u64>())
    }
}

/// Regions being collected.
struct Runs<'a> {
    out: &'a mut [PageRegion],
    count: usize,
}

impl Runs<'_> {
    /// Adds a page, to the last region if it goes on there; `false` when there is no room.
    fn add(&mut self, page: usize, categories: Categories) -> bool {
        let (start, end) = (page as u64, (page + PAGE_SIZE) as u64);
        if let Some(last) = self.count.checked_sub(1).map(|index| &mut self.out[index])
            && last.end == start
            && last.categories == categories
        {
            last.end = end;
            return true;
        }
        let Some(next) = self.out.get_mut(self.count) else { return false };
        *next = PageRegion { start, end, categories };
        self.count += 1;
        true
    }
}

const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;
/// Mapped by one process only.
const ENTRY_EXCLUSIVE: u64 = 1 << 56;

fn categories_of(entry: u64) -> Categories {
    let pick = |bit: u64, category| if entry & bit != 0 { category } else { Categories::empty() };
    pick(ENTRY_PRESENT, Categories::PRESENT)
        | pick(ENTRY_SWAPPED, Categories::SWAPPED)
        | pick(ENTRY_FILE, Categories::FILE)
}

fn matches(categories: Categories, query: Query) -> bool {
    categories.contains(query.required)
        && !categories.intersects(query.excluded)
        && (query.any_of.is_empty() || categories.intersects(query.any_of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_when_they_touch_and_agree() {
        let mut out = [PageRegion::default(); 3];
        let mut runs = Runs { out: &mut out, count: 0 };
        let (file, none) = (Categories::FILE, Categories::empty());
        assert!(runs.add(0x1000, none) && runs.add(0x2000, none) && runs.add(0x3000, file));
        assert!(runs.add(0x5000, file));
        assert!(!runs.add(0x7000, file));
        assert_eq!(runs.count, 3);
        assert_eq!(out[0], PageRegion { start: 0x1000, end: 0x3000, categories: none });
        assert_eq!(out[2].pages(), 1);
    }

    /// See [`Pagemap::is_own`].
    #[test]
    fn the_page_map_of_another_memory_is_not_taken() {
        let own = || file::open(c"/proc/self/pagemap", Open::empty()).unwrap();
        assert!(
            Pagemap::given(own())
                .is_ok_and(|pagemap| pagemap.can_scan() == Pagemap::open().unwrap().can_scan())
        );
        // SAFETY: the child waits for a signal, and makes no other call.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        let path = std::ffi::CString::new(std::format!("/proc/{child}/pagemap")).unwrap();
        let others = file::open(&path, Open::empty());
        let taken = others.and_then(Pagemap::given).map(drop);
        // SAFETY: the child is ours.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
        }
        assert_eq!(taken, Err(Errno::XDEV));
    }

    #[test]
    fn queries() {
        let own = Query::OWN_CONTENT;
        assert!(matches(Categories::PRESENT, own));
        assert!(!matches(Categories::PRESENT | Categories::PFNZERO, own));
        assert!(matches(Categories::SWAPPED, own), "it may be on its way from one place in RAM to another");
        assert!(!matches(Categories::SWAPPED | Categories::GUARD, own));
        let either = Query { any_of: Categories::PRESENT | Categories::SWAPPED, ..Query::default() };
        assert!(matches(Categories::SWAPPED, either) && !matches(Categories::FILE, either));
    }
}
