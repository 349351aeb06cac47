//! How much of a process's memory others of the tree have, too, so that it is counted once.
//!
//! What a child of fork has in common with its parent nobody tells but a walk of the page tables
//! (smaps_rollup), which holds the lock of the address space meanwhile. So only copies that last,
//! their parents, and all when memory is short are asked. A copy that may call exec any moment has
//! what it was born with in common, as far as is known. What agents tell of loans
//! (`super::lending`) needs no walk. Whatever else counts in full: the worst that the summary can do
//! is to say that a program fits which does not.
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::BTreeMap;

use super::census::Census;
use super::descendants::{Look, of_pid};

/// A copy of its parent that holds less is not asked.
const COPY_BYTES: u64 = 1 << 20;
/// All walks together take one part in so many of a processor.
const WALKS_SHARE: u64 = 100;
/// Nobody is asked again sooner.
const AGAIN_NS: u64 = 50_000_000;
/// ... but where so many are new that their first walks take more, the others are asked again after
/// so long all the same.
const DEBT_MAX_NS: u64 = 10_000_000_000;
/// What was found out before a process was of no interest for so long is not believed any more.
const STALE_NS: u64 = 500_000_000;

/// Of those that tell of loans, and of their parents.
pub type Loans = BTreeMap<u32, Lent>;

/// What is told of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// So much of what it holds counts with its parent.
    pub anon_bytes: u64,
    /// It has shared memory, of which loans tell nothing.
    pub has_shmem: bool,
}

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
    /// There was none when it was last asked.
    is_silent: bool,
    /// When the answer was last of interest.
    used_ns: u64,
    way: Option<Way>,
    /// It has told, or a child has told of it: that much counts with its parent.
    lent_bytes: Option<u64>,
}

/// The books.
#[derive(Default)]
pub struct Sharing {
    known: BTreeMap<u32, Known>,
    /// Nobody is asked again until then: the walks so far are paid for.
    paid_ns: u64,
}

impl Sharing {
    /// All that live, in the order of their numbers, before the census has seen them, and what is known
    /// of loans. Memory `is_short` says that all are asked. `walk` asks; `now` is the time in
    /// nanoseconds.
    pub fn look(
        &mut self,
        looks: &[Look],
        census: &Census,
        (loans, is_short): (&Loans, bool),
        mut now: impl FnMut() -> u64,
        mut walk: impl FnMut(&Look) -> Option<Doubly>,
    ) {
        let ways = ways(looks, census, loans, is_short);
        self.forget(looks);
        let began = now();
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
                *known = Known { program_pages: look.program_pages, ..Known::default() };
            }
            known.parent = look.parent;
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
            known.lent_bytes = loans.get(&look.pid).map(|lent| lent.anon_bytes.min(look.anon_bytes));
        }
        self.ask(looks, &mut now, &mut walk);
    }

    /// Those that ended are forgotten. Whoever made them has more by itself from then on.
    fn forget(&mut self, looks: &[Look]) {
        let mut parents = Vec::new();
        self.known.retain(|pid, known| {
            let lives = of_pid(looks, *pid).is_some();
            if !lives && known.asked_ns.is_some() {
                parents.push(known.parent);
            }
            lives
        });
        self.ask_at_once(&parents);
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
        let mut due: Vec<(Option<u64>, &Look)> = looks
            .iter()
            .filter_map(|look| {
                let known = &self.known[&look.pid];
                (known.way == Some(Way::Asked)).then_some((known.asked_ns, look))
            })
            .collect();
        due.sort_by_key(|(asked_ns, _)| *asked_ns);
        for (asked_ns, look) in due {
            let began = now();
            if asked_ns.is_some_and(|then| began < self.paid_ns || began < then + AGAIN_NS) {
                return;
            }
            self.ask_one(look, began, walk);
            let ended = now();
            let paid_ns = self.paid_ns.max(began) + (ended - began) * WALKS_SHARE;
            self.paid_ns = paid_ns.min(ended + DEBT_MAX_NS);
        }
    }

    fn ask_one(&mut self, look: &Look, now: u64, walk: &mut dyn FnMut(&Look) -> Option<Doubly>) {
        let known = self.known.get_mut(&look.pid).expect("all that live are known");
        let answer = walk(look);
        (known.asked_ns, known.answer) = (Some(now), answer.unwrap_or_default());
        known.is_silent = answer.is_none();
    }

    /// Asks all that live, and were there at the last look, whatever it costs: something hangs on it.
    pub fn ask_all(&mut self, looks: &[Look], now: u64, mut walk: impl FnMut(&Look) -> Option<Doubly>) {
        for look in looks.iter().filter(|look| !look.is_guest) {
            self.ask_one(look, now, &mut walk);
            let known = self.known.get_mut(&look.pid).expect("all that live are known");
            (known.way, known.lent_bytes) = (Some(Way::Asked), None);
        }
    }

    /// Was it asked in vain what others have, too, of what this process holds?
    pub fn is_silent(&self, pid: u32) -> bool {
        self.known.get(&pid).is_some_and(|known| known.way == Some(Way::Asked) && known.is_silent)
    }

    /// What others have, too, of what this process holds.
    pub fn doubly(&self, pid: u32) -> Doubly {
        let Some(known) = self.known.get(&pid) else { return Doubly::default() };
        let doubly = match known.way {
            Some(Way::Asked) => known.answer,
            Some(Way::Born) => Doubly { anon_bytes: known.born_bytes, shmem_bytes: 0 },
            Some(Way::Full) | None => Doubly::default(),
        };
        Doubly { anon_bytes: known.lent_bytes.unwrap_or(doubly.anon_bytes), ..doubly }
    }

    /// The same, if it was asked: a budget is not given away for what is taken to be so, and what is
    /// lent was given already.
    pub fn asked_anon_bytes(&self, pid: u32) -> u64 {
        let is_asked = |known: &&Known| known.way == Some(Way::Asked) && known.lent_bytes.is_none();
        let known = self.known.get(&pid).filter(is_asked);
        known.map_or(0, |known| known.answer.anon_bytes)
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
fn ways(looks: &[Look], census: &Census, loans: &Loans, is_short: bool) -> BTreeMap<u32, Way> {
    let everyone = is_short && looks.len() > 1;
    let is_told = |look: &Look| loans.get(&look.pid).is_some_and(|lent| !lent.has_shmem);
    let is_counted = |look: &&Look| !look.is_guest && !is_told(look);
    let asks = |look: &Look| everyone && is_counted(&look);
    let mut ways: BTreeMap<u32, Way> =
        looks.iter().map(|look| (look.pid, if asks(look) { Way::Asked } else { Way::Full })).collect();
    let is_same = |look: &&Look| {
        let parent = of_pid(looks, look.parent);
        parent.is_some_and(|parent| parent.program_pages == look.program_pages)
    };
    let is_large = |look: &&Look| look.anon_bytes >= COPY_BYTES;
    // Whose parent is said to count all that they have in common counts only what came since.
    let is_left = |look: &&Look| !everyone || loans.contains_key(&look.parent);
    let copies = looks.iter().filter(is_counted).filter(is_same).filter(is_large).filter(is_left);
    let copies: Vec<&Look> = copies.collect();
    let (born, lasting): (Vec<&Look>, Vec<&Look>) =
        copies.into_iter().partition(|copy| census.is_young_copy(copy.pid) || !census.knows(copy.pid));
    for copy in lasting {
        ways.insert(copy.pid, Way::Asked);
        if !loans.contains_key(&copy.parent) {
            ways.insert(copy.parent, Way::Asked);
        }
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
        loans: Loans,
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
                Some(Doubly { anon_bytes: look.anon_bytes * self.answer_percent / 100, shmem_bytes: 0 })
            };
            self.sharing.look(looks, &self.census, (&self.loans, self.is_short), || clock.get(), walk);
            let sightings: Vec<Sighting> = looks
                .iter()
                .map(|look| {
                    let doubly_bytes = self.sharing.doubly(look.pid).anon_bytes;
                    Sighting { look: *look, doubly_bytes, ..Sighting::default() }
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
        assert_eq!(watch.asked.len(), 9 + 9 + 9, "all of them, and their parent");
        assert_eq!(watch.census.tree_peak_bytes, 9 * 40 * MIB);
    }

    /// What cannot be asked is not known.
    #[test]
    fn what_nobody_tells_counts_in_full() {
        let (mut sharing, mut census) = (Sharing::default(), Census::default());
        let looks = [process(5, 1, PYTHON, 40), process(6, 5, PYTHON, 40)];
        for (now, doubly) in [(0, 40 * MIB), (50 * MS, 40 * MIB), (110 * MS, 40 * MIB), (120 * MS, 0)] {
            sharing.look(&looks, &census, (&Loans::new(), false), || now, |_| None);
            assert_eq!(sharing.doubly(6).anon_bytes, doubly);
            assert_eq!(sharing.asked_anon_bytes(6), 0, "no budget is given away for it");
            census.look(&looks.map(|look| Sighting { look, ..Sighting::default() }), now);
        }
    }

    /// *The story:* `--strict` ended databases for what was known of them half a second before.
    #[test]
    fn all_are_asked_where_something_hangs_on_it() {
        let (mut sharing, census) = (Sharing::default(), Census::default());
        let looks = [process(5, 1, PYTHON, 40), process(6, 5, SHELL, 40), process(7, 5, SHELL, 40)];
        let answer = |bytes| move |_: &Look| Some(Doubly { anon_bytes: bytes, shmem_bytes: bytes });
        sharing.look(&looks, &census, (&Loans::new(), true), || 0, answer(0));
        let answers = |look: &Look| (look.pid != 7).then_some(Doubly { anon_bytes: MIB, shmem_bytes: 9 });
        sharing.ask_all(&looks, MS, answers);
        assert_eq!([5, 6].map(|pid| sharing.doubly(pid).shmem_bytes), [9, 9], "one ms later");
        assert_eq!([5, 6, 7].map(|pid| sharing.is_silent(pid)), [false, false, true]);
        sharing.look(&looks, &census, (&Loans::new(), true), || 99 * MS, answer(MIB));
        assert!(!sharing.is_silent(7));
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
        assert!(watch.census.is_young_copy(301));
        watch.look(150, &looks);
        assert_eq!(watch.look(160, &looks), [301, 32000]);
        assert_eq!(watch.doubly_mib(301), 40);
    }

    /// *The story:* each of twenty workers was asked when it was new, when fewer had what it had: of 60
    /// MiB that all had, 160 were counted.
    #[test]
    fn who_tells_of_a_loan_is_not_asked_and_its_parent_has_the_rest() {
        let mut watch = Watch { answer_percent: 50, is_short: true, ..Watch::default() };
        let looks: Vec<Look> =
            (5..26).map(|pid| process(pid, if pid == 5 { 1 } else { 5 }, PYTHON, 62)).collect();
        let lent = |mib: u64| Lent { anon_bytes: mib * MIB, has_shmem: false };
        watch.loans = (5..26).map(|pid| (pid, lent(if pid == 5 { 0 } else { 60 }))).collect();
        for now in [0, 110, 220] {
            assert!(watch.look(now, &looks).is_empty());
        }
        assert_eq!(watch.census.tree_peak_bytes, (62 + 20 * 2) * MIB);
        assert_eq!(watch.sharing.asked_anon_bytes(6), 0, "its share has that already");
        watch.loans.remove(&25);
        watch.loans.insert(24, lent(99));
        assert_eq!(watch.look(330, &looks), [25], "it does not tell");
        assert_eq!([24, 25].map(|pid| watch.doubly_mib(pid)), [62, 31]);
        let new: Vec<Look> = looks.iter().copied().chain([process(26, 5, PYTHON, 62)]).collect();
        watch.look(340, &new);
        assert_eq!((watch.doubly_mib(5), watch.doubly_mib(26)), (0, 62), "its agent has not begun");
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
