//! Pages lent to the kernel by reference, by calls that are hard to hear of: they are evicted
//! meanwhile, and what the borrower reads must be what they held at the call.
//!
//! *The story:* the pager heard of vmsplice and of SO_ZEROCOPY where libc's functions were called,
//! and of io_uring's SEND_ZC never: 1940 of 2048 pages went out with another page's bytes.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use io_uring::{IoUring, opcode, types};

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE};
use crate::outcome::{Failure, Outcome};
use crate::{child, ensure, pattern, sys};

const SEED: u64 = 0x1e4d;
/// What is sent, and in what pieces.
const LEN: usize = 8 * MIB;
const PIECE: usize = MIB;

/// `send-zc`: io_uring sends from memory that goes cold before the other side reads.
pub fn send_zc(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let (sender, receiver) = connection()?;
    let mut ring = IoUring::new(16)?;
    for piece in 0..LEN / PIECE {
        let fd = types::Fd(sender.as_raw_fd());
        let entry = opcode::SendZc::new(fd, memory.at(piece * PIECE), PIECE as u32)
            .flags(libc::MSG_WAITALL)
            .build()
            .flags(io_uring::squeue::Flags::IO_LINK);
        // SAFETY: the memory stays mapped until all of it was received.
        unsafe { ring.submission().push(&entry) }.map_err(|_| Failure("the ring is full".to_owned()))?;
    }
    ring.submit()?;
    late(context, &memory, &receiver)
}

/// `zero-copy`: the same by MSG_ZEROCOPY, which the socket is told by the bare instruction.
pub fn zero_copy(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let (sender, receiver) = connection()?;
    let on = 1i32;
    let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_ZEROCOPY as usize);
    let (value, len) = (&raw const on as usize, size_of::<i32>());
    let arguments = [sender.as_raw_fd() as usize, level, option, value, len, 0];
    // SAFETY: the call reads an integer.
    sys::check("setsockopt", unsafe { sys::bare(libc::SYS_setsockopt, arguments) })?;
    send_by_reference(&sender, &memory)?;
    late(context, &memory, &receiver)
}

/// `zero-copy-shared`: the same, where another process asked for it, by a socket that is closed at once.
///
/// *The story:* who is asked each half second was closed by then.
pub fn zero_copy_shared(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let (sender, receiver) = connection()?;
    let asks = child::fork(|| {
        let on = 1i32;
        let (fd, option, len) = (sender.as_raw_fd(), libc::SO_ZEROCOPY, size_of::<i32>() as u32);
        // SAFETY: the call reads an integer.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const on).cast(), len) };
        sys::check("setsockopt", set as isize).map(drop)
    })?;
    asks.succeed("who asks")?;
    send_by_reference(&sender, &memory)?;
    drop(sender);
    late(context, &memory, &receiver)
}

/// Sends the first of the memory by MSG_ZEROCOPY. It is to stay as it is until all was received.
fn send_by_reference(sender: &TcpStream, memory: &Memory) -> Outcome {
    for piece in 0..LEN / PIECE {
        let (fd, address) = (sender.as_raw_fd(), memory.at(piece * PIECE));
        // SAFETY: the memory stays mapped until all of it was received.
        let sent = unsafe { libc::send(fd, address.cast(), PIECE, libc::MSG_ZEROCOPY) };
        ensure!(sys::check("send", sent)? == PIECE, "send took {sent} of {PIECE} bytes");
    }
    Ok(())
}

/// A connection with room for all that is sent on the sender's side.
fn connection() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    let bytes = 2 * LEN as i32;
    let (value, len) = ((&raw const bytes).cast(), size_of::<i32>() as u32);
    let fd = sender.as_raw_fd();
    // SAFETY: the call reads an integer. Beyond the limit of the system is a privilege, without
    // which less is lent.
    let forced = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value, len) };
    if forced != 0 {
        // SAFETY: as above.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, value, len) };
        sys::check("setsockopt", set as isize)?;
    }
    Ok((sender, receiver))
}

/// What was lent is received after its memory went cold, and other memory went through the frames.
fn late(context: &mut Context, memory: &Memory, receiver: &TcpStream) -> Outcome {
    sys::pause_ms(50);
    context.cool(memory)?;
    context.press()?;
    let mut found = vec![0; PIECE];
    for piece in 0..LEN / PIECE {
        sys::read_all(receiver.as_raw_fd(), found.as_mut_ptr(), PIECE)?;
        pattern::check_bytes(SEED, piece * PIECE, &found, "sent from its own page")?;
    }
    pattern::check_pages(memory, 0..memory.pages(), SEED, "sent, cold again")
}

/// `splice-bare`: `splice`, with vmsplice called by libc's syscall(2), and passed on by tee.
pub fn splice_bare(context: &mut Context) -> Outcome {
    const PIPED: usize = 8 * PAGE;
    const PIPES: usize = 64;
    let memory = context.subject(SEED)?;
    let pipes = (0..PIPES).map(|_| sys::pipe()).collect::<Outcome<Vec<_>>>()?;
    let copies = (0..PIPES).map(|_| sys::pipe()).collect::<Outcome<Vec<_>>>()?;
    for round in 0..4 {
        context.cool(&memory)?;
        let offset = |pipe: usize| memory.len() / PIPES * pipe / PAGE * PAGE + round * PAGE;
        for (pipe, (source, writer)) in pipes.iter().enumerate() {
            let vector = libc::iovec { iov_base: memory.at(offset(pipe)).cast(), iov_len: PIPED };
            let fd = writer.as_raw_fd();
            // SAFETY: the kernel takes references to pages of ours, which stay as they are until
            // they are read below.
            let lent = unsafe { libc::syscall(libc::SYS_vmsplice, fd, &raw const vector, 1, 0) };
            let lent = sys::check("vmsplice", lent as isize)?;
            ensure!(lent == PIPED, "vmsplice took {lent} of {PIPED} bytes");
            let (source, target) = (source.as_raw_fd() as usize, copies[pipe].1.as_raw_fd() as usize);
            // SAFETY: concerns pipes of ours.
            let copied = unsafe { sys::bare(libc::SYS_tee, [source, target, PIPED, 0, 0, 0]) };
            ensure!(sys::check("tee", copied)? == PIPED, "tee passed {copied} of {PIPED} bytes on");
        }
        context.press()?;
        for (pipe, (reader, _)) in pipes.iter().enumerate().chain(copies.iter().enumerate()) {
            let mut found = vec![0; PIPED];
            sys::read_all(reader.as_raw_fd(), found.as_mut_ptr(), PIPED)?;
            pattern::check_bytes(SEED, offset(pipe), &found, "lent to a pipe unheard")?;
        }
    }
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "lent to a pipe, cold again")
}

/// Pipes that hold a few pages each, by the bare instruction.
struct Lent {
    pipes: Vec<(OwnedFd, OwnedFd)>,
    offsets: Vec<usize>,
}

const LENT: usize = 8 * PAGE;
const LENDERS: usize = 64;

impl Lent {
    fn open() -> Outcome<Lent> {
        Ok(Lent { pipes: (0..LENDERS).map(|_| sys::pipe()).collect::<Outcome<_>>()?, offsets: Vec::new() })
    }

    /// Puts pages into each, others in each round.
    fn fill(&mut self, memory: &Memory, round: usize) -> Outcome {
        self.offsets =
            (0..LENDERS).map(|n| memory.len() / LENDERS * n / PAGE * PAGE + round * PAGE).collect();
        for ((_, writer), &offset) in self.pipes.iter().zip(&self.offsets) {
            let vector = libc::iovec { iov_base: memory.at(offset).cast(), iov_len: LENT };
            let arguments = [writer.as_raw_fd() as usize, &raw const vector as usize, 1, 0, 0, 0];
            // SAFETY: the kernel takes references to pages of ours, which stay as they are until
            // they are read.
            let lent = sys::check("vmsplice", unsafe { sys::bare(libc::SYS_vmsplice, arguments) })?;
            ensure!(lent == LENT, "vmsplice took {lent} of {LENT} bytes");
        }
        Ok(())
    }

    /// What comes out of `ends`, which hold what was put in, after memory went cold.
    fn check<'a>(&self, ends: impl Iterator<Item = &'a OwnedFd>) -> Outcome {
        for (end, &offset) in ends.zip(&self.offsets) {
            let mut found = vec![0; LENT];
            sys::read_all(end.as_raw_fd(), found.as_mut_ptr(), LENT)?;
            pattern::check_bytes(SEED, offset, &found, "lent to a pipe unheard")?;
        }
        Ok(())
    }
}

/// `splice-own`: pipes that the program reads itself, as a Go program has them.
///
/// *The story:* a pipe counted only while it was full and somebody else read from it: of 48 pipes
/// of a program's own 40 gave another page's bytes.
pub fn splice_own(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let mut lent = Lent::open()?;
    for round in 0..4 {
        context.cool(&memory)?;
        lent.fill(&memory, round)?;
        context.press()?;
        lent.check(lent.pipes.iter().map(|(reader, _)| reader))?;
    }
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "lent to a pipe, cold again")
}

/// `splice-on`: the pages are passed on from the pipes, which are empty then, into sockets.
pub fn splice_on(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let mut lent = Lent::open()?;
    let sockets = (0..LENDERS).map(|_| UnixStream::pair()).collect::<std::io::Result<Vec<_>>>()?;
    let receivers = sockets.iter().map(|(_, to)| Ok(OwnedFd::from(to.try_clone()?)));
    let receivers = receivers.collect::<std::io::Result<Vec<_>>>()?;
    for round in 0..4 {
        context.cool(&memory)?;
        lent.fill(&memory, round)?;
        for ((reader, _), (from, _)) in lent.pipes.iter().zip(&sockets) {
            let arguments = [reader.as_raw_fd() as usize, 0, from.as_raw_fd() as usize, 0, LENT, 0];
            // SAFETY: concerns a pipe and a socket of ours.
            let passed = sys::check("splice", unsafe { sys::bare(libc::SYS_splice, arguments) })?;
            ensure!(passed == LENT, "splice passed {passed} of {LENT} bytes on");
        }
        context.press()?;
        lent.check(receivers.iter())?;
    }
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "lent to a socket, cold again")
}
