//! Where an area lies on its device, and whether a direct transfer finds it there. What the file
//! system tells (FIEMAP) is judged part by part, in the order of the file: the first reason counts
//! (specification 3.3). Where it tells nothing of that kind it is asked block by block (FIBMAP), as
//! the kernel does.
//!
//! Asking and judging are apart. [`Judge`] and [`by_blocks`] read nothing, so that what only some
//! file systems have can be tried on any.

use overspill_mm::swap::extents::Extents;
use overspill_mm::swap::extents::packing::{Packer, Unfit, probe};
use overspill_mm::swap::header::HEADER_BYTES;
use overspill_sys::file::{self, BTRFS_MAGIC, EXTENTS_MAX, Extent};
use overspill_sys::{Errno, Fd};
use serde::Serialize;

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

/// Who told where an area lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Nobody had to: a device is one piece.
    Device,
    /// The file system, extent by extent.
    Fiemap,
    /// The file system, block by block.
    Fibmap,
}

impl Source {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Source::Device => "nobody: a device is one piece",
            Source::Fiemap => "the file system, extent by extent (FIEMAP)",
            Source::Fibmap => "the file system, block by block (FIBMAP)",
        }
    }
}

/// Where an area lies on its device.
#[derive(Debug)]
pub struct Layout {
    /// Who told it.
    pub told_by: Source,
    /// Extents as the file system tells them; runs of blocks, if it tells these.
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
        Ok(Layout { told_by: Source::Device, reported: 1, extents })
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
                Err(Errno::OPNOTSUPP | Errno::NOTTY) => return Layout::of_blocks(fd, bytes),
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

    /// Asks a file system that tells no extents, block by block.
    fn of_blocks(fd: &Fd, bytes: u64) -> Result<Layout, Refused> {
        file::sync(fd)?;
        let block_bytes = file::block_bytes(fd).map_err(no_block)?;
        match by_blocks(bytes, block_bytes, |block| file::device_block(fd, block)) {
            // The header is there. FUSE that lies on no device says this of every block.
            Err(Refused::Unfit(Unfit::Hole(0))) => Err(Refused::NoExtents),
            layout => layout,
        }
    }
}

/// Why a file system did not tell of a block.
fn no_block(errno: Errno) -> Refused {
    match errno {
        Errno::PERM => Refused::NoRight,
        // It has no blocks, or one lies further away than the answer has room for.
        Errno::INVAL | Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::RANGE => Refused::NoExtents,
        errno => errno.into(),
    }
}

/// The layout of a file of so many bytes whose blocks are told of one by one.
fn by_blocks(
    bytes: u64,
    block_bytes: u32,
    mut ask: impl FnMut(u32) -> Result<Option<u32>, Errno>,
) -> Result<Layout, Refused> {
    if !block_bytes.is_power_of_two() {
        return Err(Refused::NoExtents);
    }
    // A block of several pages is taken for as many blocks.
    let shift = block_bytes.trailing_zeros().min(PAGE_BYTES.trailing_zeros());
    let a_block = u64::from(block_bytes >> shift);
    let (mut failed, mut reported, mut seen, mut next) = (None, 0, 0, None);
    let found = probe(bytes >> shift, shift, |block| {
        let number = u32::try_from(block / a_block).map_err(|_| Errno::RANGE);
        let place = number.and_then(&mut ask).unwrap_or_else(|errno| {
            failed = Some(errno);
            None
        })?;
        let place = u64::from(place) * a_block + block % a_block;
        // A page that does not fit is tried again one block later, and its blocks are asked for again.
        if block == seen {
            reported += u64::from(next != Some(place));
            (seen, next) = (block + 1, Some(place + 1));
        }
        Some(place)
    });
    if let Some(errno) = failed {
        return Err(no_block(errno));
    }
    Ok(Layout { told_by: Source::Fibmap, reported, extents: found.map_err(Refused::Unfit)? })
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
        let extents = self.packer.finish(pages).map_err(Refused::Unfit)?;
        Ok(Layout { told_by: Source::Fiemap, reported: self.reported, extents })
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

    /// Blocks of 1 KiB: two pages, a block that begins none, and a page elsewhere.
    const PLACES: [u32; 13] = [8, 9, 10, 11, 12, 13, 14, 15, 3, 100, 101, 102, 103];

    /// *The story:* what a file system without FIEMAP has was refused, and the rules for it lay unused.
    #[test]
    fn blocks_make_a_map_where_no_extents_are_told() {
        let place = |block: u32| Ok(PLACES.get(block as usize).copied());
        let layout = by_blocks(PLACES.len() as u64 * 1024 + 300, 1024, place).unwrap();
        assert_eq!((layout.told_by, layout.reported), (Source::Fibmap, 3));
        let runs: Vec<_> = layout.extents.runs().iter().map(|run| (run.page, run.count, run.block)).collect();
        assert_eq!(runs, [(0, 2, 2), (2, 1, 25)]);
        // What is asked for twice, as a page that begins well goes on elsewhere, counts once.
        let places = [4, 5, 9, 8, 9, 10, 11];
        let layout = by_blocks(7 * 1024, 1024, |block| Ok(Some(places[block as usize]))).unwrap();
        assert_eq!((layout.reported, layout.extents.pages()), (3, 1));
        // Blocks of four pages.
        let layout = by_blocks(3 << 14, 1 << 14, |block| Ok(Some([7, 8, 2][block as usize]))).unwrap();
        let runs: Vec<_> = layout.extents.runs().iter().map(|run| (run.page, run.count, run.block)).collect();
        assert_eq!((layout.reported, &runs[..]), (2, &[(0, 8, 28), (8, 4, 8)][..]));
    }

    #[test]
    fn what_is_told_of_no_block_is_refused_with_its_reason() {
        let reason = |bytes, ask: &dyn Fn(u32) -> Result<Option<u32>, Errno>| {
            by_blocks(bytes, 1024, ask).expect_err("it is refused").to_string()
        };
        assert_eq!(
            reason(20_480, &|block| Ok(PLACES.get(block as usize).copied())),
            "it has a hole at byte 13312"
        );
        assert!(reason(20_480, &|_| Err(Errno::PERM)).contains("CAP_SYS_RAWIO"));
        let silent = [Errno::INVAL, Errno::NOTTY, Errno::RANGE];
        assert!(silent.iter().all(|&errno| reason(20_480, &|_| Err(errno)).contains("does not tell")));
        let fails_late = |block| if block < 9 { Ok(Some(block + 4)) } else { Err(Errno::IO) };
        assert!(reason(20_480, &fails_late).contains("os error 5"), "not a hole");
        assert!(reason(20_480, &|block| Ok(Some(2 * block + 1))).contains("no whole page"));
        assert!(reason(1024, &|_| Ok(Some(4))).contains("no whole page"));
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
