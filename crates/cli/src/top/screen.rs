//! The live view on a terminal: a bar for each budget, a table for its processes, redrawn in place.
//! `q`, Escape, Ctrl-C and signals end it; the terminal is as before then.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Gauge, Paragraph, Row, Table};
use termion::raw::IntoRawMode;
use termion::screen::IntoAlternateScreen;

use crate::os::signals;

use super::scan::Look;
use super::view::{DISPENSABLE, HEADER, View, views};

/// `q`, Ctrl-C and Escape.
const ENDING: [u8; 3] = [b'q', 3, 27];
/// Columns' widths: the widest figure that is likely. One that is wider loses its end, and is another.
const WIDTHS: [u16; 10] = [7, 12, 7, 10, 10, 8, 8, 10, 10, 7];
/// Bar, header.
const LINES_BESIDE_ROWS: u16 = 3;
/// How soon a signal is seen.
const GLANCE: Duration = Duration::from_millis(50);

/// Shows the runs until a key or a signal ends it; a signal ends this process, too.
pub fn show(pids: &[u32], interval: Duration) -> Result<()> {
    signals::survive(&signals::ENDING);
    let shown = draw_until_ended(pids, interval);
    match signals::last() {
        Some(signal) => signals::die_by(signal),
        None => shown,
    }
}

/// The terminal is given back when this returns.
fn draw_until_ended(pids: &[u32], interval: Duration) -> Result<()> {
    let raw = io::stdout().into_raw_mode().context("the terminal cannot be drawn on")?;
    let screen = raw.into_alternate_screen().context("the terminal cannot be drawn on")?;
    let mut terminal = Terminal::new(TermionBackend::new(screen)).context("the terminal")?;
    terminal.hide_cursor().context("the terminal")?;
    let keys = keys();
    let mut before = Look::now(pids);
    let mut pause = interval.min(Duration::from_millis(250)); // the first figures come soon
    while !is_ended(&keys, pause) {
        pause = interval;
        let now = Look::now(pids);
        let shown = views(&before, &now);
        terminal.draw(|frame| draw(frame, &shown, now.nothing())).context("the terminal")?;
        before = now;
    }
    terminal.show_cursor().context("the terminal")
}

/// Waits for so long; whether a key or a signal has ended it meanwhile.
fn is_ended(keys: &Receiver<u8>, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if signals::last().is_some() || left.is_zero() {
            return signals::last().is_some();
        }
        match keys.recv_timeout(left.min(GLANCE)) {
            Ok(key) if ENDING.contains(&key) => return true,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(left.min(GLANCE)),
        }
    }
}

/// What is typed, byte by byte.
fn keys() -> Receiver<u8> {
    let (sender, receiver) = sync_channel(16);
    std::thread::spawn(move || {
        for byte in io::stdin().lock().bytes().map_while(Result::ok) {
            if sender.send(byte).is_err() {
                break;
            }
        }
    });
    receiver
}

fn draw(frame: &mut Frame<'_>, views: &[View], nothing: &str) {
    let heights = views.iter().map(|view| {
        Constraint::Length(
            u16::try_from(view.rows.len() + view.places.len())
                .unwrap_or(u16::MAX)
                .saturating_add(LINES_BESIDE_ROWS),
        )
    });
    let rest = [Constraint::Min(0), Constraint::Length(1)];
    let areas = Layout::vertical(heights.chain(rest)).split(frame.area());
    for (view, area) in views.iter().zip(areas.iter()) {
        draw_run(frame, view, *area);
    }
    if views.is_empty() {
        frame.render_widget(Paragraph::new(nothing), areas[0]);
    }
    frame.render_widget(Paragraph::new("q: end").style(faint()), areas[areas.len() - 1]);
}

fn draw_run(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let heights = [1, view.places.len() as u16, 1].map(Constraint::Length).into_iter();
    let [heading, places, bar, table] = *Layout::vertical(heights.chain([Constraint::Min(0)])).split(area)
    else {
        return;
    };
    frame.render_widget(Paragraph::new(view.places.join("\n")), places);
    frame.render_widget(Paragraph::new(view.heading.as_str()), heading);
    let gauge = Gauge::default().percent(view.percent.min(100) as u16).label("");
    let gauge = if colours() { gauge.gauge_style(Color::Cyan) } else { gauge };
    frame.render_widget(gauge, bar);
    let columns = columns_for(area.width);
    let rows = view.rows.iter().map(|row| Row::new(columns.iter().map(|&column| row[column].clone())));
    let header = Row::new(columns.iter().map(|&column| HEADER[column])).style(faint());
    let widths = columns.iter().map(|&column| WIDTHS[column]);
    frame.render_widget(Table::new(rows, widths).header(header), table);
}

/// The columns that so wide a terminal has room for.
fn columns_for(width: u16) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..HEADER.len()).collect();
    for name in DISPENSABLE {
        let gaps = columns.len() as u16 - 1;
        if columns.iter().map(|&column| WIDTHS[column]).sum::<u16>() + gaps <= width {
            break;
        }
        columns.retain(|&column| HEADER[column] != name);
    }
    columns
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// Unless the user does without.
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;

    #[test]
    fn runs_are_drawn_one_below_the_other() {
        let view = |pid: u32| View {
            places: vec![],
            heading: format!("{pid}  sort: 50.0 MiB of 100.0 MiB (50 %)"),
            percent: 50,
            rows: vec![HEADER.map(|name| format!("{pid}{}", &name[..1])).to_vec()],
        };
        let mut terminal = Terminal::new(TestBackend::new(100, 12)).unwrap();
        terminal.draw(|frame| draw(frame, &[view(7), view(8)], "no run")).unwrap();
        let text = terminal.backend().to_string();
        let line = |word: &str| text.lines().position(|line| line.contains(word)).unwrap_or(usize::MAX);
        assert!(line("7  sort") < line("7p") && line("7p") < line("8  sort"), "{text}");
        assert!(text.contains("stalled") && text.contains("q: end"), "{text}");
        // *The story:* in 80 columns all ten were squeezed, and figures lost their ends.
        let mut narrow = Terminal::new(TestBackend::new(80, 24)).unwrap();
        narrow.draw(|frame| draw(frame, &[view(7)], "no run")).unwrap();
        let text = narrow.backend().to_string();
        assert!(text.contains("resident") && text.contains("stalled") && !text.contains("p50"), "{text}");
        assert_eq!(columns_for(100).len(), HEADER.len());
        // *The story:* 1010.5 MiB a second were 1010.5 Mi.
        let fast = View { rows: vec![vec!["1010.5 MiB".to_owned(); HEADER.len()]], ..view(7) };
        terminal.draw(|frame| draw(frame, &[fast], "no run")).unwrap();
        assert_eq!(terminal.backend().to_string().matches("1010.5 MiB").count(), 5);
        terminal.draw(|frame| draw(frame, &[], "no run")).unwrap();
        assert!(terminal.backend().to_string().contains("no run"));
    }
}
