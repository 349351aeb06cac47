//! Mappings of files that fit: the kernel's for as long as the budget has room for all of them.
//!
//! What the kernel has mapped costs nobody anything: no reads past the page cache, no agent, small pages
//! of the cache mapped sixteen at a time. So a large read-only mapping of a file that fits in what the
//! budget has free is made by the kernel, and only where it lies is remembered. When the budget gets
//! tight the agent takes all of them (`file_agent::take`): it puts managed memory over each, in a
//! turn ([`remap::Turn`]) in which nobody else changes them.
//!
//! So whatever changes a kept mapping by way of libc goes through [`changing`]: between two turns, and
//! told here before the next one begins. Who does it by calls of his own is not seen; the agent asks the
//! kernel what is there in its turn, and leaves alone what is not the file's.
//!
//! Each place is one word, so that whoever looks finds it whole at any moment. The lock is for those who
//! change them; the agent takes it only where it is free.
//! *The story* (by reading): the agent waited for it, and its holder for a page of its own stack.
//!
//! A child of fork has the mappings, too, and they are still kept: for its own agent.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use linux_raw_sys::general::__NR_munmap;
use overspill_engine::report::Left;
use overspill_sys::lock::Lock;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use crate::undisturbed::undisturbed;
use crate::{files, foreign, fork, libc, remap, withheld};

/// Pieces that can be kept at a time.
const PIECES: usize = 64;

/// Bytes that may be kept at a time: what the budget has beside all else that is held.
static MOST: AtomicUsize = AtomicUsize::new(0);
/// Bytes of all pieces, and of those that are about to be mapped. Never less.
static TOTAL: AtomicUsize = AtomicUsize::new(0);
/// How many mappings were ever kept.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
/// How many pieces were ever cut in two.
static CUTS: AtomicUsize = AtomicUsize::new(0);
/// Held by whoever changes pieces that are there.
static CHANGING: Lock = Lock::new();
static PLACES: [Place; PIECES] = [const { Place::free() }; PIECES];

/// Which file: its device (major and minor number) and its number there, as stat tells them.
pub type FileId = ((u32, u32), u64);

/// A mapping that is kept, or a piece of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Where.
    pub range: AddressRange,
    /// What was mapped there.
    pub file: FileId,
    /// Which mapping it is a piece of.
    pub mapping: usize,
}

/// The pages of a range in one word: the first, and how many. Claimed: none is known yet. 0: free.
struct Place {
    pages: AtomicU64,
    mapping: AtomicUsize,
    device: AtomicU64,
    inode: AtomicU64,
}

/// Bits for how many pages there are: a TiB. The rest is enough for any address of this half.
const COUNT_BITS: u32 = 28;
const FREE: u64 = 0;
const CLAIMED: u64 = 1;

/// A range in one word; `None`: it is too long.
fn packed(range: &AddressRange) -> Option<u64> {
    let count = range.len() / PAGE_SIZE;
    (count >> COUNT_BITS == 0).then_some(((range.start / PAGE_SIZE) as u64) << COUNT_BITS | count as u64)
}

fn unpacked(pages: u64) -> AddressRange {
    let start = (pages >> COUNT_BITS) as usize * PAGE_SIZE;
    // What is claimed begins at 0, where nothing is mapped.
    let count = if start == 0 { 0 } else { (pages & ((1 << COUNT_BITS) - 1)) as usize };
    start..start + count * PAGE_SIZE
}

impl Place {
    const fn free() -> Place {
        Place {
            pages: AtomicU64::new(FREE),
            mapping: AtomicUsize::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// What is kept there. It may have changed by the time that this returns.
    fn read(&self) -> Option<Kept> {
        loop {
            let pages = self.pages.load(SeqCst);
            let range = unpacked(pages);
            if range.is_empty() {
                return None;
            }
            let device = self.device.load(SeqCst);
            let file = (((device >> 32) as u32, device as u32), self.inode.load(SeqCst));
            let mapping = self.mapping.load(SeqCst);
            if self.pages.load(SeqCst) == pages {
                return Some(Kept { range, file, mapping });
            }
        }
    }

    /// Fills the place, which is claimed.
    fn fill(&self, kept: &Kept, pages: u64) {
        let ((major, minor), inode) = kept.file;
        self.device.store(u64::from(major) << 32 | u64::from(minor), SeqCst);
        self.inode.store(inode, SeqCst);
        self.mapping.store(kept.mapping, SeqCst);
        self.pages.store(pages, SeqCst);
    }

    /// Puts less of a piece in its place.
    fn lessen(&self, from: &AddressRange, to: &AddressRange) {
        let pages = if to.is_empty() { FREE } else { packed(to).expect("less than what was there") };
        self.pages.store(pages, SeqCst);
        TOTAL.fetch_sub(from.len() - to.len(), SeqCst);
    }
}

/// A place, and room in the budget, for a mapping that is about to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    place: usize,
    bytes: usize,
    file: FileId,
}

/// For the agent: of the budget so many bytes are left for what is kept, all of it being in RAM.
pub fn set_most(bytes: u64) {
    MOST.store(usize::try_from(bytes).unwrap_or(usize::MAX), SeqCst);
}

/// Claims room for a mapping of a file. `None`: it does not fit, if it has to, or there are too many. What is
/// unmapped makes room at once.
///
/// *The story* (by reading): the mapping behind the last place was the kernel's for good, and counted by
/// nobody; one that the kernel refused was counted until the agent had looked again.
pub fn claim(bytes: usize, file: FileId, must_fit: bool) -> Option<Claim> {
    let bytes = bytes.next_multiple_of(PAGE_SIZE);
    let fits = |total: usize| !must_fit || total <= MOST.load(SeqCst);
    let sum = |total: usize| total.checked_add(bytes).filter(|&total| fits(total));
    if fork::is_strange() || TOTAL.fetch_update(SeqCst, SeqCst, sum).is_err() {
        return None;
    }
    let place = claim_place();
    if place.is_none() {
        TOTAL.fetch_sub(bytes, SeqCst);
    }
    place.map(|place| Claim { place, bytes, file })
}

fn claim_place() -> Option<usize> {
    let claims = |place: &Place| place.pages.compare_exchange(FREE, CLAIMED, SeqCst, SeqCst).is_ok();
    PLACES.iter().position(claims)
}

/// Has a mapping made by the kernel for which room was claimed, and keeps it.
pub fn map(claim: &Claim, mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    let result = call();
    let range = result.map_or(0..0, |start| start..start + claim.bytes);
    // What was there went by a call that nobody saw.
    forget(&range);
    let mapping = MAPPINGS.fetch_add(1, SeqCst);
    let place = &PLACES[claim.place];
    match packed(&range).filter(|_| !range.is_empty()) {
        Some(pages) => {
            place.fill(&Kept { range, file: claim.file, mapping }, pages);
            files::note_kept(claim.bytes);
        }
        None => {
            place.pages.store(FREE, SeqCst);
            TOTAL.fetch_sub(claim.bytes, SeqCst);
        }
    }
    result
}

/// Bytes that are kept, in RAM or not.
pub fn bytes() -> u64 {
    TOTAL.load(SeqCst) as u64
}

/// Of `shared_bytes` of files and shared memory that the process has in RAM: so many at most are of
/// mappings that are kept. What there is of libraries counts for them, too, where less of them is in RAM.
pub fn resident(shared_bytes: u64) -> u64 {
    shared_bytes.min(bytes())
}

/// All pieces.
pub fn pieces() -> impl Iterator<Item = Kept> {
    PLACES.iter().filter_map(Place::read)
}

/// Does it concern anything that is kept?
pub fn overlaps(range: &AddressRange) -> bool {
    while bytes() > 0 {
        let cuts = CUTS.load(SeqCst);
        if pieces().any(|kept| overspill_sys::overlap(&kept.range, range)) {
            return true;
        }
        if CUTS.load(SeqCst) == cuts {
            return false;
        }
        // What was behind a cut has got a place that had been looked at.
    }
    false
}

/// For the agent, in its turn: is all of a range kept still, as a part of this mapping?
///
/// *The story* (by reading): what was to be the kernel's for good, for it was about to grow or to be
/// locked, was taken by an agent that had looked before that.
pub fn holds(range: &AddressRange, mapping: usize) -> bool {
    let has = |kept: &Kept| kept.range.start <= range.start && range.end <= kept.range.end;
    pieces().any(|kept| kept.mapping == mapping && has(&kept))
}

/// Keeps a piece more, for whose bytes there is room. False: there is no place.
fn keep(kept: &Kept) -> bool {
    let (Some(pages), Some(place)) = (packed(&kept.range), claim_place()) else { return false };
    TOTAL.fetch_add(kept.range.len(), SeqCst);
    PLACES[place].fill(kept, pages);
    true
}

/// Keeps nothing of the pages of a range any more, between two turns of the agent. Returns how many bytes
/// of it were.
fn forget(range: &AddressRange) -> usize {
    if overlaps(range) { undisturbed(|| CHANGING.with(|| drop_range(range, |_| true))) } else { 0 }
}

/// For the agent: calls `action` while nobody changes any piece; where it gives true no page of a range
/// is kept any more as part of a mapping. `None`: somebody is changing one.
pub fn settle(range: &AddressRange, mapping: usize, action: impl FnOnce() -> bool) -> Option<bool> {
    CHANGING.try_with(|| {
        let is_done = action();
        if is_done {
            drop_range(range, |kept| kept.mapping == mapping);
        }
        is_done
    })
}

fn drop_range(range: &AddressRange, is_meant: impl Fn(&Kept) -> bool) -> usize {
    let end = range.end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(usize::MAX);
    let range = range.start / PAGE_SIZE * PAGE_SIZE..end;
    let is_meant = |kept: &Kept| overspill_sys::overlap(&kept.range, &range) && is_meant(kept);
    let mut bytes = 0;
    for place in &PLACES {
        if let Some(kept) = place.read().filter(is_meant) {
            cut(place, &kept, &range);
            bytes += range.end.min(kept.range.end) - range.start.max(kept.range.start);
        }
    }
    bytes
}

/// Cuts a range out of a piece; what is behind it is the kernel's for good where there is no place for it.
fn cut(place: &Place, kept: &Kept, range: &AddressRange) {
    let head = kept.range.start..range.start.max(kept.range.start);
    let behind = Kept { range: range.end.min(kept.range.end)..kept.range.end, ..kept.clone() };
    if head.is_empty() {
        return place.lessen(&kept.range, &behind.range);
    }
    // First what comes: at no moment it is not kept.
    if !behind.range.is_empty() && !keep(&behind) {
        files::note_left(Left::Other, behind.range.len());
    }
    CUTS.fetch_add(1, SeqCst);
    place.lessen(&kept.range, &head);
}

/// What a call does to what is kept.
pub enum Change {
    /// It is gone from there.
    Gone,
    /// It lies elsewhere, and is so long.
    Moved(usize),
    /// It stays.
    None,
}

/// Makes a call that concerns a range between two turns of the agent; `change` says from its result what
/// became of what is kept there.
pub fn changing(
    range: &AddressRange,
    mut call: impl FnMut() -> Result<usize, Errno>,
    change: impl Fn(usize) -> Change,
) -> Result<usize, Errno> {
    remap::in_turns(|| {
        let value = call()?;
        match change(value) {
            Change::Gone => _ = forget(range),
            Change::Moved(len) => moved(range, &(value..value + len)),
            Change::None => {}
        }
        Ok(value)
    })
}

/// A piece, or a part of one, has been moved.
fn moved(from: &AddressRange, to: &AddressRange) {
    let first = pieces().find(|kept| overspill_sys::overlap(&kept.range, from));
    let Some(first) = first.filter(|_| forget(from) > 0) else { return };
    forget(to);
    let mapping = MAPPINGS.fetch_add(1, SeqCst);
    // *The story* (by reading): without a place it was the kernel's in silence.
    if !keep(&Kept { range: to.clone(), file: first.file, mapping }) {
        files::note_left(Left::Other, to.len());
    }
}

/// Nothing of a range is kept any more, for it is to be the kernel's for good. Returns its bytes.
pub fn give_up(range: &AddressRange) -> usize {
    if !overlaps(range) {
        return 0;
    }
    let mut bytes = 0;
    let _ = remap::in_turns(|| {
        bytes = forget(range);
        Ok(0)
    });
    bytes
}

/// In a child of fork, in its only thread: what another thread was about to map is the kernel's. What it
/// was about to cut may be there twice.
pub fn in_child() {
    MOST.store(0, SeqCst);
    CHANGING.forget();
    for place in &PLACES {
        let _ = place.pages.compare_exchange(CLAIMED, FREE, SeqCst, SeqCst);
    }
    TOTAL.store(pieces().map(|kept| kept.range.len()).sum(), SeqCst);
}

/// munmap(2), in turns with the agent where it concerns what is kept.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, len: usize) -> c_int {
    foreign::pass!(munmap(start, len));
    let arguments = [start as usize, len, 0, 0, 0, 0];
    // SAFETY: passed on to the caller.
    let call = || unsafe { overspill_sys::call(__NR_munmap, arguments) };
    let range = start as usize..(start as usize).saturating_add(len);
    let marks = withheld::before_change();
    let result = if overlaps(&range) { changing(&range, call, |_| Change::Gone) } else { call() };
    if result.is_ok() {
        marks.replaced(range.start, len);
    }
    result.map_or_else(|errno| libc::fail(errno) as c_int, |_| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = ((8, 1), 12);

    fn kept() -> Vec<AddressRange> {
        let mut ranges: Vec<_> = pieces().map(|kept| kept.range).collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    fn map_at(start: usize, len: usize) -> Option<usize> {
        map(&claim(len, FILE, true)?, || Ok(start)).ok()
    }

    /// One test: what is kept is the process's.
    #[test]
    fn pieces_are_cut_moved_and_counted() {
        set_most(0x9000);
        let first = claim(0x7fff, FILE, true).expect("it fits");
        assert_eq!((claim(0x2000, FILE, true), bytes()), (None, 0x8000), "what is about to come counts");
        assert_eq!(map(&first, || Err(Errno::NOMEM)), Err(Errno::NOMEM));
        assert_eq!((bytes(), kept().len()), (0, 0), "one that the kernel refuses does not");
        assert_eq!((map_at(0x10000, 0x8fff), map_at(0x30000, 1)), (Some(0x10000), None));
        assert_eq!((bytes(), resident(0x3000), resident(0x30000)), (0x9000, 0x3000, 0x9000));
        assert!(overlaps(&(0x18000..0x30000)) && !overlaps(&(0x19000..0x30000)));
        let failed = changing(&(0..0x20000), || Err(Errno::NOMEM), |_| Change::Gone);
        assert_eq!((failed, kept().len(), bytes()), (Err(Errno::NOMEM), 1, 0x9000));
        let _ = changing(&(0x12000..0x12345), || Ok(0), |_| Change::Gone);
        assert_eq!((kept(), bytes()), (vec![0x10000..0x12000, 0x13000..0x19000], 0x8000), "whole pages go");
        let whole = pieces().next().expect("one is there");
        assert!(holds(&(0x14000..0x19000), whole.mapping) && !holds(&(0x11000..0x14000), whole.mapping));
        let _ = changing(&(0x10000..0x12000), || Ok(0x40000), |_| Change::Moved(0x1000));
        assert_eq!((kept(), bytes()), (vec![0x13000..0x19000, 0x40000..0x41000], 0x7000));
        assert!(pieces().all(|kept| kept.file == FILE));
        let _ = changing(&(0x50000..0x52000), || Ok(0x60000), |_| Change::Moved(0x1000));
        assert_eq!(give_up(&(0x14000..0x15000)), 0x1000);
        assert_eq!(settle(&(0..usize::MAX), whole.mapping, || true), Some(true), "of both pieces");
        assert_eq!(kept(), core::slice::from_ref(&(0x40000..0x41000)));
        assert_eq!(bytes(), 0x1000);
        assert_eq!(map_at(0x40000, 0x1000), Some(0x40000), "its place was used again unseen");
        assert_eq!((forget(&(0..usize::MAX)), bytes()), (0x1000, 0));
        places_and_children();
        set_most(u64::MAX);
        the_agent_does_not_wait();
        threads_side_by_side();
    }

    fn places_and_children() {
        set_most(u64::MAX);
        for at in 1..=PIECES {
            assert!(map_at(0x10000 * at, 0x3000).is_some());
        }
        assert_eq!((claim(0x1000, FILE, true), kept().len()), (None, PIECES));
        assert_eq!(forget(&(0x11000..0x12000)), 0x1000);
        assert_eq!(kept()[0], 0x10000..0x11000, "no place for the second half: it is the kernel's");
        assert_eq!(forget(&(0x10000..0x11000)), 0x1000);
        let claimed = claim(0x1000, FILE, true);
        in_child();
        assert!(
            claimed.is_some() && claim(0x1000, FILE, true).is_none(),
            "no room before its agent has looked"
        );
        let (pieces, sum) = (kept().len(), kept().iter().map(AddressRange::len).sum::<usize>());
        assert_eq!((pieces, bytes()), (PIECES - 1, sum as u64), "a child has them, too");
        forget(&(0..usize::MAX));
    }

    fn the_agent_does_not_wait() {
        assert!(map_at(0x10000, 0x4000).is_some());
        let mapping = pieces().next().expect("one is there").mapping;
        let all = 0x10000..0x14000;
        assert_eq!(CHANGING.with(|| settle(&all, mapping, || true)), None, "somebody is changing one");
        assert_eq!(settle(&(0x11000..0x12000), mapping, || holds(&all, mapping)), Some(true));
        assert_eq!(settle(&all, mapping, || holds(&all, mapping)), Some(false), "a part of it is not kept");
        assert_eq!(settle(&all, mapping + 1, || true), Some(true));
        assert_eq!(kept(), [0x10000..0x11000, 0x12000..0x14000], "another mapping's went");
        assert_eq!((settle(&all, mapping, || true), bytes()), (Some(true), 0));
    }

    /// What is forgotten is so whole, whoever does it: each thread unmaps each fourth page.
    fn threads_side_by_side() {
        for _ in 0..200 {
            assert!(map_at(0x100000, 60 * PAGE_SIZE).is_some());
            let page = |page: usize| 0x100000 + page * PAGE_SIZE..0x100000 + (page + 1) * PAGE_SIZE;
            let lane = |lane: usize| (lane..60).step_by(4).map(|at| forget(&page(at))).sum::<usize>();
            let sum: usize = std::thread::scope(|scope| {
                let lanes = [0, 1, 2, 3].map(|number| scope.spawn(move || lane(number)));
                lanes.map(|lane| lane.join().expect("no panic")).iter().sum()
            });
            assert_eq!((sum, kept().len(), bytes()), (60 * PAGE_SIZE, 0, 0));
        }
    }

    #[test]
    fn a_place_is_one_word() {
        let all = 0x7fff_ffff_0000..0x7fff_ffff_f000;
        assert_eq!(packed(&all).map(unpacked), Some(all));
        assert_eq!(packed(&(0..PAGE_SIZE << COUNT_BITS)), None, "a TiB does not fit");
        assert!(unpacked(CLAIMED).is_empty() && unpacked(FREE).is_empty());
    }
}
