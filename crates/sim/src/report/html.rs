//! One HTML file with the curves and the table: no network, no library, nothing but itself.
//!
//! The rows go in as JSON, with the table's texts beside them, so that curves and table say the
//! same; a page of hand-written script draws them as SVG: time over RAM by default, any figure by
//! choice, a curve for each combination of the rest, with values under the pointer.

use super::explain::Knee;
use super::json::Report;
use super::{Header, Row, table};
use serde::Serialize;

const PAGE: &str = include_str!("page.html");

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    report: Report<'a>,
    /// By row and column of the table.
    cells: Vec<Vec<String>>,
    /// Where RAM begins to be enough, for a mark in the picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    knee: Option<&'a Knee>,
}

/// The file's text.
#[must_use]
pub fn render(header: &Header, rows: &[Row], explanation: Option<&str>, knee: Option<&Knee>) -> String {
    // Nothing may end the script element that holds the data, nor begin a comment in it.
    let data = Data {
        report: Report::new(header, rows, explanation),
        cells: rows.iter().map(table::cells).collect(),
        knee,
    };
    let data = serde_json::to_string(&data).expect("strings and integers have a JSON form");
    let data = data.replace('<', "\\u003c");
    let options = escape(&table::options(header));
    PAGE.replace("@TITLE@", &escape(&header.workload))
        .replace("@OPTIONS@", options.trim_end())
        .replace("@EXPLANATION@", &escape(explanation.unwrap_or("")))
        .replace("@COMMAND@", &escape(&knee.map_or_else(String::new, Knee::command)))
        .replace("@DATA@", &data)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('@', "&#64;")
}

#[cfg(test)]
mod tests {
    use super::super::explain::Cost;
    use super::super::sample;
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_nobody() {
        let header = Header {
            workload: "</script><!--<script><b>".to_owned(),
            workload_bytes: 1 << 30,
            seed: None,
            page_cluster: 3,
            processors: 2,
            counted: None,
            has_no_unit: false,
            pool: None,
            version: "0.1.0".to_owned(),
        };
        let knee = Knee {
            cost: Cost::Time,
            whole_bytes: 1 << 30,
            unlimited: 100,
            fine: (600 << 20, 105),
            thrash: Some((500 << 20, 250)),
            least: (501 << 20, 199),
            floor: None,
        };
        let page = render(&header, &[sample(1 << 20, "linux", 5)], Some("with 1 MiB < 2 MiB"), Some(&knee));
        assert!(page.contains("overspill run --ram 600M -- CMD"), "the command is on it");
        for place in ["@TITLE@", "@OPTIONS@", "@EXPLANATION@", "@COMMAND@", "@DATA@"] {
            assert!(!page.contains(place), "{place} is filled");
        }
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("with 1 MiB &lt; 2 MiB"));
        for foreign in ["http://", "https://", "src=", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(foreign);
            assert!(!found, "{foreign}");
        }
        let start = page.find("type=\"application/json\">").expect("the data is there");
        let data = &page[start + 24..];
        let data = &data[..data.find("</script>").expect("it ends")];
        let value: serde_json::Value = serde_json::from_str(data).expect("it is JSON");
        assert_eq!(value["rows"][0]["readahead"], "linux");
        assert_eq!(
            (&value["knee"]["fine"][0], &value["knee"]["cost"]),
            (&(600 << 20).into(), &"time".into())
        );
        assert_eq!(value["options"]["workload"], "</script><!--<script><b>");
        assert!(
            !data.contains('<'),
            "*The story:* behind `<!--<script` the element does not end where it should"
        );
        let texts = table::cells(&sample(1 << 20, "linux", 5));
        assert_eq!(value["cells"][0], serde_json::json!(texts));
        // The script names the columns itself: they must be as many, and in the same order where it
        // names a field.
        let columns = &page[page.find("const columns = [").expect("the script has them")..];
        let columns = &columns[..columns.find("];").expect("they end")];
        assert_eq!(columns.matches("[\"").count(), texts.len());
    }
}
