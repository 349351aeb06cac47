//! Room for an environment that is put together: little of it on the stack, more in a mapping of its own.
//!
//! Threads of programs may have little stack, and their handlers of signals less; how much is left cannot
//! be asked. The mapping goes when the call has failed, or was posix_spawn's; with a call of exec that
//! succeeds memory goes as a whole. A child of vfork leaves it to its parent ([`borrowed`]). It is shared
//! memory, which nobody pages: nobody waits for a page of it, and the agent may unmap it.
//!
//! Behind a filter, which may kill who asks for a mapping, all is on the stack, as much as that has.
//!
//! *The stories:* any environment took 5 KiB of stack, and one of 61 entries 13. A thread with the smallest
//! stack there is called execve and ran into its guard. Then it was taken by steps, and a thread of 16 KiB
//! with 1500 entries ran into its guard all the same; one with 50,000 had no agent.

pub mod borrowed;

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;

use linux_raw_sys::general::{__NR_mmap, MAP_ANONYMOUS, MAP_SHARED, PROT_READ, PROT_WRITE};
use overspill_sys::{AddressRange, PAGE_SIZE, mem};

use crate::{filters, fork};

/// A word of it: an entry, or some bytes of one.
type Word = MaybeUninit<*const c_char>;
type Action<'a> = &'a mut dyn FnMut(Room<'_>) -> c_int;

/// So many words are on the stack.
const FEW: usize = 64;

/// What is handed on: entries, and the text of those that are made.
pub struct Room<'a> {
    entries: &'a mut [Word],
    text: &'a mut [MaybeUninit<u8>],
    used: usize,
}

/// Calls `action` with room for so many entries and so many bytes of text. `None`: there is none for that
/// much.
pub fn with(entries: usize, bytes: usize, action: Action<'_>) -> Option<c_int> {
    let words = entries + bytes.div_ceil(size_of::<Word>());
    if words <= FEW || filters::may_be_filtered() {
        return by_stack(words, entries, action);
    }
    mapped(words, entries, action)
}

fn by_stack(words: usize, entries: usize, action: Action<'_>) -> Option<c_int> {
    let on_stack = match words {
        0..=FEW => on_stack::<FEW>,
        65..=128 => on_stack::<128>,
        129..=256 => on_stack::<256>,
        257..=512 => on_stack::<512>,
        513..=1024 => on_stack::<1024>,
        1025..=2048 => on_stack::<2048>,
        2049..=4096 => on_stack::<4096>,
        4097..=8192 => on_stack::<8192>,
        8193..=16_384 => on_stack::<16_384>,
        16_385..=32_768 => on_stack::<32_768>,
        _ => return None,
    };
    Some(on_stack(entries, action))
}

#[inline(never)]
fn on_stack<const WORDS: usize>(entries: usize, action: Action<'_>) -> c_int {
    in_words(&mut [const { Word::uninit() }; WORDS], entries, action)
}

fn in_words(words: &mut [Word], entries: usize, action: Action<'_>) -> c_int {
    let (entries, rest) = words.split_at_mut(entries);
    // SAFETY: bytes that need not be initialized, and nobody else refers to.
    let text = unsafe { core::slice::from_raw_parts_mut(rest.as_mut_ptr().cast(), size_of_val(rest)) };
    action(Room { entries, text, used: 0 })
}

#[inline(never)]
fn mapped(words: usize, entries: usize, action: Action<'_>) -> Option<c_int> {
    borrowed::give_back();
    let mapping = map((words * size_of::<Word>()).next_multiple_of(PAGE_SIZE))?;
    let is_borrowed = fork::is_borrowing() && !borrowed::has_list();
    let note = is_borrowed.then(|| borrowed::note(&mapping));
    let result = (note != Some(None)).then(|| {
        // SAFETY: it was just mapped, is so large, and nobody else refers to it.
        let words = unsafe { core::slice::from_raw_parts_mut(mapping.start as *mut Word, words) };
        in_words(words, entries, action)
    });
    match note.flatten() {
        Some(note) => note.end(),
        None => unmap(mapping),
    }
    result
}

fn map(bytes: usize) -> Option<AddressRange> {
    let (prot, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
    // SAFETY: the kernel chooses where nothing is.
    let start =
        unsafe { overspill_sys::call(__NR_mmap, [0, bytes, prot as usize, flags as usize, usize::MAX, 0]) };
    let start = start.ok()?;
    Some(start..start + bytes)
}

fn unmap(mapping: AddressRange) {
    // SAFETY: whoever has a mapping that was made here gives it up.
    let _ = unsafe { mem::munmap(mapping) };
}

impl Room<'_> {
    /// Puts an entry into this place.
    pub fn put(&mut self, place: usize, entry: *const c_char) {
        self.entries[place].write(entry);
    }

    /// Puts a string together. There is room for what was asked for.
    pub fn text<'b>(&mut self, parts: impl Iterator<Item = &'b [u8]>) -> *const c_char {
        let start = self.used;
        for &byte in parts.flatten().chain(&[0]) {
            self.text[self.used].write(byte);
            self.used += 1;
        }
        self.text[start..].as_ptr().cast()
    }

    /// All entries, of which the last that was put is a null pointer.
    pub fn entries(&self) -> *const *const c_char {
        self.entries.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// How much stack is taken for so much room. (That of the caller's own is little.)
    fn depth(entries: usize, bytes: usize) -> usize {
        let here = 0u8;
        let mut depth = 0;
        let done = with(entries, bytes, &mut |_| {
            let there = 0u8;
            depth = (&raw const here as usize).abs_diff(&raw const there as usize);
            0
        });
        assert_eq!(done, Some(0));
        depth
    }

    /// See the head of this file: a small thread has 16 KiB, of which libc takes some, and a handler of
    /// signals may have less than one. What is asked for is there, however much.
    #[test]
    fn much_takes_as_little_of_the_stack_as_little_does() {
        for (entries, bytes) in [(40, 190), (80, 300), (1000, 300), (20_000, 1 << 16), (100_000, 1 << 20)] {
            let depth = depth(entries, bytes);
            assert!(depth < 2048, "{depth} bytes of the stack for {entries} entries");
        }
    }

    #[test]
    fn a_mapping_goes_with_the_call() {
        let mut there = 0;
        let seen = |at: usize| {
            // SAFETY: asks for locks and does nothing, see msync(2): ENOMEM says that nothing is mapped.
            let answer = unsafe {
                overspill_sys::call(
                    linux_raw_sys::general::__NR_msync,
                    [at / PAGE_SIZE * PAGE_SIZE, PAGE_SIZE, 0, 0, 0, 0],
                )
            };
            answer.is_ok()
        };
        let done = with(5000, 500, &mut |room| {
            there = room.entries() as usize;
            c_int::from(seen(there))
        });
        assert_eq!((done, seen(there)), (Some(1), false));
    }

    #[test]
    fn all_that_was_asked_for_has_room() {
        for bytes in [7, 8, 9, 500, 513] {
            let long: Vec<u8> = core::iter::repeat_n(b'x', bytes - 1).collect();
            let mut room_for = |mut room: Room<'_>| {
                let text = room.text([&long[..]].into_iter());
                room.put(0, text);
                room.put(1, core::ptr::null());
                // SAFETY: it ends with a NUL.
                let written = unsafe { core::ffi::CStr::from_ptr(text) }.to_bytes();
                assert_eq!(written, long);
                written.len() as c_int
            };
            assert_eq!(with(2, bytes, &mut room_for), Some(bytes as c_int - 1));
        }
    }
}
