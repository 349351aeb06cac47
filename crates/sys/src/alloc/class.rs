//! Size classes: 16 to 128 bytes in steps of 16, then four steps an octave up to 32 KiB. Pure arithmetic.

use crate::PAGE_SIZE;

/// The largest class.
pub(super) const SMALL_MAX: usize = 32 * 1024;
const STEP: usize = 16;
const LINEAR_MAX: usize = 128;
const LINEAR_CLASSES: usize = LINEAR_MAX / STEP;
const OCTAVES: usize = (SMALL_MAX / LINEAR_MAX).ilog2() as usize;
/// Number of classes.
pub(super) const CLASSES: usize = LINEAR_CLASSES + 4 * OCTAVES;

/// The smallest class that holds `size` bytes.
pub(super) fn class_of(size: usize) -> usize {
    assert!(size <= SMALL_MAX);
    let last = size.max(1) - 1;
    if size <= LINEAR_MAX {
        return last / STEP;
    }
    let octave = last.ilog2();
    let quarter = (last >> (octave - 2)) & 3;
    LINEAR_CLASSES + (octave - LINEAR_MAX.ilog2()) as usize * 4 + quarter
}

/// Bytes of a block of a class.
pub(super) fn class_size(class: usize) -> usize {
    assert!(class < CLASSES);
    if class < LINEAR_CLASSES {
        return (class + 1) * STEP;
    }
    let (octave, quarter) = ((class - LINEAR_CLASSES) / 4, (class - LINEAR_CLASSES) % 4);
    let base = LINEAR_MAX << octave;
    base + (quarter + 1) * (base / 4)
}

/// Bytes taken from a chunk at once for a class: some blocks, whole pages.
pub(super) fn slab_bytes(class: usize) -> usize {
    const BLOCKS: usize = 8;
    (class_size(class) * BLOCKS).next_multiple_of(PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for size in 0..=SMALL_MAX {
            let class = class_of(size);
            assert!(class_size(class) >= size);
            assert!(class == 0 || class_size(class - 1) < size);
            assert!(size <= LINEAR_MAX || class_size(class) - size <= size / 4);
        }
        assert_eq!(class_size(CLASSES - 1), SMALL_MAX);
        assert!((0..CLASSES).all(|class| class_size(class).is_multiple_of(STEP)));
    }

    #[test]
    fn powers_of_two_are_classes_of_their_own() {
        for power in 4..=15 {
            assert_eq!(class_size(class_of(1 << power)), 1 << power);
        }
    }
}
