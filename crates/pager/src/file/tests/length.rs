//! A file is given another length by way of the cache.

use super::*;

/// All bytes of a file, as who has it open reads them.
fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![9; file.len() as usize + 100];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

/// What was stored behind the new end is not written by anybody any more; a file that grows again has zeroes.
#[test]
fn what_is_cut_off_is_gone_stored_or_not() {
    for settles in [false, true] {
        let (file, memory) = open(noise(20 * PAGE_SIZE), 64);
        let cut = 5 * PAGE_SIZE + 7;
        for page in [3, 5, 6, 19, 25] {
            file.write_at(&[7; PAGE_SIZE], at_of(page)).unwrap();
        }
        if settles {
            file.cache.write_back().unwrap();
        }
        file.set_len(cut as u64).unwrap();
        assert_eq!((file.len(), memory.written.lock().unwrap().len()), (cut as u64, cut));
        let mut model = noise(cut);
        model[3 * PAGE_SIZE..4 * PAGE_SIZE].fill(7);
        model[5 * PAGE_SIZE..].fill(7);
        assert!(all(&file) == model, "settled: {settles}");
        file.sync().unwrap();
        assert!(*memory.stable.lock().unwrap() == model, "settled: {settles}");
        file.set_len(at_of(10)).unwrap();
        model.resize(10 * PAGE_SIZE, 0);
        assert!(all(&file) == model, "settled: {settles}");
        file.write_at(&[8], at_of(8)).unwrap();
        model[8 * PAGE_SIZE] = 8;
        file.close().unwrap();
        assert!(*memory.stable.lock().unwrap() == model, "settled: {settles}");
    }
}

/// What is stored and longer than the file on the device is cut in between, too.
#[test]
fn an_end_behind_the_files_own_and_before_the_caches() {
    let (file, memory) = open(noise(PAGE_SIZE), 64);
    file.write_at(&[7; PAGE_SIZE], at_of(2)).unwrap();
    file.write_at(&[8; PAGE_SIZE], at_of(6)).unwrap();
    file.set_len(at_of(4) + 5).unwrap();
    let mut model = noise(PAGE_SIZE);
    model.resize(4 * PAGE_SIZE + 5, 0);
    model[2 * PAGE_SIZE..3 * PAGE_SIZE].fill(7);
    assert!(all(&file) == model);
    file.sync().unwrap();
    assert!(*memory.stable.lock().unwrap() == model);
}

/// What was read before the cut, and arrives after it, is not what shows.
#[test]
fn what_is_on_its_way_while_it_is_cut_off_is_not_shown() {
    let memory = memory(noise(20 * PAGE_SIZE));
    let (cache, ..) = parts(&memory, 64);
    let cache = Arc::new(cache);
    cache.advise(Advice::Random, &|_: Run| ());
    let other = Arc::downgrade(&cache);
    *memory.after_read.lock().unwrap() = Some(Box::new(move || {
        let cache = other.upgrade().expect("it is read");
        // It has a frame while it is on its way.
        cache.write_at(&[7; PAGE_SIZE], at_of(7), &|_: Run| ()).unwrap();
        cache.set_len(at_of(6) + 9).unwrap();
        cache.set_len(at_of(12)).unwrap();
    }));
    let mut bytes = vec![9; 4 * PAGE_SIZE];
    assert_eq!(cache.read_at(&mut bytes, at_of(5), &|_: Run| ()).unwrap(), bytes.len());
    let mut model = noise(6 * PAGE_SIZE + 9).split_off(5 * PAGE_SIZE);
    model.resize(bytes.len(), 0);
    assert!(bytes == model);
    cache.write_back().unwrap();
    assert_eq!(memory.writes.load(SeqCst), 0, "what was cut off was written");
}

/// A length that the device does not take changes nothing, and a child cannot give one.
#[test]
fn a_length_that_is_refused_changes_nothing() {
    let bytes = noise(3 * PAGE_SIZE);
    let (file, memory) = open(bytes.clone(), 64);
    file.write_at(&[7], at_of(5)).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    assert!(matches!(file.set_len(9), Err(Error::Io(Errno::IO))));
    memory.refuses_writes.store(false, SeqCst);
    assert_eq!(file.len(), at_of(5) + 1);
    file.sync().unwrap();
    assert!(memory.stable.lock().unwrap()[..bytes.len()] == bytes);
    let refused = || i32::from(!matches!(file.set_len(9), Err(Error::Io(Errno::CHILD))));
    assert_eq!(in_child(refused), Some(0));
}

/// Threads read and store while another one cuts the file and lets it grow: what is read is of a page as it
/// was, or zeroes, and nobody waits for ever.
#[test]
fn it_is_cut_beside_who_reads_and_stores() {
    let (file, _) = open(vec![1; 200 * PAGE_SIZE], 64);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for lane in 0..2u64 {
            let (file, is_over) = (&file, &is_over);
            scope.spawn(move || {
                let mut draw = lane + 1;
                let mut page = [0; PAGE_SIZE];
                while !is_over.load(SeqCst) {
                    draw =
                        draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let at = at_of((draw >> 33) % 200);
                    if draw >> 63 == 0 {
                        file.write_at(&[1; PAGE_SIZE], at).unwrap();
                    }
                    let count = file.read_at(&mut page, at).unwrap();
                    let is_one_of_both = |value| page[..count].iter().all(|&byte| byte == value);
                    assert!(is_one_of_both(1) || is_one_of_both(0));
                }
            });
        }
        for round in 0..300u64 {
            file.set_len(at_of(round * 37 % 200)).unwrap();
            file.set_len(at_of(200)).unwrap();
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(file.len(), at_of(200));
}
