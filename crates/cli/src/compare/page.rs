//! The comparison as one HTML file: a bar for each way's time, and the table. Nothing is loaded
//! from anywhere.

use super::figures::Median;
use super::table::Table;
use crate::human::{self, escaped};

const STYLE: &str = "\
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.2rem; font-family: monospace; overflow-wrap: anywhere }
table { border-collapse: collapse; margin-top: 1.5rem }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left }
.bar { display: grid; grid-template-columns: 11rem 1fr; margin: .3rem 0 }
.bar i { display: inline-block; height: 1em; background: #6a8caf; vertical-align: middle; margin-right: .5em }
.bar.own i { background: #c75b39 }
";

/// The file's text.
pub fn render(title: &str, budget: &str, ratios: &str, medians: &[Median], table: &Table) -> String {
    let title = escaped(title);
    let bars = bars(medians);
    let (budget, ratios, table) = (escaped(budget), escaped(ratios), table.html());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{title}</h1>\n<p>{budget}</p>\n<p>Time, shorter is better:</p>\n\
         {bars}{table}<pre>{ratios}</pre>\n</html>\n"
    )
}

fn bars(medians: &[Median]) -> String {
    let longest = medians.iter().map(|median| median.wall_seconds).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |median: &Median| {
        let own = if median.way.starts_with("overspill") { " own" } else { "" };
        let percent = 80.0 * median.wall_seconds / longest;
        let time = human::seconds(median.wall_seconds);
        let way = escaped(&median.way);
        format!(
            "<div class=\"bar{own}\"><b>{way}</b><span><i style=\"width:{percent:.1}%\"></i>{time}</span></div>\n"
        )
    };
    medians.iter().map(bar).collect()
}
