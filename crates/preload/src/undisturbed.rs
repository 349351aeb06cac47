//! Stretches of the program's own threads in which no handler of a signal runs.
//!
//! What the agent shares with those threads is behind locks and turns that nobody may enter twice.
//! A handler that forks, maps or looks at its threads in the midst of one would wait for the very
//! thread that it interrupts; and its child would go on in there for an agent that only the parent
//! has. Such stretches are short, or wait for the agent as a system call waits for a device: a
//! signal comes after them. Where such a wait is long, those that no handler is for come at once: they
//! end or stop the process, and no code of the program's runs for them.
//!
//! Behind a filter nothing is called that libc would not call. There is no agent to wait for then,
//! and what is left under a lock are some stores.

use overspill_sys::thread;

use crate::filters;

/// Calls `action` with all signals blocked.
pub fn undisturbed<R>(action: impl FnOnce() -> R) -> R {
    undisturbed_at_first(|_| action())
}

/// The same; `action` may call what it is given when it has to wait for long. From then on signals that
/// no handler is for have their effect.
pub fn undisturbed_at_first<R>(action: impl FnOnce(&dyn Fn()) -> R) -> R {
    let mask = if filters::is_filtered() { None } else { thread::block_all_signals().ok() };
    let let_through = || {
        if let Some(mask) = mask {
            thread::unblock_unhandled(mask);
        }
    };
    let result = action(&let_through);
    if let Some(mask) = mask {
        thread::restore_signals(mask);
    }
    result
}

/// Calls `action`, which may last, with no handler of a signal running meanwhile. Signals that no handler is
/// for have their effect. To find out which these are takes 20 us.
pub fn without_handlers<R>(action: impl FnOnce() -> R) -> R {
    undisturbed_at_first(|let_signals_through| {
        let_signals_through();
        action()
    })
}
