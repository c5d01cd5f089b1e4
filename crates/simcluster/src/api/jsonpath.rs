//! The part of JSONPath that printer columns and paths of jq use: members, indexes, `[*]` and filters.
//!
//! A path that cannot be read finds nothing, as a column whose value is missing.

use serde_json::Value;

enum Step {
    Member(String),
    Index(i64),
    All,
    Filter(Filter),
}

/// `?(@.path == literal)`, or `?(@.path)` for existence.
struct Filter {
    path: Vec<Step>,
    test: Option<(bool, Value)>,
}

/// The first value that the path finds.
pub(crate) fn first<'a>(path: &str, value: &'a Value) -> Option<&'a Value> {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
    all(path, value)?.into_iter().next()
}

/// The values that the path finds; `None` if it cannot be read.
pub(crate) fn all<'a>(path: &str, value: &'a Value) -> Option<Vec<&'a Value>> {
    Some(find(&parse(path)?, value))
}

fn find<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps {
        found = found.into_iter().flat_map(|value| follow(step, value)).collect();
    }
    found
}

fn follow<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Member(name), _) => value.get(name).into_iter().collect(),
        (Step::Index(index), Value::Array(items)) => {
            let position = if *index < 0 {
                usize::try_from(index.unsigned_abs()).ok().and_then(|i| items.len().checked_sub(i))
            } else {
                usize::try_from(*index).ok()
            };
            position.and_then(|position| items.get(position)).into_iter().collect()
        }
        (Step::All, Value::Array(items)) => items.iter().collect(),
        (Step::All, Value::Object(members)) => members.values().collect(),
        (Step::Filter(filter), Value::Array(items)) => {
            items.iter().filter(|item| filter.accepts(item)).collect()
        }
        _ => Vec::new(),
    }
}

impl Filter {
    fn accepts(&self, item: &Value) -> bool {
        let found = find(&self.path, item);
        match &self.test {
            None => !found.is_empty(),
            Some((equal, literal)) => {
                !found.is_empty() && found.iter().any(|value| (*value == literal) == *equal)
            }
        }
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            steps.push(bracket(inner.get(..end)?.trim())?);
            rest = inner.get(end + 1..)?;
        } else {
            let (name, tail) = member(rest.strip_prefix('.').unwrap_or(rest));
            rest = tail;
            match name.as_str() {
                "" if rest.is_empty() => {}
                // `..` is a search that columns must not use.
                "" if !rest.starts_with('[') => return None,
                "" => {}
                "*" => steps.push(Step::All),
                _ => steps.push(Step::Member(name)),
            }
        }
    }
    Some(steps)
}

/// A member name up to the next `.` or `[`; a backslash takes the next character as it is.
fn member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            _ => name.push(letter),
        }
    }
    (name, "")
}

/// The position of the bracket that ends a step, past quotes and inner brackets.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0_u32;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(name) = unquoted(inner) {
        return Some(Step::Member(name.replace("\\.", ".")));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|inner| inner.strip_suffix(')')) {
        return filter_of(filter.trim()).map(Step::Filter);
    }
    inner.parse().ok().map(Step::Index)
}

fn filter_of(text: &str) -> Option<Filter> {
    let operator = ["==", "!="].into_iter().find_map(|sign| Some((sign, text.find(sign)?)));
    let (path, test) = match operator {
        None => (text, None),
        Some((sign, at)) => {
            let literal = text.get(at + sign.len()..)?.trim();
            let literal = match unquoted(literal) {
                Some(text) => Value::from(text),
                None => literal.parse().ok()?,
            };
            (text.get(..at)?.trim(), Some((sign == "==", literal)))
        }
    };
    Some(Filter { path: parse(path.strip_prefix('@')?)?, test })
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}
