//! Where an area lies on its device, and whether a direct transfer finds it there. What the file
//! system tells (FIEMAP) is judged part by part, in the order of the file: the first reason counts
//! (specification 3.3).
//!
//! Asking and judging are apart. [`Judge`] reads nothing, so that what only some file systems have
//! can be tried on any.

use overspill_mm::swap::extents::Extents;
use overspill_mm::swap::extents::packing::{Packer, Unfit};
use overspill_mm::swap::header::HEADER_BYTES;
use overspill_sys::file::{self, BTRFS_MAGIC, EXTENTS_MAX, Extent};
use overspill_sys::{Errno, Fd};

use super::inspect::Refused;

const PAGE_BYTES: u64 = HEADER_BYTES as u64;

/// What of an extent cannot be read past the file system, and why. The kernel sets UNALIGNED beside
/// INLINE and TAIL, ENCODED beside ENCRYPTED, and UNKNOWN beside DELAYED: the one that says more
/// comes first.
const FLAWS: [(u32, &str); 6] = [
    (Extent::INLINE | Extent::TAIL, "stored among the file system's own data (inline)"),
    (Extent::SHARED, "shared with another file (a reflink or a snapshot)"),
    (Extent::ENCRYPTED, "encrypted by the file system"),
    (Extent::ENCODED, "compressed by the file system"),
    (Extent::UNALIGNED, "not at a block's border"),
    (Extent::UNKNOWN | Extent::DELAYED, "not on the device yet"),
];

/// Where an area lies on its device.
#[derive(Debug)]
pub struct Layout {
    /// Extents as the file system tells them.
    pub reported: u64,
    /// Those that pages can use, packed and merged by the kernel's rules.
    pub extents: Extents,
}

impl Layout {
    /// A device lies where it lies, in one piece.
    pub fn of_device(bytes: u64) -> Result<Layout, Refused> {
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        if pages == 0 {
            return Err(Refused::Unfit(Unfit::NoPages));
        }
        let mut extents = Extents::new();
        extents.push(pages, 0);
        Ok(Layout { reported: 1, extents })
    }

    /// Asks the file system.
    ///
    /// *The story:* swapon refused what was made on Btrfs, and a run took more of the file system with each
    /// page that it wrote anew: the area had blocks, and the pages went to others.
    pub fn of_file(fd: &Fd, bytes: u64) -> Result<Layout, Refused> {
        if file::space(fd)?.magic == BTRFS_MAGIC && !file::is_in_place(fd)? {
            return Err(Refused::CopyOnWrite);
        }
        let (mut judge, mut offset) = (Judge::new(bytes), 0);
        let mut found = [Extent::default(); EXTENTS_MAX];
        loop {
            let count = match file::extents(fd, offset, &mut found) {
                Err(Errno::OPNOTSUPP | Errno::NOTTY) => return Err(Refused::NoExtents),
                count => count?,
            };
            found[..count].iter().try_for_each(|extent| judge.add(extent))?;
            let Some(last) = found[..count].last() else { break };
            offset = last.logical + last.len;
            if last.flags & Extent::LAST != 0 {
                break;
            }
        }
        judge.finish()
    }
}

/// Judges a file by what its file system tells of it, in ascending order.
struct Judge {
    bytes: u64,
    packer: Packer,
    reported: u64,
}

impl Judge {
    /// Of a file of so many bytes.
    fn new(bytes: u64) -> Judge {
        Judge { bytes, packer: Packer::default(), reported: 0 }
    }

    fn add(&mut self, extent: &Extent) -> Result<(), Refused> {
        // Blocks behind the end belong to the file and are none of its pages.
        let Some(rest) = self.bytes.checked_sub(extent.logical).filter(|&rest| rest > 0) else {
            return Ok(());
        };
        // A hole before it comes first.
        self.packer.add(extent.logical, extent.physical, extent.len.min(rest)).map_err(Refused::Unfit)?;
        if let Some((_, flaw)) = FLAWS.iter().find(|(flags, _)| extent.flags & flags != 0) {
            return Err(Refused::Extent { offset: extent.logical, flaw });
        }
        self.reported += 1;
        Ok(())
    }

    fn finish(self) -> Result<Layout, Refused> {
        // A last block that is no whole page is no page.
        let pages = self.bytes / PAGE_BYTES * PAGE_BYTES;
        Ok(Layout { reported: self.reported, extents: self.packer.finish(pages).map_err(Refused::Unfit)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many pages of a file, from page `at` on, at page `place` of the device.
    fn extent(at: u64, pages: u64, place: u64, flags: u32) -> Extent {
        let mut extent = Extent::default();
        (extent.logical, extent.len) = (at * PAGE_BYTES, pages * PAGE_BYTES);
        (extent.physical, extent.flags) = (place * PAGE_BYTES, flags);
        extent
    }

    fn judge(bytes: u64, extents: &[Extent]) -> Result<Layout, Refused> {
        let mut judge = Judge::new(bytes);
        extents.iter().try_for_each(|extent| judge.add(extent))?;
        judge.finish()
    }

    fn reason(pages: u64, extents: &[Extent]) -> String {
        judge(pages * PAGE_BYTES, extents).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_follows_on_the_device_is_one_extent_and_what_is_behind_the_end_is_none() {
        let told = [
            extent(0, 1, 100, 0),
            // Reserved, and never written: what `swap make` leaves.
            extent(1, 9, 101, Extent::UNWRITTEN),
            extent(10, 10, 50, 0),
            extent(20, 4, 200, Extent::LAST),
        ];
        let layout = judge(20 * PAGE_BYTES, &told).unwrap();
        let runs: Vec<_> = layout.extents.runs().iter().map(|run| (run.page, run.count, run.block)).collect();
        assert_eq!((layout.reported, runs), (3, vec![(0, 10, 100), (10, 10, 50)]));
        let flawed = [extent(0, 20, 100, 0), extent(20, 1, 7, Extent::SHARED)];
        assert_eq!(judge(20 * PAGE_BYTES, &flawed).unwrap().reported, 1, "a flaw behind the end is nobody's");
        let cut = judge(20 * PAGE_BYTES + 100, &[extent(0, 30, 100, 0)]).unwrap();
        assert_eq!(cut.extents.pages(), 20);
    }

    /// Every flag that FIEMAP has for it, alone and as the kernel sets it beside others.
    ///
    /// *The story:* an encrypted part was called compressed: the kernel sets the flag of that, too.
    #[test]
    fn every_flaw_is_refused_with_its_reason() {
        let cases = [
            (Extent::INLINE, "inline"),
            (Extent::INLINE | Extent::UNALIGNED, "inline"),
            (Extent::TAIL | Extent::UNALIGNED, "inline"),
            (Extent::SHARED, "a reflink"),
            (Extent::SHARED | Extent::ENCODED, "a reflink"),
            (Extent::ENCODED, "compressed"),
            (Extent::ENCODED | Extent::ENCRYPTED, "encrypted"),
            (Extent::UNALIGNED, "block's border"),
            (Extent::DELAYED | Extent::UNKNOWN, "not on the device yet"),
            (Extent::DELAYED, "not on the device yet"),
            (Extent::UNKNOWN, "not on the device yet"),
        ];
        for (flags, expected) in cases {
            for others in [0, Extent::LAST, Extent::UNWRITTEN] {
                let told = reason(20, &[extent(0, 10, 100, 0), extent(10, 10, 300, flags | others)]);
                let place = told.starts_with("the part at byte 40960 is ");
                assert!(place && told.contains(expected), "{flags:#x}: {told}");
            }
        }
    }

    /// *The story:* a hole before a part with a flaw was passed over in silence, and the flaw was named.
    #[test]
    fn the_first_reason_in_the_file_counts() {
        let shared = |at: u64| extent(at, 5, 300, Extent::SHARED);
        let delayed = |at: u64| extent(at, 5, 400, Extent::DELAYED);
        assert!(reason(20, &[shared(0), delayed(5)]).contains("byte 0 is shared"));
        assert!(reason(20, &[delayed(0), shared(5)]).contains("byte 0 is not on the device"));
        assert_eq!(reason(20, &[extent(0, 5, 100, 0), shared(10)]), "it has a hole at byte 20480");
        assert_eq!(reason(20, &[shared(5)]), "it has a hole at byte 0");
        assert!(reason(20, &[shared(0), extent(10, 10, 100, 0)]).contains("byte 0 is shared"));
        assert_eq!(reason(20, &[extent(0, 15, 100, Extent::LAST)]), "it has a hole at byte 61440");
    }

    #[test]
    fn what_has_no_page_in_one_piece_is_refused() {
        let mut halves = [extent(0, 1, 100, 0); 2];
        (halves[0].len, halves[1].len) = (2048, 2048);
        (halves[1].logical, halves[1].physical) = (2048, 700 * PAGE_BYTES);
        assert!(reason(1, &halves).contains("no whole page"));
        assert!(reason(0, &[]).contains("no whole page"));
    }

    /// *The story:* `swap info` of a loop device with nothing behind it ended in a panic.
    #[test]
    fn a_device_is_one_extent_unless_it_is_empty() {
        let layout = Layout::of_device(10 * PAGE_BYTES + 512).unwrap();
        assert_eq!((layout.reported, layout.extents.runs().len(), layout.extents.pages()), (1, 1, 10));
        for bytes in [0, 4095] {
            assert!(Layout::of_device(bytes).is_err());
        }
    }
}
