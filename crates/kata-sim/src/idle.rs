//! What `kata-sim up` costs: its start, its memory, and an idle cluster's writes and processor time.
//!
//! Linux only, since it reads `/proc`.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Failure;

/// How long a start may take before the measurement gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many starts there are for the median.
const STARTS: usize = 5;

/// A `kata-sim up` that ends with this value.
#[derive(Debug)]
struct Up {
    child: Child,
    folder: std::path::PathBuf,
    took: Duration,
}

impl Up {
    #[expect(clippy::disallowed_methods, reason = "the process is what is measured")]
    fn start(number: usize) -> Result<Self, Failure> {
        let folder =
            std::env::temp_dir().join(format!("kata-sim-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let kubeconfig = folder.join("kubeconfig");
        let begin = Instant::now();
        let child = Command::new(std::env::current_exe()?)
            .args(["up", "--port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .stdout(Stdio::null())
            .spawn()?;
        let mut up = Self { child, folder, took: Duration::ZERO };
        while !kubeconfig.exists() {
            if begin.elapsed() > PATIENCE || up.child.try_wait()?.is_some() {
                return Err("`kata-sim up` wrote no kubeconfig".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        up.took = begin.elapsed();
        Ok(up)
    }

    fn server(&self) -> Result<String, Failure> {
        let config: Value =
            serde_json::from_str(&std::fs::read_to_string(self.folder.join("kubeconfig"))?)?;
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
        Ok(server.trim_start_matches("http://").to_owned())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Nothing can be done about a process that is gone or a folder that stays.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Starts `kata-sim up` a few times, watches the last one idle for `span`, and says what it cost.
pub(crate) fn measure(span: Duration) -> Result<Vec<String>, Failure> {
    let mut starts = Vec::new();
    let mut up = Up::start(0)?;
    starts.push(up.took);
    for number in 1..STARTS {
        up = Up::start(number)?;
        starts.push(up.took);
    }
    starts.sort_unstable();
    let median = starts[starts.len() / 2];
    let process = up.child.id().to_string();
    let resident = memory(&process, "VmRSS")?;
    // Let the operator's first passes end before looking whether it is idle.
    std::thread::sleep(Duration::from_secs(2));
    let server = up.server()?;
    let (before_writes, before_ticks) = (writes(&server)?, ticks(&process)?);
    std::thread::sleep(span);
    let (after_writes, after_ticks) = (writes(&server)?, ticks(&process)?);
    // The kernel counts in hundredths of a second.
    let spent = (after_ticks - before_ticks) * 10;
    Ok(vec![
        format!(
            "kata-sim up, 6 nodes: {} ms to the kubeconfig (median of {STARTS} starts), {resident} MiB resident",
            median.as_millis()
        ),
        format!(
            "idle for {} s with the operator: {} writes, {spent} ms of processor time",
            span.as_secs(),
            after_writes - before_writes
        ),
    ])
}

/// A line of `/proc/PROCESS/status`, in MiB.
pub(crate) fn memory(process: &str, line: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib: u64 = found.and_then(|text| text.split_whitespace().next()).unwrap_or("0").parse()?;
    Ok(kib / 1024)
}

fn ticks(process: &str) -> Result<u64, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Fields 14 and 15 are user and system time; the name before may hold blanks but ends with `)`.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Ok(fields.get(11).unwrap_or(&"0").parse::<u64>()?
        + fields.get(12).unwrap_or(&"0").parse::<u64>()?)
}

/// How many writes the API server has answered.
fn writes(server: &str) -> Result<u64, Failure> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(server)?;
    write!(stream, "GET /sim/v1/requests HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let counters: Value = serde_json::from_str(body)?;
    let entries = counters["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_write = |entry: &&Value| {
        matches!(
            entry["verb"].as_str(),
            Some("create" | "update" | "patch" | "delete" | "deletecollection")
        )
    };
    Ok(entries.iter().filter(is_write).filter_map(|entry| entry["count"].as_u64()).sum())
}
