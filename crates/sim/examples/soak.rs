//! Runs worlds: `soak FIRST COUNT`.
use overspill_sim::soak::World;
fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (first, count) = (args.next().unwrap_or(0), args.next().unwrap_or(1));
    for seed in first..first + count {
        let mut world = World::draw(seed);
        if std::env::var_os("LOG").is_some() {
            world.log_to(|line| println!("{line}"));
        }
        eprint!("{}", world.describe());
        eprintln!("{}", world.run());
    }
}
