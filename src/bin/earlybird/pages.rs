//! The hidden command `earlybird pages DIR`: man pages and shell completions, made from the definition of the command line for
//! installation.

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use earlybird::Error;
use std::path::{Path, PathBuf};

/// Write a man page for every command, and completions for every shell
#[derive(Args)]
#[command(hide = true)]
pub struct PagesArgs {
    /// The directory, which is created
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the pages of this command line.
pub fn run(args: &PagesArgs, command: Command) -> Result<u8, Error> {
    let written = write(&args.directory, command);
    written.map(|()| 0).map_err(|error| Error::usage(format!("{}: {error}", args.directory.display())))
}

fn write(directory: &Path, mut command: Command) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command.clone(), "earlybird", directory)?;
    }
    command = command.disable_help_subcommand(true);
    command.build();
    write_man_pages(directory, &command)
}

/// Writes the man pages of a command and of those below it.
fn write_man_pages(directory: &Path, command: &Command) -> std::io::Result<()> {
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| write_man_pages(directory, below))?;
    let man = Man::new(command.clone().after_help(None)).source(concat!("earlybird ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    let examples = command.get_after_help().map(ToString::to_string);
    page.extend(examples.iter().flat_map(|text| examples_section(text).into_bytes()));
    std::fs::write(directory.join(man.get_filename()), page)
}

/// The examples of the help as a section, whose lines a formatter neither joins nor breaks.
fn examples_section(help: &str) -> String {
    let text = help.trim_start_matches("Examples:\n").replace('\\', "\\e").replace('-', "\\-");
    let lines: String = text.lines().map(|line| format!("\\&{}\n", line.trim_start())).collect();
    format!(".SH EXAMPLES\n.nf\n{lines}.fi\n")
}
