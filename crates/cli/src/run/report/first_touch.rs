//! What a first touch of a page takes on this machine, in the kernel: a fault, and a frame of zeroes. It is
//! asked once, when a run is over that paged, as machines differ by ten times. Processor time, so that it
//! says the same on a busy machine.

use std::hint::black_box;
use std::sync::atomic::Ordering;

use overspill_sys::clock;

use crate::os::memory::Pages;

/// Half a millisecond's worth.
const PAGES: usize = 512;
/// Where it cannot be asked; and no more than that is believed.
pub const USUAL_SECONDS: f64 = 0.5e-6;
const SECONDS_MAX: f64 = 4e-6;

/// Of one page, in seconds.
pub fn seconds() -> f64 {
    let Ok(pages) = Pages::new(PAGES, false) else { return USUAL_SECONDS };
    let began = clock::thread_cpu_ns();
    (0..PAGES).for_each(|page| black_box(pages.word(page)).store(1, Ordering::Relaxed));
    let ns = clock::thread_cpu_ns().saturating_sub(began);
    (ns as f64 / PAGES as f64 / 1e9).min(SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_first_touch_takes_something() {
        let seconds = super::seconds();
        assert!(seconds > 0.02e-6 && seconds <= super::SECONDS_MAX, "{seconds}");
    }
}
