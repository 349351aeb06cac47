//! Where pages go: directories, files and devices, and how each is opened.
//!
//! In a directory it is a file without a name: readable by nobody else, sparse, gone with its last
//! descriptor however the program ends. A file or device that is there already must carry the
//! header of a swap area (mkswap, `overspill swap make`), and is locked: whoever finds it locked
//! does without it. Its content stays when the program has ended. The launcher has refused, with
//! its reason, what cannot serve; what is refused here changed since.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;

use overspill_mm::swap::header::{HEADER_BYTES, Header, Medium};
use overspill_mm::types::Slot;
use overspill_sys::file::{self, Kind, Open};
use overspill_sys::{Errno, Fd, PAGE_SIZE, clock};

use crate::claims::Limit;

/// Largest part of the free space that is taken, in 1/16: the file system stays usable for others.
const SHARE_16THS: u64 = 15;

/// No more of a file can be used: there are not so many slots.
const BYTES_MAX: u64 = Slot::FILES as u64 * PAGE_SIZE as u64;

/// What another process has for an instant is tried again, so often and after such rests.
const TRIES: u32 = 100;
const REST_NS: u64 = 2_000_000;

/// An open swap area.
pub(crate) struct SwapFile {
    pub file: Fd,
    /// Of a device: holds the lock as long as `file` is open.
    pub lock: Option<Fd>,
    /// Of its place.
    pub path: CString,
    /// Its length, or as much of it as may be used.
    pub bytes: u64,
    pub priority: i16,
    /// Pages that are not to be used.
    pub bad_pages: Vec<u32>,
    /// How what is not used any more is given back.
    pub gives_back: GivesBack,
    /// Which place of the run it is, see [`crate::spill`]; none: it is no run's.
    pub spot: Option<u8>,
    /// Others of the run have these limits, too.
    pub limits: Vec<Limit>,
    /// What another one like it is made from: of a file without a name and without a bound.
    pub renewed: Option<SwapPlace>,
}

/// What is done with blocks that nobody uses any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivesBack {
    /// Nothing: they were reserved when the area was made.
    Nothing,
    /// The file is ours alone and sparse: they are holes again.
    Holes,
    /// The device is told, and may use them as it likes.
    Discards,
    /// The same, where the ring has no request for it: whoever tells waits.
    DiscardsNow,
}

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// A directory in which a file without a name is made.
    Directory,
    /// A file to create; its name is removed at once.
    NewFile,
    /// A file or a device with the header of a swap area.
    Area,
    /// A file without a name that somebody else has made: its descriptor, which becomes the
    /// engine's.
    Given(i32),
}

impl SwapKind {
    const LETTERS: [(u8, SwapKind); 3] =
        [(b'd', SwapKind::Directory), (b'n', SwapKind::NewFile), (b'a', SwapKind::Area)];
}

/// Where a swap area is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapPlace {
    /// What the path is.
    pub kind: SwapKind,
    /// Of the directory, file or device.
    pub path: CString,
    /// Use no more than this; 0 = no limit.
    pub bytes_max: u64,
    /// Places of a higher priority are filled first; those of one priority take turns.
    pub priority: i16,
    /// Which of the run's limits [`Self::bytes_max`] is; `None`: it is each process's. Whoever reads the
    /// place knows by where it stood.
    pub limit: Option<u8>,
}

impl SwapPlace {
    /// A directory.
    #[must_use]
    pub fn directory(path: CString) -> Self {
        SwapPlace { kind: SwapKind::Directory, path, bytes_max: 0, priority: 0, limit: None }
    }

    /// Where those page to that find it taken by another process.
    #[must_use]
    pub fn beside(&self) -> SwapPlace {
        SwapPlace { kind: SwapKind::Directory, path: directory_of(self), ..self.clone() }
    }

    /// Its limit, if others have that, too.
    fn limits(&self) -> Vec<Limit> {
        let index = self.limit.filter(|_| self.bytes_max > 0);
        index.map(|index| Limit::new(index, self.bytes_max)).into_iter().collect()
    }

    /// The places as the launcher's page carries them: for each a letter, two numbers and the path,
    /// then a NUL.
    #[must_use]
    pub fn encode(places: &[SwapPlace]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for place in places {
            let letter = SwapKind::LETTERS.iter().find(|(_, kind)| *kind == place.kind);
            bytes.push(letter.expect("a descriptor is nobody else's").0);
            bytes.extend(alloc::format!("{}:{}:", place.priority, place.bytes_max).into_bytes());
            bytes.extend(place.path.as_bytes_with_nul());
        }
        bytes
    }

    /// The places of [`SwapPlace::encode`]; what follows the last of them is zeroes. What is
    /// malformed is left out.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Vec<SwapPlace> {
        let words = bytes.split(|&byte| byte == 0);
        words.take_while(|word| !word.is_empty()).filter_map(SwapPlace::decode_one).collect()
    }

    fn decode_one(word: &[u8]) -> Option<SwapPlace> {
        let (&letter, rest) = word.split_first()?;
        let mut parts = rest.splitn(3, |&byte| byte == b':');
        let mut number = || core::str::from_utf8(parts.next()?).ok()?.parse::<i64>().ok();
        let (priority, bytes_max) = (number()?, number()?);
        Some(SwapPlace {
            kind: SwapKind::LETTERS.iter().find(|(known, _)| *known == letter)?.1,
            path: CString::new(parts.next()?).ok()?,
            bytes_max: u64::try_from(bytes_max).ok()?,
            priority: i16::try_from(priority).ok()?,
            limit: None,
        })
    }
}

impl SwapFile {
    /// Opens all places, as large as there is room; at most `bytes_max` together (0 = no limit), which may
    /// be all processes' of the run. Areas that another process has, or that this one has no right to, and
    /// places that cannot be opened are left out. Where nothing is left, and there was one of the former, it
    /// is a file without a name beside the first place; else an error.
    ///
    /// *The story:* a directory that had been removed, and an area on a mount for reading, left the
    /// program without a budget, beside another place that was good.
    ///
    /// *The other story:* areas took as much as they had, whatever `--swap-max` said: 138 MiB of 30.
    pub fn open_all(places: &[SwapPlace], bytes_max: u64, is_shared: bool) -> Result<Vec<SwapFile>, Errno> {
        let mut left = if bytes_max == 0 { u64::MAX } else { bytes_max };
        let total = (is_shared && bytes_max > 0).then(|| Limit::new(0, bytes_max));
        let (mut files, mut failed, mut is_others) = (Vec::new(), None, false);
        for place in places {
            let mut file = match SwapFile::open(place, left) {
                Ok(file) => file,
                Err(Errno::AGAIN | Errno::ACCESS | Errno::PERM) if place.kind == SwapKind::Area => {
                    is_others = true;
                    continue;
                }
                Err(errno) => {
                    failed.get_or_insert(errno);
                    continue;
                }
            };
            // What they share bounds them together, wherever pages go.
            left -= if total.is_some() { 0 } else { file.bytes };
            file.limits.extend(total);
            if bytes_max > 0 {
                file.renewed = None;
            }
            if file.bytes > PAGE_SIZE as u64 {
                files.push(file);
            }
        }
        if let (true, false, Some(errno)) = (files.is_empty(), is_others, failed) {
            return Err(errno);
        }
        if files.is_empty() {
            let first = places.first().ok_or(Errno::NOENT)?;
            let mut file =
                SwapFile::create(&first.beside(), left).map_err(|errno| failed.unwrap_or(errno))?;
            file.limits.extend(total);
            file.spot = file.spot.map(|_| 0);
            file.renewed = file.renewed.filter(|_| bytes_max == 0);
            files.push(file);
        }
        Ok(files)
    }

    /// Opens a place, as large as there is room, of which at most `bytes_max` are used.
    pub fn open(place: &SwapPlace, bytes_max: u64) -> Result<SwapFile, Errno> {
        match place.kind {
            SwapKind::Area => SwapFile::open_area(place, bytes_max),
            SwapKind::Directory | SwapKind::NewFile | SwapKind::Given(_) => {
                SwapFile::create(place, bytes_max)
            }
        }
    }

    /// Makes a file, sparse.
    fn create(place: &SwapPlace, bytes_max: u64) -> Result<SwapFile, Errno> {
        let file = match place.kind {
            SwapKind::Directory => file::open_nameless(&place.path, true)?,
            // SAFETY: the descriptor was handed over with the settings.
            SwapKind::Given(descriptor) => unsafe { Fd::from_raw(descriptor) },
            SwapKind::NewFile | SwapKind::Area => create_new(&place.path)?,
        };
        let free = file::space(&file)?.available_bytes / 16 * SHARE_16THS;
        let bytes = whole_pages(free.min(bytes_max).min(limit(place)).min(BYTES_MAX));
        let bytes = stretch(&file, bytes)?;
        let (priority, bad_pages, path) = (place.priority, Vec::new(), place.path.clone());
        let (gives_back, limits) = (GivesBack::Holes, place.limits());
        let is_free = place.kind == SwapKind::Directory && place.bytes_max == 0;
        let renewed = is_free.then(|| place.clone());
        let (lock, spot) = (None, place.limit);
        Ok(SwapFile { file, lock, path, bytes, priority, bad_pages, gives_back, spot, limits, renewed })
    }

    /// Opens what is there. EAGAIN: somebody else has it. EBUSY: the device is mounted, or the
    /// kernel's swap. EINVAL: it is no swap area.
    fn open_area(place: &SwapPlace, bytes_max: u64) -> Result<SwapFile, Errno> {
        let how = Open::READ_WRITE | Open::DIRECT;
        let (mut file, mut lock) = (file::open(&place.path, how)?, None);
        let status = file::status(&file)?;
        let (medium, bytes, gives_back) = match status.kind {
            Kind::Regular => {
                file::lock(&file)?;
                (Medium::File, status.len, GivesBack::Nothing)
            }
            Kind::BlockDevice => {
                // Of a device EXCLUSIVE means that nobody has it mounted; nor another process of the
                // run, which is no failure and has to be known before.
                //
                // *The stories:* of two programs on one device the second got EBUSY, and ran without a
                // budget. And the first gave its lock up when it opened the device once more: who
                // came in that instant did the same.
                file::lock(&file)?;
                let exclusive = open_exclusively(&place.path, how)?;
                lock = Some(core::mem::replace(&mut file, exclusive));
                (Medium::Device, file::device_bytes(&file)?, GivesBack::Discards)
            }
            Kind::Directory | Kind::Other => return Err(Errno::INVAL),
        };
        let mut page = Box::new(Aligned([0; HEADER_BYTES]));
        if file::pread(&file, &mut page.0, 0)? != HEADER_BYTES {
            return Err(Errno::INVAL);
        }
        let header = Header::parse(&page.0, medium, bytes / PAGE_SIZE as u64).map_err(|_| Errno::INVAL)?;
        let bytes = (u64::from(header.last_page) + 1) * PAGE_SIZE as u64;
        Ok(SwapFile {
            file,
            lock,
            path: place.path.clone(),
            bytes: whole_pages(bytes.min(bytes_max).min(limit(place))),
            priority: place.priority,
            bad_pages: header.bad_pages,
            gives_back,
            spot: place.limit,
            limits: place.limits(),
            renewed: None,
        })
    }
}

/// A new file for direct transfers that has no name any more. Another process of the run may be making
/// one at the same place.
///
/// *The story:* whoever found the other's name, in the instant in which it was there, ran without a
/// budget.
fn create_new(path: &CString) -> Result<Fd, Errno> {
    let how = Open::READ_WRITE | Open::CREATE | Open::EXCLUSIVE | Open::NO_FOLLOW | Open::DIRECT;
    let file = again_while(Errno::EXIST, || file::open(path, how))?;
    file::unlink(path)?;
    Ok(file)
}

/// A device that nobody else has mounted. Whoever looks whether it is free has it for a moment, too.
fn open_exclusively(path: &CString, how: Open) -> Result<Fd, Errno> {
    again_while(Errno::BUSY, || file::open(path, how | Open::EXCLUSIVE))
}

/// Tries again while it is refused with that error, for a while.
fn again_while(refused: Errno, mut open: impl FnMut() -> Result<Fd, Errno>) -> Result<Fd, Errno> {
    for _ in 0..TRIES {
        match open() {
            Err(errno) if errno == refused => clock::sleep_ns(REST_NS),
            other => return other,
        }
    }
    open()
}

/// Makes a file as long as that, or as long as a file may be, and says how long that is.
///
/// *The story:* a file system with more room than its longest file takes, or `ulimit -f`, left the
/// program without a budget.
fn stretch(file: &Fd, bytes: u64) -> Result<u64, Errno> {
    let mut bytes = bytes;
    loop {
        match file::truncate(file, bytes) {
            Err(Errno::FBIG) if bytes > PAGE_SIZE as u64 => bytes = whole_pages(bytes / 2),
            other => return other.map(|()| bytes),
        }
    }
}

/// For direct transfers.
#[repr(C, align(4096))]
struct Aligned([u8; HEADER_BYTES]);

fn limit(place: &SwapPlace) -> u64 {
    if place.bytes_max == 0 { u64::MAX } else { place.bytes_max }
}

fn whole_pages(bytes: u64) -> u64 {
    bytes / PAGE_SIZE as u64 * PAGE_SIZE as u64
}

/// The directory of a file; of a device one that is on a disk as a rule.
fn directory_of(place: &SwapPlace) -> CString {
    let path = place.path.as_bytes();
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    match place.kind {
        SwapKind::Directory | SwapKind::Given(_) => place.path.clone(),
        _ if path.starts_with(b"/dev/") || end == 0 => CString::from(c"/var/tmp"),
        _ => CString::new(&path[..end]).expect("a part of a path has no NUL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(kind: SwapKind, path: &str, bytes_max: u64, priority: i16) -> SwapPlace {
        SwapPlace { kind, path: CString::new(path).unwrap(), bytes_max, priority, limit: None }
    }

    #[test]
    fn places_survive_the_launchers_page() {
        let places = [
            place(SwapKind::Area, "/dev/nvme0n1p3", 0, 32767),
            place(SwapKind::Directory, "/var/tmp", 5 << 30, -1),
            place(SwapKind::NewFile, "/a:b:c", 4096, 0),
        ];
        let mut bytes = SwapPlace::encode(&places);
        bytes.extend([0; 9]);
        assert_eq!(SwapPlace::decode(&bytes), places);
        assert_eq!(SwapPlace::decode(&[0; 4]), []);
        for malformed in ["x0:0:/a", "d1:/a", "d99999:0:/a", "d0:-1:/a", "d0:x:/a"] {
            assert_eq!(SwapPlace::decode(malformed.as_bytes()), [], "{malformed}");
        }
    }

    #[test]
    fn what_has_no_area_of_its_own_goes_beside_it() {
        let beside = |kind, path: &str| directory_of(&place(kind, path, 0, 0)).into_string().unwrap();
        assert_eq!(beside(SwapKind::Area, "/mnt/fast/swap"), "/mnt/fast");
        assert_eq!(beside(SwapKind::Area, "/dev/sdb2"), "/var/tmp");
        assert_eq!(beside(SwapKind::Area, "/swap"), "/var/tmp");
        assert_eq!(beside(SwapKind::Directory, "/mnt"), "/mnt");
    }

    /// While another process makes one, and where no file may be so long.
    #[test]
    fn a_new_file_is_made_in_the_end() {
        let directory = std::env::var("CARGO_TARGET_TMPDIR").unwrap_or_else(|_| "/var/tmp".into());
        let path = std::format!("{directory}/overspill-engine-new-{}", std::process::id());
        std::fs::write(&path, b"another's").unwrap();
        let taken = path.clone();
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::remove_file(taken).unwrap();
        });
        let file = SwapFile::open(&place(SwapKind::NewFile, &path, 1 << 20, 0), u64::MAX).unwrap();
        other.join().unwrap();
        assert_eq!((file.bytes, std::fs::exists(&path).unwrap()), (1 << 20, false));
        let bytes = stretch(&file.file, 1 << 62).unwrap();
        assert!(bytes >= 1 << 30 && file::status(&file.file).unwrap().len == bytes, "{bytes}");
    }

    /// See [`SwapFile::open_all`].
    #[test]
    fn a_place_that_is_gone_leaves_the_others_and_what_all_share_is_whole_for_each() {
        let directory = std::env::var("CARGO_TARGET_TMPDIR").unwrap_or_else(|_| "/var/tmp".into());
        let here = |priority| place(SwapKind::Directory, &directory, 0, priority);
        let gone = place(SwapKind::Directory, "/no/such/directory", 0, 9);
        let files = SwapFile::open_all(&[here(1), gone.clone(), here(2)], 1 << 20, true).unwrap();
        let found: Vec<_> = files.iter().map(|file| (file.priority, file.bytes, file.limits.len())).collect();
        assert_eq!(found, [(1, 1 << 20, 1), (2, 1 << 20, 1)]);
        assert_eq!(SwapFile::open_all(&[gone], 0, true).err(), Some(Errno::NOENT));
        let nobodys = place(SwapKind::Area, "/dev/null", 0, 0);
        assert_eq!(SwapFile::open_all(&[nobodys], 0, true).err(), Some(Errno::INVAL), "it is no area");
    }

    /// A file that mkswap might have made is used as far as its header says; while one process has
    /// it another does without.
    #[test]
    fn an_area_is_had_by_one_at_a_time() {
        let directory = std::env::var("CARGO_TARGET_TMPDIR").unwrap_or_else(|_| "/var/tmp".into());
        let path = std::format!("{directory}/overspill-engine-area-{}", std::process::id());
        let mut page = [0; HEADER_BYTES];
        Header::new(100, [1; 16], b"test").write(&mut page);
        let mut content = page.to_vec();
        content.resize(120 * PAGE_SIZE, 0);
        std::fs::write(&path, &content).unwrap();
        let area = [place(SwapKind::Area, &path, 0, 3)];
        let first = SwapFile::open_all(&area, 0, false).unwrap();
        assert_eq!((first[0].bytes, first[0].priority), (100 * 4096, 3));
        let second = SwapFile::open_all(&area, 1 << 20, false).unwrap();
        assert_eq!((first[0].gives_back, second[0].gives_back), (GivesBack::Nothing, GivesBack::Holes));
        assert!(second[0].bytes == 1 << 20, "a file of its own");
        let third = SwapFile::open_all(&[place(SwapKind::Area, &path, 30 << 12, 7)], 0, false).unwrap();
        assert_eq!((third[0].bytes, third[0].priority), (30 << 12, 7), "as it was asked for");
        drop(first);
        let limited = SwapFile::open_all(&[place(SwapKind::Area, &path, 50 << 12, 0)], 0, false).unwrap();
        assert_eq!(limited[0].bytes, 50 << 12);
        drop(limited);
        let limited = SwapFile::open_all(&area, 40 << 12, true).unwrap();
        assert_eq!((limited[0].bytes, limited[0].limits.len()), (40 << 12, 1), "its pages count as all do");
        drop(limited);
        content[4090] = b'?';
        std::fs::write(&path, &content).unwrap();
        assert_eq!(SwapFile::open_all(&area, 0, false).err(), Some(Errno::INVAL), "no signature");
        std::fs::remove_file(&path).unwrap();
    }
}
