//! The window function that both of the kernel's swap-in detectors share (specification 1.3).
//!
//! Pure: the state it is fed with is kept by its callers, one copy for the system in
//! [`super::cluster`], one word a region in [`super::vma`].

/// Hits that a detector without history assumes.
pub const HITS_INITIAL: u32 = 4;

/// Pages to read, the faulting one included.
///
/// `prev` and `off` are the places (slots or page numbers) of the remembered fault and of this one,
/// `hits` the read-ahead pages used since the last decision, `max` the largest window (a power of
/// two), `last` the window before. The floor `last / 2` comes after the clamp: lowering `max` takes
/// effect over several misses.
#[must_use]
pub fn win(prev: u64, off: u64, hits: u32, max: u32, last: u32) -> u32 {
    let wanted = match hits {
        0 if off.abs_diff(prev) == 1 => 2,
        0 => 1,
        _ => hits.saturating_add(2).checked_next_power_of_two().unwrap_or(max).max(4),
    };
    wanted.min(max).max(last / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_table() {
        for (hits, adjacent, pages) in [
            (0, false, 1),
            (0, true, 2),
            (1, false, 4),
            (2, false, 4),
            (3, false, 8),
            (4, true, 8),
            (5, false, 8),
            (6, false, 8),
            (7, false, 8),
            (500, true, 8),
        ] {
            for off in if adjacent { [99, 101] } else { [90, 102] } {
                assert_eq!(win(100, off, hits, 8, 0), pages, "{hits} hits, {off}");
            }
        }
    }

    #[test]
    fn before_the_clamp_the_window_is_the_power_of_two_that_holds_the_hits_and_two_more() {
        let windows = [3, 6, 7, 14, 15, 30, 31, u32::MAX].map(|hits| win(0, 9, hits, 1 << 31, 0));
        assert_eq!(windows, [8, 8, 16, 16, 32, 32, 64, 1 << 31]);
    }

    #[test]
    fn the_floor_is_half_of_the_last_window_and_comes_after_the_clamp() {
        let mut last = 32;
        let mut seen = [0; 6];
        for window in &mut seen {
            last = win(0, 77, 0, 8, last);
            *window = last;
        }
        assert_eq!(seen, [16, 8, 4, 2, 1, 1]);
        assert_eq!(win(0, 77, 9, 8, 64), 32, "max 8, but the last window was 64");
    }

    #[test]
    fn a_window_that_was_used_up_doubles_one_short_of_it_stays() {
        for last in [4, 8, 16] {
            assert_eq!(win(0, 77, last - 1, 32, last), 2 * last);
            assert_eq!(win(0, 77, last - 2, 32, last), last);
        }
    }
}
