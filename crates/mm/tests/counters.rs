//! The counters of reclaim and of refaults mean what the kernel's mean (specification 5.7 and 5.8).

mod willing;

use std::collections::{HashSet, VecDeque};

use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::reclaim::policy::Choice;
use overspill_mm::types::{Access, PageId, RegionKind, Slot, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State};

const SPACE: SpaceId = SpaceId(0);
const FRAMES: u32 = 256;
const PAGES: u64 = 600;
/// Where the mapping of a file begins, if there is one.
const FILE: u64 = 1 << 20;

const OF_FILE: RegionKind = RegionKind::File { bias: FILE.wrapping_sub(Slot::FILES as u64) };

/// A shell whose device writes when somebody waits for it, and that sees what leaves and comes back.
struct World {
    mm: Mm<Policy>,
    /// Answers that the device still owes.
    owed: VecDeque<Event>,
    /// Pages that have left and not come back; those that came back, of memory and of files.
    away: HashSet<PageId>,
    back: [u64; 2],
    /// Pages that were read, of memory and of files.
    read: [u64; 2],
    /// Pages of files are found as they are there.
    reads_only: bool,
}

impl World {
    fn new(reclaim: Choice) -> World {
        let config = Config { reclaim, compares: true, ..Config::live(FRAMES, 4096) };
        let knobs = policy::Config { frames: FRAMES, ..policy::Config::default() };
        let policy = Policy::by_name("adaptive", knobs).expect("that is its name");
        let (owed, away) = (VecDeque::new(), HashSet::new());
        World { mm: Mm::new(config, policy), owed, away, back: [0; 2], read: [0; 2], reads_only: true }
    }

    fn add(&mut self, start: u64, kind: RegionKind) {
        self.feed(Event::RegionAdded { space: SPACE, start: Vpn(start), end: Vpn(start + PAGES), kind });
    }

    fn feed(&mut self, event: Event) {
        let (mut events, mut out) = (VecDeque::from([event]), Actions::new());
        while let Some(event) = events.pop_front() {
            self.mm.step(self.mm.stats().pgfault * 1000, event, &mut out);
            self.mm.check();
            for action in out.drain() {
                self.note(&action);
                let mut answer = willing::answer(&action);
                if let Some(Event::Unmapped { run, result }) = &mut answer
                    && self.reads_only
                    && self.mm.place(run.first).1.0 >= FILE
                {
                    result.same = result.taken;
                }
                match action {
                    Action::Write { .. } => self.owed.extend(answer),
                    _ => events.extend(answer),
                }
            }
        }
    }

    fn note(&mut self, action: &Action) {
        match *action {
            Action::Free { run } => self.away.extend(run.pages()),
            Action::Read { run, slot, .. } => {
                self.read[usize::from(slot.is_file())] += u64::from(run.count);
                let came = run.pages().filter(|id| self.away.remove(id)).count();
                self.back[usize::from(slot.is_file())] += came as u64;
            }
            _ => {}
        }
    }

    fn is_in(&self, vpn: Vpn) -> bool {
        self.mm.lookup(SPACE, vpn).is_some_and(|id| self.mm.state(id) == State::Mapped)
    }

    fn touch(&mut self, vpn: Vpn, access: Access) {
        let fault = Event::Fault { space: SPACE, vpn, access };
        let mut next = Some(fault);
        for _ in 0..PAGES {
            if self.is_in(vpn) {
                return;
            }
            // Who is woken, and answered by nothing, touches again.
            let event = next.take().or_else(|| self.owed.pop_front());
            self.feed(event.unwrap_or(fault));
        }
        panic!("page {} does not come", vpn.0);
    }
}

/// *The story:* under `--reclaim` with a kernel's era `pgscan_direct` was 0 beside a `pgsteal_direct` that
/// was not. Who waits for a frame gets that of a page which was looked at before he came, and whose write
/// ends while he waits.
#[test]
fn who_frees_a_page_has_looked_at_it() {
    for reclaim in Choice::ALL {
        let mut world = World::new(reclaim);
        world.add(0, RegionKind::Anon);
        for lap in 0..4 {
            // `feed` checks the counters after each step.
            (0..PAGES).for_each(|page| world.touch(Vpn((page * 7 + lap) % PAGES), Access::Write));
        }
        let stats = world.mm.stats();
        assert!(stats.pgsteal_kswapd + stats.pgsteal_direct > PAGES, "{reclaim:?}: {stats:?}");
    }
}

/// *The story:* pages of files counted as `workingset_refault_anon`, also those that had never left; and
/// pages that came back by read-ahead counted nowhere.
#[test]
fn what_left_and_is_read_again_is_a_refault_of_its_kind() {
    for reclaim in Choice::ALL {
        let mut world = World::new(reclaim);
        world.add(0, RegionKind::Anon);
        world.add(FILE, OF_FILE);
        for _ in 0..3 {
            (0..PAGES).for_each(|page| world.touch(Vpn(page), Access::Write));
            (0..PAGES).for_each(|page| world.touch(Vpn(FILE + page), Access::Read));
        }
        let stats = world.mm.stats();
        let refaults = [stats.workingset_refault_anon, stats.workingset_refault_file];
        assert_eq!(refaults, world.back, "{reclaim:?}: {stats:?}");
        // Each of the first laps brings the file in, which is no refault.
        assert!(refaults.iter().all(|&pages| pages > PAGES), "{reclaim:?}: {stats:?}");
        assert!(refaults.iter().sum::<u64>() > stats.pgmajfault, "{reclaim:?}: {stats:?}");
        assert_eq!(refaults[1] + PAGES, stats.file_in, "{reclaim:?}: {stats:?}");
    }
}

/// *The story:* pages of mapped files counted as `pswpin`, `swap_ra` and `swap_ra_hit`, by which the kernel
/// means swap and nothing else.
#[test]
fn what_is_read_of_files_is_not_read_of_swap() {
    for reclaim in Choice::ALL {
        let mut world = World::new(reclaim);
        world.add(FILE, OF_FILE);
        for _ in 0..3 {
            (0..PAGES).for_each(|page| world.touch(Vpn(FILE + page), Access::Read));
        }
        let files = *world.mm.stats();
        assert_eq!((files.pswpin, files.swap_ra, files.swap_ra_hit, files.swap_ra_unused), (0, 0, 0, 0));
        assert_eq!(files.file_in, world.read[1], "{reclaim:?}: {files:?}");
        // What nobody waited for was read ahead.
        assert_eq!(files.file_in, files.pgmajfault + files.file_ra, "{reclaim:?}: {files:?}");
        assert!(files.file_ra > PAGES && files.file_ra_hit > PAGES / 2, "{reclaim:?}: {files:?}");
        world.add(0, RegionKind::Anon);
        for _ in 0..3 {
            (0..PAGES).for_each(|page| world.touch(Vpn(page), Access::Write));
        }
        let both = world.mm.stats();
        assert_eq!([both.pswpin, both.file_in], world.read, "{reclaim:?}: {both:?}");
        let majors = both.pgmajfault - files.pgmajfault;
        assert_eq!((both.pswpin, both.file_ra), (majors + both.swap_ra, files.file_ra), "{reclaim:?}");
        assert!(both.swap_ra > PAGES / 2 && both.swap_ra_hit > PAGES / 4, "{reclaim:?}: {both:?}");
        let came_of = |used, unused, all| used + unused <= all;
        assert!(came_of(both.swap_ra_hit, both.swap_ra_unused, both.swap_ra), "{both:?}");
        assert!(came_of(both.file_ra_hit, both.file_ra_unused, both.file_ra), "{both:?}");
    }
}

/// What the program has stored to is its own: it was no file's when it was looked at.
#[test]
fn what_was_stored_to_is_not_freed_as_a_files() {
    let mut world = World { reads_only: false, ..World::new(Choice::Adaptive) };
    world.add(FILE, OF_FILE);
    (0..3 * PAGES).for_each(|page| world.touch(Vpn(FILE + page % PAGES), Access::Write));
    let stats = world.mm.stats();
    assert!(stats.pgsteal_anon > PAGES && stats.pgsteal_file <= stats.file_ra_unused, "{stats:?}");
}

/// What had been active, left all the same and is active at once when it comes back is restored.
#[test]
fn what_was_in_use_before_it_left_is_restored() {
    let mut world = World::new(Choice::Adaptive);
    world.add(0, RegionKind::Anon);
    let mut restored = 0;
    for lap in 0..60 {
        // A set in use of three quarters of the frames, and something that goes by.
        for page in 0..u64::from(FRAMES) * 3 / 4 {
            world.touch(Vpn(page), Access::Write);
            world.touch(Vpn(200 + (lap * 37 + page * 5) % 400), Access::Write);
        }
        restored = world.mm.stats().workingset_restore_anon;
    }
    assert!(restored > 0, "{:?}", world.mm.stats());
    assert_eq!(world.mm.stats().workingset_restore_file, 0);
}
