//! What a file or device is as a swap area: its header, where it lies, who has it. It reads, and
//! changes nothing.
//!
//! A file is refused with the first reason for which the kernel would refuse it, too (specification
//! 3.1 and 3.3): a header that is none, or a place on the device that will not do (`layout`). Beyond
//! that it must not be in use: by the kernel, or by another run, which holds a lock on it.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use overspill_mm::swap::extents::packing::Unfit;
use overspill_mm::swap::header::{HEADER_BYTES, Header, Medium, Refusal, SIGNATURE};
use overspill_sys::file::{self, Kind, Open};
use overspill_sys::{Errno, Fd};

use super::layout::Layout;
use crate::human;

/// The kernel lets go of an io_uring's files some time after its process has ended: a run right after
/// another one found its device in use.
const LET_GO: Duration = Duration::from_secs(2);

/// Pages of other machines, in KiB: mkswap puts its mark at the end of the first one.
const OTHER_PAGES_KIB: [u64; 4] = [8, 16, 32, 64];

/// Asks again for a while where somebody has it, as they may be ending.
fn once_free<T>(ask: impl Fn() -> Result<T, Errno>, taken: Errno) -> Result<T, Errno> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(errno) if errno == taken && begun.elapsed() < LET_GO => sleep(Duration::from_millis(20)),
            answer => return answer,
        }
    }
}

/// Why something cannot be a swap area.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be looked at.
    Io(io::Error),
    /// It is a directory, a pipe, ...
    Kind,
    /// Its header.
    Header(Refusal),
    /// It is an area of a machine with larger pages, in KiB.
    PageSize(u64),
    /// A hole, or nothing that can be used.
    Unfit(Unfit),
    /// Part of it is not where a direct transfer finds it.
    Extent { offset: u64, flaw: &'static str },
    /// The file system does not tell where it lies.
    NoExtents,
    /// The file system tells it those who have a right, and this user has not.
    NoRight,
    /// What is written to it goes to another place each time.
    CopyOnWrite,
    /// Nothing can be written to it.
    ReadOnly(io::Error),
    /// The kernel swaps to it.
    KernelHasIt,
    /// Another run has it.
    Locked,
    /// The device is mounted, or something else holds it.
    DeviceBusy,
    /// There is something in it that is no swap area.
    Foreign,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Io(error) => write!(f, "{error}"),
            Refused::Kind => write!(f, "it is neither a file nor a block device"),
            Refused::Header(refusal) => write!(f, "{refusal}"),
            Refused::PageSize(kib) => write!(f, "it was made for pages of {kib} KiB, and here they have 4"),
            Refused::Unfit(Unfit::Hole(offset)) => write!(f, "it has a hole at byte {offset}"),
            Refused::Unfit(Unfit::NoPages) => {
                write!(f, "no whole page of it lies in one piece on its device")
            }
            Refused::Unfit(Unfit::TooLarge) => write!(f, "it has more pages than there are page numbers"),
            Refused::Extent { offset, flaw } => write!(f, "the part at byte {offset} is {flaw}"),
            Refused::NoExtents => {
                write!(f, "its file system does not tell where it lies (neither FIEMAP nor FIBMAP)")
            }
            Refused::NoRight => write!(
                f,
                "its file system tells only who has CAP_SYS_RAWIO, as root has, where it lies (FIBMAP)"
            ),
            Refused::CopyOnWrite => write!(
                f,
                "its file system writes each page to another place (copy-on-write): make it anew, or `chattr +C` \
                 while it is empty"
            ),
            Refused::ReadOnly(error) => write!(f, "it cannot be written to: {error}"),
            Refused::KernelHasIt => write!(f, "the kernel swaps to it; `swapoff` comes first"),
            Refused::Locked => write!(f, "another run of overspill has it"),
            Refused::DeviceBusy => write!(f, "the device is mounted, or in use by something else"),
            Refused::Foreign => write!(f, "there is something else in it, which only --erase overwrites"),
        }
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused::Io(as_io(errno))
    }
}

pub fn as_io(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw_os_error())
}

/// An open file or device.
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// Open for reading.
    pub fd: Fd,
    /// File or device.
    pub medium: Medium,
    /// Its length.
    pub bytes: u64,
}

impl Candidate {
    /// Opens it for reading. A pipe is opened, too, without waiting for who writes to it, and refused.
    pub fn open(path: &Path) -> Result<Candidate, Refused> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Refused::from(Errno::INVAL))?;
        let fd = file::open(&name, Open::NON_BLOCKING)?;
        let status = file::status(&fd)?;
        let (medium, bytes) = match status.kind {
            Kind::Regular => (Medium::File, status.len),
            Kind::BlockDevice => (Medium::Device, file::device_bytes(&fd)?),
            Kind::Directory | Kind::Other => return Err(Refused::Kind),
        };
        Ok(Candidate { path: path.to_path_buf(), fd, medium, bytes })
    }

    /// Its first page; shorter ones end in zeroes.
    pub fn first_page(&self) -> Result<[u8; HEADER_BYTES], Refused> {
        let mut page = [0; HEADER_BYTES];
        file::pread(&self.fd, &mut page, 0)?;
        Ok(page)
    }

    /// Its header.
    pub fn header(&self) -> Result<Header, Refused> {
        let pages = self.bytes / HEADER_BYTES as u64;
        Header::parse(&self.first_page()?, self.medium, pages).map_err(|refusal| match refusal {
            Refusal::NoSignature => self.unmarked(),
            refusal => Refused::Header(refusal),
        })
    }

    /// Why there is no signature where it should be: perhaps a machine with larger pages has put it at the
    /// end of one of its own.
    ///
    /// *The story:* of an area for pages of 64 KiB it was said that it had none.
    fn unmarked(&self) -> Refused {
        let is_marked = |kib: &u64| {
            let mut mark = [0; SIGNATURE.len()];
            let at = (kib << 10) - SIGNATURE.len() as u64;
            file::pread(&self.fd, &mut mark, at).is_ok() && mark == *SIGNATURE
        };
        let kib = OTHER_PAGES_KIB.into_iter().find(is_marked);
        kib.map_or(Refused::Header(Refusal::NoSignature), Refused::PageSize)
    }

    /// Where it lies.
    pub fn layout(&self) -> Result<Layout, Refused> {
        match self.medium {
            Medium::Device => Layout::of_device(self.bytes),
            Medium::File => Layout::of_file(&self.fd, self.bytes),
        }
    }

    /// Refuses what somebody uses.
    pub fn refuse_used(&self) -> Result<(), Refused> {
        if kernel_swaps_to(&self.path) {
            return Err(Refused::KernelHasIt);
        }
        // First: a run has its device for itself, too.
        match once_free(|| file::lock(&self.fd), Errno::AGAIN) {
            Err(Errno::AGAIN) => return Err(Refused::Locked),
            result => result?,
        }
        if self.medium == Medium::Device {
            match once_free(|| file::open(&self.name(), Open::EXCLUSIVE), Errno::BUSY) {
                Err(Errno::BUSY) => return Err(Refused::DeviceBusy),
                result => drop(result?),
            }
        }
        Ok(())
    }

    fn name(&self) -> CString {
        CString::new(self.path.as_os_str().as_bytes()).expect("it was opened by that name")
    }

    /// Refuses what nobody could write to, this user at least.
    ///
    /// *The stories:* an area on a mount for reading was taken, and the program ran without a limit. Of a
    /// device that is for reading `swap make` said that the operation was not permitted.
    pub fn refuse_read_only(&self) -> Result<(), Refused> {
        // Not by opening it so: udev asks a device that is closed then who it is, with a lock on it.
        match file::may(&self.name(), libc::W_OK as u32) {
            Err(errno) => Err(Refused::ReadOnly(as_io(errno))),
            Ok(()) if self.medium == Medium::Device && file::device_is_read_only(&self.fd)? => {
                Err(Refused::ReadOnly(as_io(Errno::ROFS)))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Everything that has to be right before pages go there.
    pub fn usable(&self) -> Result<(Header, Layout), Refused> {
        self.refuse_used()?;
        self.refuse_read_only()?;
        Ok((self.header()?, self.layout()?))
    }
}

/// Does the kernel swap to it? By what it is, not by its name.
pub fn kernel_swaps_to(path: &Path) -> bool {
    let Ok(listed) = fs::read_to_string("/proc/swaps") else { return false };
    let Ok(own) = fs::metadata(path) else { return false };
    let is_own = |other: fs::Metadata| {
        let both_devices = own.file_type().is_block_device() && other.file_type().is_block_device();
        let same_device = both_devices && own.rdev() == other.rdev();
        same_device || (own.dev(), own.ino()) == (other.dev(), other.ino())
    };
    listed.lines().skip(1).filter_map(swap_path).any(|other| fs::metadata(other).is_ok_and(is_own))
}

/// The path in a line of /proc/swaps, in which blanks and the like are written in octal.
fn swap_path(line: &str) -> Option<PathBuf> {
    let word = line.split_ascii_whitespace().next()?.as_bytes();
    let (mut path, mut at) = (Vec::new(), 0);
    while at < word.len() {
        let octal = word.get(at + 1..at + 4).filter(|_| word[at] == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(octal.unwrap_or(word[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    Some(std::ffi::OsString::from_vec(path).into())
}

/// A label or an uuid as people write them.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The size of so many pages, for people.
pub fn pages_text(pages: u64) -> String {
    human::bytes(pages * HEADER_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_proc_swaps() {
        let line = "/var/tmp/a\\040b\\134c  file  1024  0  -2";
        assert_eq!(swap_path(line), Some(PathBuf::from("/var/tmp/a b\\c")));
        assert_eq!(swap_path(""), None);
    }

    #[test]
    fn uuids_are_written_in_groups() {
        let uuid = std::array::from_fn(|n| n as u8 * 17);
        assert_eq!(uuid_text(uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }

    /// See [`Candidate::unmarked`].
    #[test]
    fn an_area_for_other_pages_says_for_which() {
        let path = std::env::temp_dir().join(format!("overspill-pages-{}", std::process::id()));
        for kib in [8, 16, 32, 64] {
            let mut bytes = vec![0; 1 << 20];
            bytes[(kib << 10) - 10..kib << 10].copy_from_slice(b"SWAPSPACE2");
            fs::write(&path, bytes).unwrap();
            let refused = Candidate::open(&path).and_then(|found| found.header()).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("it was made for pages of {kib} KiB, and here they have 4")
            );
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_area_says_why() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let refused = |path: &Path| match Candidate::open(path).and_then(|found| found.usable()) {
            Err(refused) => refused.to_string(),
            Ok(_) => panic!("{} is no swap area", path.display()),
        };
        assert!(refused(here).contains("neither a file"), "{}", refused(here));
        assert!(refused(&here.join("Cargo.toml")).contains("no swap signature"));
        assert!(refused(Path::new("/no/such/file")).contains("No such file"));
    }
}
