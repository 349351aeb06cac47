//! The files themselves: one flat directory, contents in memory by blocks, and the rules by which
//! operations fail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes in a block.
pub const BLOCK: usize = 4096;
/// The number of the only directory.
pub const ROOT: u64 = 1;

/// When operations fail; the default is never.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Blocks beyond this are ENOSPC.
    pub capacity_bytes: u64,
    /// Writes beyond this are ENOSPC, whatever room there is said to be: as with a quota.
    pub quota_bytes: u64,
    /// Writes beyond this are EIO.
    pub written_bytes_max: u64,
    /// Reads beyond this are EIO.
    pub read_bytes_max: u64,
    /// Reads that touch every so-many-th block of a file are EIO, the first of them in the middle of
    /// its first stretch; 0: none are.
    pub bad_block_every: u64,
    /// Reads beyond this come with a bit turned in each block.
    pub flip_reads_after: u64,
    /// Reads beyond this bring the blocks behind those that were asked for.
    pub misplace_reads_after: u64,
    /// Writes beyond this are said to be done, and are not.
    pub forget_writes_after: u64,
    /// Of writes beyond this the first half of each block is done.
    pub tear_writes_after: u64,
    /// Of every so-many-th read of several blocks the first half is done; 0: of none.
    pub short_reads_every: u64,
    /// The same of writes.
    pub short_writes_every: u64,
    /// Every read and write takes this long.
    pub delay_us: u64,
    /// Reads and writes beyond this, taken together, cannot be done just then (EAGAIN and ENOMEM in turn)
    /// for as long as the next says.
    pub busy_after: u64,
    /// ... in milliseconds.
    pub busy_ms: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            capacity_bytes: 1 << 40,
            quota_bytes: u64::MAX,
            written_bytes_max: u64::MAX,
            read_bytes_max: u64::MAX,
            bad_block_every: 0,
            flip_reads_after: u64::MAX,
            misplace_reads_after: u64::MAX,
            forget_writes_after: u64::MAX,
            tear_writes_after: u64::MAX,
            short_reads_every: 0,
            short_writes_every: 0,
            delay_us: 0,
            busy_after: u64::MAX,
            busy_ms: 0,
        }
    }
}

/// An errno.
pub type Result<T = ()> = std::result::Result<T, i32>;

/// One file.
#[derive(Debug, Default)]
pub struct FileNode {
    /// Its name, unless it was unlinked or never had one.
    pub name: Option<Vec<u8>>,
    /// Its length.
    pub size: u64,
    /// Permission bits and type.
    pub mode: u32,
    blocks: BTreeMap<u64, Box<[u8]>>,
    opened: u32,
}

impl FileNode {
    /// Blocks that hold something.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Where on the device a block of so many bytes is said to lie; 0: nowhere.
    #[must_use]
    pub fn place(&self, block: u64, bytes: u64) -> u64 {
        const PIECE: u64 = 67;
        let is_there = self.blocks.contains_key(&(block * bytes / BLOCK as u64));
        if is_there { block / PIECE * 128 + 4 + block % PIECE } else { 0 }
    }
}

/// All files, and what has been done to them.
#[derive(Debug)]
pub struct Files {
    faults: Faults,
    nodes: BTreeMap<u64, FileNode>,
    next: u64,
    written_bytes: u64,
    read_bytes: u64,
    /// Reads and writes of several blocks.
    large_reads: u64,
    large_writes: u64,
    busy_since: Option<Instant>,
    refusals: u64,
}

impl Files {
    /// An empty directory.
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        let (written_bytes, read_bytes, large_reads, large_writes) = (0, 0, 0, 0);
        let (nodes, next) = (BTreeMap::new(), ROOT + 1);
        let (busy_since, refusals) = (None, 0);
        Self {
            faults,
            nodes,
            next,
            written_bytes,
            read_bytes,
            large_reads,
            large_writes,
            busy_since,
            refusals,
        }
    }

    /// A while in which nothing can be done.
    fn busy(&mut self) -> Result {
        if self.written_bytes + self.read_bytes <= self.faults.busy_after {
            return Ok(());
        }
        let since = *self.busy_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= Duration::from_millis(self.faults.busy_ms) {
            return Ok(());
        }
        self.refusals += 1;
        Err(if self.refusals.is_multiple_of(2) { libc::ENOMEM } else { libc::EAGAIN })
    }

    /// (all blocks, free blocks)
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let used: u64 = self.nodes.values().map(FileNode::block_count).sum();
        let all = self.faults.capacity_bytes / BLOCK as u64;
        (all, all.saturating_sub(used))
    }

    /// A file by its number.
    pub fn node(&mut self, number: u64) -> Result<&mut FileNode> {
        self.nodes.get_mut(&number).ok_or(libc::ENOENT)
    }

    /// The number of the file with that name.
    pub fn find(&self, name: &[u8]) -> Result<u64> {
        let found = self.nodes.iter().find(|(_, node)| node.name.as_deref() == Some(name));
        found.map(|(&number, _)| number).ok_or(libc::ENOENT)
    }

    /// Names and numbers.
    pub fn names(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.nodes.iter().filter_map(|(&number, node)| node.name.as_deref().map(|name| (number, name)))
    }

    /// A new, open file; without a name when it is to be a temporary one.
    pub fn create(&mut self, name: Option<&[u8]>, mode: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        let node = FileNode {
            name: name.map(<[u8]>::to_vec),
            mode: libc::S_IFREG | (mode & 0o7777),
            opened: 1,
            ..FileNode::default()
        };
        self.nodes.insert(number, node);
        number
    }

    /// One more user.
    pub fn open(&mut self, number: u64) -> Result {
        self.node(number).map(|node| node.opened += 1)
    }

    /// One user less; a file without a name goes with its last one.
    pub fn close(&mut self, number: u64) -> Result {
        let node = self.node(number)?;
        node.opened = node.opened.saturating_sub(1);
        if node.opened == 0 && node.name.is_none() {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    /// Takes a name away.
    pub fn unlink(&mut self, name: &[u8]) -> Result {
        let number = self.find(name)?;
        let node = self.node(number)?;
        node.name = None;
        if node.opened == 0 {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    /// Cuts or lengthens.
    pub fn resize(&mut self, number: u64, size: u64) -> Result {
        let node = self.node(number)?;
        node.blocks.retain(|&block, _| block * (BLOCK as u64) < size);
        let (last, within) = (size / BLOCK as u64, (size % BLOCK as u64) as usize);
        if let Some(content) = node.blocks.get_mut(&last) {
            // What grows again is zero.
            content[within..].fill(0);
        }
        node.size = size;
        Ok(())
    }

    /// May requests be done in part?
    pub fn is_short(&self) -> bool {
        self.faults.short_reads_every + self.faults.short_writes_every > 0
    }

    /// Reads; short at the end of the file.
    pub fn read(&mut self, number: u64, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.delay();
        self.busy()?;
        let len = part(len, &mut self.large_reads, self.faults.short_reads_every);
        self.read_bytes += len as u64;
        if self.read_bytes > self.faults.read_bytes_max || self.touches_bad_block(offset, len) {
            return Err(libc::EIO);
        }
        let flips = self.read_bytes > self.faults.flip_reads_after;
        let shift = u64::from(self.read_bytes > self.faults.misplace_reads_after);
        let node = self.node(number)?;
        let len = len.min(node.size.saturating_sub(offset) as usize);
        let mut bytes = vec![0; len];
        for (block, within, range) in pieces(offset, len) {
            if let Some(content) = node.blocks.get(&(block + shift)) {
                let count = range.len();
                bytes[range.clone()].copy_from_slice(&content[within..within + count]);
            }
            if flips {
                bytes[range.start + range.len() / 2] ^= 1 << 5;
            }
        }
        Ok(bytes)
    }

    fn touches_bad_block(&self, offset: u64, len: usize) -> bool {
        let every = self.faults.bad_block_every;
        every > 0 && pieces(offset, len).any(|(block, ..)| block % every == every / 2)
    }

    /// Writes all or nothing, but where requests are done in part: how many bytes.
    pub fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.delay();
        self.busy()?;
        let len = part(bytes.len(), &mut self.large_writes, self.faults.short_writes_every);
        let bytes = &bytes[..len];
        self.written_bytes += bytes.len() as u64;
        if self.written_bytes > self.faults.written_bytes_max {
            return Err(libc::EIO);
        }
        if self.written_bytes > self.faults.quota_bytes {
            return Err(libc::ENOSPC);
        }
        let (forgets, tears) = (
            self.written_bytes > self.faults.forget_writes_after,
            self.written_bytes > self.faults.tear_writes_after,
        );
        let free = self.space().1;
        let node = self.node(number)?;
        let fresh =
            pieces(offset, bytes.len()).filter(|(block, ..)| !node.blocks.contains_key(block)).count();
        if fresh as u64 > free {
            return Err(libc::ENOSPC);
        }
        for (block, within, range) in pieces(offset, bytes.len()) {
            if forgets {
                continue;
            }
            let content = node.blocks.entry(block).or_insert_with(|| vec![0; BLOCK].into());
            let done = if tears { range.len() / 2 } else { range.len() };
            content[within..within + done].copy_from_slice(&bytes[range.start..range.start + done]);
        }
        node.size = node.size.max(offset + bytes.len() as u64);
        Ok(bytes.len())
    }

    fn delay(&self) {
        if self.faults.delay_us > 0 {
            std::thread::sleep(std::time::Duration::from_micros(self.faults.delay_us));
        }
    }
}

/// What is done of a request: of every so-many-th large one the first half.
fn part(len: usize, large: &mut u64, every: u64) -> usize {
    if len < 2 * BLOCK {
        return len;
    }
    *large += 1;
    if every > 0 && large.is_multiple_of(every) { len / 2 } else { len }
}

/// (block, offset in it, range of the buffer) for each block that a range touches.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % BLOCK as u64) as usize;
        let start = done;
        done += (BLOCK - within).min(len - done);
        Some((at / BLOCK as u64, within, start..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* a file that was cut within a block and grew again had its old bytes there.
    #[test]
    fn what_was_cut_off_is_zero_when_the_file_grows_again() {
        let mut files = Files::new(Faults::default());
        let number = files.create(Some(b"a"), 0o600);
        files.write(number, 0, &[7; 2 * BLOCK]).expect("room");
        files.resize(number, 100).expect("a file");
        files.resize(number, 2 * BLOCK as u64).expect("a file");
        let found = files.read(number, 0, 2 * BLOCK).expect("a file");
        assert!(found[..100].iter().all(|&byte| byte == 7) && found[100..].iter().all(|&byte| byte == 0));
    }
}
