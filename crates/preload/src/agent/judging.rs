//! What a manager makes of the notices of its engine: what the user is told, and when the program
//! stops or ends.

use core::sync::atomic::Ordering;

use overspill_engine::Notice;
use overspill_engine::shared::{events, flags, state};
use overspill_sys::Errno;
use overspill_sys::procfs::Fields;
use overspill_sys::thread;

use rustix::process::Signal;

use super::{Manager, own_ranges};
use crate::{fork, message};

/// A program that has passed its budget ends when less than this share of the machine's memory is
/// left: a sixteenth. Of a memory cgroup the launcher tells the same.
const LEFT_SHARE: u64 = 16;
/// How often it is looked for what is left, beside each tenth.
const LOOK_NS: u64 = 100_000_000;

/// What was told of an excess since swap is full, in tenths of the budget, and when it is looked for
/// what the machine has left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excess {
    told: u32,
    looks_at: u64,
}

impl Manager<'_> {
    pub(super) fn judge_all(&mut self) {
        while let Some(notice) = self.engine.notice() {
            self.judge(notice);
        }
    }

    fn judge(&mut self, notice: Notice) {
        match notice {
            Notice::Unknown { address, write, thread } => {
                if !self.adopter.adopt_grown(&mut self.engine, address) {
                    let mapping = |page| self.adopter.mapping_at(page);
                    if self.growing.lets_go(&mut self.engine, address, thread, mapping) {
                        return;
                    }
                    let own = own_ranges(&self.engine);
                    let _ = self.adopter.adopt_at(&mut self.engine, address, own);
                }
                self.engine.answer_unknown(address, write);
            }
            Notice::Stuck { address, write, thread } => {
                if !self.growing.lets_go_over(&mut self.engine, address, thread) {
                    self.engine.answer_unknown(address, write);
                }
            }
            Notice::Doorbell(_) => self.pause(),
            Notice::Populated => {
                self.permit_forks();
                let is_out = self.engine.is_handing_over();
                self.end_custody(is_out);
                fork::set_paused(is_out);
                self.engine.answer_doorbell(fork::doorbells().start);
            }
            Notice::SwapFull => self.swap_full(),
            Notice::AreaRetired => {
                self.engine.report().note_event(events::WRITE_ERROR);
                self.say(if self.engine.mm().is_swap_full() {
                    "a write to swap failed: pages stay in RAM from now on, above the budget"
                } else {
                    "a write to swap failed: that area takes no more, and its pages go to the others"
                });
            }
            Notice::AreaNotEmptied { pages } => self.say_words(format_args!(
                "{pages} pages of a place that is to be left cannot be read: they stay there"
            )),
            Notice::PageLost { poisoned, of_file, is_first, .. } => {
                let lies = self.engine.report().last_error() == Errno::BADMSG;
                match (of_file, lies) {
                    // There may be many, and the kernel says nothing at all.
                    _ if !is_first => {}
                    (true, _) => self.say(
                        "a page of a mapped file could not be read: the program gets SIGBUS where it \
                         touches it, as it would from the kernel",
                    ),
                    (false, true) => self.say(
                        "a page came back from swap that is not what was written there (its checksum \
                         differs): the program gets SIGBUS where it touches it",
                    ),
                    (false, false) => self.say(
                        "a page could not be read back from swap: the program gets SIGBUS where it \
                         touches it",
                    ),
                }
                if !poisoned {
                    // This kernel cannot mark the page. Going on would show wrong bytes.
                    // Whatever the program has SIGBUS do: who waits for the page waits for ever.
                    thread::end_process_by(Signal::BUS.as_raw().cast_unsigned());
                }
            }
        }
    }

    fn swap_full(&mut self) {
        self.engine.report().note_event(events::SWAP_FULL);
        if self.agent.has(flags::STRICT) {
            self.agent.process.state.store(state::STRICT_FULL, Ordering::Release);
            message::kill();
        }
        let stops = self.agent.has(flags::STOP_WHEN_FULL);
        self.say(match (stops, message::can_stop()) {
            (true, true) => "swap is full: the program is stopped; SIGCONT lets it go on above its budget",
            (true, false) => {
                "swap is full: the first process of a pid namespace cannot be stopped and goes on above \
                 its budget"
            }
            (false, _) => "swap is full: the program goes on above its budget",
        });
        if stops {
            message::stop();
            self.engine.allow_float();
        }
        self.excess.get_or_insert(Excess::default());
    }

    /// What the kernel lets nobody take out is said when it is found, and when it has doubled since.
    pub(super) fn tell_sealed(&mut self) {
        let sealed = self.engine.sealed_bytes();
        if sealed > 2 * self.sealed_told {
            self.sealed_told = sealed;
            self.say_words(format_args!("{} MiB of sealed memory (mseal) stay in RAM", sealed >> 20));
        }
    }

    /// Swap is full, and the process holds `held` bytes: each tenth of the budget that is held beyond
    /// it, by all that share it, is said, and before there is nothing left for others the program ends.
    ///
    /// *The story:* of four processes in one budget none held more than that by itself. Nothing was
    /// said, and nobody looked what the machine had left.
    pub(super) fn bound_excess(&mut self, held: u64, now: u64) {
        let Some(Excess { told, looks_at }) = self.excess else { return };
        let ram = self.agent.ram();
        let excess = self.agent.purse.excess(held);
        let tenths = u32::try_from(excess / (ram / 10).max(1)).unwrap_or(u32::MAX / 10);
        if excess == 0 {
            return;
        }
        if tenths > told && self.agent.purse.tells(tenths, told) {
            self.say_words(format_args!("the program holds {} % more than its budget", tenths * 10));
        }
        let is_due = tenths > told || now >= looks_at;
        if is_due {
            self.excess = Some(Excess { told: tenths.max(told), looks_at: now + LOOK_NS });
        }
        let tree = &self.agent.shared.tree;
        let is_group_full = now < tree.group_full_until_ns.load(Ordering::Acquire);
        if (is_group_full || is_due && is_scarce()) && tree.takes_end(now) {
            self.say("there is next to no memory left: the program is ended");
            self.agent.process.state.store(state::STRICT_FULL, Ordering::Release);
            message::kill();
        }
    }
}

/// Is next to nothing left of the machine's memory? What the tree's books say is no answer: a child of
/// fork has all of its parent's in there.
///
/// *The story:* a server whose budget was near all that the machine has forked, and was ended for one
/// page with gigabytes left.
fn is_scarce() -> bool {
    let machine = Fields::of_machine();
    let bytes = |name| machine.as_ref().ok().and_then(|fields| fields.number(name));
    bytes("MemAvailable").zip(bytes("MemTotal")).is_some_and(|(left, all)| left < all / LEFT_SHARE)
}
