//! Processors and time: which task runs where, and what happens next.
//!
//! Tasks that are ready wait in one queue; a processor takes the first, steps it until it blocks or
//! its slice is over, and takes the next. A task that wakes goes to the front. Ties in time are
//! broken by the order in which things were arranged.

use crate::time::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What happens next.
pub enum Next {
    /// This task goes on.
    Step { task: u32, at: Nanos },
    /// The device has written a page.
    Written { page: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Processor(u32),
    /// A task, and the number of its sleep.
    Wake(u32, u64),
    Written(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// On a processor, or in the queue.
    Ready,
    /// Until its wake-up, if it is of this number.
    Asleep(u64),
    /// Until somebody wakes it.
    Blocked,
}

#[derive(Clone, Copy, Default)]
struct Processor {
    task: Option<u32>,
    slice_ends: Nanos,
}

/// All of it.
pub struct Schedule {
    now: Nanos,
    slice_ns: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    states: Vec<State>,
    /// Sleeps so far.
    sleeps: u64,
    /// Ready, and without a processor.
    queue: VecDeque<u32>,
    processors: Vec<Processor>,
    /// The one whose task is being stepped, and what the step has taken.
    current: Option<usize>,
    spent: Nanos,
    stays: bool,
}

impl Schedule {
    pub fn new(processors: usize, slice_ns: Nanos) -> Schedule {
        assert!(processors > 0, "programs run somewhere");
        Schedule {
            now: 0,
            slice_ns,
            events: BinaryHeap::new(),
            sequence: 0,
            states: Vec::new(),
            sleeps: 0,
            queue: VecDeque::new(),
            processors: vec![Processor::default(); processors],
            current: None,
            spent: 0,
            stays: false,
        }
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Another task; it is blocked.
    pub fn add(&mut self) {
        self.states.push(State::Blocked);
    }

    fn arrange(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.sequence, event)));
        self.sequence += 1;
    }

    /// A page is written by then.
    pub fn written_at(&mut self, at: Nanos, page: u32) {
        self.arrange(at, Event::Written(page));
    }

    /// The task can run, behind those that wait.
    pub fn ready(&mut self, task: u32, at: Nanos) {
        self.states[task as usize] = State::Ready;
        self.queue.push_back(task);
        self.fill_processors(at);
    }

    /// The task can run, before those that wait. Does nothing if it can already.
    pub fn wake(&mut self, task: u32, at: Nanos) {
        if self.states[task as usize] == State::Ready {
            return;
        }
        self.states[task as usize] = State::Ready;
        self.queue.push_front(task);
        self.fill_processors(at);
    }

    /// A task that does not run sleeps until then.
    pub fn sleep_until(&mut self, task: u32, at: Nanos) {
        self.sleeps += 1;
        self.states[task as usize] = State::Asleep(self.sleeps);
        self.arrange(at, Event::Wake(task, self.sleeps));
    }

    fn fill_processors(&mut self, at: Nanos) {
        for index in 0..self.processors.len() {
            if self.processors[index].task.is_none()
                && let Some(task) = self.queue.pop_front()
            {
                self.processors[index] = Processor { task: Some(task), slice_ends: at + self.slice_ns };
                self.arrange(at, Event::Processor(index as u32));
            }
        }
    }

    /// The step took so long, and the task goes on.
    pub fn spend(&mut self, ns: Nanos) {
        self.spent += ns;
        self.stays = true;
    }

    /// The task sleeps for so long.
    pub fn sleep(&mut self, ns: Nanos) {
        let task = self.stepped();
        self.sleep_until(task, self.now + self.spent + ns);
        self.stays = false;
    }

    /// The task waits to be woken.
    pub fn block(&mut self) {
        let task = self.stepped();
        self.states[task as usize] = State::Blocked;
        self.stays = false;
    }

    fn stepped(&self) -> u32 {
        let current = self.current.expect("a step is under way");
        self.processors[current].task.expect("a task is being stepped")
    }

    /// The task keeps its processor, or gives way to the first that waits.
    fn end_step(&mut self) {
        let Some(current) = self.current.take() else { return };
        let end = self.now + self.spent;
        let processor = &mut self.processors[current];
        if self.stays && (end < processor.slice_ends || self.queue.is_empty()) {
            return self.arrange(end, Event::Processor(current as u32));
        }
        let task = processor.task.take();
        if self.stays {
            self.queue.extend(task);
        }
        if let Some(task) = self.queue.pop_front() {
            *processor = Processor { task: Some(task), slice_ends: end + self.slice_ns };
            self.arrange(end, Event::Processor(current as u32));
        }
    }

    /// Ends the step of before, and gives the next one before `end`. `None`: nothing happens until
    /// then, and it is then.
    pub fn next(&mut self, end: Nanos) -> Option<Next> {
        self.end_step();
        loop {
            let event = match self.events.peek() {
                Some(&Reverse((at, _, event))) if at < end => {
                    self.now = at;
                    self.events.pop();
                    event
                }
                _ => {
                    assert!(end < Nanos::MAX, "somebody runs or sleeps");
                    self.now = self.now.max(end);
                    return None;
                }
            };
            let at = self.now;
            match event {
                Event::Written(page) => return Some(Next::Written { page }),
                Event::Wake(task, sleep) => {
                    // It may have been woken meanwhile, and sleep again.
                    if self.states[task as usize] == State::Asleep(sleep) {
                        self.wake(task, at);
                    }
                }
                Event::Processor(index) => {
                    self.current = Some(index as usize);
                    (self.spent, self.stays) = (0, true);
                    return Some(Next::Step { task: self.stepped(), at });
                }
            }
        }
    }
}
