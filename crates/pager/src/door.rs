//! Where other processes come in: a thread that talks to those who join a shared region, and
//! notices when they are gone.
//!
//! For each of them there is a socket. The letters, in order: hello (with the region's file; the
//! length), here (with the userfaultfd on which the file's mapping is registered; the mapping's
//! address), welcome (0, or the reason why not), and released, when the pager ends and leaves the
//! memory to those who map it. The end of the conversation is the end of the process, however that
//! came. The pager's own thread talks to nobody: others may be slow.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use overspill_engine::{MapperId, Place};
use overspill_sys::event::{self, Bell, PollFd};
use overspill_sys::socket::{self, Letter};
use overspill_sys::uffd::Uffd;
use overspill_sys::{Errno, Fd, clock, thread};

use crate::Error;
use crate::link::Wire;

/// Kinds of letters. They tell the version, too: what is changed gets another number.
pub(crate) const HELLO: u64 = 0x6f76_6572_0000_0001;
pub(crate) const HERE: u64 = 0x6f76_6572_0000_0002;
pub(crate) const WELCOME: u64 = 0x6f76_6572_0000_0003;
pub(crate) const RELEASED: u64 = 0x6f76_6572_0000_0004;

/// Between two looks where one cannot wait.
const REST_NS: u64 = 1_000_000;

/// The door of one pager.
#[derive(Debug)]
pub(crate) struct Door {
    lobby: Arc<Lobby>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Lobby {
    bell: Bell,
    /// Who was invited since the bell rang last; `None` once the door is to close.
    invited: Mutex<Option<Vec<Guest>>>,
}

#[derive(Debug)]
struct Guest {
    socket: Fd,
    region: Place,
    /// Since it has joined.
    mapper: Option<MapperId>,
}

impl Door {
    /// Starts the thread.
    pub fn open(wire: Arc<Wire>) -> Result<Door, Error> {
        let bell = Bell::new().map_err(Error::Share)?;
        let lobby = Arc::new(Lobby { bell, invited: Mutex::new(Some(Vec::new())) });
        let watched = Arc::clone(&lobby);
        let thread = std::thread::Builder::new()
            .name("overspill door".into())
            .spawn(move || {
                let _ = thread::block_program_signals();
                attend(&watched, &wire);
            })
            .map_err(|_| Error::Share(Errno::AGAIN))?;
        Ok(Door { lobby, thread: Some(thread) })
    }

    /// One end of a new socket, over which a process can join the region.
    pub fn invite(&self, region: Place, file: &Fd, len: usize) -> Result<Fd, Error> {
        let [ours, theirs] = socket::pair().map_err(Error::Share)?;
        let hello = Letter { kind: HELLO, value: len as u64 };
        socket::send(&ours, hello, Some(file)).map_err(Error::Share)?;
        let mut invited = self.lobby.invited.lock().unwrap_or_else(PoisonError::into_inner);
        let guests = invited.as_mut().ok_or(Error::Stopped)?;
        guests.push(Guest { socket: ours, region, mapper: None });
        self.lobby.bell.ring();
        Ok(theirs)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        *self.lobby.invited.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.lobby.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attend(lobby: &Lobby, wire: &Wire) {
    let mut guests: Vec<Guest> = Vec::new();
    loop {
        let sockets = guests.iter().map(|guest| &guest.socket);
        let mut fds: Vec<PollFd> =
            std::iter::once(lobby.bell.fd()).chain(sockets).map(PollFd::readable).collect();
        if event::poll(&mut fds, None).is_err() {
            // The process may have fewer descriptors now than are waited for. Nobody is ready, but the
            // door may have to close. By reading: it went round at full speed, and never did.
            clock::sleep_ns(REST_NS);
        }
        let mut ready = fds[1..].iter().map(PollFd::is_ready);
        guests.retain_mut(|guest| !ready.next().unwrap_or(false) || stays(guest, wire));
        if lobby.bell.hush() {
            match &mut *lobby.invited.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(invited) => guests.append(invited),
                None => break,
            }
        }
    }
    for guest in guests.iter().filter(|guest| guest.mapper.is_some()) {
        let _ = socket::send(&guest.socket, Letter { kind: RELEASED, value: 0 }, None);
    }
}

/// Hears what a guest has to say; false when that was the last of it.
fn stays(guest: &mut Guest, wire: &Wire) -> bool {
    match (socket::receive(&guest.socket), guest.mapper) {
        (Ok(Some((Letter { kind: HERE, value: address }, Some(uffd)))), None) => {
            let region = guest.region;
            let uffd = Uffd::received(uffd);
            let joined = wire.ask(move |engine| engine.join(region, uffd, address as usize));
            let errno = match joined {
                Ok(Ok(mapper)) => {
                    guest.mapper = Some(mapper);
                    0
                }
                Ok(Err(errno)) => errno.raw_os_error(),
                Err(_) => Errno::SHUTDOWN.raw_os_error(),
            };
            let welcome = Letter { kind: WELCOME, value: errno as u64 };
            socket::send(&guest.socket, welcome, None).is_ok() && guest.mapper.is_some() || leave(guest, wire)
        }
        _ => leave(guest, wire),
    }
}

fn leave(guest: &Guest, wire: &Wire) -> bool {
    if let Some(mapper) = guest.mapper {
        let region = guest.region;
        // A pager that has stopped has let go of everybody.
        let _ = wire.tell(move |engine| engine.leave(region, mapper));
    }
    false
}
