//! From the words of the command line to [`Cli`]; a mistake is one clear line, like every other failure.

use std::ffi::OsString;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

use crate::args::Cli;
use crate::{config, exit};

/// Reads this process's command line; `Err` holds the exit code when everything has been said already.
pub fn parse() -> Result<Result<Cli, u8>> {
    let command = config::apply(Cli::command())?;
    Ok(parse_from(command, std::env::args_os()).map_err(|error| say(&error)))
}

fn parse_from(command: clap::Command, words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command.try_get_matches_from(words)?)
}

fn say(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            exit::OWN_FAILURE
        }
        _ => {
            eprintln!("overspill: {}", one_line(error));
            exit::OWN_FAILURE
        }
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
    let text = error.to_string();
    let first_paragraph = text.lines().take_while(|line| !line.trim().is_empty());
    let line = first_paragraph.map(str::trim).collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_string()
}

/// The command that was meant: it follows `Usage:` and the program's name.
fn subject(error: &clap::Error) -> String {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let mut words = usage.split_whitespace().skip_while(|&word| word != "Usage:");
    words.nth(2).unwrap_or("run").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(line: &str) -> String {
        let words = line.split(' ').map(OsString::from);
        match parse_from(Cli::command(), words) {
            Ok(_) => panic!("`{line}` was accepted"),
            Err(error) => one_line(&error),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mistakes_are_one_clear_line() {
        let expected = [
            ("overspill run --ram 3X true", "`3X` is not a size"),
            ("overspill run --ram 0 true", "must be above zero"),
            ("overspill run --ram 1G", "a command is missing; for examples: overspill help run"),
            ("overspill record", "overspill help record"),
            (
                "overspill trace convert",
                "<TRACE> and <OUTPUT> are missing; for examples: overspill help trace",
            ),
            ("overspill sim", "overspill help sim"),
            ("overspill run -- true", "--ram <SIZE> is missing"),
            ("overspill run --ram 1G --readahead magic true", "the policies are"),
            ("overspill run --ram 1G --page-cluster 99 true", "99"),
            ("overspill run --rom 1G --ram 1G true", "--rom"),
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

    #[test]
    fn everything_after_the_first_word_belongs_to_the_command() {
        for line in
            ["overspill run --ram 1G sort -S 2G --ram 5", "overspill run --ram 1G -- sort -S 2G --ram 5"]
        {
            let cli = parse_from(Cli::command(), line.split(' ').map(OsString::from)).unwrap();
            let crate::args::Command::Run(args) = cli.command else { panic!() };
            assert_eq!(args.command, ["sort", "-S", "2G", "--ram", "5"]);
        }
    }
}
