//! What a pager is made from.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use overspill_engine::{Settings, SwapPlace, frames_of};
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::reclaim::policy::Choice;

use crate::{Error, Pager};

/// What a pager is made from; see [`Pager::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    ram: u64,
    ram_max: u64,
    swap: PathBuf,
    swap_max: u64,
    policy: Policy,
    reclaim: Choice,
    use_move: bool,
    use_uring: bool,
    poll_idle: bool,
    max_pool_percent: u32,
    fixed_pool: bool,
    encrypt: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            ram: 256 << 20,
            ram_max: 0,
            swap: PathBuf::from("/var/tmp"),
            swap_max: 0,
            policy: Policy::by_name(policy::NAMES[0], policy::Config::default())
                .expect("every listed name makes a policy"),
            reclaim: Choice::default(),
            use_move: true,
            use_uring: true,
            poll_idle: false,
            max_pool_percent: overspill_engine::MAX_POOL_PERCENT,
            fixed_pool: false,
            encrypt: false,
        }
    }
}

impl Builder {
    /// Smallest budget in bytes.
    pub const RAM_MIN: u64 = 1 << 20;

    /// The budget of all regions together, in bytes; 4 TiB at most: what is above that counts for so much.
    /// Default: 256 MiB. [`Pager::set_ram`] changes it.
    #[must_use]
    pub fn ram(mut self, bytes: u64) -> Self {
        self.ram = bytes;
        self
    }

    /// The most that [`Pager::set_ram`] may ever set, in bytes; 4 TiB at most. It costs addresses, 32 times
    /// as many, and no RAM. Default, and at least: the budget.
    #[must_use]
    pub fn ram_max(mut self, bytes: u64) -> Self {
        self.ram_max = bytes;
        self
    }

    /// The directory of the swap file, which has no name and vanishes with the pager. Default: `/var/tmp`.
    /// One in memory (tmpfs, `/dev/shm`) is taken, too, and saves nothing: what leaves RAM is in RAM.
    #[must_use]
    pub fn swap(mut self, directory: impl AsRef<Path>) -> Self {
        self.swap = directory.as_ref().to_owned();
        self
    }

    /// Most bytes of swap; 0 (the default) = what the file system gives. When it is full regions go on in
    /// RAM, above the budget.
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

    /// Which pages leave. Default: adaptive.
    #[must_use]
    pub fn reclaim(mut self, policy: Choice) -> Self {
        self.reclaim = policy;
        self
    }

    /// Whether UFFDIO_MOVE may be used (kernel 6.8). Default: yes. Without it nothing shows that a device is
    /// to write to a page: see [`Region`](crate::Region).
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

    /// Whether idle processors are kept awake while a thread waits for pages, if this process may
    /// open /dev/cpu_dma_latency: waiting is shorter, and all idle processors of the machine use
    /// power meanwhile. Default: no.
    #[must_use]
    pub fn poll_idle(mut self, yes: bool) -> Self {
        self.poll_idle = yes;
        self
    }

    /// Most of the budget that pages may take compressed, in percent (0 to 90; 0: none are
    /// compressed). How much of that is used depends on how the memory is used and on how well it
    /// compresses. Default: 50.
    #[must_use]
    pub fn max_pool_percent(mut self, percent: u32) -> Self {
        self.max_pool_percent = percent.min(90);
        self
    }

    /// Lets the compressed pool have all of [`Builder::max_pool_percent`] from the start, whatever
    /// it costs. Default: no.
    #[must_use]
    pub fn fixed_pool(mut self, fixed: bool) -> Self {
        self.fixed_pool = fixed;
        self
    }

    /// Encrypts what goes to swap (AES-GCM), under a key that is nowhere but in memory. What is in RAM is
    /// not, compressed or not, nor what the kernel's own swap or a core dump has of it. Default: no.
    #[must_use]
    pub fn encrypt(mut self, yes: bool) -> Self {
        self.encrypt = yes;
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
        let ram = frames_of(self.ram);
        let frames = ram.max(frames_of(self.ram_max));
        self.policy.frames = ram;
        let settings = Settings {
            frames,
            swap: vec![SwapPlace::directory(path)],
            swap_bytes_max: self.swap_max,
            claims: None,
            spill: None,
            use_move: self.use_move,
            use_uring: self.use_uring,
            poll_idle: self.poll_idle,
            user_mode_only: false,
            policy: self.policy,
            reclaim: self.reclaim,
            max_pool_percent: self.max_pool_percent,
            fixed_pool: self.fixed_pool,
            floats: true,
            fills_room: true,
            checksums: true,
            encrypt: self.encrypt,
            pagemap: None,
        };
        Pager::start(settings, ram)
    }
}
