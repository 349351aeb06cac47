//! Where frames are left that nobody needs, what lies around a read at random is read, too.
//!
//! An empty frame earns nothing. So a reader at random pays for what it may want later for as long as
//! there are such frames, and no more for each read than what it waits for costs: until they are
//! used up it takes twice as long at most, and what it reads after that it finds more often. What it
//! waits for is read first, by itself.
//!
//! *The story:* a database of 1 GiB in half of that, touched at random, had 2500 of its pages by as many
//! waits, while half of the budget was empty.

use super::{Ask, Cause, Config, Extent, Reads};

/// Reads in a row that no stream explains, before this is done: who only begins is no reader at random.
const ALONE: u64 = 16;
/// The least that is read around, and the part of what is free that may go at once.
const LEAST: u64 = 8;
const ROOM_PART: u64 = 8;

/// Adds what lies around a read, the `alone`th in a row that is at random.
pub(super) fn read(config: &Config, alone: u64, ask: &Ask, reads: &mut Reads) {
    let most = (ask.room / ROOM_PART).min(config.window_max);
    let block = (config.latency_ns / config.page_ns.max(1)).max(1).next_power_of_two();
    if alone < ALONE || most < LEAST || ask.pages >= block {
        return;
    }
    let block = block.min(1 << most.ilog2());
    let start = ask.page / block * block;
    let end = (start + block).max(ask.page + ask.pages);
    for (start, end) in [(start, ask.page), (ask.page + ask.pages, end)] {
        reads.push(Extent { start, pages: end - start, marker: None, cause: Cause::Around });
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn around(alone: u64, room: u64, page: u64) -> Vec<(u64, u64)> {
        let ask = Ask { room, ..Ask::new(page, 1, 10_000) };
        let mut reads = Reads::new(ask.file_pages);
        read(&Config::default(), alone, &ask, &mut reads);
        reads.extents().iter().map(|extent| (extent.start, extent.end())).collect()
    }

    #[test]
    fn the_block_around_a_page_is_read_without_it() {
        assert_eq!(around(ALONE, 1 << 20, 1000), [(960, 1000), (1001, 1024)]);
        assert_eq!(around(ALONE, 1 << 20, 960), [(961, 1024)]);
        assert_eq!(around(ALONE, 1 << 20, 9999), [(9984, 9999)], "the file ends");
        assert_eq!(around(ALONE, 100, 1000), [(1001, 1008)], "an eighth of what is free");
    }

    #[test]
    fn who_begins_and_who_has_no_room_gets_what_it_asked_for() {
        assert_eq!(around(ALONE - 1, 1 << 20, 1000), []);
        assert_eq!(around(ALONE, LEAST * ROOM_PART - 1, 1000), []);
        assert_eq!(around(ALONE, 0, 1000), []);
    }
}
