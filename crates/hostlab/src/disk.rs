//! A file system in memory that forgets what was not made durable when the power fails.

use std::collections::BTreeMap;

use kata_host::host::{FileKind, Stat};
use kata_host::paths::RUN_DIR;

/// A file system. Names and contents become durable separately, as on a real one.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What processes see.
    live: BTreeMap<String, Node>,
    /// What is there after a loss of power.
    durable: BTreeMap<String, Node>,
    files: Vec<File>,
    /// When entries of directories were last changed.
    touched: BTreeMap<String, i64>,
    clock: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Directory(u32),
    Link(String),
    /// Index into `files`.
    File(usize),
    /// A named pipe.
    Pipe,
}

#[derive(Clone, Debug, Default)]
struct File {
    content: Vec<u8>,
    /// What it takes of the disk without being content.
    reserved: u64,
    durable: Vec<u8>,
    mode: u32,
    /// User and group; root's unless the test sets another.
    owner: (u32, u32),
    modified: i64,
    /// The time of its last change of any kind, which no process can set.
    changed: i64,
}

/// What the smallest file takes of the disk.
pub const BLOCK: u64 = 4096;

impl File {
    fn used(&self) -> u64 {
        (self.content.len() as u64).max(self.reserved).next_multiple_of(BLOCK)
    }
}

fn parent(path: &str) -> &str {
    kata_host::paths::parent(path)
}

impl Disk {
    /// Resolves links in all parts but the last.
    fn resolve(&self, path: &str, last: bool) -> String {
        let link = |end: usize| matches!(self.live.get(&path[..end]), Some(Node::Link(_)));
        let normal = path.len() > 1 && !path.ends_with('/') && !path.contains("/..");
        let above = path.match_indices('/').skip(1).any(|(end, _)| link(end));
        if normal && !above && !(last && link(path.len())) {
            return path.to_owned();
        }
        let mut resolved = String::new();
        let mut parts: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).rev().collect();
        let mut links = 0;
        while let Some(part) = parts.pop() {
            if part == ".." {
                resolved = parent(&resolved).trim_end_matches('/').to_owned();
                continue;
            }
            let next = format!("{resolved}/{part}");
            match self.live.get(&next) {
                Some(Node::Link(target)) if (last || !parts.is_empty()) && links < 8 => {
                    links += 1;
                    if target.starts_with('/') {
                        resolved.clear();
                    }
                    parts.extend(
                        target.split('/').filter(|part| !part.is_empty()).map(str::to_owned).rev(),
                    );
                }
                _ => resolved = next,
            }
        }
        if resolved.is_empty() { "/".to_owned() } else { resolved }
    }

    /// Lets the time of the file system go on, and gives it.
    pub fn tick(&mut self) -> i64 {
        self.clock += 1;
        self.clock
    }

    /// Notes that an entry of a directory came or went.
    fn touch(&mut self, path: &str) {
        let now = self.tick();
        self.touched.insert(parent(path).to_owned(), now);
    }

    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        match self.live.get(&self.resolve(path, true))? {
            Node::File(index) => Some(self.files[*index].content.clone()),
            Node::Directory(_) | Node::Link(_) => None,
            Node::Pipe => panic!("a read of the pipe {path} never ends"),
        }
    }

    pub fn stat(&self, path: &str) -> Option<Stat> {
        let path = self.resolve(path, false);
        if path == "/" {
            return Some(plain(FileKind::Directory, 0o755));
        }
        Some(match self.live.get(&path)? {
            Node::Directory(mode) => {
                let changed = self.touched.get(&path).copied().unwrap_or_default();
                Stat { changed, ..plain(FileKind::Directory, *mode) }
            }
            Node::Link(target) => plain(FileKind::Link { target: target.clone() }, 0o777),
            Node::Pipe => plain(FileKind::Other, 0o644),
            Node::File(index) => {
                let file = &self.files[*index];
                Stat {
                    kind: FileKind::File,
                    mode: file.mode,
                    size: (file.content.len() as u64).max(file.reserved),
                    modified: file.modified,
                    changed: file.changed,
                    inode: *index as u64,
                }
            }
        })
    }

    pub fn list(&self, path: &str) -> Option<Vec<String>> {
        let path = self.resolve(path, true);
        if path != "/" && !matches!(self.live.get(&path), Some(Node::Directory(_))) {
            return None;
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        Some(
            self.live
                .range(prefix.clone()..)
                .map_while(|(name, _)| name.strip_prefix(&prefix))
                .filter(|name| !name.contains('/'))
                .map(str::to_owned)
                .collect(),
        )
    }

    fn parent_exists(&self, path: &str) -> Result<(), String> {
        let above = parent(path);
        if above == "/" || matches!(self.live.get(above), Some(Node::Directory(_))) {
            Ok(())
        } else {
            Err(format!("there is no directory {above}"))
        }
    }

    pub fn write(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), String> {
        let path = self.resolve(path, true);
        self.parent_exists(&path)?;
        self.clock += 1;
        let index = match self.live.get(&path) {
            Some(Node::File(index)) => *index,
            Some(_) => return Err("it is no file".to_owned()),
            None => {
                self.touch(&path);
                self.files.push(File { mode, ..File::default() });
                self.files.len() - 1
            }
        };
        self.files[index].content = content.to_vec();
        self.files[index].modified = self.clock;
        self.files[index].changed = self.clock;
        self.live.insert(path, Node::File(index));
        Ok(())
    }

    /// User and group of a file, if it is one.
    pub fn owner(&self, path: &str) -> Option<(u32, u32)> {
        match self.live.get(&self.resolve(path, false))? {
            Node::File(index) => Some(self.files[*index].owner),
            Node::Directory(_) | Node::Link(_) | Node::Pipe => None,
        }
    }

    /// Makes a named pipe.
    pub fn make_pipe(&mut self, path: &str) -> Result<(), String> {
        let path = self.resolve(path, false);
        self.parent_exists(&path)?;
        self.live.insert(path, Node::Pipe);
        Ok(())
    }

    /// Gives a file to a user and a group.
    pub fn give(&mut self, path: &str, owner: (u32, u32)) {
        if let Some(Node::File(index)) = self.live.get(&self.resolve(path, false)) {
            self.files[*index].owner = owner;
        }
    }

    /// Makes a file that takes so many bytes.
    pub fn reserve(&mut self, path: &str, bytes: u64) -> Result<(), String> {
        self.write(path, &[], 0o600)?;
        if let Some(Node::File(index)) = self.live.get(&self.resolve(path, true)) {
            self.files[*index].reserved = bytes;
        }
        Ok(())
    }

    /// What is taken of the disk, in blocks of 4096 bytes as on most.
    pub fn used(&self) -> u64 {
        let bytes = |node: &Node| match node {
            Node::Directory(_) | Node::Link(_) | Node::Pipe => BLOCK,
            Node::File(index) => self.files[*index].used(),
        };
        self.live.values().map(bytes).sum()
    }

    /// What one path takes.
    pub fn used_by(&self, path: &str) -> u64 {
        match self.live.get(&self.resolve(path, true)) {
            Some(Node::File(index)) => self.files[*index].used(),
            Some(_) | None => 0,
        }
    }

    pub fn sync_file(&mut self, path: &str) {
        if let Some(Node::File(index)) = self.live.get(&self.resolve(path, true)) {
            let file = &mut self.files[*index];
            file.durable.clone_from(&file.content);
        }
    }

    pub fn sync_dir(&mut self, path: &str) -> Result<(), String> {
        let path = self.resolve(path, true);
        if path != "/" && !matches!(self.live.get(&path), Some(Node::Directory(_))) {
            return Err("it is no directory".to_owned());
        }
        // A durable entry brings what is below it: what was renamed keeps its inode.
        let below = |name: &String| parent(name) == path;
        let old: Vec<String> = self.durable.keys().filter(|name| below(name)).cloned().collect();
        for name in old {
            if self.live.get(&name) != self.durable.get(&name) {
                self.durable.remove(&name);
                let prefix = format!("{name}/");
                self.durable.retain(|path, _| !path.starts_with(&prefix));
            }
        }
        let new: Vec<(String, Node)> = self
            .live
            .iter()
            .filter(|(name, _)| below(name))
            .map(|(name, node)| (name.clone(), node.clone()))
            .collect();
        self.durable.extend(new);
        Ok(())
    }

    pub fn sync_tree(&mut self, path: &str) {
        let path = self.resolve(path, true);
        let prefix = format!("{path}/");
        self.durable.retain(|name, _| !name.starts_with(&prefix));
        for (name, node) in &self.live {
            if *name == path || name.starts_with(&prefix) {
                self.durable.insert(name.clone(), node.clone());
                if let Node::File(index) = node {
                    let file = &mut self.files[*index];
                    file.durable.clone_from(&file.content);
                }
            }
        }
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        let (from, to) = (self.resolve(from, false), self.resolve(to, false));
        self.parent_exists(&to)?;
        let Some(node) = self.live.get(&from).cloned() else {
            return Err("it does not exist".to_owned());
        };
        let directory = |node: Option<&Node>| matches!(node, Some(Node::Directory(_)));
        if directory(self.live.get(&to)) && self.list(&to).is_some_and(|names| !names.is_empty()) {
            return Err("the directory is not empty".to_owned());
        }
        if directory(Some(&node)) {
            // Moves what is below in both worlds: a directory's entries are its own.
            for tree in [&mut self.live, &mut self.durable] {
                let prefix = format!("{from}/");
                let moved: Vec<(String, Node)> = tree
                    .iter()
                    .filter(|(name, _)| name.starts_with(&prefix))
                    .map(|(name, node)| (name.clone(), node.clone()))
                    .collect();
                for (name, node) in moved {
                    let new = format!("{to}/{}", &name[prefix.len()..]);
                    tree.insert(new, node);
                }
            }
            let prefix = format!("{from}/");
            self.live.retain(|name, _| !name.starts_with(&prefix));
        }
        self.live.remove(&from);
        self.touch(&from);
        self.touch(&to);
        if let Node::File(index) = &node {
            self.files[*index].changed = self.clock;
        }
        self.live.insert(to, node);
        Ok(())
    }

    pub fn unlink(&mut self, path: &str) -> Result<(), String> {
        let path = self.resolve(path, false);
        match self.live.get(&path) {
            Some(Node::Directory(_)) => Err("it is a directory".to_owned()),
            Some(_) => {
                self.live.remove(&path);
                self.touch(&path);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub fn symlink(&mut self, target: &str, path: &str) -> Result<(), String> {
        let path = self.resolve(path, false);
        self.parent_exists(&path)?;
        if self.live.contains_key(&path) {
            return Err("something is there".to_owned());
        }
        self.touch(&path);
        self.live.insert(path, Node::Link(target.to_owned()));
        Ok(())
    }

    pub fn make_dir(&mut self, path: &str, mode: u32) -> Result<(), String> {
        let path = self.resolve(path, true);
        self.parent_exists(&path)?;
        self.live.entry(path).or_insert(Node::Directory(mode));
        Ok(())
    }

    pub fn remove_dir(&mut self, path: &str) -> bool {
        let path = self.resolve(path, false);
        match self.list(&path) {
            Some(names) if !names.is_empty() => false,
            _ => {
                self.live.remove(&path);
                true
            }
        }
    }

    pub fn remove_tree(&mut self, path: &str) {
        let path = self.resolve(path, false);
        let below = format!("{path}/");
        self.live.retain(|name, _| *name != path && !name.starts_with(&below));
    }

    /// Changes the bytes of a file and nothing else about it, as a bad disk does it.
    pub fn rot(&mut self, path: &str) {
        let Some(Node::File(index)) = self.live.get(&self.resolve(path, true)) else {
            panic!("no file {path}");
        };
        self.files[*index].content.iter_mut().for_each(|byte| *byte ^= 1);
    }

    /// The same, as a process does it that restores the modification time afterwards.
    pub fn change_and_restore_time(&mut self, path: &str) {
        self.rot(path);
        self.clock += 1;
        if let Some(Node::File(index)) = self.live.get(&self.resolve(path, true)) {
            self.files[*index].changed = self.clock;
        }
    }

    /// Gives a file another mode, and nothing else.
    pub fn chmod(&mut self, path: &str, mode: u32) {
        let now = self.tick();
        if let Some(Node::File(index)) = self.live.get(&self.resolve(path, true)) {
            let file = &mut self.files[*index];
            (file.mode, file.changed) = (mode, now);
        }
    }

    /// Everything that exists, for tests: path to a description of what is there. What of ours a boot forgets is left
    /// out.
    pub fn all(&self) -> BTreeMap<String, String> {
        self.live
            .iter()
            .filter(|(path, _)| !path.starts_with(RUN_DIR))
            .map(|(path, node)| {
                let text = match node {
                    Node::Directory(mode) => format!("directory {mode:o}"),
                    Node::Link(target) => format!("link {target}"),
                    Node::Pipe => "pipe".to_owned(),
                    Node::File(index) => {
                        let file = &self.files[*index];
                        let content = String::from_utf8_lossy(&file.content);
                        let owner = match file.owner {
                            (0, 0) => String::new(),
                            (user, group) => format!("of {user}:{group} "),
                        };
                        format!("file {:o} {owner}{content}", file.mode)
                    }
                };
                (path.clone(), text)
            })
            .collect()
    }

    /// Makes everything durable, as it is long after everybody has written.
    pub fn settle(&mut self) {
        self.durable.clone_from(&self.live);
        for node in self.live.values() {
            if let Node::File(index) = node {
                let file = &mut self.files[*index];
                file.durable.clone_from(&file.content);
            }
        }
    }

    /// What is left after a loss of power.
    pub fn lose_power(&mut self) {
        // An entry whose directory is not durable is gone.
        let mut kept = BTreeMap::new();
        for (path, node) in &self.durable {
            let above = parent(path);
            if above == "/" || kept.contains_key(above) {
                kept.insert(path.clone(), node.clone());
            }
        }
        self.live.clone_from(&kept);
        self.durable = kept;
        for file in &mut self.files {
            file.content.clone_from(&file.durable);
        }
    }
}

fn plain(kind: FileKind, mode: u32) -> Stat {
    Stat { kind, mode, size: 0, modified: 0, changed: 0, inode: 0 }
}
