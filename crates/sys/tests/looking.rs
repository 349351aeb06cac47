//! What the process looks like from inside: page map, mappings, /proc.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::maps::{BUFFER_BYTES, Maps, Name};
use overspill_sys::mem::{self, Advice, Mapping, Prot};
use overspill_sys::pagemap::{Categories, PageRegion, Pagemap, Query};
use overspill_sys::procfs::{self, Fields, Limit, ResidentReader};
use overspill_sys::{PAGE_SIZE, file};
use std::ops::ControlFlow;

fn store(address: usize) {
    unsafe { (address as *mut u64).write_volatile(1) }
}

fn plain(pages: usize) -> Mapping {
    let memory = Mapping::anon(pages * PAGE_SIZE, Prot::RW).unwrap();
    unsafe { memory.advise(Advice::NoHugePage).unwrap() };
    memory
}

#[test]
fn present_pages_by_both_ways() {
    let memory = plain(64);
    for page in [0, 1, 2, 10, 63] {
        store(memory.page(page));
    }
    let by_scan = Pagemap::open().unwrap();
    assert!(by_scan.can_scan());
    for pagemap in [by_scan, Pagemap::open_basic().unwrap()] {
        let mut out = [PageRegion::default(); 8];
        let query = Query { required: Categories::PRESENT, ..Query::default() };
        let scan = pagemap.scan(memory.range(), query, &mut out).unwrap();
        assert_eq!(scan.end, memory.range().end);
        let runs: Vec<_> = out[..scan.regions]
            .iter()
            .map(|run| ((run.start as usize - memory.start()) / PAGE_SIZE, run.pages()))
            .collect();
        assert_eq!(runs, [(0, 3), (10, 1), (63, 1)]);
        // With room for one region only it goes on where it stopped.
        let (mut at, mut found) = (memory.start(), Vec::new());
        while at < memory.range().end {
            let mut one = [PageRegion::default(); 1];
            let scan = pagemap.scan(at..memory.range().end, query, &mut one).unwrap();
            found.extend(one[..scan.regions].iter().map(PageRegion::pages));
            at = scan.end;
        }
        assert_eq!(found, [3, 1, 1]);
    }
}

#[test]
fn whether_there_is_any_by_both_ways() {
    let memory = plain(600);
    store(memory.page(550));
    store(memory.page(580));
    for pagemap in [Pagemap::open().unwrap(), Pagemap::open_basic().unwrap()] {
        let any = |from, to| {
            pagemap.has_any(memory.page(from)..memory.page(from) + to, Query::OWN_CONTENT).unwrap()
        };
        assert!(any(0, 600 * PAGE_SIZE) && any(550, PAGE_SIZE));
        assert!(!any(0, 550 * PAGE_SIZE) && !any(551, 29 * PAGE_SIZE) && !any(0, 0));
    }
}

#[test]
fn zero_pages_are_told_apart() {
    let memory = plain(4);
    store(memory.page(0));
    unsafe { std::hint::black_box((memory.page(2) as *const u64).read_volatile()) };
    let pagemap = Pagemap::open().unwrap();
    let mut out = [PageRegion::default(); 4];
    let scan = pagemap.scan(memory.range(), Query::OWN_CONTENT, &mut out).unwrap();
    assert_eq!(scan.regions, 1);
    assert_eq!((out[0].start as usize, out[0].pages()), (memory.start(), 1));
    let query = Query { required: Categories::PRESENT, report: Categories::PFNZERO, ..Query::default() };
    let scan = pagemap.scan(memory.range(), query, &mut out).unwrap();
    let kinds: Vec<_> = out[..scan.regions].iter().map(|run| run.categories).collect();
    assert_eq!(kinds, [Categories::empty(), Categories::PFNZERO]);
}

#[test]
fn mappings_are_found() {
    let memory = plain(4);
    unsafe { mem::mprotect(memory.page(1)..memory.page(2), Prot::READ).unwrap() };
    mem::name(memory.page(2)..memory.page(3), c"overspill test");
    let maps = Maps::open().unwrap();
    let mut buffer = [0; BUFFER_BYTES];
    let (mut ours, mut all, mut last) = (Vec::new(), 0usize, 0);
    let flow = maps.for_each(&mut buffer, |vma| {
        assert!(vma.start >= last);
        (last, all) = (vma.end, all + 1);
        if vma.start < memory.range().end && vma.end > memory.start() {
            ours.push((
                vma.start.max(memory.start()),
                vma.prot,
                matches!(vma.name, Name::Named(b"[anon:overspill test]")),
            ));
            assert!(vma.is_private_anonymous());
        }
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(flow, Ok(ControlFlow::Continue(())));
    assert_eq!(ours[..2], [(memory.start(), Prot::RW, false), (memory.page(1), Prot::READ, false)]);
    assert_eq!(ours[2].0, memory.page(2));
    let lines = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    assert!(all >= 10 && all.abs_diff(lines) <= 3, "{all} of {lines}");
    // One at a time.
    let found = maps.query(memory.page(1), false, &mut buffer, |vma| (vma.range(), vma.prot));
    assert_eq!(found, Ok(Some((memory.page(1)..memory.page(2), Prot::READ))));
    assert_eq!(maps.query(PAGE_SIZE, false, &mut buffer, |_| ()), Ok(None));
    assert!(maps.query(PAGE_SIZE, true, &mut buffer, |vma| vma.start).unwrap().unwrap() > PAGE_SIZE);
    let code = mappings_are_found as *const () as usize;
    let is_file = maps.query(code, false, &mut buffer, |vma| {
        matches!(vma.name, Name::File { path, deleted: false } if path.starts_with(b"/")) && vma.inode != 0
    });
    assert_eq!(is_file, Ok(Some(true)));
}

#[test]
fn a_long_name_does_not_hide_a_mapping() {
    // A path of nearly 4 KiB made of components of 200 characters: its line is longer than the buffer.
    let base = std::env::temp_dir().join(format!("overspill-long-{}", std::process::id()));
    let mut path = base.clone();
    while path.as_os_str().len() < 3700 {
        path.push("\n".repeat(200));
    }
    std::fs::create_dir_all(&path).unwrap();
    let name = path.join("file");
    std::fs::write(&name, [0; PAGE_SIZE]).unwrap();
    let file =
        file::open(&std::ffi::CString::new(name.to_str().unwrap()).unwrap(), file::Open::empty()).unwrap();
    let mapping = Mapping::private(&file, PAGE_SIZE, Prot::READ, 0).unwrap();
    let maps = Maps::open().unwrap();
    let mut buffer = [0; BUFFER_BYTES];
    let (mut seen, mut behind) = (false, 0);
    maps.for_each(&mut buffer, |vma| {
        seen |= vma.range() == mapping.range();
        behind += usize::from(seen);
        ControlFlow::<()>::Continue(())
    })
    .map(drop)
    .unwrap();
    assert!(seen && behind > 1);
    let queried = maps.query(mapping.start(), false, &mut buffer, |vma| vma.range());
    assert_eq!(queried, Ok(Some(mapping.range())));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn resident_memory_is_counted() {
    let reader = ResidentReader::open().unwrap();
    let before = reader.anon_bytes().unwrap();
    let memory = plain(8192);
    (0..8192).for_each(|page| store(memory.page(page)));
    let grown = reader.anon_bytes().unwrap() - before;
    assert!(grown.abs_diff(8192 * 4096) < 2 << 20, "{grown}");
    let by_status = Fields::of_process().unwrap().number("RssAnon").unwrap();
    assert!(by_status.abs_diff(reader.anon_bytes().unwrap()) < 2 << 20);
}

#[test]
fn threads_and_limits() {
    let (send, receive) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(unsafe { libc::gettid() } as u32).unwrap();
        let _ = stopped.recv();
    });
    let tid = receive.recv().unwrap();
    let mut tids = Vec::new();
    procfs::for_each_thread(|tid| tids.push(tid)).unwrap();
    assert!(tids.contains(&tid) && tids.contains(&mem::process_id()));
    // Other tests' threads come and go.
    let counted = procfs::thread_count().unwrap();
    let listed = Fields::of_process().unwrap().number("Threads").unwrap() as u32;
    assert!(counted >= 3 && counted.abs_diff(listed) <= 16, "{counted}, {listed}");
    assert_ne!(procfs::robust_list(tid).unwrap().0, 0);
    drop(stop);
    thread.join().unwrap();
    assert!(Fields::of_process().unwrap().number("Threads").unwrap() >= 1);
    assert!(Fields::of_machine().unwrap().number("MemTotal").unwrap() > 1 << 28);
    assert!(procfs::number_in(c"/proc/sys/vm/unprivileged_userfaultfd").is_some());
    assert_eq!(procfs::number_in(c"/nowhere"), None);
    assert!(procfs::kernel_version() >= (5, 11, 0));
    let (soft, hard) = procfs::limit(Limit::Descriptors).unwrap();
    assert!(soft > 0 && soft <= hard);
}

/// A private mapping of /dev/zero is anonymous memory to the kernel, but nothing can be copied into it,
/// and nothing be moved while it is read-only. It is told as what its line says.
#[test]
fn private_mappings_of_dev_zero_are_those_of_a_file() {
    let zero = file::open(c"/dev/zero", file::Open::READ_WRITE).unwrap();
    let private = Mapping::private(&zero, 4 * PAGE_SIZE, Prot::RW, 0).unwrap();
    let shared = Mapping::shared(&zero, 4 * PAGE_SIZE, Prot::RW, 0).unwrap();
    let maps = Maps::open().unwrap();
    let mut buffer = [0; BUFFER_BYTES];
    let mut is_anonymous = |address| {
        let query =
            maps.query(address, false, &mut buffer, |vma| vma.is_private_anonymous()).unwrap().unwrap();
        let listed = maps.for_each(&mut buffer, |vma| match vma.range().contains(&address) {
            true => ControlFlow::Break(vma.is_private_anonymous()),
            false => ControlFlow::Continue(()),
        });
        assert_eq!(listed.unwrap().break_value(), Some(query), "both ways agree");
        query
    };
    assert!(!is_anonymous(private.start()) && !is_anonymous(shared.start()));
}

/// The first thread ends by pthread_exit, others go on: what /proc/self says of memory then is that
/// there is none. In a process of its own, since this one's first thread is needed.
#[test]
fn memory_is_told_when_the_first_thread_has_ended() {
    extern "C" fn look(memory: *mut libc::c_void) -> *mut libc::c_void {
        // The first thread is gone once its state says so.
        let stat =
            || std::fs::read_to_string(format!("/proc/self/task/{}/stat", std::process::id())).unwrap();
        while !stat().contains(") Z") {
            std::thread::yield_now();
        }
        let held = ResidentReader::open().unwrap().anon_bytes().unwrap();
        let mut buffer = [0; BUFFER_BYTES];
        let is_mapped = Maps::open().unwrap().query(memory as usize, false, &mut buffer, |_| ()).unwrap();
        let range = memory as usize..memory as usize + 512 * PAGE_SIZE;
        let is_there = Pagemap::open().unwrap().has_any(range, Query::OWN_CONTENT).unwrap();
        let told = held >= 2 << 20 && is_mapped.is_some() && is_there;
        unsafe { libc::_exit(i32::from(!told)) }
    }
    let memory = plain(512);
    (0..512).for_each(|page| store(memory.page(page)));
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let mut thread = 0;
            libc::pthread_create(&raw mut thread, std::ptr::null(), look, memory.start() as *mut _);
            libc::syscall(libc::SYS_exit, 0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}
