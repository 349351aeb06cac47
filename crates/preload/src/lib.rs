//! The agent that lives inside an unmodified program: a library for LD_PRELOAD that finds the
//! program's memory and pages it.
//!
//! It needs no call of the program to find memory; `fresh`, `lend`, `populate` and `remap` say
//! which calls it stands before, and why. Its constructor starts one thread and registers fork
//! handlers; everything else happens in that thread (`agent`). The library needs no other library,
//! not even libc beyond what the program has loaded anyway, uses no thread-locals and allocates
//! from its own arena: whatever the program does to its heap, its signals or its descriptors, the
//! agent does not notice, and it never waits for a page that only it could bring in.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod adopt;
mod advising;
mod agent;
mod aside;
mod attaching;
mod builtins;
mod claim;
mod closing;
mod cpu_limit;
mod custody;
mod elf;
mod ending;
mod exec;
mod file_agent;
mod file_hints;
mod files;
mod filters;
mod foreign;
mod foretold;
mod fork;
mod forms;
mod fresh;
mod grow;
mod guards;
mod heir;
mod huge;
mod joining;
mod kept;
mod launcher;
mod leaks;
mod lend;
mod libc;
mod limits;
mod locking;
mod merging;
mod message;
mod nap;
mod parent;
mod peek;
mod populate;
mod registering;
mod remap;
mod retire;
mod room;
mod settings;
mod sight;
mod speaker;
mod stacks;
mod start;
mod tasks;
mod told_range;
mod undisturbed;
mod urgency;
mod veto;
mod waiting;
mod withheld;

use overspill_sys::AddressRange;
use overspill_sys::alloc::ArenaAlloc;

#[global_allocator]
static ARENA: ArenaAlloc = ArenaAlloc::new();

/// Calls `visit` with every range of addresses that belongs to the agent itself.
fn each_own_range(mut visit: impl FnMut(AddressRange)) {
    ARENA.for_each_range(&mut visit);
    start::each_range(&mut visit);
    elf::each_own_data(&mut visit);
}

/// What the agent has allocated for its books, in bytes.
fn book_bytes() -> usize {
    ARENA.mapped_bytes()
}

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // The state machine found itself in a state that must not be: going on could lose the program's
    // data. No other signal ends a program whose threads wait in the kernel for this one, and a
    // thread that comes before all others must not go on.
    overspill_sys::thread::stand_back();
    message::end_with(format_args!("bug, the program is ended before it loses data: {info}"));
}

// Asked for by parts of the core library that were compiled to unwind; nothing here ever does. They
// must not be exported: the loader would give them to the program in place of its own.
#[cfg(not(test))]
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    ".hidden _Unwind_Resume",
    ".globl _Unwind_Resume",
    "_Unwind_Resume:",
    "ud2",
);
