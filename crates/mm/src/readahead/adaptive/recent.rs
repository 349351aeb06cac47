//! The last touches that no stream explains, and what can be read off them: the same step repeated,
//! neighbours.
//!
//! A bounded ring, searched in full: several streams and random faults may interleave, so that what
//! belongs together is seldom next to each other. Leap asks for a majority of equal steps between
//! consecutive faults (specification 7.4); a search for equally spaced points finds the same
//! streams and also those that are in the minority.

use crate::types::Vpn;

/// Points that are remembered.
const POINTS: usize = 32;
/// Points that count as just now, and the distance that counts as near.
const JUST_NOW: usize = 8;
const NEAR: u64 = 8;
/// The largest step that is looked for (4 MiB), if the region is large enough.
const STRIDE_MAX: u64 = 1024;
/// Equal steps that prove a pattern against another explanation.
const PERIODS: i64 = 4;
/// A step is at most this part of the region: in a small region any two points have some third one in line.
const STRIDE_SHARE: u64 = 16;

/// No page has this number (addresses have 52 bits of it), and none is near it, wrapped around or not.
const NOWHERE: Vpn = Vpn(1 << 60);

/// Equally spaced points that end at a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progression {
    /// The step from each to the next, never 0.
    pub stride: i64,
    /// How many equal steps, 1 or 2.
    pub steps: u8,
}

/// The ring.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    points: [Vpn; POINTS],
    newest: u8,
}

impl Default for Recent {
    fn default() -> Self {
        Recent { points: [NOWHERE; POINTS], newest: 0 }
    }
}

impl Recent {
    /// Remembers a touch and forgets the oldest.
    pub fn push(&mut self, vpn: Vpn) {
        self.newest = (self.newest + 1) % POINTS as u8;
        self.points[usize::from(self.newest)] = vpn;
    }

    /// Forgets the points behind `vpn` on the path of a stream: it explains them now.
    pub fn explain(&mut self, vpn: Vpn, stride: i64) {
        let reach = POINTS as i64 * stride.abs();
        for point in &mut self.points {
            let behind = (vpn.0.wrapping_sub(point.0) as i64).wrapping_mul(stride.signum());
            if (0..=reach).contains(&behind) && behind % stride == 0 {
                *point = NOWHERE;
            }
        }
    }

    /// The smallest step that led to `vpn` twice, in order and regularly; else the step to its next
    /// page or the `usual` one, if it led there once.
    pub fn progression(&self, vpn: Vpn, region_pages: u64, usual: i64) -> Option<Progression> {
        let longest = STRIDE_MAX.min(region_pages / STRIDE_SHARE).max(1);
        let strides = || {
            let step = |(age, point): (usize, Vpn)| (age, vpn.0.wrapping_sub(point.0) as i64);
            let near = |&(_, stride): &(usize, i64)| stride != 0 && stride.unsigned_abs() <= longest;
            self.by_age().map(step).filter(near)
        };
        let twice = strides().filter(|&(age, stride)| {
            self.is_older(vpn.offset(-2 * stride), age) && self.is_regular(vpn, stride, 2)
        });
        if let Some((_, stride)) = twice.min_by_key(|(_, stride)| stride.unsigned_abs()) {
            return Some(Progression { stride, steps: 2 });
        }
        let once = strides().find(|&(_, stride)| stride.unsigned_abs() == 1 || stride == usual);
        once.map(|(_, stride)| Progression { stride, steps: 1 })
    }

    /// The smallest step that led to `vpn` four times, regularly.
    pub fn pattern(&self, vpn: Vpn, region_pages: u64) -> Option<i64> {
        let longest = STRIDE_MAX.min(region_pages / STRIDE_SHARE).max(1);
        let strides = self.points.iter().map(|point| vpn.0.wrapping_sub(point.0) as i64);
        let led_here = |stride: i64| (1..=PERIODS).all(|n| self.points.contains(&vpn.offset(-n * stride)));
        strides
            .filter(|stride| *stride != 0 && stride.unsigned_abs() <= longest)
            .filter(|&stride| led_here(stride) && self.is_regular(vpn, stride, PERIODS))
            .min_by_key(|stride| stride.unsigned_abs())
    }

    /// How many of the touches just now were near `vpn`: on lower pages, on higher ones.
    pub fn neighbours(&self, vpn: Vpn) -> (u32, u32) {
        let (mut below, mut above) = (0, 0);
        for (_, Vpn(point)) in self.by_age().take(JUST_NOW) {
            below += u32::from(point < vpn.0 && vpn.0 - point <= NEAR);
            above += u32::from(point > vpn.0 && point - vpn.0 <= NEAR);
        }
        (below, above)
    }

    /// Do the last `periods` steps pass the same points? Where neighbours are touched at random any
    /// step can be found.
    fn is_regular(&self, vpn: Vpn, stride: i64, periods: i64) -> bool {
        let step = stride.abs();
        let behind = |point: Vpn| (vpn.0.wrapping_sub(point.0) as i64).wrapping_mul(stride.signum());
        let repeats = |point: Vpn| match behind(point) {
            ..=0 => true,
            back => {
                (back > (periods - 1) * step || self.points.contains(&point.offset(-stride)))
                    && (back <= step || back > periods * step || self.points.contains(&point.offset(stride)))
            }
        };
        self.points.iter().all(|&point| repeats(point))
    }

    /// The points, the newest (age 0) first.
    fn by_age(&self) -> impl Iterator<Item = (usize, Vpn)> {
        (0..POINTS).map(|age| (age, self.points[(usize::from(self.newest) + POINTS - age) % POINTS]))
    }

    /// Was `vpn` touched, and the last time before the point of this age?
    fn is_older(&self, vpn: Vpn, age: usize) -> bool {
        self.points.contains(&vpn)
            && self.by_age().find(|&(_, point)| point == vpn).is_some_and(|(older, _)| older > age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(points: &[u64]) -> Recent {
        let mut recent = Recent::default();
        points.iter().for_each(|&point| recent.push(Vpn(point)));
        recent
    }

    fn found(points: &[u64], vpn: u64) -> Option<(i64, u8)> {
        after(points).progression(Vpn(vpn), 1 << 20, 1).map(|found| (found.stride, found.steps))
    }

    #[test]
    fn two_equal_steps_are_found_among_other_points() {
        assert_eq!(found(&[100, 9000, 116, 77, 5000], 132), Some((16, 2)));
        assert_eq!(found(&[132, 9000, 116, 77, 5000], 100), Some((-16, 2)));
        assert_eq!(found(&[100, 9000, 116, 77, 5000], 133), None);
        assert_eq!(found(&[116, 9000, 100, 77, 5000], 132), None, "in the wrong order");
        assert_eq!(found(&[10, 11, 12, 13], 14), Some((1, 2)), "the smallest step wins");
    }

    #[test]
    fn one_step_counts_if_it_is_to_the_next_page_or_the_usual_one() {
        assert_eq!(found(&[500, 100], 101), Some((1, 1)));
        assert_eq!(found(&[500, 102], 101), Some((-1, 1)));
        assert_eq!(found(&[500, 97], 101), None);
        let usual = after(&[500, 97]).progression(Vpn(101), 1 << 20, 4).unwrap();
        assert_eq!(usual, Progression { stride: 4, steps: 1 });
    }

    #[test]
    fn a_step_in_an_irregular_neighbourhood_is_chance() {
        assert_eq!(found(&[100, 101, 104, 105], 108), Some((4, 2)), "a pattern that repeats");
        assert_eq!(found(&[100, 101, 104], 108), None);
        assert_eq!(found(&[100, 102, 104], 108), None);
        assert_eq!(found(&[100, 104, 106], 108), Some((2, 2)));
    }

    #[test]
    fn steps_are_bounded_by_the_region() {
        assert_eq!(
            after(&[0, 100]).progression(Vpn(200), 1600, 1),
            Some(Progression { stride: 100, steps: 2 })
        );
        assert_eq!(after(&[0, 100]).progression(Vpn(200), 1599, 1), None);
        assert_eq!(found(&[0, 1025], 2050), None);
    }

    #[test]
    fn what_a_stream_explains_is_forgotten() {
        let mut recent = after(&[100, 104, 107, 108, 116, 4096]);
        recent.explain(Vpn(112), 4);
        let left: Vec<u64> =
            recent.by_age().map(|(_, point)| point.0).filter(|&point| point < 5000).collect();
        assert_eq!(left, [4096, 116, 107]);
        recent.explain(Vpn(100), -16);
        assert!(!recent.points.contains(&Vpn(116)));
    }

    #[test]
    fn neighbours_are_counted_by_side_and_forgotten() {
        assert_eq!(after(&[90, 99, 92, 104, 100]).neighbours(Vpn(100)), (2, 1));
        assert_eq!(after(&[99, 1, 2, 3, 4, 5, 6, 7, 8]).neighbours(Vpn(100)), (0, 0));
        assert_eq!(Recent::default().neighbours(Vpn(100)), (0, 0));
    }
}
