//! Where memory spills to: which directory or file, and whether it can serve: writable, on a disk,
//! with O_DIRECT, with room, and how fast it is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};

use overspill_engine::SwapKind;
use overspill_mm::swap::header::Refusal;

use super::Check;
use crate::histogram::Histogram;
use crate::human;
use crate::machine;
use crate::swap::arg::SwapArg;
use crate::swap::inspect::{Candidate, Refused};

const NAME: &str = "swap directory";
/// `ramfs` has no constant in the library.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
/// Less room than this is no room.
const ROOM_BYTES_MIN: u64 = 64 << 20;
/// Less room than this is worth a warning.
const ROOM_BYTES_LOW: u64 = 1 << 30;
/// What one direct transfer is aligned to.
const BLOCK_BYTES: usize = 4096;
/// How long each half of the speed measurement may take.
const MEASURE_TIME: Duration = Duration::from_millis(150);
/// What the speed measurement writes at most.
const MEASURE_BYTES: usize = 64 << 20;

/// Where to spill.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwapPlace {
    /// The directory, file or device, as an absolute path.
    pub path: PathBuf,
    /// The directory that it is or lies in; of a device one on a disk.
    pub directory: PathBuf,
    /// What `path` is.
    pub kind: SwapKind,
    /// Use no more than this; 0 = no limit.
    pub bytes_max: u64,
    /// Places of a higher priority are filled first.
    pub priority: i16,
}

impl SwapPlace {
    /// A file that is made may be a mistyped directory.
    pub fn note(&self) -> Option<String> {
        let path = human::one_line(&self.path.to_string_lossy());
        let is_new = self.kind == SwapKind::NewFile;
        is_new.then(|| format!("there is no {path}: a new file is made there to spill to"))
    }
}

/// Places of a run.
const PLACES_MAX: usize = overspill_engine::claims::PLACES;

/// All places that were asked for, or the default.
pub fn resolve_all(asked: &[SwapArg]) -> Result<Vec<SwapPlace>, Check> {
    match asked {
        asked if asked.len() > PLACES_MAX => {
            let count = asked.len();
            let (detail, fix) = (format!("{count} places, at most {PLACES_MAX}"), "name fewer with --swap");
            Err(Check::fail(NAME, detail, fix))
        }
        [] => Ok(vec![resolve(None)?]),
        asked => {
            let places = asked.iter().map(|asked| resolve(Some(asked))).collect::<Result<Vec<_>, _>>()?;
            distinct(&places)?;
            Ok(places)
        }
    }
}

/// No area is named twice.
///
/// *The story:* it was, once by a link, and its room was counted twice. Swap was full at half of what was
/// said.
fn distinct(places: &[SwapPlace]) -> Result<(), Check> {
    let mut seen = Vec::new();
    for place in places.iter().filter(|place| place.kind == SwapKind::Area) {
        let Ok(metadata) = fs::metadata(&place.path) else { continue };
        let is_device = metadata.file_type().is_block_device();
        let name = if is_device { (metadata.rdev(), 0) } else { (metadata.dev(), metadata.ino()) };
        if seen.contains(&(is_device, name)) {
            let detail = format!("{} is named twice", place.path.display());
            return Err(Check::fail(NAME, detail, "name it once with --swap"));
        }
        seen.push((is_device, name));
    }
    Ok(())
}

/// The place that was asked for, or the default: $TMPDIR if it is on a disk, else /var/tmp.
pub fn resolve(asked: Option<&SwapArg>) -> Result<SwapPlace, Check> {
    let path = match asked {
        Some(asked) => asked.path.clone(),
        None => default_directory(std::env::var_os("TMPDIR").map(PathBuf::from)),
    };
    let failed =
        |error: &io::Error| Check::fail(NAME, format!("{}: {error}", path.display()), mend_by_other_place());
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {
            let directory = path.canonicalize().map_err(|error| failed(&error))?;
            Ok(place(asked, SwapKind::Directory, directory.clone(), directory))
        }
        Ok(_) => {
            let path = path.canonicalize().map_err(|error| failed(&error))?;
            let directory = path.parent().filter(|parent| !parent.starts_with("/dev"));
            let directory = directory.unwrap_or(Path::new("/var/tmp")).to_path_buf();
            Ok(place(asked, SwapKind::Area, path, directory))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && asked.is_some() => {
            file_to_create(asked, &path)
        }
        Err(error) => Err(failed(&error)),
    }
}

/// *The story:* with TMPDIR=/proc a run ended, as it "cannot write to /proc", and nobody had named that.
fn default_directory(temporary: Option<PathBuf>) -> PathBuf {
    let is_place = |path: &PathBuf| path.is_dir() && !is_memory(path) && direct_file(path).is_ok();
    temporary.filter(is_place).unwrap_or_else(|| "/var/tmp".into())
}

fn place(asked: Option<&SwapArg>, kind: SwapKind, path: PathBuf, directory: PathBuf) -> SwapPlace {
    let size = asked.and_then(|asked| asked.size);
    SwapPlace {
        path,
        directory,
        kind,
        bytes_max: size.map_or(0, |size| size.bytes(machine::ram_for_shares())),
        priority: asked.and_then(|asked| asked.priority).unwrap_or(0),
    }
}

fn file_to_create(asked: Option<&SwapArg>, path: &Path) -> Result<SwapPlace, Check> {
    let absent =
        || Check::fail(NAME, format!("{}: no such directory", path.display()), mend_by_other_place());
    // With a slash behind it it is meant to be a directory.
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(absent());
    }
    let name = path.file_name().ok_or_else(absent)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = parent.canonicalize().map_err(|_| absent())?;
    Ok(place(asked, SwapKind::NewFile, directory.join(name), directory))
}

fn mend_by_other_place() -> String {
    "--swap DIR, with a directory on a disk that you may write to".into()
}

/// Whether files there would live in the RAM that is to be saved.
fn is_memory(path: &Path) -> bool {
    statfs(path).is_ok_and(|info| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&info.filesystem_type()))
}

/// Whether memory can spill there at all: the check that `run` makes, well below a millisecond.
pub fn usable(place: &SwapPlace) -> Check {
    if place.kind == SwapKind::Area {
        return usable_area(place);
    }
    let shown = place.directory.display();
    if is_memory(&place.directory) {
        let found = format!("{shown} is in memory (tmpfs), so spilling there would save nothing");
        return Check::fail(NAME, found, mend_by_other_place());
    }
    match direct_round_trip(&place.directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let found = format!("{shown} is on a file system without direct I/O (O_DIRECT)");
            return Check::fail(NAME, found, mend_by_other_place());
        }
        Err(error) => {
            return Check::fail(NAME, format!("cannot write to {shown}: {error}"), mend_by_other_place());
        }
    }
    match free_bytes(&place.directory) {
        Ok(free) if free < ROOM_BYTES_MIN => {
            Check::fail(NAME, format!("{shown} has only {} left", human::bytes(free)), mend_by_other_place())
        }
        _ => Check::ok(NAME, format!("{shown} takes direct writes and gives them back")),
    }
}

const AREA: &str = "swap area";

/// Whether what is there is a swap area that nobody uses.
fn usable_area(place: &SwapPlace) -> Check {
    let shown = place.path.display();
    match Candidate::open(&place.path).and_then(|candidate| candidate.usable()) {
        Ok((header, layout)) => {
            let (size, extents) = (u64::from(header.usable()) * 4096, layout.extents.runs().len() as u64);
            let pieces = if extents == 1 { "one piece".into() } else { human::count(extents) + " pieces" };
            Check::ok(AREA, format!("{shown} has room for {}, in {pieces}", human::bytes(size)))
        }
        Err(refused @ (Refused::Header(Refusal::NoSignature) | Refused::PageSize(_))) => {
            let fix = format!("overspill swap make {shown}, or --erase, if nobody needs what is in it");
            Check::fail(AREA, format!("{shown}: {refused}"), fix)
        }
        Err(refused) => Check::fail(AREA, format!("{shown}: {refused}"), mend_by_other_place()),
    }
}

/// Makes a swap area of a file or device that is none.
pub fn erase(place: &SwapPlace) -> Result<(), Check> {
    if place.kind != SwapKind::Area || usable_area(place).status != super::Status::Fail {
        return Ok(());
    }
    let made = crate::swap::make::make(&place.path, None, "", true);
    made.map(drop).map_err(|error| Check::fail(AREA, format!("{error:#}"), mend_by_other_place()))
}

/// Everything about the place, its speed included: about 0.3 s. An area's room was said, and a device
/// is not written to.
///
/// *The story:* of `--swap /dev/sdb1` the room and the speed of /var/tmp were told.
pub fn all(place: &SwapPlace) -> Vec<Check> {
    let usable = usable(place);
    let is_device = fs::metadata(&place.path).is_ok_and(|about| about.file_type().is_block_device());
    match place.kind {
        _ if usable.status == super::Status::Fail => vec![usable],
        SwapKind::Area if is_device => vec![usable],
        SwapKind::Area => vec![usable, speed(place)],
        _ => vec![usable, room(place), speed(place)],
    }
}

fn room(place: &SwapPlace) -> Check {
    const NAME: &str = "swap space";
    match free_bytes(&place.directory) {
        Ok(free) if free < ROOM_BYTES_LOW => {
            Check::warn(NAME, format!("{} free", human::bytes(free)), mend_by_other_place())
        }
        Ok(free) => Check::ok(NAME, format!("{} free", human::bytes(free))),
        Err(error) => Check::warn(NAME, format!("unknown: {error}"), mend_by_other_place()),
    }
}

/// What is free on the file system of a directory or file, for whoever calls this.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let info = nix::sys::statvfs::statvfs(path)?;
    Ok(info.blocks_available() as u64 * info.fragment_size() as u64)
}

/// An open file without a name in `directory`, for direct transfers.
fn direct_file(directory: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_DIRECT | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match open(directory, flags | OFlag::O_TMPFILE, mode) {
        Ok(fd) => Ok(File::from(fd)),
        // File systems without O_TMPFILE: a name that is gone at once.
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EISDIR) => {
            let path = directory.join(format!(".overspill-check-{}", std::process::id()));
            let fd = open(&path, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode);
            let _ = fs::remove_file(&path);
            Ok(File::from(fd?))
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes a block and reads it back.
fn direct_round_trip(directory: &Path) -> io::Result<()> {
    let file = direct_file(directory)?;
    let mut buffer = Aligned::new(BLOCK_BYTES);
    buffer.bytes().fill(0xa5);
    file.write_all_at(buffer.bytes(), 0)?;
    buffer.bytes().fill(0);
    file.read_exact_at(buffer.bytes(), 0)?;
    if buffer.bytes().iter().any(|&byte| byte != 0xa5) {
        return Err(io::Error::other("what was written did not come back"));
    }
    Ok(())
}

/// A buffer at an address that direct transfers accept.
struct Aligned {
    memory: Vec<u8>,
    offset: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory = vec![0; length + BLOCK_BYTES];
        let offset = memory.as_ptr().align_offset(BLOCK_BYTES);
        assert!(offset < BLOCK_BYTES);
        Aligned { memory, offset, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.offset..self.offset + self.length]
    }
}

fn speed(place: &SwapPlace) -> Check {
    const NAME: &str = "swap speed";
    match measure(&place.directory) {
        Err(error) => Check::warn(NAME, format!("could not be measured: {error}"), mend_by_other_place()),
        Ok(speed) => {
            let latency = speed.reads.latency();
            let detail = format!(
                "4 KiB reads take {} ({} at p99), writes {}/s",
                human::nanos(latency.p50_ns),
                human::nanos(latency.p99_ns),
                human::bytes(speed.written_bytes_per_second)
            );
            if latency.p50_ns > 2_000_000 {
                return Check::warn(
                    NAME,
                    format!("{detail}: slow"),
                    "--swap DIR, with a directory on a faster disk",
                );
            }
            Check::ok(NAME, detail)
        }
    }
}

struct Speed {
    reads: Histogram,
    written_bytes_per_second: u64,
}

/// Writes 1 MiB at a time, then reads single blocks of it at random.
fn measure(directory: &Path) -> io::Result<Speed> {
    let file = direct_file(directory)?;
    let mut chunk = Aligned::new(1 << 20);
    chunk.bytes().fill(0x5a);
    let start = Instant::now();
    let mut written = 0;
    // Once at least, however long this thread has waited.
    while written == 0 || written < MEASURE_BYTES && start.elapsed() < MEASURE_TIME {
        file.write_all_at(chunk.bytes(), written as u64)?;
        written += chunk.length;
    }
    let written_bytes_per_second = (written as f64 / start.elapsed().as_secs_f64()) as u64;
    let mut block = Aligned::new(BLOCK_BYTES);
    let mut reads = Histogram::default();
    let start = Instant::now();
    let mut place = 1;
    while start.elapsed() < MEASURE_TIME {
        place = (place * 7919 + 13) % (written / BLOCK_BYTES);
        let before = Instant::now();
        file.read_exact_at(block.bytes(), (place * BLOCK_BYTES) as u64)?;
        reads.record(before.elapsed().as_nanos() as u64);
    }
    Ok(Speed { reads, written_bytes_per_second })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status;

    fn disk() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn a_directory_a_new_file_and_an_old_file() {
        let asked = |path: &Path| resolve(Some(&SwapArg::plain(path.to_path_buf())));
        let place = asked(&disk()).unwrap();
        assert!(place.kind == SwapKind::Directory && place.path.is_absolute());
        let place = asked(&disk().join("swap.new")).unwrap();
        assert!(place.kind == SwapKind::NewFile && place.path.ends_with("swap.new"));
        let refused = usable(&asked(&disk().join("Cargo.toml")).unwrap());
        assert_eq!(refused.status, Status::Fail);
        assert!(refused.line().contains("no swap signature"), "{}", refused.line());
        let refused = asked(&disk().join("typo/")).unwrap_err();
        assert!(refused.detail.contains("no such directory"), "{}", refused.detail);
        let refused = asked(Path::new("/no/such/directory")).unwrap_err();
        assert!(refused.detail.contains("no such directory"), "{}", refused.detail);
        assert!(!refused.line().contains('\n'));
    }

    /// *The story:* with more than 256 of them each agent ended by an assertion.
    #[test]
    fn no_more_places_than_agents_can_number() {
        let places = |count: usize| resolve_all(&vec![SwapArg::plain(disk()); count]).map(|all| all.len());
        assert_eq!(places(PLACES_MAX).ok(), Some(PLACES_MAX));
        assert!(places(PLACES_MAX + 1).unwrap_err().detail.contains("at most 64"));
    }

    #[test]
    fn memory_is_no_place_to_spill() {
        assert!(is_memory(Path::new("/dev/shm")));
        let place = resolve(Some(&SwapArg::plain("/dev/shm".into()))).unwrap();
        let check = usable(&place);
        assert_eq!(check.status, Status::Fail);
        assert!(check.detail.contains("in memory"));
    }

    /// See [`default_directory`].
    #[test]
    fn who_names_no_place_gets_one_that_takes_files() {
        assert_eq!(default_directory(Some(disk())), disk());
        let others = ["/proc", "/dev/shm", "/no/such/directory"].map(|path| Some(path.into()));
        for other in others.into_iter().chain([None]) {
            assert_eq!(default_directory(other), Path::new("/var/tmp"));
        }
    }

    #[test]
    fn what_cannot_be_written_says_so() {
        let check = usable(&resolve(Some(&SwapArg::plain("/proc".into()))).unwrap());
        assert_eq!(check.status, Status::Fail);
        assert!(!is_memory(&disk()));
    }
}
