//! The engine over threads: for kernels and containers that refuse io_uring.
//!
//! Workers are threads without libc. One lock guards queue and completions; who waits for it, and
//! idle workers, sleep on a futex. An eventfd rings exactly while completions wait: it changes
//! under the lock too. Where no thread can be made who submits serves the requests itself.

use super::{Full, Operation, VECTORS_MAX};
use crate::event::{Bell, PollFd, poll};
use crate::futex::{self, Scope};
use crate::lock::Lock;
use crate::mem::{IoVec, Mapping, Prot};
use crate::thread::{self, Descriptors, Thread};
use crate::uring::Cqe;
use crate::{AddressRange, Errno, Fd, PAGE_SIZE, clock, file};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most requests in flight.
pub const DEPTH_MAX: u32 = 256;
/// Most workers.
pub const WORKERS_MAX: u32 = 16;
const STACK_BYTES: usize = 8 * PAGE_SIZE;

/// An engine over threads.
#[derive(Debug)]
pub struct ThreadEngine {
    /// Holds the [`Pool`].
    memory: Mapping,
    workers: [Option<Thread>; WORKERS_MAX as usize],
    depth: u32,
    /// Pushed, not yet shown to the workers.
    noted: Ring,
    /// Finished, taken from the workers, not yet popped.
    finished: Ring,
    /// Requests nobody uses.
    free: Ring,
    in_flight: u32,
}

/// What engine and workers share.
struct Pool {
    lock: Lock,
    /// Grows with every submission; idle workers sleep on it.
    news: AtomicU32,
    stop: AtomicBool,
    bell: Bell,
    state: UnsafeCell<State>,
    /// A request belongs to whoever holds its number: the engine, the queue, a worker, the completions.
    requests: [UnsafeCell<MaybeUninit<Request>>; DEPTH_MAX as usize],
}

struct State {
    queue: Ring,
    finished: Ring,
}

struct Request {
    operation: Operation,
    fd: i32,
    offset: u64,
    user_data: u64,
    vectors: [IoVec; VECTORS_MAX],
    vectors_count: usize,
    result: i32,
}

/// A queue of request numbers, with room for all of them.
#[derive(Debug)]
struct Ring {
    numbers: [u16; DEPTH_MAX as usize],
    head: u32,
    count: u32,
}

impl Ring {
    const fn new() -> Ring {
        Ring { numbers: [0; DEPTH_MAX as usize], head: 0, count: 0 }
    }

    fn push(&mut self, number: u16) {
        assert!(self.count < DEPTH_MAX, "there are no more numbers than places");
        self.numbers[((self.head + self.count) % DEPTH_MAX) as usize] = number;
        self.count += 1;
    }

    fn pop(&mut self) -> Option<u16> {
        self.count = self.count.checked_sub(1)?;
        let number = self.numbers[self.head as usize];
        self.head = (self.head + 1) % DEPTH_MAX;
        Some(number)
    }
}

impl Pool {
    fn with<R>(&self, action: impl FnOnce(&mut State) -> R) -> R {
        // SAFETY: the lock is held, so this is the only reference.
        self.lock.with(|| action(unsafe { &mut *self.state.get() }))
    }

    /// Takes requests off the queue and serves them until the engine is dropped and the queue is empty.
    fn work(&self) {
        loop {
            let seen = self.serve_queue();
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let _ = futex::wait(&self.news, seen, None, Scope::Private);
        }
    }

    /// Takes requests off the queue and serves them until it is empty. Returns what there was of news then.
    fn serve_queue(&self) -> u32 {
        loop {
            let (number, seen) = self.with(|state| (state.queue.pop(), self.news.load(Ordering::Acquire)));
            let Some(number) = number else { return seen };
            // SAFETY: the number came off the queue, so the request was written and is this thread's.
            let request = unsafe { (*self.requests[number as usize].get()).assume_init_mut() };
            request.serve();
            self.with(|state| {
                state.finished.push(number);
                if state.finished.count == 1 {
                    self.bell.ring();
                }
            });
        }
    }
}

impl Request {
    fn serve(&mut self) {
        let vectors = &self.vectors[..self.vectors_count];
        // SAFETY: whoever pushed the request vouched for memory and descriptor.
        let result = unsafe {
            match self.operation {
                Operation::Read => file::preadv(self.fd, vectors, self.offset),
                Operation::Write => file::pwritev(self.fd, vectors, self.offset),
            }
        };
        self.result = match result {
            Ok(count) => i32::try_from(count).expect("the kernel transfers less than 2 GiB at once"),
            Err(errno) => -errno.raw_os_error(),
        };
    }
}

extern "C" fn worker(pool: *mut ()) {
    thread::set_name(c"overspill-io");
    // SAFETY: the engine joins its workers before the pool goes away; all access through it is synchronised.
    unsafe { &*pool.cast::<Pool>() }.work();
}

impl ThreadEngine {
    pub(super) fn new(depth: u32, workers: u32) -> Result<ThreadEngine, Errno> {
        assert!((1..=DEPTH_MAX).contains(&depth) && workers <= WORKERS_MAX);
        let memory = Mapping::anon(size_of::<Pool>().next_multiple_of(PAGE_SIZE), Prot::RW)?;
        crate::mem::name(memory.range(), c"overspill io");
        let pool = memory.as_ptr::<Pool>();
        // SAFETY: the mapping is long enough, aligned and ours; requests need no value yet.
        unsafe {
            (&raw mut (*pool).lock).write(Lock::new());
            (&raw mut (*pool).news).write(AtomicU32::new(0));
            (&raw mut (*pool).stop).write(AtomicBool::new(false));
            (&raw mut (*pool).bell).write(Bell::new()?);
            (&raw mut (*pool).state)
                .write(UnsafeCell::new(State { queue: Ring::new(), finished: Ring::new() }));
        }
        let mut free = Ring::new();
        (0..depth as u16).for_each(|number| free.push(number));
        let mut engine = ThreadEngine {
            memory,
            workers: [const { None }; WORKERS_MAX as usize],
            depth,
            noted: Ring::new(),
            finished: Ring::new(),
            free,
            in_flight: 0,
        };
        for place in &mut engine.workers[..workers as usize] {
            // SAFETY: the worker uses system calls and the pool only; `drop` joins it before the pool goes.
            let made =
                unsafe { thread::spawn_ordinary(STACK_BYTES, Descriptors::Shared, worker, pool.cast()) };
            match made {
                Ok(made) => *place = Some(made),
                // No more may be. Those that there are do, or the caller itself.
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(engine)
    }

    /// The memory that workers and engine share.
    pub(super) fn range(&self) -> AddressRange {
        self.memory.range()
    }

    fn pool(&self) -> &Pool {
        // SAFETY: initialised in `new`, and alive as long as the engine.
        unsafe { &*self.memory.as_ptr::<Pool>() }
    }

    /// # Safety
    /// As for the engine's `push_read` and `push_write`.
    pub(super) unsafe fn push(
        &mut self,
        operation: Operation,
        fd: i32,
        vectors: &[IoVec],
        offset: u64,
        user_data: u64,
    ) -> Result<(), Full> {
        let number = self.free.pop().ok_or(Full)?;
        let mut request = Request {
            operation,
            fd,
            offset,
            user_data,
            vectors: [IoVec::default(); VECTORS_MAX],
            vectors_count: vectors.len(),
            result: 0,
        };
        request.vectors[..vectors.len()].copy_from_slice(vectors);
        // SAFETY: the number was free, so the request is the engine's. Plain data: nothing to drop.
        unsafe { self.pool().requests[number as usize].get().write(MaybeUninit::new(request)) };
        self.noted.push(number);
        self.in_flight += 1;
        Ok(())
    }

    pub(super) fn submit(&mut self) {
        let count = self.noted.count;
        if count == 0 {
            return;
        }
        let mut noted = core::mem::replace(&mut self.noted, Ring::new());
        let pool = self.pool();
        pool.with(|state| {
            while let Some(number) = noted.pop() {
                state.queue.push(number);
            }
            pool.news.fetch_add(1, Ordering::Release);
        });
        if self.workers[0].is_some() {
            futex::wake(&pool.news, count, Scope::Private);
        } else {
            pool.serve_queue();
        }
    }

    pub(super) fn wait(&mut self, min: u32, timeout_ns: Option<u64>) -> Result<(), Errno> {
        self.submit();
        let end = timeout_ns.map(|timeout| clock::monotonic_ns().saturating_add(timeout));
        loop {
            self.take_finished();
            if self.finished.count >= min {
                return Ok(());
            }
            let left = end.map(|end| end.saturating_sub(clock::monotonic_ns()));
            if left == Some(0) {
                return Ok(());
            }
            poll(&mut [PollFd::readable(self.wait_fd())], left)?;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Cqe> {
        if self.finished.count == 0 && self.in_flight > 0 {
            self.take_finished();
        }
        let number = self.finished.pop()?;
        // SAFETY: the number came from the completions, so the request was written and is the engine's.
        let request = unsafe { (*self.pool().requests[number as usize].get()).assume_init_ref() };
        let cqe = Cqe { user_data: request.user_data, result: request.result };
        self.free.push(number);
        self.in_flight -= 1;
        Some(cqe)
    }

    /// Takes all completions from the workers.
    fn take_finished(&mut self) {
        let pool = self.pool();
        let mut taken = pool.with(|state| {
            if state.finished.count > 0 {
                pool.bell.hush();
            }
            core::mem::replace(&mut state.finished, Ring::new())
        });
        while let Some(number) = taken.pop() {
            self.finished.push(number);
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn wait_fd(&self) -> &Fd {
        self.pool().bell.fd()
    }
}

impl Drop for ThreadEngine {
    fn drop(&mut self) {
        let pool = self.pool();
        pool.stop.store(true, Ordering::Release);
        pool.with(|_| pool.news.fetch_add(1, Ordering::Release));
        futex::wake(&pool.news, WORKERS_MAX, Scope::Private);
        for worker in &mut self.workers {
            if let Some(worker) = worker.take() {
                worker.join();
            }
        }
        // SAFETY: no worker is left; the bell is not used after this.
        unsafe { (&raw mut (*self.memory.as_ptr::<Pool>()).bell).drop_in_place() };
    }
}
