//! The library on the live kernel: content survives eviction, whatever the threads do. Needs userfaultfd.

use std::time::{Duration, Instant};

use overspill_pager::{Error, MapOptions, Pager};

const MIB: usize = 1 << 20;

fn pager(ram: usize, use_move: bool, use_uring: bool) -> Pager {
    Pager::builder()
        .ram(ram as u64)
        .swap(std::env::var("OVERSPILL_TEST_SWAP").unwrap_or_else(|_| "/var/tmp".into()))
        .use_move(use_move)
        .use_uring(use_uring)
        .build()
        .expect("userfaultfd, io_uring and a disk at /var/tmp are there")
}

/// Word `word` of page `page` after its `round`-th store.
fn pattern(page: usize, word: usize, round: u64) -> u64 {
    (page as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (word as u64) << 48 ^ round
}

fn fill_and_check(use_move: bool, use_uring: bool) {
    fill_and_check_with(&pager(16 * MIB, use_move, use_uring), 16);
}

/// With a budget of so many MiB.
fn fill_and_check_with(pager: &Pager, mib: usize) {
    let mut region = pager.map_anon(4 * mib * MIB).unwrap();
    let pages = region.len() / 4096;
    for round in 0..3u64 {
        for page in 0..pages {
            let words: &mut [u8] = &mut region[page * 4096..(page + 1) * 4096];
            for word in 0..512 {
                let bytes = &mut words[word * 8..word * 8 + 8];
                if round > 0 {
                    let found = u64::from_ne_bytes((&*bytes).try_into().unwrap());
                    assert_eq!(found, pattern(page, word, round - 1), "page {page} word {word}");
                }
                bytes.copy_from_slice(&pattern(page, word, round).to_ne_bytes());
            }
        }
    }
    let stats = pager.stats().unwrap();
    assert!(stats.vmstat.pswpout as usize > mib * 625, "{stats:?}");
    assert!(stats.frames as usize <= mib * MIB / 4096, "{stats:?}");
}

#[test]
fn content_survives_eviction() {
    fill_and_check(true, true);
}

#[test]
fn content_survives_eviction_without_move() {
    fill_and_check(false, true);
}

#[test]
fn content_survives_encryption() {
    // Little: a debug build takes milliseconds for a page.
    let builder = Pager::builder().ram(MIB as u64).encrypt(true).max_pool_percent(0);
    let swap = std::env::var("OVERSPILL_TEST_SWAP").unwrap_or_else(|_| "/var/tmp".into());
    fill_and_check_with(&builder.swap(swap).build().expect("memory can be locked"), 1);
}

/// *The story:* the length in whole pages was more than a number can hold.
#[test]
fn regions_larger_than_all_addresses_are_refused() {
    let pager = pager(MIB, true, true);
    for len in [usize::MAX, usize::MAX - 4096, isize::MAX as usize, 1 << 48] {
        assert!(matches!(pager.map_anon(len), Err(Error::Map(_))), "{len:#x}");
        assert!(matches!(pager.map_shared(len), Err(Error::Share(_))), "{len:#x}");
        let options = MapOptions::new().part(0, len);
        assert!(matches!(pager.map_file("/proc/self/exe", &options), Err(Error::Map(_))), "{len:#x}");
    }
    assert_eq!(pager.map_anon(0).unwrap().len(), 0);
}

#[test]
fn zero_pages_are_not_written() {
    let pager = pager(8 * MIB, true, true);
    let mut region = pager.map_anon(64 * MIB).unwrap();
    for _ in 0..2 {
        for page in region.chunks_mut(4096) {
            assert!(page.iter().all(|&byte| byte == 0));
            page[77] = 1;
            page[77] = 0;
        }
    }
    let stats = pager.stats().unwrap();
    assert_eq!(stats.vmstat.pswpout, 0, "{stats:?}");
    assert!(stats.vmstat.zero_dropped > 10_000, "{stats:?}");
}

/// Several threads store to random pages while they are evicted: no store is lost or torn.
fn stores(use_move: bool, ram: usize, size: usize, seconds: u64) {
    let pager = pager(ram, use_move, true);
    let mut region = pager.map_anon(size).unwrap();
    let threads = 8;
    let share = region.len() / threads;
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for (thread, part) in region.chunks_mut(share).enumerate() {
            scope.spawn(move || {
                let pages = part.len() / 4096;
                let mut rounds = vec![0u64; pages];
                let mut seed = thread as u64 + 1;
                while Instant::now() < end {
                    for _ in 0..1000 {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let page = (seed >> 33) as usize % pages;
                        let round = rounds[page];
                        for word in [0, 1, 100, 511] {
                            let at = page * 4096 + word * 8;
                            let found = u64::from_ne_bytes(part[at..at + 8].try_into().unwrap());
                            let expected = if round == 0 { 0 } else { pattern(page, word, round) };
                            assert_eq!(found, expected, "thread {thread} page {page} word {word}");
                            part[at..at + 8].copy_from_slice(&pattern(page, word, round + 1).to_ne_bytes());
                        }
                        rounds[page] = round + 1;
                    }
                }
            });
        }
    });
}

#[test]
fn no_store_is_lost() {
    stores(true, 16 * MIB, 48 * MIB, 4);
    // Few pages, nearly all of them in view: each is stored to while it is on its way out.
    stores(true, 2 * MIB, 9 * MIB / 4, 3);
}

#[test]
fn no_store_is_lost_without_move() {
    stores(false, 16 * MIB, 48 * MIB, 4);
    stores(false, 2 * MIB, 9 * MIB / 4, 3);
}

#[test]
fn regions_come_and_go() {
    let pager = pager(8 * MIB, true, true);
    for round in 0..20u8 {
        let mut region = pager.map_anon(12 * MIB + round as usize * 4096).unwrap();
        for page in region.chunks_mut(4096) {
            assert_eq!(page[0], 0);
            page[0] = round + 1;
        }
        pager.prefetch(&region, 0..MIB);
        assert!(region.chunks(4096).all(|page| page[0] == round + 1));
    }
    assert!(Pager::builder().ram(0).build().is_err());
}
