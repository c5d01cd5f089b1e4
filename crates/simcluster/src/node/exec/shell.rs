//! A little of the shell: words, quotes, pipes, and lists with `;`, `&&` and `||`.
//!
//! No variables but those of the environment, no redirections to files, no control structures.

use serde_json::Value;

use super::{View, program};

/// What a command printed, and how it ended.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) code: i32,
}

impl Output {
    pub(super) fn printed(stdout: impl Into<String>) -> Self {
        Self { stdout: stdout.into(), ..Self::default() }
    }

    pub(super) fn failed(code: i32, stderr: impl Into<String>) -> Self {
        Self { stderr: stderr.into(), code, ..Self::default() }
    }
}

/// Runs a command given as its arguments.
pub(super) fn exec(view: View<'_>, argv: &[String], input: &str) -> Output {
    let Some((program, arguments)) = argv.split_first() else {
        return Output::failed(126, "no command given\n");
    };
    let name = program.rsplit('/').next().unwrap_or_default();
    match (name, arguments) {
        ("sh" | "bash" | "ash", [option, script, ..])
            if option.starts_with('-') && option.ends_with('c') =>
        {
            run_script(view, script, input)
        }
        ("sh" | "bash" | "ash", []) => run_script(view, input, ""),
        ("chroot", [root, rest @ ..]) => match view.host_root {
            Some(mount) if mount == root.trim_end_matches('/') => {
                let inside = View { host_root: Some(""), ..view };
                if rest.is_empty() {
                    run_script(inside, input, "")
                } else {
                    exec(inside, rest, input)
                }
            }
            _ => Output::failed(
                125,
                format!(
                    "chroot: cannot change root directory to '{root}': No such file or directory\n"
                ),
            ),
        },
        ("nsenter", _) => {
            let command = arguments.iter().position(|word| word == "--");
            match command.filter(|_| view.sees_host_processes()) {
                Some(at) => {
                    let inside = View { host_root: Some(""), ..view };
                    exec(inside, &arguments[at + 1..], input)
                }
                None => {
                    Output::failed(1, "nsenter: simulated: give -t 1 -m -- COMMAND with hostPID\n")
                }
            }
        }
        _ => program::run(view, name, arguments, input),
    }
}

/// What the container's own command has printed since it started.
pub(super) fn printed(view: View<'_>, container: &Value) -> String {
    let argv: Vec<String> = ["command", "args"]
        .iter()
        .flat_map(|field| container[*field].as_array().into_iter().flatten())
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect();
    let speaks = |word: &String| word.contains("echo") || word.contains("cat ") || word == "cat";
    let probes = matches!(argv.as_slice(), [program, verb, ..] if program == "kata-operator" && verb == "probe");
    if probes || argv.iter().any(speaks) { exec(view, &argv, "").stdout } else { String::new() }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Pipe,
    And,
    Or,
    Then,
}

fn run_script(view: View<'_>, script: &str, input: &str) -> Output {
    let tokens = match tokens(view, script) {
        Ok(tokens) => tokens,
        Err(why) => return Output::failed(2, format!("sh: syntax error: {why}\n")),
    };
    let mut total = Output::default();
    let mut skip = false;
    let mut pipeline: Vec<Vec<String>> = vec![Vec::new()];
    for token in tokens.into_iter().chain([Token::Then]) {
        match token {
            Token::Word(word) => {
                if let Some(command) = pipeline.last_mut() {
                    command.push(word);
                }
                continue;
            }
            Token::Pipe => {
                pipeline.push(Vec::new());
                continue;
            }
            Token::And | Token::Or | Token::Then => {}
        }
        let commands = std::mem::replace(&mut pipeline, vec![Vec::new()]);
        if !skip && !commands.iter().all(Vec::is_empty) {
            if commands[0].first().is_some_and(|word| word == "exit") {
                total.code = commands[0].get(1).and_then(|c| c.parse().ok()).unwrap_or(total.code);
                return total;
            }
            let output = run_pipeline(view, &commands, input);
            total.stdout.push_str(&output.stdout);
            total.stderr.push_str(&output.stderr);
            total.code = output.code;
        }
        skip = match token {
            Token::And => total.code != 0,
            Token::Or => total.code == 0,
            _ => false,
        };
    }
    total
}

fn run_pipeline(view: View<'_>, commands: &[Vec<String>], input: &str) -> Output {
    let mut last = Output::printed(input);
    let mut stderr = String::new();
    for command in commands {
        if command.is_empty() {
            return Output::failed(2, "sh: syntax error: a pipe without a command\n");
        }
        last = exec(view, command, &last.stdout);
        stderr.push_str(&last.stderr);
    }
    last.stderr = stderr;
    last
}

fn tokens(view: View<'_>, script: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = script.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some('\'') => break,
                        Some(c) => text.push(c),
                        None => return Err("unterminated quoted string".to_owned()),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some('"') => break,
                        Some('$') => text.push_str(&variable(view, &mut rest)),
                        Some('\\') => text.extend(rest.next()),
                        Some(c) => text.push(c),
                        None => return Err("unterminated quoted string".to_owned()),
                    }
                }
            }
            '$' => word.get_or_insert_default().push_str(&variable(view, &mut rest)),
            '\\' => word.get_or_insert_default().extend(rest.next()),
            ' ' | '\t' => tokens.extend(word.take().map(Token::Word)),
            ';' | '\n' => {
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::Then);
            }
            '|' | '&' => {
                tokens.extend(word.take().map(Token::Word));
                let doubled = rest.next_if_eq(&c).is_some();
                tokens.push(match (c, doubled) {
                    ('|', false) => Token::Pipe,
                    ('|', true) => Token::Or,
                    ('&', true) => Token::And,
                    _ => return Err("no background jobs in simulated pods".to_owned()),
                });
            }
            '>' | '<' => {
                let errors = word.as_deref() == Some("2");
                let to: String = std::iter::from_fn(|| rest.next_if(|c| *c == ' ')).collect();
                let to: String = to
                    .trim_start()
                    .chars()
                    .chain(std::iter::from_fn(|| rest.next_if(|c| !c.is_whitespace() && *c != ';')))
                    .collect();
                if !errors || (to != "/dev/null" && to != "&1") {
                    return Err("no redirections in simulated pods".to_owned());
                }
                word = None;
            }
            '#' if word.is_none() => while rest.next_if(|c| *c != '\n').is_some() {},
            c => word.get_or_insert_default().push(c),
        }
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

fn variable(view: View<'_>, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let braces = rest.next_if_eq(&'{').is_some();
    let name: String =
        std::iter::from_fn(|| rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_')).collect();
    if braces {
        rest.next_if_eq(&'}');
    }
    if name.is_empty() {
        return "$".to_owned();
    }
    program::environment(view).remove(&name).unwrap_or_default()
}
