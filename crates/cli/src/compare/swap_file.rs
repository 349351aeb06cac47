//! The kernel's temporary swap area: a file with a swap header, on the file system that overspill
//! spills to.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use overspill_mm::swap::header::{HEADER_BYTES, Header};

use super::guardian::swap_off;
use crate::checks::swap_place::free_bytes;
use crate::human;
use crate::os::swap;

const PAGE_BYTES: u64 = HEADER_BYTES as u64;

/// A swap area that is ready to be switched on.
pub struct SwapFile {
    path: PathBuf,
}

impl SwapFile {
    /// Where the file will be.
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join(format!(".overspill-compare-{}.swap", std::process::id()))
    }

    /// Makes the file at `path` (which must be noted with the guardian already), readable by nobody
    /// else.
    pub fn create(path: &Path, bytes: u64) -> Result<SwapFile> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        let no_room = || format!("no room for {} of kernel swap in {}", human::bytes(bytes), path.display());
        // What is too much would take all that is left before it failed.
        ensure!(bytes <= free_bytes(path)?, no_room());
        allocate(&file, i64::try_from(bytes)?).with_context(no_room)?;
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let mut first_page = [0; HEADER_BYTES];
        Header::new(pages, [0; 16], b"").write(&mut first_page);
        file.write_all_at(&first_page, 0)?;
        file.sync_all()?;
        Ok(SwapFile { path: path.to_path_buf() })
    }

    /// Lets the kernel swap to it.
    pub fn on(&self) -> Result<()> {
        swap::on(&self.path).with_context(|| format!("the kernel refuses to swap to {}", self.path.display()))
    }

    /// Stops that.
    pub fn off(&self) -> Result<()> {
        swap_off(&self.path).with_context(|| format!("cannot stop swapping to {}", self.path.display()))
    }
}

fn allocate(file: &File, length: i64) -> nix::Result<()> {
    nix::fcntl::fallocate(file, nix::fcntl::FallocateFlags::empty(), 0, length)
}
