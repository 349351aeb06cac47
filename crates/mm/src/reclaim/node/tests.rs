//! What the machine does as a whole: what leaves, what stays, and that everything adds up.

use super::*;
use crate::reclaim::background::{self, Background};
use crate::reclaim::direct::{self, Direct};
use crate::reclaim::lists::flag;
use crate::types::Access;

const ONE: [Protection; 1] = [Protection { min: 0, low: 0 }];
const D0: DomainId = DomainId(0);

fn node(frames: u32, slots: u32, rules: Rules, era: Era) -> Node {
    Node::new(Config::new(frames, slots, rules, era), &ONE)
}

/// Fills all frames but `left` with file pages.
fn fill_with_files(node: &mut Node, left: u64) -> Vec<PageNumber> {
    let mut pages = Vec::new();
    while node.free() > left {
        pages.push(node.admit(D0, &Arrival::FILE, None));
    }
    pages
}

/// Steps a call to its end; gives what it freed and the shadows.
fn reclaim(node: &mut Node, call: &mut Direct) -> (u64, Orders) {
    let mut out = Orders::new();
    for _ in 0..1_000_000 {
        match call.step(node, &mut out) {
            direct::Step::Done(freed) => {
                node.check();
                return (freed, out);
            }
            direct::Step::Looked(_) | direct::Step::WaitForBackground | direct::Step::Sleep(_) => {}
        }
    }
    panic!("a call ends");
}

#[test]
fn a_page_read_twice_is_active_and_one_read_once_goes() {
    let mut node = node(4096, 0, Rules::Early, Era::Seed);
    let pages = fill_with_files(&mut node, 64);
    for &page in &pages[..100] {
        (0..2).for_each(|_| node.mark_accessed(page));
        assert_eq!(node.list(page), Some(List::ActiveFile));
    }
    node.mark_accessed(pages[100]);
    let (freed, orders) = reclaim(&mut node, &mut Direct::new());
    assert!(freed >= 32);
    let freed_pages: Vec<PageNumber> = orders
        .iter()
        .filter_map(|order| match order {
            Order::Freed { page, has_slot: false, .. } => Some(*page),
            _ => None,
        })
        .collect();
    // The page that was read once more is clean: its mark does not save it.
    assert_eq!(freed_pages[..32], pages[100..132], "the oldest that was not used twice goes first");
    assert_eq!(node.counters().pgsteal_by(Reclaimer::Direct), freed);
    assert_eq!(node.counters().allocstall, 1);
}

/// An anonymous page needs two visits: one starts its write, the next frees it.
#[test]
fn anonymous_pages_need_two_visits() {
    let mut node = node(4096, 10_000, Rules::Late, Era::Since61);
    let pages: Vec<PageNumber> = (0..4032).map(|_| node.admit(D0, &Arrival::ANON, None)).collect();
    let (freed, orders) = reclaim(&mut node, &mut Direct::new());
    assert_eq!(freed, 0, "nothing is clean");
    let written: Vec<PageNumber> = orders
        .iter()
        .map(|order| match order {
            Order::Write { page } => *page,
            order => panic!("{order:?}"),
        })
        .collect();
    assert_eq!(written[..8], pages[..8]);
    assert_eq!(node.swap_used() as usize, written.len());
    assert_eq!(u64::from(node.swap_used()), node.counters().nr_vmscan_write[0]);
    written.iter().for_each(|&page| node.written(page, true));
    let (freed, orders) = reclaim(&mut node, &mut Direct::new());
    assert!(freed >= 32);
    assert!(matches!(orders[0], Order::Freed { page, has_slot: true, .. }
            if page == written[written.len() - 1]));
}

#[test]
fn without_slots_anonymous_pages_stay() {
    let mut node = node(4096, 0, Rules::Early, Era::Seed);
    (0..4032).for_each(|_| _ = node.admit(D0, &Arrival::ANON, None));
    let (freed, orders) = reclaim(&mut node, &mut Direct::new());
    assert_eq!((freed, orders), (0, Orders::new()));
}

/// *The story:* by early rules memory that came back from swap was active, like new memory: it took a
/// turn of both lists until it could leave again (specification 1.7).
#[test]
fn new_memory_begins_active_by_early_rules_and_what_comes_back_from_swap_does_not() {
    for (rules, new) in [(Rules::Early, List::ActiveAnon), (Rules::Late, List::InactiveAnon)] {
        let mut node = node(4096, 100, rules, Era::Seed);
        let first = node.admit(D0, &Arrival::ANON, None);
        assert_eq!(node.list(first), Some(new));
        let back = node.admit(D0, &Arrival::SWAPPED, None);
        assert_eq!(node.list(back), Some(List::InactiveAnon), "{rules:?}");
    }
}

/// What was away for less than the active list is long comes back active; a longer way,
/// inactive.
#[test]
fn refaults_by_distance() {
    for (actives, list) in [(100, List::ActiveFile), (10, List::InactiveFile)] {
        let mut node = node(4096, 0, Rules::Early, Era::Seed);
        let pages = fill_with_files(&mut node, 64);
        for &page in &pages[pages.len() - actives..] {
            (0..2).for_each(|_| node.mark_accessed(page));
        }
        let (freed, orders) = reclaim(&mut node, &mut Direct::new());
        let Order::Freed { shadow, .. } = orders[0] else { panic!("{orders:?}") };
        let page = node.admit(D0, &Arrival::FILE, Some(shadow));
        assert!((32..100).contains(&freed));
        assert_eq!(node.list(page), Some(list), "{actives} active, {freed} gone since");
    }
}

/// *The story:* that a page had come back active was forgotten when the round began, before its
/// passes asked.
#[test]
fn after_a_refault_reclaim_looks_at_active_pages_though_inactive_ones_are_plenty() {
    let mut node = node(1 << 16, 0, Rules::Late, Era::Since61);
    let pages = fill_with_files(&mut node, 64);
    for &page in &pages[..20_000] {
        (0..2).for_each(|_| node.mark_accessed(page));
    }
    let (_, orders) = reclaim(&mut node, &mut Direct::new());
    assert_eq!(node.counters().pgrefill, 0, "nothing came back, and inactive pages are plenty");
    let Order::Freed { shadow, .. } = orders[0] else { panic!("{orders:?}") };
    let back = node.admit(D0, &Arrival::FILE, Some(shadow));
    assert_eq!(node.list(back), Some(List::ActiveFile));
    reclaim(&mut node, &mut Direct::new());
    assert!(node.counters().pgrefill > 0);
    let looked_at = node.counters().pgrefill;
    reclaim(&mut node, &mut Direct::new());
    assert_eq!(node.counters().pgrefill, looked_at, "nothing came back since");
}

/// *The story:* by early rules what is protected by `low` never went, though nothing else was left.
#[test]
fn what_is_protected_goes_last_or_never() {
    let low = [Protection { min: 0, low: 0 }, Protection { min: 0, low: 3000 }];
    for (rules, min, spared) in [
        (Rules::Late, 0, false),
        (Rules::Late, 3000, true),
        (Rules::Early, 0, false),
        (Rules::Early, 3000, true),
    ] {
        let mut domains = low;
        domains[1].min = min;
        let mut node = Node::new(Config::new(8192, 0, rules, Era::Since61), &domains);
        (0..2000).for_each(|_| _ = node.admit(DomainId(1), &Arrival::FILE, None));
        (0..64).for_each(|_| _ = node.admit(D0, &Arrival::FILE, None));
        let (first, _) = reclaim(&mut node, &mut Direct::new());
        assert!((32..=64).contains(&first));
        assert_eq!(node.held(DomainId(1)), 2000, "others have pages");
        while node.held(D0) > 0 {
            reclaim(&mut node, &mut Direct::new());
        }
        let (second, _) = reclaim(&mut node, &mut Direct::new());
        assert_eq!(second == 0, spared, "{rules:?}, min {min}: {second}");
    }
}

#[test]
fn a_domain_at_its_limit_takes_from_itself_only() {
    let mut node = Node::new(Config::new(8192, 0, Rules::Late, Era::Since61), &[Protection::default(); 2]);
    (0..2000).for_each(|_| _ = node.admit(D0, &Arrival::FILE, None));
    (0..2000).for_each(|_| _ = node.admit(DomainId(1), &Arrival::FILE, None));
    let (freed, _) = reclaim(&mut node, &mut Direct::of_domain(DomainId(1)));
    assert!(freed >= 32);
    assert_eq!(node.held(D0), 2000);
    assert_eq!(node.held(DomainId(1)) + freed, 2000);
}

/// Over-reclaim is a defect: under its own rule a call frees at most what it was asked for and
/// a batch.
#[test]
fn bounded_calls_free_no_more_than_a_batch_above_their_goal() {
    for frames in [4096, 1 << 16, 1 << 20] {
        for slots in [0, 1 << 16] {
            let mut node = node(frames, slots, Rules::Late, Era::Bounded);
            (0..frames / 4).for_each(|_| _ = node.admit(D0, &Arrival::SWAPPED, None));
            fill_with_files(&mut node, 100);
            for _ in 0..20 {
                let (freed, _) = reclaim(&mut node, &mut Direct::new());
                assert!((32..=64).contains(&freed), "{frames} frames: {freed}");
            }
        }
    }
}

#[test]
fn kswapd_works_from_low_to_high_and_dozes() {
    for rules in [Rules::Early, Rules::Late] {
        let mut node = node(1 << 16, 0, rules, Era::Seed);
        let marks = node.config().watermarks;
        let mut kswapd = Background::new();
        let mut out = Orders::new();
        fill_with_files(&mut node, marks.low + 1);
        assert_eq!(node.allocate(), Admission::Granted);
        assert!(!kswapd.is_due(0, &node));
        fill_with_files(&mut node, marks.low);
        assert_eq!(node.allocate(), Admission::GrantedWake);
        assert!(kswapd.is_due(0, &node));
        let until = loop {
            match kswapd.step(7, &mut node, &mut out) {
                background::Step::Looked(_) => {}
                background::Step::Until(until) => break until,
                background::Step::Asleep => panic!("it dozes first"),
            }
        };
        assert_eq!(until, 7 + 100_000_000);
        assert!(node.is_balanced());
        assert!(node.free() < marks.high + 2 * marks.high, "{} free", node.free());
        assert_eq!(node.counters().pageoutrun, 1);
        assert_eq!(kswapd.step(until, &mut node, &mut out), background::Step::Asleep);
        fill_with_files(&mut node, marks.min);
        assert_eq!(node.allocate(), Admission::Refused);
        node.check();
    }
}

/// Random loads: frames, lists and pages add up, whatever the era, and nobody fails who need
/// not.
#[test]
fn random_loads_add_up() {
    for era in Era::ALL {
        for rules in [Rules::Early, Rules::Late] {
            random_load(era, rules);
        }
    }
}

fn random_load(era: Era, rules: Rules) {
    let domains = [Protection { min: 50, low: 100 }, Protection::default()];
    let mut node = Node::new(Config::new(1024, 700, rules, era), &domains);
    let mut kswapd = Background::new();
    let (mut live, mut gone): (Vec<PageNumber>, Vec<(Kind, bool, Shadow)>) = (Vec::new(), Vec::new());
    let (mut seed, mut now) = (era as u64 + 77, 0);
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below.max(1)
    };
    let mut out = Orders::new();
    for _ in 0..3000 {
        now += 1_000_000;
        if node.allocate() == Admission::Refused {
            reclaim_into(&mut node, &mut Direct::new(), &mut out);
        }
        for _ in 0..3 {
            if kswapd.is_due(now, &node) {
                kswapd.step(now, &mut node, &mut out);
            }
        }
        for order in out.drain(..) {
            match order {
                Order::Freed { page, has_slot, shadow } => {
                    let at = live.iter().position(|&other| other == page).expect("it had a frame");
                    live.swap_remove(at);
                    gone.push((if has_slot { Kind::Anon } else { Kind::File }, has_slot, shadow));
                }
                Order::Write { page } => node.written(page, random(50) > 0),
            }
        }
        if node.free() > 0 {
            let domain = DomainId(random(2) as u8);
            let back = (random(3) == 0 && !gone.is_empty()).then(|| gone.swap_remove(random(gone.len())));
            let arrival = match back {
                Some((_, true, _)) => Arrival::SWAPPED,
                Some(_) => Arrival::FILE,
                None if random(2) == 0 => Arrival::ANON,
                None => Arrival { dirty: random(9) == 0, ..Arrival::FILE },
            };
            live.push(node.admit(domain, &arrival, back.map(|(_, _, shadow)| shadow)));
        }
        let page = live[random(live.len())];
        match random(4) {
            0 => node.mark_accessed(page),
            1 => node.touch(page, Access::Read, random(2) == 0),
            2 => node.touch(page, Access::Write, false),
            _ if node.flush(page) => node.written(page, true),
            _ => {}
        }
        if random(64) == 0 {
            node.forget(live.swap_remove(random(live.len())));
            node.check();
        }
    }
    assert_eq!(live.len() as u64 + node.free(), 1024);
    assert!(node.counters().pgsteal_of(Kind::File) > 0 && node.counters().pgsteal_of(Kind::Anon) > 0);
}

fn reclaim_into(node: &mut Node, call: &mut Direct, out: &mut Orders) {
    while !matches!(call.step(node, out), direct::Step::Done(_)) {}
}

/// *The story:* case 4 was given the files of the domain in place of the node's: a domain of anonymous
/// pages beside one full of files was scanned as if no files were left.
#[test]
fn another_domains_files_are_files_of_the_node() {
    let mut node = Node::new(Config::new(8192, 8192, Rules::Early, Era::Seed), &[Protection::default(); 2]);
    (0..4000).for_each(|_| _ = node.admit(D0, &Arrival::ANON, None));
    while node.free() > 64 {
        node.admit(DomainId(1), &Arrival::FILE, None);
    }
    reclaim(&mut node, &mut Direct::new());
    assert_eq!(node.counters().pgscan_of(Kind::Anon), 0, "files of either domain go first");
}

/// *The story:* a call asked every domain for 32 frames before it asked whether it had enough.
#[test]
fn a_bounded_call_asks_the_domains_in_turn_until_it_has_enough() {
    let mut node = Node::new(Config::new(1 << 16, 0, Rules::Late, Era::Bounded), &[Protection::default(); 8]);
    for number in 0..8 {
        (0..8000).for_each(|_| _ = node.admit(DomainId(number), &Arrival::FILE, None));
    }
    for call in 0..16 {
        let (freed, _) = reclaim(&mut node, &mut Direct::new());
        assert!((32..64).contains(&freed), "call {call}: {freed}");
    }
    let held: Vec<u64> = (0..8).map(|number| node.held(DomainId(number))).collect();
    assert!(held.iter().all(|&held| held == 8000 - 64), "all in turn: {held:?}");
}

/// Counts the sleeps of a call, of each length, to its end.
fn sleeps(node: &mut Node, call: &mut Direct) -> std::collections::BTreeMap<u64, u32> {
    let (mut out, mut sleeps) = (Orders::new(), std::collections::BTreeMap::new());
    for _ in 0..100_000 {
        match call.step(node, &mut out) {
            direct::Step::Done(_) => return sleeps,
            direct::Step::Sleep(ns) => *sleeps.entry(ns).or_default() += 1,
            direct::Step::Looked(_) | direct::Step::WaitForBackground => {}
        }
    }
    panic!("a call ends");
}

/// *The story:* with too many pages taken out a call of late rules slept at every step, for ever; and
/// pages of one kind held up those who looked for the other.
#[test]
fn who_finds_too_many_pages_taken_out_sleeps_once_a_pass() {
    let fill = |rules| {
        let mut node = node(4096, 4096, rules, Era::Since61);
        (0..100).for_each(|_| _ = node.admit(D0, &Arrival::SWAPPED, None));
        fill_with_files(&mut node, 64);
        node
    };
    let mut others_anon = fill(Rules::Late);
    others_anon.isolated = [4000, 0];
    assert_eq!(sleeps(&mut others_anon, &mut Direct::new()), [].into(), "files are looked for");
    let mut both = fill(Rules::Late);
    both.isolated = [4000, 4000];
    let found = sleeps(&mut both, &mut Direct::new());
    assert!(found.keys().all(|ns| [20_000_000, 4_000_000].contains(ns)), "{found:?}");
    assert_eq!(both.counters().pgscan_by(Reclaimer::Direct), 0, "its passes do without");
    // Early rules sleep until the others have put back what they had.
    let mut early = fill(Rules::Early);
    early.isolated = [0, 4000];
    let (mut call, mut out, mut slept) = (Direct::new(), Orders::new(), 0);
    for _ in 0..100 {
        slept += u32::from(call.step(&mut early, &mut out) == direct::Step::Sleep(100_000_000));
    }
    assert!(slept > 80 && early.counters().pgscan_of(Kind::File) == 0, "{slept} sleeps");
    early.isolated = [0; 2];
    assert!(reclaim(&mut early, &mut call).0 >= 32);
}

/// Late rules: a tick at priority 1 where nothing was freed, in each of the three tries; and one after
/// each priority that found nothing but pages on their way to the device.
#[test]
fn in_vain_a_tick_is_slept() {
    let tick = 4_000_000;
    let mut full = node(4096, 0, Rules::Late, Era::Since61);
    (0..4032).for_each(|_| _ = full.admit(D0, &Arrival::ANON, None));
    assert_eq!(sleeps(&mut full, &mut Direct::new()), [(tick, 3)].into());
    let mut early = node(4096, 0, Rules::Early, Era::Since61);
    (0..4032).for_each(|_| _ = early.admit(D0, &Arrival::ANON, None));
    assert_eq!(sleeps(&mut early, &mut Direct::new()), [].into());
    // Nobody ends the writes: priorities of the first call begin them, later ones find them again.
    let mut written = node(4096, 8192, Rules::Late, Era::Since61);
    (0..4032).for_each(|_| _ = written.admit(D0, &Arrival::ANON, None));
    let ticks = sleeps(&mut written, &mut Direct::new())[&tick];
    assert!(ticks > 3, "{ticks}");
}

/// *The story:* before 4.x a page that is mapped or in the swap cache counts twice where it is asked
/// whether enough was looked at; it counted once. The counters count pages.
#[test]
fn early_rules_count_pages_that_are_more_work_twice() {
    for (rules, weight) in [(Rules::Early, 2), (Rules::Late, 1)] {
        let mut node = node(4096, 4096, rules, Era::Seed);
        let mapped = Arrival { mapped: true, ..Arrival::FILE };
        (0..4032).for_each(|_| _ = node.admit(D0, &mapped, None));
        let manner = Manner {
            who: Reclaimer::Background,
            may_write: true,
            deactivates: false,
            ignores_low: false,
            forced: false,
        };
        let mut round = node.round(D0, &manner, 6, 32).expect("there are pages");
        let (_, looked_at) = node.pass(D0, &manner, &mut round, &mut Orders::new());
        assert_eq!((looked_at.pages, looked_at.weight), ([0, 32], 32 * weight), "{rules:?}");
        assert_eq!(node.counters().pgscan_by(Reclaimer::Background), 32);
    }
}

/// *The story:* who tried with all lists open to him was told that inactive files are plenty, and
/// looked at nothing else (cases 4 and 5 of late rules).
#[test]
fn who_deactivates_looks_at_anonymous_pages_though_files_are_plenty() {
    let mut node = node(1 << 16, 1 << 16, Rules::Late, Era::Since61);
    (0..20_000).for_each(|_| _ = node.admit(D0, &Arrival::SWAPPED, None));
    fill_with_files(&mut node, 64);
    let looked_at = |node: &mut Node, deactivates| {
        let (who, before) = (Reclaimer::Direct, node.counters().pgscan_of(Kind::Anon));
        let manner = Manner { who, may_write: true, deactivates, ignores_low: false, forced: false };
        let mut round = node.round(D0, &manner, 8, 32).expect("there are pages");
        node.pass(D0, &manner, &mut round, &mut Orders::new());
        node.counters().pgscan_of(Kind::Anon) - before
    };
    assert_eq!(looked_at(&mut node, false), 0, "the cache is trimmed");
    assert!(looked_at(&mut node, true) > 0);
}

/// *The story:* kswapd's lists of fewer pages than the priorities divide by were never looked at, run
/// after run; what lets short lists be looked at was always false.
#[test]
fn kswapd_looks_at_short_lists_after_a_run_in_vain() {
    let mut config = Config::new(4096, 0, Rules::Early, Era::Seed);
    let few = 1;
    config.watermarks.high = 4096 - few;
    let mut node = Node::new(config, &ONE);
    (0..few).for_each(|_| _ = node.admit(D0, &Arrival::FILE, None));
    // All else is somebody's who gives nothing.
    let locked = Arrival { locked: true, ..Arrival::FILE };
    while node.free() > node.config().watermarks.min {
        node.admit(D0, &locked, None);
    }
    node.allocate();
    let (mut kswapd, mut out) = (Background::new(), Orders::new());
    for _ in 0..100 {
        kswapd.step(0, &mut node, &mut out);
    }
    assert_eq!(node.counters().pgsteal_by(Reclaimer::Background), few);
}

/// *The story:* kswapd of early rules began a run after the other where no list has anything for it.
#[test]
fn early_kswapd_dozes_after_a_run_that_found_nothing_to_look_at() {
    let mut node = node(4096, 0, Rules::Early, Era::Seed);
    while node.free() > node.config().watermarks.min {
        node.admit(D0, &Arrival::ANON, None);
    }
    node.allocate();
    let (mut kswapd, mut out) = (Background::new(), Orders::new());
    let dozes = (0..1000).any(|_| matches!(kswapd.step(0, &mut node, &mut out), background::Step::Until(_)));
    assert!(dozes && node.counters().pageoutrun < 1000);
}

/// Over-reclaim, where the loop of 6.1 differs from that of 3.16 (specification 5.4, 7.3), both under
/// early rules: all files are in use, so that nothing is freed until everything is looked at, and there
/// is little anonymous memory. With the goal reached 3.16 brings the files to the part of it that it has
/// seen, a sixth at least.
#[test]
fn with_all_files_in_use_the_loop_of_6_1_frees_a_batch_or_two_and_that_of_3_16_a_sixth() {
    let mapped = Arrival { mapped: true, ..Arrival::FILE };
    let freed = [Era::Seed, Era::Since61].map(|era| {
        let mut node = node(1 << 16, 1000, Rules::Early, era);
        for _ in 0..60_000 {
            let page = node.admit(D0, &mapped, None);
            node.touch(page, Access::Read, false);
        }
        (0..100).for_each(|_| _ = node.admit(D0, &Arrival::SWAPPED, None));
        reclaim(&mut node, &mut Direct::new()).0
    });
    assert!(freed[0] > 10_000, "{freed:?}");
    assert!((32..=200).contains(&freed[1]), "{freed:?}");
}

/// *The story:* kswapd slept 100 ms at the end of every priority once a batch had been all under
/// writeback, also where no page had come round (specification 5.2).
#[test]
fn kswapd_does_not_rest_for_pages_that_have_not_come_round() {
    for rules in [Rules::Early, Rules::Late] {
        let mut node = node(1 << 16, 0, rules, Era::Since61);
        let min = node.config().watermarks.min;
        let pages = fill_with_files(&mut node, min);
        for &page in &pages[..64] {
            node.store(page);
            assert!(node.flush(page));
        }
        node.allocate();
        let (mut kswapd, mut out) = (Background::new(), Orders::new());
        while let background::Step::Looked(_) = kswapd.step(0, &mut node, &mut out) {}
        assert!(node.is_balanced(), "{rules:?}: it dozes, it does not rest");
        assert_eq!(node.counters().nr_vmscan_immediate_reclaim, 0);
    }
}

/// *The story:* a resting kswapd counted as one that works, so whoever wanted frames woke it at once.
#[test]
fn kswapd_rests_for_pages_that_come_round_whatever_is_wanted() {
    for rules in [Rules::Early, Rules::Late] {
        let mut node = node(4096, 0, rules, Era::Since61);
        let min = node.config().watermarks.min;
        for page in fill_with_files(&mut node, min) {
            node.store(page);
            assert!(node.flush(page));
        }
        node.allocate();
        let (mut kswapd, mut out) = (Background::new(), Orders::new());
        let until = loop {
            match kswapd.step(5, &mut node, &mut out) {
                background::Step::Looked(_) => {}
                background::Step::Until(until) => break until,
                background::Step::Asleep => panic!("it rests first"),
            }
        };
        assert!(!node.is_balanced() && node.counters().nr_vmscan_immediate_reclaim > 0);
        assert_eq!(until, 5 + 100_000_000);
        assert_eq!(node.allocate(), Admission::Refused);
        assert!(node.wants_background() && !kswapd.is_due(until - 1, &node), "{rules:?}");
        assert_eq!(kswapd.step(6, &mut node, &mut out), background::Step::Until(until));
        assert!((0..31).all(|_| !kswapd.note_written(&node)));
        // Late rules go on as pages are written.
        assert_eq!(kswapd.note_written(&node), rules == Rules::Late);
        assert_eq!(kswapd.is_due(6, &node), rules == Rules::Late);
        assert!(kswapd.is_due(until, &node) && !kswapd.note_written(&node));
    }
}

/// *The story:* who found far too few frames waited a millisecond, and went on however few there were.
#[test]
fn far_too_few_frames_are_waited_for_a_second_at_most() {
    let waits = |gives_after: u32| {
        let mut node = node(4096, 0, Rules::Late, Era::Since61);
        let few = node.config().watermarks.min / 2 - 1;
        let pages = fill_with_files(&mut node, few);
        let (mut call, mut out, mut waits) = (Direct::new(), Orders::new(), 0);
        while call.step(&mut node, &mut out) == direct::Step::WaitForBackground {
            waits += 1;
            if waits == gives_after {
                node.forget(pages[0]);
            }
        }
        assert_eq!((node.counters().pgscan_direct_throttle, node.counters().allocstall), (1, 1));
        u64::from(waits) * direct::WAIT_NS
    };
    assert_eq!(waits(7), 7_000_000);
    assert_eq!(waits(u32::MAX), 1_000_000_000);
}

/// *The story:* one batch that was all under writeback made a call of late rules sleep a tick, though
/// most of what it saw was clean (specification 5.5).
#[test]
fn a_tick_is_slept_for_writeback_where_little_else_is_seen() {
    for (others_cycle, ticks) in [(false, false), (true, true)] {
        let mut node = Node::new(Config::new(1 << 15, 0, Rules::Late, Era::Since61), &[ONE[0]; 2]);
        let first: Vec<PageNumber> = (0..5000).map(|_| node.admit(D0, &Arrival::FILE, None)).collect();
        let second = (0..15_000).map(|_| node.admit(DomainId(1), &Arrival::FILE, None)).collect::<Vec<_>>();
        let cycling = first.iter().chain(second.iter().filter(|_| others_cycle));
        cycling.for_each(|&page| node.pages.set(page, flag::WRITEBACK | flag::RECLAIM));
        let slept = sleeps(&mut node, &mut Direct::new());
        assert_eq!(slept.contains_key(&4_000_000), ticks, "{slept:?}");
    }
}

/// Counters are of the whole machine's reclaim (specification 5.8).
#[test]
fn what_a_domain_reclaims_of_itself_is_not_counted() {
    let mut node = Node::new(Config::new(8192, 0, Rules::Late, Era::Since61), &[Protection::default(); 2]);
    (0..2000).for_each(|_| _ = node.admit(DomainId(1), &Arrival::FILE, None));
    let (freed, _) = reclaim(&mut node, &mut Direct::of_domain(DomainId(1)));
    let counters = node.counters();
    assert!(freed >= 32);
    assert_eq!((counters.allocstall, counters.pgscan, counters.pgsteal), (0, [[0; 2]; 2], [[0; 2]; 2]));
}
