//! `overspill swap make`: a file or device that mkswap's and swapon's users accept, and `--swap
//! --erase`, which does the same on the way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use overspill_mm::swap::header::{HEADER_BYTES, Header, LABEL_BYTES, Medium, Refusal};
use overspill_sys::file::{self as sys_file, BTRFS_MAGIC};

use super::inspect::{Candidate, Refused, as_io, pages_text};
use crate::checks::swap_place;
use crate::human;
use crate::os::descriptor;
use crate::stderr::say;
use crate::stdout::print;
use crate::whole::Whole;

/// The smallest area that mkswap makes: ten pages.
const PAGES_MIN: u64 = 10;
/// So many are written at once where none can be reserved.
const ZEROES_PAGES: u32 = 256;
/// What is spilled may be secret.
const PRIVATE: u32 = 0o600;

/// Carries out the command.
pub fn main(path: &Path, bytes: Option<u64>, label: &str, erase: bool) -> Result<u8> {
    let header = make(path, bytes, label, erase)?;
    print(&format!("{}: {} usable\n", path.display(), pages_text(header.usable().into())))?;
    Ok(0)
}

/// Makes the area; nothing is changed when that cannot be.
pub fn make(path: &Path, bytes: Option<u64>, label: &str, erase: bool) -> Result<Header> {
    if label.len() > LABEL_BYTES {
        bail!("a label has at most {LABEL_BYTES} bytes, and `{label}` has {}", label.len());
    }
    if path.try_exists().unwrap_or(false) {
        return remake(path, bytes, label, erase).with_context(|| path.display().to_string());
    }
    let bytes = bytes.ok_or_else(|| anyhow!("{}: a new file needs --size", path.display()))?;
    fresh(path, bytes, label).with_context(|| path.display().to_string())
}

/// A new file, all of its blocks reserved. It gets its name when it is an area.
///
/// *The story:* who was interrupted had a file of so many blocks that was no area.
fn fresh(path: &Path, bytes: u64, label: &str) -> Result<Header> {
    let pages = page_count(bytes)?;
    // A name that is taken (by a link that leads nowhere, say) is told before the work.
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::Error::from_raw_os_error(nix::libc::EEXIST).into());
    }
    let Some(whole) = Whole::begin(path, PRIVATE) else { return fresh_by_name(path, pages, label) };
    let header = fill(&whole.address(), whole.file(), pages, label)?;
    whole.appear()?;
    Ok(header)
}

/// The same where a file must have a name. What cannot be made is removed, if it was made here.
///
/// *The story:* a link that led nowhere, or the area of somebody who was faster, was removed.
fn fresh_by_name(path: &Path, pages: u32, label: &str) -> Result<Header> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(PRIVATE).open(path)?;
    fill(path, &file, pages, label).inspect_err(|_| drop(fs::remove_file(path)))
}

fn fill(path: &Path, file: &File, pages: u32, label: &str) -> Result<Header> {
    reserve(path, file, pages)?;
    write_header(path, file, pages, label)
}

/// A file or device that is there: an empty file, or whatever it was with `erase`.
fn remake(path: &Path, bytes: Option<u64>, label: &str, erase: bool) -> Result<Header> {
    let candidate = Candidate::open(path).map_err(refusal)?;
    candidate.refuse_used().map_err(refusal)?;
    // A file without any content is nobody's.
    let is_blank = candidate.bytes == 0;
    if !is_blank && !erase {
        return Err(match candidate.header() {
            Err(Refused::Header(Refusal::NoSignature | Refusal::Suspended)) => refusal(Refused::Foreign),
            Err(Refused::Io(error)) => error.into(),
            _ => anyhow!("it is a swap area already, which only --erase makes anew"),
        });
    }
    candidate.refuse_read_only().map_err(refusal)?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = bytes.unwrap_or(candidate.bytes);
    // *The story:* `--size 1G` made 40 MiB of a device of 40, without a word.
    if candidate.medium == Medium::Device && bytes > candidate.bytes {
        bail!("the device has {}", human::bytes(candidate.bytes));
    }
    let pages = page_count(bytes)?;
    let (medium, bytes_before) = (candidate.medium, candidate.bytes);
    let reserved = if medium == Medium::File { reserve(path, &file, pages) } else { Ok(()) };
    drop(candidate); // who has it open for long has a lock on it
    let made = reserved.and_then(|()| write_header(path, &file, pages, label));
    match (medium, made.is_ok()) {
        // *The stories:* a file of no bytes that was to have 100 TiB was that long afterwards, and foreign.
        // One on a file system that cannot have areas was an area afterwards.
        (Medium::File, false) => drop(file.set_len(bytes_before)),
        (Medium::File, true) => say_if_others_may_read(path, &file)?,
        (Medium::Device, _) => {}
    }
    made
}

/// What pages leave in a file others may read, if it was theirs to read before.
///
/// *The story:* an empty file that everybody may read was taken as it was, without a word; mkswap has one.
fn say_if_others_may_read(path: &Path, file: &File) -> Result<()> {
    let mode = file.metadata()?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = human::command(&[path]);
        let note =
            format!("others may open it (mode {mode:04o}), and what is spilled there: chmod 600 {path}");
        say!("{}", human::folded(&format!("overspill: note: {note}"), "    ").trim_end());
    }
    Ok(())
}

fn refusal(refused: Refused) -> anyhow::Error {
    anyhow!("{refused}")
}

fn page_count(bytes: u64) -> Result<u32> {
    let pages = bytes / HEADER_BYTES as u64;
    if pages < PAGES_MIN {
        bail!("an area has at least {}", pages_text(PAGES_MIN));
    }
    // *The story:* `--size 20T` made 16 TiB, or asked for as much, without a word.
    u32::try_from(pages).map_err(|_| {
        anyhow!("an area has at most {}: its header counts 2^32 pages less one", pages_text(u32::MAX.into()))
    })
}

/// All blocks of the file, and no more: an area has no holes.
///
/// *The story:* `--size 8T` took all that was left of the disk before it failed, and whoever wrote
/// there in that moment failed, too.
fn reserve(path: &Path, file: &File, pages: u32) -> Result<()> {
    let bytes = i64::from(pages) * HEADER_BYTES as i64;
    let has = file.metadata()?.blocks() * 512;
    let free = swap_place::free_bytes(path)?;
    if bytes.cast_unsigned().saturating_sub(has) > free {
        bail!("it would take {}, and {} are free", human::bytes(bytes.cast_unsigned()), human::bytes(free));
    }
    write_in_place(file).context("cannot have it written in place (chattr +C)")?;
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => write_zeroes(file, pages),
        reserved => reserved.map_err(io::Error::from),
    }
    .context("cannot reserve its blocks")?;
    Ok(file.set_len(bytes.cast_unsigned())?)
}

/// Where a file system reserves nothing, what is written has its blocks.
fn write_zeroes(file: &File, pages: u32) -> io::Result<()> {
    let zeroes = vec![0; ZEROES_PAGES as usize * HEADER_BYTES];
    for page in (0..pages).step_by(ZEROES_PAGES as usize) {
        let bytes = (pages - page).min(ZEROES_PAGES) as usize * HEADER_BYTES;
        file.write_all_at(&zeroes[..bytes], u64::from(page) * HEADER_BYTES as u64)?;
    }
    Ok(())
}

/// Where a file system writes what is there already to another place, it is told not to. What is in the file
/// goes for that, as only an empty file can be changed so: there is room for what comes in its place.
///
/// *The story:* swapon refused what was made on Btrfs.
fn write_in_place(file: &File) -> io::Result<()> {
    let fd = descriptor::raw(file.try_clone()?);
    let is_elsewhere = sys_file::space(&fd).map_err(as_io)?.magic == BTRFS_MAGIC;
    if is_elsewhere && !sys_file::is_in_place(&fd).map_err(as_io)? {
        file.set_len(0)?;
        sys_file::set_in_place(&fd).map_err(as_io)?;
    }
    Ok(())
}

/// Writes the first page, and looks whether what came of it can be used.
fn write_header(path: &Path, file: &File, pages: u32, label: &str) -> Result<Header> {
    let header = Header::new(pages, random_uuid()?, label.as_bytes());
    // What was in the first kilobyte goes, too: a file system's mark there would be a lie.
    let mut page = [0; HEADER_BYTES];
    header.write(&mut page);
    file.write_all_at(&page, 0)?;
    file.sync_all()?;
    let (found, _) = Candidate::open(path).and_then(|made| made.usable()).map_err(refusal)?;
    assert_eq!(found, header, "what was written is read back");
    Ok(found)
}

/// Version 4: random but for six bits.
fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut uuid)?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See [`page_count`].
    #[test]
    fn what_no_header_can_say_is_refused() {
        assert_eq!(page_count((16 << 40) - 1).unwrap(), u32::MAX);
        for bytes in [16 << 40, 20 << 40, u64::MAX] {
            let error = page_count(bytes).unwrap_err().to_string();
            assert!(error.contains("at most 16.0 TiB"), "{error}");
        }
        assert!(page_count(9 << 12).is_err());
    }
}
