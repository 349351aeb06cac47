//! The messages of /dev/fuse, as <linux/fuse.h> lays them out: only those that a swap file needs.
//! All integers are in native byte order; answers are built field by field.

use std::fs::File;
use std::io::{Read, Write};

use crate::files::{BLOCK, Files, ROOT, Result};

const HEADER: usize = 40;
const WRITE_MAX: usize = 1 << 20;
const PAGES_MAX: u16 = 256;
/// ASYNC_READ, ATOMIC_O_TRUNC, BIG_WRITES, MAX_PAGES.
const INIT_FLAGS: u32 = 1 | 1 << 3 | 1 << 5 | 1 << 22;
/// With it a write that was done in part is EIO to whoever wrote.
const ASYNC_DIO: u32 = 1 << 15;

/// Fields of a message, read one after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take(4).try_into().expect("the kernel sends whole messages"))
    }
    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take(8).try_into().expect("the kernel sends whole messages"))
    }
    /// A name up to its NUL.
    fn name(&mut self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

/// Fields of an answer.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u16(&mut self, values: &[u16]) -> &mut Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }
    fn u32(&mut self, values: &[u32]) -> &mut Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }
    fn u64(&mut self, values: &[u64]) -> &mut Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }
}

/// Answers until the file system is unmounted.
pub fn answer_all(mut device: &File, files: &mut Files) -> std::io::Result<()> {
    let mut message = vec![0; WRITE_MAX + BLOCK];
    loop {
        let len = match device.read(&mut message) {
            Ok(len) => len,
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ENODEV) => return Ok(()),
                _ => return Err(error),
            },
        };
        assert!(len >= HEADER, "a message of {len} bytes");
        let mut header = Reader(&message[4..HEADER]);
        let (opcode, unique, node) = (header.u32(), header.u64(), header.u64());
        let Some(result) = answer(files, opcode, node, &message[HEADER..len]) else { continue };
        let (error, body) = result.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let mut reply = Writer::default();
        reply.u32(&[16 + body.len() as u32, error as u32]).u64(&[unique]).0.extend(body);
        // ENOENT: whoever asked was interrupted and is gone.
        if let Err(error) = device.write(&reply.0)
            && error.raw_os_error() != Some(libc::ENOENT)
        {
            return Err(error);
        }
    }
}

/// None for messages that want no answer.
fn answer(files: &mut Files, opcode: u32, node: u64, body: &[u8]) -> Option<Result<Vec<u8>>> {
    const NO_ANSWER: [u32; 3] = [2, 36, 42];
    if NO_ANSWER.contains(&opcode) {
        return None;
    }
    let mut body = Reader(body);
    Some(match opcode {
        1 => files.find(body.name()).and_then(|number| entry(files, number)),
        3 => attributes(files, node),
        4 => set_attributes(files, node, &mut body),
        10 => files.unlink(body.name()).map(|()| Vec::new()),
        14 => files.open(node).map(|()| opened(files)),
        15 => read(files, node, &mut body),
        16 => write(files, node, &mut body),
        17 => Ok(statistics(files)),
        18 => files.close(node).map(|()| Vec::new()),
        20 | 25 | 29 | 30 | 34 | 38 => Ok(Vec::new()),
        26 => Ok(init(if files.is_short() { INIT_FLAGS } else { INIT_FLAGS | ASYNC_DIO })),
        27 => Ok(opened(files)),
        28 => Ok(list(files, &mut body)),
        37 => place(files, node, &mut body),
        35 | 51 => create(files, opcode == 51, &mut body),
        _ => Err(libc::ENOSYS),
    })
}

fn init(flags: u32) -> Vec<u8> {
    let mut reply = Writer::default();
    reply
        .u32(&[7, 38, 0, flags])
        .u16(&[16, 12])
        .u32(&[WRITE_MAX as u32, 1])
        .u16(&[PAGES_MAX, 0])
        .u32(&[0; 8]);
    assert!(reply.0.len() == 64, "the layout of fuse_init_out");
    reply.0
}

/// With FOPEN_DIRECT_IO where requests are done in part: else the kernel does the rest by itself.
fn opened(files: &Files) -> Vec<u8> {
    let mut reply = Writer::default();
    reply.u64(&[0]).u32(&[u32::from(files.is_short()), 0]);
    reply.0
}

fn attribute_fields(files: &mut Files, number: u64, reply: &mut Writer) -> Result {
    let (size, blocks, mode, links) = if number == ROOT {
        (0, 0, libc::S_IFDIR | 0o1777, 2)
    } else {
        let node = files.node(number)?;
        (node.size, node.block_count() * (BLOCK / 512) as u64, node.mode, u32::from(node.name.is_some()))
    };
    reply.u64(&[number, size, blocks, 0, 0, 0]).u32(&[0, 0, 0, mode, links, 0, 0, 0, BLOCK as u32, 0]);
    Ok(())
}

fn attributes(files: &mut Files, number: u64) -> Result<Vec<u8>> {
    let mut reply = Writer::default();
    reply.u64(&[0]).u32(&[0, 0]);
    attribute_fields(files, number, &mut reply)?;
    Ok(reply.0)
}

fn entry(files: &mut Files, number: u64) -> Result<Vec<u8>> {
    let mut reply = Writer::default();
    reply.u64(&[number, 0, 0, 0]).u32(&[0, 0]);
    attribute_fields(files, number, &mut reply)?;
    Ok(reply.0)
}

fn set_attributes(files: &mut Files, number: u64, body: &mut Reader<'_>) -> Result<Vec<u8>> {
    const MODE: u32 = 1;
    const SIZE: u32 = 1 << 3;
    let valid = body.u32();
    body.take(12);
    let size = body.u64();
    body.take(8 + 3 * 8 + 3 * 4);
    let mode = body.u32();
    if valid & SIZE != 0 {
        files.resize(number, size)?;
    }
    if valid & MODE != 0 {
        files.node(number)?.mode = libc::S_IFREG | (mode & 0o7777);
    }
    attributes(files, number)
}

fn create(files: &mut Files, temporary: bool, body: &mut Reader<'_>) -> Result<Vec<u8>> {
    body.u32();
    let mode = body.u32();
    body.take(8);
    let name = body.name();
    let number = files.create((!temporary).then_some(name), mode);
    let mut reply = entry(files, number)?;
    reply.extend(opened(files));
    Ok(reply)
}

fn read(files: &mut Files, node: u64, body: &mut Reader<'_>) -> Result<Vec<u8>> {
    body.u64();
    let (offset, len) = (body.u64(), body.u32());
    files.read(node, offset, len as usize)
}

fn write(files: &mut Files, node: u64, body: &mut Reader<'_>) -> Result<Vec<u8>> {
    body.u64();
    let (offset, len) = (body.u64(), body.u32());
    body.take(4 + 8 + 8);
    let done = files.write(node, offset, body.take(len as usize))?;
    let mut reply = Writer::default();
    reply.u32(&[done as u32, 0]);
    Ok(reply.0)
}

fn place(files: &mut Files, node: u64, body: &mut Reader<'_>) -> Result<Vec<u8>> {
    let (block, bytes) = (body.u64(), u64::from(body.u32()));
    let mut reply = Writer::default();
    reply.u64(&[files.node(node)?.place(block, bytes)]);
    Ok(reply.0)
}

fn statistics(files: &Files) -> Vec<u8> {
    let (all, free) = files.space();
    let mut reply = Writer::default();
    reply.u64(&[all, free, free, 1 << 20, 1 << 20]).u32(&[
        BLOCK as u32,
        255,
        BLOCK as u32,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    reply.0
}

/// All entries in one answer, the rest of it empty: nobody keeps many files here.
fn list(files: &Files, body: &mut Reader<'_>) -> Vec<u8> {
    body.u64();
    let mut reply = Writer::default();
    if body.u64() == 0 {
        let dots = [(ROOT, &b"."[..]), (ROOT, b"..")];
        for (position, (number, name)) in dots.into_iter().chain(files.names()).enumerate() {
            reply.u64(&[number, position as u64 + 1]).u32(&[name.len() as u32, 0]).0.extend(name);
            reply.0.resize(reply.0.len().next_multiple_of(8), 0);
        }
    }
    reply.0
}
