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
