//! How the agent finds the launcher: the shared page, and the number that this process has there.
//!
//! The variable names the launcher's process, a descriptor of it, and a token. Where /proc shows
//! that process and may be looked into, the page is opened there, in some microseconds and without
//! the launcher's help. Another user, another pid namespace with a /proc of its own: there the
//! launcher is asked by way of its socket, which answers to its descendants only and hands
//! over what such a process could not open itself: where its root has no /proc one that is mounted
//! nowhere, and its page map, which who has given up root may not open. When the launcher is gone its
//! keeper answers there. The socket has an abstract name, which another root does not hide, and a file
//! beside the agent's library, which is seen from another network namespace.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

use alloc::ffi::CString;
use alloc::vec::Vec;

use linux_raw_sys::general::W_OK;
use overspill_engine::shared::{self, LIBRARY, SOCKET_FILE, Shared, letters, socket_name};
use overspill_engine::{SwapKind, SwapPlace};
use overspill_sys::mem::{Mapping, Prot};
use overspill_sys::procfs::ResidentReader;
use overspill_sys::socket::{self, Place};
use overspill_sys::text::Decimal;
use overspill_sys::{Errno, Fd, PAGE_SIZE, file, proc_place, procfs, uffd};

use crate::{exec, filters};

/// A launcher that is stopped does not answer.
const PATIENCE_S: u64 = 2;

/// Where the shared page is: descriptor `descriptor` of process `process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Process id, in the launcher's pid namespace.
    pub process: u32,
    /// Descriptor number there.
    pub descriptor: u32,
    /// Tells this launcher from others.
    pub token: u64,
    /// Seccomp filters that it is behind.
    pub filters: u32,
}

/// The page, and what came with it.
pub struct Found {
    /// The page.
    pub shared: &'static Shared,
    /// This process's id, as the launcher knows it.
    pub pid: u32,
    /// The file that the page is a part of.
    pub memory: Fd,
    /// Files to page to, in place of those that are made here.
    pub swap: Files,
    /// Of this process, opened by the launcher, if it gave one.
    pub pagemap: Option<Fd>,
}

/// Files to page to, and for which of the places.
pub type Files = Vec<(usize, Fd)>;

impl Address {
    /// Reads `<pid>:<descriptor>:<token>:<filters>`.
    pub fn parse(value: &[u8]) -> Option<Address> {
        let mut words = core::str::from_utf8(value).ok()?.split(':');
        let (process, descriptor) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let token = u64::from_str_radix(words.next()?, 16).ok()?;
        let filters = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Address { process, descriptor, token, filters })
    }

    /// Finds the page, which is mapped unless it is `known`.
    ///
    /// *The story:* an agent that came back mapped it once more each time, and so did the child of
    /// each fork.
    pub fn find(self, known: Option<&'static Shared>) -> Result<Found, Errno> {
        match self.look(known) {
            Ok(found) if self.has_its_directories(found.shared) => Ok(found),
            // Where the launcher is gone it has to do.
            Ok(found) => self.ask(Some(found.shared)).or(Ok(found)),
            Err(_) => self.ask(known),
        }
    }

    /// Are the directories to page to the launcher's, as this process sees them, and may it write there?
    ///
    /// *The story:* in a mount namespace of its own a program paged to a tmpfs that lay over the directory.
    /// All of it stayed in RAM, and the summary said that it had worked; below a mount for reading it was not
    /// managed.
    fn has_its_directories(self, shared: &Shared) -> bool {
        // Behind a filter nobody asks: it may kill whoever does.
        filters::may_be_filtered()
            || SwapPlace::decode(&shared.config.swap_places)
                .iter()
                .filter(|place| place.kind == SwapKind::Directory)
                .all(|place| self.is_the_launchers(&place.path))
    }

    fn is_the_launchers(self, directory: &CStr) -> bool {
        let number = Decimal::new(u64::from(self.process));
        let parts = [b"/proc/", number.as_bytes(), b"/root", directory.to_bytes()];
        let Ok(there) = CString::new(parts.concat()) else { return false };
        let identity = |path: &CStr| file::status_of(path).map(|status| (status.device, status.inode));
        match (identity(directory), identity(&there)) {
            // What may not be looked at is what it was.
            (_, Err(_)) => true,
            (here, there) => here == there && file::may(directory, W_OK) != Err(Errno::ROFS),
        }
    }

    /// Finds the page by /proc alone, without the launcher's help.
    pub fn look(self, known: Option<&'static Shared>) -> Result<Found, Errno> {
        let memory = file::open_of_process(self.process, self.descriptor)?;
        let shared = self.map(&memory, known)?;
        // /proc has shown the launcher by its number: it shows this process by that of the same namespace.
        let pid = procfs::process_id_in_proc()?;
        Ok(Found { shared, pid, memory, swap: Files::new(), pagemap: None })
    }

    fn ask(self, known: Option<&'static Shared>) -> Result<Found, Errno> {
        let door = reach(&socket_name(self.token), SOCKET_FILE, PATIENCE_S)?;
        let (mut page, mut swap, mut proc, mut pagemap) = (None, Files::new(), None, None);
        loop {
            let Some((letter, descriptor)) = socket::receive(&door)? else { return Err(Errno::CONNRESET) };
            match (letter.kind, descriptor) {
                (letters::PAGE, Some(memory)) => page = Some((memory, letter.value as u32)),
                (letters::DEVICE, Some(device)) => uffd::use_device(device),
                (letters::SWAP, Some(file)) => swap.push((letter.value as usize, file)),
                (letters::PROC, given) => proc = given,
                (letters::PAGEMAP, given) => pagemap = given,
                // Another way to page may be left: this one is done without.
                (letters::SWAP, None) => {}
                (letters::END, _) => break,
                // No descriptor could be made here, or it is a letter of another version.
                _ => return Err(Errno::MFILE),
            }
        }
        let (memory, pid) = page.ok_or(Errno::MFILE)?;
        let shared = self.map(&memory, known)?;
        // A /proc that is there shows more: it is that of the program's own namespace, say.
        if let Some(proc) = proc.filter(|_| ResidentReader::open().is_err()) {
            proc_place::use_given(proc);
        }
        Ok(Found { shared, pid, memory, swap, pagemap })
    }

    /// Makes sure that it is the right page, which is mapped already if it is `known`.
    ///
    /// *The story:* who knew the page took whatever there was. In another pid namespace the launcher's
    /// number was somebody else's.
    fn map(self, memory: &Fd, known: Option<&'static Shared>) -> Result<&'static Shared, Errno> {
        let len = size_of::<Shared>().next_multiple_of(PAGE_SIZE);
        if file::status(memory)?.len < size_of::<Shared>() as u64 {
            return Err(Errno::INVAL); // whatever this is, it ends within the page
        }
        let mapping = Mapping::shared(memory, len, Prot::RW, 0)?;
        // SAFETY: the file is at least this long and nobody makes it shorter; every field is valid
        // whatever its bits, and everything but the configuration (constant by now) is atomic. If
        // it is the right page the mapping stays for ever, and otherwise nothing refers to it when
        // it goes.
        let shared = unsafe { &*(mapping.range().start as *const Shared) };
        let config = &shared.config;
        let is_right =
            config.magic == shared::MAGIC && config.version == shared::VERSION && config.token == self.token;
        if !is_right {
            return Err(Errno::INVAL);
        }
        if let Some(known) = known {
            return Ok(known);
        }
        let _ = mapping.leak();
        Ok(shared)
    }
}

/// The directory of the agent's library, with the slash, as the environment names it: zeroes follow.
static DIRECTORY: [AtomicU8; DIRECTORY_MAX] = [const { AtomicU8::new(0) }; DIRECTORY_MAX];
/// The path of a socket has no more bytes.
const DIRECTORY_MAX: usize = 107;

/// These are the libraries that the environment has named, before there are other threads.
pub fn note_libraries(libraries: &[u8]) {
    let own = exec::parts(libraries).find_map(|library| library.strip_suffix(LIBRARY.as_bytes()));
    let own = own.filter(|directory| directory.len() < DIRECTORY_MAX && directory.ends_with(b"/"));
    for (at, &byte) in DIRECTORY.iter().zip(own.unwrap_or_default()) {
        at.store(byte, Ordering::Relaxed);
    }
}

/// Goes to a socket of the launcher's: by its name or, from a network namespace in which that is unknown or
/// behind Landlock, by its file.
pub fn reach(name: &[u8], file: &str, patience_s: u64) -> Result<Fd, Errno> {
    let by_name = socket::connect(Place::Name(name), patience_s);
    let Err(errno @ (Errno::CONNREFUSED | Errno::PERM | Errno::ACCESS)) = by_name else { return by_name };
    let directory = DIRECTORY.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|&byte| byte != 0);
    let path: Vec<u8> = directory.chain(file.bytes()).collect();
    match CString::new(path) {
        Ok(path) if path.as_bytes().starts_with(b"/") => {
            socket::connect(Place::File(&path), patience_s).map_err(|_| errno)
        }
        _ => Err(errno),
    }
}

/// A path that the launcher told.
pub fn path(bytes: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_engine::shared::Config;

    /// See [`Address::map`].
    #[test]
    fn what_is_no_page_of_this_run_is_not_taken_for_it() {
        let memory = file::memfd(c"page").unwrap();
        file::truncate(&memory, size_of::<Shared>() as u64).unwrap();
        let put = |bytes: &[u8], at: usize| file::pwrite(&memory, bytes, at as u64).unwrap();
        put(&shared::MAGIC.to_ne_bytes(), core::mem::offset_of!(Config, magic));
        put(&shared::VERSION.to_ne_bytes(), core::mem::offset_of!(Config, version));
        put(&7_u64.to_ne_bytes(), core::mem::offset_of!(Config, token));
        let address = |token| Address {
            process: std::process::id(),
            descriptor: memory.raw() as u32,
            token,
            filters: 0,
        };
        let known = address(7).look(None).unwrap().shared;
        assert!(address(7).look(Some(known)).is_ok_and(|found| core::ptr::eq(found.shared, known)));
        assert!(address(8).look(Some(known)).is_err(), "it is another run's");
    }

    #[test]
    fn an_address_has_four_parts() {
        let address = Address { process: 12, descriptor: 500, token: 0xfeed, filters: 1 };
        assert_eq!(Address::parse(b"12:500:000000000000feed:1"), Some(address));
        for wrong in ["", "12", "12:500", "12:500:", "12:500:1", "12:500:xyz:0", "12:500:1:2:3", "-1:5:1:0"] {
            assert_eq!(Address::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(&socket_name(0xfeed), b"overspill-000000000000feed");
    }
}
