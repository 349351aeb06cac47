//! Mappings that children of vfork have made for what they hand on, which lie in their parents' memory.
//!
//! Such a child is gone from that memory when its exec succeeds, and nobody returns to unmap anything.
//! But the kernel goes over a thread's list of robust locks as it leaves a memory, by exec or by its
//! end, and marks those that it has: a child of vfork has no such list, and gets one, of the lock that
//! is the note of its mapping. What is marked is unmapped by whoever comes to it first: the next who
//! hands something on, or the agent when it looks.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_get_robust_list, __NR_set_robust_list, FUTEX_OWNER_DIED};
use overspill_sys::{AddressRange, thread};

use super::unmap;

/// So many threads are in vfork at a time, at most, while their children hand on much.
const NOTES: usize = 64;

/// What a note's lock says beside the number of the thread that has it, and that this one is gone.
const FREE: u32 = 0;
/// Somebody is about to change it. It is none of the bits of a thread's number.
const BUSY: u32 = 1 << 31;

/// A mapping, and a list of robust locks (`struct robust_list_head`) that has one lock: the note's own.
#[repr(C)]
struct Note {
    /// Of the list: its head, which is empty; the lock's place from there; the lock that is being taken.
    head: AtomicUsize,
    offset: AtomicUsize,
    pending: AtomicUsize,
    lock: AtomicU32,
    /// 0: it is not mapped, or no more.
    start: AtomicUsize,
    len: AtomicUsize,
}
const HEAD_BYTES: usize = core::mem::offset_of!(Note, lock);
const _: () = assert!(HEAD_BYTES == 3 * size_of::<usize>());

static ALL: [Note; NOTES] = [const { Note::new() }; NOTES];

impl Note {
    const fn new() -> Note {
        Note {
            head: AtomicUsize::new(0),
            offset: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            lock: AtomicU32::new(FREE),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
        }
    }

    fn take(&self, from: u32) -> bool {
        self.lock.compare_exchange(from, BUSY, SeqCst, SeqCst).is_ok()
    }

    fn unmap(&self) {
        let start = self.start.swap(0, SeqCst);
        if start != 0 {
            unmap(start..start + self.len.load(SeqCst));
        }
    }
}

/// A note that the calling thread has.
#[derive(PartialEq, Eq)]
pub struct Noted(usize);

/// Notes a mapping of the calling thread, which is a child of vfork: it goes with that. `None`: there are
/// too many.
pub fn note(mapping: &AddressRange) -> Option<Noted> {
    let place = ALL.iter().position(|note| note.take(FREE))?;
    let note = &ALL[place];
    note.len.store(mapping.len(), SeqCst);
    note.start.store(mapping.start, SeqCst);
    let address = core::ptr::from_ref(note) as usize;
    note.head.store(address, SeqCst);
    note.offset.store(HEAD_BYTES, SeqCst);
    note.pending.store(address, SeqCst);
    note.lock.store(thread::id(), SeqCst);
    set_list(address);
    Some(Noted(place))
}

impl Noted {
    /// The call has failed: unmaps it.
    pub fn end(self) {
        let note = &ALL[self.0];
        set_list(0);
        note.lock.store(BUSY, SeqCst);
        note.unmap();
        note.lock.store(FREE, SeqCst);
    }
}

/// Does the calling thread have a list of its own? Then it is no child of vfork: the C library gives it one
/// in a process that was made otherwise, where nothing has to be given back.
pub fn has_list() -> bool {
    let (mut list, mut bytes) = (0_usize, 0_usize);
    let arguments = [0, &raw mut list as usize, &raw mut bytes as usize, 0, 0, 0];
    // SAFETY: writes to the two words.
    unsafe { overspill_sys::call(__NR_get_robust_list, arguments) }.is_ok() && list != 0
}

fn set_list(address: usize) {
    // SAFETY: null, or a list in memory that stays; the thread is a child of vfork and had none.
    let _ = unsafe { overspill_sys::call(__NR_set_robust_list, [address, HEAD_BYTES, 0, 0, 0, 0]) };
}

/// Unmaps what children have left that are gone.
pub fn give_back() {
    for note in &ALL {
        if note.lock.load(SeqCst) == FUTEX_OWNER_DIED && note.take(FUTEX_OWNER_DIED) {
            note.unmap();
            note.lock.store(FREE, SeqCst);
        }
    }
}

/// In a child of fork: it has its parent's mappings, and nobody who made them.
pub fn in_child() {
    for note in &ALL {
        note.unmap();
        note.lock.store(FREE, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::map;

    /// A thread's list is what a child of vfork gets, and the kernel does the same at its end.
    ///
    /// *The story* (by reading): a mapping of a child of vfork would have stayed with its parent for ever.
    #[test]
    fn what_a_thread_leaves_is_given_back() {
        let mapping = map(1 << 16).unwrap();
        let noted = mapping.clone();
        let place = std::thread::spawn(move || {
            let place = note(&noted).unwrap().0;
            give_back();
            assert_ne!(ALL[place].start.load(SeqCst), 0, "it is there while the thread is");
            place
        });
        let place = place.join().unwrap();
        for _ in 0..1000 {
            give_back();
            if ALL[place].start.load(SeqCst) == 0 {
                break;
            }
            overspill_sys::clock::sleep_ns(1_000_000);
        }
        assert_eq!((ALL[place].start.load(SeqCst), ALL[place].lock.load(SeqCst)), (0, FREE));
    }

    #[test]
    fn a_thread_of_the_c_librarys_has_a_list() {
        assert!(has_list());
    }

    #[test]
    fn what_failed_is_unmapped_at_once() {
        std::thread::spawn(|| {
            let noted = note(&map(1 << 16).unwrap()).unwrap();
            let place = noted.0;
            noted.end();
            assert_eq!(ALL[place].start.load(SeqCst), 0);
        })
        .join()
        .unwrap();
    }
}
