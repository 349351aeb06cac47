//! Children of the launcher's process that are not the run's, and how they are told from those that are.
//!
//! `sidecar & exec overspill run ...`, as entrypoints have it, leaves the launcher with children from
//! before the exec; whoever these leave behind becomes its child, too. So does, where the launcher is the
//! first process of a pid namespace, whoever was entered there from outside. None of them is counted,
//! and none is ended.
//!
//! *The story:* every child of the launcher's counted as the run's. A helper from before took the
//! command's budget, and under `--strict` both were killed.

use std::collections::{BTreeMap, BTreeSet};

use super::descendants::{Stat, began, children, read_of_memory, stat};

/// Tells them apart.
#[derive(Debug, Default)]
pub struct Strangers {
    /// Those from before the command, and when they began.
    before: BTreeMap<u32, Option<u64>>,
    /// Sessions and process groups that those were in.
    their_circles: BTreeSet<Circle>,
    /// The keeper of the agent's library: the launcher's own helper, for which it waits itself.
    keeper: Option<u32>,
    /// Others may become children of this process, too.
    has_others: bool,
    /// Some may come from outside of this pid namespace.
    is_first: bool,
    /// What the variable begins with that all of the run are started with.
    mark: Vec<u8>,
    /// What was found, and of which: their number and when they began.
    found: BTreeMap<u32, (u64, bool)>,
    /// So many walks in a row found none.
    empty_walks: u32,
    has_doubts: bool,
}

/// A session, and a process group in it. Nobody enters a session but by being born there; a group is entered
/// by who starts a pipeline.
pub type Circle = (u32, u32);

/// What a process was started with.
#[derive(Debug, PartialEq, Eq)]
enum Marked {
    Yes,
    No,
    /// It was started with nothing, has ended, or may not be looked into.
    Nothing,
    /// It is in the midst of an exec.
    NotYet,
}

/// Nobody is missed in so many walks.
const WALKS: u32 = 2;

impl Strangers {
    /// Whoever is a child of this process now, before there is a command, which is to be started with such
    /// a variable in its environment.
    pub fn note(keeper: Option<u32>, mark: Vec<u8>) -> Strangers {
        let own = std::process::id();
        let others = children(own).into_iter().filter(|&pid| Some(pid) != keeper);
        let before: BTreeMap<_, _> = others.map(|pid| (pid, began(pid).ok().flatten())).collect();
        let their_circles = before.keys().filter_map(|&pid| stat(pid)).map(|stat| stat.circle).collect();
        let (is_first, has_others) = (own == 1, own == 1 || !before.is_empty());
        Strangers { before, their_circles, keeper, has_others, is_first, mark, ..Strangers::default() }
    }

    /// Is it the run's: a child of this process that was never seen below the command? Where nobody else
    /// can have left one here it is. Else what it was started with tells, or its session and process group,
    /// beside `circles`, in which those of the run are. `None`: it is in the midst of an exec.
    ///
    /// *The story:* who had been started with nothing (`env -i`) was asked again at each look, which walked
    /// the tree for that, and what it used was in no figure.
    pub fn is_runs(&mut self, pid: u32, circles: &BTreeSet<Circle>) -> Option<bool> {
        if self.is_keeper(pid) {
            return Some(false);
        }
        if !self.has_others {
            return Some(true);
        }
        let stat = stat(pid)?;
        if let Some(&(began, is_runs)) = self.found.get(&pid)
            && began == stat.began
        {
            return Some(is_runs);
        }
        let is_from_before = self.before.get(&pid).copied().flatten() == Some(stat.began);
        let is_runs = !is_from_before
            && match self.marked(pid, &stat) {
                Marked::Yes => true,
                Marked::NotYet => return None,
                marked => {
                    let found = self.by_circle(stat.circle, circles);
                    self.has_doubts |= found.is_none() && marked == Marked::Nothing;
                    found.unwrap_or(false)
                }
            };
        self.found.insert(pid, (stat.began, is_runs));
        Some(is_runs)
    }

    /// By its session and group. `None`: both have some there. A session outside of this namespace has number
    /// 0: it is the launcher's own, but where somebody may have been entered from another one.
    ///
    /// *The story:* by `unshare -pf` all are in such a session, and none of the run's was known by it.
    fn by_circle(&self, circle: Circle, circles: &BTreeSet<Circle>) -> Option<bool> {
        let (session, _) = circle;
        let has = |circles: &BTreeSet<Circle>| circles.iter().any(|circle| circle.0 == session);
        match (has(circles), has(&self.their_circles)) {
            _ if session == 0 && self.is_first => None,
            (true, false) => Some(true),
            (false, _) => Some(false),
            (true, true) => match (circles.contains(&circle), self.their_circles.contains(&circle)) {
                (true, false) => Some(true),
                (false, true) => Some(false),
                _ => None,
            },
        }
    }

    /// A walk found these children of this process that are not the run's. Where there are none, nobody is
    /// left who could leave one, but for who comes from outside.
    pub fn note_walk(&mut self, others: &[u32]) {
        let are_none = others.iter().all(|&pid| self.is_keeper(pid));
        self.empty_walks = if are_none { self.empty_walks.saturating_add(1) } else { 0 };
        self.has_others &= self.is_first || self.empty_walks < WALKS;
        self.found.retain(|pid, _| others.contains(pid));
    }

    /// The launcher waits for that one itself.
    pub fn is_keeper(&self, pid: u32) -> bool {
        self.keeper == Some(pid)
    }

    /// Was one taken for a stranger's that may have been the run's?
    pub fn has_doubts(&self) -> bool {
        self.has_doubts
    }

    fn marked(&self, pid: u32, stat: &Stat) -> Marked {
        let Ok(environment) = read_of_memory(pid, "environ") else { return Marked::Nothing };
        let is_ours = |variable: &[u8]| variable.starts_with(&self.mark);
        match environment.is_empty() {
            true if stat.has_ended || stat.has_nothing => Marked::Nothing,
            true => Marked::NotYet,
            false if environment.split(|&byte| byte == 0).any(is_ours) => Marked::Yes,
            false => Marked::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// See [`Strangers`].
    #[test]
    fn whoever_was_there_before_is_no_part_of_the_run() {
        let start =
            |mark: &str| Command::new("sleep").arg("60").env("MARK", format!("{mark}:x")).spawn().unwrap();
        let mut before = start("1");
        let mut strangers = Strangers::note(Some(7), b"MARK=1:".to_vec());
        let [mut ours, mut other] = [start("1"), start("11")];
        // A number that another process has by now.
        let mut again = Strangers { before: BTreeMap::from([(ours.id(), Some(1))]), ..Strangers::default() };
        (again.has_others, again.mark) = (true, b"MARK=1:".to_vec());
        let (of_run, own) = (BTreeSet::new(), stat(std::process::id()).unwrap().circle);
        // Whoever made it goes on before it has its environment.
        let begun = Instant::now();
        let is_there = |child: &Child| {
            stat(child.id())
                .is_some_and(|stat| [Marked::Yes, Marked::No].contains(&strangers.marked(child.id(), &stat)))
        };
        while ![&before, &ours, &other].iter().all(|child| is_there(child)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "they were started");
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_runs = |strangers: &mut Strangers| {
            [&before, &ours, &other].map(|child| strangers.is_runs(child.id(), &of_run))
        };
        let told = [is_runs(&mut strangers), is_runs(&mut again), is_runs(&mut Strangers::default())];
        assert!(!strangers.has_doubts() && strangers.their_circles.contains(&own));
        for child in [&mut before, &mut ours, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let expected = [[false, true, false], [true, true, false], [true; 3]];
        assert_eq!(told, expected.map(|told| told.map(Some)));
        let gone = strangers.is_runs(u32::MAX, &of_run);
        assert_eq!((strangers.is_runs(7, &of_run), gone), (Some(false), None));
    }

    /// See [`Strangers::is_runs`].
    #[test]
    fn who_was_started_with_nothing_is_found_once() {
        // In a session of its own: that of this test may be outside of its pid namespace.
        let mut bare = Command::new("setsid").args(["sleep", "60"]).env_clear().spawn().unwrap();
        let pid = bare.id();
        let (own, beside) = ((pid, pid), (pid, u32::MAX));
        let begun = Instant::now();
        while std::fs::read(format!("/proc/{pid}/comm")).unwrap() != b"sleep\n" {
            assert!(begun.elapsed() < Duration::from_secs(20), "it was started");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(stat(pid).unwrap().circle, own);
        let of_run = BTreeSet::from([beside, own]);
        let find = |their_circles: &[Circle], of_run: &BTreeSet<Circle>| {
            let their_circles = their_circles.iter().copied().collect();
            let mut strangers = Strangers { has_others: true, their_circles, ..Strangers::default() };
            let mark = b"MARK=1:".to_vec();
            strangers.mark = mark;
            let found = strangers.is_runs(pid, of_run);
            assert_eq!(strangers.found.len(), 1, "it is not asked again");
            assert_eq!(strangers.is_runs(pid, &BTreeSet::new()), found);
            (found, strangers.has_doubts())
        };
        let told = [
            find(&[], &of_run),
            find(&[beside], &of_run),
            find(&[own], &BTreeSet::from([beside])),
            find(&[beside], &BTreeSet::from([beside])),
            find(&[], &BTreeSet::new()),
        ];
        bare.kill().unwrap();
        bare.wait().unwrap();
        let [yes, no] = [true, false].map(|is_runs| (Some(is_runs), false));
        assert_eq!(told, [yes, yes, no, (Some(false), true), no]);
    }

    /// See [`Strangers::by_circle`].
    #[test]
    fn a_session_outside_of_the_namespace_tells_where_nobody_is_entered() {
        let find = |is_first, their: Circle, its: Circle| {
            let strangers = Strangers { is_first, their_circles: [their].into(), ..Strangers::default() };
            strangers.by_circle(its, &BTreeSet::from([(0, 0)]))
        };
        assert_eq!(find(false, (0, 9), (0, 0)), Some(true));
        assert_eq!(find(false, (0, 9), (0, 9)), Some(false));
        assert_eq!(find(false, (0, 0), (0, 0)), None);
        assert_eq!(find(true, (9, 9), (0, 0)), None);
    }

    /// *The story:* as long as the run lasted each orphan was asked what it had been started with, though the
    /// only one from before had ended at once.
    #[test]
    fn where_nobody_is_left_who_could_leave_one_all_are_the_runs() {
        let new = || Strangers { has_others: true, keeper: Some(7), ..Strangers::default() };
        let mut strangers = new();
        for others in [&[7][..], &[7, 9], &[7]] {
            strangers.note_walk(others);
        }
        assert!(strangers.has_others);
        strangers.note_walk(&[]);
        assert!(!strangers.has_others);
        let mut first = Strangers { is_first: true, ..new() };
        (0..9).for_each(|_| first.note_walk(&[]));
        assert!(first.has_others, "somebody may be entered from outside");
    }
}
