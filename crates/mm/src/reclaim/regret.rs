//! Whether it was right that pages made room: of those that did, the ones that come back are counted,
//! and where most do hardly anybody is driven out any more.

/// Both counts are halved when so many have made room.
const JUDGED: u32 = 256;

/// Pages that made room for others, and those of them that came back; both fade.
#[derive(Debug)]
pub(super) struct Regret {
    out: u32,
    back: u32,
    /// Most come back if it is more than so many of four.
    most_of_four: u32,
    /// Where they do one in so many makes room all the same, to see whether that has changed.
    tried_one_in: u32,
    /// How often nobody was driven out because most come back.
    spared: u32,
}

impl Regret {
    pub fn new(most_of_four: u32, tried_one_in: u32) -> Regret {
        Regret { out: 0, back: 0, most_of_four, tried_one_in, spared: 0 }
    }

    /// One more has made room.
    pub fn count_out(&mut self) {
        self.out += 1;
        if self.out > JUDGED {
            (self.out, self.back) = (self.out / 2, self.back / 2);
        }
    }

    /// One of them is back.
    pub fn count_back(&mut self) {
        self.back += 1;
    }

    /// So many of them are.
    #[cfg(test)]
    pub fn back(&self) -> u32 {
        self.back
    }

    /// Is nobody to be driven out, since most come back?
    pub fn spares(&mut self) -> bool {
        if 4 * self.back <= self.most_of_four * self.out {
            return false;
        }
        self.spared = self.spared.wrapping_add(1);
        !self.spared.is_multiple_of(self.tried_one_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_most_come_back_few_are_driven_out_until_that_has_changed() {
        let mut regret = Regret::new(3, 16);
        (0..100).for_each(|_| regret.count_out());
        (0..75).for_each(|_| regret.count_back());
        assert!(!regret.spares(), "three of four");
        regret.count_back();
        assert_eq!((0..160).filter(|_| !regret.spares()).count(), 10);
        regret.count_out();
        regret.count_out();
        assert!(!regret.spares(), "others have made room, and are not back");
    }

    #[test]
    fn the_past_fades() {
        let mut regret = Regret::new(3, 16);
        for _ in 0..10_000 {
            regret.count_out();
            regret.count_back();
        }
        (0..JUDGED).for_each(|_| regret.count_out());
        assert!(!regret.spares());
    }
}
