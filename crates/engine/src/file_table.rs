//! What the program's own threads may know of mapped files: where they are, what they stand for, and
//! what the program believes that it may do there.
//!
//! The engine writes it, on every change of the address space that concerns a file; others only
//! read. There are two lists of ranges, of which one is valid: so a child of fork, which gets a copy
//! at whatever moment, finds a whole one. Who reads while two new ones are written looks again. A
//! place for a file is used again when nobody has it mapped any more.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use overspill_sys::lock::Lock;
use overspill_sys::{AddressRange, PAGE_SIZE};

/// Files that can be mapped at a time.
pub const FILES: usize = 64;
/// Ranges that they can be in.
pub const RANGES: usize = 128;

/// A mapped file.
pub struct MappedFile {
    in_use: AtomicBool,
    /// Where the kernel has the same part of the file mapped once more, untouched: for children.
    twin: AtomicUsize,
    twin_bytes: AtomicUsize,
    /// The first byte that was mapped.
    pub offset: AtomicU64,
    /// What the program asked for (PROT_*).
    pub prot: AtomicU32,
    /// Which file: its device (major and minor number) and its number there.
    pub device: AtomicU64,
    /// See there.
    pub inode: AtomicU64,
    /// It asked for MAP_SHARED.
    pub shared: AtomicBool,
    /// The kernel has the memory writable although the program may only read.
    pub lies: AtomicBool,
    /// Held by whoever makes the kernel's protection what the program believes.
    honest: Lock,
    /// A bit for each page that was stored to.
    stored: AtomicPtr<AtomicU64>,
    words: AtomicUsize,
}

impl MappedFile {
    const fn free() -> MappedFile {
        MappedFile {
            in_use: AtomicBool::new(false),
            twin: AtomicUsize::new(0),
            twin_bytes: AtomicUsize::new(0),
            offset: AtomicU64::new(0),
            prot: AtomicU32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            shared: AtomicBool::new(false),
            lies: AtomicBool::new(false),
            honest: Lock::new(),
            stored: AtomicPtr::new(core::ptr::null_mut()),
            words: AtomicUsize::new(0),
        }
    }

    /// May the program store to it, as far as the kernel lets it?
    #[must_use]
    pub fn may_store(&self) -> bool {
        !self.lies.load(SeqCst)
    }

    /// Does `act`, which takes permissions away, if the program does not have them, and has it get none
    /// meanwhile. Afterwards the kernel has them as `act` has left them where that is what it is to do.
    ///
    /// *The story:* of two threads that did so at once the slower one took the right to store away again
    /// that the faster one had just given to a page (`torture file-opened-beside`).
    pub fn make_honest(&self, act: impl FnOnce()) {
        self.honest.with(|| {
            if self.lies.load(SeqCst) {
                act();
                // After that: nobody could store until now.
                self.lies.store(false, SeqCst);
            }
        });
    }

    /// A store to a page that the program may only read: has `act` take the permission away, unless the
    /// kernel's protection is the program's by now. A thread that is making it so is not waited for: whoever
    /// stores does so again.
    ///
    /// *The story* (by reading): the pager took the right to store away from a page just after a thread had
    /// given it.
    pub(crate) fn forbid(&self, act: impl FnOnce()) {
        let _ = self.honest.try_with(|| {
            if self.lies.load(SeqCst) {
                act();
            }
        });
    }

    /// In a child of fork: a thread that it does not have may have been at work.
    pub fn forget_others(&self) {
        self.honest.forget();
    }

    /// Tells where the bits are of pages that were stored to.
    /// Where it is mapped for children is unmapped after it is withdrawn only.
    pub(crate) fn publish(&self, twin: &AddressRange, stored: &[AtomicU64]) {
        self.words.store(stored.len(), SeqCst);
        self.stored.store(stored.as_ptr().cast_mut(), SeqCst);
        self.twin_bytes.store(twin.len(), SeqCst);
        self.twin.store(twin.start, SeqCst);
    }

    /// Where a child finds the part of the file that is mapped, from its first page on; empty if nobody
    /// has it mapped any more.
    #[must_use]
    pub fn twin(&self) -> AddressRange {
        let start = self.twin.load(SeqCst);
        start..start + if start == 0 { 0 } else { self.twin_bytes.load(SeqCst) }
    }

    /// Nobody has it mapped any more.
    pub(crate) fn withdraw(&self) {
        self.twin.store(0, SeqCst);
        self.stored.store(core::ptr::null_mut(), SeqCst);
        self.words.store(0, SeqCst);
        self.in_use.store(false, SeqCst);
    }

    /// Notes which file it is.
    pub fn identify(&self, (major, minor): (u32, u32), inode: u64) {
        self.device.store(u64::from(major) << 32 | u64::from(minor), SeqCst);
        self.inode.store(inode, SeqCst);
    }

    /// Is it that file?
    #[must_use]
    pub fn is(&self, (major, minor): (u32, u32), inode: u64) -> bool {
        let device = u64::from(major) << 32 | u64::from(minor);
        self.device.load(SeqCst) == device && self.inode.load(SeqCst) == inode
    }

    /// Was the page, counted from the file's first that was mapped, stored to? For a child of fork,
    /// whose copy nobody changes.
    #[must_use]
    pub fn is_stored(&self, page: usize) -> bool {
        let (stored, words) = (self.stored.load(SeqCst), self.words.load(SeqCst));
        // SAFETY: so many words are there as long as the pointer is; in a child nothing is taken
        // back any more.
        !stored.is_null()
            && page / 64 < words
            && unsafe { &*stored.add(page / 64) }.load(SeqCst) >> (page % 64) & 1 != 0
    }
}

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The page of the mapping that its first one is.
    page: AtomicUsize,
    file: AtomicUsize,
}

impl Range {
    const fn empty() -> Range {
        Range {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            file: AtomicUsize::new(0),
        }
    }

    fn load(&self) -> FileRange {
        FileRange {
            range: self.start.load(SeqCst)..self.end.load(SeqCst),
            page: self.page.load(SeqCst),
            file: self.file.load(SeqCst),
        }
    }
}

/// A part of a mapped file as it lies in memory.
#[derive(Clone)]
pub struct FileRange {
    /// Where.
    pub range: AddressRange,
    /// The page of the mapping that its first one is.
    pub page: usize,
    /// Which file, for [`FileTable::file`].
    pub file: usize,
}

/// All of them.
pub struct FileTable {
    files: [MappedFile; FILES],
    sides: [[Range; RANGES]; 2],
    lengths: [AtomicUsize; 2],
    /// So many lists there were: the last is on this side, modulo two.
    lists: AtomicUsize,
    /// The program ever marked memory by madvise, by way of libc: to ask the kernel for marks is dear.
    has_marks: AtomicBool,
}

impl FileTable {
    /// No file.
    #[must_use]
    pub const fn new() -> FileTable {
        FileTable {
            files: [const { MappedFile::free() }; FILES],
            sides: [const { [const { Range::empty() }; RANGES] }; 2],
            lengths: [const { AtomicUsize::new(0) }; 2],
            lists: AtomicUsize::new(0),
            has_marks: AtomicBool::new(false),
        }
    }

    /// The program is about to mark memory: not to be dumped, or how it is used.
    pub fn note_marks(&self) {
        self.has_marks.store(true, SeqCst);
    }

    /// Did it ever?
    #[must_use]
    pub fn has_marks(&self) -> bool {
        self.has_marks.load(SeqCst)
    }

    /// Takes a place; `None`: there is none left.
    pub fn take(&self) -> Option<usize> {
        let take = |file: &MappedFile| file.in_use.compare_exchange(false, true, SeqCst, SeqCst).is_ok();
        self.files.iter().position(take)
    }

    /// Gives a place back that was not used.
    pub fn give_back(&self, file: usize) {
        self.files[file].withdraw();
    }

    /// A file by its number.
    #[must_use]
    pub fn file(&self, file: usize) -> &MappedFile {
        &self.files[file]
    }

    /// Is any file mapped?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole(|ranges| ranges.is_empty())
    }

    /// What `look` makes of a list that nobody wrote to meanwhile. It may see others before.
    ///
    /// *The story:* who read while two lists were written had parts of each: a range of one file stood
    /// for another.
    fn whole<T>(&self, mut look: impl FnMut(&[Range]) -> T) -> T {
        loop {
            let list = self.lists.load(SeqCst);
            let length = self.lengths[list % 2].load(SeqCst).min(RANGES);
            let seen = look(&self.sides[list % 2][..length]);
            if self.lists.load(SeqCst) == list {
                return seen;
            }
        }
    }

    /// Calls `visit` with every range, in the order of their places. What does not change meanwhile is
    /// visited once. (No copy of the list: a thread of the program's may have little stack left.)
    pub fn each(&self, mut visit: impl FnMut(FileRange)) {
        let mut from = 0;
        let next = |from| {
            let behind = |range: &FileRange| range.range.start >= from;
            let first = |range: &FileRange| range.range.start;
            self.whole(|ranges| ranges.iter().map(Range::load).filter(behind).min_by_key(first))
        };
        while let Some(range) = next(from) {
            from = range.range.end.max(from + 1);
            visit(range);
        }
    }

    /// Does any range overlap this one?
    #[must_use]
    pub fn overlaps(&self, range: &AddressRange) -> bool {
        let overlaps = |other: &Range| overspill_sys::overlap(&other.load().range, range);
        self.whole(|ranges| ranges.iter().any(overlaps))
    }

    /// In a child of fork: nothing is mapped any more.
    pub fn clear(&self) {
        self.set(&[]);
        self.files.iter().for_each(MappedFile::withdraw);
    }

    /// Replaces the ranges. False: there are too many.
    pub(crate) fn set(&self, ranges: &[FileRange]) -> bool {
        if ranges.len() > RANGES {
            return false;
        }
        let list = self.lists.load(SeqCst).wrapping_add(1);
        let side = list % 2;
        for (place, range) in self.sides[side].iter().zip(ranges) {
            place.start.store(range.range.start, SeqCst);
            place.end.store(range.range.end, SeqCst);
            place.page.store(range.page, SeqCst);
            place.file.store(range.file, SeqCst);
        }
        self.lengths[side].store(ranges.len(), SeqCst);
        self.lists.store(list, SeqCst);
        true
    }
}

impl Default for FileTable {
    fn default() -> Self {
        FileTable::new()
    }
}

impl FileRange {
    /// Its pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.range.len() / PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_replaced_as_a_whole() {
        let table = FileTable::new();
        assert!(table.is_empty());
        let file = table.take().expect("there are places");
        let part = |start: usize, page| FileRange { range: start..start + 0x3000, page, file };
        assert!(table.set(&[part(0x1000, 0), part(0x9000, 8)]));
        assert!(table.overlaps(&(0x3000..0x4000)) && !table.overlaps(&(0x4000..0x9000)));
        assert!(table.set(&[part(0x9000, 8)]));
        assert!(!table.overlaps(&(0x3000..0x4000)));
        let stored = [AtomicU64::new(1 << 5), AtomicU64::new(2)];
        table.file(file).publish(&(0x7000..0x9000), &stored);
        assert_eq!(table.file(file).twin(), 0x7000..0x9000);
        let is_stored = |page| table.file(file).is_stored(page);
        assert!(is_stored(5) && is_stored(65) && !is_stored(6) && !is_stored(1000));
        table.file(file).withdraw();
        assert!(!is_stored(5) && table.file(file).twin().is_empty());
        assert_eq!(table.take(), Some(file));
    }

    /// *The story:* see [`FileTable::whole`].
    #[test]
    fn who_reads_while_lists_are_written_sees_one_of_them() {
        let table = FileTable::new();
        let part = |start: usize| FileRange { range: start..start + 0x1000, page: 0, file: 0 };
        let starts = |list: usize| (0..list).map(move |n| (list * 16 + n) * 0x1000);
        let lists = [1, 2, 3].map(|list| starts(list).map(part).collect::<std::vec::Vec<_>>());
        assert!(table.set(&lists[0]));
        // Two lists are written between what is read of the first and the rest of it.
        let (mut rounds, mut seen) = (0, std::vec::Vec::new());
        let whole = table.whole(|ranges| {
            rounds += 1;
            if rounds == 1 {
                assert!(table.set(&lists[1]) && table.set(&lists[2]));
            }
            ranges.iter().map(|range| range.load().range.start).collect::<std::vec::Vec<_>>()
        });
        assert!(whole.into_iter().eq(starts(3)) && rounds == 2);
        table.each(|range| seen.push(range.range.start));
        assert!(seen.into_iter().eq(starts(3)));
    }
}
