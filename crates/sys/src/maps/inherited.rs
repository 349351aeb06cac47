//! What children of fork get of mappings, and what else madvise has marked them as: nobody says so but
//! /proc/thread-self/smaps, which looks at every page of every mapping.

use core::ops::ControlFlow;

use super::{for_each_line, parse_line};
use crate::file::{self, Open};
use crate::mem::Advice;
use crate::{AddressRange, Errno, Fd};

/// What a child gets of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All.
    Content,
    /// The mapping, with zeroes: it is marked MADV_WIPEONFORK.
    Zeroes,
    /// Not even the mapping: it is marked MADV_DONTFORK.
    Nothing,
}

/// The list.
#[derive(Debug)]
pub struct Inherited {
    fd: Fd,
}

impl Inherited {
    /// Opens it.
    pub fn open() -> Result<Inherited, Errno> {
        Ok(Inherited { fd: file::open(c"/proc/thread-self/smaps", Open::empty())? })
    }

    /// Calls `visit` with every mapping that has a part in a range, in order, and with what children
    /// get of it.
    pub fn for_each_in(
        &self,
        range: &AddressRange,
        buffer: &mut [u8],
        mut visit: impl FnMut(AddressRange, Share),
    ) -> Result<(), Errno> {
        self.for_each_flags_in(range, buffer, |mapping, flags| visit(mapping, share(flags)))
    }

    /// Calls `visit` with each mapping that has a part in a range and each thing that it is marked as by
    /// madvise, whatever its content and its children.
    pub fn for_each_mark_in(
        &self,
        range: &AddressRange,
        buffer: &mut [u8],
        mut visit: impl FnMut(AddressRange, Advice),
    ) -> Result<(), Errno> {
        self.for_each_flags_in(range, buffer, |mapping, flags| {
            let marks = MARKS.iter().filter(|(name, _)| has(flags, name));
            marks.for_each(|&(_, advice)| visit(mapping.clone(), advice));
        })
    }

    fn for_each_flags_in(
        &self,
        range: &AddressRange,
        buffer: &mut [u8],
        mut visit: impl FnMut(AddressRange, &[u8]),
    ) -> Result<(), Errno> {
        let mut mapping = 0..0;
        let read = for_each_line(&self.fd, buffer, |line| {
            if let Some(vma) = parse_line(line) {
                mapping = vma.range();
                if mapping.start >= range.end {
                    return ControlFlow::Break(());
                }
            } else if let Some(flags) = line.strip_prefix(b"VmFlags:")
                && mapping.end > range.start
            {
                visit(mapping.clone(), flags);
            }
            ControlFlow::Continue(())
        });
        read.map(drop)
    }
}

/// What the kernel calls them.
const MARKS: [(&[u8], Advice); 3] =
    [(b"dd", Advice::DontDump), (b"rr", Advice::Random), (b"sr", Advice::Sequential)];

fn has(flags: &[u8], name: &[u8]) -> bool {
    flags.split(|byte| byte.is_ascii_whitespace()).any(|flag| flag == name)
}

fn share(flags: &[u8]) -> Share {
    match (has(flags, b"dc"), has(flags, b"wf")) {
        (true, _) => Share::Nothing,
        (_, true) => Share::Zeroes,
        _ => Share::Content,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_SIZE;
    use crate::maps::BUFFER_BYTES;
    use crate::mem::{Mapping, Prot};

    #[test]
    fn what_is_marked_is_told() {
        let mapping = Mapping::anon(8 * PAGE_SIZE, Prot::RW).expect("mmap");
        let [second, fourth, sixth] = [2, 4, 6].map(|page| mapping.page(page));
        // SAFETY: no content changes.
        unsafe { crate::mem::madvise(second..fourth, Advice::DontFork) }.expect("madvise");
        // SAFETY: as above.
        unsafe { crate::mem::madvise(fourth..sixth, Advice::WipeOnFork) }.expect("madvise");
        let (mut told, whole) = (Vec::new(), mapping.range());
        let inherited = Inherited::open().expect("smaps");
        let visit = |range: AddressRange, share| {
            told.push((range.start.max(whole.start), range.end.min(whole.end), share));
        };
        inherited.for_each_in(&whole, &mut [0; BUFFER_BYTES], visit).expect("smaps");
        let expected = [
            (whole.start, second, Share::Content),
            (second, fourth, Share::Nothing),
            (fourth, sixth, Share::Zeroes),
            (sixth, whole.end, Share::Content),
        ];
        assert_eq!(told, expected);
        // SAFETY: as above.
        unsafe { crate::mem::madvise(second..sixth, Advice::DontDump) }.expect("madvise");
        // SAFETY: as above.
        unsafe { crate::mem::madvise(fourth..sixth, Advice::Random) }.expect("madvise");
        let mut marks = Vec::new();
        let inherited = Inherited::open().expect("smaps");
        let visit = |range: AddressRange, advice| marks.push((range.start, range.end, advice));
        inherited.for_each_mark_in(&(second..sixth), &mut [0; BUFFER_BYTES], visit).expect("smaps");
        let expected = [
            (second, fourth, Advice::DontDump),
            (fourth, sixth, Advice::DontDump),
            (fourth, sixth, Advice::Random),
        ];
        assert_eq!(marks, expected);
        assert_eq!(share(b" rd wr dc ac"), Share::Nothing);
        assert_eq!(share(b" rd wr dcx awf "), Share::Content);
    }
}
