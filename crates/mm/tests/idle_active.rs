//! Found by a live test, `fork-storing`: threads had made most of the budget active and ended, and
//! a walk over other memory, which kept the inactive list long, never aged what they left: it
//! stayed as long as the walk went on. A few pages in constant use must stay all the same, without
//! being taken out of view to see whether they are used.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Actions, Config, Event, Mm, State};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 4096;
/// Pages that were in use once, and where the walk goes.
const ONCE: std::ops::Range<u64> = 0..2600;
const WALK: std::ops::Range<u64> = 4096..14336;

/// Pages that always are in use, no two of one unit: what is beside a used page comes into view
/// with it, unproven.
fn always() -> impl Iterator<Item = u64> {
    (3072..4096).step_by(16)
}

/// A shell in which everything succeeds at once.
fn touch(mm: &mut Mm<NoReadAhead>, vpn: u64) {
    if is_mapped(mm, vpn) {
        return;
    }
    let mut events = vec![Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write }];
    let mut out = Actions::new();
    while let Some(event) = events.pop() {
        mm.step(0, event, &mut out);
        for action in out.drain() {
            events.extend(willing::answer(&action));
        }
    }
}

fn is_mapped(mm: &Mm<NoReadAhead>, vpn: u64) -> bool {
    mm.lookup(SPACE, Vpn(vpn)).is_some_and(|id| mm.state(id) == State::Mapped)
}

#[test]
fn idle_pages_leave_and_used_ones_stay() {
    let mut mm = Mm::new(Config::live(BUDGET, 1 << 16), NoReadAhead);
    let (start, end) = (Vpn(0), Vpn(16384));
    let mut out = Actions::new();
    mm.step(0, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon }, &mut out);
    let mut walk = WALK.cycle();
    for _ in 0..40 {
        ONCE.chain(always()).for_each(|vpn| touch(&mut mm, vpn));
        walk.by_ref().take(400).for_each(|vpn| touch(&mut mm, vpn));
    }
    let used = ONCE.filter(|&vpn| is_mapped(&mm, vpn)).count();
    assert!(used > ONCE.count() * 3 / 4, "{used} pages of {} are in view while they are used", ONCE.count());
    let mut away = 0;
    for vpn in walk.take(8 * WALK.count()) {
        touch(&mut mm, vpn);
        away += always().filter(|&vpn| !is_mapped(&mm, vpn)).count();
        always().for_each(|vpn| touch(&mut mm, vpn));
    }
    mm.check();
    let idle = ONCE.filter(|&vpn| is_mapped(&mm, vpn)).count();
    assert!(idle <= BUDGET as usize * 3 / 10, "{idle} idle pages of {used} are still in view");
    assert!(away <= 4 * always().count(), "pages in constant use were taken out of view {away} times");
}
