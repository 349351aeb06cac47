//! How many pages of a file larger than the budget are read a lap, by pattern, through a mapping and
//! through a cached file: counts, which do not depend on who else uses the machine.
//!
//! `cargo run --release -p overspill-pager --example files -- FILE [ram MiB] [laps]`

use overspill_pager::{File, FileOptions, FileRegion, MapOptions, Pager};

const PAGE: usize = 4096;

/// Pages in the order of use, of a file of so many.
fn orders(pages: usize) -> [(&'static str, Vec<usize>); 5] {
    let eighth = pages / 8;
    let interleaved = (0..eighth).flat_map(|at| (0..8).map(move |stream| stream * eighth + at));
    let mut seed = 1u64;
    let random = (0..pages / 4).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % pages
    });
    [
        ("cyclic", (0..pages).collect()),
        ("backward", (0..pages).rev().collect()),
        ("8 interleaved streams", interleaved.collect()),
        ("every 17th of 16 pages", (0..pages / 272).flat_map(|n| n * 272..n * 272 + 16).collect()),
        ("random", random.collect()),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("a file is wanted")?;
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (ram, laps) = (number(1, 64)? << 20, number(2, 4)?);
    let pages = std::fs::metadata(path)?.len() as usize / PAGE;
    println!("file {pages} pages, budget {} pages; pages read in each lap", ram / PAGE);
    for (name, order) in orders(pages) {
        let pager = Pager::builder().ram(ram as u64).build()?;
        let region = pager.map_file(path, &MapOptions::new())?;
        println!("map_file {name}, {} touches: {:?}", order.len(), mapped(&pager, &region, &order, laps)?);
        drop((region, pager));
        let pager = Pager::builder().ram(ram as u64).build()?;
        let file = pager.open_file(path, &FileOptions::new())?;
        println!("File {name}: {:?}", cached(&file, &order, laps)?);
    }
    Ok(())
}

fn mapped(
    pager: &Pager,
    region: &FileRegion,
    order: &[usize],
    laps: usize,
) -> Result<Vec<u64>, overspill_pager::Error> {
    let lap = |_| {
        let before = pager.stats()?.vmstat.file_in;
        let sum: u64 = order.iter().map(|&page| u64::from(region[page * PAGE])).sum();
        std::hint::black_box(sum);
        Ok(pager.stats()?.vmstat.file_in - before)
    };
    (0..laps).map(lap).collect()
}

fn cached(file: &File, order: &[usize], laps: usize) -> Result<Vec<u64>, overspill_pager::Error> {
    let mut page = [0; PAGE];
    let lap = |_| {
        let before = file.stats().pages_read;
        for &at in order {
            file.read_at(&mut page, (at * PAGE) as u64)?;
        }
        Ok(file.stats().pages_read - before)
    };
    (0..laps).map(lap).collect()
}
