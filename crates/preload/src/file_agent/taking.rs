//! What the kernel kept while it fitted ([`kept`]) is managed from now on.
//!
//! The program may read it all the while. So the managed memory is made elsewhere, complete, and moved
//! over the mapping in one call, for which nobody can see a state in between: until then a touch finds
//! the kernel's page, from then on it waits for the same bytes. What lies there is asked again in the
//! agent's turn, in which no call of libc changes it. What cannot be taken is the kernel's for good, and
//! is said.

use alloc::ffi::CString;
use alloc::format;
use core::fmt::Display;

use linux_raw_sys::general::PROT_READ;
use overspill_engine::report::Left;
use overspill_engine::{Engine, Source};
use overspill_sys::file::{self, Open};
use overspill_sys::maps::{BUFFER_BYTES, Maps, Name, Vma};
use overspill_sys::mem::{self, Prot};
use overspill_sys::pagemap::Query;
use overspill_sys::{AddressRange, Fd, PAGE_SIZE};

use super::{Line, Refusal};
use crate::{files, kept, remap};

/// A part of a file as the kernel has it mapped.
#[derive(Clone, PartialEq, Eq)]
struct Piece {
    range: AddressRange,
    /// All of the mapping.
    mapping: AddressRange,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    shared: bool,
    /// Its name, if it has one.
    path: Option<CString>,
}

impl Piece {
    /// What of a mapping is in a range; `None`: it is no mapping of a file for reading.
    fn of(vma: &Vma<'_>, within: &AddressRange) -> Option<Piece> {
        let Name::File { path, deleted } = vma.name else { return None };
        if vma.prot != Prot::READ {
            return None;
        }
        let range = vma.start.max(within.start)..vma.end.min(within.end);
        let offset = vma.offset + (range.start - vma.start) as u64;
        let path = if deleted { None } else { CString::new(path).ok() };
        let (device, inode, shared) = (vma.device, vma.inode, vma.shared);
        Some(Piece { range, mapping: vma.range(), offset, device, inode, shared, path })
    }

    /// Its file, opened anew: what is mapped there, by privilege, or what has its name and is the same.
    fn open(&self) -> Result<Fd, Refusal> {
        let AddressRange { start, end } = self.mapping;
        let link = CString::new(format!("/proc/self/map_files/{start:x}-{end:x}"));
        if let Some(opened) = link.ok().and_then(|link| file::open(&link, Open::empty()).ok()) {
            return Ok(opened);
        }
        let by_name = self.path.as_ref().and_then(|path| file::open(path, Open::NON_BLOCKING).ok());
        let is_same = |fd: &Fd| {
            file::status(fd).is_ok_and(|found| (found.device, found.inode) == (self.device, self.inode))
        };
        by_name.filter(is_same).ok_or(Refusal(Left::Other, "it cannot be opened again"))
    }
}

/// The first mapping at or behind an address: where it ends, and what of it can be taken.
fn look(maps: &Maps, at: usize, within: &AddressRange) -> Option<(usize, Option<Piece>)> {
    let seen = |vma: &Vma<'_>| (vma.start, vma.end, Piece::of(vma, within));
    let (start, end, piece) = maps.query(at, true, &mut [0; BUFFER_BYTES], seen).ok()??;
    (start < within.end).then_some((end, piece))
}

/// Manages what the kernel keeps of a range. False: some of it is changing, and is to be tried again.
pub fn take(engine: &mut Engine, range: &AddressRange, say: &impl Fn(&dyn Display)) -> bool {
    let Ok(maps) = Maps::open() else { return false };
    let mut from = range.start;
    let mut is_done = true;
    while let Some(part) = kept::next(from).filter(|part| part.start < range.end) {
        from = part.end;
        is_done &= take_part(engine, &maps, part.start..part.end.min(range.end), say);
    }
    is_done
}

fn take_part(engine: &mut Engine, maps: &Maps, part: AddressRange, say: &impl Fn(&dyn Display)) -> bool {
    let mut at = part.start;
    while at < part.end
        && let Some((end, piece)) = look(maps, at, &part)
    {
        at = end;
        let Some(piece) = piece else { continue };
        match take_piece(engine, maps, &piece) {
            Ok(true) => engine.report().note_file(piece.range.len() as u64),
            Ok(false) => return false,
            Err(Refusal(reason, why)) => {
                kept::forget(&piece.range);
                engine.report().note_file_left(reason, piece.range.len() as u64);
                let mib = piece.range.len() >> 20;
                say(&Line { file: piece.open().ok(), mib, why });
            }
        }
    }
    // What lies behind the file's end, or was changed by calls that nobody saw, stays as it is.
    kept::forget(&part);
    true
}

/// False: it is not there any more as it was, or nobody could be kept from changing it.
fn take_piece(engine: &mut Engine, maps: &Maps, piece: &Piece) -> Result<bool, Refusal> {
    let source = super::source(engine, &piece.open()?, PROT_READ, piece.shared, piece.offset)?;
    let index = source.program.as_ref().expect("a program's mapping has a place").index;
    let taken = cover(engine, maps, piece, source);
    if !matches!(taken, Ok(true)) {
        files::table().give_back(index);
    }
    taken
}

fn cover(engine: &mut Engine, maps: &Maps, piece: &Piece, source: Source) -> Result<bool, Refusal> {
    if engine.pagemap().has_any(piece.range.clone(), Query::OWN_CONTENT)? {
        return Err(Refusal(Left::Writable, "it was stored to"));
    }
    let in_file = source.len.saturating_sub(source.offset).next_multiple_of(PAGE_SIZE as u64);
    let len = usize::try_from(in_file).unwrap_or(usize::MAX).min(piece.range.len());
    if len == 0 {
        return Err(Refusal(Left::Other, "nothing of it is there"));
    }
    let start = mem::map_for_program(0, len)?;
    let made = start..start + len;
    let is_made = engine.register(made.clone()).and_then(|()| engine.add_file(made.clone(), source));
    if let Err(errno) = is_made {
        engine.unmap_unknown(made);
        return Err(errno.into());
    }
    engine.await_idle_helper();
    let turn = remap::Turn::take(|| engine.handle_changes());
    let is_there =
        || look(maps, piece.range.start, &piece.range).is_some_and(|(_, now)| now.as_ref() == Some(piece));
    let is_moved = turn.is_alone() && is_there() && engine.move_over(made.clone(), piece.range.start);
    if is_moved {
        // In the turn: a call that follows finds it managed.
        kept::forget(&piece.range);
    }
    drop(turn);
    if !is_moved {
        engine.remove_file(made.clone());
        engine.unmap_unknown(made);
    }
    Ok(is_moved)
}
