//! Letters between two processes that share a socket: two numbers, and a descriptor if there is one
//! to hand over.
//!
//! Sockets are of the kind that keeps letters apart (SOCK_SEQPACKET) and say so when the other side
//! is gone, however that ended. Two processes have a pair, or one listens at an abstract name: no
//! file, any user, any pid namespace, but the same network namespace.

use core::mem::MaybeUninit;

use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
    socketpair, sockopt,
};

use crate::{Errno, Fd};

/// What one letter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// What it is about.
    pub kind: u64,
    /// And its number.
    pub value: u64,
}

const BYTES: usize = 16;

/// Two connected sockets, close-on-exec.
pub fn pair() -> Result<[Fd; 2], Errno> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok([owned(one), owned(other)])
}

fn named(name: &[u8]) -> Result<(Fd, SocketAddrUnix), Errno> {
    let address = SocketAddrUnix::new_abstract_name(name)?;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    Ok((owned(socket), address))
}

/// Listens at an abstract name. EADDRINUSE: somebody else does.
pub fn listen(name: &[u8]) -> Result<Fd, Errno> {
    const WAITING_MAX: i32 = 128;
    let (socket, address) = named(name)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

/// Waits for somebody who comes to a listening socket; whoever it is has neither been asked nor heard yet.
pub fn accept(socket: &Fd) -> Result<Fd, Errno> {
    rustix::net::accept_with(socket, SocketFlags::CLOEXEC).map(owned)
}

/// Goes to whoever listens at an abstract name. ECONNREFUSED: nobody does. EAGAIN: too many wait there.
pub fn connect(name: &[u8]) -> Result<Fd, Errno> {
    let (socket, address) = named(name)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// [`receive`] says EAGAIN after so long.
pub fn limit_patience(socket: &Fd, seconds: u64) -> Result<(), Errno> {
    let patience = core::time::Duration::from_secs(seconds);
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(patience))
}

/// Who is on the other side of a connected socket: process id (in the caller's pid namespace; 0: it
/// has none there) and user.
pub fn peer(socket: &Fd) -> Result<(u32, u32), Errno> {
    let credentials = sockopt::socket_peercred(socket)?;
    Ok((credentials.pid.as_raw_nonzero().get() as u32, credentials.uid.as_raw()))
}

/// Sends a letter; the descriptor arrives as a second one of the same file. EPIPE: the other side is gone.
pub fn send(socket: &Fd, letter: Letter, descriptor: Option<&Fd>) -> Result<(), Errno> {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&letter.kind.to_ne_bytes());
    bytes[8..].copy_from_slice(&letter.value.to_ne_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptor = descriptor.map(|fd| [fd.as_fd()]);
    if let Some(descriptor) = &descriptor {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptor));
        assert!(fits, "there is space for one descriptor");
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for a letter; `None`: the other side is gone. EBADMSG: that was no letter.
pub fn receive(socket: &Fd) -> Result<Option<(Letter, Option<Fd>)>, Errno> {
    let mut bytes = [0; BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    // A handler of the program's may have run on this thread.
    let count = match retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)) {
        Ok(message) => message.bytes,
        Err(Errno::CONNRESET) => 0,
        Err(errno) => return Err(errno),
    };
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next().map(owned),
        _ => None,
    });
    let number = |at: usize| u64::from_ne_bytes(core::array::from_fn(|n| bytes[at + n]));
    match count {
        0 => Ok(None),
        BYTES => Ok(Some((Letter { kind: number(0), value: number(8) }, descriptor))),
        _ => Err(Errno::BADMSG),
    }
}

/// Ends the conversation: the other side reads that this one is gone, and so does this one.
pub fn shut_down(socket: &Fd) {
    // It fails only where it is over already.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

fn owned(fd: OwnedFd) -> Fd {
    // SAFETY: the number was owned by what was just taken apart.
    unsafe { Fd::from_raw(fd.into_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_listened_at_and_the_other_side_is_known() {
        let name = std::format!("overspill-test-{}", std::process::id());
        assert_eq!(connect(name.as_bytes()).unwrap_err(), Errno::CONNREFUSED);
        let listener = listen(name.as_bytes()).unwrap();
        let one = connect(name.as_bytes()).unwrap();
        let other = accept(&listener).unwrap();
        let (pid, user) = peer(&other).unwrap();
        assert_eq!((pid, user), (std::process::id(), rustix::process::getuid().as_raw()));
        send(&other, Letter { kind: 1, value: 2 }, None).unwrap();
        assert!(matches!(receive(&one), Ok(Some((Letter { kind: 1, value: 2 }, None)))));
        limit_patience(&one, 1).unwrap();
        assert!(matches!(receive(&one), Err(Errno::AGAIN)));
    }

    #[test]
    fn letters_carry_descriptors_and_end_with_the_sender() {
        let [one, other] = pair().unwrap();
        let file = crate::file::memfd(c"letter").unwrap();
        crate::file::pwrite(&file, b"content", 0).unwrap();
        send(&one, Letter { kind: 7, value: u64::MAX }, Some(&file)).unwrap();
        send(&one, Letter { kind: 8, value: 9 }, None).unwrap();
        let (letter, descriptor) = receive(&other).unwrap().unwrap();
        assert_eq!(letter, Letter { kind: 7, value: u64::MAX });
        let mut bytes = [0; 7];
        crate::file::pread(&descriptor.unwrap(), &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"content");
        assert!(matches!(receive(&other), Ok(Some((Letter { kind: 8, value: 9 }, None)))));
        drop(one);
        assert!(matches!(receive(&other), Ok(None)));
        assert_eq!(send(&other, Letter { kind: 1, value: 1 }, None), Err(Errno::PIPE));
    }
}
