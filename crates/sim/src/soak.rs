//! Random worlds, one a seed: a machine, programs and troubles drawn from it, run with every check
//! switched on.
//!
//! The drawn options are printed before anything runs, and a failure names the command that repeats
//! it. A seed means the same world at the same commit, nothing more.

use crate::device::params::Model;
use crate::engine::chaos::{Chaos, Wild};
use crate::engine::pool::PoolModel;
use crate::engine::{Engine, MoreArea, Options};
use crate::generate::{Pattern, Spec, Stream};
use crate::rng::Rng;
use crate::time::{MICROSECOND, MILLISECOND};
use overspill_mm::readahead::{SwapIn, policy};
use overspill_mm::reclaim::policy::Choice;
use overspill_mm::types::RegionKind;
use overspill_mm::{AreaConfig, Placement, Probe};
use std::fmt::Write;

/// The policy that plans anything.
const WILD: &str = "wild";

/// Of so many seeds one, of that rest, has other places for its pages, too: none of the worlds below that
/// have stories.
const PLACES_ONE_IN: u64 = 6;
const PLACES_REST: u64 = 5;

/// A drawn world.
#[derive(Clone, Debug)]
pub struct World {
    seed: u64,
    options: Options,
    /// A name of [`policy::NAMES`], or [`WILD`].
    policy: &'static str,
    programs: Vec<Spec>,
}

impl World {
    /// Draws the world of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let budget = 64 + rng.below(400) as u32;
        let roomy = rng.ratio(3, 4);
        let slots = if roomy { 8192 } else { 64 + rng.below(1500) as u32 };
        let names: Vec<&str> = Model::builtin_names().collect();
        let device = Model::builtin(rng.pick(&names).expect("there are models")).expect("of this name");
        let kernel = rng.ratio(1, 3);
        let mut options = if kernel {
            let make = if rng.ratio(1, 2) { Options::kernel } else { Options::kernel_2012 };
            make(budget, slots, device, 8)
        } else {
            Options::live(budget, slots, device)
        };
        options.shadow = true;
        options.check_every = 1 + rng.below(8) as u32;
        options.quantum_ns = MICROSECOND * (1 + rng.below(30));
        options.processors = rng.below(4) as u32;
        vary_mm(&mut options, kernel, &mut rng);
        options.chaos = draw_chaos(&mut rng);
        let policy =
            if rng.ratio(1, 3) { WILD } else { rng.pick(&policy::NAMES).copied().expect("not empty") };
        let programs = (0..1 + rng.below(4)).map(|index| draw_program(index, &mut rng)).collect();
        // Last, so that worlds are what they were before there was a choice; and of odd seeds.
        if !seed.is_multiple_of(2) {
            options.mm.reclaim = *rng.pick(&Choice::ALL).expect("not empty");
        }
        if seed % PLACES_ONE_IN == PLACES_REST {
            vary_places(&mut options, kernel, &mut rng);
        }
        World { seed, options, policy, programs }
    }

    /// Tells every event and action to `log`.
    pub fn log_to(&mut self, log: fn(std::fmt::Arguments<'_>)) {
        self.options.log = Some(log);
    }

    /// The command that runs this world again.
    #[must_use]
    pub fn command(&self) -> String {
        format!("overspill sim soak --seed {}", self.seed)
    }

    /// The options, as a block of text.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = format!("seed {}, read-ahead {}\n", self.seed, self.policy);
        let device = &self.options.device.name;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "device {device}, {:?}", self.options.mm);
        let _ =
            writeln!(text, "processors {}, quantum {} ns", self.options.processors, self.options.quantum_ns);
        let _ = writeln!(text, "{:?}", self.options.costs.worker);
        for more in &self.options.more_areas {
            let on = more.device.as_ref().map_or("the same device", |device| &device.name);
            let _ = writeln!(text, "on {on}, {:?}", more.area);
        }
        if let Some(pool) = self.options.pool {
            let _ = writeln!(text, "{pool:?}");
        }
        let _ = writeln!(text, "{:?}", self.options.chaos);
        for program in &self.programs {
            let _ = writeln!(text, "{program:?}");
        }
        text
    }

    /// Runs it, reads everything back, and gives the number of accesses.
    ///
    /// # Panics
    /// When any check fails: that is what it is for.
    #[must_use]
    pub fn run(&self) -> u64 {
        if self.policy == WILD {
            return self.run_with(Wild::new(self.seed));
        }
        let config = policy::Config {
            rotating: self.options.device.rotating(),
            frames: self.options.mm.budget,
            ..policy::Config::default()
        };
        self.run_with(policy::Policy::by_name(self.policy, config).expect("a name from the list"))
    }

    fn run_with<P: SwapIn>(&self, policy: P) -> u64 {
        let mut engine = Engine::new(self.options.clone(), policy);
        for program in &self.programs {
            engine.add(Box::new(Stream::new(program.clone()))).expect("generators do not fail");
        }
        let outcome = engine.run().expect("generators do not fail");
        engine.sweep().expect("lists do not fail");
        outcome.accesses
    }
}

/// `mm`'s configuration, within what makes sense: with batches, windows and reserves of the order
/// of the budget, several threads steal each other's pages before they are touched, and nobody gets
/// on.
fn vary_mm(options: &mut Options, kernel: bool, rng: &mut Rng) {
    let mm = &mut options.mm;
    let eighth = (mm.budget / 8).max(1);
    if !kernel {
        mm.unit = (1 << rng.below(7)).min(eighth.next_power_of_two() / 2).max(1);
        mm.cache = rng.below(u64::from(eighth)) as u32;
        mm.compares = rng.ratio(1, 2);
        mm.fill_max = 1 + rng.below(u64::from(eighth)) as u32;
    }
    if rng.ratio(1, 2) {
        mm.high = rng.below(u64::from(eighth) + 1) as u32;
        mm.low = rng.below(u64::from(mm.high) + 1) as u32;
    }
    mm.write_max = 1 + rng.below(300) as u32;
    mm.read_max = 1 + rng.below(300) as u32;
    if rng.ratio(1, 2) {
        mm.placement = if rng.ratio(1, 2) { Placement::ByAddress } else { Placement::InOrder };
    }
}

/// More areas, of any size, priority and device; of the live pager a compressed pool and a feed of accessed
/// bits, too.
fn vary_places(options: &mut Options, kernel: bool, rng: &mut Rng) {
    let names: Vec<&str> = Model::builtin_names().collect();
    for _ in 0..rng.below(3) {
        let area = AreaConfig {
            slots: 8 + rng.below(3000) as u32,
            priority: rng.below(3) as i16 - 1,
            discards: rng.ratio(1, 2),
            claims: 0,
        };
        let name = rng.pick(&names).expect("there are models");
        let device = rng.ratio(1, 2).then(|| Model::builtin(name).expect("of this name"));
        options.more_areas.push(MoreArea { area, device });
    }
    if kernel {
        return;
    }
    if rng.ratio(1, 3) {
        options.mm.probe = Probe::Accessed;
    }
    if rng.ratio(1, 2) {
        options.pool = Some(PoolModel {
            frames: 1 + rng.below(u64::from(options.mm.budget)) as u32,
            is_fixed: rng.ratio(1, 2),
            packed_permille: 50 + rng.below(950) as u32,
            pack_ns: rng.below(20_000),
            unpack_ns: rng.below(10_000),
        });
        // What becomes of a pool whose device fails is the engine's business.
        if let Some(chaos) = &mut options.chaos {
            chaos.fail_ppm = 0;
        }
    }
}

fn draw_chaos(rng: &mut Rng) -> Option<Chaos> {
    if rng.ratio(1, 4) {
        return None;
    }
    let sometimes = |rng: &mut Rng, most: u64| if rng.ratio(1, 2) { rng.below(most) } else { 0 };
    Some(Chaos {
        seed: rng.next_u64(),
        fail_ppm: if rng.ratio(1, 4) { rng.below(3000) } else { 0 },
        late_permille: sometimes(rng, 500),
        late_max_ns: 1 + rng.below(5 * MILLISECOND),
        busy_permille: sometimes(rng, 200),
        call_permille: sometimes(rng, 60),
        interrupt_permille: sometimes(rng, 400),
        pressure: rng.ratio(1, 2),
    })
}

fn draw_program(index: u64, rng: &mut Rng) -> Spec {
    let pages = 1 + rng.below(900);
    let pattern = match rng.below(7) {
        0 => Pattern::Sequential,
        1 => Pattern::Descending,
        2 => Pattern::Random,
        3 => Pattern::Zipf { tenths: rng.below(15) as u32 },
        4 => Pattern::Strided { stride: 1 + rng.below(70) },
        5 => Pattern::Interleaved { streams: 1 + rng.below(6) },
        _ => Pattern::Moving { size: 1 + rng.below(300), dwell: 1 + rng.below(20) },
    };
    Spec {
        start: (1 << 20) + index * 4096 + rng.below(1000),
        pages,
        kind: if rng.ratio(1, 4) { RegionKind::Shared } else { RegionKind::Anon },
        pattern,
        touches: 500 + rng.below(4000),
        write_percent: *rng.pick(&[0, 5, 50, 100]).expect("not empty"),
        prefill: rng.ratio(1, 2),
        repeat: 1 + rng.below(3) as u32,
        think_ns: rng.below(3000) as u32,
        seed: rng.next_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints the options when the world comes to an end.
    struct Epitaph<'a>(&'a World);

    impl Drop for Epitaph<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("{}repeat with: {}", self.0.describe(), self.0.command());
            }
        }
    }

    fn soak(seeds: std::ops::Range<u64>) {
        for seed in seeds {
            let world = World::draw(seed);
            let _epitaph = Epitaph(&world);
            assert!(world.run() > 0);
        }
    }

    #[test]
    fn the_first_worlds() {
        soak(0..32);
    }

    /// A page was moved by mremap, in view, and another thread touched it before the kernel had
    /// heard of the call: the mark of that touch found no page in view. It was the world that was
    /// wrong, not `mm`: a kernel makes such a change itself and has not to hear of it. One of 9,000
    /// worlds came upon it, when half a microsecond lay between; two more when the move had to wait
    /// until a disk was done.
    #[test]
    fn a_kernel_knows_of_its_own_system_calls() {
        // Half of the pages are in view: a page that is comes to lie where one was that is not.
        let nvme = Model::builtin("nvme").expect("built in");
        let mut options = Options::kernel(512, 8192, nvme, 8);
        (options.shadow, options.quantum_ns) = (true, 2 * MICROSECOND);
        let pattern = Pattern::Random;
        let program =
            |seed| Spec { pages: 512, pattern: pattern.clone(), touches: 20_000, seed, ..Spec::default() };
        for seed in 0..8 {
            options.chaos = Some(Chaos { seed, call_permille: 300, ..Chaos::default() });
            let programs = vec![program(seed), Spec { start: 1 << 21, ..program(seed + 100) }];
            let world = World { seed, options: options.clone(), policy: WILD, programs };
            assert!(world.run() > 0);
        }
        soak(9_006_507..9_006_508);
    }

    /// Swap and budget just held the program, or not quite, and some frames more than the budget were
    /// held before that was told, or without that at all.
    #[test]
    fn more_than_the_budget_is_held_only_where_that_is_said() {
        [319, 388, 428, 542, 733, 828, 871, 961, 1615].into_iter().for_each(|seed| soak(seed..seed + 1));
    }

    /// Nearly every page was active; each that reclaim took was the one that somebody waited for,
    /// which came back, so that reclaim never ended: and only a reclaim that began anew asked
    /// whether the active list is too long.
    #[test]
    fn a_reclaim_without_end_ages_the_active_list() {
        soak(9_006_174..9_006_175);
    }

    /// Four threads waited for pages that were being written; each got its page and lost it in the
    /// same step, for ever.
    #[test]
    fn who_is_answered_gets_to_use_the_page() {
        soak(96..97);
    }

    /// All but two pages were active, and three threads took those two from one another for ever,
    /// each before its owner had used it.
    #[test]
    fn who_is_answered_gets_to_use_the_page_whatever_is_active() {
        soak(73..74);
    }

    /// A page that showed the zero page was stored to while its range was being moved. Its frame was
    /// refused, whereupon `mm` forgot it; at the new place the zero page was in view all the same.
    #[test]
    fn what_shows_the_zero_page_shows_it_where_it_was_moved() {
        soak(11_235..11_236);
    }

    /// The same seed gives the same figures.
    #[test]
    fn worlds_repeat() {
        for seed in 0..5 {
            let world = World::draw(seed);
            assert_eq!(world.describe(), World::draw(seed).describe());
            assert_eq!(world.run(), world.run());
        }
    }
}
