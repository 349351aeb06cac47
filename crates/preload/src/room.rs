//! Room on the stack for an environment that is put together, no more than it takes.
//!
//! It is made by steps, each twice as large as the one before: threads of programs may have little stack,
//! and their handlers of signals less.
//!
//! *The story:* any environment took 5 KiB of stack, and one of 61 entries 13. A thread with the smallest
//! stack there is called execve and ran into its guard.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;

/// A word of it: an entry, or some bytes of one.
type Word = MaybeUninit<*const c_char>;

/// What is handed on: entries, and the text of those that are made.
pub struct Room<'a> {
    entries: &'a mut [Word],
    text: &'a mut [MaybeUninit<u8>],
    used: usize,
}

/// Calls `action` with room for so many entries and so many bytes of text. `None`: there is none for that
/// much.
pub fn with(entries: usize, bytes: usize, action: &mut dyn FnMut(Room<'_>) -> c_int) -> Option<c_int> {
    let on_stack = match entries + bytes.div_ceil(size_of::<Word>()) {
        0..=64 => on_stack::<64>,
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
fn on_stack<const WORDS: usize>(entries: usize, action: &mut dyn FnMut(Room<'_>) -> c_int) -> c_int {
    let mut words = [const { Word::uninit() }; WORDS];
    let (entries, rest) = words.split_at_mut(entries);
    // SAFETY: bytes that need not be initialized, and nobody else refers to.
    let text = unsafe { core::slice::from_raw_parts_mut(rest.as_mut_ptr().cast(), size_of_val(rest)) };
    action(Room { entries, text, used: 0 })
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

    /// Where in the stack there is room for so much, below the caller.
    fn depth(entries: usize, bytes: usize) -> Option<usize> {
        let here = 0u8;
        let mut depth = 0;
        with(entries, bytes, &mut |room| {
            depth = (&raw const here as usize).abs_diff(room.entries() as usize);
            0
        })?;
        Some(depth)
    }

    /// See the head of this file: a small thread has 16 KiB, of which libc takes some.
    #[test]
    fn little_takes_little() {
        assert!(depth(40, 190).unwrap() < 2048);
        assert!(depth(80, 300).unwrap() < 4096);
        assert!(depth(1000, 300).unwrap() < 32 << 10);
        assert!(depth(20_000, 1 << 16).is_some());
        assert_eq!(depth(40_000, 0), None);
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
