//! Replacement policies beside the definitions of their papers, written down here as they stand there:
//! plain lists, searched from end to end. Each touch is a hit in both or in neither.
#![allow(missing_docs)]

use overspill_sim::replace;
use overspill_sim::rng::Rng;
use std::collections::{HashMap, HashSet, VecDeque};

const PAGES: u64 = 60;

/// Hot pages, a loop, scans, a window that moves.
fn touches(seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    let page = |step: u64, rng: &mut Rng| match rng.below(8) {
        0..3 => rng.below(8),
        3..5 => 8 + step % 20,
        5 => 28 + (step / 40 + rng.below(6)) % 20,
        _ => 48 + step / 3 % 12,
    };
    let mut order: Vec<u32> = (0..6000).map(|step| page(step, &mut rng) as u32).collect();
    order.dedup();
    assert!(order.iter().all(|&page| u64::from(page) < PAGES));
    order
}

fn compare(name: &str, make: impl Fn(usize) -> Box<dyn FnMut(u32) -> bool>) {
    for (seed, frames) in (1..).zip([3, 4, 5, 8, 13, 20, 30, 45]) {
        let mut policy = replace::by_name(name, frames as u32, PAGES as u32).expect("known");
        let mut book = make(frames);
        for (at, page) in touches(seed).into_iter().enumerate() {
            let (found, expected) = (policy.touch(page, replace::NEVER), book(page));
            assert_eq!(found, expected, "{name}, {frames} frames: touch {at}, of page {page}");
        }
    }
}

fn take(list: &mut VecDeque<u32>, page: u32) -> bool {
    let at = list.iter().position(|&other| other == page);
    at.map(|at| list.remove(at)).is_some()
}

/// SIEVE, algorithm 1. Heads of lists are in front.
#[test]
fn sieve() {
    compare("sieve", |frames| {
        let (mut queue, mut visited) = (VecDeque::<u32>::new(), HashSet::new());
        let mut hand: Option<u32> = None;
        Box::new(move |page| {
            if queue.contains(&page) {
                visited.insert(page);
                return true;
            }
            if queue.len() == frames {
                let place = |queue: &VecDeque<u32>, page| queue.iter().position(|&other| other == page);
                let mut at = hand.and_then(|hand| place(&queue, hand)).unwrap_or(frames - 1);
                while visited.remove(&queue[at]) {
                    at = at.checked_sub(1).unwrap_or(frames - 1);
                }
                hand = at.checked_sub(1).map(|before| queue[before]);
                queue.remove(at);
            }
            queue.push_front(page);
            false
        })
    });
}

/// S3-FIFO, algorithm 1: a tenth is small, ghosts are as many as the main queue has room for.
#[test]
fn s3_fifo() {
    compare("s3fifo", |frames| {
        let small_size = (frames / 10).max(1);
        let (mut small, mut main, mut ghost) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let mut freq: HashMap<u32, u8> = HashMap::new();
        Box::new(move |page| {
            if small.contains(&page) || main.contains(&page) {
                let freq = freq.entry(page).or_default();
                *freq = (*freq + 1).min(3);
                return true;
            }
            let was_ghost = take(&mut ghost, page);
            while small.len() + main.len() == frames {
                if small.len() >= small_size || main.is_empty() {
                    let tail = small.pop_back().expect("small is not empty");
                    if freq[&tail] > 1 {
                        freq.insert(tail, 0);
                        main.push_front(tail);
                    } else {
                        if ghost.len() == (frames - small_size).max(1) {
                            ghost.pop_back();
                        }
                        ghost.push_front(tail);
                    }
                } else {
                    let tail = main.pop_back().expect("main is not empty");
                    if freq[&tail] > 0 {
                        *freq.get_mut(&tail).expect("it is there") -= 1;
                        main.push_front(tail);
                    }
                }
            }
            freq.insert(page, 0);
            if was_ghost {
                main.push_front(page)
            } else {
                small.push_front(page)
            }
            false
        })
    });
}

/// 2Q, full version: Kin a quarter, Kout a half.
#[test]
fn two_queues() {
    compare("2q", |frames| {
        let (kin, kout) = ((frames / 4).max(1), (frames / 2).max(1));
        let (mut a1in, mut a1out, mut am) =
            (VecDeque::<u32>::new(), VecDeque::<u32>::new(), VecDeque::<u32>::new());
        Box::new(move |page| {
            if am.contains(&page) {
                take(&mut am, page);
                am.push_front(page);
                return true;
            }
            if a1in.contains(&page) {
                return true;
            }
            let was_out = take(&mut a1out, page);
            if a1in.len() + am.len() == frames {
                if a1in.len() > kin || am.is_empty() {
                    a1out.push_front(a1in.pop_back().expect("it is not empty"));
                    a1out.truncate(kout);
                } else {
                    am.pop_back();
                }
            }
            if was_out {
                am.push_front(page)
            } else {
                a1in.push_front(page)
            }
            false
        })
    });
}

/// The four lists of ARC.
#[derive(Default)]
struct Arc {
    c: usize,
    p: usize,
    t1: VecDeque<u32>,
    t2: VecDeque<u32>,
    b1: VecDeque<u32>,
    b2: VecDeque<u32>,
}

impl Arc {
    /// REPLACE(x, p)
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len();
        if t1 >= 1 && (in_b2 && t1 == self.p || t1 > self.p) {
            self.b1.push_front(self.t1.pop_back().expect("it is not empty"));
        } else {
            self.b2.push_front(self.t2.pop_back().expect("the cache is full"));
        }
    }

    fn touch(&mut self, page: u32) -> bool {
        // Case I.
        if take(&mut self.t1, page) || take(&mut self.t2, page) {
            self.t2.push_front(page);
            return true;
        }
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if self.b1.contains(&page) {
            self.p = self.c.min(self.p + (b2 / b1).max(1));
            self.replace(false);
            take(&mut self.b1, page);
            self.t2.push_front(page);
        } else if self.b2.contains(&page) {
            self.p = self.p.saturating_sub((b1 / b2).max(1));
            self.replace(true);
            take(&mut self.b2, page);
            self.t2.push_front(page);
        } else {
            let l1 = self.t1.len() + b1;
            let all = l1 + self.t2.len() + b2;
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop_back();
                    self.replace(false);
                } else {
                    self.t1.pop_back();
                }
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop_back();
                }
                self.replace(false);
            }
            self.t1.push_front(page);
        }
        false
    }
}

/// ARC, figure 4 (the two ratios in whole numbers).
#[test]
fn arc() {
    compare("arc", |frames| {
        let mut arc = Arc { c: frames, ..Arc::default() };
        Box::new(move |page| arc.touch(page))
    });
}

/// The stack and the queue of LIRS; the top of the one and the end of the other are in front.
#[derive(Default)]
struct Lirs {
    frames: usize,
    low_most: usize,
    stack: VecDeque<u32>,
    queue: VecDeque<u32>,
    low: HashSet<u32>,
    /// Pages of the stack that are gone, the latest in front: twice the frames at most.
    ghosts: VecDeque<u32>,
}

impl Lirs {
    fn raise(&mut self, page: u32) {
        take(&mut self.stack, page);
        self.stack.push_front(page);
    }

    /// The bottom of the stack is of short distance.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.back().copied().filter(|bottom| !self.low.contains(bottom)) {
            self.stack.pop_back();
            take(&mut self.ghosts, bottom);
        }
    }

    fn promote(&mut self, page: u32) {
        self.raise(page);
        self.low.insert(page);
        if self.low.len() > self.low_most {
            self.prune();
            let bottom = self.stack.pop_back().expect("some are of short distance");
            self.low.remove(&bottom);
            self.queue.push_front(bottom);
            self.prune();
        }
    }

    fn touch(&mut self, page: u32) -> bool {
        if self.low.contains(&page) {
            self.raise(page);
            self.prune();
            return true;
        }
        if self.queue.contains(&page) {
            take(&mut self.queue, page);
            if self.stack.contains(&page) {
                self.promote(page);
            } else {
                self.raise(page);
                self.queue.push_front(page);
            }
            return true;
        }
        let was_ghost = take(&mut self.ghosts, page);
        if self.low.len() + self.queue.len() == self.frames {
            let victim = self.queue.pop_back().expect("some are of long distance");
            if self.stack.contains(&victim) {
                self.ghosts.push_front(victim);
                if self.ghosts.len() > 2 * self.frames {
                    let oldest = self.ghosts.pop_back().expect("there are ghosts");
                    take(&mut self.stack, oldest);
                }
            }
        }
        if was_ghost || self.low.len() < self.low_most {
            self.promote(page);
        } else {
            self.raise(page);
            self.queue.push_front(page);
        }
        false
    }
}

/// LIRS, section 3.3: a hundredth of the frames, one at the least, is for pages of long distance.
#[test]
fn lirs() {
    compare("lirs", |frames| {
        let low_most = frames - (frames / 100).max(1);
        let mut lirs = Lirs { frames, low_most, ..Lirs::default() };
        Box::new(move |page| lirs.touch(page))
    });
}
