//! The kernel's temporary swap area: a file with a swap header, on the file system that overspill
//! spills to.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::guardian::swap_off;
use crate::os::swap;

const PAGE_BYTES: u64 = 4096;
/// Where mkswap(8) puts the version and what follows it.
const HEADER_OFFSET: usize = 1024;
/// The last ten bytes of the first page.
const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";

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
        let length = i64::try_from(bytes).context("too large for a file")?;
        allocate(&file, length).with_context(|| {
            format!("no room for {} of kernel swap in {}", crate::human::bytes(bytes), path.display())
        })?;
        file.write_all_at(&header(bytes / PAGE_BYTES), 0)?;
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

/// The first page of a swap area of version 1:
///
/// ```text
/// 0      1024      1028        1032      1036                    4086
/// | boot | version | last page | bad: 0  | uuid, label: 0 ... | SWAPSPACE2 |
/// ```
fn header(pages: u64) -> Vec<u8> {
    assert!(pages >= 10, "the kernel wants at least ten pages");
    let last_page = u32::try_from(pages - 1).unwrap_or(u32::MAX);
    let mut page = vec![0; PAGE_BYTES as usize];
    page[HEADER_OFFSET..HEADER_OFFSET + 4].copy_from_slice(&1u32.to_ne_bytes());
    page[HEADER_OFFSET + 4..HEADER_OFFSET + 8].copy_from_slice(&last_page.to_ne_bytes());
    let signature = page.len() - SIGNATURE.len();
    page[signature..].copy_from_slice(SIGNATURE);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_where_the_kernel_looks() {
        let page = header(16_384);
        assert_eq!(page.len(), 4096);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        assert_eq!(page[1024..1032], [1, 0, 0, 0, 0xff, 0x3f, 0, 0]);
        assert!(page[..1024].iter().all(|&byte| byte == 0));
    }
}
