//! What memory is filled with: every word follows from a seed, the page's number and the word's
//! place in it, so that a lost, torn, stale or misplaced page is told apart from the right one, and
//! from one another.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::memory::{Memory, PAGE, WORDS};
use crate::outcome::{Failure, Outcome};
use crate::sys;

/// The finalizer of splitmix64: every input bit changes half of the output bits.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The word at `index` of page `page` under `seed`.
#[must_use]
pub const fn word(seed: u64, page: usize, index: usize) -> u64 {
    mix(mix(seed) ^ ((page * WORDS + index) as u64))
}

/// The bytes that a memory filled with `seed` holds at `offset`, for comparing with what came
/// through a system call.
pub fn bytes(seed: u64, offset: usize, into: &mut [u8]) {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done;
        let word = word(seed, at / PAGE, at % PAGE / 8).to_ne_bytes();
        let count = (8 - at % 8).min(into.len() - done);
        into[done..done + count].copy_from_slice(&word[at % 8..at % 8 + count]);
        done += count;
    }
}

/// Fails unless `found` is what a memory filled with `seed` holds at `offset`.
pub fn check_bytes(seed: u64, offset: usize, found: &[u8], what: &str) -> Outcome {
    let mut expected = vec![0; found.len()];
    bytes(seed, offset, &mut expected);
    match expected.iter().zip(found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(Failure(format!(
            "{what}: byte {at} of {} (offset {} of the source) is {:#04x}, expected {:#04x}",
            found.len(),
            offset + at,
            found[at],
            expected[at]
        ))),
    }
}

/// Fills the pages with the pattern; page `p` of the memory gets the pattern of page `p`.
pub fn fill_pages(memory: &Memory, pages: Range<usize>, seed: u64) {
    for page in pages {
        fill_page(memory, page, seed, page);
    }
}

/// Fills `page` of the memory with the pattern of page `identity`.
pub fn fill_page(memory: &Memory, page: usize, seed: u64, identity: usize) {
    for index in 0..WORDS {
        memory.word(page, index).store(word(seed, identity, index), Relaxed);
    }
}

/// Fails unless the pages hold the pattern that [`fill_pages`] left.
pub fn check_pages(
    memory: &Memory,
    pages: impl IntoIterator<Item = usize>,
    seed: u64,
    what: &str,
) -> Outcome {
    pages.into_iter().try_for_each(|page| check_page(memory, page, seed, page, what))
}

/// Fails unless a part that was moved holds what its pages, from page `from` on, held.
pub fn check_moved(part: &Memory, from: usize, seed: u64, what: &str) -> Outcome {
    (0..part.pages()).try_for_each(|page| check_page(part, page, seed, from + page, what))
}

/// Fails unless `page` of the memory holds the pattern of page `identity`.
pub fn check_page(memory: &Memory, page: usize, seed: u64, identity: usize, what: &str) -> Outcome {
    for index in 0..WORDS {
        let (found, expected) = (memory.word(page, index).load(Relaxed), word(seed, identity, index));
        if found != expected {
            return Err(Failure(describe(memory, page, index, found, expected, seed, what)));
        }
    }
    Ok(())
}

/// Fails unless every word of the pages is zero.
pub fn check_zero(memory: &Memory, pages: Range<usize>, what: &str) -> Outcome {
    for page in pages {
        for index in 0..WORDS {
            let found = memory.word(page, index).load(Relaxed);
            if found != 0 {
                return Err(Failure(format!(
                    "{what}: page {page} word {index} is {found:#018x}, expected zero"
                )));
            }
        }
    }
    Ok(())
}

/// What a page of zeroes is made of: that tells a page that nobody knows of any more from a frame that was
/// overwritten.
fn empty_page(memory: &Memory, page: usize) -> String {
    let frame = match sys::zero_pages(memory.page(page), PAGE) {
        Ok(0) => "a frame of its own",
        Ok(_) => "the kernel's zero page",
        Err(_) => "an unknown frame",
    };
    format!("the page is all zero, in {frame}, in process {}", std::process::id())
}

/// Says what kind of wrong page this is: zero, another page's, an older one's, or torn.
fn describe(
    memory: &Memory,
    page: usize,
    index: usize,
    found: u64,
    expected: u64,
    seed: u64,
    what: &str,
) -> String {
    let words: Vec<u64> = (0..WORDS).map(|index| memory.word(page, index).load(Relaxed)).collect();
    let right = (0..WORDS).filter(|&index| words[index] == word(seed, page, index)).count();
    let kind = if words.iter().all(|&word| word == 0) {
        empty_page(memory, page)
    } else if right == WORDS {
        "the page is right when read again".to_owned()
    } else if let Some(owner) = (0..memory.pages()).find(|&other| words[1] == word(seed, other, 1)) {
        format!("word 1 is that of page {owner}")
    } else {
        format!("{right} of {WORDS} words are right")
    };
    format!(
        "{what}: page {page} of {} (address {:#x}) word {index} is {found:#018x}, expected {expected:#018x}; {kind}",
        memory.pages(),
        memory.base() + page * PAGE
    )
}
