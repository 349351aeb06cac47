//! The load of `bench files`: a file read in some order, and perhaps written, by one way of reading
//! files, lap after lap.
//!
//! `overspill read-file` prints one line of JSON: what each lap took, and how many bytes the process
//! read from the device for it. The first word of a page tells its number; whoever finds another
//! fails.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use overspill_pager::{FileOptions, FileRegion, MapAdvice, MapOptions, Pager, SharedStores};
use overspill_sim::rng::splitmix64;
use serde::{Deserialize, Serialize};

use super::generator::{generator, part};
use super::pattern::Pattern;
use crate::idle::Idle;
use crate::os::mapped::Mapped;
use crate::os::memory::PAGE_BYTES;
use crate::size::Size;
use crate::stdout::print;

/// Of orders in which neighbours follow one another so much is read by one call.
const UNIT_PAGES: usize = 16;
/// Visits between two looks at the clock.
const BATCH: usize = 64;

/// A way to read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// mmap(2): the kernel's, or under `run --files` the agent's.
    Mmap,
    /// pread(2).
    Read,
    /// `Pager::map_file`.
    MapFile,
    /// `Pager::open_file`.
    File,
}

/// `overspill read-file`.
#[derive(Args, Clone, Debug)]
pub struct ReadFileArgs {
    /// The file, as `bench files` makes it: each word says where it is
    pub file: PathBuf,
    /// By which calls
    #[arg(long)]
    pub how: How,
    /// In which order
    #[arg(long)]
    pub order: Pattern,
    /// So much of it
    #[arg(long)]
    pub size: Size,
    /// Threads, each with its own part
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// How often
    #[arg(long, default_value_t = 3)]
    pub laps: u32,
    /// A lap ends after so long, wherever it is
    #[arg(long, default_value_t = 3600)]
    pub lap_seconds: u64,
    /// Bytes of a call where neighbours follow one another
    #[arg(long, default_value_t = UNIT_PAGES)]
    pub unit: usize,
    /// Say that it is read in no order
    #[arg(long)]
    pub advise_random: bool,
    /// Of the visits, how many of a hundred write in place of reading
    #[arg(long, default_value_t = 0)]
    pub write_percent: u64,
    /// With so many visits of all threads what was written is synced; 0: never
    #[arg(long, default_value_t = 0)]
    pub sync_every: u64,
    /// The library's budget
    #[arg(long)]
    pub ram: Option<Size>,
}

/// One lap.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default)]
pub struct Lap {
    /// Its time.
    pub seconds: f64,
    /// Pages that it visited.
    pub pages: u64,
    /// Bytes that the process read from the device meanwhile.
    pub read_bytes: u64,
}

/// The line of JSON.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Done {
    /// In order.
    pub laps: Vec<Lap>,
}

/// The first word of a page.
fn word(page: usize) -> u64 {
    let mut state = page as u64 ^ 0xF11E_5EED;
    splitmix64(&mut state)
}

/// Makes a file of so many bytes (whole pages), on stable storage. It is noise: nobody gains by
/// compressing it.
///
/// *The story:* it was made by root, in a directory like /var/tmp and by a name that can be guessed,
/// wherever a link of that name led to.
pub fn make(path: &Path, bytes: u64) -> Result<()> {
    let make = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        for page in 0..bytes as usize / PAGE_BYTES {
            let mut state = word(page);
            file.write_all(&state.to_ne_bytes())?;
            for _ in 1..PAGE_BYTES / 8 {
                file.write_all(&splitmix64(&mut state).to_ne_bytes())?;
            }
        }
        file.into_inner()?.sync_all()
    };
    make().with_context(|| format!("cannot make {}", path.display()))
}

/// What is read by.
enum Source {
    Mapped(Mapped),
    Plain(File),
    Region(FileRegion),
    /// For the rest of the process.
    Shared(SharedStores<'static>),
    Cached(overspill_pager::File),
}

impl Source {
    /// Visits `count` pages from `page` on.
    fn visit(&self, page: usize, count: usize, buffer: &mut [u8]) -> Result<()> {
        let bytes = &mut buffer[..count * PAGE_BYTES];
        let offset = (page * PAGE_BYTES) as u64;
        match self {
            Source::Mapped(mapped) => {
                return (page..page + count).try_for_each(|page| check(page, mapped.word(page)));
            }
            Source::Region(region) => {
                return (page..page + count).try_for_each(|page| {
                    let at = page * PAGE_BYTES;
                    check(page, first_word(&region[at..at + 8]))
                });
            }
            Source::Shared(stores) => {
                let word = |page: usize| stores.words()[page * (PAGE_BYTES / 8)].load(Relaxed);
                return (page..page + count).try_for_each(|page| check(page, word(page)));
            }
            Source::Plain(file) => file.read_exact_at(bytes, offset)?,
            Source::Cached(file) => {
                let read = file.read_at(bytes, offset)?;
                ensure!(read == bytes.len(), "{read} bytes in place of {}", bytes.len());
            }
        }
        let pages = bytes.chunks_exact(PAGE_BYTES).zip(page..);
        pages.into_iter().try_for_each(|(bytes, page)| check(page, first_word(bytes)))
    }
}

impl Source {
    /// Overwrites `count` pages from `page` on; whoever checks them finds what he should.
    fn overwrite(&self, page: usize, count: usize, buffer: &mut [u8]) -> Result<()> {
        let bytes = &mut buffer[..count * PAGE_BYTES];
        for (bytes, page) in bytes.chunks_exact_mut(PAGE_BYTES).zip(page..) {
            bytes[..8].copy_from_slice(&word(page).to_ne_bytes());
        }
        let offset = page * PAGE_BYTES;
        match self {
            Source::Plain(file) => file.write_all_at(bytes, offset as u64)?,
            Source::Cached(file) => file.write_at(bytes, offset as u64)?,
            Source::Shared(stores) => {
                let words = &stores.words()[offset / 8..];
                for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
                    word.store(u64::from_ne_bytes(*bytes), Relaxed);
                }
            }
            Source::Mapped(_) | Source::Region(_) => bail!("this way of reading does not write"),
        }
        Ok(())
    }

    /// What was written is on stable storage.
    fn sync(&self) -> Result<()> {
        match self {
            Source::Plain(file) => file.sync_data()?,
            Source::Cached(file) => file.sync()?,
            Source::Shared(stores) => stores.sync()?,
            Source::Mapped(_) | Source::Region(_) => {}
        }
        Ok(())
    }
}

fn first_word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn check(page: usize, found: u64) -> Result<()> {
    ensure!(found == word(page), "page {page} begins with {found:#x}, not {:#x}", word(page));
    Ok(())
}

/// Carries out the command.
pub fn main(args: &ReadFileArgs) -> Result<u8> {
    let pages = args.size.bytes(0) as usize / PAGE_BYTES;
    let is_dense = !matches!(args.order, Pattern::Random | Pattern::Stride(_));
    let unit = if is_dense || args.write_percent > 0 { args.unit.max(1) } else { 1 };
    let pager = args.ram.map(|ram| pager(&args.file, ram)).transpose()?;
    let source = open(args, pages, pager.as_ref())?;
    let mut done = Done::default();
    for lap in 0..args.laps {
        done.laps.push(run_lap(args, &source, pages / unit, unit, lap)?);
    }
    print(&(serde_json::to_string(&done)? + "\n"))?;
    Ok(0)
}

/// Idle processors do as under `run`.
fn pager(file: &Path, ram: Size) -> Result<Pager> {
    let directory = file.parent().context("the file lies in a directory")?;
    let polls = Idle::default().polls();
    Ok(Pager::builder().ram(ram.bytes(0)).swap(directory).poll_idle(polls).build()?)
}

fn open(args: &ReadFileArgs, pages: usize, pager: Option<&Pager>) -> Result<Source> {
    let plain = || File::open(&args.file).with_context(|| format!("cannot open {}", args.file.display()));
    Ok(match (args.how, pager) {
        (How::Mmap, _) => {
            let mapped = Mapped::new(&plain()?, pages)?;
            if args.advise_random {
                mapped.advise_random()?;
            }
            Source::Mapped(mapped)
        }
        (How::Read, _) if args.write_percent > 0 => {
            Source::Plain(File::options().read(true).write(true).open(&args.file)?)
        }
        (How::Read, _) => Source::Plain(plain()?),
        (How::MapFile, Some(pager)) if args.write_percent > 0 => {
            let region = pager.map_file(&args.file, &MapOptions::new().shared())?;
            let stores = Box::leak(Box::new(region)).as_shared();
            Source::Shared(stores.expect("it was mapped so"))
        }
        (How::MapFile, Some(pager)) => {
            let region = pager.map_file(&args.file, &MapOptions::new())?;
            if args.advise_random {
                region.advise(0..region.len(), MapAdvice::Random)?;
            }
            Source::Region(region)
        }
        (How::File, Some(pager)) => {
            let options = FileOptions::new().write(args.write_percent > 0);
            Source::Cached(pager.open_file(&args.file, &options)?)
        }
        _ => bail!("the library needs --ram"),
    })
}

fn run_lap(args: &ReadFileArgs, source: &Source, units: usize, unit: usize, lap: u32) -> Result<Lap> {
    let before = read_bytes();
    let began = Instant::now();
    let limit = Duration::from_secs(args.lap_seconds);
    let visits = AtomicU64::new(0);
    let work = |thread: usize| -> Result<u64> {
        // Who writes does so anywhere, as all others do.
        let parts = if args.write_percent > 0 { 1 } else { args.threads as usize };
        let range = part(&(0..units), thread % parts, parts);
        let seed = u64::from(lap) << 32 | thread as u64;
        let mut order = generator(args.order, range.clone(), seed);
        let mut buffer = vec![0; unit * PAGE_BYTES];
        let mut visited = 0;
        for step in 0..range.len() {
            if step % BATCH == 0 && began.elapsed() > limit {
                break;
            }
            let page = order.next_page() * unit;
            let mut draw = seed ^ page as u64;
            if splitmix64(&mut draw) % 100 < args.write_percent {
                source.overwrite(page, unit, &mut buffer)?;
            } else {
                source.visit(page, unit, &mut buffer)?;
            }
            visited += unit as u64;
            let visit = visits.fetch_add(1, Relaxed) + 1;
            if args.sync_every > 0 && visit.is_multiple_of(args.sync_every) {
                source.sync()?;
            }
        }
        Ok(visited)
    };
    let pages = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..args.threads as usize).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic ends the load")).sum::<Result<u64>>()
    })?;
    Ok(Lap { seconds: began.elapsed().as_secs_f64(), pages, read_bytes: read_bytes() - before })
}

/// What the process has read from devices, all its threads together.
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See [`make`].
    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let path = |name: &str| std::env::temp_dir().join(format!("overspill-{name}-{}", std::process::id()));
        let (link, target, fresh) = (path("link"), path("target"), path("fresh"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(make(&link, 1 << 20).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        make(&fresh, 8192).unwrap();
        let bytes = std::fs::read(&fresh).unwrap();
        assert_eq!((bytes.len(), first_word(&bytes[4096..])), (8192, word(1)));
        [link, target, fresh].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
