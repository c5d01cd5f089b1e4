//! The programs that simulated containers have.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::shell::Output;
use super::{View, proc};
use crate::api::jsonpath;
use crate::world::{Host, Process};

/// The names of the programs, for who asks for another.
const KNOWN: &str = "cat crictl cut date df echo egrep env false free grep head hostname id jq ls \
                     nproc printenv ps pwd sh sleep tail test true uname uptime wc whoami";

/// Runs a program.
pub(super) fn run(view: View<'_>, name: &str, arguments: &[String], input: &str) -> Output {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match name {
        "true" | ":" | "sleep" | "test" | "[" | "systemctl" => Output::default(),
        "false" => Output::failed(1, ""),
        "echo" => echo(&words),
        "pwd" => Output::printed("/\n"),
        "whoami" => Output::printed("root\n"),
        "id" => Output::printed("uid=0(root) gid=0(root) groups=0(root)\n"),
        "hostname" => Output::printed(format!("{}\n", view.name())),
        "nproc" => Output::printed(format!("{}\n", proc::cpus(view))),
        "date" => Output::printed(view.now.strftime("%a %b %e %H:%M:%S UTC %Y\n").to_string()),
        "uptime" => uptime(view),
        "free" => free(view),
        "uname" => uname(view, &words),
        "env" | "printenv" => env(view, &words),
        "cat" => cat(view, &words, input),
        "ls" => ls(view, &words),
        "grep" | "egrep" | "fgrep" => grep(view, &words, input),
        "wc" => wc(view, &words, input),
        "head" | "tail" => ends(name == "head", &words, input),
        "cut" => cut(&words, input),
        "jq" => jq(view, &words, input),
        "ps" => ps(view, &words),
        "crictl" => crictl(view, &words),
        "kata-operator" => operator(view, &words),
        _ => Output::failed(
            127,
            format!(
                "exec: \"{name}\": executable file not found in $PATH\n\
                 note: the pod is simulated; it knows {KNOWN}\n"
            ),
        ),
    }
}

/// The probe of the operator's image, in the model of the host or of the guest.
fn operator(view: View<'_>, words: &[&str]) -> Output {
    let ["probe", ..] = words else {
        return Output::failed(2, "kata-operator: simulated: it knows probe\n");
    };
    let text: String = kata_api::probe::FILES
        .iter()
        .filter_map(|path| proc::read(view, path))
        .map(|text| format!("{}\n", text.trim_end()))
        .collect();
    let facts = kata_api::probe::ProbeFacts::from_lines(&text).unwrap_or_default();
    Output::printed(format!("{}\n", json!(facts)))
}

fn echo(words: &[&str]) -> Output {
    match words {
        ["-n", rest @ ..] => Output::printed(rest.join(" ")),
        _ => Output::printed(format!("{}\n", words.join(" "))),
    }
}

/// The variables of the container.
pub(super) fn environment(view: View<'_>) -> BTreeMap<String, String> {
    let text = |text: &str| text.to_owned();
    let mut variables = BTreeMap::from([
        (text("HOME"), text("/root")),
        (text("HOSTNAME"), text(view.name())),
        (text("KUBERNETES_SERVICE_HOST"), text("172.30.0.1")),
        (text("KUBERNETES_SERVICE_PORT"), text("443")),
        (text("PATH"), text("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")),
    ]);
    for entry in view.container["env"].as_array().into_iter().flatten() {
        let path = entry["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap_or_default();
        let field = view.pod.pointer(&format!("/{}", path.replace('.', "/")));
        let value = entry["value"].as_str().or_else(|| field.and_then(Value::as_str));
        variables.insert(
            entry["name"].as_str().unwrap_or_default().to_owned(),
            value.unwrap_or_default().to_owned(),
        );
    }
    variables
}

fn env(view: View<'_>, words: &[&str]) -> Output {
    let variables = environment(view);
    match words.first() {
        Some(name) => match variables.get(*name) {
            Some(value) => Output::printed(format!("{value}\n")),
            None => Output::failed(1, ""),
        },
        None => Output::printed(
            variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect::<String>(),
        ),
    }
}

fn uname(view: View<'_>, words: &[&str]) -> Output {
    let (kernel, name) = (proc::release(view), view.name());
    let all = format!("Linux {name} {kernel} {} x86_64 GNU/Linux", proc::build());
    let flags: String = words.iter().map(|word| word.trim_start_matches('-')).collect();
    if flags.contains('a') {
        return Output::printed(format!("{all}\n"));
    }
    let parts = [
        ('s', "Linux"),
        ('n', name),
        ('r', kernel),
        ('v', proc::build()),
        ('m', "x86_64"),
        ('o', "GNU/Linux"),
    ];
    let shown: Vec<&str> = parts
        .iter()
        .filter(|(flag, _)| flags.contains(*flag) || (flags.is_empty() && *flag == 's'))
        .map(|(_, text)| *text)
        .collect();
    Output::printed(format!("{}\n", shown.join(" ")))
}

fn uptime(view: View<'_>) -> Output {
    let seconds = proc::read(view, "/proc/uptime")
        .and_then(|text| text.split('.').next().and_then(|whole| whole.parse::<u64>().ok()))
        .unwrap_or(0);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    Output::printed(format!(
        " {} up {hours:2}:{minutes:02},  0 users,  load average: 0.00, 0.00, 0.00\n",
        view.now.strftime("%H:%M:%S")
    ))
}

fn free(view: View<'_>) -> Output {
    let total = proc::memory_kib(view);
    let (used, left) = (total - total / 10 * 7, total / 10 * 7);
    Output::printed(format!(
        "               total        used        free\nMem:     {total:>11} {used:>11} {left:>11}\n"
    ))
}

fn cat(view: View<'_>, words: &[&str], input: &str) -> Output {
    let mut output = Output::default();
    if words.is_empty() {
        return Output::printed(input);
    }
    for path in words {
        match proc::read(view, path) {
            Some(text) => output.stdout.push_str(&text),
            None => {
                output.code = 1;
                output.stderr.push_str(&format!("cat: {path}: No such file or directory\n"));
            }
        }
    }
    output
}

fn ls(view: View<'_>, words: &[&str]) -> Output {
    let paths: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let mut output = Output::default();
    for path in if paths.is_empty() { vec!["/"] } else { paths } {
        let device = view.host_root.and_then(|root| path.strip_prefix(root)) == Some("/dev/kvm");
        if proc::read(view, path).is_some() || (device && view.host.has_kvm()) {
            output.stdout.push_str(&format!("{path}\n"));
        } else if let Some(names) = proc::list(view, path) {
            output.stdout.extend(names.iter().map(|name| format!("{name}\n")));
        } else {
            output.code = 2;
            output
                .stderr
                .push_str(&format!("ls: cannot access '{path}': No such file or directory\n"));
        }
    }
    output
}

fn grep(view: View<'_>, words: &[&str], input: &str) -> Output {
    let (flags, rest): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with('-') && word.len() > 1);
    let flag = |letter: char| flags.iter().any(|flag| flag.contains(letter));
    let Some((pattern, files)) = rest.split_first() else {
        return Output::failed(2, "grep: simulated: give a pattern\n");
    };
    let text = if files.is_empty() {
        input.to_owned()
    } else {
        let read = cat(view, files, "");
        if read.code != 0 {
            return Output::failed(2, read.stderr.replace("cat:", "grep:"));
        }
        read.stdout
    };
    let fold = |text: &str| if flag('i') { text.to_lowercase() } else { text.to_owned() };
    // Words and alternatives are what people look for; other patterns are taken literally.
    let pattern = fold(pattern).replace("\\|", "|");
    let (start, pattern) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest.to_owned()),
        None => (false, pattern),
    };
    let hit = |line: &str| {
        let line = fold(line);
        pattern
            .split('|')
            .any(|part| if start { line.starts_with(part) } else { line.contains(part) })
    };
    let lines: Vec<&str> = text.lines().filter(|line| hit(line) != flag('v')).collect();
    let code = i32::from(lines.is_empty());
    let stdout = if flag('q') {
        String::new()
    } else if flag('c') {
        format!("{}\n", lines.len())
    } else {
        lines.iter().map(|line| format!("{line}\n")).collect()
    };
    Output { stdout, stderr: String::new(), code }
}

fn wc(view: View<'_>, words: &[&str], input: &str) -> Output {
    let files: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let read = cat(view, &files, input);
    if read.code != 0 {
        return Output::failed(1, read.stderr.replace("cat:", "wc:"));
    }
    let text = read.stdout;
    let counts =
        [("-l", text.lines().count()), ("-w", text.split_whitespace().count()), ("-c", text.len())];
    let all = words.iter().all(|word| !word.starts_with('-'));
    let shown: Vec<String> = counts
        .iter()
        .filter(|(flag, _)| all || words.contains(flag))
        .map(|(_, count)| count.to_string())
        .collect();
    Output::printed(format!("{}\n", shown.join(" ")))
}

fn ends(first: bool, words: &[&str], input: &str) -> Output {
    let number = words
        .iter()
        .find_map(|word| word.trim_start_matches("-n").trim_start_matches('-').parse().ok());
    let number: usize = number.unwrap_or(10);
    let lines: Vec<&str> = input.lines().collect();
    let skip = if first { 0 } else { lines.len().saturating_sub(number) };
    Output::printed(
        lines.iter().skip(skip).take(number).map(|line| format!("{line}\n")).collect::<String>(),
    )
}

fn cut(words: &[&str], input: &str) -> Output {
    let value = |flag: &str| {
        words.iter().enumerate().find_map(|(at, word)| {
            let rest = word.strip_prefix(flag)?;
            Some(if rest.is_empty() { words.get(at + 1).copied()? } else { rest })
        })
    };
    let delimiter = value("-d").unwrap_or("\t");
    let field: usize = value("-f").and_then(|field| field.parse().ok()).unwrap_or(1);
    let line = |line: &str| {
        let found = line.split(delimiter).nth(field.saturating_sub(1)).unwrap_or_default();
        format!("{found}\n")
    };
    Output::printed(input.lines().map(line).collect::<String>())
}

/// The values at a path; `-r` shows texts without quotes.
fn jq(view: View<'_>, words: &[&str], input: &str) -> Output {
    let (flags, rest): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with('-'));
    let Some((path, files)) = rest.split_first() else {
        return Output::failed(2, "jq: simulated: give a path, as .info.sandboxID\n");
    };
    let read = cat(view, files, input);
    if read.code != 0 {
        return Output::failed(2, read.stderr.replace("cat:", "jq: error:"));
    }
    let value: Value = match serde_json::from_str(&read.stdout) {
        Ok(value) => value,
        Err(error) => return Output::failed(2, format!("jq: error: {error}\n")),
    };
    let found = path.starts_with('.').then(|| jsonpath::all(&path.replace("[]", "[*]"), &value));
    let Some(found) = found.flatten() else {
        return Output::failed(3, format!("jq: simulated: {path} is no path; no filters here\n"));
    };
    let found = if found.is_empty() && !path.contains("[]") { vec![&Value::Null] } else { found };
    let raw = flags.contains(&"-r") || flags.contains(&"--raw-output");
    let shown = found.iter().map(|value| match value {
        Value::String(text) if raw => format!("{text}\n"),
        value => format!("{value:#}\n"),
    });
    Output::printed(shown.collect::<String>())
}

fn ps(view: View<'_>, words: &[&str]) -> Output {
    let user_form = words.iter().any(|word| word.contains('u') && !word.starts_with("--"));
    let mut out = String::new();
    out.push_str(if user_form {
        "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n"
    } else {
        "UID          PID    PPID  C STIME TTY          TIME CMD\n"
    });
    let mut line = |pid: u32, process: &Process| {
        let start = process.started.strftime("%H:%M");
        let command = process.argv.join(" ");
        // Writing to a string cannot fail.
        let _written = if user_form {
            writeln!(
                out,
                "root     {pid:>7}  0.0  0.1 100000 10000 ?        Sl   {start}   0:00 {command}"
            )
        } else {
            writeln!(
                out,
                "root     {pid:>7} {:>7}  0 {start} ?        00:00:00 {command}",
                process.parent
            )
        };
    };
    if view.sees_host_processes() {
        for (pid, process) in &view.host.processes {
            line(*pid, process);
        }
    } else {
        let argv: Vec<String> = ["command", "args"]
            .iter()
            .flat_map(|field| view.container[*field].as_array().into_iter().flatten())
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect();
        let argv =
            if argv.is_empty() { vec!["(entrypoint of the image)".to_owned()] } else { argv };
        line(1, &Process { parent: 0, started: view.sandbox.created, argv });
    }
    Output::printed(out)
}

fn crictl(view: View<'_>, words: &[&str]) -> Output {
    if view.host_root != Some("") {
        return Output::failed(127, "exec: \"crictl\": executable file not found in $PATH\n");
    }
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
    match words.as_slice() {
        ["pods", ..] => Output::printed(pods(view.host)),
        ["version", ..] => Output::printed(format!(
            "Version:  0.1.0\nRuntimeName:  cri-o\nRuntimeVersion:  {}\nRuntimeApiVersion:  v1\n",
            crate::world::crio::VERSION
        )),
        ["ps", ..] => Output::printed(containers(view.host)),
        ["inspect", id, ..] => inspect(view.host, id),
        _ => Output::failed(1, "crictl: simulated: it knows pods, ps, inspect ID and version\n"),
    }
}

/// An id as `crictl` shows it.
fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

fn pods(host: &Host) -> String {
    let mut out = format!(
        "{:<15} {:<20} {:<7} {:<40} {:<30} {:<9} RUNTIME\n",
        "POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT"
    );
    for sandbox in host.sandboxes.values() {
        let runtime = if sandbox.handler.is_empty() { "(default)" } else { &sandbox.handler };
        let _written = writeln!(
            out,
            "{:<15} {:<20} {:<7} {:<40} {:<30} {:<9} {runtime}",
            short(&sandbox.id),
            sandbox.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "Ready",
            sandbox.name,
            sandbox.namespace,
            sandbox.attempt,
        );
    }
    out
}

fn containers(host: &Host) -> String {
    let mut out = format!("{:<15} {:<30} POD ID\n", "CONTAINER", "NAME");
    for (id, container) in &host.containers {
        let sandbox =
            host.sandboxes.get(&container.pod_uid).map_or("", |sandbox| short(&sandbox.id));
        let _written = writeln!(out, "{:<15} {:<30} {sandbox}", short(id), container.name);
    }
    out
}

fn inspect(host: &Host, id: &str) -> Output {
    let found = host.containers.iter().find(|(known, _)| known.starts_with(id));
    let Some((id, container)) = found else {
        return Output::failed(
            1,
            format!("FATA[0000] getting the status of the container \"{id}\": not found\n"),
        );
    };
    let sandbox = host.sandboxes.get(&container.pod_uid).map(|sandbox| sandbox.id.as_str());
    let body = json!({
        "status": {"id": id, "metadata": {"name": container.name}, "state": "CONTAINER_RUNNING"},
        "info": {"sandboxID": sandbox},
    });
    Output::printed(format!("{body:#}\n"))
}
