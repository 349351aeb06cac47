//! The compressed pool of `overspill sim`: what is typed, and the model that it stands for.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, Result, bail};
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::engine::pool::PoolModel;
use overspill_sim::options::{Amount, amount, show_bytes};

/// The largest share of RAM, as of `run --max-pool-percent`.
const PERMILLE_MAX: u64 = 900;
/// Pages that shrink to less than this share are all zeroes or the like.
const RATIO_MAX: f64 = 250.0;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asked {
    size: Amount,
    ratio: f64,
    pack_ns: u64,
    unpack_ns: u64,
    is_fixed: bool,
}

impl Asked {
    /// A pool of this size, of pages that shrink to one in `ratio`, at these costs (nanoseconds to
    /// pack and to unpack a page).
    pub fn new(size: &str, ratio: f64, costs: &str, is_fixed: bool) -> Result<Asked> {
        let size = amount(size).context("--pool")?;
        if matches!(size, Amount::Permille(permille) if permille > PERMILLE_MAX) {
            bail!("--pool: the most is {}% of the RAM", PERMILLE_MAX / 10);
        }
        if !(1.0..=RATIO_MAX).contains(&ratio) {
            bail!("--pool-ratio: {ratio} is not from 1 to {RATIO_MAX}");
        }
        let times = costs
            .split_once(',')
            .and_then(|(pack, unpack)| Some((pack.trim().parse().ok()?, unpack.trim().parse().ok()?)));
        let Some((pack_ns, unpack_ns)) = times else {
            bail!("--pool-costs: '{costs}' is not two numbers of nanoseconds (6000,1800)");
        };
        Ok(Asked { size, ratio, pack_ns, unpack_ns, is_fixed })
    }

    /// The model, in so much RAM.
    pub fn model(&self, ram_bytes: u64) -> PoolModel {
        let bytes = self.size.bytes(ram_bytes).min(ram_bytes * PERMILLE_MAX / 1000);
        PoolModel {
            frames: u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX),
            is_fixed: self.is_fixed,
            packed_permille: (1000.0 / self.ratio).round() as u32,
            pack_ns: self.pack_ns,
            unpack_ns: self.unpack_ns,
        }
    }
}

impl Display for Asked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.size {
            Amount::Bytes(bytes) => write!(f, "{}", show_bytes(bytes))?,
            Amount::Permille(permille) => write!(f, "{}%", permille as f64 / 10.0)?,
        }
        write!(f, ", {}:1, {} ns to pack, {} ns to unpack", self.ratio, self.pack_ns, self.unpack_ns)?;
        f.write_str(if self.is_fixed { ", fixed" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shares_ratios_and_costs() {
        let half = Asked::new("50%", 4.0, "5000, 1500", false).expect("fine");
        let model = half.model(64 << 20);
        assert_eq!((model.frames, model.packed_permille), (8192, 250));
        assert_eq!((model.pack_ns, model.unpack_ns, model.is_fixed), (5000, 1500, false));
        assert_eq!(half.to_string(), "50%, 4:1, 5000 ns to pack, 1500 ns to unpack");
        let all = Asked::new("1G", 2.0, "1,1", true).expect("fine");
        assert_eq!(all.model(1 << 20).frames, 230, "nine tenths of the RAM are the most");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_option() {
        for (pool, ratio, costs, name) in [
            ("95%", 2.0, "1,1", "--pool:"),
            ("half", 2.0, "1,1", "--pool"),
            ("50%", 0.5, "1,1", "--pool-ratio:"),
            ("50%", f64::NAN, "1,1", "--pool-ratio:"),
            ("50%", 2.0, "6000", "--pool-costs:"),
        ] {
            let error = Asked::new(pool, ratio, costs, false).expect_err("refused").to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
