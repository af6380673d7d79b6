//! The hidden command `earlybird pages DIR`: man pages and shell completions, made from the definition of the command line for
//! installation.

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
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

fn write(directory: &Path, command: Command) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command.clone(), "earlybird", directory)?;
    }
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
}
