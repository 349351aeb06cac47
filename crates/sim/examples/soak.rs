//! Runs worlds: `soak FIRST COUNT`.
use overspill_sim::soak::World;
fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (first, count) = (args.next().unwrap_or(0), args.next().unwrap_or(1));
    for seed in first..first + count {
        let world = World::draw(seed);
        eprint!("{}", world.describe());
        eprintln!("{}", world.run());
    }
}
