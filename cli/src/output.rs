//! What every subcommand shares: exit status, failures, tables, figures as JSON, progress.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::Table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::engine::Error;

/// How a subcommand that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All is well: 0.
    Fine,
    /// The answer is no: absent, or damaged: 1.
    Negative,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Fine => Self::SUCCESS,
            Status::Negative => Self::from(1),
        }
    }
}

/// Why a subcommand could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// Something to tell: 2.
    Message(String),
    /// Whoever read standard output has gone; nothing to tell: 0.
    BrokenPipe,
}

/// The result of a subcommand and of its parts.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with a sentence that says what to do, too.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    /// A failure of the system on something that has a name.
    pub fn io(what: impl Display, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::Message(format!("{what}: {error}"))
    }

    /// A failure of the engine on the store at `path`; its text ends with the remedy.
    pub fn engine(path: &Path, error: &Error) -> Self {
        Self::Message(format!("{}: {error}", path.display()))
    }
}

/// Turns a failed write to standard output into a failure.
pub fn on_stdout(error: io::Error) -> Failure {
    Failure::io("standard output", &error)
}

/// Standard output, buffered.
pub fn stdout() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::with_capacity(1 << 16, io::stdout().lock())
}

/// A file, or standard output for `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Standard,
    /// The file with this path; replaced if it exists.
    File(PathBuf),
}

impl From<std::ffi::OsString> for Target {
    fn from(argument: std::ffi::OsString) -> Self {
        if argument == "-" {
            Self::Standard
        } else {
            Self::File(argument.into())
        }
    }
}

/// Where a subcommand reports to: a table for people, or figures for programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Report {
    /// Write the figures as JSON to FILE too, or in place of the table to standard output (-)
    #[arg(long, value_name = "FILE")]
    json: Option<std::ffi::OsString>,
}

/// Refuses to write to a file of the store, or over a file that is read.
pub fn check_target(target: &Path, store: &Path, inputs: &[PathBuf]) -> Outcome<()> {
    let refuse = |what: &str| {
        let path = target.display();
        Err(Failure::new(format!("{path}: {what}; choose another file")))
    };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // What does not exist can't be in the way of anything.
    if let (Ok(parent), Ok(store)) = (parent.canonicalize(), store.canonicalize())
        && parent.starts_with(store)
    {
        return refuse("lies in the directory of the store");
    }
    if let Ok(target) = target.canonicalize() {
        if store
            .canonicalize()
            .is_ok_and(|store| target.starts_with(store))
        {
            return refuse("leads to a file of the store");
        }
        if inputs
            .iter()
            .any(|input| input.canonicalize().is_ok_and(|input| input == target))
        {
            return refuse("is one of the files that are read");
        }
    }
    Ok(())
}

/// Writes a file in whole or not at all: under another name first, which then replaces it. What is no
/// plain file (a pipe, a device) is written directly.
pub fn write_whole<T>(path: &Path, write: impl FnOnce(std::fs::File) -> Outcome<T>) -> Outcome<T> {
    let failure = |error: io::Error| Failure::io(path.display(), &error);
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return write(
            std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(failure)?,
        );
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    let file = std::fs::File::create(&partial).map_err(failure)?;
    let written = write(file).and_then(|written| {
        std::fs::rename(&partial, path).map_err(failure)?;
        Ok(written)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

impl Report {
    /// Refuses a file of the store, or one of the inputs, as the place for figures.
    pub fn check(&self, store: &Path, inputs: &[PathBuf]) -> Outcome<()> {
        match self.json.clone().map(Target::from) {
            Some(Target::File(path)) => check_target(&path, store, inputs),
            _ => Ok(()),
        }
    }

    /// Prints the table, unless the figures take its place, and writes the figures. A reader that
    /// went away changes nothing: the exit status still tells the result.
    pub fn finish(&self, tool: &str, table: &Table, rows: Vec<Value>) -> Outcome<()> {
        let text = || format!("{:#}\n", figures(tool, rows));
        match self.json.clone().map(Target::from) {
            None => print(&format!("{}\n", plain(table))),
            Some(Target::Standard) => print(&text()),
            Some(Target::File(path)) => {
                write_whole(&path, |mut file| {
                    let written = file.write_all(text().as_bytes());
                    written.map_err(|e| Failure::io(path.display(), &e))
                })?;
                print(&format!("{}\n", plain(table)))
            }
        }
    }
}

fn print(text: &str) -> Outcome<()> {
    let mut out = stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(on_stdout(error)),
        _ => Ok(()),
    }
}

/// The table without the spaces that it puts at both ends of lines.
fn plain(table: &Table) -> String {
    let trimmed = |line: String| {
        line.strip_prefix(' ')
            .unwrap_or(&line)
            .trim_end()
            .to_owned()
    };
    table.lines().map(trimmed).collect::<Vec<_>>().join("\n")
}

/// The one form of all figures.
fn figures(tool: &str, rows: Vec<Value>) -> Value {
    let arguments: Vec<_> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    json!({
        "tool": tool,
        "commit": env!("SEALSTONE_COMMIT"),
        "machine": machine(),
        "arguments": arguments,
        "rows": rows,
    })
}

/// What the figures were measured on, as far as it bears on them.
fn machine() -> Value {
    let line = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = line("/proc/meminfo", "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib * 1024);
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "cpu": line("/proc/cpuinfo", "model name"),
        "cpus": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "memory_bytes": memory,
    })
}

/// An empty table in the house's form: columns and spaces, no lines.
pub fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table
}

/// A table of names and figures.
pub fn figure_table(figures: &[(&str, String)]) -> Table {
    let mut table = new_table();
    for (name, figure) in figures {
        table.add_row([(*name).to_owned(), figure.clone()]);
    }
    table
}

/// A name from a store, safe to print on a terminal.
pub fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

/// A progress bar over `bytes_total`, seen only where standard error is a terminal.
pub fn progress(what: &'static str, bytes_total: u64) -> ProgressBar {
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    // Of standard input nobody knows the length.
    let (length, template) = if bytes_total == 0 {
        (None, "{msg} {spinner} {bytes} {bytes_per_sec}")
    } else {
        (
            Some(bytes_total),
            "{msg} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        )
    };
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
        .tick_chars("|/-\\ ");
    let bar = ProgressBar::with_draw_target(length, target).with_style(style);
    bar.set_message(what);
    bar
}

/// Seconds with milliseconds, for figures.
pub fn seconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64(), 1e3)
}

/// A quotient with as many decimals as `scale` has zeros; 0 where there is nothing to divide by.
pub fn quotient(dividend: f64, divisor: f64, scale: f64) -> f64 {
    if divisor == 0.0 {
        return 0.0;
    }
    rounded(dividend / divisor, scale)
}

fn rounded(figure: f64, scale: f64) -> f64 {
    (figure * scale).round() / scale
}
