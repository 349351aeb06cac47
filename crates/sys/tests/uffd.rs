//! userfaultfd, live: faults, transfers, events, and the rules of MOVE that the pager is built on.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::event::{PollFd, poll};
use overspill_sys::mem::{self, Advice, Mapping, OwnMemory, Prot};
use overspill_sys::uffd::{CopyMode, Features, Message, Mode, MoveMode, Partial, RawMsg, Source, Uffd};
use overspill_sys::{Errno, PAGE_SIZE};
use std::mem::ManuallyDrop;

const EVENTS: Features = Features::EVENT_REMAP
    .union(Features::EVENT_REMOVE)
    .union(Features::EVENT_UNMAP)
    .union(Features::PAGEFAULT_FLAG_WP);

fn open(features: Features) -> Uffd {
    let (uffd, granted) = Uffd::open(features, false).unwrap();
    assert_eq!(granted, features);
    uffd
}

/// Memory without huge pages; never unmapped, because that would raise an event nobody reads.
fn memory(pages: usize) -> ManuallyDrop<Mapping> {
    let memory = Mapping::anon(pages * PAGE_SIZE, Prot::RW).unwrap();
    unsafe { memory.advise(Advice::NoHugePage).unwrap() };
    ManuallyDrop::new(memory)
}

fn filled(pages: usize) -> ManuallyDrop<Mapping> {
    let memory = memory(pages);
    for page in 0..pages {
        store(memory.page(page), page as u64 + 100);
    }
    memory
}

fn load(address: usize) -> u64 {
    unsafe { (address as *const u64).read_volatile() }
}

fn store(address: usize, value: u64) {
    unsafe { (address as *mut u64).write_volatile(value) }
}

fn next_message(uffd: &Uffd) -> Message {
    let mut buffer = [RawMsg::default(); 1];
    loop {
        poll(&mut [PollFd::readable(uffd.fd())], None).unwrap();
        if uffd.read_messages(&mut buffer).unwrap() == 1 {
            return buffer[0].decode();
        }
    }
}

fn partial(done: usize, errno: Errno) -> Result<(), Partial> {
    Err(Partial { done, errno })
}

#[test]
fn opens_and_grants() {
    let (uffd, granted) = Uffd::open(Features::all(), false).unwrap();
    assert_eq!(granted, Uffd::available(false).unwrap());
    assert!(granted.contains(Features::MOVE | Features::POISON));
    assert_eq!(uffd.source(), Source::Syscall);
    let (user, _) = Uffd::open(Features::empty(), true).unwrap();
    assert_eq!(user.source(), Source::UserMode);
    assert_eq!(user.read_messages(&mut [RawMsg::default(); 4]), Ok(0));
}

#[test]
fn faults_are_answered() {
    let uffd = open(Features::THREAD_ID);
    let (area, source) = (memory(4), filled(2));
    uffd.register(area.range(), Mode::MISSING).unwrap();
    let reader = std::thread::spawn({
        let pages = [area.page(0), area.page(1), area.page(2)];
        move || pages.map(load)
    });
    let Message::Fault { address, write, wp, minor, thread_id } = next_message(&uffd) else {
        panic!("not a fault")
    };
    assert_eq!((address, write, wp, minor), (area.start(), false, false, false));
    assert!(thread_id != 0 && thread_id != mem::process_id());
    unsafe { uffd.copy(area.start(), source.start(), 2 * PAGE_SIZE, CopyMode::DONTWAKE).unwrap() };
    assert_eq!(uffd.read_messages(&mut [RawMsg::default(); 4]), Ok(0));
    uffd.wake(area.range()).unwrap();
    let Message::Fault { address, .. } = next_message(&uffd) else { panic!("not a fault") };
    assert_eq!(address, area.page(2));
    unsafe { uffd.zeropage(area.page(2)..area.page(3), false).unwrap() };
    assert_eq!(reader.join().unwrap(), [100, 101, 0]);
    assert_eq!(
        unsafe { uffd.copy(area.start(), source.start(), PAGE_SIZE, CopyMode::empty()) },
        partial(0, Errno::EXIST)
    );
    unsafe { uffd.unregister(area.range()).unwrap() };
    assert_eq!(load(area.page(3)), 0);
}

#[test]
fn copy_stops_where_a_page_is() {
    let uffd = open(Features::empty());
    let (area, source) = (memory(4), filled(4));
    store(area.page(2), 7);
    uffd.register(area.range(), Mode::MISSING).unwrap();
    let result = unsafe { uffd.copy(area.start(), source.start(), 4 * PAGE_SIZE, CopyMode::empty()) };
    assert_eq!(result, partial(2 * PAGE_SIZE, Errno::AGAIN));
    assert_eq!((load(area.page(1)), load(area.page(2))), (101, 7));
}

#[test]
fn pages_can_be_poisoned() {
    let uffd = open(Features::POISON);
    let area = memory(2);
    uffd.register(area.range(), Mode::MISSING).unwrap();
    unsafe { uffd.poison(area.page(1)..area.page(1) + PAGE_SIZE, false).unwrap() };
    let mut byte = [0];
    assert_eq!(mem::copy_from_self(&mut byte, area.page(1)), Err(Errno::FAULT));
}

#[test]
fn stores_to_protected_pages_are_told() {
    let uffd = open(Features::PAGEFAULT_FLAG_WP);
    let area = filled(2);
    uffd.register(area.range(), Mode::WP).unwrap();
    uffd.write_protect(area.range(), true, false).unwrap();
    let address = area.page(1);
    let writer = std::thread::spawn(move || store(address, 9));
    let Message::Fault { address, write, wp, .. } = next_message(&uffd) else { panic!("not a fault") };
    assert_eq!((address, write, wp, load(address)), (area.page(1), true, true, 101));
    uffd.write_protect(area.range(), false, false).unwrap();
    writer.join().unwrap();
    assert_eq!(load(area.page(1)), 9);
}

#[test]
fn move_needs_its_destination_here_and_its_source_nowhere() {
    let (app, staging) = (open(EVENTS), open(Features::empty()));
    let (source, other, destination) = (filled(4), memory(4), memory(4));
    let one = |uffd: &Uffd, to: usize, from: usize| unsafe {
        uffd.move_pages(to, from, PAGE_SIZE, MoveMode::empty())
    };
    assert_eq!(one(&app, destination.start(), source.start()), partial(0, Errno::INVAL));
    staging.register(destination.range(), Mode::WP).unwrap();
    assert_eq!(one(&app, destination.start(), source.start()), partial(0, Errno::INVAL));
    // From unregistered memory, and from memory of the other descriptor; the destination reports only write
    // protection.
    assert_eq!(one(&staging, destination.start(), source.start()), Ok(()));
    app.register(other.range(), Mode::MISSING).unwrap();
    assert_eq!(one(&app, other.start(), destination.start()), Ok(()));
    assert_eq!(one(&staging, destination.page(1), other.start()), Ok(()));
    assert_eq!(load(destination.page(1)), 100);
    assert_eq!(load(destination.page(3)), 0); // A hole is filled by the kernel as ever.
    assert_eq!(one(&staging, destination.page(3), source.page(1)), partial(0, Errno::EXIST));
}

#[test]
fn move_and_holes() {
    let uffd = open(Features::empty());
    let (source, destination) = (filled(4), memory(4));
    uffd.register(destination.range(), Mode::WP).unwrap();
    unsafe { mem::madvise(source.page(2)..source.page(3), Advice::DontNeed).unwrap() };
    let all = 4 * PAGE_SIZE;
    let result = unsafe { uffd.move_pages(destination.start(), source.start(), all, MoveMode::empty()) };
    assert_eq!(result, partial(2 * PAGE_SIZE, Errno::AGAIN));
    let (to, from, rest) = (destination.page(2), source.page(2), 2 * PAGE_SIZE);
    assert_eq!(unsafe { uffd.move_pages(to, from, rest, MoveMode::empty()) }, partial(0, Errno::NOENT));
    assert_eq!(unsafe { uffd.move_pages(to, from, rest, MoveMode::ALLOW_SRC_HOLES) }, Ok(()));
    assert_eq!((load(destination.page(3)), load(source.page(3)), load(destination.page(2))), (103, 0, 0));
}

#[test]
fn move_wants_alike_writable_mappings() {
    let uffd = open(Features::empty());
    let exec = Prot::RW | Prot::EXEC;
    let cases = [
        (Prot::READ, Prot::RW, false),
        (Prot::READ, Prot::READ, false),
        (Prot::empty(), Prot::RW, false),
        (exec, Prot::RW, false),
        (exec, exec, true),
    ];
    for (from, to, works) in cases {
        let (source, destination) = (filled(1), memory(1));
        uffd.register(destination.range(), Mode::WP).unwrap();
        unsafe {
            mem::mprotect(source.range(), from).unwrap();
            mem::mprotect(destination.range(), to).unwrap();
            let result = uffd.move_pages(destination.start(), source.start(), PAGE_SIZE, MoveMode::empty());
            assert_eq!(result, if works { Ok(()) } else { partial(0, Errno::INVAL) }, "{from:?} to {to:?}");
        }
    }
    let (locked, destination) = (filled(1), memory(1));
    uffd.register(destination.range(), Mode::WP).unwrap();
    unsafe {
        mem::mlock(locked.range()).unwrap();
        let result = uffd.move_pages(destination.start(), locked.start(), PAGE_SIZE, MoveMode::empty());
        assert_eq!(result, partial(0, Errno::INVAL));
    }
}

#[test]
fn copy_reaches_protected_mappings() {
    let uffd = open(Features::empty());
    let source = filled(1);
    for prot in [Prot::READ, Prot::empty()] {
        let area = memory(1);
        uffd.register(area.range(), Mode::MISSING).unwrap();
        unsafe {
            mem::mprotect(area.range(), prot).unwrap();
            uffd.copy(area.start(), source.start(), PAGE_SIZE, CopyMode::empty()).unwrap();
            mem::mprotect(area.range(), Prot::READ).unwrap();
        }
        assert_eq!(load(area.start()), 100);
    }
}

/// Runs `action` on another thread; returns the messages it takes to let it finish.
fn events_of(uffd: &Uffd, action: impl FnOnce() + Send) -> Vec<Message> {
    std::thread::scope(|scope| {
        let action = scope.spawn(action);
        let (mut buffer, mut messages) = ([RawMsg::default(); 8], Vec::new());
        while !action.is_finished() {
            poll(&mut [PollFd::readable(uffd.fd())], Some(5_000_000)).unwrap();
            let count = uffd.read_messages(&mut buffer).unwrap();
            messages.extend(buffer[..count].iter().map(RawMsg::decode));
        }
        messages
    })
}

#[test]
fn changes_of_the_address_space_are_told() {
    let uffd = open(EVENTS);
    let area = memory(8);
    uffd.register(area.range(), Mode::MISSING).unwrap();
    let (start, page) = (area.start(), |index| area.page(index));
    for advice in [Advice::DontNeed, Advice::Free] {
        let range = page(1)..page(2);
        let events = events_of(&uffd, || unsafe { mem::madvise(range.clone(), advice).unwrap() });
        assert!(
            matches!(events[..], [Message::Remove { start, end }] if (start, end) == (range.start, range.end)),
            "{events:?}"
        );
    }
    let quiet = events_of(&uffd, || unsafe {
        mem::mprotect(area.range(), Prot::READ).unwrap();
        mem::mprotect(area.range(), Prot::RW).unwrap();
        mem::madvise(area.range(), Advice::WillNeed).unwrap();
    });
    assert!(quiet.is_empty(), "{quiet:?}");
    let events = events_of(&uffd, || unsafe { mem::map_anon_fixed(page(6)..page(7), Prot::RW).unwrap() });
    assert!(
        matches!(events[..], [Message::Unmap { start, end }] if (start, end) == (page(6), page(7))),
        "{events:?}"
    );
    let target = ManuallyDrop::new(Mapping::reserve(8 * PAGE_SIZE).unwrap()).start();
    let events = events_of(&uffd, move || unsafe {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let old = start as *mut libc::c_void;
        let new = libc::mremap(old, 4 * PAGE_SIZE, 4 * PAGE_SIZE, flags, target as *mut libc::c_void);
        assert_eq!(new as usize, target);
    });
    let [Message::Remap { from, to, len }, Message::Unmap { start: first, end }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((from, to, len, first, end), (start, target, 4 * PAGE_SIZE, start, page(4)));
    unsafe { uffd.zeropage(target..target + PAGE_SIZE, false).unwrap() };
}

#[test]
fn a_waiting_event_blocks_transfers_of_its_descriptor_only() {
    let (app, trash) = (open(EVENTS), open(Features::empty()));
    let (area, staging, dropped) = (filled(8), memory(4), memory(4));
    app.register(area.range(), Mode::MISSING).unwrap();
    app.register(staging.range(), Mode::WP).unwrap();
    trash.register(dropped.range(), Mode::WP).unwrap();
    let gone = area.page(4)..area.page(7);
    std::thread::scope(|scope| {
        let unmap = scope.spawn(|| unsafe { mem::munmap(gone.clone()).unwrap() });
        poll(&mut [PollFd::readable(app.fd())], None).unwrap();
        let out =
            |uffd: &Uffd, to| unsafe { uffd.move_pages(to, area.start(), PAGE_SIZE, MoveMode::empty()) };
        assert_eq!(out(&app, staging.start()), partial(0, Errno::AGAIN));
        assert!(!unmap.is_finished());
        let Message::Unmap { start, end } = next_message(&app) else { panic!("not an unmap") };
        assert_eq!(start..end, gone);
        while out(&app, staging.start()) == partial(0, Errno::AGAIN) {}
        unmap.join().unwrap();
    });
    // The way out of staging that makes no event.
    unsafe {
        trash.move_pages(dropped.start(), staging.start(), PAGE_SIZE, MoveMode::empty()).unwrap();
        dropped.advise(Advice::DontNeed).unwrap();
    }
    assert_eq!(app.read_messages(&mut [RawMsg::default(); 4]), Ok(0));
}

#[test]
fn looking_without_waiting() {
    let uffd = open(Features::empty());
    let area = filled(3);
    unsafe { mem::madvise(area.page(1)..area.page(2), Advice::DontNeed).unwrap() };
    uffd.register(area.range(), Mode::MISSING).unwrap();
    let memory = OwnMemory::open().unwrap();
    let mut bytes = [0; 8];
    assert_eq!(memory.read(&mut bytes, area.start()), Ok(8));
    assert_eq!(u64::from_ne_bytes(bytes), 100);
    assert_eq!(memory.read(&mut bytes, area.page(1)), Err(Errno::IO));
    assert_eq!(memory.read(&mut [0; 2 * PAGE_SIZE], area.start()), Ok(PAGE_SIZE));
    unsafe { mem::mprotect(area.page(2)..area.page(2) + PAGE_SIZE, Prot::empty()).unwrap() };
    assert_eq!(memory.read(&mut bytes, area.page(2)), Ok(8));
    assert_eq!(uffd.read_messages(&mut [RawMsg::default(); 4]), Ok(0));
}
