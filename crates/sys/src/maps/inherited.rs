//! What children of fork get of mappings: nobody says so but /proc/thread-self/smaps, which looks at every
//! page of every mapping.

use core::ops::ControlFlow;

use super::{for_each_line, parse_line};
use crate::file::{self, Open};
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
                visit(mapping.clone(), share(flags));
            }
            ControlFlow::Continue(())
        });
        read.map(drop)
    }
}

fn share(flags: &[u8]) -> Share {
    let has = |name: &[u8]| flags.split(|byte| byte.is_ascii_whitespace()).any(|flag| flag == name);
    match (has(b"dc"), has(b"wf")) {
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
    use crate::mem::{Advice, Mapping, Prot};

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
        assert_eq!(share(b" rd wr dc ac"), Share::Nothing);
        assert_eq!(share(b" rd wr dcx awf "), Share::Content);
    }
}
