//! Packing: what the compressed pool makes of a page's bytes, and how it gets them back.
//!
//! LZ4, by a table that is kept from page to page; bytes that are one word again and again are kept
//! as that word. It knows of no slots. The example `packing` measures it, page by page and in runs.

use alloc::boxed::Box;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use overspill_mm::pool::FILLED_BYTES;

/// The compressor, and room for what it makes.
pub struct Packer {
    table: CompressTable,
    packed: Box<[u8]>,
    len: usize,
}

impl Packer {
    /// One for so many bytes at a time.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Packer {
            table: CompressTable::default(),
            packed: alloc::vec![0; get_maximum_output_size(bytes_max)].into_boxed_slice(),
            len: 0,
        }
    }

    /// Packs these bytes; how many they became.
    ///
    /// # Panics
    /// When they are more than it was made for, or less than a word.
    pub fn pack(&mut self, bytes: &[u8]) -> usize {
        self.len = if let Some(word) = filled_with(bytes) {
            self.packed[..FILLED_BYTES].copy_from_slice(word);
            FILLED_BYTES
        } else {
            let packed = compress_into_with_table(bytes, &mut self.packed, &mut self.table);
            packed.expect("there is room for the largest output")
        };
        self.len
    }

    /// What was packed last.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        &self.packed[..self.len]
    }
}

/// Gets the bytes back, of which there were as many as `bytes` has.
///
/// # Panics
/// When these are not what was packed.
pub fn unpack(packed: &[u8], bytes: &mut [u8]) {
    if packed.len() == FILLED_BYTES {
        bytes.chunks_exact_mut(FILLED_BYTES).for_each(|word| word.copy_from_slice(packed));
    } else {
        let unpacked = decompress_into(packed, bytes);
        assert_eq!(unpacked.ok(), Some(bytes.len()), "what was packed is unpacked");
    }
}

/// The word of which the bytes consist, if they do.
fn filled_with(bytes: &[u8]) -> Option<&[u8; FILLED_BYTES]> {
    let (words, _) = bytes.as_chunks::<FILLED_BYTES>();
    let first = &words[0];
    words.iter().all(|word| word == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::vec;
    use std::vec::Vec;

    const PAGE: usize = 4096;

    /// Pages of runs and noise, each by the number before it.
    fn pages() -> impl Iterator<Item = Vec<u8>> {
        let mut random = 88_172_645_463_325_252u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        (0..300).map(move |_| {
            let mut page = Vec::new();
            while page.len() < PAGE {
                let (len, byte) = (next() as usize % 300, next() as u8);
                match next() % 3 {
                    0 => page.extend((0..len).map(|_| byte)),
                    1 => page.extend((0..len).map(|_| next() as u8)),
                    _ => page.extend_from_within(page.len() - len.min(page.len())..),
                }
            }
            page.truncate(PAGE);
            page
        })
    }

    #[test]
    fn what_was_packed_comes_back() {
        let mut packer = Packer::new(PAGE);
        for page in pages() {
            packer.pack(&page);
            let mut bytes = vec![1; PAGE];
            unpack(packer.packed(), &mut bytes);
            assert!(bytes == page);
        }
    }

    /// The compressor writes past slices' checks. Whatever becomes of what it made, nothing outside of
    /// where the page goes is written.
    #[test]
    fn what_was_damaged_harms_nobody() {
        let mut packer = Packer::new(PAGE);
        for (number, page) in pages().enumerate() {
            packer.pack(&page);
            for at in (0..packer.packed().len()).step_by(37) {
                let mut packed = packer.packed().to_vec();
                packed[at] ^= (number as u8) | 1;
                let mut room = vec![0xa5; 3 * PAGE];
                let _ = decompress_into(&packed, &mut room[PAGE..2 * PAGE]);
                let _ = decompress_into(&packed[..at], &mut room[PAGE..2 * PAGE]);
                let outside = room[..PAGE].iter().chain(&room[2 * PAGE..]);
                assert!(outside.into_iter().all(|&byte| byte == 0xa5), "page {number}, byte {at}");
            }
        }
    }
}
