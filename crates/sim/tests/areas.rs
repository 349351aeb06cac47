//! Two swap areas against one, on one device and on two: what there is of a device's bandwidth is
//! used, and the areas' turns cost nothing.

use overspill_mm::AreaConfig;
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::device::params::Model;
use overspill_sim::engine::{Engine, MoreArea, Options};
use overspill_sim::generate::pattern::{Pattern, Spec, Stream};

const MIB: u64 = 1 << 20;
const BUDGET: u32 = (64 * MIB / PAGE_SIZE) as u32;
const PAGES: u64 = 256 * MIB / PAGE_SIZE;
const SLOTS: u32 = (512 * MIB / PAGE_SIZE) as u32;

/// Virtual time of two laps over 256 MiB in order by so many programs, in a budget of 64 MiB.
fn elapsed_ns(more: &[MoreArea], threads: u32) -> u64 {
    elapsed_on(&builtin("sata-ssd"), more, threads, Pattern::Sequential, 0)
}

fn elapsed_on(device: &Model, more: &[MoreArea], threads: u32, pattern: Pattern, write_percent: u64) -> u64 {
    let mut options = Options::live(BUDGET, SLOTS, device.clone());
    options.more_areas = more.to_vec();
    let knobs = policy::Config { frames: BUDGET, ..policy::Config::default() };
    let policy = Policy::by_name(policy::NAMES[0], knobs).expect("every listed name makes a policy");
    let mut engine = Engine::new(options, policy);
    for _ in 0..threads {
        let spec = Spec {
            pages: PAGES / u64::from(threads),
            pattern: pattern.clone(),
            touches: 2 * PAGES / u64::from(threads),
            prefill: true,
            write_percent,
            ..Spec::default()
        };
        engine.add(Box::new(Stream::new(spec))).expect("a generated load has no faults");
    }
    engine.run().expect("a generated load has no faults").elapsed_ns
}

fn builtin(name: &str) -> Model {
    Model::builtin(name).expect("it is built in")
}

fn area(device: Option<&str>) -> MoreArea {
    let device = device.map(builtin);
    MoreArea { area: AreaConfig { slots: SLOTS, ..AreaConfig::default() }, device }
}

#[test]
fn two_areas_on_one_device_cost_nothing_and_on_two_devices_are_twice_as_fast() {
    // The device is not all: with two of them one program waits for its own pages being mapped.
    // (What a change of reclaim saves with one area it need not with two.)
    for (threads, least) in [(1, 1820), (4, 1850)] {
        let one = elapsed_ns(&[], threads);
        let same = elapsed_ns(&[area(None)], threads);
        let two = elapsed_ns(&[area(Some("sata-ssd"))], threads);
        let permille = |ns: u64| one * 1000 / ns;
        println!("{threads} threads: on one device {}, on two {}", permille(same), permille(two));
        assert!((950..=1050).contains(&permille(same)), "{threads} threads: {} of one area", permille(same));
        assert!(permille(two) >= least, "{threads} threads: {} of one area", permille(two));
    }
}

/// So many times a device of 50 us a request and 4 us a page.
fn slower(times: u64) -> Model {
    let text = format!(
        "name = 'slower'\ndescription = 'so many times slower'\nsource = ['none']\n[linear]\n\
         read_op_ns = {0}\nread_page_ns = {1}\nwrite_op_ns = {0}\nwrite_page_ns = {1}\n",
        50_000 * times,
        4_000 * times
    );
    Model::parse("slower", &text).expect("the model is sound")
}

/// Of a device that is 50 times slower, and has the same priority, a program is not to take 25 times
/// as long: it gets fewer pages.
#[test]
fn a_slow_area_does_not_stall_a_fast_one() {
    let beside = [MoreArea { device: Some(slower(50)), ..area(None) }];
    for (pattern, write_percent) in
        [(Pattern::Sequential, 0), (Pattern::Sequential, 100), (Pattern::Random, 100)]
    {
        for threads in [1, 4] {
            let elapsed = |more| elapsed_on(&slower(1), more, threads, pattern.clone(), write_percent);
            let (alone, both) = (elapsed(&[]), elapsed(&beside));
            let permille = both * 1000 / alone;
            println!("{pattern:?}, {write_percent} % stores, {threads} threads: {permille} of the fast one");
            assert!(permille <= 9000, "{pattern:?}, {threads} threads: {permille} of the fast one alone");
        }
    }
}
