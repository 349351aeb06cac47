//! The library: memory larger than its budget, for a Rust program that asks for it.
//!
//! ```no_run
//! use overspill_pager::Pager;
//! # fn main() -> Result<(), overspill_pager::Error> {
//! let pager = Pager::builder().ram(256 << 20).swap("/var/tmp").build()?;
//! let mut table = pager.map_anon(4 << 30)?;
//! table[123_456_789] = 7;
//! pager.prefetch(&table, 0..64 << 20);
//! println!("{:?}", pager.stats());
//! # Ok(())
//! # }
//! ```
//!
//! One thread of the pager's own serves the faults. Its memory is not managed memory, and nothing it does touches a
//! region: a pager that waits for itself waits for ever.

use std::ops::{Deref, DerefMut, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use overspill_engine::report::Report;
use overspill_engine::shared::Process;
use overspill_engine::{Engine, Failure, Notice, Reactor, STEPS, Settings, SwapPlace};
use overspill_mm::Vmstat;
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::types::RegionKind;
use overspill_sys::event::Bell;
use overspill_sys::mem::{Advice, Mapping, Prot};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock};
use std::ffi::CString;

/// The pager looks at the clock at least this often.
const TICK_NS: u64 = 20_000_000;

/// Why a pager could not do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The budget is smaller than [`Builder::RAM_MIN`].
    BudgetTooSmall,
    /// The swap directory's name contains a NUL byte.
    BadPath(PathBuf),
    /// A step of starting failed: its name, and the kernel's reason.
    Start(&'static str, Errno),
    /// The kernel refused a mapping.
    Map(Errno),
    /// The pager's thread is gone.
    Stopped,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::BudgetTooSmall => write!(f, "a budget below {} bytes runs nothing", Builder::RAM_MIN),
            Error::BadPath(path) => write!(f, "{}: not a path", path.display()),
            Error::Start(step, errno) => write!(f, "cannot {step}: {errno}"),
            Error::Map(errno) => write!(f, "cannot map memory: {errno}"),
            Error::Stopped => write!(f, "the pager has stopped"),
        }
    }
}

impl std::error::Error for Error {}

/// What a pager is made from; see [`Pager::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    ram: u64,
    swap: PathBuf,
    swap_max: u64,
    policy: Policy,
    use_move: bool,
    use_uring: bool,
}

impl Builder {
    /// Smallest budget in bytes.
    pub const RAM_MIN: u64 = 1 << 20;

    /// The budget of all regions together, in bytes. Default: 256 MiB.
    #[must_use]
    pub fn ram(mut self, bytes: u64) -> Self {
        self.ram = bytes;
        self
    }

    /// The directory of the swap file, which has no name and vanishes with the pager. Default: `/var/tmp`.
    #[must_use]
    pub fn swap(mut self, directory: impl AsRef<Path>) -> Self {
        self.swap = directory.as_ref().to_owned();
        self
    }

    /// Most bytes of swap; 0 (the default) = what the file system gives.
    #[must_use]
    pub fn swap_max(mut self, bytes: u64) -> Self {
        self.swap_max = bytes;
        self
    }

    /// The read-ahead policy. Default: adaptive.
    #[must_use]
    pub fn readahead(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether UFFDIO_MOVE may be used (kernel 6.8). Default: yes.
    #[must_use]
    pub fn use_move(mut self, yes: bool) -> Self {
        self.use_move = yes;
        self
    }

    /// Whether io_uring may be used. Default: yes.
    #[must_use]
    pub fn use_uring(mut self, yes: bool) -> Self {
        self.use_uring = yes;
        self
    }

    /// Starts the pager.
    ///
    /// # Errors
    /// [`Error::Start`] names the step that the kernel refused: `overspill doctor` tells how to mend it.
    pub fn build(mut self) -> Result<Pager, Error> {
        if self.ram < Self::RAM_MIN {
            return Err(Error::BudgetTooSmall);
        }
        let path = CString::new(self.swap.as_os_str().as_bytes()).map_err(|_| Error::BadPath(self.swap))?;
        let frames = u32::try_from(self.ram / PAGE_SIZE as u64).unwrap_or(u32::MAX / 32);
        self.policy.frames = frames;
        let settings = Settings {
            frames,
            frames_max: frames,
            swap: SwapPlace::Directory(path),
            swap_bytes_max: self.swap_max,
            use_move: self.use_move,
            use_uring: self.use_uring,
            user_mode_only: false,
            policy: self.policy,
        };
        Pager::start(settings)
    }
}

/// A running pager. Dropping it while regions live is a mistake that the borrow checker does not see, so regions keep
/// it alive.
#[derive(Debug)]
pub struct Pager {
    link: Arc<Link>,
}

#[derive(Debug)]
struct Link {
    orders: Mutex<Sender<Order>>,
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Order {
    Add(AddressRange, Sender<Result<(), Errno>>),
    Remove(AddressRange, Sender<Result<(), Errno>>),
    WillNeed(AddressRange),
    Stats(Sender<Stats>),
    Stop,
}

/// The counters of a pager at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The kernel-named counters.
    pub vmstat: Vmstat,
    /// Frames held, in pages.
    pub frames: u32,
    /// Swap in use, in pages.
    pub slots: u32,
}

impl Pager {
    /// A pager with defaults, to be changed and built.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            ram: 256 << 20,
            swap: PathBuf::from("/var/tmp"),
            swap_max: 0,
            policy: Policy::by_name(policy::NAMES[0], policy::Config::default())
                .expect("every listed name makes a policy"),
            use_move: true,
            use_uring: true,
        }
    }

    fn start(settings: Settings) -> Result<Pager, Error> {
        let (orders, received) = channel();
        let bell = Bell::new().map_err(|errno| Error::Start("make an event descriptor", errno))?;
        let bell = Arc::new(bell);
        let (ready, started) = channel();
        let heard = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("overspill".into())
            .spawn(move || serve(settings, &received, &heard, &ready))
            .map_err(|_| Error::Start("start a thread", Errno::AGAIN))?;
        started
            .recv()
            .map_err(|_| Error::Stopped)?
            .map_err(|failure: Failure| Error::Start(STEPS[failure.step as usize], failure.errno))?;
        let link = Link { orders: Mutex::new(orders), bell, thread: Mutex::new(Some(thread)) };
        Ok(Pager { link: Arc::new(link) })
    }

    /// A region of zeroes that may be larger than the budget, or than the machine. `len` is rounded up to whole pages.
    ///
    /// # Errors
    /// [`Error::Map`] when there is no address space for it.
    pub fn map_anon(&self, len: usize) -> Result<Region, Error> {
        let pages = len.max(1).next_multiple_of(PAGE_SIZE);
        let mapping = Mapping::anon(pages, Prot::RW).map_err(Error::Map)?;
        for advice in [Advice::NoHugePage, Advice::DontFork] {
            // SAFETY: the mapping is fresh and ours; neither changes content.
            unsafe { mapping.advise(advice) }.map_err(Error::Map)?;
        }
        let (reply, answer) = channel();
        self.link.order(Order::Add(mapping.range(), reply))?;
        answer.recv().map_err(|_| Error::Stopped)?.map_err(Error::Map)?;
        Ok(Region { mapping: Some(mapping), len, link: Arc::clone(&self.link) })
    }

    /// Starts reading bytes `range` of the region, as far as the budget has room.
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn prefetch(&self, region: &Region, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= region.len, "the range lies in the region");
        let start = region.range().start;
        // A pager that has stopped reads nothing ahead, and says so at the next call that can say anything.
        let _ = self.link.order(Order::WillNeed(start + range.start..start + range.end));
    }

    /// The counters.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let (reply, answer) = channel();
        self.link.order(Order::Stats(reply))?;
        answer.recv().map_err(|_| Error::Stopped)
    }
}

impl Link {
    fn order(&self, order: Order) -> Result<(), Error> {
        let orders = self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        orders.send(order).map_err(|_| Error::Stopped)?;
        self.bell.ring();
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Regions hold the link: none is left when the pager stops.
        let _ = self.order(Order::Stop);
        let thread = self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Bytes that live partly in RAM and partly on swap.
#[derive(Debug)]
pub struct Region {
    mapping: Option<Mapping>,
    len: usize,
    link: Arc<Link>,
}

impl Region {
    fn range(&self) -> AddressRange {
        self.mapping.as_ref().expect("a region has its mapping until it is dropped").range()
    }
}

impl Deref for Region {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as the region; faults in it are answered by the pager, which the link keeps
        // running; its bytes change only through `&mut`.
        unsafe { std::slice::from_raw_parts(self.range().start as *const u8, self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.range().start as *mut u8, self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let range = self.range();
        let (reply, answer) = channel();
        if self.link.order(Order::Remove(range, reply)).is_ok() {
            let _ = answer.recv();
        }
        // The unmapping itself raises an event, which the pager's thread reads while we wait here.
        drop(self.mapping.take());
    }
}

fn serve(settings: Settings, orders: &Receiver<Order>, bell: &Bell, ready: &Sender<Result<(), Failure>>) {
    let process: &'static Process = Box::leak(Box::new(Process::new()));
    let mut engine = match Engine::open(settings, Report::new(process)) {
        Ok(engine) => engine,
        Err(failure) => {
            let _ = ready.send(Err(failure));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let mut reactor = Reactor::default();
    loop {
        reactor.turn(&mut engine, clock::monotonic_ns() + TICK_NS, Some(bell));
        while let Some(notice) = engine.notice() {
            judge(&mut engine, notice);
        }
        if bell.hush() {
            while let Ok(order) = orders.try_recv() {
                if !obey(&mut engine, order) {
                    return;
                }
            }
        }
    }
}

fn judge(engine: &mut Engine, notice: Notice) {
    match notice {
        Notice::Unknown(address) => engine.wake(address),
        Notice::SwapFull => eprintln!("overspill: swap is full; regions go on above their budget"),
        Notice::AreaRetired => eprintln!("overspill: a write to swap failed; pages stay in RAM from now on"),
        Notice::PageLost { address, poisoned } => {
            eprintln!("overspill: the page at {address:#x} could not be read back from swap");
            assert!(poisoned, "this kernel cannot signal a lost page; going on would show wrong bytes");
        }
        Notice::Doorbell(_) | Notice::Populated => {}
    }
}

/// Carries out an order; false when it was the last one.
fn obey(engine: &mut Engine, order: Order) -> bool {
    match order {
        Order::Add(range, reply) => {
            let registered = engine.register(range.clone());
            if registered.is_ok() {
                engine.add_region(range, RegionKind::Anon);
            }
            let _ = reply.send(registered);
        }
        Order::Remove(range, reply) => {
            engine.remove_region(range);
            let _ = reply.send(Ok(()));
        }
        Order::WillNeed(range) => engine.will_need(range),
        Order::Stats(reply) => {
            let stats = Stats {
                vmstat: *engine.mm().stats(),
                frames: engine.frames(),
                slots: engine.mm().slots_used(),
            };
            let _ = reply.send(stats);
        }
        Order::Stop => return false,
    }
    true
}
