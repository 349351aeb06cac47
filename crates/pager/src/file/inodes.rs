//! Which files a pager has open, by inode: all who open one have one cache, as they would have the
//! kernel's, and no shared mapping beside it.
//!
//! *The story:* each `File` had a cache of its own, and a shared mapping knew of none. Two stores
//! within a page were two copies of it, and the one that was written later undid the other.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::threads::Threads;
use crate::process::Process;

/// A device and a number.
pub(crate) type Key = (u64, u64);

/// Why a file with a shared mapping is not opened.
pub(super) const IS_MAPPED: &str =
    "it is mapped with stores that are the file's: a cached file beside that would not see them";
const IS_OPEN: &str =
    "it is open as a cached file: a mapping's stores and the cache's would undo one another";
const IS_CLAIMED: &str =
    "these bytes have a shared mapping already: the stores to both would undo one another";

/// The files of a pager that are in use.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    all: Mutex<Vec<(Key, Arc<Inode>)>>,
}

impl Inodes {
    /// The one of that name. It is the caller's to have the file open.
    pub fn of(&self, key: Key) -> Arc<Inode> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that only this list knows are in nobody's use, and nobody comes to them meanwhile.
        all.retain(|(_, inode)| Arc::strong_count(inode) > 1);
        if let Some((_, inode)) = all.iter().find(|(other, _)| *other == key) {
            return Arc::clone(inode);
        }
        let inode = Arc::<Inode>::default();
        all.push((key, Arc::clone(&inode)));
        inode
    }
}

/// A file, whatever it is called.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    users: Mutex<Users>,
}

/// Who uses it.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Those who have it open.
    pub threads: Option<Arc<Threads>>,
    /// Bytes to which shared mappings write.
    claimed: Vec<Range<u64>>,
}

impl Users {
    pub fn is_mapped(&self) -> bool {
        !self.claimed.is_empty()
    }
}

impl Inode {
    /// Held while somebody opens or closes it.
    pub(super) fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes are mapped so that stores to them are the file's.
    ///
    /// # Errors
    /// Why they cannot be.
    pub fn claim(self: Arc<Inode>, bytes: Range<u64>) -> Result<Claim, &'static str> {
        let mut users = self.users();
        if users.threads.is_some() {
            return Err(IS_OPEN);
        }
        if users.claimed.iter().any(|other| other.start < bytes.end && bytes.start < other.end) {
            return Err(IS_CLAIMED);
        }
        users.claimed.push(bytes.clone());
        drop(users);
        Ok(Claim { inode: self, bytes, process: Process::this() })
    }
}

/// Bytes of a file that are a mapping's, as long as it lives.
#[derive(Debug)]
pub(crate) struct Claim {
    inode: Arc<Inode>,
    bytes: Range<u64>,
    process: Process,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // In a child of fork a thread of the parent's may have the lock for ever.
        if self.process.is_this() {
            self.inode.users().claimed.retain(|other| *other != self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_mapping_at_a_time() {
        let inodes = Inodes::default();
        let first = inodes.of((1, 2)).claim(0..5000).unwrap();
        let second = inodes.of((1, 2)).claim(5000..9000).unwrap();
        assert!(inodes.of((1, 2)).users().is_mapped() && !inodes.of((1, 3)).users().is_mapped());
        assert!(inodes.of((1, 3)).claim(0..u64::MAX).is_ok());
        for bytes in [0..1, 4999..5001, 8999..u64::MAX, 0..u64::MAX] {
            assert_eq!(inodes.of((1, 2)).claim(bytes).err(), Some(IS_CLAIMED));
        }
        drop(first);
        let third = inodes.of((1, 2)).claim(4096..5000).unwrap();
        drop((second, third));
        assert!(!inodes.of((1, 2)).users().is_mapped());
        assert_eq!(inodes.all.lock().unwrap().len(), 1, "what nobody uses is forgotten");
    }
}
