//! Large mappings of files (`run --files`): the calls by which a program makes and changes them.
//!
//! The kernel serves no faults of file mappings to anybody. So what the program gets for a large
//! one, to be read or with stores of its own, is private memory that the agent fills from the file:
//! see `file_agent` for the agent's side. The agent makes the mapping itself, so that nobody else
//! can take it for the program's anonymous memory; the thread that maps waits for it, and gets the
//! kernel's own mapping where the agent refuses or does not answer.
//!
//! The kernel has such memory writable, or it could not be moved, while a program that asked for
//! PROT_READ believes that it is not. As soon as the program changes protections there it becomes
//! what the program believes. What cannot be had of such memory (locked, grown) is the kernel's
//! again before the call is made.
//!
//! What is for reading and fits stays the kernel's until the budget gets tight: see [`kept`].
//!
//! A child of fork has the kernel's mappings: the agent has each file mapped once more, for that.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use linux_raw_sys::general::{
    __NR_mlock, __NR_mlock2, __NR_mprotect, __NR_pkey_mprotect, MAP_ANONYMOUS, MAP_DENYWRITE, MAP_EXECUTABLE,
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE,
    MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MREMAP_DONTUNMAP, PROT_EXEC,
    PROT_READ, PROT_SEM, PROT_WRITE,
};
use overspill_engine::file_table::{FILES, FileRange, FileTable};
use overspill_engine::growth::Growth;
use overspill_engine::report::Left;
use overspill_sys::file::TMPFS_MAGIC;
use overspill_sys::futex::{self, Scope};
use overspill_sys::maps::{Maps, SHORT_BUFFER_BYTES};
use overspill_sys::mem::{self, Prot};
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE, clock, file, overlap, thread};

use crate::kept::{self, Change, Claim, FileId};
use crate::undisturbed::{undisturbed, undisturbed_at_first, without_handlers};
use crate::{filters, foreign, fork, fresh, libc};

/// How long a thread waits for the agent's answer before it does without: the first one that asks
/// waits until the agent has opened everything.
const MAP_WAIT_NS: u64 = 2_000_000_000;
/// After so long signals that no handler is for have their effect while it waits.
const SHORT_WAIT_NS: u64 = 100_000_000;
/// How long it waits for its turn to ask.
const TURN_WAIT_NS: u64 = 50_000_000;
/// How long a mapping waits for a fork to be over, or others to be at rest, and how long it rests in between.
const PAUSE_WAIT_NS: u64 = 50_000_000;
const PAUSE_REST_NS: u64 = 1_000_000;
/// How long it is tried to give mappings back to the kernel, if the agent answers that it cannot.
const HAND_BACK_NS: u64 = 10_000_000_000;
const HAND_BACK_REST_NS: u64 = 1_000_000;

/// Mappings of fewer bytes are not worth a word.
const TOLD_BYTES: usize = 1 << 20;

/// What may be asked for with any mapping, and changes nothing of what is mapped.
pub const PLAIN_FLAGS: u32 = MAP_TYPE
    | MAP_FIXED
    | MAP_FIXED_NOREPLACE
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_LOCKED;
/// What may be asked for with a managed mapping. All else (an address below 2 GiB, stores that are
/// durable at once, what nobody knows yet) is the kernel's to give or to refuse.
const FLAGS: u32 = PLAIN_FLAGS | MAP_DENYWRITE | MAP_EXECUTABLE;

/// Smaller mappings are the kernel's; all of them while no agent takes any.
static BYTES_MIN: AtomicUsize = AtomicUsize::new(usize::MAX);
/// What is mapped.
static TABLE: FileTable = FileTable::new();

/// For the agent.
pub fn table() -> &'static FileTable {
    &TABLE
}

/// The agent takes mappings of at least so many bytes; 0: none. Others have left `reach` bytes of the
/// budget: until the agent has looked there is room in all of that.
pub fn watch(bytes_min: u64, reach: u64) {
    kept::set_most(Growth::latest_bytes(reach));
    let bytes = usize::try_from(bytes_min).unwrap_or(usize::MAX);
    BYTES_MIN.store(if bytes == 0 { usize::MAX } else { bytes }, SeqCst);
}

/// Nobody takes any more, and whoever asked is refused.
pub fn forget() {
    BYTES_MIN.store(usize::MAX, SeqCst);
    if DESK.state.compare_exchange(ASKED, TAKEN, SeqCst, SeqCst).is_ok() {
        answer(0);
    }
}

// The desk: what a thread of the program asks the agent for.

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// A mapping. The answer is its address; 0: the kernel's is to be used; or [`LATER`].
    Map {
        /// Where, if that is free; 0: anywhere.
        wish: usize,
        /// Bytes.
        len: usize,
        /// PROT_*.
        prot: u32,
        /// MAP_SHARED.
        shared: bool,
        /// The descriptor, of this thread's.
        fd: u32,
        /// See there.
        thread: u32,
        /// Which file that is there.
        file: FileId,
        /// The first byte.
        offset: u64,
    },
    /// The mappings that overlap a range are to be the kernel's again, for this reason. Not 0: they are, but
    /// for what was stored to.
    HandBack(AddressRangeCopy, Left),
    /// A range is needed soon.
    WillNeed(AddressRangeCopy),
    /// MADV_NORMAL, MADV_RANDOM or MADV_SEQUENTIAL of a range.
    Advise(AddressRangeCopy, u32),
    /// What is kept by the kernel of a range is to be managed: it is about to be stored to.
    Take(AddressRangeCopy),
    /// What becomes visible of a file behind a mapping that grows. The answer is an error; 0: it is there.
    MapTail(Tail),
}

/// See [`Wish::MapTail`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Where.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Which file, for [`FileTable::file`].
    pub file: usize,
    /// The first byte.
    pub offset: u64,
    /// What the program may do there.
    pub prot: Prot,
    /// Over what is there.
    pub replaces: bool,
}

/// A range that can be copied.
pub type AddressRangeCopy = (usize, usize);

const FREE: u32 = 0;
const FILLING: u32 = 1;
const ASKED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;

/// The answer where a mapping cannot be managed now, as a fork is under way, or others change mappings all
/// the time.
pub const LATER: usize = 1;

const WORDS: usize = 10;

struct Desk {
    state: AtomicU32,
    words: [AtomicUsize; WORDS],
    answer: AtomicUsize,
}

static DESK: Desk = Desk {
    state: AtomicU32::new(FREE),
    words: [const { AtomicUsize::new(0) }; WORDS],
    answer: AtomicUsize::new(0),
};

impl Wish {
    fn words(self) -> [usize; WORDS] {
        let short = |kind: usize, (start, end): AddressRangeCopy, more: usize| {
            [kind, start, end, more, 0, 0, 0, 0, 0, 0]
        };
        match self {
            Wish::Map { wish, len, prot, shared, fd, thread, file: ((major, minor), inode), offset } => {
                let device = (major as usize) << 32 | minor as usize;
                let (inode, offset) = (inode as usize, offset as usize);
                let (prot, shared, fd) = (prot as usize, usize::from(shared), fd as usize);
                [0, wish, len, prot, shared, fd, offset, thread as usize, device, inode]
            }
            Wish::HandBack(range, why) => short(1, range, why as usize),
            Wish::WillNeed(range) => short(2, range, 0),
            Wish::Advise(range, advice) => short(3, range, advice as usize),
            Wish::Take(range) => short(4, range, 0),
            Wish::MapTail(Tail { at, len, file, offset, prot, replaces }) => {
                let prot = prot.bits() as usize;
                [5, at, len, file, offset as usize, prot, usize::from(replaces), 0, 0, 0]
            }
        }
    }

    fn of(words: [usize; WORDS]) -> Wish {
        let range = (words[1], words[2]);
        match words[0] {
            0 => Wish::Map {
                wish: words[1],
                len: words[2],
                prot: words[3] as u32,
                shared: words[4] != 0,
                fd: words[5] as u32,
                thread: words[7] as u32,
                file: (((words[8] >> 32) as u32, words[8] as u32), words[9] as u64),
                offset: words[6] as u64,
            },
            1 => Wish::HandBack(range, Left::ALL[words[3]]),
            2 => Wish::WillNeed(range),
            3 => Wish::Advise(range, words[3] as u32),
            4 => Wish::Take(range),
            _ => Wish::MapTail(Tail {
                at: words[1],
                len: words[2],
                file: words[3],
                offset: words[4] as u64,
                prot: Prot::from_bits_truncate(words[5] as u32),
                replaces: words[6] != 0,
            }),
        }
    }
}

/// Does anybody wait at the desk?
pub fn is_asked() -> bool {
    DESK.state.load(SeqCst) == ASKED
}

/// For the agent: what is asked for. [`answer`] must follow.
pub fn take() -> Option<Wish> {
    DESK.state.compare_exchange(ASKED, TAKEN, SeqCst, SeqCst).ok()?;
    Some(Wish::of(DESK.words.each_ref().map(|word| word.load(SeqCst))))
}

/// For the agent: whoever asked goes on.
pub fn answer(value: usize) {
    DESK.answer.store(value, SeqCst);
    DESK.state.store(DONE, SeqCst);
    futex::wake(&DESK.state, u32::MAX, Scope::Private);
}

/// Asks the agent, and waits for a while; `None`: it did not answer.
pub fn ask(wish: Wish) -> Option<usize> {
    ask_for(wish, false)
}

/// The same, for as long as there is an agent.
pub fn insist(wish: Wish) -> Option<usize> {
    ask_for(wish, true)
}

/// One that `insists` waits for as long as there is an agent.
fn ask_for(wish: Wish, insists: bool) -> Option<usize> {
    if !may_ask() {
        return None;
    }
    undisturbed_at_first(|let_signals_through| ask_the_agent(wish, insists, let_signals_through))
}

/// Is there an agent that answers?
fn is_served() -> bool {
    BYTES_MIN.load(SeqCst) != usize::MAX
}

/// *The story:* an agent that waited for a slow device kept whoever had asked it from being ended.
fn ask_the_agent(wish: Wish, insists: bool, let_signals_through: &dyn Fn()) -> Option<usize> {
    let began = clock::monotonic_ns();
    let mut is_short = true;
    let mut let_through_after = |time: u64| {
        if is_short && clock::monotonic_ns() >= time + SHORT_WAIT_NS {
            is_short = false;
            let_signals_through();
        }
        is_short
    };
    while DESK.state.compare_exchange(FREE, FILLING, SeqCst, SeqCst).is_err() {
        let is_late = clock::monotonic_ns() > began + TURN_WAIT_NS;
        if is_late && !(insists && is_served()) {
            return None;
        }
        let_through_after(began);
        clock::sleep_ns(20_000);
    }
    for (place, word) in DESK.words.iter().zip(wish.words()) {
        place.store(word, SeqCst);
    }
    DESK.state.store(ASKED, SeqCst);
    fresh::knock();
    let asked = clock::monotonic_ns();
    loop {
        let state = DESK.state.load(SeqCst);
        if state == FREE {
            // A child, made by a handler that the program has had since a moment ago.
            return None;
        }
        if state == DONE {
            let answer = DESK.answer.load(SeqCst);
            DESK.state.store(FREE, SeqCst);
            return Some(answer);
        }
        let is_short = let_through_after(asked);
        let left = (asked + MAP_WAIT_NS).saturating_sub(clock::monotonic_ns());
        let (gives_up, left) = if insists { (!is_served(), SHORT_WAIT_NS) } else { (left == 0, left) };
        if gives_up && DESK.state.compare_exchange(ASKED, FREE, SeqCst, SeqCst).is_ok() {
            return None;
        }
        // Once it is taken it will be answered.
        let most = if is_short { SHORT_WAIT_NS } else { MAP_WAIT_NS };
        let _ = futex::wait(&DESK.state, state, Some(left.clamp(1_000_000, most)), Scope::Private);
    }
}

/// Gives mappings back to the kernel where a range overlaps them, but for what was stored to, and leaves
/// those to it that it keeps. False: some are managed still.
///
/// *The story:* who got no turn to ask within 50 ms went on, and so did who was told that it could not be
/// done now. What was managed grew then, and its end was zeroes (`torture file-grow-beside`).
fn hand_back(start: usize, len: usize, why: Left) -> bool {
    let range = start..start.saturating_add(len);
    leave(&range, why);
    if !TABLE.overlaps(&range) {
        return true;
    }
    let patience = clock::monotonic_ns() + HAND_BACK_NS;
    loop {
        match insist(Wish::HandBack((range.start, range.end), why)) {
            None => return !TABLE.overlaps(&range),
            Some(0) if clock::monotonic_ns() < patience => clock::sleep_ns(HAND_BACK_REST_NS),
            Some(answer) => return answer != 0,
        }
    }
}

/// What the kernel keeps of a range is its own for good.
pub fn leave(range: &AddressRange, why: Left) {
    let bytes = kept::give_up(range);
    if bytes > 0 {
        note_left(why, bytes);
    }
}

/// Is the agent this process's, and may it be asked?
fn may_ask() -> bool {
    fork::is_ours() && !filters::is_filtered() && !fork::is_borrowing()
}

/// All mappings are to be the kernel's again: what follows may not be able to ask. False: some are not,
/// though there is an agent.
pub fn hand_all_back(why: Left) -> bool {
    // Nobody can be asked by now, or nobody is there who would have to be.
    !may_ask() || hand_back(0, usize::MAX, why) || !is_served()
}

// The calls.

/// What becomes of a mapping that a program makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// The agent has made it, here.
    Managed(usize),
    /// The kernel makes it, and keeps it while there is room.
    Kept(Claim),
}

/// What becomes of mmap(2) with these arguments; `None`: it is the kernel's alone.
pub fn map(wish: usize, len: usize, prot: u32, flags: u32, fd: c_int, offset: i64) -> Option<Mapping> {
    let unwanted = MAP_ANONYMOUS | MAP_HUGETLB;
    let bytes_min = BYTES_MIN.load(SeqCst);
    // A length that has no whole pages is the kernel's to refuse. *The story:* such a mmap ended the program.
    let is_absurd = len > usize::MAX - PAGE_SIZE;
    if bytes_min == usize::MAX || len < TOLD_BYTES || is_absurd || flags & unwanted != 0 || fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is the program's, and is not closed by this.
    let file = ManuallyDrop::new(unsafe { Fd::from_raw(fd) });
    // One that is not open for reading is the kernel's to refuse.
    let status = file::status(&file).ok().filter(|_| file::is_readable(&file))?;
    let offset = u64::try_from(offset).ok().filter(|offset| offset.is_multiple_of(PAGE_SIZE as u64))?;
    if status.kind != file::Kind::Regular || status.len.saturating_sub(offset) < TOLD_BYTES as u64 {
        return None;
    }
    let shared = [MAP_SHARED, MAP_SHARED_VALIDATE].contains(&(flags & MAP_TYPE));
    let bytes = usize::try_from(status.len - offset).unwrap_or(usize::MAX).min(len);
    let is_in_memory = || file::space(&file).is_ok_and(|space| space.magic == TMPFS_MAGIC);
    // Behind a filter nobody could ask for it back. What is in RAM anyway is counted as shared memory.
    let left = unfit(bytes < bytes_min, prot, flags, shared)
        .or_else(|| filters::is_filtered().then_some(Left::Other))
        .or_else(|| is_in_memory().then_some(Left::InMemory));
    if let Some(why) = left {
        note_left(why, bytes);
        return None;
    }
    let file = (status.device, status.inode);
    let keep = |must_fit: bool| {
        let claim = if prot & PROT_WRITE == 0 { kept::claim(bytes, file, must_fit) } else { None };
        claim.map(Mapping::Kept)
    };
    keep(true).or_else(|| {
        let (fd, thread) = (fd as u32, thread::id());
        match ask_in_time(Wish::Map { wish, len, prot, shared, fd, thread, file, offset })? {
            0 => None,
            LATER if prot & PROT_WRITE != 0 => {
                note_left(Left::Other, bytes);
                None
            }
            // It does not fit: it is taken as soon as that is over.
            LATER => keep(false),
            address => Some(Mapping::Managed(address)),
        }
    })
}

/// Threads that wait to map something: for the pause of a fork to end, or others to be at rest.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Does any thread?
pub fn is_pause_in_the_way() -> bool {
    WAITING.load(SeqCst) > 0
}

/// Asks for a mapping, and once more while that cannot be. No handler of a signal runs while it waits: it
/// might not come back, and who waits is counted.
fn ask_in_time(wish: Wish) -> Option<usize> {
    let patience = clock::monotonic_ns() + PAUSE_WAIT_NS;
    let answer = ask(wish);
    if answer != Some(LATER) {
        return answer;
    }
    without_handlers(|| {
        let mut answer = answer;
        WAITING.fetch_add(1, SeqCst);
        while answer == Some(LATER) && clock::monotonic_ns() < patience {
            clock::sleep_ns(PAUSE_REST_NS);
            answer = ask(wish);
        }
        // In a child of another thread none are counted.
        let _ = WAITING.fetch_update(SeqCst, SeqCst, |waiting| waiting.checked_sub(1));
        answer
    })
}

/// Why the kernel keeps a mapping, by what can be seen of it without the agent.
fn unfit(is_small: bool, prot: u32, flags: u32, shared: bool) -> Option<Left> {
    if prot & PROT_EXEC != 0 {
        return Some(Left::Executable);
    }
    if shared && prot & PROT_WRITE != 0 {
        return Some(Left::Writable);
    }
    if flags & MAP_LOCKED != 0 {
        return Some(Left::Locked);
    }
    if is_small {
        return Some(Left::Small);
    }
    let takes_a_place = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    let is_plain = prot & PROT_READ != 0 && (shared || flags & MAP_TYPE == MAP_PRIVATE);
    (takes_a_place || !is_plain || flags & !FLAGS != 0).then_some(Left::Other)
}

/// What the program's threads left to the kernel since the agent looked: mappings, and their bytes.
static LEFT: [(AtomicUsize, AtomicUsize); Left::ALL.len()] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; Left::ALL.len()];

/// The same of what it keeps while there is room.
static KEPT: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// The kernel has so many bytes that might have been managed.
pub fn note_left(why: Left, bytes: usize) {
    LEFT[why as usize].0.fetch_add(1, SeqCst);
    LEFT[why as usize].1.fetch_add(bytes, SeqCst);
}

/// For the agent: tells what was left to the kernel, and forgets it.
pub fn each_left(mut tell: impl FnMut(Left, u64)) {
    for (why, (count, bytes)) in Left::ALL.into_iter().zip(&LEFT) {
        if count.load(SeqCst) > 0 {
            count.store(0, SeqCst);
            tell(why, bytes.swap(0, SeqCst) as u64);
        }
    }
}

/// The kernel keeps a mapping of so many bytes from now on.
pub fn note_kept(bytes: usize) {
    KEPT.0.fetch_add(1, SeqCst);
    KEPT.1.fetch_add(bytes, SeqCst);
}

/// For the agent: how many mappings the kernel began to keep since it looked, and their bytes.
pub fn newly_kept() -> (u64, u64) {
    (KEPT.0.swap(0, SeqCst) as u64, KEPT.1.swap(0, SeqCst) as u64)
}

/// Before mremap(2) moves a range: is any of it kept? Several mappings that are moved one by one are not,
/// nor is what lies at the target.
pub fn before_move(range: &AddressRange, new: usize, new_len: usize, may_be_several: bool) -> bool {
    if new != 0 {
        leave(&(new..new.saturating_add(new_len)), Left::Other);
    }
    if may_be_several {
        leave(range, Left::Other);
    }
    kept::overlaps(range)
}

/// Before mremap(2): what grows, or is doubled, must be the file's; and so must what shows it again where
/// it was moved from (MREMAP_DONTUNMAP).
///
/// *The story:* managed memory that was moved so left zeroes where the file should have been.
///
/// False: it is not, and cannot grow.
pub fn before_mremap(old: usize, old_len: usize, new_len: usize, flags: u32) -> bool {
    let must_be = new_len > old_len || old_len == 0 || flags & MREMAP_DONTUNMAP != 0;
    !must_be || hand_back(old, old_len.max(1), Left::Other)
}

/// mprotect(2), which makes the protection of mapped files what the program believes it to be.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, len: usize, prot: c_int) -> c_int {
    foreign::pass!(mprotect(start, len, prot));
    let range = start as usize..(start as usize).saturating_add(len);
    let is_kept = kept::overlaps(&range);
    if is_kept {
        before_mprotect(&range, prot as u32);
    }
    let arguments = [start as usize, len, prot as usize, 0, 0, 0];
    // Between two turns where any of it is kept: it may become managed until then.
    let call = || {
        if !TABLE.is_empty() && TABLE.overlaps(&range) {
            return protect(&range, prot as u32);
        }
        // SAFETY: passed on to the caller.
        unsafe { overspill_sys::call(__NR_mprotect, arguments) }
    };
    let result = if is_kept { kept::changing(&range, call, |_| Change::None) } else { call() };
    result.map_or_else(|errno| libc::fail(errno) as c_int, |_| 0)
}

/// pkey_mprotect(2): with a key of its own a mapping is the kernel's, as managed memory has another one.
///
/// *The story* (by reading): what was managed got the key. A mapping for reading that was made writable so
/// was still taken for one that nobody may store to, and a shared one was made writable (`torture
/// file-rare`).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(start: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int {
    if key == -1 {
        // SAFETY: passed on to the caller.
        return unsafe { mprotect(start, len, prot) };
    }
    if !hand_back(start as usize, len, Left::Other) {
        return libc::fail(Errno::NOMEM) as c_int;
    }
    // SAFETY: passed on to the caller.
    unsafe {
        libc::call(__NR_pkey_mprotect, [start as usize, len, prot as usize, key as usize, 0, 0]) as c_int
    }
}

/// What the kernel keeps is managed, or the kernel's for good, before it is stored to or executed.
fn before_mprotect(range: &AddressRange, prot: u32) {
    if prot & PROT_EXEC != 0 {
        leave(range, Left::Executable);
    }
    if prot & PROT_WRITE != 0 && kept::overlaps(range) {
        if is_served() {
            let _ = ask(Wish::Take((range.start, range.end)));
        }
        leave(range, Left::Writable);
    }
}

fn make_honest(range: &AddressRange) {
    let mut lies = false;
    TABLE.each(|part| lies |= overlap(&part.range, range) && TABLE.file(part.file).lies.load(SeqCst));
    // What does not lie does not begin to.
    if lies {
        undisturbed(|| make_all_honest(range));
    }
}

/// Where the kernel would say no (EACCES), were it the file's own mapping.
fn refused_from(range: &AddressRange, prot: u32) -> Option<usize> {
    let mut from = None;
    TABLE.each(|part| {
        let is_refused = prot & PROT_WRITE != 0 && TABLE.file(part.file).shared.load(SeqCst);
        if is_refused && overlap(&part.range, range) {
            let at = part.range.start.max(range.start);
            from = Some(from.map_or(at, |from: usize| from.min(at)));
        }
    });
    from
}

/// mprotect(2) of managed memory. Of what lies before a mapping that is refused the kernel says what is
/// wrong, and does what is not.
///
/// *The story:* EACCES came first, where bare there is a hole before such a mapping, or a flag that it cannot
/// have (`torture file-refused`).
fn protect(range: &AddressRange, prot: u32) -> Result<usize, Errno> {
    let protect = |range: &AddressRange| {
        make_honest(range);
        // SAFETY: passed on to the caller.
        unsafe { overspill_sys::call(__NR_mprotect, [range.start, range.len(), prot as usize, 0, 0, 0]) }
    };
    let Some(refused) = refused_from(range, prot) else { return protect(range) };
    protect(&(range.start..refused))?;
    let is_known = prot & !(PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM) == 0;
    Err(if is_known { Errno::ACCESS } else { Errno::INVAL })
}

fn make_all_honest(range: &AddressRange) {
    TABLE.each(|part| {
        let file = part.file;
        if !overlap(&part.range, range) {
            return;
        }
        TABLE.file(file).make_honest(|| {
            TABLE.each(|part| {
                if part.file == file {
                    // SAFETY: takes a permission away that the program does not know of.
                    let _ = unsafe { mem::mprotect(part.range, Prot::READ) };
                }
            });
        });
    });
}

/// mlock(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(start: *const c_void, len: usize) -> c_int {
    foreign::pass!(mlock(start, len));
    let _ = hand_back(start as usize, len, Left::Locked);
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_mlock, [start as usize, len, 0, 0, 0, 0]) as c_int }
}

/// mlock2(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(start: *const c_void, len: usize, flags: u32) -> c_int {
    foreign::pass!(mlock2(start, len, flags));
    let _ = hand_back(start as usize, len, Left::Locked);
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_mlock2, [start as usize, len, flags as usize, 0, 0, 0]) as c_int }
}

// Fork.

/// Addresses that are mapped for children.
pub fn twin_bytes() -> u64 {
    (0..FILES).map(|file| TABLE.file(file).twin().len() as u64).sum()
}

/// After a fork, in the child, in its only thread: its files are the kernel's.
pub fn in_child() {
    (0..FILES).for_each(|file| TABLE.file(file).forget_others());
    WAITING.store(0, SeqCst);
    kept::in_child();
    BYTES_MIN.store(usize::MAX, SeqCst);
    DESK.state.store(FREE, SeqCst);
    each_left(|_, _| {});
    newly_kept();
    TABLE.each(|part| map_again(&part));
    // Behind a filter they stay: who is there may not be allowed to unmap.
    if !filters::is_filtered() {
        for file in 0..FILES {
            let twin = TABLE.file(file).twin();
            if !twin.is_empty() {
                // SAFETY: nobody knows of what is left of it, and what was moved out of it has left nothing
                // behind. Nobody has mapped anything there since: this is the only thread.
                let _ = unsafe { mem::munmap(twin) };
            }
        }
    }
    TABLE.clear();
}

/// Puts the kernel's mapping over what was not stored to.
fn map_again(part: &FileRange) {
    let mut page = 0;
    let is_stored = |page: usize| TABLE.file(part.file).is_stored(part.page + page);
    while page < part.pages() {
        let clean = (page..part.pages()).take_while(|&page| !is_stored(page)).count();
        if clean > 0 {
            map_run_again(part, page, clean);
        }
        page += clean.max(1);
    }
}

fn map_run_again(part: &FileRange, page: usize, pages: usize) {
    let mapped = TABLE.file(part.file);
    let twin = mapped.twin();
    if twin.is_empty() {
        // Nobody has that file mapped any more: whatever is there is something else.
        return;
    }
    let start = part.range.start + page * PAGE_SIZE;
    let end = start + pages * PAGE_SIZE;
    let lies = mapped.lies.load(SeqCst);
    let twin_start = twin.start + (part.page + page) * PAGE_SIZE;
    assert!(twin_start + (end - start) <= twin.end, "what is mapped for children is all of a mapping");
    // What cannot be looked up may be stored to, if anything of it may.
    let unknown = if lies || mapped.shared.load(SeqCst) { Prot::READ } else { Prot::RW };
    each_mapping(start..end, unknown, |range, prot| {
        let prot = if lies { prot & !Prot::WRITE } else { prot };
        let from = twin_start + (range.start - start);
        // SAFETY: the range is the program's mapping of that very part, which nobody has stored to, and
        // what is moved is the agent's own.
        let moved = unsafe { mem::move_over(from..from + range.len(), range.start) };
        // SAFETY: as above: it is what the program had there.
        if moved.and_then(|()| unsafe { mem::mprotect(range.clone(), prot) }).is_err() {
            // Nothing is there rather than zeroes that nobody wrote.
            // SAFETY: as above.
            let _ = unsafe { mem::munmap(range) };
        }
    });
}

/// Calls `visit` with every private anonymous mapping in a range; where mappings cannot be looked up, with
/// all of it, and what is told to be allowed there.
fn each_mapping(range: AddressRange, unknown: Prot, mut visit: impl FnMut(AddressRange, Prot)) {
    let Ok(maps) = Maps::open() else { return visit(range, unknown) };
    let mut buffer = [0; SHORT_BUFFER_BYTES];
    let mut at = range.start;
    while at < range.end {
        let look = |vma: &overspill_sys::maps::Vma<'_>| (vma.range(), vma.prot, vma.is_private_anonymous());
        let Ok(Some((vma, prot, is_ours))) = maps.query(at, true, &mut buffer, look) else { return };
        let part = at.max(vma.start)..range.end.min(vma.end);
        at = vma.end;
        if is_ours && !part.is_empty() {
            visit(part, prot);
        }
    }
}
