//! The compressed pool on virtual time: contents are followed, `mm` walks its tables, and it pays
//! where single pages are waited for and compress.

use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::device::params::Model;
use overspill_sim::engine::pool::PoolModel;
use overspill_sim::engine::{Engine, Options};
use overspill_sim::generate::pattern::{Pattern, Spec, Stream};

const MIB: u64 = 1 << 20;
const BUDGET: u32 = (32 * MIB / PAGE_SIZE) as u32;
const PAGES: u64 = 64 * MIB / PAGE_SIZE;

/// What came of 60,000 touches of 64 MiB in a budget of 32 MiB.
struct Came {
    elapsed_ns: u64,
    loaded: u64,
    written_back: u64,
}

fn run(pattern: Pattern, pool: Option<PoolModel>) -> Came {
    let device = Model::builtin("sata-ssd").expect("it is built in");
    let mut options = Options::live(BUDGET, 1 << 16, device);
    (options.pool, options.shadow, options.check_every) = (pool, true, 997);
    let knobs = policy::Config { frames: BUDGET, ..policy::Config::default() };
    let policy = Policy::by_name(policy::NAMES[0], knobs).expect("every listed name makes a policy");
    let mut engine = Engine::new(options, policy);
    let spec =
        Spec { pages: PAGES, pattern, touches: 60_000, prefill: true, write_percent: 30, ..Spec::default() };
    engine.add(Box::new(Stream::new(spec))).expect("a generated load has no faults");
    let elapsed_ns = engine.run().expect("a generated load has no faults").elapsed_ns;
    let totals = engine.pool().map(|pool| pool.tier().totals()).unwrap_or_default();
    Came { elapsed_ns, loaded: totals.loaded, written_back: totals.written_back }
}

#[test]
fn random_pages_that_compress_are_sooner_back_from_the_pool() {
    let without = run(Pattern::Random, None);
    for (permille, faster_permille) in [(250, 1500), (500, 1000)] {
        let with = run(Pattern::Random, Some(PoolModel::lz4(BUDGET / 2, permille)));
        let ratio = without.elapsed_ns * 1000 / with.elapsed_ns;
        println!("random, {permille} permille: {ratio} permille as fast, {} loads", with.loaded);
        assert!(with.loaded > 1000);
        assert!(ratio >= faster_permille, "pages of {permille} permille: {ratio} permille as fast");
    }
}

/// What does not fit is written, and comes back from the device as it was.
#[test]
fn the_oldest_go_to_the_device() {
    // In order a page is wanted when it has long been written.
    for (pattern, loads) in [(Pattern::Random, 1000), (Pattern::Sequential, 0)] {
        let came = run(pattern, Some(PoolModel::lz4(BUDGET / 8, 500)));
        assert!(came.written_back > 1000 && came.loaded >= loads, "{} {}", came.written_back, came.loaded);
    }
}

/// Pages that do not compress are passed on: all that is lost is the time for trying.
#[test]
fn what_does_not_compress_takes_no_room() {
    let came = run(Pattern::Random, Some(PoolModel::lz4(BUDGET / 2, 900)));
    assert!(came.loaded < 20_000, "{}", came.loaded);
}

/// What `mm` decides live is decided here by the same code: single pages that are waited for are
/// worth a pool, windows that are read ahead are not.
#[test]
fn how_much_the_pool_may_have_is_decided_as_live() {
    let undecided = |permille| PoolModel { is_fixed: false, ..PoolModel::lz4(BUDGET / 2, permille) };
    let (without, with) = (run(Pattern::Random, None), run(Pattern::Random, Some(undecided(250))));
    let ratio = without.elapsed_ns * 1000 / with.elapsed_ns;
    println!("random: {ratio} permille as fast, {} loads", with.loaded);
    assert!(with.loaded > 1000 && ratio >= 1300, "{} loads, {ratio} permille as fast", with.loaded);
    let windows = run(Pattern::Sequential, Some(undecided(250)));
    assert_eq!(windows.loaded, 0, "windows come faster from the device");
    let stiff = run(Pattern::Random, Some(undecided(900)));
    assert!(stiff.loaded < with.loaded / 10, "{} loads of what hardly shrinks", stiff.loaded);
}
