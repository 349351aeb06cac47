//! The command line: every option, its environment variable and its help, in one place. It decides
//! nothing; a flag beats the environment, which beats the configuration file ([`crate::config`]),
//! which beats the default.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};

use crate::bench::What;
use crate::compare::way::{KernelRules, Way};
use crate::doctor::Remedy;
use crate::idle::Idle;
use crate::load::LoadArgs;
use crate::load::files::ReadFileArgs;
use crate::load::neighbours::NeighboursArgs;
use crate::on_full::OnFull;
use crate::output;
use crate::policy::ReadAhead;
use crate::reclaim_policy::Reclaim;
use crate::size::{Size, parse_budget, parse_swap_max};
use crate::swap::arg::SwapArg;
use crate::usage::yes_or_no;
use crate::{record, sim, swap, top, trace};

const EXAMPLES: &str = "\
Examples:
  Sort in 100 MiB what wants 412, and see what happened:
      seq 1 6000000 | shuf | overspill run --ram 100M -- sort -S 2G | md5sum
  See whether this machine can do it, and what to mend if not:
      overspill doctor
  Compare with the kernel's own swap (as root):
      overspill compare --ram 100M -- sort -S 2G numbers.txt
  A built-in load, one word of every page in order, over and over:
      overspill bench seq --size 1000M --ram 900M

Every option is also an environment variable (--ram is OVERSPILL_RAM; of sim
--ram it is OVERSPILL_SIM_RAM), and those of run, doctor, compare and bench are
lines `ram = 1G` in the configuration file, $XDG_CONFIG_HOME/overspill/config.
Sizes: K, M, G, T are powers of 1024, KB, MB.. of 1000, 50% is a share of the
machine's RAM.

Man pages: overspill man [COMMAND] | man -l -, or overspill man --out DIR.
Completions: overspill completions bash, zsh, fish, elvish or powershell.";

const RUN_EXAMPLES: &str = "\
Examples:
  A budget of 1 GiB; spill to $TMPDIR or /var/tmp:
      overspill run --ram 1G -- python3 crunch.py
  A quarter of the machine's RAM; spill to a fast disk:
      overspill run --ram 25% --swap /mnt/nvme ./solver
  No summary, but figures for machines:
      overspill run --ram 2G --json run.json -q -- make
  The summary in a file named after the process id:
      overspill run --ram 1G -o summary.%p -- ./server

The program keeps its standard streams, descriptors, signals and directory;
nothing is written to its standard output. Exit status: the program's own;
killed by a signal, the same signal; 125 when overspill itself fails (and with
--strict when swap is full), 126 when the program cannot be executed, 127 when
it is not found.

A first Ctrl-C goes to the program; overspill survives it to write its summary.
SIGUSR1 to overspill prints a line on the run; `overspill top` watches it.
If overspill itself is killed the program simply runs on within its budget: its
memory is managed from within.

Static and set-user-ID programs cannot be managed (the agent is loaded by the
dynamic linker): overspill says so and runs them as they are.";

const DOCTOR_EXAMPLES: &str = "\
Each line is ok, warn or fail; below a warn or fail stands the command that
mends it. Exit status 1 if anything fails. `overspill run` makes the checks that
matter again and stops at the first that fails.

Examples:
  overspill doctor
  overspill doctor --swap /mnt/nvme
  overspill doctor --json | jq '.checks[] | select(.status != \"ok\")'";

const COMPARE_EXAMPLES: &str = "\
Runs the command with all the RAM it wants, then on the kernel's swap in a
memory cgroup of the given size, with a temporary swap file (page-cluster 3 and
5), then under overspill, and prints a table. Standard input that is not a
terminal is read once and replayed for each run; standard output is only checked
for being the same each time. A run that the kernel kills for want of memory is
made again. The kernel's swap needs root; `--ways bare,overspill` does not. No
cgroup, swap or file is left behind, however it ends.

Examples:
  sudo overspill compare --ram 100M -- sort -S 2G numbers.txt
  overspill compare --ram 1G --ways bare,overspill -- ./solver
  sudo overspill compare --ram 1G --runs 5 --json all.json -- python3 crunch.py
  sudo overspill compare --ram 1G --ways bare,kernel:0,overspill:linux \\
      -- ./solver

Ways: bare; kernel:N (page-cluster N, and read-ahead as this machine does it),
kernel:N:cluster (read-ahead by slots), kernel:N:vma (by regions: the swap
disk's `rotational` is set to 0 meanwhile); overspill, overspill:READAHEAD,
overspill:READAHEAD:RECLAIM; fence, and so on (overspill inside a memory cgroup
of its budget + 32 MiB, without swap).";

const BENCH_EXAMPLES: &str = "\
Patterns: seq; random; descending; interleaved:K (K streams); stride:S (every
S-th page, then the pages between); mixed:K+L (K sequential and L random
threads, each kind in its half); phases (a new pattern every second); graph
(search and PageRank). The memory is first filled in order (not counted), then
one word a page is touched, and at the end every page's content is verified. The
kernel's cgroup and overspill both get --ram plus 4 MiB for the program itself.

`reclaim` lets three readers stream through memory beside a program with a hot
set, all under one budget: under each policy of --reclaim, and on the kernel's
swap in a memory cgroup. How far apart the readers end, how much of the hot set
stays, refaults and stalls.

`files` makes a file where --swap is and reads it, as root alone: by the
kernel's mmap and pread, by `run --files` and by the library. It is a quarter of
the budget to four times as large, mostly larger than it, and removed at the
end. Exit status 1 if a goal is missed. --only chooses of its loads: cyclic,
cyclic-2x, cyclic-4x, cold, backward, strided, interleaved-8, halves, random,
random-advised, random-advised-8, slow-200, fileio-1, fileio, fileio-128,
cached-64k and cached-4k.

`extents` makes a file in many pieces where --swap is, shows how many (FIEMAP),
what finding a page in it costs with the list, the tree and the default map, and
how fast 1, 4 and 8 tasks write and read it page by page with each of them.
`slots` gives pages slots and takes them back, --laps times.

Suites: swapin (sequential and random, private and shared memory) and mixed (4
sequential and 8 random threads) set every kind of read-ahead side by side, the
kernel's with page-cluster 0, 3 and 5, by slots and by regions; all runs every
load that has a goal, and says whether it is reached (exit status 1 if not). `/
best` is against the kernel's best setting for that load; faults are touches of
1 us and more; ra_hit is the share of pages read ahead that were touched. Suites
take --only, --runs, --ways, --size, --ram and --out; --laps or --seconds
shorten them. Kernel settings are restored and the cgroup and swap file removed
at the end, also after an interrupt. Of a load with two kinds of threads, the
kernel's best setting is that with the best geometric mean of both.

Examples:
  sudo overspill bench swapin --out results
  sudo overspill bench all --runs 3 --only seq,stride-16
  sudo overspill bench seq --size 1000M --ram 900M
  sudo overspill bench files --ram 256M --only cold,cyclic-2x
  sudo overspill bench random --threads 8 --write --json random-8.json
  sudo overspill bench stride:16 --ways kernel:3,overspill --laps 16";

const SIM_EXAMPLES: &str = "\
Examples:
  How does a recorded program take to less RAM?
      overspill sim sort.ovt --ram 10%..100%/10
  How much is enough?
      overspill sim sort.ovt --explain
  Which read-ahead on which device, with curves to look at:
      overspill sim sort.ovt --readahead adaptive,linux,none \\
          --device nvme,sata-ssd,hdd --html sort.html
  How do the kernel's rules of file read-ahead, old and new, take to its reads?
      strace -f -ttt -y -e trace=file,desc,process -o job.strace ./job
      overspill sim job.strace --readahead 2.6.20,2.6.23,6.8,adaptive
  A load by its name, on this machine's own device:
      overspill sim calibrate /var/tmp -o here.toml
      overspill sim zipf:size=1G,touches=5M,write=20 --ram 25%,50% \\
          --device here.toml

Loads take size=1G, touches=1M or laps=3, write=PERCENT, programs=N, shared,
prefill and more after a colon. Equal options give equal output, byte for byte.";

const SWAP_EXAMPLES: &str = "\
What `make` makes, swapon takes, too, and what mkswap made, --swap takes. A
file's blocks are reserved at once. What pages leave in it stays there when the
program has ended: it may hold secrets.

Examples:
  overspill swap make /mnt/nvme/spill --size 64G --label spill
  overspill swap info /mnt/nvme/spill
  overspill run --ram 1G --swap /mnt/nvme/spill:prio=10 \\
      --swap /var/tmp -- ./solver";

const TRACE_EXAMPLES: &str = "\
What is simulated are page accesses; of a trace that has calls on files alone
(strace, perf), those calls and their read-ahead.

Formats: overspill (its own), lackey (valgrind --tool=lackey --trace-mem=yes),
strace (-f -ttt -y, file calls; or perf trace), perf (perf script of page
faults, or of syscalls:sys_enter_read and the like with their sys_exit), csv,
oracle (libCacheSim's oracleGeneral), numbers (a page a line). All are read and
written; what a format does not have is left out, and said. Compressed (zstd)
input is unpacked.

CSV: the first line names the columns, in any order: page (4096 bytes), address
(bytes), lba (512 bytes) or obj_id (whatever is cached: a page each); time_ns,
time_us, time_ms or time_s (time alone has no unit: then misses count); op
(read, write); thread. All names: docs/trace-format.md. Of numbers each touch
counts as a store, of oracle as a load: pages out differ by that.

Examples:
  overspill trace info sort.ovt
  overspill trace convert web.oracleGeneral.bin.zst web.ovt
  perf script -F comm,pid,tid,time,event,addr |
      overspill trace convert --from perf - faults.ovt
  overspill trace cut sort.ovt middle.ovt --after 2s --before 3s";

const RECORD_EXAMPLES: &str = "\
Every instruction, load and store of one program is seen: not of its children
(so cc1, not gcc), nor of a program that it becomes by exec (so not a python3
that is a script). It takes some 3000 times as long; times in the trace are
counts of instructions, one a nanosecond. Exit status: the program's own; Ctrl-C
and other signals end the program, not the trace. Where that is too slow:
overspill run --ram SMALL --trace FILE sees the faults only, which answers for
that RAM and more.

Examples:
  overspill record -o sort.ovt -- sort numbers.txt
  overspill record --exact -o exact.ovt -- ./small";

/// Runs programs in less RAM than they need: memory beyond the budget spills to disk.
#[derive(Parser)]
#[command(name = "overspill", version, after_long_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program within a RAM budget.
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Check what this machine offers and say how to mend what is missing.
    #[command(after_long_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Run a command bare, on the kernel's swap, and under overspill; print the ratios.
    #[command(after_long_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Run a built-in load bare, on the kernel's swap, and under overspill; print the ratios.
    #[command(after_long_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Simulate a trace or a load on other machines: RAM, read-ahead, devices, systems.
    #[command(after_long_help = SIM_EXAMPLES)]
    Sim(sim::Args),
    /// Look at swap areas, make them; add and drain them while a program runs.
    #[command(after_long_help = SWAP_EXAMPLES)]
    Swap(swap::Args),
    /// Look at traces, convert and cut them.
    #[command(after_long_help = TRACE_EXAMPLES)]
    Trace(trace::Args),
    /// Record the page accesses of a program (exact, slow: under valgrind).
    #[command(after_long_help = RECORD_EXAMPLES)]
    Record(record::Args),
    /// Watch the budgets that are running: processes, resident, faults, rates, stalls.
    Top(top::Args),
    /// The load of `bench` as a plain program: prints one line of JSON.
    #[command(hide = true)]
    Load(LoadArgs),
    /// The load of `bench reclaim`: several processes under one budget.
    #[command(hide = true)]
    Neighbours(NeighboursArgs),
    /// The load of `bench files`: a file read in some order.
    #[command(hide = true)]
    ReadFile(ReadFileArgs),
    /// Clean-up for `compare` and `bench`: outlives its parent and undoes what that has noted on
    /// standard input.
    #[command(hide = true)]
    Guard,
    /// Waits until nobody uses the unpacked agent, then removes it.
    #[command(hide = true)]
    Keep {
        /// The directory that it was unpacked to.
        directory: PathBuf,
    },
    /// Whether another process can open the launcher's shared memory, for `doctor`.
    #[command(hide = true)]
    Reach {
        /// `PID:FD` of the shared memory.
        shared: String,
    },
    /// Print a manual page, or write the pages of all commands to a directory.
    Man {
        /// Print the page of this command: run, or sim calibrate, say
        command: Vec<String>,
        /// Write all pages to this directory: MANDIR/man1, say
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How to spill; the same for every command that runs something under overspill.
#[derive(Args, Clone, Debug, Default)]
pub struct Tuning {
    /// Where to spill, as often as there are places: a directory on a disk, a file to create
    /// there, a swap file or device (`overspill swap make`, mkswap); with the most to use of it,
    /// and a priority: the highest is filled first, equal ones take turns [default: $TMPDIR if on
    /// a disk, else /var/tmp]
    #[arg(long, env = "OVERSPILL_SWAP", value_name = "PLACE[:SIZE][:prio=N]",
          value_parser = OsStringValueParser::new().try_map(SwapArg::parse))]
    pub swap: Vec<SwapArg>,
    /// Overwrite the files and devices of --swap, whatever is in them
    #[arg(long, env = "OVERSPILL_ERASE", value_parser = yes_or_no,
          action = ArgAction::SetTrue)]
    pub erase: bool,
    /// Spill no more than this, all processes together [default: 15/16 of what is free in the file
    /// system]
    #[arg(long, env = "OVERSPILL_SWAP_MAX", value_name = "SIZE", value_parser = parse_swap_max)]
    pub swap_max: Option<Size>,
    /// Largest window of the kernel's read-ahead rules, as a power of two of pages
    #[arg(long, env = "OVERSPILL_PAGE_CLUSTER", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub page_cluster: Option<u32>,
    /// Most of the budget that pages may take compressed, in percent; how much they do follows from
    /// what they cost and what the swap file costs. 0: none are [default: 50]
    #[arg(long, env = "OVERSPILL_MAX_POOL_PERCENT", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=90))]
    pub max_pool_percent: Option<u32>,
    /// Let compressed pages take all that --max-pool-percent allows from the start, whatever that
    /// costs
    #[arg(long, env = "OVERSPILL_FIXED_POOL", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub fixed_pool: bool,
    /// What to read beside the page that is wanted.
    #[arg(long, env = "OVERSPILL_READAHEAD", value_name = "POLICY", help = ReadAhead::help())]
    pub readahead: Option<ReadAhead>,
    /// Which pages leave.
    #[arg(long, env = "OVERSPILL_RECLAIM", value_name = "POLICY", help = Reclaim::help())]
    pub reclaim: Option<Reclaim>,
    /// What idle processors do while the program waits for pages: polling shortens every wait,
    /// needs the right to write /dev/cpu_dma_latency (root has it), and costs the power of all idle
    /// processors; auto polls on machines of up to 16 [default: auto]
    #[arg(long, env = "OVERSPILL_IDLE", value_name = "WHAT")]
    pub idle: Option<Idle>,
    /// End the program when swap is full, instead of letting it exceed its budget, and for what
    /// nobody pages: more than 4 MiB of a process without an agent, shared memory above the budget
    #[arg(long, env = "OVERSPILL_STRICT", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub strict: bool,
    /// What becomes of the program when swap is full: it goes on above its budget (until less than
    /// a sixteenth of the machine's RAM is left, or of what its memory cgroup gives), is stopped, or
    /// is ended as by --strict
    /// [default: exceed]
    #[arg(long, env = "OVERSPILL_ON_FULL", value_name = "WHAT")]
    pub on_full: Option<OnFull>,
    /// Give each process all of the budget, instead of dividing it between the processes of the tree
    #[arg(long, env = "OVERSPILL_PER_PROCESS", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub per_process: bool,
    /// Manage large mappings of files, too, that are read or have stores of the program's own: of
    /// at least SIZE bytes, or of half the budget; of this and --no-files the later one holds
    #[arg(long, env = "OVERSPILL_FILES", value_name = "SIZE", num_args = 0..=1, require_equals = true,
        conflicts_with = "no_files", overrides_with = "no_files")]
    pub files: Option<Option<Size>>,
    /// Leave all mappings of files to the kernel; of this and --files the later one holds
    #[arg(long, env = "OVERSPILL_NO_FILES", value_parser = yes_or_no, action = ArgAction::SetTrue,
        conflicts_with = "files", overrides_with = "files")]
    pub no_files: bool,
    /// Evict by write-protect, write and drop, even where the kernel can move pages; programs that
    /// do direct I/O of their own may lose data then
    #[arg(long, env = "OVERSPILL_NO_MOVE", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub no_move: bool,
    /// Use threads for I/O, even where io_uring works
    #[arg(long, env = "OVERSPILL_NO_URING", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub no_uring: bool,
    /// Encrypt what is spilled, under a key that is nowhere but in memory: nobody can read it
    /// later, and what was changed meanwhile is noticed
    #[arg(long, env = "OVERSPILL_ENCRYPT", value_parser = yes_or_no,
          action = ArgAction::SetTrue, conflicts_with = "no_checksum")]
    pub encrypt: bool,
    /// Believe what comes back from swap, without comparing its checksum: to measure what that
    /// costs
    #[arg(long, env = "OVERSPILL_NO_CHECKSUM", value_parser = yes_or_no,
          action = ArgAction::SetTrue)]
    pub no_checksum: bool,
}

/// `overspill run`.
#[derive(Args)]
pub struct RunArgs {
    /// The budget: how much anonymous memory the program may hold, with all that it starts
    #[arg(long, env = "OVERSPILL_RAM", value_name = "SIZE", value_parser = parse_budget)]
    pub ram: Size,
    /// How to spill.
    #[command(flatten)]
    pub tuning: Tuning,
    /// Write the figures to FILE as JSON (%p = process id; its fields: docs/json.md)
    #[arg(long, env = "OVERSPILL_JSON", value_name = "FILE", value_parser = output::file_name())]
    pub json: Option<PathBuf>,
    /// Write what the pager sees (faults, evictions, refaults, read-ahead) to FILE, for `overspill
    /// trace`: as FILE.part until the run has ended, when FILE is replaced
    #[arg(long, env = "OVERSPILL_TRACE", value_name = "FILE", value_parser = output::file_name())]
    pub trace: Option<PathBuf>,
    /// Write the summary to FILE instead of standard error (%p = process id)
    #[arg(short, long, env = "OVERSPILL_OUTPUT", value_name = "FILE", value_parser = output::file_name())]
    pub output: Option<PathBuf>,
    /// No summary, no warnings
    #[arg(short, long, env = "OVERSPILL_QUIET", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub quiet: bool,
    /// The program and its arguments: everything from the first word that is no option
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `overspill doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// The places to check, as --swap of `run` has them [default: as for `run`]
    #[arg(long, env = "OVERSPILL_SWAP", value_name = "PLACE[:SIZE][:prio=N]",
          value_parser = OsStringValueParser::new().try_map(SwapArg::parse))]
    pub swap: Vec<SwapArg>,
    /// Print JSON (its fields: docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Print a file that mends something, instead of checking
    #[arg(long, value_name = "FILE")]
    pub print: Option<Remedy>,
}

/// How to measure; the same for `compare` and `bench`.
#[derive(Args)]
pub struct Measuring {
    /// Runs of each way; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// What to run, in this order [default: bare,kernel:3,kernel:5,overspill; suites have their
    /// own]
    #[arg(long, value_name = "WAY,..", value_delimiter = ',')]
    pub ways: Vec<Way>,
    /// Write every run, the medians and the machine's description to FILE as JSON (its fields:
    /// docs/json.md)
    #[arg(long, value_name = "FILE", value_parser = output::any_file_name())]
    pub json: Option<PathBuf>,
}

impl Measuring {
    /// The ways that were asked for, or those of a plain comparison.
    pub fn ways(&self) -> Vec<Way> {
        let kernel = |page_cluster| Way::Kernel { page_cluster, rules: KernelRules::AsFound };
        let overspill = Way::Overspill { readahead: None, reclaim: None, fenced: false };
        let plain = || vec![Way::Bare, kernel(3), kernel(5), overspill];
        if self.ways.is_empty() { plain() } else { self.ways.clone() }
    }
}

/// `overspill compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// The budget, and the size of the kernel's memory cgroup
    #[arg(long, env = "OVERSPILL_RAM", value_name = "SIZE", value_parser = parse_budget)]
    pub ram: Size,
    /// How to spill.
    #[command(flatten)]
    pub tuning: Tuning,
    /// How to measure.
    #[command(flatten)]
    pub measuring: Measuring,
    /// Keep the standard output of the first run in FILE
    #[arg(long, value_name = "FILE", value_parser = output::any_file_name())]
    pub keep_output: Option<PathBuf>,
    /// Write the whole table to FILE as Markdown
    #[arg(long, value_name = "FILE", value_parser = output::any_file_name())]
    pub markdown: Option<PathBuf>,
    /// Write the table, and bars, to FILE as a page
    #[arg(long, value_name = "FILE", value_parser = output::any_file_name())]
    pub html: Option<PathBuf>,
    /// The program and its arguments: everything from the first word that is no option
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `overspill bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// A load: seq, random, descending, interleaved:K, stride:S, mixed:K+L, phases or
    /// graph; or a suite: swapin, mixed or all; or reclaim, files, extents or slots
    #[arg(value_name = "LOAD-or-SUITE")]
    pub what: What,
    /// Memory to touch [default: ten ninths of the budget; for random twice, for the suites' mixed
    /// three times the budget]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// The budget [default: 900M, at most a quarter of the machine's RAM]
    #[arg(long, value_name = "SIZE", value_parser = parse_budget)]
    pub ram: Option<Size>,
    /// Of a suite, only these loads
    #[arg(long, value_name = "LOAD,..", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Write a suite's figures to DIR, a file for each load: every run, the rows and the machine's
    /// description
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How to spill.
    #[command(flatten)]
    pub tuning: Tuning,
    /// How to measure.
    #[command(flatten)]
    pub measuring: Measuring,
    /// What the load does.
    #[command(flatten)]
    pub work: crate::load::Work,
}
