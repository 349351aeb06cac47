//! Letters between two processes that share a socket: two numbers, and a descriptor if there is one
//! to hand over.
//!
//! Sockets are of the kind that keeps letters apart (SOCK_SEQPACKET) and say so when the other side
//! is gone, however that ended. Two processes have a pair, or one listens: at an abstract name (no
//! file, any user, any pid namespace, but the same network namespace) or at a file (whoever may write to
//! it, from any namespace in which it is seen).

use core::ffi::CStr;
use core::mem::MaybeUninit;

use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
    socketpair, sockopt,
};

use crate::raw::{nr, syscall};
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
/// So many may wait to be let in.
const WAITING_MAX: i32 = 128;

/// Two connected sockets, close-on-exec.
pub fn pair() -> Result<[Fd; 2], Errno> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok([owned(one), owned(other)])
}

/// Where one listens.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// An abstract name.
    Name(&'a [u8]),
    /// A path, of at most 107 bytes.
    File(&'a CStr),
}

impl Place<'_> {
    fn address(self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Place::Name(name) => SocketAddrUnix::new_abstract_name(name),
            Place::File(path) => SocketAddrUnix::new(path),
        }
    }
}

fn unconnected() -> Result<Fd, Errno> {
    let kind = SocketType::SEQPACKET;
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map(owned)
}

/// Listens there; a file is made. EADDRINUSE: somebody else does, or there is such a file.
pub fn listen(place: Place) -> Result<Fd, Errno> {
    let (address, socket) = (place.address()?, unconnected()?);
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

/// Waits for somebody who comes to a listening socket; whoever it is has neither been asked nor heard yet.
pub fn accept(socket: &Fd) -> Result<Fd, Errno> {
    rustix::net::accept_with(socket, SocketFlags::CLOEXEC).map(owned)
}

/// Goes to whoever listens there. ECONNREFUSED, ENOENT: nobody does. EAGAIN: too many wait there
/// for so long. [`receive`] says it, too, where nothing comes for so long.
///
/// *The story:* only the answer had a limit. The launcher was stopped, its queue full, and whoever
/// was started next waited before its first instruction.
pub fn connect(place: Place, patience_s: u64) -> Result<Fd, Errno> {
    let (address, socket) = (place.address()?, unconnected()?);
    let patience = Some(core::time::Duration::from_secs(patience_s));
    for wait in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, wait, patience)?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Who is on the other side of a connected socket: process id (in the caller's pid namespace; 0: it
/// has none there) and user.
///
/// *The story:* rustix has a structure for it in which the process id is never 0.
pub fn peer(socket: &Fd) -> Result<(u32, u32), Errno> {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    let mut credentials = [0u32; 3]; // `struct ucred`: process, user, group
    let mut len = size_of_val(&credentials) as u32;
    let (out, out_len) = (credentials.as_mut_ptr() as usize, &raw mut len as usize);
    let asked = socket.raw() as usize;
    // SAFETY: the call writes at most three words, and their length.
    unsafe { syscall!(nr::__NR_getsockopt, asked, SOL_SOCKET, SO_PEERCRED, out, out_len)? };
    Ok((credentials[0], credentials[1]))
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
        let name = Place::Name(name.as_bytes());
        assert_eq!(connect(name, 1).unwrap_err(), Errno::CONNREFUSED);
        let listener = listen(name).unwrap();
        let one = connect(name, 1).unwrap();
        let other = accept(&listener).unwrap();
        let (pid, user) = peer(&other).unwrap();
        assert_eq!((pid, user), (std::process::id(), rustix::process::getuid().as_raw()));
        send(&other, Letter { kind: 1, value: 2 }, None).unwrap();
        assert!(matches!(receive(&one), Ok(Some((Letter { kind: 1, value: 2 }, None)))));
        assert!(matches!(receive(&one), Err(Errno::AGAIN)));
    }

    #[test]
    fn nobody_waits_for_ever_where_nobody_is_let_in() {
        let name = std::format!("overspill-full-{}", std::process::id());
        let name = Place::Name(name.as_bytes());
        let _listener = listen(name).unwrap();
        let waiting: Result<std::vec::Vec<Fd>, Errno> =
            (0..WAITING_MAX + 2).map(|_| connect(name, 1)).collect();
        assert_eq!(waiting.unwrap_err(), Errno::AGAIN);
    }

    /// A child in a pid namespace of its own asks who made the sockets: nobody that it has a number for.
    #[test]
    fn a_peer_outside_of_the_namespace_has_no_number() {
        const REFUSED: i32 = 2;
        let [one, _other] = pair().unwrap();
        let in_child = |act: &dyn Fn() -> i32| {
            // SAFETY: the child makes system calls only, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(act()) }
            }
            let mut status = 0;
            // SAFETY: the child is ours, the status too.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        };
        let asks = || i32::from(peer(&one).map(|(pid, _)| pid) != Ok(0));
        let moves = || {
            // SAFETY: concerns children of this child.
            match unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } {
                0 => in_child(&asks),
                _ => REFUSED,
            }
        };
        match in_child(&moves) {
            REFUSED => std::eprintln!("no namespace can be made here"),
            found => assert_eq!(found, 0),
        }
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
