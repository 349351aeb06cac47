//! Small facts from /proc: how much is resident, which threads there are, what the process may do.
//!
//! It never keeps more than one buffer on the stack; files that are read often stay open.

use crate::file::{self, Open};
use crate::raw::{nr, syscall};
use crate::text::{Decimal, joined, skip_blanks, take_number};
use crate::{Errno, Fd, PAGE_SIZE, mem};
use core::ffi::CStr;

/// How much memory this process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Anonymous memory in RAM (`RssAnon`).
    pub anon_bytes: u64,
    /// Files and shared memory in RAM.
    pub shared_bytes: u64,
    /// Addresses in use.
    pub virtual_bytes: u64,
    /// Pages of the program's code: the same for the life of a program, another figure after an exec.
    pub program_pages: u64,
}

/// Reads /proc/thread-self/statm: half the price of /proc/thread-self/status, and `resident -
/// shared` is the same `RssAnon`.
///
/// *The story:* a program whose first thread ends by pthread_exit goes on with the others.
/// /proc/self is that of the first thread, and says that it holds nothing: nothing was managed.
#[derive(Debug)]
pub struct ResidentReader {
    fd: Fd,
}

impl ResidentReader {
    /// Opens it.
    pub fn open() -> Result<ResidentReader, Errno> {
        Ok(ResidentReader { fd: file::open(c"/proc/thread-self/statm", Open::empty())? })
    }

    /// Anonymous memory in RAM, in bytes. One system call of about a microsecond. The kernel counts per
    /// processor and adds up lazily before 6.17: the figure may be off by some dozens of pages per processor
    /// there.
    pub fn anon_bytes(&self) -> Result<u64, Errno> {
        self.read().map(|resident| resident.anon_bytes)
    }

    /// All of it.
    pub fn read(&self) -> Result<Resident, Errno> {
        let mut buffer = [0; 192];
        let len = file::pread(&self.fd, &mut buffer, 0)?;
        parse_statm(&buffer[..len]).ok_or(Errno::IO)
    }
}

fn parse_statm(text: &[u8]) -> Option<Resident> {
    let (virtual_pages, rest) = take_number(text, 10)?;
    let (resident, rest) = take_number(skip_blanks(rest), 10)?;
    let (shared, rest) = take_number(skip_blanks(rest), 10)?;
    let program_pages = take_number(skip_blanks(rest), 10).map_or(0, |(pages, _)| pages);
    let page = PAGE_SIZE as u64;
    Some(Resident {
        anon_bytes: resident.saturating_sub(shared) * page,
        shared_bytes: shared * page,
        virtual_bytes: virtual_pages * page,
        program_pages,
    })
}

/// This process's id as /proc has it: that of the pid namespace that /proc was mounted for, which
/// need not be its own.
pub fn process_id_in_proc() -> Result<u32, Errno> {
    let mut text = [0; 16];
    let digits = file::read_link(c"/proc/self", &mut text)?;
    match take_number(digits, 10) {
        Some((pid, [])) => u32::try_from(pid).map_err(|_| Errno::RANGE),
        _ => Err(Errno::NOENT),
    }
}

/// The name of the calling thread: at most 15 bytes, then zeroes. A thread has its creator's until
/// it takes another.
#[must_use]
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: the call writes 16 bytes.
    let _ = unsafe {
        syscall!(
            nr::__NR_prctl,
            linux_raw_sys::prctl::PR_GET_NAME as usize,
            name.as_mut_ptr() as usize,
            0,
            0,
            0
        )
    };
    name
}

/// Tells whether a thread sleeps in the kernel; some 2 us a look.
#[derive(Debug)]
pub struct SleepReader {
    fd: Fd,
}

impl SleepReader {
    /// Of /proc/self/task/TID/stat.
    pub fn open(path: &CStr) -> Result<SleepReader, Errno> {
        Ok(SleepReader { fd: file::open(path, Open::empty())? })
    }

    /// Waits for something, interruptibly or not: it neither runs nor wants to.
    pub fn is_asleep(&self) -> Result<bool, Errno> {
        let mut buffer = [0; 128];
        let len = file::pread(&self.fd, &mut buffer, 0)?;
        state_in(&buffer[..len]).map(|state| matches!(state, b'S' | b'D')).ok_or(Errno::IO)
    }

    /// It has ended, and is there only since other threads of its process are.
    pub fn has_ended(&self) -> Result<bool, Errno> {
        let mut buffer = [0; 128];
        let len = file::pread(&self.fd, &mut buffer, 0)?;
        state_in(&buffer[..len]).map(|state| matches!(state, b'Z' | b'X')).ok_or(Errno::IO)
    }
}

/// How many threads this process has, the calling one included, in one system call: each has a
/// directory. No descriptor is kept for it: *the story:* one more, and nothing of a program that may
/// have ten of them was managed.
pub fn thread_count() -> Result<u32, Errno> {
    let links = file::status_of(c"/proc/self/task")?.links;
    links.checked_sub(2).and_then(|threads| u32::try_from(threads).ok()).ok_or(Errno::RANGE)
}

/// Processors of the machine that run.
pub fn processors() -> Result<u32, Errno> {
    let mut buffer = [0; 512];
    let fd = file::open(c"/sys/devices/system/cpu/online", Open::empty())?;
    let len = file::pread(&fd, &mut buffer, 0)?;
    count_in_list(&buffer[..len]).ok_or(Errno::IO)
}

/// How many numbers there are in a list such as `0-3,8`.
fn count_in_list(text: &[u8]) -> Option<u32> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|&byte| byte == b',').try_fold(0, |count, part| {
        let (first, rest) = take_number(part, 10)?;
        let last = match rest.strip_prefix(b"-") {
            Some(rest) => take_number(rest, 10)?.0,
            None => first,
        };
        Some(count + u32::try_from(last.checked_sub(first)?).ok()? + 1)
    })
}

/// Who gets huge pages for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HugePages {
    /// Nobody.
    Never,
    /// Who asks for them.
    Advised,
    /// Everybody.
    Always,
}

/// As the machine is set up. What cannot be read counts as the most that it may be.
#[must_use]
pub fn huge_pages() -> HugePages {
    let read = |path: &CStr| match file::open(path, Open::empty()) {
        Ok(fd) => {
            let mut buffer = [0; 64];
            file::pread(&fd, &mut buffer, 0).map_or(HugePages::Always, |len| huge_pages_in(&buffer[..len]))
        }
        // A root without /sys says nothing.
        Err(Errno::NOENT) if file::status_of(c"/sys/kernel/mm").is_ok() => HugePages::Never,
        Err(_) => HugePages::Always,
    };
    let all = read(c"/sys/kernel/mm/transparent_hugepage/enabled");
    // Newer kernels have a setting for each size besides.
    all.max(read(c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled"))
}

fn huge_pages_in(text: &[u8]) -> HugePages {
    let has = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
    match () {
        () if has(b"[never]") || has(b"[inherit]") => HugePages::Never,
        () if has(b"[madvise]") => HugePages::Advised,
        () => HugePages::Always,
    }
}

/// Do these bytes, 64 at most, occur in the environment that the program was started with?
pub fn environment_holds(bytes: &[u8]) -> Result<bool, Errno> {
    const KEPT: usize = 64;
    assert!(bytes.len() <= KEPT);
    let fd = file::open(c"/proc/self/environ", Open::empty())?;
    let (mut buffer, mut at) = ([0; 1024], 0);
    loop {
        let len = file::pread(&fd, &mut buffer, at)?;
        if buffer[..len].windows(bytes.len()).any(|window| window == bytes) {
            return Ok(true);
        }
        if len <= KEPT {
            return Ok(false);
        }
        // What lies across the end of the buffer is read again.
        at += (len - KEPT) as u64;
    }
}

/// How the first thread of this process has ended, as wait(2) would tell: the last field of
/// /proc/self/stat.
pub fn leader_exit_code() -> Option<u32> {
    let fd = file::open(c"/proc/self/stat", Open::empty()).ok()?;
    let mut buffer = [0; 1024];
    let len = file::pread(&fd, &mut buffer, 0).ok()?;
    let text = core::str::from_utf8(buffer[..len].rsplit(|&byte| byte == b')').next()?).ok()?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Tells one program that a process runs from the next, which has its code and its stack elsewhere: made of
/// /proc/PID/stat. 0 where that is not told: to who may not look into the process, and between two of them.
#[must_use]
pub fn program_stamp(stat: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let number = |field| Some(take_number(stat_field(stat, field)?, 10)?.0);
    let [code, end, stack] = [23, 24, 25].map(|field| number(field).unwrap_or(0));
    if stack == 0 {
        return 0;
    }
    let mixed =
        [code, end, stack].iter().fold(0_u64, |sum, number| (sum ^ number).wrapping_mul(ODD).rotate_left(23));
    mixed | 1
}

/// The same of this process; 0 where it cannot be known.
#[must_use]
pub fn own_program_stamp() -> u64 {
    let mut buffer = [0; 1024];
    let fd = file::open(c"/proc/thread-self/stat", Open::empty());
    fd.and_then(|fd| file::pread(&fd, &mut buffer, 0)).map_or(0, |len| program_stamp(&buffer[..len]))
}

/// Tells whether a file begins with these bytes.
pub fn starts_with(path: &CStr, bytes: &[u8]) -> bool {
    let mut buffer = [0; 16];
    let read = file::open(path, Open::empty()).and_then(|fd| file::pread(&fd, &mut buffer, 0));
    read.is_ok_and(|len| buffer[..len].starts_with(bytes))
}

/// The state of a thread, a letter, in its /proc/PID/stat.
pub(crate) fn state_in(stat: &[u8]) -> Option<u8> {
    stat_field(stat, 0)?.first().copied()
}

/// A field of /proc/PID/stat, counted from 0 behind the name, which stands in parentheses and may hold some
/// itself.
pub(crate) fn stat_field(stat: &[u8], number: usize) -> Option<&[u8]> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields =
        stat[end + 1..].split(|&byte| byte == b' ' || byte == b'\n').filter(|field| !field.is_empty());
    fields.nth(number)
}

/// A text of `Name: value` lines, such as /proc/self/status or /proc/meminfo, at one moment.
pub struct Fields {
    text: [u8; FIELDS_BYTES],
    len: usize,
}
const FIELDS_BYTES: usize = 4096;

impl Fields {
    /// Reads a file; of what does not fit into 4 KiB whole lines are left out.
    pub fn read(path: &CStr) -> Result<Fields, Errno> {
        let fd = file::open(path, Open::empty())?;
        let mut fields = Fields { text: [0; FIELDS_BYTES], len: 0 };
        let mut at = 0;
        loop {
            let read = file::pread(&fd, &mut fields.text[fields.len..], at)?;
            fields.len += read;
            at += read as u64;
            if read == 0 {
                return Ok(fields);
            }
            fields.forget_groups();
            if fields.len == FIELDS_BYTES {
                // A line that was cut may say anything.
                let whole = fields.text.iter().rposition(|&byte| byte == b'\n');
                fields.len = whole.map_or(0, |end| end + 1);
                return Ok(fields);
            }
        }
    }

    /// Keeps no more than the name of the line of groups.
    ///
    /// *The story:* a user may be in thousands of them. Their line stands in the middle of a status,
    /// and with 400 of them a filter of system calls was not seen: it was behind the cut.
    fn forget_groups(&mut self) {
        const GROUPS: &[u8] = b"\nGroups:";
        let text = &mut self.text[..self.len];
        let Some(at) = text.windows(GROUPS.len()).position(|window| window == GROUPS) else { return };
        let from = at + GROUPS.len();
        let end = text[from..].iter().position(|&byte| byte == b'\n').map_or(text.len(), |len| from + len);
        text.copy_within(end.., from);
        self.len -= end - from;
    }

    /// /proc/self/status: `Threads`, `Seccomp`, `RssAnon`, `VmLck`, `SigCgt`, ...
    pub fn of_process() -> Result<Fields, Errno> {
        Fields::read(c"/proc/thread-self/status")
    }

    /// /proc/meminfo: `MemTotal`, `MemAvailable`, `SwapTotal`, ...
    pub fn of_machine() -> Result<Fields, Errno> {
        Fields::read(c"/proc/meminfo")
    }

    /// What follows `name:`, without blanks in front.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&[u8]> {
        self.text[..self.len].split(|&byte| byte == b'\n').find_map(|line| {
            let rest = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            Some(skip_blanks(rest))
        })
    }

    /// The decimal number there; `kB` after it is taken into account.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let (number, rest) = take_number(self.text(name)?, 10)?;
        Some(if skip_blanks(rest) == b"kB" { number * 1024 } else { number })
    }

    /// The hexadecimal mask there (`SigCgt`, `CapEff`).
    #[must_use]
    pub fn mask(&self, name: &str) -> Option<u64> {
        take_number(self.text(name)?, 16).map(|(mask, _)| mask)
    }
}

/// A file that holds one number, such as a sysctl; `None` when it is not there or holds something else.
#[must_use]
pub fn number_in(path: &CStr) -> Option<i64> {
    let fd = file::open(path, Open::empty()).ok()?;
    let mut buffer = [0; 32];
    let len = file::pread(&fd, &mut buffer, 0).ok()?;
    let text = &buffer[..len];
    let (negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    let value = i64::try_from(take_number(digits, 10)?.0).ok()?;
    Some(if negative { -value } else { value })
}

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId {
    /// Its number in the process's own pid namespace: what calls want.
    pub tid: u32,
    /// Its number in the namespace that /proc was mounted for: what paths want.
    pub in_proc: u32,
}

/// Calls `visit` with the id of every thread of this process, the ones libc does not know included. Threads
/// that start or end meanwhile may be missed or told.
pub fn for_each_thread(mut visit: impl FnMut(u32)) -> Result<(), Errno> {
    for_each_thread_id(|thread| visit(thread.tid))
}

/// The same, with both of its numbers.
pub fn for_each_thread_id(visit: impl FnMut(ThreadId)) -> Result<(), Errno> {
    Tasks::open()?.for_each_id(visit)
}

/// The list of this process's threads, kept open: it can be read where no descriptor is to be had any more.
#[derive(Debug)]
pub struct Tasks {
    directory: Fd,
}

impl Tasks {
    /// Opens it.
    pub fn open() -> Result<Tasks, Errno> {
        Ok(Tasks { directory: file::open(c"/proc/self/task", Open::DIRECTORY)? })
    }

    /// As [`for_each_thread`].
    pub fn for_each(&self, mut visit: impl FnMut(u32)) -> Result<(), Errno> {
        self.for_each_id(|thread| visit(thread.tid))
    }

    /// As [`for_each_thread_id`].
    ///
    /// *The story:* `unshare -pf` without a /proc of its own. Calls were given numbers of the namespace
    /// outside: no list of robust locks was found, and nobody was told of a lock whose owner had ended
    /// (`citizens::proc-of-outside`).
    pub fn for_each_id(&self, mut visit: impl FnMut(ThreadId)) -> Result<(), Errno> {
        let is_same = process_id_in_proc()? == mem::process_id();
        let mut all = Ok(());
        self.for_each_number(|in_proc| match ThreadId::find(in_proc, is_same) {
            Ok(Some(thread)) => visit(thread),
            Ok(None) => {}
            Err(errno) => all = Err(errno),
        })?;
        all
    }

    /// With the number of each that paths want: nothing is opened for that.
    pub fn for_each_number(&self, mut visit: impl FnMut(u32)) -> Result<(), Errno> {
        file::rewind(&self.directory)?;
        for_each_entry(&self.directory, |name| {
            if let Some((number, [])) = take_number(name, 10) {
                visit(number as u32);
            }
        })
    }
}

impl ThreadId {
    /// Of a thread of this process, by the number that paths want. None: it has ended.
    pub fn of(in_proc: u32) -> Result<Option<ThreadId>, Errno> {
        ThreadId::find(in_proc, process_id_in_proc()? == mem::process_id())
    }

    fn find(in_proc: u32, is_same: bool) -> Result<Option<ThreadId>, Errno> {
        let tid = if is_same { Some(in_proc) } else { innermost_id(in_proc)? };
        Ok(tid.map(|tid| ThreadId { tid, in_proc }))
    }
}

/// The number that a thread has in its own pid namespace. None: it has ended.
fn innermost_id(in_proc: u32) -> Result<Option<u32>, Errno> {
    let mut path = [0; TASK_PATH_BYTES];
    match Fields::read(task_path(in_proc, b"/status", &mut path)) {
        Ok(status) => Ok(status.text("NSpid").and_then(last_number)),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Of a list with blanks between: namespaces stand from the outermost to the innermost.
fn last_number(text: &[u8]) -> Option<u32> {
    let last = text.rsplit(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    match take_number(last, 10) {
        Some((number, [])) => u32::try_from(number).ok(),
        _ => None,
    }
}

/// A path of this length holds any of [`task_path`].
pub const TASK_PATH_BYTES: usize = 48;

/// The path of a thread's file, by its number in /proc; `file` begins with a slash, and is short.
pub fn task_path<'a>(in_proc: u32, file: &[u8], buffer: &'a mut [u8; TASK_PATH_BYTES]) -> &'a CStr {
    let number = Decimal::new(u64::from(in_proc));
    *buffer = joined([b"/proc/self/task/", number.as_bytes(), file]);
    CStr::from_bytes_until_nul(buffer).expect("it was put there")
}

/// Calls `visit` with the name of every entry of a directory from its position on, `.` and `..` included.
pub(crate) fn for_each_entry(directory: &Fd, mut visit: impl FnMut(&[u8])) -> Result<(), Errno> {
    for_entries_until(directory, |name| {
        visit(name);
        false
    })
}

/// The same, until `visit` says that it has seen enough.
pub(crate) fn for_entries_until(directory: &Fd, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Errno> {
    let mut buffer = Entries([0; 2048]);
    loop {
        let (pointer, len) = (buffer.0.as_mut_ptr() as usize, buffer.0.len());
        // SAFETY: the buffer is exclusive.
        let filled = unsafe { syscall!(nr::__NR_getdents64, directory.raw() as usize, pointer, len)? };
        if filled == 0 {
            return Ok(());
        }
        if for_names_until(&buffer.0[..filled], &mut visit) {
            return Ok(());
        }
    }
}

#[repr(align(8))]
struct Entries([u8; 2048]);

/// Splits what getdents64 wrote: inode and offset (8 bytes each), length (2), type (1), name with NUL.
/// True: `visit` has seen enough.
fn for_names_until(mut entries: &[u8], mut visit: impl FnMut(&[u8]) -> bool) -> bool {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    while entries.len() > NAME_AT {
        let len = u16::from_ne_bytes([entries[LENGTH_AT], entries[LENGTH_AT + 1]]) as usize;
        assert!(len > NAME_AT && len <= entries.len(), "the kernel writes whole entries");
        let name = &entries[NAME_AT..len];
        if visit(&name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())]) {
            return true;
        }
        entries = &entries[len..];
    }
    false
}

/// Where a thread of this process keeps its list of robust futexes, and how long the kernel believes the head
/// is. The kernel walks that list when the thread dies, without waiting for missing pages. 0 = none.
pub fn robust_list(tid: u32) -> Result<(usize, usize), Errno> {
    let (mut head, mut len) = (0usize, 0usize);
    let (head_at, len_at) = (&raw mut head as usize, &raw mut len as usize);
    // SAFETY: the call writes two words.
    unsafe { syscall!(nr::__NR_get_robust_list, tid as usize, head_at, len_at)? };
    Ok((head, len))
}

/// A limit of this process: current and largest value, `u64::MAX` for none.
pub fn limit(resource: Limit) -> Result<(u64, u64), Errno> {
    let mut limits = [0u64; 2];
    // SAFETY: the call writes two words.
    unsafe { syscall!(nr::__NR_prlimit64, 0, resource as usize, 0, limits.as_mut_ptr() as usize)? };
    Ok((limits[0], limits[1]))
}

/// Sets a limit of this process. Returns what it was.
pub fn set_limit(resource: Limit, (now, most): (u64, u64)) -> Result<(u64, u64), Errno> {
    let (new, mut old) = ([now, most], [0u64; 2]);
    let (new_at, old_at) = (new.as_ptr() as usize, old.as_mut_ptr() as usize);
    // SAFETY: the call reads two words and writes two.
    unsafe { syscall!(nr::__NR_prlimit64, 0, resource as usize, new_at, old_at)? };
    Ok((old[0], old[1]))
}

/// Acts; where no descriptor is left once more, while the process may have some more, whatever its limit:
/// EMFILE where it may not have that.
///
/// *The story:* the limit was raised to 64, whatever it was. With many files managed, and a limit
/// that the program had set to 100 since, that changed nothing, and the next fork ended the program.
pub fn with_more_descriptors<T>(mut act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    const MORE: u64 = 64;
    let first = act();
    if !matches!(first, Err(Errno::MFILE)) {
        return first;
    }
    let (now, most) = limit(Limit::Descriptors)?;
    // More than the program may have takes a privilege, or there is a limit of the machine's.
    let all = most.max(now.saturating_add(MORE));
    let raised = [(all, all), (most, most)];
    let raise = |limits| set_limit(Limit::Descriptors, limits).map(|_| limits);
    let raised = raise(raised[0]).or_else(|_| raise(raised[1])).map_err(|_| Errno::MFILE)?;
    let result = act();
    // The program may have set it meanwhile.
    if limit(Limit::Descriptors) == Ok(raised) {
        set_limit(Limit::Descriptors, (now, most))?;
    }
    result
}

/// Limits that concern a pager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Limit {
    /// Bytes a file may grow to.
    FileSize = nr::RLIMIT_FSIZE,
    /// Bytes of locked memory.
    LockedMemory = nr::RLIMIT_MEMLOCK,
    /// Bytes of addresses.
    AddressSpace = nr::RLIMIT_AS,
    /// Bytes of private memory that may be stored to.
    Data = nr::RLIMIT_DATA,
    /// Bytes of the main thread's stack, and what the C library gives to other threads.
    Stack = nr::RLIMIT_STACK,
    /// Number of descriptors.
    Descriptors = nr::RLIMIT_NOFILE,
    /// Seconds of processor time.
    Processor = nr::RLIMIT_CPU,
    /// Microseconds that a real-time thread may work without a pause.
    RealTime = nr::RLIMIT_RTTIME,
}

/// Version of the running kernel: `6.18.44-anything` is (6, 18, 44).
#[must_use]
pub fn kernel_version() -> (u32, u32, u32) {
    const RELEASE: usize = 2;
    let mut names = [[0u8; 65]; 6]; // `struct new_utsname`
    // SAFETY: the structure is the call's.
    unsafe { syscall!(nr::__NR_uname, names.as_mut_ptr() as usize) }
        .expect("uname cannot fail with a valid buffer");
    parse_release(&names[RELEASE])
}

fn parse_release(release: &[u8]) -> (u32, u32, u32) {
    let mut parts = [0; 3];
    let mut rest = release;
    for part in &mut parts {
        let Some((value, after)) = take_number(rest, 10) else { break };
        *part = u32::try_from(value).unwrap_or(u32::MAX);
        let Some(next) = after.strip_prefix(b".") else { break };
        rest = next;
    }
    (parts[0], parts[1], parts[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm() {
        let resident = parse_statm(b"1000 300 100 5 0 400 0\n").unwrap();
        assert_eq!((resident.anon_bytes, resident.shared_bytes), (200 * 4096, 100 * 4096));
        assert_eq!(resident.program_pages, 5);
        assert_eq!(parse_statm(b"1000 300"), None);
        assert_eq!(parse_statm(b"5 1 3 ").unwrap().anon_bytes, 0);
    }

    #[test]
    fn a_process_knows_its_number_and_name() {
        assert_eq!(process_id_in_proc(), Ok(std::process::id()));
        assert_ne!(thread_name(), [0; 16]);
        assert_eq!(thread_name()[15], 0);
    }

    #[test]
    fn states() {
        assert_eq!(state_in(b"7 (cat) S 1 7"), Some(b'S'));
        assert_eq!(state_in(b"7 (a) R (b) D 1 7"), Some(b'D'));
        assert_eq!(state_in(b"7 (cat)"), None);
        let stat = b"12 (a) T (b) S 1 12 12 34816\n";
        assert_eq!((stat_field(stat, 0), stat_field(stat, 1)), (Some(&b"S"[..]), Some(&b"1"[..])));
        assert_eq!((stat_field(stat, 4), stat_field(stat, 5)), (Some(&b"34816"[..]), None));
        assert_eq!(stat_field(b"", 0), None);
        assert!(!SleepReader::open(c"/proc/thread-self/stat").unwrap().is_asleep().unwrap());
    }

    #[test]
    fn programs_are_told_by_where_they_lie() {
        let stamp = |code: u64, stack: u64| {
            program_stamp(std::format!("7 (a) b) R {}{code} 9000 {stack} 0", "1 ".repeat(22)).as_bytes())
        };
        assert_eq!((stamp(4096, 0), program_stamp(b"7 (a) R 1 2")), (0, 0));
        let all = [stamp(4096, 700), stamp(4096, 701), stamp(8192, 700)];
        assert!(all[0] != all[1] && all[0] != all[2] && !all.contains(&0), "{all:?}");
        let own = own_program_stamp();
        let seen = std::fs::read(std::format!("/proc/{}/stat", std::process::id())).unwrap();
        assert!(own != 0 && own == program_stamp(&seen));
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(count_in_list(b"0\n"), Some(1));
        assert_eq!(count_in_list(b"0-3,8,10-11\n"), Some(7));
        assert_eq!(count_in_list(b"\n"), None);
        assert_eq!(count_in_list(b"3-1"), None);
        assert!(processors().unwrap() >= 1);
    }

    #[test]
    fn settings_of_huge_pages() {
        assert_eq!(huge_pages_in(b"always madvise [never]\n"), HugePages::Never);
        assert_eq!(huge_pages_in(b"always [inherit] madvise never\n"), HugePages::Never);
        assert_eq!(huge_pages_in(b"always [madvise] never\n"), HugePages::Advised);
        assert_eq!(huge_pages_in(b"[always] madvise never\n"), HugePages::Always);
        assert_eq!(huge_pages_in(b""), HugePages::Always);
    }

    #[test]
    fn the_environment_is_searched() {
        let text = std::fs::read("/proc/self/environ").unwrap();
        // Wherever it lies, across the pieces that are read, too.
        for start in (0..text.len().saturating_sub(64)).step_by(61) {
            assert_eq!(environment_holds(&text[start..start + 64]), Ok(true), "{start}");
        }
        assert_eq!(environment_holds(b"no variable is called like this="), Ok(false));
    }

    #[test]
    fn releases() {
        assert_eq!(parse_release(b"6.18.44-fc-v657\0\0"), (6, 18, 44));
        assert_eq!(parse_release(b"6.8\0"), (6, 8, 0));
        assert_eq!(parse_release(b"5.15.0+"), (5, 15, 0));
        assert_eq!(parse_release(b"none"), (0, 0, 0));
    }

    #[test]
    fn fields() {
        let text = b"Name:\ta b\nRssAnon:\t    12 kB\nThreads:\t3\nSigCgt:\t00000000000000ff\nMemTotal: 1 kB";
        let mut fields = Fields { text: [0; FIELDS_BYTES], len: text.len() };
        fields.text[..text.len()].copy_from_slice(text);
        assert_eq!(fields.number("RssAnon"), Some(12 * 1024));
        assert_eq!(fields.number("Threads"), Some(3));
        assert_eq!(fields.mask("SigCgt"), Some(255));
        assert_eq!(fields.text("Name"), Some(&b"a b"[..]));
        assert_eq!((fields.number("Name"), fields.number("Rss")), (None, None));
        assert_eq!(fields.number("MemTotal"), Some(1024));
    }

    #[test]
    fn long_lines_hide_nothing() {
        let path = std::env::temp_dir().join(std::format!("overspill-status-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let groups = "4294967294 ".repeat(65_536);
        std::fs::write(&path, std::format!("Name:\ta\nGroups:\t{groups}\nSeccomp_filters:\t3\n")).unwrap();
        let fields = Fields::read(&name).unwrap();
        assert_eq!((fields.number("Seccomp_filters"), fields.text("Name")), (Some(3), Some(&b"a"[..])));
        // A number that begins before the cut and ends behind it is none.
        let filler = "x".repeat(FIELDS_BYTES - "A:1\n:\nB:4".len());
        std::fs::write(&path, std::format!("A:1\n{filler}:\nB:42\n")).unwrap();
        let fields = Fields::read(&name).unwrap();
        assert_eq!((fields.number("A"), fields.number("B")), (Some(1), None));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_last_number_is_the_innermost() {
        assert_eq!(last_number(b"23456\t57\t1"), Some(1));
        assert_eq!(last_number(b"7"), Some(7));
        assert_eq!((last_number(b""), last_number(b"1 x")), (None, None));
        assert_eq!(innermost_id(std::process::id()), Ok(Some(std::process::id())));
    }

    #[test]
    fn threads_are_told_by_both_numbers() {
        let (mut found, own) = (None, crate::thread::id());
        for_each_thread_id(|thread| found = found.or((thread.tid == own).then_some(thread.in_proc))).unwrap();
        assert_eq!(found, Some(own));
        let mut path = [0; TASK_PATH_BYTES];
        assert!(file::open(task_path(own, b"/stat", &mut path), Open::empty()).is_ok());
    }
}
