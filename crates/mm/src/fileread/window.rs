//! The two window functions that every version from 2.6.20 on shares (specification 4.2).
//!
//! Pure: sizes in pages, `max` is the read-ahead limit of the open file.

/// The first window for a request of `req` pages.
#[must_use]
pub fn init(req: u64, max: u64) -> u64 {
    let rounded = req.max(1).checked_next_power_of_two().unwrap_or(max);
    if rounded <= max / 32 {
        4 * rounded
    } else if rounded <= max / 4 {
        2 * rounded
    } else {
        max
    }
}

/// The window after one of `current` pages; never above `max`.
#[must_use]
pub fn next(current: u64, max: u64) -> u64 {
    let grown = if current < max / 16 { 4 * current } else { current.saturating_mul(2) };
    grown.min(max)
}

/// How much of a first window lies ahead of the request: all of it where the request wants all.
#[must_use]
pub fn ahead_of_request(size: u64, req: u64) -> u64 {
    if size > req { size - req } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_windows() {
        let table = [
            (1..=1, 4, 4),
            (2..=2, 4, 8),
            (3..=4, 8, 16),
            (5..=8, 16, 32),
            (9..=16, 32, 32),
            (17..=32, 32, 64),
            (33..=64, 32, 128),
            (65..=300, 32, 256),
        ];
        for (requests, of_32, of_256) in table {
            for req in requests {
                assert_eq!((init(req, 32), init(req, 256)), (of_32, of_256), "{req}");
            }
        }
    }

    #[test]
    fn next_windows() {
        let grown = |sizes: [u64; 6], max| sizes.map(|size| next(size, max));
        assert_eq!(grown([1, 2, 4, 8, 16, 32], 32), [4, 4, 8, 16, 32, 32]);
        assert_eq!(grown([4, 15, 16, 64, 128, 300], 256), [16, 60, 32, 128, 256, 256]);
    }

    #[test]
    fn a_request_for_all_leaves_all_ahead() {
        assert_eq!((ahead_of_request(4, 1), ahead_of_request(32, 32)), (3, 32));
    }
}
