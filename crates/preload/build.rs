//! What the agent calls of its own is its own: its exported names stand before libc's, and a program's before
//! them.
//!
//! *The story:* a program that has an `mmap` of its own, which goes by libc's `syscall`, never came out of
//! it: the agent's `syscall` called the program's `mmap` (`citizens::own-hooks`).

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed=build.rs");
}
