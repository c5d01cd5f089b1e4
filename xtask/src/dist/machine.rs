//! The machines that programs are published for, and what it takes to build for another one and to run what
//! was built.
//!
//! Nothing is fetched: who builds for another machine has rust's standard library and a C compiler for it.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use crate::{command, output};

/// A machine, as images and krew call it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

impl Machine {
    /// The one that this is.
    pub(super) fn here() -> Self {
        if std::env::consts::ARCH == "aarch64" { Self::Arm64 } else { Self::Amd64 }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// What rustc calls it. Named even if it is this one, so that build scripts are not linked statically.
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// What readelf calls it.
    pub(super) fn elf(self) -> &'static str {
        match self {
            Self::Amd64 => "X86-64",
            Self::Arm64 => "AArch64",
        }
    }

    /// Has cargo take Debian's cross compiler, unless the environment says what to take.
    pub(super) fn prepare(self, cargo: &mut Command) {
        let Some((_, compiler)) = self.linker() else { return };
        let triple = self.triple().replace('-', "_");
        for name in [format!("CC_{triple}"), self.variable("LINKER")] {
            if variable(&name).is_none() {
                cargo.env(name, &compiler);
            }
        }
    }

    /// The compiler that links for another machine, and the variable that names it.
    fn linker(self) -> Option<(String, String)> {
        let compiler = match self {
            here if here == Self::here() => return None,
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        };
        let name = self.variable("LINKER");
        let compiler = variable(&name).unwrap_or_else(|| compiler.to_owned());
        Some((name, compiler))
    }

    /// The variable by which cargo is told something of this machine.
    fn variable(self, what: &str) -> String {
        let triple = self.triple().replace('-', "_").to_uppercase();
        format!("CARGO_TARGET_{triple}_{what}")
    }
}

/// Whether no machine is named twice.
pub(super) fn each_once(machines: &[Machine]) -> Result<(), String> {
    for (index, machine) in machines.iter().enumerate() {
        if machines.iter().take(index).any(|before| before == machine) {
            return Err(format!("--arch names {} twice", machine.name()));
        }
    }
    Ok(())
}

/// Whether this machine is one of those that programs are built for: its own print the manual pages of all.
pub(super) fn has_here(machines: &[Machine]) -> Result<(), String> {
    let here = Machine::here();
    if machines.contains(&here) {
        return Ok(());
    }
    Err(format!(
        "add {} to --arch: this machine's programs print the manual pages and completions of all",
        here.name()
    ))
}

/// Says what this machine lacks before an hour's build would.
///
/// # Errors
/// With a line for each thing, and how to get it on Debian.
pub(super) fn check(root: &Path, machines: &[Machine]) -> Result<(), String> {
    let run = |program: &str, words: &[&str]| {
        let mut command = command(root, program);
        command.args(words);
        output(command)
    };
    let mut missing = Vec::new();
    for (program, package) in [("git", "git"), ("readelf", "binutils"), ("cc", "gcc libc6-dev")] {
        if run(program, &["--version"]).is_err() {
            missing.push(format!("{program}: apt-get install {package}"));
        }
    }
    for machine in machines {
        let triple = machine.triple();
        let library = run("rustc", &["--print", "target-libdir", "--target", triple])?;
        if !Path::new(library.trim()).exists() {
            missing.push(format!("Rust's library for {triple}: rustup target add {triple}"));
        }
        let (name, compiler, packages) = match machine.linker() {
            None => (String::new(), "cc".to_owned(), "libc6-dev".to_owned()),
            Some((name, compiler)) => {
                let gnu = triple.split('-').next().unwrap_or_default().replace('_', "-");
                let packages = format!("gcc-{gnu}-linux-gnu libc6-dev-{}-cross", machine.name());
                (format!(", or name another compiler in {name}"), compiler, packages)
            }
        };
        // A compiler prints the path of what it finds, and otherwise what it was asked for.
        let found = run(&compiler, &["--print-file-name=libc.a"]);
        if !found.is_ok_and(|path| Path::new(path.trim()).is_absolute()) {
            missing.push(format!(
                "{compiler} with a static C library for {triple}: apt-get install {packages}{name}"
            ));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("this machine lacks:\n  {}", missing.join("\n  ")))
}

#[expect(clippy::disallowed_methods, reason = "xtask is a developer's tool, not the product")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
