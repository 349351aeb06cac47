//! Records as columns of variable-length integers, and back.
//!
//! Each block stands by itself: differences begin anew in it. A column is its length as a varint,
//! then its bytes. Decoding trusts nothing: lengths, counts and numbers are checked, and what is
//! left over is an error.

use super::layout::BlockKind;
use crate::trace::record::{
    AccessKind, AccessRecord, FileOp, FileRecord, NameRecord, PagerOp, PagerRecord, Record,
};
use crate::workload::RegionSpec;
use overspill_mm::types::RegionKind;

/// Columns of a block, whatever its kind; unused ones stay empty.
#[derive(Debug, Default)]
pub struct Columns {
    columns: [Vec<u8>; 6],
    /// Threads change seldom: runs of (count, thread, space).
    run: u64,
    last: Last,
}

/// What differences are taken from.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    time_ns: u64,
    vpn: u64,
    thread: u32,
    space: u16,
    offset: u64,
}

const TIMES: usize = 0;
const THREADS: usize = 1;
const PAGES: usize = 2;
const KINDS: usize = 3;
const ARGUMENTS: usize = 4;
const EXTRAS: usize = 5;

/// Appends `value`, 7 bits a byte, lowest first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `to - from` (wrapping), small for small steps either way.
fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put_varint(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

impl Columns {
    /// Bytes so far, about.
    pub fn size(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// Adds a record of the block's kind. Times must not fall.
    pub fn push(&mut self, record: &Record) {
        match record {
            Record::Access(access) => {
                self.push_place(access.time_ns, access.thread, access.space);
                put_difference(&mut self.columns[PAGES], self.last.vpn, access.vpn);
                self.last.vpn = access.vpn;
                self.columns[KINDS].push(access.kind as u8);
            }
            Record::Pager(event) => {
                self.push_place(event.time_ns, event.thread, event.space);
                put_difference(&mut self.columns[PAGES], self.last.vpn, event.vpn);
                self.last.vpn = event.vpn;
                self.columns[KINDS].push(event.op as u8);
                put_varint(&mut self.columns[ARGUMENTS], event.argument);
            }
            Record::File(call) => {
                self.push_place(call.time_ns, call.thread, 0);
                put_difference(&mut self.columns[PAGES], self.last.offset, call.offset);
                self.last.offset = call.offset.wrapping_add(call.bytes);
                self.columns[KINDS].push(call.op as u8);
                put_varint(&mut self.columns[ARGUMENTS], call.bytes);
                put_varint(&mut self.columns[EXTRAS], u64::from(call.file));
            }
            Record::Name(name) => {
                put_varint(&mut self.columns[ARGUMENTS], u64::from(name.id));
                put_varint(&mut self.columns[PAGES], name.text.len() as u64);
                self.columns[EXTRAS].extend_from_slice(name.text.as_bytes());
            }
            Record::Region(region) => {
                put_difference(&mut self.columns[PAGES], self.last.vpn, region.start);
                self.last.vpn = region.end;
                put_varint(&mut self.columns[ARGUMENTS], region.end - region.start);
                put_varint(&mut self.columns[EXTRAS], u64::from(region.space));
                self.columns[KINDS].push(u8::from(region.kind == RegionKind::Shared));
            }
        }
    }

    fn push_place(&mut self, time_ns: u64, thread: u32, space: u16) {
        put_varint(&mut self.columns[TIMES], time_ns - self.last.time_ns);
        self.last.time_ns = time_ns;
        if self.run > 0 && (thread, space) != (self.last.thread, self.last.space) {
            self.end_run();
        }
        (self.last.thread, self.last.space) = (thread, space);
        self.run += 1;
    }

    fn end_run(&mut self) {
        let threads = &mut self.columns[THREADS];
        put_varint(threads, self.run);
        put_varint(threads, u64::from(self.last.thread));
        put_varint(threads, u64::from(self.last.space));
        self.run = 0;
    }

    /// The payload; the columns are empty afterwards.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        if self.run > 0 {
            self.end_run();
        }
        for column in &mut self.columns {
            put_varint(out, column.len() as u64);
            out.append(column);
        }
        self.last = Last::default();
    }
}

/// Bytes being taken apart.
struct Bytes<'a> {
    rest: &'a [u8],
}

const SHORT: &str = "a column ends too early";
const LONG: &str = "a number is too large";

impl<'a> Bytes<'a> {
    #[inline]
    fn varint(&mut self) -> Result<u64, &'static str> {
        // The common case first: one byte.
        if let Some((&first, rest)) = self.rest.split_first()
            && first < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(LONG);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(LONG)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (&first, rest) = self.rest.split_first().ok_or(SHORT)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    fn difference(&mut self, from: u64) -> Result<u64, &'static str> {
        let folded = self.varint()?;
        let difference = ((folded >> 1) as i64) ^ -((folded & 1) as i64);
        Ok(from.wrapping_add(difference as u64))
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], &'static str> {
        let count = usize::try_from(count).ok().filter(|&count| count <= self.rest.len()).ok_or(SHORT)?;
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, &'static str> {
        T::try_from(self.varint()?).map_err(|_| LONG)
    }
}

/// A block's columns on their way back to records.
struct Decoder<'a> {
    columns: [Bytes<'a>; 6],
    run: u64,
    last: Last,
}

/// Takes a payload of `records` records apart and gives each to `visit`.
pub fn decode(
    kind: BlockKind,
    records: u32,
    payload: &[u8],
    mut visit: impl FnMut(Record),
) -> Result<(), &'static str> {
    let mut bytes = Bytes { rest: payload };
    let mut column = || {
        let length = bytes.varint()?;
        Ok::<_, &'static str>(Bytes { rest: bytes.take(length)? })
    };
    let columns = [column()?, column()?, column()?, column()?, column()?, column()?];
    if !bytes.rest.is_empty() {
        return Err("there are bytes behind the last column");
    }
    let mut decoder = Decoder { columns, run: 0, last: Last::default() };
    for _ in 0..records {
        visit(decoder.record(kind)?);
    }
    if decoder.run > 0 || decoder.columns.iter().any(|column| !column.rest.is_empty()) {
        return Err("a column is longer than its records");
    }
    Ok(())
}

impl Decoder<'_> {
    #[inline]
    fn record(&mut self, kind: BlockKind) -> Result<Record, &'static str> {
        match kind {
            BlockKind::Access => self.access().map(Record::Access),
            BlockKind::Pager => self.pager().map(Record::Pager),
            BlockKind::File => self.file().map(Record::File),
            BlockKind::Name => self.name().map(Record::Name),
            BlockKind::Region => self.region().map(Record::Region),
            BlockKind::Index => Err("an index has no records"),
        }
    }

    #[inline]
    fn place(&mut self) -> Result<(), &'static str> {
        let later_ns = self.columns[TIMES].varint()?;
        self.last.time_ns = self.last.time_ns.checked_add(later_ns).ok_or(LONG)?;
        if self.run == 0 {
            let threads = &mut self.columns[THREADS];
            self.run = threads.varint()?;
            self.last.thread = threads.narrow()?;
            self.last.space = threads.narrow()?;
            if self.run == 0 {
                return Err("a run of threads is empty");
            }
        }
        self.run -= 1;
        Ok(())
    }

    #[inline]
    fn page(&mut self) -> Result<u64, &'static str> {
        self.last.vpn = self.columns[PAGES].difference(self.last.vpn)?;
        Ok(self.last.vpn)
    }

    #[inline]
    fn access(&mut self) -> Result<AccessRecord, &'static str> {
        self.place()?;
        let vpn = self.page()?;
        let kind = match self.columns[KINDS].byte()? {
            0 => AccessKind::Read,
            1 => AccessKind::Write,
            2 => AccessKind::Fetch,
            _ => return Err("a kind of access is not known"),
        };
        let Last { time_ns, thread, space, .. } = self.last;
        Ok(AccessRecord { time_ns, vpn, thread, space, kind })
    }

    fn pager(&mut self) -> Result<PagerRecord, &'static str> {
        self.place()?;
        let vpn = self.page()?;
        let op = self.columns[KINDS].byte()?;
        let op = *PagerOp::ALL.get(usize::from(op)).ok_or("a kind of event is not known")?;
        let argument = self.columns[ARGUMENTS].varint()?;
        if !op.takes(argument) {
            return Err("an event tells of more pages than it may, or of none");
        }
        let Last { time_ns, thread, space, .. } = self.last;
        Ok(PagerRecord { time_ns, vpn, thread, space, op, argument })
    }

    fn file(&mut self) -> Result<FileRecord, &'static str> {
        self.place()?;
        let offset = self.columns[PAGES].difference(self.last.offset)?;
        let op = self.columns[KINDS].byte()?;
        let op = *FileOp::ALL.get(usize::from(op)).ok_or("a kind of call is not known")?;
        let bytes = self.columns[ARGUMENTS].varint()?;
        let file = self.columns[EXTRAS].narrow()?;
        self.last.offset = offset.wrapping_add(bytes);
        let Last { time_ns, thread, .. } = self.last;
        Ok(FileRecord { time_ns, thread, file, op, offset, bytes })
    }

    fn name(&mut self) -> Result<NameRecord, &'static str> {
        let id = self.columns[ARGUMENTS].narrow()?;
        let length = self.columns[PAGES].varint()?;
        let text =
            std::str::from_utf8(self.columns[EXTRAS].take(length)?).map_err(|_| "a name is not UTF-8")?;
        Ok(NameRecord { id, text: text.to_owned() })
    }

    fn region(&mut self) -> Result<RegionSpec, &'static str> {
        let start = self.page()?;
        let pages = self.columns[ARGUMENTS].varint()?;
        let end = start.checked_add(pages).filter(|&end| end > start).ok_or("a region has no pages")?;
        self.last.vpn = end;
        let space = self.columns[EXTRAS].narrow()?;
        let kind = match self.columns[KINDS].byte()? {
            0 => RegionKind::Anon,
            1 => RegionKind::Shared,
            _ => return Err("a kind of region is not known"),
        };
        Ok(RegionSpec { space, start, end, kind })
    }
}
