//! The pager's thread, and the way to it: whatever is to be done with the engine is sent there as a
//! piece of work.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use overspill_engine::report::Report;
use overspill_engine::shared::Process as Page;
use overspill_engine::{Engine, Failure, Notice, Reactor, STEPS, Settings};
use overspill_sys::event::Bell;
use overspill_sys::mem::OwnMemory;
use overspill_sys::{AddressRange, Errno, Fd, clock, file, thread};

use crate::Error;
use crate::door::Door;
use crate::file::Room;
use crate::process::Process;
use crate::raw;

/// The pager looks at the clock at least this often.
const TICK_NS: u64 = 20_000_000;

enum Order {
    Work(Box<dyn FnOnce(&mut Engine) + Send>),
    Stop,
}

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Wire {
    orders: Mutex<Sender<Order>>,
    bell: Bell,
    /// Whose thread it leads to.
    process: Process,
}

impl Wire {
    /// Has the thread do some work, without waiting for it.
    pub fn tell(&self, work: impl FnOnce(&mut Engine) + Send + 'static) -> Result<(), Error> {
        self.order(Order::Work(Box::new(work)))
    }

    /// Has the thread do some work, and waits for what comes of it.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = channel();
        self.tell(move |engine| {
            // Whoever asked waits for it.
            let _ = reply.send(work(engine));
        })?;
        answer.recv().map_err(|_| Error::Stopped)
    }

    /// A child of fork has no thread that would answer.
    ///
    /// *The story:* a child that dropped a region waited for ever.
    pub fn is_ours(&self) -> bool {
        self.process.is_this()
    }

    fn order(&self, order: Order) -> Result<(), Error> {
        if !self.is_ours() {
            return Err(Error::Stopped);
        }
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.send(order).map_err(|_| Error::Stopped)?;
        self.bell.ring();
        Ok(())
    }
}

/// A running thread. Everything that needs it holds the link: with the last holder it ends.
#[derive(Debug)]
pub(crate) struct Link {
    wire: Arc<Wire>,
    thread: Option<JoinHandle<()>>,
    /// Where other processes come in; opened with the first handle.
    door: OnceLock<Door>,
}

impl Link {
    /// Starts the thread; cached files have what `room` says of the budget.
    pub fn start(settings: Settings, room: Arc<Room>) -> Result<Link, Error> {
        let bell = Bell::new().map_err(|errno| Error::Start("make an event descriptor", errno))?;
        let (orders, received) = channel();
        let wire = Arc::new(Wire { orders: Mutex::new(orders), bell, process: Process::this() });
        let (ready, started) = channel();
        let heard = Arc::clone(&wire);
        let thread = std::thread::Builder::new()
            .name("overspill".into())
            .spawn(move || {
                // A handler that touched a region here would wait for itself.
                let _ = thread::block_program_signals();
                serve(settings, &received, &heard.bell, &room, &ready);
            })
            .map_err(|_| Error::Start("start a thread", Errno::AGAIN))?;
        started
            .recv()
            .map_err(|_| Error::Stopped)?
            .map_err(|failure: Failure| Error::Start(STEPS[failure.step as usize], failure.errno))?;
        Ok(Link { wire, thread: Some(thread), door: OnceLock::new() })
    }

    /// The way to the thread.
    pub fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// Registers what was just mapped, and is no region yet. Others that drop regions meanwhile are
    /// waited for.
    pub fn register_empty(&self, range: &AddressRange) -> Result<(), Error> {
        loop {
            let range = range.clone();
            match self.wire.ask(move |engine| engine.register_empty(range))? {
                Err(Errno::AGAIN) => std::thread::yield_now(),
                registered => return registered.map_err(Error::Map),
            }
        }
    }

    /// Where other processes come in.
    pub fn door(&self) -> Result<&Door, Error> {
        if self.door.get().is_none() {
            // If another thread is faster, this one's door closes unused.
            let _ = self.door.set(Door::open(Arc::clone(&self.wire))?);
        }
        Ok(self.door.get().expect("it was set"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.wire.is_ours() {
            // Nor has the child any of the threads that would have to be waited for.
            std::mem::forget((self.thread.take(), self.door.take()));
            return;
        }
        let _ = self.wire.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Processes that have joined keep their memory: all of it was brought in. The door tells
        // them so as it closes.
    }
}

/// Ends the process when the thread that serves panics: with it the userfaultfd would be closed,
/// and pages that are out would read as zeroes. The panic's message has been printed by then.
///
/// *The story:* a panic ended the thread alone, and 3613 of 4096 pages were zero.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Serves until it is told to stop. Then nothing is under way any more.
///
/// *The story* (by reading; for threads `overspill-engine` has a test): the engine was dropped with its
/// requests under way. Whoever got the addresses of staging and the numbers of swap's descriptors next
/// had reads put into his memory, and pages of swap written into his file.
fn serve(
    settings: Settings,
    orders: &Receiver<Order>,
    bell: &Bell,
    room: &Room,
    ready: &Sender<Result<(), Failure>>,
) {
    let process: &'static Page = Box::leak(Box::new(Page::new()));
    let mut engine = match Engine::open(settings, Report::new(process)) {
        Ok(engine) => engine,
        Err(failure) => {
            let _ = ready.send(Err(failure));
            return;
        }
    };
    if let Ok(memory) = OwnMemory::open() {
        engine.read_by(Arc::new(memory));
    }
    // Dropped before the engine.
    let _bomb = Bomb;
    let _ = ready.send(Ok(()));
    let mut reactor = Reactor::default();
    let mut looked_ns = 0;
    loop {
        turn(&mut reactor, &mut engine, bell);
        room.look(&engine);
        let now = clock::monotonic_ns();
        if now >= looked_ns + TICK_NS {
            engine.tick();
            looked_ns = now;
        }
        if bell.hush() {
            for order in orders.try_iter() {
                match order {
                    Order::Work(work) => work(&mut engine),
                    Order::Stop => {
                        release(&mut reactor, &mut engine, bell);
                        // A ring does not wait as it is dropped.
                        return engine.finish_transfers();
                    }
                }
            }
        }
    }
}

/// One turn of the crank. True when everything is in, after a pause was ordered.
fn turn(reactor: &mut Reactor, engine: &mut Engine, bell: &Bell) -> bool {
    reactor.turn(engine, clock::monotonic_ns() + TICK_NS, Some(bell));
    let mut populated = false;
    while let Some(notice) = engine.notice() {
        populated |= notice == Notice::Populated;
        judge(engine, notice);
    }
    populated
}

/// Other processes may still map shared regions: they get back everything that is out.
fn release(reactor: &mut Reactor, engine: &mut Engine, bell: &Bell) {
    if !engine.is_sharing() {
        return;
    }
    engine.pause();
    while !turn(reactor, engine, bell) {}
    engine.release_shared();
}

const LOST: &str = "a page could not be read back from swap";

/// On standard error. Where that cannot be written the pager goes on: `eprintln!` would end it, and
/// whoever waits for a page would wait for ever. Nor does it take the library's lock on it: a thread
/// that has that may be waiting for a page, in the midst of `eprintln!`. For the same reason it does
/// not wait for a reader.
///
/// *The story:* the pager's thread waited for room in a pipe, and who was to read from that for a page.
pub(crate) fn say(line: &str) {
    if let Ok(copy) = io::stderr().as_fd().try_clone_to_owned() {
        say_on(&raw::fd_from(copy), line);
    }
}

fn say_on(fd: &Fd, line: &str) {
    let _ = file::write_at_once(fd, format!("overspill: {line}\n").as_bytes());
}

fn judge(engine: &mut Engine, notice: Notice) {
    match notice {
        Notice::Unknown { address, write, .. } | Notice::Stuck { address, write, .. } => {
            engine.answer_unknown(address, write)
        }
        Notice::SwapFull => say("swap is full; regions go on above their budget"),
        Notice::AreaRetired => say("a write to swap failed; pages stay in RAM from now on"),
        Notice::PageLost { poisoned, of_file, .. } => {
            let whence = if of_file { "a page of a file could not be read" } else { LOST };
            say(&format!("{whence}; its touch raises SIGBUS"));
            assert!(poisoned, "this kernel cannot signal a lost page; going on would show wrong bytes");
        }
        // Nobody orders areas to go here.
        Notice::Doorbell(_) | Notice::Populated | Notice::AreaNotEmptied { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use crate::Pager;

    /// *The story:* see [`super::say`].
    #[test]
    fn a_pipe_that_is_full_stops_nobody() {
        let (_reader, writer) = std::io::pipe().expect("there are descriptors");
        let fd = crate::raw::fd_from(writer.into());
        let said = std::thread::spawn(move || (0..10_000).for_each(|_| super::say_on(&fd, "swap is full")));
        let begin = std::time::Instant::now();
        while !said.is_finished() && begin.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(said.is_finished(), "it waits for a reader");
    }

    /// Set in the process that is to die.
    const DYING: &str = "OVERSPILL_TEST_DYING";

    /// SIGABRT, wherever that is defined.
    const ABORTED: i32 = 6;

    #[test]
    fn a_panic_of_the_thread_ends_the_process_before_a_page_reads_zero() {
        if std::env::var_os(DYING).is_some() {
            return die();
        }
        let own = std::env::current_exe().expect("a test knows its own program");
        let name = "link::tests::a_panic_of_the_thread_ends_the_process_before_a_page_reads_zero";
        let output = Command::new(own).args([name, "--exact", "--nocapture"]).env(DYING, "1").output();
        let output = output.expect("the test can be run again");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.signal(), Some(ABORTED), "{said}");
        assert!(!said.contains("pages read"), "{said}");
    }

    /// Panics in the serving thread while most of a region is out, then reads all of it.
    fn die() {
        let pager = Pager::builder().ram(4 << 20).swap("/var/tmp").build().expect("userfaultfd is there");
        let mut region = pager.map_anon(16 << 20).expect("there are addresses");
        region.chunks_mut(4096).for_each(|page| page[0] = 1);
        let _ = region.wire().tell(|_| panic!("as a failed assertion does"));
        let zeroes = region.chunks(4096).filter(|page| page[0] == 0).count();
        println!("{zeroes} of {} pages read zero", region.len() / 4096);
    }
}
