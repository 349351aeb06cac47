//! docs/json.md has every field of every JSON that the command writes, in the words of the sources,
//! and no other; and what commands really write has no field that is not there.
//!
//! It is made from the sources as docs/map.md is: `OVERSPILL_WRITE_JSON=1 cargo test -p overspill
//! --test json_doc` writes it anew.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::{Scratch, overspill, stderr, stdout};

const DOCUMENT: &str = "docs/json.md";
const COLUMNS: usize = 100;

const HEAD: &str = "\
# JSON

What `--json` writes, by command (`run`, `compare` and `bench`: to a file; the others: to standard
output), and `bench --out`. Made from the sources, and held to them by a test.

- `schema_version` changes when a field changes its meaning or goes away. New fields may come
  without that: pass over what you do not know.
- The unit of a number is in its name (*permille* are thousandths) or in parentheses. A count has
  none, nor has a share, which goes from 0 to 1. A field that may be missing or null has a question
  mark.
- Counters with the kernel's names count what the kernel's own count: `pswpin`, `pswpout` and those
  like them are pages of 4096 bytes, faults and the rest are counts.
- `run` has them in `vmstat` (`report[\"vmstat\"][\"pswpin\"]`), `sim` in each row
  (`rows[0][\"pswpin\"]`). What is `pgmajfault` there is `faults_major` in `sim`.
- Names that are no UTF-8 have U+FFFD where that is so.
";

/// A section: its heading, what to say first, and the types in it: where one stands in the document,
/// the file, and the type.
struct Section(&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const MACHINE: (&str, &str, &str) = ("`machine`", "crates/cli/src/machine.rs", "Machine");
const DEVICE: (&str, &str, &str) = ("`machine.swap_device`", "crates/cli/src/machine.rs", "Device");

const SECTIONS: &[Section] = &[
    Section(
        "run --json FILE",
        "",
        &[
            ("", "crates/cli/src/run/report/mod.rs", "Report"),
            ("`places[]`", "crates/cli/src/run/places.rs", "Place"),
            ("`slowdown`", "crates/cli/src/run/report/slowdown.rs", "Slowdown"),
            ("`verdict`", "crates/cli/src/run/report/verdict.rs", "Verdict"),
            ("`scanning`", "crates/cli/src/run/report/scanning.rs", "Scanning"),
            (
                "`soft_faults`, `major_faults`, there and of a process",
                "crates/cli/src/histogram.rs",
                "Latency",
            ),
            ("`processes[]`", "crates/cli/src/run/report/mod.rs", "Process"),
            (
                "`vmstat` and, with names of its own, `pager`, there and of a process",
                "crates/engine/src/shared.rs",
                "counters!",
            ),
        ],
    ),
    Section(
        "compare --json FILE, bench --json FILE, bench --out DIR",
        "`bench files` has a document of its own, below. Latencies are as those of `run`.",
        &[
            ("", "crates/cli/src/compare/mod.rs", "Document"),
            MACHINE,
            DEVICE,
            ("`medians[]`", "crates/cli/src/compare/figures.rs", "Median"),
            ("`ratios[]`", "crates/cli/src/compare/figures.rs", "Ratio"),
            ("`runs[]`", "crates/cli/src/compare/lab.rs", "Measurement"),
            ("`runs[].load`, of `bench`", "crates/cli/src/load/mod.rs", "Done"),
            ("`runs[].load.parts[]`", "crates/cli/src/load/mod.rs", "Part"),
            ("`runs[].load.traffic`", "crates/cli/src/load/traffic.rs", "Traffic"),
            ("`parameters`, of `bench`", "crates/cli/src/bench/mod.rs", "Parameters"),
            ("`parameters.rows[]`, of a suite", "crates/cli/src/bench/rows.rs", "Row"),
            ("`parameters.rows[].kinds[]`", "crates/cli/src/bench/rows.rs", "Kind"),
            ("`parameters.goals[]`, of a suite", "crates/cli/src/bench/goals.rs", "Verdict"),
            ("`parameters`, of `bench reclaim`", "crates/cli/src/bench/reclaim.rs", "Parameters"),
            ("`parameters.rows[]`, of `bench reclaim`", "crates/cli/src/bench/reclaim.rs", "Row"),
            ("`parameters.rows[].load`, of that", "crates/cli/src/load/neighbours.rs", "Neighbours"),
            ("`readers[]`, `alone`, `beside` of that", "crates/cli/src/load/neighbours.rs", "Part"),
        ],
    ),
    Section(
        "bench files --json FILE",
        "`machine` is as above.",
        &[
            ("", "crates/cli/src/bench/files.rs", "Document"),
            ("`rows[]`", "crates/cli/src/bench/files.rs", "Row"),
            ("`rows[].runs[]`", "crates/cli/src/load/files.rs", "Done"),
            ("`rows[].runs[].laps[]`", "crates/cli/src/load/files.rs", "Lap"),
        ],
    ),
    Section(
        "sim TRACE-or-LOAD --json",
        "",
        &[
            ("", "crates/sim/src/report/json.rs", "Report"),
            ("`options`", "crates/sim/src/report/mod.rs", "Header"),
            ("`options.counted`", "crates/sim/src/trace/workload.rs", "Counted"),
            ("`rows[]`", "crates/sim/src/report/mod.rs", "Row"),
            ("`rows[]`, reclaim's counters", "crates/sim/src/report/mod.rs", "Reclaim"),
            ("`replacement[]`", "crates/sim/src/replace/report.rs", "Cell"),
        ],
    ),
    Section(
        "sim TRACE --json, of calls on files",
        "",
        &[
            ("", "crates/sim/src/files/report.rs", "Report"),
            ("`options`", "crates/sim/src/files/report.rs", "Header"),
            ("`rows[]`", "crates/sim/src/files/report.rs", "Row"),
        ],
    ),
    Section(
        "sim policies --json",
        "An array of two: one entry for each policy, then one for each trace and amount of RAM.",
        &[
            ("`[0][]`", "crates/cli/src/sim/policies.rs", "Summary"),
            ("`[1][]`", "crates/cli/src/sim/policies.rs", "Point"),
            ("`[1][].policies[]`", "crates/cli/src/sim/policies.rs", "Figures"),
        ],
    ),
    Section(
        "sim reclaim --json",
        "",
        &[
            ("", "crates/cli/src/sim/reclaim.rs", "Table"),
            ("`lines[]`", "crates/cli/src/sim/reclaim.rs", "Line"),
            ("`counters[]`", "crates/cli/src/sim/reclaim.rs", "Counter"),
        ],
    ),
    Section(
        "sim validate --json",
        "An array, an entry for each counter of each load.",
        &[("`[]`", "crates/cli/src/sim/validate/verdict.rs", "Figure")],
    ),
    Section(
        "sim paper --json",
        "An array, an entry for each table.",
        &[
            ("`[]`", "crates/sim/src/paper/sheet.rs", "Sheet"),
            ("`[].rows[]`", "crates/sim/src/paper/sheet.rs", "Row"),
            ("`[].rows[].cells[]`", "crates/sim/src/paper/sheet.rs", "Cell"),
        ],
    ),
    Section("trace info --json", "", &[("", "crates/cli/src/trace.rs", "info_json")]),
    Section(
        "swap info --json",
        "",
        &[
            ("", "crates/cli/src/swap/info.rs", "Info"),
            ("`header`", "crates/cli/src/swap/info.rs", "HeaderInfo"),
            ("`layout`", "crates/cli/src/swap/info.rs", "LayoutInfo"),
            ("`layout.lookup[]`", "crates/cli/src/swap/info.rs", "LookupInfo"),
        ],
    ),
    Section(
        "doctor --json",
        "",
        &[
            ("", "crates/cli/src/doctor.rs", "Document"),
            ("`checks[]`", "crates/cli/src/checks/mod.rs", "Check"),
        ],
    ),
];

/// What has a form in JSON and is no part of these documents.
const ELSEWHERE: &[(&str, &str)] = &[
    ("crates/cli/src/checks/mod.rs", "Status"), // words, told with their field
    ("crates/cli/src/compare/guardian.rs", "Resource"), // told to another process of ours
    ("crates/cli/src/compare/guardian.rs", "Note"),
    ("crates/cli/src/load/files.rs", "How"),
    ("crates/sim/src/sweep.rs", "System"),
    ("crates/sim/src/sweep.rs", "Extent"),
    ("crates/sim/src/report/explain.rs", "Cost"), // on a page of curves
    ("crates/sim/src/report/explain.rs", "Knee"),
    ("crates/sim/src/report/html.rs", "Data"),
    ("crates/cli/src/swap/layout.rs", "Source"), // told with its field
    ("crates/sim/src/paper/sheet.rs", "Judge"),  // told with its field
    ("crates/sim/src/device/params.rs", "Model"), // files for --device
    ("crates/sim/src/device/params.rs", "DiskParams"),
    ("crates/sim/src/device/params.rs", "FlashParams"),
    ("crates/sim/src/device/params.rs", "NetworkParams"),
    ("crates/sim/src/device/params.rs", "RamParams"),
    ("crates/sim/src/device/params.rs", "LinearParams"),
];

/// Of `trace info`, whose fields are written without a type.
const TRACE_INFO: &[(&str, &str)] = &[
    ("schema_version", "Of this layout."),
    ("format", "The trace's format."),
    ("blocks?", "Blocks of a trace in the own format."),
    ("file_bytes?", "Length of such a trace."),
    ("loads", "Accesses that load."),
    ("stores", "Accesses that store."),
    ("fetches", "Accesses that fetch an instruction."),
    ("pager_events", "By name (see trace-format.md) how many of each the pager told of."),
    ("file_calls", "Calls on files."),
    ("file_bytes_read", "What these read."),
    ("file_bytes_written", "What these wrote."),
    ("files", "Files that they are of."),
    ("regions", "Regions declared."),
    ("pages", "Distinct pages."),
    ("pages_written", "Those of them that were stored to."),
    ("threads", "Threads."),
    ("first_ns?", "Time of the first record."),
    ("last_ns?", "Time of the last."),
    ("notes", "What the trace says of itself, a text each."),
    ("size_mean_bytes?", "Mean size of what counts as a page each."),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A field of a document.
#[derive(Debug, PartialEq)]
struct Field {
    name: String,
    unit: &'static str,
    is_optional: bool,
    meaning: String,
}

/// The unit that a name ends with.
fn unit(name: &str, kind: &str) -> &'static str {
    if !kind.contains("u64") && !kind.contains("u32") && !kind.contains("usize") && !kind.contains("f64") {
        return "";
    }
    let units = [
        ("_bytes", "bytes"),
        ("bytes_read", "bytes"),
        ("bytes_written", "bytes"),
        ("bytes_max", "bytes"),
        ("_seconds", "s"),
        ("seconds", "s"),
        ("_ns", "ns"),
        ("_permille", "permille"),
        ("_percent", "%"),
        ("_tenths", "tenths"),
        ("_kb", "KiB"),
        ("_pages", "pages"),
        ("pages", "pages"),
        ("pages_in", "pages"),
        ("pages_out", "pages"),
        ("_velocity", "pages/s"),
        ("pages_per_second", "pages/s"),
        ("megabytes_per_second", "MB/s"),
        ("pswpin", "pages"),
        ("pswpout", "pages"),
        ("zswpin", "pages"),
        ("zswpout", "pages"),
        ("zswpwb", "pages"),
        ("swap_ra", "pages"),
        ("swap_ra_hit", "pages"),
    ];
    let is_whole = |end: &str| !end.starts_with('_');
    let fits = |end: &str| name.ends_with(end) && (end.len() > 6 || !is_whole(end) || name == end);
    units.iter().find(|(end, _)| fits(end)).map_or("", |(_, unit)| unit)
}

/// The fields of a type in a source: those of a struct, of `counters!`, or the keys of `info_json`.
fn fields(source: &str, name: &str) -> Vec<Field> {
    match name {
        "counters!" => counters(source),
        "info_json" => keys(source),
        _ => of_struct(source, name),
    }
}

fn of_struct(source: &str, name: &str) -> Vec<Field> {
    let begins = |line: &&str| {
        let head = line.trim_start_matches("pub(super) ").trim_start_matches("pub ");
        let rest = head.strip_prefix("struct ").and_then(|head| head.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([' ', '<']))
    };
    let body = source.lines().skip_while(|line| !begins(line)).skip(1).take_while(|line| *line != "}");
    let (mut found, mut meaning, mut attributes) = (Vec::new(), String::new(), String::new());
    for line in body.map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            meaning = format!("{meaning}{words}");
        } else if line.starts_with("#[") {
            attributes += line;
        } else if let Some((name, kind)) = line.trim_start_matches("pub ").split_once(": ") {
            if !attributes.contains("serde(skip)") && !attributes.contains("serde(flatten)") {
                found.push(Field {
                    name: name.to_owned(),
                    unit: unit(name, kind),
                    is_optional: kind.starts_with("Option") || attributes.contains("skip_serializing_if"),
                    meaning: meaning.trim().to_owned(),
                });
            }
            (meaning, attributes) = Default::default();
        }
    }
    assert!(!found.is_empty(), "there is no struct {name}");
    found
}

fn counters(source: &str) -> Vec<Field> {
    let body =
        source.lines().skip_while(|line| *line != "counters! {").skip(1).take_while(|line| *line != "}");
    let (mut found, mut meaning) = (Vec::new(), String::new());
    for line in body.map(str::trim) {
        match line.strip_prefix("///") {
            Some(words) => meaning += words,
            None => {
                let name = line.trim_end_matches(',').to_owned();
                let meaning = std::mem::take(&mut meaning).trim().to_owned();
                found.push(Field { unit: unit(&name, "u64"), name, is_optional: false, meaning });
            }
        }
    }
    found
}

fn keys(source: &str) -> Vec<Field> {
    let body =
        source.lines().skip_while(|line| !line.starts_with("fn info_json")).take_while(|line| *line != "}");
    let key = |line: &str| Some(line.trim().strip_prefix('"')?.split_once("\": ")?.0.to_owned());
    let field = |name: String| {
        let known = TRACE_INFO.iter().find(|(known, _)| known.trim_end_matches('?') == name);
        let (known, meaning) = known.unwrap_or_else(|| panic!("say in TRACE_INFO what `{name}` is"));
        let (is_optional, meaning) = (known.ends_with('?'), (*meaning).to_owned());
        Field { unit: unit(&name, "u64"), name, is_optional, meaning }
    };
    body.filter_map(key).map(field).collect()
}

/// The sections' fields.
fn found(section: &Section) -> Vec<(&'static str, Vec<Field>)> {
    section.2.iter().map(|&(place, file, name)| (place, fields(&read(file), name))).collect()
}

/// A paragraph in lines that fit.
fn folded(text: &str) -> String {
    let (mut out, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out += &(std::mem::replace(&mut line, " ".to_owned()) + "\n");
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    out + &line + "\n"
}

fn bullet(field: &Field) -> String {
    let mark = if field.is_optional { "?" } else { "" };
    let is_told =
        ["_bytes", "_seconds", "_ns", "_permille", "_percent"].iter().any(|end| field.name.ends_with(end));
    let unit = if field.unit.is_empty() || is_told { String::new() } else { format!(" ({})", field.unit) };
    let meaning = linkless(&field.meaning);
    folded(&format!("- `{}`{mark}{unit}: {}", field.name, meaning.trim_end_matches('.')))
}

/// Links of the sources lead nowhere in a document.
fn linkless(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        text += &format!("\n## {}\n", section.0);
        if !section.1.is_empty() {
            text += &("\n".to_owned() + &folded(section.1));
        }
        for (place, fields) in found(section) {
            if !place.is_empty() {
                text += &format!("\n{place}:\n");
            }
            text += "\n";
            text.extend(fields.iter().map(bullet));
        }
    }
    text
}

#[test]
fn the_document_is_what_the_sources_say() {
    let made = document();
    if std::env::var_os("OVERSPILL_WRITE_JSON").is_some() {
        fs::write(root().join(DOCUMENT), &made).expect("the tree can be written");
    }
    let written = read(DOCUMENT);
    let stale = made.lines().find(|line| !written.contains(line));
    assert!(
        written == made,
        "{DOCUMENT} is not what the sources say ({stale:?}): write it anew with OVERSPILL_WRITE_JSON=1"
    );
}

#[test]
fn every_field_has_a_meaning_of_its_own() {
    for section in SECTIONS {
        for (place, fields) in found(section) {
            let vague = |field: &&Field| {
                let meaning = &field.meaning;
                meaning.is_empty() || meaning.starts_with("See there") || meaning.starts_with("...")
            };
            let wrong: Vec<_> = fields.iter().filter(vague).map(|field| &field.name).collect();
            assert!(wrong.is_empty(), "{}, {place}: {wrong:?} stand alone in the document", section.0);
        }
    }
}

/// Types that have a form in JSON, by their source.
fn types(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = source.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("#[derive(") && line.contains("Serialize") {
            let head = lines[index..].iter().find(|line| line.contains("struct ") || line.contains("enum "));
            let head = head.expect("a type is derived for").trim_start_matches("pub(super) ");
            let name = head.trim_start_matches("pub ").split([' ', '<', '(', ':']).nth(1);
            found.push(name.expect("it has a name").to_owned());
        }
    }
    found
}

fn sources(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, all);
        } else if entry.extension().is_some_and(|end| end == "rs") {
            all.push(entry);
        }
    }
}

#[test]
fn no_type_is_forgotten() {
    let (root, mut all) = (root(), Vec::new());
    for directory in ["crates/cli/src", "crates/sim/src"] {
        sources(&root.join(directory), &mut all);
    }
    let told = SECTIONS.iter().flat_map(|section| section.2).map(|&(_, file, name)| (file, name));
    let known: BTreeSet<(&str, &str)> = told.chain(ELSEWHERE.iter().copied()).collect();
    for path in all {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        for name in types(&fs::read_to_string(&path).unwrap()) {
            assert!(known.contains(&(file.as_str(), name.as_str())), "{file}: {name} is in no section");
        }
    }
}

/// Every key of a document, at any depth; not below those that have keys of anybody's.
fn emitted(value: &serde_json::Value, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                keys.insert(key.clone());
                if key != "pager_events" && key != "judge" {
                    emitted(value, keys);
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| emitted(value, keys)),
        _ => {}
    }
}

#[test]
fn what_commands_write_is_in_the_document() {
    let scratch = Scratch::new("json-doc");
    fs::write(scratch.file("t.csv"), "time_ns,thread,space,page,op\n1,0,0,7,read\n2,0,0,8,write\n").unwrap();
    let calls = "1 1700000000.000001 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3</a>\n\
                 1 1700000000.000002 read(3</a>, \"\"..., 65536) = 65536\n";
    fs::write(scratch.file("calls.strace"), calls).unwrap();
    let load = "zipf:size=1M,touches=4k";
    let cases = [
        ("run --json", "run -q --ram 64M --json out -- true".to_owned()),
        ("compare", "compare --ram 64M --ways bare,overspill --json out -- true".to_owned()),
        ("compare", "bench seq --size 1M --ram 16M --ways bare --seconds 1 --latency --json out".to_owned()),
        ("sim TRACE-or-LOAD", format!("sim {load} --ram 50% --policy live,lru --pool 20% --explain --json")),
        ("sim TRACE --json, of", "sim calls.strace --json".to_owned()),
        ("sim policies", format!("sim policies {load} --ram 50% --json")),
        ("sim reclaim", "sim reclaim a:memory=8M --ram 16M --seconds 1 --json".to_owned()),
        ("trace info", "trace info t.csv --json".to_owned()),
        ("swap info", "swap info area --json".to_owned()),
        ("doctor", "doctor --json".to_owned()),
    ];
    let make = overspill().args(["swap", "make", "area", "--size", "1M"]).current_dir(&scratch.0).output();
    assert!(make.unwrap().status.success());
    for (heading, line) in cases {
        let _ = fs::remove_file(scratch.file("out"));
        let output = overspill().args(line.split(' ')).current_dir(&scratch.0).output().unwrap();
        let text = fs::read_to_string(scratch.file("out")).unwrap_or_else(|_| stdout(&output));
        let value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{line}: {text}{}", stderr(&output)));
        let mut keys = BTreeSet::new();
        emitted(&value, &mut keys);
        let section = SECTIONS.iter().find(|section| section.0.starts_with(heading)).expect("a section");
        // A comparison has the reports of `run` in it.
        let with_run = SECTIONS[..1].iter().filter(|_| heading == "compare").chain([section]);
        let known: BTreeSet<String> =
            with_run.flat_map(found).flat_map(|(_, fields)| fields).map(|field| field.name).collect();
        let strangers: Vec<_> = keys.difference(&known).collect();
        assert!(keys.len() > 2 && strangers.is_empty(), "{line}: {strangers:?} are not in the document");
    }
}

#[test]
fn fields_are_found_and_strangers_too() {
    let source = "\
/// One.
#[derive(Serialize, Debug)]
pub struct One<'a> {
    /// How long,
    /// all told.
    pub wall_seconds: f64,
    #[serde(skip)]
    pub hidden: u64,
    /// A [`word`].
    name: Option<String>,
}
";
    assert_eq!(types(source), ["One"]);
    let fields = of_struct(source, "One");
    let names: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.unit)).collect();
    assert_eq!(names, [("wall_seconds", "s"), ("name", "")]);
    assert_eq!(bullet(&fields[0]), "- `wall_seconds`: How long, all told\n");
    assert_eq!(bullet(&fields[1]), "- `name`?: A `word`\n");
    let mut keys = BTreeSet::new();
    emitted(&serde_json::json!({"a": [{"b": 1}], "judge": {"c": 1}}), &mut keys);
    assert_eq!(keys.into_iter().collect::<Vec<_>>(), ["a", "b", "judge"]);
    assert!(folded(&"word ".repeat(50)).lines().all(|line| line.len() <= COLUMNS));
}
