//! The page of memory that the launcher and every agent share: configuration one way, counters the other.
//!
//! The launcher makes it in a memfd; an agent finds it by the variable [`ENV`], as
//! `/proc/PID/fd/FD` or by asking the launcher's socket ([`socket_name`]), and maps it, so no file
//! has a name and nothing is left behind when anybody is killed. All fields are plain integers or
//! atomics: any bit pattern is valid, and a torn read of a statistic is harmless.
//!
//! Process ids in here are those of the launcher's pid namespace: a process in another one knows
//! itself by another number.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use crate::claims;
use crate::orders::{ORDERS, Orders};
use crate::raised::Raised;
use crate::spill::Spill;

/// Environment variable that leads an agent to the shared page: `<launcher
/// pid>:<descriptor>:<token>:<filters>`, the token in hexadecimal, and how many seccomp filters the
/// launcher is behind.
pub const ENV: &str = "OVERSPILL_RUN";
/// Name of the launcher's abstract socket, without the token that follows in hexadecimal.
pub const SOCKET_PREFIX: &str = "overspill-";
const CUSTODY_PREFIX: &str = "overspill-custody-";
/// The same two sockets as files, in the directory of the agent's library.
pub const SOCKET_FILE: &str = "door";
/// See there.
pub const CUSTODY_FILE: &str = "custody";
/// The library's own name.
pub const LIBRARY: &str = "liboverspill_preload.so";
/// What the launcher hands over to whoever comes to its socket: the kinds of its letters, in this order.
pub mod letters {
    /// The shared page; the value is the process's id in the launcher's pid namespace.
    pub const PAGE: u64 = 1;
    /// /dev/userfaultfd.
    pub const DEVICE: u64 = 2;
    /// A file without a name to page to; the value is the index of its place.
    pub const SWAP: u64 = 3;
    /// A /proc that is mounted nowhere.
    pub const PROC: u64 = 7;
    /// The page map of whoever asks.
    pub const PAGEMAP: u64 = 8;
    /// That was all.
    pub const END: u64 = 4;

    /// An agent's, at the other socket: the userfaultfd of its memory, to be kept; the value is the address
    /// of a page of that memory that nobody ever fills.
    pub const ENTRUSTED: u64 = 5;
    /// It need not be kept any more: nothing is out.
    pub const TAKEN_BACK: u64 = 6;
}

/// The name of the launcher's socket.
#[must_use]
pub fn socket_name(token: u64) -> [u8; SOCKET_PREFIX.len() + 16] {
    named(SOCKET_PREFIX, token)
}

/// The name of the socket at which it takes descriptors into custody.
#[must_use]
pub fn custody_name(token: u64) -> [u8; CUSTODY_PREFIX.len() + 16] {
    named(CUSTODY_PREFIX, token)
}

fn named<const LEN: usize>(prefix: &str, token: u64) -> [u8; LEN] {
    let mut name = [0; LEN];
    let (first, digits) = name.split_at_mut(prefix.len());
    first.copy_from_slice(prefix.as_bytes());
    digits.copy_from_slice(&hexadecimal(token));
    name
}

/// All sixteen digits.
#[must_use]
pub fn hexadecimal(number: u64) -> [u8; 16] {
    core::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15])
}

/// First bytes of the page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"OVRSPILL");
/// Changes whenever the layout does; launcher and agent are built together and must agree.
pub const VERSION: u32 = 30;
/// Processes that can report at a time; the launcher keeps what ended ones reported, and their
/// places are used again.
pub const PROCESSES: usize = 512;
/// Buckets of the fault latency histogram: bucket i counts latencies in [2^(i/4), 2^((i+1)/4)) ns,
/// roughly: see [`latency_bucket`].
pub const LATENCY_BUCKETS: usize = 128;
/// Longest path of the agent, with its final NUL.
pub const PATH_MAX: usize = 1024;
/// Room for the places that memory spills to, as [`crate::SwapPlace::encode`] writes them, with a
/// final NUL.
pub const PLACES_MAX: usize = 4096;

/// What the user asked for; written by the launcher before the program starts, never changed.
#[repr(C)]
pub struct Config {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// log2 of the largest read-ahead window of the kernel's rules (`--page-cluster`); `u32::MAX` =
    /// not given.
    pub page_cluster: u32,
    /// The budget in bytes.
    pub ram_bytes: u64,
    /// Upper bound of the swap area in bytes; 0 = as much as the file system gives.
    pub swap_bytes_max: u64,
    /// Bit set of [`flags`].
    pub flags: u32,
    /// Read-ahead policy: a discriminant of `overspill_engine::ReadAhead`.
    pub readahead: u32,
    /// Reclaim policy: an index into `overspill_mm::reclaim::policy::NAMES`.
    pub reclaim: u32,
    /// Most that the compressed pool may take of the budget, in percent (`--max-pool-percent`).
    pub max_pool_percent: u32,
    /// Mappings of files of at least so many bytes are managed (`--files`); 0: none are.
    pub files_min_bytes: u64,
    /// What the launcher's variable names, too: tells this page from that of another run.
    pub token: u64,
    /// Where memory spills to (`--swap`): [`crate::SwapPlace::encode`].
    pub swap_places: [u8; PLACES_MAX],
    /// NUL-terminated path of the agent, as LD_PRELOAD names it.
    pub agent_path: [u8; PATH_MAX],
}

/// Bits of [`Config::flags`].
pub mod flags {
    /// End the program when swap is full (`--strict`), with [`super::state::STRICT_FULL`] as the reason.
    pub const STRICT: u32 = 1 << 0;
    /// Use the write-protect + write + drop sequence even where the kernel has UFFDIO_MOVE.
    pub const NO_MOVE: u32 = 1 << 1;
    /// Use pread/pwrite threads even where io_uring works.
    pub const NO_URING: u32 = 1 << 2;
    /// What comes back from swap is believed (`--no-checksum`).
    pub const NO_CHECKSUM: u32 = 1 << 3;
    /// No warnings on stderr from the agent (`-q`).
    pub const QUIET: u32 = 1 << 4;
    /// A ring for [`crate::trace`] follows this structure for each process (`--trace`).
    pub const TRACE: u32 = 1 << 5;
    /// Idle processors may be kept awake while the program waits for pages (`--idle`).
    pub const POLL_IDLE: u32 = 1 << 6;
    /// The compressed pool may have all of its share from the start (`--fixed-pool`).
    pub const FIXED_POOL: u32 = 1 << 7;
    /// The budget is each process's, not the tree's (`--per-process`).
    pub const PER_PROCESS: u32 = 1 << 8;
    /// Stop the program when swap is full (`--on-full stop`).
    pub const STOP_WHEN_FULL: u32 = 1 << 9;
    /// Pages are encrypted on their way to swap (`--encrypt`).
    pub const ENCRYPT: u32 = 1 << 10;
}

/// Values of [`Process::state`].
pub mod state {
    /// Never used.
    pub const FREE: u32 = 0;
    /// The agent is there and the program is far below its budget: nothing is managed.
    pub const WATCHING: u32 = 1;
    /// Memory is registered and reclaimed.
    pub const MANAGING: u32 = 2;
    /// The agent gave up (see [`super::Process::error`]); the program runs on without it.
    pub const UNMANAGED: u32 = 3;
    /// The agent ended the program: swap was full under `--strict`.
    pub const STRICT_FULL: u32 = 4;
}

/// Bits of [`Process::events`]: things the summary must mention.
pub mod events {
    /// The swap area is full; the program went on above its budget.
    pub const SWAP_FULL: u32 = 1 << 0;
    /// A write to swap failed; the area was retired; its pages go to another one, or stay in RAM.
    pub const WRITE_ERROR: u32 = 1 << 1;
    /// A read from swap failed; the touching thread got SIGBUS.
    pub const READ_ERROR: u32 = 1 << 2;
    /// The program forked while memory was managed (everything was brought in first).
    pub const FORKED: u32 = 1 << 3;
    /// A page of a mapped file could not be read; the touching thread got SIGBUS.
    pub const FILE_READ_ERROR: u32 = 1 << 4;
    /// With `READ_ERROR`: what came was not what had been written there.
    pub const WRONG_BYTES: u32 = 1 << 5;
    /// Everything was brought in for a search for leaks (LeakSanitizer).
    pub const LEAK_SEARCH: u32 = 1 << 6;
}

/// Bits of [`Process::paths`]: which ways the agent really goes.
pub mod paths {
    /// Pages are moved (UFFDIO_MOVE), not copied.
    pub const MOVE: u32 = 1 << 0;
    /// The device is reached by io_uring, not by threads.
    pub const URING: u32 = 1 << 1;
    /// Idle processors are kept awake while the program waits for pages.
    pub const POLL_IDLE: u32 = 1 << 2;
    /// Pages are encrypted on their way to swap.
    pub const ENCRYPT: u32 = 1 << 3;
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The counters of a process, with the kernel's names where the kernel has the counter.
        #[repr(C)]
        #[derive(Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64),+ }
        impl Counters {
            /// Every counter.
            pub fn numbers(&self) -> impl Iterator<Item = &AtomicU64> + '_ {
                [$(&self.$name),+].into_iter()
            }
            /// Every counter with its name, in declaration order (that of the JSON report).
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), &self.$name)),+]
                    .into_iter()
                    .map(|(name, value)| (name, value.load(core::sync::atomic::Ordering::Relaxed)))
            }
        }
    };
}

counters! {
    /// Faults that reached the pager, soft and major, first touches included.
    pgfault,
    /// Faults that had to read: from swap, or from a mapped file.
    pgmajfault,
    /// Pages read from swap, read-ahead included.
    pswpin,
    /// Pages written to swap.
    pswpout,
    /// Pages brought back from the compressed pool.
    zswpin,
    /// Pages put into the compressed pool.
    zswpout,
    /// Pages written from the compressed pool to swap.
    zswpwb,
    /// Pages read ahead from swap (without the faulting one).
    swap_ra,
    /// Of these, pages that were touched.
    swap_ra_hit,
    /// Of these, pages that were evicted before their first touch.
    swap_ra_unused,
    /// Pages looked at by background reclaim.
    pgscan_kswapd,
    /// Pages freed that background reclaim had looked at.
    pgsteal_kswapd,
    /// Pages looked at on behalf of a waiting fault.
    pgscan_direct,
    /// Pages freed that were looked at on behalf of a waiting fault.
    pgsteal_direct,
    /// Of the pages looked at, those whose bytes are no file's.
    pgscan_anon,
    /// Of the pages looked at, those whose bytes are in a file.
    pgscan_file,
    /// Of the pages freed, those whose bytes are no file's.
    pgsteal_anon,
    /// Of the pages freed, those whose bytes are in a file.
    pgsteal_file,
    /// Faults that had to wait for reclaim.
    allocstall,
    /// Times that room began to be made that no fault waited for.
    pageoutrun,
    /// Pages whose write reclaim began: to the compressed pool or to swap.
    nr_vmscan_write,
    /// Pages that reclaim had evicted and that were read again, by a fault or ahead of one.
    workingset_refault_anon,
    /// The same of pages whose bytes are in a file.
    workingset_refault_file,
    /// Of `workingset_refault_anon`, pages that were active at once.
    workingset_activate_anon,
    /// Of `workingset_refault_file`, pages that were active at once.
    workingset_activate_file,
    /// Of `workingset_activate_anon`, pages that had been active before they left.
    workingset_restore_anon,
    /// Of `workingset_activate_file`, pages that had been active before they left.
    workingset_restore_file,
    /// Pages that moved to the active list.
    pgactivate,
    /// Pages that moved from the active to the inactive list.
    pgdeactivate,
    /// Pages of the active list that were looked at.
    pgrefill,
    /// First touches that were answered with zeroes.
    zero_fill,
    /// All-zero pages that eviction dropped without writing.
    zero_dropped,
    /// Clean pages that eviction dropped without writing, their slot still being valid.
    clean_dropped,
    /// Read requests sent to the device.
    read_ops,
    /// Write requests sent to the device.
    write_ops,
    /// Nanoseconds in which at least one thread of the program waited for a page that was paged
    /// out, whoever read it.
    stalled_ns,
    /// Nanoseconds in which at least one thread waited for the agent at all: first touches and
    /// pages in RAM, too.
    waiting_ns,
    /// Of these, nanoseconds in which the process waited for its turn: see [`crate::turnstile`].
    held_ns,
    /// Nanoseconds of CPU time that the agent used.
    agent_cpu_ns,
    /// What of `agent_cpu_ns` was in the kernel.
    agent_system_ns,
    /// Bytes of anonymous memory resident now (`RssAnon`, agent included), and of files that the kernel
    /// keeps while they fit.
    resident_bytes,
    /// The largest `resident_bytes` seen.
    resident_peak_bytes,
    /// The most of `resident_bytes` that it came to have by what it did, without what a fork left it.
    own_peak_bytes,
    /// The most RAM of any kind that was seen: anonymous, files and shared.
    rss_peak_bytes,
    /// Sum of the samples of `resident_bytes`, for the mean.
    resident_sum_bytes,
    /// Number of the samples in `resident_sum_bytes`.
    resident_samples,
    /// All that the program has, in RAM or paged out, each page once: what it would hold with RAM enough.
    needed_bytes,
    /// The largest `needed_bytes` seen.
    needed_peak_bytes,
    /// Pages that left RAM as zeroes and have not been touched since, nor dropped: with RAM enough they
    /// would be held beside `needed_bytes`.
    blank_bytes,
    /// The most seen of both together.
    needed_most_peak_bytes,
    /// Bytes that a fork left in slots, and that were not stored to since.
    inherited_bytes,
    /// Bytes that have gone of all that lay in slots that kin may know.
    inherited_gone_bytes,
    /// Bytes that a parent or a child has, too, and that were copied only so that they could leave RAM.
    copied_bytes,
    /// Pages that a process that has forked, or was forked, may have stored to: minor faults, and what left
    /// otherwise than it had come. It wraps at 2^32.
    stored_pages,
    /// Anonymous memory that cannot be paged, without the agent's own.
    fixed_bytes,
    /// Bytes in use in the swap area.
    swap_used_bytes,
    /// The largest `swap_used_bytes` seen.
    swap_peak_bytes,
    /// Size of the swap area.
    swap_area_bytes,
    /// The most that the compressed pool took of the budget.
    pool_peak_bytes,
    /// What managed memory may hold when the reserve is at its least (the budget without that and
    /// what is unmanaged), summed over samples, from the first page on that came back.
    budget_sum_bytes,
    /// Number of the samples in `budget_sum_bytes`.
    budget_samples,
    /// Mappings of files that were managed, all told.
    files_managed,
    /// Bytes of those.
    files_managed_bytes,
    /// Pages read from them, read-ahead included.
    files_read,
    /// Of these, pages read ahead (without the faulting one).
    files_ahead,
    /// Of these, pages that were touched.
    files_ahead_hit,
    /// Of these, pages that were evicted before their first touch.
    files_ahead_unused,
    /// What is in RAM of them and was not in the program's view: read where there was room, or ahead; and
    /// frames that hold nothing.
    files_unseen_bytes,
    /// The largest `files_unseen_bytes` seen.
    files_unseen_peak_bytes,
    /// Mappings of files that were left to the kernel as the budget had room for them, all told.
    files_kept,
    /// Their bytes.
    files_kept_bytes,
    /// What of those is in RAM, at most; none of what was managed later.
    files_kept_resident_bytes,
    /// Large mappings of files that were left to the kernel, or given back to it.
    files_left,
    /// Bytes of those that are shared and writable.
    files_left_writable_bytes,
    /// Bytes of those that are executable.
    files_left_executable_bytes,
    /// Bytes of those of files in memory (tmpfs).
    files_left_memory_bytes,
    /// Bytes of those that are locked.
    files_left_locked_bytes,
    /// Bytes of those too small to be worth it (`--files=SIZE`).
    files_left_small_bytes,
    /// Bytes of those that somebody writes to, or that cannot be watched for that.
    files_left_changing_bytes,
    /// Bytes of those left for other reasons, which standard error tells.
    files_left_other_bytes,
    /// Bytes of files that were asked for ahead (WILLNEED, MAP_POPULATE).
    files_asked_bytes,
    /// What of that was not read: it was more than a quarter of the budget.
    files_asked_cut_bytes,
}

/// What one process reports.
#[repr(C)]
pub struct Process {
    /// A value of [`state`].
    pub state: AtomicU32,
    /// Its process id, as the launcher knows it.
    pub pid: AtomicU32,
    /// Twice as often as the place was claimed, one less while it is being claimed: see
    /// [`mod@crate::places`].
    pub generation: AtomicU32,
    /// The generation of which the launcher has kept what is here; the launcher's.
    pub kept: AtomicU32,
    /// Pages of the program's code, as /proc/PID/statm tells: a program that the process became
    /// later has others.
    pub program_pages: AtomicU32,
    /// Not 0: the process has become another program by exec, whose agent reports elsewhere.
    pub is_over: AtomicU32,
    /// Not 0: a thread of it waits for the process's turn.
    pub is_held: AtomicU32,
    /// Not 0: whoever is a child of it was made by it, as orphans become others' children.
    pub adopts_nobody: AtomicU32,
    /// How many of the run's orders it has followed, or refused.
    pub orders_followed: AtomicU32,
    /// Those that it could not follow: a bit for each.
    pub orders_refused: AtomicU32,
    /// Those of which an area is to go and is not empty yet: a bit for each.
    pub orders_open: AtomicU32,
    /// Of these, those that wait for room elsewhere: a bit for each.
    pub orders_waiting: AtomicU32,
    /// Pages that are where nothing is to stay, by order; once that is not open those that cannot be read.
    pub pages_left: [AtomicU32; ORDERS],
    /// The same of programs whose code has the same size: see `overspill_sys::procfs::program_stamp`; 0: not
    /// known.
    pub program_stamp: AtomicU64,
    /// What it has of the tree's budget; the agent's.
    pub share_bytes: AtomicU64,
    /// What it holds as its parent does, for whom it counts, when it had so many faults: see
    /// [`Loan`]. The agent's at first, then the launcher's.
    pub loan: AtomicU64,
    /// What it has of that still; the agent's.
    pub borrowed_bytes: AtomicU64,
    /// What its children have as it does, the most of any, when it had so many faults: what it has copied
    /// since then is not yet counted with them. See [`Loan`]; the launcher's.
    pub lent: AtomicU64,
    /// So many children have loans of it; the launcher's.
    pub heirs: AtomicU64,
    /// What it has copied since it had so many faults, if one child alone may count that: see [`Loan`]; the
    /// agent's.
    pub left: AtomicU64,
    /// What of that its child counts by now; that one's agent's.
    pub taken: AtomicU64,
    /// Its faults that may have made copies: see [`told_faults`]; the agent's.
    pub copying_faults: AtomicU64,
    /// What it could copy of that, and what of its copies counts here until it does there; the agent's.
    pub exposed_bytes: AtomicU64,
    /// ...
    pub owed_bytes: AtomicU64,
    /// What it may have, 0 for no limit; the launcher's.
    pub limit_bytes: AtomicU64,
    /// It has no turn until then, on the monotonic clock; the launcher's.
    pub held_until_ns: AtomicU64,
    /// What the kernel was told in place of the program's limits on processor time, and those: current and
    /// largest value, in seconds; the same twice where nothing else was told. The agent's.
    pub processor_told: [AtomicU64; 2],
    /// ...
    pub processor_asked: [AtomicU64; 2],
    /// What the kernel was told before that: a child may have been started with it.
    pub processor_told_before: [AtomicU64; 2],
    /// Its name: at most 15 bytes, then NUL.
    pub name: [AtomicU64; 2],
    /// Bits of [`events`].
    pub events: AtomicU32,
    /// errno of the failure behind UNMANAGED, WRITE_ERROR, READ_ERROR or FILE_READ_ERROR.
    pub error: AtomicU32,
    /// Which step failed: an index into `overspill_engine::STEPS`; 0 = none.
    pub error_step: AtomicU32,
    /// Bits of [`paths`], once memory is managed.
    pub paths: AtomicU32,
    /// The counters.
    pub counters: Counters,
    /// Latency of soft faults, from message read to answer given.
    pub soft_latency: [AtomicU64; LATENCY_BUCKETS],
    /// Latency of major faults.
    pub major_latency: [AtomicU64; LATENCY_BUCKETS],
}

impl Process {
    /// An unused record.
    #[must_use]
    pub fn new() -> Self {
        Process {
            state: AtomicU32::new(state::FREE),
            pid: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            kept: AtomicU32::new(0),
            program_pages: AtomicU32::new(0),
            is_over: AtomicU32::new(0),
            is_held: AtomicU32::new(0),
            adopts_nobody: AtomicU32::new(0),
            orders_followed: AtomicU32::new(0),
            orders_refused: AtomicU32::new(0),
            orders_open: AtomicU32::new(0),
            orders_waiting: AtomicU32::new(0),
            pages_left: [const { AtomicU32::new(0) }; ORDERS],
            program_stamp: AtomicU64::new(0),
            share_bytes: AtomicU64::new(0),
            loan: AtomicU64::new(0),
            borrowed_bytes: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            heirs: AtomicU64::new(0),
            left: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            copying_faults: AtomicU64::new(0),
            exposed_bytes: AtomicU64::new(0),
            owed_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(0),
            held_until_ns: AtomicU64::new(0),
            processor_told: [const { AtomicU64::new(0) }; 2],
            processor_asked: [const { AtomicU64::new(0) }; 2],
            processor_told_before: [const { AtomicU64::new(0) }; 2],
            name: [const { AtomicU64::new(0) }; 2],
            events: AtomicU32::new(0),
            error: AtomicU32::new(0),
            error_step: AtomicU32::new(0),
            paths: AtomicU32::new(0),
            counters: Counters::default(),
            soft_latency: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
            major_latency: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Process::new()
    }
}

impl Process {
    /// Empties a place that was another process's, for one that has just claimed it.
    pub fn clear(&self) {
        let zero = |number: &AtomicU64| number.store(0, Relaxed);
        for number in [&self.is_over, &self.is_held, &self.events, &self.error, &self.error_step, &self.paths]
        {
            number.store(0, Relaxed);
        }
        self.adopts_nobody.store(0, Relaxed);
        for number in [&self.orders_followed, &self.orders_refused, &self.orders_open, &self.orders_waiting] {
            number.store(0, Relaxed);
        }
        self.pages_left.iter().for_each(|number| number.store(0, Relaxed));
        zero(&self.share_bytes);
        zero(&self.loan);
        zero(&self.borrowed_bytes);
        zero(&self.lent);
        zero(&self.heirs);
        zero(&self.left);
        zero(&self.taken);
        zero(&self.copying_faults);
        zero(&self.exposed_bytes);
        zero(&self.owed_bytes);
        zero(&self.limit_bytes);
        zero(&self.held_until_ns);
        let processor = [&self.processor_told, &self.processor_asked, &self.processor_told_before];
        processor.into_iter().flatten().for_each(zero);
        self.counters.numbers().for_each(zero);
        self.soft_latency.iter().chain(&self.major_latency).for_each(zero);
    }
}

/// The word of [`Process::copying_faults`]: faults without a device that may have made copies, or have let
/// the process grow; wraps. 0: nobody has told.
#[must_use]
pub fn told_faults(faults: u32) -> u64 {
    1 << 32 | u64::from(faults)
}

/// What a child of fork holds as its parent does, in the word of [`Process::loan`]. A store makes the
/// child a copy of its own, and a fault: so it has that many pages less of it at most, whoever looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    /// So many pages ...
    pub pages: u32,
    /// ... when the process had had so many faults without a device; wraps.
    pub faults: u32,
}

impl Loan {
    /// Of that word; `None`: there is none.
    #[must_use]
    pub fn of(word: u64) -> Option<Loan> {
        (word != 0).then_some(Loan { pages: (word >> 32) as u32, faults: word as u32 })
    }

    /// The word.
    #[must_use]
    pub fn word(self) -> u64 {
        u64::from(self.pages) << 32 | u64::from(self.faults)
    }
}

/// What concerns all processes of a run.
#[repr(C)]
#[derive(Default)]
pub struct Tree {
    /// No place from this one on was ever claimed.
    pub places_used: AtomicU32,
    /// So many tenths of the budget above it were told, by whichever process.
    pub tenths_told: AtomicU32,
    /// What agents have given back less what they have taken: see [`crate::purse`].
    pub pool_bytes: AtomicI64,
    /// The launcher's part of the pool, which only it changes: the budget, what ended processes
    /// had, less what is unmanaged.
    pub launcher_bytes: AtomicI64,
    /// What of that ended processes had, for whoever goes on when the launcher has ended.
    pub returned_bytes: AtomicU64,
    /// Processes of some size, as the launcher saw them last: what several do at once each does in parts.
    pub crowded: AtomicU32,
    /// Until then, on the monotonic clock, a memory cgroup around the launcher has next to nothing left.
    pub group_full_until_ns: AtomicU64,
    /// When a process was ended last for want of memory, on the same clock.
    pub ended_ns: AtomicU64,
    /// Who waited for single pages last, and when: see [`crate::crowd`].
    pub crowd: AtomicU64,
    /// The process that the launcher started, which writes this itself before it executes the command; 0:
    /// the launcher is gone, as its number is another process's.
    pub command: AtomicU32,
    /// The launcher's own parent, as it was last looked at.
    pub starter: AtomicU32,
    /// Limits on address space.
    pub raised: Raised,
    /// Limits on private data.
    pub raised_data: Raised,
}

/// For so long after one process has ended for want of memory it is waited for what that gives.
const ENDING_NS: u64 = 100_000_000;

impl Tree {
    /// Does a process that would end for want of memory end now? One does at a time.
    ///
    /// *The story:* all that shared the budget saw the same and ended together, where the first would
    /// have done.
    pub fn takes_end(&self, now: u64) -> bool {
        let last = self.ended_ns.load(Acquire);
        let is_over = last == 0 || now.abs_diff(last) >= ENDING_NS;
        is_over && self.ended_ns.compare_exchange(last, now, AcqRel, Acquire).is_ok()
    }
}

/// The whole shared area.
#[repr(C)]
pub struct Shared {
    /// Launcher to agents.
    pub config: Config,
    /// Of the run as a whole.
    pub tree: Tree,
    /// Whoever calls `overspill swap` to agents.
    pub orders: Orders,
    /// Agents to launcher.
    pub processes: [Process; PROCESSES],
    /// Agents to agents: what each process has of what all may have.
    pub claims: [claims::Row; PROCESSES],
    /// Agents to launcher: what went where.
    pub spill: Spill,
}

/// The bucket of a latency: four buckets an octave, so a bucket is at most 25 % wide.
#[must_use]
pub fn latency_bucket(latency_ns: u64) -> usize {
    if latency_ns < 4 {
        return latency_ns as usize;
    }
    let octave = latency_ns.ilog2();
    let quarter = (latency_ns >> (octave - 2)) & 3;
    (((octave - 1) * 4) as usize + quarter as usize).min(LATENCY_BUCKETS - 1)
}

/// The largest latency, in nanoseconds, that falls into `bucket`.
#[must_use]
pub fn latency_bucket_max_ns(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let octave = bucket as u32 / 4 + 1;
    let quarter = bucket as u64 % 4;
    (1 << octave) + (quarter + 1) * (1 << (octave - 2)) - 1
}
