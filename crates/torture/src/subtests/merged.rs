//! Pages that are the same are merged by the kernel (KSM): which pages those are, whatever is stored to
//! them, and whether they can leave, must be as it would be without.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::{ensure, sys};

/// Every so many pages are one content.
const CONTENTS: usize = 16;
/// The word that is stored to.
const WORD: usize = 9;
/// Time for the kernel to find what is the same: it looks twice at each page.
const MERGING_MS: u64 = 1500;

/// The machine's settings of merging, which are as they were afterwards.
struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// Merging is on, and quick. Where that may not be set it is as it is.
    fn merging() -> Settings {
        let wanted = [
            ("/sys/kernel/mm/ksm/run", "1"),
            ("/sys/kernel/mm/ksm/pages_to_scan", "5000"),
            ("/sys/kernel/mm/ksm/sleep_millisecs", "20"),
        ];
        let set = |(file, value)| {
            let before = std::fs::read_to_string(file).ok()?;
            std::fs::write(file, value).ok().map(|()| (file, before))
        };
        Settings(wanted.into_iter().filter_map(set).collect())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (file, before) in &self.0 {
            let _ = std::fs::write(file, before);
        }
    }
}

fn merge_all() {
    const PR_SET_MEMORY_MERGE: i32 = 67;
    // SAFETY: changes no content. A kernel that merges nothing refuses.
    unsafe { libc::prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) };
}

fn content(page: usize) -> u64 {
    0x6e72_6765_6400 + (page % CONTENTS) as u64
}

fn check(memory: &Memory, stored: std::ops::Range<usize>, what: &str) -> Outcome {
    for page in 0..memory.pages() {
        for word in [0, WORD, 500] {
            let is_stored = word == WORD && stored.contains(&page);
            let expected = if is_stored { page as u64 } else { content(page) };
            let found = memory.word(page, word).load(Relaxed);
            ensure!(found == expected, "{what}: word {word} of page {page} is {found:#x}, not {expected:#x}");
        }
    }
    Ok(())
}

/// Reads parts, waits until they may be merged, stores to them, and checks all.
fn store_to_merged(context: &mut Context, memory: &Memory) -> Outcome {
    let part = memory.pages() / 4;
    for first in (0..memory.pages()).step_by(part) {
        let pages = first..(first + part).min(memory.pages());
        pages.clone().for_each(|page| _ = memory.word(page, 0).load(Relaxed));
        sys::pause_ms(MERGING_MS);
        pages.clone().for_each(|page| memory.word(page, WORD).store(page as u64, Relaxed));
    }
    context.sabotage(memory);
    (0..2).try_for_each(|_| check(memory, 0..memory.pages(), "what was merged and stored to"))
}

/// `merged`: memory of which most pages are the same leaves as any does, and takes stores.
pub fn anonymous(context: &mut Context) -> Outcome {
    let _settings = Settings::merging();
    let memory = Memory::map(context.options.mib * MIB / 4)?;
    merge_all();
    sys::madvise(memory.base(), memory.len(), libc::MADV_MERGEABLE).or_else(|failure| {
        // A kernel that merges nothing.
        if sys::errno() == libc::EINVAL { Ok(()) } else { Err(failure) }
    })?;
    for page in 0..memory.pages() {
        (0..PAGE / 8).for_each(|word| memory.word(page, word).store(content(page), Relaxed));
    }
    sys::pause_ms(MERGING_MS);
    context.cool(&memory)?;
    store_to_merged(context, &memory)
}

/// `file-merged`: stores to a private mapping of a file of which most pages are the same.
///
/// *The story:* the kernel takes write protection away from what it merges. The first store to such a page
/// was heard by nobody, and was lost when the page left: 2973 of 20,480.
pub fn file(context: &mut Context) -> Outcome {
    let _settings = Settings::merging();
    let len = 96 * MIB;
    let path = context.options.directory.join(format!("torture-merged-{}", std::process::id()));
    let mut file = std::io::BufWriter::new(File::create(&path)?);
    for page in 0..len / PAGE {
        file.write_all(&content(page).to_ne_bytes().repeat(PAGE / 8))?;
    }
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    let file = File::open(&path)?;
    std::fs::remove_file(&path)?;
    let base = sys::mmap(0, len, RW, libc::MAP_PRIVATE, std::os::fd::AsRawFd::as_raw_fd(&file))?;
    let memory = Memory::adopt(base, len);
    merge_all();
    store_to_merged(context, &memory)
}
