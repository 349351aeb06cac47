//! Requests to the swap areas: one for each `Read` or `Write` of `mm`, vectored over the staging frames of its pages.
//!
//! Each area has its own queue of what the device does not take yet, so that a slow one keeps nobody waiting but its own. This module
//! keeps what the kernel needs while a request is under way and tells how each one ended; it knows nothing of pages.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::IoId;
use overspill_sys::mem::IoVec;
use overspill_sys::uring::Cqe;
use overspill_sys::{Errno, Fd, PAGE_SIZE};

use crate::io::{Io, Punched};

/// Largest number of pieces of one request: its pages, when no two of them lie in neighbouring frames.
const PIECES: usize = 256;

/// Bit of a tag: a write of the compressed pool.
const WRITE_BACK: u64 = 1 << 63;
/// Bit of a tag: slots whose blocks are given back.
const DISCARD: u64 = 1 << 62;

/// Requests that one area may have under way where there are several: the ring is for all of them.
const AREA_DEPTH: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

struct Request {
    kind: Kind,
    area: usize,
    offset: u64,
    bytes: usize,
    pieces: Vec<IoVec>,
}

/// The pieces of one request, neighbours joined.
pub(crate) struct Pieces {
    pieces: [IoVec; PIECES],
    count: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces { pieces: [IoVec { base: 0, len: 0 }; PIECES], count: 0 }
    }
}

impl Pieces {
    /// Adds `pages` pages that begin at an address.
    pub fn push(&mut self, address: usize, pages: u32) {
        let len = pages as usize * PAGE_SIZE;
        if let Some(last) = self.count.checked_sub(1).map(|last| &mut self.pieces[last])
            && last.base + last.len == address
        {
            last.len += len;
            return;
        }
        self.pieces[self.count] = IoVec { base: address, len };
        self.count += 1;
    }

    fn as_slice(&self) -> &[IoVec] {
        &self.pieces[..self.count]
    }
}

/// How a request ended.
pub(crate) enum Ended {
    /// A read; `Err` has the reason (a short read counts as EIO).
    Read(IoId, Result<(), Errno>),
    /// A write.
    Write(IoId, Result<(), Errno>),
    /// A write of the compressed pool; see [`Transfers::write_back`].
    WriteBack { at: u32, pages: u32, outcome: Result<(), Errno> },
    /// Blocks were given back, as far as that can be: the first of their slots.
    Discard(u32),
}

/// A swap area, and what it has to do.
struct Area {
    file: Fd,
    /// The number of its header among the slots of all areas.
    base: u32,
    in_flight: u32,
    /// Ordered, but not taken by the device yet.
    backlog: VecDeque<IoId>,
}

impl Area {
    fn offset_of(&self, slot: u32) -> u64 {
        u64::from(slot - self.base) * PAGE_SIZE as u64
    }
}

/// The requests under way, by their [`IoId`].
pub(crate) struct Transfers {
    /// In ascending order of their slots.
    areas: Vec<Area>,
    io: Io,
    requests: Vec<Request>,
    in_flight: u32,
    /// Blocks that were given back at once, by their first slot.
    discarded: VecDeque<u32>,
}

impl Transfers {
    pub fn new(io: Io) -> Self {
        Transfers { areas: Vec::new(), io, requests: Vec::new(), in_flight: 0, discarded: VecDeque::new() }
    }

    /// One more area, whose slots begin at `base`, above those of all others.
    pub fn add_area(&mut self, file: Fd, base: u32) {
        assert!(self.areas.last().is_none_or(|last| last.base < base), "areas come in order");
        self.areas.push(Area { file, base, in_flight: 0, backlog: VecDeque::new() });
    }

    fn area_of(&self, slot: u32) -> usize {
        let behind = self.areas.iter().take_while(|area| area.base <= slot).count();
        behind.checked_sub(1).expect("a slot lies in an area")
    }

    pub fn io(&self) -> &Io {
        &self.io
    }

    /// Orders a read of consecutive slots into `pieces`.
    pub fn read(&mut self, io: IoId, slot: u32, pieces: &Pieces) {
        self.order(Kind::Read, io, slot, pieces);
    }

    /// Orders a write of `pieces` to consecutive slots.
    pub fn write(&mut self, io: IoId, slot: u32, pieces: &Pieces) {
        self.order(Kind::Write, io, slot, pieces);
    }

    fn order(&mut self, kind: Kind, io: IoId, slot: u32, pieces: &Pieces) {
        let (index, area) = (io.0 as usize, self.area_of(slot));
        while self.requests.len() <= index {
            self.requests.push(Request { kind, area: 0, offset: 0, bytes: 0, pieces: Vec::new() });
        }
        let request = &mut self.requests[index];
        request.kind = kind;
        let pieces = pieces.as_slice();
        request.pieces.clear();
        request.pieces.extend_from_slice(pieces);
        request.bytes = pieces.iter().map(|piece| piece.len).sum();
        (request.area, request.offset) = (area, self.areas[area].offset_of(slot));
        self.in_flight += 1;
        if !self.areas[area].backlog.is_empty() || !self.start(io) {
            self.areas[area].backlog.push_back(io);
        }
    }

    /// Gives a request to the device; false when that takes no more now.
    fn start(&mut self, io: IoId) -> bool {
        // The pieces are not touched before the request ended: an IoId is unique while it is under way.
        let request = &self.requests[io.0 as usize];
        let write = request.kind == Kind::Write;
        let has_others = self.areas.len() > 1;
        let area = &mut self.areas[request.area];
        let may = !has_others || area.in_flight < AREA_DEPTH;
        let started =
            may && self.io.order(write, &area.file, &request.pieces, request.offset, u64::from(io.0));
        area.in_flight += u32::from(started);
        started
    }

    /// Orders a write of `pages` (at least one) pages at `address` to consecutive slots, for the compressed pool, which calls it
    /// `at`. False: the device takes no more now.
    pub fn write_back(&mut self, at: u32, slot: u32, address: usize, pages: u32) -> bool {
        let piece = IoVec { base: address, len: pages as usize * PAGE_SIZE };
        let tag = WRITE_BACK | u64::from(pages) << 32 | u64::from(at);
        let area = &self.areas[self.area_of(slot)];
        let may = area.backlog.is_empty();
        let ordered = may && self.io.order(true, &area.file, &[piece], area.offset_of(slot), tag);
        self.in_flight += u32::from(ordered);
        ordered
    }

    /// Gives the blocks of slots that nobody uses back to the file system; [`Ended::Discard`] follows.
    pub fn discard(&mut self, slot: u32, count: u32) {
        let area = &self.areas[self.area_of(slot)];
        let (offset, bytes) = (area.offset_of(slot), u64::from(count) * PAGE_SIZE as u64);
        match self.io.punch(&area.file, offset, bytes, DISCARD | u64::from(slot)) {
            Punched::Ordered => self.in_flight += 1,
            // Refused, the blocks stay: they are of use to the next pages.
            Punched::Done | Punched::Refused => self.discarded.push_back(slot),
        }
    }

    /// Hands what was ordered to the kernel.
    pub fn submit(&mut self) {
        for area in 0..self.areas.len() {
            while let Some(&io) = self.areas[area].backlog.front() {
                if !self.start(io) {
                    break;
                }
                self.areas[area].backlog.pop_front();
            }
        }
        self.io.submit();
    }

    /// Waits until a request ended or `timeout_ns` passed.
    pub fn wait(&mut self, timeout_ns: u64) {
        self.io.wait(timeout_ns);
    }

    /// Requests under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The next request that ended.
    pub fn next_ended(&mut self) -> Option<Ended> {
        if let Some(slot) = self.discarded.pop_front() {
            return Some(Ended::Discard(slot));
        }
        let ended = self.io.pop()?;
        self.in_flight -= 1;
        if ended.user_data & (WRITE_BACK | DISCARD) == DISCARD {
            // A file system that cannot keeps its blocks.
            return Some(Ended::Discard(ended.user_data as u32));
        }
        if ended.user_data & WRITE_BACK != 0 {
            let (pages, at) = ((ended.user_data & !WRITE_BACK) >> 32, ended.user_data as u32);
            let outcome = outcome(&ended, pages as usize * PAGE_SIZE);
            return Some(Ended::WriteBack { at, pages: pages as u32, outcome });
        }
        let id = IoId(ended.user_data as u32);
        let request = &self.requests[id.0 as usize];
        self.areas[request.area].in_flight -= 1;
        let outcome = outcome(&ended, request.bytes);
        Some(match request.kind {
            Kind::Read => Ended::Read(id, outcome),
            Kind::Write => Ended::Write(id, outcome),
        })
    }
}

/// How a request of so many bytes ended.
fn outcome(ended: &Cqe, bytes: usize) -> Result<(), Errno> {
    match ended.outcome() {
        Ok(done) if done as usize == bytes => Ok(()),
        Ok(_) => Err(Errno::IO),
        Err(errno) => Err(errno),
    }
}
