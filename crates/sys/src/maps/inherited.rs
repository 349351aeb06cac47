//! Which mappings children of fork get: nobody says so but /proc/thread-self/smaps, which looks at every
//! page of every mapping.

use core::ops::ControlFlow;

use super::{BUFFER_BYTES, for_each_line, parse_line};
use crate::file::{self, Open};
use crate::{AddressRange, Errno, Fd};

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

    /// Calls `visit` with every mapping that has a part in a range, in order, and with whether children
    /// get it: not if it is marked MADV_DONTFORK.
    pub fn for_each_in(
        &self,
        range: &AddressRange,
        buffer: &mut [u8; BUFFER_BYTES],
        mut visit: impl FnMut(AddressRange, bool),
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
                visit(mapping.clone(), !is_marked(flags));
            }
            ControlFlow::Continue(())
        });
        read.map(drop)
    }
}

fn is_marked(flags: &[u8]) -> bool {
    flags.split(|byte| byte.is_ascii_whitespace()).any(|flag| flag == b"dc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_SIZE;
    use crate::mem::{Advice, Mapping, Prot};

    #[test]
    fn what_is_marked_is_told() {
        let mapping = Mapping::anon(8 * PAGE_SIZE, Prot::RW).expect("mmap");
        let [second, fourth] = [2, 4].map(|page| mapping.page(page));
        // SAFETY: no content changes.
        unsafe { crate::mem::madvise(second..fourth, Advice::DontFork) }.expect("madvise");
        let (mut told, whole) = (Vec::new(), mapping.range());
        let inherited = Inherited::open().expect("smaps");
        let visit = |range: AddressRange, is| {
            told.push((range.start.max(whole.start), range.end.min(whole.end), is));
        };
        inherited.for_each_in(&whole, &mut [0; BUFFER_BYTES], visit).expect("smaps");
        let expected = [(whole.start, second, true), (second, fourth, false), (fourth, whole.end, true)];
        assert_eq!(told, expected);
        assert!(is_marked(b" rd wr dc ac") && !is_marked(b" rd wr dcx ac "));
    }
}
