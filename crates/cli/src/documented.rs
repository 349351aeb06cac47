//! A test: what documents and help show as commands are commands, with options that the one table
//! of options has. What is repeated by hand stays true that way.

use std::fs;
use std::path::Path;

use crate::usage::{complaint_of, table};

/// Documents with commands in them.
const DOCUMENTS: [&str; 6] =
    ["README.md", "GUIDE.md", "CONTRIBUTING.md", "docs/limits.md", "docs/results.md", "docs/simulator.md"];

/// Words of documents that stand for something.
const STANDS_FOR: [(&str, &str); 11] = [
    ("TRACE-or-LOAD", "seq"),
    ("NAME", "swapin-detector"),
    ("COMMAND", "run"),
    ("SHELL", "bash"),
    ("FILE", "f"),
    ("DIR", "d"),
    ("SMALL", "1M"),
    ("TRACE", "t"),
    ("CMD", "c"),
    ("...", "true"),
    ("[COMMAND]", "run"),
];

/// The code of a document: blocks, and words between backquotes, each with what follows it on the
/// next line if that is cut.
fn code(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut prose = String::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 0 {
            prose.push_str(part);
        } else {
            found.extend(part.replace("\\\n", " ").lines().map(str::to_owned));
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).map(|word| word.replace('\n', " ")));
    found
}

/// The commands of a shell line that begin with `overspill`, as words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default();
    let mut found: Vec<Vec<String>> = vec![Vec::new()];
    let (mut word, mut quote) = (String::new(), None);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '|' | '&' | ';' | '>' | ' ' | '\t') => {
                let last = found.last_mut().expect("there is one");
                last.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                if !c.is_whitespace() {
                    found.push(Vec::new());
                }
            }
            (None, _) => word.push(c),
        }
    }
    let is_ours = |word: &String| word == "overspill" || word.ends_with("release/overspill");
    let ours = found.into_iter().filter_map(|words| {
        let at =
            words.iter().position(is_ours).filter(|&at| words[..at].iter().all(|word| goes_before(word)))?;
        Some(words[at..].to_vec())
    });
    // A row of a comparison has a figure behind the name.
    ours.filter(|words| words.get(1).is_some_and(|word| !word.starts_with(char::is_numeric))).collect()
}

/// What may stand before the command's name.
fn goes_before(word: &str) -> bool {
    word == "sudo" || word == "$" || word.contains('=')
}

/// What is wrong with a command of a document, if anything is.
fn wrong(words: &[String]) -> Option<String> {
    let stands_for = |word: &String| {
        let meant = STANDS_FOR.iter().find(|(name, _)| name == word);
        meant.map_or_else(|| word.clone(), |(_, meant)| (*meant).to_owned())
    };
    let words: Vec<String> = words.iter().map(stands_for).collect();
    let complaint = complaint_of(words.clone())?;
    // A mention of a command or of some of its options is no whole command line.
    let is_part = complaint.contains(" is missing") || complaint.contains(" are missing");
    let is_list = complaint.contains("requires a subcommand");
    (!is_part && !is_list).then(|| format!("{}: {complaint}", words.join(" ")))
}

fn wrong_of(name: &str, code: &[String]) -> Vec<String> {
    let commands = code.iter().flat_map(|line| commands(line));
    commands.filter_map(|words| wrong(&words)).map(|wrong| format!("{name}: {wrong}")).collect()
}

#[test]
fn commands_of_documents_are_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut all, mut count) = (Vec::new(), 0);
    for name in DOCUMENTS {
        let text = fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let code = code(&text);
        count += code.iter().flat_map(|line| commands(line)).count();
        all.extend(wrong_of(name, &code));
    }
    assert!(count > 40, "only {count} commands were found");
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn options_of_documents_are_options() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known: Vec<String> = vec!["help".into(), "version".into()];
    let mut table = table();
    table.build();
    let mut left = vec![table.clone()];
    while let Some(command) = left.pop() {
        known.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned));
        left.extend(command.get_subcommands().cloned());
    }
    for name in ["README.md", "GUIDE.md", "docs/limits.md", "docs/simulator.md"] {
        let text = fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let words = code(&text).into_iter().filter(|word| word.starts_with("--"));
        for word in words {
            let option = word[2..].split([' ', '=']).next().unwrap_or_default().to_owned();
            assert!(known.contains(&option), "{name}: there is no option --{option}");
        }
    }
}

#[test]
fn examples_of_help_are_commands() {
    let mut table = table();
    table.build();
    let mut all = Vec::new();
    for command in table.get_subcommands().chain([&table]) {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.replace("\\\n", " ");
        let lines = lines.lines().filter(|line| line.starts_with("  ")).map(str::to_owned);
        all.extend(wrong_of(command.get_name(), &lines.collect::<Vec<_>>()));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn what_is_wrong_is_found() {
    let words = |line: &str| commands(line);
    assert_eq!(words("seq 3 | sudo overspill run --ram 1G -- sort -S '2 G' | md5sum # why").len(), 1);
    assert_eq!(words("overspill run --ram 1G -- sort -S '2 G'")[0].last().unwrap(), "2 G");
    assert!(words("echo overspill run").is_empty());
    let complaint = |line: &str| wrong_of("x", &[line.to_owned()]).len();
    assert_eq!(complaint("overspill run --rom 1G -- true"), 1);
    assert_eq!(complaint("overspill frobnicate"), 1);
    assert_eq!(complaint("overspill run --ram 1G -- true"), 0);
    assert_eq!(code("a `b` c\n```sh\nd \\\ne\n```\n"), ["sh", "d  e", "b"]);
}
