//! What was written: it gets to stable storage, or whoever syncs is told.

use super::*;

#[test]
fn what_was_synced_is_on_stable_storage_and_the_rest_is_no_part_of_a_page() {
    let (file, memory) = open(noise(100 * PAGE_SIZE), 64);
    let mut model = noise(100 * PAGE_SIZE);
    for n in 0..3000usize {
        let (offset, len) = (n * 7919 % (120 * PAGE_SIZE), 1 + n % 5000);
        let bytes: Vec<u8> = (0..len).map(|at| (n + at) as u8).collect();
        file.write_at(&bytes, offset as u64).unwrap();
        if model.len() < offset + len {
            model.resize(offset + len, 0);
        }
        model[offset..offset + len].copy_from_slice(&bytes);
        if n % 1000 == 999 {
            file.sync().unwrap();
            assert!(*memory.stable.lock().unwrap() == model, "after {n}");
            assert_eq!(file.stats().dirty, 0);
        }
    }
    assert_eq!(file.len(), model.len() as u64);
    let mut all = vec![0; model.len()];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), model.len());
    assert!(all == model);
    assert!(memory.largest_write.load(SeqCst) >= 16, "neighbours are written together");
}

#[test]
fn a_failure_to_write_is_told_once_and_nothing_is_lost() {
    let (file, memory) = open(vec![0; 10 * PAGE_SIZE], 64);
    file.write_at(&[7; 3 * PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    assert!(matches!(file.sync(), Err(Error::Io(Errno::IO))));
    assert_eq!(file.stats().dirty, 3, "what could not be written is kept");
    memory.refuses_writes.store(false, SeqCst);
    file.sync().unwrap();
    assert!(memory.stable.lock().unwrap()[..3 * PAGE_SIZE].iter().all(|&byte| byte == 7));
    // A failure between two syncs is told by the second.
    file.write_at(&[8; PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    file.cache.write_back().unwrap_err();
    memory.refuses_writes.store(false, SeqCst);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(memory.stable.lock().unwrap()[0], 8);
}

/// *The story:* what a sync could not settle was clean for the cache, so the next sync wrote nothing,
/// asked the kernel, which had told its error already, and said that all was well.
#[test]
fn what_a_failed_sync_did_not_settle_is_written_again() {
    let (file, memory) = open(vec![1; 10 * PAGE_SIZE], 64);
    file.sync().unwrap();
    file.write_at(&[7; 2 * PAGE_SIZE], 0).unwrap();
    file.cache.write_back().unwrap();
    file.write_at(&[8; PAGE_SIZE], 5 * PAGE_SIZE as u64).unwrap();
    memory.failing_syncs.store(2, SeqCst);
    assert!(file.sync().is_err() && file.sync().is_err(), "each sync that failed says so");
    assert_eq!(file.stats().dirty, 3);
    file.sync().unwrap();
    let stable = memory.stable.lock().unwrap();
    assert!(stable[..2 * PAGE_SIZE].iter().all(|&byte| byte == 7));
    assert!(stable[5 * PAGE_SIZE..6 * PAGE_SIZE].iter().all(|&byte| byte == 8));
}

/// *The story:* a device failed while two threads were in a sync. It tells its failure once, so one of
/// them heard of it, before what it had not settled was dirty again; the other found nothing dirty,
/// nothing unsettled and a device without complaints, and was told that all was well.
#[test]
fn of_two_syncs_at_once_one_is_told_and_the_other_means_what_it_says() {
    let (file, memory) = open(vec![1; 10 * PAGE_SIZE], 64);
    file.sync().unwrap();
    file.write_at(&[7; 2 * PAGE_SIZE], 0).unwrap();
    memory.failing_syncs.store(1, SeqCst);
    let (inside, is_inside) = channel();
    *memory.amid_sync.lock().unwrap() = Some(Box::new(move || {
        inside.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }));
    let sync = || {
        let outcome = file.sync();
        let is_stable = memory.stable.lock().unwrap()[..2 * PAGE_SIZE].iter().all(|&byte| byte == 7);
        assert!(outcome.is_err() || is_stable, "what was synced is not on stable storage");
        outcome.is_err()
    };
    let told = std::thread::scope(|scope| {
        let first = scope.spawn(sync);
        is_inside.recv().unwrap();
        let second = sync();
        u32::from(first.join().unwrap()) + u32::from(second)
    });
    assert_eq!(told, 1, "a failure is told once");
    file.sync().unwrap();
}

/// *The story:* whoever wrote behind all that there was of the last page kept nothing of it. But room
/// had to be made first, and while that was written back somebody else wrote to the rest of the page,
/// which was written back and left, too; what it held was not asked for again, and was lost.
#[test]
fn a_page_that_grew_while_room_was_made_for_it_keeps_what_it_has() {
    const LAST: u64 = 30;
    let memory = memory(noise(LAST as usize * PAGE_SIZE));
    let (cache, ..) = parts(&memory, 3);
    let cache = Arc::new(cache);
    let nobody = |_: Run| panic!("nothing is read ahead");
    cache.advise(Advice::Random, &nobody);
    for page in [0, 2, 4] {
        cache.write_at(&[page as u8; PAGE_SIZE], at_of(page), &nobody).unwrap();
    }
    let other = Arc::downgrade(&cache);
    *cache.amid_stores.lock().unwrap() = Some(Box::new(move || {
        let cache = other.upgrade().expect("it is written to");
        cache.write_at(&[8; 100], at_of(LAST) + 200, &|_: Run| ()).unwrap();
        cache.write_at(&[9], at_of(LAST + 1), &|_: Run| ()).unwrap();
        cache.sync(FIRST).unwrap();
        for page in 10..20 {
            cache.read_at(&mut [0; PAGE_SIZE], at_of(page), &|_: Run| ()).unwrap();
        }
    }));
    cache.write_at(&[7; 100], at_of(LAST), &nobody).unwrap();
    assert!(cache.amid_stores.lock().unwrap().is_none(), "it happened");
    let mut page = [0; PAGE_SIZE];
    cache.read_at(&mut page, at_of(LAST), &nobody).unwrap();
    assert!(page[..100] == [7; 100] && page[200..300] == [8; 100], "what another wrote is lost");
}

/// *The story:* pages that were written back left before they were settled. A sync that failed could
/// not have them written once more, and the next one said that all was well.
#[test]
fn a_failed_sync_loses_nothing_that_had_no_room() {
    const PAGES: u64 = 200;
    for failing in [1, 3] {
        let (file, memory) = open(vec![1; PAGES as usize * PAGE_SIZE], 64);
        file.sync().unwrap();
        memory.failing_syncs.store(failing, SeqCst);
        for page in 0..PAGES {
            // Where the only room is what could not be settled, a store is refused.
            while file.write_at(&[page as u8; PAGE_SIZE], at_of(page)).is_err() {}
        }
        assert!(file.stats().cached <= 64 + 8, "{:?}", file.stats());
        let told = (0..10).take_while(|_| file.sync().is_err()).count();
        assert!(told > 0, "a failure is told");
        assert_eq!(memory.failing_syncs.load(SeqCst), 0);
        let stable = memory.stable.lock().unwrap();
        for page in 0..PAGES as usize {
            let bytes = &stable[page * PAGE_SIZE..][..PAGE_SIZE];
            assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page} is lost");
        }
    }
}

/// *The story:* a store failed for a page of somebody else's that could not be written back, though
/// others could, and there was room.
#[test]
fn a_store_fails_only_where_it_has_no_room() {
    let (file, memory) = open(vec![0; 1000 * PAGE_SIZE], 64);
    file.advise(Advice::Random).unwrap();
    file.write_at(&[7; PAGE_SIZE], at_of(500)).unwrap();
    memory.bad_write.store(500, SeqCst);
    for page in 0..300 {
        file.write_at(&[page as u8; PAGE_SIZE], at_of(page)).unwrap();
        file.write_at(&[9; 10], at_of(page) + 77).unwrap();
    }
    assert!(file.stats().cached <= 64, "{:?}", file.stats());
    assert!(matches!(file.sync(), Err(Error::Io(Errno::IO))), "whoever syncs is told");
    // Nothing can be written: there is room for so much, and no more.
    memory.refuses_writes.store(true, SeqCst);
    let whole = (600..800).filter(|&page| file.write_at(&[1; PAGE_SIZE], at_of(page)).is_ok()).count();
    let parts = (800..900).filter(|&page| file.write_at(&[1; 10], at_of(page)).is_ok()).count();
    assert!(whole <= 64 && parts == 0, "{whole} {parts}");
    memory.refuses_writes.store(false, SeqCst);
    memory.bad_write.store(u64::MAX, SeqCst);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert!(memory.stable.lock().unwrap()[500 * PAGE_SIZE..][..PAGE_SIZE].iter().all(|&byte| byte == 7));
}

/// *The story:* nothing was written back for readers. Where all of a cache had been overwritten, less
/// than 4096 pages, a scan of the rest was a request a page, and each looked at all pages twice.
#[test]
fn what_is_dirty_gives_way_to_readers() {
    // So few that whoever wrote had no reason to write back; and more.
    for (frames, dirty, most) in [(64, 60, 700), (2048, 2048, 256)] {
        let (file, memory) = open(noise(2 * 2048 * PAGE_SIZE), frames);
        for page in 0..dirty {
            file.write_at(&[7; PAGE_SIZE], at_of(page)).unwrap();
        }
        memory.read_us.store(200, SeqCst);
        let mut page = [0; PAGE_SIZE];
        // On a busy machine the threads that make room come late: the next scan finds it made.
        let mut scan = || {
            let before = memory.reads.load(SeqCst);
            for number in 2048..2 * 2048 {
                file.read_at(&mut page, at_of(number)).unwrap();
            }
            memory.reads.load(SeqCst) - before
        };
        let reads = (0..3).map(|_| scan()).find(|&reads| reads < most).unwrap_or(u64::MAX);
        assert!(reads < most, "{frames} frames: more than {most} requests for 2048 pages");
        assert!(file.stats().cached <= u64::from(frames) + 8);
    }
}

/// *The story:* pages that were written once and never synced kept three quarters of a cache for good:
/// room was made only where nothing could leave, and a loop over half of it missed all of its pages.
#[test]
fn what_was_written_once_gives_way_to_a_loop_that_fits() {
    let memory = memory(noise(2048 * PAGE_SIZE));
    let (cache, _share, _jobs, orders) = parts(&memory, 1024);
    cache.advise(Advice::Random, &|_: Run| ());
    for page in 0..750 {
        cache.write_at(&[7; PAGE_SIZE], at_of(page), &|_: Run| ()).unwrap();
    }
    let mut page = [0; PAGE_SIZE];
    let missed = [0; 3].map(|_: u64| {
        let before = cache.stats().misses;
        for number in 1000..1500 {
            cache.read_at(&mut page, at_of(number), &|_: Run| ()).unwrap();
            orders.try_iter().for_each(|_| cache.make_ordered_room());
        }
        cache.stats().misses - before
    });
    assert_eq!((missed[0], missed[2]), (500, 0), "{missed:?}");
    assert_eq!(memory.syncs.load(SeqCst), 1);
}

/// *The story:* so many threads that wrote without room, so many syncs, one after the other.
#[test]
fn room_that_another_writer_has_made_is_taken() {
    let memory = memory(noise(1000 * PAGE_SIZE));
    let (cache, ..) = parts(&memory, 64);
    for page in 0..64 {
        cache.write_at(&[7; PAGE_SIZE], at_of(page), &|_: Run| ()).unwrap();
    }
    let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
    *memory.amid_sync.lock().unwrap() = Some(Box::new(pause));
    std::thread::scope(|scope| {
        for page in 100..104 {
            let cache = &cache;
            scope.spawn(move || cache.write_at(&[8; PAGE_SIZE], at_of(page), &|_: Run| ()).unwrap());
        }
    });
    assert_eq!(memory.syncs.load(SeqCst), 1);
}

/// *The story:* on a device that was full each store tried all that was dirty anew.
#[test]
fn what_cannot_be_written_is_not_tried_with_each_store() {
    let (file, memory) = open(vec![0; 1000 * PAGE_SIZE], 256);
    memory.refuses_writes.store(true, SeqCst);
    let begin = std::time::Instant::now();
    let stored = (0..500).filter(|&page| file.write_at(&[7; PAGE_SIZE], at_of(page)).is_ok()).count();
    assert_eq!(stored, 256, "as many as there is room for");
    let (tried, seconds) = (memory.writes.load(SeqCst), begin.elapsed().as_secs());
    assert!(tried < 2000 + 1000 * seconds, "{tried} requests in {seconds} s");
    // Whoever syncs tries, and after a moment there is room again.
    let begin = std::time::Instant::now();
    assert!(file.sync().is_err() && memory.writes.load(SeqCst) > tried);
    memory.refuses_writes.store(false, SeqCst);
    let is_refused = file.write_at(&[7; PAGE_SIZE], at_of(701)).is_err();
    assert!(is_refused || begin.elapsed().as_secs() > 0, "not at once");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    file.write_at(&[7; PAGE_SIZE], at_of(700)).unwrap();
}

/// *The story:* the threads that read ahead for a file waited to write while somebody synced.
#[test]
fn who_reads_ahead_does_not_wait_for_a_sync() {
    let memory = memory(noise(100 * PAGE_SIZE));
    let (cache, share, _jobs, orders) = parts(&memory, 64);
    let cache = Arc::new(cache);
    cache.write_at(&[7; PAGE_SIZE], 0, &|_: Run| ()).unwrap();
    let (returned, has_returned) = channel();
    let other = Arc::clone(&cache);
    *memory.amid_sync.lock().unwrap() = Some(Box::new(move || {
        let thread = std::thread::spawn(move || {
            share.owe(60);
            other.give_back();
            other.make_ordered_room();
            returned.send(()).unwrap();
        });
        has_returned.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for the sync");
        thread.join().unwrap();
    }));
    cache.sync(FIRST).unwrap();
    let told: Vec<Job> = orders.try_iter().collect();
    assert_eq!(told, [Job::Wait, Job::GiveBack, Job::MakeRoom], "it is told once more, when it can be done");
}

/// Four threads store to the same pages, each to its quarter of them, and to whole pages of its own,
/// also where the file is not yet; they read, sync and advise meanwhile, in a cache of 32 pages.
#[test]
fn four_writers_at_once_lose_nothing() {
    const PAGES: u64 = 192;
    const QUARTER: u64 = PAGE_SIZE as u64 / 4;
    let (file, memory) = open(noise(100 * PAGE_SIZE), 32);
    let write = |lane: u64| {
        let mut model = vec![None; PAGES as usize * PAGE_SIZE];
        let mut seed = lane + 1;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..3000u64 {
            let page = random(PAGES);
            let (start, len) = match page % 12 {
                own if own == lane => (0, PAGE_SIZE as u64),
                4.. => (lane * QUARTER + random(QUARTER - 1), 1 + random(QUARTER / 2)),
                _ => continue,
            };
            let end = if len == PAGE_SIZE as u64 { len } else { (start + len).min((lane + 1) * QUARTER) };
            let (at, count) = (at_of(page) + start, (end - start) as usize);
            let mut bytes = vec![(round + lane) as u8; count];
            if random(3) > 0 {
                file.write_at(&bytes, at).unwrap();
                model[at as usize..][..count].fill(Some(bytes[0]));
            } else {
                let read = file.read_at(&mut bytes, at).unwrap();
                let known = &model[at as usize..][..read];
                assert!(
                    known.iter().zip(&bytes).all(|(known, byte)| known.is_none_or(|known| known == *byte))
                );
            }
            match round % 500 {
                0 => file.sync().unwrap(),
                100 => drop(file.advise(Advice::WillNeed { page, pages: 9 }).unwrap()),
                _ => {}
            }
        }
        model
    };
    let models: Vec<Vec<Option<u8>>> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..4).map(|lane| scope.spawn(move || write(lane))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    file.sync().unwrap();
    assert!(file.stats().cached <= 32 + 8, "{:?}", file.stats());
    let mut expected = noise(100 * PAGE_SIZE);
    let end = models.iter().filter_map(|model| model.iter().rposition(Option::is_some)).max().unwrap() + 1;
    expected.resize(end, 0);
    for (at, byte) in models.iter().flat_map(|model| model.iter().enumerate()) {
        byte.iter().for_each(|&byte| expected[at] = byte);
    }
    assert!(*memory.stable.lock().unwrap() == expected);
}

/// A cache with room for eight requests at a time, over a file of 10,000 pages, 16 of which are stored to
/// by runs of so many; what was counted when they were written back.
fn written_back(frames: u32, run: u64, every: u64) -> Arc<Memory> {
    let memory = memory(vec![0; 10_000 * PAGE_SIZE]);
    memory.write_us.store(20_000, SeqCst);
    let (cache, ..) = parts(&memory, frames);
    for first in (0..10_000).step_by(every as usize) {
        let bytes = vec![7; run as usize * PAGE_SIZE];
        cache.write_at(&bytes, at_of(first), &|_: Run| ()).unwrap();
    }
    cache.write_back().unwrap();
    let is_written = |page: usize| memory.written.lock().unwrap()[page * PAGE_SIZE] == 7;
    assert!((0..10_000).all(|page| is_written(page) == (page as u64 % every < run)));
    memory
}

/// *The story:* each run of pages was waited for before the next was written. Then threads were started
/// by the number of pages, and seven of them found nothing to do; and in a small budget two of them,
/// with the two that read ahead, had more buffers than a sixteenth of it.
#[test]
fn as_many_write_as_there_are_runs_and_room_for() {
    let most = |frames, run, every| written_back(frames, run, every).most_writing.load(SeqCst);
    assert!((2..=8).contains(&most(32_768, 30, 1000)), "ten runs");
    assert_eq!(most(32_768, 256, 10_000), 1, "one run");
    assert_eq!(most(8191, 30, 1000), 1, "a small budget");
    assert!(most(8192, 30, 1000) <= 2);
}

/// *The story:* eight threads wrote what had been appended to a file. A program that was killed then left
/// megabytes of zeroes before what one of them had written.
#[test]
fn a_file_grows_in_order() {
    let memory = memory(noise(100 * PAGE_SIZE + 77));
    memory.write_us.store(2000, SeqCst);
    let (cache, ..) = parts(&memory, 32_768);
    let bytes = noise(3000 * PAGE_SIZE);
    cache.write_at(&bytes, at_of(90), &|_: Run| ()).unwrap();
    cache.write_back().unwrap();
    assert_eq!(memory.holes.load(SeqCst), 0, "requests behind the end of the file");
    assert!(memory.written.lock().unwrap()[90 * PAGE_SIZE..] == bytes);
    // What lies behind a gap has to leave one.
    cache.write_at(&[7; PAGE_SIZE], at_of(4000), &|_: Run| ()).unwrap();
    cache.write_back().unwrap();
    assert_eq!(memory.holes.load(SeqCst), 1);
}

/// *The story:* a thread that made room met a device that could not settle what it had written. The last
/// one who had the file open closed it meanwhile, after he had written back what was dirty till then:
/// the rest was thrown away.
#[test]
fn what_a_thread_could_not_settle_is_written_before_the_pages_go() {
    let memory = memory(vec![1; 10 * PAGE_SIZE]);
    let (cache, _, jobs, orders) = parts(&memory, 64);
    Handle(Arc::clone(&memory)).sync(true).unwrap();
    let threads = Threads::start(cache, jobs.clone(), orders).unwrap();
    threads.cache().write_at(&[7; 2 * PAGE_SIZE], 0, &|_: Run| ()).unwrap();
    let (inside, is_inside) = channel();
    memory.failing_syncs.store(1, SeqCst);
    *memory.amid_sync.lock().unwrap() = Some(Box::new(move || {
        inside.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }));
    jobs.send(Job::MakeRoom).unwrap();
    is_inside.recv().unwrap();
    drop(threads);
    assert!(memory.written.lock().unwrap()[..2 * PAGE_SIZE].iter().all(|&byte| byte == 7));
}

/// Set in the process whose file cannot be written.
const LOSING: &str = "OVERSPILL_TEST_LOSING";

/// *The story:* the last who closed a file threw away without a word what could not be written.
#[test]
fn what_is_lost_at_the_end_is_told() {
    if std::env::var_os(LOSING).is_some() {
        let (file, memory) = open(Vec::new(), 64);
        file.write_at(&[7; 3 * PAGE_SIZE], 0).unwrap();
        memory.refuses_writes.store(true, SeqCst);
        return;
    }
    let own = std::env::current_exe().unwrap();
    let name = "file::tests::writing::what_is_lost_at_the_end_is_told";
    let output =
        std::process::Command::new(own).args([name, "--exact", "--nocapture"]).env(LOSING, "1").output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("3 pages that were written to a file are lost"), "{said}");
}

/// *The story:* what was written and never synced stayed in the process as long as the file was open.
#[test]
fn what_is_dirty_for_long_is_written_back() {
    let (file, memory) = open(vec![1; 10 * PAGE_SIZE], 64);
    file.cache.write_after(std::time::Duration::from_millis(50));
    let is_written = |value| {
        let begin = std::time::Instant::now();
        while memory.written.lock().unwrap()[at_of(3) as usize] != value {
            assert!(begin.elapsed().as_secs() < 20, "it stays here");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    // Reads, and other rounds, put it off no more than that.
    for value in 2..6 {
        file.write_at(&[value; PAGE_SIZE], at_of(3)).unwrap();
        is_written(value);
    }
    assert_eq!(memory.syncs.load(SeqCst), 0);
    // What fails is told, and tried again.
    memory.refuses_writes.store(true, SeqCst);
    file.write_at(&[8; PAGE_SIZE], at_of(3)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(file.stats().dirty, 1);
    memory.refuses_writes.store(false, SeqCst);
    is_written(8);
    assert!(matches!(file.sync(), Err(Error::Io(Errno::IO))));
    file.cache.write_after(std::time::Duration::from_secs(3600));
    std::thread::sleep(std::time::Duration::from_millis(100));
    file.write_at(&[9; PAGE_SIZE], at_of(3)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(file.stats().dirty, 1, "what is new is not written yet");
}
