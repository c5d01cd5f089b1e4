//! The shim over its socket, as containerd speaks to it.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::os::unix::net::{UnixListener, UnixStream};

use fakeshim::message::{
    ConnectResponse, DeleteResponse, KillRequest, PidResponse, StateResponse, TaskRequest,
    WaitResponse,
};
use fakeshim::serve::serve;
use fakeshim::ttrpc::{self, Frame, REQUEST, Request, Response};
use prost::Message;

fn call(stream: &mut UnixStream, method: &str, payload: &impl Message) -> Response {
    let request = Request {
        service: "containerd.task.v2.Task".to_owned(),
        method: method.to_owned(),
        payload: payload.encode_to_vec(),
    };
    let frame = Frame { stream: 1, kind: REQUEST, body: request.encode_to_vec() };
    ttrpc::write(stream, &frame).unwrap();
    Response::decode(ttrpc::read(stream).unwrap().unwrap().body.as_slice()).unwrap()
}

#[test]
fn a_task_is_created_and_ends_by_a_signal() {
    let bundle = std::env::temp_dir().join(format!("fakeshim-{}", std::process::id()));
    std::fs::create_dir_all(&bundle).unwrap();
    let socket = bundle.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let folder = bundle.to_string_lossy().into_owned();
    std::thread::spawn(move || serve(&listener, folder));
    let mut stream = UnixStream::connect(&socket).unwrap();
    let task = TaskRequest { id: "a".to_owned() };
    assert_eq!(call(&mut stream, "State", &task).status.unwrap().code, 5);
    let pid =
        PidResponse::decode(call(&mut stream, "Create", &task).payload.as_slice()).unwrap().pid;
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    call(&mut stream, "Start", &task);
    let state =
        StateResponse::decode(call(&mut stream, "State", &task).payload.as_slice()).unwrap();
    assert_eq!((state.pid, state.status), (pid, 2));
    let connect = call(&mut stream, "Connect", &task).payload;
    assert_eq!(ConnectResponse::decode(connect.as_slice()).unwrap().task_pid, pid);
    // A client waits on a connection of its own.
    let mut other = UnixStream::connect(&socket).unwrap();
    let waiting =
        std::thread::spawn(move || call(&mut other, "Wait", &TaskRequest { id: "a".to_owned() }));
    let kill = KillRequest { id: "a".to_owned(), signal: 9 };
    assert_eq!(call(&mut stream, "Kill", &kill).status, None);
    let waited = WaitResponse::decode(waiting.join().unwrap().payload.as_slice()).unwrap();
    assert_eq!(waited.exit_status, 137);
    let deleted =
        DeleteResponse::decode(call(&mut stream, "Delete", &task).payload.as_slice()).unwrap();
    assert_eq!((deleted.pid, deleted.exit_status), (pid, 137));
    assert_eq!(call(&mut stream, "Stats", &task).status.unwrap().code, 12);
    std::fs::remove_dir_all(bundle).unwrap();
}
