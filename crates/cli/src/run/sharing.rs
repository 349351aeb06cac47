//! How much of a process's memory others of the tree have, too, so that it is counted once.
//!
//! What a child of fork has in common with its parent nobody tells but a walk of the page tables
//! (smaps_rollup), which holds the lock of the address space meanwhile. So only copies that last,
//! their parents, and all when memory is short are asked. A copy that may call exec any moment has
//! what it was born with in common, as far as is known. Whatever else counts in full: the worst
//! that the summary can do is to say that a program fits which does not.
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::BTreeMap;

use overspill_engine::in_common::InCommon;

use super::census::Census;
use super::descendants::{Look, of_pid};

/// A copy of its parent that holds less is not asked.
const COPY_BYTES: u64 = 1 << 20;
/// All walks in turn take one part in so many of a processor.
const WALKS_SHARE: u64 = 100;
/// ... and those of families whose answers do not hold any more one in so many beside that.
const WORN_WALKS_SHARE: u64 = 20;
/// Who holds so much less than when it was asked let go of pages that are others' own now, perhaps.
const FALL_BYTES: u64 = 1 << 20;
/// Nobody is asked again sooner.
const AGAIN_NS: u64 = 50_000_000;
/// ... nor, if it had next to nothing in common: it can get that by a fork only, which is heard of.
const LITTLE_AGAIN_NS: u64 = 10_000_000_000;
const LITTLE_BYTES: u64 = 1 << 20;
/// ... but where so many are new that their first walks take more, the others are asked again after
/// so long all the same.
const DEBT_MAX_NS: u64 = 10_000_000_000;
/// What was found out before a process was of no interest for so long is not believed any more.
const STALE_NS: u64 = 500_000_000;

/// How it is known what a process has in common with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is not: all counts.
    Full,
    /// It was just made as a copy.
    Born,
    /// By a walk.
    Asked,
}

/// Bytes of anonymous and of shared memory that others have, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubly {
    /// Anonymous memory.
    pub anon_bytes: u64,
    /// Shared memory.
    pub shmem_bytes: u64,
    /// Faults of the process before it was asked.
    pub faults: u64,
}

/// What is known of a process.
#[derive(Default)]
struct Known {
    parent: u32,
    program_pages: u32,
    /// The least that it was seen to hold since it was made as a copy, if it was one: what it has
    /// had since is its own.
    born_bytes: u64,
    /// When it was asked, and the answer.
    asked_ns: Option<u64>,
    answer: Doubly,
    /// What it held when it was asked, or when its family was last worn for its holding less.
    asked_bytes: u64,
    /// Most of the answer is not believed any more, or that of a relative.
    is_worn: bool,
    /// When the answer was last of interest.
    used_ns: u64,
    way: Option<Way>,
}

/// The books.
#[derive(Default)]
pub struct Sharing {
    known: BTreeMap<u32, Known>,
    /// Nobody is asked again until then: the walks so far are paid for.
    paid_ns: u64,
    /// ... but for who is worn.
    worn_paid_ns: u64,
}

impl Sharing {
    /// All that live, in the order of their numbers, before the census has seen them. Memory
    /// `is_short` says that all are asked. `walk` asks; `now` is the time in nanoseconds.
    pub fn look(
        &mut self,
        looks: &[Look],
        census: &Census,
        is_short: bool,
        mut now: impl FnMut() -> u64,
        mut walk: impl FnMut(&Look) -> Option<Doubly>,
    ) {
        let ways = ways(looks, census, is_short);
        self.forget(looks);
        let began = now();
        let (mut left, mut fallen) = (Vec::new(), Vec::new());
        for look in looks {
            let way = ways[&look.pid];
            let parent = of_pid(looks, look.parent);
            let is_same = |parent: &&Look| parent.program_pages == look.program_pages;
            let first = || Known {
                program_pages: look.program_pages,
                born_bytes: parent.filter(is_same).map_or(0, |parent| born_bytes(look, parent)),
                ..Known::default()
            };
            let known = self.known.entry(look.pid).or_insert_with(first);
            if known.program_pages != look.program_pages {
                // Its exec let go of all that it had of its parent's.
                left.extend(known.asked_ns.map(|_| known.parent));
                *known = Known { program_pages: look.program_pages, ..Known::default() };
            }
            known.parent = look.parent;
            if known.has_fallen(look.anon_bytes) {
                fallen.push(look.pid);
            }
            // What a process let go of it does not have in common with others when it has it again.
            known.answer.anon_bytes = known.answer.anon_bytes.min(look.anon_bytes);
            known.born_bytes = known.born_bytes.min(look.anon_bytes);
            if way == Way::Asked {
                if began - known.used_ns > STALE_NS {
                    known.asked_ns = None;
                }
                known.used_ns = began;
            }
            known.way = Some(way);
        }
        self.ask_at_once(&left);
        left.iter().chain(&fallen).for_each(|pid| self.wear(*pid));
        self.ask(looks, &mut now, &mut walk);
    }

    /// Those that ended are forgotten. Whoever made them has more by itself from then on, and so
    /// have their brothers and children.
    fn forget(&mut self, looks: &[Look]) {
        let ended: Vec<(u32, u32)> = self
            .known
            .iter()
            .filter(|(pid, known)| known.asked_ns.is_some() && of_pid(looks, **pid).is_none())
            .map(|(pid, known)| (*pid, known.parent))
            .collect();
        self.ask_at_once(&ended.iter().map(|(_, parent)| *parent).collect::<Vec<u32>>());
        ended.iter().for_each(|(pid, _)| self.wear(*pid));
        self.known.retain(|pid, _| of_pid(looks, *pid).is_some());
    }

    /// What was told of a process, of its parent, its brothers and its children is to be asked again
    /// soon.
    ///
    /// *The story:* a parent that stores to all that it had in common with a child makes that the
    /// child's own, who has no fault and believes what it was told.
    ///
    /// *The other story:* so does one of two brothers, whose parent let go of it long ago.
    pub fn wear(&mut self, pid: u32) {
        let parent = self.known.get(&pid).map(|known| known.parent);
        for (other, known) in &mut self.known {
            let is_near = *other == pid || known.parent == pid;
            known.is_worn |= is_near || Some(*other) == parent || Some(known.parent) == parent;
        }
    }

    fn ask_at_once(&mut self, pids: &[u32]) {
        for pid in pids {
            if let Some(known) = self.known.get_mut(pid) {
                known.asked_ns = None;
            }
        }
    }

    /// Asks who was never asked, and their parents, who have less by themselves from now on; then
    /// the others in turn, as far as that is paid for.
    fn ask(
        &mut self,
        looks: &[Look],
        now: &mut dyn FnMut() -> u64,
        walk: &mut dyn FnMut(&Look) -> Option<Doubly>,
    ) {
        let is_new = |known: &&Known| known.way == Some(Way::Asked) && known.asked_ns.is_none();
        let parents: Vec<u32> = self.known.values().filter(is_new).map(|known| known.parent).collect();
        self.ask_at_once(&parents);
        let mut due: Vec<(bool, Option<u64>, &Look)> = looks
            .iter()
            .filter_map(|look| {
                let known = &self.known[&look.pid];
                let is_first = known.is_worn || known.asked_ns.is_none();
                (known.way == Some(Way::Asked)).then_some((!is_first, known.asked_ns, look))
            })
            .collect();
        due.sort_by_key(|(is_later, asked_ns, _)| (*is_later, *asked_ns));
        for (is_later, asked_ns, look) in due {
            let began = now();
            let paid_ns = if is_later { self.paid_ns } else { self.worn_paid_ns };
            let answer = self.known[&look.pid].answer;
            let is_little = is_later && answer.anon_bytes + answer.shmem_bytes < LITTLE_BYTES;
            let again_ns = if is_little { LITTLE_AGAIN_NS } else { AGAIN_NS };
            if asked_ns.is_some_and(|then| began < paid_ns || began < then + again_ns) {
                continue;
            }
            let answer = walk(look).unwrap_or_default();
            let is_worn = self.known[&look.pid].is_worn;
            self.pay(is_worn, began, now());
            let known = self.known.get_mut(&look.pid).expect("all that live are known");
            (known.asked_ns, known.answer, known.is_worn) = (Some(began), answer, false);
            known.asked_bytes = look.anon_bytes;
        }
    }

    /// What is worn is no debt of those that are asked in turn: they would wait for it as long as
    /// anybody is worn, since each such walk takes more of a processor than they may.
    fn pay(&mut self, is_worn: bool, began: u64, ended: u64) {
        let after = |paid_ns: u64, share: u64| {
            (paid_ns.max(began) + (ended - began) * share).min(ended + DEBT_MAX_NS)
        };
        self.worn_paid_ns = after(self.worn_paid_ns, WORN_WALKS_SHARE);
        if !is_worn {
            self.paid_ns = after(self.paid_ns, WALKS_SHARE);
        }
    }

    /// The parent of a child that is not asked yet: it believes what it was born with.
    pub fn parent_of_newborn(&self, pid: u32) -> Option<u32> {
        self.known.get(&pid).filter(|known| known.asked_ns.is_none()).map(|known| known.parent)
    }

    /// What others have, too, of what this process holds.
    pub fn doubly(&self, pid: u32) -> Doubly {
        let Some(known) = self.known.get(&pid) else { return Doubly::default() };
        match known.way {
            Some(Way::Asked) => known.answer,
            Some(Way::Born) => Doubly { anon_bytes: known.born_bytes, ..Doubly::default() },
            Some(Way::Full) | None => Doubly::default(),
        }
    }

    /// What the process is to be told, if it is known. Who is not asked counts in full; who was just
    /// made knows better itself.
    pub fn told(&self, pid: u32) -> Option<InCommon> {
        let known = self.known.get(&pid)?;
        match known.way? {
            Way::Asked if known.asked_ns.is_some() => {
                Some(InCommon::new(known.answer.anon_bytes, known.answer.faults))
            }
            Way::Asked | Way::Born => None,
            Way::Full => Some(InCommon::default()),
        }
    }
}

impl Known {
    /// Does it hold much less than when it was asked? True once for each fall.
    ///
    /// *The story:* a parent unmapped what it had in common with a child. There was no fault, and
    /// nobody had ended: the child went on believing that half of it counted elsewhere.
    fn has_fallen(&mut self, anon_bytes: u64) -> bool {
        let has = self.asked_ns.is_some() && anon_bytes + FALL_BYTES <= self.asked_bytes;
        if has {
            self.asked_bytes = anon_bytes;
        }
        has
    }
}

/// What a child has of its parent's memory that is seen for the first time. A program that has been
/// started since, the same one perhaps, holds little as yet.
fn born_bytes(child: &Look, parent: &Look) -> u64 {
    if child.anon_bytes >= parent.anon_bytes / 2 { child.anon_bytes.min(parent.anon_bytes) } else { 0 }
}

/// How it is to be known of each process.
///
/// *The story:* redis of 79 MiB saved in 300 by a fork, and the run was said to need 158.
///
/// *The other story:* whoever ran the same program as its parent was a copy. Eight workers of 40
/// MiB that a shell had started, `sh -c 'exec python3 worker'` of a python3, were taken to have all
/// of it from their parent for as long as they lived, and the run "never needed more" than one.
fn ways(looks: &[Look], census: &Census, is_short: bool) -> BTreeMap<u32, Way> {
    let everyone = is_short && looks.len() > 1;
    let is_counted = |look: &&Look| !look.is_guest;
    let mut ways: BTreeMap<u32, Way> = looks
        .iter()
        .map(|look| (look.pid, if everyone && !look.is_guest { Way::Asked } else { Way::Full }))
        .collect();
    if everyone {
        return ways;
    }
    let is_same = |look: &&Look| {
        let parent = of_pid(looks, look.parent);
        parent.is_some_and(|parent| parent.program_pages == look.program_pages)
    };
    let is_large = |look: &&Look| look.anon_bytes >= COPY_BYTES;
    let copies: Vec<&Look> = looks.iter().filter(is_counted).filter(is_same).filter(is_large).collect();
    let (born, lasting): (Vec<&Look>, Vec<&Look>) =
        copies.into_iter().partition(|copy| census.is_passing(copy.pid) || !census.knows(copy.pid));
    for copy in lasting {
        ways.insert(copy.pid, Way::Asked);
        ways.entry(copy.parent).and_modify(|way| *way = Way::Asked);
    }
    for copy in born {
        // What its parent is said to have by itself leaves out what this one has, too.
        let way = if ways[&copy.parent] == Way::Asked { Way::Asked } else { Way::Born };
        ways.insert(copy.pid, way);
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::super::census::Sighting;
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;
    const PYTHON: u32 = 30;
    const SHELL: u32 = 7;

    fn process(pid: u32, parent: u32, program_pages: u32, mib: u64) -> Look {
        Look { pid, parent, program_pages, anon_bytes: mib * MIB, ..Look::default() }
    }

    /// Both books, and a clock that walks move on.
    #[derive(Default)]
    struct Watch {
        census: Census,
        sharing: Sharing,
        is_short: bool,
        walk_ns: u64,
        /// The share of what it holds that others have, too, in percent.
        answer_percent: u64,
        asked: Vec<u32>,
    }

    impl Watch {
        /// A look at `now`, in milliseconds. Returns who was asked.
        fn look(&mut self, now: u64, looks: &[Look]) -> Vec<u32> {
            let clock = std::cell::Cell::new(now * MS);
            let mut asked = Vec::new();
            let walk = |look: &Look| {
                clock.set(clock.get() + self.walk_ns);
                asked.push(look.pid);
                let anon_bytes = look.anon_bytes * self.answer_percent / 100;
                Some(Doubly { anon_bytes, ..Doubly::default() })
            };
            self.sharing.look(looks, &self.census, self.is_short, || clock.get(), walk);
            let sightings: Vec<Sighting> = looks
                .iter()
                .map(|look| {
                    let doubly_bytes = self.sharing.doubly(look.pid).anon_bytes;
                    Sighting { look: *look, doubly_bytes, shmem_bytes: 0 }
                })
                .collect();
            self.census.look(&sightings, now * MS);
            self.asked.extend(&asked);
            asked
        }

        fn doubly_mib(&self, pid: u32) -> u64 {
            self.sharing.doubly(pid).anon_bytes / MIB
        }
    }

    /// See [`ways`]: the summary said 40 MiB of 360.
    #[test]
    fn who_comes_to_run_its_parents_program_by_exec_counts_in_full() {
        let mut watch = Watch::default();
        let parent = process(5, 1, PYTHON, 40);
        let workers = |program, mib| (10..18).map(move |pid| process(pid, 5, program, mib));
        let tree = |program, mib| [parent].into_iter().chain(workers(program, mib)).collect::<Vec<_>>();
        watch.look(0, &tree(SHELL, 1));
        assert!(watch.asked.is_empty(), "nobody runs what its parent does");
        for now in [10, 20, 200, 400] {
            watch.look(now, &tree(PYTHON, 40));
            assert!((10..18).all(|pid| watch.doubly_mib(pid) == 0), "after {now} ms");
        }
        assert_eq!(watch.asked.len(), 9, "all of them, and their parent");
        assert_eq!(watch.census.tree_peak_bytes, 9 * 40 * MIB);
    }

    /// What cannot be asked is not known.
    #[test]
    fn what_nobody_tells_counts_in_full() {
        let (mut sharing, mut census) = (Sharing::default(), Census::default());
        let looks = [process(5, 1, PYTHON, 40), process(6, 5, PYTHON, 40)];
        for (now, doubly) in [(0, 40 * MIB), (50 * MS, 40 * MIB), (110 * MS, 40 * MIB), (120 * MS, 0)] {
            sharing.look(&looks, &census, false, || now, |_| None);
            assert_eq!(sharing.doubly(6).anon_bytes, doubly);
            let told = sharing.told(6).unwrap_or_default();
            assert_eq!(told.pages, 0, "no budget is given away for it");
            census.look(&looks.map(|look| Sighting { look, ..Sighting::default() }), now);
        }
    }

    /// A copy that calls exec any moment has its parent's memory, but nothing that came since.
    #[test]
    fn a_new_copy_has_what_it_was_born_with() {
        let mut watch = Watch { answer_percent: 50, ..Watch::default() };
        let parent = process(5, 1, PYTHON, 80);
        let tree = |mib| [parent, process(6, 5, PYTHON, mib)];
        watch.look(0, &[parent]);
        for (now, mib, doubly) in [(10, 80, 80), (20, 95, 80), (30, 20, 20), (40, 95, 20)] {
            assert!(watch.look(now, &tree(mib)).is_empty());
            assert_eq!(watch.doubly_mib(6), doubly, "after {now} ms");
        }
        watch.look(120, &tree(90));
        assert_eq!(watch.look(130, &tree(90)), [5, 6], "it lasts");
        assert_eq!((watch.doubly_mib(5), watch.doubly_mib(6)), (40, 45));
        watch.look(140, &[parent]);
        assert_eq!(watch.doubly_mib(5), 0, "the copy is gone");
    }

    /// The same program, started anew, holds little when it is first seen.
    #[test]
    fn who_is_seen_after_its_exec_has_nothing_of_its_parents() {
        let mut watch = Watch::default();
        let parent = process(5, 1, PYTHON, 80);
        watch.look(0, &[parent]);
        for (now, mib) in [(10, 3), (20, 40), (30, 80)] {
            watch.look(now, &[parent, process(6, 5, PYTHON, mib)]);
            assert_eq!(watch.doubly_mib(6), 0, "after {now} ms");
        }
    }

    /// Numbers start again: the child comes before its parent.
    #[test]
    fn a_copy_may_have_a_smaller_number_than_its_parent() {
        let mut watch = Watch { answer_percent: 50, ..Watch::default() };
        let looks = [process(301, 32000, PYTHON, 80), process(32000, 1, PYTHON, 80)];
        watch.look(0, &looks);
        assert_eq!((watch.doubly_mib(301), watch.census.tree_peak_bytes), (80, 80 * MIB));
        assert!(watch.census.is_passing(301));
        watch.look(150, &looks);
        assert_eq!(watch.look(160, &looks), [301, 32000]);
        assert_eq!(watch.doubly_mib(301), 40);
    }

    /// What a process said does not hold for the program that it has become.
    #[test]
    fn an_answer_is_that_programs() {
        let mut watch = Watch { answer_percent: 50, is_short: true, ..Watch::default() };
        let parent = process(5, 1, PYTHON, 80);
        watch.look(0, &[parent, process(6, 5, PYTHON, 80)]);
        assert_eq!(watch.doubly_mib(6), 40);
        watch.is_short = false;
        watch.look(10, &[parent, process(6, 5, SHELL, 60)]);
        assert_eq!((watch.doubly_mib(5), watch.doubly_mib(6)), (0, 0));
    }

    /// See [`Known::has_fallen`].
    #[test]
    fn who_lets_go_of_much_has_its_family_asked_again() {
        let mut watch = Watch { answer_percent: 50, is_short: true, ..Watch::default() };
        let tree = |kib: u64| {
            let parent = Look { anon_bytes: kib << 10, ..process(5, 1, PYTHON, 0) };
            [parent, process(6, 5, PYTHON, 80), process(7, 5, PYTHON, 80), process(90, 2, SHELL, 80)]
        };
        watch.look(0, &tree(80 << 10));
        watch.sharing.paid_ns = u64::MAX; // nobody is asked in turn
        assert!(watch.look(100, &tree((79 << 10) + 1)).is_empty(), "that is little");
        assert_eq!(watch.look(200, &tree(79 << 10)), [5, 6, 7], "not who is no relative");
        assert!(watch.look(300, &tree(79 << 10)).is_empty(), "once");
        assert_eq!(watch.look(400, &tree(60 << 10)), [5, 6, 7]);
    }

    /// *The story:* a child called exec, and its parent was asked in its turn only.
    #[test]
    fn a_childs_exec_has_its_parent_asked_at_once() {
        let mut watch = Watch { answer_percent: 50, is_short: true, ..Watch::default() };
        let tree = |program| {
            let uncle = process(4, 1, PYTHON, 80);
            [uncle, process(5, 2, PYTHON, 80), process(6, 5, program, 80), process(7, 5, PYTHON, 80)]
        };
        watch.look(0, &tree(PYTHON));
        watch.sharing.paid_ns = u64::MAX;
        watch.sharing.worn_paid_ns = 100 * MS;
        assert_eq!(watch.look(10, &tree(SHELL)), [5, 6], "before anything is paid for");
        assert_eq!(watch.look(100, &tree(SHELL)), [7], "and its brother when that is paid for");
    }

    /// See [`Sharing::wear`].
    #[test]
    fn brothers_and_orphans_are_worn_too() {
        let mut watch = Watch { answer_percent: 50, is_short: true, ..Watch::default() };
        let all: Vec<Look> = [(5, 1), (6, 5), (7, 5), (8, 7), (9, 3)]
            .into_iter()
            .map(|(pid, parent)| process(pid, parent, PYTHON, 80))
            .collect();
        watch.look(0, &all);
        watch.sharing.paid_ns = u64::MAX;
        watch.sharing.wear(6);
        assert_eq!(watch.look(100, &all), [5, 6, 7]);
        let left: Vec<Look> = all.into_iter().filter(|look| look.pid != 7).collect();
        assert_eq!(watch.look(200, &left), [5, 8, 6], "who was asked longest ago first");
    }

    /// See [`Sharing::pay`].
    #[test]
    fn who_is_worn_all_the_time_keeps_nobody_from_its_turn() {
        let mut watch = Watch { answer_percent: 50, is_short: true, walk_ns: 2 * MS, ..Watch::default() };
        let looks = [process(5, 1, PYTHON, 80), process(6, 5, PYTHON, 80), process(90, 2, SHELL, 80)];
        watch.look(0, &looks);
        watch.asked.clear();
        for now in (1_000..21_000).step_by(20) {
            watch.sharing.wear(5);
            watch.look(now, &looks);
        }
        let walks = |is_family| watch.asked.iter().filter(|&&pid| (pid != 90) == is_family).count();
        assert!((80..=101).contains(&walks(false)), "a hundredth: {}", walks(false));
        assert!((350..=501).contains(&walks(true)), "a twentieth: {}", walks(true));
    }

    /// *The story:* one copy that lasted had every process of the tree asked, each for 2 % of a
    /// processor, all run long: fifty workers took all of one.
    #[test]
    fn walks_take_a_hundredth_of_a_processor_in_all() {
        let mut watch = Watch { answer_percent: 90, walk_ns: 2 * MS, ..Watch::default() };
        let workers = (10..60).map(|pid| process(pid, 5, PYTHON, 40));
        let bystanders = (100..130).map(|pid| process(pid, 1, SHELL + pid, 40));
        let looks: Vec<Look> =
            [process(5, 1, PYTHON, 40)].into_iter().chain(workers).chain(bystanders).collect();
        for now in (0..140).step_by(20) {
            watch.look(now, &looks);
        }
        assert_eq!(watch.asked.len(), 51, "all copies and their parent, once");
        for now in (140..60_140).step_by(20) {
            watch.look(now, &looks);
        }
        assert!(watch.asked.iter().all(|&pid| pid == 5 || (10..60).contains(&pid)));
        let share = watch.asked.len() as u64 * watch.walk_ns * 1000 / (60_000 * MS);
        assert!((8..=11).contains(&share), "{share} thousandths: {}", watch.asked.len());
        let last = &watch.asked[watch.asked.len() - 51..];
        assert!((10..60).all(|pid| last.contains(&pid)), "in turn");
    }
}
