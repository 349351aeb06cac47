//! What /proc tells of a process beside what each look reads: shared memory, what is locked, pages of
//! hugetlbfs, secret memory, page tables. Each is asked for when it may have changed, or now and then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use overspill_sys::clock;

use super::descendants::{Look, figure, figures, of_pid, text_of_memory};
use crate::machine;

/// A process's shared memory is asked for at once when the sum of it and of its files has changed by so much.
const SHARED_STEP_BYTES: u64 = 1 << 20;
/// What is locked is asked for again after that, and after so many times what it took; so is secret memory.
const LOCKED_PAUSE: Duration = Duration::from_millis(20);
const LOCKED_SHARE: u32 = 50;
/// How often it is asked whether anybody has pages of hugetlbfs.
const HUGE_LOOK: Duration = Duration::from_millis(100);
/// ... and what of files and shared memory is which, and how large page tables are, and after so many times
/// the processor time that this took.
const STATUS_LOOK: Duration = Duration::from_millis(100);
const STATUS_SHARE: u64 = 300;
/// Page tables count from this size on, and where they are more than this part of the budget: what is managed
/// has some, too.
const TABLES_BYTES: u64 = 8 << 20;
const TABLES_PART: u64 = 16;

/// Of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    /// The figure of files and shared memory when it was read.
    shared_bytes: u64,
    /// Shared memory.
    pub shmem_bytes: u64,
    /// In pages of hugetlbfs, which no other figure has.
    pub huge_bytes: u64,
    /// In mappings that are locked: under `--strict` files among them and what is not in RAM, read while the
    /// tree is above its budget only; else what is anonymous.
    pub locked_bytes: u64,
    /// Its part of what memfd_secret has made, which counts with its files, and when that was asked for.
    pub secret_bytes: u64,
    secret_shared_bytes: u64,
    /// Page tables, if they count.
    pub table_bytes: u64,
}

impl Extra {
    /// What counts beside anonymous and shared memory, and nobody can page.
    pub fn other_bytes(&self) -> u64 {
        self.huge_bytes + self.secret_bytes + self.table_bytes
    }
}

/// The name of what memfd_secret makes, in /proc/PID/maps.
const SECRET: &str = "/secretmem";

/// What a process keeps in RAM by mappings of its own, which is known by a walk of all of its page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    /// Anonymous memory that is in RAM and locked.
    locked_anon_bytes: u64,
    /// Its part of what memfd_secret has made.
    secret_bytes: u64,
}

impl Kept {
    fn of_process(pid: u32) -> Kept {
        Kept::of_text(&text_of_memory(pid, "smaps").unwrap_or_default())
    }

    /// What of it is secret. Whether there is any costs no walk.
    fn secret_of(pid: u32) -> u64 {
        let has_any = text_of_memory(pid, "maps").is_ok_and(|text| text.contains(SECRET));
        if has_any { Kept::of_process(pid).secret_bytes } else { 0 }
    }

    /// Of the text of /proc/PID/smaps.
    fn of_text(text: &str) -> Kept {
        let (mut kept, mut is_secret, mut anon_bytes) = (Kept::default(), false, 0);
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let first = words.next().unwrap_or_default();
            // A mapping's first line begins with its addresses, the others with what they tell.
            if !first.ends_with(':') {
                (is_secret, anon_bytes) = (words.nth(4) == Some(SECRET), 0);
                continue;
            }
            let mut bytes = || words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024;
            match first {
                "Pss:" if is_secret => kept.secret_bytes += bytes(),
                "Anonymous:" => anon_bytes = bytes(),
                // Of what several have, `Locked` is a part only.
                "Locked:" if bytes() > 0 => kept.locked_anon_bytes += anon_bytes,
                _ => {}
            }
        }
        kept
    }
}

/// Of all that live.
pub struct Extras {
    of: BTreeMap<u32, Extra>,
    ram_bytes: u64,
    huge_asked: Option<Instant>,
    /// From when on each is asked for again.
    locked_again: Instant,
    secret_again: Instant,
    status_again: Instant,
}

impl Extras {
    /// Of a run with such a budget.
    pub fn new(ram_bytes: u64) -> Extras {
        let now = Instant::now();
        let (locked_again, secret_again, status_again) = (now, now, now);
        Extras { of: BTreeMap::new(), ram_bytes, huge_asked: None, locked_again, secret_again, status_again }
    }

    /// What is known of one.
    pub fn of(&self, pid: u32) -> Extra {
        self.of.get(&pid).copied().unwrap_or_default()
    }

    /// The shared memory of one.
    pub fn shmem_bytes(&self, look: &Look) -> u64 {
        self.of(look.pid).shmem_bytes
    }

    /// Of all.
    pub fn other_bytes(&self) -> u64 {
        self.of.values().map(Extra::other_bytes).sum()
    }

    /// Asks for what may have changed, of all that live.
    pub fn read(&mut self, looks: &[Look]) {
        self.of.retain(|pid, _| of_pid(looks, *pid).is_some());
        for look in looks {
            self.read_shmem(look);
        }
        self.read_huge(looks);
        self.read_status(looks);
        self.read_secret(looks);
    }

    /// Asks anew for what an end hangs on.
    pub fn read_afresh(&mut self, look: &Look) {
        self.of.entry(look.pid).or_default().shared_bytes = u64::MAX; // so that it is read
        self.read_shmem(look);
        let extra = self.of.entry(look.pid).or_default();
        if extra.locked_bytes == 0 && extra.secret_bytes == 0 {
            return;
        }
        let kept = Kept::of_process(look.pid);
        if extra.locked_bytes > 0 {
            extra.locked_bytes = kept.locked_anon_bytes;
        }
        if extra.secret_bytes > 0 {
            extra.secret_bytes = kept.secret_bytes;
        }
    }

    /// Shared memory is asked for again when it may have changed.
    fn read_shmem(&mut self, look: &Look) {
        let extra = self.of.entry(look.pid).or_default();
        if look.shared_bytes.abs_diff(extra.shared_bytes) >= SHARED_STEP_BYTES {
            extra.shared_bytes = look.shared_bytes;
            // What is not told any more was there an instant ago.
            extra.shmem_bytes = figure(look.pid, "status", "RssShmem").unwrap_or(extra.shmem_bytes);
        }
    }

    /// What is locked stays in RAM, managed or not.
    ///
    /// *The story:* a program locked two and a half times its budget under `--strict` and was let run.
    pub fn read_locked(&mut self, looks: &[Look], is_above: bool) {
        for look in looks {
            let locked_bytes = if is_above { figure(look.pid, "status", "VmLck").unwrap_or(0) } else { 0 };
            let extra = self.of.entry(look.pid).or_default();
            extra.locked_bytes = locked_bytes.saturating_sub(extra.secret_bytes);
        }
    }

    /// The same for the verdict, so that it need not be at once: of those that have locked something, what
    /// of that is anonymous.
    ///
    /// *The story:* what had been managed before it was locked counted as what can be paged, and a run
    /// that had next to nothing to page was said to work.
    pub fn find_locked(&mut self, looks: &[Look]) {
        let began = Instant::now();
        if began < self.locked_again {
            return;
        }
        for look in looks {
            let locks = figure(look.pid, "status", "VmLck").unwrap_or(0) > 0;
            self.of.entry(look.pid).or_default().locked_bytes =
                if locks { Kept::of_process(look.pid).locked_anon_bytes } else { 0 };
        }
        self.locked_again = Instant::now() + LOCKED_PAUSE.max(began.elapsed() * LOCKED_SHARE);
    }

    /// Pages of hugetlbfs: no more of all together than the machine has in use. Most machines have none.
    ///
    /// *The story:* with MAP_HUGETLB a program held any amount, and was said to fit.
    fn read_huge(&mut self, looks: &[Look]) {
        if self.huge_asked.is_some_and(|asked| asked.elapsed() < HUGE_LOOK) {
            return;
        }
        self.huge_asked = Some(Instant::now());
        let mut left = machine::huge_bytes_in_use();
        for look in looks {
            let extra = self.of.entry(look.pid).or_default();
            let held = if left > 0 { figure(look.pid, "status", "HugetlbPages").unwrap_or(0) } else { 0 };
            extra.huge_bytes = held.min(left);
            left -= extra.huge_bytes;
        }
    }

    /// Secret memory (memfd_secret): the kernel counts it with files, and as locked.
    ///
    /// *The story:* a program held 100 MiB of it, which nobody can page. "Fits: never needed more than 236
    /// KiB" was said, and `--strict` let it run.
    fn read_secret(&mut self, looks: &[Look]) {
        let began = Instant::now();
        if began < self.secret_again {
            return;
        }
        for look in looks {
            let extra = self.of.entry(look.pid).or_default();
            if look.shared_bytes.abs_diff(extra.secret_shared_bytes) >= SHARED_STEP_BYTES {
                extra.secret_shared_bytes = look.shared_bytes;
                let locks = figure(look.pid, "status", "VmLck").unwrap_or(0) > 0;
                extra.secret_bytes = if locks { Kept::secret_of(look.pid) } else { 0 };
            }
        }
        self.secret_again = Instant::now() + LOCKED_PAUSE.max(began.elapsed() * LOCKED_SHARE);
    }

    /// What no other figure tells the change of: shared memory that takes the place of files, secret memory
    /// that does, and page tables that are large, of what was read here and there, say.
    ///
    /// *The story:* 60 GiB of which a page was read each 2 MiB had 120 MiB of page tables. "Fits: never
    /// needed more than 220 KiB".
    ///
    /// *The other story:* a program loaded a file into shared memory and let go of what it had read, so that
    /// the sum of both stayed. 250 MiB in 100 were said to need 496 KiB, and `--strict` let them be.
    fn read_status(&mut self, looks: &[Look]) {
        if Instant::now() < self.status_again {
            return;
        }
        let began_ns = clock::thread_cpu_ns();
        let least = TABLES_BYTES.max(self.ram_bytes / TABLES_PART);
        for look in looks {
            let names = ["RssShmem", "VmPTE", "VmLck"];
            let Some([shmem, tables, locked]) = figures(look.pid, "status", names) else { continue };
            let extra = self.of.entry(look.pid).or_default();
            (extra.shared_bytes, extra.shmem_bytes) = (look.shared_bytes, shmem);
            extra.table_bytes = if tables > least { tables } else { 0 };
            if locked >= SHARED_STEP_BYTES && look.shared_bytes >= SHARED_STEP_BYTES {
                extra.secret_shared_bytes = u64::MAX; // so that it is asked for
            }
        }
        let took = Duration::from_nanos((clock::thread_cpu_ns() - began_ns) * STATUS_SHARE);
        self.status_again = Instant::now() + STATUS_LOOK.max(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_sys::mem::Mapping;

    /// See [`Extras::read_status`].
    #[test]
    fn shared_memory_that_takes_the_place_of_files_is_seen() {
        const BYTES: usize = 64 << 20;
        // What the sum is stays, whatever is behind it.
        let look = Look { pid: std::process::id(), shared_bytes: 100 << 20, ..Look::default() };
        let mut extras = Extras::new(100 << 20);
        extras.read(&[look]);
        let memory = Mapping::anon_shared(BYTES).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
        for at in (0..BYTES).step_by(4096) {
            let page = (memory.start() + at) as u64;
            std::os::unix::fs::FileExt::write_all_at(&file, &[1], page).unwrap();
        }
        let began = Instant::now();
        while extras.shmem_bytes(&look) < BYTES as u64 {
            assert!(began.elapsed() < Duration::from_secs(20), "it is not seen");
            std::thread::sleep(Duration::from_millis(10));
            extras.read(&[look]);
        }
    }

    #[test]
    fn what_mappings_keep_is_added_up() {
        let text = "\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n\
Rss:                1024 kB\n\
Pss:                 512 kB\n\
Anonymous:          1024 kB\n\
Locked:              512 kB\n\
VmFlags: rd wr mr mw me lo ac \n\
7f0000200000-7f0000300000 rw-s 00000000 00:0b 77 /secretmem (deleted)\n\
Pss:                 256 kB\n\
Anonymous:             0 kB\n\
Locked:              256 kB\n\
7f0000400000-7f0000500000 rw-p 00000000 00:00 0 [heap]\n\
Pss:                 128 kB\n\
Anonymous:           128 kB\n\
Locked:                0 kB\n";
        let expected = Kept { locked_anon_bytes: 1 << 20, secret_bytes: 256 << 10 };
        assert_eq!(Kept::of_text(text), expected);
        assert_eq!(Kept::of_text(""), Kept::default());
    }
}
