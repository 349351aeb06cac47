//! What the adaptive read-ahead must reach against the kernel's best setting, load by load, and
//! whether it does.

use serde::Serialize;

use super::rows::{Part, Row, best_kernel, ratio};
use crate::compare::Table;

/// The way that the goals are about.
const WAY: &str = "overspill:adaptive";

/// One demand on one load.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// The whole load is so many times as fast.
    Speed(f64),
    /// One kind of its threads is.
    PartSpeed(&'static str, f64),
    /// Of the pages read, at most so many percent were read in vain.
    VainPercent(f64),
}

/// Demands by the names of the loads.
const GOALS: [(&str, Demand); 15] = [
    ("seq", Demand::Speed(3.5)),
    ("descending", Demand::Speed(3.0)),
    ("interleaved-4", Demand::Speed(3.0)),
    ("stride-4", Demand::Speed(2.0)),
    ("stride-16", Demand::Speed(2.0)),
    ("stride-64", Demand::Speed(2.0)),
    ("mixed-1-1", Demand::PartSpeed("seq", 2.0)),
    ("mixed-1-1", Demand::PartSpeed("random", 1.0)),
    ("mixed", Demand::PartSpeed("seq", 2.0)),
    ("mixed", Demand::PartSpeed("random", 1.0)),
    ("random", Demand::Speed(1.0)),
    ("random", Demand::VainPercent(2.0)),
    ("random-8", Demand::Speed(1.2)),
    ("random-8", Demand::VainPercent(2.0)),
    ("phases", Demand::Speed(2.0)),
];

/// A line of the verdict.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The load.
    pub load: String,
    /// What is demanded.
    pub goal: String,
    /// What was measured; a dash if it was not.
    pub measured: String,
    /// What it was held against.
    pub against: String,
    /// Whether that is enough.
    pub holds: bool,
}

/// Judges a load by its rows.
pub fn judge(load: &str, rows: &[Row]) -> Vec<Verdict> {
    let demands = GOALS.iter().filter(|(name, _)| *name == load);
    demands.map(|(name, demand)| verdict(name, *demand, rows)).collect()
}

fn verdict(load: &str, demand: Demand, rows: &[Row]) -> Verdict {
    let own = rows.iter().find(|row| row.way == WAY);
    let (part, at_least) = match demand {
        Demand::VainPercent(at_most) => return vain(load, at_most, own),
        Demand::Speed(at_least) => (Part::Whole, at_least),
        Demand::PartSpeed(kind, at_least) => (Part::Kind(kind), at_least),
    };
    let load = match part {
        Part::Whole => load.to_string(),
        Part::Kind(kind) => format!("{load}, {kind} part"),
    };
    let measured = own.and_then(|own| ratio(rows, own, part));
    Verdict {
        load,
        goal: format!("{at_least:.1}x"),
        measured: measured.map_or("-".into(), |ratio| format!("{ratio:.2}x")),
        against: best_kernel(rows).map_or("-".into(), |row| row.way.clone()),
        holds: measured.is_some_and(|ratio| ratio >= at_least),
    }
}

fn vain(load: &str, at_most: f64, own: Option<&Row>) -> Verdict {
    let measured = own.map(|row| 100.0 * row.in_vain() as f64 / row.pages_in.max(1) as f64);
    Verdict {
        load: format!("{load}, read in vain"),
        goal: format!("under {at_most} %"),
        measured: measured.map_or("-".into(), |percent| format!("{percent:.2} %")),
        against: "pages read".into(),
        holds: measured.is_some_and(|percent| percent < at_most),
    }
}

/// The verdicts as a table.
pub fn table(verdicts: &[Verdict]) -> String {
    let mut table = Table::new(&["load", "goal", "measured", "against", "holds"]);
    for verdict in verdicts {
        let holds = if verdict.holds { "yes" } else { "NO" };
        table.push(vec![
            verdict.load.clone(),
            verdict.goal.clone(),
            verdict.measured.clone(),
            verdict.against.clone(),
            holds.into(),
        ]);
    }
    table.fitting(&["against"]).render()
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::row_of;
    use super::super::suite::Suite;
    use super::*;

    #[test]
    fn every_goal_has_a_load_and_every_load_a_goal() {
        let loads = Suite::All.loads();
        assert!(GOALS.iter().all(|(name, _)| loads.iter().any(|load| load.name == *name)));
        assert!(loads.iter().all(|load| GOALS.iter().any(|(name, _)| load.name == *name)));
    }

    #[test]
    fn a_goal_is_reached_at_its_figure_and_not_below() {
        let judged = |own: f64| {
            let rows = [row_of("kernel:3", 50.0, &[]), row_of("kernel:5", 100.0, &[]), row_of(WAY, own, &[])];
            judge("seq", &rows).remove(0)
        };
        let reached = judged(350.0);
        assert!(reached.holds && reached.against == "kernel:5" && reached.measured == "3.50x", "{reached:?}");
        assert!(!judged(349.0).holds);
    }

    #[test]
    fn pages_in_vain_count_by_what_was_read() {
        let mut own = row_of(WAY, 100.0, &[]); // 10 of 2000 pages in vain
        let judged = judge("random", &[row_of("kernel:0", 90.0, &[]), own.clone()]);
        assert!(judged.iter().all(|verdict| verdict.holds), "{judged:?}");
        assert_eq!(judged[1].measured, "0.50 %");
        own.read_ahead_hits = 960;
        assert!(!judge("random", &[own])[1].holds);
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        for verdict in judge("mixed", &[row_of("kernel:0", 90.0, &[("seq", 1.0), ("random", 2.0)])]) {
            assert!(!verdict.holds && verdict.measured == "-", "{verdict:?}");
        }
        assert!(table(&judge("phases", &[])).contains("NO"));
    }
}
