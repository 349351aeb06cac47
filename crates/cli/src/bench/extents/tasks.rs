//! Several tasks that write and read pages of the file, as the published experiment has it: each
//! goes through a part of its own, and before each page asks the map where that lies.
//!
//! A kernel of before 5.3 has one cursor in the list for all tasks, and takes no lock for it. So
//! here a task takes the cursor where another one has left it, and leaves it where it came to. The
//! tree has none, and the default one for each task. Pages go one by one, by direct I/O through the
//! file: the file system finds the place once more, the same for all maps.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use overspill_mm::swap::extents::{Extents, ListMap, Lookup, SortedMap, TreeMap};

const PAGE_BYTES: usize = 4096;
const TASKS: [u32; 3] = [1, 4, 8];
/// Pages that all tasks together transfer in one direction.
const PAGES: u32 = 8192;

#[derive(Clone, Copy)]
enum Way {
    Out,
    In,
}

/// A table: throughput and share of time in lookup, by tasks and maps.
pub fn rows(path: &Path, extents: &Extents) -> Result<Vec<Vec<String>>> {
    let flags = OFlag::O_DIRECT.bits();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = file.with_context(|| path.display().to_string())?;
    let mut rows =
        vec![["tasks", "", "lookup", "MB/s", "of the list's", "in lookup"].map(str::to_owned).to_vec()];
    let (list, tree, default) = (ListMap::new(extents), TreeMap::new(extents), SortedMap::new(extents));
    for tasks in TASKS {
        // A block's first write costs more than the others.
        timed(&file, &default, extents.pages(), tasks, Way::Out, false)?;
        for way in [Way::Out, Way::In] {
            let times = [
                ("list", timed(&file, &list, extents.pages(), tasks, way, true)?),
                ("tree", timed(&file, &tree, extents.pages(), tasks, way, false)?),
                ("default", timed(&file, &default, extents.pages(), tasks, way, false)?),
            ];
            let of_list = times[0].1.ns;
            rows.extend(times.iter().map(|(lookup, time)| row(tasks, way, lookup, time, of_list)));
        }
    }
    Ok(rows)
}

/// What some tasks took.
struct Time {
    /// From the first page to the last.
    ns: u64,
    /// In lookups, of all tasks.
    lookup_ns: u64,
}

fn row(tasks: u32, way: Way, lookup: &str, time: &Time, of_list: u64) -> Vec<String> {
    let bytes = u64::from(PAGES) * PAGE_BYTES as u64;
    let way = match way {
        Way::Out => "out",
        Way::In => "in",
    };
    let share = time.lookup_ns * 1000 / (time.ns * u64::from(tasks)).max(1);
    let ratio = of_list * 100 / time.ns.max(1);
    vec![
        tasks.to_string(),
        way.into(),
        lookup.into(),
        (bytes * 1000 / time.ns.max(1)).to_string(),
        format!("{}.{:02}", ratio / 100, ratio % 100),
        format!("{}.{} %", share / 10, share % 10),
    ]
}

fn timed<L>(file: &File, map: &L, pages: u32, tasks: u32, way: Way, is_shared: bool) -> Result<Time>
where
    L: Lookup + Sync,
    L::Cursor: Copy + Send,
{
    let (shared, lookup_ns) = (Mutex::new(L::Cursor::default()), AtomicU64::new(0));
    let begun = Instant::now();
    let task = |first: u32, count: u32| -> Result<()> {
        let (mut own, mut spent, mut page_buffer) = (L::Cursor::default(), 0, Aligned::new());
        for page in first..first + count {
            let looked = Instant::now();
            let mut cursor = if is_shared { *lock(&shared) } else { own };
            let extent = map.find(&mut cursor, page);
            if is_shared {
                *lock(&shared) = cursor;
            } else {
                own = cursor;
            }
            spent += looked.elapsed().as_nanos() as u64;
            assert!((extent.page..extent.end()).contains(&page), "it is the page's extent");
            let (bytes, at) = (page_buffer.bytes(), u64::from(page) * PAGE_BYTES as u64);
            match way {
                Way::Out => file.write_all_at(bytes, at)?,
                Way::In => file.read_exact_at(bytes, at)?,
            }
        }
        lookup_ns.fetch_add(spent, Ordering::Relaxed);
        Ok(())
    };
    std::thread::scope(|scope| {
        let apart = pages / tasks;
        let start = |number| scope.spawn(move || task(number * apart, (PAGES / tasks).min(apart)));
        let threads: Vec<_> = (0..tasks).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a task does not panic"))
    })?;
    Ok(Time { ns: begun.elapsed().as_nanos() as u64, lookup_ns: lookup_ns.load(Ordering::Relaxed) })
}

/// Nothing is left half done by who panics.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page's room, as direct I/O wants it.
struct Aligned {
    bytes: Vec<u8>,
    at: usize,
}

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0x5a; 2 * PAGE_BYTES];
        let at = bytes.as_ptr().align_offset(PAGE_BYTES);
        Aligned { bytes, at }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.at + PAGE_BYTES]
    }
}
