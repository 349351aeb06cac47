//! Every file read-ahead policy under one roof, chosen by name.

use super::adaptive::{self, Adaptive};
use super::modern::Modern;
use super::ondemand::{Era, OnDemand};
use super::v2_6_20::{self, TwoWindows};
use super::{Advice, Ask, Cause, Extent, Fault, FileRead, Limits, PageCache, Reads, Window};

/// The names that [`Policy::by_name`] knows, the default first.
pub const NAMES: [&str; 10] =
    ["adaptive", "none", "2.6.20", "2.6.23", "2.6.24", "3.14", "4.10", "6.8", "6.19", "6.19-folios"];

/// Those of the kernel.
pub const KERNELS: [&str; 8] = ["2.6.20", "2.6.23", "2.6.24", "3.14", "4.10", "6.8", "6.19", "6.19-folios"];

/// What a policy is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Of the device, for the kernel's policies.
    pub limits: Limits,
    /// Of the device and the budget, for the adaptive one.
    pub adaptive: adaptive::Config,
}

/// Any of the policies.
#[derive(Clone, Debug)]
pub struct Policy(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Adaptive(Adaptive),
    TwoWindows(TwoWindows),
    OnDemand(OnDemand),
    Modern(Modern),
    None,
}

/// What any of the policies keeps for an open file.
#[derive(Clone, Debug)]
pub struct FileState(State);

#[derive(Clone, Debug)]
enum State {
    Adaptive(adaptive::File),
    TwoWindows(v2_6_20::File),
    Window(Window),
    None,
}

impl Policy {
    /// The policy of that name in its initial state; `None` for a name not in [`NAMES`].
    #[must_use]
    pub fn by_name(name: &str, config: Config) -> Option<Policy> {
        let limits = config.limits;
        let on_demand = |era| Kind::OnDemand(OnDemand { era, limits });
        Some(Policy(match name {
            "adaptive" => Kind::Adaptive(Adaptive::new(config.adaptive)),
            "none" => Kind::None,
            "2.6.20" => Kind::TwoWindows(TwoWindows { limits }),
            "2.6.23" => on_demand(Era::V2_6_23),
            "2.6.24" => on_demand(Era::V2_6_24),
            "3.14" => on_demand(Era::V3_14),
            "4.10" => on_demand(Era::V4_10),
            "6.8" => on_demand(Era::V6_8),
            "6.19" => Kind::Modern(Modern { limits, large_folios: false }),
            "6.19-folios" => Kind::Modern(Modern { limits, large_folios: true }),
            _ => return None,
        }))
    }
}

/// Evaluates an expression with the policy in use and its part of the file's state.
macro_rules! dispatch {
    ($policy:expr, $file:expr, |$inner:ident, $state:ident| $call:expr, none: $none:expr) => {
        match (&mut $policy.0, &mut $file.0) {
            (Kind::Adaptive($inner), State::Adaptive($state)) => $call,
            (Kind::TwoWindows($inner), State::TwoWindows($state)) => $call,
            (Kind::OnDemand($inner), State::Window($state)) => $call,
            (Kind::Modern($inner), State::Window($state)) => $call,
            (Kind::None, State::None) => $none,
            _ => panic!("a file is asked about with the policy that opened it"),
        }
    };
}

impl FileRead for Policy {
    type File = FileState;

    fn open(&mut self) -> FileState {
        FileState(match &mut self.0 {
            Kind::Adaptive(policy) => State::Adaptive(policy.open()),
            Kind::TwoWindows(policy) => State::TwoWindows(policy.open()),
            Kind::OnDemand(policy) => State::Window(policy.open()),
            Kind::Modern(policy) => State::Window(policy.open()),
            Kind::None => State::None,
        })
    }

    fn close(&mut self, file: &mut FileState) {
        dispatch!(self, file, |policy, state| policy.close(state), none: ());
    }

    fn watches(&self) -> bool {
        matches!(self.0, Kind::TwoWindows(_))
    }

    fn watch(&mut self, file: &mut FileState, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) -> u64 {
        dispatch!(self, file, |policy, state| policy.watch(state, ask, cache, reads), none: u64::MAX)
    }

    fn missing(&mut self, file: &mut FileState, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        dispatch!(
            self,
            file,
            |policy, state| policy.missing(state, ask, cache, reads),
            none: reads.push(Extent {
                start: ask.page,
                pages: ask.pages,
                marker: None,
                cause: Cause::Random,
            })
        );
    }

    fn marked(&mut self, file: &mut FileState, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        dispatch!(self, file, |policy, state| policy.marked(state, ask, cache, reads), none: ());
    }

    fn finished(&mut self, file: &mut FileState, end: u64) {
        dispatch!(self, file, |policy, state| policy.finished(state, end), none: ());
    }

    fn advise(&mut self, file: &mut FileState, advice: Advice, cache: &dyn PageCache, reads: &mut Reads) {
        dispatch!(self, file, |policy, state| policy.advise(state, advice, cache, reads), none: ());
    }

    fn fault_missing(
        &mut self,
        file: &mut FileState,
        fault: &Fault,
        cache: &dyn PageCache,
        reads: &mut Reads,
    ) {
        dispatch!(
            self,
            file,
            |policy, state| policy.fault_missing(state, fault, cache, reads),
            none: ()
        );
    }

    fn fault_cached(
        &mut self,
        file: &mut FileState,
        fault: &Fault,
        cache: &dyn PageCache,
        reads: &mut Reads,
    ) {
        dispatch!(
            self,
            file,
            |policy, state| policy.fault_cached(state, fault, cache, reads),
            none: ()
        );
    }

    fn unused(&mut self, file: &mut FileState, page: u64) {
        dispatch!(self, file, |policy, state| policy.unused(state, page), none: ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_a_policy_and_no_other() {
        for name in NAMES {
            assert!(Policy::by_name(name, Config::default()).is_some(), "{name}");
        }
        assert!(KERNELS.iter().all(|name| NAMES.contains(name)));
        assert!(Policy::by_name("2.6.21", Config::default()).is_none());
    }
}
