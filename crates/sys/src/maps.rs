//! The mappings of this process, from /proc/thread-self/maps or by the PROCMAP_QUERY command
//! (6.11). (/proc/self is that of the first thread: it is empty once that one has ended, though
//! others go on.)
//!
//! It never allocates: lines are read into the caller's buffer and handed on one by one, so the list may
//! change while it is read; each line is true at some moment, and no mapping that stays is missed. Neighbours
//! with the same properties are one mapping to the kernel, whoever made them: check addresses, never whole
//! lines.

mod inherited;
mod parse;

pub use inherited::{Inherited, Share};
pub use parse::parse_line;

use crate::file::{self, Open};
use crate::mem::Prot;
use crate::raw::{IOC_READ, IOC_WRITE, ioctl_number};
use crate::{AddressRange, Errno, Fd};
use core::ops::ControlFlow;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma<'a> {
    /// First address.
    pub start: usize,
    /// End.
    pub end: usize,
    /// What it may be used for.
    pub prot: Prot,
    /// Stores are shared with others.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device of the file, major and minor; (0, 0) without one, or for a file that only lives in memory.
    pub device: (u32, u32),
    /// Number of the file; 0 for anonymous memory.
    pub inode: u64,
    /// What the kernel calls it.
    pub name: Name<'a>,
}

impl Vma<'_> {
    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> AddressRange {
        self.start..self.end
    }

    /// Private memory without a file: what can be managed (special mappings excepted).
    #[must_use]
    pub fn is_private_anonymous(&self) -> bool {
        let plain = matches!(self.name, Name::Anonymous | Name::Heap | Name::Stack | Name::Named(_));
        plain && !self.shared && self.inode == 0 && self.device == (0, 0)
    }
}

/// What the kernel calls a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// No name.
    Anonymous,
    /// Anonymous with a name the program gave it (`[anon:...]`, `[anon_shmem:...]`), which may hold any
    /// character.
    Named(&'a [u8]),
    /// `[heap]`: the brk area. Only the part that overlaps it; a split-off part may have no name.
    Heap,
    /// `[stack]`: of the first thread.
    Stack,
    /// `[vdso]`, `[vvar]`, `[vsyscall]`, `[uprobes]`, ...: the kernel's own, hands off.
    Special(&'a [u8]),
    /// A path. Escapes (`\012`) are left as they are, and ` (deleted)` is cut off.
    File {
        /// The path.
        path: &'a [u8],
        /// It has no name any more (also memory files and shared anonymous memory).
        deleted: bool,
    },
    /// Anything else, such as `anon_inode:[io_uring]`.
    Other(&'a [u8]),
}

/// A buffer this long holds any line with a path of ordinary length; of a longer line only the name is cut.
pub const BUFFER_BYTES: usize = 4096;
/// Where the stack may be small: it holds any name but that of a file with a long path, which is cut.
pub const SHORT_BUFFER_BYTES: usize = 512;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct QueryArgument {
    size: u64,
    query_flags: u64,
    query_address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device_major: u32,
    device_minor: u32,
    name_bytes: u32,
    build_id_bytes: u32,
    name_address: u64,
    build_id_address: u64,
}
const _: () = assert!(size_of::<QueryArgument>() == 104);
const PROCMAP_QUERY: u32 = ioctl_number(IOC_READ | IOC_WRITE, b'f', 17, size_of::<QueryArgument>());
/// Our own mark in `name_bytes`.
const NAME_LEFT_OUT: u32 = u32::MAX;
const QUERY_COVERING_OR_NEXT: u64 = 0x10;
const VMA_READ: u64 = 0x01;
const VMA_WRITE: u64 = 0x02;
const VMA_EXEC: u64 = 0x04;
const VMA_SHARED: u64 = 0x08;

/// This process's list of mappings.
#[derive(Debug)]
pub struct Maps {
    fd: Fd,
}

impl Maps {
    /// Opens it.
    pub fn open() -> Result<Maps, Errno> {
        Ok(Maps { fd: file::open(c"/proc/thread-self/maps", Open::empty())? })
    }

    /// Calls `visit` with every mapping in order of address, until it breaks. `visit` may map and unmap.
    pub fn for_each<B>(
        &self,
        buffer: &mut [u8],
        mut visit: impl FnMut(&Vma<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, Errno> {
        for_each_line(&self.fd, buffer, |line| match parse_line(line) {
            Some(vma) => visit(&vma),
            None => ControlFlow::Continue(()),
        })
    }

    /// Shows `visit` the mapping at `address`, or with `or_next` the first one behind it; `None` when there
    /// is none. By PROCMAP_QUERY (6.11), otherwise by reading the list. A name longer than the buffer is left
    /// out (ENAMETOOLONG turns into an empty [`Name::Other`]).
    pub fn query<B>(
        &self,
        address: usize,
        or_next: bool,
        buffer: &mut [u8],
        visit: impl FnOnce(&Vma<'_>) -> B,
    ) -> Result<Option<B>, Errno> {
        match self.query_by_command(address, or_next, buffer) {
            Err(Errno::NOTTY) => self.query_by_list(address, or_next, buffer, visit),
            other => Ok(other?.map(|argument| visit(&argument.vma(buffer)))),
        }
    }

    /// The older way of [`Maps::query`].
    fn query_by_list<B>(
        &self,
        address: usize,
        or_next: bool,
        buffer: &mut [u8],
        visit: impl FnOnce(&Vma<'_>) -> B,
    ) -> Result<Option<B>, Errno> {
        let mut visit = Some(visit);
        let found = self.for_each(buffer, |vma| {
            if vma.end <= address {
                return ControlFlow::Continue(());
            }
            let wanted = vma.start <= address || or_next;
            ControlFlow::Break(visit.take().filter(|_| wanted).map(|visit| visit(vma)))
        })?;
        Ok(found.break_value().flatten())
    }

    fn query_by_command(
        &self,
        address: usize,
        or_next: bool,
        buffer: &mut [u8],
    ) -> Result<Option<QueryArgument>, Errno> {
        let ask = |name_bytes: usize, name_address: u64| {
            let mut argument = QueryArgument {
                size: size_of::<QueryArgument>() as u64,
                query_flags: if or_next { QUERY_COVERING_OR_NEXT } else { 0 },
                query_address: address as u64,
                name_bytes: name_bytes as u32,
                name_address,
                ..QueryArgument::default()
            };
            // SAFETY: the structure is the command's, and it names an exclusive buffer.
            unsafe { self.fd.ioctl(PROCMAP_QUERY, &raw mut argument).map(|_| argument) }
        };
        let answer = match ask(buffer.len(), buffer.as_mut_ptr() as u64) {
            Err(Errno::NAMETOOLONG) => {
                ask(0, 0).map(|argument| QueryArgument { name_bytes: NAME_LEFT_OUT, ..argument })
            }
            other => other,
        };
        match answer {
            Ok(argument) => Ok(Some(argument)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Calls `visit` with every line of a file under /proc, until it breaks; of one that does not fit in the
/// buffer with what fits.
fn for_each_line<B>(
    fd: &Fd,
    buffer: &mut [u8],
    mut visit: impl FnMut(&[u8]) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, Errno> {
    let (mut filled, mut offset, mut skipping) = (0, 0, false);
    loop {
        let read = file::pread(fd, &mut buffer[filled..], offset)?;
        if read == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        offset += read as u64;
        filled += read;
        let mut used = 0;
        while let Some(len) = buffer[used..filled].iter().position(|&byte| byte == b'\n') {
            if !core::mem::take(&mut skipping)
                && let ControlFlow::Break(value) = visit(&buffer[used..used + len])
            {
                return Ok(ControlFlow::Break(value));
            }
            used += len + 1;
        }
        if used == 0 && filled == buffer.len() {
            // One line fills the buffer: all but the end of its name is here. Drop what follows up to its
            // end.
            if !skipping && let ControlFlow::Break(value) = visit(&buffer[..filled]) {
                return Ok(ControlFlow::Break(value));
            }
            skipping = true;
            used = filled;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}

impl QueryArgument {
    /// The answer; its name is in `buffer`, with a final NUL.
    fn vma<'a>(&self, buffer: &'a [u8]) -> Vma<'a> {
        let pick = |bit: u64, prot: Prot| if self.flags & bit != 0 { prot } else { Prot::empty() };
        let name = match self.name_bytes {
            NAME_LEFT_OUT => Name::Other(b""),
            len => parse::name(&buffer[..(len as usize).saturating_sub(1)]),
        };
        Vma {
            start: self.start as usize,
            end: self.end as usize,
            prot: pick(VMA_READ, Prot::READ) | pick(VMA_WRITE, Prot::WRITE) | pick(VMA_EXEC, Prot::EXEC),
            shared: self.flags & VMA_SHARED != 0,
            offset: self.offset,
            device: (self.device_major, self.device_minor),
            inode: self.inode,
            name,
        }
    }
}
