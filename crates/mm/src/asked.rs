//! What the program, or the shell, asks for ahead: read where it is out, kept where it is in.
//!
//! Of anonymous memory only what is free is filled: nothing leaves for it. Of a file as much as
//! read-ahead would take: reclaim makes room, and whoever asks goes on then. So what is there already
//! must not be what makes room for the rest: it is as good as new. No marks, no windows (section
//! 4.7); a kernel's rules leave alone what is there.

use crate::event::Actions;
use crate::fault::Reads;
use crate::list::ListId;
use crate::mm::Mm;
use crate::page::{State, flag};
use crate::readahead::SwapIn;
use crate::types::{PageId, RegionKind, SpaceId, Vpn};

impl<P: SwapIn> Mm<P> {
    /// Reads what is on swap in `[start, end)`, as far as frames are free that reclaim would not
    /// miss.
    pub(crate) fn will_need(&mut self, space: SpaceId, start: Vpn, end: Vpn, out: &mut Actions) {
        let mut reads = Reads::default();
        let kept = if self.config.probe.is_kernel() { self.low() / 4 } else { self.low() };
        let is_file = matches!(self.kind(space, start), RegionKind::File { .. });
        self.yield_filler(u32::try_from(end.0 - start.0).unwrap_or(u32::MAX), out);
        let mut spare = if is_file { self.spare_frames() } else { self.frames_free().saturating_sub(kept) };
        let stays = is_file && !self.config.probe.is_kernel();
        self.know_file_pages(space, start, end.min(start.offset(i64::from(spare))));
        self.each_page(space, start, end, |mm, id| {
            if spare > 0 && mm.is_on_swap(id) {
                spare -= 1;
                mm.read_unasked(id, &mut reads, out);
            } else if stays {
                mm.keep_asked(id, out);
            }
        });
        self.flush(&mut reads, out);
    }

    /// A page that has a frame will be needed: it is as good as new, and comes into view.
    fn keep_asked(&mut self, id: PageId, out: &mut Actions) {
        let page = &mut self.pages[id];
        match page.state {
            State::Mapped if page.has(flag::UNMAPPING) => page.set(flag::EAGER),
            State::Writing => page.set(flag::EAGER),
            State::Mapped if page.list == ListId::Inactive as u8 => {
                page.clear(flag::BEHIND);
                self.lists.remove(&mut self.pages, id);
                self.lists.push_head(&mut self.pages, ListId::Inactive, id);
            }
            // A stream waits for its mark to be touched.
            State::Cached if page.has(flag::MARKER) => {}
            State::Cached => self.show_asked(id, out),
            _ => {}
        }
    }

    fn show_asked(&mut self, id: PageId, out: &mut Actions) {
        self.pages[id].clear(flag::BEHIND);
        self.count_eager(id);
        let list = self.foreseen(id);
        self.map(id, list, out);
    }

    /// It was asked for while it was taken out of view, or written; it has its frame still.
    pub(crate) fn asked_on_its_way_out(&mut self, id: PageId, out: &mut Actions) {
        self.pages.set_state(id, State::Cached);
        self.show_asked(id, out);
    }
}
