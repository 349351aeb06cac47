//! The announcement of the tree of swap extents: tasks that swap out and then in on a file of
//! 20,000 extents of 1 MiB, with the list and its shared cursor, with the tree, and with the map
//! that this project has by default.
//!
//! The maps are the real ones ([`overspill_mm::swap::extents`]); what is simulated is who looks
//! when. Each task goes round: work of its own, a lookup, the device, which serves one page after
//! another. A task's pages lie in order in clusters of 256 slots, here an extent each, and each
//! cluster is somewhere else. The walk through the list follows from that; nothing of it is put in.
//! Work and device are solved from the tree's cells at 4 and 8 tasks, out and in; a node's cost in
//! the list is specification 3.2's, in the tree that of its published share of the time. All cells
//! of the list are predictions.

use super::{Cell, Effort, Judge, Row, Sheet};
use crate::rng::Rng;
use crate::sweep::parallel;
use crate::time::{Nanos, SECOND, muldiv, permille};
use crate::workload::WorkloadError;
use overspill_mm::swap::extents::{Extents, ListMap, Lookup, SortedMap, TreeMap};
use overspill_mm::types::PAGE_SIZE;

/// Pages that a task puts side by side: a cluster of slots, and the 1 MiB at which the file was
/// cut.
const CLUSTER_PAGES: u32 = 256;
/// Pages that are brought out or in by all tasks together.
const PAGES: u64 = 12_000;
/// Looking at a node of the list, and at one of the tree (2.16 % of some 10 us at 15 nodes).
const LIST_NODE_NS: Nanos = 9;
const TREE_NODE_NS: Nanos = 13;
/// The default map's: an entry of an array, most of them not in the processor's cache.
const DEFAULT_NODE_NS: Nanos = 10;
/// Files: extents, and pages of each.
const FILES: [(u32, u32); 4] =
    [(84_656, 242), (20_000, CLUSTER_PAGES), (2_000, 512), (2, 10_000 * CLUSTER_PAGES)];

/// Which way pages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Out,
    In,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Out => "out",
            Way::In => "in",
        }
    }

    /// A task's own work for a page, and the device's: solved from the tree's cells.
    fn costs(self) -> (Nanos, Nanos) {
        match self {
            Way::Out => (10_000, 4_150),
            Way::In => (16_000, 3_650),
        }
    }
}

/// A map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Map {
    List,
    Tree,
    Default,
}

const MAPS: [Map; 3] = [Map::List, Map::Tree, Map::Default];

/// One simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Job {
    map: Map,
    file: (u32, u32),
    tasks: usize,
    way: Way,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    kb_per_second: u64,
    /// Of the processors' time, in hundredths of a percent.
    lookup_share: u64,
}

/// The published rows: tasks, way, KB/s and share of time in hundredths of a percent, each for list
/// and tree.
const PUBLISHED: [(usize, Way, [u64; 2], [u64; 2]); 4] = [
    (4, Way::Out, [165_191, 858_993], [9_077, 216]),
    (4, Way::In, [171_798, 715_827], [9_021, 77]),
    (8, Way::Out, [306_783, 954_437], [9_219, 235]),
    (8, Way::In, [318_145, 1_073_741], [8_776, 157]),
];

/// All tables.
pub fn run(effort: &Effort<'_>) -> Result<Vec<Sheet>, WorkloadError> {
    let mut jobs = Vec::new();
    for file in FILES {
        for tasks in [1, 4, 8] {
            for way in [Way::Out, Way::In] {
                jobs.extend(MAPS.map(|map| Job { map, file, tasks, way }));
            }
        }
    }
    let pages = (PAGES / effort.shorten).max(2000);
    let work = |job: usize| simulate(jobs[job], pages);
    let outcomes = parallel(jobs.len(), effort.jobs, work, |done| (effort.progress)(done, jobs.len()));
    let of = |file: (u32, u32), tasks: usize, way: Way, map: Map| {
        let at = jobs.iter().position(|job| *job == Job { map, file, tasks, way });
        outcomes[at.expect("every combination was simulated")]
    };
    Ok(vec![throughput(&of), shares(&of), alike(&of), ours(&of), server(&of)])
}

type Found<'a> = &'a dyn Fn((u32, u32), usize, Way, Map) -> Outcome;

const FILE: (u32, u32) = FILES[1];
/// Of ratios that are allowed to be off by more than elsewhere.
const LATENCY: &str = "what a swap-in waits for the drive counts as work of its task here, also \
                       where the list keeps the drive idle";

fn throughput(of: Found<'_>) -> Sheet {
    let row = |&(tasks, way, published, _): &(usize, Way, [u64; 2], [u64; 2])| {
        let cell = |map, published| Cell { published, simulated: of(FILE, tasks, way, map).kb_per_second };
        let cells = vec![cell(Map::List, Some(published[0])), cell(Map::Tree, Some(published[1]))];
        let (judge, reasons) = match way {
            Way::Out => (Judge::Ratios { within_permille: 150 }, Vec::new()),
            Way::In => (Judge::Ratios { within_permille: 200 }, vec![(1, LATENCY)]),
        };
        Row { name: format!("{tasks} tasks {}", way.name()), cells, judge, reasons }
    };
    Sheet {
        title: "20,000 extents of 1 MiB: throughput".to_owned(),
        unit: "KB/s",
        columns: vec!["list", "tree"],
        rows: PUBLISHED.iter().map(row).collect(),
        notes: vec![
            "solved from the tree's cells: a task's work of 10 us a page out and 16 us in, a \
             device that takes 4.15 and 3.65 us"
                .to_owned(),
            format!(
                "a node of the list {LIST_NODE_NS} ns, of the tree {TREE_NODE_NS} ns, of the \
                 default {DEFAULT_NODE_NS} ns"
            ),
        ],
    }
}

fn shares(of: Found<'_>) -> Sheet {
    let row = |&(tasks, way, _, published): &(usize, Way, [u64; 2], [u64; 2])| {
        let cell = |map, published| Cell { published, simulated: of(FILE, tasks, way, map).lookup_share };
        let cells = vec![cell(Map::List, Some(published[0])), cell(Map::Tree, Some(published[1]))];
        let name = format!("{tasks} tasks {}", way.name());
        Row { name, cells, judge: Judge::Order, reasons: Vec::new() }
    };
    Sheet {
        title: "20,000 extents: time in lookup".to_owned(),
        unit: "hundredths of a percent",
        columns: vec!["list", "tree"],
        rows: PUBLISHED.iter().map(row).collect(),
        notes: Vec::new(),
    }
}

/// "No difference", as published, is a ratio of one.
const NONE: Judge = Judge::Ratios { within_permille: 50 };

/// Of what nobody has published: as much as the tree.
const LEVEL: Judge = Judge::Same { within_permille: 50 };

fn alike(of: Found<'_>) -> Sheet {
    let row = |tasks: usize, file: (u32, u32), way: Way| {
        let found = |map| of(file, tasks, way, map).kb_per_second;
        let base = found(Map::List);
        let cell = |map| Cell { published: Some(1000), simulated: muldiv(found(map), 1000, base) };
        let task = if tasks == 1 { "task" } else { "tasks" };
        Row {
            name: format!("{} extents, {tasks} {task} {}", file.0, way.name()),
            cells: vec![cell(Map::List), cell(Map::Tree)],
            judge: NONE,
            reasons: Vec::new(),
        }
    };
    let mut rows = Vec::new();
    for way in [Way::Out, Way::In] {
        rows.push(row(1, FILE, way));
        rows.extend([1, 4, 8].map(|tasks| row(tasks, FILES[3], way)));
    }
    Sheet {
        title: "No difference with one task, or with two extents".to_owned(),
        unit: "thousandths of the list's throughput",
        columns: vec!["list", "tree"],
        rows,
        notes: Vec::new(),
    }
}

fn ours(of: Found<'_>) -> Sheet {
    let row = |file: (u32, u32), tasks: usize, way: Way| {
        let found = |map| of(file, tasks, way, map).kb_per_second;
        let base = found(Map::Tree);
        let cell = |map| Cell { published: None, simulated: muldiv(found(map), 1000, base) };
        let name = format!("{} extents, {tasks} tasks {}", file.0, way.name());
        Row { name, cells: vec![cell(Map::Tree), cell(Map::Default)], judge: LEVEL, reasons: Vec::new() }
    };
    let mut rows = Vec::new();
    for file in FILES {
        rows.extend([Way::Out, Way::In].map(|way| row(file, 8, way)));
    }
    Sheet {
        title: "The default map is no worse than the tree".to_owned(),
        unit: "thousandths of the tree's throughput",
        columns: vec!["tree", "default"],
        rows,
        notes: vec!["not published: ours".to_owned()],
    }
}

/// The server that the tree was made for: its programs are not known.
fn server(of: Found<'_>) -> Sheet {
    let row = |file: (u32, u32), published: [u64; 2]| {
        let found = of(file, 8, Way::Out, Map::List);
        let cells = [found.kb_per_second, found.lookup_share];
        let cell = |(published, simulated)| Cell { published: Some(published), simulated };
        Row {
            name: format!("{} extents", file.0),
            cells: published.into_iter().zip(cells).map(cell).collect(),
            judge: Judge::Nothing,
            reasons: vec![(0, "neither the number of programs nor the drive is known; 8 tasks here")],
        }
    };
    Sheet {
        title: "The server that had 84,656 extents, and 2,000 before, with the list".to_owned(),
        unit: "KB/s; hundredths of a percent",
        columns: vec!["throughput", "in lookup"],
        rows: vec![row(FILES[0], [70_000, 3_000]), row(FILES[2], [450_000, 300])],
        notes: Vec::new(),
    }
}

fn simulate(job: Job, pages: u64) -> Outcome {
    let extents = Extents::artificial(job.file.0, job.file.1);
    match job.map {
        Map::List => go_round(&ListMap::new(&extents), true, LIST_NODE_NS, &extents, job, pages),
        Map::Tree => go_round(&TreeMap::new(&extents), true, TREE_NODE_NS, &extents, job, pages),
        Map::Default => go_round(&SortedMap::new(&extents), false, DEFAULT_NODE_NS, &extents, job, pages),
    }
}

/// A task: what it does next, when, and with which page.
struct Task<C> {
    at: Nanos,
    /// It has looked up its page and is before the device.
    is_ready: bool,
    page: u32,
    left: u32,
    cursor: C,
}

/// Simulates `pages` pages. With `shared` there is one cursor for all tasks.
fn go_round<L: Lookup>(
    map: &L,
    shared: bool,
    node_ns: Nanos,
    extents: &Extents,
    job: Job,
    pages: u64,
) -> Outcome {
    let (work_ns, device_ns) = job.way.costs();
    let mut rng = Rng::new(0x5eed_0003);
    let task = |_| Task { at: 0, is_ready: false, page: 0, left: 0, cursor: L::Cursor::default() };
    let mut tasks: Vec<Task<L::Cursor>> = (0..job.tasks).map(task).collect();
    let mut one_for_all = L::Cursor::default();
    let (mut device_free, mut looking, mut working, mut done) = (0, 0, 0, 0);
    while done < pages {
        let next = (0..job.tasks).min_by_key(|&task| tasks[task].at).expect("there is a task");
        let task = &mut tasks[next];
        if std::mem::take(&mut task.is_ready) {
            // The device serves one page after another.
            device_free = task.at.max(device_free) + around(&mut rng, device_ns);
            task.at = device_free;
            done += 1;
            continue;
        }
        if task.left == 0 {
            let clusters = extents.pages() / CLUSTER_PAGES;
            task.page = rng.below(u64::from(clusters)) as u32 * CLUSTER_PAGES;
            task.left = CLUSTER_PAGES;
        }
        let cursor = if shared { &mut one_for_all } else { &mut task.cursor };
        let lookup = u64::from(map.steps(cursor, task.page)) * node_ns;
        let work = around(&mut rng, work_ns);
        (looking, working) = (looking + lookup, working + work);
        (task.page, task.left) = (task.page + 1, task.left - 1);
        (task.at, task.is_ready) = (task.at + work + lookup, true);
    }
    let end = device_free;
    Outcome {
        kb_per_second: muldiv(pages * (PAGE_SIZE / 1024), SECOND, end.max(1)),
        lookup_share: permille(looking * 10, looking + working),
    }
}

/// A time of that mean, between nothing and twice as much.
fn around(rng: &mut Rng, mean: Nanos) -> Nanos {
    rng.below(2 * mean + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the announcement says, on a tenth of the pages: one task does not mind the list,
    /// several do, and the tree mends it.
    #[test]
    fn the_list_is_slow_for_several_tasks_only() {
        let rate = |map, tasks| simulate(Job { map, file: FILE, tasks, way: Way::Out }, 4000).kb_per_second;
        let (list, tree) = (rate(Map::List, 1), rate(Map::Tree, 1));
        assert!(list.abs_diff(tree) * 20 < tree, "one task: {list} {tree}");
        let (list, tree) = (rate(Map::List, 4), rate(Map::Tree, 4));
        assert!(list * 4 < tree && list * 7 > tree, "four tasks: {list} {tree}");
        let ours = rate(Map::Default, 4);
        assert!(ours * 100 > tree * 97, "{ours} {tree}");
    }
}
