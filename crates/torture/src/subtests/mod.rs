//! The table of subtests.

mod adoption;
mod advice;
mod allocator;
mod attaching;
mod calls;
mod content;
mod costs;
pub mod exits;
mod file_calls;
mod file_changes;
mod file_chunks;
mod file_faults;
mod file_hazards;
mod files;
pub mod forks;
pub mod forks_held;
pub mod forks_orphaned;
pub mod forks_out;
mod joining;
mod kept_files;
pub mod kinds;
mod lending;
mod locked;
pub mod mapped_files;
mod mappings;
mod marks;
mod merged;
mod own_advice;
mod own_faults;
pub mod ports;
pub mod process;
mod protection;
mod remaps;
pub mod remote;
mod robust;
mod signals;
mod small_stacks;
mod stacks;
mod stores;
mod streams;
mod uring;
mod zeroes;

use crate::context::Context;
use crate::outcome::Outcome;

/// Upper bound of `--threads`; `stores` has a lane in every page for each.
pub const THREADS_MAX: usize = 10;

/// Whether anonymous memory stays within the budget during a subtest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// It does.
    Holds,
    /// It does not, by nature: everything comes back in before a fork, or frames are pinned or locked.
    Exceeded,
}

/// One subtest.
#[derive(Debug)]
pub struct Subtest {
    /// Name on the command line.
    pub name: &'static str,
    /// Whether the budget holds.
    pub budget: Budget,
    /// What is tested, in a few words.
    pub about: &'static str,
    /// The test.
    pub run: fn(&mut Context) -> Outcome,
}

macro_rules! table {
    ($($name:literal $budget:ident $run:expr, $about:literal;)+) => {
        &[$(Subtest { name: $name, budget: Budget::$budget, about: $about, run: $run }),+]
    };
}

/// All subtests.
pub const SUBTESTS: &[Subtest] = table! {
    "stores" Holds stores::run, "threads store to random pages, every word checked";
    "cold" Holds content::cold, "what was written is read back";
    "zero" Holds content::zero, "all-zero pages";
    "zero-reads" Holds zeroes::reads, "memory that is only read, then stored to";
    "zero-fork" Exceeded zeroes::fork, "the same across a fork";
    "first-touch" Holds content::first_touch, "first touches by many threads";
    "awakened" Holds content::awakened, "the same after a quiet while";
    "huge" Holds content::huge, "MADV_HUGEPAGE and MADV_COLLAPSE";
    "alloc-churn" Holds allocator::churn, "malloc, realloc, free of all sizes";
    "malloc-arenas" Holds allocator::arenas, "malloc of small blocks by threads, at full speed";
    "pipes" Holds streams::pipes, "writev and readv through a pipe, vectors in cold memory";
    "sockets" Holds streams::sockets, "the same over sockets; sendmsg and recvmsg with cold headers";
    "ports" Holds ports::run, "ports that are closed and bound again, under pressure";
    "files" Holds files::files, "write, preadv through the page cache";
    "big-read" Holds files::big_read, "64 MiB in one read and one write";
    "direct" Holds files::direct, "O_DIRECT under pressure";
    "splice" Holds files::splice, "vmsplice lends cold pages to a pipe";
    "splice-bare" Holds lending::splice_bare, "the same by syscall(2), and tee";
    "splice-own" Holds lending::splice_own, "vmsplice by the bare instruction into pipes of its own";
    "splice-on" Holds lending::splice_on, "the same, passed on into sockets: the pipes are empty";
    "send-zc" Holds lending::send_zc, "io_uring sends from cold memory without copying";
    "zero-copy" Holds lending::zero_copy, "MSG_ZEROCOPY, asked for by the bare instruction";
    "zero-copy-shared" Holds lending::zero_copy_shared, "the same, asked for by a child, and closed at once";
    "calls" Holds calls::calls, "getrandom, poll, stat, clocks, paths, ...";
    "futex" Holds calls::futex, "wait, wake, requeue on cold words";
    "futex-pi" Holds calls::futex_pi, "priority-inheriting locks";
    "futex-cold-op" Holds calls::futex_cold_op, "operations in which the kernel changes a cold word";
    "robust" Holds robust::run, "locks whose owners end while their pages are cold";
    "join-words" Holds joining::run, "threads made by clone end while their words are cold";
    "uring" Holds uring::buffered, "the program's own io_uring";
    "uring-direct" Holds uring::direct, "its direct operations";
    "uring-guard" Holds uring::guards, "guards that it installs over pages that are out";
    "uring-fixed" Holds uring::fixed, "its registered buffers";
    "uring-fixed-closed" Holds uring::fixed_closed, "the same in memory that is read-only by then";
    "vm-readv" Holds remote::vm_readv, "process_vm_readv, also by another process";
    "vm-writev" Holds remote::vm_writev, "process_vm_writev, also by another process";
    "proc-mem" Holds remote::proc_mem, "/proc/PID/mem";
    "exec" Exceeded remote::exec, "exec with arguments in cold memory; a program that replaces itself";
    "sigaltstack" Holds signals::sigaltstack, "handlers on a cold alternative stack";
    "interrupts" Holds signals::interrupts, "4000 signals a second";
    "munmap" Holds mappings::munmap, "partial and whole, mapped again, zero";
    "munmap-churn" Holds mappings::munmap_churn, "the same by threads, all the time";
    "munmap-again" Holds mappings::munmap_again, "other blocks at the same addresses at once";
    "fixed" Holds mappings::fixed, "MAP_FIXED over cold memory";
    "mremap" Holds mappings::mremap, "grow, shrink, move, in place and not";
    "mremap-dontunmap" Holds mappings::mremap_dontunmap, "MREMAP_DONTUNMAP";
    "mremap-several" Holds remaps::several, "several mappings and a hole in one call";
    "mremap-into-hole" Holds remaps::into_hole, "moves to where another thread's block just was";
    "mremap-tail" Holds remaps::tail, "what is managed and a little beside it, in one call";
    "mremap-churn" Holds mappings::mremap_churn, "mremap by threads, all the time";
    "mremap-adopted" Exceeded adoption::mremap, "mremap while mappings are found and managed";
    "arenas" Holds adoption::arenas, "memory that grows by mprotect, by threads, while it is found";
    "holes" Holds adoption::holes, "memory with a hole that opens and closes while it is found";
    "zero-stores" Holds adoption::zero_stores, "stores to memory that was only read, while it is found";
    "grown-read-only" Holds adoption::grown_read_only, "memory that grows and is protected before it is touched";
    "dev-zero" Holds kinds::dev_zero, "private mappings of /dev/zero";
    "write-only" Holds kinds::write_only, "memory that may be written to and not read, by its rights";
    "droppable" Holds kinds::droppable, "memory that the kernel may drop";
    "dev-zero-closed" Holds kinds::dev_zero_closed, "the same, read-only and locked while they are out";
    "merged" Holds merged::anonymous, "memory that the kernel merges (KSM)";
    "no-reserve" Holds kinds::no_reserve, "MAP_NORESERVE, beside whatever else is mapped";
    "above-file" Holds kinds::above_file, "a large block above a mapping of a file";
    "main-exit" Holds kinds::main_exit, "the first thread ends, others go on";
    "mprotect" Holds protection::mprotect, "read-only, inaccessible, striped";
    "code" Holds protection::code, "code in writable memory";
    "guard" Holds protection::guard, "inaccessible pages between accessible ones";
    "madv-guard" Holds protection::madv_guard, "MADV_GUARD_INSTALL over cold and fresh memory";
    "guarded" Holds protection::guarded, "a block with a small guard in front, as a stack has one";
    "write-barrier" Holds protection::write_barrier, "a handler that opens read-only pages";
    "sigsegv" Holds protection::sigsegv, "the program's handlers of SIGSEGV and SIGBUS";
    "dontneed" Holds advice::dontneed, "MADV_DONTNEED";
    "discard-slowly" Holds advice::discard_slowly, "the same by a thread that hardly runs";
    "free" Holds advice::free, "MADV_FREE";
    "free-taken" Exceeded advice::free_taken, "MADV_FREE where the kernel takes what was freed";
    "advice" Holds advice::harmless, "advice that changes no byte, and MADV_POPULATE";
    "populate" Holds advice::populate, "MADV_POPULATE and MAP_POPULATE, more than the budget";
    "populate-child" Holds advice::populate_in_child, "the same by children of fork, at once";
    "madvise-self" Exceeded own_advice::forks, "process_madvise on oneself, and forks";
    "madvise-self-populate" Holds own_advice::populate, "the same, more than the budget populated";
    "advice-race" Holds advice::race, "advice racing with loads and stores";
    "brk" Holds process::brk, "the break up and down";
    "mlock" Exceeded process::mlock, "cold and warm memory locked";
    "mlock-grows" Exceeded process::mlock_grows, "locked memory that grows as it moves";
    "mlock-grows-over" Exceeded locked::grows_over, "the same over memory that is out";
    "mlock-grows-at-once" Exceeded locked::grows_at_once, "the same by several threads at once";
    "mlockall" Exceeded process::mlock_all, "all memory locked, more mapped later";
    "own-faults" Exceeded own_faults::run, "a userfaultfd of the program's own";
    "own-moves" Exceeded own_faults::moves, "memory that the program moves with a userfaultfd of its own";
    "closeall" Holds process::close_all, "every descriptor closed";
    "descriptors" Holds process::descriptors, "nothing foreign in the descriptor table";
    "rlimit" Holds process::rlimit, "limits lowered after the start";
    "rlimit-fsize" Exceeded process::rlimit_fsize, "a file size limit of zero, or within a page";
    "sparse" Holds process::sparse, "96 TiB reserved";
    "shared" Exceeded process::shared, "shared memory and private file mappings";
    "shm-remap" Exceeded attaching::remap, "shared memory attached over memory that is managed";
    "setuid" Holds process::setuid, "user and group change";
    "chroot" Holds process::chroot, "root directory changes";
    "stacks" Holds stacks::many, "threads come and go";
    "recursion" Holds stacks::recursion, "deep stacks";
    "deep-stacks" Holds stacks::deep, "deep stacks that go cold, and are used again";
    "custom-stacks" Holds stacks::custom, "stacks in ordinary memory";
    "grows-down" Holds stacks::grows_down, "a mapping that grows down into a hole";
    "joined-stacks" Holds stacks::joined, "memory in one mapping with the stack below it";
    "behind-guards" Holds stacks::behind_guards, "blocks and fibers' stacks behind guards";
    "fork" Exceeded forks::plain, "children verify and write";
    "fork-storing" Exceeded forks::storing, "forks while threads store";
    "fork-exec" Exceeded forks::exec_loops, "fork, vfork, posix_spawn with exec, by threads";
    "fork-snapshot" Exceeded forks::snapshot, "a child lives while the parent writes";
    "fork-beside" Exceeded forks::beside, "parent and child change what they share, one of them fits";
    "fork-out-row" Exceeded forks_out::row, "twenty children inherit what is out, and all store";
    "fork-growing" Exceeded forks_out::growing, "forks at each step of memory that grows past the budget";
    "fork-killed" Exceeded forks_out::killed, "who makes a child is killed meanwhile";
    "fork-out-line" Exceeded forks_out::line, "children of children, whose parents end at once";
    "fork-out-many" Exceeded forks_out::many, "eighty forks in a row, while memory changes";
    "fork-out-thin" Exceeded forks_out::thin, "forks after which few pages stay where they were";
    "fork-out-wiped" Exceeded forks_out::wiped, "memory that is marked between two forks";
    "fork-out-signal" Exceeded forks_out::signal, "a signal's handler forks while a fork is under way";
    "fork-stopped" Exceeded forks_held::stopped, "a child is stopped right after its birth";
    "fork-maker-stopped" Exceeded forks_held::maker_stopped, "who makes a child is stopped meanwhile";
    "fork-told" Exceeded forks_held::told, "whose maker is told of its child on a page that is out";
    "fork-beside-bare" Exceeded forks_held::beside_bare, "bare forks beside announced ones";
    "fork-maker-waits" Exceeded forks_held::maker_waits, "whose maker waits, without CLONE_VM";
    "fork-tree" Exceeded forks::tree, "children of children";
    "fork-forms" Exceeded forks::forms, "children made past libc's fork, and theirs";
    "fork-asleep" Exceeded forks::asleep, "who is seen asleep has come there";
    "fork-few" Exceeded forks::few_descriptors, "forks where no descriptor is left";
    "fork-outlive" Exceeded forks::outlive, "a process that shares memory lives longer than its maker";
    "fork-vfork-orphan" Exceeded forks_orphaned::vfork_orphan, "who is in vfork ends with its process";
    "fork-unheard" Exceeded forks::unheard, "bare forks while pages come into view all the time";
    "fork-discarding" Exceeded forks::discarding, "forks while threads discard all the time";
    "fork-advice" Exceeded forks::advice, "MADV_WIPEONFORK, MADV_DONTFORK";
    "fork-marks" Exceeded marks::run, "memory that is marked MADV_DONTFORK goes or moves";
    "fork-wiped" Exceeded marks::wiped, "memory that is marked MADV_WIPEONFORK, by every form of fork";
    "cost-read-only" Holds costs::read_only, "twice the budget read-only, against a plain load";
    "cost-grows-down" Holds costs::grows_down, "a mapping that grows by twice the budget, against a plain load";
    "cost-locked" Exceeded costs::locked, "twice the budget locked, half of it out, against a plain load";
    "cost-locked-on-fault" Exceeded costs::locked_on_fault, "three times the budget, locked as it is touched";
    "cost-many-mappings" Holds costs::many_mappings, "51,200 mappings of two pages, against a plain load";
    "cost-robust" Holds costs::robust, "a load beside 1500 robust locks, against one without";
    "file-loop" Holds mapped_files::over_and_over, "mapped files over and over, every way";
    "file-chunks" Exceeded file_chunks::chunks, "parts of chunks of a mapped file that come and go whole";
    "file-end" Holds mapped_files::end, "a mapped file that ends within the mapping";
    "file-private" Holds mapped_files::private, "stores to a private mapping of a file";
    "file-merged" Holds merged::file, "stores to a mapping of a file that the kernel merges (KSM)";
    "file-read-only" Holds mapped_files::read_only, "stores to a read-only mapping of a file";
    "file-cut" Holds mapped_files::cut, "a mapped file is cut";
    "file-writer" Holds mapped_files::writer, "others write to a mapped file";
    "file-fork" Exceeded mapped_files::forks, "children of a process with mapped files";
    "file-fork-written" Exceeded mapped_files::fork_written, "others write to a file that children have, too";
    "file-fork-unheard" Exceeded mapped_files::forks_unheard, "bare forks while pages of files come in";
    "file-pieces" Holds mapped_files::pieces, "munmap, mremap and mprotect of parts of a mapped file";
    "file-advice" Exceeded mapped_files::advice, "advice, msync, mincore and mlock of a mapped file";
    "file-hints" Holds mapped_files::hints, "posix_fadvise, readahead and MAP_POPULATE of a mapped file";
    "file-threads" Holds mapped_files::threads, "threads and signals over mapped files, under pressure";
    "file-bad" Exceeded file_faults::bad_blocks, "a mapped file of which some blocks cannot be read";
    "file-writers" Holds file_faults::writers, "others write to a mapped file while it is read";
    "file-many-stores" Exceeded file_changes::many_stores, "a mapped file with many stores, locked in part";
    "file-many-holes" Exceeded file_changes::many_holes, "a mapped file with many holes";
    "file-taken-over" Exceeded file_changes::taken_over, "memory in place of a mapped file that is locked";
    "file-regrown" Exceeded file_changes::regrown, "a mapped file is cut and grows again";
    "file-regrown-at-once" Exceeded file_changes::regrown_at_once, "the same, touched at that moment";
    "file-refused" Exceeded file_calls::refused, "flags, descriptors and ranges that the kernel refuses";
    "file-rare" Exceeded file_calls::rare, "calls of mapped files that few make";
    "file-hints-in-part" Exceeded file_calls::hints_in_part, "hints for files that are managed in part";
    "file-locked" Exceeded file_hazards::locked, "mapped files in a process that locks all it maps";
    "file-own-table" Exceeded file_hazards::own_table, "a thread's own descriptor of a mapped file";
    "file-opened-beside" Exceeded file_hazards::opened_beside, "made writable by several threads at once";
    "file-grow-beside" Exceeded file_hazards::grow_beside, "a mapping that grows beside busy threads";
    "file-grow-stored" Exceeded file_hazards::grow_stored, "a mapping with stores that grows";
    "file-lease" Exceeded file_hazards::lease, "writers to files whose mappings the kernel has again";
    "file-fork-beside" Exceeded file_hazards::fork_beside, "forks beside a thread that maps and unmaps files";
    "file-marks" Exceeded marks::files, "pages of a mapped file that are marked MADV_DONTFORK";
    "file-advised" Exceeded marks::advised, "pages of a mapped file that are marked otherwise";
    "file-fork-rights" Exceeded file_hazards::fork_rights, "forks without descriptors, rights or a root";
    "file-kept" Holds kept_files::readers, "a mapped file that fits until other memory takes the room";
    "file-kept-changed" Holds kept_files::changed, "the same, unmapped, moved, protected in part meanwhile";
    "file-kept-fork" Exceeded kept_files::forks, "the same, with children made meanwhile";
    "file-kept-cut" Holds kept_files::cut, "the same, cut meanwhile";
    "file-kept-locked" Holds kept_files::locked, "the same, locked and grown in part meanwhile";
    "file-kept-all-locked" Exceeded kept_files::all_locked, "the same, in a process that locks all it maps";
    "exec-small-stack" Exceeded small_stacks::exec, "programs that are started from small stacks";
    "exit" Holds exits::exits, "every way to end while threads fault";
};

/// The subtest of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Subtest> {
    SUBTESTS.iter().find(|subtest| subtest.name == name)
}

/// One line a subtest: name, `holds` or `exceeded`, what is tested; separated by tabs, for people
/// and the harness.
#[must_use]
pub fn list() -> String {
    let line = |subtest: &Subtest| {
        let budget = match subtest.budget {
            Budget::Holds => "holds",
            Budget::Exceeded => "exceeded",
        };
        format!("{}\t{budget}\t{}\n", subtest.name, subtest.about)
    };
    SUBTESTS.iter().map(line).collect()
}
