//! Lists of ranges of addresses.

use alloc::vec::Vec;

use overspill_sys::{AddressRange, overlap};

/// Takes what they have in common with a range out of others; what is beside it is left.
///
/// *The story* (of reservations): those that the range did not hold as a whole stayed as they were. Of a
/// program that maps and unmaps in pieces there were more and more, and each first touch looked at all of
/// them.
pub(crate) fn cut_out(ranges: &mut Vec<AddressRange>, range: &AddressRange) {
    let mut left = Vec::new();
    ranges.retain(|known| {
        let is_touched = overlap(known, range);
        if is_touched {
            left.push(known.start..range.start);
            left.push(range.end..known.end);
        }
        !is_touched
    });
    ranges.extend(left.into_iter().filter(|part| !part.is_empty()));
}
