//! The task service of one sandbox: a process that sleeps until it is killed.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use crate::message::{
    ConnectResponse, DeleteResponse, KillRequest, PidResponse, PidsResponse, StateResponse,
    TaskRequest, Timestamp, WaitResponse,
};
use crate::ttrpc::{self, Frame, REQUEST, RESPONSE, Request, Response, Status};

/// What a call gives: a message, or a code of gRPC and words.
type Answer = Result<Vec<u8>, (i32, String)>;

/// No such task.
const NOT_FOUND: i32 = 5;
/// No such method.
const UNIMPLEMENTED: i32 = 12;
/// Anything else.
const INTERNAL: i32 = 13;

/// A shim.
#[derive(Debug, Default)]
pub struct Shim {
    /// Its task's folder.
    bundle: String,
    task: Mutex<Task>,
    /// Notified when the task changes.
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Task {
    #[default]
    None,
    Created(Process),
    Running(Process),
    Stopped {
        pid: u32,
        status: u32,
        at: Timestamp,
    },
    Deleted,
}

#[derive(Debug)]
struct Process {
    pid: u32,
}

/// Serves until a request to shut down, which ends the process.
///
/// # Errors
/// If the socket fails.
pub fn serve(listener: &UnixListener, bundle: String) -> io::Result<()> {
    let shim = Arc::new(Shim { bundle, ..Shim::default() });
    for stream in listener.incoming() {
        let stream = stream?;
        let shim = Arc::clone(&shim);
        std::thread::spawn(move || shim.connection(stream));
    }
    Ok(())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or_default() }
}

impl Shim {
    fn connection(self: &Arc<Self>, mut stream: UnixStream) {
        let Ok(writer) = stream.try_clone() else { return };
        let writer = Arc::new(Mutex::new(writer));
        while let Ok(Some(frame)) = ttrpc::read(&mut stream) {
            if frame.kind != REQUEST {
                continue;
            }
            // `Wait` lasts as long as the task, so no call holds up another.
            let (shim, writer) = (Arc::clone(self), Arc::clone(&writer));
            std::thread::spawn(move || {
                let (answer, ends) = match Request::decode(frame.body.as_slice()) {
                    Ok(request) => (shim.call(&request), request.method == "Shutdown"),
                    Err(error) => (Err((INTERNAL, error.to_string())), false),
                };
                let response = match answer {
                    Ok(payload) => Response { status: None, payload },
                    Err((code, message)) => {
                        Response { status: Some(Status { code, message }), payload: Vec::new() }
                    }
                };
                let frame =
                    Frame { stream: frame.stream, kind: RESPONSE, body: response.encode_to_vec() };
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                // The client may be gone.
                drop(ttrpc::write(&mut *writer, &frame));
                if ends {
                    end();
                }
            });
        }
    }

    fn call(self: &Arc<Self>, request: &Request) -> Answer {
        let payload = request.payload.as_slice();
        let internal = |error: &dyn std::fmt::Display| (INTERNAL, error.to_string());
        let TaskRequest { id } = TaskRequest::decode(payload).map_err(|error| internal(&error))?;
        match request.method.as_str() {
            "Create" => self.create().map_err(|error| internal(&error)),
            "Start" => self.start(),
            "State" => self.state(id),
            "Wait" => self.wait(),
            "Kill" => {
                let kill = KillRequest::decode(payload).map_err(|error| internal(&error))?;
                self.kill(kill.signal)
            }
            "Delete" => self.delete(),
            "Pids" => {
                let processes = vec![PidResponse { pid: self.pid() }];
                Ok(PidsResponse { processes }.encode_to_vec())
            }
            "Connect" => {
                let shim_pid = std::process::id();
                Ok(ConnectResponse { shim_pid, task_pid: self.pid() }.encode_to_vec())
            }
            "Shutdown" => Ok(Vec::new()),
            other => Err((UNIMPLEMENTED, format!("no {other} here"))),
        }
    }

    fn task(&self) -> std::sync::MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pid(&self) -> u32 {
        match &*self.task() {
            Task::None | Task::Deleted => 0,
            Task::Created(Process { pid })
            | Task::Running(Process { pid })
            | Task::Stopped { pid, .. } => *pid,
        }
    }

    fn create(self: &Arc<Self>) -> io::Result<Vec<u8>> {
        let mut sleep = Command::new("sleep");
        let null = Stdio::null;
        let child = sleep.arg("infinity").stdin(null()).stdout(null()).stderr(null()).spawn()?;
        let pid = child.id();
        std::fs::write(format!("{}/task.pid", self.bundle), pid.to_string())?;
        *self.task() = Task::Created(Process { pid });
        let shim = Arc::clone(self);
        std::thread::spawn(move || shim.reap(child));
        Ok(PidResponse { pid }.encode_to_vec())
    }

    fn reap(&self, mut child: Child) {
        use std::os::unix::process::ExitStatusExt as _;
        let ended = child.wait();
        let signal = ended.ok().and_then(|status| status.signal()).unwrap_or_default();
        let status = 128 + u32::try_from(signal).unwrap_or_default();
        *self.task() = Task::Stopped { pid: child.id(), status, at: now() };
        self.changed.notify_all();
    }

    fn start(&self) -> Answer {
        let mut task = self.task();
        match std::mem::take(&mut *task) {
            Task::Created(process) | Task::Running(process) => {
                let pid = process.pid;
                *task = Task::Running(process);
                Ok(PidResponse { pid }.encode_to_vec())
            }
            other => {
                *task = other;
                Err((NOT_FOUND, "no task to start".to_owned()))
            }
        }
    }

    fn state(&self, id: String) -> Answer {
        let (pid, status, exit_status, exited_at) = match &*self.task() {
            Task::None | Task::Deleted => return Err((NOT_FOUND, "no task".to_owned())),
            Task::Created(Process { pid }) => (*pid, 1, 0, None),
            Task::Running(Process { pid }) => (*pid, 2, 0, None),
            Task::Stopped { pid, status, at } => (*pid, 3, *status, Some(at.clone())),
        };
        let bundle = self.bundle.clone();
        Ok(StateResponse { id, bundle, pid, status, exit_status, exited_at }.encode_to_vec())
    }

    fn wait(&self) -> Answer {
        let mut task = self.task();
        loop {
            match &*task {
                Task::None | Task::Deleted => return Err((NOT_FOUND, "no task".to_owned())),
                Task::Stopped { status, at, .. } => {
                    let exited_at = Some(at.clone());
                    return Ok(WaitResponse { exit_status: *status, exited_at }.encode_to_vec());
                }
                Task::Created(_) | Task::Running(_) => {}
            }
            task = self.changed.wait(task).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn kill(&self, signal: u32) -> Answer {
        match &*self.task() {
            Task::Created(Process { pid }) | Task::Running(Process { pid }) => {
                // A process that sleeps has nothing to put in order.
                drop(kill(*pid));
                Ok(Vec::new())
            }
            Task::None | Task::Stopped { .. } | Task::Deleted => {
                Err((NOT_FOUND, format!("no process for signal {signal}")))
            }
        }
    }

    fn delete(&self) -> Answer {
        let mut task = self.task();
        match std::mem::take(&mut *task) {
            Task::Stopped { pid, status, at } => {
                *task = Task::Deleted;
                let exited_at = Some(at);
                Ok(DeleteResponse { pid, exit_status: status, exited_at }.encode_to_vec())
            }
            other => {
                *task = other;
                Err((NOT_FOUND, "no task that has ended".to_owned()))
            }
        }
    }
}

/// Kills a process.
///
/// # Errors
/// If there is none.
pub fn kill(pid: u32) -> io::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill -9 \"$0\"", &pid.to_string()]).stderr(Stdio::null());
    let status = shell.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("it was not killed")) }
}

/// What `delete` prints: containerd calls it for a shim that is gone.
pub fn deleted(pid: u32) -> Vec<u8> {
    DeleteResponse { pid, exit_status: 137, exited_at: Some(now()) }.encode_to_vec()
}

#[expect(clippy::exit, reason = "a shim ends when it is asked to, also if its threads wait")]
fn end() -> ! {
    std::process::exit(0)
}
