//! Requests to the swap file: one for each `Read` or `Write` of `mm`, vectored over the staging frames of its pages.
//!
//! It keeps what the kernel needs while a request is under way and tells how each one ended; it knows nothing of pages.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::IoId;
use overspill_mm::types::Slot;
use overspill_sys::mem::IoVec;
use overspill_sys::uring::Cqe;
use overspill_sys::{Errno, Fd, PAGE_SIZE};

use crate::files::Files;
use crate::io::Io;

/// Largest number of pieces of one request: its pages, when no two of them lie in neighbouring frames.
const PIECES: usize = 256;

/// Bit of a tag: a write of the compressed pool.
const WRITE_BACK: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

struct Request {
    kind: Kind,
    /// Of the swap file, or of another one.
    fd: i32,
    offset: u64,
    /// What must arrive.
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
}

/// The requests under way, by their [`IoId`].
pub(crate) struct Transfers {
    file: Fd,
    files: Files,
    io: Io,
    requests: Vec<Request>,
    /// Ordered, but not taken by the device yet.
    backlog: VecDeque<IoId>,
    in_flight: u32,
}

impl Transfers {
    pub fn new(file: Fd, io: Io) -> Self {
        Transfers {
            file,
            files: Files::default(),
            io,
            requests: Vec::new(),
            backlog: VecDeque::new(),
            in_flight: 0,
        }
    }

    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The files beside the swap file.
    pub fn files(&mut self) -> &mut Files {
        &mut self.files
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
        let index = io.0 as usize;
        while self.requests.len() <= index {
            self.requests.push(Request { kind, fd: -1, offset: 0, bytes: 0, pieces: Vec::new() });
        }
        let request = &mut self.requests[index];
        request.kind = kind;
        let pieces = pieces.as_slice();
        request.pieces.clear();
        request.pieces.extend_from_slice(pieces);
        request.bytes = pieces.iter().map(|piece| piece.len).sum();
        (request.fd, request.offset) = (self.file.raw(), u64::from(slot) * PAGE_SIZE as u64);
        if Slot(slot).is_file() {
            let spot = self.files.spot(Slot(slot));
            (request.fd, request.offset) = (spot.fd, spot.offset);
            // The file's last page is a part of one.
            request.bytes = request.bytes.min(usize::try_from(spot.available).unwrap_or(usize::MAX));
        }
        self.in_flight += 1;
        if !self.backlog.is_empty() || !self.start(io) {
            self.backlog.push_back(io);
        }
    }

    /// Gives a request to the device; false when that takes no more now.
    fn start(&mut self, io: IoId) -> bool {
        // The pieces are not touched before the request ended: an IoId is unique while it is under way.
        let request = &self.requests[io.0 as usize];
        let write = request.kind == Kind::Write;
        self.io.order(write, request.fd, &request.pieces, request.offset, u64::from(io.0))
    }

    /// Orders a write of `pages` (at least one) pages at `address` to consecutive slots, for the compressed pool, which calls it
    /// `at`. False: the device takes no more now.
    pub fn write_back(&mut self, at: u32, slot: u32, address: usize, pages: u32) -> bool {
        let piece = IoVec { base: address, len: pages as usize * PAGE_SIZE };
        let tag = WRITE_BACK | u64::from(pages) << 32 | u64::from(at);
        let offset = u64::from(slot) * PAGE_SIZE as u64;
        let ordered = self.backlog.is_empty() && self.io.order(true, self.file.raw(), &[piece], offset, tag);
        self.in_flight += u32::from(ordered);
        ordered
    }

    /// Hands what was ordered to the kernel.
    pub fn submit(&mut self) {
        while let Some(&io) = self.backlog.front() {
            if !self.start(io) {
                break;
            }
            self.backlog.pop_front();
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
        let ended = self.io.pop()?;
        self.in_flight -= 1;
        if ended.user_data & WRITE_BACK != 0 {
            let (pages, at) = ((ended.user_data & !WRITE_BACK) >> 32, ended.user_data as u32);
            let outcome = outcome(&ended, pages as usize * PAGE_SIZE);
            return Some(Ended::WriteBack { at, pages: pages as u32, outcome });
        }
        let id = IoId(ended.user_data as u32);
        let request = &self.requests[id.0 as usize];
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
        Ok(done) if done as usize >= bytes && bytes > 0 => Ok(()),
        Ok(_) => Err(Errno::IO),
        Err(errno) => Err(errno),
    }
}
