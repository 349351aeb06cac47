//! Found by `torture fork-storing`: threads stored to 40 MiB at random, so that its pages were active, and stopped. A walk over
//! other memory, again and again, kept the inactive list longer than the active one, which therefore was never aged: 25 of
//! 64 MiB stayed with pages that nobody used any more, for as long as the walk went on.

use std::collections::VecDeque;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped, WriteResult};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 4096;
/// What is used at first.
const USED: u64 = 1800;
/// What is walked over: it begins behind that.
const WALKED: u64 = 10_240;

/// A shell in which everything succeeds at once.
struct Shell {
    mm: Mm<NoReadAhead>,
    reads: u64,
}

impl Shell {
    fn new() -> Self {
        let mut shell = Shell { mm: Mm::new(Config::live(BUDGET, 1 << 16), NoReadAhead), reads: 0 };
        let (start, end) = (Vpn(0), Vpn(USED + WALKED));
        shell.feed(Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
        shell
    }

    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        let mut out = Actions::new();
        while let Some(event) = events.pop_front() {
            self.mm.step(0, event, &mut out);
            for action in out.drain() {
                match action {
                    Action::Unmap { run } => {
                        let taken = u64::MAX >> (64 - run.count);
                        events.push_back(Event::Unmapped {
                            run,
                            result: Unmapped { taken, ..Unmapped::default() },
                        });
                    }
                    Action::Write { io, .. } => {
                        events.push_back(Event::WriteDone { io, result: WriteResult::Done })
                    }
                    Action::Read { io, run, .. } => {
                        self.reads += u64::from(run.count);
                        events.push_back(Event::ReadDone { io, ok: true });
                    }
                    _ => {}
                }
            }
        }
    }

    fn touch(&mut self, vpn: u64) {
        let state = self.mm.lookup(SPACE, Vpn(vpn)).map(|id| self.mm.state(id));
        if state != Some(State::Mapped) {
            self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write });
        }
    }

    /// Touches the pages to be used until reclaim has made them active: each page that it takes is wanted back at once.
    fn use_all(&mut self) {
        for round in 0..40_u64 {
            for vpn in 0..USED {
                self.touch(vpn);
                if vpn % 4 == 0 {
                    self.touch(USED + (round * USED + vpn) / 4 % WALKED);
                }
            }
        }
        assert!(self.resident() > USED * 9 / 10, "{} pages stay while they are used", self.resident());
    }

    fn resident(&self) -> u64 {
        let is_resident =
            |&vpn: &u64| self.mm.lookup(SPACE, Vpn(vpn)).is_some_and(|id| self.mm.state(id) == State::Mapped);
        (0..USED).filter(is_resident).count() as u64
    }
}

#[test]
fn what_is_not_used_any_more_goes_out_during_a_walk() {
    let mut shell = Shell::new();
    shell.use_all();
    for touch in 0..20 * WALKED {
        shell.touch(USED + touch % WALKED);
    }
    shell.mm.check();
    assert!(shell.resident() <= USED / 8, "{} of {USED} idle pages are still there", shell.resident());
}

#[test]
fn what_is_used_stays_during_a_walk() {
    let mut shell = Shell::new();
    shell.use_all();
    shell.reads = 0;
    for touch in 0..20 * WALKED {
        shell.touch(USED + touch % WALKED);
        // Twenty used pages for one that is walked over: a program that works on what it keeps.
        (0..20).for_each(|used| shell.touch((touch * 20 + used) % USED));
    }
    shell.mm.check();
    // Every page of the walk is read, and no more than one in fifty of the others beside it.
    let others = shell.reads - shell.reads.min(20 * WALKED);
    assert!(others <= 20 * WALKED / 50, "{others} reads of used pages beside {}", 20 * WALKED);
    assert!(shell.resident() > USED * 9 / 10, "{} of {USED} used pages are still there", shell.resident());
}
