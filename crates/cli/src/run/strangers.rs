//! Children of the launcher's process that are not the run's, and how they are told from those that are.
//!
//! `sidecar & exec overspill run ...`, as entrypoints have it, leaves the launcher with children from
//! before the exec; whoever these leave behind becomes its child, too. So does, where the launcher is the
//! first process of a pid namespace, whoever was entered there from outside. None of them is counted,
//! and none is ended.
//!
//! *The story:* every child of the launcher's counted as the run's. A helper from before took the
//! command's budget, and under `--strict` both were killed.

use std::collections::BTreeMap;

use super::descendants::{began, children};

/// Tells them apart.
#[derive(Debug, Default)]
pub struct Strangers {
    /// Those from before the command, and when they began.
    before: BTreeMap<u32, Option<u64>>,
    /// The keeper of the agent's library: the launcher's own helper, for which it waits itself.
    keeper: Option<u32>,
    /// Others may become children of this process, too.
    has_others: bool,
    /// What the variable begins with that all of the run are started with.
    mark: Vec<u8>,
}

impl Strangers {
    /// Whoever is a child of this process now, before there is a command, which is to be started with such
    /// a variable in its environment.
    pub fn note(keeper: Option<u32>, mark: Vec<u8>) -> Strangers {
        let own = std::process::id();
        let others = children(own).into_iter().filter(|&pid| Some(pid) != keeper);
        let before: BTreeMap<_, _> = others.map(|pid| (pid, began(pid).ok().flatten())).collect();
        Strangers { has_others: own == 1 || !before.is_empty(), before, keeper, mark }
    }

    /// Is it the run's: a child of this process that was never seen below the command? Where nobody else
    /// can have left one here it is. Else what it was started with tells; `None`: nothing, or it is in the
    /// midst of an exec.
    pub fn is_runs(&self, pid: u32) -> Option<bool> {
        if self.is_keeper(pid) {
            return Some(false);
        }
        if !self.has_others {
            return Some(true);
        }
        let known = self.before.get(&pid).copied().flatten();
        let is_from_before = known.is_some() && began(pid).ok().flatten() == known;
        if is_from_before { Some(false) } else { self.is_marked(pid) }
    }

    /// The launcher waits for that one itself.
    pub fn is_keeper(&self, pid: u32) -> bool {
        self.keeper == Some(pid)
    }

    fn is_marked(&self, pid: u32) -> Option<bool> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_ours = |variable: &[u8]| variable.starts_with(&self.mark);
        (!environment.is_empty()).then(|| environment.split(|&byte| byte == 0).any(is_ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// See [`Strangers`].
    #[test]
    fn whoever_was_there_before_is_no_part_of_the_run() {
        let start =
            |mark: &str| Command::new("sleep").arg("60").env("MARK", format!("{mark}:x")).spawn().unwrap();
        let mut before = start("1");
        let strangers = Strangers::note(Some(7), b"MARK=1:".to_vec());
        let [mut ours, mut other] = [start("1"), start("11")];
        // A number that another process has by now.
        let mut again = Strangers { before: BTreeMap::from([(ours.id(), Some(1))]), ..Strangers::default() };
        (again.has_others, again.mark) = (true, b"MARK=1:".to_vec());
        // Whoever made it goes on before it has its environment.
        let begun = Instant::now();
        while [&before, &ours, &other].iter().any(|child| strangers.is_marked(child.id()).is_none()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "they were started");
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_runs =
            |strangers: &Strangers| [&before, &ours, &other].map(|child| strangers.is_runs(child.id()));
        let told = [is_runs(&strangers), is_runs(&again), is_runs(&Strangers::default())];
        for child in [&mut before, &mut ours, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let expected = [[false, true, false], [true, true, false], [true; 3]];
        assert_eq!(told, expected.map(|told| told.map(Some)));
        assert_eq!((strangers.is_runs(7), strangers.is_runs(u32::MAX)), (Some(false), None));
    }
}
