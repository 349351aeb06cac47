//! What a program says of mapped files: by the descriptor of one, or by a range of memory.
//!
//! The agent is told of what it manages, piece by piece, and the kernel of the rest: a file may be
//! mapped in part, in several places, or reach into memory that is the kernel's.

use core::mem::ManuallyDrop;
use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;

use linux_raw_sys::general::{
    __NR_madvise, MADV_DONTDUMP, MADV_FREE, MADV_HUGEPAGE, MADV_MERGEABLE, MADV_NOHUGEPAGE, MADV_NORMAL,
    MADV_RANDOM, MADV_REMOVE, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_WIPEONFORK,
};
use overspill_engine::file_table::FileRange;
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, file};

use crate::files::{self, Wish};
use crate::{huge, kept, withheld};

/// A descriptor's bytes are needed soon: those of its mappings that are managed are asked of the agent,
/// what is between them of the `kernel`. `None`: all of it is the kernel's to hear.
pub fn will_need(
    fd: i32,
    offset: u64,
    len: u64,
    kernel: impl Fn(Range<u64>) -> Result<(), Errno>,
) -> Option<Result<(), Errno>> {
    let shown = Shown::of(fd, offset, len)?;
    let mut asked = false;
    shown.each_range(|range| asked |= files::ask(Wish::WillNeed((range.start, range.end))).is_some());
    if !asked {
        return None;
    }
    if kept::bytes() > 0 {
        // It may be the kernel's in one place and managed in another.
        return Some(kernel(shown.bytes));
    }
    let mut outcome = Ok(());
    let mut at = shown.bytes.start;
    while let Some(gap) = shown.gap_from(at) {
        at = gap.end;
        outcome = outcome.and(kernel(gap));
    }
    Some(outcome)
}

/// How a descriptor's bytes will be used: as for [`advise`].
pub fn advise_file(fd: i32, offset: u64, len: u64, advice: u32) {
    if let Some(shown) = Shown::of(fd, offset, len) {
        shown.each_range(|range| _ = files::ask(Wish::Advise((range.start, range.end), advice)));
    }
}

/// Bytes of a file that may be mapped.
struct Shown {
    device: (u32, u32),
    inode: u64,
    bytes: Range<u64>,
}

impl Shown {
    /// Those of a descriptor; a length of 0: to its end. `None`: there are none, or nothing is mapped.
    fn of(fd: i32, offset: u64, len: u64) -> Option<Shown> {
        if files::table().is_empty() || fd < 0 {
            return None;
        }
        // SAFETY: the descriptor is the program's, and is not closed by this.
        let file = ManuallyDrop::new(unsafe { Fd::from_raw(fd) });
        let status = file::status(&file).ok()?;
        let end = if len == 0 { u64::MAX } else { offset.saturating_add(len) };
        let bytes = offset..end.min(status.len);
        (!bytes.is_empty()).then_some(Shown { device: status.device, inode: status.inode, bytes })
    }

    /// Calls `visit` with what a managed range shows of them: which bytes, and where.
    fn each_part(&self, mut visit: impl FnMut(Range<u64>, AddressRange)) {
        let table = files::table();
        table.each(|part: FileRange| {
            let mapped = table.file(part.file);
            let first = mapped.offset.load(SeqCst) + (part.page * PAGE_SIZE) as u64;
            let bytes = first.max(self.bytes.start)..(first + part.range.len() as u64).min(self.bytes.end);
            if bytes.is_empty() || !mapped.is(self.device, self.inode) {
                return;
            }
            let at = |byte: u64| part.range.start + (byte - first) as usize;
            let start = at(bytes.start) / PAGE_SIZE * PAGE_SIZE;
            let end = at(bytes.end).next_multiple_of(PAGE_SIZE);
            visit(bytes, start..end);
        });
    }

    /// Calls `visit` with each range, in the order of their places: the table changes while the agent is
    /// asked.
    ///
    /// *The story:* four were remembered, and the others left out, in silence.
    fn each_range(&self, mut visit: impl FnMut(AddressRange)) {
        let mut from = 0;
        loop {
            let mut next: Option<AddressRange> = None;
            self.each_part(|_, range| {
                if range.start >= from && next.as_ref().is_none_or(|next| range.start < next.start) {
                    next = Some(range);
                }
            });
            let Some(range) = next else { return };
            from = range.end;
            visit(range);
        }
    }

    /// The first bytes from `at` on that nobody manages.
    fn gap_from(&self, mut at: u64) -> Option<Range<u64>> {
        while at < self.bytes.end {
            let (mut covered, mut next) = (at, self.bytes.end);
            self.each_part(|bytes, _| {
                if bytes.contains(&at) {
                    covered = covered.max(bytes.end);
                } else if bytes.start > at {
                    next = next.min(bytes.start);
                }
            });
            if covered == at {
                return Some(at..next);
            }
            at = covered;
        }
        None
    }
}

/// madvise(2) of a range; `None`: as the kernel does it. What is wrong with a range is told as it tells
/// it: a start within a page at once, a gap (ENOMEM) when the rest is done.
///
/// *The story:* a range was done with when some of it was managed: the kernel was told nothing of the
/// rest, and nothing was ever wrong.
pub fn advise(start: usize, len: usize, advice: i32) -> Option<Result<(), Errno>> {
    let range = start..start.checked_add(len.checked_next_multiple_of(PAGE_SIZE)?)?;
    let table = files::table();
    if [MADV_DONTDUMP, MADV_RANDOM, MADV_SEQUENTIAL].contains(&(advice as u32)) {
        table.note_marks();
    }
    if table.is_empty() || !is_known(advice as u32) || !table.overlaps(&range) {
        return None;
    }
    if !start.is_multiple_of(PAGE_SIZE) {
        return Some(Err(Errno::INVAL));
    }
    let mut outcome = Ok(());
    let mut at = start;
    while at < range.end {
        let (end, is_managed) = piece(at, range.end);
        let told = if is_managed { tell(at, end, advice as u32) } else { tell_kernel(at, end, advice) };
        match told {
            Err(Errno::NOMEM) => outcome = told,
            Err(_) => return Some(told),
            Ok(()) => {}
        }
        at = end;
    }
    Some(outcome)
}

/// What is not asked of the kernel for a managed range.
fn is_known(advice: u32) -> bool {
    matches!(
        advice,
        MADV_WILLNEED
            | MADV_NORMAL
            | MADV_RANDOM
            | MADV_SEQUENTIAL
            | MADV_FREE
            | MADV_REMOVE
            | MADV_WIPEONFORK
            | MADV_HUGEPAGE
            | MADV_NOHUGEPAGE
            | MADV_MERGEABLE
    )
}

/// The end of the first piece of a range that is managed as a whole, or not at all, and which it is.
fn piece(at: usize, end: usize) -> (usize, bool) {
    let (mut managed, mut next) = (at, end);
    files::table().each(|part| {
        if part.range.contains(&at) {
            managed = managed.max(part.range.end.min(end));
        } else if part.range.start > at {
            next = next.min(part.range.start);
        }
    });
    if managed > at { (managed, true) } else { (next, false) }
}

fn tell(start: usize, end: usize, advice: u32) -> Result<(), Errno> {
    match advice {
        MADV_WILLNEED => _ = files::ask(Wish::WillNeed((start, end))),
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL => {
            let _ = files::ask(Wish::Advise((start, end), advice));
            // For who asks how it is marked, and for when the kernel has it again.
            return tell_kernel(start, end, advice as i32);
        }
        // As for any mapping of a file.
        //
        // *The story:* the kernel was asked, for which this is anonymous memory. MADV_WIPEONFORK succeeded,
        // and a child had zeroes for what had been stored (`torture file-advice`).
        MADV_FREE | MADV_WIPEONFORK => return Err(Errno::INVAL),
        // Holes are made through writable shared mappings. *The story:* it was EINVAL (`torture file-rare`).
        MADV_REMOVE => return Err(Errno::ACCESS),
        _ => {}
    }
    Ok(())
}

fn tell_kernel(start: usize, end: usize, advice: i32) -> Result<(), Errno> {
    if advice as u32 == MADV_HUGEPAGE {
        huge::note();
    }
    withheld::note_advice(advice);
    // SAFETY: it is what the program has called, for a part of its range.
    unsafe { overspill_sys::call(__NR_madvise, [start, end - start, advice as usize, 0, 0, 0]).map(drop) }
}
