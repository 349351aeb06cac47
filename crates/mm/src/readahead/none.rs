//! No read-ahead: every fault reads its own page. The baseline, and `page_cluster` 0 without the bookkeeping.

use super::{Plan, SwapIn, Touch};
use crate::types::Vpn;

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReadAhead;

impl SwapIn for NoReadAhead {
    type Region = ();

    fn cached(&mut self, (): &mut (), _: &Touch) -> Option<Plan> {
        None
    }

    fn miss(&mut self, (): &mut (), _: &Touch) -> Option<Plan> {
        None
    }

    fn unused(&mut self, (): &mut (), _: Vpn) {}
}
