//! The tree's own rules, as far as they can be counted: lengths of lines and files, links that lead
//! somewhere, where unsafe code may be, and that ARCHITECTURE.md names functions that exist.
//!
//! It reads the sources and runs nothing. CONTRIBUTING.md says why the rules are there. Each rule
//! is a function of a text, so that the test can show what it refuses.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Longest line of a document, and of a source file.
const DOCUMENT_COLUMNS: usize = 100;
const SOURCE_COLUMNS: usize = 110;
/// Longest source file, in lines.
const SOURCE_LINES: usize = 800;
/// Longest documents, in lines.
const DOCUMENT_LINES: [(&str, usize); 2] = [("README.md", 150), ("ARCHITECTURE.md", 200)];
/// Longest decision, in lines.
const DECISION_LINES: usize = 60;
/// The document that lists all source files.
const MAP: &str = "docs/map.md";
/// Lines that are too long, by crate: texts that cannot be broken, and what is left of a time when
/// comments escaped the formatter. These numbers may only become smaller.
const LONG_LINES: [(&str, usize); 6] = [
    ("crates/cli", 32),
    ("crates/sim", 18),
    ("crates/sys", 2),
    ("crates/torture", 4),
    ("fuzz", 5),
    ("tests", 4),
];
/// So many fewer than that and the number has to be lowered.
const SLACK: usize = 20;
/// Where unsafe code may be: what calls the kernel or lives in other people's programs, and tests.
const UNSAFE: [&str; 8] = [
    "crates/sys/",
    "crates/preload/",
    "crates/pager/",
    "crates/engine/",
    "crates/torture/",
    "crates/cli/src/os/",
    "crates/cli/tests/",
    "tests/e2e/",
];
/// Crates that say so themselves, by a line of their root.
const ROOTS: [(&str, &str); 3] = [
    ("crates/mm/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("crates/cli/src/main.rs", "#![deny(unsafe_code)]"),
];

#[test]
fn documents_fit_100_columns() {
    let mut wrong = Vec::new();
    for (path, text) in files("md") {
        wrong.extend(long_lines(&text, DOCUMENT_COLUMNS).map(|line| format!("{path}:{line}")));
    }
    assert!(wrong.is_empty(), "longer than {DOCUMENT_COLUMNS} columns: {wrong:#?}");
}

#[test]
fn sources_fit_110_columns_but_for_what_is_left() {
    let mut counts: Vec<(String, usize, Vec<String>)> = Vec::new();
    for (path, text) in files("rs") {
        let owner = owner(&path);
        let lines = long_lines(&text, SOURCE_COLUMNS).map(|line| format!("{path}:{line}"));
        match counts.iter_mut().find(|(name, ..)| *name == owner) {
            Some((_, count, places)) => {
                places.extend(lines);
                *count = places.len();
            }
            None => {
                let places: Vec<String> = lines.collect();
                counts.push((owner, places.len(), places));
            }
        }
    }
    for (owner, count, places) in counts {
        let allowed = LONG_LINES.iter().find(|(name, _)| *name == owner).map_or(0, |&(_, count)| count);
        assert!(
            count <= allowed,
            "{owner} has {count} lines longer than {SOURCE_COLUMNS} columns, {allowed} are left: {places:#?}"
        );
        assert!(
            count + SLACK >= allowed,
            "{owner} has {count} long lines: lower the {allowed} in LONG_LINES"
        );
    }
}

#[test]
fn files_are_no_longer_than_they_may_be() {
    for (path, text) in files("rs") {
        let lines = text.lines().count();
        assert!(lines <= SOURCE_LINES, "{path} has {lines} lines, {SOURCE_LINES} at most");
    }
    for (path, text) in files("md") {
        let lines = text.lines().count();
        let named = DOCUMENT_LINES.iter().find(|(name, _)| *name == path).map(|&(_, most)| most);
        let is_decision = path.starts_with("docs/decisions/") && !path.ends_with("/README.md");
        let most = named.unwrap_or(if is_decision { DECISION_LINES } else { usize::MAX });
        assert!(lines <= most, "{path} has {lines} lines, {most} at most");
    }
}

#[test]
fn links_lead_somewhere() {
    let documents = files("md");
    let mut dead = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            if !is_alive(path, &link, &documents) {
                dead.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}

#[test]
fn every_numbered_decision_is_in_the_index() {
    let index = read("docs/decisions/README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let documents = files("md");
    for (path, text) in &documents {
        let Some(name) = path.strip_prefix("docs/decisions/").filter(|name| *name != "README.md") else {
            continue;
        };
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("it has a title");
        let entry = format!("[{}]({name}) {title}", &name[..4]);
        assert!(index.contains(&entry), "docs/decisions/README.md does not have {entry}");
    }
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let word = ["un", "safe"].concat();
    for (path, text) in files("rs") {
        let may = UNSAFE.iter().any(|place| path.starts_with(place));
        assert!(
            may || !has_word(&text, &word),
            "{path} has {word} code; CONTRIBUTING.md says where it may be"
        );
    }
    for (root, line) in ROOTS {
        assert!(read(root).lines().any(|other| other == line), "{root} does not say {line}");
    }
}

/// `OVERSPILL_WRITE_MAP=1 cargo test -p overspill --test tree` writes it anew.
#[test]
fn the_map_has_every_source_file_by_its_own_first_sentence() {
    let map = map(&files("rs"));
    if std::env::var_os("OVERSPILL_WRITE_MAP").is_some() {
        fs::write(root().join(MAP), &map).expect("the tree can be written");
    }
    let written = read(MAP);
    let stale = map.lines().find(|line| !written.contains(line));
    assert!(
        written == map,
        "{MAP} is not what the sources say ({stale:?}): write it anew with OVERSPILL_WRITE_MAP=1"
    );
}

#[test]
fn the_architecture_names_functions_that_exist() {
    let text = read("ARCHITECTURE.md");
    let places = places(&text);
    assert!(places.len() > 20, "the invariants name what holds them");
    for (file, function) in places {
        let (owner, rest) = file.split_once('/').expect("a place is a crate and a file");
        let path = format!("crates/{owner}/src/{rest}");
        let source = fs::read_to_string(root().join(&path)).unwrap_or_default();
        let wanted = format!("fn {function}");
        let follows = |at: usize| source[at + wanted.len()..].starts_with(['(', '<']);
        let found = source.match_indices(&wanted).any(|(at, _)| follows(at));
        assert!(found, "ARCHITECTURE.md says {file}:{function}, but {path} has no such function");
    }
}

#[test]
fn the_rules_refuse_what_they_should() {
    let long: Vec<String> = long_lines("short\n12345\u{e9}7\nx", 6).collect();
    assert_eq!(long, ["2 (7 columns)"]);
    let text = "[a](b.md) and [c](https://d.e) `[no](f.md)`\n```\n[no](g.md)\n```\n[h](i/j.md#k)";
    assert_eq!(links(text), ["b.md", "i/j.md#k"]);
    let documents = [("docs/a.md".to_string(), "# One: two, `three`\n\n# It's\n".to_string())];
    assert!(is_alive("docs/a.md", "#one-two-three", &documents));
    assert!(is_alive("docs/a.md", "a.md#its", &documents) && !is_alive("docs/a.md", "#four", &documents));
    assert!(is_alive("docs/a.md", "../README.md", &documents));
    assert!(!is_alive("docs/a.md", "README.md", &documents));
    assert!(!is_alive("README.md", "../README.md", &documents), "nothing outside of the tree");
    let word = ["un", "safe"].concat();
    assert!(has_word(&format!("{word} {{ x }} // why"), &word));
    assert!(!has_word(&format!("// {word}\nlet {word}_code = \"{word}\";"), &word));
    assert_eq!(
        places("`mm/a.rs:b`, `c`, `sim/d/e.rs:f_g`, `h.rs`"),
        [("mm/a.rs", "b"), ("sim/d/e.rs", "f_g")]
    );
    let source = "//! What it owns: [`A`],\n//! and b. More.\n//!\n//! Rest.\nuse x;\n".to_string();
    let map = map(&[("crates/a/b.rs".to_string(), source)]);
    assert!(map.ends_with("\n## crates/a\n\n- `b.rs`: What it owns: `A`, and b.\n"), "{map}");
    assert_eq!([owner("crates/mm/src/a.rs"), owner("tests/e2e/b.rs")], ["crates/mm", "tests"]);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files of the tree with this extension, by their path from its root. What is built is left
/// out.
fn files(extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).expect("the tree can be read") {
            let entry = entry.expect("the tree can be read");
            let path = directory.join(entry.file_name());
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let kind = entry.file_type().expect("the tree can be read");
            if kind.is_dir() && !is_hidden && entry.file_name() != "target" {
                directories.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|found| found == extension) {
                let path = path.to_str().expect("names are text").to_string();
                let text = read(&path);
                found.push((path, text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "the tree has files that end in .{extension}");
    found
}

/// The list of all source files, by folder, each with the first sentence of its own paragraph.
fn map(sources: &[(String, String)]) -> String {
    let mut text = String::from(
        "# Every source file\n\n\
         What each owns, in its own words: the first sentence of the paragraph that opens it. How it all\n\
         works together: [ARCHITECTURE.md](../ARCHITECTURE.md). A test of the tree keeps this list; it\n\
         says how to write it anew.\n",
    );
    let mut above = "";
    let mut sources: Vec<_> = sources
        .iter()
        .map(|(path, source)| (path.rsplit_once('/').expect("sources are in folders"), source))
        .collect();
    sources.sort();
    for ((folder, file), source) in sources {
        if folder != above {
            text.push_str(&format!("\n## {folder}\n\n"));
            above = folder;
        }
        text.push_str(&wrapped(&format!("- `{file}`: {}", first_sentence(source))));
        assert!(!text.ends_with(": \n"), "{folder}/{file} opens without saying what it owns");
    }
    text
}

/// The first sentence of a file's opening paragraph.
fn first_sentence(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    // The point of an initial ends no sentence.
    let is_initial = |at: usize| {
        let mut before = paragraph[..at].chars().rev();
        before.next().is_some_and(|letter| letter.is_uppercase() || letter == '.')
            && before.next().is_none_or(|letter| !letter.is_alphanumeric())
    };
    let ends = |&(at, _): &(usize, &str)| !is_initial(at);
    let end = paragraph.match_indices(". ").find(ends).map_or(paragraph.len(), |(at, _)| at + 1);
    // Names in brackets are links of rustdoc, which lead nowhere here.
    paragraph[..end].replace(['[', ']'], "")
}

/// An item of a list in lines that a document may have.
fn wrapped(item: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in item.split(' ') {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > DOCUMENT_COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line = String::from(" ");
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text + &line + "\n"
}

/// The crate a source file belongs to.
fn owner(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    if parts[0] == "crates" { parts[..2].join("/") } else { parts[0].to_string() }
}

/// The lines with more than so many characters: number and length.
fn long_lines(text: &str, most: usize) -> impl Iterator<Item = String> + '_ {
    let lengths = text.lines().map(|line| line.chars().count()).enumerate();
    let long = lengths.filter(move |&(_, length)| length > most);
    long.map(|(index, length)| format!("{} ({length} columns)", index + 1))
}

/// The targets of a document's links that are not addresses of the net. Code is passed over.
fn links(text: &str) -> Vec<String> {
    let prose = without_code(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_string());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// A document without its blocks and words of code.
fn without_code(text: &str) -> String {
    let mut in_block = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// Whether a link from the document `from` leads to a file of the tree, and to a heading if it
/// names one.
fn is_alive(from: &str, link: &str, documents: &[(String, String)]) -> bool {
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let Some(path) = resolve(from, file) else { return false };
    let text = documents.iter().find(|(name, _)| *name == path).map(|(_, text)| text);
    match heading {
        Some(heading) => text.is_some_and(|text| headings(text).any(|other| other == heading)),
        None => root().join(&path).exists(),
    }
}

/// Where a link leads, as a path from the root of the tree; nowhere outside of it.
fn resolve(from: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(from.to_string());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(parts.pop()?),
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The names by which links find a document's headings.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Whether the code of a source file has the word: not in a comment, a text or a longer name.
fn has_word(text: &str, word: &str) -> bool {
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        let code: Vec<&str> = code.split('"').step_by(2).collect();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        code.iter().any(|part| part.split(|c| !is_name(c)).any(|other| other == word))
    })
}

/// What a document names as `crate/file.rs:function`.
fn places(text: &str) -> Vec<(&str, &str)> {
    let words = text.split('`').skip(1).step_by(2);
    words
        .filter_map(|word| word.split_once(".rs:").map(|(file, name)| (&word[..file.len() + 3], name)))
        .collect()
}
