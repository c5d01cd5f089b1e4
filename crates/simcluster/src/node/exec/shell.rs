//! A little of the shell: words, quotes, variables, `$( )`, pipes, and lists with `;`, `&&` and `||`; and sessions,
//! in which a shell takes one line after the other and starts another one, as `chroot /host bash` does.
//!
//! No redirections to files, no control structures, no functions.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::{MAX_DEPTH, View, program};
use crate::api::frontend::{CTRL_C, CTRL_D, Session, Shell};

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
    if view.depth > MAX_DEPTH {
        return too_deep();
    }
    let name = base(program);
    if let Some(inside) = shell_of(view, argv) {
        let mut session = Session::of(inside.host_root == Some(""));
        return lines(view, &mut session, &format!("{input}\n{CTRL_D}\n"));
    }
    match (name, arguments) {
        ("sh" | "bash" | "ash", [option, script, ..])
            if option.starts_with('-') && option.ends_with('c') =>
        {
            run_script(view, script, input)
        }
        ("chroot", [root, rest @ ..]) => match chroot(view, root) {
            Some(inside) => exec(inside, rest, input),
            None => Output::failed(
                125,
                format!(
                    "chroot: cannot change root directory to '{root}': No such file or directory\n"
                ),
            ),
        },
        ("nsenter", _) => match nsenter(view, arguments) {
            Some((inside, command)) => exec(inside, command, input),
            None => Output::failed(1, "nsenter: simulated: give -t 1 -m -- COMMAND with hostPID\n"),
        },
        _ => program::run(view, name, arguments, input),
    }
}

fn too_deep() -> Output {
    Output::failed(126, "sh: simulated: too many commands in each other\n")
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn chroot<'a>(view: View<'a>, root: &str) -> Option<View<'a>> {
    let is_mounted = view.host_root == Some(root.trim_end_matches('/'));
    (is_mounted && view.depth <= MAX_DEPTH).then_some(View { host_root: Some(""), ..view.deeper() })
}

fn nsenter<'a, 'w>(view: View<'a>, words: &'w [String]) -> Option<(View<'a>, &'w [String])> {
    let at = words.iter().position(|word| word == "--").filter(|_| view.sees_host_processes())?;
    Some((View { host_root: Some(""), ..view.deeper() }, &words[at + 1..]))
}

/// What the shell sees that the command is, if it is one that reads its commands from its input.
pub(super) fn shell_of<'a>(view: View<'a>, argv: &[String]) -> Option<View<'a>> {
    let (program, arguments) = argv.split_first()?;
    match (base(program), arguments) {
        ("sh" | "bash" | "ash", []) => Some(view),
        ("chroot", [root]) => chroot(view, root),
        ("chroot", [root, rest @ ..]) => shell_of(chroot(view, root)?, rest),
        ("nsenter", words) => {
            let (inside, command) = nsenter(view, words)?;
            shell_of(inside, command)
        }
        _ => None,
    }
}

/// Whether the container's own command is a shell that reads its commands from the container's input. The entry
/// point of an image is not known; that of an image for debugging is a shell.
pub(super) fn reads_commands(container: &Value) -> bool {
    let words = |field: &str| {
        let words = container[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(base)
    };
    let argv: Vec<&str> = words("command").chain(words("args")).collect();
    container["stdin"] == true && matches!(argv.as_slice(), [] | ["sh" | "bash" | "ash"])
}

impl Session {
    /// A session of one shell, in the container or on the host.
    pub(super) fn of(on_host: bool) -> Self {
        Self { shells: vec![Shell { on_host, ..Shell::default() }], ..Self::default() }
    }

    /// What the terminal shows before the next line; `None` if the last shell has ended.
    pub(super) fn prompt(&self, view: View<'_>) -> Option<String> {
        let shell = self.shells.last()?;
        Some(if !self.unfinished.is_empty() {
            "> ".to_owned()
        } else if shell.on_host {
            format!("(simulated) [root@{} /]# ", view.host.name())
        } else {
            "(simulated) # ".to_owned()
        })
    }
}

/// Runs lines in a session's shells. A shell that a line starts takes the lines that follow; `exit` ends it.
pub(super) fn lines(view: View<'_>, session: &mut Session, text: &str) -> Output {
    let mut total = Output::default();
    for line in text.lines() {
        let Some(shell) = session.shells.last_mut() else { break };
        let inside =
            View { host_root: if shell.on_host { Some("") } else { view.host_root }, ..view };
        let unfinished = std::mem::take(&mut session.unfinished);
        if line == CTRL_C {
            shell.status = 130;
            continue;
        }
        let next = if line == CTRL_D {
            if !unfinished.is_empty() {
                shell.status = 2;
                total.stderr.push_str(&Fault::Unfinished.message());
            }
            Next::End
        } else {
            let script = unfinished + line;
            match parse(&script) {
                Ok(list) => {
                    let mut run = Run { view: inside.deeper(), shell, output: Output::default() };
                    let next = run.list(list, "", true);
                    total.stdout.push_str(&run.output.stdout);
                    total.stderr.push_str(&run.output.stderr);
                    next
                }
                Err(Fault::Unfinished) => {
                    session.unfinished = format!("{script}\n");
                    continue;
                }
                Err(fault) => {
                    shell.status = 2;
                    total.stderr.push_str(&fault.message());
                    continue;
                }
            }
        };
        match next {
            Next::Line => {}
            Next::Shell(on_host) => session.shells.push(Shell { on_host, ..Shell::default() }),
            Next::End => {
                let ended = session.shells.pop().unwrap_or_default();
                total.code = ended.status;
                if let Some(outer) = session.shells.last_mut() {
                    outer.status = ended.status;
                }
            }
        }
    }
    if let Some(shell) = session.shells.last() {
        total.code = shell.status;
    }
    total
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

/// A part of a word.
#[derive(Debug)]
enum Piece {
    Text(String),
    Variable { name: String, quoted: bool },
    Command { script: String, quoted: bool },
}

type Word = Vec<Piece>;

#[derive(Debug)]
enum Token {
    Word(Word),
    Pipe,
    And,
    Or,
    Then,
    /// What becomes of the errors of the command before it.
    Errors(Errors),
}

/// Where a command's errors go.
#[derive(Clone, Copy, Debug, Default)]
enum Errors {
    #[default]
    Shown,
    /// `2>/dev/null`
    Dropped,
    /// `2>&1`
    WithOutput,
}

/// A command before its words are expanded.
#[derive(Debug, Default)]
struct Command {
    words: Vec<Word>,
    errors: Errors,
}

impl Errors {
    fn apply(self, output: Output) -> Output {
        let Output { stdout, stderr, code } = output;
        match self {
            Self::Shown => Output { stdout, stderr, code },
            Self::Dropped => Output { stdout, stderr: String::new(), code },
            Self::WithOutput => Output { stdout: stdout + &stderr, stderr: String::new(), code },
        }
    }
}

/// Why a script cannot be read.
#[derive(Debug)]
enum Fault {
    Unfinished,
    Unknown(&'static str),
}

impl Fault {
    fn message(&self) -> String {
        match self {
            Self::Unfinished => "sh: syntax error: unexpected end of file\n".to_owned(),
            Self::Unknown(why) => format!("sh: simulated: {why}\n"),
        }
    }
}

/// What a session does after a list.
enum Next {
    /// Its shell reads the next line.
    Line,
    /// A shell in the container or on the host reads it.
    Shell(bool),
    /// Its shell has ended.
    End,
}

fn run_script(view: View<'_>, script: &str, input: &str) -> Output {
    script_in(view, &mut Shell::default(), script, input)
}

fn script_in(view: View<'_>, shell: &mut Shell, script: &str, input: &str) -> Output {
    if view.depth > MAX_DEPTH {
        return too_deep();
    }
    match parse(script) {
        Ok(list) => {
            let mut run = Run { view: view.deeper(), shell, output: Output::default() };
            run.list(list, input, false);
            Output { code: run.shell.status, ..run.output }
        }
        Err(fault) => Output::failed(2, fault.message()),
    }
}

/// Commands that a shell runs, and what they have printed.
struct Run<'a, 's> {
    view: View<'a>,
    shell: &'s mut Shell,
    output: Output,
}

impl Run<'_, '_> {
    /// Runs pipelines one after the other. In a session a command can be another shell.
    fn list(&mut self, list: Vec<Token>, input: &str, in_session: bool) -> Next {
        let mut skip = false;
        let mut pipeline = vec![Command::default()];
        for token in list.into_iter().chain([Token::Then]) {
            match token {
                Token::Word(word) => {
                    if let Some(command) = pipeline.last_mut() {
                        command.words.push(word);
                    }
                    continue;
                }
                Token::Errors(errors) => {
                    if let Some(command) = pipeline.last_mut() {
                        command.errors = errors;
                    }
                    continue;
                }
                Token::Pipe => {
                    pipeline.push(Command::default());
                    continue;
                }
                Token::And | Token::Or | Token::Then => {}
            }
            let commands = std::mem::replace(&mut pipeline, vec![Command::default()]);
            if !skip && !commands.iter().all(|command| command.words.is_empty()) {
                match self.pipeline(&commands, input, in_session) {
                    Next::Line => {}
                    next => return next,
                }
            }
            skip = match token {
                Token::And => self.shell.status != 0,
                Token::Or => self.shell.status == 0,
                _ => false,
            };
        }
        Next::Line
    }

    fn pipeline(&mut self, commands: &[Command], input: &str, in_session: bool) -> Next {
        let before = self.shell.status;
        if let [command] = commands {
            if self.assign(&command.words) {
                return Next::Line;
            }
            let argv = self.expand(&command.words);
            match argv.split_first() {
                // What was to give a word gave none.
                None => {}
                Some((word, rest)) if word == "exit" => {
                    let code = rest.first().and_then(|code| code.parse().ok());
                    self.shell.status = code.unwrap_or(before);
                    return Next::End;
                }
                Some(_) if in_session && let Some(inside) = shell_of(self.view, &argv) => {
                    return Next::Shell(inside.host_root == Some(""));
                }
                Some(_) => {
                    let output = command.errors.apply(exec(self.view, &argv, input));
                    self.print(&output);
                }
            }
            return Next::Line;
        }
        let mut passed = input.to_owned();
        for (at, command) in commands.iter().enumerate() {
            if command.words.is_empty() {
                self.output.stderr.push_str("sh: syntax error: a pipe without a command\n");
                self.shell.status = 2;
                return Next::Line;
            }
            let argv = self.expand(&command.words);
            let mut output = command.errors.apply(exec(self.view, &argv, &passed));
            if at + 1 < commands.len() {
                passed = std::mem::take(&mut output.stdout);
            }
            self.print(&output);
        }
        Next::Line
    }

    fn print(&mut self, output: &Output) {
        self.output.stdout.push_str(&output.stdout);
        self.output.stderr.push_str(&output.stderr);
        self.shell.status = output.code;
    }

    /// Sets variables, if the command does nothing else.
    fn assign(&mut self, words: &[Word]) -> bool {
        let words = match words {
            [first, rest @ ..] if matches!(first.as_slice(), [Piece::Text(it)] if it == "export") => {
                rest
            }
            words => words,
        };
        let named: Option<Vec<(&str, &str, &[Piece])>> =
            words.iter().map(|word| assignment(word)).collect();
        let Some(named) = named.filter(|named| !named.is_empty()) else { return false };
        self.shell.status = 0;
        for (name, text, rest) in named {
            let value = text.to_owned() + &self.text(rest);
            self.shell.variables.insert(name.to_owned(), value);
        }
        true
    }

    /// The words that a command gets; what an expansion outside of quotes gives is split at white space.
    fn expand(&mut self, words: &[Word]) -> Vec<String> {
        let mut argv = Vec::new();
        for word in words {
            let mut current: Option<String> = None;
            for piece in word {
                let (text, quoted) = match piece {
                    Piece::Text(text) => (text.clone(), true),
                    Piece::Variable { quoted, .. } | Piece::Command { quoted, .. } => {
                        (self.value(piece), *quoted)
                    }
                };
                if quoted {
                    current.get_or_insert_default().push_str(&text);
                    continue;
                }
                for (at, part) in text.split_whitespace().enumerate() {
                    if at > 0 {
                        argv.extend(current.take());
                    }
                    current.get_or_insert_default().push_str(part);
                }
            }
            argv.extend(current);
        }
        argv
    }

    fn text(&mut self, pieces: &[Piece]) -> String {
        pieces.iter().map(|piece| self.value(piece)).collect()
    }

    fn value(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, .. } if name == "?" => self.shell.status.to_string(),
            Piece::Variable { name, .. } => match self.shell.variables.get(name) {
                Some(value) => value.clone(),
                None => program::environment(self.view).remove(name).unwrap_or_default(),
            },
            Piece::Command { script, .. } => {
                let output = script_in(self.view, &mut self.shell.clone(), script, "");
                self.output.stderr.push_str(&output.stderr);
                self.shell.status = output.code;
                output.stdout.trim_end_matches('\n').to_owned()
            }
        }
    }
}

/// The name of the variable that a word sets, and its value: a text, and the pieces after it.
fn assignment(word: &[Piece]) -> Option<(&str, &str, &[Piece])> {
    let (Piece::Text(first), rest) = word.split_first()? else { return None };
    let (name, value) = first.split_once('=')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_name_letter);
    is_name.then_some((name, value, rest))
}

fn is_name_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn parse(script: &str) -> Result<Vec<Token>, Fault> {
    let mut tokens = Vec::new();
    let mut word: Option<Word> = None;
    let mut rest = script.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' => {
                let text = until(&mut rest, '\'')?;
                word.get_or_insert_default().push(Piece::Text(text));
            }
            '"' => quoted(&mut rest, word.get_or_insert_default())?,
            '$' | '`' => word.get_or_insert_default().push(expansion(c, &mut rest, false)?),
            '\\' => match rest.next() {
                Some('\n') => {}
                Some(c) => push(word.get_or_insert_default(), c),
                None => return Err(Fault::Unfinished),
            },
            ' ' | '\t' => tokens.extend(word.take().map(Token::Word)),
            ';' | '\n' => {
                tokens.extend(word.take().map(Token::Word));
                let goes_on = matches!(tokens.last(), Some(Token::Pipe | Token::And | Token::Or));
                if !(c == '\n' && goes_on) {
                    tokens.push(Token::Then);
                }
            }
            '|' | '&' => {
                tokens.extend(word.take().map(Token::Word));
                let doubled = rest.next_if_eq(&c).is_some();
                tokens.push(match (c, doubled) {
                    ('|', false) => Token::Pipe,
                    ('|', true) => Token::Or,
                    ('&', true) => Token::And,
                    _ => return Err(Fault::Unknown("no background jobs")),
                });
            }
            '>' | '<' => {
                let errors =
                    matches!(word.as_deref(), Some([Piece::Text(stream)]) if stream == "2");
                let to: String = std::iter::from_fn(|| rest.next_if(|c| *c == ' ')).collect();
                let to: String = to
                    .trim_start()
                    .chars()
                    .chain(std::iter::from_fn(|| rest.next_if(|c| !c.is_whitespace() && *c != ';')))
                    .collect();
                tokens.push(Token::Errors(match (errors, to.as_str()) {
                    (true, "/dev/null") => Errors::Dropped,
                    (true, "&1") => Errors::WithOutput,
                    _ => return Err(Fault::Unknown("of redirections only 2>&1 and 2>/dev/null")),
                }));
                word = None;
            }
            '#' if word.is_none() => while rest.next_if(|c| *c != '\n').is_some() {},
            c => push(word.get_or_insert_default(), c),
        }
    }
    tokens.extend(word.map(Token::Word));
    match tokens.last() {
        Some(Token::Pipe | Token::And | Token::Or) => Err(Fault::Unfinished),
        _ => Ok(tokens),
    }
}

fn push(word: &mut Word, c: char) {
    match word.last_mut() {
        Some(Piece::Text(text)) => text.push(c),
        _ => word.push(Piece::Text(c.into())),
    }
}

fn until(rest: &mut Peekable<Chars<'_>>, end: char) -> Result<String, Fault> {
    let mut text = String::new();
    loop {
        match rest.next() {
            Some(c) if c == end => return Ok(text),
            Some(c) => text.push(c),
            None => return Err(Fault::Unfinished),
        }
    }
}

/// What follows a double quote, up to the next one.
fn quoted(rest: &mut Peekable<Chars<'_>>, word: &mut Word) -> Result<(), Fault> {
    // Quotes with nothing in them are a word.
    word.push(Piece::Text(String::new()));
    loop {
        match rest.next() {
            Some('"') => return Ok(()),
            Some(c @ ('$' | '`')) => word.push(expansion(c, rest, true)?),
            Some('\\') => match rest.next().ok_or(Fault::Unfinished)? {
                '\n' => {}
                c @ ('$' | '`' | '"' | '\\') => push(word, c),
                c => {
                    push(word, '\\');
                    push(word, c);
                }
            },
            Some(c) => push(word, c),
            None => return Err(Fault::Unfinished),
        }
    }
}

/// What follows a dollar sign or a backtick.
fn expansion(sign: char, rest: &mut Peekable<Chars<'_>>, quoted: bool) -> Result<Piece, Fault> {
    if sign == '`' {
        return Ok(Piece::Command { script: until(rest, '`')?, quoted });
    }
    if rest.next_if_eq(&'(').is_some() {
        return Ok(Piece::Command { script: parenthesized(rest)?, quoted });
    }
    if rest.next_if_eq(&'{').is_some() {
        let name = until(rest, '}')?;
        if name != "?" && !name.chars().all(is_name_letter) {
            return Err(Fault::Unknown(
                "of ${ } a simulated pod knows the name of a variable only",
            ));
        }
        return Ok(Piece::Variable { name, quoted });
    }
    let name: String = match rest.next_if_eq(&'?') {
        Some(status) => status.into(),
        None => std::iter::from_fn(|| rest.next_if(|c| is_name_letter(*c))).collect(),
    };
    if name.is_empty() {
        return Ok(Piece::Text("$".to_owned()));
    }
    Ok(Piece::Variable { name, quoted })
}

/// What stands before the closing parenthesis, past quotes and inner parentheses.
fn parenthesized(rest: &mut Peekable<Chars<'_>>) -> Result<String, Fault> {
    let mut text = String::new();
    let mut depth = 0_u32;
    loop {
        let c = rest.next().ok_or(Fault::Unfinished)?;
        match c {
            ')' if depth == 0 => return Ok(text),
            '(' => depth += 1,
            ')' => depth -= 1,
            '\\' => {
                text.push(c);
                text.push(rest.next().ok_or(Fault::Unfinished)?);
                continue;
            }
            '\'' => {
                text.push(c);
                text.push_str(&until(rest, c)?);
            }
            '"' => {
                text.push(c);
                loop {
                    match rest.next().ok_or(Fault::Unfinished)? {
                        '"' => break,
                        '\\' => {
                            text.push('\\');
                            text.push(rest.next().ok_or(Fault::Unfinished)?);
                        }
                        inside => text.push(inside),
                    }
                }
            }
            _ => {}
        }
        text.push(c);
    }
}
