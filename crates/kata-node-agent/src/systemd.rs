//! systemd through its private socket: what units there are, restarting one, running a program of the node.
//!
//! The socket `/run/systemd/private` speaks D-Bus between two, without a bus. It is looked up anew for
//! every call, since `systemctl daemon-reexec` replaces it; so the directory has to be mounted and not
//! the socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kata_host::host::{Exit, HostErrorKind, Unit, UnitState};
use rustix::time::{ClockId, clock_gettime};

mod connection;
mod fault;
pub mod wire;

pub use fault::Fault;

use connection::{Connection, Reply};
use fault::odd;
use wire::{Reader, Writer};

const MANAGER: &str = "/org/freedesktop/systemd1";
const MANAGER_INTERFACE: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// `ExecMainCode` as waitid(2) has it.
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;
const CLD_DUMPED: i32 = 3;
/// How long a question may take.
const CALL: Duration = Duration::from_secs(10);
/// How long to wait between two looks at a unit when the connection was lost.
const PAUSE: Duration = Duration::from_millis(200);

/// A program to run on the node.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments, in which systemd fills in variables if there are any.
    pub command: Vec<String>,
    /// Its variables, as `NAME=VALUE`.
    pub environment: Vec<String>,
    /// Files with more variables, which need not be there.
    pub environment_files: Vec<String>,
    /// Files of the node for its standard output and standard error.
    pub output: Option<(String, String)>,
    /// How long it may take.
    pub limit: Duration,
}

impl Program {
    /// One without variables, whose output is not kept.
    pub fn new(command: Vec<String>, limit: Duration) -> Self {
        let (environment, environment_files) = (Vec::new(), Vec::new());
        Self { command, environment, environment_files, output: None, limit }
    }
}

/// systemd of a node.
#[derive(Debug)]
pub struct Systemd {
    socket: PathBuf,
    /// A connection that questions may use again; what changes something takes a new one.
    open: Option<Connection>,
}

impl Systemd {
    /// The one that listens at a socket.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, open: None }
    }

    fn connect(&self) -> Result<Connection, Fault> {
        Connection::open(&self.socket)
    }

    /// A unit that systemd has loaded, which it has if it is active or enabled.
    ///
    /// # Errors
    /// If systemd does not answer.
    pub fn unit(&mut self, name: &str) -> Result<Option<Unit>, Fault> {
        if let Some(mut connection) = self.open.take()
            && let Ok(unit) = look(&mut connection, name)
        {
            self.open = Some(connection);
            return Ok(unit);
        }
        let mut connection = self.connect()?;
        let unit = look(&mut connection, name)?;
        self.open = Some(connection);
        Ok(unit)
    }

    /// The services that run, or are being started.
    ///
    /// # Errors
    /// If systemd does not answer.
    pub fn services(&mut self) -> Result<Vec<(String, Unit)>, Fault> {
        let mut connection = match self.open.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let mut body = Writer::default();
        body.array(4, |states| {
            for state in ["active", "activating", "reloading"] {
                states.string(state);
            }
        });
        body.array(4, |patterns| patterns.string("*.service"));
        let target = (MANAGER, MANAGER_INTERFACE, "ListUnitsByPatterns");
        let reply = connection.call(target, "asas", &body.into_bytes(), CALL)?;
        let names = Reader::new(&reply.body).unit_names().ok_or_else(odd)?;
        let mut services = Vec::new();
        for name in names {
            // One that has ended meanwhile is none.
            if let Some(unit) = look(&mut connection, &name)? {
                services.push((name, unit));
            }
        }
        self.open = Some(connection);
        Ok(services)
    }

    /// How a unit is that systemd has loaded.
    ///
    /// # Errors
    /// If systemd does not answer.
    pub fn state(&self, name: &str) -> Result<Option<UnitState>, Fault> {
        let mut connection = self.connect()?;
        let Some(path) = object(&mut connection, name)? else { return Ok(None) };
        let mut word = |interface, name| {
            let mut word = property(&mut connection, &path, interface, name)?;
            // It ends up in a message, and systemd's words are short.
            word.retain(|letter| letter.is_ascii_lowercase() || letter == '-');
            word.truncate(32);
            Ok::<_, Fault>(word)
        };
        let (active, sub) = (word(UNIT, "ActiveState")?, word(UNIT, "SubState")?);
        let result = word(SERVICE, "Result")?;
        let mut number = |name| {
            let reply = get(&mut connection, &path, SERVICE, name)?;
            Reader::new(&reply.body).variant_number().ok_or_else(odd)
        };
        let (code, status) = (number("ExecMainCode")?, number("ExecMainStatus")?);
        let exit = match code {
            CLD_EXITED => Some(Exit::Status(status)),
            CLD_KILLED | CLD_DUMPED => Some(Exit::Signal(status)),
            _ => None,
        };
        Ok(Some(UnitState { active, sub, result, exit }))
    }

    /// Restarts a unit, and waits for the job's end.
    ///
    /// # Errors
    /// If systemd does not answer, or the job fails or takes longer than `limit`.
    pub fn restart(&self, name: &str, limit: Duration) -> Result<(), Fault> {
        let end = Instant::now() + limit;
        let mut connection = self.connect()?;
        let mut body = Writer::default();
        body.string(name);
        body.string("replace");
        let target = (MANAGER, MANAGER_INTERFACE, "RestartUnit");
        let reply = connection.call(target, "ss", &body.into_bytes(), CALL).map_err(|fault| {
            // Only a job that does not end says something about the unit.
            match fault.kind {
                HostErrorKind::TimedOut => Fault { kind: HostErrorKind::Unreachable, ..fault },
                _ => fault,
            }
        })?;
        let job = text(&reply)?;
        match connection.job_result(&job, end) {
            Ok(result) => judge(&result, name),
            // systemd executed itself anew meanwhile; the job goes on.
            Err(fault) if fault.kind == HostErrorKind::Unreachable => self.settled(name, end),
            Err(fault) => Err(fault),
        }
    }

    /// Waits until a unit has no job left, and is neither starting nor stopping. Between the two halves of a
    /// restart it is inactive, and that is not its end.
    fn settled(&self, name: &str, end: Instant) -> Result<(), Fault> {
        loop {
            let state =
                self.connect().and_then(|mut connection| match object(&mut connection, name)? {
                    Some(path) if has_job(&mut connection, &path)? => Ok("waiting".to_owned()),
                    Some(path) => property(&mut connection, &path, UNIT, "ActiveState"),
                    None => Ok("inactive".to_owned()),
                });
            match state.as_deref() {
                Ok("active") => return Ok(()),
                Ok("failed" | "inactive") => {
                    return Err(Fault::new(HostErrorKind::Failed, format!("{name} is not active")));
                }
                Ok(_) | Err(_) if Instant::now() < end => std::thread::sleep(PAUSE),
                Ok(_) | Err(_) => {
                    return Err(Fault::new(HostErrorKind::TimedOut, "the job did not end"));
                }
            }
        }
    }

    /// Runs a program of the node in a unit of its own, and waits for its end.
    ///
    /// # Errors
    /// If systemd does not answer, or the program fails or takes too long.
    pub fn execute(&self, program: &Program) -> Result<(), Fault> {
        let Some(path) = program.command.first() else {
            return Err(Fault::new(HostErrorKind::Other, "no program was given"));
        };
        let mut connection = self.connect()?;
        let elapsed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_nanos());
        let name = format!("kata-operator-{}-{elapsed:x}.service", std::process::id());
        let seconds = program.limit.as_secs();
        let mut body = Writer::default();
        body.string(&name);
        body.string("fail");
        body.array(8, |properties| {
            properties
                .property("Description", "s", |value| value.string("Asked for by kata-operator"));
            properties.property("Type", "s", |value| value.string("oneshot"));
            properties.property("CollectMode", "s", |value| value.string("inactive-or-failed"));
            properties.property("TimeoutStartUSec", "t", |value| value.long(seconds * 1_000_000));
            // Not the property that truncates the file, which systemd has since version 248 only: these files
            // do not exist.
            if let Some((output, errors)) = &program.output {
                properties.property("StandardOutputFile", "s", |value| value.string(output));
                properties.property("StandardErrorFile", "s", |value| value.string(errors));
            }
            if !program.environment.is_empty() {
                properties.property("Environment", "as", |value| {
                    value.array(4, |all| program.environment.iter().for_each(|it| all.string(it)));
                });
            }
            if !program.environment_files.is_empty() {
                properties.property("EnvironmentFiles", "a(sb)", |value| {
                    value.array(8, |files| {
                        for path in &program.environment_files {
                            files.align(8);
                            files.string(path);
                            files.boolean(true);
                        }
                    });
                });
            }
            properties.property("ExecStart", "a(sasb)", |value| {
                value.array(8, |commands| {
                    commands.align(8);
                    commands.string(path);
                    commands.array(4, |words| {
                        program.command.iter().for_each(|word| words.string(word));
                    });
                    commands.boolean(false);
                });
            });
        });
        body.array(8, |_| {});
        let end = Instant::now() + program.limit + CALL;
        let reply = connection.call(
            (MANAGER, MANAGER_INTERFACE, "StartTransientUnit"),
            "ssa(sv)a(sa(sv))",
            &body.into_bytes(),
            CALL,
        )?;
        let result = connection.job_result(&text(&reply)?, end)?;
        judge(&result, path)
    }
}

fn judge(result: &str, name: &str) -> Result<(), Fault> {
    match result {
        "done" | "skipped" => Ok(()),
        "timeout" => Err(Fault::new(HostErrorKind::TimedOut, format!("{name} took too long"))),
        result => {
            Err(Fault::new(HostErrorKind::Failed, format!("systemd says {result} of {name}")))
        }
    }
}

fn text(reply: &Reply) -> Result<String, Fault> {
    Reader::new(&reply.body).string().ok_or_else(odd)
}

/// The object of a unit; `None` if it is not loaded. Asking systemd to load one that does not exist takes
/// it ten milliseconds, each time.
fn object(connection: &mut Connection, name: &str) -> Result<Option<String>, Fault> {
    let mut body = Writer::default();
    body.string(name);
    let target = (MANAGER, MANAGER_INTERFACE, "GetUnit");
    match connection.call(target, "s", &body.into_bytes(), CALL) {
        Ok(reply) => text(&reply).map(Some),
        Err(fault) if fault.name == "org.freedesktop.systemd1.NoSuchUnit" => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn look(connection: &mut Connection, name: &str) -> Result<Option<Unit>, Fault> {
    let Some(path) = object(connection, name)? else { return Ok(None) };
    if property(connection, &path, UNIT, "LoadState")? != "loaded" {
        return Ok(None);
    }
    let state = property(connection, &path, UNIT, "ActiveState")?;
    let active = state == "active";
    let changing = !active && !["inactive", "failed"].contains(&state.as_str());
    let reply = get(connection, &path, SERVICE, "ExecStart")?;
    let command = Reader::new(&reply.body).first_command().unwrap_or_default();
    let reply = get(connection, &path, SERVICE, "Environment")?;
    let environment = Reader::new(&reply.body).variant_strings().unwrap_or_default();
    let reply = get(connection, &path, SERVICE, "EnvironmentFiles")?;
    let environment_files = Reader::new(&reply.body).variant_paths().unwrap_or_default();
    let reply = get(connection, &path, SERVICE, "ExecMainStartTimestampMonotonic")?;
    let microseconds = Reader::new(&reply.body).variant_long().ok_or_else(odd)?;
    let started = (microseconds > 0 && (active || changing)).then(|| since(microseconds)).flatten();
    Ok(Some(Unit { active, changing, command, environment, environment_files, started }))
}

/// When it was so many microseconds after the boot, in nanoseconds since 1970 by the clock as it is now: it may have been
/// set since then, which systemd's own time of that moment does not show.
fn since(microseconds: u64) -> Option<i64> {
    let nanoseconds = |clock| {
        let now = clock_gettime(clock);
        now.tv_sec.checked_mul(1_000_000_000)?.checked_add(now.tv_nsec)
    };
    let then = i64::try_from(microseconds).ok()?.checked_mul(1_000)?;
    let ago = nanoseconds(ClockId::Monotonic)?.checked_sub(then)?;
    nanoseconds(ClockId::Realtime)?.checked_sub(ago)
}

fn has_job(connection: &mut Connection, path: &str) -> Result<bool, Fault> {
    let reply = get(connection, path, UNIT, "Job")?;
    Ok(Reader::new(&reply.body).variant_job().ok_or_else(odd)? != 0)
}

fn get(
    connection: &mut Connection,
    path: &str,
    interface: &str,
    name: &str,
) -> Result<Reply, Fault> {
    let mut body = Writer::default();
    body.string(interface);
    body.string(name);
    connection.call((path, PROPERTIES, "Get"), "ss", &body.into_bytes(), CALL)
}

fn property(
    connection: &mut Connection,
    path: &str,
    interface: &str,
    name: &str,
) -> Result<String, Fault> {
    let reply = get(connection, path, interface, name)?;
    Reader::new(&reply.body).variant_string().ok_or_else(odd)
}
