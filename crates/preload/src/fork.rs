//! fork(): before it everything comes in, or is where the child will find it (`heir`); during it nothing
//! is taken out; the child gets an agent of its own.
//!
//! The handlers run in the program's thread that forks: libc's fork calls them, and `forms` does
//! for the other ways. The thread rings a doorbell (touches a page whose absence the agent is told
//! of) and sleeps in that touch until that is so; hence no lock, no signal and no descriptor is
//! needed, and the agent wakes up as for any fault. vfork and posix_spawn share the address space
//! until they exec, and need none.
//!
//! Why no page can leave during a fork: the forking thread counts itself in `FORKS`, then waits
//! for `PAUSED`. The agent clears `PAUSED` first and looks at `FORKS` second. Whichever comes
//! first, one of them sees the other.
//!
//! A child that was made unseen has these words from its parent, but neither its agent nor its
//! doorbell. So there is one word more, in a page that the kernel empties in every child
//! ([`is_ours`]).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};

use overspill_engine::heirs;
use overspill_sys::descriptors::Looks;
use overspill_sys::futex::{self, Scope};
use overspill_sys::mem::{self, Advice, Mapping, Prot};
use overspill_sys::{AddressRange, PAGE_SIZE, clock};

use crate::undisturbed::undisturbed;
use crate::waiting::Ticket;
use crate::{
    cpu_limit, files, filters, fresh, heir, joining, parent, peek, remap, retire, room, speaker, start, veto,
    waiting, withheld,
};

/// Threads between the start of a fork and its end.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// How many forks of this process have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);
/// How many forks lie between the program and this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Whether everything is in, and stays in, or is where children find it.
static PAUSED: AtomicU32 = AtomicU32::new(GOES_ON);
/// What it holds: nothing, everything is in, or children inherit what is out (`engine/heirs.rs`).
const GOES_ON: u32 = 0;
const ALL_IN: u32 = 1;
const OUT: u32 = 2;
/// Everything is to be in, for good: see [`prepare_whole`].
static WANTS_ALL: AtomicBool = AtomicBool::new(false);
/// It was the latter in this pause: children that are made in it ask.
static IS_OUT: AtomicBool = AtomicBool::new(false);
/// Children that were made with pages out, of which their makers want to know that they are on their
/// own, and those of which that is said.
static MADE: AtomicU32 = AtomicU32::new(0);
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// How long who made one waits for that at a time.
const LOOK_NS: u64 = 10_000_000;
/// How long who wants all in does.
const REST_NS: u64 = 100_000;
/// Odd while the agent reads, or has read, of a fork that it has not handled: see [`outwait_heard`].
static HEARD: AtomicU32 = AtomicU32::new(0);
/// Address of the pages by which a child asks for what it inherits.
static MAILBOX: AtomicUsize = AtomicUsize::new(0);
/// In a child that is to ask: those of its parent; else 0.
static HEIR: AtomicUsize = AtomicUsize::new(0);
/// The agent manages memory (so the doorbell works).
static MANAGING: AtomicBool = AtomicBool::new(false);
/// Address of the doorbell page.
static DOORBELL: AtomicUsize = AtomicUsize::new(0);
/// Address of a word that is 1 in the process that all this is true of, and 0 in its children.
static OURS: AtomicUsize = AtomicUsize::new(0);
/// Its number.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Maps the doorbell, and the word that says whose it is. A child has its doorbell where its parent's was.
///
/// *The story:* a signal's handler forked while its thread was about to ring. Its child went on there, with
/// the address of its parent's doorbell in a register, and got SIGSEGV once its own lay elsewhere.
pub fn set_up() -> Option<()> {
    let before = DOORBELL.load(SeqCst);
    let same = (before != 0).then(|| Mapping::anon_at(before, PAGE_SIZE, Prot::RW).ok()).flatten();
    let doorbell = same.or_else(|| Mapping::anon(PAGE_SIZE, Prot::RW).ok())?;
    // A child gets its own, and a page that a child shares could not be taken away again.
    // SAFETY: the mapping is ours; content does not change.
    unsafe { doorbell.advise(Advice::DontFork) }.ok()?;
    DOORBELL.store(doorbell.leak().start, SeqCst);
    // A child has these, which are never there.
    MAILBOX.store(Mapping::anon(heirs::PAGES * PAGE_SIZE, Prot::RW).ok()?.leak().start, SeqCst);
    if own_word().is_none() {
        let ours = Mapping::anon(PAGE_SIZE, Prot::RW).ok()?;
        // SAFETY: as above: this process keeps what is there.
        unsafe { ours.advise(Advice::WipeOnFork) }.ok()?;
        OURS.store(ours.leak().start, SeqCst);
    }
    own_word()?.store(1, SeqCst);
    PROCESS.store(mem::process_id(), SeqCst);
    Some(())
}

fn own_word() -> Option<&'static AtomicU32> {
    let address = OURS.load(SeqCst);
    // SAFETY: the page stays mapped for ever, in children, too, and is only accessed so.
    (address != 0).then(|| unsafe { AtomicU32::from_ptr(address as *mut u32) })
}

/// Is this the process of the agent that these words are of?
pub fn is_ours() -> bool {
    own_word().is_some_and(|word| word.load(SeqCst) == 1)
}

/// Is this a copy of such a process that no handler of fork knows of? Where there is no word nobody can tell.
pub fn is_strange() -> bool {
    own_word().is_some_and(|word| word.load(SeqCst) != 1)
}

/// Is the caller a child of vfork, which has its parent's memory until it calls exec? This is a system call.
pub fn is_borrowing() -> bool {
    PROCESS.load(SeqCst) != mem::process_id()
}

/// The doorbell page.
pub fn doorbells() -> AddressRange {
    let start = DOORBELL.load(SeqCst);
    start..start + PAGE_SIZE
}

/// The pages by which children ask.
pub fn mailbox() -> AddressRange {
    let start = MAILBOX.load(SeqCst);
    start..start + heirs::PAGES * PAGE_SIZE
}

/// Where this child is to ask for what it inherits, if it was made with pages out. It is asked once.
pub fn inherits_from() -> Option<usize> {
    let mailbox = HEIR.swap(0, SeqCst);
    (mailbox != 0).then_some(mailbox)
}

/// Runs before a fork, in the thread that forks.
pub extern "C" fn prepare() {
    if !is_ours() {
        return;
    }
    loop {
        let generation = GENERATION.load(SeqCst);
        FORKS.fetch_add(1, SeqCst);
        while MANAGING.load(SeqCst) {
            match PAUSED.load(SeqCst) {
                GOES_ON => ring(),
                OUT if wants_all() => rest(),
                _ => break,
            }
        }
        // A signal handler may have forked meanwhile, and this be its child, which counts anew.
        if GENERATION.load(SeqCst) == generation {
            break;
        }
    }
}

/// Runs after a fork in the parent.
pub extern "C" fn parent() {
    if is_ours() {
        outwait_child();
        count_ended(1);
    }
}

fn count_ended(forks: u32) {
    ENDED.fetch_add(forks, SeqCst);
    let _ = FORKS.fetch_update(SeqCst, SeqCst, |under_way| under_way.checked_sub(forks));
}

/// Makes a child by `call`, which gives 0 there, with these flags of clone(2), between [`prepare`] and
/// [`parent`]; what it is given is for [`child_of`].
pub fn between(flags: usize, call: impl FnOnce(Option<Ticket>) -> isize) -> isize {
    between_telling(flags, [0; 2], call)
}

/// The same where the kernel tells the maker of the child at these addresses, unless they are 0: before the
/// child runs, while nobody gets a page.
///
/// *The story:* the word of CLONE_PARENT_SETTID was on a page that was out. The call took five seconds, and
/// all was brought in (`torture fork-told`).
pub fn between_telling(flags: usize, words: [usize; 2], call: impl FnOnce(Option<Ticket>) -> isize) -> isize {
    prepare();
    words.into_iter().filter(|&word| word != 0).for_each(peek::bring_in);
    let ticket = waiting::begin(flags);
    let result = call(ticket);
    if result == 0 {
        child_of(ticket, flags);
    } else if ticket.is_none_or(Ticket::end) {
        // Else the agent has counted it.
        parent();
    }
    result
}

/// As [`child`], of such a fork.
pub fn child_of(ticket: Option<Ticket>, flags: usize) {
    let is_siblings = parent::is_siblings(flags);
    let begun = begins();
    if begun && is_siblings {
        parent::be_sibling();
    }
    if let Some(ticket) = ticket {
        ticket.tell(begun);
    }
}

/// For the agent: forks whose makers wait for their children's ends are over when those say so.
pub fn count_told() {
    match waiting::count_told() {
        0 => {}
        forks => count_ended(forks),
    }
}

fn ring() {
    // SAFETY: the page is mapped readable for ever; the read may wait for the agent, which is what it
    // is for.
    unsafe { core::ptr::read_volatile(DOORBELL.load(SeqCst) as *const u8) };
}

/// As [`prepare`], for who is to find everything in, and forks nobody.
///
/// *The story:* a process that shares memory lived longer than its maker, which had done this behind a
/// filter. What children would have inherited was out, and read as zeroes (`torture fork-outlive`).
pub fn prepare_whole() {
    WANTS_ALL.store(true, SeqCst);
    prepare();
}

/// Is everything to be in at the next pause, or in this one?
pub fn wants_all() -> bool {
    WANTS_ALL.load(SeqCst) || withheld::has_marked()
}

/// The pause that is began before all was wanted: its end is looked for.
///
/// *The story:* a fork left pages out. The program marked them MADV_WIPEONFORK and forked again, before
/// the pause was over. The second child, which could not inherit, got copies of what was to be wiped
/// (`torture fork-out-wiped`).
fn rest() {
    wait_by(|| clock::sleep_ns(REST_NS));
}

/// Waits by that call; behind a filter, which may end who makes it, without one.
fn wait_by(call: impl FnOnce()) {
    if filters::is_filtered() {
        core::hint::spin_loop();
    } else {
        call();
    }
}

/// With pages out a child needs its parent until it is on its own. So who made it does not go on,
/// and perhaps end, before.
///
/// The kernel has told of the fork by now: what the agent reads before it sees this is handled first.
///
/// *The story:* a signal's handler forked meanwhile, and its child, which counts anew, waited here for
/// what only its parent's agent says, for ever (`torture fork-out-signal`).
fn outwait_child() {
    let generation = GENERATION.load(SeqCst);
    if !IS_OUT.load(SeqCst) {
        return;
    }
    let made = MADE.fetch_add(1, SeqCst) + 1;
    while GENERATION.load(SeqCst) == generation {
        let settled = SETTLED.load(SeqCst);
        if settled.wrapping_sub(made).cast_signed() >= 0 {
            return;
        }
        wait_by(|| {
            let _ = futex::wait(&SETTLED, settled, Some(LOOK_NS), Scope::Private);
        });
    }
}

/// Odd while the agent reads, or has read, of a fork that it has not handled.
pub fn heard() -> &'static AtomicU32 {
    &HEARD
}

/// So often it is looked whether that is done: the agent may have ended.
const HEARD_RESTS: u32 = 50_000;

/// Waits while the agent handles a fork that it has read of: its maker may be the caller, who has made it by
/// the bare instruction, and is about to change what the child of that was to get.
pub fn outwait_heard() {
    let (generation, seen) = (GENERATION.load(SeqCst), HEARD.load(SeqCst));
    let lasts = || HEARD.load(SeqCst) == seen && GENERATION.load(SeqCst) == generation;
    let mut rests = HEARD_RESTS;
    while seen % 2 == 1 && rests > 0 && lasts() && MANAGING.load(SeqCst) && is_ours() {
        rest();
        rests -= 1;
    }
}

/// So many were made and are waited for.
pub fn made() -> u32 {
    MADE.load(SeqCst)
}

/// Does anybody wait for one to be on its own?
pub fn is_child_awaited() -> bool {
    MADE.load(SeqCst) != SETTLED.load(SeqCst)
}

/// All of these are on their own.
pub fn note_settled(made: u32) {
    SETTLED.store(made, SeqCst);
    futex::wake(&SETTLED, u32::MAX, Scope::Private);
}

/// Runs after a fork in the child: it has all its memory and no agent yet. Behind a filter it gets
/// none: see [`filters`]. Where the constructor made no agent there is nothing to be done.
///
/// *The stories:* in valgrind, where there is no agent, the child of `_Fork` got one, and valgrind ended
/// it. And a signal's handler forked before this began: its child, which has an agent when the handler
/// returns, went on here and forgot that one. It had two, and its next fork waited for ever.
pub extern "C" fn child() {
    begins();
}

/// True in who has begun anew by this.
fn begins() -> bool {
    own_word().is_some()
        && undisturbed(|| {
            let begins = !is_ours();
            if begins {
                begin_anew();
            }
            begins
        })
}

fn begin_anew() {
    HEIR.store(if IS_OUT.load(SeqCst) { MAILBOX.load(SeqCst) } else { 0 }, SeqCst);
    IS_OUT.store(false, SeqCst);
    MANAGING.store(false, SeqCst);
    PAUSED.store(GOES_ON, SeqCst);
    FORKS.store(0, SeqCst);
    MADE.store(0, SeqCst);
    SETTLED.store(0, SeqCst);
    HEARD.store(0, SeqCst);
    GENERATION.fetch_add(1, SeqCst);
    files::in_child();
    parent::in_child();
    Looks::forget();
    joining::in_child(None);
    waiting::forget();
    cpu_limit::in_child();
    remap::forget();
    retire::forget();
    start::forget_agent();
    speaker::forget();
    veto::forget();
    if filters::is_filtered() {
        heir::refuse();
        fresh::leave();
        return;
    }
    room::borrowed::in_child();
    fresh::forget();
    start::start_again();
}

/// From now on forks ring. True when one is under way that did not.
pub fn start_managing() -> bool {
    MANAGING.store(true, SeqCst);
    FORKS.load(SeqCst) > 0
}

/// Does the agent manage memory?
pub fn is_managing() -> bool {
    MANAGING.load(SeqCst)
}

/// The agent goes: nobody rings any more.
pub fn stop_managing() {
    MANAGING.store(false, SeqCst);
    IS_OUT.store(false, SeqCst);
    PAUSED.store(GOES_ON, SeqCst);
}

/// Everything is in, or children inherit what is `out`: forks may go on.
pub fn set_paused(out: bool) {
    if out {
        IS_OUT.store(true, SeqCst);
    }
    PAUSED.store(if out { OUT } else { ALL_IN }, SeqCst);
}

/// Threads between the start of a fork and its end.
pub fn under_way() -> &'static AtomicU32 {
    &FORKS
}

/// Is any thread between the start of a fork and its end?
pub fn is_under_way() -> bool {
    FORKS.load(SeqCst) > 0
}

/// How many forks lie between the program and this process.
pub fn generation() -> u32 {
    GENERATION.load(SeqCst)
}

/// How many forks have ended, ever.
pub fn ended() -> u32 {
    ENDED.load(SeqCst)
}

/// Is the agent between [`set_paused`] and a successful [`may_resume`]?
pub fn is_paused() -> bool {
    PAUSED.load(SeqCst) != GOES_ON
}

/// Ends the pause unless a fork is under way.
pub fn may_resume() -> bool {
    let paused = PAUSED.swap(GOES_ON, SeqCst);
    if FORKS.load(SeqCst) == 0 {
        // Who comes now waits for the next pause.
        IS_OUT.store(false, SeqCst);
        return true;
    }
    PAUSED.store(paused, SeqCst);
    false
}
