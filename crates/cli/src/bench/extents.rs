//! `overspill bench extents`: what finding a page costs on a file that is really in pieces, and
//! beside it on a map cut artificially.
//!
//! The file gets its blocks in one go. Then every other piece is taken out (a hole) and put in again
//! at once: a file system that goes on from where it allocated last puts it elsewhere. That takes as
//! long for each piece, however many there are. Where it got the same blocks again (small files, on
//! ext4), a file of twice the blocks is made, and every other piece is taken out and closed up:
//! all behind is renumbered each time, so that this grows with the square. (Two files that grow in
//! turns were 13 extents on ext4, which looks ahead.) What came of it is what the file system says
//! (FIEMAP). There is one such file for each count of pieces of the published experiment, one after
//! the other, all of one size.
//!
//! The lookups are of random pages, each waiting for the last one; the device is not touched by
//! them, so the figures are those of the maps alone. What that is worth where tasks write and read
//! is in `tasks`.

mod tasks;

use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::fcntl::{FallocateFlags, fallocate};
use overspill_mm::swap::extents::{Extents, ListMap, Lookup, SortedMap, TreeMap};
use overspill_sim::report::table::aligned;

use super::options::Options;
use crate::checks::swap_place::free_bytes;
use crate::progress::Progress;
use crate::stderr::say;
use crate::stdout::print;
use crate::swap::inspect::Candidate;
use crate::swap::layout::Layout;

pub const OPTIONS: Options = Options { names: &["size", "swap"], tuning: false };

/// Into so many pieces the file is cut.
const PIECES: [i64; 4] = [2, 2000, 20_000, 84_656];
const PAGE_BYTES: i64 = 4096;
/// ... of at least this.
const LEAST_BYTES: i64 = 15 << 10;
/// Cutting ends after so long, on a slow disk with fewer pieces. (84,656 took 20 s beside builds.)
const CUTTING: Duration = Duration::from_secs(60);
const LOOKUPS: u32 = 200_000;
/// The list walks through half of itself each time: as many nodes, roughly, as the others look at.
const LIST_NODES: u32 = 20_000_000;

/// A file without a name: it is gone when this is, however the command ends.
struct Scratch(File);

impl Scratch {
    fn new(directory: &Path) -> Result<Scratch> {
        let path = directory.join(format!(".overspill-bench-pieces-{}", std::process::id()));
        let file = File::create_new(&path).and_then(|file| fs::remove_file(&path).map(|()| file));
        file.map(Scratch).with_context(|| path.display().to_string())
    }

    /// By which it is opened once more.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Carries out the command in a directory, with files of so many bytes.
pub fn main(directory: &Path, bytes: u64) -> Result<u8> {
    let counts: Vec<i64> =
        PIECES.into_iter().filter(|&pieces| pieces * LEAST_BYTES <= bytes as i64).collect();
    let least = (PIECES[0] * LEAST_BYTES) as u64;
    ensure!(!counts.is_empty(), "--size: {} at least, for two pieces", crate::human::bytes(least));
    announce(directory, bytes, counts.len())?;
    counts.into_iter().try_for_each(|pieces| in_so_many(directory, bytes, pieces))?;
    Ok(0)
}

/// What it will take, and whether that is there.
fn announce(directory: &Path, bytes: u64, files: usize) -> Result<()> {
    let most = 2 * bytes;
    let (place, free) = (directory.display(), free_bytes(directory)?);
    let [each, room, free_text] = [bytes, most, free].map(crate::human::bytes);
    ensure!(free >= most, "{place} has {free_text} free, and {room} are needed");
    let told = format!(
        "{files} files of {each} in {place}, one after the other, without a name: up to {room} of the disk \
         at a time, some seconds to a minute each, {} s of cutting at most; nothing stays",
        CUTTING.as_secs()
    );
    say!("{}", crate::human::folded(&told, "    "));
    Ok(())
}

fn in_so_many(directory: &Path, bytes: u64, pieces: i64) -> Result<()> {
    let (scratch, real, reported) = in_pieces(directory, bytes, pieces)?;
    let cut = Extents::artificial(pieces as u32, (real.pages() / pieces as u32).max(1));
    let mut rows = vec![["map", "extents", "lookup", "ns", "bytes an extent"].map(str::to_owned).to_vec()];
    for (name, extents) in [("the file's", &real), ("cut artificially", &cut)] {
        rows.push(row(name, "list", extents, &ListMap::new(extents)));
        rows.push(row(name, "tree", extents, &TreeMap::new(extents)));
        rows.push(row(name, "default", extents, &SortedMap::new(extents)));
    }
    let told = format!(
        "{}: {} cut into {} pieces: {} extents by FIEMAP",
        directory.display(),
        crate::human::bytes(bytes),
        crate::human::count(pieces as u64),
        crate::human::count(reported)
    );
    let told = crate::human::folded(&told, "    ") + "\n";
    print(&(told + &aligned(&rows, &[false, true, false, true, true]) + "\n"))?;
    let rows = tasks::rows(&scratch.path(), &real)?;
    let rows = aligned(&rows, &[true, false, false, true, true, true]);
    print(&("page by page:\n".to_owned() + &rows + "\n"))?;
    let progress = Progress::about("freeing its blocks");
    progress.say("");
    drop(scratch);
    Ok(())
}

/// A file in pieces: where its pages lie, and its extents as the file system tells them.
fn in_pieces(directory: &Path, bytes: u64, pieces: i64) -> Result<(Scratch, Extents, u64)> {
    let begun = Instant::now();
    let (scratch, layout) = cut(directory, bytes, pieces, 1, (1..pieces).step_by(2), put_elsewhere)?;
    if layout.extents.runs().len() as i64 * 10 >= pieces * 9 || begun.elapsed() >= CUTTING {
        return Ok((scratch, layout.extents, layout.reported));
    }
    drop(scratch);
    let (scratch, layout) = cut(directory, bytes, pieces, 2, (0..pieces - 1).rev(), close_up)?;
    Ok((scratch, layout.extents, layout.reported))
}

/// Cuts a file of `times` its blocks, step by step, in this order.
fn cut(
    directory: &Path,
    bytes: u64,
    pieces: i64,
    times: i64,
    order: impl Iterator<Item = i64>,
    step: impl Fn(&File, i64, i64) -> nix::Result<()>,
) -> Result<(Scratch, Layout)> {
    let scratch = Scratch::new(directory)?;
    let file = &scratch.0;
    let piece_bytes = bytes as i64 / pieces / PAGE_BYTES * PAGE_BYTES;
    reserve(file, 0, times * pieces * piece_bytes).context("cannot reserve blocks")?;
    let (progress, begun) = (Progress::about("cutting a file: "), Instant::now());
    for (done, piece) in order.take_while(|_| begun.elapsed() < CUTTING).enumerate() {
        step(file, piece, piece_bytes).context("the file system cannot take a part out of a file")?;
        if done % 100 == 0 {
            progress.share(done, (pieces * times / 2) as usize, "pieces");
        }
    }
    // Where there was no time for all of them the rest is in one piece.
    file.set_len((pieces * piece_bytes) as u64).context("cannot shorten the file")?;
    file.sync_all()?;
    let layout = Candidate::open(&scratch.path()).and_then(|file| file.layout());
    Ok((scratch, layout.map_err(|refused| anyhow!("{refused}"))?))
}

/// Takes a piece out and puts it in again. (From the front on: from the end some got their own place.)
fn put_elsewhere(file: &File, piece: i64, bytes: i64) -> nix::Result<()> {
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, hole, piece * bytes, bytes)?;
    reserve(file, piece * bytes, bytes)
}

/// Takes out what is behind a piece, and closes up. From the end on what has to be renumbered each
/// time is in pieces already, but the fewest.
fn close_up(file: &File, piece: i64, bytes: i64) -> nix::Result<()> {
    fallocate(file, FallocateFlags::FALLOC_FL_COLLAPSE_RANGE, (2 * piece + 1) * bytes, bytes)
}

fn reserve(file: &File, at: i64, bytes: i64) -> nix::Result<()> {
    fallocate(file, FallocateFlags::empty(), at, bytes)
}

fn row<L: Lookup>(name: &str, lookup: &str, extents: &Extents, map: &L) -> Vec<String> {
    let count = extents.runs().len() as u32;
    let lookups = if lookup == "list" { (LIST_NODES / count.max(1)).clamp(100, LOOKUPS) } else { LOOKUPS };
    let best = (0..5).map(|_| timed(map, extents.pages(), lookups)).min().unwrap_or(0);
    let ns = format!("{}.{}", best / 10, best % 10);
    vec![name.into(), count.to_string(), lookup.into(), ns, map.extent_bytes().to_string()]
}

/// Tenths of a nanosecond a lookup.
fn timed<L: Lookup>(map: &L, pages: u32, lookups: u32) -> u128 {
    let (mut cursor, mut seed, mut sum) = (L::Cursor::default(), 0x2545_f491_4f6c_dd1du64, 0);
    let begun = Instant::now();
    for _ in 0..lookups {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = ((seed >> 32 ^ sum & 1) * u64::from(pages)) >> 32;
        sum += map.find(&mut cursor, page as u32).block;
    }
    black_box(sum);
    begun.elapsed().as_nanos() * 10 / u128::from(lookups.max(1))
}
