//! How fast the library pages: one word per page, in order round and round, or at random.
//!
//! `cargo run --release -p overspill-pager --example speed -- [seq|random] [size MiB] [ram MiB] [threads]`

use std::time::Instant;

use overspill_pager::Pager;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let random = arguments.first().is_some_and(|mode| mode == "random");
    let (size, ram, threads) = (number(1, 1000)? << 20, number(2, 900)? << 20, number(3, 1)?);
    let pager = Pager::builder().ram(ram as u64).build()?;
    let mut region = pager.map_anon(size)?;
    let start = Instant::now();
    region.chunks_mut(4096).for_each(|page| page[0] = 1);
    println!("first touch: {:.0} MB/s", size as f64 / 1e6 / start.elapsed().as_secs_f64());
    let laps = number(4, 5)?;
    let before = pager.stats()?;
    let start = Instant::now();
    let share = (size / 4096 / threads) * 4096;
    std::thread::scope(|scope| {
        for (thread, part) in region.chunks_mut(share).enumerate() {
            scope.spawn(move || {
                let pages = part.len() / 4096;
                let mut seed = thread as u64 + 1;
                for touch in 0..pages * laps {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let page = if random { (seed >> 33) as usize % pages } else { touch % pages };
                    part[page * 4096] = part[page * 4096].wrapping_add(1);
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let touches = (size / 4096 * laps) as f64;
    let after = pager.stats()?.vmstat;
    println!("{touches} touches: {:.0} MB/s, {:.0}/s", touches * 4096.0 / 1e6 / seconds, touches / seconds);
    println!(
        "major {} in {} out {} ahead {} hit {} unused {} soft {} reads {} writes {} stalls {}",
        after.pgmajfault - before.vmstat.pgmajfault,
        after.pswpin - before.vmstat.pswpin,
        after.pswpout - before.vmstat.pswpout,
        after.swap_ra,
        after.swap_ra_hit,
        after.swap_ra_unused,
        after.soft_fault,
        after.read_ops,
        after.write_ops,
        after.allocstall,
    );
    Ok(())
}
