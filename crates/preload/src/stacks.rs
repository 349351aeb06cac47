//! Telling thread stacks from other memory: they are left alone, since the kernel writes to the
//! control block in a dying thread's stack at a moment when it no longer waits for anybody (guide
//! on userfaultfd, pitfall 7), so that block must never be away. Only what lies deep below the
//! block of a living thread is managed, once any of it is used.
//!
//! A living thread's control block is known by its list of robust futexes. The stack of one that
//! has ended is kept by the C library for the next thread, and looks like any memory with a guard
//! in front. It is known by what the thread left: the control block at its end, which begins with
//! its own address. One that is being made has none yet, and nothing in use but its tail.
//!
//! *The stories:* whatever followed a guard was left alone once. A program that makes some pages
//! below a large block inaccessible had that block unmanaged for ever (`torture guarded`). And a
//! thread's stack is mapped right below what was mapped before it, and a kernel before 6.7 makes
//! one mapping of the two (later ones forbid huge pages in stacks, and so keep them apart): on 6.1
//! `sort` with two threads had its buffer above its stack, and in two of six runs nothing was ever
//! managed. Now only the stack is left out of such a mapping. What lies beside new memory is
//! registered with it where the kernel had to split the two, and the stack of a thread that had
//! ended was taken for such a part (`torture joined-stacks`). And a recursion of 24 MiB at full
//! speed, all of it unmanaged, went with the older way out to 81 MiB in a budget of 64 (`torture
//! recursion`). And what had a guard in front was managed only if its first page was in use, the last
//! that a stack touches: fibers' stacks never were, nor was a block whose first page nobody touched.
//! 262 MiB were held in a budget of 64 (`torture behind-guards`).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use overspill_sys::maps::Vma;
use overspill_sys::mem::OwnMemory;
use overspill_sys::pagemap::{Pagemap, Query};
use overspill_sys::procfs::{self, Limit, Tasks};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, overlap};

use crate::elf;

/// A thread's control block lies at most this far from the end of its stack.
const CONTROL_BLOCK_BYTES: usize = 64 << 10;
/// The C library's own stacks end with it: it begins in these last bytes.
const TAIL_BYTES: usize = 16 << 10;
/// So much of a living thread's stack is left alone, from its control block down. Most threads
/// never use more.
const KEPT_BYTES: usize = 1 << 20;
/// Words from the beginning of a control block to the second pointer to itself.
const SELF_AT: usize = 2;

/// What at the end of a stack may be in use before its control block is there: thread-local data are put
/// there first. As much as that where the C library does not tell how much it wants.
static MAKING_BYTES: AtomicUsize = AtomicUsize::new(CONTROL_BLOCK_BYTES);

/// Asks the C library how much of a stack it takes for itself.
pub(crate) fn set_up() {
    /// The attributes are not looked at.
    type Least = extern "C" fn(*const u8) -> usize;
    if let Some(function) = elf::next(c"__pthread_get_minstack") {
        // SAFETY: the C library's function of that name has this type.
        let least = unsafe { core::mem::transmute::<usize, Least>(function) };
        let attributes = [0_u64; 16];
        let bytes = least(attributes.as_ptr().cast()).saturating_add(TAIL_BYTES);
        MAKING_BYTES.store(bytes.next_multiple_of(PAGE_SIZE), Relaxed);
    }
}

/// What is known of stacks at one moment.
pub(crate) struct Stacks {
    /// Control blocks of the threads that live now.
    control_blocks: Vec<usize>,
    /// Stacks that the last look at the maps left alone.
    known: Vec<AddressRange>,
    /// Where stacks begin whose deeper part is managed: they are mappings of their own then, with
    /// no guard in front.
    tops: Vec<usize>,
    /// Where the kernel may join a stack with what lies above it: the usual size of one.
    joined_bytes: Option<usize>,
    /// Without it nothing is known of threads that have ended.
    memory: Option<Arc<OwnMemory>>,
    tasks: Result<Tasks, Errno>,
    tail: Box<[u8; TAIL_BYTES]>,
}

impl Stacks {
    /// `memory` is the process's, to be read without waiting for it.
    pub fn new(memory: Option<Arc<OwnMemory>>) -> Self {
        Stacks {
            control_blocks: Vec::with_capacity(256),
            known: Vec::with_capacity(256),
            tops: Vec::new(),
            joined_bytes: joined_bytes(),
            memory,
            tasks: Tasks::open(),
            tail: Box::new([0; TAIL_BYTES]),
        }
    }

    /// Looks which threads there are, before the maps are looked at.
    pub fn look(&mut self, is_managed: impl Fn(AddressRange) -> bool) -> Result<(), Errno> {
        self.known.clear();
        self.tops.retain(|top| is_managed(top - PAGE_SIZE..*top));
        self.control_blocks.clear();
        let control_blocks = &mut self.control_blocks;
        self.tasks.as_ref().map_err(|&errno| errno)?.for_each(|thread| {
            if let Ok((head, _)) = procfs::robust_list(thread) {
                control_blocks.push(head);
            }
        })
    }

    /// Where in a mapping that begins which is no stack; its end if all may be one. `guarded`: a
    /// guard lies in front.
    pub fn end(
        &mut self,
        vma: &Vma<'_>,
        guarded: bool,
        is_managed: impl Fn(AddressRange) -> bool,
        pagemap: &Pagemap,
    ) -> usize {
        let end = if self.has_living(vma) {
            vma.end
        } else if guarded || self.tops.contains(&vma.start) {
            self.guarded_end(vma, is_managed, pagemap)
        } else {
            vma.start
        };
        if end > vma.start {
            self.known.push(vma.start..end);
        }
        end
    }

    /// Is the mapping, or a part of it, a stack by the last look?
    pub fn overlap(&self, vma: &Vma<'_>) -> bool {
        self.has_living(vma) || self.known.iter().any(|stack| overlap(stack, &vma.range()))
    }

    /// What in a mapping with the stack of a living thread may be managed: all that is deep in it,
    /// if any of that is used.
    pub fn deep(&mut self, vma: &Vma<'_>, pagemap: &Pagemap) -> Option<AddressRange> {
        // Or else the rest would not be known for a stack when the thread has ended.
        self.memory.as_ref()?;
        let first = self.control_blocks.iter().filter(|block| vma.range().contains(block)).min()?;
        let end = first.saturating_sub(KEPT_BYTES) / PAGE_SIZE * PAGE_SIZE;
        if end <= vma.start || !is_used(vma.start..end, pagemap) {
            return None;
        }
        if !self.tops.contains(&end) {
            self.tops.push(end);
        }
        Some(vma.start..end)
    }

    /// Is the mapping the stack of a thread that lives?
    fn has_living(&self, vma: &Vma<'_>) -> bool {
        let ends_behind =
            |&block: &usize| vma.range().contains(&block) && vma.end - block <= CONTROL_BLOCK_BYTES;
        self.control_blocks.iter().any(ends_behind)
    }

    fn guarded_end(
        &mut self,
        vma: &Vma<'_>,
        is_managed: impl Fn(AddressRange) -> bool,
        pagemap: &Pagemap,
    ) -> usize {
        let last = self.control_blocks.iter().filter(|block| vma.range().contains(block)).max();
        if let Some(block) = last {
            // It lies in the last page of its stack.
            return (block + 1).next_multiple_of(PAGE_SIZE);
        }
        // What is looked at for use; where none of it was touched the mapping may be a stack that is
        // being made.
        let (end, used) = match self.joined_bytes {
            Some(bytes) => {
                let end = vma.start.saturating_add(bytes).min(vma.end);
                (end, end..vma.end)
            }
            None => (vma.start, vma.start..before_tail(vma)),
        };
        let is_used = is_managed(used.clone()) || is_used(used, pagemap);
        if is_used && self.ends_in_control_block(vma) == Some(false) { end } else { vma.end }
    }

    /// None: that cannot be read.
    fn ends_in_control_block(&mut self, vma: &Vma<'_>) -> Option<bool> {
        let start = vma.start.max(vma.end - TAIL_BYTES);
        let tail = &mut self.tail[..vma.end - start];
        let read = self.memory.as_ref()?.read(tail, start).ok()?;
        (read == tail.len()).then(|| holds_control_block(tail, start))
    }
}

/// Does memory that was read at `start` hold a block that begins with its own address, twice?
fn holds_control_block(bytes: &[u8], start: usize) -> bool {
    let (words, _) = bytes.as_chunks::<{ size_of::<usize>() }>();
    let word = |index: usize| usize::from_ne_bytes(words[index]);
    (0..words.len().saturating_sub(SELF_AT)).any(|index| {
        let address = start + index * size_of::<usize>();
        word(index) == address && word(index + SELF_AT) == address
    })
}

/// Where the part begins that may be in use in a stack that is being made. There is one page in front of it.
fn before_tail(vma: &Vma<'_>) -> usize {
    vma.end.saturating_sub(MAKING_BYTES.load(Relaxed)).max(vma.start + PAGE_SIZE)
}

fn is_used(range: AddressRange, pagemap: &Pagemap) -> bool {
    pagemap.has_any(range, Query::OWN_CONTENT) == Ok(true)
}

/// The size that the C library gives to stacks, where the kernel may join them with what lies above.
fn joined_bytes() -> Option<usize> {
    const KEEPS_APART: (u32, u32, u32) = (6, 7, 0);
    /// Of the C library, where there is no limit.
    const UNLIMITED_BYTES: usize = 2 << 20;
    if procfs::kernel_version() >= KEEPS_APART {
        return None;
    }
    Some(match procfs::limit(Limit::Stack) {
        Ok((bytes, _)) if bytes != u64::MAX => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => UNLIMITED_BYTES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_block_is_known_by_its_own_address() {
        let mut bytes = [0; 4096];
        let mut put = |at: usize, word: usize| bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        put(640, 0x7000 + 640);
        put(648, 1);
        put(656, 0x7000 + 640);
        assert!(holds_control_block(&bytes, 0x7000));
        assert!(!holds_control_block(&bytes, 0x8000));
        assert!(!holds_control_block(&bytes[..656], 0x7000));
        assert!(!holds_control_block(&[0; 4096], 0x7000));
    }
}
