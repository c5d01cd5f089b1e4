//! What a simulated container does: how long its command runs, and how it ends.
//!
//! It knows the few commands that demonstrations use; everything else runs until it is stopped.

use std::time::Duration;

use serde_json::Value;

/// How a container's main process behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// It runs until it is stopped.
    Forever,
    /// It ends by itself.
    Ends {
        /// After this time.
        after: Duration,
        /// With this exit code.
        code: i32,
    },
}

/// What the container of a pod's spec does.
pub fn course(container: &Value) -> Course {
    let words =
        |field: &str| container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let argv: Vec<&str> = words("command").chain(words("args")).collect();
    // The entry point of an image is not known; servers are the usual case.
    if words("command").next().is_none() { Course::Forever } else { run(&argv) }
}

fn run(argv: &[&str]) -> Course {
    let ends = |seconds: f64, code| Course::Ends {
        after: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        code,
    };
    let Some((program, arguments)) = argv.split_first() else { return ends(0.0, 0) };
    match (program.rsplit('/').next().unwrap_or_default(), arguments) {
        ("true" | "echo" | "cat" | "ls" | "uname" | "nproc" | "id" | "hostname" | "env", _) => {
            ends(0.0, 0)
        }
        ("false", _) => ends(0.0, 1),
        ("sleep", [time, ..]) => sleep(time).map_or_else(|| ends(0.0, 1), |time| ends(time, 0)),
        ("exit", rest) => {
            ends(0.0, rest.first().and_then(|code| code.parse().ok()).unwrap_or_default())
        }
        ("sh" | "bash" | "ash", ["-c" | "-ec" | "-xc" | "-exc", script, ..]) => shell(script),
        ("exec", [..]) => run(arguments),
        ("kata-operator", ["probe", "--hold", time]) => {
            sleep(time).map_or_else(|| ends(0.0, 2), |time| ends(time, 0))
        }
        ("kata-operator", ["probe", ..]) => ends(0.0, 0),
        _ => Course::Forever,
    }
}

fn sleep(time: &str) -> Option<f64> {
    let (number, unit) = match time.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, time.get(number.len()..)?),
        None => (time, "s"),
    };
    let factor = match unit {
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => 1.0,
    };
    if number == "inf" || number == "infinity" {
        return Some(f64::MAX);
    }
    number.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds * factor)
}

/// Commands one after the other; a word of the shell's own language means that we cannot tell.
fn shell(script: &str) -> Course {
    let keywords = ["while", "until", "for", "if", "trap", "wait", "case", "exec"];
    if script.split_whitespace().any(|word| keywords.contains(&word)) {
        return Course::Forever;
    }
    let (mut total, mut last) = (Duration::ZERO, 0);
    for list in script.split([';', '\n']) {
        for command in list.split("&&") {
            let words: Vec<&str> = command.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            match run(&words) {
                Course::Forever => return Course::Forever,
                Course::Ends { after, code } => {
                    total = total.saturating_add(after);
                    last = code;
                    if words[0] == "exit" {
                        return Course::Ends { after: total, code };
                    }
                }
            }
            if last != 0 {
                break;
            }
        }
    }
    Course::Ends { after: total, code: last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tells_how_commands_end() {
        let ends = |seconds, code| Course::Ends { after: Duration::from_secs(seconds), code };
        for (command, expected) in [
            (json!(["sleep", "30"]), ends(30, 0)),
            (json!(["/bin/sleep", "2m"]), ends(120, 0)),
            (json!(["/bin/bash", "-c", "sleep 5; exit 3"]), ends(5, 3)),
            (json!(["sh", "-c", "false && sleep 9"]), ends(0, 1)),
            (json!(["sh", "-c", "while true; do sleep 1; done"]), Course::Forever),
            (json!(["/manager", "--leader-elect"]), Course::Forever),
            (json!(["false"]), ends(0, 1)),
        ] {
            assert_eq!(course(&json!({"command": command})), expected, "{command}");
        }
        assert_eq!(course(&json!({"image": "nginx"})), Course::Forever);
    }
}
