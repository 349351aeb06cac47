//! What the compressed pool would have of packing pages in runs: size, and nanoseconds a page, of
//! single pages and of 4 and 16 that are packed as one. And what a random fault would pay for it,
//! which has to unpack a whole run. Arguments: files with memory contents (a dump, a database);
//! without any, pages that are made up, 2:1 and 4:1. The least of 12 rounds in turn counts.

use std::time::Instant;
use std::{env, fs, io};

use overspill_engine::packing::{Packer, unpack};

const PAGE: usize = 4096;
const RUNS: [usize; 3] = [1, 4, 16];
const RUN_MAX: usize = RUNS[RUNS.len() - 1];
const ROUNDS: u32 = 12;
/// Pages that are made up.
const MADE_UP: usize = 1024;
/// What the pool takes of a page that does not get smaller than this (of four quarters).
const QUARTERS_MAX: usize = 3;

/// What a run length came to.
#[derive(Clone, Copy)]
struct Came {
    bytes: usize,
    pack_ns: u128,
    unpack_ns: u128,
}

fn main() -> io::Result<()> {
    let files: Vec<String> = env::args().skip(1).collect();
    println!("contents, pages: run, size, of single; ns a page packed, of single; ns a fault unpacked");
    for file in &files {
        measure(file, &fs::read(file)?);
    }
    if files.is_empty() {
        [2, 4].into_iter().for_each(|ratio| measure(&format!("{ratio}:1"), &made_up(ratio)));
    }
    Ok(())
}

/// Lines of 64 bytes, of which one in so many bytes is noise and the others are zero.
fn made_up(ratio: usize) -> Vec<u8> {
    let mut seed = 1u64;
    let mut noise = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 56) as u8
    };
    (0..MADE_UP * PAGE).map(|at| if at % 64 < 64 / ratio { noise() } else { 0 }).collect()
}

fn measure(name: &str, contents: &[u8]) {
    let pages = contents.len() / (RUN_MAX * PAGE) * RUN_MAX;
    if pages == 0 {
        return println!("{name}: fewer than {RUN_MAX} pages");
    }
    println!("{name}, {pages} pages");
    let contents = &contents[..pages * PAGE];
    let mut best = RUNS.map(|run| round(contents, run));
    for _ in 1..ROUNDS {
        for (best, run) in best.iter_mut().zip(RUNS) {
            let came = round(contents, run);
            best.pack_ns = best.pack_ns.min(came.pack_ns);
            best.unpack_ns = best.unpack_ns.min(came.unpack_ns);
        }
    }
    for (came, run) in best.iter().zip(RUNS) {
        println!(
            "  {run:>2}  {:.3} {:.3}  {:>5} {:.2}  {:>6}",
            came.bytes as f64 / contents.len() as f64,
            came.bytes as f64 / best[0].bytes as f64,
            came.pack_ns / pages as u128,
            came.pack_ns as f64 / best[0].pack_ns as f64,
            came.unpack_ns * run as u128 / pages as u128,
        );
    }
}

fn round(contents: &[u8], run: usize) -> Came {
    let mut packer = Packer::new(run * PAGE);
    let mut packed = Vec::with_capacity(contents.len());
    let mut ends = Vec::with_capacity(contents.len() / PAGE);
    let mut bytes = 0;
    let began = Instant::now();
    for run in contents.chunks_exact(run * PAGE) {
        let len = packer.pack(run);
        let is_stiff = len > run.len() / 4 * QUARTERS_MAX;
        bytes += if is_stiff { run.len() } else { len.next_multiple_of(8) };
        packed.extend_from_slice(packer.packed());
        ends.push(packed.len());
    }
    let pack_ns = began.elapsed().as_nanos();
    let mut page = vec![0; run * PAGE];
    let began = Instant::now();
    let mut start = 0;
    for end in ends {
        unpack(&packed[start..end], &mut page);
        start = end;
    }
    Came { bytes, pack_ns, unpack_ns: began.elapsed().as_nanos() }
}
