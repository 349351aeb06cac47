//! The kernel's reclaim as a replacement policy: anonymous pages only, hardware bits, direct
//! reclaim, writes that end at once, under the scan loop of one era and the rules of its time
//! ([`overspill_mm::reclaim`]).

use super::Replace;
use overspill_mm::reclaim::direct::{Direct, Step};
use overspill_mm::reclaim::lists::{DomainId, PageNumber};
use overspill_mm::reclaim::node::{Admission, Arrival, Config, Node, Order, Orders, Protection};
use overspill_mm::reclaim::scan::Era;
use overspill_mm::reclaim::shadow::Shadow;
use overspill_mm::reclaim::watermarks::Watermarks;
use overspill_mm::types::Access;

#[derive(Clone, Copy)]
enum Place {
    Nowhere,
    In(PageNumber),
    Out(Shadow),
}

/// A node without watermarks.
pub struct OfEra {
    node: Node,
    frames: u32,
    places: Vec<Place>,
    /// By page number of the node.
    owners: Vec<u32>,
    orders: Orders,
}

impl OfEra {
    /// Nothing is held.
    #[must_use]
    pub fn new(era: Era, frames: u32, pages: u32) -> OfEra {
        let config = Config {
            watermarks: Watermarks { min: 0, low: 0, high: 0 },
            ..Config::new(frames, pages.saturating_mul(4), era.rules(), era)
        };
        OfEra {
            node: Node::new(config, &[Protection::default()]),
            frames,
            places: vec![Place::Nowhere; pages as usize],
            owners: vec![0; frames as usize],
            orders: Orders::new(),
        }
    }

    /// Reclaims until a frame is free: an anonymous page needs two visits.
    fn make_room(&mut self) {
        while self.node.allocate() == Admission::Refused {
            let mut call = Direct::new();
            loop {
                let step = call.step(&mut self.node, &mut self.orders);
                for order in self.orders.drain(..) {
                    match order {
                        Order::Write { page } => self.node.written(page, true),
                        Order::Freed { page, shadow, .. } => {
                            let owner = self.owners[page.0 as usize];
                            self.places[owner as usize] = Place::Out(shadow);
                        }
                    }
                }
                if let Step::Done(_) = step {
                    break;
                }
            }
        }
    }
}

impl Replace for OfEra {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        let (arrival, back) = match self.places[page as usize] {
            Place::In(number) => {
                self.node.touch(number, Access::Read, false);
                return true;
            }
            Place::Nowhere => (Arrival::ANON, None),
            Place::Out(shadow) => (Arrival::SWAPPED, Some(shadow)),
        };
        self.make_room();
        let number = self.node.admit(DomainId(0), &arrival, back);
        self.node.touch(number, Access::Read, false);
        self.owners[number.0 as usize] = page;
        self.places[page as usize] = Place::In(number);
        false
    }

    fn held(&self) -> u32 {
        self.frames - self.node.free() as u32
    }

    /// A bit that is set is set: a run of touches is one use, as it is to the hardware.
    fn is_indifferent(&self) -> bool {
        true
    }
}
