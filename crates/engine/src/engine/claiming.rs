//! What areas claim of limits that all processes of a run have together.
//!
//! `mm` says how much an area is to use, and hears how much it may, and could. That is also told at
//! each look, where it has changed: what others have given back is room again. Who finds nothing
//! left where others claim, too, waits a little for them to give back what they do not use, before
//! the area counts as full.

use alloc::vec::Vec;

use overspill_mm::types::CHUNK_PAGES;
use overspill_mm::{AreaId, Event};
use overspill_sys::clock;

use super::Engine;
use crate::claims::{Claims, Limit};

/// What is given back at a time: a cluster of slots.
const CLUSTER: u32 = CHUNK_PAGES as u32;
/// Of a limit so much is claimed at a time, but no more than this.
const STEP_SHARE: u32 = 16;
const STEP_MAX: u32 = (64 << 20) / 4096;
/// For so long others may give back what they do not use.
const GRACE_NS: u64 = 25_000_000;
/// How often it is looked whether somebody has ended, where nothing is left.
const LOOK_NS: u64 = 100_000_000;

/// An area's claim.
pub(super) struct Claim {
    limits: Vec<Limit>,
    has: u32,
    /// What was told last: what it has, what it could have beside that, and whether others claim.
    told: (u32, u32, bool),
    /// Since when nothing has been left.
    refused_ns: Option<u64>,
    looked_ns: u64,
}

impl Claim {
    /// None: it has its limits for itself.
    pub fn new(claims: Option<&Claims>, limits: Vec<Limit>) -> Option<Claim> {
        let claims = claims.filter(|_| !limits.is_empty())?;
        limits.iter().for_each(|&limit| claims.appear(limit));
        Some(Claim { limits, has: 0, told: (0, u32::MAX, false), refused_ns: None, looked_ns: 0 })
    }

    /// So much is claimed at a time.
    pub fn step(&self) -> u32 {
        let least = self.limits.iter().map(|limit| limit.pages).min().unwrap_or(0);
        (least / STEP_SHARE / CLUSTER * CLUSTER).clamp(CLUSTER, STEP_MAX)
    }

    fn left(&self, claims: &Claims) -> u32 {
        self.limits.iter().map(|&limit| claims.left(limit)).min().unwrap_or(0)
    }

    /// Has so many slots from now on, or as many as there are.
    fn set(&mut self, claims: &Claims, slots: u32) {
        if slots <= self.has {
            claims.give(&self.limits, self.has - slots);
            self.has = slots;
            return;
        }
        let (more, left) = (slots - self.has, self.left(claims));
        // Part of a cluster is of no use.
        let some = if more <= left { more } else { left / CLUSTER * CLUSTER };
        let taken = [some, CLUSTER.min(more)].into_iter().find(|&part| claims.take(&self.limits, part));
        self.has += taken.unwrap_or(0);
    }

    /// What is to be told now.
    fn news(&mut self, claims: &mut Claims, now: u64) -> (u32, u32, bool) {
        let has_company = self.limits.iter().any(|&limit| claims.has_company(limit));
        let mut left = self.left(claims);
        if left < CLUSTER && has_company && now >= self.looked_ns + LOOK_NS {
            self.looked_ns = now;
            self.limits.iter().for_each(|&limit| claims.find_ended(limit));
            left = self.left(claims);
        }
        if left >= CLUSTER || !has_company {
            self.refused_ns = None;
            return (self.has, left, has_company);
        }
        let since = *self.refused_ns.get_or_insert(now);
        (self.has, if now < since + GRACE_NS { CLUSTER } else { left }, has_company)
    }
}

impl Engine {
    /// `mm` wants the area to have so many slots.
    pub(super) fn claim(&mut self, area: AreaId, slots: u32) {
        let claim = self.areas[usize::from(area.0)].claim.as_mut();
        let Some((claim, claims)) = claim.zip(self.claims.as_mut()) else { return };
        claim.set(claims, slots);
        claim.told = claim.news(claims, clock::monotonic_ns());
        let (slots, more, has_company) = claim.told;
        self.events.push_back(Event::Claimed { area, slots, more, has_company });
    }

    /// Tells `mm` what has changed since the last look.
    pub(super) fn look_at_claims(&mut self) {
        for index in 0..self.areas.len() {
            let claim = self.areas[index].claim.as_mut();
            let Some((claim, claims)) = claim.zip(self.claims.as_mut()) else { continue };
            let told = claim.news(claims, clock::monotonic_ns());
            if core::mem::replace(&mut claim.told, told) != told {
                let (slots, more, has_company) = told;
                self.feed(Event::Claimed { area: AreaId(index as u8), slots, more, has_company });
            }
        }
    }

    /// The area is used no more, whatever it is still to be told.
    ///
    /// *The story:* `mm` gives up what does not serve, which is all but the header's cluster, when it
    /// has told that the area was left: that one was claimed anew, and nobody could have it again.
    pub(super) fn close_claim(&mut self, area: AreaId) {
        let claim = self.areas[usize::from(area.0)].claim.take();
        if let Some((mut claim, claims)) = claim.zip(self.claims.as_ref()) {
            claim.set(claims, 0);
        }
    }
}
