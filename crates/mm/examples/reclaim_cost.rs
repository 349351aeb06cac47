//! What reclaim costs, for those who count instructions (callgrind): a program goes through twice
//! its budget, in order or at random, and everything that is ordered succeeds at once. Arguments:
//! `seq` or `random`, and rounds. Prints how many pages left RAM; the instructions of more rounds
//! less those of fewer, by the pages, are those of a page's way in and out, those below
//! `Mm::reclaim` alone are the decision's.

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped, WriteResult};

const BUDGET: u32 = 16_384;
const PAGES: u64 = 2 * BUDGET as u64;
const SPACE: SpaceId = SpaceId(0);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let is_random = arguments.next().is_some_and(|order| order == "random");
    let rounds: u64 = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let mut mm = Mm::new(Config { compares: true, ..Config::live(BUDGET, 4 * BUDGET) }, NoReadAhead);
    let mut out = Actions::new();
    let (start, end) = (Vpn(0), Vpn(PAGES));
    mm.step(0, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon }, &mut out);
    let mut seed = 1u64;
    let mut events = Vec::new();
    for touch in 0..rounds * PAGES {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let vpn = if is_random { (seed >> 33) % PAGES } else { touch % PAGES };
        if mm.lookup(SPACE, Vpn(vpn)).is_some_and(|id| mm.state(id) == State::Mapped) {
            continue;
        }
        events.push(Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write });
        while let Some(event) = events.pop() {
            mm.step(touch, event, &mut out);
            events.extend(out.drain().filter_map(answer));
        }
    }
    println!("{} pages left", mm.stats().pgsteal_kswapd + mm.stats().pgsteal_direct);
}

fn answer(action: Action) -> Option<Event> {
    match action {
        Action::Unmap { run } => {
            let result = Unmapped { taken: u64::MAX >> (64 - run.count), ..Unmapped::default() };
            Some(Event::Unmapped { run, result })
        }
        Action::Write { io, .. } => Some(Event::WriteDone { io, result: WriteResult::Done }),
        Action::Read { io, .. } => Some(Event::ReadDone { io, ok: true }),
        _ => None,
    }
}
