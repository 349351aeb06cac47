//! The launcher keeps a second descriptor of the managed memory, for who may have that longer than this
//! process lives: a child of vfork or posix_spawn, or what shares memory by the bare instruction. The agent
//! ends with its process. With the last descriptor the kernel would forget that memory is managed, and
//! show zeroes where pages are out. As it is, who touches such a page waits; what becomes of it is the
//! launcher's to decide (`cli/run/launch/custody.rs`).
//!
//! The connection says when this process has ended: it goes with it, however that ends. What was sent
//! is kept by the kernel from that moment on, whether the launcher has come to it or not.
//!
//! *The story:* a thread was in vfork when another one ended the process. The child read zeroes in 34,715
//! of 49,152 pages (`torture fork-vfork-orphan`).

use overspill_engine::Engine;
use overspill_engine::shared::{CUSTODY_FILE, custody_name, letters};
use overspill_sys::Fd;
use overspill_sys::socket::{self, Letter};

use crate::{fork, launcher, settings, start};

/// For so long it waits for a launcher that is stopped.
const PATIENCE_S: u64 = 1;

/// The launcher has a second descriptor.
pub struct Custody(Fd);

impl Custody {
    /// `None`: there is no launcher, it cannot be reached, or there are few descriptors.
    ///
    /// *The story:* of ten this took the last, and no memory could be registered (`trees::few-descriptors`).
    pub fn give(engine: &Engine) -> Option<Custody> {
        if !settings::is_rich() {
            return None;
        }
        let launcher =
            launcher::reach(&custody_name(start::address().token), CUSTODY_FILE, PATIENCE_S).ok()?;
        // A page that is never there.
        let page = fork::mailbox().start as u64;
        let letter = Letter { kind: letters::ENTRUSTED, value: page };
        socket::send(&launcher, letter, Some(engine.descriptor())).ok()?;
        Some(Custody(launcher))
    }

    /// Nothing is managed any more, and the process goes on.
    pub fn take_back(self) {
        let _ = socket::send(&self.0, Letter { kind: letters::TAKEN_BACK, value: 0 }, None);
    }
}
