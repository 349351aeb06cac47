//! From the words of the command line to [`Cli`]; a mistake is one clear line, like every other
//! failure.

mod precedence;

use std::any::TypeId;
use std::ffi::OsString;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches};
use overspill_sim::nearest;

use crate::args::Cli;
use crate::bench::options;
use crate::stderr;
use crate::stdout::print;
use crate::{config, exit, human};

/// Commands whose options are variables without the command's name in them: what they say is the
/// same for each.
const PLAIN: [&str; 3] = ["run", "compare", "bench"];

/// The one table of options: what is parsed, helped with, completed, and written into manual pages.
/// Every option of it is also an environment variable.
pub fn table() -> clap::Command {
    let table = Cli::command().term_width(human::WIDTH);
    let names: Vec<String> = table.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.iter().fold(table, |table, name| {
        let prefix = if PLAIN.contains(&name.as_str()) { String::new() } else { format!("{name}-") };
        table.mut_subcommand(name, |command| with_variables(command, &prefix))
    })
}

/// Whether a flag is set that comes from the environment or a configuration file, where it has a value. An
/// empty variable is one that is not set.
///
/// *The story:* `OVERSPILL_STRICT=maybe` was a yes, as all was that is no `no`.
pub fn yes_or_no(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("in the environment, or a configuration file, a flag is 1, true, yes or on, or it is 0, \
                  false, no or off"
            .into()),
    }
}

fn with_variables(command: clap::Command, prefix: &str) -> clap::Command {
    if command.is_hide_set() {
        return command;
    }
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = names
        .iter()
        .fold(command, |command, name| command.mut_subcommand(name, |inner| with_variables(inner, prefix)));
    command.mut_args(|arg| {
        let arg = if is_size(&arg) { arg.allow_hyphen_values(true) } else { arg };
        let arg = if is_number(&arg) { arg.allow_negative_numbers(true) } else { arg };
        let Some(long) = arg.get_long().filter(|_| arg.get_env().is_none()) else { return arg };
        let variable = format!("OVERSPILL_{prefix}{long}").replace('-', "_").to_uppercase();
        match arg.get_action() {
            ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version => arg,
            ArgAction::SetTrue => arg.env(variable).value_parser(yes_or_no),
            _ => arg.env(variable),
        }
    })
}

/// Is its value a number? Then a negative one is not taken for an option, and its parser says what may be.
///
/// *The story:* of `--max-pool-percent -1` "unexpected argument '-1' found" was told.
fn is_number(arg: &clap::Arg) -> bool {
    let parsed = arg.get_value_parser().type_id();
    let numbers = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    let is_one = numbers.into_iter().chain([TypeId::of::<i32>(), TypeId::of::<f64>()]);
    takes_value(arg) && is_one.into_iter().any(|number| parsed == number)
}

fn takes_value(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_positional()
}

/// Is its value a size, or a time? Then the parser of sizes hears of one that begins with a hyphen, and says what is
/// wrong.
///
/// *The story:* of `--ram -5M` "unexpected argument '-5'" was told.
fn is_size(arg: &clap::Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    !arg.is_require_equals_set()
        && (names.iter().any(|name| name == "SIZE" || name == "TIME") || arg.get_long() == Some("ram"))
}

/// Reads this process's command line; `Err` holds the exit code when everything has been said
/// already.
pub fn parse() -> Result<Result<Cli, u8>> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let command = precedence::settled(config::apply(table())?, &words);
    match parse_from(command.clone(), words.iter().cloned()) {
        Ok(cli) => Ok(Ok(cli)),
        Err(error) if error.kind() == ErrorKind::InvalidUtf8 => {
            let place = not_text(&words, |words| parse_from(command.clone(), words.into_iter()));
            stderr::say!("overspill: {place} is no text (UTF-8)");
            Ok(Err(exit::OWN_FAILURE))
        }
        Err(error) => say(&error).map(Err),
    }
}

/// Which word it is that has to be text and is not: of the others that are not it is not asked. Else it is
/// a variable.
///
/// *The story:* "invalid UTF-8 was detected in one or more arguments" did not say in which.
fn not_text<T>(words: &[OsString], parse: impl Fn(Vec<OsString>) -> Result<T, clap::Error>) -> String {
    let is_text = |word: &OsString| word.to_str().is_some();
    let alone = |index: usize| {
        let others = words.iter().enumerate().map(|(at, word)| match at == index {
            true => word.clone(),
            false => word.to_string_lossy().into_owned().into(),
        });
        others.collect::<Vec<OsString>>()
    };
    let is_it = |&index: &usize| {
        let complaint = parse(alone(index)).err();
        !is_text(&words[index]) && complaint.is_some_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    let Some(index) = (1..words.len()).find(is_it) else {
        let own = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("OVERSPILL_"));
        let variable = std::env::vars_os().find(|(name, value)| own(name) && !is_text(value));
        return variable
            .map_or("one of the words".into(), |(name, _)| format!("the value of {}", name.display()));
    };
    let shown = |word: &OsString| format!("`{}`", word.as_encoded_bytes().escape_ascii());
    match words[..index].last().filter(|word| word.as_encoded_bytes().starts_with(b"--")) {
        Some(option) => format!("{} of {}", shown(&words[index]), option.display()),
        None => shown(&words[index]),
    }
}

fn parse_from(mut command: clap::Command, words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command.try_get_matches_from_mut(words)?;
    options::refuse_idle(&command, &matches)?;
    Cli::from_arg_matches(&matches)
}

/// The program and its arguments, of a command line of `overspill run`; what its environment adds is not
/// known. None: it is another command's.
///
/// *The story:* what follows the first `--` was taken for it: of `run --ram 1G git log -- file` that was
/// `file`.
pub fn program_of(words: &[OsString]) -> Option<Vec<OsString>> {
    let table = table().mut_subcommand("run", |run| run.mut_arg("ram", |ram| ram.required(false)));
    let matches = table.try_get_matches_from(words).ok()?;
    Some(matches.subcommand_matches("run")?.get_many("command")?.cloned().collect())
}

fn say(error: &clap::Error) -> Result<u8> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&narrow(&error.to_string())).map(|()| 0),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            stderr::write(&narrow(&error.to_string()));
            Ok(exit::OWN_FAILURE)
        }
        _ => {
            stderr::say!("overspill: {}", one_line(error));
            Ok(exit::OWN_FAILURE)
        }
    }
}

/// Help in 80 columns: what is longer goes on below, under the text that it belongs to.
fn narrow(help: &str) -> String {
    help.lines().map(|line| human::folded(line, &" ".repeat(hanging(line)))).collect()
}

/// Where the text of a line begins: behind the option or the value that it explains, else where its
/// first word does.
fn hanging(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    // The longest of the possible values has one space behind it, where shorter ones have more.
    if let Some(value) = line[indent..].strip_prefix("- ")
        && let Some((name, _)) = value.split_once(": ").filter(|(name, _)| !name.contains(' '))
        && !value[name.len() + 2..].starts_with(' ')
    {
        return indent + "- ".len() + name.len() + ": ".len();
    }
    let gap = line[indent..].find("  ").map(|gap| indent + gap);
    match gap {
        Some(gap) if indent > 0 => gap + (line[gap..].len() - line[gap..].trim_start().len()),
        _ => indent,
    }
}

/// What is wrong, without the usage that clap adds.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg)
    {
        let missing: Vec<&str> =
            missing.iter().map(|arg| if arg.starts_with("<CMD>") { "a command" } else { arg }).collect();
        let is = if missing.len() == 1 { "is" } else { "are" };
        let missing = missing.join(" and ");
        return format!("{missing} {is} missing; for examples: overspill help {}", subject(error));
    }
    // `sim calbrate x`: the first word is taken for a trace.
    if error.kind() == ErrorKind::ArgumentConflict
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        return format!("`{word}` is too much behind a trace or a load; for commands: overspill help sim");
    }
    let text = error.to_string();
    let first_paragraph = text.lines().take_while(|line| !line.trim().is_empty());
    let line = first_paragraph.map(str::trim).collect::<Vec<_>>().join(" ");
    // The standard library's words for a number that is none.
    let line = line.replace("invalid digit found in string", "it is no whole number");
    line.strip_prefix("error: ").unwrap_or(&line).to_string() + &suggestion(error)
}

/// What was meant, perhaps: of options, commands and values that clap knows.
fn suggestion(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    });
    let meant = meant.or_else(|| option_of_run(error)).or_else(|| page_of_help(error));
    let meant = meant.or_else(|| near_option(error));
    meant.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// An option of `run` where there is no command yet: `overspill --ram 1G sort`.
fn option_of_run(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let long = word.strip_prefix("--").filter(|_| subject(error) == "<COMMAND>")?;
    let table = table();
    let mut options = table.find_subcommand("run")?.get_arguments();
    options.any(|option| option.get_long() == Some(long)).then(|| format!("overspill run --{long}"))
}

/// An option of the command with two letters exchanged, which clap does not find.
///
/// *The story:* of `run --rma 1G` it was not said that `--ram` was meant.
fn near_option(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let typed = word.strip_prefix("--")?;
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let names = usage.split_whitespace().skip_while(|&word| word != "Usage:").skip(2);
    let table = table();
    let command = names
        .map_while(|name| (!name.starts_with(['[', '<', '-'])).then_some(name))
        .try_fold(&table, |command, name| command.find_subcommand(name))?;
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    nearest::nearest(typed, shown.filter_map(clap::Arg::get_long)).map(|long| format!("--{long}"))
}

/// A command behind `help`.
fn page_of_help(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let table = table();
    let shown = table.get_subcommands().filter(|command| !command.is_hide_set());
    nearest::nearest(word, shown.map(clap::Command::get_name)).map(str::to_owned)
}

/// The command that was meant: it follows `Usage:` and the program's name.
fn subject(error: &clap::Error) -> String {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let mut words = usage.split_whitespace().skip_while(|&word| word != "Usage:");
    words.nth(2).unwrap_or("run").to_owned()
}

/// What is wrong with a command line, if anything is.
#[cfg(test)]
pub fn complaint_of(words: Vec<String>) -> Option<String> {
    let error = parse_from(table(), words.into_iter().map(OsString::from)).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help).then(|| one_line(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(line: &str) -> String {
        let words = line.split(' ').map(OsString::from);
        match parse_from(table(), words) {
            Ok(_) => panic!("`{line}` was accepted"),
            Err(error) => one_line(&error),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        table().debug_assert();
    }

    fn each_command(command: &clap::Command, visit: &mut impl FnMut(&clap::Command)) {
        visit(command);
        command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set())
            .for_each(|inner| each_command(inner, visit));
    }

    /// *The story:* help was made for 110 columns, and broke in the middle of words on a terminal
    /// of 80.
    #[test]
    fn no_help_is_wider_than_a_terminal() {
        let mut table = table();
        table.build();
        each_command(&table, &mut |command| {
            let mut command = command.clone();
            for help in [command.render_help(), command.render_long_help()] {
                let text = narrow(&help.to_string());
                let wide = text.lines().find(|line| line.chars().count() > human::WIDTH);
                assert_eq!(wide, None, "{}", command.get_name());
            }
        });
        each_command(&table, &mut |command| {
            // What is written by hand is broken by hand: folding left words alone on their lines.
            let examples = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let wide = examples.lines().find(|line| line.chars().count() > human::WIDTH);
            assert_eq!(wide, None, "{}", command.get_name());
        });
        let mut root = table.clone();
        let help = root.render_long_help().to_string();
        assert!(help.contains("overspill man") && help.contains("overspill completions"), "{help}");
    }

    #[test]
    fn what_explains_a_value_goes_on_below_its_own_beginning() {
        assert_eq!(hanging("      - exceed: It goes on"), 16);
        assert_eq!(hanging("      - stop:   It is stopped"), 16);
        assert_eq!(hanging("      --ram <SIZE>  The budget"), 20);
        assert_eq!(hanging("      - and so on"), 6);
    }

    #[test]
    fn every_option_is_a_variable() {
        each_command(&table(), &mut |command| {
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let name = format!("{} --{}", command.get_name(), arg.get_long().unwrap());
                let variable = arg.get_env().map(|name| name.to_string_lossy().into_owned());
                assert!(variable.is_some_and(|variable| variable.starts_with("OVERSPILL_")), "{name}");
            }
        });
    }

    #[test]
    fn mistakes_are_one_clear_line() {
        let expected = [
            ("overspill run --ram 3X true", "`3X` is not a size"),
            ("overspill run --ram 0 true", "must be above zero"),
            ("overspill run --ram -5M true", "`-5M` is not a size"),
            ("overspill run --ram=-5M true", "`-5M` is not a size"),
            ("overspill run --ram 1G --swap-max -3 true", "`-3` is not a size"),
            ("overspill swap make x --size -3M", "`-3M` is not a size"),
            ("overspill run --ram", "a value is required for '--ram <SIZE>'"),
            ("overspill run --rma 1G true", "'--rma' found (did you mean `--ram`?)"),
            ("overspill run --rma=1G true", "'--rma' found (did you mean `--ram`?)"),
            ("overspill swap drain --pdi 3 x", "'--pdi' found (did you mean `--pid`?)"),
            ("overspill run --ram 1G", "a command is missing; for examples: overspill help run"),
            ("overspill record", "overspill help record"),
            (
                "overspill trace convert",
                "<TRACE> and <OUTPUT> are missing; for examples: overspill help trace",
            ),
            ("overspill sim", "overspill help sim"),
            ("overspill run --ram 1G --page-cluster x true", "it is no whole number"),
            ("overspill --ram 1G sort", "(did you mean `overspill run --ram`?)"),
            ("overspill --colour sort", "unexpected argument '--colour' found"),
            ("overspill run -- true", "--ram <SIZE> is missing"),
            ("overspill run --ram 1G --readahead magic true", "the policies are"),
            ("overspill run --ram 1G --page-cluster 99 true", "99"),
            ("overspill run --rom 1G --ram 1G true", "'--rom' found (did you mean `--ram`?)"),
            ("overspill run --ram 1G --readahead lniux true", "(did you mean `linux`?)"),
            ("overspill bench sqe", "(did you mean `seq`?)"),
            ("overspill bench zipf", "overspill sim zipf"),
            ("overspill compare --ram 1G --ways kernal:3 true", "(did you mean `kernel`?)"),
            ("overspill docter", "(did you mean `doctor`?)"),
            ("overspill help rnu", "(did you mean `run`?)"),
            ("overspill sim calbrate /tmp", "for commands: overspill help sim"),
            ("overspill bench sideways", "the patterns are"),
            ("overspill compare --ram 1G --ways moon true", "the ways are"),
            ("overspill frobnicate", "frobnicate"),
        ];
        for (line, part) in expected {
            let complaint = complaint(line);
            assert!(complaint.contains(part), "{line}: {complaint}");
            assert!(!complaint.contains('\n') && !complaint.starts_with("error"), "{complaint}");
        }
    }

    /// See [`not_text`].
    #[test]
    fn what_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let words =
            |line: &[&[u8]]| line.iter().map(|word| OsString::from_vec(word.to_vec())).collect::<Vec<_>>();
        let named = |line: &[&[u8]]| {
            let words = words(line);
            assert_eq!(
                parse_from(table(), words.iter().cloned()).err().unwrap().kind(),
                ErrorKind::InvalidUtf8
            );
            not_text(&words, |words| parse_from(table(), words.into_iter()))
        };
        let (ram, own) = (b"--ram", b"--swap-max=\xfe");
        assert_eq!(named(&[b"overspill", b"run", ram, b"\xff", b"--", b"echo", b"\xff"]), r"`\xff` of --ram");
        assert_eq!(named(&[b"overspill", b"run", ram, b"1G", own, b"echo", b"\xff"]), r"`--swap-max=\xfe`");
    }

    /// See [`yes_or_no`].
    #[test]
    fn a_flag_is_yes_or_no() {
        for (value, is) in
            [("1", true), ("Yes", true), ("ON", true), ("0", false), ("off", false), ("", false)]
        {
            assert_eq!(yes_or_no(value), Ok(is), "{value}");
        }
        for value in ["maybe", "2", "y", "tru", " ", "nope"] {
            assert!(yes_or_no(value).is_err(), "{value}");
        }
    }

    /// See [`program_of`].
    #[test]
    fn the_program_of_a_run_is_found_in_its_words() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            program_of(&words).map(|words| words.join(" ".as_ref()).into_string().unwrap())
        };
        for (line, program) in [
            ("overspill run --ram 1G git log -- file", "git log -- file"),
            ("/bin/overspill run -q --json=x --swap /a --strict -- sort -S 2G", "sort -S 2G"),
            ("overspill run -o file prog --ram 5", "prog --ram 5"),
        ] {
            assert_eq!(of(line).as_deref(), Some(program), "{line}");
        }
        assert_eq!(of("overspill top --once"), None);
        assert_eq!(of("sleep 5"), None);
    }

    #[test]
    fn everything_after_the_first_word_belongs_to_the_command() {
        for line in
            ["overspill run --ram 1G sort -S 2G --ram 5", "overspill run --ram 1G -- sort -S 2G --ram 5"]
        {
            let cli = parse_from(table(), line.split(' ').map(OsString::from)).unwrap();
            let crate::args::Command::Run(args) = cli.command else { panic!() };
            assert_eq!(args.command, ["sort", "-S", "2G", "--ram", "5"]);
        }
    }
}
