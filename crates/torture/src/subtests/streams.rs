//! read, write and their vectored forms through pipes, files and sockets, with the buffers, the
//! vectors and the message headers themselves out of RAM.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::context::Context;
use crate::memory::{Memory, PAGE};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x57e4;
/// Vectors live here in the memory; the payload begins behind them.
const VECTORS_OFFSET: usize = 64;
const PAYLOAD_OFFSET: usize = 4 * PAGE;
const PARTS_MAX: usize = 9;

/// Two cold memories: a full source, and a target with other content.
fn source_and_target(context: &mut Context) -> Outcome<(Memory, Memory)> {
    let (source, target) = (context.subject(SEED)?, context.subject(SEED + 1)?);
    context.cool(&target)?;
    context.cool(&source)?;
    Ok((source, target))
}

/// `pipes`: a writer thread empties cold memory into a pipe, this thread fills cold memory from it.
pub fn pipes(context: &mut Context) -> Outcome {
    let (source, target) = source_and_target(context)?;
    let (reader, writer) = sys::pipe()?;
    transfer(context, &source, &target, reader, writer)?;
    pattern::check_pages(&target, 4..target.pages() - 1, SEED, "through a pipe")
}

/// `sockets`: the same over a socket pair, then with message headers, addresses and control data in
/// cold memory.
pub fn sockets(context: &mut Context) -> Outcome {
    let (source, target) = source_and_target(context)?;
    let (one, other) = socket_pair(libc::SOCK_STREAM)?;
    transfer(context, &source, &target, one, other)?;
    pattern::check_pages(&target, 4..target.pages() - 1, SEED, "over a socket")?;
    messages(context)
}

fn socket_pair(kind: i32) -> Outcome<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    let result = unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    sys::check("socketpair", result as isize)?;
    // SAFETY: the kernel has just given these two to us alone.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn transfer(
    context: &mut Context,
    source: &Memory,
    target: &Memory,
    reader: OwnedFd,
    writer: OwnedFd,
) -> Outcome {
    let len = source.len() - PAGE - PAYLOAD_OFFSET;
    context.under_pressure(|context| {
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                move_pieces(context.rng(0), source, len, |vector, count| {
                    // SAFETY: the kernel checks the vector and the buffers, and only reads.
                    sys::check("writev", unsafe { libc::writev(writer.as_raw_fd(), vector, count) })
                })
            });
            let received = move_pieces(context.rng(1), target, len, |vector, count| {
                // SAFETY: the buffers lie in `target`, which nobody else touches.
                sys::check("readv", unsafe { libc::readv(reader.as_raw_fd(), vector, count) })
            });
            drop(reader);
            sender.join().expect("a panic ends the process").and(received)
        })
    })
}

/// Moves `len` bytes of the payload in pieces of random sizes and numbers; `call` gets a vector
/// that lies in the memory.
fn move_pieces(
    mut rng: Rng,
    memory: &Memory,
    len: usize,
    call: impl Fn(*const libc::iovec, i32) -> Outcome<usize>,
) -> Outcome {
    let mut done = 0;
    while done < len {
        let parts = 1 + rng.below(PARTS_MAX);
        let mut start = done;
        for part in 0..parts {
            let size = (1 + rng.below(40_000)).min(len - start);
            let vector = libc::iovec { iov_base: memory.at(PAYLOAD_OFFSET + start).cast(), iov_len: size };
            // SAFETY: aligned and in bounds; the head of the memory holds vectors and nothing else.
            unsafe { memory.place::<libc::iovec>(VECTORS_OFFSET).add(part).write(vector) };
            start += size;
        }
        let count = call(memory.place(VECTORS_OFFSET), parts as i32)?;
        ensure!(count > 0 && count <= start - done, "a call moved {count} of {} bytes", start - done);
        done += count;
    }
    Ok(())
}

/// Datagrams whose headers, vectors, payloads and control data are all cold, on both sides; each
/// passes a descriptor.
fn messages(context: &mut Context) -> Outcome {
    let (sending, receiving) = (context.subject(SEED)?, context.subject(SEED + 1)?);
    let (one, other) = socket_pair(libc::SOCK_DGRAM)?;
    let (passed, _) = sys::pipe()?;
    for number in 0..8 {
        let (from, to) = (Message::new(&sending, number), Message::new(&receiving, number));
        from.prepare(Some(passed.as_raw_fd()));
        to.prepare(None);
        context.cool(&sending)?;
        context.cool(&receiving)?;
        // SAFETY: the header and all it points to lie in memory of ours.
        let sent = unsafe { libc::sendmsg(one.as_raw_fd(), from.header(), 0) };
        let sent = sys::check("sendmsg", sent)?;
        // SAFETY: as above.
        let received = unsafe { libc::recvmsg(other.as_raw_fd(), to.header(), libc::MSG_CMSG_CLOEXEC) };
        let received = sys::check("recvmsg", received)?;
        ensure!(sent == received && sent == Message::PAYLOAD, "sent {sent}, received {received} bytes");
        to.check(from.payload_offset())?;
    }
    Ok(())
}

/// One message in a memory: header, vector and control data in pages of their own, far apart, then
/// the payload.
struct Message<'a> {
    memory: &'a Memory,
    start: usize,
}

impl<'a> Message<'a> {
    const PAYLOAD: usize = 50_001;
    const CONTROL: usize = 64;

    fn new(memory: &'a Memory, number: usize) -> Self {
        Self { memory, start: number * 128 * PAGE + 24 }
    }

    fn header(&self) -> *mut libc::msghdr {
        self.memory.place(self.start)
    }

    fn payload_offset(&self) -> usize {
        self.start + 64 * PAGE + 123
    }

    fn prepare(&self, pass: Option<i32>) {
        let vector: *mut libc::iovec = self.memory.place(self.start + 16 * PAGE);
        let control: *mut libc::cmsghdr = self.memory.place(self.start + 32 * PAGE);
        // SAFETY: three places in memory of ours, aligned (asserted by `place`), in pages of their
        // own; CMSG_LEN and CMSG_DATA only compute. All-zero is a valid msghdr.
        unsafe {
            vector.write(libc::iovec {
                iov_base: self.memory.at(self.payload_offset()).cast(),
                iov_len: Self::PAYLOAD,
            });
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.cast();
            header.msg_controllen = Self::CONTROL;
            if let Some(fd) = pass {
                header.msg_controllen = libc::CMSG_SPACE(4) as usize;
                (*control).cmsg_len = libc::CMSG_LEN(4) as usize;
                (*control).cmsg_level = libc::SOL_SOCKET;
                (*control).cmsg_type = libc::SCM_RIGHTS;
                libc::CMSG_DATA(control).cast::<i32>().write_unaligned(fd);
            }
            self.header().write(header);
        }
    }

    fn check(&self, source_offset: usize) -> Outcome {
        let control: *mut libc::cmsghdr = self.memory.place(self.start + 32 * PAGE);
        // SAFETY: recvmsg has just filled the control data and the payload, and nobody else touches them.
        unsafe {
            ensure!((*control).cmsg_type == libc::SCM_RIGHTS, "no descriptor came with the message");
            let fd = OwnedFd::from_raw_fd(libc::CMSG_DATA(control).cast::<i32>().read_unaligned());
            ensure!(libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) >= 0, "the descriptor that came is not open");
            let payload = std::slice::from_raw_parts(self.memory.at(self.payload_offset()), Self::PAYLOAD);
            pattern::check_bytes(SEED, source_offset, payload, "message")
        }
    }
}
