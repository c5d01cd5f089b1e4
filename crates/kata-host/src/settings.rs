//! Settings of a runtime: TOML of the KataConfig, merged into the payload's configuration of a shim.
//!
//! Tables are merged; lists and all other values are replaced. No key of Kata is named here: the keys that a shim
//! knows are those of the payload's file, whether they are set there or commented out.

use std::collections::BTreeMap;

use toml_edit::{Array, DocumentMut, InlineTable, Item, TableLike, Value};

/// How similar two keys are, from 0 to 1, if one may be a misspelling of the other.
const SIMILAR: f64 = 0.85;
/// Tables of which a configuration has exactly those that its shim reads.
const CHOICES: [&str; 2] = ["hypervisor", "agent"];

/// A setting that the payload's file does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownSetting {
    /// Its key.
    pub(crate) key: String,
    /// The key that may be meant.
    pub(crate) similar: Option<String>,
}

/// The settings of a runtime.
#[derive(Debug)]
pub(crate) struct Settings(DocumentMut);

impl Settings {
    /// Reads settings.
    ///
    /// # Errors
    /// If the text is no TOML.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed: Result<DocumentMut, toml_edit::TomlError> = text.parse();
        parsed.map(Self).map_err(|error| format!("is no TOML: {}", error.message()))
    }

    /// Whether they set a key.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        let found = path.iter().try_fold(self.0.as_item(), |item, key| {
            item.as_table_like().and_then(|table| table.get(key))
        });
        found.is_some()
    }

    /// The texts of the settings, also those in lists, each with its key.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        texts(self.0.as_table(), &mut Vec::new(), &mut found);
        found
    }

    /// Merges the settings into a configuration, and returns those that it does not know. `file` is its name in
    /// messages.
    ///
    /// # Errors
    /// If the settings do not fit: a table of another hypervisor, or a value of another type.
    pub(crate) fn merge(
        &self,
        configuration: &mut DocumentMut,
        file: &str,
    ) -> Result<Vec<UnknownSetting>, String> {
        let known = known(configuration);
        let mut merging = Merging { file, known, unknown: Vec::new(), path: Vec::new() };
        merging.table(configuration.as_table_mut(), self.0.as_table())?;
        Ok(merging.unknown)
    }
}

fn texts(table: &dyn TableLike, path: &mut Vec<String>, found: &mut Vec<(String, String)>) {
    for (key, item) in table.iter() {
        path.push(key.to_owned());
        if let Some(table) = item.as_table_like() {
            texts(table, path, found);
        }
        let in_list = item.as_array().into_iter().flatten().filter_map(Value::as_str);
        let all = item.as_str().into_iter().chain(in_list);
        found.extend(all.map(|text| (dotted(path), text.to_owned())));
        path.pop();
    }
}

struct Merging<'a> {
    file: &'a str,
    /// The kinds of the values that the configuration has or shows in comments, by dotted key.
    known: BTreeMap<String, &'static str>,
    unknown: Vec<UnknownSetting>,
    path: Vec<String>,
}

impl Merging<'_> {
    fn table(&mut self, into: &mut dyn TableLike, from: &dyn TableLike) -> Result<(), String> {
        for (key, item) in from.iter() {
            self.path.push(key.to_owned());
            self.item(into, key, item)?;
            self.path.pop();
        }
        Ok(())
    }

    fn item(&mut self, into: &mut dyn TableLike, key: &str, item: &Item) -> Result<(), String> {
        let (name, file) = (dotted(&self.path), self.file);
        let is_choice =
            matches!(self.path.as_slice(), [table, _] if CHOICES.contains(&table.as_str()));
        if is_choice && !into.get(key).is_some_and(Item::is_table_like) {
            let table = &self.path[0];
            let there: Vec<String> = into
                .iter()
                .filter(|(_, item)| item.is_table_like())
                .map(|(key, _)| format!("[{table}.{key}]"))
                .collect();
            return Err(if there.is_empty() {
                format!("sets {name}, but {file} has no table [{table}.NAME]")
            } else {
                format!("sets {name}, but {file} has only {}", there.join(", "))
            });
        }
        let Some(from) = item.as_table_like() else {
            let Some(value) = item.as_value() else {
                return Err(format!("sets {name} to a list of tables, which {file} has not"));
            };
            let (is, known) = (kind(value), self.known.get(&name));
            if into.get(key).is_some_and(Item::is_table_like) {
                return Err(format!("sets {name} to {is}, and {file} has a table there"));
            }
            // A float may be written as an integer.
            if let Some(known) = known
                && *known != is
                && (*known, is) != ("a float", "an integer")
            {
                return Err(format!("sets {name} to {is}, and {file} has {known} there"));
            }
            if known.is_none() {
                self.unknown.push(UnknownSetting { key: name, similar: self.similar() });
            }
            into.insert(key, Item::Value(canonical(value)));
            return Ok(());
        };
        if !into.contains_key(key) {
            into.insert(key, Item::Table(toml_edit::Table::new()));
        }
        match into.get_mut(key).and_then(Item::as_table_like_mut) {
            Some(into) => self.table(into, from),
            None => Err(format!("sets {name} to a table, and {file} has a value there")),
        }
    }

    /// The known key of the same table that is most similar to the current one.
    fn similar(&self) -> Option<String> {
        let (key, table) = self.path.split_last()?;
        let prefix = format!("{}.", dotted(table));
        let candidates = self.known.keys().filter_map(|name| {
            let known = name.strip_prefix(&prefix).filter(|known| !known.contains('.'))?;
            Some((strsim::jaro_winkler(known, key), name))
        });
        let best = candidates.max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.filter(|(similarity, _)| *similarity >= SIMILAR).map(|(_, name)| name.clone())
    }
}

/// The value without its notation: the shims read TOML 1.0, and some notations are newer.
fn canonical(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.value().as_str()),
        Value::Integer(number) => Value::from(*number.value()),
        Value::Float(number) => Value::from(*number.value()),
        Value::Boolean(truth) => Value::from(*truth.value()),
        Value::Datetime(time) => Value::from(*time.value()),
        Value::Array(list) => Value::Array(list.iter().map(canonical).collect::<Array>()),
        Value::InlineTable(table) => Value::InlineTable(
            table
                .iter()
                .map(|(key, value)| (key.to_owned(), canonical(value)))
                .collect::<InlineTable>(),
        ),
    }
}

/// A path as it is written in TOML.
fn dotted(path: &[String]) -> String {
    path.iter().map(|key| quoted(key)).collect::<Vec<_>>().join(".")
}

/// A key as it is written in TOML, so that one with a dot does not pass for a path.
fn quoted(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it));
    if is_bare { key.to_owned() } else { format!("{key:?}") }
}

/// The kinds of the values of a configuration, by dotted key: of those that it sets, and of those that it shows in
/// comments, such as `#enable_debug = true`.
fn known(configuration: &DocumentMut) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    values(configuration.as_table(), "", &mut found);
    let text = configuration.to_string();
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = format!("{}.", header.trim());
            continue;
        }
        let Some(comment) = line.strip_prefix('#') else { continue };
        let Ok(shown) = comment.trim_matches('#').trim().parse::<DocumentMut>() else { continue };
        for (key, value) in shown.iter().filter_map(|(key, item)| Some((key, item.as_value()?))) {
            found.entry(format!("{table}{}", quoted(key))).or_insert_with(|| kind(value));
        }
    }
    found
}

fn values(table: &dyn TableLike, prefix: &str, found: &mut BTreeMap<String, &'static str>) {
    for (key, item) in table.iter() {
        let name = format!("{prefix}{}", quoted(key));
        match (item.as_value(), item.as_table_like()) {
            (Some(value), _) => drop(found.insert(name, kind(value))),
            (None, Some(table)) => values(table, &format!("{name}."), found),
            (None, None) => {}
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a time",
        Value::Array(_) => "a list",
        Value::InlineTable(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use toml_edit::DocumentMut;

    use super::{Settings, UnknownSetting};

    /// Keys as the configurations of Kata's shims have them: set, or commented out with their defaults.
    const QEMU: &str = "[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu-system-x86_64\"\ndefault_vcpus = 1\n\
                        default_memory = 2048\nkernel_params = \"\"\nenable_annotations = [\"enable_iommu\"]\n\
                        #enable_debug = true\n#memory_slots = 10\n\n[factory]\n#enable_template = true\n\n\
                        [agent.kata]\n#debug_console_enabled = true\n\n[runtime]\n#sandbox_cgroup_only = false\n";
    const QEMU_RS: &str = "[hypervisor.qemu]\ndefault_vcpus = 1.0\ndefault_memory = 2048\n\n[agent.kata]\n\
                           create_container_timeout = 60\n\n[runtime]\nhypervisor_name = \"qemu\"\n";
    const CLH: &str =
        "[hypervisor.clh]\ndefault_vcpus = 1\ndefault_memory = 2048\n[agent.kata]\n[runtime]\n";
    const DRAGONBALL: &str = "[hypervisor.dragonball]\ndefault_vcpus = 1\ndefault_memory = 256\n[agent.kata]\n[runtime]\n";
    const FC: &str = "[hypervisor.firecracker]\ndefault_vcpus = 1\ndefault_memory = 2048\n[agent.kata]\n[runtime]\n";

    /// The merged text, and the settings that are not known.
    fn merge(text: &str, settings: &str) -> Result<(String, Vec<UnknownSetting>), String> {
        let mut configuration: DocumentMut = text.parse().unwrap();
        let unknown =
            Settings::parse(settings)?.merge(&mut configuration, "configuration-x.toml")?;
        Ok((configuration.to_string(), unknown))
    }

    #[test]
    fn memory_is_set_in_the_file_of_each_shim() {
        for (text, table) in [
            (QEMU, "qemu"),
            (QEMU_RS, "qemu"),
            (CLH, "clh"),
            (DRAGONBALL, "dragonball"),
            (FC, "firecracker"),
        ] {
            let settings = format!("[hypervisor.{table}]\ndefault_memory = 4096\n");
            let (merged, unknown) = merge(text, &settings).unwrap();
            assert_eq!(unknown, [], "{table}");
            let before = if text == DRAGONBALL { "256" } else { "2048" };
            assert_eq!(
                merged,
                text.replace(&format!("memory = {before}"), "memory = 4096"),
                "{table}"
            );
        }
    }

    #[test]
    fn tables_are_merged_and_lists_are_replaced() {
        let settings = "[hypervisor.qemu]\nkernel_params = \"quiet\"\nenable_annotations = [\"default_memory\"]\n\
                        memory_slots = 4\n[agent.kata]\ndebug_console_enabled = true\n[factory]\n\
                        enable_template = false\n";
        let (merged, unknown) = merge(QEMU, settings).unwrap();
        assert_eq!(unknown, []);
        for line in [
            "kernel_params = \"quiet\"",
            "enable_annotations = [\"default_memory\"]",
            "memory_slots = 4",
            "debug_console_enabled = true",
            "enable_template = false",
            "default_memory = 2048",
        ] {
            assert!(merged.lines().any(|it| it == line), "{line}\n{merged}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_sides() {
        for (text, settings, expected) in [
            (
                QEMU,
                "[hypervisor.clh]\ndefault_memory = 1",
                "sets hypervisor.clh, but configuration-x.toml has only [hypervisor.qemu]",
            ),
            (
                QEMU,
                "[hypervisor.qemu]\ndefault_memory = \"4096\"",
                "sets hypervisor.qemu.default_memory to a string, and configuration-x.toml has an integer there",
            ),
            (
                QEMU,
                "[hypervisor.qemu]\nmemory_slots = true",
                "sets hypervisor.qemu.memory_slots to a boolean, and configuration-x.toml has an integer there",
            ),
            (
                QEMU,
                "[hypervisor.qemu.default_memory]\nx = 1",
                "sets hypervisor.qemu.default_memory to a table, and configuration-x.toml has a value there",
            ),
            (
                QEMU,
                "[hypervisor]\ndefault_memory = 4096",
                "sets hypervisor.default_memory, but configuration-x.toml has only [hypervisor.qemu]",
            ),
            (
                QEMU,
                "[hypervisor]\n\"qemu.default_memory\" = 4096",
                "sets hypervisor.\"qemu.default_memory\", but configuration-x.toml has only [hypervisor.qemu]",
            ),
            (
                QEMU,
                "[agent]\nkata = 1",
                "sets agent.kata to an integer, and configuration-x.toml has a table there",
            ),
            (
                QEMU,
                "[[factory.x]]\ny = 1",
                "sets factory.x to a list of tables, which configuration-x.toml has not",
            ),
        ] {
            assert_eq!(merge(text, settings), Err(expected.to_owned()), "{settings}");
        }
        // Notations of TOML 1.1 are not what the shims read.
        let (merged, _) = merge(QEMU, "[hypervisor.qemu]\nkernel_params = \"a\\x20b\"\n").unwrap();
        assert!(merged.contains("kernel_params = \"a b\""), "{merged}");
        // Tables may be written in other ways.
        for settings in [
            "hypervisor.qemu.memory_slots = 4",
            "[hypervisor]\nqemu = {memory_slots = 4}",
            "[hypervisor]\nqemu.memory_slots = 4",
            "[\"hypervisor\".'qemu']\n\"memory_slots\" = 4",
        ] {
            let (merged, unknown) = merge(QEMU, settings).unwrap();
            assert_eq!(unknown, [], "{settings}");
            assert!(merged.contains("default_memory = 2048"), "{settings}\n{merged}");
            assert!(merged.contains("memory_slots = 4"), "{settings}\n{merged}");
            merged.parse::<toml_edit::DocumentMut>().unwrap();
        }
        // runtime-rs takes fractions of CPUs, and a whole number is one as well.
        assert!(merge(QEMU_RS, "[hypervisor.qemu]\ndefault_vcpus = 2").is_ok());
    }

    #[test]
    fn an_unknown_key_is_merged_and_named() {
        let (merged, unknown) =
            merge(QEMU, "[hypervisor.qemu]\ndefault_memry = 4096\nnew_key = 1\n").unwrap();
        assert!(merged.contains("default_memry = 4096"), "{merged}");
        let similar = Some("hypervisor.qemu.default_memory".to_owned());
        assert_eq!(
            unknown,
            [
                UnknownSetting { key: "hypervisor.qemu.default_memry".to_owned(), similar },
                UnknownSetting { key: "hypervisor.qemu.new_key".to_owned(), similar: None }
            ]
        );
    }
}
