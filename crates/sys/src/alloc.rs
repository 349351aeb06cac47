//! An allocator that takes memory from the kernel only, never from the program's `malloc`.
//!
//! Small requests come from size classes (four steps an octave, so at most a quarter is wasted) with a free
//! list each; larger ones are mappings of their own. A lock guards it: the few threads of an agent
//! rarely meet there. Memory of the small classes is never given back, only reused.
//!
//! It knows which addresses are its own ([`ArenaAlloc::for_each_range`]), so that a pager can keep
//! its hands off itself. A child of fork must not use it before [`ArenaAlloc::forget`]: the lock
//! may be held by a thread that the child does not have.

mod class;
mod large;

use crate::lock::Lock;
use crate::mem::{self, Advice, Mapping, Prot};
use crate::reserve::Room;
use crate::{AddressRange, Errno, PAGE_SIZE};
use class::{CLASSES, class_of, class_size, slab_bytes};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use large::LargeList;

/// Requests above this are mappings of their own.
pub const SMALL_MAX: usize = class::SMALL_MAX;

const CHUNK_BYTES_MIN: usize = 1 << 20;
/// Chunks grow with what exists, by an eighth: this many reach beyond any machine.
const CHUNKS_MAX: usize = 256;

/// The allocator; meant for `#[global_allocator]`.
pub struct ArenaAlloc {
    lock: Lock,
    state: UnsafeCell<State>,
    mapped_bytes: AtomicUsize,
}

struct State {
    /// Heads of the lists of freed blocks; a free block's first word leads to the next.
    free: [*mut usize; CLASSES],
    /// Never used blocks of the newest slab of each class.
    fresh: [Span; CLASSES],
    /// Never used pages of the newest chunk.
    pages: Span,
    chunks: [Span; CHUNKS_MAX],
    chunks_count: usize,
    large: LargeList,
}

impl State {
    const EMPTY: State = State {
        free: [null_mut(); CLASSES],
        fresh: [Span::EMPTY; CLASSES],
        pages: Span::EMPTY,
        chunks: [Span::EMPTY; CHUNKS_MAX],
        chunks_count: 0,
        large: LargeList::new(),
    };
}

/// Addresses from `next` to `end`.
#[derive(Clone, Copy)]
struct Span {
    next: usize,
    end: usize,
}

impl Span {
    const EMPTY: Span = Span { next: 0, end: 0 };

    /// Takes `bytes` off the front.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        if self.end - self.next < bytes {
            return None;
        }
        let taken = self.next;
        self.next += bytes;
        Some(taken)
    }
}

// SAFETY: the state is only touched under the lock.
unsafe impl Sync for ArenaAlloc {}
// SAFETY: the state leads to memory that belongs to no thread.
unsafe impl Send for ArenaAlloc {}

impl Default for ArenaAlloc {
    fn default() -> Self {
        ArenaAlloc::new()
    }
}

impl ArenaAlloc {
    /// An allocator without memory.
    #[must_use]
    pub const fn new() -> ArenaAlloc {
        ArenaAlloc {
            lock: Lock::new(),
            state: UnsafeCell::new(State::EMPTY),
            mapped_bytes: AtomicUsize::new(0),
        }
    }

    /// Begins anew in a child of fork. What was allocated stays mapped, if the child has it, and is
    /// never used again.
    ///
    /// # Safety
    /// No other thread of this process uses the allocator, and nothing that was allocated is used any more.
    pub unsafe fn forget(&self) {
        let _ = self.lock.forget();
        self.mapped_bytes.store(0, Ordering::Relaxed);
        // SAFETY: the caller vouches that there is no other reference.
        unsafe { *self.state.get() = State::EMPTY };
    }

    /// Addresses it has mapped, in bytes; what is touched of them is less.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.mapped_bytes.load(Ordering::Relaxed)
    }

    /// Calls `visit` with every range that belongs to it, in no order. `visit` must not allocate here.
    pub fn for_each_range(&self, mut visit: impl FnMut(AddressRange)) {
        self.with(|state| {
            for chunk in &state.chunks[..state.chunks_count] {
                visit(chunk.next..chunk.end);
            }
            state.large.for_each(&mut visit);
        });
    }

    /// An address belongs to it.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        let mut found = false;
        self.for_each_range(|range| found |= range.contains(&address));
        found
    }

    fn with<R>(&self, action: impl FnOnce(&mut State) -> R) -> R {
        // SAFETY: the lock is held, so this is the only reference.
        self.lock.with(|| action(unsafe { &mut *self.state.get() }))
    }

    fn count_mapped(&self, result: Result<usize, Errno>) -> bool {
        if let Ok(bytes) = result {
            self.mapped_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        result.is_ok()
    }

    fn allocate_small(&self, class: usize) -> *mut u8 {
        self.with(|state| {
            loop {
                if let Some(block) = state.take_block(class) {
                    return block as *mut u8;
                }
                if state.take_slab(class) {
                    continue;
                }
                if !self.count_mapped(state.take_chunk()) {
                    return null_mut();
                }
            }
        })
    }

    fn free_small(&self, block: *mut u8, class: usize) {
        let block = block.cast::<usize>();
        self.with(|state| {
            // SAFETY: the block is free now, of a class of at least 16 bytes, aligned.
            unsafe { block.write(state.free[class] as usize) };
            state.free[class] = block;
        });
    }

    fn allocate_large(&self, layout: Layout) -> *mut u8 {
        let Ok((block, bytes)) = large::map(layout) else { return null_mut() };
        self.mapped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.with(|state| state.large.insert(block));
        block as *mut u8
    }

    /// # Safety
    /// The block came from `allocate_large` and is not used any more.
    unsafe fn free_large(&self, block: *mut u8) {
        let block = block as usize;
        self.with(|state| state.large.remove(block));
        // SAFETY: the block is off the list and the caller is done with it.
        let bytes = unsafe { large::unmap(block) };
        self.mapped_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// # Safety
    /// The block came from `allocate_large` and is only used under its new address.
    unsafe fn resize_large(&self, block: *mut u8, new_bytes: usize) -> *mut u8 {
        let block = block as usize;
        self.with(|state| {
            state.large.remove(block);
            // SAFETY: the block is off the list; the caller follows the address.
            let (moved, change) = unsafe { large::resize(block, new_bytes) }.unwrap_or((0, 0));
            state.large.insert(if moved == 0 { block } else { moved });
            self.mapped_bytes.fetch_add(change as usize, Ordering::Relaxed);
            moved as *mut u8
        })
    }
}

impl State {
    /// A free or fresh block of a class.
    fn take_block(&mut self, class: usize) -> Option<usize> {
        let head = self.free[class];
        if head.is_null() {
            return self.fresh[class].take(class_size(class));
        }
        // SAFETY: a block on the list is free, and its first word was written when it was put there.
        self.free[class] = unsafe { head.read() } as *mut usize;
        Some(head as usize)
    }

    /// Fresh pages for a class, from the newest chunk.
    fn take_slab(&mut self, class: usize) -> bool {
        let bytes = slab_bytes(class);
        let Some(start) = self.pages.take(bytes) else { return false };
        self.fresh[class] = Span { next: start, end: start + bytes };
        true
    }

    /// A new chunk; what is left of the one before is less than a slab and stays unused. Returns its length.
    fn take_chunk(&mut self) -> Result<usize, Errno> {
        if self.chunks_count == CHUNKS_MAX {
            return Err(Errno::NOMEM);
        }
        let have: usize = self.chunks[..self.chunks_count].iter().map(|chunk| chunk.end - chunk.next).sum();
        let bytes = CHUNK_BYTES_MIN.max((have / 8).next_multiple_of(PAGE_SIZE));
        let range = map_own(bytes, Room::None)?.0.leak();
        self.chunks[self.chunks_count] = Span { next: range.start, end: range.end };
        self.chunks_count += 1;
        self.pages = Span { next: range.start, end: range.end };
        Ok(bytes)
    }
}

/// Memory for the arena: named, and without huge pages, because sparse tables must cost only what
/// is touched. A program that lowered its limit on private data gets shared memory for it: the
/// second value says so.
fn map_own(bytes: usize, room: Room) -> Result<(Mapping, bool), Errno> {
    let private = Mapping::anon_in(bytes, Prot::RW, room).map(|mapping| (mapping, false));
    let (mapping, is_shared) =
        private.or_else(|_| Mapping::anon_shared(bytes).map(|mapping| (mapping, true)))?;
    // SAFETY: content does not change. A kernel without huge pages refuses the advice, which is as good.
    let _ = unsafe { mapping.advise(Advice::NoHugePage) };
    mem::name(mapping.range(), c"overspill heap");
    Ok((mapping, is_shared))
}

/// The size class that serves a layout, or `None` when it gets a mapping of its own.
fn small_class(layout: Layout) -> Option<usize> {
    const ALIGN_ALWAYS: usize = 16;
    let (size, align) = (layout.size(), layout.align());
    if size > SMALL_MAX || align > PAGE_SIZE {
        return None;
    }
    if align <= ALIGN_ALWAYS {
        return Some(class_of(size));
    }
    // Blocks whose size is a power of two lie at multiples of it, up to a page.
    let size = size.max(align).next_power_of_two();
    (size <= SMALL_MAX).then(|| class_of(size))
}

// SAFETY: blocks come from mappings of our own, are disjoint while in use, and fit their layout (see
// `small_class` and `large::map`); a layout leads to the same class when it is freed.
unsafe impl GlobalAlloc for ArenaAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match small_class(layout) {
            Some(class) => self.allocate_small(class),
            None => self.allocate_large(layout),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(class) = small_class(layout) else { return self.allocate_large(layout) };
        let block = self.allocate_small(class);
        if !block.is_null() {
            // SAFETY: the block is at least that long.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match small_class(layout) {
            Some(class) => self.free_small(block, class),
            // SAFETY: blocks of such a layout come from there.
            None => unsafe { self.free_large(block) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else { return null_mut() };
        match (small_class(layout), small_class(new_layout)) {
            (Some(old), Some(new)) if old == new => return block,
            (None, None) if layout.align() <= PAGE_SIZE => {
                // SAFETY: blocks of such a layout come from there.
                let resized = unsafe { self.resize_large(block, new_size) };
                if !resized.is_null() {
                    return resized;
                }
            }
            _ => {}
        }
        // SAFETY: the layout is valid.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both blocks are valid for the shorter length and disjoint; the old one is not used
            // after.
            unsafe {
                block.copy_to_nonoverlapping(new, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}
