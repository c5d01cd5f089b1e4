//! The messages of `containerd.task.v2.Task`, with the fields that are used here. Facts: containerd's
//! `api/runtime/task/v2/shim.proto`.

use prost::Message;

/// A request that names a task; every one of them begins with these two fields.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TaskRequest {
    /// The task.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// `KillRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KillRequest {
    /// The task.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Number of the signal.
    #[prost(uint32, tag = "3")]
    pub signal: u32,
}

/// `CreateTaskResponse`, `StartResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PidResponse {
    /// The process.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Timestamp {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// `StateResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StateResponse {
    /// The task.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its folder.
    #[prost(string, tag = "2")]
    pub bundle: String,
    /// Its process.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// 1 created, 2 running, 3 stopped.
    #[prost(int32, tag = "4")]
    pub status: i32,
    /// The exit status.
    #[prost(uint32, tag = "9")]
    pub exit_status: u32,
    /// When it ended.
    #[prost(message, optional, tag = "10")]
    pub exited_at: Option<Timestamp>,
}

/// `WaitResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WaitResponse {
    /// The exit status.
    #[prost(uint32, tag = "1")]
    pub exit_status: u32,
    /// When it ended.
    #[prost(message, optional, tag = "2")]
    pub exited_at: Option<Timestamp>,
}

/// `DeleteResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteResponse {
    /// The process that there was.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// Its exit status.
    #[prost(uint32, tag = "2")]
    pub exit_status: u32,
    /// When it ended.
    #[prost(message, optional, tag = "3")]
    pub exited_at: Option<Timestamp>,
}

/// `PidsResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PidsResponse {
    /// The processes; `ProcessInfo` begins with the same field.
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<PidResponse>,
}

/// `ConnectResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ConnectResponse {
    /// The shim.
    #[prost(uint32, tag = "1")]
    pub shim_pid: u32,
    /// The task's process.
    #[prost(uint32, tag = "2")]
    pub task_pid: u32,
}
