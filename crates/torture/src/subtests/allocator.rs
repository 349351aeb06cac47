//! malloc, calloc, realloc, posix_memalign and free of all sizes by several threads, more live than
//! the budget holds; the heap's own book-keeping goes cold as well.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::context::{Context, parallel};
use crate::ensure;
use crate::memory::MIB;
use crate::outcome::Outcome;
use crate::pattern::{bytes, check_bytes, mix};
use crate::rng::Rng;

const THREADS: usize = 4;
const SMALLEST: usize = 16;
/// Blocks are 16 bytes times a power of two up to this, plus up to as much again.
const DOUBLINGS: usize = 17;
/// Bytes at each end of a block that carry its pattern; between them eight bytes of every `STRIDE` do.
const EDGE: usize = 1024;
const STRIDE: usize = 2048;

struct Block {
    address: *mut u8,
    len: usize,
    seed: u64,
}

/// `malloc-arenas`: threads of their own arenas fill them with small blocks at full speed, twice,
/// together more than the budget.
///
/// *The story:* see `arenas`; a program of this kind held up to 88 MiB in a budget of 64, and 104
/// without UFFDIO_MOVE.
pub fn arenas(context: &mut Context) -> Outcome {
    const BLOCK_BYTES: usize = 1000;
    let count = context.options.mib * MIB / THREADS / BLOCK_BYTES;
    parallel(THREADS, |lane| {
        for round in 0..2 {
            let seed = |index: usize| mix((lane + THREADS * (round + 2 * index)) as u64);
            let mut blocks: Vec<Box<[u64]>> =
                (0..count).map(|index| vec![seed(index); BLOCK_BYTES / 8].into_boxed_slice()).collect();
            if context.options.sabotage {
                blocks[count / 2][7] = 0;
            }
            for (index, block) in blocks.iter().enumerate() {
                ensure!(
                    block.iter().all(|&word| word == seed(index)),
                    "block {index} of thread {lane} changed in round {round}"
                );
            }
        }
        Ok(())
    })
}

/// `alloc-churn`: see the head of this file.
pub fn churn(context: &mut Context) -> Outcome {
    let deadline = context.deadline();
    let live_max = context.options.mib * MIB / THREADS;
    let done = AtomicU64::new(0);
    parallel(THREADS, |lane| {
        let mut rng = context.rng(lane);
        let mut blocks = Vec::new();
        let count = churn_until(deadline, live_max, &mut rng, &mut blocks)?;
        done.fetch_add(count, Relaxed);
        if context.options.sabotage && lane == 0 {
            // SAFETY: a live block of ours.
            unsafe { blocks[0].address.write(!blocks[0].address.read()) };
        }
        blocks.into_iter().try_for_each(Block::free)
    })?;
    println!("{} allocations", done.into_inner());
    Ok(())
}

fn churn_until(deadline: Instant, live_max: usize, rng: &mut Rng, blocks: &mut Vec<Block>) -> Outcome<u64> {
    let (mut live, mut count) = (0, 0);
    let mut filled = false;
    while !filled || Instant::now() < deadline {
        while live < live_max {
            let block = Block::allocate(rng)?;
            live += block.len;
            count += 1;
            blocks.push(block);
        }
        filled = true;
        for _ in 0..32 {
            let victim = rng.below(blocks.len());
            if rng.below(3) == 0 {
                let before = blocks[victim].len;
                blocks[victim].resize(rng)?;
                live = live - before + blocks[victim].len;
            } else {
                let block = blocks.swap_remove(victim);
                live -= block.len;
                block.free()?;
            }
            if blocks.is_empty() {
                break;
            }
        }
    }
    Ok(count)
}

impl Block {
    fn allocate(rng: &mut Rng) -> Outcome<Self> {
        let len = random_len(rng);
        let seed = rng.next();
        // SAFETY: plain allocations with sizes above zero and a power-of-two alignment.
        let address: *mut u8 = unsafe {
            match rng.below(4) {
                0 => libc::calloc(len.div_ceil(8), 8).cast(),
                1 => {
                    let mut aligned = std::ptr::null_mut();
                    ensure!(
                        libc::posix_memalign(&raw mut aligned, 64, len) == 0,
                        "posix_memalign({len}) failed"
                    );
                    aligned.cast()
                }
                _ => libc::malloc(len).cast(),
            }
        };
        ensure!(!address.is_null(), "no {len} bytes");
        let block = Self { address, len, seed };
        block.fill();
        Ok(block)
    }

    fn resize(&mut self, rng: &mut Rng) -> Outcome {
        self.check("before realloc")?;
        let len = random_len(rng);
        // SAFETY: a live block of ours; the old address is not used again.
        let address: *mut u8 = unsafe { libc::realloc(self.address.cast(), len).cast() };
        ensure!(!address.is_null(), "no {len} bytes");
        let kept = self.len.min(len).min(EDGE);
        // SAFETY: the first `kept` bytes are allocated, and were written before.
        let found = unsafe { std::slice::from_raw_parts(address, kept) };
        check_bytes(self.seed, 0, found, "after realloc")?;
        *self = Self { address, len, seed: mix(self.seed) };
        self.fill();
        Ok(())
    }

    fn free(self) -> Outcome {
        self.check("before free")?;
        // SAFETY: allocated by `allocate` or `resize`, freed once because `self` goes with it.
        unsafe { libc::free(self.address.cast()) };
        Ok(())
    }

    /// The ranges that carry the pattern: both ends, and a word in every page.
    fn marks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let head = self.len.min(EDGE);
        let tail = self.len.saturating_sub(EDGE).max(head);
        let between = (head.next_multiple_of(STRIDE)..tail.saturating_sub(8)).step_by(STRIDE);
        [0..head, tail..self.len].into_iter().chain(between.map(|start| start..start + 8))
    }

    fn fill(&self) {
        for range in self.marks() {
            // SAFETY: inside a live block that only this thread knows.
            let part = unsafe { std::slice::from_raw_parts_mut(self.address.add(range.start), range.len()) };
            bytes(self.seed, range.start, part);
        }
    }

    fn check(&self, what: &str) -> Outcome {
        for range in self.marks() {
            // SAFETY: as in `fill`, which has written the range.
            let part = unsafe { std::slice::from_raw_parts(self.address.add(range.start), range.len()) };
            check_bytes(self.seed, range.start, part, what)?;
        }
        Ok(())
    }
}

fn random_len(rng: &mut Rng) -> usize {
    let base = SMALLEST << rng.below(DOUBLINGS);
    base + rng.below(base)
}
