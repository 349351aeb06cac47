//! Who a process's parent is, as it would be if the launcher were not between it and its starter.
//!
//! The launcher adopts whoever loses its parent (`tree/descendants.rs`), and is the parent of the command.
//! Bare an orphan's parent is process 1, and the command's is whoever started it: who compares `getppid()`
//! with either waits for its maker's end, or makes sure that it is where it thinks. So libc's function, and
//! its `syscall`, answer that. The kernel's answer stays where it is not the launcher's number, where that
//! may be another process's number (another pid namespace, or the launcher is gone), and in processes
//! without an agent.
//!
//! It is called in handlers of signals: one call of the kernel's and a few words that are read.
//!
//! *The story:* workers that end when their parent is 1 never did, and the run went on for ever.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use linux_raw_sys::general::CLONE_PARENT;
use overspill_engine::shared::{Shared, Tree};
use overspill_sys::mem;

use crate::agent::{self, Beginning};
use crate::fork;

/// The launcher's number, where it is known that this process would see it by that; else 0.
static LAUNCHER: AtomicU32 = AtomicU32::new(0);
/// This is the command, or a sibling that it made (CLONE_PARENT): its parent would be the command's.
static IS_NEXT: AtomicBool = AtomicBool::new(false);

/// Who adopts orphans. (A subreaper that the launcher itself has above it would be told as this one, too:
/// who waits for an adoption waits for this number.)
const REAPER: u32 = 1;

/// getppid(2).
#[unsafe(no_mangle)]
pub extern "C" fn getppid() -> c_int {
    let parent = mem::parent_id();
    let launcher = LAUNCHER.load(SeqCst);
    if launcher == 0 || parent != launcher || !fork::is_ours() {
        return parent as c_int;
    }
    agent::tree().map_or(parent, |tree| instead(parent, IS_NEXT.load(SeqCst), tree)) as c_int
}

/// Whom to tell in place of the launcher.
fn instead(launcher: u32, is_next: bool, tree: &Tree) -> u32 {
    match (tree.command.load(SeqCst), is_next) {
        (0, _) => launcher,
        (_, true) => tree.starter.load(SeqCst),
        (_, false) => REAPER,
    }
}

/// An agent has found the launcher's page. This process is known there by `pid`.
pub fn enlist(launcher: u32, pid: u32, shared: &Shared, beginning: Beginning) {
    // Numbers of one namespace only can be compared.
    if pid != mem::process_id() {
        LAUNCHER.store(0, SeqCst);
        return;
    }
    if pid == launcher {
        shared.tree.command.store(0, SeqCst); // it was given away again
    }
    if beginning == Beginning::Program {
        IS_NEXT.store(shared.tree.command.load(SeqCst) == pid, SeqCst);
    }
    LAUNCHER.store(launcher, SeqCst);
}

/// What a child that is made with these flags of clone(2) is to be told of by [`in_child`]. It is read in the
/// child, before that.
pub fn is_siblings(flags: usize) -> bool {
    flags as u32 & CLONE_PARENT != 0 && IS_NEXT.load(SeqCst)
}

/// In a child of fork, which may be in another namespace: its own agent finds out.
pub fn in_child() {
    LAUNCHER.store(0, SeqCst);
    IS_NEXT.store(false, SeqCst);
}

/// In one whose maker made it its sibling.
pub fn be_sibling() {
    IS_NEXT.store(true, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_be_the_parent_is_told() {
        let tree = Tree::default();
        assert_eq!(instead(500, false, &tree), 500, "the launcher is gone, 500 is somebody else's");
        tree.command.store(501, SeqCst);
        tree.starter.store(400, SeqCst);
        assert_eq!((instead(500, true, &tree), instead(500, false, &tree)), (400, 1));
    }
}
