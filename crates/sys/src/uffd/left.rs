//! The userfaultfd of a process whose own thread that served it has ended: somebody who holds it keeps
//! touches of what is out waiting. Closed, they would find zeroes.
//!
//! It can be told whether anybody has that memory still, who that is, and that somebody waits.

use super::{CopyMode, Message, RawMsg, Uffd};
use crate::{AddressRange, Errno, Fd, PAGE_SIZE, file};

/// What such a descriptor is called.
const NAME: &[u8] = b"anon_inode:[userfaultfd]";
/// Nothing is mapped so low.
const NOWHERE: AddressRange = PAGE_SIZE..2 * PAGE_SIZE;

/// Such a descriptor. Its process is another one than the caller's, and has ended or is about to: nobody
/// else reads its messages.
#[derive(Debug)]
pub struct Left(Uffd);

impl Left {
    /// `None`: that is no userfaultfd.
    #[must_use]
    pub fn of(fd: Fd) -> Option<Left> {
        let is_one = file::name_of(&fd, &mut [0; 64]) == Some(NAME);
        is_one.then(|| Left(Uffd::received(fd)))
    }

    /// The descriptor, to poll for messages.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        self.0.fd()
    }

    /// Has any process that memory?
    #[must_use]
    pub fn is_anybodys(&self) -> bool {
        // SAFETY: nothing is there. Whether anybody has the memory the kernel asks first; a change that
        // is under way does not keep it from that.
        !matches!(unsafe { self.0.unregister(NOWHERE) }, Err(Errno::NOMEM | Errno::SRCH))
    }

    /// Reads what waits, and lets go on who told of a change. True: somebody waits for a page. `forked` gets
    /// the descriptors of children.
    pub fn hear(&self, mut forked: impl FnMut(Left)) -> Result<bool, Errno> {
        let (mut buffer, mut waits) = ([RawMsg::default(); 16], false);
        loop {
            let read = self.0.read_messages(&mut buffer)?;
            for message in &buffer[..read] {
                match message.decode() {
                    Message::Fault { .. } => waits = true,
                    Message::Fork { fd } => forked(Left(Uffd::received(fd))),
                    _ => {}
                }
            }
            if read == 0 {
                return Ok(waits);
            }
        }
    }

    /// Puts bytes into a page of that memory that was kept empty for this. EEXIST: something is there.
    pub fn mark(&self, page: usize, bytes: &[u8; PAGE_SIZE]) -> Result<(), Errno> {
        // SAFETY: the bytes are ours; nobody but who looks for them looks there.
        let put = unsafe { self.0.copy(page, bytes.as_ptr().addr(), PAGE_SIZE, CopyMode::empty()) };
        put.map_err(|partial| partial.errno)
    }
}
