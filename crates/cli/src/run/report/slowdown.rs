//! How many times as long a run took as it would have with RAM enough, told as two bounds: which of its
//! waits a program would have spent computing, nobody can see from outside. Made of the report's waits and
//! processor times; it asks no clock.

use serde::Serialize;

use super::Report;
use super::first_touch;
use crate::run::tree::census::Record;

/// No slowdown is said to be larger: what is left of such a run without its waits is too little to
/// be measured.
pub const SLOWDOWN_MAX: f64 = 100.0;

/// Of each fault so much is not in what its agent counts, which begins when the fault is read and
/// ends when it is answered: the way into the kernel, to the agent's processor and back.
const UNSEEN_SECONDS: f64 = 10e-6;

/// Of each fault so much of the program's processor time is the fault's: in the kernel, the way there and
/// back and interrupts for pages that leave, no more than that; and outside of it, caches that are cold
/// afterwards. What is left of a program that crawls is no less than a share, and than its first touches.
///
/// *The story:* all time in the kernel was the program's own but for 10 us a fault. Objects of python in 0.9
/// of their RAM took 37 times as long, and "2.0 to 5.2" was told.
const FAULT_SYSTEM_SECONDS: f64 = 30e-6;
const FAULT_USER_SECONDS: f64 = 2.5e-6;
/// Who wakes has a processor after so long where nothing else keeps them busy.
const FAULT_KEPT_SECONDS: f64 = 8e-6;
const OWN_USER_SHARE: f64 = 0.33;
/// Who waits for less than this share of what another one waits is taken to wait for that one.
const WAITERS_SHARE: u64 = 3;
/// A first thread that is blocked for longer than it waits for faults, and so much for each beside what
/// its agent counts, waits for something else.
const FAULT_BLOCKED_SECONDS: f64 = 25e-6;

/// Bounds that are no further apart are told as one.
const AGREEING_BOUNDS: f64 = 1.25;
/// Of bounds further apart only the lower one is told.
const OPEN_BOUNDS: f64 = 5.0;

/// A slowdown lies between two bounds: which of its waits a program would have spent computing,
/// nobody can see from outside.
#[derive(Serialize, Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    /// If it would have taken as long as it did not wait.
    pub least: f64,
    /// If it would have taken as long as it computed; 100 stands for "or more".
    pub most: f64,
}

impl Default for Slowdown {
    fn default() -> Slowdown {
        Slowdown { least: 1.0, most: 1.0 }
    }
}

impl Slowdown {
    /// For people: one figure where the bounds agree, else both; where they say little the lower one.
    ///
    /// *The story:* "1.5 to 44 times as slow" was told of a program that slept for most of its time.
    pub fn text(self) -> String {
        let (least, most) = (figure(self.least), figure(self.most));
        match () {
            () if self.is_open() => format!("{least}+"),
            () if self.most < self.least * AGREEING_BOUNDS => most,
            () => format!("{least} to {most}"),
        }
    }

    /// Is it known to be at least `times`, or likely?
    pub fn reaches(self, times: f64) -> bool {
        if self.is_open() { self.least >= times } else { self.most >= times }
    }

    fn is_open(self) -> bool {
        self.most >= SLOWDOWN_MAX || self.most > self.least * OPEN_BOUNDS
    }
}

/// Two digits, which is more than is known.
fn figure(times: f64) -> String {
    if times < 10.0 { format!("{times:.1}") } else { format!("{times:.0}") }
}

/// What the estimate takes from the machine.
#[derive(Clone, Copy)]
pub struct Machine {
    pub processors: usize,
    /// Of a first touch of a page, in the kernel.
    pub touch_seconds: f64,
}

impl Machine {
    /// This one; of a run that did not page it is not worth the question.
    pub fn here(is_paged: bool) -> Machine {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let touch_seconds = if is_paged { first_touch::seconds() } else { first_touch::USUAL_SECONDS };
        Machine { processors, touch_seconds }
    }
}

impl Report {
    /// What waiting cost. `lives_seconds` is how long the programs lived, together, that waited at
    /// all: where several do side by side their waits are, too.
    pub fn estimate(&mut self, lives_seconds: f64, machine: Machine) {
        let wall = self.wall_seconds;
        let whole = lives_seconds.max(wall).max(1e-9);
        let side_by_side = whole / wall.max(1e-9);
        self.stalled_share = (self.stalled_seconds / whole).min(1.0);
        let unseen = self.faults() * UNSEEN_SECONDS;
        let filling = self.filling_seconds(machine);
        let others_waits = (self.waiting_seconds - self.stalled_seconds).max(0.0);
        let waited = self.waiting_seconds + unseen - filling.min(others_waits);
        let waiting = (waited / whole).clamp(0.0, 1.0) * wall;
        let (programs, programs_most) = self.own_seconds(lives_seconds, machine);
        let (programs, programs_most) = (programs / side_by_side, programs_most / side_by_side);
        let waitless = wall - waiting;
        let idle = self.idle_seconds(lives_seconds) / side_by_side;
        // With RAM enough it would take no longer than without its waits, or than it computes and waits
        // for something else, and no less than it computes. Who computes for longer than nobody waits has
        // threads that compute while others wait: then neither holds, and it is a matter of how many
        // processors they would share.
        let (shortest, longest) = match programs > waitless {
            true => (programs / machine.processors.max(1) as f64, programs.min(wall)),
            false => (programs, (programs_most + idle).min(waitless)),
        };
        let times = |alone: f64| wall.max(1e-9) / alone.max(wall / SLOWDOWN_MAX).max(1e-9);
        self.slowdown = Slowdown { least: times(longest), most: times(shortest.min(longest)) };
    }

    /// What agents spent on first touches, which the kernel would with RAM enough: each of them, however
    /// often a page is discarded and filled again.
    ///
    /// *The story:* each page of the peak was touched once, it was taken. Of what filled 32 MiB fifty times
    /// beside 72 that stay, in 100M, "some 3.4 to 4.7 times as slow" was told, and it was as fast as bare.
    fn filling_seconds(&self, machine: Machine) -> f64 {
        (self.sum("zero_fill") as f64 * machine.touch_seconds).min(self.agent_system_seconds)
    }

    fn faults(&self) -> f64 {
        (self.soft_faults.count + self.major_faults.count) as f64
    }

    /// What the programs would compute with RAM enough, likely; and at most, with their part of the time in
    /// which others of the machine had the processors.
    fn own_seconds(&self, lives_seconds: f64, machine: Machine) -> (f64, f64) {
        let faults = self.faults();
        let agents_user = self.agent_seconds - self.agent_system_seconds;
        let user = (self.user_seconds - agents_user).max(0.0);
        let system = (self.system_seconds - self.agent_system_seconds).max(0.0);
        let touches = (self.kernels_faults as f64 * machine.touch_seconds).min(system);
        let own_user = (user - faults * FAULT_USER_SECONDS).max(user * OWN_USER_SHARE);
        let own_system = (system - faults * FAULT_SYSTEM_SECONDS).max(touches);
        let own = own_user + own_system + self.filling_seconds(machine);
        let all = self.user_seconds + self.system_seconds - self.agent_seconds;
        let kept = lives_seconds - self.blocked_seconds - all - faults * FAULT_KEPT_SECONDS;
        (own, own + kept.max(0.0) * (own / all.max(1e-9)).min(1.0))
    }

    /// How long programs waited for something else than pages, and the time in which none lived that waits.
    fn idle_seconds(&self, lives_seconds: f64) -> f64 {
        let others = self.blocked_seconds - self.waiting_seconds - self.faults() * FAULT_BLOCKED_SECONDS;
        others.max(0.0) + (self.wall_seconds - lives_seconds).max(0.0)
    }
}

/// Those that waited for their agents, beside who waited longest: not who waits for them.
///
/// *The story:* perf waited for 15 ms, and for its program to end. Halves were made of all times, as if both
/// had worked side by side, and "1.3 to 45 times" was told of what took 3.6 times as long.
pub fn waiters(records: &[Record]) -> impl Iterator<Item = &Record> {
    let longest = records.iter().map(Record::waited_ns).max().unwrap_or(0);
    records.iter().filter(move |record| record.waited_ns() > longest / WAITERS_SHARE)
}

#[cfg(test)]
mod tests {
    use overspill_engine::shared::state;

    use super::*;
    use crate::histogram::Latency;
    use crate::run::shared_page::Report as AgentReport;

    const MACHINE: Machine = Machine { processors: 2, touch_seconds: 0.5e-6 };

    /// Of one whose first thread is blocked for all the time but that in which it computes.
    fn slowdown(wall: f64, waiting: f64, agent: f64, programs: f64) -> Slowdown {
        let mut report = Report {
            wall_seconds: wall,
            waiting_seconds: waiting,
            agent_seconds: agent,
            user_seconds: programs + agent,
            blocked_seconds: wall - programs,
            ..Report::default()
        };
        report.estimate(wall, MACHINE);
        report.slowdown
    }

    #[test]
    fn waits_are_all_that_is_lost_where_the_program_computes_for_the_rest() {
        let all = slowdown(10.0, 5.0, 4.0, 5.0);
        assert_eq!(all, Slowdown { least: 2.0, most: 2.0 });
        assert_eq!(all.text(), "2.0");
    }

    /// *The story:* eight threads of which one always waited while others computed were said to be
    /// 100 times as slow, others 20.5 times; without overspill they took 2.8 and 3.5 times less.
    #[test]
    fn threads_that_compute_while_others_wait_are_not_hundred_times_as_slow() {
        let threads = slowdown(6.0, 5.9, 4.0, 2.0);
        assert_eq!(threads, Slowdown { least: 3.0, most: 6.0 });
        assert_eq!(threads.text(), "3.0 to 6.0");
    }

    /// *The story:* objects of python in 0.9 of their RAM took 37 times as long, and "2.0 to 5.2" was told: time
    /// in the kernel held the faults, and what others had of the processors was the program's own. These
    /// are figures of such a run, of 32 times, where nothing else ran.
    #[test]
    fn what_faults_take_of_the_programs_time_is_not_its_own() {
        let soft_faults = Latency { count: 381_741, ..Latency::default() };
        let mut report = Report {
            wall_seconds: 21.65,
            waiting_seconds: 12.18,
            blocked_seconds: 15.52,
            user_seconds: 8.242,
            system_seconds: 11.663,
            agent_seconds: 16.75,
            agent_system_seconds: 10.206,
            soft_faults,
            ..Report::default()
        };
        let told = |report: &mut Report| {
            report.estimate(report.wall_seconds, MACHINE);
            report.slowdown
        };
        let busy = told(&mut report);
        assert!(busy.least > 24.0 && busy.most < 40.0, "{busy:?}");
        // The same beside a minute of sleep is hardly slower.
        (report.wall_seconds, report.blocked_seconds) = (81.65, 75.52);
        let sleeper = told(&mut report);
        assert!(sleeper.least > 1.1 && sleeper.least < 1.6, "{sleeper:?}");
    }

    /// See [`Report::filling_seconds`]. These are figures of such a run, where a first touch took 2 us.
    #[test]
    fn what_is_filled_again_and_again_would_be_so_with_ram_enough() {
        let told = |waiting_seconds: f64, zero_fill: u64| {
            let mut report = Report {
                wall_seconds: 0.936,
                waiting_seconds,
                blocked_seconds: 0.566,
                user_seconds: 0.09,
                system_seconds: 0.823,
                agent_seconds: 0.636,
                agent_system_seconds: 0.588,
                soft_faults: Latency { count: 2338, ..Latency::default() },
                pager: [("zero_fill", zero_fill)].into(),
                ..Report::default()
            };
            report.estimate(report.wall_seconds, Machine { touch_seconds: 2e-6, ..MACHINE });
            report.slowdown
        };
        let filled = told(0.533, 409_848);
        assert!(filled.most < 1.2, "{filled:?}");
        let paged = told(0.533, 18_000);
        assert!(paged.least > 2.0, "who waits for other pages is slow: {paged:?}");
    }

    /// *The story:* of short programs the kernel's own work, to load each of them, was the faults' of their
    /// agents: no more than the peak's pages, each once, were theirs.
    #[test]
    fn faults_that_no_agent_answers_are_the_programs() {
        let told = |kernels_faults: u64| {
            let mut report = Report {
                wall_seconds: 2.0,
                waiting_seconds: 0.2,
                blocked_seconds: 0.2,
                user_seconds: 0.2,
                system_seconds: 1.0,
                kernels_faults,
                soft_faults: Latency { count: 60_000, ..Latency::default() },
                ..Report::default()
            };
            report.estimate(report.wall_seconds, MACHINE);
            report.slowdown.most
        };
        assert!(told(0) > 25.0 && told(1_000_000) < 4.0, "{} {}", told(0), told(1_000_000));
    }

    /// See [`waiters`].
    #[test]
    fn who_waits_for_another_program_does_not_wait_beside_it() {
        let waits = |pid: u32, ns: u64| {
            let mut agent = AgentReport { state: state::MANAGING, ..AgentReport::empty(0, 1, pid, 30) };
            agent.counters.iter_mut().filter(|(name, _)| *name == "waiting_ns").for_each(|one| one.1 = ns);
            let mut census = crate::run::tree::census::Census::default();
            census.keep(agent);
            census.finish().remove(0)
        };
        let records = [waits(5, 15), waits(6, 763), waits(7, 600), waits(8, 0)];
        assert_eq!(waiters(&records).map(|record| record.pid).collect::<Vec<_>>(), [6, 7]);
        assert_eq!(waiters(&[waits(8, 0)]).count(), 0);
    }

    /// *The story:* sqlite3 in 5 MiB was "100.00" times as slow, and 28 times in truth.
    #[test]
    fn what_cannot_be_known_is_a_range_or_open() {
        assert_eq!(slowdown(15.0, 10.0, 9.0, 1.5).text(), "3.0 to 10");
        assert_eq!(slowdown(5.0, 4.5, 5.0, 0.0).text(), "10+");
        let sleeper = Slowdown { least: 1.5, most: 44.0 };
        assert!(sleeper.text() == "1.5+" && sleeper.reaches(1.4) && !sleeper.reaches(1.6));
        assert_eq!(slowdown(0.0, 0.0, 0.0, 0.0).text(), "1.0");
    }
}
