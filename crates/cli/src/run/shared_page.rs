//! The launcher's end of the memory that it shares with the agents: a memfd that it writes the
//! configuration into and reads the counters from.
//!
//! The launcher never maps it: it reads and writes the file at the offsets of the fields, so that
//! nothing another process does to the memory can be undefined behaviour here. The descriptor
//! closes on exec; agents reach it by way of `/proc/PID/fd/FD`, or ask the launcher for it
//! ([`mod@crate::run::launch::door`]).

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};
use overspill_engine::orders::{ORDER_BYTES, ORDERS, Order, Orders};
use overspill_engine::shared::{
    Config, Counters, ENV, LATENCY_BUCKETS, MAGIC, PATH_MAX, PLACES_MAX, PROCESSES, Process, Shared, Tree,
    VERSION, flags,
};
use overspill_engine::trace;
use overspill_sys::procfs;

use crate::histogram::Histogram;
use crate::run::common::lending::Lent;
use crate::run::tree::descendants::Look;

/// Counters that are levels, not sums: added up over processes they would mean nothing.
pub const LEVELS: [&str; 23] = [
    "files_kept_resident_bytes",
    "files_unseen_bytes",
    "files_unseen_peak_bytes",
    "fixed_bytes",
    "rss_peak_bytes",
    "pool_peak_bytes",
    "resident_bytes",
    "resident_peak_bytes",
    "own_peak_bytes",
    "resident_sum_bytes",
    "resident_samples",
    "swap_used_bytes",
    "swap_peak_bytes",
    "needed_bytes",
    "needed_peak_bytes",
    "blank_bytes",
    "inherited_bytes",
    "inherited_gone_bytes",
    "copied_bytes",
    "stored_pages",
    "needed_most_peak_bytes",
    "budget_sum_bytes",
    "budget_samples",
];
/// Of the levels, those of which means are made.
const MEANS: [&str; 4] = ["resident_sum_bytes", "resident_samples", "budget_sum_bytes", "budget_samples"];

/// Who has less than this part of the budget is in nobody's way.
const CROWDED_SHARE: u64 = 64;

/// What the launcher tells the agents: the fields of [`Config`] that vary.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Settings<'a> {
    /// The budget.
    pub ram_bytes: u64,
    /// Bound of the swap area; 0 = none.
    pub swap_bytes_max: u64,
    /// `--page-cluster`; `u32::MAX` = not given.
    pub page_cluster: u32,
    /// Bits of [`overspill_engine::shared::flags`].
    pub flags: u32,
    /// Number of the read-ahead policy.
    pub readahead: u32,
    /// Number of the reclaim policy.
    pub reclaim: u32,
    /// `--max-pool-percent`.
    pub max_pool_percent: u32,
    /// `--files`: the least of a mapping that is managed; 0: none is.
    pub files_min_bytes: u64,
    /// The places to spill to, as `SwapPlace::encode` writes them.
    pub swap_places: Cow<'a, [u8]>,
    /// The agent, as LD_PRELOAD names it.
    pub agent_path: Cow<'a, [u8]>,
}

/// What an agent has reported.
#[derive(Clone, Debug)]
pub struct Report {
    /// Index of its place.
    pub place: usize,
    /// How often the place had been claimed.
    pub generation: u32,
    /// The process.
    pub pid: u32,
    /// Tells its program from others that the process ran; with the next, where that is known.
    pub program_pages: u32,
    /// See [`Look::program_stamp`].
    pub program_stamp: u64,
    /// Its name.
    pub name: String,
    /// What it has of the tree's budget, and the limit that it was given.
    pub share_bytes: u64,
    /// See there; 0: none.
    pub limit_bytes: u64,
    /// What its parent counts of what it holds, and what of that it has still: see [`Process`].
    pub loan: u64,
    /// What it lends: see there.
    pub lent: u64,
    /// Its faults that may have made copies, if it has told.
    pub copying_faults: Option<u32>,
    /// See there.
    pub borrowed_bytes: u64,
    /// Whoever is a child of it was made by it.
    pub adopts_nobody: bool,
    /// A thread of it waits for the process's turn, which it has not before then.
    pub is_held: bool,
    /// See there; on the monotonic clock.
    pub held_until_ns: u64,
    /// The process has become another program by exec.
    pub is_over: bool,
    /// A value of [`overspill_engine::shared::state`].
    pub state: u32,
    /// Bits of [`overspill_engine::shared::events`].
    pub events: u32,
    /// Bits of [`overspill_engine::shared::paths`].
    pub paths: u32,
    /// errno behind its failure.
    pub error: u32,
    /// The step that failed.
    pub error_step: u32,
    /// See [`Process`].
    pub orders_followed: u32,
    /// See there.
    pub orders_refused: u32,
    /// See there.
    pub orders_open: u32,
    /// See there.
    pub orders_waiting: u32,
    /// See there.
    pub pages_left: [u32; ORDERS],
    /// Every counter by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Latency of soft faults.
    pub soft: Histogram,
    /// Latency of major faults.
    pub major: Histogram,
}

impl Report {
    /// Which claim of which place it is.
    pub fn claim(&self) -> (usize, u32) {
        (self.place, self.generation)
    }

    /// Nothing yet, of such a program.
    #[cfg(test)]
    pub fn empty(place: usize, generation: u32, pid: u32, program_pages: u32) -> Report {
        let bytes = vec![0; size_of::<Process>()];
        Report { generation, pid, program_pages, ..report(place, &Fields(&bytes)) }
    }

    /// Adds what another one reported: both are over. Of levels the higher one counts; what means
    /// are made of is added up.
    ///
    /// *The story:* of a build with more programs than are kept one by one the peaks of the others
    /// were added up: it "went above the budget, to 60 GiB".
    pub fn add(&mut self, other: &Report) {
        self.events |= other.events;
        self.paths |= other.paths;
        for ((name, sum), (_, value)) in self.counters.iter_mut().zip(&other.counters) {
            let is_level = LEVELS.contains(name) && !MEANS.contains(name);
            *sum = if is_level { (*sum).max(*value) } else { *sum + value };
        }
        self.soft.add(&other.soft);
        self.major.add(&other.major);
    }

    /// Is it of the program that the process runs now? *The story* (by reading): a child of a shell that
    /// became a static program went on being taken for managed, and nobody counted its 500 MiB. *The other
    /// story:* one whose code was as large as that of the program before it was taken for that one.
    pub fn is_of(&self, look: &Look) -> bool {
        self.pid == look.pid && look.runs(self.program_pages, self.program_stamp)
    }

    /// Does the process go on?
    pub fn lives(&self) -> bool {
        !self.is_over && Path::new("/proc").join(self.pid.to_string()).exists()
    }

    /// A counter by name.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.counters.iter().find(|(own, _)| *own == name);
        found.expect("counters are asked for by the names that shared.rs declares").1
    }

    /// A counter of bytes, less what counts with the process's parent.
    pub fn own_bytes(&self, name: &str) -> u64 {
        self.counter(name).saturating_sub(self.borrowed_bytes)
    }

    /// How many have, or could copy, more than a small part of the budget.
    pub fn crowd(reports: &[Report], ram_bytes: u64) -> u32 {
        let bytes = |report: &Report| report.share_bytes + report.borrowed_bytes;
        let count = reports.iter().filter(|report| bytes(report) > ram_bytes / CROWDED_SHARE).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// The shared memory.
pub struct SharedPage {
    file: File,
    origin: Origin,
    token: u64,
}

/// Where it is with the launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The launcher's number, and the descriptor's.
    pub launcher: u32,
    /// See there.
    pub descriptor: u32,
}

impl Origin {
    /// Both as one word.
    pub fn word(self) -> u64 {
        u64::from(self.launcher) << 32 | u64::from(self.descriptor)
    }

    /// Of that word.
    pub fn of(word: u64) -> Origin {
        Origin { launcher: (word >> 32) as u32, descriptor: word as u32 }
    }
}

impl AsFd for SharedPage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl SharedPage {
    /// Makes the memory and writes the configuration into it.
    pub fn new(settings: &Settings<'_>) -> io::Result<SharedPage> {
        let memfd: OwnedFd = memfd_create(c"overspill", MFdFlags::MFD_CLOEXEC)?;
        let file = File::from(crate::os::inherit::moved_up(memfd));
        let traces = settings.flags & flags::TRACE != 0;
        file.set_len(if traces { trace::ring_offset(PROCESSES) } else { size_of::<Shared>() } as u64)?;
        let token = overspill_sys::random::unpredictable();
        file.write_all_at(&config_bytes(settings, token)?, offset_of!(Shared, config) as u64)?;
        let origin = Origin { launcher: std::process::id(), descriptor: file.as_raw_fd() as u32 };
        let page = SharedPage { file, origin, token };
        page.set_launcher_bytes(settings.ram_bytes.cast_signed())?;
        Ok(page)
    }

    /// The memory of another launcher, by its [`SharedPage::address`].
    pub fn open(address: &str) -> io::Result<SharedPage> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let mut words = address.split(':');
        let mut number =
            |radix| words.next().and_then(|word| u64::from_str_radix(word, radix).ok()).ok_or_else(invalid);
        let (launcher, descriptor, token) = (number(10)?, number(10)?, number(16)?);
        let origin = Origin { launcher: launcher as u32, descriptor: descriptor as u32 };
        Ok(SharedPage { file: File::open(format!("/proc/{launcher}/fd/{descriptor}"))?, origin, token })
    }

    /// The same, if it is of this version's layout.
    pub fn at(address: &str) -> Option<SharedPage> {
        let SharedPage { file, origin, token } = SharedPage::open(address).ok()?;
        // A launcher's number may be another launcher's by now.
        SharedPage::handed(file, origin).filter(|page| page.token == token)
    }

    /// The memory of another launcher, if the file is of this version's layout: only to be read.
    pub fn of(file: File) -> Option<SharedPage> {
        SharedPage::handed(file, Origin::default())
    }

    /// The memory of a launcher that has handed it over, if the file is of this version's layout.
    pub fn handed(file: File, origin: Origin) -> Option<SharedPage> {
        let page = SharedPage { file, origin, token: 0 };
        let number = |offset: usize, bytes: &mut [u8]| {
            page.file.read_exact_at(bytes, (offset_of!(Shared, config) + offset) as u64)
        };
        let (mut magic, mut version, mut token) = ([0; 8], [0; 4], [0; 8]);
        number(offset_of!(Config, magic), &mut magic).ok()?;
        number(offset_of!(Config, version), &mut version).ok()?;
        number(offset_of!(Config, token), &mut token).ok()?;
        let is_known = u64::from_ne_bytes(magic) == MAGIC && u32::from_ne_bytes(version) == VERSION;
        is_known.then_some(SharedPage { token: u64::from_ne_bytes(token), ..page })
    }

    /// Where it is with the launcher.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The value of [`overspill_engine::shared::ENV`] that leads the agents here.
    pub fn address(&self) -> String {
        let filters = procfs::Fields::of_process().ok().and_then(|fields| fields.number("Seccomp_filters"));
        format!("{}{}", self.place(), filters.unwrap_or(0))
    }

    /// What no other run's address begins with.
    fn place(&self) -> String {
        let (Origin { launcher, descriptor }, token) = (self.origin, self.token);
        format!("{launcher}:{descriptor}:{token:016x}:")
    }

    /// What the variable begins with that all of the run are started with.
    pub fn mark(&self) -> Vec<u8> {
        format!("{ENV}={}", self.place()).into_bytes()
    }

    /// What the address ends with.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The memory, for whoever drains the rings in it.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The memory, to be handed over.
    pub fn descriptor(&self) -> Result<overspill_sys::Fd, overspill_sys::Errno> {
        overspill_sys::file::open_of_process(std::process::id(), self.file.as_raw_fd() as u32)
    }

    /// What the launcher told.
    pub fn settings(&self) -> io::Result<Settings<'static>> {
        let mut bytes = vec![0; size_of::<Config>()];
        self.file.read_exact_at(&mut bytes, offset_of!(Shared, config) as u64)?;
        let places = &bytes[offset_of!(Config, swap_places)..][..PLACES_MAX];
        // Each path ends with a NUL, and nothing follows the last.
        let end = places.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 2);
        let places = &places[..end];
        let fields = Fields(&bytes);
        Ok(Settings {
            ram_bytes: fields.u64(offset_of!(Config, ram_bytes)),
            swap_bytes_max: fields.u64(offset_of!(Config, swap_bytes_max)),
            page_cluster: fields.u32(offset_of!(Config, page_cluster)),
            flags: fields.u32(offset_of!(Config, flags)),
            readahead: fields.u32(offset_of!(Config, readahead)),
            reclaim: fields.u32(offset_of!(Config, reclaim)),
            max_pool_percent: fields.u32(offset_of!(Config, max_pool_percent)),
            files_min_bytes: fields.u64(offset_of!(Config, files_min_bytes)),
            swap_places: Cow::Owned(places.to_vec()),
            agent_path: Cow::default(),
        })
    }

    /// Gives an order to the run's processes: its text, and its number.
    pub fn give_order(&self, text: &[u8]) -> io::Result<u32> {
        self.file.lock()?;
        let given = self.write_order(text);
        self.file.unlock()?;
        given
    }

    fn write_order(&self, text: &[u8]) -> io::Result<u32> {
        let at = |field: usize| (offset_of!(Shared, orders) + field) as u64;
        let mut count = [0; 4];
        self.file.read_exact_at(&mut count, at(offset_of!(Orders, count)))?;
        let index = u32::from_ne_bytes(count);
        if index as usize >= ORDERS || text.len() > ORDER_BYTES {
            return Err(io::Error::other("the run has been given as many orders as it can be"));
        }
        let place = offset_of!(Orders, texts) + index as usize * ORDER_BYTES;
        self.file.write_all_at(text, at(place))?;
        // Only now: what is counted is complete.
        self.file.write_all_at(&(index + 1).to_ne_bytes(), at(offset_of!(Orders, count)))?;
        Ok(index)
    }

    /// What stands at a place in the memory.
    pub fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        self.file.read_exact_at(bytes, at as u64)
    }

    /// Changes it.
    pub fn write_at(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        self.file.write_all_at(bytes, at as u64)
    }

    /// The orders that were given; None: one is malformed.
    pub fn orders(&self) -> io::Result<Vec<Option<Order>>> {
        let mut bytes = vec![0; size_of::<Orders>()];
        self.file.read_exact_at(&mut bytes, offset_of!(Shared, orders) as u64)?;
        let count = Fields(&bytes).u32(offset_of!(Orders, count)) as usize;
        let texts = bytes[offset_of!(Orders, texts)..].chunks_exact(ORDER_BYTES);
        Ok(texts.take(count).map(Order::decode).collect())
    }

    /// How many places were ever claimed.
    pub fn places_used(&self) -> io::Result<usize> {
        let mut bytes = [0; 4];
        let at = offset_of!(Shared, tree) + offset_of!(Tree, places_used);
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok((u32::from_ne_bytes(bytes) as usize).min(PROCESSES))
    }

    /// What agents have reported so far, for every place that is claimed.
    pub fn reports(&self) -> io::Result<Vec<Report>> {
        let mut bytes = vec![0; size_of::<Process>() * self.places_used()?];
        self.file.read_exact_at(&mut bytes, offset_of!(Shared, processes) as u64)?;
        let reports = bytes.chunks_exact(size_of::<Process>()).enumerate();
        let claimed =
            reports.map(|(place, bytes)| (place, Fields(bytes))).filter(|(_, fields)| is_claimed(fields));
        Ok(claimed.map(|(place, fields)| report(place, &fields)).collect())
    }

    /// The share of who reported, as it is now; nothing if somebody else has the place.
    ///
    /// *The story:* a process took some of the budget after its report was read, and ended before
    /// it was asked whether it lives. What it had taken was nobody's for the rest of the run.
    pub fn share_bytes(&self, report: &Report) -> io::Result<u64> {
        // One read for both: a share that was read apart from its generation may be the next one's.
        let mut bytes = [0; size_of::<Process>()];
        self.file.read_exact_at(&mut bytes, at_of(report.place, 0))?;
        let fields = Fields(&bytes);
        let is_its = fields.u32(offset_of!(Process, generation)) == report.generation;
        Ok(if is_its { fields.u64(offset_of!(Process, share_bytes)) } else { 0 })
    }

    /// Bytes of the budget that nobody has.
    pub fn free_bytes(&self) -> io::Result<i64> {
        let mut bytes = [0; size_of::<Tree>()];
        self.file.read_exact_at(&mut bytes, offset_of!(Shared, tree) as u64)?;
        let fields = Fields(&bytes);
        let of = |field| fields.u64(field).cast_signed();
        Ok(of(offset_of!(Tree, pool_bytes)) + of(offset_of!(Tree, launcher_bytes)))
    }

    /// What ended processes had of the budget: the launcher tells it, for whoever comes after it.
    pub fn returned_bytes(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let at = offset_of!(Shared, tree) + offset_of!(Tree, returned_bytes);
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// See there.
    pub fn set_returned_bytes(&self, bytes: u64) -> io::Result<()> {
        self.put_to_tree(offset_of!(Tree, returned_bytes), &bytes.to_ne_bytes())
    }

    /// Sets the launcher's part of the pool.
    pub fn set_launcher_bytes(&self, bytes: i64) -> io::Result<()> {
        self.put_to_tree(offset_of!(Tree, launcher_bytes), &bytes.to_ne_bytes())
    }

    /// Says how many processes of some size there are.
    pub fn set_crowded(&self, count: u32) -> io::Result<()> {
        self.put_to_tree(offset_of!(Tree, crowded), &count.to_ne_bytes())
    }

    /// Says which process has started this one, or has taken its place since.
    pub fn set_starter(&self, pid: u32) -> io::Result<()> {
        self.put_to_tree(offset_of!(Tree, starter), &pid.to_ne_bytes())
    }

    /// Where the command says which process it is.
    pub fn command_at() -> i64 {
        (offset_of!(Shared, tree) + offset_of!(Tree, command)) as i64
    }

    /// Until then, on the monotonic clock, agents take the memory cgroup for full.
    pub fn set_group_full_until(&self, until_ns: u64) -> io::Result<()> {
        self.put_to_tree(offset_of!(Tree, group_full_until_ns), &until_ns.to_ne_bytes())
    }

    /// Limits the share of a process; 0: not at all.
    pub fn set_limit(&self, claim: (usize, u32), bytes: u64) -> io::Result<()> {
        self.put_to(claim, offset_of!(Process, limit_bytes), &bytes.to_ne_bytes())
    }

    /// Lends a process so much of its parent's memory, as [`overspill_engine::shared::Loan`] has it.
    pub fn lend(&self, claim: (usize, u32), word: u64) -> io::Result<()> {
        self.put_to(claim, offset_of!(Process, loan), &word.to_ne_bytes())
    }

    /// What each process lends to its children, if anything.
    pub fn note_lent(&self, managed: &[Report], lent: &Lent) -> io::Result<()> {
        for report in managed {
            let (word, heirs) =
                lent.get(&report.pid).map_or((0, 0), |lends| (lends.most.word(), lends.heirs));
            if word != report.lent {
                self.put_to(report.claim(), offset_of!(Process, heirs), &heirs.to_ne_bytes())?;
                self.put_to(report.claim(), offset_of!(Process, lent), &word.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// A process has no turn until then, on the monotonic clock; 0: it has.
    pub fn hold(&self, claim: (usize, u32), until_ns: u64) -> io::Result<()> {
        self.put_to(claim, offset_of!(Process, held_until_ns), &until_ns.to_ne_bytes())
    }

    /// Lets others have a place whose process has ended, unless somebody has it already.
    pub fn release(&self, (place, generation): (usize, u32)) -> io::Result<()> {
        assert!(place < PROCESSES);
        self.put(place, offset_of!(Process, kept), &generation.to_ne_bytes())
    }

    /// A word for one claim of a place. Who has the place since, or is about to, is told nothing: its
    /// memory is not what the word is about, and a child of fork begins with a word of its own.
    fn put_to(&self, (place, generation): (usize, u32), field: usize, bytes: &[u8]) -> io::Result<()> {
        assert!(place < PROCESSES);
        let mut now = [0; 4];
        self.file.read_exact_at(&mut now, at_of(place, offset_of!(Process, generation)))?;
        if u32::from_ne_bytes(now) == generation { self.put(place, field, bytes) } else { Ok(()) }
    }

    fn put_to_tree(&self, field: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, (offset_of!(Shared, tree) + field) as u64)
    }

    fn put(&self, place: usize, field: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at_of(place, field))
    }
}

/// Where a field of a place is.
fn at_of(place: usize, field: usize) -> u64 {
    (offset_of!(Shared, processes) + place * size_of::<Process>() + field) as u64
}

fn config_bytes(settings: &Settings<'_>, token: u64) -> io::Result<Vec<u8>> {
    if settings.swap_places.len() >= PLACES_MAX {
        let len = settings.swap_places.len();
        let what =
            format!("the places of --swap take {len} bytes with their names, {PLACES_MAX} is too many");
        return Err(io::Error::other(what));
    }
    if settings.agent_path.len() >= PATH_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    let mut bytes = vec![0; size_of::<Config>()];
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(offset_of!(Config, magic), &MAGIC.to_ne_bytes());
    put(offset_of!(Config, version), &VERSION.to_ne_bytes());
    put(offset_of!(Config, page_cluster), &settings.page_cluster.to_ne_bytes());
    put(offset_of!(Config, ram_bytes), &settings.ram_bytes.to_ne_bytes());
    put(offset_of!(Config, swap_bytes_max), &settings.swap_bytes_max.to_ne_bytes());
    put(offset_of!(Config, flags), &settings.flags.to_ne_bytes());
    put(offset_of!(Config, readahead), &settings.readahead.to_ne_bytes());
    put(offset_of!(Config, reclaim), &settings.reclaim.to_ne_bytes());
    put(offset_of!(Config, max_pool_percent), &settings.max_pool_percent.to_ne_bytes());
    put(offset_of!(Config, files_min_bytes), &settings.files_min_bytes.to_ne_bytes());
    put(offset_of!(Config, token), &token.to_ne_bytes());
    put(offset_of!(Config, swap_places), &settings.swap_places);
    put(offset_of!(Config, agent_path), &settings.agent_path);
    Ok(bytes)
}

/// The bytes of a structure.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    /// The number there.
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().expect("four bytes were cut"))
    }

    /// The number there.
    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.0[offset..offset + 8].try_into().expect("eight bytes were cut"))
    }

    fn histogram(&self, offset: usize) -> Histogram {
        let mut counts = [0; LATENCY_BUCKETS];
        counts.iter_mut().enumerate().for_each(|(index, count)| *count = self.u64(offset + index * 8));
        Histogram::from_counts(counts)
    }
}

/// Has somebody the place, and filled it?
fn is_claimed(fields: &Fields<'_>) -> bool {
    let generation = fields.u32(offset_of!(Process, generation));
    generation.is_multiple_of(2) && generation != fields.u32(offset_of!(Process, kept))
}

fn report(place: usize, fields: &Fields<'_>) -> Report {
    // The counters are one u64 after another; their names come in the same order from an empty set
    // of them.
    let counters = Counters::default();
    let names = counters.each().map(|(name, _)| name);
    let offset = offset_of!(Process, counters);
    let name = &fields.0[offset_of!(Process, name)..][..16];
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Report {
        place,
        generation: fields.u32(offset_of!(Process, generation)),
        program_pages: fields.u32(offset_of!(Process, program_pages)),
        program_stamp: fields.u64(offset_of!(Process, program_stamp)),
        share_bytes: fields.u64(offset_of!(Process, share_bytes)),
        loan: fields.u64(offset_of!(Process, loan)),
        lent: fields.u64(offset_of!(Process, lent)),
        copying_faults: Some(fields.u64(offset_of!(Process, copying_faults)))
            .filter(|&word| word != 0)
            .map(|word| word as u32),
        borrowed_bytes: fields.u64(offset_of!(Process, borrowed_bytes)),
        limit_bytes: fields.u64(offset_of!(Process, limit_bytes)),
        held_until_ns: fields.u64(offset_of!(Process, held_until_ns)),
        is_held: fields.u32(offset_of!(Process, is_held)) != 0,
        adopts_nobody: fields.u32(offset_of!(Process, adopts_nobody)) != 0,
        is_over: fields.u32(offset_of!(Process, is_over)) != 0,
        name: String::from_utf8_lossy(name).into_owned(),
        pid: fields.u32(offset_of!(Process, pid)),
        state: fields.u32(offset_of!(Process, state)),
        events: fields.u32(offset_of!(Process, events)),
        paths: fields.u32(offset_of!(Process, paths)),
        error: fields.u32(offset_of!(Process, error)),
        error_step: fields.u32(offset_of!(Process, error_step)),
        orders_followed: fields.u32(offset_of!(Process, orders_followed)),
        orders_refused: fields.u32(offset_of!(Process, orders_refused)),
        orders_open: fields.u32(offset_of!(Process, orders_open)),
        orders_waiting: fields.u32(offset_of!(Process, orders_waiting)),
        pages_left: std::array::from_fn(|order| fields.u32(offset_of!(Process, pages_left) + order * 4)),
        counters: names.enumerate().map(|(index, name)| (name, fields.u64(offset + index * 8))).collect(),
        soft: fields.histogram(offset_of!(Process, soft_latency)),
        major: fields.histogram(offset_of!(Process, major_latency)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_engine::shared::state;

    const SETTINGS: Settings<'static> = Settings {
        ram_bytes: 100 << 20,
        swap_bytes_max: 0,
        page_cluster: 3,
        flags: 5,
        readahead: 1,
        reclaim: 2,
        max_pool_percent: 40,
        files_min_bytes: 77,
        swap_places: Cow::Borrowed(b"d0:0:/var/tmp\0"),
        agent_path: Cow::Borrowed(b""),
    };

    #[test]
    fn an_unclaimed_page_reports_nothing() {
        assert!(SharedPage::new(&SETTINGS).unwrap().reports().unwrap().is_empty());
    }

    #[test]
    fn the_configuration_stands_where_agents_look_for_it() {
        let page = SharedPage::new(&SETTINGS).unwrap();
        let mut bytes = vec![0; size_of::<Config>()];
        page.file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..8], b"OVRSPILL");
        assert!(bytes.ends_with(&[0]));
        let places = offset_of!(Config, swap_places);
        assert_eq!(&bytes[places..places + 14], b"d0:0:/var/tmp\0");
        assert_eq!(Fields(&bytes).u64(offset_of!(Config, ram_bytes)), 100 << 20);
        assert_eq!(page.settings().unwrap(), SETTINGS);
    }

    #[test]
    fn a_claimed_slot_is_read_back_by_name() {
        let page = SharedPage::new(&SETTINGS).unwrap();
        let slot = (offset_of!(Shared, processes) + size_of::<Process>() * 2) as u64;
        let put = |offset: usize, value: &[u8]| page.file.write_all_at(value, slot + offset as u64).unwrap();
        let used = (offset_of!(Shared, tree) + offset_of!(Tree, places_used)) as u64;
        page.file.write_all_at(&3u32.to_ne_bytes(), used).unwrap();
        put(offset_of!(Process, state), &state::MANAGING.to_ne_bytes());
        put(offset_of!(Process, generation), &3u32.to_ne_bytes());
        assert!(page.reports().unwrap().is_empty(), "it is being claimed");
        put(offset_of!(Process, generation), &4u32.to_ne_bytes());
        put(offset_of!(Process, name), b"sort");
        put(offset_of!(Process, pid), &77u32.to_ne_bytes());
        put(offset_of!(Process, counters) + offset_of!(Counters, pswpin), &123u64.to_ne_bytes());
        put(offset_of!(Process, major_latency) + 80, &9u64.to_ne_bytes());
        let reports = SharedPage::open(&page.address()).unwrap().reports().unwrap();
        assert!(SharedPage::open("1").is_err() && SharedPage::open("x:3").is_err());
        assert_eq!((reports.len(), reports[0].place, reports[0].name.as_str()), (1, 2, "sort"));
        assert_eq!(
            (reports[0].pid, reports[0].counter("pswpin"), reports[0].counter("pswpout")),
            (77, 123, 0)
        );
        assert_eq!(reports[0].major.latency().count, 9);
        page.release((2, 2)).unwrap();
        assert_eq!(page.reports().unwrap().len(), 1, "that was another one");
        page.release(reports[0].claim()).unwrap();
        assert!(page.reports().unwrap().is_empty());
    }

    /// See [`SharedPage::share_bytes`].
    #[test]
    fn a_share_is_what_it_was_at_the_end() {
        let page = SharedPage::new(&SETTINGS).unwrap();
        let put = |field, bytes: &[u8]| page.put(1, field, bytes).unwrap();
        let used = (offset_of!(Shared, tree) + offset_of!(Tree, places_used)) as u64;
        page.file.write_all_at(&2u32.to_ne_bytes(), used).unwrap();
        put(offset_of!(Process, generation), &2u32.to_ne_bytes());
        put(offset_of!(Process, share_bytes), &5u64.to_ne_bytes());
        let report = page.reports().unwrap().remove(0);
        put(offset_of!(Process, share_bytes), &9u64.to_ne_bytes());
        assert_eq!((report.share_bytes, page.share_bytes(&report).unwrap()), (5, 9));
        put(offset_of!(Process, generation), &4u32.to_ne_bytes());
        assert_eq!(page.share_bytes(&report).unwrap(), 0, "another process has the place");
    }

    /// See [`SharedPage::put_to`].
    #[test]
    fn a_word_is_for_one_claim_of_a_place() {
        let page = SharedPage::new(&SETTINGS).unwrap();
        let used = (offset_of!(Shared, tree) + offset_of!(Tree, places_used)) as u64;
        page.file.write_all_at(&2u32.to_ne_bytes(), used).unwrap();
        let tell = |bytes: u64| {
            page.set_limit((1, 2), bytes).unwrap();
            page.hold((1, 2), bytes).unwrap();
            let report = page.reports().unwrap().pop();
            report.map(|report| [report.limit_bytes, report.held_until_ns])
        };
        let claim = |generation: u32| {
            page.put(1, offset_of!(Process, generation), &generation.to_ne_bytes()).unwrap();
        };
        claim(2);
        assert_eq!(tell(8 << 12), Some([8 << 12; 2]));
        claim(3);
        assert_eq!(tell(9 << 12), None, "somebody claims it");
        claim(4);
        assert_eq!(tell(7 << 12), Some([8 << 12; 2]), "another process has the place");
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        let path = [b'a'; PLACES_MAX];
        assert!(SharedPage::new(&Settings { swap_places: Cow::Borrowed(&path), ..SETTINGS }).is_err());
    }
}
