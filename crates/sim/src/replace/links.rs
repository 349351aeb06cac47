//! Queues over page numbers: a page is in one of them at most, links are by number, nothing is
//! allocated after the start.

const NONE: u32 = u32::MAX;
const NOWHERE: u8 = u8::MAX;

/// `QUEUES` queues. What enters at the head leaves at the tail.
pub struct Links<const QUEUES: usize> {
    links: Vec<(u32, u32)>,
    queues: Vec<u8>,
    heads: [u32; QUEUES],
    tails: [u32; QUEUES],
    lens: [u32; QUEUES],
}

impl<const QUEUES: usize> Links<QUEUES> {
    pub fn new(pages: u32) -> Self {
        Links {
            links: vec![(NONE, NONE); pages as usize],
            queues: vec![NOWHERE; pages as usize],
            heads: [NONE; QUEUES],
            tails: [NONE; QUEUES],
            lens: [0; QUEUES],
        }
    }

    /// The queue that the page is in.
    pub fn queue(&self, page: u32) -> Option<usize> {
        let queue = self.queues[page as usize];
        (queue != NOWHERE).then_some(usize::from(queue))
    }

    pub fn is_in(&self, page: u32, queue: usize) -> bool {
        self.queue(page) == Some(queue)
    }

    pub fn len(&self, queue: usize) -> u32 {
        self.lens[queue]
    }

    pub fn tail(&self, queue: usize) -> Option<u32> {
        some(self.tails[queue])
    }

    /// The page that entered just before `page`... that is, the next one towards the head.
    pub fn towards_head(&self, page: u32) -> Option<u32> {
        some(self.links[page as usize].0)
    }

    pub fn push(&mut self, queue: usize, page: u32) {
        assert_eq!(self.queues[page as usize], NOWHERE, "a page is in one queue at most");
        self.queues[page as usize] = queue as u8;
        let head = std::mem::replace(&mut self.heads[queue], page);
        self.links[page as usize] = (NONE, head);
        match some(head) {
            Some(head) => self.links[head as usize].0 = page,
            None => self.tails[queue] = page,
        }
        self.lens[queue] += 1;
    }

    pub fn remove(&mut self, page: u32) {
        let queue = self.queue(page).expect("the page is in a queue");
        self.queues[page as usize] = NOWHERE;
        let (up, down) = std::mem::replace(&mut self.links[page as usize], (NONE, NONE));
        match some(up) {
            Some(up) => self.links[up as usize].1 = down,
            None => self.heads[queue] = down,
        }
        match some(down) {
            Some(down) => self.links[down as usize].0 = up,
            None => self.tails[queue] = up,
        }
        self.lens[queue] -= 1;
    }

    /// To the head of a queue, from wherever it is.
    pub fn refresh(&mut self, queue: usize, page: u32) {
        if self.queue(page).is_some() {
            self.remove(page);
        }
        self.push(queue, page);
    }

    /// The oldest leaves.
    pub fn pop(&mut self, queue: usize) -> Option<u32> {
        let page = self.tail(queue)?;
        self.remove(page);
        Some(page)
    }
}

fn some(link: u32) -> Option<u32> {
    (link != NONE).then_some(link)
}
