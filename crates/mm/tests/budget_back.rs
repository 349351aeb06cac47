//! Found by a review: a budget that was small for an instant (a burst of memory that nobody
//! manages) took the watermarks down for ever, and with them reclaim ahead of demand.

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::{Actions, Config, Event, Mm};

#[test]
fn watermarks_come_back_with_the_budget() {
    let asked = Config::live(4096, 8192);
    let mut mm = Mm::new(asked, NoReadAhead);
    let mut out = Actions::new();
    for frames in [4096, 2, 4096] {
        mm.step(0, Event::Budget { frames }, &mut out);
        let Config { low, high, budget, .. } = *mm.config();
        assert!(low <= high && high <= budget && budget == frames);
    }
    assert_eq!((mm.config().low, mm.config().high), (asked.low, asked.high));
}
