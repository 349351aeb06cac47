//! Telling the events of our own discards from those of the program's.
//!
//! A discard raises one REMOVE event for each mapping that it touches, so the events of one discard tile its range. The
//! program may discard parts of the same range at the same time. Any tiling that is found will do: if there are two, the
//! events that are left over cover the same pages either way.

use alloc::collections::VecDeque;

use overspill_sys::AddressRange;
use overspill_sys::uffd::Message;

/// Takes the events of our discard of `range` out of `changes`. Where the range cannot be tiled, part of it was not
/// mapped any more: then all events inside it are taken for ours, because an event that unmaps it follows.
pub(crate) fn remove(changes: &mut VecDeque<Message>, range: &AddressRange) {
    let mut tiles = [0; 64];
    match tile(changes, range.start, range.end, &mut tiles, 0) {
        Some(count) => {
            tiles[..count].sort_unstable();
            for &index in tiles[..count].iter().rev() {
                changes.remove(index);
            }
        }
        None => changes.retain(|message| !matches!(bounds(message), Some((start, end)) if start >= range.start && end <= range.end)),
    }
}

/// Finds events that tile `[from, to)`; their indices are written to `tiles` from `count` on.
fn tile(
    changes: &VecDeque<Message>,
    from: usize,
    to: usize,
    tiles: &mut [usize; 64],
    count: usize,
) -> Option<usize> {
    if from == to {
        return Some(count);
    }
    if count == tiles.len() {
        return None;
    }
    for (index, message) in changes.iter().enumerate() {
        let Some((start, end)) = bounds(message) else { continue };
        if start != from || end > to || end <= start {
            continue;
        }
        tiles[count] = index;
        if let Some(count) = tile(changes, end, to, tiles, count + 1) {
            return Some(count);
        }
    }
    None
}

fn bounds(message: &Message) -> Option<(usize, usize)> {
    match *message {
        Message::Remove { start, end } => Some((start, end)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(events: &[(usize, usize)], range: AddressRange) -> Vec<(usize, usize)> {
        let mut changes: VecDeque<Message> =
            events.iter().map(|&(start, end)| Message::Remove { start, end }).collect();
        remove(&mut changes, &range);
        changes.iter().map(|message| bounds(message).unwrap()).collect()
    }

    /// A discard over two mappings raised two events; neither equalled the range, both were taken for the program's, and
    /// pages that were safe in staging were forgotten. python3 died of it at once.
    #[test]
    fn a_discard_over_two_mappings_raises_two_events() {
        assert_eq!(left(&[(0, 4), (4, 16)], 0..16), []);
        assert_eq!(left(&[(4, 16), (0, 4)], 0..16), []);
    }

    #[test]
    fn the_programs_own_discards_stay() {
        assert_eq!(left(&[(0, 4), (0, 16)], 0..16), [(0, 4)]);
        assert_eq!(left(&[(0, 4), (0, 16), (4, 16)], 0..16).len(), 1);
        assert_eq!(left(&[(100, 104), (0, 16)], 0..16), [(100, 104)]);
    }

    #[test]
    fn a_range_that_is_not_all_mapped_is_ours() {
        assert_eq!(left(&[(0, 4), (8, 16), (20, 24)], 0..16), [(20, 24)]);
    }
}
