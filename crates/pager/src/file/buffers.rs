//! Memory that requests read into, beside the budget: a few pieces are kept for whoever reads next.
//!
//! *The story:* each thread kept its own, as large as its largest request. Two hundred threads had 200
//! MiB, beside a budget of 64.

use std::sync::{Mutex, TryLockError};

use overspill_sys::PAGE_SIZE;

use super::Page;

/// So many pieces are kept.
const KEPT: usize = 8;

/// The pieces that nobody uses.
pub(super) struct Buffers {
    spare: Mutex<Vec<Vec<Page>>>,
}

impl Buffers {
    pub const fn new() -> Buffers {
        Buffers { spare: Mutex::new(Vec::new()) }
    }

    /// Calls `body` with so many pages, which hold anything.
    pub fn with<T>(&self, pages: usize, body: impl FnOnce(&mut [Page]) -> T) -> T {
        let mut piece = self.with_spare(|spare| spare.pop()).flatten().unwrap_or_default();
        if piece.len() < pages {
            piece.resize(pages, Page([0; PAGE_SIZE]));
        }
        let outcome = body(&mut piece[..pages]);
        self.with_spare(|spare| {
            if spare.len() < KEPT {
                spare.push(piece);
            }
        });
        outcome
    }

    /// Nobody waits for it: a child of fork would do so for ever, if a thread of its parent's was at it.
    fn with_spare<T>(&self, look: impl FnOnce(&mut Vec<Vec<Page>>) -> T) -> Option<T> {
        match self.spare.try_lock() {
            Ok(mut spare) => Some(look(&mut spare)),
            Err(TryLockError::Poisoned(spare)) => Some(look(&mut spare.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn many_threads_leave_little_behind() {
        const THREADS: usize = 20;
        let (buffers, all) = (Buffers::new(), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (buffers, all) = (&buffers, &all);
                scope.spawn(move || {
                    buffers.with(256, |pages| {
                        pages.iter_mut().for_each(|page| page.0.fill(thread as u8));
                        all.wait();
                        let is_own = |page: &Page| page.0.iter().all(|&byte| byte == thread as u8);
                        assert!(pages.iter().all(is_own), "two have one piece");
                    });
                });
            }
        });
        let kept = |spare: &mut Vec<Vec<Page>>| spare.iter().map(Vec::len).sum::<usize>();
        let kept = buffers.with_spare(kept).expect("nobody is at it");
        assert!((256..=2048).contains(&kept), "{kept} pages of {}", THREADS * 256);
    }
}
