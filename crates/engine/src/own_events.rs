//! Telling the events of our own discards from those of the program's.
//!
//! A discard raises one REMOVE event for each mapping that it touches, so the events of one discard
//! tile its range. The program may discard parts of the same range at the same time. Any tiling
//! that is found will do: if there are two, the events that are left over cover the same pages
//! either way.
//!
//! *The story:* the tiling was searched by trying, so that each page of the range that the program
//! had discarded too doubled the time where the range could not be tiled: 24 pages took two
//! seconds.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_sys::AddressRange;
use overspill_sys::uffd::Message;

/// A REMOVE event, and its place in the queue.
struct Discard {
    index: usize,
    start: usize,
    end: usize,
}

/// Takes the events of our discard of `range` out of `changes`. Where the range cannot be tiled,
/// part of it was not mapped any more: then all events inside it are taken for ours, because an
/// event that unmaps it follows.
pub(crate) fn remove(changes: &mut VecDeque<Message>, range: &AddressRange) {
    let mut inside: Vec<Discard> =
        changes.iter().enumerate().filter_map(|(index, message)| discard(index, message, range)).collect();
    inside.sort_unstable_by_key(|event| (event.start, event.index));
    let mut ours = tiling(&inside, range).unwrap_or_else(|| inside.iter().map(|event| event.index).collect());
    ours.sort_unstable();
    let mut index = 0;
    changes.retain(|_| {
        let is_ours = ours.binary_search(&index).is_ok();
        index += 1;
        !is_ours
    });
}

/// Takes the event of our move of `range` to `to` out of `changes`.
pub(crate) fn remove_move(changes: &mut VecDeque<Message>, range: &AddressRange, to: usize) {
    let is_ours = |message: &Message| {
        matches!(*message, Message::Remap { from, to: target, len }
            if from == range.start && target == to && len == range.len())
    };
    remove_one(changes, is_ours);
}

/// Takes the event out of `changes` by which our move told that `range` ended, or was replaced.
pub(crate) fn remove_end(changes: &mut VecDeque<Message>, range: &AddressRange) {
    let is_ours = |message: &Message| match *message {
        Message::Unmap { start, end } => (start..end) == *range,
        _ => false,
    };
    remove_one(changes, is_ours);
}

fn remove_one(changes: &mut VecDeque<Message>, is_ours: impl Fn(&Message) -> bool) {
    if let Some(index) = changes.iter().position(is_ours) {
        changes.remove(index);
    }
}

/// The places of events that tile the range, of those inside it, which are sorted by their starts.
///
/// From the back: an event leads to the end if it ends there, or if one leads there that starts
/// where it ends. So each is looked at once.
fn tiling(inside: &[Discard], range: &AddressRange) -> Option<Vec<usize>> {
    // One event that leads to the end for each start, from the last start to the first; the next
    // one of its tiling.
    let mut leading: Vec<(&Discard, Option<usize>)> = Vec::with_capacity(inside.len());
    for event in inside.iter().rev() {
        let next = leading.binary_search_by(|(other, _)| event.end.cmp(&other.start)).ok();
        let leads = event.end == range.end || next.is_some();
        if !leads {
            continue;
        }
        match leading.last_mut().filter(|(last, _)| last.start == event.start) {
            // The first in the queue, as the order in which they came.
            Some(last) => *last = (event, next),
            None => leading.push((event, next)),
        }
    }
    let mut at = leading.len().checked_sub(1).filter(|&last| leading[last].0.start == range.start);
    at?;
    let mut tiles = Vec::new();
    while let Some((event, next)) = at.map(|at| leading[at]) {
        tiles.push(event.index);
        at = next;
    }
    Some(tiles)
}

/// The event, if it is a discard inside the range.
fn discard(index: usize, message: &Message, range: &AddressRange) -> Option<Discard> {
    match *message {
        Message::Remove { start, end } if range.start <= start && start < end && end <= range.end => {
            Some(Discard { index, start, end })
        }
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
        let bounds = |message: &Message| match *message {
            Message::Remove { start, end } => (start, end),
            _ => unreachable!("only discards were queued"),
        };
        changes.iter().map(bounds).collect()
    }

    /// A discard over two mappings raised two events; neither equalled the range, both were taken
    /// for the program's, and pages that were safe in staging were forgotten. python3 died of it at
    /// once.
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

    /// See the head of the file: every page twice, but for the last one, which nobody discarded.
    /// There are 2^63 ways to try.
    #[test]
    fn a_range_that_cannot_be_tiled_is_searched_once() {
        let twice: Vec<(usize, usize)> =
            (0..63).flat_map(|page| [(page, page + 1), (page, page + 1)]).collect();
        assert_eq!(left(&twice, 0..64), []);
        let tiled = left(&[&twice[..], &[(63, 64)]].concat(), 0..64);
        assert_eq!(tiled, (0..63).map(|page| (page, page + 1)).collect::<Vec<_>>());
    }

    /// What is found tiles the range, and is found where there is any: against a search of all subsets.
    #[test]
    fn tilings_agree_with_a_search_of_all_subsets() {
        let mut seed = 7u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % bound) as usize
        };
        for _ in 0..2000 {
            let events: Vec<(usize, usize)> = (0..9)
                .map(|_| {
                    let start = below(6);
                    (start, start + 1 + below(6 - start as u64))
                })
                .collect();
            let covers = |set: usize| {
                let mut chosen: Vec<_> =
                    (0..events.len()).filter(|n| set & 1 << n != 0).map(|n| events[n]).collect();
                chosen.sort_unstable();
                let ends = chosen.iter().try_fold(0, |at, &(start, end)| (start == at).then_some(end));
                ends == Some(6)
            };
            let possible = (1..1usize << events.len()).any(covers);
            let rest = left(&events, 0..6);
            if !possible {
                assert!(rest.is_empty());
                continue;
            }
            let mut taken = events.clone();
            for event in &rest {
                let at = taken.iter().position(|other| other == event).unwrap();
                taken.remove(at);
            }
            taken.sort_unstable();
            let tiled = taken.iter().try_fold(0, |at, &(start, end)| (start == at).then_some(end));
            assert_eq!(tiled, Some(6), "{events:?} leave {rest:?}");
        }
    }
}
