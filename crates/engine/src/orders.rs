//! Orders to the processes of a run while it goes on: a place is one to page to from now on, or is
//! so no more (`overspill swap add`, `overspill swap drain`).
//!
//! They stand in the shared page in the order in which they were given, and are never changed: each
//! process follows them at its own pace and tells how far it is. One that begins to page later
//! follows all of them at once. Whoever gives an order holds a lock on the page's file meanwhile.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::claims::PLACES;
use crate::swapfile::SwapPlace;

/// Orders of one run.
pub const ORDERS: usize = 32;
/// Longest text of one, with its NUL.
pub const ORDER_BYTES: usize = 1024;
const WORDS: usize = ORDER_BYTES / 8;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Page to this place, too.
    Add(SwapPlace),
    /// Page to the place with this path no more: what is there is brought elsewhere.
    Drain(CString),
}

impl Order {
    /// The order as the shared page carries it. None: its path is too long.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Order::Add(place) => {
                bytes.push(b'+');
                bytes.extend(SwapPlace::encode(core::slice::from_ref(place)));
            }
            Order::Drain(path) => {
                bytes.push(b'-');
                bytes.extend(path.as_bytes_with_nul());
            }
        }
        (bytes.len() <= ORDER_BYTES).then_some(bytes)
    }

    /// That order. None: it is malformed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Order> {
        let (&letter, rest) = bytes.split_first()?;
        match letter {
            b'+' => SwapPlace::decode(rest).pop().map(Order::Add),
            b'-' => {
                let end = rest.iter().position(|&byte| byte == 0)?;
                CString::new(&rest[..end]).ok().map(Order::Drain)
            }
            _ => None,
        }
    }

    /// What the order makes of places that nobody has opened yet.
    pub fn apply(self, places: &mut Vec<SwapPlace>) {
        match self {
            Order::Add(place) => places.push(place),
            // The last place stays: there must be one.
            Order::Drain(path) if places.iter().any(|place| place.path != path) => {
                places.retain(|place| place.path != path);
            }
            Order::Drain(_) => {}
        }
    }
}

/// The orders of a run, in its shared page.
#[repr(C)]
pub struct Orders {
    /// How many there are: the texts before that are complete.
    pub count: AtomicU32,
    /// Keeps what follows aligned.
    pub reserved: AtomicU32,
    /// Their texts.
    pub texts: [[AtomicU64; WORDS]; ORDERS],
}

impl Orders {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire).min(ORDERS as u32)
    }

    /// One of them. None: it is malformed.
    pub fn get(&self, index: u32) -> Option<Order> {
        let words = &self.texts[index as usize];
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let mut order = Order::decode(&bytes);
        if let Some(Order::Add(place)) = &mut order {
            place.limit = Some((1 + PLACES + index as usize) as u8);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swapfile::SwapKind;

    fn place(path: &str) -> SwapPlace {
        let path = CString::new(path).unwrap();
        SwapPlace { kind: SwapKind::Area, path, bytes_max: 7 << 20, priority: -3, limit: Some(65) }
    }

    #[test]
    fn orders_survive_the_shared_page() {
        let texts = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        let orders = Orders { count: AtomicU32::new(9999), reserved: AtomicU32::new(0), texts };
        assert_eq!(orders.count(), ORDERS as u32, "whatever is there");
        let given = [Order::Add(place("/mnt/a:b")), Order::Drain(CString::new("/mnt/a").unwrap())];
        for (index, order) in given.iter().enumerate() {
            let mut text = order.encode().unwrap();
            text.resize(ORDER_BYTES, 0);
            for (word, bytes) in orders.texts[index].iter().zip(text.chunks_exact(8)) {
                word.store(u64::from_ne_bytes(bytes.try_into().unwrap()), Ordering::Relaxed);
            }
            assert_eq!(orders.get(index as u32).as_ref(), Some(order));
        }
        assert_eq!(orders.get(2), None);
        let long = CString::new(std::vec![b'x'; ORDER_BYTES]).unwrap();
        assert_eq!(Order::Drain(long).encode(), None);
    }

    #[test]
    fn who_comes_later_finds_the_places_as_ordered() {
        let mut places = std::vec![place("/a")];
        let drain = |path: &str| Order::Drain(CString::new(path).unwrap());
        drain("/a").apply(&mut places);
        assert_eq!(places, [place("/a")], "one has to be there");
        Order::Add(place("/b")).apply(&mut places);
        drain("/a").apply(&mut places);
        drain("/c").apply(&mut places);
        assert_eq!(places, [place("/b")]);
    }
}
