//! Found by a trace of sort in 64 KiB: a first touch was answered with nine zeroed pages, which
//! left too few frames free, so reclaim took the oldest inactive page, which was the very one,
//! found it all zero and dropped it, before the program could touch it. It faulted again, and so
//! for ever.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, Unmapped};

const SPACE: SpaceId = SpaceId(0);

/// Faults on `vpn`, carries everything out, and says whether the page was in view at the end.
fn touch(mm: &mut Mm<NoReadAhead>, vpn: u64) -> bool {
    let mut events = vec![Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write }];
    let mut present = false;
    let mut out = Actions::new();
    while let Some(event) = events.pop() {
        mm.step(0, event, &mut out);
        for action in out.drain() {
            match action {
                Action::ZeroFill { run } | Action::Map { run } => {
                    present |= run.pages().any(|id| mm.place(id).1 == Vpn(vpn));
                }
                Action::Unmap { run } => {
                    present &= run.pages().all(|id| mm.place(id).1 != Vpn(vpn));
                    let taken = u64::MAX >> (64 - run.count);
                    // Pages that nobody has stored to yet are all zero.
                    events.push(Event::Unmapped {
                        run,
                        result: Unmapped { taken, zero: taken, same: 0, gone: 0 },
                    });
                }
                other => events.extend(willing::answer(&other)),
            }
        }
        mm.check();
    }
    present
}

#[test]
fn what_was_just_answered_is_there_for_its_touch() {
    for budget in [16, 17, 24, 64] {
        let mut mm = Mm::new(Config::live(budget, 4096), NoReadAhead);
        let mut out = Actions::new();
        let (start, end) = (Vpn(0), Vpn(512));
        mm.step(0, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon }, &mut out);
        for touches in 0..2000_u64 {
            let vpn = if touches % 3 == 0 { touches * 7 % 512 } else { touches % 512 };
            let absent =
                mm.lookup(SPACE, Vpn(vpn)).is_none_or(|id| mm.state(id) != overspill_mm::State::Mapped);
            assert!(!absent || touch(&mut mm, vpn), "touch {touches} of page {vpn} in {budget} frames");
        }
    }
}
