//! What a set of objects has in common, as a CEL expression that holds for them and for no object with another field or
//! value.
//!
//! The expressions work on plain maps, so a field that is newer than this program is refused, too, if the API server
//! knows it; the API server drops fields that it does not know.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use kata_plan::forms::VARIES;

/// Fields that identify the items of a list. The first that every item has is used: a container may mount one volume
/// twice, at two paths.
const KEYS: [&str; 2] = ["mountPath", "name"];

/// What a value may be.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Anything.
    Any,
    /// What this CEL expression holds for, in which `{}` is the value.
    Rule(String),
    /// One of these scalars, as literals of CEL.
    OneOf(BTreeSet<String>),
    /// A map with these fields.
    Fields(BTreeMap<String, Field>),
    /// A list whose items differ in this field, by its value.
    Keyed(&'static str, BTreeMap<String, Field>),
    /// A list of this length, item by item.
    Items(Vec<Self>),
    /// A list of any of these scalars, as literals of CEL.
    Subset(BTreeSet<String>),
}

/// A field of a map, or an item of a list.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) shape: Shape,
    pub(super) required: bool,
}

impl Shape {
    /// The shape of all these values.
    pub(super) fn of(values: &[&Value]) -> Self {
        if values.iter().all(|value| value.is_object()) {
            let maps: Vec<&Map<String, Value>> =
                values.iter().filter_map(|value| value.as_object()).collect();
            return Self::of_maps(&maps);
        }
        if values.iter().all(|value| value.is_array()) {
            let lists: Vec<&[Value]> =
                values.iter().filter_map(|value| value.as_array().map(Vec::as_slice)).collect();
            return Self::of_lists(&lists);
        }
        let varies = |value: &&&Value| value.as_str().is_some_and(|text| text.contains(VARIES));
        if values.iter().any(|value| varies(&value)) {
            return Self::Any;
        }
        Self::OneOf(values.iter().map(|value| literal(value)).collect())
    }

    fn of_maps(maps: &[&Map<String, Value>]) -> Self {
        let keys: BTreeSet<&String> = maps.iter().flat_map(|map| map.keys()).collect();
        let field = |key: &&String| {
            let values: Vec<&Value> =
                maps.iter().filter_map(|map| map.get(*key)).filter(|it| !is_dropped(it)).collect();
            let required = values.len() == maps.len();
            let shape = Self::of(&values);
            (!values.is_empty()).then(|| ((*key).clone(), Field { shape, required }))
        };
        Self::Fields(keys.iter().filter_map(field).collect())
    }

    fn of_lists(lists: &[&[Value]]) -> Self {
        let items = || lists.iter().copied().flatten();
        if let Some(key) = KEYS.into_iter().find(|key| items().all(|item| item[key].is_string())) {
            let mut by_key: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
            for item in items() {
                by_key.entry(item[key].as_str().unwrap_or_default()).or_default().push(item);
            }
            let keyed = by_key.into_iter().map(|(value, items)| {
                let mut shape = Self::of(&items);
                shape.take(key);
                let required = items.len() == lists.len();
                (value.to_owned(), Field { shape, required })
            });
            return Self::Keyed(key, keyed.collect());
        }
        let length = lists.first().map_or(0, |list| list.len());
        if lists.iter().all(|list| list.len() == length) {
            let items = (0..length).map(|index| {
                let values: Vec<&Value> = lists.iter().filter_map(|list| list.get(index)).collect();
                Self::of(&values)
            });
            return Self::Items(items.collect());
        }
        Self::Subset(lists.iter().copied().flatten().map(literal).collect())
    }

    /// Takes the shape of a field or item out of this one, which then permits any value there.
    pub(super) fn take(&mut self, key: &str) -> Self {
        self.shape_of(key).map_or(Self::Any, |shape| std::mem::replace(shape, Self::Any))
    }

    fn shape_of(&mut self, key: &str) -> Option<&mut Self> {
        match self {
            Self::Fields(fields) | Self::Keyed(_, fields) => {
                fields.get_mut(key).map(|field| &mut field.shape)
            }
            _ => None,
        }
    }

    /// Sets the shape of a field. One that the objects do not have is what the API server may add.
    pub(super) fn set(&mut self, key: &str, shape: Self) {
        if let Some(known) = self.shape_of(key) {
            *known = shape;
        } else if let Self::Fields(fields) = self {
            fields.insert(key.to_owned(), Field { shape, required: false });
        }
    }

    /// Sets the shape of a field that these objects do not have.
    pub(super) fn set_if_new(&mut self, key: &str, shape: Self) {
        if self.shape_of(key).is_none() {
            self.set(key, shape);
        }
    }

    /// Makes a field optional.
    pub(super) fn relax(&mut self, key: &str) {
        self.set_required(key, false);
    }

    /// Makes a field required, since the API server always sets it.
    pub(super) fn require(&mut self, key: &str) {
        self.set_required(key, true);
    }

    fn set_required(&mut self, key: &str, required: bool) {
        if let Self::Fields(fields) = self
            && let Some(field) = fields.get_mut(key)
        {
            field.required = required;
        }
    }

    /// One of these values, which the API server may set.
    pub(super) fn one_of<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        Self::OneOf(values.into_iter().map(literal).collect())
    }

    /// Changes each item of a list with keys.
    pub(super) fn each(&mut self, change: impl Fn(&mut Self)) {
        if let Self::Keyed(_, items) = self {
            items.values_mut().for_each(|item| change(&mut item.shape));
        }
    }

    /// Changes the shape at a path of fields.
    pub(super) fn within(&mut self, path: &[&str], change: impl FnOnce(&mut Self)) {
        match path.split_first() {
            None => change(self),
            Some((first, rest)) => {
                if let Some(shape) = self.shape_of(first) {
                    shape.within(rest, change);
                }
            }
        }
    }

    /// Changes the shape of each field.
    pub(super) fn each_field(&mut self, change: impl Fn(&mut Self)) {
        if let Self::Fields(fields) = self {
            fields.values_mut().for_each(|field| change(&mut field.shape));
        }
    }

    /// A CEL expression that holds for values of this shape; `value` is an expression of the type dyn.
    pub(super) fn holds(&self, value: &str) -> String {
        self.nested(value, 0)
    }

    /// `depth` keeps the variables of nested macros apart.
    fn nested(&self, value: &str, depth: usize) -> String {
        match self {
            Self::Any => "true".to_owned(),
            Self::Rule(rule) => rule.replace("{}", value),
            Self::OneOf(literals) => match literals.iter().next() {
                Some(only) if literals.len() == 1 => format!("{value} == {only}"),
                _ => format!("{value} in {}", in_brackets(literals)),
            },
            Self::Fields(fields) => of_fields(fields, value, depth),
            Self::Keyed(key, items) => {
                let item = variable("item", depth);
                let alternatives = items.iter().map(|(known, Field { shape, .. })| {
                    let holds = shape.nested(&item, depth + 1);
                    format!("({item}.{key} == {} && {holds})", quoted(known))
                });
                let alternatives: Vec<String> = alternatives.collect();
                let all = format!("{value}.all({item}, {})", alternatives.join(" || "));
                [all]
                    .into_iter()
                    .chain(are_there(key, items, value, &item))
                    .collect::<Vec<_>>()
                    .join(" && ")
            }
            Self::Items(items) => {
                let length = format!("{value}.size() == {}", items.len());
                let items = items.iter().enumerate();
                let constrained = items.filter(|(_, shape)| !matches!(shape, Self::Any));
                let each = constrained
                    .map(|(index, shape)| shape.nested(&format!("{value}[{index}]"), depth));
                [length].into_iter().chain(each).collect::<Vec<_>>().join(" && ")
            }
            Self::Subset(literals) => {
                let item = variable("item", depth);
                format!("{value}.all({item}, {item} in {})", in_brackets(literals))
            }
        }
    }
}

/// Expressions that hold if a list has the items that it always has. Without the mount of the operator's copy, for
/// example, a container would start what its image has in that place.
pub(super) fn are_there<'a>(
    key: &'a str,
    items: &'a BTreeMap<String, Field>,
    value: &'a str,
    item: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let required = items.iter().filter(|(_, field)| field.required);
    required
        .map(move |(known, _)| format!("{value}.exists({item}, {item}.{key} == {})", quoted(known)))
}

fn of_fields(fields: &BTreeMap<String, Field>, value: &str, depth: usize) -> String {
    let key = variable("key", depth);
    let names: BTreeSet<String> = fields.keys().map(|name| quoted(name)).collect();
    let mut parts = vec![format!("{value}.all({key}, {key} in {})", in_brackets(&names))];
    for (name, Field { shape, required }) in fields {
        let (has, field) = access(value, name);
        let holds = shape.nested(&field, depth);
        parts.extend(match (required, shape) {
            (true, Shape::Any) => Some(has),
            (true, _) => Some(format!("{has} && {holds}")),
            (false, Shape::Any) => None,
            (false, _) => Some(format!("(!{has} || ({holds}))")),
        });
    }
    parts.join(" && ")
}

/// Whether a map has a field, and the field.
fn access(value: &str, name: &str) -> (String, String) {
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return (format!("has({value}.{name})"), format!("{value}.{name}"));
    }
    (format!("('{name}' in {value})"), format!("{value}['{name}']"))
}

fn variable(name: &str, depth: usize) -> String {
    if depth == 0 { name.to_owned() } else { format!("{name}{depth}") }
}

/// Whether the API server drops such a value. An empty struct stays, such as that of an emptyDir.
fn is_dropped(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn quoted(text: &str) -> String {
    format!("'{text}'")
}

fn literal(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), quoted)
}

fn in_brackets(literals: &BTreeSet<String>) -> String {
    let literals: Vec<&str> = literals.iter().map(String::as_str).collect();
    format!("[{}]", literals.join(", "))
}
